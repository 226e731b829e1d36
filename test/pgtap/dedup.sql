-- blobext_dedup() and blob_intern(): which rows share values, by which rights, and which are left alone.
--
CREATE SCHEMA dedup;
SET search_path = dedup, public;
SET client_min_messages = error;
SELECT plan(76);

CREATE FUNCTION value(seed int, pages int DEFAULT 3) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(sha512(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
	FROM generate_series(1, pages * 64 - 10) i
$$;
-- The number of a value: the first page of its extents.
CREATE FUNCTION place(blobstate) RETURNS bigint LANGUAGE sql STABLE AS $$
	SELECT first_page FROM public.blob_extents($1) WHERE extent_no = 0
$$;
CREATE TABLE oracle (relation regclass, id int, digest bytea);
CREATE FUNCTION remember(relation regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM oracle AS o WHERE o.relation = $1;
	EXECUTE format('INSERT INTO oracle SELECT %L, id, sha256(content::bytea) FROM %s', $1, $1);
END $$;
-- Rows that are others than remembered.
CREATE FUNCTION changed(relation regclass) RETURNS TABLE (id int) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT coalesce(o.id, t.id) FROM %s AS t FULL JOIN
		(SELECT * FROM dedup.oracle WHERE relation = %L::regclass) AS o USING (id)
		WHERE o.digest IS DISTINCT FROM sha256(t.content::bytea)', $1, $1);
END $$;

--
-- Rows of equal content; with the newest value in place of the oldest one eight tests fail
--
CREATE TABLE d (id int, name text, content blobstate);
INSERT INTO d SELECT i, 'n' || i, value(i % 10) FROM generate_series(1, 100) i;
INSERT INTO d VALUES (101, 'small', 'x'), (102, 'small', 'x'), (103, 'null', NULL), (104, 'null', NULL);
SELECT remember('d');
CREATE TABLE places AS SELECT id, ctid AS place FROM d WHERE id > 100;
CALL blobext_dedup('d', 'content') \gset
SELECT is(:rows_shared, 90, 'all rows but one of each content are updated');
SELECT is(:bytes_saved, 90 * 3 * 4096, 'the space of their values is saved');
SELECT is(:rows_skipped + :rows_failed, 0, 'no row is left');
SELECT is(count(DISTINCT place(content)), 10::bigint, 'there are as many values as contents') FROM d;
SELECT is_empty($$SELECT changed('d')$$, 'contents are what they were');
SELECT is_empty('SELECT id, place FROM places EXCEPT SELECT id, ctid FROM d',
	'rows with inline values, and nulls, are not touched');
CALL blobext_dedup('d', 'content') \gset
SELECT is(:rows_shared + :bytes_saved + :rows_skipped + :rows_failed, 0, 'a second call finds nothing to do');

UPDATE d SET content = value(3) WHERE id = 3;
INSERT INTO d VALUES (105, 'new', value(3));
VACUUM FULL d;
CREATE TABLE first AS SELECT * FROM d ORDER BY id <> 3, id;		-- the new value is in the first row
SELECT remember('first');
SELECT place(content) AS most FROM first WHERE id = 13 \gset
CALL blobext_dedup('first', 'content') \gset
SELECT is(:rows_shared, 2, 'new values give way to the one that is there');
SELECT is(array_agg(DISTINCT place(content)), ARRAY[:most]::bigint[], 'the oldest value is kept')
FROM first WHERE id % 10 = 3 AND id < 100 OR id = 105;
SELECT is_empty($$SELECT changed('first')$$, 'contents are what they were');

-- Two values, each of several rows: a value counts once.
CREATE TABLE twice AS SELECT i AS id, content FROM d, generate_series(1, 5) i WHERE d.id = 1;
INSERT INTO twice VALUES (6, value(1));
INSERT INTO twice SELECT i, content FROM twice, generate_series(7, 9) i WHERE id = 6;
CALL blobext_dedup('twice', 'content') \gset
SELECT is(:'rows_shared' || ' ' || :'bytes_saved', '4 12288', 'a value that several rows had counts once');

-- Compressed and not: the value that takes less space is kept, although it is newer.  With the oldest one in
-- its place no row is compressed.
CREATE TABLE packed (id int, content blobstate);
INSERT INTO packed SELECT i, convert_to(repeat('compressible ', 20000), 'UTF8') FROM generate_series(1, 3) i;
SELECT blobext_set_compression('packed', 'content', 'zstd');
INSERT INTO packed SELECT i, convert_to(repeat('compressible ', 20000), 'UTF8') FROM generate_series(4, 5) i;
SELECT remember('packed');
CALL blobext_dedup('packed', 'content') \gset
SELECT is(:rows_shared, 4, 'values that are compressed, and others');
SELECT is(array_agg(DISTINCT blob_compression(content)), ARRAY['zstd'], 'the smaller value is kept') FROM packed;
SELECT is_empty($$SELECT changed('packed')$$, 'contents are what they were');

-- Values that share their extents, and differ in where their last bytes are; without the look at the space both
-- are updated.
CREATE TABLE grown (id int, content blobstate);
INSERT INTO grown VALUES (1, substring(value(1) FOR 9000));
INSERT INTO grown SELECT i, blob_truncate(blob_append(content, 'x'), 9000) FROM grown, generate_series(2, 3) i;
SELECT is(count(DISTINCT content::text) || ' ' || count(DISTINCT pg_column_size(content)), '1 2',
	'one content, in two forms') FROM grown;
CALL blobext_dedup('grown', 'content') \gset
SELECT is(:rows_shared, 0, 'values that have all but bytes of the row in common are left alone');

CREATE TABLE "Select ""me""" (id int, "from" blobstate);
INSERT INTO "Select ""me""" VALUES (1, value(1)), (2, value(1));
CALL blobext_dedup('"Select ""me"""', 'from') \gset
SELECT is(:rows_shared, 1, 'names that must be quoted');

CALL blobext_dedup('d', 'content', verify => false, batch_rows => 1) \gset
UPDATE d SET content = value(id % 10) WHERE id < 50;
CALL blobext_dedup('d', 'content', verify => false, batch_rows => 1) \gset
SELECT is(:rows_shared, 49, 'by digests alone, a row for each transaction');
SELECT is(count(DISTINCT xmin::text) >= 49, true, 'each was a transaction') FROM d WHERE id < 50;

SET default_transaction_isolation = serializable;
UPDATE d SET content = value(id % 10) WHERE id < 50;
CALL blobext_dedup('d', 'content') \gset
SELECT is(:rows_shared, 49, 'in a session whose transactions are serializable');
RESET default_transaction_isolation;

-- More contents than fit into the memory.  Without the second range half of the rows are left; without a
-- limit there is one range only.
SET maintenance_work_mem = '1MB';
SET blobext.inline_limit = 16;
CREATE TABLE many (id int, content blobstate);
INSERT INTO many SELECT i, convert_to(lpad((i % 8500)::text, 20), 'UTF8') FROM generate_series(1, 9500) i;
RESET blobext.inline_limit;
SELECT remember('many');
CREATE TABLE ranges (done bigint);
CREATE FUNCTION note_range() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO dedup.ranges SELECT ranges_done FROM public.blobext_dedup_progress;
	RETURN new;
END $$;
CREATE TRIGGER r BEFORE UPDATE ON many FOR EACH ROW EXECUTE FUNCTION note_range();
CALL blobext_dedup('many', 'content', batch_rows => 500) \gset
SELECT is(:rows_shared, 1000, 'all duplicates are shared when digests come in ranges');
SELECT results_eq('SELECT done, count(*) > 300 FROM ranges GROUP BY 1 ORDER BY 1', $$VALUES (0::bigint, true), (1, true)$$,
	'each range has its rows');
SELECT is(count(DISTINCT place(content)), 8500::bigint, 'each content has one place after all ranges') FROM many;
SELECT is_empty($$SELECT changed('many')$$, 'contents are what they were');
RESET maintenance_work_mem;
DROP TABLE many;

--
-- Kinds of tables and columns
--
CREATE TABLE parted (id int, content blobstate) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE part2 (content blobstate, dropped text, id int);
ALTER TABLE part2 DROP COLUMN dropped;
ALTER TABLE parted ATTACH PARTITION part2 FOR VALUES FROM (10) TO (20);
CREATE TABLE part3 PARTITION OF parted FOR VALUES FROM (20) TO (30) PARTITION BY LIST (id);
CREATE TABLE part31 PARTITION OF part3 DEFAULT;
INSERT INTO parted SELECT i, value(i % 3) FROM generate_series(0, 29) i;
SELECT remember('parted');
CALL blobext_dedup('parted', 'content') \gset
SELECT is(:rows_shared, 27, 'rows of all partitions are shared');
SELECT is(count(DISTINCT place(content)), 3::bigint, 'rows of partitions share values with those of others') FROM parted;
SELECT is_empty($$SELECT changed('parted')$$, 'contents are what they were');
INSERT INTO part2 SELECT value(i % 3), i FROM generate_series(10, 12) i;
CALL blobext_dedup('part2', 'content') \gset
SELECT is(:rows_shared, 3, 'rows of one partition alone are shared');

CREATE TABLE by_content (id int, content blobstate) PARTITION BY HASH (content);
CREATE TABLE by_content0 PARTITION OF by_content FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE by_content1 PARTITION OF by_content FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO by_content SELECT i, value(i % 5) FROM generate_series(1, 20) i;
SELECT remember('by_content');
CALL blobext_dedup('by_content', 'content') \gset
SELECT is(:rows_shared, 15, 'a table that is partitioned by content');
SELECT is_empty($$SELECT changed('by_content')$$, 'contents are what they were');

CREATE TABLE parent (id int, content blobstate);
CREATE TABLE child (more int) INHERITS (parent);
INSERT INTO parent VALUES (1, value(1));
INSERT INTO child VALUES (2, value(1)), (3, value(1));
CALL blobext_dedup('parent', 'content') \gset
SELECT is(:rows_shared, 2, 'rows of children are shared with those of the parent');

CREATE DOMAIN picture AS blobstate CHECK (length(VALUE) > 3);
CREATE TABLE pictures (id int, content picture NOT NULL,
	size bigint GENERATED ALWAYS AS (length(content)) STORED);
INSERT INTO pictures SELECT i, value(1) FROM generate_series(1, 3) i;
CALL blobext_dedup('pictures', 'content') \gset
SELECT is(:rows_shared, 2, 'rows of a domain, beside a generated column, are shared');
SELECT is(array_agg(DISTINCT size), ARRAY[length(value(1))::bigint], 'a generated column is what it was') FROM pictures;

CREATE TEMP TABLE temporary (id int, content blobstate);
INSERT INTO temporary SELECT i, value(1) FROM generate_series(1, 3) i;
CALL blobext_dedup('temporary', 'content') \gset
SELECT is(:rows_shared, 2, 'rows of a temporary table are shared');

-- Indexes of each kind find all rows afterwards, and nothing else.
CREATE TABLE indexed (id int, content blobstate);
CREATE INDEX ON indexed (content);
CREATE INDEX ON indexed USING hash (content);
CREATE INDEX ON indexed (content blobstate_digest_ops);
CREATE UNIQUE INDEX ON indexed (content, id);
CREATE UNIQUE INDEX ON indexed (content) WHERE id = 1;
INSERT INTO indexed SELECT i, value(i % 4) FROM generate_series(1, 20) i;
CALL blobext_dedup('indexed', 'content') \gset
SELECT is(:rows_shared, 16, 'a table with indexes on content');
SET enable_seqscan = off;
SELECT is(count(*), 5::bigint, 'indexes find the rows afterwards') FROM indexed WHERE content = value(1);
RESET enable_seqscan;
SELECT is_empty($$SELECT * FROM blobext_check('dedup.indexed')$$, 'keys and values are sound');

-- A unique index on content: no two rows to share, and no conflict of a row with itself.
CREATE TABLE uniquely (id int, content blobstate UNIQUE);
INSERT INTO uniquely SELECT i, value(i) FROM generate_series(1, 5) i;
CALL blobext_dedup('uniquely', 'content') \gset
SELECT is(:rows_shared, 0, 'a unique index on content');

--
-- Triggers: a call of each for each row that is updated
--
CREATE TABLE log (what text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO dedup.log VALUES (tg_when || ' ' || tg_level || ' ' || (new.content = old.content)::text);
	RETURN new;
END $$;
CREATE TABLE triggered (id int, content blobstate);
CREATE TRIGGER b BEFORE UPDATE OF content ON triggered FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER a AFTER UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER w AFTER UPDATE ON triggered FOR EACH ROW WHEN (old.* IS DISTINCT FROM new.*)
	EXECUTE FUNCTION note();
INSERT INTO triggered SELECT i, value(1) FROM generate_series(1, 3) i;
CALL blobext_dedup('triggered', 'content') \gset
SELECT results_eq('SELECT what, count(*) FROM log GROUP BY 1 ORDER BY 1',
	$$VALUES ('AFTER ROW true', 2::bigint), ('BEFORE ROW true', 2)$$,
	'triggers run, and find equal content; a condition on differences is not met');

-- One that keeps the row, and one that refuses: the other rows are done.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF old.id = 3 THEN RETURN NULL; END IF;
	IF old.id = 4 THEN RAISE EXCEPTION 'not this one'; END IF;
	RETURN new;
END $$;
CREATE TABLE refusing (id int, content blobstate);
CREATE TRIGGER b BEFORE UPDATE ON refusing FOR EACH ROW EXECUTE FUNCTION refuse();
INSERT INTO refusing SELECT i, value(1) FROM generate_series(1, 6) i;
SELECT remember('refusing');
CALL blobext_dedup('refusing', 'content') \gset
SELECT is(:'rows_shared' || ' ' || :'rows_skipped' || ' ' || :'rows_failed', '3 1 1',
	'a row that a trigger keeps, and one that it refuses');
SELECT is_empty($$SELECT changed('refusing')$$, 'contents are what they were');

--
-- Relations and columns that are refused
--
SELECT throws_ok($$CALL blobext_dedup('d', 'content')$$, '25001', NULL, 'blobext_dedup() is refused in a function');
CREATE FUNCTION fails(relation text, col text, OUT code text) LANGUAGE plpgsql AS $$
BEGIN
	-- It examines the column as blobext_dedup() does, which t/dedup.pl calls.
	EXECUTE format('SELECT public.blob_intern(%L, %L, %L::bytea)', relation, col, 'x');
EXCEPTION WHEN OTHERS THEN code := sqlstate;
END $$;
CREATE VIEW v AS SELECT * FROM d;
CREATE MATERIALIZED VIEW m AS SELECT * FROM d;
CREATE TABLE others (id int, b bytea, a blobstate[], content blobstate,
	g blobstate GENERATED ALWAYS AS (content) STORED);
SELECT is(fails('v', 'content'), '42809', 'blobext_dedup() of a view is refused');
SELECT is(fails('m', 'content'), '42809', 'blobext_dedup() of a materialized view is refused');
SELECT is(fails('others', 'b'), '42804', 'blobext_dedup() of a column of bytea is refused');
SELECT is(fails('others', 'a'), '42804', 'blobext_dedup() of a column of arrays is refused');
SELECT is(fails('others', 'g'), '428C9', 'blobext_dedup() of a generated column is refused');
SELECT is(fails('others', 'nothing'), '42703', 'blobext_dedup() of a column that is not there is refused');
SELECT is(fails('others', 'ctid'), '42703', 'blobext_dedup() of a system column is refused');
SELECT is(fails('others', 'content'), NULL, 'a column that is not refused');
--
-- Privileges and policies; by a query without the caller's rights the first tests fail
--
CREATE ROLE dedup_a;
CREATE ROLE dedup_b;
GRANT USAGE ON SCHEMA dedup TO dedup_a, dedup_b;
CREATE TABLE secret (id int, owner text, content blobstate);
INSERT INTO secret SELECT i, CASE WHEN i % 2 = 0 THEN 'dedup_a' ELSE 'dedup_b' END, value(1)
	FROM generate_series(1, 8) i;
SET ROLE dedup_a;
SELECT throws_ok($$SELECT blob_intern('secret', 'content', value(1))$$, '42501', NULL, 'blob_intern() without a privilege is refused');
RESET ROLE;
GRANT SELECT ON secret TO dedup_a;
SET ROLE dedup_a;
SELECT throws_ok($$SELECT blob_intern('secret', 'content', value(1))$$, '42501', NULL, 'blob_intern() with SELECT alone is refused');
RESET ROLE;
GRANT SELECT, UPDATE (content) ON secret TO dedup_a, dedup_b;
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON secret USING (owner = current_user);
SELECT remember('secret');
SET ROLE dedup_a;
CALL blobext_dedup('secret', 'content') \gset
RESET ROLE;
SELECT is(:rows_shared, 3, 'rows that a policy lets the caller see are shared');
SELECT is(count(DISTINCT place(content)), 1::bigint, 'all rows of the caller share one value') FROM secret WHERE owner = 'dedup_a';
SELECT is(count(DISTINCT place(content)), 4::bigint, 'rows that a policy hides share no value') FROM secret WHERE owner = 'dedup_b';
SELECT is_empty($$SELECT place(content) FROM secret WHERE owner = 'dedup_a'
	INTERSECT SELECT place(content) FROM secret WHERE owner = 'dedup_b'$$, 'no value is shared over the border of a policy');

-- Rows that the caller may read and not change: they keep their values, and no row of others gets these.
CREATE POLICY r ON secret FOR SELECT USING (true);
SET ROLE dedup_b;
CALL blobext_dedup('secret', 'content') \gset
RESET ROLE;
SELECT is(:rows_shared, 3, 'rows that the caller may change, among rows that it may read');
SELECT is_empty($$SELECT place(content) FROM secret WHERE owner = 'dedup_a'
	INTERSECT SELECT place(content) FROM secret WHERE owner = 'dedup_b'$$, 'nothing is shared with the latter');
SELECT is_empty($$SELECT changed('secret')$$, 'contents are what they were');
DROP POLICY r ON secret;

--
-- blob_intern()
--
CREATE TABLE i (id int, content blobstate);
CREATE INDEX i_content ON i USING hash (content);
INSERT INTO i VALUES (1, value(1)), (2, 'small');
INSERT INTO i SELECT 3, blob_intern('i', 'content', value(1));
INSERT INTO i SELECT 4, blob_intern('i', 'content', value(1)::blobstate);
INSERT INTO i SELECT 5, blob_intern('i', 'content', value(1), verify => false);
SELECT is(count(DISTINCT place(content)), 1::bigint, 'blob_intern() of content that is there shares its value') FROM i WHERE id <> 2;
INSERT INTO i SELECT 6, blob_intern('i', 'content', value(2));
SELECT isnt(a.place, b.place, 'blob_intern() of new content shares nothing') FROM (SELECT place(content) FROM i WHERE id = 1) a,
	(SELECT place(content) FROM i WHERE id = 6) b;
SELECT is(content::bytea, value(2), 'blob_intern() of new content stores it') FROM i WHERE id = 6;
INSERT INTO i SELECT 10 + n, blob_intern('i', 'content', value(10 + n % 3)) FROM generate_series(1, 9) n;
SELECT is(count(DISTINCT place(content)), 3::bigint, 'blob_intern() shares values among rows of one statement') FROM i WHERE id > 10;
SELECT is(blob_storage(blob_intern('i', 'content', 'small')), 'inline', 'a small value stays what it is');
SELECT is(blob_intern('i', 'content', NULL::blobstate), NULL, 'blob_intern() of NULL is NULL');
SET enable_seqscan = off;
INSERT INTO i SELECT 20, blob_intern('i', 'content', value(1));
RESET enable_seqscan;
SELECT is(place(a.content), place(b.content), 'blob_intern() finds a value by an index') FROM i a, i b WHERE a.id = 1 AND b.id = 20;
INSERT INTO parted SELECT 3, blob_intern('parted', 'content', value(2));
SELECT is(count(DISTINCT place(content)), 3::bigint, 'blob_intern() finds a value of a partition') FROM parted;
PREPARE by_parameter AS SELECT place(blob_intern('i', 'content', $1));
SELECT is(pg_typeof(blob_intern('i', 'content', '\x01'))::text, 'blobstate', 'a literal without a type');

-- A policy hides the row: the argument comes back, and no index finds the row.
SET ROLE dedup_b;
SELECT is(blob_storage(blob_intern('secret', 'content', value(1))), 'extents', 'a row that the caller sees');
SELECT is(blob_storage(blob_intern('secret', 'content', value(7))), 'inline', 'content that no row has');
RESET ROLE;
INSERT INTO secret VALUES (20, 'dedup_a', value(7));
CREATE INDEX ON secret USING hash (content);
ANALYZE secret;
SET enable_seqscan = off;
SET ROLE dedup_b;
SELECT is(blob_storage(blob_intern('secret', 'content', value(7))), 'inline', 'a row that a policy hides');
BEGIN;
SELECT FROM (SELECT blob_intern('secret', 'content', value(7)) OFFSET 0) x;
SELECT is(pg_stat_get_xact_numscans('secret_content_idx'::regclass), 0::bigint, 'no index is asked for rows that a policy hides');
RESET ROLE;
SELECT FROM (SELECT blob_intern('secret', 'content', value(7)) OFFSET 0) x;
SELECT is(pg_stat_get_xact_numscans('secret_content_idx'::regclass), 1::bigint, 'an index is asked where no policy applies');
COMMIT;
RESET ROLE;
RESET enable_seqscan;

-- Nor is content read, so equal and unequal content take the same time.
CREATE FUNCTION reads(content bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
	query text := $q$SELECT sum(value) FROM public.blobext_stat
		WHERE name IN ('content_reads', 'cache_hits', 'cache_misses')$q$;
	after bigint;
BEGIN
	EXECUTE query INTO before;
	PERFORM public.blob_intern('dedup.secret', 'content', content);
	EXECUTE query INTO after;
	RETURN after - before;
END $$;
SET ROLE dedup_b;
SELECT is(ARRAY[reads(value(7)), reads(value(8))], ARRAY[0::bigint, 0],
	'content of a row that a policy hides, and content that no row has: nothing is read');
SET ROLE dedup_a;
SELECT cmp_ok(reads(value(7)), '>', 0::bigint, 'content of a row that the caller sees is compared');
RESET ROLE;

SELECT is_empty('SELECT * FROM blobext_check()', 'blobext_check() finds nothing at the end');
SELECT * FROM finish();
DROP SCHEMA dedup CASCADE;
DROP ROLE dedup_a, dedup_b;
