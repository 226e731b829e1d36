# bench/lib/slow_device.sh: part of bench/compression: a device with a rate of its own, for the
# server of own_server.sh.
#
# A file of the machine's disk under a loop device, with ext4, and a limit of the block layer for
# reads and for writes of this device.  The limit is that of cgroup v1 (blkio.throttle), in the
# root group, so it holds for the I/O of all: backends, io_uring, the kernel's threads that
# write buffered pages back.  No other device has a limit.  (The controller of cgroup v2 has no
# limit for the root group.)  The disk below must be faster; tell_slow_device() measures what comes
# out.

throttle=/sys/fs/cgroup/blkio/blkio.throttle
loop=''

refuse_slow_device()		# reason
{
	echo "$(basename "$0"): no device with a rate: $1" >&2
	exit 1
}

# Has the server's directory on a new device of $1 MB, without a limit as yet.
make_slow_device()
{
	[ "$EUID" -eq 0 ] || refuse_slow_device 'only root can make one'
	[ -w "${throttle}.write_bps_device" ] || refuse_slow_device \
		"no file ${throttle}.write_bps_device (controller blkio of cgroup v1)"
	fallocate -l "$1M" "$dir/device.img" || refuse_slow_device "no room for $1 MB in $dir"
	mkfs.ext4 -q -F -m 0 "$dir/device.img"
	loop=$(losetup --direct-io=on --show -f "$dir/device.img") ||
		refuse_slow_device 'no loop device with direct I/O'
	mkdir "$dir/device"
	mount "$loop" "$dir/device" || refuse_slow_device "$loop cannot be mounted"
	data=$dir/device/data
}

# $1: MB per second; 0: as fast as it can
limit_slow_device()
{
	local kind

	for kind in read write; do
		echo "$(lsblk -d -n -o MAJ:MIN "$loop" | tr -d ' ') $(($1 * 1000000))" \
			> "${throttle}.${kind}_bps_device" ||
			refuse_slow_device "${throttle}.${kind}_bps_device refuses the limit"
	done
}

# Bytes ($1 MB) per second of dd with these options, in MB.
rate_of_dd()
{
	local megabytes=$1
	shift

	LC_ALL=C dd bs=1000KiB count=$((megabytes * 1000 / 1024)) "$@" 2>&1 | awk '/copied/ {
		for (i = 1; i < NF; i++) if ($i == "copied,") printf "%.0f", $1 / $(i + 1) / 1e6 }'
}

# Prints the rates of the device in two seconds.  ERROR if it is faster than $1 MB per second.
tell_slow_device()
{
	local file=$dir/device/rate written buffered read

	written=$(rate_of_dd $(($1 * 2)) if=/dev/zero of="$file" oflag=direct conv=fdatasync)
	buffered=$(rate_of_dd $(($1 * 2)) if=/dev/zero of="$file" conv=notrunc,fdatasync)
	read=$(rate_of_dd $(($1 * 2)) if="$file" of=/dev/null iflag=direct)
	rm "$file"
	echo "# a device of $1 MB/s: direct writes $written, buffered $buffered, direct reads $read"
	[ $((written * 5)) -le $(($1 * 6)) ] && [ $((buffered * 5)) -le $(($1 * 6)) ] &&
		[ $((read * 5)) -le $(($1 * 6)) ] || refuse_slow_device 'the limit is not kept'
}

end_slow_device()
{
	[ -n "$loop" ] || return 0
	limit_slow_device 0
	umount "$dir/device" || umount -l "$dir/device"
	losetup -d "$loop"
}
