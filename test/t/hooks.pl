# Other libraries before and after this one in shared_preload_libraries see each statement once.
#
# pg_stat_statements works in hooks that blobext has, too: after analysis it replaces constants, in
# the planner it counts plans, in ProcessUtility it counts statements, and in ExecutorRun and
# ExecutorFinish it counts levels, so that statements of functions and triggers are not taken for the
# client's.  Seen to fail with each of the five hooks of blobext not calling the one before it.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $directory = `pg_config --pkglibdir`;
chomp $directory;
plan skip_all => 'pg_stat_statements is not installed'
  unless -e "$directory/pg_stat_statements.so";

# Each statement, its calls and rows as pg_stat_statements counts them.
my @statements = (
	[ 'CREATE TABLE hooked (id integer, b blobstate)', 0 ],
	[ q(INSERT INTO hooked SELECT i, convert_to(repeat('x', 5000), 'UTF8')
		FROM generate_series(1, 3) i), 3 ],
	[ 'CREATE INDEX hooked_b ON hooked (b)', 0 ],
	[ 'CREATE TABLE hooked_copy AS SELECT id, b FROM hooked', 3 ],
	[ 'SELECT length(b) FROM hooked', 3 ],
	[ 'WITH hooked_with AS (UPDATE hooked SET id = id RETURNING b) SELECT 1', 1 ],
	[ q(COPY hooked TO '/dev/null'), 3 ],
	[ 'DECLARE hooked_cursor CURSOR WITH HOLD FOR SELECT b FROM hooked', 0 ],
	[ 'DO $$ BEGIN PERFORM FROM hooked; COMMIT; END $$', 0 ],
	[ 'SELECT hooked_function()', 1 ],
	[ 'DELETE FROM hooked WHERE id < 2', 1 ],
);

# Their statements are not the client's: a function, and a trigger that fires after DELETE.
my $nested = q(
CREATE FUNCTION hooked_function() RETURNS bigint LANGUAGE plpgsql
	AS 'BEGIN RETURN (SELECT count(*) FROM hooked WHERE b IS NULL); END';
CREATE FUNCTION hooked_trigger() RETURNS trigger LANGUAGE plpgsql
	AS 'BEGIN PERFORM FROM hooked_copy WHERE b IS NULL; RETURN NULL; END';
CREATE TRIGGER hooked_trigger AFTER DELETE ON hooked EXECUTE FUNCTION hooked_trigger());

my $node = blob_cluster('main', start => 0, conf => "pg_stat_statements.track_planning = on\n");
foreach my $libraries ('pg_stat_statements, blobext', 'blobext, pg_stat_statements')
{
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'$libraries'");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION blobext; CREATE EXTENSION pg_stat_statements;
		SELECT pg_stat_statements_reset()');
	my ($table, @others) = map { $_->[0] } @statements;
	$node->safe_psql('postgres', join(';', $table, $nested, @others));
	foreach my $statement (@statements)
	{
		my ($first_words) = $statement->[0] =~ /^(.{10,25}\w)\b/;
		is( $node->safe_psql('postgres', qq(SELECT calls, rows FROM pg_stat_statements
				WHERE starts_with(query, \$query\$$first_words\$query\$))),
			"1|$statement->[1]", "$libraries: \"$first_words\" is counted once");
	}
	is( $node->safe_psql('postgres', q(SELECT query FROM pg_stat_statements
			WHERE query ~ 'b IS NULL' AND query !~ '^\s*CREATE|pg_stat')),
		'', "$libraries: statements of functions and triggers are not counted");
	is( $node->safe_psql('postgres', q(SELECT query, plans FROM pg_stat_statements
			WHERE query ~ '^DELETE FROM hooked')),
		'DELETE FROM hooked WHERE id < $1|1', "$libraries: a plan is counted, a constant replaced");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM blobext_check()'),
		'0', "$libraries: nothing is wrong with the values");
	is($node->safe_psql('postgres', q(SELECT DISTINCT blob_storage(b) FROM hooked_copy)),
		'extents', "$libraries: values are stored in extents");
	$node->safe_psql('postgres', 'DROP EXTENSION blobext CASCADE;
		DROP EXTENSION pg_stat_statements; DROP TABLE hooked, hooked_copy;
		DROP FUNCTION hooked_function, hooked_trigger');
	$node->stop;
}

done_testing();
