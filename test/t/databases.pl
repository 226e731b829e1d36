# The life of databases: templates, tablespaces, new names, OIDs that are used again.
#
# A template that holds blobs is refused.  A template with the extension but without blobs works,
# under every strategy.  (Files of dropped databases and extensions are in autogc.pl.)
#
# Seen to fail: without blob_assign_check_template() (the copies cannot read); without the look
# at incarnations in remove_listed() (files of the new database go); without blob_buffer_forget_store(),
# and without blob_known_digests_forget_store() (a copy of a template that has the OID of another reads
# that one's content, and gives its digests); without blob_autogc_database_drops() (a database that has the
# OID of a dropped one has its counters, its rounds and its damaged pages); without
# blob_store_file_remove() (a copy of a template has results of the one before).
use strict;
use warnings;

use File::Basename;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

my $node = blob_cluster('main', create => 0, streaming => 1,
	conf => "wal_level = minimal\nmax_wal_senders = 0\nblobext.autogc_naptime = 1h\nautovacuum = off\n");
my $content = q(decode(repeat(md5(i::text), 1000), 'hex'));
my $intact = "SELECT count(*) FROM t WHERE b::bytea = (SELECT $content FROM (SELECT id) AS q (i))";

sub sql
{
	my ($database, @statements) = @_;
	return $node->safe_psql($database, join(";\n", @statements));
}

sub oid { return sql('postgres', "SELECT oid FROM pg_database WHERE datname = '$_[0]'") }

sub add { return sql($_[0], "INSERT INTO t SELECT i, $content FROM generate_series($_[1], $_[2]) AS i") }

sub directories
{
	my ($oid) = @_;
	my @found = glob($node->data_dir . "/pg_blobext/$oid.*");
	return @found;
}

sub holds
{
	my ($database, $count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql($database, $intact), $count, "$name: the values are what was stored");
	return check_is_clean($node, "$name: the check finds nothing", $database);
}

# ---- templates ----

my @strategies = ('wal_log', 'file_copy');
sql('postgres', 'CREATE DATABASE empty TEMPLATE template0');
sql('empty', 'CREATE EXTENSION blobext', 'CREATE TABLE t (id integer, b blobstate)',
	'CREATE INDEX ON t (b)', q(INSERT INTO t VALUES (0, 'short')));
is(scalar directories(oid('empty')), 0, 'a template without values in extents');
foreach my $strategy (@strategies)
{
	sql('postgres', "CREATE DATABASE $strategy TEMPLATE empty STRATEGY $strategy");
	add($strategy, 1, 20);
}
kill_everything($node);
$node->start;
foreach my $strategy (@strategies)
{
	is(sql($strategy, 'SELECT b::bytea FROM t WHERE id = 0'), '\x73686f7274', "$strategy: a copied inline value is what it was");
	holds($strategy, 20, "$strategy, after a crash");
	is(scalar directories(oid($strategy)), 1, "$strategy: files of its own");
}
sql('wal_log', 'DELETE FROM t WHERE id > 10', 'VACUUM t');
sql('wal_log', 'SELECT * FROM blobext_gc()');
sql('wal_log', 'CHECKPOINT');
add('wal_log', 101, 120);
holds('file_copy', 20, 'another copy does not mind');
holds('wal_log', 30, 'changed');
is(scalar directories(oid('empty')), 0, 'the template still has no directory of content');

sub base { return join(' ', sort(glob($node->data_dir . '/base/*'))) }

my $refused = qr/cannot copy database "wal_log", because it holds blobs.*DETAIL:.*HINT:.*pg_dump/s;
my $before = base();
foreach my $strategy (@strategies)
{
	foreach my $database ('postgres', 'wal_log', 'file_copy')
	{
		fails_with($node, "CREATE DATABASE refused TEMPLATE wal_log STRATEGY $strategy", '0A000',
			$refused, "refused: $strategy, from $database", database => $database);
	}
}
is(base(), $before, 'refused: nothing is left');
is(sql('postgres', q(SELECT count(*) FROM pg_database WHERE datname = 'refused')), '0', 'a refused CREATE DATABASE leaves no database');
sql('postgres', 'CREATE DATABASE plain TEMPLATE template0', 'DROP DATABASE plain', 'CREATE DATABASE plain');
fails_with($node, 'CREATE DATABASE plain TEMPLATE wal_log', '42P04', qr/already exists/,
	'other errors come first');
fails_with($node, 'CREATE DATABASE refused TEMPLATE nowhere', '3D000', qr/does not exist/,
	'a template that is not there');

# template1, which is the default, and a template without the extension any more.
sql('template1', 'CREATE EXTENSION blobext', 'CREATE TABLE t (id integer, b blobstate)');
add('template1', 1, 3);
fails_with($node, 'CREATE DATABASE refused', '0A000', qr/cannot copy database "template1"/, 'template1 with values in extents is refused, which is the default');
sql('template1', 'SET client_min_messages = error', 'DROP EXTENSION blobext CASCADE', 'DROP TABLE t');
fails_with($node, 'CREATE DATABASE refused', '0A000', qr/files are removed some time/,
	'a template is refused while files of its dropped extension are there');
sql('postgres', q(ALTER SYSTEM SET blobext.autogc_naptime = '1s'), 'SELECT pg_reload_conf()');
my $template1 = oid('template1');
for (my $i = 0; directories($template1) && $i < 300; $i++) { sleep 0.1 }
sql('postgres', 'CREATE DATABASE made');
is(sql('made', q(SELECT count(*) FROM pg_class WHERE relname = 't')), '0', 'when they are gone it works');

# ---- new names, tablespaces ----

my ($files) = directories(oid('wal_log'));
my $space = PostgreSQL::Test::Utils::tempdir();
sql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$space'");
sql('postgres', 'ALTER DATABASE wal_log RENAME TO renamed');
holds('renamed', 30, 'RENAME');
foreach my $tablespace ('elsewhere', 'pg_default', 'elsewhere')
{
	sql('postgres', "ALTER DATABASE renamed SET TABLESPACE $tablespace");
	holds('renamed', 30, "SET TABLESPACE $tablespace");
}
add('renamed', 201, 210);
kill_everything($node);
$node->start;
holds('renamed', 40, 'moved, after a crash');
is(join(' ', directories(oid('renamed'))), $files, 'the files are where they were');

# ---- an OID that is used again ----

sql('postgres', q(ALTER SYSTEM SET blobext.autogc_naptime = '1h'), 'SELECT pg_reload_conf()');
sleep 1.5;
my $oid = 200_000;

# A page that is damaged, and what shared memory has of the database: pages, reads and stores, rounds.
sub damage_a_page
{
	my $page = sql('again', 'SELECT first_page FROM t, blob_extents(b) WHERE id = 1 LIMIT 1');
	my ($directory) = directories($oid);
	$node->restart;
	flip_bit("$directory/00000000", ($page * 4096 + 99) * 8 + 3);
	fails_with($node, 'SELECT b::bytea FROM t WHERE id = 1', 'XX001', qr/is damaged/, 'a damaged page is found', database => 'again');
	is(sql('again', 'SELECT count(b::bytea) FROM t WHERE id = 2'), '1', 'another value is read beside the damaged one');
	return;
}

sub noted
{
	return sql('postgres', q(SELECT (SELECT count(*) FROM blobext_damaged_pages WHERE datname = 'again'),
		(SELECT count(*) FROM blobext_database_counters() JOIN pg_database AS d ON datid = d.oid WHERE datname = 'again'),
		(SELECT count(*) FROM blobext_gc_state() JOIN pg_database AS d ON datid = d.oid WHERE datname = 'again')));
}

sql('postgres', 'CREATE EXTENSION IF NOT EXISTS blobext');
foreach my $round (1 .. 2)
{
	sql('postgres', "CREATE DATABASE again TEMPLATE template0 OID $oid");
	is(noted(), '0|0|0', "database $round with an OID: shared memory has nothing of it at first");
	sql('again', 'CREATE EXTENSION blobext', 'CREATE TABLE t (id integer, b blobstate)');
	add('again', 1, 10 * $round);
	if ($round == 1)
	{
		damage_a_page();
		sql('again', 'SELECT * FROM blobext_gc()');
		is(noted(), '1|1|1', 'shared memory has a damaged page, counters and a round of the database');
	}
	sql('postgres', 'DROP DATABASE again') if $round == 1;
}
is(scalar directories($oid), 2, 'files of two databases, one of which is gone');
kill_everything($node);
$node->start;
holds('again', 20, 'an OID that is used again, after a crash');
sql('postgres', q(ALTER SYSTEM SET blobext.autogc_naptime = '1s'), 'SELECT pg_reload_conf()',
	q(ALTER SYSTEM SET blobext.autogc = on), 'SELECT pg_reload_conf()');
for (my $i = 0; directories($oid) > 1 && $i < 300; $i++) { sleep 0.1 }
is(scalar directories($oid), 1, 'the files of the dropped one go');
holds('again', 20, 'the other one lives');
kill_everything($node);
$node->start;
holds('again', 20, 'the other database is whole after one more crash');

# Two copies of one template with the same OID are the same store, with the same generations.
$oid++;
sub copy_template { return "CREATE DATABASE copied TEMPLATE empty OID $oid" }
foreach my $round (1 .. 3)
{
	my $part = "(SELECT string_agg(sha256((i || 'of $round')::bytea), '') FROM generate_series(1, 9000) AS i)";
	sql('postgres', copy_template());
	sql('copied', 'DROP INDEX t_b_idx', q(SELECT blobext_set_digest('t', 'b', 'deferred')),
		"INSERT INTO t SELECT i, $part FROM generate_series(1, 3) AS i");
	sql('copied', q(SET blobext.rewrite_limit = '32kB'),
		q(UPDATE t SET b = blob_write(b, 1000, '\xdead') WHERE id > 0));
	my $is = "overlay($part PLACING '\\xdead' FROM 1001)";
	is(sql('copied', "SELECT bool_and(blob_digest_is_open(b)), bool_and(sha256(b) = sha256($is)), bool_and(b::bytea = $is) FROM t WHERE id > 0"),
		't|t|t', "copy $round of a template with one OID: content and digests are its own");
	check_is_clean($node, "copy $round of a template with one OID: the check finds nothing", 'copied');
	last if $round == 3;
	sql('postgres', q(ALTER SYSTEM SET blobext.autogc_naptime = '1h'), 'SELECT pg_reload_conf()');
	sleep 1.5;
	my ($directory) = map { basename($_) } directories($oid);
	append_to_file($node->data_dir . "/pg_stat_tmp/blobext_scrub.$directory", 'results of the scrubber');
	sql('postgres', 'DROP DATABASE copied');
	fails_with($node, copy_template(), '55006', qr/blobs of a dropped database with OID $oid are still there.*HINT:/s,
		"copy $round: its OID is refused while its files are there");
	sql('postgres', q(ALTER SYSTEM SET blobext.autogc_naptime = '1s'), 'SELECT pg_reload_conf()');
	for (my $i = 0; directories($oid) && $i < 300; $i++) { sleep 0.1 }
	ok(!-e $node->data_dir . "/pg_stat_tmp/blobext_scrub.$directory", "copy $round: results of the scrubber go before its files");
	fails_with($node, copy_template(), '55006', qr/dropped after the last checkpoint.*HINT:.*CHECKPOINT/s,
		"copy $round: its OID is refused while a crash would remove its files once more");
	sql('postgres', 'CHECKPOINT');
}
kill_everything($node);
$node->start;
is(sql('copied', 'SELECT count(*) FROM t WHERE sha256(b) = sha256(b::bytea)'), '4', 'a copy with a used OID is whole after a crash');
sql('postgres', "DROP DATABASE $_") foreach ('again', 'renamed', 'file_copy', 'copied');
for (my $i = 0; directories('*') && $i < 300; $i++) { sleep 0.1 }
is(join(' ', directories('*')), '', 'dropped: nothing is left');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:/, 'no PANIC in the log');

done_testing();
