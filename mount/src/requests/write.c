/*
 * requests/write.c
 *	  Files that are made and written.
 *
 * Content goes to working copies (writing/copies.c), which fsync() and close() commit
 * (writing/commit.c).  These wait, and earlier commits are on the disk then, too.
 */
#include "requests/write.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/values.h"
#include "requests/change.h"
#include "requests/entry.h"
#include "requests/handle.h"
#include "requests/lock.h"
#include "requests/operations.h"
#include "writing/ahead.h"
#include "writing/commit.h"
#include "writing/copies.h"
#include "writing/making.h"
#include "writing/sender.h"

/* ---- open files ---- */

/* A handle on a working copy, of which the caller is a user already. */
static struct handle *
make_handle(struct mount *mount, struct copy *copy, int flags)
{
	struct handle *handle = handle_create(mount, copy->node, flags);

	handle->copy = copy;
	handle->writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_TRUNC | O_CREAT));
	return handle;
}

/* The base is kept for this handle if that reads, and for others that were there before. */
static int
begin_writing(struct writer *writer, struct copy *copy, int flags)
{
	bool		is_read = (flags & O_ACCMODE) != O_WRONLY ||
		__atomic_load_n(&copy->node->opens, __ATOMIC_RELAXED) > 0;
	int			error = 0;

	pthread_mutex_lock(&copy->lock);
	if (flags & O_TRUNC)
	{
		error = working_resize(&copy->working, 0);
		copy_touch(copy);
	}
	else if (is_read)
		error = copy_keep_base(copy);
	pthread_mutex_unlock(&copy->lock);
	return error;
}

/*
 * The row may get other versions faster than the kernel looks its name up.  A working copy is not
 * tied to a version, so it can start from the present one.
 */
static int
begin_writing_again(struct writer *writer, struct copy *copy, struct fuse_file_info *info)
{
	struct source *source = writer->source;
	struct attributes now;
	int			error = ESTALE;

	info->keep_cache = 0;
	for (int attempt = 0; attempt < OPEN_ATTEMPTS && error == ESTALE; attempt++)
	{
		error = source->operations->getattr(source, copy->node, &now);
		if (error != 0)
			return error;
		copy_seen(writer, copy->node, &now);
		error = begin_writing(writer, copy, info->flags);
	}
	return error;
}

void
write_open(fuse_req_t request, struct node *node, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct writer *writer = mount->writer;
	struct copy *copy;
	int			error = info->flags & O_TRUNC && node_is_executed(node) ? ETXTBSY :
		copy_acquire(writer, node, &copy);

	/* The look-up before may have found another version: the kernel drops the pages at open(). */
	info->keep_cache = pages_are_right(writer->pages, node->id);
	if (error == 0)
	{
		error = begin_writing(writer, copy, info->flags);
		if (error == ESTALE)
			error = begin_writing_again(writer, copy, info);
		if (error != 0)
			copy_release(writer, copy);
	}
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	handle_reply(request, make_handle(mount, copy, info->flags), info);
}

/* A file that is not there yet: attributes as the server would give them. */
static void
unmade_attributes(fuse_req_t request, const struct node *parent, int64_t number, mode_t mode,
				  struct attributes *attributes)
{
	const struct fuse_ctx *context = fuse_req_ctx(request);

	memset(attributes, 0, sizeof(*attributes));
	attributes->ino = (uint64_t) number;
	attributes->snapshot = parent->attributes.snapshot;
	attributes->mode = S_IFREG | (mode & 07777);
	attributes->uid = context->uid;
	attributes->gid = parent->attributes.mode & S_ISGID ? parent->attributes.gid : context->gid;
	attributes->nlink = 1;
	clock_gettime(CLOCK_REALTIME, &attributes->mtime);
	attributes->atime = attributes->ctime = attributes->mtime;
}

/* At once; what has the name already is opened unless O_EXCL forbids it. */
static int
make_file(fuse_req_t request, struct node *parent, const char *name, int flags, mode_t mode,
		  struct parameters *parameters, struct attributes *attributes)
{
	struct writer *writer = request_mount(request)->writer;
	struct outcome outcome;
	int			error;

	parameters_of_file(parameters, request, mode);
	error = writer_call(writer, writer->calls.create, parameters, &outcome);
	if (error == 0)
		note_entry(writer, parent->attributes.ino, parent->attributes.snapshot, &outcome);
	if (error != EEXIST && error != ENOENT)
		birth_allow(writer, error == 0);
	if (error == 0 || (error == EEXIST && !(flags & O_EXCL)))
	{
		outcome.has_attributes &= error == 0;
		error = look_up_made(writer, parent, name, &outcome);
	}
	if (error == 0 && !S_ISREG(outcome.attributes.mode))
		error = S_ISDIR(outcome.attributes.mode) ? EISDIR : ESTALE;
	*attributes = outcome.attributes;
	return error;
}

/* The look-up before has found no such name.  The file is made now, or with its first content: see
 * births.h. */
static void
op_create(fuse_req_t request, fuse_ino_t parent_id, const char *name, mode_t mode,
		  struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct writer *writer = mount->writer;
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};
	struct fuse_entry_param entry;
	struct attributes attributes;
	struct handle *handle;
	struct node *node;
	struct copy *copy;
	bool		is_unmade = birth_is_possible(writer, parent, info->flags);
	int64_t		number = 0;
	int			error = begin_inode(writer, &parameters, parent, name, &number);

	if (error == 0 && is_unmade)
		unmade_attributes(request, parent, number, mode, &attributes);
	else if (error == 0)
		error = make_file(request, parent, name, info->flags, mode, &parameters, &attributes);
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	node = fill_entry(mount, parent, name, &attributes, &entry);
	error = copy_acquire(writer, node, &copy);
	if (error == 0)
	{
		if (is_unmade)
			birth_begin(writer, copy, parent, name, info->flags);
		error = begin_writing(writer, copy, info->flags);
		if (error != 0)
			copy_release(writer, copy);
	}
	if (error != 0)
	{
		tree_forget(mount->tree, node->id, 1);
		fuse_reply_err(request, error);
		return;
	}
	handle = make_handle(mount, copy, info->flags);
	info->fh = (uintptr_t) handle;
	info->keep_cache = 1;
	if (fuse_reply_create(request, &entry, info) != 0)
	{
		pool_set_request(NULL);
		handle_release(mount, handle);
		tree_forget(mount->tree, entry.ino, 1);
	}
}

/* Under the copy's lock, before it gets another range. */
static int
limit_ranges(struct copy *copy)
{
	if (!working_is_scattered(&copy->working))
		return 0;
	return working_gather(&copy->working, copy_read_base, copy);
}

/*
 * The kernel takes its own size for the end of a file that is appended to.  If others have
 * appended, the bytes go somewhere else than in its pages.
 *
 * It drops pages before a direct write, and after it only if the program waits for the write.  A
 * page that is read before an asynchronous one has come here would stay as it was.  The reply does
 * not wait until it is dropped: the kernel has a limit of requests in the background, and a reader
 * with pages that are to be dropped may wait for one that a write has.
 */
static void
op_write(fuse_req_t request, fuse_ino_t id, const char *data, size_t size, off_t offset,
		 struct fuse_file_info *info)
{
	struct writer *writer = request_mount(request)->writer;
	struct handle *handle = handle_of(info);
	bool		append = (info->flags & O_APPEND) && !info->writepage;
	bool		direct = (info->flags & O_DIRECT) && !info->writepage;
	struct copy *copy;
	bool		moved;
	int			error;

	if (handle == NULL || handle->copy == NULL)
	{
		fuse_reply_err(request, EBADF);
		return;
	}
	request_node(request, id);
	copy = handle->copy;
	pthread_mutex_lock(&copy->lock);
	handle->writes = true;
	moved = append && offset != copy->working.size;
	error = limit_ranges(copy);
	if (error == 0)
		error = working_write(&copy->working, data, size, offset, append);
	if (error == 0)
	{
		copy_touch(copy);
		ahead_note(writer->ahead, copy);
	}
	pthread_mutex_unlock(&copy->lock);
	if (moved)
		pages_drop(writer->pages, id, 0, 0);
	else if (direct && size > 0)
		pages_drop(writer->pages, id, offset, (int64_t) size);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		fuse_reply_write(request, size);
}

bool
write_read(fuse_req_t request, struct node *node, size_t size, off_t offset)
{
	struct writer *writer = request_mount(request)->writer;
	struct copy *copy = copy_lock(writer, node);
	char	   *content;
	size_t		found;
	int			error;

	if (copy == NULL)
		return false;
	content = allocate(size);
	error = copy_keep_base(copy);
	if (error == 0)
		error = working_read(&copy->working, offset, size, content, &found, copy_read_base, copy);
	pthread_mutex_unlock(&copy->lock);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		fuse_reply_buf(request, content, found);
	pool_set_request(NULL);
	free(content);
	copy_release(writer, copy);
	return true;
}

/* For fsync() and close(). */
static int
publish(struct writer *writer, struct copy *copy)
{
	int			error;

	pthread_mutex_lock(&copy->lock);
	error = copy_commit(writer, copy);
	pthread_mutex_unlock(&copy->lock);
	return error != 0 ? error : writer_flush(writer);
}

static void
op_flush(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct writer *writer = mount->writer;
	struct handle *handle = handle_of(info);
	struct node *node = request_node(request, id);
	int			error = 0;

	if (handle != NULL && handle->writes && !sender_take(writer->sender, handle->copy))
		error = publish(writer, handle->copy);
	if (writer->locks != NULL)
		lock_closed(mount, node, info);
	fuse_reply_err(request, error);
}

static void
op_fsync(fuse_req_t request, fuse_ino_t id, int data_only, struct fuse_file_info *info)
{
	struct writer *writer = request_mount(request)->writer;
	struct handle *handle = handle_of(info);

	request_node(request, id);
	fuse_reply_err(request, handle != NULL && handle->copy != NULL ?
				   publish(writer, handle->copy) : writer_flush(writer));
}

static void
op_fsyncdir(fuse_req_t request, fuse_ino_t id, int data_only, struct fuse_file_info *info)
{
	struct writer *writer = request_mount(request)->writer;

	births_make(writer, request_node(request, id), NULL);
	fuse_reply_err(request, writer_flush(writer));
}

/* Space is never reserved: there is room at the server or there is none.  Zeros are written, and a
 * file becomes longer. */
static void
op_fallocate(fuse_req_t request, fuse_ino_t id, int mode, off_t offset, off_t length,
			 struct fuse_file_info *info)
{
	struct handle *handle = handle_of(info);
	bool		keeps_size = mode & FALLOC_FL_KEEP_SIZE;
	bool		zeros = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
	struct copy *copy = handle ? handle->copy : NULL;
	int64_t		end = offset + length;
	int			error = 0;

	request_node(request, id);
	if (copy == NULL || (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE |
								  FALLOC_FL_ZERO_RANGE)))
	{
		fuse_reply_err(request, copy ? EOPNOTSUPP : EBADF);
		return;
	}
	pthread_mutex_lock(&copy->lock);
	if (zeros && keeps_size && end > copy->working.size)
		end = copy->working.size;
	if (zeros)
		error = limit_ranges(copy);
	if (zeros && end > offset && error == 0)
		error = working_zero(&copy->working, offset, end - offset);
	else if (!zeros && !keeps_size && end > copy->working.size)
		error = working_resize(&copy->working, end);
	handle->writes = true;
	copy_touch(copy);
	pthread_mutex_unlock(&copy->lock);
	fuse_reply_err(request, error);
}

void
write_operations(struct fuse_lowlevel_ops *operations)
{
	operations->create = op_create;
	operations->write = op_write;
	operations->flush = op_flush;
	operations->fsync = op_fsync;
	operations->fsyncdir = op_fsyncdir;
	operations->fallocate = op_fallocate;
}
