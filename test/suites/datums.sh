# test/run datums [--seed N] [--rounds N]: mutated datums through every function that takes a
# blobstate, as an ordinary role, in a server of their own.  See test/fuzz/datums.py.
# BLOBEXT_SEED repeats a run, too.

test_prepare()
{
	test_make_unit "$work/lib"
}

test_enter "$@"

# Forged values must not be repaired, so no background process may touch the store meanwhile.
# Pages that no value has are read as they are only in a store without checksums.
test_start_server data "autovacuum = off
blobext.page_checksums = off"
mkdir "$work/exported"
"$python" -B "$test_dir/fuzz/datums.py" \
	--library "$work/lib/blobext_unit" --exported "$work/exported/file" "$@"
