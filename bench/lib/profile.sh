# bench/lib/profile.sh: part of bench/run --profile: a profile of single operations.
#
# For each operation one client repeats it.  First its system calls are traced (their count and
# time, waiting included), then the backend is sampled by CPU clock.  Neither shows the time in
# which the backend waits for its client.

profile_seconds=${BLOBEXT_PROFILE_SECONDS:-3}

load_count=0

# A running load: its first line is the backend's process id.
start_load()
{
	local first_id=0

	# A checkpoint recycles WAL files, of which these runs need many.
	settle
	# Stores use ids of their own; reads begin with the first value.
	[ "$3" != store ] || first_id=$((++load_count * 10000000))
	exec {load_fd}< <(load --seconds "$1" --first-id $first_id "${@:2}")
	load_pid=$!
	read -r backend <&"$load_fd"
	# Let the warm-up end.
	sleep 1
}

finish_load()
{
	cat <&"$load_fd"
	exec {load_fd}<&-
	wait "$load_pid" || true
}

profile_one()		# title, options of load
{
	local title=$1 seconds=$profile_seconds
	shift

	fill_memory
	printf '\n==== %s\n\n' "$title"
	start_load $((seconds + 3)) "$@"
	perf stat -e task-clock -p "$backend" -- sleep "$seconds" 2>&1 |
		awk '/task-clock/ { printf "backend on the CPU: %s\n", $0 }'
	finish_load
	start_load $((seconds + 3)) "$@"
	timeout -s INT "$seconds" perf trace -s -p "$backend" 2>&1 |
		grep -vE '^ *$' | head -n 16 || true
	finish_load
	start_load $((seconds + 3)) "$@"
	perf record -q -e cpu-clock -F 2999 -p "$backend" -o "$work/perf.data" -- sleep "$seconds" \
		> /dev/null 2>&1
	perf report -i "$work/perf.data" --stdio -q --percent-limit 0.7 --sort dso,symbol 2> /dev/null |
		grep -v '^$' | head -n 40 || true
	finish_load
}

profile_store()		# title, options of load
{
	begin_cell profile
	profile_one "$1" --op store "${@:2}"
	end_cell
}

profile()
{
	local contender level

	[ "$EUID" -eq 0 ] && command -v perf > /dev/null ||
		{ echo 'bench: --profile needs root and perf (package linux-perf)' >&2; exit 1; }
	for level in $levels; do
		note "profiles, wal_level = $level"
		create_cluster "$level"
		fill_memory
		for contender in ${BLOBEXT_PROFILE_CONTENDERS:-blobstate bytea}; do
			profile_store "$contender, $level: store 10 MB over libpq" --size 10485760 \
				--contenders "$contender"
			[ "$level" = minimal ] || continue
			profile_store "$contender, $level: store 10 MB inside the server" \
				--via server --size 10485760 --values 20 --contenders "$contender"
			profile_store "$contender, $level: store 1 MB over libpq" --size 1048576 \
				--values 10 --contenders "$contender"
			profile_store "$contender, $level: store 100 KB over libpq" --size 102400 \
				--values 10 --contenders "$contender"
			profile_store "$contender, $level: store 1 KB over libpq" --size 1024 \
				--values 100 --contenders "$contender"
		done
	done
	sizes='1kB 10MB' clients=1 rounds=10
	begin_cell read
	fill_read_tables
	for contender in ${BLOBEXT_PROFILE_CONTENDERS:-blobstate bytea}; do
		for via in libpq server; do
			profile_one "$contender: read 10 MB cached, $via" --op cached --via $via \
				--size 10485760 --values 10 --data-values 10 --prefix read_10485760 \
				--contenders "$contender"
			profile_one "$contender: read 1 KB cached, $via" --op cached --via $via \
				--size 1024 --values 1000 --data-values 200 --prefix read_1024 \
				--contenders "$contender" $(pin_options 1024 1)
		done
	done
	if [ "$(sql -c 'SHOW blobext.cache_size')" != 0 ]; then
		stop_server
		echo 'blobext.cache_size = 0' >> "$work/data/postgresql.conf"
		start_server
		profile_one 'blobstate: read 10 MB from the device, libpq' --op cached --size 10485760 \
			--values 10 --data-values 10 --prefix read_10485760 --contenders blobstate
	fi
}
