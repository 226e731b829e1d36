# Access method blobext_map is for the extent map alone.  If a strange relation exists all the same,
# the collector and the check name it, and go on with the other relations.
#
# An ordinary role, the owner of the map and scripts of other extensions ask for tables with the
# map's access method in every way that PostgreSQL has: each is refused before a file is made.  The
# commands that the map itself needs (CREATE EXTENSION, VACUUM FULL, SET TABLESPACE) work beside it;
# pg_upgrade.pl has the third way.  Then relations that a library without this rule let be made, or
# that only direct changes of the catalogs by a superuser can make.
#
# Seen to fail with the decision by the name's prefix (pg_temp_...) or by creating_extension alone: the
# tables were made, nothing was collected any more, blobext_check() and pg_dump ended with an error.
# Also without blob_assign_check_map_method() (the table of a role that can lock the map is made),
# without the test of the lock (its file is), of the extension's name or schema; without
# blob_check_safely() around a relation or an index (the check ends there); with lock timeouts as
# problems of a relation.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

my $node = blob_cluster('main', streaming => 1,
	conf => "autovacuum = off\nallow_in_place_tablespaces = on\nignore_checksum_failure = on\n");
gc_use($node);
sql('CREATE EXTENSION pg_walinspect', 'CREATE EXTENSION pageinspect', "CREATE TABLESPACE other LOCATION ''",
	'CREATE ROLE ordinary', 'GRANT CREATE, USAGE ON SCHEMA s, public TO ordinary',
	q(CREATE VIEW method_users AS SELECT c.oid::regclass AS relation FROM pg_class AS c
		JOIN pg_am AS a ON a.oid = c.relam WHERE amname = 'blobext_map'));
my $map = sql(q(SELECT 'blobext_map'::regclass::oid));
my $only = qr/access method "blobext_map" is for the extent map of blobext only.*HINT:  .*another access method/s;

sub only_the_map
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(sql('SELECT relation FROM method_users'), 'blobext_map', $name);
}

# ---- an ordinary role ----

sql('SET ROLE ordinary; CREATE TABLE s.e (id integer, b blobstate);
	CREATE TABLE s.parts (id integer, b blobstate) PARTITION BY RANGE (id);
	CREATE MATERIALIZED VIEW s.view AS SELECT 1 AS id');
my $e = sql(q(SELECT 's.e'::regclass::oid));
my $default = 'SET default_table_access_method = blobext_map;';
my @attacks = (
	'CREATE TABLE s.own (b blobstate) USING blobext_map',
	'CREATE TABLE s.pg_temp_x (b blobstate) USING blobext_map',
	"CREATE TABLE s.pg_temp_$e (b blobstate) USING blobext_map",
	"CREATE TABLE s.pg_temp_$map (b blobstate) USING blobext_map",
	"CREATE TABLE public.pg_temp_$map (b blobstate) USING blobext_map",
	"CREATE TEMPORARY TABLE pg_temp_$map (b blobstate) USING blobext_map",
	"CREATE UNLOGGED TABLE public.pg_temp_$map (b blobstate) USING blobext_map",
	'CREATE TABLE s.blobext_map (b blobstate) USING blobext_map',
	'ALTER TABLE s.e SET ACCESS METHOD blobext_map',
	'ALTER MATERIALIZED VIEW s.view SET ACCESS METHOD blobext_map',
	"$default CREATE TABLE s.pg_temp_own (b blobstate)",
	"$default CREATE TABLE s.pg_temp_own AS SELECT b FROM s.e",
	"$default CREATE TABLE s.pg_temp_own AS SELECT b FROM s.e WITH NO DATA",
	"$default SELECT b INTO s.pg_temp_own FROM s.e",
	"$default CREATE MATERIALIZED VIEW s.pg_temp_own AS SELECT b FROM s.e",
	"$default CREATE TEMPORARY TABLE pg_temp_own (b blobstate)",
	"$default CREATE TABLE s.pg_temp_own PARTITION OF s.parts FOR VALUES FROM (1) TO (2)",
	"$default CREATE TABLE s.pg_temp_own (LIKE s.e)",
	"$default CREATE TABLE s.pg_temp_own () INHERITS (s.e)",
	'CREATE TABLE s.pg_temp_own PARTITION OF s.parts FOR VALUES FROM (1) TO (2) USING blobext_map');

my $from = sql('SELECT pg_current_wal_insert_lsn()');
fails_with($node, "SET ROLE ordinary; $_", '0A000', $only, "an ordinary role may not: $_") foreach @attacks;
# The access method that a partitioned table would pass on to its partitions: from 17 on.
isnt($node->psql('postgres', 'SET ROLE ordinary;
	CREATE TABLE s.strange (id integer) PARTITION BY RANGE (id) USING blobext_map'), 0,
	'refused: a partitioned table');
isnt($node->psql('postgres', 'SET ROLE ordinary; ALTER TABLE s.parts SET ACCESS METHOD blobext_map'), 0,
	'refused: a partitioned table that is there');
sql('SELECT pg_switch_wal()');
is(sql("SELECT count(*) FROM pg_get_wal_records_info('$from', '@{[ sql('SELECT pg_current_wal_flush_lsn()') ]}')
	WHERE resource_manager = 'Storage' AND record_type = 'CREATE'"), '0', 'not a file was made');
only_the_map('an ordinary role has made nothing');

# ---- roles with privileges on the map ----

# A lock on the map is not enough, and neither is to own it.
sub needs_lock
{
	my ($role, $name) = @_;
	fails_with($node, "SET ROLE $role; BEGIN; LOCK blobext_map IN ACCESS EXCLUSIVE MODE;
		CREATE TABLE public.pg_temp_$map (b blobstate) USING blobext_map; COMMIT", '0A000', $only,
		"$name may not make another map under its lock");
	fails_with($node, "SET ROLE $role; DO \$\$ BEGIN LOCK blobext_map IN ACCESS EXCLUSIVE MODE;
		CREATE TABLE public.pg_temp_$map (a bigint) USING blobext_map; END \$\$", '0A000', $only,
		"$name may not make another map under its lock, in one statement");
	only_the_map("$name: nothing is made");
	return;
}
sql('GRANT ALL ON blobext_map TO ordinary');
needs_lock('ordinary', 'a role that may lock the map');
my $owner = sql(q(SELECT relowner::regrole FROM pg_class WHERE relname = 'blobext_map'));
sql('ALTER TABLE blobext_map OWNER TO ordinary');
needs_lock('ordinary', 'the owner of the map');
fails_with($node, 'SET ROLE ordinary; BEGIN; TRUNCATE blobext_map', '0A000', qr/cannot truncate extent map/,
	'the owner of the map: TRUNCATE');
my $before = sql('SELECT pg_relation_filenode($$blobext_map$$)');
sql('SET track_activities = off', 'SET ROLE ordinary', 'VACUUM FULL blobext_map');
isnt(sql('SELECT pg_relation_filenode($$blobext_map$$)'), $before, 'the owner of the map: VACUUM FULL');
sql("ALTER TABLE blobext_map OWNER TO $owner", 'REVOKE ALL ON blobext_map FROM ordinary');
needs_lock($owner, 'a superuser');
sql('VACUUM FULL', 'ALTER TABLE blobext_map SET TABLESPACE other',
	'ALTER TABLE blobext_map SET TABLESPACE pg_default');
only_the_map('VACUUM FULL, SET TABLESPACE');
is(sql('SELECT pg_relation_size($$blobext_map$$) >= 8192'), 't', 'the map has its pages');

# ---- scripts of extensions ----

# An event trigger stands for the script of another extension: its commands are members of it.
my $trigger = q(
CREATE FUNCTION make_stray() RETURNS event_trigger LANGUAGE plpgsql AS
	$$ BEGIN CREATE TABLE %s (b integer) USING blobext_map; END $$;
CREATE EVENT TRIGGER make_stray ON ddl_command_end WHEN TAG IN ('%s') EXECUTE FUNCTION make_stray());
sql(sprintf($trigger, 'public.stray', 'CREATE FUNCTION'));
fails_with($node, 'CREATE EXTENSION citext', '0A000', $only, 'the script of another extension');
sql('DROP EVENT TRIGGER make_stray', 'CREATE EXTENSION citext', 'CREATE DATABASE another');
only_the_map('other extensions have made nothing');

sub in_another { return $node->safe_psql('another', $_[0]); }

in_another(sprintf($trigger, 'public.stray', 'CREATE TABLE'));
fails_with($node, 'CREATE EXTENSION blobext', '0A000', $only, 'within CREATE EXTENSION blobext: another table',
	database => 'another');
in_another('DROP EVENT TRIGGER make_stray; DROP FUNCTION make_stray; CREATE SCHEMA elsewhere');
in_another(sprintf($trigger, 'elsewhere.blobext_map', 'CREATE TABLE'));
fails_with($node, 'CREATE EXTENSION blobext', '0A000', $only, 'within CREATE EXTENSION blobext: another schema',
	database => 'another');
in_another('DROP EVENT TRIGGER make_stray; CREATE EXTENSION blobext SCHEMA elsewhere');
fails_with($node, 'BEGIN; DROP EXTENSION blobext; CREATE EXTENSION blobext; SAVEPOINT s; TRUNCATE blobext_map',
	'0A000', qr/cannot truncate extent map/, 'TRUNCATE in the transaction that made the map',
	database => 'another');
is(in_another('SELECT count(*) FROM elsewhere.blobext_check()'), '0', 'the extension in another schema');

# ---- strange relations ----

# Make a relation that an older library let be made, or that only direct changes of the catalogs can
# make.
sub set_method
{
	my ($relation, $method) = @_;
	sql("UPDATE pg_class SET relam = $method WHERE oid = '$relation'::regclass",
		"DELETE FROM pg_depend WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_am'::regclass
			AND objid = '$relation'::regclass",
		"INSERT INTO pg_depend SELECT 'pg_class'::regclass, '$relation'::regclass, 0, 'pg_am'::regclass, oid,
			0, 'n' FROM pg_am WHERE oid = $method AND amname <> 'heap'");
	return;
}
my $maps = q((SELECT oid FROM pg_am WHERE amname = 'blobext_map'));
my $heap = q((SELECT oid FROM pg_am WHERE amname = 'heap'));

sub check
{
	return sql('SELECT relation, column_name, problem FROM blobext_check() ORDER BY relation::oid, 3');
}

sub freed
{
	my ($expected, $name) = @_;
	sql('DELETE FROM s.kept WHERE id = (SELECT min(id) FROM s.kept)', 'VACUUM s.kept');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return frees($expected, $name);
}

clean();
sql('CREATE TABLE s.kept (id integer, b blobstate)',
	'INSERT INTO s.kept SELECT i, value(i) FROM generate_series(1, 20) AS i');
freed(1, 'no strange relation yet');

# It cannot hold values: the collector goes on.
sql('CREATE TABLE s.numbers (a integer)');
set_method('s.numbers', $maps);
freed(1, 'a relation of the map\'s method that cannot hold values does not stop the collector');
my $not_the_map = qr/the relation has access method "blobext_map", which is for the extent map only/;
like(check(), qr/\As\.numbers\|\|$not_the_map\z/, 'the check names it');

# Two that can: the check goes on behind the first.
sql('CREATE TABLE s."Odd one" (a integer, b blobstate)', 'CREATE TABLE s.rows (id integer, b blobstate)',
	'INSERT INTO s.rows SELECT i, value(100 + i) FROM generate_series(1, 3) AS i');
set_method($_, $maps) foreach 's."Odd one"', 's.rows';
like(check(), qr/\As\.numbers\|\|$not_the_map\ns\."Odd one"\|\|$not_the_map\ns\.rows\|\|$not_the_map\z/,
	'the check names all, and goes on');
is(sql(q(SELECT count(*) FROM blobext_check('s.kept'))), '0', 'the check of one table');
like(sql(q(SELECT problem FROM blobext_check('s."Odd one"'))), $not_the_map, 'the check of a strange one');
frees_nothing(qr/table s\.("Odd one"|rows) has access method "blobext_map", which is for the extent map only/,
	'a strange relation that can hold values holds the collector off');
is(sql('SELECT count(*) FROM s."Odd one"'), '0', 'a relation without a file page has no rows');
fails_with($node, 'SELECT count(*) FROM s.rows', 'XX001', qr/relation "rows" is not the extent map.*HINT/s,
	'rows that nobody can read are not passed over');

# pg_dump dumps the relations that it can read; the empty one as a table, without its rows.
my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump.sql";
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres'), '-T', 's.rows' ],
	'pg_dump beside strange relations');
like(slurp_file($dump), qr/^CREATE TABLE s\."Odd one" /m, 'an empty one is in the dump');
like(slurp_file($dump), qr/^COPY s\.kept /m, 'the values are in the dump beside strange relations');
sql('VACUUM s."Odd one", s.rows', 'ANALYZE s."Odd one"');

# Ways out: another access method, DROP; or the catalog change reversed.
sql('ALTER TABLE s."Odd one" SET ACCESS METHOD heap', 'INSERT INTO s."Odd one" VALUES (1, value(50))',
	'DROP TABLE s.numbers');
set_method('s.rows', $heap);
is(check(), '', 'the check finds nothing any more');
freed(1, 'the collector works again');
intact('SELECT 50, b FROM s."Odd one"', 1, 'a table that was strange');
intact('SELECT id + 100, b FROM s.rows', 3, 'rows of a table that was strange');

# One that is not there at all: the relation cannot even be opened.
sql('CREATE TABLE s.lost (a integer)', 'CREATE TABLE s.after AS SELECT 1 AS a');
set_method('s.lost', 987654);
set_method('s.after', $maps);
like(check(), qr/\As\.lost\|\|cannot be read: .*access method.*\ns\.after\|\|$not_the_map\z/,
	'a relation that cannot be opened: the check goes on');
freed(1, 'a relation that cannot be opened does not stop the collector');
set_method($_, $heap) foreach 's.lost', 's.after';
sql('ALTER TABLE s.lost ADD COLUMN b blobstate');
set_method('s.lost', 987654);
frees_nothing(qr/table s\.lost has access method 987654, which does not exist/,
	'a relation that cannot be opened');
set_method('s.lost', $heap);
sql('DROP TABLE s.lost, s.after');
freed(1, 'the collector frees again when the relation can be opened');

# A page that is damaged, of a table and of an index.
sub damage
{
	my ($relation) = @_;
	my $file = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('$relation')");
	$node->stop;
	open(my $handle, '+<:raw', $file) or die "$file: $!";
	sysseek($handle, 12, 0);
	sysread($handle, my $was, 6);
	sysseek($handle, 12, 0);
	syswrite($handle, "\xff" x 6);
	close($handle) or die "$file: $!";
	$node->start;
	return;
}
sql('CREATE TABLE s.damaged (id integer, b blobstate)', 'INSERT INTO s.damaged VALUES (1, value(70))',
	'CREATE INDEX damaged_key ON s.kept (b)', 'CREATE TABLE s.after (a integer)');
set_method('s.after', $maps);
damage('s.damaged');
like(check(), qr/\As\.damaged\|\|cannot be read: invalid page in block 0 .*\ns\.after\|\|$not_the_map\z/,
	'a damaged page: the check goes on');
damage('s.damaged_key');
my $found = check();
like($found, qr/^s\.damaged_key\|\|cannot be read: invalid page in block 0 /m, 'a damaged index: the check reports it');
like($found, qr/^s\.damaged\|\|cannot be read: /m, 'a damaged index: its damaged table is reported, too');
like($found, qr/^s\.after\|\|$not_the_map/m, 'a damaged index: what comes after it is checked');
my ($result, undef, $error) = $node->psql('postgres', 'SELECT * FROM blobext_gc()');
isnt($result, 0, 'the collector frees nothing');
like($error, qr/invalid page in block 0/, 'the collector says why it frees nothing');

# Waiting in vain is no property of a relation; check.pl cancels.
my $locker = session('BEGIN', 'LOCK s.kept');
($result, undef, $error) = $node->psql('postgres', "SET lock_timeout = '300ms'; SELECT * FROM blobext_check()");
isnt($result, 0, 'a lock that cannot be had');
like($error, qr/canceling statement due to lock timeout/, 'a lock that cannot be had is an error, not a row');
forget_sessions();

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, 'no PANIC in the log');
done_testing();
