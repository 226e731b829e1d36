# test/run docs [document ...]: runs the commands of the documents (README.md, those of examples/
# and docs/ by default), in their order, each document in a server of its own, and compares
# docs/reference.md with the catalogs.
#
# Blocks marked sh, sql or python are run, in a copy of the source tree; each must succeed.  "/srv"
# is a temporary directory.  Comments of a document say what is to be seen, and do what a reader
# does not have to:
#
#	<!-- prints: LINE -->	the last block has printed this line
#	<!-- prints nothing -->
#	<!-- test, lines of shell, -->
#	<!-- not run: REASON -->	the next block is not run
#
# Blocks and comments may be indented, in a list.  A block that is not run, without a reason, is a
# failure, unless it is marked text.  So is a block that calls a command of the system: such
# commands are refused.
#
# README.md and what operators read is run twice: $PGCONF is the data directory, and then a
# directory as Debian's pg_createcluster makes it.  $PGLOG is the server's log: a document that
# restarts the server leaves it where it was.  Seen to fail with "-l /srv/log" in the guide.

documents=(README.md examples/README.md examples/streaming/README.md CONTRIBUTING.md SECURITY.md
	docs/reference.md docs/compression.md docs/drivers.md docs/internals.md docs/development.md
	docs/operations.md docs/upgrade.md docs/backup.md docs/citus.md docs/mount.md docs/packages.md
	docs/kubernetes.md docs/languages.md docs/coming_from.md docs/cdc.md docs/orms.md
	docs/release.md
	monitoring/README.md)
in_both_layouts=(README.md docs/operations.md docs/backup.md)

test_prepare()
{
	mkdir "$work/tree"
	test_pack_sources "$checkout" | tar -C "$work/tree" -x --no-same-owner
}

# Commands that change more than the temporary directory.
system_commands=(sudo su runuser apt apt-get dpkg systemctl service chroot mount umount
	pg_createcluster pg_ctlcluster pg_dropcluster pg_renamecluster pg_upgradecluster)

export BLOBEXT_TEST_CONFIG="${BLOBEXT_TEST_CONFIG:-}
max_wal_senders = 5
wal_level = replica"
test_enter "$@"
[ $# -eq 0 ] || documents=("$@")
for document in "${documents[@]}"; do
	[ -f "tree/$document" ] || { echo "no document \"$document\""; exit 2; }
done

refuse_system_commands()
{
	local command

	mkdir refused
	for command in "${system_commands[@]}"; do
		printf '%s\n' '#!/bin/sh' 'echo "a document must not call $(basename "$0")" >&2' 'exit 1' \
			> "refused/$command"
	done
	chmod +x refused/*
	# Programs of the examples need psycopg.
	ln -s "$(command -v "$python")" refused/python3
	PATH=$PWD/refused:$PATH
}

# Blocks of a document as files: number.line.kind; a block that begins in line 0 is none.
cut_into_blocks()
{
	mkdir blocks
	awk -v directory=blocks -v srv="$PWD/srv" '
		function start(kind) {
			file = sprintf("%s/%03d.%d.%s", directory, ++count, NR, kind)
			printf "" > file
		}
		/^ +(```|<!-- |-->$)/ { sub(/^ +/, "") }	# in a list
		file == "" && /^```./ {
			kind = substr($0, 4)
			known = kind ~ /^(sh|sql|python)$/
			start(reason || kind == "text" ? "skip" : known ? kind : "unknown")
			reason = 0
			next
		}
		file == "" && /^```$/ { start(reason ? "skip" : "unknown"); reason = 0; next }
		file == "" && /^<!-- test$/ { start("test"); next }
		file == "" && /^<!-- prints/ { start("prints"); print > file; close(file); file = ""; next }
		file == "" && /^<!-- not run: .+ -->$/ { reason = 1; next }
		/^```$/ || /^-->$/ { if (file != "") close(file); file = ""; next }
		file != "" { gsub("/srv", srv); print > file; next }
		/./ && reason { start("unknown"); close(file); file = ""; reason = 0 }
	' "$1"
}

fail()
{
	echo "not ok - $document, line $line: $1"
	sed 's/^/#   /' "$block" out
	failures=$((failures + 1))
}

# The output of the last block, against the comment that is in the file $block.
compare_output()
{
	local expected

	expected=$(sed -n 's/^<!-- prints: \(.*\) -->$/\1/p' "$block")
	if [ -z "$expected" ]; then
		[ ! -s out ] || fail 'something was printed'
	elif ! grep -qxF -e "$expected" out; then
		fail 'another output'
	fi
}

run_block()
{
	local command status=0

	line=${block#*.}
	line=${line%.*}
	case $block in
		*.sql) command=(psql -d demo -f "../$block") ;;
		*.sh | *.test) command=(bash -eu -o pipefail "../$block") ;;
		*.python) command=("$python" -B "../$block") ;;
		*.prints) compare_output; return ;;
		*.unknown) : > out; fail 'neither run, nor is there a reason before it'; return ;;
		*.skip) return ;;
	esac
	(cd tree && "${command[@]}") > out 2>&1 || status=$?
	if [ "$status" -ne 0 ]; then
		fail "exit status $status"
	elif ! [[ $block == *.test ]]; then
		passed=$((passed + 1))
	fi
}

# Whether the running server, which commands have restarted, writes to the log it began with.
server_keeps_log()
{
	local pid

	read -r pid < "$server_data/postmaster.pid" || return
	[ "$(readlink "/proc/$pid/fd/2")" = "$work/server.log" ]
}

# Where Debian's layout cannot be had, that is a failure, unless BLOBEXT_TEST_MAY_SKIP says
# otherwise.
choose_debian_layout()
{
	local version

	version=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*$/\1/')
	if [ -x /usr/bin/pg_createcluster ] &&
		[ -x "/usr/lib/postgresql/$version/bin/initdb" ]; then
		server_config=$work/etc/$version/main
		return
	fi
	if [ -n "${BLOBEXT_TEST_MAY_SKIP:-}" ]; then
		echo "# left out: $document in Debian's layout (no postgresql-common)"
		exit 0
	fi
	echo "not ok - $document in Debian's layout: the package postgresql-common is missing"
	exit 1
}

# $1: document, $2: name of a directory for it, $3: layout of the cluster.  In a subshell, whose end
# stops the server.
run_document()
{
	local failures=0 passed=0 block line

	document=$1
	mkdir -p "$work/$2/srv"
	cp -R "$work/tree" "$work/$2/tree"
	cp -RP "$work/refused" "$work/$2/refused"
	work=$work/$2
	cd "$work"
	cut_into_blocks "tree/$document"
	[ "${3:-}" != debian ] || choose_debian_layout
	if ls blocks | grep -qE '\.(sh|sql|python)$'; then
		test_start_server data
		export PGDATA=$server_data PGCONF=${server_config:-$server_data} PGLOG=$work/server.log
		export PATH="$work/refused:$bindir:$PATH" PSQLRC=$work/.psqlrc
		printf '%s\n' '\set QUIET 1' '\pset format unaligned' '\pset tuples_only on' \
			'\set ON_ERROR_STOP 1' > .psqlrc
	fi
	for block in blocks/*; do
		[ ! -e "$block" ] || run_block
	done
	if [ -n "${server_data:-}" ] && ! server_keeps_log; then
		echo "not ok - $document: the server writes to its log in the end"
		failures=$((failures + 1))
	fi
	if [ "$document" = docs/reference.md ]; then
		"$python" -B "$test_dir/docs/compare_reference.py" tree || failures=$((failures + 1))
	fi
	! grep -hE 'PANIC|TRAP:' srv/*log srv/*.log 2> /dev/null || failures=$((failures + 1))
	echo "# $document${3:+, layout of $3}: $passed blocks of commands"
	case $document in
		README.md | docs/operations.md | docs/reference.md | docs/backup.md)
			if [ "$passed" -lt 7 ]; then
				echo "not ok - $document: too few"
				failures=$((failures + 1))
			fi
			;;
	esac
	exit $((failures > 0))
}

refuse_system_commands
status=0
number=0
for document in "${documents[@]}"; do
	if [ "$document" = docs/backup.md ] && ! have_backup_tools; then
		if [ -n "${BLOBEXT_TEST_MAY_SKIP:-}" ]; then
			echo "# left out: docs/backup.md (packages pgbackrest, barman, rsync)"
			continue
		fi
		echo "not ok - docs/backup.md: a package is missing (pgbackrest, barman, rsync)"
		status=1
		continue
	fi
	number=$((number + 1))
	(run_document "$document" $number) || status=1
	[[ " ${in_both_layouts[*]} " != *" $document "* ]] ||
		(run_document "$document" "$number.debian" debian) || status=1
done
exit $status
