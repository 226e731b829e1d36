/* blobext 0.3.0 to 0.4.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION or ALTER EXTENSION
\echo Use "CREATE EXTENSION blobext" or "ALTER EXTENSION blobext UPDATE" to load this file. \quit

-- CREATE EXTENSION runs the scripts of 0.2.0 and 0.3.0 first, so new objects are written here only.

-- ---------------------------------------------------------------------------
-- Library: must be of a version that this script can use
-- ---------------------------------------------------------------------------

SELECT @extschema@.blobext_require_library('0.4.0');

-- ---------------------------------------------------------------------------
-- Assignment
-- ---------------------------------------------------------------------------

-- ---------------------------------------------------------------------------
-- Operators
-- ---------------------------------------------------------------------------

-- Equality reads no content and raises no error that depends on it, as that of bytea.  So indexes
-- serve it behind row security and security barriers.  Order reads content: it is not LEAKPROOF.
ALTER FUNCTION @extschema@.blob_eq(@extschema@.blobstate, @extschema@.blobstate) LEAKPROOF;
ALTER FUNCTION @extschema@.blob_eq(@extschema@.blobstate, pg_catalog.bytea) LEAKPROOF;
ALTER FUNCTION @extschema@.blob_eq(pg_catalog.bytea, @extschema@.blobstate) LEAKPROOF;
ALTER FUNCTION @extschema@.blob_ne(@extschema@.blobstate, @extschema@.blobstate) LEAKPROOF;
ALTER FUNCTION @extschema@.blob_ne(@extschema@.blobstate, pg_catalog.bytea) LEAKPROOF;
ALTER FUNCTION @extschema@.blob_ne(pg_catalog.bytea, @extschema@.blobstate) LEAKPROOF;

-- PostgreSQL finds the operators of NULLIF, IS DISTINCT FROM, CASE x WHEN, USING, NATURAL, BETWEEN,
-- IN, LIKE and of rows by the search_path alone, which pg_dump, postgres_fdw and the workers of
-- logical replication set empty.  So operators that SQL finds by their names are in pg_catalog, as
-- those of bytea are.  They are moved, not made anew: indexes, views and operator families have
-- their OIDs.
ALTER OPERATOR @extschema@.= (@extschema@.blobstate, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.<> (@extschema@.blobstate, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.< (@extschema@.blobstate, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.<= (@extschema@.blobstate, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.> (@extschema@.blobstate, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.>= (@extschema@.blobstate, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.= (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.<> (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.< (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.<= (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.> (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.>= (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.= (pg_catalog.bytea, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.<> (pg_catalog.bytea, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.< (pg_catalog.bytea, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.<= (pg_catalog.bytea, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.> (pg_catalog.bytea, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.>= (pg_catalog.bytea, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.|| (@extschema@.blobstate, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.|| (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.|| (pg_catalog.bytea, @extschema@.blobstate)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.~~ (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;
ALTER OPERATOR @extschema@.!~~ (@extschema@.blobstate, pg_catalog.bytea)
    SET SCHEMA pg_catalog;

-- Dumps of older versions, and statements of users, name them with the schema of the extension:
-- OPERATOR(public.=).  For these there is a second operator of each, of the same function.  Nothing
-- of the planner knows it: the library puts that of pg_catalog in its place
-- (src/sql/operators/named_operators.c).
CREATE OPERATOR @extschema@.= (LEFTARG = @extschema@.blobstate, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_eq,
    COMMUTATOR = OPERATOR(@extschema@.=), NEGATOR = OPERATOR(@extschema@.<>),
    RESTRICT = pg_catalog.eqsel, JOIN = pg_catalog.eqjoinsel);
CREATE OPERATOR @extschema@.<> (LEFTARG = @extschema@.blobstate, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_ne,
    COMMUTATOR = OPERATOR(@extschema@.<>), NEGATOR = OPERATOR(@extschema@.=),
    RESTRICT = pg_catalog.neqsel, JOIN = pg_catalog.neqjoinsel);
CREATE OPERATOR @extschema@.< (LEFTARG = @extschema@.blobstate, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_lt,
    COMMUTATOR = OPERATOR(@extschema@.>), NEGATOR = OPERATOR(@extschema@.>=),
    RESTRICT = pg_catalog.scalarltsel, JOIN = pg_catalog.scalarltjoinsel);
CREATE OPERATOR @extschema@.<= (LEFTARG = @extschema@.blobstate, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_le,
    COMMUTATOR = OPERATOR(@extschema@.>=), NEGATOR = OPERATOR(@extschema@.>),
    RESTRICT = pg_catalog.scalarlesel, JOIN = pg_catalog.scalarlejoinsel);
CREATE OPERATOR @extschema@.> (LEFTARG = @extschema@.blobstate, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_gt,
    COMMUTATOR = OPERATOR(@extschema@.<), NEGATOR = OPERATOR(@extschema@.<=),
    RESTRICT = pg_catalog.scalargtsel, JOIN = pg_catalog.scalargtjoinsel);
CREATE OPERATOR @extschema@.>= (LEFTARG = @extschema@.blobstate, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_ge,
    COMMUTATOR = OPERATOR(@extschema@.<=), NEGATOR = OPERATOR(@extschema@.<),
    RESTRICT = pg_catalog.scalargesel, JOIN = pg_catalog.scalargejoinsel);
COMMENT ON OPERATOR @extschema@.= (@extschema@.blobstate, @extschema@.blobstate) IS
    'equal contents (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.<> (@extschema@.blobstate, @extschema@.blobstate) IS
    'different contents (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.< (@extschema@.blobstate, @extschema@.blobstate) IS
    'order of contents: less (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.<= (@extschema@.blobstate, @extschema@.blobstate) IS
    'order of contents: less or equal (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.> (@extschema@.blobstate, @extschema@.blobstate) IS
    'order of contents: greater (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.>= (@extschema@.blobstate, @extschema@.blobstate) IS
    'order of contents: greater or equal (by the name with this schema)';
CREATE OPERATOR @extschema@.= (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_eq,
    COMMUTATOR = OPERATOR(@extschema@.=), NEGATOR = OPERATOR(@extschema@.<>),
    RESTRICT = pg_catalog.eqsel, JOIN = pg_catalog.eqjoinsel);
CREATE OPERATOR @extschema@.<> (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_ne,
    COMMUTATOR = OPERATOR(@extschema@.<>), NEGATOR = OPERATOR(@extschema@.=),
    RESTRICT = pg_catalog.neqsel, JOIN = pg_catalog.neqjoinsel);
CREATE OPERATOR @extschema@.< (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_lt,
    COMMUTATOR = OPERATOR(@extschema@.>), NEGATOR = OPERATOR(@extschema@.>=),
    RESTRICT = pg_catalog.scalarltsel, JOIN = pg_catalog.scalarltjoinsel);
CREATE OPERATOR @extschema@.<= (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_le,
    COMMUTATOR = OPERATOR(@extschema@.>=), NEGATOR = OPERATOR(@extschema@.>),
    RESTRICT = pg_catalog.scalarlesel, JOIN = pg_catalog.scalarlejoinsel);
CREATE OPERATOR @extschema@.> (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_gt,
    COMMUTATOR = OPERATOR(@extschema@.<), NEGATOR = OPERATOR(@extschema@.<=),
    RESTRICT = pg_catalog.scalargtsel, JOIN = pg_catalog.scalargtjoinsel);
CREATE OPERATOR @extschema@.>= (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_ge,
    COMMUTATOR = OPERATOR(@extschema@.<=), NEGATOR = OPERATOR(@extschema@.<),
    RESTRICT = pg_catalog.scalargesel, JOIN = pg_catalog.scalargejoinsel);
COMMENT ON OPERATOR @extschema@.= (@extschema@.blobstate, pg_catalog.bytea) IS
    'equal contents (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.<> (@extschema@.blobstate, pg_catalog.bytea) IS
    'different contents (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.< (@extschema@.blobstate, pg_catalog.bytea) IS
    'order of contents: less (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.<= (@extschema@.blobstate, pg_catalog.bytea) IS
    'order of contents: less or equal (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.> (@extschema@.blobstate, pg_catalog.bytea) IS
    'order of contents: greater (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.>= (@extschema@.blobstate, pg_catalog.bytea) IS
    'order of contents: greater or equal (by the name with this schema)';
CREATE OPERATOR @extschema@.= (LEFTARG = pg_catalog.bytea, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_eq,
    COMMUTATOR = OPERATOR(@extschema@.=), NEGATOR = OPERATOR(@extschema@.<>),
    RESTRICT = pg_catalog.eqsel, JOIN = pg_catalog.eqjoinsel);
CREATE OPERATOR @extschema@.<> (LEFTARG = pg_catalog.bytea, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_ne,
    COMMUTATOR = OPERATOR(@extschema@.<>), NEGATOR = OPERATOR(@extschema@.=),
    RESTRICT = pg_catalog.neqsel, JOIN = pg_catalog.neqjoinsel);
CREATE OPERATOR @extschema@.< (LEFTARG = pg_catalog.bytea, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_lt,
    COMMUTATOR = OPERATOR(@extschema@.>), NEGATOR = OPERATOR(@extschema@.>=),
    RESTRICT = pg_catalog.scalarltsel, JOIN = pg_catalog.scalarltjoinsel);
CREATE OPERATOR @extschema@.<= (LEFTARG = pg_catalog.bytea, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_le,
    COMMUTATOR = OPERATOR(@extschema@.>=), NEGATOR = OPERATOR(@extschema@.>),
    RESTRICT = pg_catalog.scalarlesel, JOIN = pg_catalog.scalarlejoinsel);
CREATE OPERATOR @extschema@.> (LEFTARG = pg_catalog.bytea, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_gt,
    COMMUTATOR = OPERATOR(@extschema@.<), NEGATOR = OPERATOR(@extschema@.<=),
    RESTRICT = pg_catalog.scalargtsel, JOIN = pg_catalog.scalargtjoinsel);
CREATE OPERATOR @extschema@.>= (LEFTARG = pg_catalog.bytea, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_ge,
    COMMUTATOR = OPERATOR(@extschema@.<=), NEGATOR = OPERATOR(@extschema@.<),
    RESTRICT = pg_catalog.scalargesel, JOIN = pg_catalog.scalargejoinsel);
COMMENT ON OPERATOR @extschema@.= (pg_catalog.bytea, @extschema@.blobstate) IS
    'equal contents (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.<> (pg_catalog.bytea, @extschema@.blobstate) IS
    'different contents (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.< (pg_catalog.bytea, @extschema@.blobstate) IS
    'order of contents: less (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.<= (pg_catalog.bytea, @extschema@.blobstate) IS
    'order of contents: less or equal (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.> (pg_catalog.bytea, @extschema@.blobstate) IS
    'order of contents: greater (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.>= (pg_catalog.bytea, @extschema@.blobstate) IS
    'order of contents: greater or equal (by the name with this schema)';
CREATE OPERATOR @extschema@.|| (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_append);
COMMENT ON OPERATOR @extschema@.|| (@extschema@.blobstate, pg_catalog.bytea) IS
    'append (by the name with this schema); takes space of the store until the collector '
    'finds that nothing refers to it';
CREATE OPERATOR @extschema@.|| (LEFTARG = @extschema@.blobstate, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_concat);
COMMENT ON OPERATOR @extschema@.|| (@extschema@.blobstate, @extschema@.blobstate) IS
    'concatenate (by the name with this schema); takes space of the store until the collector '
    'finds that nothing refers to it';
CREATE OPERATOR @extschema@.|| (LEFTARG = pg_catalog.bytea, RIGHTARG = @extschema@.blobstate,
    FUNCTION = @extschema@.blob_prepend);
COMMENT ON OPERATOR @extschema@.|| (pg_catalog.bytea, @extschema@.blobstate) IS
    'prepend (by the name with this schema); takes space of the store until the collector '
    'finds that nothing refers to it';
CREATE OPERATOR @extschema@.~~ (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_like, NEGATOR = OPERATOR(@extschema@.!~~),
    RESTRICT = pg_catalog.likesel, JOIN = pg_catalog.likejoinsel);
CREATE OPERATOR @extschema@.!~~ (LEFTARG = @extschema@.blobstate, RIGHTARG = pg_catalog.bytea,
    FUNCTION = @extschema@.blob_not_like, NEGATOR = OPERATOR(@extschema@.~~),
    RESTRICT = pg_catalog.nlikesel, JOIN = pg_catalog.nlikejoinsel);
COMMENT ON OPERATOR @extschema@.~~ (@extschema@.blobstate, pg_catalog.bytea) IS
    'matches LIKE expression (by the name with this schema)';
COMMENT ON OPERATOR @extschema@.!~~ (@extschema@.blobstate, pg_catalog.bytea) IS
    'does not match LIKE expression (by the name with this schema)';

-- The parser takes a comparison of rows, and ORDER BY ... USING, only by operators of a family.
CREATE OPERATOR FAMILY @extschema@.blobstate_named_ops USING btree;
COMMENT ON OPERATOR FAMILY @extschema@.blobstate_named_ops USING btree IS
    'order by content, of the operators that are named with this schema';
ALTER OPERATOR FAMILY @extschema@.blobstate_named_ops USING btree ADD
    OPERATOR 1 @extschema@.< (@extschema@.blobstate, @extschema@.blobstate),
    OPERATOR 2 @extschema@.<= (@extschema@.blobstate, @extschema@.blobstate),
    OPERATOR 3 @extschema@.= (@extschema@.blobstate, @extschema@.blobstate),
    OPERATOR 4 @extschema@.>= (@extschema@.blobstate, @extschema@.blobstate),
    OPERATOR 5 @extschema@.> (@extschema@.blobstate, @extschema@.blobstate),
    FUNCTION 1 (@extschema@.blobstate, @extschema@.blobstate)
        @extschema@.blob_cmp(@extschema@.blobstate, @extschema@.blobstate),
    OPERATOR 1 @extschema@.< (@extschema@.blobstate, pg_catalog.bytea),
    OPERATOR 2 @extschema@.<= (@extschema@.blobstate, pg_catalog.bytea),
    OPERATOR 3 @extschema@.= (@extschema@.blobstate, pg_catalog.bytea),
    OPERATOR 4 @extschema@.>= (@extschema@.blobstate, pg_catalog.bytea),
    OPERATOR 5 @extschema@.> (@extschema@.blobstate, pg_catalog.bytea),
    FUNCTION 1 (@extschema@.blobstate, pg_catalog.bytea)
        @extschema@.blob_cmp(@extschema@.blobstate, pg_catalog.bytea),
    OPERATOR 1 @extschema@.< (pg_catalog.bytea, @extschema@.blobstate),
    OPERATOR 2 @extschema@.<= (pg_catalog.bytea, @extschema@.blobstate),
    OPERATOR 3 @extschema@.= (pg_catalog.bytea, @extschema@.blobstate),
    OPERATOR 4 @extschema@.>= (pg_catalog.bytea, @extschema@.blobstate),
    OPERATOR 5 @extschema@.> (pg_catalog.bytea, @extschema@.blobstate),
    FUNCTION 1 (pg_catalog.bytea, @extschema@.blobstate)
        @extschema@.blob_cmp(pg_catalog.bytea, @extschema@.blobstate);

-- Where no hook of the library sees the expression, the planner asks the function behind it.
CREATE FUNCTION @extschema@.blob_operator_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.blob_operator_support(internal) IS
    'puts the operator of pg_catalog in the place of its function (planner support)';
-- Only the server calls it, and checks no privilege.
REVOKE ALL ON FUNCTION @extschema@.blob_operator_support(internal) FROM PUBLIC;
ALTER FUNCTION @extschema@.blob_eq(@extschema@.blobstate, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_ne(@extschema@.blobstate, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_lt(@extschema@.blobstate, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_le(@extschema@.blobstate, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_gt(@extschema@.blobstate, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_ge(@extschema@.blobstate, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_eq(@extschema@.blobstate, pg_catalog.bytea)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_ne(@extschema@.blobstate, pg_catalog.bytea)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_lt(@extschema@.blobstate, pg_catalog.bytea)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_le(@extschema@.blobstate, pg_catalog.bytea)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_gt(@extschema@.blobstate, pg_catalog.bytea)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_ge(@extschema@.blobstate, pg_catalog.bytea)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_eq(pg_catalog.bytea, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_ne(pg_catalog.bytea, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_lt(pg_catalog.bytea, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_le(pg_catalog.bytea, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_gt(pg_catalog.bytea, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_ge(pg_catalog.bytea, @extschema@.blobstate)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_like(@extschema@.blobstate, pg_catalog.bytea)
    SUPPORT @extschema@.blob_operator_support;
ALTER FUNCTION @extschema@.blob_not_like(@extschema@.blobstate, pg_catalog.bytea)
    SUPPORT @extschema@.blob_operator_support;

-- The cast of bytea is implicit, so that COALESCE, CASE, GREATEST, ARRAY, VALUES, UNION and IN have
-- a common type of both.  That of blobstate is none: it would fetch values of any size unseen.
DROP CAST (pg_catalog.bytea AS @extschema@.blobstate);
CREATE CAST (pg_catalog.bytea AS @extschema@.blobstate)
    WITH FUNCTION @extschema@.blobstate(pg_catalog.bytea) AS IMPLICIT;
COMMENT ON CAST (pg_catalog.bytea AS @extschema@.blobstate) IS 'implicit: content as it is';

-- ---------------------------------------------------------------------------
-- Streaming
-- ---------------------------------------------------------------------------

-- READ_ONLY: a state takes more input after its final function has run, so these are window
-- functions, too.
CREATE OR REPLACE AGGREGATE @extschema@.blob_agg(bytea) (
    SFUNC = @extschema@.blob_agg_bytea_transfn,
    STYPE = internal,
    SSPACE = 65536,
    FINALFUNC = @extschema@.blob_agg_finalfn,
    FINALFUNC_MODIFY = READ_ONLY,
    PARALLEL = UNSAFE
);
CREATE OR REPLACE AGGREGATE @extschema@.blob_agg(@extschema@.blobstate) (
    SFUNC = @extschema@.blob_agg_blobstate_transfn,
    STYPE = internal,
    SSPACE = 65536,
    FINALFUNC = @extschema@.blob_agg_finalfn,
    FINALFUNC_MODIFY = READ_ONLY,
    PARALLEL = UNSAFE
);
CREATE OR REPLACE AGGREGATE @extschema@.string_agg(@extschema@.blobstate_operand, bytea) (
    SFUNC = @extschema@.blob_string_agg_transfn,
    STYPE = internal,
    SSPACE = 65536,
    FINALFUNC = @extschema@.blob_agg_finalfn,
    FINALFUNC_MODIFY = READ_ONLY,
    PARALLEL = UNSAFE
);

-- The calls of older scripts were not exact: generate_series(integer, bigint) of the schema's owner
-- fitted better than PostgreSQL's function, and is part of blob_chunks() then.  Here all names have
-- a schema, and all arguments the very types.
CREATE OR REPLACE FUNCTION blob_chunks(content blobstate, chunk_size integer DEFAULT 1048576)
    RETURNS TABLE (chunk_no bigint, "offset" bigint, data bytea)
    LANGUAGE SQL IMMUTABLE PARALLEL SAFE ROWS 100 COST 100
BEGIN ATOMIC
    SELECT n, n OPERATOR(pg_catalog.*) chunk_size::pg_catalog.int8,
        @extschema@.blob_read(content, n OPERATOR(pg_catalog.*) chunk_size::pg_catalog.int8,
            chunk_size::pg_catalog.int8)
    FROM pg_catalog.generate_series(0::pg_catalog.int8,
        @extschema@.blob_chunk_count(content, chunk_size) OPERATOR(pg_catalog.-) 1::pg_catalog.int8)
        AS n;
END;

-- ---------------------------------------------------------------------------
-- Values
-- ---------------------------------------------------------------------------

-- ---------------------------------------------------------------------------
-- Administration
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_enable_checksums() RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION blobext_enable_checksums() FROM PUBLIC;
COMMENT ON FUNCTION blobext_enable_checksums() IS
    'values that are stored from now on get checksums of their pages; returns whether they got '
    'none before. Standbys need blobext 0.4 or later then';

CREATE PROCEDURE blobext_add_checksums(relation regclass DEFAULT NULL,
        INOUT values_read bigint DEFAULT NULL, INOUT pages_added bigint DEFAULT NULL,
        INOUT values_failed bigint DEFAULT NULL)
    AS 'MODULE_PATHNAME' LANGUAGE C;
REVOKE ALL ON PROCEDURE blobext_add_checksums(regclass, bigint, bigint, bigint) FROM PUBLIC;
COMMENT ON PROCEDURE blobext_add_checksums(regclass, bigint, bigint, bigint) IS
    'reads the values of a table, or of all, whose pages lack checksums, compares them with their '
    'SHA-256, and adds the checksums; changes no rows, and commits after each batch';

CREATE FUNCTION blobext_add_checksums_state(OUT pid integer, OUT relation regclass,
        OUT relations_done bigint, OUT relations_total bigint, OUT blocks_done bigint,
        OUT blocks_total bigint, OUT bytes_read bigint, OUT values_read bigint,
        OUT pages_added bigint, OUT values_failed bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_add_checksums_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_add_checksums_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_add_checksums_state() IS 'behind view blobext_add_checksums_progress';
CREATE VIEW blobext_add_checksums_progress AS
    SELECT * FROM @extschema@.blobext_add_checksums_state();
GRANT SELECT ON blobext_add_checksums_progress TO pg_monitor;
COMMENT ON VIEW blobext_add_checksums_progress IS
    'blobext_add_checksums() as it runs in this database';
COMMENT ON COLUMN blobext_add_checksums_progress.pid IS 'process that works';
COMMENT ON COLUMN blobext_add_checksums_progress.relation IS 'table whose values are read';
COMMENT ON COLUMN blobext_add_checksums_progress.relations_done IS
    'tables and materialized views that are done';
COMMENT ON COLUMN blobext_add_checksums_progress.relations_total IS
    'tables and materialized views to be done, those without values included';
COMMENT ON COLUMN blobext_add_checksums_progress.blocks_done IS 'blocks of the table that are done';
COMMENT ON COLUMN blobext_add_checksums_progress.blocks_total IS
    'blocks that the table had at the beginning';
COMMENT ON COLUMN blobext_add_checksums_progress.bytes_read IS
    'content of the values that lacked checksums';
COMMENT ON COLUMN blobext_add_checksums_progress.values_read IS
    'values that lacked checksums, and have been proven';
COMMENT ON COLUMN blobext_add_checksums_progress.pages_added IS
    'pages of 4 kB that have got checksums';
COMMENT ON COLUMN blobext_add_checksums_progress.values_failed IS
    'values that cannot be read, or do not match their SHA-256';

CREATE FUNCTION blob_footprint(blobstate, OUT value_id bigint, OUT runs bigint,
        OUT natural_runs bigint, OUT extent_bytes bigint, OUT dead_bytes bigint)
    RETURNS record
    AS 'MODULE_PATHNAME', 'blob_footprint_sql' LANGUAGE C STABLE STRICT PARALLEL UNSAFE COST 100;
COMMENT ON FUNCTION blob_footprint(blobstate) IS
    'how a value lies in the store: a number that copies of it share, runs of adjacent pages, one '
    'run for each started megabyte, bytes of its extents, those that hold nothing of it';
CREATE FUNCTION blobext_fragmentation(relation regclass, column_name text,
        max_dead_ratio double precision DEFAULT 0.05, max_extra_runs integer DEFAULT 1,
        OUT part regclass, OUT rows bigint, OUT distinct_values bigint, OUT runs bigint,
        OUT max_runs bigint, OUT content_bytes bigint, OUT extent_bytes bigint,
        OUT dead_bytes bigint, OUT shared_values bigint, OUT unreadable_values bigint,
        OUT due_values bigint, OUT due_bytes bigint, OUT due_runs bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION blobext_fragmentation(regclass, text, double precision, integer) IS
    'by table or partition, how the values of a column lie in the store: runs of adjacent pages, '
    'dead bytes, and which of them blobext_defragment() would write anew';
CREATE PROCEDURE blobext_defragment(relation regclass, column_name text,
        max_dead_ratio double precision DEFAULT 0.05, max_extra_runs integer DEFAULT 1,
        batch_rows integer DEFAULT 50, rate integer DEFAULT 0,
        INOUT values_written bigint DEFAULT NULL, INOUT bytes_written bigint DEFAULT NULL,
        INOUT rows_changed bigint DEFAULT NULL, INOUT rows_skipped bigint DEFAULT NULL,
        INOUT rows_failed bigint DEFAULT NULL)
    AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON PROCEDURE blobext_defragment(regclass, text, double precision, integer, integer, integer,
    bigint, bigint, bigint, bigint, bigint) IS
    'writes values anew that have more dead bytes than max_dead_ratio of their live ones, or more '
    'runs than one for each started megabyte and max_extra_runs; updates rows in batches, and '
    'commits after each; rate: megabytes a second, 0: no limit';

CREATE FUNCTION blobext_defragment_state(OUT pid integer, OUT relation regclass,
        OUT rows_done bigint, OUT rows_total bigint, OUT values_written bigint,
        OUT bytes_written bigint, OUT rows_changed bigint, OUT rows_skipped bigint,
        OUT rows_failed bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_defragment_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_defragment_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_defragment_state() IS 'behind view blobext_defragment_progress';
CREATE VIEW blobext_defragment_progress AS SELECT * FROM @extschema@.blobext_defragment_state();
GRANT SELECT ON blobext_defragment_progress TO pg_monitor;
COMMENT ON VIEW blobext_defragment_progress IS
    'blobext_defragment() as it runs in this database';
COMMENT ON COLUMN blobext_defragment_progress.pid IS 'process that works';
COMMENT ON COLUMN blobext_defragment_progress.relation IS 'table whose values are written anew';
COMMENT ON COLUMN blobext_defragment_progress.rows_done IS 'rows that are done';
COMMENT ON COLUMN blobext_defragment_progress.rows_total IS
    'rows to be done; 0 while it looks for them';
COMMENT ON COLUMN blobext_defragment_progress.values_written IS
    'values that were written anew; copies share one';
COMMENT ON COLUMN blobext_defragment_progress.bytes_written IS
    'content that was written, that of rows which had changed meanwhile included';
COMMENT ON COLUMN blobext_defragment_progress.rows_changed IS 'rows that have a new value';
COMMENT ON COLUMN blobext_defragment_progress.rows_skipped IS
    'rows that have changed, or are locked';
COMMENT ON COLUMN blobext_defragment_progress.rows_failed IS
    'rows whose value cannot be read, or whose update was refused';

-- ---------------------------------------------------------------------------
-- Open digests
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_store_contained(anyelement) RETURNS anyelement
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_store_contained(anyelement) IS
    'an array, row or range as it is stored in a column: digests of values inside are not open';
CREATE FUNCTION blob_digest_is_open(blobstate) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_digest_is_open(blobstate) IS
    'whether the value was changed without computing the digest: sha256() reads the content';
CREATE FUNCTION blobext_set_digest(relation regclass, column_name text, digest text)
    RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blobext_set_digest(regclass, text, text) IS
    'sets when digests of a column''s values are computed: deferred (a change in the middle leaves '
    'the digest open), sealed (each value has its digest); null: sealed, or as a partitioned table '
    'above says';
CREATE PROCEDURE blobext_seal(relation regclass, column_name text, batch_rows integer DEFAULT 50,
        INOUT rows_sealed bigint DEFAULT NULL, INOUT rows_skipped bigint DEFAULT NULL,
        INOUT rows_failed bigint DEFAULT NULL)
    AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON PROCEDURE blobext_seal(regclass, text, integer, bigint, bigint, bigint) IS
    'computes the open digests of a column''s values; updates rows in batches, and commits after '
    'each';

CREATE FUNCTION blobext_seal_state(OUT pid integer, OUT relation regclass,
        OUT blocks_done bigint, OUT blocks_total bigint, OUT bytes_read bigint,
        OUT rows_sealed bigint, OUT rows_skipped bigint, OUT rows_failed bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_seal_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_seal_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_seal_state() IS 'behind view blobext_seal_progress';
CREATE VIEW blobext_seal_progress AS SELECT * FROM @extschema@.blobext_seal_state();
GRANT SELECT ON blobext_seal_progress TO pg_monitor;
COMMENT ON VIEW blobext_seal_progress IS 'blobext_seal() as it runs in this database';
COMMENT ON COLUMN blobext_seal_progress.pid IS 'process that works';
COMMENT ON COLUMN blobext_seal_progress.relation IS 'table whose values get their digests';
COMMENT ON COLUMN blobext_seal_progress.blocks_done IS 'blocks of the table that are done';
COMMENT ON COLUMN blobext_seal_progress.blocks_total IS
    'blocks of the table, or of its longest partition';
COMMENT ON COLUMN blobext_seal_progress.bytes_read IS 'content of the values with open digests';
COMMENT ON COLUMN blobext_seal_progress.rows_sealed IS 'rows whose value has its digest now';
COMMENT ON COLUMN blobext_seal_progress.rows_skipped IS 'rows that have changed, or are locked';
COMMENT ON COLUMN blobext_seal_progress.rows_failed IS
    'rows whose value cannot be read, or whose update was refused';

-- ---------------------------------------------------------------------------
-- Collector, views and statistics
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_gc_kept(OUT datid oid, OUT kept_blobs bigint, OUT kept_bytes bigint,
        OUT kept_by text, OUT pages_unchanged bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 10;
REVOKE ALL ON FUNCTION blobext_gc_kept() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_gc_kept() TO pg_monitor;
COMMENT ON FUNCTION blobext_gc_kept() IS
    'behind the views blobext_gc_status and blobext_gc_databases';

CREATE OR REPLACE VIEW @extschema@.blobext_gc_status AS
    SELECT s.pid, s.phase, s.automatic, s.dry_run, s.started_at, s.ended_at, s.waiting_for,
        s.relations_done, s.relations_total, s.pages_done, s.pages_total, s.freed_blobs,
        s.freed_bytes, s.live_blobs, s.live_bytes, s.skipped_reason, s.completed_rounds,
        s.skipped_rounds, s.completed_at, s.dead_key_bytes, s.dead_key_index, s.dead_key_command,
        s.high_key_bytes, s.high_key_index, s.high_key_command,
        k.kept_blobs, k.kept_bytes, k.kept_by, k.pages_unchanged
    FROM @extschema@.blobext_gc_state() AS s
        JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid
        LEFT JOIN @extschema@.blobext_gc_kept() AS k ON k.datid OPERATOR(pg_catalog.=) s.datid
    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database();
COMMENT ON COLUMN @extschema@.blobext_gc_status.kept_blobs IS
    'values that only deleted rows hold which old snapshots may see, as a complete round found';
COMMENT ON COLUMN @extschema@.blobext_gc_status.kept_bytes IS 'bytes of these values';
COMMENT ON COLUMN @extschema@.blobext_gc_status.kept_by IS
    'what may see these rows: the oldest process, slot, standby or prepared transaction';
COMMENT ON COLUMN @extschema@.blobext_gc_status.pages_unchanged IS
    'pages of tables not read, because they have not changed since a round read them';

CREATE OR REPLACE VIEW @extschema@.blobext_gc_databases AS
    SELECT d.datname, s.pid, s.phase, s.automatic, s.dry_run, s.started_at, s.ended_at,
        s.waiting_for, s.relations_done, s.relations_total, s.pages_done, s.pages_total,
        s.freed_blobs, s.freed_bytes, s.live_blobs, s.live_bytes, s.skipped_reason,
        s.completed_rounds, s.skipped_rounds, s.completed_at, s.dead_key_bytes, s.dead_key_index,
        s.dead_key_command, s.high_key_bytes, s.high_key_index, s.high_key_command,
        k.kept_blobs, k.kept_bytes, k.kept_by, k.pages_unchanged
    FROM @extschema@.blobext_gc_state() AS s
        JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid
        LEFT JOIN @extschema@.blobext_gc_kept() AS k ON k.datid OPERATOR(pg_catalog.=) s.datid;
COMMENT ON COLUMN @extschema@.blobext_gc_databases.kept_blobs IS
    'values that only deleted rows hold which old snapshots may see, as a complete round found';
COMMENT ON COLUMN @extschema@.blobext_gc_databases.kept_bytes IS 'bytes of these values';
COMMENT ON COLUMN @extschema@.blobext_gc_databases.kept_by IS
    'what may see these rows: the oldest process, slot, standby or prepared transaction';
COMMENT ON COLUMN @extschema@.blobext_gc_databases.pages_unchanged IS
    'pages of tables not read, because they have not changed since a round read them';

CREATE FUNCTION blobext_scrub_results(OUT datid oid, OUT segment integer,
        OUT last_pass timestamptz, OUT verified_pages bigint, OUT pages_without_checksums bigint,
        OUT damaged_pages bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 100;
REVOKE ALL ON FUNCTION blobext_scrub_results() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_scrub_results() TO pg_monitor;
COMMENT ON FUNCTION blobext_scrub_results() IS 'behind the view blobext_scrub';

CREATE VIEW @extschema@.blobext_scrub AS
    SELECT d.datname, s.segment, s.last_pass, s.verified_pages, s.pages_without_checksums,
        s.damaged_pages
    FROM @extschema@.blobext_scrub_results() AS s
        JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid;
GRANT SELECT ON @extschema@.blobext_scrub TO pg_monitor;
COMMENT ON VIEW @extschema@.blobext_scrub IS
    'segments whose pages the scrubber has compared with their checksums, in all databases';
COMMENT ON COLUMN @extschema@.blobext_scrub.datname IS 'database';
COMMENT ON COLUMN @extschema@.blobext_scrub.segment IS
    'number of the segment, a file of up to 1 GiB';
COMMENT ON COLUMN @extschema@.blobext_scrub.last_pass IS
    'end of the last pass over the whole segment';
COMMENT ON COLUMN @extschema@.blobext_scrub.verified_pages IS
    'pages that had their checksums in that pass';
COMMENT ON COLUMN @extschema@.blobext_scrub.pages_without_checksums IS
    'pages with content that have none';
COMMENT ON COLUMN @extschema@.blobext_scrub.damaged_pages IS
    'pages of values in rows that did not have their checksums, or could not be read';

CREATE FUNCTION blobext_space_state(
        OUT segment integer, OUT state text, OUT tier integer, OUT extents bigint,
        OUT pages bigint, OUT bytes bigint, OUT checksummed_bytes bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'blobext_space_usage' LANGUAGE C VOLATILE PARALLEL SAFE;
REVOKE ALL ON FUNCTION blobext_space_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_space_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_space_state() IS 'behind view blobext_space';
CREATE OR REPLACE VIEW @extschema@.blobext_space AS
    SELECT segment, state, tier, extents, pages, bytes, checksummed_bytes
    FROM @extschema@.blobext_space_state();
COMMENT ON COLUMN @extschema@.blobext_space.checksummed_bytes IS
    'those of the bytes that belong to extents with checksums; null where there are no extents';
DROP FUNCTION @extschema@.blobext_space_usage();

COMMENT ON COLUMN @extschema@.blobext_databases.file_bytes IS
    'size of the segment files without holes; null until the free space is known, soon after a '
    'start';

-- ---------------------------------------------------------------------------
-- Limits of databases
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_store_limit(datid oid) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
REVOKE ALL ON FUNCTION blobext_store_limit(oid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_store_limit(oid) TO pg_monitor;
COMMENT ON FUNCTION blobext_store_limit(oid) IS 'behind the view blobext_databases';

-- Any role that may store finds it out, by storing until it is refused.
CREATE FUNCTION blobext_room() RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blobext_room() IS
    'bytes that values of this database can take besides those that it has; null: not known';

CREATE OR REPLACE VIEW @extschema@.blobext_databases AS
    SELECT d.datname, c.stored_blobs, c.stored_bytes, c.content_reads, c.content_read_bytes,
        c.stale_reads, s.file_bytes, s.allocated_bytes, s.free_bytes, s.pending_bytes,
        g.live_blobs, g.live_bytes, g.dead_key_bytes, g.high_key_bytes,
        @extschema@.blobext_store_limit(d.oid) AS max_bytes
    FROM pg_catalog.pg_database AS d
        LEFT JOIN (SELECT datid, pg_catalog.sum(stored_blobs)::bigint AS stored_blobs,
                pg_catalog.sum(stored_bytes)::bigint AS stored_bytes,
                pg_catalog.sum(content_reads)::bigint AS content_reads,
                pg_catalog.sum(content_read_bytes)::bigint AS content_read_bytes,
                pg_catalog.sum(stale_reads)::bigint AS stale_reads
            FROM @extschema@.blobext_database_counters() GROUP BY datid) AS c
            ON c.datid OPERATOR(pg_catalog.=) d.oid
        LEFT JOIN (SELECT datid, pg_catalog.sum(file_bytes)::bigint AS file_bytes,
                pg_catalog.sum(allocated_bytes)::bigint AS allocated_bytes,
                pg_catalog.sum(free_bytes)::bigint AS free_bytes,
                pg_catalog.sum(pending_bytes)::bigint AS pending_bytes
            FROM @extschema@.blobext_store_sizes() GROUP BY datid) AS s
            ON s.datid OPERATOR(pg_catalog.=) d.oid
        LEFT JOIN @extschema@.blobext_gc_state() AS g ON g.datid OPERATOR(pg_catalog.=) d.oid
    WHERE c.datid IS NOT NULL OR s.datid IS NOT NULL OR g.datid IS NOT NULL;
COMMENT ON COLUMN @extschema@.blobext_databases.max_bytes IS
    'most that allocated_bytes can be (blobext.max_store_size); null: no limit, or not known here';

-- ---------------------------------------------------------------------------
-- Content from another server
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_damage_state(OUT datid oid, OUT file text, OUT file_offset bigint,
        OUT page bigint, OUT relation text, OUT column_name text, OUT found_by text,
        OUT first_found timestamptz, OUT last_found timestamptz, OUT found_count bigint,
        OUT state text, OUT attempts integer, OUT last_attempt timestamptz, OUT last_error text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 10;
REVOKE ALL ON FUNCTION blobext_damage_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_damage_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_damage_state() IS 'behind view blobext_damaged_pages';

CREATE VIEW blobext_damaged_pages AS
    SELECT d.datname, s.file, s.file_offset, s.page, s.relation, s.column_name, s.found_by,
        s.first_found, s.last_found, s.found_count, s.state, s.attempts, s.last_attempt,
        s.last_error
    FROM @extschema@.blobext_damage_state() AS s
        JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid;
GRANT SELECT ON blobext_damaged_pages TO pg_monitor;
COMMENT ON VIEW @extschema@.blobext_check_progress IS
    'blobext_check(), and the search of a repair, as they run in this database';
COMMENT ON VIEW blobext_damaged_pages IS
    'pages of content that did not have their checksum, in all databases, since the start';
COMMENT ON COLUMN blobext_damaged_pages.datname IS 'name of the database';
COMMENT ON COLUMN blobext_damaged_pages.file IS 'segment file, in the data directory';
COMMENT ON COLUMN blobext_damaged_pages.file_offset IS 'where the page begins in it, in bytes';
COMMENT ON COLUMN blobext_damaged_pages.page IS 'number of the page in the store';
COMMENT ON COLUMN blobext_damaged_pages.relation IS
    'table that has a value in the page, or index; null until one was found';
COMMENT ON COLUMN blobext_damaged_pages.column_name IS 'column of that value';
COMMENT ON COLUMN blobext_damaged_pages.found_by IS
    'read: of a value; scrub: the scrubber; check: blobext_check()';
COMMENT ON COLUMN blobext_damaged_pages.first_found IS 'when the damage was found';
COMMENT ON COLUMN blobext_damaged_pages.last_found IS 'when it was found for the last time';
COMMENT ON COLUMN blobext_damaged_pages.found_count IS 'how often it was found';
COMMENT ON COLUMN blobext_damaged_pages.state IS
    'found; repairing; repaired; right: when it was read again; failed: last_error says why';
COMMENT ON COLUMN blobext_damaged_pages.attempts IS 'attempts of the worker to repair it';
COMMENT ON COLUMN blobext_damaged_pages.last_attempt IS 'when the last one began; null: none did';
COMMENT ON COLUMN blobext_damaged_pages.last_error IS 'why the last one did not succeed';
