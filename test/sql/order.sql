--
-- Order, equality and indexes by content, wherever PostgreSQL sorts, compares and hashes.  The
-- bytes that a comparison reads, and nasty cases, are the matter of pgtap/order.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS blobext;
RESET client_min_messages;
CREATE SCHEMA ordered;
SET search_path = ordered, public;
SET blobext.inline_limit = 100;

-- Contents that agree in their first 5000 bytes, some of them twice; and short ones.
CREATE FUNCTION long(text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
	AS $$ SELECT convert_to(repeat('x', 5000) || $1, 'UTF8') $$;
CREATE TABLE v (id int PRIMARY KEY, b blobstate, o bytea);
INSERT INTO v SELECT id, o, o FROM (VALUES (1, long('b')), (2, long('a')), (3, long('c')),
	(4, long('a')), (5, long('')), (6, 'short'), (7, ''), (8, long('bb')), (9, '\x00'),
	(10, '\x0000'), (11, NULL), (12, 'short'), (13, '\xff')) s (id, o);
SELECT blob_storage(b), count(*) FROM v GROUP BY 1 ORDER BY 1;

-- A short form of a value, to be shown.
CREATE FUNCTION show(b blobstate) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
	AS $$ SELECT length(b) || ' ' || encode(substr(b, greatest(length(b) - 4, 1)), 'escape') $$;

-- A plan, without the lines that only some releases of PostgreSQL have.
CREATE FUNCTION plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line !~ '^ *(Disabled: true|Replaces: MinMaxAggregate)$' THEN
			RETURN NEXT regexp_replace(line, 'InitPlan (minmax_)?1( \(returns .*\))?$', 'InitPlan 1');
		END IF;
	END LOOP;
END$$;

--
-- Sorting
--
SELECT id, show(b) FROM v ORDER BY b, id;
SELECT id FROM v ORDER BY b DESC NULLS LAST, id LIMIT 4;
SELECT id FROM v ORDER BY b USING >, id LIMIT 3;
SELECT array_agg(id ORDER BY b, id) = array_agg(id ORDER BY o, id) AS same_as_bytea FROM v;
SELECT id, rank() OVER w, dense_rank() OVER w, show(lag(b) OVER w) AS lag, count(*) OVER w AS peers
	FROM v WHERE b IS NOT NULL WINDOW w AS (ORDER BY b) ORDER BY b, id;
SELECT id, count(*) OVER (ORDER BY b GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)
	FROM v WHERE id < 9 ORDER BY b, id;
SELECT show(min(b)), show(max(b)) FROM v;
SELECT length(b) > 100 AS large, show(min(b)), show(max(b)) FROM v GROUP BY 1 ORDER BY 1;
SELECT show(greatest(a.b, b.b)), show(least(a.b, b.b)) FROM v a, v b WHERE a.id = 1 AND b.id = 8;
SELECT show(percentile_disc(0.5) WITHIN GROUP (ORDER BY b)) FROM v;

--
-- Duplicates, groups, sets; by sorting and by hashing
--
SET enable_hashagg = off;
SELECT show(b), count(*) FROM v GROUP BY b ORDER BY b;
SELECT count(*) FROM (SELECT DISTINCT b FROM v) s;
SELECT count(*) FROM (SELECT b FROM v INTERSECT SELECT b FROM v WHERE id > 3) s;
RESET enable_hashagg;
SET enable_sort = off;
SELECT count(*), sum(n) FROM (SELECT count(*) AS n FROM v GROUP BY b) s;
EXPLAIN (COSTS OFF) SELECT b FROM v GROUP BY b;
SELECT count(*) FROM (SELECT DISTINCT b FROM v) s;
SELECT count(*) FROM (SELECT b FROM v EXCEPT SELECT b FROM v WHERE id > 3) s;
SELECT count(*) FROM (SELECT b FROM v UNION SELECT b FROM v) s;
RESET enable_sort;
SELECT count(DISTINCT b) FROM v;
SELECT DISTINCT ON (b) id FROM v ORDER BY b, id;

--
-- Operators: with literals, parameters, bytea on either side
--
SELECT array_agg(id ORDER BY id) FROM v WHERE b = 'short';
SELECT array_agg(id ORDER BY id) FROM v WHERE b = 'short'::bytea;
SELECT array_agg(id ORDER BY id) FROM v WHERE 'short'::bytea = b;
SELECT array_agg(id ORDER BY id) FROM v WHERE b = long('a');
SELECT array_agg(id ORDER BY id) FROM v WHERE b = o;
SELECT array_agg(id ORDER BY id) FROM v WHERE b <> 'short' AND o <> b;
SELECT array_agg(id ORDER BY id) FROM v WHERE b IN ('short', '\x00', '');
SELECT array_agg(id ORDER BY id) FROM v WHERE b NOT IN ('short', '\x00', '');
SELECT array_agg(id ORDER BY id) FROM v WHERE b = ANY (ARRAY[long('a'), long('c')]);
SELECT array_agg(id ORDER BY id) FROM v WHERE b IN (SELECT b FROM v WHERE id < 4);
SELECT array_agg(id ORDER BY id) FROM v WHERE b BETWEEN long('') AND long('b');
SELECT array_agg(id ORDER BY id) FROM v WHERE b IS NOT DISTINCT FROM (SELECT b FROM v WHERE id = 1);
SELECT count(*) FROM v a, v b WHERE (a.b < b.b) IS DISTINCT FROM (a.o < b.o)
	OR (a.b <= b.o) IS DISTINCT FROM (a.o <= b.o) OR (a.o > b.b) IS DISTINCT FROM (a.o > b.o)
	OR (a.b >= b.b) IS DISTINCT FROM (a.o >= b.o) OR (a.b <> b.b) IS DISTINCT FROM (a.o <> b.o)
	OR (a.b < b.o) IS DISTINCT FROM (a.o < b.o) OR (a.o < b.b) IS DISTINCT FROM (a.o < b.o)
	OR (a.b > b.o) IS DISTINCT FROM (a.o > b.o) OR (a.b >= b.o) IS DISTINCT FROM (a.o >= b.o)
	OR (a.o <= b.b) IS DISTINCT FROM (a.o <= b.o) OR (a.o >= b.b) IS DISTINCT FROM (a.o >= b.o)
	OR (a.o <> b.b) IS DISTINCT FROM (a.o <> b.o) OR (a.b <> b.o) IS DISTINCT FROM (a.o <> b.o)
	OR (a.b = b.b) IS DISTINCT FROM (a.o = b.o) OR (a.b = b.o) IS DISTINCT FROM (a.o = b.o)
	OR (a.b > b.b) IS DISTINCT FROM (a.o > b.o) OR (a.b <= b.b) IS DISTINCT FROM (a.o <= b.o)
	OR (a.o = b.b) IS DISTINCT FROM (a.o = b.o);
SELECT ARRAY['b', 'a']::blobstate[] < ARRAY['b', 'c']::blobstate[] AS arrays,
	ROW('a'::blobstate, 2) > ROW('a'::blobstate, 1) AS rows;
CREATE DOMAIN document AS blobstate;
SELECT 'a'::document < 'b'::document AS less, 'a'::document = '\x61' AS equal,
	'a'::document = '\x61'::bytea AS equal_to_bytea;

--
-- Joins
--
SET enable_nestloop = off;
SET enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT * FROM v x JOIN v y ON x.b = y.b;
SELECT count(*) FROM v x JOIN v y ON x.b = y.b;
EXPLAIN (COSTS OFF) SELECT * FROM v x JOIN v y ON x.b = y.o;
SELECT count(*) FROM v x JOIN v y ON x.b = y.o;
SELECT count(*) FROM v x JOIN v y ON x.o = y.b;
RESET enable_mergejoin;
SET enable_hashjoin = off;
EXPLAIN (COSTS OFF) SELECT * FROM v x JOIN v y ON x.b = y.b;
SELECT count(*) FROM v x JOIN v y ON x.b = y.b;
RESET enable_nestloop;
-- No merge join of blobstate and bytea.
SELECT count(*) FROM v x JOIN v y ON x.b = y.o;
RESET enable_hashjoin;
SET enable_nestloop = off;
SELECT count(*) FROM v x FULL JOIN v y ON x.b = y.b;
RESET enable_nestloop;

--
-- Indexes
--
CREATE TABLE indexed AS SELECT id, b, o FROM v;
INSERT INTO indexed SELECT 100 + i, long(i::text), long(i::text) FROM generate_series(1, 500) i;
CREATE INDEX indexed_b ON indexed (b);
ANALYZE indexed (id);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b = '\x1234';
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b = '\x1234'::bytea;
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE '\x1234'::bytea = b;
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b = '\x07'::bytea || '\x08';
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b > '\x12' AND b <= '\x34'::bytea ORDER BY b;
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b IN ('\x12', '\x34');
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b = ANY (ARRAY['\x12', '\x34']::bytea[]);
SELECT plan('SELECT min(b) FROM indexed');
EXPLAIN (COSTS OFF) SELECT x.id FROM v x JOIN indexed i ON i.b = x.b WHERE x.id = 1;
EXPLAIN (COSTS OFF) SELECT x.id FROM v x JOIN indexed i ON i.b = x.o WHERE x.id = 1;
PREPARE by_bytea(bytea) AS SELECT id FROM indexed WHERE b = $1;
PREPARE by_blobstate(blobstate) AS SELECT id FROM indexed WHERE b = $1;
PREPARE by_whatever AS SELECT id FROM indexed WHERE b = $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE by_bytea('\x12');
EXECUTE by_bytea(long('77'));
EXECUTE by_blobstate(long('77'));
EXECUTE by_whatever(long('77'));
RESET plan_cache_mode;
SELECT array_agg(id ORDER BY id) FROM indexed WHERE b = 'short';
SELECT array_agg(id ORDER BY b, id) = array_agg(id ORDER BY o, id) AS same_as_bytea FROM indexed;
SELECT show(min(b)), show(max(b)) FROM indexed;
-- Index-only: the key is the whole value.
VACUUM indexed;
SET enable_indexscan = off;
SELECT plan($$SELECT b FROM indexed WHERE b > 'x' ORDER BY b LIMIT 3$$);
RESET enable_indexscan;
SELECT show(b) FROM indexed WHERE b > long('') ORDER BY b LIMIT 3;
REINDEX INDEX indexed_b;
DROP INDEX indexed_b;
CREATE INDEX CONCURRENTLY indexed_b ON indexed (b DESC);
SELECT id FROM indexed ORDER BY b DESC NULLS FIRST, id LIMIT 3;
REINDEX INDEX CONCURRENTLY indexed_b;
DROP INDEX indexed_b;

-- By hash, by digest.
CREATE INDEX indexed_hash ON indexed USING hash (b);
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b = '\x1234'::bytea;
SELECT array_agg(id ORDER BY id) FROM indexed WHERE b = long('77');
SELECT array_agg(id ORDER BY id) FROM indexed WHERE b = long('77')::blobstate;
SELECT array_agg(id ORDER BY id) FROM indexed WHERE b = 'short';
DROP INDEX indexed_hash;
CREATE INDEX indexed_digest ON indexed (b blobstate_digest_ops);
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b = '\x1234'::bytea;
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b = '\x1234';
SELECT array_agg(id ORDER BY id) FROM indexed WHERE b = long('77');
SELECT array_agg(id ORDER BY id) FROM indexed WHERE b = 'short';
-- It is of no use for an order.
SELECT plan($$SELECT id FROM indexed WHERE b < '\x1234' ORDER BY b$$);
EXPLAIN (COSTS OFF) SELECT id FROM indexed WHERE b *< '\x1234' ORDER BY b USING *<;
SELECT count(*) FROM indexed x, indexed y WHERE x.id < 120 AND y.id < 120 AND (x.b *< y.b) <>
	((sha256(x.b), length(x.b)) < (sha256(y.b), length(y.b)));
SELECT count(*) FROM indexed x, indexed y WHERE x.id < 120 AND y.id < 120
	AND ((x.b *<= y.b) <> NOT (x.b *> y.b) OR (x.b *>= y.b) <> NOT (x.b *< y.b));
DROP INDEX indexed_digest;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- In parallel.
CREATE TABLE many AS SELECT i AS id, long((i % 100)::text)::blobstate AS b
	FROM generate_series(1, 1000) i;
ALTER TABLE many SET (parallel_workers = 2);
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET log_temp_files = -1;
SET client_min_messages = debug1;
CREATE INDEX many_b ON many (b);
RESET client_min_messages;
EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE b > 'x' AND b <> '\x07';
SELECT count(*) FROM many WHERE b > long('50') AND b <> long('7');
SELECT plan('SELECT show(min(b)) FROM many WHERE id > 5');
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT show(min(b)), show(max(b)) FROM many WHERE id > 5;
SELECT count(*), count(DISTINCT b) FROM many;
RESET enable_indexscan;
RESET enable_indexonlyscan;
RESET min_parallel_table_scan_size;
RESET min_parallel_index_scan_size;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;

--
-- Constraints
--
CREATE TABLE keyed (b blobstate PRIMARY KEY, n int DEFAULT 1);
INSERT INTO keyed SELECT DISTINCT b FROM v WHERE b IS NOT NULL;
INSERT INTO keyed VALUES ('short');
INSERT INTO keyed VALUES (long('a')) ON CONFLICT DO NOTHING;
INSERT INTO keyed VALUES (long('a')) ON CONFLICT (b) DO UPDATE SET n = keyed.n + 1;
INSERT INTO keyed VALUES (long('a')) ON CONFLICT (b) DO UPDATE SET n = keyed.n + 1
	RETURNING n, show(b);
UPDATE keyed SET b = 'short' WHERE b = '';
MERGE INTO keyed USING v ON keyed.b = v.b AND v.id = 1 WHEN MATCHED THEN UPDATE SET n = 10;
SELECT show(b), n FROM keyed WHERE n > 1 ORDER BY b;

CREATE TABLE by_digest (b blobstate);
CREATE UNIQUE INDEX ON by_digest (b blobstate_digest_ops);
INSERT INTO by_digest SELECT DISTINCT b FROM v;
INSERT INTO by_digest VALUES ('short');
INSERT INTO by_digest VALUES (long('a')) ON CONFLICT DO NOTHING;
INSERT INTO by_digest VALUES (long('a')) ON CONFLICT (b) DO NOTHING;
SELECT count(*) FROM by_digest;

CREATE TABLE excluded_by_hash (b blobstate, EXCLUDE USING hash (b WITH =));
INSERT INTO excluded_by_hash VALUES (long('1')), (long('2')), ('1');
INSERT INTO excluded_by_hash VALUES ('1');
INSERT INTO excluded_by_hash VALUES (long('2')) ON CONFLICT DO NOTHING;
CREATE TABLE excluded_by_btree (b blobstate, EXCLUDE USING btree (b WITH =));
INSERT INTO excluded_by_btree VALUES (long('1')), (long('2')), ('1');
INSERT INTO excluded_by_btree VALUES ('1');
INSERT INTO excluded_by_btree VALUES (long('2')) ON CONFLICT DO NOTHING;

CREATE TABLE referring (b blobstate REFERENCES keyed (b) ON UPDATE CASCADE);
INSERT INTO referring SELECT b FROM keyed;
INSERT INTO referring VALUES ('missing');
DELETE FROM keyed WHERE b = '\x00';
UPDATE keyed SET b = long('z') WHERE b = long('a');
SELECT count(*) FROM referring WHERE b = long('z');
-- From bytea, but not to it: bytea is cast to blobstate implicitly, the other way on assignment only.
CREATE TABLE referring_bytea (o bytea REFERENCES keyed (b) ON UPDATE CASCADE);
INSERT INTO referring_bytea SELECT b FROM referring;
INSERT INTO referring_bytea VALUES ('missing');
\set VERBOSITY terse
UPDATE keyed SET b = long('y') WHERE b = long('z');
SELECT count(*) FROM referring_bytea WHERE o = long('y');
UPDATE referring_bytea SET o = long('z') WHERE o = long('y');
ALTER TABLE referring_bytea DROP CONSTRAINT referring_bytea_o_fkey;
ALTER TABLE referring_bytea ADD FOREIGN KEY (o) REFERENCES keyed;
UPDATE referring_bytea SET o = long('z') WHERE o = long('y');
DROP TABLE referring_bytea;
UPDATE keyed SET b = long('z') WHERE b = long('y');
CREATE TABLE keyed_bytea (o bytea PRIMARY KEY);
CREATE TABLE referring_to_bytea (b blobstate REFERENCES keyed_bytea);
\set VERBOSITY default

-- A key that is larger than a message should be is shown by size and digest.
CREATE FUNCTION report(statement text) RETURNS TABLE (state text, detail text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL;
	RETURN NEXT;
END $$;
CREATE TABLE reported (id int NOT NULL, b blobstate UNIQUE CHECK (b <> long('no')));
INSERT INTO reported VALUES (1, long('1')), (2, convert_to(repeat('x', 3000), 'UTF8'));
SELECT * FROM report($$INSERT INTO reported VALUES (1, long('1'))$$);
SELECT state, length(detail) FROM report($$INSERT INTO reported
	VALUES (1, convert_to(repeat('x', 3000), 'UTF8'))$$);
SELECT * FROM report($$INSERT INTO reported VALUES (NULL, long('2'))$$);
SELECT * FROM report($$INSERT INTO reported VALUES (1, long('no'))$$);
SELECT * FROM report($$INSERT INTO excluded_by_btree VALUES (long('2'))$$);
CREATE TABLE repeated AS SELECT b FROM reported, generate_series(1, 2) WHERE id = 1;
SELECT * FROM report('CREATE UNIQUE INDEX ON repeated (b)');
SELECT * FROM report('ALTER TABLE repeated ADD FOREIGN KEY (b) REFERENCES keyed');
CREATE TABLE ranged (b blobstate) PARTITION BY RANGE (b);
CREATE TABLE ranged_1 PARTITION OF ranged FOR VALUES FROM (MINVALUE) TO ('b');
SELECT * FROM report($$INSERT INTO ranged VALUES (long('2'))$$);
SELECT * FROM report($$INSERT INTO ranged_1 VALUES (long('2'))$$);
CREATE VIEW checked AS SELECT * FROM reported WHERE length(b) < 10 WITH CHECK OPTION;
SELECT * FROM report($$INSERT INTO checked VALUES (3, long('2'))$$);
-- The text of a value is never shortened elsewhere, also where it looks like a message about a key.
SELECT length(b::text), length(to_json(b)::text), length(format('%s', b)), length(ROW(b)::text)
	FROM reported WHERE id = 1;
CREATE TABLE texts (t text CHECK (length(t) = 10004));
INSERT INTO texts SELECT b FROM reported WHERE id = 1;
CREATE FUNCTION by_spi(b blobstate) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN b; END';
ALTER TABLE reported ADD CHECK (length(by_spi(b)) = 2 + 2 * length(b)),
	ADD CHECK (length(to_json(b)::text) = 5 + 2 * length(b));
INSERT INTO reported VALUES (7, long('7'));

--
-- Partitions
--
CREATE TABLE hashed (b blobstate) PARTITION BY HASH (b);
CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE hashed_2 PARTITION OF hashed FOR VALUES WITH (MODULUS 3, REMAINDER 2);
INSERT INTO hashed SELECT b FROM many WHERE id <= 100;
SELECT count(*) > 20 AS used FROM hashed GROUP BY tableoid;
-- Where a value goes depends neither on its form nor on the literal's type.
SELECT show(b) FROM hashed WHERE b = long('7');
EXPLAIN (COSTS OFF) SELECT * FROM hashed WHERE b = 'short';
INSERT INTO hashed VALUES ('short');
SELECT show(b) FROM hashed WHERE b = 'short';
SET blobext.inline_limit = 10000;
INSERT INTO hashed VALUES (long('7')), (long('8'));
SET blobext.inline_limit = 100;
SELECT show(b), count(DISTINCT tableoid), count(*), count(DISTINCT blob_storage(b)) AS forms
	FROM hashed WHERE b IN (long('7')::blobstate, long('8')::blobstate) GROUP BY b ORDER BY b;

CREATE TABLE ranged_2 PARTITION OF ranged FOR VALUES FROM ('b') TO ('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx');
CREATE TABLE ranged_3 PARTITION OF ranged FOR VALUES
	FROM ('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx') TO (MAXVALUE);
INSERT INTO ranged SELECT b FROM v WHERE b IS NOT NULL;
SELECT tableoid::regclass, count(*) FROM ranged GROUP BY 1 ORDER BY 1;
EXPLAIN (COSTS OFF) SELECT * FROM ranged WHERE b > '\x7a';
EXPLAIN (COSTS OFF) SELECT * FROM ranged WHERE b = 'short'::bytea;
CREATE TABLE listed (b blobstate) PARTITION BY LIST (b);
CREATE TABLE listed_1 PARTITION OF listed FOR VALUES IN ('one', 'two');
CREATE TABLE listed_2 PARTITION OF listed DEFAULT;
INSERT INTO listed VALUES ('one'), ('two'), ('three'), (long('a'));
SELECT tableoid::regclass, count(*) FROM listed GROUP BY 1 ORDER BY 1;
EXPLAIN (COSTS OFF) SELECT * FROM listed WHERE b = 'two';

--
-- The server's complaints about the operator classes: only members left out on purpose are missing
--
SELECT amvalidate(oid), opcname FROM pg_opclass WHERE opcintype = 'blobstate'::regtype
	ORDER BY opcname, opcmethod;
SELECT oprname, oprleft::regtype, oprright::regtype FROM pg_operator
	WHERE 'blobstate'::regtype IN (oprleft, oprright) AND oprname NOT LIKE '%||%' AND oprname NOT LIKE '%~~'
		AND (oprcom = 0 OR oprnegate = 0 OR oprrest = 0 OR oprjoin = 0) ORDER BY 1, 2, 3;
SELECT oprname, oprleft::regtype, oprright::regtype, oprcanmerge, oprcanhash FROM pg_operator
	WHERE 'blobstate'::regtype IN (oprleft, oprright) AND (oprcanmerge OR oprcanhash)
	ORDER BY 1, 2, 3;

SET client_min_messages = warning;
DROP SCHEMA ordered CASCADE;
