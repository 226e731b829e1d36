# test/run rmgr [id [test ...]]: the library of this source tree, built with another id of the WAL
# resource manager (142), in tests of crashes and standbys; and how servers behave when the id of
# their WAL and that of their library differ (t/rmgr.pl).
#
# Two copies of the server in a temporary directory: one has the library with the ordinary id, the
# tests run in the other.

test_guard "$@"
id=${1:-142}
tests=("${@:2}")
[ ${#tests[@]} -gt 0 ] || tests=(rmgr crash standby wal_versions)

test_install
export BLOBEXT_OTHER_BINDIR=$("$PG_CONFIG" --bindir)

source=$BLOBEXT_TEST_TMP/source
test_copy_sources "$source"

# Make takes the id from the environment, also where a test builds a library.
export RMGR_ID=$id BLOBEXT_TEST_TREE=$source
PG_CONFIG=$BLOBEXT_TEST_PG_CONFIG
bindir=$("$PG_CONFIG" --bindir)
test_copy_server "$BLOBEXT_TEST_TMP/other"
test_make all
test_make install DESTDIR="$BLOBEXT_TEST_TMP/other"
export BLOBEXT_TEST_INSTALLED=1
"$here/run" tap "${tests[@]}"
