--
-- The extension in a schema of its own that is not in the search_path; dropped and made anew; the
-- stores of two databases.
--
\set first :DBNAME
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS blobext;
CREATE DATABASE "blobext other" TEMPLATE template0;
\connect "blobext other"
SET client_min_messages = warning;
\set SHOW_CONTEXT never
CREATE SCHEMA "Odd schema";
CREATE EXTENSION blobext SCHEMA "Odd schema";
CREATE EXTENSION blobext SCHEMA public;
ALTER EXTENSION blobext SET SCHEMA public;

-- Values are stored, with any search_path.
CREATE TABLE t (id int, b "Odd schema".blobstate);
SET search_path = pg_catalog;
INSERT INTO public.t VALUES (1, convert_to(repeat('a', 5000), 'UTF8'));
PREPARE p AS INSERT INTO public.t VALUES ($1, $2);
EXECUTE p (2, convert_to(repeat('b', 50000), 'UTF8'));
CREATE TABLE public.made AS SELECT id, b::bytea::"Odd schema".blobstate AS b FROM public.t;
COPY public.t FROM PROGRAM 'printf "3\t"; head -c 3000 /dev/zero | tr "\0" c';
\d public.t
SET search_path = public, "Odd schema";
SELECT id, length(b), blob_storage(b), convert_from(blob_read(b, 2999, 3), 'UTF8') FROM t
	UNION ALL SELECT id, length(b), blob_storage(b), NULL FROM made ORDER BY 1, 4;
SELECT * FROM blobext_check();

-- Objects of the same names elsewhere do not mislead.
CREATE SCHEMA decoy;
CREATE FUNCTION decoy.blob_store(blobstate) RETURNS blobstate LANGUAGE sql AS 'SELECT NULL::blobstate';
CREATE FUNCTION decoy.blobstate(blobstate, int, boolean) RETURNS blobstate LANGUAGE sql
	AS 'SELECT NULL::blobstate';
CREATE TYPE decoy.blobstate AS (a int);
CREATE TABLE decoy.blobext_map (a int);
SET search_path = decoy, public, "Odd schema";
INSERT INTO t VALUES (4, convert_to(repeat('d', 5000), 'UTF8'));
SELECT blob_storage(b), length(b) FROM t WHERE id = 4;
SET search_path = public, "Odd schema";

-- The schema gets another name.
ALTER SCHEMA "Odd schema" RENAME TO blobs;
SET search_path = public, blobs;
INSERT INTO t VALUES (5, convert_to(repeat('e', 5000), 'UTF8'));
EXECUTE p (6, convert_to(repeat('f', 5000), 'UTF8'));
SELECT id, blob_storage(b), length(b) FROM t WHERE id > 4 ORDER BY id;
SELECT * FROM blobext_check();

-- Pages of two databases have the same numbers, their contents are not mixed up.
SELECT first_page AS page FROM t, blob_extents(b) WHERE id = 2 LIMIT 1 \gset
\connect :first
SET client_min_messages = warning;
CREATE SCHEMA databases;
SET search_path = databases, public;
CREATE TABLE t AS SELECT i, convert_to(repeat(chr(65 + i), 20000), 'UTF8')::blobstate AS b
	FROM generate_series(0, 9) i;
SELECT count(*) FROM t WHERE b::bytea = convert_to(repeat(chr(65 + i), 20000), 'UTF8');
SELECT * FROM blobext_check('t');
DROP SCHEMA databases CASCADE;
\connect "blobext other"
SET client_min_messages = warning;
\set SHOW_CONTEXT never
SET search_path = public, blobs;
SELECT b::bytea = convert_to(repeat('b', 50000), 'UTF8') FROM t WHERE id = 2;
SELECT first_page = :page FROM t, blob_extents(b) WHERE id = 2 LIMIT 1;

-- The extension is dropped only together with the objects that depend on it.
\set VERBOSITY terse
DROP EXTENSION blobext;
\set VERBOSITY default
BEGIN;
DROP EXTENSION blobext CASCADE;
SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped;
ROLLBACK;
SELECT b::bytea = convert_to(repeat('b', 50000), 'UTF8') FROM t WHERE id = 2;
INSERT INTO t VALUES (7, convert_to(repeat('g', 5000), 'UTF8'));
SELECT blob_storage(b), length(b) FROM t WHERE id = 7;
DROP EXTENSION blobext CASCADE;
SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped;

-- Then a new store begins; one whose creation is rolled back does not stand in its way.
BEGIN;
CREATE EXTENSION blobext SCHEMA blobs;
CREATE TABLE rolled_back AS SELECT convert_to(repeat('f', 5000), 'UTF8')::blobstate AS b;
SELECT blob_storage(b), b::bytea = convert_to(repeat('f', 5000), 'UTF8') FROM rolled_back;
ROLLBACK;
CREATE EXTENSION blobext SCHEMA blobs;
SELECT * FROM blobext_map;
ALTER TABLE t ADD COLUMN b blobstate;
UPDATE t SET b = convert_to(repeat(id::text, 6000), 'UTF8');
SELECT id, blob_storage(b), b::bytea = convert_to(repeat(id::text, 6000), 'UTF8') FROM t ORDER BY id;
SELECT * FROM blobext_check();

\connect :first
SET client_min_messages = warning;
DROP DATABASE "blobext other";
SELECT * FROM blobext_check();
