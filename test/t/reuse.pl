# Freed pages that are used again without a checkpoint, where all content is in the WAL: each step
# of the order FREE inserted, FREE flushed, deferred writes dropped and running ones waited for,
# pages given out.  And only there: where content is not logged, the pages wait for a checkpoint.
#
# Extents are freed here by a function of test/unit, without the collector, at moments that the test
# chooses; at the end by the collector.  For each protection: which line was taken out to see its
# test fail.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

my $library = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";
my $node;

# Rare checkpoints; nothing but the test frees, prunes, flushes or writes.
my $calm = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 10GB\n" .
  "bgwriter_lru_maxpages = 0\nwal_buffers = 16MB\nwal_writer_delay = 10s\n";
my $logged = "wal_level = replica\nmax_wal_senders = 0\n";

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub start_cluster
{
	my ($name, $conf, %options) = @_;
	$node = blob_cluster($name, conf => $calm . $conf, %options);
	sql(qq(
CREATE FUNCTION allocate(pages bigint) RETURNS bigint
	AS '$library', 'unit_store_allocate' LANGUAGE C STRICT;
CREATE FUNCTION free(pages bigint[], generations bigint[], horizon xid) RETURNS pg_lsn
	AS '$library', 'unit_store_free' LANGUAGE C STRICT;
CREATE FUNCTION longest() RETURNS bigint AS '$library', 'unit_store_longest' LANGUAGE C;
CREATE EXTENSION pg_walinspect));
	return;
}

sub stop_cluster
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal|TRAP/, 'no PANIC in the log');
	$node->clean_node;
	return;
}

# Leave no page free, so that the next allocation takes pages that were freed since, or grows.
sub fill
{
	my $pages;
	sql("SELECT allocate($pages)") while ($pages = sql('SELECT longest()')) > 0;
	return;
}

# The pages of a table's values, of which each is one run: [first, end), one after the other.
sub place_of
{
	my ($table) = @_;
	my ($first, $end, $pages) = split /\|/, sql("SELECT min(first_page), max(first_page + pages),
		sum(pages) FROM $table, blob_extents(b)");
	is($end - $first, $pages, "table $table has one place");
	return ($first, $end);
}

# SQL that frees all extents of a place.
sub free_sql
{
	my ($first, $end) = @_;
	return qq(SELECT free(array_agg(first_page ORDER BY first_page),
		array_agg(generation ORDER BY first_page), '0')
		FROM blobext_map WHERE first_page >= $first AND first_page < $end);
}

sub pages_in
{
	my ($table, $first, $end) = @_;
	return sql("SELECT coalesce(sum(e.pages), 0) FROM $table, blob_extents(b) AS e
		WHERE e.first_page >= $first AND e.first_page < $end");
}

sub kill_and_start
{
	kill_everything($node);
	$node->start;
	return;
}

# Not while it flushes: it would keep the lock for that, and a process that flushes would wait forever.
sub stop_walwriter
{
	my $pid = sql(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'));
	for (;;)
	{
		kill('STOP', $pid);
		last if sql("SELECT wait_event FROM pg_stat_activity WHERE pid = $pid") eq 'WalWriterMain';
		kill('CONT', $pid);
		usleep(10_000);
	}
	return;
}

# ---- at once, and what replay makes of it ----

# Replay writes the old values, meets FREE, and writes the new ones.  Seen to fail with
# blob_store_frees_after_flush() always false (not used again), and with FREE without effect in
# replay_free() (the check after the crash).
start_cluster('at_once', $logged);
make_values($node, 'old', (100_000) x 20, (5_000) x 20);
fill();
my ($first, $end) = place_of('old');
sql('DELETE FROM old');
my $start_lsn = sql('SELECT pg_current_wal_insert_lsn()');
my $offset = -s $node->logfile;
my $lsn = sql(free_sql($first, $end));
is(sql('SELECT longest()'), $end - $first, 'freed pages are free at once');
is(sql("SELECT count(*) FROM blobext_space WHERE state = 'pending'"), '0', 'no freed page is pending');
make_values($node, 'new', (100_000) x 10, (20_000) x 20);
is(pages_in('new', $first, $end), sql('SELECT sum(pages) FROM new, blob_extents(b)'),
	'new values are in freed pages');
like(sql("SELECT description FROM pg_get_wal_records_info('$start_lsn', '$lsn')
	WHERE record_type = 'FREE'"), qr/reuse after flush/, 'the record FREE says so');
ok(!$node->log_contains('checkpoint starting', $offset), 'there was no checkpoint before that');
values_are_intact($node, 'new', 'new values in freed pages are whole');
kill_and_start();
values_are_intact($node, 'new', 'new values after a crash');
check_is_clean($node, 'the check finds nothing after a crash');

# An extent with room, a claim in it, a cut: all of it in pages whose old content is replayed.
fill();
make_values($node, 'again', (100_000) x 100);
fill();
($first, $end) = place_of('again');
sql('DELETE FROM again; ' . free_sql($first, $end));
sql(q(CREATE TABLE grown (id int, digest text, b blobstate);
	INSERT INTO grown (b) VALUES (blob_append('', convert_to(repeat('a', 30000), 'UTF8')))));
sql("UPDATE grown SET b = blob_append(b, convert_to(repeat('$_', 50000), 'UTF8'))") foreach (1 .. 4);
sql(q(INSERT INTO grown (b) SELECT blob_agg(convert_to(repeat('t', 12345), 'UTF8')) FROM generate_series(1, 200);
	UPDATE grown SET digest = encode(sha256(b), 'hex')));
is(sql("SELECT count(*) > 0 FROM pg_get_wal_records_info('$lsn', pg_current_wal_flush_lsn())
	WHERE record_type = '$_'"), 't', "growth into freed pages logs a $_ record") foreach ('CLAIM', 'TRIM');
cmp_ok(pages_in('grown', $first, $end), '>', 500, 'grown values are in freed pages');
kill_and_start();
values_are_intact($node, 'grown', 'grown values after a crash');
check_is_clean($node, 'the check finds nothing after that crash');
stop_cluster();

# ---- FREE is flushed before the pages are given out ----

# The DELETE is committed asynchronously, and no process flushes the WAL.  If FREE is not flushed
# either, a crash brings the rows back, and new content is in their pages.  Seen to fail without
# XLogFlush() in blob_store_release() and blob_store_mature(), and with the position of the last
# inserted record in release() in place of the flushed one.
start_cluster('flush', "${logged}blobext.background_sync = off\n");
make_values($node, 'old', (100_000) x 20);
($first, $end) = place_of('old');
fill();
make_values($node, 'source', 150_000);
sql('CREATE TABLE new (LIKE old); CHECKPOINT');
fill();
stop_walwriter();
sql('SET synchronous_commit = off; DELETE FROM old');
sql('SET synchronous_commit = off; ' . free_sql($first, $end));
sql(q(SET synchronous_commit = off;
	INSERT INTO new SELECT i, digest, b::bytea FROM source, generate_series(1, 10) AS i));
cmp_ok(pages_in('new', $first, $end), '>', 0, 'new values are in freed pages');
kill_and_start();
is(sql('SELECT count(*) FROM old'), '0', 'rows whose pages were given out have gone');
values_are_intact($node, 'old', 'rows that a crash brings back');
values_are_intact($node, 'new', 'those new values that were committed');
check_is_clean($node, 'the check finds nothing');
stop_cluster();

# ---- deferred writes are dropped ----

# The syncer is stopped while it has pages of the old values to write.  Seen to fail without
# blob_dirty_drop() in release().
foreach my $is_crash (0, 1)
{
	start_cluster("drop_$is_crash", $logged);
	sql('CREATE TABLE other (b blobstate)');
	make_values($node, 'old', 5_000);
	my $syncer = stop_syncer($node, 'deferred_pages',
		sub { sql(q(INSERT INTO other VALUES (convert_to(repeat('o', 5000), 'UTF8')))) });
	fill();
	my $others = stat_of($node, 'pending_deferred_pages');
	make_values($node, 'small', (20_000) x 20);
	my $deferred = stat_of($node, 'pending_deferred_pages') - $others;
	($first, $end) = place_of('small');
	is($deferred, $end - $first, 'all writes of the old values are deferred');
	fill();
	sql('DELETE FROM small; ' . free_sql($first, $end));
	is(stat_of($node, 'pending_deferred_pages'), $others,
		'deferred writes of freed pages are dropped, and others are not');
	make_values($node, 'new', (60_000) x 5, 3_000, 9_000);
	cmp_ok(pages_in('new', $first, $end), '>=', 75, 'new values are in freed pages');
	values_are_intact($node, 'new', 'new values beside dropped writes are whole');
	if ($is_crash)
	{
		kill_and_start();
	}
	else
	{
		kill('CONT', $syncer);
		ok($node->poll_query_until('postgres',
				q(SELECT value = 0 FROM blobext_stat WHERE name = 'pending_deferred_pages')),
			'the syncer writes what is left');
		$node->restart;			# with an empty cache
	}
	values_are_intact($node, 'new', 'new values when nothing is deferred any more');
	is(sql(q(SELECT count(*) FROM other WHERE b::bytea <> convert_to(repeat('o', 5000), 'UTF8'))),
		'0', 'values whose writes were not dropped');
	check_is_clean($node, 'the check finds nothing');
	stop_cluster();
}

# ---- no page is given out before its deferred writes are dropped ----

# A process carries out deferred writes, perhaps those of the old values.  Until it has ended the
# pages are in the hands of the process that drops.  Seen to fail with blob_dirty_drop() after
# the runs are moved to the free runs in release().
start_cluster('wait', "${logged}blobext.io_method = sync\n");
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
my $held = "$tmp/reuse_fault.held";
{
	local $ENV{LD_PRELOAD} = preload_library('fail_writes.c');
	local $ENV{BLOBEXT_FAULT} = "$tmp/reuse_fault";
	$node->restart;
}
sql('CREATE TABLE other (b blobstate)');
my $syncer = stop_syncer($node, 'deferred_pages',
	sub { sql(q(INSERT INTO other VALUES (convert_to(repeat('o', 5000), 'UTF8')))) });
fill();
make_values($node, 'old', (20_000) x 20);
($first, $end) = place_of('old');
fill();
append_to_file("$tmp/reuse_fault", "hold $syncer");
chmod 0644, "$tmp/reuse_fault";
kill('CONT', $syncer);
for (my $i = 0; $i < 6_000 && !-e $held; $i++) { usleep(30_000); }
ok(-e $held, 'the syncer is held in a write');
sql('DELETE FROM old');
my $freeing = $node->background_psql('postgres', on_error_stop => 1);
$freeing->query_until(qr/sent/, "\\echo sent\n" . free_sql($first, $end) . ";\n");
ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity
		WHERE wait_event = 'Extension' AND query ~ 'SELECT free')),
	'the process that frees waits for the process that writes');
is(sql('SELECT longest()'), '0', 'meanwhile the pages are not free');
unlink "$tmp/reuse_fault";
$freeing->quit;
is(sql('SELECT longest()'), $end - $first, 'when the write has ended the pages are free');
make_values($node, 'new', (100_000) x 4);
values_are_intact($node, 'new', 'new values after the late write are whole');
$node->restart;
values_are_intact($node, 'new', 'new values after a restart');
stop_cluster();

# ---- only writers that log ----

# With wal_level minimal small writes are logged, others are not.  After a crash the small ones are
# replayed.  Seen to fail with blob_store_frees_after_flush() always true: the new values and the
# grown one have old content.  The grown value was allocated by a write that was logged; the room in
# its extents was claimed by one that was not.
start_cluster('minimal', '');
sql('CREATE TABLE other (b blobstate)');
# The first write wakes the syncer.
for (my $i = 0; $i < 1_000 && stat_of($node, 'deferred_pages') == 0; $i++)
{
	sql(q(INSERT INTO other VALUES (convert_to(repeat('o', 5000), 'UTF8'))));
	usleep(20_000);
}
fill();
foreach my $table ('old', 'room')
{
	make_values($node, $table, 20_000);
	add_values($node, $table, 20_000) for (1 .. 19);
}
($first, $end) = place_of('old');
my ($first_room, $end_room) = place_of('room');
my $content = sql(q(SELECT value FROM blobext_stat WHERE name = 'wal_content_bytes'));
cmp_ok($content, '>=', 30 * 20_000, 'small values are in the WAL');
sql('CREATE TABLE grown (id int, digest text, b blobstate)');
fill();
$offset = -s $node->logfile;
sql('DELETE FROM room; ' . free_sql($first_room, $end_room));
# A syncer that sleeps is woken up by the first attempt.
for (1 .. 100)
{
	sql(q(TRUNCATE grown; INSERT INTO grown (b) VALUES (blob_append('', convert_to(repeat('a', 20000), 'UTF8')))));
	last if sql(q(SELECT value FROM blobext_stat WHERE name = 'wal_content_bytes')) > $content;
}
cmp_ok(sql(q(SELECT value FROM blobext_stat WHERE name = 'wal_content_bytes')), '>', $content,
	'the beginning of a value is in the WAL');
sql(q(UPDATE grown SET b = blob_append(b, convert_to(repeat('b', 100000), 'UTF8'));
	UPDATE grown SET digest = encode(sha256(b), 'hex')));
fill();
sql('DELETE FROM old; ' . free_sql($first, $end));
make_values($node, 'new', (60_000) x 6);
my @found = (pages_in('new', $first, $end), pages_in('grown', $first_room, $end_room));
ok(!$node->log_contains('checkpoint starting', $offset), 'there was no checkpoint');
kill_and_start();
values_are_intact($node, 'new', 'minimal: new values after a crash');
values_are_intact($node, 'grown', 'minimal: the grown value after a crash');
is("@found", '0 0', 'minimal: freed pages are not used before a checkpoint');
check_is_clean($node, 'minimal: the check finds nothing');
stop_cluster();

# ---- a standby, and its promotion ----

# The standby replays from a restartpoint before the old values, twice, the second time as a primary
# that does not log content.  Seen to fail with blob_durability_wants_log() that does not ask
# blob_store_replays_predecessor() (the value that has grown after the promotion).
start_cluster('primary', '', streaming => 1);
make_values($node, 'v', 50_000);
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "blobext.wal_content = off\n");
$standby->start;
sql('CHECKPOINT');
$node->wait_for_catchup($standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
make_values($node, 'old', (100_000) x 20, (5_000) x 5);
fill();
($first, $end) = place_of('old');
sql('DELETE FROM old; ' . free_sql($first, $end));
make_values($node, 'new', (100_000) x 15, 7_000);
cmp_ok(pages_in('new', $first, $end), '>', 0, 'primary: new values are in freed pages');
sql(q(CREATE TABLE grown (id int, digest text, b blobstate);
	INSERT INTO grown (b) VALUES (blob_append('', convert_to(repeat('a', 30000), 'UTF8')))));
sql(q(UPDATE grown SET b = blob_append(b, convert_to(repeat('b', 50000), 'UTF8'));
	UPDATE grown SET digest = encode(sha256(b), 'hex')));
$node->wait_for_catchup($standby);
values_are_intact($standby, $_, "standby: the values of table $_ are whole") foreach ('v', 'new', 'grown');
kill_everything($standby);
start_with_stops($standby);
$node->wait_for_catchup($standby);
values_are_intact($standby, $_, "standby, crashed: table $_") foreach ('v', 'new', 'grown');
check_is_clean($standby, 'standby, crashed: the check finds nothing');
($first, $end) = place_of('new');
sql('DELETE FROM new; ' . free_sql($first, $end));
$node->wait_for_catchup($standby);
$node->stop('immediate');
promote_before_checkpoint($standby);
($node, my $primary) = ($standby, $node);
sql(q(UPDATE grown SET b = blob_append(b, convert_to(repeat('c', 90000), 'UTF8'));
	UPDATE grown SET digest = encode(sha256(b), 'hex')));
make_values($node, 'promoted', (100_000) x 20);
kill_and_start();
values_are_intact($node, $_, "promoted, crashed: table $_") foreach ('v', 'grown', 'promoted');
check_is_clean($node, 'promoted, crashed: the check finds nothing');
stop_cluster();
$primary->clean_node;

# ---- the collector, and stores that fail ----

# The store keeps its size, and no checkpoint is asked for.  Seen to fail with
# blob_store_frees_after_flush() always false.
start_cluster('churn', $logged);
$offset = -s $node->logfile;
sql(q(CREATE TABLE churn (id int, b blobstate);
	INSERT INTO churn SELECT i, convert_to(repeat(md5(i::text), 31250), 'UTF8') FROM generate_series(1, 20) AS i));
for my $round (1 .. 12)
{
	sql("UPDATE churn SET b = convert_to(repeat(md5(($round + 100 * id)::text), 31250), 'UTF8')");
	is(sql('SELECT freed_blobs FROM blobext_gc()'), '20', "round $round: the collector frees the replaced values") if $round < 3;
	sql('SELECT * FROM blobext_gc()') if $round >= 3;
	is(sql("SELECT count(*) FROM blobext_space WHERE state = 'pending'"), '0', "round $round: no page waits");
}
cmp_ok(sql('SELECT sum(bytes) FROM blobext_space'), '<', 64 * 1024 * 1024, 'the store does not grow');
# The extents of a store that failed are freed by the next statement of its session.  That does not
# flush; the allocation that needs the pages does.
sql(q(CREATE TABLE size AS SELECT sum(bytes) AS bytes FROM blobext_space));
my $session = $node->background_psql('postgres', on_error_stop => 0);
for (1 .. 20)
{
	$session->query(q(SELECT length(blob_agg(CASE WHEN i = 20 THEN convert_to((1 / (20 - i))::text, 'UTF8')
		ELSE decode(repeat('ab', 1000000), 'hex') END)) FROM generate_series(1, 20) AS i));
}
$session->quit;
is(sql(q(SELECT sum(s.bytes) <= (SELECT bytes FROM size) + 48 * 1024 * 1024 FROM blobext_space AS s)), 't',
	'stores that fail take the same pages again');
ok(!$node->log_contains('checkpoint starting', $offset), 'no checkpoint was asked for');
is(sql(q(SELECT count(*) FROM churn WHERE b::bytea <> convert_to(repeat(md5((12 + 100 * id)::text), 31250), 'UTF8'))),
	'0', 'the values of the last round are whole');
check_is_clean($node, 'the check finds nothing');
stop_cluster();

done_testing();
