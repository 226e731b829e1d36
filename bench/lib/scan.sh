# bench/lib/scan.sh: part of bench/run: all values of a table, in the order of storage; single ones
# at random; dumps.

# All servers with their caches empty.
restart_cold()
{
	stop_server
	[ -z "$mariadb_pid" ] || stop_mariadb
	drop_caches
	start_server
	! has_contender innodb || run_mariadb
}

# Enough for second_pass().
scan_values()		# bytes
{
	local values=$((scan_mb * 1048576 / $1))

	[ $values -le 50000 ] || values=50000
	[ $values -ge 16 ] || values=16
	echo $values
}

# Of a round of cold random reads: no value is read twice, the six of the warm-up included.
random_values()		# bytes, values
{
	local few most=$((($2 - 6) / rounds))

	few=$(cold_values "$1" 1)
	[ "$few" -le $most ] || few=$most
	[ "$few" -ge 1 ] || few=1
	echo "$few"
}

# The floor of random cold reads: pages of the file that has the values of blobstate, one for each.
pread_rounds()		# level, bytes, all values, values
{
	local round pages=$((($2 + 4095) / 4096 * $3)) oid

	has_contender blobstate || return 0
	[ $pages -le 262144 ] || pages=262144
	oid=$(sql -c 'SELECT oid FROM pg_database WHERE datname = current_database()')
	# Values in rows have no file.
	compgen -G "$work/data/pg_blobext/$oid.*/00000000" > /dev/null || return 0
	for ((round = 0; round < rounds; round++)); do
		as_user "$work/floor" --pages "$work/data/pg_blobext/$oid".*/00000000 $pages "$4" |
			awk -v OFS='\t' -v bytes="$2" -v round="$round" \
				'{ print "random-cold", "libpq", bytes, 1, "pread", round, $1, $2 }' | record "$1"
	done
}

# ---- dumps ----

# CPU seconds, and bytes read from the device, of the server's processes that have ended, once those
# of clients have.
ended_processes()
{
	local main

	main=$(head -n 1 "$work/data/postmaster.pid")
	until [ "$(sql -c "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_dump'")" \
		-eq 0 ]; do
		sleep 0.01
	done
	awk -v ticks="$(getconf CLK_TCK)" 'NR == 1 { cpu = ($16 + $17) / ticks }
		/^read_bytes/ { print cpu, $2 }' "/proc/$main/stat" "/proc/$main/io"
}

# Prints the lines of a round; they include the ends of a few other connections.
dump_round()		# bytes, values, contender, round
{
	local before started seconds large_objects=()

	[ "$3" != lo ] || large_objects=(--blobs)
	before=$(ended_processes)
	started=$EPOCHREALTIME
	as_user "$bindir/pg_dump" -t "scan_$3" "${large_objects[@]}" -f /dev/null
	seconds=$EPOCHREALTIME
	echo "$before $(ended_processes) $started $seconds" |
		awk -v OFS='\t' -v bytes="$1" -v values="$2" -v name="$3" -v round="$4" '{
			print "dump-cold", "libpq", bytes, 1, name, round, values, $6 - $5, $3 - $1
			print "dump-cold-device", "libpq", bytes, 1, name, round, values, $4 - $2
		}'
}

dump_cells()		# level, bytes, values
{
	local round name names

	names=$(chosen blobstate bytea lo)
	[ -n "$names" ] || return 0
	for ((round = 0; round < (rounds + 1) / 2; round++)); do
		restart_cold
		# Catalogs are read for the first one as for the others.
		as_user "$bindir/pg_dump" --schema-only -f /dev/null
		for name in ${names//,/ }; do
			dump_round "$2" "$3" "$name" "$round" | record "$1"
		done
	done
}

# ---- hits of the second pass ----

cache_counters()
{
	sql -c "SELECT string_agg(value::text, ' ' ORDER BY name) FROM blobext_stat
		WHERE name IN ('cache_hits', 'cache_misses')"
}

# Values whose pages take 0.95 of a smaller buffer are scanned twice after a restart.
second_pass()		# level, bytes
{
	local values=$((scan_buffer_mb * 1048576 * 95 / 100 / ((($2 + 4095) / 4096) * 4096)))
	local before after

	has_contender blobstate || return 0
	change_settings "blobext.cache_size = '${scan_buffer_mb}MB'"
	restart_cold
	for _ in 1 2; do
		before=$(cache_counters)
		sql -c "COPY (SELECT v FROM scan_blobstate WHERE id < $values) TO '/dev/null'
			(FORMAT binary)"
		after=$(cache_counters)
	done
	printf 'scan-hits\tlibpq\t%d\t1\tblobstate\t0\t%d\t%d\n' "$2" \
		$((${after% *} - ${before% *} + ${after#* } - ${before#* })) \
		$((${after% *} - ${before% *})) | record "$1"
	reset_settings
}

# load with the existing values.
load_existing()		# level, op, label, bytes, all values, options of load
{
	local level=$1

	load --op "$2" --label "$3" --size "$4" --data-values "$5" --prefix scan "${@:6}" |
		record "$level"
}

scan_cells()		# level
{
	local size bytes values names round

	names=$(chosen blobstate bytea lo innodb sqlite file)
	[ -n "$names" ] || return 0
	for size in ${sizes:-$scan_sizes}; do
		bytes=$(to_bytes "$size")
		values=$(scan_values "$bytes")
		note "$1: scans of $values values of $size"
		begin_cell scan
		load --op fill --size "$bytes" --values "$values" --data-values "$values" --prefix scan \
			--contenders "$names" > /dev/null
		settle
		for ((round = 0; round < rounds; round++)); do
			restart_cold
			load_existing "$1" scan scan-cold "$bytes" "$values" --values "$values" --cold \
				--contenders "$names" --first-round "$round"
		done
		load_existing "$1" scan scan-warm "$bytes" "$values" --values "$values" \
			--contenders "$names" --rounds "$rounds"
		restart_cold
		load_existing "$1" random random-cold "$bytes" "$values" --cold \
			--values "$(random_values "$bytes" "$values")" --contenders "$names" --rounds "$rounds"
		pread_rounds "$1" "$bytes" "$values" "$(random_values "$bytes" "$values")"
		load_existing "$1" random random-warm "$bytes" "$values" \
			--values "$(values_of "$bytes")" --contenders "$names" --rounds "$rounds"
		dump_cells "$1" "$bytes" "$values"
		second_pass "$1" "$bytes"
		end_cell
	done
}
