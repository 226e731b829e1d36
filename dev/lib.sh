# dev/lib.sh: what the scripts of this directory share; to be sourced.
#
#   $checkout     the source tree
#   $bindir       PostgreSQL's programs, once dev_install_packages has run
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
BUILD_PACKAGES=(build-essential pkg-config "postgresql-$PG_MAJOR" "postgresql-server-dev-$PG_MAJOR"
	liburing-dev libssl-dev)
TEST_PACKAGES=("postgresql-$PG_MAJOR-pgtap" libtap-parser-sourcehandler-pgtap-perl libipc-run-perl
	python3-venv chromium e2fsprogs mount ca-certificates git)

say()
{
	printf '\n== %s\n' "$*"
}

fail()
{
	printf '%s: %s\n' "$0" "$*" >&2
	exit 1
}

as_root()
{
	if [ "$EUID" -eq 0 ]; then
		"$@"
	else
		command -v sudo > /dev/null || fail "sudo is needed for: $*"
		sudo -- "$@"
	fi
}

# Run a command, and show its output only if it fails.
quietly()
{
	local name log status=0

	# A file without a name goes with this process, also if that is killed.
	name=$(mktemp)
	exec {log}<> "$name"
	rm -f "$name"
	"$@" > "/dev/fd/$log" 2>&1 < /dev/null || status=$?
	[ $status -eq 0 ] || cat "/dev/fd/$log" >&2
	exec {log}>&-
	return $status
}

is_installed()
{
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" = installed ]
}

# Install those of the named packages that are missing; no other package is changed or upgraded.
dev_install_packages()
{
	local package missing=()

	command -v dpkg-query > /dev/null || fail "this script installs Debian packages; README.md" \
		"says how to build by hand"
	for package in "$@"; do
		is_installed "$package" || missing+=("$package")
	done
	if [ ${#missing[@]} -gt 0 ]; then
		say "Installing ${missing[*]}"
		quietly as_root apt-get -q update || fail "apt-get update failed"
		quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install \
			--no-install-recommends "${missing[@]}" || fail "apt-get install failed"
	fi

	if [ -z "${PG_CONFIG:-}" ]; then
		PG_CONFIG=/usr/lib/postgresql/$PG_MAJOR/bin/pg_config
		[ -x "$PG_CONFIG" ] || PG_CONFIG=$(command -v pg_config) || fail "pg_config not found"
	fi
	export PG_CONFIG
	bindir=$("$PG_CONFIG" --bindir)
}

dev_build_and_install()
{
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
	if as_cluster_user test -f "$cluster/data/postmaster.pid"; then
		quietly as_cluster_user "$bindir/pg_ctl" -D "$cluster/data" -m fast -w stop
	fi
}
