# Functions that the TAP tests share: clusters with blobext, content, killing, expected errors.
package BlobTest;

use strict;
use warnings;

use Digest::SHA qw(sha256 sha256_hex);
use Exporter 'import';
use IO::Handle;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  blob_cluster content literal kill_everything wait_until_back wait_for_end kill_in_recovery
  fails_with check_is_clean no_page_is_shared no_extents_overlap stat_of store_dir segment_file
  make_values add_values make_traffic values_are_intact power stop_syncer few_are_dirty
  why_no_lossy_disk lossy_cluster put_store_on_lossy_disk cut_lossy_disk sync_cluster
  preload_library start_with_stops hold_at hold_again start_waiting stopped_pid let_go
  promote_before_checkpoint arm_stop await_any_stop expect_damage flip_bit map_bit without_data_checksums
  collect_by_hand
);

# A test that damages no page fails when it is done, if one of its servers has said in its log that a
# page does not have its checksum.  A test that damages pages says so.  (A check that finds nothing is a
# matter of the test.)
my $expects_damage = 0;
my @nodes;
{
	no warnings 'redefine';
	my $new = \&PostgreSQL::Test::Cluster::new;
	*PostgreSQL::Test::Cluster::new = sub {
		my $node = &$new;
		push @nodes, $node;
		return $node;
	};
}

sub expect_damage
{
	$expects_damage = 1;
	return;
}

# The first lines of the servers' logs that tell of such a page.
sub false_alarms
{
	my @found;
	foreach my $node ($expects_damage ? () : @nodes)
	{
		foreach my $path (grep { -f $_ } "$node->{_logfile_base}.log", glob("$node->{_logfile_base}_[0-9]*.log"))
		{
			open(my $log, '<', $path) or die "$path: $!";
			while (my $line = <$log>)
			{
				next if $line !~ /does not have its checksum|(lacks the checksum|no place for the checksums) of/;
				push @found, "$path:$.: $line" if @found < 10;
			}
			close $log;
		}
	}
	return @found;
}

# A name as it is printed is a sentence, also where a part of it comes from a variable; test/tidy sees
# the other part.  A test with shorter names goes on, and fails when it is done.
my @short_names;
{
	no warnings 'redefine';
	my $ok = \&Test::Builder::ok;
	my $done = \&Test::Builder::done_testing;
	*Test::Builder::ok = sub {
		my ($builder, $holds, $name) = @_;
		my @words = grep { /\w/ } split ' ', $name // '';
		push @short_names, "@words" if @words < 4;
		goto &$ok;
	};
	*Test::Builder::done_testing = sub {
		my ($builder) = @_;
		my @found = splice @short_names;
		$builder->ok(0, 'each name of a test has four words or more') if @found;
		$builder->diag("shorter: \"$_\"") foreach @found;
		my @alarms = false_alarms();
		$builder->ok(0, 'no server has found a page without its checksum') if @alarms;
		$builder->diag($_) foreach @alarms;
		goto &$done;
	};
}

# Return a running server with blobext preloaded and created.  Options: streaming (wal_level replica
# and other settings for a standby), conf (text for postgresql.conf), init (options of initdb), fsync
# (default on: the tests make no sense without it), start (default 1), create (default 1), install
# (directory of another PostgreSQL).
sub blob_cluster
{
	my ($name, %options) = @_;
	my @install = defined $options{install} ? (install_path => $options{install}) : ();
	my $node = PostgreSQL::Test::Cluster->new($name, @install);

	$node->init(
		allows_streaming => $options{streaming} // 0,
		extra => $options{init} // []);
	my $fsync = $options{fsync} // 'on';
	$node->append_conf('postgresql.conf', qq(
shared_preload_libraries = 'blobext'
fsync = $fsync
log_statement = none
log_min_duration_statement = -1
shared_buffers = 32MB
max_connections = 40
max_prepared_transactions = 20
autovacuum_naptime = 5s
blobext.cache_size = 8MB
blobext.autogc = off
));
	# A standby that was restarting must find its WAL after a checkpoint of the primary.
	$node->append_conf('postgresql.conf', "wal_keep_size = 1GB\n") if $options{streaming};
	$node->append_conf('postgresql.conf', $options{conf}) if defined $options{conf};
	if ($options{start} // 1)
	{
		$node->start;
		$node->safe_psql('postgres', 'CREATE EXTENSION blobext') if $options{create} // 1;
	}
	return $node;
}

# Pseudo-random bytes that are a function of key and size, made fast: slices of a pool, with a
# mask of the key.  No two pages of different values are alike.  With $repeats every 64 bytes
# come $repeats times one after the other: such content can be compressed.
my $pool;

sub content
{
	my ($key, $size, $repeats) = @_;

	if (($repeats // 1) > 1)
	{
		my $once = content($key, int($size / $repeats) + 64);
		return substr(join('', map { $_ x $repeats } unpack('(a64)*', $once)), 0, $size);
	}
	if (!defined $pool)
	{
		$pool = '';
		my $block = 'blobext';
		$pool .= $block = sha256($block) for (1 .. 70_000);
	}
	my $bytes = '';
	for (my $part = 0; length($bytes) < $size; $part++)
	{
		my $mask = sha256("$key.$part");
		my $take = $size - length($bytes);
		my $start = unpack('L', $mask) % 65_536;
		$take = 2_000_000 if $take > 2_000_000;
		my $slice = substr($pool, $start, $take);
		$bytes .= $slice ^ substr($mask x (length($slice) / 32 + 1), 0, length($slice));
	}
	return $bytes;
}

sub literal
{
	my ($bytes) = @_;
	return "'\\x" . unpack('H*', $bytes) . "'";
}

# When pg_ctl has ended, its postmaster is an orphan, and the postmaster's zombie stays until init
# reaps it.  So this process becomes the parent of its orphans where the system allows that.
BEGIN
{
	my %prctl = (x86_64 => 157, aarch64 => 167);
	my $number = $prctl{ (POSIX::uname())[4] };
	use constant PR_SET_CHILD_SUBREAPER => 36;
	syscall($number, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) if defined $number;
}

# Children of a process.
sub children
{
	my ($parent) = @_;
	my @found;
	foreach my $path (glob '/proc/[0-9]*/stat')
	{
		open(my $file, '<', $path) or next;
		my $line = <$file> // next;
		push @found, $1 if $line =~ /^(\d+) \(.*\) \S (\d+)/s && $2 == $parent;
	}
	return @found;
}

# Wait until no process of the list is left.  Zombies count, because a server that starts takes the
# zombie of its predecessor for a live process.
sub wait_for_end
{
	my @pids = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	foreach my $pid (@pids)
	{
		while (-e "/proc/$pid")
		{
			die "process $pid does not end" if time > $end;
			waitpid($pid, POSIX::WNOHANG());
			usleep(1_000);
		}
	}
	return;
}

# Wait until the server is back after the crash of a process: $offset, the end of its log before.
# A connection could be accepted before the postmaster knows of the crash.  No query is sent: where
# the server refuses the connection, psql ends, and writing to it would end this test (EPIPE).
sub wait_until_back
{
	my ($node, $offset) = @_;

	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $offset);
	return $node->poll_query_until('postgres', undef, '');
}

# Kill the postmaster and all its children at one moment.  Each child is a process group of its
# own, so the postmaster is stopped first: then no child starts or is cleaned up meanwhile.
sub kill_everything
{
	my ($node) = @_;
	my $postmaster = $node->{_pid};

	kill('STOP', $postmaster);
	my @pids = (children($postmaster), $postmaster);
	kill('KILL', @pids);
	wait_for_end(@pids);
	$node->{_pid} = undef;
	return scalar @pids;
}

# Start the server, and kill everything again while it recovers: at a random moment of the first
# seconds after its startup process has begun.
sub kill_in_recovery
{
	my ($node, $seconds) = @_;
	my $offset = -s $node->logfile;

	unlink $node->data_dir . '/postmaster.pid';	# no process is left
	system_log('pg_ctl', '-W', '-D', $node->data_dir, '-l', $node->logfile, 'start');
	for (my $i = 0; !$node->log_contains('database system was', $offset); $i++)
	{
		die 'the server did not start' if $i > 100_000;
		usleep(1_000);
	}
	usleep(rand($seconds) * 1_000_000);
	($node->{_pid}) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	return kill_everything($node);
}

# Test that the statement fails with this SQLSTATE and a text (message, detail, hint) like this.
sub fails_with
{
	my ($node, $sql, $sqlstate, $like, $name, %options) = @_;
	my $database = $options{database} // 'postgres';
	my ($result, $stdout, $stderr) =
	  $node->psql($database, "\\set VERBOSITY verbose\n$sql", on_error_stop => 1);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return subtest $name => sub {
		isnt($result, 0, 'the statement ends with an error');
		like($stderr, qr/(ERROR|FATAL):  $sqlstate:/, "the error has SQLSTATE $sqlstate");
		like($stderr, $like, 'the error has the expected text');
	};
}

sub check_is_clean
{
	my ($node, $name, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql($database // 'postgres', 'SELECT * FROM blobext_check()'),
		'', $name);
}

# Test the extents of all values of these tables: two that overlap must be the same extent of the
# same content.
sub no_page_is_shared
{
	my ($node, $name, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return no_extents_overlap($node, $name, 'sha256(b)', @tables);
}

# The same with another expression, whose result the two must have in common.  Versions of a tree may
# have an extent under different numbers: extents without live bytes leave a datum.
sub no_extents_overlap
{
	my ($node, $name, $digest, @tables) = @_;
	my $all = join(' UNION ALL ', map { "SELECT b FROM $_" } @tables);
	my $found = $node->safe_psql(
		'postgres', qq(
WITH extents AS (
	SELECT DISTINCT e.first_page, e.pages, $digest AS digest
	FROM ($all) AS v, blob_extents(b) AS e
), neighbours AS (
	SELECT *, max(first_page + pages) OVER (ORDER BY first_page, pages, digest
		ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS end_before FROM extents
)
SELECT first_page, pages, encode(digest, 'hex') FROM neighbours
WHERE first_page < end_before));
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($found, '', $name);
}

sub stat_of
{
	my ($node, $counter) = @_;
	return $node->safe_psql('postgres', "SELECT value FROM blobext_stat WHERE name = '$counter'");
}

# The store of database "postgres", whose number is the same in all clusters since 15.
sub store_dir
{
	my ($node) = @_;
	my ($directory) = glob($node->data_dir . '/pg_blobext/5.*');
	return $directory;
}

sub segment_file
{
	my ($node, $segment_no) = @_;
	return sprintf('%s/%08x', store_dir($node), $segment_no // 0);
}

# A node that is down gets no alarm from PostgreSQL itself when rows are damaged: from 18 on initdb
# turns the checksums of its pages on.
sub without_data_checksums
{
	my $node = shift;
	my ($said) = run_command([ 'pg_controldata', $node->data_dir ]);
	system_or_bail('pg_checksums', '--disable', '--pgdata', $node->data_dir) if $said !~ /^Data page checksum version: +0$/m;
	return;
}

# Flip a bit of a file: while the server is down, or does not have it in memory.
sub flip_bit
{
	my ($path, $bit) = @_;
	open(my $file, '+<:raw', $path) or die "$path: $!";
	sysseek($file, int($bit / 8), 0);
	sysread($file, my $byte, 1) == 1 or die $!;
	sysseek($file, int($bit / 8), 0);
	syswrite($file, chr(ord($byte) ^ 1 << $bit % 8)) == 1 or die $!;
	$file->sync or die $!;
	close $file or die $!;
	return;
}

# The bit of the map's file that is this one of the entry of a page.
sub map_bit
{
	my ($page, $bit) = @_;
	return ((1 + int($page / 510)) * 8192 + 24 + ($page % 510) * 16) * 8 + $bit;
}

# Make a table with values of many sizes: id, expected digest, b.  The sizes include all special
# ones: empty, inline limit, page, buffer and chunk sizes, sums of tiers.
our @special_sizes = (
	0, 1, 32, 33, 1899, 1900, 1901, 4095, 4096, 4097, 8191, 8192, 8193,
	7 * 4096, 7 * 4096 + 1, 65_536, 65_537, 262_143, 262_144, 262_145, 1_048_575, 1_048_577,
	4_190_208, 4_200_001);

sub make_values
{
	my ($node, $table, @sizes) = @_;
	@sizes = (@special_sizes, map { int(rand(300_000)) } 1 .. 10) unless @sizes;
	$node->safe_psql('postgres', "CREATE TABLE IF NOT EXISTS $table
		(id serial PRIMARY KEY, digest text, b blobstate)");
	add_values($node, $table, @sizes);
	return;
}

# Values are sent through a file: an argument list is too short for them.  $repeats: see content().
our $repeats = 1;
my $value_no = 0;

sub add_values
{
	my ($node, $table, @sizes) = @_;
	my $sql = '';
	foreach my $size (@sizes)
	{
		my $bytes = content("$table." . $value_no++, $size, $repeats);
		$sql .= sprintf("INSERT INTO %s (digest, b) VALUES ('%s', %s);\n",
			$table, sha256_hex($bytes), literal($bytes));
	}
	$node->safe_psql('postgres', $sql);
	return;
}

# Make the table busy and the procedure traffic(), which inserts, grows or deletes values of up to
# $repeats * 16 bytes, most of them much smaller.
sub make_traffic
{
	my ($node, $repeats) = @_;
	$node->safe_psql('postgres', qq(
CREATE TABLE busy (id serial PRIMARY KEY, digest text, b blobstate);
CREATE PROCEDURE traffic() LANGUAGE plpgsql AS \$\$
DECLARE
	c bytea := decode(repeat(md5(random()::text), 1 + (random() ^ 3 * $repeats)::int), 'hex');
BEGIN
	IF random() < 0.5 THEN
		INSERT INTO busy (digest, b) VALUES (encode(sha256(c), 'hex'), c);
	ELSIF random() < 0.6 THEN
		UPDATE busy SET b = blob_append(b, substr(c, 1, 20000)), digest = NULL
		WHERE id = (SELECT id FROM busy ORDER BY random() LIMIT 1);
		UPDATE busy SET digest = encode(sha256(b::bytea), 'hex') WHERE digest IS NULL;
	ELSE
		DELETE FROM busy WHERE id IN (SELECT id FROM busy ORDER BY random() LIMIT 2);
	END IF;
END \$\$));
	return;
}

# Test that every value of the table has the content that was sent, inline or in extents by size.
sub values_are_intact
{
	my ($node, $table, $name) = @_;
	my $limit = $node->safe_psql('postgres',
		q(SELECT setting FROM pg_settings WHERE name = 'blobext.inline_limit'));
	my $bad = $node->safe_psql(
		'postgres', qq(
SELECT id, length(b), blob_storage(b) FROM $table
WHERE encode(sha256(b::bytea), 'hex') <> digest OR encode(sha256(b), 'hex') <> digest
	OR octet_length(b::bytea) <> length(b)
	OR blob_storage(b) <> CASE WHEN length(b) > $limit THEN 'extents' ELSE 'inline' END));
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($bad, '', $name);
}

# Stop the syncer (SIGSTOP) at a moment when it still accepts work: $counter (deferred_pages or
# syncs_handed_over) has grown after a call of the function $store.  Returns its pid.
sub stop_syncer
{
	my ($node, $counter, $store) = @_;
	for (1 .. 400)
	{
		my $pid = $node->safe_psql('postgres',
			q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'blobext syncer'));
		usleep(20_000);
		next if !$pid;			# it is restarted after a second
		$store->();				# wakes the syncer
		kill('STOP', $pid);
		my $before = stat_of($node, $counter);
		$store->();
		return $pid if stat_of($node, $counter) > $before;
		kill('CONT', $pid);
	}
	die 'the syncer takes nothing';
}

# Whether fewer than $limit pages are dirty, within half a minute.
sub few_are_dirty
{
	my ($node, $limit) = @_;
	for (1 .. 300)
	{
		return 1 if stat_of($node, 'pending_deferred_pages') < $limit;
		usleep(100_000);
	}
	return 0;
}

# A round by hand, where rounds begin by themselves, too: it is asked for again while a worker collects in the database.  Returns why
# it was skipped, and a column of its result.
sub collect_by_hand
{
	my ($node, $column, $database) = @_;
	my @row;
	for (1 .. 600)
	{
		my $out = $node->safe_psql($database // 'postgres', 'SET client_min_messages = error; SELECT skipped_reason, '
			  . ($column // 'NULL') . ' FROM blobext_gc()');
		@row = split /\|/, $out, -1;
		last if $row[0] !~ /collects in this database already/;
		usleep(100_000);
	}
	return @row;
}

# Compile a library for LD_PRELOAD from its source in test/unit, once for a test, and return its path.
sub preload_library
{
	my ($source) = @_;
	my $unit_dir = $ENV{BLOBEXT_UNIT_DIR} // die 'BLOBEXT_UNIT_DIR: use test/run tap';
	my $library = "$PostgreSQL::Test::Utils::tmp_check/" . ($source =~ s/\.c$/.so/r);
	return $library if -e $library;
	system('cc', '-O1', '-shared', '-fPIC', '-o', $library, "$unit_dir/$source", '-ldl') == 0
	  or die "$source does not compile";
	return $library;
}

# Start the server so that its processes can stop at system calls, see test/unit/stop_calls.c; with a
# call, and before or after it, the first one that comes to it does.
my $stop;

sub start_with_stops
{
	my ($node, $call, $when) = @_;
	my $library = preload_library('stop_calls.c');
	$stop = $PostgreSQL::Test::Utils::tmp_check . '/' . $node->name . '_stop';
	arm_stop($call, $when) if defined $call;
	local $ENV{BLOBEXT_STOP} = $stop;
	local $ENV{LD_PRELOAD} = $library;
	$node->start;
	return;
}

# The next process that comes to this call shall stop there.
sub arm_stop
{
	my ($call, $when) = @_;
	unlink "$stop.stopped";
	append_to_file($stop, "$call $when");
	chmod 0644, $stop;
	return;
}

sub is_stopped
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return 0;
	my $line = <$file> // '';
	return $line =~ /\) T /;
}

# Wait until a process stops, or until the statement of the session is over.  Test which.  The process
# says that it comes to the call before it stops there: a SIGCONT that came first would be lost.
sub await_stop
{
	my ($session, $name) = @_;
	until (-s "$stop.stopped" || $session->{stdout} =~ /over/)
	{
		usleep(10_000);
		$session->{run}->pump_nb;
	}
	my $is_told = -s "$stop.stopped";
	if ($is_told)
	{
		my ($pid) = slurp_file("$stop.stopped") =~ /(\d+)/;
		usleep(1_000) until is_stopped($pid);
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($is_told, $name);
	unlink $stop;
	return;
}

# The process that has stopped, which may be another one than that of the statement.
sub stopped_pid
{
	my ($pid) = slurp_file("$stop.stopped") =~ /(\d+)/;
	return $pid;
}

# Start a statement, and wait until its process stops at this call.  Returns session and process.
sub hold_at
{
	my ($node, $call, $when, $statement) = @_;
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	arm_stop($call, $when);
	$session->{stdin} .= "$statement;\n\\echo over\n";
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	await_stop($session, "a process stops $when $call");
	return ($session, $pid);
}

# Promote a standby that start_with_stops() has started.  Its first checkpoint, for which no process waits, stops
# before it writes, until the checkpointer, whose pid is returned, gets a SIGCONT.  (A checkpointer that stands still
# sooner would be waited for by the promotion of PostgreSQL 19.)
sub promote_before_checkpoint
{
	my ($standby) = @_;
	arm_stop('checkpoint', 'before');
	$standby->promote;
	return await_any_stop();
}

# Wait until some process stops at the call that is armed; returns its pid.
sub await_any_stop
{
	usleep(10_000) until -s "$stop.stopped";
	my ($pid) = slurp_file("$stop.stopped") =~ /(\d+)/;
	usleep(1_000) until is_stopped($pid);
	unlink $stop;
	return $pid;
}

# A process that stands still goes on to another call, and stops there.
sub hold_again
{
	my ($session, $pid, $call, $when) = @_;
	arm_stop($call, $when);
	kill('CONT', $pid);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	await_stop($session, "a process goes on, and stops $when $call");
	return;
}

# Start a statement in a session of its own, and wait until it waits for something of this kind
# (LWLock: of the allocator), or is over.  Returns the session, and whether it waits.
sub start_waiting
{
	my ($node, $type, $statement) = @_;
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my $event = $type eq 'LWLock' ? " AND wait_event = 'blobext_store'" : '';
	my $waits = 0;
	$session->{stdin} .= "$statement;\n\\echo over\n";
	until ($waits || $session->{stdout} =~ /over/)
	{
		usleep(10_000);
		$session->{run}->pump_nb;
		$waits = $node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity'
			. " WHERE pid = $pid AND wait_event_type = '$type'$event");
	}
	return ($session, $waits);
}

# Let a process that stands still go on, and these sessions come to the end of their statements.
sub let_go
{
	my ($pid, @sessions) = @_;
	kill('CONT', $pid);
	foreach my $session (@sessions)
	{
		until ($session->{stdout} =~ /over/)
		{
			usleep(10_000);
			$session->{run}->pump_nb;
		}
		is($session->{stderr}, '', 'a session that goes on has no error');
		$session->quit;
	}
	return;
}

# Send a command to the root helper that test/run tap starts, see power_switch.  Returns its figures.
sub power
{
	my ($command) = @_;
	my $switch = $ENV{BLOBEXT_POWER_SWITCH} // die 'no power switch: use test/run tap as root';

	open(my $in, '>', "$switch.in") or die "cannot open $switch.in: $!";
	open(my $out, '<', "$switch.out") or die "cannot open $switch.out: $!";
	syswrite($in, "$command\n");
	my $answer = <$out>;
	chomp $answer;
	$answer =~ s/^ok ?// or die "power switch, $command: $answer";
	return $answer;
}

# Return '' if there is a disk that loses writes that were not flushed, else the reason.
sub why_no_lossy_disk
{
	return 'not root, or no loop devices, see test/run tap' if !$ENV{BLOBEXT_POWER_SWITCH};
	return '' if eval { power('lossy start'); 1; };
	return $1 if $@ =~ /impossible: (.*)/;
	die $@;
}

# Format that disk and make a cluster on it, as blob_cluster() does.  $where is the part of the
# cluster on it: all, data (all but the WAL), wal, or store (pg_blobext).  The other parts are on a
# disk that loses nothing.
sub lossy_cluster
{
	my ($name, $where, %options) = @_;
	my $safe = $PostgreSQL::Test::Utils::tmp_check;
	my $lossy = $ENV{BLOBEXT_LOSSY_FS};
	my %wal = (data => "$safe/${name}_wal", wal => "$lossy/wal");
	my @init = $wal{$where} ? ('-X', $wal{$where}) : ();

	power('lossy format');
	local $PostgreSQL::Test::Utils::tmp_check = $where =~ /^(all|data)$/ ? $lossy : $safe;
	my $node = blob_cluster($name, %options, start => 0, init => [ @init, @{ $options{init} // [] } ]);
	put_store_on_lossy_disk($node) if $where eq 'store';
	# initdb has synced nothing; from here on the cluster is durable.
	system_or_bail('sync', '-f', $lossy);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION blobext');
	return $node;
}

# Move the store of a cluster, which is not running, to that disk.
sub put_store_on_lossy_disk
{
	my ($node) = @_;
	my $from = $node->data_dir . '/pg_blobext';
	my $to = "$ENV{BLOBEXT_LOSSY_FS}/pg_blobext";	# a name that test/unit/preload.h knows
	if (-d $from) { system_or_bail('mv', $from, $to); }
	else { mkdir $to, 0700 or die "$to: $!"; }
	symlink($to, $from) or die "$from: $!";
	system_or_bail('sync', '-f', $ENV{BLOBEXT_LOSSY_FS});
	return;
}

# Make a cluster durable: initdb has synced nothing.  Only its file systems, since others may be on disks
# of tests that run beside this one.
sub sync_cluster
{
	my ($node) = @_;
	foreach my $dir ('', '/pg_wal', '/pg_blobext')
	{
		my $path = $node->data_dir . $dir;
		system_or_bail('sync', '-f', $path) if -d $path;
	}
	return;
}

# Cut the disk's power while these servers work.  Of the writes that are not durable some are
# kept, and some of the others torn (per mille).  Returns the figures of the cut.
sub cut_lossy_disk
{
	my ($kept, $torn, $seed, @nodes) = @_;
	my $figures = power("lossy cut $kept $torn $seed");
	foreach my $node (grep { defined $_->{_pid} } @nodes)
	{
		kill_everything($node);
		unlink $node->data_dir . '/postmaster.pid';
	}
	power('lossy on');
	return $figures;
}

1;
