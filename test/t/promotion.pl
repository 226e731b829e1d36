# A promoted server crashes before its first checkpoint is complete.
#
# Promotion makes no checkpoint before it lets writers in.  If the server crashes then, replay starts
# at its last restartpoint, which may lie before a FREE of the old primary whose pages the old
# primary has given out again.  Replay writes the old content of these pages, from the WAL of the old
# primary.  Content that the promoted server has written there since must come back, whatever its settings
# say about content in the WAL.
#
# Seen to fail without the look at blob_store_replays_predecessor() in blob_durability_wants_log(): the
# values have the old content, or zeros.  With that function always true, content is logged even after the checkpoint.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $library = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";
my $calm = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 10GB\n";

use constant SEGMENT => 262_144;	# pages

# A primary, and a backup of it.
sub old_primary
{
	my ($name) = @_;
	# All free pages are in the free runs: longest() looks there.
	my $node = blob_cluster($name, streaming => 1, conf => "$calm\nblobext.keep_free = -1\n");
	$node->safe_psql('postgres', qq(
CREATE FUNCTION allocate(pages bigint) RETURNS bigint
	AS '$library', 'unit_store_allocate' LANGUAGE C STRICT;
CREATE FUNCTION free(pages bigint[], generations bigint[], horizon xid) RETURNS pg_lsn
	AS '$library', 'unit_store_free' LANGUAGE C STRICT;
CREATE FUNCTION reclaim() RETURNS integer AS '$library', 'unit_store_reclaim' LANGUAGE C;
CREATE FUNCTION longest() RETURNS bigint AS '$library', 'unit_store_longest' LANGUAGE C;
CREATE TABLE old (b blobstate)));
	make_values($node, 'kept', 300_000);
	$node->backup('base');
	return $node;
}

sub standby_of
{
	my ($primary, $name, $conf) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init_from_backup($primary, 'base', has_streaming => 1);
	$node->append_conf('postgresql.conf', $conf);
	start_with_stops($node);
	return $node;
}

# Free all extents that begin in [first, end), with a checkpoint past that; returns the record's end.
sub free_pages
{
	my ($node, $first, $end) = @_;
	my $lsn = $node->safe_psql('postgres', qq(SELECT free(array_agg(first_page ORDER BY first_page),
		array_agg(generation ORDER BY first_page), '0') FROM blobext_map
		WHERE first_page >= $first AND first_page < $end));
	$node->safe_psql('postgres', 'SELECT reclaim()');
	$node->safe_psql('postgres', 'CHECKPOINT');
	return $lsn;
}

# Leave no page free.
sub fill
{
	my ($node) = @_;
	my $pages;
	$node->safe_psql('postgres', "SELECT allocate($pages)")
	  while ($pages = $node->safe_psql('postgres', 'SELECT longest()')) > 0;
	return;
}

# Stop the primary and promote the standby.  Returns the checkpointer, which stands still.
sub promote_over
{
	my ($primary, $standby) = @_;
	$primary->stop('immediate');
	return promote_before_checkpoint($standby);
}

sub redo_of
{
	my ($node) = @_;
	my ($control) = run_command([ 'pg_controldata', $node->data_dir ]);
	return $control =~ /REDO location:\s+(\S+)/ ? $1 : die $control;
}

# Where the values of a table lie.
sub extents
{
	my ($node, $table) = @_;
	return $node->safe_psql('postgres', "SELECT id, array_agg(first_page || '+' || pages
		ORDER BY extent_no) FROM $table, blob_extents(b) WHERE pages > 1 GROUP BY id ORDER BY id");
}

# Store a value in a session; returns how many bytes of content were logged.
sub logged_by
{
	my ($node, $session, $table) = @_;
	my $before = stat_of($node, 'wal_content_bytes');
	$session->query_safe("INSERT INTO $table (digest, b) SELECT encode(sha256(x), 'hex'), x
		FROM convert_to(repeat('session', 30000), 'UTF8') AS x");
	return stat_of($node, 'wal_content_bytes') - $before;
}

# off_complete: the server crashes after its first checkpoint.
my %settings = (
	off => "blobext.wal_content = off\n",
	off_complete => "blobext.wal_content = off\n",
	minimal => "wal_level = minimal\nmax_wal_senders = 0\nhot_standby = off\n");

foreach my $mode (sort keys %settings)
{
	my $primary = old_primary("old_$mode");
	my $standby = standby_of($primary, "new_$mode", $settings{$mode});

	# Old content behind the backup.  Its pages are freed, and after a checkpoint they are given
	# out again: the first of them to a value that has room in its last extent.
	$primary->safe_psql('postgres', q(
		INSERT INTO old SELECT convert_to(repeat('old', 6000000), 'UTF8')));
	my ($first, $end) = split /\|/, $primary->safe_psql('postgres',
		'SELECT min(e.first_page), max(e.first_page + e.pages) FROM old, blob_extents(b) AS e');
	fill($primary);
	$primary->safe_psql('postgres', 'DELETE FROM old');
	my $freed = free_pages($primary, $first, $end);
	make_values($primary, 'grown', 20_000);
	$primary->safe_psql('postgres',
		'UPDATE grown SET b = blob_append(b, ' . literal(content('grown', 3_300_000)) . ')');
	# And to one that ends in pages whose part of the map says nothing about FREE: an extent has its
	# entry, and leaves its LSN, where it begins.
	$primary->safe_psql('postgres', 'SELECT allocate(2100)');
	# By its name: PostgreSQL 19 would ask a standby that lets no queries in.
	$primary->wait_for_catchup($standby->name);
	my $before = extents($primary, 'grown');
	my $checkpointer = promote_over($primary, $standby);
	is($standby->safe_psql('postgres', "SELECT '" . redo_of($standby) . "'::pg_lsn < '$freed'"),
		't', "$mode: a crash would replay the record that freed the pages");
	$standby->safe_psql('postgres', 'UPDATE grown SET b = blob_append(b, '
		  . literal(content('more', 200_000)) . "); UPDATE grown SET digest = encode(sha256(b), 'hex')");
	is(extents($standby, 'grown'), $before, "$mode: a value grows into the extent that it has");
	is($standby->safe_psql('postgres', "SELECT bool_and(first_page >= $first AND
		first_page + pages <= $end) FROM grown, blob_extents(b) WHERE pages > 1"), 't',
		"$mode: in pages that had other content");
	make_values($standby, 'new', 1_000_000, (50_000) x 20, 3_000);
	cmp_ok($standby->safe_psql('postgres', "SELECT count(*) FROM new, blob_extents(b)
		WHERE first_page >= $first AND first_page < $end"), '>', 0,
		"$mode: new values are in such pages");
	values_are_intact($standby, $_, "$mode: the values of table $_ are whole") foreach ('grown', 'new');

	my $session = $standby->background_psql('postgres', on_error_stop => 1);
	cmp_ok(logged_by($standby, $session, 'new'), '>=', 210_000, "$mode: content is logged");
	if ($mode eq 'off_complete')
	{
		kill 'CONT', $checkpointer;
		$standby->safe_psql('postgres', 'CHECKPOINT');
		is(logged_by($standby, $session, 'new'), 0,
			"$mode: the same session logs none after the checkpoint");
	}
	kill_everything($standby);
	$session->{run}->kill_kill;
	# Without it pg_ctl does not wait for the end of crash recovery.
	$standby->append_conf('postgresql.conf', "hot_standby = on\n");
	$standby->start;
	values_are_intact($standby, $_, "$mode: $_, after a crash") foreach ('kept', 'grown', 'new');
	check_is_clean($standby, "$mode: the check finds nothing");
	$session = $standby->background_psql('postgres', on_error_stop => 1);
	is(logged_by($standby, $session, 'new'), 0, "$mode: after the crash no content is logged");
	$session->quit;
	$standby->stop;
	$standby->clean_node;
	$primary->clean_node;
}

# A segment that the old primary has removed and restored.  Replay of REMOVE removes the file, with
# what the promoted server has stored there.
{
	my $primary = old_primary('old_segments');
	my $standby = standby_of($primary, 'new_segments', $settings{off});
	$primary->safe_psql('postgres', 'SELECT allocate(' . 2 * SEGMENT . ')');
	my $first = $primary->safe_psql('postgres',
		'SELECT first_page FROM blobext_map WHERE pages = ' . 2 * SEGMENT);
	free_pages($primary, $first, $first + 1);
	is(-e segment_file($primary, 1), undef, 'a segment is removed');
	fill($primary);
	# It ends in pages that leave no trace of REMOVE and RESTORE in their part of the map.
	is($primary->safe_psql('postgres', 'SELECT allocate(600)'), SEGMENT, 'the segment is restored');
	$primary->wait_for_catchup($standby->name);
	promote_over($primary, $standby);
	make_values($standby, 'new', 3_000_000);
	is($standby->safe_psql('postgres', 'SELECT min(first_page) >= ' . SEGMENT . '
		AND max(first_page) < ' . 2 * SEGMENT . ' FROM new, blob_extents(b)'), 't',
		'a new value is in that segment');
	kill_everything($standby);
	$standby->start;
	values_are_intact($standby, $_, "a restored segment: $_, after a crash")
	  foreach ('kept', 'new');
	check_is_clean($standby, 'a restored segment: the check finds nothing');
	$standby->stop;
	$standby->clean_node;
	$primary->clean_node;
}

done_testing();
