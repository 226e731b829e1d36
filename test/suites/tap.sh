# test/run tap [option of prove ...] [test ...]: the TAP tests.
#
# Without a test all of test/t are run.  Several tests run beside each other, three for two
# processors (BLOBEXT_TEST_JOBS says otherwise), the longest first; each prints to a file, and one
# line here when it ends.  One test, or any with options of prove, run one by one and print here.
#
# Tests for full disks and power cuts need root: servers and tests themselves then run as user
# $BLOBEXT_TEST_USER (postgres), in a mount namespace of their own.  Each of the places in which
# tests run beside each other has a small file system on a loop device, and another one on a disk
# that loses data that was not flushed (lossy_disk.c).  Called by another user, the suite leaves
# these tests out; for root that is an error unless BLOBEXT_TEST_MAY_SKIP=1 is set.
#
# Nothing is written to the checkout: everything lies in a new directory below /tmp (TMPDIR),
# which is kept, and named, when a test fails or BLOBEXT_TEST_KEEP=1 is set.
#
# Environment: see lib.sh; BLOBEXT_CRASH_ROUNDS and others that the tests name.

test_choose tap "$@"
test_guard "$@"
user=${BLOBEXT_TEST_USER:-postgres}
small_mb=${BLOBEXT_SMALL_FS_MB:-6144}

# Tests that nothing may run beside, with the reason.
declare -A alone=(
	[index_durability]='counts syncs; processes of a server that are slow enough to meet share one')

# Stage 1, as root: a mount namespace that takes the mounts with it when we end.
if [ "$EUID" -eq 0 ] && [ -z "${BLOBEXT_TAP_NAMESPACE:-}" ]; then
	if unshare -m --propagation private true 2>/dev/null; then
		BLOBEXT_TAP_NAMESPACE=private exec unshare -m --propagation private "$here/run" tap "$@"
	fi
	echo "# no mount namespaces here: tests that need a small file system are left out"
elif [ "$EUID" -ne 0 ]; then
	echo "# not root: tests that need a small file system, or cut the power, are left out"
fi

test_install
bindir=$("$PG_CONFIG" --bindir)
work=$(mktemp -d "$BLOBEXT_TEST_TMP/tap.XXXXXX")
chmod 755 "$work"
mkdir "$work/src" "$work/run" "$work/logs"
cp -r "$here/t" "$here/unit" "$here/../examples" "$here/../monitoring" "$here/../docs" \
	"$here/../docker" "$here/../Dockerfile" "$here"/{lib,names,needs}.sh "$work/src/"
# For tests that read what SQL the sources have; objects of a build are large.
mkdir "$work/src/tree"
tar -C "$here/.." -c --exclude='*.o' --exclude='*.d' --exclude='*.bc' src sql |
	tar -C "$work/src/tree" -x
# Functions that call the allocator.
test_make_unit "$work/src/unit"

jobs=$(test_jobs tap)
if [ ${#options[@]} -gt 0 ] || [ "$jobs" -gt ${#tests[@]} ]; then
	jobs=$((${#options[@]} > 0 ? 1 : ${#tests[@]}))
fi

pgxs=$(dirname "$("$PG_CONFIG" --pgxs)")/../test
export PATH="$bindir:$PATH"
export PERL5LIB="$pgxs/perl:$work/src/t${PERL5LIB:+:$PERL5LIB}"
export PG_REGRESS="$pgxs/regress/pg_regress"
# Where tests that run beside each other reserve their ports.
export PG_TEST_PORT_DIR="$work/run/ports"
export PGPORT=65432 LC_ALL=C
# A server that recovers syncs its data directory first, which a busy disk makes long; what tests
# wait for comes later when others run beside them.
export PGCTLTIMEOUT=${PGCTLTIMEOUT:-300} PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-600}
export BLOBEXT_UNIT_DIR="$work/src/unit" BLOBEXT_SOURCE_DIR="$work/src/tree"
export PG_TEST_INITDB_EXTRA_OPTS=${BLOBEXT_TEST_INITDB:-}
export TEMP_CONFIG="$work/src/server.conf"
echo "${BLOBEXT_TEST_CONFIG:-}" > "$TEMP_CONFIG"
export BLOBEXT_TAP_WORK=$work

# Stage 2, as root: for each place the small file system, and the process that cuts its power, and
# that of the lossy disk, which it starts for the first test that wants it (see power_switch).
switches=()
make_slot()
{
	local slot=$work/slot$1

	mkdir "$slot" "$slot/small"
	truncate -s "${small_mb}M" "$slot/small.img"
	mkfs.ext4 -q -F -m 0 "$slot/small.img"
	if ! mount -o loop "$slot/small.img" "$slot/small"; then
		[ "${BLOBEXT_TEST_MAY_SKIP:-packages}" != packages ] || test_fail "no loop devices here"
		echo "# no loop devices here: tests that need a small file system are left out"
		return
	fi
	chown "$user" "$slot/small"
	cp "$tree/test/lossy_disk" "$slot/lossy_disk"
	mkfifo -m 600 "$slot/switch.in" "$slot/switch.out"
	chown "$user" "$slot/switch.in" "$slot/switch.out"
	"$here/power_switch" "$slot" "$user" &
	switches+=($!)
}

if [ "${BLOBEXT_TAP_NAMESPACE:-}" = private ]; then
	test_make lossy-disk
	for ((slot = 0; slot < jobs; slot++)); do
		make_slot "$slot"
	done
fi

# Stage 3: prove, not as root.
mkdir -p "$work/run/ports"
[ "$EUID" -ne 0 ] || chown -R "$user" "$work/run"
cd "$work/src"
status=0
if [ "$jobs" -le 1 ]; then
	for test in "${tests[@]}"; do
		[ ${#tests[@]} -eq 1 ] || echo "# $test"
		BLOBEXT_TEST_SLOT=0 "$here/tap_one" --timer "${options[@]}" "t/$test.pl" || status=1
	done
else
	seconds=$("$python" -B "$here/jobs.py" estimate --kind tap --jobs "$jobs" \
		--alone "${!alone[*]}" "${tests[@]}")
	echo "# ${#tests[@]} tests, $jobs at a time: about" \
		"$([ "$seconds" -lt 90 ] && echo "$seconds s" || echo "$((seconds / 60)) min")"
	"$python" -B "$here/jobs.py" run --kind tap --jobs "$jobs" --alone "${!alone[*]}" \
		--command "$(printf %q "$here")/tap_one -v t/{}.pl" --logs "$work/logs" \
		${BLOBEXT_TEST_RECORD:+--record "$here/durations"} "${tests[@]}" || status=$?
fi

for pid in "${switches[@]}"; do
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
done
# Also after a failure: no other process sees these mounts, and the one of a lossy disk lives as
# long as its mount.
cd /
for slot in "$work"/slot*; do
	for mounted in small lossy lossy.disk; do
		! mountpoint -q "$slot/$mounted" || umount -l "$slot/$mounted"
	done
done
if [ "$status" = 0 ] && [ -z "${BLOBEXT_TEST_KEEP:-}" ]; then
	rm -rf --one-file-system "$work"
else
	echo "# data and logs: $work/run" >&2
	[ "$status" = 0 ] || touch "$BLOBEXT_TEST_TMP/kept"
fi
exit "$status"
