"""The example dump_large.py: tables of several kinds, odd names, functions of strangers, while
others write and the collector runs.  Seen to fail: without the casts of content(), and of positions
and lengths (a function of a stranger runs), without escaped() (the table with per cent signs).

Connection parameters come from the environment.  BLOBEXT_TEST_LARGE=1: with values of 1.5 GB.
"""

import json
import os
import resource
import sys
import tempfile
import threading
import unittest

import psycopg

sys.path.insert(0, os.environ["BLOBEXT_EXAMPLES"])
import dump_large  # noqa: E402

IS_LARGE = bool(os.environ.get("BLOBEXT_TEST_LARGE"))
MB = 1500 if IS_LARGE else 9
LIMIT = 100_000_000 if IS_LARGE else 1_000_000

SCHEMA = """
CREATE SCHEMA "Odd one";
CREATE EXTENSION blobext SCHEMA "Odd one";
SET search_path = public, "Odd one";
CREATE FUNCTION bytes(seed int, mb int) RETURNS blobstate LANGUAGE sql
    SET search_path = public, "Odd one" AS $$
    SELECT blob_agg(decode(repeat(md5(seed || '.' || i), 65536), 'hex') ORDER BY i)
    FROM generate_series(1, mb) AS i $$;
CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, b blobstate NOT NULL UNIQUE,
    size bigint GENERATED ALWAYS AS (length(b)) STORED, CHECK (length(b) > 3));
CREATE DOMAIN image AS blobstate;
CREATE TABLE "Odd one"."od""d" ("a'b" image, gone int, note text, c blobstate);
ALTER TABLE "Odd one"."od""d" DROP COLUMN gone;
CREATE TABLE parted (id int, b blobstate, PRIMARY KEY (id)) PARTITION BY HASH (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE parent (id int, b blobstate);
CREATE TABLE child (more text) INHERITS (parent);
CREATE TABLE small (id int, b blobstate);
CREATE TABLE refers (id bigint REFERENCES plain);
CREATE TABLE counted (n int);
CREATE FUNCTION count_rows() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO public.counted VALUES (1); RETURN NEW; END $$;
CREATE TABLE "per%cent %s (x)" ("%(a)s" blobstate);
-- Functions of a stranger beside the extension's, which the domain and short numbers match better.
CREATE FUNCTION public.stranger() RETURNS bigint LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'a function of a stranger runs'; END $$;
CREATE FUNCTION "Odd one".length(image) RETURNS bigint LANGUAGE sql RETURN public.stranger();
CREATE FUNCTION "Odd one".sha256(image) RETURNS bytea LANGUAGE sql
    RETURN public.stranger()::text::bytea;
CREATE FUNCTION "Odd one".blob_read(image, bigint, bigint) RETURNS bytea LANGUAGE sql
    RETURN public.stranger()::text::bytea;
CREATE FUNCTION "Odd one".blob_read(blobstate, int, int) RETURNS bytea LANGUAGE sql
    RETURN public.stranger()::text::bytea;
CREATE FUNCTION "Odd one".blob_read(blobstate, smallint, int) RETURNS bytea LANGUAGE sql
    RETURN public.stranger()::text::bytea;
CREATE FUNCTION "Odd one".blob_append(image, bytea) RETURNS blobstate LANGUAGE sql
    RETURN public.stranger()::text::bytea::blobstate;
CREATE TRIGGER t AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION count_rows();
"""

FILL = """
SET search_path = public, "Odd one";
INSERT INTO plain (b) SELECT bytes(i, CASE i WHEN 7 THEN {mb} WHEN 9 THEN 3 * {lim} ELSE 0 END)
    || convert_to(repeat('x', i * 500), 'UTF8') FROM generate_series(1, 20) AS i WHERE i IN (7, 9);
INSERT INTO plain (b) SELECT convert_to(repeat(md5(i::text), i), 'UTF8')
    FROM generate_series(1, 50) AS i;
INSERT INTO "Odd one"."od""d" VALUES (NULL, E'tab\\tand\\nline\\\\', bytes(3, 2 * {lim})),
    (bytes(4, 2 * {lim}), NULL, bytes(5, 3 * {lim})), ('', '', ''), (NULL, '\\N', NULL);
INSERT INTO parted SELECT i, bytes(i, CASE WHEN i IN (1, 8) THEN 2 * {lim} END)
    FROM generate_series(1, 9) AS i;
INSERT INTO "per%cent %s (x)" VALUES (bytes(70, 2 * {lim}));
INSERT INTO parent VALUES (1, bytes(60, 2 * {lim})), (2, 'of parent');
INSERT INTO child VALUES (3, bytes(61, 2 * {lim}), 'more'), (4, 'of child', NULL);
INSERT INTO small SELECT i, convert_to(repeat(md5(i::text), 100), 'UTF8')
    FROM generate_series(1, 50) AS i;
INSERT INTO refers SELECT id FROM plain WHERE id % 2 = 0;
"""

ROWS = {
    "plain": "id, size, encode(sha256(b), 'hex')",
    '"Odd one"."od""d"': "note, encode(sha256(\"a'b\"::blobstate), 'hex'),"
                         " encode(sha256(c), 'hex')",
    '"per%cent %s (x)"': "length(\"%(a)s\"), encode(sha256(\"%(a)s\"), 'hex')",
    "parted": "tableoid::regclass::text, id, encode(sha256(b), 'hex')",
    "parent": "tableoid::regclass::text, id, encode(sha256(b), 'hex')",
    "child": "id, more, encode(sha256(b), 'hex')",
    "small": "id, encode(sha256(b), 'hex')",
    "refers": "id",
    "counted": "n",
}


def connect(database):
    connection = psycopg.connect(dbname=database, autocommit=True)
    connection.execute('SET search_path = public, "Odd one"')
    return connection


def rows_of(connection):
    return {table: connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2"
                                      if "," in columns else
                                      f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()
            for table, columns in ROWS.items()}


class DumpLargeTest(unittest.TestCase):
    def setUp(self):
        self.admin = psycopg.connect(autocommit=True)
        self.addCleanup(self.admin.close)
        for database in ("original", "restored"):
            self.admin.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
            self.admin.execute(f"CREATE DATABASE {database} TEMPLATE template0")
        with psycopg.connect(dbname="original", autocommit=True) as connection:
            connection.execute(SCHEMA)
            connection.execute(FILL.format(mb=MB, lim=LIMIT // 1_000_000))
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = os.path.join(temporary.name, "dump")

    def dump(self):
        return dump_large.dump("dbname=original", self.directory, LIMIT, 2)

    def restore(self):
        return dump_large.restore("dbname=restored", self.directory, 2)

    def check_restored(self, expected):
        with connect("restored") as connection:
            self.assertEqual(rows_of(connection), expected)
            self.assertEqual(connection.execute("SELECT * FROM blobext_check()").fetchall(), [])
            self.assertEqual(connection.execute(
                "SELECT count(*) FROM plain WHERE encode(sha256(b), 'hex') <> encode(sha256("
                "(SELECT blob_agg(data ORDER BY chunk_no) FROM blob_chunks(b))), 'hex')"
                " OR blob_storage(b) <> CASE WHEN length(b) > 1900 THEN 'extents' ELSE 'inline' END"
            ).fetchone(), (0,))
            # Constraints, the identity and the trigger are there.
            with self.assertRaises(psycopg.errors.UniqueViolation):
                connection.execute("INSERT INTO plain (b) SELECT b FROM plain WHERE id = 2")
            new = connection.execute("INSERT INTO plain (b) VALUES ('new one')"
                                     " RETURNING id").fetchone()
            self.assertGreater(new[0], max(row[0] for row in expected["plain"]))
            self.assertEqual(connection.execute("SELECT count(*) FROM counted").fetchone()[0],
                             len(expected["counted"]) + 1)

    def test_round_trip(self):
        """A database that is dumped and restored has the same rows."""
        with connect("original") as connection:
            expected = rows_of(connection)
        self.assertEqual(self.dump(), 10)
        self.assertEqual(self.restore(), 10)
        self.check_restored(expected)
        if IS_LARGE:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(f"\nmemory of the client: {peak // 1024} MB")
            self.assertLess(peak, 400 * 1024)
            with self.assertRaises(dump_large.subprocess.CalledProcessError):
                dump_large.subprocess.run(["pg_dump", "-f", os.devnull, "original"], check=True)

    @unittest.skipIf(IS_LARGE, "small is enough")
    def test_while_others_write(self):
        """One snapshot for all: each transaction moves a value from a table to another."""
        stop = threading.Event()
        with connect("original") as connection:
            connection.execute("CREATE TABLE here (id int, b blobstate);"
                               " CREATE TABLE there (LIKE here)")
            connection.execute("INSERT INTO here SELECT i, bytes(i, 2)"
                               " FROM generate_series(1, 6) AS i")

        def move():
            with connect("original") as other:
                other.execute("SET client_min_messages = error;"
                              " SET blobext.gc_wait_timeout = '10ms'")
                while not stop.is_set():
                    other.execute("WITH m AS (DELETE FROM here RETURNING *)"
                                  " INSERT INTO there SELECT * FROM m")
                    other.execute("WITH m AS (DELETE FROM there RETURNING *)"
                                  " INSERT INTO here"
                                  " SELECT id, blob_append(b, 'y') FROM m WHERE id < 4 UNION ALL"
                                  " SELECT id, bytes(id, 2) FROM m WHERE id >= 4")
                    other.execute("VACUUM here, there")
                    other.execute("SELECT * FROM blobext_gc()")
                    other.execute("CHECKPOINT")

        mover = threading.Thread(target=move)
        mover.start()
        try:
            self.dump()
        finally:
            stop.set()
            mover.join()
        self.restore()
        with connect("restored") as connection:
            self.assertEqual(connection.execute(
                "SELECT id, count(*) FROM (TABLE here UNION ALL TABLE there) AS s GROUP BY id"
                " ORDER BY id").fetchall(), [(i, 1) for i in range(1, 7)])
            self.assertEqual(connection.execute("SELECT * FROM blobext_check()").fetchall(), [])

    @unittest.skipIf(IS_LARGE, "small is enough")
    def test_damaged_file(self):
        """A file of the dump that was damaged is not restored."""
        self.dump()
        with open(os.path.join(self.directory, "large.json"), encoding="utf-8") as file:
            value = json.load(file)[0]["rows"][0]["values"][0]
        with open(os.path.join(self.directory, "large", value["file"]), "r+b") as file:
            file.seek(value["size"] // 2)
            file.write(b"?")
        with self.assertRaisesRegex(dump_large.DumpError, "is not what was dumped"):
            self.restore()


if __name__ == "__main__":
    unittest.main()
