# Memory of a session: I/O buffers take none before they are used, and give it back when they were not
# used for some seconds.
#
# Seen to fail: without the timer (arrange_look_at_idle() does nothing) the session keeps 4 MB.  The
# first test is a bound only: where a small store goes through the buffer alone, it had no I/O
# buffers before, either.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

my $node = blob_cluster('main', conf => "wal_level = replica\nshared_buffers = 64MB\nblobext.cache_size = 64MB\nmax_wal_size = 1GB\n");
$node->safe_psql('postgres', 'CREATE TABLE t (b blobstate); CREATE TABLE source (c bytea);
	ALTER TABLE source ALTER c SET STORAGE EXTERNAL;
	INSERT INTO source SELECT string_agg(sha256(i::text::bytea), NULL) FROM generate_series(1, 3125) AS i');

my $session;
my $pid;

sub memory_kb
{
	my ($line) = slurp_file("/proc/$pid/status") =~ /RssAnon:\s+(\d+) kB/ or die 'no RssAnon';
	return $line;
}

sub begin_session
{
	$session = $node->background_psql('postgres');
	$pid = $session->query_safe('SELECT pg_backend_pid()');
	# The memory that the first INSERT of a session takes.
	$session->query_safe('CREATE TEMP TABLE other (c bytea); INSERT INTO other SELECT c FROM source');
	return;
}

begin_session();
my $before = memory_kb();
$session->query_safe('INSERT INTO t SELECT c FROM source') for 1 .. 3;
cmp_ok(memory_kb() - $before, '<', 1024, 'a session that has stored 100 kB takes less than 1 MB for that');
$session->quit;

# Past the buffer everything goes through the I/O buffers.
$node->append_conf('postgresql.conf', 'blobext.cache_size = 0');
$node->restart;
begin_session();
$before = memory_kb();
$session->query_safe("INSERT INTO t SELECT string_agg(c, '') FROM source, generate_series(1, 100)");
my $used = memory_kb() - $before;
# It takes what its requests have used: one huge page, or more of them.
cmp_ok($used, '>', 1500, 'a session that has stored 10 MB past the buffer has memory for its requests');
my $end = time + $PostgreSQL::Test::Utils::timeout_default;
usleep(100_000) until memory_kb() - $before < $used / 2 || time > $end;
cmp_ok(memory_kb() - $before, '<', $used / 2, 'a session that is idle has given the memory of its I/O buffers back');
$session->query_safe("INSERT INTO t SELECT string_agg(c, '') FROM source, generate_series(1, 50)");
is($node->safe_psql('postgres', 'SELECT count(*) FROM t, source WHERE length(b) > 1000000
	AND sha256(substring(b, 1, 100000)) <> sha256(c)'), '0', 'values that are stored with new memory are right');
$session->quit;
$node->stop;
done_testing();
