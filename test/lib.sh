# test/lib.sh: what the scripts of this directory share; to be sourced.
#
# Servers refuse to run as root, and the checkout may belong to somebody else.  So test_enter
# copies test/ to a temporary directory and runs the script again from there, as user postgres
# (or $BLOBEXT_TEST_USER) when called by root.  Everything a test writes is in that directory.
#
#   $checkout     the source tree (only before the second run: it may not be readable)
#   $work         the temporary directory
#   $test_dir     the copy of test/ in it, with expected/ beside test/sql
#   $bindir       PostgreSQL's programs
#   test_prepare  a script may define it; runs before the copy changes hands, as the caller
#
# BLOBEXT_TEST_KEEP=1 keeps the temporary directory.  BLOBEXT_TEST_CONFIG holds further lines for
# the configuration of the servers, BLOBEXT_TEST_INITDB one option of initdb (pg_regress takes it
# from 17 on).

set -euo pipefail

PG_CONFIG=${PG_CONFIG:-pg_config}
export PG_CONFIG
bindir=$("$PG_CONFIG" --bindir)

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

test_enter()
{
	local as_user=() user=${BLOBEXT_TEST_USER:-postgres} name

	# Second run, from the copy.
	if [ -n "${BLOBEXT_TEST_WORK:-}" ]; then
		work=$BLOBEXT_TEST_WORK
		test_dir=$work/test
		unset BLOBEXT_TEST_WORK
		cd "$work"
		return
	fi

	checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
	work=$(mktemp -d "${TMPDIR:-/tmp}/blobext_test.XXXXXX")
	trap test_leave EXIT
	trap 'exit 130' INT TERM
	cp -R "$checkout/test" "$work/test"
	cp -R "$checkout/expected" "$work/test/expected"	# where pg_regress looks for them
	echo "${BLOBEXT_TEST_CONFIG:-}" >> "$work/test/postgresql.conf"
	test_prepare
	if [ "$EUID" -eq 0 ]; then
		chown -R "$user" "$work"
		as_user=(runuser -u "$user" --)
	fi
	for name in ${!PG@}; do
		case $name in PG_CONFIG) ;; *) unset "$name" ;; esac
	done
	export PG_TEST_INITDB_EXTRA_OPTS=${BLOBEXT_TEST_INITDB:-}
	cd "$work"
	"${as_user[@]}" env BLOBEXT_TEST_WORK="$work" HOME="$work" \
		bash "$work/test/$(basename "$0")" "$@"
	exit
}

# A copy of the installed server in a directory that is to be made; PG_CONFIG is the copy's from
# here on.  PostgreSQL finds its files from where its programs are: these must be copies, what is
# beside them can be links.
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
	PG_CONFIG=$prefix$bindir/pg_config
	bindir=$prefix$bindir
}

# A server of its own, stopped when the script ends.  $1: name of the data directory; the rest:
# further lines for its configuration.
test_start_server()
{
	local data=$work/$1 line
	shift

	"$bindir/initdb" -D "$data" -U postgres -A trust -E UTF8 --no-locale --no-sync \
		${BLOBEXT_TEST_INITDB:-} > "$work/initdb.log" 2>&1 || { cat "$work/initdb.log"; return 1; }
	printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" "port = 5790" "$@" \
		>> "$data/postgresql.conf"
	cat "$test_dir/postgresql.conf" >> "$data/postgresql.conf"
	export PGHOST=$work PGPORT=5790 PGUSER=postgres PGDATABASE=postgres
	server_data=$data
	trap 'test_stop_server' EXIT
	"$bindir/pg_ctl" -D "$data" -l "$work/server.log" -w start > "$work/pg_ctl.log" 2>&1 ||
		{ cat "$work/pg_ctl.log" "$work/server.log"; return 1; }
}

# No test that uses this crashes a backend on purpose.  The last of the words is what the compiler's
# checks report, see run_checked.
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

# A virtual environment with psycopg 3, from PyPI; to be called by test_prepare.  The interpreter
# must be one that the test user may run: $PYTHON, or else the system's.  BLOBEXT_TEST_VENV names
# an environment to share between scripts.
test_make_venv()
{
	local python=${PYTHON:-/usr/bin/python3}

	venv=${BLOBEXT_TEST_VENV:-$work/venv}
	[ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import psycopg' 2> /dev/null && return
	[ -x "$python" ] || python=python3
	"$python" -m venv "$venv" || { echo "install python3-venv, please" >&2; exit 1; }
	"$venv/bin/pip" install --quiet --disable-pip-version-check 'psycopg[binary]>=3.1'
	chmod -R a+rX "$venv"
}
