# A standby replays DROP DATABASE, and CREATE DATABASE with the same OID and template.  The second copy is the same store as
# the first one to everything that goes by its identity: same incarnation, same generations, same extents, other contents.
# So nothing may be left of the first one, in files and in shared memory: remembered digests, chunks of the buffer, open
# files, notes of unlogged content, damaged pages, counters.
#
# A session of another database of the standby stays all the time.  One copy loses its extension before it is dropped; in
# another database copies have content that is not in the WAL.  The standby is killed, and replays all copies once more over
# the files of the last one.  At last it is promoted, and crashes before its first checkpoint is complete: then they are
# replayed as WAL of its own.
#
# Seen to fail:
#	- without blob_known_digests_forget_store() in replay_drop(): digests of copies 2 and 3 on the standby are those of the first,
#	- without it in remove_listed(): digests of copy 3 on the primary are those of copy 2,
#	- without blob_buffer_forget_store(): contents of copy 2,
#	- without blob_damaged_pages_forget_store() in replay_drop(): the list has the page of the dropped extension,
#	- without forget_dropped_databases(): copies 2 and 3 have damaged pages and reads that they never had,
#	- where it goes by the removal of files (RM_DBASE_ID): a database that moves to another tablespace loses its counters,
#	- without blob_unlogged_file_removed(): content that is missing is read as damaged (XX001),
#	- where blob_invalid_segments_was_removed() does not know dropped stores: the promoted server does not start again,
#	- where replay_omitted() does not ask it: content that is missing is read as damaged after that crash.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

my %oid = (copied => 300_000, lacking => 300_001);
my $node = blob_cluster('main', create => 0, streaming => 1,
	conf => "blobext.autogc_naptime = 1s\nautovacuum = off\nmax_standby_streaming_delay = -1\nallow_in_place_tablespaces = on\n");
$node->safe_psql('postgres', 'CREATE DATABASE empty TEMPLATE template0');
$node->safe_psql('empty', q(CREATE EXTENSION blobext; CREATE TABLE t (id integer, b blobstate, c bytea);
	SELECT blobext_set_digest('t', 'b', 'deferred');
	CREATE FUNCTION noise(seed text, n integer) RETURNS bytea LANGUAGE sql AS
		$$ SELECT substr(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), '' ORDER BY i), 1, n) FROM generate_series(0, n / 32) i $$));
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
start_with_stops($standby);
my $elsewhere = $standby->background_psql('empty');

$node->safe_psql('postgres', q(CREATE TABLESPACE elsewhere LOCATION ''));

my $is_open = 'SELECT bool_and(blob_digest_is_open(b)) FROM t';
my $wrong = q(SELECT coalesce(string_agg(id || ': ' || CASE WHEN sha256(b) <> sha256(c) THEN 'digest' ELSE 'content' END, ', ' ORDER BY id), 'none')
	FROM t WHERE sha256(b) <> sha256(c) OR b::bytea <> c);

sub directories
{
	my ($server, $database) = @_;
	my @found = glob($server->data_dir . "/pg_blobext/$oid{$database}.*");
	return @found;
}

sub wait_for_standby { return $node->wait_for_catchup($standby, 'replay', $node->lsn('insert')) }

# What tells one store of a database from another.
my %first;
sub is_the_same_store
{
	my ($database, $round) = @_;
	my ($directory) = map { s/.*\///r } directories($node, $database);
	my $extents = $node->safe_psql($database,
		q(SELECT string_agg(generation || '@' || first_page, ' ' ORDER BY first_page) FROM blobext_map));
	$first{$database} //= "$directory $extents";
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is("$directory $extents", $first{$database}, "copy $round: store, generations and pages are those of the first copy");
}

sub make_copy
{
	my ($database, $round) = @_;
	my $strategy = $round % 2 ? 'wal_log' : 'file_copy';
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE empty STRATEGY $strategy OID $oid{$database}");
	$node->safe_psql($database, "INSERT INTO t SELECT i, c, c FROM generate_series(1, 4) AS i, LATERAL
		(SELECT noise('$round.' || i, 200000) AS c OFFSET 0) AS s");
	$node->safe_psql($database, q(SET blobext.rewrite_limit = '64kB';
		UPDATE t SET b = blob_write(b, 100000, '\xdead'), c = overlay(c PLACING '\xdead' FROM 100001)));
	is($node->safe_psql($database, $is_open), 't', "copy $round has open digests");
	is_the_same_store($database, $round);
	wait_for_standby();
	return;
}

sub wait_for_removal
{
	my ($database) = @_;
	for (my $i = 0; directories($node, $database) && $i < 600; $i++) { sleep 0.1 }
	return;
}

sub drop_copy
{
	my ($database, $round) = @_;
	$node->safe_psql('postgres', "DROP DATABASE $database");
	wait_for_removal($database);
	$node->safe_psql('postgres', 'CHECKPOINT');
	wait_for_standby();
	is(join(' ', directories($standby, $database)), '', "copy $round: its files are gone from the standby");
	return;
}

# Twice: digests that are computed, and remembered ones.
sub is_right
{
	my ($server, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($server->safe_psql('copied', $wrong), 'none', "$name: contents and digests are its own") for (1 .. 2);
	return check_is_clean($server, "$name: the check finds nothing", 'copied');
}

sub is_known_to_be_missing
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $row (1 .. 4)
	{
		fails_with($standby, "SELECT length(b::bytea) FROM t WHERE id = $row", 'XB002', qr/is missing on this server/,
			"$name: content of row $row, which is not in the WAL, is known to be missing", database => 'lacking');
	}
	return;
}

# Pages and reads that shared memory of the standby has of a database.
sub is_noted
{
	my ($database, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($standby->safe_psql('empty', "SELECT (SELECT count(*) FROM blobext_damaged_pages WHERE datname = '$database'),
		coalesce((SELECT content_reads > 0 FROM blobext_databases WHERE datname = '$database'), false)"), $expected, $name);
}

# A bit of a page that the standby has not read yet flips there, and back.
sub damage_is_found
{
	my ($round) = @_;
	my $page = $node->safe_psql('copied', 'SELECT first_page FROM t, blob_extents(b) WHERE id = 1 LIMIT 1');
	my ($directory) = directories($standby, 'copied');
	my $file = sprintf('%s/%08x', $directory, $page / 262_144);
	flip_bit($file, ($page % 262_144 * 4096 + 99) * 8 + 3);
	fails_with($standby, 'SELECT b::bytea FROM t WHERE id = 1', 'XX001', qr/is damaged/,
		"copy $round: damage of a page is found on the standby", database => 'copied');
	flip_bit($file, ($page % 262_144 * 4096 + 99) * 8 + 3);
	return;
}

# ---- digests, chunks, files, damage, counters ----

foreach my $round (1 .. 3)
{
	make_copy('copied', $round);
	is_noted('copied', '0|f', "copy $round: the standby knows no damage and no reads of it");
	damage_is_found($round);
	is_right($_, "copy $round on the " . $_->name) foreach ($node, $standby);
	is_noted('copied', '1|t', "copy $round: the standby has the damage in its list, and counts reads");
	if ($round == 3)
	{
		$node->safe_psql('postgres', 'ALTER DATABASE copied SET TABLESPACE elsewhere');
		wait_for_standby();
		is_noted('copied', '1|t', 'a database that has moved to another tablespace keeps both on the standby');
	}
	my $inside = $standby->background_psql('copied');
	is($inside->query_safe($wrong), 'none', "copy $round: digests are right in a session of the standby that stays");
	if ($round == 2)
	{
		$node->safe_psql('copied', 'SET client_min_messages = error; DROP EXTENSION blobext CASCADE');
		wait_for_removal('copied');
		is(join(' ', directories($node, 'copied')), '', 'the files of a dropped extension are gone');
		wait_for_standby();
		is_noted('copied', '0|t', 'damage goes with a dropped extension, and the counters of its database stay');
	}
	drop_copy('copied', $round);
	is($standby->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE datname = 'copied')), '0',
		"copy $round: no session of the standby has outlived it");
	$inside->{run}->kill_kill;
}

# ---- notes of content that is not in the WAL ----

$node->append_conf('postgresql.conf', 'blobext.wal_content = off');
$node->restart;
make_copy('lacking', 4);
is_known_to_be_missing('copy 4');
drop_copy('lacking', 4);
make_copy('lacking', 5);
is_known_to_be_missing('copy 5');
$node->append_conf('postgresql.conf', 'blobext.wal_content = auto');
$node->restart;
make_copy('copied', 6);
is_right($standby, 'copy 6 on the standby');
is($elsewhere->query_safe('SELECT count(*) FROM t'), '0', 'a session of another database has stayed');

# ---- a crash of the standby ----

kill_everything($standby);
$elsewhere->{run}->kill_kill;
start_with_stops($standby);
wait_for_standby();
is_right($standby, 'copy 6 on a standby that has replayed all copies twice');
is_known_to_be_missing('copy 5 on a standby that has replayed all copies twice');

# ---- a crash after promotion ----

$node->stop('immediate');
promote_before_checkpoint($standby);
is_right($standby, 'copy 6 on the promoted server');
$standby->safe_psql('copied', "INSERT INTO t SELECT i, c, c FROM generate_series(5, 8) AS i, LATERAL
	(SELECT noise('promoted.' || i, 200000) AS c OFFSET 0) AS s");
kill_everything($standby);
$standby->start;
is_right($standby, 'copy 6 after a crash that replays all copies');
is($standby->safe_psql('copied', 'SELECT count(*) FROM t'), '8', 'values of the promoted server are there after the crash');
is_known_to_be_missing('copy 5 after a crash that replays all copies');
$standby->stop;

done_testing();
