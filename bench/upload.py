#!/usr/bin/env python3
"""Upload one large value over a connection, against a file that is written and synced.

usage: bench/upload.py [--size MB] [--rounds N] [--pieces kB,...] [--dir DIRECTORY] [--dsn DSN]

Contenders of each round, in turn: a file in the same pieces, with fsync; uploads by COPY to
blob_upload_pieces, as clients/python does it; uploads by statements (blob_upload_begin, _write,
_end), with a round trip for each piece; appends of 4 MB, each a commit,
as examples/streaming/transfer.py does it; COPY of pieces to a temporary table, and blob_agg() of
them.  The table is dropped, the collector run and a checkpoint made before each.  CPU seconds are
those of this program and of its backend.  Needs psycopg 3, and a superuser's connection to a
database in which the extension may be made.
"""

import argparse
import os
import statistics
import struct
import time

import psycopg
from psycopg.waiting import Wait

COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def write_file(path, pieces):
    with open(path, "wb", buffering=0) as file:
        for piece in pieces:
            file.write(piece)
        os.fsync(file.fileno())


def upload(connection, pieces, size):
    with connection.transaction(), connection.cursor() as cursor:
        number, = cursor.execute("SELECT blob_upload_begin(%s)", (size,)).fetchone()
        query = "SELECT blob_upload_write(%s, %b)"
        for piece in pieces:
            cursor.execute(query, (number, piece), binary=True, prepare=True)
        cursor.execute("INSERT INTO bench_upload VALUES (1, blob_upload_end(%s))", (number,))


def copy_upload(connection, pieces, size):
    with connection.transaction(), connection.cursor() as cursor:
        number, = cursor.execute("SELECT blob_upload_begin(%s)", (size,)).fetchone()
        with cursor.copy("COPY blob_upload_pieces FROM STDIN (FORMAT binary)") as copy:
            copy.write(COPY_HEADER)
            for piece in pieces:
                copy.write(struct.pack("!hiqi", 2, 8, number, len(piece)) + piece)
                connection.wait(flush(connection.pgconn))
            copy.write(struct.pack("!h", -1))
        cursor.execute("INSERT INTO bench_upload VALUES (1, blob_upload_end(%s))", (number,))


def flush(pgconn):
    """For wait(): what libpq has in memory is sent before more comes."""
    while pgconn.flush() == 1:
        yield Wait.W


def append(connection, pieces):
    connection.execute("INSERT INTO bench_upload VALUES (1, '')")
    for piece in pieces:
        connection.execute("UPDATE bench_upload SET content = blob_append(content, %b)"
                           " WHERE id = 1", (piece,), binary=True, prepare=True)


def copy_and_aggregate(connection, pieces):
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE piece (no int GENERATED ALWAYS AS IDENTITY, data bytea)"
                       " ON COMMIT DROP")
        cursor.execute("ALTER TABLE piece ALTER data SET STORAGE EXTERNAL")
        with cursor.copy("COPY piece (data) FROM STDIN (FORMAT binary)") as copy:
            copy.write(COPY_HEADER)
            for piece in pieces:
                copy.write(struct.pack("!hi", 1, len(piece)))
                copy.write(piece)
            copy.write(struct.pack("!h", -1))
        cursor.execute("INSERT INTO bench_upload SELECT 1, blob_agg(data ORDER BY no) FROM piece")


def cpu_seconds(connection):
    """CPU time of this process and of the backend so far."""
    with open(f"/proc/{connection.info.backend_pid}/schedstat", encoding="ascii") as file:
        return time.process_time(), int(file.read().split()[0]) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=300, help="MB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pieces", default="256,1024,2048", help="kB")
    parser.add_argument("--dir", default=".", help="of the file; on the server's device")
    parser.add_argument("--dsn", default="")
    options = parser.parse_args()
    size = options.size * 1024 * 1024
    random = os.urandom(4 * 1024 * 1024)

    def pieces(length):
        return [random[:length]] * (size // length)

    path = os.path.join(options.dir, "bench_upload.tmp")
    connection = psycopg.connect(options.dsn, autocommit=True)
    contenders = {"file, 1024 kB": lambda: write_file(path, pieces(1024 * 1024))}
    contenders["upload by COPY, 124 kB"] = (
        lambda: copy_upload(connection, pieces(124 * 1024), size // 126976 * 126976))
    for kilobytes in map(int, options.pieces.split(",")):
        contenders[f"upload, {kilobytes} kB"] = (
            lambda length=kilobytes * 1024: upload(connection, pieces(length), size))
    contenders["append, 4096 kB"] = lambda: append(connection, pieces(4096 * 1024))
    contenders["COPY and blob_agg, 1024 kB"] = (
        lambda: copy_and_aggregate(connection, pieces(1024 * 1024)))

    connection.execute("SET client_min_messages = warning")
    connection.execute("CREATE EXTENSION IF NOT EXISTS blobext")
    seconds = {name: [] for name in contenders}
    cpu = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, work in contenders.items():
            connection.execute("DROP TABLE IF EXISTS bench_upload")
            connection.execute("CREATE TABLE bench_upload (id int, content blobstate)")
            connection.execute("SELECT * FROM blobext_gc()")
            connection.execute("CHECKPOINT")
            start, start_cpu = time.perf_counter(), cpu_seconds(connection)
            work()
            seconds[name].append(time.perf_counter() - start)
            cpu[name].append([now - then for now, then in
                              zip(cpu_seconds(connection), start_cpu)])
            if os.path.exists(path):
                os.unlink(path)
    connection.execute("DROP TABLE bench_upload")
    file = statistics.median(seconds["file, 1024 kB"])
    level, = connection.execute("SHOW wal_level").fetchone()
    print(f"{options.size} MB, median of {options.rounds} rounds, wal_level {level}")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:32} {median:6.3f} s {size / 1e6 / median:6.0f} MB/s"
              f"  {file / median:5.2f} of the file's rate (fastest {min(times):.3f} s);"
              f" CPU {min(client for client, _ in cpu[name]):.3f}"
              f" + {min(backend for _, backend in cpu[name]):.3f} s")


if __name__ == "__main__":
    main()
