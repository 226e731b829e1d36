/*
 * sources/fs_source.c
 *	  A file system's schema at the start: is it there, may this role use it; its statements.
 */
#include "sources/fs_source.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/errors.h"
#include "connections/values.h"
#include "sources/fs_row.h"
#include "sources/trust.h"

enum
{
	MAX_NAMES = 100000			/* of snapshots, of extended attributes */
};

static const char settings[] =
	"SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;"
	"SET enable_bitmapscan = off; SET jit = off; SET search_path = pg_catalog, pg_temp";

/* ---- statements ---- */

/* SELECT * FROM a function of the schema, with a number of parameters; columns and rows of the
 * answer. */
static int
add_call(struct fs_source *fs, const char *prefix, const char *function, int parameters,
		 int columns, int rows)
{
	char		list[MAX_PARAMETERS * 5] = "";
	size_t		length = 0;
	char	   *sql;

	parameters += *prefix != '\0';
	for (int i = 1; i <= parameters; i++)
		length += (size_t) snprintf(list + length, sizeof(list) - length, "%s$%d",
									i > 1 ? ", " : "", i);
	sql = format_string("SELECT * FROM %s.%s%s(%s)%s", fs->source.schema, prefix, function, list,
						rows == 1 ? " LIMIT 1" : "");
	return source_add_statement(&fs->source, sql, columns, rows);
}

/* The statements of the current state (prefix ""), or those of snapshots. */
static void
add_calls(struct fs_source *fs, const char *prefix, struct fs_calls *calls)
{
	const char *schema = fs->source.schema;
	const char *blobext = fs->source.blobext;
	bool		in_snapshot = *prefix != '\0';
	char	   *sql = format_string("SELECT blobfs.pin($1::bigint, $2::pg_catalog.uuid, $3::bigint,"
									" c::%s.blobstate) FROM %s.%scontent(%s) AS c LIMIT 1",
									blobext, schema, prefix,
									in_snapshot ? "$4, $5, $6" : "$4, $5");
	char	   *digest = format_string("SELECT pg_catalog.encode(%s.sha256(c::%s.blobstate), 'hex')"
									   " FROM %s.%scontent(%s) AS c LIMIT 1", blobext, blobext,
									   schema, prefix, in_snapshot ? "$1, $2, $3" : "$1, $2");

	calls->lookup = add_call(fs, prefix, "lookup", 2, ATTRIBUTE_COLUMNS, 1);
	calls->getattr = add_call(fs, prefix, "getattr", 1, ATTRIBUTE_COLUMNS, 1);
	calls->readdir = add_call(fs, prefix, "readdir", 3, 1 + ATTRIBUTE_COLUMNS, LIST_ROWS);
	calls->readdir_content = add_call(fs, prefix, "readdir_content", 4, 1 + ATTRIBUTE_COLUMNS + 1,
									  BATCH_FILES);
	calls->read = add_call(fs, prefix, "read", 4, 1, 1);
	calls->readlink = add_call(fs, prefix, "readlink", 1, 1, 1);
	calls->getxattr = add_call(fs, prefix, "getxattr", 2, 1, 1);
	calls->listxattr = add_call(fs, prefix, "listxattr", 1, 1, MAX_NAMES);
	calls->sha256 = source_add_statement(&fs->source, digest, 1, 1);
	if (fs->source.has_pins)
		calls->pin = source_add_statement(&fs->source, sql, 1, 1);
	else
		free(sql);
}

/* The number of a snapshot by its name, $1, or of all, with their names; the parent of an inode. */
static void
add_others(struct fs_source *fs)
{
	char	   *sql = format_string("SELECT s.snapshot, s.name FROM %s.snapshots() AS s"
									" WHERE $1::pg_catalog.bytea IS NULL"
									" OR s.name OPERATOR(pg_catalog.=) $1::pg_catalog.bytea",
									fs->source.schema);

	fs->snapshots = source_add_statement(&fs->source, sql, 2, MAX_NAMES);
	fs->statfs = add_call(fs, "", "statfs", 0, 5, 1);
	sql = format_string("SELECT a.* FROM %s.names($1) AS n, %s.getattr(n.parent) AS a LIMIT 1",
						fs->source.schema, fs->source.schema);
	fs->parent = source_add_statement(&fs->source, sql, ATTRIBUTE_COLUMNS, 1);
}

void
fs_source_prepare(struct fs_source *fs)
{
	add_calls(fs, "", &fs->current);
	add_calls(fs, "snapshot_", &fs->snapshot);
	add_others(fs);
}

/* ---- the start ---- */

/* A query about a name, the option "fs". */
static char *
ask(struct connection *connection, const char *sql, const char *name)
{
	return source_ask(connection, sql, 1, &name);
}

/* Whether such a query has an answer. */
static bool
is_answered(struct connection *connection, const char *sql, const char *name)
{
	char	   *answer = ask(connection, sql, name);
	bool		is_there = answer != NULL;

	free(answer);
	return is_there;
}

/* The extensions, the schema, the rights of this role, and those of its owner.  Each lack has a
 * message that says what to do. */
static void
check_file_system(struct fs_source *fs, struct connection *connection,
				  const struct options *options)
{
	const struct members *members = &fs->source.members;

	if (members->blobext == NULL || !members->has_blobfs)
		fatal("this database has no extension blobfs, or not all of it for this program:"
			  " CREATE EXTENSION blobfs CASCADE");
	if (members->lacks != NULL)
		fatal("the extension blobext of this database lacks %s: ALTER EXTENSION blobext UPDATE",
			  members->lacks);
	fs->source.schema = ask(connection, "SELECT pg_catalog.quote_ident($1::pg_catalog.text)",
							options->fs);
	if (fs->source.schema == NULL ||
		!is_answered(connection, "SELECT true FROM pg_catalog.pg_class AS c"
					 " JOIN pg_catalog.pg_namespace AS n"
					 " ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
					 " WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.name"
					 " AND c.relname OPERATOR(pg_catalog.=) 'dentry'::pg_catalog.name",
					 options->fs))
		fatal("there is no file system \"%s\": SELECT blobfs.create('%s') makes one", options->fs,
			  options->fs);
	if (!is_answered(connection, "SELECT true WHERE pg_catalog.has_schema_privilege("
					 "$1::pg_catalog.text, 'USAGE')", options->fs))
		fatal("this role may not use schema \"%s\"", options->fs);
	trust_owner(&fs->source, connection);
	if (is_answered(connection, "SELECT true WHERE pg_catalog.to_regprocedure(pg_catalog.concat("
					"pg_catalog.quote_ident($1::pg_catalog.text), '.channel()')) IS NULL",
					options->fs))
		message("file system \"%s\" has functions of an earlier version: ALTER EXTENSION blobfs"
				" UPDATE; SELECT blobfs.upgrade('%s')", options->fs, options->fs);
}

/* With the option "notify": the triggers must be there. */
static void
find_channel(struct fs_source *fs, struct connection *connection, const struct options *options)
{
	if (!options->notify)
		return;
	if (!is_answered(connection, "SELECT true FROM pg_catalog.pg_trigger AS t"
					 " WHERE t.tgname OPERATOR(pg_catalog.=) 'notify_dentry'::pg_catalog.name"
					 " AND t.tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass("
					 "pg_catalog.concat(pg_catalog.quote_ident($1::pg_catalog.text),"
					 " '.dentry'))::pg_catalog.oid", options->fs))
		fatal("file system \"%s\" does not notify of changes: SELECT blobfs.set_notify('%s', true)",
			  options->fs, options->fs);
	fs->source.channel = ask(connection, "SELECT blobfs.channel($1::pg_catalog.name)", options->fs);
	if (fs->source.channel == NULL)
		fatal("file system \"%s\" has no channel for notifications", options->fs);
}

void
fs_source_begin(struct fs_source *fs, struct connection *connection)
{
	pool_set_settings(fs->source.pool, connection, settings);
	trust_begin(&fs->source, connection);
	check_file_system(fs, connection, fs->source.options);
	find_channel(fs, connection, fs->source.options);
}
