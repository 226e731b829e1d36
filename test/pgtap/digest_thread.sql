-- Digests that a second thread of the process computes (core/hasher.c), against PostgreSQL's sha256().
--
CREATE SCHEMA digest_thread;
SET search_path = digest_thread, public;
SET client_min_messages = warning;
SELECT plan(8);

\ir helpers.psql

-- Threads of this process, by the names that it gives them.
CREATE FUNCTION threads() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM pg_ls_dir('/proc/' || pg_backend_pid() || '/task') $$;

SELECT is(threads(), 1::bigint, 'a process begins with one thread');
CREATE TABLE short (b blobstate);
INSERT INTO short VALUES (bytes(3000000, 'short'));
SELECT is(threads(), 1::bigint, 'a value that comes in one piece makes no thread');

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
	FROM unnest(ARRAY[131072, 262143, 262144, 262145, 327681, 1048575, 1048577, 1400000, 5000000]) AS n;
CREATE TABLE stored (n int, way text, b blobstate);
INSERT INTO stored SELECT n, 'at once', content FROM source;
INSERT INTO stored SELECT n, 'pieces of ' || p, uploaded(content, p)
	FROM source, unnest(ARRAY[1000, 65536, 262144, 300001, 900000, 2000000]) AS p WHERE n / p < 2000;
INSERT INTO stored SELECT n, 'appended', blob_append(substring(content FROM 1 FOR n / 3)::blobstate,
		substring(content FROM n / 3 + 1))
	FROM source;
SELECT is_empty('SELECT n, way FROM stored JOIN source USING (n) WHERE sha256(b) <> sha256(content)',
	'digests of all sizes and ways');
SELECT is_empty('SELECT n, way FROM stored JOIN source USING (n) WHERE b::bytea <> content',
	'content of all sizes and ways');
-- Not while the processors are overloaded.
DO $$
BEGIN
	FOR i IN 1 .. 2000 LOOP
		EXIT WHEN digest_thread.threads() > 1;
		PERFORM digest_thread.uploaded(convert_to(repeat('a', 2500000), 'UTF8'), 300000);
	END LOOP;
END $$;
SELECT is(threads(), 2::bigint, 'streams have made one thread');

-- Streams that are given up while pieces of them may be under way: their memory is used for others.
DO $$
DECLARE
	content bytea := (SELECT source.content FROM digest_thread.source WHERE n = 1400000);
	u bigint;
	kept bigint := blob_upload_begin();
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			u := blob_upload_begin();
			PERFORM blob_upload_write(u, substring(content FROM i FOR 300000));
			PERFORM blob_upload_write(u, substring(content FROM i FOR 400000 + i));
			RAISE EXCEPTION USING errcode = 'PT001';
		EXCEPTION WHEN SQLSTATE 'PT001' THEN
			NULL;
		END;
		u := blob_upload_begin();
		PERFORM blob_upload_write(u, substring(content FROM i FOR 262144 + i));
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
