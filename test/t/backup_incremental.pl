# Backups in increments (PostgreSQL 17 and later), and PostgreSQL's tools that check files.
#
# While sessions store and delete values, the collector frees and reuses space: a full backup, and
# two increments on it.  pg_verifybackup finds each of them whole; pg_combinebackup puts them
# together, pg_verifybackup agrees; the server started on the result has every value of its moment,
# blobext_check() finds nothing, and it stores, collects and checks on.  The same for the backup of
# the middle.  Segment files are not relation files: each increment has them whole, which is
# measured; the extent map is one, and goes in blocks.  Checksums of pages are on, and pg_checksums
# finds no error; before 17 that and pg_verifybackup of the full backup is all.
#
# That it can fail: a byte changed in a segment file of a backup fails pg_verifybackup; one changed
# before the manifest was made would be found by blobext_check(), which the end shows.
use strict;
use warnings;

use File::Find;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

expect_damage();

srand($ENV{BLOBEXT_SEED} // 17);

my $node = blob_cluster(
	'primary',
	streaming => 1,
	init => ['--data-checksums'],
	conf => "max_wal_size = 256MB\nblobext.wal_content = on\n");
my ($major) = $node->safe_psql('postgres', 'SHOW server_version_num') =~ /^(\d+)\d{4}$/;
my $has_increments = $major >= 17;

if ($has_increments)
{
	$node->append_conf('postgresql.conf', "summarize_wal = on\n");
	$node->restart;
}

sub bytes_below
{
	my ($directory) = @_;
	my $bytes = 0;
	find(sub { $bytes += -s $_ if -f $_ }, $directory);
	return $bytes;
}

# Start sessions that store and delete until they are stopped.
sub start_traffic
{
	my ($seconds) = @_;
	my $script = "$PostgreSQL::Test::Utils::tmp_check/traffic.sql";

	open(my $file, '>', $script) or die "cannot write $script: $!";
	print $file q{
\set size random(1, 4000)
INSERT INTO busy (digest, b) SELECT encode(sha256(x), 'hex'), x::blobstate FROM (SELECT
	decode(repeat(md5(random()::text), :size), 'hex')) AS s (x);
DELETE FROM busy WHERE id IN (SELECT id FROM busy ORDER BY random() LIMIT 1)
	AND random() < 0.6;
};
	close $file;
	my $output = '';
	my $run = IPC::Run::start(
		[
			'pgbench', '-n', '-c', 2, '-T', $seconds, '-f', $script,
			'-h', $node->host, '-p', $node->port, 'postgres'
		],
		'>', \$output, '2>&1');
	return { run => $run, output => \$output };
}

sub finish_traffic
{
	my ($traffic, $name) = @_;
	$traffic->{run}->finish;
	is($traffic->{run}->result(0), 0, $name) or diag(${ $traffic->{output} });
	return;
}

# Take a backup while other sessions store; an increment of the backup that is named, if any.
sub backup
{
	my ($name, $before) = @_;
	my @options = ('--checkpoint=fast');

	push @options, '--incremental=' . $node->backup_dir . "/$before/backup_manifest"
	  if defined $before;
	my $traffic = start_traffic(6);
	$node->backup($name, backup_options => \@options);
	finish_traffic($traffic, "$name: sessions stored meanwhile");
	command_ok([ 'pg_verifybackup', $node->backup_dir . "/$name" ], "$name: pg_verifybackup finds nothing wrong");
	return;
}

# Start a server on these backups; every value of theirs must be there.
sub restore
{
	my ($backups, %tables) = @_;
	my @prior = @$backups;
	my $last = pop @prior;
	my $restored = PostgreSQL::Test::Cluster->new("of_$last");
	my @combine = @prior ? (combine_with_prior => \@prior) : ();
	push @combine, combine_mode => '--copy-file-range' if @prior > 1;

	$restored->init_from_backup($node, $last, @combine);
	command_ok([ 'pg_verifybackup', '-n', $restored->data_dir, '-i', 'postgresql.conf' ],
		"$last: pg_verifybackup of what was put together")
	  if @prior;
	$restored->start;
	foreach my $table (sort keys %tables)
	{
		is($restored->safe_psql('postgres', "SELECT count(*) FROM $table"),
			$tables{$table}, "$last: rows of $table");
		values_are_intact($restored, $table, "$last: contents of $table");
	}
	values_are_intact($restored, 'busy', "$last: contents of busy");
	check_is_clean($restored, "$last: the check finds nothing");
	no_page_is_shared($restored, "$last: no page is in two extents", 'busy', sort keys %tables);
	return $restored;
}

sub count_of
{
	my ($table) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM $table");
}

# Free the content of deleted rows, and make its pages available.
sub collect
{
	my ($server) = @_;
	$server->safe_psql('postgres', 'VACUUM');
	my $freed = $server->safe_psql('postgres', 'SELECT freed_bytes FROM blobext_gc()');
	$server->safe_psql('postgres', 'CHECKPOINT; CHECKPOINT');
	return $freed;
}

# ---- a full backup ----

$node->safe_psql('postgres',
	'CREATE TABLE busy (id serial PRIMARY KEY, digest text, b blobstate)');
make_values($node, 'kept', (map { int(rand(300_000)) } 1 .. 30), 9_000_000, 20_000_000);
make_values($node, 'dropped', 3_000_000, 200_000, 2_000);
backup('full');
my %in_full = (kept => count_of('kept'), dropped => count_of('dropped'));

if (!$has_increments)
{
	restore(['full'], %in_full)->stop;
}
else
{
	# ---- an increment: space that the full backup has in use is freed, and used again ----

	$node->safe_psql('postgres', 'DROP TABLE dropped; DELETE FROM kept WHERE id % 3 = 0');
	cmp_ok(collect($node), '>', 3_000_000, 'the collector frees pages that the full backup has in use');
	make_values($node, 'later', 1_500_000, map { int(rand(200_000)) } 1 .. 20);
	backup('middle', 'full');
	my %in_middle = (kept => count_of('kept'), later => count_of('later'));

	# ---- one with a larger map and little change ----

	$node->safe_psql('postgres', q{CREATE TABLE many AS SELECT id, encode(sha256(x), 'hex') AS digest,
		x::blobstate AS b FROM (SELECT id, decode(repeat(md5(id::text), 130), 'hex')
		FROM generate_series(1, 3000) AS id) AS s (id, x)});
	$node->safe_psql('postgres', 'VACUUM FULL blobext_map; DELETE FROM kept WHERE id % 3 = 1');
	collect($node);
	backup('last', 'middle');
	my %in_last = (%in_middle, kept => count_of('kept'), many => 3000);

	my $store = bytes_below(store_dir($node));
	foreach my $name ('middle', 'last')
	{
		my $backup = $node->backup_dir . "/$name";
		my ($copied) = glob("$backup/pg_blobext/*.*");
		cmp_ok(bytes_below($copied), '>=', 30_000_000, "$name: segment files are there as a whole");
		is(scalar(grep { -e } glob("$copied/INCREMENTAL.*")), 0, "$name: none in blocks");
		note("$name: " . bytes_below($backup) . ' bytes, of them in the store ' .
			bytes_below($copied) . "; the store has $store now");
	}
	my $map = $node->safe_psql('postgres', q(SELECT pg_relation_filepath('blobext_map')));
	$node->safe_psql('postgres', 'SELECT pg_switch_wal()');

	restore([ 'full', 'middle' ], %in_middle)->stop;
	my $restored = restore([ 'full', 'middle', 'last' ], %in_last);
	ok(-e $restored->data_dir . "/$map", 'the map is where it was');

	# ---- life goes on there ----

	$restored->safe_psql('postgres', 'DELETE FROM later');
	cmp_ok(collect($restored), '>', 1_500_000, 'the collector of the restored server frees');
	make_values($restored, 'new', map { int(rand(400_000)) } 1 .. 20);
	values_are_intact($restored, $_, "contents of $_ after new values") foreach 'new', 'kept', 'many';
	no_page_is_shared($restored, 'new values have pages of their own', 'new', 'kept', 'many', 'busy');
	$restored->stop;
	command_ok([ 'pg_checksums', '--check', '-D', $restored->data_dir ],
		'pg_checksums of what was put together');
}

# ---- tools that check ----

values_are_intact($node, 'kept', 'contents of kept on the primary');
my $file = segment_file($node);
$node->stop;
command_ok([ 'pg_checksums', '--check', '-D', $node->data_dir ], 'pg_checksums of the primary');

# A byte of the content of a value, in the backup and in the cluster.
sub change_byte
{
	my ($path, $offset) = @_;
	open(my $handle, '+<:raw', $path) or die "cannot open $path: $!";
	sysseek($handle, $offset, 0);
	sysread($handle, my $byte, 1);
	sysseek($handle, $offset, 0);
	syswrite($handle, chr(ord($byte) ^ 1));
	close $handle;
	return;
}

$node->start;
my $page = $node->safe_psql('postgres',
	'SELECT first_page FROM kept, blob_extents(b) ORDER BY length(b) DESC, extent_no LIMIT 1');
$node->stop;
my ($copy) = glob($node->backup_dir . '/full/pg_blobext/*.*/00000000');
change_byte($_, $page * 4096) foreach $file, $copy;
command_fails_like([ 'pg_verifybackup', $node->backup_dir . '/full' ],
	qr/checksum mismatch for file "pg_blobext/, 'pg_verifybackup finds a changed byte');
$node->start;
isnt($node->safe_psql('postgres', 'SELECT problem FROM blobext_check()'),
	'', 'blobext_check() finds a changed byte');
$node->stop;

unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal|TRAP/, 'no PANIC in the log');
done_testing();
