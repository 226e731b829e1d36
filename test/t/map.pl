# The extent map survives PostgreSQL's maintenance of relations.
#
# VACUUM, VACUUM FULL, ANALYZE, CLUSTER of the whole database, SET TABLESPACE there and back,
# pg_amcheck, freezing, REINDEX DATABASE, pg_dump.  After each, and once more after all processes
# are killed: the map shows the same extents, all values read, new ones are stored, the check finds
# nothing.  Commands that would change or lose the map are refused.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 3);
my $node = blob_cluster('main', conf => "wal_level = replica\n");
make_values($node, 'v');
my $tablespace = PostgreSQL::Test::Utils::tempdir();
$node->safe_psql('postgres', "CREATE TABLESPACE other LOCATION '$tablespace'");
$node->safe_psql('postgres', 'CREATE TABLE plain AS SELECT generate_series(1, 1000) AS i;
	CREATE INDEX ON plain (i); CREATE MATERIALIZED VIEW m AS SELECT * FROM v');

# Enough extents for a map of several blocks, with holes that were never written.
$node->safe_psql('postgres', q(CREATE TABLE holes (b blobstate);
	INSERT INTO holes SELECT convert_to(repeat(md5(i::text), 3 * 1024 * 1024 / 32), 'UTF8')
	FROM generate_series(1, 8) AS i));
cmp_ok($node->safe_psql('postgres', q(SELECT pg_relation_size('blobext_map') / 8192)), '>', 8,
	'the map has several blocks');

sub map_rows
{
	return $node->safe_psql('postgres', q(SELECT count(*), sum(pages),
		md5(string_agg(m::text, ' ' ORDER BY first_page)) FROM blobext_map AS m));
}

my $store_no = 0;

sub is_whole
{
	my ($name, $before) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(map_rows(), $before, "$name: the map shows the same extents");
	values_are_intact($node, 'v', "$name: the values are whole");
	add_values($node, 'v', 2_000 + $store_no, 150_000 + $store_no++);
	values_are_intact($node, 'v', "$name: new values are whole, too");
	check_is_clean($node, "$name: the check finds nothing");
	return;
}

sub survives
{
	my ($name, $command) = @_;
	my $before = map_rows();
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$command->();
	is_whole($name, $before);
	$before = map_rows();
	kill_everything($node);
	$node->start;
	is_whole("$name, then a crash", $before);

	# And with a crash right behind the command.
	$before = map_rows();
	$command->();
	kill_everything($node);
	$node->start;
	is_whole("$name and a crash at once", $before);
	return;
}

sub survives_sql
{
	my @statements = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return survives($statements[0], sub { $node->safe_psql('postgres', $_) foreach @statements });
}

survives_sql('VACUUM');
survives_sql('VACUUM (FREEZE, ANALYZE)');
survives_sql('VACUUM FULL');
survives_sql('VACUUM FULL blobext_map');
survives_sql('ANALYZE');
survives_sql('REINDEX DATABASE postgres');
survives_sql('ALTER TABLE blobext_map SET TABLESPACE other');
survives_sql('VACUUM FULL blobext_map');
survives_sql('ALTER TABLE blobext_map SET TABLESPACE pg_default');
survives_sql('REFRESH MATERIALIZED VIEW m');
survives('vacuumdb', sub { $node->command_ok([ 'vacuumdb', '--all', '--full', '-q' ],
	'vacuumdb --full of all databases succeeds') });
survives('clean restart', sub { $node->restart });

# Moving the database itself takes the map along: its files are in the database's tablespace.
$node->safe_psql('postgres', 'CREATE DATABASE d');
$node->safe_psql('d', 'CREATE EXTENSION blobext; CREATE TABLE t (b blobstate);
	INSERT INTO t SELECT convert_to(repeat(md5(i::text), 5000), $$UTF8$$)
	FROM generate_series(1, 10) AS i');
my $digests = $node->safe_psql('d', 'SELECT sha256(b::bytea) FROM t');
$node->safe_psql('postgres', 'ALTER DATABASE d SET TABLESPACE other');
is($node->safe_psql('d', 'SELECT sha256(b::bytea) FROM t'), $digests,
	'values are whole after ALTER DATABASE SET TABLESPACE');
check_is_clean($node, 'ALTER DATABASE SET TABLESPACE: the check finds nothing', 'd');
$node->safe_psql('postgres', 'ALTER DATABASE d RENAME TO e');
is($node->safe_psql('e', 'SELECT sha256(b::bytea) FROM t'), $digests, 'values are whole after ALTER DATABASE RENAME');
$node->safe_psql('e', 'CREATE SCHEMA elsewhere; ALTER EXTENSION blobext SET SCHEMA elsewhere')
  if $node->safe_psql('e',
	q(SELECT extrelocatable FROM pg_extension WHERE extname = 'blobext')) eq 't';
is($node->safe_psql('e', 'SELECT sha256(b::bytea) FROM t'), $digests,
	'the extension in another schema')
  if $node->safe_psql('e', q(SELECT count(*) FROM pg_namespace WHERE nspname = 'elsewhere')) eq '1';
$node->safe_psql('postgres', 'DROP DATABASE e');

# ---- transaction ids ----

is($node->safe_psql('postgres', q(SELECT relfrozenxid, relminmxid FROM pg_class
	WHERE oid = 'blobext_map'::regclass)), '0|0', 'the map holds no transaction ids');
$node->safe_psql('postgres', 'VACUUM (FREEZE, DISABLE_PAGE_SKIPPING)');
is($node->safe_psql('postgres', q(SELECT age(datfrozenxid) < 100 FROM pg_database
	WHERE datname = 'postgres')), 't', 'the map holds back no freezing');

# ---- tools ----

$node->safe_psql('postgres', 'CREATE EXTENSION amcheck');
$node->command_ok([ 'pg_amcheck', '--all', '--heapallindexed' ], 'pg_amcheck finds nothing wrong');
$node->command_like([ 'pg_amcheck', '-d', 'postgres', '-t', 'v' ], qr/^$/,
	'pg_amcheck of a table with values');

my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump.sql";
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres'), '--extension=*', '-T',
	'holes' ],
	'pg_dump of a database with values succeeds');
unlike(slurp_file($dump), qr/^(COPY|CREATE TABLE) \S*blobext_map/m, 'the dump leaves the map out');
like(slurp_file($dump), qr/^COPY public\.v /m, 'the dump has the values');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'),
	'-f', $dump ],
	'the dump restores without an error');
is($node->safe_psql('restored', 'SELECT id, digest, sha256(b::bytea) FROM v ORDER BY id'),
	$node->safe_psql('postgres', 'SELECT id, digest, sha256(b::bytea) FROM v ORDER BY id'),
		'the restored values are those that were dumped');
is($node->safe_psql('restored',
	q(SELECT count(*) FROM v WHERE length(b) > 1900 AND blob_storage(b) <> 'extents')),
	'0', 'restored values are in extents');
check_is_clean($node, 'the check of the restored database finds nothing', 'restored');

# ---- refused ----

my $before = map_rows();
my %refused = (
	'TRUNCATE blobext_map' => 'cannot truncate extent map',
	'TRUNCATE v, blobext_map' => 'cannot truncate extent map',
	'DELETE FROM blobext_map' => 'cannot',
	'UPDATE blobext_map SET pages = 1' => 'cannot',
	'INSERT INTO blobext_map VALUES (1, 1, 1, $$tail$$, NULL)' => 'cannot insert into extent map',
	'CREATE INDEX ON blobext_map (first_page)' => 'cannot index extent map',
	'CREATE UNIQUE INDEX CONCURRENTLY ON blobext_map (first_page)' => 'cannot index extent map',
	'ALTER TABLE blobext_map ADD PRIMARY KEY (first_page)' => 'cannot',
	'SELECT * FROM blobext_map FOR UPDATE' => 'cannot',
	'SELECT * FROM blobext_map TABLESAMPLE SYSTEM (50)' => 'cannot sample extent map',
	'ALTER TABLE blobext_map SET UNLOGGED' => 'cannot|only',
	'ALTER TABLE blobext_map SET ACCESS METHOD heap' => 'cannot|only',
	'ALTER TABLE blobext_map ALTER first_page TYPE numeric' => 'cannot|only',
	'CREATE TABLE mine (i integer) USING blobext_map' => 'is for the extent map of blobext only',
	'DROP TABLE blobext_map' => 'extension blobext requires it',
	'ALTER TABLE blobext_map ADD COLUMN more integer DEFAULT random()' => 'cannot|only',
);
foreach my $sql (sort keys %refused)
{
	my ($result, $stdout, $stderr) = $node->psql('postgres', $sql, on_error_stop => 1);
	isnt($result, 0, "a statement that would harm the map is refused: $sql");
	like($stderr, qr/ERROR: .*($refused{$sql})/, 'the error of a refused statement says why');
}
$node->safe_psql('postgres',
	'CREATE ROLE somebody; GRANT ALL ON ALL TABLES IN SCHEMA public TO somebody');
is(map_rows(), $before, 'the map is as it was');
is_whole('after refused commands', $before);
kill_everything($node);
$node->start;
is_whole('after refused commands and a crash', map_rows());

# COPY and cursors read it; a rolled back DROP leaves it alone.
is(scalar(split /\n/, $node->safe_psql('postgres', 'COPY blobext_map TO STDOUT')),
	$node->safe_psql('postgres', 'SELECT count(*) FROM blobext_map'), 'COPY reads the map');
$before = map_rows();
$node->safe_psql('postgres', 'BEGIN; DROP EXTENSION blobext CASCADE; ROLLBACK');
is_whole('after a rolled back DROP EXTENSION', $before);
$node->safe_psql('postgres', 'BEGIN; ALTER TABLE blobext_map SET TABLESPACE other; ROLLBACK');
is_whole('after a rolled back SET TABLESPACE', $before = map_rows());
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');

done_testing();
