# Many readers of a small read cache: no read returns bytes of another value.
#
# The cache has room for a few chunks only, so slabs are all the time owned, filled by the
# device, joined to groups for large chunks and split for small ones.  Meanwhile clients read whole
# values and ranges of them, and some are cancelled in the middle.  Every read is compared with the
# expected content.  Pieces of the large values are read in sequence, too, so that some slabs are
# filled ahead.  (Fails with slabs registered before the device has filled them, and with a group
# split before the head's content left the table.)
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

# Small values, in extents of a page or two, and large ones in chunks of 64 kB; odd sizes.
my $node = blob_cluster('main', conf => "shared_buffers = 32MB\nblobext.cache_size = '512kB'\n");
$node->safe_psql('postgres', q(
CREATE FUNCTION content(id integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(sha256((id * 100000 + j)::text::bytea), '')
	FROM generate_series(1, CASE WHEN id % 8 = 0 THEN 8000 + id * 7 ELSE 40 + id * 3 END) j $$;
CREATE TABLE t (id integer PRIMARY KEY, b blobstate, expected bytea);
INSERT INTO t SELECT i, content(i), content(i) FROM generate_series(1, 200) i;));

sub script
{
	my ($name, $text) = @_;
	my $path = "$PostgreSQL::Test::Utils::tmp_check/$name.sql";
	append_to_file($path, $text);
	return $path;
}

# A difference is a division by zero.
my $check = script('check', q(\set id random(1, 200)
\set o random(0, 300000)
SELECT 1 / (b::bytea = expected)::int,
	1 / (blob_read(b, :o % length(b), 5000) =
		substring(expected, (:o % length(b))::int + 1, 5000))::int
FROM t WHERE id = :id;
SELECT 1 / (string_agg(data, '' ORDER BY chunk_no) = expected)::int
FROM t, blob_chunks(b, 10000 + :o % 60000) WHERE id = :id - :id % 8 GROUP BY expected;
));
# Beside them a session whose reads are cancelled wherever they are.
my $cancelled = script('cancelled', join('', map { sprintf("SET statement_timeout = %d;\n" .
		"SELECT count(sha256(%s)) FROM t%s WHERE id %% 8 = 0;\n", 1 + $_ % 7,
		$_ % 2 ? ('b::bytea', '') : ('data', ', blob_chunks(b, 20000)')) } 1 .. 400));
my $output = '';
my $session = IPC::Run::start([ 'psql', '-X', '-q', '-d', $node->connstr('postgres'),
		'-f', $cancelled ], '>', \$output, '2>', \$output);

$node->command_ok([ 'pgbench', '-n', '-c', 8, '-j', 2, '-t', 400, '-f', $check,
		$node->connstr('postgres') ], 'readers agree with the content');
$session->finish;
like($output, qr/canceling statement/, 'while reads were cancelled');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE sha256(b) <> sha256(b::bytea)'),
	'0', 'a scan agrees with the content');
cmp_ok(stat_of($node, 'cache_hits'), '>', 100, 'some reads were served by the cache');
cmp_ok(stat_of($node, 'cache_used_bytes'), '<=', 512 * 1024, 'the cache uses no more than its small size');

cmp_ok(stat_of($node, 'read_ahead_bytes'), '>', 1000 * 1000, 'much was read ahead');

# Sessions that end while slabs of theirs are being filled ahead: more of them than there are slabs.
foreach my $id (1 .. 12)
{
	$node->psql('postgres', qq(BEGIN;
		DECLARE c CURSOR FOR SELECT data FROM t, blob_chunks(b, 20000) WHERE id = 8 * $id;
		MOVE 7 IN c; SELECT pg_terminate_backend(pg_backend_pid());));
}
my $range = 'SELECT count(blob_read(b, 100000, 60000)) FROM t WHERE id = 80';
$node->safe_psql('postgres', $range);
my $misses = stat_of($node, 'cache_misses');
$node->safe_psql('postgres', $range);
is(stat_of($node, 'cache_misses'), $misses, 'terminated sessions keep no slabs');

# A cancel in the middle of a scan.
$node->psql('postgres', q(SET statement_timeout = 300;
	SELECT length(data), CASE WHEN chunk_no = 8 THEN pg_sleep(60) END FROM t, blob_chunks(b, 20000)
	WHERE id = 160;), stderr => \my $error);
like($error, qr/canceling statement/, 'a scan is cancelled');
is($node->safe_psql('postgres', q(SELECT count(*) FROM t, blob_chunks(b, 20000) AS c
	WHERE sha256(c.data) <> sha256(substring(expected, c."offset"::int + 1, 20000)))), '0',
	'after a cancelled scan all pieces are as before');

# A value of several times the buffer's size is scanned, and later stored.  Content that was read before
# stays in the buffer.  (Fails if blob_buffer_use_for() always says KEEP.)
$node->append_conf('postgresql.conf', "blobext.cache_size = '16MB'\n");
$node->restart;
$node->safe_psql('postgres', q(INSERT INTO t SELECT 1001, blob_agg(data), NULL
	FROM t, blob_chunks(b, 30000), generate_series(1, 12) WHERE id <= 200));
my $hot = 'SELECT count(sha256(b::bytea)) FROM t WHERE id % 8 = 0 AND id < 100';
$node->safe_psql('postgres', $hot) for 1 .. 3;
$misses = stat_of($node, 'cache_misses');
$node->safe_psql('postgres', $hot);
is(stat_of($node, 'cache_misses'), $misses, 'content that is read again and again is in the buffer');
cmp_ok($node->safe_psql('postgres', 'SELECT length(b) FROM t WHERE id = 1001'), '>',
	4 * stat_of($node, 'cache_bytes'), 'a value is several times as large as the buffer');
$node->safe_psql('postgres', 'SELECT count(sha256(data)) FROM t, blob_chunks(b, 20000) WHERE id = 1001')
	for 1 .. 3;
$misses = stat_of($node, 'cache_misses');
$node->safe_psql('postgres', $hot);
is(stat_of($node, 'cache_misses'), $misses, 'scans of it have not evicted that content');

$node->stop;
done_testing();
