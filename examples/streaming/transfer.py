#!/usr/bin/env python3
"""Upload a file to a blobstate value, and download one, in pieces; see README.md.

Every piece is a statement, and a transaction, of its own.  If the connection breaks, the program
makes a new one and resumes the transfer; if the program ends, its next run resumes it.  At
the end the SHA-256 of both sides is compared.  Neither side has more than a piece in memory.
"""

import argparse
import hashlib
import os
import sys
import time

import psycopg

TABLE = """
CREATE TABLE IF NOT EXISTS file (
    name    text PRIMARY KEY,
    content blobstate NOT NULL DEFAULT ''
)"""

PIECE_BYTES = 4 * 1024 * 1024

# Seconds between attempts to connect again; the transfer gives up after the last.
PAUSES = (0.1, 0.5, 1, 2, 5, 10, 20, 30)


class TransferError(Exception):
    """The file and the value do not match; another attempt would not help."""


class Connection:
    """Runs single statements in autocommit; if the connection is lost, it connects again."""

    def __init__(self, dsn):
        self.dsn = dsn
        self.connection = None

    def row(self, query, parameters):
        """Return the first row, or None.  OperationalError: the connection is lost; the statement
        may have been executed or not."""
        if self.connection is None or self.connection.closed:
            self.connect()
        return self.connection.execute(query, parameters, binary=True).fetchone()

    def connect(self):
        for pause in (*PAUSES, None):
            try:
                self.connection = psycopg.connect(self.dsn, autocommit=True)
                return
            except psycopg.OperationalError:
                if pause is None:
                    raise
                time.sleep(pause)

    def lost(self):
        """Called after an OperationalError: has the connection failed?"""
        return self.connection is None or self.connection.closed

    def close(self):
        if self.connection is not None:
            self.connection.close()


def retry(connection, query, parameters):
    """Run a statement that may be executed twice."""
    for pause in (*PAUSES, None):
        try:
            return connection.row(query, parameters)
        except psycopg.OperationalError:
            if pause is None or not connection.lost():
                raise
            time.sleep(pause)


def server_state(connection, name):
    """Length and SHA-256 of a value, which come from the row: no content is read."""
    return retry(connection, "SELECT length(content), sha256(content) FROM file WHERE name = %s",
                 (name,))


def hash_beginning(file, length):
    """SHA-256 of the first bytes of a file; the file is then read from there on."""
    digest = hashlib.sha256()
    left = length
    while left > 0:
        piece = file.read(min(left, PIECE_BYTES))
        if not piece:
            raise TransferError("the value is longer than the file")
        digest.update(piece)
        left -= len(piece)
    return digest


def append(connection, name, offset, piece):
    """Append a piece to a value of exactly offset bytes.  So a piece cannot be appended twice, if
    the answer was lost with the connection."""
    return connection.row("UPDATE file SET content = blob_append(content, %b)"
                          " WHERE name = %s AND length(content) = %s RETURNING length(content)",
                          (piece, name, offset))


def append_once(connection, name, offset, piece):
    """Repeat append() until it is certain that it was executed once."""
    while True:
        try:
            row = append(connection, name, offset, piece)
            if row is None:
                raise TransferError("somebody else writes to this value")
            return
        except psycopg.OperationalError:
            if not connection.lost():
                raise
        state = server_state(connection, name)
        if state is not None and state[0] == offset + len(piece):
            return
        if state is None or state[0] != offset:
            raise TransferError("somebody else writes to this value")


def upload(dsn, name, path, piece_bytes=PIECE_BYTES, progress=lambda done, size: None):
    """Store the content of a file under a name, or complete a value that has its beginning."""
    connection = Connection(dsn)
    try:
        retry(connection, "INSERT INTO file (name) VALUES (%s) ON CONFLICT DO NOTHING"
              " RETURNING name", (name,))
        offset, there = server_state(connection, name)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hash_beginning(file, offset)
            if digest.digest() != there:
                raise TransferError("the value is not the beginning of the file")
            progress(offset, size)
            while piece := file.read(piece_bytes):
                append_once(connection, name, offset, piece)
                digest.update(piece)
                offset += len(piece)
                progress(offset, size)
        if server_state(connection, name) != (offset, digest.digest()):
            raise TransferError("the value is not what was sent")
        return offset
    finally:
        connection.close()


def download(dsn, name, path, piece_bytes=PIECE_BYTES, progress=lambda done, size: None):
    """Write a value to a file, which is called path.part until it is complete."""
    connection = Connection(dsn)
    part = path + ".part"
    try:
        state = server_state(connection, name)
        if state is None:
            raise TransferError("there is no such value")
        size, expected = state
        with open(part, "ab+") as file:
            file.seek(0)
            offset = min(os.fstat(file.fileno()).st_size, size)
            digest = hash_beginning(file, offset)
            file.truncate(offset)
            progress(offset, size)
            while offset < size:
                # The digest is in the condition, so all pieces are of the same content.
                row = retry(connection, "SELECT blob_read(content, %s, %s) FROM file"
                            " WHERE name = %s AND sha256(content) = %s",
                            (offset, piece_bytes, name, expected))
                if row is None:
                    raise TransferError("the value has been changed meanwhile")
                file.write(row[0])
                digest.update(row[0])
                offset += len(row[0])
                progress(offset, size)
            file.flush()
            os.fsync(file.fileno())
        if digest.digest() != expected:
            os.unlink(part)
            raise TransferError(f"{part} was not the beginning of the value, and was removed")
        os.rename(part, path)
        return size
    finally:
        connection.close()


class ProgressBar:
    WIDTH = 40

    def __init__(self, stream=sys.stderr):
        self.stream = stream
        self.started = time.monotonic()
        self.first = None

    def __call__(self, done, size):
        if self.first is None:
            self.first = done
        filled = self.WIDTH * done // size if size else self.WIDTH
        seconds = max(time.monotonic() - self.started, 1e-3)
        rate = (done - self.first) / 1e6 / seconds
        self.stream.write(f"\r[{'#' * filled:<{self.WIDTH}}] {done / 1e6:,.1f} of "
                          f"{size / 1e6:,.1f} MB, {rate:,.0f} MB/s ")
        self.stream.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=("upload", "download"))
    parser.add_argument("name", help="of the value, in table file")
    parser.add_argument("path", help="of the local file")
    parser.add_argument("--dsn", default="", help="connection string; default: as psql")
    parser.add_argument("--piece", type=int, default=PIECE_BYTES, help="bytes of a statement")
    options = parser.parse_args()

    with psycopg.connect(options.dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(TABLE)
    transfer = upload if options.direction == "upload" else download
    try:
        transfer(options.dsn, options.name, options.path, options.piece, ProgressBar())
    except (TransferError, psycopg.Error, OSError) as error:
        print(f"\n{parser.prog}: {error}", file=sys.stderr)
        return 1
    print(file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
