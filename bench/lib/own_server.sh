# bench/lib/own_server.sh: part of bench/compression, bench/holes, bench/dedup, bench/inline,
# bench/scale, bench/first and bench/upload: a server of their own in a temporary directory, $dir,
# which ends with the script.  Its files are in $data.

bindir=$("${PG_CONFIG:-pg_config}" --bindir)
dir=$(mktemp -d "${TMPDIR:-/tmp}/blobext_bench.XXXXXX")
as=()
[ "$EUID" -ne 0 ] || as=(runuser -u "${BLOBEXT_BENCH_USER:-postgres}" --)
own_jobs=()
data=$dir/data

end_own_server()
{
	local job

	for job in "${own_jobs[@]}"; do
		kill "$job" 2> /dev/null || true
	done
	"${as[@]}" "$bindir/pg_ctl" -D "$data" -s -m immediate stop 2> /dev/null || true
	[ "$(type -t end_slow_device)" != function ] || end_slow_device
	rm -rf "$dir"
}
trap end_own_server EXIT
trap 'exit 130' INT TERM
chmod 755 "$dir"

# $@: lines of postgresql.conf
start_own_server()
{
	[ "$EUID" -ne 0 ] || chown -R "${BLOBEXT_BENCH_USER:-postgres}" "$dir"
	"${as[@]}" "$bindir/initdb" -D "$data" -A trust -N > /dev/null
	printf '%s\n' "shared_preload_libraries = 'blobext'" "listen_addresses = ''" \
		"unix_socket_directories = '$dir'" 'jit = off' "$@" |
		"${as[@]}" tee -a "$data/postgresql.conf" > /dev/null
	"${as[@]}" "$bindir/pg_ctl" -D "$data" -s -w -l "$dir/log" start
	sql <<-'END'
		CREATE EXTENSION blobext;
		-- Nanoseconds of CPU time of this process, all its threads.
		CREATE FUNCTION cpu_ns() RETURNS bigint LANGUAGE sql AS $$
			SELECT sum(split_part(pg_read_file(
				format('/proc/%s/task/%s/schedstat', pg_backend_pid(), thread), 0, 100),
				' ', 1)::bigint)::bigint
			FROM pg_ls_dir(format('/proc/%s/task', pg_backend_pid())) AS thread $$;
	END
}

restart_own_server() { "${as[@]}" "$bindir/pg_ctl" -D "$data" -s -w -l "$dir/log" restart; }

# Another one can be started then.
stop_own_server()
{
	"${as[@]}" "$bindir/pg_ctl" -D "$data" -s -w -m fast stop
	rm -rf "$data"
}

sql()
{
	"${as[@]}" "$bindir/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$dir" -d postgres "$@"
}

tell_source()
{
	local commit

	commit=$(git -C "$(dirname "$0")" describe --always --dirty 2> /dev/null || echo unknown)
	echo "# blobext $commit, PostgreSQL $(sql -c 'SHOW server_version'), $(nproc) processors"
}

median()
{
	sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}
