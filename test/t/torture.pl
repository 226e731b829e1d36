# Everything at once, for as long as you like: no live extent is freed, every free one comes back.
#
# Clients insert, copy between tables, move between partitions (also attached and detached), update,
# append, write, patch, insert, delete and truncate ranges, delete, roll back, use savepoints, prepared
# transactions and statements, held cursors, old and exported snapshots, temporary tables,
# procedures that carry values in variables over COMMIT and ROLLBACK; in plain and unlogged tables,
# arrays of rows, domains, indexes by content (one unique), a materialized view; beside TRUNCATE,
# VACUUM (also FULL), CLUSTER, REINDEX and CREATE INDEX CONCURRENTLY, rewrites, new and dropped
# columns.  Sessions and columns change their method of compression, and values are stored anew or made
# to share (blobext_dedup()) meanwhile.  The collector and checkpoints run in a loop, so that freed space
# is used again at once; the rest of it goes back to the file system (blobext.keep_free = 0), and is
# reserved again for the next large values.
# At the end of a round the clients end, or all server processes are killed, or, where test/run tap was
# started by root, the power of the file system is cut.
#
# Each value goes with the digest that its content should have, computed from bytea.  A client that
# reads or changes a value verifies that, all the time; XB001 is never excused: the collector waits
# for every process that may have a value, so on a primary no statement can see one vanish.  After
# each round
#
#	- clients have met no error but those of locks and of the crash,
#	- every value has the content of its digest; blobext_check() finds nothing,
#	- amcheck finds nothing in the indexes by content, and they give the rows of a sequential scan,
#	- after indexes are rebuilt, VACUUM, two quiet rounds of the collector and a checkpoint: exactly the
#	  extents that values have are allocated, and none waits,
#	- the pages that the map calls punched have no blocks in the files, and all others have theirs.
#
# See test/run torture for the settings.  The seed repeats the choices of a run, not its timing.
#
# That it can fail: 30 seconds of load fail without
#
#	- waiting for transactions (step 5 of src/gc/README.md): XB001 for clients, in the first round,
#	- the cutoff, so that fresh extents are freed: the same,
#	- marking arrays and rows: values are lost, XB001 after the round,
#	- marking B-trees: blobext_check() finds keys that refer to freed extents,
#	- claims, so that both of two versions win the room behind a value: foreign bytes (TT001),
#	- blob_segment_fill(): blocks are missing in the files,
#
# and a minute or two
#
#	- without holders (quiesce.c): XB001 where a held cursor or a procedure goes on,
#	- without the marks of tuples whose deleter is known to have committed: XB001 for old snapshots,
#	- without the wait for older snapshots: XB001 after one was handed down (some minutes),
#	- without the checkpoint that freed space waits for, at wal_level minimal, where only some content
#	  is logged: foreign bytes after a crash.
#
# gc.pl, gc_races.pl and free.pl test these one by one.
use strict;
use warnings;

use FindBin;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Storable qw(retrieve);
use Test::More;
use Time::HiRes qw(sleep time);

use lib $FindBin::RealBin;
use BlobTest;
use TortureClient qw(live collect_in_a_loop);

my $seconds = $ENV{BLOBEXT_TORTURE_SECONDS} // 40;	# of load, in all
my $round_seconds = $ENV{BLOBEXT_TORTURE_ROUND} // 10;
my $clients = $ENV{BLOBEXT_TORTURE_CLIENTS} // 4;
my $kills = $ENV{BLOBEXT_TORTURE_KILLS} // 50;		# percentage of rounds that end with a kill
my $seed = $ENV{BLOBEXT_TORTURE_SEED} // (time() * 1000 ^ $$) % 1_000_000_000;
my $small = $ENV{BLOBEXT_SMALL_FS};
my %settings = (
	minimal => "wal_level = minimal\nmax_wal_senders = 0\n",
	replica => "wal_level = replica\nblobext.autogc = on\n",
	power => "wal_level = minimal\nmax_wal_senders = 0\n");
my @names = split / /, $ENV{BLOBEXT_TORTURE_SETTINGS} // 'minimal replica';
my @styles = qw(quick past mixed);	# see choose_mode() in TortureClient.pm
my (%done, %errors, $rounds, $crashes);
my %counted;	# counters of the server that runs, as they were added to %done

sub lines
{
	my ($node, $sql) = @_;
	return split /\n/, $node->safe_psql('postgres', $sql);
}

# ---- load ----

sub start_process
{
	my ($code, %options) = @_;
	my $pid = fork() // die "fork: $!";
	return $pid if $pid;
	my $done = eval { $code->(%options); 1 };
	print STDERR "$options{name}: $@" unless $done;
	POSIX::_exit($done ? 0 : 1);		# without the END blocks, which stop the cluster
}

# Adds up the results that a process wrote.  Gives its failures.
sub take_results
{
	my ($file, $prefix) = @_;
	my $result = retrieve($file);
	my ($done, $errors) = @$result{qw(done errors)};
	$done{"$prefix$_"} += $done->{$_} foreach keys %{ $done // {} };
	$errors{"$prefix$_"} += $errors->{$_} foreach keys %{ $errors // {} };
	return @{ $result->{failures} // [] };
}

sub crash
{
	my ($node, $cuts_power) = @_;
	$crashes++;
	if ($cuts_power)
	{
		append_to_file(power_is_off(), '');
		power('off');
	}
	kill_everything($node);
	power('on') if $cuts_power;
	return;
}

# Clients look for it when a statement fails.
sub power_is_off
{
	return "$PostgreSQL::Test::Utils::log_path/power_is_off";
}

sub run_load
{
	my ($node, $label, $round, $style, $crashes_at, $cuts_power) = @_;
	my $round_seed = $seed + 1000 * $round;
	my $directory = $PostgreSQL::Test::Utils::log_path;
	my @options = (connstr => $node->connstr('postgres'), end => time() + $round_seconds,
		power_is_off => power_is_off(), style => $style);
	unlink power_is_off();
	my %files = map { $_ => "$directory/" . $node->name . ".$_" } 'gc', 1 .. $clients;
	my @pids = map { start_process(\&live, @options, name => $_, seed => $round_seed + $_,
		file => $files{$_}) } 1 .. $clients;
	push @pids, start_process(\&collect_in_a_loop, @options, name => 'gc', file => $files{gc});

	if (defined $crashes_at)
	{
		sleep($crashes_at);
		crash($node, $cuts_power);
	}
	my $failed = 0;
	foreach my $pid (@pids)
	{
		waitpid($pid, 0);
		$failed++ if $? != 0;
	}
	is($failed, 0, "$label: no client has died");
	my @failures = map { take_results($files{$_}, $_ eq 'gc' ? 'gc ' : '') } sort keys %files;
	is(join("\n", @failures), '', "$label: clients met no error but those of locks and crashes");
	return;
}

# ---- conditions that must hold afterwards ----

# Prepared transactions of clients that are gone, partitions that they had detached, indexes that
# they had not finished, a column that they had added.
sub tidy_up
{
	my ($node) = @_;
	foreach my $name (lines($node, 'SELECT gid FROM pg_prepared_xacts'))
	{
		$node->safe_psql('postgres', (rand() < 0.5 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$name'");
	}
	foreach my $part (lines($node, q(SELECT right(relname, 1) FROM pg_class
		WHERE relname ~ '^p[012]$' AND NOT relispartition)))
	{
		$node->safe_psql('postgres',
			"ALTER TABLE p ATTACH PARTITION p$part FOR VALUES IN ($part)");
	}
	$node->safe_psql('postgres', "DROP INDEX $_") foreach lines($node,
		'SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid');
	# Not in the view of all values: it comes and goes.
	my $has_extra = $node->safe_psql('postgres', q(SELECT count(*) FROM pg_attribute
		WHERE attrelid = 'a'::regclass AND attname = 'extra'));
	is_empty($node, q(SELECT id FROM a WHERE NOT verified(sha256(content('extra', 5000)), extra)
		AND extra IS NOT NULL), 'the extra column has the contents of its digests') if $has_extra;
	$node->safe_psql('postgres', 'ALTER TABLE a DROP COLUMN IF EXISTS extra') if $has_extra;
	return;
}

sub is_empty
{
	my ($node, $sql, $name) = @_;
	my ($result, $stdout, $stderr) = $node->psql('postgres', $sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is("$stdout$stderr" =~ s/^\s+//r, '', $name);
}

sub check_values
{
	my ($node, $label) = @_;
	my ($result, $stdout, $stderr) =
	  $node->psql('postgres', 'SELECT count(verified(digest, b)) FROM everything');
	is($stderr, '', "$label: $stdout values have their contents");
	is_empty($node, 'SELECT * FROM blobext_check()', "$label: blobext_check() finds nothing wrong");
	foreach my $index (lines($node, q(SELECT i.indexrelid::regclass FROM pg_index AS i, pg_class AS c
		WHERE c.oid = i.indexrelid AND c.relkind = 'i' AND c.relnamespace = 'public'::regnamespace
		AND 'btree' = (SELECT amname FROM pg_am WHERE oid = c.relam) ORDER BY 1::text)))
	{
		is_empty($node, "SELECT bt_index_check('$index', true);
			SELECT bt_index_parent_check('$index', true, true)", "$label: amcheck of $index");
	}
	foreach my $table (qw(u p1))
	{
		my $list = "SELECT md5(string_agg(id || ' ' || encode(digest, 'hex'), ' ')) FROM
			(SELECT id, digest FROM $table";
		my $sorted = $node->safe_psql('postgres', "$list ORDER BY b::bytea, id) AS s");
		is($node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_bitmapscan = off;
			SET enable_sort = off; SET enable_incremental_sort = on; $list ORDER BY b, id) AS s"),
			$sorted, "$label: $table by its index");
	}
	is_empty($node, 'SET enable_seqscan = off; SELECT id FROM u AS o
		WHERE b IS NOT NULL AND 1 <> (SELECT count(*) FROM u WHERE b = o.b::bytea::blobstate)',
		"$label: each value of u is found by its content");
	return;
}

# Of each segment that has a file: its blocks are those of its pages that are not punched.
sub check_holes
{
	my ($node, $label) = @_;
	is_empty($node, q(SELECT segment, bytes, file_bytes, disk_bytes, filled FROM blobext_files() AS f,
		LATERAL (SELECT coalesce(sum(s.bytes), 0)::bigint AS filled FROM blobext_space AS s
			WHERE s.segment = f.segment AND state NOT IN ('punched', 'absent')) AS s
		WHERE disk_bytes < filled OR disk_bytes > filled + file_bytes - bytes + file_bytes / 16 + 1048576),
		"$label: blocks of the files");
	foreach my $name (qw(punched_bytes filled_bytes))
	{
		my $bytes = stat_of($node, $name);
		$done{$name} += $bytes - ($counted{$name} // 0);
		$counted{$name} = $bytes;
	}
	# The values of the next round can fill punched pages after it.
	$node->safe_psql('postgres', 'CHECKPOINT');
	return;
}

# No other session is there.  An extent that is still allocated though no value has it is a leak.
sub check_leaks
{
	my ($node, $label) = @_;
	my @tables = qw(a q n u p l);
	$node->safe_psql('postgres', "REINDEX TABLE $_; VACUUM (INDEX_CLEANUP ON) $_") foreach @tables;
	$node->safe_psql('postgres', 'VACUUM pg_statistic, pg_statistic_ext_data');
	# The launcher's workers collect under load; here they would be in the way.
	$node->safe_psql('postgres', 'ALTER SYSTEM SET blobext.autogc = off');
	$node->reload;
	$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM blobext_gc_status
		WHERE pid IS NOT NULL') or die 'a worker collects for ever';
	for (1 .. 2)
	{
		is($node->safe_psql('postgres', 'SET client_min_messages = error;
			SELECT skipped_reason FROM blobext_gc()'), '', "$label: a quiet round is not skipped");
	}
	$node->safe_psql('postgres', 'CHECKPOINT; SELECT blobext_gc()');
	is_empty($node, 'SELECT * FROM differences ORDER BY 2',
		"$label: exactly the extents of values are allocated");
	is_empty($node, q(SELECT * FROM blobext_space WHERE state = 'pending'),
		"$label: no page is pending at the end");
	check_holes($node, $label);
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET blobext.autogc');
	$node->reload;
	return;
}

# The second of each round in which its servers crash, undef for a round that goes to its end.  Rounds
# that all crash in their first seconds give the collector no time to free anything, so one of them
# goes to its end unless all are to crash.
sub choose_crashes
{
	my ($count) = @_;
	my @crashes = map { rand(100) < $kills ? rand($round_seconds) : undef } 1 .. $count;
	$crashes[rand(@crashes)] = undef if $kills < 100 && !grep { !defined } @crashes;
	return @crashes;
}

sub run_round
{
	my ($node, $name, $round, $style, $crashes_at) = @_;
	my $label = "$name $round, $style";
	my $cuts_power = $name eq 'power';

	run_load($node, $label, $round, $style, $crashes_at, $cuts_power);
	if (defined $crashes_at)
	{
		kill_in_recovery($node, 0.1) if rand() < 0.2;
		$node->start;
		%counted = ();
	}
	$rounds++;
	tidy_up($node);
	check_values($node, "$label, as it is");
	check_leaks($node, $label);
	check_values($node, "$label, collected");
	return;
}

sub report
{
	my ($started) = @_;
	note(sprintf('%.2f hours, %d rounds, %d crashes', (time() - $started) / 3600, $rounds,
		$crashes // 0));
	note("done: " . join(', ', map { "$_ $done{$_}" } sort keys %done));
	note("errors: " . join(', ', map { "$_: $errors{$_}" } sort keys %errors));
	return;
}

my $started = time();
$ENV{PGOPTIONS} = '-c lock_timeout=60s';	# no other session is there when we check
note("seed $seed, $seconds s of load in rounds of $round_seconds s, $clients clients");
@names = grep { $_ ne 'power' || $small } @names;
my $share = POSIX::ceil($seconds / @names / $round_seconds);	# rounds of each setting
srand($seed);
my @crashes = choose_crashes($share * @names);
foreach my $name (@names)
{
	local $PostgreSQL::Test::Utils::tmp_check = $PostgreSQL::Test::Utils::tmp_check;
	if ($name eq 'power')
	{
		power('format');
		$PostgreSQL::Test::Utils::tmp_check = $small;
	}
	my $node = blob_cluster($name, conf => $settings{$name} . q(
autovacuum = off
blobext.autogc_naptime = 1s
blobext.autogc_threshold = 1MB
deadlock_timeout = 100ms
checkpoint_timeout = 30s
max_wal_size = 512MB
blobext.keep_free = 0
blobext.rewrite_limit = 32kB
));
	%counted = ();
	$node->safe_psql('postgres', slurp_file("$FindBin::RealBin/torture.sql"));
	sync_cluster($node) if $name eq 'power';
	run_round($node, $name, $_, $styles[$_ % @styles], shift @crashes) for (1 .. $share);
	# A few seconds of load may be too short for a round of the collector that finds garbage.
	for (1 .. 10)
	{
		last if ($done{'gc freed_values'} // 0) > 0;
		run_round($node, $name, $share + $_, $styles[$_ % @styles], undef);
	}
	push @styles, shift @styles;	# few rounds of two settings: all styles
	$node->stop;
	# Without power a sync fails, which is a PANIC.
	my $failure = $name eq 'power' ? qr/TRAP:/ : qr/PANIC|TRAP:|terminated by signal/;
	ok(slurp_file($node->logfile) !~ $failure, "$name: no process failed");
	$node->clean_node if Test::More->builder->is_passing;
}
report($started);
cmp_ok($done{'gc freed_values'} // 0, '>', 0, 'the collector freed values under load');
cmp_ok($done{punched_bytes} // 0, '>', 0, 'space went back to the file system');
done_testing();
