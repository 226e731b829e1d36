# test/upgrade/methods.sh: the part "methods" of suites/upgrade.sh, which sources it.

test_start_server data
sql 'CREATE EXTENSION blobext; CREATE TABLE v (method text, digest bytea, b blobstate)'
for method in none lz4 zstd; do
	sql "SET blobext.default_compression = $method;
		INSERT INTO v SELECT '$method', sha256(c), c
			FROM convert_to(repeat('compressed ', 30000), 'UTF8') AS c"
done
sql "SELECT blobext_set_compression('v', 'b', 'zstd')"
all="SELECT count(*) FROM v WHERE sha256(b::bytea) = digest AND blob_compression(b) = method"
check 'values of all methods are stored' "$(sql "$all")" 3
change_server "$old_bindir" fast
for method in lz4 zstd; do
	error=$(sql "SELECT sha256(b::bytea) FROM v WHERE method = '$method'" || true)
	check "$method is not built in: reading a value is a clear error" \
		"$(grep -c "0A000: .* method \"$method\" is not built" <<< "$error")" 1
	check "$method is not built in: the package is named" \
		"$(grep -c "HINT:.* lib$method-dev" <<< "$error")" 1
	check "$method is not built in: no value of the setting" \
		"$(sql "SET blobext.default_compression = $method" | grep -c 22023)" 1
done
check 'rows, sizes, digests and names of methods are read' \
	"$(sql 'SELECT count(*) FROM v WHERE sha256(b) = digest AND length(b) = 330000
		AND blob_compression(b) = method')" 3
check 'values that are not compressed are read' "$(sql "$all AND method = 'none'")" 1
check 'values are copied as they are' "$(sql 'CREATE TABLE w AS SELECT * FROM v;
	SELECT count(*) FROM w WHERE blob_compression(b) = method')" 3
check 'a column whose method is not built in refuses new values' \
	"$(sql "INSERT INTO v (b) VALUES (repeat('new ', 10000)::bytea)" | grep -c 0A000)" 1
check 'the collector runs without its methods' \
	"$(sql 'DROP TABLE w' && sql 'SELECT skipped_reason IS NULL
	FROM blobext_gc()')" t
change_server "$new_bindir" fast
check 'values of all methods are read with their library again' "$(sql "$all")" 3
check 'the check finds nothing' "$(sql 'SELECT * FROM blobext_check()')" ''
