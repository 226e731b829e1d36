# Large values of query results are sent while they are read (src/client): each message is complete
# and right, in all formats and ways to execute; also when an error comes in the middle.
use strict;
use warnings;

use Digest::MD5 qw(md5_hex);
use Digest::SHA qw(sha256);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

use lib $FindBin::RealBin;
use BlobTest;
use RawClient;

# Without checksums of pages, so that it is the digest that finds damage.
my $node = blob_cluster('main', init => [ '--encoding=UTF8' ],
	conf => "blobext.cache_size = '2MB'\nblobext.page_checksums = off\nmax_parallel_workers = 4\n");

# Sizes around those where values begin to be streamed, where pieces and buffers end; b as o, c of
# another size; nulls, and inline values in the row, compressed and toasted.
my @sizes = (0, 1, 1000, 65_535, 65_536, 65_537, 131_071, 131_072, 131_073, 262_100, 262_143,
	262_144, 262_145, 278_528, 300_001, 524_287, 524_289, 1_048_577, 5_000_000);
push @sizes, map { int(rand(400_000)) } 1 .. 6;
note("sizes: @sizes");
$node->safe_psql('postgres', q(
CREATE TABLE t (id integer PRIMARY KEY, b blobstate, n integer, c blobstate, o bytea, note text)));
foreach my $i (0 .. $#sizes)
{
	my $other = $sizes[ $#sizes - $i ];
	my $path = "$PostgreSQL::Test::Utils::tmp_check/value";
	open(my $file, '>:raw', $path) or die $!;
	print $file content("b$i", $sizes[$i]), content("c$i", $other);
	close $file or die $!;
	$node->safe_psql('postgres', qq(
INSERT INTO t SELECT $i, substr(f, 1, $sizes[$i]), NULLIF($i % 3, 0),
	CASE WHEN $i % 5 <> 4 THEN substr(f, $sizes[$i] + 1) END, substr(f, 1, $sizes[$i]),
	repeat('ü', $i)
FROM pg_read_binary_file('$path') AS f));
}
$node->safe_psql('postgres', q(
SET blobext.inline_limit = '1MB';
INSERT INTO t SELECT 100 + i, v, i, NULL, v, 'inline'
FROM generate_series(1, 3) AS i, convert_to(repeat('a', i * 70000), 'UTF8') AS v;
ALTER TABLE t ALTER c SET STORAGE EXTERNAL;
INSERT INTO t SELECT 200, v, 1, v, v, 'external' FROM convert_to(repeat('b', 100000), 'UTF8') AS v;));
my $count = @sizes + 4;

# Values as the protocol gives them: undo the format.
sub bytes_of
{
	my ($value, $format) = @_;
	return $value if !defined $value || $format == 1;
	die 'no hex' if substr($value, 0, 2) ne '\\x';
	return pack('H*', substr($value, 2));
}

my $columns = 'id, b, n, c, o, note, sha256(c) AS digest';

sub check_rows
{
	my ($rows, $formats, $name) = @_;
	my @formats = @$formats == 1 ? ($formats->[0]) x 7 : @$formats;
	my @wrong;
	foreach my $row (@$rows)
	{
		my ($id, $b, $n, $c, $o, $note, $digest) = @$row;
		my $number = $formats[0] == 1 ? unpack('N', $id) : $id;
		$b = bytes_of($b, $formats[1]);
		$c = bytes_of($c, $formats[3]);
		$o = bytes_of($o, $formats[4]);
		$digest = bytes_of($digest, $formats[6]);
		push @wrong, $number
		  if $b ne $o || defined $c != defined $digest || (defined $c && sha256($c) ne $digest) ||
		  ($number < 100 && $note ne "\xc3\xbc" x $number);
	}
	is("@wrong", '', $name);
	return;
}

sub streamed { return stat_of($node, 'streamed_bytes') }

my $client = RawClient->new($node, 'postgres');
my $query = "SELECT $columns FROM t ORDER BY id";
my $before;

foreach my $stream ('on', 'off')
{
	$client->query("SET blobext.stream_results = $stream");
	$before = streamed();
	foreach my $formats ([1], [0], [ 1, 0, 1, 1, 1, 0, 0 ], [ 0, 1, 0, 0, 1, 1, 1 ])
	{
		foreach my $row_limit (0, 1, 4)
		{
			my ($rows, $error) = $client->extended($query, $formats, $row_limit);
			my $name = "stream $stream, formats @$formats, limit $row_limit";
			is($error, undef, "$name: no error comes");
			is(scalar @$rows, $count, "$name: all rows come");
			check_rows($rows, $formats, "$name: the values are right");
		}
	}
	my ($rows) = $client->query($query);
	check_rows($rows, [0], "stream $stream: a simple query gives the values");
	my $bytes = streamed() - $before;
	if ($stream eq 'on')
	{
		cmp_ok($bytes, '>', 13 * 15 * 1000 * 1000, 'the values of all formats were streamed');
	}
	else
	{
		is($bytes, 0, 'no value was streamed');
	}
}
$client->query('RESET blobext.stream_results');

# Notices of all levels come between rows, not into them.
$client->query('SET client_min_messages = debug5');
my ($rows, $error) = $client->extended($query, [1], 0);
$client->query('RESET client_min_messages');
check_rows($rows, [1], 'values are right with debug messages between rows');
is(scalar @$rows, $count, 'all rows come with debug messages between them');

# bytea_output = escape, another client encoding, a parallel plan.
$before = streamed();
$client->query("SET bytea_output = 'escape'");
($rows) = $client->query('SELECT b, o FROM t ORDER BY id');
is(scalar(grep { $_->[0] ne $_->[1] } @$rows), 0, 'values are right with bytea_output = escape');
is(streamed(), $before, 'a result with bytea_output = escape is left to the server');
$client->query("RESET bytea_output; SET client_encoding = 'latin1'");
($rows) = $client->extended('SELECT b, o, note FROM t WHERE id < 100 ORDER BY id', [ 1, 1, 0 ], 0);
is(scalar(grep { $_->[0] ne $_->[1] || $_->[2] =~ /[^\xfc]/ } @$rows), 0, 'text beside values is converted to the client\'s encoding');
is(length($rows->[7]->[2]), 7, 'converted text has one byte for each character');
$client->query('RESET client_encoding');
$client->query("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
	  . "SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2");
($rows) = $client->query("EXPLAIN SELECT $columns FROM t");
like($rows->[0]->[0], qr/Gather/, 'the plan of the query is parallel');
($rows) = $client->extended("SELECT $columns FROM t", [1], 0);
is(scalar @$rows, $count, 'a parallel plan gives all rows');
check_rows($rows, [1], 'a parallel plan gives the values of all rows');
$client->query('RESET ALL');

# Partitions whose rows have descriptions of their own, in turn.
$node->safe_psql('postgres', q(
CREATE TABLE parted (LIKE t) PARTITION BY LIST ((id % 2));
CREATE TABLE even (junk integer, LIKE t);
ALTER TABLE even DROP junk;
ALTER TABLE parted ATTACH PARTITION even FOR VALUES IN (0);
CREATE TABLE odd PARTITION OF parted FOR VALUES IN (1);
INSERT INTO parted SELECT * FROM t;
CREATE INDEX ON parted (id);));
$client->query('SET enable_sort = off');
my $merged = "SELECT $columns FROM parted AS t ORDER BY id";
($rows) = $client->query("EXPLAIN $merged");
like($rows->[0]->[0], qr/Merge Append/, 'the plan gives rows of partitions in turn');
($rows) = $client->extended($merged, [1], 0);
is(scalar @$rows, $count, 'all rows of partitions come');
check_rows($rows, [1], 'rows of partitions in turn: their values');
$client->query('RESET ALL');

# Results that are sent by another way, or that are left to the server.
($rows) = $client->query("BEGIN; DECLARE k CURSOR FOR $query; FETCH ALL FROM k; COMMIT");
check_rows($rows, [0], 'a cursor gives the values');
($rows) = $client->query("PREPARE p AS $query; EXECUTE p; DEALLOCATE p");
check_rows($rows, [0], 'a prepared statement gives the values');
($rows) = $client->extended("UPDATE t SET n = n RETURNING $columns", [1], 0);
check_rows($rows, [1], 'RETURNING gives the values');
$node->safe_psql('postgres', "CREATE FUNCTION all_rows() RETURNS SETOF t LANGUAGE sql AS 'SELECT * FROM t';"
	  . 'CREATE DOMAIN picture AS blobstate; CREATE VIEW v AS SELECT * FROM t');
foreach my $from ('all_rows()', 'v', '(SELECT * FROM t UNION ALL SELECT * FROM t WHERE false) AS u')
{
	($rows) = $client->extended("SELECT $columns FROM $from ORDER BY id", [1], 0);
	check_rows($rows, [1], "the values are right from $from");
	is(scalar @$rows, $count, "all rows come from $from");
}
($rows) = $client->extended('SELECT b::picture, ARRAY[b], ROW(b), o FROM t WHERE id < 100 ORDER BY id',
	[1], 0);
is(scalar(grep { $_->[0] ne $_->[3] || substr($_->[1], -length($_->[3]) || 1e9) ne $_->[3]
		|| substr($_->[2], -length($_->[3]) || 1e9) ne $_->[3] } grep { length $_->[3] } @$rows), 0,
	'domains, arrays and rows have the values');

# Long columns before the first value.
($rows) = $client->extended("SELECT repeat('x', id * 4000), repeat('y', 300000), b, repeat('z', 20000), c, o"
	  . ' FROM t WHERE id < 100 ORDER BY id', [1], 0);
is(scalar(grep { $rows->[$_]->[0] ne 'x' x ($_ * 4000) || $rows->[$_]->[1] ne 'y' x 300_000
		|| $rows->[$_]->[2] ne $rows->[$_]->[5] || $rows->[$_]->[3] ne 'z' x 20_000 } 0 .. $#sizes), 0,
	'long columns between values are right');

# Results of functions, sent from where they lie.
($rows) = $client->extended('SELECT b::bytea, o, blob_read(b, 5, 400000), substring(o FROM 6 FOR 400000),'
	  . ' substring(b, 2, 70000), substring(o FROM 2 FOR 70000) FROM t ORDER BY id', [1], 0);
is(scalar(grep { $_->[0] ne $_->[1] || $_->[2] ne $_->[3] || $_->[4] ne $_->[5] } @$rows), 0,
	'results of functions are those of bytea');
foreach my $piece (65_536, 262_144, 300_000, 1_048_576)
{
	($rows) = $client->extended("SELECT id, data FROM t, blob_chunks(b, $piece)", [1], 0);
	my %joined;
	$joined{ unpack('N', $_->[0]) } .= $_->[1] foreach @$rows;
	is(scalar(grep { ($joined{$_} // '') ne content("b$_", $sizes[$_]) } 0 .. $#sizes), 0,
		"chunks of $piece bytes together are the values");
}

# Errors before the first byte are ordinary ones.
($rows, $error) = $client->extended('SELECT b, 1 / (id - 18) FROM (SELECT * FROM t ORDER BY id OFFSET 0) AS s',
	[1], 0);
like($error, qr/division by zero/, 'a column that fails gives its own error');
is(scalar @$rows, 18, 'the rows before an error come');
($rows, $error) = $client->extended('SELECT b FROM t', [7], 0);
like($error, qr/unsupported format code/, 'an unknown format is refused');

# ---- an encrypted connection ----

my $data = $node->data_dir;
system_or_bail('openssl', 'req', '-new', '-x509', '-nodes', '-days', 2, '-subj', '/CN=blobext',
	'-newkey', 'rsa:2048', '-keyout', "$data/server.key", '-out', "$data/server.crt");
chmod 0600, "$data/server.key" or die $!;
$node->append_conf('postgresql.conf', "ssl = on\nlisten_addresses = '127.0.0.1'\n");
$node->restart;
my $encrypted = 'host=127.0.0.1 sslmode=require dbname=postgres port=' . $node->port;
$before = streamed();
my ($output, $errors);
IPC::Run::run([ 'psql', '-X', '-A', '-t', '-d', $encrypted, '-c',
		'SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()', '-c',
		'SELECT id, b FROM t WHERE id < 100 ORDER BY id' ], '>', \$output, '2>', \$errors)
  or die $errors;
my ($is_encrypted, @lines) = split(/\n/, $output);
is($is_encrypted, 't', 'the connection of psql is encrypted');
is(scalar(grep { $lines[$_] ne "$_|\\x" . unpack('H*', content("b$_", $sizes[$_])) } 0 .. $#sizes), 0,
	'an encrypted connection gives all values');
cmp_ok(streamed(), '>', $before, 'values are streamed over an encrypted connection');

# ---- memory ----

my $large = join('', map { md5_hex($_) x 31_250 } 1 .. 200);
$node->safe_psql('postgres', qq(CREATE TABLE large (b blobstate);
	INSERT INTO large SELECT blob_agg(v) FROM generate_series(1, 200) AS i,
		LATERAL (SELECT convert_to(repeat(md5(i::text), 31250), 'UTF8')) AS s (v);));

sub peak_kb
{
	my ($pid) = @_;
	my $status = slurp_file("/proc/$pid/status");
	return $status =~ /^VmHWM:\s+(\d+) kB/m ? $1 : die 'no peak';
}

foreach my $stream ('on', 'off')
{
	my $reader = RawClient->new($node, 'postgres');
	$reader->query("SET blobext.stream_results = $stream");
	$reader->extended('SELECT b FROM t WHERE id = 18', [1], 0);
	my $peak = peak_kb($reader->{pid});
	($rows) = $reader->extended('SELECT b FROM large', [1], 0);
	ok($rows->[0]->[0] eq $large, "stream $stream: a large value");
	my $growth = peak_kb($reader->{pid}) - $peak;
	note("the server's process grew by $growth kB");
	cmp_ok($growth, $stream eq 'on' ? '<' : '>', $stream eq 'on' ? 16_000 : 150_000,
		"memory with stream $stream");
	$reader->close;
}

# A portal that runs many times.
my $runner = RawClient->new($node, 'postgres');
my $runs = 'SELECT b FROM t, generate_series(1, %d) WHERE id = 5';
$runner->extended(sprintf($runs, 300), [1], 1);
my $peak = peak_kb($runner->{pid});
($rows) = $runner->extended(sprintf($runs, 3000), [1], 1);
is(scalar(grep { $_->[0] ne content('b5', 65_537) } @$rows), 0, 'one row for each Execute');
cmp_ok(peak_kb($runner->{pid}) - $peak, '<', 8_000, 'needs no memory for each');
$runner->close;

# ---- in the middle of a message ----

# Start to read the large value, and stop after the beginning of the message.
sub begin_to_read
{
	my ($reader) = @_;
	$reader->start('SELECT b FROM large', [1], 0);
	while (1)
	{
		my $head = $reader->read(5);
		my ($type, $length) = unpack('aN', $head);
		if ($type eq 'D')
		{
			$reader->{left} = $length - 4 - 1000;
			$reader->{begin} = $reader->read(1000);
			return;
		}
		die "message $type" if $type !~ /[12T]/;
		$reader->read($length - 4);
	}
}

# Checks a message that has not been completed: it has content alone, after its header.
sub is_begin_of_content
{
	my ($reader, $rest, $name) = @_;
	my $sent = substr($reader->{begin}, 6) . $rest;
	cmp_ok(length($rest), '<', $reader->{left}, "$name: the message is not completed");
	ok($sent eq substr($large, 0, length($sent)), "$name: nothing but content was sent");
	is(scalar(() = $reader->message), 0, "$name: the connection ends without another message");
	return;
}

my $reader = RawClient->new($node, 'postgres');
$reader->query("SET statement_timeout = '2s'");
begin_to_read($reader);
sleep(2.5);
is(length($reader->read($reader->{left})), $reader->{left},
	'a timeout waits for the end of the message');
($rows, $error) = $reader->finish;
like($error, qr/canceling statement due to statement timeout/, 'a timeout comes after the message');
$reader->query('RESET statement_timeout');
($rows) = $reader->extended($query, [1], 0);
check_rows($rows, [1], 'the session goes on after a timeout');

begin_to_read($reader);
is($node->safe_psql('postgres', "SELECT pg_cancel_backend($reader->{pid})"), 't', 'the session that sends gets a cancel');
sleep(0.2);
$reader->read($reader->{left});
($rows, $error) = $reader->finish;
like($error, qr/canceling statement due to user request/, 'the error of a cancel comes after the message');

# A session that moves the map does not wait for a client.
begin_to_read($reader);
$node->safe_psql('postgres', q(SET lock_timeout = '10s'; BEGIN; LOCK TABLE blobext_map IN ACCESS EXCLUSIVE MODE;
	COMMIT));
ok(substr($reader->{begin}, 6) . $reader->read($reader->{left}) eq $large, 'the map is locked meanwhile');
$reader->finish;

# The map's lock, and all others, are gone.
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $reader->{pid}"), '0',
	'no lock is left');

begin_to_read($reader);
is($node->safe_psql('postgres', "SELECT pg_terminate_backend($reader->{pid}, 20000)"), 't',
	'a session that waits for its client is terminated');
is_begin_of_content($reader, $reader->read($reader->{left}), 'termination');

my $offset = -s $node->logfile;
$reader = RawClient->new($node, 'postgres');
begin_to_read($reader);
$reader->close;
ok($node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $reader->{pid}"),
	'a session ends whose client is gone');
like(slurp_file($node->logfile, $offset), qr/(could not send data to|connection to) client/,
	'the log says so');

# A shutdown does not wait for a client that does not read.
$reader = RawClient->new($node, 'postgres');
begin_to_read($reader);
$node->stop('fast');
$node->start;

# Nothing was left to the end of the transaction to be released.
unlike(slurp_file($node->logfile), qr/WARNING/, 'no leak was warned of');

# ---- damage ----

$client = RawClient->new($node, 'postgres');
my $file = $node->data_dir . '/' . $node->safe_psql('postgres',
	'SELECT file FROM blobext_files() ORDER BY segment LIMIT 1');
rename($file, "$file.away") or die $!;
($rows, $error) = $client->extended('SELECT b FROM large', [1], 0);
like($error, qr/could not read content from file/, 'a missing file is an ordinary error');
rename("$file.away", $file) or die $!;
($rows, $error) = $client->extended('SELECT b FROM large', [1], 0);
is($error, undef, 'of a session that goes on');

# With verified reads, too; nothing of a damaged value is sent then.
my $page = $node->safe_psql('postgres',
	'SELECT first_page + pages / 2 FROM large, blob_extents(b) ORDER BY extent_no DESC LIMIT 1');
sub flip
{
	open(my $handle, '+<:raw', $file) or die $!;
	sysseek($handle, $page * 4096, 0) // die $!;
	sysread($handle, my $byte, 1) or die $!;
	sysseek($handle, $page * 4096, 0) // die $!;
	syswrite($handle, $byte ^ "\x01") or die $!;
	close $handle or die $!;
	$node->restart;
	$client = RawClient->new($node, 'postgres');
	return;
}
flip();
$client->query('SET blobext.verify_reads = on');
($rows, $error) = $client->extended('SELECT b FROM large', [1], 0);
like($error, qr/content does not match its SHA-256/, 'verified reads are not streamed');
is(scalar @$rows, 0, 'no row of a value that does not verify is sent');
flip();

# The file loses its end while the value is sent: the message cannot be completed.
$offset = -s $node->logfile;
begin_to_read($client);
truncate($file, $page * 4096) or die $!;
is_begin_of_content($client, $client->read($client->{left}), 'a read error in the middle');
my $log = slurp_file($node->logfile, $offset);
like($log, qr/ERROR:  could not read content from file .*too short/, 'the log has the error');
like($log, qr/FATAL:  terminating connection because a value could not be read to its end/,
	'the log says that the connection is terminated after the read error');
($rows, $error) = RawClient->new($node, 'postgres')->extended('SELECT b FROM large', [1], 0);
like($error, qr/could not read content from file .*too short/,
	'now it is known before, and an ordinary error');

$node->stop('immediate');
done_testing();
