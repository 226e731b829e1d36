# Trees of pieces over standbys, crashes, damage, checksums of old values, and the collector.
#
# Values are changed in the middle again and again, beside bytea that says what they should be.  A
# standby has what the primary has.  After a kill in the middle of changes each value is one that was
# committed.  Every page of a tree's extents is damaged: a repair from the standby brings those that
# the value uses, the others stay as they are, and nothing reports them.  Old stores give trees
# checksums where their pages are proven.  Extents of which nothing is left go back.
#
# Seen to fail: where the scrubber takes all pages of a tree's extents for used ones (scrub_confirm.c);
# where pages that a tree does not fill are due for checksums (add_sums.c); without leave_out() of
# slot_writer.c, with blobext_verify.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

my $seed = $ENV{BLOBEXT_SEED} // int(rand(1_000_000_000));
note("seed $seed");
srand($seed);

my $conf = "autovacuum = off\nblobext.cache_size = 0\nblobext.autogc = off\nblobext.rewrite_limit = 64kB\n";
my $definitions = q(
CREATE TABLE t (id int PRIMARY KEY, c bytea, b blobstate);
CREATE TABLE z (LIKE t);
SELECT blobext_set_compression('z', 'b', 'lz4');
CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
	$$ SELECT substr(string_agg(CASE WHEN i % 64 < 32 THEN sha256(random()::text::bytea) ELSE decode(repeat('ab', 32), 'hex') END, ''), 1, n)
	FROM generate_series(0, n / 32) i $$;
CREATE FUNCTION change(part regclass, row_id int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	size int;
	at int;
	n int := random() * 30000;
	x bytea := noise((random() * 20000)::int);
BEGIN
	EXECUTE format('SELECT length(b) FROM %s WHERE id = $1', part) INTO size USING row_id;
	at := random() * size;
	IF random() < 0.3 THEN
		n := octet_length(x);
	END IF;
	IF size < 200000 THEN
		n := 0;
	END IF;
	EXECUTE format('UPDATE %s SET b = blob_insert(blob_delete(b, $1, $2), $1, $3),
		c = substr(c, 1, $1) || $3 || substr(c, $1 + $2 + 1) WHERE id = $4', part) USING at, n, x, row_id;
END
$$;
CREATE PROCEDURE churn(part regclass, times int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		PERFORM change(part, 1 + i % 4);
		IF i % 7 = 0 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
	END LOOP;
END
$$;
INSERT INTO t (id, c) SELECT i, noise(300000 + i * 70000) FROM generate_series(1, 4) i;
INSERT INTO z (id, c) SELECT i, noise(300000 + i * 70000) FROM generate_series(1, 4) i;
UPDATE t SET b = c;
UPDATE z SET b = c;
);

my $primary = blob_cluster('primary', streaming => 1, conf => $conf);
sub sql { return $primary->safe_psql('postgres', join(';', @_)); }

# How many values are not what they should be.
my $wrong = q(SELECT count(*) FROM (TABLE t UNION ALL TABLE z) v WHERE length(b) <> octet_length(c) OR sha256(b) <> sha256(c) OR b::bytea <> c);

sub are_right
{
	my ($node, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql('postgres', $wrong), '0', $name);
}

# Write all values anew, and change each in two places, so that it is a tree: one that has changed often may just have been written anew.
sub make_trees
{
	foreach my $part (qw(t z))
	{
		sql("SET blobext.rewrite_limit = '1GB'", "UPDATE $part SET b = blob_write(b, 0, blob_read(b, 0, 1))");
		sql("UPDATE $part SET b = blob_write(b, $_, blob_read(b, $_, 20))") foreach 70_000, 150_000;
	}
	return;
}

# Flip a bit in each page that the extents of a value hold of it.
sub damage_value
{
	my ($node, $part, $id) = @_;
	my @pages = split /\n/, $node->safe_psql('postgres', "SELECT generate_series(first_page, first_page + (bytes + 4095) / 4096 - 1)
		FROM $part, blob_extents(b) WHERE bytes > 0 AND id = $id");
	$node->stop;
	flip_bit(segment_file($node, int($_ / 262_144)), ($_ % 262_144) * 4096 * 8 + int(rand(4096 * 8))) foreach @pages;
	$node->start;
	return scalar @pages;
}

# ---- changes, and a standby ----

sql($definitions);
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
sql("CALL churn('$_', 60)") foreach qw(t z);
are_right($primary, 'values are what they should be after many changes');
make_trees();
is(sql('SELECT count(*) FROM t WHERE blob_stored_length(b) > length(b)'), '4', 'all plain values are trees now');
check_is_clean($primary, 'blobext_check() finds nothing among trees');
$primary->wait_for_catchup($standby);
are_right($standby, 'the standby has the same trees');

# ---- kills ----

foreach my $round (1 .. 3)
{
	my @runs = map { IPC::Run::start([ 'psql', '-XqAt', '-d', $primary->connstr('postgres'), '-c', "CALL churn('$_', 100000)" ],
			'>', \my $out, '2>', \my $err) } qw(t z);
	usleep(1_000_000 + rand(1_000_000));
	kill_everything($primary);
	$_->finish foreach @runs;
	unlink $primary->data_dir . '/postmaster.pid';
	$primary->start;
	are_right($primary, "after kill $round each value is one that was committed");
	check_is_clean($primary, "after kill $round blobext_check() finds nothing");
}
sql("CALL churn('$_', 20)") foreach qw(t z);
are_right($primary, 'changes after the kills are right');
$primary->wait_for_catchup($standby);
are_right($standby, 'the standby has followed over the kills');

# ---- damage ----

make_trees();
my $source = "host=" . $standby->host . ' port=' . $standby->port . ' dbname=postgres';
foreach my $part (qw(t z))
{
	cmp_ok(damage_value($primary, $part, 2), '>', 10, "each page of a tree in $part is damaged");
	fails_with($primary, "SELECT md5(b::bytea) FROM $part WHERE id = 2", 'XX001', qr/damaged|checksum/, "a damaged tree in $part is not read");
	$primary->wait_for_catchup($standby);
	is(sql("SELECT * FROM blobext_check(repair => '" . ($source =~ s/'/''/gr) . "')"), '', "the tree in $part is repaired");
	is(sql("SELECT b::bytea = c FROM $part WHERE id = 2"), 't', "the repaired tree in $part is right");
	check_is_clean($primary, "nothing is left to be repaired in $part");
}
are_right($primary, 'all values are right after the repairs');

# Pages that no value uses are damaged still.
sub scrub
{
	unlink glob($primary->data_dir . '/pg_stat_tmp/blobext_scrub.*');
	sql('ALTER SYSTEM SET blobext.scrub_rate = 100000');
	$primary->reload;
	$primary->poll_query_until('postgres', q(SELECT count(*) > 0 AND count(*) = (SELECT (max(first_page + pages - 1) / 262144) + 1 FROM blobext_map)
		FROM blobext_scrub WHERE datname = 'postgres')) or die 'the pass does not end';
	sql('ALTER SYSTEM RESET blobext.scrub_rate');
	$primary->reload;
	$primary->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'blobext scrubber')) or die;
	return sql(q(SELECT sum(damaged_pages) FROM blobext_scrub WHERE datname = 'postgres'));
}
is(scrub(), '0', 'the scrubber does not report pages that no value uses');
damage_value($primary, 't', 3);
cmp_ok(scrub(), '>', 10, 'the scrubber reports the pages that a tree uses');
$primary->wait_for_catchup($standby);
sql("SELECT * FROM blobext_check(repair => '" . ($source =~ s/'/''/gr) . "')");
are_right($primary, 'damaged pages of a tree are repaired like others');

# ---- the collector ----

# Whether exactly the extents of values are allocated.
my $leaked = q(SELECT count(*) FROM blobext_map m FULL JOIN (SELECT DISTINCT first_page FROM (TABLE t UNION ALL TABLE z) v, blob_extents(b)
	WHERE first_page IS NOT NULL) e USING (first_page) WHERE m.pages IS NULL OR e.first_page IS NULL);
$primary->safe_psql('postgres', $_) foreach 'VACUUM t', 'VACUUM z', 'SELECT blobext_gc()', 'SELECT blobext_gc()';
is(sql($leaked), '0', 'after a round of the collector just the extents of values are allocated');
sql("SET blobext.rewrite_limit = '1GB'", map { "UPDATE $_ SET b = blob_write(b, 0, blob_read(b, 0, 1))" } qw(t z));
is(sql('SELECT count(*) FROM t WHERE blob_stored_length(b) > length(b)'), '0', 'trees that are written anew are none any more');
$primary->safe_psql('postgres', $_) foreach 'VACUUM t', 'VACUUM z', 'SELECT blobext_gc()', 'SELECT blobext_gc()';
is(sql($leaked), '0', 'the extents of trees that were written anew are free');
are_right($primary, 'values are right at the end');
$standby->stop;
sql("CALL churn('t', 30)");
$primary->stop;
command_ok([ 'blobext_verify', '-D', $primary->data_dir ], 'blobext_verify finds nothing, though some claimed pages were never written');

# ---- checksums of old values ----

my $old = blob_cluster('old', conf => $conf . "blobext.page_checksums = off\n");
$old->safe_psql('postgres', $definitions);
$old->safe_psql('postgres', "CALL churn('$_', 40)") foreach qw(t z);
# No trees: an append to a truncated value leaves bytes of the longer one beside its frames.  Such a page
# cannot be proven.  Seen to fail: without has_zeros_beside(), each call read the four values again.
$old->safe_psql('postgres', $_) foreach q(CREATE TABLE cut (id int PRIMARY KEY, b blobstate)), q(SELECT blobext_set_compression('cut', 'b', 'zstd')),
	q(CREATE FUNCTION half(n int, seed int) RETURNS bytea LANGUAGE sql AS 'SELECT substr(string_agg(sha256((seed * 100000 + i)::text::bytea)
		|| decode(repeat(''00'', 16), ''hex''), ''''), 1, n) FROM generate_series(1, n / 48 + 1) i'),
	'INSERT INTO cut SELECT i, half(200000 + 777 * i, i) FROM generate_series(1, 4) i', 'UPDATE cut SET b = blob_truncate(b, 150000 + 777 * id)',
	'UPDATE cut SET b = b || half(40000 + 1500 * id, 300 + id)';
$old->safe_psql('postgres', 'SELECT blobext_enable_checksums()');
my $added = $old->safe_psql('postgres', 'CALL blobext_add_checksums()');
like($added, qr/^12\|/, 'checksums are added to all trees and compressed values') or diag($added);
like($old->safe_psql('postgres', 'CALL blobext_add_checksums()'), qr/^0\|/, 'no value is due a second time');
are_right($old, 'trees with added checksums are right');
damage_value($old, 't', 1);
fails_with($old, 'SELECT md5(b::bytea) FROM t WHERE id = 1', 'XX001', qr/checksum/, 'damage of a tree is noticed by added checksums');
$old->stop;

done_testing();
