-- Values larger than PostgreSQL's text protocol can carry.  Takes 3 GB of memory and of disk:
-- only with BLOBEXT_TEST_LARGE=1.
\getenv large BLOBEXT_TEST_LARGE
\if :{?large}
\else
SELECT plan(1);
SELECT skip('BLOBEXT_TEST_LARGE is not set');
SELECT * FROM finish();
\q
\endif
CREATE SCHEMA large;
SET search_path = large, public;
SELECT plan(18);
CREATE TABLE v AS SELECT convert_to(repeat('abcdef', 100000000), 'UTF8')::blobstate AS b;
SELECT results_eq($$SELECT length(b), blob_storage(b), blob_read(b, 599999997, 10) FROM v$$,
	$$VALUES (600000000::bigint, 'extents', 'def'::bytea)$$, 'a value of 600 MB is stored');
SELECT throws_ok('SELECT b::text FROM v', '54000',
	'value of 600000000 bytes is too large for text output',
	'the text form of 600 MB is refused as too large');
SELECT throws_ok('COPY v TO PROGRAM ''cat > /dev/null''', '54000', NULL, 'COPY of 600 MB as text is refused');
SELECT lives_ok('COPY v TO PROGRAM ''cat > /dev/null'' (FORMAT binary)', 'COPY of 600 MB in binary form succeeds');
SELECT is((SELECT sha256(b::bytea) = sha256(b) FROM v), true, 'a value of 600 MB can be read as a whole');
-- As a key: the error names it, although it has no text form.
CREATE UNIQUE INDEX ON v (b);
SELECT throws_ok('INSERT INTO v SELECT b FROM v', '23505', NULL, 'a duplicate is reported as such');
SELECT throws_ok($$ALTER TABLE v ADD CHECK (length(b) < 10)$$, '23514', NULL, 'a failing row with a value of 600 MB is reported as such');
-- Two values that differ early, at byte 100,000.
INSERT INTO v SELECT overlay(b::bytea PLACING '\xff' FROM 100001) FROM v;
CREATE FUNCTION reads() RETURNS bigint LANGUAGE sql AS
	$$ SELECT value FROM blobext_stat WHERE name = 'content_read_bytes' $$;
SELECT reads() AS before \gset
SELECT count(*) AS pairs FROM v x, v y WHERE x.b < y.b \gset
SELECT is((:pairs, reads() - :before <= 4 * 131072), (1, true),
	'values of 600 MB are compared by a few steps');
-- Over 1 GB: no datum can hold it.
CREATE TABLE w AS SELECT blob_agg(b) AS b FROM (SELECT b FROM v, generate_series(1, 2)
	WHERE blob_read(b, 100000, 1) <> '\xff') s;
SELECT results_eq($$SELECT length(b), blob_read(b, 599999998, 4), blob_read(b, 1199999999, 5) FROM w$$,
	$$VALUES (1200000000::bigint, 'efab'::bytea, 'f'::bytea)$$, 'a value of 1.2 GB');
-- The same and one that differs early, stored apart: nothing is shared.
CREATE TABLE apart AS SELECT blob_agg(CASE WHEN chunk_no = 0 THEN
	set_byte(data, 100000, 255 - get_byte(data, 100000)) ELSE data END ORDER BY chunk_no) AS b
	FROM w, blob_chunks(b);
SELECT reads() AS before \gset
SELECT results_eq('SELECT w.b < apart.b, w.b > apart.b, w.b = apart.b FROM w, apart',
	'VALUES (true, false, false)', 'two values over 1 GB are compared');
SELECT cmp_ok(reads() - :before, '<=', 2 * 2 * 131072::bigint,
	'by a few steps, which read no more than 128 kB of each');
SELECT results_eq($$SELECT count(*), sum(length(data)) FROM w, blob_chunks(b, 10000000)$$,
	$$VALUES (120::bigint, 1200000000::bigint)$$, 'a value of 1.2 GB is read in pieces');
SELECT throws_ok('SELECT b::text FROM w', '54000', 'value of 1200000000 bytes is too large for text output',
	'text output of 1.2 GB is refused');
SELECT throws_ok('SELECT b::bytea FROM w', '54000',
	'content of 1200000000 bytes does not fit into one value in memory', 'a cast of 1.2 GB to bytea is refused');
SELECT throws_ok('SELECT substring(b, 100) FROM w', '54000',
	'content of 1199999901 bytes does not fit into one value in memory', 'substring() of more than 1 GB is refused');
SELECT throws_ok('COPY w TO PROGRAM ''cat > /dev/null'' (FORMAT binary)', '54000', NULL, 'binary COPY of 1.2 GB is refused');
BEGIN READ ONLY;
SELECT throws_ok('SELECT blob_agg(data) FROM w, blob_chunks(b)', '54000', NULL,
	'where nothing can be allocated it does not fit');
COMMIT;
SELECT is_empty('SELECT * FROM blobext_check()', 'the store is sound');
SELECT * FROM finish();
SET client_min_messages = warning;
DROP SCHEMA large CASCADE;
