# test/needs.sh: prerequisites of the suites on this machine; to be sourced.
#
#   test_need SUITE ...   names missing prerequisites, with the Debian package of each, and ends
#   test_fail MESSAGE     ends with a message

# Kinds of needs, by suite.  "test/run all" adds up those of the suites that it runs.
declare -A test_needs=(
	[unit]='build pgtap' [tidy]='python binutils' [regress]='build pg_regress' [pgtap]='build pgtap'
	[examples]='build pgtap' [docs]='build psycopg' [dump]=build [tap]='build tap power'
	[python]='build psycopg' [mount]='build psycopg fuse' [drivers]='build psycopg'
	[fuzz]='build psycopg' [collecting]='build pg_regress psycopg' [datums]='build psycopg'
	[blobfs]='build pgtap psycopg' [languages]='build pgtap languages'
	[checked]='build pgtap pg_regress psycopg binutils tap power'
	[interrupt]='build tap power' [upgrade]='build git' [rmgr]='build tap power' [violation]=build
	[scripts]=python [spaces]='build pgtap pg_regress'
	[valgrind]='build pg_regress valgrind'
	[torture]='build tap power' [all]='')

test_fail()
{
	printf '%s: %s\n' "$(basename "$0")${suite:+ $suite}" "$*" >&2
	exit 2
}

test_find_major()
{
	local codename=

	if "$PG_CONFIG" --version > /dev/null 2>&1; then
		"$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*$/\1/'
		return
	fi
	[ ! -r /etc/os-release ] || codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	case $codename in
		trixie) echo 17 ;;
		forky) echo 18 ;;
		*) echo 15 ;;
	esac
}

# need DESCRIPTION PACKAGE COMMAND...: the command fails if it is missing.
need()
{
	local what=$1 package=$2
	shift 2
	"$@" > /dev/null 2>&1 || test_missing+=("  $what (package $package)")
}

have_command()
{
	PATH=$PATH:/usr/sbin:/sbin command -v "$1"
}

have_header()
{
	echo "#include <$1>" | "${CC:-cc}" -E -o /dev/null -
}

# An extension of the server, by name.
have_extension()
{
	test -f "$("$PG_CONFIG" --sharedir)/extension/$1.control"
}

# Of the Python that the server was built with.
have_python_header()
{
	local makefile

	makefile=$(dirname "$("$PG_CONFIG" --pgxs)")/../Makefile.global
	echo '#include <Python.h>' | "${CC:-cc}" -E -o /dev/null \
		$(sed -n 's/^python_includespec[[:space:]]*= //p' "$makefile") -
} > /dev/null 2>&1

# Beside the headers of the server; a copy of the server (test_copy_server) has only these.
have_libpq()
{
	test -f "$("$PG_CONFIG" --includedir)/libpq-fe.h" ||
		test -f "$("${BLOBEXT_TEST_PG_CONFIG:-pg_config}" --includedir)/libpq-fe.h"
}

need_build()
{
	local server_dev=postgresql-server-dev-$major

	need "python3 ($python)" python3 have_command "$python"
	need runuser util-linux have_command runuser
	[ "$EUID" -ne 0 ] || need "the user ${BLOBEXT_TEST_USER:-postgres}" "postgresql-$major" \
		id "${BLOBEXT_TEST_USER:-postgres}"
	need flock util-linux have_command flock
	need pg_config "$server_dev" have_command "$PG_CONFIG"
	have_command "$PG_CONFIG" > /dev/null || return 0
	need "the server" "postgresql-$major" test -x "$("$PG_CONFIG" --bindir)/postgres"
	# For the tests of the installed library, too: they build libraries of their own.
	need make build-essential have_command make
	need "a C compiler (${CC:-cc})" build-essential have_command "${CC:-cc}"
	need PGXS "$server_dev" test -f "$("$PG_CONFIG" --pgxs)"
	need "the server's headers" "$server_dev" \
		test -f "$("$PG_CONFIG" --includedir-server)/postgres.h"
	need libpq-fe.h libpq-dev have_libpq
	need liburing.h liburing-dev have_header liburing.h
	need openssl/sha.h libssl-dev have_header openssl/sha.h
	# Optional for the library; the tests have values of all methods of compression.
	need lz4.h liblz4-dev have_header lz4.h
	need zstd.h libzstd-dev have_header zstd.h
}

need_pgtap()
{
	need pg_prove libtap-parser-sourcehandler-pgtap-perl have_command pg_prove
	[ -n "$server_is_there" ] || return 0
	need "the extension pgtap of the server" "postgresql-$major-pgtap" \
		test -f "$("$PG_CONFIG" --sharedir)/extension/pgtap.control"
}

# Procedural languages, each in a package of its own.
need_languages()
{
	[ -n "$server_is_there" ] && [ -z "${BLOBEXT_TEST_MAY_SKIP:-}" ] || return 0
	need PL/Python "postgresql-plpython3-$major" have_extension plpython3u
	need PL/Perl "postgresql-plperl-$major" have_extension plperl
	need PL/Tcl "postgresql-pltcl-$major" have_extension pltcl
	need "the headers of Python" libpython3-dev have_python_header
}

need_pg_regress()
{
	[ -n "$server_is_there" ] || return 0
	need pg_regress "postgresql-server-dev-$major" \
		test -x "$(dirname "$("$PG_CONFIG" --pgxs)")/../test/regress/pg_regress"
}

# Of any of the interpreters that t/cdc.pl tries.
have_psycopg2()
{
	"$python" -c 'import psycopg2' || /usr/bin/python3 -c 'import psycopg2'
}

need_tap()
{
	need prove perl have_command prove
	need IPC::Run libipc-run-perl perl -MIPC::Run -e 1
	[ -n "$server_is_there" ] || return 0
	need PostgreSQL::Test::Cluster "postgresql-server-dev-$major" \
		test -f "$(dirname "$("$PG_CONFIG" --pgxs)")/../test/perl/PostgreSQL/Test/Cluster.pm"
	if [ -z "${BLOBEXT_TEST_MAY_SKIP:-}" ]; then
		need "the extension pglogical" "postgresql-$major-pglogical" have_extension pglogical
		for plugin in wal2json decoderbufs; do
			need "the output plugin $plugin" "postgresql-$major-$plugin" \
				test -f "$("$PG_CONFIG" --pkglibdir)/$plugin.so"
		done
		need psycopg2 python3-psycopg2 have_psycopg2
	fi
	need psql "postgresql-client-$major" test -x "$("$PG_CONFIG" --bindir)/psql"
}

# File systems that can be full, and whose power can be cut: only root can make them.
need_power()
{
	[ "$EUID" -eq 0 ] && [ "${BLOBEXT_TEST_MAY_SKIP:-packages}" = packages ] || return 0
	local before=${#test_missing[@]}
	need mkfs.ext4 e2fsprogs have_command mkfs.ext4
	need mount mount have_command mount
	need losetup mount have_command losetup
	need findmnt util-linux have_command findmnt
	[ -c /dev/loop-control ] || test_missing+=("  loop devices (kernel module loop)")
	[ -c /dev/fuse ] || test_missing+=("  the device /dev/fuse (kernel module fuse)")
	unshare -m --propagation private true 2> /dev/null ||
		test_missing+=("  mount namespaces (\"unshare -m\" is refused here)")
	[ ${#test_missing[@]} -eq "$before" ] ||
		test_hint="BLOBEXT_TEST_MAY_SKIP=1 leaves out the tests for full disks and power cuts."
}

# The program blobfs, and what mounts for users.
need_fuse()
{
	need pkg-config pkgconf have_command pkg-config
	need "libfuse 3" libfuse3-dev pkg-config --exists fuse3
	need libpq-fe.h libpq-dev have_libpq
	need fusermount3 fuse3 have_command fusermount3
	need openssl openssl have_command openssl
}

need_psycopg()
{
	need "psycopg 3.1 or later of $python" python3-psycopg "$python" -c 'import psycopg
assert tuple(map(int, psycopg.__version__.split(".")[:2])) >= (3, 1)'
}

# Of docs/backup.md, which test/run docs leaves out without them.
have_backup_tools()
{
	have_command pgbackrest && have_command barman && have_command rsync
} > /dev/null

need_python()
{
	need "python3 ($python)" python3 have_command "$python"
}

need_binutils()
{
	need nm binutils have_command nm
}

need_git()
{
	need git git have_command git
}

need_valgrind()
{
	need valgrind valgrind have_command valgrind
}

test_need()
{
	local suite kind kinds=' ' major server_is_there=1	# those functions see these

	test_find_python
	major=${PG_MAJOR:-$(test_find_major)}
	test_missing=()
	test_hint=
	for suite in "$@"; do
		for kind in ${test_needs[$suite]-build}; do
			[[ $kinds == *" $kind "* ]] || kinds+="$kind "
		done
	done
	for kind in $kinds; do
		"need_$kind"
		have_command "$PG_CONFIG" > /dev/null || server_is_there=
	done
	[ ${#test_missing[@]} -gt 0 ] || return 0
	{
		echo "$(basename "$0"): missing on this machine:"
		printf '%s\n' "${test_missing[@]}"
		echo "\"bash dev/test\" installs the packages, on Debian. $test_hint"
	} >&2
	exit 2
}
