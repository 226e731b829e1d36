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
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "common/errors.h"
#include "connections/query.h"
#include "sources/source.h"

#define SNAPSHOTS_NAME ".snapshots"

/* An inode number that no inode has. */
static const uint64_t snapshots_ino = UINT64_C(1) << 62;

enum
{
	LIST_ROWS = 1000,
	BATCH_FILES = 64,
	BATCH_FILE_BYTES = 128 * 1024,
	NAME_BYTES = 255,
	/* Of blobfs.attr, behind which the content comes; blobfs.entry has the name before it. */
	ATTRIBUTE_COLUMNS = 12,
	MAX_NAMES = 100000			/* of snapshots, of extended attributes */
};

/* Statements of the current state, and of a snapshot, whose number is their first parameter. */
struct calls
{
	int			lookup;
	int			getattr;
	int			readdir;
	int			readdir_content;
	int			read;
	int			readlink;
	int			getxattr;
	int			listxattr;
	int			sha256;
	int			pin;
};

struct fs_source
{
	struct source source;
	struct calls current;
	struct calls snapshot;
	int			snapshots;
	int			statfs;
	int			parent;
};

static const char settings[] =
	"SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;"
	"SET enable_bitmapscan = off; SET jit = off; SET search_path = pg_catalog, pg_temp";

/* ---- attributes ---- */

static struct timespec
field_nanoseconds(const PGresult *result, int row, int column)
{
	int64_t		number = field_int8(result, row, column);
	struct timespec time = {number / 1000000000, number % 1000000000};

	if (time.tv_nsec < 0)
	{
		time.tv_nsec += 1000000000;
		time.tv_sec--;
	}
	return time;
}

static mode_t
type_of_kind(char kind)
{
	switch (kind)
	{
		case 'd':
			return S_IFDIR;
		case 'l':
			return S_IFLNK;
		case 'p':
			return S_IFIFO;
		case 's':
			return S_IFSOCK;
		case 'c':
			return S_IFCHR;
		case 'b':
			return S_IFBLK;
		default:
			return S_IFREG;
	}
}

void
fs_set_version(struct version *version, int64_t number)
{
	uint64_t	network = htobe64((uint64_t) number);

	memset(version, 0, sizeof(*version));
	memcpy(version->bytes, &network, sizeof(network));
}

int64_t
fs_get_version(const struct version *version)
{
	uint64_t	network;

	memcpy(&network, version->bytes, sizeof(network));
	return (int64_t) be64toh(network);
}

/* Lengths of the columns in binary. */
static const uint8_t attribute_lengths[ATTRIBUTE_COLUMNS] = {8, 1, 4, 8, 8, 4, 8, 8, 8, 8, 8, 8};

int
fs_attributes(const PGresult *result, int row, int column, struct attributes *attributes)
{
	memset(attributes, 0, sizeof(*attributes));
	for (int i = 0; i < ATTRIBUTE_COLUMNS; i++)
		if (!field_has_length(result, row, column + i, attribute_lengths[i]))
			return EIO;
	attributes->ino = (uint64_t) field_int8(result, row, column);
	attributes->mode = type_of_kind(*field_text(result, row, column + 1)) |
		((mode_t) field_int4(result, row, column + 2) & 07777);
	attributes->uid = (uid_t) field_int8(result, row, column + 3);
	attributes->gid = (gid_t) field_int8(result, row, column + 4);
	attributes->nlink = (uint32_t) field_int4(result, row, column + 5);
	attributes->size = field_int8(result, row, column + 6);
	attributes->mtime = field_nanoseconds(result, row, column + 7);
	attributes->ctime = field_nanoseconds(result, row, column + 8);
	attributes->atime = field_nanoseconds(result, row, column + 9);
	attributes->rdev = (dev_t) field_int8(result, row, column + 10);
	if (S_ISREG(attributes->mode))
		fs_set_version(&attributes->version, field_int8(result, row, column + 11));
	if (attributes->ino == 0 || attributes->ino >= snapshots_ino || attributes->size < 0)
		return EIO;
	return 0;
}

static void
snapshots_attributes(const struct source *source, struct attributes *attributes)
{
	*attributes = source->root;
	attributes->ino = snapshots_ino;
	attributes->mode = S_IFDIR | 0555;
	attributes->nlink = 1;
}

/* ---- operations ---- */

/* The statement for a node, whose snapshot becomes the first parameter. */
static int
choose_call(struct source *source, const struct node *node, size_t offset,
			struct parameters *parameters)
{
	struct fs_source *fs = (struct fs_source *) source;
	const struct calls *calls = &fs->current;

	if (node->attributes.snapshot > 0)
	{
		calls = &fs->snapshot;
		parameter_int8(parameters, node->attributes.snapshot);
	}
	return *(const int *) ((const char *) calls + offset);
}

#define CALL(source, node, member, parameters) \
	choose_call(source, node, offsetof(struct calls, member), parameters)

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

static int
fs_lookup(struct source *source, struct node *parent, const char *name,
		  struct attributes *attributes)
{
	struct parameters parameters = {0};
	PGresult   *result;
	int			statement;
	int			error;

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
	statement = CALL(source, parent, lookup, &parameters);
	parameter_int8(&parameters, (int64_t) parent->attributes.ino);
	parameter_bytes(&parameters, name, strlen(name));
	error = query_run(source->pool, -1, statement, &parameters, &result);
	if (error != 0)
		return error;
	error = PQntuples(result) == 0 ? ENOENT : fs_attributes(result, 0, 0, attributes);
	attributes->snapshot = parent->attributes.snapshot;
	PQclear(result);
	return error;
}

static int
fs_getattr(struct source *source, struct node *node, struct attributes *attributes)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, getattr, &parameters);
	PGresult   *result;
	int			error;

	if (node->attributes.ino == snapshots_ino)
	{
		snapshots_attributes(source, attributes);
		return 0;
	}
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	error = query_run(source->pool, -1, statement, &parameters, &result);
	if (error != 0)
		return error;
	error = PQntuples(result) == 0 ? ESTALE : fs_attributes(result, 0, 0, attributes);
	attributes->snapshot = node->attributes.snapshot;
	PQclear(result);
	return error;
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
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
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

/* Streams stay on one connection: the server reads ahead for each by itself. */
static int
slot_of(const struct source *source, const struct node *node)
{
	return node->attributes.size > BATCH_FILE_BYTES ?
		(int) (node->id % source->options->connections) : -1;
}

static int
fs_read(struct source *source, struct node *node, int64_t offset, size_t length,
		struct buffer *buffer)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, read, &parameters);
	PGresult   *result;
	int			error;

	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_int8(&parameters, fs_get_version(&node->attributes.version));
	parameter_int8(&parameters, offset);
	parameter_int8(&parameters, (int64_t) length);
	error = query_run(source->pool, slot_of(source, node), statement, &parameters, &result);
	return error != 0 ? error : buffer_from_result(buffer, result, 0);
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

static int
fs_read_batch(struct source *source, struct node *node, const char *from,
			  content_receiver receive, void *context)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, readdir_content, &parameters);
	char		before[NAME_BYTES];
	PGresult   *result;
	int			error;

	parameter_int8(&parameters, (int64_t) node->attributes.ino);
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

/* The one value that a statement gives; ESTALE: no row. */
static int
ask_value(struct source *source, int statement, struct parameters *parameters,
		  struct buffer *buffer)
{
	PGresult   *result;
	int			error = query_run(source->pool, -1, statement, parameters, &result);

	return error != 0 ? error : buffer_from_result(buffer, result, 0);
}

static int
fs_readlink(struct source *source, struct node *node, struct buffer *buffer)
{
	struct parameters parameters = {0};
	int			statement = CALL(source, node, readlink, &parameters);
	int			error;

	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	error = ask_value(source, statement, &parameters, buffer);
	return error == ESTALE ? EINVAL : error;
}

static int
fs_pin(struct source *source, struct node *node, int64_t handle)
{
	int			error = EAGAIN;

	for (int attempt = 0; attempt < 3 && error == EAGAIN; attempt++)
	{
		struct fs_source *fs = (struct fs_source *) source;
		struct parameters parameters = {0};
		bool		in_snapshot = node->attributes.snapshot > 0;
		PGresult   *result;

		pins_parameters(source, &parameters, handle);
		if (in_snapshot)
			parameter_int8(&parameters, node->attributes.snapshot);
		parameter_int8(&parameters, (int64_t) node->attributes.ino);
		parameter_int8(&parameters, fs_get_version(&node->attributes.version));
		error = query_run(source->pool, -1, in_snapshot ? fs->snapshot.pin : fs->current.pin,
						  &parameters, &result);
		if (error == 0)
		{
			error = pins_judge(source, result);
			PQclear(result);
		}
	}
	return error;
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

	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_int8(&parameters, fs_get_version(&node->attributes.version));
	return ask_value(source, statement, &parameters, buffer);
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
	{
		buffer->data = format_string("%lld", (long long) node->attributes.size);
		buffer->length = strlen(buffer->data);
		return 0;
	}
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_bytes(&parameters, name, strlen(name));
	error = ask_value(source, statement, &parameters, buffer);
	return error == ESTALE ? ENODATA : error;
}

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
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
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
	PGresult   *result;
	int			error = node->attributes.snapshot == 0 ? 0 : ESTALE;

	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	if (error == 0)
		error = query_run(source->pool, -1, fs->parent, &parameters, &result);
	if (error != 0)
		return error;
	error = PQntuples(result) == 0 ? ESTALE : fs_attributes(result, 0, 0, attributes);
	PQclear(result);
	return error;
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

/* SELECT * FROM a function of the schema, with a number of parameters; columns and rows of the
 * answer. */
static int
add_call(struct fs_source *fs, const char *prefix, const char *function, int parameters,
		 int columns, int rows)
{
	char		list[MAX_PARAMETERS * 5] = "";
	size_t		length = 0;
	char	   *sql;
	int			statement;

	parameters += *prefix != '\0';
	for (int i = 1; i <= parameters; i++)
		length += (size_t) snprintf(list + length, sizeof(list) - length, "%s$%d",
									i > 1 ? ", " : "", i);
	sql = format_string("SELECT * FROM %s.%s%s(%s)%s", fs->source.schema, prefix, function, list,
						rows == 1 ? " LIMIT 1" : "");
	statement = pool_add_statement(fs->source.pool, sql, columns, rows);
	free(sql);
	return statement;
}

static void
add_calls(struct fs_source *fs, const char *prefix, struct calls *calls)
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
	calls->sha256 = pool_add_statement(fs->source.pool, digest, 1, 1);
	if (fs->source.has_pins)
		calls->pin = pool_add_statement(fs->source.pool, sql, 1, 1);
	free(digest);
	free(sql);
}

/* The first field of a query with one parameter or none, copied; NULL: no row, or NULL. */
static char *
ask(struct connection *connection, const char *sql, const char *parameter)
{
	char	   *error = NULL;
	char	   *answer = ask_once(connection->pg, sql, parameter ? 1 : 0, &parameter, &error);

	if (error != NULL)
		fatal("%s", error);
	return answer;
}

static void
check_file_system(struct fs_source *fs, struct connection *connection,
				  const struct options *options)
{
	const struct members *members = &fs->source.members;
	char	   *answer;

	if (members->blobext == NULL || !members->has_blobfs)
		fatal("this database has no extension blobfs, or not all of it for this program:"
			  " CREATE EXTENSION blobfs CASCADE");
	if (members->lacks != NULL)
		fatal("the extension blobext of this database lacks %s: ALTER EXTENSION blobext UPDATE",
			  members->lacks);
	fs->source.schema = ask(connection, "SELECT pg_catalog.quote_ident($1::pg_catalog.text)",
							options->fs);
	answer = ask(connection, "SELECT true FROM pg_catalog.pg_class AS c"
				 " JOIN pg_catalog.pg_namespace AS n"
				 " ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
				 " WHERE n.nspname OPERATOR(pg_catalog.=) $1::pg_catalog.name"
				 " AND c.relname OPERATOR(pg_catalog.=) 'dentry'::pg_catalog.name", options->fs);
	if (answer == NULL || fs->source.schema == NULL)
		fatal("there is no file system \"%s\": SELECT blobfs.create('%s') makes one", options->fs,
			  options->fs);
	free(answer);
	answer = ask(connection, "SELECT true WHERE pg_catalog.has_schema_privilege("
				 "$1::pg_catalog.text, 'USAGE')", options->fs);
	if (answer == NULL)
		fatal("this role may not use schema \"%s\"", options->fs);
	free(answer);
	trust_owner(&fs->source, connection);
	answer = ask(connection, "SELECT true WHERE pg_catalog.to_regprocedure(pg_catalog.concat("
				 "pg_catalog.quote_ident($1::pg_catalog.text), '.channel()')) IS NULL",
				 options->fs);
	if (answer != NULL)
		message("file system \"%s\" has functions of an earlier version: ALTER EXTENSION blobfs"
				" UPDATE; SELECT blobfs.upgrade('%s')", options->fs, options->fs);
	free(answer);
}

static void
find_channel(struct fs_source *fs, struct connection *connection, const struct options *options)
{
	char	   *answer;

	if (!options->notify)
		return;
	answer = ask(connection, "SELECT true FROM pg_catalog.pg_trigger AS t"
				 " WHERE t.tgname OPERATOR(pg_catalog.=) 'notify_dentry'::pg_catalog.name"
				 " AND t.tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(pg_catalog.concat("
				 "pg_catalog.quote_ident($1::pg_catalog.text), '.dentry'))::pg_catalog.oid",
				 options->fs);
	if (answer == NULL)
		fatal("file system \"%s\" does not notify of changes: SELECT blobfs.set_notify('%s', true)",
			  options->fs, options->fs);
	free(answer);
	fs->source.channel = ask(connection, "SELECT blobfs.channel($1::pg_catalog.name)", options->fs);
	if (fs->source.channel == NULL)
		fatal("file system \"%s\" has no channel for notifications", options->fs);
}

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
	free(ask(connection, sql, NULL));
	pool_give(connection);
	free(sql);
	error = options->at ? find_snapshot(source, options->at, &source->root) :
		fs_getattr(source, &root, &source->root);
	if (error == ENOENT)
		fatal("file system \"%s\" has no snapshot \"%s\"", options->fs, options->at);
	if (error != 0)
		fatal("file system \"%s\" has no root: %s", options->fs, strerror(error));
}

/* The number of a snapshot by its name, $1, or of all, with their names; the parent of an inode. */
static void
add_others(struct fs_source *fs)
{
	char	   *sql = format_string("SELECT s.snapshot, s.name FROM %s.snapshots() AS s"
									" WHERE $1::pg_catalog.bytea IS NULL"
									" OR s.name OPERATOR(pg_catalog.=) $1::pg_catalog.bytea",
									fs->source.schema);

	fs->snapshots = pool_add_statement(fs->source.pool, sql, 2, MAX_NAMES);
	free(sql);
	fs->statfs = add_call(fs, "", "statfs", 0, 5, 1);
	sql = format_string("SELECT a.* FROM %s.names($1) AS n, %s.getattr(n.parent) AS a LIMIT 1",
						fs->source.schema, fs->source.schema);
	fs->parent = pool_add_statement(fs->source.pool, sql, ATTRIBUTE_COLUMNS, 1);
	free(sql);
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
	pool_set_settings(pool, connection, settings);
	trust_begin(source, connection);
	check_file_system(fs, connection, options);
	find_channel(fs, connection, options);
	pool_give(connection);
	pins_create(source);
	add_calls(fs, "", &fs->current);
	add_calls(fs, "snapshot_", &fs->snapshot);
	add_others(fs);
	find_root(fs, options);
	return source;
}
