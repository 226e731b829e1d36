# The files of an image for operators (docker/extension), in a directory of their own: a server
# whose own directories have nothing of blobext finds them by extension_control_path and
# dynamic_library_path, with all that loads the library or the scripts again: preloading, background
# workers, parallel workers, blobfs, dump and restore, a crash, a standby and its promotion.
#
# PostgreSQL before 18 has no such path: there the files are looked at, and the refusal of packages
# for such servers.  Seen to fail without each of the two settings.
use strict;
use warnings;

use File::Basename;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $source = "$FindBin::RealBin/..";
my $work = PostgreSQL::Test::Utils::tempdir;

sub config
{
	my ($program, $option) = @_;
	my $value = qx("$program" --$option);
	chomp $value;
	return $value;
}

sub run_commands
{
	my ($commands, @arguments) = @_;
	system('bash', '-eu', '-o', 'pipefail', '-c', $commands, 'bash', @arguments) == 0
	  or die "failed: $commands";
	return;
}

# A package as dpkg knows it, with files of the tested server, for a version of PostgreSQL.
sub make_package
{
	my ($version) = @_;
	my $tree = "$work/postgresql-$version-blobext";
	run_commands(q(
		libraries=$1/usr/lib/postgresql/$2 shared=$1/usr/share/postgresql/$2/extension
		mkdir -p "$1/DEBIAN" "$libraries/lib" "$libraries/bin" "$shared" "$1/usr/share/doc/blobext"
		cp "$3/blobext.so" "$libraries/lib/"
		cp "$4/blobext_upgrade" "$libraries/bin/"
		cp "$5"/extension/{blobext,blobfs}{--,.control}* "$shared/"
		touch "$1/usr/share/doc/blobext/copyright"
		printf '%s\n' 'Package: blobext' 'Version: 1' 'Architecture: all' 'Maintainer: a <a@b.c>' \
			'Description: a test' > "$1/DEBIAN/control"
		dpkg-deb --build -Znone "$1" "$1.deb" > /dev/null
	), $tree, $version, map { config('pg_config', $_) } qw(pkglibdir bindir sharedir));
	return "$tree.deb";
}

sub files_of
{
	my ($directory) = @_;
	return [ split /\n/, qx(cd "$directory" && find . -type f | sort) ];
}

my $layout = "$work/layout";
my ($major) = config('pg_config', 'version') =~ /(\d+)/;
my $old = make_package(17);
my $said = qx("$source/docker/extension" "$layout" "$old" 2>&1);
like($said, qr/is for PostgreSQL 17; 18 is the first/, 'a package for PostgreSQL 17 is refused');
ok(!-e $layout, 'nothing is made of a package that is refused');

my $package = make_package($major < 18 ? 18 : $major);
run_commands('"$1/docker/extension" "$2" "$3"', $source, $layout, $package);
my @scripts = map { './share/extension/' . basename($_) }
  glob config('pg_config', 'sharedir') . '/extension/{blobext,blobfs}{--,.control}*';
is_deeply(files_of($layout), [ sort './.dockerignore', './Dockerfile', './bin/blobext_upgrade',
		'./lib/blobext.so', './licenses/blobext/copyright', @scripts ],
	'the image has the files of the package');

if ($major < 18)
{
	diag('left out: a server, for PostgreSQL before 18 has no extension_control_path');
	done_testing();
	exit;
}

# A copy of the server, without blobext.
my $program = config('pg_config', 'bindir') . '/pg_config';
run_commands(q(set +u; cd "$1"; . ./lib.sh; bindir=$("$PG_CONFIG" --bindir)
	test_copy_server "$2/server"; echo "$PG_CONFIG" > "$2/pg_config"
	found=$(find "$2/server" -path '*/postgresql/*' -name 'blob*')
	[ -z "$found" ] || { echo "$found"; exit 1; }),
	$source, $work);
my $copy = slurp_file("$work/pg_config");
chomp $copy;
my %server = (install => dirname(dirname($copy)), streaming => 1);
my $paths = qq(
extension_control_path = '\$system:$layout/share'
dynamic_library_path = '\$libdir:$layout/lib'
max_parallel_workers_per_gather = 2
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
);

my $node = blob_cluster('primary', %server, create => 0, conf => $paths);
$node->safe_psql('postgres', 'CREATE EXTENSION blobext; CREATE EXTENSION blobfs');
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_extension
		WHERE extname IN ('blobext', 'blobfs'))), '2', 'both extensions are found');
srand(8);
make_values($node, 'v');
$node->safe_psql('postgres', q(
	SELECT blobfs.create('files');
	SELECT blobfs.write('files', '/a', convert_to(repeat('of a file ', 100000), 'UTF8'));
	INSERT INTO v (digest, b) SELECT digest, b FROM v;
	ANALYZE v));
values_are_intact($node, 'v', 'a server that finds blobext by its paths');

# Workers load the library by the name that the leader knows it by.
my $parallel = 'SELECT count(DISTINCT sha256(b)) FROM v WHERE sha256(b::bytea) = sha256(b)';
like($node->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS off) $parallel"),
	qr/Workers Launched: [12]/, 'parallel workers of a server with its paths run');
is($node->safe_psql('postgres', $parallel),
	$node->safe_psql('postgres', "SET max_parallel_workers_per_gather = 0; $parallel"),
	'parallel workers read values');

# The launcher starts workers that collect.
$node->safe_psql('postgres', q(DELETE FROM v WHERE id % 2 = 0; VACUUM (INDEX_CLEANUP on) v;
	CREATE TABLE dead AS SELECT b FROM v; DROP TABLE dead;
	ALTER SYSTEM SET blobext.autogc = on; ALTER SYSTEM SET blobext.autogc_threshold = '64kB';
	ALTER SYSTEM SET blobext.autogc_naptime = '1s'; SELECT pg_reload_conf()));
$node->poll_query_until('postgres', q(SELECT value > 0 FROM blobext_stat WHERE name = 'gc_freed_blobs'))
  or die 'the collector frees nothing';
pass('background workers load the library, and collect');

my $dump = "$work/dump";
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump succeeds with extension paths');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $dump ],
	'a dump is restored');
my $digests = q(SELECT md5(string_agg(sha256(b)::text, ',' ORDER BY id)) FROM v);
my $file = q(SELECT sha256(blobfs.read('files', '/a')));
foreach my $query ($digests, $file)
{
	is($node->safe_psql('restored', $query), $node->safe_psql('postgres', $query),
		"the restored database gives the same answer to: $query");
}

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby', install_path => $server{install});
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
add_values($node, 'v', 5_000, 500_000);
$node->wait_for_catchup($standby);
foreach my $query ($digests, $file)
{
	is($standby->safe_psql('postgres', $query), $node->safe_psql('postgres', $query),
		"on a standby: $query");
}

kill_everything($node);
$node->start;
values_are_intact($node, 'v', 'values are whole after a crash');
check_is_clean($node, 'the check finds nothing after a crash');

$node->stop;
$standby->promote;
$standby->safe_psql('postgres', q(INSERT INTO v (b) VALUES (convert_to(repeat('new', 100000), 'UTF8'))));
check_is_clean($standby, 'the check finds nothing on the promoted standby');
$standby->stop;

done_testing();
