# Stale values: descriptors whose extents were freed, and hold the content of another role now.
#
# A stale value, however it was kept, gives no role that content, under no function, and is not
# stored.  A change that was under way when the extents were freed and reused notices it at its end.
# Constants in caches (plans, index predicates and expressions, checks of domains) are given up by a
# round of the collector: they are never stale, so a session that keeps its connection goes on.
#
# Seen to fail: "Fails without" names the code whose removal made a test fail.
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
blobext.keep_free = -1
));
gc_use($node);
# A store in which nothing lives gives its last segment away, and goes on in the next one: so the
# table anchor keeps a value while pages are compared.
sql(qq(
CREATE FUNCTION datum_bytes(blobstate) RETURNS bytea AS '$library', 'unit_datum_bytes'
	LANGUAGE C STRICT;
CREATE FUNCTION datum(bytea) RETURNS blobstate AS '$library', 'unit_datum' LANGUAGE C STRICT;
CREATE FUNCTION stop_at_allocation(bigint) RETURNS void AS '$library', 'unit_stop_at_allocation'
	LANGUAGE C STRICT;
CREATE FUNCTION free_extents(bigint[], bigint[], xid) RETURNS pg_lsn
	AS '$library', 'unit_store_free' LANGUAGE C STRICT;
CREATE FUNCTION reclaim() RETURNS integer AS '$library', 'unit_store_reclaim' LANGUAGE C;
CREATE TABLE anchor (b blobstate);
INSERT INTO anchor SELECT convert_to(repeat('anchor', 10000), 'UTF8');
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

# Extents without references are freed, and allocated next.
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

# Evaluates an expression or a statement with a value v: the SQLSTATE of its error, or whether the
# result has content of another role.
sql(q(CREATE FUNCTION try(expression text, datum bytea) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE result text;
	BEGIN
		EXECUTE format('SELECT (%s)::text FROM (SELECT datum($1) AS v OFFSET 0) AS s', expression)
			INTO result USING datum;
		RETURN expression || ': a result' || CASE WHEN result LIKE '%534543524554%'
			THEN ', with content of another role' ELSE '' END;
	EXCEPTION WHEN OTHERS THEN
		RETURN expression || ': ' || SQLSTATE;
	END $$),
	q(CREATE FUNCTION try_to(statement text, datum bytea) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('%s FROM (SELECT datum(%L) AS v OFFSET 0) AS s', statement, datum);
		RETURN statement || ': done';
	EXCEPTION WHEN OTHERS THEN
		RETURN statement || ': ' || SQLSTATE;
	END $$));
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
		'blob_write(v, length(v) - 10, other(10))', 'blob_patch(v, ARRAY[70000], ARRAY[other(5000)])',
		'blob_patch(v, ARRAY[0, length(v) + 10], ARRAY[other(32), other(5000)])', 'blob_delete(v, 70000, 1000)',
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
		my $tries = join(', ', map { "try(\$t\$$_\$t\$, '$datum')" } @{ $uses{$kind} });
		is(sql("SET ROLE mallory; SELECT * FROM unnest(ARRAY[$tries])"),
			join("\n", map { "$_: XB001" } @{ $uses{$kind} }), "$form: what $kind is an error");
	}
	my @stores = ('INSERT INTO kept (b) SELECT v', 'INSERT INTO kept (a) SELECT ARRAY[v]',
		'CREATE TABLE kept_too AS SELECT v', 'INSERT INTO kept (b) SELECT blob_agg(v)',
		'UPDATE kept SET b = v');
	sql(q(INSERT INTO kept VALUES ('\x01', NULL)));
	is(sql('SET ROLE mallory; SELECT * FROM unnest(ARRAY['
		. join(', ', map { "try_to('$_', '$datum')" } @stores) . '])'),
		join("\n", map { "$_: XB001" } @stores), "$form: it is not stored");
	is(sql("SET ROLE mallory; SELECT length(v) >= 147456, blob_storage(v),
		blob_prefix(v) = other(32) $with"), 't|extents|t',
		"$form: what is in the descriptor can be read");
	is(sql('SELECT count(*) FROM bob_table WHERE b::bytea LIKE \'SECRET--%\'::bytea'), '1',
		"$form: the other role has its content");
	check_is_clean($node, "$form: the store is as it should be");
}

# ---- a change is under way ----
# The function has shared the extents, and drawn generations; then these are freed, another role
# stores its content there, and the function draws another generation, for the page of the
# remainder.
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

# ---- a reader outlives the extents that it has verified ----
# The calls of blob_read() in a loop have one reader, which looks an extent up once before it reads it for
# the first time.  Between two calls the extents are freed, and another role stores its content there.
# Fails without: blob_verify_after() in blob_stored_read().

sql(q(CREATE FUNCTION read_around(bytea) RETURNS bytea LANGUAGE plpgsql AS $$
	DECLARE
		v blobstate := datum($1);
		piece bytea;
	BEGIN
		FOR i IN 1 .. 4 LOOP
			IF i = 4 THEN
				PERFORM pg_advisory_lock(7);
			END IF;
			piece := blob_read(v, 70000, 100);
		END LOOP;
		RETURN piece;
	END $$));
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
	my %reads = (out => '', err => '');
	$reads{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-v', 'VERBOSITY=verbose',
			'-c', "SELECT read_around('$datum')" ],
		'>', \$reads{out}, '2>', \$reads{err});
	poll(q(SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
	sql($free);
	sql('DROP TABLE mallory_table', 'CHECKPOINT', 'SELECT reclaim()');
	store_form('bob', $form, 'secret');
	is(pages_of('bob_table'), $pages, "a reader, $form: another role has the place");
	$lock->query_safe('SELECT pg_advisory_unlock(7)');
	IPC::Run::finish($reads{run});
	like($reads{err}, qr/ERROR:  XB001/, "a reader, $form: its next read fails");
	is($reads{out}, '', "a reader, $form: and returns nothing");
	forget_sessions();
}

sql('DROP TABLE anchor');

# ---- constants in caches ----
# A function that is declared IMMUTABLE and returns a stored value.  A session that keeps its
# connection has its value in every cache.  The row gets another value, the first one is freed, and
# another role stores its content there.  The session must see what a new one sees.
# Fails without: blob_gc_constants_give_up(); for indexes, without relation_message(); for domains,
# without the messages about pg_constraint.

# Make a store with the function; and give its row another value.
sub make_source
{
	sql('SET client_min_messages = warning', 'DROP TABLE IF EXISTS mallory_table, bob_table, kept');
	clean();
	reuse();
	sql('GRANT USAGE ON SCHEMA s TO bob', 'CREATE TABLE s.t2 (id integer, b blobstate)',
		'CREATE TABLE s.stop (b blobstate)', 'CREATE TABLE s.source (id integer, b blobstate)',
		'INSERT INTO s.source VALUES (1, other(147456))',
		q(CREATE FUNCTION s.stored() RETURNS blobstate LANGUAGE plpgsql IMMUTABLE AS
			$$ BEGIN RETURN (SELECT b FROM s.source WHERE id = 1); END $$));
	return;
}

sub replace_source
{
	sql("UPDATE s.source SET b = other(147456) || 'another'", 'VACUUM s.source');
	return;
}

my %statements = (
	(map { ("plan: $_", "PREPARE p%d AS SELECT md5(($_)::bytea)") }
		's.stored()', "blob_append(s.stored(), other(5000))", "s.stored() || other(3000)",
		'blob_truncate(s.stored(), length(s.stored()) + 100000)',
		'blob_insert(s.stored(), length(s.stored()), other(5000))',
		'blob_write(s.stored(), 147456, other(5000))', 'blob_write(s.stored(), 200000, other(5000))',
		'blob_read(s.stored(), 70000, 100)'),
	'plan: a copy' => 'PREPARE p%d AS INSERT INTO s.copy SELECT s.stored() FROM s.switch WHERE go
		RETURNING md5(b::bytea)',
	'plan: a view' => 'PREPARE p%d AS SELECT md5(b::bytea) FROM s.view',
	'PL/pgSQL' => 'PREPARE p%d AS SELECT s.reads()',
	'domain' => "PREPARE p%d AS SELECT length((other(147456) || 'more'::bytea)::s.checked)",
	'index predicate' => "PREPARE p%d AS INSERT INTO s.partial
		VALUES (1, other(147456) || 'more'::bytea) RETURNING md5(b::bytea)",
	'index expression' => 'PREPARE p%d AS INSERT INTO s.expression SELECT 1, NULL FROM s.switch WHERE go
		RETURNING id',
	'check constraint' => "PREPARE p%d AS INSERT INTO s.checks
		VALUES (other(147456) || 'more'::bytea) RETURNING md5(b::bytea)");

make_source();
sql('CREATE TABLE s.switch AS SELECT false AS go', 'CREATE TABLE s.copy (b blobstate)', 'CREATE VIEW s.view AS SELECT s.stored() AS b',
	q(CREATE FUNCTION s.reads() RETURNS text LANGUAGE plpgsql AS
		$$ DECLARE v blobstate; BEGIN v := s.stored(); RETURN md5(v::bytea); END $$),
	'CREATE DOMAIN s.checked AS blobstate CHECK (VALUE > s.stored())',
	'CREATE TABLE s.partial (id integer, b blobstate)',
	'CREATE INDEX ON s.partial (id) WHERE b > s.stored()',
	'CREATE TABLE s.expression (id integer, b blobstate)',
	'CREATE INDEX ON s.expression (id, coalesce(b, s.stored()))',
	'CREATE TABLE s.checks (b blobstate CHECK (b > s.stored()))');
my @names = sort keys %statements;
my @prepare = map { sprintf $statements{ $names[$_] }, $_ } 0 .. $#names;
my @settings = ('SET plan_cache_mode = force_generic_plan');
my $pooled = $node->background_psql('postgres', on_error_stop => 0);
$pooled->query_safe($_) foreach @settings, @prepare;
# Twice: the first row of an index has the server give up its cached entry of the index.
$pooled->query_safe("EXECUTE p$_") foreach 0 .. $#names, 0 .. $#names;
is($pooled->query_safe("SELECT generic_plans > 0 FROM pg_prepared_statements WHERE name = 'p0'"), 't',
	'caches: plans are kept');
replace_source();
sql('UPDATE s.switch SET go = true');
reuse();
store_form('bob', 'of whole pages', 'secret');
my $new = session(@settings, @prepare);
foreach my $i (0 .. $#names)
{
	my $expected = $new->query_safe("EXECUTE p$i");
	is($pooled->query("EXECUTE p$i"), $expected, "an old plan answers as a new session: $names[$i]");
}
$pooled->quit;
forget_sessions();
check_is_clean($node, 'caches: the store is as it should be');

# ---- a constant is stored after its table was scanned, and before the sweep ----
# Fails without: blob_gc_constants_give_up().

make_source();
$pooled = session(@settings, 'PREPARE p (boolean) AS INSERT INTO s.t2 SELECT 2, s.stored() WHERE $1',
	'EXECUTE p (false)');
replace_source();
my ($gc, $stop) = start_gc_to_stop();
gc_waits_for('relation "stop" locked');
$pooled->query_safe('EXECUTE p (true)');
$stop->query_safe('COMMIT');
my ($freed, $reason) = gc_result($gc);
is("$freed|$reason", '1|', 'between scan and sweep: the old value is freed');
forget_sessions();
is(($node->psql('postgres', 'SELECT md5(t2.b::bytea) = md5(source.b::bytea) FROM s.t2, s.source'))[1],
	't', 'between scan and sweep: what was stored is the new value');
check_is_clean($node, 'between scan and sweep: the store is as it should be');

# ---- a constant from a temporary table ----
# It enters a cache after the messages of the round, from a table that only its session reads; that is
# emptied before the session tells the round what its tables refer to.
# Fails without: blob_gc_constants_give_up_own().

make_source();
sql(q(CREATE FUNCTION s.own() RETURNS blobstate LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN (SELECT b FROM pg_temp.mine WHERE id = 1); END $$));
my %own = (plan => ['PREPARE p (boolean) AS INSERT INTO s.t2 SELECT 2, s.own() WHERE $1',
		'EXECUTE p (false)', 'EXECUTE p (true)'],
	domain => ['CREATE DOMAIN pg_temp.checked AS blobstate CHECK (VALUE = s.own() OR VALUE IS NULL)',
		q(SELECT other(147456)::blobstate::pg_temp.checked IS NULL),
		q(INSERT INTO s.t2 SELECT 2, (other(147456) || 'another')::blobstate::pg_temp.checked)]);
foreach my $kind (sort keys %own)
{
	my ($make, $fill, $use) = @{ $own{$kind} };
	$pooled = $node->background_psql('postgres', on_error_stop => 0);
	$pooled->query($_) foreach @settings, 'CREATE TEMPORARY TABLE mine AS SELECT 1 AS id, other(147456)::blobstate AS b', $make;
	my $before = session('BEGIN', 'SELECT 1');
	$gc = start_gc();
	gc_waits_for('process ' . pid($before));
	my $after = session('BEGIN', 'SELECT 1');
	$before->query_safe('COMMIT');
	gc_waits_for('process ' . pid($after));
	$pooled->query($fill);
	$pooled->query("TRUNCATE mine; INSERT INTO mine SELECT 1, other(147456) || 'another'");
	$after->query_safe('COMMIT');
	($freed, $reason) = gc_result($gc);
	is("$freed|$reason", '1|', "constant of a temporary table, $kind: the old value is freed");
	$pooled->query($use);
	is(sql(q(SELECT count(*) FROM s.t2 WHERE b::bytea = other(147456) || 'another')), '1',
		"constant of a temporary table, $kind: the new value is stored");
	check_is_clean($node, "constant of a temporary table, $kind: no row refers to the old value");
	$pooled->quit;
	sql('TRUNCATE s.t2');
	forget_sessions();
	poll(q(SELECT count(*) = 0 FROM pg_class WHERE relname = 'mine'));
	gc();
}

# ---- an index that is open when the messages come ----
# PostgreSQL does not evaluate its expressions anew then.  Fails without: at_release().

make_source();
sql('CREATE TABLE s.open (id integer, b blobstate)', 'INSERT INTO s.open VALUES (1, NULL)',
	'CREATE INDEX open_id ON s.open (id, coalesce(b, s.stored()))', 'TRUNCATE s.open',
	"INSERT INTO s.open VALUES (1, ''), (2, '')");
$pooled = session('SET enable_seqscan = off', 'SET enable_bitmapscan = off',
	"INSERT INTO s.open VALUES (3, '')");
replace_source();
my $first = session('BEGIN', 'SELECT 1');
$gc = start_gc();
gc_waits_for('process ' . pid($first));
my $pooled_pid = pid($pooled);
$pooled->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT id FROM s.open WHERE id > 0; FETCH 1 FROM c');
is(sql("SELECT count(*) FROM pg_locks WHERE relation = 's.open_id'::regclass AND pid = $pooled_pid"),
	'1', 'open index: it is open');
$first->query_safe('COMMIT');
gc_waits_for("process $pooled_pid");
$pooled->query_safe('SELECT count(*) FROM s.stop');
$pooled->query_safe('COMMIT');
($freed, $reason) = gc_result($gc);
is("$freed|$reason", '1|', 'open index: the old value is freed');
$pooled->query_safe('INSERT INTO s.open VALUES (4, NULL)');
check_is_clean($node, 'open index: no key refers to it');
forget_sessions();

# The messages come while the transaction is in a subtransaction that failed, and while they are worked
# off an error comes.  The index is open all the time.
# Fails without: the look at the transaction block in receive(); with the marks behind the messages
# about relations in make_messages().

sub open_index
{
	my ($name, %action) = @_;
	make_source();
	sql('CREATE TABLE s.open (id integer, b blobstate)', 'INSERT INTO s.open VALUES (1, NULL)',
		'CREATE INDEX open_id ON s.open (id, coalesce(b, s.stored()))', 'TRUNCATE s.open',
		"INSERT INTO s.open VALUES (1, ''), (2, '')");
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query($_) foreach 'SET enable_seqscan = off', 'SET enable_bitmapscan = off',
		"INSERT INTO s.open VALUES (3, '')",
		'BEGIN; LOCK s.stop IN ACCESS SHARE MODE; COMMIT';	# it need not look for that later
	my $pid = pid($session);
	replace_source();
	my $older = session('BEGIN', 'SELECT 1');
	my $round = start_gc();
	gc_waits_for('process ' . pid($older));
	$session->query('BEGIN; DECLARE c CURSOR FOR SELECT id FROM s.open WHERE id > 0; FETCH 1 FROM c');
	$action{before}->($session);
	$older->query_safe('COMMIT');
	gc_waits_for("process $pid");
	$action{received}->($session);
	my ($count, $why) = gc_result($round);
	is("$count|$why", '1|', "$name: the old value is freed");
	$session->query('INSERT INTO s.open VALUES (4, NULL)');
	is(sql('SELECT count(*) FROM s.open'), '4', "$name: a row can be added");
	check_is_clean($node, "$name: no key refers to it");
	$session->quit;
	forget_sessions();
	return;
}

open_index('a subtransaction that failed',
	before => sub { $_[0]->query('SAVEPOINT x'); $_[0]->query('SELECT 1/0'); },
	received => sub {
		# More messages than a backend may leave unread, until it has worked them off.
		for my $i (1 .. 4)
		{
			sql(q(DO $$ BEGIN FOR i IN 1 .. 40 LOOP
				EXECUTE 'CREATE TABLE s.zz (a integer)'; EXECUTE 'DROP TABLE s.zz';
				END LOOP; END $$));
		}
		$_[0]->query('ROLLBACK TO x');
		$_[0]->query('COMMIT');
	});

open_index('an error while messages are received',
	before => sub { $_[0]->query('SET statement_timeout = 300'); },
	received => sub {
		my $catalog = session('BEGIN', 'LOCK pg_class IN ACCESS EXCLUSIVE MODE');
		$_[0]->query('LOCK s.stop IN ACCESS SHARE MODE');
		$catalog->query_safe('COMMIT');
		$_[0]->query('ROLLBACK');
		$_[0]->query('RESET statement_timeout');
	});

# ---- constants that an expression does not show ----
# A function in SQL is replaced by its body; default arguments are added; a partition has the key of its
# parent in its partition constraint.  Fails without: naming these relations in the messages.

my %hidden = (
	'a function in SQL' => [
		q(CREATE FUNCTION s.f(b blobstate) RETURNS blobstate LANGUAGE sql IMMUTABLE AS
			$$ SELECT coalesce($1, s.stored()) $$),
		'CREATE INDEX ON s.x (id, s.f(b))' ],
	'a predicate in SQL' => [
		q(CREATE FUNCTION s.f(b blobstate) RETURNS boolean LANGUAGE sql IMMUTABLE AS
			$$ SELECT $1 OPERATOR(public.>) s.stored() $$),
		'CREATE INDEX ON s.x (id) WHERE s.f(b)' ],
	'a default argument' => [
		q(CREATE FUNCTION s.f(b blobstate, d blobstate DEFAULT s.stored()) RETURNS blobstate
			LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN coalesce(b, d); END $$),
		'CREATE INDEX ON s.x (id, s.f(b))' ],
	'a partition constraint' => [
		q(CREATE FUNCTION s.part() RETURNS blobstate LANGUAGE plpgsql IMMUTABLE AS
			$$ BEGIN RETURN '\x00'; END $$),
		q(CREATE FUNCTION s.key(b blobstate) RETURNS text LANGUAGE sql IMMUTABLE AS
			$$ SELECT md5(coalesce(b, s.part())::bytea) $$),
		'DROP TABLE s.x',
		'CREATE TABLE s.top (id integer, b blobstate) PARTITION BY RANGE (s.key(b))',
		q(CREATE TABLE s.x PARTITION OF s.top FOR VALUES FROM ('0') TO ('z')),
		q(CREATE OR REPLACE FUNCTION s.part() RETURNS blobstate LANGUAGE plpgsql IMMUTABLE AS
			$$ BEGIN RETURN (SELECT b FROM s.source WHERE id = 1); END $$) ]);

foreach my $name (sort keys %hidden)
{
	make_source();
	sql('CREATE TABLE s.x (id integer, b blobstate)', @{ $hidden{$name} });
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query($_) foreach ("INSERT INTO s.x VALUES (1, '')") x 3;
	replace_source();
	is((gc())[0], '1', "$name: the old value is freed");
	$session->query("INSERT INTO s.x VALUES (2, NULL), (3, other(147456) || 'more'::bytea)");
	is(sql('SELECT count(*) FROM s.x'), '5', "$name: rows can be added");
	is(sql("SELECT * FROM blobext_check() WHERE problem NOT LIKE 'the partition key%'"), '',
		"$name: no key refers to it");
	$session->quit;
	forget_sessions();
}

# Until PostgreSQL 18, DETACH CONCURRENTLY makes a CHECK constraint of it, as it is in the relation cache.
# Fails without: blob_assign_check_constraint().
make_source();
sql('CREATE TABLE s.x (id integer, b blobstate)', @{ $hidden{'a partition constraint'} });
my $detach = 'ALTER TABLE s.top DETACH PARTITION s.x CONCURRENTLY';
if (sql('SHOW server_version_num') < 190_000)
{
	fails_with($node, $detach, '0A000', qr/constraint .* would refer to stored content/,
		'no stored value enters pg_constraint');
}
else
{
	sql($detach);
	is(sql(q(SELECT count(*) FROM pg_constraint WHERE conrelid = 's.x'::regclass)), '0',
		'DETACH CONCURRENTLY makes no constraint');
	sql('DROP TABLE s.x');
}
sql('DROP TABLE s.top');

# ---- a constant from a cursor WITH HOLD ----
# The cursor is opened between the waits, the file of its row goes, and the cursor's value becomes a
# constant before it is closed: the second wait begins once more.  Fails with: constants given up
# once only.

make_source();
sql(q(CREATE FUNCTION s.fetched() RETURNS blobstate LANGUAGE plpgsql IMMUTABLE AS $$
	DECLARE c refcursor := 'c'; v blobstate;
	BEGIN MOVE ABSOLUTE 0 FROM c; FETCH NEXT FROM c INTO v; RETURN v; END $$));
$pooled = $node->background_psql('postgres', on_error_stop => 0);
$pooled->query($_) foreach @settings;
$first = session('BEGIN', 'SELECT 1');
$gc = start_gc();
gc_waits_for('process ' . pid($first));
$pooled->query('BEGIN; DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT b FROM s.source; COMMIT');
sql('TRUNCATE s.source');
$first->query_safe('COMMIT');
gc_waits_for('process ' . pid($pooled) . ' has an open cursor');
my $second = session('BEGIN', 'SELECT 1');
$pooled->query('PREPARE p (boolean) AS INSERT INTO s.t2 SELECT 2, s.fetched() WHERE $1');
$pooled->query('EXECUTE p (false)');
$pooled->query('CLOSE c');
gc_waits_for('process ' . pid($second));
$second->query_safe('COMMIT');
($freed, $reason) = gc_result($gc);
is("$freed|$reason", '1|', 'held cursor: the value is freed');
$pooled->{stderr} = '';
$pooled->query('EXECUTE p (true)');
like($pooled->{stderr}, qr/cursor "c" does not exist/, 'held cursor: the function is evaluated anew');
check_is_clean($node, 'held cursor: no row refers to it');
$pooled->quit;
forget_sessions();

# ---- the extension is created anew ----
# A procedure has a value of the dropped store in a variable, and reads it by an open cursor, whose
# function is not looked up again.  In the new store another role has the same pages.
# Fails without: first_generation() of store/map_meta.c.

$node->safe_psql('postgres', 'CREATE DATABASE anew');
foreach my $reads (0, 3)
{
	my $make = sub {
		my ($table, $word) = @_;
		$node->safe_psql('anew', "CREATE EXTENSION blobext; CREATE TABLE $table (b blobstate);
			INSERT INTO $table VALUES (convert_to(repeat('$word', 18750), 'UTF8'))");
	};
	$make->('mine', 'mine    ');
	my $lock = $node->background_psql('anew');
	$lock->query_safe('SELECT pg_advisory_lock(7)');
	my %run = (out => '', err => '');
	$run{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('anew'),
		'-v', 'VERBOSITY=verbose', '-c', qq(DO \$\$
		DECLARE
			v blobstate;
			c refcursor;
			piece bytea;
		BEGIN
			SELECT b INTO v FROM mine;
			COMMIT;
			OPEN c FOR SELECT blob_read(v, g * 1000, 100) FROM generate_series(0, 9) AS g;
			FOR i IN 1 .. $reads LOOP
				FETCH c INTO piece;
			END LOOP;
			PERFORM pg_advisory_lock(7);
			PERFORM count(*) FROM pg_class;
			FETCH c INTO piece;
			RAISE NOTICE '%', encode(piece, 'escape');
		END \$\$) ], '>', \$run{out}, '2>', \$run{err});
	$node->poll_query_until('anew',
		q(SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
	$node->safe_psql('anew', 'SET client_min_messages = warning; DROP EXTENSION blobext CASCADE;
		DROP TABLE mine');
	$make->('other', 'SECRET--');
	$lock->query_safe('SELECT pg_advisory_unlock(7)');
	IPC::Run::finish($run{run});
	like($run{err}, qr/ERROR:  XB001/, "created anew: the value is stale after $reads reads");
	unlike($run{err}, qr/SECRET/, "created anew: nothing is disclosed after $reads reads");
	$lock->quit;
	$node->safe_psql('anew', 'SET client_min_messages = warning; DROP EXTENSION blobext CASCADE;
		DROP TABLE other');
}

# A value is being stored: its first extents, all full, are in the dropped store.
# Fails without: the comparison of stores in open_store() of blob/writer.c.
{
	my $store = sub {
		my ($table, $bytes) = @_;
		$node->safe_psql('anew', "CREATE EXTENSION blobext; CREATE TABLE $table (b blobstate);
			SET blobext.tail_extents = off;
			INSERT INTO $table VALUES (convert_to(left(repeat('SECRET--', 300000), $bytes), 'UTF8'))");
	};
	$store->('mine', 2_000_000);
	my $bytes = 4096 * $node->safe_psql('anew', 'SELECT sum(pages) FROM mine, blob_extents(b)');
	$node->safe_psql('anew', q(SET client_min_messages = warning; DROP EXTENSION blobext CASCADE;
		DROP TABLE mine; CREATE EXTENSION blobext;
		CREATE FUNCTION piece(i integer, bytes integer) RETURNS bytea LANGUAGE plpgsql AS $$
		BEGIN
			IF i > 1 THEN
				PERFORM pg_advisory_lock(7);
				PERFORM count(*) FROM pg_class;
			END IF;
			RETURN convert_to(left(repeat('mine    ', 300000), bytes), 'UTF8');
		END $$));
	my $lock = $node->background_psql('anew');
	$lock->query_safe('SELECT pg_advisory_lock(7)');
	my %run = (out => '', err => '');
	$run{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('anew'),
		'-v', 'VERBOSITY=verbose', '-c', 'SET blobext.tail_extents = off', '-c',
		"SELECT encode(blob_read(blob_agg(piece(g, $bytes)), 1000, 100), 'escape')
			FROM generate_series(1, 2) AS g" ], '>', \$run{out}, '2>', \$run{err});
	$node->poll_query_until('anew',
		q(SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
	$node->safe_psql('anew', 'SET client_min_messages = warning; DROP EXTENSION blobext CASCADE');
	$store->('other', $bytes);
	$lock->query_safe('SELECT pg_advisory_unlock(7)');
	IPC::Run::finish($run{run});
	like($run{err}, qr/ERROR:  55000: extension "blobext" was created again/,
		'created anew: a value that is being stored fails');
	unlike($run{out}, qr/SECRET/, 'created anew: and has no content of another role');
	is($node->safe_psql('anew', 'SELECT count(*) FROM blobext_check()'), '0',
		'created anew: the new store is as it should be');
	$lock->quit;
}

# ---- on a standby ----
# Fails without: blob_gc_constants_log().

make_source();
sql('CREATE DOMAIN s.checked AS blobstate CHECK (VALUE >= s.stored())');
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
my @reads = ('PREPARE p AS SELECT md5(s.stored()::bytea)',
	'PREPARE q AS SELECT length(b::s.checked) FROM s.source');
my $reader = $standby->background_psql('postgres', on_error_stop => 0);
$reader->query_safe($_) foreach @settings, @reads, 'EXECUTE p', 'EXECUTE q';
replace_source();
reuse();
store_form('bob', 'of whole pages', 'secret');
$node->wait_for_catchup($standby);
my $fresh = $standby->safe_psql('postgres', join(';', @reads, 'EXECUTE p', 'EXECUTE q'));
is(join("\n", map { $reader->query($_) // '' } 'EXECUTE p', 'EXECUTE q'), $fresh, 'standby: a session that stays goes on');
$reader->quit;
$standby->stop;

done_testing();
