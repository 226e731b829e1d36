# WAL of versions 1, 2 and 3 is replayed, every kind of record of each: by crash recovery, by a
# standby, by a standby that is killed and started again.  A record of another version, or with values
# of the fields of version 2 that have no meaning yet, is refused with a message, and nothing is lost.
#
# The records are inserted by unit/unit_wal.c, as the writer's modules would, with the version that is
# asked for.  full_page_writes is off: a full-page image would replay in place of the changes.
#
# Seen to fail: with each kind of record of version 2 left out of redo() in recovery.c on the standby;
# with PUNCH of version 1 taken for an unknown record (its message); with runs of PUNCH that were checked
# one by one, before each hole, and their sum with overflow; with META, ALLOC, CLAIM and TRIM of any length.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

plan skip_all => 'needs the library of test/unit' unless defined $ENV{BLOBEXT_UNIT_DIR};

use constant SEGMENT => 262_144;	# pages
use constant PAGE => 4_096;
use constant MADE_UP => 1 << 50;		# a generation

my $functions = qq(
CREATE FUNCTION unit_wal(map regclass, version int, what text, VARIADIC arguments bigint[])
	RETURNS void AS '$ENV{BLOBEXT_UNIT_DIR}/blobext_unit' LANGUAGE C STRICT;
CREATE FUNCTION unit_wal_raw(map regclass, version int, info int, rest bytea)
	RETURNS void AS '$ENV{BLOBEXT_UNIT_DIR}/blobext_unit' LANGUAGE C STRICT;
CREATE EXTENSION pageinspect; CREATE EXTENSION pg_walinspect;
);

# All of the map but LSNs and checksums.
sub map_of
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q(SELECT b, md5(substring(get_raw_page('blobext_map', b)
		FROM 13)) FROM generate_series(0, pg_relation_size('blobext_map') / 8192 - 1) AS b));
}

# This number of bytes from a page on, or a message.
sub read_at
{
	my ($file, $page, $bytes) = @_;
	open(my $handle, '<:raw', $file) or return "no file: $!";
	seek($handle, $page * PAGE, 0);
	read($handle, my $found, $bytes) == $bytes or return 'too short';
	return $found;
}

# The byte that fills these bytes; "other bytes" if they are not all the same.
sub bytes_at
{
	my ($file, $page, $bytes) = @_;
	my $found = read_at(@_);
	my $first = substr($found, 0, 1);
	return $found eq $first x $bytes ? ord $first : 'other bytes';
}

# The directory of the store of database postgres; there is another store.
my $database;

sub directory_of
{
	my ($node) = @_;
	$database //= $node->safe_psql('postgres', q(SELECT oid FROM pg_database WHERE datname = 'postgres'));
	my ($directory) = glob($node->data_dir . "/pg_blobext/$database.*");
	return $directory;
}

sub file_bytes
{
	my ($node, $segment) = @_;
	my $file = directory_of($node) . sprintf('/%08x', $segment);
	return -e $file ? -s $file : 'none';
}

# All records of blobext from there to the end: count, and what they are.
sub records_of
{
	my ($node, $from, $what) = @_;
	my $function = $node->safe_psql('postgres', 'SHOW server_version_num') < 160_000 ?
	  "pg_get_wal_records_info_till_end_of_wal('$from')" :
	  "pg_get_wal_records_info('$from', 'FFFFFFFF/FFFFFFFF')";
	return $node->safe_psql('postgres', "SELECT $what FROM $function WHERE resource_manager = 'blobext'");
}

sub kinds_of
{
	my ($node, $from) = @_;
	return records_of($node, $from, q(string_agg(DISTINCT record_type, ' ' ORDER BY record_type)));
}

# The effects of replay of the records on files, besides the map.
sub is_replayed
{
	my ($node, $version, $other_dir, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $file = directory_of($node) . '/00000000';

	is(-s $file, SEGMENT * PAGE, "$name: SEGMENT has lengthened the first file");
	is(file_bytes($node, 1), 'none', "$name: REMOVE has removed the second file");
	is(bytes_at($file, 2_000, 9 * PAGE + 100), ord 'x', "$name: CONTENT is there");
	is(bytes_at($file, 2_009, PAGE), 'other bytes', "$name: CONTENT ends with zeros");
	is(bytes_at($file, 3_000, 50 * PAGE), $version >= 2 ? 0 : ord 'y', "$name: PUNCH has made a hole, and v1 none");
	is(bytes_at($file, 3_050, PAGE), ord 'y', "$name: behind the hole");
	ok(!-d "@{[ $node->data_dir ]}/pg_blobext/$other_dir", "$name: DROP has removed a store");
	return;
}

foreach my $version (1 .. 3)
{
	my $primary = blob_cluster("primary_$version", streaming => 1,
		conf => "blobext.page_checksums = " . ($version == 3 ? 'on' : 'off') . "\nfull_page_writes = off\nautovacuum = off\ncheckpoint_timeout = 1h\n");
	$primary->safe_psql('postgres', $functions);
	make_values($primary, 'v', 10, 5_000, 300_000);

	# A store to be dropped.
	$primary->safe_psql('postgres', 'CREATE DATABASE other');
	$primary->safe_psql('other', $functions =~ s/CREATE EXTENSION.*//sr);
	$primary->safe_psql('other', q(CREATE EXTENSION blobext; CREATE TABLE w (b blobstate);
		INSERT INTO w VALUES (convert_to(repeat('w', 5000), 'UTF8'))));
	my $mine = directory_of($primary);
	my ($other_dir) = map { s{.*/}{}r } grep { $_ ne $mine } glob $primary->data_dir . '/pg_blobext/*.*';
	ok($other_dir, "version $version: there are two stores");

	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new("standby_$version");
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_catchup($standby);
	my $from = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');

	my $insert = sub {
		my ($what, @arguments) = @_;
		$primary->safe_psql($what eq 'DROP' ? 'other' : 'postgres',
			"SELECT unit_wal('blobext_map', $version, '$what', VARIADIC ARRAY["
			  . join(', ', @arguments) . "]::bigint[])");
	};
	my $reuse = $version > 1 ? 1 : 0;	# class 1 is new
	$insert->('META', MADE_UP + 10);
	$insert->('SEGMENT', 2 * SEGMENT);
	$insert->('ALLOC', 2_000, 10, MADE_UP, -1);
	$insert->('ALLOC', 2_100, 0, MADE_UP + 1, 4);
	$insert->('ALLOC', 2_200, 10, MADE_UP + 2, -1);
	$insert->('ALLOC', 2_300, 50, MADE_UP + 3, -1);
	$insert->('CONTENT', 2_000, 9 * PAGE + 100, ord 'x');
	$insert->('OMITTED', MADE_UP + 1);
	$insert->('CLAIM', 2_100, 4, PAGE, 2 * PAGE);
	$insert->('TRIM', 2_300, 50, MADE_UP + 3, 20);
	$insert->('FREE', 2_200, $reuse);
	$insert->('REMOVE', 1);
	$insert->('CONTENT', 3_000, 51 * PAGE, ord 'y');
	if ($version >= 2)
	{
		$insert->('format', 0);
		$insert->('PUNCH', 3_000, 50);
	}
	$insert->('SUMS', 2_000, 10, MADE_UP, 10) if $version == 3;
	$insert->('DROP', 0);

	my $map = map_of($primary);
	$primary->wait_for_catchup($standby);
	is(map_of($standby), $map, "version $version, standby: the map is the same");
	is_replayed($standby, $version, $other_dir, "version $version, standby");
	ok(-s directory_of($standby) . '/missing', "version $version, standby: OMITTED is noted");
	kill_everything($standby);
	$standby->start;
	$primary->wait_for_catchup($standby);
	is(map_of($standby), $map, "version $version, standby killed: the map is the same");
	is_replayed($standby, $version, $other_dir, "version $version, standby killed");

	kill_everything($primary);
	$primary->start;
	is(map_of($primary), $map, "version $version, crash: the map is the same");
	is_replayed($primary, $version, $other_dir, "version $version, crash");
	ok(!-e directory_of($primary) . '/missing', "version $version, crash: OMITTED says nothing new");

	# A number is used again after a completed checkpoint past its REMOVE.
	$insert->('RESTORE', SEGMENT, SEGMENT + 1_000);
	$map = map_of($primary);
	$primary->wait_for_catchup($standby);
	is(map_of($standby), $map, "version $version, RESTORE: the map is the same on the standby");
	is(file_bytes($standby, 1), 1_000 * PAGE, "version $version, RESTORE: the file");
	is(kinds_of($primary, $from), 'ALLOC CLAIM CONTENT DROP FREE META OMITTED '
		. ($version >= 2 ? 'PUNCH ' : '') . 'REMOVE RESTORE SEGMENT ' . ($version == 3 ? 'SUMS ' : '') . 'TRIM',
		"version $version: all kinds of records");
	kill_everything($primary);
	$primary->start;
	is(map_of($primary), $map, "version $version, RESTORE, crash: the map is the same");

	# The stores are used further.
	foreach my $node ($primary, $standby)
	{
		my $name = "version $version, " . ($node == $primary ? 'crashed' : 'promoted');
		if ($node == $standby)
		{
			$primary->wait_for_catchup($standby);
			$primary->stop;
			$standby->promote;
		}
		add_values($node, 'v', 9_000, 400_000);
		$node->safe_psql('postgres', 'CHECKPOINT; SELECT * FROM blobext_gc(); CHECKPOINT');
		add_values($node, 'v', 30_000_000);
		values_are_intact($node, 'v', "$name: the values are whole");
		check_is_clean($node, "$name: the check finds nothing");
		no_page_is_shared($node, "$name: no page is shared", 'v');
		is(bytes_at(directory_of($node) . '/00000000', 3_000, 50 * PAGE), 0,
			"$name: nothing is stored in punched pages") if $version >= 2;
		is($node->safe_psql('postgres', "SELECT count(*) FROM blobext_map WHERE generation BETWEEN
			@{[ MADE_UP ]} AND @{[ MADE_UP + 3 ]}"), '0', "$name: the collector has freed what was made up");
	}
	$standby->stop;
	unlike(slurp_file($_->logfile), qr/PANIC|terminated by signal 1?1|TRAP/, "version $version: no PANIC")
	  foreach ($primary, $standby);
	$standby->clean_node;
	$primary->clean_node if $version < 3;
	if ($version == 3)
	{
		$primary->start;
		refusals($primary);
	}
}

# Of each: version, info, the bytes behind the header, the message in the log, and of some a part of
# what pg_walinspect shows.
sub refusals
{
	my ($node) = @_;
	my $zero = pack('Q', 0);
	my $newer = qr/.*HINT:  Recover with the version of blobext that wrote the WAL, or a later one/s;
	my @refused = (
		[ 'version 4', 4, 0xA0, pack('LL', 0, 0), qr/format version 4.*reads versions 1 to 3$newer/s,
			'unknown format version 4' ],
		[ 'version 0', 0, 0xA0, '', qr/format version 0/ ],
		[ 'a place of SEGMENT', 2, 0x30, pack('QQLL', 0, 1, 7, 0), qr/storage place 7$newer/s ],
		[ 'a place of REMOVE', 2, 0x50, pack('QQLL', 0, 1, 8, 0), qr/storage place 8$newer/s ],
		[ 'a place of RESTORE', 2, 0x60, pack('QQLL', 0, 1, 9, 0), qr/storage place 9$newer/s ],
		[ 'a place of CONTENT', 2, 0x20, pack('QLLC', 0, 1, 16_384, 65), qr/storage place 16384$newer/s ],
		[ 'a place of DROP', 2, 0xA0, pack('LLL', 1, 0, 5), qr/storage place 5$newer/s,
			'other places 1' ],
		[ 'a place of PUNCH', 2, 0xB0, pack('LLQ', 0, 6, 0), qr/storage place 6$newer/s, 'place 6' ],
		[ 'PUNCH in version 1', 1, 0xB0, pack('LLQ', 0, 0, 0), qr/PUNCH.*no such record/ ],
		[ 'FETCHED in version 1', 1, 0xC0, pack('LL', 0, 0), qr/FETCHED.*no such record/ ],
		[ 'reserved bytes of FETCHED', 2, 0xC0, pack('LL', 0, 1), qr/reserved bytes are not zero/ ],
		[ 'FETCHED without its ranges', 2, 0xC0, pack('LL', 2, 0), qr/ranges are missing/ ],
		[ 'SUMS in version 2', 2, 0xD0, pack('QQ', 0, 0), qr/SUMS.*no such record/ ],
		[ 'SUMS without its counts', 3, 0xD0, '', qr/SUMS.*too short/ ],
		[ 'another kind', 2, 0xE0, '', qr/unknown WAL record/ ],
		[ 'a reuse class', 2, 0x40, pack('LLQQQLL', 0, 0, 0, 0, 0, 2, 0), qr/FREE record.*unknown reuse class/,
			'unknown reuse class 2' ],
		[ 'reserved bytes of FREE', 2, 0x40, pack('LLQQQLL', 0, 0, 0, 0, 0, 0, 1), qr/FREE.*reserved bytes/ ],
		[ 'reserved bytes of SEGMENT', 2, 0x30, pack('QQLL', 0, 1, 0, 1), qr/SEGMENT.*reserved bytes/ ],
		[ 'reserved bytes of DROP', 2, 0xA0, pack('LL', 0, 1), qr/DROP.*reserved bytes/ ],
		[ 'a SEGMENT of version 1 in version 2', 2, 0x30, pack('QQ', 0, 1), qr/SEGMENT.*too short/ ],
		[ 'a SEGMENT of version 2 in version 1', 1, 0x30, pack('QQLL', 0, 1, 0, 0), qr/SEGMENT.*too long/ ],
		[ 'CONTENT without all bytes', 2, 0x20, pack('QLLC', 0, 2, 0, 65), qr/CONTENT.*bytes are missing/ ],
		[ 'OMITTED without its ranges', 2, 0x90, pack('LLQQ', 1, 0, 0, 0), qr/OMITTED.*ranges are missing/ ],
		[ 'DROP without its places', 2, 0xA0, pack('LL', 1, 0), qr/DROP.*places are missing/ ],
		[ 'PUNCH without its runs', 2, 0xB0, pack('LLQ', 1, 0, 0), qr/PUNCH.*runs are missing/ ],
		[ 'PUNCH over the end of a segment', 2, 0xB0, pack('LLQQQQQ', 2, 0, 0, 3_050, 1, SEGMENT - 1, 2),
			qr/PUNCH.*not inside of a segment/ ],
		[ 'PUNCH of pages that overflow', 2, 0xB0, pack('LLQQQQQ', 2, 0, 0, 3_050, 1, 3_050, ~0),
			qr/PUNCH.*not inside of a segment/ ],
		[ 'PUNCH of a run without pages', 2, 0xB0, pack('LLQQQ', 1, 0, 0, 3_050, 0),
			qr/PUNCH.*not inside of a segment/ ],
		[ 'META without its limit', 1, 0x00, '', qr/META.*too short/ ],
		[ 'SEGMENT without its page', 2, 0x30, pack('QQLL', 0, 1, 0, 0), qr/SEGMENT.*no meta page/ ],
		[ 'META without its page', 2, 0x00, $zero, qr/META.*no meta page/ ],
		[ 'ALLOC without its counts', 2, 0x10, $zero, qr/ALLOC.*too short/ ],
		[ 'CLAIM without its bytes', 1, 0x70, $zero, qr/CLAIM.*too short/ ],
		[ 'TRIM without its bytes', 2, 0x80, $zero, qr/TRIM.*too short/ ],
	);
	my $file = directory_of($node) . '/00000000';
	my $page = read_at($file, 3_050, PAGE);
	ok($page =~ /[^\0]/, 'a page that would be seen to be punched');
	foreach my $refused (@refused)
	{
		my ($what, $version, $info, $rest, $message, $shown) = @$refused;
		$shown //= '';
		$rest = unpack('H*', $rest);
		$node->safe_psql('postgres', 'CHECKPOINT');
		my $from = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
		$node->safe_psql('postgres', "SELECT unit_wal_raw('blobext_map', $version, $info, '\\x$rest')");
		like(records_of($node, $from, 'count(*), min(description)'), qr/^1\|store \d+\..*\Q$shown\E/,
			"$what: can be shown");
		kill_everything($node);
		my $offset = -s $node->logfile;
		my $has_started = $node->start(fail_ok => 1);
		is($has_started, 0, "$what: replay is refused");
		like(slurp_file($node->logfile, $offset), qr/PANIC:.*$message/s, "$what: it says why");
		ok(read_at($file, 3_050, PAGE) eq $page, "$what: the page is not punched") if $what =~ /^PUNCH/;
		next if $has_started;
		unlink $node->data_dir . '/postmaster.pid';
		system_or_bail('pg_resetwal', '-f', '-D', $node->data_dir);
		$node->start;
	}
	values_are_intact($node, 'v', 'after the refusals: values');
	check_is_clean($node, 'after the refusals: the check');

	# A map with segments in other places.
	$node->safe_psql('postgres', q(SELECT unit_wal('blobext_map', 2, 'format', 1)));
	fails_with($node, $_, '55000', qr/has segments in other storage places.*Install the version/s,
		"a map with places: $_")
	  foreach ('SELECT octet_length(b::bytea) FROM v', 'SELECT * FROM blobext_check()',
		q(INSERT INTO v (b) VALUES (convert_to(repeat('x', 5000), 'UTF8'))));
	$node->stop;
	return;
}

done_testing();
