# Checksums of pages: a bit that flips in the store is an error of the read that comes to it, never
# another byte.
#
# Values of many lengths are stored in all ways, so that their extents have one page and many, tails,
# pages that a stream has cut off, and places in several blocks of the map; and changed in the middle, so
# that they are trees of pieces, plain and compressed, with digests and without.  One bit of a page of each
# value flips (of a tree of one that it uses, often of a node), while the server is down, or while it runs and has not read the page since its start.
# Then all of it, ranges of it, scans, comparisons, copies and other values that share its extents must
# say XX001 and name the file and the page, or, if they do not come to the page, be right; and
# blobext_check() names row and column of each of them, and of no other.  Then bits of checksums flip,
# which the check must tell from damaged pages.
#
# BLOBEXT_FLIPS bits of pages (300) in all, and a tenth as many of checksums.  By hand 10,000:
# BLOBEXT_FLIPS=10000 test/run tap -v page_sums
#
# Seen to fail without the comparison in read.c, without that in ahead.c, and without the flag that
# verify.c hands on; the checks without blob_reader_sum_fits().
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $flips = $ENV{BLOBEXT_FLIPS} // 300;
my $seed = $ENV{BLOBEXT_SEED} // int(rand(1_000_000_000));
my $page_bytes = 4096;
my $segment_pages = 262_144;
note("seed $seed");
srand($seed);
expect_damage();

# Sums of the map are flipped below, not the server's own of its blocks (18 has them by default).
my @init = `initdb --help` =~ /--no-data-checksums/ ? ('--no-data-checksums') : ();
my $node = blob_cluster('main', init => \@init,
	conf => "autovacuum = off\nblobext.cache_size = 16MB\nblobext.autogc = off\nblobext.rewrite_limit = 32kB\n");
sub sql { return $node->safe_psql('postgres', join(';', @_)); }

sql(q(CREATE TABLE t (id serial, c bytea, b blobstate);
	ALTER TABLE t ALTER c SET STORAGE EXTERNAL),
	q(CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
		$$ SELECT substr(string_agg(sha256(random()::text::bytea), ''), 1, n) FROM generate_series(0, n / 32) $$),
	q(CREATE FUNCTION used_pages(blobstate, nodes boolean) RETURNS bigint[] LANGUAGE c STRICT AS ')
		. ($ENV{BLOBEXT_UNIT_DIR} // die 'BLOBEXT_UNIT_DIR: use test/run tap') . q(/blobext_unit', 'unit_used_pages'),
	# What a read says: 'true' if it is right, 'false' if it is not, or its error.
	q(CREATE FUNCTION says(query text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE result boolean; detail text;
		BEGIN EXECUTE query INTO result; RETURN result;
		EXCEPTION WHEN data_corrupted THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
			RETURN SQLERRM || ' ' || detail; END $$));

# ---- values ----

my $sizes = join(',', map { $_ * $page_bytes, $_ * $page_bytes + 1 } 1 .. 4, 7, 8, 15, 30, 61, 200, 509 .. 512, 1600);
sql("INSERT INTO t (c) SELECT noise(n) FROM unnest(ARRAY[2000, 4095, $sizes]) AS n",
	'INSERT INTO t (c) SELECT noise(4000 + (random() * 60000)::int) FROM generate_series(1, 90)',
	'UPDATE t SET b = c');
# Streams, whose length is not known before their end: of one page and more.
sql(q(DO $$ DECLARE u bigint; r record; BEGIN
	FOR r IN SELECT noise(n) AS c FROM unnest(ARRAY[3000, 4096, 5000, 9000, 1200000, 1100001]) AS n
	LOOP
		u := blob_upload_begin();
		FOR at IN 0 .. length(r.c) / 700000 LOOP
			PERFORM blob_upload_write(u, substr(r.c, at * 700000 + 1, 700000));
		END LOOP;
		INSERT INTO t (c, b) VALUES (r.c, blob_upload_end(u));
	END LOOP; END $$));
# Values that share extents, that grow, that lose the claim of room, and that are changed in the middle.
sql('INSERT INTO t (c, b) SELECT c, b FROM t WHERE length(c) BETWEEN 9000 AND 900000 ORDER BY id LIMIT 12',
	q(UPDATE t SET b = b || convert_to(repeat('g', id * 200), 'UTF8'), c = c || convert_to(repeat('g', id * 200), 'UTF8')
		WHERE id % 3 = 0),
	q(UPDATE t SET b = b || convert_to(repeat('h', id * 300), 'UTF8'), c = c || convert_to(repeat('h', id * 300), 'UTF8')
		WHERE id % 4 = 0),
	q(UPDATE t SET b = blob_write(b, length(c) / 2, '\xaabbcc'), c = overlay(c PLACING '\xaabbcc' FROM length(c) / 2 + 1)
		WHERE id % 5 = 0 AND length(c) > 9000));
my $large = 'WHERE length(c) BETWEEN 30000 AND 300000 ORDER BY id';
sql(q(INSERT INTO t (c, b) SELECT string_agg(c, '' ORDER BY id), blob_agg(b ORDER BY id) FROM t
		WHERE length(c) < 100000 GROUP BY id % 17),
	"INSERT INTO t (c, b) SELECT substr(c, 1, length(c) - 5000), blob_truncate(b, length(c) - 5000) FROM t $large LIMIT 5",
	"INSERT INTO t (c, b) SELECT overlay(c PLACING '\\x1234' FROM 20001 FOR 0), blob_insert(b, 20000, '\\x1234') FROM t $large LIMIT 5",
	"INSERT INTO t (c, b) SELECT overlay(c PLACING '' FROM 10001 FOR 777), blob_delete(b, 10000, 777) FROM t $large LIMIT 5",
	q(INSERT INTO t (c, b) SELECT c, blob_recompress(c::blobstate, 'zstd') FROM (
		SELECT convert_to(repeat(md5(i::text), i * 999), 'UTF8') AS c FROM generate_series(1, 6) AS i) AS s));
# Rows of COPY, of which some are made to share their values with those that they are copies of.
my $copied = "$PostgreSQL::Test::Utils::tmp_check/copied";
sql("COPY (SELECT c, c FROM t WHERE length(c) BETWEEN 3000 AND 70000 ORDER BY id DESC LIMIT 30) TO '$copied' (FORMAT binary)",
	"COPY t (c, b) FROM '$copied' (FORMAT binary)");
$node->safe_psql('postgres', "CALL blobext_dedup('t', 'b')");
# Trees, changed again and again, with frames and with digests that are open.
sql('INSERT INTO t (c, b) SELECT c, c FROM (SELECT noise(40000 + i * 17000) AS c FROM generate_series(1, 24) AS i) AS s',
	q(INSERT INTO t (c, b) SELECT c, blob_recompress(c::blobstate, CASE WHEN i % 2 = 0 THEN 'lz4' ELSE 'zstd' END) FROM (
		SELECT i, convert_to((SELECT string_agg(md5((j * i)::text) || repeat('x', 20), '') FROM generate_series(1, i * 1000) AS j),
			'UTF8') AS c FROM generate_series(2, 9) AS i) AS s),
	q(CREATE TABLE edited AS SELECT id FROM t ORDER BY id DESC LIMIT 32));
foreach my $change (1 .. 8)
{
	sql(q(SELECT blobext_set_digest('t', 'b', 'deferred'))) if $change == 6;
	my ($share, $size) = (rand(), 1 + int(rand(9000)));
	sql(qq(UPDATE t SET b = blob_insert(blob_delete(b, at, $size), at, x), c = substr(c, 1, at) || x || substr(c, at + 1 + $size)
		FROM (SELECT id AS i, (($share + i.id * 0.37)::numeric % 1 * (length(c) - $size))::int AS at, noise($size + i.id % 99) AS x
			FROM t JOIN edited AS i USING (id) WHERE $change < 6 OR i.id % 2 = 0) AS s WHERE id = i));
}
# One with many pieces.
sql(q(DO $$ DECLARE v bytea := noise(5400000); w blobstate := v;
	BEGIN FOR i IN 1 .. 110 LOOP
		v := overlay(v PLACING '\xabcdef' FROM i * 40000 + 1);
		w := blob_write(w, i * 40000, '\xabcdef');
	END LOOP;
	INSERT INTO t (c, b) VALUES (v, w);
	END $$));
is(sql('SELECT count(*) FROM t WHERE b::bytea <> c'), '0', 'all values are right before');
cmp_ok(sql('SELECT count(*) FROM t WHERE cardinality(used_pages(b, true)) > 0'), '>', 30, 'there are many trees of pieces');
cmp_ok(sql('SELECT count(*) FROM t WHERE cardinality(used_pages(b, true)) > 2'), '>', 0, 'there are trees of several nodes');
cmp_ok(sql('SELECT count(*) FROM t WHERE blob_digest_is_open(b)'), '>', 4, 'there are open digests');
cmp_ok(sql('SELECT count(*) FROM t WHERE b::bytea = c'), '>', 150, 'there are many values');
check_is_clean($node, 'the check finds nothing before');

# ---- flips of pages ----

# id -> [first page of an extent, its pages, those that belong to the value] of each extent.
sub extents_of_values
{
	my %extents;
	foreach my $line (split /\n/, sql(q(SELECT id, e.first_page, m.pages, ceil(e.bytes / 4096.0)::bigint, m.kind
		FROM t, blob_extents(b) AS e JOIN blobext_map AS m USING (first_page) WHERE e.bytes > 0)))
	{
		my ($id, @extent) = split /\|/, $line;
		push @{ $extents{$id} }, \@extent;
	}
	return \%extents;
}

sub flip_page
{
	my ($page, $bit) = @_;
	flip_bit(segment_file($node, int($page / $segment_pages)), ($page % $segment_pages) * $page_bytes * 8 + $bit);
	return;
}

my $extents = extents_of_values();
# Of each value the pages that have bytes of it; of a tree those that have nodes.
sub pages_of_values
{
	my ($are_nodes) = @_;
	return map { my ($id, $pages) = split /\|/; $id => [ split /,/, $pages ] } split /\n/, sql(qq(SELECT id, string_agg(page::text, ',')
		FROM (SELECT DISTINCT id, unnest(used_pages(b, $are_nodes)) AS page FROM t) AS p GROUP BY id));
}
my %nodes = pages_of_values('true');
my %pages = pages_of_values('false');
push @{ $pages{$_} }, @{ $nodes{$_} } foreach keys %nodes;

# Choose a page of each value that shares none with another one that was chosen.
sub choose_pages
{
	my %chosen;
	my %order = map { $_ => rand() } sort { $a <=> $b } keys %pages;
	foreach my $id (sort { $order{$a} <=> $order{$b} } keys %order)
	{
		my @own = @{ $pages{$id} };
		my @from = @{ $nodes{$id} && rand() < 0.4 ? $nodes{$id} : \@own };
		$chosen{ $from[ rand @from ] } = $id if !grep { exists $chosen{$_} } @own;
	}
	return keys %chosen;
}

# What all reads of one kind say: id -> text.
sub all_say
{
	my ($query) = @_;
	return { map { split /\|/, $_, 2 } split /\n/, sql("SELECT id, says(format(\$q\$ $query \$q\$, id)) FROM t ORDER BY id") };
}

my $damaged = qr/^content in file "(\S+)" is damaged The page at byte (\d+) does not have its checksum\.$/;
my %kinds = (
	'as a whole' => 'SELECT b::bytea = c FROM t WHERE id = %s',
	'by its end' => 'SELECT blob_read(b, length(c) / 2, 1000000) = substr(c, length(c) / 2 + 1, 1000000) FROM t WHERE id = %s',
	'by md5()' => 'SELECT md5(b::bytea) = md5(c) FROM t WHERE id = %s',
	'by comparison' => 'SELECT b >= c FROM t WHERE id = %s');

# Each read of a value is right, or names a page of it that is among the damaged ones.
sub reads_are_right
{
	my ($name, %is_damaged) = @_;
	foreach my $kind (sort keys %kinds)
	{
		my $say = all_say($kinds{$kind});
		my @unexpected;
		foreach my $id (sort { $a <=> $b } keys %$say)
		{
			my @own = grep { $is_damaged{$_} } @{ $pages{$id} // [] };
			my ($path, $byte) = $say->{$id} =~ $damaged;
			my $is_named = defined $byte && grep {
				$_ % $segment_pages * $page_bytes == $byte && $path =~ sprintf('/%08x$', int($_ / $segment_pages)) } @own;
			next if $is_named || ($say->{$id} eq 'true' && !(@own && $kind =~ /whole|md5/));
			push @unexpected, "$id: $say->{$id}" . (@own ? " (@own)" : '');
		}
		is("@unexpected", '', "$name: each value, read $kind, is right or names its damaged page");
	}
	return;
}

# The check names the values with damaged pages, by row and column, and no other; of each its problem.
sub check_names
{
	my ($name, %is_damaged) = @_;
	my %problems = map { split /\|/, $_, 2 } split /\n/, sql(q(SELECT t.id, problem FROM blobext_check('t') AS found
		LEFT JOIN t ON t.ctid = found.tid AND column_name = 'b' AND relation = 't'::regclass));
	my @expected = grep { my $id = $_; grep { $is_damaged{$_} } @{ $pages{$id} } } sort { $a <=> $b } keys %pages;
	is(join(' ', sort { $a <=> $b } keys %problems), "@expected", "$name: the check names each damaged value, and no other");
	return \%problems;
}

my $count = 0;
for (my $round = 1; $count < $flips; $round++)
{
	my $is_online = $round % 2 == 0;
	my $name = "round $round, " . ($is_online ? 'while the server runs' : 'while it is down');
	my %flipped = map { $_ => int(rand(8 * $page_bytes)) } choose_pages();
	$count += keys %flipped;
	$is_online ? $node->restart : $node->stop;
	flip_page($_, $flipped{$_}) foreach keys %flipped;
	$node->start if !$is_online;
	my %is_damaged = map { $_ => 1 } keys %flipped;
	reads_are_right($name, %is_damaged);
	my ($result, undef, $stderr) = $node->psql('postgres', 'SET blobext.io_method = ' . ($round % 4 < 2 ? 'sync' : 'auto')
		. q(; COPY t TO '/dev/null' (FORMAT binary)));
	like($stderr, qr/is damaged/, "$name: a scan of the table fails");
	my $problems = check_names($name, %is_damaged);
	unlike(join("\n", values %$problems), qr/the extent map has/, "$name: the check does not take damaged pages for a damaged map");
	flip_page($_, $flipped{$_}) foreach keys %flipped;
	is(sql('SELECT count(*) FROM t WHERE b::bytea <> c'), '0', "$name: all is right when the bits are back");
}
note("$count bits of pages flipped");

# ---- flips of checksums ----

# The bit of the map's file at which the sum of a page begins.
sub bit_of_sum
{
	my ($first, $extent_pages, $no, $kind) = @_;
	my $entry = $extent_pages == 1 ? $first : $first + 1 + int($no / 3);
	my $bit = $extent_pages > 1 ? (8, 64, 96)[ $no % 3 ] : $kind eq 'tail' ? 64 + 32 : 64 + 16;
	return map_bit($entry, $bit);
}

# Pages of these may have bytes that the content does not need; so may those of values that were changed in the middle.
my %is_compressed = map { $_ => 1 } split /\n/, sql("SELECT id FROM t WHERE blob_compression(b) <> 'none' OR blob_stored_length(b) > length(b)");
my $map_path = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('blobext_map')");
my ($map_count, %ways) = (0);
for (my $round = 1; $map_count < $flips / 10; $round++)
{
	my %is_chosen = map { $_ => 1 } choose_pages();
	my %bits;
	foreach my $extent (map { @$_ } values %$extents)
	{
		my ($first, $extent_pages, $value_pages, $kind) = @$extent;
		foreach my $no (grep { $is_chosen{ $first + $_ } } 0 .. $value_pages - 1)
		{
			$bits{ $first + $no } = bit_of_sum($first, $extent_pages, $no, $kind) + int(rand(32));
			$ways{ $extent_pages == 1 ? $kind : 'long' }++;
		}
	}
	$map_count += keys %bits;
	sql('CHECKPOINT');
	$node->stop;
	flip_bit($map_path, $_) foreach values %bits;
	$node->start;
	my $name = "round $round, flipped checksums";
	my %is_damaged = map { $_ => 1 } keys %bits;
	reads_are_right($name, %is_damaged);
	my $problems = check_names($name, %is_damaged);
	# Nothing else says what an open value should be.
	is(join("\n", grep { !/, whose digest is open, does not have its checksum$/ && !/^the extent map has a wrong checksum of page \d+, or of a page behind it; the content is right$/
			&& !/^page \d+, or its checksum in the extent map, is damaged; the content is right$/ } values %$problems),
		'', "$name: the check says that the map is damaged, and no page");
	is(join(' ', grep { $problems->{$_} =~ /, or its checksum/ && !$is_compressed{$_} } sort keys %$problems), '',
		"$name: the check is in doubt about compressed and changed values only");
	$node->stop;
	flip_bit($map_path, $_) foreach values %bits;
	$node->start;
	check_is_clean($node, "$name: the check finds nothing when the bits are back");
}
note("$map_count bits of checksums flipped");
is(join(' ', sort keys %ways), 'long tail tier', 'checksums of long extents, and of both kinds of one page, were among them');

# A bit of the state of an entry, or one that no checksum has: never an extent, nor a hole.
my ($id) = grep { !$is_compressed{$_} && grep { $_->[2] > 3 } @{ $extents->{$_} } } sort { $a <=> $b } keys %$extents;
my ($first, $extent_pages) = map { @$_ } grep { $_->[2] > 3 } @{ $extents->{$id} };
my $entry_page = $first + 1;
foreach my $bit (0, 2, 5, 7, 63)
{
	sql('CHECKPOINT');
	$node->stop;
	flip_bit($map_path, bit_of_sum($first, $extent_pages, 0) - 8 + $bit);
	$node->start;
	my $name = "bit $bit of an entry with checksums";
	my $said = sql("SELECT says('SELECT b::bytea = c FROM t WHERE id = $id')");
	if ($bit < 7) { like($said, qr/^the extent map lacks the checksum of page $first/, "$name: the value is not read"); }
	else { is($said, 'true', "$name: the value is read, since its checksums are there"); }
	like(sql('SELECT problem FROM blobext_check() WHERE column_name IS NULL'),
		qr/^the entry of page $entry_page has (an unknown state|bits besides its checksums)$/, "$name: the check names the entry");
	$node->stop;
	flip_bit($map_path, bit_of_sum($first, $extent_pages, 0) - 8 + $bit);
	$node->start;
}
check_is_clean($node, 'the check finds nothing when the entry is whole');

# ---- the map ----

# VACUUM FULL copies the map, and a crash replays SUMS.
sql('VACUUM FULL blobext_map');
sql(q(INSERT INTO t (c, b) SELECT c, c FROM t WHERE length(c) < 99999));
$node->stop('immediate');
$node->start;
is(sql('SELECT count(*) FROM t WHERE b::bytea <> c'), '0', 'values and checksums are there after a crash');
check_is_clean($node, 'the check finds nothing after a crash');
sql($_) foreach 'DELETE FROM t WHERE id % 2 = 0', 'VACUUM t', 'SELECT * FROM blobext_gc()', 'CHECKPOINT',
	'INSERT INTO t (c, b) SELECT c, c FROM t';
$node->restart;
is(sql('SELECT count(*) FROM t WHERE b::bytea <> c'), '0', 'pages that others had have the sums of their values');
$node->stop;

done_testing();
