# Writes that trail: an upload by COPY receives the next bytes while those before them are written.
#
# A library that is loaded before others (test/unit/fail_writes.c) has these writes begin late, so that
# they read the writer's memory late; or cut short, or fail.  Parts:
#
#	- several uploads in one COPY, in pieces of random sizes, with the digest thread, which may be slow,
#	  and without; with io_uring, aio and blocking calls; also compressed: content equals the bytes that
#	  were sent,
#	- a write fails that has trailed: the COPY fails, whether another one follows or not, and the
#	  upload cannot go on,
#	- COPY ends by an error, the session is ended, the transaction is rolled back to a savepoint: the
#	  writes end before, so that they do not damage a later value in the same pages,
#	- a value is committed while its last writes would still trail, and the server is killed; another
#	  one is, before its last pieces are hashed.
#
# Seen to fail: the first part with a request that io_submit() refuses and that counts as done
# (src/io/engine_aio.c), without exchange_buffers(), without blob_hasher_wait_for_job() in it, and
# with puts that may trail without a buffer that is exchanged (src/blob/write_buffer.c); the second part with
# errors that blob_piece_await_write() (src/extents/piece.c) does not report; the third part without
# blob_pipeline_abandon() in blob_writer_write_from(); the last part with blob_writer_write_from() that does
# not wait, or with blob_write_buffer_finish_digest() that does not.
use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use lib $FindBin::RealBin;
use BlobTest;
use RawClient;

my $mega = 1024 * 1024;
my $seed = $ENV{BLOBEXT_TEST_SEED} // time;
srand($seed);
note "seed $seed";

my $library = preload_library('fail_writes.c');
my $fault = "$PostgreSQL::Test::Utils::tmp_check/trailing_fault";
$ENV{BLOBEXT_FAULT} = $fault;

# Values of more than a quarter of the cache are written from where they lie; so are these.
my $node = blob_cluster('main', start => 0, conf => "wal_level = minimal\nmax_wal_senders = 0\n" .
	  "checkpoint_timeout = 1h\nmax_wal_size = 4GB\nautovacuum = off\nblobext.digest_thread = on\n");

sub start
{
	local $ENV{LD_PRELOAD} = $library;
	# Memory that is given up stays mapped, as a device would still read it.
	local $ENV{MALLOC_MMAP_MAX_} = 0;
	local $ENV{MALLOC_TRIM_THRESHOLD_} = 1024 * $mega;
	$node->start;
	return;
}

# From now on the writes of a process are late, or fail.
sub begin_fault
{
	my ($what, $client) = @_;
	open(my $file, '>', "$fault.new") or die $!;
	print $file "$what $client->{pid}";
	close $file;
	rename("$fault.new", $fault) or die $!;
	return;
}

sub end_fault
{
	unlink($fault) == 1 or die $!;
	return;
}

# ---- a client that uploads ----

# The only value of a query; dies of an error.
sub ask
{
	my ($client, $query) = @_;
	my ($rows, $error) = $client->query($query);
	die $error if defined $error;
	return @$rows ? $rows->[0][0] : undef;
}

sub begin_copy
{
	my ($client) = @_;
	$client->send('Q', "COPY blob_upload_pieces FROM STDIN (FORMAT binary)\0");
	my ($type) = $client->message;
	die 'no COPY' if $type ne 'G';
	$client->send('d', "PGCOPY\n\377\r\n\0" . pack('NN', 0, 0));
	return;
}

sub send_piece
{
	my ($client, $number, $piece) = @_;
	$client->send('d', pack('nNq>N', 2, 8, $number, length $piece) . $piece);
	return;
}

# End the COPY; returns the error's text, or undef.
sub end_copy
{
	my ($client) = @_;
	$client->send('d', pack('n', 0xffff));
	$client->send('c', '');
	my (undef, $error) = $client->finish;
	return $error;
}

# Wait until the server has received all that was sent, and waits for more.
sub await_receiver
{
	my ($client) = @_;
	$node->poll_query_until('postgres', "SELECT wait_event = 'ClientRead' FROM pg_stat_activity
		WHERE pid = $client->{pid}") or die 'the server does not receive';
	return;
}

# Begin an upload, and a COPY that has sent its content.  From 18 MB on, where buffers of 4 MB are
# written, with a fault.  Received in slices of 128 kB, content of this size fills the last one.
sub full_bytes
{
	my ($buffers) = @_;
	return (15 * 9 + $buffers * 32) * 128 * 1024;
}

sub send_upload
{
	my ($client, $content, $what) = @_;
	my $number = ask($client, 'SELECT blob_upload_begin()');
	begin_copy($client);
	send_piece($client, $number, substr($content, 0, 18 * $mega));
	await_receiver($client);
	begin_fault($what, $client) if defined $what;
	send_piece($client, $number, substr($content, 18 * $mega));
	await_receiver($client);
	return $number;
}

sub store_upload
{
	my ($client, $id, $number, $content) = @_;
	my $digest = sha256_hex($content);
	ask($client, "INSERT INTO t SELECT $id, '$digest', blob_upload_end($number)");
	return;
}

sub is_whole
{
	my ($count, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql('postgres', q(SELECT count(*),
		count(*) FILTER (WHERE encode(sha256(b::bytea), 'hex') <> digest OR
			encode(sha256(b), 'hex') <> digest) FROM t)), "$count|0", $name);
}

start();
$node->safe_psql('postgres', q(
CREATE EXTENSION blobext;
CREATE TABLE t (id int, digest text, b blobstate);
));
my $has_lz4 = $node->safe_psql('postgres', q(SELECT count(*) FROM pg_settings
	WHERE name = 'blobext.default_compression' AND 'lz4' = ANY (enumvals)));
my ($is_refused) = $node->psql('postgres', q(SET blobext.io_method = io_uring;
	SELECT length(repeat('x', 10000000)::bytea::blobstate)));

my $has_aio = stat_of($node, 'direct_io');

# ---- content ----

# Uploads in turns.  The second one ends where a full buffer does: 4 MB each behind 17 MB.
sub upload_together
{
	my ($name, $settings, $what, $repeats) = @_;
	my $client = RawClient->new($node, 'postgres');
	my @sizes = (24 * $mega + int(rand(9 * $mega)), 29 * $mega);
	my @contents = map { content("$name $_", $sizes[$_] * $repeats, $repeats) } 0 .. 1;
	my @numbers;
	my @sent = map { 0 } @contents;

	ask($client, $settings) if $settings ne '';
	ask($client, 'BEGIN');
	@numbers = map { ask($client, 'SELECT blob_upload_begin()') } @contents;
	begin_fault($what, $client);
	begin_copy($client);
	while (my @left = grep { $sent[$_] < length $contents[$_] } 0 .. $#contents)
	{
		my $which = $left[rand @left];
		my $bytes = 1 + int(rand(rand() < 0.2 ? 6 * $mega : $mega));
		my $piece = substr($contents[$which], $sent[$which], $bytes);
		send_piece($client, $numbers[$which], $piece);
		$sent[$which] += length $piece;
	}
	is(end_copy($client), undef, "$name: both uploads are sent without an error");
	end_fault();
	store_upload($client, $_, $numbers[$_], $contents[$_]) for 0 .. $#contents;
	ask($client, 'COMMIT');
	$client->close;
	is_whole(2, "$name: content equals the bytes sent");
	$node->safe_psql('postgres', 'TRUNCATE t');
	return;
}

my $trailed = stat_of($node, 'trailing_write_bytes');
upload_together('the thread', '', 'late20', 1);
SKIP:
{
	skip 'no io_uring', 1 if $is_refused;
	cmp_ok(stat_of($node, 'trailing_write_bytes') - $trailed, '>', 8 * $mega, 'more than 8 MB of writes have trailed');
}
upload_together('slow thread', '', 'hash20', 1);
upload_together('no thread', 'SET blobext.digest_thread = off', 'late20', 1);
upload_together('cut short', '', 'short', 1);
upload_together('blocking', 'SET blobext.io_method = sync', 'late20', 1);
if ($has_aio)
{
	$trailed = stat_of($node, 'trailing_write_bytes');
	upload_together('aio', 'SET blobext.io_method = aio', 'late20', 1);
	cmp_ok(stat_of($node, 'trailing_write_bytes') - $trailed, '>', 8 * $mega, 'aio: writes have trailed');
	upload_together('aio, cut short', 'SET blobext.io_method = aio', 'short', 1);
	upload_together('aio, refused', 'SET blobext.io_method = aio', 'refuse', 1);
}
SKIP:
{
	skip 'no lz4', 2 if !$has_lz4;
	upload_together('compressed', 'SET blobext.default_compression = lz4', 'late20', 2);
}

# A buffer of 1 MB is full, and the next slice has less than a page: the rest becomes the buffer.
for my $before (2 * 9, 14 * 9)
{
	my $client = RawClient->new($node, 'postgres');
	my @pieces = map { content("rest $before $_", $_) } $before * 128 * 1024, $mega, 1000, 2 * $mega;
	ask($client, 'BEGIN');
	my $number = ask($client, 'SELECT blob_upload_begin()');
	begin_copy($client);
	begin_fault('late20', $client);
	send_piece($client, $number, $_) for @pieces;
	is(end_copy($client), undef, "a rest behind $before slices: sent");
	end_fault();
	store_upload($client, 1, $number, join('', @pieces));
	ask($client, 'COMMIT');
	$client->close;
	is_whole(1, "a rest behind $before slices: content equals the bytes sent");
	$node->safe_psql('postgres', 'TRUNCATE t');
}

# ---- failures ----

for my $case ([ 'auto', 0 ], [ 'auto', 4 * $mega ], $has_aio ? [ 'aio', 4 * $mega ] : ())
{
	my ($method, $after) = @$case;
	my $client = RawClient->new($node, 'postgres');
	my $content = content('failed', 22 * $mega);
	ask($client, "SET blobext.io_method = $method");
	ask($client, 'BEGIN');
	ask($client, 'SAVEPOINT s');
	my $number = send_upload($client, $content, 'EIO');
	end_fault();
	send_piece($client, $number, content('more', $after)) if $after > 0;
	like(end_copy($client), qr/could not write content to file/,
		"$method: a write that trailed has failed, $after bytes follow");
	ask($client, 'ROLLBACK TO SAVEPOINT s');
	my (undef, $error) = $client->query("SELECT blob_upload_end($number)");
	like($error, qr/there is no upload/, 'the upload of a failed COPY went with the savepoint');
	ask($client, 'ROLLBACK');
	$client->close;
}

# ---- writes of values that never become complete ----

# Pages that are not logged are given out again after a checkpoint.
sub make_room
{
	$node->safe_psql('postgres', 'SELECT blobext_gc()');
	$node->safe_psql('postgres', 'CHECKPOINT');
	return;
}

# Pages that were never used, behind those that were.
sub unused_pages
{
	return $node->safe_psql('postgres', q(SELECT sum(pages) FROM blobext_space
		WHERE state = 'absent'));
}

# After $end, another session stores in the pages that become free, without the fault.
sub is_not_damaged
{
	my ($id, $name, $method, $end) = @_;
	my $client = RawClient->new($node, 'postgres');
	my $content = content("lost $id", 26 * $mega);
	my $other = content("kept $id", 26 * $mega);
	make_room();
	ask($client, "SET blobext.io_method = $method");
	ask($client, 'BEGIN');
	send_upload($client, $content, 'late1000');
	my $unused = unused_pages();
	$end->($client);
	end_fault();

	make_room();
	my $second = RawClient->new($node, 'postgres');
	ask($second, 'BEGIN');
	my $number = send_upload($second, $other);
	is(end_copy($second), undef, "$name: another value is sent");
	store_upload($second, $id, $number, $other);
	ask($second, 'COMMIT');
	$second->close;
	sleep 1.3;
	is(unused_pages(), $unused, "$name: in pages of the first one");
	is_whole(1 + $id, "$name: it is whole when all writes have ended");
	return;
}

# The file stays, since there is another value.
my $kept = content('kept', 100_000);
$node->safe_psql('postgres', 'INSERT INTO t VALUES (0, ' . "'" . sha256_hex($kept) . "', " .
	  literal($kept) . '::bytea)');
is_not_damaged(1, 'error in COPY', 'auto', sub {
	my ($client) = @_;
	$client->send('f', "not more\0");
	like(($client->finish)[1], qr/not more/, 'COPY fails with the client\'s message');
	ask($client, 'ROLLBACK');
});
is_not_damaged(2, 'session ended', 'auto', sub {
	my ($client) = @_;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($client->{pid}, 10000)");
	$client->close;
});
is_not_damaged(3, 'connection lost', 'auto', sub {
	my ($client) = @_;
	$client->close;
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity
		WHERE pid = $client->{pid}") or die;
});

if ($has_aio)
{
	is_not_damaged(4, 'aio, error in COPY', 'aio', sub {
		my ($client) = @_;
		$client->send('f', "not more\0");
		like(($client->finish)[1], qr/not more/, 'aio: COPY fails with the client\'s message');
		ask($client, 'ROLLBACK');
	});
}
my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM t');

# ---- commits ----

for my $what ('hash20', 'late1000')
{
	my $client = RawClient->new($node, 'postgres');
	my $content = content($what, full_bytes($what eq 'hash20' ? 5 : 2));
	ask($client, 'BEGIN');
	my $number = send_upload($client, $content, $what);
	is(end_copy($client), undef, "$what: the upload is sent without an error");
	store_upload($client, 3, $number, $content);
	ask($client, 'COMMIT');
	end_fault() if $what eq 'hash20';
}
kill_everything($node);
end_fault();
unlink $node->data_dir . '/postmaster.pid';
start();
is_whole($count + 2, 'values that are committed are whole after a crash');
check_is_clean($node, 'blobext_check() finds nothing at the end');

$node->stop;
done_testing();
