# Crashes at random moments under concurrent load.
#
# Clients insert, copy, update, delete, roll back, use savepoints, COPY, rewrite tables and prepare
# transactions; each keeps record, outside of the server, of what was committed and of what was in
# flight when the connection broke.  Then all server processes are killed with SIGKILL at one
# moment (or one backend only, so that the postmaster starts over in the same shared memory; or in
# the middle of recovery once more).  Started by run_tap as root there are also power cuts: the file
# system below the cluster is shut down first, so that whatever was not synced is lost; a control
# shows that it is.  After each restart
#
#	- every committed value reads with the SHA-256 of what was sent, and is the only thing there:
#	  nothing of a transaction that was not committed, and of a commit that was in flight all or
#	  nothing,
#	- with synchronous_commit = off the last commits may be lost, but only the last, and whole,
#	- prepared transactions are there and can be committed,
#	- blobext_check() finds nothing, and no page belongs to two values of different content.
#
# BLOBEXT_CRASH_ROUNDS (5) rounds for each of BLOBEXT_CRASH_SETTINGS (all; blanks between) and
# BLOBEXT_CRASH_CLIENTS (4).  BLOBEXT_CRASH_SEED repeats the choices of a run, not its timing.
#
# That the test can fail: with BLOBEXT_CRASH_BREAK=record one digest of the record is changed,
# =page one page of a value is overwritten, =lose one committed transaction is taken out of the
# record; each must make it fail, and does.  So do a library that does not call fdatasync() (every
# power cut) and one that does not replay ALLOC records (every crash).
use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use FindBin;
use IO::Handle;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Storable qw(nstore retrieve);
use Test::More;
use Time::HiRes qw(sleep time);

use lib $FindBin::RealBin;
use BlobTest;

my $rounds = $ENV{BLOBEXT_CRASH_ROUNDS} // 5;
my $seed = $ENV{BLOBEXT_CRASH_SEED} // (time() * 1000 ^ $$) % 1_000_000_000;
my $clients = $ENV{BLOBEXT_CRASH_CLIENTS} // 4;
my $break = $ENV{BLOBEXT_CRASH_BREAK} // '';
my $max_rows = 60;

my @special_sizes = (
	0, 1, 1023, 1024, 1025, 4095, 4096, 4097, 8192, 8193, 7 * 4096, 7 * 4096 + 1,
	262_144, 262_145, 1_048_575, 1_048_576, 1_048_577, 2_097_152);

my %settings = (
	minimal => q(wal_level = minimal
max_wal_senders = 0
),
	replica => q(wal_level = replica
wal_compression = on
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

# ---- one client ----

my $cuts_power;

# psql at the other end of two pipes.
package Client
{
	use IPC::Open2;

	sub new
	{
		my ($class, $connstr) = @_;
		my $self = bless { no => 0 }, $class;
		local $SIG{PIPE} = 'IGNORE';
		$self->{pid} = open2($self->{out}, $self->{in}, 'psql', '-XAtq', '-d', $connstr);
		binmode $self->{in};
		return $self;
	}

	# Send statements; gives the SQLSTATE of the last one and its output, or nothing when the
	# connection is gone.
	sub run
	{
		my ($self, $sql) = @_;
		my $in = $self->{in};
		my $out = $self->{out};
		my $end = 'END' . $self->{no}++;
		my @lines;

		print $in "$sql\n\\echo $end :SQLSTATE\n" or return;
		$in->flush or return;
		while (my $line = <$out>)
		{
			chomp $line;
			if ($line =~ /^$end (\S*)$/)
			{
				# No SQLSTATE, a shutdown, a crash elsewhere: the connection is gone.
				# Without power every statement fails, before the processes are killed.
				return () if $1 =~ /^(|57P0.|08...)$/ || $cuts_power && $1 ne '00000';
				return ($1, @lines);
			}
			push @lines, $line;
		}
		return;
	}
}

package main;

sub random_size
{
	my $dice = rand();
	return $special_sizes[ rand @special_sizes ] if $dice < 0.25;
	return int(rand(2_000)) if $dice < 0.4;
	return int(rand(65_536)) if $dice < 0.85;
	return int(rand(2_097_153));
}

# What a client knows and does.  rows: "table:id" -> digest of what is committed;
# prepared: name -> change; history: changes in the order of their commits in this round.
sub new_state
{
	my ($no) = @_;
	return {
		no => $no, next_id => $no * 1_000_000 + 1, rows => {}, prepared => {},
		is_async => $no == $clients, table => "t$no", is_wide => 0
	};
}

sub new_value
{
	my ($state) = @_;
	my $id = $state->{next_id}++;
	my $bytes = content("$seed.$id", random_size());
	return ($id, $bytes, sha256_hex($bytes));
}

# A row that this transaction may touch, or copy from.
sub any_row
{
	my ($state, $change, $own_table) = @_;
	my %now = (%{ $state->{rows} }, %$change);
	my @keys = grep { defined $now{$_} && !$state->{locked}{$_} } sort keys %now;
	@keys = grep { /^t/ } @keys if $own_table;
	return unless @keys;
	my $key = $keys[ rand @keys ];
	return ($key, $now{$key}, split /:/, $key);
}

# One step of a transaction: SQL, and what it changes.
sub step
{
	my ($state, $change, $may_touch) = @_;
	my $dice = rand();
	my $table = rand() < 0.7 && $may_touch ? $state->{table} : 'shared';

	if ($dice < 0.35 || !any_row($state, $change, 1))
	{
		my ($id, $bytes, $digest) = new_value($state);
		$change->{"$table:$id"} = $digest;
		return "INSERT INTO $table (id, b) VALUES ($id, " . literal($bytes) . ');';
	}
	if ($dice < 0.55)
	{
		my ($key, $digest, $from, $from_id) = any_row($state, $change);
		my $id = $state->{next_id}++;
		$change->{"$table:$id"} = $digest;
		return "INSERT INTO $table (id, b) SELECT $id, b FROM $from WHERE id = $from_id;";
	}
	if ($dice < 0.65)
	{
		my $sql = "COPY $table (id, b) FROM STDIN;\n";
		for (1 .. 1 + rand 3)
		{
			my ($id, $bytes, $digest) = new_value($state);
			$change->{"$table:$id"} = $digest;
			$sql .= "$id\t\\\\x" . unpack('H*', $bytes) . "\n";
		}
		return "$sql\\.";
	}
	if ($dice < 0.75)
	{
		# What the subtransaction stores is not there after it, but other savepoints are.
		my %inner = %$change;
		my $sql = 'SAVEPOINT s; ' . step($state, \%inner, $may_touch);
		if (rand() < 0.5)
		{
			%$change = %inner;
			return "$sql RELEASE s;" if $sql !~ /\\\.$/;
			return "$sql\nRELEASE s;";
		}
		return "$sql\nROLLBACK TO s;";
	}
	return step($state, $change, 0) unless $may_touch;

	my ($key, $digest, $from, $id) = any_row($state, $change, 1);
	if ($dice < 0.87)
	{
		my (undef, $bytes, $new) = new_value($state);
		$change->{$key} = $new;
		return "UPDATE $from SET b = " . literal($bytes) . " WHERE id = $id;";
	}
	return "UPDATE $from SET note = note + 1 WHERE id = $id;" if $dice < 0.92;
	$change->{$key} = undef;
	return "DELETE FROM $from WHERE id = $id;";
}

# Keep the tables small, so that reading all of them stays fast.
sub deletions
{
	my ($state, $change) = @_;
	my $sql = '';
	my %now = (%{ $state->{rows} }, %$change);
	my @keys = grep { defined $now{$_} && !$state->{locked}{$_} } sort keys %now;
	while (@keys > $max_rows)
	{
		my ($key) = splice(@keys, rand @keys, 1);
		my ($table, $id) = split /:/, $key;
		$change->{$key} = undef;
		$sql .= "DELETE FROM $table WHERE id = $id;\n";
	}
	return $sql;
}

sub apply
{
	my ($rows, $change) = @_;
	foreach my $key (keys %$change)
	{
		if (defined $change->{$key}) { $rows->{$key} = $change->{$key}; }
		else { delete $rows->{$key}; }
	}
	return;
}

# A statement that may end a transaction with a change.  False when the connection is gone.
sub finish
{
	my ($state, $client, $sql, $change) = @_;
	$state->{in_flight} = $change;
	my ($sqlstate) = $client->run($sql);
	return 0 unless defined $sqlstate;
	delete $state->{in_flight};
	die "client $state->{no}: \"$sql\" failed: $sqlstate" if $sqlstate ne '00000';
	push @{ $state->{history} }, $change;
	apply($state->{rows}, $change);
	return 1;
}

# Commands outside of transaction blocks: rewrites of the table, ends of prepared transactions.
sub other_command
{
	my ($state, $client) = @_;
	my @names = sort keys %{ $state->{prepared} };

	if (@names && rand() < 0.6)
	{
		my $name = $names[ rand @names ];
		my $commit = rand() < 0.6;
		my $change = $commit ? $state->{prepared}{$name} : {};

		$state->{ending} = $name;
		finish($state, $client, ($commit ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$name';", $change)
		  or return 0;
		delete $state->{ending};
		delete $state->{prepared}{$name};
		return 1;
	}
	return finish($state, $client, 'CHECKPOINT;', {}) if rand() < 0.1;
	return 1 if @names;			# they lock the table
	return finish($state, $client, "VACUUM FULL $state->{table};", {}) if rand() < 0.3;
	$state->{is_wide} = !$state->{is_wide};
	return finish($state, $client, "ALTER TABLE $state->{table} ALTER note TYPE "
		  . ($state->{is_wide} ? 'bigint' : 'integer') . ';', {});
}

sub transaction
{
	my ($state, $client) = @_;
	my $dice = rand();
	my $prepares = $dice < 0.1 && !$state->{is_async} && keys %{ $state->{prepared} } < 3;
	my %change;
	my $sql = "BEGIN;\n" . ($prepares ? '' : deletions($state, \%change));
	$sql .= step($state, \%change, !$prepares) . "\n" for (1 .. 1 + rand 5);
	$sql .= 'SELECT WHERE false;';	# psql sets no SQLSTATE for a COPY that fails

	my ($sqlstate) = $client->run($sql);
	return 0 unless defined $sqlstate;
	die "client $state->{no}: transaction failed: $sqlstate" if $sqlstate ne '00000';
	if ($prepares)
	{
		my $name = 'c' . $state->{no} . '_' . $state->{next_id}++;
		$state->{preparing} = { name => $name, change => \%change };
		($sqlstate) = $client->run("PREPARE TRANSACTION '$name';");
		return 0 unless defined $sqlstate;
		die "PREPARE TRANSACTION failed: $sqlstate" if $sqlstate ne '00000';
		delete $state->{preparing};
		$state->{prepared}{$name} = \%change;
		return 1;
	}
	if ($dice < 0.25)
	{
		return defined(($client->run('ROLLBACK;'))[0]);
	}
	return finish($state, $client, 'COMMIT;', \%change);
}

# The life of a client in one round: until the connection breaks.
sub client
{
	my ($connstr, $state, $round, $file) = @_;
	my $client = Client->new($connstr);

	srand($seed + 1000 * $round + $state->{no});
	$state->{history} = [];
	$client->run('SET synchronous_commit = off;') if $state->{is_async};
	while ((rand() < 0.08) ? other_command($state, $client) : transaction($state, $client)) { }
	nstore($state, $file);
	return;
}

# ---- the test ----

# All rows as they are: key -> digest of the content that was read.
sub rows_of
{
	my ($node) = @_;
	my %rows;
	my $sql = join(' UNION ALL ',
		map { "SELECT '$_:' || id, encode(sha256(b::bytea), 'hex'), sha256(b) = sha256(b::bytea)
			FROM $_" } 'shared', map { "t$_" } 1 .. $clients);
	foreach my $line (split /\n/, $node->safe_psql('postgres', $sql))
	{
		my ($key, $digest, $agrees) = split /\|/, $line;
		$rows{$key} = $agrees eq 't' ? $digest : 'digest of the descriptor differs';
	}
	return \%rows;
}

sub owner_of
{
	my ($key) = @_;
	return int((split /:/, $key)[1] / 1_000_000);
}

# What differs between two states of a client's rows, as text; empty if nothing.
sub difference
{
	my ($expected, $found) = @_;
	my %keys = (%$expected, %$found);
	my @text;
	foreach my $key (sort keys %keys)
	{
		my ($a, $b) = ($expected->{$key} // 'no row', $found->{$key} // 'no row');
		push @text, "$key: expected $a, found $b" if $a ne $b;
	}
	return join("\n", @text);
}

# The client's rows are those of its last commit, or of the one that was in flight; without
# synchronous commit, of any of its commits.  Takes over what is found.
sub compare
{
	my ($state, $before, $found, $label) = @_;
	my @history = @{ $state->{history} };
	my %expected = %$before;
	my @candidates = ({%expected});

	foreach my $change (@history, $state->{in_flight} // ())
	{
		apply(\%expected, $change);
		push @candidates, {%expected};
	}
	my $first = $state->{is_async} ? 0 : @history;
	my $closest = difference($candidates[ scalar @history ], $found);
	foreach my $candidate (@candidates[ $first .. $#candidates ])
	{
		next if difference($candidate, $found) ne '';
		$state->{rows} = {%$candidate};
		return pass("$label: " . scalar(@history) . ' commits, ' . keys(%$candidate) . ' rows');
	}
	diag($closest);
	return fail($label);
}

sub prepared_names
{
	my ($node) = @_;
	return map { $_ => 1 } split /\n/,
	  $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
}

# Prepared transactions: the acknowledged ones are there; all that are there end now.
sub end_prepared
{
	my ($node, $states, $label) = @_;
	my %there = prepared_names($node);
	my @lost;
	my $count = 0;

	foreach my $state (@$states)
	{
		my %changes = %{ $state->{prepared} };
		$changes{ $state->{preparing}{name} } = $state->{preparing}{change}
		  if $state->{preparing};
		foreach my $name (sort keys %changes)
		{
			if (!delete $there{$name})
			{
				push @lost, $name
				  if exists $state->{prepared}{$name} && ($state->{ending} // '') ne $name;
				next;
			}
			my $commit = rand() < 0.7;
			$node->safe_psql('postgres', ($commit ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$name'");
			apply($state->{rows}, $changes{$name}) if $commit;
			$count++;
		}
		$state->{prepared} = {};
		delete @$state{qw(preparing ending in_flight)};
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is("@lost", '', "$label: no prepared transaction is lost ($count were there)");
	is(join(' ', sort keys %there), '', "$label: no other prepared transaction");
	return;
}

sub rows_by_owner
{
	my ($node) = @_;
	my $rows = rows_of($node);
	my @owned = map { {} } 0 .. $clients;
	$owned[ owner_of($_) ]{$_} = $rows->{$_} foreach keys %$rows;
	return @owned;
}

sub check_after_restart
{
	my ($node, $states, $before, $label) = @_;
	my @found = rows_by_owner($node);

	compare($states->[ $_ - 1 ], $before->[ $_ - 1 ], $found[$_], "$label: client $_")
	  for (1 .. $clients);
	end_prepared($node, $states, $label);
	@found = rows_by_owner($node);
	my $wrong = join('', map { difference($states->[ $_ - 1 ]{rows}, $found[$_]) } 1 .. $clients);
	is($wrong, '', "$label: values of prepared transactions");
	check_is_clean($node, "$label: blobext_check() finds nothing");
	no_page_is_shared($node, "$label: no page belongs to two values",
		'shared', map { "t$_" } 1 .. $clients);
	return;
}

# ---- ways to crash ----

# Not with poll_query_until(), which dies if psql ends before it has read the query.
sub wait_until_up
{
	my ($node) = @_;
	for (1 .. 600)
	{
		return if system_log('pg_isready', '-q', '-d', $node->connstr('postgres')) == 0;
		sleep(0.1);
	}
	die 'the server did not come back';
}

# Kill one backend in the middle of a statement: the postmaster kills the others, and starts over.
sub crash_one_backend
{
	my ($node) = @_;
	my ($pid) = split /\n/, $node->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random()));
	kill('KILL', $pid) if $pid;
	return;
}

# A crash of PostgreSQL 17 or 18 between the writing of two-phase state files and the end of that
# checkpoint: the next start wants to remove these files, under a wrong name, and then skips the WAL
# records because the files are there.  Only the start after that finds the prepared transactions.
# (Seen with 18.6; nothing of blobext is part of it.)
sub find_prepared
{
	my ($node, $log_offset) = @_;
	return
	  if !$node->log_contains('could not remove file "pg_twophase/FFFFFFFF', $log_offset);
	note 'prepared transactions are not found before another start';
	$node->restart;
	return;
}

sub run_round
{
	my ($node, $states, $round, $label) = @_;
	my @before = map { { %{ $_->{rows} } } } @$states;
	my @pids;
	my $directory = $PostgreSQL::Test::Utils::log_path;
	my $log_offset = -s $node->logfile;

	foreach my $state (@$states)
	{
		my $pid = fork() // die "fork: $!";
		if ($pid == 0)
		{
			my $done = eval {
				client($node->connstr('postgres'), $state, $round,
					"$directory/" . $node->name . ".$state->{no}");
				1;
			};
			print STDERR "client $state->{no}: $@" unless $done;
			POSIX::_exit($done ? 0 : 1);	# without the END blocks, which stop the cluster
		}
		push @pids, $pid;
	}

	sleep(0.5 + rand(3));
	my $one_backend = !$cuts_power && rand() < 0.2;
	power('off') if $cuts_power;
	if ($one_backend) { crash_one_backend($node); }
	else { kill_everything($node); }
	power('on') if $cuts_power;
	my $failed = 0;
	foreach my $pid (@pids)
	{
		waitpid($pid, 0);
		$failed++ if $? != 0;
	}
	is($failed, 0, "$label: clients met no error but the crash");
	if (!$one_backend)
	{
		kill_in_recovery($node, 0.1) if rand() < 0.4;
		$node->start;
	}
	wait_until_up($node);
	find_prepared($node, $log_offset);
	@$states = map { retrieve("$directory/" . $node->name . ".$_") } 1 .. $clients;
	break_something($node, $states);
	check_after_restart($node, $states, \@before, $label);
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

# What was not synced before a power cut is lost, else the test would prove nothing.
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
	isnt($content{unsynced}, 'unsynced' x 10_000, 'and takes what was not');
	unlink "$small/synced", "$small/unsynced";
	return;
}

note("seed $seed, $rounds rounds, $clients clients");
content('made before the clients are forked', 1);
foreach my $name (split / /, $ENV{BLOBEXT_CRASH_SETTINGS} // join(' ', sort keys %settings))
{
	$cuts_power = $name =~ /^power/;
	if ($cuts_power && !$small)
	{
		note("no file system whose power can be cut: \"$name\" left out, see test/run_tap");
		next;
	}
	srand($seed);
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
));
	# The cluster is durable from here on; initdb has not cared.
	system('sync') if $cuts_power;
	$node->safe_psql('postgres', join('; ',
		map { "CREATE TABLE $_ (id bigint PRIMARY KEY, note integer DEFAULT 0, b blobstate)" }
		'shared', map { "t$_" } 1 .. $clients));
	my @states = map { new_state($_) } 1 .. $clients;

	for my $round (1 .. $rounds)
	{
		run_round($node, \@states, $round, "$name, round $round");
	}
	$node->stop;
	$node->clean_node;
}

done_testing();
