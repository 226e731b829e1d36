-- Functions by path, the view of paths, names that are no text, snapshots, view_problems().
--
-- Seen to fail without following symbolic links in resolve(), with snapshots that do not copy dentry rows, and
-- with each of the problems of a table left out.
SET client_min_messages = warning;
SELECT plan(61);
SELECT throws_ok($$SELECT blobfs.create('fs$x')$$, '42602', NULL, 'a name with $ is refused');
SELECT throws_ok($$SELECT blobfs.create('fs''x')$$, '42602', NULL, 'a name with a quote is refused');
SELECT lives_ok($$SELECT blobfs.create('Fs "é')$$, 'a file system can have a name that must be quoted');
SELECT lives_ok($$SELECT blobfs.write('Fs "é', '/a', 'x')$$, 'write() to a file system whose name is quoted succeeds');
SELECT is_empty($$SELECT * FROM blobfs.check('Fs "é')$$, 'check() of a file system whose name is quoted finds nothing');
SELECT lives_ok($$SELECT blobfs.upgrade('Fs "é')$$, 'upgrade() of a file system whose name is quoted succeeds');
SELECT lives_ok($$SELECT blobfs.drop('Fs "é')$$, 'drop() of a file system whose name is quoted succeeds');
SELECT throws_ok($$SELECT blobfs.drop('public')$$, 'BF002', NULL, 'drop() of another schema is refused');
SELECT throws_ok($$SELECT * FROM blobfs.check('public')$$, 'BF002', NULL, 'check() of another schema is refused');

SELECT blobfs.create('fs_paths', 5, 6);
SELECT throws_ok($$SELECT blobfs.create('fs_paths')$$, '42P06', NULL, 'a file system is there already');
SELECT lives_ok($$SELECT blobfs.mkdir('fs_paths', '/a/b/c', true)$$, 'mkdir() with parents makes all directories');
SELECT lives_ok($$SELECT blobfs.mkdir('fs_paths', '/a/b/c/', true)$$, 'mkdir() with parents where all is there');
SELECT throws_ok($$SELECT blobfs.mkdir('fs_paths', '/a/b')$$, 'BF017', NULL, 'mkdir() of what is there');
SELECT throws_ok($$SELECT blobfs.mkdir('fs_paths', '/x/y')$$, 'BF002', NULL, 'mkdir() without the parent');
SELECT lives_ok($$SELECT blobfs.write('fs_paths', '/a/b/f', 'hello')$$, 'write() of a literal');
SELECT lives_ok($$SELECT blobfs.write('fs_paths', '/a/b/g', '\xff00'::bytea)$$, 'write() of a bytea');
SELECT is(blobfs.read('fs_paths', '/a/b/f')::bytea, 'hello'::bytea, 'read() gives what write() of a literal stored');
SELECT is(blobfs.read('fs_paths', 'a//b/./c/../f', 1, 3), 'ell'::bytea, 'read() of a range, by a path to be tidied');
SELECT results_eq($$SELECT uid, gid, mode FROM blobfs.stat('fs_paths', '/a/b/f')$$,
    'VALUES (5::bigint, 6::bigint, 420)', 'what SQL makes belongs to whom the directory does');
SELECT lives_ok($$SELECT blobfs.write('fs_paths', '/a/b/f', 'bye')$$, 'write() to a file that is there succeeds');
SELECT lives_ok($$SELECT blobfs.append('fs_paths', '/a/b/f', ' bye')$$, 'append() to a file succeeds');
SELECT is(blobfs.read('fs_paths', '/a/b/f')::bytea, 'bye bye'::bytea, 'a file has what write() and append() stored');
SELECT lives_ok($$SELECT blobfs.truncate('fs_paths', '/a/b/f', 3)$$, 'truncate() of a file succeeds');
SELECT is(length(blobfs.read('fs_paths', '/a/b/f')), 3::bigint, 'a truncated file has the size given');
SELECT throws_ok($$SELECT blobfs.write('fs_paths', '/a/b', 'x')$$, 'BF021', NULL, 'write() to a directory');
SELECT throws_ok($$SELECT blobfs.read('fs_paths', '/a/b')$$, 'BF021', NULL, 'read() of a directory');
SELECT throws_ok($$SELECT blobfs.read('fs_paths', '/a/x')$$, 'BF002', '/a/x: no such file or directory',
    'read() of nothing says what is missing');
SELECT throws_ok($$SELECT blobfs.read('fs_paths', '/a/b/f/x')$$, 'BF020', NULL, 'a file in the middle of a path');
SELECT throws_ok($$SELECT blobfs.write('fs_paths', '/a/x/f', 'x')$$, 'BF002', NULL, 'write() without the directory');

SELECT lives_ok($$SELECT blobfs.symlink('fs_paths', '../b', '/a/b/self')$$, 'a link to the directory that it is in');
SELECT is(blobfs.readlink('fs_paths', '/a/b/self'), '../b', 'readlink() gives the target as it was given');
SELECT is(blobfs.read('fs_paths', '/a/b/self/self/f')::bytea, 'bye'::bytea, 'links in the middle are followed');
SELECT lives_ok($$SELECT blobfs.symlink('fs_paths', '/a/b/f', '/abs')$$, 'a link from the root');
SELECT is(blobfs.read('fs_paths', '/abs')::bytea, 'bye'::bytea, 'a link at the end is followed');
SELECT lives_ok($$SELECT blobfs.write('fs_paths', '/abs', 'via')$$, 'write() through a link succeeds');
SELECT is(blobfs.read('fs_paths', '/a/b/f')::bytea, 'via'::bytea, 'write() through a link writes to what the link leads to');
SELECT lives_ok($$SELECT blobfs.symlink('fs_paths', 'loop', '/loop')$$, 'a link to itself');
SELECT throws_ok($$SELECT blobfs.read('fs_paths', '/loop')$$, 'BF040', NULL, 'a circle of links');
SELECT lives_ok($$SELECT blobfs.unlink('fs_paths', '/loop')$$, 'unlink() of a link itself');

SELECT lives_ok($$SELECT blobfs.link('fs_paths', '/a/b/f', '/f2')$$, 'link() gives a file a second name');
SELECT lives_ok($$SELECT blobfs.rename('fs_paths', '/f2', '/a/f3')$$, 'rename() moves a name to another directory');
SELECT throws_ok($$SELECT blobfs.rename('fs_paths', '/a', '/a/b/c/d')$$, 'BF022', NULL, 'rename() of a directory into itself is refused');
SELECT throws_ok($$SELECT blobfs.rename('fs_paths', '/', '/x')$$, 'BF016', NULL, 'rename() of the root');
SELECT throws_ok($$SELECT blobfs.unlink('fs_paths', '/a')$$, 'BF039', NULL, 'unlink() of a directory with entries');
SELECT results_eq($$SELECT name, kind::text, mode, size FROM blobfs.list('fs_paths', '/a')$$,
    $$VALUES ('b', 'd', '0755', 0::bigint), ('f3', 'f', '0644', 3)$$, 'list() has name, kind, mode and size of each entry');
SELECT set_eq('SELECT path FROM fs_paths.path', ARRAY['/', '/a', '/a/b', '/a/b/c', '/a/b/f', '/a/b/g', '/a/b/self',
    '/a/f3', '/abs'], 'the view of paths');

-- Names that are no text
SELECT status FROM fs_paths.create(NULL, 1, '\x61ff0a', 420, 0, 0, '', NULL);
SELECT status FROM fs_paths.create(NULL, 1, convert_to('ä', 'UTF8'), 420, 0, 0, '', NULL);
SELECT set_eq($$SELECT name FROM blobfs.list('fs_paths')$$, ARRAY['a', 'abs', 'ä', 'a\377' || E'\n'],
    'names in UTF-8 are shown as they are, others escaped');

-- Snapshots
SELECT blobfs.snapshot('fs_paths', 'v1') AS s \gset
SELECT throws_ok($$SELECT blobfs.snapshot('fs_paths', 'v1')$$, '23505', NULL, 'a snapshot of the same name');
SELECT throws_ok($$SELECT blobfs.snapshot('fs_paths', 'a/b')$$, '23514', NULL, 'a snapshot that cannot be named so');
SELECT ino AS f FROM blobfs.stat('fs_paths', '/a/b/f') \gset
SELECT lives_ok($$SELECT blobfs.unlink('fs_paths', '/a', true)$$, 'unlink() of a directory with all below succeeds');
SELECT set_eq('SELECT path FROM fs_paths.path', ARRAY['/', '/abs', '/ä', '/a\377' || E'\n'], 'all paths of an unlinked directory are gone');
SELECT results_eq('SELECT snapshot, name FROM fs_paths.snapshots()', format('VALUES (%s::bigint, %L::bytea)', :s, 'v1'),
    'snapshots() lists the snapshot that was made');
SELECT results_eq(format($$SELECT d.name, r FROM fs_paths.snapshot_lookup(%1$s, 1, 'a') AS a,
    fs_paths.snapshot_lookup(%1$s, a.ino, 'b') AS b, fs_paths.snapshot_readdir_content(%1$s, b.ino, 'c', 1, 100) AS d,
    fs_paths.snapshot_read(%1$s, d.ino, d.version, 0, 10) AS r$$, :s), $$VALUES ('f'::bytea, 'via'::bytea)$$,
    'the snapshot has what is gone');
SELECT is((SELECT nlink FROM fs_paths.snapshot_getattr(:s, :f)), 2, 'attributes are those of that time');
SELECT is_empty($$SELECT * FROM blobfs.check('fs_paths')$$, 'check() finds nothing after all these calls');
SELECT lives_ok($$SELECT blobfs.drop_snapshot('fs_paths', 'v1')$$, 'drop_snapshot() of a snapshot succeeds');
SELECT throws_ok($$SELECT blobfs.drop_snapshot('fs_paths', 'v1')$$, 'BF002', NULL, 'a dropped snapshot is not there');
SELECT is((SELECT count(*) FROM fs_paths.snapshot_inode) + (SELECT count(*) FROM fs_paths.snapshot_dentry), 0::bigint,
    'a dropped snapshot leaves no inode and no name');

-- Tables that are mounted as they are
CREATE TEMP TABLE document (path text, content blobstate);
INSERT INTO document VALUES ('a', ''), ('a/b', ''), ('x/y/z', ''), ('x/y', ''), (NULL, ''), ('', ''), ('p//q', ''),
    ('p/./q', ''), ('p/..', ''), ('/abs', ''), ('twice', ''), ('twice', ''), ('fine/f', ''), (repeat('n', 256), ''),
    ('percent%s', '');
SELECT set_eq($$SELECT left(path, 5), problem FROM blobfs.view_problems('document', 'path')$$, $$VALUES
    ('a', 'is hidden: other paths make it a directory'), ('x/y', 'is hidden: other paths make it a directory'),
    (NULL, 'has no path'), ('', 'is empty'), ('p//q', 'has an empty name in it'),
    ('p/./q', 'has the name "." in it'), ('p/..', 'has the name ".." in it'), ('/abs', 'has an empty name in it'),
    ('twice', '2 rows have it'), ('nnnnn', 'has a name of more than 255 bytes in it')$$, 'view_problems() lists the paths that cannot be names, with the reason');
SELECT is_empty($$SELECT * FROM blobfs.view_problems('document', 'path', '/') WHERE path = '/abs'$$,
    'a prefix makes such a path one that is shown');
SELECT is((SELECT count(*) FROM blobfs.view_problems('document', 'path', '/')
    WHERE problem = 'does not begin with the prefix'), 13::bigint, 'other paths do not begin with the prefix');
SELECT blobfs.drop('fs_paths');
SELECT * FROM finish();
