# The launcher and its workers free space without a command, also the files of dropped databases and
# extensions.
#
# "Fails without" names the code whose removal made a test fail.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time usleep);

use lib $FindBin::RealBin;
use BlobTest;

my %quickly = (
	'blobext.autogc' => 'on',
	'blobext.autogc_naptime' => '1s',
	'blobext.autogc_interval' => '1s',
	'blobext.autogc_threshold' => '0',
	'blobext.autogc_cost_delay' => '0',
	'blobext.log_autogc_min_duration' => '0',
	'blobext.gc_wait_timeout' => '3s');
my $node = blob_cluster('main',
	create => 0,
	streaming => 1,
	conf => join("\n", 'autovacuum = off', 'max_prepared_transactions = 1', 'restart_after_crash = on', "log_line_prefix = '%m [%p] %b %a '",
		map { "$_ = '$quickly{$_}'" } keys %quickly));
my $value = q(convert_to(repeat(md5(i::text), 1000), 'UTF8'));

# ---- tools ----

sub sql
{
	my ($database, @statements) = @_;
	return $node->safe_psql($database, join(";\n", @statements));
}

sub set
{
	my (%settings) = @_;
	sql('postgres', map { "ALTER SYSTEM SET $_ = '$settings{$_}'" } keys %settings);
	return sql('postgres', 'SELECT pg_reload_conf()');
}

# Wait until a condition holds; fails the test if it never does.
sub becomes
{
	my ($database, $condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until($database, "SELECT coalesce(($condition), false)"), $name);
}

sub seconds(&)
{
	my ($code) = @_;
	my $started = time;
	$code->();
	return time - $started;
}

sub directories
{
	my ($oid) = @_;
	my @found = glob($node->data_dir . "/pg_blobext/$oid.*");
	return scalar @found;
}

sub oid { return sql('postgres', "SELECT oid FROM pg_database WHERE datname = '$_[0]'") }

sub directories_become
{
	my ($oid, $count, $name) = @_;
	for (my $i = 0; directories($oid) != $count && $i < 600; $i++) { sleep 0.1 }
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(directories($oid), $count, $name);
}

# A database with the extension and a table t with the given number of values.
sub database
{
	my ($name, $count) = @_;
	sql('postgres', "CREATE DATABASE $name TEMPLATE template0");
	sql($name, 'CREATE EXTENSION blobext', 'CREATE TABLE t (id integer, b blobstate)',
		"INSERT INTO t SELECT i, $value FROM generate_series(1, $count) AS i");
	return oid($name);
}

sub intact
{
	my ($database, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($database, "SELECT count(*) FROM t WHERE b::bytea = (SELECT $value FROM (SELECT id) AS q(i))"),
		$count, $name);
	return check_is_clean($node, "$name: the check finds nothing", $database);
}

my $status = 'FROM blobext_gc_status';
my $worker = q(FROM pg_stat_activity WHERE backend_type = 'blobext collector');

# Delete rows, then VACUUM.  A session counts what it deleted when it has been idle for a second, or
# ends; if that is after VACUUM, the rows count as dead until the next one, and no round is due.
sub delete_and_vacuum
{
	my ($database, $condition) = @_;
	my $deleted = "SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 't'";
	my $before = sql($database, $deleted);
	my $rows = sql($database, "WITH d AS (DELETE FROM t WHERE $condition RETURNING 1) SELECT count(*) FROM d");
	$node->poll_query_until($database, "SELECT ($deleted) = $before + $rows")
	  or die 'deleted rows are not counted';
	return sql($database, 'VACUUM t');
}

# The rounds since a number of them; none is right.  Says what they found.
sub no_round_since
{
	my ($rounds, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return if is(rounds(), $rounds, $name);
	my @found = slurp_file($node->logfile) =~ /(.* automatic collection .*?);/g;
	diag(join("\n", (grep { defined } @found[-3 .. -1]), sql('a', "SELECT * FROM pg_stat_user_tables WHERE relname = 't'")));
	return;
}

# The values of a database that the last complete round left.
sub lives_become
{
	my ($database, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return becomes($database, "SELECT live_blobs = $count AND skipped_reason IS NULL $status", $name);
}

# Start a round that takes long, in a database with a large table; returns when it marks.
sub slow_round
{
	my ($database, $name) = @_;
	set('blobext.autogc_cost_delay' => '100', 'blobext.autogc_cost_limit' => '1');
	sql($database, "INSERT INTO t SELECT i, $value FROM generate_series(9001, 9002) AS i");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return becomes('postgres', "SELECT count(*) = 1 $worker
			AND datname = '$database' AND state = 'active' AND query = 'blobext: marking public.t'
			AND application_name = 'blobext collector'", "$name: a slow round marks");
}

sub normal_speed
{
	return set('blobext.autogc_cost_delay' => '0', 'blobext.autogc_cost_limit' => '-1');
}

# ---- by itself ----

my $oid_a = database('a', 40);
is(directories($oid_a), 1, 'a database has one directory of content');
lives_become('a', 40, 'a round comes by itself');
is(sql('a', "SELECT automatic, dry_run, freed_blobs $status"), 't|f|0', 'the view says that the round came by itself and freed nothing');
sql('a', 'CREATE INDEX t_b ON t (b)', 'DELETE FROM t WHERE id > 30');
sleep 2.5;
is(sql('a', "SELECT live_blobs $status"), 40, 'rows that are deleted only keep the values of their keys');

# Fails without: dead_rows in judge() (VACUUM goes unnoticed).
sql('a', 'VACUUM t');
lives_become('a', 30, 'deleted values are freed after VACUUM');
sql('a', 'DROP INDEX t_b');
sql('a', "BEGIN; INSERT INTO t SELECT i, $value FROM generate_series(101, 110) AS i; ROLLBACK");
sleep 2.5;
sql('a', 'VACUUM t');
lives_become('a', 30, 'values of a transaction that was rolled back are freed after VACUUM');
sql('a', 'CREATE TABLE u AS TABLE t', 'INSERT INTO u SELECT * FROM t', 'TRUNCATE t',
	"INSERT INTO t SELECT i, $value FROM generate_series(1, 30) AS i");
lives_become('a', 60, 'copies of values count once, and those of a truncated table go');

# Fails without: the fingerprint in judge().
sql('a', 'DROP TABLE u');
lives_become('a', 30, 'values of a dropped table are freed');
intact('a', 30, 'the values of the other table are whole');
like(slurp_file($node->logfile),
	qr/blobext collector.*automatic collection of blobs of database "a": freed: 30 values, 983040 bytes; remain: 30 values, 983040 bytes; segments removed: 0; system usage: CPU: .* elapsed: /,
	'the log has a line about what the round freed and what remains');

# Where nothing changes, no round runs.  Fails without: blob_autogc_schedule_wish() comparing
# counters.
sub rounds_in { return sql($_[0], "SELECT completed_rounds $status") }
sub rounds { return rounds_in('a') }
sleep 2.5;
my $rounds = rounds();
my $offset = -s $node->logfile;
set('log_min_messages' => 'debug1');
sleep 4;
is(rounds(), $rounds, 'no round without a change');
my @started = slurp_file($node->logfile, $offset) =~ /starting background worker process "blobext collector"/g;
cmp_ok(scalar @started, '<=', 2, 'no worker either, but for the new settings');
set('log_min_messages' => 'warning');

# ---- threshold and scale factor ----
# Fails without: the comparison with due_bytes() in judge().

set('blobext.autogc_interval' => '1h', 'blobext.autogc_threshold' => '1MB',
	'blobext.autogc_scale_factor' => '0.5');
sleep 2.5;
$rounds = rounds();
sql('a', "INSERT INTO t SELECT i, $value FROM generate_series(31, 60) AS i");
sleep 3;
no_round_since($rounds, '1 MB stored: less than 1 MB and half of what lives');
sql('a', "INSERT INTO t SELECT i, $value FROM generate_series(61, 90) AS i");
lives_become('a', 90, 'a round comes when 2 MB were stored');
$rounds = rounds();
delete_and_vacuum('a', 'id > 70');
sleep 3;
no_round_since($rounds, '0.6 MB deleted of 2.9');
delete_and_vacuum('a', 'id > 10');
lives_become('a', 10, 'a round comes when 2.6 MB were deleted');
set('blobext.autogc' => 'off', %quickly{qw(blobext.autogc_interval blobext.autogc_threshold)});
sleep 2;
$rounds = rounds();
delete_and_vacuum('a', 'id > 5');
sleep 3;
no_round_since($rounds, 'no round comes when the collector is turned off');
set('blobext.autogc' => 'on');
lives_become('a', 5, 'a round comes when the collector is turned on again');

# ---- hurried ----
# If much is allocated, the launcher looks before its naptime is over.  Fails without:
# blob_store_allocation_hook.

my $h = database('h', 40);
lives_become('h', 40, 'before the launcher sleeps');
# The round that is hurried waits for the transaction that stores.
set('blobext.autogc_naptime' => '1h', 'blobext.autogc_interval' => '1h', 'blobext.autogc_threshold' => '8MB',
	'blobext.gc_wait_timeout' => '60s');
becomes('postgres', "SELECT count(*) = 0 $worker", 'the launcher has seen the settings');
sleep 1.5;
sql('h', 'DELETE FROM t', 'VACUUM t');
sleep 2.5;
is(sql('h', "SELECT live_blobs $status"), 40, 'the launcher sleeps while naptime is long');
sql('h', "INSERT INTO t SELECT i, $value FROM generate_series(1, 600) AS i");
lives_become('h', 600, 'a look is hurried');

# A worker stays for a second, so looks that follow each other do not need a process each.  Fails
# without: stay() in worker.c, take_look() in schedule.c.
set('blobext.autogc_scale_factor' => '0', 'log_min_messages' => 'debug1');
my $has_stayed = 0;
for (my $i = 0; !$has_stayed && $i < 30; $i++)
{
	my $before = rounds_in('h');
	$offset = -s $node->logfile;

	# Allocations during a look, or within a tenth of a second after it, do not ask for another.
	sql('h', ("INSERT INTO t SELECT i, $value FROM generate_series(1, 300) AS i", 'SELECT pg_sleep(0.1)') x 10);
	my $processes = () = slurp_file($node->logfile, $offset) =~ /starting background worker process "blobext collector"/g;
	$has_stayed = rounds_in('h') - $before > $processes;
}
ok($has_stayed, 'a round without a new process');
set('blobext.autogc_scale_factor' => '0.5', 'log_min_messages' => 'warning', 'blobext.gc_wait_timeout' => '3s');
set('blobext.autogc_naptime' => '1s', %quickly{qw(blobext.autogc_interval blobext.autogc_threshold)});
sql('postgres', 'DROP DATABASE h');

# ---- pruned ----
# Rounds remove rows that no snapshot sees any more, without VACUUM; rows that a snapshot may see
# stay.  No counter tells when the last such snapshot ends.  Fails without: prune() in heap.c,
# dead_rows in judge().

my $p = database('p', 40);
lives_become('p', 40, 'before rows are deleted');
sql('p', 'CREATE TABLE other ()', 'BEGIN; INSERT INTO other DEFAULT VALUES; PREPARE TRANSACTION $$p$$',
	'DELETE FROM t WHERE id <= 30');
becomes('p', q(SELECT n_dead_tup = 30 FROM pg_stat_user_tables WHERE relname = 't'), 'dead rows are counted');
sleep 2.5;
is(sql('p', "SELECT live_blobs $status"), 40, 'a transaction is older: they keep their values');
sql('p', 'COMMIT PREPARED $$p$$');
lives_become('p', 10, 'values come back without VACUUM when the older transaction has ended');
is(sql('p', 'SELECT count(*) FROM t'), 10, 'the other rows are there');
sql('postgres', 'DROP DATABASE p');

# ---- why not ----
# Fails without: blob_gc_schedule_is_news() (a line each time).

my $holder = $node->background_psql('a', on_error_stop => 1);
$holder->query_safe('BEGIN; SELECT count(*) FROM t');
my $pid = $holder->query_safe('SELECT pg_backend_pid()');
$offset = -s $node->logfile;
set('blobext.gc_wait_timeout' => '100ms');
sql('a', 'DELETE FROM t WHERE id > 4', 'VACUUM t');
becomes('a', "SELECT skipped_rounds > 2 $status", 'rounds are skipped while a transaction is open');
like(sql('a', "SELECT skipped_reason $status"), qr/process $pid has been in a transaction/, 'the view names the process whose transaction is open');
is(sql('postgres', 'CREATE EXTENSION blobext', "SELECT count(*) FROM blobext_gc_databases
	WHERE datname = 'a' AND skipped_reason LIKE 'process $pid %' AND automatic"), 1,
	'the reason is seen from another database');
my @lines = slurp_file($node->logfile, $offset) =~
  /automatic collection of blobs of database "a" freed nothing: process $pid has been/g;
is(scalar @lines, 1, 'one line in the log');
$holder->query_safe('COMMIT');
lives_become('a', 4, 'what the transaction held is freed after its end');
$holder->quit;
set('blobext.gc_wait_timeout' => '3s');

# ---- commands that need the database to themselves ----

$offset = -s $node->logfile;
my $oid_b = database('b', 5);
lives_become('b', 5, 'a round comes in another database');
sql('b', 'INSERT INTO t SELECT 100 + i, NULL FROM generate_series(1, 60000) AS i',
	q(UPDATE t SET id = id));
becomes('postgres', "SELECT count(*) = 0 $worker", 'no worker runs while nothing is due');
is($node->psql('postgres', 'ALTER DATABASE b RENAME TO b2'), 0, 'RENAME succeeds while no worker runs');
sql('postgres', 'ALTER DATABASE b2 RENAME TO b');

# Fails without: blob_gc_database_is_wanted() in blob_gc_nobody_waits(): "is being accessed by other
# users" after 5 s.
slow_round('b', 'RENAME');
is($node->psql('postgres', 'ALTER DATABASE b RENAME TO b2'), 0, 'RENAME while it works');
sql('postgres', 'ALTER DATABASE b2 RENAME TO b');
becomes('b', "SELECT skipped_reason LIKE 'gave way to a command%' OR pid IS NOT NULL $status",
	'the round gave way to RENAME');
normal_speed();
becomes('b', "SELECT skipped_reason IS NULL AND pid IS NULL $status", 'the round is made up for');
slow_round('b', 'TEMPLATE');
my ($result, $out, $err) = $node->psql('postgres', 'CREATE DATABASE c TEMPLATE b');
like($err, qr/cannot copy database "b", because it holds blobs/, 'TEMPLATE while it works: gave way');
slow_round('b', 'DROP');
is($node->psql('postgres', 'DROP DATABASE b'), 0, 'DROP while it works');

# ---- files of dropped databases ----
# Fails without: remove_dropped().

directories_become($oid_b, 0, 'the files of a dropped database go');
is(directories($oid_a), 1, 'those of another do not');
normal_speed();
is(sql('postgres', q(SELECT count(*) FROM blobext_gc_databases WHERE datname IS NULL)), 0,
	'nothing is left in the view');
like(slurp_file($node->logfile, $offset), qr/removing directory pg_blobext\/$oid_b\.[0-9a-f]{16} of a dropped database/,
	'the log names the directory of a dropped database that is removed');
becomes('postgres', "SELECT count(*) = 0 $worker", 'no worker is left');
unlike(slurp_file($node->logfile, $offset), qr/FATAL|PANIC/, 'nobody was thrown out');

# Killed in between: DROP DATABASE has committed, the launcher did not get to it.
set('blobext.autogc_naptime' => '1h');
my $d = database('d', 5);
sql('postgres', 'DROP DATABASE d');
is(directories($d), 1, 'the directory of a dropped database stays while the launcher sleeps');
kill_everything($node);
$node->start;
directories_become($d, 0, 'the directory of a database dropped before the crash is removed after it');
kill_everything($node);
$node->start;
is(directories($d), 0, 'removed directories stay away after one more crash');
intact('a', 4, 'the values of another database survive two crashes');
set('blobext.autogc_naptime' => '1s');

# ---- files of dropped extensions ----

# A reload has workers look at all databases, however many looks have failed before.
sub let_workers_look
{
	sql('postgres', 'SELECT pg_reload_conf()');
	sleep 3;
	return;
}

my $e = database('e', 5);
my ($first) = glob($node->data_dir . "/pg_blobext/$e.*");

# While a transaction that has dropped it is open, its lock on the map keeps the worker away.
my $session = $node->background_psql('e', on_error_stop => 1);
$session->query_safe('SET client_min_messages = error');
$session->query_safe('BEGIN; DROP EXTENSION blobext CASCADE; CREATE EXTENSION blobext;
	CREATE TABLE t2 (id integer, b blobstate); INSERT INTO t2 VALUES (1, ' .
	"convert_to(repeat('x', 100000), 'UTF8'))");
is(directories($e), 2, 'an extension that is dropped and created in an open transaction has both directories');
set('blobext.gc_wait_timeout' => '100ms');
let_workers_look();
is(directories($e), 2, 'both stay while it is open who wins');
$session->query_safe('ROLLBACK');
set('blobext.gc_wait_timeout' => '3s');
directories_become($e, 1, 'rolled back: the new one goes');
ok(-d $first, 'rolled back: the old one stays');
intact('e', 5, 'the values of the extension whose DROP was rolled back are whole');
$session->query_safe('BEGIN; DROP EXTENSION blobext CASCADE; CREATE EXTENSION blobext;
	CREATE TABLE t2 (id integer, b blobstate); INSERT INTO t2 VALUES (1, ' .
	"convert_to(repeat('x', 100000), 'UTF8'))");
let_workers_look();
$session->query_safe('COMMIT');
directories_become($e, 1, 'committed: the old one goes');
ok(!-d $first, 'committed: the new one stays');
is(sql('e', q(SELECT b::bytea = convert_to(repeat('x', 100000), 'UTF8') FROM t2)), 't',
	'committed: the new values');

# The same for a prepared transaction.
$session->query_safe('BEGIN; DROP EXTENSION blobext CASCADE; CREATE EXTENSION blobext;
	CREATE TABLE t3 (id integer, b blobstate); INSERT INTO t3 VALUES (1, ' .
	"convert_to(repeat('y', 100000), 'UTF8')); PREPARE TRANSACTION 'p'");
is(directories($e), 2, 'a prepared transaction that drops and creates the extension leaves both directories');
let_workers_look();
is(directories($e), 2, 'both directories stay while the transaction is prepared');
$session->query_safe(q(COMMIT PREPARED 'p'));
directories_become($e, 1, 'the directory of the dropped extension goes after COMMIT PREPARED');
is(sql('e', q(SELECT b::bytea = convert_to(repeat('y', 100000), 'UTF8') FROM t3)), 't',
	'prepared and committed: the new values');

# Fails without: blob_gc_find_store() looking for the extension (all is lost).
sql('e', q(UPDATE pg_class SET relname = 'hidden' WHERE relname = 'blobext_map'));
let_workers_look();
is(directories($e), 1, 'a map that was hidden is none that is gone');
sql('e', q(UPDATE pg_class SET relname = 'blobext_map' WHERE relname = 'hidden'));
$session->query_safe('DROP EXTENSION blobext CASCADE');
directories_become($e, 0, 'the directory of an extension that is dropped goes');

# An extension that is new: no committed map is there to be locked.  Fails without:
# wait_for_transactions() (the directory goes, and the COMMIT leaves a store without files).
my $create = q(CREATE EXTENSION blobext; CREATE TABLE t4 (id integer, b blobstate);
	INSERT INTO t4 VALUES (1, convert_to(repeat('z', 100000), 'UTF8')));
my $is_whole = q(SELECT b::bytea = convert_to(repeat('z', 100000), 'UTF8') FROM t4);
set('blobext.gc_wait_timeout' => '100ms');
$session->query_safe("BEGIN; $create");
let_workers_look();
is(directories($e), 1, 'created, open: its files stay');
$session->query_safe('COMMIT');
is(sql('e', $is_whole), 't', 'created and committed: the values');
$session->query_safe('DROP TABLE t4; DROP EXTENSION blobext CASCADE');
directories_become($e, 0, 'the directory of an extension that existed for one table goes');

# Prepared transactions have no process.  Fails without: prepared_transactions_exist().
$session->query_safe("BEGIN; $create; PREPARE TRANSACTION 'q'");
let_workers_look();
is(directories($e), 1, 'created and prepared: its files stay');
$session->query_safe(q(COMMIT PREPARED 'q'));
is(sql('e', $is_whole), 't', 'created, prepared and committed: the values');
$session->query_safe('DROP TABLE t4; DROP EXTENSION blobext CASCADE');
directories_become($e, 0, 'the directory of an extension that was created by a prepared transaction goes');
$session->quit;
set('blobext.gc_wait_timeout' => '3s');

# The removal must not survive a crash that the drop does not, also where that was committed
# asynchronously.  (PostgreSQL itself flushes the commit of a transaction that drops files.)
set('wal_writer_delay' => '10s');
sql('e', 'DROP TABLE t', 'CREATE EXTENSION blobext', 'CREATE TABLE t (id integer, b blobstate)',
	"INSERT INTO t SELECT i, $value FROM generate_series(1, 5) AS i");
sql('e', 'SET synchronous_commit = off', 'SET client_min_messages = error', 'DROP EXTENSION blobext CASCADE');
directories_become($e, 0, 'the directory goes after a DROP EXTENSION with synchronous_commit = off');
kill_everything($node);
$node->start;
is(sql('e', q(SELECT count(*) FROM pg_extension WHERE extname = 'blobext')), 0, 'a DROP EXTENSION whose directory is gone survives a crash');
set('wal_writer_delay' => '200ms');

# ---- many databases ----

my %many = map { ("m$_" => database("m$_", 3)) } 1 .. 6;
lives_become($_, 3, "a round comes in database $_") foreach sort keys %many;
foreach my $name (sort keys %many)
{
	sql($name, 'DELETE FROM t WHERE id > 1', 'VACUUM t');
}
lives_become($_, 1, "deleted values of database $_ are freed") foreach sort keys %many;
intact($_, 1, "database $_ keeps its other value") foreach sort keys %many;
sql('postgres', "DROP DATABASE $_") foreach sort keys %many;
directories_become($many{$_}, 0, "the directory of the dropped database $_ goes") foreach sort keys %many;

# ---- cancelled, terminated, killed ----

sql('a', 'INSERT INTO t SELECT 100 + i, NULL FROM generate_series(1, 60000) AS i');
lives_become('a', 4, 'a round comes before workers are stopped');
foreach my $function ('pg_cancel_backend', 'pg_terminate_backend')
{
	slow_round('a', $function);
	my $before = sql('a', "SELECT pid $status");
	becomes('postgres', "SELECT $function($before)", "$function() reaches the worker of a slow round");
	becomes('postgres', "SELECT count(*) = 0 $worker AND pid = $before", "$function() ends the worker");
	becomes('a', "SELECT started_at IS NOT NULL $status", "after $function() the server answers");
	normal_speed();
	becomes('a', "SELECT skipped_reason IS NULL AND pid IS NULL $status", "a round that $function() ended is made up for");
}
slow_round('a', 'SIGHUP');
my $taken = seconds
{
	normal_speed();
	becomes('a', "SELECT pid IS NULL AND skipped_reason IS NULL $status", 'SIGHUP: the round ends');
};
cmp_ok($taken, '<', 20, 'SIGHUP: a running round follows the settings');
slow_round('a', 'turned off');
set('blobext.autogc' => 'off');
becomes('a', "SELECT skipped_reason LIKE 'blobext.autogc was turned off' $status", 'turned off while it runs');
set('blobext.autogc' => 'on');
slow_round('a', 'fast');
cmp_ok(seconds { $node->stop('fast') }, '<', 10, 'a fast stop does not wait for the round');
$node->start;
slow_round('a', 'immediate');
$node->stop('immediate');
$node->start;
slow_round('a', 'kill -9');
kill_everything($node);
$node->start;
slow_round('a', 'kill -9 of the worker');
$offset = -s $node->logfile;
kill('KILL', sql('a', "SELECT pid $status"));
ok(wait_until_back($node, $offset), 'the server comes back');
normal_speed();
sql('a', 'DELETE FROM t WHERE id > 9000');

# A VACUUM during a round leaves the rows; so VACUUM until it has come between rounds.
for (my $i = 0; sql('a', "SELECT live_blobs $status") ne '4' && $i < 60; $i++)
{
	sql('a', 'VACUUM t');
	sleep 1;
}
lives_become('a', 4, 'a complete round comes after stops and crashes');
intact('a', 4, 'values are whole after stops and crashes of rounds');
my $launcher = q(FROM pg_stat_activity WHERE backend_type = 'blobext launcher');
my $launcher_pid = sql('postgres', "SELECT pid $launcher");
sql('postgres', "SELECT pg_terminate_backend($launcher_pid)");
becomes('postgres', "SELECT pid <> $launcher_pid $launcher", 'the launcher comes back, too');

# A worker ends that the launcher has not started.  Seen to fail without the loop in
# blob_autogc_schedule_launcher_begins().

# Store until a condition holds: a look that is under way may be the first to see it.
sub stores_until
{
	my ($condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (1 .. 180)
	{
		return pass($name) if sql('a', "SELECT coalesce(($condition), false)") eq 't';
		sql('a', "INSERT INTO t SELECT 9000, $value FROM generate_series(1, 500) AS i");
		sleep 1;
	}
	return fail($name);
}

set('blobext.autogc_naptime' => '1h', 'blobext.autogc_cost_delay' => '100', 'blobext.autogc_cost_limit' => '1');
becomes('postgres', "SELECT count(*) = 0 $worker", 'a long naptime: no worker is there');
stores_until("SELECT count(*) = 1 $worker AND query = 'blobext: marking public.t'", 'a slow round that could not wait');
$launcher_pid = sql('postgres', "SELECT pid $launcher");
sql('postgres', "SELECT pg_terminate_backend($launcher_pid)");
becomes('postgres', "SELECT pid <> $launcher_pid $launcher", 'a new launcher, while a worker is at work');
normal_speed();
becomes('postgres', "SELECT count(*) = 0 $worker", 'the worker of the database ends');
$rounds = rounds();
stores_until("SELECT completed_rounds > $rounds $status", 'the new launcher is called for a look that cannot wait');
sql('a', 'DELETE FROM t WHERE id >= 9000');
set('blobext.autogc_naptime' => '1s');

# ---- standbys ----
# Fails without: replay_drop() (files stay), the launcher's start after recovery (promotion).

$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
my $s1 = database('s1', 3);
my $s2 = database('s2', 3);
$node->wait_for_catchup($standby);
is(scalar(glob($standby->data_dir . "/pg_blobext/$s1.*")) ne '', 1, 'the standby has the files');
sql('postgres', 'DROP DATABASE s1');
directories_become($s1, 0, 'gone on the primary');
$node->wait_for_catchup($standby);
my @left = glob($standby->data_dir . "/pg_blobext/$s1.*");
is("@left", '', 'gone on the standby');
is($standby->safe_psql('s2', 'SELECT count(b::bytea) FROM t'), 3, 'another one is not');
$standby->stop('immediate');
$standby->start;
is($standby->safe_psql('s2', 'SELECT count(b::bytea) FROM t'), 3, 'another database keeps its values on the standby after a restart');
is($standby->safe_psql('postgres', "SELECT count(*) $launcher"), 0, 'a standby has no launcher');

# Killed right after the removal.  Fails without: XLogFlush() in blob_store_drop(): the record is
# lost, and as the primary has nothing left to remove, it is not written again.
set('wal_writer_delay' => '10s');
my $s3 = database('s3', 3);
$node->wait_for_catchup($standby);
sql('postgres', 'DROP DATABASE s3');
directories_become($s3, 0, 'gone on the primary, which is killed');
kill_everything($node);
$node->start;
$node->wait_for_catchup($standby);
@left = glob($standby->data_dir . "/pg_blobext/$s3.*");
is("@left", '', 'gone on the standby all the same');
set('wal_writer_delay' => '200ms');
set('blobext.autogc_naptime' => '1h');
sleep 2;
sql('postgres', 'DROP DATABASE s2');
$node->wait_for_catchup($standby);
$standby->append_conf('postgresql.conf', "blobext.autogc_naptime = '1s'");
$standby->promote;
for (my $i = 0; (@left = glob($standby->data_dir . "/pg_blobext/$s2.*")) && $i < 300; $i++) { sleep 0.1 }
is("@left", '', 'a promoted standby removes what it finds');
$standby->stop;

# ---- no background worker is available ----

set('blobext.autogc_naptime' => '1s');
$node->append_conf('postgresql.conf', "max_worker_processes = 2\nmax_logical_replication_workers = 1");
$node->stop;
$offset = -s $node->logfile;
$node->start;
sleep 4;
my @complaints = slurp_file($node->logfile, $offset) =~ /could not start a process to collect blobs/g;
is(scalar @complaints, 1, 'one line about missing processes');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:/, 'no PANIC in the log');
done_testing();
