-- Answers of the examples, against functions over bytea and against contents made for the purpose.
SELECT plan(16);

-- ---- number of lines ----

CREATE FUNCTION count_line_feeds(content bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	found integer;
	lines bigint := 0;
	piece bytea;
BEGIN
	FOR start IN 1 .. length(content) BY 4096 LOOP
		piece := substr(content, start, 4096);
		FOR i IN 0 .. length(piece) - 1 LOOP
			lines := lines + (get_byte(piece, i) = 10)::integer;
		END LOOP;
	END LOOP;
	RETURN lines;
END
$$;

CREATE TABLE lines (id integer GENERATED ALWAYS AS IDENTITY, content bytea, b blobstate);
-- Around the sizes of pages, cached chunks and the example's pieces.
INSERT INTO lines (content) SELECT random_bytes(size, size)
	FROM unnest(ARRAY[0, 1, 2, 500, 1900, 1901, 4095, 4096, 4097, 65536, 300000,
		1048575, 1048576, 1048577, 2500000]) AS size;
-- Line feeds at the first and last bytes of a piece.
INSERT INTO lines (content)
	SELECT set_byte(set_byte(decode(repeat('41', 2097153), 'hex'), at, 10), 2097152, last)
	FROM unnest(ARRAY[0, 1048575, 1048576, 1048577, 2097151]) AS at, unnest(ARRAY[10, 65]) AS last;
INSERT INTO lines (content) VALUES ('\x0a'), ('\x0a0a'), ('\x0d0a'), ('\x6f6e650a74776f'),
	(decode(repeat('0a', 1100000), 'hex'));
UPDATE lines SET b = content;

SELECT results_eq('SELECT DISTINCT blob_storage(b) FROM lines ORDER BY 1',
	ARRAY['extents', 'inline'], 'lines: there are values of both forms');
SELECT is_empty('SELECT id, length(b), line_count(b) FROM lines
	WHERE line_count(b) IS DISTINCT FROM count_line_feeds(content)', 'lines: as counted over bytea');
SELECT cmp_ok((SELECT count(DISTINCT line_count(b)) FROM lines), '>', 10::bigint,
	'lines: there are more than ten answers');
SELECT is(line_count(NULL), NULL, 'lines: the count of NULL is NULL');

-- ---- kinds ----

CREATE TABLE kinds (head bytea, kind text);
INSERT INTO kinds VALUES
	('', 'empty'),
	('\x89504e470d0a1a0a0000', 'png'), ('\x89504e470d0a1a', 'other'),
	('\xffd8ffe0', 'jpeg'), ('\xffd8ffdb', 'jpeg'), ('\xffd800', 'other'),
	('GIF87a00', 'gif'), ('GIF89a00', 'gif'), ('GIF88a', 'text'),
	('RIFF0000WEBPVP8 ', 'webp'), ('\x524946460000000057415645', 'other'),
	('%PDF-1.7', 'pdf'), ('\x7f454c4602', 'elf'), ('\x1f8b0800', 'gzip'), ('BZh9', 'bzip2'),
	('\xfd377a585a00', 'xz'), ('\x28b52ffd', 'zstd'), ('\x504b0304', 'zip'),
	('\x504b0506', 'zip'), ('\x504b0505', 'other'), (E'!<arch>\\012', 'ar'),
	('\x53514c69746520666f726d6174203300', 'sqlite'),
	('hello', 'text'), (E'a\\011b\\015\\012', 'text'), ('\x1b5b306d', 'text'),
	('\xc3a4c3b6', 'text'), ('\x610062', 'other'), ('\x61627f', 'other'), ('\x08', 'other'),
	('\x00', 'other');
CREATE TABLE kinds_stored (id integer GENERATED ALWAYS AS IDENTITY, head bytea, kind text,
	b blobstate);
INSERT INTO kinds_stored (head, kind, b) SELECT head, kind, head::blobstate FROM kinds;
-- In extents; a head of text stays text only if text follows.
INSERT INTO kinds_stored (head, kind, b)
	SELECT head, kind, (head || convert_to(repeat('more', 1500), 'UTF8'))::blobstate
	FROM kinds WHERE kind <> 'empty';
INSERT INTO kinds_stored (head, kind, b)
	SELECT head, CASE kind WHEN 'text' THEN 'other' ELSE kind END,
		(head || '\x00' || random_bytes(1, 6000))::blobstate
	FROM kinds WHERE kind <> 'empty';
-- The first 512 bytes decide whether content is text; a tar has its name at 257.
INSERT INTO kinds_stored (kind, b)
	SELECT CASE WHEN at < 512 THEN 'other' ELSE 'text' END,
		set_byte(convert_to(repeat('text', size), 'UTF8'), at, 0)::blobstate
	FROM unnest(ARRAY[200, 5000]) AS size, unnest(ARRAY[0, 31, 32, 511, 512, 513]) AS at;
INSERT INTO kinds_stored (kind, b)
	SELECT 'tar', ('name'::bytea || decode(repeat('00', 253), 'hex') || 'ustar' ||
		random_bytes(2, size))::blobstate FROM unnest(ARRAY[10, 10000]) AS size;

SELECT is_empty('SELECT id, head, kind, file_kind(b) FROM kinds_stored
	WHERE file_kind(b) IS DISTINCT FROM kind', 'kinds: each value has the kind that it was made of');
SELECT cmp_ok((SELECT count(*) FROM kinds_stored WHERE blob_storage(b) = 'extents'), '>', 60::bigint,
	'kinds: more than 60 values are in extents');
SELECT is(file_kind(NULL), NULL, 'kinds: the kind of NULL is NULL');

-- ---- image sizes ----

CREATE TABLE images (name text, content bytea, width integer, height integer);
INSERT INTO images SELECT 'png', png(w, h), w, h
	FROM (VALUES (1, 1), (640, 480), (65536, 3), (2147483647, 2147483647)) AS v(w, h);
INSERT INTO images SELECT 'bad png', png(w, h), NULL, NULL
	FROM (VALUES (0, 1), (1, 0), (2147483648, 1), (1, 4294967295)) AS v(w, h);
INSERT INTO images VALUES
	('png without IHDR', overlay(png(1, 1) PLACING 'IDAT' FROM 13), NULL, NULL),
	('png with a longer IHDR', overlay(png(1, 1) PLACING '\x0e' FROM 12), NULL, NULL);

INSERT INTO images SELECT 'jpeg, frame ' || to_hex(marker), '\xffd8'::bytea
		|| jpeg_segment(224, '\x4a46494600010100000100010000')
		|| jpeg_segment(marker, jpeg_frame(1600, 900)) || jpeg_segment(218, '\x00'), w, h
	FROM generate_series(192, 207) AS marker, LATERAL (SELECT 1600 AS w, 900 AS h
		WHERE marker NOT IN (196, 200, 204)) AS v
	UNION ALL SELECT 'jpeg, no frame ' || to_hex(marker), '\xffd8'::bytea
		|| jpeg_segment(marker, jpeg_frame(1600, 900)) || jpeg_segment(218, '\x00'), NULL, NULL
	FROM unnest(ARRAY[196, 200, 204, 219, 225, 254]) AS marker;
-- Segments before the frame: small and large ones, a preview with a frame of its own, tables,
-- filling bytes, markers without a segment.
INSERT INTO images SELECT 'jpeg after ' || before, '\xffd8'::bytea || bytes
		|| jpeg_segment(194, jpeg_frame(65535, 7)), 65535, 7
	FROM (VALUES ('nothing', '\x'), ('an empty segment', jpeg_segment(254, '')),
		('a preview', jpeg_segment(225, '\xffd8'::bytea || jpeg_segment(192, jpeg_frame(9, 9)))),
		('a large segment', jpeg_segment(226, random_bytes(4, 65533))),
		('tables', jpeg_segment(196, random_bytes(5, 30)) || jpeg_segment(219, random_bytes(6, 65))),
		('filling bytes', '\xffffffff'), ('a marker', '\xff01ffd0'),
		('much', (SELECT string_agg(jpeg_segment(226, random_bytes(i, 65533)), '')
			FROM generate_series(1, 40) AS i)),
		('900 segments', decode(repeat('fffe0002', 900), 'hex'))) AS v(before, bytes);
INSERT INTO images SELECT 'no jpeg: ' || why, content, NULL, NULL
	FROM (VALUES ('no segment', '\xffd8ff'::bytea),
		('no marker', '\xffd8ffe0000200' || jpeg_segment(192, jpeg_frame(5, 5))),
		('width 0', '\xffd8' || jpeg_segment(192, jpeg_frame(0, 5))),
		('height 0', '\xffd8' || jpeg_segment(192, jpeg_frame(5, 0))),
		('picture before frame', '\xffd8' || jpeg_segment(218, '') ||
			jpeg_segment(192, jpeg_frame(5, 5))),
		('end before frame', '\xffd8ffd9' || jpeg_segment(192, jpeg_frame(5, 5))),
		('two starts', '\xffd8ffd8' || jpeg_segment(192, jpeg_frame(5, 5))),
		('length 0', '\xffd8ffe00000' || jpeg_segment(192, jpeg_frame(5, 5))),
		('length 1', '\xffd8ffe00001' || jpeg_segment(192, jpeg_frame(5, 5))),
		('segment behind the end', '\xffd8ffe0ffff' || jpeg_segment(192, jpeg_frame(5, 5))),
		('filling bytes without end', decode('ffd8' || repeat('ff', 5000), 'hex')),
		('segments without end', '\xffd8' || decode(repeat('fffe0002', 1001), 'hex') ||
			jpeg_segment(192, jpeg_frame(5, 5)))) AS v(why, content);
CREATE TABLE images_stored AS SELECT *, content::blobstate AS b FROM images
	UNION ALL
	SELECT name || ', longer', content || random_bytes(9, 100000), width, height,
		(content || random_bytes(9, 100000))::blobstate
	FROM images WHERE width IS NOT NULL;

SELECT cmp_ok((SELECT count(*) FROM images_stored WHERE blob_storage(b) = 'extents'), '>', 20::bigint,
	'images: more than 20 values are in extents');
SELECT is_empty('SELECT name, width, height, image_size(b) FROM images_stored
	WHERE ((image_size(b)).width, (image_size(b)).height) IS DISTINCT FROM (width, height)',
	'images: each image has the size that it was made of');
SELECT is(image_size(NULL), NULL, 'images: the size of NULL is NULL');

-- Cut off anywhere: the size as soon as it is there, never an error.
CREATE TABLE truncated AS
	SELECT 'png' AS name, 24 AS needed, 640 AS width, png(640, 480) AS content
	UNION ALL SELECT 'jpeg', 2 + 18 + 9, 800, '\xffd8'::bytea ||
		jpeg_segment(224, '\x4a46494600010100000100010000') ||
		jpeg_segment(192, jpeg_frame(800, 600));
SELECT is_empty($$
	SELECT name, size FROM truncated, LATERAL generate_series(0, length(content)) AS size
	WHERE (image_size(substr(content, 1, size)::blobstate)).width
		IS DISTINCT FROM CASE WHEN size >= needed THEN width END$$, 'images: the size is known as soon as its bytes are there');

-- Damaged anywhere: any answer, but no error.
SELECT cmp_ok((SELECT count((image_size(set_byte(content, at, value)::blobstate)).width)
	FROM truncated, LATERAL generate_series(0, length(content) - 1) AS at,
		generate_series(0, 255, 15) AS value), '>', 100::bigint, 'images: one byte changed');
SELECT lives_ok($$SELECT image_size(('\xffd8'::bytea || '\xff' || random_bytes(i, 3000))::blobstate)
	FROM generate_series(1, 300) AS i$$, 'images: noise behind the signature');

-- An image of many segments is read in headers: a page each at most.
CREATE TEMP TABLE counted AS SELECT name, value FROM blobext_stat;
SELECT is((SELECT image_size(b)::text FROM images_stored WHERE name = 'jpeg after much'), '(65535,7)',
	'images: the one with much before the frame');
SELECT cmp_ok((SELECT sum(now.value - before.value) FROM blobext_stat now JOIN counted before
	USING (name) WHERE name = 'content_read_bytes'), '<=', 41 * 9::numeric,
	'images: only headers are read of 2.6 MB');
SELECT cmp_ok((SELECT length(content) FROM images WHERE name = 'jpeg after much'), '>', 2600000,
	'images: it has 2.6 MB');
SELECT * FROM finish();
