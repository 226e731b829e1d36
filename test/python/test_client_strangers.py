"""The package of clients/python among strangers: objects of others that have the names of the
extension's, in the search path, beside them, in pg_temp; names with characters of psycopg; servers
that answer what they like.

Connection parameters come from the environment.  Seen to fail with version 0.3 of the package:
MembersTest but test_strangers_would_run; NamesTest with six of the names; test_summary, test_piece
and test_endless_rows of HostileTest, the last one without an end.
"""

import asyncio
import hashlib
import io
import os
import resource
import socket
import struct
import tempfile
import threading
import unittest

import psycopg

import blobext
from blobext import aio

DATA = bytes(range(256)) * 12_000
DIGEST = hashlib.sha256(DATA).digest()

# Each raises an error when it is called.  Those in schema stranger have the very types of the
# extension's; those in public, where the extension is, are closer to what a client would send.
STRANGERS = """
CREATE SCHEMA stranger;
CREATE SCHEMA data;
CREATE DOMAIN data.document AS blobstate;
CREATE FUNCTION stranger.runs() RETURNS void LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'a function of a stranger runs'; END$$;
DO $do$
DECLARE f record;
BEGIN
    FOR f IN SELECT p.proname AS name, pg_get_function_result(p.oid) AS result,
            oidvectortypes(p.proargtypes) AS types
        FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
            AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid
        WHERE e.extname = 'blobext' AND p.prokind = 'f' AND (p.proname LIKE 'blob_upload_%'
            OR p.proname IN ('length', 'sha256', 'blob_read', 'blob_write'))
            AND p.prorettype <> 'trigger'::regtype
    LOOP
        EXECUTE format('CREATE FUNCTION stranger.%I(%s) RETURNS %s LANGUAGE plpgsql AS
            $$BEGIN PERFORM stranger.runs(); END$$', f.name, f.types, f.result);
        IF f.types ~ 'bigint' THEN
            EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS
                $$BEGIN PERFORM stranger.runs(); END$$', f.name,
                replace(f.types, 'bigint', 'smallint'), f.result);
            EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS
                $$BEGIN PERFORM stranger.runs(); END$$', f.name,
                replace(f.types, 'bigint', 'integer'), f.result);
        END IF;
        IF f.types ~ 'blobstate' THEN
            EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS
                $$BEGIN PERFORM stranger.runs(); END$$', f.name,
                replace(f.types, 'blobstate', 'data.document'), f.result);
        END IF;
    END LOOP;
END$do$;
CREATE FUNCTION stranger.equal(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS
    $$BEGIN PERFORM stranger.runs(); END$$;
CREATE FUNCTION stranger.equal(bytea, bytea) RETURNS boolean LANGUAGE plpgsql AS
    $$BEGIN PERFORM stranger.runs(); END$$;
CREATE OPERATOR stranger.= (FUNCTION = stranger.equal, LEFTARG = varchar, RIGHTARG = varchar);
CREATE OPERATOR public.= (FUNCTION = stranger.equal, LEFTARG = varchar, RIGHTARG = varchar);
CREATE OPERATOR stranger.= (FUNCTION = stranger.equal, LEFTARG = bytea, RIGHTARG = bytea);
CREATE TABLE stranger.blob_upload_pieces (upload bigint, data bytea);
CREATE DOMAIN stranger.blobstate AS bytea;
CREATE TABLE data.files (name varchar(100), part int, content data.document,
    PRIMARY KEY (name, part));
CREATE TABLE data.blob_stage (name text PRIMARY KEY, content public.blobstate NOT NULL DEFAULT '');
"""
PATH = ("SET search_path = stranger, data, public, pg_catalog;"
        " CREATE TEMPORARY TABLE blob_upload_pieces (upload bigint, data bytea)")


def recreate(name, *statements):
    """A database; what it had is gone."""
    with psycopg.connect(autocommit=True) as admin:
        admin.execute("SET client_min_messages = warning")
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    connection = psycopg.connect(dbname=name, autocommit=True)
    for statement in statements:
        connection.execute(statement)
    return connection


class MembersTest(unittest.TestCase):
    def setUp(self):
        self.admin = recreate("strangers", "CREATE EXTENSION blobext SCHEMA public", STRANGERS)
        self.addCleanup(self.admin.close)
        self.value = blobext.Value("files", {"name": "a", "part": 1})
        self.stage = blobext.Stage("s")

    def connect(self):
        connection = psycopg.connect(dbname="strangers", autocommit=True)
        connection.execute(PATH)
        return connection

    def stored(self):
        return self.admin.execute("SELECT content::bytea FROM data.files WHERE part = 1",
                                  binary=True).fetchone()[0]

    def test_strangers_would_run(self):
        """The plants are where a client without qualified names would step on them."""
        with self.connect() as connection:
            connection.execute("INSERT INTO files VALUES ('a', 1, 'x')")
            for call in ("length(content)", "sha256(content)", "blob_read(content, 0, 1)",
                         "blob_upload_begin(0)", "name = name"):
                with self.assertRaisesRegex(psycopg.errors.RaiseException, "of a stranger"):
                    connection.execute("SELECT " + call + " FROM files")

    def test_sync(self):
        """The client calls no object of a stranger."""
        with self.connect() as connection:
            with blobext.open(connection, self.value, "wb") as file:
                file.write(DATA)
            self.assertEqual(self.stored(), DATA)
            with blobext.open(connection, self.value, "ab") as file:
                file.write(b"more")
            with blobext.open(connection, self.value) as file:
                self.assertEqual(file.read(), DATA + b"more")
            self.assertEqual(blobext.write_range(connection, self.value, 0, b"xy"),
                             len(DATA) + 4)
            self.assertEqual(self.stored(), b"xy" + DATA[2:] + b"more")
            with tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "copy")
                blobext.download(connection, self.value, path)
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), self.stored())
        blobext.upload(self.connect, self.value, io.BytesIO(DATA))
        self.assertEqual(self.stored(), DATA)
        blobext.upload(self.connect, self.value, io.BytesIO(DATA[1:]), stage=self.stage,
                       section_bytes=1_000_000)
        self.assertEqual(self.stored(), DATA[1:])

    def test_async(self):
        """The asynchronous client calls no object of a stranger."""
        async def connect():
            connection = await psycopg.AsyncConnection.connect(dbname="strangers",
                                                               autocommit=True)
            await connection.execute(PATH)
            return connection

        async def work():
            async with await connect() as connection:
                async with await aio.open(connection, self.value, "wb") as file:
                    await file.write(DATA)
                async with await aio.open(connection, self.value) as file:
                    self.assertEqual(await file.read(), DATA)
                await aio.write_range(connection, self.value, 0, b"xy")
            await aio.upload(connect, self.value, io.BytesIO(DATA), stage=self.stage,
                             section_bytes=1_000_000)

        asyncio.run(work())
        self.assertEqual(self.stored(), DATA)

    def test_key_types(self):
        """A key is compared as its type's B-tree does, wherever the operator is."""
        self.admin.execute("CREATE EXTENSION citext SCHEMA data")
        self.admin.execute("CREATE TYPE data.kind AS ENUM ('one', 'two')")
        self.admin.execute("CREATE DOMAIN data.label AS data.citext")
        self.admin.execute('CREATE TABLE data.keyed (a data.label, b data.kind, c uuid, d char(5),'
                           " e bytea, content blobstate, PRIMARY KEY (a, b, c, d, e))")
        key = {"a": "Name", "b": "two", "c": "00000000-0000-0000-0000-000000000001", "d": "x",
               "e": b"\x00"}
        with psycopg.connect(dbname="strangers", autocommit=True) as connection:
            connection.execute("SET search_path = stranger, pg_temp")
            with blobext.open(connection, blobext.Value(("data", "keyed"), key), "wb") as file:
                file.write(b"content")
            other = blobext.Value(("data", "keyed"), {**key, "a": "NAME"})
            self.assertEqual(blobext.stat(connection, other).size, 7)

    def test_not_installed(self):
        """Functions that another role has made are no extension."""
        with recreate("strangers_none", "CREATE FUNCTION length(bytea, int) RETURNS bigint"
                      " LANGUAGE sql RETURN 1", "CREATE TABLE files (name text, content bytea)"
                      ) as connection:
            value = blobext.Value("files", {"name": "a"})
            for work in (lambda: blobext.stat(connection, value),
                         lambda: blobext.open(connection, value, "wb"),
                         lambda: blobext.upload(connection, value, io.BytesIO(b"x"))):
                with self.assertRaisesRegex(blobext.BlobUnexpected, "does not have the extension"):
                    work()

    def test_older_objects(self):
        """A function that the extension does not have yet is not taken from its schema."""
        with recreate("strangers_old", "CREATE EXTENSION blobext VERSION '0.2.0'",
                      "CREATE FUNCTION blob_upload_begin(bigint) RETURNS bigint LANGUAGE sql"
                      " RETURN 1", "CREATE TABLE files (name text, content blobstate)"
                      ) as connection:
            with self.assertRaisesRegex(blobext.BlobUnexpected, "blob_upload_begin: its objects"
                                        " are older"):
                blobext.open(connection, blobext.Value("files", {"name": "a"}), "wb")


class NamesTest(unittest.TestCase):
    NAMES = ("a%b", "a(b)", "%s", "%(key_0)s", "%%", "{}", "{0}", 'quoted "name"', "'", "\\",
             "gr\u00f6\u00dfe \u96ea", "key_0", " ", "a.b", "--", "SELECT", "$1", "%b)")

    def setUp(self):
        self.connection = psycopg.connect(autocommit=True)
        self.addCleanup(self.connection.close)
        self.connection.execute("SET client_min_messages = warning")
        self.connection.execute("CREATE EXTENSION IF NOT EXISTS blobext")

    def make(self, name):
        """A schema, a table, a key, columns and a stage of a name."""
        schema, table, first, second, column, note = (
            psycopg.sql.Identifier(prefix + name).as_string(self.connection)
            for prefix in ("", "", "", "2", "c", "n"))
        self.connection.execute(
            f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema};"
            f" CREATE TABLE {schema}.{table} ({first} text, {second} int, {note} text,"
            f" {column} blobstate, PRIMARY KEY ({first}, {second}));"
            f" CREATE TABLE {schema}.blob_stage (name text PRIMARY KEY, content blobstate NOT NULL"
            " DEFAULT '')")
        return (blobext.Value((name, name), {name: name, "2" + name: 7}, "c" + name,
                              {"n" + name: "%s"}),
                blobext.Stage(name, (name, "blob_stage")))

    def test_sync(self):
        """Names with quotes and odd characters reach their table."""
        for name in self.NAMES:
            with self.subTest(name):
                value, stage = self.make(name)
                with blobext.open(self.connection, value, "wb") as file:
                    file.write(b"one")
                with blobext.open(self.connection, value, "ab") as file:
                    file.write(b" two")
                self.assertEqual(blobext.write_range(self.connection, value, 0, b"O"), 7)
                with blobext.open(self.connection, value) as file:
                    self.assertEqual(file.read(), b"One two")
                for source in (b"stage", b"again"):
                    blobext.upload(self.connection, value, io.BytesIO(source), stage=stage)
                    self.assertEqual(b"".join(blobext.iterate(self.connection, value)), source)
                self.assertEqual(blobext.upload(self.connection, value, io.BytesIO(b"all")).size, 3)

    def test_async(self):
        """Names with quotes and odd characters reach their table asynchronously."""
        async def work(value, stage):
            async with await psycopg.AsyncConnection.connect(autocommit=True) as connection:
                async with await aio.open(connection, value, "wb") as file:
                    await file.write(b"one")
                await aio.write_range(connection, value, 0, b"O")
                async with await aio.open(connection, value) as file:
                    self.assertEqual(await file.read(), b"One")
                await aio.upload(connection, value, io.BytesIO(b"stage"), stage=stage)
                self.assertEqual((await aio.stat(connection, value)).size, 5)

        for name in self.NAMES:
            with self.subTest(name):
                asyncio.run(work(*self.make(name)))

    def test_no_name(self):
        """A name with a NUL is refused."""
        for value in (blobext.Value("a\0b", {"id": 1}), blobext.Value("t", {"i\0d": 1})):
            self.assertRaises(ValueError, blobext.stat, self.connection, value)

    def tearDown(self):
        for name in self.NAMES:
            self.connection.execute(psycopg.sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(
                psycopg.sql.Identifier(name)))


# ---- a server that answers what it likes ----

TEXT, INT8, BYTEA = 25, 20, 17
BLOBSTATE = "16400"
MEMBERS = [("type", "public", "blobstate", BLOBSTATE),
           ("relation", "public", "blob_upload_pieces", ""),
           *(("function", "public", name, types) for name, types in (
               ("length", BLOBSTATE), ("sha256", BLOBSTATE), ("blob_read", BLOBSTATE + " 20 20"),
               ("blob_write", BLOBSTATE + " 20 17"), ("blob_upload_begin", "20"),
               ("blob_upload_resume", BLOBSTATE + " 20"), ("blob_upload_write", "20 17"),
               ("blob_upload_end", "20")))]


class HostileServer(threading.Thread):
    """Speaks the protocol.  ``stat`` and ``read`` are the answers: types
    and rows; rows may have no end."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.stat = ((INT8, BYTEA), [(struct.pack("!q", len(DATA)), DIGEST)])
        self.read = ((BYTEA,), [(DATA,)])
        self.sent_bytes = 0
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, client.makefile("rb") as source:
            try:
                self.talk(client, source)
            except (OSError, EOFError):
                pass

    @staticmethod
    def message(kind, body=b""):
        return kind + struct.pack("!i", len(body) + 4) + body

    @staticmethod
    def exactly(source, length):
        data = source.read(length)
        if len(data) < length:
            raise EOFError
        return data

    def talk(self, client, source):
        while True:
            length, code = struct.unpack("!ii", self.exactly(source, 8))
            self.exactly(source, length - 8)
            if code == 196608:
                break
            client.sendall(b"N")
        ready = self.message(b"Z", b"I")
        client.sendall(self.message(b"R", struct.pack("!i", 0)) + b"".join(
            self.message(b"S", name + b"\0" + value + b"\0") for name, value in
            ((b"client_encoding", b"UTF8"), (b"server_version", b"15.0"))) + ready)
        query = b""
        while True:
            kind = self.exactly(source, 1)
            body = self.exactly(source, struct.unpack("!i", self.exactly(source, 4))[0] - 4)
            if kind == b"P":
                query = body.split(b"\0")[1]
            elif kind == b"Q":
                client.sendall(self.message(b"C", b"SET\0") + ready)
            elif kind == b"S":
                client.sendall(self.message(b"1") + self.message(b"2"))
                self.answer(client, *self.choose(query))
                client.sendall(self.message(b"C", b"SELECT 1\0") + ready)
            elif kind == b"X":
                return

    def choose(self, query):
        if b"pg_extension" in query:
            return (TEXT,) * 4, [tuple(column.encode() for column in row) for row in MEMBERS]
        if b"RECURSIVE" in query:
            return (TEXT,) * 3, []
        return self.read if b"blob_read" in query else self.stat

    def answer(self, client, types, rows):
        client.sendall(self.message(b"T", struct.pack("!h", len(types)) + b"".join(
            b"c\0" + struct.pack("!ihihih", 0, 0, type, -1, -1, 1) for type in types)))
        for row in rows:
            data = self.message(b"D", struct.pack("!h", len(row)) + b"".join(
                struct.pack("!i", -1) if column is None else
                struct.pack("!i", len(column)) + column for column in row))
            client.sendall(data)
            self.sent_bytes += len(data)


class HostileTest(unittest.TestCase):
    def setUp(self):
        self.server = HostileServer()
        self.addCleanup(self.server.listener.close)
        self.dsn = f"host=127.0.0.1 port={self.server.port} user=u dbname=d sslmode=disable" \
                   " gssencmode=disable"
        self.value = blobext.Value("t", {"id": 1})
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        self.addCleanup(self.connection.close)

    def test_server_is_believed(self):
        """Its answers by default make a value."""
        self.assertEqual(b"".join(blobext.iterate(self.connection, self.value,
                                                  piece_bytes=len(DATA))), DATA)

    def test_summary(self):
        """A size and digest that cannot be are not believed."""
        size = struct.pack("!q", 10)
        for types, row in (((INT8,), (size,)), ((INT8, BYTEA, BYTEA), (size, DIGEST, DIGEST)),
                           ((INT8, BYTEA), (size, None)), ((INT8, BYTEA), (size, b"short")),
                           ((INT8, BYTEA), (struct.pack("!q", -1), DIGEST)),
                           ((TEXT, BYTEA), (b"10", DIGEST)), ((INT8, TEXT), (size, b"x" * 32))):
            self.server.stat = (types, [row])
            with self.subTest(row), self.assertRaises(blobext.BlobUnexpected):
                blobext.stat(self.connection, self.value)
        self.server.stat = ((INT8, BYTEA), [(None, None)])
        self.assertRaises(blobext.BlobMissing, blobext.stat, self.connection, self.value)

    def test_piece(self):
        """An empty piece would be asked for again without end."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "copy")
            for types, row in (((BYTEA,), (b"",)), ((BYTEA,), (b"x",)), ((BYTEA,), (None,)),
                               ((BYTEA,), (DATA + b"x",)), ((TEXT,), (b"x" * 10,)),
                               ((BYTEA, BYTEA), (DATA, DATA))):
                self.server.read = (types, [row])
                with self.subTest(len(row[0] or b"")):
                    with self.assertRaises(blobext.BlobUnexpected):
                        list(blobext.iterate(self.connection, self.value))
                    with self.assertRaises(blobext.BlobUnexpected):
                        blobext.open(self.connection, self.value).read()
                    with self.assertRaises(blobext.BlobUnexpected):
                        blobext.download(self.connection, self.value, path)
                    with self.assertRaises(blobext.BlobUnexpected):
                        asyncio.run(aio.download(self.dsn, self.value, path))

    def test_wrong_content(self):
        """A download whose content does not have the digest leaves no file."""
        self.server.read = ((BYTEA,), [(bytes(len(DATA)),)])
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaises(blobext.BlobMismatch):
                blobext.download(self.connection, self.value, os.path.join(directory, "copy"),
                                 piece_bytes=len(DATA))
            self.assertEqual(os.listdir(directory), [])

    def test_endless_rows(self):
        """They cost the connection, and no memory for all of them."""
        def endless():
            while True:
                yield struct.pack("!q", 10), DIGEST + bytes(100_000)

        async def work():
            async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as other:
                await aio.stat(other, self.value)

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.server.stat = ((INT8, BYTEA), endless())
        with self.assertRaisesRegex(blobext.BlobUnexpected, "without end"):
            blobext.stat(self.connection, self.value)
        self.assertTrue(self.connection.closed)
        self.server.stat = ((INT8, BYTEA), endless())
        with self.assertRaisesRegex(blobext.BlobUnexpected, "without end"):
            asyncio.run(work())
        self.assertGreater(self.server.sent_bytes, 2 * 16_000_000)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        self.assertLess(grown, 100_000, "kB")


if __name__ == "__main__":
    unittest.main()
