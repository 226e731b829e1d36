# test/run unit [seed]: C modules, tested by a library that is built from them and test/unit.

test_prepare()
{
	test_make_unit "$work/lib"
}

test_enter "$@"
seed=${1:-$((RANDOM * 32768 + RANDOM))}

test_start_server data
"$bindir/psql" -X -q -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION pgtap' -c 'CREATE EXTENSION blobext'
pg_prove --ext .sql --set library="$work/lib/blobext_unit" --set seed="$seed" \
	"$test_dir/unit/unit.sql" "$test_dir/unit/catalog.sql"
