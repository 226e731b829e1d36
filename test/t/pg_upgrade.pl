# pg_upgrade and blobext_upgrade: to a newer PostgreSQL, or to another cluster of the same.
#
# An old cluster: databases with blobs of all sizes, inline and in extents, shared by copies and
# versions, indexed by content and by digest, in partitions, domains and arrays, as defaults; one
# whose name needs quotes; one without content; stores of a dropped and a new extension; extents
# that dropped tables and rolled back transactions leave.  It is upgraded by copying, by copying
# with linked segments, and by linking; each time every value is read and compared with its digest,
# blobext_check() finds nothing, new values are stored, and the collector frees extents without
# values.
#
# If the files are missing, the new server says so, and makes none.  A cluster or directory that
# does not match is refused, and nothing is changed: servers that run or have crashed, another
# cluster, files that are missing or too short, an old server that was used meanwhile, a directory
# of unknown origin.  An interrupted run is finished by the next.
#
# Seen to fail: without names for the parameters of blob_chunks(); without require_directory() and
# the test of preloading in binary upgrade mode; with blobext_upgrade that compares no maps, sizes or
# states, or that makes directories under their own names.
#
# Environment: BLOBEXT_OLD_INSTALL (directory with bin/ of the old PostgreSQL, with blobext; by
# default the same as the new one), BLOBEXT_UPGRADE_LARGE=1 (segments that were removed; 4 GB).
use strict;
use warnings;

use Cwd;
use File::Basename;
use File::Find;
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

srand($ENV{BLOBEXT_SEED} // 15);

my $tmp = $PostgreSQL::Test::Utils::tmp_check;
chomp(my $new_install = dirname(`$ENV{PG_CONFIG} --bindir`));
my $old_install = $ENV{BLOBEXT_OLD_INSTALL} // $new_install;
my $with_large = $ENV{BLOBEXT_UPGRADE_LARGE} // 0;

# ---- the old cluster ----

my $old = blob_cluster(
	'old',
	init => ['--data-checksums'],
	conf => "blobext.autogc_naptime = 1h\n",	# a directory shall be left over
	install => $old_install);
my ($old_major) = $old->safe_psql('postgres', 'SHOW server_version_num') =~ /^(\d+)\d{4}$/;
my ($new_major) = `$new_install/bin/pg_config --version` =~ /(\d+)/;
note("from $old_major to $new_major");

# pg_upgrade refuses tablespaces of one version.
my $has_tablespace = $old_major != $new_major;
my $other = q{other "db" \ 'x'};
my $schema = '"My blobs"';
my $path = "SET search_path = public, $schema;";

make_values($old, 'kept');
add_values($old, 'kept', 20_000_000, (map { int(rand(400_000)) } 1 .. 20));
make_values($old, 'dropped', 3_000_000, 70_000);
my $long = unpack('H*', content('default', 9_000));
$old->safe_psql(
	'postgres', qq(
CREATE INDEX kept_content ON kept (b);
CREATE INDEX kept_digest ON kept USING btree (b blobstate_digest_ops);
CREATE INDEX kept_hash ON kept USING hash (b);
INSERT INTO kept (digest, b) SELECT digest, b FROM kept WHERE id % 3 = 0;	-- shared
CREATE TABLE grown AS SELECT id, b FROM kept WHERE length(b) > 100000;
UPDATE grown SET b = blob_append(b, 'more'::bytea);
UPDATE grown SET b = blob_append(b, 'and more'::bytea) WHERE id % 2 = 0;
ALTER TABLE grown ADD COLUMN digest text;
UPDATE grown SET digest = encode(sha256(b), 'hex');
CREATE TABLE defaults (id int);
INSERT INTO defaults VALUES (1);
ALTER TABLE defaults ADD COLUMN small blobstate DEFAULT '\\x736d616c6c';
ALTER TABLE defaults ADD COLUMN b blobstate DEFAULT '\\x$long';
CREATE VIEW first_bytes AS SELECT id, blob_prefix(b) AS p FROM kept WHERE b <> '\\x00';
CREATE VIEW as_bytea AS SELECT id, POSITION('\\x00' IN b) AS position, SUBSTRING(b FROM 2 FOR 9) AS part, md5(b),
	encode(OVERLAY(TRIM('\\x00' FROM b) PLACING 'A' FROM 2), 'base64') AS text, b LIKE '%a_' AS matches
	FROM kept WHERE length(b) BETWEEN 1 AND 100000;
ANALYZE;
BEGIN; INSERT INTO kept (digest, b) SELECT encode(sha256(x), 'hex'), x
FROM (SELECT decode(repeat(md5('prepared'), 20000), 'hex')) AS s (x);
PREPARE TRANSACTION 'committed'; COMMIT PREPARED 'committed';
BEGIN; INSERT INTO kept (digest, b) VALUES ('none', ('\\x' || repeat('ab', 200000))::bytea);
PREPARE TRANSACTION 'rolled back'; ROLLBACK PREPARED 'rolled back';
DELETE FROM kept WHERE id % 7 = 0;
DROP TABLE dropped;
));

$old->safe_psql('postgres', q(CREATE DATABASE "other ""db"" \ 'x'"));
if ($has_tablespace)
{
	mkdir "$tmp/space";
	$old->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$tmp/space'");
}
$old->safe_psql(
	$other, qq(
CREATE SCHEMA $schema; CREATE EXTENSION blobext SCHEMA $schema;
$path
CREATE DOMAIN image AS blobstate CHECK (length(VALUE) < 1000000);
CREATE TABLE parts (id int, b blobstate, d image, a blobstate[]) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (50);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (50) TO (1000)
	@{[ $has_tablespace ? 'TABLESPACE space' : '' ]};
CREATE INDEX ON parts (b);
INSERT INTO parts SELECT i, x, x, ARRAY[x, x || x] FROM (SELECT i,
	decode(repeat(md5(i::text), i * 50), 'hex')::blobstate AS x FROM generate_series(1, 99) i) s;
));
$old->safe_psql($other, "ALTER TABLE $schema.blobext_map SET TABLESPACE space")
  if $has_tablespace;

$old->safe_psql('postgres', 'CREATE DATABASE empty');
$old->safe_psql('empty', 'CREATE EXTENSION blobext; CREATE TABLE t (b blobstate);');
$old->safe_psql('postgres', 'CREATE DATABASE without');
$old->safe_psql('postgres', 'CREATE DATABASE again');
$old->safe_psql('again', "CREATE EXTENSION blobext; CREATE TABLE t AS SELECT
	repeat('x', 100000)::bytea::blobstate AS b; DROP EXTENSION blobext CASCADE; DROP TABLE t;
	CREATE EXTENSION blobext; CREATE TABLE t AS SELECT repeat('y', 100000)::bytea::blobstate AS b");

# Methods of compression: labels, and values in frames.
my $has_compression =
  $old->safe_psql('postgres', q(SELECT count(*) FROM pg_proc WHERE proname = 'blobext_set_compression'));
$old->safe_psql('postgres', q(
CREATE TABLE packed (id int, b blobstate);
SELECT blobext_set_compression('packed', 'b', 'zstd');
INSERT INTO packed SELECT i, convert_to(repeat(i || ' packed ', i * 10000), 'UTF8') FROM generate_series(1, 30) AS i;
UPDATE packed SET b = blob_insert(b, 100, 'more') WHERE id % 2 = 0)) if $has_compression;

# Values whose digests are open, and the label of their column.
my $has_open = $old->safe_psql('postgres', q(SELECT count(*) FROM pg_proc WHERE proname = 'blobext_set_digest'));
my $open_sum = q(SELECT count(*), bool_and(blob_digest_is_open(b)), bool_and(sha256(b) = sha256(c)) FROM changed);
$old->safe_psql('postgres', q(
CREATE TABLE changed (id int, b blobstate, c bytea);
SELECT blobext_set_digest('changed', 'b', 'deferred');
SET blobext.rewrite_limit = '64kB';
INSERT INTO changed SELECT i, c, overlay(c PLACING 'x' FROM 100001) FROM generate_series(1, 3) AS i,
	LATERAL (SELECT convert_to(repeat(md5(i::text), 10000), 'UTF8') AS c OFFSET 0) AS s;
UPDATE changed SET b = blob_write(b, 100000, 'x'))) if $has_open;

# Operators in pg_catalog, and those that are named with the schema.  (Where they are only there, pg_upgrade
# cannot restore the first view.)
my $by_path = $old->safe_psql('postgres', q(SELECT count(*) FROM pg_operator
	WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprright = 'blobstate'::regtype));
$old->safe_psql('postgres', q(
CREATE VIEW by_path AS SELECT k.id, nullif(k.b, '\x00') AS n, CASE k.b WHEN l.b THEN 1 END AS c,
	k.b IS DISTINCT FROM l.b AS d, (k.id, k.b) < (l.id, l.b) AS r FROM kept AS k JOIN kept AS l USING (b)
UNION ALL
SELECT id, b, NULL, NULL, b OPERATOR(public.>) '\x80' FROM kept WHERE b OPERATOR(public.~~) '%')) if $by_path;
my $by_path_sum = q(SELECT count(*), md5(string_agg(v::text, '' ORDER BY v::text)) FROM by_path AS v);

# A store with holes, whose rows share values.
my $shared_sum = 'SELECT count(*), count(DISTINCT first_page), bool_and(sha256(b::bytea) = digest)
	FROM v, blob_extents(b) WHERE extent_no = 0';
my $megabytes = q(INSERT INTO v SELECT i, sha256(c), c FROM generate_series(%d, %d) AS i,
	LATERAL (SELECT decode(repeat(md5((i %% 100)::text), 65536), 'hex') AS c OFFSET 0) AS s);
my $punched = q(SELECT sum(pages) FROM blobext_space WHERE state = 'punched');
my $punched_pages;
if ($has_compression)
{
	$old->safe_psql('postgres', 'CREATE DATABASE holes');
	$old->safe_psql('holes', 'CREATE EXTENSION blobext; CREATE TABLE v (id int, digest bytea, b blobstate); '
		  . sprintf("$megabytes; $megabytes", 1, 60, 158, 160));
	$old->safe_psql('holes', q(CALL blobext_dedup('v', 'b')));
	$old->safe_psql('holes', 'DELETE FROM v WHERE id % 10 <> 0 AND id < 100');
	$old->safe_psql('holes', $_) foreach 'SELECT * FROM blobext_gc()', 'CHECKPOINT', 'SELECT * FROM blobext_gc()';
	is($old->safe_psql('holes', $shared_sum), '9|8|t', 'old: rows that share values');
	$punched_pages = $old->safe_psql('holes', $punched);
	cmp_ok($punched_pages, '>', 40 * 256, 'old: a store with holes');
}

# A store without checksums of pages beside those that have them.
my $has_sums = $old->safe_psql('postgres', q(SELECT count(*) FROM pg_proc WHERE proname = 'blobext_enable_checksums'));
my $sums = q(SELECT sum(checksummed_bytes), sum(bytes) FROM blobext_space WHERE extents IS NOT NULL);
if ($has_sums)
{
	$old->safe_psql('postgres', $_)
	  foreach 'ALTER SYSTEM SET blobext.page_checksums = off', 'SELECT pg_reload_conf()', 'CREATE DATABASE bare';
	$old->safe_psql('bare', q(CREATE EXTENSION blobext; CREATE TABLE t AS SELECT convert_to(repeat('b', 100000), 'UTF8')::blobstate AS b));
	$old->safe_psql('postgres', $_) foreach 'ALTER SYSTEM RESET blobext.page_checksums', 'SELECT pg_reload_conf()';
	like($old->safe_psql('postgres', $sums), qr/^([1-9]\d+)\|\1$/, 'old: all extents of a store have checksums');
	like($old->safe_psql('bare', $sums), qr/^0\|[1-9]/, 'old: no extent of the other store has checksums');
}

# SQL objects of an older version.
$old->safe_psql('postgres', 'CREATE DATABASE older');
$old->safe_psql('older', q(CREATE EXTENSION blobext VERSION '0.1.0'));
$old->safe_psql('older', q(CREATE TABLE t AS SELECT repeat('o', 100000)::bytea::blobstate AS b));

# A store whose first segment has no file any more.
if ($with_large)
{
	$old->safe_psql('postgres', 'CREATE DATABASE large');
	$old->safe_psql(
		'large', q(
CREATE EXTENSION blobext;
CREATE TABLE t AS SELECT blob_agg(decode(repeat(md5(i::text), 65536), 'hex')) AS b
	FROM generate_series(1, 1100) i;
INSERT INTO t SELECT blob_agg(decode(repeat(md5(i::text), 65536), 'hex'))
	FROM generate_series(1, 50) i;
CREATE INDEX ON t (b);
DELETE FROM t WHERE length(b) > 1000000000;));
	$old->safe_psql('large', 'VACUUM t; ');
	$old->safe_psql('large', 'SELECT * FROM blobext_gc()');
	$old->safe_psql('large', 'CHECKPOINT; ');
	$old->safe_psql('large', 'SELECT * FROM blobext_gc()');
	is($old->safe_psql('large', 'SELECT min(segment), count(*) > 0 FROM blobext_files()'),
		'1|t', 'old: the first segment was removed');
}

my %counts;
foreach my $query (['postgres', 'kept'], ['postgres', 'grown'], [$other, 'parts'], ['again', 't'])
{
	$counts{ $query->[1] } = $old->safe_psql($query->[0], "SELECT count(*) FROM $query->[1]");
}
my $parts_sum = "$path SELECT md5(string_agg(encode(sha256(b::bytea), 'hex') ||
	encode(sha256(d::bytea), 'hex') || encode(sha256(a[2]::bytea), 'hex'), '' ORDER BY id))
	FROM parts";
my $parts = $old->safe_psql($other, $parts_sum);
my $as_bytea_sum = "SELECT count(*), md5(string_agg(v::text, '' ORDER BY id)) FROM as_bytea AS v";
my $as_bytea = $old->safe_psql('postgres', $as_bytea_sum);
$by_path &&= $old->safe_psql('postgres', $by_path_sum);
is($old->safe_psql('postgres', 'SELECT count(*) FROM blobext_files() WHERE file_bytes >= bytes'),
	$old->safe_psql('postgres', 'SELECT count(*) FROM blobext_files()'),
	'old: files are there, by blobext_files()');
$old->stop;

# ---- tools ----

sub new_cluster
{
	my ($name) = @_;
	return blob_cluster($name, init => ['--data-checksums'], start => 0);
}

sub run_pg_upgrade
{
	my ($new, @options) = @_;
	my $old = $old;
	$old = shift @options if ref $options[0];
	my $here = getcwd();
	chdir $tmp;
	my @result = run_command(
		[
			"$new_install/bin/pg_upgrade", '-b', "$old_install/bin", '-B', "$new_install/bin",
			'-d', $old->data_dir, '-D', $new->data_dir, '-s', $new->host,
			'-p', $old->port, '-P', $new->port, @options
		]);
	my $status = $? >> 8;
	chdir $here;
	return ($status, join("\n", @result));
}

sub upgrade_ok
{
	my ($new, @options) = @_;
	my ($status, $output) = run_pg_upgrade($new, @options);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, 0, "pg_upgrade succeeds with the options (@options)") or diag($output);
	return;
}

# The command of blobext_upgrade; options: old (data directory), bin, environment.
sub command
{
	my ($new, %options) = @_;
	return [
		"$new_install/bin/blobext_upgrade", '-b', $options{bin} // "$old_install/bin",
		'-d', $options{old} // $old->data_dir, '-D', $new->data_dir, @{ $options{args} // [] } ];
}

# All below pg_blobext, and whether the old cluster is in use.
sub listing
{
	my @found;
	foreach my $directory (@_)
	{
		find(sub { push @found, join(' ', $File::Find::name, (lstat $_)[1, 3, 7]) },
			"$directory/pg_blobext");
		push @found, glob("$directory/global/pg_control*");
	}
	return join("\n", sort @found);
}

sub refused
{
	my ($new, $like, $name, %options) = @_;
	my @directories = ($options{old_runs} ? () : ($options{old} // $old->data_dir), $new->data_dir);
	@directories = grep { -d "$_/pg_blobext" } @directories;
	my $before = listing(@directories);
	my ($stdout, $stderr) = run_command(command($new, %options));
	my $status = $? >> 8;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return subtest "the upgrade is refused: $name" => sub {
		is($status, 1, 'blobext_upgrade ends with exit status 1');
		like($stderr, $like, 'the message says why it refuses');
		is(listing(@directories), $before, 'no file of both clusters has changed');
		ok($options{runs} || !-e $new->data_dir . '/postmaster.pid', 'blobext_upgrade leaves the new server down');
	};
}

sub carried
{
	my ($new, $name, %options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($stdout, $stderr) = run_command(command($new, %options));
	is($? >> 8, 0, $name) or diag("$stdout\n$stderr");
	return $stdout;
}

sub freed
{
	my ($new, $database) = @_;
	$new->safe_psql($database, 'VACUUM');
	return $new->safe_psql($database, 'SELECT freed_bytes FROM blobext_gc()');
}

# The map knows the holes; the files have them, also those that were copied, after a round; new values
# fill them.
sub holes_are_whole
{
	my ($new, $name) = @_;
	my $disk_bytes = 'SELECT sum(disk_bytes) FROM blobext_files()';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($new->safe_psql('holes', $shared_sum), '9|8|t', "$name: rows that share values");
	is($new->safe_psql('holes', $punched), $punched_pages, "$name: the map knows the holes");
	note("$name: files with holes take ", $new->safe_psql('holes', $disk_bytes));
	$new->safe_psql('holes', $_) foreach 'SELECT * FROM blobext_gc()', 'CHECKPOINT';
	cmp_ok($new->safe_psql('holes', $disk_bytes), '<', 20_000_000, "$name: the files have holes after a round");
	$new->safe_psql('holes', sprintf($megabytes, 201, 220));
	cmp_ok(stat_of($new, 'filled_bytes'), '>', 10_000_000, "$name: new values fill holes");
	is($new->safe_psql('holes', q(CALL blobext_dedup('v', 'b'))) =~ s/\|.*//r, 2, "$name: rows of new values share, too");
	is($new->safe_psql('holes', $shared_sum), '29|26|t', "$name: old and new values of a store with holes");
	check_is_clean($new, "$name: check of a store with holes", 'holes');
	return;
}

# Everything is as it was, and goes on.
sub new_is_whole
{
	my ($new, $name) = @_;

	$new->start;
	if ($has_sums)
	{
		like($new->safe_psql('postgres', $sums), qr/^([1-9]\d+)\|\1$/, "$name: all extents of a store have checksums");
		like($new->safe_psql('bare', $sums), qr/^0\|[1-9]/, "$name: no extent of the other store has checksums");
		is($new->safe_psql('bare', 'SELECT blobext_enable_checksums()'), 't', "$name: the format of the map is what it was");
		is($new->safe_psql('postgres', 'SELECT blobext_enable_checksums()'), 'f', "$name: the format with checksums, too");
		$new->safe_psql('bare', 'CALL blobext_add_checksums()');
		like($new->safe_psql('bare', $sums), qr/^([1-9]\d+)\|\1$/, "$name: a store without checksums gets them");
		is($new->safe_psql('bare', 'SELECT count(*) FROM t WHERE length(b::bytea) = 100000'), 1, "$name: the value with new checksums");
	}
	foreach my $table ('kept', 'grown')
	{
		is($new->safe_psql('postgres', "SELECT count(*) FROM $table"),
			$counts{$table}, "$name: rows of $table");
		values_are_intact($new, $table, "$name: contents of $table");
	}
	is($new->safe_psql($other, $parts_sum), $parts, "$name: partitions, domains, arrays");
	is($new->safe_psql('postgres', $as_bytea_sum), $as_bytea, "$name: functions in pg_catalog");
	is($new->safe_psql('postgres', $by_path_sum), $by_path, "$name: operators in pg_catalog and by their names")
	  if $by_path;
	is( $new->safe_psql('postgres', q(
		INSERT INTO packed SELECT 31, convert_to(repeat('31 packed ', 310000), 'UTF8');
		SELECT count(*), bool_and(sha256(b::bytea) = sha256(b)), bool_and(blob_compression(b) = 'zstd') FROM packed)),
		'31|t|t', "$name: methods of columns, compressed values") if $has_compression;
	is($new->safe_psql('postgres', "SET blobext.rewrite_limit = '64kB'; UPDATE changed SET b = blob_write(b, 200000, 'y'), c = overlay(c PLACING 'y' FROM 200001); $open_sum"),
		'3|t|t', "$name: values with open digests, and the label of their column") if $has_open;
	holes_are_whole($new, $name) if $has_compression;
	is($new->safe_psql('again', "SELECT b = repeat('y', 100000)::bytea FROM t"),
		't', "$name: the value of an extension that was made anew is right");
	is($new->safe_psql('older', "SELECT b::bytea = repeat('o', 100000)::bytea FROM t"),
		't', "$name: the value of an extension that was updated is right");
	is( $new->safe_psql('postgres',
			"INSERT INTO defaults (id) VALUES (2);
			SELECT id, small, encode(b::bytea, 'hex') = '$long' FROM defaults ORDER BY id"),
		"1|\\x736d616c6c|t\n2|\\x736d616c6c|t",
		"$name: defaults of columns are old and new rows' values");
	is( $new->safe_psql('postgres', q(SET enable_seqscan = off; SELECT count(*) FROM kept k
		WHERE NOT EXISTS (SELECT FROM kept o WHERE o.b = k.b AND o.id = k.id))),
		'0', "$name: each value is found by its index");
	is( $new->safe_psql('postgres', q(CREATE EXTENSION amcheck;
		SELECT bt_index_check(c, true) FROM unnest('{kept_content,kept_digest}'::regclass[]) c;)),
		"\n", "$name: amcheck finds both indexes sound");
	foreach my $database ('postgres', 'empty', 'again', 'older', $with_large ? 'large' : ())
	{
		check_is_clean($new, "$name: check of $database", $database);
	}
	is($new->safe_psql($other, "SELECT * FROM $schema.blobext_check()"), '',
		"$name: check of the other database");

	cmp_ok(freed($new, 'postgres'), '>', 3_000_000, "$name: the collector frees what was left");
	$new->safe_psql('postgres', 'CHECKPOINT');
	make_values($new, 'fresh', 4_000_000, map { int(rand(300_000)) } 1 .. 20);
	$new->safe_psql('empty', "INSERT INTO t VALUES (repeat('z', 100000)::bytea)");
	$new->safe_psql($other, "$path INSERT INTO parts SELECT id + 500, d, b, a FROM parts");
	$new->safe_psql('postgres', q(UPDATE grown SET b = blob_append(b, repeat('n', 50000)::bytea);
		UPDATE grown SET digest = encode(sha256(b), 'hex')));
	$new->restart;
	values_are_intact($new, $_, "$name: $_ after new values") foreach 'kept', 'grown', 'fresh';
	no_page_is_shared($new, "$name: no page is in two extents", 'kept', 'fresh');
	check_is_clean($new, "$name: check after new values", $_)
	  foreach 'postgres', 'empty', $with_large ? 'large' : ();
	$new->stop;
	unlike(slurp_file($new->logfile), qr/PANIC|terminated by signal|TRAP/, "$name: the server's log has no PANIC and no crash");
	return;
}

# A new cluster that has served its purpose, its part of the tablespace too.
sub remove
{
	my ($new) = @_;
	system_or_bail('rm', '-rf', $new->data_dir,
		$has_tablespace ? glob("$tmp/space/PG_${new_major}_*") : ());
	return;
}

# ---- by copying ----

my $new = new_cluster('copied');
my $configuration = slurp_file($new->data_dir . '/postgresql.conf');

$new->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
my ($status, $output) = run_pg_upgrade($new, '--check');
isnt($status, 0, 'pg_upgrade --check fails where blobext is not preloaded');
my $loaded = '';
find(sub { $loaded .= slurp_file($_) if $_ eq 'loadable_libraries.txt' }, $new->data_dir);
like($loaded, qr/must be loaded via shared_preload_libraries/, 'pg_upgrade --check says that blobext is not preloaded');
$new->append_conf('postgresql.conf', "shared_preload_libraries = 'blobext'\n");

refused($new, qr/Run pg_upgrade first/, 'before pg_upgrade');
upgrade_ok($new, '--check');
upgrade_ok($new);

# The new server without its files.
$new->start;
fails_with($new, 'SELECT sum(length(b::bytea)) FROM kept', '58P01', qr/pg_blobext/,
	'what was in extents cannot be read');
fails_with($new, "INSERT INTO kept (b) VALUES (repeat('a', 100000)::bytea)", '58P01',
	qr/run blobext_upgrade/, 'nothing is stored in extents');
$new->safe_psql('postgres', q(ANALYZE; SELECT count(*), max(length(b)) FROM kept));
refused($new, qr/the new server seems to be running/, 'new server runs', runs => 1);
$new->stop;
is(join(' ', glob($new->data_dir . '/pg_blobext/*')), '', 'no files were made');

refused($new, qr/SQL objects of blobext 0.1.0/, 'SQL objects of an older version');
$new->start;
$new->safe_psql('older', 'ALTER EXTENSION blobext UPDATE');
$new->stop;

# Copies of the old cluster, each damaged in one way.
my $copy = "$tmp/old_copy";

sub copy_old
{
	system_or_bail('rm', '-rf', $copy);
	system_or_bail('cp', '-a', $old->data_dir, $copy);
	return;
}

copy_old();
append_to_file("$copy/postgresql.conf", "port = @{[ $old->port ]}\n");
my @directories = map { basename($_) } glob("$copy/pg_blobext/*.*");
my ($expected) = grep { /^5\./ } @directories;		# of database postgres
my $segment = "$copy/pg_blobext/$expected/00000000";

rename($segment, "$segment.away");
refused($new, qr/file ".*00000000" is missing/, 'file is missing', old => $copy);
rename("$segment.away", $segment);

system_or_bail('cp', $segment, "$segment.whole");
truncate($segment, (-s $segment) - 4096);
refused($new, qr/too short.*postgres/, 'file is too short', old => $copy);
rename("$segment.whole", $segment);

rename("$copy/pg_blobext/$expected", "$copy/pg_blobext/away");
refused($new, qr/has no extent store of database "postgres"/, 'store is missing', old => $copy);
rename("$copy/pg_blobext/away", "$copy/pg_blobext/$expected");

my $unknown = $new->data_dir . "/pg_blobext/$expected";
mkdir $unknown;
refused($new, qr/not made by blobext_upgrade/, 'directory of unknown origin', old => $copy);
rmdir $unknown;

append_to_file("$copy/PG_VERSION", '0');
refused($new, qr/do not belong together/, 'programs of another version', old => $copy);
system_or_bail('cp', $old->data_dir . '/PG_VERSION', "$copy/PG_VERSION");

# The same database OID and name, another store.
my $stranger = blob_cluster('stranger', init => ['--data-checksums'], install => $old_install);
make_values($stranger, 'kept', 100_000);
$stranger->stop;
refused($new, qr/has no extent store of database/, 'another cluster',
	old => $stranger->data_dir);
refused($new, qr/old and new cluster are the same/, 'one cluster', old => $new->data_dir,
	bin => "$new_install/bin");

# Limits of the file systems: space, and clones.
mkdir "$tmp/fake";
append_to_file("$tmp/fake/df", "#!/bin/sh\necho Avail; echo 5000000\n");
chmod 0755, "$tmp/fake/df";
{
	local $ENV{PATH} = "$tmp/fake:$ENV{PATH}";
	refused($new, qr/not enough space.*5000000 are available/s, 'no space', old => $copy);
}
unlink "$tmp/fake/df";
refused($new, qr/cannot clone files/, 'no clones', old => $copy, args => ['--clone'])
  if system("cp --reflink=always $segment $tmp/clone 2>/dev/null") != 0;

# Used after pg_upgrade, crashed, running.
my $pg_ctl = "$old_install/bin/pg_ctl";
system_or_bail($pg_ctl, '-s', '-w', '-D', $copy, '-l', "$tmp/copy.log", 'start');
refused($new, qr/the old server seems to be running/, 'old server runs', old => $copy,
	old_runs => 1);		# its launcher removes the dropped extension's files
command_ok(
	[
		"$old_install/bin/psql", '-X', '-q', '-h', $old->host, '-p', $old->port, '-d', 'postgres',
		'-c', "INSERT INTO kept (b) VALUES (repeat('a', 100000)::bytea)"
	],
	'the old server stores a value');
system_or_bail($pg_ctl, '-s', '-w', '-D', $copy, '-m', 'immediate', 'stop');
refused($new, qr/not shut down cleanly/, 'old server has crashed', old => $copy);
system_or_bail($pg_ctl, '-s', '-w', '-D', $copy, '-l', "$tmp/copy.log", 'start');
system_or_bail($pg_ctl, '-s', '-w', '-D', $copy, 'stop');
refused($new, qr/extent maps of database "postgres" differ/, 'old server was used', old => $copy);
system_or_bail('rm', '-rf', $copy);

# Killed while it copies: the second file is cut short.
append_to_file("$tmp/fake/cp", <<'END');
#!/bin/bash
count=$(cat "$0.count" 2>/dev/null || echo 0)
echo $((count + 1)) > "$0.count"
[ $count -ge 1 ] || exec /bin/cp "$@"
head -c 5000000 "${@: -2:1}" > "${@: -1}/$(basename "${@: -2:1}")"
kill -9 $PPID
END
chmod 0755, "$tmp/fake/cp";
{
	local $ENV{PATH} = "$tmp/fake:$ENV{PATH}";
	run_command(command($new));
	isnt($?, 0, 'the tool is killed while it copies');
}
my @made = map { basename($_) } glob($new->data_dir . '/pg_blobext/*');
is(scalar(grep { /^upgrade\./ } @made), 1, 'a copy that was killed leaves one directory under way');
is(scalar(grep { !/^upgrade\./ } @made), 1, 'a copy that was killed leaves one directory that is complete');

my $listing = listing($new->data_dir);
like(carried($new, 'the tool succeeds with --check alone', args => ['--check']), qr/match/, '--check says that stores and databases match');
is(listing($new->data_dir), $listing, '--check changes no file of the new cluster');
my $said = carried($new, 'the tool that was killed carries the stores when it is run again');
like($said, qr/belongs to no database/, 'the tool tells what stays behind');
is(scalar(grep { basename($_) =~ /^upgrade\./ } glob($new->data_dir . '/pg_blobext/*')),
	0, 'no directory under way is left after the second run');
like(carried($new, 'the tool can be run once more'), qr/to copy: 0 \(0 bytes\)/, 'a run after a complete one has nothing to copy');
my ($file) = glob($new->data_dir . "/pg_blobext/$expected/00000000");
cmp_ok((stat $file)[12] * 512, '>=', -s $file, 'files are copied without holes');
is((stat $file)[2] & 07777, 0600, 'copied files have the mode 0600');
new_is_whole($new, 'after stores were copied');

$old->start;
values_are_intact($old, 'kept', 'the old cluster still works');
check_is_clean($old, 'the check of the old cluster finds nothing');
$old->safe_psql('older', 'ALTER EXTENSION blobext UPDATE');
$old->stop;
remove($new);

# ---- relations copied, segments linked ----

$new = new_cluster('mixed');
upgrade_ok($new);
like(carried($new, 'segments are linked where pg_upgrade has copied', args => ['--link']), qr/is disabled/,
	'the tool says that the old cluster is disabled');
is((stat $new->data_dir . "/pg_blobext/$expected/00000000")[3], 2, 'a linked segment has two links');
ok(!-e $old->data_dir . '/global/pg_control', 'the old cluster has no pg_control');
carried($new, 'the tool can be run again after it has linked', args => ['--link']);
remove($new);
# As it says: the new server was not used.
rename($old->data_dir . '/global/pg_control.old', $old->data_dir . '/global/pg_control');

# ---- by linking ----

$new = new_cluster('linked');
upgrade_ok($new, '--link');
carried($new, 'segments are linked where pg_upgrade has linked', args => ['-k']);
new_is_whole($new, 'linked');

# ---- by swapping ----

if ($new_major >= 18)
{
	$new = new_cluster('swapped');
	upgrade_ok($new, $stranger, '--swap');
	carried($new, 'segments are linked where pg_upgrade has swapped', args => ['-k'], old => $stranger->data_dir);
	$new->start;
	values_are_intact($new, 'kept', 'swapped: the values are whole');
	make_values($new, 'fresh', 300_000);
	check_is_clean($new, 'swapped: the check finds nothing');
	$new->stop;
}

done_testing();
