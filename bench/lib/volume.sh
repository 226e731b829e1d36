# bench/lib/volume.sh: part of bench/aging and bench/fill: a server on a volume of a fixed size.
#
# $work is a temporary directory, $volume the volume in it, which ends with the script.  The scripts
# call enter_namespace first, with their arguments.

# Mounts disappear with the namespace at the end of the script.
enter_namespace()		# arguments of the script
{
	[ "$EUID" -eq 0 ] && [ -z "${BLOBEXT_BENCH_NAMESPACE:-}" ] || return 0
	BLOBEXT_BENCH_NAMESPACE=1 exec unshare -m --propagation private bash "$0" "$@"
}

export PG_CONFIG=${PG_CONFIG:-pg_config}
bindir=$("$PG_CONFIG" --bindir)
user=${BLOBEXT_BENCH_USER:-postgres}
# Not runuser, which waits for its child, and stops for good if both are stopped for a while.
as_user=()
[ "$EUID" -ne 0 ] || as_user=(setpriv "--reuid=$user" "--regid=$(id -gn "$user")" --init-groups)
as_user() { "${as_user[@]}" "$@"; }

note() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }

to_bytes()
{
	case $1 in
		*kB | *KB) echo $((${1%??} * 1024)) ;;
		*MB) echo $((${1%??} * 1048576)) ;;
		*) echo "$1" ;;
	esac
}

is_running='' loop=''

# The directory, and the client in it.
begin_work()		# directory, or nothing
{
	if [ -n "$1" ]; then
		mkdir -p "$1"
		work=$(mktemp -d "$(cd "$1" && pwd)/blobext_$(basename "$0").XXXXXX")
	else
		work=$(mktemp -d "${TMPDIR:-/tmp}/blobext_$(basename "$0").XXXXXX")
	fi
	volume=$work/volume
	export PGHOST=$work PGPORT=5793 PGUSER=postgres PGDATABASE=postgres
	trap leave EXIT
	trap 'exit 130' INT TERM
	cc -O2 -Wall -Wextra -I"$("$PG_CONFIG" --includedir)" -o "$work/aging" "$here/aging.c" \
		-L"$("$PG_CONFIG" --libdir)" -lpq -lpthread
	[ "$EUID" -ne 0 ] || chown "$user" "$work"
	chmod 755 "$work"
	: > "$work/raw"
}

leave()
{
	local status=$?

	trap - EXIT
	[ "$(type -t end_watch)" != function ] || end_watch
	[ $status -eq 0 ] || [ ! -f "$work/server.log" ] || tail -n 40 "$work/server.log" >&2
	end_volume
	if [ -n "$keep" ]; then
		echo "# kept: $work"
	else
		rm -rf "$work"
	fi
	exit $status
}

# ---- volumes ----

# A file system of a fixed size in a file; direct I/O of the loop device avoids a second cache.
begin_volume()		# MB
{
	mkdir "$volume"
	[ "$EUID" -eq 0 ] || return 0
	fallocate -l "$1M" "$work/volume.img"
	mkfs.ext4 -q -F -m 0 "$work/volume.img"
	loop=$(losetup --direct-io=on --show -f "$work/volume.img" 2> /dev/null ||
		losetup --show -f "$work/volume.img")
	mount "$loop" "$volume"
	chown "$user" "$volume"
}

# A server that has been stopped may need a moment to leave.
end_volume()
{
	local try

	stop_server
	if [ -n "$loop" ]; then
		for ((try = 0; try < 60; try++)); do
			! umount "$volume" 2> /dev/null || break
			sleep 0.5
		done
		losetup -d "$loop"
		rm "$work/volume.img"
		loop=''
	fi
	[ -n "$keep" ] || rm -rf "$volume" "$work/wal"
}

room_bytes() { df --output=avail -B1 "$volume" | tail -n 1; }

# Leaves just so much room, for the objects alone: the server's own files, and others, exist.
leave_room()		# bytes
{
	[ "$EUID" -eq 0 ] || return 0
	[ "$(room_bytes)" -ge "$1" ] ||
		{ echo "$(basename "$0"): the volume is too small" >&2; exit 1; }
	fallocate -l $(($(room_bytes) - $1)) "$volume/ballast"
}

# The directory of the contender's objects, and a volume that has this room for them.
begin_contender()		# contender, MB, MB of other files
{
	# Room for the file system itself, and for the other files of a cluster.
	begin_volume $(($2 * 102 / 100 + 144 + $3))
	as_user mkdir "$volume/files"
	[ "$3" -eq 0 ] || head -c "$3M" /dev/urandom > "$volume/control"
	[ "$1" = file ] || create_cluster "$1"
	sync
	leave_room $(($2 * 1048576))
}

drop_caches()
{
	sync
	[ "$EUID" -ne 0 ] || echo 3 > /proc/sys/vm/drop_caches
}

# ---- server ----

start_server()
{
	as_user env MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2000000000 MALLOC_TOP_PAD_=16777216 \
		"$bindir/pg_ctl" -D "$volume/data" -l "$work/server.log" -w start > "$work/pg_ctl.log" ||
		{ tail -n 20 "$work/pg_ctl.log" "$work/server.log" >&2; exit 1; }
	is_running=1
}

stop_server()
{
	[ -n "$is_running" ] || return 0
	as_user "$bindir/pg_ctl" -D "$volume/data" -m fast -w stop > /dev/null || true
	is_running=''
}

sql() { as_user "$bindir/psql" -XAtq -F $'\t' -v ON_ERROR_STOP=1 "$@"; }

# The WAL is on another file system, since its size does not depend on the objects; so little of
# this one has to stay free.  Live objects take up to 90 % of the room: vacuum and the collector
# have the same share of them as their threshold, and one that fits into the rest.
create_cluster()		# type
{
	as_user "$bindir/initdb" -D "$volume/data" -X "$work/wal" -U postgres -A trust -E UTF8 \
		--no-locale --no-sync > "$work/initdb.log" 2>&1 ||
		{ cat "$work/initdb.log" >&2; exit 1; }
	printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" "port = $PGPORT" \
		"shared_preload_libraries = 'blobext'" "shared_buffers = 512MB" \
		"min_wal_size = 1GB" "max_wal_size = 4GB" \
		"autovacuum_naptime = 1s" "autovacuum_vacuum_scale_factor = 0.02" \
		"autovacuum_vacuum_cost_delay = 0" "log_autovacuum_min_duration = 0" \
		"blobext.autogc_naptime = 1s" "blobext.autogc_threshold = 0" \
		"blobext.autogc_scale_factor = 0.02" "blobext.min_free_disk = 16MB" \
		"blobext.log_autogc_min_duration = 0" \
		"${extra_settings[@]}" |
		as_user tee -a "$volume/data/postgresql.conf" > /dev/null
	start_server
	sql -c 'CREATE EXTENSION blobext' -c "CREATE TABLE objects (id bigint PRIMARY KEY, v $1)" \
		-c 'ALTER TABLE objects ALTER v SET STORAGE EXTERNAL' -c CHECKPOINT
}
