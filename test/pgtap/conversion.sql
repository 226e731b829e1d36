-- The statements of the README that convert columns of bytea, and large objects, and back; with many
-- small rows, some large ones, NULL, generated columns, partitions.
CREATE SCHEMA conversion;
SET search_path = conversion, public;
SELECT plan(16);

CREATE FUNCTION bytes(n int, seed int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT substring(decode(repeat(md5(seed::text), n / 16 + 1), 'hex') FROM 1 FOR n)
$$;
CREATE TABLE document (id int PRIMARY KEY, content bytea);
INSERT INTO document SELECT id, CASE WHEN id % 10 <> 0 THEN bytes(id * 7 % 3000, id) END FROM generate_series(1, 5000) id;
INSERT INTO document SELECT id, bytes(2000000 + id, id) FROM generate_series(5001, 5010) id;
CREATE TABLE original AS SELECT * FROM document;

-- bytea to blobstate and back
ALTER TABLE document ALTER COLUMN content TYPE blobstate USING content::blobstate;
SELECT is_empty('SELECT id FROM document JOIN original o USING (id) WHERE document.content::bytea IS DISTINCT FROM o.content
	OR sha256(document.content) IS DISTINCT FROM sha256(o.content)', 'the content is the same');
SELECT is_empty($$SELECT id FROM document WHERE blob_storage(content) <> CASE WHEN length(content) > 1900 THEN 'extents'
	ELSE 'inline' END$$, 'values over the limit are in extents');
SELECT results_eq('SELECT count(*), count(content) FROM document', 'SELECT count(*), count(content) FROM original',
	'nulls are nulls after a conversion');
ALTER TABLE document ALTER COLUMN content TYPE bytea USING content::bytea;
SELECT results_eq('SELECT * FROM document ORDER BY id', 'SELECT * FROM original ORDER BY id', 'a column of bytea made from blobstate has the content');
ALTER TABLE document ALTER COLUMN content TYPE blobstate;
SELECT is_empty('SELECT id FROM document JOIN original o USING (id) WHERE document.content::bytea IS DISTINCT FROM o.content',
	'without USING as well');

-- In batches.
CREATE TABLE batches AS SELECT * FROM original;
ALTER TABLE batches ADD COLUMN new_content blobstate;
SELECT format('UPDATE batches SET new_content = content WHERE id BETWEEN %s AND %s AND new_content IS NULL',
	n * 1000 + 1, n * 1000 + 1000) FROM generate_series(0, 5) n \gexec
SELECT is_empty($$SELECT id FROM batches WHERE new_content::bytea IS DISTINCT FROM content
	OR blob_storage(new_content) <> CASE WHEN length(content) > 1900 THEN 'extents' ELSE 'inline' END$$, 'values that were converted in batches have the content, where their size says');

-- Into another table; a partitioned one.
CREATE TABLE part (id int, content blobstate) PARTITION BY HASH (id);
CREATE TABLE part_0 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE part_1 PARTITION OF part FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO part SELECT id, content FROM original;
SELECT is_empty($$SELECT id FROM part JOIN original o USING (id) WHERE part.content::bytea IS DISTINCT FROM o.content
	OR blob_storage(part.content) <> CASE WHEN length(o.content) > 1900 THEN 'extents' ELSE 'inline' END$$, 'values that INSERT ... SELECT converted have the content, where their size says');
ALTER TABLE part ALTER COLUMN content TYPE bytea USING content::bytea;
SELECT is_empty('SELECT * FROM part EXCEPT SELECT * FROM original', 'a partitioned table made bytea again has the content');

-- One fdatasync, not one for each row.
\ir nothing_deferred.psql
CREATE FUNCTION syncs() RETURNS bigint LANGUAGE sql AS
	$$ SELECT value FROM blobext_stat WHERE name = 'syncs' $$;
SELECT syncs() AS before \gset
ALTER TABLE part ALTER COLUMN content TYPE blobstate USING content::blobstate;
SELECT cmp_ok(syncs() - :before, '<', 5::bigint, 'thousands of values are made durable together');

-- Large objects and back.
CREATE TABLE image AS SELECT id, lo_from_bytea(0, content) AS picture FROM original WHERE id > 4900 AND content IS NOT NULL;
INSERT INTO image VALUES (0, NULL);
ALTER TABLE image ADD COLUMN content blobstate;
UPDATE image SET content = blob_from_lo(picture);
SELECT is_empty('SELECT id FROM image JOIN original o USING (id) WHERE image.content::bytea IS DISTINCT FROM o.content',
	'values made from large objects have their content');
SELECT is((SELECT content FROM image WHERE id = 0), NULL, 'a row without a large object gets no value');
SELECT is((SELECT count(lo_unlink(picture)) FROM image), (SELECT count(*) - 1 FROM image), 'large objects can be removed after their conversion');
UPDATE image SET picture = blob_to_lo(content);
SELECT is_empty('SELECT id FROM image JOIN original o USING (id) WHERE lo_get(picture) IS DISTINCT FROM o.content',
	'large objects made from values have their content');
SELECT is((SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) - 1 FROM image), 'there is one large object for each value');
-- A conversion that is rolled back leaves nothing.
BEGIN;
UPDATE image SET picture = blob_to_lo(content);
ROLLBACK;
SELECT is((SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) - 1 FROM image), 'a rollback removes new ones');

SELECT is_empty('SELECT * FROM blobext_check()', 'the store is sound');
SELECT * FROM finish();
SET client_min_messages = warning;
SELECT count(lo_unlink(oid)) FROM pg_largeobject_metadata \g /dev/null
DROP SCHEMA conversion CASCADE;
