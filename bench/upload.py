#!/usr/bin/env python3
"""Upload one large value over a connection, against a file that is written and synced.

usage: bench/upload.py [--size MB] [--rounds N] [--pieces kB,...] [--only NAME,...]
                       [--dir DIRECTORY] [--dsn DSN]

bench/upload makes a server for this program; here it is one that runs.

Contenders: "file", in pieces of 1 MB, with fsync; "copy", uploads by COPY to blob_upload_pieces,
as clients/python does it; "statements", uploads by blob_upload_begin, _write, _end, with a round
trip for each piece; "append", appends of 4 MB, each a commit, as examples/streaming/transfer.py
does it; "aggregate", COPY of pieces to a temporary table, and blob_agg() of them.

They take turns, and another one begins in each round.  A round before, which is not counted, makes
files of the WAL.  The table is dropped, the collector run and a checkpoint made before each.
Rates are medians.  "of the file" is the median of the ratios within each round, so it is of
moments that lie near each other; the smallest and the largest follow.  CPU seconds are those of
this program and of its backend, the least.  Needs psycopg 3, and a superuser's connection to a
database in which the extension may be made.
"""

import argparse
import glob
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
    """CPU time of this process and of the backend, all its threads, so far."""
    backend = 0
    for path in glob.glob(f"/proc/{connection.info.backend_pid}/task/*/schedstat"):
        with open(path, encoding="ascii") as file:
            backend += int(file.read().split()[0])
    return time.process_time(), backend / 1e9


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=300, help="MB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pieces", default="256,1024,2048", help="kB, of statements")
    parser.add_argument("--only", default="copy,statements,append,aggregate",
                        help="contenders beside the file")
    parser.add_argument("--dir", default=".", help="of the file; on the server's device")
    parser.add_argument("--dsn", default="")
    return parser.parse_args()


def make_contenders(options, connection, path):
    """Name to function, the file first."""
    size = options.size * 1024 * 1024
    random = os.urandom(4 * 1024 * 1024)

    def pieces(length):
        return [random[:length]] * (size // length)

    contenders = {"file": lambda: write_file(path, pieces(1024 * 1024))}
    for name in options.only.split(","):
        if name == "copy":
            contenders["copy, 124 kB"] = (
                lambda: copy_upload(connection, pieces(124 * 1024), size // 126976 * 126976))
        elif name == "statements":
            for kilobytes in map(int, options.pieces.split(",")):
                contenders[f"statements, {kilobytes} kB"] = (
                    lambda length=kilobytes * 1024: upload(connection, pieces(length), size))
        elif name == "append":
            contenders["append, 4096 kB"] = lambda: append(connection, pieces(4096 * 1024))
        elif name == "aggregate":
            contenders["aggregate, 1024 kB"] = (
                lambda: copy_and_aggregate(connection, pieces(1024 * 1024)))
        else:
            raise SystemExit(f"upload.py: there is no contender {name}")
    return contenders


def measure(connection, work):
    """Seconds, CPU seconds of this program, CPU seconds of the backend."""
    connection.execute("DROP TABLE IF EXISTS bench_upload")
    connection.execute("CREATE TABLE bench_upload (id int, content blobstate)")
    connection.execute("SELECT * FROM blobext_gc()")
    connection.execute("CHECKPOINT")
    start, start_cpu = time.perf_counter(), cpu_seconds(connection)
    work()
    seconds = time.perf_counter() - start
    return (seconds, *(now - then for now, then in zip(cpu_seconds(connection), start_cpu)))


def measure_rounds(options, connection):
    """Name to results of measure(), one for each round."""
    path = os.path.join(options.dir, "bench_upload.tmp")
    contenders = make_contenders(options, connection, path)
    names = list(contenders)
    results = {name: [] for name in names}
    for number in range(options.rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            result = measure(connection, contenders[name])
            if number > 0:
                results[name].append(result)
            if os.path.exists(path):
                os.unlink(path)
    return results


def report(options, connection, results):
    level, = connection.execute("SHOW wal_level").fetchone()
    print(f"{options.size} MB, {options.rounds} rounds, wal_level {level}")
    print(f"{'':18} {'MB/s':>6} {'fastest':>8}   {'of the file':19} {'CPU s':>6} {'server':>7}")
    megabytes = options.size * 1.048576
    for name, rounds in results.items():
        seconds = [result[0] for result in rounds]
        ratios = [file[0] / result[0] for file, result in zip(results["file"], rounds)]
        print(f"{name:18} {megabytes / statistics.median(seconds):6.0f}"
              f" {megabytes / min(seconds):8.0f}   {statistics.median(ratios):.2f}"
              f" ({min(ratios):.2f} to {max(ratios):.2f})"
              f" {min(result[1] for result in rounds):6.2f}"
              f" {min(result[2] for result in rounds):7.2f}")


def main():
    options = parse_options()
    with psycopg.connect(options.dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("CREATE EXTENSION IF NOT EXISTS blobext")
        results = measure_rounds(options, connection)
        connection.execute("DROP TABLE bench_upload")
        report(options, connection, results)


if __name__ == "__main__":
    main()
