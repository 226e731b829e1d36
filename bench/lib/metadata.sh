# bench/lib/metadata.sh: part of bench/run: metadata of ten random values, in a statement.

# Contenders that can say it: SQLite has no digest, and a file system neither.
asked_contenders()		# size, prefix or digest
{
	if [ "$1" = digest ]; then
		chosen blobstate bytea lo innodb
	else
		chosen blobstate bytea lo innodb sqlite file
	fi
}

# All values are in the caches.  Some contenders compute a digest from 100 MB, others read a row: as
# many operations as a contender does in a moment.
metadata_cells()		# level
{
	local size bytes values asked count names

	[ -n "$(asked_contenders size)" ] || return 0
	for size in ${sizes:-$metadata_sizes}; do
		bytes=$(to_bytes "$size")
		values=$((200 * 1048576 / bytes))
		[ $values -le 1000 ] || values=1000
		[ $values -ge 10 ] || values=10
		begin_cell metadata
		fill_cell "$(asked_contenders size)" "$bytes" "$values"
		sql -c 'VACUUM ANALYZE'
		for asked in size prefix digest; do
			names=$(asked_contenders $asked)
			[ -n "$names" ] || continue
			for count in $clients; do
				note "$1: metadata ($asked) of ten values of $size, $count client(s)"
				load --op metadata --label metadata-$asked --asked $asked --contenders "$names" \
					--size "$bytes" --clients "$count" --rounds "$rounds" --values 2000 \
					--data-values "$values" --limit 0.5 | record "$1"
			done
		done
		end_cell
	done
}
