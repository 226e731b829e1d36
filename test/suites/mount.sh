# test/run mount [test.py ...] [-- options of unittest]: the program blobfs with real mounts, of a
# server of its own.  Without a test: all of test/mount but those whose name begins with "long_".
#
# The user of the tests mounts, through fusermount3, in a mount namespace that ends with the last
# process of this script.  Where /dev/fuse is for root alone, root puts a device for all users in
# its place, in that namespace.  Where there is no /dev/fuse, nothing can be tested: an error,
# unless BLOBEXT_TEST_MAY_SKIP=1.

test_prepare()
{
	test_make mount
	cp "$tree/mount/blobfs" "$work/blobfs"
}

# As root, once: the namespace and the device.
enter_namespace()
{
	[ "$EUID" -eq 0 ] && [ -z "${BLOBEXT_MOUNT_NAMESPACE:-}" ] || return 0
	export BLOBEXT_MOUNT_NAMESPACE=1
	exec unshare -m --propagation private bash -c '
		device=$(mktemp -d "$BLOBEXT_TEST_TMP/device.XXXXXX")
		mount -t tmpfs -o mode=755,dev tmpfs "$device"
		mknod -m 666 "$device/fuse" c 10 229
		mount --bind "$device/fuse" /dev/fuse
		exec "$0" "$@"' "$here/run" mount "$@"
}

names=()
for argument in "$@"; do
	[ "$argument" != -- ] || break
	names+=("$argument")
done
test_choose mount "${names[@]}"
if [ -z "${BLOBEXT_TEST_WORK:-}" ]; then
	if [ ! -c /dev/fuse ]; then
		[ "${BLOBEXT_TEST_MAY_SKIP:-packages}" != packages ] ||
			test_fail "there is no /dev/fuse here"
		echo "# left out: ${tests[*]}: there is no /dev/fuse here"
		exit 0
	fi
	test_guard "$@"
	enter_namespace "$@"
fi
test_enter "$@"
shift ${#names[@]}

test_start_server data "max_connections = 60"
export PATH="$bindir:$PATH" BLOBFS=$work/blobfs BLOBEXT_MOUNT_DATA=$server_data
export BLOBEXT_MOUNT_LOG=$work/server.log PYTHONPATH=$test_dir/mount PYTHONUNBUFFERED=1
# For tests with thousands of open files.
ulimit -n "$(ulimit -Hn)"
status=0
for test in "${tests[@]}"; do
	echo "# $test"
	"$python" -B "$test_dir/mount/$test.py" -v "${@:2}" || status=1
done
exit $status
