/*
 * requests/attributes.c
 *	  Attributes of files, their extended attributes, and those of the file system: read and set.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "common/clock.h"
#include "connections/values.h"
#include "requests/entry.h"
#include "requests/handle.h"
#include "requests/operations.h"
#include "writing/commit.h"
#include "writing/copies.h"
#include "writing/making.h"

/* ---- reading ---- */

/*
 * Ask the source if its last answer is too old.  Size and time of another version do not count.  A
 * directory that this mount has removed is in no source any more; a program that asks has it open,
 * or works in it.
 */
static int
refresh_attributes(struct mount *mount, struct node *node)
{
	struct source *source = mount->source;
	struct attributes now;
	struct attributes *attributes = &node->attributes;
	struct timespec time;
	bool		open;
	bool		knows;
	int			error;

	if (mount->writer != NULL && birth_is_of(mount->writer, node))
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &time);
	pthread_mutex_lock(&node->lock);
	open = node->opens > 0 || node->working != NULL;
	knows = (double) (time.tv_sec - node->attributes_at.tv_sec) < mount->options->timeout ||
		(S_ISDIR(attributes->mode) && attributes->nlink == 0);
	pthread_mutex_unlock(&node->lock);
	if (knows)
		return 0;
	error = source->operations->getattr(source, node, &now);
	if (error == 0 && node->working != NULL)
		copy_seen(mount->writer, node, &now);
	if (error != 0 && !(error == ESTALE && open))
		return error;
	pthread_mutex_lock(&node->lock);
	node->attributes_at = time;
	if (error != 0)
		attributes->nlink = 0;	/* open, and without a name */
	else if (memcmp(&now.version, &attributes->version, sizeof(struct version)) == 0)
		*attributes = now;
	else
		attributes_of_inode(attributes, &now);
	pthread_mutex_unlock(&node->lock);
	return 0;
}

static void
getattr(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	int			error = node ? refresh_attributes(mount, node) : ESTALE;

	if (error != 0)
		fuse_reply_err(request, error);
	else
		reply_attributes(request, node);
}

/* libfuse takes a target that ends with NUL. */
static void
readlink_(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct buffer buffer;
	char	   *target;
	int			error = EINVAL;

	if (mount->source->operations->readlink != NULL)
		error = mount->source->operations->readlink(mount->source, node, &buffer);
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	target = strndup(buffer.data, buffer.length);
	fuse_reply_readlink(request, target ? target : "");
	free(target);
	buffer_free(&buffer);
}

static void
statfs_(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct statvfs statvfs;
	int			error;

	pool_set_request(request);
	error = mount->source->operations->statfs(mount->source, &statvfs);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		fuse_reply_statfs(request, &statvfs);
}

/* ---- setting ---- */

/* After a change of attributes; size and version are the content's. */
static void
take_attributes(struct node *node, const struct attributes *attributes)
{
	pthread_mutex_lock(&node->lock);
	attributes_of_inode(&node->attributes, attributes);
	node->attributes.mtime = attributes->mtime;
	node->attributes.atime = attributes->atime;
	pthread_mutex_unlock(&node->lock);
}

/* truncate() of a name is committed at once; ftruncate() goes to the working copy. */
static int
set_size(struct writer *writer, struct node *node, int64_t size, bool is_open)
{
	struct copy *copy;
	int			error = copy_acquire(writer, node, &copy);

	if (error != 0)
		return error;
	pthread_mutex_lock(&copy->lock);
	error = working_resize(&copy->working, size);
	if (error == 0)
		copy_touch(copy);
	if (error == 0 && !is_open)
		error = copy_commit(writer, copy);
	copy_unlock(writer, copy);
	return error;
}

/* The working copy's times are those that stat() has.  mtime: NULL, as it is. */
static void
note_times(struct writer *writer, struct node *node, const struct timespec *mtime)
{
	struct copy *copy = copy_lock(writer, node);

	if (copy == NULL)
		return;
	clock_gettime(CLOCK_REALTIME, &copy->ctime);
	if (mtime != NULL)
		copy->mtime = *mtime;
	copy_unlock(writer, copy);
}

static void
parameter_if(struct parameters *parameters, bool is_set, int64_t value)
{
	if (is_set)
		parameter_int8(parameters, value);
	else
		parameter_null(parameters);
}

/* Of an open file without a name this mount alone knows the attributes. */
static int
set_attributes(struct writer *writer, struct node *node, const struct stat *stat, int to_set)
{
	struct source *source = writer->source;
	struct parameters parameters = {0};
	struct outcome outcome;
	struct timespec now;
	struct timespec mtime = stat->st_mtim;
	struct timespec atime = stat->st_atim;
	bool		sets_mtime = to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW);
	bool		sets_atime = to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW);
	int			error;

	clock_gettime(CLOCK_REALTIME, &now);
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		mtime = now;
	if (to_set & FUSE_SET_ATTR_ATIME_NOW)
		atime = now;
	if (!(to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) &&
		birth_set_attributes(writer, node, to_set & FUSE_SET_ATTR_MODE ? &stat->st_mode : NULL,
							 sets_mtime ? &mtime : NULL, sets_atime ? &atime : NULL))
		return 0;
	births_make_node(writer, node);
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	if (to_set & FUSE_SET_ATTR_MODE)
		parameter_int4(&parameters, (int32_t) (stat->st_mode & 07777));
	else
		parameter_null(&parameters);
	parameter_if(&parameters, to_set & FUSE_SET_ATTR_UID, stat->st_uid);
	parameter_if(&parameters, to_set & FUSE_SET_ATTR_GID, stat->st_gid);
	parameter_if(&parameters, sets_mtime, nanoseconds(mtime));
	parameter_if(&parameters, sets_atime, nanoseconds(atime));
	error = writer_call(writer, writer->calls.setattr, &parameters, &outcome);
	if (error == ESTALE && node->attributes.nlink == 0)
	{
		pthread_mutex_lock(&node->lock);
		if (to_set & FUSE_SET_ATTR_MODE)
			node->attributes.mode = (node->attributes.mode & S_IFMT) | (stat->st_mode & 07777);
		if (to_set & FUSE_SET_ATTR_UID)
			node->attributes.uid = stat->st_uid;
		if (to_set & FUSE_SET_ATTR_GID)
			node->attributes.gid = stat->st_gid;
		if (sets_mtime)
			node->attributes.mtime = mtime;
		if (sets_atime)
			node->attributes.atime = atime;
		node->attributes.ctime = now;
		pthread_mutex_unlock(&node->lock);
		error = 0;
	}
	else if (error == 0 && (outcome.has_attributes || source->operations->getattr(
		source, node, &outcome.attributes) == 0))
		take_attributes(node, &outcome.attributes);
	if (error == 0)
		note_times(writer, node, sets_mtime ? &mtime : NULL);
	return error;
}

/* Size and the others are calls of their own; an error of the first leaves the others undone. */
static void
op_setattr(fuse_req_t request, fuse_ino_t id, struct stat *stat, int to_set,
		   struct fuse_file_info *info)
{
	const int	others = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID |
		FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
		FUSE_SET_ATTR_MTIME_NOW;
	struct writer *writer = request_mount(request)->writer;
	struct node *node = request_node(request, id);
	bool		is_open = info != NULL && info->fh != 0 && handle_of(info)->copy != NULL;
	int			error = 0;

	if (to_set & FUSE_SET_ATTR_SIZE)
		error = set_size(writer, node, stat->st_size, is_open);
	if (error == 0 && (to_set & others))
		error = set_attributes(writer, node, stat, to_set);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		reply_attributes(request, node);
}

/* ---- extended attributes ---- */

/* A size of 0 asks for the size. */
static void
reply_xattr(fuse_req_t request, int error, struct buffer *buffer, size_t size)
{
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	if (size == 0)
		fuse_reply_xattr(request, buffer->length);
	else if (size < buffer->length)
		fuse_reply_err(request, ERANGE);
	else
		fuse_reply_buf(request, buffer->data, buffer->length);
	buffer_free(buffer);
}

/* Size and digest of content that is not committed are not known. */
static int
check_content(struct writer *writer, struct node *node, const char *name)
{
	struct copy *copy = copy_lock(writer, node);
	int			error = 0;

	if (copy == NULL)
		return 0;
	if (copy->birth != NULL ||
		(copy->working.changed && (strcmp(name, "user.sha256") == 0 ||
								   strcmp(name, "user.size") == 0)))
		error = ENODATA;
	copy_unlock(writer, copy);
	return error;
}

/*
 * Others than "user." are none of ours.  The kernel asks for security.capability before each
 * write(), and "ls -l" for two more of each file, so the server must not be asked.
 */
static void
getxattr_(fuse_req_t request, fuse_ino_t id, const char *name, size_t size)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	const struct source_operations *operations = mount->source->operations;
	struct buffer buffer = {0};
	int			error = 0;

	/* The kernel does not ask again. */
	if (!mount->options->xattr || operations->getxattr == NULL)
	{
		fuse_reply_err(request, ENOSYS);
		return;
	}
	if (strncmp(name, "user.", 5) != 0)
		error = EOPNOTSUPP;
	else if (mount->writer != NULL)
		error = check_content(mount->writer, node, name);
	if (error == 0)
		error = operations->getxattr(mount->source, node, name, &buffer);
	reply_xattr(request, error, &buffer, size);
}

static void
listxattr_(fuse_req_t request, fuse_ino_t id, size_t size)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	const struct source_operations *operations = mount->source->operations;
	struct buffer buffer = {0};

	if (!mount->options->xattr || operations->listxattr == NULL)
		fuse_reply_err(request, ENOSYS);
	else
		reply_xattr(request, operations->listxattr(mount->source, node, &buffer), &buffer, size);
}

/* user.sha256 and user.size are what the content has. */
static int
check_xattr(const struct options *options, const char *name)
{
	if (!options->xattr)
		return ENOSYS;
	if (strncmp(name, "user.", 5) != 0)
		return EOPNOTSUPP;
	return strcmp(name, "user.sha256") == 0 || strcmp(name, "user.size") == 0 ? EPERM : 0;
}

/* The call that sets or removes one, which is a change of the inode: stat() has its time. */
static int
change_xattr(struct mount *mount, struct node *node, int call, const struct parameters *parameters)
{
	struct outcome outcome;
	int			error = writer_call(mount->writer, call, parameters, &outcome);

	if (error != 0)
		return error;
	if (outcome.has_attributes)
	{
		pthread_mutex_lock(&node->lock);
		attributes_of_inode(&node->attributes, &outcome.attributes);
		pthread_mutex_unlock(&node->lock);
	}
	note_times(mount->writer, node, NULL);
	return 0;
}

/* An attribute needs the inode at the server, so a file that is not made yet is made first. */
static void
op_setxattr(fuse_req_t request, fuse_ino_t id, const char *name, const char *value, size_t size,
			int flags)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct parameters parameters = {0};
	int			error = check_xattr(mount->options, name);

	births_make_node(mount->writer, node);
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_text(&parameters, name);
	parameter_bytes(&parameters, value, size);
	parameter_int4(&parameters, flags & (XATTR_CREATE | XATTR_REPLACE));
	if (error == 0)
		error = change_xattr(mount, node, mount->writer->calls.setxattr, &parameters);
	fuse_reply_err(request, error);
}

static void
op_removexattr(fuse_req_t request, fuse_ino_t id, const char *name)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct parameters parameters = {0};
	int			error = check_xattr(mount->options, name);

	births_make_node(mount->writer, node);
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_text(&parameters, name);
	if (error == 0)
		error = change_xattr(mount, node, mount->writer->calls.removexattr, &parameters);
	fuse_reply_err(request, error);
}

void
attributes_operations(struct fuse_lowlevel_ops *operations, bool writes)
{
	operations->getattr = getattr;
	operations->readlink = readlink_;
	operations->statfs = statfs_;
	operations->getxattr = getxattr_;
	operations->listxattr = listxattr_;
	if (!writes)
		return;
	operations->setattr = op_setattr;
	operations->setxattr = op_setxattr;
	operations->removexattr = op_removexattr;
}
