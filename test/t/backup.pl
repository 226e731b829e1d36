# Backups and point-in-time recovery.
#
# While sessions store, append and delete, and the collector frees: pg_basebackup, plain and tar,
# with its WAL streamed, and a backup by hand with cp between pg_backup_start() and _stop().
# pg_verifybackup finds them whole; each, recovered, has every value, and blobext_check() finds
# nothing.  From the archive: to a restore point, to an xid, to a time, among them moments when space
# that has been given to another value since still held the old one; from a backup that was taken
# before a segment existed, to a moment before and after it was removed.
#
# Seen to fail: with CONTENT replayed as nothing.
use strict;
use warnings;

use File::Basename;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 62);

use constant SEGMENT => 262_144;	# pages
my $library = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init(allows_streaming => 1, has_archiving => 1);
$node->append_conf('postgresql.conf', q(
shared_preload_libraries = 'blobext'
fsync = on
shared_buffers = 32MB
max_connections = 40
autovacuum = off
max_wal_size = 256MB
blobext.autogc = off
log_statement = none
log_replication_commands = off
));
$node->start;
$node->safe_psql('postgres', qq(
CREATE EXTENSION blobext;
CREATE FUNCTION allocate(pages bigint) RETURNS bigint
	AS '$library', 'unit_store_allocate' LANGUAGE C STRICT;
));
make_traffic($node, 20_000);
make_values($node, 'kept', (map { int(rand(300_000)) } 1 .. 20), 5_000_000);

my $script = "$PostgreSQL::Test::Utils::tmp_check/traffic.sql";
append_to_file($script, "CALL traffic();\n");

sub collect
{
	$node->safe_psql('postgres', 'VACUUM');
	my ($freed, $reason) = split /\|/, $node->safe_psql('postgres',
		'SELECT freed_blobs, skipped_reason FROM blobext_gc()');
	$node->safe_psql('postgres', 'CHECKPOINT');
	return $freed;
}

# Run a function while other sessions store, append and delete, and the collector frees.
sub under_traffic
{
	my ($what, $name) = @_;
	my ($output, $collected) = ('', '');
	my $until = "$PostgreSQL::Test::Utils::tmp_check/until";
	my $collect = "$PostgreSQL::Test::Utils::tmp_check/collect.sql";
	append_to_file($collect, "VACUUM busy;\nSELECT * FROM blobext_gc();\nCHECKPOINT;\n")
	  unless -e $collect;
	my @at = ('-h', $node->host, '-p', $node->port, 'postgres');
	my $traffic = IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 8, '-f', $script, @at ],
		'>', \$output, '2>&1');
	my $collector = IPC::Run::start([ 'pgbench', '-n', '-c', 1, '-T', 8, '-f', $collect, @at ],
		'>', \$collected, '2>&1');
	sleep 1;
	$what->();
	$traffic->finish;
	$collector->finish;
	is($traffic->result(0), 0, "$name: sessions stored meanwhile") or diag($output);
	is($collector->result(0), 0, "$name: the collector worked") or diag($collected);
	return;
}

my $restored_no = 0;

# A server on a backup; options: target (lines of configuration) or none, until it is promoted.
sub restore
{
	my ($backup, $name, @target) = @_;
	my $restored = PostgreSQL::Test::Cluster->new('restored_' . $restored_no++);
	if (-d $node->backup_dir . "/$backup")
	{
		$restored->init_from_backup($node, $backup, has_restoring => 1, standby => 0);
	}
	$restored->append_conf('postgresql.conf', join('', map { "$_\n" } @target,
		"recovery_target_action = promote", 'archive_mode = off'));
	$restored->start;
	$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
	  or die "$name: recovery does not end";
	check_is_clean($restored, "$name: the check finds nothing");
	return $restored;
}

sub is_whole
{
	my ($restored, $name, @tables) = @_;
	values_are_intact($restored, $_, "$name: the values of table $_ are whole") foreach @tables;
	no_page_is_shared($restored, "$name: no page belongs to two values", @tables);
	make_values($restored, 'own', 2_000, 300_000, (50_000) x 20);
	$restored->safe_psql('postgres', q(UPDATE kept SET b = blob_append(b, 'own');
		UPDATE kept SET digest = encode(sha256(b::bytea), 'hex')));
	kill_everything($restored);
	$restored->start;
	values_are_intact($restored, $_, "$name: the values of table $_ are whole after new values and a crash") foreach @tables, 'own';
	no_page_is_shared($restored, "$name: no page belongs to two values after new values and a crash", @tables, 'own');
	check_is_clean($restored, "$name: the check finds nothing after new values and a crash");
	return;
}

sub done
{
	my ($restored) = @_;
	$restored->stop;
	unlike(slurp_file($restored->logfile), qr/PANIC|terminated by signal/, 'the restored server met no PANIC and no crash');
	$restored->clean_node;
	return;
}

# ---- backups under load ----

under_traffic(sub { $node->backup('plain') }, 'plain');
command_ok([ 'pg_verifybackup', $node->backup_dir . '/plain' ], 'plain: pg_verifybackup finds nothing wrong');

under_traffic(
	sub {
		$node->command_ok([ 'pg_basebackup', '-F', 'tar', '-X', 'stream', '-c', 'fast', '--no-sync',
			'-D', $node->backup_dir . '/tar' ], 'pg_basebackup makes a backup of tar files');
	}, 'tar');
my $unpacked = $node->backup_dir . '/untar';
mkdir $unpacked, 0700 or die $!;
system_or_bail('tar', '-C', $unpacked, '-xf', $node->backup_dir . '/tar/base.tar');
system_or_bail('tar', '-C', "$unpacked/pg_wal", '-xf', $node->backup_dir . '/tar/pg_wal.tar');
system_or_bail('cp', $node->backup_dir . '/tar/backup_manifest', $unpacked);
command_ok([ 'pg_verifybackup', $unpacked ], 'tar: pg_verifybackup finds nothing wrong');

under_traffic(
	sub {
		my $copy = $node->backup_dir . '/by_hand';
		my $session = $node->background_psql('postgres', on_error_stop => 1);
		mkdir $copy, 0700 or die $!;
		$session->query_safe('SET client_min_messages = warning');
		$session->query_safe(q(SELECT pg_backup_start('by hand', true)));
		# Files may vanish and grow meanwhile, so cp may report errors.
		foreach my $path (sort { $b cmp $a } glob $node->data_dir . '/*')
		{
			next if basename($path) =~ /^(postmaster\.(pid|opts)|pg_wal)$/;
			run_log([ 'cp', '-R', $path, $copy ]);
		}
		mkdir "$copy/pg_wal", 0700 or die $!;
		mkdir "$copy/pg_wal/archive_status", 0700 or die $!;
		my $label = $session->query_safe(q(SELECT translate(encode(convert_to(labelfile, 'UTF8'),
			'base64'), E'\n', '') FROM pg_backup_stop(true)));
		$session->quit;
		append_to_file("$copy/backup_label", $node->safe_psql('postgres',
			"SELECT convert_from(decode('$label', 'base64'), 'UTF8')") . "\n");
	}, 'by hand');

# All of them to the end of the archive.
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
foreach my $backup ('plain', 'untar', 'by_hand')
{
	my $restored = restore($backup, $backup);
	is($restored->safe_psql('postgres', 'SELECT id, digest FROM busy ORDER BY id'),
		$node->safe_psql('postgres', 'SELECT id, digest FROM busy ORDER BY id'),
		"$backup: all rows are there that the archive has");
	is_whole($restored, $backup, 'kept', 'busy');
	done($restored);
}

# ---- moments of the past ----

# A value, deleted, freed, its pages given to others.
$node->safe_psql('postgres', 'TRUNCATE busy');
collect();
collect();
make_values($node, 'early', (300_000) x 5);
my $early = $node->safe_psql('postgres', 'SELECT min(first_page), max(first_page + pages)
	FROM early, blob_extents(b)');
$node->safe_psql('postgres', q(SELECT pg_create_restore_point('with early')));
sleep 1;
my $time = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
sleep 1;
my $xid = $node->safe_psql('postgres', q(WITH d AS (DELETE FROM early RETURNING 1)
	SELECT pg_current_xact_id() FROM d LIMIT 1));
cmp_ok(collect(), '>=', 5, 'early values are freed');
$node->safe_psql('postgres', q(SELECT pg_create_restore_point('freed')));
my ($first, $end) = split /\|/, $early;
my ($late, $reused) = (0, 0);
while ($reused == 0 && $late < 2_000)
{
	make_values($node, 'late', (280_000) x 20);
	$late += 20;
	$reused = $node->safe_psql('postgres', "SELECT count(*) FROM late, blob_extents(b)
		WHERE first_page < $end AND first_page + pages > $first");
}
cmp_ok($reused, '>', 0, "late values ($late) have pages of early ones");
$node->safe_psql('postgres', q(SELECT pg_create_restore_point('with late')));

# A segment that the backup does not have; then it is removed.
$node->safe_psql('postgres', 'SELECT allocate(' . 2 * SEGMENT . ')');
make_values($node, 'behind', 400_000, 30_000);
$node->safe_psql('postgres', q(SELECT pg_create_restore_point('with segment')));
ok(-s segment_file($node, 1), 'there is a new segment');
collect();
ok(!-e segment_file($node, 1), 'the collector removes the new segment');
$node->safe_psql('postgres', q(SELECT pg_create_restore_point('without segment')));
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');

my @moments = (
	[ 'a restore point, old value in reused space', "recovery_target_name = 'with early'",
		'early', 5 ],
	[ 'a time, the same', "recovery_target_time = '$time'", 'early', 5 ],
	[ 'an xid, the value is deleted', "recovery_target_xid = '$xid'", 'early', 0 ],
	[ 'just before an xid', "recovery_target_xid = '$xid'\nrecovery_target_inclusive = off",
		'early', 5 ],
	[ 'freed', "recovery_target_name = 'freed'", 'early', 0 ],
	[ 'reused', "recovery_target_name = 'with late'", 'late', $late ],
	[ 'a segment that the backup has not', "recovery_target_name = 'with segment'", 'behind', 2 ],
	[ 'a segment that the backup has not, and that was removed', "recovery_target_name = 'without segment'", 'behind', 2 ]);
foreach my $moment (@moments)
{
	my ($name, $target, $table, $count) = @$moment;
	my $restored = restore('plain', $name, $target);
	is($restored->safe_psql('postgres', "SELECT count(*) FROM $table"), $count, "$name: table $table has the rows of that moment");
	ok($name =~ /removed/ ? !-e segment_file($restored, 1) : -e segment_file($restored, 1),
		"$name: the segment's file is there unless it was removed")
	  if $table eq 'behind';
	values_are_intact($restored, $_, "$name: the values of table $_ are those of that moment") foreach 'kept', $table;
	is_whole($restored, $name, 'kept', $table) if $name =~ /reused/;
	done($restored);
}
$node->stop;

done_testing();
