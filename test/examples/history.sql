-- The table with a history: a version costs a row with a descriptor, whatever the size.
--
-- Seen to fail with triggers that keep a copy (OLD.content || '', and OLD.content::bytea): bytes are
-- stored, and the WAL has them; without begin_version() (a document of two versions of one moment);
-- without keep_all_versions() (TRUNCATE leaves no history).
CREATE SCHEMA history_test;
SET search_path = history_test, public;
SELECT plan(27);

CREATE FUNCTION large(n integer, bytes bigint) RETURNS bytea LANGUAGE sql AS
	$$ SELECT substr(convert_to(repeat(md5(n::text), (bytes / 32 + 1)::integer), 'UTF8'), 1, bytes::integer) $$;
CREATE FUNCTION stored() RETURNS bigint LANGUAGE sql AS
	$$ SELECT value FROM blobext_stat WHERE name = 'stored_bytes' $$;
CREATE FUNCTION pages() RETURNS numeric LANGUAGE sql AS
	$$ SELECT coalesce(sum(pages), 0) FROM blobext_space WHERE state IN ('tier', 'tail') $$;
CREATE TABLE before AS SELECT pages();

-- Bytes that a statement stores in extents, pages that it takes there, and bytes of its WAL.
CREATE FUNCTION cost(statement text, OUT stored bigint, OUT pages numeric, OUT wal numeric) LANGUAGE plpgsql AS $$
DECLARE
	stored_before bigint := stored();
	pages_before numeric := pages();
	lsn_before pg_lsn := pg_current_wal_insert_lsn();
BEGIN
	EXECUTE statement;
	wal := pg_wal_lsn_diff(pg_current_wal_insert_lsn(), lsn_before);
	stored := stored() - stored_before;
	pages := pages() - pages_before;
END $$;

INSERT INTO document (name, content) SELECT 'document of ' || bytes, large(1, bytes)
FROM unnest(ARRAY[10000, 1000000, 50000000]) AS bytes;
CREATE TABLE made AS SELECT id, length(content) AS bytes, content, now() AS since FROM document;
VACUUM document, made;
CHECKPOINT;

-- What changes no content stores none; the rows of all sizes are equally long.
CREATE TABLE costs (what text, bytes bigint, stored bigint, pages numeric, wal numeric);
INSERT INTO costs SELECT 'renamed', bytes, c.* FROM made, cost(format('UPDATE document SET name = ''renamed'' WHERE id = %s', id)) AS c;
INSERT INTO costs SELECT 'replaced', bytes, c.* FROM made,
	cost(format('UPDATE document SET content = ''short'' WHERE id = %s', id)) AS c;
INSERT INTO costs SELECT 'restored', bytes, c.* FROM made, cost(format('UPDATE document SET content = h.content
	FROM document_history AS h WHERE document.id = %1$s AND h.id = %1$s AND length(h.content) > 5', id)) AS c;
INSERT INTO costs SELECT 'deleted', bytes, c.* FROM made, cost(format('DELETE FROM document WHERE id = %s', id)) AS c;
-- A round of the collector may free pages of other tests meanwhile.
SELECT ok(stored = 0 AND pages <= 0, format('a document of %s bytes is %s: nothing is stored', bytes, what)) FROM costs;
SELECT cmp_ok(max(wal), '<', 30000::numeric, format('a document is %s: the WAL has rows only', what)) FROM costs GROUP BY what;
SELECT is((SELECT count(*) FROM document_history), 12::bigint, 'each change leaves a version');
SELECT cmp_ok(max(pg_column_size(h.*)), '<', 300, 'a version is a short row') FROM document_history AS h;
SELECT is((SELECT count(*) FROM made AS m JOIN document_history AS h ON h.id = m.id AND h.content = m.content
	AND (SELECT array_agg(e.first_page) FROM blob_extents(h.content) AS e) = (SELECT array_agg(e.first_page) FROM blob_extents(m.content) AS e)),
	9::bigint, 'versions share the pages of the content');

-- A new content is written once.
INSERT INTO document (name) VALUES ('grown');
SELECT is((cost('UPDATE document SET content = large(2, 1000000) WHERE name = ''grown''')).stored, 1000000::bigint,
	'a new content is stored once');
SELECT cmp_ok((cost('UPDATE document SET content = blob_append(content, large(3, 50000)) WHERE name = ''grown''')).stored, '<=',
	50000::bigint, 'of a version that was appended to only the piece is stored');

-- TRUNCATE keeps all.
SELECT ok(c.stored = 0 AND c.pages <= 0, 'TRUNCATE keeps versions, and stores nothing') FROM cost('TRUNCATE document') AS c;
SELECT is((SELECT count(*) FROM document_history WHERE name = 'grown'), 3::bigint, 'TRUNCATE leaves a version of each row');

-- The documents of a moment.
CREATE TABLE moments (n integer, moment timestamptz);
INSERT INTO document (name, content) VALUES ('timed', 'first');
INSERT INTO moments VALUES (1, now());
UPDATE document SET content = 'second' WHERE name = 'timed';
INSERT INTO moments VALUES (2, now());
BEGIN;
UPDATE document SET content = 'never seen' WHERE name = 'timed';
UPDATE document SET content = 'third' WHERE name = 'timed';
COMMIT;
INSERT INTO moments VALUES (3, now());
DELETE FROM document WHERE name = 'timed';
INSERT INTO moments VALUES (4, now());
SELECT results_eq($$SELECT n, content::bytea FROM moments LEFT JOIN LATERAL documents_at(moment) AS d
	ON d.name = 'timed' ORDER BY n$$, $$VALUES (1, 'first'::bytea), (2, 'second'), (3, 'third'), (4, NULL)$$, 'documents_at() has the version of each moment');
SELECT is_empty($$SELECT id, since FROM document_history WHERE until < since$$, 'no version ends before it begins');

-- Versions that are dropped are freed.
CREATE TABLE kept AS SELECT count(*) AS n FROM document_history;
DROP TABLE made;
DELETE FROM document_history WHERE until <= now();
VACUUM document_history;
SELECT is((SELECT count(*) FROM document_history), 0::bigint, 'versions are dropped by DELETE');
\o /dev/null
SELECT * FROM blobext_gc();
\o
SELECT cmp_ok(pages(), '<=', (SELECT b.pages FROM before AS b), 'the space of dropped versions is free');
SELECT * FROM finish();
