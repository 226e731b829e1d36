-- Names: lookup, create, mkdir, mknod, symlink, link, unlink, rmdir, with the errno of each failure; what
-- they do to nlink and times.
--
-- Seen to fail without the look at the kind in unlink(), without the one at entries in rmdir(), with nlink
-- left as it was in mkdir() and rmdir(), and with the times of the directory written before the name is looked up.
SET client_min_messages = warning;
SET search_path = public, fs_tree;
SELECT plan(66);
SELECT blobfs.create('fs_tree', 1000, 1001, 448);

CREATE FUNCTION pg_temp.nlink(ino bigint) RETURNS integer LANGUAGE sql AS
    'SELECT a.nlink FROM fs_tree.getattr(ino) AS a';
CREATE FUNCTION pg_temp.mtime(ino bigint) RETURNS bigint LANGUAGE sql AS
    'SELECT a.mtime FROM fs_tree.getattr(ino) AS a';

SELECT results_eq('SELECT kind::text, mode, uid, gid, nlink FROM fs_tree.getattr(1)',
    $$VALUES ('d', 448, 1000::bigint, 1001::bigint, 2)$$, 'the root is as it was asked for');
SELECT results_eq(
    $$SELECT status, ino, kind::text, mode, uid, gid, nlink, size, mtime, atime, rdev
        FROM fs_tree.create(NULL, 1, 'a', 420, 5, 6, 'hello', 77)$$,
    $$VALUES (0, 2::bigint, 'f', 420, 5::bigint, 6::bigint, 1, 5::bigint, 77::bigint, 77::bigint, 0::bigint)$$,
    'create() returns the attributes');
SELECT results_eq($$SELECT ino, size FROM fs_tree.lookup(1, 'a')$$, 'VALUES (2::bigint, 5::bigint)',
    'lookup() finds what was created');
SELECT is_empty($$SELECT * FROM fs_tree.lookup(1, 'b')$$, 'lookup() finds no other name');
SELECT is_empty($$SELECT * FROM fs_tree.lookup(2, 'a')$$, 'a file has no entries');
SELECT is(status, 17, 'create() of a name that is there: EEXIST')
    FROM fs_tree.create(NULL, 1, 'a', 420, 5, 6, '', NULL);
SELECT is(status, 2, 'create() in a directory that is not there: ENOENT')
    FROM fs_tree.create(NULL, 99, 'a', 420, 5, 6, '', NULL);
SELECT is(status, 20, 'create() in a file: ENOTDIR') FROM fs_tree.create(NULL, 2, 'a', 420, 5, 6, '', NULL);
SELECT is(status, 36, 'create() of a name of 256 bytes: ENAMETOOLONG')
    FROM fs_tree.create(NULL, 1, convert_to(repeat('x', 256), 'UTF8'), 420, 5, 6, '', NULL);
SELECT is(status, 0, 'a name may have 255 bytes')
    FROM fs_tree.create(NULL, 1, convert_to(repeat('x', 255), 'UTF8'), 420, 5, 6, '', NULL);
SELECT is(status, 0, 'a name may have any bytes') FROM fs_tree.create(NULL, 1, '\x01ff0a5c', 420, 5, 6, '', NULL);
SELECT throws_ok(format('SELECT fs_tree.create(NULL, 1, %L, 420, 5, 6, %L, NULL)', name, ''), '23514', NULL,
    'refused as a name: ' || name) FROM unnest(ARRAY['\x2e', '\x2e2e', '\x612f62', '\x6100', '\x']) AS name;
SELECT is(octet_length(b), 0, 'NULL as content is empty')
    FROM fs_tree.create(NULL, 1, 'null', 420, 5, 6, NULL, NULL) AS c, fs_tree.read(c.ino, NULL, 0, 10) AS b;
SELECT is(status, 0, 'a function that makes something is done')
    FROM fs_tree.create(NULL, 1, 'empty', 420, 5, 6, '', NULL);
SELECT is(size, 0::bigint, 'an empty file has size 0') FROM fs_tree.lookup(1, 'empty');

-- A number that the caller has reserved.
SELECT array_agg(r) AS reserved FROM fs_tree.reserve(3) AS r \gset
SELECT is((:'reserved'::bigint[])[3] - (:'reserved'::bigint[])[1], 2::bigint, 'reserve() gives several numbers');
SELECT is(ino, (:'reserved'::bigint[])[2], 'create() takes a reserved number')
    FROM fs_tree.create((:'reserved'::bigint[])[2], 1, 'reserved', 420, 5, 6, '', NULL);

-- Directories
SELECT is(nlink, 2, 'a new directory has nlink 2') FROM fs_tree.mkdir(NULL, 1, 'd', 493, 5, 6);
SELECT ino AS d FROM fs_tree.lookup(1, 'd') \gset
SELECT is(pg_temp.nlink(1), 3, 'the parent of a new directory has one link more');
SELECT is(status, 17, 'mkdir() of a name that is there: EEXIST') FROM fs_tree.mkdir(NULL, 1, 'd', 493, 5, 6);
SELECT is(status, 20, 'mkdir() in a file: ENOTDIR') FROM fs_tree.mkdir(NULL, 2, 'd', 493, 5, 6);
SELECT is(pg_temp.nlink(1), 3, 'a mkdir() that fails leaves nlink');
SELECT is(status, 20, 'rmdir() of a file: ENOTDIR') FROM fs_tree.rmdir(1, 'a');
SELECT is(status, 2, 'rmdir() of nothing: ENOENT') FROM fs_tree.rmdir(1, 'zz');
SELECT is(status, 21, 'unlink() of a directory: EISDIR') FROM fs_tree.unlink(1, 'd');
SELECT is(status, 2, 'unlink() of nothing: ENOENT') FROM fs_tree.unlink(1, 'zz');
SELECT is(status, 20, 'unlink() in a file: ENOTDIR') FROM fs_tree.unlink(2, 'zz');
SELECT is(status, 0, 'a file in a directory') FROM fs_tree.create(NULL, :d, 'f', 420, 5, 6, 'x', NULL);
SELECT is(status, 39, 'rmdir() of a directory with entries: ENOTEMPTY') FROM fs_tree.rmdir(1, 'd');
SELECT is(nlink, 0, 'unlink() of the only name leaves nlink 0') FROM fs_tree.unlink(:d, 'f');
SELECT is(nlink, 0, 'rmdir() of an empty directory') FROM fs_tree.rmdir(1, 'd');
SELECT is_empty(format('SELECT * FROM fs_tree.getattr(%s)', :d), 'the inode of a removed directory is gone');
SELECT is(pg_temp.nlink(1), 2, 'the parent of a removed directory has one link less');
SELECT is(status, 2, 'a directory that is gone takes no entries') FROM fs_tree.create(NULL, :d, 'f', 420, 5, 6, 'x', NULL);

-- Links
SELECT is(nlink, 2, 'link() gives a second name') FROM fs_tree.link(2, 1, 'hard');
SELECT results_eq('SELECT parent, name FROM fs_tree.names(2) ORDER BY name',
    $$VALUES (1::bigint, 'a'::bytea), (1, 'hard')$$, 'names() lists both names of an inode');
SELECT is(status, 17, 'link() over a name: EEXIST') FROM fs_tree.link(2, 1, 'hard');
SELECT is(status, 1, 'link() of a directory: EPERM') FROM fs_tree.link(1, 1, 'hard2');
SELECT is(status, 116, 'link() of nothing: ESTALE') FROM fs_tree.link(9999, 1, 'hard2');
SELECT is(status, 2, 'link() into nothing: ENOENT') FROM fs_tree.link(2, 9999, 'hard2');
SELECT is(nlink, 1, 'unlink() of one of two names') FROM fs_tree.unlink(1, 'a');
SELECT is(b, 'hello'::bytea, 'the content is still there') FROM fs_tree.read(2, NULL, 0, 100) AS b;
SELECT is(status, 0, 'the last name goes') FROM fs_tree.unlink(1, 'hard');
SELECT is_empty('SELECT * FROM fs_tree.getattr(2)', 'the inode goes with its last name');

-- Symbolic links and devices
SELECT is(size, 6::bigint, 'the size of a symbolic link is that of its target')
    FROM fs_tree.symlink(NULL, 1, 's', 'target', 5, 6);
SELECT is(t, 'target'::bytea, 'readlink() gives the target of a link') FROM fs_tree.lookup(1, 's') AS l, fs_tree.readlink(l.ino) AS t;
SELECT is(status, 2, 'an empty target: ENOENT') FROM fs_tree.symlink(NULL, 1, 's2', '', 5, 6);
SELECT is(status, 36, 'a target of 4096 bytes: ENAMETOOLONG')
    FROM fs_tree.symlink(NULL, 1, 's2', convert_to(repeat('x', 4096), 'UTF8'), 5, 6);
SELECT results_eq($$SELECT kind::text, rdev FROM fs_tree.mknod(NULL, 1, 'null0', 'c', 438, 0, 0, 259)$$,
    $$VALUES ('c', 259::bigint)$$, 'mknod() of a device');
SELECT is(size, 0::bigint, 'mknod() of a file') FROM fs_tree.mknod(NULL, 1, 'plain', 'f', 438, 0, 0, 0);
SELECT is(status, 22, 'mknod() of a directory: EINVAL') FROM fs_tree.mknod(NULL, 1, 'dir', 'd', 438, 0, 0, 0);

-- The group of a directory with the bit 02000
SELECT ino AS g FROM fs_tree.mkdir(NULL, 1, 'g', 1533, 5, 7) \gset
SELECT is(gid, 7::bigint, 'a file gets the group of such a directory')
    FROM fs_tree.create(NULL, :g, 'f', 420, 5, 6, '', NULL);
SELECT results_eq(format('SELECT gid, mode FROM fs_tree.mkdir(NULL, %s, %L, 493, 5, 6)', :g, 'sub'),
    'VALUES (7::bigint, 1517)', 'a directory gets the bit, too');

-- Times of directories
SELECT pg_temp.mtime(1) AS before \gset
SELECT is(status, 17, 'create() of a name that is there: EEXIST') FROM fs_tree.create(NULL, 1, 's', 420, 5, 6, '', NULL);
SELECT is(status, 2, 'unlink() of a name that is not there: ENOENT') FROM fs_tree.unlink(1, 'zz');
SELECT is(pg_temp.mtime(1), :before, 'a call that fails leaves the times of the directory');
SELECT is(status, 0, 'unlink() of a name succeeds') FROM fs_tree.unlink(1, 's');
SELECT cmp_ok(pg_temp.mtime(1), '>', :before, 'a call that succeeds sets the times of the directory');

-- Once in a transaction
BEGIN;
SELECT count(*) AS n FROM generate_series(1, 100) AS i,
    LATERAL (SELECT status FROM fs_tree.create(NULL, 1, convert_to('many' || i, 'UTF8'), 420, 5, 6, '', NULL)) AS c
WHERE c.status = 0 \gset
SELECT is(:n, 100, 'a hundred files in one transaction');
COMMIT;
SELECT is((SELECT count(*) FROM fs_tree.readdir(1, '', 1000) WHERE name > 'many' AND name < 'manz'), 100::bigint,
    'readdir() lists all files of one transaction');
SELECT results_eq($$SELECT name FROM fs_tree.readdir(1, 'many98', 2)$$, $$VALUES ('many99'::bytea), ('null')$$,
    'readdir() goes on behind a name, in the order of bytes');
SELECT results_eq($$SELECT name, content::bytea FROM fs_tree.readdir_content(1, 'hard', 2, 100)
    WHERE name = 'many1'$$, $$VALUES ('many1'::bytea, ''::bytea)$$, 'readdir_content() has the content');
SELECT is_empty($$SELECT * FROM blobfs.check('fs_tree')$$, 'check() finds nothing after all these calls');
SELECT blobfs.drop('fs_tree');
SELECT * FROM finish();
