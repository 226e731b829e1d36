-- Kind of a file by its leading bytes: a function in SQL.
--
-- The first 32 bytes, which are in the row, decide for most kinds: no content is read for these.
-- If they do not decide, up to 512 bytes are read, that is one page of 4 kB.
--
-- IMMUTABLE, because the content of a value never changes.  The body is parsed when the function
-- is created, so it does not depend on search_path.  OFFSET 0 has the planner compute head once.

CREATE FUNCTION file_kind(content blobstate) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 100
BEGIN ATOMIC
    SELECT CASE
        WHEN head = '' THEN 'empty'
        WHEN head ^@ '89504e470d0a1a0a' THEN 'png'
        WHEN head ^@ 'ffd8ff' THEN 'jpeg'
        WHEN head ^@ '474946383761' OR head ^@ '474946383961' THEN 'gif'
        WHEN head ^@ '52494646' AND substr(head, 17, 8) = '57454250' THEN 'webp'
        WHEN head ^@ '255044462d' THEN 'pdf'
        WHEN head ^@ '7f454c46' THEN 'elf'
        WHEN head ^@ '1f8b' THEN 'gzip'
        WHEN head ^@ '425a68' THEN 'bzip2'
        WHEN head ^@ 'fd377a585a00' THEN 'xz'
        WHEN head ^@ '28b52ffd' THEN 'zstd'
        WHEN head ^@ '504b0304' OR head ^@ '504b0506' THEN 'zip'
        WHEN head ^@ '213c617263683e0a' THEN 'ar'
        WHEN head ^@ '53514c69746520666f726d6174203300' THEN 'sqlite'
        -- Only bytes that text has: 09-0d, 1b, 20-7e, 80-ff.
        WHEN encode(blob_read(content, 0, 512), 'hex')
            ~ '^(0[9a-d]|1b|[2-6][0-9a-f]|7[0-9a-e]|[89a-f][0-9a-f])*$' THEN 'text'
        WHEN blob_read(content, 257, 5) = '\x7573746172' THEN 'tar'
        ELSE 'other'
    END
    FROM (SELECT encode(blob_prefix(content), 'hex') AS head OFFSET 0) AS start;
END;
COMMENT ON FUNCTION file_kind(blobstate) IS
    'kind of the content by its leading bytes: png, jpeg, pdf, elf, zip, text, empty, other, ...';
