# Open digests beside damage, crashes and standbys: a damaged value is reported, never blessed by a digest that is
# computed later.
#
# Values of a column that has opted in are changed in the middle, while bits of pages have flipped that the changes read, or
# do not read.  A change that comes to a damaged page fails; one that does not leaves an open value, of which reads, sha256(),
# assignment to another column and blobext_seal() fail, and which blobext_check() lists.  In a store without checksums
# digests stay sealed.  In one that got checksums later the first change proves the value by its digest, or fails.  After a
# crash, on a standby, and after a repair from that, contents and digests are right.
#
# Changes of values without checksums, in the middle, at the end and below blobext.rewrite_limit, compare all content with its digest, so
# damage is not given a new one.  New pages of an open value have checksums, though the change begins with them.  Bytes in the row, which
# have none, are compared before a digest is given up.
#
# Seen to fail: where none of the changes compares (19 of the tests on such changes); where a change decides at the first range that it
# keeps whether the digest stays open; without the looks at the last page and at an extent that is copied; without the looks at checksums in blob_seal_may_open(), or with pages alone that a tree fills; without a generation of its own for each open value
# (after the crash); without describe_open() in the check; with have_sums() false in heal/fetch.c.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

my $conf = "autovacuum = off\nblobext.autogc = off\nblobext.cache_size = 16MB\nblobext.rewrite_limit = 64kB\n";
my $page_bytes = 4096;

# Rows with contents and bytea beside them, in a column that has opted in.
sub prepare
{
	my ($node) = @_;
	$node->safe_psql('postgres', q(
		CREATE TABLE t (id int PRIMARY KEY, b blobstate, c bytea);
		CREATE TABLE sealed (id int, b blobstate);
		SELECT blobext_set_digest('t', 'b', 'deferred');
		CREATE FUNCTION noise(seed int, n int) RETURNS bytea LANGUAGE sql AS
			$$ SELECT substr(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), '' ORDER BY i), 1, n) FROM generate_series(0, n / 32) i $$;
		INSERT INTO t SELECT i, noise(i, 400000), noise(i, 400000) FROM generate_series(1, 8) i));
	return;
}

# A change of rows at an offset, of both columns.
sub change
{
	my ($where, $offset, $bytes) = @_;
	return "UPDATE t SET b = blob_write(b, $offset, '\\x$bytes'), c = overlay(c PLACING '\\x$bytes' FROM $offset + 1) WHERE $where";
}

# Flip a bit of the page that has an offset of the content of a plain value; the server is down then, and starts again.
sub flip
{
	my ($node, $id, $offset) = @_;
	my ($page) = $node->safe_psql('postgres', "SELECT first_page + ($offset - start) / $page_bytes FROM (
		SELECT first_page, bytes, sum(bytes) OVER (ORDER BY extent_no) - bytes AS start FROM t, blob_extents(b) WHERE id = $id) AS e
		WHERE $offset >= start AND $offset < start + bytes");
	my $file = segment_file($node, int($page / 262_144));
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->stop;
	flip_bit($file, ($page % 262_144) * $page_bytes * 8 + 77);
	$node->start;
	return $page;
}

sub open_ids { return $_[0]->safe_psql('postgres', q(SELECT string_agg(id::text, ' ' ORDER BY id) FROM t WHERE blob_digest_is_open(b))) // ''; }

sub wrong_ids
{
	return $_[0]->safe_psql('postgres', q(SELECT string_agg(id::text, ' ' ORDER BY id) FROM t WHERE b::bytea <> c OR sha256(b) <> sha256(c))) // '';
}

# ---- damage in a store with checksums ----

my $node = blob_cluster('main', streaming => 1, conf => $conf);
prepare($node);
flip($node, 1, 300_000);
fails_with($node, change('id = 1', 300_100, 'abcdef'), 'XX001', qr/is damaged/, 'a change that reads a damaged page fails');
is(open_ids($node), '', 'a change that fails leaves no open value');
$node->safe_psql('postgres', change('id IN (1, 2)', 50_000, 'abcdef'));
is(open_ids($node), '1 2', 'a change elsewhere leaves the digests open');
fails_with($node, 'SELECT length(b::bytea) FROM t WHERE id = 1', 'XX001', qr/is damaged/, 'the damage is reported by a read');
fails_with($node, 'SELECT sha256(b) FROM t WHERE id = 1', 'XX001', qr/is damaged/, 'no digest is computed of damaged content');
fails_with($node, 'INSERT INTO sealed SELECT id, b FROM t WHERE id = 1', 'XX001', qr/is damaged/,
	'a damaged value is not sealed by an assignment');
my ($exit, $out, $err) = $node->psql('postgres', q(CALL blobext_seal('t', 'b')));
is($out, '1|0|1', 'blobext_seal() seals the sound value, and counts the damaged one');
like($err, qr/WARNING:  row \(\d+,\d+\) of "t" keeps its value: content in file .* is damaged/, 'a warning says which value is damaged');
is(open_ids($node), '1', 'the damaged value stays open');
like($node->safe_psql('postgres', 'SELECT problem FROM blobext_check()'), qr/whose digest is open, does not have its checksum/,
	'the check lists the damaged value');
is($node->safe_psql('postgres', q(SELECT count(*) FROM blobext_check() WHERE relation = 't'::regclass)), '1', 'the check lists no other value');
$node->safe_psql('postgres', 'DELETE FROM t WHERE id = 1');
is(wrong_ids($node), '', 'all other values are right');

# A row that another session has locked is skipped, and done by the next call.
$node->safe_psql('postgres', change('id IN (2, 7)', 60_000, 'abcd'));
my $other = $node->background_psql('postgres');
$other->query_safe('BEGIN; SELECT id FROM t WHERE id = 7 FOR SHARE');
is($node->safe_psql('postgres', q(CALL blobext_seal('t', 'b'))), '1|1|0', 'a locked row is skipped without waiting');
is(open_ids($node), '7', 'the locked row has still an open value');
$other->query_safe('COMMIT');
$other->quit;
is($node->safe_psql('postgres', q(CALL blobext_seal('t', 'b', 1))), '1|0|0', 'the next call seals the row that was locked');
is($node->safe_psql('postgres', 'SELECT count(*) FROM blobext_seal_progress'), '0', 'no call is shown when it has ended');
fails_with($node, q(BEGIN; CALL blobext_seal('t', 'b')), '25001', qr/transaction block/, 'a call in a transaction block is refused');
fails_with($node, q(CALL blobext_seal('t', 'c')), '42804', qr/not blobstate/, 'a call for a column of another type is refused');
fails_with($node, q(CALL blobext_seal('t', NULL)), '22004', qr/must not be null/, 'a call for the column NULL is refused');
fails_with($node, q(CALL blobext_seal('t', 'b', 0)), '22023', qr/must be at least 1/, 'a call with empty batches is refused');

# ---- a crash ----

$node->safe_psql('postgres', change('id IN (3, 4)', 100_000, '0102'));
my $digest = $node->safe_psql('postgres', 'SELECT sha256(b) FROM t WHERE id = 3');
$node->safe_psql('postgres', join(';', 'BEGIN', change('id = 3', 100_000, '0304'), 'SELECT sha256(b) FROM t WHERE id = 3', 'ROLLBACK'));
is($node->safe_psql('postgres', 'SELECT sha256(b) FROM t WHERE id = 3'), $digest, 'a digest of a change that was rolled back is not that of its base');
$node->safe_psql('postgres', change('id = 3', 100_000, '0506'));
$node->stop('immediate');
$node->start;
is(open_ids($node), '3 4', 'values are open after a crash');
is(wrong_ids($node), '', 'contents and digests are right after a crash');
$node->safe_psql('postgres', change('id IN (3, 5)', 200_000, '0708'));
is(wrong_ids($node), '', 'contents and digests of changes after a crash are right');

# ---- a standby ----

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', change('id IN (3, 6)', 150_000, '090a'));
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is(open_ids($standby), '3 4 5 6', 'values are open on a standby');
is(wrong_ids($standby), '', 'contents and digests are right on a standby');
check_is_clean($standby, 'the check finds nothing on a standby');

# Repair of an open value: the page has its checksum in the map of this server.
my $page = $node->safe_psql('postgres', q(SELECT first_page + 1 FROM t, blob_extents(b) WHERE id = 6 AND pages > 30 ORDER BY extent_no LIMIT 1));
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop;
flip_bit(segment_file($node, 0), $page * $page_bytes * 8 + 99);
$node->start;
fails_with($node, 'SELECT sha256(b) FROM t WHERE id = 6', 'XX001', qr/is damaged/, 'a page of an open value is damaged');
my $from = $standby->connstr('postgres');
$from =~ s/'/''/g;
$node->safe_psql('postgres', "SELECT * FROM blobext_check(NULL, '$from')");
is(wrong_ids($node), '', 'the page of an open value came from the standby');
check_is_clean($node, 'the check finds nothing after the repair');
$standby->stop;

# ---- stores without checksums ----

my $old = blob_cluster('old', conf => $conf . "blobext.page_checksums = off\n");
prepare($old);
$old->safe_psql('postgres', change('id = 1', 100_000, '0102'));
is(open_ids($old), '', 'in a store without checksums changes compute digests');
is(wrong_ids($old), '', 'contents and digests there are right');
# A tree that uses a part of a page, of which the rest is another version's.
$old->safe_psql('postgres', q(UPDATE t SET b = blob_delete(b, 100001, 10), c = substr(c, 1, 100001) || substr(c, 100012) WHERE id = 4));
$old->safe_psql('postgres', 'SELECT blobext_enable_checksums()');
flip($old, 2, 300_000);
fails_with($old, change('id = 2', 100_000, '0102'), 'XX001', qr/does not match its SHA-256 digest/,
	'the first change of a value without checksums finds damage that it would not read');
is($old->safe_psql('postgres', 'SELECT sha256(b) = sha256(c) FROM t WHERE id = 2'), 't', 'the damaged value keeps its digest');
$old->safe_psql('postgres', change('id = 3', 100_000, '0102'));
is(open_ids($old), '3', 'the first change of a sound value without checksums leaves it open');
is($old->safe_psql('postgres', 'SELECT b::bytea = c AND sha256(b) = sha256(c) FROM t WHERE id = 3'), 't', 'the content of that value is right');
$old->safe_psql('postgres', change('id = 4', 200_000, '0102'));
is(open_ids($old), '3', 'a value of which no digest can prove a page keeps its digest');
is($old->safe_psql('postgres', 'SELECT b::bytea = c AND sha256(b) = sha256(c) FROM t WHERE id = 4'), 't', 'the digest of that value is right');
my $sums = $old->safe_psql('postgres', 'SELECT sum(checksummed_bytes) >= 400000 FROM blobext_space');
is($sums, 't', 'the value has got checksums');
$page = $old->safe_psql('postgres', q(SELECT first_page + 1 FROM t, blob_extents(b) WHERE id = 3 AND pages > 30 ORDER BY extent_no LIMIT 1));
$old->safe_psql('postgres', 'CHECKPOINT');
$old->stop;
flip_bit(segment_file($old, 0), $page * $page_bytes * 8 + 99);
$old->start;
fails_with($old, 'SELECT sha256(b) FROM t WHERE id = 3', 'XX001', qr/does not have its checksum|is damaged/, 'damage after that is found by a checksum');

$old->stop;

# ---- changes that would give damaged content a new digest ----

# Flip a bit of the byte at an offset of the content of a plain value in a table; the server is down then.
sub flip_byte
{
	my ($on, $table, $id, $offset) = @_;
	my ($first, $in_extent) = split /\|/, $on->safe_psql('postgres', "SELECT first_page, $offset - start FROM (
		SELECT first_page, bytes, sum(bytes) OVER (ORDER BY extent_no) - bytes AS start FROM $table, blob_extents(b) WHERE id = $id) AS e
		WHERE $offset >= start AND $offset < start + bytes");
	my $byte = $first * $page_bytes + $in_extent;
	my $file = segment_file($on, int($byte / 262_144 / $page_bytes));
	$on->safe_psql('postgres', 'CHECKPOINT');
	$on->stop;
	flip_bit($file, ($byte % (262_144 * $page_bytes)) * 8 + 3);
	$on->start;
	return;
}

my $none = blob_cluster('none', conf => $conf . "blobext.page_checksums = off\n");
prepare($none);
$none->safe_psql('postgres', q(
	CREATE TABLE u (id int PRIMARY KEY, b blobstate);
	INSERT INTO u SELECT id, noise(id, 400010) FROM generate_series(1, 7) id;
	CREATE TABLE v (id int PRIMARY KEY, b blobstate);
	INSERT INTO v VALUES (1, noise(1, 400000));
	CREATE TABLE z (id int PRIMARY KEY, b blobstate);
	SELECT blobext_set_compression('z', 'b', 'lz4');
	INSERT INTO z VALUES (1, repeat('compressible ', 100000)::bytea);
	UPDATE z SET b = blob_write(b, 500000, '\xab'), id = 1));
flip_byte($none, 'u', 1, 350_000);
my $mismatch = qr/does not match its SHA-256 digest/;
my $damaged = 'FROM u WHERE id = 1';

sub refuses
{
	my ($sql, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($none, $sql, 'XX001', $mismatch, $name);
}
refuses("SELECT blob_write(b, 300000, '\\xab') $damaged", 'a change that hashes damaged content is refused');
refuses("SELECT blob_write(b, 350000, '\\xab') $damaged", 'a change that would drop the damaged byte is refused');
refuses("SELECT blob_insert(b, 0, '\\xab') $damaged", 'an insert before damaged content is refused');
refuses("SELECT blob_patch(b, ARRAY[10, 200000]::bigint[], ARRAY['\\xab', '\\xcd']::bytea[]) $damaged", 'a patch of damaged content is refused');
refuses("SELECT blob_truncate(b, 399000) $damaged", 'a truncation behind damage is refused');
refuses("SELECT blob_truncate(b, 1000) $damaged", 'a truncation of a damaged value to bytes in the row is refused');
refuses("SET blobext.rewrite_limit = '1GB'; SELECT blob_write(b, 300000, '\\xab') $damaged", 'a change that copies the rest of a damaged value is refused');
refuses("SET blobext.rewrite_limit = '1GB'; SELECT blob_insert(b, 0, '\\xab') $damaged", 'an insert that copies all of a damaged value is refused');
refuses("SELECT (SELECT b FROM u WHERE id = 2) || b $damaged", 'a damaged value is not added to another one');
is($none->safe_psql('postgres', "SELECT length(blob_write(b, 300000, '\\xab')) FROM u WHERE id = 2"), '400010', 'a sound value beside it is changed');
$none->safe_psql('postgres', q(UPDATE u SET b = b || '\xabcd' WHERE id = 1));
like($none->safe_psql('postgres', 'SELECT problem FROM blobext_check()'), $mismatch, 'an append to a damaged value does not hide the damage');

# The bytes behind the last block of 64, with which an append goes on.
flip_byte($none, 'u', 3, 400_005);
refuses(q(UPDATE u SET b = b || '\xabcd' WHERE id = 3), 'an append to a value whose last bytes are damaged is refused');

# Trees, which are written anew now and then.
$none->safe_psql('postgres', q(UPDATE u SET b = blob_write(b, 300000, '\xab') WHERE id = 4));
my $first = $none->safe_psql('postgres', 'SELECT first_page FROM u, blob_extents(b) WHERE id = 4 AND pages > 8 ORDER BY extent_no LIMIT 1');
$none->safe_psql('postgres', 'CHECKPOINT');
$none->stop;
flip_bit(segment_file($none, 0), ($first + 1) * $page_bytes * 8 + 5);
$none->start;
refuses(q(SELECT blob_write(b, 390000, '\xab') FROM u WHERE id = 4), 'a change of a damaged tree is refused');
refuses(q(SELECT blob_truncate(b, 390000) FROM u WHERE id = 4), 'a truncation of a damaged tree is refused');
refuses(q(SET blobext.rewrite_limit = '64MB'; SELECT b || '\xab'::bytea FROM u WHERE id = 4), 'an append that writes a damaged tree anew is refused');
refuses(q(SET blobext.rewrite_limit = '64MB'; SELECT blob_truncate(b, 70000) FROM u WHERE id = 4),
	'a truncation that writes a damaged tree anew is refused');
is($none->safe_psql('postgres', q(SELECT count(*) FROM blobext_check() WHERE relation = 'u'::regclass)), '3', 'the check lists the damaged values still');
$none->safe_psql('postgres', 'DELETE FROM u WHERE id IN (1, 3, 4)');

# ---- copies in pages that get checksums ----

# Appends to values without checksums, in a store that gives new pages some.
$none->safe_psql('postgres', q(
	CREATE TABLE n (id int PRIMARY KEY, b blobstate);
	INSERT INTO n SELECT i, noise(i, 3000000) FROM generate_series(1, 2) i;
	UPDATE n SET b = b || noise(50, 1048576);
	CREATE TABLE p (id int PRIMARY KEY, b blobstate);
	SET blobext.inline_limit = 0;
	INSERT INTO p VALUES (1, noise(1, 2000)), (2, noise(2, 2000));
	CREATE TABLE claimed (id int PRIMARY KEY, b blobstate);
	INSERT INTO claimed SELECT i, noise(i, 40960) FROM generate_series(1, 2) i;
	UPDATE claimed SET b = b || noise(50, 40960);
	INSERT INTO claimed SELECT id + 2, b || noise(60, 40960) FROM claimed;
	SELECT blobext_enable_checksums()));
flip_byte($none, 'p', 1, 100);
flip_byte($none, 'claimed', 1, 50_000);
refuses(q(UPDATE p SET b = b || noise(3, 100000) WHERE id = 1), 'a damaged last page without a checksum is not copied to one that gets one');
refuses(q(UPDATE claimed SET b = b || noise(3, 4096) WHERE id = 1), 'a damaged extent without checksums is not copied to one that gets some');
$none->safe_psql('postgres', qq(UPDATE $_ SET b = b || noise(3, 4096) WHERE id = 2)) foreach qw(p claimed);
is($none->safe_psql('postgres', 'SELECT p.b = noise(2, 2000) || noise(3, 4096), c.b = noise(2, 40960) || noise(50, 40960) || noise(3, 4096)
	FROM p, claimed c WHERE p.id = 2 AND c.id = 2'), 't|t', 'sound values beside them grow');
$none->safe_psql('postgres', 'DROP TABLE p, claimed');

# ---- changes that begin with new bytes ----

# The first of them leave the buffer before any content of the base is kept.
$none->safe_psql('postgres', q(
	SELECT blobext_set_digest('n', 'b', 'deferred');
	UPDATE n SET b = b));
my $has_sums = q(SELECT coalesce(sum(checksummed_bytes), 0) FROM blobext_space);
my $before = $none->safe_psql('postgres', $has_sums);
fails_with($none, q(BEGIN READ ONLY; SELECT length(blob_write(b, 5, '\xab')) FROM n WHERE id = 2), '25006', qr/cannot make a large/,
	'a change in a transaction that only reads is refused');
fails_with($none, q(BEGIN READ ONLY; SELECT length(blob_truncate(b, 2000000)) FROM n WHERE id = 2), '25006', qr/cannot make a large/,
	'a truncation in a transaction that only reads is refused');
is($none->safe_psql('postgres', $has_sums), $before, 'changes that are refused for that have added no checksums');
my ($new_page, $room) = split /\|/, $none->safe_psql('postgres', q(SELECT first_page + bytes / 4096, pages - bytes / 4096 FROM n, blob_extents(b)
	WHERE id = 1 AND pages > 8 ORDER BY extent_no DESC LIMIT 1));
cmp_ok($room, '>=', 50, 'the last extent of the base has room for new pages');
$none->safe_psql('postgres', q(UPDATE n SET b = blob_write(b, 0, noise(8, 1500000))));
is($none->safe_psql('postgres', 'SELECT count(*) FROM n WHERE blob_digest_is_open(b)'), '2', 'a change that begins with many new bytes leaves the digest open');
$none->safe_psql('postgres', 'CHECKPOINT');
$none->stop;
flip_bit(segment_file($none, 0), $_ * $page_bytes * 8 + 99) foreach $new_page + 20 .. $new_page + 40;
$none->start;
fails_with($none, 'SELECT length(b::bytea) FROM n WHERE id = 1', 'XX001', qr/damaged|checksum/, 'new pages of an open value have checksums');
like($none->safe_psql('postgres', q(SELECT problem FROM blobext_check('n'))), qr/open, does not have its checksum|is damaged/, 'the check lists the value with damaged new pages');
is($none->safe_psql('postgres', q(CALL blobext_seal('n', 'b'))), '1|0|1', 'the value with damaged new pages is not sealed');
$none->stop;

# ---- bytes in the row ----

# Only the digest says whether they are right.
my $row = blob_cluster('row', conf => $conf);
prepare($row);
$row->safe_psql('postgres', q(
	CREATE TABLE r (id int PRIMARY KEY, b blobstate);
	SELECT blobext_set_digest('r', 'b', 'deferred');
	INSERT INTO r SELECT i, noise(i, 409600) FROM generate_series(1, 2) i;
	UPDATE r SET b = b || convert_to('these bytes are in row ' || id, 'UTF8')));
my $heap = $row->data_dir . '/' . $row->safe_psql('postgres', q(SELECT pg_relation_filepath('r')));
$row->safe_psql('postgres', 'CHECKPOINT');
$row->stop;
without_data_checksums($row);
my $at = index(slurp_file($heap), 'these bytes are in row 1');
cmp_ok($at, '>', 0, 'the last bytes of a value that has grown are in its row');
flip_bit($heap, ($at + 8) * 8) if $at > 0;
$row->start;
fails_with($row, q(UPDATE r SET b = blob_write(b, 300000, '\xab') WHERE id = 1), 'XX001', $mismatch,
	'damaged bytes in the row are noticed before the digest is given up');
fails_with($row, q(UPDATE r SET b = b || '\xabcd' WHERE id = 1), 'XX001', $mismatch, 'an append to damaged bytes in the row is refused');
$row->safe_psql('postgres', q(UPDATE r SET b = blob_write(b, 300000, '\xab') WHERE id = 2));
is($row->safe_psql('postgres', 'SELECT id FROM r WHERE blob_digest_is_open(b)'), '2', 'the sound value with bytes in its row is open');
$row->stop;

done_testing();
