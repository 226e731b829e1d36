# Servers that do not log content, and the standbys, backups and copies made of them.
#
# With blobext.wal_content = off a standby, a restored backup or a rewound server has the rows and
# the extent map, but not the content.  Reading it must be an error of its own (XB002), at any time:
# after a restart, a kill, a promotion; never zeros, never bytes of an earlier value.  The server
# that stored the content must read it, also after each of these.  And wal_level minimal, from which
# no standby or backup can be made, is safe to enter and to leave.
#
# Seen to fail: with replay_omitted() empty, standbys return zeros; with blob_replay_is_foreign()
# always true, the primary refuses its own content after a crash; with it false unless
# InArchiveRecovery, backups and standbys without a signal file return zeros; with the flag file
# never removed, they refuse their own content after a crash; with generations of claimed extents
# left out, appended content reads as zeros.
use strict;
use warnings;

use File::Basename;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 6);

# Rows of the table whose content can be read, and is right; whose content is refused; all others.
sub readable
{
	my ($node, $table) = @_;
	return $node->safe_psql('postgres', qq(
DO \$\$
DECLARE
	good int := 0; refused int := 0; wrong int := 0;
	r record;
BEGIN
	FOR r IN SELECT * FROM $table LOOP
		BEGIN
			IF encode(sha256(r.b::bytea), 'hex') = r.digest THEN
				good := good + 1;
			ELSE
				wrong := wrong + 1;
			END IF;
		EXCEPTION WHEN SQLSTATE 'XB002' THEN
			refused := refused + 1;
		END;
	END LOOP;
	PERFORM set_config('test.result', format('good %s, refused %s, wrong %s',
		good, refused, wrong), false);
END \$\$;
SELECT current_setting('test.result')));
}

sub reads
{
	my ($node, $table, $good, $refused, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(readable($node, $table), "good $good, refused $refused, wrong 0", $name);
}

sub standby_of
{
	my ($primary, $name, $backup) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, $backup, has_streaming => 1);
	$standby->start;
	return $standby;
}

sub restart_with
{
	my ($node, $conf) = @_;
	$node->append_conf('postgresql.conf', $conf);
	$node->restart;
	return;
}

# Copy a data directory, but for the files that differ between servers; content first.
sub copy_files
{
	my ($from, $to, $between) = @_;
	mkdir $to, 0700 or die $!;
	system_or_bail('cp', '-R', "$from/pg_blobext", $to);
	$between->();
	foreach my $path (glob "$from/*")
	{
		next if basename($path) =~ /^(pg_blobext|postmaster\.(pid|opts)|pg_wal)$/;
		system_or_bail('cp', '-R', $path, $to);
	}
	return;
}

my $off = "blobext.wal_content = off\n";

# ---- a standby of a server that does not log content ----

my $primary = blob_cluster('primary', streaming => 1,
	conf => "$off\nmax_connections = 20\n");
make_values($primary, 'old', 5_000, 70_000, 300_000);
# Values with room in their last extent.
$primary->safe_psql('postgres', q(CREATE TABLE room AS
	SELECT id, blob_append(blob_append(b, 'x'), decode(repeat(md5(id::text), 800), 'hex')) AS b
	FROM old WHERE length(b) < 100000; ALTER TABLE room ADD digest text));
my $extents = q(SELECT id, array_agg(first_page ORDER BY extent_no) FROM room, blob_extents(b)
	WHERE pages > 1 GROUP BY id ORDER BY id);
my $extents_before = $primary->safe_psql('postgres', $extents);
$primary->backup('base');
my $standby = standby_of($primary, 'standby', 'base');
like(slurp_file($primary->logfile),
	qr/WARNING:  blobext does not write content to the WAL, although wal_level is "replica"/,
	'the primary warns when it starts');
like(slurp_file($primary->logfile),
	qr/WARNING:  a copy of this server is made without the content of blobext/,
	'the primary warns when a copy is made');

make_values($primary, 'new', 1_901, 5_000, 70_000, 300_000, 3_000_000);
$primary->safe_psql('postgres', qq(
	UPDATE room SET b = blob_append(b, decode(repeat(md5('more'), 600), 'hex'));
	UPDATE room SET digest = encode(sha256(b), 'hex');
	CREATE TABLE grown AS SELECT id, b FROM old;
	ALTER TABLE grown ADD digest text;
	UPDATE grown SET b = blob_append(b, convert_to(repeat('abcdefgh', 5000), 'UTF8'));
	UPDATE grown SET b = blob_append(b, convert_to(repeat('ijklmnop', 5000), 'UTF8'));
	UPDATE grown SET digest = encode(sha256(b), 'hex');
	CREATE TABLE edited AS SELECT id, blob_write(b, 3000, 'xyz') AS b FROM old;
	ALTER TABLE edited ADD digest text;
	UPDATE edited SET digest = encode(sha256(b), 'hex')));
$primary->safe_psql('postgres', q(CREATE TABLE same AS
		SELECT convert_to(repeat('same', 5000), 'UTF8')::blobstate AS b;
	CREATE UNIQUE INDEX ON same (b); ANALYZE same));
is($primary->safe_psql('postgres', $extents), $extents_before,
	'values have grown into extents that the backup has');
$primary->wait_for_catchup($standby);
reads($primary, $_, $primary->safe_psql('postgres', "SELECT count(*) FROM $_"), 0,
	"primary: all values of table $_ can be read") foreach ('old', 'new', 'room', 'grown',
	'edited');
is(stat_of($primary, 'unlogged_extents'), '0', 'primary: nothing is missing');

sub standby_refuses
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return subtest $name => sub {
		reads($standby, 'old', 3, 0, 'what the backup has');
		reads($standby, 'new', 0, 5, 'what was stored since the backup cannot be read');
		reads($standby, 'room', 0, 2, 'what has grown into an extent that the standby has cannot be read');
		reads($standby, 'grown', 0, 3, 'what has grown since the backup cannot be read');
		reads($standby, 'edited', 0, 3, 'what was changed since the backup cannot be read');
	};
}

standby_refuses('the standby refuses content that the WAL had not');
is($standby->safe_psql('postgres', 'SELECT bool_and(encode(sha256(b), \'hex\') = digest
	AND length(b) > 0 AND length(blob_prefix(b)) = 32) FROM new'), 't',
	'standby: what the descriptor has can be read');
# A look-up that comes to such a value decides by digest.  Seen to fail where it asked for the value's
# content in the buffer, and so whether that is missing.
is($standby->safe_psql('postgres', q(SET enable_seqscan = off;
	SELECT count(*) FROM same WHERE b = convert_to(repeat('same', 5000), 'UTF8')::blobstate)), '1',
	'a look-up by content finds a value whose content is missing');
$primary->safe_psql('postgres', 'DROP TABLE same');
$primary->wait_for_catchup($standby);
fails_with($standby, 'SELECT blob_read(b, 100000, 10) FROM new WHERE length(b) = 300000', 'XB002',
	qr/content of a blobstate value is missing on this server.*stored by a server that did not/s,
	'standby: a range of missing content is refused');
# Without the last bytes, which are in a page of their own.
fails_with($standby, 'SELECT blob_read(b, length(b) - 12000, 4000) FROM room', 'XB002', qr/missing/,
	'standby: a range that has grown into an extent is refused');
fails_with($standby, 'SELECT n.b < o.b FROM new n, old o, LATERAL (SELECT n.b) x
	WHERE length(n.b) = 300000 AND length(o.b) = 300000 AND blob_prefix(n.b) < blob_prefix(o.b)
	UNION ALL SELECT substr(b, 50000, 1) IS NULL FROM new WHERE length(b) = 300000', 'XB002',
	qr/missing/, 'standby: an expression over missing content is refused');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM blobext_check()'), '13',
	'standby: the check finds all of them');
cmp_ok(stat_of($standby, 'unlogged_extents'), '>=', 13, 'standby: blobext_stat says so');

# Space that held another value on the standby: freed, and given out again.
$primary->safe_psql('postgres', 'CREATE TABLE t AS SELECT * FROM old WHERE false');
add_values($primary, 't', 400_000);
$primary->safe_psql('postgres', 'DROP TABLE t');
$primary->safe_psql('postgres', 'SELECT * FROM blobext_gc()');
$primary->safe_psql('postgres', 'CHECKPOINT');
make_values($primary, 'again', 400_000);
$primary->wait_for_catchup($standby);
reads($standby, 'again', 0, 1, 'standby: a value in space that was used again is refused');

# Restartpoints, kills.
foreach my $round (1 .. 3)
{
	$primary->safe_psql('postgres', 'CHECKPOINT') if $round > 1;
	$primary->safe_psql('postgres', 'CREATE TABLE IF NOT EXISTS more (LIKE new)');
	add_values($primary, 'again', (20_000) x 5);
	$primary->wait_for_catchup($standby);
	$standby->safe_psql('postgres', 'CHECKPOINT') if $round > 1;
	kill_everything($standby);
	kill_in_recovery($standby, 0.2) if $round > 2;
	$standby->start;
	$primary->wait_for_catchup($standby);
	standby_refuses("the standby refuses the same content after kill $round");
	reads($standby, 'again', 0, 1 + 5 * $round, "standby, killed $round: values in space that was used again are refused");
}

# The primary crashes: all that it stored is its own.
add_values($primary, 'again', (20_000) x 5);
kill_everything($primary);
$primary->start;
reads($primary, 'new', 5, 0, 'primary, crashed: all new values can be read');
reads($primary, 'again', 21, 0, 'primary, crashed: values in space that was used again can be read');
is(stat_of($primary, 'unlogged_extents'), '0', 'primary, crashed: nothing is missing');
$primary->wait_for_catchup($standby);

# Many at a time: generations come out of order.
$primary->safe_psql('postgres', 'CREATE TABLE crowd (id serial, digest text, b blobstate)');
my $file = $primary->basedir . '/crowd.sql';
append_to_file($file, q(
\set n random(2000, 60000)
INSERT INTO crowd (digest, b) SELECT encode(sha256(c), 'hex'), c
FROM convert_to(repeat(md5(:client_id || ' ' || :n), :n / 32), 'UTF8') AS c;
));
$primary->command_ok([ 'pgbench', '-n', '-c', '6', '-t', '50', '-f', $file, 'postgres' ],
	'six clients store values beside each other');
$primary->wait_for_catchup($standby);
reads($primary, 'crowd', 300, 0, 'primary: the values of the six clients can be read');
reads($standby, 'crowd', 0, 300, 'standby: the values of the six clients are refused');
reads($standby, 'old', 3, 0, 'standby: what the backup has can be read');

# A copy of the copy lacks the same.
$standby->backup('second');
my $cascade = standby_of($standby, 'cascade', 'second');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('write'));
$standby->wait_for_catchup($cascade, 'replay', $standby->lsn('replay'));
reads($cascade, 'old', 3, 0, 'cascading standby: what the backup has');
reads($cascade, 'new', 0, 5, 'cascading standby: what was stored since');
reads($cascade, 'crowd', 0, 300, 'cascading standby: the crowd');
$cascade->stop;

# Content is logged again: later content is right on the standby.
restart_with($primary, "blobext.wal_content = auto\n");
make_values($primary, 'logged', 2_000, 300_000);
$primary->safe_psql('postgres', q(INSERT INTO logged (digest, b)
	SELECT NULL, blob_append(b, convert_to(repeat('q', 100000), 'UTF8')) FROM new
	WHERE length(b) = 300000));
$primary->safe_psql('postgres', q(UPDATE logged SET digest = encode(sha256(b), 'hex')));
$primary->wait_for_catchup($standby);
reads($primary, 'logged', 3, 0, 'logged again: the primary reads all values');
reads($standby, 'logged', 2, 1, 'logged again: the standby refuses what contains unlogged content');
$primary->backup('whole');
my $whole = standby_of($primary, 'whole', 'whole');
reads($whole, $_, $primary->safe_psql('postgres', "SELECT count(*) FROM $_"), 0,
	"logged again: a new standby has $_") foreach ('old', 'new', 'grown', 'edited', 'again',
	'crowd', 'logged');
is(stat_of($whole, 'unlogged_extents'), '0', 'logged again: a new standby misses nothing');
check_is_clean($whole, 'logged again: the check of a new standby finds nothing');
$whole->stop;

# ---- promotion ----

restart_with($primary, $off);
add_values($primary, 'again', (20_000) x 5);
$primary->wait_for_catchup($standby);
kill_everything($primary);
restart_with($standby, "${off}checkpoint_timeout = 1h\n");
my $offset = -s $standby->logfile;
$standby->promote;
make_values($standby, 'own', 5_000, 300_000, (20_000) x 20);
kill_everything($standby);		# before or after the first checkpoint: see the control file
$standby->start;
reads($standby, 'own', 22, 0, 'promoted, crashed: its own content is there');
standby_refuses('promoted, crashed: it refuses content that it has never had');
reads($standby, 'again', 0, 26, 'promoted, crashed: values in space that was used again are refused');
$standby->safe_psql('postgres', 'CHECKPOINT');
kill_everything($standby);
$standby->start;
reads($standby, 'own', 22, 0, 'promoted, crashed twice: its own content is there');
standby_refuses('promoted, crashed twice: it refuses content that it has never had');
# Values whose content is not there can be deleted and collected.
$standby->safe_psql('postgres', 'DROP TABLE new, room, grown, edited, again, crowd, logged');
is($standby->safe_psql('postgres', 'SELECT skipped_reason FROM blobext_gc()'), '',
	'promoted: what is missing is collected');
check_is_clean($standby, 'promoted: then the check finds nothing');
$standby->stop;
$standby->clean_node;
$cascade->clean_node;
$whole->clean_node;

# ---- copies without a signal file ----

$primary->start;
my $copy = PostgreSQL::Test::Cluster->new('copy');
my $session = $primary->background_psql('postgres', on_error_stop => 1);
$session->query_safe(q(SELECT pg_backup_start('by hand', true)));
copy_files($primary->data_dir, $copy->data_dir,
	sub { make_values($primary, 'late', 5_000, 300_000, (20_000) x 20) });
my $label = $session->query_safe(
	q(SELECT translate(encode(convert_to(labelfile, 'UTF8'), 'base64'), E'\n', '')
	FROM pg_backup_stop(false)));
$session->quit;
system_or_bail('cp', '-R', $primary->data_dir . '/pg_wal', $copy->data_dir);
append_to_file($copy->data_dir . '/backup_label',
	$primary->safe_psql('postgres', "SELECT convert_from(decode('$label', 'base64'), 'UTF8')")
	  . "\n");
chmod 0600, $copy->data_dir . '/backup_label';
$copy->append_conf('postgresql.conf', 'port = ' . $copy->port . "\n");
append_to_file($copy->logfile, '');
kill_in_recovery($copy, 0.05);
unlink $copy->data_dir . '/postmaster.pid';
$copy->start;
reads($copy, 'late', 0, 22, 'backup without a signal file: what was stored during it');
reads($copy, 'old', 3, 0, 'backup without a signal file: what it has');
make_values($copy, 'own', 5_000, 300_000);
kill_everything($copy);
$copy->start;
reads($copy, 'own', 2, 0, 'the same, crashed: its own content');
reads($copy, 'late', 0, 22, 'the same, crashed: what was stored during the backup');
ok(!-e $copy->data_dir . '/pg_blobext/recovering_copy', 'the flag is gone');
$copy->stop;
$copy->clean_node;

# A standby is killed, and started without its signal file.
$primary->backup('third');
$standby = PostgreSQL::Test::Cluster->new('unsignalled');
$standby->init_from_backup($primary, 'third', has_streaming => 1);
$standby->append_conf('postgresql.conf', "recovery_min_apply_delay = 1h\n");
$standby->start;
make_values($primary, 'unsignalled', 5_000, (20_000) x 20);
$primary->wait_for_catchup($standby, 'flush', $primary->lsn('write'));
is($standby->safe_psql('postgres', q(SELECT to_regclass('unsignalled'))), '',
	'standby that lags behind');
kill_everything($standby);
unlink $standby->data_dir . '/standby.signal';
kill_in_recovery($standby, 0.05);
unlink $standby->data_dir . '/postmaster.pid';
$standby->start;
reads($standby, 'unsignalled', 0, 21, 'standby without its signal file');
reads($standby, 'old', 3, 0, 'standby without its signal file: what it has');
make_values($standby, 'own', 5_000, 300_000);
kill_everything($standby);
$standby->start;
reads($standby, 'own', 2, 0, 'the same, crashed: its own content');
$standby->stop;
$standby->clean_node;
$primary->stop;
$primary->clean_node;

# ---- wal_level minimal, and back ----

my $minimal = "wal_level = minimal\nmax_wal_senders = 0\narchive_mode = off\n";
my $replica = "wal_level = replica\nmax_wal_senders = 5\n";
my $node = blob_cluster('levels', streaming => 1, conf => $minimal);
my @levels = ('minimal', 'replica', 'minimal_again', 'replica_again');
$node->safe_psql('postgres', "CREATE TABLE levels (id serial, digest text, b blobstate)");
add_values($node, 'levels', 5_000, 300_000);
$node->command_fails_like([ 'pg_basebackup', '-D', $node->basedir . '/none' ],
	qr/max_wal_senders|number of requested standby/, 'minimal: pg_basebackup is refused by the server');
fails_with($node, q(SELECT pg_backup_start('x')), '55000', qr/WAL level not sufficient/,
	'minimal: a backup by hand is refused by the server');
is(stat_of($node, 'wal_logs_content'), '0', 'minimal: blobext_stat says that content is not logged');
kill_everything($node);
$node->append_conf('postgresql.conf', $replica);
$node->start;
reads($node, 'levels', 2, 0, 'minimal, crashed, replica: the values can be read');
is(stat_of($node, 'wal_logs_content'), '1', 'replica: blobext_stat says that content is logged');
add_values($node, 'levels', 5_000, 300_000);
$node->backup('replica');
$standby = standby_of($node, 'levels_standby', 'replica');
add_values($node, 'levels', 5_000, 300_000);
$node->wait_for_catchup($standby);
reads($standby, 'levels', 6, 0, 'replica: a standby has what was stored in both modes');
is(stat_of($standby, 'unlogged_extents'), '0', 'replica: a standby misses nothing');
restart_with($node, $minimal);
add_values($node, 'levels', 5_000, 300_000);
kill_everything($node);
$node->start;
reads($node, 'levels', 8, 0, 'minimal again, crashed: the values can be read');
restart_with($node, $replica);
add_values($node, 'levels', 5_000, 300_000);
reads($node, 'levels', 10, 0, 'replica again: the values of all modes can be read');
for (1 .. 300)
{
	last if $standby->log_contains('WAL was generated with "?wal_level=minimal');
	select undef, undef, undef, 0.1;
}
ok($standby->log_contains('WAL was generated with "?wal_level=minimal'),
	'a standby does not get past wal_level minimal');
$standby->stop('fast', fail_ok => 1);
$node->backup('replica_again');
my $anew = standby_of($node, 'levels_anew', 'replica_again');
reads($anew, 'levels', 10, 0, 'replica again: a new standby has all of it');
check_is_clean($anew, 'replica again: its check finds nothing');
$anew->stop;
$node->stop;

done_testing();
