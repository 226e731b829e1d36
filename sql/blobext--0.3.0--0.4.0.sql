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
