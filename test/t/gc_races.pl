# The collector beside others: files and columns that go away and come back, values on their way from
# process to process, indexes that are split and shrink, slots, standbys, crashes.
#
# "Fails without" names the code whose removal made a test fail.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

my $node = blob_cluster('main', streaming => 1, conf => q(
wal_level = logical
autovacuum = off
max_connections = 30
allow_in_place_tablespaces = on
wal_writer_delay = 10s
wal_buffers = 16MB
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1h
logical_decoding_work_mem = 64kB
));
gc_use($node);
sql('CREATE EXTENSION amcheck', "CREATE TABLESPACE place LOCATION ''");

# A statement in the background.
sub start_sql
{
	my (@statements) = @_;
	my %handle = (out => '', err => '');
	$handle{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), map { ('-c', $_) } @statements ],
		'>', \$handle{out}, '2>', \$handle{err});
	return \%handle;
}

# ---- files and columns ----
# A value is copied to a table that has been scanned, and its source goes away before the scan.
# Fails without: the comparison in mark_root() together with the last list of collect_range().

moved_in_time('SET TABLESPACE', 'DELETE FROM s.t1; ALTER TABLE s.t1 SET TABLESPACE place');
moved_in_time('CLUSTER', 'DELETE FROM s.t1; CREATE INDEX t1_id ON s.t1 (id); COMMIT;
	CLUSTER s.t1 USING t1_id; BEGIN');
moved_in_time('rewrite', 'DELETE FROM s.t1; ALTER TABLE s.t1 SET UNLOGGED');

# The attribute of a row type: the table is not locked.
my ($freed, $reason) = stopped_gc('DROP ATTRIBUTE', 'marking',
	before => [ 'CREATE TYPE s.c AS (n integer, b blobstate)', 'CREATE TABLE s.t4 (id integer, c s.c)',
		'INSERT INTO s.t4 SELECT id, ROW(1, b)::s.c FROM s.t1', 'TRUNCATE s.t1' ],
	marking => sub {
		sql('INSERT INTO s.t2 SELECT id, (c).b FROM s.t4', 'ALTER TYPE s.c DROP ATTRIBUTE b');
	});
is($freed, '0', 'DROP ATTRIBUTE: nothing is freed');
intact('SELECT * FROM s.t2', 3, 'DROP ATTRIBUTE: what was moved is there');

# The same, rolled back: all are in one transaction after the other while the collector is stopped.
($freed, $reason) = stopped_gc('rolled back', 'marking',
	before => [ 'CREATE TYPE s.c AS (n integer, b blobstate)', 'CREATE TABLE s.t4 (id integer, c s.c)',
		'INSERT INTO s.t4 SELECT 10 + i, ROW(1, value(10 + i)::blobstate)::s.c
			FROM generate_series(1, 2) AS i',
		'CREATE MATERIALIZED VIEW s.t5 AS SELECT 20 AS id, value(20)::blobstate AS b',
		'CREATE INDEX t1_b ON s.t1 (b)' ],
	marking => sub {
		sql(map { "BEGIN; INSERT INTO s.t2 SELECT * FROM s.t1; $_; ROLLBACK" }
			'TRUNCATE s.t1', 'DROP TABLE s.t1', 'ALTER TABLE s.t1 DROP COLUMN b',
			'ALTER TABLE s.t1 ALTER COLUMN b TYPE bytea', 'ALTER TABLE s.t1 SET TABLESPACE place',
			'CLUSTER s.t1 USING t1_b', 'ALTER TABLE s.t1 SET UNLOGGED', 'DROP INDEX s.t1_b',
			'REINDEX INDEX s.t1_b', 'ALTER TYPE s.c DROP ATTRIBUTE b', 'DROP TABLE s.t4',
			'REFRESH MATERIALIZED VIEW s.t5', 'DROP MATERIALIZED VIEW s.t5',
			'DELETE FROM s.t1; SAVEPOINT p; TRUNCATE s.t1; ROLLBACK TO p');
	});
# The value that REFRESH made and lost is newer than the cutoff.
is("$freed|$reason", '0|', 'rolled back: the round goes on');
intact('SELECT * FROM s.t1 UNION ALL SELECT id, (c).b FROM s.t4 UNION ALL SELECT * FROM s.t5', 6,
	'rolled back: all is there');

# The wait for a row type that another session changes is bounded.
# Fails without: LockTimeout in blob_gc_run().
clean();
sql('CREATE TYPE s.c AS (n integer, b blobstate)', 'CREATE TABLE s.t (id integer, c s.c)',
	'INSERT INTO s.t VALUES (1, ROW(1, value(1)::blobstate))');
my $alter = session('SELECT 1');
my $first = session('BEGIN', 'SELECT 1');
my $gc = start_gc("SET blobext.gc_wait_timeout = '3s'");
gc_waits_for('process ' . pid($first));
$alter->query_safe('BEGIN; ALTER TYPE s.c ADD ATTRIBUTE more integer');
$first->query_safe('COMMIT');
($freed, $reason) = gc_result($gc);
like("$freed$reason", qr/^(0.*has been in a transaction|.*lock timeout)/s, 'a row type is locked');
$alter->query_safe('ROLLBACK');

# ---- values on their way ----
# Taken out of a held cursor, which is then closed, by a transaction that began after L. (The cursor
# is opened, and the table emptied, between the two waits: else the second one sees the transaction.)
# Fails without: pass->again in slot_blocks().

clean();
table('t1', 2);
table('t2', 0);
sql(q(CREATE FUNCTION s.take() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE c refcursor := 'held'; v blobstate;
	BEGIN
		FETCH c INTO v; CLOSE c;
		EXECUTE 'SET LOCAL work_mem = 1024';
		PERFORM pg_advisory_lock(1);
		INSERT INTO s.t2 VALUES (1, v);
	END $$));
my $lock = session('SELECT pg_advisory_lock(1)');
$first = session('BEGIN', 'SELECT 1');
$gc = start_gc();
gc_waits_for('process ' . pid($first));
my $holder = session('BEGIN; DECLARE held CURSOR WITH HOLD FOR SELECT b FROM s.t1 ORDER BY id; COMMIT');
my $holder_pid = pid($holder);
sql('TRUNCATE s.t1');
$first->query_safe('COMMIT');
gc_waits_for("process $holder_pid has an open cursor");
$holder->query_until(qr/start/, "\\echo start\nSELECT s.take();\n\\echo done\n");
poll(qq(SELECT pid IS NULL OR waiting_for LIKE 'process $holder_pid has been in a transaction%'
	FROM blobext_gc_status));
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$holder->query_until(qr/done/, '');
($freed, $reason) = gc_result($gc);
is("$freed|$reason", '1|', 'out of a held cursor: what was not taken is freed');
intact('SELECT * FROM s.t2', 1, 'out of a held cursor: what was taken is there');

# A variable, over the rollback of a subtransaction: nothing else refers to the value while the
# collector works.  Fails without: waiting for transactions (blob_gc_wait_for_transactions()).
clean();
table('t2', 0);
sql(q(CREATE FUNCTION s.keep() RETURNS void LANGUAGE plpgsql AS $$ DECLARE v blobstate; BEGIN
	BEGIN INSERT INTO s.t2 VALUES (1, value(1)) RETURNING b INTO v;
		RAISE EXCEPTION 'back'; EXCEPTION WHEN raise_exception THEN NULL; END;
	PERFORM pg_advisory_lock(1);
	INSERT INTO s.t2 VALUES (1, v); END $$));
$lock->query_safe('SELECT pg_advisory_lock(1)');
my $keeper = start_sql('SELECT s.keep()');
poll(q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory'));
sql('VACUUM s.t2');
is(sql(q(SELECT pg_relation_size('s.t2'))), '0', 'out of a subtransaction: its row is gone');
$gc = start_gc();
poll(q(SELECT pid IS NULL OR waiting_for LIKE '%has been in a transaction since before%'
	FROM blobext_gc_status));
$lock->query_safe('SELECT pg_advisory_unlock(1)');
IPC::Run::finish($keeper->{run});
($freed, $reason) = gc_result($gc);
is("$freed|$reason$keeper->{err}", '0|', 'out of a subtransaction: nothing is freed');
intact('SELECT * FROM s.t2', 1, 'out of a subtransaction');

# A transaction that began after the first wait has a value whose file is gone before list A.  It puts it
# where list A did not see anything.  Another one, which began after L, takes it out, and that place is
# removed before the lists are compared.  Fails without: blob_gc_columns_were_made() (the value is freed);
# the domain without SearchSysCacheExists1() in type_may_hold().
sub passed_on
{
	my ($name, $before, $make, $drop) = @_;
	clean();
	table('t1', 1);
	table('t2', 0);
	my $take = q(CREATE FUNCTION s.%s() RETURNS void LANGUAGE plpgsql AS $$
		DECLARE v blobstate;
		BEGIN
			BEGIN SELECT b INTO v FROM %s;
				RAISE EXCEPTION 'back'; EXCEPTION WHEN raise_exception THEN NULL; END;
			PERFORM pg_advisory_lock(%d);
			EXECUTE '%s';
			INSERT INTO %s VALUES (1, v);
		END $$);
	sql($before, sprintf($take, 'pass', 's.t1', 1, $make, 'passed'),
		sprintf($take, 'receive', 'passed', 2, 'SET LOCAL work_mem = 1024', 's.t2'));
	my $stop = session('SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
	my $early = session('BEGIN', 'SELECT 1');
	my $session = session('SET search_path = pg_temp, s, public');
	my $session_pid = pid($session);
	my $waits = q(SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory');

	my $round = start_gc();
	gc_waits_for('process ' . pid($early));
	my $late = session('BEGIN', 'SELECT 1');
	my $late_pid = pid($late);
	$session->query_until(qr/start/, "\\echo start\nSELECT s.pass();\n\\echo done\n");
	poll($waits);
	sql('TRUNCATE s.t1');
	$early->query_safe('COMMIT');
	poll("SELECT waiting_for ~ 'process ($late_pid|$session_pid) has been' FROM blobext_gc_status");
	$stop->query_safe('SELECT pg_advisory_unlock(1)');
	$session->query_until(qr/done/, '');
	gc_waits_for("process $late_pid has been");

	$session->query_until(qr/start/, "\\echo start\nSELECT s.receive();\n\\echo done\n");
	poll($waits);
	my $passed = sql(q(SELECT oid::regclass FROM pg_class WHERE relname = 'passed'));
	sql(sprintf($drop, $passed));
	$late->query_safe('COMMIT');
	poll("SELECT pid IS NULL OR waiting_for ~ 'process $session_pid has been' FROM blobext_gc_status");
	$stop->query_safe('SELECT pg_advisory_unlock(2)');
	eval { $session->query_until(qr/done/, '') };
	is(join('|', gc_result($round)), '0|', "passed on in $name: nothing is freed");
	return intact('SELECT * FROM s.t2', 1, "passed on in $name");
}

passed_on('a table', 'SELECT 1', 'CREATE TABLE s.passed (id integer, b blobstate)', 'DROP TABLE %s');
passed_on('a temporary table', 'SELECT 1', 'CREATE TEMP TABLE passed (id integer, b blobstate)',
	'DROP TABLE %s');
passed_on('a column', 'CREATE TABLE s.passed (id integer)', 'ALTER TABLE s.passed ADD b blobstate',
	'ALTER TABLE %s DROP b');
passed_on('a domain', 'CREATE DOMAIN s.d AS blobstate', 'CREATE TABLE s.passed (id integer, b s.d)',
	'DROP TABLE %s; DROP DOMAIN s.d');

# A snapshot that goes from session to session: each has begun after the one before was seen, none
# keeps a transaction for long, and a row that it shows can be vacuumed when the last one has stored
# its value in a table that may have been scanned.
# Fails without: waiting for older snapshots (blob_gc_wait_for_snapshots()).
clean();
table('t2', 0);
table('stop', 0);
table('t1', 3);
my $old = session('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $snapshot = $old->query_safe('SELECT pg_export_snapshot()');
sql('DELETE FROM s.t1');
$gc = start_gc();
gc_waits_for('process ' . pid($old));
my $heir = session('BEGIN ISOLATION LEVEL REPEATABLE READ', "SET TRANSACTION SNAPSHOT '$snapshot'");
$snapshot = $heir->query_safe('SELECT pg_export_snapshot()');
$old->query_safe('COMMIT');
gc_waits_for('process ' . pid($heir));
my $last = session('BEGIN ISOLATION LEVEL REPEATABLE READ', "SET TRANSACTION SNAPSHOT '$snapshot'");
my $stop = session('BEGIN', 'LOCK TABLE s.stop IN ACCESS EXCLUSIVE MODE');
$heir->query_safe('COMMIT');
my $last_pid = pid($last);
poll(qq(SELECT waiting_for LIKE 'process $last_pid holds an older snapshot%'
	OR waiting_for LIKE '%relation "stop" locked' FROM blobext_gc_status));
$last->query_safe('INSERT INTO s.t2 SELECT * FROM s.t1; COMMIT');
sql('VACUUM s.t1');
is(sql(q(SELECT pg_relation_size('s.t1'))), '0', 'handed down: the rows are gone');
$stop->query_safe('COMMIT');
($freed, $reason) = gc_result($gc);
is("$freed|$reason", '0|', 'handed down: nothing is freed');
intact('SELECT * FROM s.t2', 3, 'handed down: what was stored is there');

# ---- logical slots ----
# Fails without: blob_gc_no_slot_begins() (then it says that it waits for the transaction).

clean();
table('t1', 1);
my $writer = session('BEGIN', 'SELECT pg_current_xact_id()');
my $creation = start_sql(q(SELECT pg_create_logical_replication_slot('late', 'test_decoding')));
poll(q(SELECT count(*) = 1 FROM pg_replication_slots));
frees_nothing(qr/slot "late" is being created/, 'a slot begins');
$writer->query_safe('COMMIT');
IPC::Run::finish($creation->{run});
sql(q(SELECT pg_copy_logical_replication_slot('late', 'copied')));
sql('DELETE FROM s.t1', 'VACUUM s.t1');
$gc = start_gc();
gc_waits_for('logical replication slot');
sql(q(SELECT count(*) FROM pg_logical_slot_get_changes('late', NULL, NULL)));
gc_waits_for('logical replication slot "copied"');
sql(q(SELECT pg_drop_replication_slot('copied')));
is((gc_result($gc))[0], '1', 'when all slots are ahead');
sql(q(SELECT pg_drop_replication_slot('late')));

# A walsender that streams a transaction while that runs, and is then slow: it has yet to send values
# when the transaction has ended, and they are deleted, vacuumed and collected.  (Had it rolled back,
# the walsender might notice, and send no more.)
# Fails without: blob_gc_wait_for_slots().

clean();
sql('CREATE TABLE s.t1 (id integer, b blobstate, pad text)',
	'ALTER TABLE s.t1 ALTER COLUMN pad SET STORAGE PLAIN', q(CREATE PUBLICATION p FOR TABLE s.t1 WITH (publish = 'insert')),
	q(SELECT pg_create_logical_replication_slot('stream', 'pgoutput')));
my $stream = $node->basedir . '/stream';
my $receiver = IPC::Run::start([ 'pg_recvlogical', '-d', $node->connstr('postgres'), '--slot', 'stream',
		'--start', '--no-loop', '-s', '1', '-F', '1', '-f', $stream, '-o', 'proto_version=2',
		'-o', 'streaming=on', '-o', 'publication_names=p' ], '2>', \my $receiver_error);
my $insert = q(INSERT INTO s.t1 SELECT i, value(i), repeat(md5(i::text), 200)
	FROM generate_series(%d, %d) AS i);
my $large = session('BEGIN', sprintf($insert, 1, 40));
sql('CHECKPOINT');		# a walsender sends durable WAL only

# The content of a value, as it is in the stream.
sub streams
{
	my ($i) = @_;
	my $content = sql("SELECT left(encode(value($i), 'hex'), 1000)");
	return -e $stream && index(slurp_file($stream), $content) >= 0;
}

for (my $i = 0; $i < 3000 && !streams(1); $i++)
{
	usleep(10_000);
}
ok(streams(1), 'a transaction is streamed while it runs');
my $sender = sql(q(SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'stream'));
poll("SELECT wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = $sender");
kill('STOP', $sender);
$large->query_safe(sprintf($insert, 41, 80));
$large->query_safe('COMMIT');
sql('DELETE FROM s.t1', 'VACUUM s.t1');
frees_nothing(qr/logical replication slot "stream" has not confirmed/, 'a slow walsender');
sql('CHECKPOINT', q(CREATE TABLE s.overwrite AS SELECT value(1000 + i)::blobstate AS b
	FROM generate_series(1, 100) AS i));
kill('CONT', $sender);
$gc = start_gc();
is(join('|', gc_result($gc)), '80|', 'a walsender that has caught up');
ok(streams(80), 'the walsender has sent all values');
sql(qq(SELECT pg_terminate_backend($sender)));
IPC::Run::finish($receiver);
unlike($receiver_error, qr/stale/, 'no value was stale');
poll(q(SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'stream'));
sql(q(SELECT pg_drop_replication_slot('stream')), 'DROP PUBLICATION p');

# ---- asynchronous commit ----
# The row is gone or whole.  The store is full, so freed space is used next.  WAL that no process
# needs to flush is lost in the crash: in the first rounds no other process writes WAL.
# Fails without: the flush at the end of blob_gc_sweep() together with the checkpoint that freed space
# waits for (pending.c, reclaim.c).

clean();
sql("CREATE FUNCTION s.longest() RETURNS bigint
	AS '$ENV{BLOBEXT_UNIT_DIR}/blobext_unit', 'unit_store_longest' LANGUAGE C",
	'CREATE TABLE s.fill (b blobstate)',
	q(CREATE PROCEDURE s.fill() LANGUAGE plpgsql AS $$ BEGIN
		WHILE s.longest() > 0 LOOP
			INSERT INTO s.fill VALUES (convert_to(repeat('x', (s.longest() * 4096)::integer), 'UTF8'));
		END LOOP; END $$));
for my $round (1 .. 4)
{
	sql('DROP TABLE IF EXISTS s.t, s.over');
	table('t', 8);
	sql('CALL s.fill()', 'CHECKPOINT');		# the table is not replayed
	kill('STOP', sql(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter')))
	  if $round <= 2;
	sql('SET synchronous_commit = off', 'DELETE FROM s.t WHERE id <= 4', 'VACUUM s.t');
	my ($count) = gc();
	sql('CHECKPOINT') if $round > 2;
	my $over = start_sql('SET synchronous_commit = off',
		'CREATE TABLE s.over AS SELECT i + 100 AS id, value(i + 100)::blobstate AS b
			FROM generate_series(1, 8) AS i');
	IPC::Run::finish($over->{run}) if $round <= 2;
	usleep(30_000 * $round) if $round > 2;
	kill_everything($node);
	IPC::Run::finish($over->{run}) if $round > 2;
	$node->start;
	# Later rounds free what the ones before have left, too.
	cmp_ok($count, $round == 1 ? '==' : '>=', 4, "asynchronous $round: deleted values are freed");
	my $rows = sql('SELECT count(*) FROM s.t');
	like($rows, qr/^[48]$/, "asynchronous $round: the rows are there or not");
	intact('SELECT * FROM s.t', $rows, "asynchronous $round: the rows are whole");
	check_is_clean($node, "asynchronous $round: the check finds nothing");
	gc();
}

# ---- segments ----
# A session has stored something in a segment and rolled back; the segment is removed; then it commits
# something else. Fails without: the comparison of transaction_no in report_missing() of
# extents/durability.c.

clean();
table('t', 0);
sql("CREATE FUNCTION s.allocate(pages bigint) RETURNS bigint
	AS '$ENV{BLOBEXT_UNIT_DIR}/blobext_unit', 'unit_store_allocate' LANGUAGE C STRICT");
my $aborted = session('BEGIN; INSERT INTO s.t VALUES (1, value(1)); ROLLBACK');
# Segments of the tests before are gone, if nothing has lived in them.
my ($segment_no) = grep { -e segment_file($node, $_) } 0 .. 99;
sql('VACUUM s.t', 'SELECT s.allocate(262144)');
($freed, undef, $reason) = gc();
is($reason, '', 'the extents of the segment are freed');
ok(!-e segment_file($node, $segment_no), 'the segment is removed');
is($aborted->query_safe('INSERT INTO s.t VALUES (2, NULL); SELECT count(*) FROM s.t'), '1',
	'the session that has written to it can commit');
$aborted->query_safe('INSERT INTO s.t VALUES (3, value(3))');
intact('SELECT * FROM s.t WHERE id = 3', 1, 'the session that has written to the removed segment can store');

# ---- pg_dump ----
# Parallel workers import a snapshot while rows are deleted and their space is used again.

clean();
table('t1', 60);
table('t2', 60);
my $directory = $node->basedir . '/dump';
my $dump = IPC::Run::start([ 'pg_dump', '-Fd', '-j2', '-f', $directory, '-d',
		$node->connstr('postgres'), '-n', 's' ], '2>', \my $dump_error);
for my $i (1 .. 5)
{
	sql("DELETE FROM s.t1 WHERE id <= $i * 10", "DELETE FROM s.t2 WHERE id <= $i * 10",
		'VACUUM s.t1, s.t2');
	gc(timeout => '200ms');
	sql('CHECKPOINT', "INSERT INTO s.t1 SELECT i, value(i) FROM generate_series(100, 120) AS i");
}
IPC::Run::finish($dump);
is($dump_error, '', 'pg_dump -j2 beside rounds ends without an error');

# ---- index splits and page deletion ----
# Keys with a long common prefix; the collector walks slowly while pages are split and deleted, and
# freed space is used at once.  Afterwards each item of the index has its extents: amcheck compares
# the keys, and an index-only scan reads them.
# Fails without: levels above the leaves and high keys in btree.c.

clean();
sql(q(CREATE FUNCTION s.key(i integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
		SELECT convert_to(repeat('same prefix ', 150) || md5(i::text), 'UTF8') $$),
	q(CREATE TABLE s.t (id integer, b blobstate)), q(CREATE INDEX i ON s.t (b)),
	q(INSERT INTO s.t SELECT i, s.key(i) FROM generate_series(1, 600) AS i),
	q(CREATE FUNCTION s.stale() RETURNS bigint LANGUAGE sql AS
		$$ SELECT count(*) FROM s.t WHERE b::bytea <> s.key(id) $$));
my $end = time + 15;
my @work = map { start_sql(map { ("INSERT INTO s.t SELECT i, s.key(i)
			FROM generate_series($_ * 50, $_ * 50 + 49) AS i") } map { $_ * 3 + 13 } @$_) }
	[ 1 .. 14 ], [ 15 .. 28 ];
my ($rounds, $freed_in_all, $no) = (0, 0, 0);
while (time < $end || ($rounds <= 2 && time < $end + 300))
{
	my $slow = start_gc('SET blobext.gc_cost_delay = 5', 'SET blobext.gc_cost_limit = 1');
	for (1 .. 4)
	{
		my $from = ($no++ * 37) % 2000;
		sql("DELETE FROM s.t WHERE id BETWEEN $from AND $from + 150", 'VACUUM s.t',
			"INSERT INTO s.t SELECT i, s.key(i) FROM generate_series($from, $from + 20) AS i");
	}
	my ($count, $why) = gc_result($slow);
	sql('CHECKPOINT');
	$rounds++ if $why eq '';
	$freed_in_all += $count || 0;
	sql('CREATE TABLE s.overwrite AS SELECT value(i)::blobstate AS b FROM generate_series(1, 60) AS i',
		'DROP TABLE s.overwrite');
}
IPC::Run::finish($_->{run}) foreach @work;
is(join('', map { $_->{err} } @work), '', 'insertions beside the collector end without an error');
cmp_ok($rounds, '>', 2, "more than two rounds were complete ($rounds)");
cmp_ok($freed_in_all, '>', 100, "the rounds freed more than 100 values ($freed_in_all)");
sql('VACUUM s.t');
gc();
sql("SELECT bt_index_parent_check('s.i', true, true)");
is(sql('SET enable_seqscan = off', 'SET enable_bitmapscan = off',
		'SELECT count(*) FROM (SELECT b FROM s.t ORDER BY b) AS o WHERE sha256(b) IS NOT NULL
			AND length(b::bytea) > 0'), sql('SELECT count(*) FROM s.t'), 'an index-only scan finds all rows, with their content');
is(sql('SELECT s.stale()'), '0', 'a scan of the table finds no stale value');
check_is_clean($node, 'the check finds nothing');

# ---- standby ----
# With feedback, content that a query of the standby may see is not freed, and other content that is
# freed does not cancel it; without feedback, the query is cancelled.
# Fails without: the horizon of the data in conflict_horizon() (FREE then has that of the snapshot).

clean();
my $backup = $node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', q(hot_standby_feedback = on
wal_receiver_status_interval = 1s
max_standby_streaming_delay = 100ms));
$standby->start;

foreach my $feedback ('on', 'off')
{
	$standby->append_conf('postgresql.conf', "hot_standby_feedback = $feedback");
	$standby->reload;
	clean();
	table('t', 3);
	$node->wait_for_catchup($standby);
	my $query = $standby->background_psql('postgres', on_error_stop => 0);
	$query->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM s.t');
	if ($feedback eq 'on')
	{
		poll('SELECT count(*) > 0 FROM pg_stat_replication WHERE backend_xmin IS NOT NULL');
	}
	else
	{
		poll('SELECT count(*) = 0 FROM pg_stat_replication WHERE backend_xmin IS NOT NULL');
	}
	sql('DELETE FROM s.t', 'BEGIN; INSERT INTO s.t SELECT i, value(i) FROM generate_series(11, 12) AS i;
		ROLLBACK', 'VACUUM s.t');
	my ($count, undef, $why) = gc();
	is("$count|$why", $feedback eq 'on' ? '2|' : '5|', "standby, feedback $feedback: freed");
	sql('CHECKPOINT', 'CREATE TABLE s.over AS SELECT value(i + 50)::blobstate AS b
		FROM generate_series(1, 20) AS i');
	$node->wait_for_catchup($standby);
	# (The session may be gone, too.)
	my $seen = eval { ($query->query('SELECT count(*) FROM s.t WHERE b::bytea = value(id)'))[0] } // '';
	is($seen, '3', 'standby, feedback on: the query sees its rows') if $feedback eq 'on';
	is($seen, '', 'standby, feedback off: the query is cancelled') if $feedback eq 'off';
	eval { $query->quit };
}
$standby->stop;

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');
done_testing();
