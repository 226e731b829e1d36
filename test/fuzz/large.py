"""Changes of one value of some GiB, at both sides of each GiB, against a model.

A tree enters the content of a plain value as runs of up to 1 GiB.  The value comes from a file
with a number in each 64 KiB, so that bytes of another place are noticed.  After each change its
length, the bytes around the change and those around each GiB are compared, at the end its digest,
in both kinds of columns.  The time of each step is printed.
"""

import argparse
import hashlib
import os
import random
import sys
import time

import psycopg

GIB = 2**30
MARK = 65536


class Model:
    """Content as pieces: of the file, as (offset, length), or bytes."""

    def __init__(self, path, size):
        self.file = open(path, "rb")
        self.pieces = [(0, size)]

    @staticmethod
    def length(piece):
        return len(piece) if isinstance(piece, bytes) else piece[1]

    @staticmethod
    def part(piece, start, end):
        return piece[start:end] if isinstance(piece, bytes) else (piece[0] + start, end - start)

    def size(self):
        return sum(map(self.length, self.pieces))

    def cut(self, start, end):
        """The pieces from an offset to another one."""
        at = 0
        for piece in self.pieces:
            length = self.length(piece)
            first, last = max(start - at, 0), min(end - at, length)
            if first < last:
                yield self.part(piece, first, last)
            at += length

    def replace(self, offset, length, data):
        size = self.size()
        self.pieces = (list(self.cut(0, offset)) + [data] * bool(data)
                       + list(self.cut(offset + length, size)))

    def blocks(self, start, end):
        for piece in self.cut(start, end):
            if isinstance(piece, bytes):
                yield piece
                continue
            self.file.seek(piece[0])
            left = piece[1]
            while left > 0:
                block = self.file.read(min(left, 4 << 20))
                left -= len(block)
                yield block

    def read(self, start, end):
        return b"".join(self.blocks(start, end))


def make_file(path, size, choices):
    with open(path, "wb") as file:
        file.truncate(size)
        for start in range(0, size - MARK, MARK):
            file.seek(start + choices.randrange(MARK - 8))
            file.write((start + 1).to_bytes(8, "big"))


class Changes:
    def __init__(self, connection, model, choices):
        self.connection = connection
        self.model = model
        self.random = choices
        self.seconds = []

    def verify(self, around):
        size = self.model.size()
        places = [around] + list(range(GIB, size, GIB))
        for place in places:
            start = max(0, place - self.random.randint(1, 100_000))
            length, found = self.connection.execute(
                "SELECT length(b), blob_read(b, %s, 200000) FROM t WHERE id = 1",
                (start,)).fetchone()
            if length != size or found != self.model.read(start, min(size, start + 200_000)):
                raise SystemExit(f"not ok - {length} bytes instead of {size},"
                                 f" content from {start} on")

    def change(self, kind, offset):
        data = self.random.randbytes(self.random.choice([1, 100, 5000, 40_000]))
        length = 0
        if kind == "write":
            length = len(data)
            call, parameters = "blob_write(b, %s, %s)", (offset, data)
        elif kind == "insert":
            call, parameters = "blob_insert(b, %s, %s)", (offset, data)
        else:
            length, data = self.random.choice([1, 5000, 70_000, GIB // 16]), b""
            call, parameters = "blob_delete(b, %s, %s)", (offset, length)
        start = time.monotonic()
        self.connection.execute(f"UPDATE t SET b = {call} WHERE id = 1", parameters)
        self.seconds.append(time.monotonic() - start)
        self.model.replace(offset, length, data)
        self.verify(offset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    choices = random.Random(arguments.seed)
    path = os.path.join(os.getcwd(), "large")
    size = arguments.gib * GIB + choices.randrange(1_000_000)
    start = time.monotonic()

    def tell(what):
        print(f"# {time.monotonic() - start:.0f} s: {what}", flush=True)

    tell(f"seed {arguments.seed}, {size} bytes")
    make_file(path, size, choices)
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int, b blobstate);"
                           "CREATE TABLE sealed (b blobstate);"
                           "SELECT blobext_set_compression('t', 'b', 'none'),"
                           " blobext_set_digest('t', 'b', 'deferred')")
        connection.execute("INSERT INTO t VALUES (1, blob_import(%s))", (path,))
        connection.execute("UPDATE t SET b = b")
        tell("imported")
        changes = Changes(connection, Model(path, size), choices)
        for gib in range(1, arguments.gib + 1):
            for distance in [-70_000, -1, 0, 1, 70_000]:
                changes.change(choices.choice(["write", "insert", "delete"]),
                               min(gib * GIB + distance, changes.model.size()))
        changes.change("insert", 10)
        is_open = connection.execute("SELECT blob_digest_is_open(b) FROM t").fetchone()[0]
        taken = sorted(changes.seconds)
        times = [taken[0], taken[len(taken) // 2], taken[-1]]
        tell(f"{len(taken)} changes; least, median and most milliseconds: "
             + ", ".join(f"{seconds * 1000:.0f}" for seconds in times))
        digest = hashlib.sha256()
        for block in changes.model.blocks(0, changes.model.size()):
            digest.update(block)
        tell("the model is hashed")
        connection.execute("INSERT INTO sealed SELECT b FROM t")
        tell("the value is sealed in another column")
        found = connection.execute("SELECT sha256(t.b), sha256(sealed.b), t.b = sealed.b,"
                                   " blob_digest_is_open(sealed.b) FROM t, sealed").fetchone()
        tell("compared")
    if not is_open or found != (digest.digest(), digest.digest(), True, False):
        print(f"not ok - open {is_open}, {found} instead of {digest.digest()}")
        return 1
    print("ok - the value and its model agree after all changes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
