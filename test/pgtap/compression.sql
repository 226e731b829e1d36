-- Compressed values: their stored bytes, reads, changes; the method that applies.
BEGIN;
SELECT plan(70);
SET LOCAL blobext.inline_limit = 1024;

-- Text that compresses, and bytes that do not; both without repetition.
CREATE FUNCTION text_of(n bigint) RETURNS bytea LANGUAGE sql AS $$
	SELECT substring(convert_to(string_agg(i::text, ' '), 'UTF8') FROM 1 FOR n::int)
	FROM generate_series(1, n / 2) i $$;
CREATE FUNCTION noise_of(n bigint) RETURNS bytea LANGUAGE sql AS $$
	SELECT substring(string_agg(sha256(i::text::bytea), '' ORDER BY i) FROM 1 FOR n::int)
	FROM generate_series(1, n / 32 + 1) i $$;

CREATE TABLE doc (id text, content blobstate, original bytea);
SELECT lives_ok($$SELECT blobext_set_compression('doc', 'content', 'zstd')$$, 'the owner sets a method');
SELECT results_eq($$SELECT label COLLATE "default" FROM pg_seclabels WHERE provider = 'blobext' AND objname = 'doc.content'$$,
	ARRAY['zstd'], 'a method is a security label');
INSERT INTO doc SELECT 'text', t, t FROM text_of(1000000) t;
INSERT INTO doc SELECT 'noise', t, t FROM noise_of(1000000) t;
INSERT INTO doc SELECT 'mixed', t, t FROM (SELECT text_of(300000) || noise_of(300000) || text_of(300000) t) x;
INSERT INTO doc SELECT 'small', t, t FROM text_of(3000) t;
INSERT INTO doc SELECT 'page', t, t FROM text_of(9000) t;
INSERT INTO doc SELECT 'inline', t, t FROM text_of(1000) t;
INSERT INTO doc SELECT 'one', t, t FROM text_of(131072) t;
INSERT INTO doc SELECT 'one more', t, t FROM text_of(131073) t;
INSERT INTO doc SELECT 'many', t, t FROM text_of(5000000) t;

SELECT results_eq($$SELECT id FROM doc WHERE content::bytea IS DISTINCT FROM original
		OR sha256(content) <> sha256(original) OR length(content) <> octet_length(original)$$,
	$$SELECT ''::text WHERE false$$, 'content, digest and length are those of the original');
SELECT results_eq($$SELECT id, blob_compression(content) FROM doc ORDER BY id COLLATE "C"$$,
	$$VALUES ('inline', 'none'), ('many', 'zstd'), ('mixed', 'zstd'), ('noise', 'none'), ('one', 'zstd'),
		('one more', 'zstd'), ('page', 'zstd'), ('small', 'none'), ('text', 'zstd')$$,
	'content is compressed where that saves a page');
SELECT cmp_ok((SELECT blob_stored_length(content) FROM doc WHERE id = 'text'), '<', 450000::bigint,
	'text takes less than 45 %');
SELECT is((SELECT blob_stored_length(content) FROM doc WHERE id = 'noise'), 1000000::bigint,
	'noise takes what it takes');
SELECT cmp_ok((SELECT blob_stored_length(content) FROM doc WHERE id = 'mixed'), '<', 700000::bigint,
	'of mixed content the part is compressed that can be');
SELECT is((SELECT sum(bytes) FROM doc, blob_extents(content) WHERE id = 'text'),
	(SELECT blob_stored_length(content) FROM doc WHERE id = 'text')::numeric,
	'extents hold the stored bytes');
SELECT is((SELECT blob_stored_length(content) FROM doc WHERE id = 'inline'), 1000::bigint,
	'an inline value is stored as it is');

-- The sizes of a column.
SELECT results_eq($$SELECT part::text, storage COLLATE "default", compression COLLATE "default", rows, content_bytes, stored_bytes
		FROM blobext_space('doc', 'content')$$,
	$$SELECT 'doc', blob_storage(content), blob_compression(content), count(*), sum(length(content))::bigint,
		sum(blob_stored_length(content))::bigint FROM doc GROUP BY 2, 3 ORDER BY 2, 3$$,
	'sizes of content and of what is stored for it, by place and method');
SELECT results_eq($$SELECT extent_bytes FROM blobext_space('doc', 'content') WHERE storage = 'extents' ORDER BY compression$$,
	$$SELECT sum(pages * 4096)::bigint FROM doc, blob_extents(content) GROUP BY blob_compression(content)
		ORDER BY blob_compression(content)$$,
	'extents that are not shared are those of all values');
SELECT is((SELECT extent_bytes FROM blobext_space('doc', 'content') WHERE storage = 'inline'), NULL,
	'inline values have no extents');
CREATE DOMAIN compression_domain AS blobstate;
CREATE TABLE spread (id int, b compression_domain) PARTITION BY LIST (id);
CREATE TABLE "Spread 1" PARTITION OF spread FOR VALUES IN (1);
CREATE TABLE spread_2 PARTITION OF spread FOR VALUES IN (2);
INSERT INTO spread SELECT i, content FROM doc, unnest(ARRAY[1, 1, 2, 2, 2]) i WHERE doc.id = 'text';
INSERT INTO spread SELECT 2, blob_append(content, repeat('more', 20000)::bytea) FROM doc WHERE doc.id = 'text';
INSERT INTO spread VALUES (2, NULL);
SELECT results_eq($$SELECT part::text, rows, content_bytes FROM blobext_space('spread', 'b')$$,
	$$VALUES ('"Spread 1"', 2::bigint, 2000000::bigint), ('spread_2', 4, 4080000)$$, 'partitions, of a domain');
SELECT results_eq($$SELECT extent_bytes FROM blobext_space('spread', 'b')$$,
	$$SELECT sum(pages * 4096)::bigint FROM (SELECT DISTINCT tableoid, first_page, pages FROM spread, blob_extents(b)) e
		GROUP BY tableoid ORDER BY tableoid::regclass::text$$, 'extents that rows of a table share count once');
SELECT cmp_ok((SELECT extent_bytes FROM blobext_space('spread', 'b') WHERE rows = 2), '<', 450000::bigint,
	'two rows with one value take the space of one');
CREATE VIEW of_spread AS SELECT * FROM spread;
SELECT throws_ok($$SELECT * FROM blobext_space('of_spread', 'b')$$, '42809', NULL, 'no sizes of a view');
SELECT throws_ok($$SELECT * FROM blobext_space('doc', 'id')$$, '42809', NULL, 'no sizes of a column of another type');

-- The directory lies in the extents: the datum stays small.
SELECT cmp_ok((SELECT max(pg_column_size(content)) FROM doc WHERE blob_storage(content) = 'extents'), '<', 700,
	'a datum does not grow with the number of frames');

-- Ranges, around the borders of frames.
SELECT is_empty($$SELECT id, o, n FROM doc,
		unnest(ARRAY[0, 1, 31, 4096, 131070, 131071, 131072, 131073, 262143, 262144, 899990, 4999999]) o,
		unnest(ARRAY[0, 1, 2, 100, 4096, 131072, 300000]) n
	WHERE blob_read(content, o, n) IS DISTINCT FROM substring(original FROM o + 1 FOR n)$$,
	'ranges around the borders of frames');
SELECT is_empty($$SELECT id FROM doc WHERE (SELECT string_agg(data, '' ORDER BY chunk_no)
		FROM blob_chunks(content, 100000)) IS DISTINCT FROM original$$, 'chunks of compressed values together are the content');

-- A range reads its frames only.
CREATE FUNCTION bytes_read(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
	after bigint;
BEGIN
	SELECT value INTO before FROM blobext_stat WHERE name = 'content_read_bytes';
	EXECUTE query;
	SELECT value INTO after FROM blobext_stat WHERE name = 'content_read_bytes';
	RETURN after - before;
END $$;
SELECT cmp_ok(bytes_read($$SELECT blob_read(content, 2500000, 10) FROM doc WHERE id = 'many'$$), '<',
	131072 + 3 * 4096::bigint, 'a range reads one frame, and nodes of the directory');
SELECT is(bytes_read($$SELECT blob_read(content, 2500100, 10) FROM doc WHERE id = 'many'$$), 4096::bigint,
	'the next range reads the node, and finds the frame in memory');

-- Changes.  Each is made of both columns.
CREATE FUNCTION changed(value blobstate, kind text, at bigint, piece bytea) RETURNS blobstate
	LANGUAGE sql AS $$
	SELECT CASE kind WHEN 'append' THEN blob_append(value, piece) WHEN 'write' THEN blob_write(value, at, piece)
		WHEN 'insert' THEN blob_insert(value, at, piece) WHEN 'delete' THEN blob_delete(value, at, length(piece))
		WHEN 'truncate' THEN blob_truncate(value, at) END $$;
CREATE FUNCTION changed(value bytea, kind text, at bigint, piece bytea) RETURNS bytea LANGUAGE sql AS $$
	SELECT CASE kind WHEN 'append' THEN value || piece
		WHEN 'write' THEN substring(value FROM 1 FOR at::int) || piece || substring(value FROM (at + length(piece) + 1)::int)
		WHEN 'insert' THEN substring(value FROM 1 FOR at::int) || piece || substring(value FROM at::int + 1)
		WHEN 'delete' THEN substring(value FROM 1 FOR at::int) || substring(value FROM (at + length(piece) + 1)::int)
		WHEN 'truncate' THEN substring(value FROM 1 FOR at::int) END $$;
SELECT is_empty(format($$SELECT id, '%s', at, length(piece) FROM doc,
		unnest(ARRAY[0, 1, 5000, 131071, 131072, 131073, 200000, 262144]) at,
		unnest(ARRAY['\x', '\x00', text_of(5000), noise_of(5000), text_of(140000)]) piece,
		LATERAL (SELECT changed(content, '%s', at, piece) c, changed(original, '%s', at, piece) o OFFSET 0) x
	WHERE id IN ('mixed', 'one more') AND at <= length(content)
		AND (c::bytea IS DISTINCT FROM o OR sha256(c) <> sha256(o) OR length(c) <> length(o))$$,
	kind, kind, kind), 'content is right after: ' || kind)
FROM unnest(ARRAY['append', 'write', 'insert', 'delete', 'truncate']) kind;
SELECT results_eq(format($$SELECT DISTINCT blob_compression(changed(content, '%s', 100000, 'abc')) FROM doc
	WHERE id IN ('text', 'mixed', 'one', 'many')$$, kind), ARRAY['zstd'], 'the method stays: ' || kind)
FROM unnest(ARRAY['append', 'write', 'insert', 'delete', 'truncate']) kind;

-- They write their frames only: the rest is shared.
CREATE FUNCTION bytes_written(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
	after bigint;
BEGIN
	SELECT sum(stored_bytes) INTO before FROM blobext_databases;
	EXECUTE query;
	SELECT sum(stored_bytes) INTO after FROM blobext_databases;
	RETURN after - before;
END $$;
SELECT cmp_ok(bytes_written(format($$SELECT changed(content, '%s', 2500000, 'abc') FROM doc WHERE id = 'many'$$,
	kind)), '<', 150000::bigint, 'a change in the middle writes its frames: ' || kind)
FROM unnest(ARRAY['write', 'insert', 'delete', 'truncate']) kind;
SELECT cmp_ok(bytes_written($$SELECT blob_append(content, 'abc') FROM doc WHERE id = 'many'$$), '<=',
	4096::bigint, 'an append writes a page');
SELECT cmp_ok(bytes_written($$SELECT blob_patch(content, ARRAY[0, 2500000, 4999990], ARRAY['a', 'b', 'c']::bytea[])
	FROM doc WHERE id = 'many'$$), '<', 400000::bigint, 'a patch writes the frames of its pieces');
SELECT is((SELECT sha256(blob_patch(content, ARRAY[0, 2500000, 4999990], ARRAY['a', 'b', 'c']::bytea[]))
		FROM doc WHERE id = 'many'),
	(SELECT sha256(changed(changed(changed(original, 'write', 0, 'a'), 'write', 2500000, 'b'), 'write', 4999990, 'c'))
		FROM doc WHERE id = 'many'), 'content after a patch');

-- The bytes behind the last frame: pages side by side, and a remainder.  Seen to fail, with variables that the compiler has filled,
-- where a cursor began with whatever the stack had.
CREATE TABLE edged AS SELECT blob_append(content, piece) AS content, original || piece AS original
	FROM doc, noise_of(20000) AS piece WHERE id = 'many';
SELECT ok(changed(content, kind, length(content) - 10000, 'abc') = changed(original, kind, length(content) - 10000, 'abc')
		AND sha256(changed(content, kind, length(content) - 10000, 'abc')) =
		sha256(changed(original, kind, length(content) - 10000, 'abc')), 'a change behind the last frame: ' || kind)
FROM edged, unnest(ARRAY['write', 'insert', 'delete']) kind;

-- Many small changes of one value.
CREATE TABLE grown AS SELECT content, original FROM doc WHERE id = 'one';
DO $$
DECLARE
	source bytea := noise_of(5000) || text_of(90000);
BEGIN
	FOR i IN 1..120 LOOP
		UPDATE grown SET content = blob_append(content, substring(source FROM i * 7 FOR i * i * 3)),
			original = original || substring(source FROM i * 7 FOR i * i * 3);
		UPDATE grown SET content = blob_insert(content, i * 1000, 'xyz'),
			original = changed(original, 'insert', i * 1000, 'xyz') WHERE i % 10 = 0;
	END LOOP;
END $$;
DO $$
BEGIN
	FOR i IN 1..50 LOOP
		UPDATE grown SET content = blob_append(content, text_of(i * 100)), original = original || text_of(i * 100);
	END LOOP;
END $$;
SELECT ok(content::bytea = original AND sha256(content) = sha256(original), 'many appends and inserts') FROM grown;
SELECT ok(blob_recompress_is_due(content, 'zstd'), 'a value that has grown in small steps can be compressed better')
FROM grown;
SELECT cmp_ok(blob_stored_length(blob_recompress(content, 'zstd')), '<', blob_stored_length(content) * 9 / 10,
	'blob_recompress() of a value that has grown saves a tenth or more') FROM grown;
SELECT ok(sha256(blob_recompress(content, 'zstd')::bytea) = sha256(original), 'blob_recompress() keeps the content')
FROM grown;
SELECT ok(NOT blob_recompress_is_due(blob_recompress(content, method), method), 'a value that was recompressed is not due again: ' || method)
FROM grown, unnest(ARRAY['none', 'lz4', 'zstd']) method;

-- Order and equality are of the content, whatever the form.
CREATE TABLE twin AS
	SELECT id, method, blob_recompress(content, method) AS b, original FROM doc, unnest(ARRAY['none', 'lz4', 'zstd']) method;
SELECT is_empty($$SELECT * FROM twin x JOIN twin y USING (id) WHERE x.b <> y.b OR blob_cmp(x.b, y.b) <> 0
	OR x.b <> y.original OR blob_hash(x.b) <> blob_hash(y.b)$$, 'values of one content are equal in all methods');
SELECT is_empty($$SELECT x.id, y.id, x.method, y.method FROM twin x, twin y
	WHERE blob_cmp(x.b, y.b) <> (CASE WHEN x.original < y.original THEN -1 WHEN x.original > y.original THEN 1 ELSE 0 END)
		AND sign(blob_cmp(x.b, y.b)) <> (CASE WHEN x.original < y.original THEN -1 WHEN x.original > y.original THEN 1 ELSE 0 END)$$,
	'order is that of bytea in all methods');
-- Versions share extents at equal stored offsets, but not content at equal offsets.
SELECT is_empty($$SELECT id, at FROM doc, unnest(ARRAY[40, 5000, 140000]) at,
		LATERAL (SELECT blob_insert(content, at, '\x00') i, blob_delete(content, at, 1) d OFFSET 0) x
	WHERE id IN ('text', 'mixed', 'many')
		AND (sign(blob_cmp(i, content)) <> -1
			OR sign(blob_cmp(d, content)) <> CASE WHEN d::bytea < original THEN -1 ELSE 1 END
			OR sign(blob_cmp(i, d)) <> CASE WHEN i::bytea < d::bytea THEN -1 ELSE 1 END)$$,
	'versions that share extents are ordered by content');
CREATE UNIQUE INDEX ON twin (b) WHERE method = 'zstd';
CREATE INDEX ON twin USING hash (b);
SET LOCAL enable_seqscan = off;
SELECT is((SELECT count(*) FROM twin t WHERE method = 'zstd' AND b = t.original), 9::bigint, 'a unique index finds values of each form');
RESET enable_seqscan;

-- Which method applies.
CREATE TABLE method (a blobstate, b blobstate);
SET LOCAL blobext.default_compression = 'lz4';
SELECT blobext_set_compression('method', 'b', 'zstd');
INSERT INTO method SELECT t, t FROM convert_to(repeat('abcdefgh', 2500), 'UTF8') t;
SELECT results_eq('SELECT blob_compression(a), blob_compression(b) FROM method', $$VALUES ('lz4', 'zstd')$$,
	'the column''s method, or the default');
UPDATE method SET b = a, a = b;
SELECT results_eq('SELECT blob_compression(a), blob_compression(b) FROM method', $$VALUES ('zstd', 'lz4')$$,
	'an assignment does not compress again');
SELECT blobext_set_compression('method', 'b', 'none');
PREPARE assign(blobstate) AS UPDATE method SET b = $1 RETURNING blob_compression(b);
SELECT results_eq($$EXECUTE assign(repeat('abcdefgh', 2000)::bytea)$$, ARRAY['none'], 'a prepared statement uses the column''s method "none"');
SELECT blobext_set_compression('method', 'b', 'zstd');
SELECT results_eq($$EXECUTE assign(repeat('abcdefgh', 2000)::bytea)$$, ARRAY['zstd'],
	'a prepared statement uses the method that the column got later');
SELECT blobext_set_compression('method', 'b', NULL);
SELECT results_eq($$EXECUTE assign(repeat('abcdefgh', 2000)::bytea)$$, ARRAY['lz4'],
	'a column whose method was taken away has the default');

-- A label goes with the last type that can have one, else a dump could not be restored.
CREATE TABLE turned (a blobstate, b blobstate, c blobstate, id int) PARTITION BY LIST (id);
CREATE TABLE turned_1 PARTITION OF turned FOR VALUES IN (1);
SELECT blobext_set_compression(relation, name, 'zstd')
FROM unnest(ARRAY['turned', 'turned_1']::regclass[]) relation, unnest(ARRAY['a', 'b', 'c']) name;
ALTER TABLE turned ALTER a TYPE text USING encode(a::bytea, 'hex'), ALTER b TYPE bytea USING b::bytea, ALTER c SET NOT NULL;
SELECT results_eq($$SELECT objname COLLATE "default" FROM pg_seclabels WHERE objname LIKE 'turned%' ORDER BY 1$$,
	ARRAY['turned.b', 'turned.c', 'turned_1.b', 'turned_1.c'], 'a column of text has no label, one of bytea keeps it');
ALTER TABLE turned ALTER b TYPE blobstate;
INSERT INTO turned (b, id, c) VALUES (repeat('abcdefgh', 2500)::bytea, 1, '');
SELECT is(blob_compression(b), 'zstd', 'a column that was bytea for a time') FROM turned;

-- Errors.
SELECT throws_ok($$SELECT blobext_set_compression('method', 'b', 'gzip')$$, '22023',
	'"gzip" is not a method of compression', 'a method that is unknown is refused');
SELECT throws_ok($$SELECT blobext_set_compression('doc', 'id', 'zstd')$$, '42809', NULL, 'a column of another type gets no method');
SELECT throws_ok($$SELECT blobext_set_compression('doc', 'nothing', 'zstd')$$, '42703', NULL, 'a column that is not there gets no method');
SELECT throws_ok($$SECURITY LABEL FOR blobext ON COLUMN doc.id IS 'zstd'$$, '42809', NULL,
	'a label for a column of another type');
SELECT throws_ok($$SELECT blobext_set_compression('of_spread', 'b', 'zstd')$$, '42809',
	'labels of blobext are for columns of tables', 'a view: values that go through it have the method of the table');
SELECT throws_ok($$SECURITY LABEL FOR blobext ON TABLE doc IS 'zstd'$$, '42809', NULL, 'a label for a table');
SELECT throws_ok($$SECURITY LABEL FOR blobext ON COLUMN doc.content IS 'best'$$, '22023', NULL,
	'a label that is no method');
SELECT throws_ok($$CALL blobext_recompress('doc', 'content')$$, '2D000', NULL, 'blobext_recompress() is refused within a transaction block');
CREATE ROLE compression_other;
GRANT SELECT, UPDATE ON doc TO compression_other;
SET LOCAL ROLE compression_other;
SELECT throws_ok($$SELECT blobext_set_compression('doc', 'content', 'none')$$, '42501', NULL, 'another role than the owner may not set the method');
RESET ROLE;

SELECT is_empty('SELECT * FROM blobext_check()', 'blobext_check() finds nothing among compressed values');
SELECT * FROM finish();
ROLLBACK;
