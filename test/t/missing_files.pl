# Segment files that are away when a process needs them, and come back: nothing is lost.  A running
# server that misses files is tested in deferred.pl, a crashed one in faults.pl.  Here:
#
#	- a crashed server whose WAL has nothing but a reservation at the start of a file: it was
#	  durable, so neither the file nor the directory is made anew,
#	- a standby that lacks a file: no restartpoint passes content that replay left out,
#	- the same on a standby that is consistent,
#	- a file that is being copied to its place while the syncer waits for it,
#	- a start after a clean shutdown without some files: the log says so.
#
# Seen to fail: with is_own false in replay_reservation() and without the look for the directory,
# the first and the third; without hold_restartpoints(), the second; without
# blob_invalid_segments_check() in redo(), the third; without the look at the size in write_run(),
# the next; without the call of blob_autogc_check_files(), the last.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

my $library = "$ENV{BLOBEXT_UNIT_DIR}/blobext_unit";
my $conf = "autovacuum = off\ncheckpoint_timeout = 1h\nwal_level = replica\nmax_wal_senders = 0\n";

sub wait_for_log
{
	my ($node, $pattern, $offset) = @_;
	for (1 .. 300)
	{
		last if $node->log_contains($pattern, $offset);
		usleep(100_000);
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->log_contains($pattern, $offset), "the log has a line like $pattern");
}

# Stop a syncer that has not opened any file yet, while the last value of t is deferred.
sub stop_new_syncer
{
	my ($node) = @_;
	$node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
		WHERE backend_type = 'blobext syncer'));
	return stop_syncer($node, 'deferred_pages', sub { add_values($node, 't', 5_000) });
}

# ---- a reservation ----

{
	my $node = blob_cluster('reservation', conf => $conf);
	$node->safe_psql('postgres', qq(CREATE FUNCTION allocate(pages bigint) RETURNS bigint
		AS '$library', 'unit_store_allocate' LANGUAGE C STRICT));
	is($node->safe_psql('postgres', 'SELECT allocate(262144)'), '0', 'an allocation reserves a whole segment');
	$node->safe_psql('postgres', 'CHECKPOINT');
	make_values($node, 't', 5_000);
	stop_new_syncer($node);
	kill_everything($node);
	my $directory = store_dir($node);
	foreach my $path ($directory, segment_file($node, 1))
	{
		rename($path, "$directory.away") or die $!;
		ok(!$node->start(fail_ok => 1), 'the server does not start');
		ok(!-e $path, 'a server that does not start makes nothing anew');
		rename("$directory.away", $path) or die $!;
	}
	$node->start;
	values_are_intact($node, 't', 'all is back: nothing is lost');
	check_is_clean($node, 'the check finds nothing');
	$node->stop;
	$node->clean_node;
}

# ---- a standby ----

{
	my $primary = blob_cluster('primary', streaming => 1,
		conf => "autovacuum = off\nblobext.background_sync = off\n");
	make_values($primary, 't', 5_000, 50_000);
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$primary->backup('base');

	# Content between the redo pointer of the backup and its end.
	my $session = $primary->background_psql('postgres', on_error_stop => 1);
	$session->query_safe(q(SELECT pg_backup_start('by hand', true)));
	add_values($primary, 't', 20_000);
	my $label = $session->query_safe('SELECT labelfile FROM pg_backup_stop(false)');
	$session->quit;
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	append_to_file($standby->data_dir . '/new_label', "$label\n");
	rename($standby->data_dir . '/new_label', $standby->data_dir . '/backup_label') or die $!;

	my $segment = segment_file($standby);
	rename($segment, "$segment.away") or die $!;
	ok(!$standby->start(fail_ok => 1), 'standby: it does not start');
	ok($standby->log_contains(qr/LOG:  blob segment file ".*" is missing or too short/),
		'standby: the file is named');
	ok($standby->log_contains(qr/PANIC:  WAL contains references to invalid pages/),
		'standby: the start ends with a PANIC about invalid pages');
	ok(!-e $standby->data_dir . '/global/1', 'standby: the failed start leaves no file');
	unlink $standby->data_dir . '/postmaster.pid';
	$primary->safe_psql('postgres', 'CHECKPOINT');
	ok(!$standby->start(fail_ok => 1), 'standby: it does not start after a checkpoint of the primary either');
	unlink $standby->data_dir . '/postmaster.pid';
	rename("$segment.away", $segment) or die $!;
	$standby->start;
	$primary->wait_for_catchup($standby);
	values_are_intact($standby, 't', 'standby: the file is back, nothing is lost');
	check_is_clean($standby, 'standby: the check finds nothing');

	# A consistent one stops at once: at content, and at a reservation without the directory.
	$primary->safe_psql('postgres', qq(CREATE FUNCTION allocate(pages bigint) RETURNS bigint
		AS '$library', 'unit_store_allocate' LANGUAGE C STRICT));
	$primary->safe_psql('postgres', 'SELECT allocate(262144)');
	$primary->wait_for_catchup($standby);
	$segment = segment_file($standby, 1);	# content of later stores goes there
	my $directory = store_dir($standby);
	foreach my $path ($segment, $directory)
	{
		my $offset = -s $standby->logfile;
		rename($path, "$directory.away") or die $!;
		add_values($primary, 't', 30_000) if $path eq $segment;
		$primary->safe_psql('postgres', 'SELECT allocate(262144)') if $path eq $directory;
		wait_for_log($standby, qr/FATAL:  replay has not found all blob segment files/, $offset);
		$standby->stop('immediate', fail_ok => 1);
		unlink $standby->data_dir . '/postmaster.pid';
		$standby->{_pid} = undef;
		ok(!-e $path, 'consistent standby: nothing is made anew');
		rename("$directory.away", $path) or die $!;
		$standby->start;
		$primary->wait_for_catchup($standby);
		values_are_intact($standby, 't', 'consistent standby: nothing is lost');
	}
	$standby->promote;
	values_are_intact($standby, 't', 'consistent standby: nor after promotion');
	check_is_clean($standby, 'consistent standby: the check finds nothing');
	$_->stop foreach ($standby, $primary);
	$_->clean_node foreach ($standby, $primary);
}

# ---- cp ----

{
	my $node = blob_cluster('copy', conf => $conf);
	make_values($node, 't', 5_000);
	my $syncer = stop_new_syncer($node);
	my $file = segment_file($node);
	my $offset = -s $node->logfile;
	rename($file, "$file.away") or die $!;
	kill('CONT', $syncer);
	wait_for_log($node, qr/WARNING:  blob segment file ".*" is missing/, $offset);
	append_to_file($file, 'x' x 4096);	# cp has begun
	usleep(1_000_000);
	cmp_ok(stat_of($node, 'pending_deferred_pages'), '>', 0, 'a file that is too short is not written to');
	system_or_bail('dd', 'status=none', 'conv=notrunc', 'bs=1M', "if=$file.away", "of=$file");
	unlink "$file.away";
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->restart;
	values_are_intact($node, 't', 'copied back: nothing is lost');
	check_is_clean($node, 'the check finds nothing');
	$node->stop;
	$node->clean_node;
}

# ---- a start without files ----

{
	my $node = blob_cluster('start', conf => "blobext.autogc_naptime = 1s\n");
	ok($node->log_contains(qr/LOG:  blobext has made the directory "pg_blobext"/),
		'start: a directory that is made is in the log');
	$node->safe_psql('postgres', qq(CREATE FUNCTION allocate(pages bigint) RETURNS bigint
		AS '$library', 'unit_store_allocate' LANGUAGE C STRICT));
	make_values($node, 't', 5_000);
	$node->safe_psql('postgres', 'SELECT allocate(262144)');
	ok(-s segment_file($node, 1), 'start: the second segment is in use');
	my $warning = qr/WARNING:  blob segment files of database "postgres" are missing or too short/;
	my $offset = -s $node->logfile;
	$node->restart;
	# The entry of pg_stat_activity goes when the worker has ended.
	$node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity
		WHERE backend_type = 'blobext collector')) or die;
	usleep(3_000_000);
	ok(!$node->log_contains($warning, $offset), 'start: no warning where all files are there');

	my @files = map { segment_file($node, $_) } (0, 1);
	$node->stop;
	rename($files[1], "$files[1].away") or die $!;
	$offset = -s $node->logfile;
	$node->start;
	wait_for_log($node, qr/$warning: 1 of [23]\n.*DETAIL:  The first one is "pg_blobext\/.*00000001"/,
		$offset);
	values_are_intact($node, 't', 'start: other values can be read');
	$node->stop;
	rename("$files[1].away", $files[1]) or die $!;
	truncate($files[0], 4096) or die $!;
	$offset = -s $node->logfile;
	$node->start;
	wait_for_log($node, qr/$warning: 1 of [23]\n.*DETAIL:  The first one is "pg_blobext\/.*00000000"/,
		$offset);
	my $warnings = () = slurp_file($node->logfile, $offset) =~ /$warning/g;
	is($warnings, 1, 'a start names all missing files in one warning');
	$node->stop;
	$node->clean_node;
}

done_testing();
