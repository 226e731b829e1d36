# Values of a transaction that did not commit come back with the next round, without VACUUM: however
# the transaction ended, whatever holds deleted rows back, and as often as it happens.
#
# Seen to fail without has_aborted_row() in src/gc/heap.c: all tests that say "the next round frees them" (0 of 10 values, later
# some of earlier ones, from pages with deletions).
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

my $node = blob_cluster('main', conf => q(
autovacuum = off
max_prepared_transactions = 5
));
gc_use($node);
my $connection = $node->connstr('postgres');

sub committed_rows_are_intact
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(sql('SELECT count(*) FROM s.t WHERE sha256(b::bytea) = sha256(value(id)) AND sha256(b) = sha256(value(id))'),
		'20', "$name: the committed values are intact");
}

# Store values that nothing is left of, and run a round.
sub comes_back
{
	my ($name, $count, $store) = @_;
	my $live = (gc(dry_run => 1))[1];
	$store->();
	is((gc(dry_run => 1))[1], $live + $count, "$name: the values take space at first");
	frees($count, "$name: the next round frees them");
	return committed_rows_are_intact($name);
}

# A statement that fails, and with that its transaction.
sub failing
{
	my ($statement, $like) = @_;
	return sub {
		my ($result, $out, $error) = $node->psql('postgres', $statement);
		like($error, $like, 'the statement of the transaction to be aborted fails');
	};
}

# psql that sends rows to COPY, and does not end it.  It keeps the last bytes of what it has read.
sub start_copy
{
	my ($lines, $expected) = @_;
	my $in = "BEGIN;\nCOPY s.t FROM STDIN;\n" . $lines;
	my $run = IPC::Run::start([ 'psql', '-XAtq', '-d', $connection, '-v', 'ON_ERROR_STOP=1' ],
		'<', \$in, '>', \my $out, '2>', \my $error);
	for (my $i = 0; (sql('SELECT tuples_processed FROM pg_stat_progress_copy') || 0) < $expected; $i++)
	{
		die "COPY has not stored its rows: $error" if $i > 100 * $PostgreSQL::Test::Utils::timeout_default;
		$run->pump_nb;
		usleep(10_000);
	}
	return $run;
}

sub rows
{
	my ($first, $last) = @_;
	return sql("SELECT i::text || E'\\t' || '\\\\x' || encode(value(i), 'hex') FROM generate_series($first, $last) AS i") . "\n";
}

table('t', 20);
sql('CREATE UNIQUE INDEX ON s.t (id)');

my $insert = 'INSERT INTO s.t SELECT i, value(i) FROM generate_series(101, 110) AS i';

# ---- each way not to commit ----

comes_back('ROLLBACK', 10, sub { sql("BEGIN; $insert; ROLLBACK") });
comes_back('ROLLBACK TO', 10, sub { sql("BEGIN; SAVEPOINT a; $insert; ROLLBACK TO a; COMMIT") });
comes_back('an exception in a function', 10, sub {
	sql("DO \$\$ BEGIN BEGIN $insert; RAISE EXCEPTION 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; END \$\$");
});
comes_back('a savepoint that was released in one that was not', 10, sub {
	sql("BEGIN; SAVEPOINT a; SAVEPOINT b; $insert; RELEASE b; ROLLBACK TO a; COMMIT");
});
comes_back('a duplicate key in a later row', 10, failing(
	'INSERT INTO s.t SELECT CASE i WHEN 110 THEN 1 ELSE i END, value(i) FROM generate_series(101, 110) AS i', qr/duplicate key/));
comes_back('ROLLBACK PREPARED', 10, sub { sql("BEGIN; $insert; PREPARE TRANSACTION 'p'", "ROLLBACK PREPARED 'p'") });
comes_back('an update that was rolled back', 20, sub { sql('BEGIN; UPDATE s.t SET b = value(id + 200); ROLLBACK') });
comes_back('updates of updated rows', 60, sub {
	sql('BEGIN', (map { "UPDATE s.t SET b = value(id + $_)" } 200, 300, 400), 'ROLLBACK');
});
comes_back('rows that were stored and deleted', 10, sub { sql("BEGIN; $insert; DELETE FROM s.t WHERE id > 100; ROLLBACK") });
comes_back('rows that were stored and locked', 10, sub {
	sql("BEGIN; $insert; SAVEPOINT a; SELECT count(*) FROM (SELECT 1 FROM s.t WHERE id > 100 FOR UPDATE) AS q; ROLLBACK");
});

# A backend that is ended in the middle of COPY, and one that takes the server with it.
my $lines = rows(101, 120);
for my $end (qw(terminated killed))
{
	my $live = (gc(dry_run => 1))[1];
	my $copy = start_copy($lines, 15);
	if ($end eq 'terminated')
	{
		sql('SELECT pg_terminate_backend(pid) FROM pg_stat_progress_copy');
		poll('SELECT count(*) = 0 FROM pg_stat_progress_copy');
	}
	else
	{
		sql('CHECKPOINT');	# rows without a commit are in the table's file
		kill_everything($node);
		$node->start;
	}
	$copy->kill_kill;
	my $stored = (gc(dry_run => 1))[0] + (gc(dry_run => 1))[1] - $live;
	cmp_ok($stored, '>=', 15, "COPY of a backend that was $end: the values take space at first");
	frees($stored, "COPY of a backend that was $end: the next round frees them");
	committed_rows_are_intact("COPY of a backend that was $end");
}

# ---- what holds deleted rows back does not hold these ----

# A prepared transaction: rows that were deleted after it began stay, and rolled back ones go, also those on the same page.
sql('CREATE TABLE other (i integer)', "BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'holds'");
sql('INSERT INTO s.t VALUES (21, value(21))', 'DELETE FROM s.t WHERE id = 21');
frees(0, 'the deleted row is held');
comes_back('a prepared transaction is open', 10, sub { sql("BEGIN; $insert; ROLLBACK") });
comes_back('an update, while it is open', 20, sub { sql('BEGIN; UPDATE s.t SET b = value(id + 200); ROLLBACK') });
sql("ROLLBACK PREPARED 'holds'");
frees(1, 'the deleted row goes with the prepared transaction');

# ---- what has not ended stays ----

sql("BEGIN; $insert; PREPARE TRANSACTION 'later'");
frees(0, 'a prepared transaction keeps what it has stored');
sql("COMMIT PREPARED 'later'");
frees(0, 'a prepared transaction that has committed keeps what it has stored');
intact('SELECT id, b FROM s.t', 30, 'all values that were committed are intact');
sql('DELETE FROM s.t WHERE id > 100');
frees(10, 'values of deleted rows are freed beside those of aborted transactions');

# Rows of a running transaction stay; those behind a savepoint that it has rolled back to do not.
my $running = session('BEGIN', 'INSERT INTO s.t SELECT i, value(i) FROM generate_series(31, 35) AS i',
	'SAVEPOINT a', 'INSERT INTO s.t SELECT i, value(i) FROM generate_series(101, 105) AS i', 'ROLLBACK TO a');
my (undef, undef, $reason) = gc(timeout => '300ms');
like($reason, qr/has been in a transaction since before/, 'a round waits for a transaction that has rolled back to a savepoint');
$running->query_safe('COMMIT');
forget_sessions();
frees(5, 'a savepoint that was rolled back, of a transaction that committed');
intact('SELECT id, b FROM s.t', 25, 'the values of that transaction are intact');
sql('DELETE FROM s.t WHERE id > 20');
frees(5, 'values that were deleted');

# ---- nothing adds up ----

my $large = "INSERT INTO s.t SELECT 101 + i, convert_to(repeat(md5(random()::text), 131072), 'UTF8') FROM generate_series(1, 10) AS i";
my @sizes;
for my $round (1 .. 4)
{
	sql("BEGIN; $large; ROLLBACK");
	frees(10, "40 MB that were rolled back, time $round");
	sql('CHECKPOINT');
	push @sizes, sql('SELECT sum(file_bytes) FROM blobext_files()');
}
is(join(' ', @sizes[ 1 .. 3 ]), join(' ', ($sizes[0]) x 3), 'the store does not grow with the number of loads that were rolled back');
committed_rows_are_intact('after all');
check_is_clean($node, 'the check finds nothing');
is(sql('VACUUM s.t', 'SELECT count(*) FROM s.t'), '20', 'VACUUM finds its table as it expects it');

# ---- without a command ----

sql(map({ "ALTER SYSTEM SET blobext.$_" } 'autogc = on', 'autogc_naptime = 1', 'autogc_interval = 1', 'autogc_threshold = 0'),
	'SELECT pg_reload_conf()');
my $freed = stat_of($node, 'gc_freed_blobs');
sql("BEGIN; $insert; ROLLBACK");
ok(poll("SELECT value >= $freed + 10 FROM blobext_stat WHERE name = 'gc_freed_blobs'"), 'a rolled back load makes a round due');

# The prepared transaction outlives a round, which takes its values for live ones; its end changes no counter but that of dead rows.
sql("BEGIN; $insert; PREPARE TRANSACTION 'late'");
my $rounds = sql('SELECT completed_rounds FROM blobext_gc_status');
ok(poll("SELECT completed_rounds > $rounds FROM blobext_gc_status"), 'a round comes while the transaction is prepared');
$freed = stat_of($node, 'gc_freed_blobs');
sql("ROLLBACK PREPARED 'late'");
ok(poll("SELECT value >= $freed + 10 FROM blobext_stat WHERE name = 'gc_freed_blobs'"), 'a prepared transaction that is rolled back makes a round due');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');
done_testing();
