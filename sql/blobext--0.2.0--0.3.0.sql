/* blobext 0.2.0 to 0.3.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION or ALTER EXTENSION
\echo Use "CREATE EXTENSION blobext" or "ALTER EXTENSION blobext UPDATE" to load this file. \quit

-- CREATE EXTENSION runs blobext--0.2.0.sql first, so new objects are written here only.

-- ---------------------------------------------------------------------------
-- Library: must be of a version that this script can use
-- ---------------------------------------------------------------------------

SELECT @extschema@.blobext_require_library('0.3.0');

-- ---------------------------------------------------------------------------
-- Statistics: per database
-- ---------------------------------------------------------------------------

CREATE FUNCTION blobext_database_counters(OUT datid oid, OUT stored_blobs bigint,
        OUT stored_bytes bigint, OUT content_reads bigint, OUT content_read_bytes bigint,
        OUT stale_reads bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 10;
REVOKE ALL ON FUNCTION blobext_database_counters() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_database_counters() TO pg_monitor;
COMMENT ON FUNCTION blobext_database_counters() IS 'behind the view blobext_databases';

CREATE FUNCTION blobext_store_sizes(OUT datid oid, OUT file_bytes bigint,
        OUT allocated_bytes bigint, OUT free_bytes bigint, OUT pending_bytes bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 10;
REVOKE ALL ON FUNCTION blobext_store_sizes() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_store_sizes() TO pg_monitor;
COMMENT ON FUNCTION blobext_store_sizes() IS 'behind the view blobext_databases';

CREATE VIEW blobext_databases AS
    SELECT d.datname, c.stored_blobs, c.stored_bytes, c.content_reads, c.content_read_bytes,
        c.stale_reads, s.file_bytes, s.allocated_bytes, s.free_bytes, s.pending_bytes,
        g.live_blobs, g.live_bytes, g.dead_key_bytes, g.high_key_bytes
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
COMMENT ON VIEW blobext_databases IS
    'counters and sizes of each database that has a store, since the server started';
COMMENT ON COLUMN blobext_databases.datname IS 'name of the database';
COMMENT ON COLUMN blobext_databases.stored_blobs IS 'values written to extents';
COMMENT ON COLUMN blobext_databases.stored_bytes IS 'their size';
COMMENT ON COLUMN blobext_databases.content_reads IS 'reads of extents that SQL asked for';
COMMENT ON COLUMN blobext_databases.content_read_bytes IS 'bytes that they returned';
COMMENT ON COLUMN blobext_databases.stale_reads IS
    'reads refused because an extent had been freed or reused';
COMMENT ON COLUMN blobext_databases.file_bytes IS
    'size of the segment files; null if nothing was stored since the server started';
COMMENT ON COLUMN blobext_databases.allocated_bytes IS
    'part of file_bytes in extents, those that the collector has yet to free among them';
COMMENT ON COLUMN blobext_databases.free_bytes IS 'part of file_bytes that can be given out';
COMMENT ON COLUMN blobext_databases.pending_bytes IS
    'part of file_bytes that was freed and waits for a flush or a checkpoint';
COMMENT ON COLUMN blobext_databases.live_blobs IS
    'values that the last round of the collector left';
COMMENT ON COLUMN blobext_databases.live_bytes IS 'bytes that it left';
COMMENT ON COLUMN blobext_databases.dead_key_bytes IS
    'bytes that only index keys of deleted rows hold, as a complete round found';
COMMENT ON COLUMN blobext_databases.high_key_bytes IS
    'bytes that only keys between pages of indexes hold, as a complete round found';
GRANT SELECT ON blobext_databases TO pg_monitor;
