/* blobext 0.2.0 to 0.3.0 */

-- complain if the script is sourced in psql, rather than via CREATE EXTENSION or ALTER EXTENSION
\echo Use "CREATE EXTENSION blobext" or "ALTER EXTENSION blobext UPDATE" to load this file. \quit

-- CREATE EXTENSION runs blobext--0.2.0.sql first, so new objects are written here only.

-- ---------------------------------------------------------------------------
-- Library: must be of a version that this script can use
-- ---------------------------------------------------------------------------

SELECT @extschema@.blobext_require_library('0.3.0');

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
