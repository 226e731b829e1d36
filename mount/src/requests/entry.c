/*
 * requests/entry.c
 *	  Nodes of requests, and replies that name nodes.
 */
#include "requests/entry.h"

#include <string.h>

#include "kernel/notify.h"
#include "writing/copies.h"
#include "writing/group.h"

enum
{
	/* Attributes of a version, where a look-up of its name brings new ones. */
	LONG_SECONDS = 86400
};

struct mount *
request_mount(fuse_req_t request)
{
	return fuse_req_userdata(request);
}

struct node *
request_node(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct node *node;

	pool_set_request(request);
	notify_begin(notify_count(mount->notifier));
	node = tree_find(mount->tree, id);
	if (node != NULL && mount->writer != NULL)
		group_bind(node);
	return node;
}

/* Attributes of a table's files come with each look-up; a file system's also change by others. */
double
attributes_timeout(const struct mount *mount)
{
	return mount->source->with_paths ? LONG_SECONDS : mount->options->timeout;
}

void
node_stat(struct mount *mount, struct node *node, struct stat *stat)
{
	pthread_mutex_lock(&node->lock);
	attributes_to_stat(&node->attributes, stat);
	pthread_mutex_unlock(&node->lock);
	if (mount->writer != NULL && (node->working != NULL || S_ISDIR(stat->st_mode)))
		copy_stat(mount->writer, node, stat);
}

void
reply_attributes(fuse_req_t request, struct node *node)
{
	struct mount *mount = request_mount(request);
	struct stat stat;

	node_stat(mount, node, &stat);
	fuse_reply_attr(request, &stat, attributes_timeout(mount));
}

struct node *
fill_entry(struct mount *mount, struct node *parent, const char *name,
		   const struct attributes *attributes, struct fuse_entry_param *entry)
{
	struct node *node = tree_enter(mount->tree, parent, name, attributes);

	memset(entry, 0, sizeof(*entry));
	entry->ino = node->id;
	entry->entry_timeout = notify_timeout(mount->notifier, parent, name, attributes,
										  mount->options->timeout);
	entry->attr_timeout = attributes_timeout(mount);
	if (node->working != NULL)
		copy_seen(mount->writer, node, attributes);
	node_stat(mount, node, &entry->attr);
	return node;
}

void
reply_entry(fuse_req_t request, struct node *parent, const char *name,
			const struct attributes *attributes)
{
	struct mount *mount = request_mount(request);
	struct fuse_entry_param entry;
	uint64_t	id;

	notify_enter(mount->notifier);
	id = fill_entry(mount, parent, name, attributes, &entry)->id;
	if (fuse_reply_entry(request, &entry) != 0)
		tree_forget(mount->tree, id, 1);
	notify_leave(mount->notifier);
}
