-- Inline values over the limit that TOAST has compressed or moved out of the row: every statement
-- that stores them again moves them to extents.
--
-- Seen to fail when a pointer to a TOAST table was taken for a short value: 36 of these assertions.
-- Values out of the row stayed inline, and the collector fetched all of them (413 blocks of TOAST
-- tables).
CREATE SCHEMA toasted;
SET search_path = toasted, public;
SELECT plan(60);

CREATE FUNCTION bytes(n int, seed text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT coalesce(substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR n), '')
	FROM generate_series(1, (n + 31) / 32) i
$$;

-- Values of the kept tables: random bytes, and bytes that can be compressed; with a short header,
-- plain, out of the row.
CREATE TABLE content (id int, o bytea);
INSERT INTO content
	SELECT row_number() OVER (), CASE WHEN compressible THEN convert_to(left(repeat(n || ' ', n), n), 'UTF8')
		ELSE bytes(n, n::text) END
	FROM unnest(ARRAY[100, 1500, 5000, 100000, 262144]) n, unnest(ARRAY[false, true]) compressible;
INSERT INTO content SELECT 100, bytes(1048576, 'limit');
-- Values below the limit that is set later.
INSERT INTO content VALUES (200, bytes(64, 'small')), (201, '\x');

CREATE FUNCTION keep(relation text, storage text, compression text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %s (id int PRIMARY KEY, b blobstate)', relation);
	EXECUTE format('ALTER TABLE %s ALTER b SET STORAGE %s, ALTER b SET COMPRESSION %s', relation, storage,
		compression);
	SET LOCAL blobext.inline_limit = '1MB';
	EXECUTE format('INSERT INTO %s SELECT id, o FROM content', relation);
END $$;
SELECT keep('kept_' || lower(storage), storage, 'pglz')
FROM unnest(ARRAY['EXTERNAL', 'EXTENDED', 'MAIN']) storage;
SELECT keep('kept_lz4', 'EXTENDED', CASE WHEN 'lz4' = ANY (enumvals) THEN 'lz4' ELSE 'pglz' END)
FROM pg_settings WHERE name = 'default_toast_compression';
CREATE TABLE kept AS SELECT unnest(ARRAY['kept_external', 'kept_extended', 'kept_main', 'kept_lz4'])
	AS relation;

SET blobext.inline_limit = 64;

-- Which values are not as they should be: over the limit in extents, others inline; all with their content.
CREATE FUNCTION wrong(relation text, storage text DEFAULT 'extents') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	EXECUTE format('SELECT coalesce(string_agg(id || '' '' || coalesce(blob_storage(b), ''-''), '', ''
			ORDER BY id), '''')
		FROM content LEFT JOIN %s USING (id)
		WHERE b IS NULL OR b::bytea <> o OR blob_storage(b) <> CASE WHEN length(o) > 64 THEN %L
			ELSE ''inline'' END', relation, storage) INTO found;
	RETURN found;
END $$;
-- Do it; then nothing of the relation is wrong.
CREATE FUNCTION done(statement text, relation text, name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN is(wrong(relation), '', name);
END $$;
CREATE FUNCTION toast_bytes(relation regclass) RETURNS bigint LANGUAGE sql AS $$
	SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = relation
$$;

SELECT is(wrong(relation, 'inline'), '', relation || ': all values are inline and right') FROM kept;
SELECT cmp_ok(toast_bytes(relation::regclass), '>', 1000000::bigint, relation || ': values lie out of the row')
FROM kept;
SELECT is((SELECT count(pg_column_compression(b)) FROM kept_external), 0::bigint, 'no value of STORAGE EXTERNAL is compressed');
SELECT cmp_ok((SELECT count(pg_column_compression(b)) FROM kept_extended), '>', 2::bigint, 'values of STORAGE EXTENDED are compressed');
SELECT cmp_ok((SELECT count(*) FROM kept_main WHERE pg_column_compression(b) IS NOT NULL
	AND pg_column_size(b) < 8000), '>', 2::bigint, 'values of STORAGE MAIN are compressed in the row');
SELECT is((SELECT pg_column_size(b) FROM kept_main WHERE id = 1), 102, 'a value of a hundred bytes has a short header');

--
-- Statements that modify tables
--
CREATE TABLE copied (LIKE kept_main INCLUDING INDEXES);
SELECT done(format('TRUNCATE copied; INSERT INTO copied SELECT * FROM %s', relation), 'copied',
	'values are right after INSERT SELECT of ' || relation) FROM kept;
SELECT done(format('INSERT INTO copied SELECT * FROM %s WHERE true
	ON CONFLICT (id) DO UPDATE SET b = excluded.b', relation), 'copied', 'values are right after ON CONFLICT of ' || relation)
FROM kept;
SELECT done(format('TRUNCATE copied; INSERT INTO copied SELECT id, NULL FROM content; MERGE INTO copied
	USING %1$s ON copied.id = %1$s.id WHEN MATCHED THEN UPDATE SET b = %1$s.b', relation), 'copied',
	'values are right after MERGE of ' || relation) FROM kept;
PREPARE copy_one(int) AS INSERT INTO copied SELECT id, b FROM kept_external WHERE id = $1;
TRUNCATE copied;
EXECUTE copy_one(100);
DELETE FROM copied;
EXECUTE copy_one(100);
SELECT is((SELECT blob_storage(b) FROM copied), 'extents', 'a prepared statement, twice');

CREATE FUNCTION copy_all() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	k record;
BEGIN
	FOR k IN SELECT * FROM kept_external LOOP
		INSERT INTO copied VALUES (k.id, k.b);
	END LOOP;
END $$;
TRUNCATE copied;
SELECT copy_all();
SELECT is(wrong('copied'), '', 'values that a function copied are right');
CREATE DOMAIN document AS blobstate;
CREATE TABLE of_domain (id int, b document);
INSERT INTO of_domain SELECT * FROM kept_external;
SELECT is(wrong('of_domain'), '', 'values that were copied into a domain are right');
CREATE TABLE parted (id int, b blobstate) PARTITION BY RANGE (id);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (5);
CREATE TABLE parted_high PARTITION OF parted DEFAULT;
INSERT INTO parted SELECT * FROM kept_extended;
SELECT is(wrong('parted'), '', 'values that were copied into partitions are right');

--
-- Tables made from queries
--
SELECT done(format('CREATE TABLE made_of_%1$s AS SELECT * FROM %1$s', relation), 'made_of_' || relation,
	'values are right after CREATE TABLE AS of ' || relation) FROM kept;
SELECT * INTO into_of_main FROM kept_main;
SELECT is(wrong('into_of_main'), '', 'values that SELECT INTO copied are right');
SELECT done(format('CREATE MATERIALIZED VIEW view_of_%1$s AS SELECT * FROM %1$s', relation),
	'view_of_' || relation, 'values are right after CREATE MATERIALIZED VIEW of ' || relation) FROM kept;
CREATE TABLE made_of_array AS SELECT array_agg(b ORDER BY id) AS a FROM kept_external WHERE length(b) > 64;
SELECT is((SELECT string_agg(DISTINCT blob_storage(e), ', ') FROM made_of_array, unnest(a) AS e), 'extents',
	'CREATE TABLE AS of an array');

--
-- ALTER TABLE: a column that was made while blobext was not loaded has no modifier
--
CREATE TABLE altered AS SELECT * FROM kept_external WITH NO DATA;
UPDATE pg_attribute SET atttypmod = -1 WHERE attrelid = 'altered'::regclass AND attname = 'b';
SET blobext.inline_limit = '1MB';
INSERT INTO altered SELECT * FROM kept_external;
SET blobext.inline_limit = 64;
SELECT is(wrong('altered', 'inline'), '', 'values are inline before ALTER TYPE');
ALTER TABLE altered ALTER b TYPE blobstate;
SELECT is(wrong('altered'), '', 'values are right after ALTER TYPE');
CREATE TABLE altered_bytea AS SELECT id, o AS b FROM content;
ALTER TABLE altered_bytea ALTER b SET STORAGE EXTERNAL;
UPDATE altered_bytea SET b = b || '';
ALTER TABLE altered_bytea ALTER b TYPE blobstate;
SELECT is(wrong('altered_bytea'), '', 'ALTER TYPE of bytea');

--
-- Values that stay as they are
--
-- A small value that is out of its row, because the row is wide; a descriptor that is.
CREATE TABLE wide (id int, pad text, b blobstate);
ALTER TABLE wide ALTER pad SET STORAGE PLAIN, ALTER b SET STORAGE EXTERNAL;
SET blobext.inline_limit = 1024;
INSERT INTO wide VALUES (1, repeat('x', 7900), bytes(1000, 'small')),
	(2, repeat('x', 7900), bytes(5000, 'large'));
SELECT is((SELECT count(*) FROM wide WHERE pg_column_size(b) > 100), 2::bigint, 'both values take more than a hundred bytes');
SELECT cmp_ok(toast_bytes('wide'), '>', 0::bigint, 'out of their rows');
CREATE TABLE wide_copied (LIKE wide);
INSERT INTO wide_copied SELECT * FROM wide;
UPDATE wide_copied SET b = b;
SELECT is((SELECT blob_storage(b) FROM wide_copied WHERE id = 1 AND b::bytea = bytes(1000, 'small')), 'inline',
	'a small one stays inline');
SELECT is((SELECT count(*) FROM wide JOIN wide_copied AS c USING (id),
		LATERAL (SELECT first_page FROM blob_extents(wide.b) LIMIT 1) AS x,
		LATERAL (SELECT first_page FROM blob_extents(c.b) LIMIT 1) AS y
	WHERE id = 2 AND x = y AND c.b::bytea = bytes(5000, 'large')), 1::bigint, 'a descriptor is copied');
SET blobext.inline_limit = 64;

-- Larger than any limit: a value that a read-only transaction has stored.
CREATE TEMP TABLE readonly (id int, b blobstate);
SELECT bytes(30000000, 'huge') AS huge \gset
BEGIN READ ONLY;
INSERT INTO readonly VALUES (1, :'huge');
UPDATE readonly SET b = b;
COMMIT;
SELECT is((SELECT blob_storage(b) FROM readonly), 'inline', 'nothing moves in a read-only transaction');
UPDATE readonly SET b = b;
SELECT is((SELECT blob_storage(b) || ' ' || length(b) FROM readonly), 'extents 30000000', 'a value that stayed in a read-only transaction moves to extents later');
SELECT is((SELECT sha256(b) FROM readonly), sha256(:'huge'::bytea), 'a value that moves to extents later keeps its content');

--
-- The collector reads the beginning of an inline value only.
--
SELECT pg_stat_force_next_flush();
CREATE FUNCTION toast_reads() RETURNS bigint LANGUAGE sql AS $$
	SELECT sum(coalesce(toast_blks_read, 0) + coalesce(toast_blks_hit, 0))::bigint
	FROM pg_statio_user_tables WHERE relname IN ('kept_external', 'kept_extended')
$$;
SELECT toast_reads() AS before \gset
SELECT coalesce(skipped_reason, 'done') AS outcome FROM blobext_gc() \gset
SELECT pg_stat_force_next_flush();
SELECT is(:'outcome'::text, 'done', 'a round with inline values in TOAST is not skipped');
SELECT cmp_ok(toast_reads() - :before, '>', 0::bigint, 'the round reads blocks of the TOAST tables');
SELECT cmp_ok(toast_reads() - :before, '<', 40::bigint, 'the round reads fewer than 40 blocks of the TOAST tables');

--
-- UPDATE moves them where they are.
--
SELECT done(format('UPDATE %s SET b = b', relation), relation, 'values are right after UPDATE of ' || relation) FROM kept;
VACUUM kept_external, kept_extended, kept_main, kept_lz4;
SELECT is(toast_bytes(relation::regclass), 0::bigint, relation || ': nothing is left out of the row')
FROM kept;
SELECT is_empty('SELECT * FROM blobext_check()', 'the check finds nothing');

SELECT * FROM finish();
SET client_min_messages = warning;
DROP SCHEMA toasted CASCADE;
