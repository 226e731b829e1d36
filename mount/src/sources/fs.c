/*
 * sources/fs.c
 *	  A file system's schema, as blobfs.create() has made it: its reading side.
 *
 * Each operation is one call of a function of the schema (mount/sql/README.md).  The version of a
 * file is its row's; directories and other kinds have none.
 *
 * Snapshots.  The root has a directory ".snapshots" that no listing shows.  Below it each named
 * snapshot is a directory, the root of the file system as it was.  An inode of a snapshot has the
 * snapshot's number beside its own.  With "-o at=NAME" the mount's root is that of a snapshot.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/query.h"
#include "sources/fs_row.h"
#include "sources/fs_source.h"
#include "sources/pins.h"

#define SNAPSHOTS_NAME ".snapshots"

static const uint64_t snapshots_ino = FS_FIRST_FOREIGN_INO;

static void
snapshots_attributes(const struct source *source, struct attributes *attributes)
{
	*attributes = source->root;
	attributes->ino = snapshots_ino;
	attributes->mode = S_IFDIR | 0555;
	attributes->nlink = 1;
}

/* ---- operations ---- */

/* The statement for a node, whose snapshot, if any, and number become the first parameters. */
static int
choose_call(struct source *source, const struct node *node, size_t offset,
			struct parameters *parameters)
{
	struct fs_source *fs = (struct fs_source *) source;
	const struct fs_calls *calls = &fs->current;

	if (node->attributes.snapshot > 0)
	{
		calls = &fs->snapshot;
		parameter_int8(parameters, node->attributes.snapshot);
	}
	parameter_int8(parameters, (int64_t) node->attributes.ino);
	return *(const int *) ((const char *) calls + offset);
}

#define CALL(source, node, member, parameters) \
	choose_call(source, node, offsetof(struct fs_calls, member), parameters)

/* Run a statement whose row is an inode of a snapshot's number; absent: the error without a row. */
static int
ask_attributes(struct source *source, int statement, const struct parameters *parameters,
			   int64_t snapshot, int absent, struct attributes *attributes)
{
	PGresult   *result;
	int			error = query_run(source->pool, -1, statement, parameters, &result);

	if (error != 0)
		return error;
	error = PQntuples(result) == 0 ? absent : fs_attributes(result, 0, 0, attributes);
	attributes->snapshot = snapshot;
	PQclear(result);
	return error;
}

/* The root of a snapshot. */
static int
find_snapshot(struct source *source, const char *name, struct attributes *attributes)
{
	struct fs_source *fs = (struct fs_source *) source;
	struct node root = {.attributes.ino = 1};
	struct parameters parameters = {0};
	PGresult   *result;
	int			error;

	parameter_bytes(&parameters, name, strlen(name));
	error = query_run(source->pool, -1, fs->snapshots, &parameters, &result);
	if (error != 0)
		return error;
	error = field_has_length(result, 0, 0, 8) ? 0 : ENOENT;
	if (error == 0)
		root.attributes.snapshot = field_int8(result, 0, 0);
	PQclear(result);
	return error != 0 ? error : source->operations->getattr(source, &root, attributes);
}

/* The root has a name that no row has: the directory of snapshots. */
static int
fs_lookup(struct source *source, struct node *parent, const char *name,
		  struct attributes *attributes)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, parent, lookup, &parameters);

	if (parent->attributes.ino == snapshots_ino)
		return find_snapshot(source, name, attributes);
	if (parent->id == ROOT_ID && parent->attributes.snapshot == 0 &&
		strcmp(name, SNAPSHOTS_NAME) == 0)
	{
		snapshots_attributes(source, attributes);
		return 0;
	}
	if (strlen(name) > NAME_BYTES)
		return ENAMETOOLONG;
	parameter_bytes(&parameters, name, strlen(name));
	return ask_attributes(source, statement, &parameters, parent->attributes.snapshot, ENOENT,
						  attributes);
}

static int
fs_getattr(struct source *source, struct node *node, struct attributes *attributes)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, getattr, &parameters);

	if (node->attributes.ino == snapshots_ino)
	{
		snapshots_attributes(source, attributes);
		return 0;
	}
	return ask_attributes(source, statement, &parameters, node->attributes.snapshot, ESTALE,
						  attributes);
}

/* The first bytes of a longer one, which no server of ours sends. */
static void
copy_name(const PGresult *result, int row, int column, char *name)
{
	size_t		length;
	const char *bytes = field_bytes(result, row, column, &length);

	snprintf(name, NAME_BYTES + 1, "%.*s", (int) length, bytes);
}

/* All at once: snapshots are few. */
static int
list_snapshots(struct source *source, struct listing_position *position, entry_receiver receive,
			   void *context)
{
	struct fs_source *fs = (struct fs_source *) source;
	struct parameters parameters = {0};
	PGresult   *result;
	int			error;

	parameter_null(&parameters);
	error = query_run(source->pool, -1, fs->snapshots, &parameters, &result);
	if (error != 0)
		return error;
	for (int row = 0; row < PQntuples(result); row++)
	{
		struct node root = {.attributes = {.ino = 1, .snapshot = field_int8(result, row, 0)}};
		struct directory_entry entry;
		char		name[NAME_BYTES + 1];

		copy_name(result, row, 1, name);
		entry.name = name;
		if (fs_getattr(source, &root, &entry.attributes) == 0)
			receive(context, &entry);
	}
	PQclear(result);
	position->complete = true;
	return 0;
}

/* The next LIST_ROWS names, in the order of their bytes. */
static int
fs_list(struct source *source, struct node *node, struct listing_position *position,
		entry_receiver receive, void *context)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, readdir, &parameters);
	char		name[NAME_BYTES + 1];
	PGresult   *result;
	int			error;

	if (node->attributes.ino == snapshots_ino)
		return list_snapshots(source, position, receive, context);
	parameter_bytes(&parameters, position->after, position->after_length);
	parameter_int4(&parameters, LIST_ROWS);
	error = query_run(source->pool, -1, statement, &parameters, &result);
	if (error != 0)
		return error;
	for (int row = 0; row < PQntuples(result) && error == 0; row++)
	{
		struct directory_entry entry = {name};

		copy_name(result, row, 0, name);
		error = fs_attributes(result, row, 1, &entry.attributes);
		entry.attributes.snapshot = node->attributes.snapshot;
		if (error == 0)
			receive(context, &entry);
	}
	position->complete = PQntuples(result) < LIST_ROWS;
	/* A listing that does not get on would not end. */
	if (!position->complete && position->after != NULL && strcmp(name, position->after) <= 0)
		error = EIO;
	if (!position->complete && error == 0)
	{
		free(position->after);
		position->after = copy_string(name);
		position->after_length = strlen(name);
	}
	PQclear(result);
	return error;
}

static int
fs_read(struct source *source, struct node *node, int64_t offset, size_t length,
		struct buffer *buffer)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, read, &parameters);

	parameter_int8(&parameters, fs_get_version(&node->attributes.version));
	parameter_int8(&parameters, offset);
	parameter_int8(&parameters, (int64_t) length);
	return source_ask_value(source, source_slot(source, node), statement, &parameters, buffer);
}

/*
 * The name behind which "from" is the first that can be: its last byte less 1, and as many bytes of
 * 255 as fit; without the last byte if that is 1, for 0 is in no name.
 */
static size_t
name_before(const char *from, char *before)
{
	size_t		length = strnlen(from, NAME_BYTES);

	memcpy(before, from, length);
	if (length == 0 || (unsigned char) before[--length] == 1)
		return length;
	before[length] = (char) ((unsigned char) before[length] - 1);
	memset(before + length + 1, 255, NAME_BYTES - length - 1);
	return NAME_BYTES;
}

/* Files behind the name before "from": the function of the schema takes the name to go on from. */
static int
fs_read_batch(struct source *source, struct node *node, const char *from,
			  content_receiver receive, void *context)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, readdir_content, &parameters);
	char		before[NAME_BYTES];
	PGresult   *result;
	int			error;

	parameter_bytes(&parameters, before, name_before(from, before));
	parameter_int4(&parameters, BATCH_FILES);
	parameter_int8(&parameters, BATCH_FILE_BYTES);
	error = query_run(source->pool, -1, statement, &parameters, &result);
	if (error != 0)
		return error;
	for (int row = 0; row < PQntuples(result); row++)
	{
		struct directory_entry entry = {""};
		int			column = 1 + ATTRIBUTE_COLUMNS;
		size_t		length;
		const char *content = field_bytes(result, row, column, &length);

		error = fs_attributes(result, row, 1, &entry.attributes);
		if (error != 0)
			break;
		entry.attributes.snapshot = node->attributes.snapshot;
		if (S_ISREG(entry.attributes.mode) && !field_is_null(result, row, column))
			receive(context, &entry, content, length);
	}
	PQclear(result);
	return error;
}

static int
fs_readlink(struct source *source, struct node *node, struct buffer *buffer)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, readlink, &parameters);
	int			error = source_ask_value(source, -1, statement, &parameters, buffer);

	return error == ESTALE ? EINVAL : error;
}

static int
fs_pin(struct source *source, struct node *node, int64_t handle)
{
	struct parameters version = {0};
	int			statement = CALL(source, node, pin, &version);

	parameter_int8(&version, fs_get_version(&node->attributes.version));
	return pins_pin(source, statement, &version, handle);
}

static uint64_t
field_amount(const PGresult *result, int column)
{
	int64_t		amount = field_int8(result, 0, column);

	return amount > 0 ? (uint64_t) amount : 0;
}

/* In blocks, as the server counts bytes. */
static int
fs_statfs(struct source *source, struct statvfs *statvfs)
{
	struct fs_source *fs = (struct fs_source *) source;
	struct parameters parameters = {0};
	PGresult   *result;
	uint64_t	total;
	uint64_t	used;
	int			error = query_run(source->pool, -1, fs->statfs, &parameters, &result);

	if (error != 0)
		return error;
	memset(statvfs, 0, sizeof(*statvfs));
	statvfs->f_bsize = statvfs->f_frsize = 4096;
	statvfs->f_namemax = NAME_BYTES;
	total = field_amount(result, 0) / 4096;
	used = (field_amount(result, 1) + 4095) / 4096;
	statvfs->f_blocks = total > used ? total : used;
	statvfs->f_bfree = statvfs->f_bavail = statvfs->f_blocks - used;
	total = field_amount(result, 2);
	used = field_amount(result, 3);
	statvfs->f_files = total > used ? total : used;
	statvfs->f_ffree = statvfs->f_favail = statvfs->f_files - used;
	PQclear(result);
	return 0;
}

/* Of the node's version, in hexadecimal digits; no content is read for it. */
static int
get_digest(struct source *source, struct node *node, struct buffer *buffer)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, sha256, &parameters);

	parameter_int8(&parameters, fs_get_version(&node->attributes.version));
	return source_ask_value(source, -1, statement, &parameters, buffer);
}

/* Size and digest are in no list: a program that copies attributes could not set them. */
static int
fs_getxattr(struct source *source, struct node *node, const char *name, struct buffer *buffer)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, getxattr, &parameters);
	int			error;

	memset(buffer, 0, sizeof(*buffer));
	if (node->attributes.ino == snapshots_ino)
		return ENODATA;
	if (S_ISREG(node->attributes.mode) && strcmp(name, "user.sha256") == 0)
		return get_digest(source, node, buffer);
	if (S_ISREG(node->attributes.mode) && strcmp(name, "user.size") == 0)
		return source_size_text(node, buffer);
	parameter_bytes(&parameters, name, strlen(name));
	error = source_ask_value(source, -1, statement, &parameters, buffer);
	return error == ESTALE ? ENODATA : error;
}

/* All names at once, as the kernel takes them. */
static int
fs_listxattr(struct source *source, struct node *node, struct buffer *buffer)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, listxattr, &parameters);
	PGresult   *result;
	size_t		length;
	char	   *to;
	int			error;

	memset(buffer, 0, sizeof(*buffer));
	if (node->attributes.ino == snapshots_ino)
		return 0;
	error = query_run(source->pool, -1, statement, &parameters, &result);
	if (error != 0)
		return error;
	for (int row = 0; row < PQntuples(result); row++)
	{
		field_bytes(result, row, 0, &length);
		buffer->length += length + 1;
	}
	to = buffer->data = allocate(buffer->length);
	for (int row = 0; row < PQntuples(result); row++)
	{
		const char *name = field_bytes(result, row, 0, &length);

		memcpy(to, name, length);
		to += length + 1;
	}
	PQclear(result);
	return 0;
}

static int
fs_parent(struct source *source, const struct node *node, struct attributes *attributes)
{
	struct fs_source *fs = (struct fs_source *) source;
	struct parameters parameters = {0};

	if (node->attributes.snapshot != 0)
		return ESTALE;
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	return ask_attributes(source, fs->parent, &parameters, 0, ESTALE, attributes);
}

static const struct source_operations operations = {
	.lookup = fs_lookup,
	.getattr = fs_getattr,
	.list = fs_list,
	.read = fs_read,
	.read_batch = fs_read_batch,
	.readlink = fs_readlink,
	.pin = fs_pin,
	.statfs = fs_statfs,
	.getxattr = fs_getxattr,
	.listxattr = fs_listxattr,
	.parent = fs_parent,
};

/* ---- the start ---- */

/* The root's attributes, or a message: the library is missing, privileges are. */
static void
find_root(struct fs_source *fs, const struct options *options)
{
	struct source *source = &fs->source;
	struct node root = {.attributes.ino = 1};
	char	   *sql = format_string("SELECT true FROM %s.getattr(1) LIMIT 1", source->schema);
	struct connection *connection;
	int			error;

	if (pool_take(source->pool, 0, &connection) != 0)
		fatal("no connection");
	free(source_ask(connection, sql, 0, NULL));
	pool_give(connection);
	free(sql);
	error = options->at ? find_snapshot(source, options->at, &source->root) :
		fs_getattr(source, &root, &source->root);
	if (error == ENOENT)
		fatal("file system \"%s\" has no snapshot \"%s\"", options->fs, options->at);
	if (error != 0)
		fatal("file system \"%s\" has no root: %s", options->fs, strerror(error));
}

struct source *
source_fs_create(struct pool *pool, const struct options *options)
{
	struct fs_source *fs = allocate(sizeof(*fs));
	struct source *source = &fs->source;
	struct connection *connection;

	source->operations = &operations;
	source->pool = pool;
	source->options = options;
	source->writable = options->at == NULL;
	if (pool_take(pool, 0, &connection) != 0)
		fatal("no connection");
	fs_source_begin(fs, connection);
	pool_give(connection);
	pins_create(source);
	fs_source_prepare(fs);
	find_root(fs, options);
	return source;
}
