# Values that are left only in index keys of rows that are gone: they are counted, the view names
# the index and the command, and their space comes back by itself.
#
# VACUUM leaves dead keys in indexes alone while fewer than 2 % of the table's pages have dead rows:
# the normal case for a few large values in a large table.  Seen to fail with the code before this
# test was there: the view had no such columns, and live_blobs stayed at 60 without end in "by
# itself".  "Fails without" names the code whose removal made a test fail.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

# No worker of autovacuum within the time of this test, although it is on.
my $node = blob_cluster('main', conf => q(
autovacuum = on
autovacuum_naptime = 20d
blobext.autogc_naptime = 1s
blobext.autogc_interval = 1s
blobext.autogc_threshold = 0
blobext.autogc_cost_delay = 0
blobext.log_autogc_min_duration = 0
));
my $each = 8 * 4096;			# pages of value()

gc_use($node);

# ---- tools ----

# A table of some 900 pages, of which the first ones have values 1 to count.
sub large_table
{
	my ($name, $count, $index) = @_;
	sql("CREATE TABLE $name (id integer, b blobstate, filler text)",
		"INSERT INTO $name SELECT i, value(i) FROM generate_series(1, $count) AS i",
		"INSERT INTO $name SELECT NULL, NULL, repeat('x', 200) FROM generate_series(1, 30000)",
		$index // "CREATE INDEX ON $name (b)", "VACUUM ANALYZE $name");
	return;
}

# (bytes, index, command) of dead keys, of high keys.
sub dead_keys
{
	return split /\|/, sql('SELECT dead_key_bytes, dead_key_index, dead_key_command FROM blobext_gc_status'), 3;
}

sub high_keys
{
	return split /\|/, sql('SELECT high_key_bytes, high_key_index, high_key_command FROM blobext_gc_status'), 3;
}

# Bytes that a round frees; it must be complete.
sub freed_bytes
{
	my ($dry_run) = @_;
	my $row = sql('SET client_min_messages = warning', 'SELECT freed_bytes, skipped_reason FROM blobext_gc('
		  . ($dry_run ? 'true' : 'false') . ')');
	my ($bytes, $reason) = split /\|/, $row, 2;
	die "the round was skipped: $reason" if $reason ne '';
	return $bytes;
}

sub becomes
{
	my ($condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT coalesce(($condition), false)"), $name)
	  || diag(sql('SELECT * FROM blobext_gc_status'));
}

sub set
{
	my (%settings) = @_;
	sql(map { "ALTER SYSTEM SET $_ = '$settings{$_}'" } keys %settings);
	return sql('SELECT pg_reload_conf()');
}

sub vacuums { return sql("SELECT vacuum_count FROM pg_stat_user_tables WHERE relid = '$_[0]'::regclass") }

sub rounds { return sql('SELECT completed_rounds FROM blobext_gc_status') }

my $worker = q(FROM pg_stat_activity WHERE backend_type = 'blobext collector');

# clean() between automatic rounds.
sub clean_meanwhile
{
	set('blobext.autogc' => 'off');
	$node->poll_query_until('postgres', "SELECT count(*) = 0 $worker");
	clean();
	return set('blobext.autogc' => 'on');
}

# ---- counted, named, freed by the command ----
# Fails without: heaps before indexes in mark_roots() (live values count).

large_table('s.t', 60);
is(freed_bytes(), 0, 'a round frees nothing of a fresh table');
is(join('|', dead_keys(), high_keys()), '0|||0||', 'no key is dead');
sql('DELETE FROM s.t WHERE id <= 30', 'VACUUM s.t');
is(freed_bytes(), 0, 'plain VACUUM leaves the keys');
my ($dead, $index, $command) = dead_keys();
is($dead, 30 * $each, 'the bytes are counted');
is("$index|$command", 's.t_b_idx|VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) s.t', 'the index that holds dead keys is named, with the command');
is((high_keys())[0], 0, 'what dead keys hold is not counted for high keys');
is($node->safe_psql('template1', 'CREATE EXTENSION blobext; SELECT dead_key_bytes, dead_key_index, dead_key_command
	FROM blobext_gc_databases WHERE datname = $$postgres$$'), join('|', $dead, $index, $command),
	'dead keys are seen from another database');
sql('VACUUM s.t');
is(freed_bytes(), 0, 'a second plain VACUUM leaves the keys, too');
sql($command);
my $freed = freed_bytes();
my ($high) = high_keys();
is($freed + $high, $dead, 'the command frees them, but for high keys');
is((dead_keys())[0], 0, 'no key is dead');
is(sql('SELECT live_bytes - high_key_bytes FROM blobext_gc_status'), 30 * $each, 'the values of the other rows live after the command');

# A round that is skipped, or that runs, does not know better.
sql('CREATE TABLE s.copy AS SELECT b FROM s.t WHERE id <= 40', 'DELETE FROM s.t WHERE id <= 50', 'VACUUM s.t');
freed_bytes();
is((dead_keys())[0], 10 * $each, 'a copy in another table: no dead key holds it alone');
my $holder = session('BEGIN', 'SELECT count(*) FROM s.t');
gc(timeout => '100ms');
is((dead_keys())[0], 10 * $each, 'a round that is skipped leaves the figures');
forget_sessions();

# Names that need quotes; of two indexes, one is named, and values count once.
clean();
large_table('s."A ""t"" of mine"', 30, 'CREATE INDEX "i 1" ON s."A ""t"" of mine" (b)');
sql('CREATE INDEX "i 2" ON s."A ""t"" of mine" (b blobstate_digest_ops)', 'DELETE FROM s."A ""t"" of mine" WHERE id > 10');
freed_bytes();
($dead, $index, $command) = dead_keys();
is($dead, 20 * $each, 'two indexes: a value counts once');
like($index, qr/^s\."i [12]"$/, 'the name of one of the two indexes is shown with quotes');
sql($command, "REINDEX TABLE s.\"A \"\"t\"\" of mine\"");
is(freed_bytes(), $dead, 'the command names the table');

# Several ranges.  Fails without: adding up, where the counters are set to 0 for each range.
clean();
sql('CREATE TABLE s.ballast (b blobstate)');
large_table('s.t', 10);
sql(q(INSERT INTO s.ballast SELECT convert_to(repeat(md5(i::text), 32768), 'UTF8') FROM generate_series(1, 60) AS i),
	'INSERT INTO s.t SELECT i, value(i) FROM generate_series(11, 20) AS i', 'VACUUM s.t', 'DELETE FROM s.t WHERE id > 0');
freed_bytes();
is((dead_keys())[0], 20 * $each, 'a round with one range counts all dead keys');
is((gc(settings => [ 'blobext.gc_work_mem = 1' ]))[0], 0, 'a round with several ranges frees nothing that keys hold');
is((dead_keys())[0], 20 * $each, 'a round with several ranges counts the same dead keys');
sql('VACUUM (INDEX_CLEANUP ON) s.t');
is((gc(settings => [ 'blobext.gc_work_mem = 1' ]))[0] * $each + (high_keys())[0], 20 * $each, 'a round with several ranges frees the values after VACUUM');

# Rows that are inserted behind the scan of their table have keys that the round sees first.  Fails
# without: the comparison with the cutoff in mark.c.
my ($none, $reason) = stopped_gc('new values', 'marking', before => ['CREATE INDEX ON s.t2 (b)'], marking => sub {
	sql('INSERT INTO s.t2 SELECT i, value(i) FROM generate_series(11, 15) AS i', 'INSERT INTO s.t2 SELECT * FROM s.t1');
});
is("$none|$reason", '0|', 'rows come while it marks');
is(join('|', (dead_keys())[0], (high_keys())[0]), '0|0', 'keys of rows that come while it marks are not dead');
intact('SELECT * FROM s.t2', 8, 'rows that came while it marked');

# ---- high keys ----
# Fails without: high keys after the items of the next page in btree.c (all counts as theirs).

foreach my $kind ('CREATE INDEX i ON s.t (b)', 'ALTER TABLE s.t ADD CONSTRAINT i EXCLUDE USING btree (b WITH =)')
{
	my $concurrently = $kind =~ /EXCLUDE/ ? '' : 'CONCURRENTLY ';
	clean();
	sql('CREATE TABLE s.t (id integer, b blobstate)', $kind,
		'INSERT INTO s.t SELECT i, value(i) FROM generate_series(1, 400) AS i',
		'DELETE FROM s.t WHERE id % 25 <> 0');
	freed_bytes();
	is(join('|', (dead_keys())[0], (high_keys())[0]), 384 * $each . '|0', "$kind: before VACUUM keys of deleted rows are dead, none is high");
	sql('VACUUM (INDEX_CLEANUP ON) s.t');
	freed_bytes();
	($high, $index, $command) = high_keys();
	cmp_ok($high, '>', 0, "$kind: high keys outlive their rows");
	is((dead_keys())[0], 0, "$kind: which VACUUM does not free");
	is("$index|$command", "s.i|REINDEX INDEX ${concurrently}s.i", "$kind: the view names the index and the command");
	sql($command);
	is(freed_bytes(), $high, "$kind: REINDEX frees them");
	is(join('|', high_keys()), '0||', "$kind: none is left");
	intact('SELECT id, b FROM s.t', 16, "$kind: the values of the other rows are intact");
}

# ---- by itself ----

sub comes_back
{
	my ($lives, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return becomes("SELECT dead_key_bytes = 0 AND live_bytes - high_key_bytes = $lives * $each FROM blobext_gc_status", $name);
}

clean();
large_table('s.t', 60);
my $before = vacuums('s.t');
my $offset = -s $node->logfile;
set('blobext.autogc' => 'on');
sql('DELETE FROM s.t WHERE id <= 30');
comes_back(30, 'dead keys are vacuumed and their values freed without a command');
is(vacuums('s.t') - $before, 1, 'one VACUUM is enough for dead keys');
like(slurp_file($node->logfile, $offset),
	qr/automatic vacuum of "s\.t" in database "postgres" for 983040 bytes that only keys of its indexes hold/, 'the log has a line about the VACUUM for dead keys');
intact('SELECT id, b FROM s.t WHERE id > 0', 30, 'the values of the other rows are intact after the VACUUM');
check_is_clean($node, 'the check finds nothing');

# No VACUUM where it is not wanted.  Fails without: the conditions in vacuum_is_on() and
# may_vacuum().
sub stays
{
	my ($dead_values, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	becomes("SELECT dead_key_bytes >= $dead_values * $each FROM blobext_gc_status", "$name: dead keys are counted");
	my $vacuums = vacuums('s.t');
	my $rounds = rounds();
	sql('SET client_min_messages = error', 'SELECT * FROM blobext_gc()') while rounds() == $rounds;
	my $shown = join '|', dead_keys();
	sleep 3;
	is(vacuums('s.t'), $vacuums, "$name: the collector begins no VACUUM");
	is(join('|', dead_keys()), $shown, "$name: the view says what to do");
	like($shown, qr/\|VACUUM .* s\.t$/, "$name: by which command");
	return;
}

set('blobext.autogc_vacuum' => 'off');
sql('DELETE FROM s.t WHERE id <= 35', 'VACUUM s.t');
stays(5, 'turned off');
set('blobext.autogc_vacuum' => 'on', 'autovacuum' => 'off');
stays(5, 'without autovacuum');
set('autovacuum' => 'on');
comes_back(25, 'the space comes back when autovacuum is turned on again');
sql('ALTER TABLE s.t SET (vacuum_index_cleanup = off)', 'DELETE FROM s.t WHERE id <= 40');
stays(5, 'vacuum_index_cleanup = off');
sql('ALTER TABLE s.t SET (autovacuum_enabled = off)', 'ALTER TABLE s.t RESET (vacuum_index_cleanup)');
stays(5, 'autovacuum_enabled = off');
sql('ALTER TABLE s.t RESET (autovacuum_enabled)', 'UPDATE s.t SET filler = $$y$$ WHERE id = 60');
comes_back(20, 'the space comes back when neither option forbids VACUUM');

# Small amounts wait for the interval, large ones do not.  Fails without: either rule of is_vacuum_due().
set('blobext.autogc_interval' => '1h', 'blobext.autogc_threshold' => '400kB', 'blobext.autogc_scale_factor' => '0');
sleep 2.5;
$before = vacuums('s.t');
sql('DELETE FROM s.t WHERE id <= 45');
sql('SELECT * FROM blobext_gc()');
becomes("SELECT dead_key_bytes = 5 * $each FROM blobext_gc_status", 'a small amount of dead keys is counted');
sleep 3;
is(vacuums('s.t'), $before, 'no VACUUM runs for a small amount before the interval');
sql('DELETE FROM s.t WHERE id <= 58');
sql('VACUUM s.t');				# in a session of its own: then the next one counts no rows as removed
sql('SELECT * FROM blobext_gc()');
comes_back(2, 'a large one does not');

# Store until a condition holds, while the launcher sleeps; a look that is under way may be the first
# to see it.
sub stores_until
{
	my ($condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (1 .. 180)
	{
		return pass($name) if sql("SELECT coalesce(($condition), false)") eq 't';
		sql('INSERT INTO s.stored SELECT value(i) FROM generate_series(1, 300) AS i');
		sleep 1;
	}
	return fail($name);
}

# The round after VACUUM does not wait for the naptime.  Seen to fail without is_urgent in
# blob_autogc_schedule_worker_ended().
set('blobext.autogc_naptime' => '1h', 'blobext.autogc_vacuum' => 'off');
becomes("SELECT count(*) = 0 $worker", 'a long naptime: no worker is there');
sql('CREATE TABLE s.stored (b blobstate)', 'INSERT INTO s.t SELECT i, value(i) FROM generate_series(201, 230) AS i',
	'DELETE FROM s.t WHERE id > 200');
set('blobext.autogc_vacuum' => 'on');
$before = vacuums('s.t');
stores_until("SELECT vacuum_count > $before FROM pg_stat_user_tables WHERE relid = 's.t'::regclass", 'a look that cannot wait vacuums');
comes_back(2 + sql('SELECT count(*) FROM s.stored'), 'a round follows VACUUM at once');
sql('DROP TABLE s.stored');
set('blobext.autogc_naptime' => '1s');
comes_back(2, 'after a naptime the dropped table is free, too');
set('blobext.autogc_interval' => '1s', 'blobext.autogc_threshold' => '0', 'blobext.autogc_scale_factor' => '0.1');

# ---- a lock is not waited for ----
# A prepared transaction, because others keep the round from freeing.  Fails without: the look for the
# lock, and SKIP_LOCKED (the worker waits 5 s, and fails).

set('blobext.autogc_vacuum' => 'off');
sql('INSERT INTO s.t SELECT i, value(i) FROM generate_series(61, 90) AS i', 'DELETE FROM s.t WHERE id <= 80');
becomes("SELECT dead_key_bytes >= 22 * $each FROM blobext_gc_status", 'dead keys of a table that is to be locked are counted');
sql('BEGIN; LOCK TABLE s.t IN SHARE UPDATE EXCLUSIVE MODE; PREPARE TRANSACTION $$lock$$');
$offset = -s $node->logfile;
$before = vacuums('s.t');
set('blobext.autogc_vacuum' => 'on');
sleep 3;
becomes("SELECT count(*) = 0 $worker", 'locked: the worker does not wait');
unlike(slurp_file($node->logfile, $offset), qr/lock timeout|skipping vacuum/, 'locked: nor does it fail');
is(vacuums('s.t'), $before, 'a locked table gets no VACUUM');
sql('COMMIT PREPARED $$lock$$');
comes_back(10, 'the space comes back when the table is not locked any more');

# ---- it gives way ----
# Fails without: PROC_IS_AUTOVACUUM.

sub slow_vacuum
{
	my ($name) = @_;
	set('autovacuum_vacuum_cost_delay' => '100', 'autovacuum_vacuum_cost_limit' => '1');
	sql('UPDATE s.t SET filler = $$z$$ WHERE id IS NULL', 'INSERT INTO s.t SELECT i, value(i) FROM generate_series(101, 130) AS i',
		'DELETE FROM s.t WHERE id > 100');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return becomes("SELECT count(*) > 0 $worker AND query = 'blobext: VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) s.t'
		AND pid IN (SELECT pid FROM pg_stat_progress_vacuum WHERE relid = 's.t'::regclass)", "$name: a slow VACUUM");
}

sub normal_speed { return set('autovacuum_vacuum_cost_delay' => '0', 'autovacuum_vacuum_cost_limit' => '-1') }

slow_vacuum('ALTER TABLE');
$offset = -s $node->logfile;
sql(q(SET lock_timeout = '60s'), 'ALTER TABLE s.t ADD COLUMN other integer');
like(slurp_file($node->logfile, $offset), qr/canceling statement due to user request.*automatic vacuum of "s\.t"/s,
	'ALTER TABLE gets the table');
normal_speed();
comes_back(10, 'the VACUUM that gave way to ALTER TABLE is made up for');
set('autovacuum_vacuum_cost_delay' => '100', 'autovacuum_vacuum_cost_limit' => '1');
$node->safe_psql('template1', 'CREATE DATABASE d TEMPLATE template0');
$node->safe_psql('d', q(CREATE EXTENSION blobext; CREATE TABLE t (id integer, b blobstate, filler text); CREATE INDEX ON t (b);
	INSERT INTO t SELECT i, convert_to(repeat(md5(i::text), 1000), 'UTF8') FROM generate_series(1, 30) AS i;
	INSERT INTO t SELECT i, NULL, repeat('x', 200) FROM generate_series(31, 30000) AS i; DELETE FROM t WHERE id < 20));
becomes(q(SELECT count(*) > 0 FROM pg_stat_progress_vacuum WHERE datname = 'd'), 'a slow VACUUM in another database');
sql('DROP DATABASE d');
normal_speed();
comes_back(10, 'DROP DATABASE ended it, and nothing else');

# ---- a VACUUM that frees nothing is not repeated without end ----
# A key whose value the expression of the index has made: only a live key holds it.  Fails without:
# fruitless in is_vacuum_due() (nine and more).

clean_meanwhile();
sql('CREATE TABLE s.source (b blobstate)', 'INSERT INTO s.source VALUES (value(1))',
	'CREATE FUNCTION s.of_source(integer) RETURNS blobstate LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN RETURN (SELECT b FROM s.source); END $$',
	'CREATE TABLE s.f (id integer, b blobstate)', 'CREATE INDEX i ON s.f (s.of_source(id))',
	'INSERT INTO s.f VALUES (1)', 'TRUNCATE s.source');
becomes('SELECT dead_key_bytes > 0 FROM blobext_gc_status', 'a key that no row holds');
becomes(q(SELECT vacuum_count >= 1 FROM pg_stat_user_tables WHERE relid = 's.f'::regclass), 'a key that no row holds gets a first VACUUM');
sleep 12;
cmp_ok(vacuums('s.f'), '<=', 4, 'VACUUM for a key that no row holds is tried less and less often');
cmp_ok(vacuums('s.f'), '>=', 2, 'VACUUM is tried again for a key that no row holds');

# ---- a VACUUM that never ends ----
# VACUUM summarizes a BRIN index, which calls the function of its expression.  Fails without:
# is_collecting() in has_worker() (rounds stop), blob_gc_schedule_vacuum_enter() (one more worker
# hangs).

clean_meanwhile();
sql(q(CREATE FUNCTION s.never(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
		IF pg_catalog.current_setting('application_name') = 'blobext collector' THEN
			PERFORM pg_catalog.pg_sleep(100000);
		END IF;
		RETURN $1; END $$),
	'CREATE TABLE s.t (id integer, b blobstate)', 'CREATE INDEX ON s.t (b)',
	'CREATE INDEX ON s.t USING brin (s.never(id)) WITH (pages_per_range = 1)',
	'INSERT INTO s.t SELECT i, CASE WHEN i <= 10 THEN value(i) END FROM generate_series(1, 3000) AS i',
	'CREATE TABLE s.other (id integer, b blobstate)', 'INSERT INTO s.other SELECT i, value(i + 10) FROM generate_series(1, 10) AS i');
becomes("SELECT live_blobs = 20 FROM blobext_gc_status", 'never: all values of both tables live');
my $hangs = "SELECT count(*) $worker AND wait_event = 'PgSleep' AND query LIKE '%VACUUM%'";

# Seen to fail with has_worker left true in blob_autogc_schedule_vacuum_enter().
set('blobext.autogc_naptime' => '1h');
becomes("SELECT count(*) = 0 $worker", 'never: no worker is left with a long naptime');
sql('DELETE FROM s.t WHERE id <= 10', 'CREATE TABLE s.stored (b blobstate)');
stores_until("($hangs) = 1", 'never: VACUUM hangs in a function of the index');
my $rounds = rounds();
stores_until("SELECT completed_rounds > $rounds FROM blobext_gc_status", 'never: rounds that cannot wait go on beside it');
sql('DROP TABLE s.stored', 'DELETE FROM s.other WHERE id <= 5');
set('blobext.autogc_naptime' => '1s');
becomes("SELECT live_blobs <= 15 FROM blobext_gc_status", 'never: rounds go on');
sql('CREATE TABLE s.more (id integer, b blobstate)', 'CREATE INDEX ON s.more (b)',
	'CREATE INDEX ON s.more USING brin (s.never(id)) WITH (pages_per_range = 1)',
	'INSERT INTO s.more SELECT i, CASE WHEN i <= 10 THEN value(i + 20) END FROM generate_series(1, 3000) AS i',
	'DELETE FROM s.more WHERE id <= 10');
becomes("SELECT dead_key_bytes > 0 FROM blobext_gc_status", 'never: another table has dead keys');
sleep 3;
is(sql($hangs), 1, 'never: one VACUUM hangs, not more');
sql(q(SET lock_timeout = '60s'), 'DROP TABLE s.t');
becomes("($hangs AND query LIKE '%s.more') = 1", 'never: DROP TABLE ends it, and the other one is next');
sql(q(SET lock_timeout = '60s'), 'DROP TABLE s.more');
becomes("SELECT live_blobs = 5 FROM blobext_gc_status", 'never: all of it is free');

# ---- the role that VACUUM runs as ----
# An operator class of the owner's, whose function runs when VACUUM deletes pages of the index.

clean_meanwhile();
sql('CREATE ROLE careful', 'GRANT ALL ON SCHEMA s TO careful', 'CREATE TABLE s.seen (who text)',
	q(CREATE FUNCTION s.compare(integer, integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
		IF pg_catalog.current_setting('application_name') = 'blobext collector' THEN
			RAISE LOG 'compares as %, path "%"', current_user, pg_catalog.current_setting('search_path');
		END IF;
		RETURN CASE WHEN $1 < $2 THEN -1 WHEN $1 > $2 THEN 1 ELSE 0 END; END $$),
	'CREATE OPERATOR CLASS s.careful FOR TYPE integer USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,
		OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 s.compare(integer, integer)',
	'CREATE TABLE s.t (id integer, b blobstate)', 'ALTER TABLE s.t OWNER TO careful',
	'CREATE INDEX ON s.t (b)', 'CREATE INDEX ON s.t (id s.careful)',
	'INSERT INTO s.t SELECT i, CASE WHEN i <= 10 THEN value(i) END FROM generate_series(1, 3000) AS i');
becomes("SELECT live_blobs = 10 FROM blobext_gc_status", 'a table of another owner: all lives');
$offset = -s $node->logfile;
sql('DELETE FROM s.t WHERE id <= 1500');
comes_back(0, 'a table of another owner: the space comes back');
my $log = slurp_file($node->logfile, $offset);
like($log, qr/compares as careful, path ""|compares as careful, path "pg_catalog, pg_temp"/, 'functions of the table run as its owner');
unlike($log, qr/compares as (?!careful)/, 'functions of the table run as no role but its owner');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:/, 'no PANIC in the log');
done_testing();
