# Holders keep values beyond the end of a transaction, and beyond the end of the statement that took
# the values over.
#
# A procedure takes a value over its COMMIT and hands it over in its last transaction: to the row of
# its OUT parameters, which the client has yet to get, or to a cursor.  The collector is at the wait
# before marking (step 5 of src/gc/README.md) when the procedure ends, the file that the value was
# in is gone, and the last transaction is newer than the wait: so nothing but the registration of
# the procedure keeps the value.
#
# The first OUT parameter chooses the moment between the end of the procedure and the output of the
# second one: the output function of its type reads a catalog that another session keeps locked.
#
# Seen to fail when the registration ended with the statement: the round went on, freed the value, and
# its space was used again; the client got XB001 for it.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;
use RawClient;

my $node = blob_cluster('main', conf => q(
autovacuum = off
max_connections = 30
));
gc_use($node);

# Loops, in transactions of its own, until the flag is up; the transaction after that is newer.
my $wait = 'COMMIT; LOOP EXIT WHEN (SELECT go FROM s.flag); COMMIT; PERFORM pg_sleep(0.02); COMMIT;
	END LOOP; COMMIT;';
my $read = 'SELECT b INTO v FROM s.t WHERE id = 1;';

# How often a process went to sleep; undefined if it is gone.
sub sleeps
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/status") or return undef;
	my ($count) = map { /^voluntary_ctxt_switches:\s*(\d+)/ ? $1 : () } <$file>;
	return $count;
}

# The process that is in the loop.  It sleeps most of the time, but not in each look.
sub pid_in_loop
{
	for (1 .. 6000)
	{
		my $pid = sql(q(SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'));
		return $pid if $pid ne '';
		usleep(20_000);
	}
	die 'no process is in the loop';
}

# Wait until the collector has looked at the holders that it waits for, or its round has ended.
sub collector_looks
{
	my ($pid) = @_;
	my $from = sleeps($pid);
	for (1 .. 6000)
	{
		my $now = sleeps($pid);
		return if !defined $now || !defined $from || $now >= $from + 10;
		usleep(20_000);
	}
	die 'the collector hangs';
}

# A round.  While it waits before marking, the statement that start() has begun must be in the loop,
# and is let go; between() waits for the end of a part of it.  Then the collector must still wait
# for that process, while other sessions use the free space.  finish() takes the value; after it the
# round frees the number of values given as frees (1).
sub carried
{
	my ($name, %step) = @_;
	clean();
	table('t', 1);
	sql('CREATE TABLE s.flag (go boolean)', 'INSERT INTO s.flag VALUES (false)', @{ $step{before} // [] });
	my $first = session('BEGIN', 'SELECT 1');
	my $gc = start_gc();
	gc_waits_for('process ' . pid($first));
	my $collector = sql('SELECT pid FROM blobext_gc_status');
	$step{start}->();
	my $pid = pid_in_loop();
	sql('TRUNCATE s.t');
	$first->query_safe('COMMIT');
	gc_waits_for("process $pid runs a procedure");
	$step{between}->($pid);
	collector_looks($collector);
	like(sql('SELECT waiting_for FROM blobext_gc_status'), qr/process $pid runs a procedure/,
		"$name: the collector waits");
	sql('CHECKPOINT', 'CREATE TABLE s.over AS SELECT i AS id, value(i + 100)::blobstate AS b
		FROM generate_series(1, 20) AS i');
	$step{finish}->();
	is(join('|', gc_result($gc)), ($step{frees} // 1) . '|', "$name: then it goes on");
	intact('SELECT id + 100, b FROM s.over', 20, "$name: what others stored");
	frees(0, "$name: the session, which is idle now, keeps nobody waiting");
	return;
}

sub raise_flag
{
	sql('UPDATE s.flag SET go = true');
	return;
}

# ---- the row of OUT parameters ----

# Keeps the output function of regconfig waiting.  A lock that begins after the collector's wait.
my $lock;

sub stuck_in_output
{
	my ($pid) = @_;
	$lock = session('BEGIN', 'LOCK TABLE pg_ts_config IN ACCESS EXCLUSIVE MODE');
	raise_flag();
	poll("SELECT wait_event_type = 'Lock' AND query LIKE 'CALL%' FROM pg_stat_activity
		WHERE pid = $pid");
	return;
}

my $expected = '\x' . sql(q(SELECT encode(value(1), 'hex')));

sub by_call
{
	my ($name, $call, @procedures) = @_;
	my $client = RawClient->new($node, 'postgres');
	carried($name, before => \@procedures,
		start => sub { $call->($client) },
		between => \&stuck_in_output,
		finish => sub {
			$lock->query_safe('COMMIT');
			my ($rows, $error) = $client->finish;
			ok(!defined $error && @$rows == 1 && $rows->[0][1] eq $expected,
				"$name: the client gets the value") or diag($error);
		});
	$client->close;
	return;
}

my $procedure = "CREATE PROCEDURE s.p(OUT c regconfig, OUT v blobstate) LANGUAGE plpgsql AS
	\$\$ BEGIN $read $wait c := 3748; END \$\$";
by_call('OUT, simple protocol', sub { $_[0]->send('Q', "CALL s.p(NULL, NULL)\0"); $_[0]{row_limit} = 0 },
	$procedure);
by_call('OUT, extended protocol', sub { $_[0]->start('CALL s.p(NULL, NULL)', [0], 0) }, $procedure);
by_call('OUT, row limit', sub { $_[0]->start('CALL s.p(NULL, NULL)', [0], 1) }, $procedure);
by_call('INOUT of a procedure in a procedure',
	sub { $_[0]->start('CALL s.whole(NULL, NULL)', [0], 0) },
	"CREATE PROCEDURE s.part(INOUT v blobstate) LANGUAGE plpgsql AS \$\$ BEGIN $read COMMIT; END \$\$",
	"CREATE PROCEDURE s.whole(OUT c regconfig, INOUT v blobstate) LANGUAGE plpgsql AS
		\$\$ BEGIN CALL s.part(v); $wait c := 3748; END \$\$");
by_call('OUT, after a ROLLBACK', sub { $_[0]->start('CALL s.p(NULL, NULL)', [0], 0) },
	"CREATE PROCEDURE s.p(OUT c regconfig, OUT v blobstate) LANGUAGE plpgsql AS
		\$\$ BEGIN $read $wait ROLLBACK; c := 3748; END \$\$");

# ---- cursors ----
# A cursor that the procedure left open has the value as its parameter.  It ends with the transaction,
# which goes on until the client says Sync.

# Execute a statement without Sync, and wait for its end.
sub begin_pipeline
{
	my ($client, $statement) = @_;
	$client->send('P', "\0$statement\0" . pack('n', 0));
	$client->send('B', "\0\0" . pack('nnn', 0, 0, 0));
	$client->send('E', "\0" . pack('N', 0));
	$client->send('H', '');
	return;
}

sub statement_ends
{
	my ($client) = @_;
	while (my ($type, $body) = $client->message)
	{
		return $type eq 'C' if $type =~ /[CE]/;
	}
	return 0;
}

sub by_cursor
{
	my ($name, $statement, %options) = @_;
	my $client = RawClient->new($node, 'postgres');
	my $pid;
	carried($name, before => $options{before} // [],
		start => sub { begin_pipeline($client, $statement) },
		between => sub {
			($pid) = @_;
			raise_flag();
			ok(statement_ends($client), "$name: the statement has ended");
		},
		finish => sub {
			if ($options{hold})
			{
				$client->send('S', '');
				$client->finish;
				ok(gc_waits_for("process $pid has an open cursor WITH HOLD"),
					"$name: the collector waits for what is held");
			}
			my ($rows, $error) = $client->extended('FETCH ALL FROM kept', [0], 0);
			$client->query('CLOSE ALL') if $options{hold};
			ok(!defined $error && @$rows == 1 && $rows->[0][0] eq $expected,
				"$name: the client gets the value") or diag($error);
		});
	$client->close;
	return;
}

my $body = "DECLARE v blobstate; kept refcursor := 'kept'; BEGIN $read $wait OPEN kept FOR SELECT v; END";
by_cursor('cursor of a procedure', 'CALL s.p()',
	before => ["CREATE PROCEDURE s.p() LANGUAGE plpgsql AS \$\$ $body \$\$"]);
by_cursor('cursor of a DO block', "DO \$\$ $body \$\$");
by_cursor('held cursor of a DO block', "DO \$\$ DECLARE v blobstate; BEGIN $read $wait
	EXECUTE 'DECLARE kept CURSOR WITH HOLD FOR SELECT \$1' USING v; END \$\$", hold => 1);

# A procedure that begins in that transaction, takes the value out of the cursor, commits, and stores it.
# Fails without: the look at an entry that is there in begin_procedure().
SKIP:
{
	my $client = RawClient->new($node, 'postgres');
	begin_pipeline($client, 'SELECT 1');
	statement_ends($client);
	begin_pipeline($client, 'DO $$ BEGIN COMMIT; END $$');
	my $may_commit = statement_ends($client);
	$client->send('S', '');
	$client->finish;
	skip 'newer releases make a transaction block of what follows in a pipeline', 7 if !$may_commit;

	my $name = 'procedure after procedure';
	my $again = $wait =~ s/s\.flag/s.flag2/r;
	carried($name, frees => 0,
		before => [ 'CREATE TABLE s.flag2 (go boolean)', 'INSERT INTO s.flag2 VALUES (false)',
			'CREATE TABLE s.t2 (id integer, b blobstate)' ],
		start => sub { begin_pipeline($client, "DO \$\$ $body \$\$") },
		between => sub {
			raise_flag();
			ok(statement_ends($client), "$name: the first has ended");
			begin_pipeline($client, "DO \$\$ DECLARE v blobstate; kept refcursor := 'kept'; BEGIN
				FETCH kept INTO v; $again INSERT INTO s.t2 VALUES (1, v); END \$\$");
			poll(q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'));
		},
		finish => sub {
			sql('UPDATE s.flag2 SET go = true');
			ok(statement_ends($client), "$name: the second has ended");
			$client->send('S', '');
			$client->finish;
		});
	intact('SELECT * FROM s.t2', 1, "$name: what it stored");
	$client->close;
}

# ---- however it ends, an idle session keeps no process waiting ----
# Fails without: the events ABORT and PREPARE in at_transaction_event().

sub forgotten
{
	my ($name, @statements) = @_;
	my $client = RawClient->new($node, 'postgres');
	clean();
	table('t', 1);
	sql('CREATE TABLE s.d (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED)',
		q(CREATE PROCEDURE s.p(INOUT v blobstate) LANGUAGE plpgsql AS $$
			BEGIN SELECT b INTO v FROM s.t; COMMIT; END $$),
		q(CREATE PROCEDURE s.fails(INOUT v blobstate) LANGUAGE plpgsql AS $$
			BEGIN CALL s.p(v); RAISE EXCEPTION 'on purpose'; END $$),
		q(CREATE PROCEDURE s.fails_to_commit(INOUT v blobstate) LANGUAGE plpgsql AS $$
			BEGIN CALL s.p(v); INSERT INTO s.d VALUES (1), (1); COMMIT; END $$));
	foreach my $statement (@statements)
	{
		my ($text, $expected) = ref $statement ? @$statement : ($statement, undef);
		my ($rows, $error) = $client->query($text);
		like($error // '', $expected // qr/^$/, "$name: the answer to $text is as expected");
	}
	sql('DROP TABLE s.t');
	frees(1, $name);
	$client->close;
	return;
}

forgotten('a value that a procedure returned', 'CALL s.p(NULL)', 'CALL s.p(NULL)');
forgotten('a value of a procedure that fails', [ 'CALL s.fails(NULL)', qr/on purpose/ ]);
forgotten('a value of a procedure whose COMMIT fails', [ 'CALL s.fails_to_commit(NULL)', qr/duplicate key/ ]);
forgotten('a value of an error that is caught', q(DO $$ DECLARE v blobstate; BEGIN CALL s.p(v);
	BEGIN CALL s.fails(v); EXCEPTION WHEN OTHERS THEN NULL; END; COMMIT; END $$));
forgotten('procedure in a block', 'BEGIN', [ 'CALL s.p(NULL)', qr/invalid transaction termination/ ],
	'ROLLBACK');

# A block that begins in the transaction in which a procedure has ended.
my $client = RawClient->new($node, 'postgres');
clean();
table('t', 1);
sql(q(CREATE PROCEDURE s.p(INOUT v blobstate) LANGUAGE plpgsql AS $$
	BEGIN SELECT b INTO v FROM s.t; COMMIT; END $$));
begin_pipeline($client, 'CALL s.p(NULL)');
ok(statement_ends($client), 'procedure and block: the procedure has ended');
my (undef, $error) = $client->extended('BEGIN', [], 0);
is($error, undef, 'procedure and block: BEGIN');
sql('DROP TABLE s.t');
frees_nothing(qr/process \d+ has been in a transaction since before/, 'procedure and block');
(undef, $error) = $client->query(q(PREPARE TRANSACTION 'p'));
is($error, undef, 'procedure and block: PREPARE TRANSACTION');
frees(1, 'procedure and block: prepared');
sql(q(COMMIT PREPARED 'p'));
$client->close;

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');
done_testing();
