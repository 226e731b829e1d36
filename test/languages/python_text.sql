-- PL/Python without the transform: text goes in and out, and the text of an object is refused.
--
-- PL/Python makes text of an object by str().  That of b'hello' is eight characters, which are valid
-- content in SQL and in other languages.  Seen to fail without the check of the input function: each of the
-- objects was stored as its text, but for those that are no valid text of bytea.  With a check that
-- asks for the callback alone, rows of a cursor were refused.
BEGIN;
SELECT plan(55);

CREATE EXTENSION plpython3u;
CREATE TABLE stored (id integer, b blobstate);
CREATE TYPE pair AS (id integer, b blobstate);
CREATE DOMAIN short_blob AS blobstate CHECK (length(VALUE) < 1000);
PREPARE content AS SELECT id, convert_from(b, 'UTF8') FROM stored ORDER BY id;

-- ---- results of functions ----

CREATE FUNCTION made(expression text) RETURNS blobstate LANGUAGE plpython3u AS
    'import array, io, mmap; return eval(expression)';
CREATE FUNCTION made_array(expression text) RETURNS blobstate[] LANGUAGE plpython3u AS
    'return eval(expression)';
CREATE FUNCTION made_set(expression text) RETURNS SETOF blobstate LANGUAGE plpython3u AS
    'yield from eval(expression)';
CREATE FUNCTION made_pair(expression text) RETURNS pair LANGUAGE plpython3u AS
    'return eval(expression)';
CREATE FUNCTION made_table(expression text) RETURNS TABLE (id integer, b blobstate)
    LANGUAGE plpython3u AS 'return eval(expression)';
CREATE FUNCTION made_domain(expression text) RETURNS short_blob LANGUAGE plpython3u AS
    'return eval(expression)';
CREATE PROCEDURE made_out(expression text, INOUT b blobstate) LANGUAGE plpython3u AS
    'return (eval(expression),)';

SELECT throws_ok(format('SELECT made(%L)', expression), '22P02',
        'invalid input for type blobstate: the text of a Python object, not its bytes',
        'an object is refused: ' || expression)
    FROM (VALUES (1, $$b'hello'$$), (2, $$b"it's"$$), (3, $$b''$$), (4, $$b'"'$$),
            (5, $$b"'\""$$), (6, $$b'\x00\xff\n'$$), (7, $$bytearray(b'hello')$$),
            (8, $$bytearray(b'')$$), (9, $$bytearray(b"it's")$$), (10, $$memoryview(b'hello')$$),
            (11, $$array.array('B', b'hello')$$), (12, $$array.array('B')$$),
            (13, $$io.BytesIO(b'hello')$$), (14, $$mmap.mmap(-1, 4096)$$), (15, $$object()$$),
            (16, $$bytes(5 << 20)$$), (17, $$str(b'hello')$$))
        AS t(no, expression) ORDER BY no;
SELECT throws_ok($$SELECT made_array('[b"hello"]')$$, '22P02', NULL,
    'an object in an array is refused');
SELECT throws_ok($$SELECT made_array('[["\\x00", b"hello"]]')$$, '22P02', NULL,
    'an object in an array of two dimensions is refused');
SELECT throws_ok($$SELECT made_set('[b"hello"]')$$, '22P02', NULL, 'an object in a set is refused');
SELECT throws_ok($$SELECT made_pair('(1, b"hello")')$$, '22P02', NULL,
    'an object in a tuple is refused');
SELECT throws_ok($$SELECT made_pair('{"id": 1, "b": b"hello"}')$$, '22P02', NULL,
    'an object in a mapping is refused');
SELECT throws_ok($$SELECT made_pair('"(1,%s)" % b"hello"')$$, '22P02', NULL,
    'an object in the text of a row is refused');
SELECT throws_ok($$SELECT * FROM made_table('[(1, b"hello")]')$$, '22P02', NULL,
    'an object in a row of a table is refused');
SELECT throws_ok($$SELECT made_domain('b"hello"')$$, '22P02', NULL,
    'an object for a domain is refused');
SELECT throws_ok($$CALL made_out('b"hello"', NULL)$$, '22P02', NULL,
    'an object of a procedure is refused');

-- The message says what to do.
CREATE TABLE said (detail text, hint text);
DO $$
DECLARE
    detail text;
    hint text;
BEGIN
    PERFORM made('b"a" * 100');
EXCEPTION WHEN invalid_text_representation THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    INSERT INTO said VALUES (detail, hint);
END
$$;
SELECT is(detail, 'PL/Python passed "b''' || repeat('a', 30) || '...".',
    'the beginning of the text is shown') FROM said;
SELECT matches(hint, 'TRANSFORM FOR TYPE blobstate', 'the transform is named') FROM said;

-- ---- arguments of statements, in functions and in DO ----

CREATE FUNCTION insert_by(call text, type text, expression text) RETURNS void
    LANGUAGE plpython3u AS $$
plan = plpy.prepare("INSERT INTO stored VALUES (1, $1)", [type])
value = eval(expression)
if call == "execute":
    plpy.execute(plan, [value])
elif call == "method":
    plan.execute([value])
elif call == "cursor":
    for row in plpy.cursor(plpy.prepare("SELECT $1 AS b", [type]), [value]):
        plpy.execute(plan, [row["b"]])
$$;
SELECT throws_ok(format('SELECT insert_by(%L, %L, %L)', call, 'blobstate', 'b"hello"'), '22P02',
        NULL, 'an object as argument of a statement is refused: ' || call)
    FROM (VALUES ('execute'), ('method'), ('cursor')) AS t(call);
SELECT throws_ok($$DO LANGUAGE plpython3u 'plpy.execute(plpy.prepare("INSERT INTO stored VALUES '
    '(1, $1)", ["blobstate"]), [b"hello"])'$$, '22P02', NULL,
    'an object as argument of a statement in DO is refused');
SELECT throws_ok($$DO LANGUAGE plpython3u $do$
try:
    plpy.execute(plpy.prepare("SELECT $1", ["blobstate"]), [memoryview(b"hello")])
except plpy.SPIError as error:
    raise plpy.Error("caught: " + error.sqlstate)
$do$ $$, NULL, 'plpy.Error: caught: 22P02', 'the error is an exception in PL/Python');
SELECT lives_ok($$SELECT insert_by('execute', 'bytea', 'b"of bytea"')$$,
    'bytes are stored through an argument of type bytea');
SELECT lives_ok($$DO LANGUAGE plpython3u 'plpy.execute(plpy.prepare("INSERT INTO stored VALUES '
    '(2, $1)", ["bytea"]), [b"of DO"])'$$, 'bytes are stored by DO with an argument of type bytea');
SELECT lives_ok($$SELECT insert_by('execute', 'blobstate', '"\\x" + b"of hex".hex()')$$,
    'hex is stored through an argument of type blobstate');
SELECT results_eq('content', $$VALUES (1, 'of bytea'), (1, 'of hex'), (2, 'of DO')$$,
    'what PL/Python stored is the content');
TRUNCATE stored;

-- ---- triggers ----

CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpython3u AS $$
TD["new"]["b"] = eval(TD["args"][0])
return "MODIFY"
$$;
CREATE TABLE watched (id integer, b blobstate);
CREATE TRIGGER changed BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION changed('b"hello"');
SELECT throws_ok($$INSERT INTO watched VALUES (1, 'content')$$, '22P02', NULL,
    'an object in the new row of a trigger is refused');
DROP TRIGGER changed ON watched;
CREATE TRIGGER changed BEFORE INSERT ON watched FOR EACH ROW
    EXECUTE FUNCTION changed('TD["new"]["b"] + b"!".hex()');
INSERT INTO watched VALUES (1, 'content'), (2, convert_to(repeat('x', 50000), 'UTF8'));
SELECT results_eq('SELECT convert_from(b, $$UTF8$$) FROM watched ORDER BY id',
    $$VALUES ('content!'), (repeat('x', 50000) || '!')$$,
    'a trigger that appends to hex text changes the content');

-- ---- text that is content ----

INSERT INTO stored VALUES (1, 'b''of SQL''');
CREATE FUNCTION by_literal() RETURNS void LANGUAGE plpython3u AS $$
plpy.execute("INSERT INTO stored VALUES (2, 'b''of SPI''')")
plpy.execute("INSERT INTO stored SELECT 3, t::blobstate FROM (VALUES ('b''of a cast''')) AS v(t)")
cursor = plpy.cursor("SELECT (t || '')::blobstate AS b FROM (VALUES ('b''of a cursor''')) AS v(t)")
plan = plpy.prepare("INSERT INTO stored VALUES (4, $1)", ["blobstate"])
for row in cursor:
    plpy.execute(plan, [row["b"]])
for row in plpy.cursor("SELECT (('(1,b''of a row'')'::text || '')::pair).b"):
    plpy.execute(plan, [row["b"]])
plpy.execute("SELECT by_plpgsql()")
$$;
CREATE FUNCTION by_plpgsql() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    b blobstate := 'b''of PL/pgSQL'''::text;
BEGIN
    INSERT INTO stored VALUES (5, b);
END
$$;
SELECT by_literal();
SELECT results_eq('content', $$VALUES (1, 'b''of SQL'''), (2, 'b''of SPI'''),
    (3, 'b''of a cast'''), (4, 'b''of a cursor'''), (4, 'b''of a row'''), (5, 'b''of PL/pgSQL''')$$,
    'such text is content in SQL, and in SQL that PL/Python runs');
SELECT is(convert_from(made(format('"%s"', text)), 'UTF8'), text, 'text is content: ' || text)
    FROM (VALUES ('b'), ('b'''), ('b''hello'), ('''hello'''), ('bytearray'), ('array of'),
            ('<memory'), ('<a>'), ('<memory at 0x>'), ('<p>at 0x12'), (' b''hello'''))
        AS t(text);
SELECT is(made($$'\\x68656c6c6f'$$), 'hello', 'hex text is bytes');
SELECT is(made('None'), NULL, 'the result None is NULL');
SELECT is(convert_from(made('5'), 'UTF8'), '5', 'a number is its text, as for other types');

-- ---- out: hex text ----

CREATE FUNCTION seen(b blobstate) RETURNS text LANGUAGE plpython3u AS 'return repr(b)';
SELECT is(seen('hello'), $$'\\x68656c6c6f'$$, 'PL/Python sees a value as hex text');

SELECT * FROM finish();
ROLLBACK;
