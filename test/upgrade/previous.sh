# test/upgrade/previous.sh: the part "previous" of suites/upgrade.sh, which sources it.

. "$test_dir/upgrade/servers.sh"
# Nothing that is new, until it is asked for; 0.2.0 warns of the setting.
echo 'blobext.keep_free = -1' >> "$work/a/postgresql.conf"

# ---- an older primary, a newer standby ----

start a 5790 "$old_bindir"
sql "CREATE EXTENSION blobext; $table; $store"
make_standby b 5790
start b 5791 "$new_bindir"
sql "$churn"
collect 5790
sql "$churn"
catch_up 5790 5791
same 'older primary, newer standby: values' 5790 5791
check 'older primary, newer standby: the check finds nothing' \
	"$(PGPORT=5791 sql 'SELECT * FROM blobext_check()')" ''
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
PGPORT=5793 sql 'SELECT * FROM blobext_gc()' > /dev/null
PGPORT=5793 sql "$churn"
stop d immediate
start d 5793 "$old_bindir"
same 'back: the older one recovers from what the newer one has logged' 5793 5793
check 'back: the check of the older one finds nothing' \
	"$(PGPORT=5793 sql 'SELECT * FROM blobext_check()')" ''
stop d

# ---- a newer primary, an older standby: nothing new is used ----

PGPORT=5791 sql 'SELECT pg_promote()' > /dev/null
PGPORT=5791 sql "$churn"
make_standby c 5791
start c 5792 "$old_bindir"
PGPORT=5791 sql "$churn"
collect 5791
PGPORT=5791 sql "$churn"
collect 5791
PGPORT=5791 sql "$churn"
catch_up 5791 5792
same 'newer primary, older standby: it goes on when the collector frees' 5791 5792
check 'the same: the check of the older one finds nothing' \
	"$(PGPORT=5792 sql 'SELECT * FROM blobext_check()')" ''
PGPORT=5791 sql 'ALTER EXTENSION blobext UPDATE'
PGPORT=5791 sql "$churn"
catch_up 5791 5792
same 'SQL objects are updated: the older standby reads' 5791 5792

# ---- new here: compressed values, holes, fetched content ----

PGPORT=5791 sql "CREATE TABLE w (LIKE v); SELECT blobext_set_compression('w', 'b', 'zstd');
	INSERT INTO w SELECT id, digest, b::bytea FROM v WHERE length(b) > 100000" > /dev/null
compressed=$(PGPORT=5791 sql "SELECT count(*) FROM w WHERE blob_compression(b) = 'zstd'")
check 'more than ten values are compressed' "$((compressed > 10))" 1
catch_up 5791 5792
same 'compressed values in another table: the older standby reads the others' 5791 5792
check 'compressed values are refused, each with a reason' \
	"$(PGPORT=5792 sql 'SELECT sum(length(b::bytea)) FROM w' |
	grep -c '0A000: cannot read compressed content of a blobstate value')" 1

echo "blobext.keep_free = '1GB'" >> "$work/b/postgresql.conf"
stop b
start b 5791 "$new_bindir"
PGPORT=5791 sql 'DELETE FROM v WHERE id % 8 <> 0'
collect 5791
PGPORT=5791 sql 'SELECT * FROM blobext_gc()' > /dev/null
check 'the newer primary punches holes' \
	"$(PGPORT=5791 sql "SELECT sum(pages) > 1000 FROM blobext_space WHERE state = 'punched'")" t
PGPORT=5791 sql "$churn"
catch_up 5791 5792
same 'holes: the older standby reads' 5791 5792
# As blobext_fetch() writes it; without any range.
PGPORT=5791 sql "CREATE FUNCTION unit_wal_raw(map regclass, version int, info int, rest bytea)
	RETURNS void AS '$work/lib/blobext_unit' LANGUAGE C STRICT;
	SELECT unit_wal_raw('blobext_map', 2, 192, '\\x0000000000000000'); $churn" > /dev/null
check 'fetched content: the older standby stops' "$(wait_for_end c && echo yes)" yes
check 'the older standby says why it stops' \
	"$(grep -c 'PANIC:  blobext: unknown WAL record' "$work/c.log")" 1
start c 5792 "$new_bindir"
catch_up 5791 5792
same 'updated, it goes on and reads' 5791 5792
check 'updated: compressed values are whole' "$(PGPORT=5792 sql "${intact/FROM v/FROM w}")" \
	"$(PGPORT=5791 sql 'SELECT count(*) FROM w')"
check 'updated: the check finds nothing' "$(PGPORT=5792 sql 'SELECT * FROM blobext_check()')" ''

# ---- back, where something new was used ----

stop b
start b 5791 "$old_bindir"
PGPORT=5791 sql "$churn"
same 'the older one on a map with holes: it stores and reads' 5791 5791
stop b
start b 5791 "$new_bindir"
same 'the newer one again' 5791 5791
check 'the newer one again: the check finds nothing' \
	"$(PGPORT=5791 sql 'SELECT * FROM blobext_check()')" ''
stop b
PGPORT=5792 sql 'SELECT pg_promote()' > /dev/null
PGPORT=5792 sql "$churn"
same 'updated and promoted: the standby has all values' 5792 5792
check 'no other server has met a PANIC' "$(grep -l PANIC "$work"/[abd].log)" ''
