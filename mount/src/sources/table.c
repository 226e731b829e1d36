/*
 * sources/table.c
 *	  A table or view as a tree of files: a column with paths, a column with content.
 *
 * A path is split at '/'; directories are implied by the paths below them.  Where a path is a file
 * and others lie below it, the directory wins.  Paths with a component that cannot be a name
 * (empty, ".", "..", more than 255 bytes) are not shown, and reported.
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
#include "connections/query.h"
#include "sources/pins.h"
#include "sources/table_source.h"

enum
{
	LIST_MIN_ROWS = 32,
	BATCH_ROWS = 256			/* that are looked at for BATCH_FILES */
};

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

/* One statement says whether the path is a directory, and if not, what file it is. */
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

/* The next rows in the order of paths; the position moves behind what they became. */
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

/* The next names, grouped by the server, in the order of names. */
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
	int			error;

	parameter_text(&parameters, path);
	version_parameter(table, &parameters, node);
	parameter_int8(&parameters, offset);
	parameter_int8(&parameters, (int64_t) length);
	error = source_ask_value(source, source_slot(source, node), table->read, &parameters, buffer);
	free(path);
	return error;
}

/* Only where an index has the order of paths: else each batch would read all rows. */
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
	struct parameters version = {0};
	char	   *path = format_string("%s%s", table->prefix, node->path);
	int			error;

	parameter_text(&version, path);
	version_parameter(table, &version, node);
	error = pins_pin(source, table->pin, &version, handle);
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

/* What the version tells: no statement is run. */
static int
table_getxattr(struct source *source, struct node *node, const char *name, struct buffer *buffer)
{
	struct table_source *table = (struct table_source *) source;
	static const char digits[] = "0123456789abcdef";

	memset(buffer, 0, sizeof(*buffer));
	if (!S_ISREG(node->attributes.mode))
		return ENODATA;
	if (strcmp(name, "user.size") == 0)
		return source_size_text(node, buffer);
	if (strcmp(name, "user.sha256") != 0 || table->bytea)
		return ENODATA;
	buffer->data = allocate(2 * sizeof(struct version) + 1);
	for (size_t i = 0; i < sizeof(struct version); i++)
	{
		buffer->data[2 * i] = digits[node->attributes.version.bytes[i] >> 4];
		buffer->data[2 * i + 1] = digits[node->attributes.version.bytes[i] & 15];
	}
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
	table_source_begin(table, connection);
	pool_give(connection);
	if (!table->bytea)
		pins_create(source);
	table_source_prepare(table);
	directory_attributes(table, "", "", &source->root);
	source->root.ino = ROOT_ID;
	return source;
}
