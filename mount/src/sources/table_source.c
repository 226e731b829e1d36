/*
 * sources/table_source.c
 *	  A table or view at the start: its columns and types; the statements.
 *
 * All statements select from the same subquery, "base", which gives the columns fixed names.  The
 * version of a row is the SHA-256 of its content if that is a blobstate; of a bytea in a table it
 * is the row's place and inserting transaction, of a bytea in a view the SHA-256, computed.
 */
#include "sources/table_source.h"

#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/answer.h"
#include "connections/values.h"
#include "sources/trust.h"

enum
{
	/* OID of the table, place of the row, transaction */
	ROW_VERSION_BYTES = 4 + 6 + 4,
	MAX_PLAN_LINES = 10000,
	/* OIDs of types, which are the same on all servers; those of roles are higher. */
	TYPE_NAME = 19,
	TYPE_TEXT = 25,
	TYPE_BPCHAR = 1042,
	TYPE_VARCHAR = 1043,
	TYPE_INT8 = 20,
	TYPE_INT2 = 21,
	TYPE_INT4 = 23,
	TYPE_DATE = 1082,
	TYPE_TIMESTAMP = 1114,
	TYPE_TIMESTAMPTZ = 1184
};

/* The search_path is the role's, for the user's condition; all else is qualified. */
#define EQ " OPERATOR(pg_catalog.=) "

/* ---- the columns ---- */

/* The same where a server always has an answer. */
static char *
must_ask(struct connection *connection, const char *sql, int count, const char *const *parameters)
{
	char	   *answer = source_ask(connection, sql, count, parameters);

	if (answer == NULL)
		fatal("the server has not answered: %s", sql);
	return answer;
}

/* The table's OID, as text; *kind: as in pg_class. */
static char *
find_table(struct connection *connection, const char *table, char *kind)
{
	char	   *oid = source_ask(connection, "SELECT pg_catalog.to_regclass($1::pg_catalog.text)"
						  "::pg_catalog.oid", 1, &table);
	const char *parameter = oid;
	char	   *answer;

	if (oid == NULL)
		fatal("there is no table or view \"%s\" (names are written as in SQL; the role's "
			  "search_path counts)", table);
	answer = source_ask(connection, "SELECT c.relkind FROM pg_catalog.pg_class AS c"
				 " WHERE c.oid" EQ "$1::pg_catalog.oid"
				 " AND c.relkind" EQ "ANY ('{r,p,v,m,f}'::\"char\"[])", 1, &parameter);
	if (answer == NULL)
		fatal("\"%s\" is no table and no view", table);
	*kind = *answer;
	free(answer);
	return oid;
}

/*
 * The OID of the type of a column, or of that below its domains; the program ends if there is no
 * such column.  Names of types say nothing: any role can make a type "text", with casts.
 */
static unsigned long
find_column(struct connection *connection, const char *oid, const char *table, const char *option,
			const char *column)
{
	const char *parameters[] = {oid, column};
	char	   *columns;
	char	   *answer;
	unsigned long type;

	answer = source_ask(connection, "WITH RECURSIVE base (oid, typtype, typbasetype) AS ("
				 "SELECT t.oid, t.typtype, t.typbasetype FROM pg_catalog.pg_attribute AS a"
				 " JOIN pg_catalog.pg_type AS t ON t.oid" EQ "a.atttypid"
				 " WHERE a.attrelid" EQ "$1::pg_catalog.oid AND a.attname" EQ "$2::pg_catalog.name"
				 " AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped"
				 " UNION ALL SELECT t.oid, t.typtype, t.typbasetype FROM base AS b"
				 " JOIN pg_catalog.pg_type AS t ON t.oid" EQ "b.typbasetype"
				 " WHERE b.typtype" EQ "'d')"
				 " SELECT b.oid FROM base AS b WHERE b.typtype OPERATOR(pg_catalog.<>) 'd'",
				 2, parameters);
	if (answer != NULL)
	{
		type = strtoul(answer, NULL, 10);
		free(answer);
		return type;
	}
	columns = source_ask(connection, "SELECT pg_catalog.string_agg(a.attname::pg_catalog.text,"
				  " ', '::pg_catalog.text ORDER BY a.attnum) FROM pg_catalog.pg_attribute AS a"
				  " WHERE a.attrelid" EQ "$1::pg_catalog.oid"
				  " AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped", 1, parameters);
	fatal("option \"%s\": table \"%s\" has no column \"%s\"; it has: %s", option, table, column,
		  columns ? columns : "none");
}

/* The name of a type, for messages. */
static char *
type_name(struct connection *connection, unsigned long type)
{
	char	   *oid = format_string("%lu", type);
	const char *parameter = oid;
	char	   *name = must_ask(connection, "SELECT pg_catalog.format_type($1::pg_catalog.oid,"
								" NULL)", 1, &parameter);

	free(oid);
	return name;
}

static char *
quote(struct connection *connection, const char *identifier)
{
	return must_ask(connection, "SELECT pg_catalog.quote_ident($1::pg_catalog.text)", 1,
					&identifier);
}

/* The expression of a row's version, and whether its content is a bytea. */
static char *
version_expression(struct table_source *table, struct connection *connection, char kind,
				   unsigned long type, const char *content)
{
	const struct members *members = &table->source.members;
	bool		has_place = kind == 'r' || kind == 'p' || kind == 'm';

	if (members->blobstate != NULL && type == strtoul(members->blobstate, NULL, 10))
	{
		if (members->lacks != NULL)
			fatal("the extension blobext of this database lacks %s: ALTER EXTENSION blobext UPDATE",
				  members->lacks);
		table->source.version_bytes = sizeof(struct version);
		return format_string("%s.sha256(t.%s::%s.blobstate)", members->blobext, content,
							 members->blobext);
	}
	if (type != OID_BYTEA)
		fatal("option \"content\": column %s is of type %s, not blobstate or bytea", content,
			  type_name(connection, type));
	table->bytea = true;
	table->source.version_bytes = has_place ? ROW_VERSION_BYTES : sizeof(struct version);
	return has_place ?
		copy_string("pg_catalog.oidsend(t.tableoid) OPERATOR(pg_catalog.||)"
					" pg_catalog.tidsend(t.ctid) OPERATOR(pg_catalog.||)"
					" pg_catalog.xidsend(t.xmin)") :
		format_string("pg_catalog.sha256(t.%s::pg_catalog.bytea)", content);
}

/* A column that may be there: its option, what it is cast to, and the types that this is safe for.
 * (A cast of another role's type would be that role's function.) */
struct optional
{
	const char *option;
	const char *type;
	const char *expected;		/* for the message */
	unsigned long types[3];
};

static const struct optional mtime_column = {
	"mtime", "pg_catalog.timestamptz", "timestamptz, timestamp or date",
	{TYPE_TIMESTAMPTZ, TYPE_TIMESTAMP, TYPE_DATE}
};
static const struct optional mode_column = {
	"mode", "integer", "an integer", {TYPE_INT4, TYPE_INT2, TYPE_INT8}
};

/* "t.column::type", or NULL of the type. */
static char *
optional_column(struct connection *connection, const char *oid, const char *table,
				const struct optional *optional, const char *column)
{
	const unsigned long *types = optional->types;
	unsigned long type;
	char	   *quoted;
	char	   *expression;

	if (column == NULL)
		return format_string("NULL::%s", optional->type);
	type = find_column(connection, oid, table, optional->option, column);
	if (type != types[0] && type != types[1] && type != types[2])
		fatal("option \"%s\": column \"%s\" is of type %s, not %s", optional->option, column,
			  type_name(connection, type), optional->expected);
	quoted = quote(connection, column);
	expression = format_string("t.%s::%s", quoted, optional->type);
	free(quoted);
	return expression;
}

static void
check_path_type(struct connection *connection, unsigned long type, const char *column)
{
	if (type != TYPE_TEXT && type != TYPE_VARCHAR && type != TYPE_BPCHAR && type != TYPE_NAME)
		fatal("option \"path\": column \"%s\" is of type %s, not text", column,
			  type_name(connection, type));
}

/*
 * A view's functions run with the rights of this role.  A table has none.  A condition of the
 * user's own may need views.
 */
static void
check_owner(struct table_source *table, struct connection *connection, const char *oid, char kind,
			const struct options *options)
{
	if (kind == 'v')
	{
		table->source.relation = copy_string(oid);
		trust_owner(&table->source, connection);
	}
	else if (options->where == NULL)
		trust_table_only(&table->source, connection, oid);
}

/*
 * Columns path, content, size, version, mtime, mode of all rows that may be files.  The condition
 * is the user's SQL, for which the role's search_path counts; all else is qualified.
 */
static void
make_base(struct table_source *table, struct connection *connection, const struct options *options)
{
	char		kind;
	char	   *oid = find_table(connection, options->table, &kind);
	unsigned long path_type = find_column(connection, oid, options->table, "path", options->path);
	unsigned long content_type = find_column(connection, oid, options->table, "content",
											 options->content);
	char	   *path = quote(connection, options->path);
	char	   *content = quote(connection, options->content);
	char	   *mtime = optional_column(connection, oid, options->table, &mtime_column,
										options->mtime);
	char	   *mode = optional_column(connection, oid, options->table, &mode_column,
									   options->mode);
	char	   *name = must_ask(connection, "SELECT pg_catalog.concat(pg_catalog.quote_ident("
								"n.nspname), '.', pg_catalog.quote_ident(c.relname))"
								" FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n"
								" ON n.oid" EQ "c.relnamespace WHERE c.oid" EQ
								"$1::pg_catalog.oid", 1, (const char *const *) &oid);
	char	   *version = version_expression(table, connection, kind, content_type, content);
	const char *blobext = table->source.blobext;
	char	   *value = table->bytea ? format_string("t.%s::pg_catalog.bytea", content) :
		format_string("t.%s::%s.blobstate", content, blobext);
	char	   *size = table->bytea ? format_string("pg_catalog.octet_length(%s)::bigint", value) :
		format_string("%s.length(%s)", blobext, value);

	check_path_type(connection, path_type, options->path);
	check_owner(table, connection, oid, kind, options);
	table->base = format_string("(SELECT t.%s::pg_catalog.text AS path, %s AS content, %s AS size,"
								" %s AS version, %s AS mtime, %s AS mode FROM %s AS t"
								" WHERE t.%s IS NOT NULL AND t.%s IS NOT NULL AND (%s\n))",
								path, value, size, version, mtime, mode, name, path, content,
								options->where ? options->where : "true");
	free(oid);
	free(path);
	free(content);
	free(mtime);
	free(mode);
	free(name);
	free(version);
	free(value);
	free(size);
}

/*
 * A column whose collation compares bytes must be named as it is, for its index; others need
 * COLLATE "C", for an index that was made with that.
 */
static void
find_collation(struct table_source *table, struct connection *connection,
			   const struct options *options)
{
	const char *parameters[] = {options->table, options->path};
	char	   *bytewise = source_ask(connection, "SELECT true FROM pg_catalog.pg_attribute AS a"
							   " JOIN pg_catalog.pg_collation AS c ON c.oid" EQ "a.attcollation"
							   " JOIN pg_catalog.pg_database AS d"
							   " ON d.datname" EQ "pg_catalog.current_database()"
							   " WHERE a.attrelid" EQ "pg_catalog.to_regclass($1::pg_catalog.text)"
							   "::pg_catalog.oid AND a.attname" EQ "$2::pg_catalog.name"
							   " AND (c.collcollate" EQ "ANY ('{C,POSIX}'::pg_catalog.text[])"
							   " OR (c.collprovider" EQ "'d' AND d.datlocprovider" EQ "'c'"
							   " AND d.datcollate" EQ "ANY ('{C,POSIX}'::pg_catalog.text[])))",
							   2, parameters);

	table->collate = copy_string(bytewise ? "" : " COLLATE pg_catalog.\"C\"");
	free(bytewise);
}

/* ---- the statements ---- */

/* The part of f.path behind the directory $n. */
#define REST(directory) "pg_catalog.substr(f.path, pg_catalog.length(" directory \
	"::pg_catalog.text) OPERATOR(pg_catalog.+) 1)"

/* Rows of a directory in order; with an upper bound or without.  $1 lower bound, inclusive; $2
 * rows; $3 the directory's path with its slash; $4 upper bound. */
static char *
ordered_listing(const struct table_source *table, bool bounded)
{
	const char *c = table->collate;

	return format_string("SELECT f.path, f.size, f.version, f.mtime, f.mode,"
						 " CASE WHEN pg_catalog.strpos(" REST("$3") ", '/')" EQ "0"
						 " THEN EXISTS (SELECT FROM %s AS g WHERE g.path%s OPERATOR(pg_catalog.>)"
						 " (f.path OPERATOR(pg_catalog.||) '/'::pg_catalog.text)"
						 " AND g.path%s OPERATOR(pg_catalog.<)"
						 " (f.path OPERATOR(pg_catalog.||) '0'::pg_catalog.text)) END"
						 " FROM %s AS f WHERE f.path%s OPERATOR(pg_catalog.>=)"
						 " $1::pg_catalog.text %s%s%s ORDER BY f.path%s LIMIT $2::bigint",
						 table->base, c, c, table->base, c, bounded ? "AND f.path" : "",
						 bounded ? c : "",
						 bounded ? " OPERATOR(pg_catalog.<) $4::pg_catalog.text" : "", c);
}

/* Names in a directory, grouped.  $1 the name before the first, $2 rows, $3 the directory. */
static char *
grouped_listing(const struct table_source *table)
{
	return format_string("SELECT DISTINCT ON (y.name) y.name, y.size, y.version, y.mtime, y.mode,"
						 " y.below FROM (SELECT pg_catalog.split_part(x.rest, '/', 1)"
						 " COLLATE pg_catalog.\"C\" AS name, pg_catalog.strpos(x.rest, '/')"
						 " OPERATOR(pg_catalog.>) 0 AS below, x.* FROM"
						 " (SELECT " REST("$3") " AS rest, f.* FROM %s AS f"
						 " WHERE pg_catalog.starts_with(f.path, $3::pg_catalog.text)) AS x) AS y"
						 " WHERE y.name OPERATOR(pg_catalog.>)"
						 " ($1::pg_catalog.text COLLATE pg_catalog.\"C\")"
						 " ORDER BY y.name, y.below DESC, y.version LIMIT $2::bigint",
						 table->base);
}

/* A condition on a row f: the path, and the version. */
#define IS_VERSION(path, version) " WHERE f.path" EQ path "::pg_catalog.text AND f.version" EQ \
	version "::pg_catalog.bytea LIMIT 1"

/* All but those of batches.  A look-up compares the path in both collations, so that an index of
 * either serves. */
static void
prepare_statements(struct table_source *table)
{
	const char *blobext = table->source.blobext;
	const char *c = table->collate;
	const char *b = table->base;
	bool		ordered = table->ordered;
	int			rows = ordered ? LIST_ROWS : GROUP_ROWS;
	char	   *sql;

	sql = format_string("SELECT EXISTS (SELECT FROM %s AS g WHERE g.path%s OPERATOR(pg_catalog.>)"
						" $2::pg_catalog.text AND g.path%s OPERATOR(pg_catalog.<)"
						" $3::pg_catalog.text), f.size, f.version, f.mtime, f.mode"
						" FROM (SELECT 1) AS one LEFT JOIN (SELECT * FROM %s AS h WHERE h.path" EQ
						"$1::pg_catalog.text AND h.path%s" EQ "$1::pg_catalog.text"
						" ORDER BY h.version LIMIT 1) AS f ON true", b, c, c, b, c);
	table->lookup = source_add_statement(&table->source, sql, 1 + FILE_COLUMNS, 1);
	sql = table->bytea ?
		format_string("SELECT pg_catalog.substring(f.content, ($3::bigint OPERATOR(pg_catalog.+)"
					  " 1)::integer, $4::bigint::integer) FROM %s AS f" IS_VERSION("$1", "$2"),
					  b) :
		format_string("SELECT %s.blob_read(f.content, $3::bigint, $4::bigint) FROM %s AS f"
					  IS_VERSION("$1", "$2"), blobext, b);
	table->read = source_add_statement(&table->source, sql, 1, 1);
	sql = ordered ? ordered_listing(table, true) : grouped_listing(table);
	table->list_below = source_add_statement(&table->source, sql, 2 + FILE_COLUMNS, rows);
	sql = ordered ? ordered_listing(table, false) : grouped_listing(table);
	table->list_all = source_add_statement(&table->source, sql, 2 + FILE_COLUMNS, rows);
	if (table->source.has_pins)
	{
		sql = format_string("SELECT blobfs.pin($1::bigint, $2::pg_catalog.uuid, $3::bigint,"
							" f.content) FROM %s AS f" IS_VERSION("$4", "$5"), b);
		table->pin = source_add_statement(&table->source, sql, 1, 1);
	}
}

/* $1 the first path, $2 the directory, $3 files, $4 rows, $5 bytes of a file, $6 upper bound.  The
 * rows are limited before those of other directories are left out. */
static int
prepare_batch(struct table_source *table, bool bounded)
{
	const char *c = table->collate;
	char	   *bound = bounded ?
		format_string("AND g.path%s OPERATOR(pg_catalog.<) $6::pg_catalog.text", c) :
		copy_string("");
	char	   *sql = format_string("SELECT f.path, f.size, f.version, f.mtime, f.mode, f.content"
									" FROM (SELECT * FROM %s AS g WHERE g.path%s"
									" OPERATOR(pg_catalog.>=) $1::pg_catalog.text %s"
									" ORDER BY g.path%s LIMIT $4::bigint) AS f"
									" WHERE f.size OPERATOR(pg_catalog.<=) $5::bigint"
									" AND pg_catalog.strpos(" REST("$2") ", '/')" EQ "0"
									" LIMIT $3::bigint", table->base, c, bound, c);

	free(bound);
	return source_add_statement(&table->source, sql, 2 + FILE_COLUMNS, BATCH_FILES);
}

void
table_source_prepare(struct table_source *table)
{
	prepare_statements(table);
	table->batch_below = prepare_batch(table, true);
	table->batch_all = prepare_batch(table, false);
}

/* ---- the start ---- */

/* Whether rows in the order of paths come without a sort, which a plan without sequential scans
 * shows: also of a view, and of a small table. */
static bool
find_order(struct table_source *table, struct connection *connection)
{
	char	   *listing = ordered_listing(table, false);
	char	   *sql = format_string("BEGIN; SET LOCAL enable_seqscan = off;"
									" SET LOCAL enable_bitmapscan = off;"
									" PREPARE blobfs_listing AS %s; EXPLAIN (COSTS OFF)"
									" EXECUTE blobfs_listing('a', 100, '')", listing);
	PGresult   *result = query_text(connection->pg, sql, MAX_PLAN_LINES);
	bool		ordered = true;

	if (PQntuples(result) == 0)
		fatal("%s", PQerrorMessage(connection->pg));
	for (int row = 0; row < PQntuples(result); row++)
		if (strstr(field_text(result, row, 0), "Sort") != NULL)
			ordered = false;
	PQclear(result);
	PQclear(query_text(connection->pg, "ROLLBACK; DEALLOCATE blobfs_listing", 1));
	free(listing);
	free(sql);
	return ordered;
}

/* Read the first row, to see now what would fail later. */
static void
try_base(struct table_source *table, struct connection *connection)
{
	char	   *sql = format_string("SELECT f.path, f.size, f.version, f.mtime, f.mode%s%s%s"
									" FROM %s AS f LIMIT 1", table->bytea ? "" : ", ",
									table->bytea ? "" : table->source.blobext,
									table->bytea ? "" : ".blob_read(f.content, 0, 1)", table->base);

	free(source_ask(connection, sql, 0, NULL));
	free(sql);
}

static void
warn(struct table_source *table, struct connection *connection, const struct options *options)
{
	char	   *sql = format_string("SELECT true FROM %s AS f"
									" WHERE pg_catalog.starts_with(f.path, '/'::pg_catalog.text)"
									" LIMIT 1", table->base);
	char	   *absolute = options->prefix ? NULL : source_ask(connection, sql, 0, NULL);

	if (absolute != NULL)
		message("paths begin with \"/\" and cannot be shown: \"-o prefix=/\" cuts it off");
	if (!table->ordered)
		message("table \"%s\" has no index for the order of paths, so each listing of a directory "
				"reads all rows: CREATE INDEX ON %s (%s COLLATE \"C\")", options->table,
				options->table, options->path);
	free(absolute);
	free(sql);
}

/* With the option "notify": the trigger must be there. */
static void
find_channel(struct table_source *table, struct connection *connection,
			 const struct options *options)
{
	const char *parameter = options->table;
	char	   *answer;

	if (!options->notify)
		return;
	answer = source_ask(connection, "SELECT true FROM pg_catalog.pg_trigger AS t"
				 " WHERE t.tgname" EQ "'blobfs_notify'::pg_catalog.name AND t.tgrelid" EQ
				 "pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid", 1, &parameter);
	if (answer == NULL)
		fatal("table \"%s\" does not notify of changes: SELECT blobfs.notify_table('%s', true)",
			  options->table, options->table);
	free(answer);
	table->source.channel = must_ask(connection, "SELECT pg_catalog.concat('blobfs_',"
									 " pg_catalog.to_regclass($1::pg_catalog.text)"
									 "::pg_catalog.oid)", 1, &parameter);
}

void
table_source_begin(struct table_source *table, struct connection *connection)
{
	const struct options *options = table->source.options;

	trust_begin(&table->source, connection);
	make_base(table, connection, options);
	find_collation(table, connection, options);
	try_base(table, connection);
	table->ordered = find_order(table, connection);
	warn(table, connection, options);
	find_channel(table, connection, options);
}
