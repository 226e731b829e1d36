-- Trees of pieces: random changes of values of all forms against bytea; versions of one value; what
-- a change reads and writes; when a value is written anew.
--
-- Seen to fail: with the tier of another extent in a slot (share_extents() of slot_writer.c); where a compressed tree that becomes shorter
-- than blobext.inline_limit is framed (rewrite_tree() of writer.c).
CREATE SCHEMA trees;
SET search_path = trees, public;
SELECT plan(36);

\ir nothing_deferred.psql

\ir helpers.psql
SET blobext.rewrite_limit = '64kB';

-- A value with its content, as it should be; its form is the first byte of the datum.
CREATE TABLE v (id int PRIMARY KEY, b blobstate, o bytea);
CREATE TABLE z (LIKE v);
CREATE TABLE l (LIKE v);
SELECT blobext_set_compression('z', 'b', 'zstd');
SELECT blobext_set_compression('l', 'b', 'lz4');

-- Of values that are not compressed: a tree has nodes beside its content.
CREATE FUNCTION is_tree(b blobstate) RETURNS boolean LANGUAGE sql AS $$
	SELECT blob_stored_length(b) > length(b)
$$;

CREATE FUNCTION is_whole(t regclass, row_id int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	result boolean;
BEGIN
	EXECUTE format('SELECT length(b) = octet_length(o) AND sha256(b) = sha256(o) AND b::bytea = o FROM %s WHERE id = $1', t)
		INTO result USING row_id;
	RETURN result;
END
$$;

-- Half of the content can be compressed.
CREATE FUNCTION content(n int, seed int) RETURNS bytea LANGUAGE sql AS $$
	SELECT substring(string_agg(CASE i % 2 WHEN 0 THEN bytes(8192, seed + i)
		ELSE convert_to(repeat(md5((seed + i)::text), 256), 'UTF8') END, '' ORDER BY i) FROM 1 FOR n)
	FROM generate_series(1, n / 8192 + 1) i
$$;

-- A random change of a value and its content, by each function.
CREATE FUNCTION change(t regclass, row_id int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	size int;
	at int;
	n int;
	kind int := random() * 6.99 - 0.5;
	x bytea;
	original blobstate;
	expected bytea;
BEGIN
	EXECUTE format('SELECT length(b), o, b FROM %s WHERE id = $1', t) INTO size, expected, original USING row_id;
	at := random() * size;
	n := (ARRAY[1, 50, 3000, 20000, 150000])[1 + floor(random() * 5)];
	x := content(n, (random() * 1000000)::int);
	IF kind = 1 AND size > 2000000 THEN
		kind := 2;
	ELSIF kind = 2 AND size < 300000 THEN
		kind := 1;
	END IF;
	IF kind = 0 THEN
		original := blob_write(original, at, x);
		expected := substring(expected FROM 1 FOR at) || x || substring(expected FROM at + n + 1);
	ELSIF kind = 1 THEN
		original := blob_insert(original, at, x);
		expected := substring(expected FROM 1 FOR at) || x || substring(expected FROM at + 1);
	ELSIF kind = 2 THEN
		n := least(n, size - at);
		original := blob_delete(original, at, n);
		expected := substring(expected FROM 1 FOR at) || substring(expected FROM at + n + 1);
	ELSIF kind = 3 THEN
		n := least(n, size - 200000);
		original := blob_truncate(original, size - greatest(n, 0));
		expected := substring(expected FROM 1 FOR size - greatest(n, 0));
	ELSIF kind = 4 THEN
		original := blob_append(original, x);
		expected := expected || x;
	ELSE
		x := substring(x FROM 1 FOR 5000);
		n := octet_length(x);
		at := at / 3;
		original := blob_patch(original, ARRAY[at, at + size / 2]::bigint[], ARRAY[x, x]);
		expected := substring(expected FROM 1 FOR at) || x || substring(expected FROM at + n + 1);
		expected := substring(expected FROM 1 FOR at + size / 2) || x || substring(expected FROM at + size / 2 + n + 1);
	END IF;
	EXECUTE format('UPDATE %s SET b = $1, o = $2 WHERE id = $3', t) USING original, expected, row_id;
	IF sha256(original) <> sha256(expected) THEN
		RAISE EXCEPTION 'kind %, % bytes at % of %: another digest', kind, n, at, size;
	END IF;
	RETURN NULL;
END
$$;

SELECT setseed(0.5);
INSERT INTO v SELECT 1, c, c FROM content(1000000, 1) c;
INSERT INTO z SELECT 1, c, c FROM content(1000000, 2) c;
INSERT INTO l SELECT 1, c, c FROM content(1000000, 3) c;
SELECT is(blob_compression(b), 'zstd', 'a value of a column with a method is compressed') FROM z;

-- ---- forms ----

SELECT is(is_tree(b), false, 'a fresh value is no tree') FROM v;
SELECT is(is_tree(blob_write(b, 500000, '\x01')), true, 'a change in the middle makes a tree') FROM v;
SELECT is(is_tree(blob_append(b, '\x01')), false, 'an append makes no tree') FROM v;
SELECT is(is_tree(blob_truncate(b, 500000)), false, 'truncation makes no tree') FROM v;
SELECT is(is_tree(blob_delete(b, 100, 900000)), false, 'a change that keeps little writes the value anew') FROM v;
SELECT is(is_tree(blob_write(blob_truncate(b, 65536), 100, '\x01')), false, 'a short value is written anew') FROM v;
SELECT is(is_tree(blob_truncate(blob_write(b, 500000, '\x01'), 65536)), false, 'a tree that becomes short is none any more') FROM v;
SELECT cmp_ok(max(pg_column_size(blob_write(b, 500000, '\x01'))), '<', 2028, 'a tree fits into a row') FROM v;
SELECT is((SELECT count(*) FROM blob_extents(v.b) x WHERE first_page NOT IN (SELECT first_page
	FROM blob_extents(blob_write(v.b, 500000, '\x01')))), 0::bigint, 'a tree shares the extents of its base') FROM v;

-- ---- costs: 6 MB, 100 bytes in the middle ----

INSERT INTO v SELECT 2, c, c FROM content(6000000, 4) c;
UPDATE v SET b = blob_insert(b, 3000000, 'x'), o = substring(o FROM 1 FOR 3000000) || 'x' || substring(o FROM 3000001) WHERE id = 2;
SELECT cmp_ok(cost('io_write_bytes', $$UPDATE v SET b = blob_insert(b, 1000000, bytes(100, 1)) WHERE id = 2$$), '<=', 40960::bigint,
	'an insert of 100 bytes writes a piece and a path');
UPDATE v SET o = substring(o FROM 1 FOR 1000000) || bytes(100, 1) || substring(o FROM 1000001) WHERE id = 2;
SELECT ok(is_whole('v', 2), 'a large value after two inserts is whole');
SELECT cmp_ok(cost('io_write_bytes', $$UPDATE v SET b = blob_write(b, 1000000, bytes(100, 1)) WHERE id = 2$$), '<=', 40960::bigint,
	'an overwrite writes as little');

\ir cold_buffer.psql
SELECT cmp_ok(cost('io_read_bytes', $$UPDATE v SET b = blob_append(b, 'x'), o = o || 'x' WHERE id = 2$$), '<=', 40960::bigint,
	'an append to a tree reads its last piece and a path');
SELECT ok(is_whole('v', 2), 'a tree with a byte behind it is whole');

-- ---- random changes ----

SELECT is(count(change('v', 1)), 0::bigint, 'random changes of a plain value') FROM generate_series(1, 60);
SELECT ok(is_whole('v', 1), 'a plain value is whole after them');
SELECT is(count(change('z', 1)), 0::bigint, 'random changes of a value that zstd has compressed') FROM generate_series(1, 40);
SELECT ok(is_whole('z', 1), 'a value of zstd is whole after them');
SELECT is(blob_compression(b), 'zstd', 'the value keeps its method') FROM z;
SELECT is(count(change('l', 1)), 0::bigint, 'random changes of a value that lz4 has compressed') FROM generate_series(1, 40);
SELECT ok(is_whole('l', 1), 'a value of lz4 is whole after them');

-- ---- versions ----

CREATE TABLE versions (no serial PRIMARY KEY, b blobstate UNIQUE, o bytea);
INSERT INTO versions (b, o) SELECT b, o FROM v WHERE id = 2;
UPDATE versions SET o = b::bytea;
DO $$
DECLARE
	at int;
	x bytea;
BEGIN
	FOR i IN 1 .. 40 LOOP
		at := random() * 5000000;
		x := bytes(1 + (random() * 30000)::int, i);
		INSERT INTO versions (b, o) SELECT blob_write(b, at, x),
			substring(o FROM 1 FOR at) || x || substring(o FROM at + octet_length(x) + 1)
			FROM versions ORDER BY random() LIMIT 1;
	END LOOP;
END $$;
SELECT is((SELECT count(*) FROM versions WHERE b::bytea <> o OR sha256(b) <> sha256(o)), 0::bigint,
	'versions that were made from versions are what they should be');
SELECT is((SELECT array_agg(no ORDER BY b) FROM versions), (SELECT array_agg(no ORDER BY o) FROM versions),
	'versions sort as their bytes');
SELECT throws_ok($$INSERT INTO versions (b, o) SELECT blob_write(b, 10, blob_read(b, 10, 50)), '' FROM versions WHERE no = 5$$,
	'23505', NULL, 'UNIQUE finds the same content in another tree');
SELECT is((SELECT count(*) FROM versions x JOIN versions y ON x.b = y.o::blobstate), 41::bigint, 'trees equal plain values of their content');
SELECT is((SELECT count(*) FROM versions WHERE blob_read(b, 2000000, 300000) <> substring(o FROM 2000001 FOR 300000)), 0::bigint,
	'ranges of versions are those of their bytes');
SELECT is((SELECT count(*) FROM versions, LATERAL (SELECT string_agg(data, '' ORDER BY chunk_no) d FROM blob_chunks(b, 100000)) c
	WHERE d <> o), 0::bigint, 'chunks of versions together are their content');

-- ---- aborted changes ----

BEGIN;
SAVEPOINT s;
UPDATE v SET b = blob_insert(b, 10, bytes(100000, 7)) WHERE id = 2;
ROLLBACK TO s;
UPDATE v SET b = blob_insert(b, 20, 'second'), o = b::bytea WHERE id = 2;
UPDATE v SET o = substring(o FROM 1 FOR 20) || 'second' || substring(o FROM 21) WHERE id = 2;
COMMIT;
SELECT ok(is_whole('v', 2), 'a change after an aborted one is whole');

-- ---- the rest of the library ----

SELECT is_empty('SELECT * FROM blobext_check()', 'blobext_check() finds nothing among trees');
SELECT is(position('second'::bytea IN b), 21::bigint, 'searching in a tree') FROM v WHERE id = 2;
SELECT is((SELECT sha256(blob_agg(p.data::blobstate ORDER BY chunk_no)) FROM blob_chunks(v.b, 700000) p), sha256(b), 'a tree in pieces, put together')
	FROM v WHERE id = 2;
SET blobext.rewrite_limit = '1GB';
SELECT is(is_tree(blob_write(b, 5, blob_read(b, 5, 1))), false, 'with another limit a change writes a tree anew') FROM v WHERE id = 2;
SELECT is(sha256(blob_write(b, 5, blob_read(b, 5, 1))), sha256(b), 'a tree that was written anew has its content') FROM v WHERE id = 2;
SET blobext.inline_limit = '256kB';
SELECT is((SELECT count(first_page) FROM blob_extents(blob_truncate(b, 200000))), 0::bigint, 'a compressed tree that is cut to bytes for the row has no extents')
	FROM z WHERE id = 1;
SELECT is(sha256(blob_truncate(b, 200000)), sha256(substring(b FROM 1 FOR 200000)), 'a compressed tree that is cut to bytes for the row has its content')
	FROM z WHERE id = 1;
RESET blobext.inline_limit;
SELECT * FROM finish();
