-- A database to dump.
CREATE EXTENSION blobext;
CREATE SCHEMA s;
CREATE FUNCTION s.bytes(n int, seed int DEFAULT 0) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT coalesce(substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL
		ORDER BY i) FROM 1 FOR n), '')
	FROM generate_series(1, (n + 31) / 32) i
$$;
CREATE DOMAIN s.document AS blobstate CHECK (length(VALUE) < 100000000);
CREATE TYPE s.pair AS (name text, body blobstate);

CREATE TABLE s.t (id int PRIMARY KEY, b blobstate DEFAULT '\x646566', d s.document, a blobstate[],
	p s.pair, size bigint GENERATED ALWAYS AS (length(b)) STORED);
CREATE INDEX ON s.t (sha256(b));
INSERT INTO s.t SELECT i, s.bytes(n, i), s.bytes(n + 1, i),
	ARRAY[s.bytes(n, i + 100), s.bytes(n / 2, i + 200), NULL]::blobstate[],
	ROW('p' || i, s.bytes(n, i + 300))::s.pair
	FROM unnest(ARRAY[0, 1, 1000, 1024, 1025, 4096, 50000, 1000000]) WITH ORDINALITY u (n, o),
		int4(o) i;
INSERT INTO s.t (id) VALUES (100);
INSERT INTO s.t (id, b) VALUES (101, NULL);

CREATE TABLE parted (id int, b blobstate) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (5);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (5) TO (500);
INSERT INTO parted SELECT i, s.bytes(i * 1000, i) FROM generate_series(0, 10) i;
CREATE TABLE loose (b blobstate);
INSERT INTO loose SELECT b FROM parted;
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM parted;
CREATE VIEW v AS SELECT id, b, length(b), b::bytea::blobstate AS computed FROM s.t;
CREATE MATERIALIZED VIEW m AS SELECT id, b, s.bytes(id * 3000)::blobstate AS computed FROM s.t;
CREATE FUNCTION f(blobstate, d s.document = 'x') RETURNS blobstate LANGUAGE sql AS 'SELECT $1';
CREATE RULE r AS ON DELETE TO loose DO ALSO INSERT INTO loose VALUES ('\x01'::blobstate);

-- Methods of compression, and digests that are deferred; a partition without one has its parent's.
CREATE TABLE packed (id int, b blobstate, d s.document, a blobstate[]) PARTITION BY LIST (id);
CREATE TABLE packed_1 PARTITION OF packed FOR VALUES IN (1);
CREATE TABLE packed_2 PARTITION OF packed FOR VALUES IN (2);
SELECT blobext_set_compression('packed', 'b', 'zstd');
SELECT blobext_set_compression('packed', 'd', 'lz4');
SELECT blobext_set_compression('packed', 'a', 'lz4');
SELECT blobext_set_compression('packed_2', 'b', 'none');
SELECT blobext_set_digest('packed', 'b', 'deferred');
INSERT INTO packed_1 SELECT 1, t, t, ARRAY[t, t]::blobstate[]
	FROM convert_to(repeat('packed ', 10000), 'UTF8') AS t;
INSERT INTO packed_2 SELECT 2, t, t, ARRAY[t, t]::blobstate[]
	FROM convert_to(repeat('too ', 10000), 'UTF8') AS t;

-- Syntax that finds functions of the extension in pg_catalog, and their overloads.
CREATE TABLE as_bytea (id int, b blobstate
	CHECK (POSITION('\xffff' IN b) = 0 AND b NOT LIKE '\377\376%'));
INSERT INTO as_bytea SELECT i, convert_to(repeat('text ', i * i * 100), 'UTF8')
	FROM generate_series(0, 9) AS i;
CREATE INDEX ON as_bytea (encode(SUBSTRING(b FROM 1 FOR 5), 'hex'), md5(b), digest(b, 'sha1'));
CREATE VIEW of_bytea AS SELECT id, OVERLAY(b PLACING '\x4142' FROM 3 FOR 1) AS overlay,
	TRIM(BOTH '\x2074' FROM b) AS trimmed, POSITION('\x74' IN b) AS position,
	SUBSTRING(b FROM 3) AS rest,
	encode(b, 'base64') AS base64, convert_from(b, 'UTF8') AS text, get_bit(b, 0) AS bit,
	set_byte(b, 0, 1) AS set, b LIKE '%ext%' AS matches, sha512(b) AS sha512,
	(SELECT string_agg(b, '\x2c') FROM as_bytea) AS joined
	FROM as_bytea WHERE length(b) > 0;

-- bytea and blobstate have a common type; a foreign key from the one to the other.
CREATE TABLE as_key (b blobstate PRIMARY KEY);
CREATE TABLE of_key (b bytea REFERENCES as_key);
INSERT INTO as_key SELECT s.bytes(i * 700, i) FROM generate_series(0, 5) AS i;
INSERT INTO of_key SELECT b FROM as_key WHERE length(b) > 1000;
CREATE VIEW common AS SELECT b, COALESCE(k.b, o.b) AS first,
	CASE WHEN length(k.b) > 2000 THEN o.b ELSE k.b END AS one
	FROM as_key AS k NATURAL LEFT JOIN of_key AS o;
