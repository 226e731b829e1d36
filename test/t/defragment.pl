# blobext_defragment() beside others: rows that are locked or change meanwhile, open snapshots, the collector, kills in
# the middle, damaged values, replicas, and the space that comes back.  The oracle is the digest of what each row was
# given.
#
# Seen to fail
#
#	- without the look at the datum of the place: rows that took the places of others are written anew,
#	- without the lock of the row from which copies get their value,
#	- without the comparison of digests: the damaged value gets a digest that fits,
#	- without pauses: the call with a rate,
#	- without the look for rules before statements are prepared: another error.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

my $seed = $ENV{BLOBEXT_SEED} // 38;
srand($seed);
note("seed $seed");

# Without checksums of pages, which would find damaged values before a copy does.
my $node = blob_cluster('main', streaming => 'logical', conf => "autovacuum = off\nblobext.page_checksums = off\n");
gc_use($node);
sql(q(CREATE FUNCTION big(i integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS
	$$ SELECT convert_to(repeat(md5(i::text), 5000), 'UTF8') $$));

# Half of big(), which is what cut values have.
my $cut = 80_000;

# A table s.NAME of rows whose values were truncated, each to 20 pages, and what each must have.
sub cut_values
{
	my ($name, $rows) = @_;
	sql("CREATE TABLE s.$name (id integer, v integer, b blobstate, want bytea)",
		"INSERT INTO s.$name SELECT i, i, big(i) FROM generate_series(1, $rows) AS i",
		"UPDATE s.$name SET b = blob_truncate(b, $cut), want = sha256(substring(big(v) FROM 1 FOR $cut))");
	return;
}

# A cut value, and further rows with copies of it.
sub copies
{
	my ($name, $rows) = @_;
	cut_values($name, 1);
	sql("INSERT INTO s.$name SELECT i, v, b, want FROM s.$name, generate_series(2, $rows) AS i");
	return;
}

sub is_as_wanted
{
	my ($table, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(sql("SELECT count(*) FROM s.$table WHERE sha256(b::bytea) <> want OR sha256(b) <> want"), '0', $name);
}

sub due
{
	my ($table) = @_;
	return sql("SELECT coalesce(sum(due_values), 0) FROM blobext_fragmentation('s.$table', 'b')");
}

sub distinct
{
	my ($table) = @_;
	return sql("SELECT count(DISTINCT first_page) FROM s.$table, blob_extents(b) WHERE extent_no = 0");
}

# A call in the background; the result is in {out} and {err}.
sub start_call
{
	my ($call) = @_;
	my %handle = (out => '', err => '');
	$handle{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $call ],
		'>', \$handle{out}, '2>', \$handle{err});
	return \%handle;
}

sub result
{
	my ($handle) = @_;
	IPC::Run::finish($handle->{run});
	chomp $handle->{out};
	return $handle->{out};
}

# A trigger that makes the update of a row wait for the advisory lock with the row's id, if some session holds that.
sub make_gate
{
	my ($table) = @_;
	sql('CREATE OR REPLACE FUNCTION s.gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(old.id); RETURN new; END $$',
		"CREATE TRIGGER gate BEFORE UPDATE ON s.$table FOR EACH ROW EXECUTE FUNCTION s.gate()");
	return;
}

sub waits_at_gate
{
	my ($id) = @_;
	return poll("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = $id AND NOT granted");
}

# A trigger that makes each update take a while.
sub make_slow
{
	my ($table, $seconds) = @_;
	sql("CREATE FUNCTION s.slow() RETURNS trigger LANGUAGE plpgsql AS
			\$\$ BEGIN PERFORM pg_sleep($seconds); RETURN new; END \$\$",
		"CREATE TRIGGER slow BEFORE UPDATE ON s.$table FOR EACH ROW EXECUTE FUNCTION s.slow()");
	return;
}

sub refuses
{
	my ($sql, $sqlstate, $like, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($node, $sql, $sqlstate, $like, $name);
}

# ---- refused ----

cut_values('t', 1);
sql('CREATE VIEW s.v AS SELECT * FROM s.t', 'CREATE TABLE s.ruled (b blobstate)',
	'CREATE RULE r AS ON UPDATE TO s.ruled DO INSTEAD NOTHING', 'CREATE TABLE s.g (b blobstate, g blobstate GENERATED ALWAYS AS (b) STORED)',
	'CREATE ROLE reader', 'GRANT USAGE ON SCHEMA s TO reader', 'GRANT SELECT ON s.t TO reader');
refuses(q(BEGIN; CALL blobext_defragment('s.t', 'b')), '25001', qr/transaction block.*HINT/s, 'a call in a transaction block is refused');
refuses(q(SELECT 1\; CALL blobext_defragment('s.t', 'b')), '25001', qr/commits after each batch/,
	'a call in a query of several statements is refused');
refuses(q(CALL blobext_defragment('s.v', 'b')), '42809', qr/"v" is not a table/, 'a call for a view is refused');
refuses(q(CALL blobext_defragment('s.ruled', 'b')), '0A000', qr/rule ON UPDATE DO INSTEAD/, 'a call for a table with a rule is refused');
refuses(q(CALL blobext_defragment('s.g', 'g')), '428C9', qr/is a generated column/, 'a call for a generated column is refused');
refuses(q(CALL blobext_defragment('s.t', 'v')), '42804', qr/of type integer, not blobstate/, 'a call for another type is refused');
refuses(q(CALL blobext_defragment('s.t', NULL)), '22004', qr/must not be null/, 'a call for the column NULL is refused');
refuses("CALL blobext_defragment('s.t', 'b', $_)", '22023', qr/must be at least/, "a call with $_ is refused")
  foreach 'max_dead_ratio => -0.1', q(max_dead_ratio => 'NaN'), 'max_extra_runs => -1', 'batch_rows => 0', 'rate => -1';
refuses(q(SET default_transaction_read_only = on; CALL blobext_defragment('s.t', 'b')), '25006',
	qr/read-only transaction/, 'a call in a read-only transaction is refused');
refuses(q(SET ROLE reader; CALL blobext_defragment('s.t', 'b')), '42501', qr/permission denied/,
	'a call without the privilege to update is refused');
is(due('t'), '1', 'calls that were refused have changed nothing');
sql('DROP OWNED BY reader', 'DROP ROLE reader');

# ---- space ----

# Plain, compressed and grown values; the store says how much is allocated.
clean();
sql('CREATE TABLE s.t (id integer, b blobstate, want bytea)',
	"INSERT INTO s.t SELECT i, big(i) FROM generate_series(1, 40) AS i",
	"UPDATE s.t SET b = blob_truncate(b, $cut)",
	q(INSERT INTO s.t SELECT 100 + i, '' FROM generate_series(1, 20) AS i),
	(map { "UPDATE s.t SET b = b || substring(big(id + $_) FROM 1 FOR 9000) WHERE id > 100" } 1 .. 12),
	q(SET blobext.default_compression = 'zstd'),
	q(INSERT INTO s.t SELECT 200 + i, convert_to((SELECT string_agg(md5((i * 1000000 + j)::text), '') FROM generate_series(1, 80000) AS j), 'UTF8')
		FROM generate_series(1, 3) AS i),
	(map { "UPDATE s.t SET b = blob_write(b, $_ * 60000, '\\x00') WHERE id > 200" } 1 .. 40),
	'UPDATE s.t SET want = sha256(b::bytea)', 'VACUUM s.t');
my $ratio = q(SELECT sum(bytes) / (SELECT sum(blob_stored_length(b)) FROM s.t) FROM blobext_space WHERE extents IS NOT NULL);
gc();
cmp_ok(sql($ratio), '>', 1.05, 'edited values take more than they store, after VACUUM and a round');
like(sql(q(CALL blobext_defragment('s.t', 'b'))), qr/^63\|\d+\|63\|0\|0$/, 'all edited values are written anew');
sql('VACUUM s.t');
gc();
my $content = q(SELECT sum(bytes) / (SELECT sum(blob_stored_length(b)) FROM s.t) FROM blobext_space WHERE extents IS NOT NULL);
cmp_ok(sql($content), '<=', 1.05, 'values that were written anew take what they store, after VACUUM and a round');
is_as_wanted('t', 'contents are what they were, after a round');
is(due('t'), '0', 'nothing is due after a call');
no_page_is_shared($node, 'no page is used twice after a call', 's.t');

# ---- snapshots ----

clean();
cut_values('t', 5);
{
	my $old = session(q(BEGIN ISOLATION LEVEL REPEATABLE READ), 'SELECT count(*) FROM s.t');
	is(sql(q(CALL blobext_defragment('s.t', 'b'))), '5|400000|5|0|0', 'a call beside an old snapshot');
	sql('VACUUM s.t');
	gc(timeout => '300ms');
	is($old->query_safe('SELECT count(*) FROM s.t WHERE sha256(b::bytea) = want'), '5', 'an old snapshot reads the old values');
	$old->query_safe('COMMIT');
	forget_sessions();
	sql('VACUUM s.t');
	frees(5, 'the old values are freed when no snapshot sees them');
	is_as_wanted('t', 'contents after the old values are freed');
}

# ---- locks ----

clean();
cut_values('t', 6);
make_gate('t');
{
	my $gate = session('SELECT pg_advisory_lock(3)');
	my $writer = session('BEGIN', q(UPDATE s.t SET b = value(9), want = sha256(value(9)) WHERE id = 5));
	my $call = start_call(q(CALL blobext_defragment('s.t', 'b', batch_rows => 2)));
	waits_at_gate(3);
	is(sql('SELECT relation, rows_done, rows_total, values_written, rows_changed FROM blobext_defragment_progress'),
		's.t|2|6|2|2', 'the progress of a call that waits');
	is(sql('DELETE FROM s.t WHERE id = 4 RETURNING id'), '4', 'rows that are not done yet are not locked');
	is(sql(q(UPDATE s.t SET want = want WHERE id = 1 RETURNING id)), '1', 'rows of a batch that is committed are not locked');
	refuses('SET lock_timeout = 1; DELETE FROM s.t WHERE id = 3', '55P03', qr/lock timeout/, 'the row whose turn it is is locked');
	$gate->query_safe('SELECT pg_advisory_unlock(3)');
	is(result($call), '4|400000|4|2|0', 'rows that are locked, or gone, are skipped');
	$writer->query_safe('COMMIT');
	is_as_wanted('t', 'an update that was under way is not lost');
	is(sql('SELECT count(*) FROM blobext_defragment_progress'), '0', 'a call that ended shows no progress');
	forget_sessions();
}

# Rows change after they were listed, and before it is their turn; new rows take the places of some, in a page
# that no update pins.
clean();
cut_values('t', 60);
make_gate('t');
{
	my $gate = session('SELECT pg_advisory_lock(i) FROM unnest(ARRAY[2, 4]) AS i');
	sql('CREATE TABLE s.places AS SELECT ctid AS place FROM s.t WHERE id > 50');
	my $call = start_call(q(CALL blobext_defragment('s.t', 'b', batch_rows => 1)));
	waits_at_gate(2);
	sql('UPDATE s.t SET b = value(8), want = sha256(value(8)) WHERE id = 3', 'DELETE FROM s.t WHERE id > 50');
	$gate->query_safe('SELECT pg_advisory_unlock(2)');
	waits_at_gate(4);
	sql('VACUUM s.t');
	sql('INSERT INTO s.t SELECT i, i, value(i), sha256(value(i)) FROM generate_series(101, 200) AS i');
	is(sql('SELECT count(*) FROM s.t JOIN s.places ON place = t.ctid WHERE id > 100'), '10', 'new rows are in the places of others');
	$gate->query_safe('SELECT pg_advisory_unlock(4)');
	is(result($call), '49|3920000|49|11|0', 'rows that change before it is their turn are skipped, and new ones in their places left alone');
	is_as_wanted('t', 'rows that changed meanwhile have what they were given');
	forget_sessions();
}

# A column that is part of a key: the update of its value conflicts with a foreign key's lock of the row.
clean();
cut_values('keyed', 4);
sql('ALTER TABLE s.keyed ADD PRIMARY KEY (id)', 'ALTER TABLE s.keyed ADD UNIQUE (id, b)',
	'CREATE TABLE s.child (id integer REFERENCES s.keyed)');
{
	my $child = session('BEGIN', 'INSERT INTO s.child VALUES (3)');
	is(sql(q(SET statement_timeout = '60s'; CALL blobext_defragment('s.keyed', 'b'))), '3|320000|3|1|0',
		'a row that a foreign key has locked is skipped, where the column is part of a key');
	$child->query_safe('COMMIT');
	is_as_wanted('keyed', 'rows of the table with keys have what they were given');
	forget_sessions();
}

# ---- copies ----

clean();
copies('t', 12);
make_gate('t');
{
	my $gate = session('SELECT pg_advisory_lock(6)');
	my $writer = session('BEGIN', 'UPDATE s.t SET want = want WHERE id = 9');
	my $call = start_call(q(CALL blobext_defragment('s.t', 'b', batch_rows => 3)));
	waits_at_gate(6);
	refuses('SET lock_timeout = 1; DELETE FROM s.t WHERE id = 3', '55P03', qr/lock timeout/,
		'a row of a committed batch, from which copies get the value, is locked');
	$gate->query_safe('SELECT pg_advisory_unlock(6)');
	is(result($call), '1|80000|11|1|0', 'copies get one value over several batches; one that is locked is skipped');
	$writer->query_safe('COMMIT');
	is(distinct('t'), 2, 'copies share the new value, but for the one that was locked');
	is_as_wanted('t', 'copies have what they were given');
	forget_sessions();
}

# A trigger takes the new value away from the row from which the others would get it, and from it alone.
clean();
copies('t', 6);
sql('CREATE FUNCTION s.meddle() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN UPDATE s.t SET b = value(9), want = sha256(value(9)) WHERE id = old.id; RETURN NULL; END $$',
	'CREATE TRIGGER a AFTER UPDATE ON s.t FOR EACH ROW WHEN (old.id = 1 AND pg_trigger_depth() = 0) EXECUTE FUNCTION s.meddle()');
is(sql(q(CALL blobext_defragment('s.t', 'b', batch_rows => 1))), '1|80000|1|5|0',
	'copies whose new value is gone are left: a call stores no value twice');
is(sql(q(CALL blobext_defragment('s.t', 'b', batch_rows => 1))), '1|80000|5|0|0', 'the next call does them');
sql('VACUUM s.t');
gc();
is_as_wanted('t', 'contents after triggers that change rows, and a round');

# ---- rate ----

clean();
cut_values('t', 30);
{
	my $begin = time;
	is(sql(q(CALL blobext_defragment('s.t', 'b', rate => 1))), '30|2400000|30|0|0', 'a call with a rate');
	cmp_ok(time - $begin, '>', 1.5, 'a rate of 1 MB a second holds 2.4 MB up');
}

# The table gets another name in the middle: its plans would find another table.
clean();
cut_values('t', 6);
make_gate('t');
{
	my $gate = session('SELECT pg_advisory_lock(2)');
	my $call = start_call(q(CALL blobext_defragment('s.t', 'b', batch_rows => 1)));
	waits_at_gate(2);
	my $rename = start_call('ALTER TABLE s.t RENAME TO u');
	poll(q(SELECT count(*) = 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted));
	$gate->query_safe('SELECT pg_advisory_unlock(2)');
	is(result($call), '', 'a call whose table is renamed returns no row');
	like($call->{err}, qr/ERROR:  relation s\.t was altered meanwhile\n.*HINT/s, 'a call whose table is renamed ends with an error and a hint');
	result($rename);
	is(due('u'), '4', 'what was committed stays');
	forget_sessions();
}

# ---- the collector ----

clean();
cut_values('t', 200);
sql('CREATE TABLE s.other (b blobstate)', 'INSERT INTO s.other SELECT value(1000 + i) FROM generate_series(1, 5) i',
	'DELETE FROM s.other');
make_slow('t', 0.3);
{
	my $call = start_call(q(CALL blobext_defragment('s.t', 'b', batch_rows => 1)));
	poll('SELECT rows_changed > 1 FROM blobext_defragment_progress');
	my ($freed, $live, $reason) = gc(timeout => '60s');
	is($reason, '', 'a round is complete while a call goes on');
	cmp_ok($freed, '>=', 5, 'a round frees values while a call goes on');
	is(sql('SELECT count(*) FROM blobext_defragment_progress'), '1', 'the call goes on');
	sql('SELECT pg_cancel_backend(pid) FROM blobext_defragment_progress');
	result($call);
	like($call->{err}, qr/canceling statement due to user request/, 'a call can be cancelled');
	cmp_ok(due('t'), '<', 199, 'what was committed stays, after a cancel');
	sql('DROP TRIGGER slow ON s.t');
	my $left = due('t');
	like(sql(q(CALL blobext_defragment('s.t', 'b'))), qr/^$left\|/, 'the next call goes on');
	is_as_wanted('t', 'contents beside rounds are what they were');
}

# Procedures and DO blocks that call it may have values: then the round waits for their end.
clean();
cut_values('t', 4);
make_gate('t');
{
	my $gate = session('SELECT pg_advisory_lock(3)');
	my $block = start_call(q(DO $$ DECLARE x blobstate; r bigint; BEGIN
		SELECT b INTO x FROM s.t WHERE id = 2;
		CALL blobext_defragment('s.t', 'b', 0.05, 1, 1, 0, r, r, r, r, r);
		INSERT INTO s.t SELECT 1000, 2, x, want FROM s.t WHERE id = 2; END $$));
	waits_at_gate(3);
	sql('VACUUM s.t');
	my ($freed, $live, $reason) = gc(timeout => '1s');
	is($freed, '0', 'while a DO block calls it, a round frees nothing');
	like($reason, qr/procedure or DO block|transaction/, 'the round says why it frees nothing');
	$gate->query_safe('SELECT pg_advisory_unlock(3)');
	result($block);
	is($block->{err}, '', 'a DO block that calls blobext_defragment() ends without an error');
	is_as_wanted('t', 'a DO block stores a value that it had before the call');
	forget_sessions();
}

# ---- everything at once ----

clean();
cut_values('w', 40);
sql('CREATE INDEX ON s.w (b blobstate_digest_ops)', 'CREATE INDEX ON s.w USING hash (b)');
{
	my $dir = PostgreSQL::Test::Utils::tempdir;
	my %scripts = (
		replace => q(\set i random(1, 40)
\set v random(1, 12)
UPDATE s.w SET (v, b, want) = (:v, big(:v), sha256(big(:v))) WHERE id = :i;
),
		cut => qq(\\set i random(1, 40)
\\set n random(20000, $cut)
UPDATE s.w SET b = blob_truncate(b, :n), want = sha256(substring(big(v) FROM 1 FOR :n)) WHERE id = :i AND length(b) > :n;
),
		copy => q(\set i random(1, 40)
\set j random(1, 40)
UPDATE s.w AS t SET (v, b, want) = (f.v, f.b, f.want) FROM s.w AS f WHERE t.id = :i AND f.id = :j;
),
		defragment => q(CALL blobext_defragment('s.w', 'b', batch_rows => 4);
),
		collect => q(SELECT freed_blobs FROM blobext_gc();
VACUUM s.w;
));
	append_to_file("$dir/$_", $scripts{$_}) foreach keys %scripts;
	my @at = ('-h', $node->host, '-p', $node->port, 'postgres');
	my @runs;
	foreach my $run ([ 4, 150, 'replace', 'cut', 'copy' ], [ 2, 40, 'defragment' ], [ 1, 10, 'collect' ])
	{
		my ($clients, $transactions, @names) = @$run;
		my %handle = (text => '');
		$handle{run} = IPC::Run::start(
			[ 'pgbench', '-n', '-c', $clients, '-t', $transactions, "--random-seed=$seed",
				(map { ('-f', "$dir/$_") } @names), @at ], '>', \$handle{text}, '2>&1');
		push @runs, \%handle;
	}
	foreach my $run (@runs)
	{
		IPC::Run::finish($run->{run});
		like($run->{text}, qr/number of failed transactions: 0 /, 'a load without errors') or diag($run->{text});
	}
	is_as_wanted('w', 'after updates, copies, calls and rounds at once');
	sql(q(CALL blobext_defragment('s.w', 'b')));
	is_as_wanted('w', 'after a last call');
	check_is_clean($node, 'keys and values are sound after all at once');
	no_extents_overlap($node, 'no page is used twice after all at once', 'blob_prefix(b)', 's.w');
}

# ---- replicas ----

clean();
cut_values('t', 20);
sql('ALTER TABLE s.t ADD PRIMARY KEY (id)', 'CREATE PUBLICATION p FOR TABLE s.t');
{
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->start;
	my $subscriber = blob_cluster('subscriber');
	$subscriber->safe_psql('postgres', 'CREATE SCHEMA s; CREATE TABLE s.t (id integer PRIMARY KEY, v integer, b blobstate,
		want bytea); CREATE SUBSCRIPTION sub CONNECTION ' . "'" . $node->connstr . " dbname=postgres' PUBLICATION p");
	$subscriber->wait_for_subscription_sync($node, 'sub');
	my $count = 'SELECT count(*) FROM s.t WHERE sha256(b::bytea) = want AND sha256(b) = want';
	my $standby_due = q(SELECT due_values FROM blobext_fragmentation('s.t', 'b'));
	is($standby->safe_psql('postgres', $standby_due), '20', 'a standby says which values are due');
	is(sql(q(CALL blobext_defragment('s.t', 'b'))), '20|1600000|20|0|0', 'a call for a table that is replicated');
	$node->wait_for_catchup($standby);
	$node->wait_for_catchup('sub');
	is($standby->safe_psql('postgres', $count), '20', 'a standby has the contents');
	is($standby->safe_psql('postgres', $standby_due), '0', 'a standby has the new values');
	fails_with($standby, q(CALL blobext_defragment('s.t', 'b')), '25006', qr/during recovery/, 'a call on a standby is refused');
	is($subscriber->safe_psql('postgres', $count), '20', 'a subscriber has the contents');
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
	sql('DROP PUBLICATION p', 'VACUUM s.t');
	frees(20, 'the old values are freed, with a standby');
	$node->wait_for_catchup($standby);
	is($standby->safe_psql('postgres', $count), '20', 'a standby has the contents after a round of the collector');
	check_is_clean($standby, 'keys and values of the standby are sound');
	$_->stop foreach $standby, $subscriber;
}

# ---- kills ----

clean();
cut_values('t', 200);
sql('CREATE INDEX ON s.t (b)');
make_slow('t', 0.01);
foreach my $round (1 .. 2)
{
	my $before = due('t');
	my $call = start_call(q(CALL blobext_defragment('s.t', 'b', batch_rows => 5)));
	my $rows = 15 + int(rand(30));
	poll("SELECT rows_changed > $rows FROM blobext_defragment_progress");
	kill_everything($node);
	IPC::Run::finish($call->{run});
	$node->start;
	is_as_wanted('t', "contents after kill -9 number $round");
	cmp_ok(due('t'), '<=', $before - ($rows - 5), "what was committed is there after kill -9 number $round");
	check_is_clean($node, "keys and values are sound after kill -9 number $round");
}
sql('DROP TRIGGER slow ON s.t');
my $left = due('t');
like(sql(q(CALL blobext_defragment('s.t', 'b'))), qr/^$left\|/, 'the next call does the rest after the kills');
sql('DROP INDEX s.t_b_idx', 'VACUUM s.t');	# inner pages of a B-tree keep keys of deleted rows
gc();
is_as_wanted('t', 'contents after the kills and a round of the collector');
is(sql('SELECT sum(bytes) FROM blobext_space WHERE extents IS NOT NULL'), 200 * 20 * 4096, 'nothing is left of the copies that the kills ended');

# ---- damage ----

sub damage
{
	my ($page) = @_;
	my $name = segment_file($node, int($page / 262_144));
	open(my $file, '+<:raw', $name) or die "$name: $!";
	sysseek($file, ($page % 262_144) * 4096 + 100, 0) or die "$name: $!";
	syswrite($file, 'damage') == 6 or die "$name: $!";
	close $file or die "$name: $!";
	return;
}

# A plain value, and the root of the directory of a compressed one, which is its last page.
clean();
cut_values('t', 4);
sql(q(SET blobext.default_compression = 'zstd'),
	q(INSERT INTO s.t SELECT i, i, c, sha256(c) FROM (SELECT i, convert_to((SELECT string_agg(md5((i * 1000000 + j)::text), '')
		FROM generate_series(1, 90000) AS j), 'UTF8') AS c FROM generate_series(11, 12) AS i) AS c),
	q(UPDATE s.t SET b = blob_write(b, 1000000, '\x00'), want = sha256(overlay(b::bytea PLACING '\x00' FROM 1000001)) WHERE id > 10),
	'CHECKPOINT');
my $page = sql('SELECT first_page FROM s.t, blob_extents(b) WHERE extent_no = 0 AND id = 2');
my $root = sql('SELECT first_page + (bytes - 1) / 4096 FROM s.t, blob_extents(b) WHERE id = 11 AND bytes > 0 ORDER BY extent_no DESC LIMIT 1');
$node->stop;
damage($_) foreach $page, $root;
$node->start;
is(sql(q(SELECT unreadable_values, due_values FROM blobext_fragmentation('s.t', 'b'))), '1|5', 'a value with a damaged directory is counted');
{
	my $call = start_call(q(CALL blobext_defragment('s.t', 'b')));
	like(result($call), qr/^4\|\d+\|4\|0\|2$/, 'values that are damaged keep their extents, the others are written anew');
	like($call->{err}, qr/WARNING:  row \(\d+,\d+\) of "t" keeps its value: content does not match its SHA-256 digest/, 'a value whose content is damaged is named');
	like($call->{err}, qr/WARNING:  row \(\d+,\d+\) of "t" keeps its value: the directory of its frames cannot be read/, 'a value whose directory is damaged is named');
	is(sql('SELECT string_agg(id::text, $$,$$ ORDER BY id) FROM s.t WHERE sha256(b) <> want'), '', 'the digests are what they were');
	is(sql('SELECT sha256(b::bytea) = want FROM s.t WHERE id = 2'), 'f', 'the damage is still there');
	like(sql('SELECT string_agg(problem, $$;$$) FROM blobext_check()'), qr/SHA-256/, 'damage is not blessed: the check reports it');
	is(sql('SELECT count(*) FROM s.t WHERE id NOT IN (2, 11) AND sha256(b::bytea) = want'), '4', 'sound values beside damaged ones have their contents');
}

forget_sessions();
$node->stop;
done_testing();
