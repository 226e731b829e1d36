"""blobext.client_type: clients are told bytea, the server goes on with blobstate.

Below psycopg's cursors, on libpq as it is: the types in descriptions, the bytes of values.  Seen to
fail with the exchange of columns, of parameters, of element types and of arrays of parameters taken
out one by one (client/descriptions.c, client/array_parameters.c), test_sort_of_gigabyte without
blobext.stream_results.
"""

import hashlib
import random
import struct
import unittest

import psycopg
from psycopg.pq import ExecStatus, Format

BYTEA, BYTEA_ARRAY = 17, 1001
SMALL = b"\\x41\x00\xff\\"
LARGE = random.Random(1).randbytes(300_000)
SETUP = """
DROP SCHEMA IF EXISTS client_type CASCADE;
CREATE SCHEMA client_type;
SET search_path = client_type, public;
CREATE DOMAIN picture AS blobstate;
CREATE DOMAIN pictures AS blobstate[];
CREATE TABLE t (id integer PRIMARY KEY, b blobstate, p picture, a blobstate[], ap pictures);
CREATE FUNCTION takes_one(blobstate) RETURNS bigint LANGUAGE sql AS 'SELECT length($1)';
CREATE FUNCTION takes_many(blobstate[]) RETURNS integer LANGUAGE sql AS 'SELECT cardinality($1)';
CREATE FUNCTION type_of_fetched(c refcursor) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
    FETCH c INTO r;
    RETURN pg_typeof(r.b);
END$$;
CREATE FUNCTION opens() RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE c CURSOR FOR SELECT b FROM client_type.t ORDER BY id;
BEGIN
    OPEN c;
    RETURN c;
END$$;
CREATE PROCEDURE gives(INOUT b blobstate) LANGUAGE plpgsql AS 'BEGIN NULL; END';
"""


def array(values, element_type):
    """The binary form."""
    form = struct.pack("!iiIii", 1, 0, element_type, len(values), 1)
    return form + b"".join(struct.pack("!i", len(value)) + value for value in values)


class ClientTypeTest(unittest.TestCase):
    def setUp(self):
        self.connection = psycopg.connect(autocommit=True)
        self.addCleanup(self.connection.close)
        self.pg = self.connection.pgconn
        self.sql("CREATE EXTENSION IF NOT EXISTS blobext")
        self.sql(SETUP)
        self.sql("INSERT INTO t VALUES (1, %s::bytea, %s::bytea, ARRAY[%s::bytea, NULL],"
                 " ARRAY[%s::bytea])" % ((self.literal(SMALL),) * 4))
        self.sql("INSERT INTO t VALUES (2, %s::bytea)" % self.literal(LARGE))
        self.blobstate, self.blobstate_array = (
            int(self.value(f"SELECT '{name}'::regtype::oid")) for name in
            ("blobstate", "blobstate[]"))

    @staticmethod
    def literal(value):
        return f"'\\x{value.hex()}'"

    def checked(self, result):
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise AssertionError(result.error_message.decode())
        return result

    def sql(self, statement):
        return self.checked(self.pg.exec_(statement.encode()))

    def value(self, statement):
        return self.sql(statement).get_value(0, 0).decode()

    def prepare(self, statement, name=b"p"):
        """Returns the description of a statement whose parameters' types are open."""
        self.sql("DEALLOCATE ALL")
        self.checked(self.pg.prepare(name, statement.encode()))
        return self.checked(self.pg.describe_prepared(name))

    def run_prepared(self, *parameters, result_format=Format.BINARY, name=b"p"):
        return self.checked(self.pg.exec_prepared(
            name, parameters, [Format.BINARY] * len(parameters), result_format))

    def test_columns(self):
        """Columns of results are described as bytea."""
        for statement, types in {
                "SELECT b, p, a, ap, id FROM t":
                    [BYTEA, BYTEA, BYTEA_ARRAY, BYTEA_ARRAY, 23],
                "SELECT b || b, NULL::blobstate, coalesce(b, '') FROM t": [BYTEA] * 3,
                "SELECT DISTINCT b FROM t": [BYTEA],
                "SELECT b FROM t UNION SELECT p FROM t": [BYTEA],
                "WITH w AS (SELECT b FROM t) SELECT max(b) FROM w": [BYTEA],
                "SELECT b FROM t WHERE id = 1 FOR UPDATE": [BYTEA],
                "INSERT INTO t (id, b) VALUES (9, 'x') RETURNING b, a": [BYTEA, BYTEA_ARRAY],
                "UPDATE t SET b = b WHERE id = 9 RETURNING b": [BYTEA],
                "DELETE FROM t WHERE id = 9 RETURNING b": [BYTEA],
                "VALUES ('x'::blobstate)": [BYTEA],
                "CALL gives('x')": [BYTEA]}.items():
            with self.subTest(statement):
                for result in (self.prepare(statement), self.run_prepared()):
                    self.assertEqual([result.ftype(i) for i in range(result.nfields)], types)
                    self.assertEqual({result.fmod(i) for i in range(result.nfields)}, {-1})

    def test_columns_of_other_types(self):
        """The extension's own and users' types are told as they are."""
        self.sql("CREATE TYPE mood AS ENUM ('good')")
        result = self.sql("SELECT 'good'::mood, ROW(b), sha256(b), t FROM t LIMIT 1")
        expected = [int(self.value("SELECT 'mood'::regtype::oid")), 2249, BYTEA,
                    int(self.value("SELECT 't'::regtype::oid"))]
        self.assertEqual([result.ftype(i) for i in range(4)], expected)

    def test_columns_keep_their_table(self):
        result = self.sql("SELECT id, b FROM t")
        self.assertEqual(result.ftable(1), int(self.value("SELECT 't'::regclass::oid")))
        self.assertEqual(result.ftablecol(1), 2)

    def test_blobstate_on_demand(self):
        """The setting is reported to the client; parameters and columns are as they are."""
        self.assertEqual(self.pg.parameter_status(b"blobext.client_type"), b"bytea")
        self.sql("SET blobext.client_type = blobstate")
        self.assertEqual(self.pg.parameter_status(b"blobext.client_type"), b"blobstate")
        result = self.prepare("SELECT b, a FROM t WHERE b = $1 AND b = ANY ($2)")
        self.assertEqual([result.ftype(0), result.ftype(1)],
                         [self.blobstate, self.blobstate_array])
        self.assertEqual([result.param_type(0), result.param_type(1)],
                         [self.blobstate, self.blobstate_array])

    def test_content(self):
        """Values of columns are their content in both formats."""
        for result_format in Format:
            result = self.pg.exec_params(b"SELECT b FROM client_type.t ORDER BY id", None, None,
                                         None, result_format)
            values = [result.get_value(i, 0) for i in range(2)]
            if result_format == Format.TEXT:
                values = [bytes.fromhex(value[2:].decode()) for value in values]
            self.assertEqual(values, [SMALL, LARGE])

    def test_parameters(self):
        """Parameters for values are described as bytea."""
        for statement, types in {
                "INSERT INTO t (id, b, p) VALUES ($1, $2, $3)": [23, BYTEA, BYTEA],
                "UPDATE t SET b = $1 WHERE b = $2": [BYTEA, BYTEA],
                "SELECT coalesce(b, $1) FROM t": [BYTEA],
                "SELECT $1::blobstate": [BYTEA],
                "SELECT takes_one($1)": [BYTEA],
                "SELECT FROM t WHERE b = ANY ($1)": [BYTEA_ARRAY],
                "INSERT INTO t (id, a, ap) VALUES ($1, $2, $3)": [23, BYTEA_ARRAY, BYTEA_ARRAY],
                "SELECT unnest($1::blobstate[])": [BYTEA_ARRAY],
                "SELECT takes_many($1)": [BYTEA_ARRAY],
                "SELECT FROM t WHERE a = $1": [self.blobstate_array]}.items():
            with self.subTest(statement):
                result = self.prepare(statement)
                self.assertEqual([result.param_type(i) for i in range(result.nparams)], types)

    def test_parameters_have_their_content(self):
        self.prepare("INSERT INTO t (id, b, p, a) VALUES ($1, $2, $3, $4) RETURNING b, p, a")
        for number, value in ((10, SMALL), (11, LARGE), (12, b"")):
            result = self.run_prepared(struct.pack("!i", number), value, value,
                                       array([value, b"2"], BYTEA))
            self.assertEqual([result.get_value(0, i) for i in range(3)],
                             [value, value, array([value, b"2"], BYTEA)])
        self.assertEqual(self.value("SELECT encode(sha256(b), 'hex') FROM t WHERE id = 11"),
                         hashlib.sha256(LARGE).hexdigest())
        self.prepare("SELECT id FROM t WHERE b = $1")
        self.assertEqual(self.run_prepared(SMALL).ntuples, 2)

    def test_plan_made_again(self):
        """A statement keeps its meaning when PostgreSQL analyzes it again."""
        for statement, parameters, expected in (
                ("SELECT b, a FROM t WHERE b = ANY ($1)", [array([SMALL], BYTEA)], 1),
                ("SELECT b FROM t WHERE coalesce(b, $1) = $2", [b"", LARGE], 1),
                ("SELECT takes_one($1), takes_many(a) FROM t", [SMALL], 2),
                ("UPDATE t SET a = $1, b = b RETURNING b", [array([LARGE], BYTEA)], 2)):
            with self.subTest(statement):
                self.prepare(statement)
                for change in ("SELECT", "ALTER TABLE t ADD COLUMN x integer",
                               "SET blobext.client_type = blobstate; ANALYZE t",
                               "SET blobext.client_type = bytea;"
                               " ALTER TABLE t DROP COLUMN x"):
                    self.sql(change)
                    for _ in range(7):      # the plan becomes a generic one
                        self.assertEqual(self.run_prepared(*parameters).ntuples, expected)

    def test_query_identifier(self):
        """One for the statement that was exchanged and for the one that is analyzed again."""
        self.sql("SET compute_query_id = on")
        self.prepare("SELECT id FROM t WHERE b = ANY ($1) AND id < 7")
        identifiers = []
        for change in ("SELECT", "ALTER TABLE t ADD COLUMN y integer"):
            self.sql(change)
            self.run_prepared(array([SMALL], BYTEA))
            with psycopg.connect() as other:
                identifiers.append(other.execute(
                    "SELECT query_id FROM pg_stat_activity WHERE pid = %s",
                    (self.pg.backend_pid,)).fetchone()[0])
        self.assertIsNotNone(identifiers[0])
        self.assertEqual(identifiers[0], identifiers[1])

    def test_failed_attempt_leaves_the_transaction(self):
        """bytea[] has no meaning beside blobstate[], which ends a subtransaction and no more."""
        self.sql("BEGIN; INSERT INTO t (id) VALUES (20)")
        result = self.prepare("SELECT a < $1, b FROM t WHERE id = 1")
        self.assertEqual(result.param_type(0), self.blobstate_array)
        result = self.run_prepared(array([b"\xff", b"2"], self.blobstate))
        self.assertEqual([result.get_value(0, i) for i in range(2)], [b"\x01", SMALL])
        self.sql("COMMIT")
        self.assertEqual(self.value("SELECT count(*) FROM t WHERE id = 20"), "1")

    def test_element_types(self):
        """Binary arrays name bytea, in each way to execute, beside a streamed value, too."""
        one = array([SMALL], BYTEA)
        query = "SELECT ARRAY[b] AS a, (SELECT b FROM t WHERE id = 2) AS large FROM t WHERE id = 1"
        self.sql("BEGIN; DECLARE c BINARY CURSOR WITH HOLD FOR " + query + "; COMMIT")
        self.assertEqual(self.sql("FETCH c").get_value(0, 0), one)
        self.prepare(query)
        result = self.run_prepared()
        self.assertEqual([result.get_value(0, i) for i in range(2)], [one, LARGE])
        self.prepare("UPDATE t SET ap = ARRAY[b] WHERE id = 1 RETURNING ap, NULL, ARRAY[1], a")
        result = self.run_prepared()
        self.assertEqual([result.get_value(0, i) for i in range(3)],
                         [one, None, array([struct.pack("!i", 1)], 23)])
        self.prepare("SELECT ARRAY[]::blobstate[], a[3:4] FROM t WHERE id = 1")
        result = self.run_prepared()
        self.assertEqual([result.get_value(0, i) for i in range(2)],
                         [struct.pack("!iiI", 0, 0, BYTEA)] * 2)
        self.sql("SET blobext.client_type = blobstate")
        self.prepare(query)
        self.assertEqual(self.run_prepared().get_value(0, 0), array([SMALL], self.blobstate))

    def test_cursors(self):
        """The client is told bytea of any cursor; a function that fetches from it has blobstate."""
        self.sql("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT b FROM t ORDER BY id")
        self.assertEqual(self.sql("FETCH c").ftype(0), BYTEA)
        self.assertEqual(self.value("SELECT type_of_fetched('c')"), "blobstate")
        self.assertEqual(self.sql("FETCH ABSOLUTE 1 FROM c").get_value(0, 0),
                         b"\\x" + SMALL.hex().encode())
        self.sql("COMMIT; BEGIN")
        name = self.value("SELECT opens()")
        self.assertEqual(self.sql(f'FETCH "{name}"').ftype(0), BYTEA)
        self.sql("COMMIT; BEGIN; DECLARE u CURSOR FOR SELECT b FROM t WHERE id = 1 FOR UPDATE")
        self.assertEqual(self.sql("FETCH u").ftype(0), BYTEA)
        self.sql("UPDATE t SET b = 'current' WHERE CURRENT OF u; COMMIT")
        self.assertEqual(self.value("SELECT convert_from(b::bytea, 'UTF8') FROM t WHERE id = 1"),
                         "current")

    def test_server_keeps_its_type(self):
        self.sql("PREPARE q AS SELECT b, a FROM t")
        self.assertEqual(self.sql("EXECUTE q").ftype(0), BYTEA)
        for statement in ("CREATE TABLE made AS SELECT b, a FROM t",
                          "CREATE TABLE made AS EXECUTE q",
                          "SELECT b, a INTO made FROM t",
                          "CREATE VIEW made AS SELECT b, a FROM t",
                          "CREATE MATERIALIZED VIEW made AS SELECT b, a FROM t"):
            with self.subTest(statement):
                self.sql("BEGIN; " + statement)
                result = self.sql("SELECT atttypid FROM pg_attribute WHERE attnum > 0"
                                  " AND attrelid = 'made'::regclass ORDER BY attnum")
                self.assertEqual([int(result.get_value(i, 0)) for i in range(2)],
                                 [self.blobstate, self.blobstate_array])
                self.sql("ROLLBACK")
        self.prepare("SELECT pg_typeof(b), pg_typeof(a), pg_typeof($1::blobstate) FROM t LIMIT 1")
        result = self.run_prepared(SMALL, result_format=Format.TEXT)
        self.assertEqual([result.get_value(0, i) for i in range(3)],
                         [b"blobstate", b"blobstate[]", b"blobstate"])
        self.assertEqual(self.value("EXPLAIN (VERBOSE, COSTS off) SELECT b FROM t"),
                         "Seq Scan on client_type.t")
        self.assertNotIn("bytea", self.value(
            "EXPLAIN (VERBOSE, COSTS off, FORMAT json) SELECT b, a FROM t ORDER BY b"))

    def test_prepare_of_sql(self):
        """PREPARE is no message of the protocol: its parameters are what they are."""
        self.sql("PREPARE q AS SELECT FROM t WHERE b = ANY ($1) AND b = $2")
        self.assertEqual(self.value("SELECT parameter_types FROM pg_prepared_statements"),
                         "{blobstate[],blobstate}")

    def test_sort_has_no_content(self):
        """200 MB in a result, sorted by another column in 1 MB of memory, without a file."""
        self.sql("CREATE TABLE many (n integer, b blobstate);"
                 "INSERT INTO many SELECT -n, blob_append(b, int4send(n)) FROM"
                 " generate_series(1, 200) n,"
                 " (SELECT convert_to(repeat('a', 1000000), 'UTF8')::blobstate AS b) AS x;"
                 "SET work_mem = '1MB'; SET max_parallel_workers_per_gather = 0")
        plan = self.value("EXPLAIN (ANALYZE, FORMAT json) SELECT b FROM many ORDER BY n")
        self.assertIn('"Sort Space Type": "Memory"', plan)
        result = self.sql("SELECT b FROM many ORDER BY n")
        self.assertEqual(result.ftype(0), BYTEA)
        for i in range(200):
            expected = b"a" * 1_000_000 + struct.pack("!i", 200 - i)
            self.assertTrue(result.get_value(i, 0) == b"\\x" + expected.hex().encode(), i)

    def memory(self):
        """Kilobytes of memory that the backend has for itself."""
        with open(f"/proc/{self.pg.backend_pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

    def test_sort_of_gigabyte(self):
        """1 GB in 128 values, sorted by another column with the least work_mem: less than 64 kB of
        memory for each value, and no file."""
        self.sql("CREATE TABLE many (n integer, b blobstate);"
                 "INSERT INTO many SELECT -n, blob_append(b, int4send(n)) FROM"
                 " generate_series(1, 128) n,"
                 " (SELECT convert_to(repeat('a', 8388608), 'UTF8')::blobstate AS b) AS x")
        with psycopg.connect(autocommit=True) as connection, connection.cursor() as cursor:
            self.pg = connection.pgconn
            cursor.execute("SET work_mem = '64kB'")
            cursor.execute("SET search_path = client_type, public")
            plan = str(cursor.execute("EXPLAIN (ANALYZE, FORMAT json)"
                                      " SELECT n, b FROM many ORDER BY n").fetchone()[0])
            self.assertIn("'Sort Space Type': 'Memory'", plan)
            before = most = self.memory()
            cursor = connection.cursor(binary=True)
            numbers = []
            for n, content in cursor.stream("SELECT n, b FROM many ORDER BY n"):
                numbers.append(n)
                most = max(most, self.memory())
                self.assertEqual(len(content), 8388612)
                self.assertTrue(content.endswith(struct.pack("!i", -n)), n)
            self.assertEqual(cursor.description[1].type_code, BYTEA)
            self.assertEqual(numbers, list(range(-128, 0)))
            self.assertLess(most - before, 128 * 64)

    def test_aborted_transaction(self):
        """Catalogs cannot be read then; parameters are described all the same."""
        self.prepare("INSERT INTO t (id, b) VALUES ($1, $2)")
        self.sql("BEGIN")
        self.assertEqual(self.pg.exec_(b"SELECT 1/0").status, ExecStatus.FATAL_ERROR)
        result = self.checked(self.pg.describe_prepared(b"p"))
        self.assertEqual([result.param_type(0), result.param_type(1)], [23, BYTEA])
        self.sql("ROLLBACK")

    def test_without_the_extension(self):
        """Types of users are told as they are where there is no blobstate."""
        self.sql("DROP DATABASE IF EXISTS client_type_without")
        self.sql("CREATE DATABASE client_type_without TEMPLATE template0")
        self.addCleanup(self.sql, "DROP DATABASE client_type_without")
        with psycopg.connect(dbname="client_type_without", autocommit=True) as connection:
            connection.execute("CREATE TYPE blobstate AS ENUM ('x')")
            for statement in ("SELECT 'x'::blobstate", "SELECT ARRAY['x'::blobstate]"):
                cursor = connection.cursor(binary=True).execute(statement)
                self.assertGreater(cursor.description[0].type_code, 16383)


if __name__ == "__main__":
    unittest.main()
