-- Width and height of PNG and JPEG images: a function in PL/pgSQL.
--
-- The size of a PNG is in its first 24 bytes, which are in the row.  A JPEG is a chain of segments;
-- the one that has the size may come after a large preview or a colour profile.  The function
-- follows the chain from header to header, 9 bytes at a time, and reads nothing in between.
--
-- IMMUTABLE, because the content of a value never changes.  The function fixes its search_path to
-- the current one of CREATE FUNCTION, in which blobext must be.

CREATE TYPE image_dimensions AS (width integer, height integer);
COMMENT ON TYPE image_dimensions IS 'width and height in pixels';

CREATE FUNCTION image_size(content blobstate) RETURNS image_dimensions
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 1000
    SET search_path FROM CURRENT
AS $$
DECLARE
    head bytea := blob_prefix(content);
    width bigint;
    height bigint;
    segment_start bigint := 2;
    segment bytea;      -- ff, marker, length (2 bytes); of a frame: precision, height, width
    marker integer;
    segment_bytes integer;
BEGIN
    -- PNG: signature, then the chunk IHDR.
    IF substr(head, 1, 16) = '\x89504e470d0a1a0a0000000d49484452' AND length(head) >= 24 THEN
        width := ((get_byte(head, 16)::bigint * 256 + get_byte(head, 17)) * 256
            + get_byte(head, 18)) * 256 + get_byte(head, 19);
        height := ((get_byte(head, 20)::bigint * 256 + get_byte(head, 21)) * 256
            + get_byte(head, 22)) * 256 + get_byte(head, 23);
        IF width NOT BETWEEN 1 AND 2147483647 OR height NOT BETWEEN 1 AND 2147483647 THEN
            RETURN NULL;
        END IF;
        RETURN ROW(width::integer, height::integer);
    END IF;

    IF substr(head, 1, 3) IS DISTINCT FROM '\xffd8ff' THEN
        RETURN NULL;
    END IF;

    -- JPEG.  Images have some dozens of segments; a file made to keep the function busy has more.
    FOR segment_no IN 1 .. 1000 LOOP
        segment := blob_read(content, segment_start, 9);
        IF length(segment) < 4 OR get_byte(segment, 0) <> 255 THEN
            RETURN NULL;
        END IF;
        marker := get_byte(segment, 1);

        IF marker = 255 THEN                                            -- filling byte
            segment_start := segment_start + 1;
        ELSIF marker = 1 OR marker BETWEEN 208 AND 215 THEN             -- marker without a segment
            segment_start := segment_start + 2;
        ELSIF marker BETWEEN 192 AND 207 AND marker NOT IN (196, 200, 204) THEN     -- frame
            IF length(segment) < 9 THEN
                RETURN NULL;
            END IF;
            height := get_byte(segment, 5) * 256 + get_byte(segment, 6);
            width := get_byte(segment, 7) * 256 + get_byte(segment, 8);
            IF width = 0 OR height = 0 THEN
                RETURN NULL;
            END IF;
            RETURN ROW(width::integer, height::integer);
        ELSE
            segment_bytes := get_byte(segment, 2) * 256 + get_byte(segment, 3);
            -- No size before the picture's data (218) or the end (217).
            IF marker IN (0, 216, 217, 218) OR segment_bytes < 2 THEN
                RETURN NULL;
            END IF;
            segment_start := segment_start + 2 + segment_bytes;
        END IF;
    END LOOP;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION image_size(blobstate) IS
    'width and height of a PNG or JPEG image; NULL for other content, or where it is damaged';
