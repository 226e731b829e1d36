# test/upgrade/rolling.sh: the part "rolling" of suites/upgrade.sh, which sources it.

. "$test_dir/upgrade/servers.sh"

# ---- an older primary ----

start a 5790 "$old_bindir"
sql "CREATE EXTENSION blobext; $table; $store"
make_standby b 5790
cp -R "$work/b" "$work/e"
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
archived=$(sql 'SELECT count(*) FROM v')
sql 'SELECT pg_switch_wal()' > /dev/null
sql CHECKPOINT
sql "$store"

# ---- the older server's backup and archive, restored with the newer library ----

stop a
rm -f "$work/e/standby.signal"
touch "$work/e/recovery.signal"
printf '%s\n' "restore_command = 'cp $work/archive/%f %p'" "archive_mode = off" \
	"primary_conninfo = ''" "recovery_target_timeline = 'current'" >> "$work/e/postgresql.conf"
start e 5794 "$new_bindir"
for i in $(seq 600); do
	[ "$(PGPORT=5794 sql 'SELECT pg_is_in_recovery()')" = t ] || break
	sleep 0.1
done
check 'restored: at least what was archived' \
	"$(PGPORT=5794 sql "SELECT count(*) >= $archived FROM v")" t
same 'restored: the values are whole' 5794 5794
PGPORT=5794 sql "$churn"
same 'restored: values that were stored since are whole' 5794 5794
stop e

# ---- the older server crashes, and recovers with the newer library ----

cp -R "$work/a" "$work/d"
start d 5793 "$old_bindir"
PGPORT=5793 sql "$churn"
stop d immediate
start d 5793 "$new_bindir"
same 'crash of the older, recovery by the newer' 5793 5793
stop d
start d 5793 "$old_bindir"
PGPORT=5793 sql "$churn"
stop d immediate
start d 5793 "$new_bindir"
stop d immediate
start d 5793 "$old_bindir"
same 'crash of the newer, recovery by the older, as nothing new was used' 5793 5793
stop d

# ---- a newer primary ----

PGPORT=5791 sql 'SELECT pg_promote()' > /dev/null
PGPORT=5791 sql "$churn"
same 'newer standby of an older primary, promoted' 5791 5791
make_standby c 5791
start c 5792 "$old_bindir"
PGPORT=5791 sql "$churn"
PGPORT=5791 sql CHECKPOINT
PGPORT=5791 sql "$churn"
catch_up 5791 5792
same 'newer primary, older standby: goes on while nothing is freed' 5791 5792
stop c
rm -rf "$work/d"
cp -R "$work/c" "$work/d"
start d 5793 "$old_bindir"
PGPORT=5793 sql 'SELECT pg_promote()' > /dev/null
PGPORT=5793 sql "$churn"
same 'older standby of a newer primary, promoted' 5793 5793
check 'the same: the check finds nothing' "$(PGPORT=5793 sql 'SELECT * FROM blobext_check()')" ''
stop d

# ---- something that the older one does not know: FREE of class "after flush" ----

start c 5792 "$old_bindir"
collect 5791
stop b
start b 5791 "$new_bindir"
PGPORT=5791 sql "$churn"
check 'WAL of version 2: the older standby stops' "$(wait_for_end c && echo yes)" yes
check 'the older standby says why it stops' \
	"$(grep -c 'PANIC:  blobext cannot replay WAL of format version 2' "$work/c.log")" 1
start c 5792 "$old_bindir" || true
wait_for_end c
check 'the older standby stops again when it is started' \
	"$(grep -c 'PANIC:  blobext cannot replay WAL of format version 2' "$work/c.log")" 2
grep -A 2 'PANIC:  blobext' "$work/c.log" | tail -n 3 | sed 's/^/# /'
start c 5792 "$new_bindir"
catch_up 5791 5792
same 'updated, it goes on' 5791 5792
check 'updated: the check finds nothing' "$(PGPORT=5792 sql 'SELECT * FROM blobext_check()')" ''
stop b
PGPORT=5792 sql 'SELECT pg_promote()' > /dev/null
PGPORT=5792 sql "$churn"
same 'updated and promoted: the standby has all values' 5792 5792
check 'no other server has met a PANIC' "$(grep -l PANIC "$work"/[abde].log)" ''
