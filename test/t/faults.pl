# Damaged and missing files: each a clear error with the right SQLSTATE, nothing else is harmed.
#
# A segment file that is missing, too short, unreadable, not writable; content with a flipped bit.
# Values whose content is elsewhere stay readable, the server lives, and blobext_check() names
# relation, tid, column and problem, for every damaged value and for no other.  The store has two
# segments, and there is no read cache, so that reads meet the files.  It has no checksums of pages, which
# find damaged content before digests do (page_sums.pl).
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $node = blob_cluster('main', conf => "blobext.cache_size = 0\nblobext.io_method = sync\n" .
	  "wal_level = replica\nmax_wal_senders = 0\nblobext.page_checksums = off\n");

# The first table's values are in segment 0.  A large value reaches into segment 1, and the second
# table's are behind it.
make_values($node, 'a', 2_000, 5_000, 300_000, 3_000_000);
$node->safe_psql('postgres', q(
CREATE TABLE filler (b blobstate);
INSERT INTO filler
	SELECT convert_to(repeat(md5(i::text), 200 * 1024 * 1024 / 32), 'UTF8')
	FROM generate_series(1, 6) AS i));
make_values($node, 'z', 2_000, 5_000, 300_000, 3_000_000);
$node->safe_psql('postgres', 'TRUNCATE filler');	# it need not be checked again and again
$node->safe_psql('postgres', 'CHECKPOINT');	# no page is in memory alone
my @segments = map { segment_file($node, $_) } 0, 1;
ok(-f $segments[0] && -f $segments[1], 'the store has two segments');
is($node->safe_psql('postgres', 'SELECT min(first_page) > 262144 FROM z, blob_extents(b)'), 't',
	'values of table z are in the second');
is($node->safe_psql('postgres', 'SELECT max(first_page + pages) < 262144 FROM a, blob_extents(b)'),
	't', 'values of table a are in the first');
check_is_clean($node, 'the check finds nothing before the damage');

# New sessions are used for every query, so no descriptor is kept open.
my $read_z = 'SELECT sum(octet_length(b::bytea)) FROM z';

# A read fails alike with each I/O method that can be had here.
my @methods = grep {
	my ($result) = $node->psql('postgres', "SET blobext.io_method = $_; $read_z");
	$result == 0 || $_ eq 'sync';
} ('sync', 'aio', 'io_uring');
note("I/O methods: @methods");

sub read_fails
{
	my ($sqlstate, $like, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	fails_with($node, "SET blobext.io_method = $_; $read_z", $sqlstate, $like, "$name, read with io_method $_") foreach @methods;
	return;
}

# ---- missing ----

rename($segments[1], "$segments[1].away") or die $!;
read_fails('58P01', qr{pg_blobext/.*/00000001": No such file or directory}, 'missing segment: read');
values_are_intact($node, 'a', 'missing segment: other values');
is($node->safe_psql('postgres', 'SELECT sum(length(b)) FROM z'), '3307000',
	'missing segment: size and digest need no content');
my $check = $node->safe_psql('postgres',
	'SELECT relation, tid, column_name, problem FROM blobext_check()');
like($check, qr{^blobext_map\|\|\|segment file "pg_blobext/.*/00000001" is missing$}m,
	'missing segment: a row of blobext_check() about the file');
my @rows = grep { /^z\|\(0,\d\)\|b\|/ } split /\n/, $check;
is(scalar(@rows), 4, 'missing segment: a row for each value in it');
unlike($check, qr/^a\|/m, 'missing segment: none for others');
ok(!-e $segments[1], 'missing segment: nobody makes it anew in passing');
rename("$segments[1].away", $segments[1]) or die $!;
values_are_intact($node, 'z', 'the segment is back');

# ---- too short ----

my $size = -s $segments[1];
my $first_page = $node->safe_psql('postgres', 'SELECT max(first_page) FROM z, blob_extents(b)');
system_log('cp', '--sparse=always', $segments[1], "$segments[1].copy");
truncate($segments[1], ($first_page - 262144) * 4096 + 4096) or die $!;
read_fails('XX001', qr/too short.*HINT:  Restore the file/s, 'truncated segment: read');
is($node->safe_psql('postgres', 'SELECT encode(sha256(b::bytea), $$hex$$) = digest FROM z
	WHERE length(b) = 2000'), 't', 'truncated segment: a value before the end');
values_are_intact($node, 'a', 'truncated segment: other values');
$check = $node->safe_psql('postgres', 'SELECT * FROM blobext_check()');
like($check, qr{^blobext_map\|\|\|segment file ".*/00000001" has \d+ bytes instead of $size$}m,
	'truncated segment: a row of blobext_check() about the file');
like($check, qr/^z\|\(0,4\)\|b\|.*too short/m, 'truncated segment: a row for the value');
unlike($check, qr/^(a\||z\|\(0,[123]\))/m, 'truncated segment: none for others');
rename("$segments[1].copy", $segments[1]) or die $!;
values_are_intact($node, 'z', 'the segment has its size again');

# ---- a flipped bit ----

sub flip_bit
{
	my ($page, $byte) = @_;
	open(my $file, '+<:raw', $segments[ int($page / 262144) ]) or die $!;
	my $offset = $page % 262144 * 4096 + $byte;
	sysseek($file, $offset, 0);
	sysread($file, my $old, 1);
	sysseek($file, $offset, 0);
	syswrite($file, chr(ord($old) ^ 4));
	close $file;
	return;
}

my ($page) = split /\n/, $node->safe_psql('postgres',
	'SELECT first_page FROM a, blob_extents(b) WHERE length(b) = 300000 ORDER BY extent_no DESC');
flip_bit($page, 777);
is($node->safe_psql('postgres', 'SELECT octet_length(b::bytea),
	encode(sha256(b::bytea), $$hex$$) = digest, encode(sha256(b), $$hex$$) = digest
	FROM a WHERE length(b) = 300000'), '300000|f|t', 'flipped bit: an unverified read returns');
fails_with($node, 'SET blobext.verify_reads = on; SELECT b::bytea FROM a WHERE length(b) = 300000',
	'XX001', qr/content does not match its SHA-256 digest.*HINT/s, 'flipped bit: verified read');
is($node->safe_psql('postgres', 'SET blobext.verify_reads = on;
	SELECT length(blob_read(b, 0, 1000)) FROM a WHERE length(b) = 300000'), '1000',
	'flipped bit: a range cannot be verified');
is($node->safe_psql('postgres', 'SET blobext.verify_reads = on;
	SELECT count(b::bytea) FROM a WHERE length(b) <> 300000'), '3',
		'flipped bit: other values verify');
my $tid = $node->safe_psql('postgres', 'SELECT ctid FROM a WHERE length(b) = 300000');
is( $node->safe_psql('postgres', 'SELECT relation, tid, column_name FROM blobext_check()'),
	"a|$tid|b", 'flipped bit: blobext_check() names relation, tid and column');
like($node->safe_psql('postgres', q(SELECT problem FROM blobext_check('a'))),
	qr/^content of 300000 bytes from page \d+ does not match its SHA-256 digest$/,
	'flipped bit: and the problem');
is($node->safe_psql('postgres', q(SELECT problem FROM blobext_check('z'))), '',
	'flipped bit: nothing about another table');

# In every row that shares the extent, in an array, a domain, and a partition.
$node->safe_psql('postgres', q(
CREATE DOMAIN blob_domain AS blobstate;
CREATE TYPE pair AS (i integer, x blob_domain);
CREATE TABLE shared (d blob_domain, list blobstate[], p pair);
INSERT INTO shared SELECT b, ARRAY[NULL, b], ROW(1, b)::pair FROM a WHERE length(b) = 300000;
CREATE TABLE part (k integer, b blobstate) PARTITION BY LIST (k);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
INSERT INTO part SELECT 1, b FROM a WHERE length(b) = 300000));
is($node->safe_psql('postgres',
	'SELECT relation, column_name FROM blobext_check() ORDER BY 1::text, 2'),
	"a|b\npart_1|b\nshared|d\nshared|list\nshared|p", 'flipped bit: everywhere the value is');
is($node->safe_psql('postgres', q(SELECT relation, column_name FROM blobext_check('part'))),
	'part_1|b', 'flipped bit: blobext_check() of a partitioned table');
flip_bit($page, 777);
check_is_clean($node, 'the bit is back');

# The first byte is known to the descriptor.
$page = $node->safe_psql('postgres', 'SELECT first_page FROM a, blob_extents(b)
	WHERE length(b) = 2000');
flip_bit($page, 0);
is($node->safe_psql('postgres', 'SELECT problem FROM blobext_check()'),
	"the content does not begin with the descriptor's prefix", 'flipped bit in the prefix');
flip_bit($page, 0);

# Bytes behind the end of the content belong to no value.
flip_bit($page, 2001);
check_is_clean($node, 'a flipped bit behind the end of a value is no damage');

# ---- permissions ----

chmod 0400, $segments[1] or die $!;
fails_with($node, q(INSERT INTO z (b) SELECT b::bytea FROM z), '42501',
	qr{00000001": Permission denied}, 'no write permission: a store');
values_are_intact($node, 'a', 'no write permission: other values are read');
chmod 0000, $segments[1] or die $!;
fails_with($node, $read_z, '42501', qr{00000001": Permission denied}, 'no permission: a read is refused');
chmod 0600, $segments[1] or die $!;
values_are_intact($node, 'z', 'values are read when permissions are back');
add_values($node, 'z', 10_000, 1_000_000);
values_are_intact($node, 'z', 'values are stored again when permissions are back');

# The directory cannot be written to: a new segment cannot be made, the old ones serve.
chmod 0500, store_dir($node) or die $!;
fails_with($node, q(INSERT INTO filler
	SELECT convert_to(repeat(md5(i::text), 200 * 1024 * 1024 / 32), 'UTF8')
	FROM generate_series(1, 6) AS i), '42501', qr/Permission denied/,
	'no permission to make a segment');
add_values($node, 'a', 10_000);
chmod 0700, store_dir($node) or die $!;
values_are_intact($node, 'a', 'values at the end');
values_are_intact($node, 'z', 'values of the second table at the end');
check_is_clean($node, 'the check finds nothing at the end');

# ---- the whole directory is lost ----

# After a checkpoint nothing has yet to be written to it (see deferred.pl).
my $directory = store_dir($node);
$node->safe_psql('postgres', 'CHECKPOINT');
rename($directory, "$directory.away") or die $!;
fails_with($node, $read_z, '58P01', qr/No such file or directory/, 'missing directory: a read is refused');
$node->safe_psql('postgres', 'CREATE TABLE other AS SELECT 1');
$node->stop;
$node->start;
fails_with($node, $read_z, '58P01', qr/No such file or directory/,
	'missing directory: read after a restart');
$node->psql('postgres', q(INSERT INTO z (b) SELECT convert_to(repeat('x', 10000), 'UTF8')));
$node->stop;
rename("$directory.away", $directory) or diag("$directory was made anew: $!");
$node->start;
values_are_intact($node, 'a', 'the directory is back');
check_is_clean($node, 'the directory is back: the check finds nothing');

# ---- replay ----

# If a file is missing, replay does not drop the content that the WAL has for it, nor put it into a
# new file that has zeros everywhere else: the server waits until the file is back.
sub does_not_start
{
	my ($name) = @_;
	my $offset = -s $node->logfile;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return subtest $name => sub {
		ok(!$node->start(fail_ok => 1), 'the server does not start without its segment files');
		ok($node->log_contains(qr/WARNING:  blob segment file ".*" is missing or too short/, $offset),
			'the log names the file that is missing');
		ok($node->log_contains(qr/FATAL:  replay has not found all blob segment files/, $offset),
			'the log says that replay needs all segment files');
	};
}

add_values($node, 'a', 20_000);
kill_everything($node);
rename($directory, "$directory.away") or die $!;
does_not_start('a crashed server does not start without its directory');
does_not_start('a crashed server does not start without its directory at a second attempt');
ok(!-e $directory, 'a failed start does not make the missing directory');
rename("$directory.away", $directory) or die $!;
foreach my $segment (@segments)
{
	system_log('cp', '--sparse=always', $segment, "$segment.copy");
	truncate($segment, 4096) or die $!;
}
does_not_start('truncated segments: a crashed server');
is(-s $segments[0], 4096, 'truncated segments: nobody lengthens them');
rename("$_.copy", $_) or die $! foreach @segments;
$node->start;
values_are_intact($node, 'a', 'the files are back: nothing is lost');
values_are_intact($node, 'z', 'the files are back: nothing of the second table is lost');
check_is_clean($node, 'the files are back: the check finds nothing');

# Without the file, if that is wanted.
add_values($node, 'z', 20_000);
kill_everything($node);
rename($segments[1], "$segments[1].away") or die $!;
does_not_start('missing segment: a crashed server');
$node->append_conf('postgresql.conf', 'ignore_invalid_pages = on');
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM a
	WHERE id <= 4 AND encode(sha256(b::bytea), $$hex$$) = digest'), '4',
		'ignore_invalid_pages: what is in other files');
is($node->safe_psql('postgres', 'SELECT encode(sha256(b::bytea), $$hex$$) = digest FROM z
	ORDER BY id DESC LIMIT 1'), 't', 'ignore_invalid_pages: what is in the WAL');
cmp_ok($node->safe_psql('postgres', q(SELECT count(*) FROM blobext_check('z'))), '>', 3,
	'the check finds the rest');
rename("$segments[1].away", $segments[1]) or die $!;
values_are_intact($node, 'a', 'the old file in its place');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'no PANIC, no crash in the log');

done_testing();
