"""The adapter of this package for clients/conformance, whose README.md says what it does."""

import hashlib
import io
import os
import sys

import psycopg

import blobext

SCHEMA = 'Odd "Schema"'
WHENCE = {"start": io.SEEK_SET, "current": io.SEEK_CUR, "end": io.SEEK_END}


class Cancelled(Exception):
    pass


def connect():
    return psycopg.connect(autocommit=True)         # by PGHOST, PGPORT, ..., PGAPPNAME


def value(number):
    return blobext.Value((SCHEMA, "Odd Name"), {"id": int(number), "Kind": "a'b"}, "my content")


class Pause:
    def __init__(self, at):
        self._at = None if at == "-" else int(at)

    def reached(self, count, *_):
        if self._at is not None and count >= self._at:
            self._at = None
            print("paused", flush=True)
            if sys.stdin.readline().strip() == "cancel":
                raise Cancelled("cancelled by the script")


class Adapter:
    def __init__(self):
        self._connection = None
        self._file = None

    def connection(self):
        """That of the last command, unless it was lost."""
        if self._connection is not None:
            try:
                self._connection.execute("SELECT")
            except psycopg.OperationalError:
                self._connection = None
        if self._connection is None or self._connection.closed:
            self._connection = connect()
        return self._connection

    @staticmethod
    def summary(summary):
        return summary.size, summary.sha256.hex()

    @staticmethod
    def bytes(data):
        return len(data), hashlib.sha256(data).hexdigest()

    def stat(self, number):
        return self.summary(blobext.stat(self.connection(), value(number)))

    def open(self, number):
        self._file = blobext.open(self.connection(), value(number))
        return (self._file.raw.size,)

    def seek(self, offset, whence):
        return (self._file.seek(int(offset), WHENCE[whence]),)

    def next(self, length):
        return self.bytes(self._file.read(int(length)))

    def close(self):
        self._file.close()
        return ()

    def range(self, number, offset, length):
        with blobext.open(self.connection(), value(number), buffering=0) as file:
            return self.bytes(file.read_range(int(offset), int(length)))

    def download(self, number, path, pause):
        return self.summary(blobext.download(connect, value(number), path,
                                             Pause(pause).reached))

    def write(self, number, path, pause):
        where = Pause(pause)
        with open(path, "rb") as source, blobext.open(
                self.connection(), value(number), "wb",
                expected=os.path.getsize(path)) as file:
            while piece := source.read(blobext._common.PIECE_BYTES):
                file.write(piece)
                where.reached(file.tell())
        return self.summary(file.summary)

    def upload(self, number, path, stage, pause):
        where = None if stage == "-" else blobext.Stage(stage, (SCHEMA, "blob_stage"))
        return self.summary(blobext.upload(connect, value(number), path, Pause(pause).reached,
                                           stage=where))

    def run(self, name, *arguments):
        if name not in ("stat", "open", "seek", "next", "close", "range", "download", "write",
                        "upload"):
            return "error", "unknown"
        try:
            return ("ok", *getattr(self, name)(*arguments))
        except Exception as error:
            return ("error", *self.describe(error))

    def describe(self, error):
        state = getattr(error, "sqlstate", None) or "-"
        for kind, types in (("missing", blobext.BlobMissing), ("changed", blobext.BlobChanged),
                            ("mismatch", blobext.BlobMismatch),
                            ("unexpected", blobext.BlobUnexpected), ("cancelled", Cancelled),
                            ("position", (OSError, ValueError))):
            if isinstance(error, types):
                return kind, state, " ".join(str(error).split())
        is_lost = self._connection is not None and self._connection.closed
        return "lost" if is_lost else "server", state, " ".join(str(error).split())


def main():
    adapter = Adapter()
    for line in iter(sys.stdin.readline, ""):
        print(*adapter.run(*line.rstrip("\n").split("\t")), sep="\t", flush=True)


if __name__ == "__main__":
    main()
