# Reads of trees of pieces: all runs that a read touches are requested together, and pages between
# them, which no reader has asked for, come along.
#
# A value goes through changes in the middle beside a bytea of the same content, and all of it and
# ranges of it are read, cold and warm: with a large buffer, with one of a few chunks, with none.  Then
# bits flip in pages that a tree does not use, but its base does, and in pages that it uses.
#
# Seen to fail: with all pages of a part compared for the caller (is_asked() always true); with a part
# that has a damaged page offered to the buffer (without is_withheld); with parts that do not begin
# where the buffer's range ends (begin_joined() returns early), which reads the device when warm; with
# bytes copied for the first of the parts of a chunk alone (copy_asked()); with one leaf at a time
# (blob_frames_read() sets no content_end): 11 reads; with the first of several leaves again in place of
# the second (open_leaf()).
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $seed = $ENV{BLOBEXT_SEED} // int(rand(1_000_000_000));
my $page_bytes = 4096;
my $chunk_bytes = 65536;
note("seed $seed");
srand($seed);
expect_damage();

my $node = blob_cluster('main', conf => "autovacuum = off\nblobext.cache_size = 64MB\nblobext.autogc = off\n");
sub sql { return $node->safe_psql('postgres', join(';', @_)); }
sub counter { my ($name) = @_; return sql("SELECT value FROM blobext_stat WHERE name = '$name'") }
sub device_reads { return counter('io_reads') }

sql(q(CREATE TABLE t (id integer, c bytea, b blobstate)),
	q(SELECT blobext_set_digest('t', 'b', 'deferred')),
	q(CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
		$$ SELECT substr(string_agg(sha256(random()::text::bytea), ''), 1, n) FROM generate_series(0, n / 32) $$),
	q(INSERT INTO t (id, c) SELECT i, noise(3000000 + i * 10000) FROM generate_series(1, 4) AS i),
	'UPDATE t SET b = c');

# ---- changes ----

# Random changes of a value and of its bytea, of sizes up to some bytes.
sub change
{
	my ($id, $count, $most) = @_;
	sql(qq(DO \$do\$ DECLARE at integer; size integer; n bytea; BEGIN
		PERFORM setseed(@{[ rand() ]});
		FOR i IN 1 .. $count LOOP
			at := (random() * (SELECT length(c) FROM t WHERE id = $id))::integer;
			size := 1 + (random() * $most)::integer;
			n := noise(size);
			CASE i % 3
				WHEN 0 THEN UPDATE t SET b = blob_insert(b, at, n), c = overlay(c PLACING n FROM at + 1 FOR 0) WHERE id = $id;
				WHEN 1 THEN UPDATE t SET b = blob_delete(b, least(at, length(b) - size), size),
					c = overlay(c PLACING '' FROM least(at, length(c) - size) + 1 FOR size) WHERE id = $id;
				ELSE UPDATE t SET b = blob_write(b, least(at, length(b) - size), n),
					c = overlay(c PLACING n FROM least(at, length(c) - size) + 1 FOR size) WHERE id = $id;
			END CASE;
		END LOOP; END \$do\$));
	return;
}

# Ranges of all lengths: what a read of each says.
sub ranges_are_right
{
	my ($name) = @_;
	is(sql(qq(SELECT count(*) FROM t, generate_series(1, 60) AS i,
			LATERAL (SELECT (random() * length(c))::integer AS at, (random() ^ 4 * 3000000)::integer AS size WHERE i > 0) AS r
			WHERE blob_read(b, at, size) <> substr(c, at + 1, size))), '0', "ranges are right, $name");
	is(sql(q(SELECT count(*) FROM t WHERE (SELECT string_agg(data, '' ORDER BY chunk_no)
			FROM blob_chunks(b, 100000 + (random() * 300000)::integer)) <> c)), '0', "sequences of pieces are right, $name");
	is(sql('SELECT count(*) FROM t WHERE b::bytea <> c'), '0', "all of each value is right, $name");
	return;
}

# More pieces than one list of requests has.
sub patch_often
{
	my ($id, $count) = @_;
	sql("INSERT INTO t (id, c) SELECT $id, noise($count * 40000)", "UPDATE t SET b = c WHERE id = $id",
		qq(UPDATE t SET b = blob_patch(b, at, data) FROM (SELECT array_agg(i * 40000::bigint) AS at, array_agg('\\x112233'::bytea) AS data
			FROM generate_series(0, $count - 1) AS i) AS p WHERE id = $id),
		qq(UPDATE t SET c = (SELECT string_agg('\\x112233' || substr(c, i * 40000 + 4, 39997), '' ORDER BY i)
			FROM generate_series(0, $count - 1) AS i) WHERE id = $id));
	return;
}

patch_often(6, 320);
change(1, 60, 100);
change(2, 60, 20000);
change(3, 60, 90000);
is(sql(q(SELECT count(*) FROM t WHERE id IN (1, 2, 3, 6) AND blob_storage(b) <> 'extents')), '0', 'the values are in extents');
sql('CHECKPOINT');
foreach my $size ('64MB', '1MB', '0')
{
	$node->append_conf('postgresql.conf', "blobext.cache_size = '$size'\n");
	$node->restart;
	ranges_are_right("cold, with a buffer of $size");
	ranges_are_right("warm, with a buffer of $size");
}
$node->append_conf('postgresql.conf', "blobext.cache_size = '64MB'\n");
$node->restart;
is(sql('SELECT count(*) FROM t WHERE b::bytea <> c'), '0', 'all is right after a restart');
my $cold = device_reads();
is(sql('SELECT count(*) FROM t WHERE b::bytea <> c'), '0', 'all is right when it was read before');
is(device_reads(), $cold, 'a warm read of trees reads nothing from the device');

# 640 pieces in 4 to 8 leaves: the root and up to four leaves, at most twice, and three times up to 256 pieces.
my $reads = counter('content_reads');
sql('SELECT length(b::bytea) FROM t WHERE id = 6');
cmp_ok(counter('content_reads') - $reads, '<=', 7, 'leaves of a tree are read together, not one after the other');
change(2, 5, 20000);
ranges_are_right('while pages are dirty');
check_is_clean($node, 'the check finds nothing');

# ---- dirty pages between others ----

# A chunk has pieces of three changes, of which the buffer has those of the second one, and the device
# not yet.  Seen to fail: with a part that goes on over dirty pages (limit of begin_joined()), which
# gives old bytes of the file where there are no checksums, and XX001 where there are.
$node->append_conf('postgresql.conf', "fsync = on\nwal_level = replica\nblobext.cache_size = '1MB'\nblobext.page_checksums = off\n");
$node->restart;
sub dirty_between
{
	my ($database, $name) = @_;
	$node->safe_psql($database, $_) foreach q(CREATE TABLE d (id integer, c bytea, b blobstate)),
		'INSERT INTO d (id, c) SELECT i, noise(3000000) FROM generate_series(1, 4) AS i', 'UPDATE d SET b = c';
	my @change = map { my ($at, $size) = @$_; "WITH n AS (SELECT noise($size) AS n) UPDATE d SET b = blob_write(b, $at, n), c = overlay(c PLACING n FROM $at + 1) FROM n" }
		[ 100_000, 24_000 ], [ 300_000, 20_000 ], [ 500_000, 400_000 ];
	$node->safe_psql($database, $_) foreach $change[0], 'CHECKPOINT';
	$node->restart;
	is($node->safe_psql($database, "$change[1]; $change[2]; SELECT count(*) FROM d WHERE b::bytea <> c"),
		'0', "dirty pages between others are read from the buffer, $name");
	is($node->safe_psql($database, 'SELECT count(*) FROM d WHERE b::bytea <> c'), '0', "later reads are right, $name");
	is($node->safe_psql($database, 'SELECT count(*) FROM blobext_check()'), '0', "the check finds nothing, $name");
	return;
}
dirty_between('postgres', 'with checksums');
$node->safe_psql('postgres', 'CREATE DATABASE plain');
$node->safe_psql('plain', $_) foreach 'CREATE EXTENSION blobext', q(CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
	$$ SELECT substr(string_agg(sha256(random()::text::bytea), ''), 1, n) FROM generate_series(0, n / 32) $$);
dirty_between('plain', 'without checksums');
$node->append_conf('postgresql.conf', "blobext.cache_size = '64MB'\n");
$node->restart;

# ---- damage ----

# The segment file and its byte of a stored offset of a plain value.
sub place_of
{
	my ($id, $offset) = @_;
	my $page = sql(qq(SELECT first_page + ($offset - before) / $page_bytes FROM (
		SELECT first_page, bytes, sum(bytes) OVER (ORDER BY extent_no) - bytes AS before
		FROM t, blob_extents(b) WHERE id = $id) AS e WHERE $offset >= before AND $offset < before + bytes));
	return (segment_file($node, int($page / 262144)), $page % 262144 * $page_bytes);
}

# What a read says: 'true', 'false', or its error.
sql(q(CREATE FUNCTION says(which integer) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE detail text;
	BEGIN RETURN (SELECT (b::bytea = c)::text FROM t WHERE id = which);
	EXCEPTION WHEN data_corrupted THEN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
		RETURN SQLSTATE || ' ' || detail; END $$));
# Row 5 shares the extents of row 4, but for 8 kB in the middle of a chunk, and 8 kB at the start of one.
my $middle = 5 * $chunk_bytes + 4 * $page_bytes;
my $start = 9 * $chunk_bytes;
sql('INSERT INTO t SELECT 5, c, b FROM t WHERE id = 4',
	map { "UPDATE t SET b = blob_delete(b, $_, 8192), c = overlay(c PLACING '' FROM $_ + 1 FOR 8192) WHERE id = 5" } $start, $middle);
my ($gap_file, $gap_byte) = place_of(4, $middle + 4096);
my ($start_file, $start_byte) = place_of(4, $start);
my ($used_file, $used_byte) = place_of(4, $middle + 8192);

sub flip_byte
{
	my ($file, $byte) = @_;
	$node->stop;
	flip_bit($file, $byte * 8 + int(rand(8 * $page_bytes)));
	$node->start;
	return;
}

flip_byte($gap_file, $gap_byte);
is(sql('SELECT says(5)'), 'true', 'damage between two pieces of a chunk is no error of a tree');
like(sql('SELECT says(4)'), qr/^XX001 The page at byte $gap_byte /, 'damage is an error of the value that has the page, also behind that read');
is(sql('SELECT says(5)'), 'true', 'the tree is read again behind that error');
flip_byte($start_file, $start_byte);
is(sql('SELECT says(5)'), 'true', 'damage before the first piece of a chunk is no error of a tree');
like(sql('SELECT says(4)'), qr/^XX001 The page at byte (?:$gap_byte|$start_byte) /,
	'damage before a piece is an error of the value that has the page');
flip_byte($used_file, $used_byte);
like(sql('SELECT says(5)'), qr/^XX001 The page at byte $used_byte /, 'damage of a page that a tree uses names this page');
is(sql(q(SELECT string_agg(DISTINCT id::text, ',') FROM blobext_check() AS k JOIN t ON t.ctid = k.tid)), '4,5',
	'the check names both rows');

done_testing();
