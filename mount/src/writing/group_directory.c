/*
 * writing/group_directory.c
 *	  The directory ".blobfs", where transactions of many files begin and end.
 */
#include "writing/group_directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/query.h"
#include "sources/fs_row.h"
#include "writing/commit.h"
#include "writing/copies.h"

/* sources/fs.c has the one before them. */
static const uint64_t control_ino = FS_FIRST_FOREIGN_INO + 1;
static const uint64_t tx_ino = FS_FIRST_FOREIGN_INO + 2;
static const uint64_t commit_ino = FS_FIRST_FOREIGN_INO + 3;

#define CONTROL_NAME ".blobfs"
#define TX_NAME "tx"
#define COMMIT_NAME "commit"

/* The operations of a source have no other way to these. */
static struct writer *the_writer;
static const struct source_operations *inner;
static struct source_operations operations;

bool
group_is_virtual(const struct node *node)
{
	return node->attributes.ino >= control_ino && node->attributes.ino <= commit_ino &&
		node->attributes.snapshot == 0;
}

/* All users may begin a transaction: the mount has the rights of one role for all of them. */
static void
virtual_attributes(const struct source *source, uint64_t ino, struct attributes *attributes)
{
	*attributes = source->root;
	attributes->ino = ino;
	attributes->mode = S_IFDIR | (ino == control_ino ? 0555 : 0777);
	attributes->nlink = 2;
}

/*
 * The root as the group sees it; the calling thread is bound to the group.  A group whose
 * transaction has failed has a root, too, so that it can be removed.
 */
static void
root_attributes(int64_t number, struct attributes *attributes)
{
	struct source *source = the_writer->source;
	struct node root = {.attributes = {.ino = 1, .snapshot = number}};

	if (inner->getattr(source, &root, attributes) != 0)
		*attributes = source->root;
	attributes->snapshot = number;
}

int
group_begin(const struct node *parent, const char *name,
			struct attributes *attributes)
{
	struct group *group;
	int			error;

	if (parent->attributes.ino != tx_ino)
		return EPERM;
	group = allocate(sizeof(*group));
	error = pool_reserve(the_writer->source->pool, &group->connection);
	if (error != 0)
	{
		free(group);
		return error;
	}
	group->name = copy_string(name);
	if (!group_add(group))
	{
		group_free(group);
		return EEXIST;
	}
	pool_bind(group->connection);
	error = query_bound("BEGIN");
	if (error != 0)
		group_forget(group);
	else
		root_attributes(group->number, attributes);
	return error;
}

int
group_roll_back(const struct node *parent, const char *name)
{
	struct group *group;
	int			error = parent->attributes.ino == tx_ino ? 0 : EPERM;

	if (error == 0)
		error = group_begin_end(name, &group);
	if (error != 0)
		return error;
	group_end_sending(group);
	copies_give_up(the_writer, group->number);
	/* A connection that is lost has rolled back. */
	query_bound("ROLLBACK");
	transactions_forget_mark(the_writer->transactions, group->connection);
	group_forget(group);
	return 0;
}

/*
 * Open files are committed with their present content, and closed ones that the sender has not
 * reached: waiting for it would be waiting for other groups.  If that fails, or COMMIT does,
 * nothing of the transaction remains.
 */
int
group_commit(const struct node *parent, const char *name,
			 const struct node *new_parent)
{
	struct writer *writer = the_writer;
	struct group *group;
	int			sender_error;
	int			error = 0;

	if (parent->attributes.ino != tx_ino || new_parent->attributes.ino != commit_ino)
		error = EXDEV;
	if (error == 0)
		error = group_begin_end(name, &group);
	if (error != 0)
		return error;
	error = copies_commit(writer, group->number);
	group_end_sending(group);
	/* The error that came first is the cause of the others. */
	sender_error = group_error(group);
	if (sender_error != 0)
		error = sender_error;
	if (error == 0)
		error = transactions_commit_bound(writer->transactions);
	else
		query_bound("ROLLBACK");
	copies_give_up(writer, group->number);
	transactions_forget_mark(writer->transactions, group->connection);
	group_forget(group);
	return error;
}

/* ".blobfs" in the root, its own names, and a group's names, of which some need no look-up. */
static int
lookup(struct source *source, struct node *parent, const char *name, struct attributes *attributes)
{
	uint64_t	ino = 0;
	int64_t		number;

	if (!group_is_virtual(parent))
	{
		if (parent->id != ROOT_ID || strcmp(name, CONTROL_NAME) != 0)
			return group_lacks_name(parent, name) ? ENOENT :
				inner->lookup(source, parent, name, attributes);
		ino = control_ino;
	}
	else if (parent->attributes.ino == control_ino)
		ino = strcmp(name, TX_NAME) == 0 ? tx_ino : strcmp(name, COMMIT_NAME) == 0 ? commit_ino : 0;
	if (ino != 0)
	{
		virtual_attributes(source, ino, attributes);
		return 0;
	}
	if (parent->attributes.ino != tx_ino)
		return ENOENT;
	number = group_bind_name(name);
	if (number == 0)
		return ENOENT;
	root_attributes(number, attributes);
	return 0;
}

static int
getattr(struct source *source, struct node *node, struct attributes *attributes)
{
	if (node->attributes.ino == 1 && node->attributes.snapshot < 0)
	{
		root_attributes(node->attributes.snapshot, attributes);
		return 0;
	}
	if (!group_is_virtual(node))
		return inner->getattr(source, node, attributes);
	virtual_attributes(source, node->attributes.ino, attributes);
	return 0;
}

static void
list_virtual(struct source *source, uint64_t ino, const char *name, entry_receiver receive,
			 void *context)
{
	struct directory_entry entry = {.name = name};

	virtual_attributes(source, ino, &entry.attributes);
	receive(context, &entry);
}

static int
list(struct source *source, struct node *directory, struct listing_position *position,
	 entry_receiver receive, void *context)
{

	if (!group_is_virtual(directory))
		return inner->list(source, directory, position, receive, context);
	position->complete = true;
	if (directory->attributes.ino == control_ino)
	{
		list_virtual(source, tx_ino, TX_NAME, receive, context);
		list_virtual(source, commit_ino, COMMIT_NAME, receive, context);
	}
	if (directory->attributes.ino == tx_ino)
		group_list(source, receive, context);
	return 0;
}

static int
getxattr_(struct source *source, struct node *node, const char *name, struct buffer *buffer)
{
	return group_is_virtual(node) ? ENODATA :
		inner->getxattr(source, node, name, buffer);
}

static int
listxattr_(struct source *source, struct node *node, struct buffer *buffer)
{
	return group_is_virtual(node) ? ENODATA : inner->listxattr(source, node, buffer);
}

void
group_directory_create(struct writer *writer)
{
	the_writer = writer;
	inner = writer->source->operations;
	operations = *inner;
	operations.lookup = lookup;
	operations.getattr = getattr;
	operations.list = list;
	operations.getxattr = getxattr_;
	operations.listxattr = listxattr_;
	writer->source->operations = &operations;
}
