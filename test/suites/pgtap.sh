# test/run pgtap [option of pg_prove ...] [test ...]: the tests in test/pgtap, by pg_prove, in a
# server of their own.

test_choose pgtap "$@"
test_enter "$@"

# Counters are those of the cluster, and ANALYZE reads values.
test_start_server data "autovacuum = off"
"$bindir/psql" -X -q -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION pgtap' -c 'CREATE EXTENSION blobext'
tests=("${tests[@]/#/$test_dir/pgtap/}")
pg_prove --ext .sql "${options[@]}" "${tests[@]/%/.sql}"
