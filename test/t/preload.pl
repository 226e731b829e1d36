# The library is not preloaded, or is not the one that the SQL script needs.
#
# CREATE EXTENSION and every use fail with SQLSTATE 55000 and a hint; nothing crashes, other
# tables are usable, and with the library preloaded again everything is there.  Without the
# library a server that crashed cannot recover, and says so: that is PostgreSQL's rule.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $hint = qr/must be loaded via shared_preload_libraries.*HINT:  Add blobext to shared_preload/s;

sub set_preload
{
	my ($node, $library) = @_;
	$node->stop;
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'$library'");
	$node->start;
	return;
}

my $node = blob_cluster('main', start => 0);
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q(''));
$node->adjust_conf('postgresql.conf', 'blobext.cache_size', undef);
$node->start;
fails_with($node, 'CREATE EXTENSION blobext', '55000', $hint, 'CREATE EXTENSION without preload');
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_extension WHERE extname = 'blobext')),
	'0', 'nothing is left of it');
fails_with($node, "LOAD 'blobext'; CREATE EXTENSION blobext", '55000', $hint,
	'CREATE EXTENSION with the library loaded too late');
fails_with($node, "SET session_preload_libraries = ''; LOAD 'blobext'; CREATE EXTENSION blobext",
	'55000', $hint, 'CREATE EXTENSION with the library loaded too late, a second time');

set_preload($node, 'blobext');
$node->safe_psql('postgres', 'CREATE EXTENSION blobext; CREATE TABLE other (i integer)');
srand(5);
make_values($node, 'v');
$node->safe_psql('postgres', 'CREATE VIEW w AS SELECT id, sha256(b) FROM v');
values_are_intact($node, 'v', 'values are whole with the library preloaded');

set_preload($node, '');
my %uses = (
	'read' => 'SELECT octet_length(b::bytea) FROM v',
	'read of a range' => 'SELECT blob_read(b, 0, 10) FROM v WHERE length(b) > 2000',
	'output' => 'SELECT b FROM v WHERE length(b) > 2000',
	'insert of a large value' => q(INSERT INTO v (b) VALUES (convert_to(repeat('x', 5000),
		'UTF8'))),
	'update of a large value' => q(UPDATE v SET b = convert_to(repeat('x', 5000), 'UTF8')),
	'check' => 'SELECT * FROM blobext_check()',
	'statistics' => 'SELECT * FROM blobext_stat',
);
foreach my $use (sort keys %uses)
{
	fails_with($node, $uses{$use}, '55000', $hint, "not preloaded: refused is $use");
}
fails_with($node, "COPY v (b) FROM STDIN;\n\\\\x" . '00' x 5000 . "\n\\.\n", '55000', $hint,
	'not preloaded: COPY of a large value is refused');

# Statements that need no extents may work or fail, but must not crash; other tables must work.
foreach my $statement (
	'SELECT length(b), sha256(b), blob_prefix(b), blob_storage(b) FROM v',
	'SELECT * FROM v, blob_extents(b)',
	'SELECT * FROM w',
	'SELECT * FROM blobext_map',
	q(INSERT INTO v (b) VALUES ('\x00')),
	'CREATE TABLE v2 AS SELECT * FROM v',
	'ANALYZE v',
	'VACUUM FULL v',
	'TRUNCATE blobext_map',
	'VACUUM blobext_map')
{
	my ($result) = $node->psql('postgres', $statement);
	note("not preloaded, \"$statement\": result $result");
}
is($node->safe_psql('postgres', 'INSERT INTO other VALUES (1); SELECT count(*) FROM other'), '1',
	'not preloaded: another table');
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'not preloaded: no crash');

# A dump without the library does not silently leave content out.
my ($stdout, $stderr) = run_command(
	[ 'pg_dump', '-d', $node->connstr('postgres'), '-t', 'v' ]);
like($stderr, qr/blobext must be loaded via shared_preload_libraries/,
	'not preloaded: pg_dump fails');

set_preload($node, 'blobext');
is($node->safe_psql('postgres', 'DROP TABLE IF EXISTS v2; DELETE FROM v WHERE digest IS NULL;
	SELECT count(*) FROM v'), '34', 'preloaded again: all rows');
values_are_intact($node, 'v', 'preloaded again: all values');
add_values($node, 'v', 10_000, 1_000_000);
values_are_intact($node, 'v', 'preloaded again: new values');
check_is_clean($node, 'preloaded again: the check finds nothing');

# ---- library and script of different versions ----

fails_with($node, q(SELECT blobext_require_library('9.9.9')), '55000',
	qr/library blobext has version 0\.\d+\.\d+, the SQL script needs 9\.9\.9.*HINT:  Restart/s,
	'a script that needs another version');
is($node->safe_psql('postgres', q(SELECT blobext_require_library(extversion) FROM pg_extension
	WHERE extname = 'blobext')), '', 'the script of this version');

# ---- crash, then start without the library ----

add_values($node, 'v', 20_000);
kill_everything($node);
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q(''));
{
	# start(fail_ok) still fails when PostgreSQL leaves a pid file behind: so not through it.
	my $result = system_log('pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, 'start');
	isnt($result, 0, 'recovery without the library stops');
	like(slurp_file($node->logfile), qr/resource manager with ID 128 not registered/,
		'the log says that recovery needs the library');
}
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q('blobext'));
$node->start;
values_are_intact($node, 'v', 'recovery with the library');
check_is_clean($node, 'the check finds nothing');

# ---- the extension is gone ----

$node->safe_psql('postgres', 'DROP TABLE v CASCADE; DROP EXTENSION blobext');
is($node->safe_psql('postgres', 'SELECT count(*) FROM other'), '1',
	'without the extension: another table');
$node->safe_psql('postgres', 'CREATE EXTENSION blobext');
make_values($node, 'v');
values_are_intact($node, 'v', 'created anew: the values are whole');
check_is_clean($node, 'created anew: the check finds nothing');
$node->stop;

done_testing();
