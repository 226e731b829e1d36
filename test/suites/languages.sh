# test/run languages [option of pg_prove ...] [test ...]: values in functions of procedural
# languages (test/languages), in a server of their own, by pg_prove; and functions with the
# transform for PL/Python in a dump.
#
# A language that the server does not have is a failure, unless BLOBEXT_TEST_MAY_SKIP=1 is set; then
# its tests are named, with the package.  The tests "python_bytes*" need the extension
# blobext_plpython3u, which is built here, or is there where an installed library is tested.

# Into the copy of the server, wherever it is.
test_prepare()
{
	local program

	program=$("$BLOBEXT_TEST_PG_CONFIG" --bindir)/pg_config
	[[ $PG_CONFIG == "$BLOBEXT_TEST_TMP"/*"$program" ]] && have_extension plpython3u &&
		have_python_header || return 0
	test_make install-plpython DESTDIR="${PG_CONFIG%"$program"}"
}

# The extension and the package that a test needs.
requirement_of()
{
	case $1 in
		python_bytes*) echo blobext_plpython3u "postgresql-$major-blobext-plpython3" ;;
		python*) echo plpython3u "postgresql-plpython3-$major" ;;
		perl*) echo plperl "postgresql-plperl-$major" ;;
		tcl*) echo pltcl "postgresql-pltcl-$major" ;;
	esac
}

# Functions with the transform are dumped and restored with it.
test_dump()
{
	local found

	createdb original
	createdb restored
	psql -X -q -v ON_ERROR_STOP=1 -d original -f "$test_dir/languages/dumped.psql"
	pg_dump -Fc -f dump.custom original
	pg_restore --exit-on-error -d restored dump.custom || return
	found=$(psql -X -q -A -t -v ON_ERROR_STOP=1 -d restored -c "
		SELECT extversion, same(content) = content
		FROM pg_extension, document WHERE extname = 'blobext_plpython3u'") || return
	[ "$found" = "$(sed -n "s/^default_version = '\(.*\)'/\1/p" \
		"$("$PG_CONFIG" --sharedir)/extension/blobext_plpython3u.control")|t" ] ||
		{ echo "not ok - a function with the transform is restored: $found"; return 1; }
	echo 'ok - a function with the transform is restored'
}

test_choose languages "$@"
test_enter "$@"

major=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*$/\1/')
status=0
chosen=()
dumped=
for test in "${tests[@]}"; do
	read -r extension package <<< "$(requirement_of "$test")"
	if have_extension "$extension"; then
		chosen+=("$test_dir/languages/$test.sql")
		[ "$test" != python_bytes ] || dumped=1
	elif [ -n "${BLOBEXT_TEST_MAY_SKIP:-}" ]; then
		echo "# left out: $test: no extension $extension (package $package)"
	else
		echo "not ok - $test: there is no extension $extension here (package $package)"
		status=1
	fi
done

test_start_server data "autovacuum = off"
export PATH="$bindir:$PATH"
psql -X -q -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION pgtap' -c 'CREATE EXTENSION blobext'
[ -z "$dumped" ] || test_dump || status=1
[ ${#chosen[@]} -eq 0 ] || pg_prove --ext .sql "${options[@]}" "${chosen[@]}" || status=1
exit $status
