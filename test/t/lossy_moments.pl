# Power cuts at the moments at which something would be lost, on a disk that keeps only flushed
# writes.
#
# Only the extent store is on that disk (see BlobTest's lossy_cluster), so no sync of PostgreSQL's own
# files makes durable what blobext has not synced; the WAL and the tables lose nothing.  Each moment
# comes once with direct I/O and once with buffered I/O and values that are compressed:
#
#	- the disk itself: writes without a FLUSH are lost, or kept, or torn, as it was told; writes before
#	  a FLUSH never are,
#	- a commit whose content is not in the WAL, of single values and of many, which the syncer has
#	  written before,
#	- the end of crash recovery, which no redo pointer lies before,
#	- a checkpoint while the syncer has content that it has not made durable, because no FLUSH is
#	  answered: a cut while the checkpoint waits; and another one right after it has completed,
#	- a checkpoint that began after commits whose segment was on the syncer's list already, while the
#	  syncer wrote,
#	- a checkpoint behind a commit that was handed over, where fsync was turned off before the sync,
#	  and on after the checkpoint,
#	- a restartpoint of a standby right after it has replayed content,
#	- the same where content is not in the WAL, and the standby notes what it lacks,
#	- a commit after the store has grown by new segments.
#
# Seen to fail, each in one run, and where it says "both" with both kinds of I/O:
#	without fdatasync() in segment_sync.c: both "a commit", and all others that store;
#	without blob_segment_sync() in replay_content(): both "crash recovery" and both "a restartpoint";
#	without DELAY_CHKPT_START in the syncer: both "a slow sync";
#	with a syncer that takes segments off its list after it has written: "beside the writes";
#	with a syncer that syncs nothing while fsync is off: "fsync was off";
#	without pg_fdatasync() in unlogged.c: "notes";
#	without pg_fsync() in reserve_in_segment(): the server does not start after "growth";
#	with a lossy_disk that keeps all writes: the disk.
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
my $lossy = $ENV{BLOBEXT_LOSSY_FS};

# Values whose pages are left to the syncer, and one that bypasses the buffer.
my @sizes = (2_500, 5_000, 20_000, 100_000, 3_000_000);

# ---- the disk ----

# Overwrite a file of the disk that is there and durable, with dd and these options.  Direct writes
# are of 4 kB each.
sub overwrite
{
	my ($name, $letter, @options) = @_;
	my $source = "$PostgreSQL::Test::Utils::tmp_check/letters";
	open(my $file, '>', $source) or die "$source: $!";
	print $file $letter x 1_048_576;
	close $file;
	system_or_bail('dd', 'status=none', "if=$source", "of=$lossy/$name", 'bs=4096', @options);
	return;
}

# Which letters a file has, and in how many of its sectors; "?" for one that has several.
sub letters_of
{
	my ($name) = @_;
	my %count = (a => 0, b => 0);
	foreach my $sector (unpack('(a512)*', slurp_file("$lossy/$name")))
	{
		my $letter = substr($sector, 0, 1);
		$count{ $sector eq $letter x 512 ? $letter : '?' }++;
	}
	return \%count;
}

# Returns the fate of the writes, and of the sectors of the file that was written directly.
sub cut_disk
{
	my ($kept, $torn) = @_;
	overwrite($_, 'a', 'conv=fsync') foreach qw(direct buffered direct_synced dsync buffered_synced);
	power('lossy cut 0 0 1');	# empties the page cache
	power('lossy on');
	overwrite('direct_synced', 'b', 'oflag=direct', 'conv=notrunc,fdatasync');
	overwrite('dsync', 'b', 'oflag=direct,dsync', 'conv=notrunc', 'count=8');
	overwrite('buffered_synced', 'b', 'conv=notrunc,fdatasync');
	overwrite('buffered', 'b', 'conv=notrunc');
	overwrite('direct', 'b', 'oflag=direct', 'conv=notrunc');
	my %fate = power("lossy cut $kept $torn 1") =~ /(\w+)=(\d+)/g;
	isnt(system("head -c 1 '$lossy/direct' > /dev/null 2>&1"), 0, 'without power nothing can be read');
	power('lossy on');
	my $name = "$kept of 1000 writes kept, $torn torn";
	cmp_ok($fate{writes}, '>=', 256, "$name: writes were not durable");
	is_deeply(letters_of('direct_synced'), { a => 0, b => 2048 }, "$name: what was written directly and synced is kept");
	is_deeply(letters_of('buffered_synced'), { a => 0, b => 2048 }, "$name: what was buffered and synced is kept");
	is_deeply(letters_of('dsync'), { a => 1984, b => 64 }, "$name: blocks of dd with dsync are durable at once");
	is_deeply(letters_of('buffered'), { a => 2048, b => 0 }, "$name: what was buffered and not synced is lost") if $kept == 0;
	return (\%fate, letters_of('direct'));
}

sub is_about_half
{
	my ($found, $all, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return cmp_ok(abs($found - $all / 2), '<', $all / 4, "$name: $found of $all");
}

power('lossy format');
my ($fate, $letters) = cut_disk(0, 0);
is($fate->{lost}, $fate->{writes}, 'no write is kept');
is_deeply($letters, { a => 2048, b => 0 }, 'what was written directly, and not flushed, is lost');
($fate, $letters) = cut_disk(1000, 0);
is($fate->{kept}, $fate->{writes}, 'a cut that keeps all writes keeps each');
is_deeply($letters, { a => 0, b => 2048 }, 'what was written directly, and not flushed, is kept');
($fate, $letters) = cut_disk(500, 0);
is($fate->{kept} + $fate->{lost}, $fate->{writes}, 'each write is kept or lost');
is_about_half($letters->{a}, 2048, 'about half of what was not flushed is lost');
is($letters->{a} % 8 + $letters->{b} % 8, 0, 'a cut without torn writes loses whole writes');
($fate, $letters) = cut_disk(0, 1000);
cmp_ok($fate->{torn}, '>', 200, 'a cut that tears all writes tears many');
is_about_half($letters->{a}, 2048, 'about half of the sectors are lost');
is($letters->{a} + $letters->{b}, 2048, 'a loss of whole sectors tears none of them');
my ($late) = power('lossy figures') =~ /late=(\d+)/;
cmp_ok($late, '>', 100, 'some writes were answered late');

# ---- servers ----

my $node;
my $method = 'none';

sub start_cluster
{
	my ($name, $direct, $conf) = @_;
	$node = lossy_cluster($name, 'store', conf => qq($conf
blobext.direct_io = $direct
blobext.default_compression = $method
autovacuum = off
checkpoint_timeout = 1h
log_checkpoints = on
));
	$node->safe_psql('postgres',
		'CREATE TABLE v (id serial PRIMARY KEY, digest text, b blobstate)');
	is($node->safe_psql('postgres', q(SELECT setting FROM pg_settings WHERE name = 'blobext.direct_io')),
		$direct, "$name: the server has blobext.direct_io = $direct");
	return;
}

# Everything that is not durable goes.
sub cut
{
	my (@nodes) = @_;
	note(cut_lossy_disk(0, 0, 1, @nodes ? @nodes : $node));
	return;
}

sub is_whole
{
	my ($name, $count, $server) = @_;
	$server //= $node;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# Not safe_psql(), which ends the test: there shall be an answer for each moment.
	my ($result, $stdout, $stderr) = $server->psql('postgres', q(SELECT count(*), count(*) FILTER (
		WHERE encode(sha256(b::bytea), 'hex') <> digest OR encode(sha256(b), 'hex') <> digest),
		max(blob_compression(b)) FROM v));
	is($stdout . $stderr, "$count|0|$method", "$name: all $count values are there, and whole");
	($result, $stdout, $stderr) = $server->psql('postgres', 'SELECT * FROM blobext_check()');
	is($stdout . $stderr, '', "$name: the check finds nothing");
	return;
}

sub end_cluster
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/TRAP:|could not replay/, 'nothing strange in the log');
	$node->clean_node;
	return;
}

# Content is not in the WAL: the commit makes it durable, one value a transaction.
sub commit_and_cut
{
	my ($direct) = @_;
	start_cluster("commit_$direct", $direct, "wal_level = minimal\nmax_wal_senders = 0\n");
	add_values($node, 'v', @sizes);
	cut();
	$node->start;
	is_whole('a commit', scalar @sizes);
	# Values on top of the state that replay of ALLOC and the syncs of a recovered server leave.
	add_values($node, 'v', @sizes);
	cut();
	$node->start;
	is_whole('a commit after recovery', 2 * @sizes);
	# The syncer has written most of these, and synced none.
	my $session = $node->background_psql('postgres');
	$session->query_safe(q(BEGIN; INSERT INTO v (digest, b)
		SELECT encode(sha256(x), 'hex'), x FROM generate_series(1, 400) i, LATERAL (
			SELECT string_agg(sha256(int4send(i) || int4send(j)), NULL) AS x
			FROM generate_series(1, 1000) j) s));
	ok(few_are_dirty($node, 1024), 'most is written before the commit');
	$session->query_safe('COMMIT');
	cut();
	$session->{run}->kill_kill;
	$node->start;
	is_whole('a commit of much that was written before', 2 * @sizes + 400);
	end_cluster();
	return;
}

# Crash recovery writes the content that the syncer had yet to write; at its end there is a
# checkpoint.
sub recover_and_cut
{
	my ($direct) = @_;
	start_cluster("recovery_$direct", $direct, "wal_level = replica\n");
	add_values($node, 'v', @sizes);
	cut();
	$node->start;
	is_whole('content of the WAL', scalar @sizes);
	add_values($node, 'v', @sizes);
	my $lsn = $node->lsn('insert');
	cut();
	$node->start;
	is($node->safe_psql('postgres', "SELECT redo_lsn >= '$lsn' FROM pg_control_checkpoint()"), 't',
		'there is a checkpoint behind what was replayed');
	cut();
	$node->start;
	is_whole('crash recovery', 2 * @sizes);
	end_cluster();
	return;
}

# How often the checkpointer has waited for anything.
sub naps_of
{
	my ($pid) = @_;
	my ($naps) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return $naps;
}

# Begin a checkpoint; true if it completes.  A checkpoint that waits for a virtual transaction
# sleeps 10 ms at a time; one that does not has nothing to wait for as often as that.
sub checkpoint_completes
{
	my ($session) = @_;
	my $offset = -s $node->logfile;
	my $pid = $node->safe_psql('postgres',
		q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'));
	$session->query_until(qr/sent/, "\\echo sent\nCHECKPOINT;\n");
	for (my $i = 0; !$node->log_contains('checkpoint starting', $offset); $i++)
	{
		die 'no checkpoint begins' if $i > 100_000;
		usleep(1_000);
	}
	my $naps = naps_of($pid);
	until (naps_of($pid) > $naps + 300)
	{
		return 1 if $node->log_contains('checkpoint complete', $offset);
		usleep(1_000);
	}
	return 0;
}

# The syncer has content on its list, and fdatasync() does not return.
sub checkpoint_and_cut
{
	my ($direct, $waits) = @_;
	my $session = $node->background_psql('postgres');
	my $stores = 0;
	my $store = sub { add_values($node, 'v', 5_000); $stores++; };
	my $pid = stop_syncer($node, 'syncs_handed_over', $store);
	my $before = stat_of($node, 'syncs_handed_over');
	add_values($node, 'v', @sizes);
	is(stat_of($node, 'syncs_handed_over') - $before, scalar @sizes, 'commits are handed over');
	power('lossy hold');
	kill('CONT', $pid);
	my $is_early = checkpoint_completes($session);
	if (!$waits && !$is_early)
	{
		power('lossy release');
		$session->query_until(qr/done/, "\\echo done\n");
	}
	my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM v');
	cut();
	eval { $session->quit; };
	$node->start;
	is_whole('a slow sync, ' . ($waits ? 'a checkpoint that waits' : 'a completed checkpoint'), $count);
	is($is_early, 0, 'the checkpoint waits for the sync');
	return;
}

sub sync_slowly
{
	my ($direct) = @_;
	start_cluster("syncer_$direct", $direct, "wal_level = replica\n");
	checkpoint_and_cut($direct, $_) foreach (1, 0);
	end_cluster();
	return;
}

# A value whose commit leaves the sync to the syncer.
sub hand_over
{
	my ($size, $name) = @_;
	my $before = stat_of($node, 'syncs_handed_over');
	add_values($node, 'v', $size);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(stat_of($node, 'syncs_handed_over') - $before, 1, $name);
	return;
}

# A segment is on the syncer's list.  The syncer is writing, and has yet to sync, when another commit
# hands the same segment over, whose pages are dirty then.  Both times: then the second pass of the
# syncer leaves them to the last one, which comes when it accepts no more.
sub store_beside_writes
{
	my ($count) = @_;
	start_cluster("beside_$count", 'on', "wal_level = replica\nblobext.io_method = sync\n");
	$node->stop;
	start_with_stops($node);
	my $syncer = stop_syncer($node, 'syncs_handed_over', sub { add_values($node, 'v', 5_000) });
	my $session = $node->background_psql('postgres');
	$session->{stdin} .= "CHECKPOINT;\n\\echo over\n";
	hold_again($session, $syncer, 'write', 'before');
	is(stopped_pid(), $syncer, 'the syncer is about to write');
	hand_over(28_673, 'a commit is handed over while the syncer writes');
	if ($count > 1)
	{
		hold_again($session, $syncer, 'write', 'before');
		hand_over(20_000, 'a commit is handed over while the syncer writes for the second time');
	}
	let_go($syncer, $session);
	my $lsn = $node->lsn('insert');
	$node->safe_psql('postgres', 'CHECKPOINT');
	is($node->safe_psql('postgres', "SELECT redo_lsn >= '$lsn' FROM pg_control_checkpoint()"), 't',
		'a checkpoint is behind these commits');
	my $values = $node->safe_psql('postgres', 'SELECT count(*) FROM v');
	cut();
	$node->start;
	is_whole("beside the writes, $count", $values);
	end_cluster();
	return;
}

# The syncer reads that fsync is off before it has synced a segment that was handed over.
sub turn_fsync_off_and_on
{
	start_cluster('fsync', 'on', "wal_level = replica\n");
	my $syncer = stop_syncer($node, 'syncs_handed_over', sub { add_values($node, 'v', 5_000) });
	hand_over(28_673, 'a commit is handed over with fsync = on');
	$node->safe_psql('postgres', 'ALTER SYSTEM SET fsync = off');
	$node->reload;
	kill('CONT', $syncer);
	my $lsn = $node->lsn('insert');
	$node->safe_psql('postgres', 'CHECKPOINT');
	is($node->safe_psql('postgres', "SELECT redo_lsn >= '$lsn' FROM pg_control_checkpoint()"), 't',
		'a checkpoint with fsync = off is behind the commit');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET fsync');
	$node->reload;
	my $values = $node->safe_psql('postgres', 'SELECT count(*) FROM v');
	cut();
	$node->start;
	is_whole('fsync was off for a while', $values);
	end_cluster();
	return;
}

# The record after that position, too: the position may be that of a page's header.
sub follow
{
	my ($primary, $standby) = @_;
	my $lsn = $primary->lsn('insert');
	$primary->safe_psql('postgres', 'SELECT txid_current()');
	$primary->wait_for_catchup($standby, 'replay', $lsn);
	return;
}

# A standby whose restartpoint lies behind all content that it has replayed.
sub restartpoint_and_cut
{
	my ($direct) = @_;
	power('lossy format');
	my $primary = blob_cluster("primary_$direct", streaming => 1,
		conf => "autovacuum = off\nlog_replication_commands = off\n"
		  . "blobext.default_compression = $method\n");
	make_values($primary, 'v', @sizes);
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new("standby_$direct");
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "blobext.direct_io = $direct\n");
	put_store_on_lossy_disk($standby);
	$standby->start;
	my $count = @sizes;
	foreach my $round (1 .. 2)
	{
		add_values($primary, 'v', @sizes);
		$count += @sizes;
		my $lsn = $primary->lsn('insert');
		$primary->safe_psql('postgres', 'CHECKPOINT');
		follow($primary, $standby);
		$standby->safe_psql('postgres', 'CHECKPOINT');
		is($standby->safe_psql('postgres', "SELECT redo_lsn >= '$lsn' FROM pg_control_checkpoint()"), 't',
			'there is a restartpoint behind the content');
		cut($standby);
		$standby->start;
		is_whole("a restartpoint, round $round", $count, $standby);
	}
	$standby->stop;
	$primary->stop;
	return;
}

# Without content in the WAL a standby must keep its notes of unlogged content: else it would read
# zeros.
sub note_and_cut
{
	power('lossy format');
	my $primary = blob_cluster('primary_notes', streaming => 1,
		conf => "autovacuum = off\nblobext.wal_content = off\n");
	make_values($primary, 'v', @sizes);
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby_notes');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	put_store_on_lossy_disk($standby);
	$standby->start;
	# The first notes make a file, the next ones are written to it.
	foreach my $round (1 .. 2)
	{
		add_values($primary, 'v', @sizes);
		$primary->safe_psql('postgres', 'CHECKPOINT');
		follow($primary, $standby);
		$standby->safe_psql('postgres', 'CHECKPOINT');
		cut($standby);
		$standby->start;
		foreach my $id ($round * @sizes + 1 .. ($round + 1) * @sizes)
		{
			fails_with($standby, "SELECT b::bytea FROM v WHERE id = $id", 'XB002', qr/./,
				"notes, round $round: value $id is known to be missing");
		}
	}
	$standby->stop;
	$primary->stop;
	return;
}

# SEGMENT says that the files are there.
sub grow_and_cut
{
	my $library = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";
	start_cluster('growth', 'on', "wal_level = replica\n");
	add_values($node, 'v', @sizes);
	$node->safe_psql('postgres', "CREATE FUNCTION allocate(pages bigint) RETURNS bigint
		AS '$library', 'unit_store_allocate' LANGUAGE C STRICT");
	$node->safe_psql('postgres', 'CREATE TABLE grown AS SELECT allocate(300000)');
	my $segments = () = glob(store_dir($node) . '/0*');
	cmp_ok($segments, '>=', 2, 'there are new segments');
	cut();
	$node->start;
	is_whole('growth', scalar @sizes);
	is(scalar(() = glob(store_dir($node) . '/0*')), $segments, 'the new segments are there after the cut');
	add_values($node, 'v', @sizes);
	is_whole('growth, and more values', 2 * @sizes);
	end_cluster();
	return;
}

note_and_cut();
grow_and_cut();
store_beside_writes($_) foreach (1, 2);
turn_fsync_off_and_on();
foreach my $direct (qw(on off))
{
	($method, $BlobTest::repeats) = $direct eq 'on' ? ('none', 1) : ('zstd', 4);
	commit_and_cut($direct);
	recover_and_cut($direct);
	sync_slowly($direct);
	restartpoint_and_cut($direct);
}

done_testing();
