-- rename() as renameat2() does it: over files and directories, NOREPLACE, EXCHANGE, links, circles.
--
-- Seen to fail without is_below(), without the look at entries of the target, with nlink of the parents left
-- as it was, and without the case of two names of one inode.
SET client_min_messages = warning;
SELECT plan(56);
SELECT blobfs.create('fs_rename');
SET search_path = public, fs_rename;

-- A tree as text: paths with the number of links and content.
CREATE FUNCTION pg_temp.tree() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(path || CASE WHEN kind = 'd' THEN '/' || nlink ELSE '=' || convert_from(content::bytea, 'UTF8') END,
        ' ' ORDER BY path COLLATE "C") FROM fs_rename.path WHERE path <> '/'
$$;
CREATE FUNCTION pg_temp.ino(path text) RETURNS bigint LANGUAGE sql AS $$
    SELECT ino FROM blobfs.resolve('fs_rename', path, false, true)
$$;
-- Both as paths; the status.
CREATE FUNCTION pg_temp.mv(a text, b text, flags integer DEFAULT 0) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    x record;
    y record;
BEGIN
    SELECT * INTO x FROM fs_rename.resolve(convert_to(a, 'UTF8'), false);
    SELECT * INTO y FROM fs_rename.resolve(convert_to(b, 'UTF8'), false);
    RETURN (SELECT status FROM fs_rename.rename(x.parent, x.name, y.parent, y.name, flags));
END $$;
CREATE FUNCTION pg_temp.again() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM blobfs.empty('fs_rename', '/', 1);
    PERFORM blobfs.mkdir('fs_rename', '/a/b/c', true);
    PERFORM blobfs.mkdir('fs_rename', '/e');
    PERFORM blobfs.write('fs_rename', '/f', '1');
    PERFORM blobfs.write('fs_rename', '/a/g', '2');
END $$;

SELECT pg_temp.again();
SELECT is(pg_temp.tree(), '/a/3 /a/b/3 /a/b/c/2 /a/g=2 /e/2 /f=1', 'the tree to begin with');

SELECT is(pg_temp.mv('/f', '/h'), 0, 'a file gets another name');
SELECT is(pg_temp.tree(), '/a/3 /a/b/3 /a/b/c/2 /a/g=2 /e/2 /h=1', 'a renamed file has its new name alone');
SELECT is(pg_temp.mv('/h', '/e/h'), 0, 'a file moves to another directory');
SELECT is(pg_temp.tree(), '/a/3 /a/b/3 /a/b/c/2 /a/g=2 /e/2 /e/h=1', 'a moved file is in the other directory');
SELECT is(pg_temp.mv('/e/h', '/a/g'), 0, 'a file moves over another one');
SELECT is(pg_temp.tree(), '/a/3 /a/b/3 /a/b/c/2 /a/g=1 /e/2', 'the other one is gone');
SELECT is((SELECT count(*) FROM fs_rename.inode WHERE kind = 'f'), 1::bigint, 'the inode of a replaced file is gone');
SELECT is(pg_temp.mv('/a/b', '/e/b'), 0, 'a directory moves to another one');
SELECT is(pg_temp.tree(), '/a/2 /a/g=1 /e/3 /e/b/3 /e/b/c/2', 'nlink of both parents follows');
SELECT is(pg_temp.mv('/e/b/c', '/e/b/d'), 0, 'a directory gets another name within its parent');
SELECT is(pg_temp.tree(), '/a/2 /a/g=1 /e/3 /e/b/3 /e/b/d/2', 'nlink stays where a directory is renamed within its parent');
SELECT is_empty($$SELECT * FROM blobfs.check('fs_rename')$$, 'check() finds nothing after files and directories moved');

SELECT pg_temp.again();
SELECT is(pg_temp.mv('/e', '/a/b/c'), 0, 'a directory over an empty one');
SELECT is(pg_temp.tree(), '/a/3 /a/b/3 /a/b/c/2 /a/g=2 /f=1', 'nlink of the parent of the source goes down');
SELECT pg_temp.again();
SELECT is(pg_temp.mv('/a', '/e'), 0, 'a directory over an empty one beside it');
SELECT is(pg_temp.tree(), '/e/3 /e/b/3 /e/b/c/2 /e/g=2 /f=1', 'nlink of the parent of both goes down');
SELECT is((SELECT nlink FROM fs_rename.getattr(1)), 3, 'that of the root');
SELECT is_empty($$SELECT * FROM blobfs.check('fs_rename')$$, 'check() finds nothing after that');

SELECT pg_temp.again();
SELECT is(pg_temp.mv('/zz', '/y'), 2, 'a name that is not there: ENOENT');
SELECT is(status, 2, 'to a directory that is not there: ENOENT') FROM fs_rename.rename(1, 'f', 999, 'f', 0);
SELECT is(status, 20, 'into a file: ENOTDIR')
    FROM fs_rename.rename(1, 'e', pg_temp.ino('/f'), 'x', 0);
SELECT is(pg_temp.mv('/f', '/e'), 21, 'a file over a directory: EISDIR');
SELECT is(pg_temp.mv('/e', '/f'), 20, 'a directory over a file: ENOTDIR');
SELECT is(pg_temp.mv('/e', '/a'), 39, 'over a directory with entries: ENOTEMPTY');
SELECT is(pg_temp.mv('/a', '/a/b/c/x'), 22, 'a directory into its own tree: EINVAL');
SELECT is(status, 22, 'a directory into itself: EINVAL') FROM fs_rename.rename(1, 'a', pg_temp.ino('/a'), 'x', 0);
SELECT is(pg_temp.mv('/a/b', '/a'), 39, 'over its own parent: ENOTEMPTY');
SELECT is(status, 36, 'a name of 256 bytes: ENAMETOOLONG')
    FROM fs_rename.rename(1, 'f', 1, convert_to(repeat('x', 256), 'UTF8'), 0);
SELECT is(status, 22, 'flags that are unknown: EINVAL') FROM fs_rename.rename(1, 'f', 1, 'x', 3);
SELECT is(pg_temp.mv('/f', '/f'), 0, 'to its own name');
SELECT is(pg_temp.tree(), '/a/3 /a/b/3 /a/b/c/2 /a/g=2 /e/2 /f=1', 'nothing of that has changed anything');

SELECT is(pg_temp.mv('/f', '/a/g', 1), 17, 'NOREPLACE over a file: EEXIST');
SELECT is(pg_temp.mv('/f', '/a/h', 1), 0, 'NOREPLACE to a new name');
SELECT is(pg_temp.mv('/a/h', '/f', 1), 0, 'NOREPLACE back to the old name');

SELECT is(pg_temp.mv('/f', '/zz', 2), 2, 'EXCHANGE with nothing: ENOENT');
SELECT is(pg_temp.mv('/f', '/a/g', 2), 0, 'EXCHANGE of two files');
SELECT is(pg_temp.tree(), '/a/3 /a/b/3 /a/b/c/2 /a/g=1 /e/2 /f=2', 'each has the name of the other');
SELECT is(pg_temp.mv('/f', '/a/b', 2), 0, 'EXCHANGE of a file and a directory');
SELECT is(pg_temp.tree(), '/a/2 /a/b=2 /a/g=1 /e/2 /f/3 /f/c/2', 'nlink of both parents follows the directory');
SELECT is((SELECT nlink FROM fs_rename.getattr(1)), 5, 'nlink of the root follows the directory');
SELECT is(pg_temp.mv('/a/b', '/f', 2), 0, 'EXCHANGE back, from the other side');
SELECT is(pg_temp.tree(), '/a/3 /a/b/3 /a/b/c/2 /a/g=1 /e/2 /f=2', 'all is as before');
SELECT is(pg_temp.mv('/e', '/a', 2), 0, 'EXCHANGE of two directories');
SELECT is(pg_temp.tree(), '/a/2 /e/3 /e/b/3 /e/b/c/2 /e/g=1 /f=2', 'EXCHANGE of two directories moves their entries, too');
SELECT is(pg_temp.mv('/e', '/e/b/c', 2), 22, 'EXCHANGE with one below: EINVAL');
SELECT is(pg_temp.mv('/e/b/c', '/e', 2), 22, 'EXCHANGE with one above: EINVAL');
SELECT is_empty($$SELECT * FROM blobfs.check('fs_rename')$$, 'check() finds nothing after all that');

-- Two names of one inode: nothing happens.
SELECT blobfs.link('fs_rename', '/f', '/a/f2');
SELECT is(pg_temp.mv('/f', '/a/f2'), 0, 'over another name of the same inode');
SELECT is(pg_temp.tree(), '/a/2 /a/f2=2 /e/3 /e/b/3 /e/b/c/2 /e/g=1 /f=2', 'both names of one inode stay');
SELECT is(pg_temp.mv('/e/g', '/a/f2'), 0, 'over one of two names');
SELECT is((SELECT nlink FROM fs_rename.getattr(pg_temp.ino('/f'))), 1, 'the inode has one name less');

-- Times
SELECT mtime AS before FROM fs_rename.getattr(1) \gset
SELECT is(pg_temp.mv('/f', '/zz', 2), 2, 'a rename() that fails');
SELECT is((SELECT mtime FROM fs_rename.getattr(1)), :before, 'leaves the time of the directory');
SELECT cmp_ok(r.ctime, '>', :before, 'rename() sets ctime of the inode')
    FROM fs_rename.rename(1, 'f', 1, 'ff', 0) AS r;
SELECT is_empty($$SELECT * FROM blobfs.check('fs_rename')$$, 'check() finds nothing at the end');
SELECT blobfs.drop('fs_rename');
SELECT * FROM finish();
