# The power fails while blobext_fetch() works, and right after it.
#
# The store of a promoted standby is on the lossy disk; its WAL and tables are not.  Values that are
# no longer noted as missing must have their content, whether it is in the WAL (with a checkpoint
# behind it) or not.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $why_not = why_no_lossy_disk();
plan skip_all => "no lossy disk: $why_not" if $why_not ne '';
my $seed = $ENV{BLOBEXT_SEED} // 17;
srand($seed);
note("seed $seed");

my $calm = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 10GB\n";
my $old = blob_cluster('old', streaming => 1, conf => $calm . "blobext.wal_content = off\n");
$old->backup('base');
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init_from_backup($old, 'base', has_streaming => 1);
$new->start;
$old->safe_psql('postgres', q(
CREATE TABLE v (id serial PRIMARY KEY, digest text, b blobstate);
INSERT INTO v (b) SELECT convert_to(repeat(md5(i::text), 3000 + i * 40), 'UTF8') FROM generate_series(1, 150) AS i;
UPDATE v SET digest = encode(sha256(b::bytea), 'hex')));
$old->wait_for_catchup($new);
$new->promote;
$new->safe_psql('postgres', q(
CREATE FUNCTION state_of(content blobstate, digest text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN encode(sha256(content::bytea), 'hex') = digest THEN 'right' ELSE 'wrong' END;
EXCEPTION WHEN SQLSTATE 'XB002' THEN
	RETURN 'missing';
END $$));
$new->stop;
power('lossy format');
put_store_on_lossy_disk($new);
my $lossy_store = "$ENV{BLOBEXT_LOSSY_FS}/pg_blobext";
my $source = "'" . $old->connstr('postgres') =~ s/'/''/gr . "'";

# Values in each state.
sub states
{
	return $new->safe_psql('postgres', q(SELECT count(*) FILTER (WHERE s = 'right'),
		count(*) FILTER (WHERE s = 'missing'), count(*) FILTER (WHERE s = 'wrong')
		FROM (SELECT state_of(b, digest) AS s FROM v) AS x));
}

sub cut
{
	my ($figures) = cut_lossy_disk(int(rand(600)), int(rand(500)), int(rand(1 << 31)), $new);
	note($figures);
	$new->start;
	return;
}

# The note as it was before the first run.
my ($note) = glob("$lossy_store/*.*/missing");
my $lacking = slurp_file($note);

# With buffered writes, since the flush of the note's file makes direct ones durable as well.  Seen to
# fail without sync_written().
foreach my $mode ([ 'off', 'on' ], [ 'auto', 'on' ], [ 'off', 'off' ])
{
	my ($wal_content, $direct_io) = @$mode;
	# With the files and the note of the beginning.
	$new->append_conf('postgresql.conf', "blobext.wal_content = $wal_content\nblobext.direct_io = $direct_io\n");
	if (defined $new->{_pid})
	{
		$new->stop;
		open(my $file, '>:raw', $note) or die "$note: $!";
		syswrite($file, $lacking);
		close $file;
		system_or_bail('sh', '-c', "for f in $lossy_store/*.*/0*; do dd if=/dev/zero of=\$f bs=1M conv=notrunc"
			. " count=\$((\$(stat -c %s \$f) / 1048576)) status=none; done");
		system_or_bail('sync', '-f', $ENV{BLOBEXT_LOSSY_FS});
	}
	$new->start;
	is(states(), '0|150|0', "$wal_content, direct I/O $direct_io: all is missing");
	for my $round (1 .. 2)
	{
		my $session = $new->background_psql('postgres', on_error_stop => 0);
		$session->{stdin} .= "SELECT count(*) FROM blobext_fetch($source, damaged => false);\n";
		$session->{run}->pump_nb;
		$new->poll_query_until('postgres', 'SELECT count(*) = 0 OR max(bytes_fetched) > '
			. int(rand(20_000_000)) . ' FROM blobext_fetch_progress');
		cut();
		$session->{run}->kill_kill;
		like(states(), qr/\|0$/, "$wal_content, direct I/O $direct_io: no value is wrong after a cut in the middle, round $round");
	}
	$new->safe_psql('postgres', "SELECT * FROM blobext_fetch($source, damaged => false)");
	$new->safe_psql('postgres', 'CHECKPOINT');
	cut();
	is(states(), '150|0|0', "$wal_content, direct I/O $direct_io: all values are there after a cut behind the run");
	check_is_clean($new, "$wal_content, direct I/O $direct_io: the check finds no problem");
}
$new->stop;
$old->stop;

done_testing();
