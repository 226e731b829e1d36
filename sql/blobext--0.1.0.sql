/* blobext 0.1.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION blobext" to load this file. \quit

-- ---------------------------------------------------------------------------
-- Library: preloaded, and of this script's version
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_require_library(version text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
REVOKE ALL ON FUNCTION blobext_require_library(text) FROM PUBLIC;
COMMENT ON FUNCTION blobext_require_library(text) IS
    'error unless the loaded library has this version';

SELECT @extschema@.blobext_require_library('0.1.0');

-- ---------------------------------------------------------------------------
-- Type
-- ---------------------------------------------------------------------------

CREATE TYPE blobstate;

-- Created stable, because CREATE TYPE warns about volatile input functions.  They are volatile:
-- under COPY they write to the extent store.
CREATE FUNCTION blobstate_in(cstring, oid, integer) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
CREATE FUNCTION blobstate_out(blobstate) RETURNS cstring
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blobstate_recv(internal, oid, integer) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
CREATE FUNCTION blobstate_send(blobstate) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blobstate_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blobstate_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- Preferred, so that sha256('…') with a literal, which PostgreSQL has for bytea, stays unambiguous.
CREATE TYPE blobstate (
    INPUT = blobstate_in,
    OUTPUT = blobstate_out,
    RECEIVE = blobstate_recv,
    SEND = blobstate_send,
    TYPMOD_IN = blobstate_typmod_in,
    TYPMOD_OUT = blobstate_typmod_out,
    INTERNALLENGTH = VARIABLE,
    ALIGNMENT = int4,
    STORAGE = main,
    PREFERRED = true
);
COMMENT ON TYPE blobstate IS
    'binary content of any size; over blobext.inline_limit it lives in extents outside the table';

ALTER FUNCTION blobstate_in(cstring, oid, integer) VOLATILE;
ALTER FUNCTION blobstate_recv(internal, oid, integer) VOLATILE;

COMMENT ON FUNCTION blobstate_in(cstring, oid, integer) IS 'I/O';
COMMENT ON FUNCTION blobstate_out(blobstate) IS 'I/O';
COMMENT ON FUNCTION blobstate_recv(internal, oid, integer) IS 'I/O';
COMMENT ON FUNCTION blobstate_send(blobstate) IS 'I/O';
COMMENT ON FUNCTION blobstate_typmod_in(cstring[]) IS 'I/O typmod: always an error';
COMMENT ON FUNCTION blobstate_typmod_out(integer) IS 'I/O typmod: always empty';

-- ---------------------------------------------------------------------------
-- Storing: written by the server into statements, of no use elsewhere
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_store_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_store_support(internal) IS 'planner support of blob_store';

CREATE FUNCTION blob_store(bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_store_bytea' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_store(bytea) IS
    'content as a blobstate is stored: in extents if it is larger than blobext.inline_limit';
CREATE FUNCTION blob_store(blobstate) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE SUPPORT blob_store_support;
COMMENT ON FUNCTION blob_store(blobstate) IS
    'the value as it is stored: in extents if it is larger than blobext.inline_limit';

CREATE FUNCTION blobstate(blobstate, integer, boolean) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blobstate_coerce' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
    SUPPORT blob_store_support;
COMMENT ON FUNCTION blobstate(blobstate, integer, boolean) IS
    'the value as it is stored, on assignment to a column';

CREATE CAST (blobstate AS blobstate) WITH FUNCTION blobstate(blobstate, integer, boolean)
    AS IMPLICIT;
COMMENT ON CAST (blobstate AS blobstate) IS 'stores the value on assignment to a column';

-- ---------------------------------------------------------------------------
-- Casts
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobstate(bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blobstate_from_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blobstate(bytea) IS 'convert bytea to blobstate';
CREATE FUNCTION bytea(blobstate) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blobstate_to_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION bytea(blobstate) IS 'convert blobstate to bytea';

CREATE CAST (bytea AS blobstate) WITH FUNCTION blobstate(bytea) AS ASSIGNMENT;
CREATE CAST (blobstate AS bytea) WITH FUNCTION bytea(blobstate) AS ASSIGNMENT;
COMMENT ON CAST (bytea AS blobstate) IS 'on assignment: content as it is';
COMMENT ON CAST (blobstate AS bytea) IS 'on assignment: all content, read';

-- ---------------------------------------------------------------------------
-- Size, digest, layout: from the descriptor, without reading content
-- ---------------------------------------------------------------------------

CREATE FUNCTION length(blobstate) RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_length' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION length(blobstate) IS 'size of the content in bytes';
CREATE FUNCTION octet_length(blobstate) RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_length' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION octet_length(blobstate) IS 'size of the content in bytes';
CREATE FUNCTION sha256(blobstate) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_sha256' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION sha256(blobstate) IS 'SHA-256 digest of the content';
CREATE FUNCTION blob_prefix(blobstate) RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_prefix(blobstate) IS
    'first 32 bytes of the content, fewer if it is shorter';
CREATE FUNCTION blob_storage(blobstate) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_storage(blobstate) IS 'where the content is: inline or extents';
CREATE FUNCTION blob_extents(blobstate,
        OUT extent_no integer, OUT first_page bigint, OUT pages bigint, OUT bytes bigint,
        OUT is_tail boolean)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 10;
COMMENT ON FUNCTION blob_extents(blobstate) IS
    'extents of the content: first page, length in pages of 4 kB, bytes used, exact tail or not';

-- ---------------------------------------------------------------------------
-- Reading ranges
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_read(blobstate, "offset" bigint, "length" bigint) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_read_sql' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION blob_read(blobstate, bigint, bigint) IS
    'bytes from offset (the first byte has offset 0) on; fewer at the end of the content';
CREATE FUNCTION "substring"(blobstate, bigint) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_substring' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION "substring"(blobstate, bigint) IS
    'bytes from a position (the first byte has position 1) to the end';
CREATE FUNCTION "substring"(blobstate, bigint, bigint) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_substring' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION "substring"(blobstate, bigint, bigint) IS
    'so many bytes from a position (the first byte has position 1) on';
CREATE FUNCTION substr(blobstate, bigint) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_substring' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION substr(blobstate, bigint) IS
    'bytes from a position (the first byte has position 1) to the end';
CREATE FUNCTION substr(blobstate, bigint, bigint) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_substring' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION substr(blobstate, bigint, bigint) IS
    'so many bytes from a position (the first byte has position 1) on';

-- ---------------------------------------------------------------------------
-- The store: extent map, checks, statistics
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_map_handler(internal) RETURNS table_am_handler
    AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION blobext_map_handler(internal) IS 'handler of access method blobext_map';
CREATE ACCESS METHOD blobext_map TYPE TABLE HANDLER blobext_map_handler;
COMMENT ON ACCESS METHOD blobext_map IS 'carries the extent map of blobext';

CREATE TABLE blobext_map (
    first_page bigint,
    pages bigint,
    generation bigint,
    kind text,
    fill_bytes bigint
) USING blobext_map WITH (parallel_workers = 0);
COMMENT ON TABLE blobext_map IS 'extents that are allocated; read only';
COMMENT ON COLUMN blobext_map.first_page IS 'first page of the extent';
COMMENT ON COLUMN blobext_map.pages IS 'length of the extent in pages of 4 kB';
COMMENT ON COLUMN blobext_map.generation IS 'number that the extent drew when it was allocated';
COMMENT ON COLUMN blobext_map.kind IS
    'tier: of a size given by the tier table; tail: exact last extent';
COMMENT ON COLUMN blobext_map.fill_bytes IS 'bytes claimed so far in an extent of tier size';

CREATE FUNCTION blobext_create_store(map regclass) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
REVOKE ALL ON FUNCTION blobext_create_store(regclass) FROM PUBLIC;
COMMENT ON FUNCTION blobext_create_store(regclass) IS 'part of CREATE EXTENSION';
SELECT @extschema@.blobext_create_store('@extschema@.blobext_map'::pg_catalog.regclass);

CREATE FUNCTION blobext_check(checked regclass DEFAULT NULL,
        OUT relation regclass, OUT tid tid, OUT column_name name, OUT problem text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_check(regclass) FROM PUBLIC;
COMMENT ON FUNCTION blobext_check(regclass) IS
    'problems of the extent store: every value of one or all tables against map, files and digest';

CREATE FUNCTION blobext_stat_counters(OUT name text, OUT value bigint) RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 18;
COMMENT ON FUNCTION blobext_stat_counters() IS 'behind view blobext_stat';
CREATE VIEW blobext_stat AS SELECT name, value FROM @extschema@.blobext_stat_counters();
COMMENT ON VIEW blobext_stat IS 'counters of the whole server since its start';
COMMENT ON COLUMN blobext_stat.name IS 'name of the counter or state';
COMMENT ON COLUMN blobext_stat.value IS 'count since the start of the server, or current value';
GRANT SELECT ON blobext_stat TO PUBLIC;
