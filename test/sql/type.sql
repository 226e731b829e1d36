--
-- Type blobstate: input, output, casts, and functions of small values.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS blobext;
RESET client_min_messages;
CREATE SCHEMA type;
SET search_path = type, public;
\set SHOW_CONTEXT never

--
-- Input and output are bytea's
--
SELECT '\x'::blobstate, ''::blobstate, '\x00ff10'::blobstate, '\x DE aD
	be EF'::blobstate;
SELECT 'abc'::blobstate, E'a\\\\b\\001\\377'::blobstate, 'Tschüß'::blobstate;
SELECT NULL::blobstate IS NULL, blobstate(NULL::bytea) IS NULL, bytea(NULL::blobstate) IS NULL;
SET bytea_output = escape;
SELECT '\x00ff10'::blobstate, 'abc'::blobstate, E'a\\\\b\\001\\377'::blobstate, ''::blobstate;
RESET bytea_output;

-- Errors are bytea's too: message, SQLSTATE.
SET lc_messages = 'C';
\set VERBOSITY sqlstate
SELECT '\x123'::bytea;
SELECT '\x123'::blobstate;
SELECT '\x1g'::bytea;
SELECT '\x1g'::blobstate;
SELECT E'\\9'::bytea;
SELECT E'\\9'::blobstate;
SELECT E'a\\'::bytea;
SELECT E'a\\'::blobstate;
\set VERBOSITY terse
SELECT '\x123'::blobstate;
SELECT '\x1g'::blobstate;
SELECT E'\\9'::blobstate;

-- There is no way to spell a descriptor: input that looks like one is content.
SELECT length('\x1100000000000000000000000000'::blobstate);

-- No modifier can be given.
SELECT 'a'::blobstate(1);

--
-- Casts: of bytea implicit, others on assignment only
--
SELECT castsource::regtype, casttarget::regtype, castcontext, castfunc::regprocedure
	FROM pg_cast WHERE 'blobstate'::regtype IN (castsource, casttarget) ORDER BY 1, 2;
CREATE TABLE t (id int PRIMARY KEY, b blobstate);
CREATE TABLE as_bytea (id int PRIMARY KEY, b bytea);
INSERT INTO t SELECT 1, '\x0102'::bytea;
INSERT INTO as_bytea SELECT * FROM t;
SELECT * FROM as_bytea;
SELECT convert('a'::blobstate, 'UTF8', 'LATIN1');
SELECT coalesce('a'::blobstate, 'a'::bytea);
SELECT CASE WHEN true THEN 'a'::blobstate ELSE 'a'::bytea END;
SELECT 'a'::text::blobstate;
INSERT INTO t VALUES (2, 'a'::text);
SELECT 'a'::blobstate::text;

-- Functions that the server has for bytea, too, take a literal as before.
SELECT sha256('abc') = sha256('abc'::bytea), length('abc'), octet_length('abc'), substr('abc', 2),
	substring('abc', 2, 1), length('\x0102'::bytea);

--
-- Size, digest, prefix, storage
--
CREATE FUNCTION bytes(n bigint, seed int DEFAULT 0) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT coalesce(substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR n::int), '')
	FROM generate_series(1, (n + 31) / 32) i
$$;
CREATE TABLE sizes (n bigint PRIMARY KEY, content bytea, b blobstate);
INSERT INTO sizes SELECT n, bytes(n), bytes(n)
	FROM unnest(ARRAY[0, 1, 2, 31, 32, 33, 63, 64, 65, 1899, 1900, 1901, 4095, 4096, 4097, 8191,
		8192, 8193, 65535, 65536, 65537, 262143, 262144, 262145, 1000000]) n;
SELECT n, blob_storage(b), length(b) = n AND octet_length(b) = n AS length,
	sha256(b) = sha256(content) AS sha256, blob_prefix(b) = substring(content FROM 1 FOR 32) AS prefix,
	b::bytea = content AS content, b::text = content::text AS text
	FROM sizes ORDER BY n;
SELECT pg_typeof(length(b)), pg_typeof(octet_length(b)), pg_typeof(sha256(b)),
	pg_typeof(blob_prefix(b)), pg_typeof(blob_read(b, 0, 0)), pg_typeof(substr(b, 1))
	FROM sizes LIMIT 1;
SELECT length(NULL::blobstate), sha256(NULL::blobstate), blob_prefix(NULL::blobstate),
	blob_storage(NULL::blobstate), blob_read(NULL::blobstate, 0, 1), blob_read('a', NULL, 1),
	substr('a'::blobstate, 1, NULL);
SELECT * FROM blob_extents(NULL);
SELECT * FROM blob_extents('');

-- Extents cover the content, and nothing but the last is partly filled.
SELECT n, count(*) AS extents, sum(e.bytes) = n AS bytes, sum(pages) * 4096 - n < 4096 AS tight,
	bool_and(e.bytes = pages * 4096 OR extent_no = (SELECT max(extent_no) FROM blob_extents(b)))
	FROM sizes, blob_extents(b) e GROUP BY n ORDER BY n;
SET blobext.tail_extents = off;
CREATE TABLE no_tail AS SELECT n, content, content::blobstate AS b FROM sizes;
RESET blobext.tail_extents;
SELECT n, blob_storage(b), b::bytea = content AS content,
	(SELECT string_agg(pages || ':' || bytes, ' ' ORDER BY extent_no) FROM blob_extents(b)) AS extents,
	EXISTS (SELECT FROM blob_extents(b) WHERE is_tail) AS tail
	FROM no_tail ORDER BY n;

--
-- inline_limit
--
SHOW blobext.inline_limit;
\set VERBOSITY sqlstate
SET blobext.inline_limit = -1;
SET blobext.inline_limit = '2MB';
\set VERBOSITY default
CREATE TABLE limits (l int, n int, b blobstate);
CREATE FUNCTION store_around(l int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('blobext.inline_limit', l::text, true);
	FOR n IN greatest(l - 1, 0) .. l + 1 LOOP
		INSERT INTO limits VALUES (l, n, bytes(n));
	END LOOP;
END $$;
SELECT store_around(l) FROM unnest(ARRAY[0, 1, 31, 100, 125, 126, 127, 1024, 2000, 8192, 1048576]) l;
SELECT l, n - l AS over, blob_storage(b), sha256(b) = sha256(bytes(n)) AND b::bytea = bytes(n) AS sound
	FROM limits ORDER BY l, n;
SHOW blobext.inline_limit;

-- A value keeps its form when it is read and stored again, also when the limit has changed.
CREATE TABLE kept (n int, b blobstate);
INSERT INTO kept SELECT n, b FROM limits WHERE l = 100;
SET blobext.inline_limit = '1MB';
INSERT INTO kept SELECT n, b FROM limits WHERE l = 100;
UPDATE kept SET b = b;
SELECT n, blob_storage(b), count(*) FROM kept GROUP BY 1, 2 ORDER BY 1, 2;
SET blobext.inline_limit = 0;
UPDATE kept SET b = b;
SELECT n, blob_storage(b), count(*) FROM kept GROUP BY 1, 2 ORDER BY 1, 2;
RESET blobext.inline_limit;

--
-- Ranges: errors
--
\set VERBOSITY sqlstate
SELECT blob_read(b, -1, 1) FROM t WHERE id = 1;
SELECT blob_read(b, 0, -1) FROM t WHERE id = 1;
SELECT substr(b, 1, -1) FROM t WHERE id = 1;
SELECT substr('a'::bytea, 1, -1);
\set VERBOSITY default
SELECT blob_read(b, -1, 1) FROM t WHERE id = 1;
SELECT blob_read(b, 0, -1) FROM t WHERE id = 1;
SELECT substring(b, 1, -1) FROM t WHERE id = 1;
-- The standard's syntax looks for functions in pg_catalog.
SELECT substring(b FROM 1 FOR 1) FROM t WHERE id = 1;

--
-- Transactions that may not write
--
CREATE TEMP TABLE temporary (b blobstate);
BEGIN READ ONLY;
SELECT n, length(b), blob_read(b, 10, 4) = substring(content FROM 11 FOR 4) FROM sizes WHERE n = 4097;
INSERT INTO temporary VALUES (bytes(5000));
INSERT INTO temporary SELECT b FROM sizes WHERE n = 4097;
SET LOCAL blobext.inline_limit = 64;
COPY temporary FROM stdin;
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
\.
SELECT length(b), blob_storage(b) FROM temporary ORDER BY 1;
SAVEPOINT s;
INSERT INTO t VALUES (3, bytes(5000));
ROLLBACK TO s;
COPY t FROM PROGRAM 'true';
ROLLBACK;

--
-- Changes of the map that are refused, and functions that only CREATE EXTENSION may call
--
INSERT INTO blobext_map VALUES (1, 1, 1, 'tier', 0);
DELETE FROM blobext_map;
UPDATE blobext_map SET pages = 0;
TRUNCATE blobext_map;
CREATE INDEX ON blobext_map (first_page);
CREATE TABLE another_map (a int) USING blobext_map;
SELECT blobext_create_store('blobext_map');
SELECT blobext_require_library('0.0.1');
VACUUM blobext_map;
ANALYZE blobext_map;
SELECT kind, count(*) > 0, bool_and(pages > 0 AND first_page >= 0 AND generation > 0) FROM blobext_map
	GROUP BY 1 ORDER BY 1;

SELECT * FROM blobext_check();
SET client_min_messages = warning;
DROP SCHEMA type CASCADE;
