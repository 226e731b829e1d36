# Temporary tables of other sessions: their owners tell rounds which extents they refer to.
#
# First the use of it: an idle session with a temporary table keeps its own values, and no others.
# Then that a session notices nothing of the look at its tables, and that it is named when it cannot
# tell.  At last values that an owner takes out of its table at the worst moment (src/gc/README.md,
# "Temporary tables of other sessions").  "Fails without" names the code whose removal, or the
# condition whose opposite, was seen to make a test fail.
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
wal_level = replica
autovacuum = off
max_connections = 30
max_prepared_transactions = 2
));
gc_use($node);

# A table with one row that a later round frees.
sub garbage
{
	sql('DROP TABLE IF EXISTS s.garbage', 'CREATE TABLE s.garbage AS SELECT value(1000)::blobstate AS b',
		'TRUNCATE s.garbage');
	return;
}

# The values of the session's table, numbered.
sub owner_has
{
	my ($session, $table, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($session->query_safe("SELECT count(*) FROM $table WHERE b::bytea = value(id)"), $count, $name);
}

# Use the space that was freed, so that a value that lay there is lost.
sub reuse
{
	sql('CHECKPOINT', 'CREATE TABLE s.reuse AS SELECT value(i + 5000)::blobstate AS b
		FROM generate_series(1, 20) AS i', 'DROP TABLE s.reuse');
	gc();
	return;
}

# ---- what a temporary table keeps ----
# Fails without: the wait for the answer in ask_owner() (the values are freed); blob_gc_told_mark();
# the indexes in list_relations() (the keys' values).

sql('CREATE TYPE pair AS (n integer, b blobstate)', 'CREATE DOMAIN checked AS blobstate CHECK (length(VALUE) > 0)');
my $owner = session('CREATE TEMPORARY TABLE mine (id integer, b blobstate)',
	'INSERT INTO mine SELECT i, value(i) FROM generate_series(1, 5) AS i');
garbage();
is(frees(1, 'a round frees what is not in the temporary table of an idle session'), '5', 'values of the temporary table of an idle session live');
reuse();
owner_has($owner, 'mine', '5', 'values of the temporary table can be read after a round');
garbage();
is(join('|', (gc(dry_run => 1))[ 0, 1 ]), '1|5', 'a dry run counts values of temporary tables as living');
is(frees(1, 'a second round asks again, and frees what the first one had left'), '5', 'values of the temporary table live after a second round');
$owner->query_safe('DELETE FROM mine WHERE id > 3');
is(join('|', (gc(dry_run => 1))[ 0, 1 ]), '0|5', 'a dry run does not prune the temporary table of another session');
is(frees(2, 'a round frees the values of rows that an idle session has deleted'), '3', 'values of rows that were not deleted live');
owner_has($owner, 'mine', '3', 'values of rows that were not deleted can be read');
$owner->query_safe('BEGIN; INSERT INTO mine SELECT 4, value(4); ROLLBACK');
is(frees(1, 'a round frees the value of a row that an idle session has rolled back'), '3', 'values of rows that were committed live');
my @keys = ('CREATE INDEX ON mine (b)', 'DELETE FROM mine WHERE id = 3', 'SELECT count(*) FROM mine');
$owner->query_safe($_) foreach @keys;
is(frees(0, 'a key of a deleted row keeps its value in a temporary table'), '3', 'the value of a key lives');
$owner->query_safe('VACUUM (INDEX_CLEANUP on) mine');
frees(1, 'a key that VACUUM has removed keeps no value');
$owner->query_safe($_) foreach q(CREATE TEMPORARY TABLE others (id integer, a blobstate[], p pair, c checked)),
	q(INSERT INTO others SELECT i, array_agg(value(i * 100 + j)::blobstate), ROW(1, value(i * 1000)::blobstate)::pair, value(i * 2000)::blobstate::checked
		FROM generate_series(1, 2) AS i, generate_series(1, 40) AS j GROUP BY i);
garbage();
is(frees(1, 'arrays, rows and domains in a temporary table do not stop a round'), '86', 'values in arrays, rows and domains, in TOAST too, live');
reuse();
is($owner->query_safe('SELECT count(*) FROM others, unnest(a) WITH ORDINALITY AS e (b, n) WHERE b::bytea = value(id * 100 + n::integer)'),
	'80', 'values of arrays can be read after a round');
$owner->query_safe('DROP TABLE others');
frees(84, 'values of a dropped temporary table are freed');

# A column that is older than its rows.
$owner->query_safe($_) foreach 'CREATE TEMPORARY TABLE older (id integer)', 'INSERT INTO older VALUES (77)',
	'CREATE TEMPORARY TABLE emptied (id integer, b blobstate)', 'INSERT INTO emptied VALUES (1, value(1))', 'TRUNCATE emptied';
is(frees(1, 'an emptied temporary table keeps nothing'), '2', 'two values live beside an emptied table');

# Two owners, and what both refer to.
my $second = session('CREATE TEMPORARY TABLE mine AS SELECT i AS id, value(i)::blobstate AS b FROM generate_series(11, 13) AS i');
garbage();
is(frees(1, 'two owners answer one after the other'), '5', 'values of both owners live');
reuse();
owner_has($owner, 'mine', '2', 'the first owner has its values');
owner_has($second, 'mine', '3', 'the second owner has its values');
$second->quit;
poll('SELECT count(*) = 1 FROM pg_class WHERE relname = \'mine\'');
frees(3, 'values of a session that has ended are freed');

# Replaced values are freed, round for round, as without the idle session.
table('t', 10);
gc();
my $allocated = sql(q(SELECT sum(bytes) FROM blobext_space WHERE state IN ('tier', 'tail')));
for my $round (1 .. 5)
{
	sql("UPDATE s.t SET b = value(id + $round * 100)");
	frees(10, "replaced values are freed beside an idle session, round $round");
}
is(sql(q(SELECT sum(bytes) FROM blobext_space WHERE state IN ('tier', 'tail'))), $allocated, 'replacements beside an idle session take no more space');
sql('DROP TABLE s.t');
frees(10, 'values of a dropped table are freed beside an idle session');

# More than one range of the store.
garbage();
my ($freed, $live, $reason) = gc(settings => [ q(blobext.gc_work_mem = '64kB') ]);
is("$freed|$live|$reason", '1|2|', 'values of temporary tables live with little memory');

# ---- the session notices nothing ----

clean();
$owner = session('CREATE TEMPORARY TABLE gone (id integer, b blobstate) ON COMMIT DELETE ROWS',
	'CREATE TEMPORARY TABLE mine (id integer, b blobstate)', 'INSERT INTO mine SELECT 1, value(1)');
my $pid = pid($owner);
# Fails without: MyXactFlags being put back.
my $next = sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
is(frees(0, 'tables that are emptied at a commit do not stop a round'), '1', 'the other table keeps its value');
is(sql('SELECT pg_snapshot_xmax(pg_current_snapshot())'), $next, 'an owner draws no transaction id for its answer');
is(sql("SELECT state, xact_start IS NULL, backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $pid"), 'idle|t|t', 'an owner is idle after its answer');
is(sql("SELECT count(*) FROM pg_locks WHERE pid = $pid"), '0', 'an owner holds no lock after its answer');
# Fails without: the look at the pages of an index in mark_opened().
$owner = session('CREATE TEMPORARY TABLE empty (b blobstate)', 'CREATE INDEX ON empty (b)');
frees(0, 'an empty table with an index does not stop a round');
is($owner->query_safe('SET temp_buffers = 500; SHOW temp_buffers'), '4000kB', 'a round is no first use of temporary buffers');

# Settings of the session with which reading could fail.
clean();
$owner = session('CREATE TEMPORARY TABLE mine (id integer, b blobstate)', 'INSERT INTO mine SELECT 1, value(1)', 'CREATE ROLE nobody',
	'SET default_transaction_isolation = serializable', 'SET default_transaction_read_only = on', 'SET search_path = nowhere',
	'SET ROLE nobody');
garbage();
is(frees(1, 'a session whose role may nothing answers as others do'), '1', 'the value of a session whose role may nothing lives');
is($owner->query_safe('RESET ROLE; RESET search_path; SHOW transaction_read_only; SELECT count(*) FROM mine WHERE b::bytea = value(id)'),
	"on\n1", 'the session goes on with its settings');

# ---- owners that do not tell ----
# A round waits at its first step for another transaction, when the owner begins something; so the
# owner is not waited for by step 5.

# Returns the handle of a round that has chosen L before this.
sub round_after_moment
{
	my ($between) = @_;
	my $first = session('BEGIN', 'SELECT 1');
	my $round = start_gc(@_ > 1 ? @_[ 1 .. $#_ ] : ());
	gc_waits_for('process ' . pid($first) . ' has been');
	my $later = session('BEGIN', 'SELECT 1');	# the second wait: for constants
	$first->query_safe('COMMIT');
	gc_waits_for('process ' . pid($later) . ' has been');
	$between->();
	$later->query_safe('COMMIT');
	return $round;
}

# Wait until the round waits for this owner, or has ended.
sub waits_for_owner
{
	my ($owner_pid) = @_;
	return poll("SELECT pid IS NULL OR waiting_for ~ '^process $owner_pid is too busy to tell what its temporary table pg_temp_\\d+\\.mine holds'
		FROM blobext_gc_status");
}

# In a transaction that began after L: the round waits for the answer, and takes it at its end.
clean();
table('t2', 0);
$owner = session('CREATE TEMPORARY TABLE mine (id integer, b blobstate)', 'INSERT INTO mine SELECT 1, value(1)');
$pid = pid($owner);
my $gc = round_after_moment(sub { $owner->query_safe('BEGIN; SELECT count(*) FROM mine') });
waits_for_owner($pid);
$owner->query_safe('INSERT INTO s.t2 SELECT * FROM mine; TRUNCATE mine; COMMIT');
is(join('|', gc_result($gc)), '0|', 'a round goes on when the transaction of an owner has ended');
reuse();
intact('SELECT * FROM s.t2', 1, 'what an owner took from its table is intact');

# The same in a procedure, which takes the value over its commit and drops the table: it is in no later
# list.  Fails without: blob_gc_blank_is_idle() (an answer before any commit); where owners of the next list are asked,
# and not those of A: the value is freed.
clean();
table('t2', 0);
sql('CREATE TABLE s.flag AS SELECT false AS go');
$owner = session('CREATE TEMPORARY TABLE mine (id integer, b blobstate)', 'INSERT INTO mine SELECT 1, value(1)');
$pid = pid($owner);
$gc = round_after_moment(sub {
	$owner->query_until(qr/start/, q(\echo start
DO $$ DECLARE v blobstate; BEGIN SELECT b INTO v FROM mine; DROP TABLE mine; COMMIT;
	LOOP EXIT WHEN (SELECT go FROM s.flag); COMMIT; PERFORM pg_sleep(0.02); COMMIT; END LOOP;
	INSERT INTO s.t2 VALUES (1, v); END $$;
\echo done
));
	poll(q(SELECT count(*) = 0 FROM pg_class WHERE relname = 'mine'));
});
waits_for_owner($pid);
sql('UPDATE s.flag SET go = true');
$owner->query_until(qr/done/, '');
is(join('|', gc_result($gc)), '0|', 'a round waits for the procedure of an owner that has dropped its table');
reuse();
intact('SELECT * FROM s.t2', 1, 'what a procedure took over its commit is intact');

# A cursor WITH HOLD that was opened after L.  Fails without: has_holder() in blob_gc_blank_is_idle().
clean();
table('t2', 0);
$owner = session('CREATE TEMPORARY TABLE mine (id integer, b blobstate)', 'INSERT INTO mine SELECT 1, value(1)',
	q(CREATE FUNCTION s.take() RETURNS blobstate LANGUAGE plpgsql AS
		$$ DECLARE c refcursor := 'c'; v blobstate; BEGIN FETCH NEXT FROM c INTO v; RETURN v; END $$));
$pid = pid($owner);
$gc = round_after_moment(sub {
	$owner->query_safe('BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT b FROM mine; COMMIT');
	$owner->query_safe('TRUNCATE mine');
});
waits_for_owner($pid);
$owner->query_safe('INSERT INTO s.t2 SELECT 1, s.take()');
$owner->query_safe('CLOSE c');
is(join('|', gc_result($gc)), '0|', 'a round waits for the held cursor of an owner');
reuse();
intact('SELECT * FROM s.t2', 1, 'what an owner took from a held cursor is intact');

# An owner that stays busy is named, and nothing is freed.
clean();
$owner = session('CREATE TEMPORARY TABLE mine (id integer, b blobstate)', 'INSERT INTO mine SELECT 1, value(1)');
$pid = pid($owner);
frees(0, 'the owner answers while it is idle');
$gc = round_after_moment(sub { $owner->query_safe('BEGIN; SELECT count(*) FROM mine') }, q(SET blobext.gc_wait_timeout = '3s'));
($freed, $reason) = gc_result($gc);
is($freed, '0', 'nothing is freed while an owner is busy');
like($reason, qr/^process $pid is too busy to tell what its temporary table pg_temp_\d+\.mine holds \(its transaction began at /,
	'the reason names an owner that is busy');
# It has the question still, and answers it later, when no round asks any more.
$owner->query_safe('COMMIT');
frees(0, 'an owner that was asked too late answers the next round');
owner_has($owner, 'mine', '1', 'an owner that was asked too late has its value');

# One whose procedures commit and go on, one after the other: it looks for messages behind each.
# Fails without: the look behind a later commit of the same command.
sql('CREATE TABLE s.enough AS SELECT false AS go',
	q(CREATE PROCEDURE s.works() LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT go FROM s.enough) THEN RETURN; END IF;
		COMMIT; PERFORM pg_sleep(0.5), go FROM s.enough; COMMIT; PERFORM 1; PERFORM go FROM s.enough; END $$));
$owner->query_until(qr/start/, "\\echo start\n" . "CALL s.works();\n" x 300 . "\\echo done\n");
($freed, $live, $reason) = gc();
is($reason, '', 'an owner answers between commands that commit and go on');
sql('UPDATE s.enough SET go = true');
$owner->query_until(qr/done/, '');

# One that ends while it is asked.
$gc = round_after_moment(sub { $owner->query_safe('BEGIN; SELECT count(*) FROM mine') });
waits_for_owner($pid);
sql("SELECT pg_terminate_backend($pid)");
is(join('|', gc_result($gc)), '1|', 'a round goes on when an owner has ended, and frees what it had');
forget_sessions();

# One that cannot read its table: another session has locked it after L.  The session stays.
# Fails without: blob_attempt() in try_to_tell() (the connection is lost).
clean();
$owner = session('CREATE TEMPORARY TABLE mine (id integer, b blobstate)', 'INSERT INTO mine SELECT 1, value(1)');
$pid = pid($owner);
my $mine = sql(q(SELECT oid::regclass FROM pg_class WHERE relname = 'mine'));
my $lock;
my $offset = -s $node->logfile;
$gc = round_after_moment(sub { $lock = session('BEGIN', "LOCK TABLE $mine IN ACCESS EXCLUSIVE MODE") });
($freed, $reason) = gc_result($gc);
is($freed, '0', 'nothing is freed if an owner cannot read its table');
like($reason, qr/^process $pid could not read its temporary tables, for a reason that is in the log of the server \(its session began at /,
	'the reason names an owner that cannot read its table');
like(substr(slurp_file($node->logfile), $offset), qr/LOG:  blobext: temporary tables could not be read for the collector: temporary relation \d+ is locked by another process/,
	'the log says why an owner cannot read its table');
$lock->query_safe('COMMIT');
owner_has($owner, 'mine', '1', 'an owner that could not read its table keeps its connection');
# Fails without: the count of attempt_to_tell() that is put back (a server with assertions ends).
$owner->query_safe(q(SET statement_timeout = '200ms';
	DO $$ BEGIN PERFORM pg_sleep(120); RAISE 'it was not cancelled'; EXCEPTION WHEN query_canceled THEN NULL; END $$;
	RESET statement_timeout));
pass('statements of an owner that could not read its table can be cancelled');
frees(0, 'the owner answers when its table is not locked any more');

# A catalog that is locked for long: the owner gives up, and its next command knows nothing of it.
# Fails without: cancels that count during the answer (the owner waits on, and the round with it).
my $catalog = session();
$offset = -s $node->logfile;
$gc = round_after_moment(sub { $catalog->query_safe($_) foreach 'BEGIN', 'LOCK TABLE pg_catalog.pg_class IN ACCESS EXCLUSIVE MODE' });
($freed, $reason) = gc_result($gc);
like($reason, qr/^process $pid could not read its temporary tables/, 'the reason names an owner that waits for a catalog');
$catalog->query_safe('COMMIT');
owner_has($owner, 'mine', '1', 'an owner that has waited for a catalog has no error');
like(substr(slurp_file($node->logfile), $offset), qr/could not be read for the collector: canceling statement due to lock timeout/,
	'the log says that an owner has waited for a catalog');
frees(0, 'the owner answers when the catalog is not locked any more');

# A round that is cancelled while an owner answers: the owner stops at its next page, and marks no more for a round that
# has ended.  It waits for a catalog when the round ends, for a second at most: if it was late, once more.
# Fails without: take_back_question() (the owner reads all pages).
$owner->query_safe($_) foreach 'CREATE TEMPORARY TABLE many (b blobstate, filler text)', 'ALTER TABLE many ALTER filler SET STORAGE PLAIN',
	q(INSERT INTO many SELECT NULL, repeat('x', 7000) FROM generate_series(1, 400));
sub pages_read
{
	return $owner->query_safe(q(SELECT pg_stat_force_next_flush();
		SELECT heap_blks_read + heap_blks_hit FROM pg_statio_all_tables WHERE relname = 'many')) =~ s/\n//r;
}
my ($read, $error);
for (my $is_late = 1; $is_late; $is_late = substr(slurp_file($node->logfile), $offset) =~ /could not be read for the collector/)
{
	pages_read();
	$read = pages_read();
	$offset = -s $node->logfile;
	$gc = round_after_moment(sub { $catalog->query_safe($_) foreach 'BEGIN', 'LOCK TABLE pg_catalog.pg_class IN ACCESS EXCLUSIVE MODE' });
	1 until $catalog->query_safe("SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") eq '1'
		|| substr(slurp_file($node->logfile), $offset) =~ /could not be read for the collector/;
	$catalog->query_safe(q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%FROM blobext_gc()'));
	(undef, $error) = gc_result($gc);
	$catalog->query_safe('COMMIT');
	poll("SELECT count(*) = 0 FROM pg_locks WHERE pid = $pid");
}
like($error, qr/canceling statement due to user request/, 'a round that waits for an owner can be cancelled');
cmp_ok(pages_read() - $read, '<', 10, 'an owner stops marking when the round has ended by an error');
$owner->query_safe('DROP TABLE many');
frees(0, 'the owner answers the next round when one was cancelled');

# Pages that would be read as empty.  Fails without: the condition in tell().
$owner->query_safe('SET zero_damaged_pages = on');
($freed, $live, $reason) = gc();
like($reason, qr/^process $pid could not read its temporary tables/, 'the reason names an owner that ignores damage');
$owner->query_safe('RESET zero_damaged_pages');

# A table of more pages than are read.  Fails without: the limit in blob_gc_page_done().
$owner->query_safe(q(CREATE TEMPORARY TABLE large (b blobstate, filler text)));
$owner->query_safe(q(ALTER TABLE large ALTER filler SET STORAGE PLAIN));
$owner->query_safe(q(INSERT INTO large SELECT NULL, repeat('x', 7000) FROM generate_series(1, 32770)));
($freed, $live, $reason) = gc();
is($freed, '0', 'nothing is freed beside large temporary tables');
like($reason, qr/^process $pid has more than 256 MB of temporary tables that can hold values \(its session began at /, 'the reason names large temporary tables');
$owner->query_safe('DROP TABLE large');
garbage();
is(frees(1, 'a round is complete when the large table is gone'), '1', 'the value in the small table lives');

check_is_clean($node, 'no row refers to what was freed');
forget_sessions();
done_testing();
