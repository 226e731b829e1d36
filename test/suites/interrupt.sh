# test/run interrupt [TREE]: scripts of this directory (or of another checkout) are interrupted
# while they test; no server, file, mount or loop device may be left.  See interrupt.py.

test_guard "$@"
test_install
exec "$python" -B "$here/interrupt.py" "${1:-$checkout}" "$BLOBEXT_TEST_TMP"
