/*
 * writing/group.c
 *	  Transactions of many files, see group.h; mount/WRITING.md has what they promise.
 */
#include "writing/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/query.h"

/* Inode numbers that no inode has; sources/fs.c has the one before them. */
static const uint64_t control_ino = (UINT64_C(1) << 62) + 1;
static const uint64_t tx_ino = (UINT64_C(1) << 62) + 2;
static const uint64_t commit_ino = (UINT64_C(1) << 62) + 3;

#define CONTROL_NAME ".blobfs"
#define TX_NAME "tx"
#define COMMIT_NAME "commit"

/* Hashes of names, with their directories. */
struct names
{
	uint64_t   *slots;			/* 0: free */
	size_t		room;			/* a power of 2, or 0 */
	size_t		count;
};

struct group
{
	struct group *next;
	char	   *name;
	int64_t		number;			/* negative: the snapshot of its nodes */
	struct connection *connection;
	bool		is_ending;		/* no request gets in any more */
	bool		is_ended;		/* nor does the sender: COMMIT or ROLLBACK comes next */
	int			error;			/* of a file that was sent after its close() */
	struct names names;			/* that it has made, and "" in directories that it has made */
};

struct groups
{
	struct writer *writer;
	const struct source_operations *inner;
	struct source_operations operations;
	pthread_mutex_t lock;		/* of the list and its members */
	struct group *first;
	int64_t		last_number;
};

/* The operations of a source have no other way to this. */
static struct groups *the_groups;

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

/* ---- the list ---- */

/* Under the lock. */
static struct group *
find_group(struct groups *groups, const char *name, int64_t number)
{
	struct group *group = groups->first;

	while (group != NULL && !(name ? strcmp(group->name, name) == 0 : group->number == number))
		group = group->next;
	return group;
}

void
group_bind(struct mount *mount, const struct node *node)
{
	struct groups *groups = the_groups;
	struct group *group;

	if (groups == NULL || node->attributes.snapshot >= 0)
		return;
	pthread_mutex_lock(&groups->lock);
	group = find_group(groups, NULL, node->attributes.snapshot);
	pool_bind(group && !group->is_ending ? group->connection : NULL);
	pthread_mutex_unlock(&groups->lock);
}

void
group_bind_always(int64_t number)
{
	struct group *group;

	pthread_mutex_lock(&the_groups->lock);
	group = find_group(the_groups, NULL, number);
	pool_bind(group && !group->is_ended ? group->connection : NULL);
	pthread_mutex_unlock(&the_groups->lock);
}

void
group_fail(int64_t number, int error)
{
	struct group *group;

	pthread_mutex_lock(&the_groups->lock);
	group = find_group(the_groups, NULL, number);
	if (group != NULL && group->error == 0)
		group->error = error;
	pthread_mutex_unlock(&the_groups->lock);
}

/* ---- names that a group has made ---- */

static uint64_t
hash_name(uint64_t directory, const char *name)
{
	uint64_t	hash = UINT64_C(14695981039346656037) ^ (directory * UINT64_C(0x9e3779b97f4a7c15));

	for (; *name != '\0'; name++)
		hash = (hash ^ (unsigned char) *name) * UINT64_C(1099511628211);
	hash ^= hash >> 32;
	return hash != 0 ? hash : 1;
}

/* The slot of a hash, or the free one where it belongs. */
static uint64_t *
find_slot(const struct names *names, uint64_t hash)
{
	size_t		i = hash & (names->room - 1);

	while (names->slots[i] != 0 && names->slots[i] != hash)
		i = (i + 1) & (names->room - 1);
	return &names->slots[i];
}

static bool
has_hash(const struct names *names, uint64_t hash)
{
	return names->room > 0 && *find_slot(names, hash) != 0;
}

static void
add_hash(struct names *names, uint64_t hash)
{
	if (2 * names->count >= names->room)
	{
		struct names larger = {.room = names->room > 0 ? 2 * names->room : 256};

		larger.slots = allocate(larger.room * sizeof(uint64_t));
		for (size_t i = 0; i < names->room; i++)
			if (names->slots[i] != 0)
				add_hash(&larger, names->slots[i]);
		free(names->slots);
		*names = larger;
	}
	if (!has_hash(names, hash))
	{
		*find_slot(names, hash) = hash;
		names->count++;
	}
}

static void
note_hash(int64_t number, uint64_t hash)
{
	struct group *group;

	if (number >= 0)
		return;
	pthread_mutex_lock(&the_groups->lock);
	group = find_group(the_groups, NULL, number);
	if (group != NULL)
		add_hash(&group->names, hash);
	pthread_mutex_unlock(&the_groups->lock);
}

void
group_note_directory(const struct node *parent, int64_t ino)
{
	note_hash(parent->attributes.snapshot, hash_name((uint64_t) ino, ""));
}

void
group_note_name(const struct node *parent, const char *name)
{
	note_hash(parent->attributes.snapshot, hash_name(parent->attributes.ino, name));
}

bool
group_has_made(int64_t number, uint64_t directory)
{
	struct group *group;
	bool		has_made;

	if (number >= 0)
		return false;
	pthread_mutex_lock(&the_groups->lock);
	group = find_group(the_groups, NULL, number);
	has_made = group != NULL && !group->is_ending &&
		has_hash(&group->names, hash_name(directory, ""));
	pthread_mutex_unlock(&the_groups->lock);
	return has_made;
}

/* A directory that the group has made has its own times already; no name is "/". */
bool
group_touches(uint64_t directory, int64_t snapshot)
{
	uint64_t	hash = hash_name(directory, "/");
	struct group *group;
	bool		touches = true;

	if (snapshot >= 0)
		return true;
	pthread_mutex_lock(&the_groups->lock);
	group = find_group(the_groups, NULL, snapshot);
	if (group != NULL)
	{
		touches = !has_hash(&group->names, hash) &&
			!has_hash(&group->names, hash_name(directory, ""));
		add_hash(&group->names, hash);
	}
	pthread_mutex_unlock(&the_groups->lock);
	return touches;
}

/* Whether it is known that a directory has no such name. */
static bool
lacks_name(struct groups *groups, const struct node *directory, const char *name)
{
	uint64_t	ino = directory->attributes.ino;
	struct group *group;
	bool		lacks;

	if (directory->attributes.snapshot >= 0)
		return false;
	pthread_mutex_lock(&groups->lock);
	group = find_group(groups, NULL, directory->attributes.snapshot);
	lacks = group != NULL && has_hash(&group->names, hash_name(ino, "")) &&
		!has_hash(&group->names, hash_name(ino, name));
	pthread_mutex_unlock(&groups->lock);
	return lacks;
}

/* ---- begin and end ---- */

/* The group of a name, closed to other requests, with the calling thread bound to it. */
static int
begin_end(struct groups *groups, const char *name, struct group **group)
{
	int			error = 0;

	pthread_mutex_lock(&groups->lock);
	*group = find_group(groups, name, 0);
	if (*group == NULL)
		error = ENOENT;
	else if ((*group)->is_ending)
		error = EBUSY;
	else
	{
		(*group)->is_ending = true;
		pool_bind_alone((*group)->connection);
	}
	pthread_mutex_unlock(&groups->lock);
	return error;
}

/*
 * Files of the group in the sender's queue get ESTALE from now on: behind COMMIT or ROLLBACK each
 * would be a transaction of its own.  A file that the sender has begun with is done before.
 */
static void
end_sending(struct groups *groups, struct group *group)
{
	pthread_mutex_lock(&groups->lock);
	group->is_ended = true;
	pool_bind_alone(group->connection);
	pthread_mutex_unlock(&groups->lock);
}

/* False: there is one of this name. */
static bool
add_group(struct groups *groups, struct group *group)
{
	bool		is_new;

	pthread_mutex_lock(&groups->lock);
	is_new = find_group(groups, group->name, 0) == NULL;
	if (is_new)
	{
		group->number = --groups->last_number;
		group->next = groups->first;
		groups->first = group;
	}
	pthread_mutex_unlock(&groups->lock);
	return is_new;
}

static void
free_group(struct group *group)
{
	pool_unreserve(group->connection);
	free(group->names.slots);
	free(group->name);
	free(group);
}

static void
forget_group(struct groups *groups, struct group *group)
{
	struct group **link = &groups->first;

	pthread_mutex_lock(&groups->lock);
	while (*link != group)
		link = &(*link)->next;
	*link = group->next;
	pthread_mutex_unlock(&groups->lock);
	free_group(group);
}

/*
 * The root as the group sees it; the calling thread is bound to the group.  A group whose
 * transaction has failed has a root, too, so that it can be removed.
 */
static void
root_attributes(struct groups *groups, int64_t number, struct attributes *attributes)
{
	struct source *source = groups->writer->mount->source;
	struct node root = {.attributes = {.ino = 1, .snapshot = number}};

	if (groups->inner->getattr(source, &root, attributes) != 0)
		*attributes = source->root;
	attributes->snapshot = number;
}

int
group_begin(struct mount *mount, const struct node *parent, const char *name,
			struct attributes *attributes)
{
	struct groups *groups = the_groups;
	struct group *group;
	int			error;

	if (parent->attributes.ino != tx_ino)
		return EPERM;
	group = allocate(sizeof(*group));
	error = pool_reserve(mount->pool, &group->connection);
	if (error != 0)
	{
		free(group);
		return error;
	}
	group->name = copy_string(name);
	if (!add_group(groups, group))
	{
		free_group(group);
		return EEXIST;
	}
	pool_bind(group->connection);
	error = query_bound("BEGIN");
	if (error != 0)
		forget_group(groups, group);
	else
		root_attributes(groups, group->number, attributes);
	return error;
}

int
group_roll_back(struct mount *mount, const struct node *parent, const char *name)
{
	struct groups *groups = the_groups;
	struct group *group;
	int			error = parent->attributes.ino == tx_ino ? 0 : EPERM;

	if (error == 0)
		error = begin_end(groups, name, &group);
	if (error != 0)
		return error;
	end_sending(groups, group);
	copies_give_up(groups->writer, group->number);
	/* A connection that is lost has rolled back. */
	query_bound("ROLLBACK");
	transactions_forget_mark(groups->writer->transactions, group->connection);
	forget_group(groups, group);
	return 0;
}

static int
get_error(struct groups *groups, const struct group *group)
{
	int			error;

	pthread_mutex_lock(&groups->lock);
	error = group->error;
	pthread_mutex_unlock(&groups->lock);
	return error;
}

/*
 * Open files are committed with their present content, and closed ones that the sender has not
 * reached: waiting for it would be waiting for other groups.  If that fails, or COMMIT does,
 * nothing of the transaction remains.
 */
int
group_commit(struct mount *mount, const struct node *parent, const char *name,
			 const struct node *new_parent)
{
	struct groups *groups = the_groups;
	struct writer *writer = groups->writer;
	struct group *group;
	int			sender_error;
	int			error = 0;

	if (parent->attributes.ino != tx_ino || new_parent->attributes.ino != commit_ino)
		error = EXDEV;
	if (error == 0)
		error = begin_end(groups, name, &group);
	if (error != 0)
		return error;
	error = copies_commit(writer, group->number);
	end_sending(groups, group);
	/* The error that came first is the cause of the others. */
	sender_error = get_error(groups, group);
	if (sender_error != 0)
		error = sender_error;
	if (error == 0)
		error = transactions_commit_bound(writer->transactions);
	else
		query_bound("ROLLBACK");
	copies_give_up(writer, group->number);
	transactions_forget_mark(writer->transactions, group->connection);
	forget_group(groups, group);
	return error;
}

/* ---- operations of the source ---- */

static int
lookup(struct source *source, struct node *parent, const char *name, struct attributes *attributes)
{
	struct groups *groups = the_groups;
	struct group *group;
	uint64_t	ino = 0;
	int64_t		number;

	if (!group_is_virtual(parent))
	{
		if (parent->id != ROOT_ID || strcmp(name, CONTROL_NAME) != 0)
			return lacks_name(groups, parent, name) ? ENOENT :
				groups->inner->lookup(source, parent, name, attributes);
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
	pthread_mutex_lock(&groups->lock);
	group = find_group(groups, name, 0);
	number = group && !group->is_ending ? group->number : 0;
	if (number != 0)
		pool_bind(group->connection);
	pthread_mutex_unlock(&groups->lock);
	if (number == 0)
		return ENOENT;
	root_attributes(groups, number, attributes);
	return 0;
}

static int
getattr(struct source *source, struct node *node, struct attributes *attributes)
{
	if (node->attributes.ino == 1 && node->attributes.snapshot < 0)
	{
		root_attributes(the_groups, node->attributes.snapshot, attributes);
		return 0;
	}
	if (!group_is_virtual(node))
		return the_groups->inner->getattr(source, node, attributes);
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
	struct groups *groups = the_groups;

	if (!group_is_virtual(directory))
		return groups->inner->list(source, directory, position, receive, context);
	position->complete = true;
	if (directory->attributes.ino == control_ino)
	{
		list_virtual(source, tx_ino, TX_NAME, receive, context);
		list_virtual(source, commit_ino, COMMIT_NAME, receive, context);
	}
	if (directory->attributes.ino != tx_ino)
		return 0;
	pthread_mutex_lock(&groups->lock);
	for (struct group *group = groups->first; group != NULL; group = group->next)
	{
		struct directory_entry entry = {.name = group->name, .attributes = source->root};

		entry.attributes.snapshot = group->number;
		receive(context, &entry);
	}
	pthread_mutex_unlock(&groups->lock);
	return 0;
}

static int
getxattr_(struct source *source, struct node *node, const char *name, struct buffer *buffer)
{
	return group_is_virtual(node) ? ENODATA :
		the_groups->inner->getxattr(source, node, name, buffer);
}

static int
listxattr_(struct source *source, struct node *node, struct buffer *buffer)
{
	return group_is_virtual(node) ? ENODATA : the_groups->inner->listxattr(source, node, buffer);
}

struct groups *
groups_create(struct writer *writer)
{
	struct groups *groups = allocate(sizeof(*groups));
	struct source *source = writer->mount->source;

	groups->writer = writer;
	groups->inner = source->operations;
	groups->operations = *source->operations;
	groups->operations.lookup = lookup;
	groups->operations.getattr = getattr;
	groups->operations.list = list;
	groups->operations.getxattr = getxattr_;
	groups->operations.listxattr = listxattr_;
	pthread_mutex_init(&groups->lock, NULL);
	the_groups = groups;
	source->operations = &groups->operations;
	return groups;
}

/* A transaction that is not committed is rolled back by the end of its connection. */
void
groups_destroy(struct groups *groups)
{
	groups->writer->mount->source->operations = groups->inner;
	while (groups->first != NULL)
		forget_group(groups, groups->first);
	the_groups = NULL;
	free(groups);
}
