# test/run tidy [tree]: rules of the source tree that a program can check, see tidy/tidy.py; first,
# tests of the rules themselves, and of how the scripts of this directory name what they leave out.

tidy=$here/tidy
status=0
"$python" -B "$tidy/selftest.py" || status=1
"$python" -B "$tidy/skips.py" || status=1
"$python" -B "$tidy/tidy.py" "$@" || status=1
exit $status
