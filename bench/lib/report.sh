# bench/lib/report.sh: part of bench/run: the report, with the machine and its settings.

describe()
{
	local library

	echo "commit     $(commit_name)"
	library=$("$PG_CONFIG" --pkglibdir)/blobext.so
	echo "library    $(sha256sum < "$library" | cut -c 1-16) (SHA-256)"
	echo "server     $("$PG_CONFIG" --version), $(uname -sr), $(nproc) CPUs," \
		"$(awk '/^MemTotal/ { print int($2 / 1048576) }' /proc/meminfo) GB," \
		"$(stat -f -c %T "$work") on $(df --output=source "$work" | tail -n 1)"
	! has_contender innodb || echo "innodb     $(mariadbd --version | sed 's/^[^ ]* *//')"
	! has_contender sqlite || echo "sqlite     $(echo SQLITE_VERSION |
		cc -include sqlite3.h -E - | tail -n 1)"
	echo "date       $(date -u '+%F %T') UTC, $rounds rounds"
	echo "memory     $held"
	echo "cold       ${is_dropped}, server restarted"
	echo "settings   $(sed -n '/^listen_addresses/,$p' "$work/data/postgresql.conf" |
		grep -vE 'listen_addresses|unix_socket|^port|^wal_level|^$' | paste -sd, | sed 's/,/, /g')"
	echo "           MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2000000000 (server and clients);" \
		"other settings are the defaults"
	echo
}

print_tables()		# file of single rounds
{
	awk -f "$here/lib/figures.awk" -f "$here/lib/report.awk" -f "$here/lib/targets.awk" "$1"
}

report()
{
	describe
	print_tables "$raw"
}
