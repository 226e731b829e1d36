# bench/lib/pgbench.sh: part of bench/run: pgbench without any blob, the library preloaded or not.
#
# Two clusters with the same settings but shared_preload_libraries; server and client share a CPU.

declare -A pgbench_options=(
	[prepared]='-S -M prepared'
	[simple]='-S -M simple'
	[writes]='-N -M prepared'
)

pgbench_cluster()		# level, preloaded or without
{
	local data=$work/pgbench_$2

	init_cluster "$data"
	cluster_settings "$1" | sed "s|^unix_socket_directories.*|unix_socket_directories = '$data'|
		s|^shared_buffers.*|shared_buffers = 512MB|
		s|^min_wal_size.*|min_wal_size = 512MB|" |
		as_user tee -a "$data/postgresql.conf" > /dev/null
	if [ "$2" = without ]; then
		as_user sed -i "/^shared_preload_libraries/d; /^blobext/d" "$data/postgresql.conf"
	else
		as_user sed -i "s|^blobext.cache_size.*|blobext.cache_size = 128MB|" \
			"$data/postgresql.conf"
	fi
	as_user taskset -c $(($(nproc) - 1)) "${keep_memory[@]}" \
		"$bindir/pg_ctl" -D "$data" -l "$work/pgbench_$2.log" -w start > "$work/pg_ctl.log" ||
		{ tail -n 20 "$work/pg_ctl.log" "$work/pgbench_$2.log" >&2; exit 1; }
	pgbench_running+=("$data")
	as_user "$bindir/pgbench" -h "$data" -i -s 10 -q postgres > "$work/pgbench.out" 2>&1 ||
		{ cat "$work/pgbench.out" >&2; exit 1; }
	as_user "$bindir/psql" -h "$data" -X -q -c 'VACUUM ANALYZE' -c CHECKPOINT postgres
}

stop_pgbench()
{
	local data

	for data in "${pgbench_running[@]}"; do
		as_user "$bindir/pg_ctl" -D "$data" -m immediate -w stop > /dev/null || true
		rm -rf "$data"
	done
	pgbench_running=()
}

pgbench_run()		# kind, contender, round
{
	local rate

	rate=$(as_user taskset -c $(($(nproc) - 1)) "$bindir/pgbench" -h "$work/pgbench_$2" -n \
		-T "$pgbench_seconds" ${pgbench_options[$1]} postgres 2> "$work/pgbench.err" |
		sed -n 's/^tps = \([0-9.]*\).*/\1/p')
	[ -n "$rate" ] || { cat "$work/pgbench.err" >&2; exit 1; }
	printf 'pgbench\t%s\t0\t1\t%s\t%d\t%s\t1\n' "$1" "$2" "$3" "$rate"
}

pgbench_cells()		# level
{
	local kind contender round order

	stop_server
	note "$1: pgbench without blobs"
	pgbench_cluster "$1" preloaded
	pgbench_cluster "$1" without
	for kind in prepared simple writes; do
		# The first run touches memory.
		pgbench_run $kind preloaded 0 > /dev/null
		pgbench_run $kind without 0 > /dev/null
		for ((round = 0; round < pgbench_rounds; round++)); do
			order='preloaded without'
			[ $((round % 2)) -eq 0 ] || order='without preloaded'
			for contender in $order; do
				pgbench_run $kind $contender $round
			done
		done
	done | record "$1"
	stop_pgbench
	start_server
}
