# Slabs of the buffer with bytes of pages that blobext_fetch() writes anew: no read gets them afterwards.
#
# A run is cancelled after a write; a reader has read damaged bytes before the write and offers them after it; it
# has read them without a slab; slabs have pages that have yet to be written; a reader has copied a slab of
# missing content before all of it is fetched.  Seen to fail: with blob_buffer_forget() in place of
# blob_buffer_outdate(), the first two; without the sum of rewrites in blob_buffer_put(), the third; if dirty pages of an
# outdated slab are not read (blob_buffer_get()), the
# fourth; without blob_unlogged_version() in blob_buffered_copy(), the last.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $calm = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 10GB\n";
# Without checksums of pages no damaged byte would be kept from the buffer.
my $old = blob_cluster('old', streaming => 1, conf => $calm . "blobext.page_checksums = off\n", start => 0);
start_with_stops($old);
$old->safe_psql('postgres', q(
CREATE EXTENSION blobext;
CREATE TABLE v (id int PRIMARY KEY, b blobstate, c bytea);
CREATE TABLE other (b blobstate);
SET blobext.tail_extents = off;
INSERT INTO v SELECT 2, convert_to(repeat('g', 70000), 'UTF8'), convert_to(repeat('g', 70000) || repeat('h', 50000), 'UTF8');
UPDATE v SET b = b || convert_to(repeat('h', 50000), 'UTF8') WHERE id = 2;
RESET blobext.tail_extents;
INSERT INTO v SELECT i, c, c FROM (SELECT i, (SELECT string_agg(sha256(convert_to(i || '.' || j, 'UTF8')), '')
	FROM generate_series(1, CASE WHEN i = 1 THEN 60000 ELSE 150 END) j) AS c FROM generate_series(1, 52) i WHERE i <> 2) s
	ORDER BY i));
$old->backup('base');
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init_from_backup($old, 'base', has_streaming => 1);
my $source = $old->connstr('postgres') =~ s/'/''/gr;
my $fetch = "SELECT count(*), count(problem) FROM blobext_fetch('$source', checked => 'v')";

# ---- missing content: a slab, a copy of it, a whole fetch, the end of the read ----

# ALLOC comes first, so a scan of the standby fills a slab with pages that have yet to be written.  That their
# content was not logged it learns later.
$old->append_conf('postgresql.conf', "blobext.wal_content = off\n");
$old->stop;
start_with_stops($old);
# The first store of a server writes to a file of the store itself.
$old->safe_psql('postgres', q(INSERT INTO v SELECT 60, c, c FROM (SELECT convert_to(repeat('first', 900), 'UTF8') AS c) s));
my ($session, $pid) = hold_at($old, 'write', 'before', q(SET blobext.io_method = sync; INSERT INTO v SELECT 53, c, c FROM
	(SELECT string_agg(sha256(convert_to('53.' || j, 'UTF8')), '') AS c FROM generate_series(1, 150) j) s));
start_with_stops($new);
$old->safe_psql('postgres', 'CREATE TABLE later ()');
$old->wait_for_catchup($new);
is($new->safe_psql('postgres', q(
DO $$
BEGIN
	FOR i IN 3 .. 52 LOOP
		IF (SELECT b::bytea <> c FROM v WHERE id = i) THEN RAISE 'value % is wrong', i; END IF;
	END LOOP;
END $$;
SELECT value > 0 FROM blobext_stat WHERE name = 'read_ahead_bytes')), 't', 'the standby scans values before a missing one');
let_go($pid, $session);
$old->wait_for_catchup($new);
my $value = q(SELECT md5(b::bytea) FROM v WHERE id = 53);
fails_with($new, $value, 'XB002', qr/missing/, 'the standby lacks the value');
$new->promote;
my $hits = stat_of($new, 'cache_hits');
($session, $pid) = hold_at($new, 'verify', 'before', $value);
cmp_ok(stat_of($new, 'cache_hits'), '>', $hits, 'a reader has copied bytes of the slab');
is($new->safe_psql('postgres', $fetch), '2|0', 'both values are fetched while a reader has the slab');
is(stat_of($new, 'unlogged_extents'), '0', 'nothing is missing any more');
kill('CONT', $pid);
my $digest = $new->safe_psql('postgres', 'SELECT md5(c) FROM v WHERE id = 53');
$session->{run}->pump_nb until $session->{stdout} =~ /over/;
like($session->{stdout}, qr/^$digest$/m, 'the reader returns what was fetched');
$session->quit;
is($new->safe_psql('postgres', $value), $digest, 'the value is right');

# ---- damaged pages ----

# The largest extent of a value: its first page, and the offset of it in the content.
my ($page, $start) = split /\|/, $new->safe_psql('postgres', q(SELECT first_page, start FROM
	(SELECT first_page, pages, sum(bytes) OVER (ORDER BY extent_no) - bytes AS start FROM v, blob_extents(b) WHERE v.id = 1) e
	ORDER BY pages DESC LIMIT 1));

sub damage
{
	my ($damaged) = @_;
	open(my $file, '+<:raw', segment_file($new, int($damaged / 262_144))) or die $!;
	sysseek($file, ($damaged % 262_144) * 4096, 0);
	is(syswrite($file, 'damage! ' x 512), 4096, 'a page is damaged');
	close $file;
	return;
}

# Whether a page of the extent is right, as blob_read() has it.
sub page_of
{
	my ($number) = @_;
	my $offset = $start + $number * 4096;
	return "SELECT blob_read(b, $offset, 4096) = substr(c, $offset + 1, 4096) FROM v WHERE id = 1";
}

sub page_is
{
	my ($number, $state, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($new->safe_psql('postgres', page_of($number)), $state, $name);
}

damage($page);
page_is(0, 'f', 'the buffer gets damaged bytes');
($session, $pid) = hold_at($new, 'write', 'after', $fetch);
is($new->safe_psql('postgres', "SELECT pg_cancel_backend($pid)"), 't', 'a run is cancelled when it has written');
kill('CONT', $pid);
$session->{run}->finish;
like($session->{stderr}, qr/canceling statement/, 'the run has ended before it goes on');
is($new->safe_psql('postgres', $fetch), '0|0', 'another run finds nothing to repair');
page_is(0, 't', 'a page that the cancelled run has written is read');

damage($page + 32);
($session, $pid) = hold_at($new, 'read', 'after', 'SET blobext.io_method = sync;' . page_of(32));
is($new->safe_psql('postgres', $fetch), '1|0', 'a page is repaired while a reader has it from the device');
let_go($pid, $session);
page_is(32, 't', 'a page whose damaged bytes were read into a slab before');

# Two pages of a chunk: the buffer has the first one when the other is read.
page_is(64, 't', 'the buffer gets a page');
damage($page + 65);
($session, $pid) = hold_at($new, 'read', 'after', 'SET blobext.io_method = sync;' . page_of(65));
is($new->safe_psql('postgres', $fetch), '1|0', 'a page beside it is repaired while a reader has it from the device');
let_go($pid, $session);
page_is(65, 't', 'a page whose damaged bytes were read without a slab before');

# ---- pages that have yet to be written ----

my ($end) = $new->safe_psql('postgres', q(SELECT first_page + bytes / 4096 FROM v, blob_extents(b)
	WHERE v.id = 2 AND bytes > 0 AND pages > 0 ORDER BY extent_no DESC LIMIT 1));
damage($end - 1);
is($new->safe_psql('postgres', 'SELECT b::bytea <> c FROM v WHERE id = 2'), 't', 'the buffer gets damaged bytes of a value');
my $syncer = stop_syncer($new, 'deferred_pages',
	sub { $new->safe_psql('postgres', q(INSERT INTO other SELECT convert_to(repeat('s', 5000), 'UTF8'))) });
my $writer = $new->background_psql('postgres');
$writer->query_safe(q(BEGIN; UPDATE v SET b = b || convert_to(repeat('i', 20000), 'UTF8'),
	c = c || convert_to(repeat('i', 20000), 'UTF8') WHERE id = 2));
is($new->safe_psql('postgres', $fetch), '1|0', 'the value is repaired, of which another process makes a longer one');
is($writer->query_safe('SELECT b::bytea = c FROM v WHERE id = 2'), 't', 'the longer value is read, repaired pages and dirty ones');
$writer->query_safe('COMMIT');
$writer->quit;
kill('CONT', $syncer);
is($new->safe_psql('postgres', 'SELECT count(*) FROM v WHERE b::bytea <> c'), '0', 'all values are right');
check_is_clean($new, 'the check finds nothing at the end');
$new->stop;
$old->stop;

done_testing();
