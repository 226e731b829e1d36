# test/run examples: the C interface and the examples, built against the installed header, as any
# other extension would be; on a primary, on its standby, and where they cannot work.

test_prepare()
{
	local warnings='-Wall -Wextra -Werror -Wno-unused-parameter'

	cp -R "$checkout/examples" "$work/examples"
	make -s -C "$work/examples/line_count" clean with_llvm=no PG_CONFIG="$PG_CONFIG"
	make -s -C "$work/examples/line_count" all with_llvm=no COPT="$warnings" \
		PG_CONFIG="$PG_CONFIG"
	make -s -C "$work/test/examples" all with_llvm=no COPT="$warnings" PG_CONFIG="$PG_CONFIG"
	# As its "make install" would do.
	make -s -C "$work/examples/line_count" install with_llvm=no DESTDIR="$work/installed" \
		PG_CONFIG="$PG_CONFIG"
	find "$work/installed" -type f > "$work/installed_files"
}

export BLOBEXT_TEST_CONFIG="${BLOBEXT_TEST_CONFIG:-}
blobext.cache_size = 0"
test_enter "$@"

failures=0
psql=("$bindir/psql" -X -q -A -t -v ON_ERROR_STOP=1)
line_count_script=$work/examples/line_count/line_count--1.0.sql

check()
{
	if [ "$2" = "$3" ]; then
		echo "ok - $1"
	else
		echo "not ok - $1"
		diff <(echo "$3") <(echo "$2") | head -n 20
		failures=$((failures + 1))
	fi
}

# SQLSTATE and message of a statement that is to fail.
error_of()
{
	"$bindir/psql" -X -q -A -t -v VERBOSITY=verbose -c "$1" 2>&1 | sed -n 's/^ERROR:  //p'
}

check 'the extension installs its three files' \
	"$(sed 's|.*/||' "$work/installed_files" | sort | xargs)" \
	'line_count--1.0.sql line_count.control line_count.so'

test_start_server data
"${psql[@]}" -f "$test_dir/examples/prepare.sql" -f "$work/examples/file_kind.sql" \
	-f "$work/examples/image_size.sql" -f "$work/examples/history.sql"
sed "s|MODULE_PATHNAME|$work/examples/line_count/line_count|" "$line_count_script" | "${psql[@]}"
pg_prove --ext .sql --set probe="$work/test/examples/api_probe" "$test_dir/examples/api.sql" \
	"$test_dir/examples/answers.sql" "$test_dir/examples/indexes.sql" \
	"$test_dir/examples/memory.sql" "$test_dir/examples/history.sql" || failures=$((failures + 1))

# ---- after a dump, and on a standby ----

answers="SELECT sum(line_count(content)), sum((image_size(content)).width),
	count(*) FILTER (WHERE file_kind(content) = 'png') FROM image"
on_primary=$("${psql[@]}" -c "$answers")
"$bindir/createdb" restored
"$bindir/pg_dump" | "${psql[@]}" -d restored > "$work/restore.log"
check 'a restored dump gives the same answers' "$("${psql[@]}" -d restored -c "$answers")" \
	"$on_primary"
check 'the indexes of a restored dump are complete' "$("${psql[@]}" -d restored -c "SELECT count(*),
	count(bt_index_check(indexrelid, true)) FROM pg_index
	WHERE indrelid = 'image'::regclass AND indexprs IS NOT NULL")" '3|3'
"$bindir/pg_basebackup" -D "$work/standby" -R -c fast
"${psql[@]}" -c "INSERT INTO image (id, content) SELECT id, sample(id) FROM
	generate_series(2001, 2100) AS id"
printf '%s\n' 'port = 5791' 'hot_standby = on' >> "$work/standby/postgresql.conf"
"$bindir/pg_ctl" -D "$work/standby" -l "$work/standby.log" -w start > /dev/null
for ((i = 0; i < 300; i++)); do
	[ "$("${psql[@]}" -p 5791 -c 'SELECT count(*) FROM image WHERE id > 2000')" = 100 ] && break
	sleep 0.1
done
check 'a standby gives the same answers' "$("${psql[@]}" -p 5791 -c "$answers")" \
	"$("${psql[@]}" -c "$answers")"
check 'the answers after the insertion differ from those before' \
	"$([ "$("${psql[@]}" -c "$answers")" != "$on_primary" ] && echo yes)" yes
index_query="SET enable_seqscan = off; SELECT count(*), min(id) FROM image
	WHERE (image_size(content)).width = 2050"
check 'the indexes of a standby are right' "$("${psql[@]}" -p 5791 -c "$index_query")" '1|2050'
"$bindir/pg_ctl" -D "$work/standby" -m fast -w stop > /dev/null

# ---- where it cannot work ----

# $1: shared_preload_libraries, $2: what to do while the server is down
restart_with()
{
	"$bindir/pg_ctl" -D "$server_data" -m fast -w stop > /dev/null
	${2:-true}
	echo "shared_preload_libraries = '$1'" >> "$server_data/postgresql.conf"
	"$bindir/pg_ctl" -D "$server_data" -l "$work/server.log" -w start > /dev/null
}

truncate_files()
{
	truncate -s 0 "$server_data"/pg_blobext/*/*
}

remove_files()
{
	rm "$server_data"/pg_blobext/*/*
}

of_c='SELECT line_count(content) FROM image WHERE length(content) > 4000'
of_sql='SELECT blob_read(content, 0, 100) FROM image WHERE length(content) > 4000'
restart_with ''
check 'a server without the preloaded library refuses the function' "$(error_of "$of_c")" \
	'55000: blobext must be loaded via shared_preload_libraries'
check 'a function in C is refused in the words of SQL functions' \
	"$(error_of "$of_c")" "$(error_of "$of_sql")"

restart_with blobext truncate_files
check 'a function in C refuses a truncated file' "$(error_of "$of_c" | cut -d '"' -f 1)" \
	'XX001: could not read content from file '
check 'a function in C refuses a truncated file as SQL functions do' \
	"$(error_of "$of_c" | cut -d '"' -f 1)" \
	"$(error_of "$of_sql" | cut -d '"' -f 1)"
restart_with blobext remove_files
check 'a function in C refuses a missing file' "$(error_of "$of_c" | cut -d : -f 1)" 58P01
check 'a function in C refuses a missing file as SQL functions do' \
	"$(error_of "$of_c")" "$(error_of "$of_sql")"

exit $((failures > 0))
