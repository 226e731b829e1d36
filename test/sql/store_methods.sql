--
-- Which method of compression applies on each path on which a value can reach a table: that of the
-- column (zstd), where the path knows the column; else blobext.default_compression (lz4).  The paths
-- are those of store_paths.sql.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS blobext;
RESET client_min_messages;
CREATE SCHEMA store_methods;
SET search_path = store_methods, public;
SET blobext.default_compression = lz4;

SELECT '\x' || repeat('ab', 10000) AS big \gset
SELECT current_setting('data_directory') || '/store_methods.bin' AS file \gset
CREATE TABLE source (id int, content bytea);
INSERT INTO source VALUES (1, :'big'), (2, :'big');

CREATE TABLE plain (id serial PRIMARY KEY, b blobstate);
SELECT blobext_set_compression('plain', 'b', 'zstd');
-- The method of all rows, which are deleted.
CREATE FUNCTION methods(path text, relation regclass DEFAULT 'plain', col text DEFAULT 'b')
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	methods text;
BEGIN
	EXECUTE format('SELECT string_agg(DISTINCT blob_compression(%s), '', '') FROM %s', col, relation) INTO methods;
	EXECUTE format('DELETE FROM %s', relation);
	RETURN path || ': ' || methods;
END $$;
\pset format unaligned
\pset tuples_only on

INSERT INTO plain (b) VALUES (:'big');
SELECT methods('INSERT of a literal');
INSERT INTO plain (b) VALUES (:'big'), (:'big'), (NULL);
SELECT methods('INSERT of several rows');
INSERT INTO plain (b) SELECT content FROM source;
INSERT INTO plain (b) SELECT content::blobstate FROM source ORDER BY id LIMIT 1;
INSERT INTO plain (b) SELECT content FROM source UNION ALL SELECT content FROM source;
INSERT INTO plain (b) VALUES (unnest(ARRAY[:'big', :'big']::blobstate[]));
SELECT methods('INSERT ... SELECT');
INSERT INTO plain (b) VALUES ('\x00');
UPDATE plain SET b = :'big';
SELECT methods('UPDATE');
INSERT INTO plain (id, b) VALUES (1, '\x00');
UPDATE plain SET (id, b) = (SELECT 1, content::blobstate FROM source LIMIT 1);
SELECT methods('UPDATE of several columns');
INSERT INTO plain VALUES (1, '\x00');
INSERT INTO plain VALUES (1, '\x00') ON CONFLICT (id) DO UPDATE SET b = :'big';
SELECT methods('ON CONFLICT');
INSERT INTO plain VALUES (1, '\x00');
INSERT INTO plain VALUES (1, :'big') ON CONFLICT (id) DO UPDATE SET b = excluded.b;
SELECT methods('ON CONFLICT, excluded');
INSERT INTO plain VALUES (1, '\x00');
MERGE INTO plain USING source ON plain.id = source.id
	WHEN MATCHED THEN UPDATE SET b = content
	WHEN NOT MATCHED THEN INSERT (id, b) VALUES (source.id, source.content);
SELECT methods('MERGE');
WITH i AS (INSERT INTO plain (b) VALUES (:'big') RETURNING b) SELECT blob_compression(b) FROM i;
SELECT methods('WITH');
INSERT INTO plain SELECT * FROM json_populate_record(NULL::plain, json_build_object('id', 1, 'b', :'big'));
SELECT methods('row of JSON');
PREPARE param(blobstate) AS INSERT INTO plain (b) VALUES ($1);
EXECUTE param(:'big');
SELECT methods('prepared statement');
CREATE VIEW updatable AS SELECT id, b FROM plain;
INSERT INTO updatable VALUES (1, :'big');
SELECT methods('updatable view');
DROP VIEW updatable;
CREATE FUNCTION by_sql(v bytea) RETURNS void LANGUAGE sql AS 'INSERT INTO plain (b) VALUES (v)';
SELECT by_sql(content) FROM source WHERE id = 1;
SELECT methods('SQL function');
DO $$
DECLARE
	row plain%ROWTYPE;
	variable blobstate := convert_to(repeat('b', 10000), 'UTF8');
BEGIN
	INSERT INTO plain (b) VALUES (variable);
END $$;
SELECT methods('PL/pgSQL, variable');
DO $$
DECLARE
	row plain%ROWTYPE;
BEGIN
	row.id := 1;
	row.b := convert_to(repeat('b', 10000), 'UTF8');
	INSERT INTO plain SELECT row.*;
END $$;
SELECT methods('PL/pgSQL, field of a row, which is stored when it is assigned');

-- Values that exist keep their method.
CREATE TABLE other AS SELECT content::blobstate AS b FROM source;
INSERT INTO plain (b) SELECT b FROM other;
SELECT methods('copy of a stored value');
INSERT INTO plain (b) SELECT blob_append(b, 'x') FROM other;
SELECT methods('changed copy of a stored value');

-- Defaults, generated columns, triggers, domains, arrays, rows.
CREATE TABLE with_default (id int, b blobstate DEFAULT convert_to(repeat('d', 10000), 'UTF8')::blobstate,
	g blobstate GENERATED ALWAYS AS (decode(repeat('67', 10000 + id), 'hex')::blobstate) STORED);
SELECT blobext_set_compression('with_default', 'b', 'zstd'), blobext_set_compression('with_default', 'g', 'zstd');
INSERT INTO with_default VALUES (1);
SELECT 'generated column: ' || blob_compression(g) FROM with_default;
SELECT methods('default', 'with_default');
COPY with_default (id) FROM stdin;
1
\.
SELECT methods('default in COPY', 'with_default');
CREATE FUNCTION assign() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.b := convert_to(repeat('t', 10000), 'UTF8');
	RETURN NEW;
END $$;
CREATE TABLE triggered (id int, b blobstate);
SELECT blobext_set_compression('triggered', 'b', 'zstd');
CREATE TRIGGER assign BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION assign();
INSERT INTO triggered VALUES (1, NULL);
SELECT methods('NEW.column in a trigger', 'triggered');
CREATE DOMAIN document AS blobstate CHECK (length(VALUE) > 1);
CREATE TABLE of_domain (id int, b document);
SELECT blobext_set_compression('of_domain', 'b', 'zstd');
INSERT INTO of_domain VALUES (1, :'big'), (2, :'big');
INSERT INTO of_domain SELECT id, content::blobstate FROM source;
SELECT methods('domain', 'of_domain');
CREATE TABLE of_array (id int, b blobstate[]);
SELECT blobext_set_compression('of_array', 'b', 'zstd');
INSERT INTO of_array SELECT id, ARRAY[content, content]::blobstate[] FROM source;
SELECT methods('array, cast', 'of_array', 'b[1]');
INSERT INTO of_array SELECT id, ARRAY[content::blobstate] FROM source;
SELECT methods('array of values', 'of_array', 'b[1]');
INSERT INTO of_array VALUES (1, ARRAY[:'big'::blobstate]), (2, ARRAY[:'big'::blobstate]);
SELECT methods('arrays of several rows', 'of_array', 'b[1]');
CREATE TYPE pair AS (id int, b blobstate);
CREATE TABLE of_type (p pair);
INSERT INTO of_type VALUES (ROW(1, :'big'));
SELECT methods('field of a composite type', 'of_type', '(p).b');

-- ALTER TABLE, CREATE TABLE AS, materialized views.
ALTER TABLE with_default ADD COLUMN added blobstate DEFAULT convert_to(repeat('d', 10000), 'UTF8')::blobstate;
INSERT INTO plain (b) VALUES ('\x00');
ALTER TABLE plain ALTER COLUMN b TYPE blobstate USING convert_to(repeat('u', 10000), 'UTF8')::blobstate;
SELECT 'label after ALTER COLUMN ... TYPE: ' || label FROM pg_seclabels WHERE objname = 'plain.b';
SELECT methods('ALTER COLUMN ... TYPE ... USING');
CREATE TABLE made AS SELECT content::blobstate AS b FROM source;
SELECT methods('CREATE TABLE AS', 'made');
SELECT content::blobstate AS b INTO made_by_select FROM source;
SELECT methods('SELECT INTO', 'made_by_select');
CREATE MATERIALIZED VIEW materialized AS SELECT id, content::blobstate AS b FROM source;
SELECT 'materialized view: ' || string_agg(DISTINCT blob_compression(b), ', ') FROM materialized;
SELECT blobext_set_compression('materialized', 'b', 'zstd');
REFRESH MATERIALIZED VIEW materialized;
SELECT 'REFRESH: ' || string_agg(DISTINCT blob_compression(b), ', ') FROM materialized;
CREATE UNIQUE INDEX ON materialized (id);
INSERT INTO source VALUES (3, decode(repeat('cd', 10000), 'hex'));
REFRESH MATERIALIZED VIEW CONCURRENTLY materialized;
SELECT 'REFRESH CONCURRENTLY: ' || string_agg(DISTINCT blob_compression(b), ', ') FROM materialized;

-- COPY
INSERT INTO plain (b) SELECT content FROM source WHERE id = 1;
COPY plain TO :'file' (FORMAT binary);
TRUNCATE plain;
COPY plain FROM :'file' (FORMAT binary);
SELECT methods('COPY, binary');
INSERT INTO plain (b) SELECT content FROM source WHERE id = 1;
COPY plain TO :'file';
TRUNCATE plain;
COPY plain FROM :'file';
SELECT methods('COPY, text');
INSERT INTO of_array SELECT id, ARRAY[content]::blobstate[] FROM source;
COPY of_array TO :'file';
TRUNCATE of_array;
COPY of_array FROM :'file';
SELECT methods('COPY of arrays', 'of_array', 'b[1]');

-- Partitions and children.
CREATE TABLE parted (id int, b blobstate) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_2 (b blobstate, id int);
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES IN (2);
SELECT blobext_set_compression('parted', 'b', 'zstd');
SELECT blobext_set_compression('parted_2', 'b', 'none');
INSERT INTO parted SELECT id, content FROM source WHERE id < 3;
SELECT methods('partitions, by the parent', 'parted');
INSERT INTO parted_1 VALUES (1, :'big');
SELECT methods('partition without a method, directly', 'parted_1');
INSERT INTO parted_2 VALUES (:'big', 2);
SELECT methods('partition with a method of its own, directly', 'parted_2');
SELECT blobext_set_compression('parted', 'b', 'none');
INSERT INTO parted_1 VALUES (1, :'big');
SELECT methods('the same after a change of the parent''s method', 'parted_1');
SELECT blobext_set_compression('parted', 'b', 'zstd');
ALTER TABLE parted DETACH PARTITION parted_1;
INSERT INTO parted_1 VALUES (1, :'big');
SELECT methods('partition that was detached', 'parted_1');
CREATE TABLE child () INHERITS (plain);
INSERT INTO child VALUES (1, :'big');
SELECT methods('child', 'child');
CREATE TABLE "like" (LIKE plain INCLUDING ALL);
INSERT INTO "like" VALUES (1, :'big');
SELECT methods('LIKE', '"like"');

-- Values that have no column when they are made.
INSERT INTO plain (b) SELECT blob_agg(content) FROM source;
SELECT methods('aggregate');
BEGIN;
SELECT blob_upload_begin() AS upload \gset
SELECT blob_upload_write(:upload, content) FROM source WHERE id = 1;
INSERT INTO plain (b) VALUES (blob_upload_end(:upload));
COMMIT;
SELECT methods('upload');
INSERT INTO plain (b) VALUES (blob_import(:'file'));
SELECT methods('import');

-- Stored anew.
INSERT INTO plain (b) SELECT b FROM other;
CALL blobext_recompress('plain', 'b');
SELECT methods('blobext_recompress()');
INSERT INTO parted_1 VALUES (1, :'big');
ALTER TABLE parted ATTACH PARTITION parted_1 FOR VALUES IN (1);
INSERT INTO parted VALUES (2, :'big');
CALL blobext_recompress('parted', 'b');
SELECT tableoid::regclass, blob_compression(b) FROM parted ORDER BY 1;

-- The same names of columns and tables without the extension's cache.
\c -
SET search_path = store_methods, public;
INSERT INTO plain (b) VALUES (:'big');
SELECT blob_compression(b) FROM plain;
CREATE TABLE renamed (id int, b blobstate);
SELECT blobext_set_compression('renamed', 'b', 'zstd');
ALTER TABLE renamed RENAME COLUMN b TO c;
INSERT INTO renamed VALUES (1, :'big');
SELECT methods('column that was renamed', 'renamed', 'c');
ALTER TABLE renamed DROP COLUMN c;
SELECT count(*) FROM pg_seclabel WHERE objoid = 'renamed'::regclass;

SET client_min_messages = warning;
DROP SCHEMA store_methods CASCADE;
