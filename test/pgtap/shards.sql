-- Tables whose rows are elsewhere: those that Citus has in its catalog.  Nothing is stored for them,
-- and an UPDATE calls no volatile function for its assignment.  The catalog is made by hand here, as
-- Citus declares the columns that count; without Citus the rows do go to the table, which shows what
-- would be sent.  Seen to fail: with a
-- blob_assign_is_distributed() that is always false, and with one that is always true.
CREATE SCHEMA shards;
SET search_path = shards, public;
SELECT plan(11);

CREATE TABLE shell (id int PRIMARY KEY, b blobstate);
CREATE TABLE other (id int PRIMARY KEY, b blobstate);
INSERT INTO other VALUES (1, repeat('other', 2000)::bytea);

-- What a plan computes for column b.
CREATE FUNCTION output(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	lines text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
		lines := lines || line || E'\n';
	END LOOP;
	RETURN lines;
END $$;

SELECT alike(output($$UPDATE shell SET b = convert_to('x', 'UTF8')$$), '%blob_store(%',
	'an ordinary table: the assignment is coerced');
SELECT alike(output('INSERT INTO shell SELECT id, b FROM other'), '%blob_store(%',
	'an ordinary table: what is copied is wrapped');

SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass NOT NULL, partmethod "char");
CREATE UNIQUE INDEX pg_dist_partition_logical_relid_index ON pg_catalog.pg_dist_partition (logicalrelid);
SET allow_system_table_mods = off;
SELECT alike(output('INSERT INTO shell SELECT id, b FROM other'), '%blob_store(%',
	'a table that is not in the catalog is an ordinary one');
INSERT INTO pg_catalog.pg_dist_partition VALUES ('shards.shell', 'h');

SELECT unalike(output('UPDATE shell SET b = other.b FROM other'), '%blob_store(%',
	'UPDATE with a column calls nothing');
SELECT unalike(output('INSERT INTO shell SELECT id, b FROM other'), '%blob_store(%',
	'INSERT SELECT calls nothing');
SELECT alike(output('INSERT INTO other SELECT id + 1, b FROM shell'), '%blob_store(%',
	'what is copied from it to an ordinary table is wrapped');

INSERT INTO shell SELECT 1, repeat('value', 2000)::text::blobstate;
COPY shell FROM PROGRAM 'printf "2\t%s\n" $(seq 2000 | tr -d "\n")';
SELECT is((SELECT count(*) FROM shell WHERE blob_storage(b) = 'inline' AND length(b) > 5000), 2::bigint,
	'neither INSERT nor COPY has stored anything');
INSERT INTO shell VALUES (10, 'a'), (11, 'a'), (12, 'a');
UPDATE shell SET b = repeat('u', 5000)::bytea WHERE id = 10;
INSERT INTO shell SELECT 11, repeat('c', 5000)::bytea ON CONFLICT (id) DO UPDATE SET b = excluded.b;
MERGE INTO shell AS s USING (VALUES (12), (13)) AS o (id) ON s.id = o.id
	WHEN MATCHED THEN UPDATE SET b = repeat('m', 5000)::bytea
	WHEN NOT MATCHED THEN INSERT VALUES (o.id, repeat('n', 5000)::bytea);
SELECT results_eq('SELECT id, blob_storage(b), length(b) FROM shell WHERE id >= 10 ORDER BY id',
	$$VALUES (10, 'inline', 5000::bigint), (11, 'inline', 5000), (12, 'inline', 5000), (13, 'inline', 5000)$$,
	'neither UPDATE nor ON CONFLICT nor MERGE has stored anything');
DELETE FROM pg_catalog.pg_dist_partition;
COPY shell FROM PROGRAM 'printf "3\t%s\n" $(seq 2000 | tr -d "\n")';
SELECT is((SELECT blob_storage(b) FROM shell WHERE id = 3), 'extents',
	'COPY stores when the table is not in the catalog any more');
UPDATE shell SET b = b WHERE id = 2;
SELECT is((SELECT blob_storage(b) FROM shell WHERE id = 2), 'extents', 'UPDATE stores when the table is not in the catalog any more');

-- A table of that name with other columns is not Citus's.
ALTER TABLE shell DROP COLUMN b, ADD COLUMN b blobstate;
SET allow_system_table_mods = on;
DROP TABLE pg_catalog.pg_dist_partition;
CREATE TABLE pg_catalog.pg_dist_partition (something text);
SET allow_system_table_mods = off;
SELECT alike(output('INSERT INTO shell SELECT id, b FROM other'), '%blob_store(%',
	'another table of that name in pg_catalog changes nothing');

SELECT * FROM finish();
SET allow_system_table_mods = on;
DROP TABLE pg_catalog.pg_dist_partition;
SET client_min_messages = warning;
DROP SCHEMA shards CASCADE;
