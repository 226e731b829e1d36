-- The operators of SQL's syntax are found with any search_path, those that are named with the extension's schema
-- do the same, and plans are the same with both.
--
-- Seen to fail: with the operators in the extension's schema alone (an empty search_path finds none); without the support
-- function (ON CONFLICT, pruning, constraint exclusion); without replacing in the query (IN, rows, ORDER BY USING), in
-- indexes (an IN list in a predicate) and in inlined conditions; without the part in exclusion constraints, of
-- ALTER TABLE and of CREATE TABLE alike.
BEGIN;
CREATE SCHEMA named;
SET search_path = named, public;
SELECT plan(28);

-- Each operator has a twin that differs in nothing but its schema and what the planner knows of it.
CREATE TEMP VIEW member AS
	SELECT o.* FROM pg_operator AS o JOIN pg_depend AS d ON d.classid = 'pg_operator'::regclass AND d.objid = o.oid
	WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'blobext');
CREATE TEMP VIEW twin AS
	SELECT m AS main, n AS other FROM member AS m JOIN member AS n
		ON m.oprname = n.oprname AND m.oprleft = n.oprleft AND m.oprright = n.oprright
	WHERE m.oprnamespace = 'pg_catalog'::regnamespace AND n.oprnamespace = 'public'::regnamespace;
SELECT is((SELECT count(*) FROM twin), 23::bigint, 'operators are in pg_catalog, with a twin in the extension''s schema');
SELECT bag_eq($$SELECT oprname, count(*) FROM member WHERE oid NOT IN (SELECT (main).oid FROM twin UNION SELECT (other).oid FROM twin)
	GROUP BY oprname$$, $$VALUES ('*<'::name, 1::bigint), ('*<=', 1), ('*>', 1), ('*>=', 1)$$,
	'only operators of digests have no twin');
SELECT is_empty($$SELECT (main).oid::regoperator FROM twin WHERE (main).oprcode <> (other).oprcode
		OR (main).oprrest <> (other).oprrest OR (main).oprjoin <> (other).oprjoin OR (main).oprowner <> (other).oprowner$$,
	'twins have the same functions');
SELECT is_empty($$SELECT (t.main).oid::regoperator FROM twin AS t
		LEFT JOIN twin AS c ON (t.main).oprcom = (c.main).oid LEFT JOIN twin AS n ON (t.main).oprnegate = (n.main).oid
		WHERE ((t.main).oprcom, (t.main).oprnegate, (t.other).oprcom, (t.other).oprnegate) IS DISTINCT FROM
			(coalesce((c.main).oid, 0), coalesce((n.main).oid, 0), coalesce((c.other).oid, 0), coalesce((n.other).oid, 0))$$,
	'commutators and negators are in the schema of their operator');
SELECT is_empty($$SELECT (other).oid::regoperator FROM twin WHERE (other).oprcanmerge OR (other).oprcanhash$$,
	'twins are not for joins');
SELECT bag_eq($$SELECT DISTINCT opfname FROM pg_amop JOIN pg_opfamily AS f ON f.oid = amopfamily
		WHERE amopopr IN (SELECT (other).oid FROM twin)$$, ARRAY['blobstate_named_ops'::name],
	'no index and no join has the family of twins');

-- An empty search_path, as in pg_dump, postgres_fdw, and workers of logical replication.
CREATE TABLE named.v (id int PRIMARY KEY, b blobstate, c blobstate, d bytea);
INSERT INTO named.v SELECT i, decode(md5((i % 500)::text), 'hex'), decode(md5(i::text), 'hex'), decode(md5((i % 500)::text), 'hex')
	FROM generate_series(1, 2000) AS i;
CREATE TEMP TABLE answer (expression text, answer text);
INSERT INTO answer (expression) VALUES ('nullif(b, c) IS NULL'), ('b IS DISTINCT FROM c'), ('d IS NOT DISTINCT FROM b'),
	('CASE b WHEN c THEN true END'), ('CASE d WHEN c THEN true END'), ('(id, b) < (id, c)'), ('(b, c) >= (c, b)'),
	('(b, d) = (c, b)'), ($$b IN ('\x01', c)$$), ($$b NOT IN ('\x01', c)$$), ('b BETWEEN c AND d'), ('b BETWEEN SYMMETRIC c AND d'),
	('b <> ALL (ARRAY[c])'), ('b > ANY (SELECT w.c FROM named.v AS w WHERE w.id < 5)'), ('(id, b) IN (SELECT w.id, w.c FROM named.v AS w)'),
	($$b LIKE '%\005'$$), ($$b NOT LIKE '%\005'$$), ($$b || d <> d || b$$),
	('EXISTS (SELECT FROM named.v AS w JOIN named.v AS x USING (b) WHERE w.id = v.id AND x.id <> v.id)'),
	('EXISTS (SELECT FROM (SELECT b FROM named.v AS w WHERE w.id > v.id) AS w NATURAL JOIN (VALUES (v.b)) AS x (b))'),
	('nullif(d, b) IS NULL'), ('GREATEST(b, c) = b');
CREATE FUNCTION pg_temp.answer(expression text, path text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM set_config('search_path', path, true);
	EXECUTE format('SELECT pg_catalog.md5(pg_catalog.array_agg(%s ORDER BY id)::text) FROM named.v', expression) INTO result;
	PERFORM set_config('search_path', 'named, public', true);
	RETURN result;
END $$;
-- What bytea answers.
CREATE TABLE named.plain AS SELECT id, b::bytea AS b, c::bytea AS c, d FROM named.v;
CREATE FUNCTION pg_temp.plain_answer(expression text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT md5(array_agg(%s ORDER BY id)::text) FROM named.plain AS v', replace(expression, 'named.v', 'named.plain'))
		INTO result;
	RETURN result;
END $$;
UPDATE answer SET answer = pg_temp.plain_answer(expression);
SELECT cmp_ok((SELECT count(DISTINCT answer) FROM answer), '>', 10::bigint, 'the expressions have more than ten different answers');
SELECT bag_eq($$SELECT expression, pg_temp.answer(expression, '') FROM answer$$, 'SELECT * FROM answer',
	'with an empty search_path SQL finds the operators, and they answer as those of bytea');
SELECT bag_eq($$SELECT expression, pg_temp.answer(expression, 'public, pg_catalog') FROM answer$$, 'SELECT * FROM answer',
	'likewise with the extension''s schema before pg_catalog');

-- Plans.  A statement is written with $=, $< for operators by their names.
CREATE FUNCTION pg_temp.plan(query text, operator_format text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' ||
		regexp_replace(query, '\$(<=|>=|<>|<|>|=)', operator_format, 'g');
END $$;
CREATE INDEX v_b ON named.v (b);
CREATE INDEX v_hash ON named.v USING hash (c);
CREATE INDEX v_pair ON named.v (c, b);
ANALYZE named.v;
CREATE FUNCTION pg_temp.same_plans(query text, part text, description text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	main text := (SELECT string_agg(line, E'\n') FROM pg_temp.plan(query, '\1') AS line);
	other text := (SELECT string_agg(line, E'\n') FROM pg_temp.plan(query, 'OPERATOR(public.\1)') AS line);
BEGIN
	RETURN NEXT is(CASE WHEN main ~ part THEN other ELSE 'not ' || part END, main, description);
END $$;
SELECT pg_temp.same_plans($$SELECT id FROM v WHERE b $= '\x01'$$, 'v_b.*Index Cond', 'an index scan');
SELECT pg_temp.same_plans($$SELECT id FROM v WHERE '\x01'::bytea $= b$$, 'v_b.*Index Cond', 'an index scan, commuted, with bytea');
SELECT pg_temp.same_plans($$SELECT id FROM v WHERE NOT b $<> '\x01'$$, 'v_b.*Index Cond', 'an index scan of a negation');
SELECT pg_temp.same_plans($$SELECT id FROM v WHERE b $> '\x01' AND b $<= '\x0102'::bytea$$, 'v_b.*Index Cond', 'an index scan of a range');
SELECT pg_temp.same_plans($$SELECT id FROM v WHERE b $= ANY ('{"\\x01","\\x02"}')$$, 'v_b.*Index Cond', 'an index scan of a list');
SELECT pg_temp.same_plans($$SELECT id FROM v WHERE ROW(c, b) $> ROW('\xff'::blobstate, '\x01'::blobstate)$$, 'v_pair.*Index Cond',
	'an index scan of rows');
SET LOCAL enable_nestloop = off;
SELECT pg_temp.same_plans('SELECT v.id FROM v JOIN v AS w ON v.b $= w.c', 'Hash Join.*Hash Cond', 'a hash join');
SELECT pg_temp.same_plans('SELECT v.id FROM v JOIN v AS w ON v.b $= w.d', 'Hash Join.*Hash Cond', 'a hash join with bytea');
SELECT pg_temp.same_plans('SELECT v.id FROM v WHERE b $= ANY (SELECT c FROM v)', 'Hash.* Join.*Hash Cond', 'a join with a subquery');
SELECT pg_temp.same_plans('SELECT v.id FROM v WHERE NOT b $= ANY (SELECT c FROM v)', 'hashed SubPlan', 'a hashed subquery');
SET LOCAL enable_hashjoin = off;
SELECT pg_temp.same_plans('SELECT v.id FROM v JOIN v AS w ON v.b $= w.c', 'Merge Join.*Merge Cond', 'a merge join');
RESET enable_hashjoin;
RESET enable_nestloop;
SELECT pg_temp.same_plans('SELECT id FROM v ORDER BY b USING $<, c USING $> LIMIT 1', 'Incremental Sort.* using v_b', 'a sort');
SELECT pg_temp.same_plans('SELECT min(id) OVER (PARTITION BY b ORDER BY b USING $<) FROM v', 'WindowAgg.*Sort Key: b', 'a window');

-- Objects that name them with the schema, as dumps of older versions do, serve statements that do not.
CREATE TABLE pruned (b blobstate) PARTITION BY LIST ((b OPERATOR(public.<) '\x10'::blobstate));
CREATE TABLE pruned_true PARTITION OF pruned FOR VALUES IN (true);
CREATE TABLE pruned_false PARTITION OF pruned FOR VALUES IN (false);
SELECT is((SELECT count(*) FROM pg_temp.plan($$SELECT * FROM pruned WHERE b $< '\x10'$$, '\1') AS line WHERE line ~ 'Scan'), 1::bigint,
	'a partition is pruned by a key with an operator by its name');
CREATE TABLE unique_part (id int, b blobstate, n int DEFAULT 0);
CREATE UNIQUE INDEX ON unique_part (id) WHERE b OPERATOR(public.<>) '\x00';
INSERT INTO unique_part VALUES (1, '\x01');
INSERT INTO unique_part VALUES (1, '\x01') ON CONFLICT (id) WHERE b <> '\x00' DO UPDATE SET n = 1;
SELECT results_eq('SELECT id, n FROM unique_part', 'VALUES (1, 1)', 'ON CONFLICT finds an index whose predicate names an operator');
CREATE INDEX part_list ON v (id) WHERE b OPERATOR(public.=) ANY (ARRAY['\x01', '\x02']::blobstate[]);
DROP INDEX v_b;
SELECT matches((SELECT string_agg(line, ' ') FROM pg_temp.plan($$SELECT id FROM v WHERE b IN ('\x01', '\x02')$$, '\1') AS line),
	'part_list', 'an index whose predicate has a list of an operator by its name');
DROP INDEX part_list;
CREATE INDEX v_b ON named.v (b);
CREATE FUNCTION is_listed(x blobstate) RETURNS boolean IMMUTABLE RETURN x OPERATOR(public.=) ANY (ARRAY['\x01', '\x02']::blobstate[]);
SELECT matches((SELECT string_agg(line, ' ') FROM pg_temp.plan('SELECT id FROM v WHERE is_listed(b)', '\1') AS line),
	'Index Cond', 'an index serves a function that was inlined');

-- Exclusion constraints take operators of the index's family only.
CREATE TABLE excluding (b blobstate);
ALTER TABLE excluding ADD EXCLUDE USING btree (b WITH OPERATOR(public.=)), ADD EXCLUDE USING hash (b WITH OPERATOR(public.=));
SET LOCAL search_path = public, pg_catalog;
CREATE TABLE named.excluding_first (b blobstate, EXCLUDE USING hash (b WITH =));
SET LOCAL search_path = named, public;
INSERT INTO excluding VALUES ('a');
INSERT INTO excluding_first VALUES ('a');
SELECT throws_ok($$INSERT INTO excluding VALUES ('a')$$, '23P01', NULL, 'an exclusion constraint of ALTER TABLE by a name');
SELECT throws_ok($$INSERT INTO excluding_first VALUES ('a')$$, '23P01', NULL, 'an exclusion constraint of CREATE TABLE');

SELECT * FROM finish();
ROLLBACK;
