# Consumers of changes: what output plugins make of a blobstate, and what docs/cdc.md advises.
#
# wal2json and decoderbufs, Debian's packages, choose a form by the OID of a column's type: bytea is one that
# they know, blobstate is none, and gets the text of its output function.  examples/cdc/consume.py reads
# pgoutput by psycopg2: content whole; digests by a column list, then content in pieces by the digest; and each
# version of a table with a history.  A database where the columns are bytea stands between.
#
# Without these plugins what needs them is left out.  The sizes of changes are measured: with a column list no
# byte of content is sent.
#
# Seen to fail: with a publication of all columns (changes have content); with a consumer that does not ask for
# the digest (it takes the content that the row has by now, and finds another digest).
use strict;
use warnings;

use Digest::SHA 'sha256_hex';
use FindBin;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $libdir = qx(pg_config --pkglibdir);
chomp $libdir;
my ($python) = grep { system("$_ -c 'import psycopg2' 2>/dev/null") == 0 } grep { defined } $ENV{PYTHON}, 'python3', '/usr/bin/python3';
my @missing = map { "postgresql-NN-$_" } grep { !-f "$libdir/$_.so" } 'wal2json', 'decoderbufs';
my $has_plugins = !@missing;
push @missing, 'python3-psycopg2' if !defined $python;
die "missing: @missing\n" if @missing && !$ENV{BLOBEXT_TEST_MAY_SKIP};
plan skip_all => "packages @missing" if !defined $python;

my $node = blob_cluster('main', streaming => 'logical', conf => "wal_level = logical\nautovacuum = off\n");
sub sql
{
	return $node->safe_psql('postgres', join(";\n", @_));
}

# Minor versions since 2026 decode with plugins only that are listed.
if (sql(q(SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries')))
{
	my $plugins = join(', ', 'pgoutput', $has_plugins ? ('wal2json', 'decoderbufs') : ());
	sql($_) foreach ("ALTER SYSTEM SET output_plugin_libraries = $plugins", 'SELECT pg_reload_conf()');
}

my $short = "a\\b\0c\"\xff";
my $long = content('cdc', 300_000);

# ---- plugins that know types by their OIDs ----

sql('CREATE TABLE pair (id int PRIMARY KEY, b blobstate, y bytea)');
SKIP:
{
	skip("packages @missing", 1) if !$has_plugins;
	sql(map { "SELECT pg_create_logical_replication_slot('$_', '$_')" } 'wal2json', 'decoderbufs');
	foreach my $value ($short, $long, '')
	{
		sql(sprintf('TRUNCATE pair; INSERT INTO pair VALUES (1, %s, %s)', (literal($value)) x 2));
		my ($change) = grep { $_->{action} eq 'I' } map { decode_json($_) } split /\n/,
		  sql(q(SELECT data FROM pg_logical_slot_get_changes('wal2json', NULL, NULL, 'format-version', '2')));
		my %column = map { $_->{name} => $_ } @{ $change->{columns} };
		is($column{b}{type}, 'blobstate', 'wal2json names the type');
		ok($column{b}{value} eq '\x' . unpack('H*', $value), 'wal2json gives blobstate as \x and hex digits, ' . length($value) . ' bytes');
		ok($column{y}{value} eq unpack('H*', $value), 'wal2json gives bytea as hex digits, ' . length($value) . ' bytes');
		my @rows = split /\n/, sql(q(SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('decoderbufs', NULL, NULL)));
		my %message = map { %$_ } grep { exists $_->{b} } map { protobuf_columns(pack('H*', $_)) } @rows;
		ok($message{b}{bytes} eq '\x' . unpack('H*', $value), 'decoderbufs gives blobstate as bytes of \x and hex digits, ' . length($value) . ' bytes');
		is($message{b}{type}, sql(q(SELECT 'blobstate'::regtype::oid)), 'decoderbufs gives the OID of the type');
		ok($message{y}{bytes} eq $value, 'decoderbufs gives bytea as bytes, ' . length($value) . ' bytes');
	}
	sql(map { "SELECT pg_drop_replication_slot('$_')" } 'wal2json', 'decoderbufs');
}

# Fields of a message of protocol buffers: [number, value], of a varint or of bytes.
sub protobuf_fields
{
	my ($data) = @_;
	my @fields;
	my $varint = sub {
		my ($value, $shift) = (0, 0);
		while (1)
		{
			my $byte = ord(substr($data, 0, 1, ''));
			$value |= ($byte & 127) << $shift;
			$shift += 7;
			return $value if $byte < 128;
		}
	};
	while (length $data)
	{
		my $key = $varint->();
		my $kind = $key & 7;
		push @fields, [ $key >> 3, $kind == 0 ? $varint->() : $kind == 2 ? substr($data, 0, $varint->(), '') :
			substr($data, 0, $kind == 1 ? 8 : 4, '') ];
	}
	return @fields;
}

# The new columns of a row: RowMessage.new_tuple is field 4, and of a column 1 the name, 2 the type, 9 bytes.
sub protobuf_columns
{
	my ($message) = @_;
	my %columns;
	foreach my $field (grep { $_->[0] == 4 || $_->[0] == 5 } protobuf_fields($message))
	{
		my %column = map { $_->[0] => $_->[1] } protobuf_fields($field->[1]);
		$columns{ $column{1} } = { type => $column{2}, bytes => $column{9} } if defined $column{1};
	}
	return \%columns;
}

# ---- a consumer of pgoutput ----

my $directory = "$PostgreSQL::Test::Utils::tmp_check/fetched";
mkdir $directory;

# The changes since the slot was made, or read last.
sub changes
{
	my ($slot, $publication, @options) = @_;
	# The commit of a change ends beyond the position that its statement has seen.
	my $until = sql('SELECT pg_current_wal_lsn()');
	my ($out, $error) = run_command([ $python, '-B', 'examples/cdc/consume.py', $node->connstr('postgres'), $slot, $publication,
			'--until', $until, @options ]);
	is($error, '', "consumer of slot $slot: no error");
	return map { decode_json($_) } split /\n/, $out;
}

sub shown
{
	my ($value) = @_;
	return { bytes => length($value), sha256 => sha256_hex($value) };
}

sub make_slot
{
	my ($slot) = @_;
	sql("SELECT pg_create_logical_replication_slot('$slot', 'pgoutput')");
	return;
}

sql('CREATE PUBLICATION whole FOR TABLE pair');
make_slot('whole');
sql(sprintf('INSERT INTO pair VALUES (2, %s, %s), (3, NULL, NULL), (4, %s, NULL)', (literal($short)) x 2, literal($long)),
	'UPDATE pair SET id = 5 WHERE id = 4', 'DELETE FROM pair WHERE id = 3');
is_deeply([ changes('whole', 'whole') ], [
		{ kind => 'I', table => 'public.pair', row => { id => '2', b => shown($short), y => shown($short) } },
		{ kind => 'I', table => 'public.pair', row => { id => '3', b => undef, y => undef } },
		{ kind => 'I', table => 'public.pair', row => { id => '4', b => shown($long), y => undef } },
		{ kind => 'U', table => 'public.pair', row => { id => '5', b => shown($long), y => undef } },
		{ kind => 'D', table => 'public.pair', row => { id => '3', b => undef, y => undef } } ],
	'content comes whole, as bytea does');

# ---- digests by a column list ----

sql(split /;\n/, q(CREATE TABLE document (id bigint PRIMARY KEY, name text, content blobstate, content_bytes bigint, content_sha256 bytea);
CREATE FUNCTION describe_content() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	NEW.content_bytes := length(NEW.content); NEW.content_sha256 := sha256(NEW.content); RETURN NEW;
END $$;
CREATE TRIGGER describe_content BEFORE INSERT OR UPDATE ON document FOR EACH ROW EXECUTE FUNCTION describe_content();
CREATE PUBLICATION described FOR TABLE document (id, name, content_bytes, content_sha256)));
make_slot('described');
make_slot('size');
sql("INSERT INTO document VALUES (1, 'first', " . literal($long) . ')', "UPDATE document SET name = 'renamed'");
my $large = 'convert_to(repeat(md5(5::text), 200000), \'UTF8\')';
sql("INSERT INTO document VALUES (2, 'second', $large)");
my %size_of = (first => $long, renamed => $long, second => ('e4da3b7fbbce2345d7772b0674a318d5' x 200_000));
is_deeply([ changes('described', 'described', '--fetch', $directory) ], [
		map { { kind => $_->[0], table => 'public.document', row => { id => $_->[1], name => $_->[2],
				content_bytes => length($size_of{ $_->[2] }), content_sha256 => shown(pack('H*', sha256_hex($size_of{ $_->[2] }))) } } }
		  [ 'I', '1', 'first' ], [ 'U', '1', 'renamed' ], [ 'I', '2', 'second' ] ],
	'changes without content have size and digest');
is(join(' ', map { sha256_hex(slurp_file("$directory/" . sha256_hex($_))) } $long, $size_of{second}),
	join(' ', map { sha256_hex($_) } $long, $size_of{second}), 'content is fetched by its digest');
is(sql(q(SELECT max(length(data)) < 200 FROM pg_logical_slot_get_binary_changes('size', NULL, NULL, 'proto_version', '1',
	'publication_names', 'described'))), 't', 'no change has content with it');

# Generated columns are published from 18 on.
if ($node->pg_version >= 18)
{
	sql('CREATE TABLE generated (id bigint PRIMARY KEY, content blobstate, content_sha256 bytea GENERATED ALWAYS AS (sha256(content)) STORED)',
		'CREATE PUBLICATION generated FOR TABLE generated (id, content_sha256)');
	make_slot('generated');
	sql("INSERT INTO generated VALUES (1, 'generated')");
	is_deeply([ changes('generated', 'generated') ], [ { kind => 'I', table => 'public.generated',
			row => { id => '1', content_sha256 => shown(pack('H*', sha256_hex('generated'))) } } ], 'a generated column has the digest');
}

# Content that is replaced before it is read: the new one comes with its own change.
sql("UPDATE document SET content = 'gone soon' WHERE id = 1", "UPDATE document SET content = 'there' WHERE id = 1");
is(scalar(changes('described', 'described', '--fetch', $directory)), 2, 'both changes of a row come');
ok(!-e "$directory/" . sha256_hex('gone soon') && -e "$directory/" . sha256_hex('there'), 'only content that is there is fetched');
is(join(' ', grep { /part/ } glob("$directory/*")), '', 'no part of a file is left');

# ---- a database with bytea between ----

SKIP:
{
	skip("packages @missing", 1) if !$has_plugins;
	$node->safe_psql('postgres', 'CREATE DATABASE plain');
	$node->safe_psql('plain', 'CREATE TABLE pair (id int PRIMARY KEY, b bytea, y bytea)');
	sql("SELECT pg_create_logical_replication_slot('relay', 'pgoutput')");
	# Changes come to the slot in "plain" once their WAL is flushed, which a subscription waits for only with synchronous_commit.
	$node->safe_psql('plain', "CREATE SUBSCRIPTION relay CONNECTION '" . $node->connstr .
		" dbname=postgres' PUBLICATION whole WITH (create_slot = false, slot_name = 'relay', synchronous_commit = on)");
	$node->wait_for_subscription_sync($node, 'relay', 'plain');
	$node->safe_psql('plain', "SELECT pg_create_logical_replication_slot('relayed', 'wal2json')");
	sql(sprintf('INSERT INTO pair VALUES (7, %s, NULL)', literal($short)));
	$node->wait_for_catchup('relay');
	my ($relayed) = grep { $_->{action} eq 'I' } map { decode_json($_) } split /\n/, $node->safe_psql('plain',
		q(SELECT data FROM pg_logical_slot_get_changes('relayed', NULL, NULL, 'format-version', '2')));
	is($relayed->{columns}[1]{type} . ' ' . $relayed->{columns}[1]{value}, 'bytea ' . unpack('H*', $short),
		'behind a subscription with bytea, plugins see bytea');
	$node->safe_psql('plain', "SELECT pg_drop_replication_slot('relayed')");
	$node->safe_psql('plain', 'DROP SUBSCRIPTION relay');
}

$node->stop;
done_testing();
