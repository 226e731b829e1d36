"""COPY of pieces to uploads (blob_upload_pieces): the stream cut anywhere, errors anywhere, and the
server's own COPY and INSERT to the view.

Connection parameters come from the environment.  Seen to fail: without skip_message_after_error()
test_errors and test_error_within_message (the connection ends), with receive_buffered() left out
test_sent_ahead, with a row's data that is added at the end of each message alone test_cuts, without
the look at privileges test_privileges, without HOLD_CANCEL_INTERRUPTS() test_cancel, with other
tables than the view test_other_view, without the checks of the format test_errors.
"""

import hashlib
import os
import random
import socket
import struct
import unittest

import psycopg
from psycopg import errors

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
COPY = "COPY blob_upload_pieces FROM STDIN (FORMAT binary)"
SEED = int(os.environ.get("BLOBEXT_TEST_SEED", "1"))


def message(kind, payload):
    return kind + struct.pack("!i", len(payload) + 4) + payload


def row(number, piece):
    return struct.pack("!hiqi", 2, 8, number, len(piece)) + piece


class UploadCopyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with psycopg.connect(autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute("CREATE EXTENSION IF NOT EXISTS blobext")
            connection.execute("DROP TABLE IF EXISTS uploaded")
            connection.execute("CREATE TABLE uploaded (id int, content blobstate)")

    def setUp(self):
        self.connection = psycopg.connect()
        self.addCleanup(self.connection.close)

    def begin(self):
        return self.connection.execute("SELECT blob_upload_begin()").fetchone()[0]

    def send(self, messages, statement=COPY):
        """Each of the messages is one CopyData.  Returns the number of rows in the answer."""
        with self.connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                copy.write(b"" if messages else HEADER + TRAILER)
                for message in messages:
                    # Past psycopg, which cuts large ones.
                    while self.connection.pgconn.put_copy_data(message) == 0:
                        self.connection.pgconn.flush()
            return cursor.rowcount

    def digest(self, number):
        return self.connection.execute("SELECT length(v), sha256(v) FROM blob_upload_end(%s) AS v",
                                       (number,)).fetchone()

    def check_digest(self, number, content):
        self.assertEqual(self.digest(number), (len(content), hashlib.sha256(content).digest()))

    def raises(self, error, words, messages, statement=COPY):
        """The statement fails, and the session goes on."""
        with self.assertRaisesRegex(error, words):
            with self.connection.transaction():
                self.send(messages, statement)
        self.assertEqual(self.connection.execute("SELECT 'alive'").fetchone(), ("alive",))

    def cut(self, stream, draw, largest):
        """The stream in messages of random sizes, some of them empty."""
        at = 0
        while at < len(stream):
            length = draw.choice((0, 1, 4, draw.randrange(1, 100), draw.randrange(1, largest)))
            yield stream[at:at + length]
            at += length

    def test_cuts(self):
        """Rows and messages need not agree, and two uploads may be fed at once."""
        draw = random.Random(SEED)
        for largest in (30, 5000, 300_000, 3_000_000):
            with self.subTest(largest=largest, seed=SEED):
                numbers = [self.begin(), self.begin()]
                contents = {number: b"" for number in numbers}
                stream = HEADER
                for _ in range(draw.randrange(1, 12)):
                    number = draw.choice(numbers)
                    piece = draw.randbytes(draw.choice((0, 1, draw.randrange(largest))))
                    contents[number] += piece
                    stream += row(number, piece)
                self.send(self.cut(stream + TRAILER, draw, largest))
                for number in numbers:
                    self.check_digest(number, contents[number])
                self.connection.rollback()

    def test_large_message(self):
        """A message that is larger than all buffers, and a row in several of them."""
        content = random.Random(SEED).randbytes(9_000_001)
        number = self.begin()
        self.assertEqual(self.send([HEADER + row(number, content) + TRAILER]), 1)
        self.check_digest(number, content)
        number = self.begin()
        stream = row(number, content) + row(number, content)
        self.assertEqual(self.send([HEADER, stream[:7_000_000], stream[7_000_000:]]), 2)
        self.check_digest(number, content * 2)

    def test_stored(self):
        """The value is stored by the statement after the COPY, with a prepared statement's too."""
        content = random.Random(SEED).randbytes(2_000_000)
        for name in ("", "blob_upload_pieces (upload, data)"):
            number = self.begin()
            self.send([HEADER, row(number, content), TRAILER],
                      COPY.replace("blob_upload_pieces", name) if name else COPY)
            self.connection.execute("INSERT INTO uploaded VALUES (1, blob_upload_end(%s))",
                                    (number,))
            self.connection.commit()
        self.assertEqual(self.connection.execute(
            "SELECT count(*), count(DISTINCT content), min(content) = %b,"
            " min(blob_storage(content)) FROM uploaded WHERE id = 1", (content,)).fetchone(),
            (2, 1, True, "extents"))

    def test_sent_ahead(self):
        """The server has read a part of the stream, or the statement behind it, when the COPY
        begins."""
        content = random.Random(SEED).randbytes(20_000)
        stream = HEADER + row(1, content) + TRAILER
        info = self.connection.info
        words = f"user\0{info.user}\0database\0{info.dbname}\0\0".encode()
        for cut in (1, 19, 100, 8000, len(stream)):
            with self.subTest(cut=cut), socket.socket(socket.AF_UNIX) as client:
                client.connect(f"{info.host}/.s.PGSQL.{info.port}")
                client.sendall(struct.pack("!ii", len(words) + 8, 3 << 16) + words)
                client.sendall(
                    message(b"Q", b"BEGIN; SELECT blob_upload_begin()\0") +
                    message(b"Q", COPY.encode() + b"\0") + message(b"d", stream[:cut]) +
                    message(b"d", stream[cut:]) + message(b"c", b"") +
                    message(b"Q", b"SELECT sha256(blob_upload_end(1))\0") + message(b"X", b""))
                answer = b"".join(iter(lambda: client.recv(65536), b""))
                self.assertIn(hashlib.sha256(content).hexdigest().encode(), answer)

    def test_nothing(self):
        """COPY without a row uploads nothing."""
        self.assertEqual(self.send([]), 0)
        self.assertEqual(self.send([HEADER]), 0)

    def test_other_ways(self):
        """Text, CSV, a column order of one's own and INSERT go the server's own way."""
        for messages, statement in [
                ([b"%d\t\\\\x616263\n"], "COPY blob_upload_pieces FROM STDIN"),
                ([b"%d,\\x616263\n"], "COPY blob_upload_pieces FROM STDIN (FORMAT csv)"),
                ([b"\\\\x616263\t%d\n"], "COPY blob_upload_pieces (data, upload) FROM STDIN")]:
            number = self.begin()
            self.assertEqual(self.send([part % number for part in messages], statement), 1)
            self.connection.execute("INSERT INTO blob_upload_pieces VALUES (%s, 'def')", (number,))
            self.check_digest(number, b"abcdef")
        number = self.begin()
        stream = HEADER + struct.pack("!hi3siq", 2, 3, b"abc", 8, number) + TRAILER
        self.send([stream], "COPY blob_upload_pieces (data, upload) FROM STDIN (FORMAT binary)")
        self.check_digest(number, b"abc")
        self.assertEqual(self.connection.execute("SELECT * FROM blob_upload_pieces").fetchall(), [])

    def test_errors(self):
        """Input that is malformed is refused as COPY refuses it."""
        bad = errors.BadCopyFileFormat
        for error, words, stream_of in [
                (bad, "signature not recognized", lambda number: b"x" * 19),
                (bad, "critical flags", lambda number: HEADER[:11] + b"\0\1\0\0" + bytes(4)),
                (bad, "missing length", lambda number: HEADER[:15] + b"\xff\xff\xff\xff"),
                (bad, "unexpected EOF", lambda number: HEADER[:12]),
                (bad, "unexpected EOF", lambda number: HEADER + b"\0"),
                (bad, "unexpected EOF", lambda number: HEADER + row(number, b"abc")[:-1]),
                (bad, "unexpected EOF", lambda number: HEADER + row(number, b"")[:-1]),
                (bad, "row field count is 1, expected 2",
                 lambda number: HEADER + struct.pack("!hiq", 1, 8, number)),
                (bad, "row field count is -2", lambda number: HEADER + struct.pack("!h", -2)),
                (bad, "incorrect binary data",
                 lambda number: HEADER + struct.pack("!hiii", 2, 4, 1, 0)),
                (bad, "invalid field size",
                 lambda number: HEADER + struct.pack("!hiqi", 2, 8, number, -2)),
                (bad, "after EOF marker", lambda number: HEADER + TRAILER + b"x"),
                (errors.NullValueNotAllowed, "must not be null",
                 lambda number: HEADER + struct.pack("!hi", 2, -1)),
                (errors.NullValueNotAllowed, "must not be null",
                 lambda number: HEADER + struct.pack("!hiqi", 2, 8, number, -1)),
                (errors.UndefinedObject, "there is no upload 123456",
                 lambda number: HEADER + row(123456, b"abc") + TRAILER)]:
            for rest in (b"", bytes(50), bytes(1_000_000)):
                if not rest or words != "unexpected EOF":
                    with self.subTest(words, rest=len(rest)):
                        self.raises(error, words, [stream_of(self.begin()) + rest, rest])
            with self.subTest(words, rest="single bytes"):
                stream = stream_of(self.begin())
                self.raises(error, words, [stream[at:at + 1] for at in range(len(stream))])

    def test_error_within_message(self):
        """The rest of a message is taken after an error, whatever its size."""
        stream = HEADER + row(123456, bytes(20_000_000))
        self.raises(errors.UndefinedObject, "no upload 123456", [stream])
        self.raises(errors.UndefinedObject, "no upload 123456", [stream, stream, stream])

    def test_client_gives_up(self):
        """CopyFail: the COPY fails, and so does the upload, which has a part of its content."""
        number = self.begin()
        # psycopg 3.1 raises the failure of the COPY, later ones the exception.
        with self.assertRaisesRegex((errors.QueryCanceled, ValueError), "enough"):
            with self.connection.transaction():
                with self.connection.cursor() as cursor, cursor.copy(COPY) as copy:
                    copy.write(HEADER + row(number, bytes(500_000)))
                    raise ValueError("enough")
        with self.assertRaisesRegex(errors.ObjectNotInPrerequisiteState, "cannot go on"):
            self.digest(number)

    def test_cancel(self):
        """A cancel is served between two messages."""
        number = self.begin()
        with self.assertRaises(errors.QueryCanceled):
            with self.connection.transaction(), self.connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = '100ms'")
                with cursor.copy(COPY) as copy:
                    copy.write(HEADER)
                    with psycopg.connect() as other:
                        other.execute("SELECT pg_sleep(0.3)")
                    copy.write(row(number, b"late") + TRAILER)
        self.assertEqual(self.connection.execute("SELECT 1").fetchone(), (1,))

    def test_connection_is_lost(self):
        """A client that is gone in the middle of a message leaves nothing."""
        number = self.begin()
        pid = self.connection.info.backend_pid
        with self.assertRaises(psycopg.OperationalError):
            with self.connection.cursor() as cursor, cursor.copy(COPY) as copy:
                copy.write((HEADER + row(number, bytes(100_000)))[:-10])
                with socket.socket(fileno=os.dup(self.connection.pgconn.socket)) as end:
                    end.shutdown(socket.SHUT_RDWR)
        with psycopg.connect(autocommit=True) as other:
            while other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s",
                                (pid,)).fetchone():
                pass
            self.assertEqual(other.execute("SELECT 1").fetchone(), (1,))

    def test_privileges(self):
        """Copying to the view takes the right to insert; another role's uploads are its own."""
        number = self.begin()
        self.connection.execute("CREATE ROLE uploader")
        self.connection.execute("SET ROLE uploader")
        self.raises(errors.InsufficientPrivilege, "belongs to another role",
                    [HEADER, row(number, b"abc"), TRAILER])
        self.connection.execute("RESET ROLE")
        self.connection.execute("REVOKE INSERT ON blob_upload_pieces FROM PUBLIC")
        self.connection.execute("SET ROLE uploader")
        self.raises(errors.InsufficientPrivilege, "permission denied for view blob_upload_pieces",
                    [HEADER, TRAILER])

    def test_read_only(self):
        """COPY to an upload is refused in a read-only transaction."""
        self.connection.execute("SET TRANSACTION READ ONLY")
        self.raises(errors.ReadOnlySqlTransaction, "COPY FROM", [HEADER, TRAILER])

    def test_other_view(self):
        """A table of the same name elsewhere is a table."""
        self.connection.execute("CREATE TEMP TABLE blob_upload_pieces (upload bigint, data bytea)")
        self.assertEqual(self.send([HEADER, row(7, b"abc"), TRAILER]), 1)
        self.assertEqual(self.connection.execute("TABLE pg_temp.blob_upload_pieces").fetchall(),
                         [(7, b"abc")])


if __name__ == "__main__":
    unittest.main()
