# test/lib.sh: functions that the suites share; to be sourced.
#
# A suite calls test_enter first.  Its parts can be called one by one:
#
#   test_guard      names missing prerequisites; runs the suite again under test/guard, in a
#                   temporary directory that is removed however the suite ends
#   test_install    makes the server to be tested: a copy of the installed one, in that directory,
#                   with the extension as this tree builds it
#   test_become     runs the suite again as another user
#
# A suite that another one runs shares the directory and the server of that one.
#
# Servers refuse to run as root, and their user may not be able to read the checkout.  So
# test_become copies test/ to a temporary directory and runs the suite again from there, as user
# postgres (or $BLOBEXT_TEST_USER) when called by root.  Everything a test writes is in that
# directory.
#
#   $suite        its name, and $here, the directory of test/run, which sets both
#   $checkout     the source tree (only before the run as another user: it may not be readable)
#   $work         the temporary directory of this suite, in $BLOBEXT_TEST_TMP
#   $test_dir     the copy of test/ in it, with expected/ beside test/sql
#   $bindir       PostgreSQL's programs
#   test_prepare  a suite may define it; runs before the copy changes hands, as the caller
#
# BLOBEXT_TEST_INSTALLED=1 tests the installed extension instead; PG_CONFIG says where.
# BLOBEXT_TEST_KEEP=1 keeps the temporary directory.  BLOBEXT_TEST_CONFIG holds further lines for
# the configuration of the servers, BLOBEXT_TEST_INITDB one option of initdb (pg_regress takes it
# from 17 on).
#
# Between suites: BLOBEXT_TEST_TMP, the directory of test/guard; BLOBEXT_TEST_PG_CONFIG, the
# PG_CONFIG of the caller, with which the tree is built; BLOBEXT_TEST_TREE, where it is built.

set -euo pipefail
umask 022

if [ -z "${BLOBEXT_TEST_WORK:-}" ]; then
	checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fi
. "$(dirname "${BASH_SOURCE[0]}")/needs.sh"
. "$(dirname "${BASH_SOURCE[0]}")/names.sh"
PG_CONFIG=${PG_CONFIG:-pg_config}
export PG_CONFIG
# Options of a make that has called this script are not for the makes that it calls.
unset MAKEFLAGS MAKELEVEL MFLAGS

# The interpreter: $PYTHON, or else the system's, for the test user must be able to run it.
test_find_python()
{
	python=${PYTHON:-/usr/bin/python3}
	[ -x "$python" ] || python=python3
}
test_find_python

test_guard()
{
	if [ -z "${BLOBEXT_TEST_TMP:-}" ]; then
		test_need "$suite"
		exec "$python" -B "$checkout/test/guard" bash "$here/run" "$suite" "$@"
	fi
	# With its path, for PATH may change.
	export BLOBEXT_TEST_PG_CONFIG=${BLOBEXT_TEST_PG_CONFIG:-$(command -v "$PG_CONFIG")}
	bindir=$("$PG_CONFIG" --bindir)
}

# make, in the tree, or in a copy of it if the user may not write to the tree; one at a time.  (A
# build in another directory, as make knows it, does not get along with blanks in the tree's path.)
test_make()
{
	tree=${BLOBEXT_TEST_TREE:-$checkout}
	exec 8< "$tree/Makefile"
	flock 8
	if [ ! -w "$tree/src" ]; then
		test_copy_tree "$BLOBEXT_TEST_TMP/build"
		tree=$BLOBEXT_TEST_TMP/build
	fi
	make -s -C "$tree" -j"$(nproc)" PG_CONFIG="$BLOBEXT_TEST_PG_CONFIG" "$@" 8<&-
	exec 8<&-
}

# Write an archive of the sources of a tree to standard output.  Other suites may build in the tree
# meanwhile: folders change (status 1 of tar), and objects come and go, which are left out.
test_pack_sources()
{
	tar -C "$1" --warning=no-file-changed --exclude=./.git --exclude='*.o' --exclude='*.d' \
		--exclude='*.so' --exclude=./mount/blobfs --exclude=./dev/cluster \
		--exclude='__pycache__' -c . || [ $? -eq 1 ]
}

# Copy the sources of $tree to a directory, unless it exists.
test_copy_tree()
{
	[ ! -d "$1" ] || return 0
	rm -rf "$1.new"
	mkdir "$1.new"
	test_pack_sources "$tree" | tar -C "$1.new" -x --no-same-owner
	mv "$1.new" "$1"
}

# The library of test/unit, as $1/blobext_unit.so.
test_make_unit()
{
	test_make unit-module
	mkdir -p "$1"
	cp "$tree/test/unit/blobext_unit.so" "$1/"
}

# Installs the extension into a copy of the server, as "make install" would into the server.
test_install()
{
	local server=$BLOBEXT_TEST_TMP/server

	[ -z "${BLOBEXT_TEST_INSTALLED:-}" ] || return 0
	test_make all
	test_copy_server "$server"
	test_make install DESTDIR="$server"
	export BLOBEXT_TEST_INSTALLED=1
}

test_leave()
{
	local status=$?

	if [ -n "${BLOBEXT_TEST_KEEP:-}" ]; then
		echo "# kept: $work"
	else
		rm -rf "$work"
	fi
	exit $status
}

test_prepare()
{
	:
}

test_become()
{
	local as_user=() user=${BLOBEXT_TEST_USER:-postgres} name

	work=$(mktemp -d "$BLOBEXT_TEST_TMP/$suite.XXXXXX")
	trap test_leave EXIT
	cp -R "$checkout/test" "$work/test"
	cp -R "$checkout/expected" "$work/test/expected"	# where pg_regress looks for them
	echo "${BLOBEXT_TEST_CONFIG:-}" >> "$work/test/postgresql.conf"
	test_prepare
	if [ "$EUID" -eq 0 ]; then
		chown -R "$user" "$work"
		as_user=(runuser -u "$user" --)
		"${as_user[@]}" test -x "$work" ||
			test_fail "user $user has no access to $work: TMPDIR must name another directory"
	fi
	for name in ${!PG@}; do
		case $name in PG_CONFIG) ;; *) unset "$name" ;; esac
	done
	export PG_TEST_INITDB_EXTRA_OPTS=${BLOBEXT_TEST_INITDB:-}
	cd "$work"
	"${as_user[@]}" env BLOBEXT_TEST_WORK="$work" HOME="$work" \
		bash "$work/test/run" "$suite" "$@"
	exit
}

test_enter()
{
	# The run as another user, from the copy.
	if [ -n "${BLOBEXT_TEST_WORK:-}" ]; then
		work=$BLOBEXT_TEST_WORK
		test_dir=$work/test
		bindir=$("$PG_CONFIG" --bindir)
		unset BLOBEXT_TEST_WORK
		cd "$work"
		return
	fi
	test_guard "$@"
	test_install
	test_become "$@"
}

# The sources of the extensions and of the libraries of tests, in a directory that is to be made.
test_copy_sources()
{
	mkdir -p "$1/test" "$1/mount"
	cp -R "$checkout/Makefile" "$checkout/blobext.control" "$checkout/sql" "$checkout/src" \
		"$checkout/tools" "$checkout/plpython" "$1/"
	cp -R "$checkout/mount/sql" "$1/mount/"
	cp -R "$checkout/test/unit" "$checkout/test/lossy_disk.c" "$1/test/"
	find "$1" '(' -name '*.o' -o -name '*.so' ')' -delete
}

# A copy of the server, without the extension, in a directory that is to be made; PG_CONFIG is the
# copy's from here on.  PostgreSQL finds its files from where its programs are: these must be
# copies, the other files can be links.
test_copy_server()
{
	local prefix=$1 directory

	for directory in pkglibdir sharedir includedir-server; do
		directory=$("$PG_CONFIG" --$directory)
		mkdir -p "$prefix$(dirname "$directory")"
		cp -Rs "$directory" "$prefix$(dirname "$directory")/"
	done
	mkdir -p "$prefix$bindir"
	cp -L "$bindir"/* "$prefix$bindir/"
	rm -rf "$prefix$("$PG_CONFIG" --pkglibdir)/blobext.so" \
		"$prefix$bindir"/blobext_{upgrade,verify} \
		"$prefix$("$PG_CONFIG" --sharedir)"/extension/blob{ext,fs}* \
		"$prefix$("$PG_CONFIG" --includedir-server)/extension/blobext"
	PG_CONFIG=$prefix$bindir/pg_config
	bindir=$prefix$bindir
}

# A cluster in this data directory.  If $server_config is set, Debian's pg_createcluster makes it,
# with its configuration in that directory: CONF_ROOT/VERSION/NAME.
test_make_cluster()
{
	local options=(-U postgres -A trust -E UTF8 --no-locale --no-sync ${BLOBEXT_TEST_INITDB:-})
	local name version

	if [ -z "${server_config:-}" ]; then
		"$bindir/initdb" -D "$1" "${options[@]}"
		return
	fi
	name=$(basename "$server_config")
	version=$(basename "$(dirname "$server_config")")
	mkdir -p "$1"
	PG_CLUSTER_CONF_ROOT=$(dirname "$(dirname "$server_config")") \
		/usr/bin/pg_createcluster -d "$1" -s "$work" -l "$work/server.log" "$version" "$name" -- \
		"${options[@]}" || return
	# The key of its certificate may not be readable for the user of the tests.
	echo 'ssl = off' >> "$server_config/postgresql.conf"
}

# A server of its own, stopped when the script ends.  $1: name of the data directory; the rest:
# further lines for its configuration.  $server_config: see test_make_cluster.
test_start_server()
{
	local data=$work/$1
	local config=$data
	shift

	if [ -n "${server_config:-}" ]; then
		config=$server_config
	fi
	test_make_cluster "$data" > "$work/initdb.log" 2>&1 || { cat "$work/initdb.log"; return 1; }
	printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" "port = 5790" "$@" \
		>> "$config/postgresql.conf"
	cat "$test_dir/postgresql.conf" >> "$config/postgresql.conf"
	export PGHOST=$work PGPORT=5790 PGUSER=postgres PGDATABASE=postgres
	server_data=$data
	trap 'test_stop_server' EXIT
	"$bindir/pg_ctl" -D "$config" -l "$work/server.log" -w start > "$work/pg_ctl.log" 2>&1 ||
		{ cat "$work/pg_ctl.log" "$work/server.log"; return 1; }
}

# No test that uses this crashes a backend on purpose.  "runtime error" is the report of the
# compiler's checks, see test/run checked.
test_look_at_log()
{
	if grep -E -A 12 'PANIC|TRAP:|was terminated by signal|runtime error: ' "$1"; then
		echo "# the server failed, see above"
		return 1
	fi
}

test_stop_server()
{
	local status=$?

	trap - EXIT
	"$bindir/pg_ctl" -D "$server_data" -m fast -w stop > /dev/null 2>&1 || true
	test_look_at_log "$work/server.log" || status=1
	if [ $status -ne 0 ]; then
		echo "# end of the server's log:"
		tail -n 30 "$work/server.log"
	fi
	exit $status
}
