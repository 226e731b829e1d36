-- Comparisons by content: right in every case that bytea knows, and they read no more than decides.
-- (Leaves the cache full of chunks in use: counters.sql, which needs some, runs before it.)
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE SCHEMA comparison;
SET search_path = comparison, public;
SELECT plan(47);

\ir helpers.psql
CREATE FUNCTION zeros(n int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT decode(repeat('00', n), 'hex')
$$;

--
-- How much is read.  1 and 2: 100 MB that differ at byte 100,000.  3: as 1, stored again.  4:
-- another beginning.  5: the first 50 MB of 1.
--
CREATE TABLE large (id int PRIMARY KEY, b blobstate);
INSERT INTO large SELECT 1, convert_to(repeat('blobext ', 12500000), 'UTF8');
INSERT INTO large SELECT 2, overlay(b::bytea PLACING '\xff' FROM 100001) FROM large WHERE id = 1;
INSERT INTO large SELECT 3, b::bytea FROM large WHERE id = 1;
INSERT INTO large SELECT 4, '\x00'::bytea || b::bytea FROM large WHERE id = 1;
INSERT INTO large SELECT 5, substr(b, 1, 50000000) FROM large WHERE id = 1;
SELECT is((SELECT count(*) FROM large WHERE length(b) >= 50000000 AND blob_storage(b) = 'extents'),
	5::bigint, 'large values are in extents');
CREATE FUNCTION pair(expression text, a int, b int) RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT %s FROM large a, large b WHERE a.id = %s AND b.id = %s', expression, a, b)
$$;

SELECT is(cost('content_reads', pair('a.b < b.b', 1, 2)), 14::bigint,
	'a difference at byte 100,000 is found in seven steps');
SELECT is(cost('content_reads', pair('a.b < b.b', 1, 2)), 12::bigint,
	'the first of these is not read again');
SELECT cmp_ok(cost('content_read_bytes', pair('a.b > b.b', 1, 2)), '<=', 2 * 131072::bigint,
	'a comparison in seven steps reads no more than 128 kB of each value');
SELECT results_eq(pair('a.b < b.b, a.b > b.b, a.b = b.b', 1, 2), 'VALUES (true, false, false)',
	'comparisons that read content are right');
SELECT is(cost('content_reads', pair('a.b = b.b, a.b <> b.b', 1, 2)), 0::bigint,
	'equality of different values reads nothing');
SELECT is(cost('content_reads', pair('a.b = b.b, a.b < b.b, a.b >= b.b, blob_cmp(a.b, b.b)', 1, 3)),
	0::bigint, 'equal values that lie at different places are not read');
SELECT results_eq(pair('a.b = b.b, a.b < b.b, a.b >= b.b, blob_cmp(a.b, b.b)', 1, 3),
	'VALUES (true, false, true, 0)', 'equal values at different places are equal');
SELECT is(cost('content_reads', pair('a.b = b.b, a.b < b.b, blob_cmp(a.b, b.b)', 1, 4)), 0::bigint,
	'different prefixes decide without reading');
SELECT is(cost('content_comparisons', pair('a.b = b.b, a.b < b.b, blob_cmp(a.b, b.b)', 1, 4)),
	0::bigint, 'comparisons of different prefixes ask for no content');
SELECT is(cost('content_reads', 'SELECT b FROM large WHERE id IN (1, 4) ORDER BY b'), 0::bigint,
	'a sort of different prefixes reads nothing');
SELECT is(cost('content_read_bytes', pair('a.b < b.b', 1, 5)), (2 * (50000000 - 32) - 480)::bigint,
	'one value a prefix of the other: both are read to the end of the shorter, but for a kept step');
-- An index on 4,000 values in extents, of which 40 begin with the same 1,000 bytes.
CREATE TABLE documents AS SELECT i AS id, (CASE WHEN i % 100 = 0 THEN bytes(1000, 0) ELSE '' END ||
	bytes(1500, i))::blobstate AS b FROM generate_series(1, 4000) i;
SELECT is(cost('content_comparisons', 'CREATE INDEX ON documents (b) WHERE id % 100 <> 0'), 0::bigint,
	'an index on values that begin differently is built without content');
SELECT cmp_ok(cost('content_reads', 'CREATE INDEX ON documents (b)'), '<=', 2 * 40::bigint,
	'where some begin alike, only these are read');
SELECT is(cost('content_reads', $$SELECT count(*), count(DISTINCT sha256(b)) FROM
	(SELECT b FROM large GROUP BY b) s$$), 0::bigint, 'grouping by hash reads nothing')
	FROM (SELECT set_config('enable_sort', 'off', false)) s;
SET enable_sort = on;
SELECT is(cost('content_reads', $$SELECT FROM large a JOIN large b USING (b)$$), 0::bigint,
	'a hash join reads nothing') FROM (SELECT set_config('enable_mergejoin', 'off', false),
	set_config('enable_nestloop', 'off', false)) s;
RESET enable_mergejoin;
RESET enable_nestloop;

-- Inline values that an index compresses, beside values in extents.  They differ before, at and after
-- the end of the bytes that a comparison decompresses first.
CREATE TABLE squeezed AS SELECT row_number() OVER () AS id, o, o::blobstate AS b FROM (
	SELECT zeros(p) || way || zeros(n - p) AS o
	FROM unnest(ARRAY[0, 7, 31, 32, 33, 120, 126, 127, 128, 129, 300, 700]) p,
		unnest(ARRAY['', '\x01', '\xff'::bytea]) way, unnest(ARRAY[800, 900, 3000]) n) s;
SET enable_seqscan = off;
CREATE INDEX squeezed_b ON squeezed (b);
SELECT is((SELECT array_agg(id ORDER BY b, id) FROM squeezed),
	(SELECT array_agg(id ORDER BY o, id) FROM squeezed), 'compressed keys: values sort as their bytes');
SELECT lives_ok($$SELECT bt_index_check('squeezed_b', true)$$, 'compressed keys: the index is sound');
SELECT is((SELECT count(*) FROM squeezed x JOIN LATERAL
		(SELECT id FROM squeezed WHERE b = x.o OFFSET 0) y ON true),
	(SELECT count(*) FROM squeezed x JOIN squeezed y USING (o)), 'compressed keys: each is found');
SELECT is((SELECT sum(n) FROM squeezed x, LATERAL
		(SELECT count(*) AS n FROM squeezed WHERE b < x.o OFFSET 0) y),
	(SELECT count(*) FROM squeezed x JOIN squeezed y ON y.o < x.o)::numeric,
	'compressed keys: ranges have as many values as those of bytea');
RESET enable_seqscan;
DROP TABLE squeezed;

-- A look-up by content in memory compares with what the cache has, in place of hashing; values that
-- only begin alike, or end alike, are told apart.
CREATE TABLE alike AS SELECT i AS id, overlay(bytes(70000, 0) PLACING int4send(i)
	FROM 1 + 1009 * i) AS o FROM generate_series(1, 60) i;
ALTER TABLE alike ADD b blobstate;
UPDATE alike SET b = o;
CREATE INDEX alike_b ON alike (b);
SET enable_seqscan = off;
SELECT is((SELECT count(*) FROM alike WHERE b::bytea = o), 60::bigint, 'the cache has these values');
SELECT is((SELECT array_agg(y.id ORDER BY x.id) FROM alike x JOIN LATERAL
		(SELECT id FROM alike WHERE b = x.o OFFSET 0) y ON true),
	(SELECT array_agg(i) FROM generate_series(1, 60) i), 'each content finds its own row');
SELECT is_empty($$SELECT FROM alike x JOIN LATERAL
		(SELECT id FROM alike WHERE b = overlay(x.o PLACING '\xfefe' FROM 69990) OFFSET 0) y ON true$$,
	'other contents of that size and beginning find none');
SELECT is_empty($$SELECT FROM alike WHERE blob_hash(b) <> blob_hash(o)$$,
	'values that begin alike hash as their contents do');
RESET enable_seqscan;
DROP TABLE alike;

-- Building an index reads where prefixes tie, and each value once.
CREATE TABLE tied AS SELECT i AS id, CASE WHEN i <= 40 THEN bytes(2000, 0) ELSE bytes(2000, i) END
	|| bytes(100, i) AS o FROM generate_series(1, 400) i;
ALTER TABLE tied ADD b blobstate;
UPDATE tied SET b = o;
SELECT cmp_ok(cost('content_reads', 'CREATE INDEX tied_b ON tied (b)'), '<=', 60::bigint,
	'CREATE INDEX reads 40 values with equal prefixes, about once each');
SELECT is(cost('content_reads', 'CREATE INDEX tied_digest ON tied (b blobstate_digest_ops)'), 0::bigint,
	'an index by digest reads nothing');
SELECT is(cost('content_reads', 'CREATE INDEX tied_hash ON tied USING hash (b)'), 0::bigint,
	'CREATE INDEX USING hash reads nothing');
DROP INDEX tied_b, tied_hash;
SELECT is(cost('content_reads', $$SELECT id FROM tied WHERE b = (SELECT o FROM tied WHERE id = 7)$$),
	0::bigint, 'a look-up by digest reads nothing');
DROP TABLE tied;

-- The error for a duplicate neither reads nor prints the key.
CREATE UNIQUE INDEX ON large (b) WHERE id <> 3;
SELECT is(cost('content_reads', $$DO 'BEGIN
		INSERT INTO large SELECT 6, b FROM large WHERE id = 4;
	EXCEPTION WHEN unique_violation THEN END'$$), 0::bigint, 'a duplicate key of 100 MB is not read');
SELECT throws_ok($$INSERT INTO large SELECT 6, b FROM large WHERE id = 4$$, '23505', NULL,
	'a duplicate key of 100 MB raises unique_violation');
DROP TABLE large;

--
-- Oracle.  Contents of one beginning that go on in different ways behind byte p; p and the ways
-- are those at which something changes: abbreviated keys, prefix, pages, extents, steps.
--
CREATE TABLE v (id serial PRIMARY KEY, b blobstate, o bytea);
CREATE FUNCTION fill(seed float8, base bytea, VARIADIC lengths int[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	p int;
	tail bytea;
BEGIN
	PERFORM setseed(seed);
	FOREACH p IN ARRAY lengths LOOP
		FOREACH tail IN ARRAY ARRAY['', '\x00', '\x01', '\xff', zeros(5000),
				bytes(1 + (random() * 9000)::int, (random() * 1e6)::int)] LOOP
			FOR n IN 1 .. 1 + (random() < 0.3)::int LOOP
				PERFORM set_config('blobext.inline_limit',
					(ARRAY['0', '64', '1024', '2000'])[1 + floor(random() * 4)], true);
				PERFORM set_config('blobext.tail_extents',
					(ARRAY['on', 'off'])[1 + floor(random() * 2)], true);
				INSERT INTO v (b, o) VALUES (substring(base FROM 1 FOR p) || tail,
					substring(base FROM 1 FOR p) || tail);
			END LOOP;
		END LOOP;
	END LOOP;
END $$;
\getenv seed BLOBEXT_TEST_SEED
\if :{?seed}
\else
SELECT extract(epoch FROM clock_timestamp())::bigint % 1000000 / 1000000.0 AS seed \gset
\endif
\echo # seed :seed
SELECT fill(:seed, bytes(300000, 1), 0, 1, 7, 8, 9, 31, 32, 33, 64, 1000, 4095, 4096, 4097, 8192,
		12287, 12288, 12289, 28672, 61440, 65537, 262144, 300000),
	fill(:seed, zeros(30000), 0, 8, 31, 32, 33, 4095, 4096, 4097, 12288, 28672);

SELECT is((SELECT count(*) FROM v WHERE b IS DISTINCT FROM o), 0::bigint, 'oracle: each value has its content');
SELECT is((SELECT count(DISTINCT blob_storage(b)) FROM v), 2::bigint, 'oracle: there are values of both forms');
SELECT is_empty($$SELECT x.id, y.id FROM v x, v y
	WHERE sign(blob_cmp(x.b, y.b)) <> CASE WHEN x.o < y.o THEN -1 WHEN x.o = y.o THEN 0 ELSE 1 END
		OR (x.b = y.b) <> (x.o = y.o)$$, 'oracle: all pairs compare as bytea''s');
SELECT is_empty($$SELECT x.id, y.id FROM v x, v y WHERE x.id % 7 = 0 AND (
	sign(blob_cmp(x.b, y.o)) <> CASE WHEN x.o < y.o THEN -1 WHEN x.o = y.o THEN 0 ELSE 1 END
		OR sign(blob_cmp(y.o, x.b)) <> -sign(blob_cmp(x.b, y.o))
		OR (x.b = y.o) <> (x.o = y.o) OR (y.o = x.b) <> (x.o = y.o))$$,
	'oracle: pairs with bytea compare as bytea''s');
SELECT is((SELECT array_agg(id ORDER BY b, id) FROM v), (SELECT array_agg(id ORDER BY o, id) FROM v),
	'oracle: values sort as bytea does');
SELECT is_empty($$SELECT x.id, y.id FROM v x, v y WHERE x.o = y.o
	AND (blob_hash(x.b) <> blob_hash(y.o) OR blob_hash_extended(x.b, 0) <> blob_hash_extended(y.b, 0)
	OR blob_hash_extended(x.b, 5) <> blob_hash_extended(y.o, 5))$$, 'oracle: equal values hash alike');
SELECT is_empty($$SELECT id FROM v WHERE blob_hash_extended(b, 0)::bit(32) <> blob_hash(b)::bit(32)$$,
	'the seeded hash without a seed is the hash');

-- Indexes after churn: sound, and they answer as a sequential scan does.
CREATE INDEX v_b ON v (b);
CREATE INDEX v_digest ON v (b blobstate_digest_ops);
CREATE INDEX v_hash ON v USING hash (b);
DELETE FROM v WHERE id % 3 = 0;
VACUUM v;
INSERT INTO v (b, o) SELECT o, o FROM v WHERE id % 3 = 1;
UPDATE v SET id = -id WHERE id % 5 = 0;
SELECT fill(:seed, bytes(10000, 1), 0, 8, 31, 32, 33, 4095, 4096, 4097);
BEGIN;
INSERT INTO v (b, o) SELECT o || '\x01', o || '\x01' FROM v;
ROLLBACK;
DELETE FROM v WHERE id % 2 = 0 AND id > 0;
VACUUM (INDEX_CLEANUP on) v;
INSERT INTO v (b, o) SELECT o, o FROM v WHERE id % 4 = 1;
SELECT lives_ok(format('SELECT bt_index_check(%L, true)', i), i || ': bt_index_check() finds nothing wrong')
	FROM unnest(ARRAY['v_b', 'v_digest']) i;
SELECT lives_ok(format('SELECT bt_index_parent_check(%L, true, true)', i),
	i || ': bt_index_parent_check() finds nothing wrong') FROM unnest(ARRAY['v_b', 'v_digest']) i;

CREATE FUNCTION answers(index_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	key v;
	plan text;
	wrong bigint := 0;
	found int[];
	wanted int[];
BEGIN
	UPDATE pg_index SET indisvalid = indexrelid = index_name::regclass OR indisprimary
		WHERE indrelid = 'v'::regclass;
	FOR key IN SELECT * FROM v ORDER BY abs(id) % 17, id LIMIT 40 LOOP
		wanted := (SELECT array_agg(id ORDER BY id) FROM v WHERE o = key.o);
		EXECUTE 'SELECT array_agg(id ORDER BY id) FROM v WHERE b = $1' INTO found USING key.b;
		wrong := wrong + (found IS DISTINCT FROM wanted)::int;
		EXECUTE 'SELECT array_agg(id ORDER BY id) FROM v WHERE b = $1' INTO found USING key.o;
		wrong := wrong + (found IS DISTINCT FROM wanted)::int;
		IF index_name = 'v_b' THEN
			wanted := (SELECT array_agg(id ORDER BY o, id) FROM v WHERE o < key.o);
			EXECUTE 'SELECT array_agg(id ORDER BY b, id) FROM v WHERE b < $1' INTO found USING key.o;
			wrong := wrong + (found IS DISTINCT FROM wanted)::int;
		END IF;
	END LOOP;
	EXECUTE 'EXPLAIN SELECT id FROM v WHERE b = $1' INTO plan USING key.b;
	IF plan NOT LIKE '%' || index_name || '%' THEN
		RAISE 'index not used: %', plan;
	END IF;
	RETURN wrong;
END $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT is(answers(i), 0::bigint, i || ' answers as a sequential scan does')
	FROM unnest(ARRAY['v_b', 'v_digest', 'v_hash']) i;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- A comparison does not leak: a million of them stay within the memory of a few.
CREATE TABLE small AS SELECT bytes(2000, i)::blobstate AS b FROM generate_series(1, 100) i;
ALTER TABLE small ALTER b SET STORAGE EXTERNAL;
SELECT cmp_ok((SELECT count(*) FROM small a, small b, generate_series(1, 100) WHERE a.b < b.b), '>',
	490000::bigint, 'half of a million pairs');
SELECT is((SELECT count(*) FROM pg_opclass WHERE opcintype = 'blobstate'::regtype AND opcdefault),
	2::bigint, 'default operator classes: btree and hash');
SELECT is_empty($$SELECT amproc::text FROM pg_amproc JOIN pg_opfamily f ON f.oid = amprocfamily
	WHERE opfname LIKE 'blobstate%' AND opfmethod = (SELECT oid FROM pg_am WHERE amname = 'btree')
	AND amprocnum = 4$$, 'no equalimage: equal keys may have different images');

SELECT * FROM finish();
SET client_min_messages = warning;
DROP SCHEMA comparison CASCADE;
