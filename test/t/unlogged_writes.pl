# Small content that is not logged stays dirty in the buffer until its commit, which writes it.
#
# With blobext.wal_content = off nothing but the file has the content, and before the commit nothing
# but memory.  Each part ends with a kill of all processes, so what a commit has not written is lost.
#
#	- 1,000 values of 15 KB in one transaction are a few requests and one sync,
#	- values that a variable carries out of a rolled back subtransaction, or over a procedure's ROLLBACK,
#	- a session that aborts, and stays idle with dirty pages, while others store, and goes on then,
#	- prepared transactions,
#	- sessions that store at once, each some values and some that it rolls back,
#	- a base backup while pages are dirty: the copy must know what it lacks,
#	- content that is not logged, behind content in the same slab that is logged and dirty,
#	- a session that has rolled back, and commits again when the store is gone: a standby goes on.
#
# Seen to fail: with MAX_UNLOGGED_BYTES of 0, and with a vector for each slab in add_memory(), the
# number of requests; without blob_dirty_write_segment() in blob_segment_sync(), all parts; with a list
# of written segments that an abort clears, the values that are carried; without PRE_PREPARE in
# at_transaction_event(), the prepared transactions; with OMITTED before the write (logged
# where blob_pipeline_put() notes it), and without blob_omissions_log_noted(), the base backup; with
# slab->dirty_seq in the place of added_seq in blob_dirty_matches(), the slab that two transactions share; with
# noted runs that are logged without a look at the store, the standby.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use lib $FindBin::RealBin;
use BlobTest;

my $node = blob_cluster('main', streaming => 1,
	conf => "blobext.wal_content = off\nblobext.cache_size = 64MB\nautovacuum = off\n" .
	  "checkpoint_timeout = 1h\n");
my $schema = q(
CREATE TABLE t (id int PRIMARY KEY, b blobstate, o bytea);	-- o: the expected content of b
CREATE FUNCTION bytes(n int, seed int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR n)
	FROM generate_series(1, (n + 31) / 32) i $$;
CREATE VIEW damaged AS SELECT id FROM t
	WHERE length(b) <> length(o) OR sha256(b) <> sha256(o) OR b::bytea <> o;
CREATE TABLE content AS SELECT i, bytes(15000, i) AS x FROM generate_series(1, 1000) i;
);
$node->safe_psql('postgres', $schema);

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub is_whole
{
	my ($count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($result, $stdout, $stderr) =
	  $node->psql('postgres', 'SELECT count(*) FROM t; SELECT * FROM damaged');
	return is($stdout . $stderr, $count, $name);
}

sub is_whole_after_kill
{
	my ($count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	kill_everything($node);
	unlink $node->data_dir . '/postmaster.pid';
	$node->start;
	return is_whole($count, $name);
}

sub dirty_pages
{
	return stat_of($node, 'pending_deferred_pages');
}

is(stat_of($node, 'wal_logs_content'), 0, 'content is not logged');

# ---- many values, one transaction ----

# A value has extents of 1, 2 and 1 pages, in three slabs, two of which are neighbours in memory.  A
# request has 16 pieces of memory at most, so 32 pages of such values: 125 requests for 4,000 pages.
my %before = map { $_ => stat_of($node, $_) } qw(io_writes io_write_bytes syncs);
sql('BEGIN; INSERT INTO t SELECT i, x, x FROM content; COMMIT');
cmp_ok(stat_of($node, 'io_writes') - $before{io_writes}, '<=', 150,
	'1,000 values of 15 KB in a transaction are at most 150 requests');
is(stat_of($node, 'io_write_bytes') - $before{io_write_bytes}, 4000 * 4096, 'each page is written once');
is(stat_of($node, 'syncs') - $before{syncs}, 1, 'one sync for a transaction');
is(dirty_pages(), 0, 'nothing is dirty after the commit');
is_whole_after_kill(1000, 'a transaction of 1,000 values is durable');
sql('TRUNCATE t');

# A statement of its own for each value.
%before = map { $_ => stat_of($node, $_) } qw(io_writes syncs);
sql('BEGIN; ' . join('; ', map { "INSERT INTO t SELECT i, x, x FROM content WHERE i = $_" } 1 .. 100) . '; COMMIT');
cmp_ok(stat_of($node, 'io_writes') - $before{io_writes}, '<=', 20,
	'100 statements of a transaction are at most 20 requests');
is(stat_of($node, 'syncs') - $before{syncs}, 1, 'one sync for a transaction of many statements');
is_whole_after_kill(100, 'a transaction of many statements is durable');
sql('TRUNCATE t');

# ---- values that outlive their transaction ----

sql(q(
DO $$
DECLARE
	carried blobstate;
BEGIN
	BEGIN
		carried := bytes(20000, 1)::blobstate;
		INSERT INTO t VALUES (1, carried, bytes(20000, 1)) RETURNING b INTO carried;
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
	END;
	INSERT INTO t VALUES (1, carried, bytes(20000, 1));
END $$));
is(dirty_pages(), 0, 'a value out of a subtransaction is written at the commit');
is_whole_after_kill(1, 'a value out of a subtransaction is durable');
sql(q(
CREATE PROCEDURE carry(row_id int, n int) LANGUAGE plpgsql AS $$
DECLARE
	carried blobstate;
BEGIN
	INSERT INTO t VALUES (row_id, bytes(n, row_id)) RETURNING b INTO carried;
	ROLLBACK;
	PERFORM 1 / (SELECT (value > 0)::int FROM blobext_stat WHERE name = 'pending_deferred_pages');
	INSERT INTO t VALUES (row_id, carried, bytes(n, row_id));
	COMMIT;
END $$;
CALL carry(2, 20000);
));
is(dirty_pages(), 0, 'a value over a ROLLBACK is written at the next commit');
is_whole_after_kill(2, 'a value over a ROLLBACK is durable');

# ---- an idle session with dirty pages ----

my $idle = $node->background_psql('postgres');
$idle->query_safe('BEGIN; INSERT INTO t SELECT -i, x FROM content WHERE i <= 60; ROLLBACK');
cmp_ok(dirty_pages(), '>=', 240, 'pages of a transaction that was rolled back are dirty');
sql('INSERT INTO t SELECT i, x, x FROM content WHERE i BETWEEN 3 AND 40');
is_whole(40, 'values beside pages of a transaction that was rolled back');
sql('BEGIN; INSERT INTO t SELECT -i, x FROM content WHERE i <= 60; ROLLBACK');
$idle->query_safe('INSERT INTO t SELECT i, x, x FROM content WHERE i BETWEEN 41 AND 60');
is(dirty_pages(), 0, 'a commit writes what is dirty in its segment, whoever has stored it');
sql('BEGIN; INSERT INTO t SELECT -i, x FROM content WHERE i <= 60; ROLLBACK');
is_whole_after_kill(60, 'values that were stored beside an idle session are durable');
check_is_clean($node, 'pages of no transaction are no damage');
$idle->{run}->kill_kill;

# A session that ends with dirty pages of its own; they belong to no value then.
sql('BEGIN; INSERT INTO t SELECT -i, x FROM content WHERE i <= 60; ROLLBACK');
cmp_ok(dirty_pages(), '>=', 240, 'the end of a session leaves its pages dirty');
sql('INSERT INTO t SELECT i, x, x FROM content WHERE i BETWEEN 61 AND 70');
is_whole_after_kill(70, 'values that were stored after a session has ended are durable');

# ---- prepared transactions ----

sql(q(BEGIN; INSERT INTO t SELECT i, x, x FROM content WHERE i BETWEEN 71 AND 80;
	PREPARE TRANSACTION 'kept';
	BEGIN; INSERT INTO t SELECT i, x, x FROM content WHERE i BETWEEN 81 AND 90;
	PREPARE TRANSACTION 'given_up'));
is_whole_after_kill(70, 'prepared transactions are not committed');
sql(q(COMMIT PREPARED 'kept'; ROLLBACK PREPARED 'given_up'));
is_whole_after_kill(80, 'a prepared transaction is durable');
sql('TRUNCATE t');

# ---- sessions at once ----

# More than becomes dirty at once, so that the syncer writes, too.
my $script = "$PostgreSQL::Test::Utils::tmp_check/store.sql";
append_to_file($script, q(\set i random(1, 1000)
BEGIN;
INSERT INTO t SELECT :client_id * 1000000 + nextval('no'), x, x FROM content WHERE i = :i;
SAVEPOINT s;
INSERT INTO t SELECT -nextval('no'), x, x FROM content WHERE i BETWEEN :i AND :i + 8;
ROLLBACK TO s;
INSERT INTO t SELECT :client_id * 1000000 + nextval('no'), x, x FROM content WHERE i BETWEEN :i AND :i + 1;
COMMIT;
BEGIN;
INSERT INTO t SELECT -nextval('no'), x, x FROM content WHERE i BETWEEN :i AND :i + 8;
ROLLBACK;
));
sql('CREATE SEQUENCE no');
$node->command_ok([ 'pgbench', '-n', '-c', 8, '-j', 2, '-t', 40, '-f', $script,
		$node->connstr('postgres') ], 'sessions store at once');
my $count = sql('SELECT count(*) FROM t');
cmp_ok($count, '>=', 8 * 40 * 2, 'rows of all sessions');
is_whole_after_kill($count, 'values of sessions that stored at once are durable');
check_is_clean($node, 'the check finds nothing after all parts');
sql('TRUNCATE t');

# ---- a copy that was made while pages were dirty ----

# The syncer must not write them meanwhile.  It is idle, and holds no checkpoint up.
$node->poll_query_until('postgres', q(SELECT state = 'idle' AND xact_start IS NULL
	FROM pg_stat_activity WHERE backend_type = 'blobext syncer'));
my $syncer = sql(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'blobext syncer'));
kill('STOP', $syncer);
my $session = $node->background_psql('postgres', on_error_stop => 1);
$session->query_safe('BEGIN; INSERT INTO t SELECT i, x, x FROM content');
cmp_ok(dirty_pages(), '>=', 4000, 'all pages are dirty before the backup');
$node->backup('base');
cmp_ok(dirty_pages(), '>=', 4000, 'all pages are dirty after the backup');
$session->query_safe('COMMIT');
$session->quit;
kill('CONT', $syncer);
is_whole(1000, 'values whose pages were dirty during a backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q(SELECT count(*), sum(length(b)) FROM t)), '1000|15000000',
	'the copy has the rows');
# Each read is an error of its own, as psql goes on after an error.
my ($result, $stdout, $stderr) = $standby->psql('postgres', join("\n", '\set VERBOSITY verbose',
	map { "SELECT b::bytea = o FROM t WHERE id = $_;" } 1 .. 1000), on_error_stop => 0);
is($stdout, '', 'the copy returns no bytes of values that it lacks');
is(scalar(() = $stderr =~ /ERROR:  XB002:/g), 1000, 'the copy says so for each of them');
is(sql('SELECT count(*) FROM t WHERE b::bytea = o'), '1000', 'the primary has all of them');

# ---- a store that is gone ----

# The session has noted what it must log before it commits the next time.
$session = $node->background_psql('postgres');
$session->query_safe('BEGIN');
$session->query_safe("INSERT INTO t VALUES (0, bytes(15000, 0), bytes(15000, 0))");
$session->query_safe('ROLLBACK');
my $directory = store_dir($node);
sql(q(ALTER SYSTEM SET blobext.autogc = on; ALTER SYSTEM SET blobext.autogc_naptime = '1s';
	SELECT pg_reload_conf()));
sql('DROP EXTENSION blobext CASCADE');
for (my $i = 0; -d $directory && $i < 600; $i++)
{
	sleep 0.1;
}
ok(!-d $directory, 'the dropped store is gone');
$session->query_safe('CREATE TABLE after_drop (id int)');
$session->quit;
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT count(*) FROM after_drop'), '0',
	'the standby goes on after a commit behind the drop');
$_->stop foreach ($standby, $node);

# ---- a slab that is dirty already ----

# Small content is logged although wal_level is minimal, and stays dirty while the syncer is stopped.  A
# transaction that syncs anyway logs nothing.  It appends to that content.
$node = blob_cluster('minimal', conf => "wal_level = minimal\nmax_wal_senders = 0\nautovacuum = off\n" .
	  "blobext.cache_size = 64MB\ncheckpoint_timeout = 1h\n");
sql($schema);
sql('CREATE TABLE other (b blobstate)');
stop_syncer($node, 'deferred_pages', sub { sql('INSERT INTO other VALUES (bytes(5000, 1))') });
sql(q(INSERT INTO t VALUES (1, blob_append('', bytes(150000, 1)), bytes(150000, 1))));
cmp_ok(dirty_pages(), '>=', 37, 'a value is dirty');
my $logged = stat_of($node, 'wal_content_bytes');
sql(q(BEGIN; INSERT INTO t VALUES (2, bytes(300000, 2), bytes(300000, 2));
	UPDATE t SET b = blob_append(b, bytes(5000, 3)), o = o || bytes(5000, 3) WHERE id = 1; COMMIT));
is(stat_of($node, 'wal_content_bytes'), $logged, 'what is appended is not logged');
is_whole_after_kill(2, 'what was appended is durable');
$node->stop;

done_testing();
