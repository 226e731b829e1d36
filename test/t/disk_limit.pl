# Stores leave disk space to the rest of the server: blobext.min_free_disk.
#
# With everything on one small file system, clients that store until they are refused leave what the
# setting says, so the WAL of other sessions goes on, rows can be deleted and their space collected.
# The same where only the WAL, or only the store, is on that file system.  Recycled segments of the
# WAL count as room.  Recovery and the collector are never refused.
#
# Without a limit, the WAL fills the disk: the server crashes with a PANIC.  Then it ends, and does
# not start again; or recovers, if the crash has made room.  The second half goes the two ways out
# that "The WAL fills the disk" in docs/operations.md describes, in both cases, with the commands of
# that section, read from the document.
#
# Seen to fail: without the calls of blob_disk_room_require_for_segments(),
# blob_disk_room_require_for_wal() and blob_disk_room_take_for_wal(), the clients that store beside
# each other are not refused, and the server ends.  With commands that did not look whether the
# server runs, and were not joined, its WAL was moved beside it, and moved back: "could not locate a
# valid checkpoint record".
use strict;
use warnings;

use FindBin;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $small = $ENV{BLOBEXT_SMALL_FS};
plan skip_all => 'no small file system: start this test with test/run tap as root'
  unless defined $small;

use constant MB => 1024 * 1024;
my $limit_mb = 128;				# the default
my $refused = qr/could not store blob content: disk is almost full/;
my $conf = "wal_level = replica\nmax_wal_senders = 0\ncheckpoint_timeout = 1h\n"
  . "max_wal_size = 4GB\nmin_wal_size = 80MB\nautovacuum = off\n";

sub free_mb
{
	my ($line) = (split /\n/, `df -B1 --output=avail '$small'`)[1];
	return $line / MB;
}

# Fill the file system until the given number of MB is free.
sub fill_up_to
{
	my ($left_mb) = @_;
	unlink "$small/filler";
	my $bytes = int((free_mb() - $left_mb) * MB);
	system_or_bail('fallocate', '-l', $bytes, "$small/filler");
	return;
}

# A statement that stores a value of this size, unlike all others.
my $value_no = 0;

sub store
{
	my ($mb) = @_;
	$value_no++;
	return "INSERT INTO t (b) SELECT convert_to(string_agg(md5('$value_no.' || i), ''), 'UTF8') "
	  . 'FROM generate_series(1, ' . $mb * 32768 . ') i';
}

# WAL, and nothing else.
sub write_wal
{
	my ($node, $mb) = @_;
	return $node->psql('postgres',
		"SELECT count(pg_logical_emit_message(false, 'fill', repeat('x', 1048576))) "
		  . "FROM generate_series(1, $mb)");
}

# Clients that store values of 1 MB until they are refused.  Test that all were, for that reason.
sub store_until_refused
{
	my ($node, $name) = @_;
	my @outputs;
	my @clients;

	foreach my $i (0 .. 3)
	{
		my $script = PostgreSQL::Test::Utils::tempdir() . '/stores.sql';
		append_to_file($script,
			"\\set VERBOSITY verbose\n" . join('', map { store(1) . ";\n" } 1 .. 1000));
		$outputs[$i] = '';
		push @clients, IPC::Run::start(
			[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', $script,
				'-d', $node->connstr('postgres') ], '>&', \$outputs[$i]);
	}
	# Each ends with the error of its last statement.
	$_->finish foreach @clients;
	like(join('', map { /(ERROR:  53100: .*)/ ? "$1\n" : "no error: $_" } @outputs),
		qr/\A(ERROR:  53100: $refused\n){4}\z/, $name);
	return;
}

# ---- everything on one file system ----

power('format');
my $node;
{
	local $PostgreSQL::Test::Utils::tmp_check = $small;
	# Recycled segments would be room for the WAL, see below.
	# restart_after_crash: PostgreSQL's default, not that of its test clusters.
	$node = blob_cluster('whole',
		conf => $conf . "wal_recycle = off\nrestart_after_crash = on\n");
}
$node->safe_psql('postgres', 'CREATE TABLE t (id serial PRIMARY KEY, b blobstate)');
make_values($node, 'v');
is($node->safe_psql('postgres', 'SHOW blobext.min_free_disk'), "${limit_mb}MB", 'blobext.min_free_disk has the default that the test computes with');
fill_up_to(700);
store_until_refused($node, 'clients that store beside each other are refused with 53100');
my $stored = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
cmp_ok($stored, '>', 100, "$stored values of 1 MB are stored before");
# Pages of rows, of the map and of the file system are written without being asked for: 0.24 MB
# below the limit were seen.
cmp_ok(free_mb(), '>=', $limit_mb - 1, 'what the setting keeps is free');
cmp_ok(free_mb(), '<', $limit_mb + 100, 'stores are not refused long before the limit');
fails_with($node, store(1), '53100',
	qr/DETAIL:  The file system of "pg_(wal|blobext)" has \d+ bytes left.*min_free_disk.*keeps? \d+.*HINT:  Free disk space/s,
	'one more store: the message names the file system and the bytes');
is((write_wal($node, 64))[0], 0, 'other sessions go on writing to the WAL');

cmp_ok(free_mb(), '<', $limit_mb, 'after WAL of other sessions, less than the limit is free');

# Below the limit: a crash, and the collector.
kill_everything($node);
$node->start;
fill_up_to($limit_mb - 50);
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), $stored,
	'recovery below the limit brings all values back');
values_are_intact($node, 'v', 'values after recovery below the limit');
$node->safe_psql('postgres', 'DELETE FROM t');
like($node->safe_psql('postgres', 'SELECT freed_blobs, skipped_reason FROM blobext_gc()'),
	qr/^\d{3,}\|$/, 'the collector works below the limit');
$node->safe_psql('postgres', 'CHECKPOINT');
fill_up_to(400);
$node->safe_psql('postgres', store(50));
check_is_clean($node, 'with room made, values are stored again');
unlike(slurp_file($node->logfile), qr/PANIC/, 'a server that refuses at its limit meets no PANIC');

# A value that the WAL has no room for as a whole does not make the store grow.
$node->safe_psql('postgres', 'CHECKPOINT');
fill_up_to(220);
my $before = free_mb();
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
fails_with($node, store(120), '53100', $refused, 'a value of 120 MB on 92 MB above the limit');
cmp_ok(abs(free_mb() - $before), '<', 1, 'a refused value takes no space');

# ---- without a limit: PANIC, and no start ----

unlink "$small/filler";
$node->safe_psql('postgres', 'CHECKPOINT');
# The administrator's reserve, see the guide.
system_or_bail('fallocate', '-l', '256M', "$small/ballast");
fill_up_to(40);
$node->append_conf('postgresql.conf', "blobext.min_free_disk = 0\n");
$node->restart;
my $intact = $node->safe_psql('postgres', 'SELECT count(*) FROM v');

# Fill the WAL until a PANIC.
sub fill_wal
{
	my ($name) = @_;
	my $offset = -s $node->logfile;

	for (1 .. 100) { last if (write_wal($node, 64))[0] != 0; }
	ok($node->wait_for_log(qr/PANIC:  could not write to file "pg_wal.*No space left/, $offset),
		"$name: without a limit, WAL that does not fit is a PANIC");
	return;
}

# The same, until the server has ended, and test that it does not start again.
sub fill_wal_to_the_end
{
	my ($name) = @_;
	my $postmaster = $node->{_pid};
	my $offset;

	fill_wal($name);
	# It tries to recover, by default, and ends when that fails.
	wait_for_end($postmaster);
	$node->{_pid} = undef;
	unlink $node->data_dir . '/postmaster.pid';
	$offset = -s $node->logfile;
	ok(!$node->start(fail_ok => 1), "$name: the server does not start");
	like(substr(slurp_file($node->logfile), $offset), qr/No space left on device/,
		"$name: the server does not start for want of disk space");
	return;
}

# A session whose temporary file takes room, which comes back when the server crashes.
sub start_sort
{
	my $sort = $node->background_psql('postgres', on_error_die => 1);

	$sort->query_safe(q(SET work_mem = '1MB'; BEGIN; DECLARE c CURSOR FOR
		SELECT repeat('x', 1000) FROM generate_series(1, 100000) AS i ORDER BY i DESC; FETCH 1 FROM c));
	cmp_ok($node->safe_psql('postgres', 'SELECT sum(size) FROM pg_ls_tmpdir()'), '>', 80 * MB,
		'a temporary file of a session');
	return $sort;
}

# The blocks of commands of a section of the operator's guide.
sub blocks_of_guide
{
	my ($heading) = @_;
	my ($section) = slurp_file("$FindBin::RealBin/../docs/operations.md") =~
	  /^\#+ \Q$heading\E\n(.*?)(?=^\#+ )/ms or die "no section \"$heading\"";
	return $section =~ /^```sh\n(.*?)^```$/msg;
}

# Runs a block of the guide, as it is, in a shell as the reader has it; $1: where it says /mnt.
# Returns whether its last command has succeeded.
sub run_block
{
	my ($elsewhere, $block) = @_;
	local $ENV{PGDATA} = $node->data_dir;
	local $ENV{PGCONF} = $node->data_dir;
	my $log = $node->logfile . '.block';

	$block =~ s{/mnt\b}{$elsewhere}g;
	# The server's log goes where this test looks for it.
	$block =~ s{(?: -l \S+)? start\b}{" -l '" . $node->logfile . "' start"}ge;
	my $status = system('bash', '-c', "exec > '$log' 2>&1\n$block");
	note(slurp_file($log));
	$node->_update_pid(-1);
	return $status == 0;
}

# The server runs again: all is there, and space comes back.
sub goes_on
{
	my ($name) = @_;
	values_are_intact($node, 'v', "$name: values after the PANIC");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM v'), $intact, "$name: all values of the table v are there");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), $rows, "$name: all rows that were committed are there");
	check_is_clean($node, "$name: the check finds nothing");
	$node->safe_psql('postgres', 'DELETE FROM t; VACUUM (INDEX_CLEANUP ON) t');
	like($node->safe_psql('postgres', 'SELECT freed_blobs, skipped_reason FROM blobext_gc()'),
		qr/^\d+\|$/, "$name: the collector works");
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->safe_psql('postgres', store(10));
	return;
}

fill_wal_to_the_end('reserve');
unlink "$small/ballast";
$node->start;
goes_on('reserve');

my @blocks = blocks_of_guide('The WAL fills the disk');
is(scalar @blocks, 2, 'the guide has two blocks: to move the WAL, and to move it back');
my $wal = $node->data_dir . '/pg_wal';

# Moves the WAL elsewhere and back, by the guide.
sub move_wal
{
	my ($name) = @_;
	my $elsewhere = PostgreSQL::Test::Utils::tempdir();

	ok(run_block($elsewhere, $blocks[0]), "$name: the block that moves the WAL succeeds");
	is(readlink $wal, "$elsewhere/wal", "$name: the WAL is elsewhere");
	ok(!-e "$wal.full", "$name: its old place is empty");
	goes_on($name);
	unlink "$small/filler";
	ok(run_block($elsewhere, $blocks[1]), "$name: the block that moves it back succeeds");
	ok(-d $wal && !-l $wal, "$name: the WAL is back in its place");
	ok(!-e "$elsewhere/wal", "$name: it is nowhere else");
	values_are_intact($node, 'v', "$name: values with the WAL back in its place");
	check_is_clean($node, "$name: the check finds nothing with the WAL back in its place");
	return;
}

$node->safe_psql('postgres', 'CHECKPOINT');
fill_up_to(40);
fill_wal_to_the_end('move');
move_wal('move');

# The same, but the crash makes room: the server runs when the commands come.
$node->safe_psql('postgres', 'CHECKPOINT');
fill_up_to(200);
my $sort = start_sort();
my $postmaster = $node->{_pid};
my $offset = -s $node->logfile;
fill_wal('recovered');
ok(wait_until_back($node, $offset), 'recovered: the server runs again');
eval { $sort->quit };
move_wal('recovered');
isnt($node->{_pid}, $postmaster, 'recovered: the server was stopped');

# Where a command fails, those after it are not run: the name is taken, or the server does not start.
my $taken = PostgreSQL::Test::Utils::tempdir();
mkdir "$taken/wal" or die "$taken/wal: $!";
ok(!run_block($taken, $blocks[0]), 'a block that cannot copy fails');
ok(-d $wal && !-l $wal && !-e "$wal.full", 'the WAL is where it was');
rmdir "$taken/wal" or die "$taken/wal: $!";
append_to_file($node->data_dir . '/postgresql.conf', "port = nonsense\n");
ok(!run_block($taken, $blocks[0]), 'a block whose server does not start fails');
ok(-d "$wal.full" && -d "$taken/wal", 'no copy of the WAL is removed if the server does not start');
$node->clean_node;

# ---- only the WAL on the small file system ----

power('format');
$node = blob_cluster('wal', init => [ '-X', "$small/wal" ], conf => $conf);
$node->safe_psql('postgres', 'CREATE TABLE t (id serial PRIMARY KEY, b blobstate)');
$node->safe_psql('postgres', store(50));
fill_up_to(100);
fails_with($node, store(1), '53100', qr/file system of "pg_wal" has \d+ bytes left for the WAL/,
	'WAL on a file system of its own');
$node->safe_psql('postgres', q(INSERT INTO t (b) VALUES ('inline')));
pass('a value in its row is no content of extents');
fill_up_to(400);
$node->safe_psql('postgres', store(1));
pass('room is noticed at once');

# A checkpoint leaves recycled segments.
unlink "$small/filler";
$node->safe_psql('postgres', "ALTER SYSTEM SET min_wal_size = '400MB'");
$node->reload;
write_wal($node, 300);
$node->safe_psql('postgres', 'CHECKPOINT');
my $recycled = $node->safe_psql('postgres', 'SELECT count(*) FROM pg_ls_waldir()
	WHERE name > pg_walfile_name(pg_current_wal_lsn())');
cmp_ok($recycled, '>=', 12, "the WAL has $recycled recycled segments, which are room for it");
fill_up_to(60);
$before = free_mb();
$node->safe_psql('postgres', store(20));
cmp_ok(abs(free_mb() - $before), '<', 1,
	'recycled segments are room for the WAL: a value is stored, and takes no disk space');
fails_with($node, join('; ', map { store(40) } 1 .. 12),
	'53100', qr/pg_wal/, 'stores are refused when the recycled segments are used up');
cmp_ok(abs(free_mb() - $before), '<', 1, 'what was free is free');
$node->safe_psql('postgres', 'ALTER SYSTEM SET blobext.min_free_disk = 0');
$node->reload;
ok($node->poll_query_until('postgres', q(SHOW blobext.min_free_disk), '0'), 'the limit is off');
$node->safe_psql('postgres', store(1));
pass('without a limit a value is stored');
$node->stop('immediate');
$node->clean_node;

# ---- only the store, content not in the WAL ----

power('format');
mkdir "$small/store", 0700 or die "$small/store: $!";
$node = blob_cluster('store', start => 0,
	conf => "wal_level = minimal\nmax_wal_senders = 0\nautovacuum = off\n");
symlink("$small/store", $node->data_dir . '/pg_blobext') or die "symlink: $!";
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION blobext;
	CREATE TABLE t (id serial PRIMARY KEY, b blobstate)');
fill_up_to(400);
fails_with($node, store(100) . '; ' . store(100) . '; ' . store(100), '53100',
	qr/could not store blob content: disk is almost full.*file system of "pg_blobext" has \d+ bytes/s,
	'store on a file system of its own');
cmp_ok(free_mb(), '>=', $limit_mb, 'the store leaves what the setting keeps');
$node->safe_psql('postgres', 'DELETE FROM t');
$node->safe_psql('postgres', 'SELECT * FROM blobext_gc()');
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', store(100));
check_is_clean($node, 'space of deleted values is used again at the limit');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'no PANIC, no crash in the log');
$node->clean_node;

done_testing();
