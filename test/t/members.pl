# Only members of the extension are taken for its objects.
#
# The owner of the extension's schema makes functions, views and tables with the names that the library
# looks up: beside SQL objects of each older version, which lack some of them, and in the place of
# members that were taken from the extension.  None of them ever runs or is taken for the extension's own,
# also for a superuser; ALTER EXTENSION UPDATE does not adopt any, and says what is in the
# way.  A member that was added without an invalidation, as pg_upgrade adds it, is found.
#
# Seen to fail with look-ups by name alone: the function of the schema's owner ran as the superuser who
# stored a value (0.1.0, 0.2.0), as the one who fetched from the database of 0.2.0, and in the place of each
# function that was taken from the extension.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $node = blob_cluster('main', create => 0);
my $large = q(convert_to(repeat('large', 1000), 'UTF8'));

# A stranger's function leaves a line in the server's log, also after a rollback.
my $body = q(LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'a stranger runs as %', current_user; RETURN NULL; END $$);

sub ran
{
	return scalar(() = slurp_file($node->logfile) =~ /a stranger runs as/g);
}

sub none_ran
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(ran(), 0, $name);
}

$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
sub make_database
{
	my ($database, $version) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database OWNER stranger");
	$node->safe_psql($database, 'ALTER SCHEMA public OWNER TO stranger;
		CREATE EXTENSION blobext' . ($version ? " VERSION '$version'" : ''));
	return;
}

sub as_stranger
{
	my ($database, $sql) = @_;
	return $node->safe_psql($database, "SET ROLE stranger; $sql");
}

# The functions that the library looks up, as its table in core/catalog.c has them, and those that it asks
# other servers for.
my $source = slurp_file("$ENV{BLOBEXT_SOURCE_DIR}/src/core/catalog.c");
my @looked_up = map { my ($name, $arguments) = @$_;
	"$name(" . join(', ', map { $_ eq 'SELF' ? 'blobstate' : lc(s/OID$//r) } split /, /, $arguments) . ')' }
  map { [ /"(\w+)", \d, \{([\w, ]+)\}/ ] } $source =~ /(\[BLOB_FUNCTION_\w+\] = \{.*?\}\})/g;
my @names = $source =~ /^\t(\[BLOB_FUNCTION_\w+\] =)/gm;
cmp_ok(scalar @looked_up, '>=', 15, 'functions that are looked up are known');
is(scalar @looked_up, scalar @names, 'each row of the table was read');
push @looked_up, 'blobext_source(pg_lsn)', 'blobext_source_read(text, bigint, bigint, bigint, bigint, bigint,
	pg_lsn, integer, boolean, boolean, pg_lsn)';

# ---- SQL objects of older versions ----

foreach my $version ('0.1.0', '0.2.0', '0.3.0')
{
	my $database = 'old_' . ($version =~ s/\D//gr);
	make_database($database, $version);
	my @missing;
	foreach my $function (grep { !/internal/ } @looked_up)
	{
		next if $node->safe_psql($database, "SELECT to_regprocedure('$function')") ne '';
		push @missing, $function;
		as_stranger($database, "CREATE FUNCTION $function RETURNS " .
			($function =~ /^blob_store\(/ ? 'blobstate' : 'text') . " $body");
	}
	cmp_ok(scalar @missing, '>', $version eq '0.3.0' ? 0 : 5, "$version: functions that it lacks are there as a stranger's");
	$node->safe_psql($database, "CREATE TABLE v (id serial, b blobstate); CREATE DOMAIN d AS blobstate;
		CREATE TABLE w (b d); CREATE TABLE x (b blobstate[]);
		INSERT INTO v (b) VALUES (${large}::blobstate), ($large), ('small'), (convert_from($large, 'UTF8')::blobstate);
		INSERT INTO v (b) SELECT b FROM v; INSERT INTO w SELECT b FROM v; INSERT INTO x SELECT ARRAY[b] FROM v;
		UPDATE v SET b = $large || '\\x31' WHERE id = 2;
		MERGE INTO v USING w ON false WHEN NOT MATCHED THEN INSERT (b) VALUES (w.b);
		PREPARE p(bytea) AS INSERT INTO v (b) VALUES (\$1); EXECUTE p($large);
		CREATE TABLE y AS SELECT b FROM v; COPY v (b) FROM PROGRAM 'echo content';
		SELECT blob_storage(b), b::bytea FROM v; SELECT * FROM blobext_check()");
	none_ran("$version: a superuser stores values, and no function of a stranger runs");
	is($node->safe_psql($database, q(SELECT count(*) FROM v WHERE blob_storage(b) = 'extents')),
		'13', "$version: values are stored by the functions that it has");
	# The view that takes pieces, where it is not the extension's.
	if ($version ne '0.3.0')
	{
		as_stranger($database, 'CREATE VIEW blob_upload_pieces AS SELECT 1::bigint AS upload, NULL::bytea AS data');
		fails_with($node, "COPY blob_upload_pieces FROM STDIN (FORMAT binary);\n\\.\n", '22P04', qr/copyfromparse\.c/,
			"$version: COPY to a stranger's view is no upload", database => $database);
		as_stranger($database, 'DROP VIEW blob_upload_pieces');
	}
	if (grep { /^blobext_source\(/ } @missing)
	{
		my $host = $node->host;
		my $port = $node->port;
		make_database("new_$database");
		fails_with($node, "SELECT * FROM blobext_fetch('host=$host port=$port dbname=$database')", '55000',
			qr/no extension blobext of version 0\.3\.0 or newer/, "$version: a stranger's function is no source",
			database => "new_$database");
		none_ran("$version: a superuser fetches, and no function of a stranger runs there");
	}
	foreach my $function (@missing)
	{
		my ($name) = $function =~ /^(\w+)/;
		fails_with($node, 'ALTER EXTENSION blobext UPDATE', '42723',
			qr/function "\w+" already exists.*HINT:  .*does not belong to it.*rename or drop it/s,
			"$version: $name of a stranger is in the way of an update", database => $database)
		  if $name eq 'blob_store';
		as_stranger($database, "DROP FUNCTION $function");
	}
	$node->safe_psql($database, "ALTER EXTENSION blobext UPDATE; INSERT INTO v (b) VALUES ($large || '2');
		SELECT * FROM blobext_space('v', 'b'); CALL blobext_recompress('v', 'b'); SELECT blobext_browse('v')");
	is($node->safe_psql($database, q(SELECT count(*) FROM pg_proc AS p WHERE proname ~ '^blob' AND proowner = 'stranger'::regrole)),
		'0', "$version: after the update no function is a stranger's");
	none_ran("$version: an updated extension uses its own functions");
}

# ---- members that were taken from the extension ----

make_database('taken');
my $host = $node->host;
my $port = $node->port;
my $workload = "INSERT INTO v (b) VALUES ($large), (${large}::blobstate); UPDATE v SET b = $large WHERE id = 1;
SELECT * FROM blobext_space('v', 'b');
SELECT * FROM blobext_space('w', 'b');
SELECT blobext_browse('v');
SELECT * FROM v_browse;
SELECT blobext_browse('x');
SELECT * FROM x_browse;
SELECT blob_intern('v', 'b', $large);
SELECT blob_intern('w', 'b', $large);
SELECT blobext_set_compression('v', 'b', 'lz4');
CALL blobext_recompress('v', 'b');
CALL blobext_dedup('v', 'b');
SELECT * FROM blobext_check();
SELECT * FROM blobext_gc();
SELECT * FROM blobext_fetch('host=$host port=$port dbname=taken');
VACUUM FULL v; ANALYZE v;";
sub prepare
{
	$node->safe_psql('taken', "DROP TABLE IF EXISTS v, w, x CASCADE; DROP DOMAIN IF EXISTS d;
		CREATE TABLE v (id serial, b blobstate); CREATE DOMAIN d AS blobstate; CREATE TABLE w (b d);
		CREATE TABLE x (b d[]); INSERT INTO v (b) VALUES ($large), ($large); INSERT INTO w SELECT b FROM v;
		INSERT INTO x SELECT ARRAY[b] FROM w");
	return;
}
prepare();
$node->safe_psql('taken', $workload);
foreach my $function (@looked_up)
{
	my ($name, $arguments) = $function =~ /^(\w+)(\(.*\))/s;
	my $result = $node->safe_psql('taken', "SELECT pg_get_function_result('$function'::regprocedure)");
	my $session = $node->background_psql('taken', on_error_stop => 0);
	$session->query_safe("INSERT INTO v (b) VALUES ($large)");	# has the member in its cache
	$node->safe_psql('taken', "ALTER EXTENSION blobext DROP FUNCTION $function;
		ALTER FUNCTION $function RENAME TO was_a_member");
	# A role that may make functions of the server's internal types has no need of others.
	if ($arguments !~ /internal/)
	{
		as_stranger('taken', "CREATE FUNCTION $function RETURNS " .
			($result =~ /^(blobstate|text|bigint|boolean|bytea)$/ ? $1 : 'text') . " $body");
	}
	my (undef, $output, $errors) = $node->psql('taken', "\\set VERBOSITY verbose\n$workload", on_error_stop => 0);
	unlike($errors, qr/ERROR:  XX000|server closed/, "$name without its member: errors are those that users are told");
	like($errors, qr/ERROR:  55000: (extension "blobext" has no function \Q$name\E|the other server has no extension)/,
		"$name without its member: an error says so")
	  if $name =~ /^(blob_storage|blob_stored_length|blob_s[^t].*|blob_[cer].*|length|blobext_source.*)$/;
	$session->query("INSERT INTO v (b) VALUES ($large); SELECT b::bytea FROM v; SELECT * FROM blobext_space('v', 'b')");
	$session->quit;
	none_ran("$function that is a stranger's does not run");
	as_stranger('taken', "DROP FUNCTION $function") if $arguments !~ /internal/;
	$node->safe_psql('taken', "ALTER FUNCTION was_a_member$arguments RENAME TO \"$name\";
		ALTER EXTENSION blobext ADD FUNCTION $function");
	prepare();
	$node->safe_psql('taken', $workload);
}

# Without both functions that verify and store values none is stored.
my @stores = ('blob_store(blobstate)', 'blob_store(blobstate, regclass, smallint)');
foreach my $index (0, 1)
{
	$node->safe_psql('taken', "ALTER EXTENSION blobext DROP FUNCTION $stores[$index];
		ALTER FUNCTION $stores[$index] RENAME TO was_a_member");
	as_stranger('taken', "CREATE FUNCTION $stores[$index] RETURNS blobstate $body");
}
fails_with($node, $_, '55000', qr/extension "blobext" has no function blob_store\(blobstate\).*UPDATE.*ADD/s,
	"without a function of the extension nothing is stored: $_", database => 'taken')
  foreach 'UPDATE v SET b = b', 'INSERT INTO w SELECT b FROM v';
foreach my $function (@stores)
{
	as_stranger('taken', "DROP FUNCTION $function");
	$node->safe_psql('taken', 'ALTER FUNCTION was_a_member' . ($function =~ s/^\w+//r) . " RENAME TO blob_store;
		ALTER EXTENSION blobext ADD FUNCTION $function");
}
none_ran('no value was given to a function of a stranger');

# ---- the view of pieces, the map and the type ----

my $values = 'SELECT blob_storage(b), sha256(b::bytea) FROM v ORDER BY id';
my $before = $node->safe_psql('taken', $values);
$node->safe_psql('taken', 'ALTER EXTENSION blobext DROP VIEW blob_upload_pieces;
	ALTER VIEW blob_upload_pieces RENAME TO was_a_member');
as_stranger('taken', 'CREATE TABLE blob_upload_pieces (upload bigint, data bytea)');
fails_with($node, "BEGIN; SELECT blob_upload_begin(); COPY blob_upload_pieces FROM STDIN (FORMAT binary);\n\\.\n",
	'22P04', qr/copyfromparse\.c/, "a stranger's table takes rows, and no pieces", database => 'taken');
as_stranger('taken', 'DROP TABLE blob_upload_pieces');
$node->safe_psql('taken', 'ALTER VIEW was_a_member RENAME TO blob_upload_pieces;
	ALTER EXTENSION blobext ADD VIEW blob_upload_pieces');

# All values depend on these two.
my %kinds = (blobext_map => 'TABLE', blobstate => 'TYPE');
fails_with($node, "ALTER EXTENSION blobext DROP $kinds{$_} $_", '0A000', qr/cannot rename type blobstate, or take it/,
	"$_ cannot be taken from the extension", database => 'taken') foreach sort keys %kinds;
fails_with($node, "ALTER TYPE blobstate $_", '0A000', qr/cannot rename type blobstate, or take it/,
	"ALTER TYPE blobstate $_ is refused", database => 'taken') foreach 'RENAME TO other', 'SET SCHEMA pg_catalog';
$node->safe_psql('taken', 'CREATE TYPE other AS (i int); ALTER TYPE other RENAME TO another; DROP TYPE another');

# All the same, by changes of the catalogs.  A session that knew them goes on, and loses nothing;
# a new one refuses all.
foreach my $name (sort keys %kinds)
{
	my $kind = $kinds{$name};
	my $session = $node->background_psql('taken', on_error_stop => 0);
	$session->query_safe("INSERT INTO v (b) VALUES ($large); SELECT * FROM blobext_gc(true)");
	$before = $node->safe_psql('taken', $values);
	# With the row type and the array type, which ALTER EXTENSION takes along from PostgreSQL 17 on.
	my $type = $kind eq 'TYPE' ? "'$name'::regtype" : "(SELECT reltype FROM pg_class WHERE oid = '$name'::regclass)";
	my $table = $kind eq 'TYPE' ? '' : "OR classid = 'pg_class'::regclass AND objid = '$name'::regclass";
	$node->safe_psql('taken', "SET allow_system_table_mods = on; DELETE FROM pg_depend WHERE deptype = 'e' AND (
		classid = 'pg_type'::regclass AND objid IN ($type, (SELECT typarray FROM pg_type WHERE oid = $type)) $table)");
	# Nothing but pg_depend changed: this invalidates what the session has kept.
	$node->safe_psql('taken', 'CREATE TYPE another AS (i int); DROP TYPE another');
	is(scalar $session->query('SELECT freed_blobs FROM blobext_gc()'), '0',
		"the collector of a session that knew the member $name frees nothing that is in use");
	is(scalar $session->query($values), $before, "a session that knew the member $name reads all values");
	fails_with($node, $_, '55000', qr/extension "blobext" has no [tk]\w+ $name.*ALTER\s+EXTENSION blobext ADD/s,
		"without the member $name: $_", database => 'taken')
	  foreach 'SELECT * FROM blobext_gc()', 'SELECT count(b::bytea) FROM v', "SELECT blob_append(b, '+') FROM v";
	# Nothing but pg_depend changes by this, either: a session that has looked in vain finds it.
	my $other = $node->background_psql('taken', on_error_stop => 0);
	$other->query('SELECT count(b::bytea) FROM v');
	$node->safe_psql('taken', "ALTER EXTENSION blobext ADD $kind $name");
	is(scalar $other->query($values), $before,
		"a session that has looked for $name in vain finds the member that was added");
	$other->quit;
	$session->quit;
}

is($node->safe_psql('taken', 'SELECT * FROM blobext_check()'), '', 'all values are sound');
none_ran('no function of a stranger has run');
$node->stop;
done_testing();
