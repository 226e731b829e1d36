# Streaming replication: content, growth, collection and removed segments arrive, and life goes on.
#
# A primary, a standby that applies before a commit returns (remote_apply), one behind it
# (cascading), and an asynchronous one.  While sessions store, append and delete, and the collector
# frees, standbys are killed, in replay too, with restartpoints in between; readers on them never
# see bytes of another value.  Standby queries that still see a freed value are cancelled as VACUUM
# would cancel them, or hold it back by hot_standby_feedback.  Then a promotion, writes on the new
# primary, pg_rewind of the old one.
#
# Seen to fail: with CLAIM or FREE replayed as nothing (the maps differ), and with reads that do not
# ask the map (a held cursor gets foreign bytes).
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 61);

use constant SEGMENT => 262_144;	# pages
my $library = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";

my $primary = blob_cluster('primary', streaming => 1,
	conf => "wal_keep_size = 2GB\nwal_log_hints = on\nautovacuum = off\nlog_replication_commands = off\n");
make_traffic($primary, 8_000);
$primary->safe_psql('postgres', qq(
CREATE INDEX busy_b ON busy (b);
CREATE INDEX busy_hash ON busy USING hash (b);
CREATE FUNCTION allocate(pages bigint) RETURNS bigint
	AS '$library', 'unit_store_allocate' LANGUAGE C STRICT));
make_values($primary, 'v');
$primary->safe_psql('postgres', 'CREATE INDEX v_b ON v (b); CREATE INDEX v_hash ON v USING hash (b);
	CREATE TABLE scratch (id int, b blobstate)');
$primary->backup('base');

sub standby
{
	my ($upstream, $name, $backup, $conf) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($upstream, $backup, has_streaming => 1);
	$standby->append_conf('postgresql.conf', $conf // '');
	$standby->start;
	return $standby;
}

my $fast = "max_standby_streaming_delay = 100ms\nwal_receiver_status_interval = 1s\n";
my $sync = standby($primary, 'sync', 'base', $fast);
my $async = standby($primary, 'async', 'base', $fast);
$sync->backup('second');
my $cascade = standby($sync, 'cascade', 'second', $fast);
my @standbys = ($sync, $async, $cascade);

sub catch_up
{
	my $lsn = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	$primary->safe_psql('postgres', q(SELECT pg_logical_emit_message(false, 'x', 'x')));
	$primary->safe_psql('postgres', 'SELECT txid_current()');
	foreach my $node (@_)
	{
		$node->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'")
		  or die $node->name . ' does not catch up';
	}
	return;
}

my $map = 'SELECT * FROM blobext_map ORDER BY 1';

sub is_like_primary
{
	my ($name, $node, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return subtest "$name: " . $node->name . ' is like the primary' => sub {
		is($node->safe_psql('postgres', $map), $primary->safe_psql('postgres', $map), 'the extent map is the primary\'s');
		values_are_intact($node, $_, "the values of table \"$_\" are whole") foreach @tables;
		check_is_clean($node, 'the check finds nothing');
	};
}

# ---- reads, and comparisons by index ----

$primary->append_conf('postgresql.conf',
	"synchronous_standby_names = 'sync'\nsynchronous_commit = remote_apply\n");
$primary->reload;
my $seen = 0;
foreach my $i (1 .. 20)
{
	my $bytes = content("apply.$i", 1_000 + $i * 7_919);
	$primary->safe_psql('postgres', "INSERT INTO scratch VALUES ($i, " . literal($bytes) . ')');
	$seen += $sync->safe_psql('postgres',
		"SELECT count(*) FROM scratch WHERE id = $i AND b = " . literal($bytes));
}
is($seen, 20, 'remote_apply: what is committed can be read on the standby at once');
catch_up(@standbys);
is_like_primary('at rest', $_, 'v') foreach @standbys;
foreach my $node (@standbys)
{
	my $name = $node->name;
	my $no_scan = 'SET enable_seqscan = off; SET enable_sort = off;';
	is($node->safe_psql('postgres', "$no_scan EXPLAIN (COSTS off) SELECT id FROM v ORDER BY b") =~
		/Index Scan using v_b/, 1, "$name: there is a plan by index");
	is($node->safe_psql('postgres', "$no_scan SELECT id FROM v ORDER BY b"),
		$primary->safe_psql('postgres',
			'SET enable_indexscan = off; SELECT id FROM v ORDER BY b::bytea'),
		"$name: order by index");
	is($node->safe_psql('postgres', "$no_scan SET enable_hashjoin = off; SET enable_mergejoin = off;
		SELECT count(*) FROM v AS a JOIN v AS b ON a.b = b.b::bytea::blobstate"),
		$primary->safe_psql('postgres', 'SELECT count(*) FROM v AS a JOIN v AS b
			ON a.b::bytea = b.b::bytea'), "$name: equality by index");
}

# ---- everything at once, standbys are killed ----

my $script = "$PostgreSQL::Test::Utils::tmp_check/traffic.sql";
append_to_file($script, "CALL traffic();\n");

# Every error that a reader may meet: cancelled, stale, killed.
my $allowed = join('|', '^$', 'canceling statement due to conflict', 'stale blobstate',
	'terminating connection', 'server closed the connection', 'starting up', 'recovery mode',
	'not yet accepting', 'connection to server .* failed');

sub read_all
{
	my ($node) = @_;
	my ($result, $out, $err) = $node->psql('postgres', q(SELECT count(*) FROM busy
		WHERE encode(sha256(b::bytea), 'hex') <> digest
			OR encode(sha256(b), 'hex') <> digest));
	return ($result == 0 ? $out : 0, $err);
}

$primary->safe_psql('postgres', q(ALTER SYSTEM SET synchronous_commit = local));
$primary->reload;
my ($wrong, $reads, @odd) = (0, 0);
foreach my $round (1 .. 4)
{
	my $output = '';
	my $traffic = IPC::Run::start([ 'pgbench', '-n', '-c', 3, '-T', 5, '-f', $script, '-h',
		$primary->host, '-p', $primary->port, 'postgres' ], '>', \$output, '2>&1');
	foreach my $step (1 .. 4)
	{
		foreach my $node (@standbys)
		{
			my ($bad, $error) = read_all($node);
			$wrong += $bad;
			$reads++;
			push @odd, $error if $error !~ /$allowed/;
		}
		$primary->safe_psql('postgres', 'VACUUM busy');
		$primary->safe_psql('postgres', 'SELECT * FROM blobext_gc()');
		$primary->safe_psql('postgres', 'CHECKPOINT');
		# A restartpoint.  A conflict may cancel this connection, as it may any; that is no failure.
		$standbys[ rand @standbys ]->psql('postgres', 'CHECKPOINT') if $step % 2;
	}
	my $victim = $standbys[ $round % 3 ];
	kill_everything($victim);
	$traffic->finish;
	is($traffic->result(0), 0, "round $round: sessions stored, appended, deleted") or diag($output);
	kill_in_recovery($victim, 0.3) if $round % 2;
	unlink $victim->data_dir . '/postmaster.pid';
	$victim->start;
	catch_up(@standbys);
	is_like_primary("round $round", $victim, 'v', 'busy');
}
is($wrong, 0, "readers on standbys never saw other bytes ($reads scans)");
is("@odd", '', 'readers on standbys had no unexpected errors');
cmp_ok(stat_of($primary, 'gc_freed_blobs'), '>', 0, 'the collector freed values during the rounds');
is_like_primary('after all rounds', $_, 'v', 'busy') foreach @standbys;

# ---- a freed value that a standby query still sees ----

sub hold_snapshot
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$session->query('SELECT count(*) FROM scratch');
	return $session;
}

sub collect
{
	$primary->safe_psql('postgres', 'VACUUM scratch');
	my $freed = $primary->safe_psql('postgres', 'SELECT freed_blobs FROM blobext_gc()');
	$primary->safe_psql('postgres', 'CHECKPOINT');
	return $freed;
}

my $reader = hold_snapshot($sync);
my $offset = -s $sync->logfile;
$primary->safe_psql('postgres', 'DELETE FROM scratch WHERE id <= 5');
cmp_ok(collect(), '>=', 5, 'without feedback: values that the standby still sees are freed');
catch_up($sync);
ok($sync->log_contains('canceling statement due to conflict|due to conflict with recovery', $offset),
	'without feedback: the query on the standby is cancelled');
$reader->quit;

$sync->append_conf('postgresql.conf', "hot_standby_feedback = on\n");
$sync->reload;
$primary->poll_query_until('postgres',
	q(SELECT backend_xmin IS NOT NULL FROM pg_stat_replication WHERE application_name = 'sync'));
$reader = hold_snapshot($sync);
sleep 2;						# one round of feedback
my $deleter = $primary->safe_psql('postgres',
	'BEGIN; DELETE FROM scratch WHERE id BETWEEN 6 AND 10; SELECT txid_current(); COMMIT');
is(collect(), '0', 'with feedback: nothing is freed');
catch_up($sync);
is($reader->query(q(SELECT count(octet_length(b::bytea)) FROM scratch)), '15',
	'with feedback: the query on the standby still reads the values');
$reader->query('COMMIT');
$reader->quit;
$primary->poll_query_until('postgres', "SELECT backend_xmin::text::bigint > $deleter FROM pg_stat_replication
	WHERE application_name = 'sync'");
cmp_ok(collect(), '>=', 5, 'with feedback: freed once the query has ended');

$sync->append_conf('postgresql.conf', "hot_standby_feedback = off\n");
$sync->reload;
$primary->poll_query_until('postgres',
	q(SELECT backend_xmin IS NULL FROM pg_stat_replication WHERE application_name = 'sync'));
# A held cursor has no snapshot that the primary respects: stale at worst.
my $held = $async->background_psql('postgres', on_error_stop => 0);
$held->query('\set VERBOSITY verbose');
$held->query('BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT b FROM scratch ORDER BY id; COMMIT');
$primary->safe_psql('postgres', 'DELETE FROM scratch');
cmp_ok(collect(), '>=', 10, 'values of a held cursor on a standby are freed');
$primary->safe_psql('postgres', q(INSERT INTO scratch SELECT i,
	decode(repeat('ee', 50000), 'hex') FROM generate_series(1, 60) AS i));
catch_up($async);
my ($rows, $failed) = $held->query('FETCH ALL FROM c');
like($held->{stderr}, qr/XB001: stale blobstate value/, 'the cursor gets an error, not other bytes');
unlike($rows // '', qr/eeeeeeee/, 'the cursor shows no byte of the values stored later');
$held->quit;

# ---- promotion, writes on the new primary, pg_rewind ----

catch_up(@standbys);
my $old = $primary;
$primary->safe_psql('postgres', q(ALTER SYSTEM SET synchronous_standby_names = ''));
$primary->reload;
$async->stop;
$sync->promote;
# The old primary does not know, and goes on.
make_values($old, 'lost', 3_000, 300_000, 5_000_000);
$old->safe_psql('postgres', q(UPDATE v SET b = blob_append(b, 'lost')));
$old->safe_psql('postgres', 'DELETE FROM busy; VACUUM busy');
$old->safe_psql('postgres', 'SELECT * FROM blobext_gc()');
$old->safe_psql('postgres', 'CHECKPOINT');
make_values($old, 'lost', (200_000) x 20);

$primary = $sync;
make_values($primary, 'won', 3_000, 300_000, 4_000_000);
$primary->safe_psql('postgres', q(
	UPDATE v SET b = blob_append(b, decode(repeat('ab', 9000), 'hex'));
	UPDATE v SET digest = encode(sha256(b::bytea), 'hex');
	DELETE FROM busy WHERE id % 2 = 0; VACUUM busy));
$primary->safe_psql('postgres', 'VACUUM');
cmp_ok($primary->safe_psql('postgres', 'SELECT freed_blobs FROM blobext_gc()'), '>', 0,
	'promoted: the new primary frees deleted values');
$primary->safe_psql('postgres', 'CHECKPOINT');
make_values($primary, 'won', (200_000) x 20);
values_are_intact($primary, $_, "promoted: the values of table $_ are whole") foreach ('v', 'won', 'busy');
check_is_clean($primary, 'promoted: the check finds nothing');
no_page_is_shared($primary, 'promoted: no page belongs to two values', 'v', 'won', 'busy');
catch_up($cascade);
is_like_primary('promoted', $cascade, 'v', 'won', 'busy');

$old->stop;
my $stored = -s segment_file($old);
my ($out, $err) = run_command([ 'pg_rewind', '--progress', '--target-pgdata', $old->data_dir,
	'--source-server', $primary->connstr('postgres') ]);
like($err, qr/Done!/, 'pg_rewind ends with success');
my ($copied, $total) = $err =~ /need to copy (\d+) MB \(total source directory size is (\d+) MB\)/;
note("pg_rewind copied $copied of $total MB; the store has " . int($stored / 1_048_576) . ' MB');
cmp_ok($copied, '>=', int((-s segment_file($primary)) / 1_048_576), 'pg_rewind copies the store whole');
$old->append_conf('postgresql.conf', 'port = ' . $old->port . "\n");
$old->enable_streaming($primary);
$old->set_standby_mode;
$old->start;
catch_up($old);
is_like_primary('rewound', $old, 'v', 'won', 'busy');
is($old->safe_psql('postgres', q(SELECT to_regclass('lost') IS NULL)), 't', 'rewound: what was lost');
add_values($primary, 'won', 3_000, 300_000);
catch_up($old, $cascade);
is_like_primary('rewound, streaming', $old, 'v', 'won', 'busy');

# ---- a segment is removed everywhere ----

$primary->safe_psql('postgres', 'SELECT allocate(' . 2 * SEGMENT . ')');
add_values($primary, 'won', 3_000);
catch_up($old, $cascade);
ok(-s segment_file($_, 1), $_->name . ' has the segment') foreach ($primary, $cascade, $old);
$primary->safe_psql('postgres', 'SELECT * FROM blobext_gc()');
catch_up($old, $cascade);
ok(!-e segment_file($_, 1), $_->name . ' has removed it') foreach ($primary, $cascade, $old);
is_like_primary('segment removed', $_, 'v', 'won', 'busy') foreach ($cascade, $old);

# The rewound one takes over in its turn.
$cascade->stop;
$primary->stop;
$old->promote;
$primary = $old;
add_values($old, 'won', (100_000) x 5);
$old->safe_psql('postgres', q(UPDATE v SET b = blob_append(b, decode(repeat('cd', 9000), 'hex'));
	UPDATE v SET digest = encode(sha256(b::bytea), 'hex')));
kill_everything($old);
$old->start;
values_are_intact($old, $_, "promoted again, crashed: $_") foreach ('v', 'won', 'busy');
check_is_clean($old, 'promoted again, crashed: the check finds nothing');
no_page_is_shared($old, 'promoted again, crashed: no page belongs to two', 'v', 'won', 'busy');
$old->stop;
foreach my $node ($sync, $async, $cascade, $old)
{
	unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, $node->name . ': its log has no PANIC and no crash');
	$node->clean_node;
}

done_testing();
