# bench/lib/replace.sh: part of bench/run: random replacements until storage age 8.
#
# Storage age is bytes written since the table was filled, over live bytes.  A contender runs from
# the filled table to the end without a pause, since collection, vacuum and checkpoints are part of
# its work.  So the contenders take turns with whole runs.  The collector has its default settings.

# Kilobytes on disk of the contender's values; files may disappear meanwhile.
allocated_kb()		# contender
{
	case $1 in
		blobstate | deferred) du -sk "$work/data/pg_blobext/$database"* ;;
		bytea | lo) du -sk "$work/data/base/$database" ;;
		innodb) du -sk "$work/mariadb/bench" "$work"/mariadb/undo* "$work/mariadb/ibdata1" ;;
		sqlite) du -sk "$work/files/sqlite.db" ;;
		file) du -sk "$work/files/file" ;;
	esac 2> /dev/null | awk '{ sum += $1 } END { print sum + 0 }'
}

# The largest of them, until the file "running" is gone.
watch_peak()		# contender
{
	local now peak=0

	while [ -e "$work/running" ]; do
		now=$(allocated_kb "$1" || true)
		[ "$now" -le $peak ] || peak=$now
		sleep 0.2
	done
	echo $peak
}

# Contenders that store nothing have nothing to fill; those that write files write around in them.
stores_values() { [[ $1 != @(receive|hash|log) ]]; }
has_space() { stores_values "$1" && [[ $1 != @(behind|direct) ]]; }

# Checkpoints since the end of the log had a number of lines: all that were requested, and of these
# those that were not requested because of the size of the WAL.
requested_checkpoints()		# lines before
{
	tail -n "+$(($1 + 1))" "$work/server.log" | awk '
		/checkpoint starting:/ && !/ time/ {
			requested++
			if (!/ wal/) forced++
		}
		END { printf "%d %d\n", requested, forced }'
}

replace_run()		# level, contender, bytes, clients, pass
{
	local objects=$((live_mb * 1048576 / $3)) database log_lines peak checkpoints files

	begin_cell replace
	! stores_values "$2" || fill_cell "$2" "$3" $((objects - 6))
	files=$(wal_files)
	database=$(sql -c 'SELECT oid FROM pg_database WHERE datname = current_database()')
	log_lines=$(wc -l < "$work/server.log")
	: > "$work/running"
	watch_peak "$2" > "$work/peak" &
	load --op replace --contenders "$2" --size "$3" --clients "$4" --first-round "$5" \
		--values $((objects * 8 / $4)) --data-values "$objects" | record "$1"
	rm "$work/running"
	wait $!
	[ "$(wal_files)" -le "$files" ] ||
		note "$2: the server made $(($(wal_files) - files)) WAL files beside those that it had"
	has_space "$2" || { end_cell; return; }
	peak=$(cat "$work/peak")
	checkpoints=$(requested_checkpoints "$log_lines")
	printf 'allocated\tlibpq\t%d\t%d\t%s\t%d\t%d\t%d\n' "$3" "$4" "$2" "$5" "$objects" \
		$((peak * 1024)) | record "$1"
	printf 'checkpoints\tlibpq\t%d\t%d\t%s\t%d\t1\t%d\n' "$3" "$4" "$2" "$5" \
		"${checkpoints% *}" | record "$1"
	printf 'forced\tlibpq\t%d\t%d\t%s\t%d\t1\t%d\n' "$3" "$4" "$2" "$5" "${checkpoints#* }" |
		record "$1"
	end_cell
}

replace_cells()		# level
{
	local size name count pass passes=$(((rounds + 2) / 3)) names

	names=$(chosen $all_contenders)

	# bytea at its best: vacuum keeps up, and its table stays in the buffers.
	change_settings 'autovacuum = on' 'autovacuum_naptime = 1' 'autovacuum_vacuum_cost_delay = 0'
	for size in ${sizes:-$replace_sizes}; do
		for count in ${wanted_clients:-1}; do
			for ((pass = 0; pass < passes; pass++)); do
				for name in ${names//,/ }; do
					note "$1: replace $size, $count client(s), $name"
					replace_run "$1" "$name" "$(to_bytes "$size")" "$count" $pass
				done
			done
		done
	done
	reset_settings
}
