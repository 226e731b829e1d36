# A worker that spreads its holes over time is not in the way of other processes, and sessions that
# store and free do not stop it.
#
# Extents come from the allocator itself, with nothing written, so that many pages cost no time.
# "Seen to fail" names what was taken out.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

# All but each tenth of 100 extents are freed: 703 MB, which are punched over 20 s.
use constant EXTENT => 2000;	# pages
use constant SURPLUS => 90 * EXTENT;

my $unit_dir = $ENV{BLOBEXT_UNIT_DIR} // die 'BLOBEXT_UNIT_DIR: use test/run tap';
my $node = blob_cluster('spread', streaming => 1, create => 0,
	conf => "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 4GB\n"
	  . "blobext.keep_free = 0\nblobext.autogc_naptime = 1s\nblobext.autogc_interval = 1d\n"
	  . "blobext.autogc_threshold = 1MB\nblobext.autogc_max_workers = 1\n");

# ---- tools ----

sub sql
{
	my ($database, @statements) = @_;
	return $node->safe_psql($database, join(";\n", @statements));
}

sub set
{
	my ($setting, $value) = @_;
	sql('postgres', "ALTER SYSTEM SET $setting = '$value'", 'SELECT pg_reload_conf()');
	return;
}

# Nothing refers to the extents: a round would free them.  Rounds are off until free_surplus().
sub make_database
{
	my ($name) = @_;
	set('blobext.autogc', 'off');
	sql('postgres', "CREATE DATABASE $name");
	sql($name, 'CREATE EXTENSION blobext', 'CREATE TABLE e (i int, page bigint)',
		"CREATE FUNCTION allocate(pages bigint) RETURNS bigint
			AS '$unit_dir/blobext_unit', 'unit_store_allocate' LANGUAGE C STRICT",
		"CREATE FUNCTION free(pages bigint[], generations bigint[], horizon xid) RETURNS pg_lsn
			AS '$unit_dir/blobext_unit', 'unit_store_free' LANGUAGE C STRICT",
		'INSERT INTO e SELECT i, allocate(' . EXTENT . ') FROM generate_series(1, 100) AS i');
	return;
}

# The surplus of databases, with rounds off.  After a start no page was allocated, so that no round is
# due when they are on.
sub free_extents
{
	my (@databases) = @_;
	set('blobext.autogc', 'off');
	$node->restart;
	foreach my $database (@databases)
	{
		my $freed = sql($database, q(SELECT count(*), free(array_agg(first_page ORDER BY first_page),
				array_agg(generation ORDER BY first_page), '0')
			FROM blobext_map JOIN e ON page = first_page WHERE i % 10 <> 0));
		die "$database: not all extents were there: $freed" if $freed !~ /^90[|]/;
	}
	return;
}

sub free_surplus
{
	free_extents(@_);
	set('blobext.autogc', 'on');
	return;
}

sub pages_of
{
	my ($database, $state) = @_;
	return sql($database, "SELECT coalesce(sum(pages), 0) FROM blobext_space WHERE state = '$state'");
}

sub becomes_punched
{
	my ($database, $pages, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until($database,
			"SELECT coalesce(sum(pages), 0) > $pages FROM blobext_space WHERE state = 'punched'"), $name);
}

# ---- commands that need the database for themselves ----

# They wait for 5 s, and fail.  Seen to fail without must_give_way() in make_holes() and wait_for().
make_database('d');
free_surplus('d');
becomes_punched('d', 0, 'a worker makes holes');
my $punched = pages_of('d', 'punched');
is($node->psql('postgres', 'ALTER DATABASE d RENAME TO f'), 0, 'RENAME while holes are made');
cmp_ok(pages_of('f', 'punched'), '<', SURPLUS / 2, 'RENAME: there were more to make');
becomes_punched('f', $punched + SURPLUS / 80, 'RENAME: the next worker goes on with them');
cmp_ok(pages_of('f', 'punched'), '<', SURPLUS / 2, 'at the same pace');
is($node->psql('postgres', 'DROP DATABASE f'), 0, 'DROP while holes are made');
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_ls_dir('pg_blobext') AS d WHERE d ~ '^[0-9]+[.]'"),
	'DROP: its files go');

# ---- other databases ----

# With one worker for all.  Seen to fail without the crowd in blob_autogc_schedule_is_hurried().
make_database('d');
make_database('other');
free_surplus('d');
becomes_punched('d', 0, 'the only worker makes holes');
sql('other', 'SELECT allocate(' . EXTENT . ') FROM generate_series(1, 20)');
ok($node->poll_query_until('other', q(SELECT coalesce(bool_or(pid IS NULL AND skipped_reason IS NULL AND started_at IS NOT NULL), false) FROM blobext_gc_status)),
	'a round of another database that cannot wait');
cmp_ok(pages_of('d', 'punched'), '<', SURPLUS, 'the round has not waited for all of the holes');
becomes_punched('d', SURPLUS - 64 * 90, 'all of them are made');
sql('postgres', 'DROP DATABASE other');
sql('postgres', 'DROP DATABASE d');

# ---- sessions that store and free meanwhile ----

# Each allocates 100 pages for those that it has freed.
my $write = q(
DO $$
DECLARE
	last bigint;
BEGIN
	FOR i IN 1 .. 100000 LOOP
		PERFORM free(array[first_page], array[generation], '0') FROM blobext_map WHERE first_page = last;
		last := allocate(100);
		COMMIT;
		PERFORM pg_sleep(0.2);
	END LOOP;
END
$$;
\echo over
);

set('blobext.autogc_threshold', '1TB');
make_database('d');
foreach my $wal_level (qw(replica minimal))
{
	$node->append_conf('postgresql.conf', "wal_level = $wal_level\nmax_wal_senders = 0\n");
	free_extents('d');
	$punched = pages_of('d', 'punched');
	my $writer = $node->background_psql('d');
	$writer->{stdin} .= $write;
	$writer->{run}->pump_nb;
	# Demand is measured in the first 3 s.
	$node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep'))
	  or die 'nobody stores';
	set('blobext.autogc', 'on');
	# Pages that are freed after the checkpoint must not make the others wait for another one.  Seen to
	# fail (replica) without must_punch_first().
	becomes_punched('d', $punched + SURPLUS / 4, "$wal_level: holes are made while others free");
	my $pid = sql('postgres', q(SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE backend_type = 'blobext collector'));
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid"),
		"$wal_level: the worker ends");
	# At least 100 pages in 3 s, for a minute, less those allocated since.  Seen to fail without
	# blob_store_wake_pages().
	cmp_ok(pages_of('d', 'free'), '>', 1000, "$wal_level: what they need for a minute is not punched");
	sql('postgres', q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '^\s*DO'));
	eval { $writer->quit; };
	sql('d', 'TRUNCATE e', 'INSERT INTO e SELECT i, allocate(' . EXTENT . ') FROM generate_series(1, 100) AS i')
	  if $wal_level eq 'replica';
}

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|terminated by signal/, 'no PANIC in the log');
done_testing();
