/*
 * requests/file.c
 *	  Files that are opened and read.
 */
#include <errno.h>
#include <fcntl.h>

#include "reading/range.h"
#include "reading/reader.h"
#include "requests/entry.h"
#include "requests/handle.h"
#include "requests/lock.h"
#include "requests/lookup.h"
#include "requests/operations.h"
#include "requests/write.h"
#include "writing/writer.h"

/* ESTALE makes the kernel look the name up once more; the version that it finds is kept then. */
static void
open_(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	bool		writes = (info->flags & O_ACCMODE) != O_RDONLY || (info->flags & O_TRUNC);
	struct connection *transaction = NULL;
	struct handle *handle;
	int			error;

	if (mount->writer != NULL && (writes || node->working != NULL))
	{
		write_open(request, node, info);
		return;
	}
	if (writes)
		error = EROFS;
	else if (mount->options->noopen)
		error = ENOSYS;			/* the kernel does not ask again, for any file */
	else if (mount->options->opens_transactions)
		error = handle_begin_transaction(mount, node, &transaction);
	else
		error = read_open(mount->reader, node);
	if (error == ESTALE)
		note_race(mount, node);
	if (error != 0)
	{
		handle_end_transaction(transaction);
		fuse_reply_err(request, error);
		return;
	}
	handle = handle_create(mount, node, info->flags);
	handle->transaction = transaction;
	info->keep_cache = mount->writer == NULL || pages_are_right(mount->writer->pages, node->id);
	handle_reply(request, handle, info);
}

/* The working copy counts, also for handles that are older than it. */
static void
read_(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct range range;
	int			error;

	if (node->working != NULL && write_read(request, node, size, offset))
		return;
	if (mount->options->opens_transactions)
		pool_bind(handle_of(info)->transaction);
	error = read_range(mount->reader, node, offset, size, &range);
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	fuse_reply_buf(request, range.data, range.length);
	read_done(mount->reader, &range);
}

/* A reader's close has nothing to tell: the kernel does not ask again. */
static void
flush(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	fuse_reply_err(request, ENOSYS);
}

static void
release(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);

	if (mount->writer != NULL && mount->writer->locks != NULL)
		lock_released(mount, request_node(request, id), info);
	pool_set_request(NULL);
	if (info->fh != 0)
		handle_release(mount, handle_of(info));
	fuse_reply_err(request, 0);
}

void
file_operations(struct fuse_lowlevel_ops *operations)
{
	operations->open = open_;
	operations->read = read_;
	operations->flush = flush;
	operations->release = release;
}
