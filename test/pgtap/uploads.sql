-- Uploads: one value by several statements of a transaction; subtransactions, roles, abandoned extents.
--
-- Seen to fail: without the callback of subtransactions four tests of savepoints, without the flag that it
-- sets three of these; without the look at the owner the tests of roles; with an upload in the memory of the
-- statement the server, at the first write.
CREATE SCHEMA uploads;
SET search_path = uploads, public;
SET client_min_messages = warning;
SELECT plan(58);

\ir helpers.psql
CREATE TABLE d (id text PRIMARY KEY, content blobstate);

--
-- Content
--
BEGIN;
SELECT blob_upload_begin() AS u \gset
SELECT is(blob_upload_write(:u, '\x0102'), 2::bigint, 'a write returns the size so far');
SELECT is(blob_upload_write(:u, bytes(3000000, 'a')), 3000002::bigint, 'after the second piece');
SELECT is(blob_upload_write(:u, ''), 3000002::bigint, 'an empty piece adds nothing');
INSERT INTO d VALUES ('first', blob_upload_end(:u));
COMMIT;
SELECT is(sha256(content), sha256('\x0102'::bytea || bytes(3000000, 'a')), 'the content is that of the pieces')
FROM d WHERE id = 'first';
SELECT is(blob_storage(content), 'extents', 'a large upload is in extents') FROM d WHERE id = 'first';

-- Sizes at which something ends: inline limit, page, buffer of the writer.
CREATE FUNCTION uploaded(n int, piece int, expected bigint) RETURNS blobstate LANGUAGE plpgsql AS $$
DECLARE
	u bigint := blob_upload_begin(expected);
	o bytea := bytes(n, n::text);
BEGIN
	FOR at IN 0 .. n - 1 BY piece LOOP
		PERFORM blob_upload_write(u, substring(o FROM at + 1 FOR piece));
	END LOOP;
	RETURN blob_upload_end(u);
END $$;
SELECT is_empty($$
	SELECT n, piece, expected FROM unnest(ARRAY[0, 1, 1023, 1024, 1025, 4096, 4097, 1048576, 1048577, 2500000]) n,
		unnest(ARRAY[n / 7 + 1, 65536, 1048576]) piece, unnest(ARRAY[0, n, 10000000]) expected
	WHERE uploaded(n, piece, expected)::bytea <> bytes(n, n::text)$$, 'all sizes, pieces and announcements');

BEGIN;
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_begin(10) AS v \gset
SELECT isnt(:u, :v, 'two uploads have two numbers');
SELECT blob_upload_write(:u, bytes(2000000, 'u')), blob_upload_write(:v, bytes(2000000, 'v'));
SELECT blob_upload_write(:u, bytes(2000000, 'x')), blob_upload_write(:v, bytes(2000000, 'y'));
INSERT INTO d VALUES ('u', blob_upload_end(:u)), ('v', blob_upload_end(:v));
COMMIT;
SELECT is(content::bytea, bytes(2000000, 'u') || bytes(2000000, 'x'), 'two uploads side by side: one')
FROM d WHERE id = 'u';
SELECT is(content::bytea, bytes(2000000, 'v') || bytes(2000000, 'y'), 'two uploads side by side: the other')
FROM d WHERE id = 'v';

-- A long value: the writer's buffer becomes larger, and no larger than that.  Seen to fail with a limit that
-- stays 1 MB, and without a limit.
CREATE FUNCTION upload_memory() RETURNS bigint LANGUAGE sql AS $$
	SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts WHERE name = 'blobext upload' $$;
BEGIN;
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, bytes(1000003, n::text)) FROM generate_series(1, 16) n \g /dev/null
SELECT cmp_ok(upload_memory(), '<', 1200000::bigint, 'memory of an upload of 16 MB');
SELECT blob_upload_write(:u, bytes(1000003, n::text)) FROM generate_series(17, 27) n \g /dev/null
SELECT cmp_ok(upload_memory(), '>', 2000000::bigint, 'of a longer one: it waits for more');
SELECT cmp_ok(upload_memory(), '<', 4400000::bigint, 'of a longer one: at most 4 MB and what describes extents');
INSERT INTO d VALUES ('long', blob_upload_end(:u));
COMMIT;
SELECT is(sha256(content), (SELECT sha256(string_agg(bytes(1000003, n::text), '' ORDER BY n))
		FROM generate_series(1, 27) n), 'the content of a long upload is that of its pieces')
FROM d WHERE id = 'long';

-- An upload that continues a value.
BEGIN;
SELECT blob_upload_resume(content) AS u FROM d WHERE id = 'u' \gset
SELECT is(blob_upload_write(:u, bytes(10, 'z')), 4000010::bigint, 'a resumed upload counts the content before');
UPDATE d SET content = blob_upload_end(:u) WHERE id = 'u';
COMMIT;
SELECT is(content::bytea, bytes(2000000, 'u') || bytes(2000000, 'x') || bytes(10, 'z'), 'a resumed upload gives all of the content')
FROM d WHERE id = 'u';

--
-- Errors
--
SELECT throws_ok('SELECT blob_upload_write(1, NULL)', '22004', 'upload and data must not be null', 'NULL is no piece');
SELECT throws_ok('SELECT blob_upload_write(NULL, $$a$$)', '22004', 'upload and data must not be null', 'NULL is no upload');
SELECT throws_ok('SELECT blob_upload_begin(-1)', '22023', 'number of expected bytes must not be negative',
	'a negative number of expected bytes is refused');
SELECT throws_ok('SELECT blob_upload_write(0, $$a$$)', '42704', 'there is no upload 0 in this transaction',
	'a write to an upload that was not begun is refused');
SELECT throws_ok('SELECT blob_upload_abort(0)', '42704', 'there is no upload 0 in this transaction',
	'an upload that was not begun cannot be aborted');
BEGIN READ ONLY;
SELECT throws_ok('SELECT blob_upload_begin()', '25006', NULL, 'an upload is refused in a read-only transaction');
COMMIT;

-- It ends with the transaction, which warns.
SET client_min_messages = error;
BEGIN;
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, 'a');
COMMIT;
SET client_min_messages = warning;
SELECT throws_ok('SELECT blob_upload_write(' || :u || ', $$a$$)', '42704', NULL, 'an upload ends with COMMIT');
BEGIN;
SELECT blob_upload_begin() AS w \gset
ROLLBACK;
SELECT cmp_ok(:w, '>', :u, 'a number is not used again');
SELECT throws_ok('SELECT blob_upload_end(' || :w || ')', '42704', NULL, 'an upload ends with ROLLBACK');

-- After the end.
BEGIN;
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, bytes(100000, 'end'));
SELECT is(sha256(blob_upload_end(:u)), sha256(bytes(100000, 'end')), 'the end of an upload gives the value');
SELECT is(sha256(blob_upload_end(:u)), sha256(bytes(100000, 'end')), 'the end again gives the same value');
SELECT throws_ok('SELECT blob_upload_write(' || :u || ', $$a$$)', '55000', 'upload ' || :u || ' has ended',
	'a write after the end');
SELECT blob_upload_abort(:u);
SELECT throws_ok('SELECT blob_upload_end(' || :u || ')', '42704', NULL, 'an upload that was aborted is gone');
COMMIT;

--
-- Savepoints
--
BEGIN;
SAVEPOINT s;
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, bytes(5000000, 'gone'));
ROLLBACK TO SAVEPOINT s;
SELECT throws_ok('SELECT blob_upload_end(' || :u || ')', '42704', NULL, 'ROLLBACK TO takes an upload with it');
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, 'a');
SAVEPOINT t;
SELECT blob_upload_write(:u, 'b');
ROLLBACK TO SAVEPOINT t;
SELECT throws_ok('SELECT blob_upload_write(' || :u || ', $$b$$)', '55000', 'upload ' || :u || ' cannot go on',
	'a write that was rolled back breaks the upload');
SELECT throws_ok('SELECT blob_upload_end(' || :u || ')', '55000', 'upload ' || :u || ' cannot go on',
	'a broken upload has no end');
SELECT blob_upload_abort(:u);

SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, 'a');
SAVEPOINT outer_one;
SAVEPOINT inner_one;
SELECT blob_upload_write(:u, 'b');
RELEASE SAVEPOINT inner_one;
SELECT is(blob_upload_write(:u, 'c'), 3::bigint, 'RELEASE keeps what was written');
ROLLBACK TO SAVEPOINT outer_one;
SELECT throws_ok('SELECT blob_upload_end(' || :u || ')', '55000', NULL,
	'ROLLBACK TO breaks an upload that a released savepoint wrote to');
SELECT blob_upload_abort(:u);

SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, 'a');
SAVEPOINT x;
ROLLBACK TO SAVEPOINT x;
SELECT is(blob_upload_write(:u, 'b'), 2::bigint, 'a savepoint without a write does no harm');
SAVEPOINT y;
SELECT blob_upload_begin() AS v \gset
RELEASE SAVEPOINT y;
SELECT is(blob_upload_write(:v, 'b'), 1::bigint, 'RELEASE keeps an upload');
SAVEPOINT z;
INSERT INTO d VALUES ('twice', blob_upload_end(:u));
ROLLBACK TO SAVEPOINT z;
INSERT INTO d VALUES ('twice', blob_upload_end(:u));
SELECT is(content::bytea, 'ab', 'a value whose INSERT was rolled back can be stored again') FROM d WHERE id = 'twice';
SELECT blob_upload_abort(:v);
COMMIT;

-- A large value whose INSERT failed, too: the content is crash-safe at the second one's commit.
CREATE TABLE e (content blobstate UNIQUE);
INSERT INTO e VALUES (bytes(3000000, 'e'));
BEGIN;
SELECT blob_upload_begin(3000000) AS u \gset
SELECT blob_upload_write(:u, bytes(3000000, 'e'));
SAVEPOINT s;
SELECT throws_ok('INSERT INTO e VALUES (blob_upload_end(' || :u || '))', '23505', NULL, 'an upload that is a duplicate violates the unique index');
ROLLBACK TO SAVEPOINT s;
INSERT INTO d VALUES ('duplicate', blob_upload_end(:u));
COMMIT;
SELECT is(content = bytes(3000000, 'e'), true, 'stored after a duplicate key') FROM d WHERE id = 'duplicate';

-- Exceptions of PL/pgSQL are subtransactions.
DO $$
DECLARE
	u bigint := blob_upload_begin();
BEGIN
	PERFORM blob_upload_write(u, 'a');
	BEGIN
		PERFORM blob_upload_write(u, NULL);
	EXCEPTION WHEN null_value_not_allowed THEN
		PERFORM blob_upload_write(u, 'b');
	END;
	INSERT INTO d VALUES ('exception', blob_upload_end(u));
END $$;
SELECT is(content::bytea, 'ab', 'an error before the write does no harm') FROM d WHERE id = 'exception';

-- A procedure's COMMIT ends them.
CREATE PROCEDURE over_commit() LANGUAGE plpgsql AS $$
DECLARE
	u bigint := blob_upload_begin();
BEGIN
	PERFORM blob_upload_write(u, bytes(2000000, 'p'));
	COMMIT;
	PERFORM blob_upload_write(u, 'a');
END $$;
SET client_min_messages = error;
SELECT throws_ok('CALL over_commit()', '2D000', NULL, 'a procedure cannot commit within a function');
DO $$ BEGIN
	CALL over_commit();
EXCEPTION WHEN OTHERS THEN
	PERFORM set_config('uploads.state', SQLSTATE, false);
END $$;
SELECT is(current_setting('uploads.state'), '2D000', 'a procedure cannot commit below an exception block');
\set VERBOSITY sqlstate
\set ON_ERROR_STOP off
CALL over_commit();
\set ON_ERROR_STOP on
SELECT is(:'LAST_ERROR_SQLSTATE'::text, '42704', 'a procedure''s COMMIT ends an upload');
\set VERBOSITY default
SET client_min_messages = warning;

--
-- Roles: a function with the rights of another role may call code of others between two calls.
--
CREATE ROLE uploads_a;
CREATE ROLE uploads_b;
GRANT USAGE ON SCHEMA uploads TO uploads_a, uploads_b;
BEGIN;
SET ROLE uploads_a;
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, 'secret');
SET ROLE uploads_b;
SELECT throws_ok('SELECT blob_upload_write(' || :u || ', $$x$$)', '42501',
	'upload ' || :u || ' belongs to another role', 'another role does not write');
SELECT throws_ok('SELECT blob_upload_end(' || :u || ')', '42501', NULL, 'another role does not get the value');
SELECT throws_ok('SELECT blob_upload_abort(' || :u || ')', '42501', NULL, 'another role does not abort');
RESET ROLE;
SELECT throws_ok('SELECT blob_upload_end(' || :u || ')', '42501', NULL, 'not even a superuser');
SET ROLE uploads_a;
SELECT is(blob_upload_end(:u)::bytea, 'secret', 'the role that began it does');
COMMIT;
RESET ROLE;

--
-- An upload that was given up is freed without the collector.
--
CREATE FUNCTION freed() RETURNS bigint LANGUAGE sql AS
	$$ SELECT value FROM blobext_stat WHERE name = 'abandoned_freed_bytes' $$;
SELECT freed() AS before \gset
SELECT count(*) AS extents FROM blobext_map \gset
BEGIN;
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, bytes(6000000, 'left'));
SELECT blob_upload_abort(:u);
SELECT cmp_ok((SELECT freed()), '>=', :before::bigint + 6000000, 'abort gives the space back at the next statement');
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, bytes(6000000, 'left'));
ROLLBACK;
SELECT is((SELECT count(*) FROM blobext_map), :extents::bigint, 'ROLLBACK leaves no extent');
SET client_min_messages = error;
BEGIN;
SELECT blob_upload_begin(50000000) AS u \gset
SELECT blob_upload_write(:u, bytes(6000000, 'left'));
COMMIT;
SET client_min_messages = warning;
SELECT is((SELECT count(*) FROM blobext_map), :extents::bigint, 'COMMIT without an end leaves no extent');

--
-- How many
--
-- Each upload has memory, so their number has a limit.
BEGIN;
SELECT array_agg(blob_upload_begin()) AS us FROM generate_series(1, 100) \gset
SAVEPOINT s;
SELECT throws_ok('SELECT blob_upload_begin()', '54000', 'a transaction cannot have more than 100 uploads at a time',
	'a transaction cannot have uploads without end');
SELECT throws_ok('SELECT blob_upload_resume(''x'')', '54000', NULL, 'an upload that continues a value counts, too');
SELECT blob_upload_abort((:'us'::bigint[])[1]);
SELECT lives_ok('SELECT blob_upload_begin()', 'an upload that is given up makes room');
SELECT blob_upload_write((:'us'::bigint[])[2], 'two');
SELECT is(blob_upload_end((:'us'::bigint[])[2]), 'two', 'an upload among many is found');
SELECT lives_ok('SELECT blob_upload_begin()', 'an upload that is ended makes room');
ROLLBACK;
BEGIN;
SELECT blob_upload_begin() AS u \gset
SELECT blob_upload_write(:u, 'first');
SELECT blob_upload_end(:u);
SELECT count(blob_upload_end(n)) FROM (SELECT blob_upload_begin() AS n FROM generate_series(1, 900)) AS v;
SELECT is(blob_upload_end(:u), 'first', 'an upload can be ended again while there are few after it');
SELECT count(blob_upload_end(n)) FROM (SELECT blob_upload_begin() AS n FROM generate_series(1, 200)) AS v;
SELECT throws_ok(format('SELECT blob_upload_end(%s)', :u), '42704', NULL, 'an upload of long ago is forgotten');
ROLLBACK;

SELECT is_empty('SELECT * FROM blobext_check()', 'all values are sound');
SELECT * FROM finish();
SET client_min_messages = error;
DROP SCHEMA uploads CASCADE;
DROP ROLE uploads_a, uploads_b;
