# Uploads beside the collector, in sessions that die, in prepared transactions, and over crashes.
#
# Seen to fail with a round that does not wait for transactions (pass_blocks() ignored in
# src/gc/quiesce.c): the extents of the first upload were freed, and its session got an error.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;
use RawClient;

# Content does not go to the WAL, so each value must be durable in its file when it is committed.
my $node = blob_cluster('main', conf => "autovacuum = off\nwal_level = minimal\nmax_wal_senders = 0\n");
gc_use($node);

# Statements that upload value($i), in three pieces, as number 1 of their session.
sub pieces
{
	my ($i) = @_;
	return map { "SELECT blob_upload_write(1, substring(value($i) FROM $_))" }
	  ('1 FOR 10000', '10001 FOR 20000', '30001');
}

sub extents
{
	return sql('SELECT count(*) FROM blobext_map');
}

# ---- the collector ----

sql('CREATE TABLE s.u (id integer, b blobstate)');
{
	my $session = session('BEGIN', 'SELECT blob_upload_begin()',
		'SELECT blob_upload_write(1, convert_to(repeat($$x$$, 3000000), $$UTF8$$))');
	cmp_ok(extents(), '>', 0, 'an upload has extents');
	frees_nothing(qr/transaction/, 'the collector waits for the transaction of an upload');
	$session->query_safe('INSERT INTO s.u VALUES (1, blob_upload_end(1)); COMMIT');
	frees(0, 'the value is stored');
	is(sql('SELECT length(b), b = convert_to(repeat($$x$$, 3000000), $$UTF8$$) FROM s.u'), '3000000|t',
		'a value that was uploaded while the collector waited');
	sql('DELETE FROM s.u');
}

# A session that ends in the middle: only the collector knows its extents.
{
	my $session = session('BEGIN', 'SELECT blob_upload_begin()',
		'SELECT blob_upload_write(1, convert_to(repeat($$x$$, 3000000), $$UTF8$$))');
	my $pid = pid($session);
	sql("SELECT pg_terminate_backend($pid, 60000)");
	cmp_ok(extents(), '>', 0, 'a session that was terminated leaves the extents of its upload');
	forget_sessions();
	frees(2, 'the collector frees an upload that has no session any more, and the deleted value');
	is(extents(), '0', 'no extent is left');
}

# A value that an upload continues is not freed meanwhile, although its row is gone.
{
	sql('INSERT INTO s.u VALUES (1, value(1))');
	my $session = session('BEGIN', 'SELECT blob_upload_resume(b) FROM s.u WHERE id = 1');
	sql('DELETE FROM s.u');
	frees_nothing(qr/transaction/, 'the collector waits for an upload that continues a value');
	$session->query_safe(q(SELECT blob_upload_write(1, 'more')));
	$session->query_safe('INSERT INTO s.u VALUES (1, blob_upload_end(1)); COMMIT');
	is(sql('SELECT b = value(1) || convert_to($$more$$, $$UTF8$$) FROM s.u'), 't',
		'a value that continues one whose row is gone');
	sql('DELETE FROM s.u');
	forget_sessions();
}

# ---- crashes ----

{
	my $prepared = session('BEGIN', 'SELECT blob_upload_begin()', pieces(2),
		'INSERT INTO s.u VALUES (2, blob_upload_end(1))', q(PREPARE TRANSACTION 'p'));
	my $savepoint = session('BEGIN', 'SELECT blob_upload_begin()', pieces(3), 'SAVEPOINT s',
		'INSERT INTO s.u VALUES (3, blob_upload_end(1))', 'ROLLBACK TO SAVEPOINT s',
		'INSERT INTO s.u VALUES (3, blob_upload_end(1))', 'COMMIT');
	my $inner = session('BEGIN', 'SELECT blob_upload_begin()', 'SAVEPOINT s', pieces(4),
		'RELEASE SAVEPOINT s', 'INSERT INTO s.u VALUES (4, blob_upload_end(1))', 'COMMIT');
	my $open = session('BEGIN', 'SELECT blob_upload_begin()', pieces(5));
	my $stored = session('BEGIN', 'SELECT blob_upload_begin()', pieces(6),
		'INSERT INTO s.u VALUES (6, blob_upload_end(1))');
	kill_everything($node);
	forget_sessions();
	$node->start;
	intact('SELECT * FROM s.u', 2, 'committed uploads are there after a crash');
	is(sql('SELECT string_agg(id::text, $$ $$ ORDER BY id) FROM s.u'), '3 4', 'uploads that were not committed are not there after a crash');
	sql(q(COMMIT PREPARED 'p'));
	intact('SELECT * FROM s.u', 3, 'an upload of a prepared transaction is there when that is committed');
	my ($freed, $live, $reason) = gc();
	is("$live $reason", '3 ', 'the collector frees the uploads that were open');
	check_is_clean($node, 'the check finds nothing');
}

# An upload that was not ended goes with PREPARE, with a warning.
{
	my ($out, $err);
	my $status = $node->psql('postgres', q(BEGIN; SELECT blob_upload_begin();
		SELECT blob_upload_write(1, repeat('x', 5000)::bytea); PREPARE TRANSACTION 'q'; SELECT 1;
		SELECT blob_upload_end(1)), stderr => \$err);
	like($err, qr/WARNING: +upload 1 was not ended: its content is discarded/, 'PREPARE TRANSACTION warns of an upload that was not ended');
	like($err, qr/ERROR: +there is no upload 1 in this transaction/, 'PREPARE TRANSACTION ends an upload');
	sql(q(COMMIT PREPARED 'q'));
	frees(0, 'the session has freed the extents of the upload');
}

# ---- a client that stalls in the middle of a message ----

# A cancel waits for the end of the message, as in every COPY; the end of the session does not.
sub start_stalled_copy
{
	my $client = RawClient->new($node, 'postgres');
	$client->query('BEGIN');
	my ($rows) = $client->query('SELECT blob_upload_begin()');
	$client->{row_limit} = 0;
	$client->send('Q', "COPY blob_upload_pieces FROM STDIN (FORMAT binary)\0");
	my ($type) = $client->message;
	die 'no COPY' if $type ne 'G';
	my $piece = pack('n N q> N', 2, 8, $rows->[0][0], 50_000) . 'p' x 50_000;
	my $data = "PGCOPY\n\377\r\n\0" . pack('NN', 0, 0) . $piece;
	$client->write('d' . pack('N', 4 + length $data) . substr($data, 0, 20_000));
	poll("SELECT wait_event = 'ClientRead' AND query LIKE 'COPY%' FROM pg_stat_activity WHERE pid = $client->{pid}");
	return ($client, substr($data, 20_000));
}

{
	my ($client, $rest) = start_stalled_copy();
	is(sql("SELECT pg_cancel_backend($client->{pid})"), 't', 'a COPY that stalls in a message is cancelled');
	$client->write($rest);
	my ($rows, $error) = $client->finish;
	like($error // '', qr/C57014/, 'a COPY that stalled in a message serves the cancel at its end');
	($rows, $error) = $client->query('ROLLBACK');
	is($error, undef, 'a COPY that stalled and was cancelled: the session goes on');
	$client->close;
	($client) = start_stalled_copy();
	is(sql("SELECT pg_terminate_backend($client->{pid}, 180000)"), 't', 'a session that stalls in a message of COPY can be ended');
	$client->close;
}

$node->stop;
done_testing();
