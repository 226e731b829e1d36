-- How much space the values of a database can take: blobext.max_store_size, and what the view
-- blobext_databases shows of it.
--
-- Seen to fail: without the look at the limit in take() values past the limit are stored; without
-- "used_pages -=" in free_batch() the space of a failed statement never comes back.
CREATE SCHEMA store_limit;
SET search_path = store_limit, public;
SELECT plan(23);

\ir helpers.psql

CREATE TABLE v (id serial PRIMARY KEY, b blobstate);
INSERT INTO v (b) VALUES (bytes(2000000, 1)), (bytes(50000, 2));

CREATE FUNCTION used() RETURNS bigint LANGUAGE sql AS
	$$ SELECT allocated_bytes FROM blobext_databases WHERE datname = current_database() $$;
CREATE FUNCTION shown() RETURNS bigint LANGUAGE sql AS
	$$ SELECT max_bytes FROM blobext_databases WHERE datname = current_database() $$;
CREATE FUNCTION of_database(value text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN EXECUTE format('ALTER DATABASE %I SET blobext.max_store_size = %L', current_database(), value); END $$;
-- Message, detail and hint of a statement that is refused.
CREATE FUNCTION says(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN configuration_limit_exceeded THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' / ', SQLERRM, detail, hint);
END $$;

-- Between 1 and 2 MB are left.
SELECT used() AS before, used() / 1048576 + 2 AS limit_mb \gset
SET blobext.max_store_size = :limit_mb;
SELECT throws_ok('INSERT INTO v (b) VALUES (bytes(3000000, 3))', '53400', NULL,
	'a value that would take more than the limit is refused');
SELECT is(used(), :before::bigint, 'a value that was refused has taken nothing');
SELECT matches(says('INSERT INTO v (b) VALUES (bytes(3000000, 3))'),
	'^could not store blob content: .* / The content needs \d+ bytes\. Values take ' || :before
		|| ',.* is ' || :limit_mb::bigint * 1048576 || '\. / Delete values .*ALTER DATABASE\.$',
	'the message says how much is used, how much is needed, and what to do');
SELECT throws_ok(format('INSERT INTO v (b) VALUES (bytes(%s, 3))', :limit_mb::bigint * 1048576 - :before + 1),
	'53400', NULL, 'a value of a byte more than there is room for is refused');
SELECT lives_ok(format('INSERT INTO v (b) VALUES (bytes(%s, 3))', :limit_mb::bigint * 1048576 - :before),
	'a value that takes all the room that is left is stored');
SELECT is(used(), :limit_mb::bigint * 1048576, 'the values take exactly what the limit says');
SELECT throws_ok('INSERT INTO v (b) VALUES (bytes(4096, 4))', '53400', NULL,
	'at the limit a value of one page is refused');
SELECT lives_ok('INSERT INTO v (b) VALUES (bytes(100, 4))', 'at the limit small values are stored in rows');
SELECT lives_ok('INSERT INTO v (b) SELECT b FROM v WHERE id = 1', 'a copy of a value needs no space');
SELECT throws_ok('UPDATE v SET b = b || bytes(100000, 5) WHERE id = 2', '53400', NULL,
	'at the limit a value does not grow');
SELECT is((SELECT count(*) FROM v WHERE length(b::bytea) = length(b)), 5::bigint,
	'at the limit all values can be read');
SELECT is(used(), :limit_mb::bigint * 1048576, 'what was refused at the limit has taken nothing');

-- Given up, and taken again.
SELECT :limit_mb + 4 AS larger_mb \gset
SET blobext.max_store_size = :larger_mb;
SELECT throws_ok($$SELECT blob_agg(bytes(100000, i) || CASE WHEN i = 30 THEN (1 / (i - 30))::text::bytea ELSE '' END)
	FROM generate_series(1, 30) AS i$$, '22012', NULL, 'a statement fails that has stored a part of a value');
SELECT is(used(), :limit_mb::bigint * 1048576, 'what a failed statement has written counts no more at the next one');
SELECT lives_ok('INSERT INTO v (b) VALUES (bytes(4194304, 6))', 'the space of a failed statement is there for others');
SELECT throws_ok('INSERT INTO v (b) VALUES (bytes(4096, 4))', '53400', NULL, 'the limit is reached again');

-- Roles.
CREATE ROLE store_limit_user;
SET ROLE store_limit_user;
SELECT throws_ok('SET blobext.max_store_size = -1', '42501', NULL, 'an ordinary role cannot change the limit');
RESET ROLE;
DROP ROLE store_limit_user;
RESET blobext.max_store_size;
SELECT lives_ok('INSERT INTO v (b) VALUES (bytes(3000000, 8))', 'without a limit values are stored again');

-- What the view shows.
SELECT is(shown(), NULL::bigint, 'without a limit the view shows none');
SELECT of_database('10GB') \g /dev/null
SELECT is(shown(), 10737418240::bigint, 'the view shows the limit that ALTER DATABASE has set, in bytes');
SELECT of_database('7') \g /dev/null
SELECT is(shown(), 7 * 1048576::bigint, 'the view shows a limit without a unit as megabytes');
SELECT of_database('-1') \g /dev/null
SELECT is(shown(), NULL::bigint, 'the view shows a limit of -1 as none');
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET blobext.max_store_size', current_database()); END $$;
SELECT is((SELECT count(*) FROM pg_db_role_setting, unnest(setconfig) AS s WHERE s LIKE 'blobext.max_store_size%'),
	0::bigint, 'the test leaves no limit behind');

SELECT * FROM finish();
