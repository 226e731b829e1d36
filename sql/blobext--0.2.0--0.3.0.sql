/* blobext 0.2.0 to 0.3.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION or ALTER EXTENSION
\echo Use "CREATE EXTENSION blobext" or "ALTER EXTENSION blobext UPDATE" to load this file. \quit

-- CREATE EXTENSION runs blobext--0.2.0.sql first, so new objects are written here only.

-- ---------------------------------------------------------------------------
-- Library: must be of a version that this script can use
-- ---------------------------------------------------------------------------

SELECT @extschema@.blobext_require_library('0.3.0');

-- ---------------------------------------------------------------------------
-- Functions and operators that PostgreSQL has for bytea
--
-- A call that PostgreSQL alone can resolve must not come here, also if its arguments have no type
-- yet ('...' or $1).  So the types of some parameters are chosen for the rules of that resolution;
-- src/sql/README.md, "Functions of bytea", says how.  Those that SQL syntax calls, such as
-- TRIM(... FROM ...), are in pg_catalog, where that syntax looks for them.
-- ---------------------------------------------------------------------------

CREATE DOMAIN blobstate_operand AS blobstate;
COMMENT ON DOMAIN blobstate_operand IS
    'blobstate, as a parameter of functions that a literal without a type must not choose';

CREATE FUNCTION md5(blobstate) RETURNS text
    AS 'MODULE_PATHNAME', 'blob_md5' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION md5(blobstate) IS 'MD5 digest of the content, in hex';
CREATE FUNCTION sha224(blobstate) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_sha224' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION sha224(blobstate) IS 'SHA-224 digest of the content';
CREATE FUNCTION sha384(blobstate) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_sha384' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION sha384(blobstate) IS 'SHA-384 digest of the content';
CREATE FUNCTION sha512(blobstate) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_sha512' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION sha512(blobstate) IS 'SHA-512 digest of the content';
CREATE FUNCTION digest(blobstate_operand, algorithm anycompatible) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_digest_by_name' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION digest(blobstate_operand, anycompatible) IS
    'digest of the content by an algorithm of OpenSSL; the name is text, as for pgcrypto';

CREATE FUNCTION encode(blobstate_operand, format anycompatible) RETURNS text
    AS 'MODULE_PATHNAME', 'blob_encode' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION encode(blobstate_operand, anycompatible) IS
    'the content as text; format is text: hex, base64 or escape';
CREATE FUNCTION convert_from(blobstate_operand, src_encoding cstring) RETURNS text
    AS 'MODULE_PATHNAME', 'blob_convert_from' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION convert_from(blobstate_operand, cstring) IS
    'text of an encoding, whose name is a literal, as text of the database''s encoding';

CREATE FUNCTION bit_length(blobstate) RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_bit_length' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION bit_length(blobstate) IS 'size of the content in bits';
CREATE FUNCTION bit_count(blobstate) RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_bit_count' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION bit_count(blobstate) IS 'number of set bits of the content';
CREATE FUNCTION get_byte(blobstate, "offset" bigint) RETURNS integer
    AS 'MODULE_PATHNAME', 'blob_get_byte' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION get_byte(blobstate, bigint) IS 'the byte at an offset';
CREATE FUNCTION get_bit(blobstate, bit_no numeric) RETURNS integer
    AS 'MODULE_PATHNAME', 'blob_get_bit' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION get_bit(blobstate, numeric) IS
    'a bit, by its number; the first one is the lowest of the first byte';

CREATE FUNCTION pg_catalog."position"(blobstate_operand, bytea) RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_position' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION pg_catalog."position"(blobstate_operand, bytea) IS
    'position of bytes in the content, from 1 on; 0 if they are not there';
CREATE FUNCTION pg_catalog."substring"(blobstate, bigint) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_substring' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION pg_catalog."substring"(blobstate, bigint) IS
    'bytes from a position (the first byte has position 1) to the end';
CREATE FUNCTION pg_catalog."substring"(blobstate, bigint, bigint) RETURNS bytea
    AS 'MODULE_PATHNAME', 'blob_substring' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION pg_catalog."substring"(blobstate, bigint, bigint) IS
    'as many bytes as asked for from a position (the first byte has position 1) on';

CREATE FUNCTION blob_like(blobstate, bytea) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION blob_like(blobstate, bytea) IS 'implementation of ~~ operator';
CREATE FUNCTION blob_not_like(blobstate, bytea) RETURNS boolean
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
COMMENT ON FUNCTION blob_not_like(blobstate, bytea) IS 'implementation of !~~ operator';
CREATE OPERATOR ~~ (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_like,
    NEGATOR = !~~, RESTRICT = likesel, JOIN = likejoinsel);
CREATE OPERATOR !~~ (LEFTARG = blobstate, RIGHTARG = bytea, FUNCTION = blob_not_like,
    NEGATOR = ~~, RESTRICT = nlikesel, JOIN = nlikejoinsel);
COMMENT ON OPERATOR ~~ (blobstate, bytea) IS 'matches LIKE expression';
COMMENT ON OPERATOR !~~ (blobstate, bytea) IS 'does not match LIKE expression';

CREATE FUNCTION set_byte(blobstate, "offset" bigint, new_value bigint) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_set_byte' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION set_byte(blobstate, bigint, bigint) IS
    'the value with another byte at an offset; takes space of the store until the collector finds '
    'that nothing refers to it';
CREATE FUNCTION set_bit(blobstate, bit_no numeric, new_value bigint) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_set_bit' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION set_bit(blobstate, numeric, bigint) IS
    'the value with a bit set or cleared; takes space of the store until the collector finds '
    'that nothing refers to it';
CREATE FUNCTION pg_catalog."overlay"(blobstate, bytea, bigint) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_overlay' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION pg_catalog."overlay"(blobstate, bytea, bigint) IS
    'the value with bytes in place of as many from a position on; takes space of the store until '
    'the collector finds that nothing refers to it';
CREATE FUNCTION pg_catalog."overlay"(blobstate, bytea, bigint, bigint) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_overlay' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION pg_catalog."overlay"(blobstate, bytea, bigint, bigint) IS
    'the value with bytes in place of a number of bytes from a position on; takes space of the '
    'store until the collector finds that nothing refers to it';
CREATE FUNCTION pg_catalog.btrim(blobstate_operand, bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_btrim' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION pg_catalog.btrim(blobstate_operand, bytea) IS
    'the value without bytes of a set at both ends; takes space of the store until the collector '
    'finds that nothing refers to it';
CREATE FUNCTION pg_catalog.ltrim(blobstate_operand, bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_ltrim' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION pg_catalog.ltrim(blobstate_operand, bytea) IS
    'the value without bytes of a set at its beginning; takes space of the store until the '
    'collector finds that nothing refers to it';
CREATE FUNCTION pg_catalog.rtrim(blobstate_operand, bytea) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_rtrim' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION pg_catalog.rtrim(blobstate_operand, bytea) IS
    'the value without bytes of a set at its end; takes space of the store until the collector '
    'finds that nothing refers to it';

CREATE FUNCTION blob_string_agg_transfn(internal, blobstate, bytea) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_string_agg_transfn(internal, blobstate, bytea) IS
    'aggregate transition function';
-- Only the aggregate calls it, as its owner.
REVOKE ALL ON FUNCTION blob_string_agg_transfn(internal, blobstate, bytea) FROM PUBLIC;
CREATE AGGREGATE string_agg(blobstate_operand, bytea) (
    SFUNC = blob_string_agg_transfn,
    STYPE = internal,
    SSPACE = 65536,
    FINALFUNC = blob_agg_finalfn,
    FINALFUNC_MODIFY = READ_WRITE,
    PARALLEL = UNSAFE
);
COMMENT ON AGGREGATE string_agg(blobstate_operand, bytea) IS
    'the values one after the other, with a delimiter in between; takes space of the store until '
    'the collector finds that nothing refers to it';

-- ---------------------------------------------------------------------------
-- Changes
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_patch(content blobstate, offsets bigint[], pieces bytea[]) RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_patch(blobstate, bigint[], bytea[]) IS
    'the value with several ranges replaced, each from its offset on; longer, with zeros in '
    'between, if need be; takes space of the store until the collector finds that nothing refers '
    'to it';

-- ---------------------------------------------------------------------------
-- Uploads: one value, written by several statements of a transaction
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_upload_begin(expected_bytes bigint DEFAULT 0) RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_upload_begin_sql' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_upload_begin(bigint) IS
    'begins an upload, which ends with the transaction, and returns its number';

CREATE FUNCTION blob_upload_resume(content blobstate, expected_bytes bigint DEFAULT 0)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_upload_resume_sql' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_upload_resume(blobstate, bigint) IS
    'begins an upload whose content starts with that of a value, and returns its number';

CREATE FUNCTION blob_upload_write(upload bigint, data bytea) RETURNS bigint
    AS 'MODULE_PATHNAME', 'blob_upload_write_sql' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_upload_write(bigint, bytea) IS
    'adds bytes to an upload, and returns its size so far; takes space of the store meanwhile';

CREATE FUNCTION blob_upload_end(upload bigint) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_upload_end_sql' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_upload_end(bigint) IS
    'the value of an upload; takes space of the store until the collector finds that nothing '
    'refers to it';

CREATE FUNCTION blob_upload_abort(upload bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'blob_upload_abort_sql' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_upload_abort(bigint) IS
    'gives an upload up; its session frees what it has taken';

-- Pieces as rows, so that COPY can send them without an answer for each.
CREATE VIEW blob_upload_pieces AS
    SELECT NULL::bigint AS upload, NULL::bytea AS data WHERE false;
COMMENT ON VIEW blob_upload_pieces IS
    'takes pieces of uploads, by COPY FROM STDIN (FORMAT binary) best; has no rows';
COMMENT ON COLUMN blob_upload_pieces.upload IS 'number of the upload';
COMMENT ON COLUMN blob_upload_pieces.data IS 'bytes that are added to it';
GRANT INSERT ON blob_upload_pieces TO PUBLIC;

CREATE FUNCTION blob_upload_piece() RETURNS trigger
    AS 'MODULE_PATHNAME', 'blob_upload_piece_sql' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_upload_piece() IS 'trigger of view blob_upload_pieces';
REVOKE ALL ON FUNCTION blob_upload_piece() FROM PUBLIC;
CREATE TRIGGER blob_upload_piece INSTEAD OF INSERT ON blob_upload_pieces
    FOR EACH ROW EXECUTE FUNCTION @extschema@.blob_upload_piece();

-- ---------------------------------------------------------------------------
-- Compression
-- ---------------------------------------------------------------------------

-- Values that are assigned to a column: the planner hook puts these calls into statements.
CREATE FUNCTION blob_store(bytea, regclass, smallint) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_store_bytea_in_column' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION blob_store(bytea, regclass, smallint) IS
    'content as a blobstate is stored in a column: in extents, compressed as the column says, if '
    'it is larger than blobext.inline_limit; takes space of the store until the collector finds '
    'that nothing refers to it';
CREATE FUNCTION blob_store(blobstate, regclass, smallint) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_store_in_column' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
    SUPPORT blob_store_support;
COMMENT ON FUNCTION blob_store(blobstate, regclass, smallint) IS
    'the value as it is stored in a column: in extents, compressed as the column says, if it is '
    'larger than blobext.inline_limit; takes space of the store until the collector finds that '
    'nothing refers to it';

CREATE FUNCTION blob_stored_length(blobstate) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_stored_length(blobstate) IS
    'bytes that stand for the content where it is stored; its size unless it is compressed';
CREATE FUNCTION blob_compression(blobstate) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION blob_compression(blobstate) IS
    'method by which the value is compressed: none, lz4, zstd';

CREATE FUNCTION blobext_set_compression(relation regclass, column_name text, method text)
    RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blobext_set_compression(regclass, text, text) IS
    'sets the method by which new values of a column are compressed: none, lz4, zstd; null: that '
    'of blobext.default_compression';

CREATE FUNCTION blob_recompress(blobstate, method text) RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_recompress_sql' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
    COST 1000;
COMMENT ON FUNCTION blob_recompress(blobstate, text) IS
    'the value stored anew by a method of compression, if that changes anything; takes space of '
    'the store until the collector finds that nothing refers to it';
CREATE FUNCTION blob_recompress_is_due(blobstate, method text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'blob_recompress_is_due_sql' LANGUAGE C STABLE STRICT PARALLEL SAFE
    COST 100;
COMMENT ON FUNCTION blob_recompress_is_due(blobstate, text) IS
    'whether blob_recompress() would store the value anew';
CREATE PROCEDURE blobext_recompress(relation regclass, column_name text,
        batch_pages integer DEFAULT 32, INOUT changed_rows bigint DEFAULT NULL)
    AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON PROCEDURE blobext_recompress(regclass, text, integer, bigint) IS
    'updates the rows whose values are not stored as their column says, in batches with commits';

CREATE FUNCTION blobext_space(relation regclass, column_name text,
        OUT part regclass, OUT storage text, OUT compression text, OUT rows bigint,
        OUT content_bytes bigint, OUT stored_bytes bigint, OUT extent_bytes bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'blobext_column_space' LANGUAGE C STABLE STRICT PARALLEL UNSAFE ROWS 10;
COMMENT ON FUNCTION blobext_space(regclass, text) IS
    'what the values of a column take, by table or partition, place and method: bytes of their '
    'content, bytes that are stored for it, and the extents in which these lie, each counted once';

-- ---------------------------------------------------------------------------
-- Browsing
-- ---------------------------------------------------------------------------

CREATE FUNCTION blob_summary(blobstate) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 10;
COMMENT ON FUNCTION blob_summary(blobstate) IS
    'a line of text for people: size, kind by the first bytes, first digits of the digest';

CREATE FUNCTION blobext_browse(relation regclass, view text DEFAULT NULL) RETURNS regclass
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION blobext_browse(regclass, text) IS
    'makes or replaces a view of a relation with summaries in place of blobstate values';

-- ---------------------------------------------------------------------------
-- Deduplication
-- ---------------------------------------------------------------------------

CREATE PROCEDURE blobext_dedup(relation regclass, column_name text, verify boolean DEFAULT true,
        batch_rows integer DEFAULT 50, INOUT rows_shared bigint DEFAULT NULL,
        INOUT bytes_saved bigint DEFAULT NULL, INOUT rows_skipped bigint DEFAULT NULL,
        INOUT rows_failed bigint DEFAULT NULL)
    AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON PROCEDURE blobext_dedup(regclass, text, boolean, integer, bigint, bigint, bigint, bigint)
    IS 'rows of a table whose values have the same content share one value; updates them in '
    'batches, and commits after each';

CREATE FUNCTION blob_intern(relation regclass, column_name text, content blobstate,
        verify boolean DEFAULT true)
    RETURNS blobstate
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_intern(regclass, text, blobstate, boolean) IS
    'the value of a row of the table that has the same content, which is locked until the '
    'transaction ends; if there is none, the argument';
CREATE FUNCTION blob_intern(relation regclass, column_name text, content bytea,
        verify boolean DEFAULT true)
    RETURNS blobstate
    AS 'MODULE_PATHNAME', 'blob_intern_bytea'
    LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE COST 1000;
COMMENT ON FUNCTION blob_intern(regclass, text, bytea, boolean) IS
    'the same for content that is no value yet';

CREATE FUNCTION blobext_dedup_state(OUT pid integer, OUT relation regclass,
        OUT ranges_done bigint, OUT blocks_done bigint, OUT blocks_total bigint,
        OUT bytes_compared bigint, OUT rows_shared bigint, OUT bytes_saved bigint,
        OUT rows_skipped bigint, OUT rows_failed bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_dedup_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_dedup_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_dedup_state() IS 'behind view blobext_dedup_progress';
CREATE VIEW blobext_dedup_progress AS SELECT * FROM @extschema@.blobext_dedup_state();
GRANT SELECT ON blobext_dedup_progress TO pg_monitor;
COMMENT ON VIEW blobext_dedup_progress IS 'blobext_dedup() as it runs in this database';
COMMENT ON COLUMN blobext_dedup_progress.pid IS 'process that works';
COMMENT ON COLUMN blobext_dedup_progress.relation IS 'table whose rows are made to share values';
COMMENT ON COLUMN blobext_dedup_progress.ranges_done IS
    'ranges of digests that are done; there is one if maintenance_work_mem suffices for all';
COMMENT ON COLUMN blobext_dedup_progress.blocks_done IS
    'blocks that were read of the longest table, by both passes over each range';
COMMENT ON COLUMN blobext_dedup_progress.blocks_total IS
    'blocks to be read up to the end of this range';
COMMENT ON COLUMN blobext_dedup_progress.bytes_compared IS 'content that was found to be equal';
COMMENT ON COLUMN blobext_dedup_progress.rows_shared IS 'rows that share a value now';
COMMENT ON COLUMN blobext_dedup_progress.bytes_saved IS
    'space of the values that these rows had before, for the collector to free';
COMMENT ON COLUMN blobext_dedup_progress.rows_skipped IS
    'rows that others were changing, or that a trigger or policy kept as they were';
COMMENT ON COLUMN blobext_dedup_progress.rows_failed IS
    'rows whose content could not be read, was not equal, or whose update failed';

-- ---------------------------------------------------------------------------
-- Space: what the files take on the disk
-- ---------------------------------------------------------------------------

DROP FUNCTION blobext_files();
CREATE FUNCTION blobext_files(
        OUT segment integer, OUT file text, OUT bytes bigint, OUT file_bytes bigint,
        OUT disk_bytes bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
REVOKE ALL ON FUNCTION blobext_files() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_files() TO pg_monitor;
COMMENT ON FUNCTION blobext_files() IS
    'files that the extent map says this database has, below the data directory: the least size of '
    'each, the size it has (null: it is missing), and what it takes on the disk (less with holes)';
COMMENT ON COLUMN blobext_space.state IS
    'tier or tail: allocated extents of this kind; free; pending: freed, and not to be used before '
    'a flush or a checkpoint; punched: free, its blocks given back to the file system; absent: its '
    'file given back';

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
    'size of the segment files without holes; null if nothing was stored since the server started';
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

-- ---------------------------------------------------------------------------
-- Content from another server.
-- ---------------------------------------------------------------------------

-- The check repairs where it is told from where: another argument, with a default.
DROP FUNCTION blobext_check(regclass);
CREATE FUNCTION blobext_check(checked regclass DEFAULT NULL, repair text DEFAULT NULL,
        OUT relation regclass, OUT tid tid, OUT column_name name, OUT problem text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_check(regclass, text) FROM PUBLIC;
COMMENT ON FUNCTION blobext_check(regclass, text) IS
    'problems of the extent store: every value of one or all tables against map, files and digest; '
    'every key of their B-trees against the map; bounds and keys of partitioned tables; relations '
    'that cannot be read; for all tables, map and files by themselves; with repair, what another '
    'server has is repaired from there';

CREATE FUNCTION blobext_fetch(conninfo text, checked regclass DEFAULT NULL,
        damaged boolean DEFAULT true,
        OUT relation regclass, OUT tid tid, OUT column_name name, OUT problem text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION blobext_fetch(text, regclass, boolean) FROM PUBLIC;
COMMENT ON FUNCTION blobext_fetch(text, regclass, boolean) IS
    'gets content that is missing here, or damaged, from another server that has it; a row for '
    'each such value, with a problem if it could not be got';

CREATE FUNCTION blobext_source(forked_at pg_lsn, OUT system_identifier text, OUT store text,
        OUT timelines text, OUT common_below bigint)
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION blobext_source(pg_lsn) FROM PUBLIC;
COMMENT ON FUNCTION blobext_source(pg_lsn) IS
    'what another server asks before it fetches content from this one: whose copy it is, and which '
    'generations were drawn before a position';

CREATE FUNCTION blobext_source_read(store text, first_page bigint, pages bigint,
        generation bigint, common_below bigint, start bigint, unchanged_since pg_lsn,
        bytes integer, is_tail boolean, digest boolean, replayed_to pg_lsn)
    RETURNS bytea
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION blobext_source_read(text, bigint, bigint, bigint, bigint, bigint, pg_lsn,
    integer, boolean, boolean, pg_lsn) FROM PUBLIC;
COMMENT ON FUNCTION blobext_source_read(text, bigint, bigint, bigint, bigint, bigint, pg_lsn,
        integer, boolean, boolean, pg_lsn) IS
    'bytes of an extent, or their SHA-256, for another server; whoever may execute it can read all '
    'values of the database';

CREATE FUNCTION blobext_fetch_state(OUT pid integer, OUT relation regclass,
        OUT relations_done bigint, OUT relations_total bigint, OUT values_done bigint,
        OUT bytes_read bigint, OUT values_repaired bigint, OUT bytes_fetched bigint)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1;
REVOKE ALL ON FUNCTION blobext_fetch_state() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blobext_fetch_state() TO pg_monitor;
COMMENT ON FUNCTION blobext_fetch_state() IS 'behind view blobext_fetch_progress';
CREATE VIEW blobext_fetch_progress AS SELECT * FROM @extschema@.blobext_fetch_state();
GRANT SELECT ON blobext_fetch_progress TO pg_monitor;
COMMENT ON VIEW blobext_fetch_progress IS
    'blobext_fetch(), and blobext_check() that repairs, as it runs in this database';
COMMENT ON COLUMN blobext_fetch_progress.pid IS 'process that fetches';
COMMENT ON COLUMN blobext_fetch_progress.relation IS
    'table or index that it looks at; null while it looks at the extent map';
COMMENT ON COLUMN blobext_fetch_progress.relations_done IS 'tables that are done';
COMMENT ON COLUMN blobext_fetch_progress.relations_total IS
    'tables to look at, those without values too';
COMMENT ON COLUMN blobext_fetch_progress.values_done IS
    'values looked at, the current one included';
COMMENT ON COLUMN blobext_fetch_progress.bytes_read IS
    'content of them that was verified, in bytes';
COMMENT ON COLUMN blobext_fetch_progress.values_repaired IS 'values that were fetched';
COMMENT ON COLUMN blobext_fetch_progress.bytes_fetched IS
    'bytes that came from the other server';
