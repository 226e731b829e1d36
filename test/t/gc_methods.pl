# Tables of other access methods: what counts for the collector is the relation's routine.
#
# Where the functions of the method are heap's, the collector marks, prunes and frees as with heap: tables,
# partitions, materialized views, temporary tables, containers, in a database where every table has the
# method, blobext's and blobfs's own, too.  A method that keeps rows elsewhere, or whose handler fails,
# stops the collector, which names the table; without columns that can hold values it does not.
#
# Seen to fail: with the comparison by HEAP_TABLE_AM_OID (the first seven kinds stopped the collector); with
# blob_gc_is_heap() always true (the value of the table that keeps rows elsewhere was freed), and with that in
# scan.c alone (the same, when the handler had been replaced); without blob_attempt() around the handler (the
# call fails, and names no table).
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

my $unit = $ENV{BLOBEXT_UNIT_DIR} // die 'BLOBEXT_UNIT_DIR: use test/run tap';
my $node = blob_cluster('main', conf => "autovacuum = off\n");
gc_use($node);

sub method
{
	my ($name, $library, $function) = @_;
	return ("CREATE FUNCTION ${name}_handler(internal) RETURNS table_am_handler AS '$library', '$function' LANGUAGE C",
		"CREATE ACCESS METHOD $name TYPE TABLE HANDLER ${name}_handler");
}

# ---- methods whose functions are heap's ----

sql('CREATE ACCESS METHOD h2 TYPE TABLE HANDLER heap_tableam_handler', method('copied', "$unit/blobext_unit", 'unit_method_copy'));

# Values 1 and 2 are in a relation; what deletes value 2.
sub keeps
{
	my ($method, $kind, $before, $query, $delete) = @_;
	my $name = "$kind, access method $method";
	clean();
	sql("SET default_table_access_method = $method", 'CREATE TYPE s.c AS (n integer, b blobstate)', @$before);
	is(sql(q(SELECT count(*) FROM pg_class AS c JOIN pg_am AS a ON a.oid = relam
		WHERE relnamespace = 's'::regnamespace AND relkind IN ('r', 'm') AND amname <> 'heap') .
		" AND amname <> '$method'"), '0', "$name: the relations have it");
	is(frees(0, "$name: nothing that lives is freed"), '2', "$name: all values are found");
	intact($query, 2, "$name: the values are there");
	sql(@$delete, 'VACUUM');
	frees(1, "$name: a deleted value is freed");
	intact($query, 1, "$name: the other value is there");
	check_is_clean($node, "$name: the check finds nothing");
	return;
}

my $fill = 'SELECT i, value(i)::blobstate FROM generate_series(1, 2) AS i';
foreach my $method ('h2', 'copied')
{
	keeps($method, 'a table', [ 'CREATE TABLE s.t (id integer, b blobstate)', "INSERT INTO s.t $fill" ],
		'SELECT * FROM s.t', ['DELETE FROM s.t WHERE id = 2']);
	# A partitioned table has no rows; from 17 on it may have an access method.
	my $using = $node->pg_version >= 17 ? " USING $method" : '';
	keeps($method, 'a partition', [ "CREATE TABLE s.t (id integer, b blobstate) PARTITION BY LIST (id)$using",
			'CREATE TABLE s.t1 PARTITION OF s.t FOR VALUES IN (1)', 'CREATE TABLE s.t2 PARTITION OF s.t DEFAULT',
			"INSERT INTO s.t $fill" ],
		'SELECT * FROM s.t', ['DELETE FROM s.t WHERE id = 2']);
	keeps($method, 'a materialized view', [ "CREATE TABLE s.t AS $fill", 'ALTER TABLE s.t RENAME value TO b',
			'CREATE MATERIALIZED VIEW s.m AS SELECT * FROM s.t', 'DELETE FROM s.t' ],
		'SELECT * FROM s.m', [ 'INSERT INTO s.t SELECT * FROM s.m WHERE i = 1', 'REFRESH MATERIALIZED VIEW s.m' ]);
	keeps($method, 'an array in TOAST', [ 'CREATE TABLE s.t (id integer, b blobstate[])',
			'ALTER TABLE s.t ALTER COLUMN b SET STORAGE EXTERNAL',
			"INSERT INTO s.t SELECT i, array_fill('short'::blobstate, ARRAY[1000]) || value FROM ($fill) AS f" ],
		'SELECT id, b[1001] FROM s.t', ['DELETE FROM s.t WHERE id = 2']);
	keeps($method, 'an unlogged table of rows', [ 'CREATE UNLOGGED TABLE s.t (c s.c)',
			"INSERT INTO s.t SELECT ROW(f.*)::s.c FROM ($fill) AS f" ],
		'SELECT (c).n, (c).b FROM s.t', ['DELETE FROM s.t WHERE (c).n = 2']);
}
keeps('h2', 'a table with indexes', [ 'CREATE TABLE s.t (id integer, b blobstate UNIQUE)', "INSERT INTO s.t $fill",
		'CREATE INDEX ON s.t USING hash (b)' ],
	'SELECT * FROM s.t', ['DELETE FROM s.t WHERE id = 2; VACUUM (INDEX_CLEANUP ON) s.t']);

# Rows that were rolled back are pruned by the round itself.
clean();
sql('CREATE TABLE s.t (id integer, b blobstate) USING h2', "INSERT INTO s.t $fill", "BEGIN; INSERT INTO s.t $fill; ROLLBACK");
frees(2, 'rows that were rolled back, access method h2');
intact('SELECT * FROM s.t', 2, 'rows beside those that were rolled back, access method h2');

# Procedures that change all rows of a table.
clean();
sql('CREATE TABLE s.t (id integer, b blobstate) USING h2', 'INSERT INTO s.t SELECT 1, value(1) FROM generate_series(1, 5)');
sql(q(CALL blobext_dedup('s.t', 'b')));
sql('VACUUM s.t');
frees(4, 'access method h2: values that are shared are freed');
intact('SELECT * FROM s.t', 5, 'access method h2: rows that share a value');

# A table changes its method while a round has passed the place where its values go.
foreach my $method ('h2', 'copied')
{
	moved_in_time("SET ACCESS METHOD $method", "ALTER TABLE s.t1 SET ACCESS METHOD $method");
}

# ---- a database where all tables have the method ----

sql('CREATE DATABASE encrypted');
sub in_encrypted
{
	return $node->safe_psql('encrypted', join(';', @_));
}
in_encrypted('CREATE ACCESS METHOD h2 TYPE TABLE HANDLER heap_tableam_handler',
	'ALTER DATABASE encrypted SET default_table_access_method = h2');
in_encrypted('CREATE EXTENSION blobext', 'CREATE EXTENSION blobfs', q(SELECT blobfs.create('docs')),
	q(SELECT blobfs.write('docs', '/' || i, convert_to(repeat(md5(i::text), 1000), 'UTF8')) FROM generate_series(1, 4) AS i),
	q(SELECT blobfs.snapshot('docs', 'v1')));
isnt(in_encrypted(q(SELECT count(*) FROM pg_class JOIN pg_am AS a ON a.oid = relam WHERE relnamespace = 'docs'::regnamespace
	AND amname = 'h2')), '0', 'tables of a file system have the default access method');
in_encrypted(q(SELECT blobfs.unlink('docs', '/1'), blobfs.unlink('docs', '/2')), q(SELECT blobfs.drop_snapshot('docs', 'v1')), 'VACUUM');
is(in_encrypted('SET client_min_messages = warning', 'SELECT freed_blobs, live_blobs, skipped_reason FROM blobext_gc()'), '2|2|',
	'a database where all tables have another access method is collected');
is(in_encrypted('SELECT count(*) FROM blobext_check()', q(SELECT count(*) FROM blobfs."check"('docs'))), "0\n0",
	'the checks find nothing where all tables have another access method');

# ---- methods that the collector cannot read ----

clean();
sql(method('elsewhere', "$unit/blobext_unit", 'unit_method_elsewhere'),
	'CREATE TABLE s.kept AS SELECT i AS id, value(i)::blobstate AS b FROM generate_series(1, 10) AS i',
	'CREATE TABLE s.numbers (a integer) USING elsewhere');
sub freed
{
	my ($name) = @_;
	sql('DELETE FROM s.kept WHERE id = (SELECT min(id) FROM s.kept)', 'VACUUM s.kept');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return frees(1, $name);
}
freed('a table of a foreign access method whose columns cannot hold values does not stop the collector');
sql('CREATE TABLE s."Else where" (id integer, b blobstate) USING elsewhere', 'CREATE TABLE s.t (id integer, b blobstate)',
	'INSERT INTO s.t VALUES (1, value(1))');
my $session = session('INSERT INTO s."Else where" SELECT * FROM s.t');
is($session->query_safe('SELECT b::bytea = value(id) FROM s."Else where"'), 't', 'the other access method works');
is(sql(q(SELECT pg_relation_size('s."Else where"'))), '0', 'the other access method keeps rows elsewhere');
sql('DELETE FROM s.t', 'VACUUM s.t');
my $strange = 'access method "elsewhere", which does not read and write rows by heap\'s functions alone';
frees_nothing(qr/^table s\."Else where" has $strange$/, 'a table that keeps rows elsewhere');
is($session->query_safe('SELECT b::bytea = value(id) FROM s."Else where"'), 't', 'a value that is kept elsewhere is there');
like(sql('SELECT relation, problem FROM blobext_check()'), qr/^s\."Else where"\|the relation has $strange$/, 'the check names the table');

# The routine of the open relation counts: this session opened the table before the handler was replaced, and has its rows.
$session->query_safe("SET blobext.gc_wait_timeout = '300ms'; SET client_min_messages = warning");
sql("CREATE OR REPLACE FUNCTION elsewhere_handler(internal) RETURNS table_am_handler AS '$unit/blobext_unit', 'unit_method_copy' LANGUAGE C");
like($session->query_safe('SELECT freed_blobs, skipped_reason FROM blobext_gc()'), qr/^0\|relation "Else where" was changed meanwhile$/,
	'a relation that is open with the routine of a replaced handler: nothing is freed');
is($session->query_safe('SELECT b::bytea = value(id) FROM s."Else where"'), 't', 'a value of a routine that was replaced is there');
forget_sessions();
sql('DROP TABLE s."Else where", s.numbers', 'DROP TABLE s.t');
is((gc())[2], '', 'the collector goes on behind DROP TABLE');

# A library that is gone.
my $library = "$PostgreSQL::Test::Utils::tmp_check/gone.so";
copy_file("$unit/blobext_unit.so", $library);
sql(method('gone', $library, 'unit_method_copy'), 'CREATE TABLE s.gone (id integer, b blobstate) USING gone',
	'INSERT INTO s.gone VALUES (1, value(1))');
freed('the library of a copied routine is there');
unlink($library) or die;
frees_nothing(qr/^table s\.gone has access method "gone", whose handler fails: could not access file ".*gone\.so": No such file/,
	'the library of an access method is gone');
like(sql('SELECT relation, problem FROM blobext_check()'), qr/^s\.gone\|cannot be read: could not access file/, 'the check goes on');
copy_file("$unit/blobext_unit.so", $library);
freed('the library of an access method is there again');
intact('SELECT * FROM s.gone', 1, 'a value of a table whose library was gone');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');
done_testing();

sub copy_file
{
	my ($from, $to) = @_;
	system('cp', $from, $to) == 0 or die "cp $from $to";
	return;
}
