# bench/lib/figures.awk: reads the lines of single rounds, and answers questions about them: level,
# label, way, bytes, clients, contender, round, operations, seconds (or bytes, or a count), CPU
# seconds of the backends, median and 99th percentile of the seconds of a transaction.
#
# A cell is all but contender and round; figures are medians of its rounds.

BEGIN {
	FS = OFS = "\t"
	kb = 1024
	mb = 1048576
}

# The line that names the run, for bench/plot.
/^#/ {
	next
}

{
	cell = cell_name($1, $2, $3, $4, $5)
	if (!(cell in seen)) {
		seen[cell] = 1
		cells[++cell_count] = cell
	}
	if ($2 ~ /^(device|wal|allocated|.*-device)$/)
		add(cell, $6, $9 / ($8 * $4))	# bytes for each byte of payload
	else if ($2 ~ /-(each|space)$/)
		add(cell, $6, $9 / $8)			# bytes for each operation, or for each live byte
	else if ($2 == "scan-hits")
		add(cell, $6, $8 ? 100 * $9 / $8 : 0)	# percent
	else if ($2 == "checkpoints" || $2 == "forced")
		add(cell, $6, $9)
	else
		add(cell, $6, $8 / $9)			# rates
	if (NF >= 10)
		add(cell, $6 SUBSEP "cpu", $10 / $8 * 1e6)
	if (NF >= 12) {
		add(cell, $6 SUBSEP "p50", $11 * 1e6)
		add(cell, $6 SUBSEP "p99", $12 * 1e6)
	}
}

function cell_name(level, label, way, bytes, clients) {
	return level SUBSEP label SUBSEP way SUBSEP bytes SUBSEP clients
}

function add(cell, what, value,    key) {
	key = cell SUBSEP what
	figures[key, ++count[key]] = value
}

function sorted(key, sort,    i, j, n, swap) {
	n = key in count ? count[key] : 0
	for (i = 1; i <= n; i++) {
		sort[i] = figures[key, i]
		for (j = i; j > 1 && sort[j - 1] > sort[j]; j--) {
			swap = sort[j]; sort[j] = sort[j - 1]; sort[j - 1] = swap
		}
	}
	return n
}

# Of a contender, or of one of its further figures: contender SUBSEP "p99".
function median(cell, what,    key, sort, n) {
	key = cell SUBSEP what
	n = sorted(key, sort)
	if (n == 0)
		return 0
	return n % 2 ? sort[(n + 1) / 2] : (sort[n / 2] + sort[n / 2 + 1]) / 2
}

function least(cell, what,    sort) {
	return sorted(cell SUBSEP what, sort) ? sort[1] : 0
}

function most(cell, what,    sort, n) {
	n = sorted(cell SUBSEP what, sort)
	return n ? sort[n] : 0
}

function has(cell, what) {
	return (cell SUBSEP what) in count
}

# Percentage of the median within which half of the rounds lie.
function spread(cell, what,    sort, n, middle) {
	n = sorted(cell SUBSEP what, sort)
	middle = median(cell, what)
	if (n < 3 || middle == 0)
		return ""
	return sprintf("%.0f%%", 50 * (sort[int(n * 3 / 4 + 0.5)] - sort[int(n / 4 + 0.99)]) / middle)
}

function size_name(bytes) {
	if (bytes >= kb * mb && bytes % (kb * mb) == 0)
		return bytes / (kb * mb) " GB"
	if (bytes >= mb && bytes % mb == 0)
		return bytes / mb " MB"
	if (bytes >= kb && bytes % kb == 0)
		return bytes / kb " KB"
	return bytes " B"
}

function mb_per_s(value, bytes) {
	return sprintf("%.0f MB/s", value * bytes / 1e6)
}

# Values of unknown size, 0, are counted.
function rate(value, bytes) {
	if (value == 0)
		return "-"
	return bytes >= mb ? mb_per_s(value, bytes) : sprintf("%.0f/s", value)
}

function ratio(a, b) {
	return (a == 0 || b == 0) ? "-" : sprintf("%.2f", a / b)
}
