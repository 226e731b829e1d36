/*
 * requests/lookup.c
 *	  Look-ups of names, and of what the kernel forgets.
 */
#include "requests/lookup.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "reading/reader.h"
#include "requests/entry.h"
#include "requests/operations.h"
#include "writing/making.h"

enum
{
	RACE_SECONDS = 2
};

/* ---- versions that change between look-up and open ---- */

void
note_race(struct mount *mount, const struct node *node)
{
	pthread_mutex_lock(&mount->lock);
	mount->races[mount->next_race] = (struct race) {node->attributes.ino, monotonic_seconds()};
	mount->next_race = (mount->next_race + 1) % MAX_RACES;
	pthread_mutex_unlock(&mount->lock);
}

static bool
had_race(struct mount *mount, const struct attributes *attributes)
{
	bool		had = false;

	if (!S_ISREG(attributes->mode))
		return false;
	pthread_mutex_lock(&mount->lock);
	for (int i = 0; i < MAX_RACES; i++)
		had |= mount->races[i].ino == attributes->ino &&
			mount->races[i].at + RACE_SECONDS >= monotonic_seconds();
	pthread_mutex_unlock(&mount->lock);
	return had;
}

/*
 * After ESTALE the kernel looks a name up once more, opens what it finds, and gives up if that is
 * stale, too.  So the version that it will find is kept from here on.
 */
static int
keep_looked_up(struct mount *mount, struct node *parent, const char *name,
			   struct attributes *attributes)
{
	struct source *source = mount->source;
	int			error = 0;

	for (int attempt = 0; attempt < OPEN_ATTEMPTS && error == 0; attempt++)
	{
		struct node *node = tree_enter(mount->tree, parent, name, attributes);
		bool		is_stale = S_ISREG(attributes->mode) && node->working == NULL &&
			read_keep(mount->reader, node) == ESTALE;

		tree_forget(mount->tree, node->id, 1);
		if (!is_stale)
			break;
		error = source->operations->lookup(source, parent, name, attributes);
	}
	return error;
}

/* ---- requests ---- */

static int
look_up(struct mount *mount, struct node *parent, const char *name, struct attributes *attributes)
{
	struct source *source = mount->source;
	int			error;

	if (mount->writer != NULL && birth_look_up(mount->writer, parent, name, attributes))
		return 0;
	error = source->operations->lookup(source, parent, name, attributes);
	if (error == 0 && had_race(mount, attributes))
		error = keep_looked_up(mount, parent, name, attributes);
	return error;
}

/* The kernel remembers that there is no such name, too, for as long as it trusts names. */
static void
lookup(fuse_req_t request, fuse_ino_t parent_id, const char *name)
{
	struct mount *mount = request_mount(request);
	struct node *parent = request_node(request, parent_id);
	struct attributes attributes;
	int			error = parent ? look_up(mount, parent, name, &attributes) : ESTALE;

	if (error == 0)
		reply_entry(request, parent, name, &attributes);
	else if (error == ENOENT && mount->options->timeout > 0)
	{
		struct fuse_entry_param entry = {.entry_timeout = mount->options->timeout};

		fuse_reply_entry(request, &entry);	/* the kernel remembers that there is no such name */
	}
	else
		fuse_reply_err(request, error);
}

/*
 * "." is asked for by a file server that has an id, which the kernel, or the program that ran
 * before this one, has forgotten.
 */
static void
lookup_id(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct source *source = mount->source;
	struct node *node = tree_enter_id(mount->tree, id, NULL);
	struct node wanted = {.attributes.ino = id};
	struct attributes attributes;
	struct fuse_entry_param entry = {.ino = id};
	int			error = 0;

	pool_set_request(request);
	if (node == NULL)
	{
		error = source->operations->getattr(source, &wanted, &attributes);
		if (error == 0)
			node = tree_enter_id(mount->tree, id, &attributes);
	}
	if (error == 0 && node == NULL)
		error = ESTALE;
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	entry.attr_timeout = attributes_timeout(mount);
	node_stat(mount, node, &entry.attr);
	if (fuse_reply_entry(request, &entry) != 0)
		tree_forget(mount->tree, id, 1);
}

static void
lookup_parent(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct attributes attributes;
	int			error = ESTALE;

	if (node != NULL)
		error = mount->source->operations->parent(mount->source, node, &attributes);
	if (error == 0)
		reply_entry(request, node, "..", &attributes);
	else
		fuse_reply_err(request, error);
}

/* The kernel sends "." and ".." for file servers only, if init() has allowed it. */
static void
lookup_any(fuse_req_t request, fuse_ino_t id, const char *name)
{
	if (strcmp(name, ".") == 0)
		lookup_id(request, id);
	else if (strcmp(name, "..") == 0)
		lookup_parent(request, id);
	else
		lookup(request, id, name);
}

static void
forget(fuse_req_t request, fuse_ino_t id, uint64_t lookups)
{
	tree_forget(request_mount(request)->tree, id, lookups);
	fuse_reply_none(request);
}

static void
forget_many(fuse_req_t request, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		tree_forget(request_mount(request)->tree, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(request);
}

void
lookup_operations(struct fuse_lowlevel_ops *operations)
{
	operations->lookup = lookup_any;
	operations->forget = forget;
	operations->forget_multi = forget_many;
}
