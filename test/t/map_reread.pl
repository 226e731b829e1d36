# Bits of the extent map that flip while the server runs: a block of the map leaves shared buffers, one of its bits
# flips on the disk, and the block is read again, by a reader, by a store or an append that changes it, by the
# collector, and by replay on a standby.  Without PostgreSQL's checksums of pages nothing else notices.
#
# Each bit of the entry of an extent flips once, for extents of each kind, each in a value of its own.  Then each value
# is right, or an error says what is damaged; no value has bytes of another one; and when the values with flipped
# entries are deleted, no round frees a page that another value has, so new values take none.
#
# Seen to fail: without blob_store_may_free() a round of a store without checksums frees terabytes, and new values get
# pages that others have.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

my @init = `initdb --help` =~ /--no-data-checksums/ ? ('--no-data-checksums') : ();
my ($node, $map, %entry);
sub sql { return $node->safe_psql('postgres', join(';', @_)); }

my @kinds = ('tier', 'tail', 'page');
my %value = (tier => 28_000, tail => 52_000, page => 3000);

sub begin
{
	my ($checksums, $more) = @_;
	$node = blob_cluster('checksums_' . $checksums . (defined $more ? '_more' : ''), init => \@init, streaming => defined $more, conf => ($more // '') . qq(
autovacuum = off
blobext.cache_size = 0
blobext.page_checksums = $checksums
shared_buffers = 1MB
));
	sql('CREATE EXTENSION pg_prewarm', 'CREATE EXTENSION pg_buffercache',
		'CREATE TABLE filler (t text)', 'ALTER TABLE filler ALTER t SET STORAGE plain',
		q(INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, 300)),
		q(CREATE FUNCTION noise(seed text, n integer) RETURNS bytea LANGUAGE sql AS
			$$ SELECT substr(string_agg(sha256(convert_to(seed || ':' || i, 'UTF8')), '' ORDER BY i), 1, n) FROM generate_series(0, n / 32) i $$),
		# 'right', 'wrong', or the error of a query of a boolean.
		q(CREATE FUNCTION says(query text) RETURNS text LANGUAGE plpgsql AS $$
			DECLARE result boolean;
			BEGIN EXECUTE query INTO result; RETURN CASE WHEN result THEN 'right' ELSE 'wrong' END;
			EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE || ' ' || SQLERRM; END $$),
		'CREATE TABLE t (id integer, kind text, bit integer, c bytea, b blobstate)',
		q(CREATE TABLE kept (id serial, c bytea, b blobstate)));
	$map = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('blobext_map')");
	return;
}

# Values of a kind, one for each bit of an entry, each beside another value.
sub make_values_of
{
	my ($kind) = @_;
	my $size = $value{$kind};
	# Nothing is free between them.
	sql(($kind eq 'tier' ? 'SET blobext.tail_extents = off' : 'SET blobext.tail_extents = on'),
		q(DO $$ BEGIN FOR i IN 0 .. 127 LOOP) .
		" INSERT INTO t SELECT i, '$kind', i, c, c FROM noise('$kind' || i, $size) AS c;" .
		" INSERT INTO kept (c, b) SELECT c, c FROM noise('kept $kind' || i, 20000) AS c; END LOOP; END \$\$");
	return;
}

# Write all blocks of the map to the disk, and have none of them in memory.
sub evict
{
	sql('CHECKPOINT', q(SELECT pg_prewarm('filler'), pg_prewarm('filler')));
	my $left = sql(q(SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('blobext_map')
		AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())));
	return $left eq '0' ? 1 : evict();
}

# What reading all values with a flipped entry says, by the bit.
sub read_all
{
	my ($name) = @_;
	my @said = split /\n/, sql(q(SELECT kind || ' ' || bit || ': ' || says(format('SELECT b::bytea = c FROM t WHERE kind = %L AND bit = %s', kind, bit)) FROM t ORDER BY kind, bit));
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join(', ', grep { !/: (right|XX001|XB001) ?/ } @said), '', "$name: each value with a flipped bit is right, or an error");
	is(sql('SELECT count(*) FROM kept WHERE b::bytea <> c'), '0', "$name: all other values are right");
	return;
}

sub nothing_is_shared
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return no_page_is_shared($node, "$name: no two values have a page in common", 'kept', 't');
}

sub add_kept
{
	my ($name) = @_;
	sql("INSERT INTO kept (c, b) SELECT c, c FROM (SELECT noise('$name' || i, 15000 + i * 300) AS c FROM generate_series(1, 200) AS i) AS s");
	return;
}

# Values whose entries are to flip, each in one bit.
sub make_all
{
	make_values_of($_) foreach @kinds;
	check_is_clean($node, 'the check finds nothing before');
	foreach my $line (split /\n/, sql(q(SELECT DISTINCT ON (t.kind, bit) t.kind, bit, m.first_page FROM t, blob_extents(b) AS e JOIN blobext_map AS m USING (first_page)
		WHERE m.kind = CASE t.kind WHEN 'tail' THEN 'tail' ELSE 'tier' END ORDER BY t.kind, bit, m.pages DESC)))
	{
		my ($kind, $bit, $first) = split /\|/, $line;
		$entry{$kind}{$bit} = $first;
	}
	is(join(' ', map { scalar keys %{ $entry{$_} } } @kinds), '128 128 128', 'each bit of each kind of entry has a value');
	return;
}

sub flip_all
{
	evict();
	foreach my $kind (@kinds)
	{
		flip_bit($map, map_bit($entry{$kind}{$_}, $_)) foreach 0 .. 127;
	}
	return;
}

# Reads, stores and appends.
sub use_all
{
	read_all('when the map is read again');
	add_kept('stored');
	read_all('when values were stored');

	# Appends to all of them.
	evict();
	my @appended = split /\n/, sql(q(SELECT kind || ' ' || bit || ': ' || says(format(
		'UPDATE t SET b = b || %L::bytea, c = c || %L::bytea WHERE kind = %L AND bit = %s RETURNING true', repeat('m', 3000), repeat('m', 3000), kind, bit)) FROM t ORDER BY kind, bit));
	is(join(', ', grep { !/: (right|XX001|XB001) ?/ } @appended), '', 'an append to a value with a flipped entry is done, or an error');
	read_all('when values were appended to');
	nothing_is_shared('when values were appended to');
	return;
}

# Rounds that free nothing, and those that free all of these values.
sub free_all
{
	evict();
	is(sql('SELECT skipped_reason FROM blobext_gc()'), '', 'a round is complete while all values have their rows');
	read_all('when a round has read the map');
	sql('DELETE FROM t', 'VACUUM t');
	foreach my $round (1 .. 3)
	{
		evict();
		my ($blobs, $bytes, $reason) = split /\|/, sql('SELECT freed_blobs, freed_bytes, skipped_reason FROM blobext_gc()'), -1;
		is($reason, '', "round $round: damaged entries do not stop it");
		cmp_ok($blobs, '>', 100, "round $round: values are freed whose entries are right") if $round == 1;
		cmp_ok($bytes, '<', 384 * 60_000, "round $round: no more is freed than there was");
		add_kept("round $round");
		is(sql('SELECT count(*) FROM kept WHERE b::bytea <> c'), '0', "round $round: all other values are right");
		nothing_is_shared("round $round");
	}
	return;
}

# A standby whose blocks flip replays stores, rounds and appends that change them, without images of the blocks.
sub replay
{
	begin('on', "full_page_writes = off\n");
	my $primary = $node;
	make_all();
	sql('SET blobext.tail_extents = off', q(CREATE TABLE room AS SELECT c, c::blobstate AS b FROM noise('room', 9 * 4096) AS c));
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	$node = $standby;
	$map = $standby->data_dir . '/' . sql("SELECT pg_relation_filepath('blobext_map')");
	flip_all();
	read_all('on a standby');

	$node = $primary;
	add_kept('replayed');
	sql(q(DELETE FROM kept WHERE id % 3 = 0), 'VACUUM kept');
	is(sql('SELECT skipped_reason FROM blobext_gc()'), '', 'a round of the primary is complete');
	add_kept('replayed in freed space');
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	$node = $standby;
	read_all('on a standby that has replayed stores and rounds');
	nothing_is_shared('on a standby that has replayed stores and rounds');

	# An extent that has another generation on the standby is claimed: the standby cannot go on, and says where.
	my $page = sql('SELECT m.first_page FROM room, blob_extents(b) AS e JOIN blobext_map AS m USING (first_page) ORDER BY m.pages DESC LIMIT 1');
	evict();
	flip_bit($map, map_bit($page, 9));
	$node = $primary;
	sql('UPDATE room SET b = b || c');
	for (my $i = 0; -e $standby->data_dir . '/postmaster.pid' && $i < 600; $i++) { usleep(100_000) }
	like(slurp_file($standby->logfile), qr/PANIC:  blobext: CLAIM of an extent that is not in the map\n.*CONTEXT:  WAL redo at \S+ for blobext\/CLAIM: .*page $page\b/,
		'a standby stops before a claim that its map does not fit, and names the page');
	$standby->_update_pid(0);
	$primary->stop;
	return;
}

foreach my $checksums ('on', 'off')
{
	begin($checksums);
	make_all();
	flip_all();
	use_all();
	free_all();
	my $says = qr/LOG:  blobext: the extent at page \d+ cannot be freed/;
	like(slurp_file($node->logfile), $says, 'the log says that damaged extents cannot be freed') ;
	$node->stop;
}
replay();

done_testing();
