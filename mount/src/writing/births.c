/*
 * writing/births.c
 *	  Files that the server does not know yet: their list, see births.h.
 */
#include "writing/births.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/errors.h"

bool
birth_is_possible(struct writer *writer, const struct node *parent, int flags)
{
	if (!__atomic_load_n(&writer->may_defer, __ATOMIC_RELAXED))
		return false;
	return parent->attributes.snapshot < 0 ? (flags & (O_TRUNC | O_EXCL)) != 0 :
		(flags & (O_TRUNC | O_EXCL)) == O_TRUNC;
}

void
birth_allow(struct writer *writer, bool may_defer)
{
	__atomic_store_n(&writer->may_defer, may_defer, __ATOMIC_RELAXED);
}

void
birth_begin(struct writer *writer, struct copy *copy, const struct node *parent, const char *name,
			int flags)
{
	struct birth *birth = allocate(sizeof(*birth));

	birth->copy = copy;
	birth->parent = parent->attributes.ino;
	birth->name = copy_string(name);
	birth->mode = copy->node->attributes.mode & 07777;
	birth->uid = copy->node->attributes.uid;
	birth->gid = copy->node->attributes.gid;
	birth->is_exclusive = (flags & O_EXCL) != 0;
	birth->began = copy->node->attributes.mtime;
	birth->due = monotonic_seconds() + BIRTH_SECONDS;
	pthread_mutex_lock(&copy->lock);
	pthread_mutex_lock(&writer->lock);
	birth->next = writer->first_birth;
	writer->first_birth = birth;
	copy->birth = birth;
	__atomic_add_fetch(&writer->birth_count, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&writer->lock);
	pthread_mutex_unlock(&copy->lock);
}

void
birth_forget(struct writer *writer, struct copy *copy)
{
	struct birth *birth = copy->birth;
	struct birth **link = &writer->first_birth;

	while (*link != birth)
		link = &(*link)->next;
	*link = birth->next;
	copy->birth = NULL;
	__atomic_sub_fetch(&writer->birth_count, 1, __ATOMIC_RELEASE);
	free(birth->name);
	free(birth);
}

void
birth_end(struct writer *writer, struct copy *copy)
{
	pthread_mutex_lock(&writer->lock);
	birth_forget(writer, copy);
	pthread_mutex_unlock(&writer->lock);
}

bool
births_are_none(const struct writer *writer)
{
	return __atomic_load_n(&writer->birth_count, __ATOMIC_ACQUIRE) == 0;
}

bool
birth_is_wanted(const struct birth *birth, const struct wanted *wanted)
{
	return birth->copy->node->attributes.snapshot == wanted->snapshot &&
		(wanted->parent == 0 || birth->parent == wanted->parent) &&
		(wanted->name == NULL || strcmp(birth->name, wanted->name) == 0) &&
		(wanted->due == 0 || birth->due <= wanted->due);
}

void
births_stat(struct writer *writer, const struct node *directory, struct stat *stat)
{
	struct wanted wanted = {
		.snapshot = directory->attributes.snapshot,
		.parent = directory->attributes.ino
	};

	if (births_are_none(writer))
		return;
	pthread_mutex_lock(&writer->lock);
	for (struct birth *birth = writer->first_birth; birth != NULL; birth = birth->next)
		if (birth_is_wanted(birth, &wanted) &&
			nanoseconds(birth->began) > nanoseconds(stat->st_mtim))
			stat->st_mtim = stat->st_ctim = birth->began;
	pthread_mutex_unlock(&writer->lock);
}
