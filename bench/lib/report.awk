# bench/lib/report.awk: tables, from figures.awk.

# One table of rates for each label and level; ratios are to bytea.  Operations that do not move the
# values are counted, whatever the size.
function print_rates(label, level, title, is_count,    i, j, part, cell, base, header, name, unit) {
	for (i = 1; i <= cell_count; i++) {
		cell = cells[i]
		split(cell, part, SUBSEP)
		if (part[2] != label || part[1] != level)
			continue
		if (!header++) {
			print title ", wal_level = " level
			print ""
			printf("  %-8s %-7s %7s %12s %5s %12s %5s ", "size", "way", "clients", "bytea", "",
				"blobstate", "")
			for (j = 1; j <= name_count; j++)
				printf(" %9s", names[j])
			printf(" %9s %9s\n", "CPU us", "CPU bytea")
		}
		base = median(cell, "bytea")
		unit = is_count ? 0 : part[4]
		printf("  %-8s %-7s %7s %12s %5s %12s %5s ", size_name(part[4]), part[3], part[5],
			rate(base, unit), spread(cell, "bytea"),
			rate(median(cell, "blobstate"), unit), spread(cell, "blobstate"))
		for (j = 1; j <= name_count; j++)
			printf(" %9s", ratio(median(cell, names[j]), base))
		printf(" %9.0f %9.0f\n", median(cell, "blobstate" SUBSEP "cpu"),
			median(cell, "bytea" SUBSEP "cpu"))
	}
	if (header)
		print ""
}

# Times of single small operations.
function print_times(label, level, title,    i, j, part, cell, header) {
	for (i = 1; i <= cell_count; i++) {
		cell = cells[i]
		split(cell, part, SUBSEP)
		if (part[2] != label || part[1] != level)
			continue
		if (!header++) {
			print title ": microseconds, median and 99th percentile, wal_level = " level
			print ""
			printf("  %-8s", "size")
			for (j = 0; j <= name_count; j++)
				printf(" %19s", j ? names[j] : "bytea")
			print ""
		}
		printf("  %-8s", size_name(part[4]))
		for (j = 0; j <= name_count; j++)
			printf(" %9.0f %9.0f", median(cell, (j ? names[j] : "bytea") SUBSEP "p50"),
				median(cell, (j ? names[j] : "bytea") SUBSEP "p99"))
		print ""
	}
	if (header)
		print ""
}

function figure(cell, name, which) {
	return which == "least" ? least(cell, name) : which == "most" ? most(cell, name) : \
		median(cell, name)
}

# One line for each size, one column for each contender.
function print_figures(label, level, title, format, which,
		i, j, part, cell, name, header, value) {
	for (i = 1; i <= cell_count; i++) {
		cell = cells[i]
		split(cell, part, SUBSEP)
		if (part[2] != label || part[1] != level)
			continue
		if (!header++) {
			print title ", wal_level = " level
			print ""
			printf("  %-8s %7s", "size", "clients")
			for (j = 0; j <= name_count; j++)
				printf(" %9s", j ? names[j] : "bytea")
			print ""
		}
		printf("  %-8s %7s", size_name(part[4]), part[5])
		for (j = 0; j <= name_count; j++) {
			name = j ? names[j] : "bytea"
			value = figure(cell, name, which)
			printf(" %9s", has(cell, name) ? sprintf(format, value) : "-")
		}
		print ""
	}
	if (header)
		print ""
}

function print_replay(    i, part, cell, stores, header, j, name) {
	for (i = 1; i <= cell_count; i++) {
		cell = cells[i]
		split(cell, part, SUBSEP)
		if (part[2] != "replay")
			continue
		if (!header++) {
			print "Replay on a standby against stores of 4 clients, wal_level = replica"
			print ""
			printf("  %-8s %-10s %12s %12s %9s\n", "size", "", "stores", "replay", "ratio")
		}
		stores = cell_name(part[1], "replay-store", part[3], part[4], part[5])
		for (j = 0; j <= 1; j++) {
			name = j ? "bytea" : "blobstate"
			printf("  %-8s %-10s %12s %12s %9s\n", size_name(part[4]), name,
				mb_per_s(median(stores, name), part[4]), mb_per_s(median(cell, name), part[4]),
				ratio(median(cell, name), median(stores, name)))
		}
	}
	if (header)
		print ""
}

function print_pgbench(    i, part, cell, header) {
	for (i = 1; i <= cell_count; i++) {
		cell = cells[i]
		split(cell, part, SUBSEP)
		if (part[2] != "pgbench")
			continue
		if (!header++) {
			print "pgbench without any blob, 1 client: transactions per second"
			print ""
			printf("  %-10s %18s %18s %9s\n", "", "preloaded", "without", "ratio")
		}
		printf("  %-10s %12.0f %5s %12.0f %5s %9s\n", part[3], median(cell, "preloaded"),
			spread(cell, "preloaded"), median(cell, "without"), spread(cell, "without"),
			sprintf("%.3f", median(cell, "preloaded") / median(cell, "without")))
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
		printf("  %-8s %-5s %10.0f/s %12s %6s\n", size_name(part[4]), part[3],
			median(cells[i], "floor"), mb_per_s(median(cells[i], "floor"), part[4]),
			spread(cells[i], "floor"))
	}
	if (header)
		print ""
}

# Rates of changes are counts per second, whatever the size of the value.
function print_changes(level,    labels, kinds, i, j) {
	print_rates("mix", level, "EOS's mix on a value of 10 MB, by the mean of the pieces")
	print_figures("mix-done-each", level, "Operations of a run of the mix", "%.0f", "median")
	print_figures("mix-disk-space", level, "Disk space over live bytes, at most", "%.2f", "most")
	print_figures("mix-most-space", level, "Extents over live bytes, at most", "%.2f", "most")
	print_figures("mix-after-space", level, "Extents over live bytes, after VACUUM and a round",
		"%.3f", "median")
	print_figures("mix-anew-space", level, "Extents over live bytes, after blobext_defragment()",
		"%.3f", "median")
	print_figures("mix-scan", level, "Cold scans of it per second, after the mix", "%.1f",
		"median")
	print_figures("mix-scan-anew", level, "Cold scans of it per second, after blobext_defragment()",
		"%.1f", "median")
	print_figures("overwrite", level, "Overwrites of 4 kB per second, by the size of the value",
		"%.0f", "median")
	print_times("insert-first", level, "The first insertion of 100 bytes in the middle")
	print_times("insert", level, "Further insertions of 100 bytes in the middle")
	for (i = split("mix overwrite", labels, " "); i > 0; i--) {
		split("read written wal io-read io-written", kinds, " ")
		for (j = 1; j <= 5; j++)
			print_figures(labels[i] "-" kinds[j] "-each", level, "Bytes of each operation, row " \
				labels[i] ": " byte_kind(kinds[j]), "%.0f", "median")
	}
}

function byte_kind(kind) {
	return kind == "read" ? "from the device" : kind == "written" ? "to the device" : \
		kind == "wal" ? "of WAL" : kind == "io-read" ? "read by the library" : \
		"written by the library"
}

function print_level(level) {
	print_rates("store", level, "Store, one commit for each value")
	print_rates("empty", level, "Store into an empty table, one commit for each value")
	print_rates("bulk", level, "Bulk: 100 MB or 1,000 values in a transaction")
	print_rates("tree", level, "Source tree: files of 15 kB in the mean, 1,000 in a transaction")
	print_rates("wikipedia-store", level,
		"Articles of Wikipedia, 7,686 bytes in the mean, stored, a commit each")
	print_rates("wikipedia-cold", level, "Articles of Wikipedia, read, cold")
	print_figures("wikipedia-cold-device", level, "Bytes read for each byte, articles, cold",
		"%.2f", "median")
	print_rates("wikipedia-warm", level, "Articles of Wikipedia, read, warm")
	print_rates("replace", level, "Replace at random until storage age 8")
	print_figures("allocated", level, "Allocated over live bytes, at most", "%.2f", "most")
	print_figures("checkpoints", level, "Requested checkpoints of a run", "%.0f", "median")
	print_figures("forced", level, "Of these not because of the WAL's size", "%.0f", "median")
	print_rates("mixed", level, "Read and replace in equal parts")
	print_rates("small-store", level, "Small stores")
	print_times("small-store", level, "Small stores")
	print_rates("small-read", level, "Small reads")
	print_times("small-read", level, "Small reads")
	print_rates("fresh", level, "Read just stored")
	print_rates("append", level, "Append")
	print_rates("index-build", level, "Build of the content index (documents per second)")
	print_rates("index-cold", level, "Build of the content index after a restart")
	print_rates("look-up", level, "Look-up by content, just stored")
	print_rates("look-up-restart", level, "Look-up by content that was not read since a restart")
	print_rates("cached", level, "Read, cached")
	print_rates("cold", level, "Read, cold: first read after a restart, caches dropped")
	print_rates("metadata-size", level, "Sizes of ten values, by the size of the values", 1)
	print_rates("metadata-prefix", level, "Sizes and first 32 bytes of ten values", 1)
	print_rates("metadata-digest", level, "Sizes, first 32 bytes and digests of ten values", 1)
	print_rates("scan-cold", level, "Scan, cold: all values after a restart, caches dropped")
	print_figures("scan-cold-device", level, "Bytes read for each byte, cold scan", "%.2f",
		"median")
	print_rates("scan-warm", level, "Scan, warm")
	print_rates("random-cold", level, "Random reads of one value, cold")
	print_figures("random-cold-device", level, "Bytes read for each byte, random reads", "%.2f",
		"median")
	print_rates("random-warm", level, "Random reads of one value, warm")
	print_rates("dump-cold", level, "pg_dump, cold")
	print_figures("dump-cold-device", level, "Bytes read for each byte, pg_dump", "%.2f",
		"median")
	print_figures("scan-hits", level,
		"Hits of the second pass over 0.95 of the buffer, percent of chunks", "%.1f", "median")
	print_changes(level)
	print_figures("device", level,
		"Bytes to the device for each byte of payload, least of the rounds", "%.3f", "least")
	print_figures("wal", level, "Bytes of WAL for each byte of payload", "%.5f", "median")
}

END {
	name_count = split("blobstate deferred lo innodb sqlite file receive hash log behind direct " \
		"pread", names, " ")
	print "Rates are medians of rounds; the percentage is how far half of the rounds lie from them."
	print "The columns of contenders are ratios to bytea.  CPU us: time of the server process on a"
	print "CPU for each value, of blobstate and of bytea; it varies less than rates do."
	print ""
	print_floor()
	print_level("replica")
	print_level("minimal")
	print_replay()
	print_pgbench()
}
