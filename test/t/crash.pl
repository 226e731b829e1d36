# Crashes at random moments under concurrent load.
#
# Clients insert, copy, append, update, delete, roll back, use savepoints, COPY, rewrite tables and
# prepare transactions, with values of all methods of compression; each client records, outside of the
# server, which transactions were committed and which one was in flight when the connection broke.  Then
# all server processes are killed with SIGKILL at one moment (or one backend only, so that the postmaster starts over in the
# same shared memory; or in the middle of recovery once more).  If test/run tap was started by root,
# there are also power cuts: the file system below the cluster is shut down first, so that data that
# was not synced is lost; a control shows that it is.  After each restart
#
#	- every committed value reads with the SHA-256 of the bytes sent, and is the only thing there:
#	  nothing of a transaction that was not committed, and of a commit that was in flight all or
#	  nothing,
#	- with synchronous_commit = off the last commits may be lost, but only the last, and whole,
#	- prepared transactions are there and can be committed,
#	- blobext_check() finds nothing, and no page belongs to two extents.
#
# BLOBEXT_CRASH_ROUNDS (5) rounds for each of BLOBEXT_CRASH_SETTINGS (all; blanks between) and
# BLOBEXT_CRASH_CLIENTS (4).  With -v it tells its seed, the crashes and the values read.  BLOBEXT_CRASH_SEED repeats the choices of a run, not its timing.
#
# That the test can fail: with BLOBEXT_CRASH_BREAK=record one digest of the record is changed,
# =page one page of a value is overwritten, =lose one committed transaction is taken out of the
# record; each must make it fail, and does.  So do a library that does not call fdatasync() (every
# power cut) and one that does not replay ALLOC records (every crash).
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

my $rounds = $ENV{BLOBEXT_CRASH_ROUNDS} // 5;
my $seed = $ENV{BLOBEXT_CRASH_SEED} // (time() * 1000 ^ $$) % 1_000_000_000;
my $clients = $ENV{BLOBEXT_CRASH_CLIENTS} // 4;
my $break = $ENV{BLOBEXT_CRASH_BREAK} // '';

my %settings = (
	minimal => q(wal_level = minimal
max_wal_senders = 0
),
	replica => q(wal_level = replica
wal_compression = on
blobext.digest_thread = on
),
	partial => q(wal_level = replica
full_page_writes = off
blobext.wal_content = off
blobext.tail_extents = off
blobext.cache_size = 0
),
	power_minimal => q(wal_level = minimal
max_wal_senders = 0
),
	power_replica => q(wal_level = replica
));
my $small = $ENV{BLOBEXT_SMALL_FS};
my $cuts_power;
my %crashes;	# kind -> times

# ---- ways to crash ----

# Kill one backend in the middle of a statement: the postmaster kills the others, and starts over.
sub crash_one_backend
{
	my ($node) = @_;
	my ($pid) = split /\n/, $node->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random()));
	kill('KILL', $pid) if $pid;
	$crashes{'kills of one backend'}++;
	return;
}

sub run_round
{
	my ($node, $states, $round, $label) = @_;
	my $load = start_load($node, $states, $round);

	sleep(0.5 + rand(3));
	my $one_backend = !$cuts_power && rand() < 0.2;
	power('off') if $cuts_power;
	if ($one_backend) { crash_one_backend($node); }
	else { kill_everything($node); }
	power('on') if $cuts_power;
	$crashes{ $cuts_power ? 'power cuts' : 'kills of all processes' }++ unless $one_backend;
	@$states = end_load($node, $load, $label, sub {
		return if $one_backend;
		if (rand() < 0.4)
		{
			kill_in_recovery($node, 0.1);
			$crashes{'kills in recovery'}++;
		}
		$node->start;
	});
	break_something($node, $states);
	check_after_restart($node, $states, $load, $label);
	return;
}

# Deliberate damage, to see the test fail.
sub break_something
{
	my ($node, $states) = @_;
	my $history = $states->[0]{history};

	if ($break eq 'record')
	{
		my ($change) = grep { grep { defined } values %$_ } reverse @$history;
		my ($key) = grep { defined $change->{$_} } sort keys %$change;
		$change->{$key} = '0' x 64;
	}
	elsif ($break eq 'lose')
	{
		for (my $i = $#$history; $i >= 0; $i--)
		{
			next unless %{ $history->[$i] };
			splice(@$history, $i, 1);
			last;
		}
	}
	elsif ($break eq 'page')
	{
		my $page = $node->safe_psql('postgres', 'SELECT first_page FROM shared, blob_extents(b)
			ORDER BY first_page LIMIT 1');
		open(my $file, '+<', segment_file($node, 0)) or die $!;
		sysseek($file, $page * 4096, 0);
		syswrite($file, 'damage');
		close $file;
	}
	return;
}

# A power cut loses data that was not synced, else the test would prove nothing.
sub power_is_really_cut
{
	my %content;
	foreach my $name (qw(synced unsynced))
	{
		open(my $file, '>:raw', "$small/$name") or die "$small/$name: $!";
		print $file $name x 10_000;
		$file->flush;
		$file->sync if $name eq 'synced';
		close $file;
	}
	power('off');
	power('on');
	$content{$_} = -e "$small/$_" ? slurp_file("$small/$_") : '' foreach qw(synced unsynced);
	is($content{synced}, 'synced' x 10_000, 'a power cut leaves what was synced');
	isnt($content{unsynced}, 'unsynced' x 10_000, 'a power cut takes what was not synced');
	unlink "$small/synced", "$small/unsynced";
	return;
}

note("seed $seed, $rounds rounds, $clients clients");
foreach my $name (split / /, $ENV{BLOBEXT_CRASH_SETTINGS} // join(' ', sort keys %settings))
{
	$cuts_power = $name =~ /^power/;
	if ($cuts_power && !$small)
	{
		note("no file system whose power can be cut: \"$name\" left out, see test/run tap");
		next;
	}
	set_up_load(seed => $seed, clients => $clients, cuts_power => $cuts_power);
	local $PostgreSQL::Test::Utils::tmp_check = $PostgreSQL::Test::Utils::tmp_check;
	if ($cuts_power)
	{
		power('format');
		power_is_really_cut();
		$PostgreSQL::Test::Utils::tmp_check = $small;
	}
	my $node = blob_cluster($name, conf => $settings{$name} . qq(
restart_after_crash = on
checkpoint_timeout = 30s
max_wal_size = 96MB
blobext.rewrite_limit = 32kB
));
	# The cluster is durable from here on; initdb has not synced it.
	sync_cluster($node) if $cuts_power;
	create_tables($node);
	my @states = new_states();

	for my $round (1 .. $rounds)
	{
		run_round($node, \@states, $round, "$name, round $round");
	}
	$node->stop;
	$node->clean_node;
}
note(join(', ', map { "$_ $crashes{$_}" } sort keys %crashes));
tell_what_was_read();

done_testing();
