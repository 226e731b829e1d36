# test/run python [test.py ...] [-- options of unittest]: psycopg 3, as an application uses it, the
# examples in Python, the package of clients/python, and bench/plot, in a server of their own.
# psycopg is Debian's package python3-psycopg, or that of $PYTHON; so are SQLAlchemy and Django, if
# they are new enough.

test_prepare()
{
	cp -R "$checkout/examples" "$work/examples"
	cp "$checkout/bench/plot" "$work/plot"
	# From a copy, because Python may write beside the source.
	cp -R "$checkout/clients/python" "$work/client"
}

names=()
for argument in "$@"; do
	[ "$argument" != -- ] || break
	names+=("$argument")
done
test_choose python "${names[@]}"
test_enter "$@"
shift ${#names[@]}

test_start_server data
export PATH="$bindir:$PATH" PYTHONPATH=$work/client/src BLOBEXT_EXAMPLES=$work/examples/streaming
export BLOBEXT_BENCH_PLOT=$work/plot
status=0
for test in "${tests[@]}"; do
	echo "# $test"
	"$python" -B "$test_dir/python/$test.py" -v "${@:2}" || status=1
done
exit $status
