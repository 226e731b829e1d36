# test/run valgrind SUPPRESSIONS [pgtap] [test ...]: test/run regress, or pgtap, in a server under
# valgrind; by hand.
#
# PG_CONFIG names a server that dev/assert_server has built; the suppressions are
# src/tools/valgrind.supp of its source.  A report of valgrind is printed if it is about a function
# of the extension, and only counted otherwise.  The run fails if one is printed, or a test fails.

[ $# -ge 1 ] || { echo "usage: test/run valgrind SUPPRESSIONS [pgtap] [test ...]" >&2; exit 2; }

suppressions=$(readlink -f "$1")
shift
tests_of=regress
[ "${1:-}" != pgtap ] || tests_of=pgtap
unset BLOBEXT_TEST_INSTALLED
test_guard "$suppressions" "$@"
work=$BLOBEXT_TEST_TMP
mkdir -m 1777 "$work/logs"
cp "$suppressions" "$work/suppressions"

test_install
bindir=$("$PG_CONFIG" --bindir)
mv "$bindir/postgres" "$bindir/postgres_itself"
cat > "$bindir/postgres" <<END
#!/bin/bash
# initdb runs without valgrind, because it would take long.
case \$1 in
	--boot | --single | --check | -V | --version) exec "$bindir/postgres_itself" "\$@" ;;
esac
exec valgrind --quiet --leak-check=no --vgdb=no --trace-children=yes --track-origins=yes \
	--suppressions="$work/suppressions" --log-file="$work/logs/%p.log" \
	"$bindir/postgres_itself" "\$@"
END
chmod 755 "$bindir/postgres"

[ $tests_of = regress ] || shift
export PG_CONFIG PGCTLTIMEOUT=1800
status=0
"$here/run" $tests_of "$@" || status=$?
# A report ends with a line that holds nothing but the process's number.  Of a library or program
# without symbols it has the path, in which the name of this directory would count as ours.
cat "$work"/logs/*.log | sed 's/^==[0-9]*== \?//; s|(in .*/\([^/]*\))|(in \1)|' > "$work/reports"
awk -v RS= '/blob/ { print $0 "\n"; ours++ } { all++ }
	END { printf "# valgrind: %d paragraphs, %d with functions of the extension\n", all, ours
		exit ours > 0 }' "$work/reports" || status=1
exit $status
