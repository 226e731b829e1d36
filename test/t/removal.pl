# Removal of blobext from a database, by examples/remove_blobext.sql, which the operator's guide names.
#
# Values that are too large for an index of bytea are in columns with each kind of index and
# constraint: B-trees, unique or not, by content and by digest, hash indexes, expressions, several
# columns, predicates, partitioned tables, primary and foreign keys.  All content becomes bytea, the
# extension is gone; indexes that bytea can have are there again, the others are named with the
# reason.  Where something else stands in the way, nothing changes.
#
# Seen to fail: where indexes were not dropped before, as in the guide until then, ALTER TABLE ended
# at the first of them, and no column was bytea.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $guide = slurp_file("$FindBin::RealBin/../docs/operations.md");
my ($script) = $guide =~ /^psql -d demo -f (examples\/\S+)$/m;
is($script, 'examples/remove_blobext.sql', 'the guide names the script');
$script = "$FindBin::RealBin/../$script";

my $node = blob_cluster('main');

# A database with the extension in a schema, and objects of all kinds.
sub make_database
{
	my ($name, $schema) = @_;
	my $path = "SET search_path = public, $schema;";
	# Random, so that it cannot be compressed; without order.
	my $value = q((SELECT string_agg(sha256(convert_to(i || ' ' || j, 'UTF8')), '')
		FROM generate_series(1, 6000) AS j));

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, "CREATE SCHEMA IF NOT EXISTS $schema; CREATE EXTENSION blobext SCHEMA $schema");
	$node->safe_psql($name, $path . qq(
CREATE TABLE large (id int PRIMARY KEY, digest bytea, content blobstate, other text);
INSERT INTO large SELECT i, sha256(c), c, 'other'
	FROM generate_series(1, 9) AS i, LATERAL (SELECT $value AS c OFFSET 0) AS s;
CREATE INDEX large_plain ON large (content);
CREATE UNIQUE INDEX large_unique ON large (content);
CREATE INDEX large_hash ON large USING hash (content);
CREATE INDEX large_digest ON large (content blobstate_digest_ops);
CREATE INDEX large_columns ON large (id, content);
CREATE INDEX large_included ON large (id) INCLUDE (content) WHERE false;
CREATE INDEX large_expression ON large (length(content), sha256(content));
CREATE INDEX large_predicate ON large (id) WHERE content <> '\\x00';
CREATE INDEX large_other ON large (other);
ALTER TABLE large ADD CONSTRAINT large_key UNIQUE (content, id);

CREATE DOMAIN image AS blobstate CHECK (length(VALUE) < 1000000);
CREATE TABLE "Small values" ("The id" int, "The content" blobstate PRIMARY KEY, d image, a blobstate[]);
INSERT INTO "Small values" SELECT i, s, s, ARRAY[s, s] FROM generate_series(1, 9) AS i,
	LATERAL (SELECT convert_to('small ' || i, 'UTF8')::blobstate AS s) AS v;
CREATE INDEX ON "Small values" (d);
CREATE TABLE referring (id int, content blobstate REFERENCES "Small values");
INSERT INTO referring SELECT 1, convert_to('small 1', 'UTF8');
CREATE UNIQUE INDEX referring_plain ON referring (content);
CREATE TABLE referring_index (content blobstate REFERENCES referring (content));

CREATE TABLE parts (id int, content blobstate, UNIQUE (id, content)) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (5);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (5) TO (50);
CREATE INDEX parts_content ON parts USING hash (content);
CREATE INDEX parts_2_length ON parts_2 (length(content));
INSERT INTO parts SELECT id, content FROM large;
CREATE TABLE parent (content blobstate);
CREATE TABLE child (id int) INHERITS (parent);
INSERT INTO child SELECT content, id FROM large;));
	return;
}

sub remove
{
	my ($name) = @_;
	my ($stdout, $stderr);
	my $result = run_log([ 'psql', '-XAtq', '-d', $node->connstr($name), '-f', $script ],
		'>', \$stdout, '2>', \$stderr);
	return ($result, $stdout, $stderr);
}

my $indexes = q(SELECT string_agg(indexrelid::regclass::text, ' ' ORDER BY indexrelid::regclass::text)
	FROM pg_index WHERE indrelid::regclass::text IN ('large', '"Small values"', 'referring', 'parts', 'parts_2')
		AND indisvalid);
my $columns = q(SELECT string_agg(format('%s.%s %s', attrelid::regclass, attname, atttypid::regtype), ', '
		ORDER BY attrelid::regclass::text, attnum) FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
	WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace AND attnum > 0
		AND attname ~ 'content|^d$|^a$');
my $values = q(SELECT (SELECT count(*) FROM large WHERE sha256(content::bytea) = digest),
	(SELECT count(*) FROM large JOIN parts USING (id) WHERE sha256(parts.content::bytea) = digest),
	(SELECT count(*) FROM large JOIN child USING (id) WHERE sha256(child.content::bytea) = digest),
	(SELECT count(*) FROM "Small values" WHERE sha256(d::bytea) = sha256("The content"::bytea)
		AND sha256(a[2]::bytea) = sha256("The content"::bytea)));

# ---- something is in the way ----

my $q = '"My blobs"';
make_database('odd', $q);
my $path = "SET search_path = public, $q;";
is($node->safe_psql('odd', $path . $values), '9|9|9|9', 'all values are right before the removal');
my $before = $node->safe_psql('odd', "$path $indexes; $columns");
$node->safe_psql('odd', "$path CREATE VIEW v AS SELECT content FROM large");
my ($result, $stdout, $stderr) = remove('odd');
ok(!$result, 'the script fails while a view stands in the way');
like($stderr, qr/cannot alter type of a column used by a view or rule.*view public.v depends on column/s,
	'the view is named');
is($node->safe_psql('odd', "$path $indexes; $columns"), $before, 'a script that fails changes no column and no index');
is($node->safe_psql('odd', "SELECT to_regclass('public.blobext_removed')"), '', 'a script that fails leaves no table of its own');
$node->safe_psql('odd', "$path DROP VIEW v");
($result, $stdout, $stderr) = remove('odd');
ok(!$result, 'the script fails while a domain stands in the way');
like($stderr, qr/cannot drop extension blobext.*type public.image depends on/s, 'the domain is named');
is($node->safe_psql('odd', "$path $indexes; $columns"), $before, 'still nothing has changed');
$node->safe_psql('odd', qq($path ALTER TABLE "Small values" ALTER COLUMN d TYPE blobstate; DROP DOMAIN image));
$before = $node->safe_psql('odd', "$path $indexes; $columns");
$node->safe_psql('odd', "$path CREATE FUNCTION f(blobstate) RETURNS int LANGUAGE sql RETURN 1");
($result, $stdout, $stderr) = remove('odd');
ok(!$result, 'a function stands in the way');
like($stderr, qr/cannot drop extension blobext.*function public.f\(/s,
	'the function is named');
is($node->safe_psql('odd', "$path $indexes; $columns"), $before, 'again nothing has changed');
$node->safe_psql('odd', "$path DROP FUNCTION f");

# ---- nothing is: the extension in a schema of its own, and in public ----

make_database('plain', 'public');
# Functions that a superuser shall not call.
$node->safe_psql('plain', q(ALTER TABLE "Small values" ALTER COLUMN d TYPE blobstate; DROP DOMAIN image;
	CREATE FUNCTION stranger() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'a stranger was called'; END $$;
	CREATE FUNCTION public.format(text, regclass, name) RETURNS text LANGUAGE sql AS 'SELECT stranger()';
	CREATE FUNCTION public.format(text, regclass, text) RETURNS text LANGUAGE sql AS 'SELECT stranger()';
	CREATE FUNCTION public.format(text, regclass) RETURNS text LANGUAGE sql AS 'SELECT stranger()'));
foreach my $name ('odd', 'plain')
{
	($result, $stdout, $stderr) = remove($name);
	ok($result, "$name: the script succeeds") or diag($stderr);
	is($node->safe_psql($name, q(SELECT count(*) FROM pg_extension WHERE extname = 'blobext')), '0',
		"$name: the extension is gone");
	is($node->safe_psql($name, $columns),
		'"Small values".The content bytea, "Small values".d bytea, "Small values".a bytea[], '
		  . 'child.content bytea, large.content bytea, parent.content bytea, parts.content bytea, '
		  . 'parts_1.content bytea, parts_2.content bytea, referring.content bytea, '
		  . 'referring_index.content bytea',
		"$name: all columns are bytea");
	is($node->safe_psql($name, $values), '9|9|9|9', "$name: all values are there");
	is($node->safe_psql($name, $indexes),
		'"Small values_d_idx" "Small values_pkey" large_expression large_hash large_included large_other '
		  . 'large_pkey large_predicate parts_2_content_idx parts_2_length parts_content referring_plain',
		"$name: indexes that bytea can have are there");
	is($node->safe_psql($name, q(SELECT string_agg(conname || ' ' || confrelid::regclass, ', ' ORDER BY conname)
		FROM pg_constraint WHERE contype = 'f')),
		'referring_content_fkey "Small values", referring_index_content_fkey referring',
		"$name: foreign keys are there");
	my @left = split /\n/, $stdout;
	is(scalar @left, 6, "$name: six are left") or diag($stdout);
	foreach my $left ('large_plain', 'large_unique', 'large_columns', 'large_key', 'parts_id_content_key')
	{
		like($stdout, qr/^[^|]*\b$left\b.*\|index row (size|requires) \d+/m,
			"$name: $left is printed with the reason");
	}
	like($stdout, qr/^CREATE INDEX large_digest .*\|operator class "blobstate_digest_ops" does not exist/m,
		"$name: an operator class of the extension");
	is($node->safe_psql($name, 'SELECT count(*) FROM public.blobext_removed WHERE problem IS NOT NULL'), '6',
		"$name: they stay in the table");
	$node->safe_psql($name, 'CREATE UNIQUE INDEX ON large (sha256(content))');
	$node->safe_psql($name, 'DROP TABLE public.blobext_removed');
}

# ---- a database without such indexes ----

$node->safe_psql('postgres', 'CREATE TABLE t (b blobstate); INSERT INTO t VALUES (convert_to(repeat(\'x\', 9000), \'UTF8\'));
	CREATE INDEX ON t (length(b))');
($result, $stdout, $stderr) = remove('postgres');
ok($result, 'without obstacles: the script succeeds') or diag($stderr);
is($stdout, '', 'without obstacles: the script prints nothing');
is($node->safe_psql('postgres', q(SELECT to_regclass('public.blobext_removed'), length(b), pg_typeof(b) FROM t)),
	'|9000|bytea', 'the column is bytea, and no table is left behind');
$node->stop;

done_testing();
