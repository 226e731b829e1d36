#!/usr/bin/env python3
"""Drives the adapter of one client through all cases; README.md says what both sides do.

Connection parameters come from the environment, and name a superuser.  Cases wait for states of
the server, and an adapter says by "paused" where it is, so none depends on speed.
"""

import argparse
import contextlib
import hashlib
import operator
import os
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import psycopg

MB = 1024 * 1024
SECTION = 64 * MB
MAX_RESIDENT_KB = 64 * 1024
LEAST_RATE = 0.8
PATIENCE = 60
MAX_ANSWER_SECONDS = 600
EMPTY = hashlib.sha256().hexdigest()

# All that a client needs is outside of its search path, and all that it must not call is in it.
OBJECTS = '''
CREATE ROLE conformance LOGIN;
CREATE ROLE conformance_stranger LOGIN;
CREATE SCHEMA "Blob Ext";
CREATE EXTENSION blobext SCHEMA "Blob Ext";
GRANT CREATE ON SCHEMA "Blob Ext" TO conformance_stranger;
GRANT USAGE ON SCHEMA "Blob Ext" TO PUBLIC;
CREATE SCHEMA "Odd ""Schema""" AUTHORIZATION conformance;
GRANT USAGE ON SCHEMA "Odd ""Schema""" TO conformance_stranger;
CREATE SCHEMA trap AUTHORIZATION conformance_stranger;
GRANT USAGE ON SCHEMA trap TO PUBLIC;
SET search_path = "Blob Ext";
SET ROLE conformance_stranger;
CREATE FUNCTION trap.sprung(anyelement) RETURNS anyelement LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'a function of another role was called' USING ERRCODE = 'TR000'; END$$;
'''
TRAPS = [(name, arguments, result)
         for result, calls in {
             "bigint": ["length(bytea)", "blob_upload_begin()", "blob_upload_begin(integer)",
                        "blob_upload_resume(blobstate, integer)",
                        "blob_upload_write(bigint, text)", "blob_upload_write(integer, bytea)"],
             "bytea": ["sha256(text)", "blob_read(blobstate, integer, integer)",
                       "blob_read(blobstate, bigint, integer)", "blob_read(bytea, bigint, bigint)"],
             "blobstate": ["blob_upload_end(integer)", "blob_upload_end(text)"]}.items()
         for name, _, arguments in (call.rstrip(")").partition("(") for call in calls)]
EXACT_TRAPS = [("length", "blobstate", "bigint"), ("sha256", "blobstate", "bytea"),
               ("blob_read", "blobstate, bigint, bigint", "bytea"),
               ("blob_upload_begin", "bigint", "bigint"),
               ("blob_upload_resume", "blobstate, bigint", "bigint"),
               ("blob_upload_write", "bigint, bytea", "bigint"),
               ("blob_upload_end", "bigint", "blobstate")]
TABLES = '''
RESET ROLE;
SET ROLE conformance;
CREATE TABLE "Odd ""Schema"""."Odd Name" (id bigint, "Kind" text, "my content" "Blob Ext".blobstate,
    PRIMARY KEY (id, "Kind"));
CREATE TABLE "Odd ""Schema""".blob_stage (name text PRIMARY KEY,
    content "Blob Ext".blobstate NOT NULL DEFAULT '');
RESET ROLE;
RESET search_path;
ALTER ROLE conformance SET search_path = trap, pg_catalog;
ALTER ROLE conformance_stranger SET search_path = trap, pg_catalog;
'''
EMPTY_OBJECTS = '''
CREATE SCHEMA "Odd ""Schema""" AUTHORIZATION conformance;
SET ROLE conformance;
CREATE TABLE "Odd ""Schema"""."Odd Name" (id bigint, "Kind" text, "my content" bytea,
    PRIMARY KEY (id, "Kind"));
'''
# As from PostgreSQL 17 on: there the row types of views and tables are members, too.  Seen to fail
# with clients that counted members by their names.
ROW_TYPES = '''
RESET ROLE;
INSERT INTO pg_depend SELECT 'pg_type'::regclass, c.reltype, 0, d.refclassid, d.refobjid, 0, 'e'
    FROM pg_depend AS d JOIN pg_class AS c ON c.oid = d.objid AND c.reltype <> 0
    WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e' AND NOT EXISTS (SELECT
        FROM pg_depend WHERE classid = 'pg_type'::regclass AND objid = c.reltype AND deptype = 'e')
'''
TABLE = '"Odd ""Schema"""."Odd Name"'
KEY = '"Kind" = $$a\'b$$ AND id = %s'


class Failure(Exception):
    pass


def check(holds, *what):
    if not holds:
        raise Failure(*what)


def same(found, expected, *what):
    check(found == expected, f"{found!r} in place of {expected!r}", *what)


def digest_of(path, length=None):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(MB if length is None else min(MB, length)):
            digest.update(piece)
            length = None if length is None else length - len(piece)
    return digest.hexdigest()


class Server:
    """The server, as its superuser sees it."""

    def __init__(self):
        self.drop()
        for database in ("conformance", "conformance_empty"):
            self.run("postgres", f"CREATE DATABASE {database}")
        self.run("conformance", OBJECTS, ROW_TYPES)
        for schema, traps in (("trap", TRAPS + EXACT_TRAPS), ('"Blob Ext"', TRAPS)):
            for name, arguments, result in traps:
                self.run("conformance", 'SET search_path = "Blob Ext"; SET ROLE'
                         f" conformance_stranger; CREATE FUNCTION {schema}.{name}({arguments})"
                         f" RETURNS {result} LANGUAGE sql AS 'SELECT trap.sprung(NULL::{result})'")
        for type in ("bigint", "text", "bytea"):
            self.run("conformance", "SET ROLE conformance_stranger;"
                     f" CREATE FUNCTION trap.equal({type}, {type}) RETURNS boolean LANGUAGE sql AS"
                     " 'SELECT trap.sprung(true)'; CREATE OPERATOR trap.= (FUNCTION = trap.equal,"
                     f" LEFTARG = {type}, RIGHTARG = {type})")
        self.run("conformance", TABLES)
        self.run("conformance_empty", EMPTY_OBJECTS)
        self.connection = psycopg.connect(dbname="conformance", autocommit=True)

    @staticmethod
    def run(database, *statements):
        with psycopg.connect(dbname=database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def drop(self):
        self.run("postgres", *(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)"
                               for database in ("conformance", "conformance_empty")),
                 *(f"DROP ROLE IF EXISTS {role}"
                   for role in ("conformance", "conformance_stranger")))

    def row(self, query, *parameters):
        return self.connection.execute(query, parameters or None).fetchone()

    def do(self, query, *parameters):
        self.connection.execute(query, parameters or None)

    def value(self, number):
        """Size and digest; None if there is no row."""
        row = self.row(f'SELECT "Blob Ext".length("my content"), encode("Blob Ext".sha256('
                       f'"my content"), $$hex$$) FROM {TABLE} WHERE {KEY}', number)
        return row and (row[0], row[1])

    def put(self, number, content):
        self.do(f"INSERT INTO {TABLE} VALUES (%s, $$a'b$$, %s::bytea::\"Blob Ext\".blobstate)"
                ' ON CONFLICT (id, "Kind") DO UPDATE SET "my content" = excluded."my content"',
                number, content)

    def copy(self, source, target):
        """The value of a row becomes that of another, too; no content is copied."""
        self.do(f"INSERT INTO {TABLE} SELECT %s, \"Kind\", \"my content\" FROM {TABLE} WHERE {KEY}"
                ' ON CONFLICT (id, "Kind") DO UPDATE SET "my content" = excluded."my content"',
                target, source)

    def clear(self):
        self.do(f'TRUNCATE {TABLE}, "Odd ""Schema""".blob_stage')

    def collect(self):
        """Free what earlier values have taken."""
        skipped = self.row('SELECT skipped_reason FROM "Blob Ext".blobext_gc()')[0]
        check(skipped is None, "blobext_gc()", skipped)

    def counter(self, name):
        return self.row('SELECT value FROM "Blob Ext".blobext_stat WHERE name = %s', name)[0]

    def written_bytes(self):
        return self.counter("io_write_bytes")

    def end_connections(self, least=1):
        """Returns when those of the adapter are gone."""
        count = self.row("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                         " WHERE application_name = 'conformance'")[0]
        check(count >= least, "the adapter has no connection whose application_name is conformance")
        self.wait("SELECT NOT EXISTS (SELECT FROM pg_stat_activity"
                  " WHERE application_name = 'conformance')")

    def wait_for_no_transaction(self):
        self.wait("SELECT NOT EXISTS (SELECT FROM pg_stat_activity"
                  " WHERE application_name = 'conformance' AND state <> 'idle')")

    def wait_for_counter(self, name, least):
        end = time.monotonic() + PATIENCE
        while (value := self.counter(name)) < least:
            check(time.monotonic() < end, f"{name} is {value} and does not become {least}")
            time.sleep(0.01)

    def wait(self, query):
        while not self.row(query)[0]:
            time.sleep(0.01)


class Cut:
    """A proxy to the server.  It ends one connection behind the content of an answer, before the
    message that says that this was all."""

    NO_ENCRYPTION = (80877103, 80877104)    # requests for TLS and GSSAPI

    def __init__(self):
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def environment(self):
        return {"PGHOST": "127.0.0.1", "PGPORT": str(self._listener.getsockname()[1])}

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    @staticmethod
    def _connect():
        host, port = os.environ.get("PGHOST", "/tmp"), os.environ.get("PGPORT", "5432")
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _serve(self, client):
        server = self._connect()
        with contextlib.suppress(OSError, EOFError):
            while True:
                start = self._take(client, 8)
                if struct.unpack("!II", start)[1] not in self.NO_ENCRYPTION:
                    break
                client.sendall(b"N")
            server.sendall(start)
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            self._answer(server, client)
        for end in (server, client):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _take(source, count):
        taken = b""
        while len(taken) < count:
            piece = source.recv(count - len(taken))
            if not piece:
                raise EOFError
            taken += piece
        return taken

    @staticmethod
    def _forward(client, server):
        with contextlib.suppress(OSError):
            while piece := client.recv(65536):
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server, client):
        has_content = False
        while True:
            start = self._take(server, 5)
            length = struct.unpack("!I", start[1:])[0] - 4
            if has_content and start[:1] in b"Cc" and self.cuts == 0:
                self.cuts = 1
                return
            has_content |= start[:1] in b"Dd" and length > 100_000
            client.sendall(start + self._take(server, length))


class Adapter:
    def __init__(self, command, log, **environment):
        self._log = log
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            env={**os.environ, "PGUSER": "conformance", "PGDATABASE": "conformance",
                 "PGAPPNAME": "conformance", **environment})

    def send(self, *fields):
        self.process.stdin.write(("\t".join(map(str, fields)) + "\n").encode())
        self.process.stdin.flush()

    def answer(self):
        ready = select.select([self.process.stdout], [], [], MAX_ANSWER_SECONDS)[0]
        check(ready, f"the adapter has said nothing for {MAX_ANSWER_SECONDS} s")
        line = self.process.stdout.readline()
        check(line.endswith(b"\n"), f"the adapter has ended; status {self.process.poll()}")
        return line[:-1].decode().split("\t")

    def ask(self, *fields):
        self.send(*fields)
        return self.answer()

    def ok(self, *fields):
        """What the adapter answers after "ok"."""
        return self.end_ok(self.ask(*fields), *fields)

    @staticmethod
    def end_ok(answer, *fields):
        check(answer[0] == "ok", *fields, *answer)
        return tuple(int(field) if field.isdecimal() and len(field) < 64 else field
                     for field in answer[1:])

    def fails(self, kind, *fields, sqlstate=None, text=""):
        self.is_error(self.ask(*fields), kind, sqlstate, text, fields)

    @staticmethod
    def is_error(answer, kind, sqlstate=None, text="", fields=()):
        check(answer[:2] == ["error", kind] and len(answer) == 4
              and answer[2] == (sqlstate or answer[2]) and text in answer[3],
              f"{answer!r} in place of error {kind} {sqlstate or ''} {text}", *fields)

    def pause(self, *fields):
        same(self.ask(*fields), ["paused"], *fields)

    def go(self):
        return self.ask("go")

    def close(self):
        self.process.stdin.close()
        same(self.process.wait(), 0, "status of the adapter")
        self.process.stdout.close()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def forget_peak(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def processor_seconds(self):
        """Of the client alone."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_kb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))


class Cases:
    """A case is a method whose name begins with case_."""

    def __init__(self, command, directory, large):
        self.command = command
        self.large = large
        self.directory = directory
        self.log = open(os.path.join(directory, "log"), "w+b")
        self.server = Server()
        self.files = {}

    def path(self, name):
        return os.path.join(self.directory, name)

    def file(self, size, kind="a"):
        """A file of random bytes: path, and what the answers say of it."""
        path = self.path(f"{kind}{size}")
        if path not in self.files:
            with open(path, "wb") as file:
                for start in range(0, size, MB):
                    file.write(os.urandom(min(MB, size - start)))
            self.files[path] = (size, digest_of(path))
        return path, self.files[path]

    @contextlib.contextmanager
    def adapter(self, command=None, **environment):
        adapter = Adapter(command or self.command, self.log, **environment)
        try:
            yield adapter
            adapter.close()
        finally:
            adapter.kill()

    def download(self, adapter, number, expected):
        path = self.path("copy")
        same(adapter.ok("download", number, path, "-"), expected)
        same((os.path.getsize(path), digest_of(path)), expected)
        os.unlink(path)

    def partial(self):
        """The file that a download has begun; some clients give it another name meanwhile."""
        paths = [path for path in (self.path("copy"), self.path("copy.part"))
                 if os.path.exists(path)]
        return paths[0] if paths else None

    def case_sizes(self):
        with self.adapter() as adapter:
            for size in (0, 1, 8 * MB - 1, self.large):
                path, expected = self.file(size)
                for number, command in ((1, ("write", 1, path, "-")),
                                        (2, ("upload", 2, path, "-", "-"))):
                    same(adapter.ok(*command), expected)
                    same(self.server.value(number), expected)
                    same(adapter.ok("stat", number), expected)
                self.download(adapter, 2, expected)

    def case_seek(self):
        path, (size, _) = self.file(8 * MB - 1)
        with open(path, "rb") as file:
            data = file.read()
        self.server.put(1, data)

        def reads(position, length):
            piece = data[position:position + length]
            same(adapter.ok("next", length), (len(piece), hashlib.sha256(piece).hexdigest()))

        with self.adapter() as adapter:
            same(adapter.ok("open", 1), (size,))
            reads(0, 10)
            for offset, whence, position in ((-5, "end", size - 5), (100, "start", 100),
                                             (7, "current", 108), (-100, "current", 9),
                                             (size, "start", size), (0, "end", size),
                                             (10, "end", size + 10), (2 ** 40, "start", 2 ** 40)):
                same(adapter.ok("seek", offset, whence), (position,))
                reads(position, 1)
                same(adapter.ok("seek", 0, "current"), (position + (position < size),))
            adapter.ok("seek", 3 * MB - 1, "start")
            reads(3 * MB - 1, 2 * MB + 2)
            reads(5 * MB + 1, 100)
            for offset, whence in ((-1, "start"), (-size - 1, "end"), (-6 * MB, "current")):
                adapter.fails("position", "seek", offset, whence)
                same(adapter.ok("seek", 0, "current"), (5 * MB + 101,))
            reads(5 * MB + 101, size)
            reads(size, 10)
            adapter.ok("close")

    def case_range(self):
        path, (size, _) = self.file(8 * MB - 1)
        with open(path, "rb") as file:
            data = file.read()
        self.server.put(1, data)
        self.server.put(2, b"")
        with self.adapter() as adapter:
            for offset, length in ((0, 0), (0, 1), (5, 100), (0, size), (size - 3, 3),
                                   (size - 3, 100), (size, 5), (size + 7, 5), (2 ** 40, 5),
                                   (3 * MB - 1, 4 * MB), (10, 2 ** 40), (1, 2 ** 63 - 1)):
                piece = data[offset:offset + length]
                same(adapter.ok("range", 1, offset, length),
                     (len(piece), hashlib.sha256(piece).hexdigest()), offset, length)
            same(adapter.ok("range", 2, 0, 10), (0, EMPTY))
            before = self.server.counter("content_read_bytes")
            adapter.ok("range", 1, 4 * MB, 100)
            read = self.server.counter("content_read_bytes") - before
            check(100 <= read <= MB, f"{read} bytes were read for 100")
            adapter.fails("position", "range", 1, -1, 5)
            adapter.fails("position", "range", 1, 0, -1)

    def case_ahead(self):
        """Just before and behind each end of a piece, too, whose size is the client's matter."""
        path, _ = self.file(self.large)
        with self.adapter() as adapter:
            adapter.ok("write", 1, path, "-")
            before = self.server.counter("content_read_bytes")
            adapter.ok("open", 1)
            adapter.ok("next", 16 * MB)
            for done in range(16 * MB, 24 * MB, 64 * 1024):
                self.server.wait_for_counter("content_read_bytes", before + done + 256 * 1024)
                adapter.ok("next", 64 * 1024)
            adapter.ok("close")

    def case_ahead_download(self):
        path, expected = self.file(self.large)
        with self.adapter() as adapter:
            adapter.ok("write", 1, path, "-")
            before = self.server.counter("content_read_bytes")
            adapter.pause("download", 1, self.path("copy"), 16 * MB)
            self.server.wait_for_counter("content_read_bytes", before + 16 * MB + 256 * 1024)
            same(adapter.end_ok(adapter.go()), expected)

    def case_missing(self):
        self.server.put(1, None)
        with self.adapter() as adapter:
            for number in (1, 2):
                adapter.fails("missing", "stat", number)
                adapter.fails("missing", "open", number)
                adapter.fails("missing", "range", number, 0, 1)
                adapter.fails("missing", "download", number, self.path("copy"), "-")
                check(not os.path.exists(self.path("copy")), "a file of no value")
            path, expected = self.file(1)
            same(adapter.ok("write", 1, path, "-"), expected)
            same(self.server.value(1), expected)

    def case_killed_download(self):
        path, expected = self.file(self.large)
        with self.adapter() as adapter:
            adapter.ok("write", 1, path, "-")
            before = self.server.counter("content_read_bytes")
            adapter.pause("download", 1, self.path("copy"), self.large // 2)
            self.server.end_connections()
            same(adapter.end_ok(adapter.go()), expected)
            read = self.server.counter("content_read_bytes") - before
            same(digest_of(self.path("copy")), expected[1])
            check(read <= self.large * 5 // 4, f"{read} bytes were read for {self.large}")
            # Between two commands, too, if the client keeps a connection.
            adapter.ok("stat", 1)
            self.server.end_connections(least=0)
            same(adapter.ok("stat", 1), expected)

    def case_cut_answer(self):
        path, expected = self.file(9 * MB)
        cut = Cut()
        with self.adapter() as adapter:
            adapter.ok("write", 1, path, "-")
        with contextlib.closing(cut), self.adapter(**cut.environment()) as adapter:
            self.download(adapter, 1, expected)
            same(cut.cuts, 1, "connections that were cut")

    def case_killed_write(self):
        old, new = self.file(1), self.file(self.large)
        with self.adapter() as adapter:
            adapter.ok("write", 1, old[0], "-")
            adapter.pause("write", 1, new[0], self.large // 2)
            self.server.end_connections()
            answer = adapter.go()
            if answer[0] == "ok":
                same(adapter.end_ok(answer), new[1])
                same(self.server.value(1), new[1])
            else:
                adapter.is_error(answer, "lost")
                same(self.server.value(1), old[1])
            same(adapter.ok("write", 1, new[0], "-"), new[1])

    def case_killed_upload(self):
        path, expected = self.file(self.large)
        with self.adapter() as adapter:
            adapter.pause("upload", 1, path, "-", self.large // 2)
            self.server.end_connections()
            same(adapter.end_ok(adapter.go()), expected)
            same(self.server.value(1), expected)
            before = self.server.written_bytes()
            adapter.pause("upload", 2, path, "stage", self.large * 2 // 3)
            self.server.end_connections()
            same(adapter.end_ok(adapter.go()), expected)
            self.check_stage(2, expected, before)

    def check_stage(self, number, expected, before):
        same(self.server.value(number), expected)
        same(self.server.row('SELECT count(*) FROM "Odd ""Schema""".blob_stage'), (0,), "stages")
        written = self.server.written_bytes() - before
        sent = self.large * 2 // 3
        kept = sent // SECTION * SECTION
        check(written <= sent + self.large - kept // 2,
              f"{written} bytes were written for {self.large}, {sent} of them before")

    def case_killed_client(self):
        path, expected = self.file(self.large)
        before = self.server.written_bytes()
        with contextlib.suppress(BrokenPipeError), self.adapter() as adapter:
            adapter.pause("upload", 1, path, "stage", self.large * 2 // 3)
            adapter.process.send_signal(signal.SIGKILL)
            adapter.process.wait()
            adapter.close = lambda: None
        with self.adapter() as adapter:
            same(adapter.ok("upload", 1, path, "stage", "-"), expected)
        self.check_stage(1, expected, before)

    def case_foreign_stage(self):
        path, _ = self.file(8 * MB - 1)
        self.server.do('INSERT INTO "Odd ""Schema""".blob_stage VALUES ($$stage$$, $$other$$)')
        with self.adapter() as adapter:
            adapter.fails("mismatch", "upload", 1, path, "stage", "-")
        same(self.server.value(1), None)
        same(self.server.row('SELECT "Blob Ext".length(content) FROM "Odd ""Schema""".blob_stage'),
             (5,))

    def case_changed(self):
        a, b = self.file(self.large), self.file(self.large, "b")
        with self.adapter() as adapter:
            adapter.ok("write", 1, a[0], "-")
            adapter.ok("write", 2, b[0], "-")
            for change in (lambda: self.server.copy(2, 3),
                           lambda: self.server.do(f"DELETE FROM {TABLE} WHERE {KEY}", 3)):
                self.server.copy(1, 3)
                adapter.pause("download", 3, self.path("copy"), self.large // 2)
                change()
                adapter.is_error(adapter.go(), "changed")
                partial = self.partial()
                if partial is not None:
                    size = os.path.getsize(partial)
                    check(size < self.large, "the download is complete")
                    same(digest_of(partial), digest_of(a[0], size), "a mixture")
                    os.unlink(partial)
            self.server.copy(1, 3)
            adapter.ok("open", 3)
            self.server.copy(2, 3)
            adapter.ok("seek", self.large - 100, "start")
            adapter.fails("changed", "next", 100)
            adapter.ok("close")

    def case_cancel(self):
        old, new = self.file(1), self.file(self.large)
        with self.adapter() as adapter:
            adapter.ok("write", 1, old[0], "-")
            adapter.ok("write", 2, new[0], "-")
            for command in (("write", 1, new[0], self.large // 2),
                            ("upload", 1, new[0], "-", self.large // 2),
                            ("download", 2, self.path("copy"), self.large // 2)):
                adapter.pause(*command)
                adapter.is_error(adapter.ask("cancel"), "cancelled", fields=command)
                self.server.wait_for_no_transaction()
                same(self.server.value(1), old[1])
                same(adapter.ok("stat", 1), old[1])

    def case_privileges(self):
        path, expected = self.file(1)
        denied = {"sqlstate": "42501", "text": "permission denied for table Odd Name"}
        with self.adapter() as adapter:
            adapter.ok("write", 1, path, "-")
        with self.adapter(PGUSER="conformance_stranger") as adapter:
            for command in (("stat", 1), ("open", 1), ("range", 1, 0, 1),
                            ("download", 1, self.path("copy"), "-"), ("write", 1, path, "-"),
                            ("upload", 1, path, "-", "-")):
                adapter.fails("server", *command, **denied)
            self.server.do(f"GRANT SELECT ON {TABLE} TO conformance_stranger")
            try:
                self.download(adapter, 1, expected)
                for number in (1, 2):
                    adapter.fails("server", "write", number, path, "-", **denied)
                    adapter.fails("server", "upload", number, path, "-", "-", **denied)
            finally:
                self.server.do(f"REVOKE SELECT ON {TABLE} FROM conformance_stranger")
            adapter.fails("server", "upload", 1, path, "stage", "-", sqlstate="42501",
                          text="permission denied for table blob_stage")
        same(self.server.value(1), expected)

    def case_constraint(self):
        old, new = self.file(1), self.file(8 * MB - 1)
        with self.adapter() as adapter:
            adapter.ok("write", 1, old[0], "-")
            self.server.do("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
                           " RAISE EXCEPTION 'no: %%', NEW.id USING ERRCODE = 'CF042'; END$$"
                           .replace("%%", "%"))
            self.server.do(f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {TABLE}"
                           " FOR EACH ROW EXECUTE FUNCTION refuse()")
            try:
                for number in (1, 2):
                    for command in (("write", number, new[0], "-"),
                                    ("upload", number, new[0], "-", "-"),
                                    ("upload", number, new[0], "stage", "-")):
                        adapter.fails("server", *command, sqlstate="CF042", text=f"no: {number}")
                        self.server.wait_for_no_transaction()
            finally:
                self.server.do("DROP FUNCTION refuse CASCADE")
            same(self.server.value(1), old[1])
            same(self.server.value(2), None)
            # The stage has the content yet.
            same(adapter.ok("upload", 1, new[0], "stage", "-"), new[1])

    def case_strangers(self):
        """That the traps of all cases work."""
        with psycopg.connect(dbname="conformance", user="conformance") as connection:
            for query in ("SELECT 1::int8 = 1::int8", "SELECT blob_upload_begin(1::int8)",
                          f'SELECT length("my content") FROM {TABLE}'):
                self.server.put(1, b"a")
                try:
                    connection.execute(query)
                except psycopg.Error as error:
                    same(error.sqlstate, "TR000", query)
                else:
                    raise Failure(f"no trap for {query}")
                connection.rollback()

    def case_no_extension(self):
        path, _ = self.file(1)
        with self.adapter(PGDATABASE="conformance_empty") as adapter:
            for command in (("stat", 1), ("open", 1), ("range", 1, 0, 1),
                            ("download", 1, self.path("copy"), "-"), ("write", 1, path, "-"),
                            ("upload", 1, path, "-", "-")):
                adapter.fails("unexpected", *command)

    def warm(self, size):
        """Has memory for a file of this size.  Where a virtual machine gives free memory back, the
        first use of it is slow, and counts as the processor's time of the client that writes."""
        with open(self.path("warm"), "wb", buffering=0) as file:
            for _ in range(0, size, MB):
                file.write(bytes(MB))
        os.unlink(self.path("warm"))

    def huge(self, size, other, turns):
        """Memory, and rates beside another adapter's, in alternation."""
        path, expected = self.file(size)
        commands = (("write", 1, path, "-"), ("upload", 1, path, "-", "-"),
                    ("upload", 1, path, "stage", "-"), ("download", 1, self.path("copy"), "-"))
        rates = {}
        with self.adapter() as adapter, contextlib.ExitStack() as stack:
            adapters = [adapter]
            if other is not None:
                adapters.append(stack.enter_context(self.adapter(other)))
            adapter.ok("write", 1, self.file(1)[0], "-")
            for _ in range(turns):
                for command in commands:
                    for each in adapters:
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(self.path("copy"))
                        if command[0] == "download":
                            self.warm(size)
                        each.forget_peak()
                        before, started = each.processor_seconds(), time.monotonic()
                        same(each.ok(*command), expected)
                        rate = size / MB / (time.monotonic() - started)
                        peak = each.peak_kb()
                        seconds = each.processor_seconds() - before
                        name = " ".join(str(field) for field in command if field in
                                        ("write", "upload", "stage", "download"))
                        rates.setdefault((name, each is adapter), []).append(rate)
                        print(f"# {name}: {rate:.0f} MB/s, {seconds:.1f} s of the processor,"
                              f" {peak / 1024:.0f} MB resident"
                              + ("" if each is adapter else " (the other)"), flush=True)
                        if each is adapter:
                            check(peak < MAX_RESIDENT_KB, name, f"{peak} kB resident")
                        if command[0] == "download":
                            same(digest_of(self.path("copy")), expected[1])
                            os.unlink(self.path("copy"))
                        self.server.collect()
        if other is not None:
            for name in dict.fromkeys(name for name, _ in rates):
                # Of turns: other work on the machine changes both rates of one.
                ratio = statistics.median(map(operator.truediv, rates[name, True],
                                              rates[name, False]))
                print(f"# {name}: {ratio:.2f} of the other's rate", flush=True)
                check(ratio >= LEAST_RATE, name, f"{ratio:.2f} of the other's rate")

    def run(self, name, case, *arguments):
        started = time.monotonic()
        self.server.clear()
        self.server.collect()
        self.log.truncate(0)
        for path in (self.path("copy"), self.path("copy.part")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        try:
            case(*arguments)
        except Exception as error:
            if isinstance(error, Failure):
                line = traceback.extract_tb(error.__traceback__)[1].lineno
                print(f"not ok {name}: line {line}: {'; '.join(map(str, error.args))}")
            else:
                traceback.print_exc(file=sys.stdout)
                print(f"not ok {name}")
            self.log.seek(0)
            print(self.log.read().decode(errors="replace"), flush=True)
            return False
        print(f"ok {name} ({time.monotonic() - started:.1f} s)", flush=True)
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--ahead", choices=("download", "all"))
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--large", type=int, metavar="MEGABYTES")
    parser.add_argument("--compare")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("the command of an adapter is missing")
    if arguments.megabytes * 2 // 3 <= SECTION // MB:
        parser.error("the large value must have more than one section at its second third")
    with tempfile.TemporaryDirectory() as directory:
        cases = Cases(arguments.command, directory, arguments.megabytes * MB)
        names = [name.removeprefix("case_") for name in vars(Cases) if name.startswith("case_")]
        if arguments.ahead != "all":
            names.remove("ahead")
        if arguments.ahead is None:
            names.remove("ahead_download")
        unknown = set(arguments.case).difference(names)
        if unknown:
            parser.error(f"no case {', '.join(unknown)}; there are: {', '.join(names)}")
        results = [cases.run(name, getattr(cases, f"case_{name}")) for name in names
                   if (name in arguments.case if arguments.case else arguments.large is None)]
        if arguments.large is not None:
            other = arguments.compare.split() if arguments.compare else None
            results.append(cases.run("large", cases.huge, arguments.large * MB,
                                     other, arguments.turns))
        cases.server.connection.close()
        cases.server.drop()
    print(f"# conformance: {results.count(True)} of {len(results)} cases passed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
