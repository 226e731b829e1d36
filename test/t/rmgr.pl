# The id of the WAL resource manager is a build option: WAL of one id is not replayed by a library with
# another one, the server says so, and loses nothing.  test/run rmgr builds the second library.
#
# Seen to fail: with a library that was built without the option (both have the same id).
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

plan skip_all => 'needs libraries with two ids: test/run rmgr'
  unless defined $ENV{BLOBEXT_OTHER_BINDIR} && defined $ENV{RMGR_ID};

my $other = $ENV{BLOBEXT_OTHER_BINDIR};
my $node = blob_cluster('main', conf => "wal_level = replica\n");
is($node->safe_psql('postgres', q(SELECT rm_id FROM pg_get_wal_resource_managers()
	WHERE rm_name = 'blobext')), $ENV{RMGR_ID}, 'the id is that of the build');
make_values($node, 'v', 10, 5_000, 300_000);

# WAL of this id, a library with another.
kill_everything($node);
unlink $node->data_dir . '/postmaster.pid';
my $log = $node->logfile;
my $offset = -s $log;
$node->command_fails([ "$other/pg_ctl", '-D', $node->data_dir, '-l', $log, '-w', 'start' ],
	'WAL of one id, the library has another: the server does not start');
like(slurp_file($log, $offset), qr/resource manager with ID $ENV{RMGR_ID} not registered/, 'WAL of one id, the library has another: the log says why');
$node->start;
values_are_intact($node, 'v', 'the right library again: values');
check_is_clean($node, 'the right library again: the check');

# Between a clean shutdown and a start the id may change.
$node->stop;
$offset = -s $log;
$node->command_ok([ "$other/pg_ctl", '-D', $node->data_dir, '-l', $log, '-w', 'start' ],
	'after a clean shutdown: the other library');
add_values($node, 'v', 20_000);
values_are_intact($node, 'v', 'the other library: values');
like(slurp_file($log, $offset), qr/registered custom resource manager "blobext" with ID (?!$ENV{RMGR_ID})/,
	'the other library has another id');
system_or_bail("$other/pg_ctl", '-D', $node->data_dir, '-m', 'fast', '-w', 'stop');
$node->start;
values_are_intact($node, 'v', 'the first library after the other: values');
check_is_clean($node, 'the first library after the other: the check');
$node->stop;
done_testing();
