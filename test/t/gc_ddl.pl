# The collector beside commands that change tables: each of them rolled back while the collector
# waits for that very table; partitions that are detached concurrently; indexes that REINDEX
# CONCURRENTLY leaves behind.  Commands that commit are in gc.pl and gc_races.pl ("moved in time").
#
# "Fails without" names the code whose removal made a test fail.
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

my $node = blob_cluster('main', conf => q(
wal_level = logical
autovacuum = off
max_connections = 40
allow_in_place_tablespaces = on
));
gc_use($node);
sql('CREATE EXTENSION amcheck', "CREATE TABLESPACE place LOCATION ''");

# ---- rolled back, each kind ----
# A transaction copies the values of a table, deletes them, changes the table; the collector comes
# to the table and waits; the transaction rolls back.  One round meets them all, in the order in
# which the tables were made.
# Fails without: waiting for a table that is locked (mark_root() leaves it out); looking at tuples
# that a transaction has tried to delete (mark_page() of heap.c leaves out those with an xmax).

my @kinds = (
	[ 'TRUNCATE', 'TRUNCATE s.%s' ],
	[ 'TRUNCATE in a subtransaction', 'SAVEPOINT p; TRUNCATE s.%s; ROLLBACK TO p' ],
	[ 'DROP TABLE', 'DROP TABLE s.%s' ],
	[ 'DROP COLUMN', 'ALTER TABLE s.%s DROP COLUMN b' ],
	[ 'ADD COLUMN', 'ALTER TABLE s.%s ADD COLUMN c blobstate DEFAULT value(99)' ],
	[ 'ALTER TYPE', 'ALTER TABLE s.%s ALTER COLUMN b TYPE bytea USING sha256(b)' ],
	[ 'rewrite', 'ALTER TABLE s.%s SET UNLOGGED' ],
	[ 'SET TABLESPACE', 'ALTER TABLE s.%s SET TABLESPACE place' ],
	[ 'CLUSTER', 'CLUSTER s.%1$s USING %1$s_id' ],
	[ 'DROP INDEX', 'DROP INDEX s.%s_b' ],
	[ 'REINDEX', 'REINDEX TABLE s.%s' ],
	[ 'RENAME', 'ALTER TABLE s.%s RENAME COLUMN b TO c' ],
	[ 'SET SCHEMA', 'ALTER TABLE s.%s SET SCHEMA public' ],
	[ 'ATTACH PARTITION', 'ALTER TABLE s.%s ADD CHECK (id < 1000);
		ALTER TABLE s.parent ATTACH PARTITION s.%1$s FOR VALUES FROM (0) TO (1000)' ],
	[ 'DETACH PARTITION', 'ALTER TABLE s.parent2 DETACH PARTITION s.%s' ],
	[ 'VACUUM FULL', undef ]);
push @kinds, [ 'REPACK', 'REPACK s.%s' ] if sql('SHOW server_version_num') >= 190_000;

clean();
table('t2', 0);
table('stop', 0);
sql('CREATE TABLE s.parent (id integer, b blobstate) PARTITION BY RANGE (id)',
	'CREATE TABLE s.parent2 (id integer, b blobstate) PARTITION BY RANGE (id)',
	# An index build that waits and fails: only so is VACUUM FULL rolled back.
	'CREATE FUNCTION s.slow(i integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN i; END $$');
foreach my $no (0 .. $#kinds)
{
	my $name = "k$no";
	table($name, 2);
	# (By content only where it matters: keys keep values, too.)
	my $key = $kinds[$no][0] =~ /INDEX/ ? 'b' : 'id';
	sql("CREATE INDEX ${name}_id ON s.$name (id)", "CREATE INDEX ${name}_b ON s.$name ($key)");
	sql("ALTER TABLE s.parent2 ATTACH PARTITION s.$name FOR VALUES FROM (0) TO (1000)")
	  if $kinds[$no][0] eq 'DETACH PARTITION';
	sql("CREATE INDEX ON s.$name (s.slow(id))") if !defined $kinds[$no][1];
}
my $all = join(' UNION ALL ', map { "SELECT id, b FROM s.k$_" } 0 .. $#kinds);

my $first = session('BEGIN', 'SELECT 1');
my $gc = start_gc();
gc_waits_for('process ' . pid($first));
my $second = session('BEGIN', 'SELECT 1');
$first->query_safe('COMMIT');
gc_waits_for('process ' . pid($second));
my $stop = session('BEGIN', 'LOCK TABLE s.stop IN ACCESS EXCLUSIVE MODE');
$second->query_safe('COMMIT');
gc_waits_for('relation "stop" locked');

my $lock = session('BEGIN; SELECT pg_advisory_xact_lock(1)');
my (@sessions, $vacuum);
foreach my $no (0 .. $#kinds)
{
	my $command = $kinds[$no][1];
	if (defined $command)
	{
		$sessions[$no] = session('BEGIN', "INSERT INTO s.t2 SELECT * FROM s.k$no",
			"DELETE FROM s.k$no", sprintf($command, "k$no"), 'SELECT 1');
		next;
	}
	$vacuum = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
			"VACUUM FULL s.k$no" ], '>', \my $out, '2>', \my $err);
	poll(q(SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'VACUUM FULL s.k%'
		AND wait_event = 'advisory'));
}
$stop->query_safe('COMMIT');
foreach my $no (0 .. $#kinds)
{
	my ($kind, $command) = @{ $kinds[$no] };
	# A savepoint that was rolled back has given its lock back.
	ok(gc_waits_for(qq(keeps relation "k$no)), "$kind: the collector waits")
	  unless $command && $command =~ /SAVEPOINT|DROP INDEX/;
	if (defined $command)
	{
		$sessions[$no]->query_safe('ROLLBACK');
		next;
	}
	sql(q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'VACUUM FULL s.k%'
		AND pid <> pg_backend_pid()));
	$vacuum->finish;
	isnt($vacuum->result, 0, "$kind: is rolled back");
}
$lock->query_safe('COMMIT');
my ($freed, $reason) = gc_result($gc);
is("$freed|$reason", '0|', 'rolled back: the round goes on and frees nothing');
intact($all, 2 * @kinds, 'rolled back: all values are there');
sql('VACUUM');
frees(0, 'rolled back: the next round');
intact($all, 2 * @kinds, 'rolled back: all values are still there');
check_is_clean($node, 'rolled back: the check finds nothing');

# ---- a value that a rewrite keeps from row to row ----
# ALTER TABLE stores the default of a new column before the first row, and stops within that row: no
# tuple has the value yet.  A round that begins then waits for the statement, and frees nothing.
# Seen to fail with a copy for each row (20 values).

clean();
sql('CREATE TABLE s.t2 (id integer)', 'INSERT INTO s.t2 SELECT generate_series(1, 20)',
	'CREATE FUNCTION s.stop() RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(2); RETURN 1; END $$');
my $stopper = session('SELECT pg_advisory_lock(2)');
my $rewrite = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		'ALTER TABLE s.t2 ADD b blobstate DEFAULT value(7), ADD stopped integer DEFAULT s.stop()' ],
	'>', \my $rewrite_out, '2>', \my $rewrite_err);
poll(q(SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE s.t2%'
	AND wait_event = 'advisory'));
is(sql('SELECT count(*) FROM blobext_map'), 4, 'rewrite: the value is stored');
my $beside_rewrite = start_gc();
ok(gc_waits_for('process ' . sql(q(SELECT pid FROM pg_stat_activity
	WHERE query LIKE 'ALTER TABLE s.t2%' AND wait_event = 'advisory'))),
	'rewrite: the collector waits for the statement');
$stopper->query_safe('SELECT pg_advisory_unlock(2)');
$rewrite->finish;
is($rewrite_err, '', 'rewrite: the statement succeeds');
is(join('|', gc_result($beside_rewrite)), '0|', 'rewrite: the round frees nothing');
is(sql('SELECT count(*), count(DISTINCT sha256(b)), count(DISTINCT (SELECT first_page FROM blob_extents(b)
	WHERE extent_no = 0)), bool_and(b = value(7)) FROM s.t2'), '20|1|1|t',
	'rewrite: all rows share the value');
frees(0, 'rewrite: the next round');
check_is_clean($node, 'rewrite: the check finds nothing');

# ---- DETACH PARTITION CONCURRENTLY ----
# Between its two transactions the partition is neither in nor out, for as long as others run.
# After a cancel the partition stays in that state.
# Fails without: partitions among the roots (read_relations() leaves out those with relispartition).

clean();
sql('CREATE TABLE s.t2 (id integer, b blobstate)', 'CREATE TABLE s.stop (id integer, b blobstate)',
	'CREATE TABLE s.p (id integer, b blobstate) PARTITION BY RANGE (id)',
	'CREATE TABLE s.p1 PARTITION OF s.p FOR VALUES FROM (0) TO (10)',
	'CREATE TABLE s.p2 PARTITION OF s.p FOR VALUES FROM (10) TO (20)', 'CREATE INDEX ON s.p (b)',
	'INSERT INTO s.p SELECT i, value(i) FROM generate_series(5, 14) AS i');
my $older = session('BEGIN', 'SELECT count(*) FROM s.p');
cancel_when('DETACH CONCURRENTLY waits, and is cancelled',
	q(SELECT inhdetachpending FROM pg_inherits WHERE inhrelid = 's.p1'::regclass),
	'ALTER TABLE s.p DETACH PARTITION s.p1 CONCURRENTLY');
$older->query_safe('COMMIT');
is(sql(q(SELECT inhdetachpending FROM pg_inherits WHERE inhrelid = 's.p1'::regclass)), 't',
	'DETACH CONCURRENTLY: half done');
frees(0, 'a partition that is half detached loses no value');
intact('SELECT * FROM s.p1', 5, 'the values of a half detached partition are whole');
sql('DELETE FROM s.p1 WHERE id < 7', 'VACUUM s.p1');
frees(2, 'what was deleted in a half detached partition is freed');

# It ends, and the partition's values move to a table that has been scanned, while the collector
# stands between the two.  Fails without: the same; the comparison in mark_root() together with the
# last list.
sub detached_in_time
{
	my ($name, $reason_like, @statements) = @_;
	my $before = session('BEGIN', 'SELECT 1');
	my $round = start_gc();
	gc_waits_for('process ' . pid($before));
	my $after = session('BEGIN', 'SELECT 1');
	$before->query_safe('COMMIT');
	gc_waits_for('process ' . pid($after));
	my $table_lock = session('BEGIN', 'LOCK TABLE s.stop IN ACCESS EXCLUSIVE MODE');
	$after->query_safe('COMMIT');
	gc_waits_for('relation "stop" locked');
	sql($_) foreach @statements;
	$table_lock->query_safe('COMMIT');
	my ($count, $why) = gc_result($round);
	is($count, '0', "$name: nothing is freed");
	like($why, $reason_like, "$name: the reason, if any");
	return;
}

# (FINALIZE waits for old snapshots, so for the collector's.)
detached_in_time('FINALIZE', qr/^gave way to process/, 'ALTER TABLE s.p DETACH PARTITION s.p1 FINALIZE');
intact('SELECT * FROM s.p UNION ALL SELECT * FROM s.p1', 8, 'FINALIZE beside a round leaves all values whole');
detached_in_time('DETACH CONCURRENTLY', qr/^$/, 'ALTER TABLE s.p DETACH PARTITION s.p2 CONCURRENTLY');
intact('SELECT * FROM s.p1 UNION ALL SELECT * FROM s.p2', 8, 'DETACH CONCURRENTLY beside a round leaves all values whole');
detached_in_time('ATTACH', qr/^$/,
	'ALTER TABLE s.p ATTACH PARTITION s.p1 FOR VALUES FROM (0) TO (10)');
detached_in_time('DETACH CONCURRENTLY and DROP', qr/was dropped meanwhile|created or changed meanwhile/,
	'ALTER TABLE s.p DETACH PARTITION s.p1 CONCURRENTLY',
	'BEGIN; INSERT INTO s.t2 SELECT * FROM s.p1; DROP TABLE s.p1; COMMIT');
intact('SELECT * FROM s.t2 UNION ALL SELECT * FROM s.p2', 8, 'DETACH CONCURRENTLY and DROP: all values');
check_is_clean($node, 'detached: the check finds nothing');

# ---- indexes that REINDEX CONCURRENTLY and CREATE INDEX CONCURRENTLY leave behind ----
# An index with the suffix _ccnew that is ready, but not valid: an insertion compares with its
# items.  Fails without: indexes that are not valid among the roots (is_scanned asks for
# indisvalid).

clean();
sql('CREATE FUNCTION s.key(i integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
		SELECT convert_to(repeat(\'same prefix \', 200) || md5(i::text), \'UTF8\') $$',
	'CREATE TABLE s.t (id integer, b blobstate)', 'CREATE INDEX t_b ON s.t (b)',
	'INSERT INTO s.t SELECT i, s.key(i) FROM generate_series(1, 60) AS i');
my $reader = session('BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM s.t');
my $reindex = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		'REINDEX INDEX CONCURRENTLY s.t_b' ], '>', \my $reindex_out, '2>', \my $reindex_err);
poll(q(SELECT count(*) = 1 FROM pg_index WHERE indexrelid::regclass::text = 's.t_b_ccnew'
	AND indisready AND NOT indisvalid));
poll(q(SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'REINDEX%'
	AND wait_event_type = 'Lock'));
sql(q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'REINDEX%'));
$reindex->finish;
$reader->query_safe('COMMIT');
is(sql(q(SELECT indisready, indisvalid FROM pg_index
	WHERE indexrelid::regclass::text = 's.t_b_ccnew')), 't|f', 'an index _ccnew is left');
sql('DROP INDEX s.t_b', 'DELETE FROM s.t WHERE id <= 50', 'VACUUM (INDEX_CLEANUP off) s.t');
frees(0, '_ccnew: its items keep their values');
sql('CHECKPOINT', 'CREATE TABLE s.overwrite AS SELECT value(i)::blobstate AS b
		FROM generate_series(1, 60) AS i',
	'INSERT INTO s.t SELECT i, s.key(i) FROM generate_series(61, 100) AS i');
sql('REINDEX INDEX CONCURRENTLY s.t_b_ccnew', "SELECT bt_index_parent_check('s.t_b_ccnew', true)");
sql('VACUUM s.t', 'DROP INDEX s.t_b_ccnew');
is((gc())[1], 60 + 50, '_ccnew: gone with the index');

# CREATE INDEX CONCURRENTLY in its last wait: the index is ready, the collector goes on beside it.
# (Its transaction keeps no value but from a snapshot that the collector waits for.)
my $second_reader = session('BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM s.t');
my $build = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		'CREATE INDEX CONCURRENTLY t_b2 ON s.t (b)' ], '>', \my $build_out, '2>', \my $build_err);
poll(q(SELECT count(*) = 1 FROM pg_index WHERE indexrelid::regclass::text = 's.t_b2'
	AND indisready AND NOT indisvalid));
sql('DELETE FROM s.t WHERE id % 2 = 0');
my $beside = start_gc();
gc_waits_for('older snapshot');
$second_reader->query_safe('COMMIT');
$build->finish;
is($build_err, '', 'CREATE INDEX CONCURRENTLY beside the collector');
gc_result($beside);
sql('VACUUM (INDEX_CLEANUP off) s.t');
gc();
sql('CHECKPOINT', 'INSERT INTO s.overwrite SELECT value(i) FROM generate_series(1, 60) AS i',
	'INSERT INTO s.t SELECT i, s.key(i) FROM generate_series(101, 160) AS i',
	"SELECT bt_index_parent_check('s.t_b2', true)");
check_is_clean($node, 'concurrent builds: the check finds nothing');

# ---- rounds by hand begin again ----
# A round gives way to commands, and a slot that begins ends it; blobext_gc() begins again, until a round is complete, or
# gc_wait_timeout has passed.  Seen to fail without the loop in collect() of src/sql/administration/collect.c: no round begins again.

clean();
table('t', 10);
sql('DELETE FROM s.t WHERE id > 6');
my $writer = session('BEGIN', 'CREATE TABLE s.w (i integer)');
my $slot_error = '';
my $slot = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		q(SELECT pg_create_logical_replication_slot('late', 'test_decoding', true)) ], '>', \my $slot_name, '2>', \$slot_error);
poll(q(SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'late'));
poll(q(SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%create_logical%' AND wait_event_type = 'Lock'));
my $skipped = sql('SELECT skipped_rounds FROM blobext_gc_status');
my $round = start_gc();
$round->{all} = 1;
ok(poll("SELECT skipped_rounds >= $skipped + 2 FROM blobext_gc_status"), 'a slot begins: the round begins again and again');
$writer->query_safe('COMMIT');
$slot->finish;
is($slot_error, '', 'the slot is made');
is(join('|', gc_result($round)), '4|', 'a slot has begun: the round by hand has freed the deleted values');
like($round->{err}, qr/NOTICE:  the collector starts again: logical replication slot "late" is being created/, 'the caller is told');
forget_sessions();

# Commands that come one after the other, faster than a round.
clean();
table('t', 200);
sql('DELETE FROM s.t WHERE id > 100');
my $script = PostgreSQL::Test::Utils::tempdir() . '/ddl.sql';
append_to_file($script, "ALTER TABLE s.t ADD c blobstate;\nALTER TABLE s.t DROP c;\n\\sleep 20 ms\n");
my $ddl = IPC::Run::start([ 'pgbench', '-n', '-T', '600', '-f', $script, $node->connstr('postgres') ],
	'<', \undef, '>', \my $ddl_out, '2>', \my $ddl_error);
poll(q(SELECT count(*) >= 1 FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE%'));
($freed, undef, $reason) = gc(timeout => '60s');
is("$freed|$reason", '100|', 'commands at a high rate do not keep a round by hand from freeing');
$ddl->kill_kill;
intact('SELECT id, b FROM s.t', 100, 'the other values are intact');

# A command that lasts: the reason is the last one.
clean();
table('t', 10);
sql('DELETE FROM s.t WHERE id > 6');
my $holder = session('BEGIN', 'CREATE INDEX ON s.t (b)');
my ($count, undef, $why) = gc(timeout => '300ms');
is($count, '0', 'a table stays locked: nothing is freed');
like($why, qr/keeps relation "t" locked|in a transaction/, 'a table stays locked: the reason');
$holder->query_safe('ROLLBACK');
frees(4, 'the lock is released');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');
done_testing();
