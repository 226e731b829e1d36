# pglogical: what its workers apply is in extents on the subscriber, and the same content.
#
# Its apply worker is an ordinary background worker, which converts columns by itself and passes no
# hook of the server.  A subscription copies a table, and applies inserts, updates and deletes, with
# an index on content and without; then with pglogical.use_spi, where it runs statements.
#
# Needs Debian's package postgresql-NN-pglogical.  Seen to fail: without is_pglogical_worker() of
# assign/input.c the applied values are inline.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $sharedir = qx(pg_config --sharedir);
chomp $sharedir;
if (!-f "$sharedir/extension/pglogical.control")
{
	die "no pglogical here (package postgresql-NN-pglogical)\n" if !$ENV{BLOBEXT_TEST_MAY_SKIP};
	plan skip_all => 'package postgresql-NN-pglogical';
}

my %nodes;
foreach my $name ('provider', 'subscriber')
{
	my $node = $nodes{$name} = blob_cluster($name, streaming => 'logical', conf => qq(
		wal_level = logical
		max_worker_processes = 20
		shared_preload_libraries = 'pglogical,blobext'
		pglogical.conflict_resolution = error));
	# Minor versions since 2026 decode with plugins only that are listed.
	if ($node->safe_psql('postgres', q(SELECT count(*) FROM pg_settings
		WHERE name = 'output_plugin_libraries')))
	{
		$node->safe_psql('postgres', $_) foreach (
			"ALTER SYSTEM SET output_plugin_libraries = pgoutput, test_decoding, pglogical_output",
			'SELECT pg_reload_conf()');
	}
	$node->safe_psql('postgres', sprintf(q(CREATE EXTENSION pglogical;
		CREATE TABLE document (id int PRIMARY KEY, content blobstate);
		CREATE TABLE indexed (id int PRIMARY KEY, content blobstate UNIQUE);
		SELECT pglogical.create_node('%s', '%s dbname=postgres')), $name, $node->connstr));
}
my ($provider, $subscriber) = @nodes{'provider', 'subscriber'};

# Compare provider and subscriber when all changes have been applied.
sub agree
{
	my ($name) = @_;
	$provider->safe_psql('postgres', 'SELECT pglogical.wait_slot_confirm_lsn(NULL, NULL)');
	foreach my $table ('document', 'indexed')
	{
		my $rows = "SELECT id, length(content), encode(sha256(content::bytea), 'hex'),
			blob_storage(content) FROM $table ORDER BY id";
		my $here = $provider->safe_psql('postgres', $rows);
		isnt($here, '', "$name: the provider has rows in $table");
		is($subscriber->safe_psql('postgres', $rows), $here,
			"$name: the same content of $table, in extents where the provider's is");
	}
	check_is_clean($subscriber, "$name: the check finds nothing");
	return;
}

sub fill
{
	my ($first) = @_;
	foreach my $table ('document', 'indexed')
	{
		$provider->safe_psql('postgres', "INSERT INTO $table
			SELECT i, convert_to(repeat(md5(i::text), (i % 10) * 40 + 1), 'UTF8')
			FROM generate_series($first, $first + 9) AS i");
	}
	return;
}

fill(1);
$provider->safe_psql('postgres', "SELECT pglogical.replication_set_add_table('default', t)
	FROM unnest(ARRAY['document', 'indexed']::regclass[]) AS t");
$subscriber->safe_psql('postgres', sprintf(q(SELECT pglogical.create_subscription('sub',
	'%s dbname=postgres')), $provider->connstr));
$subscriber->poll_query_until('postgres',
	q(SELECT status = 'replicating' FROM pglogical.show_subscription_status()));
$subscriber->safe_psql('postgres', q(SELECT pglogical.wait_for_subscription_sync_complete('sub')));
agree('copied');

foreach my $spi ('off', 'on')
{
	my $first = $spi eq 'off' ? 100 : 200;
	if ($spi eq 'on')
	{
		$subscriber->append_conf('postgresql.conf', 'pglogical.use_spi = on');
		$subscriber->restart;
	}
	fill($first);
	agree("inserted, use_spi = $spi");
	foreach my $table ('document', 'indexed')
	{
		$provider->safe_psql('postgres', "
			UPDATE $table SET content = content || convert_to(repeat('a' || id, 900), 'UTF8')
				WHERE id % 3 = 0;
			UPDATE $table SET id = id + 1000 WHERE id = $first + 5;
			DELETE FROM $table WHERE id = $first + 7");
	}
	agree("changed, use_spi = $spi");
}
unlike(slurp_file($subscriber->logfile), qr/PANIC|TRAP|stale/, 'no failure on the subscriber');

done_testing();
