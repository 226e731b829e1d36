-- The cost of blobfs.snapshot(): the rows of the tree, whatever the sizes of files.
--
-- Seen to fail with snapshot_make() that copies content (o.content || ''): bytes are stored.
SET client_min_messages = warning;
SELECT plan(9);
SELECT blobfs.create('fs_snapshots');
SELECT blobfs.mkdir('fs_snapshots', '/d'), blobfs.symlink('fs_snapshots', '/d', '/l'), blobfs.write('fs_snapshots', '/empty', ''::bytea);
SELECT count(blobfs.write('fs_snapshots', '/d/' || bytes, convert_to(repeat('x', bytes), 'UTF8')))
FROM unnest(ARRAY[100, 10000, 1000000, 40000000]) AS bytes;
CREATE FUNCTION pg_temp.stored() RETURNS bigint LANGUAGE sql AS
    $$ SELECT value FROM public.blobext_stat WHERE name = 'stored_bytes' $$;
CREATE FUNCTION pg_temp.pages() RETURNS numeric LANGUAGE sql AS
    $$ SELECT coalesce(sum(pages), 0) FROM public.blobext_space WHERE state IN ('tier', 'tail') $$;
VACUUM fs_snapshots.inode, fs_snapshots.dentry;
CHECKPOINT;
SELECT pg_temp.stored() AS stored, pg_temp.pages() AS pages, pg_current_wal_insert_lsn() AS lsn \gset
SELECT blobfs.snapshot('fs_snapshots', 'v1') AS v1 \gset
SELECT pg_current_wal_insert_lsn() AS end_lsn \gset
SELECT is(pg_temp.stored(), :stored::bigint, 'a snapshot stores no content');
SELECT cmp_ok(pg_temp.pages(), '<=', :pages::numeric, 'a snapshot takes no pages of the store');
SELECT cmp_ok(pg_wal_lsn_diff(:'end_lsn', :'lsn'), '<', 100000::numeric, 'the WAL of a snapshot has rows only');
SELECT is((SELECT count(*) FROM fs_snapshots.snapshot_inode), (SELECT count(*) FROM fs_snapshots.inode), 'a snapshot has a row for each inode');
SELECT is((SELECT count(*) FROM fs_snapshots.snapshot_dentry), (SELECT count(*) FROM fs_snapshots.dentry), 'a snapshot has a row for each name');
SELECT is((SELECT count(*) FROM fs_snapshots.snapshot_inode AS s JOIN fs_snapshots.inode AS i USING (ino), LATERAL (
        SELECT array_agg(e.first_page) AS pages FROM blob_extents(s.content) AS e) AS a, LATERAL (
        SELECT array_agg(e.first_page) AS pages FROM blob_extents(i.content) AS e) AS b
    WHERE a.pages = b.pages), 3::bigint, 'a snapshot shares the pages of files');
SELECT cmp_ok(max(pg_column_size(s.content)), '<', 300, 'a file of a snapshot is a short row') FROM fs_snapshots.snapshot_inode AS s
WHERE s.size > 1024;

-- A second snapshot shares as well, and what changed since is written once.
SELECT count(blobfs.write('fs_snapshots', '/d/10000', convert_to(repeat('y', 20000), 'UTF8')));
SELECT pg_temp.stored() - :stored AS written \gset
SELECT blobfs.snapshot('fs_snapshots', 'v2');
SELECT is((:written::bigint, pg_temp.stored() - :stored), (20000::bigint, 20000::bigint), 'only what changes between two snapshots is stored');
SELECT blobfs.drop_snapshot('fs_snapshots', 'v1'), blobfs.drop_snapshot('fs_snapshots', 'v2');
SELECT is_empty($$SELECT * FROM blobfs.check('fs_snapshots')$$, 'the check finds nothing');
SELECT blobfs.drop('fs_snapshots');
SELECT * FROM finish();
