# WAL: which content is logged, how records read, standbys, promotion.
#
# pg_walinspect shows the resource manager's records with their names and a description.  Content
# is logged exactly when blobext.wal_content and wal_level say so, and then all of it.  A standby
# reads the same values, its blobext_check() finds nothing, it refuses to store; it survives being
# killed in the middle of replay, again and again; promoted, it stores new values on free pages
# and with new generations.  A large value does not leave all of its WAL to the flush of the commit.
#
# That it can fail: with blobext.wal_content = off the standby's values are missing (wal_modes.pl); a
# library that begins with generation 1 again after a start fails the promotion; one that leaves
# early flushes to the WAL writer alone leaves all 15 MB to the commit; one that writes early by the
# settings of the WAL writer syncs 1 MB before the commit; one that asks the WAL writer for each value
# without the digest thread writes nothing before the commit; one for which each commit is near has
# written all but the last piece of 22 MB, and one that ignores standbys all but that of 1 MB.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 9);

# The arguments and the name of a function of pg_walinspect that reads from there to the end.
sub to_the_end
{
	my ($node, $function, $from) = @_;
	my $version = $node->safe_psql('postgres', 'SHOW server_version_num');
	return "${function}_till_end_of_wal('$from')" if $version < 160_000;
	return "$function('$from', 'FFFFFFFF/FFFFFFFF')";
}

sub records
{
	my ($node, $from) = @_;
	my $text = $node->safe_psql('postgres', "SELECT record_type, description,
		fpi_length, record_length
		FROM " . to_the_end($node, 'pg_get_wal_records_info', $from) . "
		WHERE resource_manager = 'blobext' ORDER BY start_lsn");
	return map { [ split /\|/ ] } split /\n/, $text;
}

# Bytes of content in the CONTENT records.
sub content_bytes
{
	my $sum = 0;
	foreach my $record (@_)
	{
		next unless $record->[0] eq 'CONTENT';
		my ($bytes) = $record->[1] =~ /bytes (\d+)$/;
		$sum += $bytes;
	}
	return $sum;
}

# ---- content that is logged ----

foreach my $mode ([ 'auto', 'minimal', 0 ], [ 'auto', 'replica', 1 ], [ 'on', 'minimal', 1 ],
	[ 'on', 'replica', 1 ], [ 'off', 'minimal', 0 ], [ 'off', 'replica', 0 ])
{
	my ($setting, $level, $logs) = @$mode;
	my $name = "wal_content $setting, wal_level $level";
	my $node = blob_cluster("logs_${setting}_$level",
		conf => "blobext.wal_content = $setting\nwal_level = $level\nmax_wal_senders = 0\n" .
			"blobext.background_sync = off\n" .
			# Its pages of catalogs would be counted below.
			"autovacuum = off\n");
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect');
	$node->safe_psql('postgres', 'CREATE TABLE t (b blobstate)');
	my $from = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	my @sizes = (1_901, 4_096, 300_001, 3_000_000);
	my $total = 0;
	make_values($node, 'v', @sizes);
	$total += $_ foreach @sizes;
	$node->safe_psql('postgres',
		'BEGIN; INSERT INTO t SELECT b::bytea FROM v WHERE id = 1; ROLLBACK');
	$node->safe_psql('postgres', 'CREATE TABLE flushes_the_wal ()');
	my @records = records($node, $from);
	is(content_bytes(@records), $logs ? $total + 1_901 : 0, "$name: bytes of content in the WAL");
	is(stat_of($node, 'wal_logs_content'), $logs, "$name: blobext_stat says whether the WAL has content");
	is(stat_of($node, 'wal_content_bytes'), $logs ? $total + 1_901 : 0, "$name: the counter wal_content_bytes has what the WAL has");
	if ($setting eq 'off' && $level eq 'replica')
	{
		like(slurp_file($node->logfile),
			qr/WARNING:  blobext does not write content to the WAL, although wal_level is "replica"/,
			"$name: the log says what is not protected");
	}
	if ($setting eq 'auto' && $level eq 'replica')
	{
		my $store = qr/store \d+\.[0-9a-f]{16}/;
		my %descriptions = (
			META => qr/^$store; generations below \d+$/,
			ALLOC => qr/^$store; extents \d+, pages \d+, first page \d+, generation \d+$/,
			CONTENT => qr/^$store; first page \d+, bytes \d+$/,
			SEGMENT => qr/^$store; reserved pages 0 to \d+$/);
		foreach my $type (sort keys %descriptions)
		{
			my @of_type = grep { $_->[0] eq $type } @records;
			cmp_ok(scalar(@of_type), '>', 0, "there are $type records");
			is(scalar(grep { $_->[1] !~ $descriptions{$type} } @of_type), 0,
				"each record of type $type has its description");
		}
		is(scalar(grep { $_->[0] eq 'ALLOC' } @records), 5, 'one ALLOC record for each value');
		my ($max) = sort { $b <=> $a } map { $_->[3] } @records;
		cmp_ok($max, '<=', 1024 * 1024 + 1024, "the longest record has $max bytes");
		my ($stdout, $stderr) = run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal',
			'-s', $from ]);
		my $id = $node->safe_psql('postgres',
			q(SELECT rm_id FROM pg_get_wal_resource_managers() WHERE rm_name = 'blobext'));
		like($stdout, qr/^rmgr: custom$id/m, 'pg_waldump can read over the records');
		is($node->safe_psql('postgres', "SELECT count(*)
			FROM " . to_the_end($node, 'pg_get_wal_stats', $from) . "
			WHERE \"resource_manager/record_type\" = 'blobext'"), '1', 'pg_get_wal_stats() knows the resource manager');
	}
	if ($setting eq 'off' || $setting eq 'auto' && $level eq 'minimal')
	{
		my $bytes = $node->safe_psql('postgres', "SELECT pg_current_wal_insert_lsn() - '$from'");
		cmp_ok($bytes, '<', 200_000, "$name: $bytes bytes of WAL for $total bytes of content");
	}
	if ($setting eq 'off' && $level eq 'replica')
	{
		# Seen to fail (no record) without blob_omissions_are_many().
		my $session = $node->background_psql('postgres');
		my $omitted = sub { return scalar(grep { $_->[0] eq 'OMITTED' } records($node, $_[0])) };
		my $start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
		$session->query_safe(q(BEGIN; INSERT INTO t SELECT convert_to(repeat('o', 2500), 'UTF8') FROM generate_series(1, 9000)));
		$node->safe_psql('postgres', 'CREATE TABLE flushes_it_again ()');
		is($omitted->($start), 0, "$name: OMITTED waits for the commit");
		$session->query_safe(q(INSERT INTO t SELECT convert_to(repeat('o', 2500), 'UTF8') FROM generate_series(1, 1001)));
		$node->safe_psql('postgres', 'CREATE TABLE flushes_it_once_more ()');
		cmp_ok($omitted->($start), '>', 0, "$name: of ten thousand values it does not");
		$session->query_safe('ROLLBACK');
		$session->quit;

		# Seen to fail where OMITTED of a transaction without an XID wait for its commit
		# (blob_durability_make_crash_safe()).
		$node->safe_psql('postgres', q(CREATE TABLE u (b blobstate); CREATE INDEX u_b ON u (b);
			CREATE PROCEDURE carry() LANGUAGE plpgsql AS $$
			DECLARE v blobstate;
			BEGIN
				INSERT INTO t SELECT convert_to(repeat('c', 300000), 'UTF8') RETURNING b INTO v;
				ROLLBACK;
				INSERT INTO u VALUES (v);
			END $$));
		$start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
		$node->safe_psql('postgres', 'CALL carry(); CREATE TABLE flushes_it_at_last ()');
		is($node->safe_psql('postgres', q(SELECT min(start_lsn) FILTER (WHERE record_type = 'OMITTED') <
			min(start_lsn) FILTER (WHERE resource_manager = 'Btree' AND
				block_ref ~ ('/' || pg_relation_filenode('u_b') || '( |;|$)')) FROM ) .
			to_the_end($node, 'pg_get_wal_records_info', $start)), 't',
			"$name: OMITTED of a value that a variable carries over ROLLBACK precedes its key");
	}

	# Content that is in the WAL comes back by replay.
	if ($logs)
	{
		$node->safe_psql('postgres', 'CHECKPOINT');
		add_values($node, 'v', 100_000, 2_000_000);
		kill_everything($node);
		my $file = segment_file($node);
		open(my $segment, '+<:raw', $file) or die $!;
		my $zeros = "\0" x 4096;
		syswrite($segment, $zeros) foreach (1 .. 100);	# somewhere in the old ones
		close $segment;
		unlink $file;			# all of it; only content in the WAL since the checkpoint comes back
		$node->append_conf('postgresql.conf', 'ignore_invalid_pages = on');
		$node->start;
		is($node->safe_psql('postgres', q(SELECT count(*) FROM v WHERE id > 4
			AND encode(sha256(b::bytea), 'hex') = digest)), '2',
				"$name: replay makes a lost file anew");
	}
	$node->stop;
	$node->clean_node;
}

# Stop the WAL writer while it waits: it must not stand still with a lock.  No process of an earlier session
# is left, which would write WAL at its end.  Returns its pid.
sub stop_walwriter
{
	my ($node) = @_;
	my $pid = $node->safe_psql('postgres',
		q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'));
	for (1 .. 600)
	{
		$node->poll_query_until('postgres',
			q(SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'))
		  or die 'another session does not end';
		kill('STOP', $pid);
		# Its state tells where it stands.
		return $pid if $node->safe_psql('postgres', "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid") eq 'WalWriterMain';
		kill('CONT', $pid);
	}
	die 'the WAL writer is never idle';
}

# ---- content is flushed early ----

# A backend flushes what it has inserted when the WAL writer does not and more than 8 MB are left.
# All of the WAL lies in one file, since the server syncs a file when it is full.
{
	my $node = blob_cluster('early',
		conf => "wal_level = replica\nmax_wal_senders = 1\nautovacuum = off\nwal_buffers = 16MB\n");
	$node->safe_psql('postgres', 'CREATE TABLE t (b blobstate)');
	$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
	my $walwriter = stop_walwriter($node);
	my ($inserted, $left) = split /\|/, $node->safe_psql('postgres', q(BEGIN;
		CREATE TEMPORARY TABLE start AS SELECT pg_current_wal_insert_lsn() AS lsn;
		INSERT INTO t SELECT convert_to(repeat('x', 15 * 1024 * 1024), 'UTF8');
		SELECT pg_current_wal_insert_lsn() - lsn,
			pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn() FROM start;
		COMMIT));
	kill('CONT', $walwriter);
	cmp_ok($inserted, '>', 15 * 1024 * 1024, "$inserted bytes of WAL");
	cmp_ok($left, '<', 9 * 1024 * 1024, "$left of them are left to the commit");

	# Many values, each of which leaves its flush to the commit.
	$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
	stop_walwriter($node);
	$left = $node->safe_psql('postgres', q(BEGIN;
		INSERT INTO t SELECT convert_to(repeat('m', 100000), 'UTF8') FROM generate_series(1, 150);
		SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn();
		COMMIT));
	kill('CONT', $walwriter);
	cmp_ok($left, '<', 10 * 1024 * 1024, "$left of 15,000,000 bytes are left to the commit of many values");

	# Where a write is a sync, the backend writes nothing early, and values are the same.
	$node->safe_psql('postgres', 'ALTER SYSTEM SET wal_sync_method = open_datasync');
	$node->reload;
	stop_walwriter($node);
	my ($early, $same) = split /\|/, $node->safe_psql('postgres', q(SET blobext.digest_thread = on;
		SELECT pg_switch_wal() \gset
		BEGIN;
		CREATE TEMPORARY TABLE start3 AS SELECT pg_current_wal_lsn() AS lsn;
		INSERT INTO t SELECT convert_to(repeat('w', 1024 * 1024), 'UTF8');
		SELECT pg_current_wal_lsn() - lsn,
			(SELECT sha256(b) = sha256(convert_to(repeat('w', 1024 * 1024), 'UTF8'))
				FROM t WHERE length(b) = 1024 * 1024 ORDER BY ctid DESC LIMIT 1) FROM start3;
		COMMIT));
	kill('CONT', $walwriter);
	cmp_ok($early, '<', 1000 * 1024, "open_datasync: $early bytes are written before the commit");
	is($same, 't', 'open_datasync: the content is right');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET wal_sync_method');
	$node->reload;

	# The backend writes the WAL, and syncs none of it but at its first call.  It leaves the last piece to the
	# commit, unless the digest thread hashes.
	foreach my $thread ('on', 'off')
	{
		stop_walwriter($node);
		my ($written, $flushed) = split /\|/, $node->safe_psql('postgres', qq(SET blobext.digest_thread = $thread;
			INSERT INTO t SELECT convert_to(repeat('y', 1024 * 1024), 'UTF8');
			SELECT pg_switch_wal() \\gset
			BEGIN;
			CREATE TEMPORARY TABLE start2 AS SELECT pg_current_wal_flush_lsn() AS lsn;
			INSERT INTO t SELECT convert_to(repeat('z', 1024 * 1024), 'UTF8');
			SELECT pg_current_wal_lsn() - lsn, pg_current_wal_flush_lsn() - lsn FROM start2;
			COMMIT));
		kill('CONT', $walwriter);
		cmp_ok($written, $thread eq 'on' ? '>' : '<', 1000 * 1024,
			"digest thread $thread: $written bytes are written before the commit");
		cmp_ok($written, '>', 500 * 1024, "digest thread $thread: $written bytes are more than half");
		cmp_ok($flushed, '<', 300 * 1024, "digest thread $thread: $flushed bytes are synced before the commit");
	}

	# After 16 MB of a transaction, it is left to the WAL writer.
	stop_walwriter($node);
	my $unwritten = $node->safe_psql('postgres', q(SET blobext.digest_thread = off;
		INSERT INTO t SELECT convert_to(repeat('f', 1024 * 1024), 'UTF8');
		SELECT pg_switch_wal() \gset
		BEGIN;
		INSERT INTO t SELECT convert_to(repeat('f', 22 * 1024 * 1024), 'UTF8');
		SELECT pg_current_wal_insert_lsn() - pg_current_wal_lsn();
		COMMIT));
	kill('CONT', $walwriter);
	cmp_ok($unwritten, '>', 3 * 1024 * 1024, "a far commit: $unwritten bytes are not written");

	# So is WAL that commits want to be on a standby.  Here the transactions are rolled back, and wait for none.
	foreach my $standby ('', 'a standby')
	{
		$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '\"$standby\"'") if $standby ne '';
		$node->reload;
		$node->poll_query_until('postgres', "SELECT current_setting('synchronous_standby_names') = '" .
			($standby eq '' ? '' : "\"$standby\"") . "'") or die 'the setting does not come';
		stop_walwriter($node);
		my $written = $node->safe_psql('postgres', q(SET blobext.digest_thread = off;
			BEGIN;
			INSERT INTO t SELECT convert_to(repeat('s', 1024 * 1024), 'UTF8');
			SELECT pg_switch_wal() \gset
			SELECT pg_current_wal_lsn() AS start \gset
			INSERT INTO t SELECT convert_to(repeat('t', 1024 * 1024), 'UTF8');
			SELECT pg_current_wal_lsn() - :'start';
			ROLLBACK));
		kill('CONT', $walwriter);
		cmp_ok($written, $standby eq '' ? '>' : '<', 500 * 1024,
			"$written bytes are written before a commit that waits for '$standby'");
	}
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
	$node->stop;
	$node->clean_node;
}

# ---- standby ----

my $primary = blob_cluster('primary', streaming => 1,
	conf => "max_connections = 40\nlog_checkpoints = on\n");
make_values($primary, 'v');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);
values_are_intact($standby, 'v', 'standby: values of the base backup');

add_values($primary, 'v', 0, 2_000, 4_096, 70_000, 1_000_000, 5_000_000);
$primary->safe_psql('postgres', 'CREATE TABLE c AS SELECT * FROM v');
$primary->wait_for_catchup($standby);
values_are_intact($standby, 'v', 'standby: streamed values are whole');
values_are_intact($standby, 'c', 'standby: copies of values are whole');
check_is_clean($standby, 'standby: the check finds nothing');
is($standby->safe_psql('postgres', 'SELECT * FROM blobext_map ORDER BY 1'),
	$primary->safe_psql('postgres', 'SELECT * FROM blobext_map ORDER BY 1'),
		'standby: the map is the primary\'s');
is($standby->safe_psql('postgres', 'SELECT
	blob_read(b, 1000000, 5) = substring(b::bytea, 1000001, 5)
	FROM v WHERE length(b) = 5000000'), 't', 'standby: a range is the part of the value');
fails_with($standby, "INSERT INTO v (b) VALUES (convert_to(repeat('x', 10000), 'UTF8'))", '25006',
	qr/read-only transaction/, 'standby: INSERT of a value is refused');
fails_with($standby, q(SELECT blobstate(convert_to(repeat('x', 10000), 'UTF8')) INTO TEMP q),
	'25006',
	qr/read-only transaction/, 'standby: SELECT INTO of a value is refused');
is($standby->safe_psql('postgres', q(SELECT length(blobstate(convert_to(repeat('x', 10000),
	'UTF8'))))),
	'10000', 'standby: an expression gives an inline value');
fails_with($standby, 'CREATE EXTENSION blobext', '25006', qr/read-only/,
	'standby: CREATE EXTENSION is refused');

# ---- the standby is killed in the middle of replay ----

for my $round (1 .. 4)
{
	for my $i (1 .. 3)
	{
		add_values($primary, 'v', map { int(rand(400_000)) } 1 .. 20);
		$primary->safe_psql('postgres', 'CHECKPOINT') if rand() < 0.4;
		sleep(rand(0.1));
	}
	kill_everything($standby);
	add_values($primary, 'v', map { int(rand(400_000)) } 1 .. 40);
	kill_in_recovery($standby, 0.3) if $round % 2;
	$standby->start;
	$primary->wait_for_catchup($standby);
	values_are_intact($standby, 'v', "killed standby $round: values");
	check_is_clean($standby, "killed standby $round: the check finds nothing");
}

# The primary crashes; the standby follows.
add_values($primary, 'v', map { int(rand(400_000)) } 1 .. 20);
kill_everything($primary);
$primary->start;
add_values($primary, 'v', 100_000, 10_000);
$primary->wait_for_catchup($standby);
values_are_intact($primary, 'v', 'primary after a crash: values');
values_are_intact($standby, 'v', 'standby of a primary after a crash: values');
check_is_clean($standby, 'standby of a primary after a crash: the check finds nothing');

# ---- promotion ----

my $counters = 'SELECT max(generation) FROM blobext_map';
my $last_generation = $primary->safe_psql('postgres', $counters);
# Extents of an open transaction are in the map of the standby, too.
my $session = $primary->background_psql('postgres', on_error_stop => 1);
$session->query_safe(q(BEGIN; INSERT INTO v (b) SELECT convert_to(repeat('open', 100000), 'UTF8')));
$last_generation = $primary->safe_psql('postgres', $counters);
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
$primary->wait_for_catchup($standby);
kill_everything($primary);
$session->{run}->kill_kill;
$standby->promote;
my $map_before = $standby->safe_psql('postgres', 'SELECT count(*) FROM blobext_map');
my $rows_before = $standby->safe_psql('postgres', 'SELECT max(id) FROM v');
values_are_intact($standby, 'v', 'promoted: the replayed values are whole');
add_values($standby, 'v', map { int(rand(400_000)) } 1 .. 40);
values_are_intact($standby, 'v', 'promoted: values and new values');
check_is_clean($standby, 'promoted: the check finds nothing');
no_page_is_shared($standby, 'promoted: no page belongs to two values', 'v', 'c');
is($standby->safe_psql('postgres',
	"SELECT count(*) FROM blobext_map WHERE generation <= $last_generation"),
	$map_before, 'promoted: the old generations are not given again');
is($standby->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT generation) FROM blobext_map'),
	'0',
	'promoted: no generation was given twice');
kill_everything($standby);
$standby->start;
values_are_intact($standby, 'v', 'promoted and crashed: values');
check_is_clean($standby, 'promoted and crashed: the check finds nothing');
$standby->stop;
unlike(slurp_file($standby->logfile), qr/PANIC|terminated by signal/, 'no PANIC in the log');
$standby->clean_node;
$primary->clean_node;

# ---- the digest thread ----

# Seen to fail with another MIN_THREAD_BYTES (src/extents/pipeline.c).
{
	my $node = blob_cluster('threads', streaming => 1, conf => "autovacuum = off\n");
	$node->safe_psql('postgres', q(CREATE TABLE t (b blobstate);
CREATE FUNCTION threads() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM pg_ls_dir('/proc/' || pg_backend_pid() || '/task') AS t
	WHERE pg_read_file('/proc/' || pg_backend_pid() || '/task/' || t || '/comm', 0, 20, true) = E'blobext digest\n' $$));
	my $session = $node->background_psql('postgres');
	my $store = sub { return "INSERT INTO t SELECT convert_to(repeat('x', $_[0]), 'UTF8')" };
	$session->query_safe($store->(512 * 1024 - 1));
	is($session->query_safe('SELECT threads()'), '0', 'a value of less than 512 kB starts no thread');
	$session->query_safe("SET blobext.digest_thread = off");
	$session->query_safe($store->(2 * 1024 * 1024));
	is($session->query_safe('SELECT threads()'), '0', 'a value of 2 MB starts no thread where it is off');
	$session->query_safe("SET blobext.digest_thread = auto");
	$session->query_safe($store->(512 * 1024));
	is($session->query_safe('SELECT threads()'), '1', 'one of 512 kB does, with auto as with on');
	is($session->query_safe(q(SELECT count(*) FROM t WHERE sha256(b) <> sha256(b::bytea))), '0', 'digests that the thread made are right');
	$session->quit;
	$node->stop;
	$node->clean_node;
}

done_testing();
