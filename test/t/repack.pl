# REPACK and REPACK (CONCURRENTLY) beside stores, deletions and rounds of the collector: see "REPACK"
# in src/gc/README.md.
#
# The concurrent one is stopped while its slot is made, while it copies, and before it exchanges the
# files; each time rows are stored, copied, changed and deleted, and a round begins.  A round that is
# older ends in all of these, too.  Then a large table, with sessions that change it and a collector
# that never stops.  Each row has the number that its content was made of.
#
# Environment: BLOBEXT_REPACK_VALUES, how many rows the large table has (10,000); the long form is
# BLOBEXT_REPACK_VALUES=100000 test/run tap repack.
#
# Seen to fail with max_replication_slots in place of blob_slot_count(): the slot is not seen while it
# is made, and another keeper is named where it keeps rows of another database (2 tests).
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

my ($major) = `$ENV{PG_CONFIG} --version` =~ /(\d+)/;
plan skip_all => 'REPACK is new in PostgreSQL 19' if $major < 19;

my $count = $ENV{BLOBEXT_REPACK_VALUES} // 10_000;
my $node = blob_cluster('main', streaming => 1, conf => q(
autovacuum = off
max_wal_size = 4GB
blobext.inline_limit = 512
blobext.wal_content = off
));
gc_use($node);
# REPACK builds an index on it when the gate is open.
my $make_gate = q(CREATE FUNCTION gate(i integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
	IF current_setting('application_name') = 'repack' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
	RETURN i; END $$);
# Values of one page.
sql($make_gate, q(CREATE OR REPLACE FUNCTION value(i integer) RETURNS bytea LANGUAGE sql IMMUTABLE
	RETURN convert_to(repeat(md5(i::text), 90), 'UTF8')));

# Start a command in a session of its own.
sub start
{
	my ($database, $command) = @_;
	my %handle = (err => '');
	$handle{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr($database) . ' application_name=repack',
			'-c', $command ],
		'<', \undef, '2>', \$handle{err});
	return \%handle;
}

sub ends_well
{
	my ($handle, $name) = @_;
	$handle->{run}->finish;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($handle->{err}, '', $name);
}

my $leader = "FROM pg_stat_activity WHERE application_name = 'repack' AND backend_type = 'client backend'";

sub waits_on
{
	my ($event) = @_;
	return poll("SELECT count(*) = 1 $leader AND wait_event = '$event'");
}

# 20 rows, each kind of change: of rows that the copy has, and of those that only the change file
# has.  Values of rows from 1000 on end with this.  Rows have many descriptors, so that these are
# TOASTed, and small values that are compressed.
sub fill
{
	clean();
	table('u', 0);
	table('stop', 0);
	sql('CREATE TABLE s.t (id integer PRIMARY KEY, b blobstate, more blobstate[], small blobstate)',
		q(INSERT INTO s.t SELECT i, value(i), NULL, repeat('small ', 60)::bytea FROM generate_series(1, 20) AS i),
		'UPDATE s.t SET more = array_fill(b, ARRAY[20])',
		q(CREATE INDEX ON s.t (b)), q(CREATE INDEX ON s.t (gate(id))),
		q(INSERT INTO s.u SELECT i, value(i) FROM generate_series(101, 105) AS i));
	return;
}

my $next = 1000;

# In a session that has a transaction, or in transactions of their own.
sub change
{
	my ($session) = @_;
	my ($from, $to) = ($next, $next + 3);
	$next += 10;
	my ($begin, $roll_back, $commit) = $session ? ('SAVEPOINT p', 'ROLLBACK TO p', 'RELEASE p') : qw(BEGIN ROLLBACK COMMIT);
	my @statements = (
		"INSERT INTO s.t SELECT i, value(i), NULL, 'new'::bytea FROM generate_series($from, $to) AS i",
		"UPDATE s.t SET more = array_fill(b, ARRAY[20]) WHERE id BETWEEN $from AND $to",
		# One that was stored before goes through the change file.
		'INSERT INTO s.t SELECT id, b FROM s.u ORDER BY id LIMIT 1',
		'DELETE FROM s.u WHERE id = (SELECT min(id) FROM s.u)',
		"UPDATE s.t SET small = 'changed'::bytea WHERE id IN (1, $from)",	# TOAST pointers stay
		"UPDATE s.t SET b = b || '\\x'::bytea, more = NULL WHERE id = 2",
		"DELETE FROM s.t WHERE id = $to",
		"$begin; INSERT INTO s.t SELECT -1, value(-1); DELETE FROM s.t WHERE id = -1; $commit",
		"$begin; INSERT INTO s.t SELECT -2, value(-2); $roll_back",
		'DELETE FROM s.t WHERE id = (SELECT max(id) FROM s.t WHERE id BETWEEN 3 AND 20)');
	return sql(@statements) if !$session;
	$session->query_safe("SET client_min_messages = error; $_") foreach @statements;
	return;
}

my $rows = 'SELECT id, b FROM s.t UNION ALL SELECT id, b FROM s.u
	UNION ALL SELECT id, unnest(more) FROM s.t';

sub all_is_right
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	intact($rows, sql("SELECT count(*) FROM ($rows) AS q"), "$name: all values are right");
	is(sql('SET enable_seqscan = off; SELECT count(*) FROM s.t AS x JOIN s.t AS y USING (b)'),
		sql('SELECT count(*) FROM s.t AS x JOIN s.t AS y USING (id)'), "$name: the index finds all values");
	is(sql(q(SELECT string_agg(DISTINCT encode(small::bytea, 'escape'), ' ') ~ 'changed.*new.*small' FROM s.t)),
		't', "$name: small values are right");
	check_is_clean($node, "$name: the check finds nothing");
	no_page_is_shared($node, "$name: no page is shared", 's.t', 's.u');
	return;
}

# ---- each moment ----

fill();
my $transaction = session('BEGIN', 'CREATE TABLE s.transaction (i integer)', 'SELECT 1');
my $gate = session('SELECT pg_advisory_lock(1)');
my $repack = start('postgres', 'REPACK (CONCURRENTLY) s.t');
poll(q(SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name LIKE 'pg_repack%'));
is(sql('SHOW effective_wal_level'), 'logical', 'logical decoding has started while the server runs');
frees_nothing(qr/^logical replication slot "pg_repack_\d+" is being created/, 'while the slot is made');
change();
$transaction->query_safe('COMMIT');
waits_on('advisory');
change();
my $round = start_gc();
ok(gc_waits_for('process ' . sql("SELECT pid $leader")), 'a round waits for a REPACK that copies');
change();
my $writer = session('BEGIN', 'DELETE FROM s.t WHERE id = 1001');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
waits_on('relation');
change($writer);
ok(gc_waits_for('process ' . sql("SELECT pid $leader")), 'a round waits for a REPACK that waits for a writer');
$writer->query_safe('COMMIT');
ends_well($repack, 'REPACK (CONCURRENTLY) beside changes and a round');
my ($freed, $reason) = gc_result($round);
is($reason, '', 'the round goes on when REPACK has ended');
all_is_right('after REPACK (CONCURRENTLY)');
sql('VACUUM (INDEX_CLEANUP ON) s.t', 'VACUUM s.u');
gc();
# (The value of id 2 has a tail extent alone, which does not count.)
is(sql('SELECT live_blobs FROM blobext_gc(true)'),
	sql("SELECT count(DISTINCT sha256(b)) FROM ($rows) AS q (id, b) WHERE EXISTS (SELECT FROM blob_extents(b) WHERE NOT is_tail)"),
	'deleted values are freed, also those that only the change file had');
all_is_right('after a round');
sql('REPACK s.t', 'REPACK s.t USING INDEX t_pkey');
frees(0, 'a round after REPACK frees nothing');
all_is_right('after REPACK');

# ---- a round that is older than REPACK, whose marking it meets ----
# s.t is scanned before REPACK comes, or after it has ended, or while it copies.

foreach my $case ([ 'scanned before', 't' ], [ 'scanned after', 'stop' ], [ 'scanned beside', 'stop' ])
{
	my ($name, $first) = @$case;
	fill();
	sql('DROP TABLE s.stop');
	sql('ALTER TABLE s.t RENAME TO old', 'CREATE TABLE s.stop (id integer, b blobstate)',
		'CREATE TABLE s.t (LIKE s.old INCLUDING ALL)', 'INSERT INTO s.t SELECT * FROM s.old', 'DROP TABLE s.old')
	  if $first eq 'stop';
	table('stop', 0) if $first eq 't';
	sql('DELETE FROM s.t WHERE id IN (19, 20)', 'VACUUM (INDEX_CLEANUP ON) s.t');
	my ($old_round, $lock) = start_gc_to_stop(undef, 'SHARE');
	gc_waits_for('relation "stop" locked');
	my $closed = session('SELECT pg_advisory_lock(1)');
	my $beside = start('postgres', 'REPACK (CONCURRENTLY) s.t');
	waits_on('advisory');
	change();
	if ($name eq 'scanned beside')
	{
		$lock->query_safe('COMMIT');
		is(join('|', gc_result($old_round)), '2|', "$name: the round frees what was deleted before");
	}
	change();
	$closed->query_safe('SELECT pg_advisory_unlock(1)');
	ends_well($beside, "$name: REPACK (CONCURRENTLY) ends without an error");
	if ($name ne 'scanned beside')
	{
		$lock->query_safe('COMMIT');
		($freed, $reason) = gc_result($old_round);
		is($freed, '0', "$name: the round frees nothing");
		like($reason, qr/changed meanwhile/, "$name: the round has found another file");
	}
	all_is_right($name);
	sql('VACUUM (INDEX_CLEANUP ON) s.t');
	gc();
	all_is_right("$name, after another round");
}

# ---- its slot keeps rows of all databases ----

clean();
table('v', 3);
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', $_) foreach (
	'CREATE TABLE t (id integer PRIMARY KEY)',
	$make_gate, 'CREATE INDEX ON t (gate(id))', 'INSERT INTO t VALUES (1)');
my $closed = $node->background_psql('other', on_error_stop => 1);
$closed->query_safe('SELECT pg_advisory_lock(1)');
# The slot is older than the transaction of REPACK, which would be named otherwise.
$transaction = session('BEGIN', 'CREATE TABLE s.transaction (i integer)', 'SELECT 1');
my $elsewhere = start('other', 'REPACK (CONCURRENTLY) t');
poll(q(SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name LIKE 'pg_repack%'));
$transaction->query_safe('COMMIT');
waits_on('advisory');
sql('DELETE FROM s.v WHERE id = 3');
frees(0, 'REPACK of another database');
like(sql('SELECT kept_blobs, kept_by FROM blobext_gc_status'), qr/^1\|replication slot "pg_repack_\d+"$/,
	'REPACK of another database: the view names its slot');
$closed->query_safe('SELECT pg_advisory_unlock(1)');
$closed->quit;
ends_well($elsewhere, 'REPACK of another database ends');
frees(1, 'REPACK of another database has ended');

# ---- a table whose identity is content ----

clean();
sql('CREATE TABLE s.t (b blobstate PRIMARY KEY, id integer)', 'CREATE INDEX ON s.t (gate(id))',
	'INSERT INTO s.t SELECT value(i), i FROM generate_series(1, 20) AS i');
$gate->query_safe('SELECT pg_advisory_lock(1)');
$repack = start('postgres', 'REPACK (CONCURRENTLY) s.t');
waits_on('advisory');
sql('DELETE FROM s.t WHERE id <= 5', 'UPDATE s.t SET id = 100, b = value(100) WHERE id = 6',
	'INSERT INTO s.t VALUES (value(101), 101)', 'DELETE FROM s.t WHERE id = 101');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
ends_well($repack, 'REPACK (CONCURRENTLY) finds rows by their content');
intact('SELECT id, b FROM s.t', 15, 'rows that were found by their content');

# ---- the extent map ----

my $map = sql('SELECT count(*) FROM blobext_map');
sql('REPACK blobext_map');
is(sql('SELECT count(*) FROM blobext_map'), $map, 'REPACK of the extent map keeps its entries');
like(($node->psql('postgres', 'REPACK (CONCURRENTLY) blobext_map'))[2], qr/cannot execute REPACK \(CONCURRENTLY\) on relation "blobext_map"/,
	'REPACK (CONCURRENTLY) of the extent map is refused');
intact('SELECT id, b FROM s.t', 15, 'values after REPACK of the extent map');
check_is_clean($node, 'the check finds nothing after REPACK of the extent map');

# ---- a large table, changed by sessions, with rounds that follow one another ----

clean();
sql('CREATE TABLE s.t (id bigserial PRIMARY KEY, key integer, b blobstate, more blobstate[])',
	"INSERT INTO s.t (key, b) SELECT i, value(i) FROM generate_series(1, $count) AS i",
	'UPDATE s.t SET more = array_fill(b, ARRAY[20]) WHERE id % 10 = 0',
	'CREATE INDEX ON s.t (key)', 'CREATE INDEX ON s.t USING hash (b)');
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
append_to_file("$tmp/change.sql", <<"END");
\\set i random(1, $count)
\\set j random(1, $count)
\\set key random(1000000, 9999999)
INSERT INTO s.t (key, b) VALUES (:key, value(:key)), (:key + 1, value(:key + 1));
UPDATE s.t SET (key, b) = (SELECT key, b FROM s.t WHERE id = :j) WHERE id = :i AND EXISTS (SELECT FROM s.t WHERE id = :j);
UPDATE s.t SET id = id WHERE id = :j;
DELETE FROM s.t WHERE id = :i - :i % 3;
DELETE FROM s.t WHERE key = :key;
BEGIN;
INSERT INTO s.t (key, b) SELECT key, b FROM s.t WHERE id = :j + 1;
DELETE FROM s.t WHERE id = :j + 1;
END;
END
append_to_file("$tmp/collect.sql", "SET client_min_messages = error;\nSET blobext.gc_wait_timeout = '1s';\nSELECT freed_blobs, skipped_reason FROM blobext_gc();\n");
my @at = ('-h', $node->host, '-p', $node->port, 'postgres');
my $stop = "$tmp/pgbench.log";
my @loads = map { IPC::Run::start([ 'pgbench', '-n', '-T', 3600, @$_, @at ], '>>', $stop, '2>>', $stop) }
  ([ '-c', 3, '-f', "$tmp/change.sql" ], [ '-c', 1, '-f', "$tmp/collect.sql" ]);
foreach my $command ('REPACK (CONCURRENTLY) s.t', 'REPACK s.t', 'REPACK (CONCURRENTLY) s.t USING INDEX t_key_idx')
{
	my $before = sql('SELECT count(*) FROM s.t WHERE key >= 1000000');
	poll("SELECT count(*) > $before + 100 FROM s.t WHERE key >= 1000000");
	ends_well(start('postgres', $command), "$command beside changes of $count values and rounds");
}
$_->signal('INT') foreach @loads;
eval { $_->finish } foreach @loads;
is(join('', grep { !/terminated by signal|^$/ } slurp_file($stop) =~ /^.*ERROR.*$/mg), '', 'no session meets an error');
# Digests first; the check at the end compares content with them.
my $wrong = 'SELECT count(*) FROM s.t WHERE sha256(b) IS DISTINCT FROM sha256(value(key))';
is(sql($wrong), '0', "all of $count values are right");
is(sql('SELECT count(*) FROM s.t, unnest(more) AS m WHERE sha256(m) IS DISTINCT FROM sha256(value(id::integer))'), '0',
	'all values in arrays are right');
sql('VACUUM s.t');
gc(timeout => '60s');
is(sql('SELECT live_blobs FROM blobext_gc(true)'),
	sql('SELECT count(DISTINCT sha256(v)) FROM (SELECT b FROM s.t UNION ALL SELECT unnest(more) FROM s.t) AS q (v)'),
	'a round frees all values that no row has');
is(sql($wrong), '0', 'all values are right after a round');
check_is_clean($node, 'the check, which reads all content, finds nothing at the end');
no_page_is_shared($node, 'no page is shared at the end', 's.t');

$node->stop;
done_testing();
