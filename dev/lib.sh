# dev/lib.sh: what the scripts of this directory share; to be sourced.
#
#   $checkout     the source tree
#   $bindir       PostgreSQL's programs, once dev_find_server has run
#   $PG_CONFIG    which PostgreSQL to use; by default Debian's of version $PG_MAJOR
#   $PG_MAJOR     its major version; by default that of $PG_CONFIG, or of this Debian, or 15
#
# All of it works for root, and for others where sudo installs packages and files.

set -euo pipefail
export LC_ALL=C.UTF-8
unset PGOPTIONS PGSERVICE PGSERVICEFILE

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_major()
{
	local codename=

	if [ -n "${PG_CONFIG:-}" ] && [ -x "$PG_CONFIG" ]; then
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

PG_MAJOR=${PG_MAJOR:-$(find_major)}
BUILD_PACKAGES=(build-essential pkgconf "postgresql-$PG_MAJOR" "postgresql-server-dev-$PG_MAJOR"
	liburing-dev libssl-dev liblz4-dev libzstd-dev)
TEST_PACKAGES=("postgresql-$PG_MAJOR-pgtap" libtap-parser-sourcehandler-pgtap-perl libipc-run-perl
	python3-psycopg e2fsprogs mount ca-certificates git fuse3 libfuse3-dev libpq-dev)
LANGUAGE_PACKAGES=("postgresql-plpython3-$PG_MAJOR" "postgresql-plperl-$PG_MAJOR"
	"postgresql-pltcl-$PG_MAJOR" libpython3-dev)
# For pglogical.pl and cdc.pl, which follow the changes of a server.
CHANGES_PACKAGES=("postgresql-$PG_MAJOR-pglogical" "postgresql-$PG_MAJOR-wal2json"
	"postgresql-$PG_MAJOR-decoderbufs" python3-psycopg2)
# Drivers of clients, a JDK, tools for backups, pglogical, output plugins, languages, a browser:
# dev/test installs them if it is asked to, and the tests that need a missing one are left out.
OPTIONAL_PACKAGES=("${CHANGES_PACKAGES[@]}" python3-asyncpg python3-pg8000 python3-sqlalchemy
	python3-alembic python3-django python3-peewee python3-sqlmodel odbc-postgresql python3-pyodbc
	libpostgresql-jdbc-java pgbouncer ruby-activerecord ruby-pg pgbackrest barman rsync chromium
	rclone "${LANGUAGE_PACKAGES[@]}")
command -v javac > /dev/null || OPTIONAL_PACKAGES+=(default-jdk-headless)

say()
{
	printf '\n== %s\n' "$*"
}

fail()
{
	printf '%s: %s\n' "$0" "$*" >&2
	exit 1
}

# Whether as_root can work, and what it would need; $1: what for.
require_root()
{
	local said

	[ "$EUID" -ne 0 ] || return 0
	command -v sudo > /dev/null ||
		fail "$1 must be done by root, and there is no sudo here: run this as root"
	said=$(sudo -n true 2>&1) && return 0
	# sudo asks for a password on the terminal, whatever standard input is.
	{ : < /dev/tty; } 2> /dev/null ||
		fail "$1 must be done by root, and sudo, which has no terminal here, says \"$said\":" \
			"run this in a terminal, or as root"
	sudo -v ||
		fail "$1 must be done by root, and sudo does not let $(id -un): run this as root"
}

as_root()
{
	if [ "$EUID" -eq 0 ]; then
		"$@"
	else
		sudo -- "$@"
	fi
}

# Run a command, and show its output only if it fails.  PROGRESS=1: every 10 seconds a line says how
# long it has been running, and what it printed last.
quietly()
{
	local name log status=0 watcher=

	# A file without a name goes with this process, also if that is killed.
	name=$(mktemp)
	exec {log}<> "$name"
	rm -f "$name"
	if [ -n "${PROGRESS:-}" ]; then
		show_progress "/dev/fd/$log" &
		watcher=$!
	fi
	"$@" > "/dev/fd/$log" 2>&1 < /dev/null || status=$?
	if [ -n "$watcher" ]; then
		kill "$watcher" 2> /dev/null || true
		wait "$watcher" 2> /dev/null || true
	fi
	[ $status -eq 0 ] || cat "/dev/fd/$log" >&2
	exec {log}>&-
	return $status
}

# Until the parent ends this process, or is gone.
show_progress()
{
	local started=$SECONDS sleeper

	trap 'kill $sleeper 2> /dev/null; exit' TERM
	while kill -0 $$ 2> /dev/null; do
		sleep 10 > /dev/null 2>&1 &
		sleeper=$!
		wait $sleeper || break
		printf '   %d s: %s\n' $((SECONDS - started)) "$(tail -n 1 "$1" | cut -c 1-80)"
	done
}

is_installed()
{
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" = installed ]
}

# apt-get, once no other process has its lists or its database locked.
apt_get()
{
	local output said= status

	output=$(mktemp)
	while :; do
		status=0
		quietly as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -q "$@" \
			2> "$output" || status=$?
		if [ $status -eq 0 ] ||
			! grep -qE '^E: (Could not get lock|Unable to (acquire|lock))' "$output"; then
			cat "$output" >&2
			rm -f "$output"
			return $status
		fi
		if [ -z "$said" ]; then
			echo "Another process is installing packages; waiting until it has ended:"
			sed -n 's/^E: Could not get lock/   lock/p' "$output"
			said=1
		fi
		sleep 5
	done
}

# The release of Debian where os-release has no number, since that is the same in testing, unstable
# and with packages of experimental: apt is asked where its packages come from, and those of
# PostgreSQL.  Prints "experimental", "unstable", or the codename; nothing if apt does not know.
# $1: codename in os-release
unnumbered_release()
{
	local packages

	packages=$(dpkg-query -W -f '${db:Status-Status} ${source:Package} ${Package}\n' |
		sed -n 's/^installed postgresql-[0-9]* //p')
	if [ -n "$packages" ] && apt-cache policy $packages | awk '
		$1 == "***" { installed = 1 }
		NF == 2 && $2 !~ /\// { installed = 0 }		# another version, or the next package
		installed && $3 ~ /^(experimental|rc-buggy)\// { found = 1 }
		END { exit !found }'
	then
		echo experimental
		return
	fi
	apt-cache policy | awk -v codename="$1" '
		$1 ~ /^-?[0-9]+$/ { priority = $1 }
		sub(/^ *release /, ",") {
			line = $0 ","
			if (index(line, ",o=Debian,") == 0) next
			if (index(line, ",a=unstable,") > 0 && priority > unstable) unstable = priority
			if (index(line, ",n=" codename ",") > 0 && priority > testing) testing = priority
		}
		END {
			if (unstable > 0 && unstable >= testing) print "unstable"
			else if (testing > 0) print codename
		}'
}

# What the version of packages ends with.  No two releases share one, and apt changes the packages
# when a system goes on to the next: those of a release come after those of the one before, those of
# unstable, which end with nothing, after all of them, and those for a server of experimental, which
# is added to unstable, after these.  $1: os-release of another system
package_suffix()
{
	(
		VERSION_ID= VERSION_CODENAME= ID=
		. "${1:-/etc/os-release}"
		if [ "$ID" = debian ] && [ -z "$VERSION_ID" ]; then
			release=$(unnumbered_release "$VERSION_CODENAME")
			case $release in
				experimental) echo +exp1; exit ;;
				unstable) exit ;;
				forky) VERSION_ID=14 ;;
				duke) VERSION_ID=15 ;;
				'') fail "apt does not know which release of Debian this is: run apt-get update" ;;
				*) fail "package_suffix in dev/lib.sh does not know the number of $release" ;;
			esac
		fi
		[ "$ID" != debian ] || ID=deb
		echo "~$ID${VERSION_ID}u1"
	)
}

missing_packages()
{
	local package missing=()

	for package in "$@"; do
		is_installed "$package" || missing+=("$package")
	done
	echo "${missing[*]}"
}

# Before packages are installed: their names, and apt's lists.
begin_installation()
{
	command -v dpkg-query > /dev/null || fail "this script installs Debian packages; README.md" \
		"says how to build by hand"
	require_root "installing packages ($*)"
	say "Installing $*"
	echo "This takes 1 to 10 minutes, as fast as packages come."
	PROGRESS=1 apt_get update || fail "apt-get update failed"
}

install_packages()
{
	PROGRESS=1 apt_get -y install --no-install-recommends "$@" || fail "apt-get install failed"
}

# Install those of the named packages that are missing; no other package is changed or upgraded.
dev_install_packages()
{
	local missing

	read -r -a missing <<< "$(missing_packages "$@")"
	[ ${#missing[@]} -gt 0 ] || return 0
	begin_installation "${missing[@]}"
	install_packages "${missing[@]}"
}

# The same for packages that are not needed: those that this Debian does not have keep no others
# away.  They are named, and the result is 1.
dev_install_optional()
{
	local package missing known=() unknown=()

	read -r -a missing <<< "$(missing_packages "$@")"
	[ ${#missing[@]} -gt 0 ] || return 0
	begin_installation "${missing[@]}"
	for package in "${missing[@]}"; do
		if apt-cache show "$package" > /dev/null 2>&1; then
			known+=("$package")
		else
			unknown+=("$package")
		fi
	done
	[ ${#known[@]} -eq 0 ] || install_packages "${known[@]}"
	[ ${#unknown[@]} -eq 0 ] || { say "There are no packages ${unknown[*]} here"; return 1; }
}

dev_find_server()
{
	if [ -z "${PG_CONFIG:-}" ]; then
		PG_CONFIG=/usr/lib/postgresql/$PG_MAJOR/bin/pg_config
		[ -x "$PG_CONFIG" ] || PG_CONFIG=$(command -v pg_config) || fail "pg_config not found"
	fi
	export PG_CONFIG
	bindir=$("$PG_CONFIG" --bindir)
}

# The server is to be found before.
dev_build_and_install()
{
	require_root "\"make install\""
	say "Building and installing for $("$PG_CONFIG" --version)"
	make -s -C "$checkout" -j"$(nproc)" PG_CONFIG="$PG_CONFIG"
	quietly as_root make -s -C "$checkout" install PG_CONFIG="$PG_CONFIG" ||
		fail "make install failed"
}

# ---- the private cluster of the demo ----

# Servers refuse to run as root: then user postgres owns and runs the cluster.
if [ "$EUID" -eq 0 ]; then
	cluster_user=postgres
else
	cluster_user=$(id -un)
fi

as_cluster_user()
{
	if [ "$EUID" -eq 0 ]; then
		(cd / && exec runuser -u "$cluster_user" -- "$@")
	else
		"$@"
	fi
}

# Where the cluster lives: in the checkout, unless its owner cannot get there, or the path of the
# socket would be longer than the system allows.
find_cluster_dir()
{
	local in_checkout=$checkout/dev/cluster elsewhere

	if as_cluster_user test -x "$checkout/dev" && [ ${#in_checkout} -le 80 ]; then
		cluster=$in_checkout
		cluster_reason=
		return
	fi
	if [ "$EUID" -eq 0 ]; then
		elsewhere=$(getent passwd "$cluster_user" | cut -d: -f6)
	else
		elsewhere=$HOME
	fi
	cluster=$elsewhere/blobext-demo-$(printf '%s' "$checkout" | cksum | cut -d' ' -f1)
	cluster_reason="user $cluster_user cannot use a directory in $checkout"
}

cluster_port=54315
cluster_database=demo

# psql as the demo's superuser; only its owner and root may enter the socket's directory.
demo_psql()
{
	"$bindir/psql" -X -q -v ON_ERROR_STOP=1 -P pager=off \
		-h "$cluster" -p $cluster_port -U postgres -d "$cluster_database" "$@"
}

# The value of one SQL expression.
demo_value()
{
	demo_psql -A -t -c "SELECT $1"
}

stop_cluster()
{
	# The demo's mount, which root has made if root ran the demo.
	if [ -d "$cluster/mounted" ] && mountpoint -q "$cluster/mounted"; then
		fusermount3 -u -z "$cluster/mounted" || true
	fi
	# The server's file is there, too, after it ended with its machine.
	if as_cluster_user "$bindir/pg_ctl" -D "$cluster/data" status > /dev/null 2>&1; then
		quietly as_cluster_user "$bindir/pg_ctl" -D "$cluster/data" -m fast -w stop
	fi
}
