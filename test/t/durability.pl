# Content is durable before the commit that refers to it, on every way to a commit.
#
# Two-phase commit over restarts and crashes; values that a PL/pgSQL variable carries out of a
# rolled back subtransaction, or over a procedure's ROLLBACK and COMMIT; prepared statements and
# cursors; all levels of synchronous_commit; fsync = off; one fdatasync() for several backends.
# The counters of blobext_stat say how often a segment was synced.  After each part all server
# processes are killed, and the values are read.
#
# The background process that would sync is off (syncer.pl is its test): each backend syncs, and
# counts.  A kill leaves the page cache alone, so about syncing this test proves the counters only;
# the power cuts of crash.pl prove that the syncs suffice.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $node = blob_cluster('main', conf => "autovacuum = off\nblobext.background_sync = off\n");
$node->safe_psql(
	'postgres', q(
CREATE TABLE t (id serial PRIMARY KEY, expected bytea, b blobstate);
-- Content that is made at run time: 32 bytes of digest for each number.
CREATE FUNCTION content(key integer, size integer) RETURNS bytea LANGUAGE sql VOLATILE AS $$
	SELECT substring(string_agg(sha256(convert_to(key || '.' || i, 'UTF8')), '') FROM 1 FOR size)
	FROM generate_series(0, size / 32) AS i $$;
CREATE PROCEDURE add(key integer, size integer) LANGUAGE sql AS $$
	INSERT INTO t (expected, b) SELECT sha256(c), c FROM content(key, size) AS c $$;
));

# Kill, start, count: the given number of rows in all, none bad.
sub survives
{
	my ($name, $rows) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	kill_everything($node);
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*),
		count(*) FILTER (WHERE sha256(b::bytea) <> expected OR sha256(b) <> expected),
		count(*) FILTER (WHERE length(b) > 1900 AND blob_storage(b) <> $$extents$$)
		FROM t'), "$rows|0|0", "$name: $rows rows, all intact, after a kill");
	check_is_clean($node, "$name: the check finds nothing");
	return;
}

# How much a counter grows while the statements run, in one session.
sub growth
{
	my ($counter, $sql) = @_;
	my $before = stat_of($node, $counter);
	$node->safe_psql('postgres', $sql);
	return stat_of($node, $counter) - $before;
}

# ---- when a segment is synced ----

is(growth('syncs', 'CALL add(1, 100000)'), 1, 'a commit of a value in extents syncs once');
is(growth('syncs', 'BEGIN; CALL add(2, 100000); CALL add(3, 5000); CALL add(4, 2000000);
	COMMIT'), 1,
	'one transaction with several values syncs once');
is(growth('syncs', 'CALL add(5, 1000)'), 0, 'an inline value needs no sync');
is(growth('syncs', 'BEGIN; CALL add(6, 100000); ROLLBACK'), 0, 'a rollback needs no sync');
is(growth('syncs', 'BEGIN; CALL add(6, 100000); ROLLBACK; BEGIN; CALL add(7, 900); COMMIT'), 1,
	'what a rolled back transaction wrote is synced by the next commit of the session');
is(growth('syncs', q(UPDATE t SET id = id + 0;
	INSERT INTO t (expected, b) SELECT expected, b FROM t)), 0,
	'copies of a value need no sync');
is(growth('syncs', 'BEGIN; CALL add(8, 50000); SAVEPOINT s; CALL add(9, 50000);
	ROLLBACK TO s; COMMIT'), 1,
	'a transaction with a savepoint that is rolled back syncs once');
survives('commits', 13);

# ---- two-phase commit ----

is(growth('syncs', q(BEGIN; CALL add(10, 70000); CALL add(11, 3000000);
	PREPARE TRANSACTION 'p1')), 1,
	'PREPARE TRANSACTION with two values syncs once');
is(growth('syncs', q(BEGIN; CALL add(12, 70000); PREPARE TRANSACTION 'p2')), 1, 'PREPARE TRANSACTION with one value syncs once');
is(growth('syncs', q(BEGIN; CALL add(13, 900); CALL add(14, 9000); PREPARE TRANSACTION 'p3')), 1,
	'PREPARE TRANSACTION with an inline value and one in extents syncs once');
is(growth('syncs', q(COMMIT PREPARED 'p1')), 0, 'COMMIT PREPARED needs no sync of its own');
survives('two-phase commit', 15);
$node->restart;
is($node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts ORDER BY 1'), "p2\np3",
	'prepared transactions after a crash and a restart');
$node->safe_psql('postgres', q(COMMIT PREPARED 'p2'));
survives('COMMIT PREPARED after a restart', 16);
$node->safe_psql('postgres', q(ROLLBACK PREPARED 'p3'));
# Extents of prepared transactions are not given to others.
$node->safe_psql('postgres', q(BEGIN; CALL add(15, 300000); PREPARE TRANSACTION 'p4'));
$node->restart;
$node->safe_psql('postgres', "CALL add($_, 300000)") for (16 .. 20);
$node->safe_psql('postgres', q(COMMIT PREPARED 'p4'));
survives('stores beside a prepared transaction', 22);
no_page_is_shared($node, 'no page belongs to two values', 't');

# ---- values that outlive the transaction that stored them ----

my $rows = 22;
is(growth('syncs', q(
DO $$
DECLARE v blobstate; c bytea := content(30, 400000);
BEGIN
	BEGIN
		INSERT INTO t (expected, b) VALUES (sha256(c), c) RETURNING b INTO v;
		RAISE 'away with it';
	EXCEPTION WHEN raise_exception THEN NULL;
	END;
	INSERT INTO t (expected, b) VALUES (sha256(c), v);
END $$)), 1, 'a value from a rolled back subtransaction is synced by the commit');
survives('a value from a rolled back subtransaction', ++$rows);

is(growth('syncs', q(
DO $$
DECLARE v blobstate; c bytea := content(31, 400000);
BEGIN
	INSERT INTO t (expected, b) VALUES (sha256(c), c) RETURNING b INTO v;
	ROLLBACK;
	INSERT INTO t (expected, b) VALUES (sha256(c), v);
	COMMIT;
END $$)), 1, 'a value over a ROLLBACK of a procedure is synced by the next commit');
survives('a value over a ROLLBACK of a procedure', ++$rows);

$node->safe_psql('postgres', q(
DO $$
DECLARE v blobstate; c bytea := content(32, 400000);
BEGIN
	INSERT INTO t (expected, b) VALUES (sha256(c), c) RETURNING b INTO v;
	COMMIT;
	DELETE FROM t WHERE expected = sha256(c);
	COMMIT;
	INSERT INTO t (expected, b) VALUES (sha256(c), v);
	COMMIT;
END $$));
survives('a value over a COMMIT of a procedure', ++$rows);

# The cached plan of a rolled back transaction stores a value of its own.
my $literal = literal(content('plan', 20_000));
$node->safe_psql('postgres', "BEGIN; PREPARE p AS INSERT INTO t (expected, b)
	VALUES (sha256(${literal}::bytea), $literal); EXECUTE p; ROLLBACK; EXECUTE p; EXECUTE p");
$rows += 2;
survives('a prepared statement over a ROLLBACK', $rows);
is($node->safe_psql('postgres', 'SELECT count(DISTINCT id), count(*) = count(DISTINCT first_page)
	FROM t, blob_extents(b) WHERE length(b) = 20000'), '2|t',
		'each execution stored a value of its own');

$node->safe_psql('postgres', q(
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT expected, b FROM t WHERE length(b) > 10000;
COMMIT;
CREATE TEMP TABLE copy (expected bytea, b blobstate);
FETCH 1 FROM c;
CLOSE c;));
survives('a held cursor', $rows);

# A value in a temporary table is the session's alone, the store is not.
$node->safe_psql('postgres', q(
CREATE TEMP TABLE temporary (expected bytea, b blobstate);
INSERT INTO temporary SELECT sha256(c), c FROM content(40, 60000) AS c;
INSERT INTO t (expected, b) SELECT * FROM temporary));
survives('a value from a temporary table', ++$rows);

# An unlogged table is emptied by the crash, its values do not come back.
$node->safe_psql('postgres', q(CREATE UNLOGGED TABLE u (b blobstate);
INSERT INTO u SELECT content(41, 60000)));
survives('an unlogged table', $rows);
is($node->safe_psql('postgres', 'SELECT count(*) FROM u'), '0', 'an unlogged table is empty after a crash');

# Deferred triggers store at commit, before the sync.
is(growth('syncs', q(
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t (expected, b) SELECT sha256(c), c FROM content(50 + NEW.i, 90000) AS c;
	RETURN NULL;
END $$;
CREATE TABLE trigger_source (i integer);
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON trigger_source DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION late();
INSERT INTO trigger_source VALUES (1), (2))), 1, 'values of a deferred trigger are synced');
$rows += 2;
survives('values of a deferred trigger', $rows);

# ---- synchronous_commit ----

foreach my $level (qw(remote_apply on remote_write local off))
{
	is(growth('syncs', "SET synchronous_commit = $level; CALL add(60, 80000)"), 1,
		"synchronous_commit = $level: content is synced before the commit");
}
$node->safe_psql('postgres', 'CHECKPOINT');
$rows += 5;
survives('synchronous_commit', $rows);

# ---- one fdatasync for several ----

# A backend that is stopped in the middle of fdatasync would be ideal, but cannot be had.  Instead,
# many sessions commit at once until two have met.
my $script = "$PostgreSQL::Test::Utils::tmp_check/shared.sql";
append_to_file($script, q(INSERT INTO t (expected, b)
	SELECT sha256(c), c FROM convert_to(repeat(md5(random()::text), 100), 'UTF8') AS c;
));
my $shared = 0;
for (1 .. 20)
{
	my $before = stat_of($node, 'shared_syncs');
	my $syncs = stat_of($node, 'syncs');
	$node->command_ok([ 'pgbench', '-n', '-c', '8', '-j', '2', '-t', '40', '-f', $script ],
		'8 clients commit at once');
	$shared = stat_of($node, 'shared_syncs') - $before;
	$syncs = stat_of($node, 'syncs') - $syncs;
	$rows += 320;
	is($shared + $syncs, 320, "each commit synced ($syncs) or was served by another's ($shared)");
	last if $shared > 0;
}
cmp_ok($shared, '>', 0, 'some commits shared an fdatasync');
survives('commits of 8 clients', $rows);

# ---- fsync = off ----

$node->append_conf('postgresql.conf', "fsync = off\n");
$node->restart;
is(growth('syncs', 'CALL add(70, 500000); CALL add(71, 5000000)'), 0, 'fsync = off: no fdatasync');
is(growth('syncs', q(BEGIN; CALL add(72, 500000); PREPARE TRANSACTION 'p')), 0, 'fsync = off: no fdatasync at PREPARE');
$node->safe_psql('postgres', q(COMMIT PREPARED 'p'));
is(stat_of($node, 'syncs') + stat_of($node, 'shared_syncs'), 0, 'no fdatasync since the start');
$rows += 3;
survives('fsync = off', $rows);

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'no PANIC in the log');
done_testing();
