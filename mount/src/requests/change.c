/*
 * requests/change.c
 *	  Requests of the kernel that write.
 *
 * Changes of names and attributes are a call of the file system's functions each, and do not wait
 * for the server's disk.  Content goes to working copies (copies.c), which fsync() and close()
 * commit (commit.c); these wait, and earlier commits are on the disk then, too.
 */
#include "common/clock.h"
#include "common/errors.h"
#include "common/tree.h"
#include "connections/query.h"
#include "connections/request.h"
#include "kernel/pages.h"
#include "reading/open.h"
#include "reading/range.h"
#include "sources/fs_row.h"
#include "sources/pins.h"
#include "writing/group.h"
#include "writing/locks.h"
#include "writing/sender.h"
#include "writing/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* An open file that writes, or that was opened while a working copy was there. */
struct writing
{
	struct copy *copy;
	bool		appends;
	bool		writes;
};

struct writer *
mount_writer(struct mount *mount)
{
	return mount->writer;
}

/* ---- commits ---- */

void
writer_note_commit(struct writer *writer, bool is_durable, uint64_t begun)
{
	uint64_t	epoch = writer->mount->source->has_pins ? pins_epoch(writer->mount->source) : 0;

	pthread_mutex_lock(&writer->lock);
	if (writer->begun > writer->flushed && writer->epoch != epoch && !writer->is_async)
	{
		losses_all(&writer->losses);
		writer->flushed = writer->begun;
	}
	if (writer->begun == writer->flushed)
		writer->epoch = epoch;
	if (!is_durable)
		losses_note(&writer->losses, request_thread(), ++writer->begun);
	else if (writer->flushed < begun)
		writer->flushed = begun;
	losses_flushed(&writer->losses, writer->flushed);
	pthread_mutex_unlock(&writer->lock);
}

uint64_t
writer_begun(struct writer *writer)
{
	uint64_t	begun;

	pthread_mutex_lock(&writer->lock);
	begun = writer->begun;
	pthread_mutex_unlock(&writer->lock);
	return begun;
}

/* In a transaction of many files nothing is committed before its end. */
int
writer_flush(struct writer *writer)
{
	uint64_t	begun = writer_begun(writer);
	bool		is_flushed;
	bool		has_lost;
	int			error = 0;

	/* A group promises nothing before its commit, and must not flush for others. */
	if (pool_bound() != NULL)
		return 0;
	pthread_mutex_lock(&writer->lock);
	is_flushed = writer->flushed >= begun || writer->is_async;
	pthread_mutex_unlock(&writer->lock);
	if (!is_flushed)
		error = transactions_flush(writer->transactions);
	if (!is_flushed && error == 0)
		writer_note_commit(writer, true, begun);
	pthread_mutex_lock(&writer->lock);
	has_lost = error == 0 && losses_tell(&writer->losses, request_thread());
	pthread_mutex_unlock(&writer->lock);
	if (has_lost)
		message("the server has crashed: changes of names before that may be lost");
	return has_lost ? EIO : error;
}

int
writer_call(struct writer *writer, int statement, const struct parameters *parameters,
			struct outcome *outcome)
{
	int			error = transaction_run_call(writer->transactions, statement, parameters, false,
											 outcome);

	if (error == 0 && outcome->status == 0 && pool_bound() == NULL)
		writer_note_commit(writer, false, 0);
	return error != 0 ? error : outcome->status;
}

/* Files that are open for long are made, so that others see them. */
static void
make_due(void *context)
{
	births_make_due(context);
}

/*
 * The kernel finds a name, and then opens what it found.  If another file takes the name in
 * between, it looks once more, and then gives up, where a local file system would open the old
 * file.  So a file that is replaced by this mount can be opened a little longer.
 */
static void
keep_replaced(struct mount *mount, const struct attributes *attributes)
{
	struct node *node = S_ISREG(attributes->mode) ? tree_search(mount->tree, attributes) : NULL;

	if (node == NULL)
		return;
	if (read_keep(mount->reader, node) != 0)
		debug("inode %llu is not kept", (unsigned long long) attributes->ino);
	tree_release(mount->tree, node);
}

/* ---- numbers of inodes ---- */

static int
draw_number(struct writer *writer, int64_t *number)
{
	struct parameters parameters = {0};
	PGresult   *result;
	int			error;

	pthread_mutex_lock(&writer->lock);
	*number = writer->number_count > 0 ? writer->numbers[--writer->number_count] : 0;
	pthread_mutex_unlock(&writer->lock);
	if (*number != 0)
		return 0;
	parameter_int4(&parameters, RESERVED_NUMBERS);
	error = query_run(writer->mount->pool, -1, writer->calls.reserve, &parameters, &result);
	if (error != 0)
		return error;
	*number = PQntuples(result) > 0 ? field_int8(result, 0, 0) : 0;
	pthread_mutex_lock(&writer->lock);
	for (int i = 1; i < PQntuples(result) && writer->number_count < RESERVED_NUMBERS; i++)
		writer->numbers[writer->number_count++] = field_int8(result, i, 0);
	pthread_mutex_unlock(&writer->lock);
	PQclear(result);
	return *number != 0 ? 0 : EIO;
}

/* ---- nodes ---- */

/* The attributes of a node were changed by a call for another one: they are asked for again. */
static void
note_changed(struct node *node)
{
	pthread_mutex_lock(&node->lock);
	node->attributes_at = (struct timespec) {0};
	pthread_mutex_unlock(&node->lock);
}

static void
note_changed_ino(struct writer *writer, uint64_t ino, int64_t snapshot)
{
	tree_note_change(writer->mount->tree, ino, snapshot, NULL);
}

void
note_entry(struct writer *writer, uint64_t directory, int64_t snapshot,
		   const struct outcome *outcome)
{
	bool		is_known = outcome->has_attributes && snapshot >= 0;

	if (is_known || group_touches(directory, snapshot))
		tree_note_change(writer->mount->tree, directory, snapshot,
						 is_known ? &outcome->attributes.ctime : NULL);
}

/* The inode has no name any more; open files keep their content. */
static void
note_removed(struct writer *writer, uint64_t ino, int64_t snapshot)
{
	struct copy *copy = copy_find_ino(writer, ino, snapshot);

	tree_note_removed(writer->mount->tree, ino, snapshot);
	if (copy == NULL)
		return;
	pthread_mutex_lock(&copy->lock);
	copy->is_removed = true;
	pthread_mutex_unlock(&copy->lock);
	copy_release(writer, copy);
}

/*
 * A change of names was committed, and its answer was lost: which inode it was is not known, so the
 * attributes of all are asked for again.
 */
static void
note_unknown(struct writer *writer)
{
	tree_outdate(writer->mount->tree);
	copies_find_removed(writer);
}

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

void
session_write_stat(struct mount *mount, struct node *node, struct stat *stat)
{
	struct writer *writer = mount_writer(mount);
	struct copy *copy = writer ? copy_find(writer, node) : NULL;

	if (writer != NULL && S_ISDIR(stat->st_mode))
		births_stat(writer, node, stat);
	if (copy == NULL)
		return;
	pthread_mutex_lock(&copy->lock);
	stat->st_size = copy->working.size;
	stat->st_blocks = (copy->working.size + 511) / 512;
	stat->st_mtim = copy->mtime;
	if (copy->working.changed)
		stat->st_ctim = copy->ctime;
	if (copy->is_removed)
		stat->st_nlink = 0;
	pthread_mutex_unlock(&copy->lock);
	copy_release(writer, copy);
}

void
session_write_seen(struct mount *mount, struct node *node, const struct attributes *attributes)
{
	struct writer *writer = mount_writer(mount);
	struct copy *copy = writer ? copy_find(writer, node) : NULL;

	if (copy == NULL)
		return;
	pthread_mutex_lock(&copy->lock);
	if (!copy->working.changed && !copy->is_removed &&
		fs_get_version(&attributes->version) > copy->version)
	{
		copy_set_base(writer, copy, attributes);
		pages_drop(writer->pages, node->id);
	}
	pthread_mutex_unlock(&copy->lock);
	copy_release(writer, copy);
}

static void
reply_node_attributes(fuse_req_t request, struct node *node)
{
	struct mount *mount = request_mount(request);
	struct attributes attributes;
	struct stat stat;

	pthread_mutex_lock(&node->lock);
	attributes = node->attributes;
	pthread_mutex_unlock(&node->lock);
	attributes_to_stat(&attributes, &stat);
	session_write_stat(mount, node, &stat);
	fuse_reply_attr(request, &stat, session_timeout(mount));
}

/* ---- names ---- */

static bool
name_is_too_long(const char *name)
{
	return strlen(name) > 255;
}

static void
parameter_name(struct parameters *parameters, const char *name)
{
	parameter_bytes(parameters, name, strlen(name));
}

/* Parameters 1 to 3 of a call that makes an inode, and its number. */
static int
begin_inode(struct writer *writer, struct parameters *parameters, struct node *parent,
			const char *name, int64_t *number)
{
	int			error = name_is_too_long(name) ? ENAMETOOLONG : group_is_virtual(parent) ? EPERM :
		draw_number(writer, number);

	if (error == 0)
	{
		births_make(writer, parent, name);
		group_note_name(parent, name);
	}
	parameter_int8(parameters, *number);
	parameter_int8(parameters, (int64_t) parent->attributes.ino);
	parameter_name(parameters, name);
	return error;
}

static void
parameter_owner(struct parameters *parameters, fuse_req_t request)
{
	const struct fuse_ctx *context = fuse_req_ctx(request);

	parameter_int8(parameters, context->uid);
	parameter_int8(parameters, context->gid);
}

/* Attributes of an inode whose making was committed while its answer was lost. */
static int
look_up_made(struct writer *writer, struct node *parent, const char *name, struct outcome *outcome)
{
	struct source *source = writer->mount->source;

	outcome->attributes.snapshot = parent->attributes.snapshot;
	if (outcome->has_attributes)
		return 0;
	return source->operations->lookup(source, parent, name, &outcome->attributes);
}

static void
make_and_reply(fuse_req_t request, struct node *parent, const char *name, int statement,
			   const struct parameters *parameters, int error)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct outcome outcome;

	if (error == 0)
		error = writer_call(writer, statement, parameters, &outcome);
	if (error == 0)
		note_entry(writer, parent->attributes.ino, parent->attributes.snapshot, &outcome);
	if (error == 0 && statement == writer->calls.mkdir)
		note_changed(parent);
	if (error == 0)
		error = look_up_made(writer, parent, name, &outcome);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		reply_entry(request, parent, name, &outcome.attributes);
}

static void
op_mkdir(fuse_req_t request, fuse_ino_t parent_id, const char *name, mode_t mode)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};
	struct attributes attributes;
	int64_t		number = 0;
	int			error;

	if (group_is_virtual(parent))
	{
		error = group_begin(writer->mount, parent, name, &attributes);
		if (error != 0)
			fuse_reply_err(request, error);
		else
			reply_entry(request, parent, name, &attributes);
		return;
	}
	error = begin_inode(writer, &parameters, parent, name, &number);
	group_note_directory(parent, number);
	parameter_int4(&parameters, (int32_t) (mode & 07777));
	parameter_owner(&parameters, request);
	make_and_reply(request, parent, name, writer->calls.mkdir, &parameters, error);
}

static char
kind_of_mode(mode_t mode)
{
	switch (mode & S_IFMT)
	{
		case S_IFIFO:
			return 'p';
		case S_IFSOCK:
			return 's';
		case S_IFCHR:
			return 'c';
		case S_IFBLK:
			return 'b';
		default:
			return 'f';
	}
}

/* Parameters of create() behind the first three. */
static void
parameters_of_file(struct parameters *parameters, fuse_req_t request, mode_t mode)
{
	parameter_int4(parameters, (int32_t) (mode & 07777));
	parameter_owner(parameters, request);
	parameter_null(parameters);
	parameter_null(parameters);
}

static void
op_mknod(fuse_req_t request, fuse_ino_t parent_id, const char *name, mode_t mode, dev_t rdev)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};
	char		kind = kind_of_mode(mode);
	int64_t		number = 0;
	int			error = begin_inode(writer, &parameters, parent, name, &number);

	if (kind == 'f')
	{
		parameters_of_file(&parameters, request, mode);
		make_and_reply(request, parent, name, writer->calls.create, &parameters, error);
		return;
	}
	parameter_bytes(&parameters, &kind, 1);
	parameter_int4(&parameters, (int32_t) (mode & 07777));
	parameter_owner(&parameters, request);
	parameter_int8(&parameters, (int64_t) rdev);
	make_and_reply(request, parent, name, writer->calls.mknod, &parameters, error);
}

static void
op_symlink(fuse_req_t request, const char *target, fuse_ino_t parent_id, const char *name)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};
	int64_t		number = 0;
	int			error = begin_inode(writer, &parameters, parent, name, &number);

	parameter_name(&parameters, target);
	parameter_owner(&parameters, request);
	make_and_reply(request, parent, name, writer->calls.symlink, &parameters, error);
}

static void
op_link(fuse_req_t request, fuse_ino_t id, fuse_ino_t parent_id, const char *name)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct node *node = request_node(request, id);
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};

	births_make_node(writer, node);
	births_make(writer, parent, name);
	group_note_name(parent, name);
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_int8(&parameters, (int64_t) parent->attributes.ino);
	parameter_name(&parameters, name);
	make_and_reply(request, parent, name, writer->calls.link, &parameters,
				   name_is_too_long(name) ? ENAMETOOLONG :
				   node->attributes.snapshot != parent->attributes.snapshot ? EXDEV :
				   group_is_virtual(parent) ? EPERM : 0);
}

/* unlink() and rmdir() */
static void
remove_and_reply(fuse_req_t request, fuse_ino_t parent_id, const char *name, int statement)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};
	struct outcome outcome;
	int			error = name_is_too_long(name) ? ENAMETOOLONG : 0;

	if (group_is_virtual(parent))
	{
		fuse_reply_err(request, statement == writer->calls.rmdir ?
					   group_roll_back(writer->mount, parent, name) : EPERM);
		return;
	}
	if (statement == writer->calls.rmdir)
		births_make_all(writer, parent->attributes.snapshot);
	else
		births_make(writer, parent, name);
	parameter_int8(&parameters, (int64_t) parent->attributes.ino);
	parameter_name(&parameters, name);
	if (error == 0)
		error = writer_call(writer, statement, &parameters, &outcome);
	if (error == ENOENT && birth_unlink(writer, parent, name))
	{
		fuse_reply_err(request, 0);
		return;
	}
	if (error == 0)
		note_changed(parent);
	if (error == 0 && !outcome.has_attributes)
		note_unknown(writer);
	else if (error == 0)
		note_changed_ino(writer, outcome.attributes.ino, parent->attributes.snapshot);
	if (error == 0 && outcome.has_attributes && outcome.attributes.nlink == 0)
		note_removed(writer, outcome.attributes.ino, parent->attributes.snapshot);
	fuse_reply_err(request, error);
}

static void
op_unlink(fuse_req_t request, fuse_ino_t parent_id, const char *name)
{
	remove_and_reply(request, parent_id, name,
					 mount_writer(request_mount(request))->calls.unlink);
}

static void
op_rmdir(fuse_req_t request, fuse_ino_t parent_id, const char *name)
{
	remove_and_reply(request, parent_id, name,
					 mount_writer(request_mount(request))->calls.rmdir);
}

/*
 * Whether an inode is gone, which had a name just before the name was given to another one.  In
 * between another mount may have renamed it: then it is still there, and must be written.
 */
static bool
is_gone(struct writer *writer, const struct attributes *attributes)
{
	struct source *source = writer->mount->source;
	struct node node = {.attributes = *attributes};
	struct attributes now;

	return source->operations->getattr(source, &node, &now) == ESTALE;
}

/* After a rename: attributes that changed with it. */
static void
note_renamed(struct writer *writer, struct node *parent, struct node *new_parent,
			 const struct outcome *outcome, const struct attributes *replaced)
{
	note_changed(parent);
	note_changed(new_parent);
	if (outcome->has_attributes)
		note_changed_ino(writer, outcome->attributes.ino, parent->attributes.snapshot);
	else
		note_unknown(writer);
	if (replaced == NULL)
		return;
	note_changed_ino(writer, replaced->ino, parent->attributes.snapshot);
	if ((replaced->nlink <= 1 || S_ISDIR(replaced->mode)) &&
		!(outcome->has_attributes && outcome->attributes.ino == replaced->ino) &&
		is_gone(writer, replaced))
		note_removed(writer, replaced->ino, parent->attributes.snapshot);
}

static void
op_rename(fuse_req_t request, fuse_ino_t parent_id, const char *name, fuse_ino_t new_parent_id,
		  const char *new_name, unsigned int flags)
{
	struct mount *mount = request_mount(request);
	struct writer *writer = mount_writer(mount);
	struct node *parent = request_node(request, parent_id);
	struct node *new_parent = request_node(request, new_parent_id);
	struct parameters parameters = {0};
	struct attributes replaced;
	struct outcome outcome;
	bool		replaces = false;
	int			error = 0;

	if (group_is_virtual(parent))
	{
		fuse_reply_err(request, group_commit(mount, parent, name, new_parent));
		return;
	}
	births_make_all(writer, parent->attributes.snapshot);
	group_note_name(new_parent, new_name);
	if (parent->attributes.snapshot != new_parent->attributes.snapshot ||
		group_is_virtual(new_parent))
		error = EXDEV;
	else if (flags & ~(unsigned) (RENAME_NOREPLACE | RENAME_EXCHANGE))
		error = EINVAL;
	else if (name_is_too_long(name) || name_is_too_long(new_name))
		error = ENAMETOOLONG;
	else if (flags == 0)
		replaces = mount->source->operations->lookup(mount->source, new_parent, new_name,
													 &replaced) == 0;
	if (replaces)
		keep_replaced(mount, &replaced);
	parameter_int8(&parameters, (int64_t) parent->attributes.ino);
	parameter_name(&parameters, name);
	parameter_int8(&parameters, (int64_t) new_parent->attributes.ino);
	parameter_name(&parameters, new_name);
	parameter_int4(&parameters, (int32_t) flags);
	if (error == 0)
		error = writer_call(writer, writer->calls.rename, &parameters, &outcome);
	if (error == 0)
		note_renamed(writer, parent, new_parent, &outcome, replaces ? &replaced : NULL);
	fuse_reply_err(request, error);
}

/* ---- attributes ---- */

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
		error = copy_commit(writer, copy, true);
	pthread_mutex_unlock(&copy->lock);
	copy_release(writer, copy);
	return error;
}

static void
note_mtime(struct writer *writer, struct node *node, struct timespec mtime)
{
	struct copy *copy = copy_find(writer, node);

	if (copy == NULL)
		return;
	pthread_mutex_lock(&copy->lock);
	copy->mtime = mtime;
	pthread_mutex_unlock(&copy->lock);
	copy_release(writer, copy);
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
	struct source *source = writer->mount->source;
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
	if (error == 0 && sets_mtime)
		note_mtime(writer, node, mtime);
	return error;
}

static void
op_setattr(fuse_req_t request, fuse_ino_t id, struct stat *stat, int to_set,
		   struct fuse_file_info *info)
{
	const int	others = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID |
		FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
		FUSE_SET_ATTR_MTIME_NOW;
	struct writer *writer = mount_writer(request_mount(request));
	struct node *node = request_node(request, id);
	bool		is_open = info != NULL && info->fh != 0 &&
		((struct handle *) (uintptr_t) info->fh)->writing != NULL;
	int			error = 0;

	if (to_set & FUSE_SET_ATTR_SIZE)
		error = set_size(writer, node, stat->st_size, is_open);
	if (error == 0 && (to_set & others))
		error = set_attributes(writer, node, stat, to_set);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		reply_node_attributes(request, node);
}

/* ---- open files ---- */

static struct writing *
handle_writing(const struct fuse_file_info *info)
{
	struct handle *handle = (struct handle *) (uintptr_t) info->fh;

	return handle ? handle->writing : NULL;
}

/* A handle on a working copy, of which the caller is a user already. */
static struct handle *
make_handle(struct mount *mount, struct copy *copy, int flags)
{
	struct handle *handle = handle_create(mount, copy->node, flags);
	struct writing *writing = allocate(sizeof(*writing));

	writing->copy = copy;
	writing->writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_TRUNC | O_CREAT));
	handle->writing = writing;
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
	struct mount *mount = writer->mount;
	struct attributes now;
	int			error = ESTALE;

	info->keep_cache = 0;
	for (int attempt = 0; attempt < OPEN_ATTEMPTS && error == ESTALE; attempt++)
	{
		error = mount->source->operations->getattr(mount->source, copy->node, &now);
		if (error != 0)
			return error;
		session_write_seen(mount, copy->node, &now);
		error = begin_writing(writer, copy, info->flags);
	}
	return error;
}

void
session_write_open(fuse_req_t request, struct node *node, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct writer *writer = mount_writer(mount);
	struct handle *handle;
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
	handle = make_handle(mount, copy, info->flags);
	info->fh = (uintptr_t) handle;
	if (fuse_reply_open(request, info) != 0)
	{
		pool_set_request(NULL);
		handle_release(mount, handle);
	}
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
	struct writer *writer = mount_writer(request_mount(request));
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

static void
op_create(fuse_req_t request, fuse_ino_t parent_id, const char *name, mode_t mode,
		  struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct writer *writer = mount_writer(mount);
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
 */
static void
op_write(fuse_req_t request, fuse_ino_t id, const char *data, size_t size, off_t offset,
		 struct fuse_file_info *info)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct writing *writing = handle_writing(info);
	bool		append = (info->flags & O_APPEND) && !info->writepage;
	struct copy *copy;
	bool		moved;
	int			error;

	if (writing == NULL)
	{
		fuse_reply_err(request, EBADF);
		return;
	}
	copy = writing->copy;
	pthread_mutex_lock(&copy->lock);
	writing->writes = true;
	moved = append && offset != copy->working.size;
	error = limit_ranges(copy);
	if (error == 0)
		error = working_write(&copy->working, data, size, offset, append);
	if (error == 0)
		copy_touch(copy);
	pthread_mutex_unlock(&copy->lock);
	if (moved)
		pages_drop(writer->pages, id);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		fuse_reply_write(request, size);
}

/* The copy is in use, so it does not go; if it went before, the node can be read as any other. */
void
session_write_read(fuse_req_t request, struct node *node, size_t size, off_t offset,
				   struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct writer *writer = mount_writer(mount);
	struct copy *copy = copy_find(writer, node);
	struct range range;
	char	   *content;
	size_t		found;
	int			error;

	if (copy == NULL)
	{
		error = read_range(mount->reader, node, offset, size, &range);
		if (error != 0)
			fuse_reply_err(request, error);
		else
		{
			fuse_reply_buf(request, range.data, range.length);
			read_done(mount->reader, &range);
		}
		return;
	}
	content = allocate(size);
	pthread_mutex_lock(&copy->lock);
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
}

/* For fsync() and close(). */
static int
publish(struct writer *writer, struct writing *writing)
{
	int			error;

	pthread_mutex_lock(&writing->copy->lock);
	error = copy_commit(writer, writing->copy, true);
	pthread_mutex_unlock(&writing->copy->lock);
	return error != 0 ? error : writer_flush(writer);
}

/* Whether a thread sends the content. */
static bool
hand_over(struct writer *writer, struct copy *copy)
{
	bool		is_queued;

	pthread_mutex_lock(&copy->lock);
	is_queued = birth_hand_over(writer, copy);
	pthread_mutex_unlock(&copy->lock);
	return is_queued;
}

static void
op_flush(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct writing *writing = handle_writing(info);
	struct node *node = request_node(request, id);
	int			error = 0;

	if (writing != NULL && writing->writes && !hand_over(writer, writing->copy))
		error = publish(writer, writing);
	locks_closed(writer->mount, node, info);
	fuse_reply_err(request, error);
}

/* session.c's RELEASE, before which locks go. */
static void
op_release(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);

	locks_released(mount, node, info);
	mount_writer(mount)->release(request, id, info);
}

static void
op_fsync(fuse_req_t request, fuse_ino_t id, int data_only, struct fuse_file_info *info)
{
	struct writer *writer = mount_writer(request_mount(request));
	struct writing *writing = handle_writing(info);

	request_node(request, id);
	fuse_reply_err(request, writing ? publish(writer, writing) : writer_flush(writer));
}

static void
op_fsyncdir(fuse_req_t request, fuse_ino_t id, int data_only, struct fuse_file_info *info)
{
	struct writer *writer = mount_writer(request_mount(request));

	births_make(writer, request_node(request, id), NULL);
	fuse_reply_err(request, writer_flush(writer));
}

/* Bytes that a mapping has written since the last close() go now; no call gets an error of it. */
void
session_write_release(struct mount *mount, struct handle *handle)
{
	struct writer *writer = mount_writer(mount);
	struct writing *writing = handle->writing;
	struct copy *copy = writing->copy;
	int			error;

	group_bind(mount, copy->node);
	pthread_mutex_lock(&copy->lock);
	error = writing->writes && !copy->is_queued ? copy_commit(writer, copy, true) : 0;
	pthread_mutex_unlock(&copy->lock);
	if (error != 0 && !copy->is_given_up)
		message("inode %llu: what was written is lost: %s",
				(unsigned long long) copy->node->attributes.ino, strerror(error));
	handle->writing = NULL;
	free(writing);
	copy_release(writer, copy);
}

/* A file without a name may have its content in the copy alone, until its last handle. */
void
session_write_closed(struct mount *mount, struct node *node)
{
	struct copy *copy = copy_find(mount_writer(mount), node);

	if (copy != NULL)
		copy_release(mount_writer(mount), copy);
}

static void
op_fallocate(fuse_req_t request, fuse_ino_t id, int mode, off_t offset, off_t length,
			 struct fuse_file_info *info)
{
	struct writing *writing = handle_writing(info);
	bool		keeps_size = mode & FALLOC_FL_KEEP_SIZE;
	bool		zeros = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
	struct copy *copy = writing ? writing->copy : NULL;
	int64_t		end = offset + length;
	int			error = 0;

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
	writing->writes = true;
	copy_touch(copy);
	pthread_mutex_unlock(&copy->lock);
	fuse_reply_err(request, error);
}

/* ---- extended attributes ---- */

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

static void
op_setxattr(fuse_req_t request, fuse_ino_t id, const char *name, const char *value, size_t size,
			int flags)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct parameters parameters = {0};
	struct outcome outcome;
	int			error = check_xattr(mount->options, name);

	births_make_node(mount_writer(mount), node);
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_name(&parameters, name);
	parameter_bytes(&parameters, value, size);
	parameter_int4(&parameters, flags & (XATTR_CREATE | XATTR_REPLACE));
	if (error == 0)
		error = writer_call(mount_writer(mount), mount_writer(mount)->calls.setxattr, &parameters,
							&outcome);
	fuse_reply_err(request, error);
}

static void
op_removexattr(fuse_req_t request, fuse_ino_t id, const char *name)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct parameters parameters = {0};
	struct outcome outcome;
	int			error = check_xattr(mount->options, name);

	births_make_node(mount_writer(mount), node);
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_name(&parameters, name);
	if (error == 0)
		error = writer_call(mount_writer(mount), mount_writer(mount)->calls.removexattr,
							&parameters, &outcome);
	fuse_reply_err(request, error);
}

/* ---- beginning and end ---- */

static int
add_query(struct writer *writer, const char *format, const char *schema, int columns, int rows)
{
	char	   *sql = format_string(format, schema);
	int			statement = pool_add_statement(writer->mount->pool, sql, columns, rows);

	free(sql);
	return statement;
}

static void
add_calls(struct writer *writer, const char *fs, const char *blobext)
{
	struct transactions *all = writer->transactions;
	struct calls *calls = &writer->calls;
	char	   *upload = format_string("write($1, $2, $3, %s.blob_upload_end($4::bigint), $5)",
									   blobext);

	calls->create = transactions_add(all, "create($1, $2, $3, $4, $5, $6, $7, $8)", 8);
	calls->mkdir = transactions_add(all, "mkdir($1, $2, $3, $4, $5, $6)", 6);
	calls->mknod = transactions_add(all, "mknod($1, $2, $3, $4, $5, $6, $7, $8)", 8);
	calls->symlink = transactions_add(all, "symlink($1, $2, $3, $4, $5, $6)", 6);
	calls->link = transactions_add(all, "link($1, $2, $3)", 3);
	calls->unlink = transactions_add(all, "unlink($1, $2)", 2);
	calls->rmdir = transactions_add(all, "rmdir($1, $2)", 2);
	calls->rename = transactions_add(all, "rename($1, $2, $3, $4, $5)", 5);
	calls->setattr = transactions_add(all, "setattr($1, $2, $3, $4, $5, $6)", 6);
	calls->write = transactions_add(all, "write($1, $2, $3, $4, $5)", 5);
	calls->write_upload = transactions_add(all, upload, 5);
	calls->append = transactions_add(all, "append($1, $2, $3, $4, $5)", 5);
	calls->patch = transactions_add(all, "patch($1, $2, $3, $4, $5, $6, $7, $8)", 8);
	calls->truncate = transactions_add(all, "truncate($1, $2, $3, $4, $5)", 5);
	calls->setxattr = transactions_add(all, "setxattr($1, $2, $3, $4)", 4);
	calls->removexattr = transactions_add(all, "removexattr($1, $2)", 2);
	free(upload);
	calls->reserve = add_query(writer, "SELECT n FROM %s.reserve($1) AS n", fs, 1,
							   RESERVED_NUMBERS);
	calls->lock_row = add_query(writer, "SELECT r.status, r.version FROM"
								" %s.append($1, $2, $3, ''::pg_catalog.bytea, NULL) AS r", fs, 2,
								1);
	calls->upload_begin = add_query(writer, "SELECT %s.blob_upload_begin($1::bigint)", blobext, 1,
									1);
	calls->upload_write = add_query(writer, "SELECT %s.blob_upload_write($1::bigint,"
									" $2::pg_catalog.bytea)", blobext, 1, 1);
	upload = format_string("SELECT %s.blob_upload_resume(c::%s.blobstate, $2::bigint)"
						   " FROM %s.content($1, NULL) AS c", blobext, blobext, fs);
	calls->upload_resume = pool_add_statement(writer->mount->pool, upload, 1, 1);
	free(upload);
}

/* A file for working copies can be made, or the program ends with a message. */
static void
check_spool(const char *directory)
{
	int			spool = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (spool < 0)
		fatal("no file can be made in \"%s\", where files lie while they are written: %m; "
			  "choose another directory with -o spool=DIRECTORY", directory);
	close(spool);
}

void
session_write_create(struct mount *mount)
{
	struct writer *writer = allocate(sizeof(*writer));
	const struct options *options = mount->options;

	writer->is_async = options->sync != NULL && strcmp(options->sync, "async") == 0;
	writer->mount = mount;
	writer->spool = options->spool ? options->spool : "/var/tmp";
	writer->fails_on_conflict = options->conflict && strcmp(options->conflict, "fail") == 0;
	check_spool(writer->spool);
	pthread_mutex_init(&writer->lock, NULL);
	writer->pages = pages_create(make_due, writer);
	writer->transactions = transactions_create(mount->pool, mount->source->schema,
											   writer->is_async);
	add_calls(writer, mount->source->schema, mount->source->blobext);
	writer->groups = groups_create(writer);
	writer->sender = sender_create(mount);
	if (options->locks && strcmp(options->locks, "db") == 0)
		writer->locks = locks_create(mount);
	mount->writer = writer;
}

void
session_write_make(struct mount *mount, const struct node *directory)
{
	births_make(mount_writer(mount), directory, NULL);
}

bool
session_write_look_up(struct mount *mount, const struct node *directory, const char *name,
					  struct attributes *attributes)
{
	return birth_look_up(mount_writer(mount), directory, name, attributes);
}

bool
session_write_is_unmade(struct mount *mount, struct node *node)
{
	return birth_is_of(mount_writer(mount), node);
}

int
session_write_xattr(struct mount *mount, struct node *node, const char *name)
{
	struct writer *writer = mount_writer(mount);
	struct copy *copy = copy_find(writer, node);
	int			error = 0;

	if (copy == NULL)
		return 0;
	pthread_mutex_lock(&copy->lock);
	if (copy->birth != NULL ||
		(copy->working.changed && (strcmp(name, "user.sha256") == 0 ||
								   strcmp(name, "user.size") == 0)))
		error = ENODATA;
	pthread_mutex_unlock(&copy->lock);
	copy_release(writer, copy);
	return error;
}

void
session_write_bind(struct mount *mount, const struct node *node)
{
	group_bind(mount, node);
}

void
session_write_start(struct mount *mount)
{
	struct writer *writer = mount_writer(mount);

	pages_start(writer->pages, mount->session);
	sender_start(writer->sender);
}

void
session_write_destroy(struct mount *mount)
{
	struct writer *writer = mount_writer(mount);

	pages_stop(writer->pages);
	sender_destroy(writer->sender);
	groups_destroy(writer->groups);
	if (writer->locks != NULL)
		locks_destroy(writer->locks);
	transactions_destroy(writer->transactions);
	free(writer);
	mount->writer = NULL;
}

void
session_write_operations(struct mount *mount, struct fuse_lowlevel_ops *operations)
{
	operations->create = op_create;
	operations->mknod = op_mknod;
	operations->mkdir = op_mkdir;
	operations->symlink = op_symlink;
	operations->link = op_link;
	operations->unlink = op_unlink;
	operations->rmdir = op_rmdir;
	operations->rename = op_rename;
	operations->setattr = op_setattr;
	operations->write = op_write;
	operations->flush = op_flush;
	operations->fsync = op_fsync;
	operations->fsyncdir = op_fsyncdir;
	operations->fallocate = op_fallocate;
	operations->setxattr = op_setxattr;
	operations->removexattr = op_removexattr;
	if (mount_writer(mount)->locks == NULL)
		return;
	mount_writer(mount)->release = operations->release;
	operations->release = op_release;
	locks_operations(operations);
}
