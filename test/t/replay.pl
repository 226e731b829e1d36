# Writes of replayed content that are in flight, and content that is not durable yet: which records
# wait for them, and before which ones the content is synced.
#
# The extent store of a standby is on the lossy disk.  That disk can hold writes: they are neither
# carried out nor answered, and reads do not see them.  So it can be seen at which record replay
# waits for content (pg_last_wal_replay_lsn), and how many writes are in flight (the disk's figures).
# unit/unit_wal.c inserts CONTENT records right before records of other resource managers, and
# pg_walinspect tells whether it has succeeded.
#
#	- a record of each resource manager that the test can cause, also of one that is registered
#	  behind blobext: content is complete before it is replayed,
#	- other extensions that replace redo functions, earlier and later,
#	- replay goes on, and becomes idle, with writes in flight, and a query, a pause, a shutdown then,
#	- two writes of the same page,
#	- content of more segments than the sync list has places, a restartpoint, a power cut,
#	- a promotion, a checkpoint, a power cut,
#	- content of a segment and of a store that are removed before the sync,
#	- a file that is deleted before the sync,
#	- a startup process that is killed with a write in flight,
#	- a write that fails,
#	- the same rules without hot standby.
#
# lossy_moments.pl has crash recovery and a restartpoint.  Seen to fail:
#	without a wait before records of other resource managers: "content is complete", all but blobext;
#	without it before those of B-trees: "Btree"; with built-in managers replaced only: "blobext_unit";
#	without a wait before records of blobext: "blobext", and "without queries, records of blobext";
#	with redo functions that are not called: "redo functions of other extensions";
#	without finish_overlapping(): "of two writes";
#	without the sync before CHECKPOINT, or when the list is full: "many segments";
#	without blob_content_queue_forget(): the standby stops after "many segments";
#	with a missing file ignored at the sync: "a file that is deleted";
#	without blob_segment_settle(): "a write that a killed process has left";
#	with errors of writes ignored: "a write that fails";
#	without the sync in clean_up(): "content that was replayed before a promotion".
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

my $why_not = why_no_lossy_disk();
plan skip_all => $why_not if $why_not ne '';
plan skip_all => 'needs the library of test/unit' unless defined $ENV{BLOBEXT_UNIT_DIR};

use constant PAGE => 4_096;
my $unit = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";

power('lossy format');
my $primary = blob_cluster('primary', streaming => 1, conf => qq(
shared_preload_libraries = 'blobext, $unit'
wal_keep_size = 4GB
autovacuum = off
checkpoint_timeout = 1h
log_replication_commands = off
max_standby_streaming_delay = 100ms
wal_receiver_status_interval = 1s
));
$primary->safe_psql('postgres', qq(
CREATE EXTENSION pg_walinspect;
CREATE FUNCTION unit_wal(map regclass, version int, what text, VARIADIC arguments bigint[])
	RETURNS void AS '$unit' LANGUAGE C STRICT;
CREATE FUNCTION unit_rmgr_log() RETURNS void AS '$unit' LANGUAGE C STRICT;
CREATE FUNCTION allocate(pages bigint) RETURNS bigint AS '$unit', 'unit_store_allocate' LANGUAGE C STRICT;
));
make_values($primary, 'v', 20_000, 1_000_000);
my $first_page = $primary->safe_psql('postgres', 'SELECT allocate(5000)');

# An index record follows the evaluation of the index's expression, which logs content.  Since
# PostgreSQL 17 CREATE INDEX sets a search_path without public.
$primary->safe_psql('postgres', qq(
CREATE FUNCTION log_content(byte text) RETURNS void LANGUAGE sql
	AS \$\$ SELECT public.unit_wal('public.blobext_map', 1, 'CONTENT', $first_page, 4096, ascii(byte)) \$\$;
CREATE FUNCTION key_of(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql
	AS \$\$ BEGIN PERFORM public.log_content('k'); RETURN id; END \$\$;
CREATE FUNCTION array_of(id int) RETURNS int[] IMMUTABLE LANGUAGE plpgsql
	AS \$\$ BEGIN PERFORM public.log_content('k'); RETURN ARRAY[id]; END \$\$;
CREATE FUNCTION point_of(id int) RETURNS point IMMUTABLE LANGUAGE plpgsql
	AS \$\$ BEGIN PERFORM public.log_content('k'); RETURN point(id, id); END \$\$;
CREATE TABLE plain (id int);
CREATE SEQUENCE numbers;
CREATE TABLE btree (id int); CREATE INDEX ON btree USING btree (key_of(id));
CREATE TABLE hash (id int); CREATE INDEX ON hash USING hash (key_of(id));
CREATE TABLE gin (id int); CREATE INDEX ON gin USING gin (array_of(id)) WITH (fastupdate = off);
CREATE TABLE gist (id int); CREATE INDEX ON gist USING gist (point_of(id));
CREATE TABLE spgist (id int); CREATE INDEX ON spgist USING spgist (point_of(id));
CREATE TABLE brin (id int); INSERT INTO brin VALUES (0);
CREATE INDEX ON brin USING brin (key_of(id));
));
# Every 15 s it would log a record that is not content, and replay would wait there.
sub stop_bgwriter
{
	my $idle = q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'
		AND wait_event ~ '^(BgWriter|Bgwriter)');
	for (1 .. 600)
	{
		my $pid = $primary->safe_psql('postgres', $idle);
		return kill('STOP', $pid) && $pid if $pid ne '';
		usleep(100_000);
	}
	die 'the background writer is never idle';
}
my $bgwriter = stop_bgwriter();
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
put_store_on_lossy_disk($standby);
$standby->start;

# A disk that holds cannot be unmounted.
END
{
	local $?;
	eval { power('lossy release'); };
}

# Writes of the file system's journal count, too; it has none to make then.
sub hold_writes
{
	system_or_bail('sync', '-f', $ENV{BLOBEXT_LOSSY_FS});
	return power('lossy hold_writes');
}

sub held_writes
{
	my ($count) = power('lossy figures') =~ /held_writes=(\d+)/;
	return $count;
}

# The number of held writes when this many are: submitted writes may be on their way to the disk.
sub await_held
{
	my ($count) = @_;
	my $looks = 60_000;
	usleep(1_000) until held_writes() >= $count || --$looks == 0;
	return held_writes();
}

# No write that was held before may be caught by the next hold.
sub release_all
{
	power('lossy release');
	usleep(1_000) until held_writes() == 0;
	return;
}

sub follow
{
	my $lsn = $primary->lsn('insert');
	$primary->safe_psql('postgres', 'SELECT txid_current()');
	$primary->wait_for_catchup($standby, 'replay', $lsn);
	return;
}

# SQL that logs content of this number of pages.
sub log_sql
{
	my ($page, $pages, $byte) = @_;
	return "SELECT unit_wal('blobext_map', 1, 'CONTENT', " . ($first_page + $page) . ', '
	  . $pages * PAGE . ', ' . ord($byte) . ');';
}

# All records from there to the end.
sub records_from
{
	my ($from) = @_;
	return $primary->safe_psql('postgres', 'SHOW server_version_num') < 160_000 ?
	  "pg_get_wal_records_info_till_end_of_wal('$from')" :
	  "pg_get_wal_records_info('$from', 'FFFFFFFF/FFFFFFFF')";
}

# The end of the WAL, when it has been flushed: transactions that change nothing do not wait for that.
sub flushed
{
	my $end = $primary->lsn('insert');
	$primary->poll_query_until('postgres', "SELECT pg_current_wal_flush_lsn() >= '$end'")
	  or die 'the WAL is not flushed';
	return $primary->lsn('flush');
}

# The end of the last CONTENT behind $from, and the resource manager of the record behind it.
sub last_content
{
	my ($from) = @_;
	return split /\|/, $primary->safe_psql('postgres', "
		WITH record AS (SELECT end_lsn, resource_manager, record_type,
				lead(resource_manager) OVER (ORDER BY start_lsn) AS next FROM @{[ records_from($from) ]})
		SELECT end_lsn, next FROM record WHERE resource_manager = 'blobext' AND record_type = 'CONTENT'
		ORDER BY end_lsn DESC LIMIT 1");
}

# Wait until the startup process waits for content, or has replayed more than this position.
# Returns true if it has not.
sub waits_at
{
	my ($lsn) = @_;
	my $state;
	for (;;)
	{
		$state = $standby->safe_psql('postgres', "SELECT CASE
			WHEN pg_last_wal_replay_lsn() > '$lsn' THEN 'has passed'
			WHEN wait_event_type = 'Extension' THEN 'waits' ELSE '' END
			FROM pg_stat_activity WHERE backend_type = 'startup'");
		return $state eq 'waits' if $state ne '';
		usleep(1_000);
	}
}

# Wait until the startup process waits for content, or has replayed up to this position.
sub waits_at_or_replays
{
	my ($lsn) = @_;
	return $standby->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'
		OR wait_event_type = 'Extension' FROM pg_stat_activity WHERE backend_type = 'startup'");
}

# The first segment of a database's store.
sub segment_file_of
{
	my ($node, $database) = @_;
	my $oid = $primary->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");
	my ($directory) = glob($node->data_dir . "/pg_blobext/$oid.*");
	return "$directory/00000000";
}

# The byte that fills pages of the standby's first segment, which is on page $page of the extent.
sub bytes_at
{
	my ($page, $pages) = @_;
	open(my $file, '<:raw', segment_file_of($standby, 'postgres')) or die $!;
	seek($file, ($first_page + $page) * PAGE, 0);
	read($file, my $found, $pages * PAGE) == $pages * PAGE or return 'too short';
	my $byte = substr($found, 0, 1);
	return $found eq $byte x ($pages * PAGE) ? $byte : 'other bytes';
}

# Is the ring used?  Otherwise each write is waited for when it is started.
my ($refused) = $standby->psql('postgres',
	"SET blobext.io_method = io_uring; SELECT length(b::bytea) FROM v");
my $has_ring = $refused == 0;
note($has_ring ? 'io_uring works' : 'io_uring is refused');

# ---- content before records of all resource managers ----

my $log_content = log_sql(0, 1, 'c');
my %statements = (
	XLOG => "$log_content SELECT pg_create_restore_point('here');",
	Transaction => "$log_content SELECT txid_current();",
	Storage => "BEGIN; LOCK TABLE plain; $log_content TRUNCATE plain; COMMIT;",
	Standby => "BEGIN; SELECT txid_current(); $log_content LOCK TABLE plain; COMMIT;",
	Heap => "$log_content INSERT INTO plain VALUES (1);",
	Heap2 => "$log_content COPY plain FROM PROGRAM 'seq 3';",
	Sequence => "$log_content SELECT setval('numbers', 10);",
	LogicalMessage => "$log_content SELECT pg_logical_emit_message(false, 'to', 'you'), txid_current();",
	blobext => "$log_content SELECT unit_wal('blobext_map', 1, 'META', 1::bigint << 40);",
	blobext_unit => "$log_content SELECT unit_rmgr_log();",
	Btree => 'INSERT INTO btree VALUES (1);',
	Hash => 'INSERT INTO hash VALUES (1);',
	Gin => 'INSERT INTO gin VALUES (1);',
	Gist => 'INSERT INTO gist VALUES (1);',
	SPGist => 'INSERT INTO spgist VALUES (1);',
	BRIN => 'INSERT INTO brin SELECT max(id) + 1 FROM brin;',
);

# Another process may insert a record in between.
sub log_content_before
{
	my ($manager) = @_;
	my $next = 'none';
	for (1 .. 20)
	{
		my $from = $primary->lsn('insert');
		$primary->safe_psql('postgres', $statements{$manager});
		flushed();
		(my $end, $next) = last_content($from);
		return $end if $next eq $manager;
		power('lossy release');
		follow();
		power('lossy hold_writes');
	}
	return BAIL_OUT("no record of $manager follows content, but one of $next");
}

foreach my $manager (sort keys %statements)
{
	follow();
	power('lossy hold_writes');
	my $end = log_content_before($manager);
	ok(waits_at($end), "$manager: content is complete before the record is replayed");
	power('lossy release');
}
follow();

# ---- other extensions ----

my $log = slurp_file($standby->logfile);
like($log, qr/unit_rmgr: a record of its own/, 'a resource manager behind blobext replays its record');
like($log, qr/the late redo function\n(.* CONTEXT: .*\n)?.*the early redo function\n/,
	'redo functions of other extensions are called, replaced before and after blobext');
is(() = $log =~ /the early redo function/g, () = $log =~ /the late redo function/g,
	'redo functions of other extensions are called once for a record');

# ---- writes in flight ----

foreach my $method ('io_uring', 'aio')
{
	next if $method eq 'io_uring' && !$has_ring;
	$standby->stop;
	$standby->append_conf('postgresql.conf', "blobext.io_method = $method\n");
	$standby->start;
	follow();
	hold_writes();
	$primary->safe_psql('postgres', join(' ', map { log_sql(10 * $_, 2, 'f') } 1 .. 5));
	my $end = flushed();
	ok($standby->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$end'"),
		"$method: replay goes on while writes are in flight");
	is(await_held(5), 5, "$method: five writes are in flight");
	is($standby->safe_psql('postgres', q(SELECT wait_event_type FROM pg_stat_activity
		WHERE backend_type = 'startup')), 'Activity', "$method: a startup process without work has writes in flight");
	values_are_intact($standby, 'v', "$method: values can be read while writes are in flight");
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause(); SELECT pg_wal_replay_resume()');
	$standby->safe_psql('postgres', 'CHECKPOINT');
	power('lossy release');
	follow();
	is_deeply([ map { bytes_at(10 * $_, 2) } 1 .. 5 ], [ ('f') x 5 ], "$method: five writes are carried out");

	# Without an end to the writes the process cannot leave.
	hold_writes();
	$primary->safe_psql('postgres', join(' ', map { log_sql(10 * $_, 2, 's') } 1 .. 5));
	$primary->wait_for_catchup($standby, 'replay', flushed());
	is(await_held(5), 5, "$method: five writes are in flight before a shutdown");
	my $offset = -s $standby->logfile;
	my $stop = IPC::Run::start([ 'pg_ctl', '-D', $standby->data_dir, '-m', 'fast', '-w', 'stop' ],
		'>', '/dev/null');
	usleep(1_000) until $standby->log_contains('received fast shutdown request', $offset);
	power('lossy release');
	ok($stop->finish, "$method: a standby with writes in flight is stopped");
	$standby->_update_pid(0);
	is_deeply([ map { bytes_at(10 * $_, 2) } 1 .. 5 ], [ ('s') x 5 ],
		"$method: writes in flight are complete after a shutdown");
	$standby->append_conf('postgresql.conf', "blobext.io_method = auto\n");
	$standby->start;
}

# Both writes would be in flight, and the disk is free to carry them out in any order.
follow();
hold_writes();
$primary->safe_psql('postgres', log_sql(100, 4, 'a') . log_sql(102, 4, 'b'));
my $end = flushed();
waits_at_or_replays($end);
is(await_held(1), 1, 'of two writes with pages in common one is in flight');
power('lossy release');
follow();
is(bytes_at(100, 2) . bytes_at(102, 4), 'ab', 'the later of two writes with pages in common comes last');

# ---- power cuts ----

# Everything that is not durable goes, and the standby starts again.
sub cut
{
	note(cut_lossy_disk(0, 0, 1, $standby));
	$standby->start;
	return;
}

# The standby's redo pointer is behind all content that has been logged.
sub make_restartpoint
{
	my ($name) = @_;
	my $lsn = $primary->lsn('insert');
	$primary->safe_psql('postgres', 'CHECKPOINT');
	follow();
	$standby->safe_psql('postgres', 'CHECKPOINT');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($standby->safe_psql('postgres', "SELECT redo_lsn >= '$lsn' FROM pg_control_checkpoint()"), 't',
		"$name: there is a restartpoint behind the content");
	return;
}

# A sync of one file makes all durable that was written to the device: so nothing is, until its own
# file is synced.
$standby->append_conf('postgresql.conf', "blobext.direct_io = off\n");
$standby->restart;
my @databases = map { "d$_" } 1 .. 20;
foreach my $database (@databases)
{
	$primary->safe_psql('postgres', "CREATE DATABASE $database");
	$primary->safe_psql($database, 'CREATE EXTENSION blobext; CREATE TABLE v (id serial, digest text, b blobstate)');
}
foreach my $database (@databases)
{
	$primary->safe_psql($database, q(INSERT INTO v (digest, b)
		SELECT encode(sha256(c), 'hex'), c FROM convert_to(repeat(md5(random()::text), 5000), 'UTF8') AS c));
}
make_restartpoint('many segments');
cut();
my @whole = grep { $standby->safe_psql($_, q(SELECT count(*) FROM v
	WHERE digest = encode(sha256(b::bytea), 'hex'))) eq '1' } @databases;
is(scalar @whole, scalar @databases, 'many segments: content of each survives a power cut');

# ---- segments and stores that are removed ----

$standby->adjust_conf('postgresql.conf', 'blobext.direct_io', 'on');
$standby->restart;
follow();
my $pages = 262_144;
my $wal = sub {
	my ($database, $what, @arguments) = @_;
	$primary->safe_psql($database, "SELECT unit_wal('blobext_map', 1, '$what', VARIADIC ARRAY["
		. join(', ', @arguments) . "]::bigint[])");
};
$primary->safe_psql('d1', "CREATE FUNCTION unit_wal(map regclass, version int, what text,
	VARIADIC arguments bigint[]) RETURNS void AS '$unit' LANGUAGE C STRICT");
$wal->('d1', 'SEGMENT', 2 * $pages);
$wal->('d1', 'CONTENT', $pages + 5, PAGE, ord 'r');
$wal->('d1', 'CONTENT', 5, PAGE, ord 'r');
$wal->('d1', 'REMOVE', 1);
make_restartpoint('a removed segment');
$wal->('d1', 'CONTENT', 5, PAGE, ord 'r');
$wal->('d1', 'DROP', 0);
make_restartpoint('a removed store');

# ---- a file that is deleted ----

follow();
$primary->safe_psql('postgres', log_sql(0, 1, 'm'));
$primary->wait_for_catchup($standby, 'replay', flushed());
my $file = segment_file_of($standby, 'postgres');
# A process that has the file open goes on with it as long as it has a name.
system_or_bail('cp', '--sparse=always', $file, "$file.away");
unlink $file or die $!;
my $offset = -s $standby->logfile;
$primary->safe_psql('postgres', 'CHECKPOINT');
my $behind = flushed();
until ($standby->log_contains('database system is shut down', $offset))
{
	my ($result, $passed) = $standby->psql('postgres', "SELECT pg_last_wal_replay_lsn() >= '$behind'");
	last if $result == 0 && $passed eq 't';
	usleep(1_000);
}
like(slurp_file($standby->logfile, $offset), qr/FATAL:  replay has not found all blob segment files/,
	'a file that is deleted before the sync stops recovery')
  or BAIL_OUT('the standby goes on without a file');
$standby->_update_pid(0);
rename("$file.away", $file) or die $!;
$standby->start;
follow();
is(bytes_at(0, 1), 'm', 'the file is back: content is there');

# ---- a process that was killed ----

# Does the startup process wait in the kernel?
sub is_in_kernel
{
	my ($postmaster) = split /\n/, slurp_file($standby->data_dir . '/postmaster.pid');
	foreach my $pid (BlobTest::children($postmaster))
	{
		my $command = eval { slurp_file("/proc/$pid/cmdline") } // '';
		my $status = eval { slurp_file("/proc/$pid/status") } // '';
		return 1 if $command =~ /startup/ && $status =~ /^State:\s+D/m;
	}
	return 0;
}

# Replay waits for writes that another process has left, or has come to this position.
sub waits_in_kernel_or_replays
{
	my ($lsn, $offset) = @_;
	my $times = 0;
	usleep(1_000) until $standby->log_contains('redo starts at', $offset);
	while ($times < 30)
	{
		$times = is_in_kernel() ? $times + 1 : 0;
		my ($result, $passed) = $standby->psql('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'");
		return if $result == 0 && $passed eq 't';
		usleep(10_000);
	}
	return;
}

SKIP:
{
	skip 'io_uring is refused', 1 if !$has_ring;
	power('lossy hold_writes 1');
	$primary->safe_psql('postgres', log_sql(120, 1, 'o'));
	usleep(1_000) until held_writes() > 0;
	kill_everything($standby);
	unlink $standby->data_dir . '/postmaster.pid';
	$primary->safe_psql('postgres', log_sql(120, 1, 'n') . 'SELECT txid_current()');
	$offset = -s $standby->logfile;
	{
		# Otherwise the walreceiver would have the name of this test.
		local %ENV = $standby->_get_env(PGAPPNAME => undef);
		system_log('pg_ctl', '-W', '-D', $standby->data_dir, '-l', $standby->logfile, 'start');
	}
	usleep(1_000) until -s $standby->data_dir . '/postmaster.pid';
	waits_in_kernel_or_replays(flushed(), $offset);
	power('lossy release');
	$standby->_update_pid(1);
	$standby->poll_query_until('postgres', undef, '');
	follow();
	is(bytes_at(120, 1), 'n', 'a write that a killed process has left does not come last');
}

# ---- a write that fails ----

power('lossy hold_writes');
$primary->safe_psql('postgres', log_sql(0, 1, 'e') . 'SELECT txid_current()');
$offset = -s $standby->logfile;
power('lossy cut 0 0 1');
$behind = flushed();
until ($standby->log_contains('PANIC', $offset))
{
	my ($result, $passed) = $standby->psql('postgres', "SELECT pg_last_wal_replay_lsn() >= '$behind'");
	last if $result == 0 && $passed eq 't';
	usleep(1_000);
}
like(slurp_file($standby->logfile, $offset), qr/PANIC:  could not replay content of page \d+/,
	'a write that fails is a PANIC') or BAIL_OUT('the standby goes on after a write that failed');
usleep(1_000) until $standby->log_contains('database system is shut down|all server processes terminated', $offset);
kill_everything($standby);
unlink $standby->data_dir . '/postmaster.pid';
power('lossy on');
$standby->start;
follow();
is(bytes_at(0, 1), 'e', 'a write that failed is carried out by the next recovery');

# ---- no hot standby ----

$standby->append_conf('postgresql.conf', "hot_standby = off\n");
$standby->restart;
# By its name: PostgreSQL 19 would ask a standby that lets no queries in.
my $replayed = sub { $primary->wait_for_catchup($standby->name, 'replay', flushed()); };
$replayed->();
my @letters = qw(n o p);
SKIP:
{
	skip 'io_uring is refused', 1 if !$has_ring;
	power('lossy hold_writes');
	$primary->safe_psql('postgres', join(' ',
		map { log_sql(10 * $_, 2, $letters[$_]) . 'SELECT txid_current();' } 0 .. 2));
	$replayed->();
	cmp_ok(await_held(3), '>=', 3, 'without queries, records of other resource managers do not wait for content');
	release_all();
}
$primary->safe_psql('postgres', 'SELECT txid_current()');
$replayed->();
hold_writes();
$primary->safe_psql('postgres', log_sql(40, 2, 'x')
	  . q(SELECT unit_wal('blobext_map', 1, 'META', 1::bigint << 41);) . log_sql(50, 2, 'x'));
usleep(1_000) until held_writes() > 0;
usleep(200_000);
is(held_writes(), 1, 'without queries, records of blobext wait for content');
power('lossy release');
$primary->safe_psql('postgres', join(' ', map { log_sql(10 * $_, 2, $letters[$_]) } 0 .. 2));
$primary->safe_psql('postgres', 'CHECKPOINT');
my $redo = $primary->safe_psql('postgres', 'SELECT redo_lsn FROM pg_control_checkpoint()');
$replayed->();
$standby->stop;		# with a restartpoint
my ($stdout) = run_command([ 'pg_controldata', $standby->data_dir ]);
like($stdout, qr/REDO location: +$redo$/m, 'without queries, there is a restartpoint behind the content');
note(cut_lossy_disk(0, 0, 1));
$standby->adjust_conf('postgresql.conf', 'hot_standby', 'on');
$standby->start;
follow();
is(join('', map { bytes_at(10 * $_, 2) } 0 .. 2), join('', @letters),
	'without queries, content before a restartpoint survives a power cut');

# ---- promotion ----

add_values($primary, 'v', 20_000, 1_000_000);
follow();
kill('CONT', $bgwriter);
$primary->stop('immediate');	# a shutdown would log a checkpoint
$standby->promote;
$standby->safe_psql('postgres', 'CHECKPOINT');
cut();
values_are_intact($standby, 'v', 'content that was replayed before a promotion survives a power cut');
$standby->stop;

done_testing();
