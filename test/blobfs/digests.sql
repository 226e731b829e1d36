-- Digests of files: a change of a large file leaves the digest open, pins and snapshots keep it so, user.sha256 computes it.
--
-- Seen to fail without the label of the pins: a pin reads the file; without blobfs.defer_digests() in upgrade(); with the guard
-- of 0.3, which refuses an update of equal content, blobext_seal().
SET client_min_messages = warning;
SET blobext.rewrite_limit = '64kB';
SELECT plan(17);
CREATE FUNCTION pg_temp.label(relation regclass) RETURNS text LANGUAGE sql AS $$
    SELECT l.label FROM pg_seclabel AS l JOIN pg_attribute AS a ON a.attrelid = l.objoid AND a.attnum = l.objsubid
    WHERE l.provider = 'blobext' AND l.classoid = 'pg_class'::regclass AND l.objoid = relation AND a.attname = 'content'
$$;
CREATE FUNCTION pg_temp.bytes(n integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT substring(string_agg(sha256(convert_to(i::text, 'UTF8')), NULL ORDER BY i) FROM 1 FOR n)
    FROM generate_series(1, (n + 31) / 32) i
$$;
CREATE FUNCTION pg_temp.bytes_read(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    before bigint := (SELECT value FROM blobext_stat WHERE name = 'content_read_bytes');
BEGIN
    EXECUTE query;
    RETURN (SELECT value FROM blobext_stat WHERE name = 'content_read_bytes') - before;
END $$;

SELECT blobfs.create('fs_digests');
SELECT results_eq($$SELECT pg_temp.label(name) FROM unnest(ARRAY['fs_digests.inode', 'fs_digests.snapshot_inode', 'blobfs.pin']::regclass[]) AS name$$,
    $$VALUES ('digest deferred'), ('digest deferred'), ('digest deferred')$$, 'files, their snapshots and pins have opted in');
SELECT ino AS f FROM fs_digests.create(NULL, 1, 'f', 420, 0, 0, pg_temp.bytes(500000), NULL) \gset
SELECT ok(NOT blob_digest_is_open(content), 'a new file has its digest') FROM fs_digests.inode WHERE ino = :f;
SELECT cmp_ok(pg_temp.bytes_read(format($$SELECT fs_digests.patch(%s, NULL, false, NULL, '{200000}', '{x}', NULL, NULL)$$, :f)), '<', 100000::bigint,
    'a change in the middle of a file does not read it');
SELECT ok(blob_digest_is_open(content), 'a changed file has none') FROM fs_digests.inode WHERE ino = :f;
SELECT is(content::bytea, overlay(pg_temp.bytes(500000) PLACING 'x' FROM 200001), 'the content of a changed file is right')
    FROM fs_digests.inode WHERE ino = :f;
SELECT is(pg_temp.bytes_read(format('SELECT fs_digests.append(%s, NULL, false, %L, NULL)', :f, 'end')) < 100000, true,
    'an append to a changed file does not read it');
SELECT is(pg_temp.bytes_read(format('SELECT fs_digests.truncate(%s, NULL, false, 400000, NULL)', :f)) < 100000, true,
    'truncation of a changed file does not read it');
INSERT INTO blobfs.mount VALUES (1, '00000000-0000-0000-0000-000000000001', 10, 'test');
SELECT is(pg_temp.bytes_read(format($$SELECT blobfs.pin(1, '00000000-0000-0000-0000-000000000001', 1, content) FROM fs_digests.inode WHERE ino = %s$$, :f)),
    0::bigint, 'a pin of an open file does not read it');
SELECT ok(blob_digest_is_open(content), 'a pinned value is open') FROM blobfs.pin WHERE mount = 1;
SELECT is(pg_temp.bytes_read($$SELECT blobfs.snapshot('fs_digests', 's')$$), 0::bigint, 'a snapshot does not read open files');
SELECT ok(blob_digest_is_open(content), 'a file in a snapshot is open') FROM fs_digests.snapshot_inode WHERE ino = :f;
SELECT is(sha256(content), sha256(content::bytea), 'the digest of an open file is right') FROM fs_digests.inode WHERE ino = :f;

-- Labels of the owner.
SELECT blobext_set_compression('fs_digests.inode', 'content', 'lz4');
SELECT blobext_set_digest('fs_digests.inode', 'content', NULL);
SELECT blobfs.upgrade('fs_digests');
SELECT is(pg_temp.label('fs_digests.inode'), 'lz4, digest deferred', 'upgrade() keeps the method of compression');
SELECT blobext_set_digest('fs_digests.inode', 'content', 'sealed');
SELECT blobfs.upgrade('fs_digests');
SELECT is(pg_temp.label('fs_digests.inode'), 'lz4, digest sealed', 'upgrade() keeps what the owner says of digests');
SELECT blobext_set_digest('fs_digests.inode', 'content', NULL);
CALL blobext_seal('fs_digests.inode', 'content');
SELECT ok(NOT blob_digest_is_open(content), 'blobext_seal() computes digests of files') FROM fs_digests.inode WHERE ino = :f;
CREATE INDEX ON fs_digests.inode USING hash (content);
SET client_min_messages = error;
SELECT lives_ok($$SELECT blobfs.upgrade('fs_digests')$$, 'upgrade() passes where the owner has made a key of the content');
SELECT is(pg_temp.label('fs_digests.inode'), 'lz4', 'digests are sealed there');
SELECT * FROM finish();
DELETE FROM blobfs.mount WHERE id = 1;
DELETE FROM blobfs.pin WHERE mount = 1;
SELECT blobfs.drop('fs_digests');
