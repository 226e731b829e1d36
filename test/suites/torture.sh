# test/run torture [option ...]: the collector under everything at once, see t/torture.pl.
#
#   --seconds N      seconds of load in all, 300 unless told (test/run tap without us: 40)
#   --round N        seconds of one round, after which everything is checked (15)
#   --clients N      clients beside the collector (4)
#   --kills N        percentage of rounds that end in a crash (50)
#   --seed N         choices of an earlier run: it prints its seed
#   --settings "…"   of minimal, replica, power (all; power needs root, as test/run tap says)
#   -v               each test, and the operations that were done
#
# Hours: test/run torture --seconds 14400 -v

export BLOBEXT_TORTURE_SECONDS=300 BLOBEXT_TORTURE_ROUND=15
export BLOBEXT_TORTURE_SETTINGS='minimal replica power'
options=()
while [ $# -gt 0 ]; do
	case $1 in
		-v) options+=(-v) ; shift; continue ;;
		--seconds|--round|--clients|--kills|--seed|--settings) ;;
		*) sed -n '/^#/!q; s/^# \{0,1\}//p' "$here/suites/torture.sh" >&2; exit 2 ;;
	esac
	[ $# -ge 2 ] || test_fail "$1 needs a value"
	name=${1#--}
	export "BLOBEXT_TORTURE_${name^^}=$2"
	shift 2
done
exec "$here/run" tap "${options[@]}" torture.pl
