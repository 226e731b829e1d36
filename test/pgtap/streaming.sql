-- Values in pieces: blob_chunks() against the value, blob_agg() against string_agg(); large objects.
CREATE SCHEMA streaming;
SET search_path = streaming, public;
SELECT plan(54);

\ir helpers.psql

-- Sizes at which something ends: inline limit, page, chunk of the cache, buffer, default chunk.
CREATE TABLE v (id int GENERATED ALWAYS AS IDENTITY, n int, b blobstate, o bytea);
INSERT INTO v (n, b, o) SELECT n, bytes(n, n::text), bytes(n, n::text) FROM unnest(ARRAY[0, 1, 31, 1023,
	1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 262144, 1048575, 1048576, 1048577, 3000001]) n;

--
-- blob_chunks
--
SELECT is_empty(format($$
	SELECT n FROM v LEFT JOIN LATERAL (SELECT string_agg(data, '' ORDER BY chunk_no) AS content,
		count(*), min(chunk_no), max(chunk_no), bool_and("offset" = chunk_no * %1$s) AS offsets,
		count(*) FILTER (WHERE length(data) = %1$s) AS full_ones
		FROM blob_chunks(b, chunk_size => %1$s)) c ON true
	WHERE coalesce(content, '') <> o OR count <> (n + %1$s - 1) / %1$s OR min <> 0
		OR max <> count - 1 OR NOT offsets OR full_ones <> n / %1$s$$, size),
	'in pieces of ' || size)
FROM unnest(ARRAY[1000, 4096, 65536, 65537, 1048576, 100000000, 1073741819]) size;
SELECT results_eq('SELECT chunk_no, "offset", length(data) FROM v, blob_chunks(b) WHERE n = 3000001',
	'VALUES (0::bigint, 0::bigint, 1048576), (1, 1048576, 1048576), (2, 2097152, 902849)',
	'in pieces of 1 MB by default');
SELECT is((SELECT string_agg((c).data, '') = o FROM (SELECT blob_chunks(b, 5000) AS c, o FROM v
	WHERE n = 65537) AS s GROUP BY o), true, 'as a set-returning function in the SELECT list');
SELECT is((SELECT string_agg(data, '') FROM blob_chunks((SELECT b FROM v WHERE n = 4097), 1000)),
	bytes(4097, '4097'), 'with a subquery as its argument');
SELECT results_eq('SELECT data, ordinality FROM v, blob_chunks(b, 3000) WITH ORDINALITY WHERE n = 4097',
	$$VALUES (substring(bytes(4097, '4097') FROM 1 FOR 3000), 1::bigint),
		(substring(bytes(4097, '4097') FROM 3001), 2)$$, 'blob_chunks() WITH ORDINALITY counts its pieces');
SELECT is_empty('SELECT * FROM blob_chunks(NULL)', 'NULL has no pieces');
SELECT is_empty($$SELECT * FROM blob_chunks('\x')$$, 'an empty value has none');
SELECT is_empty($$SELECT * FROM blob_chunks('\x00', NULL)$$, 'a size of NULL gives none');
SELECT throws_ok(format($$SELECT * FROM blob_chunks('\x00', %s)$$, size), '22023',
	'chunk size must be between 1 and 1073741819', 'a chunk has no ' || size || ' bytes')
FROM unnest(ARRAY[0, -1, 1073741820, 2147483647]) size;

-- A call in FROM is replaced by the query: rows that are not fetched are not read.
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	lines text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		lines := lines || line || E'\n';
	END LOOP;
	RETURN lines;
END $$;
SELECT unalike(plan_of('SELECT data FROM v, blob_chunks(b)'), '%blob_chunks%',
	'the planner replaces the function by its query');
SELECT is(cost('content_read_bytes', 'SELECT data FROM v, blob_chunks(b, 100000) WHERE n = 3000001 LIMIT 2'),
	200000::bigint, 'only what is fetched is read');
SELECT is(cost('content_read_bytes', 'SELECT count(*) FROM v, blob_chunks(b, 100000)'), 0::bigint,
	'blob_chunks reads only where the content is wanted');
BEGIN;
DECLARE c CURSOR FOR SELECT data FROM v, blob_chunks(b, 100000) WHERE n = 3000001;
SELECT is(cost('content_read_bytes', 'SELECT 1'), 0::bigint, 'declaring a cursor reads nothing');
SELECT value AS before FROM blobext_stat WHERE name = 'content_read_bytes' \gset
MOVE 3 IN c;
FETCH 2 FROM c \g (format=unaligned) /dev/null
SELECT cmp_ok((SELECT value FROM blobext_stat WHERE name = 'content_read_bytes') - :before, '<=', 500000::bigint,
	'a cursor reads what it passes');
ROLLBACK;

--
-- blob_agg
--
CREATE TABLE piece (g int, i int, data bytea);
INSERT INTO piece SELECT i % 7, i, CASE WHEN i % 10 > 0 THEN bytes(i * 37 % 9000, i::text) END
	FROM generate_series(1, 1500) i;
INSERT INTO piece VALUES (100, 1, NULL), (100, 2, NULL), (101, 1, ''), (102, 1, 'a'), (103, 1, bytes(3000000, 'x')),
	(103, 2, bytes(1, 'y')), (104, 1, bytes(1900, 'z')), (104, 2, NULL), (105, 1, bytes(1900, 'z')), (105, 2, '\x00');
SELECT results_eq('SELECT g, blob_agg(data ORDER BY i)::bytea FROM piece GROUP BY g ORDER BY g',
	$$SELECT g, string_agg(data, '' ORDER BY i) FROM piece GROUP BY g ORDER BY g$$, 'blob_agg() in order is string_agg()');
SELECT results_eq('SELECT g, blob_agg(data ORDER BY i DESC)::bytea FROM piece GROUP BY g ORDER BY g',
	$$SELECT g, string_agg(data, '' ORDER BY i DESC) FROM piece GROUP BY g ORDER BY g$$, 'blob_agg() in descending order is string_agg()');
SELECT results_eq('SELECT blob_agg(DISTINCT data)::bytea, (blob_agg(data ORDER BY i) FILTER (WHERE g < 3))::bytea FROM piece',
	$$SELECT string_agg(DISTINCT data, ''), string_agg(data, '' ORDER BY i) FILTER (WHERE g < 3) FROM piece$$,
	'blob_agg() with DISTINCT and with FILTER is string_agg()');
SELECT is((SELECT blob_agg(data) FROM piece WHERE g = 100), NULL, 'blob_agg() of nulls alone is NULL');
SELECT is((SELECT blob_agg(data) FROM piece WHERE false), NULL, 'blob_agg() of no rows is NULL');
SELECT is((SELECT blob_agg(data)::bytea FROM piece WHERE g = 101), '\x'::bytea, 'an empty piece is no NULL');
SELECT results_eq('SELECT g, blob_storage(blob_agg(data ORDER BY i)) FROM piece WHERE g > 100 GROUP BY g ORDER BY g',
	$$VALUES (101, 'inline'), (102, 'inline'), (103, 'extents'), (104, 'inline'), (105, 'extents')$$,
	'extents begin at blobext.inline_limit');
SELECT is(sha256(blob_agg(data ORDER BY i)), sha256(string_agg(data, '' ORDER BY i)), 'the digest of blob_agg() is that of string_agg()')
FROM piece WHERE g < 7;
SELECT is((SELECT blob_agg(b ORDER BY id)::bytea FROM v), (SELECT string_agg(o, '' ORDER BY id) FROM v),
	'blob_agg() of blobstate values is string_agg()');
SELECT is((SELECT sha256(blob_agg(data)) FROM v, blob_chunks(b, 70000) WHERE n = 3000001),
	(SELECT sha256(o) FROM v WHERE n = 3000001), 'blob_agg() of blob_chunks() gives the value back');

-- Many states at once, interleaved with each other, with reads and with stores.
SET enable_sort = off;
SELECT is_empty($$
	SELECT g FROM (SELECT i % 5000 AS g, blob_agg(convert_to(i || ',', 'UTF8')) AS b,
			string_agg(convert_to(i || ',', 'UTF8'), '') AS o
		FROM generate_series(1, 50000) i GROUP BY 1) s WHERE b::bytea <> o$$, '5000 groups in a hash table');
SET work_mem = '64kB';
SELECT is_empty($$
	SELECT g FROM (SELECT i % 5000 AS g, blob_agg(convert_to(i || ',', 'UTF8')) AS b,
			string_agg(convert_to(i || ',', 'UTF8'), '') AS o
		FROM generate_series(1, 50000) i GROUP BY 1) s WHERE b::bytea <> o$$, '5000 groups in a hash table that is spilled');
RESET work_mem;
CREATE TABLE stored (b blobstate);
CREATE FUNCTION store(bytea) RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO stored VALUES ($1);
	BEGIN
		INSERT INTO stored VALUES ($1 || $1);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	RETURN (SELECT b::bytea FROM stored ORDER BY ctid DESC LIMIT 1);
END $$;
SELECT is_empty($$
	SELECT i % 3, string_agg(convert_to(repeat(md5(i::text), 12500), 'UTF8'), '')
	FROM generate_series(1, 24) i GROUP BY 1
	EXCEPT ALL
	SELECT i % 3, blob_agg(store(convert_to(repeat(md5(i::text), 12500), 'UTF8')))::bytea FROM generate_series(1, 24) i GROUP BY 1$$,
	'states that grow by turns, with stores, reads and rolled back subtransactions between');
SELECT is((SELECT count(*) FROM stored), 24::bigint, 'what was stored meanwhile is there');
RESET enable_sort;

-- A hash table of groups is read again: the final function runs again on the same state.
SET enable_material = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_sort = off;
SET enable_memoize = off;
SELECT results_eq($$
	SELECT x, g, length(b), sha256(b) FROM generate_series(1, 3) x LEFT JOIN
		(SELECT g, blob_agg(data) AS b FROM piece WHERE g > 100 GROUP BY g) s ON s.g <> x + 1000 ORDER BY x, g$$,
	$$SELECT x, g, octet_length(b)::bigint, sha256(b) FROM generate_series(1, 3) x LEFT JOIN
		(SELECT g, string_agg(data, '') AS b FROM piece WHERE g > 100 GROUP BY g) s ON s.g <> x + 1000 ORDER BY x, g$$,
	'groups are read again');
RESET enable_material;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_sort;
RESET enable_memoize;
SELECT is((SELECT count(*) FROM (SELECT blob_agg(data ORDER BY i) AS b, string_agg(data, '' ORDER BY i) AS o FROM piece
	GROUP BY GROUPING SETS ((g), (i % 3), ())) s WHERE b::bytea IS DISTINCT FROM o), 0::bigint, 'blob_agg() with grouping sets is string_agg()');

SELECT throws_ok($$SELECT blob_agg(CASE WHEN i < 20 THEN bytes(300000, 'e') ELSE bytes(1 / (i - 20), '') END)
	FROM generate_series(1, 20) i$$, '22012', NULL, 'an error with a state open');
SELECT is(sha256(blob_agg(bytes(300000, 'e'))), sha256(string_agg(bytes(300000, 'e'), '')),
	'an aggregate works after an error with a state open') FROM generate_series(1, 20);

-- Where nothing can be allocated, the value stays in memory.
BEGIN READ ONLY;
SELECT results_eq('SELECT blob_storage(b), b::bytea FROM (SELECT blob_agg(data ORDER BY i) AS b FROM piece WHERE g = 103) s',
	$$SELECT 'inline', string_agg(data, '' ORDER BY i) FROM piece WHERE g = 103$$, 'in a read-only transaction');
SELECT is(blob_agg(data)::bytea, '\x'::bytea, 'an empty value there') FROM piece WHERE g = 101;
COMMIT;

--
-- Large objects
--
CREATE TABLE large_object AS SELECT n, lo_from_bytea(0, o) AS lo, blob_to_lo(b) AS made FROM v;
SELECT is_empty('SELECT n FROM large_object JOIN v USING (n) WHERE blob_from_lo(lo)::bytea <> o OR
	sha256(blob_from_lo(lo)) <> sha256(o)', 'blob_from_lo() gives the content and its digest');
SELECT is_empty('SELECT n FROM large_object JOIN v USING (n) WHERE lo_get(made) <> o', 'blob_to_lo() makes large objects with the content');
SELECT is((SELECT blob_storage(blob_from_lo(lo)) FROM large_object WHERE n = 3000001), 'extents', 'blob_from_lo() of a large object stores extents');
SELECT throws_ok('SELECT blob_from_lo(4294967295)', '42704', 'large object 4294967295 does not exist',
	'a large object that is not there is refused');
-- With a hole, and longer than a piece.
SELECT lo_put(lo, 5000000, 'x') FROM large_object WHERE n = 1;
SELECT is((SELECT sha256(blob_from_lo(lo)) FROM large_object WHERE n = 1),
	(SELECT sha256(lo_get(lo)) FROM large_object WHERE n = 1), 'a large object with a hole');
BEGIN READ ONLY;
SELECT throws_ok($$SELECT blob_to_lo('\x00')$$, '25006', 'cannot execute blob_to_lo() in a read-only transaction',
	'no large object in a read-only transaction');
COMMIT;
CREATE ROLE streaming_guest;
GRANT USAGE ON SCHEMA streaming TO streaming_guest;
GRANT SELECT ON large_object, v TO streaming_guest;
SELECT lo AS lo FROM large_object WHERE n = 65536 \gset
SELECT made AS made FROM large_object WHERE n = 65536 \gset
SELECT format('GRANT SELECT ON LARGE OBJECT %s TO streaming_guest', :made) \gexec
SET ROLE streaming_guest;
SELECT throws_ok(format('SELECT blob_from_lo(%s)', :lo), '42501', format('permission denied for large object %s', :lo),
	'a large object of another role is refused');
SELECT is(length(blob_from_lo(:made)), 65536::bigint, 'a large object can be read with the privilege');
SELECT blob_to_lo('\x010203') AS own \gset
SELECT is((SELECT lomowner::regrole::text FROM pg_largeobject_metadata WHERE oid = :own), 'streaming_guest',
	'the caller owns the large object that blob_to_lo() made');
RESET ROLE;
SET lo_compat_privileges = on;
SET ROLE streaming_guest;
SELECT is(length(blob_from_lo(:lo)), 65536::bigint, 'with lo_compat_privileges any large object can be read');
RESET ROLE;
RESET lo_compat_privileges;
SELECT is_empty('SELECT * FROM blobext_check()', 'the store is sound');

SELECT * FROM finish();
SET client_min_messages = warning;
SELECT count(lo_unlink(oid)) FROM pg_largeobject_metadata \g /dev/null
DROP SCHEMA streaming CASCADE;
DROP ROLE streaming_guest;
