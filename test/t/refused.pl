# A store that is refused for want of space asks for a round of the collector.
#
# No other reason for a round comes in the time of the test: the launcher looks once an hour, and the
# threshold is not reached.
#
# Seen to fail without the hook blob_store_refusal_hook: no hint names the collector.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $node = blob_cluster('main',
	conf => "autovacuum = off\nblobext.autogc = on\nblobext.autogc_naptime = 1h\nblobext.autogc_interval = 1d\n"
	  . "blobext.autogc_threshold = 1TB\nblobext.autogc_vacuum = off\nblobext.log_autogc_min_duration = 0\n");
my $asked = qr/HINT:  The collector was asked to free the space of deleted values/;
my $store = q(INSERT INTO t (b) VALUES (convert_to(repeat('x', 15000000), 'UTF8')));

$node->safe_psql('postgres', q(CREATE TABLE t (b blobstate); ALTER DATABASE postgres SET blobext.max_store_size = '20MB'));
$node->safe_psql('postgres', $store);
$node->safe_psql('postgres', 'DELETE FROM t');
fails_with($node, $store, '53400', $asked, 'a value beyond the limit is refused at once, and the hint names the round');
my $stored = 0;
for (my $i = 0; !$stored && $i < 300; $i++)
{
	$stored = ($node->psql('postgres', $store))[0] == 0;
	select(undef, undef, undef, 0.2) if !$stored;
}
ok($stored, 'a later try finds the space of the deleted value');
like(slurp_file($node->logfile), qr/automatic collection of blobs of database "postgres": freed: 1 values/, 'a worker has collected');

$node->safe_psql('postgres', 'ALTER SYSTEM SET blobext.autogc = off');
$node->reload;
ok($node->poll_query_until('postgres', 'SHOW blobext.autogc', 'off'), 'automatic rounds are off');
fails_with($node, $store, '53400', qr/HINT:  Delete values and call blobext_gc\(\)/, 'without automatic rounds the hint names the function');
$node->stop;
done_testing();
