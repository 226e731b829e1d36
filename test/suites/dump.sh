# test/run dump: pg_dump and pg_restore round trips (plain, plain with INSERTs, custom, directory
# with two jobs), and a pgbench script, in a server of their own.

test_enter "$@"
test_start_server data
export PATH="$bindir:$PATH"

failures=0
psql=(psql -X -q -A -t -v ON_ERROR_STOP=1)

check()
{
	if [ "$2" = "$3" ]; then
		echo "ok - $1"
	else
		echo "not ok - $1"
		diff <(echo "$3") <(echo "$2") | head -n 20 || true
		failures=$((failures + 1))
	fi
}

# Of two dumps.
differences()
{
	diff <(grep -v -E '^.(un)?restrict' "$1") <(grep -v -E '^.(un)?restrict' "$2")
}

# Everything of a database that is compared: contents, forms, definitions, problems.
describe()
{
	"${psql[@]}" -d "$1" -f "$test_dir/dump/describe.sql"
}

createdb original
"${psql[@]}" -d original -f "$test_dir/dump/original.sql"
describe original > expected
check 'the original has values of both forms' \
	"$(grep -c -E '^(composite\|)?(inline|extents)\|' expected)" 4
check 'the original is sound' "$(grep -c problem expected)" 0
check 'the original has values of all methods' "$(grep '^packed|' expected | cut -d '|' -f 2-6)" \
	'packed_1|zstd|lz4|lz4|lz4
packed_2|none|lz4|lz4|lz4'

pg_dump -d original -f dump.sql
check 'columns are dumped as plain blobstate' "$(grep -o -E 'blobstate ?\([^)]*\)' dump.sql)" ''
check 'the extension is dumped as such' \
	"$(grep -c 'CREATE EXTENSION IF NOT EXISTS blobext' dump.sql)" 1
check 'the extent map is not dumped' "$(grep -c 'COPY.*blobext_map' dump.sql)" 0
createdb plain
"${psql[@]}" -d plain -f dump.sql > psql.log
check 'a plain dump restores everything' "$(describe plain)" "$(cat expected)"

pg_dump -d plain -f again.sql
check 'a dump of the copy is the same' \
	"$(differences dump.sql again.sql)" ''

pg_dump -d original --inserts --rows-per-insert=3 --no-comments -f inserts.sql
createdb inserts
"${psql[@]}" -d inserts -f inserts.sql > psql.log
# Literals of composite types are parsed as a whole: their blobstate fields stay inline, if large.
check 'a plain dump with INSERTs restores everything' \
	"$(describe inserts | grep -v '^composite|')" \
	"$(grep -v '^composite|' expected)"

pg_dump -d original -Fc -Z1 -f dump.custom
createdb custom
pg_restore -d custom --exit-on-error dump.custom
check 'a custom dump restores everything' "$(describe custom)" "$(cat expected)"

pg_dump -d original -Fd -j2 -f dump.directory
createdb directory
pg_restore -d directory -j2 --exit-on-error dump.directory
check 'a directory dumped and restored by two jobs has everything' \
	"$(describe directory)" "$(cat expected)"

pg_restore -d custom --clean --if-exists --single-transaction dump.custom
check 'custom, over what was there' "$(describe custom)" "$(cat expected)"

pg_restore -d custom --data-only --disable-triggers -t loose dump.custom
query='SELECT count(*), count(DISTINCT sha256(b)) FROM loose'
check 'a dump of data alone restores everything' "$("${psql[@]}" -d custom -c "$query")" \
	"$("${psql[@]}" -d original -c "${query/count/2 * count}")"

pg_dumpall > all.sql
check 'a dump of pg_dumpall restores everything' \
	"$(grep -c 'CREATE EXTENSION IF NOT EXISTS blobext' all.sql)" 5

# A database with the objects of 0.2.0: its dump is restored with those of this version, to which
# the overloads of functions for bytea are new.  PostgreSQL prints a function with its schema where
# overloads in pg_catalog have the name, too, and an operator that was named with its schema
# likewise.
describe_old()
{
	"${psql[@]}" -d "$1" <<-'END' | sed -E 's/public\.//g; s/OPERATOR\(([^)]+)\)/\1/g'
		SELECT 'v', md5(v::text) FROM v ORDER BY id;
		SELECT 'of_functions', md5(o::text) FROM of_functions AS o ORDER BY id;
		SELECT pg_get_viewdef('v'::regclass), pg_get_functiondef('of_standard_sql'::regproc);
		SELECT indexdef FROM pg_indexes WHERE tablename = 't' ORDER BY 1;
		SELECT pg_get_constraintdef(oid) FROM pg_constraint
			WHERE conrelid = 't'::regclass ORDER BY 1;
		SELECT table_name, column_name, udt_name, column_default
			FROM information_schema.columns
			WHERE table_schema = 'public' AND table_name IN ('t', 'v', 'of_functions')
			ORDER BY 1, 2;
		SELECT 'problem', * FROM blobext_check();
	END
}
version="SELECT extversion FROM pg_extension WHERE extname = 'blobext'"
createdb old
"${psql[@]}" -d old -f "$test_dir/dump/of_0.2.sql"
describe_old old > expected_old
check 'a database has the objects of 0.2.0' "$("${psql[@]}" -d old -c "$version")" 0.2.0
pg_dump -d old -f old.sql
createdb of_old
"${psql[@]}" -d of_old -f old.sql > psql.log
check 'a dump of 0.2.0 is restored with other objects' \
	"$([ "$("${psql[@]}" -d of_old -c "$version")" != 0.2.0 ] && echo yes)" yes
check 'a dump of 0.2.0: contents, definitions, results' "$(describe_old of_old)" \
	"$(cat expected_old)"
pg_dump -d of_old -f again.sql
check 'a dump of what a dump of 0.2.0 has made is the same' \
	"$(differences old.sql again.sql)" ''
"${psql[@]}" -d old -c 'SET client_min_messages = warning' \
	-c 'ALTER EXTENSION blobext UPDATE'
check 'objects of 0.2.0 that were updated: contents, definitions, results' "$(describe_old old)" \
	"$(cat expected_old)"

# Expressions of each kind of object with each construct of SQL that finds an operator.  pg_dump
# reads and writes them with an empty search_path.
# Seen to fail: with the operators in the schema of the extension (211 of 794 objects; with
# ON_ERROR_STOP at the first one); without the library's part in exclusion constraints, and without
# the operator family of the operators that are named with the schema (dumps of 0.3.0); plans:
# without each of the three ways of src/sql/operators/named_operators.c.
make_syntax()
{
	"${psql[@]}" -1 -d "$1" -v version="$2" -v constructs="$3" -f "$test_dir/dump/syntax.sql"
}

# Results of all views and functions.
describe_syntax()
{
	"${psql[@]}" -d "$1" <<-'END'
		SELECT format('SELECT %L, md5(string_agg(v::text, '','' ORDER BY v::text)) FROM %I AS v',
			relname, relname) FROM pg_class WHERE relkind IN ('v', 'm')
			AND relnamespace = 'public'::regnamespace AND relname ~ 'view' ORDER BY relname
		\gexec
		SELECT format('SELECT %L, array_agg(%I(b, c, d) ORDER BY id) FROM t', proname, proname)
			FROM pg_proc WHERE proname LIKE 'function%' AND NOT proretset
			AND pronamespace = 'public'::regnamespace ORDER BY proname
		\gexec
	END
}

# How views are planned, and which indexes of expressions and with predicates serve a query.
describe_plans()
{
	"${psql[@]}" -d "$1" <<-'END' | sed -E 's/OPERATOR\(public\.([^)]+)\)/\1/g'
		SET bytea_output = hex;
		SET enable_seqscan = off;
		CREATE INDEX ON t (b);
		CREATE INDEX ON t (c, b);
		CREATE INDEX ON u (b);
		VACUUM ANALYZE;
		SELECT format('EXPLAIN (COSTS OFF) SELECT * FROM %I', relname) FROM pg_class
			WHERE relname ~ '^view' AND relkind = 'v' AND relnamespace = 'public'::regnamespace
			ORDER BY relname
		\gexec
		SELECT format('EXPLAIN (COSTS OFF) SELECT id FROM t WHERE %s',
			replace(replace(replace(expression, '$b', 'b'), '$c', 'c'), '$d', 'd'))
			FROM construct WHERE NOT is_volatile ORDER BY name
		\gexec
		SELECT format('EXPLAIN (COSTS OFF) SELECT id FROM t WHERE %s(b, c, d)', proname)
			FROM pg_proc WHERE proname LIKE 'function%' AND NOT proretset
			AND pronamespace = 'public'::regnamespace ORDER BY proname
		\gexec
	END
}

createdb syntax
make_syntax syntax 0.4.0 true
describe_syntax syntax > expected_syntax
check 'constructs of SQL: there are objects of all kinds' \
	"$("${psql[@]}" -d syntax -c "SELECT count(*) > 750 FROM kind, construct
		WHERE is_volatile <= may_be_volatile AND has_query <= may_query")" t
check 'constructs of SQL: there are results' "$(($(wc -l < expected_syntax) > 150))" 1
pg_dump -d syntax -f syntax.sql
createdb of_syntax
"${psql[@]}" -1 -d of_syntax -f syntax.sql > psql.log
check 'constructs of SQL: results after a restore' "$(describe_syntax of_syntax)" \
	"$(cat expected_syntax)"
pg_dump -d of_syntax -f again.sql
check 'constructs of SQL: a dump of the copy is the same' \
	"$(differences syntax.sql again.sql)" ''
check 'constructs of SQL: a dump names operators of digests only with their schema' \
	"$(grep -o -E 'OPERATOR\(public[^)]*\)' syntax.sql | sort -u | xargs)" \
	'OPERATOR(public.*<) OPERATOR(public.*>=)'

# Dumps of 0.3.0 name the operators with their schema.  Restored with the objects of this version,
# expressions and plans are as they were.
createdb named
make_syntax named 0.3.0 "finds = 'name'"
describe_syntax named > expected_named
pg_dump -d named -f named.sql
describe_plans named > expected_plans
check 'a dump of 0.3.0 names operators with their schema' \
	"$(grep -o -E 'OPERATOR\(public[^)]*\)' named.sql | sort -u | wc -l)" 11
check 'objects of 0.3.0: plans have indexes' \
	"$(grep -o -E 'using index_(predicate|expression)|hashed SubPlan|Index Cond' expected_plans |
		sort -u | xargs)" 'Index Cond hashed SubPlan using index_expression using index_predicate'
createdb of_named
"${psql[@]}" -1 -d of_named -f named.sql > psql.log
check 'a dump of 0.3.0 that names operators: results' "$(describe_syntax of_named)" \
	"$(cat expected_named)"
check 'a dump of 0.3.0 that names operators: plans' "$(describe_plans of_named)" \
	"$(cat expected_plans)"

# An old pg_dump sets this path, and so do users: then the operators with the schema are found
# first.
createdb of_path
sed "s/('search_path', '', false)/('search_path', 'public, pg_catalog', false)/" \
	syntax.sql > path.sql
"${psql[@]}" -1 -d of_path -f path.sql > psql.log
check 'the schema before pg_catalog in the search_path: results' "$(describe_syntax of_path)" \
	"$(cat expected_syntax)"

# Objects of 0.3.0 that find operators by the search_path are dumped after the update.
createdb updated
make_syntax updated 0.3.0 true
"${psql[@]}" -d updated -c 'SET client_min_messages = warning' -c 'ALTER EXTENSION blobext UPDATE'
check 'objects of 0.3.0 that were updated: results' "$(describe_syntax updated)" \
	"$(cat expected_syntax)"
pg_dump -d updated -f updated.sql
check 'objects of 0.3.0 that were updated: the dump is that of a new installation' \
	"$(differences syntax.sql updated.sql)" ''

# Several clients at once.
"${psql[@]}" -d original -f "$test_dir/dump/bench_tables.sql"
pgbench -n -d original -c 4 -j 2 -t 100 -M prepared -f "$test_dir/dump/bench.sql" \
	> pgbench.log 2>&1 ||
	cat pgbench.log
check 'pgbench: all its transactions succeed' \
	"$(grep -c 'transactions actually processed: 400/400' pgbench.log)" 1
query='SELECT count(*), count(*) FILTER (WHERE b::bytea IS DISTINCT FROM content) FROM bench'
check 'pgbench: each value has its content' "$("${psql[@]}" -d original -c "$query")" '400|0'
check 'pgbench: the check finds nothing in the store' \
	"$("${psql[@]}" -d original -c 'SELECT * FROM blobext_check()')" ''

exit $((failures > 0))
