# No false alarm: whatever moment a server is killed at, each page that a value has comes back with its
# checksum.
#
# Clients insert, append to and delete values, and change larger ones in the middle, which makes trees of
# pieces with a digest and without, all in a hurry; then all processes are killed with SIGKILL, and
# in some rounds again while the server recovers.  After each start every value is read and compared with its
# digest, in the order of its storage and past the buffer, and blobext_check() finds nothing.  In some
# rounds the collector has freed pages, which other values get.  Which transactions were committed is a
# matter of crash.pl; this test has many short rounds.
#
# BLOBEXT_SUMS_ROUNDS rounds (1) for each of the settings below, or of those that BLOBEXT_SUMS_SETTINGS names.
#
# Seen to fail with set_sums() of replay left out.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use lib $FindBin::RealBin;
use BlobTest;

my $rounds = $ENV{BLOBEXT_SUMS_ROUNDS} // 1;
my $seed = $ENV{BLOBEXT_SEED} // int(rand(1_000_000_000));
note("seed $seed");
srand($seed);

my $doubts = 0;
my %settings = (
	replica => "wal_level = replica\n",
	minimal => "wal_level = minimal\nmax_wal_senders = 0\n",
	unlogged => "wal_level = replica\nblobext.wal_content = off\nblobext.tail_extents = off\n",
	bare => "wal_level = replica\nfull_page_writes = off\nblobext.cache_size = 0\nblobext.background_sync = off\n");

# Trees of pieces: b has digests, those of o are open.  edit() changes one value of each
# column in the middle, beside bytea of which only the digest is kept.
sub make_edits
{
	my ($node) = @_;
	$node->safe_psql('postgres', q(
CREATE TABLE edited (id serial PRIMARY KEY, digest text, b blobstate, o blobstate);
SELECT blobext_set_digest('edited', 'o', 'deferred');
CREATE FUNCTION noise(n integer) RETURNS bytea LANGUAGE sql AS
	$$ SELECT decode(repeat(md5(random()::text), 1 + n / 16), 'hex') $$;
CREATE FUNCTION changed(v blobstate, at int, n int, x bytea) RETURNS blobstate LANGUAGE sql AS
	$$ SELECT blob_insert(blob_delete(v, at, n), at, x) $$;
CREATE PROCEDURE edit() LANGUAGE plpgsql AS $$
DECLARE
	chosen int;
	c bytea;
	at int;
	n int := random() ^ 2 * 30000;
	x bytea := noise((random() ^ 2 * 30000)::int);
BEGIN
	SELECT id, b::bytea INTO chosen, c FROM edited ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
	IF chosen IS NULL THEN
		RETURN;
	END IF;
	IF octet_length(c) < 60000 OR random() < 0.02 THEN
		c := noise(60000 + (random() * 300000)::int);
		UPDATE edited SET b = c, o = c, digest = encode(sha256(c), 'hex') WHERE id = chosen;
	END IF;
	at := random() * octet_length(c);
	UPDATE edited SET b = changed(b, at, n, x), o = changed(o, at, n, x),
		digest = encode(sha256(substr(c, 1, at) || x || substr(c, at + n + 1)), 'hex') WHERE id = chosen;
END $$));
	$node->safe_psql('postgres', q(INSERT INTO edited (digest, b, o) SELECT encode(sha256(c), 'hex'), c, c
		FROM (SELECT noise(60000 + i * 40000) AS c FROM generate_series(1, 6) AS i) AS s));
	return;
}

# The output of blobext_verify about a server that is down, if it finds damage.  Pages in doubt are counted:
# transactions that did not end may have left them, after a round of the collector in extents that values have.
sub verify
{
	my ($node) = @_;
	my $is_sound = IPC::Run::run([ 'blobext_verify', '-D', $node->data_dir ], '>', \my $out, '2>', \my $err);
	my $status = $is_sound ? 0 : $? >> 8;
	$doubts += $status == 3;
	return $status == 0 || $status == 3 ? () : ("$status: $out $err");
}

# Start clients that call traffic() and edit() until the server is gone.
sub start_clients
{
	my ($node, $count) = @_;
	my @clients;
	foreach (1 .. $count)
	{
		my %client = (out => '');
		$client{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'CALL hurry()' ],
			'<', \undef, '>', \$client{out}, '2>', \$client{out});
		push @clients, \%client;
	}
	return @clients;
}

foreach my $name (split / /, $ENV{BLOBEXT_SUMS_SETTINGS} // join(' ', sort keys %settings))
{
	my $node = blob_cluster($name, conf => $settings{$name} . "autovacuum = off\ncheckpoint_timeout = 30s\nblobext.rewrite_limit = 32kB\n");
	make_traffic($node, 12_000);
	make_edits($node);
	$node->safe_psql('postgres', q(CREATE PROCEDURE hurry() LANGUAGE plpgsql AS $$
		BEGIN LOOP CALL traffic(); COMMIT; CALL edit(); COMMIT; END LOOP; END $$));
	my ($values, @problems, @alarms) = (0);
	$doubts = 0;
	for my $round (1 .. $rounds)
	{
		my @clients = start_clients($node, 3);
		# An append that two clients are in the middle of makes one of them fail.
		$node->poll_query_until('postgres', 'SELECT count(*) > ' . int(rand(25)) . ' FROM busy') or die;
		sleep(rand(0.4));
		kill_everything($node);
		$_->{run}->finish foreach @clients;
		kill_in_recovery($node, 0.1) if rand() < 0.2;
		$node->start;
		my ($result, $out, $error) = $node->psql('postgres', q(
SELECT count(*), count(*) FILTER (WHERE encode(sha256(b::bytea), 'hex') <> digest)
FROM (SELECT digest, b FROM busy UNION ALL SELECT digest, b FROM edited UNION ALL SELECT digest, o FROM edited) AS v;
SELECT relation, tid, problem FROM blobext_check();
DELETE FROM busy WHERE id < (SELECT max(id) FROM busy) - 60));
		my ($read, $found) = split /\n/, $out, 2;
		$values += $1 if $read =~ /^(\d+)\|0$/;
		push @problems, "round $round: $out $error" if $result != 0 || $error ne '' || defined $found || $read !~ /\|0$/;
		next if $round % 3 != 0;
		$node->safe_psql('postgres', "VACUUM $_") foreach qw(busy edited);
		$node->safe_psql('postgres', 'SELECT * FROM blobext_gc()');
		$node->stop;
		push @alarms, map { "round $round: $_" } verify($node);
		$node->start;
	}
	is("@problems", '', "$name: after each crash every value has its bytes, and its checksums");
	cmp_ok($values, ">", $rounds, "$name: values were read after crashes");
	note("$name: $rounds crashes, $values values read, pages in doubt in $doubts of @{[ 1 + int($rounds / 3) ]} looks");
	my ($trees, $open) = split /\|/, $node->safe_psql('postgres', q(SELECT count(*) FILTER (WHERE blob_stored_length(b) > length(b)),
		count(*) FILTER (WHERE blob_digest_is_open(o)) FROM edited));
	cmp_ok($trees, '>', 0, "$name: trees of pieces were among them");
	cmp_ok($open, '>', 0, "$name: open digests were among them");
	$node->stop;
	push @alarms, verify($node);
	is("@alarms", '', "$name: blobext_verify finds no damage");
	$node->clean_node;
}

done_testing();
