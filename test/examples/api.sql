-- The C interface, function by function, against SQL functions on the same values.
\set ON_ERROR_STOP 1
CREATE FUNCTION probe_size(blobstate) RETURNS bigint AS :'probe' LANGUAGE C STRICT PARALLEL SAFE;
CREATE FUNCTION probe_sha256(blobstate) RETURNS bytea AS :'probe' LANGUAGE C STRICT;
CREATE FUNCTION probe_read(blobstate, bigint, bigint) RETURNS bytea AS :'probe' LANGUAGE C STRICT;
CREATE FUNCTION probe_type_oid() RETURNS oid AS :'probe' LANGUAGE C STRICT;
CREATE FUNCTION probe_make(bytea) RETURNS blobstate AS :'probe' LANGUAGE C STRICT PARALLEL SAFE;
CREATE FUNCTION probe_two(blobstate, blobstate) RETURNS bigint AS :'probe' LANGUAGE C STRICT;
CREATE FUNCTION probe_pretend(integer, integer) RETURNS void AS :'probe' LANGUAGE C STRICT;

SELECT plan(17);

-- Another interface than the one that the library was compiled with.  First, because a process
-- looks for the interface until it has found it.
SELECT probe_pretend(2, 0);
SELECT throws_ok($$SELECT probe_size('\x00')$$, '55000',
	'the C interface of the loaded blobext does not fit', 'an interface of another version is refused');
SELECT probe_pretend(1, 8);
SELECT throws_ok($$SELECT probe_size('\x00')$$, '55000',
	'the C interface of the loaded blobext does not fit', 'an interface with fewer functions is refused');
SELECT probe_pretend(1, 0);
SELECT is(probe_size('\x00'), 1::bigint, 'the interface of the right version is used');

CREATE TABLE api_value (id integer, content bytea, b blobstate);
INSERT INTO api_value
	SELECT size, bytes, bytes FROM unnest(ARRAY[0, 1, 31, 32, 33, 1000, 1900, 1901, 4095, 4096,
		4097, 65535, 65536, 65537, 262144, 1000000, 3000001]) AS size,
		LATERAL (SELECT random_bytes(size, size) AS bytes) AS r;
-- An inline value that is larger than usual, so compressed or in the TOAST table.
SET blobext.inline_limit = '1MB';
INSERT INTO api_value SELECT -1, c, c FROM (SELECT random_bytes(700, 50000) AS c) AS r;
INSERT INTO api_value SELECT -2, c, c FROM (SELECT convert_to(repeat('text', 50000), 'UTF8') AS c) AS r;
RESET blobext.inline_limit;

SET blobext.default_compression = zstd;
INSERT INTO api_value SELECT -3, c, c
	FROM (SELECT convert_to(repeat('compressed', 100000), 'UTF8') || random_bytes(3, 300000) AS c) AS r;
SET blobext.default_compression = lz4;
INSERT INTO api_value SELECT -4, c, c FROM (SELECT convert_to(repeat('too', 20000), 'UTF8') AS c) AS r;
RESET blobext.default_compression;

SELECT results_eq('SELECT DISTINCT blob_compression(b) FROM api_value ORDER BY 1', ARRAY['lz4', 'none', 'zstd'],
	'there are values of all methods');
SELECT results_eq('SELECT DISTINCT blob_storage(b) FROM api_value ORDER BY 1',
	ARRAY['extents', 'inline'], 'there are values of both forms');
SELECT is_empty('SELECT id FROM api_value WHERE probe_size(b) <> length(content)', 'sizes are those of the content');
SELECT is_empty('SELECT id FROM api_value WHERE probe_sha256(b) <> sha256(content)', 'digests are those of the content');
SELECT is_empty('SELECT id FROM api_value WHERE probe_read(b, 0, 4000000) <> content', 'whole values are the content');
SELECT is_empty($$
	SELECT id, start, size FROM api_value,
		unnest(ARRAY[0, 1, 31, 4095, 4096, 5000, 65530, 999999, 3000000, 3000001]::bigint[]) AS start,
		unnest(ARRAY[0, 1, 33, 4096, 70000, 2000000]::bigint[]) AS size
	WHERE probe_read(b, start, size)
		IS DISTINCT FROM substr(content, start::integer + 1, size::integer)$$, 'ranges are those of the content');
SELECT is((SELECT probe_read(b, 9223372036854775807, 10) FROM api_value WHERE id = 4096), '\x',
	'a range far behind the end is empty');
SELECT is(probe_type_oid(), 'blobstate'::regtype::oid, 'the interface knows the type');
SELECT is_empty($$SELECT probe_two(b, b) FROM api_value WHERE probe_two(b, b) <> -1$$,
	'two values open at once, equal');
SELECT results_eq($$
	SELECT probe_two(x.b, overlay(x.content PLACING '\xff00' FROM 2000000 FOR 2)::blobstate) IN
		(1999999, 2000000) FROM api_value x WHERE id = 3000001$$, ARRAY[true],
	'two values open at once, different');

SELECT is_empty('SELECT id FROM api_value WHERE probe_make(content)::bytea <> content',
	'values that are made have their content');
CREATE TABLE made AS SELECT id, probe_make(content) AS b, content FROM api_value;
SELECT is_empty('SELECT id FROM made WHERE b::bytea <> content', 'values that are made are stored');
SELECT is_empty($$SELECT id FROM made WHERE blob_storage(b) <>
	CASE WHEN length(content) <= 1900 THEN 'inline' ELSE 'extents' END$$,
	'values that are made go to extents where they are stored');

-- Values that were stored by this very transaction, and are not durable.
BEGIN;
CREATE TEMP TABLE mine (content bytea, b blobstate);
INSERT INTO mine SELECT c, c FROM (SELECT random_bytes(3, 500000)) AS r(c);
SELECT is_empty('SELECT FROM mine WHERE probe_read(b, 0, 1000000) <> content',
	'a value of the same transaction');
COMMIT;
SELECT * FROM finish();
