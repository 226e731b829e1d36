-- Which operations read content and how much of it, by the counters of view blobext_stat: a range
-- read touches only the pages that cover it, and the fields of the descriptor need no read.
CREATE SCHEMA counters;
SET search_path = counters, public;
SELECT plan(42);

\ir nothing_deferred.psql

\ir helpers.psql
-- Values are other ones in each test where the buffer must not have them.

SELECT bag_eq($$SELECT name FROM blobext_stat$$, ARRAY['stored_blobs', 'stored_bytes',
	'content_reads', 'content_read_bytes', 'streamed_bytes', 'content_comparisons', 'io_reads', 'io_read_bytes', 'read_ahead_bytes', 'io_writes',
	'io_write_bytes', 'trailing_write_bytes', 'syncs', 'shared_syncs', 'syncs_handed_over',
	'background_syncs', 'deferred_pages', 'deferred_page_reads', 'deferred_writes', 'wal_content_bytes', 'stale_reads',
	'damaged_pages', 'damage_unlisted', 'repaired_pages', 'gc_cycles', 'gc_freed_blobs',
	'gc_freed_bytes', 'abandoned_freed_bytes', 'punched_bytes', 'filled_bytes', 'cache_hits',
	'io_uring_requests', 'aio_requests', 'blocking_requests', 'cache_misses', 'cache_used_bytes', 'cache_bytes', 'direct_io', 'wal_logs_content',
	'pending_deferred_pages', 'unlogged_extents'],
	'blobext_stat has these counters');
SELECT cmp_ok((SELECT value FROM blobext_stat WHERE name = 'cache_bytes'), '>=', 30000000::bigint,
	'the cache is on: its size is configured');

CREATE TABLE v (id int PRIMARY KEY, n int, b blobstate);
INSERT INTO v SELECT id, n, bytes(n, id) FROM (VALUES (1, 3000000), (2, 3000000), (3, 3000000),
	(4, 3000000), (5, 3000000), (6, 5000), (7, 100), (8, 3000000)) AS v (id, n);

-- Storing.
SELECT is(cost('stored_blobs', $$INSERT INTO v VALUES (20, 50000, bytes(50000, 20))$$), 1::bigint,
	'a value over the limit is stored once');
SELECT is(cost('stored_bytes', $$INSERT INTO v VALUES (21, 50000, bytes(50000, 21))$$), 50000::bigint,
	'stored_bytes counts the bytes of content');
SELECT is(cost('io_write_bytes', $$INSERT INTO v VALUES (22, 50000, bytes(50000, 22))$$),
	13 * 4096::bigint, 'whole pages are written, each once');
SELECT is(cost('stored_blobs', $$INSERT INTO v VALUES (23, 100, bytes(100, 23))$$), 0::bigint,
	'a small value is not');
SELECT is(cost('io_writes', $$INSERT INTO v SELECT 24, n, b FROM v WHERE id = 1$$), 0::bigint,
	'copying a value writes nothing');
SELECT is(cost('io_reads', $$INSERT INTO v SELECT 25, n, b FROM v WHERE id = 1$$), 0::bigint,
	'copying a value reads nothing');
SELECT is(cost('io_writes', $$UPDATE v SET n = n, b = b WHERE id = 24$$), 0::bigint,
	'updating a row with its own value writes nothing');

-- Per database.
CREATE FUNCTION of_database(counter text, query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
	now bigint;
	look text := format('SELECT %I FROM blobext_databases WHERE datname = current_database()', counter);
BEGIN
	EXECUTE look INTO before;
	EXECUTE query;
	EXECUTE look INTO now;
	RETURN now - before;
END $$;
SELECT is(of_database('stored_bytes', $$INSERT INTO v VALUES (26, 50000, bytes(50000, 26))$$),
	50000::bigint, 'the database counts bytes stored in it');
SELECT is(of_database('stored_blobs', $$INSERT INTO v VALUES (27, 50000, bytes(50000, 27))$$),
	1::bigint, 'the database counts values stored in it');
SELECT is(of_database('content_read_bytes', $$SELECT sum(length(blob_read(b, 100, 50))) FROM v
	WHERE id = 27$$), 50::bigint, 'the database counts bytes read from it');
SELECT is(of_database('allocated_bytes', $$INSERT INTO v VALUES (28, 50000, bytes(50000, 28))$$),
	13 * 4096::bigint, 'allocated_bytes are those of whole pages');
SELECT is((SELECT file_bytes - allocated_bytes - free_bytes - pending_bytes FROM blobext_databases
	WHERE datname = current_database()), 0::bigint, 'what is not allocated is free, or will be');
DELETE FROM v WHERE id IN (26, 27, 28);

-- Expressions that read no content.
CREATE TABLE free (expression text);
INSERT INTO free VALUES ('sha256(b)'), ('length(b)'), ('octet_length(b)'), ('blob_prefix(b)'),
	('blob_storage(b)'), ('(SELECT count(*) FROM blob_extents(b))'), ('pg_column_size(b)'),
	('blob_read(b, 0, 0)'), ('blob_read(b, 3000000, 1)'), ('substr(b, 3000001)'), ('b IS NULL');
SELECT is(sum(cost('content_reads', format('SELECT %s FROM v WHERE id = 1', expression))),
		0::numeric, expression || ' asks for no content') FROM free GROUP BY expression ORDER BY expression;
SELECT is((SELECT sum(cost('io_reads', format('SELECT %s FROM v WHERE id = 1', expression))) FROM free),
	0::numeric, 'expressions that ask for no content read no pages');

-- Values that were stored are in the buffer: the last ones, which no content of other tests evicts.
SELECT is(cost('io_reads', $$SELECT sha256(b::bytea) FROM v WHERE id IN (20, 21, 22)$$), 0::bigint,
	'values that were stored are read from the buffer');

-- Ranges, cold: pages that cover the range, not one more.
INSERT INTO v SELECT 100 + i, 300000, bytes(300000, 100 + i) FROM generate_series(1, 50) i;
\ir cold_buffer.psql
SELECT is(cost('io_read_bytes', $$SELECT blob_read(b, 1000000, 1) FROM v WHERE id = 1$$),
	4096::bigint, 'one byte: one page');
SELECT is(cost('io_read_bytes', $$SELECT blob_read(b, 8191, 2) FROM v WHERE id = 2$$),
	8192::bigint, 'two bytes on both sides of a page border: two pages');
SELECT is(cost('io_read_bytes', $$SELECT blob_read(b, 20000, 20000) FROM v WHERE id = 3$$),
	6 * 4096::bigint, '20000 bytes from 20000: pages 4 to 9');
SELECT is(cost('io_read_bytes', $$SELECT substr(b, 2999999) FROM v WHERE id = 3$$),
	4096::bigint, 'the last bytes: the last page');
SELECT is(cost('io_read_bytes', $$SELECT substring(b, 1, 4096) FROM v WHERE id = 4$$),
	4096::bigint, 'the first 4096 bytes: the first page');
SELECT is(cost('content_read_bytes', $$SELECT blob_read(b, 500000, 12345) FROM v WHERE id = 4$$),
	12345::bigint, 'content_read_bytes counts what was asked for');
SELECT is(cost('io_read_bytes', $$SELECT length(b::bytea) FROM v WHERE id = 5$$),
	(2999999 / 4096 + 1) * 4096::bigint, 'all of it: each page once');

-- Random ranges: never more pages than cover them.
CREATE FUNCTION pages_of_random_ranges() RETURNS TABLE (excess bigint, missing bigint)
LANGUAGE plpgsql AS $$
DECLARE
	start bigint;
	size bigint;
	limit_bytes bigint;
	bytes bigint;
BEGIN
	excess := 0;
	missing := 0;
	PERFORM setseed(0.25);
	FOR i IN 1 .. 50 LOOP
		start := floor(random() * 300000);
		size := 1 + floor(random() ^ 3 * (300000 - start));
		limit_bytes := ((start + size - 1) / 4096 - start / 4096 + 1) * 4096;
		bytes := cost('io_read_bytes', format('SELECT blob_read(b, %s, %s) FROM v WHERE id = %s',
			start, size, 100 + i));
		excess := excess + greatest(bytes - limit_bytes, 0);
		missing := missing + greatest(limit_bytes - bytes, 0);
	END LOOP;
	RETURN NEXT;
END $$;
SELECT results_eq($$SELECT * FROM pages_of_random_ranges()$$, $$VALUES (0::bigint, 0::bigint)$$,
	'random ranges, cold: exactly the pages that cover them');

-- Warm: the cache serves bytes that were read before.  The value is read once more, since the chunks
-- of the ranges above may have replaced some of its own: the clock can pass a chunk that was read
-- once while those of the cold buffer are still in use.
SELECT octet_length(b::bytea) FROM v WHERE id = 5 \g (format=unaligned) /dev/null
SELECT is(cost('io_reads', $$SELECT length(b::bytea) FROM v WHERE id = 5$$), 0::bigint,
	'a value that was read is served by the cache');
SELECT cmp_ok(cost('cache_hits', $$SELECT blob_read(b, 100000, 100000) FROM v WHERE id = 5$$), '>=',
	2::bigint, 'reads from the cache count as cache hits');
SELECT is(cost('io_reads', $$SELECT blob_read(b, 8192, 100) FROM v WHERE id = 5$$), 0::bigint,
	'ranges of a value that was read are served by the cache');
-- Pages of one chunk of the cache are read piece by piece.
SELECT is(cost('io_read_bytes', $$SELECT blob_read(b, 1100000, 1) FROM v WHERE id = 8$$), 4096::bigint,
	'a page of a chunk');
SELECT is(cost('io_read_bytes', $$SELECT blob_read(b, 1100000 + 8192, 1) FROM v WHERE id = 8$$),
	4096::bigint, 'another page of that chunk is not there');

-- Inline values have no pages.
SELECT is(cost('content_reads', $$SELECT b::bytea FROM v WHERE id = 7$$), 0::bigint,
	'an inline value is not read from extents');

-- A plan that needs no content does not read it: sort and group by digest.
SELECT is(cost('io_reads', $$SELECT count(*) FROM
		(SELECT sha256(b), count(*), max(length(b)) FROM v GROUP BY 1 ORDER BY 2, 1) s$$), 0::bigint,
	'duplicates by digest are found without reading');

SELECT * FROM finish();
SET client_min_messages = warning;
DROP SCHEMA counters CASCADE;
