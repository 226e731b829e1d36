# test/run upgrade [part [commit]]: servers with another library and with this one.  Parts: values,
# rolling, previous, clusters, methods; without one: all.
#
# By hand, from a git checkout: builds the library of a commit for a copy of PostgreSQL.
#
# values: the older library (the last one with the SQL objects of 0.1.0) stores values.  The server
# is stopped, cleanly or as by a crash.  This library replays the WAL, reads the values, updates the
# extension, and changes values.  At the end the older library meets values of the newer one: grown
# ones (0.1.0), compressed ones, and a store with holes.
#
# rolling: the older library (before 0.2.0, WAL of version 1 only) runs on a primary, the newer one
# on its standby.  The standby is promoted and gets an older standby.  This one goes on until the
# collector frees something on the primary, which is WAL of version 2, names the version that it
# does not know, and goes on after its update.  A base backup and the archive of the older server
# are restored with the newer library.
#
# previous: the older library is that of 0.2.0, which knows WAL of version 2, maps with holes, and
# the form of compressed values, but not their content, nor records of fetched content.  Each way
# between the versions; the older server refuses what it does not know, and goes on with this
# library.
#
# released: the older library is that of 0.3.0.  Each way between the versions, with what both
# know; the SQL objects are updated while the older library runs on a standby, which says what it
# lacks.
#
# clusters: pg_upgrade takes a cluster of 0.2.0 to one with this library.
#
# methods: the other library is this one (HEAD), built without any method of compression.  It meets
# compressed values, and columns with methods.

part=${1:-}
make_options=()
case $part in
	'')
		"$here/run" upgrade values
		"$here/run" upgrade methods
		"$here/run" upgrade rolling
		"$here/run" upgrade clusters
		"$here/run" upgrade released
		exec "$here/run" upgrade previous
		;;
	methods) commit=${2:-HEAD} make_options=(LZ4=no ZSTD=no) ;;
	values) commit=${2:-b45f48e} ;;
	rolling) commit=${2:-c8d4c7d} ;;
	released) commit=${2:-340c247} ;;
	previous | clusters) commit=${2:-3c22d38} ;;
	*) test_fail "values, rolling, previous, released, clusters or methods?" ;;
esac

test_prepare()
{
	mkdir "$work/old"
	git -C "$checkout" archive "$commit" | tar -x -C "$work/old"
	# In a shell of its own, for PG_CONFIG changes.
	(
		PG_CONFIG=$BLOBEXT_TEST_PG_CONFIG
		bindir=$("$PG_CONFIG" --bindir)
		# A copy of the server has no header of libpq.
		make_options+=("BLOBEXT_CPPFLAGS=-I$("$PG_CONFIG" --includedir)")
		test_copy_server "$work/pg"
		echo "$bindir" > "$work/old_bindir"
		make_options+=(-s -C "$work/old" PG_CONFIG="$PG_CONFIG" COPT=-Wno-error)
		make -j2 "${make_options[@]}" > "$work/build.log" 2>&1 ||
			{ tail "$work/build.log"; exit 1; }
		make install "${make_options[@]}" > "$work/install.log"
	)
	test_make_unit "$work/lib"
	echo "# older: $(git -C "$checkout" log -1 --format='%h %s' "$commit")"
}

test_enter "$@"

new_bindir=$bindir
old_bindir=$(< "$work/old_bindir")
failures=0

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

# The check of a store without checksums says so in a NOTICE.
sql()
{
	PGOPTIONS='-c client_min_messages=warning' "$new_bindir/psql" -X -q -A -t \
		-v ON_ERROR_STOP=1 -v VERBOSITY=verbose "${@:2}" -c "$1" 2>&1
}

# $1: programs of which version, $2: how to stop the one that runs
change_server()
{
	"$bindir/pg_ctl" -D "$server_data" -m "$2" -w stop > /dev/null
	bindir=$1
	"$bindir/pg_ctl" -D "$server_data" -l "$work/server.log" -w start > /dev/null ||
		{ tail -n 20 "$work/server.log"; exit 1; }
}

if [ "$part" != values ]; then
	. "$test_dir/upgrade/$part.sh"
	exit $((failures > 0))
fi

# ---- an older library ----

bindir=$old_bindir
test_start_server data
bytes="decode(repeat(md5((\$1 * i)::text), 1 + (i * i * 37) % 40000), 'hex')"
sql 'CREATE EXTENSION blobext'
old_version=$(sql "SELECT extversion FROM pg_extension WHERE extname = 'blobext'")
sql 'CREATE TABLE v (id serial PRIMARY KEY, digest text, b blobstate)'
store="INSERT INTO v (digest, b) SELECT encode(sha256(c), 'hex'), c
	FROM generate_series(1, 300) AS i, LATERAL (SELECT ${bytes//\$1/1}) AS s (c)"
intact="SELECT count(*) FROM v WHERE encode(sha256(b::bytea), 'hex') = digest
	AND encode(sha256(b), 'hex') = digest AND octet_length(b::bytea) = length(b)
	AND blob_storage(b) = CASE WHEN length(b) > 1024 THEN 'extents' ELSE 'inline' END"
sql "$store"
check "the older version ($old_version) stores the values" "$(sql "$intact")" 300

change_server "$new_bindir" fast
check 'stopped cleanly: the newer library reads' "$(sql "$intact")" 300
check 'the check finds nothing' "$(sql 'SELECT * FROM blobext_check()')" ''
change_server "$old_bindir" fast
check 'the older one again: nothing has changed' "$(sql "$intact")" 300
sql CHECKPOINT
sql "$store; DELETE FROM v WHERE id % 7 = 0"
present=$(sql 'SELECT count(*) FROM v')

change_server "$new_bindir" immediate
check 'stopped as by a crash: the newer library replays and reads' "$(sql "$intact")" "$present"
check 'the check finds nothing' "$(sql 'SELECT * FROM blobext_check()')" ''
sql "$store"
sql 'ALTER EXTENSION blobext UPDATE'
check 'updated: the extension has a later version' \
	"$(sql "SELECT extversion > '$old_version' FROM pg_extension
	WHERE extname = 'blobext'")" t
check 'updated: the values of both versions are whole' "$(sql "$intact")" $((present + 300))
sql "CREATE INDEX ON v (b); UPDATE v SET b = blob_append(b, 'more') WHERE id < 100;
	UPDATE v SET digest = encode(sha256(b), 'hex') WHERE id < 100"
sql VACUUM
check 'the collector frees what the older one left' \
	"$(sql 'SELECT freed_blobs > 50 FROM blobext_gc()')" t
check 'updated: values that have grown are whole' "$(sql "$intact")" $((present + 300))
check 'the check finds nothing' "$(sql 'SELECT * FROM blobext_check()')" ''

change_server "$old_bindir" fast
check 'the older library reads what has not grown' \
	"$(sql "$intact AND id >= 100")" $((present + 300 - 85))
echo '# the older library, of what it does not know:'
sql 'SELECT octet_length(b::bytea) FROM v WHERE id = 50' || true
sql "SELECT blob_append(b, 'x') FROM v WHERE id = 50" || true
sql 'SELECT * FROM blobext_gc()' || true
sql 'SELECT count(*) FROM blobext_gc_status' || true
change_server "$new_bindir" fast
check 'the newer library reads all values after the older one' "$(sql "$intact")" $((present + 300))

# ---- compressed values, and holes ----

sql "SET blobext.default_compression = zstd;
	INSERT INTO v (id, digest, b) SELECT 9000, encode(sha256(c), 'hex'), c
		FROM convert_to(repeat('compressed ', 10000), 'UTF8') AS c"
check 'a compressed value is stored with the method zstd' \
	"$(sql 'SELECT blob_compression(b) FROM v WHERE id = 9000')" zstd
change_server "$old_bindir" fast
check 'the older library says that it does not know the format' \
	"$(sql 'SELECT octet_length(b::bytea) FROM v WHERE id = 9000' |
		grep -c 'XX001.*unknown format')" 1
check 'the older library reads other values' \
	"$(sql "$intact AND id BETWEEN 100 AND 8999")" $((present + 300 - 85))
change_server "$new_bindir" fast
check 'a compressed value is read after the older library was there' \
	"$(sql "$intact")" $((present + 301))
sql "DELETE FROM v WHERE id % 10 <> 0"
left=$(sql 'SELECT count(*) FROM v')
sql "CREATE TABLE w AS SELECT i, decode(repeat(md5(i::text), 65536), 'hex')::blobstate AS b
	FROM generate_series(1, 40) AS i"
sql 'TRUNCATE w; INSERT INTO v (id, b) VALUES (9010, NULL)'
sql VACUUM
sql 'SELECT freed_blobs > 0 FROM blobext_gc()'
sql CHECKPOINT
sql 'SELECT freed_blobs >= 0 FROM blobext_gc()'
check 'the store has holes that were punched' \
	"$(sql "SELECT count(*) > 0 FROM blobext_space WHERE state = 'punched'")" t
check 'values of a store with holes are whole' "$(sql "$intact")" "$left"
change_server "$old_bindir" fast
check 'the older library refuses a store with holes' \
	"$(sql 'SELECT octet_length(b::bytea) FROM v WHERE length(b) > 2000 AND id < 9000 LIMIT 1' |
		grep -c '55000.*incompatible build')" 1
check 'the older library reads rows, sizes and digests there' \
	"$(sql 'SELECT count(*) FROM v WHERE length(b) >= 0 AND id < 9000')" $((left - 1))
change_server "$new_bindir" fast
check 'values of a store with holes are whole after the older library was there' \
	"$(sql "$intact")" "$left"
sql CHECKPOINT
sql "$store"
check 'values that fill the holes are whole' "$(sql "$intact")" $((left + 300))
check 'the check finds nothing' "$(sql 'SELECT * FROM blobext_check()')" ''
exit $((failures > 0))
