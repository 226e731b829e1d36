# bench/report.awk: tables and targets from the lines of bench/load.c, each after its wal_level:
# level, operation, way, bytes, clients, contender, round, operations, seconds (or bytes), CPU
# seconds of the backends.

BEGIN { FS = OFS = "\t" }

{
	key = $1 SUBSEP $2 SUBSEP $3 SUBSEP $4 SUBSEP $5 SUBSEP $6
	# Rates; for device and wal: bytes for each byte of payload.
	value = ($2 == "device" || $2 == "wal") ? $9 / ($8 * $4) : $8 / $9
	figures[key, ++count[key]] = value
	if (NF >= 10) {
		key = key SUBSEP "cpu"
		figures[key, ++count[key]] = $10 / $8 * 1e6
	}
	if (!((cell = $1 SUBSEP $2 SUBSEP $3 SUBSEP $4 SUBSEP $5) in seen)) {
		seen[cell] = 1
		cells[++cell_count] = cell
	}
}

function sorted(key, sort,    i, j, n, swap) {
	n = count[key]
	for (i = 1; i <= n; i++) {
		sort[i] = figures[key, i]
		for (j = i; j > 1 && sort[j - 1] > sort[j]; j--) {
			swap = sort[j]; sort[j] = sort[j - 1]; sort[j - 1] = swap
		}
	}
	return n
}

function median(key,    sort, n) {
	n = sorted(key, sort)
	if (n == 0)
		return 0
	return n % 2 ? sort[(n + 1) / 2] : (sort[n / 2] + sort[n / 2 + 1]) / 2
}

function least(key,    sort) {
	return sorted(key, sort) ? sort[1] : 0
}

# Percentage of the median within which half of the rounds lie.
function spread(key,    sort, n, middle) {
	n = sorted(key, sort)
	middle = median(key)
	if (n < 3 || middle == 0)
		return ""
	return sprintf("%.0f%%", 50 * (sort[int(n * 3 / 4 + 0.5)] - sort[int(n / 4 + 0.99)]) / middle)
}

function size_name(bytes) {
	if (bytes >= 1048576 && bytes % 1048576 == 0)
		return bytes / 1048576 " MB"
	if (bytes >= 1024 && bytes % 1024 == 0)
		return bytes / 1024 " KB"
	return bytes " B"
}

function rate(value, bytes) {
	if (value == 0)
		return "-"
	return bytes >= 1048576 ? sprintf("%.0f MB/s", value * bytes / 1e6) : sprintf("%.0f/s", value)
}

function ratio(a, b) {
	return (a == 0 || b == 0) ? "-" : sprintf("%.2f", a / b)
}

function print_rates(operation, level, title,    i, part, cell, blob, other, file, header) {
	for (i = 1; i <= cell_count; i++) {
		split(cells[i], part, SUBSEP)
		if (part[2] != operation || part[1] != level)
			continue
		if (!header++) {
			print title
			print ""
			printf("  %-7s %-7s %7s %19s %19s %19s %9s %9s %9s %9s %12s\n", "size", "way",
				"clients", "blobstate", "bytea", "file", "to bytea", "to file", "CPU us",
				"CPU bytea", "receive only")
		}
		cell = cells[i]
		blob = median(cell SUBSEP "blobstate")
		other = median(cell SUBSEP "bytea")
		file = median(cell SUBSEP "file")
		printf("  %-7s %-7s %7s %12s %6s %12s %6s %12s %6s %9s %9s %9.0f %9.0f %12s\n",
			size_name(part[4]), part[3], part[5],
			rate(blob, part[4]), spread(cell SUBSEP "blobstate"),
			rate(other, part[4]), spread(cell SUBSEP "bytea"),
			rate(file, part[4]), spread(cell SUBSEP "file"),
			ratio(blob, other), ratio(blob, file),
			median(cell SUBSEP "blobstate" SUBSEP "cpu"), median(cell SUBSEP "bytea" SUBSEP "cpu"),
			rate(median(cell SUBSEP "receive"), part[4]))
	}
	if (header)
		print ""
}

function print_bytes(level,    i, part, device, wal, header) {
	for (i = 1; i <= cell_count; i++) {
		split(cells[i], part, SUBSEP)
		if (part[2] != "device" || part[1] != level)
			continue
		if (!header++) {
			print "Bytes written for each byte of payload, wal_level = " level \
				" (device: the round with the least, since others write there too)"
			print ""
			printf("  %-7s %33s %33s\n", "", "to the device", "WAL")
			printf("  %-7s %11s %10s %10s %11s %10s\n", "size", "blobstate", "bytea", "file",
				"blobstate", "bytea")
		}
		device = cells[i]
		wal = device
		sub(SUBSEP "device" SUBSEP, SUBSEP "wal" SUBSEP, wal)
		printf("  %-7s %11.3f %10.3f %10.3f %11.5f %10.5f\n", size_name(part[4]),
			least(device SUBSEP "blobstate"), least(device SUBSEP "bytea"),
			least(device SUBSEP "file"), median(wal SUBSEP "blobstate"),
			median(wal SUBSEP "bytea"))
	}
	if (header)
		print ""
}

function print_floor(    i, part, header) {
	for (i = 1; i <= cell_count; i++) {
		split(cells[i], part, SUBSEP)
		if (part[2] != "floor")
			continue
		if (!header++) {
			print "Floor, 1 process, io_uring and O_DIRECT; loop: SHA-256 + write + fdatasync +" \
				" 8 KB log + fdatasync; read: of what is in no cache"
			print ""
		}
		printf("  %-7s %-5s %10.0f/s %12s %6s\n", size_name(part[4]), part[3],
			median(cells[i] SUBSEP "floor"),
			sprintf("%.0f MB/s", median(cells[i] SUBSEP "floor") * part[4] / 1e6),
			spread(cells[i] SUBSEP "floor"))
	}
	if (header)
		print ""
}

# ---- targets ----

function target_line(name, wanted, reached, is_reached) {
	printf("  %-58s %10s %10s   %s\n", name, wanted, reached, is_reached ? "yes" : "NO")
}

function target(name, operation, level, way, bytes, wanted,    cell, blob, other) {
	cell = level SUBSEP operation SUBSEP way SUBSEP bytes SUBSEP 1
	blob = median(cell SUBSEP "blobstate")
	other = median(cell SUBSEP "bytea")
	if (blob == 0 || other == 0)
		return
	target_line(name, sprintf("%.2f", wanted), sprintf("%.2f", blob / other),
		blob / other >= wanted)
}

function print_targets(    kb, mb, key, size, sizes, i, value) {
	kb = 1024
	mb = 1048576
	print "Targets, 1 client, blobstate against bytea"
	print ""
	printf("  %-58s %10s %10s   %s\n", "", "target", "reached", "")
	target("store 10 MB inside the server, minimal", "store", "minimal", "server", 10 * mb, 3.5)
	target("store 10 MB over libpq, minimal", "store", "minimal", "libpq", 10 * mb, 2.3)
	target("store 1 MB over libpq, minimal", "store", "minimal", "libpq", mb, 2)
	target("store 100 KB over libpq, minimal", "store", "minimal", "libpq", 100 * kb, 1.2)
	target("store 10 MB over libpq, replica", "store", "replica", "libpq", 10 * mb, 1.5)
	target("store 1 MB over libpq, replica", "store", "replica", "libpq", mb, 1.3)
	target("store 100 KB over libpq, replica", "store", "replica", "libpq", 100 * kb, 1)
	target("read 10 MB cold over libpq", "cold", "minimal", "libpq", 10 * mb, 2)
	target("read 10 MB cached over libpq", "cached", "minimal", "libpq", 10 * mb, 1.1)
	target("read 10 MB cached inside the server", "cached", "minimal", "server", 10 * mb, 1.3)
	target("store 1 KB over libpq, minimal", "store", "minimal", "libpq", kb, 0.95)
	target("store 1 KB inside the server, minimal", "store", "minimal", "server", kb, 0.95)
	target("read 1 KB cached over libpq", "cached", "minimal", "libpq", kb, 0.95)
	target("read 1 KB cached inside the server", "cached", "minimal", "server", kb, 0.95)
	for (i = split(mb " " 10 * mb " " 100 * mb, sizes, " "); i > 0; i--) {
		size = sizes[i]
		value = least("minimal" SUBSEP "device" SUBSEP "libpq" SUBSEP size SUBSEP 1 SUBSEP \
			"blobstate")
		if (value > 0)
			target_line("bytes to the device per byte of payload, " size_name(size) ", minimal",
				"<= 1.05", sprintf("%.3f", value), value <= 1.05)
	}
	value = median("minimal" SUBSEP "wal" SUBSEP "libpq" SUBSEP 10 * mb SUBSEP 1 SUBSEP "blobstate")
	if (value > 0)
		target_line("WAL bytes of a stored 10 MB value, minimal", "<= 8192",
			sprintf("%.0f", value * 10 * mb), value * 10 * mb <= 8192)
	print ""
}

END {
	print "Rates are medians of rounds; the percentage is how far half of the rounds lie from them."
	print "CPU us: time of the server process on a CPU for each value; jumps less than rates do."
	print ""
	print_floor()
	print_rates("store", "minimal",
		"Store, durable, one commit for each value, wal_level = minimal")
	print_rates("store", "replica",
		"Store, durable, one commit for each value, wal_level = replica")
	print_rates("cached", "minimal", "Read, cached")
	print_rates("cold", "minimal", "Read, cold: first read after a restart, caches dropped")
	print_bytes("minimal")
	print_bytes("replica")
	print_targets()
}
