# Small values that lie side by side are read together (src/extents/neighbours.c).
#
# Scans in the order of storage need few requests, whatever their direction and the way of I/O;
# reads in no order are read one by one.  A request may bring pages that have yet to be written:
# of a value that another process is storing, of a value that grows, and on a standby those of a
# value whose WAL is not replayed yet.  Their readers get its bytes all the same.  Seen to
# fail, each with other tests: a slab is never outdated (blob_buffer_is_outdated() of io/buffer.c); a writer
# adds to a neighbour's slab (begin_addition()); writes of the pipeline, and those of replay, are
# not counted.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $values = 300;
my $node = blob_cluster('main', conf => "wal_level = minimal\nmax_wal_senders = 0\n");

# Values of 3 to 5 kB, mostly; bytea is the oracle.
sub make_table
{
	my ($server, $table) = @_;
	$server->safe_psql('postgres', qq(
CREATE TABLE $table (id int PRIMARY KEY, b blobstate, c bytea);
INSERT INTO $table SELECT i, c, c FROM (SELECT i, (SELECT string_agg(sha256(convert_to(i || '.' || j, 'UTF8')), '')
	FROM generate_series(1, 100 + i % 50 + CASE WHEN i % 20 = 0 THEN 2000 ELSE 0 END) j) AS c
	FROM generate_series(1, $values) i) s ORDER BY i));
	return;
}

# Compare the values of these numbers with the oracle, one statement each.  Returns the requests and the bytes
# read ahead.
sub read_values
{
	my ($server, $table, $numbers, $settings) = @_;
	my $before = { map { $_ => stat_of($server, $_) } qw(io_reads read_ahead_bytes) };
	$server->safe_psql('postgres', ($settings // '') . qq(
DO \$\$
DECLARE i int; same bool;
BEGIN
	FOR i IN $numbers LOOP
		SELECT b::bytea = c INTO same FROM $table WHERE id = i;
		IF NOT same THEN RAISE 'value % is wrong', i; END IF;
	END LOOP;
END \$\$));
	return map { stat_of($server, $_) - $before->{$_} } qw(io_reads read_ahead_bytes);
}

# ---- how many requests ----

make_table($node, 'v');
my $live = $node->safe_psql('postgres', 'SELECT sum(length(b)) FROM v');

sub requests
{
	my ($numbers, $settings) = @_;
	$node->restart;
	return read_values($node, 'v', $numbers, $settings);
}

my ($reads, $ahead) = requests("SELECT generate_series(1, $values)");
cmp_ok($reads, '<', $values / 3, "a scan that ascends: $reads requests");
cmp_ok($ahead, '<=', $live + $values * 4096, 'of the table and no more');
($reads, $ahead) = requests("SELECT generate_series($values, 1, -1)");
cmp_ok($reads, '<', $values / 3, "a scan that descends: $reads requests");
($reads, $ahead) = requests("SELECT generate_series(1, $values, 3)");
cmp_ok($reads, '<', $values / 3, "a scan that skips values: $reads requests");
($reads, $ahead) = requests("SELECT generate_series(1, $values)", 'SET blobext.io_method = sync;');
cmp_ok($reads, '<', $values / 3, "a scan by blocking calls: $reads requests");
($reads, $ahead) = requests("SELECT n FROM generate_series(1, $values) n ORDER BY md5(n::text)");
cmp_ok($reads, '>', $values / 2, "reads in no order: $reads requests");
cmp_ok($ahead, '<', $live / 4, 'reads in no order read few bytes ahead');
($reads, $ahead) = requests("SELECT 7 FROM generate_series(1, 20)");
is($ahead, 0, 'one value again and again: nothing is read ahead');
is($node->safe_psql('postgres', q(SELECT blob_read(b, 0, 64) = substr(c, 1, 64) FROM v WHERE id = 5)), 't', 'a range of a value that was read is right');

# Several sessions at once: what one has requested, the others do not bring again.
$node->restart;
$node->safe_psql('postgres', 'SELECT count(c) FROM v');
my @sessions = map { $node->background_psql('postgres') } (1 .. 4);
$_->{stdin} .= "SELECT bool_and(b::bytea = c) FROM v;\n\\echo over\n" foreach (@sessions);
foreach my $session (@sessions)
{
	$session->{run}->pump_nb until $session->{stdout} =~ /over/;
	like($session->{stdout}, qr/^t$/m, 'one of four sessions that scan at once');
	$session->quit;
}
my $read_bytes = stat_of($node, 'io_read_bytes');
cmp_ok($read_bytes, '<', 2 * ($live + $values * 4096), "four sessions that scan at once: $read_bytes bytes read");

# The server as it is after a scan: what lies in the buffer is found there.
($reads, $ahead) = requests("SELECT generate_series(1, 150)");
($reads, $ahead) = read_values($node, 'v', 'SELECT generate_series(1, 150)');
is("$reads $ahead", '0 0', 'a second scan reads nothing');

# ---- pages that have yet to be written ----

# Scan the values before the last ones of the table, so that what lies behind is requested.
sub scan
{
	my ($server) = @_;
	my ($reads, $ahead) = read_values($server, 'v', "SELECT generate_series(1, $values)");
	cmp_ok($ahead, '>', 0, "the scan requests $ahead bytes ahead");
	return;
}

# A value of more than a quarter of the buffer is not written from its slabs.  A small one comes first, since the
# first store of a server writes to a file of the store itself.
my $large = 2_500_000;
$node->stop;
start_with_stops($node);
$node->safe_psql('postgres', qq{CREATE TABLE l (id int, b blobstate, digest bytea);
	CREATE TABLE source AS SELECT string_agg(sha256(i::text::bytea), '') AS c FROM generate_series(1, $large / 32) i;
	INSERT INTO l SELECT 0, substr(c, 1, 5000), sha256(substr(c, 1, 5000)) FROM source});
my ($session, $pid) = hold_at($node, 'write', 'before',
	q(SET blobext.io_method = sync; INSERT INTO l SELECT 1, c, sha256(c) FROM source));
scan($node);
let_go($pid, $session);
is($node->safe_psql('postgres', 'SELECT bool_and(sha256(b::bytea) = digest) FROM l'), 't',
	'a value that was stored beside the scan');
# Its writes have outdated slabs of the scan.
($reads) = read_values($node, 'v', "SELECT generate_series(1, $values)");
cmp_ok($reads, '<', $values / 20, "what is outdated is read together again: $reads requests");
$node->restart;

# Values that grow within a chunk of their last extent: it has room, since they have grown before.
$node->safe_psql('postgres', q(
CREATE TABLE g (id int PRIMARY KEY, b blobstate, c bytea);
DO $$
BEGIN
	FOR i IN 1 .. 34 LOOP
		INSERT INTO g VALUES (i, repeat(md5(i::text), 1280)::bytea, repeat(md5(i::text), 1280)::bytea);
		UPDATE g SET b = blob_append(b, c), c = c || c WHERE id = i;
	END LOOP;
END $$));
$node->restart;
my (undef, $ahead_of_growth) = read_values($node, 'g', 'SELECT generate_series(1, 30)');
cmp_ok($ahead_of_growth, '>', 0, "a scan of values that grow later requests $ahead_of_growth bytes ahead");
is($node->safe_psql('postgres', q(
BEGIN;
UPDATE g SET b = blob_append(b, repeat(md5('x' || id), 300)::bytea), c = c || repeat(md5('x' || id), 300)::bytea
WHERE id > 30;
INSERT INTO l SELECT 2, c, sha256(c) FROM source;
SELECT count(*) FROM g WHERE b::bytea <> c;
COMMIT;)), '0', 'values that grow beside slabs of neighbours, before their pages are written');
is($node->safe_psql('postgres', 'SELECT count(*) FROM g WHERE b::bytea <> c'), '0', 'values that have grown there');

# ---- a scan of more than the buffer ----

$node->safe_psql('postgres', q(CREATE TABLE wide (id int PRIMARY KEY, b blobstate);
	INSERT INTO wide SELECT i, repeat(md5(i::text), 128)::bytea FROM generate_series(1, 5000) i));
$node->restart;
read_values($node, 'v', "SELECT generate_series(1, $values)") for 1 .. 5;
foreach my $pass (1, 2)
{
	$reads = stat_of($node, 'io_read_bytes');
	is($node->safe_psql('postgres', q(SELECT count(*) FROM wide WHERE b::bytea <> repeat(md5(id::text), 128)::bytea)),
		'0', "pass $pass over values of more than the buffer");
	$reads = stat_of($node, 'io_read_bytes') - $reads;
}
cmp_ok($reads, '<', 5000 * 4096 * 0.9, "the second pass finds some of them: $reads bytes read");
($reads, $ahead) = read_values($node, 'v', "SELECT generate_series(1, $values)");
cmp_ok($reads, '<', $values / 10, "values that are read often are in the buffer still: $reads requests");

check_is_clean($node, 'the check finds nothing after all reads');
$node->stop;

# ---- a standby ----

my $primary = blob_cluster('primary', streaming => 1, start => 0);
start_with_stops($primary);
$primary->safe_psql('postgres', 'CREATE EXTENSION blobext');
make_table($primary, 'v');
$primary->safe_psql('postgres', qq(CREATE TABLE l (id int, b blobstate, digest bytea);
	CREATE TABLE source AS SELECT string_agg(sha256(i::text::bytea), '') AS c FROM generate_series(1, $large / 32) i));
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
# Its content is logged after its write; its extents are in the map, here and there, before.
($session, $pid) = hold_at($primary, 'write', 'before',
	q(SET blobext.io_method = sync; INSERT INTO l SELECT 1, c, sha256(c) FROM source));
$primary->safe_psql('postgres', 'CREATE TABLE other ()');
$primary->wait_for_catchup($standby);
scan($standby);
let_go($pid, $session);
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT sha256(b::bytea) = digest FROM l'), 't',
	'a value whose content was replayed after the scan');

# Values that the standby lacks, behind others: no request has them.
sub add
{
	my ($first, $count) = @_;
	$primary->safe_psql('postgres', qq(INSERT INTO v SELECT i, c, c FROM (SELECT i,
		(repeat('x', 600) || repeat(md5(i::text), 600))::bytea AS c FROM generate_series($first, $first + $count - 1) i) s));
	return;
}
add($values + 1, 20);
$primary->append_conf('postgresql.conf', 'blobext.wal_content = off');
$primary->restart;
add($values + 21, 40);
$primary->wait_for_catchup($standby);
my ($lacking) = grep { $standby->psql('postgres', "SELECT md5(b) FROM v WHERE id = $_") != 0 }
  ($values + 1 .. $values + 60);
cmp_ok($lacking // 0, '>', $values + 20, 'the standby lacks values behind others');
$standby->restart;
my $last = $lacking - 1;
my $pages = $standby->safe_psql('postgres', qq(SELECT sum(e.pages) FROM v, blob_extents(b) AS e
	WHERE id BETWEEN $values + 1 AND $last));
($reads, $ahead) = read_values($standby, 'v', "SELECT generate_series($values + 1, $last)");
cmp_ok($ahead, '>', 0, "a scan before them requests $ahead bytes ahead");
cmp_ok($ahead, '<=', $pages * 4096, 'none of these is of a lacking value');
$ahead = stat_of($standby, 'read_ahead_bytes');
fails_with($standby, "SELECT id FROM v WHERE id >= $lacking ORDER BY b", 'XB002', qr/content .* missing/,
	'a sort of lacking values');
is(stat_of($standby, 'read_ahead_bytes'), $ahead, 'the sort has requested nothing');
$standby->stop;
$primary->stop;

done_testing();
