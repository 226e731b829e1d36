# Writes that are left to the syncer: every reader takes dirty pages from the buffer; the syncer writes
# them before checkpoints go on, and never over newer content.
#
# The syncer is stopped (SIGSTOP) where pages must stay dirty.  The buffer is small, and other content
# is read meanwhile (make_cold()), so that it keeps nothing but dirty pages.  Parts:
#
#	- reads of all kinds while pages are dirty, and when they have been written; appends and changes
#	  to such values; chunks that are dirty in part; a stream whose last extent gets short when it
#	  ends,
#	- as much is dirty as may be,
#	- readers and writers at once, while the syncer writes,
#	- pages of an aborted transaction that are freed and stored over,
#	- a store that is dropped while pages of it are dirty,
#	- the syncer is terminated, it sleeps; the server is stopped, all processes are killed,
#	- the files are taken away, and brought back,
#	- sequences, with requests ahead,
#	- pages that are not logged, of a transaction that goes on, and of one that is rolled back,
#	- power cuts: after a checkpoint; after a commit that synced by itself, and a checkpoint; before
#	  the syncer has written, which it then cannot do.
#
# Seen to fail: with readable_bytes() that ignores dirty ranges, the reads and the load; with dirty
# slabs that have no pin, the reads after make_cold(); without blob_buffer_flush_extent() in
# fit_last_extent(), the stream; with blob_dirty_remove_slab() in mark(), before the write, and with
# finish_items() that takes pages out of the list that were added meanwhile, the load; without
# blob_dirty_write_all() in sync_listed(), the restart after the load, the end of the syncer and the
# shutdown; with blob_dirty_end_removal() that forgets nothing, and without blob_syncer_forget(), the
# dropped store; with a file that is missing and no error in matters() and finish_taken(), the files
# that are taken away; without the call in blob_segment_remove_dir() after the last file, the store
# that has lost its files; without blob_invalid_segments_removed() in replay_drop(), the start after
# the dropped store; without blob_dirty_write_segment() in blob_segment_sync(), the second power cut;
# without blob_dirty_close() in at_exit() and end_holding(), the pages that are left to a syncer that
# has ended, or sleeps; without blob_dirty_write_unlogged() in write_if_due(), or without only_unlogged
# in blob_dirty_matches(), the pages that are not logged.
use strict;
use warnings;

use FindBin;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

use lib $FindBin::RealBin;
use BlobTest;

my $node;
my $conf = "wal_level = replica\nmax_wal_senders = 0\nautovacuum = off\ncheckpoint_timeout = 1h\n";

my $schema = q(
-- o: the expected content of b.
CREATE TABLE t (id int PRIMARY KEY, b blobstate, o bytea);
CREATE FUNCTION bytes(n int, seed int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR n)
	FROM generate_series(1, (n + 31) / 32) i $$;
CREATE PROCEDURE store(row_id int, n int) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t SELECT row_id, x, x FROM bytes(n, row_id) x
		ON CONFLICT (id) DO UPDATE SET b = t.b || excluded.o, o = t.o || excluded.o;
	COMMIT;
END $$;
CREATE VIEW damaged AS SELECT id FROM t WHERE length(b) <> length(o) OR sha256(b) <> sha256(o) OR b::bytea <> o;
);

sub start_cluster
{
	my ($name, $more) = @_;
	$node = blob_cluster($name, conf => $conf . ($more // ''));
	$node->safe_psql('postgres', $schema);
	return;
}

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub counter
{
	my ($counter) = @_;
	return stat_of($node, $counter);
}

# Stop the syncer while it takes pages; some are dirty then.  Or, with stores that bypass the buffer,
# while it takes segments; one is on its list then that it has not synced.  Returns its pid.
my $last_id = 1000;

sub stop_now
{
	my ($database, $is_large) = @_;
	my $bytes = $is_large ? 600 * 4096 : 5_000;
	my $id = $last_id++;
	return stop_syncer($node, $is_large ? 'syncs_handed_over' : 'deferred_pages',
		sub { $node->safe_psql($database // 'postgres', "CALL store($id, $bytes)") });
}

sub all_is_written
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres',
			q(SELECT value = 0 FROM blobext_stat WHERE name = 'pending_deferred_pages')), $name);
}

# If the syncer waits for a file, so does the next checkpoint, without end.
sub waits_for_nothing
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', q(SELECT state = 'idle' AND xact_start IS NULL
		AND (SELECT value = 0 FROM blobext_stat WHERE name = 'pending_deferred_pages')
		FROM pg_stat_activity WHERE backend_type = 'blobext syncer')), $name) || die;
}

sub is_whole
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($result, $stdout, $stderr) = $node->psql('postgres', 'SELECT * FROM damaged');
	return is($stdout . $stderr, '', $name);
}

# All kinds of reads.
sub reads_are_right
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $export = "$PostgreSQL::Test::Utils::tmp_check/export";
	return subtest $name => sub {
		is_whole('whole values read as the bytea beside them');
		is(sql(q(SELECT id, s, l FROM t, generate_series(0, length(o), 2777) s,
			unnest('{1, 100, 4096, 9000, 70000}'::int[]) l
			WHERE blob_read(b, s, l) <> substr(o, s + 1, l))), '', 'ranges read as substrings of the bytea beside them');
		is(sql(q(SELECT id FROM t WHERE (SELECT string_agg(data, '' ORDER BY chunk_no)
			FROM blob_chunks(b, 10000)) <> o)), '', 'chunks together are the bytea beside them');
		is(sql(q(SELECT id FROM t WHERE b <> o
			OR b >= overlay(o PLACING '\xff' FROM length(o)) AND substr(o, length(o)) <> '\xff'
			OR b <= substr(o, 1, length(o) - 1))), '', 'values compare as the bytea beside them');
		is(sql(qq(SELECT id FROM t WHERE id < 10 AND (blob_export(b, '$export.' || id) <> length(o)
			OR pg_read_binary_file('$export.' || id) <> o))), '', 'exported files have the bytes of the bytea beside them');
		is(sql(q(SELECT id FROM t WHERE length(o) >= 5000 AND blob_insert(b, 5000, '\x01')::bytea <>
			substr(o, 1, 5000) || '\x01' || substr(o, 5001))), '', 'changes in the middle give what the bytea gives');
		check_is_clean($node, 'the check finds nothing beside the reads');
	};
}

# Read other content of several times the buffer's size, so often that slabs that are not dirty lose
# theirs.
sub make_cold
{
	sql('SELECT sum(octet_length(b::bytea)) FROM filler, generate_series(1, 8)');
	return;
}

# ---- reads ----

# At most half of the buffer is dirty, 1,024 pages; a write of more than a quarter of it bypasses it.
start_cluster('reads', 'blobext.cache_size = 8MB');
sql('CREATE TABLE filler (b blobstate);
	INSERT INTO filler SELECT bytes(1000000, i) FROM generate_series(1, 12) i');
sql("CALL store($_, 2500000)") foreach (1, 2);
# Chunks that have clean pages, which only the file has, and then dirty ones.
sql("CALL store(1, $_)") foreach (30000, 30000);
sql('CALL store(3, 20000); CALL store(3, 20000); CHECKPOINT');
make_cold();
my $pid = stop_now();
my ($pages, $writes) = (counter('pending_deferred_pages'), counter('io_writes'));
sql("CALL store(1, $_)") foreach (map { 3000 + 50 * $_ } 1 .. 12);
sql("CALL store(3, 1); CALL store(3, $_)") foreach (7000, 4096, 3000, 20000, 32768);
sql("CALL store(4, 20000)");
# A stream of unknown length: the last extent gets shorter when it ends, so that readers look for
# chunks of another size.
my $written = counter('deferred_writes');
sql("INSERT INTO t SELECT 5, blob_agg(x ORDER BY n DESC), string_agg(x, '' ORDER BY n DESC)
	FROM unnest('{1052672, 9000}'::int[]) n, bytes(n, 5) x");
is(sql('SELECT array_agg(pages ORDER BY extent_no) FROM blob_extents((SELECT b FROM t WHERE id = 5))'),
	'{1,2,4,8,16,32,64,128,5}', 'a stream ends with a short extent');
is(counter('deferred_writes'), $written + 1, 'pages of an extent that gets short are written');
cmp_ok(counter('pending_deferred_pages'), '>', $pages + 290, 'small writes are left to the syncer');
is(counter('io_writes'), $writes + 1, 'nobody but the syncer writes others');
my $reads = counter('io_reads');
is(sql('SELECT b::bytea = o FROM t WHERE id = 4'), 't', 'a value that only memory has reads right');
is(counter('io_reads'), $reads, 'a value that only memory has is read without the device');
cmp_ok(counter('deferred_page_reads'), '>=', 3, 'dirty pages are read from the buffer chunk by chunk');
make_cold();
$reads = counter('io_reads');
is(sql('SELECT b::bytea = o FROM t WHERE id = 4'), 't', 'a deferred value beside others that are read');
is(counter('io_reads'), $reads, 'dirty pages stay in memory whatever is read');
reads_are_right('reads while pages are unwritten');
cmp_ok(counter('io_reads'), '>', $reads, 'pages before and behind them are read from the device');
sql("CALL store(1, $_)") foreach (100000, 3000, 200);
sql("UPDATE t SET b = blob_write(b, 4000, '\\x0102'), o = overlay(o PLACING '\\x0102' FROM 4001)
	WHERE id IN (1, 3, 4)");
sql("UPDATE t SET b = blob_truncate(b, 12345) || b, o = substr(o, 1, 12345) || o WHERE id = 3");
make_cold();
reads_are_right('changes of values with deferred pages');
sql(q(DO $$ BEGIN FOR i IN 20001 .. 21500 LOOP CALL store(i, 4096 + i % 2000);
	END LOOP; END $$));
cmp_ok(counter('pending_deferred_pages'), '>', 700, 'most of the dirty slabs are dirty in whole');
cmp_ok(counter('pending_deferred_pages'), '<=', 1024, 'no more than half of the buffer is dirty');
is_whole('some are written by who stores them');
$written = counter('deferred_writes');
kill('CONT', $pid);
all_is_written('the syncer writes what there was');
cmp_ok(counter('deferred_writes') - $written, '<', 1024 / 4, 'neighbours in one request');
sql('CHECKPOINT');
make_cold();
is_whole('all is read from the files');
reads_are_right('after the syncer has written all, values read right in all ways');
sql('DELETE FROM t WHERE id > 20000');

# ---- readers and writers at once ----

sub start_client
{
	my ($name, @statements) = @_;
	my $file = "$PostgreSQL::Test::Utils::log_path/$name";
	my $client = fork() // die "fork: $!";
	return $client if $client;

	open(my $out, '>', "$file.sql") or POSIX::_exit(126);
	print $out @statements;
	close $out;
	open(STDOUT, '>', "$file.out");
	open(STDERR, '>', "$file.err");
	exec('psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', "$file.sql") or POSIX::_exit(127);
}

my @clients;
foreach my $no (1 .. 3)
{
	push @clients, start_client("writer$no", map { my $id = 30000 + 10 * $no + int(rand(3));
		"CALL store($id, " . (4000 + int(rand(5000))) . ");\n" } 1 .. 3000);
	push @clients, start_client("reader$no", map { "SELECT id FROM t WHERE id BETWEEN 30000 AND 31000
		AND blob_read(b, greatest(0, length(b) - 20000), 20000) <> substr(o, greatest(1, length(o) - 19999));
		SELECT 'read';\n" } 1 .. 20000);
	# Slabs that are not dirty are soon taken for other content.
	push @clients, start_client("other$no", map { "SELECT sum(octet_length(b::bytea)) FROM filler;\n" } 1 .. 20000);
}
sleep(4);
kill('TERM', @clients);
waitpid($_, 0) foreach @clients;
my $found = join('', map { slurp_file("$PostgreSQL::Test::Utils::log_path/reader$_.out") } 1 .. 3);
cmp_ok(($found =~ s/^read\n//mg), '>', 100, 'readers have read more than a hundred times');
is($found, '', 'readers beside the syncer have seen nothing wrong');
is_whole('values are whole after the load of readers and writers');
$node->restart;
is_whole('load, when nothing is in memory any more');
sql('DELETE FROM t WHERE id > 20000');

# ---- pages of aborted transactions ----

# Free garbage; the second round makes pages available that the checkpoint has covered.
sub free
{
	sql('VACUUM t; SELECT * FROM blobext_gc(); CHECKPOINT');
	sql('BEGIN; INSERT INTO t SELECT 40000, bytes(40000, 0); ROLLBACK; VACUUM t; SELECT * FROM blobext_gc()');
	return;
}

sql('CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION blobext; $schema");
free();
all_is_written('the syncer has written all');
sleep(0.5);
$pid = stop_now('other');	# the segments on its list are of another store
$pages = counter('deferred_pages');
my $extents = 'SELECT int8multirange(VARIADIC array_agg(int8range(first_page, first_page + pages)))
	FROM t, blob_extents(b) WHERE id';
my $aborted = sql("BEGIN; INSERT INTO t SELECT 50000 + i, bytes(32000, i) FROM generate_series(1, 50) i;
	$extents > 50000; ROLLBACK");
is(counter('deferred_pages') - $pages, 400, 'writes that are aborted');
kill('CONT', $pid);
free();
sql('SET blobext.background_sync = off;
	DO $$ BEGIN FOR i IN 60001 .. 60060 LOOP CALL store(i, 32000); END LOOP; END $$');
is(sql("SELECT ($extents > 60000) && '$aborted'"), 't', 'pages of aborted deferred writes are used again after a checkpoint');
all_is_written('the syncer has written all');
is_whole('aborted deferred writes are not written over new values');

# ---- a store is dropped ----

$pid = stop_now();
my $unwritten = counter('pending_deferred_pages');
$node->safe_psql('other', 'CALL store(1, 20000); CALL store(2, 50000)');
is(counter('pending_deferred_pages'), $unwritten + 5 + 13, 'the store that is to be dropped has deferred pages');
my $directories = () = glob($node->data_dir . '/pg_blobext/*.*');
is($directories, 2, 'there are directories of two stores');
$node->safe_psql('other', 'DROP EXTENSION blobext CASCADE');
$node->append_conf('postgresql.conf', "blobext.autogc = on\nblobext.autogc_naptime = 1s");
$node->reload;
for (1 .. 100)
{
	$directories = () = glob($node->data_dir . '/pg_blobext/*.*');
	last if $directories == 1;
	sleep(0.1);
}
is($directories, 1, 'the directory of the dropped store is removed');
is(counter('pending_deferred_pages'), $unwritten, 'the deferred pages of the dropped store are gone');
kill('CONT', $pid);
waits_for_nothing('the syncer does not miss a removed directory that it has listed');
is_whole('values of the other store are whole');

# The same after all its files were lost: then none is left whose removal the syncer could be told.
sql('CREATE DATABASE emptied');
$node->safe_psql('emptied', "CREATE EXTENSION blobext; $schema");
$pid = stop_now();
$unwritten = counter('pending_deferred_pages');
$node->safe_psql('emptied', 'CALL store(1, 20000)');
is(counter('pending_deferred_pages'), $unwritten + 5, 'deferred pages of a store');
my $oid = sql(q(SELECT oid FROM pg_database WHERE datname = 'emptied'));
my ($emptied) = glob($node->data_dir . "/pg_blobext/$oid.*");
is(unlink(glob("$emptied/*")), 1, 'all files of the store are deleted');
$node->safe_psql('emptied', 'DROP EXTENSION blobext CASCADE');
for (1 .. 100)
{
	last if !-e $emptied;
	sleep(0.1);
}
ok(!-e $emptied, 'that has lost its files and is dropped');
is(counter('pending_deferred_pages'), $unwritten, 'deferred pages of a store whose files were lost are forgotten when it is dropped');
kill('CONT', $pid);
waits_for_nothing('the syncer does not wait for files of a dropped store');
$node->append_conf('postgresql.conf', 'blobext.autogc = off');

# Replay finds no files for the content, then the record of their removal.
kill_everything($node);
unlink $node->data_dir . '/postmaster.pid';
$node->start;
is_whole('the other store, after a crash');

# ---- ends ----

# It comes back after a second, and would be woken up.
my $before;
for (1 .. 20)
{
	$pid = stop_now();
	sql('CALL store(4, 9000)');
	kill('TERM', $pid);
	kill('CONT', $pid);
	all_is_written('a syncer that is terminated leaves nothing behind');
	$before = counter('deferred_pages');
	sql('CALL store(4, 9000)');
	last if sql(q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'blobext syncer')) eq '0';
}
is(counter('deferred_pages'), $before, 'nothing is left to a syncer that was terminated');
is_whole('values are whole after the end of the syncer');

# A small write is not left to the syncer, since it does not hold checkpoints up.
sub nothing_is_left
{
	my ($name) = @_;
	my $before = counter('deferred_pages');
	sql('CALL store(4, 9000)');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(counter('deferred_pages'), $before, $name);
}

kill('CONT', stop_now());
ok($node->poll_query_until('postgres', q(SELECT state = 'idle' AND xact_start IS NULL
	FROM pg_stat_activity WHERE backend_type = 'blobext syncer')), 'the syncer goes to sleep');
$pid = sql(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'blobext syncer'));
kill('STOP', $pid);
nothing_is_left('one that sleeps, and does not wake up, gets nothing');
kill('CONT', $pid);

$pid = stop_now();
sql('CALL store(4, 9000)');
my $postmaster = $node->{_pid};
system_log('pg_ctl', '-W', '-m', 'fast', '-D', $node->data_dir, 'stop');
kill('CONT', $pid);
wait_for_end($postmaster);
$node->{_pid} = undef;
$node->start;
is_whole('values that were dirty at a fast shutdown are whole');

stop_now();
sql('CALL store(4, 9000)');
kill_everything($node);
unlink $node->data_dir . '/postmaster.pid';
$node->start;
is_whole('values that were dirty when all processes were killed are whole');
check_is_clean($node, 'the check finds nothing');

# ---- the files are taken away, and brought back ----

# By then the syncer must not have opened them.
sub stop_new
{
	my ($is_large) = @_;
	sql(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'blobext syncer'));
	return stop_now('postgres', $is_large);
}

my $directory = store_dir($node);

# A checkpoint that has been asked for; is it complete?
sub begin_checkpoint
{
	my $session = $node->background_psql('postgres');
	$session->query_until(qr/sent/, "\\echo sent\nCHECKPOINT;\n");
	return $session;
}

# When the files are taken away, the syncer has yet to write pages, or to sync a segment.  The
# syncer waits, and so do checkpoints.  Other processes go on.
sub take_files_away
{
	my ($is_large) = @_;
	my $offset = -s $node->logfile;

	$pid = stop_new($is_large);
	is(counter('pending_deferred_pages') > 0, !$is_large, 'pages are deferred unless the store bypasses the buffer');
	rename($directory, "$directory.away") or die $!;
	kill('CONT', $pid);
	for (1 .. 100)
	{
		last if $node->log_contains('WARNING:  blob segment file', $offset);
		sleep(0.1);
	}
	ok($node->log_contains(qr/WARNING:  blob segment file ".*" is missing/, $offset), 'the log warns that a segment file is missing');
	my $checkpoint = begin_checkpoint();
	sleep(0.5);
	ok(!$node->log_contains('checkpoint complete', $offset), 'a checkpoint waits while the files are away');
	is(sql(q(SELECT query FROM pg_stat_activity WHERE backend_type = 'blobext syncer')),
		'blobext: waiting for a segment file that is missing', 'the syncer is shown as waiting for a missing segment file');
	is(sql('CREATE TABLE beside AS SELECT 1; DROP TABLE beside; SELECT min(id) FROM t'), '1',
		'other sessions go on while the files are away');
	return ($offset, $checkpoint);
}

sub bring_files_back
{
	rename("$directory.away", $directory) or die $!;
	return;
}

foreach my $is_large (0, 1)
{
	my ($offset, $checkpoint) = take_files_away($is_large);
	bring_files_back();
	$checkpoint->query_safe('SELECT 1');
	$checkpoint->quit;
	ok($node->log_contains('checkpoint complete', $offset), 'the checkpoint goes on when the files are back');
	kill_everything($node);
	unlink $node->data_dir . '/postmaster.pid';
	$node->start;
	is_whole('values are whole after the files came back and the server was killed');

	# A shutdown cannot wait, nor does kill -9; so the server recovers at its next start.
	foreach my $is_kill (0, 1)
	{
		($offset, $checkpoint) = take_files_away($is_large);
		if ($is_kill)
		{
			kill_everything($node);
		}
		else
		{
			my $postmaster = $node->{_pid};
			system_log('pg_ctl', '-W', '-m', 'fast', '-D', $node->data_dir, 'stop');
			wait_for_end($postmaster);
			$node->{_pid} = undef;
			ok($node->log_contains(qr/PANIC:  blob segment file ".*" is missing/, $offset),
				'a shutdown while the files are away ends with a PANIC');
		}
		$checkpoint->{run}->kill_kill;
		unlink $node->data_dir . '/postmaster.pid';
		ok(!$node->start(fail_ok => 1), 'without the files the server does not start');
		ok($node->log_contains(qr/FATAL:  replay has not found all blob segment files/, $offset),
			'the log says why the server does not start without the files');
		ok(!-e $directory, 'a server that does not start makes no files anew');
		bring_files_back();
		$node->start;
		is_whole('the files are back');
	}
	check_is_clean($node, 'the check finds nothing');
}

# ---- in sequence, with requests ahead ----

$node->append_conf('postgresql.conf', 'blobext.cache_size = 64MB');
$node->restart;
sql('CALL store(7, 1000000)');
$node->restart;				# so the content is in the file alone
$pid = stop_now();
sql('DO $$ BEGIN FOR i IN 1 .. 60 LOOP CALL store(7, 3000); END LOOP; END $$');
my $ahead = counter('read_ahead_bytes');
is(sql(q(SELECT string_agg(data, '' ORDER BY chunk_no) = o FROM t, blob_chunks(b, 65536)
	WHERE id = 7 GROUP BY o)), 't', 'a sequence of chunks up to deferred pages reads right');
SKIP:
{
	skip 'no io_uring', 1 if counter('read_ahead_bytes') == 0;
	cmp_ok(counter('read_ahead_bytes'), '>', $ahead, 'a sequence up to deferred pages is read ahead');
}
is_whole('the sequence is whole when it is read again, from the cache');
kill('CONT', $pid);
$node->stop;

# ---- pages that are not logged ----

# The syncer writes them when there are 4 MB, while it sleeps, and while it holds checkpoints up.
start_cluster('unlogged', "blobext.wal_content = off\nblobext.cache_size = 64MB");
sql('CREATE TABLE made AS SELECT i, bytes(30000, i) AS o FROM generate_series(1, 400) i');
my $store = 'INSERT INTO t SELECT i, o, o FROM made';
my $open = $node->background_psql('postgres');
foreach my $end ('ROLLBACK', 'COMMIT')
{
	my $deferred = counter('deferred_pages');
	$open->query_safe("BEGIN; $store");
	is(counter('deferred_pages') - $deferred, 400 * 8, "pages before a $end");
	ok(few_are_dirty($node, 1024), 'the syncer does not wait for the commit');
	is(sql(q(SELECT state FROM pg_stat_activity WHERE backend_type = 'blobext syncer')), 'idle',
		'the syncer holds up no checkpoint for that');
	$open->query_safe($end);
}
is_whole('written before the commit');
kill_everything($node);
unlink $node->data_dir . '/postmaster.pid';
$node->start;
is(sql('SELECT count(*) FROM t'), 400, 'durable with the commit');
is_whole('written before the commit, after a crash');
check_is_clean($node, 'the check finds nothing');
$node->stop;

# Logged pages beside them stay dirty.
start_cluster('mixed', "wal_level = minimal\nblobext.cache_size = 64MB");
sql('CREATE TABLE made AS SELECT i, bytes(30000, i) AS o FROM generate_series(1, 400) i');
$open = $node->background_psql('postgres');
# While the syncer holds checkpoints up, that is; it ends that 2 s after the last store that
# wanted it.
my $holds = q(SELECT xact_start FROM pg_stat_activity WHERE backend_type = 'blobext syncer');
my ($logged, $are_few, $left);
for (1 .. 20)
{
	sql('CALL store(1000, 20000)');
	my $since = sql($holds);
	sql(join(";\n", map { "CALL store($_, 20000)" } 1001 .. 1030));
	$logged = counter('pending_deferred_pages');
	$open->query_safe("BEGIN; $store");
	$are_few = few_are_dirty($node, 1024 + $logged);
	$left = counter('pending_deferred_pages');
	last if $since ne '' && sql($holds) eq $since;
	$open->query_safe('ROLLBACK');
}
cmp_ok($logged, '>', 100, 'logged pages are dirty');
ok($are_few, 'the syncer writes what is not logged');
cmp_ok($left, '>=', $logged, 'logged pages stay dirty');
$open->query_safe('COMMIT');
is_whole('pages that are logged and pages that are not are whole');
$node->stop('immediate');
$node->start;
is_whole('pages that are logged and pages that are not are whole after a crash');
$node->stop;

# ---- power cuts ----

my $small = $ENV{BLOBEXT_SMALL_FS};
if ($small)
{
	power('format');
	local $PostgreSQL::Test::Utils::tmp_check = $small;
	start_cluster('power', "blobext.direct_io = off\nblobext.cache_size = 8MB");
	sync_cluster($node);

	$pid = stop_now();
	sql('CALL store(1, 20000)');
	kill('CONT', $pid);
	sql('CHECKPOINT');
	cut_power();
	is_whole('written and synced before a checkpoint is complete');

	# Segments on the syncer's list are of another store.
	sql('CREATE DATABASE other');
	$node->safe_psql('other', "CREATE EXTENSION blobext; $schema");
	my $session = $node->background_psql('postgres');
	sleep(0.5);
	$pid = stop_now('other');
	$pages = counter('deferred_pages');
	$session->query_safe('BEGIN; INSERT INTO t SELECT 2, x, x FROM bytes(20000, 2) x');
	is(counter('deferred_pages') - $pages, 5, 'a value of five pages is put into the buffer');
	my $checkpoint = $node->background_psql('postgres');
	$checkpoint->query_until(qr/sent/, "\\echo sent\nCHECKPOINT;\n");
	sleep(0.5);
	$session->query_safe('SET blobext.background_sync = off; COMMIT');
	kill('CONT', $pid);
	$checkpoint->query_safe('SELECT 1');	# after the checkpoint
	cut_power();
	is_whole('a commit that syncs by itself writes first');

	kill('CONT', stop_now());
	all_is_written('the syncer knows the file');
	$pid = stop_now();
	sql('CALL store(3, 20000)');
	my $offset = -s $node->logfile;
	power('off');
	kill('CONT', $pid);
	$node->wait_for_log(qr/WARNING:  .*could not write content to file/, $offset);
	ok(!$node->log_contains('PANIC', $offset), 'a page that the syncer cannot write is not the end of the server');
	cut_power();
	is_whole('comes back from the WAL');
	$node->stop;
}

sub cut_power
{
	power('off');
	kill_everything($node);
	power('on');
	unlink $node->data_dir . '/postmaster.pid';
	$node->start;
	return;
}

done_testing();
