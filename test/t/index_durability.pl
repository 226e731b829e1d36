# Content is durable before its descriptor enters an index that another session has just made.
#
# A statement was prepared, or is in progress, when another session makes an index ordered by
# content: on the table, concurrently or not, on one partition only, on a table that is attached as
# a partition.  The counters of blobext_stat say how often a session has synced before it commits
# (blobext.background_sync is off, so that each sync is counted).  The same for logical replication,
# which has no statement to look at.
#
# Cases within one session are tested in pgtap/index_durability.sql.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

# bytes(): content of a name.  pause(): waits until the advisory lock 1 is free.
my $setup = q(
CREATE FUNCTION bytes(name text) RETURNS bytea LANGUAGE sql VOLATILE AS $$
	SELECT string_agg(sha256(convert_to(name || i, 'UTF8')), NULL)
	FROM generate_series(1, 200) i $$;
CREATE FUNCTION syncs() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$SELECT value FROM blobext_stat WHERE name = 'syncs' $$;
CREATE FUNCTION pause() RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM pg_advisory_lock(1);
	PERFORM pg_advisory_unlock(1);
	RETURN 0;
END $$;
CREATE TABLE t (name text, b blobstate, pause integer);
CREATE TABLE parted (name text, b blobstate, pause integer) PARTITION BY LIST (name);
CREATE TABLE part1 PARTITION OF parted FOR VALUES IN ('one');
CREATE TABLE part2 PARTITION OF parted FOR VALUES IN ('two');
CREATE TABLE part3 (name text, b blobstate, pause integer);
);
my $node = blob_cluster('main', conf => "autovacuum = off\nblobext.background_sync = off\n");
$node->safe_psql('postgres', $setup);

my $session = $node->background_psql('postgres');
my $other = $node->background_psql('postgres');

# How often the session syncs within a transaction, before it ends.
sub syncs_of
{
	my ($sql) = @_;
	my $before = stat_of($node, 'syncs');
	$session->query_safe("BEGIN; $sql");
	my $after = stat_of($node, 'syncs');
	$session->query_safe('COMMIT');
	return $after - $before;
}

# How often the session syncs until it has inserted one row, if the other does something after the
# row's content was stored (columns are computed from left to right), and before the row is written.
# That is told by RETURNING; at its end the statement would sync anyway.
sub syncs_around
{
	my ($during) = @_;
	my $before = stat_of($node, 'syncs');
	$other->query_safe('SELECT pg_advisory_lock(1)');
	$session->query_until(qr/sent/, "\\echo sent\nINSERT INTO parted
		VALUES ('one', bytes(random()::text), pause()) RETURNING syncs();\n\\echo done\n");
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
	  or die 'the session does not wait';
	$other->query_safe($during);
	$other->query_safe('SELECT pg_advisory_unlock(1)');
	my ($after) = $session->query_until(qr/done/, '') =~ /(\d+)/;
	return $after - $before;
}

# ---- prepared statements ----

$session->query_safe("PREPARE p(text) AS INSERT INTO t VALUES (\$1, bytes(\$1))");
$session->query_safe("PREPARE q(text) AS INSERT INTO parted VALUES (\$1, bytes(\$1))");
$session->query_safe('SET plan_cache_mode = force_generic_plan');
is(syncs_of("EXECUTE p('a')"), 0, 'no index: nothing is synced before commit');
$other->query_safe('CREATE INDEX t_b ON t (b)');
is(syncs_of("EXECUTE p('b')"), 1, 'an index that another session has made');
$other->query_safe('DROP INDEX t_b');
is(syncs_of("EXECUTE p('c')"), 0, 'no sync after the index was dropped');
$other->query_safe('CREATE UNIQUE INDEX CONCURRENTLY t_b ON t (b)');
is(syncs_of("EXECUTE p('d')"), 1, 'an index that another session has made concurrently');
$other->query_safe('DROP INDEX CONCURRENTLY t_b');
is(syncs_of("EXECUTE p('e')"), 0, 'no sync after the index was dropped concurrently');
is(syncs_of("EXECUTE q('one')"), 0, 'partitions without an index');
$other->query_safe('CREATE INDEX part1_b ON part1 (b)');
is(syncs_of("EXECUTE q('two')"), 1, 'an index on a partition');
$other->query_safe('DROP INDEX part1_b');
is(syncs_of("EXECUTE q('two')"), 0, 'no sync after the index of the partition was dropped');
$other->query_safe('CREATE INDEX part3_b ON part3 (b)');
is(syncs_of("EXECUTE q('two')"), 0, 'an index on a table that is no partition');
$other->query_safe("ALTER TABLE parted ATTACH PARTITION part3 FOR VALUES IN ('three')");
is(syncs_of("EXECUTE q('two')"), 1, 'an index on a table that becomes a partition');
$other->query_safe('ALTER TABLE parted DETACH PARTITION part3 CONCURRENTLY');
is(syncs_of("EXECUTE q('two')"), 0, 'an index on a table that was detached');

# An index that waits for a transaction is there for the statements that begin meanwhile.
my $waiting = $node->background_psql('postgres');
$waiting->query_safe("BEGIN; INSERT INTO t VALUES ('waiting')");
$other->query_until(qr/sent/, "\\echo sent\nCREATE INDEX CONCURRENTLY t_b ON t (b);\n\\echo done\n");
$node->poll_query_until('postgres', q(SELECT EXISTS (SELECT FROM pg_index WHERE
	indexrelid = to_regclass('t_b') AND NOT indisready)), 't') or die 'no index appears';
is(syncs_of("EXECUTE p('f')"), 1, 'an index that is being made concurrently');
$waiting->query_safe('COMMIT');
$waiting->quit;
$other->query_until(qr/done/, '');
$other->query_safe('DROP INDEX t_b');

# ---- statements in progress ----

is(syncs_around('SELECT 1'), 0, 'a statement that waits while nothing happens');
is(syncs_around('CREATE TABLE elsewhere (b blobstate UNIQUE)'), 0,
	'while something happens elsewhere');
is(syncs_around('CREATE INDEX part1_name ON part1 (name, b)'), 1,
	'an index on the partition that a row is on its way to');
$other->query_safe('DROP INDEX part1_name');
is(syncs_around(q(CREATE TABLE part4 (name text, b blobstate, pause integer);
	CREATE INDEX ON part4 (b);
	ALTER TABLE parted ATTACH PARTITION part4 FOR VALUES IN ('four'))), 1,
	'a table with an index becomes a partition');
is($node->safe_psql('postgres', 'SELECT count(*) FROM parted
	WHERE sha256(b::bytea) <> sha256(b)'), '0', 'the values of all partitions have the content of their digests');
$session->quit;
$other->quit;

$node->stop;

# ---- logical replication ----

my $publisher = blob_cluster('publisher', streaming => 'logical');
# One table is copied after the other: two workers that meet would share a sync.
my $subscriber = blob_cluster('subscriber',
	conf => "blobext.background_sync = off\nmax_sync_workers_per_subscription = 1\n");
foreach my $server ($publisher, $subscriber)
{
	$server->safe_psql('postgres', $setup . q(
CREATE TABLE keyed (name text PRIMARY KEY, b blobstate);
CREATE TABLE keyless (name text PRIMARY KEY, b blobstate);));
}
$subscriber->safe_psql('postgres', 'CREATE INDEX ON keyed (b)');
$publisher->safe_psql('postgres', q(
CREATE PUBLICATION p FOR TABLE keyed, keyless;
INSERT INTO keyed SELECT 'a' || i, bytes('a' || i) FROM generate_series(1, 5) i;
INSERT INTO keyless SELECT 'a' || i, bytes('a' || i) FROM generate_series(1, 5) i));
my $connstr = $publisher->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$connstr' PUBLICATION p");
$subscriber->wait_for_subscription_sync;
my $before;
is(stat_of($subscriber, 'syncs'), 6,
	'initial copy: each value at once where there is an index, once at commit where there is none');
$publisher->safe_psql('postgres', q(INSERT INTO keyed
	SELECT 'b' || i, bytes('b' || i) FROM generate_series(1, 5) i));
$publisher->wait_for_catchup('s');
is(stat_of($subscriber, 'syncs'), 11, 'changes: each value at once');
is($subscriber->safe_psql('postgres', q(SELECT count(*), count(*) FILTER (WHERE
	blob_storage(b) = 'extents' AND b::bytea = bytes(name)) FROM keyed)), '10|10',
	'content on the subscriber');

# The initial copy has no statement: a row's content is stored, when an index is made on the partition to which
# the row is on its way.  The second row, without content, holds the copy before it commits.  Seen to fail (0 syncs)
# while a process without a statement let the news of an index pass.
foreach my $server ($publisher, $subscriber)
{
	$server->safe_psql('postgres', q(
CREATE FUNCTION pause(lock integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM pg_advisory_lock(lock);
	PERFORM pg_advisory_unlock(lock);
	RETURN 0;
END $$;
CREATE DOMAIN pausing AS integer CHECK (public.pause(VALUE) = 0);
CREATE TABLE root (name text, b blobstate, pause pausing) PARTITION BY LIST (name);
CREATE TABLE leaf PARTITION OF root FOR VALUES IN ('one', 'two')));
}
$publisher->safe_psql('postgres', q(INSERT INTO root VALUES ('one', bytes('root'), 1), ('two', NULL, 2);
	CREATE PUBLICATION roots FOR TABLE root WITH (publish_via_partition_root)));
$other = $subscriber->background_psql('postgres');
$other->query_safe('SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
$before = stat_of($subscriber, 'syncs');
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION roots CONNECTION '$connstr' PUBLICATION roots");
sub wait_for_copy_at
{
	my ($lock) = @_;
	$subscriber->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks
		WHERE locktype = 'advisory' AND NOT granted AND objid = $lock") or die "the copy does not wait for lock $lock";
	return stat_of($subscriber, 'syncs') - $before;
}
is(wait_for_copy_at(1), 0, 'the initial copy to a partitioned table without an index defers the sync');
$other->query_safe('CREATE INDEX ON leaf (b)');
$other->query_safe('SELECT pg_advisory_unlock(1)');
is(wait_for_copy_at(2), 1, 'content of the initial copy is synced when an index comes to the partition');
$other->query_safe('SELECT pg_advisory_unlock(2)');
$subscriber->wait_for_subscription_sync($publisher, 'roots');
is($subscriber->safe_psql('postgres', q(SELECT count(*) FROM leaf WHERE b::bytea = bytes('root'))), '1',
	'the row of the initial copy has its content');
$other->quit;
$subscriber->stop;
$publisher->stop;

done_testing();
