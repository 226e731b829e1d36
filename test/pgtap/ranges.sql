-- blob_read, substring and substr return the same bytes as bytea's functions, on a grid of offsets
-- and lengths around pages (4096), chunks of the cache (65536), buffers (262144) and extent
-- borders.
BEGIN;
CREATE SCHEMA ranges;
SET search_path = ranges, public;
SELECT plan(21);

CREATE FUNCTION bytes(n int, seed int DEFAULT 0) RETURNS bytea LANGUAGE sql AS $$
	SELECT coalesce(substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR n), '')
	FROM generate_series(1, (n + 31) / 32) i
$$;

CREATE TABLE v (name text PRIMARY KEY, content bytea, b blobstate);
ALTER TABLE v ALTER content SET STORAGE EXTERNAL;
INSERT INTO v SELECT 'empty', '', '';
INSERT INTO v SELECT 'inline', bytes(1000), bytes(1000);
INSERT INTO v SELECT 'one page', bytes(4096), bytes(4096);
INSERT INTO v SELECT 'tail', bytes(1100007), bytes(1100007);
SET LOCAL blobext.inline_limit = '1MB';
INSERT INTO v SELECT 'large inline', bytes(300000), bytes(300000);
RESET blobext.inline_limit;
SET LOCAL blobext.tail_extents = off;
INSERT INTO v SELECT 'tiers', bytes(700003), bytes(700003);
RESET blobext.tail_extents;

SELECT results_eq(
	$$SELECT name, blob_storage(b) FROM v ORDER BY name$$,
	$$VALUES ('empty', 'inline'), ('inline', 'inline'), ('large inline', 'inline'),
		('one page', 'extents'), ('tail', 'extents'), ('tiers', 'extents')$$,
	'values are stored as this test needs them');

-- Interesting positions of each value.
CREATE TABLE positions AS
	WITH borders AS (
		SELECT name, p FROM v, unnest(ARRAY[0, 4096, 8192, 65536, 131072, 262144, 524288]) p
		UNION SELECT name, length(content) FROM v
		UNION SELECT name, (sum(e.bytes) OVER (PARTITION BY name ORDER BY extent_no))::int
			FROM v, blob_extents(b) e)
	SELECT DISTINCT name, p + d AS p FROM borders, generate_series(-1, 1) d
	WHERE p + d >= 0;
CREATE TABLE lengths AS SELECT l FROM unnest(ARRAY[0, 1, 2, 31, 4095, 4096, 4097, 65536, 65537,
	262143, 262145, 600000]) l;

-- The same from a cold buffer and from a warm one: everything is asked for twice.
CREATE FUNCTION differences(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE 'SELECT string_agg(x, ''; '') FROM (SELECT format(''%s at %s, %s'', name, p, l) AS x
		FROM v JOIN positions USING (name), lengths
		WHERE (' || query || ') IS NOT TRUE LIMIT 10) d' INTO result;
	RETURN result;
END $$;

SELECT cmp_ok((SELECT count(*) FROM v JOIN positions USING (name), lengths), '>', 1500::bigint,
	'the grid is large');
CREATE FUNCTION pages_read() RETURNS bigint LANGUAGE sql AS $$
	SELECT value / 4096 FROM blobext_stat WHERE name = 'io_read_bytes' $$;
\ir cold_buffer.psql
SELECT pages_read() AS before \gset
SELECT is(differences($$blob_read(b, p, l) = substring(content FROM p + 1 FOR l)$$), NULL,
	'blob_read as substring of bytea at offset + 1, cold');
SELECT cmp_ok(pages_read() - :before, '>=', (SELECT sum((length(b) + 4095) / 4096)::bigint FROM v
	WHERE blob_storage(b) = 'extents'), 'cold: all pages are read from the device');
SELECT pages_read() AS before \gset
SELECT is(differences($$blob_read(b, p, l) = substring(content FROM p + 1 FOR l)$$), NULL,
	'blob_read as substring of bytea at offset + 1, warm');
SELECT is(pages_read() - :before, 0::bigint, 'warm: no page is read from the device');
SELECT is(differences($$substring(b, p, l) = substring(content, p, l)$$), NULL,
	'substring with a length gives the bytes of bytea''s');
SELECT is(differences($$substr(b, p, l) = substr(content, p, l)$$), NULL,
	'substr with a length gives the bytes of bytea''s');
SELECT is(differences($$l > 2 OR (substring(b, p) = substring(content, p)
		AND substr(b, p) = substr(content, p))$$), NULL,
	'substring and substr to the end');
SELECT is(differences($$p > 70000 OR substring(b, -p, l + p) = substring(content, -p, l + p)$$), NULL,
	'substring from before the first byte');
SELECT is(differences($$p > 70000 OR substring(b, -p) = substring(content, -p)$$), NULL,
	'substring from before the first byte to the end');

SELECT is((SELECT string_agg(name, ', ') FROM v WHERE blob_read(b, 0, length(b)) <> content
		OR blob_read(b, 0, 9223372036854775807) <> content OR b::bytea <> content), NULL,
	'whole values are the bytea that was stored');

-- Past the end, and at the limits of bigint, where bytea has only int.
SELECT is((SELECT string_agg(name || ' ' || o, ', ') FROM v,
		unnest(ARRAY[length(b), length(b) + 1, 2147483647, 2147483648, 9223372036854775807]) o,
		unnest(ARRAY[0, 1, 4096, 9223372036854775807]) l
		WHERE length(blob_read(b, o, l)) <> 0), NULL,
	'blob_read past the end is empty');
SELECT is((SELECT string_agg(name, ', ') FROM v
		WHERE length(b) > 0 AND (blob_read(b, length(b) - 1, 9223372036854775807)
			<> substring(content FROM length(content)))), NULL,
	'blob_read over the end is short');
SELECT is((SELECT string_agg(name, ', ') FROM v
		WHERE substring(b, 1, 9223372036854775807) <> content
			OR substring(b, 9223372036854775807, 9223372036854775807) <> ''
			OR substring(b, 9223372036854775807) <> ''
			OR substring(b, (-9223372036854775808)::bigint, 9223372036854775807) <> ''
			OR substring(b, (-9223372036854775808)::bigint) <> content
			OR substring(b, -9223372036854775806, 9223372036854775807) <> ''
			OR substring(b, 0, 9223372036854775807) <> content
			OR substring(b, length(b) + 1, 1) <> '' OR substring(b, 1, 0) <> ''), NULL,
	'substring at the limits of bigint');

-- Errors.
SELECT throws_ok($$SELECT blob_read(b, -1, 1) FROM v$$, '22023', 'offset must not be negative',
	'blob_read refuses a negative offset');
SELECT throws_ok($$SELECT blob_read(b, 0, -1) FROM v$$, '22023', 'length must not be negative',
	'blob_read refuses a negative length');
SELECT throws_ok($$SELECT blob_read(b, (-9223372036854775808)::bigint, 1) FROM v$$, '22023', NULL,
	'blob_read refuses the most negative offset');
SELECT throws_ok($$SELECT substring(b, 1, -1) FROM v$$, '22011', NULL, 'substring refuses a negative length');
SELECT throws_ok($$SELECT substr(b, 5, (-9223372036854775808)::bigint) FROM v$$, '22011', NULL,
	'substr refuses the most negative length');

SELECT is_empty($$SELECT * FROM blobext_check()$$, 'blobext_check() has no complaint');
SELECT * FROM finish();
ROLLBACK;
