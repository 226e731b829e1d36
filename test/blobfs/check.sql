-- blobfs.check(): each kind of damage is found, and quota.
--
-- Seen to fail with each SELECT of check() left out, and without the trigger at the end of the transaction.
SET client_min_messages = warning;
SELECT plan(34);
SELECT blobfs.create('fs_check');
SELECT blobfs.mkdir('fs_check', '/d/e', true), blobfs.write('fs_check', '/d/f', 'hello'),
    blobfs.symlink('fs_check', 'f', '/d/l');
SELECT is_empty($$SELECT * FROM blobfs.check('fs_check')$$, 'a sound file system');
SELECT ino AS d FROM blobfs.stat('fs_check', '/d') \gset
SELECT ino AS f FROM blobfs.stat('fs_check', '/d/f') \gset

-- Breaks the tables by a statement; the problems that are found; all is rolled back.
CREATE FUNCTION pg_temp.problems(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    found text[];
BEGIN
    BEGIN
        EXECUTE statement;
        found := ARRAY(SELECT DISTINCT c.problem FROM blobfs.check('fs_check') AS c);
        RAISE EXCEPTION USING ERRCODE = 'ZZ000';
    EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
        RETURN QUERY SELECT unnest(found);
    END;
END $$;
SELECT set_eq(format('SELECT pg_temp.problems(%L)', statement), problems, 'check() reports the problem: ' || problems[1])
FROM (VALUES
    ('DELETE FROM fs_check.inode WHERE kind = ''f''', ARRAY['a name of an inode that is not there']),
    ('DELETE FROM fs_check.dentry WHERE name = ''f''', ARRAY['cannot be reached from the root', 'has nlink 1 and 0 names']),
    ('UPDATE fs_check.inode SET nlink = 2 WHERE kind = ''f''', ARRAY['has nlink 2 and 1 names']),
    ('UPDATE fs_check.inode SET nlink = 2 WHERE ino = 1', ARRAY['directory has nlink 2 and 1 subdirectories']),
    ('ALTER TABLE fs_check.inode DISABLE TRIGGER inode_size; UPDATE fs_check.inode SET size = 6 WHERE kind = ''f''', ARRAY['has size 6, and its content 5']),
    ('ALTER TABLE fs_check.inode DISABLE TRIGGER inode_size; UPDATE fs_check.inode SET size = 2 WHERE kind = ''l''', ARRAY['has size 2, and its content 1']),
    ('UPDATE fs_check.inode SET target = ''x'', size = 5 WHERE kind = ''f''',
        ARRAY['has content or target that kind "f" does not have, or lacks it']),
    ('UPDATE fs_check.inode SET kind = ''x'', content = NULL, size = 0, version = version + 1 WHERE kind = ''f''',
        ARRAY['has content or target that kind "x" does not have, or lacks it']),
    ('UPDATE fs_check.inode SET mode = 4096 WHERE kind = ''f''', ARRAY['has an attribute out of its range']),
    ('UPDATE fs_check.inode SET uid = -1 WHERE kind = ''f''', ARRAY['has an attribute out of its range']),
    ('UPDATE fs_check.inode SET xattr = ''{a}'' WHERE kind = ''f''',
        ARRAY['has names and values of extended attributes that do not match']),
    ('DELETE FROM fs_check.inode WHERE ino = 1', ARRAY['there is no root directory', 'a name in what is no directory']),
    ('UPDATE fs_check.dentry SET parent = (SELECT ino FROM fs_check.inode WHERE kind = ''f'') WHERE name = ''l''',
        ARRAY['a name in what is no directory']),
    ('INSERT INTO fs_check.dentry SELECT i.ino, 1, ''r'' FROM fs_check.inode AS i, fs_check.dentry AS d
        WHERE d.name = ''e'' AND i.ino = d.ino', ARRAY['the root has a name', 'directory has nlink 2 and 1 subdirectories']),
    ('INSERT INTO fs_check.snapshot_dentry VALUES (5, 1, 2, ''x'')',
        ARRAY['snapshot 5 has a name of an inode that it has not']),
    ('INSERT INTO fs_check.snapshot_inode SELECT 5, i.* FROM fs_check.inode AS i', ARRAY['snapshot 5 is not registered']),
    -- The last one, for setval() is not rolled back.
    ('SELECT setval(''fs_check.ino_seq'', 3)', ARRAY['its number would be given out again after 3'])
    ) AS damage (statement, problems);
SELECT setval('fs_check.ino_seq', (SELECT max(ino) FROM fs_check.inode));
-- A second name of a directory; a circle that no longer hangs on the root.
SELECT ok('directory has 2 names' IN (SELECT pg_temp.problems(format(
    'INSERT INTO fs_check.dentry VALUES (1, %s, %L)', :d, 'twice'))), 'directory has 2 names');
SELECT ok('cannot be reached from the root' IN (SELECT pg_temp.problems(
    'UPDATE fs_check.dentry SET parent = (SELECT ino FROM fs_check.dentry WHERE name = ''e'') WHERE name = ''d''')),
    'a circle of directories');
SELECT is_empty($$SELECT * FROM blobfs.check('fs_check')$$, 'nothing of that is left');

-- Quota
SELECT blobfs.set_quota('fs_check', 1000, 6);
SELECT results_eq('SELECT total_bytes, used_bytes, total_inodes, used_inodes, quota FROM fs_check.statfs()',
    'VALUES (1000::bigint, 6::bigint, 6::bigint, 5::bigint, true)', 'statfs() has the quota');
SELECT throws_ok($$SELECT blobfs.write('fs_check', '/g', repeat('x', 995)::bytea)$$, 'BF122', NULL,
    'one write that exceeds the quota is refused');
SELECT lives_ok($$SELECT blobfs.write('fs_check', '/g', repeat('x', 994)::bytea)$$, 'one write up to the quota succeeds');
SELECT throws_ok($$SELECT blobfs.append('fs_check', '/g', 'x')$$, 'BF122', NULL, 'a byte more than the quota is refused');
SELECT lives_ok($$SELECT blobfs.truncate('fs_check', '/g', 500)$$, 'a file may lose bytes at the quota');
SELECT throws_ok($$SELECT blobfs.write('fs_check', '/h', '')$$, 'BF122', NULL, 'an inode more than the quota is refused');
SELECT lives_ok($$SELECT blobfs.unlink('fs_check', '/g')$$, 'a file may go at the quota');
SELECT results_eq('SELECT bytes, inodes FROM fs_check.usage', 'VALUES (6::bigint, 5::bigint)', 'the usage follows all these changes');
-- Within one transaction: each change fits, the sum does not.
CREATE FUNCTION pg_temp.both() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM blobfs.write('fs_check', '/d/f', repeat('x', 600)::bytea);
    PERFORM blobfs.write('fs_check', '/g', repeat('x', 600)::bytea);
    SET CONSTRAINTS ALL IMMEDIATE;
END $$;
SELECT throws_ok('SELECT pg_temp.both()', 'BF122', NULL, 'the sum of a transaction is too much');
SELECT is((SELECT count(*) FROM fs_check.usage_change) + (SELECT count(*) FROM fs_check.usage_commit), 0::bigint,
    'no change is left unsettled');
SELECT blobfs.set_quota('fs_check', NULL, NULL);
SELECT lives_ok('SELECT pg_temp.both()', 'without a quota there is no limit');
SELECT is((SELECT used_bytes FROM fs_check.statfs()), 1201::bigint, 'statfs() without a quota counts a small file system');
SELECT hasnt_table('fs_check', 'usage', 'what the quota needed is gone');
SELECT blobfs.drop('fs_check');
SELECT * FROM finish();
