# test/upgrade/released.sh: the part "released" of suites/upgrade.sh, which sources it.

. "$test_dir/upgrade/servers.sh"
# Each of both goes on with the other, but for two things that the older library lacks: the support
# function of comparisons, after ALTER EXTENSION UPDATE; a remainder with a checksum.
queries="SELECT count(*) FROM v WHERE b = (SELECT b FROM v WHERE id = 11);
	SELECT count(*) FROM v AS x JOIN v AS y USING (b);
	SELECT count(DISTINCT b) FROM v; SELECT md5(string_agg(md5(b), ',' ORDER BY b)) FROM v;
	SELECT count(*) FROM w WHERE nullif(b, '\\x') IS NOT NULL;
	SELECT count(*) FROM v, blob_chunks(b, 100000)"

# Eight trees, four of them compressed, in a table x.
trees="INSERT INTO x SELECT i, '', decode(repeat(md5(i::text), 20000), 'hex')
		FROM generate_series(1, 4) AS i;
	INSERT INTO x SELECT i, '', string_agg(sha256((i * 10000 + j)::text::bytea), '')::blobstate
		FROM generate_series(5, 8) AS i, generate_series(1, 9000) AS j GROUP BY i;
	UPDATE x SET b = blob_recompress(b, 'zstd') WHERE id <= 4;
	UPDATE x SET b = blob_insert(b, 100000, 'inserted');
	UPDATE x SET digest = encode(sha256(b), 'hex')"

# $1: name, $2: what each statement of the rest must fail with
refused()
{
	local name=$1 pattern=$2 statement
	shift 2
	for statement in "$@"; do
		check "$name: it says why" "$(sql "$statement" 2>&1 | grep -c "$pattern")" 1
	done
}

# Whatever asks for something of a tree, at port $1.
trees_are_refused()
{
	local expression

	for expression in 'b::bytea' 'length(b)' 'sha256(b)' 'b' 'blob_read(b, 0, 10)' \
		'substring(b, 1, 5)' 'blob_storage(b)' 'md5(b)' 'blob_prefix(b)'; do
		PGPORT=$1 refused "$2: $expression of a tree is refused" 'XX001.*unknown format' \
			"SELECT $expression FROM x WHERE id = 7"
	done
	PGPORT=$1 refused "$2: COPY of trees is refused" 'XX001.*unknown format' 'COPY x TO STDOUT' \
		'COPY x TO STDOUT (FORMAT binary)'
	check "$2: rows of trees are counted" "$(PGPORT=$1 sql 'SELECT count(*) FROM x')" 8
}

# ---- an older primary with all that it knows, a newer standby ----

start a 5790 "$old_bindir"
sql "CREATE EXTENSION blobext; $table; CREATE INDEX ON v (b); $store; CREATE TABLE w (LIKE v);
	SELECT blobext_set_compression('w', 'b', 'zstd')" > /dev/null
sql "INSERT INTO w SELECT id, digest, b::bytea FROM v WHERE length(b) > 100000"
make_standby b 5790
start b 5791 "$new_bindir"
sql "$churn; UPDATE w SET b = b || 'end'; UPDATE w SET digest = encode(sha256(b), 'hex')"
collect 5790
sql "$churn"
catch_up 5790 5791
same 'older primary, newer standby: values' 5790 5791
check 'older primary, newer standby: compressed values' \
	"$(PGPORT=5791 sql "${intact/FROM v/FROM w}")" \
	"$(sql 'SELECT count(*) FROM w')"
check 'older primary, newer standby: the check finds nothing' \
	"$(PGPORT=5791 sql 'SELECT * FROM blobext_check()')" ''
check 'older primary, newer standby: answers' "$(PGPORT=5791 sql "$queries")" "$(sql "$queries")"
stop b immediate
start b 5791 "$new_bindir"
sql "$churn"
catch_up 5790 5791
same 'newer standby, killed and started again' 5790 5791
stop a

# ---- the older server crashes, recovers with the newer library, and gets the older one back ----

cp -R "$work/a" "$work/d"
start d 5793 "$old_bindir"
PGPORT=5793 sql "$churn"
stop d immediate
start d 5793 "$new_bindir"
same 'crash of the older, recovery by the newer' 5793 5793
PGPORT=5793 sql "$churn"
collect 5793
PGPORT=5793 sql "$churn"
stop d immediate
start d 5793 "$old_bindir"
same 'back: the older one recovers from what the newer one has logged' 5793 5793
check 'back: the check of the older one finds nothing' \
	"$(PGPORT=5793 sql 'SELECT * FROM blobext_check()')" ''
stop d

# ---- a newer primary, an older standby ----

PGPORT=5791 sql 'SELECT pg_promote()' > /dev/null
PGPORT=5791 sql "$churn"
make_standby c 5791
start c 5792 "$old_bindir"
PGPORT=5791 sql "$churn"
collect 5791
PGPORT=5791 sql "$churn"
catch_up 5791 5792
same 'newer primary, older standby: values' 5791 5792
check 'newer primary, older standby: the check finds nothing' \
	"$(PGPORT=5792 sql 'SELECT * FROM blobext_check()')" ''
PGPORT=5791 sql 'ALTER EXTENSION blobext UPDATE'
PGPORT=5791 sql "$churn; UPDATE w SET b = b || 'more';
	UPDATE w SET digest = encode(sha256(b), 'hex')"
catch_up 5791 5792
same 'SQL objects are updated: the older standby reads' 5791 5792
check 'SQL objects are updated: compressed values on the older standby' \
	"$(PGPORT=5792 sql "${intact/FROM v/FROM w}")" "$(PGPORT=5791 sql 'SELECT count(*) FROM w')"
check 'SQL objects are updated: the older standby says that it cannot plan comparisons' \
	"$(PGPORT=5792 sql "$queries" | grep -c 'could not find function "blob_operator_support"')" 1
PGPORT=5791 sql "UPDATE w SET b = b || convert_to(repeat('x', 2000), 'UTF8');
	UPDATE w SET digest = encode(sha256(b), 'hex')"
catch_up 5791 5792
check 'remainders with a checksum: the older standby refuses them, each with a reason' \
	"$(PGPORT=5792 sql 'SELECT sum(length(b::bytea)) FROM w' |
		grep -c 'Reserved bytes are not zero')" 1

# Trees, and a label that says of digests what the older version does not know.  Each use of a tree
# is an error there; what it can do is right.
PGPORT=5791 sql "CREATE TABLE x (id int PRIMARY KEY, digest text, b blobstate);
	CREATE TABLE labelled (LIKE x); SELECT blobext_set_compression('labelled', 'b', 'zstd');
	SELECT blobext_set_digest('labelled', 'b', 'deferred');
	INSERT INTO labelled (id, b) VALUES (1, 'small'); SET blobext.rewrite_limit = '32kB';
	$trees" > /dev/null
catch_up 5791 5792
trees_are_refused 5792 'newer primary, older standby'
check 'a label of digests: the older standby reads a value that it knows' \
	"$(PGPORT=5792 sql 'SELECT b::bytea FROM labelled')" '\x736d616c6c'

stop c
start c 5792 "$new_bindir"
check 'trees: the updated standby reads them' \
	"$(PGPORT=5792 sql "${intact/FROM v/FROM x}")" 8
check 'remainders with a checksum: the updated standby reads them' \
	"$(PGPORT=5792 sql "${intact/FROM v/FROM w}")" "$(PGPORT=5791 sql 'SELECT count(*) FROM w')"
check 'SQL objects are updated, and then the standby: its answers' "$(PGPORT=5792 sql "$queries")" \
	"$(PGPORT=5791 sql "$queries")"

# ---- the standby that came last is promoted ----

stop b
# The older library on a primary with trees and that label.
cp -R "$work/b" "$work/d2"
start d2 5793 "$old_bindir"
trees_are_refused 5793 'older library on a primary'
export PGPORT=5793
refused 'older library on a primary: a tree is not assigned' 'XX001.*unknown format' \
	'INSERT INTO v (b) SELECT b FROM x WHERE id = 1'
refused 'older library on a primary: a tree is not changed' 'XX001.*unknown format' \
	"UPDATE x SET b = b || 'more'"
refused 'older library on a primary: no index is made over trees' 'XX001.*unknown format' \
	'CREATE INDEX ON x (b)'
refused 'older library on a primary: nothing is stored in a column with a label of digests' \
	'0A000.*unknown method of compression, "zstd, digest deferred"' \
	"INSERT INTO labelled (id, b) SELECT 2, convert_to(repeat('x', 5000), 'UTF8')"
sql "DELETE FROM v WHERE id % 3 = 0"
sql "VACUUM v"
check 'older library on a primary: the collector fails, so it frees nothing' \
	"$(sql 'SELECT freed_blobs, skipped_reason FROM blobext_gc()' 2>&1 | grep -c XX001)" 1
check 'older library on a primary: the check names each tree' \
	"$(sql "SELECT count(DISTINCT tid) FROM blobext_check() WHERE relation = 'x'::regclass
		AND problem ~ 'unknown format'")" 8
"$new_bindir/pg_dump" --schema-only -t labelled > "$work/labelled.sql"
sql 'CREATE DATABASE restored TEMPLATE template0'
PGDATABASE=restored sql 'CREATE EXTENSION blobext'
check 'a dumped label of digests is refused by the older library' \
	"$(PGDATABASE=restored "$new_bindir/psql" -X -q -v VERBOSITY=verbose \
		-f "$work/labelled.sql" 2>&1 |
		grep -c '22023: "zstd, digest deferred" is not a method of compression')" 1
check 'a table is restored without the label by the older library' \
	"$(PGDATABASE=restored sql 'SELECT count(*) FROM labelled')" 0
export PGPORT=5790
stop d2
start d2 5793 "$new_bindir"
check 'trees are whole after the older library was there' \
	"$(PGPORT=5793 sql "${intact/FROM v/FROM x}")" 8
check 'trees: the check finds nothing after the older library was there' \
	"$(PGPORT=5793 sql 'SELECT * FROM blobext_check()')" ''
stop d2

PGPORT=5792 sql 'SELECT pg_promote()' > /dev/null
PGPORT=5792 sql "$churn"
collect 5792
same 'updated and promoted: the standby has all values' 5792 5792
check 'updated: the check finds nothing' "$(PGPORT=5792 sql 'SELECT * FROM blobext_check()')" ''

# ---- checksums for a store of the older version: standbys first ----

make_standby e 5792
start e 5794 "$old_bindir"
check 'a store of the older version has no checksums' "$(PGPORT=5792 sql "
	SELECT sum(checksummed_bytes) = 0 FROM blobext_space WHERE extents IS NOT NULL")" t
PGPORT=5792 sql "$churn"
catch_up 5792 5794
check 'checksums are enabled by the newer primary' \
	"$(PGPORT=5792 sql 'SELECT blobext_enable_checksums()')" t
check 'checksums: the older standby stops' "$(wait_for_end e && echo yes)" yes
check 'checksums: the older standby says why it stops' \
	"$(grep -c 'PANIC:  blobext cannot replay WAL of format version 3' "$work/e.log")" 1
PGPORT=5792 sql "$churn"
check 'checksums: old values get theirs' "$(PGPORT=5792 sql 'CALL blobext_add_checksums()' |
	sed 's/.*|//')" 0
start e 5794 "$new_bindir"
catch_up 5792 5794
same 'checksums: the updated standby has all values' 5792 5794
check 'checksums: the check on the updated standby finds nothing' \
	"$(PGPORT=5794 sql 'SELECT * FROM blobext_check()')" ''
stop e
stop c
start c 5792 "$old_bindir"
check 'checksums: the older library refuses the store' \
	"$(PGPORT=5792 sql 'SELECT sum(length(b::bytea)) FROM v' 2>&1 |
		grep -c 'written by an incompatible build')" 1
stop c
start c 5792 "$new_bindir"
same 'checksums: back to the newer library' 5792 5792

check 'no server has met a PANIC' "$(grep -l PANIC "$work"/{a,b,c,d,d2}.log)" ''
