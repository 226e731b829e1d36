# Space goes back to the file system: free pages are punched, taken again, and the last segment goes.
#
# All values are whole and the check finds nothing, after each step and after a crash at each system
# call of a step; on a standby, also promoted; on a copy whose files have no holes; after power cuts;
# on a full disk.  "Seen to fail" names what was taken out.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

use constant MB => 1024 * 1024;
use constant SEGMENT => 262_144;	# pages

my $unit_dir = $ENV{BLOBEXT_UNIT_DIR} // die 'BLOBEXT_UNIT_DIR: use test/run tap';
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
my $calm = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 4GB\n"
  . "log_replication_commands = off\n";
my $node;

# ---- tools ----

sub sql
{
	return $node->safe_psql('postgres', join(";\n", @_));
}

# A server with tables v and w of values of 1 MB, and functions that call the allocator.
sub start_cluster
{
	my ($name, $conf, %options) = @_;
	$node = blob_cluster($name, streaming => 1, conf => "$calm$conf", %options);
	make_objects();
	return;
}

sub make_objects
{
	sql(q(CREATE FUNCTION bytes(i int) RETURNS bytea LANGUAGE sql IMMUTABLE
			AS $$SELECT convert_to(repeat(md5(i::text), 32768), 'UTF8')$$),
		'CREATE TABLE v (id int, b blobstate)', 'CREATE TABLE w (id int, b blobstate)',
		"CREATE FUNCTION allocate(pages bigint) RETURNS bigint
			AS '$unit_dir/blobext_unit', 'unit_store_allocate' LANGUAGE C STRICT",
		"CREATE FUNCTION reclaim() RETURNS integer
			AS '$unit_dir/blobext_unit', 'unit_store_reclaim' LANGUAGE C",
		"CREATE FUNCTION free(pages bigint[], generations bigint[], horizon xid) RETURNS pg_lsn
			AS '$unit_dir/blobext_unit', 'unit_store_free' LANGUAGE C STRICT",
		'CREATE EXTENSION pg_walinspect', 'CREATE EXTENSION pageinspect');
	return;
}

sub store
{
	my ($table, $first, $last) = @_;
	return "INSERT INTO $table SELECT i, bytes(i) FROM generate_series($first, $last) AS i";
}

# Delete all but every tenth value of a table.
sub thin_out
{
	my ($table) = @_;
	sql("DELETE FROM $table WHERE id % 10 <> 0");
	return;
}

sub gc
{
	my $reason = sql('SET client_min_messages = error', 'SELECT skipped_reason FROM blobext_gc()');
	die "the round was skipped: $reason" if $reason ne '';
	return;
}

# Rest, checkpoint, punch.
sub give_back
{
	gc();
	sql('CHECKPOINT');
	gc();
	return;
}

sub pages_of
{
	my ($state, $server) = @_;
	return ($server // $node)->safe_psql('postgres',
		"SELECT coalesce(sum(pages), 0) FROM blobext_space WHERE state = '$state'");
}

sub disk_bytes
{
	my ($server) = @_;
	return ($server // $node)->safe_psql('postgres',
		'SELECT coalesce(sum(disk_bytes), 0) FROM blobext_files()');
}

sub live_bytes
{
	return sql('SELECT coalesce(sum(length(b)), 0) FROM (SELECT b FROM v UNION ALL SELECT b FROM w) AS a');
}

# All values of both tables, and the check.
sub is_whole
{
	my ($name, $server) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(($server // $node)->safe_psql('postgres', 'SELECT id FROM (SELECT * FROM v UNION ALL SELECT * FROM w) AS a
		WHERE b::bytea <> bytes(id) OR sha256(b) <> sha256(bytes(id))'), '', "$name: the values of both tables are right");
	check_is_clean($server // $node, "$name: the check finds nothing");
	return;
}

sub kinds_since
{
	my ($lsn) = @_;
	my $function = sql('SHOW server_version_num') < 160_000 ?
	  "pg_get_wal_records_info_till_end_of_wal('$lsn')" :
	  "pg_get_wal_records_info('$lsn', 'FFFFFFFF/FFFFFFFF')";
	return sql(qq(SELECT coalesce(string_agg(DISTINCT record_type, ' ' ORDER BY record_type), '') FROM $function
		WHERE resource_manager = 'blobext' AND record_type ~ 'PUNCH|RESTORE|REMOVE|SEGMENT'));
}

# The format of the map, in its meta page.
sub format_of_map
{
	return sql(q(SELECT get_byte(get_raw_page('blobext_map', 0), 28)));
}

sub standby_of
{
	my ($name) = @_;
	$node->backup($name);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($node, $name, has_streaming => 1);
	$standby->start;
	return $standby;
}

sub crash
{
	kill_everything($node);
	$node->start;
	return;
}

# Kill everything while a process stands still, and start again.
sub crash_with_stops
{
	my ($session) = @_;
	kill_everything($node);
	eval { $session->quit; };
	start_with_stops($node);
	return;
}

sub end_cluster
{
	$_->stop foreach @_, $node;
	foreach my $server (@_, $node)
	{
		unlike(slurp_file($server->logfile), qr/PANIC|TRAP:|terminated by signal/, 'no PANIC in the log');
		$server->clean_node;
	}
	return;
}

# ---- step by step, with a standby ----

start_cluster('steps', '');
my $standby = standby_of('steps_standby');
sql(store('v', 1, 100));
$node->safe_psql('postgres', 'CHECKPOINT');
thin_out('v');
my $lsn = $node->lsn('insert');
gc();
# Seen to fail without the look at completed_redo in blob_store_punch() and in take_resting().
is(pages_of('punched'), 0, 'nothing is punched before a checkpoint');
gc();
is(kinds_since($lsn), '', 'another round punches nothing before a checkpoint either');
cmp_ok(pages_of('free'), '>', 90 * 256, 'resting pages are free');
cmp_ok(disk_bytes(), '>', 95 * MB, 'the files have all of their blocks');
my $allocated = sql('SELECT sum(allocated_bytes), sum(file_bytes - allocated_bytes - free_bytes - pending_bytes)
	FROM blobext_databases');
like($allocated, qr/^\d+\|0$/, 'the columns of blobext_databases add up before pages are punched');

sql('CHECKPOINT');
gc();
is(kinds_since($lsn), 'PUNCH', 'a round after a checkpoint logs PUNCH alone');
cmp_ok(pages_of('punched'), '>', 85 * 256, 'resting pages are punched after a checkpoint');
cmp_ok(disk_bytes(), '<', 1.3 * live_bytes(), 'the files take 1.3 times the content that lives, at most');
cmp_ok(sql('SELECT sum(file_bytes) FROM blobext_files()'), '>', 95 * MB, 'the size of punched files is as before');
is(stat_of($node, 'punched_bytes'), 4096 * pages_of('punched'), 'the counter punched_bytes has the punched pages');
is(sql('SELECT sum(file_bytes - allocated_bytes - free_bytes - pending_bytes) FROM blobext_databases'), 0,
	'the columns of blobext_databases add up after pages were punched');
is_whole('after pages were punched');
$node->wait_for_catchup($standby);
is(pages_of('punched', $standby), pages_of('punched'), 'standby: as many pages are punched');
cmp_ok(disk_bytes($standby), '<', 1.3 * live_bytes(), 'standby: its files have holes, too');
is_whole('standby, punched', $standby);

# Replay of PUNCH would zero them.  Seen to fail with punched pages given to shared->hollow at once.
my $punched = pages_of('punched');
sql(store('w', 1, 12));
is(pages_of('punched'), $punched, 'punched pages are not used before another checkpoint');
is(stat_of($node, 'filled_bytes'), 0, 'no page is filled before another checkpoint');
crash();
is_whole('a crash before the checkpoint');
is(pages_of('punched'), $punched, 'a start after the crash finds the pages punched');
sql('CHECKPOINT', store('w', 13, 60));
cmp_ok(pages_of('punched'), '<', $punched, 'punched pages are filled after another checkpoint');
is(stat_of($node, 'filled_bytes'), 4096 * ($punched - pages_of('punched')), 'the counter filled_bytes has the filled pages');
cmp_ok(sql('SELECT count(*) FROM w, blob_extents(b) AS e WHERE e.first_page < 25000'), '>', 40, 'filled pages hold new values');
is_whole('after pages were filled');
no_page_is_shared($node, 'no page is shared', 'v', 'w');
$node->wait_for_catchup($standby);
is(pages_of('punched', $standby), pages_of('punched'), 'standby: as many pages are filled');
is_whole('standby, filled', $standby);
kill_everything($standby);
crash();
is_whole('filled, then a crash');
$standby->start;
$node->wait_for_catchup($standby);
is_whole('standby, killed', $standby);

# ---- a copy without holes ----

thin_out('w');
give_back();
$node->backup('copy');
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($node, 'copy');
$copy->start;
is(pages_of('punched', $copy), pages_of('punched'), 'a copy knows which pages are punched');
cmp_ok(disk_bytes($copy), '>', disk_bytes() + 50 * MB, 'files of a copy have their blocks: the view asks the file');
is_whole('a copy', $copy);
$copy->safe_psql('postgres', store('w', 101, 140));
cmp_ok(stat_of($copy, 'filled_bytes'), '>', 20 * MB, 'punched pages of a copy are filled');
is_whole('a copy that is written', $copy);
kill_everything($copy);
$copy->start;
is_whole('a copy that is written, then a crash', $copy);
my $before = disk_bytes($copy);
$copy->safe_psql('postgres', 'SELECT * FROM blobext_gc()');
cmp_ok(disk_bytes($copy), '<', $before - 20 * MB, 'the collector makes its other holes');
is_whole('a copy with holes', $copy);
$copy->stop;
$copy->clean_node;

# ---- promotion ----

# The primary fills, the standby replays; it is promoted, fills itself, and is killed before its first
# checkpoint is complete.
sql('CHECKPOINT', store('w', 201, 220));
$node->wait_for_catchup($standby);
$standby->promote;
$standby->safe_psql('postgres', store('w', 221, 240));
kill_everything($standby);
$standby->start;
is_whole('a promoted standby, killed', $standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
$standby->safe_psql('postgres', store('w', 241, 260));
is_whole('a promoted standby', $standby);
$standby->stop;
$standby->clean_node;

# ---- nothing lives ----

$standby = standby_of('empty_standby');
sql('TRUNCATE v, w');
$lsn = $node->lsn('insert');
gc();
is(kinds_since($lsn), 'REMOVE', 'an empty store: the last segment is removed');
is(sql('SELECT count(*) FROM blobext_files()'), 0, 'no file is left');
is(scalar(() = glob(store_dir($node) . '/0*')), 0, 'no file of a segment is in the directory');
is(pages_of('absent'), sql('SELECT sum(pages) FROM blobext_space'), 'all pages of an empty store are absent');
$node->wait_for_catchup($standby);
is(scalar(() = glob(store_dir($standby) . '/0*')), 0, 'standby: no file of a segment is left');
check_is_clean($node, 'empty: the check finds nothing');
check_is_clean($standby, 'standby, empty: the check finds nothing');
crash();
check_is_clean($node, 'empty, then a crash: the check');
sql(store('v', 1, 10));
is_whole('an empty store is used again');
gc();
sql('DELETE FROM v');
gc();
sql('CHECKPOINT');
gc();
is(sql('SELECT count(*) FROM blobext_files()'), 0, 'a store that is empty once more has no file');
sql('CHECKPOINT', store('v', 11, 20));
cmp_ok(sql('SELECT max(segment) FROM blobext_files()'), '<=', 1, 'numbers are used again');
is_whole('a store that was empty twice');
$node->wait_for_catchup($standby);
is_whole('standby, used again', $standby);

# Each removal of the last segment uses up a number until a checkpoint is complete.  Seen to fail
# without the look at removed_lsn in may_remove(): the second one was removed, too.
sql('TRUNCATE v');
gc();
is(sql('SELECT count(*) FROM blobext_files()'), 0, 'the last segment is removed');
sql(store('v', 1, 5));
is(sql('SELECT count(*) FROM blobext_files()'), 1, 'before a checkpoint the store gets another number');
sql('TRUNCATE v');
gc();
is(sql('SELECT count(*) FROM blobext_files()'), 1, 'that one stays while a REMOVE waits for a checkpoint');
sql('CHECKPOINT');
gc();
is(sql('SELECT count(*) FROM blobext_files()'), 0, 'a checkpoint is complete: that one is removed, too');

# ---- a segment with more holes than a record has blocks ----

# Seen to fail without blob_map_join_punched(): the segment stays.
sql('TRUNCATE v, w');
gc();
sql('CHECKPOINT', 'CREATE TABLE e (i int, page bigint)');
sql('INSERT INTO e SELECT i, allocate(300) FROM generate_series(1, 160) AS i');
my $free = q(SELECT free(array_agg(first_page ORDER BY first_page), array_agg(generation ORDER BY first_page), '0')
	FROM blobext_map JOIN e ON page = first_page);
sql("$free WHERE i % 2 = 0", 'SELECT reclaim()', 'CHECKPOINT', 'SELECT reclaim()');
cmp_ok(pages_of('punched'), '>=', 60 * 300, 'each second extent becomes a hole');
check_is_clean($node, 'many holes: the check finds nothing');
sql("$free WHERE i % 2 = 1", 'SELECT reclaim()', 'CHECKPOINT', 'SELECT reclaim()');
sql('CHECKPOINT', 'SELECT reclaim()');
is(sql('SELECT count(*) FROM blobext_files()'), 0, 'the segment is removed');
$node->wait_for_catchup($standby);
is(scalar(() = glob(store_dir($standby) . '/0*')), 0, 'standby: the segment is removed');
check_is_clean($node, 'many holes, removed: the check');
crash();
sql(store('v', 1, 30));
is_whole('many holes, removed, then a crash');
$node->wait_for_catchup($standby);
is_whole('standby: many holes, removed', $standby);
end_cluster($standby);

# ---- a checkpoint makes pending pages free ----

# Not the next round.  Seen to fail with blob_pending_count() in blob_store_pending_pages().
start_cluster('pending', "wal_level = minimal\nmax_wal_senders = 0\n");
sql(store('v', 1, 10));
sql('DELETE FROM v');
sql('INSERT INTO v SELECT 0, bytes(0)');
gc();
cmp_ok(pages_of('pending'), '>=', 10 * 256, 'freed pages wait where content is not logged');
sql('CHECKPOINT');
is(pages_of('pending'), 0, 'after a checkpoint none waits');
is(sql('SELECT sum(pending_bytes) FROM blobext_databases'), 0, 'blobext_databases: after a checkpoint none waits');
end_cluster();

# ---- a crash at each system call ----

# Start a statement, and kill everything when its process has come to this call.
sub stop_at
{
	my ($call, $when, $statement) = @_;
	my ($session) = hold_at($node, $call, $when, $statement);
	# A commit of another session makes the records of the process durable, those that should be it
	# already excepted: PUNCH.
	sql(q(SELECT pg_logical_emit_message(true, '', ''))) if $call ne 'punch';
	crash_with_stops($session);
	is_whole("killed $when $call");
	no_page_is_shared($node, "killed $when $call: no page is shared", 'v', 'w');
	return;
}

# The WAL writer must not flush what the process has not.
start_cluster('stops', "wal_writer_delay = 10s\n");
$standby = standby_of('stops_standby');
$node->stop;
start_with_stops($node);
my $round = 0;
foreach my $when (qw(before after))
{
	# PUNCH is flushed, the first hole is made or not.
	sql('TRUNCATE v, w', store('v', 1, 50), 'CHECKPOINT');
	thin_out('v');
	gc();
	sql('CHECKPOINT');
	# Seen to fail without XLogFlush() in punch_taken().
	stop_at('punch', $when, 'SELECT reclaim()');
	cmp_ok(pages_of('punched'), '>', 30 * 256, "killed $when punch: PUNCH is there");
	# Recovery has made the holes.  Seen to fail without blob_segment_punch() in replay_punch().
	cmp_ok(disk_bytes(), '<', 1.3 * live_bytes() + 16 * MB, "killed $when punch: so are the holes");

	# Some blocks are reserved, or all of them, or they are durable; RESTORE is not there.
	foreach my $call (qw(reserve fsync))
	{
		sql('CHECKPOINT', 'DELETE FROM w');
		$punched = pages_of('punched');
		stop_at($call, $when, store('w', 100, 140));
		is(pages_of('punched'), $punched, "killed $when $call: the pages are punched still");
		sql(store('w', 200 + $round, 209 + $round));
		is_whole("killed $when $call, then stored");
		$round += 10;
	}
	cmp_ok(stat_of($node, 'filled_bytes'), '>', 0, 'the rounds of crashes have filled pages');

	# RESTORE is not there, or is and the pages are not in the free runs.
	sql('CHECKPOINT', 'DELETE FROM w');
	$punched = pages_of('punched');
	stop_at('restore', $when, store('w', 110, 140));
	cmp_ok(pages_of('punched'), $when eq 'before' ? '==' : '<', $punched, "killed $when restore: punched pages");
	sql(store('w', 200 + $round, 209 + $round));
	is_whole("killed $when restore, then stored");
	$round += 10;

	# REMOVE of the last segment is flushed.
	sql('TRUNCATE v, w');
	stop_at('unlink', $when, 'SELECT * FROM blobext_gc()');
	sql(store('v', 300, 310));
	is_whole("killed $when unlink, then stored");
	is(scalar(() = glob(store_dir($node) . '/0*')), 1, 'one file is there');
}
$node->wait_for_catchup($standby);
is_whole('standby: all these crashes', $standby);

# ---- others go on while a process stands still ----

# Between PUNCH and the holes.  A checkpoint completes, so that the pages could be filled: then the
# holes would be made in new values.  Seen to fail without the growth lock in punch_some().
sql('TRUNCATE v, w', store('v', 1, 50), 'CHECKPOINT');
thin_out('v');
gc();
sql('CHECKPOINT');
my ($holder, $held) = hold_at($node, 'punch', 'before', 'SELECT reclaim()');
sql('CHECKPOINT');
my ($other, $waits) = start_waiting($node, 'LWLock', store('w', 400, 430));
is($waits, 1, 'a store waits for the holes');
let_go($held, $holder, $other);
is_whole('stored while holes were made');
is(sql('SELECT count(*) FROM w'), 31, 'all rows are there');

# A checkpoint has begun and is not complete: a crash would begin with the one before.  Seen to fail
# with the redo pointer of the one that has begun in blob_store_completed_redo().
sql('TRUNCATE v, w', store('v', 1, 50), 'CHECKPOINT');
thin_out('v');
gc();
sql('CREATE TABLE dirty AS SELECT i, repeat(i::text, 1000) FROM generate_series(1, 20000) AS i');
$punched = pages_of('punched');
($other, $waits) = start_waiting($node, 'IPC', q(SELECT pg_backup_start('spread', false)));
$node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_stat_activity
	WHERE backend_type = 'checkpointer' AND wait_event = 'CheckpointWriteDelay'))
  or die 'the checkpoint does not pause';
sql('SELECT reclaim()');
is(pages_of('punched'), $punched, 'a checkpoint that is not complete makes no page ready for holes');
sql('CHECKPOINT', 'SELECT reclaim()');
cmp_ok(pages_of('punched') - $punched, '>', 30 * 256, 'one that is complete does');
let_go($$, $other);

# While blocks are reserved, or before RESTORE is logged.  Seen to fail with give_filled() before
# blob_segment_fill(), and with give_filled() before log_filled().
foreach my $call (qw(reserve restore))
{
	sql('TRUNCATE v, w', store('v', 1, 50), 'CHECKPOINT');
	thin_out('v');
	gc();
	sql('CHECKPOINT', 'SELECT reclaim()', 'CHECKPOINT');
	($holder, $held) = hold_at($node, $call, 'before', store('w', 500, 530));
	($other, $waits) = start_waiting($node, 'LWLock', store('w', 531, 531));
	is($waits, 1, "no other process gets pages before $call");
	let_go($held, $holder, $other);
	is_whole("stored while holes were filled: $call");
}

# Holes take long, with pauses: they are made as long as no other process waits.  Seen to fail with
# blob_store_punch() to the end.
sql('TRUNCATE v, w');
give_back();
sql(store('v', 1, 160), 'CHECKPOINT', 'DELETE FROM v WHERE id % 2 = 0');
gc();
sql('CHECKPOINT');
$punched = pages_of('punched');
($holder, $held) = hold_at($node, 'punch', 'before', 'SELECT skipped_reason FROM blobext_gc()');
($other, $waits) = start_waiting($node, 'Lock', 'BEGIN; LOCK TABLE blobext_map IN SHARE MODE; COMMIT');
is($waits, 1, 'another process waits for the map');
kill('CONT', $held);
$holder->{run}->pump until $holder->{stdout} =~ /over/;
cmp_ok(pages_of('punched') - $punched, '<', 30 * 256, 'the collector gives way after a few holes');
let_go($held, $holder, $other);
gc();
cmp_ok(pages_of('punched') - $punched, '>', 50 * 256, 'the next round makes the others');
is_whole('holes in two rounds');
$node->wait_for_catchup($standby);
is_whole('standby: others went on', $standby);
end_cluster($standby);

# A fill that begins in one segment file and ends in the next: both are durable before RESTORE is
# logged.  Seen to fail without the sync_reservation() between two files in reserve_parts().
start_cluster('two_files', "blobext.keep_free = 0\n");
$node->stop;
start_with_stops($node);
my $pages = SEGMENT / 4;
sql('SELECT allocate(' . (SEGMENT - $pages / 2) . ')', "SELECT allocate($pages)", 'SELECT allocate(1)');
my $crossing = 'first_page BETWEEN ' . (SEGMENT - $pages) . ' AND ' . (SEGMENT - 1);
is(sql("SELECT sum(pages) FROM blobext_map WHERE $crossing"), $pages, 'an extent lies in two files');
sql("SELECT free(array[first_page], array[generation], '0') FROM blobext_map WHERE $crossing",
	('CHECKPOINT', 'SELECT reclaim()') x 2, 'CHECKPOINT');
cmp_ok(pages_of('punched'), '>=', $pages, 'a hole lies in two files');
($holder, $held) = hold_at($node, 'fsync', 'before', "SELECT allocate($pages)");
hold_again($holder, $held, 'fsync', 'before');
hold_again($holder, $held, 'restore', 'before');
let_go($held, $holder);
is(sql("SELECT sum(pages) FROM blobext_map WHERE $crossing"), $pages, 'the hole is filled');

# Pages that are punched and pages that are absent, side by side, are one run: the end of the first
# segment, and all of the second.  Seen to fail as long as each had sets of its own: the extent was
# put behind the hole.
sql("SELECT free(array_agg(first_page ORDER BY first_page), array_agg(generation ORDER BY first_page), '0')
	FROM blobext_map WHERE first_page > 0", ('SELECT reclaim()', 'CHECKPOINT') x 3);
is(pages_of('absent'), SEGMENT, 'the second segment is absent');
is(pages_of('punched'), $pages / 2, 'the end of the first one is punched');
check_is_clean($node, 'punched and absent, side by side: the check');
($holder, $held) = hold_at($node, 'fsync', 'before', "SELECT allocate($pages)");
crash_with_stops($holder);
is(pages_of('absent') . ' ' . pages_of('punched'), SEGMENT . ' ' . $pages / 2, 'killed on the way: both are hollow still');
sql("SELECT allocate($pages)");
is(sql("SELECT sum(pages) FROM blobext_map WHERE $crossing"), $pages, 'both are filled as one run');
is(stat_of($node, 'filled_bytes'), $pages / 2 * 4096, 'filled_bytes: those of the hole');
is(sql('SELECT sum(bytes), sum(file_bytes) FROM blobext_files()'),
	join('|', (SEGMENT + $pages / 2) * 4096, (SEGMENT + $pages / 2) * 4096), 'the second file ends with the extent');
check_is_clean($node, 'filled as one run: the check');
kill_everything($node);
start_with_stops($node);
check_is_clean($node, 'filled as one run, then a crash: the check');
is(pages_of('absent'), SEGMENT - $pages / 2, 'the rest is absent');
end_cluster();

# ---- a file that is lost ----

# A hole is filled in its file only: a file that was made anew, or made longer, would have zeros
# where others read an error.  Seen to fail as long as fill_runs() did not look at the file: one that
# was too short was made longer.
start_cluster('lost', '');
sql(store('v', 1, 60), 'CHECKPOINT');
thin_out('v');
give_back();
sql('CHECKPOINT');
my $file = segment_file($node, 0);
my $needs_growth = 'SELECT allocate(2000)';
$punched = pages_of('punched');
cmp_ok(sql(q(SELECT max(pages) FROM blobext_space WHERE state = 'free')), '<', 2000, 'the next value needs a hole');
system_or_bail('cp', '--sparse=always', '-p', $file, "$file.copy");
foreach my $length (MB, 0)
{
	truncate($file, $length) or die $!;
	fails_with($node, $needs_growth, 'XX001', qr/blob segment file .* is too short.*Restore the file/s,
		"a file of $length bytes: its holes are not filled");
	is(-s $file, $length, "a file of $length bytes is not made longer");
}
unlink $file or die $!;
fails_with($node, $needs_growth, '58P01', qr/blob segment file .* is missing.*Restore the file/s,
	'a file that is missing: its holes are not filled');
ok(!-e $file, 'a file that is missing is not made anew');
is(pages_of('punched'), $punched, 'the pages are punched still');
rename("$file.copy", $file) or die $!;
sql($needs_growth);
cmp_ok(pages_of('punched'), '<', $punched, 'the file is back: they are filled');
is_whole('the file is back');
end_cluster();

# ---- settings, and by itself ----

start_cluster('settings', "blobext.keep_free = -1\nblobext.page_checksums = off\n");
sql(store('v', 1, 60), 'CHECKPOINT');
thin_out('v');
$lsn = $node->lsn('insert');
give_back();
gc();
is(kinds_since($lsn), '', 'keep_free = -1: nothing is punched');
is(format_of_map(), 1, 'keep_free = -1: an older library can read the map');
# Seen to fail with blob_map_raise_format() in remove_taken().
sql('TRUNCATE v');
gc();
is(kinds_since($lsn), 'REMOVE', 'keep_free = -1: a segment without content is removed');
sql('CHECKPOINT', store('v', 1, 60), 'CHECKPOINT');
like(kinds_since($lsn), qr/^REMOVE RESTORE/, 'keep_free = -1: it is restored');
is_whole('keep_free = -1: restored');
is(format_of_map(), 1, 'keep_free = -1: still an older library can read the map');
thin_out('v');
sql(q(ALTER SYSTEM SET blobext.keep_free = '1GB'), q(ALTER SYSTEM SET blobext.autogc_naptime = '1s'),
	q(ALTER SYSTEM SET blobext.autogc = on), q(ALTER SYSTEM SET blobext.autogc_threshold = 0), 'SELECT pg_reload_conf()');
ok($node->poll_query_until('postgres', 'SELECT sum(disk_bytes) < 1.3 * 6 * 1024 * 1024 FROM blobext_files()'),
	'the collector gives space back by itself');
is(format_of_map(), 2, 'a map with holes has format 2');
sql('TRUNCATE v');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM blobext_files()'), 'the collector removes the files of an emptied store by itself');
is_whole('after the collector came by itself');
end_cluster();

# ---- with the defaults ----

# bench/holes says how long it takes.  (blob_cluster() has other settings.)
$node = blob_cluster('defaults', conf => "autovacuum_naptime = 1min\nwal_level = replica\n"
	  . "blobext.autogc = on\nblobext.cache_size = -1\n");
make_objects();
sql(store('v', 1, 300));
sql('SELECT setseed(0.17)', 'DELETE FROM v WHERE random() < 0.9');
my $deleted_at = time;
ok($node->poll_query_until('postgres', 'SELECT (SELECT sum(disk_bytes) FROM blobext_files()) <= 1.3 * sum(length(b)) FROM v'),
	'after 90 % at random were deleted, the files take 1.3 times the content that lives, at most');
note('after ' . (time - $deleted_at) . ' s');
cmp_ok(live_bytes(), '>', 10 * MB, 'with the defaults: a tenth lives');
is_whole('with the defaults');
end_cluster();

# ---- a full disk ----

SKIP:
{
	my $small = $ENV{BLOBEXT_SMALL_FS};
	skip 'no small file system: start this test with test/run tap as root', 20 unless defined $small;
	power('format');
	mkdir "$small/store", 0700 or die "cannot make $small/store: $!";
	$node = blob_cluster('full', streaming => 1, conf => "${calm}blobext.min_free_disk = 0\n", start => 0);
	symlink "$small/store", $node->data_dir . '/pg_blobext' or die "symlink: $!";
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION blobext');
	make_objects();
	sql(store('v', 1, 100), 'CHECKPOINT');
	thin_out('v');
	give_back();
	sql('CHECKPOINT');
	my $left = sub { my ($line) = (split /\n/, `df -B1 --output=avail $small`)[1]; return $line + 0; };
	system_or_bail('fallocate', '-l', $left->() - 8 * MB, "$small/filler");
	$before = $left->();
	$punched = pages_of('punched');
	# One run that is longer than the free space.  Seen to fail without blob_segment_punch() in give_back().
	fails_with($node, 'SELECT allocate(2200)', '53100', qr/could not reserve space for blob content/,
		'no room to fill a hole');
	cmp_ok($left->(), '>', $before - MB, 'the blocks that were reserved are given back');
	is(pages_of('punched'), $punched, 'the pages are punched still');
	fails_with($node, store('w', 1, 40), '53100', qr/could not reserve space for blob content.*Check free disk space/s,
		'no room to fill the holes');
	cmp_ok(abs($left->() - $before), '<', 9 * MB, 'the space is given back, but for the values that fitted');
	is_whole('a full disk');
	is(sql('SELECT count(*) FROM w'), 0, 'no row of it');
	gc();
	sql('CHECKPOINT');
	crash();
	is_whole('a full disk, then a crash');
	unlink "$small/filler";
	sql(store('w', 1, 40));
	is_whole('with room again');
	cmp_ok(pages_of('punched'), '<', $punched, 'the holes are filled');
	no_page_is_shared($node, 'no page is shared', 'v', 'w');

	# The same with a segment that has no file.  Seen to fail without truncate() in give_back().
	sql('TRUNCATE v, w');
	gc();
	sql('CHECKPOINT');
	my $absent = pages_of('absent');
	is($absent, sql('SELECT sum(pages) FROM blobext_space'), 'all pages of the store are absent');
	system_or_bail('fallocate', '-l', $left->() - 8 * MB, "$small/filler");
	$before = $left->();
	fails_with($node, 'SELECT allocate(2200)', '53100', qr/could not reserve space for blob content/,
		'no room to fill a segment');
	cmp_ok($left->(), '>', $before - MB, 'the blocks that were reserved in its file are given back');
	is(pages_of('absent'), $absent, 'the pages are absent still');
	check_is_clean($node, 'no room to fill a segment: the check');
	unlink "$small/filler";
	sql(store('w', 1, 40));
	is_whole('with room for a segment again');
	end_cluster();
}

# ---- power cuts ----

SKIP:
{
	my $why_not = why_no_lossy_disk();
	skip $why_not, 8 if $why_not ne '';
	foreach my $kept (0, 500)
	{
		$node = lossy_cluster("cut_$kept", 'store', streaming => 1, conf => $calm);
		make_objects();
		sql(store('v', 1, 60), 'CHECKPOINT');
		thin_out('v');
		give_back();
		cmp_ok(pages_of('punched'), '>', 40 * 256, 'pages are punched before the power is cut');
		note(cut_lossy_disk($kept, 0, 1, $node));
		$node->start;
		is_whole("a cut after PUNCH, $kept of 1000 writes kept");
		# Blocks are durable before RESTORE is.  The cut comes before the syncer is done.
		sql('CHECKPOINT', store('w', 1, 30));
		cmp_ok(stat_of($node, 'filled_bytes'), '>', 0, 'punched pages are filled before the power is cut');
		note(cut_lossy_disk($kept, 0, 2, $node));
		$node->start;
		is_whole("a cut after RESTORE, $kept of 1000 writes kept");
		is(sql('SELECT count(*) FROM w'), 30, 'all rows are there');
		sql('TRUNCATE v, w');
		gc();
		note(cut_lossy_disk($kept, 0, 3, $node));
		$node->start;
		check_is_clean($node, 'a cut after REMOVE of the last segment: the check');
		sql(store('w', 1, 5));
		is_whole('a cut after REMOVE, then stored');
		end_cluster();
	}
}

done_testing();
