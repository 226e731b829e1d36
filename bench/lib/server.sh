# bench/lib/server.sh: part of bench/run: the servers, and a database for each cell.

port=5650
server_runs=''
mariadb_pid=''
is_dropped='no cold reads'
# As much as InnoDB's log has.
wal_mb=4096

# The environment is the same for all servers: freed memory is kept.
keep_memory=(env MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2000000000 MALLOC_TOP_PAD_=16777216)

# ---- PostgreSQL ----

start_server()
{
	as_user "${keep_memory[@]}" \
		"$bindir/pg_ctl" -D "$work/data" -l "$work/server.log" -w start > "$work/pg_ctl.log" ||
		{ tail -n 20 "$work/pg_ctl.log" "$work/server.log" >&2; exit 1; }
	server_runs=1
}

stop_server()
{
	[ -n "$server_runs" ] || return 0
	as_user "$bindir/pg_ctl" -D "$work/data" -m fast -w stop > /dev/null || true
	server_runs=''
}

sql() { as_user "$bindir/psql" -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }

init_cluster()		# directory
{
	as_user "$bindir/initdb" -D "$1" -U postgres -A trust -E UTF8 --no-locale --no-sync \
		> "$work/initdb.log" 2>&1 || { cat "$work/initdb.log" >&2; exit 1; }
}

cluster_settings()		# wal_level
{
	local senders=0

	[ "$1" = minimal ] || senders=4
	cat <<-END
		listen_addresses = ''
		unix_socket_directories = '$work'
		port = $port
		shared_preload_libraries = 'blobext'
		wal_level = $1
		max_wal_senders = $senders
		max_connections = 200
		shared_buffers = ${buffers_mb}MB
		min_wal_size = ${wal_mb}MB
		max_wal_size = ${wal_mb}MB
		checkpoint_timeout = 1h
		log_checkpoints = on
		autovacuum = off
		blobext.cache_size = $((buffers_mb / 4))MB
		$(printf '%s\n' "${extra_settings[@]}")
	END
}

create_cluster()	# wal_level
{
	stop_server
	rm -rf "$work/data"
	init_cluster "$work/data"
	cluster_settings "$1" | as_user tee -a "$work/data/postgresql.conf" > /dev/null
	export PGHOST=$work PGPORT=$port PGUSER=postgres PGDATABASE=postgres
	start_server
	make_wal_files
}

wal_files() { sql -c 'SELECT count(*) FROM pg_ls_waldir()'; }

# A new WAL file is written twice, and its blocks are allocated.  So all files that the settings
# allow are made here, and recycled from now on: checkpoints keep min_wal_size of them.  None may be
# recycled while they are made.
make_wal_files()
{
	local file files

	change_settings "max_wal_size = '$((wal_mb * 4))MB'"
	for ((file = 0; file <= wal_mb / 16; file++)); do
		echo "SELECT pg_logical_emit_message(false, 'bench', 'file'); SELECT pg_switch_wal();"
	done | sql > /dev/null
	reset_settings
	settle
	files=$(wal_files)
	[ "$files" -ge $((wal_mb / 16)) ] ||
		{ echo "bench: the server keeps $files WAL files, not $((wal_mb / 16))" >&2; exit 1; }
}

settle()
{
	sql -c CHECKPOINT
	sync
}

# Change settings until reset_settings.
change_settings()		# name = value, ...
{
	local setting options=()

	for setting in "$@"; do
		options+=(-c "ALTER SYSTEM SET $setting")
	done
	sql "${options[@]}" -c 'SELECT pg_reload_conf()' > /dev/null
}

reset_settings() { sql -c 'ALTER SYSTEM RESET ALL' -c 'SELECT pg_reload_conf()' > /dev/null; }

wal_position() { sql -c "SELECT pg_current_wal_insert_lsn() - '0/0'"; }

# ---- MariaDB ----

mariadb_sql() { as_user mariadb --no-defaults -S "$work/mariadb.sock" -u root -e "$1"; }

# Its log is as large as PostgreSQL's, and written once, as PostgreSQL's is: the first write to a
# new block of a file costs more.
mariadb_settings()
{
	printf '%s\n' --no-defaults --datadir="$work/mariadb" --socket="$work/mariadb.sock" \
		--pid-file="$work/mariadb.pid" --skip-networking --skip-log-bin \
		--innodb-buffer-pool-size="${buffers_mb}M" --innodb-flush-log-at-trx-commit=1 \
		--innodb-log-file-size=${wal_mb}M --innodb-log-buffer-size=64M \
		--innodb-io-capacity=10000 --innodb-io-capacity-max=20000 --max-allowed-packet=1G \
		--skip-innodb-buffer-pool-load-at-startup
}

start_mariadb()
{
	local settings

	has_contender innodb || return 0
	note 'new MariaDB'
	mapfile -t settings < <(mariadb_settings)
	as_user mariadb-install-db "${settings[0]}" --auth-root-authentication-method=normal \
		--skip-test-db "${settings[@]:1}" > "$work/mariadb.log" 2>&1 ||
		{ tail -n 20 "$work/mariadb.log" >&2; exit 1; }
	dd if="$work/mariadb/ib_logfile0" of="$work/mariadb/ib_logfile0" bs=1M conv=notrunc \
		status=none
	run_mariadb
}

run_mariadb()
{
	local settings

	mapfile -t settings < <(mariadb_settings)
	as_user "${keep_memory[@]}" mariadbd "${settings[@]}" > "$work/mariadb.log" 2>&1 &
	mariadb_pid=$!
	until mariadb_sql 'SELECT 1' > /dev/null 2>&1; do
		kill -0 "$mariadb_pid" || { tail -n 20 "$work/mariadb.log" >&2; exit 1; }
		sleep 0.2
	done
}

stop_mariadb()
{
	[ -n "$mariadb_pid" ] || return 0
	mariadb_sql SHUTDOWN || true
	wait "$mariadb_pid" || true
	mariadb_pid=''
}

# ---- cells ----

load()
{
	as_user "$work/load" --directory "$work/files" --payload "$work/payload" \
		--buffer "$buffers_mb" --mariadb "$work/mariadb.sock" "$@"
}

# Each cell has a database of its own, so that it begins with nothing.
begin_cell()		# name
{
	PGDATABASE=postgres sql -c "CREATE DATABASE $1"
	export PGDATABASE=$1
	sql -c 'CREATE EXTENSION blobext'
	! has_contender direct || sql -c "CREATE FUNCTION write_direct(bytea, boolean, boolean)
		RETURNS bytea LANGUAGE C STRICT AS '$work/direct.so'"
	[ -z "$mariadb_pid" ] || mariadb_sql 'CREATE DATABASE bench'
}

end_cell()
{
	local database=$PGDATABASE

	export PGDATABASE=postgres
	sql -c "DROP DATABASE $database WITH (FORCE)"
	[ -z "$mariadb_pid" ] || mariadb_sql 'DROP DATABASE bench'
	find "$work/files" -type f -delete
	settle
	fill_memory
}
