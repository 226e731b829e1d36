# bench/lib/replay.sh: part of bench/run: replay on a standby, against stores by four clients.
#
# The standby is a copy of the cluster.  In each round four clients store, while the standby is
# down; then it gets the WAL in its pg_wal, and replays it alone.  So neither the transfer nor the
# primary's own work counts.  wal_level = replica only.

standby=''

standby_sql() { as_user "$bindir/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$work/standby" "$@"; }

make_standby()
{
	as_user "$bindir/pg_basebackup" -D "$work/standby" -X fetch -c fast > "$work/basebackup.log" \
		2>&1 || { cat "$work/basebackup.log" >&2; exit 1; }
	as_user touch "$work/standby/standby.signal"
	as_user tee -a "$work/standby/postgresql.conf" > /dev/null <<-END
		unix_socket_directories = '$work/standby'
		hot_standby = on
		log_line_prefix = '%n '
	END
	standby=1
}

stop_standby()
{
	[ -z "$standby" ] || as_user "$bindir/pg_ctl" -D "$work/standby" -m fast -w stop > /dev/null ||
		true
}

# Gives the standby the WAL that it does not have.
copy_wal()
{
	local file name

	as_user find "$work/standby/pg_wal" -maxdepth 1 -type f -delete
	for file in "$work"/data/pg_wal/????????????????????????; do
		name=${file##*/}
		[[ $name > "$first_file" || $name = "$first_file" ]] || continue
		as_user cp "$file" "$work/standby/pg_wal/$name"
	done
	sync
}

start_standby()
{
	as_user "${keep_memory[@]}" "$bindir/pg_ctl" -D "$work/standby" -l "$work/standby/log" -W \
		start > "$work/pg_ctl.log"
	until standby_sql -d postgres -c 'SELECT 1' > /dev/null 2>&1; do
		! grep -q FATAL.*recovery "$work/standby/log" 2> /dev/null ||
			{ tail -n 20 "$work/standby/log" >&2; exit 1; }
		sleep 0.02
	done
}

# Prints the time at which the standby has replayed a position.
wait_for()		# position
{
	standby_sql -d postgres <<-END
		DO \$\$ BEGIN
			WHILE pg_last_wal_replay_lsn() < '$1' LOOP PERFORM pg_sleep(0.005); END LOOP;
		END \$\$;
		SELECT extract(epoch FROM clock_timestamp());
	END
}

# Prints the seconds from the start of redo until the stores are replayed; the standby stops at the
# checkpoint after them, and begins there in the next round.
replay_until()		# position of the stores, of the checkpoint
{
	local started ended

	as_user rm -f "$work/standby/log"
	start_standby
	ended=$(wait_for "$1")
	wait_for "$2" > /dev/null
	started=$(awk '/redo starts at/ { print $1; exit }' "$work/standby/log")
	awk -v started="$started" -v ended="$ended" 'BEGIN { printf "%.3f", ended - started }'
}

# Stores by four clients, then replay, of one contender.  Ids of clients are a million apart, and
# those of rounds a tenth of it, so each size has tables of its own.
replay_round()		# contender, bytes, round
{
	local values=$((replay_mb * 1048576 / $2 / 4)) position end seconds first_file

	first_file=$(sql -c "SELECT pg_walfile_name(redo_lsn) FROM pg_control_checkpoint()")
	load --op store --label replay-store --contenders "$1" --size "$2" --clients 4 \
		--values "$values" --first-id $(($3 * 100000)) --first-round "$3" --prefix "replay_$2"
	position=$(sql -c 'SELECT pg_current_wal_flush_lsn()')
	sql -c CHECKPOINT
	end=$(sql -c 'SELECT pg_current_wal_flush_lsn()')
	sql -c 'SELECT pg_switch_wal()' > /dev/null
	copy_wal
	fill_memory
	seconds=$(replay_until "$position" "$end")
	stop_standby
	# The warm-up stores six values of each client, too.
	printf 'replay\tlibpq\t%d\t4\t%s\t%d\t%d\t%s\n' "$2" "$1" "$3" $(((values + 6) * 4)) "$seconds"
}

replay_cells()		# level
{
	local size name round number

	[ "$1" = replica ] || return 0
	change_settings "wal_keep_size = '$((replay_mb * 4))MB'"
	begin_cell replay
	make_standby
	for size in ${sizes:-100kB 10MB}; do
		number=0
		for ((round = 0; round < (rounds + 1) / 2; round++)); do
			for name in $(chosen blobstate bytea | tr , ' '); do
				note "$1: replay $size, $name"
				number=$((number + 1))
				replay_round "$name" "$(to_bytes "$size")" $number | record "$1"
			done
		done
	done
	rm -rf "$work/standby"
	standby=''
	end_cell
	reset_settings
}
