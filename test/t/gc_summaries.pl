# Where VACUUM, or a change that PostgreSQL logs for the visibility map, has touched a page of the map, a round reads the pages
# that the WAL names, and no others.
#
# "Seen to fail" names the change of the code with which a test failed.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

plan skip_all => 'WAL summaries came with PostgreSQL 17, and notes of pages end with 18'
  if `pg_config --version` !~ /PostgreSQL 1[78]/;

my $rows = $ENV{BLOBEXT_SUMMARY_ROWS} // 12000;
my $node = blob_cluster('main', streaming => 1, init => [ '--data-checksums', '--wal-segsize=1' ], conf => q(
autovacuum = off
summarize_wal = on
checkpoint_timeout = 1h
min_wal_size = 2MB
max_wal_size = 10GB
shared_preload_libraries = 'blobext'
));
gc_use($node);
sql(q(CREATE FUNCTION v(n integer) RETURNS bytea LANGUAGE sql VOLATILE AS
	$$ SELECT convert_to(repeat(md5(n::text), 200), 'UTF8') $$));

# ---- tools ----

sub read_and_unchanged { return split /\|/, sql('SELECT pages_done, pages_unchanged FROM blobext_gc_status') }

sub heap_pages { return sql("SELECT pg_relation_size('s.t') / 8192") }

# Summaries tell all up to now.
sub summarize
{
	sql('CHECKPOINT');
	return poll('SELECT summarized_lsn >= (SELECT redo_lsn FROM pg_control_checkpoint()) FROM pg_get_wal_summarizer_state()');
}

# The changes of VACUUM are in summaries, and the notes begin behind them.
sub note_all
{
	sql('VACUUM s.t');
	summarize();
	gc() for 1 .. 2;
	return;
}

sub whole
{
	my ($name) = @_;
	my ($result, $found, $error) = $node->psql('postgres',
		'SELECT count(*) FROM s.t WHERE sha256(b) IS DISTINCT FROM sha256(v(n)) OR b::bytea IS DISTINCT FROM v(n)');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is("$found$error", '0', $name);
}

sub pages_of { return sql("SELECT (ctid::text::point)[0] FROM s.t WHERE $_[0]") }

# Give some rows, of many pages, other values; each time those of other pages.  Returns the number of pages that had these rows, or
# have them now.
my $turn = 0;
sub update_some
{
	my $step = int($rows / 10);
	my $some = "id % $step = " . $turn++ * 37 % $step;
	my %pages = map { $_ => 1 } split(/\n/, pages_of($some));
	sql("UPDATE s.t SET n = n + $rows, b = v(n + $rows) WHERE $some");
	$pages{$_} = 1 foreach split(/\n/, pages_of($some));
	return scalar keys %pages;
}

# Rounds read no more than these pages of the table, and lose nothing.
sub reads_at_most
{
	my ($pages, $name) = @_;
	my ($freed, $live, $reason) = gc();
	my ($read, $unchanged) = read_and_unchanged();
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is("$live $reason", sql('SELECT count(*) FROM s.t') . ' ', "$name: the round is complete, and finds the values of all rows");
	cmp_ok($unchanged, '>=', heap_pages() - $pages, "$name: the round reads changed pages only");
	note("$name: $read pages read, $unchanged not, $pages of the table have changed");
	return whole("$name: all values are whole");
}

sub reads_all
{
	my ($name) = @_;
	my ($freed, $live, $reason) = gc();
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($reason, '', "$name: the round is complete");
	is((read_and_unchanged())[1], 0, "$name: the round reads all pages");
	note("$name: " . heap_pages() . ' pages of the table');
	return whole("$name: all values are whole");
}

# WAL without changes of tables, more of it than a round reads.
sub much_wal
{
	my $bytes = int(heap_pages() * 8192 / 4);
	return sql("SELECT pg_logical_emit_message(false, 'test', repeat('x', $bytes))");
}

sub summaries { return glob($node->data_dir . '/pg_wal/summaries/*.summary') }

# ---- how many pages are read ----
# Seen to fail, values were lost: without add_blocks() in tail.c, after VACUUM; without blob_gc_changed_add() in summaries.c; when
# blob_gc_logged_tell() said yes to each position.

sql('CREATE TABLE s.t (id integer PRIMARY KEY, n integer, b blobstate, other text) WITH (fillfactor = 90)',
	"INSERT INTO s.t SELECT i, i, v(i), repeat('x', 500) FROM generate_series(1, $rows) AS i");
note_all();
reads_at_most(0, 'nothing has changed');
note_all();
my $pages = update_some();
reads_at_most($pages, 'updates after the last checkpoint');
note_all();
$pages = update_some();
sql('VACUUM s.t');
reads_at_most($pages, 'updates and VACUUM after the last checkpoint');
note_all();
$pages = update_some();
summarize();
reads_at_most($pages, 'updates before a checkpoint');
note_all();
$pages = update_some();
sql('VACUUM s.t');
summarize();
reads_at_most($pages, 'updates and VACUUM before a checkpoint');
note_all();
$pages = update_some();
sql('VACUUM s.t');
summarize();
$pages += update_some();
sql('VACUUM s.t');
reads_at_most($pages, 'updates before and after a checkpoint');
# The notes begin anew with each round.
$pages = update_some();
sql('VACUUM s.t');
reads_at_most($pages, 'updates between two rounds');
summarize();
$pages = update_some();
sql('VACUUM s.t');
gc();
$pages += update_some();
sql('VACUUM s.t');
summarize();
reads_at_most($pages, 'a checkpoint after a round');

# ---- much WAL ----
# Seen to fail: without the comparison with tail_bytes in logged.c, the round reads the WAL.

note_all();
update_some();
sql('VACUUM s.t');
much_wal();
reads_all('much WAL after the last summary');
note_all();
$pages = update_some();
sql('VACUUM s.t');
much_wal();
summarize();
reads_at_most($pages, 'much WAL that summaries tell');

# ---- summaries, or WAL, that are not there ----

note_all();
$pages = update_some();
sql('VACUUM s.t');
summarize();
unlink summaries();
reads_at_most($pages, 'no summaries, and little WAL');
note_all();
$pages = update_some();
sql('VACUUM s.t');
much_wal();
summarize();
unlink summaries();
reads_all('no summaries, and much WAL');

# A gap: the summaries go that have the first changes; those from before the notes stay, or go, too.
# Seen to fail, values were lost: when summaries counted that begin later than the notes; "with older ones": without the look for gaps in
# blob_gc_summaries_list().
foreach my $older ('with older ones', 'alone')
{
	note_all();
	my %from_before = map { $_ => 1 } summaries();
	$pages = update_some();
	sql('VACUUM s.t');
	summarize();
	my @gone = $older eq 'alone' ? summaries() : grep { !$from_before{$_} } summaries();
	$pages += update_some();
	sql('VACUUM s.t');
	summarize();
	unlink @gone;
	reads_at_most($pages, "later summaries $older");
	note_all();
	update_some();
	sql('VACUUM s.t');
	summarize();
	@gone = summaries();
	update_some();
	sql('VACUUM s.t');
	much_wal();
	summarize();
	unlink @gone;
	reads_all("later summaries $older, and much WAL");
}

# Damage.
note_all();
my %sound = map { $_ => 1 } summaries();
update_some();
sql('VACUUM s.t');
summarize();
foreach my $file (grep { !$sound{$_} } summaries())
{
	open(my $handle, '+<:raw', $file) or die $!;
	seek($handle, int((-s $file) / 2), 0);
	print $handle 'xxxx';
	close $handle;
}
reads_all('a damaged summary');
like(slurp_file($node->logfile), qr/LOG:  a WAL summary is damaged/, 'the log says that a summary is damaged');

# ---- another tablespace ----
# Files keep their numbers, and notes hold, but the records name the tablespace of before.
# Seen to fail, values were lost: when the set of changed blocks had the tablespace, too.

sub moved { return $node->safe_psql('moving', join(";\n", @_)) }

sql('CREATE DATABASE moving');
sql("SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''");
moved('CREATE EXTENSION blobext',
	q(CREATE FUNCTION v(n integer) RETURNS bytea LANGUAGE sql VOLATILE AS $$ SELECT convert_to(repeat(md5(n::text), 200), 'UTF8') $$),
	'CREATE TABLE t (id integer, n integer, b blobstate, other text) WITH (fillfactor = 90)',
	"INSERT INTO t SELECT i, i, v(i), repeat('x', 500) FROM generate_series(1, 4000) AS i");
foreach my $tablespace ('elsewhere', 'pg_default')
{
	moved('VACUUM t');
	summarize();
	moved('SELECT FROM blobext_gc()') for 1 .. 2;
	moved('UPDATE t SET n = n + 4000, b = v(n + 4000) WHERE id % 400 = 7');
	moved('VACUUM t');
	summarize();
	sql("ALTER DATABASE moving SET TABLESPACE $tablespace");
	is(moved('SELECT live_blobs FROM blobext_gc()'), 4000, "the round finds all values when the database has moved to $tablespace");
	my ($result, $found, $error) = $node->psql('moving', 'SELECT count(*) FROM t WHERE sha256(b) IS DISTINCT FROM sha256(v(n)) OR b::bytea IS DISTINCT FROM v(n)');
	is("$found$error", '0', "all values are whole after the database has moved to $tablespace");
}
sql('DROP DATABASE moving');

# WAL that was removed, with nothing that tells it.  Seen to fail: without ERRCODE_UNDEFINED_FILE in logged.c, the log has it.
$node->append_conf('postgresql.conf', "summarize_wal = off\nwal_keep_size = 0");
$node->reload;
poll(q(SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'walsummarizer'));
sql('VACUUM s.t');
gc() for 1 .. 2;
$pages = update_some();
sql('VACUUM s.t');
reads_at_most($pages, 'without a summarizer');
update_some();
sql('VACUUM s.t');
my $log_size = -s $node->logfile;
my $name_of_wal = sql('SELECT pg_walfile_name(pg_current_wal_lsn())');
for (1 .. 3)
{
	sql('SELECT pg_switch_wal()', 'CHECKPOINT');
}
ok(!-e $node->data_dir . "/pg_wal/$name_of_wal", 'the WAL of the changes is gone');
reads_all('WAL that is gone');
unlike(slurp_file($node->logfile, $log_size), qr/could not open|has already been removed/, 'the log does not mind WAL that is gone');
# Seen to fail: without XLogIsNeeded() in logged.c.
$node->append_conf('postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0");
$node->restart;
sql('VACUUM s.t');
gc() for 1 .. 2;
update_some();
sql('VACUUM s.t');
reads_all('wal_level = minimal');
$node->append_conf('postgresql.conf', "wal_level = replica\nsummarize_wal = on");
$node->restart;
summarize();

# ---- what changes pages ----

my $file = PostgreSQL::Test::Utils::tempdir() . '/rows';
my $other = "repeat('y', 500)";
my @changes = (
	'UPDATE s.t SET n = n + 1, b = v(n + 1) WHERE id % 40 = RANDOM',
	'UPDATE s.t SET other = other WHERE id % 40 = RANDOM',
	'UPDATE s.t SET (n, b) = (SELECT n, b FROM s.t AS o ORDER BY id LIMIT 1) WHERE id % 97 = RANDOM',
	'DELETE FROM s.t WHERE id % 80 = RANDOM',
	"INSERT INTO s.t SELECT i, i, v(i), $other FROM generate_series((SELECT max(id) FROM s.t) + 1, (SELECT max(id) FROM s.t) + 150) AS i",
	"INSERT INTO s.t SELECT i, -i, v(-i), $other FROM generate_series(1, 3000, 7) AS i ON CONFLICT (id) DO UPDATE SET n = excluded.n, b = excluded.b",
	'BEGIN; UPDATE s.t SET n = 1, b = v(1) WHERE id % 80 = RANDOM; ROLLBACK',
	'BEGIN; SAVEPOINT p; DELETE FROM s.t WHERE id % 80 = RANDOM; ROLLBACK TO p; UPDATE s.t SET n = 5, b = v(5) WHERE id % 80 = RANDOM; COMMIT',
	'BEGIN; SELECT count(*) FROM (SELECT FROM s.t WHERE id % 40 = RANDOM FOR UPDATE) AS q; COMMIT',
	'SELECT count(other) FROM s.t', 'VACUUM (FREEZE) s.t', 'VACUUM FULL s.t', 'CLUSTER s.t USING t_pkey',
	"DELETE FROM s.t WHERE id > 2500; VACUUM s.t; INSERT INTO s.t SELECT i, i, v(i), $other FROM generate_series(2501, 3000) AS i",
	"COPY (SELECT i, i, v(i), $other FROM generate_series(200001, 200300) AS i) TO '$file'; DELETE FROM s.t WHERE id > 200000; COPY s.t FROM '$file'",
	'ALTER TABLE s.t SET UNLOGGED; UPDATE s.t SET n = 2, b = v(2) WHERE id % 80 = RANDOM; ALTER TABLE s.t SET LOGGED',
	q(SELECT pg_truncate_visibility_map('s.t'); UPDATE s.t SET n = 4, b = v(4) WHERE id % 80 = RANDOM));

my $seed = $ENV{BLOB_TEST_SEED} // int(rand(1 << 30));
srand($seed);
note("seed $seed: BLOB_TEST_SEED=$seed repeats this run");
sql('CREATE EXTENSION pg_visibility', 'DELETE FROM s.t WHERE id > 3000', 'VACUUM FULL s.t');

sub change
{
	my $statements = $changes[ $_[0] ];
	$statements =~ s/RANDOM/int(rand(40))/ge;
	return sql($statements);
}

my $incomplete = '';
sub round_is_complete
{
	my ($freed, $live, $reason) = gc();
	my $rows_now = sql('SELECT count(*) FROM s.t');
	$incomplete ||= "$reason ($live of $rows_now)" if $reason ne '';
	return;
}

foreach my $number (0 .. $#changes)
{
	foreach my $way (0 .. 3)
	{
		note_all() if $way % 2 == 0;
		change($number);
		sql('VACUUM s.t');
		summarize() if $way >= 2;
		round_is_complete();
	}
	whole("all values are whole after rounds beside $changes[$number]");
}
for (1 .. 60)
{
	change(int(rand(@changes)));
	sql('VACUUM s.t') if rand() < 0.6;
	sql('CHECKPOINT') if rand() < 0.3;
	round_is_complete() if rand() < 0.6;
}
whole("all values are whole after changes and rounds at random (seed $seed)");

# Changes, and VACUUM, while rounds read.
my @writers = map {
	my $script = join("\n", map { "UPDATE s.t SET n = n + $_, b = v(n + $_) WHERE id % 100 = " . int(rand(100)) . ";\nVACUUM s.t;\n" } 1 .. 40);
	IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$script, '>', \my $output, '2>', \my $errors)
} 1 .. 2;
for (1 .. 25)
{
	round_is_complete();
	sql('CHECKPOINT') if rand() < 0.2;
}
IPC::Run::finish($_) foreach @writers;
round_is_complete();
whole('all values are whole after rounds beside updates and VACUUM');
is($incomplete, '', 'all rounds were complete');
check_is_clean($node, 'the check finds nothing after these changes');
$node->stop;
done_testing();
