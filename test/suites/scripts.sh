# test/run scripts [TREE]: the scripts of dev/ (of this checkout, or of another one) on a machine
# that lacks something: no PostgreSQL, a sudo that wants a terminal, no optional packages; and
# dev/releases, when it is ended.  See scripts/test_dev.py.

tree=$(cd "${1:-$here/..}" && pwd)
test_guard "$@"
if [ "$EUID" -eq 0 ] && unshare -m --propagation private true 2> /dev/null; then
	exec unshare -m --propagation private "$python" -B "$checkout/test/scripts/test_dev.py" "$tree"
fi
echo "# left out: dev/: not root, or no mount namespaces here"
