-- Growth and changes of values: bytes that they read and write, by the counters; the claims on the
-- room behind a value's end; forms of the descriptor; errors.
CREATE SCHEMA growth;
SET search_path = growth, public;
SELECT plan(72);

\ir nothing_deferred.psql

\ir helpers.psql
CREATE TABLE v (id int PRIMARY KEY, b blobstate, o bytea);
CREATE FUNCTION grow(row_id int, n int) RETURNS void LANGUAGE sql AS $$
	UPDATE v SET b = b || x, o = o || x FROM bytes(n, 1000 + n) x WHERE id = row_id
$$;
CREATE FUNCTION is_whole(row_id int, what text) RETURNS text LANGUAGE sql AS $$
	SELECT is(ROW(length(b), sha256(b), sha256(b::bytea)),
		ROW(octet_length(o)::bigint, sha256(o), sha256(o)), what) FROM v WHERE id = row_id
$$;
CREATE FUNCTION layout(row_id int) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(':', pages, bytes, CASE WHEN is_tail THEN 'tail' END,
		CASE WHEN first_page IS NULL THEN 'row' END), ' ' ORDER BY extent_no)
	FROM blob_extents((SELECT b FROM v WHERE id = row_id))
$$;
INSERT INTO v SELECT id, x, x FROM (VALUES (1, 10), (2, 1000000), (3, 1000000), (4, 3 * 4096), (5, 3 * 4096),
	(6, 100000), (7, 5000), (8, 2000000), (9, 2000000), (10, 2000000), (11, 300000)) s (id, n), bytes(n, id) x;

-- From inline to extents, with room.
SELECT grow(1, 100);
SELECT is(blob_storage(b), 'inline', 'a small value that grows stays inline') FROM v WHERE id = 1;
SELECT grow(1, 8192);
SELECT is(layout(1), '1:4096 2:4096 0:110:row', 'a value that outgrows the tuple moves to extents with room; the remainder is in the row');
SELECT is_whole(1, 'from inline to extents');
SELECT is(cost('io_write_bytes', $$SELECT grow(1, 100)$$), 0::bigint, 'a few bytes stay in the row');
SELECT is(cost('io_write_bytes', $$SELECT grow(1, 4096)$$), 4096::bigint, 'a page more is a page written');
SELECT is(layout(1), '1:4096 2:8192 0:210:row', 'in the room that was left');
SELECT is(cost('io_write_bytes', $$SELECT grow(1, 2000)$$), 4096::bigint, 'a long remainder goes to a page of its own');
SELECT is(layout(1), '1:4096 2:8192 1:2210:tail', 'a long remainder becomes a tail extent');
SELECT is_whole(1, 'a value with a page of remainder is whole');
SELECT is(cost('io_reads', $$SELECT grow(1, 50)$$), 0::bigint, 'growth finds it in the cache');
SELECT is(cost('io_write_bytes', $$SELECT grow(1, 1900)$$), 4096::bigint, 'growth writes the bytes of the last page again, in full pages');
SELECT is(layout(1), '1:4096 2:8192 4:4096 0:64:row', 'in a new extent');
SELECT is_whole(1, 'after the remainder has been filled up');

-- Growth of a static value: nothing but the last partial page is read.
SELECT is(layout(2), '1:4096 2:8192 4:16384 8:32768 16:65536 32:131072 64:262144 118:479808:tail',
	'a static value ends with a tail') ;
\ir cold_buffer.psql
SELECT is(cost('io_read_bytes', $$SELECT grow(2, 10000)$$), 4096::bigint,
	'the first growth of a static value reads the last partial page');
SELECT is((SELECT array_agg(pages ORDER BY extent_no) FROM blob_extents((SELECT b FROM v WHERE id = 2))),
	ARRAY[1, 2, 4, 8, 16, 32, 64, 118, 128, 1]::bigint[], 'the tail stays where it is, tiers follow');
SELECT is_whole(2, 'a static value that has grown');
SELECT is(cost('content_reads', $$UPDATE v SET b = b || bytes(65536, 1) WHERE id = 2$$)
	+ cost('io_reads', $$UPDATE v SET b = b || bytes(65536, 2) WHERE id = 2$$), 1::bigint,
	'later growth reads the page of the remainder, once, from the cache, which got it when it was written');
UPDATE v SET o = o || bytes(65536, 1) || bytes(65536, 2) WHERE id = 2;
SELECT is_whole(2, 'the same value after that');
SELECT is(cost('io_write_bytes', $$UPDATE v SET b = b || bytes(65536, 3) WHERE id = 2$$), 17 * 4096::bigint,
	'growth by 64 kB writes the new pages and the remainder, no more');
UPDATE v SET o = o || bytes(65536, 3) WHERE id = 2;
SELECT is_whole(2, 'a static value that has grown three times is whole');
SELECT is(cost('io_writes', $$UPDATE v SET b = b || ''::bytea WHERE id = 4$$), 0::bigint,
	'nothing appended: nothing written');
SELECT is(cost('stored_blobs', $$UPDATE v SET b = b || ''::bytea WHERE id = 4$$), 1::bigint,
	'through the column it is stored once, not again');

-- One version, several growths: one of them gets the room, the others copy.  Without the comparison
-- in blob_map_claim() the results share pages, and the first has the bytes of the second.
SELECT grow(5, 4096);
CREATE TABLE versions AS
	SELECT 1 AS no, b || bytes(4096, 1) AS b, o || bytes(4096, 1) AS o FROM v WHERE id = 5;
INSERT INTO versions SELECT 2, b || bytes(4096, 2), o || bytes(4096, 2) FROM v WHERE id = 5;
INSERT INTO versions SELECT 3, b || bytes(8192, 3), o || bytes(8192, 3) FROM v WHERE id = 5;
SELECT is(count(*), 3::bigint, 'growths of one version do not disturb each other') FROM versions
	WHERE b::bytea = o AND sha256(b) = sha256(o);
SELECT is((SELECT count(DISTINCT first_page) FROM versions, blob_extents(b) WHERE extent_no = 2), 3::bigint,
	'two of three have copied the last extent');
SELECT is((SELECT count(DISTINCT first_page) FROM versions, blob_extents(b) WHERE extent_no < 2), 2::bigint,
	'growths of one version share the extents before the last one');
SELECT is_whole(5, 'the old version is what it was');
SELECT is((SELECT ROW(sha256(b || bytes(5000, 4)), sha256(b || bytes(5000, 5))) FROM v WHERE id = 5),
	(SELECT ROW(sha256(o || bytes(5000, 4)), sha256(o || bytes(5000, 5))) FROM v WHERE id = 5),
	'results need not be stored');

-- A growth that is rolled back keeps its claim.
INSERT INTO v SELECT 20, x, x FROM bytes(7 * 4096, 20) x;
SELECT grow(20, 4096);
BEGIN;
SELECT grow(20, 4096);
ROLLBACK;
SELECT is(cost('io_write_bytes', $$SELECT grow(20, 4096)$$), 2 * 4096::bigint,
	'after a rollback the last extent is copied');
SELECT is_whole(20, 'a value that grows again after a rollback is whole');

-- Truncation shares extents; growth after it does not overwrite the bytes that were cut off.
INSERT INTO versions SELECT 10, b, o FROM v WHERE id = 6;
SELECT is(cost('io_write_bytes', $$UPDATE v SET b = blob_truncate(b, 81921) WHERE id = 6$$), 0::bigint,
	'truncation writes no page');
UPDATE v SET o = substr(o, 1, 81921) WHERE id = 6;
SELECT is_whole(6, 'a value that was truncated has its bytes');
SELECT grow(6, 20000);
SELECT is_whole(6, 'a value that was truncated and has grown has its bytes');
SELECT is(b::bytea, o, 'the version before the truncation has its bytes') FROM versions WHERE no = 10;
UPDATE v SET b = blob_truncate(b, 100), o = substr(o, 1, 100) WHERE id = 7;
SELECT is(blob_storage(b), 'inline', 'what is small enough goes back to the row') FROM v WHERE id = 7;
SELECT is_whole(7, 'a value that was truncated to inline has its bytes');
SELECT is(blob_truncate('\x01'::blobstate, 3)::bytea, '\x010000', 'truncation to a larger size adds zeros');

-- Changes in the middle: all extents are shared.
SELECT is(cost('io_write_bytes', $$UPDATE v SET b = blob_write(b, 5000, '\x0102') WHERE id = 8$$), 16384 + 4096::bigint,
	'an overwrite writes a piece and a leaf of the directory');
UPDATE v SET o = overlay(o PLACING '\x0102' FROM 5001) WHERE id = 8;
SELECT is_whole(8, 'a value that was overwritten has its bytes');
SELECT is((SELECT count(*) FROM blob_extents((SELECT b FROM v WHERE id = 8)) x
	WHERE first_page NOT IN (SELECT first_page FROM blob_extents(
		(SELECT blob_write(b, 5000, '\x0304') FROM v WHERE id = 8)))), 0::bigint, 'an overwrite shares all extents');
UPDATE v SET b = blob_insert(b, 1999999, '\x0102'), o = substr(o, 1, 1999999) || '\x0102' || substr(o, 2000000)
	WHERE id = 9;
SELECT is_whole(9, 'a value after an insertion has its bytes');
UPDATE v SET b = blob_delete(b, 1000000, 500000), o = substr(o, 1, 1000000) || substr(o, 1500001) WHERE id = 10;
SELECT is_whole(10, 'a value after a deletion within has its bytes');

-- Several ranges at once, which lie in one piece.
SELECT is(cost('io_write_bytes', $$UPDATE v SET b = blob_patch(b, '{100,15000,20000}',
		ARRAY['\x01', '\x0203', '\x04']::bytea[]) WHERE id = 8$$), 20480 + 4096::bigint,
	'a patch writes the piece that its ranges touch, once');
UPDATE v SET o = overlay(overlay(overlay(o PLACING '\x01' FROM 101) PLACING '\x0203' FROM 15001) PLACING '\x04' FROM 20001)
	WHERE id = 8;
SELECT is_whole(8, 'a value that was patched has its bytes');
UPDATE v SET b = blob_patch(b, ARRAY[7, length(b) - 1, length(b) + 5000], ARRAY['\x01', '\x020304', '\x05']::bytea[]),
	o = overlay(o PLACING '\x01' FROM 8) WHERE id = 8;
UPDATE v SET o = substr(o, 1, length(o) - 1) || '\x020304' || decode(repeat('00', 4998), 'hex') || '\x05' WHERE id = 8;
SELECT is_whole(8, 'patched over its end, and behind it');
SELECT is(blob_patch('hello'::blobstate, '{0,4,7}', '{J,y!,.}')::bytea, '\x4a656c6c7921002e', 'an inline value is patched');
SELECT is(blob_patch('hello'::blobstate, '{0,0,3,9}', ARRAY['', 'J', 'p', '']::bytea[])::bytea, 'Jelpo',
	'a piece without bytes changes nothing');
SELECT is(blob_patch('hello'::blobstate, '{}', '{}')::bytea, 'hello', 'no pieces change nothing');
SELECT is(blob_write('\x01'::blobstate, 3, '\x02')::bytea, '\x01000002', 'a gap is filled with zeros');
SELECT is(blob_delete('\x010203'::blobstate, 1, 100)::bytea, '\x01', 'what is behind the end does not count');
SELECT is(blob_delete('\x010203'::blobstate, 100, 1)::bytea, '\x010203', 'a range behind the end deletes nothing');

-- Operators with literals and both types.
SELECT is(('\x01'::blobstate || '\x02')::bytea, '\x0102', 'blobstate || literal appends the bytes of the literal');
SELECT is(('\x01' || '\x02'::blobstate)::bytea, '\x0102', 'literal || blobstate prepends the bytes of the literal');
SELECT is(pg_typeof('\x01'::bytea || '\x02'::blobstate)::text, 'blobstate', 'bytea || blobstate is a blobstate');
SELECT is(pg_typeof('\x01'::bytea || '\x02')::text, 'bytea', 'bytea || literal is what it was');

-- A unique index on a column that grows: remainders never make the item too large.  With
-- BLOB_REMAINDER_INLINE_BYTES = 4096 this fails with 54000.
CREATE TABLE indexed (id int, b blobstate UNIQUE);
INSERT INTO indexed SELECT i, bytes(3000, i) FROM generate_series(1, 10) i;
SELECT lives_ok($test$DO $$ BEGIN FOR i IN 1 .. 40 LOOP
	UPDATE indexed SET b = b || bytes(1234, i); END LOOP; END $$$test$, 'a column with a unique index grows');
SELECT throws_ok($$INSERT INTO indexed SELECT 11, b FROM indexed WHERE id = 3$$, '23505', NULL,
	'a unique index finds a duplicate of a value that has grown');
SELECT lives_ok($$CREATE UNIQUE INDEX ON indexed (b blobstate_digest_ops)$$, 'a unique index of digests can be made of values that have grown');

-- Errors.
SELECT throws_ok($$SELECT blob_write('\x01'::blobstate, -1, '\x01')$$, '22011', 'offset must not be negative',
	'blob_write() at a negative offset is refused');
SELECT throws_ok($$SELECT blob_insert('\x01'::blobstate, 2, '\x01')$$, '22003',
	'offset 2 is behind the end of the value',
	'blob_insert() behind the end of a value is refused');
SELECT throws_ok($$SELECT blob_delete('\x01'::blobstate, 0, -1)$$, '22011', 'length must not be negative',
	'blob_delete() of a negative length is refused');
SELECT throws_ok($$SELECT blob_write('\x01'::blobstate, 9223372036854775807, '\x01')$$, '22003',
	'bigint out of range',
	'blob_write() beyond the largest offset is refused');
SELECT throws_ok($$SELECT blob_patch('hello'::blobstate, '{2,1}', '{a,b}')$$, '22023',
	'piece 2 begins at offset 1, before the end of the piece before it',
	'blob_patch() with pieces out of order is refused');
SELECT throws_ok($$SELECT blob_patch('hello'::blobstate, '{1,2}', '{ab,c}')$$, '22023',
	'piece 2 begins at offset 2, before the end of the piece before it',
	'blob_patch() with pieces that overlap is refused');
SELECT throws_ok($$SELECT blob_patch('hello'::blobstate, '{-1}', '{a}')$$, '22011', 'offset must not be negative',
	'blob_patch() at a negative offset is refused');
SELECT throws_ok($$SELECT blob_patch('hello'::blobstate, '{1,2}', '{a}')$$, '2202E', 'there must be as many offsets as pieces',
	'blob_patch() with fewer pieces than offsets is refused');
SELECT throws_ok($$SELECT blob_patch('hello'::blobstate, '{{1},{2}}', '{a,b}')$$, '2202E',
	'offsets must be an array of one dimension',
	'blob_patch() with offsets of two dimensions is refused');
SELECT throws_ok($$SELECT blob_patch('hello'::blobstate, '{1}', '{NULL}')$$, '22004', 'pieces must not contain NULL',
	'blob_patch() with NULL for a piece is refused');
SELECT throws_ok($$SELECT blob_patch('hello'::blobstate, '{9223372036854775807}', '{a}')$$, '22003', 'bigint out of range',
	'blob_patch() beyond the largest offset is refused');
BEGIN READ ONLY;
SELECT throws_ok($$SELECT b || '\x00' FROM v WHERE id = 9$$, '25006',
	'cannot make a large blobstate value here',
	'a large value is not changed in a read-only transaction');
SELECT is(('\x01'::blobstate || '\x02')::bytea, '\x0102', 'small values change in read-only transactions');
COMMIT;

SELECT is_empty($$SELECT * FROM blobext_check()$$, 'the check finds nothing');
SELECT * FROM finish();
