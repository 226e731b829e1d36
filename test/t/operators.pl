# Operators where the search_path is empty: statements of postgres_fdw, and triggers that the apply
# worker of logical replication fires.
#
# With extensions = 'blobext' a foreign server gets conditions, joins and orders as SQL, with all
# operators.  Also from a server that has the objects of 0.3.0, and names them with their schema.
#
# Seen to fail: with the operators in the schema of the extension ("operator does not exist", of
# NULLIF, IS DISTINCT FROM and CASE, by postgres_fdw).
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 33);

my $node = blob_cluster('main', streaming => 'logical', conf => "wal_level = logical\nautovacuum = off\n");

# ---- postgres_fdw ----

$node->safe_psql('postgres', q(
	CREATE TABLE t (id int PRIMARY KEY, b blobstate, c blobstate, d bytea);
	INSERT INTO t SELECT i, decode(repeat(to_hex(i % 7 + 16), i * 30), 'hex'), decode(repeat(to_hex(i % 5 + 16), i * 30), 'hex'),
		decode(repeat(to_hex(i % 3 + 16), i * 30), 'hex') FROM generate_series(1, 200) AS i;
	CREATE TABLE changed (LIKE t);
	ANALYZE));
my ($host, $port) = ($node->host, $node->port);
foreach my $database ('near', 'near_0_3')
{
	my $version = $database eq 'near' ? '' : q(VERSION '0.3.0');
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, qq(
		CREATE EXTENSION blobext $version; CREATE EXTENSION postgres_fdw;
		CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres', extensions 'blobext',
				fdw_startup_cost '100000', fdw_tuple_cost '100');
		CREATE USER MAPPING FOR PUBLIC SERVER far;
		CREATE FOREIGN TABLE t (id int, b blobstate, c blobstate, d bytea) SERVER far;
		CREATE FOREIGN TABLE changed (id int, b blobstate, c blobstate, d bytea) SERVER far));
}

my @conditions = ('b = c', 'b <> d', 'd = b', 'c < b', 'b >= d', 'd <= b', q(b IN (c, '\x10')),
	'b BETWEEN c AND d', q(b LIKE '\021%'), q(b NOT LIKE '\021%'), 'b IS DISTINCT FROM c', 'b IS NOT DISTINCT FROM d',
	'length(b) > 100', q(sha256(b) <> sha256(c)),
	q(SUBSTRING(b FROM 1 FOR 1) = '\x11'), q(POSITION('\x11' IN b) = 1), 'b::bytea = d');
push @conditions, 'CASE b WHEN c THEN true ELSE b > d END';
# postgres_fdw sends no volatile function, no NULLIF, no comparison of rows, no text with a collation, no constant of a
# type that is no member itself, as the array.
my @local = ('b || c <> c || b', '(id, b) < (id, c)', 'nullif(b, c) IS NULL', 'md5(b) <> md5(c)', q(b NOT IN ('\x10', '\x11')));

sub same
{
	my ($database, $query, $name, $sent) = @_;
	my $expected = $node->safe_psql('postgres', $query);
	my ($status, $found, $errors) = $node->psql($database, $query);
	is("$found$errors", $expected, "$database: $name: the result") or return;
	return if !defined $sent;
	my $plan = $node->safe_psql($database, "EXPLAIN (VERBOSE, COSTS OFF) $query");
	like($plan, $sent, "$database: $name: what is sent");
	return;
}

foreach my $database ('near', 'near_0_3')
{
	foreach my $condition (@conditions)
	{
		my $plan = $node->safe_psql($database, "EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t WHERE $condition");
		# With objects of 0.3.0 these are sent by the name that the far server finds since.
		unlike($plan, qr/Filter:/, "$database: $condition is sent");
		same($database, "SELECT id FROM t WHERE $condition ORDER BY id", $condition);
	}
	same($database, "SELECT id FROM t WHERE $_ ORDER BY id", $_) foreach @local;
	same($database, 'SELECT id, b FROM t ORDER BY b DESC, id LIMIT 20', 'an order', qr/Remote SQL: .*ORDER BY b DESC/);
	same($database, 'SELECT id FROM (SELECT * FROM t ORDER BY b USING *<, id LIMIT 20) AS s ORDER BY id', 'an order by digest');
	same($database, 'SELECT x.id, y.id FROM t AS x JOIN t AS y ON x.b = y.c AND x.id = y.id ORDER BY 1, 2', 'a join',
		qr/Remote SQL: .*INNER JOIN/);
	same($database, 'SELECT x.id FROM t AS x JOIN t AS y USING (b, c) ORDER BY 1', 'a join by USING', qr/Remote SQL: .*INNER JOIN/);
	same($database, 'SELECT min(b), max(c), count(DISTINCT b) FROM t', 'aggregates');
	same($database, 'SELECT b, count(*) FROM t GROUP BY b HAVING b > min(c) ORDER BY b', 'groups');
	$node->safe_psql('postgres', 'TRUNCATE changed; INSERT INTO changed SELECT * FROM t');
	my $plan = $node->safe_psql($database, q(EXPLAIN (VERBOSE, COSTS OFF)
		UPDATE changed SET c = b WHERE b IS DISTINCT FROM c));
	like($plan, qr/Remote SQL: UPDATE/, "$database: an UPDATE is sent");
	$node->safe_psql($database, q(UPDATE changed SET c = b WHERE b IS DISTINCT FROM c));
	is($node->safe_psql('postgres', 'SELECT count(*) FROM changed WHERE b IS DISTINCT FROM c'), '0',
		"$database: an UPDATE changes all rows");
}

# ---- logical replication ----

$node->safe_psql('postgres', q(
	CREATE TABLE r (id int PRIMARY KEY, b blobstate);
	ALTER TABLE r REPLICA IDENTITY FULL;
	CREATE PUBLICATION p FOR TABLE r;
	SELECT pg_create_logical_replication_slot('s', 'pgoutput')));
$node->safe_psql('near', q(
	CREATE TABLE r (id int, b blobstate);
	CREATE TABLE log (event text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.log VALUES (pg_catalog.concat_ws(' ', TG_OP, NEW.id, nullif(NEW.b, '\x61') IS NULL,
			NEW.b IS DISTINCT FROM '\x61', NEW.b = '\x61', CASE NEW.b WHEN '\x61' THEN 1 ELSE 2 END,
			(NEW.id, NEW.b) < (NEW.id, '\x62'::public.blobstate), NEW.b IN ('\x61', '\x63'), NEW.b LIKE 'a%',
			NEW.b BETWEEN '\x60' AND '\x61'));
		NEW.b := NEW.b || '\x2b';
		RETURN NEW;
	END $$;
	CREATE TRIGGER note BEFORE INSERT OR UPDATE ON r FOR EACH ROW EXECUTE FUNCTION note();
	ALTER TABLE r ENABLE ALWAYS TRIGGER note));
$node->safe_psql('near', "CREATE SUBSCRIPTION s CONNECTION 'host=$host port=$port dbname=postgres' PUBLICATION p
	WITH (create_slot = false, slot_name = s, copy_data = false)");
$node->safe_psql('postgres', q(INSERT INTO r VALUES (1, 'a'), (2, 'b')));
$node->safe_psql('postgres', q(INSERT INTO r SELECT 3, decode(repeat('61', 5000), 'hex')));
$node->wait_for_catchup('s');
is($node->safe_psql('near', 'SELECT event FROM log ORDER BY event'),
	"INSERT 1 t f t 1 t t t t\nINSERT 2 f t f 2 f f f f\nINSERT 3 f t f 2 t f t f",
	'a trigger that the apply worker fires finds operators');
is($node->safe_psql('near', q(SELECT id, length(b), substr(b, length(b)) FROM r ORDER BY id)), "1|2|\\x2b\n2|2|\\x2b\n3|5001|\\x2b",
	'a trigger that the apply worker fires appends');
$node->safe_psql('near', 'DROP SUBSCRIPTION s');
check_is_clean($node, 'the check finds nothing');
$node->stop;

done_testing();
