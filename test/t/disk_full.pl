# Disk full in the middle of a store.
#
# The store's directory is on a small file system of its own (pg_blobext a symbolic link there,
# which is for tests only; test/run tap makes the file system and needs root for it).  A value that
# does not fit fails with SQLSTATE 53100 and a hint, whether it is too large as a whole or the
# space is used up bit by bit; nothing of it stays behind; the server lives; smaller values still
# work, earlier ones are intact; once there is space, the same value is stored.
#
# The same with all files, WAL included, on the small file system: the pages that a failed store
# took are given back, so the rest of the server goes on.
#
# That it can fail: with ftruncate() in place of fallocate() in io/segment_space.c the store fails later,
# and takes the server with it; the first tests below say so.
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

power('format');
my $store = "$small/store";
mkdir $store or die "cannot make $store: $!";
chmod 0700, $store;

my $hundred_mb = q(convert_to(repeat(md5('large'), 100 * 1024 * 1024 / 32), 'UTF8'));
my $full = qr/could not (reserve space for|write) blob content: No space left on device/;

sub free_bytes
{
	my ($path) = @_;
	my ($line) = (split /\n/, `df -B1 --output=avail $path`)[1];
	return $line + 0;
}

# Fill the file system until the given number of MB is free.
sub fill_up_to
{
	my ($left_mb) = @_;
	my $bytes = free_bytes($small) - $left_mb * 1024 * 1024;
	system('fallocate', '-l', $bytes, "$small/filler") == 0 or die "cannot fill $small";
	return;
}

# ---- only the store is on the full file system ----

# disk_limit.pl tests the limit that would be reached before.
my $unlimited = "blobext.min_free_disk = 0\n";
my $node = blob_cluster('main', start => 0, conf => $unlimited);
symlink($store, $node->data_dir . '/pg_blobext') or die "symlink: $!";
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION blobext; CREATE TABLE t (id serial, b blobstate)');
make_values($node, 'v');
my $early = $node->safe_psql('postgres', 'SELECT count(*) FROM v');
fill_up_to(60);

my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $before = free_bytes($small);
my $size_before = -s segment_file($node);
fails_with($node, "INSERT INTO t (b) VALUES ($hundred_mb)", '53100', $full,
	'a value of 100 MB on 60 MB');
fails_with($node, "INSERT INTO t (b) VALUES ($hundred_mb)", '53100',
	qr/HINT:  Check free disk space and quotas/,
		'the second attempt fails the same way, with a hint');
cmp_ok(abs(free_bytes($small) - $before), '<', 64 * 1024,
	'what the failed stores took is given back');
is(-s segment_file($node), $size_before, 'the segment file has its size of before');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', 'no row of them');

add_values($node, 'v', 100_000, 1_000_000, 5_000);
values_are_intact($node, 'v', 'smaller values are stored, earlier ones intact');
check_is_clean($node, 'the check finds nothing');

# A transaction keeps values that it stored before the error, if the error was in a subtransaction.
$node->safe_psql('postgres', qq(
INSERT INTO t (b) VALUES (convert_to(repeat('before', 100000), 'UTF8'));
DO \$\$
BEGIN
	INSERT INTO t (b) VALUES (convert_to(repeat('in front', 50000), 'UTF8'));
	BEGIN
		INSERT INTO t (b) VALUES ($hundred_mb);
		RAISE 'the value was stored';
	EXCEPTION WHEN disk_full THEN
		INSERT INTO t (b) VALUES (convert_to(repeat('instead', 50000), 'UTF8'));
	END;
END \$\$));
is($node->safe_psql('postgres', q(SELECT left(convert_from(b::bytea, 'UTF8'), 6), length(b) FROM t
	ORDER BY id)), "before|600000\nin fro|400000\ninstea|350000",
	'the transaction goes on behind a subtransaction that failed');

# Bit by bit to the very end, in single rows and in many rows of one statement.
my $stored = 0;
for my $i (1 .. 100)
{
	my ($result) = $node->psql('postgres',
		"INSERT INTO t (b) VALUES (convert_to(repeat(md5('$i'), 32768), 'UTF8'))");
	last if $result != 0;
	$stored++;
}
ok($stored > 10 && $stored < 100, "$stored single values of 1 MB until the disk is full");
fails_with($node, q(INSERT INTO t (b) SELECT convert_to(repeat(md5(i::text), 1000), 'UTF8')
	FROM generate_series(1, 5000) i), '53100', $full, 'many values of 32 kB fill the rest');
$node->safe_psql('postgres', q(INSERT INTO t (b) VALUES ('\x626c6f62')));
pass('a small value needs no extents');
values_are_intact($node, 'v', 'all values are intact on the full disk');
check_is_clean($node, 'the check finds nothing on the full disk');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started,
	'the server has not restarted');

$node->stop;
$node->start;
values_are_intact($node, 'v', 'values after a restart on the full disk');
kill_everything($node);
$node->start;
values_are_intact($node, 'v', 'values after a crash on the full disk');
check_is_clean($node, 'the check finds nothing after the crash');

unlink "$small/filler";
$node->safe_psql('postgres', "INSERT INTO t (b) VALUES ($hundred_mb)");
is($node->safe_psql('postgres', qq(SELECT sha256(b::bytea) = sha256($hundred_mb) FROM t
	WHERE length(b) = 104857600)), 't', 'with space made, the value is stored');
values_are_intact($node, 'v', 'all values at the end');
check_is_clean($node, 'the check finds nothing at the end');
is($node->safe_psql('postgres', 'SELECT count(*) FROM v'), $early + 3, 'each value that was stored with room on the disk has its row');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'no PANIC, no crash in the log');

# ---- the data directory and the WAL are there, too ----

power('format');
{
	local $PostgreSQL::Test::Utils::tmp_check = $small;
	$node = blob_cluster('whole', init => ['--wal-segsize=1'],
		conf => $unlimited . "wal_level = replica\nmax_wal_senders = 0\n"
		  . "min_wal_size = 2MB\nmax_wal_size = 24MB\n");
}
make_values($node, 'v');
$node->safe_psql('postgres', 'CREATE TABLE t (id serial, b blobstate)');
fill_up_to(80);
$started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
fails_with($node, "INSERT INTO t (b) VALUES ($hundred_mb)", '53100', $full,
	'content and WAL on one full disk: a value of 100 MB on 80 MB');
add_values($node, 'v', 100_000, 1_000_000);
$node->safe_psql('postgres',
	'CREATE TABLE other AS SELECT generate_series(1, 10000) AS i; CHECKPOINT');
values_are_intact($node, 'v', 'the server goes on: values');
check_is_clean($node, 'the check finds nothing');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started,
	'the server has not restarted');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'no PANIC, no crash in the log');
$node->clean_node;
unlink "$small/filler";

done_testing();
