/*
 * sources/table.c
 *	  A table or view as a tree of files: a column with paths, a column with content.
 *
 * A path is split at '/'; directories are implied by the paths below them.  Where a path is a file
 * and others lie below it, the directory wins.  Paths with a component that cannot be a name
 * (empty, ".", "..", more than 255 bytes) are not shown, and reported.
 *
 * All statements select from the same subquery, "base", which gives the columns fixed names.  The
 * version of a row is the SHA-256 of its content if that is a blobstate; of a bytea in a table it
 * is the row's place and inserting transaction, of a bytea in a view the SHA-256, computed.
 *
 * Listings.  If the server can deliver the paths in the order of their bytes from an index, a
 * listing reads the next rows in this order, and jumps over each directory that it meets.  If not,
 * one statement per listing groups all rows of the directory by their next component.
 *
 * inodes have no numbers here; st_ino is a hash of the path.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/answer.h"
#include "connections/query.h"
#include "sources/source.h"

enum
{
	LIST_ROWS = 1000,
	LIST_MIN_ROWS = 32,
	GROUP_ROWS = 10000,
	BATCH_FILES = 64,
	BATCH_ROWS = 256,			/* that are looked at for them */
	BATCH_FILE_BYTES = 128 * 1024,
	NAME_BYTES = 255,
	/* OID of the table, place of the row, transaction */
	ROW_VERSION_BYTES = 4 + 6 + 4,
	FILE_COLUMNS = 4,			/* size, version, mtime, mode */
	MAX_PLAN_LINES = 10000,
	/* OIDs of types, which are the same on all servers; those of roles are higher. */
	TYPE_BYTEA = 17,
	TYPE_NAME = 19,
	TYPE_TEXT = 25,
	TYPE_BPCHAR = 1042,
	TYPE_VARCHAR = 1043,
	FIRST_NORMAL_OID = 16384
};

/* The search_path is the role's, for the user's condition; all else is qualified. */
#define EQ " OPERATOR(pg_catalog.=) "

struct table_source
{
	struct source source;
	char	   *base;			/* a subquery */
	char	   *collate;		/* that makes the order of paths that of their bytes */
	const char *prefix;			/* of all paths */
	bool		bytea;
	bool		ordered;		/* there is an index */
	struct timespec mounted;
	int			lookup;			/* statements */
	int			list_below;
	int			list_all;
	int			read;
	int			batch_below;
	int			batch_all;
	int			pin;
};

/* ---- the statements ---- */

/* A statement of SQL about the mount's options, its first field copied; NULL: no row, or NULL. */
static char *
ask(struct connection *connection, const char *sql, int count, const char *const *parameters)
{
	char	   *error = NULL;
	char	   *answer = ask_once(connection->pg, sql, count, parameters, &error);

	if (error != NULL)
		fatal("%s", error);
	return answer;
}

/* The same where a server always has an answer. */
static char *
must_ask(struct connection *connection, const char *sql, int count, const char *const *parameters)
{
	char	   *answer = ask(connection, sql, count, parameters);

	if (answer == NULL)
		fatal("the server has not answered: %s", sql);
	return answer;
}

/* The table's OID, as text; *kind: as in pg_class. */
static char *
find_table(struct connection *connection, const char *table, char *kind)
{
	char	   *oid = ask(connection, "SELECT pg_catalog.to_regclass($1::pg_catalog.text)"
						  "::pg_catalog.oid", 1, &table);
	const char *parameter = oid;
	char	   *answer;

	if (oid == NULL)
		fatal("there is no table or view \"%s\" (names are written as in SQL; the role's "
			  "search_path counts)", table);
	answer = ask(connection, "SELECT c.relkind FROM pg_catalog.pg_class AS c"
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

	answer = ask(connection, "WITH RECURSIVE base (oid, typtype, typbasetype) AS ("
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
	columns = ask(connection, "SELECT pg_catalog.string_agg(a.attname::pg_catalog.text,"
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
	if (type != TYPE_BYTEA)
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

/* "t.column::type", or NULL of the type. */
static char *
optional_column(struct connection *connection, const char *oid, const struct options *options,
				const char *option, const char *column, const char *type)
{
	unsigned long column_type;
	char	   *quoted;
	char	   *expression;

	if (column == NULL)
		return format_string("NULL::%s", type);
	column_type = find_column(connection, oid, options->table, option, column);
	/* A cast of another role's type would be that role's function. */
	if (column_type >= FIRST_NORMAL_OID)
		fatal("option \"%s\": column \"%s\" is of type %s, not one of the server's own", option,
			  column, type_name(connection, column_type));
	quoted = quote(connection, column);
	expression = format_string("t.%s::%s", quoted, type);
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
	char	   *mtime = optional_column(connection, oid, options, "mtime", options->mtime,
										"pg_catalog.timestamptz");
	char	   *mode = optional_column(connection, oid, options, "mode", options->mode, "integer");
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
	char	   *bytewise = ask(connection, "SELECT true FROM pg_catalog.pg_attribute AS a"
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

/* A statement whose text is freed. */
static int
add_statement(struct table_source *table, char *sql, int columns, int rows)
{
	int			statement = pool_add_statement(table->source.pool, sql, columns, rows);

	free(sql);
	return statement;
}

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
	table->lookup = add_statement(table, sql, 1 + FILE_COLUMNS, 1);
	sql = table->bytea ?
		format_string("SELECT pg_catalog.substring(f.content, ($3::bigint OPERATOR(pg_catalog.+)"
					  " 1)::integer, $4::bigint::integer) FROM %s AS f" IS_VERSION("$1", "$2"),
					  b) :
		format_string("SELECT %s.blob_read(f.content, $3::bigint, $4::bigint) FROM %s AS f"
					  IS_VERSION("$1", "$2"), blobext, b);
	table->read = add_statement(table, sql, 1, 1);
	sql = ordered ? ordered_listing(table, true) : grouped_listing(table);
	table->list_below = add_statement(table, sql, 2 + FILE_COLUMNS, rows);
	sql = ordered ? ordered_listing(table, false) : grouped_listing(table);
	table->list_all = add_statement(table, sql, 2 + FILE_COLUMNS, rows);
	if (table->source.has_pins)
	{
		sql = format_string("SELECT blobfs.pin($1::bigint, $2::pg_catalog.uuid, $3::bigint,"
							" f.content) FROM %s AS f" IS_VERSION("$4", "$5"), b);
		table->pin = add_statement(table, sql, 1, 1);
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
	return add_statement(table, sql, 2 + FILE_COLUMNS, BATCH_FILES);
}

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

	free(ask(connection, sql, 0, NULL));
	free(sql);
}

static void
warn(struct table_source *table, struct connection *connection, const struct options *options)
{
	char	   *sql = format_string("SELECT true FROM %s AS f"
									" WHERE pg_catalog.starts_with(f.path, '/'::pg_catalog.text)"
									" LIMIT 1", table->base);
	char	   *absolute = options->prefix ? NULL : ask(connection, sql, 0, NULL);

	if (absolute != NULL)
		message("paths begin with \"/\" and cannot be shown: \"-o prefix=/\" cuts it off");
	if (!table->ordered)
		message("table \"%s\" has no index for the order of paths, so each listing of a directory "
				"reads all rows: CREATE INDEX ON %s (%s COLLATE \"C\")", options->table,
				options->table, options->path);
	free(absolute);
	free(sql);
}

static void
find_channel(struct table_source *table, struct connection *connection,
			 const struct options *options)
{
	const char *parameter = options->table;
	char	   *answer;

	if (!options->notify)
		return;
	answer = ask(connection, "SELECT true FROM pg_catalog.pg_trigger AS t"
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

/* ---- attributes ---- */

static uint64_t
hash_path(const char *directory, const char *name)
{
	uint64_t	hash = UINT64_C(14695981039346656037);

	for (const char *c = directory; *c != '\0'; c++)
		hash = (hash ^ (unsigned char) *c) * UINT64_C(1099511628211);
	for (const char *c = name; *c != '\0'; c++)
		hash = (hash ^ (unsigned char) *c) * UINT64_C(1099511628211);
	/* 0 and 1 are no paths' */
	return hash > 1 ? hash : hash + 2;
}

static void
set_owner(const struct table_source *table, struct attributes *attributes)
{
	const struct options *options = table->source.options;

	attributes->uid = options->uid;
	attributes->gid = options->gid;
	if (options->has_umask)
		attributes->mode &= ~(mode_t) options->umask;
}

static void
directory_attributes(const struct table_source *table, const char *directory, const char *name,
					 struct attributes *attributes)
{
	memset(attributes, 0, sizeof(*attributes));
	attributes->ino = hash_path(directory, name);
	attributes->mode = S_IFDIR | 0555;
	attributes->nlink = 1;		/* as of file systems that do not count subdirectories */
	attributes->mtime = attributes->ctime = attributes->atime = table->mounted;
	set_owner(table, attributes);
}

/* Of the columns size, version, mtime, mode, from "column" on.  0, or EIO if they are none. */
static int
file_attributes(const struct table_source *table, const PGresult *result, int row, int column,
				const char *directory, const char *name, struct attributes *attributes)
{
	struct timespec mtime = field_time(result, row, column + 2);

	memset(attributes, 0, sizeof(*attributes));
	if (!field_has_length(result, row, column, 8) ||
		!field_has_length(result, row, column + 1, table->source.version_bytes))
		return EIO;
	attributes->ino = hash_path(directory, name);
	attributes->mode = S_IFREG | (field_is_null(result, row, column + 3) ? 0444 :
								  ((mode_t) field_int4(result, row, column + 3) & 07777));
	attributes->nlink = 1;
	attributes->size = field_int8(result, row, column);
	memcpy(attributes->version.bytes, field_text(result, row, column + 1),
		   table->source.version_bytes);
	/* Also for times that are infinite. */
	if (field_is_null(result, row, column + 2) || mtime.tv_sec > INT64_C(1) << 40 ||
		mtime.tv_sec < -(INT64_C(1) << 40))
		mtime = table->mounted;
	attributes->mtime = attributes->ctime = attributes->atime = mtime;
	set_owner(table, attributes);
	return attributes->size < 0 ? EIO : 0;
}

/* ---- operations ---- */

/* The path of a directory as the table has it, with a slash at its end. */
static char *
directory_path(const struct table_source *table, const struct node *directory)
{
	return format_string("%s%s%s", table->prefix, directory->path,
						 *directory->path == '\0' ? "" : "/");
}

static int
table_lookup(struct source *source, struct node *parent, const char *name,
			 struct attributes *attributes)
{
	struct table_source *table = (struct table_source *) source;
	struct parameters parameters = {0};
	char	   *directory = directory_path(table, parent);
	char	   *path = format_string("%s%s", directory, name);
	char	   *low = format_string("%s/", path);
	char	   *high = format_string("%s0", path);
	PGresult   *result;
	int			error;

	parameter_text(&parameters, path);
	parameter_text(&parameters, low);
	parameter_text(&parameters, high);
	error = query_run(source->pool, -1, table->lookup, &parameters, &result);
	if (error == 0)
	{
		if (field_bool(result, 0, 0))
			directory_attributes(table, directory, name, attributes);
		else if (field_is_null(result, 0, 2))
			error = ENOENT;
		else
			error = file_attributes(table, result, 0, 1, directory, name, attributes);
		PQclear(result);
	}
	free(directory);
	free(path);
	free(low);
	free(high);
	return error;
}

/* A version never changes, and a directory is nothing but its name. */
static int
table_getattr(struct source *source, struct node *node, struct attributes *attributes)
{
	pthread_mutex_lock(&node->lock);
	*attributes = node->attributes;
	pthread_mutex_unlock(&node->lock);
	return 0;
}

void
listing_clear(struct listing_position *position)
{
	free(position->after);
	memset(position, 0, sizeof(*position));
}

/* Whether the component can be a name; counts those that cannot. */
static bool
is_name(const char *name, int *unusable)
{
	size_t		length = strlen(name);

	if (length > 0 && length <= NAME_BYTES && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
		return true;
	(*unusable)++;
	return false;
}

static void
set_position(struct listing_position *position, char *after)
{
	free(position->after);
	position->after = after;
}

/*
 * One row of an ordered listing.  Returns whether it became an entry.  The first row of a
 * subdirectory becomes its entry; the position then is behind all of its rows, and rows before the
 * position are skipped.
 */
static bool
receive_row(const struct table_source *table, const PGresult *result, int row,
			const char *directory, struct listing_position *position, entry_receiver receive,
			void *context, int *unusable)
{
	const char *path = field_text(result, row, 0);
	size_t		length = strlen(directory);
	const char *slash;
	struct directory_entry entry;
	char	   *name;
	bool		is_entry;

	if (position->after != NULL && strcmp(path, position->after) < 0)
		return false;
	if (strncmp(path, directory, length) != 0)
	{
		position->complete = true;
		return false;
	}
	slash = strchr(path + length, '/');
	name = slash ? strndup(path + length, (size_t) (slash - path) - length) :
		copy_string(path + length);
	/* Behind "sub/" and all that begins with it comes "sub0"; behind a path a longer one. */
	set_position(position, slash ?
				 format_string("%.*s0", (int) (slash - path), path) :
				 format_string("%s\x01", path));
	is_entry = is_name(name, unusable);
	if (is_entry && !slash && field_bool(result, row, 5))
		is_entry = false;		/* the directory comes with its own rows */
	entry.name = name;
	if (is_entry && slash)
		directory_attributes(table, directory, name, &entry.attributes);
	else if (is_entry &&
			 file_attributes(table, result, row, 1, directory, name, &entry.attributes) != 0)
		is_entry = false;
	if (is_entry)
		receive(context, &entry);
	free(name);
	return is_entry;
}

/* The next number of rows: fewer where most rows are in subdirectories. */
static int
next_limit(int limit, int entries)
{
	if (entries < limit / 8)
		limit /= 4;
	else if (entries > limit / 2)
		limit *= 4;
	return limit < LIST_MIN_ROWS ? LIST_MIN_ROWS : limit > LIST_ROWS ? LIST_ROWS : limit;
}

static void
report_unusable(const char *directory, int unusable)
{
	if (unusable > 0)
		message("%d paths in directory \"%s\" cannot be files (empty, \".\" or \"..\" between "
				"slashes, or more than %d bytes)", unusable, directory, NAME_BYTES);
}

/* The first text behind all paths of a directory, whose path ends with a slash.  NULL for a prefix
 * that does not. */
static char *
upper_bound(const char *directory)
{
	size_t		length = strlen(directory);
	char	   *bound;

	if (length == 0 || directory[length - 1] != '/')
		return NULL;
	bound = copy_string(directory);
	bound[length - 1] = '0';
	return bound;
}

static int
list_ordered(struct table_source *table, const char *directory, struct listing_position *position,
			 entry_receiver receive, void *context)
{
	struct parameters parameters = {0};
	char	   *high = upper_bound(directory);
	int			limit = position->limit > 0 ? position->limit : LIST_ROWS / 4;
	int			entries = 0;
	int			unusable = 0;
	PGresult   *result;
	int			error;

	parameter_text(&parameters, position->after ? position->after : directory);
	parameter_int8(&parameters, limit);
	parameter_text(&parameters, directory);
	if (high != NULL)
		parameter_text(&parameters, high);
	error = query_run(table->source.pool, -1, high ? table->list_below : table->list_all,
					  &parameters, &result);
	/* Only now: the position was a parameter. */
	if (error == 0)
	{
		for (int row = 0; row < PQntuples(result) && !position->complete; row++)
			entries += receive_row(table, result, row, directory, position, receive, context,
								   &unusable);
		if (PQntuples(result) < limit)
			position->complete = true;
		position->limit = next_limit(limit, entries);
		PQclear(result);
		report_unusable(directory, unusable);
	}
	free(high);
	return error;
}

static int
list_grouped(struct table_source *table, const char *directory, struct listing_position *position,
			 entry_receiver receive, void *context)
{
	struct parameters parameters = {0};
	int			unusable = 0;
	char	   *before;
	PGresult   *result;
	int			error;

	parameter_text(&parameters, position->after ? position->after : "");
	parameter_int8(&parameters, GROUP_ROWS);
	parameter_text(&parameters, directory);
	error = query_run(table->source.pool, -1, table->list_all, &parameters, &result);
	if (error != 0)
		return error;
	before = copy_string(position->after ? position->after : "");
	for (int row = 0; row < PQntuples(result); row++)
	{
		struct directory_entry entry = {field_text(result, row, 0)};

		if (!is_name(entry.name, &unusable))
			continue;
		if (field_bool(result, row, 5))
			directory_attributes(table, directory, entry.name, &entry.attributes);
		else if (file_attributes(table, result, row, 1, directory, entry.name,
								 &entry.attributes) != 0)
			continue;
		receive(context, &entry);
	}
	if (PQntuples(result) < GROUP_ROWS)
		position->complete = true;
	else
		set_position(position, copy_string(field_text(result, PQntuples(result) - 1, 0)));
	/* A listing that does not get on would not end. */
	if (!position->complete && strcmp(position->after, before) <= 0)
		error = EIO;
	free(before);
	PQclear(result);
	report_unusable(directory, unusable);
	return error;
}

static int
table_list(struct source *source, struct node *node, struct listing_position *position,
		   entry_receiver receive, void *context)
{
	struct table_source *table = (struct table_source *) source;
	char	   *directory = directory_path(table, node);
	int			error = table->ordered ?
		list_ordered(table, directory, position, receive, context) :
		list_grouped(table, directory, position, receive, context);

	free(directory);
	return error;
}

/* The length of versions differs: 32 bytes of a digest, or those of a row's place. */
static void
version_parameter(const struct table_source *table, struct parameters *parameters,
				  const struct node *node)
{
	parameter_bytes(parameters, node->attributes.version.bytes, table->source.version_bytes);
}

static int
table_read(struct source *source, struct node *node, int64_t offset, size_t length,
		   struct buffer *buffer)
{
	struct table_source *table = (struct table_source *) source;
	struct parameters parameters = {0};
	char	   *path = format_string("%s%s", table->prefix, node->path);
	int			slot = node->attributes.size > BATCH_FILE_BYTES ?
		(int) (node->id % source->options->connections) : -1;
	PGresult   *result;
	int			error;

	parameter_text(&parameters, path);
	version_parameter(table, &parameters, node);
	parameter_int8(&parameters, offset);
	parameter_int8(&parameters, (int64_t) length);
	error = query_run(source->pool, slot, table->read, &parameters, &result);
	free(path);
	return error != 0 ? error : buffer_from_result(buffer, result, 0);
}

static int
table_read_batch(struct source *source, struct node *node, const char *from,
				 content_receiver receive, void *context)
{
	struct table_source *table = (struct table_source *) source;
	struct parameters parameters = {0};
	char	   *directory = directory_path(table, node);
	char	   *path = format_string("%s%s", directory, from);
	char	   *high = upper_bound(directory);
	PGresult   *result;
	int			error;

	if (!table->ordered)
		error = ENOTSUP;
	else
	{
		parameter_text(&parameters, path);
		parameter_text(&parameters, directory);
		parameter_int8(&parameters, BATCH_FILES);
		parameter_int8(&parameters, BATCH_ROWS);
		parameter_int8(&parameters, BATCH_FILE_BYTES);
		if (high != NULL)
			parameter_text(&parameters, high);
		error = query_run(source->pool, -1, high ? table->batch_below : table->batch_all,
						  &parameters, &result);
	}
	for (int row = 0; error == 0 && row < PQntuples(result); row++)
	{
		struct directory_entry entry = {0};
		size_t		length;
		const char *content = field_bytes(result, row, 5, &length);

		if (strncmp(field_text(result, row, 0), directory, strlen(directory)) != 0)
			break;
		entry.name = field_text(result, row, 0) + strlen(directory);
		if (file_attributes(table, result, row, 1, directory, entry.name, &entry.attributes) == 0)
			receive(context, &entry, content, length);
	}
	if (error == 0)
		PQclear(result);
	free(directory);
	free(path);
	free(high);
	return error;
}

static int
table_pin(struct source *source, struct node *node, int64_t handle)
{
	struct table_source *table = (struct table_source *) source;
	char	   *path = format_string("%s%s", table->prefix, node->path);
	int			error = EAGAIN;

	for (int attempt = 0; attempt < 3 && error == EAGAIN; attempt++)
	{
		struct parameters parameters = {0};
		PGresult   *result;

		pins_parameters(source, &parameters, handle);
		parameter_text(&parameters, path);
		version_parameter(table, &parameters, node);
		error = query_run(source->pool, -1, table->pin, &parameters, &result);
		if (error == 0)
		{
			error = pins_judge(source, result);
			PQclear(result);
		}
	}
	free(path);
	return error;
}

/* Nothing is used, nothing is free. */
static int
table_statfs(struct source *source, struct statvfs *statvfs)
{
	memset(statvfs, 0, sizeof(*statvfs));
	statvfs->f_bsize = statvfs->f_frsize = 4096;
	statvfs->f_namemax = NAME_BYTES;
	return 0;
}

static int
table_getxattr(struct source *source, struct node *node, const char *name, struct buffer *buffer)
{
	struct table_source *table = (struct table_source *) source;
	static const char digits[] = "0123456789abcdef";

	memset(buffer, 0, sizeof(*buffer));
	if (!S_ISREG(node->attributes.mode))
		return ENODATA;
	if (strcmp(name, "user.size") == 0)
		buffer->data = format_string("%lld", (long long) node->attributes.size);
	else if (strcmp(name, "user.sha256") == 0 && !table->bytea)
	{
		buffer->data = allocate(2 * sizeof(struct version) + 1);
		for (size_t i = 0; i < sizeof(struct version); i++)
		{
			buffer->data[2 * i] = digits[node->attributes.version.bytes[i] >> 4];
			buffer->data[2 * i + 1] = digits[node->attributes.version.bytes[i] & 15];
		}
	}
	else
		return ENODATA;
	buffer->length = strlen(buffer->data);
	return 0;
}

static int
table_listxattr(struct source *source, struct node *node, struct buffer *buffer)
{
	static const char names[] = "user.size\0user.sha256";
	struct table_source *table = (struct table_source *) source;

	memset(buffer, 0, sizeof(*buffer));
	if (!S_ISREG(node->attributes.mode))
		return 0;
	buffer->length = table->bytea ? strlen(names) + 1 : sizeof(names);
	buffer->data = allocate(buffer->length);
	memcpy(buffer->data, names, buffer->length);
	return 0;
}

static const struct source_operations operations = {
	.lookup = table_lookup,
	.getattr = table_getattr,
	.list = table_list,
	.read = table_read,
	.read_batch = table_read_batch,
	.pin = table_pin,
	.statfs = table_statfs,
	.getxattr = table_getxattr,
	.listxattr = table_listxattr,
};

struct source *
source_table_create(struct pool *pool, const struct options *options)
{
	struct table_source *table = allocate(sizeof(*table));
	struct source *source = &table->source;
	struct connection *connection;

	source->operations = &operations;
	source->pool = pool;
	source->options = options;
	source->with_paths = true;
	table->prefix = options->prefix ? options->prefix : "";
	clock_gettime(CLOCK_REALTIME, &table->mounted);
	if (pool_take(pool, 0, &connection) != 0)
		fatal("no connection");
	trust_begin(source, connection);
	make_base(table, connection, options);
	find_collation(table, connection, options);
	try_base(table, connection);
	table->ordered = find_order(table, connection);
	warn(table, connection, options);
	find_channel(table, connection, options);
	pool_give(connection);
	if (!table->bytea)
		pins_create(source);
	prepare_statements(table);
	table->batch_below = prepare_batch(table, true);
	table->batch_all = prepare_batch(table, false);
	directory_attributes(table, "", "", &source->root);
	source->root.ino = ROOT_ID;
	return source;
}
