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
-- (src/sql/named_operators.c).
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

-- ---------------------------------------------------------------------------
-- Collector, views and statistics
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_gc_kept(OUT datid oid, OUT kept_blobs bigint, OUT kept_bytes bigint,
        OUT kept_by text)
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
        k.kept_blobs, k.kept_bytes, k.kept_by
    FROM @extschema@.blobext_gc_state() AS s
        JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid
        LEFT JOIN @extschema@.blobext_gc_kept() AS k ON k.datid OPERATOR(pg_catalog.=) s.datid
    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database();
COMMENT ON COLUMN @extschema@.blobext_gc_status.kept_blobs IS
    'values that only deleted rows hold which old snapshots may see, as a complete round found';
COMMENT ON COLUMN @extschema@.blobext_gc_status.kept_bytes IS 'bytes of these values';
COMMENT ON COLUMN @extschema@.blobext_gc_status.kept_by IS
    'what may see these rows: the oldest process, slot, standby or prepared transaction';

CREATE OR REPLACE VIEW @extschema@.blobext_gc_databases AS
    SELECT d.datname, s.pid, s.phase, s.automatic, s.dry_run, s.started_at, s.ended_at,
        s.waiting_for, s.relations_done, s.relations_total, s.pages_done, s.pages_total,
        s.freed_blobs, s.freed_bytes, s.live_blobs, s.live_bytes, s.skipped_reason,
        s.completed_rounds, s.skipped_rounds, s.completed_at, s.dead_key_bytes, s.dead_key_index,
        s.dead_key_command, s.high_key_bytes, s.high_key_index, s.high_key_command,
        k.kept_blobs, k.kept_bytes, k.kept_by
    FROM @extschema@.blobext_gc_state() AS s
        JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid
        LEFT JOIN @extschema@.blobext_gc_kept() AS k ON k.datid OPERATOR(pg_catalog.=) s.datid;
COMMENT ON COLUMN @extschema@.blobext_gc_databases.kept_blobs IS
    'values that only deleted rows hold which old snapshots may see, as a complete round found';
COMMENT ON COLUMN @extschema@.blobext_gc_databases.kept_bytes IS 'bytes of these values';
COMMENT ON COLUMN @extschema@.blobext_gc_databases.kept_by IS
    'what may see these rows: the oldest process, slot, standby or prepared transaction';

-- ---------------------------------------------------------------------------
-- Content from another server
-- ---------------------------------------------------------------------------
