# bench/lib/source.sh: part of bench/run and bench/aging: which run figures are from.

commit_name()
{
	local commit

	commit=$(git -C "$checkout" -c safe.directory='*' rev-parse --short=12 HEAD 2> /dev/null ||
		echo unknown)
	[ -z "$(git -C "$checkout" -c safe.directory='*' status --porcelain -uno 2> /dev/null)" ] ||
		commit+=' (with changes)'
	echo "$commit"
}

# The first line of the file of single rounds, which bench/plot shows.
source_line()		# program
{
	echo "# source: $1, commit $(commit_name); $("$PG_CONFIG" --version | cut -d ' ' -f 1,2)," \
		"$(uname -sr), $(nproc) CPUs; $(date -u '+%F %H:%M') UTC"
}
