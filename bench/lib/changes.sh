# bench/lib/changes.sh: part of bench/run: changes of parts of one large value.
#
# They are measured with wal_level = replica, since digests are deferred only where content is in
# the WAL.  Vacuum and the collector run, as in the row replace: old versions are as large as the
# value.

mix_bytes=$((10 * 1048576))
# The largest value that is one parameter; larger ones are made of pieces of this size, and only by
# those that append at the cost of what they append, and have no limit of 1 GB.
made_bytes=$((64 * 1048576))

# Those of the named contenders that take part and can have a value of this size, with commas.
large_contenders()		# bytes, contenders
{
	local name list=()

	for name in "${@:2}"; do
		[ "$1" -le $made_bytes ] || [[ $name == @(blobstate|deferred|lo|file) ]] || continue
		list+=("$name")
	done
	chosen "${list[@]}"
}

is_in_postgres() { [[ $1 == @(blobstate|deferred|bytea|lo) ]]; }
is_blobstate() { [[ $1 == @(blobstate|deferred) ]]; }

begin_changes()		# name of the cell
{
	begin_cell "$1"
	change_settings 'autovacuum = on' 'autovacuum_naptime = 1' 'autovacuum_vacuum_cost_delay = 0'
}

end_changes()
{
	reset_settings
	end_cell
}

make_values()		# contenders, bytes
{
	load --op make --contenders "$1" --size "$2" --piece $made_bytes
	settle
}

# ---- bytes of each operation ----

# Sectors read and written, bytes of WAL, bytes that the library has read and written, when no write
# is pending.
byte_counters()
{
	settle
	echo "$(device_sectors read) $(device_sectors written) $(wal_position)" \
		"$(sql -F ' ' -c "SELECT sum(value) FILTER (WHERE name = 'io_read_bytes'),
			sum(value) FILTER (WHERE name = 'io_write_bytes') FROM blobext_stat")"
}

# Lines with the bytes of each operation between two states, in the order of byte_counters; the
# library's of blobstate alone.
byte_lines()		# label, bytes, contender, round, operations, counters before, after
{
	local known=2

	! is_in_postgres "$3" || known=3
	! is_blobstate "$3" || known=5
	echo "$6 $7" | awk -v label="$1" -v bytes="$2" -v name="$3" -v round="$4" \
		-v operations="$5" -v known=$known '{
		split("read written wal io-read io-written", kinds, " ")
		for (i = 1; i <= known; i++)
			printf("%s-%s-each\tlibpq\t%s\t1\t%s\t%s\t%s\t%.0f\n", label, kinds[i], bytes,
				name, round, operations, ($(i + 5) - $i) * (i <= 2 ? 512 : 1))
	}'
}

# The operations that the line of a round has.
operations_of() { cut -f 7 <<< "$1"; }

# ---- EOS's mix ----

extent_query='SELECT coalesce(sum(allocated_bytes), 0)::bigint FROM blobext_databases
	WHERE datname = current_database();'

extent_bytes()
{
	sql <<< "$extent_query"
}

# The most that extents take, until the file "running" is gone, and then; by one connection.
watch_extents()		# contender
{
	is_blobstate "$1" || return 0
	{
		while [ -e "$work/running" ]; do
			echo "$extent_query"
			sleep 0.2
		done
		echo "$extent_query"
	} | sql | sort -n | tail -n 1
}

space_line()		# kind, piece, contender, pass, live bytes, bytes
{
	printf 'mix-%s-space\tlibpq\t%d\t1\t%s\t%d\t%d\t%d\n' "$@"
}

# After VACUUM and a round of the collector.
collect()		# contender
{
	sql -c "VACUUM store_$1"
	sql -c 'SELECT * FROM blobext_gc()' > /dev/null
	settle
}

# Seconds of a scan inside the server, when all comes from the device.
scan_seconds()		# contender
{
	stop_server
	drop_caches
	start_server
	sql <<-END | awk '/^Time/ { milliseconds = $2 } END { printf "%.6f", milliseconds / 1000 }'
		SELECT count(id) FROM store_$1;
		\timing on
		COPY store_$1 TO '/dev/null' (FORMAT binary);
	END
}

scan_line()		# label, contender, piece, pass
{
	printf '%s\tlibpq\t%d\t1\t%s\t%d\t1\t%s\n' "$1" "$3" "$2" "$4" "$(scan_seconds "$2")"
}

# The space that a value takes after the mix, and its scan; then of the same value written anew.
space_lines()		# contender, piece, pass, most of the files in kB, most of the extents
{
	local live

	live=$mix_bytes
	! is_in_postgres "$1" || live=$(sql -c "SELECT sum(octet_length(v)) FROM store_$1")
	space_line disk "$2" "$1" "$3" "$live" $(($4 * 1024))
	is_blobstate "$1" || return 0
	space_line most "$2" "$1" "$3" "$live" "$5"
	collect "$1"
	space_line after "$2" "$1" "$3" "$live" "$(extent_bytes)"
	scan_line mix-scan "$1" "$2" "$3"
	sql -c "CALL blobext_defragment('store_$1', 'v')" > /dev/null
	collect "$1"
	space_line anew "$2" "$1" "$3" "$live" "$(extent_bytes)"
	scan_line mix-scan-anew "$1" "$2" "$3"
}

# A contender works without a pause, and ends after a time if it is slow.
mix_run()		# level, contender, piece, pass
{
	local database before after line operations watchers=()

	begin_changes mix
	make_values "$2" $mix_bytes
	database=$(sql -c 'SELECT oid FROM pg_database WHERE datname = current_database()')
	before=$(byte_counters)
	: > "$work/running"
	watch_peak "$2" > "$work/peak" &
	watchers=($!)
	watch_extents "$2" > "$work/extents" &
	watchers+=($!)
	line=$(load --op mix --contenders "$2" --size $mix_bytes --piece "$3" \
		--values "$mix_operations" --limit "$change_seconds" --first-round "$4")
	rm "$work/running"
	wait "${watchers[@]}"
	after=$(byte_counters)
	operations=$(operations_of "$line")
	[ "$operations" -ge "$mix_operations" ] ||
		note "$2: $operations of $mix_operations operations in $change_seconds s"
	{
		echo "$line"
		printf 'mix-done-each\tlibpq\t%d\t1\t%s\t%d\t1\t%d\n' "$3" "$2" "$4" "$operations"
		byte_lines mix "$3" "$2" "$4" "$operations" "$before" "$after"
		space_lines "$2" "$3" "$4" "$(cat "$work/peak")" "$(cat "$work/extents")"
	} | record "$1"
	end_changes
}

# The size is the mean of the pieces.
mix_cells()		# level
{
	local size name pass passes=$(((rounds + 2) / 3)) names

	[ "$1" = replica ] || return 0
	names=$(chosen blobstate deferred bytea innodb sqlite file)
	for size in ${sizes:-$mix_sizes}; do
		for ((pass = 0; pass < passes; pass++)); do
			for name in ${names//,/ }; do
				note "$1: mix of pieces of $size, $name"
				mix_run "$1" "$name" "$(to_bytes "$size")" $pass
			done
		done
	done
}

# ---- overwrites ----

# Rates in turns; then bytes, of one contender at a time.
overwrite_cells()		# level
{
	local size bytes names name round before line options

	[ "$1" = replica ] || return 0
	for size in ${sizes:-$overwrite_sizes}; do
		bytes=$(to_bytes "$size")
		names=$(large_contenders "$bytes" blobstate deferred bytea lo innodb sqlite file)
		[ -n "$names" ] || continue
		note "$1: overwrite 4 kB of $size"
		begin_changes overwrite
		make_values "$names" "$bytes"
		options=(--op overwrite --size "$bytes" --piece 4096 --values "$overwrite_values"
			--limit "$overwrite_seconds" --settle)
		load "${options[@]}" --contenders "$names" --rounds "$rounds" | record "$1"
		for ((round = 0; round < (rounds + 1) / 2; round++)); do
			for name in ${names//,/ }; do
				before=$(byte_counters)
				line=$(load "${options[@]}" --contenders "$name" --no-warm-up \
					--first-round $((round + 1)))
				byte_lines overwrite "$bytes" "$name" $round "$(operations_of "$line")" \
					"$before" "$(byte_counters)" | record "$1"
			done
		done
		end_changes
	done
}

# ---- insertions ----

# 100 bytes in the middle: first into a value that nothing has changed, then again.
insert_cells()		# level
{
	local size bytes names options

	[ "$1" = replica ] || return 0
	for size in ${sizes:-$insert_sizes}; do
		bytes=$(to_bytes "$size")
		names=$(large_contenders "$bytes" blobstate deferred bytea innodb sqlite file)
		[ -n "$names" ] || continue
		note "$1: insert 100 bytes into $size"
		begin_changes insert
		make_values "$names" "$bytes"
		options=(--op insert --contenders "$names" --size "$bytes" --piece 100 --settle)
		load "${options[@]}" --label insert-first | record "$1"
		load "${options[@]}" --rounds "$rounds" --values 3 | record "$1"
		end_changes
	done
}
