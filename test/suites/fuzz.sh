# test/run fuzz [--seed N] [--operations N] [--changes N] [--sessions N]: random operations on
# blobstate and bytea side by side (test/fuzz/oracle.py), and random changes of values by sessions
# beside each other and the collector (test/fuzz/changes.py), in a server of their own, whose
# settings depend on the seed.  --operations 0 and --changes 0 leave one of the two out.
#
# --large GIB, by hand: changes of one value of that size (test/fuzz/large.py), which take twice its
# space and some minutes.

test_enter "$@"

seed=$((RANDOM * 32768 + RANDOM))
declare -A numbers=([operations]=3000 [changes]=2000 [sessions]=2 [large]=0)
while [ $# -gt 0 ]; do
	name=${1%%=*}
	name=${name#--}
	[ "$name" = seed ] || [ -n "${numbers[$name]:-}" ] || test_fail "unknown option $1"
	case $1 in
		*=*) value=${1#*=} ;;
		*) value=${2:?}; shift ;;
	esac
	if [ "$name" = seed ]; then seed=$value; else numbers[$name]=$value; fi
	shift
done

cache_sizes=(0 512kB 4MB 64MB)
on_off=(on off)
wal=('wal_level = minimal' 'wal_level = replica' 'wal_level = logical' "blobext.wal_content = 'off'"
	"blobext.wal_content = 'on'")

# One of the values $2 ..., chosen by a hash of the seed and the name $1.  So seeds with a common
# factor, or the same last digits, do not have the same settings for that reason.
choose()
{
	local name=$1 hash
	shift
	hash=$(printf '%s %s' "$seed" "$name" | sha256sum)
	printf '%s' "${@:16#${hash:0:8} % $# + 1:1}"
}

settings=("$(choose wal "${wal[@]}")" "blobext.cache_size = '$(choose cache "${cache_sizes[@]}")'"
	"blobext.direct_io = $(choose direct_io "${on_off[@]}")"
	"fsync = $(choose fsync "${on_off[@]}")" "blobext.keep_free = $(choose keep_free 0 0 1GB)"
	'max_wal_senders = 0' 'blobext.autogc_naptime = 1s' 'blobext.autogc_threshold = 1MB')
printf '# %s\n' "${settings[@]}"
printf '%s\n' "${settings[@]}" >> "$test_dir/postgresql.conf"

test_start_server data
"$bindir/psql" -X -q -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION blobext'
[ "${numbers[operations]}" = 0 ] ||
	"$python" -B "$test_dir/fuzz/oracle.py" --seed "$seed" --operations "${numbers[operations]}"
[ "${numbers[changes]}" = 0 ] ||
	"$python" -B "$test_dir/fuzz/changes.py" --seed "$seed" --changes "${numbers[changes]}" \
		--sessions "${numbers[sessions]}"
[ "${numbers[large]}" = 0 ] ||
	"$python" -B "$test_dir/fuzz/large.py" --seed "$seed" --gib "${numbers[large]}"
