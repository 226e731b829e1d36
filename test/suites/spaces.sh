# test/run spaces: this tree is built in a directory whose path has spaces, and two suites run
# there; dev/stop and dev/demo get along with a cluster that ended with its machine.
# Seen to fail with $tree without quotes in test_make(), and with "pg_ctl stop" alone in
# stop_cluster().
#
# TMPDIR must have none: PostgreSQL::Test::Cluster does not quote the directory of sockets in
# connection strings.

test_guard "$@"
work=$(mktemp -d "$BLOBEXT_TEST_TMP/spaces.XXXXXX")
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT

copy="$work/a path with spaces/blob ext"
mkdir "$work/a path with spaces"
tree=${BLOBEXT_TEST_TREE:-$checkout}
test_copy_tree "$copy"

# As a user calls it: nothing of this run is taken over.
env -u BLOBEXT_TEST_TMP -u BLOBEXT_TEST_WORK -u BLOBEXT_TEST_INSTALLED -u BLOBEXT_TEST_TREE \
	PG_CONFIG="$BLOBEXT_TEST_PG_CONFIG" \
	bash "$copy/test/run" all unit regress
[ -e "$copy/blobext.so" ] || { echo "# not built in \"$copy\"" >&2; exit 1; }

# A cluster whose server could not remove the file with its number.
stop_dead_cluster()
{
	. "$copy/dev/lib.sh"
	bindir=$("$BLOBEXT_TEST_PG_CONFIG" --bindir)
	cluster=$work/demo
	install -d -m 700 -o "$cluster_user" "$cluster" "$cluster/data"
	echo 4194305 > "$cluster/data/postmaster.pid"	# above the largest number of a process
	stop_cluster
}

(stop_dead_cluster) || { echo "# stop_cluster fails for a server that is gone" >&2; exit 1; }
