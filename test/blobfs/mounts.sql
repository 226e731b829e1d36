-- Marks, mounts and pins: a pinned value survives deletion, VACUUM and the collector; keys; dead mounts.
--
-- Seen to fail with the comparison of the key left out in pin(), pinned() and unpin(), with a mark that is not
-- compared, and with one that mount_recover() leaves as it is.
SET client_min_messages = warning;
SELECT plan(48);
SELECT blobfs.create('fs_mounts');
SET search_path = public, fs_mounts;
CREATE FUNCTION pg_temp.bytes(n integer, seed text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
        FROM 1 FOR n), '') FROM generate_series(1, (n + 31) / 32) i
$$;

-- Marks
SELECT is(fs_mounts.mount_begin(7, 0), 0::bigint, 'the first mark is 0');
SELECT lives_ok('SELECT fs_mounts.mark(7, 0, 1)', 'mark 1 follows mark 0');
SELECT lives_ok('SELECT fs_mounts.mark(7, 0, 2, 0)', 'mark 2 follows mark 1');
SELECT throws_ok('SELECT fs_mounts.mark(7, 0, 2)', 'BF125', NULL, 'mark 2 is refused a second time');
SELECT throws_ok('SELECT fs_mounts.mark(7, 0, 4)', 'BF125', NULL, 'a mark that leaves one out is refused');
SELECT throws_ok('SELECT fs_mounts.mark(7, 1, 1)', 'BF125', NULL, 'a mark in a slot that was not begun is refused');
SELECT lives_ok('SELECT fs_mounts.mark(7, 0, 99, 17)', 'a call that failed does not mark');
SELECT results_eq('SELECT committed, mark > 2 FROM fs_mounts.mount_recover(7, 0)', 'VALUES (2::bigint, true)',
    'mount_recover() says what was committed');
SELECT throws_ok('SELECT fs_mounts.mark(7, 0, 3)', 'BF125', NULL, 'the lost connection cannot go on');
SELECT lives_ok('SELECT fs_mounts.mark(7, 0, mark + 1) FROM fs_mounts.mount_recover(7, 0)', 'the new one can');
SELECT is_empty('SELECT * FROM fs_mounts.mount_recover(7, 5)', 'a slot that was not begun has no mark');
SELECT results_eq($$SELECT r.status, m IS NULL FROM (SELECT r.*, fs_mounts.mark(7, 0, k.mark + 1, r.status) AS m
    FROM fs_mounts.mount_recover(7, 0) AS k, fs_mounts.create(NULL, 1, 'm', 420, 0, 0, 'x', NULL) AS r) AS r$$,
    'VALUES (0, false)', 'a change and its mark in one statement');
SELECT cmp_ok(fs_mounts.mount_begin(7, 0), '>', 4294967296, 'a slot that is taken over gets a fresh mark');
-- Marks of mounts that are gone
INSERT INTO fs_mounts.mount VALUES (8, 0, 3, now() - interval '2 days'), (9, 0, 3, now());
UPDATE fs_mounts.mount SET changed = now() - interval '2 days' WHERE id = 7;
SELECT lives_ok('SELECT fs_mounts.mount_begin(7, 1)', 'a second slot of the mount can be begun');
SELECT bag_eq('SELECT id FROM fs_mounts.mount', $$VALUES (9::bigint), (7), (7)$$,
    'marks that are a day old go with the mount, but not those of the caller');
SELECT lives_ok('SELECT fs_mounts.mount_end(7)', 'mount_end() of a mount succeeds');
SELECT bag_eq('SELECT id FROM fs_mounts.mount', $$VALUES (9::bigint)$$, 'mount_end() removes the marks of the mount');

-- Pins
SELECT mount AS m, key AS k FROM blobfs.attach('test') \gset
SELECT ok(:m > 0, 'the number of a mount is positive');
SELECT ok(blobfs.join(:m, :'k'), 'join() of a mount');
SELECT ok(blobfs.join(:m, :'k'), 'join() of a mount succeeds a second time');
SELECT ok(NOT blobfs.join(:m, gen_random_uuid()), 'join() with another key is refused');
SELECT ok(NOT blobfs.join(-1, :'k'), 'join() of another mount is refused');
SELECT ino AS f FROM fs_mounts.create(NULL, 1, 'f', 420, 0, 0, pg_temp.bytes(300000, 'f')::blobstate, NULL) \gset
SELECT ino AS g FROM fs_mounts.create(NULL, 1, 'g', 420, 0, 0, pg_temp.bytes(300000, 'g')::blobstate, NULL) \gset
SELECT results_eq(format('SELECT blobfs.pin(%s, %L, 1, c) FROM fs_mounts.content(%s, NULL) AS c', :m, :'k', :f),
    'VALUES (true)', 'pin() of a version of a file succeeds');
SELECT is_empty(format('SELECT blobfs.pin(%s, %L, 2, c) FROM fs_mounts.content(%s, 5) AS c', :m, :'k', :f),
    'a version that is gone is not pinned');
SELECT results_eq(format('SELECT blobfs.pin(%s, %L, 2, c) FROM fs_mounts.content(%s, NULL) AS c', :m, gen_random_uuid(), :f),
    'VALUES (false)', 'pin() with another key');
SELECT is(blob_read(blobfs.pinned(:m, :'k', 1), 1000, 20), substring(pg_temp.bytes(300000, 'f') FROM 1001 FOR 20),
    'a pinned value is read');
SELECT is(blobfs.pinned(:m, gen_random_uuid(), 1), NULL, 'not with another key');
SELECT is(blobfs.pinned(:m, :'k', 2), NULL, 'a handle that is not there');
SELECT is(blobfs.unpin(:m, gen_random_uuid(), '{1}'), 0, 'unpin() with another key');
SELECT status FROM fs_mounts.unlink(1, 'f');
SELECT status FROM fs_mounts.write(:g, NULL, false, 'new', NULL);
VACUUM fs_mounts.inode;
CHECKPOINT;
SELECT freed_bytes AS freed FROM blobext_gc() \gset
SELECT cmp_ok(:freed::bigint, '>=', 300000::bigint, 'the collector frees the content of the other file, which was replaced');
CHECKPOINT;
-- Fills the pages that were freed.
CREATE TABLE fs_mounts.filler (b blobstate);
INSERT INTO fs_mounts.filler SELECT pg_temp.bytes(300000, i::text)::blobstate FROM generate_series(1, 6) AS i;
SELECT is(sha256(blobfs.pinned(:m, :'k', 1)), sha256(pg_temp.bytes(300000, 'f')), 'the digest of a pinned value of a deleted file');
SELECT is(blob_read(blobfs.pinned(:m, :'k', 1), 0, 300000), pg_temp.bytes(300000, 'f'),
    'a pinned value of a deleted file is read after VACUUM and the collector');
SELECT is(concat_ws(' ', role, what, connections, pins, pinned_bytes), session_user || ' test 1 1 300000', 'mounts() shows the mount with its pins')
    FROM blobfs.mounts();
SELECT is(blobfs.unpin(:m, :'k', '{1,2}'), 1, 'unpin() counts the pins that it removes');
SELECT is(blobfs.pinned(:m, :'k', 1), NULL, 'a value that was let go is pinned no more');
SELECT ok(blobfs.pin(:m, :'k', 3, 'small'), 'a value that no table has can be pinned');
SELECT ok(blobfs.pin(:m, :'k', 3, 'other'), 'a handle is used again');
SELECT is(blobfs.pinned(:m, :'k', 3)::bytea, 'other'::bytea, 'the later value counts');

-- Dead mounts
SELECT is(blobfs.sweep(), 0, 'a mount with a connection is alive');
DELETE FROM blobfs.connection;
INSERT INTO blobfs.connection VALUES (:m, pg_backend_pid(), '2000-01-01');
SELECT is(blobfs.sweep(), 0, 'a mount without a connection may come back');
SELECT is(count(*), 0::bigint, 'a connection that ended is removed; another process has its number')
    FROM blobfs.connection;
UPDATE blobfs.mount SET unconnected_since = now() - interval '59 seconds';
SELECT is(blobfs.sweep(), 0, 'sweep() leaves a mount without a connection for a minute');
SELECT ok(blobfs.join(:m, :'k'), 'a mount comes back within a minute');
DELETE FROM blobfs.connection;
UPDATE blobfs.mount SET unconnected_since = now() - interval '61 seconds';
SELECT is(blobfs.sweep(), 1, 'sweep() removes a mount without a connection after a minute');
SELECT is((SELECT count(*) FROM blobfs.pin), 0::bigint, 'the pins of a dead mount go with it');
SELECT ok(NOT blobfs.join(:m, :'k'), 'a dead mount cannot come back');
SELECT mount AS m, key AS k FROM blobfs.attach() \gset
SELECT ok(blobfs.pin(:m, :'k', 3, 'small'), 'another mount can use the number of a pin');
SELECT blobfs.detach(:m, :'k');
SELECT is((SELECT count(*) FROM blobfs.pin) + (SELECT count(*) FROM blobfs.connection), 0::bigint,
    'detach() leaves no pin and no connection');
SELECT blobfs.drop('fs_mounts');
SELECT * FROM finish();
