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
SELECT plan(9);
CREATE TABLE v AS SELECT convert_to(repeat('abcdef', 100000000), 'UTF8')::blobstate AS b;
SELECT results_eq($$SELECT length(b), blob_storage(b), blob_read(b, 599999997, 10) FROM v$$,
	$$VALUES (600000000::bigint, 'extents', 'def'::bytea)$$, 'it is stored');
SELECT throws_ok('SELECT b::text FROM v', '54000',
	'value of 600000000 bytes is too large for text output',
	'its text form is too large');
SELECT throws_ok('COPY v TO PROGRAM ''cat > /dev/null''', '54000', NULL, 'for COPY too');
SELECT lives_ok('COPY v TO PROGRAM ''cat > /dev/null'' (FORMAT binary)', 'the binary form is not');
SELECT is((SELECT sha256(b::bytea) = sha256(b) FROM v), true, 'it can be read as a whole');
-- As a key: the error names it, although it has no text form.
CREATE UNIQUE INDEX ON v (b);
SELECT throws_ok('INSERT INTO v SELECT b FROM v', '23505', NULL, 'a duplicate is reported as such');
SELECT throws_ok($$ALTER TABLE v ADD CHECK (length(b) < 10)$$, '23514', NULL, 'so is a failing row');
-- Two values that differ early, at byte 100,000.
INSERT INTO v SELECT overlay(b::bytea PLACING '\xff' FROM 100001) FROM v;
CREATE FUNCTION reads() RETURNS bigint LANGUAGE sql AS
	$$ SELECT value FROM blobext_stat WHERE name = 'content_read_bytes' $$;
SELECT reads() AS before \gset
SELECT count(*) AS pairs FROM v x, v y WHERE x.b < y.b \gset
SELECT is((:pairs, reads() - :before <= 4 * 131072), (1, true),
	'values of 600 MB are compared by a few steps');
SELECT is_empty('SELECT * FROM blobext_check()', 'the store is sound');
SELECT * FROM finish();
SET client_min_messages = warning;
DROP SCHEMA large CASCADE;
