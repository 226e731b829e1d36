"""Mutated datums of type blobstate through everything that takes one, as an ordinary role.

SQL cannot spell a descriptor, so functions that only this test has turn bytes into a datum and
back.  Everything that takes a blobstate is read from the catalog: functions, aggregates, operators
and casts are called; support functions that SQL cannot call must be named here, with the
statement that calls them.  So a new function is either tested, or fails the test.

Damage must be an error with one of the SQLSTATEs below, never an internal error, a crash, a wait,
or a store that grows by the size that a forged descriptor has.

No role reads another role's bytes.  A descriptor names pages and a generation; extents that were
freed and allocated again have a larger one.  Besides sound values, a session can hold only old
values: from a plan, a variable, a snapshot too old.  So as long as the generation of a datum is
below those of another role's values, no result and no message may contain their content, and no
value made of the datum may.  Datums of a larger generation that name another role's pages do read
them.  The protection against these is that no role can make one, see "No descriptor can be
spelled" in src/README.md.  They are tested too, but for the other rules only; that they read the
pages shows that this test would notice a datum that does.

A session that has read another role's content can append it to a value of its own, and then the
bytes are in pages that it has claimed in an extent of that value.  A forged descriptor of the value
with a larger size reads these pages.  That is no disclosure: the session had the bytes, it put them
there.  So datums that may read another role's content, here called trusted, are never in one call,
or one batch of rows, with extents that the other datums may read.  They name extents of values that
the same role has stored after the other role's values.

Seen to fail: where a change shared extents without asking the map which value has them, "||" with a
stale value gave another role's bytes, in the second round.  See run_known() for the rest.

At the end each sound value of every role has the content that it had, blobext_check() is empty,
also after a collection.  No page of an extent with a generation below the other role's has content
of that role, whether a value has the page or not.  The seed is printed; it repeats the run.

Seen to fail: where trusted datums were in calls with extents of older values, "||" of a sound value
and such a datum put another role's bytes into a page behind the value (seed 1386734949).
"""

import argparse
import collections
import hashlib
import os
import random
import sys

import psycopg

MARKER = b"<another role's secret>"

# Datum invalid; stale; missing; program limits; data exceptions.
ALLOWED = ("XX001", "XB001", "XB002", "54000", "22")

# Bounded, so that a statement that hangs fails.
SETTINGS = "SET statement_timeout = '120s'; SET client_min_messages = error"

# Longer than the inline limit, and short enough for many calls; from 64 kB on a value is sent while
# it is read (src/client).
SIZES = [1901, 4096, 4097, 3 * 4096, 30_000, 7 * 4096, 100_000, 300_000]

# The number of rows of blob_chunks() grows with the size; they are counted before the first one is
# read.
MAX_CHUNKS = 100_000

MAX_STORE_BYTES = 2_000_000_000

# Fields of a descriptor: offset, bytes.  See src/core/descriptor.h.
FIELDS = {
    "form": (0, 1), "flags": (1, 1), "extents": (2, 2), "generation": (4, 8), "size": (12, 8),
    "sha256": (20, 8), "state": (52, 8), "prefix": (84, 8), "tail": (116, 6),
    "tail_pages": (122, 6), "tail_position": (128, 2), "tail_content": (130, 6),
    "remainder_bytes": (136, 2), "remainder_page": (138, 6), "starts": (144, 6),
    "first_starts": (128, 6), "compressed_starts": (192, 6), "stored": (144, 8), "method": (152, 1),
    "frame_bits": (153, 1), "level": (154, 1), "frames_inline": (156, 2), "root": (158, 6),
    "frame_count": (164, 8), "open": (172, 6), "open_bytes": (178, 6), "open_crc": (184, 4),
    "frame": (192, 24),
}
GENERATION = slice(4, 12)
# Entries of a block of the map: 2^32 times that many pages further, block numbers begin again.
MAP_ENTRIES = 510
FORMS = (0x01, 0x11, 0x12, 0x21)

# Where the extent starts of a form begin.
STARTS = {0x12: 144, 0x21: 192}

# Support functions that SQL cannot call, and which statements of Rows call them.
INDIRECT = {
    "blob_agg_blobstate_transfn(internal,blobstate)": "aggregate blob_agg",
    "blob_string_agg_transfn(internal,blobstate,bytea)": "aggregate string_agg",
    "blobstate_sortsupport(internal)": "sort",
    "blobstate_typanalyze(internal)": "analyze",
}

PREPARE = """
CREATE EXTENSION blobext;
CREATE SCHEMA raw;
CREATE FUNCTION raw.datum(bytea, short boolean) RETURNS blobstate
    AS '{library}', 'unit_headed_datum' LANGUAGE C STRICT;
CREATE FUNCTION raw.bytes(blobstate) RETURNS bytea
    AS '{library}', 'unit_datum_bytes' LANGUAGE C STRICT;
CREATE FUNCTION raw.wal(regclass, version integer, what text, VARIADIC arguments bigint[])
    RETURNS void AS '{library}', 'unit_wal' LANGUAGE C STRICT;
REVOKE EXECUTE ON FUNCTION raw.wal FROM PUBLIC;
CREATE ROLE fuzzer; CREATE ROLE exporter; CREATE ROLE other;
GRANT fuzzer, pg_write_server_files TO exporter;
GRANT USAGE ON SCHEMA raw TO PUBLIC;
GRANT CREATE ON SCHEMA public TO fuzzer, other;
"""

# Functions that take a blobstate, and the support functions of the type and its operator classes.
FUNCTIONS = """
SELECT p.oid::regprocedure::text, p.oid::regproc::text, p.prokind::text, p.proretset,
    p.prorettype = 'blobstate'::regtype,
    ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) AS t),
    has_function_privilege('fuzzer', p.oid, 'EXECUTE')
FROM pg_proc AS p
WHERE p.pronamespace <> 'raw'::regnamespace
    AND ('blobstate'::regtype = ANY (p.proargtypes) OR 'blobstate[]'::regtype = ANY (p.proargtypes)
        OR 'blobstate_operand'::regtype = ANY (p.proargtypes)
        OR p.oid IN (SELECT amproc FROM pg_amproc WHERE 'blobstate'::regtype
            IN (amproclefttype, amprocrighttype))
        OR p.oid IN (SELECT typanalyze FROM pg_type WHERE oid = 'blobstate'::regtype))
ORDER BY 1
"""
OPERATORS = """
SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname), o.oprresult = 'blobstate'::regtype,
    CASE WHEN o.oprleft <> 0 THEN format_type(o.oprleft, NULL) END, format_type(o.oprright, NULL)
FROM pg_operator AS o JOIN pg_namespace AS n ON n.oid = o.oprnamespace
WHERE 'blobstate'::regtype IN (o.oprleft, o.oprright) ORDER BY 1, 3, 4
"""
CASTS = """
SELECT format_type(casttarget, NULL) FROM pg_cast WHERE castsource = 'blobstate'::regtype
UNION SELECT 'text' ORDER BY 1
"""

READ_CONTENT = "SELECT bytea(raw.datum(%s::bytea, false))"

# Of the calls and batches of rows, those that may read another role's content.
TRUSTED_PART = 0.2

Call = collections.namedtuple("Call", "name sql arguments gives_value role")


class Failure(Exception):
    pass


def is_allowed(error):
    if error.sqlstate == "0A000":
        return "compression method" in str(error)
    # Forged values may have one digest and other bytes, so that no order holds for all of them.
    if error.sqlstate == "XX000":
        return "mergejoin input data is out of order" in str(error)
    return error.sqlstate is not None and error.sqlstate.startswith(ALLOWED)


def without_content(datum):
    """A descriptor without the content that lies in it: the prefix, and the remainder."""
    fixed_end = STARTS.get(datum[0], 128)
    starts_bytes = 6 * int.from_bytes(datum[2:4], "little")
    remainder_bytes = len(datum) - fixed_end - starts_bytes
    return datum[:84] + bytes(32) + datum[116:fixed_end + starts_bytes] + bytes(remainder_bytes)


def claimed_bytes(datum):
    """The size that a datum says."""
    is_descriptor = len(datum) >= 128 and datum[0] != 0x01
    return int.from_bytes(datum[12:20], "little") if is_descriptor else len(datum)


class Parts:
    """What a descriptor refers to."""

    def __init__(self, datum):
        self.datum = datum
        end = STARTS.get(datum[0], 128)
        count = int.from_bytes(datum[2:4], "little")
        self.extent_starts = [datum[at:at + 6] for at in range(end, end + 6 * count, 6)]
        self.tail = (int.from_bytes(datum[116:122], "little"),
                     int.from_bytes(datum[122:128], "little")) if datum[1] & 1 else None
        self.remainder_page = int.from_bytes(datum[138:144], "little") if datum[1] & 2 else None

    def page_fields(self):
        """Fields that name a page."""
        field = {0x12: "starts", 0x21: "compressed_starts"}.get(self.datum[0], "first_starts")
        return (["tail"] if self.tail else []) + ([field] if self.extent_starts else []) + \
            (["remainder_page"] if self.remainder_page else [])

    def names_any(self, pages):
        """Whether one of these pages, of 6 bytes each, is the first one of an extent."""
        numbers = [self.tail[0]] if self.tail else []
        numbers += [] if self.remainder_page is None else [self.remainder_page]
        return not pages.isdisjoint(
            self.extent_starts + [number.to_bytes(6, "little") for number in numbers])

    def all_bytes(self, generation):
        """A descriptor of all bytes of the extents, also of those that are no content of a value;
        of the page of a remainder, all but the last byte."""
        count = len(self.extent_starts)
        tail = self.tail or (0, 0)
        position = self.datum[128:130] if self.datum[0] == 0x12 else count.to_bytes(2, "little")
        remainder_bytes = 0 if self.remainder_page is None else 4095
        size = (2 ** count - 1 + tail[1]) * 4096 + remainder_bytes
        return bytes([0x12, self.datum[1]]) + count.to_bytes(2, "little") + \
            generation.to_bytes(8, "little") + size.to_bytes(8, "little") + self.datum[20:116] + \
            b"".join(number.to_bytes(6, "little") for number in tail) + position + \
            tail[1].to_bytes(6, "little") + remainder_bytes.to_bytes(2, "little") + \
            (self.remainder_page or 0).to_bytes(6, "little") + b"".join(self.extent_starts)


def generation_of(datum):
    """None if the datum is too short to be a descriptor."""
    return int.from_bytes(datum[GENERATION], "little") if len(datum) >= 128 else None


class Forge:
    """Datums: sound ones, and mutations of these."""

    def __init__(self, random_, own, old, foreign, generation, is_allowed):
        self.random = random_
        self.own = own              # sound, of the role that calls
        self.old = old              # sound once, its own; freed since
        self.foreign = foreign      # sound, of another role
        self.generation = generation    # the largest that a datum may have
        self.is_allowed = is_allowed    # whether this forge may return a datum
        self.own_parts = [Parts(datum) for datum in own if datum[:1] in (b"\x11", b"\x12")]
        self.all_parts = self.own_parts + [Parts(datum) for datum in old + foreign
                                           if datum[:1] in (b"\x11", b"\x12")]
        self.kinds = [self.sound, self.stale, self.stale, self.flip, self.flip, self.set_fields,
                      self.set_fields, self.set_fields, self.graft, self.graft, self.resize,
                      self.reform, self.repeat_extent_starts, self.noise, self.take_all,
                      self.compress, self.compress, self.compose, self.compose, self.compose]

    def any(self):
        while True:
            datum = bytes(self.random.choice(self.kinds)())
            if self.random.random() < 0.15:
                datum = bytes(self.flip_bits(bytearray(datum)))
            if self.is_allowed(datum):
                return datum

    def base(self):
        return bytearray(self.random.choice(self.own + self.old))

    def sound(self):
        return self.random.choice(self.own)

    def stale(self):
        return self.random.choice(self.old)

    def flip_bits(self, datum):
        for _ in range(self.random.choice([1, 1, 2, 4, 16]) if datum else 0):
            end = len(datum) if self.random.random() < 0.5 else min(len(datum), 160)
            datum[self.random.randrange(end)] ^= 1 << self.random.randrange(8)
        return datum

    def flip(self):
        return self.flip_bits(self.base())

    def set_field(self, datum, name):
        offset, length = FIELDS[name]
        if len(datum) < offset + length:
            return
        old = int.from_bytes(datum[offset:offset + length], "little")
        limit = 256 ** length - 1
        foreign = bytearray(self.random.choice(self.foreign))
        values = [0, 1, 2, 4095, 4096, old + 1, old - 1, old + 4096, old - 4096, old * 2, old // 2,
                  limit, limit - 1, limit // 2 + 1, self.random.randrange(limit),
                  self.random.randrange(2 ** self.random.randrange(1, 8 * length)),
                  old + 2 ** 32 * MAP_ENTRIES,
                  int.from_bytes(foreign[offset:offset + length], "little")]
        datum[offset:offset + length] = \
            (self.random.choice(values) & limit).to_bytes(length, "little")

    def set_fields(self):
        datum = self.base()
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            self.set_field(datum, self.random.choice(list(FIELDS)))
        return datum

    def graft(self):
        """A foreign descriptor under a generation of its own; or only where its pages are."""
        datum = self.base()
        foreign = bytearray(self.random.choice([f for f in self.foreign if len(f) == len(datum)]
                                               or self.foreign))
        if len(datum) < 128:
            return datum
        if self.random.random() < 0.5:
            foreign[GENERATION] = datum[GENERATION]
            return foreign
        return datum[:116] + foreign[116:]

    def resize(self):
        datum = self.base()
        if self.random.random() < 0.5:
            return datum[:self.random.randrange(len(datum) + 1)]
        return datum + self.random.randbytes(self.random.choice([1, 6, 12, 100, 5000]))

    def reform(self):
        datum = self.base()
        if datum:
            datum[0] = self.random.choice(FORMS + (0, 2, 0x10, 0x13, 0x22, 0xFF))
        return datum

    def repeat_extent_starts(self):
        """The first extent, repeated; the size of all of them."""
        datum = self.base()
        if len(datum) < 150:
            return datum
        count = self.random.choice([2, 3, 10, 50, 1000, 65535])
        end = STARTS.get(datum[0], 128)
        datum[2:4] = count.to_bytes(2, "little")
        datum = datum[:end] + datum[end:end + 6] * count
        if self.random.random() < 0.7:
            size = self.random.choice([1, 4096, 4096 * count, 4096 * (2 ** min(count, 30) - 1)])
            datum[12:20] = size.to_bytes(8, "little")
        return datum

    def compose(self):
        """A well-formed descriptor of extents that there are, or were, each in a place that it
        could have; its sizes agree with each other, and with no value."""
        choose = self.random.choice
        parts = self.own_parts if self.random.random() < 0.6 else self.all_parts
        base = choose(parts)
        count = self.random.randrange(choose([1, 3, 6, 8]))
        extent_starts = []
        while len(extent_starts) < count:
            next_no = len(extent_starts)
            possible = [p.extent_starts[next_no] for p in parts if len(p.extent_starts) > next_no]
            if not possible:
                break
            extent_starts.append(choose(possible))
        tails = [p.tail for p in parts if p.tail]
        tail = choose(tails) if self.random.random() < 0.6 else None
        tail_content = choose([0, 1, tail[1] // 2, tail[1] - 1, tail[1], tail[1]]) if tail else 0
        pages = sum(2 ** no for no in range(len(extent_starts))) + tail_content
        remainder_bytes = choose([0, 0, 1, 100, 4095])
        remainder_page = choose([p.remainder_page for p in parts if p.remainder_page] or [0])
        has_page = remainder_bytes > 0 and self.random.random() < 0.4
        form = choose([0x11, 0x12, 0x12])
        size = pages * 4096 + remainder_bytes
        if form == 0x11:
            size = max(0, pages * 4096 - choose([0, 0, 1, 4095, 4096, 100_000]))
        generation = base.datum[GENERATION]
        if self.random.random() < 0.8:      # not below that of any extent it may read
            generation = self.generation.to_bytes(8, "little")
        fixed = bytes([form, (1 if tail else 0) | (2 if has_page else 0)]) + \
            len(extent_starts).to_bytes(2, "little") + generation + \
            size.to_bytes(8, "little") + base.datum[20:116] + \
            b"".join(number.to_bytes(6, "little") for number in tail or (0, 0))
        if form == 0x12:
            fixed += self.random.randrange(len(extent_starts) + 1).to_bytes(2, "little") + \
                tail_content.to_bytes(6, "little") + remainder_bytes.to_bytes(2, "little") + \
                remainder_page.to_bytes(6, "little")
        fixed += b"".join(extent_starts)
        if form == 0x12 and not has_page:
            fixed += self.random.randbytes(remainder_bytes)
        return fixed

    def compress(self):
        """A well-formed descriptor of a compressed value, in extents that there are."""
        while True:
            datum = self.compose()
            count = int.from_bytes(datum[2:4], "little")
            stored = (2 ** count - 1 + int.from_bytes(datum[130:136], "little")) * 4096
            if datum[0] == 0x12 and stored > 0:
                break
        ends = 144 + 6 * count
        frames, content = b"", 0
        for _ in range(self.random.choice([0, 1, 1, 2, 16])):
            bytes_ = self.random.choice([1, 4096, 65536])
            frames += bytes_.to_bytes(4, "little") + (1).to_bytes(4, "little") + \
                self.random.randrange(stored).to_bytes(6, "little") + \
                self.random.choice([b"\1\0", b"\2\0", b"\x63\0"]) + \
                self.random.randbytes(4) + bytes(4)
            content += bytes_
        inline = len(frames) // 24
        level = self.random.choice([0, 0, 1, 3]) if inline else 0
        open_bytes = min(self.random.choice([0, 0, 4096]), stored)
        open_crc = self.random.randbytes(4) if open_bytes else bytes(4)
        size = content + open_bytes + int.from_bytes(datum[136:138], "little")
        fields = stored.to_bytes(8, "little") + bytes([2, 16, level, 0]) + \
            (0 if level else inline).to_bytes(2, "little") + bytes(6) + \
            inline.to_bytes(8, "little") + bytes(6) + open_bytes.to_bytes(6, "little") + \
            open_crc + bytes(4)
        return bytes([0x21]) + datum[1:12] + size.to_bytes(8, "little") + datum[20:144] + fields + \
            datum[144:ends] + (b"" if level else frames) + datum[ends:]

    def noise(self):
        length = self.random.choice([0, 1, 10, 127, 128, 129, 143, 144, 191, 192, 200, 3000])
        return bytes([self.random.choice(FORMS)] * min(1, length)) + \
            self.random.randbytes(max(0, length - 1))

    def take_all(self):
        """A datum that the rules trust: another role's pages under a large generation."""
        datum = bytearray(self.random.choice(self.foreign))
        datum[GENERATION] = self.random.choice([2 ** 64 - 1, 2 ** 56 - 1, 2 ** 40]) \
            .to_bytes(8, "little")
        if self.random.random() < 0.7:
            self.set_field(datum, self.random.choice(list(FIELDS)))
        return datum


class Fuzzer:
    def __init__(self, seed, library, exported):
        self.random = random.Random(seed)
        self.exported = exported
        self.counts = collections.Counter()
        self.admin = psycopg.connect(autocommit=True)
        self.execute(PREPARE.replace("{library}", library))
        self.contents = {}
        self.make_values()
        self.sessions = {role: self.connect(role) for role in ("fuzzer", "exporter")}
        self.calls = self.find_calls()

    def connect(self, role):
        session = psycopg.connect(autocommit=True)
        session.execute(SETTINGS)
        session.execute(f"SET ROLE {role}")
        return session

    def execute(self, query, parameters=None):
        cursor = self.admin.execute(query, parameters)
        return cursor.fetchall() if cursor.description else None

    # ---- values ----

    def store(self, role, table, content_of):
        """Values of all layouts, in a table of the role; their datums and contents."""
        self.execute(f"CREATE TABLE {table} (id serial, b blobstate); ALTER TABLE {table} OWNER TO"
                     f" {role}; REVOKE ALL ON {table} FROM PUBLIC")
        self.execute(f"SET ROLE {role}")
        insert = f"INSERT INTO {table} (b) VALUES (%s::bytea)"
        for size in SIZES:
            for settings in ("on", "off"):
                self.execute(f"SET blobext.tail_extents = {settings}")
                self.execute(insert, (content_of(size),))
        # remainder in the datum; in a page; behind a tail; a tail in the middle
        for size, more in [(8192, 100), (8192, 3000), (30_000, 2), (30_000, 100_000),
                           (4 * 4096, 4096), (100_000, 200_000)]:
            for settings in ("on", "off"):
                self.execute(f"SET blobext.tail_extents = {settings}")
                self.execute(f"INSERT INTO {table} (b) SELECT blob_append(b, %s) FROM (SELECT"
                             " blob_truncate(%s::bytea::blobstate, %s) AS b OFFSET 0) AS base",
                             (content_of(more), content_of(size), size))
        self.execute("RESET blobext.tail_extents")
        # compressed: frames in the datum; a directory; an open frame and a remainder
        for method in ("lz4", "zstd"):
            self.execute(f"SET blobext.default_compression = {method}")
            for size in (9000, 300_000, 2_500_000):
                piece = content_of(1500)
                self.execute(insert, ((piece * (size // len(piece) + 1))[:size],))
            self.execute(f"INSERT INTO {table} (b) SELECT blob_append(b, %s) FROM {table}"
                         " WHERE blob_compression(b) = %s", (content_of(13_000), method))
        self.execute("RESET blobext.default_compression; RESET ROLE")
        rows = self.execute(f"SELECT id, raw.bytes(b), b::bytea FROM {table} ORDER BY id")
        self.contents[table] = {id_: hashlib.sha256(content).digest() for id_, _, content in rows}
        return [datum for _, datum, _ in rows]

    def make_values(self):
        plain = self.random.randbytes
        secret = lambda size: (MARKER * (size // len(MARKER) + 1))[:size]
        own = self.store("fuzzer", "own", plain)
        old = self.store("fuzzer", "old", plain)
        old_pages = self.pages_of("old")
        foreign = []
        del self.contents["old"]
        self.execute("DROP TABLE old")
        freed, reason = self.execute("SELECT freed_blobs, skipped_reason FROM blobext_gc()")[0]
        if not freed:
            raise Failure(f"the collector has freed nothing: {reason}")
        self.execute("CHECKPOINT")
        # Pages that have never been used are given out first.
        pages = set()
        for number in range(20):
            if not pages & old_pages:
                foreign += self.store("other", f"secret{number}", secret)
                pages |= self.pages_of(f"secret{number}")
        if not pages & old_pages:
            raise Failure("no extent has been used again")
        foreign = [without_content(datum) for datum in foreign]
        limit = self.execute("SELECT min(generation) FROM blobext_map WHERE first_page = ANY (%s)",
                             (list(pages),))[0][0]
        inline = [b"", b"\x01", b"\x01short", b"\x01" + plain(2000), b"\x01" + plain(50_000)]
        young = self.store("fuzzer", "young", plain)
        if any(generation_of(datum) >= limit for datum in own + old):
            raise Failure("a value is younger than the secret ones")
        # All extents that datums below the limit can ever read: new ones are younger.
        older = {page.to_bytes(6, "little") for page, in
                 self.execute("SELECT first_page FROM blobext_map WHERE generation < %s", (limit,))}
        if any(Parts(datum).names_any(older) for datum in young):
            raise Failure("a value shares extents with an older one")
        self.forge = Forge(self.random, own + inline, old, foreign, limit - 1,
                           lambda datum: (generation_of(datum) or 0) < limit)
        self.trusted_forge = Forge(
            self.random, young + inline, old, foreign, 2 ** 56 - 1,
            lambda datum: len(datum) < 128 or not Parts(datum).names_any(older))

    def pages_of(self, table):
        return {page for page, in self.execute(
            f"SELECT e.first_page FROM {table}, blob_extents(b) AS e WHERE e.pages > 0")}

    # ---- functions that take a value ----

    def find_calls(self):
        calls = []
        unknown = []
        indirect = set()
        for signature, name, kind, is_set, gives_value, arguments, is_allowed_ in \
                self.execute(FUNCTIONS):
            if "internal" in arguments:
                indirect.add(signature)
                if signature not in INDIRECT:
                    unknown.append(signature)
                continue
            role = "fuzzer" if is_allowed_ else "exporter"
            if arguments[:2] == ["regclass", "text"]:
                arguments = ["regclass", "column"] + arguments[2:]
            places = ", ".join(self.place(a) for a in arguments)
            if kind == "a":
                names = ", ".join(f"v{number}" for number in range(len(arguments)))
                sql = f"SELECT {name}({names}) FROM (VALUES ({places}), ({places})) AS s ({names})"
                arguments = arguments * 2
            elif is_set:
                sql = f"SELECT * FROM {name}({places})"
            elif kind == "f":
                sql = f"SELECT {name}({places})"
            else:
                unknown.append(signature)
                continue
            calls.append(Call(f"function {signature}", sql, arguments, gives_value, role))
        for operator, gives_value, left, right in self.execute(OPERATORS):
            arguments = [a for a in (left, right) if a]
            sql = f" {operator} ".join(([""] if not left else []) +
                                       [self.place(a) for a in arguments])
            calls.append(Call(f"operator {left} {operator} {right}", "SELECT " + sql, arguments,
                              gives_value, "fuzzer"))
        for target, in self.execute(CASTS):
            calls.append(Call(f"cast to {target}", f"SELECT {self.place('blobstate')}::{target}",
                              ["blobstate"], target == "blobstate", "fuzzer"))
        calls.append(Call("result", f"SELECT {self.place('blobstate')}", ["blobstate"], False,
                          "fuzzer"))
        unknown += sorted(set(INDIRECT) - indirect)
        if unknown:
            raise Failure(f"no way to call, or not there: {unknown}")
        return calls

    @staticmethod
    def place(type_name):
        return {
            "blobstate": "raw.datum(%s::bytea, %s)",
            "blobstate_operand": "raw.datum(%s::bytea, %s)",
            "blobstate[]": "ARRAY[raw.datum(%s::bytea, %s)]",
            "anycompatible": "%s::text",        # the name of an encoding or a digest
            "column": "%s::text",               # the name of a column of the table before it
            "cstring": "'LATIN1'",
        }.get(type_name, f"%s::{type_name}")

    def value_for(self, type_name):
        choose = self.random.choice
        if type_name == "bytea":
            return self.random.randbytes(choose([0, 1, 32, 100, 4096, 5000, 70_000]))
        if type_name == "anycompatible":
            return choose(["hex", "base64", "escape", "md5", "sha512"])
        if type_name in ("bigint", "integer", "numeric"):
            # No sizes that a device could have: a call would store that much.
            return choose([0, 1, -1, 31, 32, 4095, 4096, 4097, 30_000, 100_000, 299_999, 1_000_000,
                           self.random.randrange(400_000), -2 ** 31,
                           2 ** (31 if type_name == "integer" else 63) - 1])
        if type_name == "bigint[]":
            return sorted(self.random.choices([0, 1, 32, 5000, 70_000, 1_000_000, 2 ** 62], k=2))
        if type_name == "bytea[]":
            return [self.value_for("bytea") for _ in range(2)]
        return {"boolean": self.random.random() < 0.5, "text": self.exported, "regclass": "own",
                "column": "b", "smallint": 2}[type_name]

    # ---- calls ----

    def choose_forge(self):
        """A forge, and whether its datums may read another role's content."""
        trusted = self.random.random() < TRUSTED_PART
        return self.trusted_forge if trusted else self.forge, trusted

    def arguments_for(self, call):
        """Parameters, and whether any datum may read another role's content."""
        parameters = []
        forge, trusted = self.choose_forge()
        for type_name in call.arguments:
            if type_name.startswith("blobstate"):
                parameters += [forge.any(), self.random.random() < 0.5]
            elif type_name != "cstring":
                parameters.append(self.value_for(type_name))
        # Zeros up to the largest number would be written.
        if call.name.startswith(("function blob_truncate", "function blob_write")):
            parameters[2] = min(parameters[2], 1_000_000)
        if call.name.startswith("function blob_recompress"):
            parameters[2] = self.random.choice(["none", "lz4", "zstd", "zstd"])
        if call.name.startswith("function blob_patch"):
            parameters[2] = [min(offset, 1_000_000) for offset in parameters[2]]
        return parameters, trusted

    @staticmethod
    def has_secret(value):
        """Content has the marker again and again, so a part of it is in every piece."""
        if isinstance(value, (bytes, bytearray)):
            return MARKER[:12] in value
        text = value if isinstance(value, str) else str(value)
        return MARKER[:12].hex() in text or MARKER[:12].decode() in text

    def require_no_secret(self, what, *seen):
        if any(self.has_secret(value) for value in seen):
            raise Failure(f"another role's content was seen: {what}")

    def run_one(self, call):
        parameters, trusted = self.arguments_for(call)
        sql = call.sql
        if call.gives_value and " FROM " not in sql and self.random.random() < 0.7:
            sql = sql.replace("SELECT ", "SELECT blob_read(", 1) + ", 0, 2000000)"
        if call.name.startswith("function blob_chunks") and \
                claimed_bytes(parameters[0]) > MAX_CHUNKS * max(1, parameters[2]):
            return
        session = self.sessions[call.role]
        self.counts["calls"] += 1
        self.counts["calls that must not see others"] += not trusted
        binary = self.random.random() < 0.5
        try:
            if self.random.random() < 0.3:
                with session.transaction(force_rollback=True):
                    rows = session.execute(sql, parameters, binary=binary).fetchall()
            else:
                rows = session.execute(sql, parameters, binary=binary).fetchall()
        except psycopg.Error as error:
            self.note_error(call.name, parameters, error, trusted)
            return
        self.counts["results"] += 1
        for row in rows:
            if trusted:
                self.counts["seen where that is trusted"] += any(map(self.has_secret, row))
            else:
                self.require_no_secret(self.describe(call.name, parameters), *row)

    def describe(self, what, parameters):
        shown = [p.hex() if isinstance(p, bytes) and len(p) < 600 else repr(p)[:80]
                 for p in parameters]
        return f"{what}: {shown}"

    def reconnect(self):
        """Whether a session of a role has ended, while the server goes on.  A value that is found
        to be damaged when a part of it has been sent ends its session; a crash would end all."""
        ended = [role for role, session in self.sessions.items() if session.closed]
        self.execute("SELECT 1")
        for role in ended:
            self.sessions[role] = self.connect(role)
        return bool(ended)

    def note_error(self, what, parameters, error, trusted):
        if error.sqlstate is None and self.reconnect():
            self.counts["cut off"] += 1
            return
        if not is_allowed(error):
            raise Failure(f"{error.sqlstate} {error}: {self.describe(what, parameters)}")
        self.counts[error.sqlstate] += 1
        if not trusted:
            self.require_no_secret(self.describe(what, parameters), error,
                                   error.diag.message_detail, error.diag.context)

    # ---- known faults, which random datums find rarely ----

    def require_stale(self, what, sql, parameters):
        try:
            self.sessions["fuzzer"].execute(sql, parameters)
        except psycopg.Error as error:
            if error.sqlstate != "XB001":
                raise Failure(f"{what}: {error.sqlstate} {error}") from error
            return
        raise Failure(f"{what}: no error")

    def count_pages(self):
        return self.execute("SELECT sum(pages) FROM blobext_space")[0][0]

    def run_known(self):
        """Seen to fail: the entry of a page was taken for that of the page 2^32 blocks of the map
        further, and content was read; 8 GB were reserved before the look at the map."""
        for parts in self.forge.own_parts:
            for name in parts.page_fields():
                offset, length = FIELDS[name]
                datum = bytearray(parts.datum)
                page = int.from_bytes(datum[offset:offset + length], "little")
                datum[offset:offset + length] = \
                    (page + 2 ** 32 * MAP_ENTRIES).to_bytes(length, "little")
                self.require_stale("a page that no map has", READ_CONTENT, (bytes(datum),))

        tailed = next(p for p in self.forge.own_parts if p.tail and p.datum[0] == 0x11)
        # Seen to fail: a tail without pages of the value was left out, and the look at the map took
        # it for the extent behind it, of another role.
        secret = next(Parts(f) for f in self.forge.foreign if claimed_bytes(f) == 4096)
        datum = bytearray(secret.all_bytes(self.forge.generation))
        datum[1] = 1
        datum[116:122] = tailed.tail[0].to_bytes(6, "little")
        datum[122:128] = tailed.tail[1].to_bytes(6, "little")
        datum[128:130] = bytes(2)
        try:
            self.sessions["fuzzer"].execute(
                "SELECT blob_write(raw.datum(%s::bytea, false), 1000000, 'x')", (bytes(datum),))
            raise Failure("a tail without pages: no error")
        except psycopg.Error as error:
            self.note_error("a tail without pages", (bytes(datum),), error, False)

        datum = bytearray(tailed.datum)
        datum[12:20] = (2 ** 33).to_bytes(8, "little")
        datum[122:128] = (2 ** 21).to_bytes(6, "little")
        before = self.count_pages()
        self.require_stale("8 GB", "SELECT blob_write(raw.datum(%s::bytea, false), 1000000, 'x')",
                           (bytes(datum),))
        if self.count_pages() != before:
            raise Failure(f"the store has grown from {before} to {self.count_pages()} pages")

    def run_claim(self):
        """Another role's content in a page that was claimed behind a young value.  A datum of a
        large generation sees it there, so check_own_pages() would see it behind an older value.  A
        datum of an older generation is refused."""
        young = next(p for p in self.trusted_forge.own_parts
                     if p.datum[0] == 0x12 and p.remainder_page is not None and not p.tail and
                     (2 ** len(p.extent_starts) - 1) * 4096 >= claimed_bytes(p.datum))
        secret = next(f for f in self.trusted_forge.foreign if claimed_bytes(f) == 4096)
        self.sessions["fuzzer"].execute(
            "SELECT length(raw.datum(%s::bytea, false) || raw.datum(%s::bytea, false))",
            (young.datum, secret))
        if not self.has_secret(self.read_all_bytes(young, self.trusted_forge.generation)):
            raise Failure("no page was claimed, or the test does not see what is there")
        self.require_stale("claimed page", READ_CONTENT,
                           (young.all_bytes(self.forge.generation),))

    def run_unclaimed(self):
        """Pages that no value has, in a store with checksums: not read, and no damage.  Seen to
        fail: such a page came into the list of damaged ones, which has little room."""
        self.execute("SELECT blobext_enable_checksums()")
        self.execute("CREATE TABLE unclaimed (b blobstate); SET blobext.tail_extents = off;"
                     " INSERT INTO unclaimed SELECT convert_to(repeat('x', 9 * 4096), 'UTF8');"
                     " RESET blobext.tail_extents")
        datum = self.execute("SELECT raw.bytes(b) FROM unclaimed")[0][0]
        try:
            self.read_all_bytes(Parts(datum), 2 ** 56 - 1)
            raise Failure("pages that no value has were read")
        except psycopg.Error as error:
            if error.sqlstate != "XX001":
                raise Failure(f"unclaimed pages: {error.sqlstate} {error}") from error
        damaged = self.execute("SELECT * FROM blobext_damaged_pages")
        if damaged:
            raise Failure(f"unclaimed pages are listed as damaged: {damaged}")

    def count_damaged(self, condition="true"):
        return self.execute(
            f"SELECT count(*) FROM blobext_damaged_pages WHERE {condition}")[0][0]

    def run_failed_claims(self):
        """Pages that a claim has left without content cannot be told from damaged ones: a role that
        names hundreds of them fills the list.  A page that another role finds has room in it.  Seen
        to fail: the list stayed full, and had no such page."""
        self.execute("CREATE TABLE claimed (b blobstate); SET blobext.tail_extents = off;"
                     " INSERT INTO claimed SELECT convert_to(repeat('x', 600 * 4096), 'UTF8');"
                     " RESET blobext.tail_extents; ALTER ROLE fuzzer LOGIN")
        datum, first_page, tier, pages, filled = self.execute(
            "SELECT raw.bytes(b), e.first_page, e.extent_no, m.pages, e.bytes FROM claimed,"
            " blob_extents(b) AS e JOIN blobext_map AS m USING (first_page)"
            " ORDER BY e.extent_no DESC LIMIT 1")[0]
        self.execute("SELECT raw.wal('blobext_map', 1, 'CLAIM', %s, %s, %s, %s)",
                     (first_page, tier, filled, pages * 4096))
        forged = Parts(datum).all_bytes(2 ** 56 - 1)
        read = "SELECT blob_read(raw.datum(%s::bytea, false), %s, 10)"
        unclaimed = range(600, 600 + 300)
        with psycopg.connect(autocommit=True, user="fuzzer") as session:
            for page_no in unclaimed:
                try:
                    session.execute(read, (forged, page_no * 4096))
                    raise Failure(f"page {page_no}, which has no content, was read")
                except psycopg.Error as error:
                    if error.sqlstate != "XX001":
                        raise
        if self.count_damaged() != 256:
            raise Failure(f"{self.count_damaged()} pages without content are listed")
        last = f"page = {first_page + pages - 1}"
        try:
            self.execute(read, (forged, (unclaimed.start + pages - filled // 4096 - 1) * 4096))
        except psycopg.Error as error:
            if error.sqlstate != "XX001":
                raise
        if self.count_damaged(last) != 1 or self.count_damaged() != 256:
            raise Failure("the list has no room for a page that another role has found")

    def run(self, rounds):
        self.run_known()
        self.run_claim()
        self.run_unclaimed()
        self.run_failed_claims()
        # A call that makes a value of a datum is worth more than another comparison.
        calls = self.calls + 5 * [call for call in self.calls if call.gives_value]
        for number in range(rounds):
            for call in calls:
                try:
                    self.run_one(call)
                except Failure:
                    raise
                except Exception as error:
                    error.add_note(f"in round {number}: {call.name}")
                    raise
            Rows(self).run()

    # ---- the end ----

    def check(self, when):
        problems = self.execute("SELECT * FROM blobext_check()")
        if problems:
            raise Failure(f"blobext_check() {when}: {problems[:10]}")
        for table, digests in self.contents.items():
            for id_, content in self.execute(f"SELECT id, b::bytea FROM {table}"):
                if hashlib.sha256(content).digest() != digests[id_]:
                    raise Failure(f"{when}: value {id_} of {table} has changed")

    def read_all_bytes(self, parts, generation):
        datum = parts.all_bytes(generation)
        content = self.sessions["fuzzer"].execute(
            READ_CONTENT, (datum,), binary=True).fetchone()[0]
        if len(content) != claimed_bytes(datum):
            raise Failure(f"{len(content)} bytes of {claimed_bytes(datum)} were read")
        return content

    def check_own_pages(self):
        """The pages of the role's own older values, also those that no value has, are free of
        other roles' content."""
        for parts in self.forge.own_parts:
            self.require_no_secret(self.describe("own pages", (parts.datum,)),
                                   self.read_all_bytes(parts, self.forge.generation))

    def finish(self):
        self.check_own_pages()
        for session in self.sessions.values():
            session.close()
        self.check("at the end")
        reason = self.execute("SELECT skipped_reason FROM blobext_gc()")[0][0]
        if reason:
            raise Failure(f"the collector cannot go on: {reason}")
        self.check("after a collection")
        if self.count_pages() * 4096 > MAX_STORE_BYTES:
            raise Failure(f"the store has {self.count_pages()} pages")
        if self.counts["seen where that is trusted"] == 0:
            raise Failure("no datum has read another role's pages: nothing could have been seen")
        print("# " + ", ".join(f"{n} {name}" for name, n in sorted(self.counts.items())))


class Rows:
    """Datums on the ways that rows go: into tables and out, indexes, sorts, statistics."""

    STATEMENTS = {
        "insert": "INSERT INTO f (b) SELECT b FROM held",
        "read": "SELECT b FROM f",
        "update": "UPDATE f SET b = b",
        "sort": "SELECT b FROM held ORDER BY b",
        "distinct": "SELECT DISTINCT b FROM held",
        "join": "SELECT count(*) FROM held AS x JOIN held AS y USING (b)",
        "analyze": "ANALYZE f",
        "index": "CREATE INDEX ON f (b)",
        "hash_index": "CREATE INDEX ON f USING hash (b)",
        "digest_index": "CREATE INDEX ON f (b blobstate_digest_ops)",
        "aggregate": "SELECT blob_agg(b), min(b), max(b) FROM held",
        "array": "INSERT INTO c (a) SELECT array_agg(b) FROM held",
        "array_read": "SELECT a FROM c",
        "record": "SELECT ROW(b, 1) FROM held ORDER BY ROW(b, 1)",
        "partition": "INSERT INTO p (b) SELECT b FROM held",
        "table_as": "CREATE TABLE t AS SELECT b FROM held",
        "view": "CREATE MATERIALIZED VIEW m AS SELECT b FROM f",
        "cluster": "CLUSTER f USING f_pkey",
        "copy": "COPY f TO STDOUT",
        "copy_binary": "COPY f TO STDOUT (FORMAT binary)",
        "view_gone": "DROP MATERIALIZED VIEW IF EXISTS m",
        "alter": "ALTER TABLE f ALTER b TYPE blobstate USING blob_append(b, 'x')",
    }

    def __init__(self, fuzzer):
        self.fuzzer = fuzzer
        self.trusted = False

    @property
    def session(self):
        return self.fuzzer.sessions["fuzzer"]

    def make(self):
        """Some datums.  Most batches are without ill-formed ones, for a statement would meet only
        the error of these."""
        self.session.execute("""
            DROP TABLE IF EXISTS held, f, c, p, t CASCADE;
            CREATE TEMP TABLE held (b blobstate);
            CREATE TABLE f (id serial PRIMARY KEY, b blobstate);
            CREATE TABLE c (a blobstate[]);
            CREATE TABLE p (b blobstate) PARTITION BY HASH (b);
            CREATE TABLE p0 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 0);
            CREATE TABLE p1 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 1)""")
        is_sound = self.fuzzer.random.random() < 0.6
        forge, self.trusted = self.fuzzer.choose_forge()
        for _ in range(10):
            arguments = (forge.any(), self.fuzzer.random.random() < 0.5)
            if self.succeeds("raw.datum",
                             "SELECT length(raw.datum(%s::bytea, %s))", arguments) or not is_sound:
                self.succeeds("held", "INSERT INTO held VALUES (raw.datum(%s::bytea, %s))",
                              arguments)

    def succeeds(self, name, sql, parameters=()):
        self.fuzzer.counts["statements on rows"] += 1
        try:
            if sql.startswith("COPY"):
                with self.session.cursor().copy(sql) as copy:
                    seen = b"".join(bytes(piece) for piece in copy)
                    rows = [(seen,)]
            else:
                cursor = self.session.execute(sql, parameters or None)
                rows = cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            self.fuzzer.note_error(f"{name}: {sql}", parameters, error, self.trusted)
            return False
        if not self.trusted:
            for row in rows:
                self.fuzzer.require_no_secret(f"{name}: {sql}", *row)
        return True

    def run(self):
        session = self.session
        self.make()
        for name, sql in self.STATEMENTS.items():
            if self.session is session:     # its temporary tables are gone with it
                self.succeeds(name, sql)
        self.session.execute("DROP TABLE IF EXISTS held, f, c, p, t CASCADE")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int,
                        default=int(os.environ.get("BLOBEXT_SEED") or random.getrandbits(32)))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--library", required=True)
    parser.add_argument("--exported", required=True)
    arguments = parser.parse_args()

    print(f"# seed {arguments.seed}, {arguments.rounds} rounds", flush=True)
    fuzzer = Fuzzer(arguments.seed, arguments.library, arguments.exported)
    print(f"# {len(fuzzer.calls)} ways to call", flush=True)
    try:
        fuzzer.run(arguments.rounds)
        fuzzer.finish()
    except Failure as failure:
        print(f"not ok - {failure}")
        return 1
    print("ok - mutated datums")
    return 0


if __name__ == "__main__":
    sys.exit(main())
