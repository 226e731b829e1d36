"""psycopg 3 with plain bytes: parameters, results, prepared statements, COPY, pipelines.

No adapter is registered: blobstate must take and give bytes as bytea does.  Connection parameters
come from the environment.
"""

import hashlib
import random
import unittest

import psycopg
from psycopg import sql
from psycopg.types.composite import CompositeInfo, register_composite

SIZES = [0, 1, 255, 1899, 1900, 1901, 4095, 4096, 4097, 65536, 65537, 300_001, 5_000_000]

# psycopg 3.1.7, which Debian 12 has, waits forever in a pipeline (executemany() uses one) when the
# socket takes no more, whatever the type: it does not wait until it can write.  These fit into
# the buffer of a socket together.
PIPELINE_SIZES = [size for size in SIZES if size <= 10_000]


def content(size, seed=0):
    return random.Random(size * 1000 + seed).randbytes(size)


class PsycopgTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with psycopg.connect(autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS blobext")

    def setUp(self):
        self.connection = psycopg.connect()
        self.addCleanup(self.connection.close)
        self.execute("CREATE TEMP TABLE t (id int PRIMARY KEY, b blobstate, o bytea)")

    def execute(self, query, parameters=None, **options):
        return self.connection.execute(query, parameters, **options)

    def one(self, query, parameters=None, **options):
        return self.execute(query, parameters, **options).fetchone()

    def check_rows(self, sizes=SIZES):
        """Each row of t holds content(sizes[id], id); sent as text and as binary."""
        for binary in (False, True):
            rows = self.execute("SELECT id, b, sha256(b), length(b), blob_storage(b) FROM t"
                                " ORDER BY id", binary=binary).fetchall()
            self.assertEqual([row[0] for row in rows], list(range(len(sizes))))
            for (row_id, value, digest, length, storage), size in zip(rows, sizes):
                expected = content(size, row_id)
                self.assertIsInstance(value, bytes)     # the client is told bytea
                self.assertEqual(value, expected)
                self.assertEqual(digest, hashlib.sha256(expected).digest())
                self.assertEqual(length, size)
                self.assertEqual(storage, "extents" if size > 1900 else "inline")

    def test_parameters(self):
        """Plain bytes, as they are."""
        for row_id, size in enumerate(SIZES):
            self.execute("INSERT INTO t (id, b) VALUES (%s, %s)", (row_id, content(size, row_id)))
        self.check_rows()

    def test_binary_and_text_parameters(self):
        for row_id, size in enumerate(SIZES):
            placeholder = ("%b", "%t", "%s")[row_id % 3]
            self.execute(f"INSERT INTO t (id, b) VALUES (%s, {placeholder})",
                         (row_id, content(size, row_id)))
        self.check_rows()

    def test_other_buffers(self):
        """Any kind of buffer is stored as bytes."""
        for row_id, wrapper in enumerate((bytes, bytearray, memoryview)):
            self.execute("INSERT INTO t (id, b) VALUES (%s, %s)",
                         (row_id, wrapper(content(2000 + row_id, row_id))))
        self.check_rows([2000, 2001, 2002])

    def test_explicit_cast(self):
        """A parameter with a cast to blobstate is stored."""
        for row_id, size in enumerate(SIZES):
            self.execute("INSERT INTO t (id, b) VALUES (%s, %s::blobstate)",
                         (row_id, content(size, row_id)))
        self.check_rows()

    def test_beside_values_of_the_column(self):
        """A parameter of type bytea and a blobstate have a common type.

        Seen to fail with an explicit cast: COALESCE could not convert type bytea to blobstate.
        """
        stored, other = content(70_000, 0), content(70_000, 1)
        self.execute("INSERT INTO t VALUES (0, %s, %s), (1, NULL, %s)", (stored, other, other))
        smaller, larger = sorted((stored, other))
        for query, expected in {
                "SELECT COALESCE(b, {}) FROM t": [stored, other],
                "SELECT COALESCE({}, b) FROM t": [other, other],
                "SELECT CASE WHEN id = 0 THEN b ELSE {} END FROM t": [stored, other],
                "SELECT CASE WHEN id = 1 THEN {} ELSE b END FROM t": [stored, other],
                "SELECT GREATEST(b, {}) FROM t": [larger, other],
                "SELECT LEAST({}, b) FROM t": [smaller, other],
                "SELECT (ARRAY[{}, b])[1] FROM t": [other, other],
                "SELECT (ARRAY[b, {}])[1] FROM t": [stored, None],
                "SELECT b FROM t WHERE id = 0 UNION ALL SELECT {}": [stored, other],
                "SELECT {} UNION ALL SELECT b FROM t WHERE id = 0": [other, stored],
                "SELECT x FROM t, LATERAL (VALUES ({}), (b)) AS v (x) WHERE id = 0":
                    [other, stored],
                "UPDATE t SET b = COALESCE(b, {}) RETURNING b": [stored, other],
                "SELECT b FROM t WHERE b NOT IN (o, {})": [stored]}.items():
            for placeholder in ("%b", "%t"):
                for prepare in (False, True):
                    with self.subTest(query, placeholder=placeholder, prepare=prepare):
                        self.execute("SAVEPOINT before")
                        rows = self.execute(query.format(placeholder), (other,), binary=True,
                                            prepare=prepare).fetchall()
                        self.assertEqual([row[0] for row in rows], expected)
                        self.execute("ROLLBACK TO before")

    def test_null(self):
        """NULL is stored and read as None."""
        self.execute("INSERT INTO t (id, b) VALUES (1, %s)", (None,))
        self.assertEqual(self.one("SELECT b, length(b) FROM t", binary=True), (None, None))

    def test_server_side_prepare(self):
        """The same statement, prepared by the server, executed with many values."""
        for row_id, size in enumerate(SIZES):
            self.execute("INSERT INTO t (id, b) VALUES (%s, %s)", (row_id, content(size, row_id)),
                         prepare=True)
        self.assertGreater(self.one("SELECT count(*) FROM pg_prepared_statements")[0], 0)
        self.check_rows()

    def test_executemany(self):
        """executemany() stores each of its rows."""
        with self.connection.cursor() as cursor:
            cursor.executemany("INSERT INTO t (id, b) VALUES (%s, %s)",
                               [(i, content(size, i)) for i, size in enumerate(PIPELINE_SIZES)])
        self.check_rows(PIPELINE_SIZES)

    def test_pipeline(self):
        """Statements in a pipeline store and return their rows."""
        with self.connection.pipeline():
            cursors = [self.execute("INSERT INTO t (id, b) VALUES (%s, %s) RETURNING length(b)",
                                    (i, content(size, i))) for i, size in enumerate(PIPELINE_SIZES)]
            self.assertEqual([cursor.fetchone()[0] for cursor in cursors], PIPELINE_SIZES)
        self.check_rows(PIPELINE_SIZES)

    def test_update_and_compare_digest(self):
        self.execute("INSERT INTO t (id, b) VALUES (0, %s)", (content(3000, 0),))
        self.execute("UPDATE t SET b = %s WHERE sha256(b) = %s",
                     (content(70_000, 0), hashlib.sha256(content(3000, 0)).digest()))
        self.check_rows([70_000])

    def test_copy_binary(self):
        """Binary COPY stores and reads all sizes."""
        with self.connection.cursor() as cursor:
            with cursor.copy("COPY t (id, b) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["int4", "bytea"])
                for i, size in enumerate(SIZES):
                    copy.write_row((i, content(size, i)))
        self.check_rows()
        with self.connection.cursor() as cursor:
            query = "COPY (SELECT id, b FROM t ORDER BY id) TO STDOUT (FORMAT BINARY)"
            with cursor.copy(query) as copy:
                copy.set_types(["int4", "bytea"])
                self.assertEqual([row for row in copy.rows()],
                                 [(i, content(size, i)) for i, size in enumerate(SIZES)])

    def test_copy_text(self):
        """COPY as text stores all sizes."""
        with self.connection.cursor() as cursor:
            with cursor.copy("COPY t (id, b) FROM STDIN") as copy:
                for i, size in enumerate(SIZES):
                    copy.write_row((i, content(size, i)))
        self.check_rows()

    def test_copy_between_types(self):
        """Each table reads the stream that the other writes, and the streams are the same."""
        for i, size in enumerate(SIZES):
            self.execute("INSERT INTO t VALUES (%s, %s, %s)", (i, *[content(size, i)] * 2))
        for options in (sql.SQL(""), sql.SQL("(FORMAT BINARY)"), sql.SQL("(FORMAT CSV)")):
            streams = []
            for column in ("b", "o"):
                query = sql.SQL("COPY (SELECT {} FROM t ORDER BY id) TO STDOUT {}").format(
                    sql.Identifier(column), options)
                with self.connection.cursor() as cursor, cursor.copy(query) as copy:
                    streams.append(b"".join(bytes(block) for block in copy))
            self.assertEqual(streams[0], streams[1])
            self.execute("CREATE TEMP TABLE back (b blobstate) ON COMMIT DROP")
            with self.connection.cursor() as cursor:
                with cursor.copy(sql.SQL("COPY back FROM STDIN {}").format(options)) as copy:
                    copy.write(streams[1])
            self.assertEqual(self.one("SELECT count(*), sum(length(b)) FROM back"),
                             (len(SIZES), sum(SIZES)))
            self.assertEqual(self.one("SELECT count(*) FROM back JOIN t ON sha256(back.b) ="
                                      " sha256(t.o)")[0], len(SIZES))
            self.execute("DROP TABLE back")

    def test_ranges(self):
        """A range that the server reads is that part of the value."""
        data = content(300_001, 0)
        self.execute("INSERT INTO t (id, b) VALUES (0, %s)", (data,))
        for offset, length in ((0, 1), (4095, 2), (65_535, 70_000), (300_000, 10), (400_000, 1)):
            self.assertEqual(self.one("SELECT blob_read(b, %s, %s), substr(b, %s, %s) FROM t",
                                      (offset, length, offset + 1, length)),
                             (data[offset:offset + length],) * 2)
            self.assertEqual(self.one("SELECT blob_read(b, %s, %s) FROM t", (offset, length),
                                      binary=True)[0], data[offset:offset + length])

    def test_arrays_and_composites(self):
        """Values in arrays and row types are stored and read."""
        # a list of bytes is bytea[]: the array is cast on assignment, element by element
        values = [content(size, 1) for size in (0, 100, 5000)]
        self.execute("CREATE TEMP TABLE a (v blobstate[])")
        self.execute("INSERT INTO a VALUES (%s::bytea[]::blobstate[])", (values,))
        self.assertEqual(self.one("SELECT v::bytea[] FROM a")[0], values)
        self.assertEqual(self.one("SELECT array_agg(blob_storage(x)) FROM a, unnest(v) x")[0],
                         ["inline", "inline", "extents"])
        self.execute("CREATE TYPE pg_temp.attachment AS (name text, body blobstate)")
        info = CompositeInfo.fetch(self.connection, "pg_temp.attachment")
        register_composite(info, self.connection)
        self.execute("CREATE TEMP TABLE c (v attachment)")
        self.execute("INSERT INTO c VALUES (ROW(%s, %s::blobstate))", ("name", content(9000)))
        self.assertEqual(self.one("SELECT (v).name, (v).body::bytea, blob_storage((v).body)"
                                  " FROM c"),
                         ("name", content(9000), "extents"))

    def test_server_side_cursor(self):
        """A cursor of the server reads values of all sizes."""
        for i, size in enumerate(SIZES):
            self.execute("INSERT INTO t (id, b) VALUES (%s, %s)", (i, content(size, i)))
        with self.connection.cursor("server_side", binary=True) as cursor:
            cursor.itersize = 2
            cursor.execute("SELECT id, b FROM t ORDER BY id")
            for i, value in cursor:
                self.assertEqual(value, content(SIZES[i], i))

    def test_row_is_described_as_bytea(self):
        """The server goes on with blobstate."""
        self.execute("INSERT INTO t (id, b) VALUES (0, 'x')")
        cursor = self.execute("SELECT b, pg_typeof(b)::text FROM t")
        self.assertEqual(cursor.description[0].type_code, psycopg.adapters.types["bytea"].oid)
        self.assertEqual(cursor.fetchone(), (b"x", "blobstate"))

    def test_errors_leave_a_usable_connection(self):
        with self.assertRaises(psycopg.errors.InvalidParameterValue):
            with self.connection.transaction():
                self.execute("SELECT blob_read(%s::blobstate, -1, 1)", (b"abc",))
        with self.assertRaises(psycopg.errors.UniqueViolation):
            with self.connection.transaction():
                self.execute("INSERT INTO t (id, b) VALUES (0, %s), (0, %s)",
                             (content(5000), content(6000)))
        self.execute("INSERT INTO t (id, b) VALUES (0, %s)", (content(4000, 0),))
        self.check_rows([4000])

    def tearDown(self):
        if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.INERROR:
            self.assertEqual(self.execute("SELECT * FROM blobext_check()").fetchall(), [])


if __name__ == "__main__":
    unittest.main()
