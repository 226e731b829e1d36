# The map and the WAL after growth and streams: extents that were cut (TRIM), claims, and values
# with a remainder, in the datum or on a page of its own.  After a crash, on a standby and after its
# promotion, through pg_dump.
#
# Seen to fail: with TRIM left out of redo() in recovery.c ("the map is the same after a crash");
# with a page too many given back by blob_store_trim() (values, the check); with content of the size
# of a remainder left out of the WAL in finish_write() of extents/pipeline.c ("standby: values").
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $schema = q(
CREATE TABLE g (id serial PRIMARY KEY, kind text, b blobstate, o bytea);
CREATE FUNCTION bytes(n int, seed text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
	SELECT coalesce(substring(string_agg(sha256(convert_to(seed || i, 'UTF8')), NULL ORDER BY i)
		FROM 1 FOR n), '') FROM generate_series(1, (n + 31) / 32) i
$$;
CREATE FUNCTION grow(kind text, old int, more int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO g (kind, b, o) SELECT $1, x, x FROM bytes($2, $1) AS x;
	UPDATE g SET b = blob_append(b, y), o = o || y FROM bytes($3, $1 || 'more') AS y WHERE g.kind = $1;
$$;
CREATE FUNCTION stream(kind text, pieces int, size int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO g (kind, b, o) SELECT kind, blob_agg(x ORDER BY i), string_agg(x, '' ORDER BY i)
		FROM generate_series(1, pieces) AS i, LATERAL (SELECT bytes(size, kind || i) AS x OFFSET 0) AS p;
$$;
);

# Remainders around the most that the datum holds and around a page, from values with and without a
# tail; streams that end in the first page of an extent, in its middle, and at its end.
sub make
{
	my ($node, $seed) = @_;
	my @sql;
	foreach my $old (2_000, 4_096, 5_000, 300_000)
	{
		foreach my $rest (0, 1, 1_536, 1_537, 4_095)
		{
			my $more = ($rest - $old) % 4_096 + 8_192;
			push @sql, "SELECT grow('$seed grown $old $rest', $old, $more)";
		}
	}
	push @sql, map { "SELECT stream('$seed stream @$_', $$_[0], $$_[1])" }
	  ([ 3, 100_000 ], [ 2, 2_048 ], [ 5, 4_097 ], [ 1, 28_672 ], [ 30, 70_000 ], [ 1, 1_048_577 ]);
	# One after the other: a value may get pages that the one before gave back.
	$node->safe_psql('postgres', join(";\n", @sql));
	return;
}

sub is_whole
{
	my ($node, $name, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql($database // 'postgres', q(SELECT kind FROM g WHERE b::bytea <> o
		OR sha256(b) <> sha256(o) OR length(b) <> length(o)
		OR (SELECT sum(bytes) FROM blob_extents(b)) <> length(o))), '', "$name: values are as the bytea beside them");
}

sub map_of
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT * FROM blobext_map ORDER BY first_page');
}

# Remainders in the datum, and on pages of their own.
sub rests
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q(SELECT count(*) FILTER (WHERE e.pages IS NULL OR e.pages = 0),
		count(*) FILTER (WHERE e.pages = 1 AND bytes IN (1537, 4095)) FROM g, LATERAL (SELECT * FROM
		blob_extents(b) ORDER BY extent_no DESC LIMIT 1) AS e WHERE kind LIKE '%grown%'));
}

# ---- a crash ----

foreach my $level ('minimal', 'replica')
{
	my $node = blob_cluster("crash_$level", conf => "wal_level = $level\nmax_wal_senders = 0\n"
		. "autovacuum = off\ncheckpoint_timeout = 1h\n");
	$node->safe_psql('postgres', "CREATE EXTENSION pg_walinspect; $schema");
	make($node, 'before');
	$node->safe_psql('postgres', 'CHECKPOINT');
	my $start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	make($node, 'after');
	my $records = $node->safe_psql('postgres', qq(SELECT string_agg(DISTINCT record_type, ' ')
		FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
		WHERE resource_manager = 'blobext'));
	like($records, qr/CLAIM.*TRIM/, "$level: the WAL has CLAIM and TRIM: $records");
	like(rests($node), qr/^[1-9]\d*\|[1-9]\d*$/, "$level: rests in the datum, and on pages");
	my $map = map_of($node);
	kill_everything($node);
	$node->start;
	is(map_of($node), $map, "$level: the map is the same after a crash");
	is_whole($node, "$level: after a crash");
	check_is_clean($node, "$level: the check finds nothing after a crash");

	# Pages that were cut off are free, pages that were kept are not.
	make($node, 'again');
	no_page_is_shared($node, "$level: no page is shared", 'g');
	$node->safe_psql('postgres', q(UPDATE g SET b = blob_append(b, x), o = o || x
		FROM bytes(6000, 'once more') AS x; DELETE FROM g WHERE id % 3 = 0; VACUUM g));
	is($node->safe_psql('postgres', 'SELECT skipped_reason IS NULL FROM blobext_gc(); CHECKPOINT'),
		't', "$level: a round after the crash is not skipped");
	make($node, 'reused');
	is_whole($node, "$level: grown once more, collected");
	check_is_clean($node, "$level: the check finds nothing after space was used again");
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, "$level: the server's log has no PANIC and no crash");
	$node->clean_node;
}

# ---- a standby ----

my $primary = blob_cluster('primary', streaming => 1,
	conf => "autovacuum = off\ncheckpoint_timeout = 1h\n");
$primary->safe_psql('postgres', $schema);
make($primary, 'before');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
make($primary, 'after');
$primary->safe_psql('postgres', q(UPDATE g SET b = blob_append(b, x), o = o || x
	FROM bytes(3000, 'more') AS x WHERE id % 2 = 0));
$primary->wait_for_catchup($standby);
is_whole($standby, 'standby');
is(map_of($standby), map_of($primary), 'standby: the map is the same');
check_is_clean($standby, 'standby: the check finds nothing');
is(rests($standby), rests($primary), 'standby: the rests are those of the primary');
kill_everything($standby);
$standby->start;
make($primary, 'later');
$primary->wait_for_catchup($standby);
is_whole($standby, 'standby, after a crash');
is(map_of($standby), map_of($primary), 'standby, after a crash: the map is the same');

# Its growth goes on where that of the primary ended.
$primary->stop('immediate');
$standby->promote;
$standby->safe_psql('postgres', q(UPDATE g SET b = blob_append(b, x), o = o || x
	FROM bytes(5000, 'promoted') AS x));
make($standby, 'promoted');
is_whole($standby, 'promoted');
no_page_is_shared($standby, 'promoted: no page is shared', 'g');
check_is_clean($standby, 'promoted: the check finds nothing');

# ---- a dump ----

my $dump = $standby->basedir . '/dump';
foreach my $format ('plain', 'custom')
{
	$standby->command_ok([ 'pg_dump', "-F$format", '-f', "$dump.$format", '-d',
			$standby->connstr('postgres') ], "$format: a standby can be dumped");
	$standby->safe_psql('postgres', "CREATE DATABASE $format");
	my @restore = $format eq 'plain' ? ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.$format")
	  : ('pg_restore', '--exit-on-error', "$dump.$format");
	$standby->command_ok([ @restore, '-d', $standby->connstr($format) ], "$format: the dump is restored in another database");
	my $digest = 'SELECT count(*), md5(string_agg(encode(sha256(b), $$hex$$), $$ $$ ORDER BY id)) FROM g';
	is($standby->safe_psql($format, $digest), $standby->safe_psql('postgres', $digest),
		"dump, $format: the same values");
	is_whole($standby, "dump, $format", $format);
	check_is_clean($standby, "dump, $format: the check", $format);
}
$standby->stop;
unlike(slurp_file($_->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log')
  foreach ($primary, $standby);
done_testing();
