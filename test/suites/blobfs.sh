# test/run blobfs [option of pg_prove ...] [test ...]: the tests of the extension blobfs in
# test/blobfs, in a server of their own: those in SQL by pg_prove, then those in Python.  Options of
# the latter are in BLOBFS_MODEL, see model.py.

test_choose blobfs "$@"
test_enter "$@"

test_start_server data "autovacuum = off"
export PATH="$bindir:$PATH" BLOBFS_DATA=$server_data BLOBFS_LOG=$work/server.log
psql -X -q -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION pgtap' -c 'CREATE EXTENSION blobext' \
	-c 'CREATE EXTENSION blobfs'
status=0
in_sql=()
for name in "${tests[@]}"; do
	[ ! -f "$test_dir/blobfs/$name.sql" ] || in_sql+=("$test_dir/blobfs/$name.sql")
done
if [ ${#in_sql[@]} -gt 0 ]; then
	pg_prove --ext .sql "${options[@]}" "${in_sql[@]}" || status=1
fi
for name in "${tests[@]}"; do
	[ -f "$test_dir/blobfs/$name.py" ] || continue
	echo "# $name.py"
	"$python" -B "$test_dir/blobfs/$name.py" || status=1
done
exit $status
