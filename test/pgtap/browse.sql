-- blob_summary() and blobext_browse().
--
-- Seen to fail: with 32 bytes in place of 512 the test of kinds behind the prefix; without the mark the test of a
-- user's own view; without quoting those of odd names.
CREATE SCHEMA browse;
SET search_path = browse, public;
SELECT plan(44);

CREATE FUNCTION kind(head bytea, size int DEFAULT 100) RETURNS text LANGUAGE sql AS $$
	SELECT split_part(blob_summary((head || substring(decode(repeat('00', size), 'hex') FROM 1 FOR
		greatest(size - length(head), 0)))::blobstate), ' ', 3)
$$;

SELECT is(blob_summary(convert_to('hello', 'UTF8')::blobstate), '5 bytes text/plain sha256:2cf24dba...', 'the summary of a value is one line');
SELECT is(blob_summary(''::blobstate), '0 bytes empty sha256:e3b0c442...', 'the summary of an empty value says that it is empty');
SELECT is(blob_summary(NULL), NULL, 'the summary of NULL is NULL');

SELECT is(kind(head), expected, 'a value is taken for ' || expected || ' by its first bytes: ' || encode(substring(head FROM 1 FOR 12), 'escape'))
FROM (VALUES ('\x89504e470d0a1a0a'::bytea, 'image/png'), ('\xffd8ffe0', 'image/jpeg'), ('GIF89a', 'image/gif'),
	('RIFF1234WEBP', 'image/webp'), ('RIFF1234WAVE', 'audio/wav'), ('%PDF-1.7', 'application/pdf'),
	('\x504b0304', 'application/zip'), ('\x1f8b0800', 'application/gzip'), ('\x28b52ffd', 'application/zstd'),
	('\xfd377a585a00', 'application/x-xz'), ('BZh91AY&SY', 'application/x-bzip2'),
	('\x7f454c46', 'application/x-executable'), ('ID3', 'audio/mpeg'), ('\xfffb9000', 'audio/mpeg'),
	('\x00000020667479706d703432', 'video/mp4'), ('\x000000206674797061766966', 'image/avif'),
	('OggS', 'audio/ogg'), ('SQLite format 3\000', 'application/vnd.sqlite3'), ('RIFF1234ABCD', 'application/octet-stream'),
	('\x01', 'application/octet-stream')) AS t(head, expected);

-- In extents: the prefix does not decide.
CREATE TABLE v (id int PRIMARY KEY, b blobstate);
INSERT INTO v VALUES
	(1, convert_to(repeat('name', 64) || 'x', 'UTF8') || convert_to('ustar' || repeat('y', 100000), 'UTF8')),
	(2, convert_to(repeat('text é ', 20000), 'UTF8')),
	(3, convert_to(repeat('text', 100), 'UTF8') || '\x00' || convert_to(repeat('text', 20000), 'UTF8')),
	(4, '\x89504e470d0a1a0a'::bytea || convert_to(repeat('p', 9999992), 'UTF8')),
	(5, convert_to(repeat('é', 2000), 'UTF8')),
	(6, convert_to('a' || repeat('é', 2000), 'UTF8'));
SELECT is((SELECT count(*) FROM v WHERE blob_storage(b) = 'extents'), 6::bigint, 'all are in extents');
SELECT results_eq('SELECT id, split_part(blob_summary(b), '' '', 3) FROM v ORDER BY id',
	$$VALUES (1, 'application/x-tar'), (2, 'text/plain'), (3, 'application/octet-stream'), (4, 'image/png'),
		(5, 'text/plain'), (6, 'text/plain')$$,
	'tar at 257, text, a NUL behind the prefix, a character that is cut off at 512');
SELECT is(blob_summary(b), '9766 kB image/png sha256:' || substring(encode(sha256(b), 'hex') FROM 1 FOR 8) || '...',
	'the summary of 10 MB has its size in kB') FROM v WHERE id = 4;
CREATE FUNCTION read_bytes() RETURNS bigint LANGUAGE sql AS
	$$ SELECT value FROM blobext_stat WHERE name = 'content_read_bytes' $$;
SELECT read_bytes() AS before \gset
SELECT blob_summary(b) FROM v WHERE id = 4;
SELECT is((SELECT read_bytes()), :before::bigint, 'a known prefix reads nothing');
SELECT blob_summary(b) FROM v WHERE id = 2;
SELECT is((SELECT read_bytes()), :before + 512::bigint, 'another one reads 512 bytes');

--
-- blobext_browse
--
CREATE ROLE browse_a;
GRANT USAGE, CREATE ON SCHEMA browse TO browse_a;
CREATE DOMAIN content AS blobstate;
CREATE TABLE "odd ""name; %s" (id int, "a ""b" blobstate, c content, many blobstate[], element text, t varchar(7));
INSERT INTO "odd ""name; %s" VALUES (1, 'hello', '', ARRAY['hello', NULL, '']::blobstate[], 'e', 't'),
	(2, NULL, NULL, NULL, NULL, NULL);
GRANT SELECT ON v TO browse_a;

SELECT is(blobext_browse('v')::text, 'v_browse', 'the view is named after the table');
SELECT results_eq('SELECT b FROM v_browse ORDER BY id', 'SELECT blob_summary(b) FROM v ORDER BY id', 'the view has the summary of each value');
SELECT is(blobext_browse('v')::text, 'v_browse', 'a view is replaced');
SELECT is(blobext_browse('"odd ""name; %s"')::text, '"odd ""name; %s_browse"', 'a table with an odd name gets a view');
SELECT results_eq('SELECT id, "a ""b", c, many, element, t::text FROM "odd ""name; %s_browse" ORDER BY id',
	$$VALUES (1, '5 bytes text/plain sha256:2cf24dba...', '0 bytes empty sha256:e3b0c442...',
		ARRAY['5 bytes text/plain sha256:2cf24dba...', NULL, '0 bytes empty sha256:e3b0c442...'], 'e', 't'),
		(2, NULL, NULL, NULL, NULL, NULL)$$, 'domains, arrays, NULL, other columns');
ALTER TABLE "odd ""name; %s" ADD COLUMN added blobstate;
SELECT lives_ok($$SELECT blobext_browse('"odd ""name; %s"')$$, 'a table with a column more');
ALTER TABLE "odd ""name; %s" RENAME COLUMN c TO d;
SELECT lives_ok($$SELECT blobext_browse('"odd ""name; %s"')$$, 'a table with a column of another name');
SELECT columns_are('odd "name; %s_browse', ARRAY['id', 'a "b', 'd', 'many', 'element', 't', 'added'],
	'the view has the columns of the table');
SELECT is(blobext_browse('v', '"My View"')::text, '"My View"', 'a name of the caller''s');

CREATE VIEW mine AS SELECT 1 AS one;
SELECT throws_ok($$SELECT blobext_browse('v', 'mine')$$, '42710',
	'relation "mine" exists, and blobext_browse() has not made it', 'a user''s own view stays');
CREATE TABLE plain (id int);
SELECT throws_ok($$SELECT blobext_browse('plain')$$, '42809', '"plain" has no column of type blobstate',
	'a table without a column of values is refused');
SELECT throws_ok($$SELECT blobext_browse('v_pkey')$$, '42809', '"v_pkey" is not a table or a view', 'blobext_browse() of an index is refused');
SELECT throws_ok('SELECT blobext_browse(NULL)', '22004', NULL, 'blobext_browse() of NULL is refused');
SELECT throws_ok('SELECT blobext_browse(1)', '42P01', NULL, 'a table that is not there');

-- The caller's, with the rights of the role that queries it.
SET ROLE browse_a;
SELECT blobext_browse('v', 'v_of_a');
RESET ROLE;
SELECT view_owner_is('browse', 'v_of_a', 'browse_a', 'the view is the caller''s');
REVOKE SELECT ON v FROM browse_a;
GRANT SELECT ON v_browse TO browse_a;
SET ROLE browse_a;
SELECT throws_ok('SELECT * FROM v_browse', '42501', NULL, 'a view does not lend the rights of its owner');
RESET ROLE;

SELECT * FROM finish();
SET client_min_messages = warning;
DROP SCHEMA browse CASCADE;
DROP OWNED BY browse_a;
DROP ROLE browse_a;
