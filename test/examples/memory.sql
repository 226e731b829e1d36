-- Memory: a function that streams through the C interface does not grow with the value.
--
-- VmHWM is the highest amount of memory that a process ever had resident.  This server has no read
-- cache, whose shared pages would count, too, when the process touches them for the first time.
\set ON_ERROR_STOP 1
CREATE FUNCTION peak_kb() RETURNS bigint LANGUAGE sql AS $$
	SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s+(\d+) kB')::bigint
$$;
-- 75 million lines of 4 bytes; and a value as large as one piece.
CREATE TABLE huge AS
	SELECT 1 AS id, convert_to(repeat(E'abc\n', 75000000), 'UTF8')::blobstate AS content
	UNION ALL SELECT 2, convert_to(repeat(E'abc\n', 262144), 'UTF8')::blobstate;

-- Processes of their own, each warmed up with small values.
\c
SELECT plan(6);
SELECT is(current_setting('blobext.cache_size'), '0', 'the server has no cache for content');
SELECT is((SELECT line_count(content) FROM huge WHERE id = 2), 262144::bigint, 'lines of 1 MB');
SELECT peak_kb() AS before \gset
SELECT is((SELECT line_count(content) FROM huge WHERE id = 1), 75000000::bigint, 'lines of 300 MB');
SELECT peak_kb() - :before AS grown \gset
SELECT diag('memory grew by ' || :grown || ' kB over 300 MB');
SELECT cmp_ok(:grown, '<', 4096, 'line_count() over 300 MB takes less than 4 MB more than over 1 MB');

SELECT peak_kb() AS before \gset
CREATE INDEX ON huge (line_count(content));
SELECT peak_kb() - :before AS grown \gset
SELECT diag('memory grew by ' || :grown || ' kB in an index build');
SELECT cmp_ok(:grown, '<', 8192, 'an index build over it, too');

-- That this measures anything: a function that takes the whole value.
SELECT peak_kb() AS before \gset
SELECT length(content::bytea) FROM huge WHERE id = 1;
SELECT cmp_ok(peak_kb() - :before, '>', 250000::bigint, 'a cast to bytea takes it all');
SELECT * FROM finish();
DROP TABLE huge;
