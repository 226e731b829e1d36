# Clients that do not read, and sessions that wait in the middle of a statement or between two:
# their requests ahead take no part of the read cache from others.
#
# More sessions than the cache has room for windows of each read a large value in sequence, and
# stop.  Another one reads a value twice: the second time it is all in the cache.  Then the sessions
# that waited go on, and get the same content as without the wait.  (Seen to fail with slabs that
# stayed owned from the start of a request ahead to the next read of the same process: the second
# read found nothing in the cache, however often it was tried, in each of the ways to wait; and in
# that after an error, with a timer that is forgotten there.)
use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;
use RawClient;

# A process reads ahead an eighth of the cache at most.
my $sessions = 24;
my $node = blob_cluster('main', conf => "blobext.cache_size = '4MB'\n");
$node->safe_psql('postgres', qq(
CREATE TABLE t (id integer PRIMARY KEY, b blobstate, digest text);
INSERT INTO t SELECT i, content, encode(sha256(content), 'hex') FROM generate_series(1, $sessions) AS i,
	LATERAL (SELECT string_agg(sha256(convert_to(i || ':' || j, 'UTF8')), NULL) AS content
		FROM generate_series(1, 98304) AS j) AS s;
CREATE TABLE other (b blobstate);
INSERT INTO other SELECT substring(b, 1, 1000000) FROM t WHERE id = 1;));
my %digest = map { split(/\|/) } split(/\n/, $node->safe_psql('postgres', 'SELECT id, digest FROM t'));

# ---- operations of the sessions ----

sub unhex { return pack('H*', substr($_[0], 2)) }

# Content of the rows up to the end of the statement.
sub rest_of_rows
{
	my ($client) = @_;
	my ($rows, $error) = $client->finish;
	return $error // join('', map { substr($_->[0], 0, 2) eq '\\x' ? unhex($_->[0]) : $_->[0] } @$rows);
}

# The same of COPY, whose lines have another backslash.
sub rest_of_copy
{
	my ($client) = @_;
	my $content = '';
	while (my ($type, $body) = $client->message)
	{
		$content .= pack('H*', $1) if $type eq 'd' && $body =~ /^\\\\x([0-9a-f]+)\n$/;
		last if $type eq 'Z';
	}
	return $content;
}

# Bytes of text that are read before a client stops: some pieces, so that others are requested
# ahead.
my $some = 1_200_000;
my $pieces = 'SELECT data FROM t, blob_chunks(b, 262144) WHERE id = %d';

# Ways to wait.  name: the event that the session waits for; begin: called with client and number;
# go_on: gives the content.
my @ways = (
	{
		name => 'a value that is sent while it is read', waits_for => 'ClientWrite',
		begin => sub { $_[0]->start("SELECT b FROM t WHERE id = $_[1]", [1], 0); $_[0]->peek(1000) },
		go_on => \&rest_of_rows,
	},
	{
		name => 'pieces, sent by the server', waits_for => 'ClientWrite',
		begin => sub { $_[0]->start(sprintf($pieces, $_[1]), [0], 0); $_[0]->peek($some) },
		go_on => \&rest_of_rows,
	},
	{
		name => 'COPY', waits_for => 'ClientWrite',
		begin => sub { $_[0]->send('Q', sprintf("COPY ($pieces) TO STDOUT\0", $_[1])); $_[0]->peek($some) },
		go_on => \&rest_of_copy,
	},
	{
		name => 'notices', waits_for => 'ClientWrite',
		begin => sub {
			$_[0]->send('Q', "DO \$\$ DECLARE piece bytea; BEGIN
				FOR piece IN " . sprintf($pieces, $_[1]) . " LOOP
					RAISE NOTICE '%', piece; END LOOP; END \$\$\0");
			$_[0]->peek($some);
		},
		go_on => sub {
			my ($client) = @_;
			my $content = '';
			while (my ($type, $body) = $client->message)
			{
				$content .= pack('H*', $1) if $type eq 'N' && $body =~ /\0M\\x([0-9a-f]+)/;
				last if $type eq 'Z';
			}
			return $content;
		},
	},
	{
		name => 'an open cursor', waits_for => 'ClientRead',
		begin => sub {
			$_[0]->query('BEGIN; DECLARE c CURSOR FOR ' . sprintf($pieces, $_[1]));
			$_[0]->{content} = join('', map { unhex($_->[0]) } @{ ($_[0]->query('FETCH 5 FROM c'))[0] });
		},
		go_on => sub { $_[0]->send('Q', "FETCH ALL FROM c\0"); return $_[0]->{content} . rest_of_rows($_[0]) },
	},
	{
		name => 'a portal with a row limit', waits_for => 'ClientRead',
		begin => sub { $_[0]->start(sprintf($pieces, $_[1]), [0], 5); $_[0]->peek(5 * 524288) },
		go_on => \&rest_of_rows,
	},
	{
		# The error comes at once, is not the cursor's, and takes the server's timers with it.
		name => 'an open cursor after an error', waits_for => 'ClientRead',
		begin => sub {
			$_[0]->query('BEGIN; DECLARE c CURSOR FOR ' . sprintf($pieces, $_[1])
				  . '; MOVE 5 IN c; SAVEPOINT s; SELECT 1 / 0');
		},
		go_on => sub {
			$_[0]->send('Q', 'ROLLBACK TO s; SELECT blob_read(b, 0, 5 * 262144)'
				  . " FROM t WHERE id = $_[1]; FETCH ALL FROM c\0");
			return rest_of_rows($_[0]);
		},
	},
	{
		name => 'sleep', waits_for => 'PgSleep',
		begin => sub {
			$_[0]->send('Q', 'SELECT count(length(data)), count(CASE WHEN chunk_no = 5 THEN pg_sleep(3600) END)'
				  . " FROM t, blob_chunks(b, 262144) WHERE id = $_[1]\0");
		},
		go_on => sub {
			$node->safe_psql('postgres', "SELECT pg_cancel_backend($_[0]->{pid})");
			$_[0]->finish;
			$_[0]->send('Q', "SELECT b FROM t WHERE id = $_[1]\0");
			return rest_of_rows($_[0]);
		},
	});

# ---- the cache for other sessions ----

# Misses of the second of two reads.
sub misses_of_others
{
	my $misses;
	for (1 .. 2)
	{
		$misses = stat_of($node, 'cache_misses');
		$node->safe_psql('postgres', 'SELECT length(b::bytea) FROM other');
	}
	return stat_of($node, 'cache_misses') - $misses;
}

# Requests ahead need a moment to complete.
sub others_have_a_cache
{
	my $misses;
	for (1 .. 100)
	{
		$misses = misses_of_others();
		last if $misses == 0;
		usleep(50_000);
	}
	return $misses;
}

foreach my $way (@ways)
{
	my $name = $way->{name};
	$node->restart;				# nothing is cached
	my @clients = map { RawClient->new($node, 'postgres') } 1 .. $sessions;
	foreach my $i (1 .. $sessions)
	{
		$way->{begin}->($clients[ $i - 1 ], $i);
	}
	my $pids = join(', ', map { $_->{pid} } @clients);
	ok($node->poll_query_until('postgres', "SELECT count(*) = $sessions FROM pg_stat_activity
		WHERE pid IN ($pids) AND wait_event = '$way->{waits_for}'"), "$name: all sessions wait");
	cmp_ok(stat_of($node, 'read_ahead_bytes'), '>=', 3 * 1024 * 1024, "$name: much was read ahead");
	is(others_have_a_cache(), 0, "$name: others read from the cache");
	my @wrong = grep { sha256_hex($way->{go_on}->($clients[ $_ - 1 ], $_)) ne $digest{$_} } 1 .. $sessions;
	is("@wrong", '', "$name: then they get all of the content");
	$_->close foreach @clients;
}

$node->stop;
done_testing();
