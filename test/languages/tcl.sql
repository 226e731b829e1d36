-- PL/Tcl: values are text in both directions, exactly as those of bytea are.  "binary scan" and
-- "binary format" make hex text of bytes, and bytes of it.
--
-- Seen to fail with an input function that takes other text than bytea's does.
BEGIN;
SELECT plan(22);

CREATE EXTENSION pltcl;
CREATE TABLE stored (id integer, b blobstate, o bytea);
INSERT INTO stored VALUES (1, '', ''), (2, '\x00ff0a5c27', '\x00ff0a5c27'), (3, NULL, NULL),
    (4, decode(repeat('00ff5c27', 50000), 'hex'), decode(repeat('00ff5c27', 50000), 'hex'));

-- What a function with this body returns for a type: hex, or the state of the error.
CREATE FUNCTION outcome(type text, body text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION of_%1$s() RETURNS %1$s LANGUAGE pltcl AS %2$L',
        type, body);
    EXECUTE format('SELECT encode(of_%s()::bytea, ''hex'')', type) INTO result;
    RETURN result;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END
$$;
SELECT is(outcome('blobstate', body), outcome('bytea', body), 'the same as with bytea: ' || body)
    FROM (VALUES (1, $$return hello$$), (2, $$return ""$$), (3, $$return_null$$),
            (4, $$return {a\134b}$$), (5, $$return {a\b}$$), (6, $$return "\xff\xfe"$$),
            (7, $$return "a\x00b"$$), (8, $$return {\x00ff}$$), (9, $$return {\x0}$$),
            (10, $$binary scan "a\x00\xff\\b" H* hex; return "\\x$hex"$$), (11, $$return 5$$),
            (12, $$return [binary format H* 00ff]$$))
        AS t(no, body) ORDER BY no;
SELECT is(outcome('blobstate', $$binary scan "a\x00\xff\\b" H* hex; return "\\x$hex"$$),
    '6100ff5c62', 'hex text of bytes is their value');
SELECT is(outcome('blobstate', $$return {a\134b}$$), '615c62',
    'a string is text, in which a backslash escapes');
SELECT is(outcome('blobstate', $$return "\xff"$$), 'c3bf',
    'a string is text, whose characters are stored in the encoding of the database');

CREATE FUNCTION seen(b blobstate) RETURNS text LANGUAGE pltcl AS 'return $1';
SELECT is(seen('\x00ff'), '\x00ff', 'an argument is hex text');
CREATE FUNCTION same(b blobstate) RETURNS blobstate LANGUAGE pltcl AS $$
    if {[argisnull 1]} return_null
    binary scan [binary format H* [string range $1 2 end]] H* hex
    return "\\x$hex"
$$;
SELECT is_empty('SELECT id FROM stored WHERE same(b)::bytea IS DISTINCT FROM o',
    'bytes of the hex text of an argument are the content');

CREATE FUNCTION by_statement() RETURNS void LANGUAGE pltcl AS $$
    set plan [spi_prepare "INSERT INTO stored SELECT \$1, \$2, \$3" {integer blobstate bytea}]
    spi_exec "SELECT id, b FROM stored WHERE b IS NOT NULL" {
        spi_execp $plan [list [expr $id + 10] $b $b]
    }
$$;
SELECT by_statement();
SELECT is_empty('SELECT id FROM stored WHERE b::bytea IS DISTINCT FROM o',
    'what a statement stores is what it read');
SELECT is(blob_storage(b), 'extents', 'a large value of a statement is stored in extents')
    FROM stored WHERE id = 14;

CREATE FUNCTION changed() RETURNS trigger LANGUAGE pltcl AS $$
    if {[info exists NEW(b)]} { append NEW(b) 00 }
    return [array get NEW]
$$;
CREATE TABLE watched (id integer, b blobstate, o bytea);
CREATE TRIGGER changed BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION changed();
INSERT INTO watched SELECT * FROM stored WHERE id < 10;
SELECT is_empty($$SELECT id FROM watched WHERE b::bytea IS DISTINCT FROM o || '\x00'$$,
    'a trigger changes the content');
SELECT is_empty('SELECT * FROM blobext_check()', 'all values are sound');
SELECT is(outcome('blobstate', $$return "b'hello'"$$), encode('b''hello''', 'hex'),
    'text that PL/Python refuses is content in PL/Tcl');

SELECT * FROM finish();
ROLLBACK;
