"""Random changes of values of all forms, by sessions beside each other and the collector.

Each session has tables of its own: of each method of compression, with digests in the rows and with
digests that changes leave open, with a unique index and with a hash index.  It keeps the content of
its rows as plain arrays, and changes both.  After each statement content, length and digest are
compared; others compare values of different histories with each other (=, order, DISTINCT, joins by
hash, look-ups in indexes), go back to savepoints, read old versions, change what another session
has committed, or change how a column is stored.  The collector runs all the time.

The seed repeats the choices of each session, not the timing between them.
"""

import argparse
import collections
import hashlib
import multiprocessing
import random
import re
import sys
import time

import psycopg

import oracle

METHODS = ["none", "lz4", "zstd"]
MAX_ROWS = 24
MAX_BYTES = 10_000_000
LARGE_BYTES = 7_000_000

# Errors of locks, which other sessions or the collector's workers may hold.
LOCKED = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)

SETTINGS = [
    ("blobext.inline_limit", [0, 64, 1024, 1900, 1900]),
    ("blobext.rewrite_limit", ["32kB", "32kB", "64kB", "200kB", "1MB"]),
    ("blobext.tail_extents", ["on", "on", "off"]),
    ("blobext.default_compression", METHODS),
    ("blobext.verify_reads", ["on", "off", "off"]),
    ("blobext.io_method", ["auto", "sync"]),
    ("synchronous_commit", ["on", "off"]),
    ("enable_seqscan", ["on", "on", "off"]),
    ("enable_hashagg", ["on", "on", "off"]),
]


class Pool:
    """Bytes of which contents are taken: some can be compressed, some cannot."""

    def __init__(self, choices):
        line = [choices.randbytes(64) for _ in range(50)]
        text = b"".join(choices.choice(line) for _ in range(30_000))
        noise = choices.randbytes(2_000_000)
        mixed = b"".join((noise if choices.random() < 0.5 else text)[at:at + 20_000]
                         for at in range(0, 1_800_000, 20_000))
        self.kinds = [noise, text, mixed, bytes(2_000_000)]
        self.random = choices

    def take(self, size):
        kind = self.random.choices(self.kinds, [4, 3, 3, 1])[0]
        whole = b""
        while len(whole) < size:
            at = self.random.randrange(len(kind))
            whole += kind[at:at + size - len(whole)]
        return whole


class Session:
    """Rows of one session: (table, number) -> content."""

    def __init__(self, no, sessions, seed):
        self.no = no
        self.random = random.Random(f"{seed} {no}")
        self.pool = Pool(self.random)
        self.others = [other for other in range(sessions) if other != no]
        self.plain = [f"s{method}_{no}" for method in METHODS]
        self.deferred = [f"d{method}_{no}" for method in METHODS]
        self.indexed = [f"u_{no}", f"h_{no}"]
        self.counts = collections.Counter()
        self.changes = 0
        self.last_id = 0
        self.rows = {}
        self.committed = {}
        self.savepoints = []
        self.snapshot = None
        self.connection = psycopg.connect()
        self.connection.prepare_threshold = None
        self.reader = psycopg.connect()
        self.set_up()

    def set_up(self):
        for table in self.plain + self.deferred + self.indexed:
            self.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, b blobstate, digest bytea)")
        for method in METHODS:
            for table in (f"s{method}_{self.no}", f"d{method}_{self.no}"):
                self.execute("SELECT blobext_set_compression(%s, 'b', %s)", (table, method))
            self.execute("SELECT blobext_set_digest(%s, 'b', 'deferred')",
                         (f"d{method}_{self.no}",))
        self.execute(f"CREATE UNIQUE INDEX ON u_{self.no} (b)")
        self.execute(f"CREATE INDEX ON h_{self.no} USING hash (b)")
        self.execute("SET lock_timeout = '5s'")
        self.execute("SET blobext.rewrite_limit = '32kB'")
        self.connection.commit()

    def execute(self, query, parameters=None):
        return self.connection.execute(query, parameters, binary=True)

    # ---- choices ----

    def size(self):
        kind = self.random.random()
        if kind < 0.15:
            return max(0, self.random.choice(oracle.BORDERS) + self.random.randint(-2, 2))
        if kind < 0.35:
            return int(2 ** self.random.uniform(0, 15))
        if kind < 0.985:
            return self.random.randint(33_000, 220_000)
        return self.random.randint(1_000_000, 5_000_000)

    def data(self):
        kind = self.random.random()
        if kind < 0.5:
            return self.pool.take(self.random.randint(0, 200))
        if kind < 0.8:
            return self.pool.take(self.random.randint(0, 5_000))
        if kind < 0.96:
            return self.pool.take(self.random.randint(0, 40_000))
        return self.pool.take(self.random.randint(0, 300_000))

    def position(self, size):
        if self.random.random() < 0.7:
            return self.random.randint(0, size)
        borders = [0, 4096, 16_384, 32_768, 65_536, 131_072, size // 4096 * 4096,
                   size // 64 * 64, size]
        return min(size, max(0, self.random.choice(borders) + self.random.randint(-1, 1)))

    def any_row(self, tables=None):
        keys = [key for key in self.rows if tables is None or key[0] in tables]
        return self.random.choice(keys) if keys else None

    def new_key(self, tables):
        self.last_id += 1
        return self.random.choice(tables), self.last_id

    # ---- changes ----

    def change(self, old):
        """A template for a changed value, its parameters, the array changed likewise."""
        self.changes += 1
        data = self.data()
        size = len(old)
        at = self.position(size)
        kinds = {"write": 25, "insert": 20, "delete": 20, "patch": 8, "append": 8, "||": 8,
                 "prepend": 2, "truncate": 3, "beyond": 1, "double": 1, "twice": 4,
                 "back": 3, "recompress": 2}
        if size > LARGE_BYTES:
            kinds = {"delete": 5, "truncate": 5}
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        self.counts[kind] += 1
        if kind == "write":
            return "blob_write({b}, %s, %b)", (at, data), oracle.array_write(old, at, data)
        if kind == "beyond":
            at = size + self.random.choice([0, 1, 64, 4096, 50_000])
            return "blob_write({b}, %s, %b)", (at, data), oracle.array_write(old, at, data)
        if kind == "insert":
            return "blob_insert({b}, %s, %b)", (at, data), oracle.array_insert(old, at, data)
        if kind == "delete":
            length = self.random.randint(0, self.random.choice([100, 5000, 40_000, 300_000]))
            return "blob_delete({b}, %s, %s)", (at, length), oracle.array_delete(old, at, length)
        if kind == "patch":
            offsets = sorted({self.position(size) for _ in range(self.random.randint(1, 5))})
            ends = offsets[1:] + [size + 100]
            pieces = [self.data()[:end - start] for start, end in zip(offsets, ends)]
            return ("blob_patch({b}, %s::bigint[], %b::bytea[])", (offsets, pieces),
                    oracle.array_patch(old, offsets, pieces))
        if kind == "append":
            return "blob_append({b}, %b)", (data,), old + data
        if kind == "||":
            return "({b} || %b::bytea)", (data,), old + data
        if kind == "prepend":
            return "(%b::bytea || {b})", (data,), data + old
        if kind == "truncate":
            return "blob_truncate({b}, %s)", (at,), oracle.array_truncate(old, at)
        if kind == "double" and size < 2_000_000:
            return "({b} || {b})", (), old + old
        if kind == "twice":
            # a change within what the one before has made
            inner = self.random.randint(0, len(data))
            more = self.data()[:2000]
            new = oracle.array_write(old, at, data)
            return ("blob_insert(blob_write({b}, %s, %b), %s, %b)", (at, data, at + inner, more),
                    oracle.array_insert(new, min(at + inner, len(new)), more)) if data else \
                ("{b}", (), old)
        if kind == "back":
            # the same content by another history
            return ("blob_write(blob_write({b}, %s, %b), %s, %b)",
                    (at, data[:size - at], at, old[at:at + len(data[:size - at])]), old)
        if kind == "recompress":
            return "blob_recompress({b}, %s)", (self.random.choice(METHODS),), old
        return "{b}", (), old

    def chain(self, old, column="b"):
        """Some changes in one expression.  An operand that is used twice has no parameters."""
        expression, parameters, array = column, (), old
        for _ in range(self.random.choice([1, 1, 2, 3, 5, 8, 13, 21])):
            template, more, changed = self.change(array)
            if template.count("{b}") > 1 and parameters:
                continue
            expression = template.replace("{b}", expression)
            # parameters stand in the order of the text: those of a prefix come first
            parameters = more + parameters if template.startswith("(%b") else parameters + more
            array = changed
        return expression, parameters, array

    def mismatch(self, what):
        return oracle.Mismatch(f"session {self.no}: {what}")

    def verify(self, what, found, array):
        """found: kind of the proof, the proof, the length."""
        proof, length = found
        expected = hashlib.sha256(array).digest() if len(proof) == 32 and proof != array else array
        if proof != expected or length != len(array):
            raise self.mismatch(f"{what}: {length} bytes instead of {len(array)}")

    @staticmethod
    def short(parameters):
        return [value if not isinstance(value, (bytes, list)) else f"{len(value)} bytes or pieces"
                for value in parameters]

    def proof(self):
        kind = self.random.random()
        return "sha256(b::bytea)" if kind < 0.8 else "b::bytea" if kind < 0.95 else "sha256(b)"

    def change_row(self):
        key = self.any_row(self.plain + self.deferred)
        if key is None:
            return
        expression, parameters, array = self.chain(self.rows[key])
        found = self.execute(
            f"UPDATE {key[0]} SET b = {expression}, digest = %b WHERE id = %s"
            f" RETURNING {self.proof()}, length(b), blob_digest_is_open(b)",
            parameters + (hashlib.sha256(array).digest(), key[1])).fetchone()
        self.verify(f"{key}, {expression} {self.short(parameters)}", found[:2], array)
        self.counts["left open"] += found[2]
        self.rows[key] = array

    def change_unstored(self):
        """Two changes of one version."""
        key = self.any_row()
        if key is None:
            return
        first, parameters, array = self.chain(self.rows[key])
        second, more, other = self.chain(self.rows[key])
        found = self.execute(
            "SELECT sha256(x::bytea), length(x), sha256(y), length(y), x = y, x < y FROM"
            f" (SELECT {first} AS x, {second} AS y FROM {key[0]} WHERE id = %s OFFSET 0) AS s",
            parameters + more + (key[1],)).fetchone()
        self.verify(f"{key}, {first} {self.short(parameters)}", found[:2], array)
        self.verify(f"{key}, {second} {self.short(more)}", found[2:4], other)
        if found[4:] != (array == other, array < other):
            raise self.mismatch(f"comparison of two changes of {key}")

    def change_of_others(self):
        """A change of what another session has committed, and may be changing, too."""
        if not self.others:
            return
        other = self.random.choice(self.others)
        table = f"{self.random.choice('sd')}{self.random.choice(METHODS)}_{other}"
        row = self.execute(f"SELECT id, b::bytea, digest, ctid::text FROM {table}"
                           " WHERE length(b) < 1000000 ORDER BY random() LIMIT 1").fetchone()
        if row is None:
            return
        self.verify(f"{table} {row[0]}, of another session", (row[2], len(row[1])), row[1])
        expression, parameters, array = self.chain(row[1])
        key = self.new_key(self.plain + self.deferred)
        found = self.execute(
            f"INSERT INTO {key[0]} SELECT %s, {expression}, %b FROM {table}"
            f" WHERE ctid = %s::tid AND digest = %b RETURNING {self.proof()}, length(b)",
            (key[1],) + parameters + (hashlib.sha256(array).digest(), row[3], row[2])).fetchone()
        if found is not None:
            self.verify(f"{key} of {table}, {expression} {self.short(parameters)}", found, array)
            self.rows[key] = array

    # ---- other rows ----

    def insert(self):
        data = self.pool.take(self.size())
        key = self.new_key(self.plain + self.deferred)
        self.execute(f"INSERT INTO {key[0]} VALUES (%s, %b, %b)",
                     (key[1], data, hashlib.sha256(data).digest()))
        self.rows[key] = data

    def copy(self):
        source = self.any_row()
        if source is None:
            return
        key = self.new_key(self.plain + self.deferred)
        self.execute(f"INSERT INTO {key[0]} SELECT %s, b, digest FROM {source[0]} WHERE id = %s",
                     (key[1], source[1]))
        self.rows[key] = self.rows[source]

    def copy_to_index(self):
        """Into a table with an index; a unique one refuses content that it has."""
        source = self.any_row(self.plain + self.deferred)
        if source is None or len(self.rows[source]) > 3_000_000:
            return
        array = self.rows[source]
        key = self.new_key(self.indexed)
        found = self.execute(
            f"INSERT INTO {key[0]} SELECT %s, b, digest FROM {source[0]} WHERE id = %s"
            " ON CONFLICT DO NOTHING RETURNING sha256(b::bytea), length(b)",
            (key[1], source[1])).fetchone()
        has = key[0].startswith("u") and any(other[0] == key[0] and self.rows[other] == array
                                             for other in self.rows)
        if (found is None) != has:
            raise self.mismatch(f"UNIQUE took {source}, {has} {found}")
        if found is not None:
            self.verify(f"{key}", found, array)
            self.rows[key] = array

    def delete(self):
        key = self.any_row()
        if key is not None:
            self.execute(f"DELETE FROM {key[0]} WHERE id = %s", (key[1],))
            del self.rows[key]

    def shrink(self):
        while len(self.rows) > MAX_ROWS or sum(map(len, self.rows.values())) > MAX_BYTES:
            self.delete()

    # ---- comparisons ----

    def compare_pair(self):
        a, b = self.any_row(), self.any_row()
        if a is None:
            return
        found = self.execute(
            f"SELECT x.b = y.b, x.b <> y.b, x.b < y.b, x.b >= y.b FROM {a[0]} AS x, {b[0]} AS y"
            " WHERE x.id = %s AND y.id = %s", (a[1], b[1])).fetchone()
        x, y = self.rows[a], self.rows[b]
        if found != (x == y, x != y, x < y, x >= y):
            raise self.mismatch(f"{a} and {b} compare as {found}")

    def look_up(self):
        """A value as a key of an index over others."""
        key = self.any_row()
        if key is None:
            return
        table = self.random.choice(self.indexed)
        found = self.execute(f"SELECT array_agg(x.id ORDER BY x.id) FROM {key[0]} AS y,"
                             f" {table} AS x WHERE y.id = %s AND x.b = y.b",
                             (key[1],)).fetchone()[0] or []
        expected = sorted(number for name, number in self.rows
                          if name == table and self.rows[name, number] == self.rows[key])
        if found != expected:
            raise self.mismatch(f"{key} in {table}: {found} instead of {expected}")

    def compare_sets(self):
        tables = self.random.sample(self.plain + self.deferred + self.indexed, 3)
        rows = {key: self.rows[key] for key in self.rows if key[0] in tables}
        union = " UNION ALL ".join(f"SELECT id, b FROM {table}" for table in tables)
        kind = self.random.randrange(4)
        if kind == 0:
            found = self.execute(f"SELECT count(DISTINCT b) FROM ({union}) AS s").fetchone()[0]
            expected = len(set(rows.values()))
        elif kind == 1:
            found = self.execute(f"SELECT count(*) FROM ({union}) AS x JOIN ({union}) AS y"
                                 " USING (b)").fetchone()[0]
            expected = sum(count ** 2 for count in collections.Counter(rows.values()).values())
        elif kind == 2:
            found = [row[0] for row in self.execute(
                f"SELECT id FROM ({union}) AS s ORDER BY b, id")]
            expected = [key[1] for key in sorted(rows, key=lambda key: (rows[key], key[1]))]
        else:
            found = sorted(row[0] for row in self.execute(
                f"SELECT min(id) FROM ({union}) AS s GROUP BY b"))
            first = {}
            for key, array in rows.items():
                first[array] = min(key[1], first.get(array, key[1]))
            expected = sorted(first.values())
        if found != expected:
            raise self.mismatch(f"set {kind} of {tables}: {found} instead of {expected}")

    def read_ranges(self):
        key = self.any_row()
        if key is None:
            return
        array = self.rows[key]
        places = [(self.position(len(array)), self.random.choice([1, 100, 5000, 100_000]))
                  for _ in range(4)]
        calls = ", ".join(["blob_read(b, %s, %s)"] * len(places))
        numbers = tuple(number for place in places for number in place)
        found = self.execute(f"SELECT {calls} FROM {key[0]} WHERE id = %s",
                             numbers + (key[1],)).fetchone()
        for (at, length), part in zip(places, found):
            if part != array[at:at + length]:
                raise self.mismatch(f"{key} from {at}, {length} bytes")

    def compare_all(self):
        """All rows, and none besides."""
        self.compare_rows(self.connection, self.rows)

    def compare_rows(self, connection, rows):
        found = {}
        for table in self.plain + self.deferred + self.indexed:
            for number, digest, kept in connection.execute(
                    f"SELECT id, sha256(b::bytea), digest FROM {table}", binary=True):
                found[table, number] = digest
                if digest != kept:
                    raise self.mismatch(f"{table} {number} has other content")
        expected = {key: hashlib.sha256(array).digest() for key, array in rows.items()}
        if found != expected:
            differ = [key for key in set(found) | set(expected)
                      if found.get(key) != expected.get(key)]
            raise self.mismatch(f"rows {differ[:10]} differ")

    # ---- transactions ----

    def savepoint(self):
        self.execute(f"SAVEPOINT s{len(self.savepoints)}")
        self.savepoints.append(dict(self.rows))

    def end_savepoint(self):
        if not self.savepoints:
            return
        no = self.random.randrange(len(self.savepoints))
        if self.random.random() < 0.6:
            self.execute(f"ROLLBACK TO s{no}")
            self.rows = dict(self.savepoints[no])
            del self.savepoints[no + 1:]
        else:
            self.execute(f"RELEASE s{no}")
            del self.savepoints[no:]

    def keep_snapshot(self):
        self.reader.rollback()
        self.reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.reader.execute("SELECT 1")
        self.snapshot = self.committed

    def read_snapshot(self):
        if self.snapshot is not None:
            self.compare_rows(self.reader, self.snapshot)
            self.drop_snapshot()

    def drop_snapshot(self):
        self.reader.rollback()
        self.snapshot = None

    def change_setting(self):
        name, values = self.random.choice(SETTINGS)
        self.execute(f"SET {name} = '{self.random.choice(values)}'")

    OPERATIONS = [
        (change_row, 70), (change_unstored, 4), (change_of_others, 3), (insert, 3), (copy, 4),
        (copy_to_index, 3), (delete, 2), (compare_pair, 5), (look_up, 3), (compare_sets, 1),
        (read_ranges, 5), (savepoint, 3), (end_savepoint, 3),
        (keep_snapshot, 0.3), (read_snapshot, 0.5), (change_setting, 2), (compare_all, 0.2)]

    def transaction(self):
        functions, weights = zip(*self.OPERATIONS)
        if self.random.random() < 0.3:
            self.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for _ in range(self.random.randint(1, 30)):
            operation = self.random.choices(functions, weights)[0]
            operation(self)
            self.counts[operation.__name__] += 1
            self.shrink()
        if self.random.random() < 0.8:
            self.connection.commit()
            self.committed = dict(self.rows)
        else:
            self.roll_back()
        self.savepoints = []

    def roll_back(self):
        self.connection.rollback()
        self.rows = dict(self.committed)
        self.savepoints = []

    def maintain(self):
        """Statements that are transactions of their own."""
        table = self.random.choice(self.plain + self.deferred)
        label = self.random.choice(self.deferred)
        digest = self.random.choice(["deferred", "deferred", "sealed"])
        statement = self.random.choice([
            f"CALL blobext_seal('{label}', 'b', 3)", f"CALL blobext_dedup('{table}', 'b')",
            f"CALL blobext_recompress('{table}', 'b', 2)",
            f"CALL blobext_defragment('{table}', 'b')", f"VACUUM {table}", f"VACUUM FULL {table}",
            f"REINDEX TABLE u_{self.no}", f"VACUUM u_{self.no}",
            f"ANALYZE {table}", f"UPDATE {table} SET b = b",
            f"SELECT blobext_set_digest('{label}', 'b', '{digest}')",
            f"SELECT blobext_set_compression('{table}', 'b', '{self.random.choice(METHODS)}')"])
        self.drop_snapshot()
        self.connection.autocommit = True
        self.execute(statement)
        self.connection.autocommit = False
        self.counts[re.match(r"[A-Z ]+(blobext_[a-z_]+)?", statement)[0]] += 1

    def run(self, changes, told):
        start = time.monotonic()
        while self.changes < changes:
            try:
                self.transaction() if self.random.random() < 0.93 else self.maintain()
            except LOCKED as error:
                self.counts[type(error).__name__] += 1
                self.roll_back()
                self.connection.autocommit = False
            if self.changes // told > self.counts["told"]:
                self.counts["told"] = self.changes // told
                print(f"# session {self.no}: {self.changes} changes,"
                      f" {time.monotonic() - start:.0f} s", flush=True)
        self.drop_snapshot()
        self.compare_all()
        self.connection.commit()


def live(no, sessions, arguments):
    try:
        session = Session(no, sessions, arguments.seed)
        ready.wait()
        session.run(arguments.changes // sessions, 20_000)
        print(f"# session {no}: {dict(session.counts)}", flush=True)
        with left_open.get_lock():
            left_open.value += session.counts["left open"]
    except Exception:
        over.set()
        ready.abort()
        raise


def collect(no, seed):
    choices = random.Random(seed)
    freed = 0
    rounds = 0
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        while not over.is_set():
            row = connection.execute(
                "SELECT freed_blobs, skipped_reason FROM blobext_gc()").fetchone()
            freed += row[0] or 0
            rounds += row[1] is None
            if choices.random() < 0.3:
                connection.execute("CHECKPOINT")
    print(f"# the collector freed {freed} values in {rounds} rounds", flush=True)


def main():
    global ready, over, left_open
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--sessions", type=int, default=2)
    arguments = parser.parse_args()

    print(f"# seed {arguments.seed}, {arguments.changes} changes by {arguments.sessions} sessions",
          flush=True)
    ready = multiprocessing.Barrier(arguments.sessions)
    over = multiprocessing.Event()
    left_open = multiprocessing.Value("q", 0)
    collector = multiprocessing.Process(target=collect, args=(0, arguments.seed))
    sessions = [multiprocessing.Process(target=live, args=(no, arguments.sessions, arguments))
                for no in range(arguments.sessions)]
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET blobext.autogc = on")
        connection.execute("SELECT pg_reload_conf()")
    start = time.monotonic()
    for process in [collector] + sessions:
        process.start()
    for process in sessions:
        process.join()
    over.set()
    collector.join()
    failed = sum(process.exitcode != 0 for process in [collector] + sessions)
    with psycopg.connect(autocommit=True) as connection:
        problems = connection.execute("SELECT * FROM blobext_check()").fetchall()
        stored = dict(connection.execute("SELECT name, value FROM blobext_stat").fetchall())
    print(f"# {time.monotonic() - start:.1f} s, {stored['stored_blobs']} values,"
          f" {stored['stored_bytes'] / 1e6:.0f} MB in extents,"
          f" {left_open.value} changes left the digest open")
    if problems:
        print(f"blobext_check(): {problems[:10]}")
    if failed or problems or not left_open.value:
        print("not ok - values and arrays")
        return 1
    print("ok - values and arrays agree after all changes")
    return 0


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    sys.exit(main())
