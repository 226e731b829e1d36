# bench/lib/machine.sh: part of bench/run: directories, programs, memory, caches, device.

note() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }

as_user() { if [ "$EUID" -eq 0 ]; then runuser -u "$user" -- "$@"; else "$@"; fi; }

to_bytes()
{
	case $1 in
		*kB | *KB) echo $((${1%??} * 1024)) ;;
		*MB) echo $((${1%??} * 1048576)) ;;
		*GB) echo $((${1%??} * 1073741824)) ;;
		*B) echo "${1%B}" ;;
		*) echo "$1" ;;
	esac
}

choose_directory()
{
	local place device

	device=$(stat -c %d "$checkout")
	if [ -n "$dir" ]; then
		mkdir -p "$dir"
		work=$(mktemp -d "$(cd "$dir" && pwd)/blobext_bench.XXXXXX")
		return
	fi
	for place in "${TMPDIR:-/tmp}" /var/tmp "$checkout"; do
		if [ -w "$place" ] && [ "$(stat -c %d "$place")" = "$device" ]; then
			work=$(mktemp -d "$place/blobext_bench.XXXXXX")
			return
		fi
	done
	echo "bench: no place to write to on the checkout's file system, name one with --dir" >&2
	exit 1
}

# ---- contenders and programs ----

leave_out()		# contender, reason
{
	! has_contender "$1" || note "$1 is left out: $2"
	contenders=" $contenders "
	contenders=${contenders// $1 / }
}

has_header() { echo "#include <$1>" | cc -E - > /dev/null 2>&1; }

# MariaDB and SQLite take part if their programs and headers are here.
find_optional_contenders()
{
	local program

	PATH=$PATH:/usr/sbin:/usr/local/sbin
	for program in mariadbd mariadb-install-db mariadb mariadb_config; do
		command -v $program > /dev/null ||
			leave_out innodb "no program $program (packages mariadb-server, libmariadb-dev)"
	done
	has_header sqlite3.h || leave_out sqlite 'no header sqlite3.h (package libsqlite3-dev)'
}

build_load()
{
	local sources=("$here"/load/{main,rounds,sizes,changes,postgres,behind,files}.c) optional=()

	if has_contender innodb; then
		sources+=("$here/load/mariadb.c")
		optional+=(-DWITH_MARIADB $(mariadb_config --cflags) $(mariadb_config --libs))
	fi
	if has_contender sqlite; then
		sources+=("$here/load/sqlite.c")
		optional+=(-DWITH_SQLITE -lsqlite3)
	fi
	cc -O2 -Wall -Wextra -I"$("$PG_CONFIG" --includedir)" -o "$work/load" "${sources[@]}" \
		-L"$("$PG_CONFIG" --libdir)" -lpq -lpthread -lm "${optional[@]}"
}

build()
{
	build_load
	cc -O2 -Wall -Wextra -Wno-deprecated-declarations -o "$work/floor" "$here/floor.c" \
		-luring -lcrypto
	cc -O2 -Wall -Wextra -Wno-deprecated-declarations -Wno-unused-parameter -Wno-sign-compare \
		-Wno-missing-field-initializers -fPIC -shared -I"$("$PG_CONFIG" --includedir-server)" \
		-o "$work/direct.so" "$here/direct.c" -luring -lcrypto
	cc -O2 -Wall -Wextra -o "$work/hold" "$here/hold.c"
	cc -O2 -Wall -Wextra -I"$("$PG_CONFIG" --includedir)" -o "$work/documents" \
		"$here/documents.c" -L"$("$PG_CONFIG" --libdir)" -lpq -lm
	head -c $((101 * 1048576)) /dev/urandom > "$work/payload"
	mkdir "$work/files" "$work/read"
}

# ---- memory ----

# Touching memory that the host has taken back is expensive (see hold.c).  Memory that is not held
# is filled with a sparse file's pages, which the kernel can reuse at no cost.
available_mb() { awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo; }

hold_memory()
{
	local hold_mb=$(($(available_mb) - leave_mb)) answer

	[ "$leave_mb" -gt 0 ] && [ $hold_mb -gt 0 ] || return 0
	note "holding $hold_mb MB of memory"
	coproc HOLD { exec "$work/hold" $hold_mb; }
	read -r answer <&"${HOLD[0]}"
	held="$answer, about $leave_mb MB left"
}

fill_memory()
{
	[ "$leave_mb" -gt 0 ] &&
		[ "$(awk '/^MemFree/ { print int($2 / 1024) }' /proc/meminfo)" -gt 768 ] ||
		return 0
	truncate -s "$(available_mb)M" "$work/hole"
	cat "$work/hole" > /dev/null
}

drop_caches()
{
	sync
	if [ -w /proc/sys/vm/drop_caches ]; then
		echo 3 > /proc/sys/vm/drop_caches
		is_dropped='caches of the kernel dropped'
	else
		# Without root: file by file.
		find "$work/data" "$work/read" "$work/files" -type f -size +0 \
			-exec dd of=/dev/null oflag=nocache conv=notrunc,fdatasync count=0 status=none if={} \
			iflag=nocache \;
		is_dropped='files dropped from the page cache (not root)'
	fi
	fill_memory
}

device_sectors()		# read, written
{
	local device column=3

	[ "$1" = read ] || column=7
	device=$(stat -c %d "$work")
	local major=$((device >> 8 & 4095)) minor=$((device & 255 | device >> 12 & 1048320))
	awk -v column=$column '{ print $column }' "/sys/dev/block/$major:$minor/stat"
}
