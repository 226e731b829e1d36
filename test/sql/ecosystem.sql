--
-- Values of type blobstate wherever PostgreSQL lets a value be.  How values reach extents is the
-- matter of store_paths; here contents must be right, also when the row around them changes.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS blobext;
RESET client_min_messages;
CREATE SCHEMA ecosystem;
SET search_path = ecosystem, public;

CREATE FUNCTION bytes(n int, seed int DEFAULT 0) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT coalesce(substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR n), '')
	FROM generate_series(1, (n + 31) / 32) i
$$;
-- Rows whose content is not bytes(n, id): none, in every test below.
CREATE FUNCTION wrong(relation regclass, expression text DEFAULT 'b', n text DEFAULT 'n',
	id text DEFAULT 'id') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	result bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM %s WHERE (%2$s::bytea = bytes(%3$s, %4$s)
			AND sha256(%2$s) = sha256(bytes(%3$s, %4$s))
			AND blob_storage(%2$s) = CASE WHEN %3$s > 1900 THEN ''extents'' ELSE ''inline'' END)
		IS NOT TRUE', relation, expression, n, id)
		INTO result;
	RETURN result;
END $$;
CREATE TABLE source (id int PRIMARY KEY, n int, content bytea);
INSERT INTO source SELECT id, n, bytes(n, id::int) FROM unnest(ARRAY[0, 1, 100, 1900, 1901, 4096, 5000,
	20000, 65537, 200000]) WITH ORDINALITY s (n, id);

--
-- psql
--
CREATE TABLE t (id int PRIMARY KEY, n int, b blobstate NOT NULL);
\d t
SELECT attname, attstorage, attcompression FROM pg_attribute
	WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum;
\dT blobstate
INSERT INTO t SELECT id, n, content FROM source;
SELECT wrong('t');
-- It fails where it should.
UPDATE t SET id = 11 WHERE id = 10;
SELECT wrong('t');
UPDATE t SET id = 10 WHERE id = 11;
SELECT id, b FROM t WHERE n < 10 ORDER BY id;
SELECT b AS variable FROM t WHERE id = 3 \gset
SELECT :'variable'::bytea = bytes(100, 3);

--
-- Arrays, composite types, domains
--
CREATE TYPE attachment AS (name text, n int, body blobstate);
CREATE DOMAIN large_blob AS blobstate CHECK (length(VALUE) > 1024);
CREATE DOMAIN small_blob AS blobstate CHECK (length(VALUE) <= 1024) NOT NULL;
CREATE TABLE containers (id int, bodies blobstate[], one attachment, many attachment[],
	large large_blob);
INSERT INTO containers SELECT 1, array_agg(content::blobstate ORDER BY id),
	(SELECT ROW('x', n, content)::attachment FROM source WHERE id = 7),
	array_agg(ROW('a' || id, n, content)::attachment ORDER BY id),
	(SELECT content FROM source WHERE id = 8) FROM source;
SELECT count(*), bool_and(b::bytea = content) FROM containers, unnest(bodies) WITH ORDINALITY u (b, o)
	JOIN source s ON s.id = o;
SELECT (one).name, length((one).body), (one).body::bytea = bytes(5000, 7) FROM containers;
SELECT count(*), bool_and(m.body::bytea = content) FROM containers,
	unnest(many) WITH ORDINALITY m (name, n, body, o) JOIN source s ON s.id = o;
UPDATE containers SET bodies[3] = bodies[9], bodies[11] = bytes(3000, 11), one.body = (one).body;
SELECT length(bodies[3]), bodies[11]::bytea = bytes(3000, 11), array_length(bodies, 1) FROM containers;
UPDATE containers SET bodies = bodies || bytes(2000, 12)::blobstate, many[1].body = bytes(2000, 13);
SELECT bodies[12]::bytea = bytes(2000, 12), (many[1]).body::bytea = bytes(2000, 13) FROM containers;
SELECT bodies[5:6]::bytea[] = ARRAY[bytes(1901, 5), bytes(4096, 6)] FROM containers;
INSERT INTO containers (large) VALUES (bytes(1024));
CREATE TABLE of_small (b small_blob);
INSERT INTO of_small VALUES (NULL);
INSERT INTO of_small VALUES (bytes(1025));
INSERT INTO of_small VALUES (bytes(1024));
ALTER DOMAIN large_blob ADD CHECK (sha256(VALUE) <> sha256(bytes(20000, 8)));
ALTER DOMAIN large_blob ADD CHECK (blob_read(VALUE, 0, 2) <> '\x0000');
SELECT length(ROW('a', 2, bytes(2000))::attachment::text);
SELECT (ROW('a', 2, bytes(2000))::attachment::text::attachment).body::bytea = bytes(2000);
SELECT (ARRAY[bytes(2000), NULL, '']::blobstate[]::text::blobstate[])[1]::bytea = bytes(2000);
SELECT blob_storage(large::large_blob), pg_typeof(large) FROM containers;

--
-- JSON and XML show content as bytea's are shown
--
SELECT to_jsonb(b) = to_jsonb(b::bytea), to_json(b)::text = to_json(b::bytea)::text,
	row_to_json(t)::jsonb ->> 'b' = b::text FROM t WHERE id = 7;
SELECT count(*) FROM jsonb_populate_recordset(NULL::t, (SELECT jsonb_agg(t) FROM t)) j JOIN t USING (id)
	WHERE j.b::bytea = t.b::bytea;

--
-- Views, updatable views, rules
--
CREATE VIEW large AS SELECT id, n, b FROM t WHERE length(b) > 4096 WITH CHECK OPTION;
SELECT wrong('large');
INSERT INTO large VALUES (20, 6000, bytes(6000, 20));
INSERT INTO large VALUES (21, 3000, bytes(3000, 21));
UPDATE large SET b = bytes(7000, 20), n = 7000 WHERE id = 20;
UPDATE large SET b = bytes(70, 20), n = 70 WHERE id = 20;
DELETE FROM large WHERE id = 20 RETURNING length(b);
CREATE VIEW security_view WITH (security_barrier) AS SELECT id, n, b FROM t;
SELECT wrong('security_view');
SELECT pg_get_viewdef('large'::regclass) LIKE '%length(%';

CREATE TABLE log (id int, n int, b blobstate, what text);
CREATE RULE also AS ON INSERT TO t DO ALSO INSERT INTO log VALUES (new.id, new.n, new.b, 'rule');
CREATE RULE on_update AS ON UPDATE TO t WHERE old.id = 31
	DO INSTEAD INSERT INTO log VALUES (old.id, old.n, old.b, 'kept');
INSERT INTO t VALUES (30, 5001, bytes(5001, 30)), (31, 100, bytes(100, 31));
UPDATE t SET b = bytes(5002, 31), n = 5002 WHERE id = 31;
UPDATE t SET b = bytes(5002, 30), n = 5002 WHERE id = 30;
SELECT wrong('t'), wrong('log'), (SELECT string_agg(what, ',' ORDER BY what) FROM log);
DROP RULE also ON t;
DROP RULE on_update ON t;
DELETE FROM t WHERE id > 10;

--
-- Triggers: before, after with transition tables, instead, constraint
--
TRUNCATE log;
CREATE FUNCTION before_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'UPDATE' AND sha256(old.b) = sha256(new.b) THEN
		RETURN NULL;
	END IF;
	new.n := length(new.b);
	IF TG_OP = 'DELETE' THEN
		RETURN old;
	END IF;
	RETURN new;
END $$;
CREATE FUNCTION after_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN
		INSERT INTO log VALUES (old.id, old.n, old.b, TG_OP);
	ELSE
		INSERT INTO log VALUES (new.id, new.n, new.b, TG_OP);
	END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION after_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log SELECT id, n, b, 'new rows' FROM new_rows;
	RETURN NULL;
END $$;
CREATE TRIGGER before_change BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION before_change();
CREATE TRIGGER after_change AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW
	EXECUTE FUNCTION after_change();
CREATE TRIGGER after_statement AFTER INSERT ON t REFERENCING NEW TABLE AS new_rows
	FOR EACH STATEMENT EXECUTE FUNCTION after_statement();
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
	EXECUTE FUNCTION after_change();
BEGIN;
INSERT INTO t (id, b) VALUES (40, bytes(40000, 40)), (41, bytes(41, 41));
UPDATE t SET b = bytes(40000, 40) WHERE id = 40;
UPDATE t SET b = bytes(40001, 40) WHERE id = 40;
COMMIT;
DELETE FROM t WHERE id >= 40;
SELECT what, count(*), sum(n) FROM log GROUP BY 1 ORDER BY 1;
SELECT wrong('log');
DROP TRIGGER before_change ON t;
DROP TRIGGER after_change ON t;
DROP TRIGGER after_statement ON t;
DROP TRIGGER deferred ON t;
CREATE FUNCTION instead_of_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE t SET b = new.b, n = length(new.b) WHERE id = old.id;
	RETURN new;
END $$;
CREATE VIEW joined AS SELECT t.id, t.n, b, content FROM t JOIN source USING (id);
CREATE TRIGGER instead INSTEAD OF UPDATE ON joined FOR EACH ROW EXECUTE FUNCTION instead_of_change();
UPDATE joined SET b = bytes(9000, id) WHERE id = 2 RETURNING length(b);
SELECT wrong('t');

--
-- Partitions, with rows that move
--
CREATE TABLE parted (id int, n int, b blobstate, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (6);
CREATE TABLE parted_2 (b blobstate, extra int, id int NOT NULL, n int);
ALTER TABLE parted_2 DROP COLUMN extra;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM (6) TO (100);
CREATE TABLE parted_default PARTITION OF parted DEFAULT;
INSERT INTO parted SELECT id, n, content FROM source;
SELECT wrong('parted'), (SELECT count(*) FROM parted_2);
UPDATE parted SET id = id + 1000 WHERE id IN (9, 10);
UPDATE parted SET id = id - 1000, b = bytes(n, id - 1000) WHERE id > 1000;
SELECT wrong('parted'), (SELECT count(*) FROM parted_2), (SELECT count(*) FROM parted_default);
ALTER TABLE parted DETACH PARTITION parted_2;
SELECT wrong('parted'), wrong('parted_2');
CREATE TABLE by_list (b blobstate, id int, n int) PARTITION BY LIST (n);
CREATE TABLE by_list_1 PARTITION OF by_list FOR VALUES IN (1, 100);
CREATE TABLE by_list_2 PARTITION OF by_list DEFAULT PARTITION BY HASH (id);
CREATE TABLE by_list_2_0 PARTITION OF by_list_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE by_list_2_1 PARTITION OF by_list_2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO by_list SELECT content, id, n FROM source;
SELECT wrong('by_list'), (SELECT count(*) > 0 FROM by_list_2_0);
CREATE TABLE parent (id int, n int, b blobstate);
CREATE TABLE child (more text) INHERITS (parent);
INSERT INTO child SELECT id, n, content, 'x' FROM source;
INSERT INTO parent SELECT id, n, content FROM source;
UPDATE parent SET b = bytes(2222, id), n = 2222 WHERE id = 4;
SELECT wrong('parent'), (SELECT count(*) FROM parent);

--
-- Generated columns, expression indexes, constraints, statistics
--
CREATE TABLE generated (id int, n int, b blobstate,
	size bigint GENERATED ALWAYS AS (length(b)) STORED,
	digest bytea GENERATED ALWAYS AS (sha256(b)) STORED,
	CHECK (length(b) < 1000000), EXCLUDE (id WITH =));
CREATE UNIQUE INDEX generated_sha256 ON generated (sha256(b)) INCLUDE (id);
INSERT INTO generated (id, n, b) SELECT id, n, content FROM source;
SELECT wrong('generated'), (SELECT bool_and(size = n AND digest = sha256(bytes(n, id))) FROM generated);
INSERT INTO generated (id, n, b) VALUES (11, 5000, bytes(5000, 7));
UPDATE generated SET b = bytes(5000, 7), n = 5000 WHERE id = 3;
UPDATE generated SET b = bytes(5001, 3), n = 5001 WHERE id = 3 RETURNING size;
INSERT INTO generated (id, b) VALUES (11, bytes(1000000, 11));
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM generated WHERE sha256(b) = sha256(bytes(200000, 10));
SELECT id FROM generated WHERE sha256(b) = sha256(bytes(200000, 10));
RESET enable_seqscan;
CREATE STATISTICS generated_statistics ON length(b), id FROM generated;
ANALYZE generated;
SELECT null_frac, avg_width < 500 AS narrow FROM pg_stats WHERE tablename = 'generated' AND attname = 'b';

--
-- Row security
--
CREATE TABLE secured (id int, n int, b blobstate, owner name);
INSERT INTO secured SELECT id, n, content, CASE id % 2 WHEN 0 THEN 'ecosystem_reader' ELSE 'x' END FROM source;
ALTER TABLE secured ENABLE ROW LEVEL SECURITY;
CREATE ROLE ecosystem_reader;
CREATE POLICY own ON secured USING (owner = current_user AND length(b) > 10)
	WITH CHECK (owner = current_user AND blob_read(b, 0, 1) <> '\x00');
GRANT USAGE ON SCHEMA ecosystem TO ecosystem_reader;
GRANT ALL ON secured TO ecosystem_reader;
SET ROLE ecosystem_reader;
SELECT count(*), wrong('secured') FROM secured;
INSERT INTO secured VALUES (50, 3000, bytes(3000, 50), 'ecosystem_reader');
INSERT INTO secured VALUES (51, 3000, decode(repeat('00', 3000), 'hex'), 'ecosystem_reader');
UPDATE secured SET b = bytes(3001, id), n = 3001 WHERE id = 50;
SELECT count(*), wrong('secured') FROM secured;
RESET ROLE;
-- Column privileges.
CREATE TABLE columns (id int, b blobstate);
INSERT INTO columns VALUES (1, bytes(3000));
GRANT SELECT (id), INSERT (b) ON columns TO ecosystem_reader;
SET ROLE ecosystem_reader;
SELECT b FROM columns;
INSERT INTO columns (b) VALUES (bytes(2000));
SELECT first_page FROM blobext_map;
SELECT * FROM blobext_check();
RESET ROLE;

--
-- Rows with neighbours that are compressed and toasted, wide rows, dropped columns
--
CREATE TABLE neighbours (before text, id int, b blobstate, n int, after text, external bytea);
ALTER TABLE neighbours ALTER external SET STORAGE EXTERNAL;
INSERT INTO neighbours SELECT repeat('compressible ', 10000), id, content, n,
	(SELECT string_agg(encode(sha256(convert_to(i::text, 'UTF8')), 'hex'), '') FROM generate_series(1, 500) i),
	content FROM source;
SELECT wrong('neighbours'), bool_and(external = bytes(n, id) AND length(before) = 130000 AND length(after) = 32000)
	FROM neighbours;
UPDATE neighbours SET before = before || 'x', external = external || 'x';
SELECT wrong('neighbours');
SET blobext.inline_limit = '1MB';
-- Inline values that do not fit into a page are toasted, and compressed where that helps.
INSERT INTO neighbours (id, n, b) SELECT id + 100, n, bytes(n, id + 100) FROM source;
INSERT INTO neighbours (id, b) VALUES (1000, decode(repeat('ab', 500000), 'hex'));
RESET blobext.inline_limit;
SELECT blob_storage(b), pg_column_size(b) < 20000 AS compressed, length(b), b::bytea = decode(repeat('ab', 500000), 'hex'),
	blob_read(b, 499998, 10) FROM neighbours WHERE id = 1000;
SELECT count(*), bool_and(b::bytea = bytes(n, id)), string_agg(DISTINCT blob_storage(b), ',') FROM neighbours
	WHERE id BETWEEN 101 AND 110;
ALTER TABLE neighbours ALTER b SET STORAGE external;
UPDATE neighbours SET after = '' WHERE id < 100;
ALTER TABLE neighbours ALTER b SET STORAGE plain;
UPDATE neighbours SET after = 'y' WHERE id < 100;
ALTER TABLE neighbours ALTER b SET STORAGE extended;
UPDATE neighbours SET after = 'z', before = '' WHERE id < 100;
CREATE VIEW first_neighbours AS SELECT id, n, b FROM neighbours WHERE id < 100;
SELECT wrong('first_neighbours'), count(*) FROM first_neighbours;

--
-- Foreign keys to the row
--
CREATE TABLE tags (of int REFERENCES t (id) ON DELETE CASCADE ON UPDATE CASCADE, tag text);
INSERT INTO tags SELECT id, 'tag' FROM t;
INSERT INTO tags VALUES (999, 'none');
UPDATE t SET id = 60 WHERE id = 6;
SELECT count(*) FROM tags WHERE of = 60;
UPDATE t SET id = 6 WHERE id = 60;
BEGIN;
DELETE FROM t WHERE id = 6;
SELECT count(*) FROM tags;
ROLLBACK;
SELECT wrong('t');

--
-- ON CONFLICT, MERGE, CTE, RETURNING
--
INSERT INTO t VALUES (1, 6000, bytes(6000, 1)) ON CONFLICT DO NOTHING;
INSERT INTO t VALUES (1, 6000, bytes(6000, 1)), (70, 70, bytes(70, 70))
	ON CONFLICT (id) DO UPDATE SET b = excluded.b, n = excluded.n
	WHERE sha256(t.b) <> sha256(excluded.b) RETURNING id, length(b), blob_storage(b);
SELECT wrong('t');
MERGE INTO t USING (SELECT id + 2 AS id, n + 5000 AS n, bytes(n + 5000, id + 2) AS b FROM source) s
	ON t.id = s.id
	WHEN MATCHED AND t.id = 5 THEN DELETE
	WHEN MATCHED AND t.id < 8 THEN UPDATE SET b = s.b, n = s.n
	WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.n, s.b);
SELECT wrong('t'), (SELECT count(*) FROM t), (SELECT sum(n) FROM t);
CREATE TABLE archive (LIKE t);
WITH moved AS (DELETE FROM t WHERE id IN (7, 8, 9) RETURNING *),
	stored AS (INSERT INTO archive SELECT * FROM moved RETURNING id, n, b),
	changed AS (UPDATE t SET b = s.b, n = s.n, id = s.id + 100 FROM stored s WHERE t.id = s.id + 3 RETURNING t.*)
SELECT count(*), sum(length(b)) FROM changed;
SELECT wrong('archive'), (SELECT count(*) FROM archive);
INSERT INTO t SELECT * FROM archive RETURNING id, length(b), (SELECT count(*) > 0 FROM blob_extents(b));
WITH RECURSIVE r AS (SELECT id, n, b FROM t WHERE id = 3 UNION ALL
	SELECT r.id + 1, t.n, t.b FROM r JOIN t ON t.id = r.id + 1 WHERE r.id < 6)
SELECT count(*), sum(length(b)) FROM r;
SELECT id, length(lag(b) OVER w), length(first_value(b) OVER w) FROM t WHERE id < 5
	WINDOW w AS (ORDER BY id) ORDER BY id;
SELECT length((array_agg(b ORDER BY id DESC))[1]), count(b), count(DISTINCT sha256(b)) FROM t WHERE id < 5;
SELECT l.id FROM t l LEFT JOIN LATERAL (SELECT b FROM archive a WHERE a.id = l.id) a ON true
	WHERE a.b IS NOT NULL ORDER BY 1;

--
-- plpgsql: variables, loops, exceptions, cursors, dynamic SQL, out parameters
--
CREATE FUNCTION in_plpgsql(IN wanted int, OUT size bigint, OUT copy blobstate) LANGUAGE plpgsql AS $$
DECLARE
	v blobstate;
	row t%ROWTYPE;
	field t.b%TYPE;
	c CURSOR FOR SELECT * FROM t ORDER BY id;
	total bigint := 0;
	chunk bytea;
	whole bytea := '';
BEGIN
	SELECT b INTO STRICT v FROM t WHERE id = wanted;
	FOR row IN SELECT * FROM t LOOP
		total := total + length(row.b);
	END LOOP;
	OPEN c;
	LOOP
		FETCH c INTO row;
		EXIT WHEN NOT FOUND;
		field := row.b;
		total := total - length(field);
	END LOOP;
	CLOSE c;
	ASSERT total = 0;
	BEGIN
		INSERT INTO t VALUES (wanted, 0, v);
	EXCEPTION WHEN unique_violation THEN
		total := 1;
	END;
	ASSERT total = 1;
	FOR i IN 0 .. length(v) / 1000 LOOP
		chunk := blob_read(v, i * 1000, 1000);
		whole := whole || chunk;
	END LOOP;
	ASSERT whole = v::bytea;
	size := length(v);
	copy := whole;
END $$;
SELECT size, copy::bytea = b::bytea FROM in_plpgsql(9), t WHERE id = 9;
CREATE FUNCTION of_sql(blobstate) RETURNS blobstate LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION set_of_sql() RETURNS SETOF t LANGUAGE sql AS 'SELECT * FROM t';
SELECT bool_and(of_sql(b)::bytea = b::bytea) FROM t;
SELECT count(*), sum(length(b)) = (SELECT sum(n) FROM t) FROM set_of_sql();
CREATE PROCEDURE store_twice(INOUT v blobstate) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO archive VALUES (200, length(v), v);
	COMMIT;
	v := bytes(4000, 201);
	INSERT INTO archive VALUES (201, length(v), v);
	ROLLBACK;
	INSERT INTO archive VALUES (201, length(v), v);
END $$;
TRUNCATE archive;
CALL store_twice(bytes(3000, 200)::blobstate);
SELECT wrong('archive'), count(*) FROM archive;
BEGIN;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT id, b FROM t ORDER BY id;
COMMIT;
DELETE FROM t WHERE id > 8;
FETCH ABSOLUTE 9 FROM c \gset fetched_
CLOSE c;
SELECT :'fetched_b'::bytea = bytes(octet_length(:'fetched_b'::bytea), :fetched_id);
PREPARE p (blobstate, bytea, int) AS SELECT length($1), length($2::blobstate), b::bytea = $2 FROM t WHERE id = $3;
EXECUTE p ('\x010203', bytes(1024, 4), 4);
EXECUTE p (bytes(3000)::blobstate, bytes(1024, 4), 4);

--
-- Transactions: savepoints, two-phase commit, rollback
--
TRUNCATE archive;
BEGIN;
INSERT INTO archive VALUES (1, 4000, bytes(4000, 1));
SAVEPOINT a;
INSERT INTO archive VALUES (2, 4000, bytes(4000, 2));
ROLLBACK TO a;
INSERT INTO archive VALUES (3, 4000, bytes(4000, 3));
RELEASE a;
COMMIT;
BEGIN;
INSERT INTO archive VALUES (4, 4000, bytes(4000, 4));
PREPARE TRANSACTION 'ecosystem';
SELECT count(*) FROM archive;
COMMIT PREPARED 'ecosystem';
SELECT wrong('archive'), string_agg(id::text, ',' ORDER BY id) FROM archive;

--
-- Temporary and unlogged tables, tables made and rewritten
--
CREATE TEMP TABLE temporary (id int, n int, b blobstate) ON COMMIT DELETE ROWS;
BEGIN;
INSERT INTO temporary SELECT id, n, content FROM source;
SELECT wrong('temporary'), count(*) FROM temporary;
COMMIT;
SELECT count(*) FROM temporary;
CREATE UNLOGGED TABLE unlogged AS SELECT id, n, content::blobstate AS b FROM source;
SELECT wrong('unlogged');
ALTER TABLE unlogged SET LOGGED;
SELECT wrong('unlogged');
ALTER TABLE unlogged SET UNLOGGED;
SELECT wrong('unlogged');
CREATE MATERIALIZED VIEW materialized AS SELECT id, n, b FROM unlogged;
SELECT wrong('materialized');
INSERT INTO unlogged VALUES (11, 3000, bytes(3000, 11));
REFRESH MATERIALIZED VIEW materialized;
SELECT wrong('materialized'), count(*) FROM materialized;
\d materialized

ALTER TABLE unlogged ADD COLUMN added int DEFAULT (random() * 10)::int;
-- (A later release ends the detail with a point.)
\set VERBOSITY terse
ALTER TABLE unlogged ALTER COLUMN n TYPE bigint;
ALTER TABLE unlogged DROP COLUMN added;
ALTER TABLE unlogged ALTER COLUMN n TYPE int;
SELECT wrong('unlogged'), count(*) FROM unlogged;
ALTER TABLE unlogged ALTER COLUMN b TYPE bytea;
SELECT bool_and(b = bytes(n, id)) FROM unlogged;
ALTER TABLE unlogged ALTER COLUMN b TYPE blobstate;
\set VERBOSITY default
SELECT wrong('unlogged');
CREATE INDEX unlogged_id ON unlogged (id DESC);
CLUSTER unlogged USING unlogged_id;
SELECT wrong('unlogged'), count(*) FROM unlogged;
UPDATE unlogged SET id = id;
DELETE FROM unlogged WHERE id = 5;
VACUUM FULL unlogged;
VACUUM (FREEZE, ANALYZE) unlogged;
SELECT wrong('unlogged'), count(*) FROM unlogged;
ALTER TABLE unlogged RENAME COLUMN b TO blob;
ALTER TABLE unlogged RENAME COLUMN blob TO b;
SELECT wrong('unlogged');
SELECT count(*), sum(length(b)) FROM unlogged TABLESAMPLE bernoulli (100);

--
-- COPY: the same files as bytea writes, and back, in every direction
--
SELECT current_setting('data_directory') || '/ecosystem_' AS file \gset
\set blob_text :file blob.txt
\set bytea_text :file bytea.txt
\set blob_csv :file blob.csv
\set bytea_csv :file bytea.csv
\set blob_binary :file blob.bin
\set bytea_binary :file bytea.bin
CREATE TABLE copied_blob (id int, n int, b blobstate);
CREATE TABLE copied_bytea (id int, n int, b bytea);
INSERT INTO copied_blob SELECT id, n, content FROM source UNION ALL SELECT 11, NULL, NULL ORDER BY id;
INSERT INTO copied_bytea SELECT id, n, content FROM source UNION ALL SELECT 11, NULL, NULL ORDER BY id;
COPY copied_blob TO :'blob_text';
COPY copied_bytea TO :'bytea_text';
COPY copied_blob TO :'blob_csv' CSV HEADER;
COPY copied_bytea TO :'bytea_csv' CSV HEADER;
COPY copied_blob TO :'blob_binary' BINARY;
COPY (SELECT id, n, b FROM copied_bytea) TO :'bytea_binary' BINARY;
SELECT pg_read_binary_file(:'blob_text') = pg_read_binary_file(:'bytea_text') AS text,
	pg_read_binary_file(:'blob_csv') = pg_read_binary_file(:'bytea_csv') AS csv,
	pg_read_binary_file(:'blob_binary') = pg_read_binary_file(:'bytea_binary') AS binary,
	length(pg_read_binary_file(:'bytea_binary')) > 290000 AS complete;
TRUNCATE copied_blob, copied_bytea;
COPY copied_blob FROM :'bytea_text';
COPY copied_blob FROM :'bytea_csv' CSV HEADER;
COPY copied_blob FROM :'bytea_binary' BINARY;
COPY copied_bytea FROM :'blob_text';
COPY copied_bytea FROM :'blob_csv' CSV HEADER;
COPY copied_bytea FROM :'blob_binary' BINARY;
SELECT count(*), count(b), wrong('copied_blob') AS nulls FROM copied_blob;
SELECT count(*), count(b), bool_and(b = bytes(n, id)) FROM copied_bytea;
SELECT id, count(*), count(DISTINCT sha256(b)) FROM copied_blob GROUP BY 1 ORDER BY 1;
SET bytea_output = escape;
COPY copied_blob TO :'blob_text';
COPY (SELECT id, n, b::bytea FROM copied_blob) TO :'bytea_text';
RESET bytea_output;
SELECT pg_read_binary_file(:'blob_text') = pg_read_binary_file(:'bytea_text') AS escape;
TRUNCATE copied_blob;
COPY copied_blob FROM :'blob_text' (FREEZE false) WHERE n > 100;
SELECT count(*), wrong('copied_blob') FROM copied_blob;
BEGIN;
TRUNCATE copied_blob;
COPY copied_blob FROM :'bytea_text' (FREEZE);
COMMIT;
SELECT count(*), count(b), wrong('copied_blob') AS nulls FROM copied_blob;
-- Broken input.
COPY copied_blob FROM stdin;
1	1	\\x123
\.
COPY copied_blob (b) FROM stdin;
\\xzz
\.

--
-- Many rows
--
CREATE TABLE many (id int, n int, b blobstate);
INSERT INTO many SELECT i, 1025 + i % 7000, convert_to(repeat(chr(65 + i % 26), 1025 + i % 7000), 'UTF8')
	FROM generate_series(1, 5000) i;
INSERT INTO many SELECT i, 5, 'small' FROM generate_series(5001, 30000) i;
SELECT blob_storage(b), count(*), sum(length(b)),
	bool_and(b::bytea = CASE WHEN id > 5000 THEN 'small' ELSE convert_to(repeat(chr(65 + id % 26), n), 'UTF8') END)
	FROM many GROUP BY 1 ORDER BY 1;
DELETE FROM many WHERE id % 2 = 0;
INSERT INTO many SELECT id + 1, n, b FROM many;
VACUUM many;
SELECT blob_storage(b), count(*), sum(length(b)) FROM many GROUP BY 1 ORDER BY 1;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SELECT CASE WHEN current_setting('server_version_num')::int < 160000
	THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END AS force_parallel \gset
SET :force_parallel = on;
EXPLAIN (COSTS OFF) SELECT sum(length(blob_read(b, 10, 10))) FROM many;
SELECT sum(length(blob_read(b, 10, 10))), sum(length(b)) FROM many;
RESET :force_parallel;

SELECT * FROM blobext_check();
DROP OWNED BY ecosystem_reader;
DROP ROLE ecosystem_reader;
SET client_min_messages = warning;
DROP SCHEMA ecosystem CASCADE;
