# Functions that the tests of the collector share: rounds, sessions, tables with numbered values.
package GcTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  gc_use sql gc frees frees_nothing start_gc gc_result gc_waits_for session pid forget_sessions
  clean table intact poll start_gc_to_stop stopped_gc moved_in_time
  cancel_when
);

my $node;
my @background;

# Set the server that all functions work on, and give it the function value(), which makes content.
sub gc_use
{
	($node) = @_;
	sql(q(CREATE FUNCTION value(i integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS
		$$ SELECT convert_to(repeat(md5(i::text), 1000), 'UTF8') $$));
	clean();
	return;
}

sub sql
{
	my (@statements) = @_;
	return $node->safe_psql('postgres', join(";\n", @statements));
}

# Run a round; returns (freed_blobs, live_blobs, skipped_reason).
sub gc
{
	my (%options) = @_;
	my $timeout = $options{timeout} // '20s';
	my $dry_run = $options{dry_run} ? 'true' : 'false';
	my @settings = map { "SET $_" } @{ $options{settings} // [] };
	my $row = sql("SET client_min_messages = warning; SET blobext.gc_wait_timeout = '$timeout'",
		@settings, "SELECT freed_blobs, live_blobs, skipped_reason FROM blobext_gc($dry_run)");
	return split /\|/, $row, 3;
}

sub frees
{
	my ($expected, $name) = @_;
	my ($freed, $live, $reason) = gc();
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is("$freed $reason", "$expected ", $name);
	return $live;
}

sub frees_nothing
{
	my ($like, $name) = @_;
	my ($freed, $live, $reason) = gc(timeout => '300ms');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($freed, '0', "$name: nothing is freed");
	like($reason, $like, "$name: and it says why");
	is(sql('SELECT skipped_reason FROM blobext_gc_status'), $reason, "$name: in the view, too");
	return;
}

# Start a round in the background, with settings; gc_result() waits for its end.  A round that gave way has begun again: then
# the reason is why the first one, which had freed nothing, had ended.
sub start_gc
{
	my (@settings) = @_;
	my %handle = (out => '', err => '');
	$handle{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-v', 'ON_ERROR_STOP=1',
			(map { ('-c', $_) } "SET blobext.gc_wait_timeout = '60s'", @settings,
				'SELECT freed_blobs, skipped_reason FROM blobext_gc()') ],
		'>', \$handle{out}, '2>', \$handle{err});
	return \%handle;
}

sub gc_result
{
	my ($handle) = @_;
	IPC::Run::finish($handle->{run});
	chomp $handle->{out};
	return ('0', $1) if $handle->{err} =~ /NOTICE:  the collector starts again: (.*)/ && !$handle->{all};
	return $handle->{out} ne '' ? split(/\|/, $handle->{out}, 2) : ('', $handle->{err});
}

sub gc_waits_for
{
	my ($like) = @_;
	return $node->poll_query_until('postgres', "SELECT waiting_for LIKE '%$like%'
		FROM blobext_gc_status WHERE pid IS NOT NULL")
	  || diag(sql('SELECT * FROM blobext_gc_status'));
}

sub session
{
	my (@statements) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	$session->query_safe($_) foreach @statements;
	push @background, $session;
	return $session;
}

sub pid
{
	my ($session) = @_;
	return $session->query_safe('SELECT pg_backend_pid()');
}

# Start a statement that has several transactions, and cancel it when it waits for others in a state.
sub cancel_when
{
	my ($name, $state, $statement) = @_;
	my $error = '';
	my $run = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $statement ],
		'<', \undef, '2>', \$error);
	poll($state);
	my $waiting = 'FROM pg_stat_activity WHERE wait_event_type = \'Lock\' AND query = $q$' . $statement . '$q$';
	poll("SELECT count(*) = 1 $waiting");
	sql("SELECT pg_cancel_backend(pid) $waiting");
	$run->finish;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return like($error, qr/canceling statement due to user request/, $name);
}

# End the sessions that session() has begun; those that died are only forgotten.
sub forget_sessions
{
	eval { $_->quit } foreach @background;
	@background = ();
	return;
}

# Wait until a query is true.
sub poll
{
	my ($query) = @_;
	return $node->poll_query_until('postgres', $query);
}

# Remove everything: all tables, all extents.
sub clean
{
	forget_sessions();
	sql(q(SET client_min_messages = warning), q(DROP SCHEMA IF EXISTS s CASCADE),
		q(CREATE SCHEMA s), q(VACUUM pg_statistic, pg_statistic_ext_data));
	my ($freed, $live, $reason) = gc();
	die "not clean: $live values, $reason" if $live ne '0' || $reason ne '';
	return;
}

# Make a table s.NAME with values 1 .. count; a value contains its number.
sub table
{
	my ($name, $count) = @_;
	sql("CREATE TABLE s.$name (id integer, b blobstate)");
	sql("INSERT INTO s.$name SELECT i, value(i) FROM generate_series(1, $count) AS i") if $count;
	return;
}

sub intact
{
	my ($query, $count, $name) = @_;
	my ($result, $found, $error) = $node->psql('postgres', "SELECT count(*) FROM ($query) AS q (id, b)
		WHERE b::bytea = value(id) AND blob_storage(b) = 'extents'");
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is("$found$error", $count, $name);
}

# Start a round that stops when it comes to the table s.stop: a transaction that the collector does not
# wait for, as it began later, has locked that.  $waiting is called while the round still waits for older
# transactions.  A mode of SHARE gives that transaction no id.  Returns the round and the session with the
# lock.
sub start_gc_to_stop
{
	my ($waiting, $mode) = @_;
	my $first = session('BEGIN', 'SELECT 1');
	my $gc = start_gc();
	gc_waits_for('process ' . pid($first));
	my $second = session('BEGIN', 'SELECT 1');
	my $second_pid = pid($second);
	$first->query_safe('COMMIT');
	gc_waits_for("process $second_pid");
	my $lock = session('BEGIN', 'LOCK TABLE s.stop IN ' . ($mode // 'ACCESS EXCLUSIVE') . ' MODE');
	$waiting->() if $waiting;
	$second->query_safe('COMMIT');
	return ($gc, $lock);
}

# Stop the collector after it has scanned t2, and before it scans t1, which is listed already: a
# transaction that the collector does not wait for, as it began later, locks a table between them.

sub stopped_gc
{
	my ($name, $where, %action) = @_;
	clean();
	table('t2', 0);
	table('stop', 0);
	table('t1', 3);
	sql($_) foreach @{ $action{before} // [] };
	my ($gc, $lock) = start_gc_to_stop($action{waiting});
	if ($where eq 'marking')
	{
		gc_waits_for('relation "stop" locked');
		$action{marking}->();
	}
	$lock->query_safe('COMMIT');
	$action{after}->() if $action{after};
	my ($freed, $reason) = gc_result($gc);
	return ($freed, $reason);
}

sub moved_in_time
{
	my ($name, @statements) = @_;
	my ($freed, $reason) = stopped_gc($name, 'marking', before => [ 'CREATE TABLE s.t3 (id integer)' ],
		marking => sub {
			sql('BEGIN; INSERT INTO s.t2 SELECT * FROM s.t1; ' . join('; ', @statements) . '; COMMIT');
		});
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($freed, '0', "$name: nothing is freed");
	like($reason, qr/was changed meanwhile|was dropped meanwhile|created or changed meanwhile/,
		"$name: the reason names what was changed meanwhile");
	intact('SELECT * FROM s.t2', 3, "$name: what was moved is there");
	return;
}

1;
