/*
 * writing/making.c
 *	  Files are made when they are closed, with their content, or when a request needs them before.
 *	  mount/WRITING.md has the argument.
 */
#include "writing/making.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/values.h"
#include "writing/copies.h"
#include "writing/group.h"

enum
{
	/* How often a name may come and go while its file is made. */
	MAKE_ATTEMPTS = 20
};

void
note_entry(struct writer *writer, uint64_t directory, int64_t snapshot,
		   const struct outcome *outcome)
{
	bool		is_known = outcome->has_attributes && snapshot >= 0;

	if (is_known || group_touches(directory, snapshot))
		tree_note_change(writer->tree, directory, snapshot,
						 is_known ? &outcome->attributes.ctime : NULL);
}

/* ---- making ---- */

struct making
{
	struct writer *writer;
	struct copy *copy;
	size_t		size;			/* bytes of content that go with it */
	bool		is_durable;
};

/* transaction_step */
static int
step_create(struct transaction *transaction, void *context)
{
	const struct making *making = context;
	struct copy *copy = making->copy;
	char	   *content;
	struct parameters parameters = {0};
	int			error = working_get_spool(&copy->working, making->size, &content);

	parameter_int8(&parameters, (int64_t) copy->node->attributes.ino);
	parameter_int8(&parameters, (int64_t) copy->birth->parent);
	parameter_bytes(&parameters, copy->birth->name, strlen(copy->birth->name));
	parameter_int4(&parameters, (int32_t) copy->birth->mode);
	parameter_int8(&parameters, copy->birth->uid);
	parameter_int8(&parameters, copy->birth->gid);
	parameter_bytes(&parameters, content, making->size);
	parameter_int8(&parameters, nanoseconds(copy->mtime));
	if (error == 0)
		error = transaction_call(transaction, making->writer->calls.create, &parameters);
	free(content);
	return error;
}

/*
 * Once: 0 and what the server has, or an errno.  After a commit whose answer was lost the birth is
 * over whatever becomes of the question for attributes.
 */
static int
run_create(struct making *making, struct attributes *attributes)
{
	struct writer *writer = making->writer;
	struct source *source = writer->source;
	struct copy *copy = making->copy;
	struct outcome outcome;
	uint64_t	begun = writer_begun(writer);
	int			error = transaction_run(writer->transactions, step_create, making,
										making->is_durable, true, &outcome);

	if (error == 0)
		error = outcome.status;
	if (error != 0 && error != EEXIST && error != ENOENT)
		birth_allow(writer, false);
	if (error != 0)
		return error;
	if (pool_bound() == NULL)
		writer_note_commit(writer, making->is_durable, begun);
	note_entry(writer, copy->birth->parent, copy->node->attributes.snapshot, &outcome);
	birth_end(writer, copy);
	if (!outcome.has_attributes)
		error = source->operations->getattr(source, copy->node, &outcome.attributes);
	*attributes = outcome.attributes;
	attributes->snapshot = copy->node->attributes.snapshot;
	return error;
}

/* The kernel would have asked for this right if the file had been there at open(). */
static bool
may_write(const struct birth *birth, const struct attributes *attributes)
{
	mode_t		needed = birth->uid == attributes->uid ? S_IWUSR :
		birth->gid == attributes->gid ? S_IWGRP : S_IWOTH;

	return birth->uid == 0 || (attributes->mode & needed) != 0;
}

/*
 * Another mount has made the name: its inode becomes the copy's, and its content is as good as
 * truncated.  ENOENT: the name is gone again.
 */
static int
adopt(struct writer *writer, struct copy *copy)
{
	struct source *source = writer->source;
	struct birth *birth = copy->birth;
	struct node parent = {.attributes = {.ino = birth->parent,
	.snapshot = copy->node->attributes.snapshot}};
	struct attributes found;
	int			error;

	if (birth->is_exclusive)
		return EEXIST;
	error = source->operations->lookup(source, &parent, birth->name, &found);
	if (error != 0)
		return error;
	if (!S_ISREG(found.mode))
		return S_ISDIR(found.mode) ? EISDIR : EEXIST;
	if (!may_write(birth, &found))
		return EACCES;
	if (!copy_move(writer, copy, found.ino))
		return EBUSY;
	debug("inode %llu is another mount's by name \"%s\"", (unsigned long long) found.ino,
		  birth->name);
	birth_end(writer, copy);
	copy_made(writer, copy, &found);
	return 0;
}

/* A second statement, for create() takes no time of access. */
static int
set_atime(struct writer *writer, struct copy *copy, const struct timespec *atime, bool is_durable)
{
	struct parameters parameters = {0};
	struct outcome outcome;
	uint64_t	begun = writer_begun(writer);
	int			error;

	parameter_int8(&parameters, (int64_t) copy->node->attributes.ino);
	for (int i = 0; i < 4; i++)
		parameter_null(&parameters);
	parameter_int8(&parameters, nanoseconds(*atime));
	error = transaction_run_call(writer->transactions, writer->calls.setattr, &parameters,
								 is_durable, &outcome);
	if (error == 0)
		error = outcome.status;
	if (error == 0 && pool_bound() == NULL)
		writer_note_commit(writer, is_durable, begun);
	pthread_mutex_lock(&copy->node->lock);
	copy->node->attributes.atime = *atime;
	pthread_mutex_unlock(&copy->node->lock);
	return error;
}

int
birth_make(struct writer *writer, struct copy *copy, bool with_content, bool is_durable)
{
	bool		has_atime = copy->birth->has_atime;
	struct timespec atime = copy->birth->atime;
	struct making making = {writer, copy, with_content ? (size_t) copy->working.size : 0,
	is_durable && !has_atime};
	struct attributes attributes;
	int			error = ENOENT;

	for (int attempt = 0; attempt < MAKE_ATTEMPTS && error == ENOENT; attempt++)
	{
		error = run_create(&making, &attributes);
		if (error == 0 && with_content)
			copy_committed(writer, copy, &attributes);
		else if (error == 0)
			copy_made(writer, copy, &attributes);
		if (error == EEXIST)
			error = adopt(writer, copy);
		else if (error != 0)
			return error;
	}
	return error == 0 && has_atime ? set_atime(writer, copy, &atime, is_durable) : error;
}

bool
birth_set_attributes(struct writer *writer, struct node *node, const mode_t *mode,
					 const struct timespec *mtime, const struct timespec *atime)
{
	struct copy *copy = copy_lock(writer, node);
	bool		is_unmade;

	if (copy == NULL)
		return false;
	is_unmade = copy->birth != NULL && !copy->is_removed;
	if (is_unmade)
	{
		clock_gettime(CLOCK_REALTIME, &copy->ctime);
		pthread_mutex_lock(&node->lock);
		node->attributes.ctime = copy->ctime;
		if (mode != NULL)
			node->attributes.mode = (node->attributes.mode & S_IFMT) | (*mode & 07777);
		if (atime != NULL)
			node->attributes.atime = *atime;
		pthread_mutex_unlock(&node->lock);
	}
	if (is_unmade && mode != NULL)
		copy->birth->mode = *mode & 07777;
	if (is_unmade && mtime != NULL)
		copy->mtime = *mtime;
	if (is_unmade && atime != NULL)
	{
		copy->birth->has_atime = true;
		copy->birth->atime = *atime;
	}
	copy_unlock(writer, copy);
	return is_unmade;
}

/* ---- making before a request ---- */

/*
 * The caller is a user of the copy, and then no more.  An error shows in the request for which this
 * is done, or at the file's close.  A file that waits for the sender is made with its content: were
 * that sent later, the request, such as unlink(), could come before it.
 */
static void
make_now(struct writer *writer, struct copy *copy)
{
	int			error = 0;

	pthread_mutex_lock(&copy->lock);
	if (copy->birth != NULL && !copy->is_removed)
		error = birth_make(writer, copy, copy->is_queued &&
						   copy->working.size <= SPOOL_MEMORY_BYTES, false);
	pthread_mutex_unlock(&copy->lock);
	if (error != 0)
		debug("inode %llu is not made: %s", (unsigned long long) copy->node->attributes.ino,
			  strerror(error));
	copy_release(writer, copy);
}

/* One that fails is tried again by the writer's thread, and at its close. */
static void
make_wanted(struct writer *writer, const struct wanted *wanted)
{
	struct copy **copies;
	int			count = 0;

	if (births_are_none(writer))
		return;
	pthread_mutex_lock(&writer->lock);
	copies = allocate(writer->birth_count * sizeof(*copies));
	for (struct birth *birth = writer->first_birth; birth != NULL; birth = birth->next)
		if (birth_is_wanted(birth, wanted))
		{
			birth->due = monotonic_seconds() + BIRTH_SECONDS;
			birth->copy->users++;
			copies[count++] = birth->copy;
		}
	pthread_mutex_unlock(&writer->lock);
	for (int i = 0; i < count; i++)
		make_now(writer, copies[i]);
	free(copies);
}

void
births_make(struct writer *writer, const struct node *directory, const char *name)
{
	struct wanted wanted = {
		.snapshot = directory->attributes.snapshot,
		.parent = directory->attributes.ino,
		.name = name
	};

	make_wanted(writer, &wanted);
}

void
births_make_all(struct writer *writer, int64_t snapshot)
{
	struct wanted wanted = {.snapshot = snapshot};

	make_wanted(writer, &wanted);
}

void
births_make_due(struct writer *writer)
{
	struct wanted wanted = {.due = monotonic_seconds()};

	make_wanted(writer, &wanted);
}

void
births_make_node(struct writer *writer, struct node *node)
{
	struct copy *copy = births_are_none(writer) ? NULL :
		copy_find(writer, node);

	if (copy != NULL)
		make_now(writer, copy);
}

/* The copy of a name, with one more user; NULL: there is none. */
static struct copy *
find_copy(struct writer *writer, const struct node *directory, const char *name)
{
	struct wanted wanted = {
		.snapshot = directory->attributes.snapshot,
		.parent = directory->attributes.ino,
		.name = name
	};
	struct birth *birth;
	struct copy *copy = NULL;

	if (births_are_none(writer))
		return NULL;
	pthread_mutex_lock(&writer->lock);
	for (birth = writer->first_birth; birth != NULL && !birth_is_wanted(birth, &wanted);)
		birth = birth->next;
	if (birth != NULL)
	{
		copy = birth->copy;
		copy->users++;
	}
	pthread_mutex_unlock(&writer->lock);
	return copy;
}

bool
birth_look_up(struct writer *writer, const struct node *directory, const char *name,
			  struct attributes *attributes)
{
	struct copy *copy = find_copy(writer, directory, name);

	if (copy == NULL)
		return false;
	pthread_mutex_lock(&copy->node->lock);
	*attributes = copy->node->attributes;
	pthread_mutex_unlock(&copy->node->lock);
	copy_release(writer, copy);
	return true;
}

bool
birth_unlink(struct writer *writer, const struct node *directory, const char *name)
{
	struct copy *copy = find_copy(writer, directory, name);

	if (copy == NULL)
		return false;
	pthread_mutex_lock(&copy->lock);
	copy->is_removed = true;
	if (copy->birth != NULL)
		birth_end(writer, copy);
	copy_unlock(writer, copy);
	return true;
}

bool
birth_is_of(struct writer *writer, struct node *node)
{
	struct copy *copy = births_are_none(writer) ? NULL :
		copy_lock(writer, node);
	bool		is_unmade;

	if (copy == NULL)
		return false;
	is_unmade = copy->birth != NULL;
	copy_unlock(writer, copy);
	return is_unmade;
}
