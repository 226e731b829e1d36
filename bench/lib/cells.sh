# bench/lib/cells.sh: part of bench/run: rows that bench/load measures in turns.

# Operations of one round: a few tenths of a second.
values_of()
{
	local bytes=$1 values

	values=$((160 * 1048576 / bytes))
	[ "$bytes" -ge 1048576 ] || values=$((40 * 1048576 / bytes))
	[ $values -le 2000 ] || values=2000
	[ $values -ge 2 ] || values=2
	echo $values
}

# Of each client: those of several clients are twice as many as those of one.
values_of_each()		# bytes, clients
{
	local values

	values=$(values_of "$1")
	[ "$2" -eq 1 ] || values=$(((values * 2 + $2 - 1) / $2))
	echo $values
}

# Numbers of clients that handle values of a size at the same time: each of them, and its server,
# has some copies of a value in memory.
clients_for()		# bytes
{
	local count

	for count in $clients; do
		[ -z "$wanted_clients" ] && [ "$count" -gt 4 ] && [ "$1" -gt $((10 * 1048576)) ] ||
			echo "$count"
	done
}

# Those of the named contenders that take part, with commas.
chosen()
{
	local name list=''

	for name in "$@"; do
		! has_contender "$name" || list+=,$name
	done
	echo "${list#,}"
}

# A round trip takes 17 or 57 us by chance, unless both ends share a CPU.
pin_options()		# bytes, clients
{
	if [ "$1" -le 16384 ] && [ "$2" -eq 1 ]; then
		echo --cpu $(($(nproc) - 1))
	fi
}

# Adds the wal_level to each line.
record() { awk -v level="$1" '{ print level "\t" $0; fflush() }' >> "$raw"; }

# One cell in a database of its own; nothing if no contender takes part.
measure()		# level, contenders, options of load
{
	local level=$1 names=$2

	shift 2
	[ -n "$names" ] || return 0
	begin_cell cell
	load --contenders "$names" --rounds "$rounds" --settle "$@" | record "$level"
	end_cell
}

# Seconds after which a round of many clients ends early: SQLite's writers wait for each other in
# sleep.
round_seconds=5

store_cells()		# level
{
	local size bytes count via names

	for size in ${sizes:-$store_sizes}; do
		bytes=$(to_bytes "$size")
		for count in $(clients_for "$bytes"); do
			for via in $ways; do
				note "$1: store $size, $count client(s), $via"
				names=$(chosen $all_contenders)
				[ $via = libpq ] || names=$(chosen blobstate bytea)
				measure "$1" "$names" --op store --via $via --size "$bytes" --clients "$count" \
					--values "$(values_of_each "$bytes" "$count")" --limit $round_seconds \
					$(pin_options "$bytes" "$count")
			done
		done
	done
}

# The table is empty at the beginning of each round.
empty_cells()		# level
{
	local size bytes count values

	for size in ${sizes:-$empty_sizes}; do
		bytes=$(to_bytes "$size")
		for count in $(clients_for "$bytes"); do
			note "$1: store $size into an empty table, $count client(s)"
			values=$(($(values_of "$bytes") / count + 1))
			measure "$1" "$(chosen $all_contenders)" --op store \
				--label empty --empty --size "$bytes" --clients "$count" --values "$values" \
				--limit $round_seconds
		done
	done
}

# One transaction of 100 MB, or 1,000 values.
bulk_cells()		# level
{
	local size bytes values

	for size in ${sizes:-$bulk_sizes}; do
		bytes=$(to_bytes "$size")
		note "$1: bulk $size"
		values=$((100 * 1048576 / bytes))
		[ $values -le 1000 ] || values=1000
		measure "$1" "$(chosen $all_contenders)" --op store \
			--label bulk --size "$bytes" --values $values --batch $values
	done
}

# Files of a source tree, 1,000 in each transaction.
tree_cells()		# level
{
	local tree_rounds=8 values=10000

	[ -z "$is_quick" ] || { tree_rounds=3; values=4000; }
	note "$1: source tree, $((tree_rounds * values)) files"
	measure "$1" "$(chosen $all_contenders)" --op store \
		--label tree --sizes tree --size 15000 --values $values --batch 1000 --rounds $tree_rounds
}

# 100 MB of values, at least 100 and at most 10,000 of them.
live_values()		# bytes
{
	local values=$((100 * 1048576 / $1))

	[ $values -le 10000 ] || values=10000
	[ $values -ge 100 ] || values=100
	echo $values
}

# Existing values; the warm-up stores six more.
fill_cell()		# contenders, bytes, values
{
	load --op store --contenders "$1" --size "$2" --values "$3" --batch 20 --settle > /dev/null
}

mixed_cells()		# level
{
	local size bytes values count names

	names=$(chosen blobstate bytea lo innodb sqlite file)
	[ -n "$names" ] || return 0
	for size in ${sizes:-$mixed_sizes}; do
		bytes=$(to_bytes "$size")
		values=$(live_values "$bytes")
		for count in ${wanted_clients:-1}; do
			note "$1: read and replace $size, $count client(s)"
			begin_cell mixed
			fill_cell "$names" "$bytes" "$values"
			load --op mixed --contenders "$names" --size "$bytes" --clients "$count" --settle \
				--rounds "$rounds" --values "$(values_of "$bytes")" --data-values "$values" \
				$(pin_options "$bytes" "$count") | record "$1"
			end_cell
		done
	done
}

# Small values: each client and its server on one CPU, with percentiles of the times.
small_cells()		# level
{
	local size bytes names

	names=$(chosen blobstate bytea innodb sqlite file)
	[ -n "$names" ] || return 0
	for size in ${sizes:-120B 1kB}; do
		bytes=$(to_bytes "$size")
		note "$1: small stores and reads, $size"
		begin_cell small
		load --op store --label small-store --contenders "$names" --size "$bytes" --settle \
			--values 2000 --rounds "$rounds" $(pin_options "$bytes" 1) | record "$1"
		load --op cached --label small-read --contenders "$names" --size "$bytes" \
			--values 20000 --data-values 2000 --rounds "$rounds" $(pin_options "$bytes" 1) |
			record "$1"
		end_cell
	done
}

# Reads inside the server of what the same round has stored.
fresh_cells()		# level
{
	local size bytes

	for size in ${sizes:-100kB 1MB}; do
		bytes=$(to_bytes "$size")
		note "$1: read just stored $size"
		measure "$1" "$(chosen blobstate bytea lo)" --op fresh --via server --size "$bytes" \
			--values $((100 * 1048576 / bytes))
	done
}

# To a value of 5 MB, until it has 10 MB; a new value in each round.
append_cells()		# level
{
	local size bytes

	for size in ${sizes:-256kB}; do
		bytes=$(to_bytes "$size")
		note "$1: append $size"
		measure "$1" "$(chosen blobstate bytea lo innodb file)" --op append --size 5242880 \
			--piece "$bytes" --values $((5242880 / bytes))
	done
}

# Bytes written to the device and to the WAL, between two states in which no write is pending, with
# a checkpoint after each half.
device_cells()		# level
{
	local size bytes values round name wal_before sectors_before wal sectors

	# No collection of values of earlier cells meanwhile.
	change_settings 'blobext.autogc = off'
	for size in ${sizes:-$device_sizes}; do
		bytes=$(to_bytes "$size")
		values=$(values_of "$bytes")
		[ "$values" -ge 16 ] || values=16
		begin_cell device
		note "$1: device and WAL bytes of $size"
		for ((round = 0; round < (rounds + 1) / 2; round++)); do
			for name in $(chosen blobstate bytea lo innodb sqlite file | tr , ' '); do
				settle
				sectors_before=$(device_sectors written)
				wal_before=$(wal_position)
				load --op store --size "$bytes" --values "$values" --contenders "$name" --settle \
					--rounds 2 --first-id $((round * 10000 + 100000)) > /dev/null
				wal=$(($(wal_position) - wal_before))
				settle
				sectors=$(($(device_sectors written) - sectors_before))
				# The warm-up stores six values, too.
				printf 'device\tlibpq\t%d\t1\t%s\t%d\t%d\t%d\n' "$bytes" "$name" $round \
					$((values * 2 + 6)) $((sectors * 512)) | record "$1"
				printf 'wal\tlibpq\t%d\t1\t%s\t%d\t%d\t%d\n' "$bytes" "$name" $round \
					$((values * 2 + 6)) $wal | record "$1"
			done
		done
		end_cell
	done
	reset_settings
}

floor_cells()
{
	local size bytes arguments=()

	note 'floor: the durable store loop'
	for size in ${sizes:-$store_sizes}; do
		bytes=$(to_bytes "$size")
		arguments+=("$bytes,$rounds,$(values_of "$bytes")")
	done
	as_user "$work/floor" "$work/files" "${arguments[@]}" | record minimal
}
