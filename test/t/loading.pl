# Stores, claims and rounds while the free space of a large store is being loaded after a start.
#
# Segment files are sparse (stop_calls.c), so a store of some GB takes no room: a "head" of more pages
# than a session loads before it grows the store, values behind it, and a "gap" that was freed.  The
# background process that loads stands still before its first part.  Then values are stored behind the
# old end, an old value is grown in its place, what a failed statement has written is freed, everything is
# killed, and a process that gives space back and a full disk load by themselves.  When the process goes on, the next
# store takes the gap.  The same on a standby that was promoted.
#
# Seen to fail: without the look at the end of the load in note_block(), the load ends with XX001 at the
# first extent that is newer; with must_load_first() always false, the store that finds the disk almost full
# does not take the gap; without blob_map_extend() in grow_end(), the map is smaller than the store; without
# loading on at the limit, a value is refused (53400) that has room; with blob_store_draw_generation() as it was, which waited for
# "loaded", the session that leaves a digest open has loaded all.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

$ENV{BLOBEXT_SPARSE} = 1;		# of segment files, for stop_calls.c
my $library = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";
my $small = $ENV{BLOBEXT_SMALL_FS};
my $conf = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 2GB\nblobext.keep_free = -1\n";

use constant HEAD_PAGES => 1100 * 510;	# a session loads 1,024 blocks of the map
use constant GAP_PAGES => 200_000;

# A cluster with a small store and the functions that make it large.
sub cluster
{
	my ($name, %options) = @_;
	my $node = blob_cluster($name, %options, conf => $conf . ($options{conf} // ''), start => 0);
	start_with_stops($node);
	$node->safe_psql('postgres', qq(
CREATE EXTENSION blobext;
CREATE FUNCTION allocate(pages bigint) RETURNS bigint
	AS '$library', 'unit_store_allocate' LANGUAGE C STRICT;
CREATE FUNCTION free(pages bigint[], generations bigint[], horizon xid) RETURNS pg_lsn
	AS '$library', 'unit_store_free' LANGUAGE C STRICT;
CREATE FUNCTION reclaim() RETURNS integer AS '$library', 'unit_store_reclaim' LANGUAGE C;
CREATE TABLE t (id serial PRIMARY KEY, b blobstate, c bytea);
CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
	\$\$ SELECT substr(string_agg(sha256(random()::text::bytea), ''), 1, n) FROM generate_series(0, n / 32) \$\$));
	return $node;
}

sub store_values
{
	my ($node, $count, $size) = @_;
	return $node->safe_psql('postgres',
		"INSERT INTO t (b, c) SELECT c, c FROM (SELECT noise($size + i) AS c FROM generate_series(1, $count) AS i) AS s");
}

# The head, values, the gap, values.  Returns the first page of the gap, and the end.
sub make_large
{
	my ($node) = @_;
	$node->safe_psql('postgres', 'SELECT allocate(' . HEAD_PAGES . ')');
	store_values($node, 20, 60_000);
	my $gap = $node->safe_psql('postgres', 'SELECT allocate(' . GAP_PAGES . ')');
	store_values($node, 20, 60_000);
	$node->safe_psql('postgres', "SELECT free(ARRAY[$gap], array_agg(generation), '0') FROM blobext_map WHERE first_page = $gap");
	$node->safe_psql('postgres', 'CHECKPOINT');
	return ($gap, end_of($node));
}

# The end of the last extent.
sub end_of { return $_[0]->safe_psql('postgres', 'SELECT max(first_page + pages) FROM blobext_map'); }

# Start the server; the process that loads stands still before its first part.
sub start_unloaded
{
	my ($node) = @_;
	start_with_stops($node, 'load', 'before');
	return await_any_stop();
}

# The first page of a new value of this size.
sub place_of_new
{
	my ($node, $size) = @_;
	store_values($node, 1, $size);
	return $node->safe_psql('postgres', 'SELECT e.first_page FROM t, blob_extents(b) AS e ORDER BY id DESC, 1 LIMIT 1');
}

sub is_loaded
{
	my ($node) = @_;
	return $node->safe_psql('postgres', "SELECT file_bytes IS NOT NULL FROM blobext_databases WHERE datname = 'postgres'") eq 't';
}

sub all_is_right
{
	my ($node, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE b::bytea <> c'), '0', "$name: all values are right");
	no_page_is_shared($node, "$name: no page is in two extents", 't');
	check_is_clean($node, "$name: the check finds nothing");
	return;
}

sub is_in_gap
{
	my ($place, $gap, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($place >= $gap && $place < $gap + GAP_PAGES, $name) or diag("page $place, gap at $gap");
	return;
}

# ---- stores, growth in place, abandoned extents ----

my $node = cluster('main', streaming => 1);
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
start_with_stops($standby);
my ($gap, $end) = make_large($node);
my $file_pages = 0;
$file_pages += (-s $_) / 4096 foreach glob(store_dir($node) . '/0*');
is($node->safe_psql('postgres', "SELECT pg_relation_size('blobext_map') / 8192"), 2 + int(($file_pages - 1) / 510),
	'the map has the blocks of all pages that the store has reserved');
$node->stop;
my $worker = start_unloaded($node);

cmp_ok(place_of_new($node, 60_000), '>=', $end, 'a value that is stored while nothing is loaded lies behind the old end');
ok(!is_loaded($node), 'a store does not wait until all free space is known');
my $places = 'SELECT first_page FROM t, blob_extents(b) WHERE id = 25 ORDER BY extent_no';
my $before = $node->safe_psql('postgres', $places);
$node->safe_psql('postgres', 'UPDATE t SET b = b || x, c = c || x FROM noise(90000) AS x WHERE id = 25');
my ($kept) = split /\n/, $before;
like($node->safe_psql('postgres', $places), qr/^$kept\n/, 'a value in unloaded pages grows, and shares its extents');

# It needs a generation that no extent gets, which is drawn as soon as the load has begun.
$node->safe_psql('postgres', q(SELECT blobext_set_digest('t', 'b', 'deferred'); UPDATE t SET b = b WHERE id = 24; SET blobext.rewrite_limit = '32kB';
	UPDATE t SET b = blob_write(b, 30000, 'changed'), c = overlay(c PLACING 'changed' FROM 30001) WHERE id = 24));
is($node->safe_psql('postgres', 'SELECT blob_digest_is_open(b) FROM t WHERE id = 24'), 't', 'a change in unloaded pages leaves the digest open');
ok(!is_loaded($node), 'a change that leaves the digest open does not wait until all free space is known');
my $freed = stat_of($node, 'abandoned_freed_bytes');
$node->psql('postgres', "DO \$\$ BEGIN
	PERFORM blob_agg(noise(300000) || CASE WHEN i = 9 THEN (1 / (i - 9))::text::bytea ELSE '' END) FROM generate_series(1, 9) AS i;
EXCEPTION WHEN division_by_zero THEN NULL; END \$\$; SELECT 1; SELECT 2");
cmp_ok(stat_of($node, 'abandoned_freed_bytes'), '>', $freed, 'what a failed statement has written is freed before the load is over');
ok(!is_loaded($node), 'freeing abandoned extents does not wait for the load');
all_is_right($node, 'while nothing is loaded');

# ---- a limit, and the free space of unloaded pages ----

my $used = $node->safe_psql('postgres', 'SELECT sum(pages) FROM blobext_map') * 4096;
my $limit_mb = int($used / 1048576) + 2;
$node->safe_psql('postgres', "ALTER DATABASE postgres SET blobext.max_store_size = $limit_mb");
ok($limit_mb * 1048576 < $used + GAP_PAGES * 4096, 'the limit has no room for what may lie in unloaded pages');
store_values($node, 1, 500_000);
ok(is_loaded($node), 'before a value is refused for the limit, all free space is loaded');
fails_with($node, 'INSERT INTO t (b) SELECT noise(3000000)', '53400', qr/max_store_size/, 'when all is loaded the limit holds');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET blobext.max_store_size');

# ---- a crash in the middle of the load ----

kill_everything($node);
$worker = start_unloaded($node);
$end = end_of($node);
store_values($node, 3, 200_000);
ok(!is_loaded($node), 'after a crash the load begins anew');
all_is_right($node, 'after a crash while the free space was loaded');

# ---- the process goes on ----

kill('CONT', $worker);
usleep(20_000) until is_loaded($node);
is_in_gap(place_of_new($node, 20_000_000), $gap, 'when all is loaded, a large value lies in the gap');
all_is_right($node, 'when all is loaded');

# ---- two that load beside each other ----

$node->stop;
$worker = start_unloaded($node);
my $session = $node->background_psql('postgres');
$session->query_safe('SELECT count(*) FROM blobext_map');
kill('CONT', $worker);
$session->query_safe('INSERT INTO t (b, c) SELECT c, c FROM (SELECT noise(60000) AS c FROM generate_series(1, 50)) AS s');
$session->quit;
usleep(20_000) until is_loaded($node);
all_is_right($node, 'after a session and the background process have loaded beside each other');

# ---- promotion ----

$node->wait_for_catchup($standby);
$node->stop('immediate');
$standby->stop;
start_with_stops($standby);
arm_stop('load', 'before');
$standby->promote;
$worker = await_any_stop();
$end = end_of($standby);
cmp_ok(place_of_new($standby, 10_000_000), '>=', $end, 'on a promoted server a value lies behind the old end');
kill_everything($standby);
$worker = start_unloaded($standby);
store_values($standby, 3, 100_000);
kill('CONT', $worker);
usleep(20_000) until is_loaded($standby);
all_is_right($standby, 'on a promoted server that crashed while its free space was loaded');

# ---- giving space back, and a round ----

$standby->stop;
$worker = start_unloaded($standby);
store_values($standby, 1, 60_000);
ok(!is_loaded($standby), 'after another start nothing is loaded');
$standby->safe_psql('postgres', 'SELECT reclaim()');
ok(is_loaded($standby), 'a process that gives space back loads all free space by itself');
kill('CONT', $worker);
is($standby->safe_psql('postgres', 'SELECT skipped_reason FROM blobext_gc()'), '', 'a round is complete after the load');
all_is_right($standby, 'after a round');
$standby->stop;

# ---- a full disk ----

SKIP:
{
	skip 'no small file system: start this test with test/run tap as root', 4 unless defined $small;
	power('format');
	my $full;
	{
		local $PostgreSQL::Test::Utils::tmp_check = $small;
		$full = cluster('full', conf => "blobext.min_free_disk = 1MB\nmax_wal_size = 80MB\nmin_wal_size = 32MB\n");
	}
	($gap) = make_large($full);
	$full->stop;
	$worker = start_unloaded($full);
	my ($free_bytes) = (split /\n/, `df -B1 --output=avail '$small'`)[1];
	system_or_bail('fallocate', '-l', $free_bytes - 50_000_000, "$small/filler");
	is_in_gap(place_of_new($full, 1_000_000), $gap, 'where the disk is almost full, a store loads until it finds the gap');
	fails_with($full, 'SELECT allocate(' . 2 * GAP_PAGES . ')', '53100', qr/disk is almost full|could not reserve/,
		'a value is refused only when all free space is known');
	ok(is_loaded($full), 'before a value is refused, all free space is loaded');
	kill('CONT', $worker);
	unlink "$small/filler";
	all_is_right($full, 'after the disk was almost full');
	$full->stop;
}

done_testing();
