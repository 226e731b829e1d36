"""What the sync and the async module share: names of values, SQL, errors.  No I/O of a server."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import operator
import os
import struct
from dataclasses import dataclass, field
from io import SEEK_CUR, SEEK_END, SEEK_SET
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


class BlobUnexpected(BlobError):
    """The database lacks objects of the extension, or its answer is none that they give."""


def _quote(name: str) -> str:
    if "\0" in name:
        raise ValueError("a name must not contain the character NUL")
    return '"' + name.replace('"', '""') + '"'


def _escape(text: str) -> str:
    """For statements with parameters, in which psycopg looks for placeholders."""
    return text.replace("%", "%%")


def identifier(name: Name) -> str:
    """A table's name as SQL: a string is one name, a sequence is schema and name."""
    return _quote(name) if isinstance(name, str) else ".".join(map(_quote, name))


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

    def parameters(self, **others: Any) -> dict[str, Any]:
        """Values of the key's columns, and others, as parameters of the statements."""
        return {**{f"key_{i}": value for i, value in enumerate(self.key.values())}, **others}

    def insert_parameters(self, **others: Any) -> dict[str, Any]:
        return self.parameters(**{f"default_{i}": value for i, value in
                                  enumerate(self.defaults.values())}, **others)


# ---- objects of the extension ----

INT8, BYTEA = "20", "17"

# The functions that this package calls, with the types of their arguments; None is blobstate.
FUNCTIONS: Mapping[str, Tuple[Optional[str], ...]] = {
    "length": (None,), "sha256": (None,), "blob_read": (None, INT8, INT8),
    "blob_write": (None, INT8, BYTEA), "blob_upload_begin": (INT8,),
    "blob_upload_resume": (None, INT8), "blob_upload_write": (INT8, BYTEA),
    "blob_upload_end": (INT8,)}

# The members of the extension.  Other objects of these names count for nothing, wherever they are.
FIND_MEMBERS = """
SELECT 'function', n.nspname::pg_catalog.text, p.proname::pg_catalog.text,
    p.proargtypes::pg_catalog.text
FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_depend AS d ON d.refobjid OPERATOR(pg_catalog.=) e.oid
    JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) d.objid
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
WHERE e.extname OPERATOR(pg_catalog.=) 'blobext' AND d.deptype OPERATOR(pg_catalog.=) 'e'
    AND d.refclassid OPERATOR(pg_catalog.=)
        'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
    AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
    AND p.proname OPERATOR(pg_catalog.=) ANY ('{{{functions}}}'::pg_catalog.name[])
UNION ALL SELECT 'type', n.nspname::pg_catalog.text, t.typname::pg_catalog.text,
    t.oid::pg_catalog.text
FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_depend AS d ON d.refobjid OPERATOR(pg_catalog.=) e.oid
    JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) d.objid
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace
WHERE e.extname OPERATOR(pg_catalog.=) 'blobext' AND d.deptype OPERATOR(pg_catalog.=) 'e'
    AND d.refclassid OPERATOR(pg_catalog.=)
        'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
    AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid
    AND t.typname OPERATOR(pg_catalog.=) 'blobstate'
UNION ALL SELECT 'relation', n.nspname::pg_catalog.text, c.relname::pg_catalog.text, ''
FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_depend AS d ON d.refobjid OPERATOR(pg_catalog.=) e.oid
    JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) d.objid
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE e.extname OPERATOR(pg_catalog.=) 'blobext' AND d.deptype OPERATOR(pg_catalog.=) 'e'
    AND d.refclassid OPERATOR(pg_catalog.=)
        'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
    AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
    AND c.relname OPERATOR(pg_catalog.=) 'blob_upload_pieces'
""".format(functions=",".join(FUNCTIONS))

# How the columns of a key are compared: by the operator of their type's B-tree, whose schema need
# not be in the search path.  Types without one of their own have that of pg_catalog.
FIND_EQUALITY = """
WITH RECURSIVE base (name, type) AS (
    SELECT a.attname, a.atttypid FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid OPERATOR(pg_catalog.=) %(table)s::pg_catalog.regclass::pg_catalog.oid
        AND a.attname OPERATOR(pg_catalog.=) ANY (%(names)s::pg_catalog.text[])
    UNION ALL SELECT b.name, t.typbasetype FROM base AS b
        JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) b.type
    WHERE t.typtype OPERATOR(pg_catalog.=) 'd')
SELECT b.name::pg_catalog.text, n.nspname::pg_catalog.text, o.oprname::pg_catalog.text
FROM base AS b
    JOIN pg_catalog.pg_opclass AS c ON c.opcintype OPERATOR(pg_catalog.=) b.type AND c.opcdefault
    JOIN pg_catalog.pg_am AS m ON m.oid OPERATOR(pg_catalog.=) c.opcmethod
        AND m.amname OPERATOR(pg_catalog.=) 'btree'
    JOIN pg_catalog.pg_amop AS a ON a.amopfamily OPERATOR(pg_catalog.=) c.opcfamily
        AND a.amopstrategy OPERATOR(pg_catalog.=) 3::pg_catalog.int2
        AND a.amoplefttype OPERATOR(pg_catalog.=) b.type
        AND a.amoprighttype OPERATOR(pg_catalog.=) b.type
    JOIN pg_catalog.pg_operator AS o ON o.oid OPERATOR(pg_catalog.=) a.amopopr
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) o.oprnamespace
"""
EQUALITY = "OPERATOR(pg_catalog.=)"


class Members:
    """How SQL names the objects of the extension, in one database."""

    def __init__(self, rows: Sequence[Tuple[Any, ...]]) -> None:
        self._names: dict[str, str] = {}
        found: dict[Tuple[str, str, str], str] = {}
        blobstate = ""
        for row in rows:
            kind, schema, name, detail = (take(row, 4, i, str) for i in range(4))
            found[kind, name, detail] = f"{_quote(schema)}.{_quote(name)}"
            if kind == "type":
                blobstate = detail
                self._names["blobstate"] = found[kind, name, detail]
        if not blobstate:
            raise BlobUnexpected("the database does not have the extension blobext")
        wanted = [("function", name, " ".join(type or blobstate for type in types))
                  for name, types in FUNCTIONS.items()]
        for kind, name, detail in [*wanted, ("relation", "blob_upload_pieces", "")]:
            if (kind, name, detail) not in found:
                raise BlobUnexpected(f"the extension blobext has no {kind} {name}: its objects are"
                                     " older than this package (ALTER EXTENSION blobext UPDATE)")
            self._names[name] = found[kind, name, detail]
        self.copy = sql.SQL(f"COPY {self._names['blob_upload_pieces']} FROM STDIN (FORMAT binary)")
        self.begin = sql.SQL(f"SELECT {self['blob_upload_begin']}(%s::pg_catalog.int8)")
        self.write = sql.SQL(f"SELECT {self['blob_upload_write']}(%s::pg_catalog.int8,"
                             " %b::pg_catalog.bytea)")

    def __getitem__(self, name: str) -> str:
        """The qualified name, for a statement with parameters."""
        return _escape(self._names[name])


def equality_parameters(value: Value) -> dict[str, Any]:
    """Parameters of FIND_EQUALITY; ValueError for names that can be none."""
    identifier(list(value.key))
    return {"table": identifier(value.table), "names": list(value.key)}


def equality(rows: Sequence[Tuple[Any, ...]]) -> dict[str, str]:
    """The operator of each column that has one of its own."""
    found = {}
    for row in rows:
        name, schema, symbol = (take(row, 3, i, str) for i in range(3))
        found[name] = _escape(f"OPERATOR({_quote(schema)}.{symbol})")
    return found


class Statements:
    """The statements for one value.

    All that they name is qualified, and arguments have the types of the functions' parameters.  So
    no object of another role is called, whatever the search path, and whatever the column's type.
    """

    def __init__(self, value: Value, members: Members, operators: Mapping[str, str]) -> None:
        self._members = members
        self._value = value
        self._operators = operators
        self.table = _escape(identifier(value.table))
        self.column = _escape(_quote(value.column))

    def _where(self, prefix: str = "") -> str:
        return " AND ".join(
            f"{prefix}{_escape(_quote(name))} {self._operators.get(name, EQUALITY)} %(key_{i})s"
            for i, name in enumerate(self._value.key))

    def content(self, prefix: str = "") -> str:
        """The column as a blobstate; it may have a domain over that."""
        return f"({prefix}{self.column})::{self._members['blobstate']}"

    def summary(self, prefix: str = "") -> str:
        content = self.content(prefix)
        return f"{self._members['length']}({content}), {self._members['sha256']}({content})"

    def _insert_lists(self) -> Tuple[str, str]:
        value = self._value
        names = [*value.key, *value.defaults]
        return (", ".join(_escape(_quote(name)) for name in names),
                ", ".join([*(f"%(key_{i})s" for i in range(len(value.key))),
                           *(f"%(default_{i})s" for i in range(len(value.defaults)))]))

    def stat(self) -> sql.SQL:
        return sql.SQL(f"SELECT {self.summary()} FROM {self.table} WHERE {self._where()}")

    def read(self) -> sql.SQL:
        """A range of the one version with this digest, so that pieces never mix two of them."""
        return sql.SQL(
            f"SELECT {self._members['blob_read']}({self.content()}, %(offset)s::pg_catalog.int8,"
            f" %(length)s::pg_catalog.int8) FROM {self.table} WHERE {self._where()} AND"
            f" {self._members['sha256']}({self.content()}) {EQUALITY} %(sha256)s::pg_catalog.bytea")

    def resume(self) -> sql.SQL:
        return sql.SQL(
            f"SELECT {self._members['blob_upload_resume']}({self.content()},"
            f" %(expected)s::pg_catalog.int8), {self.summary()} FROM {self.table}"
            f" WHERE {self._where()} FOR UPDATE")

    def write(self) -> sql.SQL:
        return sql.SQL(
            f"UPDATE {self.table} SET {self.column} = {self._members['blob_write']}("
            f"{self.content()}, %(offset)s::pg_catalog.int8, %(data)s::pg_catalog.bytea)"
            f" WHERE {self._where()} RETURNING {self._members['length']}({self.content()})")

    def update(self) -> sql.SQL:
        return sql.SQL(
            f"UPDATE {self.table} SET {self.column} = {self._members['blob_upload_end']}("
            f"%(upload)s::pg_catalog.int8) WHERE {self._where()} RETURNING {self.summary()}")

    def insert(self) -> sql.SQL:
        """blob_upload_end() returns the same value again if an UPDATE before found no row."""
        names, values = self._insert_lists()
        return sql.SQL(
            f"INSERT INTO {self.table} ({names}, {self.column}) VALUES ({values},"
            f" {self._members['blob_upload_end']}(%(upload)s::pg_catalog.int8))"
            f" RETURNING {self.summary()}")

    def move(self, stage: "Statements") -> Tuple[sql.SQL, sql.SQL]:
        """UPDATE and INSERT of the value from a stage.  They share the content, and do nothing
        without a stage: so they may be run again when the answer of a commit was lost."""
        names, values = self._insert_lists()
        where = f"s.name {EQUALITY} %(stage)s::pg_catalog.text"
        return (sql.SQL(
                    f"UPDATE {self.table} AS t SET {self.column} = {stage.content('s.')}"
                    f" FROM {stage.table} AS s WHERE {where} AND {self._where('t.')}"
                    f" RETURNING {self.summary('t.')}"),
                sql.SQL(
                    f"INSERT INTO {self.table} ({names}, {self.column}) SELECT {values},"
                    f" {stage.content('s.')} FROM {stage.table} AS s WHERE {where}"
                    f" RETURNING {self.summary()}"))

    def stage_begin(self) -> sql.SQL:
        return sql.SQL(f"INSERT INTO {self.table} (name) VALUES (%(stage)s::pg_catalog.text)"
                       " ON CONFLICT DO NOTHING RETURNING true")

    def stage_end(self) -> sql.SQL:
        return sql.SQL(f"DELETE FROM {self.table} WHERE name {EQUALITY}"
                       " %(stage)s::pg_catalog.text RETURNING true")


# ---- answers of a server, which may be another one than it seems ----

class RowLimit:
    """How many rows of an answer are taken.

    A statement of this package has one row, or none; those for catalogs have some small ones, and a
    key that is not unique may give more.  libpq has one row whole in memory, whatever its size, so
    the first row has no limit; the others together have one.
    """

    MAX_ROWS = 1000
    MAX_BYTES = 16 * 1024 * 1024

    def __init__(self) -> None:
        self._rows = 0
        self._bytes = 0

    def count(self, row: Sequence[Any]) -> None:
        if self._rows > 0:
            self._bytes += sum(len(column) for column in row if isinstance(column, (bytes, str)))
        self._rows += 1

    @property
    def is_reached(self) -> bool:
        return self._rows > self.MAX_ROWS or self._bytes > self.MAX_BYTES


def take(row: Sequence[Any], columns: int, column: int, kind: type) -> Any:
    """A column of an answer: not NULL, and of the type that it should have."""
    if len(row) != columns or not isinstance(row[column], kind):
        raise BlobUnexpected("the server's answer is none of blobext's")
    return row[column]


def take_size(row: Sequence[Any], columns: int, column: int) -> int:
    size: int = take(row, columns, column, int)
    if not 0 <= size < 2 ** 63:
        raise BlobUnexpected(f"the server says that a value has {size} bytes")
    return size


def take_summary(row: Sequence[Any], first: int = 0) -> Summary:
    """The last two columns of a row."""
    digest = bytes(take(row, first + 2, first + 1, bytes))
    if len(digest) != 32:
        raise BlobUnexpected(f"the server gives a digest of {len(digest)} bytes")
    return Summary(take_size(row, first + 2, first), digest)


def take_piece(row: Sequence[Any], length: int) -> bytes:
    """Content of exactly this length: less would be asked for again, without end."""
    piece = bytes(take(row, 1, 0, bytes))
    if len(piece) != length:
        raise BlobUnexpected(f"the server gives {len(piece)} bytes in place of {length}")
    return piece


def new_position(position: int, size: int, offset: int, whence: int) -> int:
    """Of seek(), with the errors of a file."""
    base = {SEEK_SET: 0, SEEK_CUR: position, SEEK_END: size}.get(whence)
    offset = operator.index(offset)
    if not -2 ** 63 <= offset < 2 ** 63:
        raise OverflowError("the position is too large for a file")
    if base is None or not 0 <= base + offset < 2 ** 63:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return base + offset


def range_in(size: int, offset: int, length: int) -> int:
    """How many bytes of a range a value has."""
    if offset < 0 or length < 0:
        raise ValueError("offset and length must not be negative")
    return min(length, max(size - offset, 0))


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

    @property
    def parameters(self) -> dict[str, Any]:
        return {"stage": self.name}


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


def hash_stage(source: BinaryIO, start: int, stage: Stage, kept: Summary,
               seen: "list[hashlib._Hash]") -> "hashlib._Hash":
    """SHA-256 of what a stage has, up to where the file is positioned: that in ``seen``, if this
    upload has sent it, or else of the file's beginning.  BlobMismatch if the stage has another."""
    digest = seen.pop() if seen else None
    if digest is not None and digest.digest() == kept.sha256:
        source.seek(start + kept.size)
        return digest
    source.seek(start)
    digest = hash_beginning(source, kept.size)
    if digest.digest() != kept.sha256:
        raise BlobMismatch(f"stage {stage.name!r} has not the beginning of this file")
    return digest


def check(summary: Summary, size: int, digest: bytes) -> Summary:
    """BlobMismatch unless the server has the bytes that were sent."""
    if (summary.size, summary.sha256) != (size, digest):
        raise BlobMismatch(f"the server has {summary.size} bytes with another digest than the"
                           f" {size} bytes that were sent")
    return summary


def is_lost(connection: Optional[psycopg.BaseConnection[Any]],
            error: Optional[psycopg.Error] = None) -> bool:
    """Whether an OperationalError came from a connection that has failed, so that another attempt
    may help.  A server that ends a session says so before it closes the socket."""
    return (connection is None or connection.closed or connection.broken
            or error is not None and error.diag.severity_nonlocalized in ("FATAL", "PANIC"))
