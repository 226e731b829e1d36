# bench/lib/content_index.sh: part of bench/run: unique indexes on content against sha256(bytea).
#
# blobstate has a unique btree on the value, bytea one on sha256(v).  bench/index has more of this.

declare -A index_of=(
	[blobstate]='UNIQUE INDEX i_blobstate ON t_blobstate (v)'
	[bytea]='UNIQUE INDEX i_bytea ON t_bytea (sha256(v))'
)
declare -A look_up_of=(
	[blobstate]='SELECT id FROM t_blobstate WHERE v = $1::bytea'
	[bytea]='SELECT id FROM t_bytea WHERE sha256(v) = sha256($1::bytea)'
)

fill_documents()		# documents
{
	local copy="from program '$work/documents copy $1' (format binary)"

	sql <<-END
		CREATE TABLE t_bytea (id int, v bytea);
		ALTER TABLE t_bytea ALTER v SET STORAGE EXTERNAL;
		CREATE TABLE t_blobstate (id int, v blobstate);
		\copy t_bytea $copy
		\copy t_blobstate $copy
		VACUUM ANALYZE t_bytea, t_blobstate;
		CHECKPOINT
	END
}

# Build one index anew; prints its line.
build_index()		# label, contender, round, documents
{
	local cpu="split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::float8 / 1e9"

	sql -F $'\t' -c "SET client_min_messages = error" -c "DROP INDEX IF EXISTS i_$2" \
		-c CHECKPOINT -c 'CREATE TEMP TABLE build (seconds float8, cpu float8)' \
		-c "DO \$\$ DECLARE t timestamptz := clock_timestamp(); c float8 := $cpu;
			BEGIN
			CREATE ${index_of[$2]};
			INSERT INTO build VALUES (extract(epoch FROM clock_timestamp() - t), $cpu - c);
			END \$\$" \
		-c "SELECT '$1', 'server', 8000, 1, '$2', $3, $4, seconds, cpu FROM build"
}

# The first build after a restart, in which the values are on the device.
build_cold()		# contender, round, documents
{
	stop_server
	drop_caches
	start_server
	build_index index-cold "$1" "$2" "$3"
}

# Prints the lines of some rounds of look-ups.
look_up()		# label, documents
{
	local name arguments=()

	for name in $(chosen blobstate bytea | tr , ' '); do
		arguments+=("$name" "${look_up_of[$name]}")
	done
	as_user "$work/documents" query "$2" 0.5 "$rounds" $(($(nproc) - 1)) "${arguments[@]}" |
		awk -F '\t' -v OFS='\t' -v label="$1" \
			'{ print label, "libpq", 8000, 1, $1, $2, $3, $4, $6 }'
}

index_cells()		# level
{
	local documents=20000 round name

	[ -z "$is_quick" ] || documents=5000
	[ -n "$(chosen blobstate bytea)" ] || return 0
	note "$1: indexes on the content of $documents documents"
	begin_cell documents
	fill_documents $documents
	for name in $(chosen blobstate bytea | tr , ' '); do
		build_index warm-up "$name" 0 $documents > /dev/null
	done
	look_up look-up $documents | record "$1"

	# After the restarts the buffer has what builds have read: the beginnings of values.
	for ((round = 0; round < rounds; round++)); do
		for name in $(chosen blobstate bytea | tr , ' '); do
			[ $round -gt 2 ] || build_cold "$name" $round $documents
			build_index index-build "$name" $round $documents
		done
	done | record "$1"
	look_up look-up-restart $documents | record "$1"
	end_cell
}
