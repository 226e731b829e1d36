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

-- ---------------------------------------------------------------------------
-- Content from another server
-- ---------------------------------------------------------------------------
