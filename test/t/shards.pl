# The example of sharding: hash partitions on two more servers, through postgres_fdw.
#
# Values go to the shards by INSERT, COPY, UPDATE and INSERT ... SELECT from a local table, and come
# back; there they are in extents, equal by digest.  Comparisons run on the shards.  A coordinator
# keeps no copy of values that it sends on.  A value of one shard can be copied to the other.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 64);

my $conf = "autovacuum = off\n";
my @shards = map { blob_cluster("shard_$_", conf => $conf) } 0, 1;
my $coordinator = blob_cluster('coordinator', conf => $conf, create => 0);

$_->safe_psql('postgres',
	'CREATE TABLE document_shard (id bigint PRIMARY KEY, name text, content blobstate)')
  foreach @shards;
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $coordinator->connstr('postgres'),
		(map { ('-v', "host_$_=" . $shards[$_]->host, '-v', "port_$_=" . $shards[$_]->port) } 0, 1),
		'-v', 'database=postgres', '-f', "$FindBin::RealBin/../examples/sharding.sql" ],
	'the example for sharding runs without an error');

sub sql
{
	return $coordinator->safe_psql('postgres', join(";\n", @_));
}

my @sizes = (@BlobTest::special_sizes, map { int(rand(300_000)) } 1 .. 20);
my $id = 0;
foreach my $size (@sizes)
{
	my $bytes = content("shard.$id", $size);
	sql("INSERT INTO document VALUES ($id, encode(sha256(" . literal($bytes) . "), 'hex'), " .
		literal($bytes) . ')');
	$id++;
}

sub all_intact
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql(q(SELECT count(*), count(*) FILTER (WHERE encode(sha256(content::bytea), 'hex') = name
		AND encode(sha256(content), 'hex') = name) FROM document)),
		sql('SELECT count(*), count(*) FROM document'), "$name: content comes back");
	foreach my $shard (@shards)
	{
		is($shard->safe_psql('postgres', q(SELECT count(*) FROM document_shard
			WHERE encode(sha256(content::bytea), 'hex') <> name
				OR blob_storage(content) <> CASE WHEN length(content) > 1900 THEN 'extents'
					ELSE 'inline' END)), '0', "$name: the rows of " . $shard->name . ' have their content');
		check_is_clean($shard, "$name: the check finds nothing on " . $shard->name);
	}
	return;
}

all_intact('inserted');
cmp_ok($_->safe_psql('postgres', 'SELECT count(*) FROM document_shard'), '>', 5,
	$_->name . ' has more than five rows') foreach @shards;
my $kept = sql('SELECT count(*) FROM blobext_map');
note("extents on the coordinator, on their way: $kept");

# A local table, and back.
sql('CREATE TABLE here AS SELECT * FROM document', 'TRUNCATE document');
is(sql('SELECT count(*) FROM document'), '0', 'TRUNCATE leaves no row on the shards');
is(sql(q(SELECT count(*) FROM here WHERE length(content) > 1900
	AND blob_storage(content) <> 'extents')), '0', 'values from the shards are in extents here');
sql('INSERT INTO document SELECT * FROM here');
all_intact('from a local table');
is(sql('SELECT count(*) FROM document AS d JOIN here AS h USING (id) WHERE d.content = h.content'),
	scalar(@sizes), 'values of shards are equal to local ones by content');

# COPY, through a file of the client.
my $file = "$PostgreSQL::Test::Utils::tmp_check/document.copy";
sql("\\copy here TO '$file' (FORMAT binary)", 'TRUNCATE document');
sql("\\copy document FROM '$file' (FORMAT binary)");
all_intact('COPY');

# Changes, and a value that moves from one shard to the other.
sql(q(UPDATE document SET content = blob_append(content, convert_to(repeat('more', 5000), 'UTF8'))
		WHERE id % 3 = 0),
	q(UPDATE document SET name = encode(sha256(content), 'hex') WHERE id % 3 = 0));
all_intact('appended');
sql('INSERT INTO document SELECT id + 1000, name, content FROM document WHERE length(content) > 4096');
all_intact('copied between shards');

# Operations that the shards run.
like(sql(q(EXPLAIN (VERBOSE, COSTS off) SELECT id FROM document WHERE content = 'needle'::blobstate)),
	qr/Remote SQL: .*WHERE \(\(content = /, 'equality is decided on the shards');
is(sql(q(SELECT count(*) FROM document WHERE content = (SELECT content FROM here
	WHERE length(content) = 262145))), '2', 'a long value is found');

# Two-phase safety is PostgreSQL's own: a failed statement leaves nothing visible.
fails_with($coordinator, q(BEGIN; INSERT INTO document SELECT id + 5000, name, content FROM here;
	SELECT 1 / 0), '22012', qr/division by zero/, 'a transaction that fails gives its own error');
all_intact('after a failed transaction');
foreach my $shard (@shards)
{
	is($shard->safe_psql('postgres', 'SELECT count(*) FROM document_shard WHERE id >= 5000'), '0',
		$shard->name . ': nothing of it');
	$shard->safe_psql('postgres', 'VACUUM');
	cmp_ok($shard->safe_psql('postgres', 'SELECT freed_blobs FROM blobext_gc()'), '>', 0,
		$shard->name . ': its collector gives the space back');
}
all_intact('after the collectors');
sql('DROP TABLE here', 'VACUUM');
sql('SELECT * FROM blobext_gc()');
is(sql('SELECT count(*) FROM blobext_map'), '0', 'the coordinator gives all of its space back');
$_->stop foreach $coordinator, @shards;

done_testing();
