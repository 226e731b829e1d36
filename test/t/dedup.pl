# blobext_dedup() beside others: rows that are locked or change meanwhile, the collector, kills in the middle,
# damaged values; and calls that are refused.  The oracle is the digest of what each row was given.
#
# Seen to fail
#
#	- if the procedure is not registered anew (blob_gc_holders_carry_nothing()): no round is complete; if it
#	  always is: the round beside the DO block frees values,
#	- without the lock of the source, or of the row that blob_intern() has found: they are deleted meanwhile;
#	  without the lock of the target the call waits for the writer, with a weaker one for the foreign key,
#	- without the second look at the names: the renamed table is not noticed,
#	- without the comparison: the damage spreads; with another choice of the value that is kept when two differ,
#	  the other rows of the damaged group keep theirs; if the content that stays may come from the buffer, the
#	  damage of its file spreads,
#	- if the lock of the source is taken for granted after an error, or in the next batch: it is deleted meanwhile.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

my $seed = $ENV{BLOBEXT_SEED} // 17;
srand($seed);
note("seed $seed");

# Without checksums of pages, which would find damaged values before a comparison does.
my $node = blob_cluster('main', streaming => 'logical', conf => "autovacuum = off\nblobext.page_checksums = off\n");
gc_use($node);

# A table s.NAME with copies of values, each stored by itself, and what each row must have.
sub copies
{
	my ($name, $rows, $values) = @_;
	sql("CREATE TABLE s.$name (id integer, b blobstate, want bytea)",
		"INSERT INTO s.$name SELECT i, value(i % $values), sha256(value(i % $values))
			FROM generate_series(1, $rows) AS i");
	return;
}

# Copies of one value, and of the first one six rows that share it, with numbers from 101 on: so rows 2, 3, ...
# are made to share with row 106.
sub mostly_shared
{
	my ($name, $rows) = @_;
	copies($name, $rows, 1);
	sql("INSERT INTO s.$name SELECT i, b, want FROM s.$name, generate_series(101, 106) AS i WHERE id = 1");
	return;
}

sub is_as_wanted
{
	my ($table, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(sql("SELECT count(*) FROM s.$table WHERE sha256(b::bytea) <> want"), '0', $name);
}

sub distinct
{
	my ($table) = @_;
	return sql("SELECT count(DISTINCT first_page) FROM s.$table, blob_extents(b) WHERE extent_no = 0");
}

# A call in the background, as one more command after others; the result is in {out} and {err}.
sub start_dedup
{
	my ($call, @before) = @_;
	my %handle = (out => '', err => '');
	$handle{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), map { ('-c', $_) } @before, $call ],
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

# A trigger that makes the update of a row wait for the advisory lock with the row's id, if some
# session holds that.
sub make_gate
{
	my ($table) = @_;
	sql('CREATE OR REPLACE FUNCTION s.gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(old.id); RETURN new; END $$',
		"CREATE TRIGGER gate BEFORE UPDATE ON s.$table FOR EACH ROW EXECUTE FUNCTION s.gate()");
	return;
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

sub waits_at_gate
{
	my ($id) = @_;
	return poll("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = $id
		AND NOT granted");
}

# ---- refused ----

sub refuses
{
	my ($sql, $sqlstate, $like, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($node, $sql, $sqlstate, $like, $name);
}

sql('CREATE TABLE s.kinds (id integer, b bytea, a blobstate[], content blobstate,
		g blobstate GENERATED ALWAYS AS (content) STORED)',
	'CREATE VIEW s.v AS SELECT * FROM s.kinds',
	'CREATE TABLE s.mixed (id integer, content blobstate) PARTITION BY LIST (id)',
	'CREATE FOREIGN DATA WRAPPER nothing', 'CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing',
	'CREATE FOREIGN TABLE s.foreign_part PARTITION OF s.mixed FOR VALUES IN (1) SERVER nowhere',
	'CREATE ROLE reader', 'GRANT USAGE ON SCHEMA s TO reader', 'GRANT SELECT ON s.kinds TO reader');
refuses(q(BEGIN; CALL blobext_dedup('s.kinds', 'content')), '25001', qr/transaction block.*HINT/s, 'a call in a transaction block is refused');
refuses(q(SELECT 1\; CALL blobext_dedup('s.kinds', 'content')), '25001', qr/commits after each batch/,
	'a call in a query of several statements is refused');
refuses(q(CALL blobext_dedup('s.v', 'content')), '42809', qr/"v" is not a table/, 'a call for a view is refused');
refuses(q(CALL blobext_dedup('s.foreign_part', 'content')), '42809', qr/is not a table/, 'a call for a foreign table is refused');
refuses(q(CALL blobext_dedup('s.mixed', 'content')), '0A000', qr/foreign table "foreign_part"/,
	'a call for a table with a foreign partition is refused');
refuses(q(CALL blobext_dedup('s.kinds', 'b')), '42804', qr/of type bytea, not blobstate/, 'a call for a column of bytea is refused');
refuses(q(CALL blobext_dedup('s.kinds', 'a')), '42804', qr/of type blobstate\[\], not/, 'a call for a column of arrays is refused');
refuses(q(CALL blobext_dedup('s.kinds', 'g')), '428C9', qr/is a generated column/, 'a call for a generated column is refused');
refuses(q(CALL blobext_dedup('s.kinds', 'ctid')), '42703', qr/does not exist/, 'a call for a system column is refused');
refuses(q(CALL blobext_dedup('s.kinds', NULL)), '22004', qr/must not be null/, 'a call for the column NULL is refused');
refuses(q(CALL blobext_dedup('s.kinds', 'content', batch_rows => 0)), '22023', qr/at least 1/, 'a call for batches of no rows is refused');
refuses(q(SET default_transaction_read_only = on; CALL blobext_dedup('s.kinds', 'content')), '25006',
	qr/read-only transaction/, 'a call in a read-only transaction is refused');
refuses(q(SET ROLE reader; CALL blobext_dedup('s.kinds', 'content')), '42501', qr/permission denied/,
	'without the privilege to update');
sql('DROP FOREIGN DATA WRAPPER nothing CASCADE', 'DROP OWNED BY reader', 'DROP ROLE reader');

# ---- locks ----

clean();
mostly_shared('t', 6);
make_gate('t');
{
	my $gate = session('SELECT pg_advisory_lock(3)');
	my $writer = session('BEGIN', q(UPDATE s.t SET b = value(9), want = sha256(value(9)) WHERE id = 5));
	my $call = start_dedup(q(CALL blobext_dedup('s.t', 'b', batch_rows => 2)));
	waits_at_gate(3);
	my $progress = sql('SELECT relation, ranges_done, blocks_done, blocks_total, bytes_compared, rows_shared,
		bytes_saved FROM blobext_dedup_progress');
	is($progress, 's.t|0|2|2|64000|1|32768', 'the progress of a call that waits');
	refuses('SET lock_timeout = 1; DELETE FROM s.t WHERE id = 106', '55P03', qr/lock timeout/,
		'the row that is shared with is locked');
	is(sql('DELETE FROM s.t WHERE id = 4 RETURNING id'), '4', 'rows that are not done yet are not locked');
	is(distinct('t'), 5, 'nothing is committed yet');
	$gate->query_safe('SELECT pg_advisory_unlock(3)');
	is(result($call), '3|98304|2|0', 'rows that are locked, or gone, are skipped');
	$writer->query_safe('COMMIT');
	is_as_wanted('t', 'an update that was under way is not lost');
	is(sql('SELECT count(*) FROM blobext_dedup_progress'), '0', 'a call that ended shows no progress');
}

# The row whose value blob_intern() has returned.
{
	my $session = session('BEGIN', q(SELECT blob_intern('s.t', 'b', value(9))));
	refuses('SET lock_timeout = 1; DELETE FROM s.t WHERE id = 5', '55P03', qr/lock timeout/,
		'blob_intern() locks the row that has the value');
	is(sql(q(SELECT blob_storage(blob_intern('s.t', 'b', value(9))))), 'extents', 'others may share with it');
	$session->query_safe('COMMIT');
	$session = session('BEGIN', 'UPDATE s.t SET want = want WHERE id = 5');
	is(sql(q(SELECT blob_storage(blob_intern('s.t', 'b', value(9))))), 'inline', 'a row that is being changed is passed over');
	forget_sessions();
}

# A column that is part of a key: the update of its value conflicts with a foreign key's lock of the row.  A call that
# waited for that, with other rows locked, could make the other transaction the victim of a deadlock.
clean();
copies('keyed', 4, 1);
sql('ALTER TABLE s.keyed ADD PRIMARY KEY (id)', 'ALTER TABLE s.keyed ADD UNIQUE (id, b)',
	'CREATE TABLE s.child (id integer REFERENCES s.keyed)');
{
	my $child = session('BEGIN', 'INSERT INTO s.child VALUES (3)');
	is(sql(q(SET statement_timeout = '60s'; CALL blobext_dedup('s.keyed', 'b'))), '2|65536|1|0',
		'a row that a foreign key has locked is skipped, where the column is part of a key');
	$child->query_safe('COMMIT');
	is_as_wanted('keyed', 'rows of the table with keys have what they were given');
	sql('DROP TABLE s.child, s.keyed');
}

# A row changes after it was found, and before it is its turn; so does the row that is shared with.
clean();
mostly_shared('t', 6);
make_gate('t');
{
	my $gate = session('SELECT pg_advisory_lock(2)');
	my $call = start_dedup(q(CALL blobext_dedup('s.t', 'b', batch_rows => 1)));
	waits_at_gate(2);
	sql('UPDATE s.t SET b = value(9), want = sha256(value(9)) WHERE id = 4');
	sql('UPDATE s.t SET b = value(8), want = sha256(value(8)) WHERE id = 3');
	$gate->query_safe('SELECT pg_advisory_unlock(2)');
	is(result($call), '3|98304|2|0', 'rows that change before it is their turn are skipped');
	is_as_wanted('t', 'rows that changed meanwhile have what they were given');
}

# The source is locked once for several rows; it has to be locked again after an error, which has undone that, and
# in each batch.
clean();
mostly_shared('t', 8);
make_gate('t');
sql('CREATE FUNCTION s.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE division_by_zero; END $$',
	'CREATE TRIGGER a BEFORE UPDATE ON s.t FOR EACH ROW WHEN (old.id = 2) EXECUTE FUNCTION s.refuse()');
{
	my $gate = session('SELECT pg_advisory_lock(i) FROM unnest(ARRAY[3, 5]) AS i');
	my $call = start_dedup(q(CALL blobext_dedup('s.t', 'b', batch_rows => 3)));
	foreach my $id (3, 5)
	{
		waits_at_gate($id);
		refuses('SET lock_timeout = 1; DELETE FROM s.t WHERE id = 106', '55P03', qr/lock timeout/,
			"the row that is shared with is locked when row $id is updated");
		$gate->query_safe("SELECT pg_advisory_unlock($id)");
	}
	is(result($call), '6|196608|0|1', 'a row whose update is refused');
	is_as_wanted('t', 'a row whose update is refused keeps its value');
}

# A trigger changes the row that is shared with, in the transaction that has it locked: the rows after that still
# get its value, which the row before them has.
clean();
mostly_shared('t', 8);
sql('CREATE FUNCTION s.meddle() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN UPDATE s.t SET b = value(9), want = sha256(value(9)) WHERE id > 100; RETURN new; END $$',
	'CREATE TRIGGER a BEFORE UPDATE ON s.t FOR EACH ROW WHEN (old.id = 3) EXECUTE FUNCTION s.meddle()');
is(sql(q(CALL blobext_dedup('s.t', 'b'))), '7|229376|0|0', 'a trigger that changes the row that is shared with');
sql('VACUUM s.t');
gc();
is_as_wanted('t', 'contents after that, and a round of the collector');

# The table gets another name in the middle: its plans would find another table.
clean();
mostly_shared('t', 6);
make_gate('t');
{
	my $gate = session('SELECT pg_advisory_lock(2)');
	my $call = start_dedup(q(CALL blobext_dedup('s.t', 'b', batch_rows => 1)));
	waits_at_gate(2);
	my $rename = start_dedup('ALTER TABLE s.t RENAME TO u');
	poll(q(SELECT count(*) = 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted));
	$gate->query_safe('SELECT pg_advisory_unlock(2)');
	is(result($call), '', 'a call whose table is renamed returns no row');
	like($call->{err}, qr/ERROR:  relation s\.t was altered meanwhile\n.*HINT/s, 'a call whose table is renamed ends with an error and a hint');
	result($rename);
	is(distinct('u'), 5, 'what was committed stays');
}

# ---- the collector ----

# Each update waits, so that rounds come and go meanwhile.
clean();
copies('t', 400, 4);
sql('CREATE TABLE s.other (b blobstate)', 'INSERT INTO s.other SELECT value(1000 + i) FROM generate_series(1, 5) i',
	'DELETE FROM s.other');
make_slow('t', 0.3);
{
	my $call = start_dedup(q(CALL blobext_dedup('s.t', 'b', batch_rows => 1)));
	poll('SELECT rows_shared > 1 FROM blobext_dedup_progress');
	my ($freed, $live, $reason) = gc(timeout => '60s');
	is($reason, '', 'a round is complete while a call goes on');
	cmp_ok($freed, '>=', 5, 'a round frees values while a call goes on');
	is(sql('SELECT count(*) FROM blobext_dedup_progress'), '1', 'the call goes on');
	sql('SELECT pg_cancel_backend(pid) FROM blobext_dedup_progress');
	result($call);
	like($call->{err}, qr/canceling statement due to user request/, 'a call can be cancelled');
	my $shared = 400 - distinct('t');
	cmp_ok($shared, '>', 3, 'what was committed stays');
	sql('DROP TRIGGER slow ON s.t');
	my ($more) = split /\|/, sql(q(CALL blobext_dedup('s.t', 'b')));
	is(distinct('t'), 4, 'the next call goes on');
	is_as_wanted('t', 'contents are what they were');
}

# Procedures and DO blocks that call it may have values: then the round waits for their end.
clean();
mostly_shared('t', 40);
make_slow('t', 0.3);
{
	my $block = start_dedup(q(DO $$ DECLARE x blobstate; r bigint; BEGIN
		SELECT b INTO x FROM s.t WHERE id = 2;
		CALL blobext_dedup('s.t', 'b', true, 1, r, r, r, r);
		INSERT INTO s.t VALUES (1000, x, sha256(value(0))); END $$));
	poll('SELECT rows_shared > 1 FROM blobext_dedup_progress');
	my ($freed, $live, $reason) = gc(timeout => '1s');
	is($freed, '0', 'while a DO block calls it, a round frees nothing');
	like($reason, qr/procedure or DO block|transaction/, 'the round says why it frees nothing');
	result($block);
	is($block->{err}, '', 'a DO block that calls blobext_dedup() ends without an error');
	is_as_wanted('t', 'a DO block stores a value that it had before the call');
}

# ---- everything at once ----

clean();
copies('w', 60, 12);
sql('CREATE INDEX ON s.w (b blobstate_digest_ops)', 'CREATE INDEX ON s.w USING hash (b)');
{
	my $dir = PostgreSQL::Test::Utils::tempdir;
	my %scripts = (
		change => q(\set i random(1, 60)
\set v random(1, 12)
UPDATE s.w SET (b, want) = (value(:v), sha256(value(:v))) WHERE id = :i;
),
		touch => q(\set i random(1, 60)
UPDATE s.w SET want = want WHERE id = :i;
),
		move => q(\set i random(1, 60)
\set v random(1, 12)
BEGIN;
DELETE FROM s.w WHERE id = :i;
INSERT INTO s.w VALUES (:i, blob_intern('s.w', 'b', value(:v)), sha256(value(:v)));
END;
),
		share => q(CALL blobext_dedup('s.w', 'b', batch_rows => 4);
),
		collect => q(SELECT freed_blobs FROM blobext_gc();
VACUUM s.w;
));
	append_to_file("$dir/$_", $scripts{$_}) foreach keys %scripts;
	my @at = ('-h', $node->host, '-p', $node->port, 'postgres');
	my @runs;
	foreach my $run ([ 4, 150, 'change', 'touch', 'move' ], [ 2, 60, 'share' ], [ 1, 10, 'collect' ])
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
	is_as_wanted('w', 'after updates, moves, calls and rounds at once');
	sql(q(CALL blobext_dedup('s.w', 'b')));
	is_as_wanted('w', 'after a last call');
	is(distinct('w'), sql('SELECT count(DISTINCT want) FROM s.w'), 'each content has one value');
	check_is_clean($node, 'keys and values are sound');
	no_page_is_shared($node, 'no page is used twice', 's.w');
}

# ---- replicas ----

# A standby has the same rows; a subscriber gets the contents once more, and its rows do not share.
clean();
copies('t', 20, 2);
sql('ALTER TABLE s.t ADD PRIMARY KEY (id)', 'CREATE PUBLICATION p FOR TABLE s.t');
{
	$node->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	$standby->start;
	my $subscriber = blob_cluster('subscriber');
	$subscriber->safe_psql('postgres', 'CREATE SCHEMA s; CREATE TABLE s.t (id integer PRIMARY KEY, b blobstate,
		want bytea); CREATE SUBSCRIPTION sub CONNECTION ' . "'" . $node->connstr . " dbname=postgres' PUBLICATION p");
	$subscriber->wait_for_subscription_sync($node, 'sub');
	my $received = stat_of($subscriber, 'stored_blobs');
	is(sql(q(CALL blobext_dedup('s.t', 'b'))), '18|589824|0|0', 'a table that is replicated');
	$node->wait_for_catchup($standby);
	$node->wait_for_catchup('sub');
	my $count = 'SELECT count(*), count(DISTINCT first_page), bool_and(sha256(b::bytea) = want)
		FROM s.t, blob_extents(b) WHERE extent_no = 0';
	is($standby->safe_psql('postgres', $count), '20|2|t', 'the rows of a standby share values');
	is($subscriber->safe_psql('postgres', $count), '20|20|t', 'those of a subscriber do not');
	cmp_ok(stat_of($subscriber, 'stored_blobs') - $received, '>=', 18, 'a subscriber gets each content again');
	$subscriber->safe_psql('postgres', q(CALL blobext_dedup('s.t', 'b')));
	is($subscriber->safe_psql('postgres', $count), '20|2|t', 'until it is called there');
	$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
	sql('DROP PUBLICATION p');
	gc();
	$node->wait_for_catchup($standby);
	is($standby->safe_psql('postgres', $count), '20|2|t', 'the standby after a round of the collector');
	check_is_clean($standby, 'keys and values of the standby are sound');
	$_->stop foreach $standby, $subscriber;
}

# ---- kills ----

clean();
copies('t', 600, 20);
sql('CREATE INDEX ON s.t (b)');
make_slow('t', 0.01);
my $before = 600;
foreach my $how ('backend', 'server', 'server')
{
	my $call = start_dedup(q(CALL blobext_dedup('s.t', 'b', batch_rows => 5)));
	my $rows = 15 + int(rand(30));
	poll("SELECT rows_shared > $rows FROM blobext_dedup_progress");
	if ($how eq 'backend')
	{
		my $pid = sql('SELECT pid FROM blobext_dedup_progress');
		kill('KILL', $pid);
		wait_for_end($node->{_pid});	# which does not restart its processes here
		$node->{_pid} = undef;
	}
	else
	{
		kill_everything($node);
	}
	IPC::Run::finish($call->{run});
	$node->start;
	is_as_wanted('t', "contents after a kill -9 of the $how");
	my $now = distinct('t');
	cmp_ok($now, '<=', $before - ($rows - 5), 'what was committed is there');
	$before = $now;
	check_is_clean($node, 'keys and values are sound');
}
sql('DROP TRIGGER slow ON s.t');
is((split /\|/, sql(q(CALL blobext_dedup('s.t', 'b'))))[0], $before - 20, 'the next call does the rest');
is(distinct('t'), 20, 'each content has one value');
is_as_wanted('t', 'contents are what they were');
sql('VACUUM s.t');
gc();
is_as_wanted('t', 'contents after a round of the collector');

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

# The second copy of value 0, and the first one of value 1.
clean();
copies('t', 6, 2);
my ($second, $first) = split /\n/, sql('SELECT first_page FROM s.t, blob_extents(b) WHERE extent_no = 0
	AND id IN (4, 1) ORDER BY id DESC');
$node->stop;
damage($_) foreach $second, $first;
$node->start;
{
	my $call = start_dedup(q(CALL blobext_dedup('s.t', 'b')));
	like(result($call), qr/^2\|65536\|0\|2$/, 'values that differ keep their extents');
	is(() = $call->{err} =~ /WARNING:  row \(0,\d\) of "t" keeps its value: its content is not/g, 2,
		'with a warning for each');
	is(sql('SELECT string_agg(id::text, $$,$$ ORDER BY id) FROM s.t WHERE sha256(b::bytea) <> want'),
		'1,4', 'the damage has not spread');
	sql('DELETE FROM s.t WHERE id IN (3, 5)');
	my ($code, $out, $err) = $node->psql('postgres',
		q(INSERT INTO s.t SELECT 9, blob_intern('s.t', 'b', value(1)), sha256(value(1))));
	is($code, 0, 'blob_intern() of content whose copy is damaged');
	like($err, qr/WARNING:  a value of the same size and digest is not shared/, 'blob_intern() warns that content with a damaged copy is not shared');
	is(sql('SELECT count(*) FROM s.t WHERE id = 9 AND sha256(b::bytea) = want'), '1', 'blob_intern() stores content whose copy is damaged');
}

# The file of the value that the others would get is damaged, and the buffer has the stored bytes.
clean();
copies('t', 4, 1);
sql('CHECKPOINT', 'SELECT count(b::bytea) FROM s.t');
damage(sql('SELECT first_page FROM s.t, blob_extents(b) WHERE extent_no = 0 AND id = 1'));
is_as_wanted('t', 'the buffer hides the damage of a file');
is(sql(q(CALL blobext_dedup('s.t', 'b'))), '2|65536|0|1', 'the damaged value is not shared');
$node->restart;
is(sql('SELECT string_agg(id::text, $$,$$ ORDER BY id) FROM s.t WHERE sha256(b::bytea) <> want'),
	'1', 'the hidden damage has not spread');

# ---- a dump ----

# Last, because it makes another store.
clean();
copies('t', 12, 3);
sql(q(CALL blobext_dedup('s.t', 'b')));
{
	my $file = PostgreSQL::Test::Utils::tempdir . '/dump';
	my $count = 'SELECT count(*), count(DISTINCT first_page), bool_and(sha256(b::bytea) = want)
		FROM s.t, blob_extents(b) WHERE extent_no = 0';
	is(sql($count), '12|3|t', 'rows that share values, to be dumped');
	$node->command_ok([ 'pg_dump', '-Fc', '-t', 's.t', '-f', $file, '-d', $node->connstr('postgres') ], 'pg_dump succeeds with shared values');
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->safe_psql('restored', 'CREATE EXTENSION blobext; CREATE SCHEMA s');
	$node->command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), $file ], 'pg_restore succeeds with shared values');
	is($node->safe_psql('restored', $count), '12|12|t', 'restored rows have values of their own');
	$node->safe_psql('restored', q(CALL blobext_dedup('s.t', 'b')));
	is($node->safe_psql('restored', $count), '12|3|t', 'until it is called in the new database');
	check_is_clean($node, 'the restored database is sound', 'restored');
}

forget_sessions();
$node->stop;
done_testing();
