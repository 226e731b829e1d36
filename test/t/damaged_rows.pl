# Damaged lengths: rows, keys and containers whose bytes lead out of themselves.
#
# While the server is down, a few bytes of a table, its TOAST table, an index or a catalog are
# overwritten in the file; data checksums, which initdb of PostgreSQL 18 turns on, are off, so nothing
# finds that before the collector and the check come to it.  Each time the server must stay up, the
# round must free nothing and name the place, and the check must name it, too, and go on.  Seen to
# fail without containers/sound.c: most of these damages ended the server with SIGSEGV; without
# are_lines_sound() one is a PANIC.  blobext_add_checksums() walked rows by itself, and ended the server.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;
use GcTest;

my $node = blob_cluster('main', conf => "autovacuum = off\n");
gc_use($node);
$node->stop;
without_data_checksums($node);
$node->start;

# Values that have gone: what a round would free if nothing were damaged.
table('gone', 5);
sql('DROP TABLE s.gone');

table('t', 3);
sql(q(CREATE TYPE s.pair AS (n integer, b blobstate)),
	q(CREATE TYPE s.span AS RANGE (subtype = blobstate, multirange_type_name = s.spans)),
	q(CREATE TABLE s.boxes (id integer, a blobstate[], p s.pair, r s.span, m s.spans)),
	q(ALTER TABLE s.boxes ALTER a SET STORAGE EXTERNAL, ALTER p SET STORAGE EXTERNAL,
		ALTER r SET STORAGE EXTERNAL, ALTER m SET STORAGE EXTERNAL),
	q(INSERT INTO s.boxes SELECT i, ARRAY[value(10 + i), NULL, value(20 + i)]::blobstate[], NULL, NULL, NULL
		FROM generate_series(1, 1) AS i),
	q(INSERT INTO s.boxes (id, p) VALUES (2, ROW(1, value(31)))),
	q(INSERT INTO s.boxes (id, r) SELECT 3, s.span(repeat('a', 99)::bytea::blobstate, repeat('b', 99)::bytea::blobstate)),
	q(INSERT INTO s.boxes (id, m) SELECT 4,
		s.spans(s.span(repeat('a', 99)::bytea::blobstate, repeat('b', 99)::bytea::blobstate))),
	q(CREATE TABLE s.large (id integer, a blobstate[])),
	q(ALTER TABLE s.large ALTER a SET STORAGE EXTERNAL),
	q(INSERT INTO s.large SELECT 1, array_agg(value(60 + i)::blobstate) FROM generate_series(1, 20) AS i),
	q(CREATE TABLE s.keyed (id integer, b blobstate)),
	q(INSERT INTO s.keyed SELECT i, value(200 + i) FROM generate_series(1, 60) AS i),
	q(CREATE INDEX keyed_b ON s.keyed (b)));
my $toast = sql(q(SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 's.large'::regclass));

# ---- bytes of a page ----

sub path_of
{
	my ($relation) = @_;
	return $node->data_dir . '/' . sql("SELECT pg_relation_filepath('$relation')");
}

sub read_block
{
	my ($file, $block) = @_;
	open(my $handle, '<:raw', $file) or die "$file: $!";
	sysseek($handle, $block * 8192, 0) or die "$file: $!";
	sysread($handle, my $page, 8192) == 8192 or die "$file: $!";
	close $handle;
	return $page;
}

sub write_block
{
	my ($file, $block, $page) = @_;
	open(my $handle, '+<:raw', $file) or die "$file: $!";
	sysseek($handle, $block * 8192, 0) or die "$file: $!";
	syswrite($handle, $page) == 8192 or die "$file: $!";
	close $handle or die "$file: $!";
	return;
}

# Offset of an item on its page, by its line pointer.
sub item_at
{
	my ($page, $item) = @_;
	return unpack('V', substr($page, 24 + 4 * ($item - 1), 4)) & 0x7fff;
}

# Offset of the first attribute of a row.
sub data_at
{
	my ($page, $item) = @_;
	my $at = item_at($page, $item);
	return $at + unpack('C', substr($page, $at + 22, 1));
}

sub put
{
	my ($page, $at, $bytes) = @_;
	substr($$page, $at, length $bytes) = $bytes;
	return;
}

# Change a block while the server is down; what the last call changed becomes as it was.
my @old;

sub change
{
	my ($relation, $block, $change) = @_;
	my $file = defined $relation ? path_of($relation) : undef;
	sql('CHECKPOINT');
	$node->stop;
	write_block(@old) if @old;
	@old = ();
	if (defined $file)
	{
		my $page = read_block($file, $block);
		@old = ($file, $block, $page);
		$change->(\$page);
		isnt($page, $old[2], 'the page has been changed');
		write_block($file, $block, $page);
	}
	return $node->start;
}

# ---- what must hold ----

my $crashes = qr/terminated by signal|server process .* was terminated|PANIC/;

sub stays_up
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return unlike(slurp_file($node->logfile), $crashes, "$name: no process of the server has crashed");
}

# The place as "(block,item)", the relation as it must be named.
sub round_refuses
{
	my ($name, $code, $relation, $place, $problem) = @_;
	my $what = $code eq 'XX002' ? 'key' : 'row';
	my $said = "$what \Q$place\E of \Q$relation\E cannot be read: $problem";
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	fails_with($node, 'SELECT * FROM blobext_gc()', $code, qr/$said/, "$name: the round frees nothing and says why");
	like(sql('SELECT skipped_reason FROM blobext_gc_status'), qr/^$said/, "$name: the view says why");
	like(slurp_file($node->logfile), qr/$said/, "$name: the log says why");
	return;
}

sub check_finds
{
	my ($name, $relation, $place, $problem) = @_;
	my $found = sql(q(SELECT relation, tid, problem FROM blobext_check()));
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($found, qr{\A\Q$relation\E\|\Q$place\E\|.*$problem\z}, "$name: the check names it, and nothing else");
	return;
}

# The procedure that gives old values checksums names it, too, and goes on.
sub procedure_names
{
	my ($name, $place, $problem) = @_;
	my ($code, undef, $said) = $node->psql('postgres', 'CALL blobext_add_checksums()');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return like("$code $said", qr/^0 .*row \Q$place\E of .* got no checksums: .*$problem/, "$name: CALL names it, and ends");
}

# A damage of a row of a table: item, change of the page, problem.
sub row_is_refused
{
	my ($name, $relation, $item, $problem, $change) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	change($relation, 0, $change);
	round_refuses($name, 'XX001', $relation, "(0,$item)", $problem);
	check_finds($name, $relation, "(0,$item)", $problem);
	procedure_names($name, "(0,$item)", $problem);
	stays_up($name);
	return;
}

sub key_is_refused
{
	my ($name, $block, $item, $problem, $change) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	change('s.keyed_b', $block, $change);
	round_refuses($name, 'XX002', 's.keyed_b', "($block,$item)", $problem);
	check_finds($name, 's.keyed_b', "($block,$item)", $problem);
	stays_up($name);
	return;
}

# ---- rows ----

my $huge = pack('V', 0x7ffffffc);	# a length of half a gigabyte
my $outside = qr/attribute 2 does not end within the row/;

row_is_refused('a length that leaves the page', 's.t', 2, $outside,
	sub { put($_[0], data_at(${$_[0]}, 2) + 4, $huge) });
row_is_refused('a length that leaves the row', 's.t', 2, $outside,
	sub { put($_[0], data_at(${$_[0]}, 2) + 4, pack('V', 4000 << 2)) });
row_is_refused('a length of zero', 's.t', 1, $outside,
	sub { put($_[0], data_at(${$_[0]}, 1) + 4, "\0\0\0\0") });
row_is_refused('a pointer to memory', 's.t', 2, $outside,
	sub { put($_[0], data_at(${$_[0]}, 2) + 4, "\x01\x01" . "\x11" x 16) });
row_is_refused('a pointer to an object in memory', 's.t', 2, $outside,
	sub { put($_[0], data_at(${$_[0]}, 2) + 4, "\x01\x03" . "\x11" x 16) });
row_is_refused('data that begin behind the row', 's.t', 3, qr/its header has a wrong length/,
	sub { put($_[0], item_at(${$_[0]}, 3) + 22, "\xf8") });
row_is_refused('nulls without room for them', 's.t', 3, qr/its header has a wrong length/,
	sub { put($_[0], item_at(${$_[0]}, 3) + 18, pack('vv', 0x7ff, 0x0903)) });
row_is_refused('a header that denies values of variable length', 's.t', 3, qr/its header is wrong about attributes of variable length/,
	sub { put($_[0], item_at(${$_[0]}, 3) + 20, pack('v', 0x0900)) });
row_is_refused('a row without room for its header', 's.t', 3, qr/it is shorter than its header/,
	sub { put($_[0], 24 + 8, pack('V', item_at(${$_[0]}, 3) | 1 << 15 | 8 << 17)) });

# PostgreSQL's pruning would end the server with a PANIC at this one.
sql('CREATE TABLE s.pruned (id integer, b blobstate)',
	'INSERT INTO s.pruned SELECT i, value(300 + i) FROM generate_series(1, 3) AS i',
	'DELETE FROM s.pruned WHERE id = 3');
row_is_refused('a line pointer out of a page that could be pruned', 's.pruned', 2,
	qr/its line pointer leaves the page/,
	sub { put($_[0], 24 + 4, pack('V', item_at(${$_[0]}, 2) | 1 << 15 | 8000 << 17)) });

# ---- containers ----

# The header of the value in the second attribute is at 4; of a row with nulls, all others are short.
row_is_refused('an array of too many dimensions', 's.boxes', 1, qr/an array's header is damaged/,
	sub { put($_[0], data_at(${$_[0]}, 1) + 8, pack('V', 77)) });
row_is_refused('an array of too many elements', 's.boxes', 1, qr/an array's elements begin in the wrong place/,
	sub { put($_[0], data_at(${$_[0]}, 1) + 20, pack('V', 100_000)) });
row_is_refused('an array of impossible size', 's.boxes', 1, qr/an array has impossible dimensions/,
	sub { put($_[0], data_at(${$_[0]}, 1) + 20, pack('V', 0x7fffffff)) });
row_is_refused('an array whose element is too long', 's.boxes', 1, qr/element 1 of an array does not end within it/,
	sub { put($_[0], data_at(${$_[0]}, 1) + 4 + 32, $huge) });
row_is_refused('a row in a row that is too long', 's.boxes', 2, qr/attribute 2 does not end within the row/,
	sub { put($_[0], data_at(${$_[0]}, 2) + 8 + 24 + 4, $huge) });
row_is_refused('a range whose bound is too long', 's.boxes', 3, qr/a bound does not end within its range/,
	sub { put($_[0], data_at(${$_[0]}, 3) + 4 + 8, $huge) });
row_is_refused('a multirange of too many ranges', 's.boxes', 4, qr/a multirange has more ranges than room for them/,
	sub { put($_[0], data_at(${$_[0]}, 4) + 4 + 8, pack('V', 0x7fffffff)) });
row_is_refused('a multirange whose bound is too long', 's.boxes', 4, qr/a range does not end within its multirange/,
	sub { put($_[0], data_at(${$_[0]}, 4) + 4 + 16, $huge) });

# The array lies in chunks of TOAST; its first element has its header at 20 of the array, or less by
# what the chunk lacks: the header of the whole value.
change($toast, 0, sub { put($_[0], data_at(${$_[0]}, 1) + 8 + 4 + 20, $huge) });
round_refuses('an array in TOAST', 'XX001', 's.large', '(0,1)', qr/element 1 of an array does not end within it/);
check_finds('an array in TOAST', 's.large', '(0,1)', qr/element 1 of an array does not end within it/);
stays_up('an array in TOAST');

# ---- keys ----

# Block 1 is the leftmost leaf; item 1 is its high key.
key_is_refused('a key that is too long', 1, 2, qr/attribute 1 does not end within the row/,
	sub { put($_[0], item_at(${$_[0]}, 2) + 8, $huge) });
key_is_refused('a key with another length than its line pointer', 1, 2, qr/its header has a wrong length/,
	sub { put($_[0], item_at(${$_[0]}, 2) + 6, pack('v', 0x5ff0)) });
key_is_refused('a high key with more attributes than the index', 1, 1, qr/it has more attributes than the index/,
	sub { put($_[0], item_at(${$_[0]}, 1) + 4, pack('v', 9)) });
key_is_refused('a key that leaves its page', 1, 2, qr/its line pointer leaves the page/,
	sub { put($_[0], 24 + 4, pack('V', 8000 | 1 << 15 | 400 << 17)) });

# ---- statistics ----

sql('ANALYZE s.keyed');
my ($tid) = sql(q(SELECT ctid FROM pg_statistic WHERE starelid = 's.keyed'::regclass AND staattnum = 1));
my ($block, $item) = $tid =~ /\((\d+),(\d+)\)/;
my $values = sql(q(SELECT length(stavalues1::text) FROM pg_statistic WHERE starelid = 's.keyed'::regclass AND staattnum = 1));
change('pg_statistic', $block, sub { put($_[0], item_at(${$_[0]}, $item) + 22, "\xf8") });
round_refuses('a row of statistics', 'XX001', 'pg_catalog.pg_statistic', $tid, qr/its header has a wrong length/);
stays_up('a row of statistics');
change(undef);
isnt($values, '', 'the row of statistics had values');

# ---- a column that was rolled back ----

# The row that is left has numbers where the table has values now: as a value, a pointer to memory.
# The owner of a table needs no other privilege for that.
sql('CREATE TABLE s.changed (id integer)', 'INSERT INTO s.changed VALUES (1)');
sql('BEGIN; ALTER TABLE s.changed ADD b integer, ADD c integer, ADD d integer;
	INSERT INTO s.changed VALUES (2, 257, 1111111111, 1111111111); ROLLBACK');
sql('ALTER TABLE s.changed ADD b blobstate', 'INSERT INTO s.changed VALUES (3, value(90))');
# Five that have gone, and the row of s.pruned that was deleted.
is(join('|', (gc())[ 0, 2 ]), '6|', 'a row whose columns were rolled back is passed over: the round frees what has gone');
stays_up('a row whose columns were rolled back');
check_is_clean($node, 'the check finds nothing when all bytes are as they were');
is(sql('SELECT count(*) FROM s.changed WHERE id = 3 AND b = value(90)::blobstate'), '1', 'the value beside it is intact');
intact('SELECT id, b FROM s.t', 3, 'the values of the damaged table are intact');

# ---- rounds by themselves ----

table('gone', 5);
sql('DROP TABLE s.gone');
change('s.t', 0, sub { put($_[0], data_at(${$_[0]}, 2) + 4, $huge) });
my $log_end = -s $node->logfile;
my $extents = 'SELECT count(*) FROM blobext_map';
my $lived = sql($extents);
$node->append_conf('postgresql.conf', "blobext.autogc = on\nblobext.autogc_naptime = 1\nblobext.autogc_interval = 1\n");
$node->reload;
my $reason = q(SELECT coalesce((SELECT skipped_reason FROM blobext_gc_status
	WHERE skipped_reason LIKE 'row (0,2) of s.t cannot be read: attribute 2%'), '') <> '');
ok(poll($reason), 'a round by itself: the view says why nothing is freed');

# Pauses double from one second on; a slow machine makes them longer only.
my $look = qr/^\S+ (\d+):(\d+):(\d+)\S* UTC [^\[]*\[\d+\] ERROR:  row \(0,2\) of s\.t cannot be read: attribute 2/m;
ok($node->wait_for_log(qr/(?s:$look.*){4}/, $log_end), 'a round by itself: the log says why nothing is freed');
my @looks;
my $log = slurp_file($node->logfile, $log_end);
push @looks, ($1 * 60 + $2) * 60 + $3 while $log =~ /$look/g;
cmp_ok(($looks[3] - $looks[2]) % 86_400, '>=', 3, 'rounds that fail come with growing pauses');
stays_up('rounds by themselves');
is(sql($extents), $lived, 'rounds by themselves free nothing');
change(undef);
ok(poll("SELECT ($extents) < $lived"), 'a round by itself frees what has gone when the row is as it was');
intact('SELECT id, b FROM s.t', 3, 'the values are intact after the round');

# ---- a row that is given up ----

change('s.t', 0, sub { put($_[0], data_at(${$_[0]}, 2) + 4, $huge) });
ok(poll($reason), 'a row that is given up: nothing is freed before');
$lived = sql($extents);
sql(q(DELETE FROM s.t WHERE ctid = '(0,2)'), 'VACUUM s.t');
ok(poll("SELECT ($extents) < $lived"), 'a damaged row can be deleted by its place, and rounds free again');
stays_up('a row that is given up');
intact('SELECT id, b FROM s.t', 2, 'the values of the other rows are intact');
check_is_clean($node, 'the check finds nothing when the damaged row is gone');

done_testing();
