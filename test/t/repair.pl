# Damaged pages: the list of them, and the worker that repairs them from another server.
#
# A read that comes to a flipped bit fails, and the page is in blobext_damaged_pages.  With
# blobext.heal_conninfo a worker finds a value that has the page, in a row or in a key alone, and
# makes it right from the standby; then reads are right and the view says so.  A source that is not
# there, that does not answer or that has other bytes changes nothing, and the view says why.
#
# Seen to fail: without the note in read.c there is no row; without the call in launcher.c nothing is
# repaired; without the look at checksums in fetch.c (compare_digest()), a wrong checksum stays; with
# every finding taken for a new one, the log has a line for each; without give_up_at_exit() the state
# stays "repairing"; without blob_damage_forget_freed() the row of a freed extent stays; without the
# visit of keys in check_index.c, a page that only a key has stays damaged; without the limits of
# values per page (VALUES_PER_PAGE, is_known(), find_open_page()), all copies of a value are read;
# without take_share() a role that has filled the list keeps others out; without blob_begin_pace() the
# worker is never seen in its walk; without mend_flag() an extent that lost its mark stays refused; where
# note_written() joins all ranges of an extent, a page between two that were written counts as repaired.
use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

my $conf = "autovacuum = off\nblobext.cache_size = 0\nblobext.autogc = off\nblobext.autogc_naptime = 1s\n";
my $primary = blob_cluster('primary', streaming => 1, conf => $conf);
sub sql { return $primary->safe_psql('postgres', join(';', @_)); }

sql(q(CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
		$$ SELECT substr(string_agg(sha256(random()::text::bytea), ''), 1, n) FROM generate_series(0, n / 32) $$),
	'CREATE TABLE t (id int, c bytea, b blobstate)',
	'INSERT INTO t (id, c) SELECT i, noise(n) FROM (VALUES (1, 700000), (2, 3000), (3, 2500000), (4, 90000), (5, 60000), (6, 1300000),'
	. ' (7, 50000)) AS v (i, n)',
	'UPDATE t SET b = c',
	# Keys that agree in their first bytes, so that their order needs content.
	q(CREATE TABLE keyed (b blobstate)), 'CREATE INDEX keyed_b ON keyed (b)');
sql('INSERT INTO keyed VALUES (' . literal(('x' x 9000) . $_) . ')') foreach qw(a m z);
my $key_page = sql("SELECT first_page FROM keyed, blob_extents(b) WHERE b = " . literal(('x' x 9000) . 'm') . ' AND bytes > 0 LIMIT 1');
sql('CREATE TABLE copies AS SELECT i, b FROM t, generate_series(1, 20) AS i WHERE id = 1');
sql('CREATE ROLE nobody LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);
$primary->safe_psql('postgres', 'CHECKPOINT');

# ---- helpers ----

sub flip_byte
{
	my ($path, $at, $mask) = @_;
	open(my $file, '+<:raw', $path) or die "$path: $!";
	sysseek($file, $at, 0);
	sysread($file, my $byte, 1) == 1 or die $!;
	sysseek($file, $at, 0);
	syswrite($file, chr(ord($byte) ^ $mask)) == 1 or die $!;
	close $file or die $!;
	return;
}

# Flip a bit of a page.
sub flip
{
	my ($node, $page) = @_;
	flip_byte(segment_file($node, int($page / 262_144)), ($page % 262_144) * 4096 + 77, 4);
	return;
}

# The pages of a value, in the order of its content; one of them.
sub pages_of
{
	my ($id) = @_;
	return split /\n/, sql(q(SELECT generate_series(first_page, first_page + (bytes + 4095) / 4096 - 1) FROM t, blob_extents(b)
		WHERE bytes > 0 AND id = ) . "$id ORDER BY extent_no, 1");
}

sub page_of
{
	my ($id, $page_no) = @_;
	return (pages_of($id))[$page_no];
}

sub is_right
{
	my ($node, $id, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql('postgres', "SELECT b::bytea = c FROM t WHERE id = $id"), 't', $name);
}

sub read_fails
{
	my ($node, $id, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($node, "SELECT md5(b::bytea) FROM t WHERE id = $id", 'XX001', qr/checksum/, $name);
}

# Columns of the view for a page.
sub listed
{
	my ($node, $page, $columns) = @_;
	return $node->safe_psql('postgres', "SELECT $columns FROM blobext_damaged_pages WHERE page = $page");
}

sub await_state
{
	my ($node, $page, $state, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT state = '$state' FROM blobext_damaged_pages WHERE page = $page"), $name);
}

sub heal_from
{
	my ($node, $conninfo) = @_;
	$conninfo =~ s/'/''/g;
	$node->safe_psql('postgres', "ALTER SYSTEM SET blobext.heal_conninfo = '$conninfo'");
	$node->reload;
	return;
}

sub server
{
	my ($node) = @_;
	return 'host=' . $node->host . ' port=' . $node->port;
}

my $lines = 0;
sub log_lines
{
	my @found = slurp_file($primary->logfile) =~ /a page of content in file "\S+" is damaged/g;
	return scalar @found;
}

# ---- the setting ----

my (undef, undef, $told) = $primary->psql('postgres', q(ALTER SYSTEM SET blobext.heal_conninfo = 'dbname=other password=secret'));
like($told, qr/must not name a database/, 'a connection string with a database is refused');
unlike($told =~ s/^LINE 1:.*$//mr, qr/secret/, 'the message about a database has no password');
(undef, undef, $told) = $primary->psql('postgres', q(ALTER SYSTEM SET blobext.heal_conninfo = 'password=secret nonsense'));
like($told, qr/invalid connection string/, 'a connection string that is none is refused');
unlike($told =~ s/^LINE 1:.*$//mr, qr/secret/, 'the message about such a string has no password');
my $offset = -s $primary->logfile;
$primary->append_conf('postgresql.conf', "blobext.heal_conninfo = 'dbname=other password=secret'");
$primary->reload;
$primary->wait_for_log(qr/must not name a database/, $offset);
unlike(substr(slurp_file($primary->logfile), $offset), qr/secret/, 'the log of a reload has no password');
$primary->adjust_conf('postgresql.conf', 'blobext.heal_conninfo', "''");
$primary->reload;
fails_with($primary, 'SET ROLE nobody; SHOW blobext.heal_conninfo', '42501', qr/heal_conninfo/, 'an ordinary role does not see the connection string');

# ---- found, and not repaired ----

my $page = page_of(1, 5);
flip($primary, $page);
read_fails($primary, 1, 'a read that comes to a flipped bit fails') foreach 1 .. 3;
like(listed($primary, $page, 'datname, file, file_offset, found_by, found_count, state, attempts, relation, last_error'),
	qr{^postgres\|pg_blobext/[0-9]+\.[0-9a-f]{16}/00000000\|@{[ $page * 4096 ]}\|read\|3\|found\|0\|\|$},
	'the view has the page, and no repair was tried');
is(log_lines(), 1, 'the log has one line for the page');
is(stat_of($primary, 'damaged_pages'), '1', 'blobext_stat counts the page');
fails_with($primary, "SET ROLE nobody; SELECT * FROM $_", '42501', qr/permission denied/, "an ordinary role does not see $_")
	foreach 'blobext_damaged_pages', 'blobext_damage_state()';
is($primary->safe_psql('postgres', 'SET ROLE watcher; SELECT count(*) FROM blobext_damaged_pages'), '1', 'a member of pg_monitor sees the page');
$primary->safe_psql('postgres', 'CREATE DATABASE second');
$primary->safe_psql('second', 'CREATE EXTENSION blobext');
is($primary->safe_psql('second', 'SELECT datname, state FROM blobext_damaged_pages'), 'postgres|found', 'the view shows pages of other databases');

# ---- sources that do not help ----

heal_from($primary, 'host=' . $primary->host . ' port=1');
await_state($primary, $page, 'failed', 'a source that is not there repairs nothing');
like(listed($primary, $page, 'last_error'), qr/could not connect to the other server/, 'the view says that there is no connection');

my $silent = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die $!;
heal_from($primary, 'host=127.0.0.1 sslmode=disable gssencmode=disable port=' . $silent->sockport);
await_state($primary, $page, 'repairing', 'a repair waits for a source that does not answer');
my $worker = q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'blobext repair');
is(sql("SELECT count(*) FROM ($worker) AS w"), '1', 'the worker is in pg_stat_activity');
sql("SELECT pg_terminate_backend(pid) FROM ($worker) AS w");
await_state($primary, $page, 'failed', 'a worker that is terminated says so');
like(listed($primary, $page, 'last_error'), qr/interrupted/, 'the view says that the repair was interrupted');

# A server that lets the worker in, and says nothing more: it is given up after four times connect_timeout.
my $mute = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die $!;
my $mute_pid = fork // die $!;
if ($mute_pid == 0)
{
	my @clients;
	while (my $client = $mute->accept)
	{
		# The startup packet; then AuthenticationOk and ReadyForQuery.
		sysread($client, my $packet, 10_000);
		syswrite($client, pack('a N N a N a', 'R', 8, 0, 'Z', 5, 'I'));
		push @clients, $client;
	}
	POSIX::_exit(0);
}
heal_from($primary, 'host=127.0.0.1 sslmode=disable gssencmode=disable connect_timeout=1 port=' . $mute->sockport);
ok($primary->poll_query_until('postgres', "SELECT state = 'failed' AND last_error = 'the other server does not answer'
	FROM blobext_damaged_pages WHERE page = $page"), 'a source that says nothing is given up');
kill 'KILL', $mute_pid;
waitpid($mute_pid, 0);

# The standby has the same damage, so its bytes do not have the digest.
flip($standby, $page);
heal_from($primary, server($standby));
await_state($primary, $page, 'failed', 'a source with the same damage repairs nothing');
ok($primary->poll_query_until('postgres', "SELECT last_error ~ 'digest|does not give it' FROM blobext_damaged_pages WHERE page = $page"),
	'the view says that the source does not have the content');
is(listed($primary, $page, 'relation, column_name'), 'public.t|b', 'the view says which table and column have the page');
fails_with($primary, 'SELECT md5(b::bytea) FROM t WHERE id = 1', 'XX001',
	qr/file "\S+" is damaged.*byte @{[ $page * 4096 ]} .*belongs to column "b" of public\.t\..*blobext_damaged_pages/s,
	'a page without a source stays refused, and the error names table and column');
read_fails($standby, 1, 'a damaged page of a standby is refused');
like(listed($standby, $page, 'state, attempts'), qr/^found\|0$/, 'a standby notes its own damage, and repairs nothing');
flip($standby, $page);

# ---- repaired ----

my $before = stat_of($primary, 'content_read_bytes');
heal_from($primary, server($standby) . ' application_name=second_attempt');
await_state($primary, $page, 'repaired', 'a source with right bytes repairs the page');
is_right($primary, 1, 'the value is right after the repair');
like(listed($primary, $page, 'attempts, last_error, relation'), qr/^\d+\|\|public\.t$/, 'the view has no error any more');
is(stat_of($primary, 'repaired_pages'), '1', 'blobext_stat counts the repaired page');
ok($primary->poll_query_until('postgres', "SELECT count(*) = 0 FROM ($worker) AS w"), 'the worker ends after its attempt');
cmp_ok(stat_of($primary, 'content_read_bytes') - $before, '<', 20 * 700_000, 'copies of the value are not read');
check_is_clean($primary, 'the check finds nothing after the repair');
my $tried = listed($primary, $page, 'attempts');

# Pages of several values, one of a single page; and a page that was right again before the worker came.
my @pages = (page_of(2, 0), page_of(3, 300), page_of(3, 301), page_of(4, 3));
flip($primary, $_) foreach @pages;
read_fails($primary, $_, "a read of value $_ fails") foreach 2 .. 4;
await_state($primary, $_, 'repaired', "page $_ of several is repaired") foreach @pages[0, 1, 3];
is_right($primary, $_, "value $_ of several is right") foreach 2 .. 4;
is(listed($primary, $page, 'attempts'), $tried, 'a page that is repaired is left alone');

# A damaged page again, after its repair, is a new one.
$lines = log_lines();
heal_from($primary, '');
flip($primary, $page);
read_fails($primary, 1, 'a read of a page that is damaged again fails');
is(listed($primary, $page, 'state, found_by'), 'found|read', 'a page that is damaged again is in the list as new');
is(log_lines(), $lines + 1, 'the log has a line for the new damage');
flip($primary, $page);
heal_from($primary, server($standby) . ' application_name=third_attempt');
await_state($primary, $page, 'right', 'a page that came right by itself is not repaired');
is(listed($primary, $page, 'last_error'), '', 'a page that came right has no error');

# A value that only a key of an index has.
heal_from($primary, '');
sql('DELETE FROM keyed WHERE b = ' . literal(('x' x 9000) . 'm'));
flip($primary, $key_page + 1);
my $search = 'SET enable_seqscan = off; SELECT count(*) FROM keyed WHERE b > ' . literal(('x' x 9000) . 'b');
fails_with($primary, $search, 'XX001', qr/checksum/, 'an index does not find its way over a damaged key');
is(listed($primary, $key_page + 1, 'state'), 'found', 'the comparison has noted the page');
heal_from($primary, server($standby));
await_state($primary, $key_page + 1, 'repaired', 'the content of a key is repaired');
is(listed($primary, $key_page + 1, 'relation, column_name'), 'public.keyed_b|b', 'the view names the index');
is(sql($search), '1', 'the index finds its way again');

# The check notes pages, and a repair by hand counts.
heal_from($primary, '');
flip($primary, page_of(6, 9));
like(sql('SELECT problem FROM blobext_check()'), qr/SHA-256|checksum/, 'the check finds the damage');
is(listed($primary, page_of(6, 9), 'state, found_by, relation, column_name'), 'found|check|public.t|b',
	'the check has noted the page, and which table has it');
is(sql("SELECT * FROM blobext_check(repair => '" . (server($standby) =~ s/'/''/gr) . " dbname=postgres')"), '', 'the page is repaired by hand');
is(listed($primary, page_of(6, 9), 'state'), 'repaired', 'the list knows of the repair by hand');

# A page between two that are repaired: the value that is repaired does not have it, another one does.
sql(q(CREATE TABLE former AS SELECT b FROM t WHERE id = 3),
	q(CREATE TABLE changed AS SELECT blob_write(b, 100 * 4096, noise(40960)) AS b FROM former));
@pages = map { page_of(3, $_) } 99, 105, 110;
is($pages[2] - $pages[0], '11', 'the three pages are in one extent');
flip($primary, $_) foreach @pages;
fails_with($primary, "SELECT blob_read(b, $$_[1] * 4096, 10) FROM $$_[0]", 'XX001', qr/checksum/, "page $$_[1] of the value is damaged")
	foreach [ 'changed', 99 ], [ 'former', 105 ], [ 'changed', 110 ];
is(sql(q(SELECT blob_read(b, 105 * 4096, 10) IS NOT NULL FROM changed)), 't', 'the changed value does not have the page in the middle');
sub repair_table { return sql("SELECT * FROM blobext_check('$_[0]', repair => '" . (server($standby) =~ s/'/''/gr) . " dbname=postgres')"); }
is(repair_table('changed'), '', 'the changed value is repaired');
is(join(' ', map { listed($primary, $_, 'state') } @pages), 'repaired found repaired', 'only pages that were written count as repaired');
fails_with($primary, 'SELECT md5(b::bytea) FROM former', 'XX001', qr/checksum/, 'the page between those that were repaired is refused');
is(repair_table('former'), '', 'the value that has the page in the middle is repaired');
is(join(' ', map { listed($primary, $_, 'state') } @pages), 'repaired repaired repaired', 'the page in the middle counts as repaired in its turn');
sql(q(DROP TABLE former, changed));

# An extent that is freed leaves the list.
$page = page_of(7, 2);
flip($primary, $page);
read_fails($primary, 7, 'a read of a value that will be deleted fails');
sql('DELETE FROM t WHERE id = 7');
like(sql('SELECT freed_blobs > 0, skipped_reason FROM blobext_gc()'), qr/^t\|$/, 'the value is freed');
is(listed($primary, $page, 'count(*)'), '0', 'a page of a freed extent is in the list no more');

# More pages than the list has room for: those without room are counted, and repaired with the others.
flip($primary, $_) foreach (pages_of(3))[0 .. 299];
sql(q(DO $$ DECLARE at bigint; BEGIN
	FOR at IN 0 .. 610 LOOP
		BEGIN PERFORM blob_read(b, at * 4096, 10) FROM t WHERE id = 3; EXCEPTION WHEN data_corrupted THEN NULL; END;
	END LOOP; END $$));
is(sql('SELECT count(*) FROM blobext_damaged_pages'), '256', 'the list has its size');
cmp_ok(stat_of($primary, 'damage_unlisted'), '>=', 44, 'pages without room are counted');
# A role that fills the list leaves room for what others find.
my @others = (page_of(4, 7), page_of(5, 3), page_of(6, 30));
flip($primary, $_) foreach @others;
my $unlisted = stat_of($primary, 'damage_unlisted');
sql(q(GRANT SELECT ON t TO nobody));
foreach my $no (0 .. 2)
{
	$primary->safe_psql('postgres', q(DO $$ BEGIN PERFORM md5(b::bytea) FROM t WHERE id = ) . ($no + 4)
		. q(; EXCEPTION WHEN data_corrupted THEN NULL; END $$), extra_params => [ '-U', $no == 0 ? getpwuid($<) : 'nobody' ]);
}
is(listed($primary, $others[0], 'count(*)'), '0', 'a role that has filled the list gets no more room');
is(listed($primary, $others[$_], 'count(*)'), '1', 'a page that another role finds has room in the list') foreach 1, 2;
is(sql('SELECT count(*) FROM blobext_damaged_pages'), '256', 'the list still has its size');
is(stat_of($primary, 'damage_unlisted') - $unlisted, '3', 'pages that had to go are counted');
flip($primary, $others[0]);
heal_from($primary, server($standby));
ok($primary->poll_query_until('postgres', q(SELECT bool_and(state = 'repaired') FROM blobext_damaged_pages)), 'all pages of the list are repaired');
is_right($primary, 3, 'a value with many damaged pages is right');
check_is_clean($primary, 'the check finds nothing after all repairs');

# ---- the walk over tables: its pace, and what ends it ----

# 0.4 s for each page of a table of 1,000 pages, which is the last one.
sql('CREATE TABLE last_one (id int, filler text, b blobstate)', 'ALTER TABLE last_one ALTER filler SET STORAGE PLAIN',
	q(INSERT INTO last_one SELECT i, repeat(md5(i::text), 100), CASE WHEN i = 2000 THEN noise(90000)::blobstate END FROM generate_series(1, 2000) AS i));
sql('CHECKPOINT');
$primary->wait_for_catchup($standby);
my $last_page = sql('SELECT first_page + 1 FROM last_one, blob_extents(b) WHERE bytes > 8192 LIMIT 1');
sub pace
{
	my ($delay, $limit) = @_;
	sql("ALTER SYSTEM SET autovacuum_vacuum_cost_delay = '$delay'", "ALTER SYSTEM SET autovacuum_vacuum_cost_limit = $limit", 'SELECT pg_reload_conf()');
	return;
}

# A worker that is in the table; the pages are due at once, because the source is another one.
my $sources = 0;
sub walk_slowly
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	heal_from($primary, server($standby) . ' application_name=slow' . $sources++);
	return ok($primary->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity AS a JOIN blobext_check_progress AS p USING (pid)
		WHERE backend_type = 'blobext repair' AND wait_event = 'VacuumDelay' AND relation = 'last_one'::regclass AND relations_done < relations_total)),
		"$name: the worker goes slowly through the table, which the view of progress shows");
}

heal_from($primary, '');
pace('100ms', 1);
flip($primary, $last_page);
fails_with($primary, 'SELECT md5(b::bytea) FROM last_one', 'XX001', qr/checksum/, 'the value of the last table is refused');
walk_slowly('a lock');
sql('SET lock_timeout = 0; ALTER TABLE last_one ADD COLUMN more int');
await_state($primary, $last_page, 'failed', 'a session that waits for a lock of the table cancels the repair');
like(listed($primary, $last_page, 'last_error'), qr/cancel/, 'the view says that the repair was canceled');
is(sql('SELECT count(*) FROM last_one WHERE more IS NULL'), '2000', 'the table has its new column');
walk_slowly('a lock again');
pace('2ms', 200);
sql("SELECT pg_terminate_backend(pid) FROM ($worker) AS w");
await_state($primary, $last_page, 'failed', 'a slow repair can be ended');
heal_from($primary, server($standby) . ' application_name=at_pace');
await_state($primary, $last_page, 'repaired', 'at the usual pace the page is repaired');

# A database that is dropped while the worker is in it.
sql('CREATE DATABASE going');
$primary->safe_psql('going', $_) foreach 'CREATE EXTENSION blobext',
	q(CREATE TABLE first_one AS SELECT repeat(md5(i::text), 60) AS filler, NULL::blobstate AS b FROM generate_series(1, 3000) AS i),
	q(CREATE TABLE last_one AS SELECT convert_to(repeat('x', 90000), 'UTF8')::blobstate AS b), 'CHECKPOINT';
$primary->wait_for_catchup($standby);
my ($going_file) = $primary->safe_psql('going', 'SELECT file FROM blobext_files()') =~ /^(\S+)/;
my $going_page = $primary->safe_psql('going', 'SELECT first_page + 1 FROM last_one, blob_extents(b) WHERE bytes > 8192 LIMIT 1');
heal_from($primary, '');
pace('100ms', 1);
flip_bit($primary->data_dir . "/$going_file", ($going_page * 4096 + 50) * 8);
fails_with($primary, 'SELECT md5(b::bytea) FROM last_one', 'XX001', qr/checksum/, 'the value of the other database is refused', database => 'going');
heal_from($primary, server($standby) . ' application_name=going');
ok($primary->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'blobext repair' AND datname = 'going' AND wait_event = 'VacuumDelay')), 'a worker repairs in a database that will be dropped');
sql('DROP DATABASE going');
is(sql(q(SELECT count(*) FROM pg_database WHERE datname = 'going')), '0', 'a database is dropped while the worker repairs in it');
ok($primary->poll_query_until('postgres', "SELECT count(*) = 0 FROM ($worker) AS w"), 'the worker ends with the database');
ok($primary->poll_query_until('postgres', q(SELECT count(*) = 0 FROM blobext_damaged_pages WHERE datname IS NULL OR datname = 'going')),
	'pages of a dropped database leave the list');
pace('2ms', 200);
check_is_clean($primary, 'the check finds nothing after all that');

# ---- a shutdown ends a repair ----

$page = page_of(5, 1);
heal_from($primary, 'host=127.0.0.1 sslmode=disable gssencmode=disable port=' . $silent->sockport);
flip($primary, $page);
read_fails($primary, 5, 'a read before the shutdown fails');
await_state($primary, $page, 'repairing', 'a repair is under way at the shutdown');
$primary->stop('fast');
close $silent;

# ---- damage of the map, while the content is right: a checksum, a state, the bit that there are any ----

$primary->start;
# The first page of an extent of several, whose checksum is in the entry behind that of the extent.
my %healthy = map { $_ => sql("SELECT first_page FROM t, blob_extents(b) WHERE id = $_ AND bytes > 4096 * 3 LIMIT 1") } 1, 4, 6;
my $map = $primary->data_dir . '/' . sql("SELECT pg_relation_filepath('blobext_map')");
my $has_checksums = sql('SHOW data_checksums') eq 'on';
is(sql('SELECT count(*) FROM blobext_damaged_pages'), '0', 'the list is empty after a start');
sql('CHECKPOINT');
$primary->stop;
system_or_bail('pg_checksums', '--disable', '--pgdata', $primary->data_dir) if $has_checksums;
flip_bit($map, map_bit($healthy{4} + 1, 8));
flip_bit($map, map_bit($healthy{1} + 1, 3));
flip_bit($map, map_bit($healthy{6}, 7));
$primary->start;
heal_from($primary, server($standby));
read_fails($primary, 4, 'a value whose checksum is wrong is refused');
read_fails($primary, 1, 'a value whose entry of checksums has no state is refused');
read_fails($primary, 6, 'a value whose extent seems to have no checksums is refused');
await_state($primary, $healthy{4}, 'repaired', 'a wrong checksum is repaired');
await_state($primary, $healthy{1}, 'repaired', 'an entry of checksums without a state is repaired');
await_state($primary, $healthy{6}, 'repaired', 'an extent that seemed to have no checksums is repaired');
is_right($primary, $_, "value $_, about which the map was wrong, is right") foreach 1, 4, 6;
read_fails($primary, 5, 'damage is found again after a restart');
await_state($primary, $page, 'repaired', 'damage that was found again is repaired');
check_is_clean($primary, 'the check finds nothing after the repair of a checksum');
$primary->stop('immediate');
$primary->start;
check_is_clean($primary, 'repairs survive a crash');

# ---- a standby repairs nothing, and what it has found when it is promoted ----

$primary->wait_for_catchup($standby);
check_is_clean($standby, 'the standby has replayed the repairs');
$page = page_of(6, 20);
flip($standby, $page);
read_fails($standby, 6, 'a read of the standby fails');
$standby->append_conf('postgresql.conf', "blobext.heal_conninfo = '" . server($primary) . "'");
$standby->reload;
is(listed($standby, $page, 'state, attempts'), 'found|0', 'a standby lists its damage');
$standby->promote;
await_state($standby, $page, 'repaired', 'a promoted standby repairs what it has listed');
is_right($standby, 6, 'the value is right on the promoted standby');

$_->stop foreach $standby, $primary;
done_testing();
