# Content that is missing or damaged comes from another server: blobext_fetch() and
# blobext_check(repair => …).
#
# A promoted standby lacks what its primary did not log.  It gets that from the old primary: rows,
# copies, grown and cut values, what only a key of an index has; its own standby gets it by the WAL.
# Content that both servers have stored since they parted, in the same pages and under the same
# numbers, is refused.  A flipped bit and a lost segment file of a primary come back from its
# standby.
#
# Seen to fail: without the digest (has_digest()), content of another timeline and of the twin
# counts; with all generations taken for common, content beyond the fork is not refused as such;
# without the pages behind a value (prove_extent()), a longer value that the run did not see is
# wrong, here and on the standby; with OMITTED in place of CONTENT and FETCHED, the standby lacks all
# values still; without keys (check_key()), the index does not find its way; without
# blob_buffer_forget(), the buffer returns damaged bytes; without the note about a lost file, its
# values read as zeros.
use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $calm = "autovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 10GB\n";

sub standby_of
{
	my ($primary, $name, %options) = @_;
	my $backup = $options{backup} // 'base';
	my $node = PostgreSQL::Test::Cluster->new($name);
	$primary->backup($backup) unless -d $primary->backup_dir . "/$backup";
	$node->init_from_backup($primary, $backup, has_streaming => 1);
	$node->append_conf('postgresql.conf', $options{conf}) if defined $options{conf};
	$node->start;
	return $node;
}

# The connection string of a database, as a literal.
sub from
{
	my ($node, $more) = @_;
	my $text = $node->connstr('postgres') . ($more // '');
	$text =~ s/'/''/g;
	return "'$text'";
}

# Rows of a fetch: values by problem.
sub fetch
{
	my ($node, $source, $arguments) = @_;
	return $node->safe_psql('postgres', "SELECT count(*), problem FROM blobext_fetch("
		. from($source) . ($arguments // '') . ') GROUP BY problem ORDER BY problem');
}

sub unlogged
{
	my ($node) = @_;
	return stat_of($node, 'unlogged_extents');
}

# Change a bit in the middle of a value's file.
sub flip
{
	my ($node, $query) = @_;
	my ($page) = $node->safe_psql('postgres',
		"SELECT first_page FROM ($query) AS v (b), blob_extents(b) ORDER BY pages DESC LIMIT 1");
	open(my $file, '+<:raw', segment_file($node, int($page / 262_144))) or die $!;
	my $at = ($page % 262_144) * 4096 + 1234;
	sysseek($file, $at, 0);
	sysread($file, my $byte, 1);
	sysseek($file, $at, 0);
	syswrite($file, $byte ^ "\x10");
	close $file;
	return;
}

# ---- a promoted standby ----

my $old = blob_cluster('old', streaming => 1, conf => $calm . "blobext.wal_content = off\n");
$old->safe_psql('postgres', q(CREATE TABLE keyed (b blobstate); CREATE INDEX ON keyed (b);
	CREATE TABLE grown (id int, digest text, b blobstate)));
my $new = standby_of($old, 'new', conf => "blobext.wal_content = auto\n");

# A value that has grown twice, with the last growth rolled back: its extent has a higher mark than
# any row.  Another one is longer in a transaction that is not committed yet.
$old->safe_psql('postgres', q(
SET blobext.tail_extents = off;
INSERT INTO grown SELECT 1, '', convert_to(repeat('g', 70000), 'UTF8');
UPDATE grown SET b = b || convert_to(repeat('h', 50000), 'UTF8') WHERE id = 1;
BEGIN;
UPDATE grown SET b = b || convert_to(repeat('i', 20000), 'UTF8') WHERE id = 1;
ROLLBACK;
INSERT INTO grown SELECT 2, '', convert_to(repeat('t', 200000), 'UTF8');
UPDATE grown SET b = blob_truncate(b, 90000) WHERE id = 2;
INSERT INTO grown SELECT 3, '', convert_to(repeat('u', 70000), 'UTF8');
UPDATE grown SET b = b || convert_to(repeat('v', 50000), 'UTF8') WHERE id = 3;
INSERT INTO grown SELECT 4, '', convert_to(repeat('w', 70000), 'UTF8');
UPDATE grown SET b = b || convert_to(repeat('x', 50000), 'UTF8') WHERE id = 4;
UPDATE grown SET digest = encode(sha256(b), 'hex');
BEGIN;
UPDATE grown SET b = b || convert_to(repeat('y', 4000), 'UTF8') WHERE id = 4;
PREPARE TRANSACTION 'longer';
));
make_values($old, 'kept');
$old->safe_psql('postgres', q(
CREATE TABLE packed (b blobstate);
SELECT blobext_set_compression('packed', 'b', 'zstd');
INSERT INTO packed SELECT convert_to(string_agg(i::text, ' '), 'UTF8') FROM generate_series(1, 700000) AS i;
UPDATE packed SET b = b || convert_to(repeat('packed', 100000), 'UTF8');
CREATE TABLE copied AS SELECT * FROM kept;
CREATE TABLE dropped AS SELECT convert_to(repeat(md5(i::text), 3000), 'UTF8')::blobstate AS b FROM generate_series(1, 9) AS i;
CREATE TABLE listed AS SELECT digest, ARRAY[b, b] AS b FROM kept WHERE length(b) > 100000;
));
# Keys that agree in their first bytes, so that their order needs content; no row has the middle one.
$old->safe_psql('postgres', "INSERT INTO keyed VALUES (" . literal(('x' x 9000) . $_) . ')')
  foreach qw(a m z);
$old->safe_psql('postgres', "DELETE FROM keyed WHERE b = " . literal(('x' x 9000) . 'm'));
$old->wait_for_catchup($new);
$new->promote;
my $lacking = unlogged($new);
cmp_ok($lacking, '>', 50, 'the promoted standby lacks content');
fails_with($new, 'SELECT blob_read(b, 60000, 9) FROM kept WHERE length(b) = 65537', 'XB002', qr/missing/,
	'a read is refused');

# Privileges, here and there.
$old->safe_psql('postgres', 'CREATE ROLE lender LOGIN; CREATE ROLE reader LOGIN IN ROLE pg_read_all_data');
$new->safe_psql('postgres', q(CREATE ROLE operator LOGIN; CREATE ROLE nobody LOGIN;
	GRANT EXECUTE ON FUNCTION blobext_fetch(text, regclass, boolean) TO operator));
fails_with($new, 'SELECT * FROM blobext_fetch(' . from($old, ' user=reader') . ')', '42501',
	qr/permission denied for function blobext_source/, 'a role that reads all tables gives nothing');
fails_with($new, 'SET ROLE nobody; SELECT * FROM blobext_fetch(' . from($old) . ')', '42501',
	qr/permission denied/, 'not everybody may fetch');
fails_with($new, 'SET ROLE operator; SELECT * FROM blobext_fetch(' . from($old) . ')', '2F003',
	qr/password is required/, 'a connection without a password is for superusers');
fails_with($new, 'SET ROLE operator; SELECT * FROM blobext_fetch(' . from($old, ' password=tell') . ')',
	'2F003', qr/password is required/, 'the password must be asked for');
# A role with a password there, and a file with the password that only this server's user can read.
# Seen to fail without require_password(), which keeps other roles from using that file.
my $hba = slurp_file($old->data_dir . '/pg_hba.conf');
my $passwords = "$PostgreSQL::Test::Utils::tmp_check/passwords";
append_to_file($passwords, "*:*:*:guarded:right\n");
chmod 0600, $passwords or die $!;
open(my $rules, '>', $old->data_dir . '/pg_hba.conf') or die $!;
print $rules "local all guarded scram-sha-256\nhost all guarded all scram-sha-256\n$hba";
close $rules;
$old->safe_psql('postgres', q(SET password_encryption = 'scram-sha-256'; CREATE ROLE guarded LOGIN PASSWORD 'right'));
$old->reload;
fails_with($new, 'SELECT * FROM blobext_fetch(' . from($old, " user=guarded passfile=$passwords") . ')', '42501',
	qr/permission denied for function blobext_source/, 'a superuser connects with the password file');
fails_with($new, 'SET ROLE operator; SELECT * FROM blobext_fetch('
	. from($old, " user=guarded passfile=$passwords") . ')', '2F003', qr/password is required/,
	'another role must give the password itself');
fails_with($new, 'SET ROLE operator; SELECT * FROM blobext_fetch(' . from($old, ' user=guarded password=right') . ')',
	'42501', qr/permission denied for function blobext_source/, 'another role connects with a password');
fails_with($new, 'SET ROLE operator; SELECT * FROM blobext_fetch(' . from($old, ' user=guarded password=wrong') . ')',
	'08006', qr/password authentication failed/, 'a wrong password is refused by the server');
# A server that accepts and says nothing.  Without the look at connect_timeout this never ends.
my $silent = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die $!;
fails_with($new, "SELECT * FROM blobext_fetch('host=127.0.0.1 connect_timeout=1 port=" . $silent->sockport . "')",
	'08006', qr/connect_timeout/, 'a server that does not answer');
close $silent;
my (undef, undef, $told) = $new->psql('postgres',
	"SELECT * FROM blobext_fetch('port=1 password=secret nonsense')");
like($told, qr/invalid connection string/, 'a connection string that is none');
unlike($told =~ s/^LINE 1:.*$//mr, qr/secret/, 'no password in the message');
fails_with($new, 'BEGIN READ ONLY; SELECT * FROM blobext_fetch(' . from($old) . ')', '25006',
	qr/read-only/, 'a fetch in a read-only transaction is refused');
$old->safe_psql('postgres', q(GRANT EXECUTE ON FUNCTION blobext_source(pg_lsn),
	blobext_source_read(text, bigint, bigint, bigint, bigint, bigint, pg_lsn, integer, boolean,
	boolean, pg_lsn) TO lender));

my $copy = standby_of($new, 'copy', backup => 'lacking');
fails_with($copy, 'SELECT * FROM blobext_fetch(' . from($old) . ')', '25006', qr/recovery/,
	'a standby fetches nothing');

# Store on both sides what they have in common by number only: after a start, both go on at the
# limit of generations that they had when they parted.
$old->restart;
foreach my $node ($old, $new)
{
	$node->safe_psql('postgres', 'CREATE TABLE own (id int, b blobstate)');
	$node->safe_psql('postgres', "INSERT INTO own SELECT i, sha256(convert_to('" . $node->name
		. "' || i, 'UTF8')) || convert_to(repeat('" . $node->name . "', 30000), 'UTF8')"
		. ' FROM generate_series(1, 5) AS i');
}
$new->safe_psql('postgres', 'UPDATE grown SET b = b || convert_to(repeat(\'n\', 30000), \'UTF8\'),'
	. " digest = '' WHERE id = 3");

# Extents are freed, and given out again, while their numbers are noted.
$new->safe_psql('postgres', 'DROP TABLE dropped');
like($new->safe_psql('postgres', 'SELECT freed_blobs, skipped_reason FROM blobext_gc()'), qr/^[1-9]\d*\|$/,
	'extents are freed while their content is lacking');
my $result = $new->safe_psql('postgres', 'SELECT count(*), problem FROM blobext_fetch('
	. from($old, ' user=lender') . ', damaged => false) GROUP BY problem');
like($result, qr/^\d+\|$/, 'all comes from the old primary');
values_are_intact($new, 'kept', 'values are what they were');
values_are_intact($new, 'copied', 'copies are what they were');
is($new->safe_psql('postgres', q(SELECT id, sha256(b::bytea) = sha256(b), length(b) FROM grown ORDER BY id)),
	"1|t|120000\n2|t|90000\n3|t|150000\n4|t|120000", 'grown and cut values');
$new->safe_psql('postgres', "COMMIT PREPARED 'longer'");
is($new->safe_psql('postgres', 'SELECT sha256(b::bytea) = sha256(b), length(b) FROM grown WHERE id = 4'),
	't|124000', 'a longer value that the run did not see');
is($new->safe_psql('postgres', q(SELECT blob_compression(b), sha256(b::bytea) = sha256(b) FROM packed)),
	'zstd|t', 'a compressed value that was fetched is right');
is($new->safe_psql('postgres', q(SELECT count(*) FROM listed, unnest(b) AS e
	WHERE encode(sha256(e::bytea), 'hex') <> digest)), '0', 'values in arrays that were fetched are right');
is($new->safe_psql('postgres', q(SET enable_seqscan = off; SELECT count(*) FROM keyed WHERE b > )
	  . literal(('x' x 9000) . 'b')), '1', 'an index finds its way over the key of a deleted row');
is(unlogged($new), '0', 'nothing is lacking any more');
check_is_clean($new, 'the check finds no problem');
is(fetch($new, $old, ', damaged => false'), '', 'nothing is left to fetch');

# The standby of the promoted server gets all by the WAL.
$new->wait_for_catchup($copy);
values_are_intact($copy, 'kept', 'the standby has the values');
is(unlogged($copy), '0', 'the standby lacks nothing');
check_is_clean($copy, 'the check finds no problem on the standby');
$new->stop('immediate');
$new->start;
values_are_intact($new, 'kept', 'the values survive a crash');
is(unlogged($new), '0', 'the note does not come back');

# ---- beyond the fork ----

my $same = 'SELECT e.first_page, m.generation FROM own, blob_extents(b) AS e'
  . ' JOIN blobext_map AS m USING (first_page) ORDER BY 1';
my $common = 0;
my %there = map { $_ => 1 } split /\n/, $old->safe_psql('postgres', $same);
$common += $there{$_} // 0 foreach split /\n/, $new->safe_psql('postgres', $same);
cmp_ok($common, '>', 0, 'extents of both servers have the same pages and numbers');
expect_damage();
flip($new, 'SELECT b FROM own WHERE id = 3');
like(fetch($new, $old), qr/^1\|.*beyond the fork/, 'content of another timeline is refused');
like($new->safe_psql('postgres', 'SELECT problem FROM blobext_check()'), qr/SHA-256/,
	'the damaged value stays as it is');
my $before = slurp_file(segment_file($new));
fetch($new, $old, ", checked => 'own'");
ok($before eq slurp_file(segment_file($new)), 'no byte was written');
is($new->safe_psql('postgres', 'SELECT count(*) FROM own WHERE id <> 3 AND sha256(b::bytea) <> sha256(b)'),
	'0', 'the other values are untouched');
$new->wait_for_catchup($copy);
is(fetch($new, $copy, ", checked => 'own'"), '1|', 'the standby of the same timeline has it');
check_is_clean($new, 'the value is right');
$_->stop foreach ($copy, $new, $old);

# ---- damage of a primary ----

# It has no checksums of pages, so damaged bytes get to the buffer.
my $primary = blob_cluster('primary', streaming => 1,
	conf => $calm . "blobext.page_checksums = off\n");
make_values($primary, 'v');
$primary->safe_psql('postgres', q(CREATE TABLE packed (b blobstate);
	SELECT blobext_set_compression('packed', 'b', 'lz4');
	INSERT INTO packed SELECT convert_to(string_agg(i::text, ' '), 'UTF8') FROM generate_series(1, 700000) AS i));
add_values($primary, 'v', 9_000_000);
my $standby = standby_of($primary, 'standby');
$primary->wait_for_catchup($standby);
$primary->safe_psql('postgres', 'CHECKPOINT');
flip($primary, 'SELECT b FROM v ORDER BY length(b) DESC LIMIT 1');
flip($primary, 'SELECT b FROM v WHERE length(b) = 65537');
flip($primary, 'SELECT b FROM packed');
# The buffer gets the damaged bytes; it has had the right ones.
$primary->restart;
$primary->safe_psql('postgres', 'SELECT count(b::bytea) FROM v WHERE length(b) = 65537');
like($primary->safe_psql('postgres', 'SELECT count(*) FROM blobext_check()'), qr/^3$/, 'the check finds the three flipped bits');
my ($status, $rows, $notice) = $primary->psql('postgres',
	'SELECT * FROM blobext_check(repair => ' . from($standby) . ')');
is($rows, '', 'the check with repair has nothing left to report');
like($notice, qr/3 values were repaired, (\d+) bytes/, 'the notice says that three values were repaired');
my ($bytes) = $notice =~ /repaired, (\d+) bytes/;
cmp_ok($bytes, '<', 4_000_000, 'only damaged pieces came over the network');
values_are_intact($primary, 'v', 'the buffer has no damaged bytes');
check_is_clean($primary, 'the files are right');

# A lost file.
$primary->stop;
unlink(segment_file($primary)) or die $!;
$primary->start;
fails_with($primary, 'SELECT sha256(b::bytea) FROM v WHERE length(b) = 65537', '58P01', qr/./,
	'the segment file is lost');
fails_with($primary, "SELECT * FROM blobext_fetch('host=" . $primary->host . " port=1')", '08006',
	qr/could not connect/, 'a server that is not there is an error');
is(fetch($primary, $standby, ", checked => 'packed'"), '1|', 'one table comes from the standby');
fails_with($primary, 'SELECT blob_read(b, 60000, 9) FROM v WHERE length(b) = 65537', 'XB002', qr/lost/,
	'the file has been made anew: other values are missing, not zeros');
is($primary->safe_psql('postgres', 'SELECT count(*), problem FROM blobext_fetch(' . from($standby)
	. ') GROUP BY 2') =~ s/^\d+//r, '|', 'all comes back from the standby');
values_are_intact($primary, 'v', 'the file has all values');
is(unlogged($primary), '0', 'no value is noted any more');
check_is_clean($primary, 'the check finds no problem');
is($primary->safe_psql('postgres', 'SELECT sha256(b::bytea) = sha256(b) FROM packed'), 't',
	'a compressed value is right again');

# A file that is set aside while the server runs, and sessions have it open.  Seen to fail without
# blob_segment_note_loss(): what these sessions store later goes to the old file.
my $store = q(INSERT INTO v (digest, b) SELECT encode(sha256(c), 'hex'), c
	FROM (SELECT convert_to(repeat('aside', 20000), 'UTF8') AS c) AS x);
my $writer = $primary->background_psql('postgres');
$writer->query_safe($store);
$primary->wait_for_catchup($standby);
$primary->safe_psql('postgres', 'CHECKPOINT');
rename(segment_file($primary), $primary->data_dir . '/aside') or die $!;
is($primary->safe_psql('postgres', 'SELECT count(*), problem FROM blobext_fetch(' . from($standby)
	. ') GROUP BY 2') =~ s/^\d+//r, '|', 'all comes back from the standby, into a new file');
$writer->query_safe($store);
$writer->quit;
$primary->restart;
values_are_intact($primary, 'v', 'the new file has all values');
check_is_clean($primary, 'the check finds no problem in the new file');

# A value has grown while the buffer has damaged bytes of it.  Seen to fail without blob_buffer_outdate().
$primary->safe_psql('postgres', q(CREATE TABLE grown (b blobstate);
	SET blobext.tail_extents = off;
	INSERT INTO grown SELECT convert_to(repeat('g', 70000), 'UTF8');
	UPDATE grown SET b = b || convert_to(repeat('h', 50000), 'UTF8')));
$primary->restart;
flip($primary, 'SELECT b FROM grown');
is($primary->safe_psql('postgres', 'SELECT count(b::bytea) FROM grown WHERE sha256(b::bytea) <> sha256(b)'), '1',
	'the buffer has damaged bytes');
my $syncer = stop_syncer($primary, 'deferred_pages', sub { $primary->safe_psql('postgres', $store) });
$primary->safe_psql('postgres', q(UPDATE grown SET b = b || convert_to(repeat('i', 9000), 'UTF8')));
$primary->wait_for_catchup($standby);
is(fetch($primary, $standby, ", checked => 'grown'"), '1|', 'the value is repaired');
kill('CONT', $syncer);
is($primary->safe_psql('postgres', 'SELECT count(*) FROM grown WHERE sha256(b::bytea) <> sha256(b)'), '0',
	'the buffer has the right bytes');
add_values($primary, 'v', 50_000);
$primary->wait_for_catchup($standby);
values_are_intact($standby, 'v', 'the standby goes on');
check_is_clean($standby, 'the standby is right');

# ---- twins: two standbys that become primaries at the same position ----

my $twin = standby_of($primary, 'twin');
$primary->wait_for_catchup($_) foreach ($standby, $twin);
$primary->stop;
$_->promote foreach ($standby, $twin);
foreach my $node ($standby, $twin)
{
	$node->safe_psql('postgres', 'CREATE TABLE own (id int, b blobstate)');
	$node->safe_psql('postgres', "INSERT INTO own VALUES (1, convert_to(repeat('" . $node->name
		. "', 30000), 'UTF8'))");
	$node->safe_psql('postgres', 'CHECKPOINT');
}
my $history = 'SELECT timelines FROM blobext_source(\'0/0\')';
is($standby->safe_psql('postgres', $history), $twin->safe_psql('postgres', $history),
	'two histories look like one');
flip($standby, 'SELECT b FROM own');
like(fetch($standby, $twin), qr/^1\|.*(not on the other server|SHA-256)/, 'the digest refuses the twin');
flip($standby, 'SELECT b FROM v WHERE length(b) = 65537');
is(fetch($standby, $twin, ", checked => 'v'"), '1|', 'what they have in common comes from the twin');
$_->stop foreach ($standby, $twin);

# ---- a damaged entry of the map ----

# A mark beyond the end of an extent, in a cluster without PostgreSQL's checksums: the value is read by such an entry, so the note
# that its content is lacking stays, when a fetch forgets notes of extents that are gone.
# Seen to fail, with zeros in place of XB002: with blob_map_visit_all() in run.c.
{
	my $gone = blob_cluster('gone', streaming => 1, init => [ `initdb --help` =~ /--no-data-checksums/ ? '--no-data-checksums' : () ],
		conf => $calm . "blobext.wal_content = off\nblobext.page_checksums = off\nblobext.cache_size = 0\n");
	$gone->safe_psql('postgres', q(CREATE TABLE damaged (b blobstate)));
	my $taken = standby_of($gone, 'taken');
	$gone->safe_psql('postgres', q(SET blobext.tail_extents = off; INSERT INTO damaged SELECT convert_to(repeat('d', 28000), 'UTF8')));
	$gone->wait_for_catchup($taken);
	$taken->promote;
	my $page = $taken->safe_psql('postgres', q(SELECT first_page FROM damaged, blob_extents(b) WITH ORDINALITY AS e
		WHERE bytes > 0 ORDER BY ordinality DESC LIMIT 1));
	my $map = $taken->data_dir . '/' . $taken->safe_psql('postgres', q(SELECT pg_relation_filepath('blobext_map')));
	$gone->safe_psql('postgres', $_) foreach 'DELETE FROM damaged', 'VACUUM damaged', 'SELECT * FROM blobext_gc()';
	$taken->stop;
	flip_bit($map, map_bit($page, 64 + 45));
	$taken->start;
	isnt(unlogged($taken), '0', 'the content of a value is lacking');
	fetch($taken, $gone);
	fails_with($taken, 'SELECT blob_read(b, 27999, 1) FROM damaged', 'XB002', qr/missing/, 'the lacking extent of a damaged entry is known as lacking after a fetch');
	$_->stop foreach $gone, $taken;
}

done_testing();
