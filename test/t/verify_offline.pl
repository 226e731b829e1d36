# blobext_verify: compares the content of a data directory with its checksums while no server runs.
#
# One bit flips in a page of values of each kind: each page must be named by file and byte, no other
# one, and the exit status must say so.  Pages that no value has can look the same: of a transaction that
# a crash ended, of a claim that was cancelled.  A missing file, a damaged entry of the map cannot: they have
# a status of their own.  A directory that cannot be verified (of a server that runs or crashed, with a
# lost map) must not look like a sound copy.
#
# Seen to fail without the comparison of sums (store_check.c), without the look at the state of the
# control file, without the look at directories without a map, and without the note of lacking content; with
# pages in doubt counted as damaged ones; without the look at damaged entries (check_block()).
use strict;
use warnings;

use FindBin;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $page_bytes = 4096;
my $node = blob_cluster('main', streaming => 1, init => ['--data-checksums'], conf => "autovacuum = off\n");
sub sql { return $node->safe_psql('postgres', join(';', @_)); }

# Exit status, output, messages.
sub verify
{
	my (@arguments) = @_;
	my $finished = IPC::Run::run([ 'blobext_verify', @arguments ], '>', \my $out, '2>', \my $err);
	return ($finished ? 0 : $? >> 8, $out, $err);
}

sub is_sound
{
	my ($directory, $name) = @_;
	my ($status, $out, $err) = verify('-D', $directory);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($err, '', "$name: there are no messages");
	is($status, 0, "$name: the exit status says that nothing is damaged");
	return $out;
}

sub is_refused
{
	my ($directory, $like, $name) = @_;
	my ($status, $out, $err) = verify('-D', $directory);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, 2, "$name: the exit status says that nothing is known");
	like($err, $like, "$name: the message says why nothing is known");
	return;
}

sub flip
{
	my ($path, $at) = @_;
	open(my $file, '+<:raw', $path) or die "$path: $!";
	sysseek($file, $at, 0);
	sysread($file, my $byte, 1) == 1 or die $!;
	sysseek($file, $at, 0);
	syswrite($file, chr(ord($byte) ^ 4)) == 1 or die $!;
	close $file or die $!;
	return;
}

# ---- a sound directory ----

make_values($node, 'v');
add_values($node, 'v', 30_000_000);
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q(CREATE EXTENSION blobext; CREATE TABLE w (b blobstate);
	INSERT INTO w SELECT convert_to(repeat(md5(i::text), 1000), 'UTF8') FROM generate_series(1, 20) AS i));
mkdir "$PostgreSQL::Test::Utils::tmp_check/space" or die $!;
$node->safe_psql('other', "CREATE TABLESPACE space LOCATION '$PostgreSQL::Test::Utils::tmp_check/space'");
$node->safe_psql('other', 'ALTER TABLE blobext_map SET TABLESPACE space');
my $directory = $node->data_dir;
is_refused($directory, qr/the server runs, or was not shut down cleanly/, 'a server that runs');
$node->stop;
my $out = is_sound($directory, 'a server that was shut down');
like($out, qr/^stores: 2$/m, 'stores of all databases are verified, also if the map is in a tablespace');
like($out, qr/^pages compared with their checksums: (\d+)$/m, 'the pages are counted');
cmp_ok(($out =~ /checksums: (\d+)/)[0], '>', 10_000, 'all pages were compared');
like($out, qr/^damaged pages: 0, in extents: 0$/m, 'no page of a sound directory is damaged');

# ---- flipped bits ----

$node->start;
# Of each kind of extent the first, the last and a page in the middle.
my %expected;
my $store = (split m{/}, sql("SELECT file FROM blobext_files() LIMIT 1"))[1];
foreach my $line (split /\n/, sql(q(SELECT DISTINCT ON (m.kind, least(m.pages, 3)) m.kind, m.pages, m.first_page,
	ceil(e.bytes / 4096.0)::int FROM v, blob_extents(b) AS e JOIN blobext_map AS m USING (first_page)
	WHERE e.bytes > 0 ORDER BY m.kind, least(m.pages, 3), m.pages DESC)))
{
	my ($kind, $pages, $first, $used) = split /\|/, $line;
	$expected{ ($first + $_) * $page_bytes } = "$kind of $pages pages" foreach 0, $used - 1, int($used / 2);
}
cmp_ok(scalar(keys %expected), '>=', 6, 'there are extents of all kinds');
$node->stop;
my $segment = segment_file($node);
($segment) = grep { /\Q$store\E/ } glob("$directory/pg_blobext/*/00000000");
flip($segment, $_ + 77) foreach keys %expected;
my ($status, $found, $err) = verify($directory);
is($status, 3, 'the exit status says that pages do not have their checksums');
like($found, qr/^damaged pages: 0, in extents: 0\npages in doubt: @{[ scalar keys %expected ]}, in extents: [1-9]/m, 'pages without their checksums are counted');
my %named;
foreach my $line (grep { /: file/ } split /\n/, $found)
{
	my ($file, $byte, $count) = $line =~ /^in doubt: file "(.*)", byte (\d+): (\d+) of \d+ pages .*: it does not have its checksum$/
	  or fail("a line of damage has the expected form: $line");
	is($file, "pg_blobext/$store/00000000", 'a line names the file of the damaged page');
	$named{ $byte + $_ * $page_bytes } = 1 foreach 0 .. $count - 1;
}
is(join(' ', sort { $a <=> $b } keys %named), join(' ', sort { $a <=> $b } keys %expected),
	'each page in which a bit flipped is named, and no other one');
like($err, qr/are damaged, or that no value has.*blobext_check\(\)/s, 'the message says how to find the values');
flip($segment, $_ + 77) foreach keys %expected;
is_sound($directory, 'when all bits are back');

# ---- files ----

rename $segment, "$segment.away" or die $!;
($status, $found) = verify($directory);
is($status, 1, 'a segment file that is missing is damage');
like($found, qr/: the file is missing$/m, 'the output says that the file is missing');
unlike($found, qr/^in doubt/m, 'a page whose file is missing is not in doubt');
rename "$segment.away", $segment or die $!;
my $bytes = -s $segment;
system_or_bail('cp', $segment, "$segment.whole");
truncate($segment, 5 * $page_bytes) or die $!;
($status, $found) = verify($directory);
is($status, 1, 'a segment file that is too short is damage');
like($found, qr/: the file is too short$/m, 'the output says that the file is too short');
rename "$segment.whole", $segment or die $!;
# Damage beside pages in doubt.
rename $segment, "$segment.away" or die $!;
my ($other_segment) = grep { !/\Q$store\E/ } glob("$directory/pg_blobext/*.*/00000000");
flip($other_segment, 77);
($status, $found, $err) = verify($directory);
is($status, 1, 'where there is damage and doubt the exit status says that there is damage');
like($err, qr/damage was found.*are damaged, or that no value has/s, 'the messages tell of both damage and doubt');
flip($other_segment, 77);
rename "$segment.away", $segment or die $!;

# ---- the map ----

$node->start;
my $map = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('blobext_map')");
$node->stop;
flip($map, 8192 + 24 + 16);
($status, $found) = verify($directory);
is($status, 1, 'a damaged block of the map is damage');
like($found, qr/^damaged: extent map "base\/.*", block 1: it does not have its checksum$/m, 'the output names the block of the map');
flip($map, 8192 + 24 + 16);
rename $map, "$map.away" or die $!;
is_refused($directory, qr/directory "pg_blobext\/\Q$store\E" was not verified: no database has its extent map/, 'a map that is lost');
rename "$map.away", $map or die $!;
system_or_bail('cp', $map, "$directory/base/" . (split /\./, $store)[0] . '/999999');
is_refused($directory, qr/both .* could be the extent map/, 'a second relation that could be the map');
unlink "$directory/base/" . (split /\./, $store)[0] . '/999999' or die $!;

# ---- the control file, arguments ----

$node->start;
$node->stop('immediate');
is_refused($directory, qr/not shut down cleanly/, 'a server that crashed');
is_refused("$directory/nothing", qr/could not change directory/, 'a directory that is not there');
is_refused("$directory/base", qr/could not stat file "global\/pg_control"/, 'a directory of no cluster');
is((verify('-X'))[0], 2, 'an unknown option ends with status 2');
is((verify('-D', $directory, 'a', 'b'))[0], 2, 'too many arguments end with status 2');
like((verify('--help'))[1], qr/^Usage: blobext_verify /m, 'the help says how the program is called');
like((verify('--version'))[1], qr/^blobext_verify \(blobext\) \d+\.\d+/, 'the version is that of blobext');

# ---- a base backup, while values are stored ----

$node->start;
$node->safe_psql('postgres', q(CREATE TABLE busy (b blobstate);
	CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$ BEGIN LOOP
		INSERT INTO busy SELECT convert_to(repeat(md5(random()::text), 2000), 'UTF8');
		COMMIT;
		EXIT WHEN EXISTS (SELECT FROM pg_tables WHERE tablename = 'enough');
	END LOOP; END $$));
my $psql = IPC::Run::start([ 'psql', '-X', '-d', $node->connstr('postgres'), '-c', 'CALL fill()' ], '>', \my $ignored, '2>', \my $also);
$node->poll_query_until('postgres', 'SELECT count(*) > 20 FROM busy') or die;
$node->backup('copy', backup_options => [ "--tablespace-mapping=$PostgreSQL::Test::Utils::tmp_check/space=$PostgreSQL::Test::Utils::tmp_check/space_copy" ]);
sql('CREATE TABLE enough ()');
$psql->finish;
my $copy = PostgreSQL::Test::Cluster->new('copy');
system_or_bail('mkdir', '-p', $copy->data_dir =~ s{/pgdata$}{}r);
system_or_bail('cp', '-a', $node->backup_dir . '/copy', $copy->data_dir);
$copy->append_conf('postgresql.conf', 'port = ' . $copy->port . "\n");
is_refused($copy->data_dir, qr/not shut down cleanly/, 'a backup that has not recovered');
$copy->start;
is($copy->safe_psql('postgres', "SELECT skipped_reason FROM blobext_gc()"), '', 'content of transactions that had not ended is freed');
$copy->stop;
is_sound($copy->data_dir, 'a backup that has recovered');
$copy->start;
check_is_clean($copy, 'the check of the recovered backup finds nothing');
$copy->stop;

# ---- content that no row has ----

# A transaction that had not ended at a power failure: its record of checksums came to the disk, its
# content did not, as if a bit had flipped there.
my $session = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-d', $node->connstr('postgres') ], '<', \my $in, '>', \my $said, '2>', \my $complaints);
$in = q(BEGIN; CREATE TABLE never (b blobstate); INSERT INTO never VALUES (convert_to(repeat('never', 20000), 'UTF8'));
	SELECT 'first ' || first_page FROM never, blob_extents(b) LIMIT 1;
	SELECT pg_switch_wal() IS NOT NULL; CHECKPOINT;
	SELECT 'ready';) . "\n";
$session->pump until $said =~ /ready/;
my ($first) = $said =~ /first (\d+)/;
kill_everything($node);
$session->kill_kill;
$node->start;
$node->stop;
flip($segment, $first * $page_bytes);
($status, $found) = verify($directory);
is($status, 3, 'content that no row has, and that a crash has damaged, is in doubt');
like($found, qr/^in doubt: file .*byte @{[ $first * $page_bytes ]}: 1 of \d+ pages/m, 'the place of damage that no row has is named');
$node->start;
check_is_clean($node, 'the check tells that no row has the damaged extent');
is(sql('SELECT freed_blobs > 0 FROM blobext_gc()'), 't', 'the collector frees what no row has');
$node->stop;
is_sound($directory, 'when the collector has freed what no row has');

# ---- claims that were cancelled ----

# Appends that are cancelled after they have claimed pages of the last extent, before these have checksums:
# where no extent was before, and where the entries have checksums of an earlier one.
my @init = `initdb --help` =~ /--no-data-checksums/ ? ('--no-data-checksums') : ();
my $claims = blob_cluster('claims', start => 0, init => \@init,
	conf => "blobext.tail_extents = off\nautovacuum = off\nblobext.autogc = off\nblobext.cache_size = 0\nwal_level = replica\n");
start_with_stops($claims);
sub claims { return $claims->safe_psql('postgres', join(';', @_)); }
claims('CREATE EXTENSION blobext', 'CREATE TABLE t (id int, b blobstate)', 'CREATE TABLE gone (b blobstate)');
my $claims_map = $claims->data_dir . '/' . claims("SELECT pg_relation_filepath('blobext_map')");

# Store a value of 9 pages, and cancel an append to it.  Returns the first page of its last extent, and how many of
# the pages the value has.
sub cancel_append
{
	my ($id) = @_;
	claims("INSERT INTO t SELECT $id, convert_to(repeat('x', 9 * 4096), 'UTF8')");
	my ($held, $pid) = hold_at($claims, 'write', 'after',
		"SET blobext.io_method = sync; UPDATE t SET b = b || convert_to(repeat('y', 3 * 4096), 'UTF8') WHERE id = $id");
	kill('INT', $pid);
	kill('CONT', $pid);
	$held->{run}->finish;
	return split /\|/, claims("SELECT first_page, bytes / 4096 FROM t, blob_extents(b) WHERE id = $id AND bytes > 0 ORDER BY extent_no DESC LIMIT 1");
}

sub claimed_are_in_doubt
{
	my ($first_page, $used, $how, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(claims(q(SELECT count(*) FROM t WHERE b::bytea <> convert_to(repeat('x', 9 * 4096), 'UTF8'))), '0', "$name: the values are right");
	check_is_clean($claims, "$name: the check finds nothing");
	$claims->stop;
	my ($code, $lines) = verify('-D', $claims->data_dir);
	is($code, 3, "$name: the exit status says that pages are in doubt");
	my %reasons;
	foreach my $line (grep { /^(in doubt|damaged): / } split /\n/, $lines)
	{
		my ($byte, $count, $reason) = $line =~ /^in doubt: file ".*", byte (\d+): (\d+) of .* extent at page $first_page \(.*\): (.*)$/
		  or fail("$name: an unexpected line: $line");
		$reasons{ $byte / 4096 - $first_page + $_ } = $reason foreach 0 .. $count - 1;
	}
	is(join(' ', sort { $a <=> $b } keys %reasons), join(' ', $used .. $used + 2), "$name: just the pages that were claimed are in doubt");
	ok(scalar(grep { $_ eq $how } values %reasons), "$name: a reason is that $how");
	return;
}
my @last = cancel_append(1);
claimed_are_in_doubt(@last, 'the extent map has no checksum of it', 'a claim where no extent was');
start_with_stops($claims);
# Values that leave checksums in all entries, and one in their place.
claims(q(DELETE FROM t), q(INSERT INTO gone SELECT convert_to(repeat('g', 4000000), 'UTF8')), 'DELETE FROM gone');
$claims->safe_psql('postgres', $_) foreach 'VACUUM t', 'VACUUM gone';
like(claims('SELECT freed_blobs, skipped_reason FROM blobext_gc()'), qr/^[1-9]\d*\|$/, 'the values that leave their checksums behind are freed');
claims('CHECKPOINT');
@last = cancel_append(2);
claimed_are_in_doubt(@last, 'it does not have its checksum', 'a claim where another extent was');

# ---- entries of the map ----

# A bit of the state of an entry, or one that no checksum has: damage, whether or not a value has the pages.
foreach my $case ([ $last[0] + 1, 2, 'is none that a server writes' ], [ $last[0] + 1, 63, 'has bits besides its checksums' ],
	[ $last[0], 1, 'is none that a server writes' ])
{
	my ($page, $bit, $says) = @$case;
	flip_bit($claims_map, map_bit($page, $bit));
	my ($code, $lines) = verify('-D', $claims->data_dir);
	is($code, 1, "bit $bit of an entry of the map: the exit status says that there is damage");
	like($lines, qr/^damaged: extent map "base.*", block \d+: the entry of page $page $says$/m, "bit $bit of an entry of the map: the line names the entry");
	flip_bit($claims_map, map_bit($page, $bit));
}
is((verify('-D', $claims->data_dir))[0], 3, 'when the bits of the map are back there is doubt only');

# ---- content that this copy never had ----

my $unlogged = blob_cluster('unlogged', streaming => 1, conf => "blobext.wal_content = off\nautovacuum = off\n");
$unlogged->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($unlogged, 'base', has_streaming => 1);
$standby->start;
$unlogged->safe_psql('postgres', q(CREATE TABLE t (b blobstate); INSERT INTO t SELECT convert_to(repeat(md5(i::text), 9000), 'UTF8')
	FROM generate_series(1, 3) AS i));
$unlogged->wait_for_catchup($standby);
$standby->stop;
is_refused($standby->data_dir, qr/shut down in recovery.*use blobext_check\(\)/s, 'a standby that was shut down');
$standby->start;
$standby->promote;
$standby->safe_psql('postgres', 'CHECKPOINT');
$standby->stop;
$out = is_sound($standby->data_dir, 'a promoted standby that lacks content');
like($out, qr/^pages of content that is missing here: [1-9]/m, 'content that is missing is counted');
$unlogged->stop;

done_testing();
