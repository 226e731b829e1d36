# Large values through every function that streams: bounded memory, prompt cancels, no orphaned
# files.
#
# A value of 300 MB (BLOBEXT_STREAM_MB, a multiple of 10; 5 GB with BLOBEXT_TEST_LARGE=1, which takes
# 35 GB of disk) is imported,
# exported, aggregated, read in pieces, and goes to a large object and back, and through the functions
# that bytea has, too, while the backend looks at the peak of its own memory.  Then each of these is cut off by statement_timeout at
# several moments: the statement must end within a second, and the session must go on as if
# nothing had happened: no file left open or behind, stores and reads as before.  At last a backend
# is terminated while it exports.
use strict;
use warnings;

use Digest::SHA;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use lib $FindBin::RealBin;
use BlobTest;

my $step_mb = 10;
my $size_mb = $ENV{BLOBEXT_STREAM_MB} // ($ENV{BLOBEXT_TEST_LARGE} ? 5 * 1024 : 300);
my $size = $size_mb * 1024 * 1024;

# Memory that an operation may take beyond that of a small value: its step or chunk, the
# writer's buffer of up to 4 MB, and the one before it while it is copied; the overhead of malloc; the
# stack of the digest thread, which may be a huge page.  Import took 7.8 to 8.9 MB.
my $allowed_kb = 12 * 1024;

my $node = blob_cluster('main', conf => "max_wal_size = 2GB\n");
my $dir = $PostgreSQL::Test::Utils::tmp_check;

sub write_file
{
	my ($path, $mb) = @_;
	my $digest = Digest::SHA->new(256);
	open(my $file, '>:raw', $path) or die "cannot write $path: $!";
	for (my $i = 0; $i < $mb / $step_mb; $i++)
	{
		my $bytes = content("file.$i", $step_mb * 1024 * 1024);
		print $file $bytes;
		$digest->add($bytes);
	}
	close($file) or die "cannot write $path: $!";
	return $digest->hexdigest;
}

sub digest_of_file
{
	my ($path) = @_;
	return Digest::SHA->new(256)->addfile($path, 'b')->hexdigest;
}

sub temporary_files
{
	return join(' ', glob "$dir/.blobext*");
}

my %digest = (
	small => write_file("$dir/small", 20),
	big => write_file("$dir/big", $size_mb));
$node->safe_psql('postgres', q(
CREATE TABLE value (name text, b blobstate, lo oid);
CREATE TABLE sink (b blobstate);
CREATE TABLE peak (operation text, name text, kb bigint);
CREATE FUNCTION memory_kb(field text) RETURNS bigint LANGUAGE sql VOLATILE AS $$
	SELECT substring(pg_read_file('/proc/self/status') FROM field || ':\s+(\d+)')::bigint $$;
CREATE TABLE open_file (line text);
CREATE FUNCTION bytes(seed text) RETURNS bytea LANGUAGE sql AS $$
	SELECT decode(repeat(md5(seed), 10000), 'hex') $$;
));

#
# Memory, and content
#
my @operations = (
	import => q(INSERT INTO value SELECT 'NAME', blob_import('DIR/NAME')),
	export => q(SELECT blob_export(b, 'DIR/NAME.out') FROM value WHERE name = 'NAME'),
	chunks => q(SELECT sum(length(data)) FROM value, blob_chunks(b) WHERE name = 'NAME'),
	agg => q(INSERT INTO sink SELECT blob_agg(data) FROM value, blob_chunks(b) WHERE name = 'NAME'),
	agg_values => q(INSERT INTO sink SELECT blob_agg(b) FROM value WHERE name = 'NAME'),
	to_lo => q(UPDATE value SET lo = blob_to_lo(b) WHERE name = 'NAME'),
	from_lo => q(INSERT INTO sink SELECT blob_from_lo(lo) FROM value WHERE name = 'NAME'),
	md5 => q(SELECT md5(b) FROM value WHERE name = 'NAME'),
	sha512 => q(SELECT sha512(b) FROM value WHERE name = 'NAME'),
	digest => q(SELECT digest(b, 'sha3-256') FROM value WHERE name = 'NAME'),
	bit_count => q(SELECT bit_count(b) FROM value WHERE name = 'NAME'),
	position => q(SELECT POSITION(blob_read(b, 19000000, 200000) || '\x00' IN b) FROM value WHERE name = 'NAME'),
	like => q(SELECT b LIKE '%\000_\001%\377\376\375\374\373' FROM value WHERE name = 'NAME'),
	string_agg => q(SELECT length(string_agg(b, '\x00')) FROM value WHERE name = 'NAME'),
	overlay => q(SELECT length(OVERLAY(b PLACING '\x00' FROM 3 FOR 2)) FROM value WHERE name = 'NAME'),
	trim => q(SELECT length(btrim(b, blob_read(b, 0, 1))) FROM value WHERE name = 'NAME'),
	set_bit => q(SELECT length(set_bit(b, 1, 1)) FROM value WHERE name = 'NAME'));

# The small value first: it makes the process take the memory that it keeps.  Shared memory counts as
# the process touches it, and is left out.
my $script = '';
my $dense = ($dir =~ s/'/''/gr);
for (my $i = 0; $i < @operations; $i += 2)
{
	foreach my $name ('small', 'small', 'big')
	{
		my $sql = $operations[ $i + 1 ] =~ s/NAME/$name/gr =~ s/DIR/$dense/gr;
		$sql = 'SELECT 1' if $name eq 'small' && $operations[$i] eq 'import' && $script =~ /small/;
		$script .= "COPY (SELECT 5) TO '/proc/self/clear_refs';
			SELECT memory_kb('VmHWM') - memory_kb('RssShmem') AS before \\gset
			$sql;
			INSERT INTO peak VALUES ('$operations[$i]', '$name',
				memory_kb('VmHWM') - memory_kb('RssShmem') - :before);\n";
	}
}
$node->safe_psql('postgres', $script);
is($node->safe_psql('postgres', "SELECT operation, kb FROM peak
	WHERE name = 'big' AND kb > $allowed_kb"), '', 'no operation on a big value needs more memory than allowed');
note($node->safe_psql('postgres',
		q(SELECT operation, name, kb || ' kB more at the peak' FROM peak WHERE name = 'big')));
is($node->safe_psql('postgres', q(SELECT DISTINCT encode(sha256(b), 'hex'), length(b) FROM
		(SELECT b FROM value WHERE name = 'big' UNION ALL SELECT b FROM sink) AS s WHERE length(b) > 100000000)),
	"$digest{big}|$size", 'import, blob_agg() and blob_from_lo() give the content');
is($node->safe_psql('postgres', q(SELECT count(*) FROM sink WHERE length(b) > 100000000)), '3',
	'three big values have been stored by streams');
is(digest_of_file("$dir/big.out"), $digest{big}, 'the exported file has the content');
unlink "$dir/big.out";

#
# Cancels
#
my $file = "$dense/big";
my %cancelled = (
	import => "SELECT blob_import('$file')",
	'import to a table' => "INSERT INTO sink SELECT blob_import('$file')",
	export => "SELECT blob_export(b, '$dense/cancelled') FROM value WHERE name = 'big'",
	chunks => q(SELECT sum(length(data)) FROM value, blob_chunks(b) WHERE name = 'big'),
	'small chunks' => q(SELECT sum(length(data)) FROM value, blob_chunks(b, 5000) WHERE name = 'big'),
	cursor => q(MOVE ALL IN half),
	agg => q(SELECT length(blob_agg(data)) FROM value, blob_chunks(b) WHERE name = 'big'),
	'agg by turns' => q(SELECT chunk_no % 20, length(blob_agg(data)) FROM value, blob_chunks(b, 100000)
		WHERE name = 'big' GROUP BY 1),
	'agg of values' => q(SELECT length(blob_agg(b)) FROM value WHERE name = 'big'),
	write => q(SELECT length(blob_write(b, 100, '\x00')) FROM value WHERE name = 'big'),
	delete => q(SELECT length(blob_delete(b, 0, 1)) FROM value WHERE name = 'big'),
	md5 => q(SELECT md5(b) FROM value WHERE name = 'big'),
	digest => q(SELECT digest(b, 'sha3-256') FROM value WHERE name = 'big'),
	bit_count => q(SELECT bit_count(b) FROM value WHERE name = 'big'),
	encode => q(SELECT length(encode(b, 'escape')) FROM value WHERE name = 'big'),
	position => q(SELECT POSITION('\x000102030405060708090a0b0c0d0e0f' IN b) FROM value WHERE name = 'big'),
	like => q(SELECT b LIKE '%\000\001\002\003\004\005\006\007%' FROM value WHERE name = 'big'),
	string_agg => q(SELECT length(string_agg(b, '\x00')) FROM value WHERE name = 'big'),
	overlay => q(SELECT length(OVERLAY(b PLACING '\x' FROM 3 FOR 2)) FROM value WHERE name = 'big'),
	set_bit => q(SELECT length(set_bit(b, 1, 1)) FROM value WHERE name = 'big'),
	to_lo => q(SELECT blob_to_lo(b) FROM value WHERE name = 'big'),
	from_lo => q(SELECT length(blob_from_lo(lo)) FROM value WHERE name = 'big'));

$node->safe_psql('postgres', 'CREATE TABLE result (operation text, timeout_ms int, sqlstate text,
	seconds float8, is_intact bool); CREATE TABLE after (id serial, b blobstate)');
# RESET has that timeout, too: the last of three is not cancelled as well.
my $cancels = q(SELECT count(*) AS nothing FROM pg_class \gset
	INSERT INTO after (b) VALUES (bytes('first'));
	SELECT b FROM after \g /dev/null
);
foreach my $operation (sort keys %cancelled)
{
	foreach my $timeout_ms (3, 30, 100)
	{
		my $quoted = $operation;
		my $before = $operation eq 'cursor' ? q(BEGIN;
			DECLARE half NO SCROLL CURSOR FOR SELECT data FROM value, blob_chunks(b) WHERE name = 'big';
			MOVE 3 IN half;) : '';
		my $after = $operation eq 'cursor' ? 'ROLLBACK;' : '';
		$cancels .= "$before
			SELECT clock_timestamp() AS started \\gset
			SET statement_timeout = $timeout_ms;
			$cancelled{$operation} \\g /dev/null
			\\set state :SQLSTATE
			$after
			RESET statement_timeout; RESET statement_timeout; RESET statement_timeout;
			SELECT extract(epoch FROM clock_timestamp() - :'started') AS seconds \\gset
			COPY open_file FROM PROGRAM 'ls -l /proc/\$PPID/fd | grep -e /big -e /.blobext -e /cancelled || true';
			INSERT INTO after (b) VALUES (bytes('$operation $timeout_ms'));
			INSERT INTO result SELECT '$operation', $timeout_ms, :'state', :seconds,
				b::bytea = bytes('$operation $timeout_ms') FROM after ORDER BY id DESC LIMIT 1;\n";
	}
}
my ($exit, $out, $err) = $node->psql('postgres', $cancels, on_error_stop => 0);
is($exit, 0, 'the session survives all cancelled operations');
unlike($err =~ s/ERROR:  canceling statement due to (statement timeout|user request)//gr, qr/ERROR|WARNING/,
	'no other error, and no warning of a leak');
is($node->safe_psql('postgres', 'SELECT count(*) FROM result'), 3 * keys %cancelled, 'each operation was tried with each timeout');
is($node->safe_psql('postgres', q(SELECT operation FROM result GROUP BY 1
	HAVING bool_and(sqlstate <> '57014'))), '', 'each operation was cancelled at least once');
# An operation that does not look for cancels is slow each time.
is($node->safe_psql('postgres', q(SELECT operation, min(seconds) FROM result WHERE sqlstate = '57014'
	GROUP BY 1 HAVING bool_and(seconds > timeout_ms / 1000.0 + 1))), '', 'each operation looks for cancels within a second');
note('slowest: ' . $node->safe_psql('postgres',
		q(SELECT operation, max(seconds - timeout_ms / 1000.0) FROM result WHERE sqlstate = '57014'
		GROUP BY 1 ORDER BY 2 DESC LIMIT 3)));
is($node->safe_psql('postgres', 'SELECT * FROM open_file'), '', 'no file stays open');
is($node->safe_psql('postgres', 'SELECT * FROM result WHERE NOT is_intact'), '',
	'stores and reads go on');
is(temporary_files(), '', 'no temporary file is left');
ok(!-e "$dir/cancelled" || -s "$dir/cancelled" == $size, 'no part of a value has the final name');

#
# Termination
#
my $export = "SELECT blob_export(b, '$dense/terminated') FROM value, generate_series(1, 100) WHERE name = 'big'";
my $started = IPC::Run::start([ 'psql', '-X', '-c', $export, '-d', $node->connstr('postgres') ],
	'<', \undef, '>', \my $ignored, '2>', \my $error);
for (my $i = 0; $i < 20_000 && temporary_files() eq ''; $i++)
{
	usleep(500);
}
isnt(temporary_files(), '', 'a temporary file is being written');
is($node->safe_psql('postgres', q(SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
	WHERE query LIKE '%blob_export%' AND pid <> pg_backend_pid())), '1', 'the backend is terminated');
$started->finish;
like($error, qr/terminating connection/, 'the terminated backend was exporting');
is(temporary_files(), '', 'the temporary file of the terminated export is removed');

check_is_clean($node, 'the check finds nothing');
no_page_is_shared($node, 'no page belongs to two values', 'value', 'sink', 'after');
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|WARNING|TRAP/, 'nothing alarming in the log');

done_testing();
