/*
 * requests/change.c
 *	  Changes of names: a call of the file system's functions each, which does not wait for the
 *	  server's disk.
 */
#include "requests/change.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>

#include "common/errors.h"
#include "connections/values.h"
#include "reading/reader.h"
#include "requests/entry.h"
#include "requests/operations.h"
#include "writing/copies.h"
#include "writing/group_directory.h"
#include "writing/making.h"

/* ---- nodes ---- */

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

/* The attributes of a node were changed by a call for another one: they are asked for again. */
static void
note_changed(struct node *node)
{
	pthread_mutex_lock(&node->lock);
	node->attributes_at = (struct timespec) {0};
	pthread_mutex_unlock(&node->lock);
}

/* The inode has no name any more. */
static void
note_removed(struct writer *writer, uint64_t ino, int64_t snapshot)
{
	tree_note_removed(writer->tree, ino, snapshot);
	copy_removed(writer, ino, snapshot);
}

/*
 * A change of names was committed, and its answer was lost: which inode it was is not known, so the
 * attributes of all are asked for again.
 */
static void
note_unknown(struct writer *writer)
{
	tree_outdate(writer->tree);
	copies_find_removed(writer);
}

/* ---- making ---- */

static bool
name_is_too_long(const char *name)
{
	return strlen(name) > 255;
}

int
begin_inode(struct writer *writer, struct parameters *parameters, struct node *parent,
			const char *name, int64_t *number)
{
	int			error = name_is_too_long(name) ? ENAMETOOLONG : group_is_virtual(parent) ? EPERM :
		writer_draw_number(writer, number);

	if (error == 0)
	{
		births_make(writer, parent, name);
		group_note_name(parent, name);
	}
	parameter_int8(parameters, *number);
	parameter_int8(parameters, (int64_t) parent->attributes.ino);
	parameter_text(parameters, name);
	return error;
}

static void
parameter_owner(struct parameters *parameters, fuse_req_t request)
{
	const struct fuse_ctx *context = fuse_req_ctx(request);

	parameter_int8(parameters, context->uid);
	parameter_int8(parameters, context->gid);
}

int
look_up_made(struct writer *writer, struct node *parent, const char *name, struct outcome *outcome)
{
	struct source *source = writer->source;

	outcome->attributes.snapshot = parent->attributes.snapshot;
	if (outcome->has_attributes)
		return 0;
	return source->operations->lookup(source, parent, name, &outcome->attributes);
}

/* MKNOD, MKDIR, SYMLINK, LINK: run the call unless there is an error already, and reply. */
static void
make_and_reply(fuse_req_t request, struct node *parent, const char *name, int statement,
			   const struct parameters *parameters, int error)
{
	struct writer *writer = request_mount(request)->writer;
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

/* Below .blobfs/tx it begins a transaction of many files. */
static void
op_mkdir(fuse_req_t request, fuse_ino_t parent_id, const char *name, mode_t mode)
{
	struct writer *writer = request_mount(request)->writer;
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};
	struct attributes attributes;
	int64_t		number = 0;
	int			error;

	if (group_is_virtual(parent))
	{
		error = group_begin(parent, name, &attributes);
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

void
parameters_of_file(struct parameters *parameters, fuse_req_t request, mode_t mode)
{
	parameter_int4(parameters, (int32_t) (mode & 07777));
	parameter_owner(parameters, request);
	parameter_null(parameters);
	parameter_null(parameters);
}

/* Files that are made without being opened, as file servers do, are made at once. */
static void
op_mknod(fuse_req_t request, fuse_ino_t parent_id, const char *name, mode_t mode, dev_t rdev)
{
	struct writer *writer = request_mount(request)->writer;
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
	struct writer *writer = request_mount(request)->writer;
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};
	int64_t		number = 0;
	int			error = begin_inode(writer, &parameters, parent, name, &number);

	parameter_text(&parameters, target);
	parameter_owner(&parameters, request);
	make_and_reply(request, parent, name, writer->calls.symlink, &parameters, error);
}

/* Both names need the inode at the server, so a file that is not made yet is made first. */
static void
op_link(fuse_req_t request, fuse_ino_t id, fuse_ino_t parent_id, const char *name)
{
	struct writer *writer = request_mount(request)->writer;
	struct node *node = request_node(request, id);
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};

	births_make_node(writer, node);
	births_make(writer, parent, name);
	group_note_name(parent, name);
	parameter_int8(&parameters, (int64_t) node->attributes.ino);
	parameter_int8(&parameters, (int64_t) parent->attributes.ino);
	parameter_text(&parameters, name);
	make_and_reply(request, parent, name, writer->calls.link, &parameters,
				   name_is_too_long(name) ? ENAMETOOLONG :
				   node->attributes.snapshot != parent->attributes.snapshot ? EXDEV :
				   group_is_virtual(parent) ? EPERM : 0);
}

/* ---- removing and renaming ---- */

/* unlink() and rmdir() */
static void
remove_and_reply(fuse_req_t request, fuse_ino_t parent_id, const char *name, int statement)
{
	struct writer *writer = request_mount(request)->writer;
	struct node *parent = request_node(request, parent_id);
	struct parameters parameters = {0};
	struct outcome outcome;
	int			error = name_is_too_long(name) ? ENAMETOOLONG : 0;

	if (group_is_virtual(parent))
	{
		fuse_reply_err(request, statement == writer->calls.rmdir ?
					   group_roll_back(parent, name) : EPERM);
		return;
	}
	if (statement == writer->calls.rmdir)
		births_make_all(writer, parent->attributes.snapshot);
	else
		births_make(writer, parent, name);
	parameter_int8(&parameters, (int64_t) parent->attributes.ino);
	parameter_text(&parameters, name);
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
		tree_note_change(writer->tree, outcome.attributes.ino, parent->attributes.snapshot, NULL);
	if (error == 0 && outcome.has_attributes && outcome.attributes.nlink == 0)
		note_removed(writer, outcome.attributes.ino, parent->attributes.snapshot);
	fuse_reply_err(request, error);
}

static void
op_unlink(fuse_req_t request, fuse_ino_t parent_id, const char *name)
{
	remove_and_reply(request, parent_id, name,
					 request_mount(request)->writer->calls.unlink);
}

static void
op_rmdir(fuse_req_t request, fuse_ino_t parent_id, const char *name)
{
	remove_and_reply(request, parent_id, name,
					 request_mount(request)->writer->calls.rmdir);
}

/*
 * Whether an inode is gone, which had a name just before the name was given to another one.  In
 * between another mount may have renamed it: then it is still there, and must be written.
 */
static bool
is_gone(struct writer *writer, const struct attributes *attributes)
{
	struct source *source = writer->source;
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
		tree_note_change(writer->tree, outcome->attributes.ino, parent->attributes.snapshot, NULL);
	else
		note_unknown(writer);
	if (replaced == NULL)
		return;
	tree_note_change(writer->tree, replaced->ino, parent->attributes.snapshot, NULL);
	if ((replaced->nlink <= 1 || S_ISDIR(replaced->mode)) &&
		!(outcome->has_attributes && outcome->attributes.ino == replaced->ino) &&
		is_gone(writer, replaced))
		note_removed(writer, replaced->ino, parent->attributes.snapshot);
}

/*
 * Any file that is not made yet may be in a directory that goes or is replaced, so all are made
 * before.  A file that is replaced can be opened a little longer, and is looked up before, because
 * the call does not tell.  From .blobfs/tx it commits a transaction of many files.
 */
static void
op_rename(fuse_req_t request, fuse_ino_t parent_id, const char *name, fuse_ino_t new_parent_id,
		  const char *new_name, unsigned int flags)
{
	struct mount *mount = request_mount(request);
	struct writer *writer = mount->writer;
	struct node *parent = request_node(request, parent_id);
	struct node *new_parent = request_node(request, new_parent_id);
	struct parameters parameters = {0};
	struct attributes replaced;
	struct outcome outcome;
	bool		replaces = false;
	int			error = 0;

	if (group_is_virtual(parent))
	{
		fuse_reply_err(request, group_commit(parent, name, new_parent));
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
	parameter_text(&parameters, name);
	parameter_int8(&parameters, (int64_t) new_parent->attributes.ino);
	parameter_text(&parameters, new_name);
	parameter_int4(&parameters, (int32_t) flags);
	if (error == 0)
		error = writer_call(writer, writer->calls.rename, &parameters, &outcome);
	if (error == 0)
		note_renamed(writer, parent, new_parent, &outcome, replaces ? &replaced : NULL);
	fuse_reply_err(request, error);
}

void
change_operations(struct fuse_lowlevel_ops *operations)
{
	operations->mknod = op_mknod;
	operations->mkdir = op_mkdir;
	operations->symlink = op_symlink;
	operations->link = op_link;
	operations->unlink = op_unlink;
	operations->rmdir = op_rmdir;
	operations->rename = op_rename;
}
