-- Privileges: roles without rights, with rights to read and to write, row security, functions of others.
--
-- Seen to fail with grant() that lets readers write, with the body of lookup() as SECURITY DEFINER, with
-- names of functions in the templates that are not qualified, with triggers for all roles, and without
-- require_owner().
SET client_min_messages = warning;
SELECT plan(71);
CREATE ROLE fs_owner;
CREATE ROLE fs_reader;
CREATE ROLE fs_writer;
CREATE ROLE fs_nobody;
GRANT CREATE ON DATABASE postgres TO fs_owner;
SET ROLE fs_owner;
SELECT lives_ok($$SELECT blobfs.create('fs_priv')$$, 'whoever may make schemas makes file systems');
SELECT lives_ok($$SELECT blobfs.write('fs_priv', '/f', 'hello')$$, 'a file system is its maker''s own');
SELECT lives_ok($$SELECT blobfs.grant('fs_priv', 'fs_reader', 'read')$$, 'the owner grants the right to read');
SELECT lives_ok($$SELECT blobfs.grant('fs_priv', 'fs_writer', 'write')$$, 'the owner grants the right to write');
SELECT throws_ok($$SELECT blobfs.grant('fs_priv', 'fs_writer', 'all')$$, '22023', NULL, 'a right that is neither is refused');

SET ROLE fs_nobody;
SELECT throws_ok($$SELECT blobfs.create('fs_priv2')$$, '42501', NULL, 'a role that may not make schemas');
SELECT throws_ok($$SELECT blobfs.read('fs_priv', '/f')$$, '42501', NULL, 'read() without rights is refused');
SELECT throws_ok($$SELECT * FROM fs_priv.lookup(1, 'f')$$, '42501', NULL, 'lookup() without rights is refused');
SELECT throws_ok($$SELECT blobfs.write('fs_priv', '/f', '')$$, '42501', NULL, 'write() without rights is refused');
SELECT throws_ok($$SELECT blobfs.drop('fs_priv')$$, '42501', NULL, 'drop() without rights is refused');
SELECT throws_ok($$SELECT blobfs.upgrade('fs_priv')$$, '42501', NULL, 'upgrade() without rights is refused');
RESET ROLE;
GRANT USAGE ON SCHEMA fs_priv TO fs_nobody;
SET ROLE fs_nobody;
SELECT throws_ok('SELECT * FROM fs_priv.' || call, '42501', NULL, 'USAGE of the schema is not enough for ' || call)
    FROM unnest(ARRAY['lookup(1, ''f'')', 'read(2, NULL, 0, 9)', 'create(NULL, 1, ''g'', 420, 0, 0, '''', NULL)']) AS call;
SELECT throws_ok('SELECT * FROM ' || t, '42501', NULL, 'no role reads ' || t)
    FROM unnest(ARRAY['blobfs.mount', 'blobfs.connection', 'blobfs.pin']) AS t;
SELECT throws_ok('LOCK TABLE ' || t || ' IN ACCESS SHARE MODE', '42501', NULL, 'no role locks ' || t)
    FROM unnest(ARRAY['blobfs.mount', 'blobfs.connection', 'blobfs.pin']) AS t;
SELECT throws_ok('SELECT * FROM blobfs.mounts()', '42501', NULL, 'mounts of others are for pg_monitor');
SELECT mount AS m, key AS k FROM blobfs.attach('nobody') \gset
SELECT ok(blobfs.pin(:m, :'k', 1, 'own'), 'any role pins what it has');

SET ROLE fs_reader;
SELECT is(blobfs.read('fs_priv', '/f')::bytea, 'hello'::bytea, 'a reader reads the content of a file');
SELECT is((SELECT count(*) FROM blobfs.list('fs_priv')), 1::bigint, 'a reader lists the names of a directory');
SELECT is((SELECT count(*) FROM fs_priv.path), 2::bigint, 'a reader has the view');
SELECT throws_ok($$SELECT blobfs.write('fs_priv', '/f', '')$$, '42501', NULL, 'a reader does not write');
SELECT throws_ok($$SELECT blobfs.unlink('fs_priv', '/f')$$, '42501', NULL, 'a reader does not unlink');
SELECT throws_ok($$SELECT fs_priv.mount_begin(1, 1)$$, '42501', NULL, 'a reader has no marks');
SELECT throws_ok($$SELECT blobfs.snapshot('fs_priv', 'v')$$, '42501', NULL, 'a reader makes no snapshots');
SELECT is(blobfs.pinned(:m, gen_random_uuid(), 1), NULL, 'nobody reads pins without the key');

SET ROLE fs_writer;
SELECT lives_ok($$SELECT blobfs.write('fs_priv', '/g', 'x'), blobfs.mkdir('fs_priv', '/d'), blobfs.mkdir('fs_priv', '/e')$$,
    'a writer makes files and directories');
SELECT lives_ok($$SELECT blobfs.rename('fs_priv', '/d', '/e/d'), blobfs.unlink('fs_priv', '/g')$$,
    'a writer moves directories and unlinks');
SELECT lives_ok($$SELECT fs_priv.mount_begin(1, 1), fs_priv.mark(1, 1, 1), fs_priv.mount_end(1)$$, 'a writer has marks');
SELECT lives_ok('SELECT fs_priv.mount_begin(777, 0)', 'a mount makes its mark');
SELECT throws_ok(statement, '42501', NULL, 'a writer neither reads nor changes marks of others: ' || statement)
    FROM unnest(ARRAY['SELECT * FROM fs_priv.mount', 'UPDATE fs_priv.mount SET mark = 9', 'DELETE FROM fs_priv.mount',
        'SELECT FROM fs_priv.mount FOR UPDATE', 'INSERT INTO fs_priv.mount VALUES (777, 1, 5)',
        'TRUNCATE fs_priv.mount', 'LOCK TABLE fs_priv.mount IN ACCESS SHARE MODE']) AS statement;
SELECT throws_ok('SELECT fs_priv.mark(778, 0, 1)', 'BF125', NULL, 'a number that is no mount''s has no mark');
SELECT is((SELECT r.committed FROM fs_priv.mount_recover(777, 0) AS r), 0::bigint, 'a role that knows the number of a mount has its mark');
SELECT throws_ok($$SELECT blobfs.set_quota('fs_priv', 1)$$, '42501', NULL, 'a writer sets no quota');
SELECT throws_ok('UPDATE fs_priv.superblock SET quota_bytes = 5', '42501', NULL, 'a writer sets no quota by UPDATE either');
SELECT throws_ok($$SELECT blobfs.drop('fs_priv')$$, '42501', NULL, 'a writer does not drop');

-- The channel of notifications is for those who may read the superblock.
SELECT blobfs.channel('fs_priv') AS channel, to_regclass('fs_priv.dentry')::oid AS dentry \gset
SELECT isnt(:'channel', 'blobfs_' || :'dentry', 'the channel cannot be guessed from the catalogs');
SET ROLE fs_nobody;
SELECT throws_ok($$SELECT blobfs.channel('fs_priv')$$, '42501', NULL, 'a role that may not read the file system does not learn the channel');

-- A quota holds for writers.  They cannot change the usage, nor sizes.
SET ROLE fs_owner;
SELECT blobfs.set_quota('fs_priv', 100);
SET ROLE fs_writer;
SELECT lives_ok($$SELECT blobfs.write('fs_priv', '/q', repeat('x', 50)::bytea)$$, 'a writer below the quota');
SELECT throws_ok($$SELECT blobfs.write('fs_priv', '/r', repeat('x', 60)::bytea)$$, 'BF122', NULL, 'a writer over it');
SELECT throws_ok('DELETE FROM fs_priv.usage_change', '42501', NULL, 'a writer does not change the usage');
UPDATE fs_priv.inode SET size = -1000 WHERE kind = 'f';
SELECT is((SELECT size FROM blobfs.stat('fs_priv', '/q')), 50::bigint, 'a size that is set by hand is that of the content');
SELECT throws_ok($$INSERT INTO fs_priv.inode (ino, version, size, mtime, ctime, atime, uid, gid, mode, nlink, kind, content)
    VALUES (99, 1, -1, 0, 0, 0, 0, 0, 0, 1, 'f', repeat('x', 60)::bytea::blobstate)$$, 'BF122', NULL,
    'a row by hand counts with its content');
SELECT throws_ok($$UPDATE fs_priv.inode SET size = 0, version = version + 1, content = repeat('x', 200)::bytea::blobstate
    WHERE kind = 'f'$$, 'BF122', NULL, 'a change by hand counts with its content');
SELECT throws_ok($$UPDATE fs_priv.inode SET target = repeat('x', 5000)::bytea$$, '23514', NULL,
    'what no quota counts has a limit: targets');
SELECT throws_ok($$UPDATE fs_priv.inode SET xattr = ARRAY['n', repeat('x', 2000000)::bytea]$$, '23514', NULL,
    'what no quota counts has a limit: extended attributes');
CREATE TEMP TABLE own (size bigint);
SELECT throws_ok('CREATE TRIGGER t AFTER INSERT OR DELETE ON own FOR EACH ROW EXECUTE FUNCTION fs_priv.quota_note()',
    '42501', NULL, 'a writer does not change the usage by a trigger of its own');
SELECT throws_ok('CREATE TRIGGER t AFTER INSERT OR DELETE ON own FOR EACH ROW EXECUTE FUNCTION fs_priv.quota_settle()',
    '42501', NULL, 'a writer does not change the usage by a trigger with the other function');

-- Objects that a superuser would make in the schema would be the superuser's.
RESET ROLE;
SELECT throws_ok($$SELECT blobfs.upgrade('fs_priv')$$, '42501', NULL, 'upgrade() is for the owner');
SELECT throws_ok($$SELECT blobfs.set_quota('fs_priv', 9)$$, '42501', NULL, 'set_quota() is for the owner');

-- Functions of a file system would run with the rights of a role that has more than their owner.
RESET ROLE;
SELECT throws_ok(call, '42501', 'functions of file system "fs_priv" would run with the rights of role "postgres"',
        'a superuser does not call ' || call)
    FROM unnest(ARRAY['SELECT blobfs.read(''fs_priv'', ''/f'')', 'SELECT * FROM blobfs.check(''fs_priv'')',
        'SELECT blobfs.snapshot(''fs_priv'', ''s'')']) AS call;

-- Row security: files of group 7 only
SET ROLE fs_owner;
UPDATE fs_priv.inode SET gid = 7 WHERE ino <> (SELECT ino FROM blobfs.stat('fs_priv', '/f'));
ALTER TABLE fs_priv.inode ENABLE ROW LEVEL SECURITY;
CREATE POLICY group7 ON fs_priv.inode TO fs_reader USING (gid = 7);
SET ROLE fs_reader;
SELECT throws_ok($$SELECT blobfs.read('fs_priv', '/f')$$, 'BF002', NULL, 'a file that row security hides is not there');
SELECT is(length(blobfs.read('fs_priv', '/q')), 50::bigint, 'a file that row security shows is read');

-- Functions of a role in its own schema, first in the search_path, are not called.
RESET ROLE;
CREATE SCHEMA fs_trap AUTHORIZATION fs_nobody;
GRANT USAGE ON SCHEMA fs_trap TO PUBLIC;
SET ROLE fs_nobody;
CREATE FUNCTION fs_trap.fire() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'trap'; END$$;
CREATE FUNCTION fs_trap.length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT fs_trap.fire(); SELECT 1';
CREATE FUNCTION fs_trap.coalesce(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT fs_trap.fire(); SELECT 1::bigint';
CREATE FUNCTION fs_trap.position(bytea, bytea) RETURNS integer LANGUAGE sql AS 'SELECT fs_trap.fire(); SELECT 1';
CREATE FUNCTION fs_trap.left(text, integer) RETURNS text LANGUAGE sql AS $$SELECT fs_trap.fire(); SELECT ''$$;
CREATE FUNCTION fs_trap.blob_append(blobstate, bytea) RETURNS blobstate LANGUAGE sql AS 'SELECT fs_trap.fire(); SELECT $1';
CREATE FUNCTION fs_trap.gen_random_uuid() RETURNS uuid LANGUAGE sql AS 'SELECT fs_trap.fire(); SELECT NULL::uuid';
CREATE FUNCTION fs_trap.nextval(text) RETURNS bigint LANGUAGE sql AS 'SELECT fs_trap.fire(); SELECT 1::bigint';
CREATE FUNCTION fs_trap.cardinality(anyarray) RETURNS integer LANGUAGE sql AS 'SELECT fs_trap.fire(); SELECT 1';
CREATE FUNCTION fs_trap.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT fs_trap.fire(); SELECT now()';
CREATE TABLE fs_trap.inode (ino bigint);
CREATE TABLE fs_trap.pin (ino bigint);
SET ROLE fs_owner;
CREATE FUNCTION pg_temp.trapped(statement text) RETURNS text LANGUAGE plpgsql
    SET search_path = fs_trap, pg_catalog, public, pg_temp AS $$
BEGIN
    EXECUTE statement;
    RETURN 'fine';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLERRM;
END $$;
SELECT is(pg_temp.trapped($$SELECT length('x'::bytea)$$), 'trap', 'the trap catches a call of length()');
SELECT is(pg_temp.trapped($$SELECT fs_priv.create(NULL, 1, 'z', 420, 0, 0, 'z', NULL), fs_priv.mkdir(NULL, 1, 'zd', 493, 0, 0),
    fs_priv.setxattr(1, 'user.a', 'b', 0), fs_priv.removexattr(1, 'user.a'), fs_priv.rename(1, 'z', 1, 'y', 0),
    fs_priv.link(1, 1, 'x'), fs_priv.symlink(NULL, 1, 'sl', 't', 0, 0), fs_priv.rmdir(1, 'zd')$$), 'fine', 'calls by number call no function of the trap');
SELECT is(pg_temp.trapped($$SELECT blobfs.append('fs_priv', '/y', 'more'), blobfs.truncate('fs_priv', '/y', 2),
    blobfs.snapshot('fs_priv', 'trap'), blobfs.drop_snapshot('fs_priv', 'trap'), blobfs.unlink('fs_priv', '/y')$$),
    'fine', 'calls by path call no function of the trap');
SELECT is(pg_temp.trapped($$SELECT fs_priv.patch(c.ino, NULL, false, 1, '{0}', '{a}', 9, NULL)
    FROM fs_priv.create(NULL, 1, 'p', 420, 0, 0, 'z', NULL) AS c$$), 'fine', 'a call of patch() calls no function of the trap');
SELECT is(pg_temp.trapped($$SELECT blobfs.pin(a.mount, a.key, 1, 'x'), blobfs.detach(a.mount, a.key)
    FROM blobfs.attach('x') AS a$$), 'fine', 'calls for pins call no function of the trap');
SELECT is(pg_temp.trapped($$SELECT * FROM fs_priv.statfs(), blobfs.check('fs_priv'), fs_priv.getxattr(1, 'x')$$),
    'fine', 'calls that read call no function of the trap');
RESET ROLE;
SELECT blobfs.detach(:m, :'k');
DROP SCHEMA fs_trap CASCADE;
SELECT blobfs.drop('fs_priv');
DROP OWNED BY fs_owner, fs_reader, fs_writer, fs_nobody;
DROP ROLE fs_owner, fs_reader, fs_writer, fs_nobody;
SELECT * FROM finish();
