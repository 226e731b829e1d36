# Many readers of a small read cache: nobody sees bytes of another value.
#
# The cache has room for a few chunks only, so frames are claimed, filled by the device, joined to
# groups for large chunks and split for small ones all the time, while clients read whole values
# and ranges of them, and some are cancelled in the middle.  Every read is compared with what the
# content must be.  (Fails with frames published before the device has filled them, and with a
# group split before the head's content left the table.)
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
));
# Beside them a session whose reads are cancelled wherever they are.
my $cancelled = script('cancelled', join('', map { sprintf("SET statement_timeout = %d;\n" .
		"SELECT count(sha256(b::bytea)) FROM t WHERE id %% 8 = 0;\n", 1 + $_ % 7) } 1 .. 400));
my $output = '';
my $session = IPC::Run::start([ 'psql', '-X', '-q', '-d', $node->connstr('postgres'),
		'-f', $cancelled ], '>', \$output, '2>', \$output);

$node->command_ok([ 'pgbench', '-n', '-c', 8, '-j', 2, '-t', 400, '-f', $check,
		$node->connstr('postgres') ], 'readers agree with the content');
$session->finish;
like($output, qr/canceling statement/, 'while reads were cancelled');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE sha256(b) <> sha256(b::bytea)'),
	'0', 'and so does a scan');
cmp_ok(stat_of($node, 'cache_hits'), '>', 100, 'some reads were served by the cache');
cmp_ok(stat_of($node, 'cache_used_bytes'), '<=', 512 * 1024, 'which is small');

$node->stop;
done_testing();
