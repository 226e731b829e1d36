# blobext_check() finds errors in the extent map, in references to it, and in claims.
#
# While the server is down, entries of the map are overwritten in its file.  Each time the check
# must name the problem, of the map, of rows, of keys of an index (also where no row has the value
# any more), and nothing else.  Once the entry is as it was, the check must be clean.  Problems of
# contents and files are in faults.pl.  Then its progress, its cancellation, and a standby.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

# Checksums of the map's blocks, which 18 has by default, would find the damage first; entries of extents without
# checksums are simpler (those with: page_sums.pl).
my $node = blob_cluster('main', streaming => 1,
	conf => "autovacuum = off\nignore_checksum_failure = on\nblobext.page_checksums = off\n");
my $per_block = 510;
my ($tier, $tail, $absent) = (1, 2, 3);

# Values of 28 kB in extents of tier sizes only.
$node->safe_psql('postgres', q(
CREATE TABLE t (id integer, b blobstate);
CREATE INDEX t_b ON t (b);
SET blobext.tail_extents = off;
INSERT INTO t SELECT i, convert_to(repeat(md5(i::text), 900), 'UTF8')
	FROM generate_series(1, 3) AS i));
check_is_clean($node, 'the check finds nothing before the damage');

my ($page, $pages, $generation, $kind, $fill) = split /\|/, $node->safe_psql('postgres', q(
	SELECT m.first_page, m.pages, m.generation, m.kind, m.fill_bytes FROM blobext_map AS m
	JOIN (SELECT e.* FROM t, blob_extents(b) AS e WHERE id = 2) AS e USING (first_page)
	WHERE m.pages > 1 ORDER BY first_page LIMIT 1));
like($kind, qr/tier/, 'an extent of tier size');
my $map_file = $node->data_dir . '/'
  . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('blobext_map')));

# The entry of a page as two numbers; sets it if there are new ones.
sub entry
{
	my ($entry_page, @new) = @_;
	my $offset = (1 + int($entry_page / $per_block)) * 8192 + 24 + ($entry_page % $per_block) * 16;
	open(my $file, '+<:raw', $map_file) or die "$map_file: $!";
	sysseek($file, $offset, 0);
	sysread($file, my $old, 16);
	if (@new)
	{
		sysseek($file, $offset, 0);
		syswrite($file, pack('QQ', @new));
	}
	close $file;
	return unpack('QQ', $old);
}

sub check_with
{
	my ($entry_page, @new) = @_;
	$node->stop;
	my @old = entry($entry_page, @new);
	$node->start;
	my $found = $node->safe_psql('postgres',
		'SELECT relation, column_name, problem FROM blobext_check()
			ORDER BY relation::text, problem');
	$node->stop;
	entry($entry_page, @old);
	$node->start;
	return $found;
}

sub finds
{
	my ($name, $like, $entry_page, @new) = @_;
	my $found = check_with($entry_page, @new);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return like($found, qr/\A$like\z/, $name);
}

$node->stop;
my ($generation_state, $measure) = entry($page);
is($generation_state, $generation << 8 | $tier, 'the entry is where it should be');
my $tier_no = $measure >> 56;
is($measure & ((1 << 56) - 1), $fill, 'with its high-water mark');
$node->start;

# ---- the map ----

my $value = qr/t\|b\|extent \d+ at page $page is not allocated to this value/;
my $key = qr/t_b\|b\|extent \d+ at page $page is not allocated to this value/;
finds('an entry in an unknown state is found', qr/blobext_map\|\|the entry of page $page has an unknown state\n$value\n$key/,
	$page, $generation << 8 | 7, $measure);
finds('an entry of an impossible length is found', qr/blobext_map\|\|the entry of page $page has an impossible length\n$value\n$key/,
	$page, $generation << 8 | $tail, 0);
finds('absent pages in the middle of a segment',
	qr/blobext_map\|\|the entry of page $page marks absent pages .*\n$value\n$key/, $page, $absent, 1);
finds('filled beyond its end', qr/blobext_map\|\|the entry of page $page is filled beyond its end/,
	$page, $generation_state, $tier_no << 56 | ($pages * 4096 + 1));
finds('an entry without a generation is found', qr/blobext_map\|\|the entry of page $page has no generation/,
	$page, $tier, $measure);
finds('a generation that was never given',
	qr/blobext_map\|\|the extent at page $page has generation \d+, numbers were given below \d+\n$value\n$key/,
	$page, 1 << 50 | $tier, $measure);
finds('a free entry with a fill is found', qr/blobext_map\|\|the entry of page @{[$page + 1]} is not zero/, $page + 1, 0, 5);
finds('extents that overlap are found', qr/blobext_map\|\|the extent at page @{[$page + 1]} overlaps the one at page $page/,
	$page + 1, $generation << 8 | $tail, 1);

# ---- references ----

finds('an extent that was freed', qr/$value\n$key/, $page, 0, 0);
finds('an extent that was given to somebody else', qr/$value\n$key/, $page,
	($generation + 1000) << 8 | $tier, $measure);
my $unclaimed = qr/content in extent \d+ at page $page goes beyond the extent's high-water mark/;
finds('bytes that nobody claimed', qr/t\|b\|$unclaimed\nt_b\|b\|$unclaimed/, $page, $generation_state,
	$tier_no << 56 | 100);

# A key outlives its row until VACUUM has been there.
$node->safe_psql('postgres', 'DELETE FROM t WHERE id = 2');
finds('a key without a row', $key, $page, 0, 0);
is($node->safe_psql('postgres', q(SELECT count(*) FROM blobext_check('t'))), '0', 'the check of one table does not report another\'s key');
$node->safe_psql('postgres', 'VACUUM t');
$node->safe_psql('postgres', 'SELECT blobext_gc()');
check_is_clean($node, 'clean after VACUUM and a collection');

# ---- progress ----

$node->safe_psql('postgres', 'CREATE TABLE later (b blobstate)');
my $locker = $node->background_psql('postgres', on_error_stop => 1);
$locker->query_safe('BEGIN; LOCK later');
my ($out, $err) = ('', '');
my $run = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		'SELECT * FROM blobext_check()' ], '>', \$out, '2>', \$err);
ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM blobext_check_progress
	JOIN pg_stat_activity USING (pid) WHERE wait_event_type = 'Lock')), 'a check that waits for a lock is shown with its progress');
is($node->safe_psql('postgres', q(SELECT relations_done > 0, relations_total > relations_done,
	values_done, bytes_read FROM blobext_check_progress)), 't|t|2|57600', 'the progress of a waiting check is shown');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM blobext_check_progress');
IPC::Run::finish($run);
like($err, qr/canceling statement due to user request/, 'a waiting check can be cancelled');
is($node->safe_psql('postgres', 'SELECT count(*) FROM blobext_check_progress'), '0',
	'a check that ended shows no progress');
$locker->quit;

# ---- a standby ----

$node->safe_psql('postgres', q(CREATE UNLOGGED TABLE u (b blobstate);
	CREATE INDEX ON u (b); INSERT INTO u SELECT b FROM t));
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', q(INSERT INTO t SELECT 9, convert_to(repeat(md5('9'), 900), 'UTF8')));
$node->wait_for_catchup($standby);
check_is_clean($standby, 'a standby, where an unlogged table has no file');
is($standby->safe_psql('postgres', q(SELECT count(*) FROM blobext_check('u'))), '0',
	'such a table by itself');
$standby->stop;
$node->stop;
done_testing();
