-- Row security and security barriers: equality is LEAKPROOF, so indexes serve it; order is not, and sees no row that a
-- policy hides.
--
-- Seen to fail without LEAKPROOF on blob_eq(): the five plans that have an index.
CREATE SCHEMA secured;
SET search_path = secured, public;
SET client_min_messages = error;
SELECT plan(19);

CREATE ROLE secured_reader;
GRANT USAGE ON SCHEMA secured TO secured_reader;
CREATE FUNCTION value(i int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT convert_to(repeat('the same beginning ', 300) || md5(i::text), 'UTF8') $$;
CREATE TABLE t (id int, owner name, content blobstate);
INSERT INTO t SELECT i, CASE i % 2 WHEN 0 THEN 'secured_reader' ELSE 'another' END, value(i) FROM generate_series(1, 200) i;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON t USING (owner = current_user);
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM t WHERE id % 2 = 0;
GRANT SELECT ON t, barrier TO secured_reader;
VACUUM ANALYZE t;

-- The nodes of a plan that scan, and their index.
CREATE FUNCTION scans(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	lines text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || query LOOP
		lines := lines || coalesce(substring(line FROM '(Seq Scan|(?:Bitmap )?Index (?:Only )?Scan (?:using|on) \w+)') || ' ', '');
	END LOOP;
	RETURN trim(lines);
END $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE INDEX t_hash ON t USING hash (content);
SET ROLE secured_reader;
SELECT is(scans($$SELECT id FROM t WHERE content = value(8)$$), 'Index Scan using t_hash', 'a policy lets a hash index serve = of bytea');
SELECT is(scans($$SELECT id FROM t WHERE content = value(8)::blobstate$$), 'Index Scan using t_hash',
	'a policy lets a hash index serve = of blobstate');
SELECT is(scans($$SELECT id FROM barrier WHERE value(8) = content$$), 'Index Scan using t_hash',
	'a security barrier lets a hash index serve =, with the operands exchanged');
SELECT results_eq($$SELECT id FROM t WHERE content = value(8)$$, ARRAY[8], 'a row that the policy shows is found');
SELECT is_empty($$SELECT id FROM t WHERE content = value(7)$$, 'a row that the policy hides is not found');
RESET ROLE;
DROP INDEX t_hash;
CREATE INDEX t_digest ON t (content blobstate_digest_ops);
SET ROLE secured_reader;
SELECT is(scans($$SELECT id FROM t WHERE content = value(8)$$), 'Index Scan using t_digest', 'a policy lets a B-tree of digests serve =');
SELECT is_empty($$SELECT id FROM t WHERE content = value(7)$$, 'a B-tree of digests does not show what the policy hides');
RESET ROLE;
DROP INDEX t_digest;
CREATE INDEX t_btree ON t (content);
SET ROLE secured_reader;
SELECT is(scans($$SELECT id FROM t WHERE content = value(8)$$), 'Index Scan using t_btree', 'a policy lets a B-tree of contents serve =');
SELECT results_eq($$SELECT id FROM t WHERE content IN (value(7), value(8), value(9), value(10)) ORDER BY id$$, ARRAY[8, 10],
	'IN finds what the policy shows');

-- Order reads content, so it is evaluated on visible rows only, without an index.
SELECT is(scans($$SELECT id FROM t WHERE content < value(8)$$), 'Seq Scan', 'a policy keeps an index from serving <');
SELECT is(scans($$SELECT id FROM barrier WHERE content >= value(8)$$), 'Seq Scan', 'a security barrier keeps an index from serving >=');
SELECT set_eq($$SELECT id FROM t WHERE content < value(8)$$, $$SELECT id FROM t WHERE id % 2 = 0 AND content::bytea < value(8)$$,
	'< finds what the policy shows');
RESET ROLE;
RESET enable_seqscan;

-- Equality reads no content of any row; functions that are not LEAKPROOF run behind the policy.
CREATE FUNCTION reads(query text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	counters text := $q$SELECT sum(value) FROM public.blobext_stat
		WHERE name IN ('content_reads', 'cache_hits', 'cache_misses', 'content_comparisons')$q$;
	before bigint;
	after bigint;
BEGIN
	EXECUTE counters INTO before;
	EXECUTE query;
	EXECUTE counters INTO after;
	RETURN after - before;
END $$;
DROP INDEX t_btree;
SELECT is(reads($$SELECT count(*) FROM secured.t WHERE content = secured.value(7)$$), 0::bigint, '= reads no content');
SELECT is(reads($$SELECT count(*) FROM secured.t WHERE content <> secured.value(7)$$), 0::bigint, '<> reads no content');
SELECT cmp_ok(reads($$SELECT count(*) FROM secured.t WHERE content < secured.value(7)$$), '>', 0::bigint,
	'< reads content of values that begin alike');
CREATE TABLE sightings (digest bytea);
-- Notes what it sees; not LEAKPROOF.
CREATE FUNCTION sees(content blobstate) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
	INSERT INTO secured.sightings VALUES (sha256(content));
	RETURN true;
END $$;
GRANT INSERT ON sightings TO secured_reader;
SET ROLE secured_reader;
SELECT is(count(*), 1::bigint, 'a function of the reader finds the row that the policy shows') FROM t WHERE sees(content) AND content <= value(8)
	AND content = value(8);
SELECT is(count(*), 0::bigint, 'a function of the reader finds nothing that the policy hides') FROM t WHERE sees(content) AND content = value(7);
RESET ROLE;
SELECT isnt_empty('SELECT FROM sightings', 'the function was called');
SELECT is_empty('SELECT FROM sightings JOIN t ON sha256(t.content) = digest WHERE id % 2 = 1', 'the function has seen no row that the policy hides');

SELECT * FROM finish();
DROP SCHEMA secured CASCADE;
DROP ROLE secured_reader;
