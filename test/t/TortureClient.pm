# A client of torture.pl: one session that makes random choices until its time is over or the server
# is gone.  The choices follow from a seed; the rows and errors that they meet depend on timing.
package TortureClient;

use strict;
use warnings;

use Exporter 'import';
use IPC::Open2;
use Storable qw(nstore);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(live collect_in_a_loop);

my @tables = qw(a q n u p);

# Errors that are not blobext's fault: deadlocks, locks, serialization, duplicate content, tables
# that other clients have just changed.
my %may_fail = map { $_ => 1 } qw(40P01 40001 55P03 23505 42P01 42P07 55006);
my $race = join('|', 'tuple concurrently (updated|deleted)', 'could not open relation',
	'no partition of relation', 'cache lookup failed for (relation|index)');

# ---- psql at the other end of two pipes ----

# power_is_off: name of a file that exists while every statement fails because the power is off.
sub new
{
	my ($class, $connstr, $power_is_off) = @_;
	my $self = bless { power_is_off => $power_is_off, no => 0, done => {}, errors => {}, ok => 1 }, $class;
	local $SIG{PIPE} = 'IGNORE';
	$self->{pid} = open2($self->{out}, $self->{in}, "psql -XAtq -d '$connstr' 2>&1");
	return $self;
}

# Start a statement.
sub begin
{
	my ($self, $sql) = @_;
	my $in = $self->{in};

	return if $self->{is_gone};
	local $SIG{PIPE} = 'IGNORE';
	$self->{no}++;
	print $in "$sql;\n\\echo END$self->{no} :SQLSTATE\n" or return $self->gone;
	return $in->flush || $self->gone;
}

# Wait for its end: its SQLSTATE and its output; nothing if the connection is gone.
sub end
{
	my ($self) = @_;
	my $out = $self->{out};
	my $end = "END$self->{no}";
	my @lines;

	return if $self->{is_gone};
	while (my $line = <$out>)
	{
		chomp $line;
		if ($line =~ /^$end (\S*)$/)
		{
			my $state = $1;
			return $self->gone if $state =~ /^(|57P0.|08...)$/;
			$self->{state} = $state;
			$self->{lines} = \@lines;
			return $state eq '00000';
		}
		push @lines, $line;
	}
	return $self->gone;
}

sub run
{
	my ($self, $sql) = @_;
	return $self->begin($sql) && $self->end;
}

sub gone
{
	my ($self) = @_;
	$self->{is_gone} = 1;
	return;
}

# After a statement that failed: note the error, and end the transaction.
sub failed
{
	my ($self, $sql) = @_;
	return if $self->{is_gone};
	return $self->gone if -e $self->{power_is_off};
	my $text = join(' ', @{ $self->{lines} });
	my $state = $self->{state};
	$self->{errors}{$state}++;
	push @{ $self->{failures} }, "$state: $text\n  in: " . substr($sql, 0, 500)
	  unless $may_fail{$state} || $text =~ /$race/;
	$self->run('ROLLBACK') && $self->run('CLOSE ALL');
	return;
}

# Run statements until one fails; then ROLLBACK.  True if none failed.
sub all
{
	my ($self, @statements) = @_;
	foreach my $sql (@statements)
	{
		$self->run($sql) or return $self->failed($sql);
	}
	return 1;
}

# ---- dice ----

sub key { return int(rand(1_000_000_000)); }

# Seconds of a pause: mostly short, sometimes long enough for a whole round of the collector.  They
# are always long for the one client that keeps the others' past, see live().
my $keeps_past;

sub pause
{
	return sprintf('%.3f', $keeps_past || rand() < 0.1 ? 0.3 + rand(1.2) : rand(0.15));
}

sub one_of { return $_[ rand @_ ]; }

sub random_size
{
	my $dice = rand();
	return one_of(0, 1, 1900, 1901, 4096, 4097, 8192, 28_672, 262_144) if $dice < 0.1;
	return int(rand(1_500)) if $dice < 0.2;
	return int(rand(30_000)) if $dice < 0.96;
	return int(rand(200_000)) if $dice < 0.996;
	return int(rand(2_500_000));
}

sub content { return sprintf(q(content('%s', %d)), key(), random_size()); }

# Columns and values for a row of a table besides digest and b.
sub extra { return $_[0] eq 'p' ? (', part', ', ' . int(rand(3))) : ('', ''); }

# ---- statements that store or change rows ----

sub insert
{
	my $table = one_of(@tables);
	my ($column, $value) = extra($table);
	my $count = 1 + int(rand(3));
	my ($key, $size) = (key(), random_size());
	my $function = $table eq 'u' ? 'similar_content' : 'content';
	# Many small ones, so that the index by content has levels.
	($count, $size) = ($count * 6, 1_100 + int(rand(5_000))) if $table eq 'u';
	return "INSERT INTO $table (digest, b$column) SELECT sha256(c), c$value
		FROM generate_series(1, $count) AS i, LATERAL (SELECT $function('$key.' || i, $size) AS c OFFSET 0) AS s"
	  . ($table eq 'u' ? ' ON CONFLICT DO NOTHING' : '');
}

sub copy
{
	my ($to, $from) = (one_of(@tables), one_of(@tables, 'm'));
	my ($column, $value) = extra($to);
	return sprintf('INSERT INTO %s (digest, b%s) SELECT digest, b%s FROM (SELECT digest, b FROM %s
		ORDER BY md5(id || $$%d$$) LIMIT %d) AS s%s', $to, $column, $value, $from, key(),
		1 + rand(3), $to eq 'u' ? ' ON CONFLICT DO NOTHING' : '');
}

# The same content, stored by itself, or shared with a row that has it.
sub copy_content
{
	my ($to, $from) = (one_of(qw(a q n p)), one_of(@tables, 'm'));
	my ($column, $value) = extra($to);
	return sprintf('INSERT INTO %s (digest, b%s) SELECT digest, %s%s FROM (SELECT digest, b FROM %s
		WHERE length(b) < 300000 ORDER BY md5(id || $$%d$$) LIMIT %d) AS s', $to, $column,
		rand() < 0.7 ? 'b::bytea' : "blob_intern('$to', 'b', b::bytea)", $value, $from, key(), 1 + rand(5));
}

sub list
{
	my $content = content();
	return "INSERT INTO l (pairs, digest, d) SELECT array_agg(ROW(sha256(c), c::blobstate)::pair),
		sha256($content), $content FROM (SELECT content('@{[key()]}' || i, 3000) AS c
		FROM generate_series(1, @{[1 + int(rand(4))]}) AS i) AS s" if rand() < 0.3;
	return sprintf('INSERT INTO l (pairs, digest, d) SELECT array_agg(ROW(digest, b)::pair),
		(array_agg(digest))[1], (array_agg(b))[1] FROM (SELECT digest, b FROM %s
		ORDER BY md5(id || $$%d$$) LIMIT %d) AS s', one_of(@tables), key(), 1 + rand(20));
}

sub unlist
{
	return sprintf('WITH gone AS (DELETE FROM l WHERE id IN (SELECT chosen($$l$$, $$%d$$, 1))
		RETURNING pairs) INSERT INTO %s (digest, b) SELECT (x).digest, (x).b FROM gone,
		unnest(pairs) AS x LIMIT 4', key(), one_of(qw(a q n)));
}

sub update
{
	my $table = one_of(@tables);
	return sprintf('UPDATE %s SET (digest, b) = (SELECT sha256(c), c FROM (SELECT %s AS c OFFSET 0)
		AS s) WHERE id IN (SELECT chosen($$%s$$, $$%d$$, 1))', $table, content(), $table, key());
}

sub change
{
	my $table = one_of(@tables);
	my $kind = one_of(qw(append append append write patch beyond insert delete truncate fork concat stream
		recompress));
	return sprintf('UPDATE %s SET (digest, b) = (SELECT (c).* FROM (SELECT changed(digest, b, $$%s$$,
		%d, %d, %s) AS c OFFSET 0) AS s) WHERE id IN (SELECT chosen($$%s$$, $$%d$$, %d))
		AND length(b) < 1000000', $table, $kind, key(), random_size(), content(), $table, key(),
		1 + rand(2));
}

sub touch
{
	my $table = one_of(qw(a q n u));
	return sprintf('UPDATE %s SET note = note + 1 WHERE id IN (SELECT chosen($$%s$$, $$%d$$, 5))',
		$table, $table, key());
}

sub move
{
	return sprintf('UPDATE p SET part = (part + 1) %% 3 WHERE id IN (SELECT chosen($$p$$, $$%d$$, 2))',
		key()) if rand() < 0.6;
	my ($from, $to) = (one_of(qw(a q n)), one_of(qw(a q n)));
	return sprintf('WITH gone AS (DELETE FROM %s WHERE id IN (SELECT chosen($$%s$$, $$%d$$, 2))
		RETURNING digest, b) INSERT INTO %s (digest, b) SELECT digest, b FROM gone', $from, $from,
		key(), $to);
}

# Remove rows, so that there are never more than can be read all the time.
sub remove
{
	my $table = one_of(@tables, 'l');
	return sprintf('DELETE FROM %s WHERE id IN (SELECT chosen($$%s$$, $$%d$$,
		(SELECT greatest(2, count(*) - %d)::integer FROM %s)))', $table, $table, key(),
		$table eq 'u' ? 60 : 15, $table);
}

sub check
{
	my $where = rand() < 0.5 ? '' : sprintf(q(WHERE place = '%s'), one_of(@tables, 'm', 'l'));
	return "SELECT count(verified(digest, b)) FROM everything $where";
}

my @steps = (\&insert, \&insert, \&insert, \&copy, \&copy, \&copy_content, \&list, \&unlist, \&update, \&change,
	\&change, \&change, \&touch, \&move, \&remove, \&remove, \&remove, \&remove, \&check);

sub step { return one_of(@steps)->(); }

# ---- what a client does ----

sub transaction
{
	my ($self) = @_;
	my @sql = ('BEGIN' . (rand() < 0.15 ? ' ISOLATION LEVEL REPEATABLE READ' : ''));
	for (1 .. 1 + rand(4))
	{
		my $dice = rand();
		push @sql, $dice > 0.25 ? step() : ('SAVEPOINT s', step(),
			$dice < 0.12 ? 'ROLLBACK TO s' : 'RELEASE s');
		push @sql, sprintf('SELECT pg_sleep(%.3f)', rand(0.1))
		  if rand() < ($self->{mode} eq 'short' ? 0.02 : 0.1);
	}
	return $self->all(@sql, rand() < 0.25 ? 'ROLLBACK' : 'COMMIT');
}

# A prepared transaction keeps its locks until a client ends it; at most two are left.
sub prepare
{
	my ($self) = @_;
	my $name = 'x' . $self->{name} . '_' . $self->{no};
	my $end = rand() < 0.7 ? 'COMMIT' : 'ROLLBACK';
	if (my $old = shift @{ $self->{prepared} })
	{
		return unless $self->all("$end PREPARED '$old'");
	}
	$self->all('BEGIN', insert(), copy(), list(), 'SAVEPOINT s', insert(), 'ROLLBACK TO s',
		"PREPARE TRANSACTION '$name'") or return;
	push @{ $self->{prepared} }, $name;
	return 1;
}

sub held_cursor
{
	my ($self) = @_;
	my $table = one_of(@tables);
	my $rows = sprintf('FROM %s ORDER BY md5(id || $$%d$$) LIMIT 6', $table, key());
	$self->all('BEGIN', "DECLARE held CURSOR WITH HOLD FOR SELECT digest, b $rows",
		rand() < 0.3 ? ('MOVE 1 FROM held') : (), 'COMMIT',
		rand() < 0.5 ? remove() : "DELETE FROM $table WHERE id IN (SELECT id $rows)",
		rand() < 0.5 ? "VACUUM (SKIP_LOCKED) $table" : ()) or return;
	sleep(pause());		# in no transaction
	return $self->all(q(SELECT drain('held')), 'CLOSE held', rand() < 0.5 ? insert() : ());
}

# Read rows piece by piece, from a snapshot or cursor that is older than other clients' deletions.
sub slow_reader
{
	my ($self) = @_;
	my $pause = 'SELECT pg_sleep(' . pause() . ')';
	return $self->all('BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM everything',
		$pause, 'SELECT count(verified(digest, b)) FROM everything', 'COMMIT') if rand() < 0.5;
	return $self->all('BEGIN', 'DECLARE slow CURSOR FOR SELECT digest, b FROM everything', $pause,
		'MOVE 3 FROM slow', $pause, q(SELECT drain('slow')), 'ROLLBACK');
}

# Each session has its method of compression, for columns that have none.
sub set_up
{
	my ($self) = @_;
	return $self->all(q(SET lock_timeout = '2s'), 'SET synchronous_commit = ' . one_of(qw(on off)),
		'SET blobext.default_compression = ' . one_of(qw(none lz4 zstd)));
}

# A second session of this client.
sub other
{
	my ($self) = @_;
	return $self->{other} if $self->{other};
	$self->{other} = TortureClient->new(@$self{qw(connstr power_is_off)});
	$self->{other}->set_up();
	return $self->{other};
}

# Pass a snapshot from session to session, while the rows that it shows are deleted.  Each session
# seems to have begun after the one before it ended.  The last one stores the rows that it sees.
sub exported_snapshot
{
	my ($self) = @_;
	my ($has, $takes) = ($self, $self->other);

	$has->all('BEGIN ISOLATION LEVEL REPEATABLE READ') or return $self->take_over($has);
	for (1 .. 1 + rand(7))
	{
		$has->all('SELECT pg_export_snapshot()') or return $self->end_both($takes);
		my $name = $has->{lines}[0];
		$takes->all('BEGIN ISOLATION LEVEL REPEATABLE READ', "SET TRANSACTION SNAPSHOT '$name'")
		  or return $self->end_both($has);
		$has->all('COMMIT', remove(), remove()) or return $self->end_both($takes);
		($has, $takes) = ($takes, $has);
		sleep(0.02 + rand(0.5));
	}
	my $done = $has->all('SELECT count(verified(digest, b)) FROM everything',
		sprintf('INSERT INTO %s (digest, b) SELECT digest, b FROM everything
			WHERE place = ANY ($${q,u,p,l}$$)', one_of(qw(a a q n))), 'COMMIT',
		'VACUUM (SKIP_LOCKED) u, p, l, q');
	return $self->take_over($has) && $self->take_over($takes) && $done;
}

# One of two sessions has failed.
sub end_both
{
	my ($self, $session) = @_;
	$session->run('ROLLBACK');
	$self->take_over($self->{other});
	return;
}

sub take_over
{
	my ($self, $other) = @_;
	return !$self->{is_gone} if $other == $self;
	push @{ $self->{failures} }, @{ $other->{failures} // [] };
	$self->{errors}{$_} += $other->{errors}{$_} foreach keys %{ $other->{errors} };
	$other->{errors} = {};
	$other->{failures} = [];
	$self->gone if $other->{is_gone};
	return !$other->{is_gone};
}

# The values are nowhere else, while rounds ask the idle session what its table refers to.
sub temporary_table
{
	my ($self) = @_;
	my @fill = (sprintf('SELECT digest, b FROM everything ORDER BY md5(id || $$%d$$) LIMIT 5', key()), remove());
	my $is_rolled_back = rand() < 0.2;

	$self->all('DROP TABLE IF EXISTS mine', 'BEGIN', "CREATE TEMPORARY TABLE mine AS $fill[0]", $fill[1],
		$is_rolled_back ? 'ROLLBACK' : 'COMMIT') or return;
	for (1 .. $is_rolled_back ? 0 : rand(6))
	{
		sleep(rand(1));
		$self->all(one_of('SELECT count(verified(digest, b)) FROM mine', 'DELETE FROM mine WHERE random() < 0.3',
			"INSERT INTO mine $fill[0]", 'CREATE INDEX ON mine (b)', 'VACUUM mine',
			'INSERT INTO q (digest, b) SELECT digest, b FROM mine')) or return;
	}
	return $self->all($is_rolled_back || rand() < 0.2 ? () : ('SELECT count(verified(digest, b)) FROM mine', 'TRUNCATE mine'),
		rand() < 0.3 ? () : 'DISCARD TEMP');
}

sub procedure
{
	my ($self) = @_;
	my $other = $self->other;
	my $call = rand() < 0.3
	  ? sprintf(q(SELECT survive('%d', %d, %s)), key(), random_size(), pause())
	  : sprintf(q(CALL carry('%d', %d, %s)), key(), rand(16), pause());
	$self->begin($call) or return;
	# VACUUM removes the rows that the procedure has deleted while it still runs.
	for (1 .. rand(4))
	{
		sleep(0.05 + rand(0.3));
		$other->all('VACUUM (SKIP_LOCKED) a');
	}
	$self->end or return $self->failed($call);
	return $self->take_over($other);
}

sub prepared_statement
{
	my ($self) = @_;
	return $self->all('DEALLOCATE ALL', 'PREPARE s(integer) AS ' . insert(), 'BEGIN', 'EXECUTE s(1)',
		'ROLLBACK', ('EXECUTE s(1)') x 2, 'PREPARE t AS SELECT count(verified(digest, b)) FROM a',
		'EXECUTE t', remove(), 'EXECUTE t');
}

# Move rows of q to another table, and empty q.
sub truncate
{
	my ($self) = @_;
	my $to = one_of(qw(a n));
	return $self->all('BEGIN', "INSERT INTO $to (digest, b) SELECT digest, b FROM q LIMIT 10",
		'TRUNCATE q', rand() < 0.5 ? insert() : (), rand() < 0.3 ? 'ROLLBACK' : 'COMMIT');
}

sub detach
{
	my ($self) = @_;
	my $part = int(rand(3));
	my $done = $self->all("ALTER TABLE p DETACH PARTITION p$part") or return;
	$self->all("SELECT count(verified(digest, b)) FROM p$part",
		"DELETE FROM p$part WHERE id % 5 = 0", "VACUUM p$part",
		rand() < 0.2 ? ('BEGIN', "INSERT INTO q (digest, b) SELECT digest, b FROM p$part LIMIT 8",
			"TRUNCATE p$part", 'COMMIT') : ());
	# Repeat until it succeeds, since other clients hold locks.
	until ($self->all("ALTER TABLE p ATTACH PARTITION p$part FOR VALUES IN ($part)"))
	{
		return if $self->{is_gone} || ++$self->{attach_failures} > 100;
	}
	$self->{attach_failures} = 0;
	return 1;
}

sub vacuum
{
	my ($self) = @_;
	return $self->all('VACUUM (SKIP_LOCKED) ' . join(', ', @tables, 'l'));
}

# Contents are those of their digests, so no row is left because contents differ.
sub dedup
{
	my ($self) = @_;
	my ($table, $column) = rand() < 0.1 ? qw(l d) : (one_of(@tables), 'b');
	$self->all(copy_content(), copy_content(),
		"CALL blobext_dedup('$table', '$column', batch_rows => " . one_of(1, 3, 50) . ')') or return;
	# Without power no content can be read, which is a warning here.
	return $self->gone if -e $self->{power_is_off};
	push @{ $self->{failures} }, map { "of blobext_dedup(): $_" }
	  grep { /WARNING/ && !/$race/ } @{ $self->{lines} };
	return 1;
}

# Values that exist are stored anew, by the method of their column, or get their digests.
sub recompress
{
	my ($self) = @_;
	my ($table, $column) = rand() < 0.1 ? qw(l d) : (one_of(@tables), 'b');
	return $self->all("SELECT blobext_set_compression('$table', '$column', "
		  . one_of(q('none'), q('lz4'), q('zstd'), 'NULL') . ')') if rand() < 0.4;
	return $self->all("CALL blobext_seal('$table', '$column', " . one_of(1, 5, 50) . ')') if rand() < 0.3;
	return $self->all("CALL blobext_recompress('$table', '$column', " . one_of(1, 1, 4) . ')');
}

# Many large values, which are gone soon: their space goes back to the file system, and is reserved
# again for the next ones.
sub burst
{
	my ($self) = @_;
	my $table = one_of(qw(a q n));
	my ($count, $size) = (12 + int(rand(12)), 1_000_000 + int(rand(1_000_000)));
	my ($key, $note) = (key(), -1 - int(rand(1_000_000_000)));
	return $self->all("INSERT INTO $table (note, digest, b) SELECT $note, sha256(c), c
		FROM generate_series(1, $count) AS i, LATERAL (SELECT content('$key.' || i, $size, 6250) AS c OFFSET 0) AS s",
		"SELECT count(verified(digest, b)) FROM $table WHERE note = $note",
		"DELETE FROM $table WHERE note = $note");
}

sub maintain
{
	my ($self) = @_;
	my $table = one_of(qw(a q n u l));
	return $self->all(one_of(
		"VACUUM FULL $table", "CLUSTER $table USING ${table}_pkey", 'REINDEX INDEX CONCURRENTLY u_b',
		'REINDEX INDEX u_digest', 'REINDEX TABLE CONCURRENTLY u', 'REINDEX INDEX CONCURRENTLY p1_b',
		"ALTER TABLE q ALTER note TYPE " . one_of(qw(bigint integer)), 'ANALYZE',
		'REFRESH MATERIALIZED VIEW m', 'VACUUM (FREEZE) u', 'VACUUM (INDEX_CLEANUP ON) p1, u',
		"ALTER TABLE a ADD COLUMN IF NOT EXISTS extra blobstate DEFAULT content('extra', 5000)",
		'ALTER TABLE a DROP COLUMN IF EXISTS extra',
		'DROP INDEX CONCURRENTLY IF EXISTS a_b; CREATE INDEX CONCURRENTLY a_b ON a (b)',
		'DROP INDEX IF EXISTS a_b'));
}

# Weights: of all deeds; of deeds that keep values or snapshots; of short deeds.
my %deeds = (
	all => [ [ 50, 'transaction' ], [ 4, 'prepare' ], [ 6, 'held_cursor' ], [ 6, 'slow_reader' ],
		[ 2, 'exported_snapshot' ], [ 4, 'temporary_table' ], [ 7, 'procedure' ],
		[ 2, 'prepared_statement' ], [ 2, 'truncate' ], [ 1, 'detach' ], [ 6, 'vacuum' ],
		[ 6, 'dedup' ], [ 5, 'recompress' ], [ 1, 'burst' ], [ 2, 'maintain' ] ],
	keep => [ [ 4, 'held_cursor' ], [ 4, 'slow_reader' ], [ 6, 'exported_snapshot' ],
		[ 5, 'procedure' ], [ 4, 'temporary_table' ], [ 1, 'transaction' ] ],
	short => [ [ 200, 'transaction' ], [ 30, 'vacuum' ], [ 20, 'dedup' ], [ 15, 'recompress' ],
		[ 2, 'burst' ], [ 4, 'prepared_statement' ], [ 0.1, 'maintain' ], [ 0.1, 'truncate' ] ]);

sub deed
{
	my ($self) = @_;
	my @choice = @{ $deeds{ $self->{mode} } };
	my $sum = 0;
	$sum += $_->[0] foreach @choice;
	my $dice = rand($sum);
	foreach my $deed (@choice)
	{
		return $deed->[1] if ($dice -= $deed->[0]) < 0;
	}
	return 'transaction';
}

# Choose a client's deeds in this round.  The collector waits for every session that may have a
# value in memory; if all may, it runs few rounds.  So in some rounds of the test only one client
# keeps cursors, variables and snapshots, for long, and the others are quick; in some all are quick.
sub choose_mode
{
	my ($self, $style) = @_;
	$keeps_past = $style eq 'past' && $self->{name} == 1;
	$self->{mode} = $style eq 'mixed' ? 'all' : $keeps_past ? 'keep' : 'short';
	return;
}

# Run until the time is over, the server is gone, or a failure occurs.  Writes a record to a file:
# done (deed -> times), errors (SQLSTATE -> times), failures.
sub live
{
	my (%options) = @_;
	srand($options{seed});
	my $self = TortureClient->new(@options{qw(connstr power_is_off)});
	@$self{qw(connstr name)} = @options{qw(connstr name)};
	$self->choose_mode($options{style});
	$self->{failures} = [];
	$self->{prepared} = [];
	$self->set_up();
	$self->burst() if $self->{name} == 2;
	while (!$self->{is_gone} && time() < $options{end} && !@{ $self->{failures} })
	{
		my $deed = $self->deed;
		$self->{done}{$deed}++ if $self->$deed();
	}
	nstore({ map { $_ => $self->{$_} } qw(done errors failures) }, $options{file});
	return;
}

# Run rounds of the collector, each followed by a checkpoint, so that freed space is reused at once.
# Some rounds pause between any two pages.  Writes: done (rounds, freed values and bytes), errors
# (reason -> times), failures.
sub collect_in_a_loop
{
	my (%options) = @_;
	my $self = TortureClient->new(@options{qw(connstr power_is_off)});
	$self->{failures} = [];
	$self->all(q(SET client_min_messages = error), q(SET blobext.gc_wait_timeout = '20s'));
	while (!$self->{is_gone} && time() < $options{end} && !@{ $self->{failures} })
	{
		$self->all('SET blobext.gc_cost_limit = ' . (1 + int(rand(4))),
			'SET blobext.gc_cost_delay = ' . ($options{style} eq 'past' ? one_of(0, 0, 1, 3, 10) : 0),
			'SELECT freed_blobs, freed_bytes, skipped_reason FROM blobext_gc()') or next;
		my ($blobs, $bytes, $reason) = split /\|/, $self->{lines}[0] // '', 3;
		if (($reason // '') ne '')
		{
			$reason =~ s/\d+/N/g;
			$reason =~ s/".*"/"..."/g;
			$self->{errors}{$reason}++;
		}
		else
		{
			$self->{done}{rounds}++;
			$self->{done}{freed_values} += $blobs;
			$self->{done}{freed_bytes} += $bytes;
		}
		$self->all('CHECKPOINT');
	}
	nstore({ map { $_ => $self->{$_} } qw(done errors failures) }, $options{file});
	return;
}

1;
