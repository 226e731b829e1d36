# test/run all [suite [argument ...]] ...: all tests of this tree, or the named suites, with a
# summary.  Fails if one fails, and if none ran.
#
# A suite may be followed by its tests, without directory and suffix if one likes, and by options:
# "test/run all pgtap ranges order tap stale" runs three tests.  A word that names a test of the
# suite before it is that test, not the suite of this name.  All words after "checked" are for it.
#
# The library is built, and installed into a copy of the server that all suites share.  One suite
# prints here.  Several run beside each other, as many as there are processors (BLOBEXT_TEST_JOBS
# says otherwise); each prints to a file, and here a line when it ends, an excerpt if it failed.
# Then comes "tap", which runs its tests in this way.
#
# BLOBEXT_TEST_RECORD=1 writes to test/durations how long all took.  "--list" prints the names of
# suites and tests instead, "--check" as first argument only looks whether the others are right.

# Sets jobs_of_suites: a suite with its arguments in one string.
parse_arguments()
{
	local argument name suite=

	jobs_of_suites=()
	for argument in "$@"; do
		if [ -n "$suite" ] && name=$(test_name "$suite" "$argument"); then
			jobs_of_suites[-1]+=" $name"
		elif [[ $suite != checked && " ${test_suites[*]} " == *" $argument "* ]]; then
			suite=$argument
			jobs_of_suites+=("$suite")
		elif [ -z "$suite" ]; then
			test_fail "no suite \"$argument\", there are: ${test_suites[*]}"
		elif [ -n "$(test_pattern "$suite")" ] && [[ $argument != -* ]]; then
			test_name_unknown "$suite" "$argument"
		else
			jobs_of_suites[-1]+=" $(printf %q "$argument")"
		fi
	done
	[ ${#jobs_of_suites[@]} -gt 0 ] || jobs_of_suites=("${test_suites[@]}")
}

# How long "tap" with these arguments takes, or another suite; a part of its tests takes a part.
seconds_of()
{
	local suite=$1 all chosen
	shift

	[ -n "$(test_pattern "$suite")" ] || { jobs.py estimate "$suite"; return; }
	test_choose "$suite" "$@"
	if [ "$suite" = tap ]; then
		jobs.py estimate --kind tap --jobs "$(test_jobs tap)" "${tests[@]}"
	else
		all=$(test_list "$suite" | wc -l)
		chosen=${#tests[@]}
		echo $((($(jobs.py estimate "$suite") - 2) * chosen / all + 2))
	fi
}

jobs.py()
{
	"$python" -B "$here/jobs.py" "$@"
}

show_minutes()
{
	if [ "$1" -lt 90 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi
}

# How long all will take, first.
say_what_comes()
{
	local job seconds=0 others=()

	for job in "${jobs_of_suites[@]}"; do
		case $job in
			tap|tap\ *) seconds=$(seconds_of $job) ;;
			*) others+=("$job") ;;
		esac
	done
	if [ ${#jobs_of_suites[@]} -eq 1 ] && [ ${#others[@]} -eq 1 ]; then
		seconds=$(seconds_of ${others[0]})
	elif [ ${#others[@]} -gt 0 ]; then
		seconds=$((seconds + $(jobs.py estimate --jobs "$jobs" "${others[@]}")))
	fi
	echo "Suites: ${#jobs_of_suites[@]}, $jobs at a time (TAP tests: $(test_jobs tap))." \
		"This takes about $(show_minutes "$seconds"), as recorded in test/durations."
}

run_suites()
{
	local job narrow=() tap=() count=${#jobs_of_suites[@]} status started words

	for job in "${jobs_of_suites[@]}"; do
		case $job in
			tap|tap\ *) tap+=("$job") ;;
			*) narrow+=("$job") ;;
		esac
	done
	if [ ${#narrow[@]} -gt 0 ]; then
		jobs.py run --jobs "$jobs" --command "$(printf %q "$here")/run {}" \
			--logs "$BLOBEXT_TEST_TMP/logs" \
			--results "$results" --total "$count" \
			${BLOBEXT_TEST_RECORD:+--record "$here/durations"} "${narrow[@]}" || true
	fi
	for job in "${tap[@]}"; do
		echo "[$count/$count] $job: $(test_choose $job; echo ${#tests[@]}) tests"
		started=$SECONDS
		status=0
		read -r -a words <<< "$job"
		"$here/run" "${words[@]}" || status=$?
		printf '%s\t%s\t%s\n' "$status" $((SECONDS - started)) "$job" >> "$results"
	done
}

summarize()
{
	local status seconds job passed=0 failed=0

	echo
	echo "==== summary"
	while IFS=$'\t' read -r status seconds job; do
		if [ "$status" -eq 0 ]; then
			passed=$((passed + 1))
			status=passed
		else
			failed=$((failed + 1))
			status="FAILED (exit status $status)"
		fi
		printf '%-12s %4d s  %s\n' "$job" "$seconds" "$status"
	done < "$results"
	printf '%-12s %4d s  %d passed, %d failed\n' all $SECONDS $passed $failed
	[ $failed -eq 0 ] && [ $passed -gt 0 ]
}

list()
{
	local suite

	for suite in "${test_suites[@]}"; do
		echo "$suite"
		[ -z "$(test_pattern "$suite")" ] ||
			test_list "$suite" | xargs | fold -s -w 90 | sed 's/^/    /'
	done
}

case ${1:-} in
	--list) list; exit ;;
	--check) shift; parse_arguments "$@"; exit ;;
esac
parse_arguments "$@"
[ -n "${BLOBEXT_TEST_TMP:-}" ] || test_need "${jobs_of_suites[@]%% *}"
test_guard "$@"
jobs=$(test_jobs suite)
results=$BLOBEXT_TEST_TMP/results
say_what_comes
[ "${jobs_of_suites[*]}" = tidy ] || test_install
if [ ${#jobs_of_suites[@]} -eq 1 ]; then
	read -r -a words <<< "${jobs_of_suites[0]}"
	"$here/run" "${words[@]}"
	exit
fi
run_suites
summarize
