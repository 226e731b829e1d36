# Writes to segment files that fail for a while: nothing is lost, and the server goes on.
#
# A library that is loaded before others (test/unit/fail_writes.c) has writes fail as long as a file is
# there: those of the syncer, or of all processes.  With io_uring, aio and blocking calls, with EIO and
# with ENOSPC.  Parts:
#
#	- the syncer cannot write pages that are logged: it warns, checkpoints wait, reads are right, and
#	  so are commits of other processes, which write their pages themselves; after the fault a
#	  checkpoint completes, and nothing is lost when all processes are killed,
#	- no process can write: statements that store fail, all others go on,
#	- a shutdown during the fault ends, with a PANIC, and the next start has all content,
#	- pages that are not logged hold up no process but the commit of their transaction; the syncer
#	  that cannot write many of them tries again, at its pace,
#	- a failed fdatasync() is a PANIC, of the syncer and of a backend.
#
# Seen to fail: with sync_listed() that goes on after a failed write, or with finish_items() that takes
# pages whose write has failed out of the list, the first part; with a critical section around
# blob_dirty_write_all() in sync_listed(), the first part, too; without the PANIC in at_exit(), the
# shutdown; without only_logged in finish_batch(), the pages that are not logged; with the same pause
# after each write that has failed, many of them; with EIO that is ignored in sync_file(), the last part.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use lib $FindBin::RealBin;
use BlobTest;

my $library = preload_library('fail_writes.c');
my $fault = "$PostgreSQL::Test::Utils::tmp_check/failed_writes_fault";
$ENV{BLOBEXT_FAULT} = $fault;
my $node;
my $last_id;					# of the rows of t

sub start
{
	local $ENV{LD_PRELOAD} = $library;
	$node->start;
	return;
}

sub start_cluster
{
	my ($name, $conf) = @_;
	$node = blob_cluster($name, start => 0, conf => "wal_level = replica\nautovacuum = off\n" .
		  "checkpoint_timeout = 1h\n$conf");
	start();
	$last_id = 0;
	$node->safe_psql('postgres', q(
CREATE EXTENSION blobext;
CREATE TABLE t (id int PRIMARY KEY, b blobstate, o bytea);	-- o: the expected content of b
CREATE TABLE other (id int);
CREATE FUNCTION bytes(n int, seed int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT substring(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR n)
	FROM generate_series(1, (n + 31) / 32) i $$;
CREATE VIEW damaged AS SELECT id FROM t
	WHERE length(b) <> length(o) OR sha256(b) <> sha256(o) OR b::bytea <> o;
));
	return;
}

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub store
{
	my ($bytes) = @_;
	$last_id++;
	return "INSERT INTO t SELECT $last_id, x, x FROM bytes($bytes, $last_id) x";
}

sub is_whole
{
	my ($count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($result, $stdout, $stderr) =
	  $node->psql('postgres', 'SELECT count(*) FROM t; SELECT * FROM damaged');
	return is($stdout . $stderr, $count, $name);
}

# From now on writes fail: with this error, or 'sync'; of this process, or of all.
sub begin_fault
{
	my ($error, $pid) = @_;
	open(my $file, '>', "$fault.new") or die $!;
	print $file $error . (defined $pid ? " $pid" : '');
	close $file;
	chmod 0644, "$fault.new";
	rename("$fault.new", $fault) or die $!;
	return;
}

sub end_fault
{
	unlink($fault) == 1 or die $!;
	return;
}

sub restart_after_kill
{
	kill_everything($node);
	unlink $node->data_dir . '/postmaster.pid';
	start();
	return;
}

# Ends the server by pg_ctl, without waiting for it to succeed.
sub shut_down
{
	my $postmaster = $node->{_pid};
	system_log('pg_ctl', '-W', '-m', 'fast', '-D', $node->data_dir, 'stop');
	wait_for_end($postmaster);
	$node->{_pid} = undef;
	unlink $node->data_dir . '/postmaster.pid';
	return;
}

# Leave logged pages to a syncer that cannot write them.
sub begin_fault_of_syncer
{
	my ($error, $of_all) = @_;
	my $offset = -s $node->logfile;
	my $pid = stop_syncer($node, 'deferred_pages', sub { sql(store(20_000)) });

	sql(store(50_000) . ';' . store(6_000));
	cmp_ok(stat_of($node, 'pending_deferred_pages'), '>=', 15, 'pages are dirty before the fault begins');
	begin_fault($error, $of_all ? undef : $pid);
	kill('CONT', $pid);
	$node->wait_for_log(qr/WARNING:  .*could not write content to file ".*pg_blobext.*"/, $offset);
	is(sql(q(SELECT query FROM pg_stat_activity WHERE backend_type = 'blobext syncer')),
		'blobext: waiting for a segment file that cannot be written', 'the syncer says why it waits');
	cmp_ok(stat_of($node, 'pending_deferred_pages'), '>=', 15, 'pages that cannot be written stay dirty');
	is_whole($last_id, 'reads find what cannot be written');
	return $offset;
}

# A checkpoint that has been asked for, and waits.
sub begin_checkpoint
{
	my ($offset) = @_;
	my $session = $node->background_psql('postgres');
	$session->query_until(qr/sent/, "\\echo sent\nCHECKPOINT;\n");
	$node->wait_for_log(qr/checkpoint starting/, $offset);
	sleep(1);
	ok(!$node->log_contains('checkpoint complete', $offset), 'a checkpoint waits while the syncer cannot write');
	return $session;
}

sub checkpoint_completes
{
	my ($session, $offset) = @_;
	$session->query_safe('SELECT 1');
	$session->quit;
	ok($node->log_contains('checkpoint complete', $offset), 'the checkpoint completes after the fault');
	is(stat_of($node, 'pending_deferred_pages'), 0, 'after the checkpoint no page is dirty');
	return;
}

my %error_text = (EIO => 'Input/output error', ENOSPC => 'No space left on device');

foreach my $method ('auto', 'sync', 'aio')
{
	start_cluster($method, "blobext.io_method = $method\n");
	# Only completions with an error differ from io_uring; where files are buffered, there is no aio.
	my $is_short = $method eq 'aio';
	if ($is_short && !stat_of($node, 'direct_io'))
	{
		$node->stop;
		next;
	}
	foreach my $error ($is_short ? 'EIO' : ('EIO', 'ENOSPC'))
	{
		# ---- the syncer ----

		my $offset = begin_fault_of_syncer($error, 0);
		ok($node->log_contains(qr/could not write content to file ".*": $error_text{$error}/, $offset),
			"$method, $error: the log has the error");
		my $checkpoint = begin_checkpoint($offset);
		sql('INSERT INTO other VALUES (1)');
		is(sql('SELECT count(*) > 0 FROM other'), 't', 'commits go on while the syncer cannot write');
		ok(!$node->log_contains('checkpoint complete', $offset), 'the checkpoint still waits');
		end_fault();
		checkpoint_completes($checkpoint, $offset);
		restart_after_kill();
		is_whole($last_id, "$method, $error: nothing is lost after a kill");

		# Another process that commits writes its own pages by itself.
		$offset = begin_fault_of_syncer($error, 0);
		$checkpoint = begin_checkpoint($offset);
		sql(store(30_000));
		ok(!$node->log_contains('checkpoint complete', $offset), 'a commit does not end the wait');
		restart_after_kill();
		eval { $checkpoint->quit };
		end_fault();
		is_whole($last_id, "$method, $error: a commit beside a syncer that cannot write is durable");

		# ---- all processes ----

		$offset = begin_fault_of_syncer($error, 1);
		$checkpoint = begin_checkpoint($offset);
		my $stored = $last_id;
		fails_with($node, store($_), $error eq 'EIO' ? '58030' : '53100',
			qr/could not write content to file ".*": $error_text{$error}/,
			"a store of $_ bytes fails") foreach (5_000, 3_000_000);
		sql('INSERT INTO other VALUES (2)');
		is_whole($stored, 'reads go on while no process can write');
		end_fault();
		checkpoint_completes($checkpoint, $offset);
		sql(store(5_000));
		restart_after_kill();
		is_whole($stored + 1, "$method, $error: stores that failed have left nothing");
		sql('TRUNCATE t');
		$last_id = 0;

		# ---- a shutdown ----

		$offset = begin_fault_of_syncer($error, 1);
		shut_down();
		ok($node->log_contains(qr/PANIC:  .*could not write content to file/, $offset),
			'a shutdown cannot wait');
		end_fault();
		start();
		is_whole($last_id, "$method, $error: recovery writes what the shutdown could not");
		check_is_clean($node, 'the check finds nothing');
	}

	# ---- a failed sync ----

	foreach my $of_backend ($is_short ? () : (0, 1))
	{
		my $offset = -s $node->logfile;
		my $pid = stop_syncer($node, 'deferred_pages', sub { sql(store(20_000)) });
		sql(store(50_000));
		my $postmaster = $node->{_pid};
		if ($of_backend)
		{
			begin_fault('sync');
			$node->psql('postgres', 'SET blobext.background_sync = off; INSERT INTO t VALUES (-1, bytes(9999, 1))');
			kill('CONT', $pid);
		}
		else
		{
			begin_fault('sync', $pid);
			kill('CONT', $pid);
		}
		wait_for_end($postmaster);
		$node->{_pid} = undef;
		unlink $node->data_dir . '/postmaster.pid';
		ok($node->log_contains(qr/PANIC:  .*could not fdatasync blob segment file ".*pg_blobext.*"/, $offset),
			'a failed sync is the end of the server, of ' . ($of_backend ? 'a backend' : 'the syncer'));
		end_fault();
		start();
		is_whole($last_id, "$method: nothing is lost by a failed sync");
	}
	$node->stop;
}

# ---- pages that are not logged ----

start_cluster('unlogged', "blobext.wal_content = off\n");
sql(store(20_000));
my $idle = $node->background_psql('postgres');
$idle->query_safe('BEGIN; INSERT INTO t SELECT 100000 + i, bytes(9000, i) FROM generate_series(1, 12) i; ROLLBACK');
cmp_ok(stat_of($node, 'pending_deferred_pages'), '>=', 36, 'pages of a transaction that is over are dirty');
begin_fault('EIO');
my $offset = -s $node->logfile;
sql('CHECKPOINT');
ok($node->log_contains('checkpoint complete', $offset), 'a checkpoint does not wait for pages that are not logged');
my $syncer = sql(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'blobext syncer'));
sql("SELECT pg_terminate_backend($syncer)");
ok($node->poll_query_until('postgres', qq(SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'blobext syncer' AND pid <> $syncer)), 'a syncer that is terminated does not wait for them');
cmp_ok(stat_of($node, 'pending_deferred_pages'), '>=', 36, 'pages that a syncer could not write at its end are dirty still');
fails_with($node, store(9_000), '58030', qr/could not write content to file/,
	'a commit whose content cannot be written fails');
$last_id--;
is_whole($last_id, 'reads beside pages that cannot be written');
end_fault();
my $pages = stat_of($node, 'pending_deferred_pages');
sql(store(9_000));
is(stat_of($node, 'pending_deferred_pages'), $pages, 'a commit after the fault writes its own pages');
restart_after_kill();
is_whole($last_id, 'content that was not logged is durable when its commit has succeeded');

$idle->{run}->kill_kill;
$idle = $node->background_psql('postgres');
$idle->query_safe('BEGIN; INSERT INTO t SELECT 100000 + i, bytes(9000, i) FROM generate_series(1, 20) i; ROLLBACK');
begin_fault('EIO');
$offset = -s $node->logfile;
shut_down();
end_fault();
ok(!$node->log_contains('PANIC', $offset), 'a shutdown does not need pages of no transaction');
ok($node->log_contains('database system is shut down', $offset), 'the shutdown is a clean one');
start();
is_whole($last_id, 'the last value is whole after the shutdown');

# The syncer cannot write many of them before the commit.
$idle->{run}->kill_kill;
start_cluster('many', "blobext.wal_content = off\nblobext.cache_size = 64MB\n");
$syncer = sql(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'blobext syncer'));
begin_fault('EIO', $syncer);
$idle = $node->background_psql('postgres');
$idle->query_safe('BEGIN; INSERT INTO t SELECT i, x, x FROM generate_series(1, 400) i, bytes(16000, i) x');
is(stat_of($node, 'pending_deferred_pages'), 400 * 4, 'the syncer cannot write the pages of a transaction');
# Each pause is twice as long as the one before.  So no attempt is a part of these 2 s, or more.
my $tried = stat_of($node, 'deferred_writes');
ok($node->poll_query_until('postgres',
		"SELECT value >= $tried + 400 * 4 / 64 FROM blobext_stat WHERE name = 'deferred_writes'"),
	'the syncer tries again');
$tried = stat_of($node, 'deferred_writes');
sleep(2);
$tried = stat_of($node, 'deferred_writes') - $tried;
cmp_ok($tried, '<=', 20 * 400 * 4 / 64, 'the syncer waits longer each time');
$idle->query_safe('COMMIT');
is(stat_of($node, 'pending_deferred_pages'), 0, 'the commit writes them');
end_fault();
restart_after_kill();
is_whole(400, 'pages that the commit has written are durable');
$idle->{run}->kill_kill;
$node->stop;

done_testing();
