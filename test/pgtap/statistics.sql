-- ANALYZE of blobstate columns: the statistics that it stores, and that the planner's estimates are
-- as good as those for bytea of the same content, or better.
BEGIN;
SELECT plan(44);

CREATE FUNCTION estimate(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN (plan -> 0 -> 'Plan' ->> 'Plan Rows')::numeric;
END$$;
CREATE FUNCTION actual(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	n numeric;
BEGIN
	EXECUTE 'SELECT count(*) FROM (' || query || ') q' INTO n;
	RETURN n;
END$$;
CREATE FUNCTION bytes(n int, seed text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i) FROM 1 FOR n)
	FROM generate_series(1, (n + 31) / 32) i
$$;
-- How many times too few or too many.
CREATE FUNCTION factor(estimated numeric, counted numeric) RETURNS numeric LANGUAGE sql AS $$
	SELECT greatest(greatest(estimated, 1) / greatest(counted, 1),
		greatest(counted, 1) / greatest(estimated, 1))
$$;

-- Of each kind a table with bytea and one with blobstate, 3,000 rows each: less than a sample, so
-- that distinct values are found exactly.
CREATE TABLE source AS
	SELECT i, kind, CASE kind
		WHEN 'unique_small' THEN bytes(100, i::text)
		WHEN 'unique_large' THEN bytes(2500, i::text)
		WHEN 'common_prefix' THEN bytes(40, (i % 10)::text) || bytes(1200, i::text)
		WHEN 'few_small' THEN bytes(100, (i % 7)::text)
		WHEN 'few_large' THEN bytes(2500, (i % 7)::text)
		WHEN 'skewed_small' THEN bytes(100, CASE WHEN i % 10 < 5 THEN 'x' ELSE i::text END)
		WHEN 'nulls' THEN CASE WHEN i % 10 = 0 THEN bytes(2500, i::text) END
		WHEN 'mixed' THEN bytes(CASE WHEN i % 2000 % 3 = 0 THEN 100 ELSE 2500 END, (i % 2000)::text)
		WHEN 'only_nulls' THEN NULL
		END AS v
	FROM generate_series(0, 2999) i, unnest(ARRAY['unique_small', 'unique_large', 'common_prefix',
		'few_small', 'few_large', 'skewed_small', 'nulls', 'mixed', 'only_nulls']) kind;
CREATE TABLE kind AS SELECT DISTINCT kind FROM source;
DO $$
DECLARE
	k text;
BEGIN
	FOR k IN SELECT kind FROM kind LOOP
		EXECUTE format('CREATE TABLE bytea_%s AS SELECT i, v FROM source WHERE kind = %1$L ORDER BY i', k);
		EXECUTE format('CREATE TABLE blob_%s (i int, v blobstate)', k);
		EXECUTE format('INSERT INTO blob_%s SELECT i, v FROM bytea_%1$s ORDER BY i', k);
		EXECUTE format('ANALYZE bytea_%s', k);
		EXECUTE format('ANALYZE blob_%s', k);
	END LOOP;
END$$;
CREATE VIEW statistic AS
	SELECT substring(tablename::text FROM '_(.*)') COLLATE "default" AS kind, tablename LIKE 'blob%' AS is_blob,
		null_frac, avg_width, n_distinct, most_common_vals::text::text[], most_common_freqs,
		histogram_bounds::text::text[], correlation
	FROM pg_stats WHERE tablename ~ '^(bytea|blob)_' AND attname = 'v';

-- Stored statistics.
SELECT results_eq(
	$$SELECT kind, null_frac FROM statistic WHERE is_blob ORDER BY kind$$,
	$$SELECT kind, null_frac FROM statistic WHERE NOT is_blob ORDER BY kind$$,
	'null fractions are those of bytea');
SELECT results_eq(
	$$SELECT kind, n_distinct::numeric(10, 4) FROM statistic WHERE is_blob ORDER BY 1$$,
	$$VALUES ('common_prefix', -1), ('few_large', 7), ('few_small', 7), ('mixed', -0.6667),
		('nulls', -0.1), ('only_nulls', 0), ('skewed_small', -0.5003), ('unique_large', -1),
		('unique_small', -1)$$,
	'distinct values, by digest');
SELECT is((SELECT avg_width FROM statistic WHERE is_blob AND kind = 'unique_large'),
	(SELECT avg(pg_column_size(v))::int FROM blob_unique_large),
	'the width is that of the descriptor');
SELECT cmp_ok((SELECT avg_width FROM statistic WHERE is_blob AND kind = 'unique_large'), '<', 200,
	'the width of a large value in the statistics is small');
SELECT results_eq(
	$$SELECT kind, most_common_vals, most_common_freqs FROM statistic
		WHERE is_blob AND kind IN ('few_small', 'skewed_small') ORDER BY kind$$,
	$$SELECT kind, most_common_vals, most_common_freqs FROM statistic
		WHERE NOT is_blob AND kind IN ('few_small', 'skewed_small') ORDER BY kind$$,
	'most common inline values are those of bytea');
SELECT is_empty(
	$$SELECT kind FROM statistic WHERE is_blob AND kind IN ('few_large', 'unique_large')
		AND most_common_vals IS NOT NULL$$,
	'values in extents are not listed');
SELECT results_eq(
	$$SELECT histogram_bounds, correlation FROM statistic WHERE is_blob AND kind = 'unique_small'$$,
	$$SELECT histogram_bounds, correlation FROM statistic WHERE NOT is_blob
		AND kind = 'unique_small'$$,
	'the histogram of inline values is that of bytea');
SELECT is((SELECT max(length(bound::bytea)) FROM statistic,
		unnest(histogram_bounds) bound WHERE is_blob AND kind = 'unique_large'), 32,
	'that of values in extents has prefixes');
SELECT is((SELECT max(length(bound::bytea)) FROM statistic,
		unnest(histogram_bounds) bound WHERE is_blob AND kind = 'common_prefix'), 34,
	'prefixes in the histogram are set apart where they are the same');
SELECT is_empty(
	$$SELECT kind, n FROM (SELECT kind, n, bound::bytea, lag(bound::bytea)
			OVER (PARTITION BY kind ORDER BY n) AS previous
		FROM statistic, unnest(histogram_bounds) WITH ORDINALITY AS b (bound, n)
		WHERE is_blob) b
		WHERE bound < previous$$,
	'bounds are in order');
SELECT cmp_ok((SELECT abs(correlation) FROM statistic WHERE is_blob AND kind = 'unique_large'), '<',
	0.1::real, 'values in random order have no correlation');
CREATE TABLE blob_sorted AS SELECT i, v FROM blob_unique_large ORDER BY v;
ANALYZE blob_sorted;
SELECT cmp_ok((SELECT correlation FROM statistic WHERE is_blob AND kind = 'sorted'), '>', 0.999::real,
	'a table sorted by content is correlated');
SELECT value AS reads FROM blobext_stat WHERE name = 'content_reads' \gset
ANALYZE blob_common_prefix;
SELECT is((SELECT value FROM blobext_stat WHERE name = 'content_reads'), :reads::bigint,
	'ANALYZE reads no content');

-- Estimates: three values of each kind, with =, < and >=.
CREATE TABLE comparison AS
	SELECT kind, operator, i, actual(format('SELECT FROM bytea_%s WHERE v %s', kind, condition)) AS actual,
		estimate(format('SELECT FROM bytea_%s WHERE v %s', kind, condition)) AS of_bytea,
		estimate(format('SELECT FROM blob_%s WHERE v %s', kind, condition)) AS of_blob
	FROM kind, unnest(ARRAY['=', '<', '>=']) operator, unnest(ARRAY[20, 70, 1440]) i,
		LATERAL (SELECT format('%s %L::bytea', operator, v) AS condition FROM source s
			WHERE s.kind = kind.kind AND s.i = i.i AND v IS NOT NULL) c;
SELECT is_empty(
	$$SELECT * FROM comparison WHERE operator = '=' AND factor(of_blob, actual) > 2.1$$,
	'= is estimated within a factor of two');
SELECT is_empty(
	$$SELECT * FROM comparison WHERE operator <> '='
		AND abs(of_blob - actual) > CASE WHEN kind = 'few_large' THEN 3000 / 7 ELSE 300 END$$,
	'ranges are estimated within a tenth of the table, or a single value''s share');
SELECT is_empty(
	$$SELECT * FROM comparison WHERE factor(of_blob, actual) > 2 * factor(of_bytea, actual)
		AND abs(of_blob - actual) > 30 + abs(of_bytea - actual)$$,
	'no estimate is much worse than that for bytea');
SELECT cmp_ok((SELECT count(*) FROM comparison), '=', 72::bigint, 'all that was compared');

SELECT ok(factor(estimate(format('SELECT FROM blob_%s a JOIN blob_%1$s b USING (v)', kind)),
		actual(format('SELECT FROM bytea_%s a JOIN bytea_%1$s b USING (v)', kind))) < 2,
	'the estimate of a join is right within 2: ' || kind) FROM kind WHERE kind <> 'only_nulls' ORDER BY kind;
SELECT ok(factor(estimate(format('SELECT FROM blob_%s a JOIN bytea_%1$s b ON a.v = b.v', kind)),
		actual(format('SELECT FROM bytea_%s a JOIN bytea_%1$s b USING (v)', kind))) < 2,
	'join with bytea, ' || kind) FROM kind WHERE kind LIKE '%small%' ORDER BY kind;
SELECT ok(factor(estimate(format('SELECT DISTINCT v FROM blob_%s', kind)),
		actual(format('SELECT DISTINCT v FROM bytea_%s', kind))) < 1.1,
	'distinct values of ' || kind) FROM kind WHERE kind <> 'only_nulls' ORDER BY kind;

-- A table larger than the sample: the estimator for distinct values, and which are common.
CREATE TABLE blob_scaled (v blobstate);
INSERT INTO blob_scaled SELECT convert_to(lpad((i % 20000)::text, 10, '0'), 'UTF8')
	FROM generate_series(1, 40000) i;
INSERT INTO blob_scaled SELECT convert_to(repeat('common' || i % 3, 10), 'UTF8')
	FROM generate_series(1, 8000) i;
ALTER TABLE blob_scaled ALTER v SET STATISTICS 10;
CREATE TABLE bytea_scaled AS SELECT v::bytea FROM blob_scaled;
ALTER TABLE bytea_scaled ALTER v SET STATISTICS 10;
ANALYZE blob_scaled;
ANALYZE bytea_scaled;
SELECT cmp_ok(factor(estimate('SELECT DISTINCT v FROM blob_scaled'),
		estimate('SELECT DISTINCT v FROM bytea_scaled')), '<', 1.4::numeric,
	'distinct values from a sample of 3,000 rows, as for bytea');
SELECT cmp_ok(estimate('SELECT DISTINCT v FROM blob_scaled'), '>', 5000::numeric,
	'the estimate of distinct values exceeds those in the sample');
SELECT is((SELECT array_length(most_common_freqs, 1) FROM statistic WHERE is_blob AND kind = 'scaled'), 3,
	'what is common in a sample is told from chance');
SELECT cmp_ok(estimate($$SELECT FROM blob_scaled WHERE v = '\x30303030303031303030'::bytea$$), '<',
	30::numeric, 'what is not listed is rare');

-- Domains, expressions, the first bytes of inline values too wide to be looked at.
CREATE DOMAIN content AS blobstate;
CREATE TABLE blob_domain (v content);
INSERT INTO blob_domain SELECT v FROM blob_few_large;
ANALYZE blob_domain;
SELECT is((SELECT n_distinct FROM statistic WHERE is_blob AND kind = 'domain'), 7::real, 'the distinct values of a domain are counted');
CREATE INDEX expression_index ON blob_few_large ((coalesce(v, v)));
ANALYZE blob_few_large;
SELECT is((SELECT n_distinct FROM pg_stats WHERE tablename = 'expression_index'), 7::real,
	'the distinct values of an indexed expression are counted');
SET LOCAL blobext.inline_limit = '1MB';
CREATE TABLE blob_wide (v blobstate);
ALTER TABLE blob_wide ALTER v SET STORAGE EXTERNAL;
INSERT INTO blob_wide SELECT bytes(20000, (i % 5)::text) FROM generate_series(1, 100) i;
ANALYZE blob_wide;
SELECT results_eq(
	$$SELECT n_distinct, most_common_vals IS NULL, (SELECT count(DISTINCT bound)
		FROM unnest(histogram_bounds) bound) > 5 FROM statistic WHERE kind = 'wide'$$,
	$$VALUES (-1::real, true, true)$$,
	'wide inline values count as distinct');

SELECT lives_ok('SELECT md5(s::text) FROM pg_stats s', 'pg_stats can be read');
SELECT * FROM finish();
ROLLBACK;
