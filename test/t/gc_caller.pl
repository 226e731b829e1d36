# The collector does not wait for the session that runs it.  So its statement must hold no value, and
# blobext_gc() is refused in any but the bare call.
#
# A value that a statement holds is kept by nothing else if the function that gave it read it in a
# subtransaction that it rolled back, which gives up the lock on the table, and the table is truncated
# while the collector waits.
#
# Seen to fail when only the place of the call was looked at: all statements that are refused with
# 0A000 here ran, and the INSERT committed a row whose content was gone (reading it failed with
# XB001).
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

my $node = blob_cluster('main', conf => q(
autovacuum = off
max_connections = 30
));
gc_use($node);
table('t', 2);
sql(q(CREATE TABLE s.t2 (id integer, b blobstate)),
	q(CREATE FUNCTION s.f() RETURNS blobstate LANGUAGE plpgsql AS $$ DECLARE v blobstate; BEGIN
		BEGIN SELECT b INTO v FROM s.t WHERE id = 1; RAISE EXCEPTION 'back';
		EXCEPTION WHEN raise_exception THEN NULL; END;
		RETURN v; END $$),
	q(CREATE FUNCTION s.folded() RETURNS s.t IMMUTABLE LANGUAGE plpgsql AS $$
		BEGIN RETURN (SELECT t FROM s.t WHERE id = 2); END $$),
	q(CREATE FUNCTION s.folded_blob() RETURNS blobstate IMMUTABLE LANGUAGE plpgsql AS $$
		BEGIN RETURN (SELECT b FROM s.t WHERE id = 2); END $$),
	q(CREATE FUNCTION s.folded_record() RETURNS record IMMUTABLE LANGUAGE plpgsql AS $$
		BEGIN RETURN (SELECT ROW(b) FROM s.t WHERE id = 2); END $$),
	q(CREATE FUNCTION s.yes_immutable(bigint) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
		$$ BEGIN RETURN true; END $$),
	q(CREATE DOMAIN s.count AS bigint CHECK (s.f() IS NULL OR value >= 0)),
	q(CREATE VIEW s.collect AS SELECT * FROM blobext_gc()));

# Says which round was the last one.
sub last_round
{
	return sql(q(SELECT started_at FROM blobext_gc_status));
}

# ---- the bare call ----

sub runs
{
	my ($statement, $like, $name) = @_;
	my $before = last_round();
	my ($result, $out, $error) = $node->psql('postgres', $statement);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($error, '', ($name // $statement) . ': it ends without an error');
	like($out, $like, ($name // $statement) . ': the result is that of a round');
	isnt(last_round(), $before, ($name // $statement) . ': a round has run');
	return;
}

runs('SELECT blobext_gc()', qr/^\(0,0,2,\d+,\)$/);
runs('SELECT * FROM blobext_gc(true)', qr/^0\|0\|2\|\d+\|$/);
runs('SELECT freed_blobs FROM blobext_gc()', qr/^0$/);
runs('SELECT (blobext_gc(dry_run => true)).live_blobs', qr/^2$/);
runs('SELECT g FROM blobext_gc(1 > 0) AS g', qr/^\(0,0,2,\d+,\)$/);
runs('SELECT freed_blobs + 1, pg_size_pretty(freed_bytes) AS freed, skipped_reason IS NULL AND freed_blobs < 5,
	live_blobs::text, coalesce(skipped_reason, \'-\') FROM blobext_gc() WHERE freed_blobs = 0',
	qr/^1\|0 bytes\|t\|2\|-$/, 'with built-in functions of the result');
runs('TABLE s.collect', qr/^0\|0\|2\|\d+\|$/);
runs('WITH unused AS MATERIALIZED (SELECT s.f()) SELECT freed_blobs FROM blobext_gc()', qr/^0$/);
runs('SELECT * FROM blobext_gc(true) \gx', qr/^freed_blobs\|0\nfreed_bytes\|0\nlive_blobs\|2\n/);
runs('PREPARE p(boolean, blobstate) AS SELECT freed_blobs FROM blobext_gc($1);
	EXECUTE p(true, s.f())', qr/^0$/, 'EXECUTE');
runs('SET plan_cache_mode = force_generic_plan; PREPARE p(boolean) AS SELECT blobext_gc($1); EXECUTE p(false)',
	qr/^\(0,0,2,\d+,\)$/, 'EXECUTE, generic plan');

my $client = RawClient->new($node, 'postgres');

# Parse, Bind and Execute with parameters as text.
sub execute_with
{
	my ($statement, @parameters) = @_;
	$client->{row_limit} = 0;
	$client->send('P', "\0$statement\0" . pack('n', 0));
	$client->send('B', "\0\0" . pack('nn', 0, scalar @parameters)
		. join('', map { pack('N', length $_) . $_ } @parameters) . pack('nn', 1, 0));
	$client->execute;
	return $client->finish;
}

my ($rows, $error) = execute_with('SELECT live_blobs FROM blobext_gc($1)', 'true');
is(($error // '') . $rows->[0][0], '2', 'blobext_gc() runs in the extended protocol with a parameter');
($rows, $error) = $client->extended('SELECT freed_blobs, live_blobs FROM blobext_gc()', [1], 0);
is(($error // '') . unpack('H*', join '', @{ $rows->[0] // [] }), '00000000000000000000000000000002',
	'blobext_gc() runs in the extended protocol with a binary result');
($rows, $error) = $client->extended('SELECT * FROM blobext_gc()', [0], 1);
is(($error // '') . $rows->[0][2], '2', 'blobext_gc() runs in the extended protocol with a row limit');
# PostgreSQL 18 takes the second Execute of a portal for a part of a pipeline, and leaves a transaction open
# that such a statement has ended: the next one on this connection is an error of the server's.
$client->close;
$client = RawClient->new($node, 'postgres');

# ---- others ----

sub refused
{
	my ($statement, $name, $state, $like) = @_;
	my $before = last_round();
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	fails_with($node, $statement, $state // '0A000', $like // qr/must be all that its statement does/,
		($name // $statement) . ': it is refused');
	is(last_round(), $before, ($name // $statement) . ': no round has run');
	return;
}

refused('SELECT s.f(), blobext_gc()');
refused('SELECT blobext_gc(), s.f()');
refused('SELECT s.f(), * FROM blobext_gc()');
refused('SELECT (blobext_gc()).*', 'five calls');
refused('VALUES (blobext_gc())');
refused('SELECT blobext_gc(), blobext_gc()');
refused('SELECT * FROM blobext_gc() AS a, blobext_gc(true) AS b');
refused('WITH x AS MATERIALIZED (SELECT s.f() AS b) SELECT b, blobext_gc() FROM x');
refused('WITH x AS MATERIALIZED (SELECT s.f() AS b) SELECT blobext_gc() UNION ALL SELECT NULL FROM x');
refused('SELECT (SELECT s.f()), blobext_gc()');
refused('SELECT blobext_gc(), (SELECT b FROM s.t LIMIT 1)');
refused('SELECT b, blobext_gc() FROM s.t');
refused('SELECT b, freed_blobs FROM s.t, blobext_gc()');
refused('SELECT * FROM blobext_gc(s.f() IS NULL)');
refused('SELECT * FROM blobext_gc((SELECT s.f()) IS NULL)');
refused('SELECT blobext_gc() WHERE s.f() IS NOT NULL');
refused('SELECT * FROM blobext_gc() WHERE s.f() IS NOT NULL');
refused('SELECT * FROM blobext_gc() WHERE s.yes_immutable(freed_blobs)');
refused('SELECT blobext_gc() LIMIT length(s.f())');
refused('SELECT * FROM blobext_gc() ORDER BY s.f()');
refused('SELECT count(s.f()) FROM blobext_gc()');
refused('SELECT generate_series(1, 2), blobext_gc()');
refused('SELECT * FROM ROWS FROM (s.f(), blobext_gc())');
refused('SELECT s.folded_blob(), blobext_gc()', 'a folded value');
refused('SELECT s.folded(), blobext_gc()', 'a folded row');
refused('SELECT ARRAY[s.folded_blob()], blobext_gc()', 'a folded array');
refused('SELECT s.folded_record(), blobext_gc()', 'a folded record');
refused('SELECT freed_blobs::s.count FROM blobext_gc()', 'a domain');
refused('SELECT query_to_xml($$SELECT s.f()$$, true, true, $$$$), blobext_gc()', 'a query in a function');
refused('PREPARE p(blobstate) AS SELECT $1, blobext_gc(); EXECUTE p(s.f())', 'a parameter');
refused('SET plan_cache_mode = force_generic_plan; PREPARE p(blobstate) AS SELECT $1, blobext_gc();
	EXECUTE p(s.f())', 'a parameter of a generic plan');
refused('CREATE FUNCTION s.g() RETURNS bigint LANGUAGE sql AS $$ SELECT freed_blobs FROM blobext_gc() $$;
	SELECT s.f(), s.g()', 'in an SQL function', '25001', qr/from a function/);
refused('EXPLAIN ANALYZE SELECT s.f(), blobext_gc()');
refused('COPY (SELECT s.f(), blobext_gc()) TO STDOUT');
refused('PREPARE p(bigint) AS SELECT 1; EXECUTE p((blobext_gc()).freed_blobs)', 'an argument of EXECUTE');
refused('CREATE PROCEDURE s.p(n bigint, b blobstate) LANGUAGE plpgsql AS $$ BEGIN NULL; END $$;
	CALL s.p((blobext_gc()).freed_blobs, s.f())', 'an argument of CALL');
refused('DELETE FROM s.t WHERE s.f() IS NULL OR (blobext_gc()).freed_blobs > 0');
refused('INSERT INTO s.t2 SELECT freed_blobs, s.f() FROM blobext_gc()', 'INSERT');

# In a pipeline: a portal that is suspended, or a statement before, in the same transaction.
foreach my $limit (0, 1)
{
	$client->{row_limit} = 0;
	foreach my $statement ([ 'a', 'SELECT b FROM s.t', $limit ], [ 'b', 'SELECT blobext_gc()', 0 ])
	{
		my ($portal, $text, $rows_wanted) = @$statement;
		$client->send('P', "\0$text\0" . pack('n', 0));
		$client->send('B', "$portal\0\0" . pack('nnn', 0, 0, 0));
		$client->send('E', "$portal\0" . pack('N', $rows_wanted));
	}
	# The client's finish() would go on with the suspended portal, by its empty name.
	$client->send('S', '');
	my $failed = '';
	while (my ($type, $body) = $client->message)
	{
		$failed = $body if $type eq 'E';
		last if $type eq 'Z';
	}
	like($failed, qr/C25001\0.*(within a pipeline|inside a transaction block)/s,
		"in a pipeline, row limit $limit");
}
$client->close;

# ---- a value that would be lost ----

sql('TRUNCATE s.t2', 'TRUNCATE s.t', 'INSERT INTO s.t VALUES (1, value(1))');
my $first = session('BEGIN', 'SELECT 1');
my $insert = session();
my $insert_pid = pid($insert);
$insert->query_until(qr/start/, q(\echo start
WITH held AS MATERIALIZED (SELECT s.f() AS b),
	collected AS MATERIALIZED (SELECT b, blobext_gc() FROM held)
INSERT INTO s.t2 SELECT 1, b FROM collected;
));
# It waits, or its session has ended with an error.
poll(qq(SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $insert_pid)
	OR EXISTS (SELECT FROM blobext_gc_status WHERE waiting_for IS NOT NULL)));
sql('TRUNCATE s.t');
$first->query_safe('COMMIT');
poll(qq(SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $insert_pid AND state <> 'idle'));
is(sql(q(SELECT count(*) FROM s.t2)), '0', 'nothing is stored by a statement that is refused');
check_is_clean($node, 'no row has lost its content');

forget_sessions();
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');
done_testing();
