# test/run collecting: the tests of test/sql and of values in Python again, while the collector runs
# all the time in the background: nothing may come out differently.

test_guard "$@"
test_install

export BLOBEXT_TEST_CONFIG="
${BLOBEXT_TEST_CONFIG:-}
blobext.autogc = on
blobext.autogc_naptime = 1s
blobext.autogc_interval = 1s
blobext.autogc_threshold = 0
blobext.autogc_scale_factor = 0
blobext.autogc_cost_delay = 0
blobext.gc_wait_timeout = 500ms
blobext.log_autogc_min_duration = 0
"
"$here/run" regress && "$here/run" python
