# test/run violation assertion|undefined: a server in which an assertion fails, or undefined
# behavior happens, on purpose; for test/run checked, which requires this to fail.

test_prepare()
{
	test_make_unit "$work/lib"
}

test_enter "$@"

test_start_server data
"$bindir/psql" -X -q -c "CREATE FUNCTION unit_violate(text) RETURNS bigint
	AS '$work/lib/blobext_unit' LANGUAGE C" -c "SELECT unit_violate('$1')" || true
