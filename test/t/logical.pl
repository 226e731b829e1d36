# Logical replication: initial copy and apply, as text and in binary form.
#
# A publisher with tables of each kind: REPLICA IDENTITY DEFAULT, FULL (rows are found by comparing
# all columns), an index on content, and bytea on one side and blobstate on the other.  Values are
# copied, inserted, appended to, changed, deleted; on the subscriber they are equal, and in extents
# where they are long.  A slot that lags behind holds the collector back, and blobext_gc_status says
# so; the subscriber's collector frees deleted content.  Another publisher does not have blobext,
# and sends bytea.
#
# Seen to fail: without the collector's check of slots; with an extent map that looks to walsenders
# like any table (FOR ALL TABLES publishes it, and its initial copy never ends).
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 63);

my @tables = ('by_key', 'by_all', 'indexed', 'from_bytea', 'to_bytea', 'parted');
my $publisher = blob_cluster('publisher', streaming => 'logical', conf => "wal_level = logical\nautovacuum = off\n");
my $subscriber = blob_cluster('subscriber', streaming => 'logical', conf => "wal_level = logical\nautovacuum = off\n");

sub tables
{
	my ($node, %types) = @_;
	$node->safe_psql('postgres', qq(
		CREATE TABLE by_key (id int PRIMARY KEY, digest text, b blobstate);
		CREATE TABLE by_all (id int, digest text, b blobstate);
		CREATE TABLE indexed (id int PRIMARY KEY, digest text, b blobstate UNIQUE);
		CREATE TABLE from_bytea (id int PRIMARY KEY, digest text, b $types{from_bytea});
		CREATE TABLE to_bytea (id int PRIMARY KEY, digest text, b $types{to_bytea});
		CREATE TABLE parted (id int PRIMARY KEY, digest text, b blobstate) PARTITION BY HASH (id);
		CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		ALTER TABLE by_all REPLICA IDENTITY FULL;
		ALTER TABLE parted_1 REPLICA IDENTITY FULL));
	return;
}
tables($publisher, from_bytea => 'bytea', to_bytea => 'blobstate');
tables($subscriber, from_bytea => 'blobstate', to_bytea => 'bytea');

sub fill
{
	my ($first, @sizes) = @_;
	foreach my $table (@tables)
	{
		my $id = $first;
		my $sql = '';
		foreach my $size (@sizes)
		{
			my $bytes = content("$table.$id", $size);
			$sql .= sprintf("INSERT INTO %s VALUES (%d, encode(sha256(%s::bytea), 'hex'), %s);\n",
				$table, $id, (literal($bytes)) x 2);
			$id++;
		}
		$publisher->safe_psql('postgres', $sql);
	}
	return;
}

# Rows, and that their content has the digest beside it.
sub agree
{
	my ($name) = @_;
	$publisher->wait_for_catchup('sub');
	foreach my $table (@tables)
	{
		my $rows = "SELECT id, digest, encode(sha256(b::bytea), 'hex') = digest, octet_length(b)
			FROM $table ORDER BY id";
		my $here = $publisher->safe_psql('postgres', $rows);
		is($subscriber->safe_psql('postgres', $rows), $here, "$name: the subscriber's $table has the rows of the publisher");
		unlike($here, qr/\|f\|/, "$name: $table has what was stored");
		next if $table eq 'to_bytea';
		is($subscriber->safe_psql('postgres', "SELECT count(*) FROM $table
			WHERE length(b) > 1900 AND blob_storage(b) <> 'extents'"), '0',
			"$name: $table is in extents");
	}
	check_is_clean($subscriber, "$name: the check finds nothing");
	return;
}

my @special = (0, 1, 33, 1_899, 1_900, 1_901, 4_096, 4_097, 70_000, 300_001);

# Others, as an index is unique.
my @more = (32, 40, 1_898, 1_902, 4_095, 4_098, 65_536, 300_000);

foreach my $form ('text', 'binary')
{
	my $binary = $form eq 'binary' ? 'true' : 'false';
	fill(1, @special, 3_000_000);
	$publisher->safe_psql('postgres', 'CREATE PUBLICATION pub FOR ALL TABLES
		WITH (publish_via_partition_root = true)') if $form eq 'text';
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION sub CONNECTION '" .
		$publisher->connstr . " dbname=postgres' PUBLICATION pub WITH (binary = $binary)");
	$subscriber->wait_for_subscription_sync($publisher, 'sub');
	agree("$form, initial copy");

	fill(100, @more, 5_000_000);
	agree("$form, inserted");
	foreach my $table (@tables)
	{
		my $append = $table eq 'from_bytea' ? 'b || e' : 'blob_append(b, e)';
		$publisher->safe_psql('postgres', "
			UPDATE $table SET b = $append FROM (SELECT convert_to(repeat('a' || id, 2000), 'UTF8')
				AS e, id AS i FROM $table) AS s WHERE i = id AND id % 3 = 0;
			UPDATE $table SET digest = encode(sha256(b::bytea), 'hex') WHERE id % 3 = 0;
			UPDATE $table SET id = id + 1000 WHERE id IN (5, 105, 109);
			DELETE FROM $table WHERE id % 3 = 1");
	}
	agree("$form, appended, moved, deleted");
	# The same row twice: REPLICA IDENTITY FULL takes one of them.
	$publisher->safe_psql('postgres', q(INSERT INTO by_all SELECT * FROM by_all WHERE id = 109;
		DELETE FROM by_all WHERE ctid IN (SELECT min(ctid) FROM by_all GROUP BY id
			HAVING count(*) > 1); UPDATE by_all SET b = 'short' WHERE id = 3));
	$publisher->safe_psql('postgres', q(UPDATE by_all SET digest = encode(sha256(b), 'hex')
		WHERE id = 3));
	agree("$form, rows found by all columns");
	is($subscriber->safe_psql('postgres', q(SET enable_seqscan = off; SELECT count(*) FROM indexed AS a
		JOIN indexed AS c ON a.b = c.b)), $subscriber->safe_psql('postgres',
		'SELECT count(*) FROM indexed'), "$form: the index on content finds all");
	unlike(slurp_file($subscriber->logfile), qr/ERROR/, "$form: no errors on the subscriber");
	if ($form eq 'text')
	{
		$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
		$publisher->safe_psql('postgres', "TRUNCATE " . join(', ', @tables));
		$subscriber->safe_psql('postgres', "TRUNCATE " . join(', ', @tables));
	}
}

# ---- a slot that lags behind holds the collector back ----

sub collect
{
	my ($node) = @_;
	$node->safe_psql('postgres', 'VACUUM');
	return split /\|/, $node->safe_psql('postgres', q(SET client_min_messages = warning;
		SET blobext.gc_wait_timeout = '3s';
		SELECT freed_blobs > 0, skipped_reason FROM blobext_gc())), 2;
}

$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION sub DISABLE');
$publisher->poll_query_until('postgres',
	q(SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'sub'));
$publisher->safe_psql('postgres', 'DELETE FROM by_all WHERE id >= 100');
my ($freed, $reason) = collect($publisher);
is($freed, 'f', 'lagging slot: nothing is freed');
like($reason, qr/logical replication slot "sub" has not confirmed/, 'lagging slot: it says so');
like($publisher->safe_psql('postgres', 'SELECT skipped_reason FROM blobext_gc_status'),
	qr/logical replication slot "sub"/, 'lagging slot: so does the view');
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION sub ENABLE');
agree('after the lag');
my $is_free = 0;
for (1 .. 20)
{
	$publisher->safe_psql('postgres', 'CHECKPOINT');
	($freed, $reason) = collect($publisher);
	last if $is_free = $freed eq 't';
}
ok($is_free, 'a value that the subscriber has got is freed') or diag($reason);
($freed, $reason) = collect($subscriber);
is($freed, 't', 'the subscriber frees what was deleted') or diag($reason);
agree('after the collectors');

# ---- a publisher that knows nothing of blobext ----

my $plain = PostgreSQL::Test::Cluster->new('plain');
$plain->init(allows_streaming => 'logical');
$plain->start;
my @plain_tables = ('plain_key', 'plain_full');
foreach my $node ($plain, $subscriber)
{
	my $type = $node == $plain ? 'bytea' : 'blobstate';
	$node->safe_psql('postgres', "CREATE TABLE plain_key (id int PRIMARY KEY, b $type);
		CREATE TABLE plain_full (id int, b $type);
		ALTER TABLE plain_full REPLICA IDENTITY FULL");
}
$plain->safe_psql('postgres', 'CREATE PUBLICATION pub FOR TABLE ' . join(', ', @plain_tables));
my $long = q(decode(repeat(md5(i::text), i * 500), 'hex'));
foreach my $binary ('false', 'true')
{
	$plain->safe_psql('postgres', "INSERT INTO $_ SELECT i, $long FROM generate_series(1, 60) AS i")
	  foreach @plain_tables;
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION plain CONNECTION '" . $plain->connstr .
		" dbname=postgres' PUBLICATION pub WITH (binary = $binary)");
	$subscriber->wait_for_subscription_sync($plain, 'plain');
	foreach my $table (@plain_tables)
	{
		$plain->safe_psql('postgres', "
			INSERT INTO $table SELECT i, $long FROM generate_series(101, 130) AS i;
			UPDATE $table SET b = b || 'more' WHERE id % 4 = 0;
			UPDATE $table SET id = id + 1000 WHERE id % 4 = 1;
			DELETE FROM $table WHERE id % 4 = 2");
	}
	$plain->wait_for_catchup('plain');
	foreach my $table (@plain_tables)
	{
		my $rows = "SELECT id, encode(sha256(b), 'hex') FROM $table ORDER BY id";
		my $here = $plain->safe_psql('postgres', $rows);
		is($subscriber->safe_psql('postgres', $rows), $here, "plain publisher, binary $binary: $table");
		is(scalar(split /\n/, $here), 67, 'the plain publisher has all 67 rows');
		is($subscriber->safe_psql('postgres',
			"SELECT count(*) FROM $table WHERE blob_storage(b) <> 'extents'"), '0', 'values from a plain publisher are stored in extents');
		$_->safe_psql('postgres', "TRUNCATE $table") foreach ($plain, $subscriber);
	}
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION plain');
}
$plain->stop;

# The apply worker is killed while it has stored values and not committed.
fill(2_000, (map { $_ + 100 } @more), 5_000_000);
kill_everything($subscriber);
$subscriber->start;
agree('subscriber killed');

# ---- row filters ----
# PostgreSQL refuses user-defined types, operators and functions in them.  Columns of its own types
# that say something about the content serve: a stored generated one where only INSERT is
# published, one that a trigger sets where it is to be part of the replica identity.

$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
$publisher->safe_psql('postgres', 'DROP PUBLICATION pub');
foreach my $node ($publisher, $subscriber)
{
	$node->safe_psql('postgres', q(
		CREATE TABLE loaded (id int PRIMARY KEY, b blobstate,
			bytes bigint GENERATED ALWAYS AS (length(b)) STORED);
		CREATE TABLE routed (id int PRIMARY KEY, b blobstate, bytes bigint NOT NULL);
		CREATE UNIQUE INDEX routed_identity ON routed (id, bytes);
		ALTER TABLE routed REPLICA IDENTITY USING INDEX routed_identity;
		CREATE FUNCTION set_bytes() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN NEW.bytes := length(NEW.b); RETURN NEW; END $$;
		CREATE TRIGGER set_bytes BEFORE INSERT OR UPDATE ON routed
			FOR EACH ROW EXECUTE FUNCTION set_bytes()));
}
foreach my $filter ("b = '\\x01'", 'length(b) < 10000', 'b IS NOT NULL', 'b::bytea IS NOT NULL')
{
	my ($code, undef, $error) = $publisher->psql('postgres', "\\set VERBOSITY verbose
		CREATE PUBLICATION refused FOR TABLE loaded WHERE ($filter)");
	like($error, qr/0A000: invalid publication WHERE expression/, "row filter $filter is refused");
}
$publisher->safe_psql('postgres', q(
	CREATE PUBLICATION loaded FOR TABLE loaded WHERE (bytes < 10000) WITH (publish = 'insert');
	CREATE PUBLICATION routed FOR TABLE routed WHERE (bytes < 10000);
	INSERT INTO loaded SELECT i, convert_to(repeat('a', i * 1000), 'UTF8') FROM generate_series(1, 15) i;
	INSERT INTO routed SELECT i, convert_to(repeat('a', i * 1000), 'UTF8'), 0 FROM generate_series(1, 15) i));
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION filtered CONNECTION '" . $publisher->connstr .
	" dbname=postgres' PUBLICATION loaded, routed");
$subscriber->wait_for_subscription_sync($publisher, 'filtered');

sub filtered
{
	my ($name) = @_;
	$publisher->wait_for_catchup('filtered');
	foreach my $table ('loaded', 'routed')
	{
		my $rows = "SELECT id, bytes, encode(sha256(b), 'hex') FROM $table WHERE bytes < 10000 ORDER BY id";
		is($subscriber->safe_psql('postgres', $rows), $publisher->safe_psql('postgres', $rows),
			"row filter, $name: $table has the rows that pass");
		is($subscriber->safe_psql('postgres', "SELECT count(*) FROM $table WHERE bytes >= 10000"), '0',
			"row filter, $name: $table has no other rows");
	}
	return;
}
filtered('initial copy');
$publisher->safe_psql('postgres', q(
	INSERT INTO loaded SELECT i, convert_to(repeat('b', i * 900), 'UTF8') FROM generate_series(101, 115) i;
	INSERT INTO loaded VALUES (201, 'short'), (202, convert_to(repeat('c', 5000), 'UTF8'));
	INSERT INTO routed VALUES (201, 'short', 0), (202, convert_to(repeat('c', 5000), 'UTF8'), 0);
	UPDATE routed SET b = b || 'more' WHERE id = 3;
	UPDATE routed SET b = b || convert_to(repeat('d', 20000), 'UTF8') WHERE id = 4;
	UPDATE routed SET b = 'short now' WHERE id = 14;
	DELETE FROM routed WHERE id IN (5, 15)));
filtered('changes');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM routed WHERE id IN (3, 14)'), '2',
	'a row that a change brings into the filter arrives');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM routed WHERE id IN (4, 5)'), '0',
	'a row that a change takes out of the filter goes');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION filtered');
$subscriber->stop;
$publisher->stop;

done_testing();
