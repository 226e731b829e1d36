# ALTER EXTENSION UPDATE, and formats of another version.
#
# A database whose extension has the SQL objects of 0.1.0 works with this library.  One of each
# released version has the same objects as a new one after the update: definitions, comments,
# privileges, dependencies.  Its store has no checksums of pages, and goes on without; then new
# values get them, and old ones.  (Stores of the library of an older version are read by
# test/run upgrade, which builds one.)  A store, a value or WAL of an unknown format is refused in
# words, and nothing is lost.
#
# Seen to fail: with any statement taken out of the update's script; without the test of the version
# in check_meta() of map.c and store_of() of recovery.c (wrong errors, or none).
use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 66);

my $node = blob_cluster('main', create => 0, conf => "wal_level = replica\n");
my $share = $node->config_data('--sharedir') . '/extension';

# ---- released scripts stay as they are ----

my %released = (
	'blobext--0.1.0' => '71767c431cb62aef0016fa003644c23a55ea2f1cae45c1a37159595e3283ab41',
	'blobext--0.1.0--0.2.0' => '30e7634b0da290804b49cbfd6cb5966e0395272ede0b74b1599af99c9e212a15',
	'blobext--0.2.0' => 'e36dc497b60f7046aa21f699516e6cd1326a242465cc3c6e725dac56ecbf2674',
	'blobext--0.2.0--0.3.0' => '0d035055ea8afc06f84ec33f312d3d623eb93ec90af3bf4857d589ae5380e53d',
	'blobfs--0.3.0' => 'f3971cd3469f84489c98291658118fdd322d7245940033a7b0bf40e791b2b73b');
foreach my $script (sort keys %released)
{
	is(sha256_hex(slurp_file("$share/$script.sql")), $released{$script},
		"the script $script.sql is as it was released");
}

# ---- update ----

# All definitions of the extension's members: pg_upgrade would need them to make the members one by
# one.
sub definitions
{
	my ($database) = @_;
	my ($dump, $errors) = run_command([ 'pg_dump', '--binary-upgrade', '--schema-only', '-h',
		$node->host, '-p', $node->port, $database ]);
	die $errors if $dump eq '';
	my %statements = map { $_ => 1 }
	  grep { !/binary_upgrade|relfrozenxid|^\s*$/ && !/\\(un)?restrict/ }
	  map { s/^--.*$//mgr =~ s/\A\s+//r } split /;\n/, $dump;
	return %statements;
}

# (Where the initial privileges of a member are the present ones, pg_dump is silent.)
my $members = q(
SELECT pg_describe_object(p.classoid, p.objoid, p.objsubid), p.privtype,
	coalesce(p.initprivs::text, '') || ' ' || coalesce(relacl::text, proacl::text, '')
FROM pg_init_privs AS p JOIN pg_depend AS e ON e.classid = p.classoid AND e.objid = p.objoid
	LEFT JOIN pg_class AS c ON p.classoid = 'pg_class'::regclass AND p.objoid = c.oid
	LEFT JOIN pg_proc AS f ON p.classoid = 'pg_proc'::regclass AND p.objoid = f.oid
WHERE e.deptype = 'e' AND e.refclassid = 'pg_extension'::regclass AND e.refobjid =
	ANY (SELECT oid FROM pg_extension WHERE extname IN ('blobext', 'blobfs'))
UNION ALL
SELECT pg_describe_object(d.classid, d.objid, 0), d.deptype,
	pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
FROM pg_depend AS e JOIN pg_depend AS d USING (classid, objid)
WHERE e.deptype = 'e' AND e.refclassid = 'pg_extension'::regclass AND e.refobjid =
	ANY (SELECT oid FROM pg_extension WHERE extname IN ('blobext', 'blobfs')) ORDER BY 1, 2, 3);

# The store of an older version has no checksums; "main" gets them.
$node->safe_psql('postgres', $_) foreach 'ALTER SYSTEM SET blobext.page_checksums = off', 'SELECT pg_reload_conf()';
foreach my $database ('old', 'new')
{
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0");
	my $version = $database eq 'old' ? q(VERSION '0.1.0') : '';
	$node->safe_psql($database, qq(CREATE SCHEMA "Odd schema";
		CREATE EXTENSION blobext SCHEMA "Odd schema" $version));
}
my $default = $node->safe_psql('new', q(SELECT extversion FROM pg_extension WHERE extname = 'blobext'));
cmp_ok(scalar(split /\n/, $node->safe_psql('new', $members)), '>',
	scalar(split /\n/, $node->safe_psql('old', $members)) + 50, 'the new version has at least 50 objects more');

my $path = q(SET search_path = public, "Odd schema");
my $make = q(decode(repeat(md5(i::text), i * 37), 'hex'));
my $fill = qq(INSERT INTO v SELECT i, encode(sha256($make), 'hex'), $make);
my $values = q(SELECT count(*), sum(length(b)), count(*) FILTER (WHERE blob_storage(b) = 'extents') FROM v
	WHERE encode(sha256(b::bytea), 'hex') = digest AND encode(sha256(b), 'hex') = digest);
$node->safe_psql('old', qq($path;
	CREATE TABLE v (id int PRIMARY KEY, digest text, b blobstate);
	CREATE DOMAIN image AS blobstate;
	CREATE TABLE w (a blobstate[], d image, PRIMARY KEY (d)) WITH (fillfactor = 50);)
	=~ s/, PRIMARY KEY \(d\)//r);
$node->safe_psql('old', qq($path; $fill FROM generate_series(1, 300) AS i;
	INSERT INTO w SELECT ARRAY[b, b], b FROM v WHERE id % 10 = 0;
	DELETE FROM v WHERE id > 290; UPDATE v SET b = b WHERE id < 10; ANALYZE));
my $before = $node->safe_psql('old', "$path; $values");
like($before, qr/^290\|\d+\|287$/, 'SQL of 0.1.0: values are stored');
is($node->safe_psql('old', "$path; SELECT * FROM blobext_check()"), '', 'SQL of 0.1.0: the check finds nothing');
fails_with($node, "$path; CREATE INDEX ON v (b)", '42704', qr/no default operator class/,
	'SQL of 0.1.0: an index is refused, which it did not have', database => 'old');
fails_with($node, q(ALTER EXTENSION blobext UPDATE TO '0.0.9'), '22023', qr/no update path/,
	'an update to an unknown version is refused', database => 'old');
fails_with($node, q(SELECT "Odd schema".blobext_require_library('9.9.9')), '55000',
	qr/library blobext has version \Q$default\E, the SQL script needs 9\.9\.9.*Restart the server/s,
	'scripts that are newer than the library are refused', database => 'new');

my $session = $node->background_psql('old', on_error_stop => 1);
$session->query_safe("$path; BEGIN; ALTER EXTENSION blobext UPDATE");
is($session->query_safe('SELECT count(*) FROM v WHERE b = (SELECT b FROM v WHERE id = 77)'), '1',
	'values compare right in the transaction that updates');
$session->query_safe('ROLLBACK');
is($session->query_safe($values), $before, 'values are what they were after an update that was rolled back');
$session->query_safe('ALTER EXTENSION blobext UPDATE');
is($session->query_safe($values), $before, 'updated: the values are what they were');

# In the session that was there, and in a new one.
$session->query_safe(q(UPDATE v SET b = blob_append(b, '+'), digest =
	encode(sha256(b::bytea || '+'), 'hex') WHERE id % 3 = 0; CREATE UNIQUE INDEX ON v (b)));
$session->quit;
my ($count) = split /\|/, $before;
like($node->safe_psql('old', "$path; $values"), qr/^$count\|/, 'updated: values that have grown are right');
is($node->safe_psql('old', "$path; ANALYZE v; SELECT count(*) FROM pg_stats
	WHERE tablename = 'v' AND attname = 'b' AND n_distinct = -1 AND histogram_bounds IS NOT NULL"), '1',
	'updated: ANALYZE makes statistics of the column');
is($node->safe_psql('old', "$path; SET enable_seqscan = off;
	SELECT id FROM v WHERE b = (SELECT b::bytea FROM v WHERE id = 33)"), '33', 'updated: an index finds a value');
$node->safe_psql('old', 'VACUUM');
like($node->safe_psql('old', qq(SELECT * FROM "Odd schema".blobext_gc())), qr/^[1-9]\d*\|.*\|$/,
	'updated: the collector frees');
like($node->safe_psql('old', "$path; $values"), qr/^$count\|/, 'updated: the values are right after a round');
is($node->safe_psql('old', "$path; SELECT * FROM blobext_check()"), '', 'updated: the check finds nothing');
$node->safe_psql('old', 'DROP TABLE public.v, public.w; DROP DOMAIN public.image');

is($node->safe_psql('old', q(SELECT extversion FROM pg_extension WHERE extname = 'blobext')), $default,
	'the updated extension has the default version');
sub all_objects
{
	my ($database) = @_;
	return (definitions($database), map { $_ => 1 } split /\n/, $node->safe_psql($database, $members));
}

# $updated has the objects of $new, and no others.
sub same_objects
{
	my ($updated, $new, $from) = @_;
	my %updated = all_objects($updated);
	my %new = all_objects($new);
	cmp_ok(scalar keys %new, '>', 400, "$from: there are definitions to compare");
	is(join("\n", grep { !$new{$_} } sort keys %updated), '',
		"updated from $from: nothing is there that a new installation has not");
	is(join("\n", grep { !$updated{$_} } sort keys %new), '',
		"updated from $from: nothing is missing that a new installation has");
}
same_objects('old', 'new', '0.1.0');

# Each other version, and file systems, which came with 0.3.0.
foreach my $database ('new_fs', 'from_0.2.0', 'from_0.3.0')
{
	my ($version) = $database =~ /from_(.*)/;
	my $clause = $version ? "VERSION '$version'" : '';
	$node->safe_psql('postgres', qq(CREATE DATABASE "$database" TEMPLATE template0));
	$node->safe_psql($database, qq(CREATE SCHEMA "Odd schema";
		CREATE EXTENSION blobext SCHEMA "Odd schema" $clause));
	$node->safe_psql($database, q(CREATE EXTENSION blobfs VERSION '0.3.0')) if $database eq 'from_0.3.0';
	$node->safe_psql($database, q(CREATE EXTENSION blobfs)) if $database eq 'new_fs';
	next if !$version;
	$node->safe_psql($database, 'ALTER EXTENSION blobext UPDATE');
	$node->safe_psql($database, 'ALTER EXTENSION blobfs UPDATE') if $version eq '0.3.0';
	same_objects($database, $version eq '0.3.0' ? 'new_fs' : 'new', $version);
}

# ---- checksums of a store that exists ----

# Bytes of extents with checksums, and all.
sub sums_of
{
	my ($database) = @_;
	return split /\|/, $node->safe_psql($database, "$path; SELECT coalesce(sum(checksummed_bytes), 0), coalesce(sum(bytes), 0)
		FROM blobext_space WHERE extents IS NOT NULL");
}

foreach my $version ('0.1.0', '0.2.0', '0.3.0')
{
	my $database = "sums of $version";
	$node->safe_psql('postgres', qq(CREATE DATABASE "$database" TEMPLATE template0));
	$node->safe_psql($database, qq(CREATE SCHEMA "Odd schema"; CREATE EXTENSION blobext SCHEMA "Odd schema" VERSION '$version'));
	$node->safe_psql($database, qq($path; CREATE TABLE v (id int, digest text, b blobstate);
		$fill FROM generate_series(100, 200) AS i));
	is($node->safe_psql($database, "$path; SELECT state FROM blobext_space WHERE extents > 0 LIMIT 1") =~ s/tier|tail/extent/r,
		'extent', "SQL of $version: the view of the space is answered") if $version ne '0.1.0';
	fails_with($node, "$path; SELECT blobext_enable_checksums()", '42883', qr/does not exist/,
		"SQL of $version: checksums cannot be enabled", database => $database);
	$node->safe_psql($database, 'ALTER EXTENSION blobext UPDATE');
	is((sums_of($database))[0], 0, "updated from $version: no value has checksums");
	$node->safe_psql($database, "$path; $fill FROM generate_series(201, 220) AS i; UPDATE v SET b = b || '+', digest =
		encode(sha256(b::bytea || '+'), 'hex') WHERE id % 5 = 0");
	is((sums_of($database))[0], 0, "updated from $version: new values have none either");
	is($node->safe_psql($database, "$path; SELECT blobext_enable_checksums()"), 't', "updated from $version: checksums are enabled");
	$node->safe_psql($database, "$path; $fill FROM generate_series(221, 240) AS i");
	my ($with, $all) = sums_of($database);
	ok($with >= 20 * 220 * 37 && $with < $all, "updated from $version: new values have checksums, old ones have not");
	like($node->safe_psql($database, "$path; $values"), qr/^141\|\d+\|141$/, "updated from $version: all values are right");
	like($node->safe_psql($database, "$path; CALL blobext_add_checksums('v')"), qr/^1\d\d\|\d{3,}\|0$/,
		"updated from $version: old values get checksums");
	$node->safe_psql($database, $_) foreach 'VACUUM', qq(SELECT * FROM "Odd schema".blobext_gc());
	($with, $all) = sums_of($database);
	is($with, $all, "updated from $version: all extents have checksums");
	like($node->safe_psql($database, "$path; $values"), qr/^141\|\d+\|141$/, "updated from $version: all values are right with checksums");
	is($node->safe_psql($database, "$path; SELECT * FROM blobext_check()"), '', "updated from $version: the check finds nothing");
}

# ---- a store of another format ----

sub patch
{
	my ($file, $offset, $bytes) = @_;
	open(my $handle, '+<:raw', $file) or die "$file: $!";
	seek($handle, $offset, 0);
	read($handle, my $was, length $bytes);
	seek($handle, $offset, 0);
	print {$handle} $bytes;
	close($handle) or die "$file: $!";
	return $was;
}

use constant META => 24;		# behind the page header: magic, version, incarnation …

$node->safe_psql('postgres', 'CREATE EXTENSION blobext');
make_values($node, 'v', 10, 5_000, 300_000);
my $map = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('blobext_map')));
$node->stop;
system_or_bail('pg_checksums', '--disable', '-D', $node->data_dir)
  if `pg_controldata -D @{[ $node->data_dir ]}` =~ /page checksum version:\s+[1-9]/;
my %uses = (
	read => 'SELECT octet_length(b::bytea) FROM v',
	store => q(INSERT INTO v (b) VALUES (convert_to(repeat('x', 5000), 'UTF8'))),
	map => 'SELECT * FROM blobext_map',
	space => 'SELECT * FROM blobext_space',
	check => 'SELECT * FROM blobext_check()',
	collector => 'SELECT * FROM blobext_gc()');
my %formats = (
	newer => [ 4, pack('L', 4), '55000', qr/written by an incompatible build of blobext.*Store: format 4,.*library: formats 1 to 3,/s ],
	tiers => [ 32, pack('L', 5), '55000', qr/DETAIL:  Store: format 1, .* 5 tiers per level/ ],
	foreign => [ 0, 'blab', 'XX001', qr/is not an extent map/ ]);
foreach my $format (sort keys %formats)
{
	my ($offset, $bytes, $sqlstate, $text) = @{ $formats{$format} };
	my $was = patch($map, META + $offset, $bytes);
	$node->start;
	fails_with($node, $uses{$_}, $sqlstate, $text, "$format: the use is refused: $_") foreach sort keys %uses;
	is($node->safe_psql('postgres', 'SELECT count(length(b)) FROM v'), '3', "$format: rows can be read");
	$node->stop;
	patch($map, META + $offset, $was);
}
# A value of another form: the 300,000 bytes, whose prefix is in the row.
my $table = $node->data_dir . '/';
$node->start;
values_are_intact($node, 'v', 'the right format again: values');
check_is_clean($node, 'the right format again: the check');
$table .= $node->safe_psql('postgres', q(SELECT pg_relation_filepath('v')));
my $prefix = pack('H*', $node->safe_psql('postgres', q(SELECT encode(blob_prefix(b), 'hex') FROM v WHERE id = 3)));
$node->stop;
my $form_at = index(slurp_file($table), $prefix) - 84;
my $form = patch($table, $form_at, "\x63");
is($form, "\x11", 'a descriptor is where it should be');
$node->start;
my $unknown = qr/blobstate value has unknown format 99.*written by a newer version/s;
fails_with($node, 'SELECT length(b) FROM v', 'XX001', $unknown, 'a value of another form: length');
fails_with($node, 'SELECT b FROM v', 'XX001', $unknown, 'a value of another form: read');
like($node->safe_psql('postgres', 'SELECT * FROM blobext_check()'), qr/v\|\(0,3\)\|b\|.*unknown format/,
	'a value of another form: the check');
like(($node->psql('postgres', 'SELECT * FROM blobext_gc()'))[2], qr/unknown format 99/,
	'a value of another form: nothing is collected');
is($node->safe_psql('postgres', 'SELECT count(length(b)) FROM v WHERE id < 3'), '2',
	'other values can be read');
$node->stop;
patch($table, $form_at, $form);
$node->start;
values_are_intact($node, 'v', 'the right form again: values');
check_is_clean($node, 'the right form again: the check');

# ---- WAL of another format ----

my @crc_table = map {
	my $crc = $_;
	$crc = $crc & 1 ? ($crc >> 1) ^ 0x82F63B78 : $crc >> 1 for (1 .. 8);
	$crc
} (0 .. 255);

# PostgreSQL's checksum of a record: of the bytes after the header, then of the header up to the
# checksum.
sub record_crc
{
	my ($record) = @_;
	my $crc = 0xFFFFFFFF;
	$crc = $crc_table[ ($crc ^ $_) & 0xFF ] ^ ($crc >> 8)
	  foreach unpack('C*', substr($record, 24) . substr($record, 0, 20));
	return $crc ^ 0xFFFFFFFF;
}

$node->safe_psql('postgres', 'CHECKPOINT');
my $start = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
add_values($node, 'v', 3_000, 50_000);
my $file = $node->data_dir . '/pg_wal/' . $node->safe_psql('postgres', "SELECT pg_walfile_name('$start')");
my $rmgr = 'custom' . $node->safe_psql('postgres',
	q(SELECT rm_id FROM pg_get_wal_resource_managers() WHERE rm_name = 'blobext'));
my ($records) = run_command([ 'pg_waldump', "--rmgr=$rmgr", '-s', $start, $file ]);

# Small ones, which no page boundary cuts.
my ($patched_at, $patched);
foreach my $line (split /\n/, $records)
{
	my ($length, $lsn) = $line =~ m{len \(rec/tot\):\s*\d+/\s*(\d+),.* lsn: ([0-9A-F/]+)} or next;
	my $offset = $node->safe_psql('postgres', "SELECT file_offset FROM pg_walfile_name_offset('$lsn')");
	next if $length > 2_000 || $offset % 8_192 + $length > 8_192;
	my $record = substr(slurp_file($file), $offset, $length);
	is(unpack('L', substr($record, 20, 4)), record_crc($record), 'the checksum is understood');
	# Its header: incarnation, database, version.
	$patched = $record;
	my $database = pack('L', $node->safe_psql('postgres',
		q(SELECT oid FROM pg_database WHERE datname = 'postgres')));
	$patched =~ s/\Q$database\E\x01\0\0\0/${database}\x04\0\0\0/ or next;
	substr($patched, 20, 4) = pack('L', record_crc($patched));
	$patched_at = $offset;
	last;
}
ok(defined $patched_at, 'there is a record to patch');
kill_everything($node);
my $was = patch($file, $patched_at, $patched);
my $offset = -s $node->logfile;
is($node->start(fail_ok => 1), 0, 'another format in the WAL: the server does not start');
like(slurp_file($node->logfile, $offset), qr/cannot replay WAL of format version 4.*library reads versions 1 to 3.*HINT:  Recover with the/s, 'another format in the WAL: the log says why');
patch($file, $patched_at, $was);
unlink $node->data_dir . '/postmaster.pid';
$node->start;
values_are_intact($node, 'v', 'the right format again: the values are whole');
is($node->safe_psql('postgres', 'SELECT count(*) FROM v'), '5', 'the right format again: all five values are there');
check_is_clean($node, 'the right format again: the check finds nothing');
$node->stop;

done_testing();
