# Damaged entries of the extent map: a bit that flips in an entry hides no checksum, gives no page away
# that a value has, and stops no other value.
#
# Bits of the map flip while the server is down.  The bit that says that an extent has checksums: reads
# of the extent say XX001 although its pages are right, the check and blobext_verify name the entry.  The
# state of an entry with checksums: the same, and values are stored and appended all the same.  Both are
# mended by CALL blobext_add_checksums(), from the digest of the content, and then damage of the pages is
# found again.  (repair.pl: a worker mends them from another server.)  An entry that was empty, and seems
# to be an extent: no round frees its page.  An extent that seems to be free: its pages stay where they are.
#
# Seen to fail on the code before: a flipped bit of "has checksums" was not noticed, and pages were read
# uncompared; with a damaged entry in an extent no value could be stored after a start ("the extent map is
# damaged"); an extent whose state was lost was overwritten by other values.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

# Bits of the map are flipped, not the server's own checksums of its blocks (18 has them by default).
my @init = `initdb --help` =~ /--no-data-checksums/ ? ('--no-data-checksums') : ();
my $node = blob_cluster('main', init => \@init,
	conf => "autovacuum = off\nblobext.cache_size = 0\nblobext.autogc = off\nwal_level = replica\n");
sub sql { return $node->safe_psql('postgres', join(';', @_)); }

sql('CREATE TABLE t (id serial, c bytea, b blobstate)',
	q(CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
		$$ SELECT substr(string_agg(sha256(random()::text::bytea), ''), 1, n) FROM generate_series(0, n / 32) $$),
	# What a read says: 'true' if it is right, 'false' if it is not, or its error.
	q(CREATE FUNCTION says(query text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE result boolean;
		BEGIN EXECUTE query INTO result; RETURN result;
		EXCEPTION WHEN data_corrupted THEN RETURN SQLERRM; END $$),
	# Extents of tiers and tails, of one page and several, one that begins at the end of a block of the map.
	'INSERT INTO t (c) SELECT noise(3000 + i * 1000) FROM generate_series(1, 90) AS i',
	'INSERT INTO t (c) SELECT noise(n) FROM unnest(ARRAY[700000, 800001, 3000000]) AS n', 'UPDATE t SET b = c');
my $map = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('blobext_map')");

# An extent of a value that goes to its end, as (first page, pages, id).
sub extent_where
{
	my ($condition) = @_;
	my $line = sql("SELECT m.first_page, m.pages, id FROM t, blob_extents(b) AS e JOIN blobext_map AS m USING (first_page)
		WHERE e.bytes > (m.pages - 1) * 4096 AND $condition ORDER BY id LIMIT 1");
	$line =~ /\|/ or die "no extent where $condition";
	return split /\|/, $line;
}

# Flip these bits of entries, [page, bit], while the server is down.
sub flip_entries
{
	my (@bits) = @_;
	sql('CHECKPOINT');
	$node->stop;
	flip_bit($map, map_bit(@$_)) foreach @bits;
	return;
}

sub flip_and_start
{
	flip_entries(@_);
	$node->start;
	return;
}

sub says { return sql("SELECT says('SELECT b::bytea = c FROM t WHERE id = $_[0]')"); }
sub problems_of_map { return sql('SELECT problem FROM blobext_check() WHERE column_name IS NULL'); }
sub values_are_right { return is(sql('SELECT count(*) FROM t WHERE b::bytea <> c'), '0', "$_[0]: all values are right"); }
sub mend { return sql('CALL blobext_add_checksums()'); }

# Other values are stored, and freed ones make room.
sub stores_go_on
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $count = sql('SELECT count(*) FROM t');
	sql('INSERT INTO t (c, b) SELECT c, c FROM (SELECT noise(50000) AS c FROM generate_series(1, 20)) AS s');
	is(sql("SELECT count(*) - $count FROM t"), '20', "$name: other values are stored");
	return;
}

# A bit of a page that values have, flipped there and back, is noticed.
sub damage_is_found
{
	my ($page, $id, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $bit = ($page * 4096 + 99) * 8 + 3;
	flip_bit(segment_file($node), $bit);
	like(says($id), qr/^content in file "\S+" is damaged/, "$name: a flipped bit of a page is found");
	flip_bit(segment_file($node), $bit);
	is(says($id), 'true', "$name: the value is right when the bit is back");
	return;
}

my %extents = (
	'a tier' => "m.kind = 'tier' AND m.pages > 4 AND m.first_page % 510 < 400",
	'a tail' => "m.kind = 'tail' AND m.pages > 4 AND m.first_page % 510 < 400",
	'an extent of two pages' => 'm.pages = 2',
	'an extent at the end of a block' => 'm.pages > 1 AND m.first_page % 510 = 509',
	'a tier of one page' => "m.kind = 'tier' AND m.pages = 1");

# ---- the bit that says that an extent has checksums ----

# Make an extent begin at the last entry of a block of the map.
for (my $try = 0; $try < 600 && sql("SELECT count(*) FROM t, blob_extents(b) AS e JOIN blobext_map AS m USING (first_page)
	WHERE $extents{'an extent at the end of a block'} AND e.bytes > (m.pages - 1) * 4096") eq '0'; $try++)
{
	sql('INSERT INTO t (c, b) SELECT c, c FROM (SELECT noise(5000 + 4096 * (random() * 9)::int) AS c FROM generate_series(1, 30)) AS s');
}
check_is_clean($node, 'the check finds nothing before');
my $clean = sql('SELECT sum(pages) FROM blobext_map');
foreach my $kind (sort keys %extents)
{
	my ($first, $pages, $id) = extent_where($extents{$kind});
	my $name = "$kind without its bit";
	flip_entries([ $first, 7 ]);
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'blobext_verify', '-D', $node->data_dir ], '>', \$out, '2>', \$err);
	like($out . $err, qr/the entry of page $first is (impossible|none that a server writes)/, "$name: blobext_verify names the entry");
	$node->start;
	is(says($id), "the extent map lacks the checksum of page $first", "$name: the value is not read");
	my ($code, undef, $stderr) = $node->psql('postgres', "COPY t TO '/dev/null' (FORMAT binary)");
	like($stderr, qr/the extent map lacks the checksum of page $first/, "$name: a scan of the table fails");
	like(problems_of_map(), $pages == 1 ? qr/the entry of page $first is filled beyond its end/ :
		qr/^the entry of page $first does not say that its extent has checksums, which are there$/,
		"$name: the check names the entry");
	is(sql("SELECT count(*) FROM blobext_check('t') AS f JOIN t ON t.ctid = f.tid WHERE id = $id AND problem ~ 'content is right'"), '1',
		"$name: the check says that the content is right");
	stores_go_on($name);
	sql(q(DO $$ BEGIN UPDATE t SET b = b || 'more'::bytea, c = c || 'more'::bytea WHERE id = ) . $id
		. q(; EXCEPTION WHEN data_corrupted THEN NULL; END $$));
	mend();
	is(says($id), 'true', "$name: it is mended from the digest");
	check_is_clean($node, "$name: the check finds nothing when it is mended");
	damage_is_found($first + $pages - 1, $id, $name);
}

# ---- an entry with checksums ----

foreach my $bit (0, 5)
{
	my ($first, $pages, $id) = extent_where("m.kind = 'tier' AND m.pages > 9 AND m.first_page % 510 < 400");
	my $name = "a flipped bit $bit of the state of an entry with checksums";
	my $offset = -s $node->logfile;
	flip_and_start([ $first + 2, $bit ]);
	stores_go_on($name);
	like(substr(slurp_file($node->logfile), $offset), qr/1 entries of the extent map are damaged.*that of page @{[ $first + 2 ]}\. 0 bytes/s,
		"$name: the log says so");
	# The entry has the checksums of three pages.
	is(says($id), "the extent map lacks the checksum of page @{[ $first + 3 ]}", "$name: the value is not read");
	like(problems_of_map(), qr/^the entry of page @{[ $first + 2 ]} has an unknown state$/, "$name: the check names the entry");
	mend();
	is(says($id), 'true', "$name: it is mended from the digest");
	check_is_clean($node, "$name: the check finds nothing when it is mended");
	damage_is_found($first + 3, $id, $name);
}

# Values that grow into pages whose checksums lie in the damaged entry.
sql(q(CREATE TABLE grow (id int, c bytea, b blobstate)), 'SET blobext.tail_extents = off',
	q(INSERT INTO grow SELECT i, c, c FROM (SELECT i, noise(4096 * (i + 20)) AS c FROM generate_series(1, 12) AS i) AS s));
my @open = map { [ split /\|/ ] } split /\n/, sql(q(SELECT m.first_page, e.bytes / 4096, id FROM grow, blob_extents(b) AS e
	JOIN blobext_map AS m USING (first_page) WHERE m.kind = 'tier' AND e.bytes < m.pages * 4096 AND e.bytes / 4096 % 3 > 0 AND e.bytes > 8192));
cmp_ok(scalar @open, '>', 0, 'there are extents with room behind their values');
flip_and_start(map { [ $_->[0] + 1 + int($_->[1] / 3), 3 ] } @open);
sql(q(INSERT INTO grow SELECT id + 100, c || repeat('g', 9000)::bytea, b || repeat('g', 9000)::bytea FROM grow WHERE id = ) . $_->[2]) foreach @open;
is(sql(q(SELECT count(*) FROM grow WHERE id > 100 AND b::bytea = c)), scalar @open, 'values grow where an entry with their checksums is damaged');
mend();
is(sql('SELECT count(*) FROM grow WHERE b::bytea <> c'), '0', 'values that grew there are right');
check_is_clean($node, 'the check finds nothing when these are mended');
$node->stop('immediate');
$node->start;
values_are_right('after a crash');
is(sql('SELECT count(*) FROM grow WHERE b::bytea <> c'), '0', 'values that grew there survive a crash');
check_is_clean($node, 'mended entries survive a crash');

# ---- an entry of no use that seems to be an extent ----

foreach my $bit (0, 2, 70)
{
	my ($first, $pages, $id) = extent_where('m.pages > 9');
	my $name = "a flipped bit $bit of an entry that was empty";
	flip_and_start([ $first + $pages - 1, $bit ]);
	stores_go_on($name);
	sql('DELETE FROM t WHERE id IN (SELECT max(id) FROM t)', 'VACUUM t');
	like(sql('SELECT freed_blobs, skipped_reason FROM blobext_gc()'), qr/^\d+\|$/, "$name: a round frees other values");
	stores_go_on("$name, after the round");
	values_are_right($name);
	like(problems_of_map(), qr/the entry of page @{[ $first + $pages - 1 ]} /, "$name: the check names the entry");
	flip_and_start([ $first + $pages - 1, $bit ]);
	check_is_clean($node, "$name: the check finds nothing when the bit is back");
}

# ---- an extent that seems to be free ----

foreach my $bit (0, 6)
{
	my ($first, $pages, $id) = extent_where("m.kind = 'tier' AND m.pages > 9");
	my $name = "a flipped bit $bit of the state of an extent";
	my $offset = -s $node->logfile;
	flip_and_start([ $first, $bit ]);
	stores_go_on($name);
	like(substr(slurp_file($node->logfile), $offset), qr/that of page $first\. [1-9]\d* bytes/, "$name: the log says that its pages are not given out");
	sql('DELETE FROM t WHERE id IN (SELECT max(id) FROM t)', 'VACUUM t');
	sql('SELECT * FROM blobext_gc()');
	stores_go_on("$name, after a round");
	flip_and_start([ $first, $bit ]);
	is(says($id), 'true', "$name: the value is right when the bit is back");
	values_are_right($name);
	check_is_clean($node, "$name: the check finds nothing when the bit is back");
}
$node->stop;

# ---- the limit ----

# Pages behind an entry that is damaged when the load comes to it count for blobext.max_store_size: it may be mended, and the extent freed.
# Seen to fail, with 53400 for all stores: with pages that did not count when they were loaded.
$node = blob_cluster('limit', init => \@init, conf => "autovacuum = off\nblobext.autogc = off\n");
sql('CREATE TABLE t (id serial, c bytea, b blobstate)', q(ALTER DATABASE postgres SET blobext.max_store_size = '64MB'),
	q(INSERT INTO t (b) SELECT convert_to(repeat('x', 3000), 'UTF8') FROM generate_series(1, 10)));
$map = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('blobext_map')");
flip_and_start(map { [ $_, 7 ] } split /\n/, sql('SELECT first_page FROM t, blob_extents(b) AS e'));
is(sql(q(SELECT sum(bytes) > 0 FROM blobext_space WHERE state = 'free')), 't', 'the free space is loaded');
mend();
sql('DELETE FROM t', 'VACUUM t');
is(sql('SELECT freed_blobs FROM blobext_gc()'), '10', 'a round frees extents whose entries were mended');
sql(q(INSERT INTO t (b) SELECT convert_to(repeat('y', 3000), 'UTF8')));
is(sql('SELECT count(*) FROM t WHERE length(b) = 3000'), '1', 'a value within the limit is stored after that');
$node->stop;

done_testing();
