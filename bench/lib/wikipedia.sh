# bench/lib/wikipedia.sh: part of bench/run: values with the sizes of Wikipedia's articles.

# The mean of load/sizes.c.
wikipedia_bytes=7686

# load with these sizes.
load_articles() { load --sizes wikipedia --size $wikipedia_bytes "$@"; }

wikipedia_stores()		# level
{
	local count values=2000

	for count in $clients; do
		note "$1: stores of articles, $count client(s)"
		measure "$1" "$(chosen $all_contenders)" --op store --label wikipedia-store \
			--sizes wikipedia --size $wikipedia_bytes --clients "$count" --limit $round_seconds \
			--values $(((values * 2 + count - 1) / (count == 1 ? 2 : count)))
	done
}

# Articles by id, at random, of many more than these: each once after a restart, then any again.
wikipedia_reads()		# level
{
	local count names all=$((data_mb * 1048576 / wikipedia_bytes)) cold

	names=$(chosen blobstate bytea lo innodb sqlite file)
	[ -n "$names" ] || return 0
	begin_cell wikipedia
	load_articles --op store --contenders "$names" --values "$all" --batch 1000 > /dev/null
	sql -c 'VACUUM ANALYZE'
	for count in $clients; do
		note "$1: reads of articles, $count client(s)"
		# With the six of the warm-up, no client comes to a value of another one.
		cold=$(((all / count - 6) / rounds))
		[ $cold -le $((1000 / count)) ] || cold=$((1000 / count))
		restart_cold
		load_articles --op random --label wikipedia-cold --cold --contenders "$names" \
			--clients "$count" --values $cold --data-values "$all" --rounds "$rounds" | record "$1"
		load_articles --op random --label wikipedia-warm --contenders "$names" \
			--clients "$count" --values $((8000 / count)) --data-values "$all" \
			--rounds "$rounds" | record "$1"
	done
	end_cell
}

wikipedia_cells()		# level
{
	wikipedia_stores "$1"
	# Reads do not depend on the level.
	[ "$1" != "${levels%% *}" ] || wikipedia_reads "$1"
}
