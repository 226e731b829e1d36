# test/names.sh: names of suites and of the tests in them; to be sourced, after needs.sh.

# The suites that "test/run all" runs without arguments; it starts them in another order.
test_suites=(unit tidy regress pgtap blobfs examples docs dump interrupt tap python languages mount
	drivers collecting fuzz datums checked spaces scripts)

# Where the tests of a suite are, if they can be named; nothing for another suite.
test_pattern()
{
	case $1 in
		regress) echo 'sql/*.sql' ;;
		pgtap) echo 'pgtap/*.sql' ;;
		blobfs) echo 'blobfs/*.*' ;;
		languages) echo 'languages/*.sql' ;;
		tap) echo 't/*.pl' ;;
		python) echo 'python/test_*.py' ;;
		mount) echo 'mount/test_*.py' ;;
	esac
}

# How many suites, or TAP tests, run beside each other.  TAP tests mostly wait, for devices and for
# each other's processes; each of them may need some gigabytes of disk.
test_jobs()
{
	local processors

	processors=$(nproc)
	if [ -n "${BLOBEXT_TEST_JOBS:-}" ]; then
		echo "$BLOBEXT_TEST_JOBS"
	elif [ "$1" = tap ]; then
		echo $((processors > 5 ? 8 : (processors * 3 + 1) / 2))
	else
		echo "$processors"
	fi
}

# All tests of a suite, without suffix.
test_list()
{
	local file

	for file in "$(dirname "${BASH_SOURCE[0]}")"/$(test_pattern "$1"); do
		file=${file##*/}
		echo "${file%.*}"
	done
}

# test_name SUITE NAME: the name without directory and suffix, if there is such a test.
test_name()
{
	local pattern name=${2##*/}

	pattern=$(test_pattern "$1")
	[ -n "$pattern" ] || return 1
	name=${name%.${pattern##*.}}
	# Those that take long run only if they are named.
	if [[ $name == long_* && -f "$(dirname "${BASH_SOURCE[0]}")/${pattern%/*}/$name.py" ]]; then
		echo "$name"
		return
	fi
	for name in "$name" "test_$name"; do
		if [[ " $(test_list "$1" | xargs) " == *" $name "* ]]; then
			echo "$name"
			return
		fi
	done
	return 1
}

test_name_unknown()
{
	test_fail "no test \"$2\" in suite $1, there are:" \
		$'\n '"$(test_list "$1" | xargs | fold -s -w 95 | sed '2,$s/^/  /')"
}

# Sets tests to the names among the arguments, options to the arguments with "-" before them.
# Without a name: all tests of the suite.
test_choose()
{
	local suite=$1 argument name
	shift

	tests=()
	options=()
	for argument in "$@"; do
		if [[ $argument == -* ]]; then
			options+=("$argument")
		elif name=$(test_name "$suite" "$argument"); then
			tests+=("$name")
		else
			test_name_unknown "$suite" "$argument"
		fi
	done
	[ ${#tests[@]} -gt 0 ] || mapfile -t tests < <(test_list "$suite")
}
