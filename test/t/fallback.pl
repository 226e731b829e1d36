# Every fallback of the I/O layer stores and reads the same values.
#
# io_uring and aio refused by the kernel (a seccomp filter, test/unit/refuse_syscalls.c, around the
# postmaster), and by the setting; O_DIRECT refused and turned off; fallocate() refused; no thread
# for digests; no read cache; no tail extents; a data directory on tmpfs.  Each time values of many sizes are stored,
# read in the same run, read after a restart and by ranges, and blobext_check() finds nothing.
# Which way was taken is seen in /proc (does a backend that read have an io_uring, or the memory of an
# aio context?), in the counters of requests, in direct_io and in the log; so a fallback that is not taken makes
# the test fail (it did, when the filter was left out).
#
# Seen to fail with the library before aio: the modes that take or demand it, log and counters of each mode.
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

# What does a session that has just read a value do I/O with, and does it have a descriptor that was
# opened with O_DIRECT?
sub io_of_reader
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe('SELECT sum(octet_length(b::bytea)) FROM v');
	$session->query_safe('INSERT INTO v (digest, b) SELECT digest, b::bytea
		FROM v WHERE length(b) = 8193');

	my ($method, $is_direct) = (slurp_file("/proc/$pid/maps") =~ m{/\[aio\]} ? 'aio' : 'sync', 0);
	foreach my $fd (glob "/proc/$pid/fd/*")
	{
		my $target = readlink($fd) // next;
		$method = 'io_uring' if $target =~ /^anon_inode:.*io_uring/;
		next unless $target =~ m{/pg_blobext/};
		my ($no) = $fd =~ /(\d+)$/;
		my ($flags) = slurp_file("/proc/$pid/fdinfo/$no") =~ /^flags:\s+(\d+)/m;
		$is_direct = 1 if oct($flags) & 040000;
	}
	$session->quit;
	return ($method, $is_direct);
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

# The methods by which there were requests.
sub methods_counted
{
	my ($node) = @_;
	my %counter = (aio => 'aio_requests', io_uring => 'io_uring_requests', sync => 'blocking_requests');
	return join(' ', grep { stat_of($node, $counter{$_}) > 0 } sort keys %counter);
}

# The method that the server has logged at its start, and why.
sub logged_method
{
	my ($node) = @_;
	my ($method, $reasons) = slurp_file($node->logfile) =~
	  /LOG:  blobext uses (.*)\n(?:.*DETAIL:  (.*)\n)?/ or return 'nothing';
	return $method . (defined $reasons ? ". $reasons" : '');
}

# Options: conf, refused (options of refuse_syscalls), method and direct (which must be seen), and why
# the server says that it does not take a better method.
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
	ranges_are_right($node, "$name: ranges of values are read right");
	my ($method, $is_direct) = io_of_reader($node);
	is($method, $mode{method}, "$name: a session uses $mode{method}");
	is(methods_counted($node), $mode{method}, "$name: requests are counted as those of $mode{method}");
	is(logged_method($node), ($mode{method} eq 'sync' ? 'blocking calls' : $mode{method}) . ' and '
		  . ($mode{direct} ? 'direct' : 'buffered') . ' I/O' . (defined $mode{why} ? ". $mode{why}" : ''),
		"$name: the log says what is used, and why");
	is($is_direct, $mode{direct},
		"$name: files are opened " . ($mode{direct} ? 'with' : 'without') . ' O_DIRECT');
	is(stat_of($node, 'direct_io'), $mode{direct}, "$name: the counter direct_io says how files are opened");
	$mode{also}->($node) if $mode{also};
	check_is_clean($node, "$name: the check finds nothing");
	kill_everything($node);
	start($node, $refused);
	values_are_intact($node, 'v', "$name: values are read after a crash");
	check_is_clean($node, "$name: the check finds nothing after a crash");
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, "$name: the server's log has no PANIC and no crash");
	$node->clean_node;
	return;
}

# The features of this system when nothing is refused.
my ($best, $aio, $direct, $why);
{
	my $node = blob_cluster('as_is');
	make_values($node, 'v', 10_000, 8193);
	$node->restart;				# cached content is read without I/O
	($best, $direct) = io_of_reader($node);
	(undef, $why) = split /\. /, logged_method($node), 2;
	$aio = $direct ? 'aio' : 'sync';
	note("this system: $best, O_DIRECT " . ($direct ? 'works' : 'is refused'));
	$node->stop;
	$node->clean_node;
}
my $no_uring = 'io_uring is refused: Operation not permitted.';
my ($no_uring_here) = ($why // '') =~ /^(io_uring is refused: [^.]*\.)/;
my $not_direct = 'aio needs direct I/O.';

# Where files are buffered, the best method is the same, unless it is aio.
my $best_buffered = $best eq 'io_uring' ? 'io_uring' : 'sync';
my $why_buffered = $best eq 'io_uring' ? undef : "$no_uring_here $not_direct";

sub is_unavailable
{
	my ($node, $name, $method, $detail) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	fails_with($node, "SET blobext.io_method = $method; SELECT sum(octet_length(b::bytea)) FROM v",
		'0A000', qr/$method is not available\nDETAIL:  \Q$detail\E\nHINT:  Set blobext.io_method/,
		"$name: demanding $method is an error with a reason and a hint");
	fails_with($node, "SET blobext.io_method = $method; INSERT INTO v (b) SELECT b::bytea FROM v",
		'0A000', qr/$method is not available/, "$name: demanding $method is an error also in a store");
	return;
}

# Contexts of aio are all taken when a process asks for one, and were not when the server started.
sub try_room_for_aio
{
	my $control = "$PostgreSQL::Test::Utils::tmp_check/no_room";
	my $node = blob_cluster('room', start => 0, conf => "blobext.cache_size = 0\n");
	{
		local $ENV{LD_PRELOAD} = preload_library('fail_writes.c');
		local $ENV{BLOBEXT_FAULT} = $control;
		start($node, ['--io-uring']);
	}
	$node->safe_psql('postgres', 'CREATE EXTENSION blobext');
	make_values($node, 'v', 10_000, 8193);
	append_to_file($control, "aio\n");
	is((io_of_reader($node))[0], 'sync', 'no room for aio: a session makes blocking calls') for 1, 2;
	is(methods_counted($node), 'aio sync', 'no room for aio: requests of both kinds are counted');
	is(() = slurp_file($node->logfile) =~
		  /LOG:  blobext uses blocking calls in this process\n.*DETAIL:  \Q$no_uring\E aio is refused: Resource temporarily unavailable\.$/mg,
		1, 'no room for aio: the log says so once, with the reasons');
	unlink $control or die $!;
	is((io_of_reader($node))[0], 'aio', 'there is room again: a session uses aio');
	values_are_intact($node, 'v', 'no room for aio: values are stored and read');
	$node->stop;
	return;
}

try_mode('default', method => $best, direct => $direct, why => $why,
	also => sub {
		my ($node) = @_;
		is(threads_after_stream($node), 1, 'default: a long stream has a thread for its digest');
	});
try_mode('io_method sync', conf => "blobext.io_method = sync\n", method => 'sync', direct => $direct,
	why => 'blobext.io_method is "sync".');
try_mode('io_method aio', conf => "blobext.io_method = aio\n", method => 'aio', direct => 1) if $direct;
try_mode('direct_io off', conf => "blobext.direct_io = off\n", method => $best_buffered, direct => 0,
	why => $why_buffered, also => sub { is_unavailable($_[0], 'direct_io off', 'aio', $not_direct); });
try_mode('sync and buffered', conf => "blobext.io_method = sync\nblobext.direct_io = off\n",
	method => 'sync', direct => 0, why => 'blobext.io_method is "sync".');
try_mode('cache_size 0', conf => "blobext.cache_size = 0\n", method => $best, direct => $direct,
	why => $why, also => sub {
		my ($node) = @_;
		is(stat_of($node, 'cache_hits') + stat_of($node, 'cache_bytes'), 0,
			'cache_size 0: no hits');
	});
try_mode('tail_extents off', conf => "blobext.tail_extents = off\n", method => $best,
	direct => $direct, why => $why,
	also => sub {
		my ($node) = @_;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM v, blob_extents(b) WHERE is_tail'),
			'0', 'tail_extents off: there are none');
	});

SKIP:
{
	skip 'no seccomp filters here', 1 unless $can_refuse;

	try_mode('io_uring refused', refused => ['--io-uring'], method => $aio, direct => $direct,
		why => $no_uring . ($direct ? '' : " $not_direct"),
		also => sub { is_unavailable($_[0], 'io_uring refused', 'io_uring', $no_uring); });
	try_mode('both refused', refused => [ '--io-uring', '--aio' ], method => 'sync', direct => $direct,
		why => "$no_uring " . ($direct ? 'aio is refused: Resource temporarily unavailable.' : $not_direct),
		also => sub { is_unavailable($_[0], 'both refused', 'aio',
			$direct ? 'aio is refused: Resource temporarily unavailable.' : $not_direct); });
	try_mode('io_submit refused', refused => [ '--io-uring', '--io-submit' ], method => 'sync',
		direct => $direct,
		why => "$no_uring " . ($direct ? 'aio is refused: Operation not permitted.' : $not_direct));
	try_room_for_aio() if $direct;
	try_mode('O_DIRECT refused', refused => ['--o-direct'], method => $best_buffered, direct => 0,
		why => $why_buffered,
		also => sub {
			my ($node) = @_;
			like(slurp_file($node->logfile),
				qr/direct I\/O is not supported for .*"pg_blobext".*blobext uses buffered I\/O/s,
				'O_DIRECT refused: the log says so');
		});
	try_mode('fallocate refused', refused => ['--fallocate'], method => $best, direct => $direct,
		why => $why);
	try_mode('threads refused', refused => ['--threads'], method => $best, direct => $direct, why => $why,
		also => sub {
			my ($node) = @_;
			is(threads_after_stream($node), 0, 'threads refused: a long stream has no thread');
		});
	try_mode('all refused', refused => [ '--io-uring', '--o-direct', '--fallocate', '--threads' ],
		method => 'sync', direct => 0, why => "$no_uring $not_direct");
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
	try_mode('tmpfs', method => $tmpfs_direct ? $best : $best_buffered, direct => $tmpfs_direct,
		why => $tmpfs_direct ? $why : $why_buffered);
	system_log('rm', '-rf', "$directory/blobext_tap.$$");
}

done_testing();
