# bench/lib/targets.awk: the figures that blobext shall reach, from figures.awk.

function target_line(name, level, wanted, reached, is_reached) {
	if (!target_lines++) {
		print "Targets: rates over those of bytea, unless another contender or unit is named"
		print ""
		printf("  %-52s %-8s %9s %9s\n", "", "", "target", "reached")
	}
	printf("  %-52s %-8s %9s %9s   %s\n", name, level, wanted, reached, is_reached ? "yes" : "NO")
}

# A ratio of two contenders in one cell; nothing if one is missing.
function target(name, cell, level, contender, other, wanted,    a, b) {
	a = median(cell, contender)
	b = median(cell, other)
	if (a != 0 && b != 0 && wanted != "")
		target_line(name, level, sprintf("%.2f", wanted), sprintf("%.2f", a / b), a / b >= wanted)
}

# A label with a wanted ratio for each level; stores with the WAL on are compared with InnoDB, too.
function both(label, way, bytes, clients, replica, minimal,    name, level, cell) {
	for (level = 0; level <= 1; level++) {
		cell = cell_name(level ? "minimal" : "replica", label, way, bytes, clients)
		name = label " " size_name(bytes) (clients > 1 ? ", " clients " clients" : "") \
			(way == "server" ? ", inside the server" : "")
		target(name, cell, level ? "minimal" : "replica", "blobstate", "bytea",
			level ? minimal : replica)
		if (!level && label ~ /^(store|empty|bulk|tree|replace)$/ && way == "libpq")
			target(name ", to innodb", cell, "replica", "blobstate", "innodb", 1)
	}
}

# A figure that shall be no more than the wanted one.
function at_most(name, level, wanted, reached, format) {
	if (reached != "")
		target_line(name, level, "<= " sprintf(format, wanted), sprintf(format, reached),
			reached <= wanted)
}

function known(cell, what, value) {
	return has(cell, what) ? value : ""
}

function store_targets(    clients) {
	both("store", "libpq", 100 * kb, 1, 1.4, 1.6)
	both("store", "libpq", 256 * kb, 1, 2.6, 3.0)
	both("store", "libpq", mb, 1, 1.8, 2.4)
	both("store", "libpq", 10 * mb, 1, 2.1, 2.8)
	for (clients = 4; clients <= 16; clients *= 4) {
		both("store", "libpq", 100 * kb, clients, 1.6, 1.8)
		both("store", "libpq", 256 * kb, clients, 2.4, 2.8)
		both("store", "libpq", mb, clients, 2.4, 3.2)
		both("store", "libpq", 10 * mb, clients, 2.4, 3.3)
	}
	both("store", "server", 10 * mb, 1, "", 3.5)
	both("empty", "libpq", 100 * kb, 1, 1.4, 1.6)
	both("empty", "libpq", 256 * kb, 1, 2.6, 3.0)
	both("empty", "libpq", mb, 1, 1.8, 2.4)
	both("empty", "libpq", 10 * mb, 1, 2.1, 2.8)
	both("tree", "libpq", 15000, 1, 1.4, 1.8)
}

# The mean size is that of load/sizes.c.
function article_targets(    clients) {
	for (clients = 1; clients <= 16; clients *= 4) {
		both("wikipedia-store", "libpq", 7686, clients, 1.0, 1.0)
		both("wikipedia-cold", "libpq", 7686, clients, 1.0, 1.0)
		both("wikipedia-warm", "libpq", 7686, clients, 0.95, 0.95)
	}
}

# A digest that the row does not have costs the content.
function metadata_targets(    clients) {
	for (clients = 1; clients <= 16; clients *= 4) {
		both("metadata-size", "libpq", 100 * kb, clients, 0.95, 0.95)
		both("metadata-size", "libpq", 10 * mb, clients, 0.95, 0.95)
		both("metadata-prefix", "libpq", 100 * kb, clients, 1.0, 1.0)
		both("metadata-prefix", "libpq", 10 * mb, clients, 1.0, 1.0)
		both("metadata-digest", "libpq", 100 * kb, clients, 5, 5)
		both("metadata-digest", "libpq", 10 * mb, clients, 100, 100)
	}
}

function change_targets() {
	both("replace", "libpq", 256 * kb, 1, 1.8, 2.0)
	both("replace", "libpq", mb, 1, 2.0, 2.4)
	both("replace", "libpq", 10 * mb, 1, 2.0, 2.6)
	both("mixed", "libpq", 10 * kb, 1, 1.3, 1.3)
	both("mixed", "libpq", 100 * kb, 1, 1.5, 1.6)
	both("mixed", "libpq", mb, 1, 1.8, 2.2)
}

# Rates of two contenders, or of two sizes of one.  Sizes are words: mawk has no large integers.
function part_targets(    sizes, wanted, i, title, cell, first) {
	split("100 10240 102400", sizes, " ")
	split("3 3 2.5", wanted, " ")
	for (i = 1; i <= 3; i++) {
		cell = cell_name("replica", "mix", "libpq", sizes[i], 1)
		title = "mix " size_name(sizes[i]) ", deferred"
		target(title, cell, "replica", "deferred", "bytea", wanted[i])
		target(title ", to innodb", cell, "replica", "deferred", "innodb", 1)
		target(title ", to file", cell, "replica", "deferred", "file", 1)
		space_targets(sizes[i])
	}
	first = cell_name("replica", "overwrite", "libpq", "10485760", 1)
	for (i = split("10485760 1073741824 10737418240", sizes, " "); i > 0; i--)
		overwrite_targets(sizes[i], first)
	cell = cell_name("replica", "insert-first", "libpq", "10737418240", 1)
	at_most("insertion into 10 GB, deferred, ms", "replica", 20,
		known(cell, "deferred", median(cell, "deferred" SUBSEP "p50") / 1000), "%.1f")
}

function space_targets(piece,    i, name, cell, label, anew) {
	for (i = 0; i <= 1; i++) {
		name = i ? "blobstate" : "deferred"
		label = ", mix " size_name(piece) ", " name
		cell = cell_name("replica", "mix-after-space", "libpq", piece, 1)
		at_most("extents / live" label, "replica", 1.6, known(cell, name, median(cell, name)),
			"%.2f")
		cell = cell_name("replica", "mix-anew-space", "libpq", piece, 1)
		at_most("the same, written anew" label, "replica", 1.05,
			known(cell, name, median(cell, name)), "%.3f")
		cell = cell_name("replica", "mix-scan", "libpq", piece, 1)
		anew = median(cell_name("replica", "mix-scan-anew", "libpq", piece, 1), name)
		if (anew && has(cell, name))
			target_line("scan, to one written anew" label, "replica", "0.90",
				ratio(median(cell, name), anew), median(cell, name) / anew >= 0.9)
	}
}

function overwrite_targets(size, first,    cell, title, i, name) {
	cell = cell_name("replica", "overwrite", "libpq", size, 1)
	title = "overwrite in " size_name(size)
	target(title ", deferred, to lo_put", cell, "replica", "deferred", "lo", 0.5)
	if (has(cell, "deferred") && has(first, "deferred") && cell != first)
		at_most(title ", deferred, time to that in 10 MB", "replica", 1.5,
			median(first, "deferred") / median(cell, "deferred"), "%.2f")
	for (i = 0; i <= 1; i++) {
		name = i ? "blobstate" : "deferred"
		cell = cell_name("replica", "overwrite-written-each", "libpq", size, 1)
		at_most(title ", kB to the device, " name, "replica", 512,
			known(cell, name, median(cell, name) / kb), "%.0f")
	}
	cell = cell_name("replica", "overwrite-io-read-each", "libpq", size, 1)
	at_most(title ", kB read, deferred", "replica", 512,
		known(cell, "deferred", median(cell, "deferred") / kb), "%.0f")
}

function read_targets() {
	both("fresh", "server", 100 * kb, 1, 1.0, 1.0)
	both("fresh", "server", mb, 1, 1.5, 1.5)
	both("small-store", "libpq", kb, 1, 0.97, 0.97)
	both("small-read", "libpq", kb, 1, 0.97, 0.97)
	both("look-up", "libpq", 8000, 1, 1.0, 1.0)
	both("index-build", "server", 8000, 1, 2.0, 2.0)
	both("cold", "libpq", 10 * mb, 1, 2, 2)
	both("cached", "libpq", 10 * mb, 1, 1.1, 1.1)
	both("cached", "server", 10 * mb, 1, 1.3, 1.3)
	both("cached", "libpq", kb, 1, 0.95, 0.95)
	both("cached", "server", kb, 1, 0.95, 0.95)
}

# Ratios of times are at most 1.3 (cold scan), 1.2 (warm), 1.1 (random), 1.5 (dump).
function scan_targets(    sizes, i, level, cell) {
	both("scan-cold", "libpq", 1600, 1, 0.5, 0.5)
	for (i = split(4 * kb " " 8 * kb " " 16 * kb " " 64 * kb, sizes, " "); i > 0; i--)
		both("scan-cold", "libpq", sizes[i], 1, 0.77, 0.77)
	both("scan-cold", "libpq", 256 * kb, 1, 3.3, 3.3)
	for (i = split(1600 " " 4 * kb " " 8 * kb " " 16 * kb " " 64 * kb " " 256 * kb, sizes, " ");
		i > 0; i--) {
		both("scan-warm", "libpq", sizes[i], 1, 0.83, 0.83)
		both("random-cold", "libpq", sizes[i], 1, 0.91, 0.91)
		for (level = 0; level <= 1; level++) {
			cell = cell_name(level ? "minimal" : "replica", "scan-hits", "libpq", sizes[i], 1)
			if (has(cell, "blobstate"))
				target_line("hits of a second pass, percent, " size_name(sizes[i]),
					level ? "minimal" : "replica", "90",
					sprintf("%.1f", median(cell, "blobstate")), median(cell, "blobstate") >= 90)
		}
	}
	both("dump-cold", "libpq", 4 * kb, 1, 0.67, 0.67)
}

function other_targets(level,    cell, sizes, i, size, a, b) {
	for (i = split(256 * kb " " mb " " 10 * mb " " 100 * mb, sizes, " "); i > 0; i--) {
		size = sizes[i]
		cell = cell_name(level, "device", "libpq", size, 1)
		at_most("bytes to the device per byte, " size_name(size), level,
			level == "replica" ? 2.03 : 1.02, known(cell, "blobstate", least(cell, "blobstate")),
			"%.3f")
		cell = cell_name(level, "allocated", "libpq", size, 1)
		at_most("allocated / live, " size_name(size), level, level == "replica" ? 1.25 : 1.4,
			known(cell, "blobstate", most(cell, "blobstate")), "%.2f")
		cell = cell_name(level, "forced", "libpq", size, 1)
		if (level == "replica")
			at_most("forced checkpoints, replace " size_name(size), level, 0,
				known(cell, "blobstate", median(cell, "blobstate")), "%.0f")
	}
	cell = cell_name(level, "append", "libpq", 256 * kb, 1)
	target("append 256 KB, to lo_put", cell, level, "blobstate", "lo", 2)
	for (i = split("120 1024", sizes, " "); i > 0; i--) {
		cell = cell_name(level, "small-store", "libpq", sizes[i], 1)
		a = median(cell, "blobstate" SUBSEP "p99")
		b = median(cell, "bytea" SUBSEP "p99")
		if (a && b)
			at_most("p99 of stores of " size_name(sizes[i]) " over that of bytea", level, 1.2,
				a / b, "%.2f")
	}
	cell = cell_name(level, "wal", "libpq", 10 * mb, 1)
	if (level == "minimal" && has(cell, "blobstate"))
		at_most("WAL bytes of a stored 10 MB value", level, 8192,
			median(cell, "blobstate") * 10 * mb, "%.0f")
}

function cluster_targets(    i, part, stores) {
	for (i = 1; i <= cell_count; i++) {
		split(cells[i], part, SUBSEP)
		if (part[2] == "pgbench")
			target("pgbench, " part[3] ", to a server without the library", cells[i], part[1],
				"preloaded", "without", 0.99)
		if (part[2] != "replay" || !has(cells[i], "blobstate"))
			continue
		stores = cell_name(part[1], "replay-store", part[3], part[4], part[5])
		target_line("replay of " size_name(part[4]) ", to stores of 4 clients", part[1], "1.00",
			ratio(median(cells[i], "blobstate"), median(stores, "blobstate")),
			median(cells[i], "blobstate") >= median(stores, "blobstate"))
	}
}

END {
	store_targets()
	article_targets()
	change_targets()
	part_targets()
	read_targets()
	metadata_targets()
	scan_targets()
	other_targets("replica")
	other_targets("minimal")
	cluster_targets()
	if (target_lines)
		print ""
}
