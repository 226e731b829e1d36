# test/run regress [pg_regress option ...] [test ...]: the tests in test/sql, in a server of their
# own.  Without a test: all that have an expected output.

test_choose regress "$@"
test_enter "$@"

status=0
"$(dirname "$("$PG_CONFIG" --pgxs)")/../test/regress/pg_regress" --bindir="$bindir" \
	--inputdir="$test_dir" --outputdir="$work" --dlpath="$work/lib" \
	--temp-instance="$work/instance" --temp-config="$test_dir/postgresql.conf" \
	--no-locale --encoding=UTF8 "${options[@]}" "${tests[@]}" || status=$?

if [ -s "$work/regression.diffs" ]; then
	head -n 300 "$work/regression.diffs"
fi
test_look_at_log "$work/log/postmaster.log" || status=1
if grep -q '^blobext.autogc = on' "$test_dir/postgresql.conf" &&
	! grep -q 'automatic collection of blobs' "$work/log/postmaster.log"; then
	echo "# the collector did not run"
	status=1
fi
exit $status
