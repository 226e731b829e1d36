# The image's entry point: it makes a cluster as the official image of PostgreSQL does, runs the
# scripts for it, takes nothing half done for a cluster, and becomes the server.  Under docker's
# seccomp profile with our calls in it, docker/seccomp.json, the server uses io_uring.
#
# Seen to fail with the entry point of 0.3.0, which knows POSTGRES_PASSWORD alone; and where a start
# that was interrupted left a directory that was taken for a cluster of another version.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use lib $FindBin::RealBin;
use BlobTest;

my $docker = "$FindBin::RealBin/../docker";
my $python = $ENV{PYTHON} // '/usr/bin/python3';
my $volume = PostgreSQL::Test::Utils::tempdir;
my $sockets = PostgreSQL::Test::Utils::tempdir_short;
my $port = PostgreSQL::Test::Cluster::get_free_port();
my ($major) = qx(postgres --version) =~ /(\d+)/;
my @options = ('-c', "unix_socket_directories=$sockets", '-c', "port=$port", '-c', 'fsync=off',
	'-c', 'shared_buffers=32MB', '-c', "listen_addresses=127.0.0.1");
my $log = '';
my $entry;

$ENV{BLOBEXT_VOLUME} = $volume;
$ENV{BLOBEXT_SOCKETS} = $sockets;
$ENV{BLOBEXT_INIT_SCRIPTS} = "$volume/scripts";
delete @ENV{qw(PGHOST PGHOSTADDR PGUSER PGDATABASE PGAPPNAME)};
mkdir "$volume/scripts" or die;

# Starts the entry point; $wrapper: a command to run it.  Returns whether its server answers, or else
# its end.
sub start
{
	my ($variables, @wrapper) = @_;
	local @ENV{ keys %$variables } = values %$variables;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	$log = '';
	$entry = IPC::Run::start([ @wrapper, "$docker/entrypoint", @options ], '<', \undef, '>&', \$log);
	until ($log =~ /listening on IPv4/
		&& system('pg_isready', '-q', '-h', '127.0.0.1', '-p', $port) == 0)
	{
		$entry->pump_nb;
		die "the server does not answer:\n$log" if time > $end;
		if (!$entry->pumpable)
		{
			$entry->finish;
			return 0;
		}
		usleep(50_000);
	}
	return 1;
}

sub starts
{
	start(@_) or die "no server:\n$log";
	return;
}

# It ends, with this message.
sub refuses
{
	my ($variables, $message, $what) = @_;
	my $runs = start($variables);
	ok(!$runs && $entry->result(0) != 0, "the container does not start with $what");
	like($log, $message, "$what: the log says what is wrong");
	ok(!-e "$volume/$major", "$what: there is no cluster");
	stop() if $runs;
	return;
}

# As docker stops it.
sub stop
{
	$entry->signal('INT');
	$entry->finish;
	return $entry->result(0);
}

sub query
{
	my ($sql, %options) = @_;
	local $ENV{PGPASSWORD} = $options{password} // 'secret of a file';
	my $status = IPC::Run::run([ 'psql', '-XAtq', '-h', '127.0.0.1', '-p', $port, '-U', 'keeper',
		'-d', 'shop', '-c', $sql ], '<', \undef, '>', \my $out, '2>', \my $err);
	chomp $out;
	return $status ? $out : "error: $err";
}

sub script
{
	my ($name, $text, $mode) = @_;
	append_to_file("$volume/scripts/$name", $text);
	chmod $mode // 0644, "$volume/scripts/$name";
	return;
}

# ---- a cluster that is to be made ----

my %variables = (POSTGRES_USER => 'keeper', POSTGRES_DB => 'shop',
	POSTGRES_PASSWORD_FILE => "$volume/password", POSTGRES_INITDB_ARGS => '--wal-segsize=2 --no-sync');
append_to_file("$volume/password", "secret of a file\n");
refuses({}, qr/POSTGRES_PASSWORD or POSTGRES_PASSWORD_FILE must be set/, 'no password');
refuses({ %variables, POSTGRES_PASSWORD => 'other' },
	qr/POSTGRES_PASSWORD and POSTGRES_PASSWORD_FILE are both set/, 'two passwords');
mkdir "$volume/9" or die;
append_to_file("$volume/9/PG_VERSION", "9\n");
refuses(\%variables, qr/the volume has a cluster of PostgreSQL 9/, 'a cluster of another version');
unlink "$volume/9/PG_VERSION";
chmod 0500, $volume;
refuses(\%variables, qr/user \S+ \(\d+\) cannot use the volume, which is that of user \d+/, 'a volume of another user');
chmod 0700, $volume;

script('1.sql', 'CREATE TABLE document (name text, content blobstate);');
script('2.sh', 'psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" <<END
	INSERT INTO document VALUES (\'$0 \' || \'$UNSET\', convert_to(repeat(\'sourced\', 100000), \'UTF8\'));
END
echo "password $POSTGRES_PASSWORD"');
script('3.sh', "#!/bin/sh\npsql -U keeper -d shop -c \"INSERT INTO document VALUES ('program')\"\n", 0755);
script('4.sql', 'INSERT INTO document VALUES (current_user || current_database());');
system('gzip', "$volume/scripts/4.sql") == 0 or die;
script('5.txt', 'no script');
script('6.sql', 'SELECT 1 / 0;');
refuses(\%variables, qr/division by zero/, 'a script that fails');
unlink "$volume/scripts/6.sql";

starts(\%variables);
like($log, qr/password secret of a file/, 'a sourced script has the password');
is(query('SELECT name, length(content) FROM document ORDER BY content, name'), join("\n",
	"$docker/entrypoint |700000", 'keepershop|', 'program|'), 'scripts of all kinds have run once');
is(query('SHOW wal_segment_size'), '2MB', 'initdb got its options');
is(query("SELECT datname FROM pg_database WHERE NOT datistemplate ORDER BY 1"), "postgres\nshop",
	'the database was made');
like(query('SELECT 1', password => 'wrong'), qr/password authentication failed/,
	'connections over the network need the password');
is(query('SHOW data_checksums'), 'on', 'the cluster has checksums');
is(stop(), 0, 'the server stops at SIGINT');

# ---- a cluster that is there, under the profile ----

# Whether a session that has stored a value has a ring.
sub uses_io_uring
{
	local $ENV{PGPASSWORD} = 'secret of a file';
	my ($in, $out) = ("INSERT INTO document VALUES ('x', convert_to(repeat('x', 1000000), 'UTF8'))
		RETURNING 'backend ' || pg_backend_pid();\n", '');
	my $session = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-h', '127.0.0.1',
		'-p', $port, '-U', 'keeper', '-d', 'shop' ], '<', \$in, '>', \$out);
	my $timer = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	$session->pump until $out =~ /backend (\d+)\n/;
	my $pid = $1;
	my $rings = grep { (readlink($_) // '') eq 'anon_inode:[io_uring]' } glob "/proc/$pid/fd/*";
	$session->finish;
	return $rings > 0 ? 'io_uring' : 'none';
}

my @profile = ($python, '-B', "$FindBin::RealBin/with_seccomp.py", "$docker/seccomp.json");
starts({});
my $machine = uses_io_uring();
is(query("SELECT count(*), count(content) FROM document"), '4|2', 'the rows are there again');
stop();
starts({}, @profile);
is(query("SELECT count(*), count(content) FROM document"), '4|2',
	'the rows are there under the profile');
SKIP:
{
	skip 'this machine refuses io_uring', 2 if $machine eq 'none';
	is(uses_io_uring(), 'io_uring', 'the profile allows io_uring');
	stop();
	starts({ WITHOUT => 'io_uring_setup,io_uring_enter,io_uring_register' }, @profile);
	is(uses_io_uring(), 'none', 'the profile without these calls refuses it');
}
is(query('SELECT * FROM blobext_check()'), '', 'the check finds nothing under the profile');
stop();

# ---- commands ----

is(qx($docker/entrypoint echo a command), "a command\n", 'another command is run');

done_testing();
