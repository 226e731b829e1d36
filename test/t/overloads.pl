# No function or operator of a stranger runs because it fits a call of the extension's better.
#
# This test reads the SQL of the sources: what the library sends or stores, and what the scripts execute
# or store.  For each function and operator in it, and for those that SQL's syntax looks for, the owner
# of the extension's schema makes overloads with other types, domains over blobstate among them, and with
# those of PostgreSQL's own function; and types and tables of the names that are in it.  A superuser installs
# and updates the extension there, and calls all functions and reads all views, with the schema in front of
# pg_catalog in the search_path, too.  Each overload leaves a line in the server's log, and no stored
# object of the extension depends on one of the stranger.
#
# Seen to fail on the code before: generate_series(integer, bigint) in blob_chunks(), blob_read(blobstate,
# bigint, integer) likewise after an update of 0.1.0, =(regclass, regclass) in blobext_space(),
# blob_summary(domain) in the view of blobext_browse(), =(domain, blobstate) in blob_intern();
# =(numeric, integer) in a query for monitoring.
use strict;
use warnings;

use File::Find;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use FindBin;
use lib $FindBin::RealBin;
use BlobTest;

# ---- the SQL of the sources ----

my @texts;
find({ no_chdir => 1, wanted => sub {
	return if !/\.c$/;
	my $source = slurp_file($_) =~ s{/\*.*?\*/}{}gsr;
	# A statement is a literal, or some that follow each other, with macros in between.
	while ($source =~ /((?:"(?:[^"\\\n]|\\.)*"[\s\\]*(?:[A-Z_]+(?:\([^()]*\))?[\s\\]*(?="))?)+)/g)
	{
		my $text = join ' ', $1 =~ /"((?:[^"\\\n]|\\.)*)"/g;
		push @texts, $text if $text =~ /\b(?:SELECT|UPDATE|INSERT|DELETE|FROM|WHERE|OPERATOR|THEN|JOIN|VIEW)\b|\$\d::/;
	}
} }, "$ENV{BLOBEXT_SOURCE_DIR}/src");
my $literals = @texts;
foreach my $script (glob "$ENV{BLOBEXT_SOURCE_DIR}/sql/*.sql")
{
	my $sql = slurp_file($script) =~ s/^\\.*$|--.*$//mgr;
	push @texts, $1 while $sql =~ /(BEGIN ATOMIC.*?END;|CREATE (?:OR REPLACE )?VIEW.*?;|^SELECT.*?;|DEFAULT [^,)]+)/gms;
}
# The queries for monitoring, whose names have no schema: an operator of the search_path's own schema could fit better.
my @queries = slurp_file("$FindBin::RealBin/../monitoring/postgres_exporter.yaml") =~ /query: >-\n((?:    .*\n)+)/g;
push @texts, @queries;
my %names = map { $_ => 1 } map { /\b([a-z_][a-z0-9_]*)"?\s*\(/g } @texts;
my %operators = map { $_ => 1 } qw(= <> < > <= >= ||), map { m{OPERATOR\((?:\w+|%s)\.([-+*/<>=~!@#%^&|?]+)\)|\s([-+*/<>=~!@#%^&|?]+)\s}g } @texts;
delete $operators{''};
%operators = map { $_ => 1 } grep { defined && !/%/ && $_ ne '*' || $_ eq '*' } keys %operators;
my %words = map { $_ => 1 } map { /\b([a-z_][a-z0-9_]*)\b/g } @texts;
# Names that the library puts in: its table of functions.
my $table = slurp_file("$ENV{BLOBEXT_SOURCE_DIR}/src/core/catalog.c");
$names{$1} = 1 while $table =~ /= \{"(\w+)", \d/g;
cmp_ok($literals, '>', 20, 'statements of the library are known');
cmp_ok(scalar @queries, '>', 3, 'queries for monitoring are known');
is(join(' ', grep { !$names{$_} } qw(generate_series blob_read blob_chunk_count unnest sum count blob_summary
	blob_storage quote_ident set_config blobext_source blobext_source_read blobext_require_library)), '',
	'functions in the SQL of the sources are known');
is(join(' ', grep { !$operators{$_} } qw(= < >= * - ||)), '', 'operators in it are known');

# ---- a stranger ----

# A cast to a type of the same name must not be needed by the test: names of types have a schema.
my $plant = q(
CREATE SCHEMA IF NOT EXISTS test;
CREATE OR REPLACE FUNCTION test.plant(names text[], operators text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog AS $plant$
DECLARE
	types text[] := ARRAY['smallint', 'integer', 'bigint', 'numeric', 'text', 'name', 'oid', 'regclass', 'bytea',
		'tid', 'pg_lsn', 'boolean', '"char"', 'varchar', 'bigint[]'];
	signature record;
	variants text[];
	variant text;
	made bigint := 0;
	body text := $$ LANGUAGE plpgsql AS $f$ BEGIN
		RAISE LOG 'a stranger runs as %%', current_user; RETURN%s; END $f$ $$;
	result text;
BEGIN
	types := types || ARRAY(SELECT format_type(t.oid, NULL) FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = typnamespace
		WHERE nspname = 'public' AND typname IN ('blobstate', '_blobstate', 'd', '_d', 'dd'));
	FOR signature IN
		SELECT DISTINCT ON (proname, arguments) * FROM (
			SELECT proname, proretset, format_type(prorettype, NULL) AS result, typtype,
				ARRAY(SELECT format_type(a, NULL) FROM unnest(proargtypes) WITH ORDINALITY AS u(a, n) ORDER BY n) AS arguments
			FROM pg_proc JOIN pg_type AS t ON t.oid = prorettype JOIN pg_namespace AS s ON s.oid = pronamespace
			WHERE proname = ANY (names) AND provariadic = 0 AND nspname IN ('pg_catalog', 'public')
				AND pg_get_userbyid(proowner) <> 'stranger' AND 2281 <> ALL (proargtypes)) AS p
		ORDER BY proname, arguments
	LOOP
		-- The types of the function itself, and with up to two of them replaced.
		variants := ARRAY[array_to_string(signature.arguments, ', ')];
		FOR i IN 1 .. cardinality(signature.arguments) LOOP
			FOR j IN i .. least(cardinality(signature.arguments), i + 1) LOOP
				variants := variants || ARRAY(SELECT array_to_string(signature.arguments[:i - 1] || x ||
						CASE WHEN j > i THEN signature.arguments[i + 1 : j - 1] || y ELSE '{}' END ||
						signature.arguments[j + 1 :], ', ')
					FROM unnest(types) AS x, unnest(CASE WHEN j > i THEN types ELSE ARRAY['-'] END) AS y);
			END LOOP;
		END LOOP;
		result := CASE WHEN signature.typtype = 'p' THEN 'text' ELSE signature.result END;
		FOREACH variant IN ARRAY variants LOOP
			BEGIN
				EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s', signature.proname, variant,
					CASE WHEN signature.proretset THEN 'SETOF ' ELSE '' END || result) ||
					format(body, CASE WHEN signature.proretset THEN '' ELSE ' NULL' END);
				made := made + 1;
			EXCEPTION WHEN duplicate_function OR invalid_function_definition OR feature_not_supported OR undefined_object
				OR datatype_mismatch THEN NULL;
			END;
		END LOOP;
	END LOOP;
	FOR variant IN SELECT t FROM unnest(types) AS t LOOP
		FOREACH result IN ARRAY types LOOP
			BEGIN
				EXECUTE format('CREATE FUNCTION public.stranger_operator(%s, %s) RETURNS boolean', variant, result) ||
					format(body, ' NULL');
			EXCEPTION WHEN duplicate_function THEN NULL;
			END;
			FOR signature IN SELECT o FROM unnest(operators) AS o LOOP
				BEGIN
					EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.stranger_operator)',
						signature.o, variant, result);
					made := made + 1;
				EXCEPTION WHEN duplicate_function OR duplicate_object THEN NULL;
				END;
			END LOOP;
		END LOOP;
	END LOOP;
	RETURN made;
END $plant$);

sub plant
{
	my ($node, $database, $name, $least) = @_;
	my $list = sub { 'ARRAY[' . join(', ', map { "'$_'" } sort @_) . ']' };
	$node->safe_psql($database, "SET search_path = pg_catalog; $plant; GRANT USAGE ON SCHEMA test TO stranger");
	my $made = $node->safe_psql($database, "SET search_path = pg_catalog; SET ROLE stranger; SELECT test.plant(" .
		$list->(keys %names) . ', ' . $list->(keys %operators) . ')');
	cmp_ok($made, '>', $least, "$name: a stranger made $made overloads");
	return;
}

# Nothing that is stored, by a member or by a view of blobext_browse(), depends on an object of the stranger
# but the domains that columns have.
sub nothing_is_bound
{
	my ($node, $database, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql($database, q(SET search_path = pg_catalog; SELECT pg_describe_object(d.classid, d.objid, 0), pg_describe_object(d.refclassid, d.refobjid, 0)
		FROM pg_depend AS d
		WHERE ((d.refclassid = 'pg_proc'::regclass AND d.refobjid IN (SELECT oid FROM pg_proc WHERE proowner = 'stranger'::regrole))
			OR (d.refclassid = 'pg_operator'::regclass AND d.refobjid IN (SELECT oid FROM pg_operator WHERE oprowner = 'stranger'::regrole)))
		AND NOT (d.classid = 'pg_operator'::regclass AND d.objid IN (SELECT oid FROM pg_operator WHERE oprowner = 'stranger'::regrole)))),
		'', $name);
}

my $node = blob_cluster('main', create => 0);
my ($host, $port) = ($node->host, $node->port);
$node->safe_psql('postgres', 'CREATE ROLE stranger');

sub none_ran
{
	my ($name) = @_;
	my @ran = slurp_file($node->logfile) =~ /(a stranger runs as postgres\n.*\n.*\n)/g;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join('', @ran[0 .. ($#ran > 4 ? 4 : $#ran)]), '', $name);
}

# All names have a schema, all arguments the very types: other calls are the extension's.
my $large = q(pg_catalog.convert_to(pg_catalog.repeat('large'::pg_catalog.text, 1000), 'UTF8'::pg_catalog.name));
my $column = sub { "'public.$_[0]'::pg_catalog.regclass, 'b'::pg_catalog.text" };
my $workload = join(";\n",
	"INSERT INTO public.v (b) VALUES ($large), ($large), ($large)",
	"INSERT INTO public.w (b) SELECT b FROM public.v",
	"INSERT INTO public.w (b) VALUES ($large)",
	"INSERT INTO public.x (b, c) SELECT ARRAY[b::public.d], ARRAY[b] FROM public.v",
	"INSERT INTO public.parts (id, b) SELECT id % 2, b FROM public.v",
	'UPDATE public.w SET b = b',
	map({ my $table = $_; (
		"SELECT public.blobext_set_compression(@{[ $column->($table) ]}, 'lz4'::pg_catalog.text)",
		"SELECT * FROM public.blobext_space(@{[ $column->($table) ]})",
		"CALL public.blobext_recompress(@{[ $column->($table) ]}, 32, NULL::pg_catalog.int8)",
		"CALL public.blobext_dedup(@{[ $column->($table) ]}, true, 50, NULL::pg_catalog.int8, NULL::pg_catalog.int8,
			NULL::pg_catalog.int8, NULL::pg_catalog.int8)",
		"SELECT * FROM public.blobext_fragmentation(@{[ $column->($table) ]}, 0::pg_catalog.float8, 0)",
		"CALL public.blobext_defragment(@{[ $column->($table) ]}, 0::pg_catalog.float8, 0, 50, 0, NULL::pg_catalog.int8,
			NULL::pg_catalog.int8, NULL::pg_catalog.int8, NULL::pg_catalog.int8, NULL::pg_catalog.int8)",
		"SELECT public.blob_intern(@{[ $column->($table) ]}, ($large)::public.blobstate, true)",
		"SELECT public.blob_intern(@{[ $column->($table) ]}, $large, true)") } qw(v w parts)),
	map({ ("SELECT public.blobext_browse('public.$_'::pg_catalog.regclass, NULL::pg_catalog.text)", "SELECT * FROM public.${_}_browse") }
		qw(v w x parts)),
	'SELECT c.* FROM public.v, public.blob_chunks(b, 1000) AS c',
	'SELECT c.* FROM public.w, public.blob_chunks(b::public.blobstate, 1000) AS c',
	'SELECT * FROM public.blobext_repair_bounds(true)',
	'SELECT * FROM public.blobext_check(NULL::pg_catalog.regclass, NULL::pg_catalog.text)',
	'SELECT * FROM public.blobext_gc(false)',
	"SELECT * FROM public.blobext_fetch('host=$host port=$port dbname=DATABASE'::pg_catalog.text, NULL::pg_catalog.regclass, true)",
	"SELECT * FROM public.blobext_check(NULL::pg_catalog.regclass, 'host=$host port=$port dbname=DATABASE'::pg_catalog.text)", '');

# Calls of all functions, and reads of all views; their errors say that a sample is none for them.
# (Of a polymorphic function each call has a better overload.  The library has its OID.)
my $calls = q(SELECT CASE WHEN p.prokind = 'p' THEN 'CALL ' ELSE 'SELECT * FROM ' END || p.oid::regproc || '(' ||
	(SELECT coalesce(string_agg(CASE format_type(a, NULL)
		WHEN 'public.blobstate' THEN '(SELECT b FROM public.v LIMIT 1)'
		WHEN 'public.blobstate_operand' THEN '(SELECT b::public.blobstate_operand FROM public.v LIMIT 1)'
		WHEN 'regclass' THEN '''public.v''::pg_catalog.regclass' WHEN 'bytea' THEN '''x''::pg_catalog.bytea'
		WHEN 'text' THEN '''b''::pg_catalog.text' WHEN 'boolean' THEN 'true'
		WHEN 'pg_lsn' THEN '''0/0''::pg_catalog.pg_lsn' WHEN 'anycompatible' THEN '''md5''::pg_catalog.text'
		WHEN 'oid' THEN '0::pg_catalog.oid' WHEN 'cstring' THEN '''UTF8''::pg_catalog.cstring'
		ELSE '1::' || a::regtype END, ', ' ORDER BY n), '')
	FROM unnest(p.proargtypes) WITH ORDINALITY AS u(a, n)) || ')'
FROM pg_proc AS p JOIN pg_depend AS e ON e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e'
	JOIN pg_extension AS x ON x.oid = e.refobjid AND x.extname = 'blobext'
WHERE p.prokind IN ('f', 'p') AND 2281 <> ALL (p.proargtypes) AND prorettype <> 'trigger'::regtype
	AND 'anyelement'::regtype <> ALL (p.proargtypes)
UNION ALL SELECT 'SELECT ' || p.oid::regproc || '(b' || CASE pronargs WHEN 2 THEN ', ''x''::pg_catalog.bytea' ELSE '' END || ') FROM public.v'
FROM pg_proc AS p JOIN pg_depend AS e ON e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e'
	JOIN pg_extension AS x ON x.oid = e.refobjid AND x.extname = 'blobext' WHERE p.prokind = 'a'
UNION ALL SELECT 'SELECT * FROM ' || c.oid::regclass
FROM pg_class AS c JOIN pg_depend AS e ON e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e'
	JOIN pg_extension AS x ON x.oid = e.refobjid AND x.extname = 'blobext' WHERE relkind IN ('r', 'v'));

sub run_workload
{
	my ($database, $path, $name) = @_;
	my $prepare = 'DROP TABLE IF EXISTS public.v, public.w, public.x, public.parts CASCADE;
		CREATE TABLE public.v (id serial, b public.blobstate); CREATE TABLE public.w (b public.d);
		CREATE TABLE public.x (b public.d[], c public.dd);
		CREATE TABLE public.parts (id int, b public.d) PARTITION BY LIST (id);
		CREATE TABLE public.parts_0 PARTITION OF public.parts FOR VALUES IN (0);
		CREATE TABLE public.parts_1 PARTITION OF public.parts FOR VALUES IN (1)';
	$node->safe_psql($database, "SET search_path = pg_catalog; $prepare");
	my $sql = $workload =~ s/DATABASE/$database/gr;
	my (undef, undef, $errors) = $node->psql($database, "SET search_path = $path;\n$sql", on_error_stop => 0);
	is($errors =~ s/^.*(NOTICE|WARNING):.*\n?//mgr =~ s/^DETAIL.*\n//mgr, '', "$name: the library's SQL works as without the overloads");
	$node->safe_psql($database, join ';', "SET search_path = $path", @queries) if $path !~ /catalog/;
	my $statements = $node->safe_psql($database, "SET search_path = pg_catalog; $calls");
	cmp_ok(scalar(split /\n/, $statements), '>', 50, "$name: functions and views are known");
	$node->psql($database, "SET search_path = $path;\n" . join('', map { "$_;\n" } grep { !/blobext_create_store/ } split /\n/, $statements),
		on_error_stop => 0);
	none_ran("$name: no function of a stranger has run");
	nothing_is_bound($node, $database, "$name: nothing that is stored depends on a stranger's object");
	return;
}

# ---- installation and updates ----

# The types of the extension are not there yet when it is installed: after an update from each version they are.
foreach my $version ('', '0.1.0', '0.2.0', '0.3.0')
{
	my $database = 'db' . ($version =~ s/\D//gr);
	my $name = $version ? "update from $version" : 'installation';
	$node->safe_psql('postgres', "CREATE DATABASE $database OWNER stranger");
	$node->safe_psql($database, 'ALTER SCHEMA public OWNER TO stranger');
	plant($node, $database, $name, 1000);
	$node->safe_psql($database, 'CREATE EXTENSION blobext SCHEMA public' . ($version ? " VERSION '$version'" : ''));
	$node->safe_psql($database, 'SET ROLE stranger; CREATE DOMAIN public.d AS public.blobstate; CREATE DOMAIN public.dd AS public.blobstate[]');
	if ($version)
	{
		# Those with the types of the extension; they are dropped where the update makes functions of their types.
		plant($node, $database, "$name: with its types", 1000);
		my $tries = 0;
		while ($tries++ < 50)
		{
			my ($failed, undef, $errors) = $node->psql($database, 'ALTER EXTENSION blobext UPDATE');
			last if !$failed;
			like($errors, qr/already exists.*HINT:  .*does not belong to it/s, "$name: an object in the way is named");
			last if $errors !~ /(function|operator) "?([^" ]+)"? already exists/;
			$node->safe_psql($database, $1 eq 'function' ? qq(SET search_path = pg_catalog; DO \$\$ DECLARE f regprocedure; BEGIN
				FOR f IN SELECT oid FROM pg_proc WHERE proname = '$2' AND proowner = 'stranger'::regrole LOOP
				EXECUTE 'DROP FUNCTION ' || f; END LOOP; END \$\$) : qq(SET search_path = pg_catalog; DO \$\$ DECLARE f regoperator; BEGIN
				FOR f IN SELECT oid FROM pg_operator WHERE oprname = '$2' AND oprowner = 'stranger'::regrole LOOP
				EXECUTE 'DROP OPERATOR ' || f; END LOOP; END \$\$));
		}
	}
	nothing_is_bound($node, $database, "$name: nothing of the extension depends on a stranger's object");
	plant($node, $database, "$name: beside it", $version ? -1 : 1000);
	run_workload($database, 'public', $name);
	$node->safe_psql('postgres', "ALTER DATABASE $database SET search_path = public, pg_catalog");
	run_workload($database, 'public, pg_catalog', "$name, schema in front");
}

# ---- types and tables of the same names ----

my @types = grep { $words{$_} } split /\n/, $node->safe_psql('db', q(SET search_path = pg_catalog;
	SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b'));
my @tables = grep { $words{$_} } split /\n/, $node->safe_psql('db', q(SET search_path = pg_catalog;
	SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')));
cmp_ok(scalar @types, '>', 5, "types in the SQL of the sources are known: @types");
cmp_ok(scalar @tables, '>', 3, "tables in it are known: @tables");
$node->safe_psql('db', "SET search_path = pg_catalog; SET ROLE stranger;" .
	join('', map { "CREATE TABLE public.$_ (i integer);" } @tables) .
	join('', map { "CREATE DOMAIN public.$_ AS pg_catalog.point;" } @types));
run_workload('db', 'public, pg_catalog', 'types and tables of a stranger in front');

$node->stop;
done_testing();
