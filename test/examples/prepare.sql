-- Objects that the tests of the examples share.
CREATE EXTENSION blobext;
CREATE EXTENSION pgtap;
CREATE EXTENSION amcheck;

-- Bytes that look random, the given number of them, the same for the same seed.
CREATE FUNCTION random_bytes(seed bigint, size bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT coalesce(substr(string_agg(sha256(convert_to(seed || '.' || i, 'UTF8')), ''), 1,
		size::integer), '')
	FROM generate_series(0, size / 32) AS i
$$;

-- The plan of a query, in one line.
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	plan text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || query LOOP
		plan := plan || ' ' || trim(line);
	END LOOP;
	RETURN plan;
END
$$;

-- A JPEG's segment: marker and data.
CREATE FUNCTION jpeg_segment(marker integer, data bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT '\xff'::bytea || decode(lpad(to_hex(marker), 2, '0'), 'hex')
		|| decode(lpad(to_hex(length(data) + 2), 4, '0'), 'hex') || data
$$;

-- A frame's data: precision 8, size, three components.
CREATE FUNCTION jpeg_frame(width integer, height integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT '\x08'::bytea || decode(lpad(to_hex(height), 4, '0') || lpad(to_hex(width), 4, '0'),
		'hex') || '\x03012200021101031101'
$$;

CREATE FUNCTION png(width bigint, height bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT '\x89504e470d0a1a0a0000000d49484452'::bytea
		|| decode(lpad(to_hex(width), 8, '0') || lpad(to_hex(height), 8, '0'), 'hex')
		|| '\x0806000000'
$$;
