--
-- The extent map: commands that would damage it are refused, harmless ones leave every value whole.
-- (Without src/assign/map_guard.c SET ACCESS METHOD makes a heap of it; without check_not_moved()
-- in src/store/store.c the rolled back move leaves shared memory ahead of the map; with the
-- decision by a name's prefix in map_set_new_filelocator() tables pg_temp_... are made.)
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS blobext;
RESET client_min_messages;
CREATE SCHEMA map_guard;
SET search_path = map_guard, public;
CREATE TABLE t (b blobstate);
INSERT INTO t SELECT decode(repeat('aa', 500000), 'hex');

ALTER TABLE public.blobext_map SET ACCESS METHOD heap;
ALTER TABLE public.blobext_map ADD COLUMN more integer;
ALTER TABLE public.blobext_map SET (parallel_workers = 0), DROP COLUMN pages;
ALTER TABLE public.blobext_map SET UNLOGGED;
ALTER TABLE public.blobext_map RENAME TO other;
ALTER TABLE public.blobext_map RENAME COLUMN pages TO other;
ALTER TABLE public.blobext_map SET SCHEMA map_guard;
TRUNCATE public.blobext_map;
INSERT INTO public.blobext_map VALUES (1, 1, 1, 'tail', NULL);
UPDATE public.blobext_map SET pages = 1;
DELETE FROM public.blobext_map;
CREATE INDEX ON public.blobext_map (first_page);
CREATE TABLE own (a integer) USING blobext_map;
CREATE TABLE pg_temp_own (b blobstate) USING blobext_map;
ALTER TABLE t SET ACCESS METHOD blobext_map;
SET default_table_access_method = blobext_map;
CREATE TABLE pg_temp_own AS SELECT b FROM t;
CREATE MATERIALIZED VIEW pg_temp_own AS SELECT b FROM t;
RESET default_table_access_method;
\set VERBOSITY terse
DROP TABLE public.blobext_map;
\set VERBOSITY default
DO $$ BEGIN ALTER TABLE public.blobext_map ADD COLUMN more integer; END $$;

SET allow_in_place_tablespaces = on;
CREATE TABLESPACE map_guard LOCATION '';
-- No store in the transaction that moved the map: it would be forgotten if that is rolled back.
BEGIN;
ALTER TABLE public.blobext_map SET TABLESPACE map_guard;
SAVEPOINT s;
INSERT INTO t SELECT decode(repeat('bb', 500000), 'hex');
ROLLBACK TO s;
SELECT length(b), sha256(b) = sha256(b::bytea) AS sound FROM t;
ROLLBACK;
BEGIN;
INSERT INTO t SELECT decode(repeat('cc', 500000), 'hex');
ALTER TABLE public.blobext_map SET TABLESPACE map_guard;
ROLLBACK;
INSERT INTO t SELECT decode(repeat('dd', 500000), 'hex');
ALTER TABLE public.blobext_map SET TABLESPACE map_guard;
INSERT INTO t SELECT decode(repeat('ee', 500000), 'hex');
VACUUM FULL public.blobext_map;
VACUUM ANALYZE public.blobext_map;
INSERT INTO t SELECT decode(repeat('ff', 500000), 'hex');
ALTER TABLE public.blobext_map SET TABLESPACE pg_default;
SELECT blob_prefix(b), length(b), sha256(b) = sha256(b::bytea) AS sound FROM t ORDER BY 1;
SELECT * FROM blobext_check();
SELECT relfrozenxid, relminmxid FROM pg_class WHERE oid = 'public.blobext_map'::regclass;

DROP TABLESPACE map_guard;
DROP TABLE t;
DROP SCHEMA map_guard;
