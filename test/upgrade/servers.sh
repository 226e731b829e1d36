# test/upgrade/servers.sh: what the parts of suites/upgrade.sh share that run several servers:
# statements, servers a to e, and the configuration of the first one, which is older.

table="CREATE TABLE v (id serial PRIMARY KEY, digest text, b blobstate)"
store="INSERT INTO v (digest, b) SELECT encode(sha256(c), 'hex'), c
	FROM generate_series(1, 60) AS i, LATERAL (SELECT
		decode(repeat(md5((random() * i)::text), 1 + (i * i * 37) % 20000), 'hex')) AS s (c)"
intact="SELECT count(*) FROM v WHERE encode(sha256(b::bytea), 'hex') = digest"
churn="$store; UPDATE v SET b = blob_append(b, 'more') WHERE id % 5 = 0;
	UPDATE v SET digest = encode(sha256(b), 'hex') WHERE id % 5 = 0; DELETE FROM v WHERE id % 7 = 0"

# $1: data directory, $2: port, $3: programs
start()
{
	printf 'port = %s\n' "$2" >> "$work/$1/postgresql.conf"
	"$3/pg_ctl" -D "$work/$1" -l "$work/$1.log" -w start > /dev/null
}

stop()
{
	"$new_bindir/pg_ctl" -D "$work/$1" -m "${2:-fast}" -w stop > /dev/null
}

# A standby of the server at port $2, in directory $1.
make_standby()
{
	"$new_bindir/pg_basebackup" -D "$work/$1" -p "$2" -c fast -X stream -R
}

# All that the server at port $1 has written is replayed at port $2.
catch_up()
{
	local end=$(PGPORT=$1 sql 'SELECT pg_current_wal_lsn()') i

	for i in $(seq 600); do
		[ "$(PGPORT=$2 sql "SELECT pg_last_wal_replay_lsn() >= '$end'")" = t ] && return
		sleep 0.1
	done
	echo "# the server at port $2 does not come to $end"
	exit 1
}

# The WAL's end in the log of a standby that has stopped.
wait_for_end()
{
	local i

	for i in $(seq 300); do
		[ -e "$work/$1/postmaster.pid" ] || return 0
		sleep 0.1
	done
	return 1
}

# Deleted values are freed, and their space is given out again.
collect()
{
	PGPORT=$1 sql 'VACUUM v'
	check "the server at port $1 frees deleted values" \
		"$(PGPORT=$1 sql 'SELECT freed_blobs > 0 FROM blobext_gc()')" t
	PGPORT=$1 sql CHECKPOINT
}

same()
{
	check "$1" "$(PGPORT=$3 sql "$intact")" "$(PGPORT=$2 sql 'SELECT count(*) FROM v')"
}

# The servers of this part end with it.
stop_all()
{
	local status=$? directory

	for directory in a b c d d2 e; do
		[ ! -e "$work/$directory/postmaster.pid" ] || stop "$directory" immediate || true
	done
	[ $status -eq 0 ] || tail -n 15 "$work"/?.log
	exit $status
}
trap stop_all EXIT

export PGHOST=$work PGPORT=5790 PGUSER=postgres PGDATABASE=postgres
mkdir "$work/archive"
"$old_bindir/initdb" -D "$work/a" -U postgres -A trust -E UTF8 --no-locale --no-sync \
	> "$work/initdb.log"
printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" 'archive_mode = on' \
	"archive_command = 'cp %p $work/archive/%f'" "shared_preload_libraries = 'blobext'" \
	'wal_keep_size = 1GB' 'blobext.autogc = off' 'autovacuum = off' >> "$work/a/postgresql.conf"
