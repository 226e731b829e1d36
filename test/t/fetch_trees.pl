# Pages of which a value has a part, or nothing: the rest is another value's, which its digest does not prove.
#
# A promoted standby lacks a plain value, and a tree that shares its extents; blobext_fetch() of the table of the tree alone
# brings the plain value, too, or leaves it missing: in stores without checksums, with them, and where those of such pages
# are not known.  A repair of a tree sets no checksum of a page whose other bytes are damaged.  That of a compressed value takes nothing over from
# the source but its own frames.
#
# Seen to fail: with pages that are taken for proven if the tree has a byte of them, and whose rest is read here
# (write_partial_page() of heal/fetch.c before); with has_gaps() false for compressed values, in the last part.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

my $calm = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 10GB\nblobext.cache_size = 0\nblobext.rewrite_limit = 64kB\n";
my $written_at = 2_000_000;

sub standby_of
{
	my ($primary, $name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$primary->backup($name);
	$node->init_from_backup($primary, $name, has_streaming => 1);
	$node->start;
	return $node;
}

sub from { return $_[0]->connstr('postgres') =~ s/'/''/gr; }

# Problems of a fetch of missing content of a table.
sub fetch
{
	my ($node, $source, $table) = @_;
	return $node->safe_psql('postgres', "SELECT count(*), problem FROM blobext_fetch('" . from($source)
		. "', checked => '$table', damaged => false) GROUP BY problem ORDER BY problem");
}

# A plain value, and a tree in another table that is the same but for a few bytes.
sub make_values_that_share
{
	my ($node) = @_;
	$node->safe_psql('postgres', qq(
CREATE TABLE plain (b blobstate, digest text);
CREATE TABLE tree (b blobstate, digest text);
CREATE FUNCTION state_of(content blobstate, digest text) RETURNS text LANGUAGE plpgsql AS \$\$
BEGIN
	RETURN CASE WHEN encode(sha256(content::bytea), 'hex') = digest THEN 'right' ELSE 'wrong' END;
EXCEPTION WHEN SQLSTATE 'XB002' THEN
	RETURN 'missing';
WHEN SQLSTATE 'XX001' THEN
	RETURN 'damaged';
END \$\$;
INSERT INTO plain SELECT string_agg(sha256(i::text::bytea), '' ORDER BY i) FROM generate_series(1, 131072) i;
INSERT INTO tree SELECT blob_write(b, $written_at, '\\xdeadbeef') FROM plain;
UPDATE plain SET digest = encode(sha256(b), 'hex');
UPDATE tree SET digest = encode(sha256(b), 'hex')));
	is($node->safe_psql('postgres', 'SELECT blob_stored_length(tree.b) > length(tree.b) AND EXISTS (SELECT first_page FROM blob_extents(plain.b)
		WHERE first_page IS NOT NULL INTERSECT SELECT first_page FROM blob_extents(tree.b)) FROM plain, tree'), 't',
		'the tree shares extents of the plain value');
	return;
}

sub states
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT state_of(b, digest) FROM plain UNION ALL SELECT state_of(b, digest) FROM tree');
}

# The page that has a byte of the plain value.
sub page_of
{
	my ($node, $offset) = @_;
	return $node->safe_psql('postgres', "SELECT first_page + ($offset - start) / 4096 FROM (SELECT first_page, bytes,
		sum(bytes) OVER (ORDER BY extent_no) - bytes AS start FROM plain, blob_extents(b)) AS e
		WHERE $offset >= start AND $offset < start + bytes");
}

# ---- missing content ----

foreach my $kind ('without checksums', 'with checksums', 'with checksums of which some are unknown')
{
	my $name = $kind =~ s/ /_/gr;
	my $sums = $kind eq 'with checksums' ? '' : "blobext.page_checksums = off\n";
	my $old = blob_cluster("old_$name", streaming => 1, conf => $calm . $sums . "blobext.wal_content = off\n");
	my $new = standby_of($old, "new_$name");
	make_values_that_share($old);
	if ($kind =~ /unknown/)
	{
		$old->safe_psql('postgres', $_) foreach 'SELECT blobext_enable_checksums()', q(CALL blobext_add_checksums('tree'));
	}
	$old->wait_for_catchup($new);
	$new->promote;
	$new->safe_psql('postgres', 'CHECKPOINT');
	is(states($new), "missing\nmissing", "a promoted standby lacks both values $kind");
	is(fetch($new, $old, 'tree'), '1|', "a tree is fetched $kind");
	is(states($new), "right\nright", "the value that shares pages with the tree is right $kind");
	check_is_clean($new, "the check finds no problem after the fetch $kind");
	$_->stop foreach ($new, $old);
}

# A source that may not be asked for bytes which no digest proves: two histories that look like one.
my $original = blob_cluster('original', streaming => 1, conf => $calm . "blobext.page_checksums = off\nblobext.wal_content = off\n");
my $copy = standby_of($original, 'copy');
make_values_that_share($original);
$original->wait_for_catchup($copy);
$copy->stop;
unlink $copy->data_dir . '/standby.signal';
$copy->start;
is(states($copy), "missing\nmissing", 'a copy that goes on lacks both values');
like(fetch($copy, $original, 'tree'), qr/^1\|.*only a standby/, 'pages of which the tree has a part are not taken from such a source');
is(states($copy), "missing\nmissing", 'both values are missing still');
is(fetch($copy, $original, 'plain'), '1|', 'the plain value, which fills its pages, is fetched from such a source');
is(states($copy), "right\nmissing", 'the plain value is right then');
is(fetch($copy, $original, 'tree'), '1|', 'the tree is fetched from such a source when what it shares is here');
is(states($copy), "right\nright", 'both values are right in the end');
$_->stop foreach ($copy, $original);

# ---- damaged content ----

# A page of both: the byte at the offset of the write is not the tree's, the one before it is.
my $primary = blob_cluster('primary', streaming => 1, conf => $calm);
my $standby = standby_of($primary, 'standby');
make_values_that_share($primary);
$primary->wait_for_catchup($standby);
my $page = page_of($primary, $written_at);
my $bit = ($page % 262_144) * 4096 * 8 + ($written_at % 4096) * 8;

sub flip
{
	my ($bit_no, @nodes) = @_;
	$_->safe_psql('postgres', 'CHECKPOINT') foreach @nodes;
	$_->stop foreach reverse @nodes;
	flip_bit(segment_file($_, int($page / 262_144)), $bit_no) foreach @nodes;
	$_->start foreach @nodes;
	return;
}

sub repair
{
	my ($table) = @_;
	return $primary->safe_psql('postgres', "SELECT problem FROM blobext_check('$table', '" . from($standby) . "')");
}

flip($bit, $primary, $standby);
flip($bit - 1, $primary);
is(states($primary), "damaged\ndamaged", 'a page of both values is damaged');
like(repair('tree'), qr/bytes of other values/, 'a page whose other bytes have not their checksum is reported');
is(states($primary), "damaged\ndamaged", 'the damage of the other value is not given a checksum');
flip($bit, $standby);
is(repair('tree'), '', 'the tree is repaired by a standby that has the page');
is(states($primary), "right\nright", 'the value that shares the page is repaired with the tree');
check_is_clean($primary, 'the check finds no problem after the repair');

# A compressed value that has grown has the directory of its base among its stored bytes.
$primary->safe_psql('postgres', q(
CREATE TABLE packed (b blobstate, digest text);
SELECT blobext_set_compression('packed', 'b', 'lz4');
SET blobext.tail_extents = off;
INSERT INTO packed SELECT convert_to(repeat(md5('packed'), 1500000), 'UTF8');
CREATE TABLE grown AS SELECT b || convert_to(repeat(md5('grown'), 40000), 'UTF8') AS b, digest FROM packed;
UPDATE packed SET digest = encode(sha256(b), 'hex');
UPDATE grown SET digest = encode(sha256(b), 'hex');
CHECKPOINT));
$primary->wait_for_catchup($standby);
my $gap = $primary->safe_psql('postgres', q(SELECT p.first_page + (p.bytes - 1) / 4096 FROM packed, grown, LATERAL blob_extents(packed.b) AS p,
	LATERAL blob_extents(grown.b) AS g WHERE p.bytes > 0 AND g.first_page = p.first_page AND g.bytes > p.bytes));
like($gap, qr/^\d+$/, 'the directory of the base lies among the stored bytes of the longer value');
my $first = $primary->safe_psql('postgres', 'SELECT first_page FROM grown, blob_extents(b) ORDER BY extent_no LIMIT 1');
$page = $gap;
flip(($page % 262_144) * 4096 * 8 + 99, $standby);
$page = $first;
flip(($page % 262_144) * 4096 * 8 + 99, $primary);
my $packed_states = 'SELECT state_of(b, digest) FROM packed UNION ALL SELECT state_of(b, digest) FROM grown';
is($primary->safe_psql('postgres', $packed_states), "damaged\ndamaged", 'a frame of both compressed values is damaged');
is(repair('grown'), '', 'the longer compressed value is repaired');
is($primary->safe_psql('postgres', $packed_states), "right\nright", 'damage of the source beside the frames of a value is not taken over');
check_is_clean($primary, 'the check finds no problem after the repair of compressed values');
$_->stop foreach ($standby, $primary);

done_testing();
