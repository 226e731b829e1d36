/*
 * requests/handle.c
 *	  Open files.
 */
#include "requests/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/query.h"
#include "reading/reader.h"
#include "requests/entry.h"
#include "writing/commit.h"
#include "writing/copies.h"
#include "writing/group.h"

enum
{
	/* Of the kernel, in the flags of open(): a program is executed. */
	FLAG_EXEC = 0x20
};

int
handle_begin_transaction(struct mount *mount, struct node *node, struct connection **transaction)
{
	struct buffer buffer;
	int			error = pool_reserve(mount->pool, transaction);

	if (error != 0)
	{
		*transaction = NULL;
		return error == EAGAIN ? ENFILE : error;
	}
	pool_bind(*transaction);
	error = query_bound("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
	if (error == 0 && node->attributes.size > 0)
		error = mount->source->operations->read(mount->source, node, 0, 1, &buffer);
	if (error == 0 && node->attributes.size > 0)
		buffer_free(&buffer);
	if (error == 0)
		error = read_open(mount->reader, node);
	return error;
}

/* After an error or a lost connection it has ended already. */
void
handle_end_transaction(struct connection *transaction)
{
	if (transaction == NULL)
		return;
	pool_bind(transaction);
	if (query_bound("COMMIT") != 0)
		debug("the transaction of an open file was not committed");
	pool_unbind();
	pool_unreserve(transaction);
}

struct handle *
handle_create(struct mount *mount, struct node *node, int flags)
{
	struct handle *handle = allocate(sizeof(*handle));

	handle->node = node;
	handle->flags = flags;
	if (flags & FLAG_EXEC)
		__atomic_add_fetch(&node->executed, 1, __ATOMIC_RELAXED);
	tree_hold(mount->tree, node);
	return handle;
}

struct handle *
handle_of(const struct fuse_file_info *info)
{
	return (struct handle *) (uintptr_t) info->fh;
}

void
handle_reply(fuse_req_t request, struct handle *handle, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);

	info->fh = (uintptr_t) handle;
	if (fuse_reply_open(request, info) == 0)
		return;
	pool_set_request(NULL);
	handle_release(mount, handle);
}

bool
node_is_executed(const struct node *node)
{
	return __atomic_load_n(&node->executed, __ATOMIC_RELAXED) > 0;
}

/* Bytes that a mapping has written since the last close() go now; no call gets an error of it. */
static void
end_writing(struct writer *writer, struct handle *handle)
{
	struct copy *copy = handle->copy;
	int			error;

	group_bind(copy->node);
	pthread_mutex_lock(&copy->lock);
	error = handle->writes && !copy->is_queued ? copy_commit(writer, copy) : 0;
	if (error != 0 && !copy->is_given_up)
		message("inode %llu: what was written is lost: %s",
				(unsigned long long) copy->node->attributes.ino, strerror(error));
	copy_unlock(writer, copy);
}

void
handle_release(struct mount *mount, struct handle *handle)
{
	if (handle->flags & FLAG_EXEC)
		__atomic_sub_fetch(&handle->node->executed, 1, __ATOMIC_RELAXED);
	handle_end_transaction(handle->transaction);
	if (handle->copy != NULL)
		end_writing(mount->writer, handle);
	else
	{
		read_close(mount->reader, handle->node);
		if (handle->node->working != NULL)
			copy_closed(mount->writer, handle->node);
	}
	tree_release(mount->tree, handle->node);
	free(handle);
}
