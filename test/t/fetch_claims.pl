# Pages behind a value that blobext_fetch() fetches, which no digest verifies: this server may have
# written them itself, for a value that the run does not see.
#
# They come from a standby only that has replayed what this server has written there; not from one
# that has replayed CLAIM and not the content yet, nor from a server whose history only looks the
# same.  Seen to fail without may_ask_without_digest(): zeros, or the other server's bytes, are
# written over the content, and the note is removed.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $calm = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 10GB\n";

sub standby_of
{
	my ($primary, $name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$primary->backup($name);
	$node->init_from_backup($primary, $name, has_streaming => 1);
	$node->start;
	return $node;
}

# Rows of a fetch of missing content: values by problem.
sub fetch
{
	my ($node, $source, $table) = @_;
	my $from = $source->connstr('postgres') =~ s/'/''/gr;
	my $checked = defined $table ? ", checked => '$table'" : '';
	return $node->safe_psql('postgres', "SELECT count(*), problem FROM blobext_fetch('$from'$checked,"
		. ' damaged => false) GROUP BY problem ORDER BY problem');
}

# A value whose last extent has room, and a function that says what became of a value.
sub make_objects
{
	my ($node) = @_;
	$node->safe_psql('postgres', q(
CREATE TABLE seen (b blobstate);
CREATE TABLE other (b blobstate);
CREATE TABLE nothing (b blobstate);
CREATE FUNCTION state_of(content blobstate) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN sha256(content::bytea) = sha256(content) THEN 'right' ELSE 'wrong' END;
EXCEPTION WHEN SQLSTATE 'XB002' THEN
	RETURN 'missing';
END $$));
	store_seen($node);
	return;
}

sub store_seen
{
	my ($node) = @_;
	$node->safe_psql('postgres', q(
TRUNCATE seen, other;
SET blobext.tail_extents = off;
INSERT INTO seen SELECT convert_to(repeat('g', 70000), 'UTF8');
UPDATE seen SET b = b || convert_to(repeat('h', 50000), 'UTF8')));
	return;
}

# A longer value in the same extent, in a row of another table.
sub grow
{
	my ($node, $letter) = @_;
	$node->safe_psql('postgres', "SET blobext.tail_extents = off;
		INSERT INTO other SELECT b || convert_to(repeat('$letter', 30000), 'UTF8') FROM seen");
	is($node->safe_psql('postgres', q(SELECT count(*) FROM seen, other, LATERAL
		(SELECT max(first_page) AS page FROM blob_extents(seen.b)) AS s,
		blob_extents(other.b) AS o WHERE o.first_page = s.page)), '1', 'both values are in the last extent');
	return;
}

sub states
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		'SELECT state_of(b) FROM seen UNION ALL SELECT state_of(b) FROM other');
}

# ---- a standby that has the claim and not the content ----

my $primary = blob_cluster('primary', streaming => 1, conf => $calm . "blobext.cache_size = 0\n");
make_objects($primary);
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect');
my $standby = standby_of($primary, 'standby');
$primary->wait_for_catchup($standby);
$primary->stop;
unlink(segment_file($primary)) or die $!;
$primary->start;
is(fetch($primary, $standby, 'nothing'), '', 'the lost file is made anew');
is(states($primary), 'missing', 'the value of a lost file is missing');
$primary->wait_for_catchup($standby);
$standby->stop;
my $start = $primary->lsn('insert');
grow($primary, 'm');
my $end = $primary->lsn('flush');
my $claim = $primary->safe_psql('postgres', "SELECT start_lsn FROM pg_get_wal_records_info('$start', '$end')
	WHERE resource_manager = 'blobext' AND record_type = 'CLAIM' ORDER BY start_lsn LIMIT 1");
isnt($claim, '', 'room in the extent was claimed');
my $settings = slurp_file($standby->data_dir . '/postgresql.conf');
$standby->append_conf('postgresql.conf', "recovery_target_lsn = '$claim'\nrecovery_target_action = 'pause'\n");
$standby->start;
$standby->poll_query_until('postgres', q(SELECT pg_get_wal_replay_pause_state() = 'paused')) or die;
like(fetch($primary, $standby, 'seen'), qr/^1\|.*not replayed/, 'the standby may lack what was written');
is(states($primary), "missing\nmissing", 'no value is wrong');
$standby->stop;
open(my $file, '>', $standby->data_dir . '/postgresql.conf') or die $!;
print $file $settings;
close $file;
$standby->start;
is(fetch($primary, $standby, 'seen'), '1|', 'when it has replayed all, it gives the pages');
is(states($primary), "right\nright", 'a longer value, which the run did not see, is right, too');
check_is_clean($primary, 'the check finds no problem');
$primary->wait_for_catchup($standby);
is(states($standby), "right\nright", 'on the standby, too');

# ---- a claim whose content is not in the WAL yet ----

# Seen to fail without the lock in position_behind_claims().
store_seen($primary);
$primary->wait_for_catchup($standby);
$primary->stop;
unlink(segment_file($primary)) or die $!;
start_with_stops($primary);
is(fetch($primary, $standby, 'nothing'), '', 'the lost file is made anew');
# The first store after a start writes the file of limits.
$primary->safe_psql('postgres', q(INSERT INTO nothing SELECT convert_to(repeat('n', 70000), 'UTF8')));
my ($writer, $held) = hold_at($primary, 'write', 'after', q(SET blobext.io_method = sync; SET blobext.tail_extents = off;
	INSERT INTO other SELECT b || convert_to(repeat('w', 30000), 'UTF8') FROM seen));
my $from = $standby->connstr('postgres') =~ s/'/''/gr;
my ($fetcher, $waits) = start_waiting($primary, 'Lock',
	"SET client_min_messages = error; SELECT problem FROM blobext_fetch('$from', checked => 'seen', damaged => false)");
is($waits, 1, 'the fetch waits for the writer');
let_go($held, $writer, $fetcher);
is(states($primary), "right\nright", 'what was written meanwhile is right');
check_is_clean($primary, 'the check finds no problem');
$primary->wait_for_catchup($standby);
is(states($standby), "right\nright", 'on the standby, too');

# ---- a claim whose content was never written ----

# Its pages have no checksums, and the source gives them all the same.  Seen to fail with checksums that the
# source compares: the value stays missing.
store_seen($primary);
($writer, $held) = hold_at($primary, 'write', 'after', q(SET blobext.io_method = sync; SET blobext.tail_extents = off;
	SELECT length(b || convert_to(repeat('x', 30000), 'UTF8')) FROM seen));
kill('INT', $held);
kill('CONT', $held);
$writer->{run}->finish;
like($writer->{stderr}, qr/canceling statement/, 'a writer is cancelled behind its claim');
$primary->wait_for_catchup($standby);
$primary->stop;
unlink(segment_file($primary)) or die $!;
$primary->start;
is(fetch($primary, $standby, 'seen'), '1|', 'the value before a claim that was never written is fetched');
is($primary->safe_psql('postgres', 'SELECT state_of(b) FROM seen'), 'right', 'the value before that claim is right');
is(fetch($primary, $standby), '1|', 'the value of another table is fetched, too');
check_is_clean($primary, 'the check finds no problem behind that claim');
$_->stop foreach ($standby, $primary);

# ---- a copy that goes on with the same timeline ----

my $original = blob_cluster('original', streaming => 1, conf => $calm . "blobext.wal_content = off\n");
my $copy = standby_of($original, 'copy');
make_objects($original);
$original->wait_for_catchup($copy);
$copy->stop;
unlink $copy->data_dir . '/standby.signal';
$copy->append_conf('postgresql.conf', "blobext.wal_content = auto\n");
$copy->start;
is($copy->safe_psql('postgres', 'SELECT timelines FROM blobext_source(\'0/0\')'),
	$original->safe_psql('postgres', 'SELECT timelines FROM blobext_source(\'0/0\')'), 'two histories look like one');
is(states($copy), 'missing', 'the copy lacks the value');
$original->restart;
grow($copy, 'c');
grow($original, 'o');
like(fetch($copy, $original, 'seen'), qr/^1\|.*only a standby/, 'pages behind the value are not taken');
is(states($copy), "missing\nmissing", 'no value is wrong');
$_->stop foreach ($copy, $original);

# ---- a source that goes on ----

# It changes the map, so it proves pages behind a value only while the blocks of this server's map are those
# of the fork.  Seen to fail with checksums that are logged although the map has them: the first value that
# was fetched changed the block, and the others were refused.
my $forsaken = blob_cluster('forsaken', streaming => 1, conf => $calm . "blobext.wal_content = off\n");
my $leaver = standby_of($forsaken, 'leaver');
make_objects($forsaken);
$forsaken->safe_psql('postgres', q(CREATE TABLE many (id integer, b blobstate);
	SET blobext.tail_extents = off;
	INSERT INTO many SELECT i, convert_to(repeat('g', 70000 + i), 'UTF8') FROM generate_series(1, 5) AS i;
	UPDATE many SET b = b || convert_to(repeat('h', 50000), 'UTF8');
	CREATE TABLE longer AS SELECT b || convert_to(repeat('n', 8192), 'UTF8') AS b FROM many;
	DELETE FROM longer));
$forsaken->wait_for_catchup($leaver);
$leaver->promote;
$forsaken->safe_psql('postgres', q(INSERT INTO nothing SELECT convert_to(repeat('n', 70000), 'UTF8')));
is(fetch($leaver, $forsaken, 'many'), '5|', 'all values are fetched from a source that has gone on');
is($leaver->safe_psql('postgres', 'SELECT state_of(b), count(*) FROM many GROUP BY 1'), 'right|5', 'all these values are right');
$_->stop foreach ($leaver, $forsaken);

# ---- claims of a promoted copy ----

# The copy has appended to values that it lacks: rolled back, deleted, and kept.  It wrote content
# there without logging it, which its own standby must get.  Seen to fail with proofs that go up to the
# mark: none of the extents became whole; and without keep_own_pages(): the standby took its own bytes
# for content.
my $old = blob_cluster('old', streaming => 1, conf => $calm . "blobext.wal_content = off\n");
my $new = standby_of($old, 'new');
make_objects($old);
$old->safe_psql('postgres', q(CREATE TABLE many (id integer, b blobstate);
	SET blobext.tail_extents = off;
	INSERT INTO many SELECT i, convert_to(repeat('g', 70000 + i), 'UTF8') FROM generate_series(1, 15) AS i;
	UPDATE many SET b = b || convert_to(repeat('h', 50000), 'UTF8')));
$old->wait_for_catchup($new);
$new->promote;
my $heir = standby_of($new, 'heir');
my $append = q(SET blobext.tail_extents = off; UPDATE many SET b = b || convert_to(repeat('n', 20000), 'UTF8') WHERE id);
$new->safe_psql('postgres', "BEGIN; $append <= 5; ROLLBACK");
$new->safe_psql('postgres', "BEGIN; SAVEPOINT s; $append = 6; ROLLBACK TO s; COMMIT");
grow($new, 'n');
$new->safe_psql('postgres', q(SET blobext.tail_extents = off;
	CREATE TABLE longer AS SELECT id, b || convert_to(repeat('n', 8192), 'UTF8') AS b FROM many WHERE id > 6));
is($new->safe_psql('postgres', 'SELECT count(*) FROM many, longer, LATERAL
	(SELECT max(first_page) AS page FROM blob_extents(many.b)) AS m, blob_extents(longer.b) AS l
	WHERE many.id = longer.id AND l.first_page = m.page'), '9', 'longer values use the room of the extents');
$new->safe_psql('postgres', 'DELETE FROM longer WHERE id <= 10; VACUUM longer');
my $all = 'SELECT state_of(b), count(*) FROM (SELECT b FROM many UNION ALL SELECT b FROM longer
	UNION ALL SELECT b FROM seen UNION ALL SELECT b FROM other) AS v GROUP BY 1';
is($new->safe_psql('postgres', $all), 'missing|22', 'all these values are missing before');
$new->append_conf('postgresql.conf', "blobext.wal_content = auto\n");
$new->restart;
my %problems = map { reverse split /\|/, $_, 2 } split /\n/, fetch($new, $old);
is(join(', ', keys %problems), '', 'all these values are fetched, or others bring them');
is($new->safe_psql('postgres', $all), 'right|22', 'all these values are right');
check_is_clean($new, 'the check finds no problem on the promoted copy');
$new->wait_for_catchup($heir);
# The value in other has an extent of its own besides, which the copy has never logged.
is($heir->safe_psql('postgres', $all), "missing|1\nright|21", 'all others of these values are right on the standby of the copy');
is($heir->safe_psql('postgres', q(SELECT string_agg(relation || ' ' || problem, ', ') FROM blobext_check())),
	'other content of a blobstate value is missing on this server', 'the check finds no other problem on the standby of the copy');
kill_everything($new);
$new->start;
is($new->safe_psql('postgres', $all), 'right|22', 'all these values are right after a crash');

# A source that has changed its map since says nothing about the mark.
$new->stop;
unlink(segment_file($new)) or die $!;
$new->start;
$old->safe_psql('postgres', q(SET blobext.tail_extents = off; UPDATE seen SET b = b || convert_to(repeat('o', 20000), 'UTF8')));
unlike(fetch($new, $old, 'seen'), qr/^1\|$/, 'a source whose map has changed since does not prove pages behind its mark');
is($new->safe_psql('postgres', 'SELECT state_of(b) FROM other'), 'missing', 'the longer value is not taken for whole');
$_->stop foreach ($heir, $new, $old);

done_testing();
