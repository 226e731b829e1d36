-- What PostgreSQL compares without asking the type, and what to use in its place: row images; result types of prepared
-- statements.  These are facts that docs/reference.md states; they fail if PostgreSQL, or the form of descriptors, changes.
CREATE SCHEMA images;
SET search_path = images, public;
SET client_min_messages = error;
SELECT plan(19);

CREATE FUNCTION value(i int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$ SELECT convert_to(repeat(md5(i::text), 200), 'UTF8') $$;
CREATE TABLE t (id int PRIMARY KEY, content blobstate);
INSERT INTO t SELECT i, value(i) FROM generate_series(1, 20) i;
CREATE TABLE copy AS SELECT * FROM t;
CREATE TABLE anew AS SELECT id, value(id)::blobstate AS content FROM t;
SELECT ok(bool_and(t *= copy), 'a row with a copy has the same image') FROM t JOIN copy USING (id);
SELECT ok(NOT bool_or(t *= anew), 'a row whose content was made anew has another image') FROM t JOIN anew USING (id);
SELECT ok(bool_and(t = anew) AND bool_and(t IS NOT DISTINCT FROM anew), 'rows of equal content are equal') FROM t JOIN anew USING (id);

-- Triggers
CREATE TRIGGER redundant BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TABLE places AS SELECT id, ctid AS place FROM t;
CREATE FUNCTION moved() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM t JOIN places USING (id) WHERE t.ctid <> place $$;
UPDATE t SET content = content;
SELECT is(moved(), 0::bigint, 'suppress_redundant_updates_trigger() suppresses an update with the same value');
UPDATE t SET content = value(id);
SELECT is(moved(), 20::bigint, 'suppress_redundant_updates_trigger() does not suppress an update with equal content');
DROP TRIGGER redundant ON t;
CREATE FUNCTION suppress_equal() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER equal BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.* IS NOT DISTINCT FROM NEW.*) EXECUTE FUNCTION suppress_equal();
UPDATE places SET place = t.ctid FROM t WHERE t.id = places.id;
UPDATE t SET content = value(id);
SELECT is(moved(), 0::bigint, 'a trigger with WHEN suppresses an update with equal content');
UPDATE t SET content = value(id + 1) WHERE id = 5;
SELECT is(moved(), 1::bigint, 'a trigger with WHEN lets an update with other content through');
UPDATE t SET content = NULL WHERE id = 6;
SELECT is(moved(), 2::bigint, 'a trigger with WHEN lets an update with NULL through');
DROP TRIGGER equal ON t;

-- Materialized views
CREATE MATERIALIZED VIEW same AS SELECT id, content FROM t;
CREATE UNIQUE INDEX ON same (id);
CREATE MATERIALIZED VIEW made AS SELECT id, overlay(content PLACING 'x'::bytea FROM 1) AS content FROM t;
CREATE UNIQUE INDEX ON made (id);
CREATE TABLE view_places AS SELECT 'same' AS view, id, ctid AS place FROM same UNION ALL SELECT 'made', id, ctid FROM made;
REFRESH MATERIALIZED VIEW CONCURRENTLY same;
REFRESH MATERIALIZED VIEW CONCURRENTLY made;
SELECT is(count(*), 0::bigint, 'a refresh leaves rows with copies alone')
	FROM same JOIN view_places USING (id) WHERE view = 'same' AND place <> same.ctid;
SELECT is(count(*), 19::bigint, 'a refresh writes rows whose content was made anew')
	FROM made JOIN view_places USING (id) WHERE view = 'made' AND place <> made.ctid;
CREATE TABLE kept (id int PRIMARY KEY, content blobstate);
CREATE FUNCTION refresh() RETURNS bigint LANGUAGE sql AS $$
	WITH done AS (INSERT INTO kept SELECT id, overlay(content PLACING 'x'::bytea FROM 1) FROM t
		ON CONFLICT (id) DO UPDATE SET content = excluded.content WHERE kept.content IS DISTINCT FROM excluded.content RETURNING 1)
	SELECT count(*) FROM done $$;
SELECT is(refresh(), 20::bigint, 'a table in place of the view is filled');
SELECT is(refresh(), 0::bigint, 'ON CONFLICT leaves rows of equal content alone');
UPDATE t SET content = value(100) WHERE id = 1;
SELECT is(refresh(), 1::bigint, 'ON CONFLICT writes a row of other content');

-- Prepared statements, beside ALTER COLUMN ... TYPE
CREATE TABLE typed (id int, content bytea);
INSERT INTO typed VALUES (1, value(1));
PREPARE returns AS SELECT content FROM typed;
PREPARE looks AS SELECT id FROM typed WHERE content = $1;
CREATE FUNCTION size() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT length(content) FROM images.typed);
END $$;
SELECT is(size(), 6400::bigint, 'a function reads the column before the change');
CREATE TABLE r AS EXECUTE returns;
CREATE TABLE l AS EXECUTE looks(value(1));
ALTER TABLE typed ALTER content TYPE blobstate;
SELECT throws_ok('EXECUTE returns', '0A000', 'cached plan must not change result type',
	'a prepared statement that returns the column fails after the change');
SELECT is(size(), 6400::bigint, 'a function is planned anew');
EXECUTE looks(value(1)) \gset
SELECT is(:id, 1, 'a prepared statement that compares the column is planned anew');
DEALLOCATE ALL;
PREPARE returns AS SELECT content FROM typed;
SELECT lives_ok('EXECUTE returns', 'a statement that is prepared again returns the column');
SELECT is_empty('SELECT * FROM blobext_check()', 'the check finds nothing');
SELECT * FROM finish();
DROP SCHEMA images CASCADE;
