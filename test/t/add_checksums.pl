# Stores that exist get checksums: blobext_enable_checksums() for new values, blobext_add_checksums()
# for old ones.
#
# A store is made without checksums, with values of one page and many, tails, streams, versions that
# share extents, compressed ones, and values in arrays, partitions and materialized views.  Sessions
# that were there before give new values checksums.  The old ones get theirs where their content has its digest:
# damage is never covered up, whatever shares the extent, and pages that no digest proves are left
# alone.  All that goes on beside sessions that append, delete and collect, and over crashes; then
# every flipped bit in a page of a value is found, and nothing else is reported.
#
# Seen to fail: without the comparison with the digest; without keep_known() of map_sums.c; without the
# flag in shared memory; without the flush of META; with zero in place of the sums that are not known; without the look at the high-water
# mark in the last step (a false alarm, in the last part); with zeros beside frames left out.  With
# replay of SUMS that leaves the flag out, and no limit in neighbours.c, a scan did not end.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

my $seed = $ENV{BLOBEXT_SEED} // int(rand(1_000_000_000));
my $page_bytes = 4096;
note("seed $seed");
srand($seed);

my $node = blob_cluster('main', streaming => 1,
	conf => "blobext.page_checksums = off\nautovacuum = off\nblobext.cache_size = 16MB\nblobext.autogc = off\nwal_keep_size = 2GB\n");
sub sql { return $node->safe_psql('postgres', join(';', @_)); }

# The results of CALL, and its warnings.
sub call
{
	my ($arguments) = @_;
	my ($exit, $out, $err) = $node->psql('postgres', 'CALL blobext_add_checksums(' . ($arguments // '') . ')');
	is($exit, 0, 'CALL ends without an error') or diag($err);
	return (split(/\|/, $out), $err);
}

sub checksummed { return sql('SELECT coalesce(sum(checksummed_bytes), 0) FROM blobext_space'); }
sub notice_of_check { return ($node->psql('postgres', 'SELECT * FROM blobext_check()'))[2]; }

# Pages that no value proves match whatever they hold, also for the program.
sub verify_while_down
{
	my ($server) = @_;
	my $name = $server->name;
	command_ok([ 'blobext_verify', '-D', $server->data_dir ], "blobext_verify finds nothing in the files of server $name");
}

# Pages of the values of a query, each once.
sub pages_of
{
	my ($values) = @_;
	return split /\n/, sql("SELECT DISTINCT e.first_page + n FROM ($values) AS v (b), blob_extents(b) AS e,
		generate_series(0, (e.bytes + 4095) / 4096 - 1) AS n WHERE e.first_page IS NOT NULL AND e.bytes > 0");
}

# Flip one bit of each of these pages, while the server is down.
sub flip
{
	my ($where, %bits) = @_;
	my @files = split /\n/, $where->safe_psql('postgres', 'SELECT file FROM blobext_files() ORDER BY segment');
	$where->stop;
	foreach my $page (sort { $a <=> $b } keys %bits)
	{
		open(my $file, '+<:raw', $where->data_dir . "/$files[ int($page / 262_144) ]") or die $!;
		my $at = ($page % 262_144) * $page_bytes + int($bits{$page} / 8);
		sysseek($file, $at, 0);
		sysread($file, my $byte, 1) == 1 or die "page $page: $!";
		sysseek($file, $at, 0);
		syswrite($file, chr(ord($byte) ^ 1 << $bits{$page} % 8)) == 1 or die $!;
		close $file or die $!;
	}
	$where->start;
	return;
}

sql(q(CREATE TABLE t (id serial PRIMARY KEY, c bytea, b blobstate)),
	q(CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
		$$ SELECT substr(string_agg(sha256(random()::text::bytea), ''), 1, n) FROM generate_series(0, n / 32) $$),
	# What a read says: 'true' if it is right, 'false' if it is not, or its error.
	q(CREATE FUNCTION says(query text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE result boolean; detail text;
		BEGIN EXECUTE query INTO result; RETURN result;
		EXCEPTION WHEN data_corrupted THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
			RETURN SQLERRM || ' ' || detail; END $$));
my $right = q(SELECT count(*) FILTER (WHERE b::bytea = c), count(*) FROM t);

# ---- values of a store without checksums ----

my $sizes = join(',', map { $_ * $page_bytes, $_ * $page_bytes + 1 } 1 .. 4, 7, 15, 61, 509 .. 512, 1600);
sql("INSERT INTO t (c) SELECT noise(n) FROM unnest(ARRAY[2000, 4095, $sizes]) AS n", 'UPDATE t SET b = c');
# Streams, whose length is not known before their end, with a tail and without.
sql(q(CREATE PROCEDURE stream() LANGUAGE plpgsql AS $$ DECLARE u bigint; r record; BEGIN
	FOR r IN SELECT noise(n) AS c FROM unnest(ARRAY[3000, 4096, 9000, 1200000, 1100001]) AS n
	LOOP
		u := blob_upload_begin();
		FOR at IN 0 .. length(r.c) / 700000 LOOP
			PERFORM blob_upload_write(u, substr(r.c, at * 700000 + 1, 700000));
		END LOOP;
		INSERT INTO t (c, b) VALUES (r.c, blob_upload_end(u));
	END LOOP; END $$),
	'CALL stream()', 'SET blobext.tail_extents = off', 'CALL stream()');
# Versions that share extents with their base, which stays in its row.
my $grow = q(INSERT INTO t (c, b) SELECT c || x, b || x FROM (
	SELECT *, convert_to(repeat('g', id * 211), 'UTF8') AS x FROM t WHERE id %% %d = 0) AS s);
sql('SET blobext.tail_extents = off', sprintf($grow, 3), sprintf($grow, 4));
sql(sprintf($grow, 5),
	q(INSERT INTO t (c, b) SELECT substr(c, 1, length(c) / 2), blob_truncate(b, length(c) / 2) FROM t
		WHERE length(c) > 9000 AND id % 4 = 0),
	q(INSERT INTO t (c, b) SELECT overlay(c PLACING '\xaabbcc' FROM length(c) / 2 + 1),
		blob_write(b, length(c) / 2, '\xaabbcc') FROM t WHERE length(c) > 9000 AND id % 5 = 0));
# Compressed ones, changed as well.
sql(q(INSERT INTO t (c, b) SELECT c, blob_recompress(c::blobstate, 'zstd') FROM (
		SELECT convert_to(repeat(md5(i::text), i * i * 99), 'UTF8') AS c FROM generate_series(1, 20) AS i) AS s),
	q(INSERT INTO t (c, b) SELECT c || 'end'::bytea, b || 'end'::bytea FROM t WHERE blob_compression(b) = 'zstd'),
	q(INSERT INTO t (c, b) SELECT overlay(c PLACING '\xaabbcc' FROM 3001), blob_write(b, 3000, '\xaabbcc') FROM t
		WHERE blob_compression(b) = 'zstd' AND length(c) > 300000));
# In containers, partitions and materialized views.
sql('CREATE TABLE a (bs blobstate[])', q(INSERT INTO a SELECT ARRAY[noise(9000), noise(100000)]::bytea[]::blobstate[]),
	'CREATE TABLE p (b blobstate) PARTITION BY RANGE ((length(b)))',
	'CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (20000)',
	'CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (20000) TO (maxvalue)',
	q(INSERT INTO p SELECT noise(n) FROM unnest(ARRAY[15000, 16000, 50000]) AS n),
	q(CREATE MATERIALIZED VIEW m AS SELECT 1 AS id, noise(40000)::blobstate AS b), 'CHECKPOINT');
my ($all) = split /\|/, sql($right);
is(sql($right), "$all|$all", 'all values are right before');
is(checksummed(), 0, 'no extent has checksums before');
like(notice_of_check(), qr/NOTICE:  (\d+) of \1 bytes in extents have no checksums.*blobext_enable_checksums/s,
	'the check says that nothing has checksums');

# ---- enabling ----

fails_with($node, 'CALL blobext_add_checksums()', '55000', qr/has no checksums.*blobext_enable_checksums\(\) first/s,
	'old values get none before new ones do');
sql('CREATE ROLE ordinary; CREATE ROLE granted; GRANT EXECUTE ON FUNCTION blobext_enable_checksums() TO granted');
fails_with($node, "SET ROLE ordinary; $_", '42501', qr/permission denied/, "an ordinary role may not: $_")
  foreach 'SELECT blobext_enable_checksums()', 'CALL blobext_add_checksums()';
fails_with($node, 'SET default_transaction_read_only = on; SELECT blobext_enable_checksums()', '25006', qr/read-only/,
	'a read-only transaction enables nothing');

# Sessions that have looked at the map: one has begun a value, one will store in a transaction that is open.
my $writer = $node->background_psql('postgres', on_error_stop => 1);
$writer->query_safe(q(CREATE TABLE w (c bytea, b blobstate)));
$writer->query_safe(q(BEGIN));
my $upload = $writer->query_safe('SELECT blob_upload_begin()');
$writer->query_safe(qq(SELECT blob_upload_write($upload, convert_to(repeat('u', 3000000), 'UTF8'))));
my $storer = $node->background_psql('postgres', on_error_stop => 1);
$storer->query_safe(q(SET default_transaction_isolation = 'repeatable read'));
$storer->query_safe(q(BEGIN));
$storer->query_safe(q(CREATE TABLE x AS SELECT noise(50000)::blobstate AS b));
my $none = sql('SELECT sum(bytes) FROM blobext_space WHERE extents IS NOT NULL');
is(sql('SET ROLE granted', 'SELECT blobext_enable_checksums()'), 't', 'a role with the privilege enables checksums');
is(sql('SELECT blobext_enable_checksums()'), 'f', 'enabling them again changes nothing');
is(checksummed(), 0, 'no old extent has checksums because they are enabled');
$storer->query_safe(q(INSERT INTO x SELECT noise(60000)));
my $new = checksummed();
cmp_ok($new, '>=', 60000, 'a value of a session that has looked at the map before gets checksums');
cmp_ok($new, '<', 120000, 'a value that was stored before, in the same transaction, has none');
$storer->query_safe('COMMIT');
$writer->query_safe(qq(SELECT blob_upload_write($upload, convert_to(repeat('v', 3000000), 'UTF8'))));
$writer->query_safe(qq(INSERT INTO w SELECT convert_to(repeat('u', 3000000) || repeat('v', 3000000), 'UTF8'), blob_upload_end($upload)));
$writer->query_safe('COMMIT');
is(sql('SELECT b::bytea = c FROM w'), 't', 'a value that was begun before is right');
is(sql($right), "$all|$all", 'values without checksums are read as before');
like(notice_of_check(), qr/NOTICE:  \d+ of \d+ bytes in extents have no checksums.*CALL blobext_add_checksums/s,
	'the check says how much has no checksums');
$_->quit foreach $writer, $storer;

# In a transaction that is rolled back, and a crash behind it.
sql('CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION blobext; CREATE TABLE t (b blobstate)');
is($node->safe_psql('other', 'BEGIN; SELECT blobext_enable_checksums(); ROLLBACK'), 't', 'a transaction enables checksums');
is($node->safe_psql('other', 'SELECT blobext_enable_checksums()'), 'f', 'a rollback does not take checksums away');
kill_everything($node);
$node->start;
is($node->safe_psql('other', 'SELECT blobext_enable_checksums()'), 'f', 'checksums are enabled after a crash');
$node->safe_psql('other', q(INSERT INTO t SELECT convert_to(repeat('x', 90000), 'UTF8')));
is($node->safe_psql('other', 'SELECT sum(checksummed_bytes) = sum(bytes) FROM blobext_space WHERE extents IS NOT NULL'), 't',
	'values that are stored after a crash have checksums');
is(sql($right), "$all|$all", 'all values are right after a crash');

# ---- damage is not covered up ----

# Two versions share an extent; damage lies behind the end of the shorter one.
{
	my ($id, $longer) = split /\|/, sql(q(SELECT s.id, l.id FROM t AS s, t AS l, blob_extents(s.b) AS e, blob_extents(l.b) AS f
		WHERE e.first_page = f.first_page AND length(s.c) < length(l.c) AND e.bytes < f.bytes AND s.id <> l.id
			AND blob_compression(l.b) = 'none' AND f.bytes - e.bytes >= 8192 AND NOT EXISTS (
				SELECT FROM t AS o, blob_extents(o.b) AS g WHERE g.first_page = f.first_page AND g.bytes > f.bytes)
		ORDER BY s.id LIMIT 1));
	ok(defined $longer, 'there are two versions, of which one goes on in the same extent');
	my ($page, $first) = split /\|/, sql(qq(SELECT f.first_page + (f.bytes - 4096) / 4096, f.first_page FROM blob_extents((SELECT b FROM t WHERE id = $longer)) AS f,
		blob_extents((SELECT b FROM t WHERE id = $id)) AS e WHERE e.first_page = f.first_page AND e.bytes < f.bytes LIMIT 1));
	my ($plain) = split /\|/, sql(q(SELECT id FROM t WHERE length(c) = 61 * 4096 ORDER BY id LIMIT 1));
	my ($other) = pages_of("SELECT b FROM t WHERE id = $plain");
	my %bits = ($page => 77, $other => 7);
	flip($node, %bits);
	my ($read, $added, $failed, $err) = call();
	cmp_ok($failed, '>=', 2, 'values whose content is damaged are counted');
	like($err, qr/WARNING:  column "b" of row \(\d+,\d+\) of "t" got no checksums: content does not match its SHA-256/,
		'each damaged value is named');
	my $say = "SELECT says('SELECT b::bytea = c FROM t WHERE id = %d')";
	is(sql(sprintf($say, $id)), 'true', 'the shorter version, whose bytes are right, is read');
	is(sql(sprintf($say, $_)), 'false', 'damage from before has not become a checksum that fits: it is for the check to find')
	  foreach $longer, $plain;
	like(sql('SELECT problem FROM blobext_check()'), qr/does not match its SHA-256|does not begin with/,
		'the check still reports the damaged values');
	flip($node, %bits);
	($read, $added, $failed, $err) = call();
	is($failed, 0, 'no value fails when the damage is gone');
	cmp_ok($added, '>=', 2, 'values that were damaged get their checksums');
	flip($node, %bits);
	like(sql(sprintf($say, $_)), qr/is damaged .* does not have its checksum/, 'damage from after that is found')
	  foreach $longer, $plain;
	flip($node, %bits);
}
check_is_clean($node, 'the check finds nothing when the damage is gone');

# ---- all of it ----

{
	my ($read, $added, $failed, $err) = call();
	is("$added|$failed|$err", '0|0|', 'another call has nothing to add');
}
is(sql($right), "$all|$all", 'all values are right with their checksums');
sql('VACUUM', 'SELECT * FROM blobext_gc()', 'VACUUM FULL blobext_map');
unlike(notice_of_check(), qr/NOTICE/, 'all extents have checksums when the collector has freed what is not used');
is(sql('SELECT sum(checksummed_bytes) = sum(bytes) FROM blobext_space WHERE extents IS NOT NULL'), 't',
	'the view says that all extents have checksums');

# A bit flips in each of many pages: of all values that were stored as they are, wherever they are.
{
	my @pages = pages_of(q(SELECT b FROM t WHERE blob_compression(b) = 'none' UNION ALL SELECT unnest(bs) FROM a
		UNION ALL SELECT b FROM p UNION ALL SELECT b FROM m));
	cmp_ok(scalar @pages, '>', 3000, 'there are many pages with content');
	my %bits = map { $_ => int(rand(8 * $page_bytes)) } grep { rand() < 0.05 } @pages;
	# The zeros behind the end of a value are part of the page, too.
	flip($node, %bits);
	my %hit = map { $_ => 1 } keys %bits;
	my (@wrong, $found);
	foreach my $line (split /\n/, sql(q(SELECT id, (SELECT string_agg((e.first_page + n)::text, ' ') FROM blob_extents(b) AS e,
			generate_series(0, (e.bytes + 4095) / 4096 - 1) AS n WHERE e.first_page IS NOT NULL AND e.bytes > 0),
			says(format('SELECT b::bytea = c FROM t WHERE id = %s', id)), blob_compression(b) FROM t)))
	{
		my ($id, $own, $say, $method) = split /\|/, $line;
		my $is_hit = grep { $hit{$_} } split / /, $own;
		$found++ if $is_hit;
		push @wrong, "$id: $say" if $is_hit && $method eq 'none' ? $say !~ /does not have its checksum/ : !$is_hit && $say ne 'true';
		push @wrong, "$id: $say" if $say eq 'false';
	}
	is("@wrong", '', 'each flipped bit is found by the read of its value, and no other value is reported');
	cmp_ok($found, '>', 10, 'some bits have flipped in values');
	flip($node, %bits);
}
is(sql($right), "$all|$all", 'all values are right when the bits are back');
check_is_clean($node, 'the check finds nothing when the bits are back');

# The flag of an extent of one page is lost: so its checksum looks like a mark beyond its end.
if (sql('SHOW data_checksums') eq 'on')
{
	$node->stop;
	system_or_bail('pg_checksums', '--disable', '--pgdata', $node->data_dir);
	$node->start;
}
{
	my ($id, $first) = split /\|/, sql(q(SELECT t.id, first_page FROM t, blob_extents(b) AS e JOIN blobext_map AS m USING (first_page)
		WHERE m.pages = 1 AND m.kind = 'tier' AND e.bytes > 0 AND blob_compression(b) = 'none' ORDER BY id LIMIT 1));
	my $map = $node->data_dir . '/' . sql(q(SELECT pg_relation_filepath('blobext_map')));
	sql('CHECKPOINT');
	$node->stop;
	flip_bit($map, map_bit($first, 7));
	$node->start;
	fails_with($node, $right, 'XX001', qr/the extent map lacks the checksum of page $first/, 'a scan over a damaged entry ends, with an error');
	like(sql('SELECT problem FROM blobext_check()'), qr/the entry of page $first is filled beyond its end/, 'the check names the entry');
	my ($read, $added, $failed, $err) = call();
	is("$added|$failed|$err", '0|0|', 'the entry is mended by the content, which has its digest');
	is(sql($right), "$all|$all", 'the value with the damaged entry is right');
	check_is_clean($node, 'the check finds nothing when the entry is mended');
}

# ---- beside others, over crashes, and on a standby ----

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

# Old values that grow, are deleted and collected, while theirs are added.
sql('ALTER SYSTEM SET blobext.page_checksums = off', 'SELECT pg_reload_conf()');
sql('DROP DATABASE other', 'CREATE DATABASE other');
sub in_other { return $node->safe_psql('other', join(';', @_)); }
in_other('CREATE EXTENSION blobext', 'SET blobext.tail_extents = off',
	'CREATE TABLE t (id serial PRIMARY KEY, n int DEFAULT 0, b blobstate)',
	q(INSERT INTO t (b) SELECT convert_to(repeat(md5(i::text), 1000 + i * 7), 'UTF8') FROM generate_series(1, 1200) AS i),
	q(CREATE PROCEDURE churn(times int) LANGUAGE plpgsql AS $$ BEGIN
		FOR i IN 1 .. times LOOP
			SET LOCAL blobext.tail_extents = off;
			UPDATE t SET b = b || convert_to(repeat(chr(97 + (n + 1) % 26), 3000), 'UTF8'), n = n + 1
				WHERE id = (SELECT id FROM t ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED);
			IF i % 10 = 0 THEN DELETE FROM t WHERE id = (SELECT id FROM t ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED); END IF;
			COMMIT;
		END LOOP; END $$));
my $whole = q(SELECT count(*) FILTER (WHERE b::bytea <> convert_to(repeat(md5(id::text), 1000 + id * 7) ||
	coalesce((SELECT string_agg(repeat(chr(97 + i % 26), 3000), '' ORDER BY i) FROM generate_series(1, n) AS i), ''), 'UTF8')) FROM t);
is(in_other($whole), 0, 'values of the second store are right before');
is(in_other('SELECT blobext_enable_checksums()'), 't', 'checksums of the second store are enabled');

# A lock that one call takes for each value holds the call up: then it is seen, cancelled, killed.
my $holder = $node->background_psql('other', on_error_stop => 1);
foreach my $end ('cancelled', 'killed')
{
	$holder->query_safe('BEGIN');
	$holder->query_safe('LOCK TABLE blobext_map IN SHARE UPDATE EXCLUSIVE MODE');
	my $caller = $node->background_psql('other', on_error_stop => 0);
	$caller->query_until(qr/begun/, "\\echo begun\nCALL blobext_add_checksums('t');\n");
	ok($node->poll_query_until('other', q(SELECT count(*) = 1 FROM blobext_add_checksums_progress AS p
		JOIN pg_locks AS l USING (pid) WHERE p.relation = 't'::regclass AND blocks_total > 0 AND bytes_read > 0
			AND relations_total = 1 AND NOT granted)), 'the view shows a call that waits for the map');
	is(in_other(q(SELECT sum(checksummed_bytes) FROM blobext_space)) // 0, 0, 'a call that waits has added nothing') if $end eq 'cancelled';
	if ($end eq 'cancelled')
	{
		in_other('SELECT pg_cancel_backend(pid) FROM blobext_add_checksums_progress');
		ok($node->poll_query_until('other', 'SELECT count(*) = 0 FROM blobext_add_checksums_progress'), 'a call can be cancelled');
		$holder->query_safe('ROLLBACK');
		$caller->quit;
		next;
	}
	$holder->query_safe('ROLLBACK');
	ok($node->poll_query_until('other', 'SELECT sum(checksummed_bytes) > 100000 FROM blobext_space'), 'a call goes on when it has the lock');
	kill_everything($node);
	$node->start;
	eval { $caller->quit };
	eval { $holder->quit };
}
is(in_other($whole), 0, 'values are right after a crash in the middle');
check_is_clean($node, 'the check finds nothing after a crash in the middle', 'other');

my @churners = map {
	my %churner = (out => '', err => '');
	$churner{run} = IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('other'), '-c', 'CALL churn(150)' ],
		'<', \undef, '>', \$churner{out}, '2>', \$churner{err});
	\%churner } 1 .. 3;
my @warnings;
my $calls = 0;
while ($calls < 3 || grep { $_->{run}->pumpable } @churners)
{
	$_->{run}->pump_nb foreach grep { $_->{run}->pumpable } @churners;
	my ($exit, $out, $err) = $node->psql('other', 'CALL blobext_add_checksums()');
	push @warnings, "$exit $err" if $exit || $err;
	in_other('SELECT * FROM blobext_gc()');
	$calls++;
}
$_->{run}->finish foreach @churners;
is(join('', map { $_->{err} } @churners), '', 'sessions that append and delete beside the calls see no error');
is("@warnings", '', 'calls beside appends, deletes and the collector have nothing to report');
in_other('CHECKPOINT');
is(in_other($whole), 0, 'values that grew meanwhile are right');
check_is_clean($node, 'the check finds nothing after calls beside others', 'other');
cmp_ok(in_other('SELECT sum(n) FROM t'), '>', 300, 'many values have grown meanwhile');

# All of this on the standby, which replays it.
$node->wait_for_catchup($standby);
is($standby->safe_psql('other', $whole), 0, 'a standby reads all values');
is($standby->safe_psql('other', 'SELECT * FROM blobext_check()'), '', 'the check on a standby finds nothing');
is($standby->safe_psql('postgres', $right), "$all|$all", 'a standby reads the values of the other store');
fails_with($standby, $_, '25006', qr/recovery/, "a standby refuses: $_")
  foreach 'SELECT blobext_enable_checksums()', 'CALL blobext_add_checksums()';
{
	my ($id, $page) = split /\|/, sql('SELECT id, e.first_page FROM t, blob_extents(b) AS e WHERE length(c) = 7 * 4096 LIMIT 1');
	flip($standby, $page => 100);
	my ($exit, $out, $err) = $standby->psql('postgres', "SELECT b::bytea = c FROM t WHERE id = $id");
	like($err, qr/is damaged/, 'damage on the standby is found by the checksum that was replayed');
	is(sql("SELECT b::bytea = c FROM t WHERE id = $id"), 't', 'the primary has the right bytes');
}
$standby->stop;
$node->stop;
verify_while_down($node);

# ---- a claim between the checksums and the flag of an extent ----

my $held = blob_cluster('held', start => 0,
	conf => "blobext.page_checksums = off\nblobext.tail_extents = off\nautovacuum = off\n");
start_with_stops($held);
sub held { return $held->safe_psql('postgres', join(';', @_)); }
held('CREATE EXTENSION blobext', 'CREATE TABLE t (b blobstate)', 'CREATE TABLE before (b blobstate)',
	q(INSERT INTO t SELECT convert_to(repeat('x', 9 * 4096), 'UTF8')));
# The extents before the last one have checksums; that has room.
held(q(INSERT INTO before SELECT blob_truncate(b, (SELECT sum(bytes)::bigint FROM blob_extents(b) AS e
	WHERE extent_no < (SELECT max(extent_no) FROM blob_extents(b)))) FROM t),
	'CHECKPOINT', 'SELECT blobext_enable_checksums()', q(CALL blobext_add_checksums('before')));
my ($last, $room) = split /\|/, held(q(SELECT first_page, pages * 4096 - bytes FROM t, blob_extents(b) ORDER BY extent_no DESC LIMIT 1));
cmp_ok($room, '>=', 3 * 4096, 'the last extent has room for three pages');
my ($session, $pid) = hold_at($held, 'sums', 'before', q(CALL blobext_add_checksums('t')));
held(q(UPDATE t SET b = b || convert_to(repeat('y', 2 * 4096), 'UTF8')));
is(held(q(SELECT count(*) FROM t, blob_extents(b) WHERE first_page IS NOT NULL AND extent_no = (SELECT max(extent_no) FROM blob_extents(b))
	AND first_page = ) . $last), 1, 'the value has grown in its last extent meanwhile');
let_go($pid, $session);
is(held('SELECT sum(checksummed_bytes) = sum(bytes) FROM blobext_space WHERE extents IS NOT NULL'), 't', 'the last extent has checksums now');
# The next pages of the extent get theirs from the writer.
held(q(UPDATE t SET b = b || convert_to(repeat('z', 4096), 'UTF8')), 'CHECKPOINT');
$held->restart;
is(held(q(SELECT b::bytea = convert_to(repeat('x', 9 * 4096) || repeat('y', 2 * 4096) || repeat('z', 4096), 'UTF8') FROM t)), 't',
	'pages that were claimed before the flag and after it are read');
check_is_clean($held, 'the check finds nothing after a claim in between');
like(held('CALL blobext_add_checksums()'), qr/^1\|2\|0$/, 'the pages of that claim get their checksums from the next call');
{
	my $page = $last + held(q(SELECT bytes FROM t, blob_extents(b) ORDER BY extent_no DESC LIMIT 1)) / 4096;
	foreach my $back (1, 2, 3)
	{
		flip($held, $page - $back => 99);
		like(($held->psql('postgres', 'SELECT b::bytea FROM t'))[2], qr/is damaged/, "damage in page $back from the end is found");
		flip($held, $page - $back => 99);
	}
}
$held->stop;
verify_while_down($held);

# ---- a claim in an extent of a tree, whose writer sets its checksums meanwhile ----

# The trees "ours" and "theirs" are made of one base, in an extent with checksums, beside old extents without.  Pages of
# theirs lie among those of ours, and get their checksums while ours gets its own.
my $shared = blob_cluster('shared', start => 0,
	conf => "blobext.page_checksums = off\nautovacuum = off\nblobext.cache_size = 0\nblobext.rewrite_limit = 64kB\n");
start_with_stops($shared);
sub shared { return $shared->safe_psql('postgres', join(';', @_)); }
sub changed { return "INSERT INTO $_[0] SELECT blob_write(b, $_[1], convert_to(repeat('$_[0]', 10000), 'UTF8')) FROM base"; }
shared('CREATE EXTENSION blobext', (map { "CREATE TABLE $_ (b blobstate)" } qw(base ours theirs later)),
	q(INSERT INTO base SELECT convert_to(string_agg(md5(i::text), ''), 'UTF8') FROM generate_series(1, 60000) AS i),
	'SELECT blobext_enable_checksums()', q(UPDATE base SET b = blob_write(b, 500000, 'base')), 'CHECKPOINT');
($session, $pid) = hold_at($shared, 'write', 'after', 'SET blobext.io_method = sync; ' . changed('theirs', 900000));
shared(changed('ours', 1300000));
my ($adder, $adding) = hold_at($shared, 'mend', 'before', q(CALL blobext_add_checksums('ours')));
let_go($pid, $session);
let_go($adding, $adder);
is(shared(q(SELECT length(b::bytea) > 0 AND sha256(b) = sha256(b::bytea) FROM theirs)), 't', 'the value of the other writer is right');
# Before another call gives theirs its checksums again.
{
	# The extent of both that has the newest pages of theirs; the base ends where theirs begins.
	my ($first, $from) = split /\|/, shared(q(SELECT t.first_page, b.bytes / 4096 FROM base, theirs, ours, LATERAL blob_extents(base.b) AS b,
		LATERAL blob_extents(theirs.b) AS t, LATERAL blob_extents(ours.b) AS o
		WHERE b.first_page = t.first_page AND o.first_page = t.first_page AND b.bytes < t.bytes AND t.bytes < o.bytes));
	ok(defined $first, 'pages of the other writer lie among those of the value that got checksums');
	flip($shared, $first + $from + 6 => 99);
	like(($shared->psql('postgres', 'SELECT sha256(b::bytea) FROM theirs'))[2], qr/is damaged/,
		'a checksum that a writer sets meanwhile is not replaced by one that is not known');
	flip($shared, $first + $from + 6 => 99);
}
$shared->stop;
start_with_stops($shared);
# A claim whose pages are never written.
shared('CALL blobext_add_checksums()');
($session, $pid) = hold_at($shared, 'write', 'after', 'SET blobext.io_method = sync; TRUNCATE later; ' . changed('later', 700000));
kill('INT', $pid);
kill('CONT', $pid);
$session->{run}->finish;
shared(changed('later', 1100000));
like(shared('CALL blobext_add_checksums()'), qr/^0\|0\|0$/, 'a tree among whose pages some were never written is not due for checksums');
check_is_clean($shared, 'the check finds nothing among claims that were never written');
$shared->stop;

done_testing();
