# The load of crash.pl and lossy_disk.pl: clients that record their commits, and the comparison of
# their records with the tables after a crash.
package CrashLoad;

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Exporter 'import';
use IO::Handle;
use List::Util;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Storable qw(nstore retrieve);
use Test::More;
use Time::HiRes qw(sleep);

use BlobTest;

our @EXPORT = qw(
  set_up_load new_states create_tables start_load end_load check_after_restart wait_until_up tell_what_was_read
);

# Seed of the choices; number of clients; do the tests cut the power?  Then every statement may fail
# before the processes are killed.  Last, how many values were read after crashes: all, compressed
# ones, those with open digests, those that were changed in the middle; the size of the largest one of these.
our ($seed, $clients, $cuts_power);
our ($value_count, $compressed_count, $open_count, $edited_count, $edited_bytes) = (0, 0, 0, 0, 0);
my $max_rows = 60;

my @special_sizes = (
	0, 1, 1899, 1900, 1901, 4095, 4096, 4097, 8192, 8193, 7 * 4096, 7 * 4096 + 1,
	262_144, 262_145, 1_048_575, 1_048_576, 1_048_577, 2_097_152);

# ---- one client ----

# psql at the other end of two pipes.
package CrashLoad::Client
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

	# Send statements; returns the SQLSTATE of the last one and its output, or nothing if the
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
				# No SQLSTATE, a shutdown, a crash of another process: the connection is gone.
				# If the power is off, every statement fails before the processes are killed.
				return () if $1 =~ /^(|57P0.|08...)$/ || $CrashLoad::cuts_power && $1 ne '00000';
				return ($1, @lines);
			}
			push @lines, $line;
		}
		return;
	}
}

package CrashLoad;

sub random_size
{
	my $dice = rand();
	return $special_sizes[ rand @special_sizes ] if $dice < 0.25;
	return int(rand(2_000)) if $dice < 0.4;
	return int(rand(65_536)) if $dice < 0.85;
	return int(rand(2_097_153));
}

# State of a client.  rows: "table:id" -> digest of the committed content; parts: digest -> parts of
# the content, as bytes_of() takes them; edited: digest -> size of a content that a change in the middle made;
# prepared: name -> change; history: changes in the order of their commits in this round.
sub new_state
{
	my ($no) = @_;
	return {
		no => $no, next_id => $no * 1_000_000 + 1, rows => {}, prepared => {}, history => [],
		is_async => $no == $clients, table => "t$no", is_wide => 0
	};
}

# Half of the values can be compressed.
sub content_of
{
	my ($id, $size) = @_;
	return content("$seed.$id", $size, $id % 2 ? 4 : 1);
}

sub new_value
{
	my ($state) = @_;
	my $id = $state->{next_id}++;
	my $bytes = content_of($id, random_size());
	my $digest = sha256_hex($bytes);
	$state->{parts}{$digest} = [ [ $id, 0, length($bytes) ] ];
	return ($id, $bytes, $digest);
}

# The content of parts.  Each is a number, and the range that the part has of the bytes that
# content_of() makes of it; for a larger size it only adds some.
sub bytes_of
{
	my ($parts) = @_;
	return join('', map { substr(content_of($_->[0], $_->[1] + $_->[2]), $_->[1]) } @$parts);
}

# Parts of a content from an offset on, of some length.
sub slice
{
	my ($parts, $from, $length) = @_;
	my @slice;
	my $end = $from + $length;
	my $at = 0;
	foreach my $part (@$parts)
	{
		my ($no, $offset, $bytes) = @$part;
		my ($first, $behind) = (List::Util::max($from - $at, 0), List::Util::min($end - $at, $bytes));
		push @slice, [ $no, $offset + $first, $behind - $first ] if $behind > $first;
		$at += $bytes;
	}
	return @slice;
}

# Change a value in the middle: an expression for it, and the parts of its content.
sub change_in_the_middle
{
	my ($state, $parts) = @_;
	my $size = List::Util::sum(map { $_->[2] } @$parts);
	my $at = int(rand($size + 1));
	my $after = $size - $at;
	my $kind = (qw(write insert delete both patch))[ rand 5 ];
	my $no = $state->{next_id}++;
	my $bytes = $kind eq 'delete' ? '' : content_of($no, 1 + int(rand(20_000)));
	$bytes = substr($bytes, 0, $after) if $kind =~ /write|patch/;
	my $drop = List::Util::min($after, $kind =~ /write|patch/ ? length($bytes)
		  : $kind eq 'insert' ? 0 : int(rand(60_000)));
	my $literal = literal($bytes);
	my @new = (slice($parts, 0, $at), length($bytes) ? [ $no, 0, length($bytes) ] : (),
		slice($parts, $at + $drop, $after - $drop));
	return ("blob_write(b, $at, $literal)", \@new) if $kind eq 'write';
	return ("blob_patch(b, ARRAY[$at]::bigint[], ARRAY[$literal]::bytea[])", \@new) if $kind eq 'patch';
	my $expression = $kind eq 'insert' ? 'b' : "blob_delete(b, $at, $drop)";
	return ($kind eq 'delete' ? $expression : "blob_insert($expression, $at, $literal)", \@new);
}

# Return a row that this transaction may change or copy.
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

# One step of a transaction: its SQL, and the change that it makes.
sub step
{
	my ($state, $change, $may_touch) = @_;
	my $dice = rand();
	my $table = rand() < 0.7 && $may_touch ? $state->{table} : 'shared';

	if ($dice < 0.25 || !any_row($state, $change, 1))
	{
		my ($id, $bytes, $digest) = new_value($state);
		$change->{"$table:$id"} = $digest;
		return "INSERT INTO $table (id, b) VALUES ($id, " . literal($bytes) . ');';
	}
	if ($dice < 0.4)
	{
		my ($key, $digest, $from, $from_id) = any_row($state, $change);
		my $id = $state->{next_id}++;
		$change->{"$table:$id"} = $digest;
		return "INSERT INTO $table (id, b) SELECT $id, b FROM $from WHERE id = $from_id;";
	}
	if ($dice < 0.48)
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
	if ($dice < 0.58)
	{
		# The subtransaction's values are gone after it, but other savepoints remain.
		my %inner = %$change;
		my $sql = 'SAVEPOINT s; ' . step($state, \%inner, $may_touch);
		if (rand() < 0.5)
		{
			%$change = %inner;
			return "$sql RELEASE s;" if $sql !~ /\\\.$/;
			return "$sql\nRELEASE s;";
		}
		# A savepoint that stays would undo a later statement that failed because of the crash, and the
		# transaction would go on without it.
		return "$sql\nROLLBACK TO s; RELEASE s;";
	}
	return step($state, $change, 0) unless $may_touch;

	my ($key, $digest, $from, $id) = any_row($state, $change, 1);
	my $parts = $state->{parts}{$digest};
	$dice = rand();
	if ($dice < 0.55 && $parts && @$parts && @$parts < 12)
	{
		my ($expression, $new);
		if ($dice < 0.2)
		{
			my ($new_id, $bytes) = new_value($state);
			($expression, $new) = ('b || ' . literal($bytes), [ @$parts, [ $new_id, 0, length($bytes) ] ]);
		}
		else { ($expression, $new) = change_in_the_middle($state, $parts); }
		my $bytes = bytes_of($new);
		my $whole = sha256_hex($bytes);
		$state->{edited}{$whole} = length($bytes) if $dice >= 0.2;
		$state->{parts}{$whole} = $new;
		$change->{$key} = $whole;
		return "UPDATE $from SET b = $expression WHERE id = $id;";
	}
	if ($dice < 0.7)
	{
		my (undef, $bytes, $new) = new_value($state);
		$change->{$key} = $new;
		return "UPDATE $from SET b = " . literal($bytes) . " WHERE id = $id;";
	}
	return "UPDATE $from SET note = note + 1 WHERE id = $id;" if $dice < 0.8;
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
	my $client = CrashLoad::Client->new($connstr);

	srand($seed + 1000 * $round + $state->{no});
	$state->{history} = [];
	$client->run('SET synchronous_commit = off;') if $state->{is_async};
	$client->run('SET blobext.default_compression = ' . (qw(none lz4 zstd))[ rand 3 ] . ';');
	while ((rand() < 0.08) ? other_command($state, $client) : transaction($state, $client)) { }
	close $client->{in};
	waitpid($client->{pid}, 0);
	nstore($state, $file);
	return;
}

# ---- comparison ----

# All rows as they are: key -> digest of the content that was read.
sub rows_of
{
	my ($node) = @_;
	my %rows;
	my $sql = join(' UNION ALL ',
		map { "SELECT '$_:' || id, encode(sha256(b::bytea), 'hex'), sha256(b) = sha256(b::bytea),
			blob_compression(b), blob_digest_is_open(b)::int FROM $_" } 'shared', map { "t$_" } 1 .. $clients);
	foreach my $line (split /\n/, $node->safe_psql('postgres', $sql))
	{
		my ($key, $digest, $agrees, $method, $is_open) = split /\|/, $line;
		$value_count++;
		$open_count += $is_open;
		$compressed_count++ if $method ne 'none';
		$rows{$key} = $agrees eq 't' ? $digest : 'digest of the descriptor differs';
	}
	return \%rows;
}

# Count the values that were changed in the middle.
sub count_edited
{
	my ($states, $found) = @_;
	my %edited = map { %{ $_->{edited} // {} } } @$states;
	foreach my $bytes (grep { defined } map { $edited{$_} } map { values %$_ } @$found)
	{
		$edited_count++;
		$edited_bytes = List::Util::max($edited_bytes, $bytes);
	}
	return;
}

sub owner_of
{
	my ($key) = @_;
	return int((split /:/, $key)[1] / 1_000_000);
}

# Differences between two states of a client's rows, as text; empty if there are none.
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

# Test that the client's rows are those of its last commit, or of the one in flight; without
# synchronous commit, of any of its commits.  The rows found become the client's state.
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

# Test that all acknowledged prepared transactions exist, and end all that exist.
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
	my ($node, $states, $load, $label) = @_;
	my @found = rows_by_owner($node);

	compare($states->[ $_ - 1 ], $load->{before}[ $_ - 1 ], $found[$_], "$label: client $_ finds what it has committed")
	  for (1 .. $clients);
	end_prepared($node, $states, $label);
	@found = rows_by_owner($node);
	my $wrong = join('', map { difference($states->[ $_ - 1 ]{rows}, $found[$_]) } 1 .. $clients);
	is($wrong, '', "$label: values of prepared transactions are right after their end");
	count_edited($states, \@found);
	check_is_clean($node, "$label: blobext_check() finds nothing");
	# A value shares extents with its version before an append.
	no_extents_overlap($node, "$label: no page belongs to two extents", q('\x'::bytea),
		'shared', map { "t$_" } 1 .. $clients);
	return;
}

# ---- after a crash ----

# This does not use poll_query_until(), which dies if psql ends before it has read the query.
sub wait_until_up
{
	my ($node) = @_;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if system_log('pg_isready', '-q', '-d', $node->connstr('postgres')) == 0;
		sleep(0.1);
	}
	die 'the server did not come back';
}

# A crash of PostgreSQL 17 or 18 between the writing of two-phase state files and the end of that
# checkpoint: the next start wants to remove these files, under a wrong name, and then skips the WAL
# records because the files are there.  Only the start after that finds the prepared transactions.
# (Seen with 18.6; blobext has no part in it.)
sub find_prepared
{
	my ($node, $log_offset) = @_;
	return
	  if !$node->log_contains('could not remove file "pg_twophase/FFFFFFFF', $log_offset);
	note 'prepared transactions are not found before another start';
	$node->restart;
	return;
}

# ---- functions for tests ----

# Tell what was read after crashes, and require that each kind of value was among it.
sub tell_what_was_read
{
	note("$value_count values were read after crashes: $compressed_count compressed, $open_count with open digests, "
		  . "$edited_count changed in the middle, of at most $edited_bytes bytes");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($compressed_count, '>', 0, 'compressed values were read after crashes');
	cmp_ok($open_count, '>', 0, 'values with open digests were read after crashes');
	cmp_ok($edited_count, '>', 0, 'values that were changed in the middle were read after crashes');
	return;
}

sub set_up_load
{
	my (%options) = @_;
	($seed, $clients, $cuts_power) = @options{qw(seed clients cuts_power)};
	$max_rows = $options{max_rows} if $options{max_rows};
	srand($seed);
	content('made before the clients are forked', 1);
	return;
}

sub new_states
{
	return map { new_state($_) } 1 .. $clients;
}

sub create_tables
{
	my ($node) = @_;
	$node->safe_psql('postgres', join('; ',
		(map { "CREATE TABLE $_ (id bigint PRIMARY KEY, note integer DEFAULT 0, b blobstate)" }
		'shared', map { "t$_" } 1 .. $clients),
		# Changes of most tables leave digests open.
		map { "SELECT blobext_set_digest('t$_', 'b', 'deferred')" } 2 .. $clients));
	return;
}

sub record_file
{
	my ($node, $no) = @_;
	return "$PostgreSQL::Test::Utils::log_path/" . $node->name . ".$no";
}

# Start the clients; returns a handle for end_load().
sub start_load
{
	my ($node, $states, $round) = @_;
	my $load = {
		log_offset => -s $node->logfile,
		before => [ map { { %{ $_->{rows} } } } @$states ]
	};

	foreach my $state (@$states)
	{
		my $pid = fork() // die "fork: $!";
		if ($pid == 0)
		{
			my $done = eval {
				client($node->connstr('postgres'), $state, $round, record_file($node, $state->{no}));
				1;
			};
			print STDERR "client $state->{no}: $@" unless $done;
			POSIX::_exit($done ? 0 : 1);	# without the END blocks, which stop the cluster
		}
		push @{ $load->{pids} }, $pid;
	}
	return $load;
}

# After the crash: wait for the clients, start the server with the function $restart, and return the
# states that the clients have left.
sub end_load
{
	my ($node, $load, $label, $restart) = @_;
	my $failed = 0;
	foreach my $pid (@{ $load->{pids} })
	{
		waitpid($pid, 0);
		$failed++ if $? != 0;
	}
	is($failed, 0, "$label: clients met no error but the crash");
	$restart->();
	wait_until_up($node);
	find_prepared($node, $load->{log_offset});
	return map { retrieve(record_file($node, $_)) } 1 .. $clients;
}

1;
