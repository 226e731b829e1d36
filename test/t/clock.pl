# The clock of the machine is set back by an hour: nothing waits until it is there again.
#
# A library that is loaded before others (test/unit/shift_clock.c) has the time of the server earlier by as
# many seconds as a file says.  Parts:
#
#	- the launcher looks at a database, and a round is overdue, which is due by its age only,
#	- a look that cannot wait is made, while the naptime is long,
#	- where content is not logged, the store asks for a checkpoint.
#
# Seen to fail, one after the other: without the test of looked_at in blob_autogc_schedule_wish(); with a
# difference of times in is_overdue(); with TimestampDifferenceExceeds() in blob_autogc_schedule_allocated(); with
# the same in blob_store_may_ask().
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

use lib $FindBin::RealBin;
use BlobTest;

my $library = preload_library('shift_clock.c');
my $clock = "$PostgreSQL::Test::Utils::tmp_check/clock";
my $hours = 0;
$ENV{BLOBEXT_CLOCK} = $clock;
my $node;

sub start
{
	my ($name, $conf) = @_;
	$node = blob_cluster($name, start => 0, conf => "autovacuum = off\ncheckpoint_timeout = 1d\n" .
		  "max_wal_size = 10GB\nlog_checkpoints = on\nlog_min_messages = debug1\n$conf");
	unlink $clock;
	{
		local $ENV{LD_PRELOAD} = $library;
		$node->start;
	}
	$node->safe_psql('postgres', 'CREATE EXTENSION blobext; CREATE TABLE t (id int, b blobstate)');
	return;
}

# By one more hour.
sub set_clock_back
{
	my $before = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())');
	$hours++;
	append_to_file("$clock.new", $hours * 3600);
	rename("$clock.new", $clock) or die "rename: $!";
	my $after = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($after, '<', $before - 3000, 'the clock was set back');
	return;
}

# Run a statement until a condition holds, for half a minute.
sub becomes
{
	my ($statement, $condition, $name) = @_;
	my $holds = 'f';
	for (my $end = time + 30; $holds ne 't' && time < $end; sleep 0.3)
	{
		$node->safe_psql('postgres', $statement) if $statement ne '';
		$holds = $node->safe_psql('postgres', "SELECT coalesce(($condition), false)");
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($holds, 't', $name);
}

my $status = 'FROM blobext_gc_status';
my $store = q(INSERT INTO t SELECT i, convert_to(repeat(md5(i::text), 3000), 'UTF8') FROM generate_series(1, 100) i);

# ---- the collector ----

start('collector', "blobext.autogc = on\nblobext.autogc_naptime = 1s\nblobext.autogc_interval = 1s\n" .
	  "blobext.autogc_threshold = 1GB\nblobext.autogc_cost_delay = 0\n");
$node->safe_psql('postgres', $store);
becomes('', "SELECT live_blobs = 100 $status", 'a round comes before the clock is set back');
set_clock_back();
$node->safe_psql('postgres', 'DELETE FROM t');
becomes('VACUUM t', "SELECT live_blobs = 0 $status", 'a round after the clock was set back');

$node->safe_psql('postgres', $_)
  for ("ALTER SYSTEM SET blobext.autogc_naptime = '1h'", "ALTER SYSTEM SET blobext.autogc_threshold = '1MB'",
	"ALTER SYSTEM SET blobext.autogc_interval = '1h'", 'SELECT pg_reload_conf()');
becomes($store, "SELECT live_blobs > 0 $status", 'a look that cannot wait');
becomes('', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'blobext collector'),
	'the collector has no worker any more');
set_clock_back();
my $rounds = $node->safe_psql('postgres', "SELECT completed_rounds $status");
becomes($store, "SELECT completed_rounds > $rounds $status", 'another one after the clock was set back');
$node->stop;

# ---- requests for checkpoints ----

start('checkpoints', "blobext.wal_content = off\n");
my $churn = "$store; DELETE FROM t; VACUUM t; SELECT FROM blobext_gc()";
for my $when ('', ' after the clock was set back')
{
	set_clock_back() if $when ne '';
	my $offset = -s $node->logfile;
	for (1 .. 60)
	{
		$node->safe_psql('postgres', $_) for split(/; /, $churn);
		last if $node->log_contains('checkpoint complete', $offset);
	}
	ok($node->log_contains('blobext asks for a checkpoint', $offset), "the store asks for a checkpoint$when");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM blobext_check()'), 0, 'the check finds nothing');
$node->stop;

done_testing();
