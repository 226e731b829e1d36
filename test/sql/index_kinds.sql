-- Index kinds whose items the collector cannot read are refused for every type that can hold
-- blobstate, in every statement that makes an index.  btree and hash are not.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS blobext;
RESET client_min_messages;
CREATE SCHEMA index_kinds;
SET search_path = index_kinds, public;
CREATE EXTENSION bloom;

CREATE TYPE pair AS (name text, content blobstate);
CREATE DOMAIN content_domain AS blobstate;
CREATE DOMAIN contents_domain AS blobstate[];
CREATE TYPE content_range AS RANGE (subtype = blobstate, multirange_type_name = content_multirange);
CREATE TABLE t (id int, b blobstate, bs blobstate[], d content_domain, ds contents_domain,
	dd content_domain[], p pair, ps pair[], r content_range, m content_multirange, span int4range,
	box box);

-- Every kind.
CREATE INDEX t_index ON t USING gin (bs);
CREATE INDEX t_index ON t USING gin (ds);
CREATE INDEX t_index ON t USING gin (dd);
CREATE INDEX t_index ON t USING gin (ps);
CREATE INDEX t_index ON t USING gin ((ARRAY[b]));
CREATE INDEX t_index ON t USING gin ((string_to_array('a', 'b')), bs);
CREATE INDEX t_index ON t USING gist (r);
CREATE INDEX t_index ON t USING gist (m);
CREATE INDEX t_index ON t USING gist (span, (m + m));
CREATE INDEX t_index ON t USING gist (span) INCLUDE (b);
CREATE INDEX t_index ON t USING gist (span) INCLUDE (id, p);
CREATE INDEX t_index ON t USING spgist (r);
CREATE INDEX t_index ON t USING spgist (box) INCLUDE (d);
CREATE INDEX t_index ON t USING brin (r);
CREATE INDEX t_index ON t USING brin (id, r);
CREATE INDEX CONCURRENTLY t_index ON t USING gin (bs);
-- PostgreSQL finds no operator class.
CREATE INDEX t_index ON t USING brin (b);
CREATE INDEX t_index ON t USING gin (b);
CREATE INDEX t_index ON t USING gist (b);
CREATE INDEX t_index ON t USING bloom (b);

-- Operator classes of one's own do not help, with another stored type neither.
CREATE OPERATOR CLASS minmax FOR TYPE blobstate USING brin AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 brin_minmax_opcinfo(internal),
	FUNCTION 2 brin_minmax_add_value(internal, internal, internal, internal),
	FUNCTION 3 brin_minmax_consistent(internal, internal, internal),
	FUNCTION 4 brin_minmax_union(internal, internal, internal);
CREATE INDEX t_index ON t USING brin (b minmax);
CREATE INDEX t_index ON t USING brin (d minmax);
CREATE FUNCTION wrapped(blobstate, internal, internal) RETURNS internal
	AS 'ginarrayextract' LANGUAGE internal;
CREATE OPERATOR CLASS wrapping FOR TYPE text USING gin AS
	OPERATOR 1 = (text, text),
	FUNCTION 2 wrapped(blobstate, internal, internal),
	FUNCTION 3 ginqueryarrayextract(anyarray, internal, smallint, internal, internal, internal,
		internal),
	STORAGE blobstate;
CREATE INDEX t_index ON t USING gin ((id::text) wrapping);
CREATE OPERATOR CLASS punned FOR TYPE blobstate USING brin AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 brin_minmax_opcinfo(internal),
	FUNCTION 2 brin_minmax_add_value(internal, internal, internal, internal),
	FUNCTION 3 brin_minmax_consistent(internal, internal, internal),
	FUNCTION 4 brin_minmax_union(internal, internal, internal),
	STORAGE bytea;
CREATE INDEX t_index ON t USING brin (b punned);
CREATE FUNCTION bloom_hash(blobstate) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE OPERATOR CLASS hashed FOR TYPE blobstate USING bloom AS
	OPERATOR 1 =, FUNCTION 1 bloom_hash(blobstate);
CREATE INDEX t_index ON t USING bloom (b hashed);

-- Every statement.
CREATE TABLE u (r content_range, EXCLUDE USING gist (r WITH &&));
CREATE TABLE u (r content_range, span int4range, EXCLUDE USING gist (span WITH &&) INCLUDE (r));
ALTER TABLE t ADD CONSTRAINT t_excluded EXCLUDE USING gist (r WITH &&);
ALTER TABLE t ADD COLUMN another content_range, ADD EXCLUDE USING gist (another WITH &&);
CREATE SCHEMA s CREATE TABLE u (bs public.blobstate[]) CREATE INDEX u_index ON u USING gin (bs);
DO $$BEGIN EXECUTE 'CREATE INDEX t_index ON t USING gin (bs)'; END$$;
CREATE MATERIALIZED VIEW v AS SELECT id, bs FROM t;
CREATE INDEX v_index ON v USING gin (bs);

CREATE TABLE parent (id int, bs blobstate[]) PARTITION BY RANGE (id);
CREATE TABLE child PARTITION OF parent FOR VALUES FROM (0) TO (10);
CREATE INDEX parent_index ON parent USING gin (bs);
CREATE INDEX parent_index ON ONLY parent USING gin (bs);
CREATE INDEX child_index ON child USING gin (bs);

CREATE TABLE grown (id int, texts text[], b bytea[]);
CREATE INDEX grown_index ON grown USING gin (texts);
CREATE INDEX grown_bytea ON grown USING gin (b);
ALTER TABLE grown ALTER COLUMN texts TYPE blobstate[] USING NULL;
ALTER TABLE grown ALTER COLUMN b TYPE blobstate[];

CREATE TYPE growing AS (name text);
CREATE TYPE around AS (inner_rows growing[]);
CREATE TABLE of_growing (id int, g growing[], a around, n around[]);
CREATE INDEX of_growing_index ON of_growing USING gin (n);
ALTER TYPE growing ADD ATTRIBUTE content blobstate;
ALTER TYPE growing ADD ATTRIBUTE content pair;
ALTER TYPE growing ADD ATTRIBUTE size int;
DROP INDEX of_growing_index;
CREATE STATISTICS of_growing_values (mcv) ON id, a FROM of_growing;
ALTER TYPE growing ADD ATTRIBUTE content blobstate;
DROP STATISTICS of_growing_values;
ALTER TYPE growing ADD ATTRIBUTE content blobstate;
CREATE INDEX of_growing_index ON of_growing USING gin (n);
-- A table's row type, used by another table.
CREATE TABLE used (id int);
CREATE TABLE using_table (rows used[]);
CREATE INDEX using_index ON using_table USING gin (rows);
ALTER TABLE used ADD COLUMN b blobstate;
DROP INDEX using_index;
CREATE TABLE whole (id int);
CREATE INDEX whole_index ON whole USING gin ((ARRAY[whole.*]));
ALTER TABLE whole ADD COLUMN b blobstate;
-- An index that stores anyrange, by its operator class.
CREATE TYPE row_range AS RANGE (subtype = used, multirange_type_name = row_multirange);
CREATE TABLE ranging (id int, rows row_multirange);
CREATE INDEX ranging_index ON ranging USING gist (int4range(0, id), rows);
ALTER TABLE used ADD COLUMN b blobstate;
DROP INDEX ranging_index;
CREATE INDEX ranging_index ON ranging USING gist (int4range(0, id), row_multirange(row_range(NULL, NULL)));
ALTER TABLE used ADD COLUMN b blobstate;
DROP INDEX ranging_index;
ALTER TABLE used ADD COLUMN b blobstate;
CREATE INDEX using_index ON using_table USING gin (rows);
CREATE INDEX ranging_index ON ranging USING gist (rows);

-- An index that was there before the library was loaded cannot be renewed beside itself, or be
-- made for a copy of its table.
CREATE TABLE old (bs bytea[]);
CREATE INDEX old_index ON old USING gin (bs);
UPDATE pg_attribute SET atttypid = 'blobstate[]'::regtype WHERE attrelid = 'old'::regclass
	AND attname = 'bs';
UPDATE pg_attribute SET atttypid = 'blobstate'::regtype WHERE attrelid = 'old_index'::regclass;
\c -
SET search_path = index_kinds, public;
CREATE TABLE copied (LIKE old INCLUDING ALL);
CREATE TABLE copied (LIKE old);
REINDEX INDEX CONCURRENTLY old_index;
SELECT relname, indisvalid FROM pg_index JOIN pg_class c ON c.oid = indexrelid
	WHERE relname LIKE 'old_index%' ORDER BY 1;
DROP TABLE old;

-- Allowed.
CREATE INDEX ON t (b) INCLUDE (bs, p);
CREATE INDEX ON t (bs);
CREATE INDEX ON t (p);
CREATE INDEX ON t (r);
CREATE INDEX ON t USING hash (b);
CREATE INDEX ON t USING hash (bs);
CREATE INDEX ON t USING gin ((ARRAY[sha256(b)]));
CREATE INDEX ON t USING brin ((sha256(b)));
CREATE INDEX ON t USING brin (length(b));
CREATE OPERATOR CLASS counting FOR TYPE blobstate USING gin AS
	OPERATOR 1 =,
	FUNCTION 1 btint4cmp(integer, integer),
	FUNCTION 2 wrapped(blobstate, internal, internal),
	FUNCTION 3 ginqueryarrayextract(anyarray, internal, smallint, internal, internal, internal,
		internal),
	FUNCTION 4 ginarrayconsistent(internal, smallint, anyarray, integer, internal, internal, internal,
		internal),
	STORAGE integer;
CREATE INDEX ON parent USING gin ((bs[1]) counting);
CREATE INDEX ON t USING gist (int8range(0, length(b))) INCLUDE (id);
CREATE INDEX ON t USING spgist (int8range(0, length(b)));
CREATE INDEX ON t USING brin (id) WHERE b IS NOT NULL;
CREATE INDEX ON grown USING gin (b);
CREATE INDEX ON parent (bs);
CREATE TABLE u (r content_range, EXCLUDE USING btree (r WITH =));
SELECT a.amname, count(*) FROM pg_class c JOIN pg_am a ON a.oid = relam
	WHERE relkind IN ('i', 'I') AND relnamespace = 'index_kinds'::regnamespace
	GROUP BY 1 ORDER BY 1;

-- Statistics objects: numbers yes, values no.
CREATE STATISTICS t_statistics ON id, b FROM t;
CREATE STATISTICS t_statistics (mcv) ON id, bs FROM t;
CREATE STATISTICS t_statistics (mcv) ON id, (coalesce(b, b)) FROM t;
CREATE STATISTICS t_statistics (ndistinct) ON id, (ARRAY[b]) FROM t;
CREATE STATISTICS t_statistics ON (ARRAY[b]) FROM t;
CREATE STATISTICS t_numbers (ndistinct, dependencies) ON id, b FROM t;
CREATE STATISTICS t_expression ON (coalesce(b, b)) FROM t;
CREATE STATISTICS t_mixed (mcv) ON id, (length(b)) FROM t;
CREATE TABLE t_changed (id int, b bytea);
CREATE STATISTICS t_changed_statistics (mcv) ON id, b FROM t_changed;
ALTER TABLE t_changed ALTER COLUMN b TYPE blobstate;
CREATE TABLE t_copied (LIKE t INCLUDING STATISTICS);
SELECT stxname, stxkind FROM pg_statistic_ext WHERE stxnamespace = 'index_kinds'::regnamespace
	ORDER BY 1;

-- Columns whose statistics PostgreSQL would take by itself have the target 0, and keep it.
SELECT attrelid::regclass, attname, atttypid::regtype FROM pg_attribute JOIN pg_class c
	ON c.oid = attrelid WHERE attstattarget = 0 AND attnum > 0 AND relnamespace = 'index_kinds'::regnamespace
	ORDER BY 1, attnum;
ALTER TABLE t ALTER COLUMN bs SET STATISTICS 10;
ALTER TABLE t ALTER COLUMN bs SET STATISTICS -1;
ALTER TABLE t ALTER COLUMN b SET STATISTICS 10;
SELECT attname, coalesce(attstattarget, -1) AS target FROM pg_attribute WHERE attrelid = 't'::regclass
	AND attname IN ('b', 'bs');
CREATE TABLE t_changed_type (b bytea[]);
ALTER TABLE t_changed_type ALTER COLUMN b TYPE blobstate[];
CREATE INDEX t_expression_index ON t ((ARRAY[b]), (coalesce(b, b)));
CREATE INDEX CONCURRENTLY t_concurrent_index ON t ((ARRAY[b, b]));
CREATE TEMP TABLE t_temporary AS SELECT ARRAY[b] AS bs FROM t;
SELECT attrelid::regclass, attname, coalesce(attstattarget, -1) AS target FROM pg_attribute
	WHERE attnum > 0 AND attrelid IN
	('t_changed_type'::regclass, 't_expression_index'::regclass, 't_concurrent_index'::regclass,
	't_temporary'::regclass) ORDER BY 1, 2;

-- Event triggers that collect commands.
CREATE FUNCTION report() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
	FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
		RAISE NOTICE '% %', c.command_tag, c.object_identity;
	END LOOP;
	IF tg_tag = 'COMMENT' THEN
		CREATE TABLE IF NOT EXISTS within_trigger (bs blobstate[]);
	END IF;
END$$;
CREATE EVENT TRIGGER report ON ddl_command_end EXECUTE FUNCTION report();
CREATE TABLE reported (bs blobstate[]);
CREATE SCHEMA reported CREATE TABLE reported (bs public.blobstate[], p index_kinds.pair);
COMMENT ON TABLE reported IS 'creates a table';
DROP EVENT TRIGGER report;
SELECT attrelid::regclass, attname, coalesce(attstattarget, -1) AS target FROM pg_attribute
	WHERE attnum > 0 AND attrelid IN
	('reported'::regclass, 'reported.reported'::regclass, 'within_trigger'::regclass)
	ORDER BY 1, attnum;

-- Without the extension nothing is refused.
CREATE DATABASE without_extension;
\c without_extension
CREATE TABLE t (a text[], r int4range, EXCLUDE USING gist (r WITH &&));
CREATE INDEX ON t USING gin (a);
CREATE STATISTICS s ON a, r FROM t;
\c -
\c regression
DROP DATABASE without_extension;

SET client_min_messages = warning;
DROP SCHEMA index_kinds, reported CASCADE;
