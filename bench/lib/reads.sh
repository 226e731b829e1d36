# bench/lib/reads.sh: part of bench/run: reads of existing values, cached and cold.

# Values that all cold reads of a size take.
cold_values()		# bytes, clients
{
	local values

	values=$(($(values_of "$1") / 4 / $2))
	[ $values -ge 1 ] || values=1
	[ $values -le 100 ] || values=100
	echo $values
}

# Many more small values than cold reads take: the kernel reads ahead of each that it reads from a
# file, on some devices by megabytes, and would bring in the others.
data_values()		# bytes
{
	local count most wanted

	most=$((data_mb * 1048576 / $1))
	[ $most -le 50000 ] || most=50000
	for count in $(clients_for "$1"); do
		wanted=$((1 + $(cold_values "$1" "$count") * count * rounds))
		[ $wanted -le $most ] || most=$wanted
	done
	echo $most
}

# Values that fit into the caches, if one for each client does.
hot_values()		# bytes, clients
{
	local hot=$((100 * 1048576 / $1)) all

	all=$(data_values "$1")
	[ $hot -ge "$2" ] || hot=$2
	[ $hot -le 200 ] || hot=200
	[ $hot -le "$all" ] || hot=$all
	echo $hot
}

fill_read_tables()
{
	local size bytes

	for size in ${sizes:-$read_sizes}; do
		bytes=$(to_bytes "$size")
		note "filling tables to read: $size"
		mkdir -p "$work/read/$bytes"
		[ "$EUID" -ne 0 ] || chown "$user" "$work/read/$bytes"
		# The values of the first ids are written with the warm-up, see load/rounds.c.
		load --op store --size "$bytes" --prefix "read_$bytes" --values "$(data_values "$bytes")" \
			--directory "$work/read/$bytes" --contenders "$(chosen blobstate bytea lo file)" \
			> /dev/null
	done
	settle
}

# Reads of one size; cold ones take each value once.
read_cell()		# level, cold or cached, size, clients, way
{
	local bytes names values data_values

	bytes=$(to_bytes "$3")
	note "read $2 $3, $4 client(s), $5"
	names=$(chosen blobstate bytea lo file)
	[ "$5" = libpq ] || names=$(chosen blobstate bytea lo)
	[ -n "$names" ] || return 0
	if [ "$2" = cold ]; then
		values=$(cold_values "$bytes" "$4")
		data_values=$(data_values "$bytes")
	else
		values=$(values_of_each "$bytes" "$4")
		data_values=$(hot_values "$bytes" "$4")
	fi
	load --op "$2" --via "$5" --size "$bytes" --clients "$4" --rounds "$rounds" \
		--values "$values" --data-values "$data_values" --prefix "read_$bytes" \
		--directory "$work/read/$bytes" --contenders "$names" $(pin_options "$bytes" "$4") |
		record "$1"
}

read_cells()		# level
{
	local state size count via

	begin_cell read
	fill_read_tables
	for state in cached cold; do
		for count in $clients; do
			for via in $ways; do
				if [ $state = cold ]; then
					stop_server
					drop_caches
					start_server
				fi
				for size in ${sizes:-$read_sizes}; do
					clients_for "$(to_bytes "$size")" | grep -x "$count" > /dev/null || continue
					read_cell "$1" $state "$size" "$count" "$via"
				done
			done
		done
	done
	end_cell
	rm -rf "$work/read"/*
}
