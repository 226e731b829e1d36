-- PL/Python with the transform: values are bytes, in both directions, wherever PL/Python has values.
--
-- Seen to fail without TRANSFORM FOR TYPE in the functions (python_text.sql has what happens then),
-- and with a script that names the type blobstate without asking whose it is.
BEGIN;
SELECT plan(60);

CREATE EXTENSION plpython3u;
-- Another type of that name comes first in the schema of the extension.
CREATE SCHEMA elsewhere;
CREATE TYPE elsewhere.blobstate AS (a integer);
CREATE EXTENSION blobext_plpython3u SCHEMA elsewhere;
SELECT is((SELECT trftype FROM pg_transform), 'public.blobstate'::regtype::oid,
    'the transform is of the type of the extension');
SELECT throws_ok($$SELECT elsewhere.blobext_to_plpython3('a')$$, '42883', NULL,
    'SQL cannot call the functions of the transform');

CREATE TABLE stored (id integer, b blobstate, o bytea);
CREATE TYPE pair AS (id integer, b blobstate);
CREATE DOMAIN short_blob AS blobstate CHECK (length(VALUE) < 1000);
INSERT INTO stored VALUES (1, '', ''), (2, 'b''text''', 'b''text'''), (3, '\x00ff0a5c27', '\x00ff0a5c27'),
    (4, NULL, NULL), (5, decode(repeat('00ff5c27', 1250), 'hex'), decode(repeat('00ff5c27', 1250), 'hex')),
    (6, decode(repeat('0001fe5c27', 1 << 20), 'hex'), decode(repeat('0001fe5c27', 1 << 20), 'hex'));
SELECT results_eq('SELECT length(b), blob_storage(b) FROM stored WHERE b IS NOT NULL ORDER BY id',
    $$VALUES (0::bigint, 'inline'), (7, 'inline'), (5, 'inline'), (5000, 'extents'), (5242880, 'extents')$$,
    'values of each form are there');

-- ---- arguments and results ----

CREATE FUNCTION seen(b blobstate, expression text DEFAULT 'repr(b)') RETURNS text
    LANGUAGE plpython3u TRANSFORM FOR TYPE blobstate AS
    'import hashlib; return str(eval(expression))';
CREATE FUNCTION same(b blobstate) RETURNS blobstate LANGUAGE plpython3u
    TRANSFORM FOR TYPE blobstate AS 'return b';
CREATE FUNCTION made(expression text) RETURNS blobstate LANGUAGE plpython3u
    TRANSFORM FOR TYPE blobstate AS $$
import array, io, mmap
class Own:
    def __bytes__(self): return b'own'
class Failing:
    def __bytes__(self): raise ValueError('of its own')
def released():
    view = memoryview(b'hello')
    view.release()
    return view
return eval(expression)
$$;
SELECT is(seen('\x00ff27'), $$b"\x00\xff'"$$, 'an argument is bytes');
SELECT is(seen(''), $$b''$$, 'the empty value is empty bytes');
SELECT is(seen(NULL), 'None', 'the argument NULL is None');
SELECT is(seen(b, 'hashlib.sha256(b).hexdigest()'), encode(sha256(o), 'hex'),
        'bytes of value ' || id || ' are the content')
    FROM stored WHERE b IS NOT NULL ORDER BY id;
SELECT ok(same(b) IS NOT DISTINCT FROM b AND same(b)::bytea IS NOT DISTINCT FROM o,
        'value ' || id || ' comes back as it was')
    FROM stored ORDER BY id;
SELECT is(made(expression)::bytea, bytes::bytea, 'bytes are the content: ' || expression)
    FROM (VALUES ($$b'hello'$$, 'hello'), ($$b''$$, ''), ($$bytearray(b'hello')$$, 'hello'),
            ($$memoryview(b'hello')$$, 'hello'), ($$memoryview(b'hello')[::2]$$, 'hlo'),
            ($$memoryview(b'')$$, ''), ($$array.array('H', [1, 2])$$, '\x01000200'),
            ($$array.array('B')$$, ''), ($$io.BytesIO(b'hello').getbuffer()$$, 'hello'),
            ($$mmap.mmap(-1, 3)$$, '\x000000'), ($$Own()$$, 'own'), ($$None$$, NULL))
        AS t(expression, bytes);
SELECT throws_ok(format('SELECT made(%L)', expression), state, message,
        'no bytes are an error: ' || expression)
    FROM (VALUES ($$'hello'$$, '42804', 'cannot convert Python type "str" to type blobstate'),
            ($$'\\x68'$$, '42804', 'cannot convert Python type "str" to type blobstate'),
            ($$5$$, '42804', 'cannot convert Python type "int" to type blobstate'),
            ($$[104, 101]$$, '42804', 'cannot convert Python type "list" to type blobstate'),
            ($$io.BytesIO(b'')$$, '42804',
                'cannot convert Python type "BytesIO" to type blobstate'),
            ($$Failing()$$, '38000', 'could not get the bytes of a Python object'),
            ($$released()$$, '38000', 'could not get the bytes of a Python object'))
        AS t(expression, state, message);

-- ---- arrays, rows, domains, sets, procedures ----

CREATE FUNCTION same_array(b blobstate[]) RETURNS blobstate[] LANGUAGE plpython3u
    TRANSFORM FOR TYPE blobstate AS
    'assert type(b[0]) in (bytes, list); return b';
SELECT is(same_array(ARRAY['a', NULL, '', '\x00']::blobstate[])::bytea[],
    ARRAY['a', NULL, '', '\x00']::bytea[], 'elements of an array are bytes');
SELECT is(same_array('{{a,b},{c,"\\x00"}}')::bytea[], '{{a,b},{c,"\\x00"}}'::bytea[],
    'elements of an array of two dimensions are bytes');
SELECT is((SELECT same_array(array_agg(b))::bytea[] FROM stored WHERE id IN (5, 6)),
    (SELECT array_agg(o) FROM stored WHERE id IN (5, 6)), 'large elements of an array are bytes');
CREATE FUNCTION same_pair(p pair) RETURNS pair LANGUAGE plpython3u TRANSFORM FOR TYPE blobstate AS
    'assert type(p["b"]) is bytes; return p';
SELECT is((same_pair(ROW(1, b)::pair)).b::bytea, o, 'a column of a row is bytes: value ' || id)
    FROM stored WHERE b IS NOT NULL ORDER BY id;
CREATE FUNCTION pair_of(b blobstate) RETURNS pair LANGUAGE plpython3u
    TRANSFORM FOR TYPE blobstate AS 'return (7, b)';
SELECT is((pair_of('\x00')).b::bytea, '\x00', 'a column of a tuple is bytes');
CREATE FUNCTION same_domain(b short_blob) RETURNS short_blob LANGUAGE plpython3u
    TRANSFORM FOR TYPE blobstate AS 'assert type(b) is bytes; return b * 200';
SELECT is(same_domain('\x0001')::bytea, decode(repeat('0001', 200), 'hex'),
    'a value of a domain is bytes');
SELECT throws_ok($$SELECT same_domain('123456')$$, '23514', NULL, 'a domain is checked');
CREATE FUNCTION pieces(b blobstate, size integer) RETURNS SETOF blobstate LANGUAGE plpython3u
    TRANSFORM FOR TYPE blobstate AS
    'for i in range(0, len(b), size): yield memoryview(b)[i:i + size]';
SELECT is((SELECT blob_agg(piece)::bytea FROM pieces(b, 1 << 20) AS piece), o,
    'values of a set are bytes') FROM stored WHERE id = 6;
CREATE FUNCTION rows_of(b blobstate) RETURNS TABLE (no integer, piece blobstate)
    LANGUAGE plpython3u TRANSFORM FOR TYPE blobstate AS
    'return [(i, b[i:i + 1]) for i in range(len(b))]';
SELECT results_eq($$SELECT no, piece::bytea FROM rows_of('\x00ff')$$,
    $$VALUES (0, '\x00'::bytea), (1, '\xff')$$, 'values in rows of a set are bytes');
CREATE PROCEDURE doubled(INOUT b blobstate) LANGUAGE plpython3u TRANSFORM FOR TYPE blobstate AS
    'return (b + b,)';
DO $$
DECLARE
    b blobstate := '\x00ff';
BEGIN
    CALL doubled(b);
    INSERT INTO stored VALUES (7, b, '\x00ff00ff');
END
$$;
SELECT ok(b = o, 'the result of a procedure is bytes') FROM stored WHERE id = 7;

-- ---- statements of functions ----

CREATE FUNCTION by_statements() RETURNS void LANGUAGE plpython3u TRANSFORM FOR TYPE blobstate AS $$
found = plpy.execute("SELECT id, b, o FROM stored ORDER BY id")
for row in found:
    assert row["b"] == row["o"], row["id"]
plan = plpy.prepare("INSERT INTO stored SELECT $1, $2, $3 RETURNING b",
                    ["integer", "blobstate", "bytea"])
for row in found:
    again = plpy.execute(plan, [row["id"] + 10, row["b"], row["b"]])
    assert again[0]["b"] == row["o"], row["id"]
plan.execute([20, memoryview(b"\x00method"), b"\x00method"])
one = plpy.prepare("SELECT id, b FROM stored WHERE b = $1", ["blobstate"])
assert [row["id"] for row in plpy.cursor(one, [b"\x00method"])] == [20]
for row in plpy.cursor("SELECT b, o FROM stored ORDER BY id"):
    assert row["b"] == row["o"]
array = plpy.prepare("SELECT ($1)[2] AS second, cardinality($1) AS size", ["blobstate[]"])
assert array.execute([[b"a", b"\x00", None]])[0]["second"] == b"\x00"
with plpy.subtransaction():
    plan.execute([21, b"sub", b"sub"])
$$;
SELECT lives_ok('SELECT by_statements()', 'statements of a function take and give bytes');
SELECT is_empty('SELECT id FROM stored WHERE b::bytea IS DISTINCT FROM o',
    'what statements of a function stored is the content');
SELECT is(count(*), 16::bigint, 'statements of a function stored each value') FROM stored;
SELECT is(blob_storage(b), 'extents', 'a large value of a function is stored in extents')
    FROM stored WHERE id = 16;

-- DO cannot have a transform.
SELECT throws_ok($$DO LANGUAGE plpython3u 'plpy.execute(plpy.prepare("INSERT INTO stored VALUES '
    '(30, $1)", ["blobstate"]), [b"hello"])'$$, '22P02', NULL, 'DO has no transform, and says so');
SELECT lives_ok($$DO LANGUAGE plpython3u 'plpy.execute(plpy.prepare("INSERT INTO stored VALUES '
    '(30, $1, $1)", ["bytea"]), [b"hello"])'$$, 'DO stores bytes of type bytea');

-- ---- triggers ----

CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpython3u TRANSFORM FOR TYPE blobstate AS $$
new = TD["new"]
assert new["b"] is None or type(new["b"]) is bytes
if TD["event"] == "UPDATE":
    assert TD["old"]["b"] == TD["old"]["o"]
new["b"] = None if new["b"] is None else new["b"] + b"\x00changed"
new["o"] = new["b"]
return "MODIFY"
$$;
CREATE TABLE watched (id integer, b blobstate, o bytea);
CREATE TRIGGER changed BEFORE INSERT OR UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION changed();
INSERT INTO watched SELECT * FROM stored WHERE id < 10;
UPDATE watched SET id = id;
SELECT is_empty($$SELECT id FROM watched JOIN stored USING (id)
    WHERE watched.b::bytea IS DISTINCT FROM stored.o || '\x006368616e676564006368616e676564'$$,
    'a trigger changes bytes of the new row');
SELECT is_empty($$SELECT * FROM blobext_check('watched')$$, 'values of a trigger are sound');

-- ---- limits ----

SET LOCAL blobext.default_compression = 'zstd';
SELECT throws_ok($$SELECT seen(blob_truncate('a'::blobstate, 1 << 30), 'len(b)')$$, '54000',
    'value of 1073741824 bytes is too large for PL/Python',
    'a value that is too large for bytes is an error');
SELECT throws_ok($$SELECT made('bytes(1 << 30)')$$, '54000',
    'content of 1073741824 bytes is too large for one datum',
    'bytes that are too large for a datum are an error');

SELECT * FROM finish();
ROLLBACK;
