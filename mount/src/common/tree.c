/*
 * common/tree.c
 *	  The nodes that the kernel knows.
 *
 * Two hash tables, by id and by inode number, under one lock.  Versions and snapshots of an inode
 * are in one chain.  Nothing that waits happens under the lock.
 */
#include "common/tree.h"

#include <stdlib.h>
#include <string.h>

#include "common/errors.h"

enum
{
	FIRST_BUCKETS = 1024,
	/* st_blksize.  Python reads and writes so much at once, also for ten bytes; cp and cat take
	 * 128 kB of themselves.  (docs/mount.md has what it costs.) */
	BUFFER_BYTES = 64 * 1024,
	/* st_ino of a snapshot's inode: find, tar and rsync must not take it for the current one. */
	SNAPSHOT_SHIFT = 44
};

/* Ids that are no number of an inode begin here. */
static const uint64_t first_other_id = UINT64_C(1) << 60;

struct tree
{
	pthread_mutex_t lock;
	bool		with_paths;
	uint64_t	next_id;
	size_t		count;
	size_t		buckets;		/* a power of 2 */
	struct node **by_id;
	struct node **by_key;
	struct node *root;
};

static size_t
hash_number(uint64_t number)
{
	number ^= number >> 33;
	number *= UINT64_C(0xff51afd7ed558ccd);
	number ^= number >> 33;
	return (size_t) number;
}

static struct node **
id_bucket(struct tree *tree, uint64_t id)
{
	return &tree->by_id[hash_number(id) & (tree->buckets - 1)];
}

static struct node **
key_bucket(struct tree *tree, uint64_t ino)
{
	return &tree->by_key[hash_number(ino) & (tree->buckets - 1)];
}

static void
link_node(struct tree *tree, struct node *node)
{
	struct node **bucket = id_bucket(tree, node->id);

	node->next_by_id = *bucket;
	*bucket = node;
	bucket = key_bucket(tree, node->attributes.ino);
	node->next_by_key = *bucket;
	*bucket = node;
}

static void
unlink_node(struct tree *tree, struct node *node)
{
	struct node **link = id_bucket(tree, node->id);

	while (*link != node)
		link = &(*link)->next_by_id;
	*link = node->next_by_id;
	link = key_bucket(tree, node->attributes.ino);
	while (*link != node)
		link = &(*link)->next_by_key;
	*link = node->next_by_key;
}

/* Under the lock: twice as many buckets. */
static void
grow(struct tree *tree)
{
	struct node **old = tree->by_id;
	size_t		old_buckets = tree->buckets;

	free(tree->by_key);
	tree->buckets *= 2;
	tree->by_id = allocate(tree->buckets * sizeof(struct node *));
	tree->by_key = allocate(tree->buckets * sizeof(struct node *));
	for (size_t i = 0; i < old_buckets; i++)
	{
		struct node *next;

		for (struct node *node = old[i]; node != NULL; node = next)
		{
			next = node->next_by_id;
			link_node(tree, node);
		}
	}
	free(old);
}

static struct node *
allocate_node(uint64_t id, const struct attributes *attributes)
{
	struct node *node = allocate(sizeof(*node));

	node->id = id;
	node->attributes = *attributes;
	pthread_mutex_init(&node->lock, NULL);
	clock_gettime(CLOCK_MONOTONIC, &node->attributes_at);
	return node;
}

static struct node *
make_node(struct tree *tree, uint64_t id, const struct attributes *attributes)
{
	struct node *node = allocate_node(id, attributes);

	if (tree->count++ >= tree->buckets)
		grow(tree);
	link_node(tree, node);
	return node;
}

static void
free_node(struct node *node)
{
	pthread_mutex_destroy(&node->lock);
	free(node->path);
	free(node->name);
	free(node->last_read_name);
	free(node);
}

static void
free_if_unused(struct tree *tree, struct node *node)
{
	if (node->lookups > 0 || node->holds > 0 || node == tree->root)
		return;
	if (!node->is_private)
	{
		unlink_node(tree, node);
		tree->count--;
	}
	free_node(node);
}

struct tree *
tree_create(bool with_paths, const struct attributes *root)
{
	struct tree *tree = allocate(sizeof(*tree));

	pthread_mutex_init(&tree->lock, NULL);
	tree->with_paths = with_paths;
	tree->next_id = first_other_id;
	tree->buckets = FIRST_BUCKETS;
	tree->by_id = allocate(tree->buckets * sizeof(struct node *));
	tree->by_key = allocate(tree->buckets * sizeof(struct node *));
	tree->root = make_node(tree, ROOT_ID, root);
	if (with_paths)
		tree->root->path = copy_string("");
	return tree;
}

static struct node *
find_id(struct tree *tree, uint64_t id)
{
	struct node *node = *id_bucket(tree, id);

	while (node != NULL && node->id != id)
		node = node->next_by_id;
	return node;
}

struct node *
tree_find(struct tree *tree, uint64_t id)
{
	struct node *node;

	if (id == ROOT_ID)
		return tree->root;
	pthread_mutex_lock(&tree->lock);
	node = find_id(tree, id);
	pthread_mutex_unlock(&tree->lock);
	return node;
}

struct node *
tree_find_held(struct tree *tree, uint64_t id)
{
	struct node *node;

	pthread_mutex_lock(&tree->lock);
	node = find_id(tree, id);
	if (node != NULL)
		node->holds++;
	pthread_mutex_unlock(&tree->lock);
	return node;
}

/*
 * Under the lock.  path: of the table view, where two paths may have the same inode number, which
 * is a hash; else NULL.  or_written: if a node of the inode is written, that one.
 */
static struct node *
search_key(struct tree *tree, const struct attributes *attributes, const char *path,
		   bool or_written)
{
	struct node *found = NULL;
	struct node *node;

	for (node = *key_bucket(tree, attributes->ino); node != NULL; node = node->next_by_key)
	{
		if (node->attributes.ino != attributes->ino ||
			node->attributes.snapshot != attributes->snapshot ||
			(path != NULL && strcmp(path, node->path) != 0))
			continue;
		if (or_written && node->written)
			return node;
		if (found == NULL &&
			(node->attributes.mode & S_IFMT) == (attributes->mode & S_IFMT) &&
			memcmp(&node->attributes.version, &attributes->version, sizeof(struct version)) == 0)
			found = node;
	}
	return found;
}

/* Remember where a node was found: its directory's id and its name there. */
static void
set_name(struct tree *tree, struct node *node, struct node *parent, const char *name)
{
	if (node->name != NULL && node->parent_id == parent->id && strcmp(node->name, name) == 0)
		return;
	free(node->name);
	node->name = copy_string(name);
	node->parent_id = parent->id;
}

/*
 * Size, time and version of a written node belong to its working copy; all else is the source's.
 * Needs the node's lock.
 */
static void
take_attributes(struct node *node, const struct attributes *attributes)
{
	if (!node->written)
	{
		node->attributes = *attributes;
		clock_gettime(CLOCK_MONOTONIC, &node->attributes_at);
		return;
	}
	attributes_of_inode(&node->attributes, attributes);
}

/*
 * The first version of an inode that the kernel learns of has the inode's number, so that this
 * leads to the inode when both sides have forgotten the node (tree_enter_id).  Not in snapshots and
 * groups, whose inodes have the numbers of others, nor where inodes are found by their paths.
 */
static uint64_t
choose_id(struct tree *tree, const struct attributes *attributes)
{
	bool		is_number = !tree->with_paths && attributes->snapshot == 0 &&
		attributes->ino < first_other_id && find_id(tree, attributes->ino) == NULL;

	return is_number ? attributes->ino : tree->next_id++;
}

struct node *
tree_enter(struct tree *tree, struct node *parent, const char *name,
		   const struct attributes *attributes)
{
	struct node *node;
	char	   *path = NULL;

	if (tree->with_paths)
		path = *parent->path == '\0' ? copy_string(name) :
			format_string("%s/%s", parent->path, name);
	pthread_mutex_lock(&tree->lock);
	node = search_key(tree, attributes, path, true);
	if (node == NULL)
	{
		node = make_node(tree, choose_id(tree, attributes), attributes);
		node->path = path;
		path = NULL;
	}
	pthread_mutex_lock(&node->lock);
	take_attributes(node, attributes);
	if (!S_ISDIR(attributes->mode))
		set_name(tree, node, parent, name);
	pthread_mutex_unlock(&node->lock);
	node->lookups++;
	pthread_mutex_unlock(&tree->lock);
	free(path);
	return node;
}

struct node *
tree_enter_id(struct tree *tree, uint64_t id, const struct attributes *attributes)
{
	struct node *node;

	pthread_mutex_lock(&tree->lock);
	node = find_id(tree, id);
	if (node == NULL && attributes != NULL && attributes->ino == id &&
		search_key(tree, attributes, NULL, true) == NULL)
		node = make_node(tree, id, attributes);
	if (node != NULL)
		node->lookups++;
	pthread_mutex_unlock(&tree->lock);
	return node;
}

struct node *
tree_search(struct tree *tree, const struct attributes *attributes)
{
	struct node *node;

	pthread_mutex_lock(&tree->lock);
	node = search_key(tree, attributes, NULL, false);
	if (node != NULL)
		node->holds++;
	pthread_mutex_unlock(&tree->lock);
	return node;
}

void
tree_forget(struct tree *tree, uint64_t id, uint64_t lookups)
{
	struct node *node = tree_find(tree, id);

	if (node == NULL)
		return;
	pthread_mutex_lock(&tree->lock);
	node->lookups -= lookups < node->lookups ? lookups : node->lookups;
	free_if_unused(tree, node);
	pthread_mutex_unlock(&tree->lock);
}

void
tree_hold(struct tree *tree, struct node *node)
{
	pthread_mutex_lock(&tree->lock);
	node->holds++;
	pthread_mutex_unlock(&tree->lock);
}

void
tree_release(struct tree *tree, struct node *node)
{
	pthread_mutex_lock(&tree->lock);
	node->holds--;
	free_if_unused(tree, node);
	pthread_mutex_unlock(&tree->lock);
}

struct node *
tree_make_private(struct tree *tree, const struct attributes *attributes)
{
	struct node *node = allocate_node(0, attributes);

	node->is_private = true;
	node->holds = 1;
	return node;
}

void
tree_set_attributes(struct tree *tree, struct node *node, const struct attributes *attributes)
{
	pthread_mutex_lock(&tree->lock);
	pthread_mutex_lock(&node->lock);
	node->attributes = *attributes;
	clock_gettime(CLOCK_MONOTONIC, &node->attributes_at);
	pthread_mutex_unlock(&node->lock);
	pthread_mutex_unlock(&tree->lock);
}

void
tree_set_ino(struct tree *tree, struct node *node, uint64_t ino)
{
	pthread_mutex_lock(&tree->lock);
	unlink_node(tree, node);
	pthread_mutex_lock(&node->lock);
	node->attributes.ino = ino;
	pthread_mutex_unlock(&node->lock);
	link_node(tree, node);
	pthread_mutex_unlock(&tree->lock);
}

void
tree_set_version(struct tree *tree, struct node *node, const struct version *version)
{
	pthread_mutex_lock(&tree->lock);
	pthread_mutex_lock(&node->lock);
	node->attributes.version = *version;
	pthread_mutex_unlock(&node->lock);
	pthread_mutex_unlock(&tree->lock);
}

void
tree_set_written(struct tree *tree, struct node *node, bool written)
{
	pthread_mutex_lock(&tree->lock);
	node->written = written;
	pthread_mutex_unlock(&tree->lock);
}

void
tree_note_removed(struct tree *tree, uint64_t ino, int64_t snapshot)
{
	pthread_mutex_lock(&tree->lock);
	for (struct node *node = *key_bucket(tree, ino); node != NULL; node = node->next_by_key)
		if (node->attributes.ino == ino && node->attributes.snapshot == snapshot)
		{
			pthread_mutex_lock(&node->lock);
			node->attributes.nlink = 0;
			pthread_mutex_unlock(&node->lock);
		}
	pthread_mutex_unlock(&tree->lock);
}

void
tree_note_change(struct tree *tree, uint64_t ino, int64_t snapshot, const struct timespec *time)
{
	pthread_mutex_lock(&tree->lock);
	for (struct node *node = *key_bucket(tree, ino); node != NULL; node = node->next_by_key)
	{
		if (node->attributes.ino != ino || node->attributes.snapshot != snapshot)
			continue;
		pthread_mutex_lock(&node->lock);
		if (time != NULL)
			node->attributes.mtime = node->attributes.ctime = *time;
		else
			node->attributes_at = (struct timespec) {0};
		pthread_mutex_unlock(&node->lock);
	}
	pthread_mutex_unlock(&tree->lock);
}

void
tree_outdate(struct tree *tree)
{
	pthread_mutex_lock(&tree->lock);
	for (size_t i = 0; i < tree->buckets; i++)
		for (struct node *node = tree->by_id[i]; node != NULL; node = node->next_by_id)
		{
			pthread_mutex_lock(&node->lock);
			node->attributes_at = (struct timespec) {0};
			pthread_mutex_unlock(&node->lock);
		}
	pthread_mutex_unlock(&tree->lock);
}

int
tree_ids(struct tree *tree, uint64_t ino, int64_t snapshot, uint64_t *ids, int count)
{
	int			found = 0;

	pthread_mutex_lock(&tree->lock);
	for (struct node *node = *key_bucket(tree, ino); node != NULL; node = node->next_by_key)
		if (node->attributes.ino == ino && node->attributes.snapshot == snapshot &&
			found++ < count)
			ids[found - 1] = node->id;
	pthread_mutex_unlock(&tree->lock);
	return found;
}

void
attributes_of_inode(struct attributes *to, const struct attributes *from)
{
	to->mode = from->mode;
	to->uid = from->uid;
	to->gid = from->gid;
	to->nlink = from->nlink;
	to->ctime = from->ctime;
}

void
attributes_to_stat(const struct attributes *attributes, struct stat *stat)
{
	memset(stat, 0, sizeof(*stat));
	stat->st_ino = attributes->ino ^ ((uint64_t) attributes->snapshot << SNAPSHOT_SHIFT);
	stat->st_mode = attributes->mode;
	stat->st_nlink = attributes->nlink;
	stat->st_uid = attributes->uid;
	stat->st_gid = attributes->gid;
	stat->st_rdev = attributes->rdev;
	stat->st_size = attributes->size;
	stat->st_blksize = BUFFER_BYTES;
	stat->st_blocks = (attributes->size + 511) / 512;
	stat->st_mtim = attributes->mtime;
	stat->st_ctim = attributes->ctime;
	stat->st_atim = attributes->atime;
}
