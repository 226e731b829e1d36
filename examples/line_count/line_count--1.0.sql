/* line_count 1.0 */

-- IMMUTABLE, because the content of a value never changes: the function may be used in an index.
CREATE FUNCTION line_count(content blobstate) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 1000;
COMMENT ON FUNCTION line_count(blobstate) IS 'number of line feeds in the content, as wc -l counts';
