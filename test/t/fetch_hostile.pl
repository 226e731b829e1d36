# blobext_fetch() from a server that answers what it likes.
#
# The other server is a program of this test that speaks the protocol.  It answers as the real one
# would, except for one answer.  Then the statement must end with an error, or name the
# value as not repaired; the server stays up, the memory of the process stays small, and no value
# changes.
#
# Seen to fail on the code before heal/connection.c looked at each answer: the first one, a row
# without columns, ended the server.
use strict;
use warnings;

use FindBin;
use IO::Socket::UNIX;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

# The encoding of the database decides which bytes are text.
my $node = blob_cluster('main', init => ['--encoding=UTF8'], conf => "autovacuum = off\n");
$node->safe_psql('postgres', q(
CREATE TABLE t (id integer, b blobstate);
INSERT INTO t SELECT i, convert_to(repeat(md5(i::text), 3000), 'UTF8') FROM generate_series(1, 2) AS i));
my @source = split /\|/, $node->safe_psql('postgres',
	q(SELECT system_identifier, store, timelines, common_below FROM blobext_source('0/0')));

expect_damage();
# Value 2 is damaged, so a fetch asks for its bytes.
my ($page) = $node->safe_psql('postgres', 'SELECT first_page FROM t, blob_extents(b) WHERE id = 2 ORDER BY pages DESC LIMIT 1');
open(my $segment, '+<:raw', segment_file($node, 0)) or die $!;
sysseek($segment, $page * 4096 + 99, 0);
sysread($segment, my $byte, 1);
sysseek($segment, $page * 4096 + 99, 0);
syswrite($segment, $byte ^ "\x04");
close $segment;
$node->restart;

# ---- the other server ----

my $directory = PostgreSQL::Test::Utils::tempdir_short();
my $port = 5999;
my $megabyte = 'x' x (1024 * 1024);

sub message { return $_[0] . pack('N', length($_[1]) + 4) . $_[1] }

sub description
{
	my (@names) = @_;
	return message('T', pack('n', scalar @names) . join('', map { "$_\0" . pack('NnNnNn', 0, 0, 25, 65535, 0, 0) } @names));
}

sub row
{
	return message('D', pack('n', scalar @_)
		. join('', map { defined $_ ? pack('N', length) . $_ : pack('N', 0xffffffff) } @_));
}

sub done { return message('C', "SELECT 1\0") }

sub answer
{
	my ($names, @values) = @_;
	return description(@$names) . row(@values) . done();
}

sub failure
{
	my ($state, $text) = @_;
	return message('E', "SERROR\0C$state\0M$text\0\0");
}

my @columns = qw(system_identifier store timelines common_below);

# What the real server would answer; of content: the digest of nothing, and nothing.
sub honest
{
	my ($stage) = @_;
	return answer(['quote_ident'], 'public') if $stage eq 'schema';
	return answer(['set_config'], '0') if $stage eq 'settings';
	return answer(\@columns, @source) if $stage eq 'source';
	return answer(['pg_is_in_recovery'], 'f') if $stage eq 'recovery';
	return answer(['blobext_source_read'], $stage eq 'digest' ? 'd' x 32 : '');
}

sub take
{
	my ($socket, $length) = @_;
	my $data = '';
	while (length($data) < $length)
	{
		my $got = sysread($socket, $data, $length - length $data, length $data);
		POSIX::_exit(0) if !$got;
	}
	return $data;
}

sub give
{
	my ($socket, $data) = @_;
	for (my $at = 0; $at < length $data;)
	{
		my $sent = syswrite($socket, $data, length($data) - $at, $at);
		POSIX::_exit(0) if !$sent;
		$at += $sent;
	}
	return;
}

# The purpose of a query, by its text; of requests for content: by the parameter that asks for a digest.
sub stage_of
{
	my ($type, $body) = @_;
	return $body =~ /quote_ident/ ? 'schema' : $body =~ /set_config/ ? 'settings' :
	  $body =~ /blobext_source\(/ ? 'source' : $body =~ /pg_is_in_recovery/ ? 'recovery' : 'prepare'
	  if $type eq 'P';
	my ($portal, $statement, $rest) = unpack('Z* Z* a*', $body);
	return '' if $type ne 'B' || $statement ne 'blobext';
	my @values = unpack('n/(N/a*)', substr($rest, 2 + 2 * unpack('n', $rest)));
	return $values[9] eq 't' ? 'digest' : 'bytes';
}

# Serve one connection.  At the stage, the code gives the answer; or it sends by itself.
sub serve
{
	my ($socket, $stage, $code) = @_;
	my $length = unpack('N', take($socket, 4));
	take($socket, $length - 4);
	give($socket, message('R', pack('N', 0)) . message('S', "server_version\00015.0\0")
		. message('S', "client_encoding\0UTF8\0") . message('K', pack('NN', 1, 1)) . message('Z', 'I'));
	my ($current, $output) = ('', '');
	for (;;)
	{
		my $type = take($socket, 1);
		my $body = take($socket, unpack('N', take($socket, 4)) - 4);
		POSIX::_exit(0) if $type eq 'X';
		$current = stage_of($type, $body) || $current if $type =~ /[PB]/;
		$output .= message('1', '') if $type eq 'P';
		$output .= message('2', '') if $type eq 'B';
		$output .= $current eq $stage ? $code->($socket) : honest($current) if $type eq 'E';
		next if $type ne 'S';
		give($socket, $output . message('Z', 'I'));
		$output = '';
	}
}

# Start a server that serves one connection; returns its process.
sub start_source
{
	my ($stage, $code) = @_;
	unlink "$directory/.s.PGSQL.$port";
	my $listener = IO::Socket::UNIX->new(Local => "$directory/.s.PGSQL.$port", Listen => 1) or die $!;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		$SIG{PIPE} = 'IGNORE';
		eval { serve(scalar $listener->accept, $stage, $code); 1 } or print STDERR $@;
		POSIX::_exit(0);
	}
	return $pid;
}

my $from = "host=$directory port=$port dbname=postgres user=x sslmode=disable gssencmode=disable";
my $fetch = "SELECT problem FROM blobext_fetch('$from', NULL, true)";
my $digests = 'SELECT string_agg(length(b)::text, \',\') FROM t WHERE id = 1';
my $was = $node->safe_psql('postgres', $digests);

sub stays_up
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, "$name: no process of the server has crashed");
	return is($node->safe_psql('postgres', $digests), $was, "$name: values are as they were");
}

# The error, and the most memory that the process has had, in MB.
sub fetch_from
{
	my ($stage, $code) = @_;
	my $pid = start_source($stage, $code);
	my ($result, $output, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\n"
		. "SET client_min_messages = error;\n$fetch;\n"
		. q(SELECT 'memory ' || (regexp_match(pg_read_file('/proc/self/status'), 'VmHWM:\s+(\d+)'))[1]::int / 1024),
		on_error_stop => 0);
	kill 'KILL', $pid;
	waitpid($pid, 0);
	my ($memory) = $output =~ /memory (\d+)/;
	return ($error, $memory // -1, $output);
}

sub is_refused
{
	my ($name, $stage, $like, $code) = @_;
	my ($error, $memory) = fetch_from($stage, $code);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($error, $like, "$name: the statement fails");
	cmp_ok($memory, '>', 0, "$name: the session goes on");
	cmp_ok($memory, '<', 150, "$name: the process has stayed small");
	return stays_up($name);
}

# ---- the honest one ----

my ($error, $memory, $output) = fetch_from('none', sub { '' });
like($output, qr/the content of the other server does not match the SHA-256 digest/,
	'a source that has nothing: the value is reported');
like($output, qr/\A[^\n]*\nmemory/, 'a source that has nothing: one value is reported');

# ---- each answer ----

my $invalid = qr/08P01: the other server sent an invalid answer/;
my @stages = qw(schema settings source recovery bytes digest);

foreach my $stage (@stages)
{
	is_refused("$stage: a row without columns", $stage, $invalid, sub { description() . row() . done() })
	  if $stage ne 'settings';	# nothing of that answer is used
	is_refused("$stage: a null", $stage, $invalid, sub { answer(\@columns, undef, undef, undef, undef) })
	  if $stage ne 'settings';
	is_refused("$stage: no row", $stage, $stage =~ /bytes|digest/ ? $invalid : qr/55000: .*no extension blobext/,
		sub { description('a') . done() });
	is_refused("$stage: two rows", $stage, $invalid, sub { description('a') . row('1') . row('2') . done() });
	is_refused("$stage: another kind of answer", $stage, $invalid, sub { done() }) if $stage ne 'settings';
	is_refused("$stage: COPY", $stage, $invalid, sub { message('H', "\0" . pack('n', 0)) });
	is_refused("$stage: COPY to it", $stage, $invalid, sub { message('G', "\0" . pack('n', 0)) });
	is_refused("$stage: a row of 8 MB", $stage, $invalid, sub { answer(['a'], $megabyte x 8) });
	is_refused("$stage: endless rows", $stage, $invalid, sub {
		my ($socket) = @_;
		give($socket, message('1', '') . message('2', '') . description('a'));
		give($socket, row($megabyte)) for 1 .. 400;
		return done();
	});
	is_refused("$stage: an error without a code", $stage, qr/08000: the other server refused/,
		sub { failure('00000', 'all is well') }) if $stage !~ /bytes|digest/;
}

# ---- answers of right form ----

is_refused('a length of bytes that is too large', 'bytes', $invalid, sub { answer(['a'], $megabyte . 'x') });
is_refused('a digest that is too long', 'digest', $invalid, sub { answer(['a'], 'd' x 33) });
is_refused('a history without end', 'source', $invalid,
	sub { answer(\@columns, @source[ 0, 1 ], '1 0/1,' x 400_000, 0) });
is_refused('a history that is none', 'source', qr/08P01: the other server sent an invalid history/,
	sub { answer(\@columns, @source[ 0, 1 ], '%s%n', 0) });
is_refused('text in no encoding', 'source', $invalid, sub { answer(\@columns, "\xff\xfe", @source[ 1 .. 3 ]) });
is_refused('an error in no encoding', 'source', qr/22023: .*\n.*wrong encoding/,
	sub { failure('22023', "\xff\xfe") });

# The message of a refusal becomes text of the result.
($error, $memory, $output) = fetch_from('bytes', sub { failure('22023', "\xff\xfe" . 'x' x 1_000_000) });
like($output, qr/the other server does not give it: .*wrong encoding/, 'a refusal in no encoding: the result has other text');
cmp_ok(length($output), '<', 10_000, 'a refusal that is too long is cut');
stays_up('a refusal in no encoding');

# Messages that no request asks for.
($error, $memory) = fetch_from('bytes', sub {
	my ($socket) = @_;
	give($socket, message('1', '') . message('2', ''));
	give($socket, message('A', pack('N', 1) . "channel\0" . 'p' x 7000 . "\0") x 100) for 1 .. 300;
	give($socket, message('N', "SWARNING\0C01000\0M" . 'n' x 7000 . "\0\0") x 100) for 1 .. 20;
	return answer(['a'], '');
});
cmp_ok($memory, '>', 0, 'notifications and notices: the session goes on');
cmp_ok($memory, '<', 150, 'notifications and notices are not kept');
unlike(slurp_file($node->logfile), qr/nnnnnn/, 'notices of the source do not come into the log');

# ---- a source that never ends can be cancelled ----

sub is_cancelled
{
	my ($name, $stage, $code) = @_;
	my $pid = start_source($stage, $code);
	my $session = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' application_name=victim', '-c', $fetch ],
		'<', \undef, '>', \my $out, '2>', \my $err);
	my $runs = "FROM pg_stat_activity WHERE application_name = 'victim' AND state = 'active'";
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 $runs"), "$name: the statement runs");
	# A cancel that comes before the wait counts, too.
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) $runs");
	$session->finish;
	kill 'KILL', $pid;
	waitpid($pid, 0);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($err, qr/canceling statement due to user request/, "$name: the statement can be cancelled");
	return stays_up($name);
}

is_cancelled('a source that is silent', 'bytes', sub { sleep 1 while 1 });
is_cancelled('a source that sends notices without end', 'source', sub {
	my ($socket) = @_;
	give($socket, message('N', "SWARNING\0C01000\0Mn\0\0") x 1000) while 1;
});

done_testing();
