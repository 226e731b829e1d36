# Power cuts at random moments, on a disk that loses writes that were not flushed.
#
# The load is that of crash.pl, and so are the records of committed transactions.  Beside it there
# are checkpoints, VACUUM and collections, so that space is freed and given to others, or back
# to the file system.  A cut takes the data that the kernel has not written.  Of the writes that the disk has answered, but not made
# durable, it takes each one with a probability that differs from cut to cut; some are torn.  Most
# cuts come where a FLUSH was to make writes durable, in its place; some right after a checkpoint,
# some at any time, some in the middle of recovery from another one.  On the disk is
#
#	all		the cluster,
#	data	all but the WAL, which loses nothing,
#	wal		the WAL; the data directory loses nothing, not even data that was never synced,
#	store	the extent store alone: no sync of PostgreSQL's own files helps it.
#
# The servers take turns with io_uring, aio and blocking I/O, direct and buffered, and with digests of long
# values by a thread, while the WAL is written.  After each cut
#
#	- the file system's journal is replayed, and finds no error,
#	- every committed value reads with the SHA-256 of the bytes sent, and is the only thing there,
#	- blobext_check() finds nothing, no page belongs to two extents,
#	- amcheck finds nothing wrong with the indexes ordered by content, and every row in them.
#
# BLOBEXT_LOSSY_ROUNDS cuts (30) in all, for BLOBEXT_LOSSY_RUNS (place:setting, blanks between; see
# %settings).  BLOBEXT_CRASH_SEED repeats the choices of a run, not its timing.  Figures are printed
# (with -v): cuts, how many of them were at a FLUSH, writes that were not durable and the fate of
# each, values and bytes that were read back.
#
# Seen to fail: without fdatasync() in segment_sync.c (round 1 of store:minimal); without
# DELAY_CHKPT_START in the syncer (each round of store:replica).  lossy_moments.pl chooses its moments.
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
use CrashLoad;

my $why_not = why_no_lossy_disk();
plan skip_all => $why_not if $why_not ne '';
my $rounds = $ENV{BLOBEXT_LOSSY_ROUNDS} // 30;
my @runs = split / /, $ENV{BLOBEXT_LOSSY_RUNS}
  // 'all:replica all:minimal data:replica data:unlogged wal:replica store:replica store:minimal';
my $seed = $ENV{BLOBEXT_CRASH_SEED} // (time() * 1000 ^ $$) % 1_000_000_000;
my $clients = 3;

my %settings = (
	replica => "wal_level = replica\n",
	minimal => "wal_level = minimal\nmax_wal_senders = 0\n",
	unlogged => "wal_level = replica\nblobext.wal_content = off\nblobext.tail_extents = off\n");
my @io = (
	[ 'auto', 'on', 'on' ], [ 'auto', 'off', 'auto' ], [ 'sync', 'on', 'auto' ], [ 'sync', 'off', 'on' ],
	[ 'aio', 'on', 'on' ]);
my @indexes = qw(shared_b t1_b);
# Place -> figure -> sum.
my %total;
my $place;

# How much of the writes that are not durable a cut keeps, and tears, per mille.
sub any_fate
{
	my $kept = rand() < 0.4 ? 0 : int(rand(1001));
	my $torn = rand() < 0.4 ? 0 : int(rand(1001));
	return ($kept, $torn, int(rand(1_000_000_000)));
}

# The power fails at one of the next FLUSHes that make at least the given number of writes durable.
sub wait_for_flush
{
	# The WAL is written and flushed alternately.
	my $writes = $place eq 'wal' ? 1 : int(2 ** rand(4.5));
	my $count = 1 + int(rand($writes < 4 ? 20 : 3));
	power("lossy arm $count $writes " . join(' ', any_fate()));
	for (1 .. 1_500)
	{
		if (power('lossy fate') ne 'pending')
		{
			$total{$place}{cuts_at_flush}++;
			last;
		}
		sleep(0.002);
	}
	return;
}

sub cut
{
	my ($node) = @_;
	my $figures = cut_lossy_disk(any_fate(), $node);
	$total{$place}{cuts}++;
	$total{$place}{$1} += $2 while $figures =~ /(\w+)=(\d+)/g;
	return;
}

# Until the server is gone: frees space, and moves the redo pointer.
sub start_housekeeper
{
	my ($node) = @_;
	my $script = "$PostgreSQL::Test::Utils::tmp_check/housekeeper.sql";
	open(my $file, '>', $script) or die "$script: $!";
	print $file "SELECT pg_sleep(random() * 0.2);\nVACUUM;\nSELECT * FROM blobext_gc();\nCHECKPOINT;\n"
	  x 200;
	close $file;
	my $pid = fork() // die "fork: $!";
	return $pid if $pid;
	open(STDOUT, '>', "$PostgreSQL::Test::Utils::log_path/housekeeper") or POSIX::_exit(126);
	open(STDERR, '>&', \*STDOUT);
	exec('psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', $script) or POSIX::_exit(127);
}

# Start the server, and cut the power again while it recovers, or has just done so.
sub cut_in_recovery
{
	my ($node) = @_;
	my $offset = -s $node->logfile;
	system_log('pg_ctl', '-W', '-D', $node->data_dir, '-l', $node->logfile, 'start');
	for (my $i = 0; !$node->log_contains('database system was', $offset); $i++)
	{
		die 'the server did not start' if $i > 100_000;
		sleep(0.001);
	}
	# Before the cut: a server that meets it ends, and removes the file.
	($node->{_pid}) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	if (rand() < 0.5) { wait_for_flush(); }
	else { sleep(rand(0.2)); }
	cut($node);
	return;
}

sub check_indexes
{
	my ($node, $label) = @_;
	foreach my $index (@indexes)
	{
		my ($result, $stdout, $stderr) =
		  $node->psql('postgres', "SELECT bt_index_parent_check('$index', true, true)");
		is($stdout . $stderr, '', "$label: amcheck finds the index $index sound");
	}
	my ($values, $bytes) = split /\|/, $node->safe_psql('postgres', 'SELECT count(*), sum(length(b)) FROM ('
		  . join(' UNION ALL ', map { "SELECT b FROM $_" } 'shared', map { "t$_" } 1 .. $clients) . ') s');
	$total{$place}{values_read} += $values;
	$total{$place}{rounds_with_holes} += $node->safe_psql('postgres',
		q(SELECT (count(*) > 0)::int FROM blobext_space WHERE state = 'punched'));
	$total{$place}{bytes_read} += $bytes || 0;
	return;
}

sub run_round
{
	my ($node, $states, $round, $label) = @_;
	my $load = start_load($node, $states, $round);
	my $housekeeper = start_housekeeper($node);

	sleep(0.2 + rand(1.3));
	my $dice = rand();
	if ($dice < 0.2) { $node->psql('postgres', 'CHECKPOINT'); }
	elsif ($dice < 0.8) { wait_for_flush(); }
	cut($node);
	waitpid($housekeeper, 0);
	my ($method, $direct, $thread) = @{ $io[ $round % @io ] };
	$node->append_conf('postgresql.conf', "blobext.io_method = $method\nblobext.direct_io = $direct\n" .
		"blobext.digest_thread = $thread\n");
	system_or_bail('sync', $node->data_dir . '/postgresql.conf');
	@$states = end_load($node, $load, $label, sub {
		cut_in_recovery($node) if rand() < 0.25;
		$node->start;
	});
	check_after_restart($node, $states, $load, $label);
	check_indexes($node, $label);
	return;
}

sub run_rounds
{
	my ($no, $name, $cuts) = @_;
	my ($where, $setting) = split /:/, $name;
	my $node = lossy_cluster("${where}_${setting}_$no", $where, conf => $settings{$setting} . qq(
restart_after_crash = off
checkpoint_timeout = 30s
max_wal_size = 96MB
blobext.rewrite_limit = 32kB
blobext.keep_free = 0
));
	create_tables($node);
	$node->safe_psql('postgres', join('; ', 'CREATE EXTENSION amcheck',
		map { "CREATE INDEX ${_}_b ON $_ (b)" } qw(shared t1)));
	my @states = new_states();
	$place = $where;
	my $stop = ($total{$where}{cuts} // 0) + $cuts;
	for (my $round = 1; ($total{$where}{cuts} // 0) < $stop; $round++)
	{
		run_round($node, \@states, $round, "$name, round $round");
	}
	$node->stop;
	# A cut in recovery shows as an error of I/O.
	my @strange = grep { /TRAP:|could not replay/ && !/: Input\/output error$/ }
	  split /\n/, slurp_file($node->logfile);
	is("@strange", '', "$name: nothing strange in the log");
	$node->clean_node;
	tell_figures($where);
	return;
}

# Of all cuts at one place.
sub tell_figures
{
	my ($where) = @_;
	my $figures = $total{$where};
	note("$where: " . join(', ', map { "$_ $figures->{$_}" } sort keys %$figures));
	return;
}

note("seed $seed, $rounds cuts, $clients clients");
set_up_load(seed => $seed, clients => $clients, cuts_power => 1, max_rows => 40);
foreach my $no (0 .. $#runs)
{
	run_rounds($no, $runs[$no], int($rounds * ($no + 1) / @runs) - int($rounds * $no / @runs));
}
tell_figures($_) foreach sort keys %total;
tell_what_was_read();

done_testing();
