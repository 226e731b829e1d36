# Stale values: descriptors whose extents were freed, and hold the content of another role now.
#
# A value that somebody has kept, by whatever way, gives nobody that content, under no function, and is
# not stored.  A change that was under way when the extents were freed and reused notices it at its
# end.  Constants in caches (plans, index predicates and expressions, checks of domains) are given up
# by a round of the collector: they are never stale, so a session that keeps its connection goes on.
#
# Seen to fail: "Fails without" names what was taken out of the code.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

my $library = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";
my $node = blob_cluster('main', streaming => 1, conf => q(
wal_level = logical
autovacuum = off
max_connections = 30
checkpoint_timeout = 1h
));
gc_use($node);
sql(qq(
CREATE FUNCTION datum_bytes(blobstate) RETURNS bytea AS '$library', 'unit_datum_bytes'
	LANGUAGE C STRICT;
CREATE FUNCTION datum(bytea) RETURNS blobstate AS '$library', 'unit_datum' LANGUAGE C STRICT;
CREATE FUNCTION stop_at_allocation(bigint) RETURNS void AS '$library', 'unit_stop_at_allocation'
	LANGUAGE C STRICT;
CREATE FUNCTION free_extents(bigint[], bigint[], xid) RETURNS pg_lsn
	AS '$library', 'unit_space_free' LANGUAGE C STRICT;
CREATE FUNCTION reclaim() RETURNS integer AS '$library', 'unit_space_reclaim' LANGUAGE C;
CREATE ROLE bob;
CREATE ROLE mallory;
GRANT CREATE ON SCHEMA public TO bob, mallory;
CREATE FUNCTION secret(bytes integer) RETURNS bytea LANGUAGE sql AS
	\$\$ SELECT convert_to(left(repeat('SECRET--', bytes / 8 + 1), bytes), 'UTF8') \$\$));

# Store values of all forms (function make gives them), remember them, and let another role store the
# same layouts with its own content in their place.  Gives the datums of the old ones.
my %forms = (
	'with a tail' => q(SET blobext.tail_extents = on;
		INSERT INTO place SELECT make(150000)::blobstate),
	'of whole pages' => q(SET blobext.tail_extents = on;
		INSERT INTO place SELECT make(147456)::blobstate),
	'of whole extents' => q(SET blobext.tail_extents = off;
		INSERT INTO place SELECT make(258048)::blobstate),
	'without a tail' => q(SET blobext.tail_extents = off;
		INSERT INTO place SELECT make(150000)::blobstate),
	'grown, rest in the row' => q(SET blobext.tail_extents = on;
		INSERT INTO place SELECT blob_append(make(147456)::blobstate, make(101))),
	'grown, rest in a page' => q(SET blobext.tail_extents = on;
		INSERT INTO place SELECT blob_append(make(147456)::blobstate, make(3000))));

sub store_form
{
	my ($role, $form, $make) = @_;
	return sql("SET ROLE $role", "CREATE TABLE ${role}_table (b blobstate)",
		$forms{$form} =~ s/place/${role}_table/gr =~ s/make\(/$make(/gr);
}

sub pages_of
{
	my ($table) = @_;
	return sql("SELECT string_agg(first_page || '+' || pages, ' ' ORDER BY first_page)
		FROM $table, blob_extents(b)");
}

# What nothing refers to is free, and is given out next.
sub reuse
{
	gc();
	sql('CHECKPOINT', 'SELECT reclaim()');
	return;
}

sub take_place
{
	my ($form) = @_;
	sql('SET client_min_messages = warning', 'DROP TABLE IF EXISTS mallory_table, bob_table, kept');
	reuse();
	store_form('mallory', $form, 'other');
	my $datum = sql('SELECT datum_bytes(b) FROM mallory_table');
	my $pages = pages_of('mallory_table');
	sql('DROP TABLE mallory_table');
	reuse();
	store_form('bob', $form, 'secret');
	is(pages_of('bob_table'), $pages, "$form: the content of another role is in its place");
	sql('CREATE TABLE kept (b blobstate, a blobstate[])', 'GRANT ALL ON kept TO mallory');
	return $datum;
}

sql(q(CREATE FUNCTION other(bytes integer) RETURNS bytea LANGUAGE sql AS
	$$ SELECT convert_to(left(repeat('mine ', bytes / 5 + 1), bytes), 'UTF8') $$));

# ---- every function, with a value whose extents belong to another role ----
# Fails without: blob_require_extents() in blob_complete(), for "makes a value"; without
# blob_require_valid() in blob_externalize(), for "is not stored".

my %uses = (
	'makes a value' => [
		'blob_append(v, other(5000))', q(blob_append(v, '')), 'v || other(3000)', 'v || v',
		'other(2000) || v', 'blob_truncate(v, length(v) + 100000)', 'blob_truncate(v, length(v))',
		'blob_truncate(v, length(v) - 1)', 'blob_truncate(v, 20000)',
		'blob_insert(v, length(v), other(5000))', 'blob_insert(v, 70000, other(5000))',
		'blob_insert(v, 0, other(5000))', 'blob_write(v, length(v), other(5000))',
		'blob_write(v, length(v) + 5000, other(5000))', 'blob_write(v, 70000, other(5000))',
		'blob_write(v, 0, other(32))', 'blob_write(v, length(v) - 10, other(5000))',
		'blob_write(v, length(v) - 10, other(10))', 'blob_delete(v, 70000, 1000)',
		'blob_delete(v, length(v) - 10, 10)' ],
	'reads' => [
		'v::bytea', 'v::text', 'blob_read(v, 70000, 100)', 'blob_read(v, 0, 100)',
		'substr(v, 70000)', 'substring(v, 5, 100)', '(SELECT string_agg(data, NULL) FROM blob_chunks(v))',
		'ARRAY[v]', 'ROW(v)', 'blob_to_lo(v)', 'v < blob_store(blob_prefix(v) || other(200000))' ]);

foreach my $form (sort keys %forms)
{
	my $datum = take_place($form);
	my $with = "FROM (SELECT datum('$datum') AS v OFFSET 0) AS s";

	foreach my $kind (sort keys %uses)
	{
		foreach my $expression (@{ $uses{$kind} })
		{
			my ($result, $out, $error) = $node->psql('postgres',
				"\\set VERBOSITY verbose\nSET ROLE mallory; SELECT $expression $with");
			like($error, qr/ERROR:  XB001/, "$form: $expression $kind");
			unlike("$out$error", qr/SECRET|534543524554/, "$form: $expression discloses nothing");
		}
	}
	foreach my $statement ("INSERT INTO kept (b) SELECT v $with",
		"INSERT INTO kept (a) SELECT ARRAY[v] $with", "CREATE TABLE kept_too AS SELECT v $with",
		"INSERT INTO kept (b) SELECT blob_agg(v) $with", "UPDATE kept SET b = v $with")
	{
		sql(q(INSERT INTO kept VALUES ('\x01', NULL)));
		fails_with($node, "SET ROLE mallory; $statement", 'XB001', qr/stale blobstate value/,
			"$form: is not stored: " . $statement =~ s/ FROM.*//sr);
	}
	is(sql("SET ROLE mallory; SELECT length(v) >= 147456, blob_storage(v),
		blob_prefix(v) = other(32) $with"), 't|extents|t',
		"$form: what is in the descriptor can be read");
	is(sql('SELECT count(*) FROM bob_table WHERE b::bytea LIKE \'SECRET--%\'::bytea'), '1',
		"$form: the other role has its content");
	check_is_clean($node, "$form: the store is as it should be");
}

# ---- a change is under way ----
# The function has shared the extents, and drawn generations; then these are freed, another role
# stores its content there, and the function draws another generation, for the page of the rest.
# Fails without: blob_require_extents() in blob_complete().

foreach my $form ('with a tail', 'grown, rest in a page')
{
	sql('SET client_min_messages = warning', 'DROP TABLE IF EXISTS mallory_table, bob_table, kept');
	reuse();
	store_form('mallory', $form, 'other');
	my $datum = sql('SELECT datum_bytes(b) FROM mallory_table');
	my $pages = pages_of('mallory_table');
	my $free = sql(q(SELECT format('SELECT free_extents(%L, %L, ''0'')', array_agg(first_page ORDER BY 1),
		array_agg(generation ORDER BY 1)) FROM (SELECT DISTINCT m.first_page, m.generation
		FROM mallory_table, blob_extents(b) AS e JOIN blobext_map AS m USING (first_page)
		ORDER BY 1) AS e));
	my $lock = session('SELECT pg_advisory_lock(7)');
	my %change = (out => '', err => '');
	$change{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-v', 'VERBOSITY=verbose',
			'-c', 'SELECT stop_at_allocation(7)',
			'-c', "SELECT substr(blob_truncate(datum('$datum'), 150000 + 17 * 1024 * 1024), 1, 140000)" ],
		'>', \$change{out}, '2>', \$change{err});
	poll(q(SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
	sql($free);
	sql('DROP TABLE mallory_table', 'CHECKPOINT', 'SELECT reclaim()');
	store_form('bob', $form, 'secret');
	is(pages_of('bob_table'), $pages, "under way, $form: another role has the place");
	$lock->query_safe('SELECT pg_advisory_unlock(7)');
	IPC::Run::finish($change{run});
	like($change{err}, qr/ERROR:  XB001/, "under way, $form: the change fails");
	unlike("$change{out}$change{err}", qr/SECRET|534543524554/,
		"under way, $form: nothing is disclosed");
	forget_sessions();
}

done_testing();
