"""The examples of examples/streaming, transfer.py and serve.py: interrupted transfers,
requests.

Connection parameters come from the environment.  BLOBEXT_TEST_LARGE=1: with a file of 2 GB.
"""

import contextlib
import hashlib
import http.client
import io
import os
import socket
import random
import subprocess
import sys
import tempfile
import threading
import unittest

import psycopg

EXAMPLES = os.environ["BLOBEXT_EXAMPLES"]
sys.path.insert(0, EXAMPLES)
import serve  # noqa: E402
import transfer  # noqa: E402

SIZE = 2_000_000_001 if os.environ.get("BLOBEXT_TEST_LARGE") else 20_000_001
PIECE = SIZE // 40


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest() if hasattr(hashlib, "file_digest") \
            else hashlib.sha256(file.read()).digest()


class StreamingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.admin = psycopg.connect(autocommit=True)
        cls.addClassCleanup(cls.admin.close)
        cls.admin.execute("CREATE EXTENSION IF NOT EXISTS blobext")
        cls.admin.execute("DROP TABLE IF EXISTS file")
        cls.admin.execute(transfer.TABLE)
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.path = os.path.join(cls.directory.name, "original")
        source = random.Random(1)
        with open(cls.path, "wb") as file:
            for start in range(0, SIZE, 10_000_000):
                file.write(source.randbytes(min(10_000_000, SIZE - start)))
        cls.digest = digest_of(cls.path)

    def setUp(self):
        self.admin.execute("TRUNCATE file")
        self.copy = os.path.join(self.directory.name, "copy")
        for path in (self.copy, self.copy + ".part"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def one(self, query, *parameters):
        return self.admin.execute(query, parameters, binary=True).fetchone()

    def check_value(self, name="f"):
        self.assertEqual(self.one("SELECT length(content), sha256(content) FROM file"
                                  " WHERE name = %s", name), (SIZE, self.digest))
        self.assertEqual(self.admin.execute("SELECT * FROM blobext_check('file')").fetchall(), [])

    def check_copy(self):
        self.assertEqual(digest_of(self.copy), self.digest)
        self.assertFalse(os.path.exists(self.copy + ".part"))

    def store(self, name="f"):
        transfer.upload("", name, self.path, PIECE)

    def terminate_others(self):
        self.one("SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
                 " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")


class TransferTest(StreamingTest):
    def test_up_and_down(self):
        """A file that goes up comes down the same."""
        self.assertEqual(transfer.upload("", "f", self.path, PIECE), SIZE)
        self.check_value()
        self.assertEqual(transfer.download("", "f", self.copy, PIECE), SIZE)
        self.check_copy()

    def test_again(self):
        """A complete transfer is not sent again."""
        self.store()
        seen = []
        transfer.upload("", "f", self.path, PIECE, lambda done, size: seen.append((done, size)))
        self.assertEqual(seen, [(SIZE, SIZE)])
        self.check_value()

    def test_small_and_empty(self):
        """Small and empty files go up and come down."""
        for size in (0, 1, 1900, 1901):
            with open(self.copy, "wb") as file:
                file.write(bytes(size))
            transfer.upload("", str(size), self.copy)
            os.unlink(self.copy)
            transfer.download("", str(size), self.copy)
            with open(self.copy, "rb") as file:
                self.assertEqual(file.read(), bytes(size))

    def break_connections(self, done, size):
        """Progress that terminates the backend three times on the way."""
        if done // (size // 4) > self.breaks:
            self.breaks += 1
            self.terminate_others()

    def test_broken_upload(self):
        """An upload goes on whenever its connection is lost."""
        self.breaks = 0
        transfer.upload("", "f", self.path, PIECE, self.break_connections)
        self.assertGreaterEqual(self.breaks, 3)
        self.check_value()

    def test_broken_download(self):
        """A download goes on whenever its connection is lost."""
        self.store()
        self.breaks = 0
        transfer.download("", "f", self.copy, PIECE, self.break_connections)
        self.assertGreaterEqual(self.breaks, 3)
        self.check_copy()

    def test_lost_answer(self):
        """The piece is committed, but the connection breaks before the client hears of it."""
        original = transfer.append
        self.addCleanup(setattr, transfer, "append", original)
        lost = []

        def append_and_break(connection, name, offset, piece):
            row = original(connection, name, offset, piece)
            if len(lost) < 3 and offset > SIZE // 3:
                lost.append(offset)
                connection.close()
                raise psycopg.OperationalError("the connection is lost")
            return row

        transfer.append = append_and_break
        transfer.upload("", "f", self.path, PIECE)
        self.assertEqual(len(lost), 3)
        self.check_value()

    def interrupt(self, done, size):
        self.seen.append(done)
        if done > size // 2 and not self.resumed:
            raise KeyboardInterrupt

    def test_next_run_goes_on(self):
        self.seen, self.resumed = [], False
        with self.assertRaises(KeyboardInterrupt):
            transfer.upload("", "f", self.path, PIECE, self.interrupt)
        stopped_at, self.seen, self.resumed = self.seen[-1], [], True
        transfer.upload("", "f", self.path, PIECE, self.interrupt)
        self.assertEqual(self.seen[0], stopped_at)
        self.check_value()

        self.seen, self.resumed = [], False
        with self.assertRaises(KeyboardInterrupt):
            transfer.download("", "f", self.copy, PIECE, self.interrupt)
        self.assertFalse(os.path.exists(self.copy))
        stopped_at, self.seen, self.resumed = self.seen[-1], [], True
        transfer.download("", "f", self.copy, PIECE, self.interrupt)
        self.assertEqual(self.seen[0], stopped_at)
        self.check_copy()

    def test_other_content(self):
        """A value that is not the beginning of the file is not continued."""
        self.admin.execute("INSERT INTO file VALUES ('f', 'not the beginning')")
        with self.assertRaisesRegex(transfer.TransferError, "not the beginning of the file"):
            self.store()
        self.admin.execute("INSERT INTO file SELECT 'g', blob_import(%s)", (self.path,))
        self.admin.execute("UPDATE file SET content = content || '\\x00'::bytea WHERE name = 'g'")
        with self.assertRaisesRegex(transfer.TransferError, "longer than the file"):
            self.store("g")

    def test_two_writers(self):
        """An upload beside another writer of the value fails."""
        def other(done, size):
            if done == PIECE:
                self.admin.execute("UPDATE file SET content = blob_append(content, 'x')")

        with self.assertRaisesRegex(transfer.TransferError, "somebody else"):
            transfer.upload("", "f", self.path, PIECE, other)

    def test_damaged_part(self):
        """A damaged part is removed, and the next download succeeds."""
        self.store()
        with open(self.copy + ".part", "wb") as file:
            file.write(b"something else")
        with self.assertRaisesRegex(transfer.TransferError, "was removed"):
            transfer.download("", "f", self.copy, PIECE)
        transfer.download("", "f", self.copy, PIECE)
        self.check_copy()

    def test_changed_while_downloaded(self):
        """A value that changes meanwhile gives no file."""
        self.store()

        def change(done, size):
            if done == PIECE:
                self.admin.execute("UPDATE file SET content = blob_write(content, 5, 'x')")

        with self.assertRaisesRegex(transfer.TransferError, "changed meanwhile"):
            transfer.download("", "f", self.copy, PIECE, change)
        self.assertFalse(os.path.exists(self.copy))

    def test_no_such_value(self):
        """A download of a value that is not there fails."""
        with self.assertRaisesRegex(transfer.TransferError, "no such value"):
            transfer.download("", "f", self.copy)

    def test_command(self):
        """The command goes up and down, and says what is missing."""
        command = [sys.executable, os.path.join(EXAMPLES, "transfer.py")]
        for arguments in (["upload", "f", self.path], ["download", "f", self.copy]):
            result = subprocess.run(command + arguments, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("#" * 40, result.stderr)
        self.check_copy()
        result = subprocess.run(command + ["download", "g", self.copy], capture_output=True,
                                text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no such value", result.stderr)

    def test_progress_bar(self):
        """The bar shows how much of the file is done."""
        stream = io.StringIO()
        bar = transfer.ProgressBar(stream)
        for done in (0, 5_000_000, 10_000_000):
            bar(done, 10_000_000)
        bar(0, 0)
        self.assertIn(f"[{'#' * 20}{' ' * 20}] 5.0 of 10.0 MB", stream.getvalue())


class ServeTest(StreamingTest):
    def setUp(self):
        super().setUp()
        self.store()
        self.tag = f'"{self.digest.hex()}"'
        with open(self.path, "rb") as file:
            self.beginning = file.read(1000)
            file.seek(SIZE - 1000)
            self.end = file.read()
        server = serve.make_server("")
        server.RequestHandlerClass.log_message = lambda *arguments: None
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        self.addCleanup(self.connection.close)

    def request(self, method="GET", path="/f", **headers):
        """Status, headers, body; all over the same connection."""
        self.connection.request(method, path,
                                headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = self.connection.getresponse()
        return response.status, response.headers, response.read()

    def check_whole(self, *answer):
        status, headers, body = answer
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Length"], str(SIZE))
        self.assertEqual(headers["ETag"], self.tag)
        self.assertEqual(headers["Accept-Ranges"], "bytes")
        self.assertEqual(hashlib.sha256(body).digest(), self.digest)

    def check_range(self, header, first, body):
        status, headers, got = self.request(Range=header)
        self.assertEqual(status, 206, header)
        self.assertEqual(headers["Content-Range"],
                         f"bytes {first}-{first + len(body) - 1}/{SIZE}", header)
        self.assertEqual(got, body, header)

    def test_whole(self):
        """A request without a range gets all of the value."""
        self.check_whole(*self.request())

    def test_head(self):
        """HEAD has size and digest and no body."""
        status, headers, body = self.request("HEAD", Range="bytes=0-9")
        self.assertEqual((status, headers["Content-Length"], headers["ETag"], body),
                         (200, str(SIZE), self.tag, b""))

    def test_ranges(self):
        """A range gets these bytes and no others."""
        self.check_range("bytes=0-0", 0, self.beginning[:1])
        self.check_range("bytes=10-99", 10, self.beginning[10:100])
        self.check_range("Bytes = 10 - 99", 10, self.beginning[10:100])
        self.check_range(f"bytes={SIZE - 100}-", SIZE - 100, self.end[-100:])
        self.check_range(f"bytes={SIZE - 1}-{SIZE + 100}", SIZE - 1, self.end[-1:])
        self.check_range("bytes=-7", SIZE - 7, self.end[-7:])

    def test_long_range(self):
        """A range of five pieces gets all its bytes."""
        status, headers, body = self.request(Range="bytes=1000-5000999")
        self.assertEqual((status, len(body)), (206, 5_000_000))
        self.assertEqual(body, self.one("SELECT blob_read(content, 1000, 5000000) FROM file")[0])

    def test_suffix_longer_than_the_value(self):
        self.admin.execute("INSERT INTO file VALUES ('short', 'abc')")
        status, headers, body = self.request(path="/short", Range="bytes=-10")
        self.assertEqual((status, headers["Content-Range"], body), (206, "bytes 0-2/3", b"abc"))

    def test_unsatisfiable(self):
        """A range that has no byte of the value is refused."""
        for header in (f"bytes={SIZE}-", f"bytes={SIZE + 5}-{SIZE + 6}", "bytes=-0"):
            status, headers, body = self.request(Range=header)
            self.assertEqual((status, headers["Content-Range"], body),
                             (416, f"bytes */{SIZE}", b""), header)

    def test_numbers_of_any_length(self):
        """Python's int() takes 4,300 digits; they are an answer, not the end of the connection."""
        many = "9" * 5000
        for header in (f"bytes={many}-", f"bytes={many}-{many}", f"bytes=1{many}-2{many}"):
            status, headers, body = self.request(Range=header)
            self.assertEqual((status, headers["Content-Range"], body),
                             (416, f"bytes */{SIZE}", b""), header[:20])
        self.check_range(f"bytes={SIZE - 9}-{many}", SIZE - 9, self.end[-9:])
        self.check_range("bytes=" + "0" * 5000 + "-" + "0" * 5000 + "4", 0, self.beginning[:5])
        self.check_whole(*self.request(Range=f"bytes=2{many}-1{many}"))
        status, headers, body = self.request(Range=f"bytes=-{many}")
        self.assertEqual((status, headers["Content-Range"]), (206, f"bytes 0-{SIZE - 1}/{SIZE}"))
        self.assertEqual(hashlib.sha256(body).digest(), self.digest)

    def test_no_address(self):
        """A target that is no address is an answer, too."""
        with socket.create_connection((self.connection.host, self.connection.port)) as client:
            client.sendall(b"GET http://[/f HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertRegex(client.makefile("rb").readline(), rb"^HTTP/1.1 400 ")
        self.assertEqual(self.request(path="http://host/f", Range="bytes=0-0")[0], 206)

    def test_empty(self):
        """An empty value is sent, and has no range."""
        self.admin.execute("INSERT INTO file (name) VALUES ('empty')")
        self.assertEqual(self.request(path="/empty")[::2], (200, b""))
        self.assertEqual(self.request(path="/empty", Range="bytes=0-")[0], 416)

    def test_ignored(self):
        """Several ranges need not be served; a header that is no range is ignored."""
        for header in ("bytes=0-1,5-6", "lines=1-2", "bytes=5-4", "bytes=-", "bytes=a-b",
                       "bytes=0x1-2", "bytes=1-2x"):
            self.check_whole(*self.request(Range=header))

    def test_if_range(self):
        """A range is sent only if the digest is the one given."""
        status, headers, body = self.request(Range="bytes=0-9", If_Range=self.tag)
        self.assertEqual((status, body), (206, self.beginning[:10]))
        for other in ('"other"', "W/" + self.tag, "Sat, 29 Oct 1994 19:43:31 GMT"):
            self.check_whole(*self.request(Range="bytes=0-9", If_Range=other))

    def test_if_none_match(self):
        """Content that the client has is not sent again."""
        for header in (self.tag, "W/" + self.tag, f'"other", {self.tag}', "*"):
            self.assertEqual(self.request(If_None_Match=header)[0], 304, header)
        self.check_whole(*self.request(If_None_Match='"other"'))

    def test_names(self):
        """Names are decoded, and unknown ones not found."""
        self.admin.execute("INSERT INTO file VALUES ('a b/ü?', 'abc')")
        self.assertEqual(self.request(path="/a%20b/%C3%BC%3F?x=1")[2], b"abc")
        self.assertEqual(self.request(path="/nothing")[0], 404)
        self.assertEqual(self.request(path="/%00")[0], 404)

    def test_changed_while_sent(self):
        """The client gets too little, never a mixture."""
        original = serve.PIECE_BYTES
        self.addCleanup(setattr, serve, "PIECE_BYTES", original)
        serve.PIECE_BYTES = 100_000
        self.connection.request("GET", "/f")
        response = self.connection.getresponse()
        body = response.read(1000)
        self.admin.execute("UPDATE file SET content = blob_write(content, 5, 'x')")
        with self.assertRaises(http.client.IncompleteRead) as caught:
            body += response.read()
        body += caught.exception.partial
        self.assertLess(len(body), SIZE)
        with open(self.path, "rb") as file:
            self.assertEqual(body, file.read(len(body)))


if __name__ == "__main__":
    unittest.main()
