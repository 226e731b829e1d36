-- Reading ahead, by the counters of view blobext_stat: a session that reads a value in sequence has
-- the next pieces requested before; other reads have not; each page is read once, and nothing
-- behind the value.
CREATE SCHEMA readahead;
SET search_path = readahead, public;
SELECT plan(35);

\ir nothing_deferred.psql

\ir helpers.psql
CREATE FUNCTION counter(counter text) RETURNS bigint LANGUAGE sql AS $$
	SELECT value FROM blobext_stat WHERE name = counter $$;
-- Bytes that a query reads from the device: all of them, and those requested ahead.
CREATE FUNCTION cost(query text, OUT read bigint, OUT ahead bigint) LANGUAGE plpgsql AS $$
BEGIN
	read := counter('io_read_bytes');
	ahead := counter('read_ahead_bytes');
	-- The end of a query, or of a subtransaction, waits for requests in flight.  This query goes
	-- on, so a subtransaction ends here.
	BEGIN
		EXECUTE query;
	EXCEPTION WHEN assert_failure THEN
	END;
	read := counter('io_read_bytes') - read;
	ahead := counter('read_ahead_bytes') - ahead;
END $$;

-- 4,000,000 bytes end in page 977; nothing of them is in the buffer.  Chunks of the cache are counted from
-- the beginning of an extent, so a piece may end within one.
CREATE TABLE v (id int PRIMARY KEY, b blobstate);
INSERT INTO v SELECT id, content FROM (SELECT bytes(4000000, 1) AS content OFFSET 0) s,
	generate_series(1, 15) id;
SELECT sha256(bytes(4000000, 1)) AS digest \gset
SELECT cmp_ok(counter('cache_bytes'), '>=', 32000000::bigint, 'there is a cache');
\ir cold_buffer.psql

-- Short looks.
SELECT results_eq($$SELECT * FROM cost('SELECT blob_read(b, 0, 4096) FROM v WHERE id = 1')$$,
	'VALUES (4096::bigint, 0::bigint)', 'a look at the beginning');
SELECT results_eq($$SELECT * FROM cost('SELECT blob_read(b, 4096, 4096) FROM v WHERE id = 1')$$,
	'VALUES (4096::bigint, 0::bigint)', 'a second look reads its page only');
SELECT results_eq($$SELECT * FROM cost('SELECT blob_read(b, 8192, 100000) FROM v WHERE id = 1')$$,
	'VALUES (102400::bigint, 0::bigint)', 'less than two chunks in sequence');
SELECT results_eq($$SELECT * FROM cost('SELECT data FROM v, blob_chunks(b, 262144) WHERE id = 2 LIMIT 1')$$,
	'VALUES (262144::bigint, 0::bigint)', 'LIMIT 1 reads one piece');
SELECT results_eq($$SELECT * FROM cost('SELECT b::bytea FROM v WHERE id = 3')$$,
	'VALUES (4001792::bigint, 0::bigint)', 'a value that is read all at once is not read ahead');
SELECT results_eq($$SELECT * FROM cost('SELECT b::bytea FROM v WHERE id = 3')$$,
	'VALUES (0::bigint, 0::bigint)', 'a value in the cache needs no read');

-- Other orders.
SELECT results_eq($$SELECT sum(ahead) FROM generate_series(9, 0, -1) i,
	cost(format('SELECT blob_read(b, %s, 262144) FROM v WHERE id = 4', i * 262144))$$,
	'VALUES (0::numeric)', 'pieces that are read backwards are not read ahead');
SELECT results_eq($$SELECT sum(ahead) FROM generate_series(0, 14, 2) i,
	cost(format('SELECT blob_read(b, %s, 131072) FROM v WHERE id = 5', i * 131072))$$,
	'VALUES (0::numeric)', 'every other piece is read without reading ahead');
SELECT results_eq($$SELECT sum(ahead) FROM generate_series(0, 14) i,
	cost(format('SELECT blob_read(b, %s, 131072) FROM v WHERE id = %s', i * 131072, 5 + i % 2))$$,
	'VALUES (0::numeric)', 'pieces of two values in turn');

-- In sequence: the second piece has twice its size requested ahead; but for a chunk, at times, for
-- which the cache has no slab at hand.
SELECT ok(ahead BETWEEN 524288 - 65536 AND 524288
	AND read BETWEEN 1048576 - 65536 AND 1048576 + 65536, 'never more ahead than was read')
FROM cost('SELECT data FROM v, blob_chunks(b, 262144) WHERE id = 7 LIMIT 2');
SELECT ok(ahead BETWEEN 524288 - 65536 AND 524288 AND read - ahead BETWEEN 0 AND 65536, 'the next piece is there, in another statement too')
FROM cost('SELECT blob_read(b, 524288, 262144) FROM v WHERE id = 7');
SELECT counter('cache_misses') AS misses \gset
SELECT is((SELECT sha256(blob_read(b, 786432, 262144)) FROM v WHERE id = 7),
	sha256(substring(bytes(4000000, 1) FROM 786433 FOR 262144)), 'the piece that was read ahead has the content of its place');
SELECT cmp_ok(counter('cache_misses') - :misses, '<=', 1::bigint, 'is of the cache');

-- All of it.  (A chunk for which the cache has no slab at hand is not read ahead.)
SELECT read, ahead FROM cost($$SELECT data FROM v, blob_chunks(b, 262144) WHERE id = 8$$) \gset
SELECT is(:read::bigint, 4001792::bigint, 'each page of the value is read once, and no other');
SELECT cmp_ok(:ahead::bigint, '>=', 4001792 - 2 * 262144 - 4 * 65536::bigint,
	'all ahead, but for the first pieces');
SELECT is((SELECT sha256(string_agg(data, '' ORDER BY chunk_no)) FROM v, blob_chunks(b, 262144)
	WHERE id = 8), :'digest'::bytea, 'the content is right in cached pieces');
SELECT is((SELECT sha256(string_agg(data, '' ORDER BY chunk_no)) FROM v, blob_chunks(b, 10007)
	WHERE id = 9), :'digest'::bytea, 'the content is right in small pieces of odd size');
SELECT is((SELECT sha256(string_agg(data, '' ORDER BY chunk_no)) FROM v, blob_chunks(b, 1500000)
	WHERE id = 10), :'digest'::bytea, 'the content is right in large pieces');
SELECT read, ahead FROM cost($$SELECT data FROM v, blob_chunks(b, 10007) WHERE id = 11$$) \gset
SELECT cmp_ok(:read::bigint, '<=', 4001792 + 20 * 4096::bigint, 'small pieces: pages are read once');
SELECT cmp_ok(:ahead::bigint, '>=', 4001792 - 2 * 10007 - 4 * 65536::bigint,
	'small pieces: all ahead, but for the first');

-- A value of many extents, small ones first.
CREATE TABLE grown (b blobstate);
INSERT INTO grown SELECT blob_append(blob_append(bytes(5000, 2)::blobstate, bytes(100000, 3)), bytes(3000001, 4));
\ir cold_buffer.psql
SELECT read, ahead FROM cost($$SELECT data FROM grown, blob_chunks(b, 65536)$$) \gset
SELECT cmp_ok(:read::bigint, '<=', 3105001 + 4096::bigint, 'extents of tiers: pages are read once');
SELECT cmp_ok(:ahead::bigint, '>=', 2500000::bigint, 'most of them ahead');
SELECT is((SELECT string_agg(data, '' ORDER BY chunk_no) FROM grown, blob_chunks(b, 65536)),
	bytes(5000, 2) || bytes(100000, 3) || bytes(3000001, 4), 'the content of a value with extents of tiers is right');

-- A cursor keeps its requests from one FETCH to the next, and its end waits for them.
INSERT INTO v VALUES (40, bytes(9000000, 5));
\ir cold_buffer.psql
BEGIN;
DECLARE c CURSOR FOR SELECT length(data) FROM v, blob_chunks(b, 1048576) WHERE id = 40;
SELECT counter('io_read_bytes') AS read, counter('read_ahead_bytes') AS ahead \gset
FETCH 3 FROM c \g (format=unaligned) /dev/null
CLOSE c;
SELECT counter('io_read_bytes') - :read AS read, counter('read_ahead_bytes') - :ahead AS ahead \gset
SELECT cmp_ok(:ahead::bigint, '>=', 2 * 1048576::bigint, 'a cursor reads ahead');
SELECT cmp_ok(:read - :ahead::bigint, '>=', 2 * 1048576::bigint, 'when it is closed, all requests have ended');
COMMIT;

-- Long comparisons.
INSERT INTO v SELECT 20 + i, bytes(4000000, 1) || sha256(i::text::bytea) FROM generate_series(1, 2) i;
\ir cold_buffer.psql
SELECT read, ahead FROM cost($$SELECT (SELECT b FROM v WHERE id = 21) < (SELECT b FROM v WHERE id = 22)$$) \gset
SELECT cmp_ok(:ahead::bigint, '>=', 6000000::bigint, 'a comparison of long values reads ahead in both');
SELECT cmp_ok(:read::bigint, '<=', 8003584 + 65536::bigint, 'a comparison of long values reads pages once');
INSERT INTO v SELECT 30 + i, bytes(30000, 1) || sha256(i::text::bytea) || bytes(4000000, 1) FROM generate_series(1, 2) i;
\ir cold_buffer.psql
SELECT is(ahead, 0::bigint, 'values that differ early: nothing ahead')
FROM cost($$SELECT (SELECT b FROM v WHERE id = 31) < (SELECT b FROM v WHERE id = 32)$$);

-- Where requests would block.
SET blobext.io_method = 'sync';
SELECT results_eq($$SELECT * FROM cost('SELECT data FROM v, blob_chunks(b, 262144) WHERE id = 13')$$,
	'VALUES (4001792::bigint, 0::bigint)', 'the blocking engine reads nothing ahead');
SELECT is((SELECT sha256(string_agg(data, '' ORDER BY chunk_no)) FROM v, blob_chunks(b, 262144)
	WHERE id = 14), :'digest'::bytea, 'the blocking engine reads the same content');
RESET blobext.io_method;
SELECT cmp_ok(ahead, '>', 3000000::bigint, 'io_uring reads ahead again after the blocking engine')
FROM cost($$SELECT data FROM v, blob_chunks(b, 262144) WHERE id = 15$$);

-- A cursor's requests are in flight when the next statement demands another engine.
SELECT CASE value WHEN 1 THEN 'aio' ELSE 'auto' END AS aio FROM blobext_stat WHERE name = 'direct_io' \gset
INSERT INTO v VALUES (50, bytes(9000000, 6)), (51, bytes(4001792, 7)), (52, bytes(4001792, 8));
SELECT digest AS digest50 FROM (SELECT sha256(b) AS digest FROM v WHERE id = 50) s \gset
\ir cold_buffer.psql
BEGIN;
DECLARE c CURSOR FOR SELECT data FROM v, blob_chunks(b, 1048576) WHERE id = 50;
CREATE TEMP TABLE parts (part int, data bytea) ON COMMIT DROP;
CREATE FUNCTION fetch_part(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	source refcursor := 'c';
	bytes bytea;
BEGIN
	FETCH source INTO bytes;
	INSERT INTO parts VALUES (n, bytes);
END $$;
SELECT fetch_part(n) FROM generate_series(1, 3) n \g /dev/null
SET LOCAL blobext.io_method = :'aio';
SELECT cmp_ok(ahead, '>', 3000000::bigint, 'aio reads ahead, beside requests of io_uring')
FROM cost($$SELECT data FROM v, blob_chunks(b, 262144) WHERE id = 51$$);
SELECT fetch_part(n) FROM generate_series(4, 5) n \g /dev/null
SET LOCAL blobext.io_method = 'sync';
SELECT is(ahead, 0::bigint, 'the blocking engine reads nothing ahead beside requests of aio')
FROM cost($$SELECT data FROM v, blob_chunks(b, 262144) WHERE id = 52$$);
SET LOCAL blobext.io_method = 'auto';
SELECT fetch_part(n) FROM generate_series(6, 9) n \g /dev/null
SELECT is((SELECT sha256(string_agg(data, '' ORDER BY part)) FROM parts), :'digest50'::bytea,
	'a value that was read by three engines in turn is whole');
COMMIT;

SELECT * FROM finish();
DROP SCHEMA readahead CASCADE;
