# test/run drivers [all | driver ...] [-- options of conformance.py]: clients' drivers with plain
# bytes, in a server of their own: parameters and results without a cast, compared byte by byte
# (test/drivers/).  "pgbouncer" is psycopg 3 through that pooler, by transaction.  "orm_..." are
# ORMs, each in a database of its own, with the cases of test/drivers/orms/README.md.  "debezium"
# reads changes (docs/cdc.md).  "client_..." are the packages of clients/, driven by
# clients/conformance, with large values of 100 MB without arguments, else of 300 MB; "client_go --
# --large 2048" compares memory and rates with Python's, for minutes.
#
# Without arguments: those that Debian packages.  One that is missing is a failure, unless
# BLOBEXT_TEST_MAY_SKIP=1 is set; then its name is printed, with the package.  "all", by hand, also
# takes the others (their builds take half an hour on two processors), from the registries of Go,
# Java, npm, Python and Rust, with the tools go, mvn, npm, pip and cargo.  All that was not tried is
# named at the end.
#
# With BLOBEXT_TEST_CONFIG='blobext.client_type = blobstate' every driver fails, and every ORM of
# Python.

declare -A packages=([psycopg3]=python3-psycopg [psycopg3_binary]=python3-psycopg
	[psycopg2]=python3-psycopg2 [asyncpg]=python3-asyncpg [pg8000]=python3-pg8000
	[sqlalchemy]=python3-sqlalchemy [django]=python3-django [odbc]='odbc-postgresql python3-pyodbc'
	[pgjdbc]='libpostgresql-jdbc-java default-jdk-headless' [pgbouncer]='pgbouncer python3-psycopg'
	[orm_sqlalchemy]='python3-sqlalchemy python3-alembic python3-psycopg2'
	[orm_sqlmodel]='python3-sqlmodel python3-alembic python3-psycopg2'
	[orm_django]='python3-django python3-psycopg2' [orm_peewee]='python3-peewee python3-psycopg2'
	[orm_rails]='ruby-activerecord ruby-pg' [client_python]=python3-psycopg
	[client_java]='libpostgresql-jdbc-java default-jdk-headless')
# Of the others: the directory of test/drivers or clients, and what builds its programs.
declare -A tools=([lib_pq]=go [lib_pq_binary]=go [pgx]=go [pgx_sql]=go [node_postgres]=node
	[postgres_js]=node [tokio_postgres]=rust [sqlx]=rust [debezium]=debezium
	[client_go]=client_go [client_rust]=client_rust [client_node]=client_node)
declare -A builders=([go]=go [node]=npm [rust]=cargo [debezium]=mvn [orms/python]=pip
	[orms/node]=npm [orms/java]=mvn [orms/go]=go [orms/rust]=cargo
	[client_go]=go [client_rust]=cargo [client_node]=npm)
orms_of_python=(sqlalchemy sqlmodel django peewee tortoise)
orms_of_node=(prisma typeorm sequelize drizzle knex kysely)
orms_of_java=(hibernate spring_data jooq mybatis)
orms_of_go=(gorm bun ent sqlc)
orms_of_rust=(diesel sea_orm)
of_debian=(psycopg3 psycopg3_binary psycopg2 asyncpg pg8000 sqlalchemy django odbc pgjdbc
	pgbouncer orm_sqlalchemy orm_sqlmodel orm_django orm_peewee orm_rails client_python
	client_java)
of_registries=(lib_pq lib_pq_binary pgx pgx_sql node_postgres postgres_js tokio_postgres sqlx
	debezium client_go client_rust client_node)
for language in python node java go rust; do
	declare -n orms=orms_of_$language
	for orm in "${orms[@]}"; do
		# Those of Python are Debian's, too.
		[ $language != python ] || orm+=_pypi
		tools[orm_$orm]=orms/$language
		of_registries+=("orm_$orm")
	done
done
jdbc=/usr/share/java/postgresql.jar

drivers=()
conformance=()
for argument in "$@"; do
	[ "$argument" != -- ] || { conformance=("${@:${#drivers[@]}+2}"); break; }
	drivers+=("$argument")
done
case "${drivers[*]}" in
	'') drivers=("${of_debian[@]}") ;;
	all) drivers=("${of_debian[@]}" "${of_registries[@]}") ;;
esac
for driver in "${drivers[@]}"; do
	[ -n "${packages[$driver]:-}${tools[$driver]:-}" ] ||
		test_fail "no driver \"$driver\", there are: ${of_debian[*]} ${of_registries[*]}"
done

build_go()
{
	go get github.com/lib/pq github.com/jackc/pgx/v5 && go mod tidy && go build -o drivers .
}

build_node()
{
	npm install --silent --no-save pg pg-cursor postgres
}

build_rust()
{
	cargo build --quiet && mv target/debug/drivers . && rm -r target
}

build_debezium()
{
	cp "$checkout/examples/cdc/BlobstateConverter.java" . &&
		mvn -B -q dependency:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime &&
		javac -cp 'lib/*' -d classes ./*.java
}

# For the interpreter of the tests, whosever pip it is.
build_orms_python()
{
	pip --python "$python" install --quiet --target packages sqlalchemy alembic django sqlmodel \
		peewee tortoise-orm 'psycopg[binary]' psycopg2-binary asyncpg
}

# Without scripts: Prisma's fetch programs from elsewhere.
build_orms_node()
{
	npm install --silent --no-save --ignore-scripts pg typeorm reflect-metadata sequelize knex \
		kysely drizzle-orm drizzle-kit prisma @prisma/client @prisma/adapter-pg
}

build_orms_java()
{
	mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib && javac -cp 'lib/*' *.java
}

# ent and sqlc make sources of their own, from schemas.
build_orms_go()
(
	export CGO_ENABLED=0 GOFLAGS=-mod=mod
	go get entgo.io/ent github.com/sqlc-dev/sqlc gorm.io/gorm gorm.io/driver/postgres \
		github.com/uptrace/bun github.com/uptrace/bun/dialect/pgdialect github.com/jackc/pgx/v5 &&
		go run entgo.io/ent/cmd/ent generate ./ent/schema &&
		go run github.com/sqlc-dev/sqlc/cmd/sqlc generate && go mod tidy && go build -o orms .
)

build_orms_rust()
{
	cargo build --quiet && mv target/debug/orms . && rm -r target
}

build_client_go()
{
	go build -o adapter ./conformance
}

build_client_rust()
{
	cargo build --quiet --release --example conformance --target-dir target &&
		mv target/release/examples/conformance adapter && rm -r target
}

build_client_node()
{
	npm install --silent --no-save pg
}

# Builds the programs of a tool in $work/TOOL; as the caller, because the tool's caches are the
# caller's.
build()
{
	mkdir -p "$(dirname "$work/$1")"
	case $1 in
		client_*) cp -R "$checkout/clients/${1#client_}" "$work/$1" ;;
		*) cp -R "$checkout/test/drivers/$1" "$work/$1" ;;
	esac
	cd "$work/$1"
	"build_${1//\//_}" > "$work/build.log" 2>&1 || { tail -n 30 "$work/build.log"; exit 1; }
	cd "$work"
}

test_prepare()
{
	local driver copy built=' '

	# From a copy, because Python may write beside the source.
	cp -R "$checkout/clients" "$work"
	for copy in rust node java/src/main/resources/blobext; do
		cmp "$checkout/clients/go/statements.sql" "$checkout/clients/$copy/statements.sql" || exit 1
	done
	for driver in "${drivers[@]}"; do
		[ -n "${tools[$driver]:-}" ] && [[ $built != *" ${tools[$driver]} "* ]] || continue
		command -v "${builders[${tools[$driver]}]}" > /dev/null || continue
		build "${tools[$driver]}"
		built+="${tools[$driver]} "
	done
}

is_by_hand=${1:-}
test_enter "$@"

free_port()
{
	"$python" -c 'import socket
print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

# One connection to the server, which transactions of all clients share.
run_pgbouncer()
{
	local pooler pool_port status=0

	PATH=$PATH:/usr/sbin command -v pgbouncer > /dev/null || return 3
	pool_port=$(free_port)
	echo "\"$PGUSER\" \"\"" > pgbouncer.users
	cat > pgbouncer.ini <<-END
		[databases]
		* = host=127.0.0.1 port=$PGPORT
		[pgbouncer]
		listen_addr = 127.0.0.1
		listen_port = $pool_port
		unix_socket_dir =
		auth_type = trust
		auth_file = pgbouncer.users
		pool_mode = transaction
		default_pool_size = 1
	END
	PATH=$PATH:/usr/sbin pgbouncer pgbouncer.ini > pgbouncer.log 2>&1 &
	pooler=$!
	until PGPORT=$pool_port "$bindir/psql" -X -q -c 'SELECT' > /dev/null 2>&1; do
		kill -0 $pooler || { cat pgbouncer.log; return 1; }
		sleep 0.1
	done
	PGPORT=$pool_port "$python" -B "$test_dir/drivers/python_drivers.py" pgbouncer || status=$?
	kill $pooler
	return $status
}

# run_orm NAME COMMAND...: in a database of its own.  Each case must be passed, or left out with a
# reason; then the server must have the bytes, in a column that is still blobstate.
run_orm()
{
	local name=$1 case status=0
	shift

	"$bindir/psql" -X -q -c "CREATE DATABASE $name"
	"$bindir/psql" -X -q -d "$name" -c 'CREATE EXTENSION blobext'
	PGDATABASE=$name ORM_VALUES=$work/values "$@" > "$name.log" 2>&1 || status=$?
	if [ $status -ne 0 ]; then
		tail -n 30 "$name.log"
		return $status
	fi
	for case in migrate 'insert and read' NULL update = IN 'ORDER BY' 'count distinct' reflect; do
		if ! grep -qxF "ok - $case" "$name.log"; then
			grep "^left out - $case: " "$name.log" > left_out ||
				{ echo "not ok - $case was not tried"; return 1; }
			sed "s/^left out - /# $name, without /" left_out
		fi
	done
	status=$("$bindir/psql" -X -At -d "$name" -c "SELECT format_type(atttypid, atttypmod), counts.*
		FROM pg_attribute, (SELECT count(*), count(*) FILTER (WHERE content IS NULL AND id = 8),
			count(*) FILTER (WHERE content =
				pg_read_binary_file('$work/values/' || least(id, 7))) FROM document) counts
		WHERE attrelid = 'document'::regclass AND attname = 'content'")
	[ "$status" = 'blobstate|9|1|8' ] || { echo "not ok - the server has: $status"; return 1; }
}

run_orm_of_python()
{
	local name=${1%_pypi}

	PYTHONPATH=$work/clients/python/src${2:+:$2} run_orm "$1" "$python" -B -W ignore \
		"$test_dir/drivers/orms/python/$name.py"
}

# An adapter of clients/conformance.  All drivers run: large values of 300 MB.
run_client()
{
	local compared=() options=("${conformance[@]}")

	[ ${#options[@]} -gt 0 ] || [ -n "$is_by_hand" ] || options=(--megabytes 100)
	[[ " ${options[*]} " != *' --large '* ]] || [ "$1" = "$python" ] ||
		compared=(--compare "$python -B clients/python/conformance.py")
	PYTHONPATH=$work/clients/python/src "$python" -B clients/conformance/conformance.py \
		${ahead:+--ahead "$ahead"} "${options[@]}" "${compared[@]}" "$@"
}

# A driver that is not there ends with 3.
run_driver()
{
	case $1 in
		pgjdbc)
			command -v javac > /dev/null && [ -f $jdbc ] || return 3
			mkdir -p java
			javac -cp $jdbc -d java "$test_dir/drivers/java/Drivers.java" &&
				java -cp java:$jdbc Drivers
			;;
		node_postgres | postgres_js)
			[ -d node ] || return 3
			node node/drivers.js "$1"
			;;
		orm_*_pypi)
			[ -d orms/python ] || return 3
			run_orm_of_python "$1" "$work/orms/python/packages"
			;;
		orm_rails)
			command -v ruby > /dev/null || return 3
			run_orm "$1" ruby "$test_dir/drivers/orms/orm_rails.rb"
			;;
		orm_*)
			[ -n "${tools[$1]:-}" ] || { run_orm_of_python "$1"; return; }
			[ -d "${tools[$1]}" ] || return 3
			case ${tools[$1]} in
				*/node) run_orm "$1" node "orms/node/$1.js" ;;
				*/java) run_orm "$1" java -cp 'orms/java:orms/java/lib/*' Cases "${1#orm_}" ;;
				*) run_orm "$1" "${tools[$1]}/orms" "${1#orm_}" ;;
			esac
			;;
		lib_pq* | pgx* | tokio_postgres | sqlx)
			[ -d "${tools[$1]}" ] || return 3
			"${tools[$1]}/drivers" "$1"
			;;
		debezium)
			[ -d debezium ] || return 3
			java -cp 'debezium/classes:debezium/lib/*' Changes
			;;
		pgbouncer) run_pgbouncer ;;
		client_python)
			"$python" -c 'import psycopg' 2> /dev/null || return 3
			ahead=download run_client "$python" -B clients/python/conformance.py
			;;
		client_java)
			command -v javac > /dev/null && [ -f $jdbc ] || return 3
			mkdir -p client_java
			cp -R clients/java/src/main/resources/. client_java
			javac -cp $jdbc -d client_java clients/java/src/main/java/blobext/*.java \
				clients/java/Conformance.java &&
				MALLOC_ARENA_MAX=1 run_client java -Xmx12m -XX:+UseSerialGC \
					-XX:CompileThresholdScaling=5 -XX:MaxInlineLevel=2 -XX:FreqInlineSize=100 \
					-cp "$work/client_java:$jdbc" Conformance
			;;
		client_node)
			[ -d "$1" ] || return 3
			MALLOC_ARENA_MAX=1 run_client node --max-semi-space-size=1 "$work/$1/conformance.js"
			;;
		client_*)
			[ -d "$1" ] || return 3
			ahead=all run_client "$work/$1/adapter"
			;;
		*) "$python" -B -W ignore "$test_dir/drivers/python_drivers.py" "$1" ;;
	esac
}

# Some drivers know no sockets but those of TCP.
test_find_python
port=$(free_port)
test_start_server data "listen_addresses = '127.0.0.1'" "port = $port" "wal_level = logical"
export PGPORT=$port PGHOST=127.0.0.1
"$bindir/psql" -X -q -c 'CREATE EXTENSION blobext'
# In the order of bytea; ORMs store file N as the value N.
mkdir values
"$python" -c 'import random
values = [b"", bytes(range(256)), b"\\", b"\\134\\\\", b"\\x4142", b"a\\134b",
          b"\xff\xfe" + random.Random(1).randbytes(5_000_000)]
for number, value in enumerate(values, 1):
    with open(f"values/{number}", "wb") as file:
        file.write(value)'
failed=()
skipped=()
passed=0
for driver in "${drivers[@]}"; do
	echo "# $driver"
	status=0
	run_driver "$driver" || status=$?
	case $status in
		0) passed=$((passed + 1)) ;;
		3) skipped+=("$driver") ;;
		*) failed+=("$driver") ;;
	esac
done
for driver in "${skipped[@]}"; do
	needed=${packages[$driver]:+package ${packages[$driver]}}
	[ -n "$needed" ] || needed="program ${builders[${tools[$driver]}]}"
	if [ -n "${BLOBEXT_TEST_MAY_SKIP:-}" ]; then
		echo "# left out: $driver: missing on this machine ($needed)"
	else
		echo "$driver is missing on this machine ($needed); BLOBEXT_TEST_MAY_SKIP=1 leaves it out"
		failed+=("$driver")
	fi
done
[ $# -gt 0 ] || echo "# left out: ${of_registries[*]}: Debian has no packages of them;" \
	"by hand \"test/run drivers all\""
echo "# drivers: $passed passed, ${#failed[@]} failed: ${failed[*]:-none}"
[ ${#failed[@]} -eq 0 ]
