# Several clients store at once: no page is given out twice, and free space is found again.
#
# Eight clients insert, copy, roll back and delete while the free space is being loaded from the
# map, reserved and used up; then the check finds nothing, no page belongs to two values, all
# values have their content.  After a restart the first stores come from all clients at once (the
# load of the free space is raced for) and take the free space that is there: the store does not
# grow while a free run suffices.  Sessions go on while other sessions change types and tables.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $clients = 8;
my $node = blob_cluster('main', conf => "shared_buffers = 32MB\nwal_level = replica\n");
$node->safe_psql('postgres', q(
CREATE TABLE t (id serial, expected bytea, b blobstate);
CREATE FUNCTION content(size integer) RETURNS bytea LANGUAGE sql VOLATILE AS $$
	SELECT substring(convert_to(repeat(md5(random()::text), size / 32 + 1),
		'UTF8') FROM 1 FOR size) $$));

sub script
{
	my ($name, $text) = @_;
	my $path = "$PostgreSQL::Test::Utils::tmp_check/$name.sql";
	append_to_file($path, $text);
	return $path;
}

sub load_runs
{
	my ($name, $transactions, @scripts) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $node->command_ok([ 'pgbench', '-n', '-c', $clients, '-j', '2', '-t', $transactions,
			(map { ('-f', $_) } @scripts), $node->connstr('postgres') ], $name);
}

sub all_is_well
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE sha256(b::bytea) <> expected
		OR sha256(b) <> expected'), '0', "$name: each value has its content and its digest");
	check_is_clean($node, "$name: the check finds nothing");
	no_page_is_shared($node, "$name: no page belongs to two values", 't');
	is($node->safe_psql('postgres',
		'SELECT count(*) - count(DISTINCT generation) FROM blobext_map'), '0',
		"$name: each extent has a generation of its own");
	return;
}

sub reserved
{
	my $bytes = 0;
	$bytes += -s $_ foreach grep { /\/[0-9a-f]{8}$/ } glob store_dir($node) . '/*';
	return $bytes;
}

my $small = script('small', '\set size random(1901, 20000)
INSERT INTO t (expected, b) SELECT sha256(c), c FROM content(:size) AS c;
');
my $large = script('large', '\set size random(100000, 1500000)
INSERT INTO t (expected, b) SELECT sha256(c), c FROM content(:size) AS c;
');
my $mixed = script('mixed', '\set size random(1, 200000)
\set id random(1, 500)
BEGIN;
INSERT INTO t (expected, b) SELECT sha256(c), c FROM content(:size) AS c;
INSERT INTO t (expected, b) SELECT expected, b FROM t WHERE id = :id;
SAVEPOINT s;
INSERT INTO t (expected, b) SELECT sha256(c), c FROM content(:size + 1) AS c;
ROLLBACK TO s;
DELETE FROM t WHERE id = :id + 200;
COMMIT;
');
my $aborted = script('aborted', '\set size random(1, 300000)
BEGIN;
INSERT INTO t (expected, b) SELECT sha256(c), c FROM content(:size) AS c;
ROLLBACK;
');

load_runs("$clients clients store the first values of the store", 10, $small, $large);
all_is_well('first values');
load_runs("$clients clients store, copy, delete and roll back",
	20, $small, $large, $mixed, $aborted);
all_is_well('mixed load');

# ---- free space over a restart ----

my $map = 'SELECT COALESCE(sum(pages), 0) * 4096 FROM blobext_map';
foreach my $way (qw(restart crash))
{
	my $allocated = $node->safe_psql('postgres', $map);
	my $reserved = reserved();
	my $free = $reserved - $allocated;
	note("before the $way: $reserved bytes reserved, $free free");
	if ($free < 12_000_000)
	{
		# Make the store grow, so that there is something to find.
		$node->safe_psql('postgres', "INSERT INTO t (expected, b)
			SELECT sha256(c), c FROM content($free + 1000000) AS c");
		$free = ($reserved = reserved()) - $node->safe_psql('postgres', $map);
		note("now $reserved bytes reserved, $free free");
	}
	cmp_ok($free, '>', 8_000_000, "$way: there is free space");
	if ($way eq 'crash') { kill_everything($node); $node->start; }
	else { $node->restart; }

	# 8 clients * 20 * at most 5 pages
	load_runs("$way: $clients clients race for the free space", 20, $small);
	is(reserved(), $reserved, "$way: the store has not grown");
	all_is_well("after a $way");
}

# Pages that rolled back transactions have allocated are not given to others before the collector
# frees them.
my $pages = $node->safe_psql('postgres', 'SELECT sum(pages) FROM blobext_map');
$node->safe_psql('postgres', 'BEGIN; INSERT INTO t (expected, b)
	SELECT sha256(c), c FROM content(50000) AS c; ROLLBACK');
is($node->safe_psql('postgres', 'SELECT sum(pages) FROM blobext_map'), $pages + 13,
	'a rolled back value keeps its pages');

# ---- sessions whose first statement stores, while others change types and tables ----

my $ddl = script('ddl', 'CREATE TABLE IF NOT EXISTS ddl_:client_id (i integer);
ALTER TABLE ddl_:client_id ALTER i TYPE bigint;
ALTER TABLE ddl_:client_id ALTER i TYPE integer;
CREATE TYPE type_:client_id AS (i integer);
DROP TYPE type_:client_id;
');
my $stored = script('stored', '\set size random(1901, 9000)
INSERT INTO t (expected, b) SELECT sha256(c), c FROM content(:size) AS c;
');
$node->command_ok([ 'pgbench', '-n', '-C', '-c', 6, '-j', '2', '-t', '60', '-f', "$ddl\@2", '-f',
	"$stored\@1",
		$node->connstr('postgres') ], 'new sessions store while types are made and dropped');
all_is_well('beside changes of types');

# Many sessions at once, each with few statements; all connections end in the middle.
my @handles;
for my $i (1 .. 6)
{
	my ($out, $error) = ('', '');
	push @handles, IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
			'INSERT INTO t (expected, b) SELECT sha256(c), c
			FROM generate_series(30000, 40000) AS i, LATERAL content(i) AS c' ],
		'>', \$out, '2>', \$error);
}
$node->poll_query_until('postgres', q(SELECT count(*) >= 6 FROM pg_stat_activity
	WHERE state = 'active' AND query LIKE 'INSERT%' AND pid <> pg_backend_pid()));
is($node->safe_psql('postgres', q(SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
	WHERE state = 'active' AND query LIKE 'INSERT%' AND pid <> pg_backend_pid())), 't',
		'sessions are terminated while they insert');
foreach my $handle (@handles) { IPC::Run::finish($handle); }
all_is_well('after terminated sessions');
load_runs("$clients clients go on", 5, $small, $large);
all_is_well('at the end');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'no PANIC in the log');

done_testing();
