-- blob_import(), blob_export(): content, paths, errors, privileges, files that are left behind.
CREATE SCHEMA server_files;
SET search_path = server_files, public;
SELECT plan(48);

SELECT current_setting('data_directory') || '/server_files' AS dir \gset
\setenv DIR :dir
\! mkdir "$DIR"
CREATE FUNCTION file(name text) RETURNS text LANGUAGE sql AS $$
	SELECT current_setting('data_directory') || '/server_files/' || name
$$;
CREATE FUNCTION bytes(n int, seed text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT substring(decode(repeat(md5(seed), n / 16 + 1), 'hex') FROM 1 FOR n)
$$;
-- Files in the directory that do not belong there.
CREATE FUNCTION left_behind() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT name FROM pg_ls_dir(file(''), false, true) name WHERE name LIKE '.blobext%'
$$;

CREATE TABLE v (n int, b blobstate);
INSERT INTO v SELECT n, bytes(n, n::text) FROM unnest(ARRAY[0, 1, 1900, 1901, 4096, 4097, 262144,
	4194303, 4194304, 4194305, 9000000]) n;

--
-- Content
--
SELECT results_eq('SELECT n, blob_export(b, file(n::text)) FROM v', 'SELECT n, n::bigint FROM v',
	'blob_export() gives the size');
SELECT is_empty('SELECT n FROM v WHERE pg_read_binary_file(file(n::text)) <> b', 'the files have the content');
CREATE TABLE imported AS SELECT n, blob_import(file(n::text)) AS b FROM v;
SELECT is_empty('SELECT n FROM imported JOIN v USING (n) WHERE imported.b::bytea <> v.b OR sha256(imported.b) <>
	sha256(v.b::bytea) OR blob_storage(imported.b) <> CASE WHEN n > 1900 THEN ''extents'' ELSE ''inline'' END',
	'blob_import() reads it back');
SELECT is_empty('SELECT name FROM pg_ls_dir(file('''')) name
	WHERE NOT sha256(blob_import(file(name)))::text = sha256(pg_read_binary_file(file(name)))::text', 'imported files have the digest of their bytes');
SELECT results_eq($$SELECT blob_import('server_files/1901') = b FROM v WHERE n = 1901$$, ARRAY[true],
	'a path relative to the data directory');
SELECT results_eq($$SELECT length(blob_import('/proc/self/status')) > 100$$, ARRAY[true],
	'a file whose size is not known is read to its end');
SELECT is(blob_import(NULL), NULL, 'blob_import() of NULL is NULL');
SELECT is(blob_export('\x00', NULL), NULL, 'blob_export() to the path NULL is NULL');
BEGIN READ ONLY;
SELECT is((SELECT sha256(blob_import(file('9000000')))), sha256(bytes(9000000, '9000000')),
	'import in a read-only transaction: for use in the query');
SELECT is(blob_export(bytes(10000, 'ro')::blobstate, file('read_only')), 10000::bigint, 'export in a read-only transaction writes the file');
COMMIT;

--
-- The file that is written
--
SELECT is((SELECT blob_export(bytes(5000, 'new')::blobstate, file('4097'))), 5000::bigint, 'a file is replaced');
SELECT is(pg_read_binary_file(file('4097')), bytes(5000, 'new'), 'by the new content');
\! ln -s "$DIR/1901" "$DIR/link"; ln -s "$DIR/nowhere" "$DIR/dangling"; mkfifo "$DIR/pipe"; umask 0; touch "$DIR/mode"
SELECT is(blob_export(bytes(2000, 'link')::blobstate, file('link')), 2000::bigint, 'a symbolic link is replaced');
SELECT is(pg_read_binary_file(file('1901')), bytes(1901, '1901'), 'what it leads to is not touched');
SELECT is(blob_export(bytes(2000, 'link')::blobstate, file('dangling')), 2000::bigint, 'a symbolic link that leads nowhere is replaced');
SELECT is((pg_stat_file(file('nowhere'), true)).size, NULL, 'nothing is made there');
SELECT lives_ok($$SELECT blob_export('\x00', file('mode'))$$, 'a file is replaced');
\set stat `stat -c %a:%F "$DIR/mode" "$DIR/link" "$DIR/9000000" | sort -u | xargs`
SELECT is(:'stat'::text, '644:regular file', 'type and mode of new files');

--
-- Errors: those of COPY
--
-- Message, detail and SQLSTATE of a failing statement.
CREATE FUNCTION failure(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE query;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate || ': ' || sqlerrm;
END $$;
CREATE TABLE line (line text);
SELECT is(failure(format('SELECT blob_import(%L)', path)), failure(format('COPY line FROM %L', path)), 'import as COPY: ' || path)
FROM unnest(ARRAY['/no/such/file', 'no_such_file', '', '/', 'base', '/etc/shadow', '/proc/1/mem']) path;
SELECT is(failure(format('SELECT blob_export(''\x00'', %L)', path)), failure(format('COPY line TO %L', path)),
	'the error of an export is that of COPY: ' || path)
FROM unnest(ARRAY['/no/such/file', '/', '/tmp', '/tmp/', '/tmp/.', '/proc/nothing', '/etc/passwd/x']) path;
SELECT throws_ok(format($$SELECT blob_export('\x00', %L)$$, path), '42602', 'relative path not allowed for blob_export()',
	'a relative path: ' || path) FROM unnest(ARRAY['file', './file', '']) path;
SELECT throws_ok(format('SELECT blob_import(%L)', path), '42809', format('"%s" is not a regular file', path),
	'a special file is not imported: ' || path) FROM unnest(ARRAY['/dev/zero', '/dev/null', file('pipe')]) path;
SELECT throws_ok(format($$SELECT blob_export('\x00', %L)$$, path), '42809', format('"%s" is not a regular file', path),
	'nothing is exported to a special file: ' || path) FROM unnest(ARRAY['/dev/null', file('pipe')]) path;
SELECT throws_like(format($$SELECT blob_export('\x00', %L)$$, file(repeat('x', 256))), '%File name too long',
	'a name that is too long');
SELECT is_empty('SELECT left_behind()', 'refused exports leave no temporary files');

--
-- Privileges
--
CREATE ROLE server_files_reader IN ROLE pg_read_server_files;
CREATE ROLE server_files_writer IN ROLE pg_write_server_files;
GRANT USAGE ON SCHEMA server_files TO server_files_reader, server_files_writer;
SELECT file('1') AS readable, file('written') AS writable \gset
SET ROLE server_files_reader;
SELECT is(length(blob_import(:'readable')), 1::bigint, 'a member of pg_read_server_files may import');
SELECT throws_ok(format($$SELECT blob_export('\x00', %L)$$, :'writable'), '42501',
	'permission denied for function blob_export', 'a member of pg_read_server_files may not export');
SET ROLE server_files_writer;
SELECT is(blob_export('\x00', :'writable'), 1::bigint, 'a member of pg_write_server_files may export');
SELECT throws_ok(format('SELECT blob_import(%L)', :'readable'), '42501', 'permission denied for function blob_import',
	'a member of pg_write_server_files may not import');
RESET ROLE;
SELECT is_empty('SELECT * FROM blobext_check()', 'the store is sound');
SELECT is_empty('SELECT left_behind()', 'no temporary files are left at the end');

SELECT * FROM finish();
SET client_min_messages = warning;
DROP SCHEMA server_files CASCADE;
DROP ROLE server_files_reader, server_files_writer;
