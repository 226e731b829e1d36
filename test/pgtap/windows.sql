-- blob_agg() and string_agg() as window functions, against string_agg() of bytea.
--
-- A frame that gets longer asks for a result after each row, and adds to the same state afterwards; a frame
-- whose beginning moves starts anew. Seen to fail with FINALFUNC_MODIFY = READ_WRITE (0A000), and with a
-- state that begins the value anew after a result. The seed is printed, and BLOBEXT_SEED=N repeats it.
CREATE SCHEMA windows;
SET search_path = windows, public;
SELECT plan(22);

\ir helpers.psql

\getenv seed BLOBEXT_SEED
\if :{?seed}
\else
SELECT floor(random() * 1000000)::integer AS seed \gset
\endif
SELECT diag('seed ' || :'seed');
SELECT setseed(:seed / 1000000.0) \g /dev/null

-- Values of each form, NULL among them; pieces grow past the inline limit, a page, a tier.
CREATE TABLE piece (id integer PRIMARY KEY, g integer, k integer, n integer, b blobstate, o bytea, d bytea);
INSERT INTO piece SELECT id, floor(random() * 4), floor(random() * 12), n, c, c,
		CASE WHEN random() > 0.2 THEN bytes(floor(random() * 4)::integer, 'd' || id) END
	FROM (SELECT id, n, CASE WHEN id = 1 OR random() > 0.1 THEN bytes(n, :seed + id) END AS c
		FROM (SELECT id, CASE WHEN id = 1 THEN 5 ELSE CASE floor(random() * 4) WHEN 0 THEN 0 WHEN 1 THEN floor(random() * 50)
				WHEN 2 THEN floor(random() * 3000) ELSE floor(random() * 40000) END END::integer AS n
			FROM generate_series(1, 80) AS id) AS sized) AS made;

-- What a window gives, and what it gives with bytea: content by digest, and size.
CREATE FUNCTION differences(aggregate text, oracle text, window_clause text, source text DEFAULT 'piece')
	RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT format(''%%s: %%s bytes in place of %%s'', id, length(b), length(o))
		FROM (SELECT id, %s OVER w AS b, %s OVER w AS o FROM %s WINDOW w AS (%s)) AS s
		WHERE sha256(b) IS DISTINCT FROM sha256(o) OR length(b) <> length(o) OR b::bytea IS DISTINCT FROM o',
		aggregate, oracle, source, window_clause);
END
$$;

SELECT is_empty(format('SELECT differences(%L, %L, %L)', aggregate, oracle, clause),
		aggregate || ' is the oracle''s over ' || coalesce(nullif(clause, ''), 'all rows'))
	FROM (VALUES (1, 'string_agg(b, d)', 'string_agg(o, d)'), (2, 'blob_agg(b)', $$string_agg(o, '')$$),
			(3, 'blob_agg(o)', $$string_agg(o, '')$$)) AS a(no, aggregate, oracle),
		(VALUES (1, ''), (2, 'ORDER BY id'), (3, 'PARTITION BY g ORDER BY id ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING'))
		AS w(no, clause) ORDER BY a.no, w.no;

-- Random frames.
CREATE FUNCTION random_frame() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	mode text := (ARRAY['ROWS', 'RANGE', 'GROUPS'])[1 + floor(random() * 3)];
	first integer := floor(random() * 8) - 5;
	last integer := first + floor(random() * 8);
	starts text := CASE WHEN random() < 0.4 THEN 'UNBOUNDED PRECEDING' WHEN first < 0 THEN -first || ' PRECEDING'
		WHEN first = 0 THEN 'CURRENT ROW' ELSE first || ' FOLLOWING' END;
	ends text := CASE WHEN random() < 0.2 THEN 'UNBOUNDED FOLLOWING' WHEN last < 0 THEN -last || ' PRECEDING'
		WHEN last = 0 THEN 'CURRENT ROW' ELSE last || ' FOLLOWING' END;
BEGIN
	RETURN concat_ws(' ', CASE WHEN random() < 0.5 THEN 'PARTITION BY g' END,
		'ORDER BY', CASE WHEN mode = 'ROWS' THEN 'k, id' ELSE 'k' END, CASE WHEN random() < 0.3 AND mode <> 'ROWS' THEN 'DESC' END,
		mode, 'BETWEEN', starts, 'AND', ends,
		CASE WHEN random() < 0.3 THEN (ARRAY['EXCLUDE CURRENT ROW', 'EXCLUDE GROUP', 'EXCLUDE TIES', 'EXCLUDE NO OTHERS'])
			[1 + floor(random() * 4)] END);
END
$$;
-- Peers have one frame, whose order is that of the input: the same for both sides of a query.
CREATE TABLE frame AS SELECT no, random_frame() AS clause, CASE WHEN random() < 0.3 THEN ' FILTER (WHERE n % 3 <> 0)' ELSE '' END AS filter
	FROM generate_series(1, 30) AS no;
SELECT is((SELECT string_agg(concat_ws(' ', clause, filter, difference), E'\n')
		FROM frame, differences('string_agg(b, d)' || filter, 'string_agg(o, d)' || filter, clause) AS difference), NULL,
	'random frames of string_agg() give the content that bytea gives');
SELECT is((SELECT string_agg(concat_ws(' ', clause, filter, difference), E'\n')
		FROM frame, differences('blob_agg(b)' || filter, $$string_agg(o, '')$$ || filter, clause) AS difference WHERE no <= 10), NULL,
	'random frames of blob_agg() give the content that bytea gives');

-- Results that are kept stay what they are while the state goes on.
CREATE TABLE kept AS SELECT id, string_agg(b, d) OVER (ORDER BY id) AS b, string_agg(o, d) OVER (ORDER BY id) AS o FROM piece;
SELECT is_empty('SELECT id FROM kept WHERE b::bytea IS DISTINCT FROM o', 'stored results of a growing frame are the content');
SELECT ok(count(DISTINCT blob_storage(b)) = 2, 'results are small and large ones') FROM kept;
SELECT is_empty($$SELECT * FROM blobext_check('kept')$$, 'stored results of a growing frame are sound');
SELECT is((SELECT array_agg(b::bytea ORDER BY id) FROM (SELECT id, blob_agg(b) OVER (ORDER BY id) AS b FROM piece) AS s),
	(SELECT array_agg(o ORDER BY id) FROM (SELECT id, string_agg(o, '') OVER (ORDER BY id) AS o FROM piece) AS s),
	'results that another aggregate collects stay what they are');

-- A growing frame writes content once: each result shares extents with the one before it.
CREATE TABLE even AS SELECT id, bytes(100000, id) AS o FROM generate_series(1, 100) AS id;
SELECT cmp_ok(cost('io_write_bytes', 'CREATE TABLE grown AS SELECT id, blob_agg(o) OVER (ORDER BY id) AS b FROM even'), '<',
	40000000::bigint, '100 results of 100 kB to 10 MB write less than four times the last one');
SELECT is_empty($$SELECT id FROM grown WHERE sha256(b) <> (SELECT sha256(string_agg(o, '' ORDER BY e.id)) FROM even AS e WHERE e.id <= grown.id)$$,
	'100 results of 100 kB to 10 MB are the content');

-- Where nothing can be allocated, states are in memory.
BEGIN READ ONLY;
SELECT is_empty($$SELECT differences('string_agg(b, d)', 'string_agg(o, d)', 'ORDER BY id')$$,
	'a growing frame in a read-only transaction gives the content');
SELECT is_empty($$SELECT differences('blob_agg(b)', 'string_agg(o, '''')', 'ORDER BY id ROWS BETWEEN 5 PRECEDING AND CURRENT ROW')$$,
	'a moving frame in a read-only transaction gives the content');
COMMIT;

-- A cursor reads on after a subtransaction in which it read was rolled back.
BEGIN;
DECLARE piecewise CURSOR FOR SELECT id, sha256(string_agg(b, d) OVER (ORDER BY id)) AS b, sha256(string_agg(o, d) OVER (ORDER BY id)) AS o FROM piece;
FETCH 20 FROM piecewise \g /dev/null
SAVEPOINT before;
FETCH 20 FROM piecewise \g /dev/null
ROLLBACK TO before;
CREATE FUNCTION rest() RETURNS TABLE (id integer, b bytea, o bytea) LANGUAGE plpgsql AS $$
DECLARE
	piecewise refcursor := 'piecewise';
BEGIN
	LOOP
		FETCH piecewise INTO id, b, o;
		EXIT WHEN NOT FOUND;
		RETURN NEXT;
	END LOOP;
END
$$;
CREATE TEMP TABLE read_on AS SELECT * FROM rest();
SELECT results_eq('SELECT count(*), min(id), count(*) FILTER (WHERE b IS DISTINCT FROM o) FROM read_on', 'VALUES (40::bigint, 41, 0::bigint)',
	'a cursor over a growing frame reads on after ROLLBACK TO');
COMMIT;

SELECT is_empty('SELECT * FROM blobext_check()', 'all values are sound after windows');
SELECT throws_ok($$SELECT blob_agg(CASE WHEN id < 20 THEN bytes(3000, id) ELSE bytes(1 / (id - 20), '') END) OVER (ORDER BY id) FROM piece$$,
	'22012', NULL, 'an error with a state open is that error');

SELECT * FROM finish();
DROP SCHEMA windows CASCADE;
