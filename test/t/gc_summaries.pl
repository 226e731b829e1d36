# With WAL summaries a round reads the pages that have changed, and no others of the same page of the
# visibility map.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

plan skip_all => 'WAL summaries came with PostgreSQL 17, and notes of pages end with 18'
  if `pg_config --version` !~ /PostgreSQL 1[78]/;

my $rows = $ENV{BLOBEXT_SUMMARY_ROWS} // 20000;
my $node = blob_cluster('main', streaming => 1, init => ['--data-checksums'], conf => q(
autovacuum = off
summarize_wal = on
shared_preload_libraries = 'blobext'
));
gc_use($node);
sql(q(CREATE FUNCTION v(n integer) RETURNS bytea LANGUAGE sql VOLATILE AS
	$$ SELECT convert_to(repeat(md5(n::text), 200), 'UTF8') $$));

sub pages { return split /\|/, sql('SELECT pages_done, pages_unchanged FROM blobext_gc_status') }

# The summarizer has written all up to the last checkpoint.
sub summarize
{
	sql('CHECKPOINT', 'CHECKPOINT');
	return poll(q(SELECT summarized_lsn >= (SELECT redo_lsn FROM pg_control_checkpoint()) FROM pg_get_wal_summarizer_state()));
}

sub whole
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(sql('SELECT count(*) FROM s.t WHERE sha256(b) IS DISTINCT FROM sha256(v(n)) OR b::bytea IS DISTINCT FROM v(n)'), '0', $name);
}

sub rounds_after
{
	my ($name, @statements) = @_;
	sql('VACUUM s.t');
	gc() for 1 .. 2;
	sql(@statements);
	summarize();
	my ($freed, $live, $reason) = gc();
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($reason, '', "$name: the round is complete");
	is($live, sql('SELECT count(*) FROM s.t'), "$name: as many values live as there are rows");
	return pages();
}

sql('CREATE TABLE s.t (id integer PRIMARY KEY, n integer, b blobstate, other integer) WITH (fillfactor = 95)',
	"INSERT INTO s.t SELECT i, i, v(i), 0 FROM generate_series(1, $rows) AS i");
# Summaries begin with the first checkpoint of a server that was made with another wal_level.
summarize();
my $heap = sql("SELECT pg_relation_size('s.t') / 8192");
my $step = 1000;

my ($read, $unchanged) = rounds_after('updates', "UPDATE s.t SET n = -n, b = v(-n) WHERE id % $step = 0");
note("$rows rows, $heap pages of the table: $read pages read in all, $unchanged not");
cmp_ok($unchanged, '>=', $heap - 2 * $rows / $step - 2, 'a round reads the pages of updated rows, and no others');
whole('all values are whole after updates');

# VACUUM sets the bits again: what was inserted is found by the summaries alone.
($read, $unchanged) = rounds_after('updates and VACUUM', "UPDATE s.t SET n = n + 1, b = v(n + 1) WHERE id % $step = 1", 'VACUUM s.t');
cmp_ok($unchanged, '>=', $heap / 2, 'a round after VACUUM reads changed pages only');
whole('all values are whole after updates and VACUUM');

# The tail: pages that were changed after the last summary.
sql('VACUUM s.t');
gc() for 1 .. 2;
summarize();
sql("UPDATE s.t SET n = n + 2, b = v(n + 2) WHERE id % $step = 2", 'VACUUM s.t');
gc();
whole('all values are whole after changes that no summary has');

# Summaries that are gone, or damaged: all is read.
sql('VACUUM s.t');
gc() for 1 .. 2;
sql("UPDATE s.t SET n = n + 3, b = v(n + 3) WHERE id % $step = 3", 'VACUUM s.t');
summarize();
unlink glob($node->data_dir . '/pg_wal/summaries/*.summary');
gc();
is((pages())[1], 0, 'without summaries a round reads all pages');
whole('all values are whole without summaries');

foreach my $change ('DELETE FROM s.t WHERE id % 50 = 0', 'DELETE FROM s.t WHERE id > 15000', 'VACUUM (FREEZE) s.t', 'VACUUM FULL s.t', 'CLUSTER s.t USING t_pkey',
	'ALTER TABLE s.t SET UNLOGGED', 'UPDATE s.t SET n = n + 5, b = v(n + 5) WHERE id % 400 = 7', 'ALTER TABLE s.t SET LOGGED',
	'INSERT INTO s.t SELECT i, i, v(i), 0 FROM generate_series(50001, 50300) AS i')
{
	rounds_after($change, $change, 'VACUUM s.t');
	whole("all values are whole after $change");
}
$node->stop;
done_testing();
