/* blobext 0.2.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION blobext" to load this file. \quit

-- ---------------------------------------------------------------------------
-- Library: must be preloaded, and of a version that this script can use
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_require_library(version text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
REVOKE ALL ON FUNCTION blobext_require_library(text) FROM PUBLIC;
COMMENT ON FUNCTION blobext_require_library(text) IS
    'error unless the loaded library can be used with SQL objects of this version';

SELECT @extschema@.blobext_require_library('0.2.0');

-- ---------------------------------------------------------------------------
-- Type
-- ---------------------------------------------------------------------------

CREATE TYPE blobstate;

-- Created stable, because CREATE TYPE warns about volatile input functions.  ALTER FUNCTION makes
-- them volatile, since they write to the store under COPY.
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
CREATE FUNCTION blobstate_typanalyze(internal) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;

-- Preferred, so that sha256('…') with a literal stays unambiguous: PostgreSQL has it for bytea.
CREATE TYPE blobstate (
    INPUT = blobstate_in,
    OUTPUT = blobstate_out,
    RECEIVE = blobstate_recv,
    SEND = blobstate_send,
    TYPMOD_IN = blobstate_typmod_in,
    TYPMOD_OUT = blobstate_typmod_out,
    ANALYZE = blobstate_typanalyze,
    INTERNALLENGTH = VARIABLE,
    ALIGNMENT = int4,
    STORAGE = main,
    PREFERRED = true
);
COMMENT ON TYPE blobstate IS
    'binary content of any size; over blobext.inline_limit it lives in extents outside the table';

ALTER FUNCTION blobstate_in(cstring, oid, integer) VOLATILE;
ALTER FUNCTION blobstate_recv(internal, oid, integer) VOLATILE;

COMMENT ON FUNCTION blobstate_in(cstring, oid, integer) IS
    'I/O; under COPY FROM it takes space of the store until the collector finds that '
    'nothing refers to it';
COMMENT ON FUNCTION blobstate_out(blobstate) IS 'I/O';
COMMENT ON FUNCTION blobstate_recv(internal, oid, integer) IS
    'I/O; under COPY FROM it takes space of the store until the collector finds that '
    'nothing refers to it';
COMMENT ON FUNCTION blobstate_send(blobstate) IS 'I/O';
COMMENT ON FUNCTION blobstate_typmod_in(cstring[]) IS 'I/O typmod: always an error';
COMMENT ON FUNCTION blobstate_typmod_out(integer) IS 'I/O typmod: always empty';
COMMENT ON FUNCTION blobstate_typanalyze(internal) IS
    'statistics of blobstate columns, which do not refer to stored content';
-- Only the server calls it, and checks no privilege.
REVOKE ALL ON FUNCTION blobstate_typanalyze(internal) FROM PUBLIC;

-- ---------------------------------------------------------------------------
-- Assignment: calls that the server puts into statements, of no use elsewhere
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_store_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_store_support(internal) IS 'planner support of blob_store';
-- Only the server calls it, and checks no privilege.
REVOKE ALL ON FUNCTION blob_store_support(internal) FROM PUBLIC;

CREATE FUNCTION blob_store(bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_store_bytea' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_store(bytea) IS
    'content as a blobstate is stored: in extents if it is larger than '
    'blobext.inline_limit; takes space of the store until the collector finds that nothing '
    'refers to it';
CREATE FUNCTION blob_store(blobstate) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE SUPPORT blob_store_support;
COMMENT ON FUNCTION blob_store(blobstate) IS
    'the value as it is stored: in extents if it is larger than blobext.inline_limit; '
    'takes space of the store until the collector finds that nothing refers to it';

CREATE FUNCTION blobstate(blobstate, integer, boolean) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blobstate_assign' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
    SUPPORT blob_store_support;
COMMENT ON FUNCTION blobstate(blobstate, integer, boolean) IS
    'the value as it is stored, on assignment to a column; takes space of the store until '
    'the collector finds that nothing refers to it';

CREATE CAST (blobstate AS blobstate) WITH FUNCTION blobstate(blobstate, integer, boolean)
    AS IMPLICIT;
COMMENT ON CAST (blobstate AS blobstate) IS
    'stores the value on assignment to a column; takes space of the store until the '
    'collector finds that nothing refers to it';

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
    'extents of the content: first page, length in pages of 4 kB, bytes used, exact tail or not; '
    'bytes at the end that lie in the row have no page';

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
-- Changes: each makes a new value, which shares extents with the old one.  Volatile, because two
-- calls make two values; a function declared IMMUTABLE must not call them.
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_append(blobstate, bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 100;
COMMENT ON FUNCTION blob_append(blobstate, bytea) IS
    'the value with bytes behind it; takes space of the store until the collector finds '
    'that nothing refers to it';
CREATE FUNCTION blob_concat(blobstate, blobstate) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_concat(blobstate, blobstate) IS
    'implementation of || operator; takes space of the store until the collector finds '
    'that nothing refers to it';
CREATE FUNCTION blob_prepend(bytea, blobstate) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_prepend(bytea, blobstate) IS
    'implementation of || operator; takes space of the store until the collector finds '
    'that nothing refers to it';
CREATE FUNCTION blob_write(blobstate, "offset" bigint, bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_write(blobstate, bigint, bytea) IS
    'the value with bytes from offset on replaced; longer, with zeros up to the offset, if '
    'need be; takes space of the store until the collector finds that nothing refers to it';
CREATE FUNCTION blob_insert(blobstate, "offset" bigint, bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_insert(blobstate, bigint, bytea) IS
    'the value with bytes inserted at offset; takes space of the store until the collector '
    'finds that nothing refers to it';
CREATE FUNCTION blob_delete(blobstate, "offset" bigint, "length" bigint) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_delete(blobstate, bigint, bigint) IS
    'the value without so many bytes from offset on; takes space of the store until the '
    'collector finds that nothing refers to it';
CREATE FUNCTION blob_truncate(blobstate, "length" bigint) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_truncate(blobstate, bigint) IS
    'the first bytes of the value; with zeros behind it if it is shorter; takes space of '
    'the store until the collector finds that nothing refers to it';

CREATE OPERATOR || (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_append);
CREATE OPERATOR || (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_concat);
CREATE OPERATOR || (LEFTARG = bytea, RIGHTARG = blobstate, FUNCTION = blob_prepend);
COMMENT ON OPERATOR || (blobstate, bytea) IS
    'append; takes space of the store until the collector finds that nothing refers to it';
COMMENT ON OPERATOR || (blobstate, blobstate) IS
    'concatenate; takes space of the store until the collector finds that nothing refers '
    'to it';
COMMENT ON OPERATOR || (bytea, blobstate) IS
    'prepend; takes space of the store until the collector finds that nothing refers to it';

-- ---------------------------------------------------------------------------
-- Streaming: pieces out and in, server files, large objects
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_chunk_count(blobstate, chunk_size integer) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_chunk_count(blobstate, integer) IS
    'number of rows of blob_chunks(), error for a size that no chunk can have';

-- In SQL and not strict, so that the planner can inline the query in place of a call in FROM:
-- then each piece is read when its row is fetched, and only if its data is wanted.  pg_upgrade
-- repeats the body as PostgreSQL prints it, which needs names for the parameters.
CREATE FUNCTION blob_chunks(content blobstate, chunk_size integer DEFAULT 1048576)
    RETURNS TABLE (chunk_no bigint, "offset" bigint, data bytea)
    LANGUAGE SQL IMMUTABLE PARALLEL SAFE ROWS 100 COST 100
BEGIN ATOMIC
    SELECT n, n * chunk_size, blob_read(content, n * chunk_size, chunk_size)
    FROM generate_series(0, blob_chunk_count(content, chunk_size) - 1) AS n;
END;
COMMENT ON FUNCTION blob_chunks(blobstate, integer) IS
    'the content in pieces of chunk_size bytes, the last one shorter';

CREATE FUNCTION blob_agg_bytea_transfn(internal, bytea) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_agg_bytea_transfn(internal, bytea) IS 'aggregate transition function';
CREATE FUNCTION blob_agg_blobstate_transfn(internal, blobstate) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_agg_blobstate_transfn(internal, blobstate) IS
    'aggregate transition function';
CREATE FUNCTION blob_agg_finalfn(internal) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_agg_finalfn(internal) IS
    'aggregate final function; takes space of the store until the collector finds that '
    'nothing refers to it';

-- READ_WRITE, because a complete value takes no more input.  So they are no window functions.
CREATE AGGREGATE blob_agg(bytea) (
    SFUNC = blob_agg_bytea_transfn,
    STYPE = internal,
    SSPACE = 65536,
    FINALFUNC = blob_agg_finalfn,
    FINALFUNC_MODIFY = READ_WRITE,
    PARALLEL = UNSAFE
);
COMMENT ON AGGREGATE blob_agg(bytea) IS
    'concatenates the inputs to a value of any size; takes space of the store until the '
    'collector finds that nothing refers to it';
CREATE AGGREGATE blob_agg(blobstate) (
    SFUNC = blob_agg_blobstate_transfn,
    STYPE = internal,
    SSPACE = 65536,
    FINALFUNC = blob_agg_finalfn,
    FINALFUNC_MODIFY = READ_WRITE,
    PARALLEL = UNSAFE
);
COMMENT ON AGGREGATE blob_agg(blobstate) IS
    'concatenates the inputs to a value of any size; takes space of the store until the '
    'collector finds that nothing refers to it';

-- An aggregate calls its functions with the privileges of its owner.
REVOKE ALL ON FUNCTION blob_agg_bytea_transfn(internal, bytea),
    blob_agg_blobstate_transfn(internal, blobstate), blob_agg_finalfn(internal) FROM PUBLIC;

CREATE FUNCTION blob_import(path text) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION blob_import(text) IS
    'content of a file of the server; takes space of the store until the collector finds '
    'that nothing refers to it';
CREATE FUNCTION blob_export(blobstate, path text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION blob_export(blobstate, text) IS
    'write the content to a file of the server, which is replaced at once; gives the size';
REVOKE ALL ON FUNCTION blob_import(text), blob_export(blobstate, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blob_import(text) TO pg_read_server_files;
GRANT EXECUTE ON FUNCTION blob_export(blobstate, text) TO pg_write_server_files;

CREATE FUNCTION blob_from_lo(oid) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION blob_from_lo(oid) IS
    'content of a large object; takes space of the store until the collector finds that '
    'nothing refers to it';
CREATE FUNCTION blob_to_lo(blobstate) RETURNS oid
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION blob_to_lo(blobstate) IS 'a new large object with the content';

-- ---------------------------------------------------------------------------
-- Order and equality by content, as bytea's.  With bytea on one side no cast is needed, so that
-- "content = $1" uses an index whatever the parameter's type.
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_eq(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_ne(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_lt(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_le(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_gt(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_ge(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_cmp(blobstate, blobstate) RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_eq(blobstate, blobstate) IS 'implementation of = operator';
COMMENT ON FUNCTION blob_ne(blobstate, blobstate) IS 'implementation of <> operator';
COMMENT ON FUNCTION blob_lt(blobstate, blobstate) IS 'implementation of < operator';
COMMENT ON FUNCTION blob_le(blobstate, blobstate) IS 'implementation of <= operator';
COMMENT ON FUNCTION blob_gt(blobstate, blobstate) IS 'implementation of > operator';
COMMENT ON FUNCTION blob_ge(blobstate, blobstate) IS 'implementation of >= operator';
COMMENT ON FUNCTION blob_cmp(blobstate, blobstate) IS
    'less, equal or greater: -, 0, + (btree support)';

CREATE FUNCTION blob_eq(blobstate, bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_eq_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_ne(blobstate, bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_ne_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_lt(blobstate, bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_lt_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_le(blobstate, bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_le_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_gt(blobstate, bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_gt_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_ge(blobstate, bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_ge_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_cmp(blobstate, bytea) RETURNS integer
    AS 'MODULE_PATHNAME', 'blob_cmp_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_eq(blobstate, bytea) IS 'implementation of = operator';
COMMENT ON FUNCTION blob_ne(blobstate, bytea) IS 'implementation of <> operator';
COMMENT ON FUNCTION blob_lt(blobstate, bytea) IS 'implementation of < operator';
COMMENT ON FUNCTION blob_le(blobstate, bytea) IS 'implementation of <= operator';
COMMENT ON FUNCTION blob_gt(blobstate, bytea) IS 'implementation of > operator';
COMMENT ON FUNCTION blob_ge(blobstate, bytea) IS 'implementation of >= operator';
COMMENT ON FUNCTION blob_cmp(blobstate, bytea) IS
    'less, equal or greater: -, 0, + (btree support)';

CREATE FUNCTION blob_eq(bytea, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_eq_of_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_ne(bytea, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_ne_of_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_lt(bytea, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_lt_of_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_le(bytea, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_le_of_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_gt(bytea, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_gt_of_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_ge(bytea, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_ge_of_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION blob_cmp(bytea, blobstate) RETURNS integer
    AS 'MODULE_PATHNAME', 'blob_cmp_of_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_eq(bytea, blobstate) IS 'implementation of = operator';
COMMENT ON FUNCTION blob_ne(bytea, blobstate) IS 'implementation of <> operator';
COMMENT ON FUNCTION blob_lt(bytea, blobstate) IS 'implementation of < operator';
COMMENT ON FUNCTION blob_le(bytea, blobstate) IS 'implementation of <= operator';
COMMENT ON FUNCTION blob_gt(bytea, blobstate) IS 'implementation of > operator';
COMMENT ON FUNCTION blob_ge(bytea, blobstate) IS 'implementation of >= operator';
COMMENT ON FUNCTION blob_cmp(bytea, blobstate) IS
    'less, equal or greater: -, 0, + (btree support)';

CREATE OPERATOR = (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_eq,
    COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE OPERATOR <> (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_ne,
    COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR < (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_lt,
    COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_le,
    COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR > (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_gt,
    COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);
CREATE OPERATOR >= (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_ge,
    COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
COMMENT ON OPERATOR = (blobstate, blobstate) IS 'equal contents';
COMMENT ON OPERATOR <> (blobstate, blobstate) IS 'different contents';
COMMENT ON OPERATOR < (blobstate, blobstate) IS 'order of contents: less';
COMMENT ON OPERATOR <= (blobstate, blobstate) IS 'order of contents: less or equal';
COMMENT ON OPERATOR > (blobstate, blobstate) IS 'order of contents: greater';
COMMENT ON OPERATOR >= (blobstate, blobstate) IS 'order of contents: greater or equal';

CREATE OPERATOR = (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_eq,
    COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES);
CREATE OPERATOR <> (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_ne,
    COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR < (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_lt,
    COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_le,
    COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR > (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_gt,
    COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);
CREATE OPERATOR >= (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_ge,
    COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
COMMENT ON OPERATOR = (blobstate, bytea) IS 'equal contents';
COMMENT ON OPERATOR <> (blobstate, bytea) IS 'different contents';
COMMENT ON OPERATOR < (blobstate, bytea) IS 'order of contents: less';
COMMENT ON OPERATOR <= (blobstate, bytea) IS 'order of contents: less or equal';
COMMENT ON OPERATOR > (blobstate, bytea) IS 'order of contents: greater';
COMMENT ON OPERATOR >= (blobstate, bytea) IS 'order of contents: greater or equal';

CREATE OPERATOR = (LEFTARG = bytea, RIGHTARG = blobstate, FUNCTION = blob_eq,
    COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES);
CREATE OPERATOR <> (LEFTARG = bytea, RIGHTARG = blobstate, FUNCTION = blob_ne,
    COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE OPERATOR < (LEFTARG = bytea, RIGHTARG = blobstate, FUNCTION = blob_lt,
    COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR <= (LEFTARG = bytea, RIGHTARG = blobstate, FUNCTION = blob_le,
    COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR > (LEFTARG = bytea, RIGHTARG = blobstate, FUNCTION = blob_gt,
    COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);
CREATE OPERATOR >= (LEFTARG = bytea, RIGHTARG = blobstate, FUNCTION = blob_ge,
    COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel);
COMMENT ON OPERATOR = (bytea, blobstate) IS 'equal contents';
COMMENT ON OPERATOR <> (bytea, blobstate) IS 'different contents';
COMMENT ON OPERATOR < (bytea, blobstate) IS 'order of contents: less';
COMMENT ON OPERATOR <= (bytea, blobstate) IS 'order of contents: less or equal';
COMMENT ON OPERATOR > (bytea, blobstate) IS 'order of contents: greater';
COMMENT ON OPERATOR >= (bytea, blobstate) IS 'order of contents: greater or equal';

CREATE FUNCTION blobstate_sortsupport(internal) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blobstate_sortsupport(internal) IS 'sort support (btree support)';
-- Only the server calls it, and checks no privilege.
REVOKE ALL ON FUNCTION blobstate_sortsupport(internal) FROM PUBLIC;

-- The family has no operators between bytea and bytea: these have a family of their own, which
-- must remain the one that sorts them.  So "=" against bytea is no merge join operator.  There is
-- no equalimage function, because values of equal content may have different descriptors.
CREATE OPERATOR FAMILY blobstate_ops USING btree;
COMMENT ON OPERATOR FAMILY blobstate_ops USING btree IS 'order by content';
CREATE OPERATOR CLASS blobstate_ops DEFAULT FOR TYPE blobstate USING btree FAMILY blobstate_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 blob_cmp(blobstate, blobstate),
    FUNCTION 2 (blobstate, blobstate) blobstate_sortsupport(internal);
COMMENT ON OPERATOR CLASS blobstate_ops USING btree IS
    'order by content; reads content where sizes, digests and prefixes do not decide';
ALTER OPERATOR FAMILY blobstate_ops USING btree ADD
    OPERATOR 1 < (blobstate, bytea), OPERATOR 2 <= (blobstate, bytea),
    OPERATOR 3 = (blobstate, bytea), OPERATOR 4 >= (blobstate, bytea),
    OPERATOR 5 > (blobstate, bytea),
    FUNCTION 1 (blobstate, bytea) blob_cmp(blobstate, bytea),
    OPERATOR 1 < (bytea, blobstate), OPERATOR 2 <= (bytea, blobstate),
    OPERATOR 3 = (bytea, blobstate), OPERATOR 4 >= (bytea, blobstate),
    OPERATOR 5 > (bytea, blobstate),
    FUNCTION 1 (bytea, blobstate) blob_cmp(bytea, blobstate);

CREATE FUNCTION blob_hash(blobstate) RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_hash(blobstate) IS 'hash of the digest';
CREATE FUNCTION blob_hash(bytea) RETURNS integer
    AS 'MODULE_PATHNAME', 'blob_hash_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_hash(bytea) IS 'hash of the digest, as of a blobstate of this content';
CREATE FUNCTION blob_hash_extended(blobstate, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_hash_extended(blobstate, bigint) IS 'seeded hash of the digest';
CREATE FUNCTION blob_hash_extended(bytea, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_hash_extended_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_hash_extended(bytea, bigint) IS
    'seeded hash of the digest, as of a blobstate of this content';

CREATE OPERATOR FAMILY blobstate_ops USING hash;
COMMENT ON OPERATOR FAMILY blobstate_ops USING hash IS 'equality of content';
CREATE OPERATOR CLASS blobstate_ops DEFAULT FOR TYPE blobstate USING hash FAMILY blobstate_ops AS
    OPERATOR 1 =,
    FUNCTION 1 blob_hash(blobstate),
    FUNCTION 2 blob_hash_extended(blobstate, bigint);
COMMENT ON OPERATOR CLASS blobstate_ops USING hash IS
    'equality of content by size and digest; never reads content of extents';
ALTER OPERATOR FAMILY blobstate_ops USING hash ADD
    OPERATOR 1 = (blobstate, bytea), OPERATOR 1 = (bytea, blobstate),
    FUNCTION 1 (bytea, bytea) blob_hash(bytea),
    FUNCTION 2 (bytea, bytea) blob_hash_extended(bytea, bigint);

-- ---------------------------------------------------------------------------
-- Order by digest: arbitrary, but reads no content; for equality and uniqueness
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_digest_lt(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_digest_lt(blobstate, blobstate) IS
    'implementation of *< operator';
CREATE FUNCTION blob_digest_le(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_digest_le(blobstate, blobstate) IS
    'implementation of *<= operator';
CREATE FUNCTION blob_digest_gt(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_digest_gt(blobstate, blobstate) IS
    'implementation of *> operator';
CREATE FUNCTION blob_digest_ge(blobstate, blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_digest_ge(blobstate, blobstate) IS
    'implementation of *>= operator';
CREATE FUNCTION blob_digest_cmp(blobstate, blobstate) RETURNS integer
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_digest_cmp(blobstate, blobstate) IS
    'less, equal or greater by digest: -, 0, + (btree support)';
CREATE FUNCTION blob_digest_cmp(blobstate, bytea) RETURNS integer
    AS 'MODULE_PATHNAME', 'blob_digest_cmp_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_digest_cmp(blobstate, bytea) IS
    'less, equal or greater by digest: -, 0, + (btree support)';
CREATE FUNCTION blob_digest_cmp(bytea, blobstate) RETURNS integer
    AS 'MODULE_PATHNAME', 'blob_digest_cmp_of_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_digest_cmp(bytea, blobstate) IS
    'less, equal or greater by digest: -, 0, + (btree support)';

CREATE OPERATOR *< (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_digest_lt,
    COMMUTATOR = *>, NEGATOR = *>=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR *<= (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_digest_le,
    COMMUTATOR = *>=, NEGATOR = *>, RESTRICT = scalarlesel, JOIN = scalarlejoinsel);
CREATE OPERATOR *> (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_digest_gt,
    COMMUTATOR = *<, NEGATOR = *<=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel);
CREATE OPERATOR *>= (LEFTARG = blobstate, RIGHTARG = blobstate, FUNCTION = blob_digest_ge,
    COMMUTATOR = *<=, NEGATOR = *<, RESTRICT = scalargesel, JOIN = scalargejoinsel);
COMMENT ON OPERATOR *< (blobstate, blobstate) IS 'order of digests: less';
COMMENT ON OPERATOR *<= (blobstate, blobstate) IS 'order of digests: less or equal';
COMMENT ON OPERATOR *> (blobstate, blobstate) IS 'order of digests: greater';
COMMENT ON OPERATOR *>= (blobstate, blobstate) IS 'order of digests: greater or equal';

CREATE OPERATOR FAMILY blobstate_digest_ops USING btree;
COMMENT ON OPERATOR FAMILY blobstate_digest_ops USING btree IS 'order by digest';
CREATE OPERATOR CLASS blobstate_digest_ops FOR TYPE blobstate USING btree
    FAMILY blobstate_digest_ops AS
    OPERATOR 1 *<, OPERATOR 2 *<=, OPERATOR 3 =, OPERATOR 4 *>=, OPERATOR 5 *>,
    FUNCTION 1 blob_digest_cmp(blobstate, blobstate);
COMMENT ON OPERATOR CLASS blobstate_digest_ops USING btree IS
    'equality and uniqueness of content by digest; never reads content of extents';
ALTER OPERATOR FAMILY blobstate_digest_ops USING btree ADD
    OPERATOR 3 = (blobstate, bytea), OPERATOR 3 = (bytea, blobstate),
    FUNCTION 1 (blobstate, bytea) blob_digest_cmp(blobstate, bytea),
    FUNCTION 1 (bytea, blobstate) blob_digest_cmp(bytea, blobstate);

-- ---------------------------------------------------------------------------
-- Aggregates by order
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_smaller(blobstate, blobstate) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_smaller(blobstate, blobstate) IS 'smaller of two';
CREATE FUNCTION blob_larger(blobstate, blobstate) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_larger(blobstate, blobstate) IS 'larger of two';
CREATE AGGREGATE min(blobstate) (SFUNC = blob_smaller, STYPE = blobstate, SORTOP = <,
    COMBINEFUNC = blob_smaller, PARALLEL = SAFE);
COMMENT ON AGGREGATE min(blobstate) IS 'smallest content of all input values';
CREATE AGGREGATE max(blobstate) (SFUNC = blob_larger, STYPE = blobstate, SORTOP = >,
    COMBINEFUNC = blob_larger, PARALLEL = SAFE);
COMMENT ON AGGREGATE max(blobstate) IS 'largest content of all input values';

-- ---------------------------------------------------------------------------
-- The store: extent map, checks, statistics
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_map_handler(internal) RETURNS table_am_handler
    AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION blobext_map_handler(internal) IS 'handler of access method blobext_map';
-- Only the server calls it, and checks no privilege.
REVOKE ALL ON FUNCTION blobext_map_handler(internal) FROM PUBLIC;
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
    'problems of the extent store: every value of one or all tables against map, files and digest; '
    'every key of their B-trees against the map; bounds and keys of partitioned tables; relations '
    'that cannot be read; for all tables, map and files by themselves';

CREATE FUNCTION blobext_repair_bounds(detach_lost boolean DEFAULT false,
        OUT relation regclass, OUT outcome text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_repair_bounds(boolean) FROM PUBLIC;
COMMENT ON FUNCTION blobext_repair_bounds(boolean) IS
    'partition bounds that an older library kept as references to stored content become content; '
    'if the content is gone, the partition is detached, where that is asked for';

CREATE FUNCTION blobext_check_state(OUT pid integer, OUT relation regclass,
        OUT relations_done bigint, OUT relations_total bigint,
        OUT values_done bigint, OUT bytes_read bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_check_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_check_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_check_state() IS 'behind view blobext_check_progress';
CREATE VIEW blobext_check_progress AS SELECT * FROM @extschema@.blobext_check_state();
GRANT SELECT ON blobext_check_progress TO pg_monitor;
COMMENT ON VIEW blobext_check_progress IS 'blobext_check() as it runs in this database';
COMMENT ON COLUMN blobext_check_progress.pid IS 'process that checks';
COMMENT ON COLUMN blobext_check_progress.relation IS
    'table or index that is being read; null while the extent map is';
COMMENT ON COLUMN blobext_check_progress.relations_done IS 'tables that are done';
COMMENT ON COLUMN blobext_check_progress.relations_total IS
    'tables to be looked at, also those without values; 0 while the extent map is read';
COMMENT ON COLUMN blobext_check_progress.values_done IS 'values checked, the current one included';
COMMENT ON COLUMN blobext_check_progress.bytes_read IS 'their content in bytes';

CREATE FUNCTION blobext_space_usage(
        OUT segment integer, OUT state text, OUT tier integer, OUT extents bigint,
        OUT pages bigint, OUT bytes bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
REVOKE ALL ON FUNCTION blobext_space_usage() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_space_usage() TO pg_monitor;
COMMENT ON FUNCTION blobext_space_usage() IS 'behind view blobext_space';
CREATE VIEW blobext_space AS
    SELECT segment, state, tier, extents, pages, bytes FROM @extschema@.blobext_space_usage();
GRANT SELECT ON blobext_space TO pg_monitor;
COMMENT ON VIEW blobext_space IS
    'use of the pages of each segment; reads the whole extent map';
COMMENT ON COLUMN blobext_space.segment IS 'number of the segment (file of up to 1 GiB)';
COMMENT ON COLUMN blobext_space.state IS
    'tier or tail: allocated extents of this kind; free; pending: freed, can be reused after the '
    'next checkpoint; absent: taken from the file system and given back';
COMMENT ON COLUMN blobext_space.tier IS 'tier whose size the extents have; null where none';
COMMENT ON COLUMN blobext_space.extents IS 'extents that begin in the segment; null where none';
COMMENT ON COLUMN blobext_space.pages IS 'pages of 4 kB in the segment';
COMMENT ON COLUMN blobext_space.bytes IS 'bytes in the segment';

CREATE FUNCTION blobext_files(
        OUT segment integer, OUT file text, OUT bytes bigint, OUT file_bytes bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
REVOKE ALL ON FUNCTION blobext_files() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_files() TO pg_monitor;
COMMENT ON FUNCTION blobext_files() IS
    'files that the extent map says this database has, below the data directory: the least size of '
    'each, and the size it has (null: it is missing)';

CREATE FUNCTION blobext_gc(dry_run boolean DEFAULT false,
        OUT freed_blobs bigint, OUT freed_bytes bigint, OUT live_blobs bigint,
        OUT live_bytes bigint, OUT skipped_reason text)
    RETURNS record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION blobext_gc(boolean) FROM PUBLIC;
COMMENT ON FUNCTION blobext_gc(boolean) IS
    'free extents without a reference; a dry run counts only; must be alone in its statement';

CREATE FUNCTION blobext_gc_state(OUT datid oid, OUT pid integer, OUT phase text,
        OUT automatic boolean, OUT dry_run boolean,
        OUT started_at timestamptz, OUT ended_at timestamptz, OUT waiting_for text,
        OUT relations_done bigint, OUT relations_total bigint,
        OUT pages_done bigint, OUT pages_total bigint,
        OUT freed_blobs bigint, OUT freed_bytes bigint,
        OUT live_blobs bigint, OUT live_bytes bigint, OUT skipped_reason text,
        OUT completed_rounds bigint, OUT skipped_rounds bigint, OUT completed_at timestamptz,
        OUT dead_key_bytes bigint, OUT dead_key_index text, OUT dead_key_command text,
        OUT high_key_bytes bigint, OUT high_key_index text, OUT high_key_command text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 10;
REVOKE ALL ON FUNCTION blobext_gc_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_gc_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_gc_state() IS
    'behind the views blobext_gc_status and blobext_gc_databases';
CREATE VIEW blobext_gc_status AS
    SELECT s.pid, s.phase, s.automatic, s.dry_run, s.started_at, s.ended_at, s.waiting_for,
        s.relations_done, s.relations_total, s.pages_done, s.pages_total, s.freed_blobs,
        s.freed_bytes, s.live_blobs, s.live_bytes, s.skipped_reason, s.completed_rounds,
        s.skipped_rounds, s.completed_at, s.dead_key_bytes, s.dead_key_index, s.dead_key_command,
        s.high_key_bytes, s.high_key_index, s.high_key_command
    FROM @extschema@.blobext_gc_state() AS s
        JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid
    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database();
COMMENT ON VIEW blobext_gc_status IS
    'the running round of the collector in this database, or the last one since the server started';
COMMENT ON COLUMN blobext_gc_status.pid IS 'process that collects; null if none does';
COMMENT ON COLUMN blobext_gc_status.phase IS 'idle, waiting, marking, checking, sweeping';
COMMENT ON COLUMN blobext_gc_status.automatic IS 'a background worker runs the round';
COMMENT ON COLUMN blobext_gc_status.dry_run IS 'the round was told to free nothing';
COMMENT ON COLUMN blobext_gc_status.started_at IS 'when the round began';
COMMENT ON COLUMN blobext_gc_status.ended_at IS 'when it ended; null if it runs';
COMMENT ON COLUMN blobext_gc_status.waiting_for IS 'cause of the current wait; null if none';
COMMENT ON COLUMN blobext_gc_status.relations_done IS 'tables and indexes read';
COMMENT ON COLUMN blobext_gc_status.relations_total IS 'tables and indexes to be read';
COMMENT ON COLUMN blobext_gc_status.pages_done IS 'pages of tables and indexes read';
COMMENT ON COLUMN blobext_gc_status.pages_total IS 'pages to be read; an estimate';
COMMENT ON COLUMN blobext_gc_status.freed_blobs IS 'values freed; of a dry run: to be freed';
COMMENT ON COLUMN blobext_gc_status.freed_bytes IS 'bytes freed; of a dry run: to be freed';
COMMENT ON COLUMN blobext_gc_status.live_blobs IS 'values that remain; null if not counted';
COMMENT ON COLUMN blobext_gc_status.live_bytes IS 'bytes that remain; null if not counted';
COMMENT ON COLUMN blobext_gc_status.skipped_reason IS
    'reason that kept the round from freeing; null if there was none';
COMMENT ON COLUMN blobext_gc_status.completed_rounds IS 'complete rounds since the server started';
COMMENT ON COLUMN blobext_gc_status.skipped_rounds IS
    'rounds that something kept from freeing, since the server started';
COMMENT ON COLUMN blobext_gc_status.completed_at IS 'when the last complete round ended';
COMMENT ON COLUMN blobext_gc_status.dead_key_bytes IS
    'bytes that only index keys of deleted rows hold, as a complete round found; VACUUM frees them';
COMMENT ON COLUMN blobext_gc_status.dead_key_index IS 'the index whose keys hold most of them';
COMMENT ON COLUMN blobext_gc_status.dead_key_command IS 'the command that removes these keys';
COMMENT ON COLUMN blobext_gc_status.high_key_bytes IS
    'bytes that only keys between pages of indexes hold, as a complete round has found';
COMMENT ON COLUMN blobext_gc_status.high_key_index IS 'the index whose keys hold most of them';
COMMENT ON COLUMN blobext_gc_status.high_key_command IS 'the command that removes these keys';
GRANT SELECT ON blobext_gc_status TO pg_monitor;

CREATE VIEW blobext_gc_databases AS
    SELECT d.datname, s.pid, s.phase, s.automatic, s.dry_run, s.started_at, s.ended_at,
        s.waiting_for, s.relations_done, s.relations_total, s.pages_done, s.pages_total,
        s.freed_blobs, s.freed_bytes, s.live_blobs, s.live_bytes, s.skipped_reason,
        s.completed_rounds, s.skipped_rounds, s.completed_at, s.dead_key_bytes, s.dead_key_index,
        s.dead_key_command, s.high_key_bytes, s.high_key_index, s.high_key_command
    FROM @extschema@.blobext_gc_state() AS s
        JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid;
COMMENT ON VIEW blobext_gc_databases IS
    'the same as blobext_gc_status for all databases of the cluster';
COMMENT ON COLUMN blobext_gc_databases.datname IS 'name of the database';
COMMENT ON COLUMN blobext_gc_databases.pid IS 'process that collects; null if none does';
COMMENT ON COLUMN blobext_gc_databases.phase IS 'idle, waiting, marking, checking, sweeping';
COMMENT ON COLUMN blobext_gc_databases.automatic IS 'a background worker runs the round';
COMMENT ON COLUMN blobext_gc_databases.dry_run IS 'the round was told to free nothing';
COMMENT ON COLUMN blobext_gc_databases.started_at IS 'when the round began';
COMMENT ON COLUMN blobext_gc_databases.ended_at IS 'when it ended; null if it runs';
COMMENT ON COLUMN blobext_gc_databases.waiting_for IS 'cause of the current wait; null if none';
COMMENT ON COLUMN blobext_gc_databases.relations_done IS 'tables and indexes read';
COMMENT ON COLUMN blobext_gc_databases.relations_total IS 'tables and indexes to be read';
COMMENT ON COLUMN blobext_gc_databases.pages_done IS 'pages of tables and indexes read';
COMMENT ON COLUMN blobext_gc_databases.pages_total IS 'pages to be read; an estimate';
COMMENT ON COLUMN blobext_gc_databases.freed_blobs IS 'values freed; of a dry run: to be freed';
COMMENT ON COLUMN blobext_gc_databases.freed_bytes IS 'bytes freed; of a dry run: to be freed';
COMMENT ON COLUMN blobext_gc_databases.live_blobs IS 'values that remain; null if not counted';
COMMENT ON COLUMN blobext_gc_databases.live_bytes IS 'bytes that remain; null if not counted';
COMMENT ON COLUMN blobext_gc_databases.skipped_reason IS
    'reason that kept the round from freeing; null if there was none';
COMMENT ON COLUMN blobext_gc_databases.completed_rounds IS
    'complete rounds since the server started';
COMMENT ON COLUMN blobext_gc_databases.skipped_rounds IS
    'rounds that something kept from freeing, since the server started';
COMMENT ON COLUMN blobext_gc_databases.completed_at IS 'when the last complete round ended';
COMMENT ON COLUMN blobext_gc_databases.dead_key_bytes IS
    'bytes that only index keys of deleted rows hold, as a complete round found; VACUUM frees them';
COMMENT ON COLUMN blobext_gc_databases.dead_key_index IS 'the index whose keys hold most of them';
COMMENT ON COLUMN blobext_gc_databases.dead_key_command IS 'the command that removes these keys';
COMMENT ON COLUMN blobext_gc_databases.high_key_bytes IS
    'bytes that only keys between pages of indexes hold, as a complete round has found';
COMMENT ON COLUMN blobext_gc_databases.high_key_index IS 'the index whose keys hold most of them';
COMMENT ON COLUMN blobext_gc_databases.high_key_command IS 'the command that removes these keys';
GRANT SELECT ON blobext_gc_databases TO pg_monitor;

CREATE FUNCTION blobext_stat_counters(OUT name text, OUT value bigint) RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 22;
COMMENT ON FUNCTION blobext_stat_counters() IS 'behind view blobext_stat';
CREATE VIEW blobext_stat AS SELECT name, value FROM @extschema@.blobext_stat_counters();
COMMENT ON VIEW blobext_stat IS 'counters of the whole server since its start';
COMMENT ON COLUMN blobext_stat.name IS 'name of the counter or state';
COMMENT ON COLUMN blobext_stat.value IS 'count since the start of the server, or current value';
GRANT SELECT ON blobext_stat TO PUBLIC;
