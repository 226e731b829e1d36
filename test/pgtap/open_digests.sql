-- Open digests: the label of a column and its two functions, changes that compute no digest, what computes it later, keys,
-- sealing.  Each content has bytea beside it, which is the oracle.
--
-- Seen to fail
--
--	- without a generation of its own for each open value (draw_own_generation()): digests of other versions are taken,
--	- with heads of comparisons found by the zeros in place of a digest: the order,
--	- without the seal in adapt_digest(): copies in other columns,
--	- without blob_open_keys_check_index(), _check_hierarchy() or the look of the label's provider: keys,
--	- without known digests: sha256() reads twice,
--	- without blob_seal_require_interruptible(): the lookup under the lock of an index page,
--	- with its limit for values whose digests are known: the lookup of a changed huge value,
--	- without blob_store_contained(), casts of generated and altered columns, blob_open_keys_check_build(): ways into columns.
--
CREATE SCHEMA open_digests;
SET search_path = open_digests, public;
SET client_min_messages = error;
SET blobext.rewrite_limit = '64kB';
\ir helpers.psql
SELECT plan(137);

CREATE FUNCTION label(relation regclass, name text) RETURNS text LANGUAGE sql AS $$
	SELECT l.label FROM pg_seclabel l JOIN pg_attribute a ON a.attrelid = l.objoid AND a.attnum = l.objsubid
	WHERE l.provider = 'blobext' AND l.classoid = 'pg_class'::regclass AND l.objoid = relation AND a.attname = name
$$;
-- A change of a value, and the same of bytea.
CREATE FUNCTION changed(value blobstate, kind text, at bigint, piece bytea) RETURNS blobstate LANGUAGE sql AS $$
	SELECT CASE kind WHEN 'append' THEN blob_append(value, piece) WHEN 'write' THEN blob_write(value, at, piece)
		WHEN 'insert' THEN blob_insert(value, at, piece) WHEN 'delete' THEN blob_delete(value, at, length(piece))
		WHEN 'truncate' THEN blob_truncate(value, at + 60000)
		WHEN 'patch' THEN blob_patch(value, ARRAY[at, at + length(piece) + 100], ARRAY[piece, piece]) END $$;
CREATE FUNCTION changed(value bytea, kind text, at bigint, piece bytea) RETURNS bytea LANGUAGE sql AS $$
	SELECT CASE kind WHEN 'append' THEN value || piece
		WHEN 'write' THEN overlay(value PLACING piece FROM (at + 1)::int)
		WHEN 'insert' THEN substring(value FROM 1 FOR at::int) || piece || substring(value FROM at::int + 1)
		WHEN 'delete' THEN substring(value FROM 1 FOR at::int) || substring(value FROM (at + length(piece) + 1)::int)
		WHEN 'truncate' THEN substring(value FROM 1 FOR (at + 60000)::int)
		WHEN 'patch' THEN overlay(overlay(value PLACING piece FROM (at + 1)::int)
			PLACING piece FROM (at + length(piece) + 101)::int) END $$;

-- ---- the label ----

CREATE TABLE doc (id int, content blobstate, original bytea);
SELECT blobext_set_digest('doc', 'content', 'deferred');
SELECT is(label('doc', 'content'), 'digest deferred', 'a column without a method has the other part alone');
SELECT blobext_set_compression('doc', 'content', 'zstd');
SELECT is(label('doc', 'content'), 'zstd, digest deferred', 'blobext_set_compression() keeps the digest');
SELECT blobext_set_digest('doc', 'content', 'sealed');
SELECT is(label('doc', 'content'), 'zstd, digest sealed', 'blobext_set_digest() keeps the method');
SELECT blobext_set_digest('doc', 'content', NULL);
SELECT is(label('doc', 'content'), 'zstd', 'NULL takes the part of digests away');
SELECT blobext_set_digest('doc', 'content', 'deferred');
SELECT blobext_set_compression('doc', 'content', NULL);
SELECT is(label('doc', 'content'), 'digest deferred', 'NULL takes the method away, and keeps the digest');
SELECT throws_ok($$SELECT blobext_set_digest('doc', 'content', 'later')$$, '22023', NULL, 'another word is no digest');
SELECT throws_ok($$SELECT blobext_set_digest('doc', 'original', 'deferred')$$, '42809', NULL, 'a column of bytea has no digests');
SELECT throws_ok($$SELECT blobext_set_digest('doc', 'none', 'deferred')$$, '42703', NULL, 'a column must be there to be labelled');
SELECT throws_ok(format($$SECURITY LABEL FOR blobext ON COLUMN doc.content IS '%s'$$, label), '22023', NULL,
	'this text is refused as a label: ' || label)
FROM unnest(ARRAY['digest', 'digest deferred, digest sealed', 'zstd, lz4', 'zstd,digest deferred', '', 'deferred']) label;
SELECT lives_ok($$SECURITY LABEL FOR blobext ON COLUMN doc.content IS 'digest deferred, none'$$,
	'the parts of a label may have any order');
SELECT blobext_set_compression('doc', 'content', NULL);
CREATE TABLE list (id int, content blobstate[]);
SELECT throws_ok($$SELECT blobext_set_digest('list', 'content', 'deferred')$$, '42809', NULL, 'digests of arrays cannot be deferred');
SELECT throws_ok($$SECURITY LABEL FOR blobext ON COLUMN list.content IS 'digest deferred'$$, '42809', NULL,
	'digests of arrays cannot be deferred by SECURITY LABEL');
CREATE ROLE stranger;
GRANT USAGE ON SCHEMA open_digests TO stranger;
GRANT ALL ON doc TO stranger;
SET ROLE stranger;
SELECT throws_ok($$SELECT blobext_set_digest('doc', 'content', 'sealed')$$, '42501', NULL, 'only the owner of a table sets its digests');
RESET ROLE;

-- ---- changes ----

INSERT INTO doc SELECT i, bytes(300000, i), bytes(300000, i) FROM generate_series(1, 8) i;
SELECT is(count(*) FILTER (WHERE blob_digest_is_open(content)), 0::bigint, 'new values have their digests') FROM doc;
SELECT is(count(*), 8::bigint, 'new values have the right digests') FROM doc WHERE sha256(content) = sha256(original);

-- Digests after each kind of change, of a sealed value and of an open one.
CREATE TABLE work (kind text, round int, content blobstate, original bytea);
SELECT blobext_set_digest('work', 'content', 'deferred');
INSERT INTO work SELECT kind, 0, bytes(300000, 1), bytes(300000, 1)
FROM unnest(ARRAY['append', 'write', 'insert', 'delete', 'truncate', 'patch']) kind;
CREATE FUNCTION go_on(method text) RETURNS TABLE (kind text, turn int, is_open bool, is_right bool, has_digest bool)
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM blobext_set_compression('work', 'content', method);
	UPDATE work SET content = bytes(300000, 1), original = bytes(300000, 1), round = 0;
	FOR i IN 1..4 LOOP
		UPDATE work AS w SET content = changed(content, w.kind, 200000 - 10000 * i, bytes(777, i)),
			original = changed(original, w.kind, 200000 - 10000 * i, bytes(777, i)), round = i;
		RETURN QUERY SELECT w.kind, w.round, blob_digest_is_open(content), content::bytea = original,
			sha256(content) = sha256(original) FROM work AS w;
	END LOOP;
END $$;
SELECT results_eq(format($$SELECT kind, bool_and(is_open), bool_and(is_right), bool_and(has_digest) FROM go_on('%s')
	GROUP BY kind ORDER BY kind$$, method),
	$$VALUES ('append', false, true, true), ('delete', true, true, true), ('insert', true, true, true),
		('patch', true, true, true), ('truncate', true, true, true), ('write', true, true, true)$$,
	'a change leaves the digest open, but an append, and content and digest are right: ' || method)
FROM unnest(ARRAY['none', 'lz4', 'zstd']) method;
SELECT is_empty($$SELECT * FROM blobext_check('work')$$, 'blobext_check() finds nothing in open values');

-- An append to an open value leaves it open.
UPDATE doc SET content = content || 'end', original = original || 'end' WHERE id = 1;
SELECT ok(NOT blob_digest_is_open(content), 'an append to a sealed value is sealed') FROM doc WHERE id = 1;
UPDATE doc SET content = blob_write(content, 1000, 'abc'), original = overlay(original PLACING 'abc' FROM 1001) WHERE id <= 4;
UPDATE doc SET content = content || 'end', original = original || 'end' WHERE id = 2;
SELECT ok(blob_digest_is_open(content), 'an append to an open value is open') FROM doc WHERE id = 2;
SELECT is(content::bytea, original, 'an append to an open value has the right content') FROM doc WHERE id = 2;

-- All else that makes a value of an open one.
CREATE FUNCTION uploaded(value blobstate, piece bytea) RETURNS blobstate LANGUAGE plpgsql AS $$
DECLARE
	upload bigint := blob_upload_resume(value);
BEGIN
	PERFORM blob_upload_write(upload, piece);
	RETURN blob_upload_end(upload);
END $$;
SELECT is_empty($$SELECT kind, blob_digest_is_open(b) FROM (SELECT content AS c, original AS o FROM doc WHERE id = 2) AS d,
	LATERAL (VALUES ('upload', uploaded(c, 'piece'), o || 'piece'), ('both', c || c, o || o), ('before', 'piece'::bytea || c, 'piece' || o),
		('behind', 'piece'::blobstate || c, 'piece' || o), ('byte', set_byte(c, 100::bigint, 7::bigint), set_byte(o, 100, 7)),
		('overlay', overlay(c PLACING '\xaabb' FROM 100001 FOR 50), overlay(o PLACING '\xaabb' FROM 100001 FOR 50)),
		('longer', blob_truncate(c, 400000), o || decode(repeat('00', 400000 - length(o)), 'hex')),
		('anew', blob_recompress(c, 'zstd'), o), ('aggregate', (SELECT blob_agg(v) FROM (VALUES (c), (c)) AS w (v)), o || o)) AS x (kind, b, expected)
	WHERE b::bytea <> expected OR sha256(b) <> sha256(expected) OR length(b) <> length(expected)$$,
	'what functions make of an open value has the right content and digest');
SELECT is((SELECT sha256(string_agg(data, '' ORDER BY chunk_no)) FROM blob_chunks(content, 70000)), sha256(original),
	'chunks of an open value are its content') FROM doc WHERE id = 2;
SELECT ok(content LIKE '%abc%'::bytea AND position('abc'::bytea IN content) = 1001 AND substring(content, 1001, 3) = 'abc',
	'an open value is searched as others are') FROM doc WHERE id = 2;

-- Costs.
CREATE TABLE large (id int, content blobstate);
SELECT blobext_set_digest('large', 'content', 'deferred');
INSERT INTO large SELECT i, bytes(5000000, i) FROM generate_series(1, 2) i;
SELECT cmp_ok(cost('content_read_bytes', $$UPDATE large SET content = blob_write(content, 2500000, '\x0102') WHERE id = 1$$), '<',
	200000::bigint, 'the first change reads a small part of the content');
SELECT cmp_ok(cost('content_read_bytes', $$UPDATE large SET content = blob_insert(content, 1500000, '\x0102') WHERE id = 1$$), '<',
	200000::bigint, 'the next one, too');
SELECT cmp_ok(cost('content_read_bytes', $$UPDATE large SET content = blob_truncate(content, 4000000) WHERE id = 2$$), '<',
	200000::bigint, 'a truncation reads a small part of the content');
SELECT cmp_ok(cost('content_read_bytes', 'SELECT sha256(content) FROM large WHERE id = 1'), '>=', 5000000::bigint,
	'sha256() of an open value reads it');
SELECT is(cost('content_read_bytes', 'SELECT sha256(content) FROM large WHERE id = 1'), 0::bigint,
	'sha256() of an open value reads it once');
SELECT ok(blob_digest_is_open(content), 'a digest in passing leaves the row as it is') FROM large WHERE id = 1;
SELECT is(cost('content_read_bytes', 'ANALYZE large'), 0::bigint, 'ANALYZE reads no content of open values');
UPDATE large SET content = blob_write(content, 0, '\x0102') WHERE id = 1;
SELECT matches(blob_summary(content), 'sha256:open$', 'a summary does not compute the digest') FROM large WHERE id = 1;

-- Short values are written anew.
INSERT INTO doc VALUES (100, bytes(60000, 100), bytes(60000, 100));
UPDATE doc SET content = blob_write(content, 1000, 'abc'), original = overlay(original PLACING 'abc' FROM 1001) WHERE id = 100;
SELECT ok(NOT blob_digest_is_open(content) AND sha256(content) = sha256(original),
	'a short value has its digest after a change') FROM doc WHERE id = 100;

-- ---- comparison: values of one content and different histories ----

CREATE TABLE history (name text, content blobstate);
CREATE TABLE sealed (name text, content blobstate);
SELECT blobext_set_digest('history', 'content', 'deferred');
INSERT INTO sealed SELECT 'stored', overlay(bytes(300000, 7) PLACING 'abc' FROM 1001);
INSERT INTO sealed SELECT 'other', overlay(bytes(300000, 7) PLACING 'abd' FROM 1001);
INSERT INTO history SELECT name, bytes(300000, 7) FROM unnest(ARRAY['written', 'in steps', 'inserted']) name;
UPDATE history SET content = blob_write(content, 1000, 'abc') WHERE name = 'written';
UPDATE history SET content = blob_write(blob_write(content, 1001, 'bc'), 1000, 'a') WHERE name = 'in steps';
UPDATE history SET content = blob_insert(blob_delete(content, 1000, 3), 1000, 'abc') WHERE name = 'inserted';
INSERT INTO history SELECT 'behind', blob_write(content, 200000, 'zzz') FROM history WHERE name = 'written';
SELECT is(count(*), 4::bigint, 'values of these histories are open') FROM history WHERE blob_digest_is_open(content);
SELECT results_eq('SELECT a.name, b.name FROM history AS a, history AS b WHERE a.content = b.content AND a.name < b.name ORDER BY 1, 2',
	$$VALUES ('in steps', 'inserted'), ('in steps', 'written'), ('inserted', 'written')$$,
	'open values of one content are equal, others are not');
SELECT results_eq('SELECT h.name FROM history AS h, sealed AS s WHERE h.content = s.content ORDER BY 1',
	$$VALUES ('in steps'), ('inserted'), ('written')$$, 'open values equal a sealed one of their content');
SELECT is(count(*), 3::bigint, 'open values equal bytea of their content')
FROM history WHERE content = overlay(bytes(300000, 7) PLACING 'abc' FROM 1001);
SELECT is(count(DISTINCT content), 2::bigint, 'DISTINCT counts contents of open values') FROM history;
SELECT set_eq('SELECT count(*) FROM (TABLE history UNION ALL TABLE sealed) AS all_values GROUP BY content',
	ARRAY[4, 1]::bigint[], 'GROUP BY joins open and sealed values');
SET enable_mergejoin = off; SET enable_nestloop = off;
SELECT is(count(*), 3::bigint, 'a hash join finds open values') FROM history JOIN sealed USING (content);
RESET enable_mergejoin; RESET enable_nestloop;
SET enable_hashjoin = off; SET enable_nestloop = off;
SELECT is(count(*), 3::bigint, 'a merge join finds open values') FROM history JOIN sealed USING (content);
RESET enable_hashjoin; RESET enable_nestloop;
INSERT INTO history SELECT 'v' || i, blob_write(blob_write(bytes(200000, i % 3)::blobstate, 0, bytes(40, 1)), 100000, bytes(3, i))
FROM generate_series(1, 20) i;
UPDATE history SET content = blob_write(content, 150000, substring(content::bytea FROM 150001 FOR 5)) WHERE name LIKE 'v%';
SELECT results_eq('SELECT name FROM history ORDER BY content, name', 'SELECT name FROM history ORDER BY content::bytea, name',
	'open values have the order of their contents');
SELECT ok((SELECT min(content) FROM history)::bytea = (SELECT content::bytea FROM history ORDER BY content::bytea LIMIT 1),
	'min() of open values is right');

-- ---- assignment ----

INSERT INTO sealed SELECT 'from open', content FROM history WHERE name = 'behind';
SELECT ok(NOT blob_digest_is_open(s.content) AND s.content = h.content, 'a copy in another column is sealed')
FROM sealed s, history h WHERE s.name = 'from open' AND h.name = 'behind';
SELECT is(first_page, (SELECT first_page FROM history, blob_extents(content) WHERE name = 'behind' AND extent_no = 0),
	'a copy in another column shares the extents') FROM sealed, blob_extents(content) WHERE name = 'from open' AND extent_no = 0;
UPDATE sealed SET content = blob_write(content, 100, 'q') WHERE name = 'from open';
SELECT ok(NOT blob_digest_is_open(content), 'a change there is sealed, too') FROM sealed WHERE name = 'from open';
INSERT INTO history SELECT 'copy', content FROM history WHERE name = 'behind';
SELECT ok(blob_digest_is_open(content), 'a copy in the same column is open') FROM history WHERE name = 'copy';
CREATE TABLE made AS SELECT * FROM history WHERE name = 'behind';
CREATE MATERIALIZED VIEW materialized AS SELECT * FROM history WHERE name = 'behind';
CREATE TYPE pair AS (name text, content blobstate);
CREATE TABLE pairs (p pair, a blobstate[]);
INSERT INTO pairs SELECT ROW(name, blob_write(content, 0, 'x'))::pair, ARRAY[blob_write(content, 0, 'x')] FROM history WHERE name = 'behind';
SELECT results_eq('SELECT blob_digest_is_open(content) FROM made UNION ALL SELECT blob_digest_is_open(content) FROM materialized
	UNION ALL SELECT blob_digest_is_open((p).content) FROM pairs UNION ALL SELECT blob_digest_is_open(a[1]) FROM pairs',
	'VALUES (false), (false), (false), (false)', 'values of made tables and views, and changed ones in rows and arrays, are sealed');
INSERT INTO sealed VALUES ('was sealed', bytes(300000, 8));
INSERT INTO history SELECT 'was sealed', content FROM sealed WHERE name = 'was sealed';
UPDATE history SET content = blob_write(content, 5, 'q') WHERE name = 'was sealed';
SELECT ok(blob_digest_is_open(content), 'a value of another column may be open here') FROM history WHERE name = 'was sealed';

-- A change that was rolled back, and another one in its place.
CREATE TABLE again (content blobstate, original bytea);
SELECT blobext_set_digest('again', 'content', 'deferred');
INSERT INTO again VALUES (bytes(300000, 1), bytes(300000, 1));
UPDATE again SET content = blob_write(content, 1000, 'a'), original = overlay(original PLACING 'a' FROM 1001);
CREATE FUNCTION digests() RETURNS TABLE (is_right bool) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..5 LOOP
		BEGIN
			UPDATE again SET content = blob_write(content, 1000, bytes(5, i)), original = overlay(original PLACING bytes(5, i) FROM 1001);
			RETURN QUERY SELECT sha256(content) = sha256(original) FROM again;
			RAISE EXCEPTION 'undo';
		EXCEPTION WHEN raise_exception THEN
		END;
		UPDATE again SET content = blob_write(content, 2000, bytes(5, i + 10)), original = overlay(original PLACING bytes(5, i + 10) FROM 2001);
		RETURN QUERY SELECT sha256(content) = sha256(original) FROM again;
	END LOOP;
END $$;
SELECT set_eq('SELECT is_right, count(*) FROM digests() GROUP BY 1', $$VALUES (true, 10::bigint)$$,
	'each change has a digest of its own, also after one that was undone');

-- A value that was there before the column opted in.
CREATE TABLE late (id int, content blobstate);
INSERT INTO late VALUES (1, bytes(300000, 1));
SELECT blobext_set_digest('late', 'content', 'deferred');
UPDATE late SET content = blob_write(content, 5, 'q');
SELECT ok(NOT blob_digest_is_open(content), 'the first change of an older value computes its digest') FROM late;
UPDATE late SET content = blob_write(content, 5, 'r');
SELECT ok(blob_digest_is_open(content), 'the second one leaves it open') FROM late;
SELECT blobext_set_digest('late', 'content', 'sealed');
UPDATE late SET content = blob_write(content, 5, 's');
SELECT ok(NOT blob_digest_is_open(content), 'a change in a column that was sealed again is sealed') FROM late;

-- Tables that are not permanent.
CREATE TEMP TABLE temporary (content blobstate);
CREATE UNLOGGED TABLE unlogged (content blobstate);
SELECT blobext_set_digest(name, 'content', 'deferred') FROM unnest(ARRAY['temporary', 'unlogged']::regclass[]) name;
INSERT INTO temporary VALUES (bytes(300000, 1));
INSERT INTO unlogged TABLE temporary;
UPDATE temporary SET content = blob_write(content, 5, 'q');
UPDATE unlogged SET content = blob_write(content, 5, 'q');
SELECT is(count(*), 2::bigint, 'values of temporary and unlogged tables may be open')
FROM (TABLE temporary UNION ALL TABLE unlogged) AS x WHERE blob_digest_is_open(content);

-- ---- partitions ----

CREATE TABLE parted (id int, content blobstate) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
SELECT blobext_set_digest('parted', 'content', 'deferred');
SELECT blobext_set_compression('parted_1', 'content', 'lz4');
INSERT INTO parted_1 VALUES (1, bytes(300000, 1));
UPDATE parted_1 SET content = blob_write(content, 5, 'q');
SELECT ok(blob_digest_is_open(content), 'a partition with a method takes the digest from above') FROM parted_1;
SELECT throws_ok('CREATE UNIQUE INDEX ON parted_1 (content)', '55000', NULL, 'a partition of such a table has no key');
SELECT blobext_set_digest('parted_1', 'content', 'sealed');
SELECT throws_ok('CREATE UNIQUE INDEX ON parted_1 (content)', '55000', NULL,
	'a partition that is sealed has no key either: the table above stores in it');

-- ---- keys ----

SELECT throws_like(format('CREATE INDEX ON doc %s', definition), '%cannot be a key of a new index%', 'the column gets no index: ' || definition)
FROM unnest(ARRAY['(content)', 'USING hash (content)', '(content blobstate_digest_ops)', '(id, content)']) definition;
SELECT throws_ok(format('ALTER TABLE doc ADD %s', definition), '55000', NULL, 'the column gets no constraint: ' || definition)
FROM unnest(ARRAY['UNIQUE (content)', 'PRIMARY KEY (content)', 'EXCLUDE USING btree (content WITH =)',
	'EXCLUDE USING hash (content WITH =)']) definition;
CREATE TABLE referenced (content blobstate UNIQUE);
SELECT throws_ok('ALTER TABLE doc ADD FOREIGN KEY (content) REFERENCES referenced (content)', '55000', NULL, 'the column refers to no other table');
SELECT throws_ok($$SELECT blobext_set_digest('referenced', 'content', 'deferred')$$, '55000', NULL, 'a key cannot opt in');
CREATE TABLE referring (content blobstate REFERENCES referenced (content));
SELECT throws_ok($$SELECT blobext_set_digest('referring', 'content', 'deferred')$$, '55000', NULL, 'a foreign key cannot opt in');
CREATE TABLE by_content (content blobstate) PARTITION BY LIST (content);
SELECT throws_ok($$SELECT blobext_set_digest('by_content', 'content', 'deferred')$$, '55000', NULL, 'a partition key cannot opt in');
CREATE FUNCTION same(v blobstate) RETURNS blobstate LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN v; END';
SELECT throws_ok('CREATE INDEX ON doc (same(content))', '55000', NULL, 'no key is made of such a value by a function');
CREATE TABLE with_expression (content blobstate);
CREATE INDEX ON with_expression (same(content));
SELECT throws_ok($$SELECT blobext_set_digest('with_expression', 'content', 'deferred')$$, '55000', NULL,
	'a column of which a key is made cannot opt in');
SELECT lives_ok('CREATE INDEX ON doc (sha256(content))', 'an index on the digest is possible');
SELECT lives_ok('CREATE INDEX ON doc (length(content)) INCLUDE (content)', 'a column that an index includes may be open');
SELECT lives_ok($$CREATE INDEX ON doc (id) WHERE content <> ''$$, 'a column that a predicate reads may be open');
UPDATE doc SET content = blob_write(content, 2000, 'abc'), original = overlay(original PLACING 'abc' FROM 2001) WHERE id = 3;
SELECT is((SELECT d.id FROM doc AS d WHERE sha256(d.content) = (SELECT sha256(original) FROM doc WHERE id = 3)), 3,
	'an open value is found by its digest');
CREATE TABLE heir (UNIQUE (content)) INHERITS (sealed);
ALTER TABLE heir NO INHERIT sealed;
CREATE TABLE ancestor (name text, content blobstate);
SELECT blobext_set_digest('ancestor', 'content', 'deferred');
SELECT throws_ok('ALTER TABLE heir INHERIT ancestor', '55000', NULL, 'a table with a key does not inherit the label');
CREATE TABLE keyed_2 (id int, content blobstate UNIQUE);
SELECT throws_ok('ALTER TABLE parted ATTACH PARTITION keyed_2 FOR VALUES IN (2)', '55000', NULL,
	'a table with a key is not attached as a partition');
CREATE TABLE above (id int, content blobstate, UNIQUE (id, content)) PARTITION BY LIST (id);
CREATE TABLE below (id int, content blobstate);
SELECT blobext_set_digest('below', 'content', 'deferred');
SELECT throws_ok('ALTER TABLE above ATTACH PARTITION below FOR VALUES IN (1)', '55000', NULL,
	'a table with the label gets no key as a partition');

-- A lookup of an open value in an index of another column.
CREATE TABLE indexed (name text, content blobstate);
INSERT INTO indexed SELECT name, content FROM history;
CREATE INDEX ON indexed (content);
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SELECT is(count(*), 3::bigint, 'an index of another column finds an open value')
FROM indexed WHERE content = (SELECT content FROM history WHERE name = 'written');
RESET enable_seqscan; RESET enable_hashjoin; RESET enable_mergejoin;

-- More than 16 MB cannot be read under the lock of an index page.
CREATE TABLE huge (id int, content blobstate);
SELECT blobext_set_digest('huge', 'content', 'deferred');
INSERT INTO huge VALUES (1, convert_to(repeat('0123456789abcdef', 1100000), 'UTF8'));
UPDATE huge SET content = blob_write(content, 9000000, 'changed');
INSERT INTO indexed SELECT 'huge', overlay(convert_to(repeat('0123456789abcdef', 1100000), 'UTF8') PLACING 'changed' FROM 9000001);
SELECT throws_ok($$SELECT name FROM indexed WHERE content = (SELECT content FROM huge)$$, '55000', NULL,
	'an open value of more than 16 MB is not read under the lock of an index page') FROM set_config('enable_seqscan', 'off', false);
SELECT is(length(sha256(content)), 32, 'the digest of a huge value is computed before') FROM huge;
SELECT is((SELECT name FROM indexed WHERE content = (SELECT content FROM huge)), 'huge', 'a value whose digest is known is found in the index');
RESET enable_seqscan;

-- Two values that differ behind 16 MB: after both digests are known, contents decide the order, without a limit.
INSERT INTO indexed SELECT 'other end', overlay(convert_to(repeat('0123456789abcdef', 1100000), 'UTF8') PLACING 'changed' FROM 9000001) || 'x';
UPDATE huge SET content = blob_write(content, 17599999, 'y');
SET enable_seqscan = off;
SELECT is(length(sha256(content)), 32, 'the digest of a changed huge value is computed before') FROM huge;
SELECT is((SELECT count(*) FROM indexed WHERE content = (SELECT content FROM huge)), 0::bigint,
	'a value whose digest is known is compared with others that begin with the same 16 MB');
RESET enable_seqscan;

-- ---- ways into columns that have not opted in ----

CREATE FUNCTION has_open(blobstate) RETURNS bool LANGUAGE sql AS 'SELECT blob_digest_is_open($1)';
CREATE DOMAIN scan AS blobstate;
CREATE DOMAIN scans AS blobstate[];
CREATE TYPE nested AS (p pair, a blobstate[]);
CREATE TABLE source (id int PRIMARY KEY, content blobstate, generated blobstate GENERATED ALWAYS AS (content) STORED,
	list blobstate[] GENERATED ALWAYS AS (ARRAY[content]) STORED);
SELECT blobext_set_digest('source', 'content', 'deferred');
INSERT INTO source SELECT i, bytes(300000, i) FROM generate_series(1, 3) i;
UPDATE source SET content = blob_write(content, 1000, 'abc');
SELECT is(count(*), 3::bigint, 'values of the source are open') FROM source WHERE blob_digest_is_open(content);
SELECT is(count(*), 0::bigint, 'generated columns are sealed') FROM source WHERE blob_digest_is_open(generated) OR blob_digest_is_open(list[1]);
SELECT is(count(*), 3::bigint, 'generated columns have the content') FROM source WHERE generated = content AND list = ARRAY[content];
SELECT lives_ok('CREATE INDEX ON source (generated); CREATE INDEX ON source (list)', 'generated columns may be keys');
CREATE TABLE altered (id int, content blobstate, bare blobstate UNIQUE, domain scan, list blobstate[]);
SELECT blobext_set_digest('altered', 'content', 'deferred');
INSERT INTO altered SELECT id, content FROM source;
UPDATE altered SET content = blob_write(content, 1000, 'abd');
ALTER TABLE altered ALTER bare TYPE blobstate USING content, ALTER domain TYPE scan USING content, ALTER list TYPE blobstate[] USING ARRAY[content],
	ADD added blobstate GENERATED ALWAYS AS (content) STORED;
SELECT is(count(*), 0::bigint, 'ALTER TABLE ... USING seals') FROM altered
WHERE blob_digest_is_open(bare) OR blob_digest_is_open(domain) OR blob_digest_is_open(list[1]) OR blob_digest_is_open(added);
SELECT is(count(*), 3::bigint, 'ALTER TABLE ... USING has the content') FROM altered
WHERE bare = content AND domain = content AND list = ARRAY[content] AND added = content AND blob_digest_is_open(content);
CREATE TABLE held (id int, a blobstate[] UNIQUE, d scans, p pair UNIQUE, n nested, pp pair[]);
INSERT INTO held SELECT id, ARRAY[content], ARRAY[content]::scans, ROW('x', content)::pair, ROW(ROW('x', content)::pair, ARRAY[content])::nested,
	ARRAY[ROW('x', content)::pair] FROM source;
CREATE FUNCTION open_in_held() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM held WHERE blob_digest_is_open(a[1]) OR
	blob_digest_is_open(d[1]) OR blob_digest_is_open((p).content) OR blob_digest_is_open((n).a[1]) OR blob_digest_is_open(((n).p).content)
	OR blob_digest_is_open(pp[1].content) $$;
SELECT is(open_in_held(), 0::bigint, 'INSERT seals in arrays and rows');
UPDATE held SET a[1] = content, d = d || content, p.content = s.content, n.p.content = s.content, pp[1].content = s.content
FROM source AS s WHERE s.id = held.id;
SELECT is(open_in_held(), 0::bigint, 'UPDATE seals in arrays and rows');
INSERT INTO held (id, a) VALUES (4, (SELECT ARRAY[content, NULL] FROM source WHERE id = 1)), (5, NULL), (6, '{}');
SELECT is(open_in_held(), 0::bigint, 'INSERT of several rows seals in arrays');
SELECT is(count(*), 3::bigint, 'values in arrays and rows have the content') FROM held JOIN source USING (id)
WHERE a[1] = content AND d[1] = content AND (p).content = content AND ((n).p).content = content AND pp[1].content = content;
CREATE TABLE held_copy AS SELECT id, ROW('x', content)::pair AS p, ARRAY[content]::scans AS d FROM source;
SELECT is(count(*), 0::bigint, 'CREATE TABLE AS seals in arrays and rows') FROM held_copy
WHERE blob_digest_is_open((p).content) OR blob_digest_is_open(d[1]);

-- A trigger in PL/pgSQL can assign what no function of the extension sees.
CREATE TABLE by_trigger (id int, content blobstate);
CREATE FUNCTION take_content() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
	SELECT * INTO r FROM source WHERE id = NEW.id;
	NEW.content := r.content;
	RETURN NEW;
END $$;
CREATE TRIGGER take_content BEFORE INSERT ON by_trigger FOR EACH ROW EXECUTE FUNCTION take_content();
INSERT INTO by_trigger SELECT i FROM generate_series(1, 3) i;
SELECT is(count(*), 3::bigint, 'a trigger can bring open values in') FROM by_trigger WHERE blob_digest_is_open(content);
SELECT throws_like(format(statement, 'by_trigger'), '%are open%', 'open values are no keys of a new index: ' || statement)
FROM unnest(ARRAY['CREATE INDEX ON %s (content)', 'CREATE INDEX ON %s USING hash (content)', 'CREATE UNIQUE INDEX ON %s (content blobstate_digest_ops)',
	'ALTER TABLE %s ADD UNIQUE (content)', 'ALTER TABLE %s ADD EXCLUDE USING hash (content WITH =)']) statement;
SELECT throws_ok('CREATE INDEX ON by_trigger (id, content)', '55000', NULL, 'open values are no second key of a new index either');
CREATE TABLE any_range (id int, content blobstate) PARTITION BY RANGE (id);
CREATE INDEX ON any_range (content);
SELECT throws_like('ALTER TABLE any_range ATTACH PARTITION by_trigger FOR VALUES FROM (0) TO (10)', '%are open%',
	'a table with open values is not attached where it would get an index of them');
SELECT lives_ok('CREATE INDEX ON by_trigger (id) INCLUDE (content)', 'an index may include open values');
UPDATE by_trigger SET content = content;
SELECT lives_ok('CREATE INDEX ON by_trigger (content)', 'an UPDATE seals what a trigger has brought in');

-- A column that is sealed from now on still has open values.
CREATE TABLE changed_mind (id int, content blobstate);
SELECT blobext_set_digest('changed_mind', 'content', 'deferred');
INSERT INTO changed_mind SELECT id, content FROM source;
SELECT blobext_set_digest('changed_mind', 'content', 'sealed');
SELECT throws_like('CREATE INDEX ON changed_mind (content)', '%are open%', 'a column with open values gets no index');
CALL blobext_seal('changed_mind', 'content') \gset
SELECT lives_ok('CREATE INDEX ON changed_mind (content)', 'a column that was sealed gets an index');

-- Large open keys that came by a trigger: sealing comes to an end.
INSERT INTO source SELECT 100 + i, convert_to(repeat('0123456789abcdef', 1100000), 'UTF8') FROM generate_series(1, 3) i;
CREATE TABLE large_keys (id int, content blobstate);
CREATE INDEX ON large_keys (content);
CREATE TRIGGER take_content BEFORE INSERT ON large_keys FOR EACH ROW EXECUTE FUNCTION take_content();
UPDATE source SET content = blob_write(content, 17000000, id::text::bytea) WHERE id > 100;
SELECT length(sha256(content)) FROM source WHERE id > 100;
INSERT INTO large_keys SELECT 100 + i FROM generate_series(1, 3) i;
SELECT is(count(*), 3::bigint, 'large open values are keys') FROM large_keys WHERE blob_digest_is_open(content);

-- ---- the label and other objects ----

CREATE TABLE retyped (a blobstate, b blobstate);
SELECT blobext_set_digest('retyped', 'a', 'deferred'), blobext_set_digest('retyped', 'b', 'deferred');
SELECT blobext_set_compression('retyped', 'b', 'zstd');
ALTER TABLE retyped ALTER a TYPE bytea USING a::bytea, ALTER b TYPE blobstate[] USING ARRAY[b];
SELECT ok(label('retyped', 'a') IS NULL, 'a column that becomes bytea loses the digest of its label');
SELECT is(label('retyped', 'b'), 'zstd', 'a column that becomes an array keeps the method of its label');
CREATE TABLE kept_domain (a blobstate);
SELECT blobext_set_digest('kept_domain', 'a', 'deferred');
ALTER TABLE kept_domain ALTER a TYPE scan;
SELECT is(label('kept_domain', 'a'), 'digest deferred', 'a column that becomes a domain of blobstate keeps the digest of its label');

CREATE TABLE hashed (id int, content blobstate) PARTITION BY HASH (content);
CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 1, REMAINDER 0) PARTITION BY LIST (id);
CREATE TABLE hashed_2 PARTITION OF hashed_1 FOR VALUES IN (1);
SELECT throws_ok(format($$SELECT blobext_set_digest('%s', 'content', 'deferred')$$, name), '55000', NULL,
	'a column by which a table above is partitioned cannot opt in: ' || name) FROM unnest(ARRAY['hashed_1', 'hashed_2']) name;
CREATE TABLE by_hash (id int, content blobstate) PARTITION BY HASH (content);
CREATE TABLE opted_in (id int, content blobstate);
SELECT blobext_set_digest('opted_in', 'content', 'deferred');
SELECT throws_ok('ALTER TABLE by_hash ATTACH PARTITION opted_in FOR VALUES WITH (MODULUS 1, REMAINDER 0)', '55000', NULL,
	'a table with the label is not attached where its column is the partition key');

-- ---- values that are rewritten ----

CALL blobext_dedup('history', 'content') \gset
SELECT is(:rows_failed, 0, 'blobext_dedup() leaves open values out');
CREATE TABLE rewritten (id int, content blobstate, original bytea);
SELECT blobext_set_digest('rewritten', 'content', 'deferred');
INSERT INTO rewritten SELECT i, bytes(300000, i), bytes(300000, i) FROM generate_series(1, 3) i;
UPDATE rewritten SET content = blob_write(content, 1000, 'abc'), original = overlay(original PLACING 'abc' FROM 1001);
CALL blobext_defragment('rewritten', 'content', 0, 0) \gset
SELECT is(ARRAY[:rows_changed, :rows_failed], ARRAY[3, 0], 'blobext_defragment() writes open values anew');
SELECT is(count(*), 3::bigint, 'values that were written anew have right digests') FROM rewritten
WHERE NOT blob_digest_is_open(content) AND sha256(content) = sha256(original) AND content::bytea = original;
UPDATE rewritten SET content = blob_write(content, 1000, 'abd'), original = overlay(original PLACING 'abd' FROM 1001);
SELECT is(count(*), 3::bigint, 'a change after that leaves digests open') FROM rewritten WHERE blob_digest_is_open(content);

-- ---- sealing ----

SELECT digest_count AS before FROM (SELECT count(*) AS digest_count FROM doc WHERE blob_digest_is_open(content)) AS x \gset
SELECT cmp_ok(:before, '>', 0, 'there are open values to be sealed');
CALL blobext_seal('doc', 'content') \gset
SELECT is(ARRAY[:rows_sealed, :rows_skipped, :rows_failed], ARRAY[:before, 0, 0], 'blobext_seal() counts the rows that it seals');
SELECT is(count(*), 0::bigint, 'no value is open after that') FROM doc WHERE blob_digest_is_open(content);
SELECT is_empty('SELECT id FROM doc WHERE sha256(content) <> sha256(original) OR content::bytea <> original',
	'digests and contents are right after that');
SELECT is(cost('content_read_bytes', 'SELECT sha256(content) FROM doc'), 0::bigint, 'digests are read from the rows after that');
UPDATE doc SET content = content || 'more', original = original || 'more';
SELECT is(count(*), 0::bigint, 'an append to a value that was sealed is sealed') FROM doc
WHERE blob_digest_is_open(content) OR sha256(content) <> sha256(original);
CALL blobext_seal('doc', 'content') \gset
SELECT is(ARRAY[:rows_sealed, :rows_skipped, :rows_failed], ARRAY[0, 0, 0], 'the next call finds nothing');
UPDATE doc SET content = blob_write(content, 2000, 'abc') WHERE id = 3;
SELECT ok(blob_digest_is_open(content), 'the column has still opted in') FROM doc WHERE id = 3;
SELECT blobext_set_digest('doc', 'content', 'sealed');
CALL blobext_seal('doc', 'content', 1);
SELECT is(count(*), 0::bigint, 'the procedure is called with a size of batches') FROM doc WHERE blob_digest_is_open(content);
SELECT lives_ok('CREATE UNIQUE INDEX ON doc (content)', 'the column can become a key after that');
SELECT throws_ok($$SELECT blobext_set_digest('doc', 'content', 'deferred')$$, '55000', NULL, 'a column that is a key cannot opt in again');
SELECT throws_ok($$CALL blobext_seal('doc', 'content')$$, '25001', NULL, 'blobext_seal() is no part of a function');
SELECT is_empty('SELECT * FROM blobext_check()', 'blobext_check() finds nothing at the end');

SELECT * FROM finish();
DROP SCHEMA open_digests CASCADE;
DROP ROLE stranger;
