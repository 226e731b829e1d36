# test/run checked [suite [argument ...]]: the library of this source tree, built with assertions
# and with the compiler's checks for undefined behavior, in suites that run most of its code; or in
# the one that is named ("test/run checked tap gc.pl").
#
# A copy of the server in a temporary directory gets the checked library.  An assertion that fails
# ends the process that met it ("TRAP:" in the log), and so does undefined behavior ("runtime
# error:"); the suites fail of either.  First of all one of each is caused on purpose, and must be
# noticed.
#
# The server itself is Debian's, and asserts nothing; for one that does see "Checks" in the README.

# Variables that nothing has set have bytes that are no bool and no address, where the compiler can
# do that.  Warnings of the compiler are the ordinary build's matter.
checks='-DUSE_ASSERT_CHECKING=1 -fsanitize=undefined -fno-sanitize-recover=undefined'
if $("$PG_CONFIG" --cc) -ftrivial-auto-var-init=pattern -x c -c -o /dev/null /dev/null 2>/dev/null
then
	checks+=' -ftrivial-auto-var-init=pattern'
fi

# Suites with their arguments; the fuzzers and torture do less than when they are called by
# themselves: of two rounds of torture one ends in a crash.
suites=(unit regress pgtap 'datums --rounds 10' 'fuzz --operations 300 --changes 500' 'tap torture')
export BLOBEXT_TORTURE_SECONDS=${BLOBEXT_TORTURE_SECONDS:-16}
export BLOBEXT_TORTURE_ROUND=${BLOBEXT_TORTURE_ROUND:-8}
export BLOBEXT_TORTURE_KILLS=${BLOBEXT_TORTURE_KILLS:-99}
[ $# -eq 0 ] || suites=("$*")

test_guard "$@"
work=$(mktemp -d "$BLOBEXT_TEST_TMP/checked.XXXXXX")
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT

# The suites build the libraries that they load there, too.
build_library()
{
	local library symbol

	test_copy_sources "$work/source"
	export COPT="$checks" WERROR= BLOBEXT_TEST_TREE=$work/source
	test_make all
	test_make install DESTDIR="$work/server" > "$work/install.log" ||
		{ cat "$work/install.log"; exit 1; }
	export BLOBEXT_TEST_INSTALLED=1

	library=$("$PG_CONFIG" --pkglibdir)/blobext.so
	for symbol in ExceptionalCondition __ubsan_handle_; do
		nm -D --undefined-only "$library" > "$work/symbols"
		grep -q "$symbol" "$work/symbols" || { echo "no $symbol in $library" >&2; exit 1; }
	done
}

PG_CONFIG=$BLOBEXT_TEST_PG_CONFIG
bindir=$("$PG_CONFIG" --bindir)
test_copy_server "$work/server"
build_library

# $1: the rule to violate, $2: text that must then be in the log.
expect_failure()
{
	local log=$work/violation.log

	if "$here/run" violation "$1" > "$log" 2>&1 || ! grep -q "$2" "$log"; then
		echo "# a failure that was caused on purpose has not been noticed: $1"
		cat "$log"
		exit 1
	fi
	echo "ok - is noticed: $1"
}

expect_failure assertion 'TRAP: '
expect_failure undefined 'runtime error: '

failed=()
for tested in "${suites[@]}"; do
	echo
	echo "== $tested"
	read -r -a command <<< "$tested"
	"$here/run" "${command[@]}" || failed+=("$tested")
done
[ ${#failed[@]} -eq 0 ] || { echo "# with checks FAILED: ${failed[*]}"; exit 1; }
