# Digests of open values that are remembered in shared memory stay those of their values: on a standby, while replay frees
# the extents of values and gives them to others, and after its promotion, when the new primary draws generations.
#
# A session of the standby computes digests, and so has them remembered, before each next change; the collector frees old
# versions on the primary meanwhile.  Then the primary is killed in the middle of changes, the standby is promoted under the
# session, and values change again, more often than generations were drawn before, so numbers that were drawn twice would meet:
# first new values, of the sizes of the old ones, then the old ones.  (If numbers began anew, an old value that changes would have
# one below those of its extents, which ends with XB001 before a digest is asked for; a new value has none but new numbers.)
# Afterwards that server is killed, too, with changes under way whose digests it has remembered.
#
# Seen to fail, each time with digests of other values:
#	- where begin() of store/load.c counts on 8,192 numbers below the limit of the meta page: after promotion, new values,
#	- where find_in_set() of blob/known_digests.c looks at the store only: on the standby,
#	- where draw_own_generation() of blob/slot_writer.c gives the number of the newest extent: from the second change on,
#	  also after the crash.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $conf = "autovacuum = off\nblobext.rewrite_limit = 64kB\nhot_standby_feedback = off\nmax_standby_streaming_delay = -1\n";
my $node = blob_cluster('main', streaming => 1, conf => $conf);
$node->safe_psql('postgres', q(
	CREATE TABLE t (id int PRIMARY KEY, b blobstate, c bytea);
	CREATE TABLE fresh (LIKE t);
	SELECT blobext_set_digest('t', 'b', 'deferred'), blobext_set_digest('fresh', 'b', 'deferred');
	CREATE FUNCTION noise(seed int, n int) RETURNS bytea LANGUAGE sql AS
		$$ SELECT substr(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), '' ORDER BY i), 1, n) FROM generate_series(0, n / 32) i $$;
	INSERT INTO t SELECT i, noise(i, 200000), noise(i, 200000) FROM generate_series(1, 4) i));

# All rows get other bytes at an offset.
sub change
{
	my ($round, $table) = (@_, 't');
	my $bytes = sprintf '%08x', $round * 2654435761 % 4294967296;
	my $at = 1000 + $round * 3331 % 190_000;
	return "UPDATE $table SET b = blob_write(b, $at, '\\x$bytes'), c = overlay(c PLACING '\\x$bytes' FROM $at + 1)";
}

my $all = '(SELECT * FROM t UNION ALL SELECT * FROM fresh) AS s';
my $wrong = "SELECT coalesce(string_agg(id || CASE WHEN b::bytea = c THEN ' (digest)' ELSE ' (content)' END, ' ' ORDER BY id), 'none')
	FROM $all WHERE sha256(b) <> sha256(c) OR b::bytea <> c";
my $open = 'SELECT count(*) FROM t WHERE blob_digest_is_open(b)';

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
# Digests alone are remembered: chunks of the buffer are known by generations, too, and would be found first.
$standby->append_conf('postgresql.conf', "blobext.cache_size = 0\n");
$standby->start;
my $session = $standby->background_psql('postgres');

# ---- replay ----

my @wrong;
my $freed = 0;
foreach my $round (1 .. 12)
{
	$node->safe_psql('postgres', change($round));
	$freed += $node->safe_psql('postgres', 'SELECT freed_blobs FROM blobext_gc()') if $round % 3 == 0;
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	my $found = $session->query_safe($wrong);
	push @wrong, "round $round: $found" if $found ne 'none';
}
is($node->safe_psql('postgres', $open), '4', 'all values of the primary are open');
cmp_ok($freed, '>', 0, 'the collector has freed values whose digests a standby remembers');
is("@wrong", '', 'digests are right on a standby that replays frees');

# ---- promotion ----

# The end of it is lost with the primary: its transaction stays open.
my $lost = $node->background_psql('postgres');
$lost->query_safe('BEGIN; ' . change(500) . '; SELECT count(sha256(b)) FROM t');
kill_everything($node);
$lost->{run}->kill_kill;
$standby->promote;
is($session->query_safe($wrong), 'none', 'digests that a session of the standby has remembered are right after promotion');
$standby->safe_psql('postgres', 'INSERT INTO fresh SELECT i, noise(i, 200000), noise(i, 200000) FROM generate_series(5, 8) i');
@wrong = ();
foreach my $round (61 .. 80)
{
	$standby->safe_psql('postgres', change($round, 'fresh'));
	my $found = $standby->safe_psql('postgres', $wrong);
	push @wrong, "round $round: $found" if $found ne 'none';
}
is("@wrong", '', 'digests of new values after promotion are not those that were remembered before');
@wrong = ();
foreach my $round (20 .. 60)
{
	$standby->safe_psql('postgres', change($round));
	my $found = $session->query_safe($wrong);
	push @wrong, "round $round: $found" if $found ne 'none';
}
is($standby->safe_psql('postgres', $open), '4', 'changes after promotion leave digests open');
is("@wrong", '', 'digests of changes after promotion are not those that were remembered before');

# ---- a crash ----

my $late = $standby->background_psql('postgres');
$late->query_safe('BEGIN; ' . change(501) . '; SELECT count(sha256(b)) FROM t');
kill_everything($standby);
$_->{run}->kill_kill foreach $late, $session;
$standby->start;
@wrong = ();
foreach my $round (70 .. 75)
{
	my $found = $standby->safe_psql('postgres', $wrong);
	push @wrong, "round $round: $found" if $found ne 'none';
	$standby->safe_psql('postgres', change($round));
}
is("@wrong", '', 'digests of changes after a crash are not those of lost changes');
check_is_clean($standby, 'the check finds nothing after promotion and crash');
$standby->stop;

done_testing();
