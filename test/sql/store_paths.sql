--
-- Every path on which a value can reach a table: values over blobext.inline_limit go to extents,
-- and each execution of a cached statement stores a value of its own.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS blobext;
RESET client_min_messages;
CREATE SCHEMA store_paths;
SET search_path = store_paths, public;
SET blobext.inline_limit = 64;

-- big: a literal over the limit.  Bodies of functions spell out one of 80 bytes.
SELECT '\x' || repeat('ab', 10000) AS big \gset
SELECT current_setting('data_directory') || '/store_paths.bin' AS file \gset

-- Of a column: rows, how they are stored, different contents, different places, and whether the
-- content that can be read has the stored digest.
CREATE FUNCTION stored(relation regclass, col text DEFAULT 'b')
RETURNS TABLE (n bigint, storage text, contents bigint, places bigint, sound boolean)
LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format(
		'SELECT count(*), string_agg(DISTINCT blob_storage(%1$s), '', ''),
				count(DISTINCT sha256(%1$s)),
				count(DISTINCT (SELECT min(first_page) FROM blob_extents(%1$s))),
				bool_and(sha256(blob_read(%1$s, 0, 1000000)) = sha256(%1$s) AND length(%1$s) > 64)
		 FROM %2$s', col, relation);
END $$;

CREATE TABLE source (id int, content bytea);
INSERT INTO source VALUES (1, :'big'), (2, :'big');

--
-- Statements that modify tables
--
CREATE TABLE plain (id serial PRIMARY KEY, b blobstate);

INSERT INTO plain (b) VALUES (:'big');
INSERT INTO plain (b) VALUES (:'big'), (:'big'), (NULL);
SELECT * FROM stored('plain');

TRUNCATE plain;
INSERT INTO plain (b) SELECT content FROM source;
INSERT INTO plain (b) SELECT content::blobstate FROM source ORDER BY id LIMIT 1;
INSERT INTO plain (b) SELECT content FROM source UNION ALL SELECT content FROM source;
INSERT INTO plain (b) VALUES (unnest(ARRAY[:'big', :'big']::blobstate[]));
SELECT * FROM stored('plain');

-- A copy shares its source's extents.
CREATE TABLE copied AS SELECT * FROM plain LIMIT 0;
INSERT INTO copied SELECT * FROM plain WHERE id = (SELECT min(id) FROM plain);
SELECT (SELECT min(first_page) FROM blob_extents(copied.b)) =
	(SELECT min(first_page) FROM blob_extents(plain.b)) AS shared
FROM copied JOIN plain USING (id);

-- Small values stay in the row.
TRUNCATE plain;
INSERT INTO plain (b) VALUES ('\x0102');
SELECT blob_storage(b) FROM plain;

UPDATE plain SET b = :'big';
SELECT * FROM stored('plain');
UPDATE plain SET (id, b) = (SELECT 1, content::blobstate FROM source LIMIT 1);
SELECT * FROM stored('plain');
UPDATE plain SET b = content FROM source WHERE source.id = 2;
SELECT * FROM stored('plain');

INSERT INTO plain VALUES (1, '\x00') ON CONFLICT (id) DO UPDATE SET b = :'big';
SELECT * FROM stored('plain');
INSERT INTO plain VALUES (1, :'big') ON CONFLICT (id) DO UPDATE SET b = excluded.b;
SELECT * FROM stored('plain');

TRUNCATE plain;
INSERT INTO plain VALUES (1, '\x00');
MERGE INTO plain USING source ON plain.id = source.id
	WHEN MATCHED THEN UPDATE SET b = content
	WHEN NOT MATCHED THEN INSERT (id, b) VALUES (source.id, source.content);
SELECT * FROM stored('plain');
MERGE INTO plain USING source ON plain.id = source.id
	WHEN MATCHED THEN UPDATE SET b = :'big'
	WHEN NOT MATCHED THEN DO NOTHING;
SELECT * FROM stored('plain');

TRUNCATE plain;
WITH i AS (INSERT INTO plain (b) VALUES (:'big') RETURNING b)
SELECT blob_storage(b) FROM i;
WITH u AS (UPDATE plain SET b = :'big' RETURNING b)
INSERT INTO plain (id, b) SELECT 0, b FROM u;
SELECT * FROM stored('plain');

-- Input that bears the column's modifier, but was never stored.
TRUNCATE plain;
INSERT INTO plain SELECT * FROM json_populate_record(NULL::plain,
	json_build_object('id', 1, 'b', :'big'));
SELECT * FROM stored('plain');

--
-- Cached statements, executed twice or more
--
TRUNCATE plain;
PREPARE literal AS INSERT INTO plain (b) VALUES (:'big');
EXECUTE literal;
EXECUTE literal;
SELECT * FROM stored('plain');

TRUNCATE plain;
PREPARE param(blobstate) AS INSERT INTO plain (b) VALUES ($1);
SET plan_cache_mode = force_generic_plan;
EXECUTE param(:'big');
EXECUTE param(:'big');
SET plan_cache_mode = force_custom_plan;
EXECUTE param(:'big');
RESET plan_cache_mode;
SELECT * FROM stored('plain');

TRUNCATE plain;
CREATE FUNCTION by_plpgsql() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO plain (b) VALUES
	('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
END $$;
SELECT by_plpgsql();
SELECT by_plpgsql();
SELECT * FROM stored('plain');

TRUNCATE plain;
CREATE FUNCTION by_sql() RETURNS void LANGUAGE sql AS $$
	INSERT INTO plain (b) VALUES
	('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
$$;
CREATE FUNCTION by_atomic_sql() RETURNS void LANGUAGE sql BEGIN ATOMIC
	INSERT INTO plain (b) VALUES
	('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
END;
SELECT by_sql(), by_atomic_sql();
SELECT by_sql(), by_atomic_sql();
SELECT * FROM stored('plain');

TRUNCATE plain;
CREATE FUNCTION by_dynamic_sql(content blobstate) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'INSERT INTO plain (b) VALUES ($1)' USING content;
END $$;
SELECT by_dynamic_sql(:'big');
SELECT by_dynamic_sql(:'big');
SELECT * FROM stored('plain');

TRUNCATE plain;
CREATE VIEW updatable AS SELECT id, b FROM plain;
PREPARE through_view AS INSERT INTO updatable (id, b) VALUES ($1, :'big');
EXECUTE through_view(1);
EXECUTE through_view(2);
SELECT * FROM stored('plain');
UPDATE updatable SET b = content FROM source WHERE source.id = updatable.id;
SELECT * FROM stored('plain');

-- A view whose column is a literal: each reader stores a copy of its own.
TRUNCATE plain;
CREATE VIEW literal_view AS SELECT :'big'::blobstate AS b;
SELECT blob_storage(b) FROM literal_view;
INSERT INTO plain (b) SELECT b FROM literal_view;
INSERT INTO plain (b) SELECT b FROM literal_view;
SELECT * FROM stored('plain');

TRUNCATE plain;
CREATE TABLE ruled (id int);
CREATE RULE instead AS ON INSERT TO ruled
	DO INSTEAD INSERT INTO plain (id, b) VALUES (new.id, :'big');
INSERT INTO ruled VALUES (1);
INSERT INTO ruled VALUES (2);
SELECT * FROM stored('plain');

CREATE VIEW triggered AS SELECT 0 AS id, NULL::blobstate AS b;
CREATE FUNCTION instead_of() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO plain (id, b) VALUES (new.id, new.b);
	RETURN new;
END $$;
CREATE TRIGGER instead INSTEAD OF INSERT ON triggered
	FOR EACH ROW EXECUTE FUNCTION instead_of();
TRUNCATE plain;
INSERT INTO triggered VALUES (1, :'big');
INSERT INTO triggered VALUES (2, :'big');
SELECT * FROM stored('plain');

--
-- Defaults, generated columns, triggers: where only the length coercion reaches
--
CREATE TABLE defaults (id int, b blobstate DEFAULT :'big');
INSERT INTO defaults (id) VALUES (1);
INSERT INTO defaults VALUES (2, DEFAULT);
INSERT INTO defaults (id) SELECT 3;
COPY defaults (id) FROM stdin;
4
5
\.
SELECT * FROM stored('defaults');

CREATE TABLE added (id int);
INSERT INTO added VALUES (1), (2);
ALTER TABLE added ADD COLUMN b blobstate DEFAULT :'big';
SELECT * FROM stored('added');
SELECT atthasmissing, attmissingval IS NULL AS nothing_kept FROM pg_attribute
	WHERE attrelid = 'added'::regclass AND attname = 'b';

-- A small default needs no rewrite.
SELECT pg_relation_filenode('added') AS filenode \gset
ALTER TABLE added ADD COLUMN small blobstate DEFAULT '\x01';
SELECT pg_relation_filenode('added') = :filenode AS kept, blob_storage(small) FROM added;

CREATE TABLE altered AS SELECT id, content AS b FROM source;
ALTER TABLE altered ALTER COLUMN b TYPE blobstate USING b::blobstate;
SELECT * FROM stored('altered');
ALTER TABLE altered ALTER COLUMN b TYPE blobstate USING :'big'::blobstate;
SELECT * FROM stored('altered');

CREATE TABLE generated (id int, content bytea);
CREATE FUNCTION as_blob(bytea) RETURNS blobstate IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	RETURN $1;
END $$;
ALTER TABLE generated ADD COLUMN b blobstate GENERATED ALWAYS AS (as_blob(content)) STORED;
INSERT INTO generated VALUES (1, :'big');
COPY generated (id, content) FROM stdin;
2	\\x6161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161
\.
SELECT * FROM stored('generated');
UPDATE generated SET content = content || content;
SELECT * FROM stored('generated');

CREATE TABLE with_trigger (id int, b blobstate);
CREATE FUNCTION set_literal() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	copy with_trigger%ROWTYPE;
BEGIN
	IF new.id = 1 THEN
		new.b := 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb';
	ELSIF new.id = 2 THEN
		SELECT content::blobstate INTO new.b FROM source LIMIT 1;
	ELSIF new.id = 3 THEN
		SELECT content INTO new.b FROM source LIMIT 1;
	ELSIF new.id = 4 THEN
		copy := new;
		copy.b := convert_to(repeat('d', 80), 'UTF8');
		RETURN copy;
	END IF;
	RETURN new;
END $$;
CREATE TRIGGER before BEFORE INSERT OR UPDATE ON with_trigger
	FOR EACH ROW EXECUTE FUNCTION set_literal();
INSERT INTO with_trigger VALUES (1), (2), (3), (4);
SELECT id, blob_storage(b), length(b) FROM with_trigger ORDER BY id;
INSERT INTO with_trigger VALUES (1), (2), (3), (4);
UPDATE with_trigger SET b = NULL;
COPY with_trigger (id) FROM stdin;
1
2
3
4
\.
SELECT * FROM stored('with_trigger');

-- Rows that a trigger makes as a whole are accepted, and stay in the table.
CREATE OR REPLACE FUNCTION set_literal() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	untyped record;
BEGIN
	IF new.id = 1 THEN
		new := ROW(1, convert_to(repeat('c', 80), 'UTF8')::blobstate);
	ELSIF new.id = 2 THEN
		SELECT 2, content::blobstate INTO new FROM source LIMIT 1;
	ELSIF new.id = 3 THEN
		SELECT 3, content::blobstate INTO untyped FROM source LIMIT 1;
		RETURN untyped;
	ELSIF new.id = 4 THEN
		new := json_populate_record(new, json_build_object('b', repeat('d', 80)));
	END IF;
	RETURN new;
END $$;
TRUNCATE with_trigger;
INSERT INTO with_trigger VALUES (1), (2), (3), (4);
SELECT id, blob_storage(b), length(b) FROM with_trigger ORDER BY id;

--
-- Domains, arrays, composite types
--
CREATE DOMAIN document AS blobstate CHECK (length(value) > 3);
CREATE TABLE of_domain (id int, b document DEFAULT :'big');
INSERT INTO of_domain VALUES (1, :'big'), (2, DEFAULT);
INSERT INTO of_domain SELECT id, content::blobstate FROM source;
UPDATE of_domain SET b = :'big' WHERE id = 1;
SELECT * FROM stored('of_domain');
CREATE TABLE of_domain_2 AS SELECT 1 AS id, content::blobstate::document AS b FROM source;
SELECT * FROM stored('of_domain_2');
INSERT INTO of_domain VALUES (1, '\x00');

CREATE TABLE of_array (id int, a blobstate[]);
INSERT INTO of_array VALUES (1, ARRAY[:'big', :'big']::blobstate[]), (2, '{aa,bb}');
INSERT INTO of_array SELECT 3, array_agg(content::blobstate) FROM source;
UPDATE of_array SET a[1] = :'big' WHERE id = 2;
SELECT id, blob_storage(a[1]) AS first, blob_storage(a[2]) AS second FROM of_array ORDER BY id;
CREATE TABLE of_array_2 AS SELECT array_agg(content::blobstate) AS a FROM source;
SELECT blob_storage(a[1]) AS first, blob_storage(a[2]) AS second FROM of_array_2;

CREATE TYPE pair AS (id int, b blobstate);
CREATE TABLE of_type (p pair);
INSERT INTO of_type VALUES (ROW(1, :'big')), (ROW(2, :'big'::blobstate)::pair);
INSERT INTO of_type SELECT ROW(id, content)::pair FROM source;
SELECT * FROM stored('of_type', '((p).b)');
UPDATE of_type SET p.b = :'big';
SELECT * FROM stored('of_type', '((p).b)');
ALTER TYPE pair ADD ATTRIBUTE c blobstate;
INSERT INTO of_type VALUES (ROW(1, :'big', :'big'));
SELECT blob_storage((p).c) FROM of_type WHERE (p).c IS NOT NULL;

--
-- Tables made from queries
--
CREATE TABLE made AS SELECT id, content::blobstate AS b FROM source;
SELECT * FROM stored('made');
SELECT id, :'big'::blobstate AS b INTO selected_into FROM source;
SELECT * FROM stored('selected_into');
PREPARE query AS SELECT id, :'big'::blobstate AS b FROM source;
CREATE TABLE made_by_execute AS EXECUTE query;
CREATE TABLE made_by_execute_2 AS EXECUTE query;
INSERT INTO made_by_execute SELECT * FROM made_by_execute_2;
SELECT * FROM stored('made_by_execute');
EXPLAIN (ANALYZE) CREATE TABLE made_by_explain AS SELECT content::blobstate AS b FROM source
	\g /dev/null
SELECT * FROM stored('made_by_explain');

SELECT CASE WHEN current_setting('server_version_num')::int < 160000
	THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END AS force_parallel \gset
SET :force_parallel = on;
CREATE TABLE made_in_parallel AS SELECT content::blobstate AS b FROM source;
RESET :force_parallel;
SELECT * FROM stored('made_in_parallel');

CREATE MATERIALIZED VIEW materialized AS SELECT id, content::blobstate AS b FROM source;
SELECT * FROM stored('materialized');
REFRESH MATERIALIZED VIEW materialized;
SELECT * FROM stored('materialized');
CREATE UNIQUE INDEX ON materialized (id);
INSERT INTO source VALUES (3, :'big');
REFRESH MATERIALIZED VIEW CONCURRENTLY materialized;
SELECT * FROM stored('materialized');
SELECT regexp_replace(pg_get_viewdef('materialized'::regclass), 'source\.|\s+', '', 'g');
DELETE FROM source WHERE id = 3;

--
-- COPY
--
CREATE TABLE loaded (id int, b blobstate);
COPY loaded FROM stdin;
1	\\x6161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161616161
2	\N
\.
COPY loaded FROM stdin CSV;
3,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
\.
SELECT id, blob_storage(b), length(b) FROM loaded ORDER BY id;
COPY made TO :'file' (FORMAT binary);
TRUNCATE loaded;
COPY loaded FROM :'file' (FORMAT binary);
COPY loaded FROM :'file' (FORMAT binary);
SELECT * FROM stored('loaded');

COPY of_domain FROM stdin;
7	aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
\.
SELECT blob_storage(b) FROM of_domain WHERE id = 7;
COPY of_array FROM stdin;
7	{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}
\.
SELECT blob_storage(a[1]) FROM of_array WHERE id = 7;
COPY of_type FROM stdin;
(7,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,)
\.
SELECT blob_storage((p).b) FROM of_type WHERE (p).id = 7;

-- A literal in a trigger that fires within COPY is parsed there, and kept.
CREATE TABLE fired (id int);
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM by_plpgsql();
	RETURN new;
END $$;
CREATE TRIGGER before BEFORE INSERT ON fired FOR EACH ROW EXECUTE FUNCTION fire();
TRUNCATE plain;
\c -
SET search_path = store_paths, public;
SET blobext.inline_limit = 64;
BEGIN;
COPY fired FROM stdin;
1
\.
ROLLBACK;
COPY fired FROM stdin;
2
3
\.
SELECT * FROM stored('plain');

--
-- Partitions
--
CREATE TABLE parted (id int, b blobstate) PARTITION BY RANGE (b);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (:'big');
CREATE TABLE parted_high (id int, b blobstate);
ALTER TABLE parted ATTACH PARTITION parted_high FOR VALUES FROM (:'big') TO (MAXVALUE);
INSERT INTO parted VALUES (1, :'big'), (2, decode(repeat('aa', 10000), 'hex')::blobstate);
INSERT INTO parted SELECT id, content FROM source;
SELECT tableoid::regclass, count(*), string_agg(DISTINCT blob_storage(b), ', ')
	FROM parted GROUP BY 1 ORDER BY 1;
-- The bounds are content.
SELECT relname, length(pg_get_expr(relpartbound, oid)) FROM pg_class
	WHERE relname IN ('parted_low', 'parted_high') ORDER BY 1;
CREATE FUNCTION a_blob() RETURNS blobstate LANGUAGE sql AS 'SELECT b FROM made LIMIT 1';
ALTER TABLE parted DETACH PARTITION parted_high;
-- A stored value: its content becomes the bound (bounds.pl has containers, and collects).
ALTER TABLE parted ATTACH PARTITION parted_high FOR VALUES FROM (a_blob()) TO (MAXVALUE);
SELECT relpartbound::text ~ '\[ -?\d+ -?\d+ 0 0 1 ' AS is_content	-- the form's byte: inline
	FROM pg_class WHERE relname = 'parted_high';
-- Key columns of other types may be computed.
CREATE TABLE parted_list (id int, b blobstate) PARTITION BY LIST (id);
CREATE TABLE parted_list_1 PARTITION OF parted_list FOR VALUES IN (abs(-1));
-- Statements still store after one that failed.
CREATE TABLE parted_list_2 PARTITION OF parted_list FOR VALUES IN (abs(-1));
INSERT INTO parted_list VALUES (1, :'big');
SELECT * FROM stored('parted_list');
COPY parted_list FROM stdin;
1	aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
\.
SELECT * FROM stored('parted_list');

-- Event triggers within such a statement store as ever.
CREATE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM by_plpgsql();
END $$;
TRUNCATE plain;
CREATE EVENT TRIGGER store_on_ddl ON ddl_command_end EXECUTE FUNCTION on_ddl();
CREATE TABLE parted_list_2 PARTITION OF parted_list FOR VALUES IN (2);
DROP EVENT TRIGGER store_on_ddl;
SELECT * FROM stored('plain');

--
-- The modifier is not to be seen, and does not get into the way
--
SELECT attrelid::regclass, attname, format_type(atttypid, atttypmod), atttypmod
	FROM pg_attribute
	WHERE attnum > 0 AND (attrelid, attname) IN (('plain'::regclass, 'b'),
		('of_array'::regclass, 'a'), ('made'::regclass, 'b'), ('made_by_execute'::regclass, 'b'),
		('literal_view'::regclass, 'b'), ('of_array_2'::regclass, 'a'), ('parted'::regclass, 'b'),
		('parted_high'::regclass, 'b'), ('pair'::regclass, 'b'), ('pair'::regclass, 'c'))
	ORDER BY 1, 2;
SELECT typname, typtypmod FROM pg_type WHERE typname = 'document';
CREATE TABLE no_modifier (b blobstate(10));
CREATE SCHEMA elements CREATE TABLE t (b blobstate) CREATE VIEW v AS SELECT b FROM t;
CREATE TABLE "like" (LIKE plain);
CREATE TABLE of_pair OF pair;
CREATE TABLE inheriting (b blobstate) INHERITS (plain);
SELECT attrelid::regclass, atttypmod FROM pg_attribute WHERE attname = 'b' AND attrelid IN
	('elements.t'::regclass, 'elements.v'::regclass, '"like"'::regclass, 'of_pair'::regclass,
	 'inheriting'::regclass) ORDER BY 1;
DROP TABLE inheriting;
-- A cached statement's tree is not changed.
DO $$
BEGIN
	FOR i IN 1 .. 2 LOOP
		CREATE TABLE again (b blobstate);
		INSERT INTO again VALUES (repeat('a', 80)::bytea);
		RAISE NOTICE '%', (SELECT blob_storage(b) FROM again);
		DROP TABLE again;
	END LOOP;
END $$;

CREATE TABLE parted_list_3 AS SELECT 3 AS id, content::blobstate AS b FROM source WITH NO DATA;
ALTER TABLE parted_list ATTACH PARTITION parted_list_3 FOR VALUES IN (3);
CREATE TABLE parted_list_4 AS SELECT 4 AS id, content::blobstate AS b FROM source;
ALTER TABLE parted_list ATTACH PARTITION parted_list_4 FOR VALUES IN (4);
INSERT INTO parted_list VALUES (3, :'big');
SELECT * FROM stored('parted_list_3');
CREATE FOREIGN DATA WRAPPER nowhere;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere;
CREATE FOREIGN TABLE parted_list_5 (id int, b blobstate) SERVER nowhere;
ALTER TABLE parted_list ATTACH PARTITION parted_list_5 FOR VALUES IN (5);

-- The plans of statements on local tables, as the library changes them.
CREATE FUNCTION plan_of(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query;
END $$;
SELECT * FROM plan_of('INSERT INTO plain VALUES (1, ''a''), (2, ''b'')');
SELECT * FROM plan_of('INSERT INTO plain SELECT id, b FROM made');

CREATE VIEW replaced AS SELECT id, NULL::blobstate AS b FROM plain;
CREATE OR REPLACE VIEW replaced AS SELECT id, b FROM plain;
INSERT INTO replaced VALUES (1000, :'big');
CREATE OR REPLACE VIEW replaced AS SELECT id, content::blobstate AS b FROM source;
SELECT regexp_replace(pg_get_viewdef('replaced'::regclass), 'source\.|\s+', '', 'g');
CREATE OR REPLACE VIEW replaced AS
	SELECT id, content::blobstate AS b FROM source UNION ALL SELECT id, b FROM plain;
SELECT blob_storage(b), count(*) FROM replaced GROUP BY 1 ORDER BY 1;
CREATE VIEW grouped AS SELECT b::bytea::blobstate AS b, length(b::bytea::blobstate), count(*)
	FROM plain GROUP BY b::bytea::blobstate ORDER BY 1;
SELECT length, blob_storage(b) FROM grouped ORDER BY 1;

CREATE FUNCTION rows_of_table() RETURNS SETOF plain LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	RETURN QUERY SELECT id, content::blobstate FROM source;
	RETURN QUERY EXECUTE 'SELECT id, content::blobstate FROM source';
	FOR r IN SELECT id, content::blobstate FROM source LOOP
		RETURN NEXT r;
	END LOOP;
	RETURN NEXT ROW(3, repeat('e', 80)::bytea::blobstate);
END $$;
CREATE FUNCTION row_of_table() RETURNS plain LANGUAGE plpgsql AS $$
BEGIN
	RETURN (4, repeat('e', 80)::bytea::blobstate);
END $$;
SELECT id, blob_storage(b) FROM row_of_table();
SELECT id, blob_storage(b) FROM rows_of_table();
TRUNCATE plain;
INSERT INTO plain SELECT id + 10 * row_number() OVER (), b FROM rows_of_table();
SELECT * FROM stored('plain');

--
-- Values that outlive their transaction
--
-- A statement prepared in a transaction that was rolled back.
TRUNCATE plain;
BEGIN;
PREPARE rolled_back AS INSERT INTO plain (b) VALUES (:'big');
EXECUTE rolled_back;
ROLLBACK;
EXECUTE rolled_back;
EXECUTE rolled_back;
SELECT * FROM stored('plain');

-- A value that outlives the transaction that stored it: its extents stay.
TRUNCATE plain;
DO $$
DECLARE
	kept plain.b%TYPE;
	row plain%ROWTYPE;
BEGIN
	kept := convert_to(repeat('k', 80), 'UTF8');
	row.b := convert_to(repeat('r', 80), 'UTF8');
	ROLLBACK;
	INSERT INTO plain (b) VALUES (kept), (row.b);
	COMMIT;
	INSERT INTO plain (b) VALUES (kept), (row.b);
END $$;
SELECT * FROM stored('plain');

-- A function called IMMUTABLE is evaluated by the planner; its value is kept with the plan.
CREATE FUNCTION immutable_blob() RETURNS blobstate IMMUTABLE LANGUAGE plpgsql AS $$
DECLARE
	value plain.b%TYPE;
BEGIN
	value := convert_to(repeat('i', 80), 'UTF8');
	RETURN value;
END $$;
TRUNCATE plain;
PREPARE folded AS INSERT INTO plain (b) VALUES (immutable_blob()) RETURNING blob_storage(b);
EXECUTE folded;
EXECUTE folded;
SELECT * FROM stored('plain');
PREPARE folded_too AS SELECT blob_storage(immutable_blob());
EXECUTE folded_too;

-- No allocation in a read-only transaction: inline, but stored.
CREATE TEMP TABLE readonly (b blobstate);
BEGIN READ ONLY;
INSERT INTO readonly VALUES (:'big');
COMMIT;
SELECT blob_storage(b) FROM readonly;
UPDATE readonly SET b = b;
SELECT blob_storage(b) FROM readonly;

SET client_min_messages = warning;
DROP FOREIGN DATA WRAPPER nowhere CASCADE;
DROP SCHEMA store_paths, elements CASCADE;
