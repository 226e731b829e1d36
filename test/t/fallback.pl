# Every fallback of the I/O layer stores and reads the same values.
#
# io_uring refused by the kernel (a seccomp filter, test/unit/refuse_syscalls.c, around the
# postmaster), and by the setting; O_DIRECT refused and turned off; fallocate() refused; no thread
# for digests; no read cache; no tail extents; a data directory on tmpfs.  Each time values of many sizes are stored,
# read in the same run, read after a restart and by ranges, and blobext_check() finds nothing.
# Which way was taken is seen in /proc (does a backend that read have an io_uring?) and in the
# counter direct_io; so a fallback that is not taken makes the test fail (it did, when the filter
# was left out).
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $unit_dir = $ENV{BLOBEXT_UNIT_DIR} // "$FindBin::RealBin/../unit";
my $refuse = "$PostgreSQL::Test::Utils::tmp_check/refuse_syscalls";
my $compiled = system('cc', '-O1', '-o', $refuse, "$unit_dir/refuse_syscalls.c") == 0;
my $can_refuse = $compiled && system($refuse, '--io-uring', '--', 'true') == 0;

# Does a session that has just read a value hold an io_uring, and a descriptor opened with O_DIRECT?
sub descriptors_of_reader
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe('SELECT sum(octet_length(b::bytea)) FROM v');
	$session->query_safe('INSERT INTO v (digest, b) SELECT digest, b::bytea
		FROM v WHERE length(b) = 8193');

	my ($has_ring, $is_direct) = (0, 0);
	foreach my $fd (glob "/proc/$pid/fd/*")
	{
		my $target = readlink($fd) // next;
		$has_ring = 1 if $target =~ /^anon_inode:.*io_uring/;
		next unless $target =~ m{/pg_blobext/};
		my ($no) = $fd =~ /(\d+)$/;
		my ($flags) = slurp_file("/proc/$pid/fdinfo/$no") =~ /^flags:\s+(\d+)/m;
		$is_direct = 1 if oct($flags) & 040000;
	}
	$session->quit;
	return ($has_ring, $is_direct);
}

# Start the server, under a filter if one is wanted.
sub start
{
	my ($node, $refused) = @_;
	return $node->start unless @$refused;
	system_log($refuse, @$refused, '--', 'pg_ctl', '-w', '-D', $node->data_dir, '-l',
		$node->logfile, 'start') == 0
	  or die 'the server does not start under the filter';
	$node->_update_pid(1);
	return;
}

sub ranges_are_right
{
	my ($node, $name) = @_;
	my $bad = $node->safe_psql(
		'postgres', q(
SELECT id, o, n FROM v,
	LATERAL (VALUES (0, 1), (4095, 2), (4096, 4096), (length(b) / 2, 70000), (length(b) - 1, 9))
		AS r (o, n)
WHERE o >= 0 AND blob_read(b, o, n) <> substring(b::bytea, o::int + 1, n::int)));
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($bad, '', $name);
}

# Threads for digests of a process that has stored a long stream.
sub threads_after_stream
{
	my ($node) = @_;
	return $node->safe_psql(
		'postgres', q(
SET blobext.digest_thread = on;
DO $$ BEGIN
	PERFORM blob_agg(convert_to(repeat('a', 300000), 'UTF8')) FROM generate_series(1, 8);
END $$;
SELECT count(*) FROM pg_ls_dir('/proc/' || pg_backend_pid() || '/task') AS t
WHERE pg_read_file('/proc/' || pg_backend_pid() || '/task/' || t || '/comm', 0, 20, true)
	= E'blobext digest\n'));
}

# Options: conf, refused (options of refuse_syscalls), ring and direct (which must be seen).
sub try_mode
{
	my ($name, %mode) = @_;
	my $node = blob_cluster($name =~ s/\W/_/gr, conf => $mode{conf} // '', start => 0);
	my $refused = $mode{refused} // [];

	start($node, $refused);
	$node->safe_psql('postgres', 'CREATE EXTENSION blobext');
	srand(2);
	make_values($node, 'v');
	values_are_intact($node, 'v', "$name: values are stored and read");
	$node->stop;

	start($node, $refused);
	values_are_intact($node, 'v', "$name: values are read after a restart");
	ranges_are_right($node, "$name: ranges");
	my ($has_ring, $is_direct) = descriptors_of_reader($node);
	is($has_ring, $mode{ring}, "$name: io_uring is " . ($mode{ring} ? 'used' : 'not used'));
	is($is_direct, $mode{direct},
		"$name: files are opened " . ($mode{direct} ? 'with' : 'without') . ' O_DIRECT');
	is(stat_of($node, 'direct_io'), $mode{direct}, "$name: counter direct_io");
	$mode{also}->($node) if $mode{also};
	check_is_clean($node, "$name: the check finds nothing");
	kill_everything($node);
	start($node, $refused);
	values_are_intact($node, 'v', "$name: values are read after a crash");
	check_is_clean($node, "$name: the check finds nothing after a crash");
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, "$name: log");
	$node->clean_node;
	return;
}

# The features of this system when nothing is refused.
my ($ring, $direct);
{
	my $node = blob_cluster('as_is');
	make_values($node, 'v', 10_000, 8193);
	$node->restart;				# cached content is read without a ring
	($ring, $direct) = descriptors_of_reader($node);
	note('this system: io_uring ' . ($ring ? 'works' : 'is refused') . ', O_DIRECT '
		  . ($direct ? 'works' : 'is refused'));
	$node->stop;
	$node->clean_node;
}

try_mode('default', ring => $ring, direct => $direct,
	also => sub {
		my ($node) = @_;
		is(threads_after_stream($node), 1, 'default: a long stream has a thread for its digest');
	});
try_mode('io_method sync', conf => "blobext.io_method = sync\n", ring => 0, direct => $direct);
try_mode('direct_io off', conf => "blobext.direct_io = off\n", ring => $ring, direct => 0);
try_mode('sync and buffered', conf => "blobext.io_method = sync\nblobext.direct_io = off\n",
	ring => 0, direct => 0);
try_mode('cache_size 0', conf => "blobext.cache_size = 0\n", ring => $ring, direct => $direct,
	also => sub {
		my ($node) = @_;
		is(stat_of($node, 'cache_hits') + stat_of($node, 'cache_bytes'), 0,
			'cache_size 0: no hits');
	});
try_mode('tail_extents off', conf => "blobext.tail_extents = off\n", ring => $ring,
	direct => $direct,
	also => sub {
		my ($node) = @_;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM v, blob_extents(b) WHERE is_tail'),
			'0', 'tail_extents off: there are none');
	});

SKIP:
{
	skip 'no seccomp filters here', 1 unless $can_refuse;

	try_mode('io_uring refused', refused => ['--io-uring'], ring => 0, direct => $direct,
		also => sub {
			my ($node) = @_;
			fails_with($node, "SET blobext.io_method = io_uring;
				SELECT sum(octet_length(b::bytea)) FROM v",
				'0A000', qr/io_uring is not available.*HINT:  Set blobext.io_method/s,
				'io_uring refused: demanding it is an error with a hint');
			fails_with($node, "SET blobext.io_method = io_uring;
				INSERT INTO v (b) SELECT b::bytea FROM v",
				'0A000', qr/io_uring is not available/, 'io_uring refused: also in a store');
		});
	try_mode('O_DIRECT refused', refused => ['--o-direct'], ring => $ring, direct => 0,
		also => sub {
			my ($node) = @_;
			like(slurp_file($node->logfile),
				qr/direct I\/O is not supported for .*"pg_blobext".*blobext uses buffered I\/O/s,
				'O_DIRECT refused: the log says so');
		});
	try_mode('fallocate refused', refused => ['--fallocate'], ring => $ring, direct => $direct);
	try_mode('threads refused', refused => ['--threads'], ring => $ring, direct => $direct,
		also => sub {
			my ($node) = @_;
			is(threads_after_stream($node), 0, 'threads refused: a long stream has no thread');
		});
	try_mode('all refused', refused => [ '--io-uring', '--o-direct', '--fallocate', '--threads' ],
		ring => 0, direct => 0);
}

SKIP:
{
	my $directory = '/dev/shm';
	skip 'no tmpfs to write to', 1 unless -w $directory;
	local $PostgreSQL::Test::Utils::tmp_check = "$directory/blobext_tap.$$";
	mkdir $PostgreSQL::Test::Utils::tmp_check;
	# Kernels before 6.6 know no O_DIRECT on tmpfs.
	my $probe = "$directory/blobext_tap.$$/probe";
	system("dd if=/dev/zero of=$probe bs=4096 count=1 oflag=direct 2>/dev/null");
	my $tmpfs_direct = $? == 0 ? 1 : 0;
	note('O_DIRECT on tmpfs: ' . ($tmpfs_direct ? 'works' : 'is refused'));
	try_mode('tmpfs', ring => $ring, direct => $tmpfs_direct);
	system_log('rm', '-rf', "$directory/blobext_tap.$$");
}

done_testing();
