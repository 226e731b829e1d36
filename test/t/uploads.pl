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
	is(sql('SELECT string_agg(id::text, $$ $$ ORDER BY id) FROM s.u'), '3 4', 'others are not');
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
	like($err, qr/WARNING: +upload 1 was not ended: its content is discarded/, 'PREPARE TRANSACTION warns');
	like($err, qr/ERROR: +there is no upload 1 in this transaction/, 'PREPARE TRANSACTION ends an upload');
	sql(q(COMMIT PREPARED 'q'));
	frees(0, 'the session has freed the extents of the upload');
}

$node->stop;
done_testing();
