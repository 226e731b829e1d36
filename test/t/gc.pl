# The collector frees extents that nothing refers to, and no others.
#
# First the extents that must be freed: of deleted, rolled back and crashed values, of dropped
# tables.  Then the extents that must stay, one protection after the other.  For these, the
# collector is stopped at the worst moment: by a transaction that it waits for (step 5 of
# src/gc/README.md), or by a lock on a table of the list (step 8).  "Fails without" names the
# code whose removal made a test fail.
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
wal_level = logical
autovacuum = off
max_connections = 30
));

gc_use($node);
sql('CREATE EXTENSION amcheck');

# ---- extents that are freed ----

table('t', 50);
is(frees(0, 'a round frees nothing of a fresh table'), '50', 'all values of a fresh table live');
sql('DELETE FROM s.t WHERE id > 20');
is(join('|', (gc(dry_run => 1))[ 0, 1 ]), '0|50', 'a dry run leaves dead rows alone: they refer to values');
sql('VACUUM s.t');
is(join('|', (gc(dry_run => 1))[ 0, 1 ]), '30|20', 'a dry run counts what a round would free');
is(join('|', (gc(dry_run => 1))[ 0, 1 ]), '30|20', 'a second dry run counts the same, so the first one freed nothing');
is(frees(30, 'values of rows that were deleted and vacuumed are freed'), '20', 'values of the other rows live after VACUUM and a round');

# Fails without: prune() in heap.c.
sql('DELETE FROM s.t WHERE id > 15');
is(frees(5, 'a round removes dead rows itself and frees their values'), '15', 'values of the other rows live after a round that removed dead rows');
sql('UPDATE s.t SET b = value(id + 100) WHERE id > 10');
is(frees(5, 'values of updated rows are freed'), '15', 'the new values of updated rows live');
sql('UPDATE s.t SET b = value(id) WHERE id > 10');
sql('INSERT INTO s.t SELECT i, value(i) FROM generate_series(16, 20) AS i');
is(frees(5, 'values of rows that were updated again are freed'), '20', 'new values and inserted ones live');
intact('SELECT id, b FROM s.t', 20, 'values are intact after rounds that freed others');
check_is_clean($node, 'the check finds nothing');

# Freed space is used again after a checkpoint, and only then.
my $size = -s segment_file($node);
sql('CHECKPOINT');
for my $round (1 .. 4)
{
	sql('INSERT INTO s.t SELECT i, value(i) FROM generate_series(21, 50) AS i',
		'DELETE FROM s.t WHERE id > 20', 'VACUUM s.t');
	gc();
	sql('CHECKPOINT');
}
is(-s segment_file($node), $size, 'freed space is used again: the store does not grow');
intact('SELECT id, b FROM s.t', 20, 'values are intact after space was used again');
check_is_clean($node, 'the check finds nothing after the reuse');

my $freed_before = stat_of($node, 'gc_freed_blobs');
sql('BEGIN; INSERT INTO s.t SELECT i, value(i) FROM generate_series(101, 110) AS i; ROLLBACK',
	'BEGIN; SAVEPOINT p; INSERT INTO s.t VALUES (1, value(111)); ROLLBACK TO p; COMMIT',
	'VACUUM s.t');
frees(11, 'values of transactions and savepoints that were rolled back are freed');
is(stat_of($node, 'gc_freed_blobs') - $freed_before, 11, 'the counter gc_freed_blobs grows by the freed values');
session('BEGIN', 'INSERT INTO s.t SELECT i, value(i) FROM generate_series(1, 7) AS i');
sql('CHECKPOINT');
kill_everything($node);
$node->start;
forget_sessions();
sql('VACUUM s.t');
frees(7, 'of a transaction that the server took with it');
sql('CREATE TABLE s.t2 AS SELECT * FROM s.t', 'TRUNCATE s.t');
is(frees(0, 'copies share their extents'), '20', 'shared extents live as long as one of the copies');
sql('DROP TABLE s.t2');
frees(20, 'values of dropped tables are freed');

# ---- refused ----

fails_with($node, 'BEGIN; SELECT blobext_gc()', '25001', qr/transaction block/, 'blobext_gc() in a transaction block is refused');
fails_with($node, 'DO $$ BEGIN PERFORM blobext_gc(); END $$', '25001', qr/from a function/,
	'blobext_gc() in a DO block is refused');
fails_with($node, 'CREATE FUNCTION s.f() RETURNS void LANGUAGE plpgsql AS
	$$ DECLARE r record; BEGIN r := blobext_gc(); END $$; SELECT s.f()', '25001',
	qr/from a function/, 'blobext_gc() in an expression of a function is refused');
fails_with($node, 'CREATE PROCEDURE s.p() LANGUAGE plpgsql AS $$ BEGIN COMMIT; PERFORM blobext_gc();
	END $$; CALL s.p()', '25001', qr/from a function/, 'blobext_gc() in a procedure is refused');
fails_with($node, 'DECLARE c CURSOR WITH HOLD FOR SELECT blobext_gc()', '25001', qr/in a cursor/,
	'blobext_gc() in a cursor is refused');
fails_with($node, 'CREATE TABLE s.w (b blobstate, n bigint);
	INSERT INTO s.w SELECT blob_store(value(i)), (SELECT freed_blobs + i - i FROM blobext_gc())
	FROM generate_series(1, 2) AS i', '25001', qr/statement that writes/,
	'blobext_gc() is refused where the statement has stored something');
fails_with($node, 'SET default_transaction_read_only = on; SELECT blobext_gc()', '25006', qr/read-only/,
	'blobext_gc() in a read-only transaction is refused');
fails_with($node, "CREATE ROLE nobody; SET ROLE nobody; SELECT blobext_gc()", '42501', qr/denied/,
	'blobext_gc() without the privilege is refused');

# ---- containers ----
# Fails without: blob_walk_datum() in mark.c (all but plain columns), is_scanned for 'm', unlogged tables
# in read_relations().

clean();
sql(q(CREATE DOMAIN s.d AS blobstate), q(CREATE DOMAIN s.da AS blobstate[]),
	q(CREATE TYPE s.c AS (n integer, b blobstate)),
	q(CREATE TYPE s.cc AS (c s.c, a s.c[])),
	q(CREATE TABLE s.t (id integer, d s.d, a blobstate[], da s.da, c s.c, cc s.cc)),
	q(INSERT INTO s.t SELECT i, value(i), ARRAY[value(10 + i), value(20 + i)]::blobstate[],
		ARRAY[value(30 + i)]::blobstate[], ROW(1, value(40 + i)::blobstate)::s.c, NULL
		FROM generate_series(1, 3) AS i),
	q(UPDATE s.t SET cc = ROW(c, ARRAY[c])),
	q(CREATE TABLE s.part (id integer, b blobstate) PARTITION BY RANGE (id)),
	q(CREATE TABLE s.part1 PARTITION OF s.part FOR VALUES FROM (1) TO (10)),
	q(INSERT INTO s.part VALUES (1, value(1)), (2, value(2))),
	q(CREATE UNLOGGED TABLE s.u AS SELECT 1 AS id, value(1)::blobstate AS b),
	q(CREATE MATERIALIZED VIEW s.m AS SELECT 1 AS id, value(1)::blobstate AS b),
	q(CREATE TABLE s.toasted (id integer, a blobstate[])),
	q(INSERT INTO s.toasted SELECT 1, array_agg(value(i)::blobstate) FROM generate_series(1, 60) AS i),
	q(CREATE TABLE s.dropped (id integer, b blobstate, other blobstate)),
	q(INSERT INTO s.dropped VALUES (1, value(1), value(2))),
	q(ALTER TABLE s.dropped DROP COLUMN b));
cmp_ok(sql(q(SELECT pg_relation_size(reltoastrelid) FROM pg_class
	WHERE oid = 's.toasted'::regclass)), '>', 0, 'an array is in the TOAST table');
my $stored = (gc(dry_run => 1))[0] + (gc(dry_run => 1))[1];
sql('VACUUM');
gc();
intact('SELECT id, d FROM s.t', 3, 'a domain keeps its value');
intact('SELECT id + 10, a[1] FROM s.t', 3, 'the first element of an array is kept');
intact('SELECT id + 20, a[2] FROM s.t', 3, 'the second element of an array is kept');
intact('SELECT id + 30, da[1] FROM s.t', 3, 'a domain over an array keeps its elements');
intact('SELECT id + 40, (c).b FROM s.t', 3, 'a row type keeps its value');
intact('SELECT id + 40, ((cc).c).b FROM s.t', 3, 'a row type in a row type keeps its value');
intact('SELECT id + 40, ((cc).a)[1].b FROM s.t', 3, 'a row in an array in a row keeps its value');
intact('SELECT id, b FROM s.part', 2, 'a partition keeps its values');
intact('SELECT * FROM s.u', 1, 'an unlogged table keeps its value');
intact('SELECT * FROM s.m', 1, 'a materialized view keeps its value');
intact('SELECT i, a[i] FROM s.toasted, generate_series(1, 60) AS i', 60, 'an array in a TOAST table keeps its elements');
intact('SELECT 2, other FROM s.dropped', 1, 'a value beside a dropped column is kept');
check_is_clean($node, 'the check finds nothing after containers');
my $live = (gc(dry_run => 1))[1];
sql('ALTER TABLE s.part DETACH PARTITION s.part1');
is(frees(0, 'a round after DETACH PARTITION frees nothing'), $live, 'the values of a detached partition live');
sql('DROP TABLE s.part1');
frees(2, 'the values of a dropped partition are freed');

# A type that keeps blobstate in an unknown form.
sql(q(CREATE TYPE s.opaque), q(CREATE FUNCTION s.i(cstring) RETURNS s.opaque LANGUAGE internal
	IMMUTABLE STRICT AS 'array_in'), q(CREATE FUNCTION s.o(s.opaque) RETURNS cstring LANGUAGE internal
	IMMUTABLE STRICT AS 'array_out'),
	q(CREATE TYPE s.opaque (INPUT = s.i, OUTPUT = s.o, ELEMENT = blobstate,
		SUBSCRIPT = raw_array_subscript_handler)));
frees_nothing(qr/type "opaque" has elements/, 'an unknown container');

# ---- statistics ----
# blobext keeps descriptors out of statistics, but not out of those of columns that were made while it
# was not loaded: as catalog updates make them here.
# Fails without: mark_statistics() in heap.c, its half for extended statistics.

clean();
sql(q(CREATE TABLE s.t (id integer, a blobstate[])),
	q(INSERT INTO s.t SELECT i, ARRAY[value(i % 3), value(3)]::blobstate[]
		FROM generate_series(1, 50) AS i),
	q(INSERT INTO s.t SELECT id, a FROM s.t),
	q(UPDATE pg_attribute SET attstattarget = 100 WHERE attrelid = 's.t'::regclass AND attnum = 2),
	q(ANALYZE s.t),
	q(CREATE TABLE s.e (id integer, b blobstate)),
	q(INSERT INTO s.e SELECT i, value(i) FROM generate_series(1, 3) AS i),
	q(INSERT INTO s.e SELECT e.* FROM s.e, generate_series(1, 20)),
	q(CREATE STATISTICS s.x (ndistinct) ON id, b FROM s.e),
	q(UPDATE pg_statistic_ext SET stxkind = '{m}' WHERE stxname = 'x'), q(ANALYZE s.e),
	q(DELETE FROM s.t), q(DELETE FROM s.e), q(VACUUM));
gc();
sql('CHECKPOINT', 'CREATE TABLE s.overwrite (b blobstate)',
	'INSERT INTO s.overwrite SELECT value(1000 + i) FROM generate_series(1, 100) AS i');
my $statistics = sql(q(SELECT count(most_common_elems::text) FROM pg_stats
	WHERE tablename = 't' AND attname = 'a'));
is($statistics, '1', 'statistics of an array can be read');
is(sql(q(SELECT count(i) FROM pg_statistic_ext_data JOIN pg_statistic_ext ON oid = stxoid,
	pg_mcv_list_items(stxdmcv) AS i WHERE stxname = 'x')), '3', 'common values of columns can be read from statistics');
is(sql(q(SELECT count(*) FROM s.t WHERE a @> ARRAY[value(1)::blobstate]),
	q(SELECT count(*) FROM s.e WHERE b = value(2)::blobstate AND id = 2)), "0\n0", 'queries whose values are in statistics are planned and answered');

# ---- indexes ----
# Fails without: levels above the leaves, or high keys, in btree.c.

clean();
sql(q(CREATE FUNCTION s.key(i integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT convert_to(repeat('same prefix ', 200) || md5(i::text), 'UTF8') $$),
	q(CREATE TABLE s.t (id integer, b blobstate)),
	q(CREATE INDEX i ON s.t (b)),
	q(INSERT INTO s.t SELECT i, s.key(i) FROM generate_series(1, 400) AS i),
	q(DELETE FROM s.t WHERE id % 25 <> 0), q(VACUUM s.t), q(VACUUM s.t));
cmp_ok((gc())[1], '>', 16, 'pivot keys outlive their rows');
sql('CHECKPOINT', 'CREATE TABLE s.overwrite (b blobstate)',
	'INSERT INTO s.overwrite SELECT value(1000 + i) FROM generate_series(1, 500) AS i',
	'INSERT INTO s.t SELECT i, s.key(i) FROM generate_series(1, 800) AS i',
	"SELECT bt_index_parent_check('s.i', true)");
is(sql('SET enable_seqscan = off', q(SELECT count(*) FROM generate_series(1, 800) AS i,
	LATERAL (SELECT FROM s.t WHERE b = s.key(i)::blobstate) AS found)), '816',
	'the index finds what it should');
sql('REINDEX INDEX s.i', 'DELETE FROM s.t', 'VACUUM s.t', 'REINDEX INDEX s.i');
is(frees(500 - 500 + (gc(dry_run => 1))[0], 'a round after REINDEX frees what the keys held'), '500', 'no value of a key lives after REINDEX');

sql(q(CREATE TABLE s.a (a blobstate[])), q(CREATE INDEX ON s.a (a)),
	q(CREATE TABLE s.x (id integer, b blobstate)), q(CREATE INDEX ON s.x ((ARRAY[b])) INCLUDE (b)),
	q(CREATE INDEX ON s.x (id) INCLUDE (b)), q(CREATE INDEX ON s.x USING hash (b)),
	q(INSERT INTO s.a VALUES (ARRAY[value(1)]::blobstate[])), q(INSERT INTO s.x VALUES (1, value(1))),
	q(VACUUM));
frees(0, 'arrays, expressions, INCLUDE and hash');

# Fails without: read_indexes() in roots.c.
sql('CREATE TABLE s.twice AS SELECT b FROM s.x, generate_series(1, 2)');
my ($failed) = $node->psql('postgres', 'CREATE UNIQUE INDEX CONCURRENTLY ON s.twice (b)');
isnt($failed, 0, 'an index is not finished');
frees(0, 'an index that is not finished is left alone');
sql('VACUUM s.twice', 'INSERT INTO s.twice SELECT value(2)');
frees(0, 'an index that is not finished is left alone after further insertions');

# ---- holders ----
# Fails without: slot_blocks() and the holder part of transaction_blocks() in quiesce.c.

clean();
table('t', 3);
my $holder = session('BEGIN', 'DECLARE c CURSOR WITH HOLD FOR SELECT b = value(id) FROM (SELECT id,
	b::bytea AS b, b AS raw FROM s.t) AS q', 'COMMIT', 'CLOSE c');
$holder->query_safe('BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT b FROM s.t; COMMIT');
sql('DELETE FROM s.t', 'VACUUM s.t');
frees_nothing(qr/process @{[pid($holder)]} has an open cursor WITH HOLD/, 'held cursor');
like($holder->query_safe('FETCH 1 FROM c'), qr/^\\x/, 'the cursor still has its values');
$holder->query_safe('BEGIN; FETCH 1 FROM c; COMMIT');
frees_nothing(qr/has an open cursor WITH HOLD/, 'after a FETCH in a transaction');
$holder->query_safe('CLOSE ALL');
frees(3, 'values of a held cursor are freed after CLOSE');
$holder->query_safe('BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; ROLLBACK');
frees(0, 'a cursor that was rolled back is none');
$holder->query_safe('BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT');
$holder->query_safe('DISCARD ALL');
frees(0, 'neither is one that was discarded');
$holder->query_safe('BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT');
my $own = $holder->query_safe('SET client_min_messages = error; SELECT skipped_reason FROM blobext_gc()');
like($own, qr/this session has an open cursor/, 'held cursor of the session itself');
forget_sessions();
frees(0, 'a cursor ends with its session');

# The procedure polls, in transactions of its own, so that nothing but its variable keeps the value.
sub procedure_carries
{
	my ($name, $body) = @_;
	clean();
	table('t', 1);
	table('t2', 0);
	sql('CREATE TABLE s.flag (go boolean)', 'INSERT INTO s.flag VALUES (false)');
	$body =~ s/WAIT;/COMMIT; LOOP EXIT WHEN (SELECT go FROM s.flag); COMMIT;
		PERFORM pg_sleep(0.05); COMMIT; END LOOP;/;
	sql("CREATE PROCEDURE s.p() LANGUAGE plpgsql AS \$\$ DECLARE v blobstate; $body \$\$")
	  if $body !~ /^DO/;
	my $err;
	my $run = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
			$body =~ /^DO/ ? $body : 'CALL s.p()' ], '>', \my $out, '2>', \$err);
	$node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_stat_activity
		WHERE wait_event = 'PgSleep'));
	sql('DELETE FROM s.t');
	for (1 .. 100)
	{
		sql('VACUUM s.t');
		last if sql(q(SELECT pg_relation_size('s.t'))) eq '0';
		usleep(50_000);
	}
	is(sql(q(SELECT pg_relation_size('s.t'))), '0', "$name: the row is gone");
	frees_nothing(qr/runs a procedure or DO block that can commit/, $name);
	sql('UPDATE s.flag SET go = true');
	IPC::Run::finish($run);
	is($err, '', "$name: the call ends without an error");
	intact('SELECT * FROM s.t2', 1, "$name: what it carried is stored");
	frees(0, "$name: a stored value is kept after the call");
	sql('DROP TABLE s.t2');
	frees(1, "$name: the value of the dropped table is freed");
	return;
}

procedure_carries('procedure with COMMIT',
	'BEGIN SELECT b INTO v FROM s.t; WAIT; INSERT INTO s.t2 VALUES (1, v); END');
procedure_carries('DO block with COMMIT', 'DO $$ DECLARE v blobstate; BEGIN SELECT b INTO v FROM s.t;
	WAIT; INSERT INTO s.t2 VALUES (1, v); COMMIT; END $$');
procedure_carries('DO block with ROLLBACK', 'DO $$ DECLARE v blobstate; BEGIN SELECT b INTO v FROM s.t;
	ROLLBACK; WAIT; INSERT INTO s.t2 VALUES (1, v); COMMIT; END $$');

# ---- transactions, snapshots, temporary tables, prepared transactions ----

clean();
table('t', 2);
my $reader = session('BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM s.t');
my $export = session('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $snapshot = $export->query_safe('SELECT pg_export_snapshot()');
my $import = session('BEGIN ISOLATION LEVEL REPEATABLE READ', "SET TRANSACTION SNAPSHOT '$snapshot'");
sql('DELETE FROM s.t', 'VACUUM s.t');
frees_nothing(qr/process \d+ (holds an older snapshot|has been in a transaction)/, 'old snapshots');
$export->query_safe('COMMIT');
is($_->query_safe('SELECT count(*) FROM s.t WHERE b::bytea = value(id)'), '2', 'a reader with an old snapshot still reads the deleted rows')
  foreach $reader, $import;
$_->query_safe('COMMIT') foreach $reader, $import;
sql('VACUUM s.t');
frees(2, 'the values are freed when the old snapshots are gone');

# A transaction without a snapshot. Fails without: excludeXmin0 = false.
my $idle = session('BEGIN', 'SELECT 1');
frees_nothing(qr/process @{[pid($idle)]} has been in a transaction since before/, 'idle');
$idle->query_safe('COMMIT');

# Fails without: is_foreign_temporary(); local buffers are read for the session's own tables.
table('u', 2);
my $temporary = session('CREATE TEMPORARY TABLE mine AS SELECT * FROM s.u');
sql('DROP TABLE s.u');
is(frees(0, 'temporary table: a round is complete'), '2', 'temporary table: the values in that of another session live');
is($temporary->query_safe('SELECT live_blobs, skipped_reason FROM blobext_gc()'), '2|',
	'the session itself can collect');
is($temporary->query_safe('SELECT count(*) FROM mine WHERE b::bytea = value(id)'), '2', 'the values of a temporary table live');
$temporary->query_safe('DROP TABLE mine');
frees(2, 'values of a dropped temporary table are freed');

# Fails without: blob_gc_transaction_runs() instead of waiting for locks of virtual transactions.
sql('CREATE TABLE s.p (id integer, b blobstate)',
	"BEGIN; INSERT INTO s.p VALUES (1, value(1)); PREPARE TRANSACTION 'x'");
is(frees(0, 'a prepared transaction is not waited for'), '1', 'the values of a prepared transaction live');
sql("COMMIT PREPARED 'x'");
intact('SELECT * FROM s.p', 1, 'when it commits, too');
sql("BEGIN; INSERT INTO s.p VALUES (2, value(2)); PREPARE TRANSACTION 'x'", "ROLLBACK PREPARED 'x'",
	'VACUUM s.p');
frees(1, 'when it is rolled back they come back');

# ---- files that go away ----
# Fails without: the comparison in mark_root() together with the last list of collect_range().
moved_in_time('TRUNCATE', 'TRUNCATE s.t1');
moved_in_time('DROP TABLE', 'DROP TABLE s.t1');
moved_in_time('DROP COLUMN', 'ALTER TABLE s.t1 DROP COLUMN b');
moved_in_time('ALTER TYPE', 'ALTER TABLE s.t1 ALTER COLUMN b TYPE bytea USING sha256(b)');
moved_in_time('DELETE and VACUUM FULL', 'DELETE FROM s.t1; COMMIT; VACUUM FULL s.t1; BEGIN');

# DELETE and VACUUM: S1 keeps the tuples. (So does the snapshot of the calling statement: taking S1 out
# changes nothing here.)
my ($freed, $reason) = stopped_gc('DELETE', 'marking', marking => sub {
	sql('INSERT INTO s.t2 SELECT * FROM s.t1', 'DELETE FROM s.t1', 'VACUUM s.t1');
});
is("$freed|$reason", '0|', 'DELETE and VACUUM: nothing keeps the round from freeing');
intact('SELECT * FROM s.t2', 3, 'DELETE and VACUUM: what was moved is there');

# Fails without: the comparison with the cutoff in sweep.c.
($freed, $reason) = stopped_gc('new values', 'marking', marking => sub {
	sql('INSERT INTO s.t2 SELECT i, value(i) FROM generate_series(1, 5) AS i');
});
is("$freed|$reason", '0|', 'new values: the round goes on');
intact('SELECT * FROM s.t2', 5, 'new values: are there');

# Rolled back.
($freed, $reason) = stopped_gc('rolled back', 'marking', marking => sub {
	sql('BEGIN; INSERT INTO s.t2 SELECT * FROM s.t1; TRUNCATE s.t1; ROLLBACK',
		'BEGIN; ALTER TABLE s.t1 DROP COLUMN b; ROLLBACK');
});
is("$freed|$reason", '0|', 'rolled back: the round goes on');
intact('SELECT * FROM s.t1', 3, 'rolled back: the values are there');

# Read by a procedure that began while the collector waited, whose source is truncated before the
# scan. Fails without: list A before the wait (settle_roots() without a comparison).
my $procedure;
($freed, $reason) = stopped_gc('procedure', 'waiting', before => [
		'CREATE TABLE s.flag (go boolean)', 'INSERT INTO s.flag VALUES (false)',
		q(CREATE PROCEDURE s.p() LANGUAGE plpgsql AS $$ DECLARE v s.t1; BEGIN
			SELECT * INTO v FROM s.t1 WHERE id = 1; COMMIT;
			LOOP EXIT WHEN (SELECT go FROM s.flag); COMMIT; PERFORM pg_sleep(0.05); COMMIT; END LOOP;
			INSERT INTO s.t2 VALUES (v.id, v.b); END $$) ],
	waiting => sub {
		$procedure = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
			'CALL s.p()' ]);
		$node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_stat_activity
			WHERE wait_event = 'PgSleep'));
		sql('TRUNCATE s.t1');
	},
	after => sub {
		gc_waits_for('procedure');
		sql('UPDATE s.flag SET go = true');
		IPC::Run::finish($procedure);
	});
is("$freed|$reason", '2|', 'procedure and TRUNCATE: it is waited for, the rest is freed');
intact('SELECT * FROM s.t2', 1, 'procedure and TRUNCATE: what it carried is there');

# An index build keeps the table from being scanned. Fails without: RowExclusiveLock in mark_root().
my $build;
($freed, $reason) = stopped_gc('CREATE INDEX', 'marking', marking => sub {
		$build = session('BEGIN', 'CREATE INDEX ON s.t1 (b)');
	},
	after => sub {
		ok(gc_waits_for('keeps relation "t1" locked'), 'CREATE INDEX is waited for');
		$build->query_safe('COMMIT');
	});
like($reason, qr/created or changed meanwhile/, 'CREATE INDEX: another list');

# ---- giving way, cancellation, one at a time ----

clean();
table('t', 10);
sql('INSERT INTO s.t SELECT i, NULL FROM generate_series(1, 20000) AS i', 'DELETE FROM s.t WHERE id < 5',
	'VACUUM s.t');
my @slowly = ('SET blobext.gc_cost_delay = 100', 'SET blobext.gc_cost_limit = 1');
my $gc = start_gc(@slowly);
$node->poll_query_until('postgres', q(SELECT phase = 'marking' AND pages_total > 80
	FROM blobext_gc_status));
like((gc())[2], qr/process \d+ collects in this database already/, 'one at a time');
sql('ALTER TABLE s.t ADD COLUMN other integer');
like((gc_result($gc))[1], qr/gave way to process \d+/, 'the collector gives way to ALTER TABLE');
is($gc->{out}, '4|', 'the collector begins again after ALTER TABLE');
sql('DELETE FROM s.t WHERE id BETWEEN 5 AND 8', 'VACUUM s.t');
$gc = start_gc(@slowly);
$node->poll_query_until('postgres', q(SELECT phase = 'marking' AND pages_total > 80
	FROM blobext_gc_status));
sql('CREATE INDEX CONCURRENTLY ON s.t (id)');
like((gc_result($gc))[1], qr/gave way to process \d+/, 'the collector gives way to CREATE INDEX CONCURRENTLY');
$gc = start_gc(@slowly);
$node->poll_query_until('postgres', q(SELECT phase = 'marking' AND pages_total > 80
	FROM blobext_gc_status));
sql('SELECT pg_cancel_backend(pid) FROM blobext_gc_status');
like((gc_result($gc))[1], qr/canceling statement/, 'the collector can be cancelled');
like(sql('SELECT phase, pid, skipped_reason FROM blobext_gc_status'),
	qr/^idle\|\|canceling statement/, 'the status says that the collector was cancelled');
is((gc(dry_run => 1))[0], '4', 'a cancelled round has freed nothing');
sql('SET maintenance_work_mem = 1024', 'SELECT 1');
frees(4, 'the round after a cancelled one frees the values');

# ---- logical slots ----
# Fails without: blob_gc_wait_for_slots().

clean();
table('t', 2);
sql(q(SELECT pg_create_logical_replication_slot('slow', 'test_decoding')));
sql('INSERT INTO s.t VALUES (3, value(3))', 'DELETE FROM s.t', 'VACUUM s.t');
frees_nothing(qr/logical replication slot "slow" has not confirmed/, 'logical slot');
$gc = start_gc();
gc_waits_for('logical replication slot');
like(sql(q(SELECT data FROM pg_logical_slot_get_changes('slow', NULL, NULL))), qr/INSERT.*\\x/,
	'the slot decodes what is deleted');
is((gc_result($gc))[0], '3', 'what the slot has decoded is freed');
sql(q(SELECT pg_drop_replication_slot('slow')));

# ---- zero_damaged_pages ----
# Fails without the look at the setting: a damaged page would be read as one without references.
is(sql('SET zero_damaged_pages = on', 'SELECT skipped_reason FROM blobext_gc()'),
	'zero_damaged_pages is on', 'nothing is freed where damaged pages pass for empty ones');

# ---- old_snapshot_threshold, crash right after ----

table('u', 5);
sql('DELETE FROM s.u WHERE id > 2', 'VACUUM s.u');
frees(3, 'right before a crash');
kill_everything($node);
$node->start;
frees(0, 'values that were freed before a crash stay free after it');
intact('SELECT * FROM s.u', 2, 'values that were not freed before a crash are intact');
check_is_clean($node, 'the check finds nothing after the crash');
SKIP:
{
	skip 'old_snapshot_threshold is no more since PostgreSQL 17', 1
	  if sql(q(SELECT count(*) FROM pg_settings WHERE name = 'old_snapshot_threshold')) == 0;
	$node->append_conf('postgresql.conf', 'old_snapshot_threshold = 1');
	$node->restart;
	frees_nothing(qr/old_snapshot_threshold/, 'old_snapshot_threshold');
}

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');
done_testing();
