# pg_dump and pg_restore with parallel jobs, while others write and the collector frees.
#
# Many small values and a few large ones, in the directory format with four jobs and in the custom
# format.  Meanwhile sessions store, append and delete, VACUUM and the collector run, space is reused:
# pg_dump's snapshot must find each row's content, which is checked against the digest beside
# it after pg_restore -j 4.  Sizes: BLOBEXT_DUMP_ROWS (300) and BLOBEXT_DUMP_MB (20, of the largest).
#
# Seen to fail: with a collector that takes every deleted row for dead.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use lib $FindBin::RealBin;
use BlobTest;

my $rows = $ENV{BLOBEXT_DUMP_ROWS} // 300;
my $mb = $ENV{BLOBEXT_DUMP_MB} // 20;
my $node = blob_cluster('main', conf => "autovacuum = off\nmax_wal_size = 1GB\n");

$node->safe_psql('postgres', q(CREATE DATABASE source));
$node->safe_psql('source', qq(
CREATE EXTENSION blobext;
CREATE TABLE many (id serial PRIMARY KEY, digest text, b blobstate);
CREATE FUNCTION bytes(mb int) RETURNS blobstate LANGUAGE sql AS \$\$
	SELECT blob_agg(decode(repeat(md5(i::text), 65536), 'hex') ORDER BY i)
	FROM generate_series(1, mb) AS i \$\$;
INSERT INTO many (digest, b) SELECT encode(sha256(c), 'hex'), c::blobstate
	FROM (SELECT decode(repeat(md5(i::text), 1 + (i * 7919) % 600), 'hex') AS c
		FROM generate_series(1, $rows) AS i) AS s;
CREATE INDEX ON many (b);
CREATE TABLE large (id serial PRIMARY KEY, digest text, b blobstate);
INSERT INTO large (b) SELECT bytes(n) FROM (VALUES ($mb), (1 + $mb / 4), (1 + $mb / 8)) AS v (n);
UPDATE large SET digest = encode(sha256(b), 'hex');
CREATE TABLE busy (id serial PRIMARY KEY, digest text, b blobstate);
INSERT INTO busy (digest, b) SELECT digest, b FROM many;
CREATE PROCEDURE traffic() LANGUAGE plpgsql AS \$\$
DECLARE
	c bytea := decode(repeat(md5(random()::text), 1 + (random() ^ 3 * 4000)::int), 'hex');
BEGIN
	IF random() < 0.6 THEN
		INSERT INTO busy (digest, b) VALUES (encode(sha256(c), 'hex'), c);
	ELSIF random() < 0.5 THEN
		UPDATE busy SET b = blob_append(b, substr(c, 1, 20000)), digest = NULL
		WHERE id = (SELECT id FROM busy ORDER BY random() LIMIT 1);
		UPDATE busy SET digest = encode(sha256(b), 'hex') WHERE digest IS NULL;
	ELSE
		DELETE FROM busy WHERE id IN (SELECT id FROM busy ORDER BY random() LIMIT 4);
	END IF;
END \$\$));

my $directory = $PostgreSQL::Test::Utils::tmp_check;
append_to_file("$directory/traffic.sql", "CALL traffic();\n");
append_to_file("$directory/collect.sql", "VACUUM busy;\nSET client_min_messages = warning;\n" .
	"SET blobext.gc_wait_timeout = '500ms';\nSELECT * FROM blobext_gc();\nCHECKPOINT;\n");
my @at = ('-h', $node->host, '-p', $node->port);
my ($stored, $collected) = ('', '');
my @others = (
	IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 1000, '-f', "$directory/traffic.sql", @at,
		'source' ], '>', \$stored, '2>&1'),
	IPC::Run::start([ 'pgbench', '-n', '-c', 1, '-T', 1000, '-f', "$directory/collect.sql", @at,
		'source' ], '>', \$collected, '2>&1'));

my %dumps = (directory => [ '-Fd', '-j', '4' ], custom => ['-Fc', '-Z', '1']);
foreach my $format (sort keys %dumps)
{
	my $start = time;
	$node->command_ok([ 'pg_dump', @{ $dumps{$format} }, '-f', "$directory/$format", 'source' ],
		"$format: pg_dump ends without an error");
	note(sprintf('%s: pg_dump took %.1f s', $format, time - $start));
}
ok((grep { $_->pumpable } @others) == 2, 'the others worked on meanwhile');
$_->signal('TERM') foreach @others;
$_->finish foreach @others;
unlike("$stored$collected", qr/ERROR/, 'none of them failed') or diag("$stored$collected");

foreach my $format (sort keys %dumps)
{
	my $start = time;
	$node->safe_psql('postgres', "CREATE DATABASE $format");
	$node->command_ok([ 'pg_restore', '-j', '4', '--exit-on-error', '-d', $format,
		"$directory/$format" ], "$format: pg_restore ends without an error");
	note(sprintf('%s: pg_restore took %.1f s', $format, time - $start));
	foreach my $table ('many', 'large', 'busy')
	{
		is($node->safe_psql($format, qq(SELECT count(*) FROM $table WHERE digest IS NULL
			OR encode(sha256(b), 'hex') <> digest OR encode(sha256(b::bytea), 'hex') <> digest
			OR blob_storage(b) <> CASE WHEN length(b) > 1900 THEN 'extents' ELSE 'inline' END)),
			'0', "$format: content of $table");
		next if $table eq 'busy';
		is($node->safe_psql($format, "SELECT id, digest, length(b) FROM $table ORDER BY id"),
			$node->safe_psql('source', "SELECT id, digest, length(b) FROM $table ORDER BY id"),
			"$format: rows of $table");
	}
	check_is_clean($node, "$format: the check finds nothing", $format);
}
my $left = $node->safe_psql('source', q(VACUUM; SELECT freed_blobs > 0 FROM blobext_gc()));
check_is_clean($node, 'the source is clean', 'source');
$node->stop;

done_testing();
