-- Expression indexes on the examples: built and kept in every way, they give the functions'
-- answers.
\set ON_ERROR_STOP 1
SELECT plan(27);

CREATE TABLE image (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text, content blobstate);
CREATE FUNCTION sample(id integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE id % 5
		WHEN 0 THEN png(id, id + 1)
		WHEN 1 THEN png(id, id + 1) || random_bytes(id, 1000 + id * 10)
		WHEN 2 THEN '\xffd8'::bytea || jpeg_segment(226, random_bytes(id, 2000)) ||
			jpeg_segment(192, jpeg_frame(id, id + 1))
		WHEN 3 THEN convert_to(repeat(E'line\n', id), 'UTF8')
		ELSE random_bytes(id, 1500) END
$$;
INSERT INTO image (content) SELECT sample(i) FROM generate_series(1, 300) AS i;
CREATE INDEX image_kind ON image (file_kind(content));
CREATE INDEX image_width ON image (((image_size(content)).width), ((image_size(content)).height));
CREATE INDEX image_lines ON image (line_count(content)) WHERE file_kind(content) = 'text';
-- Rows that come when the indexes are there already, of every form.
INSERT INTO image (content) SELECT sample(i) FROM generate_series(301, 600) AS i;
INSERT INTO image (content) VALUES (NULL), ('');
ANALYZE image;

SELECT results_eq('SELECT DISTINCT blob_storage(content) FROM image WHERE content IS NOT NULL ORDER BY 1',
	ARRAY['extents', 'inline'], 'values of both forms');

-- Answers of the index and of a sequential scan; and that the index is used.
CREATE TABLE query (no integer, index_name text, condition text);
INSERT INTO query VALUES
	(1, 'image_kind', $$file_kind(content) = 'png'$$),
	(2, 'image_kind', $$file_kind(content) IN ('jpeg', 'empty')$$),
	(3, 'image_width', $$(image_size(content)).width BETWEEN 100 AND 200$$),
	(4, 'image_width', $$(image_size(content)).width = 127 AND (image_size(content)).height = 128$$),
	(5, 'image_lines', $$file_kind(content) = 'text' AND line_count(content) > 300$$);
CREATE FUNCTION answer(query query, use_index boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM set_config('enable_seqscan', (NOT use_index)::text, true),
		set_config('enable_indexscan', use_index::text, true),
		set_config('enable_bitmapscan', use_index::text, true);
	EXECUTE 'SELECT count(*) || '' rows: '' || coalesce(string_agg(id::text, '','' ORDER BY id), '''')
		FROM image WHERE ' || query.condition INTO result;
	IF (plan_of('SELECT id FROM image WHERE ' || query.condition) ~ query.index_name) <> use_index THEN
		RAISE 'another plan was expected: %', plan_of('SELECT id FROM image WHERE ' || query.condition);
	END IF;
	RETURN result;
END
$$;
CREATE FUNCTION indexes_answer(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN NEXT is_empty('SELECT condition, answer(query, true), answer(query, false) FROM query
		WHERE answer(query, true) IS DISTINCT FROM answer(query, false)
			OR answer(query, true) LIKE ''0 rows%''', what || ': index and sequential scan agree');
	RETURN NEXT lives_ok('SELECT bt_index_check(indexrelid, true) FROM pg_index
		WHERE indrelid = ''image''::regclass', what || ': indexes are complete');
END
$$;
SELECT indexes_answer('built and inserted');
SELECT is((SELECT answer(query, true) FROM query WHERE no = 4), '1 rows: 127', 'a size is found');

UPDATE image SET content = sample(id + 1) WHERE id % 3 = 0;
UPDATE image SET note = 'content unchanged' WHERE id % 7 = 0;
DELETE FROM image WHERE id % 11 = 0;
SELECT indexes_answer('updated and deleted');
VACUUM image;
INSERT INTO image (content) SELECT sample(i) FROM generate_series(601, 700) AS i;
SELECT indexes_answer('vacuumed, inserted again');

-- Values go from one to the other without being read: copies in the same table.
INSERT INTO image (content) SELECT content FROM image WHERE id < 100;
SELECT indexes_answer('copied');

REINDEX TABLE image;
SELECT indexes_answer('REINDEX');
REINDEX TABLE CONCURRENTLY image;
SELECT indexes_answer('REINDEX CONCURRENTLY');
DROP INDEX image_kind, image_width, image_lines;
CREATE INDEX CONCURRENTLY image_kind ON image (file_kind(content));
CREATE INDEX CONCURRENTLY image_width
	ON image (((image_size(content)).width), ((image_size(content)).height));
CREATE INDEX CONCURRENTLY image_lines ON image (line_count(content)) WHERE file_kind(content) = 'text';
SELECT indexes_answer('CREATE INDEX CONCURRENTLY');
CLUSTER image USING image_kind;
SELECT indexes_answer('CLUSTER');

-- Indexes of one transaction with the table and its values, and with workers that read them.
BEGIN;
DROP TABLE image;
CREATE TABLE image (id integer, note text, content blobstate) WITH (parallel_workers = 2);
INSERT INTO image (id, content) SELECT i, sample(i) FROM generate_series(1, 1000) AS i;
SET LOCAL max_parallel_maintenance_workers = 2;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL client_min_messages = warning;
CREATE INDEX image_kind ON image (file_kind(content));
CREATE INDEX image_width ON image (((image_size(content)).width), ((image_size(content)).height));
CREATE INDEX image_lines ON image (line_count(content)) WHERE file_kind(content) = 'text';
SELECT indexes_answer('values of the same transaction');
SAVEPOINT s;
INSERT INTO image (id, content) SELECT i, sample(i) FROM generate_series(1001, 1200) AS i;
ROLLBACK TO s;
UPDATE image SET content = sample(id + 2) WHERE id > 900;
SELECT indexes_answer('rolled back to a savepoint');
COMMIT;
SELECT indexes_answer('committed');

-- In workers for certain.
CREATE FUNCTION probe_in_worker() RETURNS boolean AS :'probe' LANGUAGE C PARALLEL SAFE;
SET max_parallel_workers_per_gather = 0;
CREATE TEMP TABLE by_leader AS
	SELECT bool_and(probe_in_worker()) AS in_worker, sum(line_count(content)),
	max((image_size(content)).width), count(*) FILTER (WHERE file_kind(content) = 'png') FROM image;
RESET max_parallel_workers_per_gather;
SET parallel_setup_cost = 0;
SET parallel_leader_participation = off;
CREATE TEMP TABLE by_workers AS
	SELECT bool_and(probe_in_worker()) AS in_worker, sum(line_count(content)),
	max((image_size(content)).width), count(*) FILTER (WHERE file_kind(content) = 'png') FROM image;
RESET parallel_leader_participation;
SELECT results_eq('SELECT in_worker FROM by_leader UNION ALL SELECT in_worker FROM by_workers',
	ARRAY[false, true], 'parallel workers called the functions');
SELECT results_eq('SELECT sum, max, count FROM by_workers', 'SELECT sum, max, count FROM by_leader',
	'parallel workers got the same answers as the leader');

-- The order of an index, the largest first.
SET enable_seqscan = off;
SELECT ok(plan_of($$SELECT id FROM image WHERE file_kind(content) = 'text'
	ORDER BY line_count(content) DESC LIMIT 3$$) ~ 'Index Scan Backward using image_lines',
	'the most lines by the index');
SELECT * FROM finish();
