# monitoring/: the queries for postgres_exporter run, as a member of pg_monitor, and give the columns
# that are declared, one row per set of labels; alert rules and dashboard use metrics of these
# queries only.
#
# The exporter, Prometheus and promtool are run by monitoring/try, by hand.  Seen to fail: with a
# column that is not declared, with a metric in a rule that no query gives, without the GRANTs of
# view blobext_databases, with an entry without metrics, with two entries of one name.
use strict;
use warnings;

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use lib $FindBin::RealBin;
use BlobTest;

my $folder = "$FindBin::RealBin/../monitoring";

# The form of YAML that this file has: name, folded query, metrics.
my (%queries, $name);
my $yaml = slurp_file("$folder/postgres_exporter.yaml");
$yaml =~ s/,\n +description:/, description:/g;
foreach (split /\n/, $yaml)
{
	if (/^(\w+):$/) { $name = $1 }
	elsif (/^    - (\w+): \{usage: "(LABEL|GAUGE|COUNTER)", description: "[^"]+"\}$/)
	{
		push @{ $queries{$name}{columns} }, $1;
		push @{ $queries{$name}{labels} }, $1 if $2 eq 'LABEL';
	}
	elsif (/^    ([^ -].*)$/) { $queries{$name}{sql} .= "$1 " }
	elsif (!/^(#.*|  master: true|  query: >-|  metrics:|)$/) { fail("a line that is understood: $_") }
}
my @with_metrics = grep { $_->{sql} && @{ $_->{columns} // [] } > @{ $_->{labels} // [] } } values %queries;
my @entries = $yaml =~ /^\w+:$/mg;
is(scalar @with_metrics, scalar @entries, 'each entry of the file is a query with a metric, under its own name');
cmp_ok(scalar @entries, '>', 0, 'the file of queries has entries');

my $node = blob_cluster('primary');
$node->safe_psql('postgres', q(CREATE ROLE exporter LOGIN IN ROLE pg_monitor));
$node->safe_psql('postgres', q(CREATE DATABASE other));
foreach my $database ('postgres', 'other')
{
	$node->safe_psql($database, q(CREATE EXTENSION IF NOT EXISTS blobext;
		CREATE TABLE document (content blobstate);
		INSERT INTO document SELECT convert_to(repeat(md5(i::text), 1000), 'UTF8')
			FROM generate_series(1, 5) AS i));
	$node->safe_psql($database, 'SELECT * FROM blobext_gc()');
}

my %metrics;
foreach my $query (sort keys %queries)
{
	my ($sql, $columns, $labels) = @{ $queries{$query} }{ 'sql', 'columns', 'labels' };
	my @answer = split /\n/, $node->safe_psql('postgres', $sql,
		extra_params => [ '-U', 'exporter', '-P', 'tuples_only=off', '-P', 'footer=off' ]);

	is(shift @answer, join('|', @$columns), "$query gives the columns that are declared");
	cmp_ok(scalar @answer, '==', $labels ? 2 : 1, "$query gives a row for each set of labels");
	unlike("|$_|", qr/\|\|/, "$query gives numbers in all columns") foreach @answer;
	$metrics{"${query}_$_"} = 1 foreach @$columns;
}

# Names of metrics in an expression of PromQL: not those of labels, nor of the exporter's own.
sub used
{
	my ($expression) = @_;
	return grep { /^blobext_/ } $expression =~ /\b([a-z_]+)\b(?!\s*=~)/g;
}

my (%in_rules, %in_dashboard);
my $rules = slurp_file("$folder/alerts.yml");
while ($rules =~ /^ +expr: (.*?)^ +(?:for|labels):/gms)
{
	$in_rules{$_} = 1 foreach used($1);
}
cmp_ok(scalar keys %in_rules, '>', 10, 'the rules use metrics');
is_deeply([ grep { !$metrics{$_} } sort keys %in_rules ], [], 'the rules use metrics that there are');

my $dashboard = decode_json(slurp_file("$folder/dashboard.json"));
foreach my $panel (@{ $dashboard->{panels} })
{
	my @used = map { used($_->{expr}) } @{ $panel->{targets} };

	ok(@used > 0, "panel \"$panel->{title}\" shows metrics");
	$in_dashboard{$_} = 1 foreach @used;
}
foreach my $variable (grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} })
{
	$in_dashboard{$_} = 1 foreach used($variable->{definition});
}
is_deeply([ grep { !$metrics{$_} } sort keys %in_dashboard ], [],
	'the dashboard uses metrics that there are');

done_testing();
