"""Random operations on a table whose rows hold the same content as blobstate and as bytea.

Every value reaches the table by a random path, under random settings, some of it in transactions
and savepoints that are rolled back; random ranges are read from both columns and must be equal.
Values grow and change by all functions there are, at random and at borders; a plain array is
changed likewise, and content, size and digest are compared after each change.  A second session
reads old versions through snapshots that it keeps, and grows the same versions as the first does.
At the end everything is compared, and blobext_check() must be empty.  The seed is printed; the
same seed and number of operations repeat the run.
"""

import argparse
import collections
import hashlib
import os
import random
import subprocess
import sys
import time

import psycopg

MAX_ROWS = 150
MAX_BYTES = 60_000_000

TABLES = """
CREATE TABLE v (id int PRIMARY KEY, b blobstate, o bytea);
CREATE TABLE a (id int PRIMARY KEY, b blobstate[], o bytea[]);
CREATE FUNCTION store(bytes bytea, new_id int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    row v%ROWTYPE;
BEGIN
    row.id := new_id;
    row.b := bytes;
    row.o := bytes;
    INSERT INTO v SELECT row.*;
END $$;
CREATE FUNCTION double() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.b := (new.b::bytea || new.b::bytea)::blobstate;
    new.o := new.o || new.o;
    RETURN new;
END $$;
CREATE TABLE w (id int, b blobstate, digest bytea, size bigint);
CREATE TABLE doubled (LIKE v);
CREATE TRIGGER double BEFORE INSERT ON doubled FOR EACH ROW EXECUTE FUNCTION double();
"""

DIFFERENCES = """
SELECT id FROM v
WHERE b::bytea IS DISTINCT FROM o OR sha256(b) IS DISTINCT FROM sha256(o)
    OR length(b) IS DISTINCT FROM octet_length(o)
    OR octet_length(b) IS DISTINCT FROM octet_length(o)
    OR blob_prefix(b) IS DISTINCT FROM substring(o FROM 1 FOR 32)
    OR (SELECT sum(bytes) FROM blob_extents(b)) <> blob_stored_length(b)
    OR blob_compression(b) = 'none'
        AND blob_stored_length(b) NOT BETWEEN octet_length(o) AND 2 * octet_length(o) + 1000000
UNION ALL SELECT id FROM a WHERE b::bytea[] IS DISTINCT FROM o
UNION ALL SELECT id FROM w
    WHERE sha256(b::bytea) <> digest OR sha256(b) <> digest OR length(b) <> size
"""

# Sizes and offsets at which something ends: lines of the prefix, blocks of the digest, pages,
# chunks of the cache, I/O buffers, extents.
BORDERS = [0, 1, 32, 64, 100, 127, 128, 1024, 1900, 4096, 8192, 3 * 4096, 7 * 4096, 15 * 4096,
           65536, 31 * 4096, 63 * 4096, 262144, 127 * 4096, 255 * 4096, 1048576, 16 * 65536 + 4096]

SETTINGS = [
    ("blobext.inline_limit", [0, 1, 64, 100, 1024, 1900, 1900, 4096, 100_000]),
    ("blobext.rewrite_limit", [32, 32, 200, 1024]),
    ("blobext.tail_extents", ["on", "off"]),
    ("blobext.default_compression", ["none", "lz4", "zstd", "zstd"]),
    ("blobext.io_method", ["auto", "io_uring", "aio", "sync"]),
    ("blobext.verify_reads", ["on", "off"]),
    ("bytea_output", ["hex", "escape"]),
    ("plan_cache_mode", ["auto", "force_generic_plan", "force_custom_plan"]),
    ("synchronous_commit", ["on", "off"]),
]


class Mismatch(Exception):
    pass


# The SQL functions, on a plain array.

def array_append(old, data):
    return old + data


def array_prepend(old, data):
    return data + old


def array_write(old, offset, data):
    if not data:
        return old
    old = old.ljust(offset, b"\0")
    return old[:offset] + data + old[offset + len(data):]


def array_patch(old, offsets, pieces):
    for offset, data in zip(offsets, pieces):
        old = array_write(old, offset, data)
    return old


def array_insert(old, offset, data):
    return old[:offset] + data + old[offset:]


def array_delete(old, offset, length):
    return old[:offset] + old[offset + length:]


def array_truncate(old, length):
    return old[:length].ljust(length, b"\0")


class Oracle:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.last_id = 0
        self.ids = []
        self.committed_ids = []
        self.savepoint_ids = None
        self.connect()
        # without direct I/O aio reads nothing, although it stores
        if self.execute("SHOW blobext.direct_io").fetchone()[0] == "off":
            dict(SETTINGS)["blobext.io_method"].remove("aio")
        # a kernel or sandbox may refuse io_uring or aio; then nothing can demand it
        for method in [m for m in ("io_uring", "aio") if m in dict(SETTINGS)["blobext.io_method"]]:
            try:
                self.execute(f"SET blobext.io_method = {method}")
                self.execute("CREATE TEMP TABLE probe AS SELECT %s::bytea::blobstate",
                             (bytes(5000),))
            except psycopg.Error as error:
                print(f"# without {method}: {error}".strip())
                dict(SETTINGS)["blobext.io_method"].remove(method)
            self.connection.rollback()

    def connect(self):
        self.connection = psycopg.connect()
        self.connection.prepare_threshold = 2
        self.other = psycopg.connect()
        self.snapshot = None

    def execute(self, query, parameters=None, **options):
        return self.connection.execute(query, parameters, **options)

    # ---- choices ----

    def size(self):
        kind = self.random.random()
        if kind < 0.45:
            return max(0, self.random.choice(BORDERS) + self.random.randint(-2, 2))
        if kind < 0.97:
            return int(2 ** self.random.uniform(0, 18))
        return self.random.randint(0, 4_000_000)

    def content(self):
        size = self.size()
        kind = self.random.random()
        if kind < 0.2:
            return bytes([self.random.randrange(256)]) * size
        if kind < 0.5:
            # what can be compressed, and what cannot, by turns
            piece = self.random.randbytes(self.random.randint(1, 20_000))
            text = bytes(self.random.choice(piece) for _ in range(100)) * 300
            return (piece + text[:self.random.randint(1, len(text))]) \
                .join([b""] * (size // len(piece) + 2))[:size].ljust(size, b".")
        return self.random.randbytes(size)

    def new_id(self):
        self.last_id += 1
        self.ids.append(self.last_id)
        return self.last_id

    def old_id(self):
        return self.random.choice(self.ids) if self.ids else 0

    # ---- operations that store ----

    def insert_literal(self):
        literal = "'\\x" + self.content()[:100_000].hex() + "'"
        self.execute(f"INSERT INTO v VALUES ({self.new_id()}, {literal}, {literal})")

    def insert_parameter(self):
        data = self.content()
        placeholder = self.random.choice(["%b", "%t"])
        self.execute(f"INSERT INTO v VALUES (%s, {placeholder}, %b)", (self.new_id(), data, data))

    def insert_prepared(self):
        data = self.content()
        self.execute("INSERT INTO v (o, b, id) VALUES (%b, %b, %s)", (data, data, self.new_id()),
                     prepare=True)

    def insert_cast(self):
        self.execute("INSERT INTO v SELECT %s, x::blobstate, x FROM CAST(%b AS bytea) x",
                     (self.new_id(), self.content()))

    def insert_several(self):
        rows = [self.content()[:200_000] for _ in range(self.random.randint(2, 5))]
        parameters = [p for data in rows for p in (self.new_id(), data, data)]
        self.execute("INSERT INTO v VALUES " + ", ".join(["(%s, %b, %b)"] * len(rows)), parameters)

    def insert_interned(self):
        """Content that a row has already, or new content; with its row's value, or its own."""
        if self.random.random() < 0.6:
            self.execute("INSERT INTO v SELECT %s, blob_intern('v', 'b', o), o FROM v"
                         " WHERE id = %s", (self.new_id(), self.old_id()))
        else:
            data = self.content()
            self.execute("INSERT INTO v VALUES (%s, blob_intern('v', 'b', %b), %b)",
                         (self.new_id(), data, data))

    def insert_by_function(self):
        self.execute("SELECT store(%b, %s)", (self.content(), self.new_id()))

    def insert_by_trigger(self):
        data = self.content()[:1_000_000]
        self.execute("INSERT INTO doubled VALUES (%s, %b, %b)", (self.new_id(), data, data))
        self.execute("INSERT INTO v SELECT * FROM doubled")
        self.execute("DELETE FROM doubled")

    def insert_select(self):
        self.execute("INSERT INTO v SELECT %s, b, o FROM v WHERE id = %s",
                     (self.new_id(), self.old_id()))

    def insert_converted(self):
        self.execute("INSERT INTO v SELECT %s, o, b FROM v WHERE id = %s",
                     (self.new_id(), self.old_id()))

    def insert_on_conflict(self):
        data = self.content()
        row_id = self.old_id() or self.new_id()
        self.execute("INSERT INTO v VALUES (%s, %b, %b) ON CONFLICT (id)"
                     " DO UPDATE SET b = excluded.b, o = excluded.o", (row_id, data, data))

    def copy_in(self):
        binary = self.random.random() < 0.5
        with self.connection.cursor() as cursor:
            options = "(FORMAT BINARY)" if binary else ""
            with cursor.copy(f"COPY v FROM STDIN {options}") as copy:
                if binary:
                    copy.set_types(["int4", "bytea", "bytea"])
                for _ in range(self.random.randint(1, 4)):
                    data = self.content()
                    copy.write_row((self.new_id(), data, data))

    def copy_out_and_in(self):
        """Rows as COPY wrote them, the columns exchanged."""
        format = self.random.choice(["text", "csv", "binary"])
        query = (f"COPY (SELECT id, b, o FROM v WHERE id = {self.old_id()})"
                 f" TO STDOUT (FORMAT {format})")
        with self.connection.cursor() as cursor, cursor.copy(query) as copy:
            data = b"".join(bytes(block) for block in copy)
        self.execute("CREATE TABLE moved (id int, o bytea, b blobstate)")
        with self.connection.cursor() as cursor:
            with cursor.copy(f"COPY moved FROM STDIN (FORMAT {format})") as copy:
                copy.write(data)
        self.execute("INSERT INTO v SELECT %s, b, o FROM moved", (self.new_id(),))
        self.execute("DROP TABLE moved")

    def create_table_as(self):
        self.execute("CREATE TABLE made AS SELECT o::blobstate AS b, o FROM v WHERE id = %s"
                     % self.old_id())
        self.execute("INSERT INTO v SELECT %s, b, o FROM made", (self.new_id(),))
        self.execute("DROP TABLE made")

    def update_parameter(self):
        data = self.content()
        self.execute("UPDATE v SET b = %b, o = %b WHERE id = %s", (data, data, self.old_id()))

    def update_from_row(self):
        self.execute("UPDATE v SET b = w.b, o = w.o FROM v w WHERE v.id = %s AND w.id = %s",
                     (self.old_id(), self.old_id()))

    def update_from_range(self):
        start, length = self.random.choice(BORDERS), self.size()
        self.execute("UPDATE v SET b = blob_read(b, %s, %s), o = substring(o FROM %s FOR %s)"
                     " WHERE id = %s", (start, length, start + 1, length, self.old_id()))

    def insert_aggregate(self):
        """Pieces of all sizes, NULL among them, by turns with a second aggregate."""
        pieces = [self.content()[:300_000] for _ in range(self.random.randint(1, 12))]
        pieces[self.random.randrange(len(pieces))] = None
        self.execute("INSERT INTO v SELECT %s + n %% 2, coalesce(blob_agg(x ORDER BY n), ''),"
                     " coalesce(string_agg(x, '' ORDER BY n), '')"
                     " FROM unnest(%s::bytea[]) WITH ORDINALITY AS u (x, n) GROUP BY n %% 2",
                     (self.last_id + 1, pieces))
        self.new_id()
        self.new_id()

    def insert_aggregate_of_values(self):
        ids = [self.old_id() for _ in range(3)]
        self.execute("INSERT INTO v SELECT %s, coalesce(blob_agg(b ORDER BY id), ''),"
                     " coalesce(string_agg(o, '' ORDER BY id), '') FROM v"
                     " WHERE id = ANY (%s) AND length(b) < 2000000", (self.new_id(), ids))

    def insert_chunks(self):
        size = max(1, self.random.choice(BORDERS) + self.random.randint(-2, 2))
        self.execute("INSERT INTO v SELECT %s, (SELECT blob_agg(data) FROM blob_chunks(b, %s)), o"
                     " FROM v WHERE id = %s AND length(b) BETWEEN 1 AND %s",
                     (self.new_id(), size, self.old_id(), 500 * size))

    def through_file(self):
        path = os.path.join(os.getcwd(), "fuzz_file")
        row = self.execute("SELECT blob_export(b, %s), sha256(o) FROM v WHERE id = %s",
                           (path, self.old_id())).fetchone()
        if row is None or row[0] is None:
            return
        output = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True)
        if output.stdout.split()[0] != row[1].hex() or os.path.getsize(path) != row[0]:
            raise Mismatch("exported file")
        self.execute("INSERT INTO v SELECT %s, blob_import(%s), pg_read_binary_file(%s)",
                     (self.new_id(), path, path))

    def through_large_object(self):
        # a statement does not see the large objects that it makes
        row = self.execute("SELECT blob_to_lo(b), sha256(o) FROM v WHERE id = %s",
                           (self.old_id(),)).fetchone()
        if row is None or row[0] is None:
            return
        self.execute("INSERT INTO v SELECT %s, blob_from_lo(%s::oid), lo_get(%s::oid)",
                     (self.new_id(), row[0], row[0]))
        if self.execute("SELECT sha256(b) FROM v WHERE id = %s",
                        (self.last_id,)).fetchone()[0] != row[1]:
            raise Mismatch("large object")
        self.execute("SELECT lo_unlink(oid) FROM pg_largeobject_metadata")

    def insert_array(self):
        values = [self.content()[:100_000] for _ in range(self.random.randint(0, 4))]
        self.execute("INSERT INTO a VALUES (%s, %s::bytea[]::blobstate[], %s::bytea[])",
                     (self.new_id(), values, values))

    def array_to_rows(self):
        self.last_id += 100
        self.execute("INSERT INTO v SELECT %s + n, x, y"
                     " FROM a, unnest(b, o) WITH ORDINALITY u (x, y, n)"
                     " WHERE id = (SELECT max(id) FROM a)", (self.last_id - 100,))
        self.ids += [self.last_id - 100 + n for n in range(1, 5)]

    # ---- operations that change values ----

    def position(self, size, extents):
        """An offset in a value: at random, or where something ends."""
        if self.random.random() < 0.3:
            return self.random.randint(0, size)
        borders = BORDERS + extents + [size, size // 4096 * 4096, size // 64 * 64]
        return min(size, max(0, self.random.choice(borders) + self.random.randint(-1, 1)))

    def change(self, old, extents):
        """An expression for a changed value, its parameters, and the array changed likewise."""
        data = self.content()[:300_000]
        offset = self.position(len(old), extents)
        kind = self.random.choices(["append", "||", "prepend", "write", "beyond", "insert",
                                    "delete", "truncate", "double", "patch"],
                                   [8, 8, 1, 4, 1, 2, 3, 3, 1, 5])[0]
        if kind == "append":
            return "blob_append(b, %b)", (data,), array_append(old, data)
        if kind == "||":
            return "b || %b::bytea", (data,), array_append(old, data)
        if kind == "prepend":
            return "%b::bytea || b", (data,), array_prepend(old, data)
        if kind == "double" and len(old) < 3_000_000:
            return "b || b", (), array_append(old, old)
        if kind == "write":
            return "blob_write(b, %s, %b)", (offset, data), array_write(old, offset, data)
        if kind == "beyond":
            offset = len(old) + self.random.choice([0, 1, 64, 4095, 4096, 100_000])
            return "blob_write(b, %s, %b)", (offset, data), array_write(old, offset, data)
        if kind == "patch":
            offsets, pieces = self.patch(len(old), extents)
            return ("blob_patch(b, %s, %b)", (offsets, pieces),
                    array_patch(old, offsets, pieces))
        if kind == "insert":
            return "blob_insert(b, %s, %b)", (offset, data), array_insert(old, offset, data)
        if kind == "delete":
            length = max(0, self.position(len(old), extents) - offset)
            return "blob_delete(b, %s, %s)", (offset, length), array_delete(old, offset, length)
        if self.random.random() < 0.1:
            offset += self.random.choice([1, 4096, 70_000])
        return "blob_truncate(b, %s)", (offset,), array_truncate(old, offset)

    def patch(self, size, extents):
        """Pieces in their order, without overlaps; some begin behind the end."""
        offsets = {self.position(size, extents) for _ in range(self.random.randint(0, 6))}
        if self.random.random() < 0.5:
            offsets.add(size + self.random.choice([0, 1, 64, 4095, 4096, 100_000]))
        offsets = sorted(offsets)
        limits = [end - start for start, end in zip(offsets, offsets[1:])]
        limits += [300_000] * bool(offsets)
        pieces = []
        for limit in limits:
            length = self.random.choice([0, 1, 64, 5000, 100_000, limit])
            pieces.append(self.random.randbytes(min(length, limit)))
        return offsets, pieces

    def fetch(self, row_id):
        """Content and ends of extents of a row, or None; rows of moderate size only."""
        row = self.execute(
            "SELECT o, (SELECT array_agg(e) FROM (SELECT sum(bytes) OVER (ORDER BY extent_no)"
            " ::bigint FROM blob_extents(b)) x (e)) FROM v WHERE id = %s AND length(b) < 6000000",
            (row_id,), binary=True).fetchone()
        return row and (row[0], row[1] or [])

    @staticmethod
    def compare(what, found, array):
        """found: content, size, digest."""
        content, size, digest = found
        if content != array or size != len(array) or digest != hashlib.sha256(array).digest():
            raise Mismatch(f"{what}: {size} bytes instead of {len(array)},"
                           f" content {'equal' if content == array else 'differs'}")

    def change_row(self):
        """A chain of changes; each result is compared."""
        row_id = self.old_id()
        row = self.fetch(row_id)
        for _ in range(self.random.randint(1, 4)):
            if row is None or row[0] is None:
                return
            expression, parameters, array = self.change(*row)
            found = self.execute(
                f"UPDATE v SET b = {expression}, o = %b WHERE id = %s"
                " RETURNING b::bytea, length(b), sha256(b)", parameters + (array, row_id),
                binary=True).fetchone()
            self.compare(f"row {row_id}, {expression} {parameters[:1]}", found, array)
            row = self.fetch(row_id)

    def change_unstored(self):
        """Two results of one version in one query, which are not stored."""
        row_id = self.old_id()
        row = self.fetch(row_id)
        if row is None or row[0] is None:
            return
        first, first_parameters, first_array = self.change(*row)
        second, second_parameters, second_array = self.change(*row)
        found = self.execute(
            f"SELECT x::bytea, length(x), sha256(x), y::bytea, length(y), sha256(y) FROM"
            f" (SELECT {first} AS x, {second} AS y FROM v WHERE id = %s OFFSET 0) s",
            first_parameters + second_parameters + (row_id,), binary=True).fetchone()
        self.compare(f"row {row_id}, {first}", found[:3], first_array)
        self.compare(f"row {row_id}, {second}", found[3:], second_array)

    def change_and_undo(self):
        """Growth of a version whose growth was rolled back."""
        self.execute("SAVEPOINT u")
        self.change_row()
        self.execute("ROLLBACK TO u")
        self.execute("RELEASE u")
        self.change_row()

    # ---- the second session ----

    def keep_snapshot(self):
        """The second session takes a snapshot of the committed values."""
        self.other.rollback()
        self.other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.snapshot = self.other.execute(
            "SELECT array_agg(ROW(id, length(o), sha256(o))::text ORDER BY id) FROM v"
        ).fetchone()

    def read_snapshot(self):
        if self.snapshot is None:
            return
        found = self.other.execute(
            "SELECT array_agg(ROW(id, length(b), sha256(b::bytea))::text ORDER BY id) FROM v"
        ).fetchone()
        if found != self.snapshot:
            raise Mismatch("old versions have changed")

    def change_elsewhere(self):
        """The second session grows versions that the first may be growing, too."""
        row_id = self.old_id()
        row = self.other.execute("SELECT o FROM v WHERE id = %s AND length(b) < 6000000",
                                 (row_id,), binary=True).fetchone()
        if row is None or row[0] is None:
            return
        expression, parameters, array = self.change(row[0], [])
        found = self.other.execute(
            f"INSERT INTO w SELECT id, {expression}, %b, %s FROM v WHERE id = %s"
            " RETURNING b::bytea, length(b), sha256(b)",
            parameters + (hashlib.sha256(array).digest(), len(array), row_id),
            binary=True).fetchone()
        self.compare(f"second session, row {row_id}, {expression}", found, array)
        if self.random.random() < 0.3:
            self.snapshot = None
            self.random.choice([self.other.commit, self.other.rollback])()

    def grow_elsewhere(self):
        """Growth of a value that the second session has stored."""
        self.other.rollback()
        self.snapshot = None
        row = self.other.execute("SELECT ctid, b::bytea FROM w WHERE size < 6000000"
                                 " ORDER BY random() LIMIT 1", binary=False).fetchone()
        if row:
            expression, parameters, array = self.change(row[1], [])
            self.other.execute(
                f"UPDATE w SET b = {expression}, digest = %b, size = %s WHERE ctid = %s::tid",
                parameters + (hashlib.sha256(array).digest(), len(array), row[0]))
        self.other.execute("DELETE FROM w WHERE id % 5 = 0 AND size > 100000")
        self.other.commit()

    def delete(self):
        self.execute("DELETE FROM v WHERE id = %s", (self.old_id(),))

    # ---- operations that read ----

    def read_ranges(self):
        for _ in range(5):
            row_id = self.old_id()
            start = max(0, self.random.choice(BORDERS) + self.random.randint(-2, 2))
            length = self.size()
            if self.random.random() < 0.2:
                start = self.random.choice([2**31 - 1, 2**31, 2**62, self.size()])
            row = self.execute(
                "SELECT blob_read(b, %(s)s, %(l)s), substr(b, %(s)s::bigint + 1, %(l)s),"
                " substring(o FROM least(%(s)s::bigint, 1000000000)::int + 1 FOR %(l)s) FROM v"
                " WHERE id = %(i)s", {"s": start, "l": length, "i": row_id}, binary=True).fetchone()
            if row and (row[0] != row[2] or row[1] != row[2]):
                raise Mismatch(f"row {row_id}: {length} bytes at {start}")

    def read_chunks(self):
        row_id = self.old_id()
        size = max(1, self.random.choice(BORDERS) + self.random.randint(-2, 2))
        row = self.execute("SELECT string_agg(data, '') IS NOT DISTINCT FROM nullif(o, ''),"
                           " count(data) = (length(o) + %(n)s::int - 1) / %(n)s::int"
                           " FROM v LEFT JOIN LATERAL blob_chunks(b, %(n)s) ON true"
                           " WHERE id = %(id)s AND length(b) <= 500 * %(n)s::bigint GROUP BY o",
                           {"n": size, "id": row_id}).fetchone()
        if row and row != (True, True):
            raise Mismatch(f"row {row_id}: chunks of {size} bytes")

    def read_before_start(self):
        row_id, start, length = self.old_id(), -self.random.randint(0, 100), self.size()
        row = self.execute(
            "SELECT substring(b, %(s)s, %(l)s), substring(o, %(s)s, %(l)s),"
            " substring(b, %(s)s), substring(o, %(s)s) FROM v WHERE id = %(i)s",
            {"s": start, "l": length, "i": row_id}, binary=True).fetchone()
        if row and (row[0] != row[1] or row[2] != row[3]):
            raise Mismatch(f"row {row_id}: substring from {start}, {length}")

    # ---- expressions that bytea has, too: the same on both columns ----

    def needle(self, old):
        """Bytes that are perhaps in the value; few, where a search would take long."""
        start = self.random.randint(0, len(old))
        found = old[start:start + self.random.choice([0, 1, 2, 20, 20, 300, 33_000, 300_000])]
        if len(found) <= 300 and self.random.random() < 0.4:
            found += self.random.randbytes(1)
        return found

    def pattern(self, old):
        """A pattern of LIKE that perhaps matches."""
        pattern = b""
        at = 0
        for _ in range(self.random.randint(0, 5)):
            if self.random.random() < 0.6:
                pattern += b"%"
                at = self.random.randint(at, len(old))
            end = min(len(old), at + self.random.choice([0, 1, 3, 30, 400]))
            if self.random.random() < 0.2:
                end = len(old)
                at = max(at, end - 40)
            for byte in old[at:end]:
                kind = self.random.random()
                if kind < 0.1:
                    pattern += b"_"
                elif byte in b"%_\\" and kind < 0.99 or kind < 0.12:
                    pattern += b"\\" + bytes([byte])
                else:
                    pattern += bytes([byte])
            at = end
        return pattern + self.random.choice([b"", b"", b"%", b"%", b"%%_%", b"_", b"\\"])

    def place(self, size):
        """A number of a byte, perhaps outside of the value."""
        return self.random.choice([-1, 0, 1, self.position(size, []), size - 1, size, size + 1,
                                   self.random.randint(-10, size + 10)])

    def bytea_read(self, old):
        size = len(old)
        return self.random.choice([
            lambda: ("encode({c}, %s)", (self.random.choice(["hex", "base64", "escape"]),)),
            lambda: (self.random.choice(["md5", "sha224", "sha256", "sha384", "sha512"]) + "({c})",
                     ()),
            lambda: (self.random.choice(["bit_length", "bit_count"]) + "({c})", ()),
            lambda: ("convert_from({c}, '"
                     + self.random.choice(["UTF8", "LATIN1", "SQL_ASCII"]) + "')", ()),
            lambda: ("get_byte({c}, %s::int)", (self.place(size),)),
            lambda: ("get_bit({c}, %s::bigint)",
                     (8 * self.place(size) + self.random.randint(0, 7),)),
            lambda: ("position(%b::bytea IN {c})", (self.needle(old),)),
            lambda: ("{c} LIKE %b::bytea", (self.pattern(old),)),
            lambda: ("{c} NOT LIKE %b::bytea", (self.pattern(old),)),
            lambda: ("substring({c} FROM %s::int FOR %s::int)",
                     (self.place(size), self.place(size))),
            lambda: ("substring({c} FROM %s::int)", (self.place(size),)),
        ])()

    def bytea_change(self, old):
        size = len(old)
        ends = old[:self.random.randint(0, 20)] + old[size - self.random.randint(0, min(20, size)):]
        return self.random.choice([
            lambda: ("set_byte({c}, %s::int, %s::int)",
                     (self.place(size), self.random.randint(-1, 300))),
            lambda: ("set_bit({c}, %s::bigint, %s::int)",
                     (8 * self.place(size) + self.random.randint(0, 7),
                      self.random.choice([0, 0, 1, 1, 2]))),
            lambda: ("overlay({c} PLACING %b::bytea FROM %s::int)",
                     (self.content()[:100_000], self.place(size))),
            lambda: ("overlay({c} PLACING %b::bytea FROM %s::int FOR %s::int)",
                     (self.content()[:100_000], self.place(size), self.place(size))),
            lambda: ("overlay({c} PLACING %b::bytea FROM %s::int FOR -%s::int)",
                     (self.content()[:1000], self.place(size), self.random.randint(0, 5000))),
            lambda: (self.random.choice(["btrim", "ltrim", "rtrim"]) + "({c}, %b::bytea)", (ends,)),
        ])()

    def outcome(self, query, parameters):
        """The one row of a query, or its SQLSTATE."""
        self.execute("SAVEPOINT e")
        try:
            result = self.execute(query, parameters, binary=True).fetchone()
        except psycopg.Error as error:
            self.execute("ROLLBACK TO e")
            result = error.sqlstate
            self.counts["errors as those of bytea"] += 1
        self.execute("RELEASE e")
        return result

    def read_as_bytea(self):
        row_id = self.old_id()
        row = self.fetch(row_id)
        if row is None or row[0] is None:
            return
        for _ in range(5):
            expression, parameters = self.bytea_read(row[0])
            found, expected = (self.outcome(
                f"SELECT {expression.replace('{c}', column)} FROM v WHERE id = %s",
                parameters + (row_id,)) for column in ("b", "o"))
            if found != expected:
                raise Mismatch(f"row {row_id}: {expression} {str(parameters)[-500:]}:"
                               f" {str(found)[:200]} instead of {str(expected)[:200]}")

    def change_as_bytea(self):
        row_id = self.old_id()
        row = self.fetch(row_id)
        if row is None or row[0] is None:
            return
        expression, parameters = self.bytea_change(row[0])
        found, expected = (self.outcome(
            f"SELECT ({expression.replace('{c}', column)})::bytea FROM v WHERE id = %s",
            parameters + (row_id,)) for column in ("b", "o"))
        if found != expected:
            raise Mismatch(f"row {row_id}: {expression} {str(parameters)[:500]}")
        if isinstance(expected, tuple):
            array = expected[0]
            found = self.execute(
                f"UPDATE v SET b = {expression.replace('{c}', 'b')}, o = %b WHERE id = %s"
                " RETURNING b::bytea, length(b), sha256(b)", parameters + (array, row_id),
                binary=True).fetchone()
            self.compare(f"row {row_id}, {expression} {str(parameters)[:500]}", found, array)

    def aggregate_as_bytea(self):
        """string_agg() with NULL among values and delimiters."""
        row = self.execute(
            "SELECT string_agg(nullif(b, ''), nullif(d, '\\x03') ORDER BY id)::bytea"
            " IS NOT DISTINCT FROM string_agg(nullif(o, ''), nullif(d, '\\x03') ORDER BY id)"
            " FROM (SELECT id, b, o, decode(lpad(to_hex(id %% 5), 2, '0'), 'hex') AS d FROM v"
            " WHERE length(b) < 1000000 ORDER BY id %% 7, id LIMIT %s) AS v",
            (self.random.randint(0, 20),)).fetchone()
        if row != (True,):
            raise Mismatch("string_agg()")

    def read_whole(self):
        row_id = self.old_id()
        binary = self.random.random() < 0.5
        row = self.execute("SELECT b, o, b::text = o::text FROM v WHERE id = %s", (row_id,),
                           binary=binary).fetchone()
        if row and (not row[2] or (binary and row[0] != row[1])):
            raise Mismatch(f"row {row_id}: whole value")

    def compare_all(self):
        rows = self.execute(DIFFERENCES).fetchall()
        if rows:
            raise Mismatch(f"rows {[row[0] for row in rows]} differ")

    # ---- transactions, settings ----

    def commit(self):
        self.connection.commit()
        self.committed_ids = list(self.ids)
        self.savepoint_ids = None

    def rollback(self):
        self.connection.rollback()
        self.ids = list(self.committed_ids)
        self.savepoint_ids = None

    def savepoint(self):
        self.execute("SAVEPOINT s")
        self.savepoint_ids = list(self.ids)

    def rollback_to_savepoint(self):
        if self.savepoint_ids is not None:
            self.execute("ROLLBACK TO s")
            self.ids = list(self.savepoint_ids)

    def prepare_transaction(self):
        self.execute("PREPARE TRANSACTION 'fuzz'")
        self.connection.rollback()
        self.connection.autocommit = True
        if self.random.random() < 0.5:
            self.execute("COMMIT PREPARED 'fuzz'")
            self.committed_ids = list(self.ids)
        else:
            self.execute("ROLLBACK PREPARED 'fuzz'")
            self.ids = list(self.committed_ids)
        self.connection.autocommit = False
        self.savepoint_ids = None

    def change_setting(self):
        name, values = self.random.choice(SETTINGS)
        self.execute(f"SET {name} = {self.random.choice(values)}")

    def set_compression(self):
        method = self.random.choice(["none", "lz4", "zstd", "zstd", None])
        self.execute("SELECT blobext_set_compression('v', 'b', %s)", (method,))

    def set_digest(self):
        digest = self.random.choice(["deferred", "deferred", "sealed", None])
        self.execute("SELECT blobext_set_digest('v', 'b', %s)", (digest,))

    def recompress(self):
        method = self.random.choice(["none", "lz4", "zstd"])
        self.execute("UPDATE v SET b = blob_recompress(b, %s) WHERE id = %s",
                     (method, self.old_id()))
        self.read_ranges()

    def reconnect(self):
        self.commit()
        self.connection.close()
        self.other.close()
        self.connect()

    def vacuum(self):
        self.commit()
        self.other.rollback()
        self.snapshot = None
        self.connection.autocommit = True
        self.execute(self.random.choice(["VACUUM v", "VACUUM FULL v", "CLUSTER v USING v_pkey",
                                         "CHECKPOINT", "ANALYZE v", "DISCARD PLANS",
                                         "SELECT * FROM blobext_gc()", "SELECT * FROM blobext_gc()",
                                         "CALL blobext_dedup('v', 'b')",
                                         "CALL blobext_seal('v', 'b', 3)",
                                         "CALL blobext_recompress('v', 'b', 1)"]))
        self.connection.autocommit = False

    def shrink(self):
        """Keep the table small enough for thousands of operations."""
        total, rows = self.execute("SELECT coalesce(sum(length(b)), 0), count(*) FROM v").fetchone()
        if total > MAX_BYTES or rows > MAX_ROWS:
            self.execute("DELETE FROM v WHERE id %% 3 <> %s", (self.random.randrange(3),))
            self.execute("DELETE FROM a")
            self.ids = [row[0] for row in self.execute("SELECT id FROM v ORDER BY id")]

    # ---- the run ----

    OPERATIONS = [
        (insert_literal, 4), (insert_parameter, 8), (insert_prepared, 6), (insert_cast, 4),
        (insert_several, 3), (insert_interned, 4),
        (insert_by_function, 3), (insert_by_trigger, 3), (insert_select, 5),
        (insert_converted, 4), (insert_on_conflict, 4), (copy_in, 6), (copy_out_and_in, 3),
        (create_table_as, 2), (update_parameter, 8), (update_from_row, 4), (update_from_range, 4),
        (insert_aggregate, 3), (insert_aggregate_of_values, 2), (insert_chunks, 3),
        (through_file, 2), (through_large_object, 2), (read_chunks, 6),
        (insert_array, 3), (array_to_rows, 1), (delete, 4), (change_row, 25),
        (read_as_bytea, 12), (change_as_bytea, 12), (aggregate_as_bytea, 1),
        (change_unstored, 5), (change_and_undo, 5), (keep_snapshot, 1), (read_snapshot, 2),
        (change_elsewhere, 10), (grow_elsewhere, 4), (read_ranges, 20),
        (read_before_start, 4), (read_whole, 4), (compare_all, 1), (commit, 8), (rollback, 3),
        (set_compression, 2), (set_digest, 2), (recompress, 6),
        (savepoint, 5), (rollback_to_savepoint, 4), (prepare_transaction, 1), (change_setting, 6),
        (reconnect, 0.5), (vacuum, 1), (shrink, 4),
    ]

    def run(self, operations):
        functions, weights = zip(*self.OPERATIONS)
        for number in range(operations):
            operation = self.random.choices(functions, weights)[0]
            try:
                operation(self)
            except Exception as error:
                error.add_note(f"in operation {number}: {operation.__name__}")
                raise
            self.counts[operation.__name__] += 1
        self.read_snapshot()
        self.commit()
        self.other.commit()
        self.compare_all()
        problems = self.execute("SELECT * FROM blobext_check()").fetchall()
        if problems:
            raise Mismatch(f"blobext_check(): {problems[:10]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--operations", type=int, default=3000)
    arguments = parser.parse_args()

    print(f"# seed {arguments.seed}, {arguments.operations} operations", flush=True)
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS blobext")
        connection.execute(TABLES)
    oracle = Oracle(arguments.seed)
    start = time.monotonic()
    oracle.run(arguments.operations)
    stored = dict(oracle.execute("SELECT name, value FROM blobext_stat").fetchall())
    forms = oracle.execute("SELECT blob_storage(b), count(*) FROM v GROUP BY 1 ORDER BY 1")
    print(f"# {time.monotonic() - start:.1f} s, {stored['stored_blobs']} values,"
          f" {stored['stored_bytes'] / 1e6:.0f} MB in extents, {stored['content_reads']} reads,"
          f" at the end {forms.fetchall()}")
    missing = {f.__name__ for f, _ in Oracle.OPERATIONS} - set(oracle.counts)
    if missing and arguments.operations >= 3000:
        print(f"not ok - never done: {missing}")
        return 1
    print("ok - blobstate and bytea agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
