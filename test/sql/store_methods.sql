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
UPDATE plain SET b = content FROM source WHERE source.id = 2;
SELECT methods('UPDATE ... FROM');
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
PREPARE literal AS INSERT INTO plain (b) VALUES (:'big');
EXECUTE literal;
EXECUTE literal;
SELECT methods('prepared statement with a literal');
CREATE VIEW updatable AS SELECT id, b FROM plain;
INSERT INTO updatable VALUES (1, :'big');
UPDATE updatable SET b = content FROM source WHERE source.id = 2;
SELECT methods('updatable view');
DROP VIEW updatable;
CREATE VIEW literal_view AS SELECT :'big'::blobstate AS b;
INSERT INTO plain (b) SELECT b FROM literal_view;
SELECT methods('view whose column is a literal');
CREATE TABLE ruled (id int);
CREATE RULE instead AS ON INSERT TO ruled DO INSTEAD INSERT INTO plain (id, b) VALUES (new.id, :'big');
INSERT INTO ruled VALUES (1);
SELECT methods('rule');
DROP TABLE ruled;
CREATE VIEW with_trigger AS SELECT 0 AS id, NULL::blobstate AS b;
CREATE FUNCTION instead_of() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO plain (id, b) VALUES (new.id, new.b);
	RETURN new;
END $$;
CREATE TRIGGER instead INSTEAD OF INSERT ON with_trigger FOR EACH ROW EXECUTE FUNCTION instead_of();
INSERT INTO with_trigger VALUES (1, :'big');
SELECT methods('trigger INSTEAD OF');
CREATE FUNCTION by_sql(v bytea) RETURNS void LANGUAGE sql AS 'INSERT INTO plain (b) VALUES (v)';
SELECT by_sql(content) FROM source WHERE id = 1;
SELECT methods('SQL function');
CREATE FUNCTION by_atomic_sql() RETURNS void LANGUAGE sql BEGIN ATOMIC
	INSERT INTO plain (b) SELECT content FROM source WHERE id = 1;
END;
SELECT by_atomic_sql();
SELECT methods('SQL function, BEGIN ATOMIC');
DROP FUNCTION by_atomic_sql();
CREATE FUNCTION by_dynamic_sql(content blobstate) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'INSERT INTO plain (b) VALUES ($1)' USING content;
END $$;
SELECT by_dynamic_sql(:'big');
SELECT methods('EXECUTE in PL/pgSQL');
CREATE FUNCTION rows_of_table() RETURNS SETOF plain LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT id, content::blobstate FROM source;
	RETURN NEXT ROW(3, convert_to(repeat('e', 10000), 'UTF8')::blobstate);
END $$;
INSERT INTO plain SELECT * FROM rows_of_table();
SELECT methods('rows of a function');
CREATE FUNCTION immutable_blob() RETURNS blobstate IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	RETURN convert_to(repeat('i', 10000), 'UTF8');
END $$;
INSERT INTO plain (b) VALUES (immutable_blob());
SELECT methods('function called IMMUTABLE');
CREATE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO plain (b) SELECT content FROM source LIMIT 1;
END $$;
CREATE EVENT TRIGGER store_on_ddl ON ddl_command_end EXECUTE FUNCTION on_ddl();
CREATE TABLE made_with_event_trigger (b blobstate);
DROP EVENT TRIGGER store_on_ddl;
SELECT methods('event trigger');
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
	kept blobstate := convert_to(repeat('k', 10000), 'UTF8');
BEGIN
	ROLLBACK;
	INSERT INTO plain (b) VALUES (kept);
	COMMIT;
	INSERT INTO plain (b) VALUES (kept);
END $$;
SELECT methods('PL/pgSQL, variable over the end of a transaction');
DO $$
DECLARE
	typed plain.b%TYPE := convert_to(repeat('t', 10000), 'UTF8');
BEGIN
	INSERT INTO plain (b) VALUES (typed);
END $$;
SELECT methods('PL/pgSQL, variable with the type of a column, which is stored when it is assigned');
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
CREATE OR REPLACE FUNCTION assign() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	SELECT content INTO NEW.b FROM source LIMIT 1;
	RETURN NEW;
END $$;
INSERT INTO triggered VALUES (1, NULL);
SELECT methods('SELECT INTO NEW.column', 'triggered');
CREATE OR REPLACE FUNCTION assign() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW := ROW(1, convert_to(repeat('c', 10000), 'UTF8')::blobstate);
	RETURN NEW;
END $$;
INSERT INTO triggered VALUES (1, NULL);
SELECT methods('a row that a trigger makes as a whole stays in the table', 'triggered');
COPY triggered (id) FROM stdin;
1
\.
SELECT methods('the same in COPY', 'triggered');
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
INSERT INTO of_array VALUES (1, '{}');
UPDATE of_array SET b[1] = :'big';
SELECT methods('element of an array', 'of_array', 'b[1]');
INSERT INTO of_array SELECT 1, array_agg(content::blobstate) FROM source;
SELECT methods('array_agg()', 'of_array', 'b[1]');
CREATE TYPE pair AS (id int, b blobstate);
CREATE TABLE of_type (p pair);
INSERT INTO of_type VALUES (ROW(1, :'big'));
UPDATE of_type SET p.b = :'big';
SELECT methods('field of a composite type', 'of_type', '(p).b');
CREATE TABLE of_pair OF pair;
SELECT blobext_set_compression('of_pair', 'b', 'zstd');
INSERT INTO of_pair VALUES (1, :'big');
SELECT methods('typed table', 'of_pair');

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
PREPARE query AS SELECT content::blobstate AS b FROM source;
CREATE TABLE made_by_execute AS EXECUTE query;
SELECT methods('CREATE TABLE AS EXECUTE', 'made_by_execute');
EXPLAIN (ANALYZE) CREATE TABLE made_by_explain AS SELECT content::blobstate AS b FROM source
	\g /dev/null
SELECT methods('EXPLAIN ANALYZE CREATE TABLE AS', 'made_by_explain');
CREATE TABLE without_data AS SELECT content::blobstate AS b FROM source WITH NO DATA;
SELECT blobext_set_compression('without_data', 'b', 'zstd');
INSERT INTO without_data SELECT content FROM source;
SELECT methods('CREATE TABLE AS ... WITH NO DATA, then INSERT', 'without_data');
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
INSERT INTO plain (b) SELECT content FROM source WHERE id = 1;
COPY plain TO :'file' CSV;
TRUNCATE plain;
COPY plain FROM :'file' CSV;
SELECT methods('COPY, CSV');
INSERT INTO of_type VALUES (ROW(1, :'big'));
COPY of_type TO :'file';
TRUNCATE of_type;
COPY of_type FROM :'file';
SELECT methods('COPY of a composite type', 'of_type', '(p).b');
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
CREATE TABLE heir (id int NOT NULL, b blobstate);
SELECT blobext_set_compression('heir', 'b', 'none');
ALTER TABLE heir INHERIT plain;
INSERT INTO heir VALUES (1, :'big');
SELECT methods('table with a method of its own that became a child', 'heir');
SELECT blobext_set_compression('heir', 'b', NULL);
INSERT INTO heir VALUES (1, :'big');
SELECT methods('table without one that became a child', 'heir');
DROP TABLE heir;
CREATE VIEW replaced AS SELECT id, b FROM parted_2;
CREATE OR REPLACE VIEW replaced AS SELECT id, b FROM plain;
INSERT INTO replaced VALUES (1, :'big');
SELECT methods('CREATE OR REPLACE VIEW, of a table with another method');
CREATE TABLE by_content (id int, b blobstate) PARTITION BY HASH (b);
CREATE TABLE by_content_0 PARTITION OF by_content FOR VALUES WITH (MODULUS 1, REMAINDER 0);
SELECT blobext_set_compression('by_content', 'b', 'zstd');
INSERT INTO by_content VALUES (1, :'big');
SELECT methods('partitions by content', 'by_content');
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
