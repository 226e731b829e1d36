-- Content is durable before its descriptor enters an index that is ordered by content, and not
-- synced before commit where there is no such index.  cost() counts fdatasync() calls within a
-- transaction that goes on, so those of its commit are not in it.
CREATE SCHEMA index_durability;
SET search_path = index_durability, public;
\ir nothing_deferred.psql
SELECT plan(77);

CREATE FUNCTION bytes(seed text, size int DEFAULT 5000) RETURNS bytea LANGUAGE sql VOLATILE AS $$
	SELECT substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR size)
	FROM generate_series(1, (size + 31) / 32) i
$$;

CREATE FUNCTION syncs() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$SELECT value FROM blobext_stat WHERE name = 'syncs'$$;

-- How often the last of these statements syncs, where the others may leave something pending.
CREATE FUNCTION cost(VARIADIC statements text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint;
BEGIN
	FOR i IN 1 .. cardinality(statements) LOOP
		before := syncs();
		EXECUTE statements[i];
	END LOOP;
	RETURN syncs() - before;
END $$;

-- A new table from a list of columns with a column id, and its index.
CREATE FUNCTION make(name text, columns text, index text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %I (id int, %s)', name, columns);
	IF index IS NOT NULL THEN
		EXECUTE format('CREATE INDEX ON %I %s', name, index);
	END IF;
END $$;

--
-- Which indexes count
--
SELECT make('plain', 'b blobstate');
SELECT make('keyed', 'b blobstate', '(b)');
SELECT is(cost($$INSERT INTO plain SELECT i, bytes('a' || i) FROM generate_series(1, 10) i$$),
	0::bigint, 'no index: nothing is synced before commit');
SELECT is(cost($$INSERT INTO keyed VALUES (1, bytes('b'))$$), 1::bigint,
	'the first key of an empty index');
SELECT is(cost($$INSERT INTO keyed SELECT i, bytes('b' || i) FROM generate_series(1, 10) i$$),
	10::bigint, 'an index on content: each value at once');
SELECT is(cost($$INSERT INTO keyed VALUES (1, '\x0102')$$), 0::bigint, 'inline values need no sync');

CREATE DOMAIN picture AS blobstate;
CREATE TYPE pair AS (id int, b blobstate);
CREATE TYPE span AS RANGE (SUBTYPE = blobstate);
CREATE TABLE kinds (name text PRIMARY KEY, columns text, index text, value text, syncs bigint);
INSERT INTO kinds VALUES
	('hash', 'b blobstate', 'USING hash (b)', '%s', 0),
	('digest', 'b blobstate', '(b blobstate_digest_ops)', '%s', 0),
	('id', 'b blobstate', '(id)', '%s', 0),
	('partial', 'b blobstate', $$(id) WHERE b > '\x00'::blobstate$$, '%s', 0),
	('include', 'b blobstate', '(id) INCLUDE (b)', '%s', 0),
	('sha256', 'b blobstate', '(sha256(b))', '%s', 0),
	('length', 'b blobstate', '(length(b))', '%s', 0),
	('second', 'b blobstate', '(id, b)', '%s', 2),
	('mixed', 'b blobstate', '(b blobstate_digest_ops, b)', '%s', 2),
	('where', 'b blobstate', '(b) WHERE id > 1000', '%s', 2),
	('expression', 'b blobstate', $$(coalesce(b, '\x'))$$, '%s', 2),
	('other', 'b blobstate, c blobstate', '(c)', '%s', 2),
	('domain', 'b picture', '(b)', '%s', 2),
	('array', 'b blobstate[]', '(b)', 'ARRAY[%s::blobstate]', 2),
	('row', 'b pair', '(b)', 'ROW(1, %s)::pair', 2),
	('whole', 'b blobstate', '((kind_whole.*))', '%s', 2),
	('range', 'b span, c blobstate', '(b)', $$'empty', %s$$, 2);
SELECT make('kind_' || name, columns, index) FROM kinds;
-- All in one transaction; REINDEX syncs content that the statement before has left.
SELECT is(cost('REINDEX TABLE kinds', format('INSERT INTO %I SELECT i, %s FROM generate_series(1, 2) i', 'kind_' || name,
			format(value, format('bytes(%L || i)', name)))), syncs,
		format('index %s on (%s): %s syncs for two values', index, columns, syncs))
FROM kinds ORDER BY name;

--
-- Statements
--
SELECT is(cost($$UPDATE keyed SET id = id + 1$$), 0::bigint, 'UPDATE of another column syncs nothing');
SELECT is(cost($$UPDATE keyed SET b = bytes('c' || id) WHERE id IN (3, 4)$$), 2::bigint, 'UPDATE of a key syncs for each row');
SELECT is(cost($$MERGE INTO keyed USING generate_series(4, 4) i ON id = i
	WHEN MATCHED THEN UPDATE SET b = bytes('d')
	WHEN NOT MATCHED THEN INSERT VALUES (i, bytes('d'))$$), 1::bigint, 'MERGE syncs for the row that it changes');
SELECT is(cost($$INSERT INTO keyed VALUES (1, bytes('e')) ON CONFLICT DO NOTHING$$), 1::bigint,
	'INSERT with ON CONFLICT syncs for its row');
SELECT is(cost($$WITH i AS (INSERT INTO plain VALUES (1, bytes('f')) RETURNING b)
	INSERT INTO keyed SELECT 1, b FROM i$$), 1::bigint, 'INSERT of what WITH inserts elsewhere');
SELECT is(cost($$WITH i AS (INSERT INTO keyed SELECT i, bytes('g' || i) FROM generate_series(1, 2) i)
	SELECT 1$$), 2::bigint, 'INSERT in WITH, which nobody reads');
SELECT is(cost($$CREATE TABLE made AS SELECT bytes('h' || i)::blobstate AS b
	FROM generate_series(1, 2) i$$), 0::bigint, 'CREATE TABLE AS syncs nothing before its commit');
SELECT is(cost('CREATE INDEX ON made (b)'), 0::bigint, 'after a commit nothing is left to be synced');

SELECT current_setting('data_directory') || '/index_durability' AS file \gset
COPY (SELECT 1, bytes('i' || i)::blobstate FROM generate_series(1, 3) i) TO :'file';
SELECT is(cost(format('COPY plain FROM %L', :'file')), 0::bigint, 'COPY into a table without an index syncs nothing');
SELECT is(cost(format('COPY keyed FROM %L', :'file')), 3::bigint, 'COPY into a table with an index syncs for each row');

PREPARE early(text) AS INSERT INTO made VALUES (bytes($1));
DROP TABLE made;
CREATE TABLE made (b blobstate);
SELECT is(cost($$EXECUTE early('j')$$), 0::bigint, 'a prepared statement on a table without an index syncs nothing');
CREATE INDEX made_b ON made (b);
SELECT is(cost($$EXECUTE early('k')$$), 1::bigint, 'a prepared statement syncs after an index was made');
DROP INDEX made_b;
SELECT is(cost($$EXECUTE early('l')$$), 0::bigint, 'after it was dropped');

--
-- Partitions and inheritance
--
CREATE TABLE parted (id int, b blobstate) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE part2 PARTITION OF parted FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE part21 PARTITION OF part2 FOR VALUES FROM (10) TO (15);
SELECT is(cost($$INSERT INTO parted VALUES (1, bytes('m'))$$), 0::bigint, 'INSERT into partitions without indexes syncs nothing');
CREATE INDEX part21_b ON part21 (b);
SELECT is(cost($$INSERT INTO parted VALUES (11, bytes('n'))$$), 1::bigint, 'INSERT into a partition with an index syncs');
SELECT is(cost($$INSERT INTO part1 VALUES (1, bytes('o'))$$), 0::bigint,
	'an index of another partition causes no sync');
SELECT is(cost($$UPDATE part1 SET b = bytes('p')$$), 0::bigint, 'UPDATE of a partition without an index syncs nothing');
SELECT is(cost($$UPDATE parted SET id = id + 10, b = bytes('p' || id) WHERE id < 10$$), 2::bigint,
	'UPDATE that may move rows to an index syncs for each');
ALTER TABLE parted DETACH PARTITION part2;
SELECT is(cost($$INSERT INTO parted VALUES (1, bytes('q'))$$), 0::bigint, 'INSERT syncs nothing after the partition with the index was detached');
SELECT is(cost($$INSERT INTO part1 VALUES (2, bytes('r'))$$,
	$$ALTER TABLE parted ATTACH PARTITION part2 FOR VALUES FROM (10) TO (20)$$), 0::bigint,
	'ATTACH that builds no index syncs nothing');
SELECT is(cost($$INSERT INTO parted VALUES (11, bytes('s'))$$), 1::bigint, 'INSERT syncs after the partition with the index was attached');
CREATE TABLE parent (id int, b blobstate);
CREATE TABLE child () INHERITS (parent);
CREATE INDEX ON child (b);
INSERT INTO child VALUES (1);
SELECT is(cost($$UPDATE parent SET b = bytes('t')$$), 1::bigint, 'an index of an inheritance child');


-- A row type that comes to hold values, after its tables were looked at
CREATE TYPE late AS (id int);
CREATE TABLE late_rows (p late);
CREATE INDEX ON late_rows (p);
ALTER TABLE late_rows ALTER p SET STATISTICS 0;
-- CREATE INDEX of PostgreSQL 17 does not find a type by the search_path.
CREATE FUNCTION make_late(int) RETURNS late IMMUTABLE LANGUAGE sql
	RETURN json_populate_record(NULL::late, json_build_object('id', $1));
CREATE TABLE late_made (id int, b blobstate);
CREATE INDEX ON late_made (make_late(id));
DO $$ BEGIN
	INSERT INTO plain VALUES (49, bytes('late'));
	INSERT INTO late_rows VALUES (ROW(1));
	INSERT INTO late_made VALUES (1);
END $$;
ALTER TYPE late ADD ATTRIBUTE b blobstate;
SELECT is(cost($$INSERT INTO late_rows VALUES (ROW(2, bytes('later'))::late)$$), 1::bigint,
	'an index on a row type that was given an attribute');
SELECT is(cost($$INSERT INTO late_made VALUES (2, bytes('later'))$$), 1::bigint,
	'an index on an expression of such a type');

--
-- Deferred content is synced when it meets an index
--
SELECT is(cost($$INSERT INTO plain VALUES (50, bytes('u'))$$,
	$$INSERT INTO keyed SELECT * FROM plain WHERE id = 50$$), 1::bigint, 'INSERT ... SELECT of deferred content into an index syncs');
SELECT is(cost($$INSERT INTO plain VALUES (50, bytes('v'))$$,
	$$INSERT INTO keyed SELECT * FROM plain WHERE id = 50$$,
	$$INSERT INTO keyed SELECT * FROM plain WHERE id = 50$$), 0::bigint, 'content that was synced for an index is not synced for it again');
SELECT make('plain_array', 'b blobstate[]');
SELECT is(cost($$INSERT INTO plain_array VALUES (1, ARRAY[bytes('v1')::blobstate])$$,
	'INSERT INTO kind_array TABLE plain_array'), 1::bigint, 'INSERT of a deferred array into an index syncs');
SELECT is(cost($$INSERT INTO plain VALUES (50, bytes('v2'))$$,
	format('COPY keyed FROM %L', :'file')), 4::bigint, 'COPY: one sync before the first row');
SELECT is(cost('CREATE TABLE one AS SELECT 1 AS id, bytes($$w$$)::blobstate AS b',
	'CREATE UNIQUE INDEX one_b ON one (b)'), 1::bigint, 'CREATE INDEX over one row');
SELECT is(cost($$INSERT INTO plain VALUES (51, bytes('x'))$$, 'REINDEX TABLE one'), 1::bigint,
	'REINDEX with deferred content in the transaction syncs once');
SELECT is(cost('CREATE TABLE two AS SELECT ARRAY[bytes($$y$$)::blobstate] AS b',
	'ALTER TABLE two ADD UNIQUE (b)'), 1::bigint, 'ALTER TABLE ADD UNIQUE, of an array');
CREATE TABLE indexed (id int, b blobstate[]) PARTITION BY RANGE (id);
CREATE INDEX ON indexed (b);
SELECT is(cost('CREATE TABLE three AS SELECT 1 AS id, ARRAY[bytes($$z$$)::blobstate] AS b',
	'ALTER TABLE indexed ATTACH PARTITION three FOR VALUES FROM (0) TO (10)'), 1::bigint,
	'ATTACH PARTITION that builds an index, of an array');
SELECT is(cost($$INSERT INTO plain VALUES (52, bytes('aa'))$$, 'TABLE plain ORDER BY b'), 1::bigint,
	'a sort by content');
SELECT is(cost($$INSERT INTO plain VALUES (53, bytes('bb')), (53, bytes('bc'))$$,
	'SELECT (SELECT min(b) FROM plain WHERE id = 53) < (SELECT max(b) FROM plain WHERE id = 53)'),
	0::bigint, 'comparing what differs in the first bytes');
SELECT is(cost($$INSERT INTO plain VALUES (54, bytes('same') || '\x00'), (54, bytes('same') || '\x01')$$,
	'SELECT min(b) FROM plain WHERE id = 54'), 1::bigint, 'a comparison that reads deferred content syncs once');

--
-- Rows that a statement stores and then indexes itself: one sync, after the last row
--
CREATE TABLE old (id int, b bytea);
INSERT INTO old SELECT i, bytes('cc' || i, 2000) FROM generate_series(1, 5) i;
CREATE INDEX ON old (b);
SELECT is(cost('ALTER TABLE old ALTER b TYPE blobstate'), 1::bigint, 'ALTER COLUMN TYPE of an indexed column syncs once');
SELECT is(cost('ALTER TABLE old ADD c blobstate UNIQUE DEFAULT bytes(random()::text)'), 1::bigint,
	'ADD COLUMN with a default and an index');
SELECT is(cost('ALTER TABLE old ADD d blobstate[] UNIQUE DEFAULT
		ARRAY[bytes(random()::text)::blobstate]'), 1::bigint, 'the same with an array');
CREATE MATERIALIZED VIEW view AS
	SELECT i AS id, bytes('dd' || random())::blobstate AS b, ARRAY[bytes('ee' || random())::blobstate] AS a
	FROM generate_series(1, 3) i;
SELECT is(cost('REFRESH MATERIALIZED VIEW view'), 1::bigint, 'REFRESH, no index: the tables change');
CREATE UNIQUE INDEX ON view (id);
CREATE INDEX ON view (a);
SELECT is(cost('REFRESH MATERIALIZED VIEW view'), 1::bigint, 'REFRESH of a view with an index syncs once');
SELECT cmp_ok(cost('REFRESH MATERIALIZED VIEW CONCURRENTLY view'), '<=', 3::bigint,
	'REFRESH CONCURRENTLY syncs three times at most');

--
-- Triggers, functions, variables
--
CREATE TABLE fired (id int, b blobstate);
CREATE INDEX ON fired (b);
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	v blobstate;
	c plain.b%TYPE;
	r record;
BEGIN
	CASE TG_ARGV[0]
		WHEN 'assign' THEN
			NEW.b := bytes('ff' || NEW.id);
		WHEN 'row' THEN
			-- Deferred by the inner statement, and not stored again by the outer.
			INSERT INTO plain VALUES (60, bytes('gg' || NEW.id)) RETURNING b INTO v;
			NEW := ROW(NEW.id, v);
		WHEN 'record' THEN
			INSERT INTO plain VALUES (60, bytes('hh' || NEW.id)) RETURNING * INTO r;
			r.id := NEW.id;
			RETURN r;
		WHEN 'read' THEN
			SELECT * INTO r FROM plain WHERE id = 62;
			RETURN r;
		WHEN 'error' THEN
			BEGIN
				INSERT INTO plain VALUES (60, bytes('ii' || NEW.id)) RETURNING b INTO v;
				RAISE 'away with it';
			EXCEPTION WHEN raise_exception THEN NULL;
			END;
			NEW := ROW(NEW.id, v);
		WHEN 'type' THEN
			c := bytes('jj' || NEW.id);
			NEW := ROW(NEW.id, c);
	END CASE;
	RETURN NEW;
END $$;
CREATE FUNCTION fire_with(argument text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE OR REPLACE TRIGGER t BEFORE INSERT ON fired
		FOR EACH ROW EXECUTE FUNCTION fire(%L)', argument);
END $$;
SELECT fire_with('assign');
SELECT is(cost('INSERT INTO fired VALUES (1), (2)'), 2::bigint, 'trigger: an assignment to NEW.b syncs for each row');
SELECT is(cost(format('COPY fired (id) FROM PROGRAM %L', 'echo 3; echo 4')), 2::bigint,
	'trigger: an assignment to NEW.b syncs for each row of COPY');
SELECT fire_with('row');
SELECT is(cost('INSERT INTO fired VALUES (1), (2)'), 2::bigint,
	'trigger: NEW := ROW(...) with a value that another table got');
SELECT is(cost(format('COPY fired (id) FROM PROGRAM %L', 'echo 3; echo 4')), 2::bigint,
	'trigger: NEW := ROW(...) syncs for each row of COPY');
SELECT fire_with('record');
SELECT is(cost('INSERT INTO fired VALUES (5), (6)'), 2::bigint, 'trigger: the row of another table');
SELECT fire_with('read');
SELECT is(cost($$INSERT INTO plain VALUES (62, bytes('h1'))$$, 'INSERT INTO fired VALUES (1)'),
	1::bigint, 'trigger: a row that was there before');
DELETE FROM plain WHERE id = 62;
SELECT is(cost($$INSERT INTO plain VALUES (62, bytes('h2'))$$,
	format('COPY fired (id) FROM PROGRAM %L', 'echo 3; echo 4')), 1::bigint, 'trigger: a row that was there before syncs once in COPY');
CREATE TABLE copied (id int, b blobstate);
CREATE FUNCTION copy_within() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY keyed FROM %L', TG_ARGV[0]);
	RETURN NEW;
END $$;
SELECT format('CREATE TRIGGER t BEFORE INSERT ON copied FOR EACH ROW EXECUTE FUNCTION copy_within(%L)',
	:'file') \gexec
SELECT is(cost(format('COPY copied FROM PROGRAM %L', 'head -1 ' || :'file')), 4::bigint,
	'COPY within COPY into a table without an index');
SELECT fire_with('error');
SELECT is(cost('INSERT INTO fired VALUES (7), (8)'), 2::bigint,
	'trigger: a value over a ROLLBACK TO SAVEPOINT');
SELECT fire_with('type');
SELECT is(cost('INSERT INTO fired VALUES (9), (10)'), 2::bigint,
	'trigger: a variable of the column''s type');
SELECT is(cost($$INSERT INTO plain VALUES (11, bytes('kk'))$$), 0::bigint,
	'back outside everything is as before');

CREATE FUNCTION carried() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	v plain.b%TYPE := bytes('ll');
	before bigint;
BEGIN
	BEGIN
		INSERT INTO plain VALUES (61, bytes('mm')) RETURNING b INTO v;
		RAISE 'away with it';
	EXCEPTION WHEN raise_exception THEN NULL;
	END;
	before := syncs();
	INSERT INTO keyed VALUES (61, v);
	RETURN syncs() - before;
END $$;
SELECT is(carried(), 1::bigint, 'a variable with the value of a rolled back statement');

CREATE TABLE generated (src bytea, b blobstate GENERATED ALWAYS AS (src::blobstate) STORED);
SELECT is(cost($$INSERT INTO generated VALUES (bytes('nn'))$$), 0::bigint, 'a generated column without an index syncs nothing');
CREATE INDEX ON generated (b);
SELECT is(cost($$INSERT INTO generated VALUES (bytes('oo')), (bytes('pp'))$$), 2::bigint,
	'a generated column with an index syncs for each row');

SELECT is((SELECT count(*) FROM keyed WHERE sha256(b::bytea) <> sha256(b)), 0::bigint,
	'all values that were stored are whole');

SELECT * FROM finish();
SET client_min_messages = warning;
DROP SCHEMA index_durability CASCADE;
