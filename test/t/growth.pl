# Growth and changes of values under competition, aborts and crashes.
#
# One by one: sessions that grow one version at the same time, with commits and rollbacks; claims
# that are only in the WAL when all processes are killed.  Then at random: clients grow, cut and
# overwrite versions of each other's values, rows hold the same content as bytea; all processes are
# killed, or the power is cut, and after the start every row must be whole, the check clean, and
# the same again after a collection.
#
# BLOBEXT_GROWTH_ROUNDS (2) rounds for each of BLOBEXT_GROWTH_SETTINGS (all; blanks between).
#
# That the test can fail: with a comparison in blob_map_claim() that lets every session win, "two
# sessions" and all rounds do; with a raise_mark() that does nothing, "a claim that is replayed"
# does.
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

my $rounds = $ENV{BLOBEXT_GROWTH_ROUNDS} // 2;
my $small = $ENV{BLOBEXT_SMALL_FS};

my %settings = (
	minimal => "wal_level = minimal\nmax_wal_senders = 0\n",
	replica => "wal_level = replica\n",
	power_minimal => "wal_level = minimal\nmax_wal_senders = 0\n");

my $schema = q(
CREATE TABLE g (id serial PRIMARY KEY, b blobstate, o bytea);
CREATE FUNCTION bytes(n int, seed text) RETURNS bytea LANGUAGE sql AS $$
	SELECT coalesce(substring(string_agg(sha256(convert_to(seed || i, 'UTF8')), NULL) FROM 1 FOR n), '')
	FROM generate_series(1, (n + 31) / 32) i
$$;
INSERT INTO g (b, o) SELECT x, x FROM generate_series(1, 20) i, bytes(i * i * 500, 'start' || i) x;

-- A changed version of a row, in its place or as a row of its own.
CREATE FUNCTION change_one() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	chosen g;
	x bytea := bytes((random() ^ 3 * 40000)::int, random()::text);
	dice float := random();
	at int;
BEGIN
	SELECT * INTO chosen FROM g ORDER BY random() LIMIT 1;
	at := random() * length(chosen.b);
	IF dice < 0.7 AND length(chosen.b) < 2000000 THEN
		chosen.b := chosen.b || x;
		chosen.o := chosen.o || x;
	ELSIF dice < 0.85 THEN
		chosen.b := blob_truncate(chosen.b, at);
		chosen.o := substr(chosen.o, 1, at);
	ELSE
		chosen.b := blob_write(chosen.b, at, x);
		chosen.o := substr(chosen.o, 1, at) || x || substr(chosen.o, at + length(x) + 1);
	END IF;
	IF random() < 0.5 THEN
		UPDATE g SET b = chosen.b, o = chosen.o WHERE id = chosen.id;
	ELSE
		INSERT INTO g (b, o) VALUES (chosen.b, chosen.o);
	END IF;
	DELETE FROM g WHERE id IN (SELECT id FROM g WHERE id % 4 <> 0 ORDER BY id DESC OFFSET 60)
		AND random() < 0.1;
END $$;
);

my $different = q(SELECT id, length(b), length(o) FROM g WHERE b::bytea <> o
	OR sha256(b) <> sha256(o) OR length(b) <> length(o) OR b IS NULL <> (o IS NULL));

# ---- one by one ----

sub two_sessions
{
	my ($node) = @_;
	my $first = $node->background_psql('postgres');
	my $changed = sub { my @a = @_; map { "$_ || bytes($a[0], '$a[1]')" } qw(b o) };
	my $grow = sub { sprintf('UPDATE g SET b = %s, o = %s WHERE id = 5', $changed->(@_)) };
	my $copy = sub { sprintf('INSERT INTO g (b, o) SELECT %s, %s FROM g WHERE id = 5', $changed->(@_)) };

	$node->safe_psql('postgres', $grow->(9_000, 'a'));
	$first->query_safe('BEGIN');
	$first->query_safe($grow->(9_000, 'b'));
	$node->safe_psql('postgres', $copy->(9_000, 'c'));
	$first->query_safe($copy->(20_000, 'd'));
	is($node->safe_psql('postgres', $different), '', 'two sessions: what is committed while one has the room');
	is($first->query_safe($different), '', 'two sessions: what it sees itself');
	$first->query_safe('ROLLBACK');
	$node->safe_psql('postgres', $grow->(9_000, 'e'));
	is($node->safe_psql('postgres', $different), '', 'two sessions: after a rollback');

	$first->query_safe('BEGIN');
	$first->query_safe('SAVEPOINT s');
	$first->query_safe($grow->(5_000, 'f'));
	$first->query_safe('ROLLBACK TO s');
	$first->query_safe($grow->(5_000, 'g'));
	$first->query_safe('COMMIT');
	is($first->query_safe($different), '', 'two sessions: after a savepoint');
	$first->quit;
	check_is_clean($node, 'two sessions: the check finds nothing');
	return;
}

# An old version and its growth are both committed; the claim is only in the WAL.  If it were
# forgotten, growth of the old version would take the pages of the other.  Row 999 takes the image of
# the map's page that follows a checkpoint, so that CLAIM has none.
sub claims_survive
{
	my ($node, $name) = @_;

	$node->safe_psql('postgres', q(
UPDATE g SET b = b || bytes(9000, 'x'), o = o || bytes(9000, 'x') WHERE id = 6;
CHECKPOINT;
INSERT INTO g (id, b, o) SELECT 999, x, x FROM bytes(5000, 'w') x;
INSERT INTO g (id, b, o) SELECT 1000, b || bytes(8192, 'y'), o || bytes(8192, 'y') FROM g WHERE id = 6));
	kill_everything($node);
	$node->start;
	$node->safe_psql('postgres', q(
INSERT INTO g (id, b, o) SELECT 1001, b || bytes(8192, 'z'), o || bytes(8192, 'z') FROM g WHERE id = 6));
	is($node->safe_psql('postgres', $different), '', "$name: a claim that is replayed");
	check_is_clean($node, "$name: a claim that is replayed: the check");

	# The same with a growth that was not committed, but whose claim is on disk.
	my $first = $node->background_psql('postgres');
	$first->query_safe('BEGIN');
	$first->query_safe(q(UPDATE g SET b = b || bytes(8192, 'q') WHERE id = 1001));
	$node->safe_psql('postgres', 'CHECKPOINT');
	kill_everything($node);
	eval { $first->quit };
	$node->start;
	$node->safe_psql('postgres',
		q(UPDATE g SET b = b || bytes(8192, 'r'), o = o || bytes(8192, 'r') WHERE id = 1001));
	is($node->safe_psql('postgres', $different), '', "$name: growth after a claim that came to nothing");
	check_is_clean($node, "$name: the check after that");
	return;
}

# ---- at random ----

sub round
{
	my ($node, $name, $cuts_power) = @_;
	my $script = PostgreSQL::Test::Utils::tempdir() . '/change.sql';
	my ($out, $error) = ('', '');

	append_to_file($script, "\\set undo random(1, 3)\nBEGIN;\nSELECT change_one();\nSELECT change_one();\n"
		. "\\if :undo = 1\nROLLBACK;\n\\else\nCOMMIT;\n\\endif\n");
	my $load = IPC::Run::start(
		[ 'pgbench', '-n', '-c', '4', '-T', '60', '-f', $script, '--max-tries=100',
			'-d', $node->connstr('postgres') ], '<', \undef, '>', \$out, '2>', \$error);
	$node->poll_query_until('postgres', 'SELECT count(*) > 0 FROM g WHERE id > 20')
	  or die 'there is no work';
	sleep(2 + rand(3));
	$load->pump_nb;
	power('off') if $cuts_power;
	kill_everything($node);
	power('on') if $cuts_power;
	$load->kill_kill;
	$node->start;
	my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM g WHERE id > 20');
	is($node->safe_psql('postgres', $different), '', "$name: rows are whole ($rows are new)");
	cmp_ok($rows, '>', 0, "$name: there was work");
	check_is_clean($node, "$name: the check finds nothing");
	$node->safe_psql('postgres', 'VACUUM g');
	is($node->safe_psql('postgres', 'SELECT skipped_reason IS NULL FROM blobext_gc()'), 't',
		"$name: a round after the crash is not skipped");
	is($node->safe_psql('postgres', $different), '', "$name: rows are whole after a collection");
	check_is_clean($node, "$name: the check after a collection");
	return;
}

foreach my $name (split / /, $ENV{BLOBEXT_GROWTH_SETTINGS} // join(' ', sort keys %settings))
{
	my $cuts_power = $name =~ /^power/;
	if ($cuts_power && !$small)
	{
		note("no file system whose power can be cut: \"$name\" left out, see test/run tap");
		next;
	}
	local $PostgreSQL::Test::Utils::tmp_check = $PostgreSQL::Test::Utils::tmp_check;
	if ($cuts_power)
	{
		power('format');
		$PostgreSQL::Test::Utils::tmp_check = $small;
	}
	my $node = blob_cluster("growth_$name", conf => $settings{$name});
	$node->safe_psql('postgres', $schema);
	unless ($cuts_power)
	{
		two_sessions($node) if $name eq 'minimal';
		claims_survive($node, $name);
	}
	sync_cluster($node) if $cuts_power;
	round($node, "$name, round $_", $cuts_power) foreach 1 .. $rounds;
	$node->stop;
	$node->clean_node;
}

done_testing();
