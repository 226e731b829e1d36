# test/upgrade/clusters.sh: the part "clusters" of suites/upgrade.sh, which sources it.

. "$test_dir/upgrade/servers.sh"

# The cluster a, upgraded to a new one in directory $1 by the programs of this version.
upgrade_to()
{
	"$new_bindir/initdb" -U postgres -A trust -E UTF8 --no-locale --no-sync \
		-D "$work/$1" > /dev/null
	{
		cat "$test_dir/postgresql.conf"
		printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'"
	} >> "$work/$1/postgresql.conf"
	(
		cd "$work"
		"$new_bindir/pg_upgrade" -b "$2" -B "$new_bindir" -d "$work/a" -D "$work/$1" -U postgres
		"$new_bindir/blobext_upgrade" -b "$2" -B "$new_bindir" -d "$work/a" -D "$work/$1" \
			-U postgres
	) > "$work/$1.upgrade" 2>&1 || { tail -n 30 "$work/$1.upgrade"; exit 1; }
}

# $1: the name of the step, $2: port.  All values of before, and life goes on.
check_upgraded()
{
	check "$1: the values are whole" "$(PGPORT=$2 sql "$intact")" "$count"
	check "$1: the rows are those of before" "$(PGPORT=$2 sql "$rows")" "$before"
	check "$1: the check finds nothing" "$(PGPORT=$2 sql 'SELECT * FROM blobext_check()')" ''
	PGPORT=$2 sql 'ALTER EXTENSION blobext UPDATE' > /dev/null
	PGPORT=$2 sql "$churn"
	collect "$2"
	PGPORT=$2 sql "SET blobext.default_compression = zstd; $store"
	check "$1: values that are stored now are whole" "$(PGPORT=$2 sql "SELECT count(*) FROM v
		WHERE encode(sha256(b::bytea), 'hex') <> digest")" 0
	check "$1: the check finds nothing after new values" \
		"$(PGPORT=$2 sql 'SELECT * FROM blobext_check()')" ''
}

rows="SELECT md5(string_agg(id || ' ' || digest, ',' ORDER BY id)) FROM v"
start a 5790 "$old_bindir"
sql "CREATE EXTENSION blobext; $table; CREATE INDEX ON v (b); $store"
sql "$churn"
collect 5790
sql "$churn"
before=$(sql "$rows")
count=$(sql 'SELECT count(*) FROM v')
check 'the older one stores' "$(sql "$intact")" "$count"
stop a

# Straight from the older library.
upgrade_to b "$old_bindir"
start b 5791 "$new_bindir"
check_upgraded 'pg_upgrade from the older library' 5791
stop b

# As the documents say: this library and its objects first.
start a 5790 "$new_bindir"
sql 'ALTER EXTENSION blobext UPDATE'
stop a
upgrade_to c "$new_bindir"
start c 5792 "$new_bindir"
check_upgraded 'update, then pg_upgrade' 5792
stop c
