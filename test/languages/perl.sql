-- PL/Perl: values are text in both directions, exactly as those of bytea are, and its own functions
-- encode_bytea() and decode_bytea() make bytes of the text.
--
-- Seen to fail with an input function that takes text as it is, without escapes and hex.
BEGIN;
SELECT plan(24);

CREATE EXTENSION plperl;
CREATE TABLE stored (id integer, b blobstate, o bytea);
INSERT INTO stored VALUES (1, '', ''), (2, '\x00ff0a5c27', '\x00ff0a5c27'), (3, NULL, NULL),
    (4, decode(repeat('00ff5c27', 50000), 'hex'), decode(repeat('00ff5c27', 50000), 'hex'));

-- What a function with this body returns for a type: hex, or the state of the error.
CREATE FUNCTION outcome(type text, body text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION of_%1$s() RETURNS %1$s LANGUAGE plperl AS %2$L',
        type, body);
    EXECUTE format('SELECT encode(of_%s()::bytea, ''hex'')', type) INTO result;
    RETURN result;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END
$$;
SELECT is(outcome('blobstate', body), outcome('bytea', body), 'the same as with bytea: ' || body)
    FROM (VALUES (1, $$return "hello"$$), (2, $$return ""$$), (3, $$return undef$$),
            (4, $$return "a\\134b"$$), (5, $$return "a\\b"$$), (6, $$return "\xff\xfe"$$),
            (7, $$return "a\x00b"$$), (8, $$return "\\x00ff"$$), (9, $$return "\\x0"$$),
            (10, $$return encode_bytea("a\x00\xff\\b")$$), (11, $$return 5$$), (12, $$return [1]$$))
        AS t(no, body) ORDER BY no;
SELECT is(outcome('blobstate', $$return encode_bytea("a\x00\xff\\b")$$), '6100ff5c62',
    'encode_bytea() makes text whose value is the bytes');
SELECT is(outcome('blobstate', $$return "a\\134b"$$), '615c62',
    'a string is text, in which a backslash escapes');
SELECT is(outcome('blobstate', $$return "\xff"$$), 'c3bf',
    'a string is text, whose characters are stored in the encoding of the database');

CREATE FUNCTION seen(b blobstate) RETURNS text LANGUAGE plperl AS 'return $_[0]';
SELECT is(seen('\x00ff'), '\x00ff', 'an argument is hex text');
CREATE FUNCTION same(b blobstate) RETURNS blobstate LANGUAGE plperl AS
    'return defined $_[0] ? encode_bytea(decode_bytea($_[0])) : undef';
SELECT is_empty('SELECT id FROM stored WHERE same(b)::bytea IS DISTINCT FROM o',
    'decode_bytea() makes bytes of an argument, also of the output format escape: hex');
SET LOCAL bytea_output = 'escape';
SELECT is_empty('SELECT id FROM stored WHERE same(b)::bytea IS DISTINCT FROM o',
    'decode_bytea() makes bytes of an argument, also of the output format escape: escape');
RESET bytea_output;
CREATE FUNCTION same_array(b blobstate[]) RETURNS blobstate[] LANGUAGE plperl AS 'return $_[0]';
SELECT is(same_array(ARRAY['\x00ff', NULL, '']::blobstate[])::bytea[],
    ARRAY['\x00ff', NULL, '']::bytea[], 'an array comes back as it was');

CREATE FUNCTION by_statement() RETURNS void LANGUAGE plperl AS $$
    my $plan = spi_prepare('INSERT INTO stored SELECT $1, $2, $3', 'integer', 'blobstate', 'bytea');
    for my $row (@{ spi_exec_query('SELECT id, b FROM stored')->{rows} })
    {
        spi_exec_prepared($plan, $row->{id} + 10, $row->{b}, $row->{b});
    }
$$;
SELECT by_statement();
SELECT is_empty('SELECT id FROM stored WHERE b::bytea IS DISTINCT FROM o',
    'what a statement stores is what it read');
SELECT is(blob_storage(b), 'extents', 'a large value of a statement is stored in extents')
    FROM stored WHERE id = 14;

CREATE FUNCTION changed() RETURNS trigger LANGUAGE plperl AS $$
    $_TD->{new}{b} = encode_bytea(decode_bytea($_TD->{new}{b}) . "\x00") if defined $_TD->{new}{b};
    return 'MODIFY';
$$;
CREATE TABLE watched (id integer, b blobstate, o bytea);
CREATE TRIGGER changed BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION changed();
INSERT INTO watched SELECT * FROM stored WHERE id < 10;
SELECT is_empty($$SELECT id FROM watched WHERE b::bytea IS DISTINCT FROM o || '\x00'$$,
    'a trigger changes the content');
SELECT is_empty('SELECT * FROM blobext_check()', 'all values are sound');
-- The same text is content here that PL/Python refuses.
SELECT is(outcome('blobstate', $$return "b'hello'"$$), encode('b''hello''', 'hex'),
    'text that PL/Python refuses is content in PL/Perl');

SELECT * FROM finish();
ROLLBACK;
