"""The package of clients/python, as it is imported: files, uploads, downloads, resumption, asyncio.

Connection parameters come from the environment.  Seen to fail: with a stage that is moved by
"SET content = (SELECT ...)" test_moved_twice (NULL), without the digest in read_query
test_replaced (a mixture of two versions), with a commit in BlobWriter.__exit__ after an error
test_writer_discards.
"""

import asyncio
import hashlib
import importlib.metadata
import io
import os
import random
import tarfile
import tempfile
import time
import unittest
import unittest.mock as mock
import zipfile

import psycopg

import blobext
from blobext import aio

SIZE = 5_000_003


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.admin = psycopg.connect(autocommit=True)
        cls.addClassCleanup(cls.admin.close)
        cls.admin.execute("SET client_min_messages = warning")
        cls.admin.execute("CREATE EXTENSION IF NOT EXISTS blobext")
        cls.admin.execute('DROP TABLE IF EXISTS "Odd Name", blob_stage')
        cls.admin.execute('CREATE TABLE "Odd Name" (id int, kind text DEFAULT $$a$$, note text,'
                          ' "my content" blobstate, PRIMARY KEY (id, kind))')
        cls.admin.execute(blobext.Stage.CREATE_TABLE)
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.data = random.Random(1).randbytes(SIZE)
        cls.digest = hashlib.sha256(cls.data).digest()
        cls.path = os.path.join(cls.directory.name, "original")
        with open(cls.path, "wb") as file:
            file.write(cls.data)

    def setUp(self):
        self.admin.execute('TRUNCATE "Odd Name", blob_stage')
        self.connection = psycopg.connect()
        self.addCleanup(self.connection.close)
        self.copy = os.path.join(self.directory.name, "copy")
        for path in (self.copy, self.copy + ".part"):
            if os.path.exists(path):
                os.unlink(path)

    @staticmethod
    def value(number, **defaults):
        return blobext.Value("Odd Name", {"id": number, "kind": "a"}, "my content", defaults)

    def put(self, number, data):
        self.admin.execute('INSERT INTO "Odd Name" (id, "my content") VALUES (%s, %s::bytea)'
                           ' ON CONFLICT (id, kind) DO UPDATE SET "my content" ='
                           ' excluded."my content"', (number, data))

    def get(self, number):
        row = self.admin.execute('SELECT "my content"::bytea FROM "Odd Name" WHERE id = %s',
                                 (number,), binary=True).fetchone()
        return None if row is None else row[0]

    def has(self, number):
        return self.get(number) is not None

    def terminate_others(self):
        self.admin.execute("SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
                           " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")

    def read_bytes(self):
        return self.admin.execute(
            "SELECT value FROM blobext_stat WHERE name = 'content_read_bytes'").fetchone()[0]

    def extents(self):
        return set(self.admin.execute(
            "SELECT first_page, generation FROM blobext_map").fetchall())


class ReaderTest(ClientTest):
    def test_file(self):
        """A reader reads, seeks and tells as a file does."""
        self.put(1, self.data)
        with blobext.open(self.connection, self.value(1)) as file:
            self.assertEqual(file.read(10), self.data[:10])
            self.assertEqual(file.tell(), 10)
            self.assertEqual(file.seek(-5, io.SEEK_END), SIZE - 5)
            self.assertEqual(file.read(), self.data[-5:])
            self.assertEqual(file.read(), b"")
            self.assertEqual(file.seek(1_000_000), 1_000_000)
            self.assertEqual(file.read(2_000_000), self.data[1_000_000:3_000_000])
            self.assertEqual(file.seek(7, io.SEEK_CUR), 3_000_007)
            self.assertEqual(file.read(1), self.data[3_000_007:3_000_008])
            self.assertFalse(file.writable())
        self.assertRaises(ValueError, file.read)

    def test_raw(self):
        """A raw reader has size and digest, and reads ranges beside its position."""
        self.put(1, self.data)
        with blobext.open(self.connection, self.value(1), buffering=0) as file:
            self.assertIsInstance(file, io.RawIOBase)
            self.assertEqual((file.size, file.summary.sha256), (SIZE, self.digest))
            self.assertEqual(file.read_range(SIZE - 3, 100), self.data[-3:])
            self.assertEqual(file.read_range(SIZE + 3, 100), b"")
            self.assertEqual(file.tell(), 0)
            self.assertEqual(file.read(), self.data)

    def test_seek_as_a_file(self):
        """Results and errors are those of a file with this content, raw and buffered."""
        def outcome(file, *arguments):
            try:
                return file.seek(*arguments), file.tell()
            except Exception as error:
                return type(error), getattr(error, "errno", None), file.tell()

        self.put(1, self.data)
        positions = [0, 1, -1, 5, -5, SIZE, SIZE + 1, -SIZE - 1, 2 ** 40, 2 ** 63, -2 ** 63, 1.5,
                     "x"]
        for buffering in (0, 4096):
            with (open(self.path, "rb", buffering) as file,
                  blobext.open(self.connection, self.value(1), "rb", buffering) as blob):
                for whence in (0, 1, 2, 9):
                    for position in positions:
                        arguments = (position, whence)
                        self.assertEqual(outcome(blob, *arguments), outcome(file, *arguments),
                                         (buffering, arguments))
                        self.assertEqual(blob.read(3), file.read(3), (buffering, arguments))
                        self.assertEqual(outcome(blob, 10), outcome(file, 10))

        async def work():
            async with await psycopg.AsyncConnection.connect() as connection:
                async with await aio.open(connection, self.value(1)) as blob:
                    with open(self.path, "rb", 0) as file:
                        for whence in (0, 1, 2, 9):
                            for position in positions:
                                self.assertEqual(outcome(blob, position, whence),
                                                 outcome(file, position, whence))

        asyncio.run(work())

    def test_archives(self):
        """Values that are shorter than an archive's end are none."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("name", "content")
        for content, expected in ((b"", False), (b"short", False), (b"x" * 100, False),
                                  (archive.getvalue(), True)):
            self.put(1, content)
            for buffering in (0, 4096):
                with blobext.open(self.connection, self.value(1), buffering=buffering) as file:
                    self.assertEqual(zipfile.is_zipfile(file), expected, len(content))
                    if expected:
                        self.assertEqual(zipfile.ZipFile(file).read("name"), b"content")
                with blobext.open(self.connection, self.value(1), buffering=buffering) as file:
                    self.assertFalse(tarfile.is_tarfile(file))
            self.connection.rollback()

    def test_ranges(self):
        """A negative offset or length is refused."""
        self.put(1, b"content")
        with blobext.open(self.connection, self.value(1), buffering=0) as file:
            self.assertRaises(ValueError, file.read_range, -1, 1)
            self.assertRaises(ValueError, file.read_range, 0, -1)

    def test_iterate(self):
        """Pieces of a value together are the value, also of a part of it."""
        self.put(1, self.data)
        pieces = list(blobext.iterate(self.connection, self.value(1)))
        self.assertEqual(len(pieces), 5)
        self.assertEqual(b"".join(pieces), self.data)
        self.assertEqual(b"".join(blobext.iterate(self.connection, self.value(1), 10, 100, 7)),
                         self.data[10:110])

    def test_missing(self):
        """A row or a value that is missing raises BlobMissing."""
        self.assertRaises(blobext.BlobMissing, blobext.stat, self.connection, self.value(1))
        self.put(1, None)
        self.assertRaises(blobext.BlobMissing, blobext.open, self.connection, self.value(1))
        self.assertRaises(FileNotFoundError, blobext.open, self.connection, self.value(1))
        self.assertRaises(ValueError, blobext.Value, "t", {})
        self.assertRaises(ValueError, blobext.open, self.connection, self.value(1), "r+")

    def test_replaced(self):
        """A reader whose value is replaced raises BlobChanged."""
        self.put(1, self.data)
        with blobext.open(self.connection, self.value(1)) as file:
            self.assertEqual(file.read(10), self.data[:10])
            self.put(1, b"x" * SIZE)
            file.seek(3_000_000)
            self.assertRaises(blobext.BlobChanged, file.read, 10)

    def test_write_range(self):
        """A range that is written replaces these bytes alone."""
        self.put(1, self.data)
        with self.connection:
            self.assertEqual(blobext.write_range(self.connection, self.value(1), 100, b"a\\b"),
                             SIZE)
        self.assertEqual(self.get(1), self.data[:100] + b"a\\b" + self.data[103:])


class WriterTest(ClientTest):
    def test_new_row(self):
        """A writer makes the row, whatever the sizes of its pieces."""
        for pieces in (1, 1000, 1_048_576, 3_000_000):
            number = pieces
            with blobext.open(self.connection, self.value(number, note="n"), "wb") as file:
                for start in range(0, 3_000_000, pieces * 1000 if pieces == 1 else pieces):
                    end = min(start + (1000 if pieces == 1 else pieces), 3_000_000)
                    file.write(memoryview(self.data)[start:end])
                size = file.tell()
            content = self.get(number)
            self.assertEqual(len(content), size)
            self.assertEqual(file.summary,
                             blobext.Summary(size, hashlib.sha256(content).digest()))
        self.assertEqual(content, self.data[:3_000_000])
        self.assertEqual(self.admin.execute('SELECT DISTINCT note FROM "Odd Name"').fetchall(),
                         [("n",)])

    def test_old_row_and_append(self):
        self.put(1, b"old")
        with blobext.open(self.connection, self.value(1), "wb", expected=SIZE) as file:
            self.assertEqual(file.write(self.data), SIZE)
            self.assertEqual(self.get(1), b"old", "nobody sees a value that is not complete")
        with blobext.open(self.connection, self.value(1), "ab") as file:
            self.assertEqual(file.tell(), SIZE)
            file.write(b"\\more")
        self.assertEqual(self.get(1), self.data + b"\\more")
        with self.assertRaises(blobext.BlobMissing):
            blobext.open(self.connection, self.value(2), "ab")

    def test_writer_discards(self):
        """A writer that fails or is forgotten stores nothing."""
        before = self.extents()
        with self.assertRaises(ZeroDivisionError):
            with blobext.open(self.connection, self.value(1), "wb") as file:
                file.write(self.data)
                1 / 0
        self.assertTrue(file.closed)
        self.assertFalse(self.has(1))
        self.connection.execute("SELECT 1")
        # The collector may have freed what other tests have left.
        self.assertLessEqual(self.extents(), before, "its space is free again")
        file = blobext.open(self.connection, self.value(1), "wb")
        file.write(self.data)
        del file
        self.assertFalse(self.has(1), "a file that was forgotten stores nothing")

    def test_in_a_transaction(self):
        """Writers within a transaction store what its savepoints keep."""
        with self.connection.transaction():
            with blobext.open(self.connection, self.value(1), "wb") as file:
                file.write(b"one")
            with self.assertRaises(psycopg.errors.CheckViolation):
                with blobext.open(self.connection, self.value(2), "wb") as file:
                    file.write(b"two")
                    self.connection.execute("CREATE DOMAIN pg_temp.d AS int CHECK (VALUE > 0)")
                    self.connection.execute("SELECT 0::pg_temp.d")
            with blobext.open(self.connection, self.value(3), "wb") as file:
                file.write(b"three")
            self.assertFalse(self.has(1))
        self.assertEqual([self.get(n) for n in (1, 2, 3)], [b"one", None, b"three"])

    def test_no_such_table(self):
        """A table that is not there leaves a usable connection."""
        with self.assertRaises(psycopg.errors.UndefinedTable):
            with blobext.open(self.connection, blobext.Value("none", {"id": 1}), "wb") as file:
                file.write(b"x")
        self.assertTrue(file.closed)
        self.connection.execute("SELECT 1")


class TransferTest(ClientTest):
    def test_upload(self):
        """An upload stores the file, by any kind of connection, and says how far it is."""
        seen = []
        for connect in ("", psycopg.connect, self.connection):
            summary = blobext.upload(connect, self.value(1), self.path,
                                     lambda done, total: seen.append((done, total)))
            self.connection.commit()
            self.assertEqual(summary, blobext.Summary(SIZE, self.digest))
            self.assertEqual(self.get(1), self.data)
        self.assertEqual(seen, 3 * [(min(done, SIZE), SIZE) for done in
                                    range(126_976, SIZE + 126_976, 126_976)])

    def test_sizes_and_sources(self):
        """An upload takes any size from the position of a file object."""
        for size in (0, 1, 1048575, 1048576, 1048577, 4194304, 4194305):
            file = io.BytesIO(b"head" + self.data[:size])
            file.seek(4)
            blobext.upload("", self.value(size), file)
            self.assertEqual(self.get(size), self.data[:size])
            file.seek(4)
            blobext.upload("", self.value(size), file, stage=blobext.Stage("s"),
                           section_bytes=1048576)
            self.assertEqual(self.get(size), self.data[:size])

    def test_pipe(self):
        """An upload takes a source that cannot seek."""
        class Pipe(io.RawIOBase):
            """Gives at most 1000 bytes at once, and cannot seek."""

            def __init__(self, data):
                self.file = io.BytesIO(data)

            def readable(self):
                return True

            def readinto(self, buffer):
                data = self.file.read(min(1000, len(buffer)))
                buffer[:len(data)] = data
                return len(data)

        totals = set()
        blobext.upload("", self.value(1), Pipe(self.data), lambda done, total: totals.add(total))
        self.assertEqual(self.get(1), self.data)
        self.assertEqual(totals, {None})
        self.assertRaises(ValueError, blobext.upload, "", self.value(1), Pipe(b""),
                          stage=blobext.Stage("s"))

    def test_broken_upload(self):
        """An upload goes on after its connection is lost."""
        for stage in (None, blobext.Stage("s")):
            broken = []

            def breaks(done, total):
                if done > 3_000_000 and len(broken) < 2:
                    broken.append(done)
                    self.terminate_others()

            blobext.upload("", self.value(1), self.path, breaks, stage, 1_500_000, (0.01,) * 5)
            self.assertEqual(len(broken), 2)
            self.assertEqual(self.get(1), self.data)
        self.assertEqual(self.admin.execute("SELECT count(*) FROM blob_stage").fetchone(), (0,))
        self.connection = psycopg.connect()
        with self.assertRaises(psycopg.OperationalError):
            blobext.upload(self.connection, self.value(1), self.path,
                           lambda done, total: self.terminate_others())

    def test_fatal_error(self):
        """A session that the server has ended is lost, also while its socket is open.  Seen to fail
        without the severity in is_lost()."""
        severity = {psycopg.pq.DiagnosticField.SEVERITY_NONLOCALIZED: b"FATAL"}
        tried = []

        def work(connection):
            tried.append(connection)
            if len(tried) == 1:
                raise psycopg.errors.AdminShutdown("terminating connection", info=severity)
            return "done"

        async def work_later(connection):
            return work(connection)

        self.assertEqual(blobext._sync._Session("", (0.01,)).run(work), "done")
        self.assertTrue(tried[0].closed and tried[0] is not tried[1])
        tried.clear()
        self.assertEqual(asyncio.run(aio._Session("", (0.01,)).run(work_later)), "done")
        self.assertTrue(tried[0].closed and tried[0] is not tried[1])
        with self.assertRaises(psycopg.errors.QueryCanceled):
            blobext._sync._Session("", (0.01,)).run(lambda c: c.execute(
                "SET statement_timeout = 1; SELECT pg_sleep(10)"))

    def test_lost_request_ahead(self):
        """A piece that was requested on a connection that is lost is requested again on the next
        one.  Seen to fail where a request ahead does not know its connection."""
        def check(module, lose):
            made = []

            def progress(done, total):
                while done and len(made) == 1:
                    time.sleep(0.001)
                while done and not made[1].closed:
                    time.sleep(0.001)

            with mock.patch.object(module, "_piece", lose(made, module._piece)):
                result = module.download("", self.value(1), self.path + ".copy", progress, 500_000)
                return asyncio.run(result) if module is aio else result

        def lose(made, piece):
            def lost_piece(connection, *arguments):
                made.append(connection)
                if len(made) == 2:
                    connection.close()
                    raise psycopg.OperationalError("the connection is lost")
                return piece(connection, *arguments)
            return lost_piece

        def lose_later(made, piece):
            async def lost_piece(connection, *arguments):
                made.append(connection)
                if len(made) == 2:
                    await connection.close()
                    raise psycopg.OperationalError("the connection is lost")
                return await piece(connection, *arguments)
            return lost_piece

        blobext.upload("", self.value(1), self.path)
        for module, way in ((blobext._sync, lose), (aio, lose_later)):
            self.assertEqual(check(module, way).size, len(self.data))
            with open(self.path + ".copy", "rb") as file:
                self.assertEqual(file.read(), self.data)
            os.unlink(self.path + ".copy")

    def test_resumed_later(self):
        """An upload that was stopped goes on from its stage."""
        class Stop(Exception):
            pass

        def stops(done, total):
            if done > 3_000_000:
                raise Stop

        stage = blobext.Stage("s")
        with self.assertRaises(Stop):
            blobext.upload("", self.value(1), self.path, stops, stage, 1_500_000)
        self.assertFalse(self.has(1))
        self.assertEqual(blobext.stat(self.connection, stage.value).size, 3_000_000)
        self.connection.rollback()
        seen = []
        blobext.upload("", self.value(1), self.path, lambda done, total: seen.append(done), stage)
        self.assertEqual(seen[0], 3_126_976, "sent bytes are not sent again")
        self.assertEqual(self.get(1), self.data)

    def test_read_once(self):
        """An upload by sections does not read what it has sent again for each of them.  Seen to
        fail with hash_beginning() in each section."""
        class Counting(io.FileIO):
            count = 0

            def read(self, size=-1):
                data = super().read(size)
                self.count += len(data)
                return data

        for upload in (blobext.upload,
                       lambda *arguments: asyncio.run(aio.upload(*arguments))):
            with Counting(self.path) as file:
                upload("", self.value(1), file, None, blobext.Stage("s"), 500_000)
                self.assertEqual(file.count, SIZE)
            self.assertEqual(self.get(1), self.data)

    def test_another_file(self):
        """A stage of another content is refused."""
        stage = blobext.Stage("s")
        self.admin.execute("INSERT INTO blob_stage VALUES ('s', 'another')")
        with self.assertRaises(blobext.BlobMismatch):
            blobext.upload("", self.value(1), self.path, stage=stage)
        self.assertFalse(self.has(1))

    def test_moved_twice(self):
        """The answer of the last commit is lost: the second attempt finds no stage."""
        from blobext import _sync
        stage = blobext.Stage("s")
        self.admin.execute("INSERT INTO blob_stage VALUES ('s', 'staged')")
        staged = blobext.stat(self.admin, stage.value)
        for _ in range(2):
            self.assertEqual(_sync._move(self.admin, stage, self.value(1), staged), staged)
            self.assertEqual(self.get(1), b"staged")

    def test_download(self):
        """A download makes the file, and replaces one that is there."""
        self.put(1, self.data)
        seen = []
        for _ in range(2):
            blobext.download("", self.value(1), self.copy,
                             lambda done, total: seen.append((done, total)), 2_000_000)
            with open(self.copy, "rb") as file:
                self.assertEqual(file.read(), self.data)
        self.assertEqual(seen[:4], [(0, SIZE), (2_000_000, SIZE), (4_000_000, SIZE), (SIZE, SIZE)])
        self.assertFalse(os.path.exists(self.copy + ".part"))

    def test_broken_download(self):
        """A download goes on after its connection is lost."""
        self.put(1, self.data)
        broken = []

        def breaks(done, total):
            if done > 2_000_000 and not broken:
                broken.append(done)
                self.terminate_others()

        blobext.download("", self.value(1), self.copy, breaks, 1_000_000, (0.01,) * 5)
        self.assertTrue(broken)
        with open(self.copy, "rb") as file:
            self.assertEqual(file.read(), self.data)

    def is_read_ahead(self, done, total):
        """Returns when the server has read more than the program has used."""
        end = time.monotonic() + 60
        while 0 < done < total and self.read_bytes() <= self.read_before + done:
            self.assertLess(time.monotonic(), end, f"no request beyond {done} bytes")

    def test_ahead(self):
        """A piece is requested before the one before it is used.  Seen to fail without that."""
        self.put(1, self.data)
        for run, module in ((lambda summary: summary, blobext), (asyncio.run, aio)):
            with self.subTest(module.__name__):
                self.read_before = self.read_bytes()
                run(module.download("", self.value(1), self.copy, self.is_read_ahead, 1_000_000))

    def test_part(self):
        """A download goes on with a part that is right, and removes a wrong one."""
        self.put(1, self.data)
        with open(self.copy + ".part", "wb") as file:
            file.write(self.data[:3_000_000])
        seen = []
        blobext.download("", self.value(1), self.copy, lambda done, total: seen.append(done))
        self.assertEqual(seen[0], 3_000_000)
        with open(self.copy + ".part", "wb") as file:
            file.write(b"x" * 3_000_000)
        with self.assertRaises(blobext.BlobMismatch):
            blobext.download("", self.value(1), self.copy)
        self.assertFalse(os.path.exists(self.copy + ".part"))


class AsyncTest(ClientTest):
    def run_async(self, work):
        async def connected():
            async with await psycopg.AsyncConnection.connect() as connection:
                return await work(connection)

        return asyncio.run(connected())

    def test_files(self):
        """The asynchronous files write, append, read, seek and iterate."""
        async def work(connection):
            async with await aio.open(connection, self.value(1), "wb") as file:
                await file.write(self.data)
            async with await aio.open(connection, self.value(1), "ab") as file:
                await file.write(b"more")
            self.assertEqual(file.summary.size, SIZE + 4)
            async with await aio.open(connection, self.value(1)) as file:
                self.assertEqual(file.seek(-4, io.SEEK_END), SIZE)
                self.assertEqual(await file.read(), b"more")
                self.assertEqual(await file.read_range(10, 5), self.data[10:15])
                file.seek(0)
                self.assertEqual(await file.read(3_000_000), self.data[:3_000_000])
                self.assertEqual(file.tell(), 3_000_000)
            self.assertEqual(await aio.write_range(connection, self.value(1), 0, b"\\x"), SIZE + 4)
            return b"".join([piece async for piece in aio.iterate(connection, self.value(1))])

        self.assertEqual(self.run_async(work), b"\\x" + self.data[2:] + b"more")

    def test_discarded(self):
        """An asynchronous writer that fails stores nothing."""
        async def work(connection):
            async with await aio.open(connection, self.value(1), "wb") as file:
                await file.write(self.data)
                raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, self.run_async, work)
        self.assertFalse(self.has(1))

    def test_transfers(self):
        """Asynchronous transfers go on after their connections are lost."""
        broken = []

        def breaks(done, total):
            if done > 3_000_000 and len(broken) < 2:
                broken.append(done)
                self.terminate_others()

        for stage in (None, aio.Stage("s")):
            broken.clear()
            summary = asyncio.run(aio.upload("", self.value(1), self.path, breaks, stage,
                                             1_500_000, (0.01,) * 5))
            self.assertEqual((summary.size, len(broken)), (SIZE, 2))
            self.assertEqual(self.get(1), self.data)
        broken.clear()
        asyncio.run(aio.download("", self.value(1), self.copy, breaks, 1_000_000, (0.01,) * 5))
        with open(self.copy, "rb") as file:
            self.assertEqual(file.read(), self.data)
        self.assertRaises(blobext.BlobMissing, asyncio.run,
                          aio.download("", self.value(2), self.copy))


class PackageTest(unittest.TestCase):
    def test_typed(self):
        """The package has types, and the version of its project."""
        directory = os.path.dirname(blobext.__file__)
        self.assertTrue(os.path.exists(os.path.join(directory, "py.typed")))
        project = os.path.join(directory, "../../pyproject.toml")
        if os.path.exists(project):
            with open(project, encoding="utf-8") as file:
                self.assertIn(f'\nversion = "{blobext.__version__}"\n', file.read())
        else:
            # Not the tree, but a package that was installed.
            self.assertEqual(importlib.metadata.version("blobext"), blobext.__version__)

    def test_docstrings(self):
        """Each name that is exported has a docstring."""
        for name in blobext.__all__:
            if name != "Progress":
                self.assertTrue(getattr(blobext, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
