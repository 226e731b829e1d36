"""What the sync and the async module share: names of values, SQL, errors.  No I/O of a server."""

from __future__ import annotations

import contextlib
import hashlib
import struct
from dataclasses import dataclass, field
from typing import (Any, BinaryIO, Callable, Generator, Iterator, Mapping, Optional, Sequence,
                    Tuple, Union)

import psycopg
from psycopg import sql
from psycopg.waiting import Wait

# A message of this size costs little beside its bytes.  libpq moves the rest of a message in memory
# whenever the socket takes a part of it, so larger ones get slower, not faster.
PIECE_BYTES = 1024 * 1024

# Pieces of an upload by COPY: psycopg splits larger ones than 128 kB, and the server works on one
# while the next is made.
COPY_BYTES = 124 * 1024

# An upload with a stage commits after this many bytes.
SECTION_BYTES = 64 * 1024 * 1024

# Seconds between attempts to connect again; a transfer gives up after the last.
PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)

#: Called with the number of bytes that are done, and their total, None if that is not known.
Progress = Callable[[int, Optional[int]], None]

Name = Union[str, Sequence[str]]


class BlobError(Exception):
    """Base of the errors of this package.  Errors of the server stay those of psycopg."""


class BlobMissing(BlobError, FileNotFoundError):
    """There is no such row, or its value is NULL."""


class BlobChanged(BlobError):
    """Another session has replaced or removed the value since it was opened."""


class BlobMismatch(BlobError):
    """The bytes that were stored, or read, have another digest than they should have."""


def identifier(name: Name) -> sql.Identifier:
    """A table's name as SQL: a string is one name, a sequence is schema and name."""
    return sql.Identifier(name) if isinstance(name, str) else sql.Identifier(*name)


@dataclass(frozen=True)
class Summary:
    """Size and SHA-256 of a value.  The server reads no content for them."""

    size: int
    sha256: bytes


@dataclass(frozen=True)
class Value:
    """Where a value is: table, column, and the columns that identify its row.

    ``table`` is a name, or a sequence of schema and name; names are quoted, so they are spelled as
    in the catalog.  ``key`` has the columns of a primary key, with their values.
    """

    table: Name
    key: Mapping[str, Any]
    column: str = "content"
    #: Further columns of a row that ``write`` and ``upload`` insert.
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("key must name at least one column")

    def _where(self) -> sql.Composable:
        return sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder("key_" + name))
            for name in self.key)

    def parameters(self, **others: Any) -> dict[str, Any]:
        """Values of the key's columns, and others, as parameters of the statements."""
        return {**{"key_" + name: value for name, value in self.key.items()}, **others}

    def _select(self, expression: str, condition: str = "") -> sql.Composed:
        return sql.SQL("SELECT " + expression + " FROM {table} WHERE {where}" + condition).format(
            content=sql.Identifier(self.column), table=identifier(self.table), where=self._where())

    def stat_query(self) -> sql.Composed:
        return self._select("pg_catalog.int8(length({content})), sha256({content})")

    def read_query(self) -> sql.Composed:
        """A range of the one version with this digest, so that pieces never mix two of them."""
        return self._select("blob_read({content}, %(offset)s, %(length)s)",
                            " AND sha256({content}) = %(sha256)s")

    def resume_query(self) -> sql.Composed:
        return self._select("blob_upload_resume({content}, %(expected)s), length({content}),"
                            " sha256({content})", " FOR UPDATE")

    def write_query(self) -> sql.Composed:
        return sql.SQL("UPDATE {table} SET {content} = blob_write({content}, %(offset)s, %(data)s)"
                       " WHERE {where} RETURNING length({content})").format(
            content=sql.Identifier(self.column), table=identifier(self.table), where=self._where())

    def update_query(self) -> sql.Composed:
        return sql.SQL("UPDATE {table} SET {content} = blob_upload_end(%(upload)s) WHERE {where}"
                       " RETURNING length({content}), sha256({content})").format(
            content=sql.Identifier(self.column), table=identifier(self.table), where=self._where())

    def insert_query(self) -> sql.Composed:
        """blob_upload_end() returns the same value again if an UPDATE before found no row."""
        columns = [*self.key, *self.defaults]
        values = [*(sql.Placeholder("key_" + name) for name in self.key),
                  *(sql.Placeholder("default_" + name) for name in self.defaults)]
        return sql.SQL("INSERT INTO {table} ({columns}, {content}) VALUES ({values},"
                       " blob_upload_end(%(upload)s)) RETURNING length({content}),"
                       " sha256({content})").format(
            table=identifier(self.table), content=sql.Identifier(self.column),
            columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
            values=sql.SQL(", ").join(values))

    def insert_parameters(self, upload: int) -> dict[str, Any]:
        return self.parameters(
            upload=upload, **{"default_" + name: value for name, value in self.defaults.items()})


BEGIN = "SELECT blob_upload_begin(%s)"
WRITE = "SELECT blob_upload_write(%s, %b)"
COPY = "COPY blob_upload_pieces FROM STDIN (FORMAT binary)"
COPY_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END = struct.pack("!h", -1)


class FirstError:
    """Around a COPY: psycopg tells the server of an exception, which fails the COPY then, and
    raises that failure.  This raises the exception itself."""

    def __init__(self) -> None:
        self._error: Optional[BaseException] = None

    @contextlib.contextmanager
    def inside(self) -> "Iterator[None]":
        try:
            yield
        except BaseException as error:
            self._error = error
            raise

    @contextlib.contextmanager
    def outside(self) -> "Iterator[None]":
        try:
            yield
        except psycopg.Error:
            if self._error is not None:
                raise self._error from None
            raise


def copy_row(upload: int, piece: bytes) -> bytes:
    """A row of COPY in binary: two columns, each with its length."""
    return struct.pack("!hiqi", 2, 8, upload, len(piece)) + piece


def flush(pgconn: Any) -> "Generator[Wait, Any, None]":
    """Send what libpq has in memory; for wait() of a connection.

    psycopg sends without blocking, and leaves the rest to libpq: for a long COPY that is all that
    the server has not received yet, which libpq moves in memory with each part that it sends.
    """
    while pgconn.flush() == 1:
        yield Wait.W


@dataclass(frozen=True)
class Stage:
    """A row that keeps an unfinished upload, so that it can be resumed after a broken connection.

    ``table`` has two columns, ``name text PRIMARY KEY`` and ``content blobstate NOT NULL``;
    ``CREATE_TABLE`` makes one.  ``name`` says which upload it is.
    """

    name: str
    table: Name = "blob_stage"

    CREATE_TABLE = ("CREATE TABLE IF NOT EXISTS blob_stage"
                    " (name text PRIMARY KEY, content blobstate NOT NULL DEFAULT '')")

    @property
    def value(self) -> Value:
        return Value(self.table, {"name": self.name})

    def begin_query(self) -> sql.Composed:
        return sql.SQL("INSERT INTO {} (name) VALUES (%s) ON CONFLICT DO NOTHING").format(
            identifier(self.table))

    def move_queries(self, target: Value) -> Tuple[sql.Composed, sql.Composed]:
        """UPDATE and INSERT of the target.  They share the content, and do nothing without a stage:
        so they may be run again when the answer of a commit was lost."""
        columns = [*target.key, *target.defaults]
        values = [*(sql.Placeholder("key_" + name) for name in target.key),
                  *(sql.Placeholder("default_" + name) for name in target.defaults)]
        names = {"table": identifier(target.table), "stage": identifier(self.table),
                 "content": sql.Identifier(target.column)}
        where = sql.SQL(" AND ").join(
            sql.SQL("t.{} = {}").format(sql.Identifier(name), sql.Placeholder("key_" + name))
            for name in target.key)
        return (sql.SQL("UPDATE {table} AS t SET {content} = s.content FROM {stage} AS s"
                        " WHERE s.name = %(stage)s AND {where}"
                        " RETURNING length(t.{content}), sha256(t.{content})").format(
                    where=where, **names),
                sql.SQL("INSERT INTO {table} ({columns}, {content}) SELECT {values}, s.content"
                        " FROM {stage} AS s WHERE s.name = %(stage)s"
                        " RETURNING length({content}), sha256({content})").format(
                    columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
                    values=sql.SQL(", ").join(values), **names))

    def move_parameters(self, target: Value) -> dict[str, Any]:
        return {**target.insert_parameters(0), "stage": self.name}

    def end_query(self) -> sql.Composed:
        return sql.SQL("DELETE FROM {} WHERE name = %s").format(identifier(self.table))


def remaining_size(source: BinaryIO) -> Optional[int]:
    """Bytes from the position of a file to its end; None if it cannot seek."""
    try:
        position = source.tell()
        end = source.seek(0, 2)
        source.seek(position)
    except (OSError, AttributeError):
        return None
    return max(end - position, 0)


def read_piece(source: BinaryIO, length: int) -> bytes:
    """Read exactly length bytes, fewer at the end only: raw files and pipes may give less."""
    pieces = []
    while length > 0:
        piece = source.read(length)
        if not piece:
            break
        pieces.append(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def hash_beginning(source: BinaryIO, length: int) -> "hashlib._Hash":
    """SHA-256 of the next bytes of a file, which is read up to there."""
    digest = hashlib.sha256()
    while length > 0:
        piece = read_piece(source, min(length, PIECE_BYTES))
        if not piece:
            raise BlobMismatch("the stored beginning is longer than the file")
        digest.update(piece)
        length -= len(piece)
    return digest


def check(summary: Summary, size: int, digest: bytes) -> Summary:
    """BlobMismatch unless the server has the bytes that were sent."""
    if (summary.size, summary.sha256) != (size, digest):
        raise BlobMismatch(f"the server has {summary.size} bytes with another digest than the"
                           f" {size} bytes that were sent")
    return summary


def is_lost(connection: Optional[psycopg.BaseConnection[Any]]) -> bool:
    """Whether an OperationalError came from a connection that has failed, so that another attempt
    may help."""
    return connection is None or connection.closed or connection.broken
