"""The matrix of test/run drivers for drivers of Python: values go in and come back bare, as bytes.

    python_drivers.py DRIVER [unittest's options]

The server is that of PGHOST, PGPORT, PGUSER and PGDATABASE.  Every value that comes back is
compared byte by byte with the one that was put in, and its digest with the server's.  Seen to fail
for each driver with blobext.client_type = blobstate.
"""

import hashlib
import importlib
import importlib.util
import os
import random
import sys
import unittest

HOST, PORT = os.environ["PGHOST"], os.environ["PGPORT"]
USER, DATABASE = os.environ["PGUSER"], os.environ["PGDATABASE"]

# Backslashes, what looks like hex, quotes, braces, bytes that are no text.
VALUES = [b"", b"\\", b"\\x4142", b"\\134\\\\", bytes(range(256)), b"\x00", b"\xff\xfe\\",
          b"'\"{},", bytes(range(256)) * 1000, random.Random(1).randbytes(10_000_000)]
LARGE = VALUES[-1]


class Missing(Exception):
    """The driver is not installed."""


def load(name):
    """A module.  One that is there and cannot be imported is a failure, and not missing."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        raise Missing(f"no module {name}")
    return importlib.import_module(name)


class Driver:
    """Of a driver with the interface of PEP 249; others override.  Statements have $1, $2, ..."""

    array = list    # makes the parameter of ANY

    def __init__(self):
        self.connection = self.connect()
        self.connection.autocommit = True

    def placeholders(self, statement):
        for number in range(9, 0, -1):
            statement = statement.replace(f"${number}", "%s")
        return statement

    def run(self, statement, *parameters):
        """All rows, as lists; an empty list where there are none."""
        cursor = self.connection.cursor()
        cursor.execute(self.placeholders(statement), parameters)
        return [list(row) for row in cursor.fetchall()] if cursor.description else []

    def batch(self, statement, rows):
        self.connection.cursor().executemany(self.placeholders(statement), rows)

    def stream(self, statement):
        """Rows of a statement, in portions where the driver can."""
        cursor = self.connection.cursor()
        cursor.execute(statement)
        while row := cursor.fetchone():
            yield list(row)

    def copy_out(self, statement):
        """Output of COPY, or None where the driver has none."""
        return None

    def close(self):
        self.connection.close()


class Psycopg3(Driver):
    def connect(self):
        return load("psycopg").connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)

    def stream(self, statement):
        for row in self.connection.cursor().stream(statement):
            yield list(row)

    def copy_out(self, statement):
        with self.connection.cursor().copy(statement) as copy:
            return b"".join(copy)


class Psycopg3Binary(Psycopg3):
    def run(self, statement, *parameters):
        cursor = self.connection.cursor(binary=True)
        statement = self.placeholders(statement).replace("%s", "%b")
        cursor.execute(statement, parameters, prepare=True)
        return [list(row) for row in cursor.fetchall()] if cursor.description else []


class Pgbouncer(Psycopg3):
    """Through pgbouncer with transaction pooling: two clients take turns on one connection to the
    server.  Without statements that the driver prepares, as poolers of this kind need it."""

    def connect(self):
        self.connections = [load("psycopg").connect(host=HOST, port=PORT, user=USER,
                                                    dbname=DATABASE, prepare_threshold=None,
                                                    autocommit=True) for _ in range(2)]
        return self.connections[0]

    def run(self, statement, *parameters):
        self.connections.reverse()
        self.connection = self.connections[0]
        return super().run(statement, *parameters)

    def close(self):
        for connection in self.connections:
            connection.close()


class Psycopg2(Driver):
    def connect(self):
        return load("psycopg2").connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)

    def run(self, statement, *parameters):
        return [[bytes(value) if isinstance(value, memoryview) else value for value in row]
                for row in super().run(statement, *parameters)]

    def stream(self, statement):
        with self.connection.cursor("streamed", withhold=True) as cursor:
            cursor.itersize = 1
            cursor.execute(statement)
            for row in cursor:
                yield [bytes(value) if isinstance(value, memoryview) else value for value in row]

    def copy_out(self, statement):
        import io
        output = io.BytesIO()
        self.connection.cursor().copy_expert(statement, output)
        return output.getvalue()


class Pg8000(Driver):
    array = None    # refused: "oid 17 not supported as array contents"

    def connect(self):
        return load("pg8000").connect(host=HOST, port=int(PORT), user=USER, database=DATABASE)

    def run(self, statement, *parameters):
        return super().run(statement.replace("%", "%%"), *parameters)

    def copy_out(self, statement):
        import io
        output = io.BytesIO()
        self.connection.cursor().execute(statement, stream=output)
        return output.getvalue()


class Odbc(Driver):
    def connect(self):
        pyodbc = load("pyodbc")
        if "PostgreSQL Unicode" not in pyodbc.drivers():
            raise Missing("no ODBC driver PostgreSQL Unicode")
        return pyodbc.connect(f"Driver={{PostgreSQL Unicode}};Server={HOST};Port={PORT};"
                              f"Uid={USER};Database={DATABASE};ByteaAsLongVarBinary=1;"
                              "MaxLongVarcharSize=20000000")

    array = None    # ODBC has no arrays

    def placeholders(self, statement):
        return super().placeholders(statement).replace("%s", "?")

    def batch(self, statement, rows):
        for row in rows:
            self.run(statement, *row)


class Asyncpg(Driver):
    def __init__(self):
        import asyncio
        self.loop = asyncio.new_event_loop()
        self.connection = self.wait(load("asyncpg").connect(host=HOST, port=int(PORT), user=USER,
                                                            database=DATABASE))

    def wait(self, awaitable):
        return self.loop.run_until_complete(awaitable)

    def run(self, statement, *parameters):
        return [list(row) for row in self.wait(self.connection.fetch(statement, *parameters))]

    def batch(self, statement, rows):
        self.wait(self.connection.executemany(statement, rows))

    def stream(self, statement):
        async def collect():
            async with self.connection.transaction():
                return [list(row) async for row in self.connection.cursor(statement, prefetch=1)]
        return self.wait(collect())

    def copy_out(self, statement):
        import io
        import re
        output = io.BytesIO()
        query = re.match(r"COPY \((.*)\) TO STDOUT$", statement).group(1)
        self.wait(self.connection.copy_from_query(query, output=output))
        return output.getvalue()

    def close(self):
        self.wait(self.connection.close())
        self.loop.close()


class Sqlalchemy(Driver):
    """A table that declares the column as LargeBinary, with psycopg 2 below."""

    array = None    # the layer below is tested with arrays

    def __init__(self):
        self.alchemy = alchemy = load("sqlalchemy")
        load("psycopg2")
        self.engine = alchemy.create_engine(
            f"postgresql+psycopg2://{USER}@/{DATABASE}?host={HOST}&port={PORT}",
            isolation_level="AUTOCOMMIT")
        self.connection = self.engine.connect()
        self.table = alchemy.Table("t", alchemy.MetaData(),
                                   alchemy.Column("id", alchemy.Integer),
                                   alchemy.Column("content", alchemy.LargeBinary))

    def run(self, statement, *parameters):
        text = statement
        for number in range(1, len(parameters) + 1):
            text = text.replace(f"${number}", f":p{number}")
        result = self.connection.execute(
            self.alchemy.text(text),
            {f"p{number}": value for number, value in enumerate(parameters, 1)})
        return [[bytes(value) if isinstance(value, memoryview) else value for value in row]
                for row in result] if result.returns_rows else []

    def batch(self, statement, rows):
        self.connection.execute(self.table.insert(),
                                [dict(id=number, content=value) for number, value in rows])

    def stream(self, statement):
        query = self.alchemy.select(self.table.c.id, self.table.c.content).order_by(
            self.table.c.id)
        with self.engine.connect() as connection:
            options = connection.execution_options(isolation_level="READ COMMITTED",
                                                   stream_results=True)
            for row in options.execute(query):
                yield list(row)

    def close(self):
        self.connection.close()
        self.engine.dispose()


class Django(Driver):
    """A model's BinaryField, with psycopg 2 below."""

    array = None

    def __init__(self):
        django = load("django")
        settings = load("django.conf").settings
        load("psycopg2")
        if not settings.configured:
            settings.configure(DATABASES={"default": {
                "ENGINE": "django.db.backends.postgresql", "HOST": HOST, "PORT": PORT,
                "USER": USER, "NAME": DATABASE}}, USE_TZ=True)
            django.setup()
            from django.db import models

            class Row(models.Model):
                id = models.IntegerField(primary_key=True)
                content = models.BinaryField(null=True)

                class Meta:
                    app_label = "drivers"
                    db_table = "t"
                    managed = False
            Django.model = Row
        self.connection = load("django.db").connection

    def run(self, statement, *parameters):
        with self.connection.cursor() as cursor:
            cursor.execute(self.placeholders(statement), parameters)
            return [[bytes(value) if isinstance(value, memoryview) else value for value in row]
                    for row in cursor.fetchall()] if cursor.description else []

    def batch(self, statement, rows):
        self.model.objects.bulk_create(self.model(id=number, content=value)
                                       for number, value in rows)

    def stream(self, statement):
        for row in self.model.objects.order_by("id").iterator(chunk_size=1):
            yield [row.id, None if row.content is None else bytes(row.content)]


DRIVERS = {"psycopg3": Psycopg3, "psycopg3_binary": Psycopg3Binary, "psycopg2": Psycopg2,
           "pgbouncer": Pgbouncer,
           "asyncpg": Asyncpg, "pg8000": Pg8000, "sqlalchemy": Sqlalchemy, "django": Django,
           "odbc": Odbc}


def upload(driver, number, value):
    """In a transaction; pieces of a value by COPY, on whatever connection the pooler chooses."""
    connection = driver.connection
    with connection.transaction(), connection.cursor() as cursor:
        upload_no, = cursor.execute("SELECT blob_upload_begin()").fetchone()
        with cursor.copy("COPY blob_upload_pieces FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", "bytea"])
            for start in range(0, len(value), 100_000):
                copy.write_row((upload_no, value[start:start + 100_000]))
        cursor.execute("INSERT INTO t VALUES (%s, blob_upload_end(%s))", (number, upload_no))


class Matrix(unittest.TestCase):
    kind = None

    def setUp(self):
        self.driver = self.kind()
        self.addCleanup(self.driver.close)
        self.run_sql("DROP TABLE IF EXISTS t")
        self.run_sql("CREATE TABLE t (id integer PRIMARY KEY, content blobstate)")

    def run_sql(self, statement, *parameters):
        return self.driver.run(statement, *parameters)

    def insert_all(self):
        for number, value in enumerate(VALUES):
            self.run_sql("INSERT INTO t (id, content) VALUES ($1, $2)", number, value)

    def check_digests(self):
        digests = self.run_sql("SELECT encode(sha256(content), 'hex') FROM t ORDER BY id")
        self.assertEqual([row[0] for row in digests],
                         [hashlib.sha256(value).hexdigest() for value in VALUES])

    def check_rows(self, rows):
        rows = list(rows)
        self.assertEqual([row[0] for row in rows], list(range(len(VALUES))))
        for number, value in rows:
            self.assertIsInstance(value, bytes)
            self.assertTrue(value == VALUES[number], f"value {number}")

    def test_insert_and_select(self):
        """Values that were inserted are read the same."""
        self.insert_all()
        self.check_digests()
        self.check_rows(self.run_sql("SELECT id, content FROM t ORDER BY id"))

    def test_again_and_again(self):
        """Drivers prepare a statement, or choose the binary format, after some executions."""
        self.insert_all()
        for _ in range(8):
            rows = self.run_sql("SELECT content FROM t WHERE id = $1", 4)
            self.assertTrue(rows == [[VALUES[4]]])

    def test_null(self):
        """NULL is stored and read as such."""
        self.run_sql("INSERT INTO t (id, content) VALUES ($1, $2)", 1, None)
        self.assertEqual(self.run_sql("SELECT content FROM t"), [[None]])

    def test_update(self):
        """UPDATE replaces a value by a parameter."""
        self.insert_all()
        self.run_sql("UPDATE t SET content = $1 WHERE id = $2", VALUES[3], 0)
        self.assertTrue(self.run_sql("SELECT content FROM t WHERE id = 0") == [[VALUES[3]]])

    def test_read_modify_write(self):
        """A value that was read can be written back."""
        self.insert_all()
        for number, value in enumerate(VALUES):
            read = self.run_sql("SELECT content FROM t WHERE id = $1", number)[0][0]
            self.run_sql("UPDATE t SET content = $1 WHERE id = $2", read, number)
        self.check_digests()

    def test_equal(self):
        """A parameter finds the row with this value."""
        self.insert_all()
        for number, value in enumerate(VALUES):
            self.assertEqual(self.run_sql("SELECT id FROM t WHERE content = $1", value), [[number]])

    def test_any(self):
        """An array parameter finds the rows with these values."""
        if self.driver.array is None:
            self.skipTest("the driver has no arrays of bytes")
        self.insert_all()
        wanted = self.driver.array(VALUES[1:9])
        self.assertEqual(self.run_sql("SELECT id FROM t WHERE content = ANY ($1) ORDER BY id",
                                      wanted), [[number] for number in range(1, 9)])

    def test_returning(self):
        """RETURNING gives the value that was inserted."""
        for number, value in enumerate(VALUES):
            rows = self.run_sql("INSERT INTO t (id, content) VALUES ($1, $2) RETURNING content",
                                number, value)
            self.assertTrue(rows == [[value]], f"value {number}")

    def test_batch(self):
        """Without the large value: with that, psycopg 3.1 does not end, nor does it for bytea."""
        self.driver.batch("INSERT INTO t (id, content) VALUES ($1, $2)",
                          list(enumerate(VALUES[:9])))
        self.run_sql("INSERT INTO t (id, content) VALUES ($1, $2)", 9, LARGE)
        self.check_digests()

    def test_stream(self):
        """A stream of rows has the values."""
        self.insert_all()
        self.check_rows(self.driver.stream("SELECT id, content FROM t ORDER BY id"))

    def test_array_result(self):
        """A result that is an array has the values."""
        if self.driver.array is None:
            self.skipTest("the driver has no arrays of bytes")
        self.insert_all()
        rows = self.run_sql("SELECT array_agg(content ORDER BY id) FROM t WHERE id < 9")
        self.assertTrue([bytes(value) for value in rows[0][0]] == VALUES[:9])

    def test_upload(self):
        """An upload by COPY stores the values."""
        if not isinstance(self.driver, Psycopg3):
            self.skipTest("by COPY of psycopg 3")
        for number, value in enumerate(VALUES):
            upload(self.driver, number, value)
        self.check_digests()

    def test_copy(self):
        """COPY gives the values as hex."""
        self.insert_all()
        output = self.driver.copy_out("COPY (SELECT content FROM t ORDER BY id) TO STDOUT")
        if output is None:
            self.skipTest("the driver has no COPY")
        lines = bytes(output).decode().splitlines()
        self.assertTrue([bytes.fromhex(line[3:]) for line in lines] == VALUES)


def main():
    name = sys.argv.pop(1)
    Matrix.kind = DRIVERS[name]
    try:
        Matrix.kind().close()
    except Missing as error:
        print(f"# {name} is missing: {error}", file=sys.stderr)
        sys.exit(3)
    result = unittest.main(verbosity=1, exit=False).result
    for test, reason in result.skipped:
        print(f"# {name}, without {test.id().rpartition('.')[2]}: {reason}")
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
