# A full disk refuses a value only if the free pages of the store cannot take its extents one by one.
#
# The store is so large, and its free part so small, that a store that may grow would not divide the
# value.  The store's directory is on a small file system of its own (see disk_full.pl), which is
# filled.  Sizes are in pages.
#
# Seen to fail with *anywhere never set by blob_store_grow(): all but those of refusals and of the
# limit of the database.  Others are named where they are.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $small = $ENV{BLOBEXT_SMALL_FS};
plan skip_all => 'no small file system: start this test with test/run tap as root'
  unless defined $small;

my $refused = qr/could not store blob content: disk is almost full/;
power('format');
mkdir "$small/store", 0700 or die "$small/store: $!";
my $node = blob_cluster('main', start => 0,
	conf => "wal_level = minimal\nmax_wal_senders = 0\nautovacuum = off\ncheckpoint_timeout = 1h\n"
	  . "max_wal_size = 4GB\nblobext.keep_free = -1\nblobext.min_free_disk = 16MB\n");
symlink("$small/store", $node->data_dir . '/pg_blobext') or die "symlink: $!";
$node->start;

sub sql
{
	return $node->safe_psql('postgres', join(";\n", @_));
}

# noise(): content of its own for each key.  fill(): values of one byte, until not a page is left.
sql('CREATE EXTENSION blobext', q(CREATE TABLE v (key text, digest text, b blobstate)),
	q(CREATE TABLE victim (b blobstate)), q(CREATE TABLE filler (b blobstate)),
	q(CREATE FUNCTION noise(key text, pages int) RETURNS bytea LANGUAGE sql AS $$
		SELECT convert_to(string_agg(md5(key || i), ''), 'UTF8') FROM generate_series(1, pages * 128) AS i $$),
	q(CREATE FUNCTION same(pages int) RETURNS bytea LANGUAGE sql AS $$
		SELECT convert_to(repeat('x', pages * 4096), 'UTF8') $$),
	q(CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$
		DECLARE pages int;
		BEGIN
			FOREACH pages IN ARRAY '{1024, 256, 64, 16, 4, 1}'::int[] LOOP
				LOOP
					BEGIN
						INSERT INTO filler VALUES (same(pages));
					EXCEPTION WHEN disk_full THEN EXIT;
					END;
				END LOOP;
			END LOOP;
		END $$),
	q(INSERT INTO filler SELECT same(1000) FROM generate_series(1, 60)));

# Leave to stores what they may take, or 2 MB.
sub allow_growth
{
	my ($allowed) = @_;
	unlink "$small/filler";
	my ($line) = (split /\n/, `df -B1 --output=avail '$small'`)[1];
	system_or_bail('fallocate', '-l', $line - 18 * 1024 * 1024, "$small/filler") if !$allowed;
	return;
}

# Free what victims have; it waits for a checkpoint.
sub collect
{
	my $skipped = sql('SELECT skipped_reason FROM blobext_gc()');
	die "a round frees nothing: $skipped" if $skipped ne '';
	return;
}

# From here on the store has free runs of these lengths, in this order, and cannot grow.
sub make_holes
{
	my (@holes) = @_;

	allow_growth(0);
	sql('CALL fill()');
	allow_growth(1);
	sql(map { ("INSERT INTO victim VALUES (same($_))", 'INSERT INTO filler VALUES (same(10))') } @holes);
	allow_growth(0);
	sql('CALL fill()');
	sql('DELETE FROM victim');
	collect();
	sql('CHECKPOINT');
	return;
}

sub store
{
	my ($key, $pages) = @_;
	return "INSERT INTO v SELECT '$key', encode(sha256(c), 'hex'), c FROM noise('$key', $pages) AS c";
}

# Test that the statements succeed, and that the value of the key has its bytes in several runs.
sub is_stored
{
	my ($name, $key, @sql) = @_;
	my ($result, $stdout, $stderr) = $node->psql('postgres', join(";\n", @sql), on_error_stop => 1);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($stderr, '', $name) or return;
	is(sql("SELECT encode(sha256(b::bytea), 'hex') = digest AND encode(sha256(b), 'hex') = digest
		FROM v WHERE key = '$key'"), 't', "$name: its bytes are those that were stored");
	cmp_ok(sql("SELECT count(*) FROM (SELECT first_page, lag(first_page + pages) OVER (ORDER BY first_page)
		AS end_before FROM v, blob_extents(b) WHERE key = '$key') AS e
		WHERE end_before IS DISTINCT FROM first_page"), '>', 1, "$name: it lies in several runs");
	return;
}

make_holes(269, 269, 269, 269);
is_stored('a value that fits into the sum of the holes is stored', 'sum', store('sum', 732));
fails_with($node, store('more', 400), '53100', $refused, 'a value that needs more pages than are free is refused');

# 732 pages wait for a checkpoint, 344 are free.  Seen to fail with a wait only where those that wait
# are enough.
sql(q(DELETE FROM v WHERE key = 'sum'));
collect();
is_stored('pages that are free, and others that wait for a checkpoint, are enough together', 'waited', store('waited', 760));

make_holes(269, 269, 269, 269);
fails_with($node, store('long', 1030), '53100', $refused, 'a value with an extent that no hole has room for is refused');
is_stored('a refused value leaves all free pages to others', 'after', store('after', 760));

# Seen to fail with the last extent taken first, whatever its length.
make_holes(269, 135, 135);
is_stored('a short last extent takes no room that a longer one needs', 'tail', store('tail', 531));

# A stream takes the tiers that its pieces need: up to 511 pages none is longer than 256.
sub stream
{
	my ($key, $pages) = @_;
	return "INSERT INTO v SELECT '$key', encode(sha256(string_agg(c, '' ORDER BY i)), 'hex'), blob_agg(c ORDER BY i)
		FROM (SELECT i, noise('$key' || i, $pages) AS c FROM generate_series(1, 4) AS i) AS piece";
}

make_holes(269, 269, 269);
is_stored('pieces of a stream are stored in holes', 'stream', stream('stream', 125));
make_holes(269, 269, 269);
fails_with($node, stream('longer', 150), '53100', $refused, 'a stream whose next tier no hole has room for is refused');

make_holes(150, 269, 135, 70);
is_stored('an append is stored in holes', 'append', store('append', 100),
	q(UPDATE v SET b = blob_append(b, noise('more', 400)),
		digest = encode(sha256(noise('append', 100) || noise('more', 400)), 'hex') WHERE key = 'append'));

# The limit of a database counts what values take, not the files.  Seen to end here with
# blob_store_is_over_limit() that counts free pages, too.
make_holes(269, 269, 269, 269);
allow_growth(1);
sql(q(DO $$ BEGIN EXECUTE format('ALTER DATABASE postgres SET blobext.max_store_size = %L',
	(SELECT allocated_bytes / 1048576 + 4 || 'MB' FROM blobext_databases WHERE datname = current_database())); END $$));
sql(store('limit', 732));
pass('with a limit of the database a store that has free pages in short runs grows');
sql('ALTER DATABASE postgres RESET blobext.max_store_size');

$node->stop('immediate');
$node->start;
is(sql(q(SELECT key FROM v WHERE encode(sha256(b::bytea), 'hex') <> digest)), '', 'after a crash all values have their bytes');
no_page_is_shared($node, 'no two values have a page in common', 'v', 'filler');
check_is_clean($node, 'the check finds nothing');
$node->stop;
done_testing();
