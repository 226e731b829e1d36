-- Digests that a second thread of the process computes (extents/hasher.c), against PostgreSQL's sha256().
--
-- Seen to fail: without the wait of blob_pipeline_write(), by wrong digests; without the cancel at the end of a
-- writer's memory, by the end of the server in one of two runs (the memory may not be used again yet).
CREATE SCHEMA digest_thread;
SET search_path = digest_thread, public;
SET client_min_messages = warning;
SELECT plan(9);

\ir helpers.psql

-- Threads of this process, by the names that it gives them.
CREATE FUNCTION threads() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM pg_ls_dir('/proc/' || pg_backend_pid() || '/task') AS t
	WHERE pg_read_file('/proc/' || pg_backend_pid() || '/task/' || t || '/comm', 0, 20, true) = E'blobext digest\n' $$;

SELECT is(threads(), 0::bigint, 'a process begins without the thread');
-- Also while the processors are overloaded.
SET blobext.digest_thread = on;
CREATE TABLE short (b blobstate);
INSERT INTO short VALUES (bytes(192 * 1024 - 1, 'short'));
SELECT is(threads(), 0::bigint, 'a short value makes no thread');
INSERT INTO short VALUES (bytes(512 * 1024, 'short'));
SELECT is(threads(), 1::bigint, 'a longer one does');

-- Sizes around those at which a value, or a piece of a stream, is handed over; stored at once and in pieces.
CREATE FUNCTION uploaded(content bytea, piece int) RETURNS blobstate LANGUAGE plpgsql AS $$
DECLARE
	u bigint := blob_upload_begin();
BEGIN
	FOR at IN 0 .. length(content) - 1 BY piece LOOP
		PERFORM blob_upload_write(u, substring(content FROM at + 1 FOR piece));
	END LOOP;
	RETURN blob_upload_end(u);
END $$;
CREATE TABLE source AS SELECT n, bytes(n, n::text) AS content
	FROM unnest(ARRAY[131072, 196607, 196608, 196609, 262143, 262144, 262145, 327681, 524287, 524288, 1048575, 1048577, 1400000, 5000000, 20000000]) AS n;
CREATE TABLE stored (n int, way text, b blobstate);
INSERT INTO stored SELECT n, 'at once', content FROM source;
INSERT INTO stored SELECT n, 'pieces of ' || p, uploaded(content, p)
	FROM source, unnest(ARRAY[1000, 65536, 262144, 300001, 900000, 2000000]) AS p WHERE n / p < 2000;
-- Pieces that come faster than they are hashed.
CREATE TABLE piece AS SELECT n, at, substring(content FROM at + 1 FOR 300001) AS content
	FROM source, generate_series(0, n - 1, 300001) AS at;
INSERT INTO stored SELECT n, 'aggregated', blob_agg(content ORDER BY at) FROM piece GROUP BY n;
INSERT INTO stored SELECT n, 'appended', blob_append(substring(content FROM 1 FOR n / 3)::blobstate,
		substring(content FROM n / 3 + 1))
	FROM source;
SELECT is_empty('SELECT n, way FROM stored JOIN source USING (n) WHERE sha256(b) <> sha256(content)',
	'digests of all sizes and ways');
SELECT is_empty('SELECT n, way FROM stored JOIN source USING (n) WHERE b::bytea <> content',
	'content of all sizes and ways');
SELECT is(threads(), 1::bigint, 'streams have made no other one');

-- Streams that are given up while pieces of them may be under way: their memory is used for others.
DO $$
DECLARE
	content bytea := (SELECT source.content FROM digest_thread.source WHERE n = 1400000);
	large bytea := substring(content FROM 1 FOR 1200000);
	u bigint;
	kept bigint := blob_upload_begin();
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			u := blob_upload_begin();
			PERFORM blob_upload_write(u, large);
			PERFORM blob_upload_write(u, substring(content FROM i FOR 900000));
			RAISE EXCEPTION USING errcode = 'PT001';
		EXCEPTION WHEN SQLSTATE 'PT001' THEN
			NULL;
		END;
		u := blob_upload_begin();
		PERFORM blob_upload_write(u, large);
		PERFORM blob_upload_write(u, substring(content FROM i FOR 900000));
		PERFORM blob_upload_abort(u);
		PERFORM blob_upload_write(kept, substring(content FROM i FOR 10000));
	END LOOP;
	INSERT INTO digest_thread.stored VALUES (0, 'given up', blob_upload_end(kept));
END $$;
SELECT is(sha256(b), sha256((SELECT string_agg(substring(content FROM i FOR 10000), NULL ORDER BY i)
		FROM source, generate_series(1, 100) AS i WHERE n = 1400000)),
	'a stream beside others that are given up')
FROM stored WHERE way = 'given up';

SET blobext.digest_thread = off;
INSERT INTO stored SELECT n, 'off', content FROM source;
INSERT INTO stored SELECT n, 'off', uploaded(content, 300001) FROM source;
SELECT is_empty($$SELECT n FROM stored JOIN source USING (n) WHERE way = 'off' AND sha256(b) <> sha256(content)$$,
	'digests without the thread');
RESET blobext.digest_thread;
SELECT is_empty('SELECT * FROM blobext_check()', 'the check finds nothing');

SELECT * FROM finish();
DROP SCHEMA digest_thread CASCADE;
