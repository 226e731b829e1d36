/*
 * writing/copies.c
 *	  Working copies by inode: their users, and their bases.
 */
#include "writing/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "reading/range.h"
#include "reading/reader.h"
#include "sources/fs_row.h"
#include "writing/ahead.h"
#include "writing/births.h"

/* That of a node whose pages have changes that were lost: no version of a row. */
static const struct version lost_version = {.bytes = {[8] = 1}};

static bool
is_lost(struct node *node)
{
	bool		is_lost;

	pthread_mutex_lock(&node->lock);
	is_lost = memcmp(&node->attributes.version, &lost_version, sizeof(lost_version)) == 0;
	pthread_mutex_unlock(&node->lock);
	return is_lost;
}

static struct copy **
copy_bucket(struct writer *writer, uint64_t ino)
{
	return &writer->copies[ino % COPY_BUCKETS];
}

/* Under the writer's lock. */
static struct copy *
search(struct writer *writer, uint64_t ino, int64_t snapshot)
{
	struct copy *copy = *copy_bucket(writer, ino);

	while (copy != NULL && !(copy->node->attributes.ino == ino &&
							 copy->node->attributes.snapshot == snapshot))
		copy = copy->next;
	return copy;
}

/* Under the writer's lock.  The base is a node of its own, with the node's present attributes. */
static struct copy *
make_copy(struct writer *writer, struct node *node)
{
	struct copy *copy = allocate(sizeof(*copy));
	struct copy **bucket = copy_bucket(writer, node->attributes.ino);
	struct attributes attributes;

	pthread_mutex_lock(&node->lock);
	attributes = node->attributes;
	pthread_mutex_unlock(&node->lock);
	tree_hold(writer->tree, node);
	tree_set_written(writer->tree, node, true);
	pthread_mutex_init(&copy->lock, NULL);
	copy->writer = writer;
	copy->node = node;
	copy->mtime = attributes.mtime;
	copy->version = fs_get_version(&attributes.version);
	copy->is_removed = attributes.nlink == 0;
	copy->base = tree_make_private(writer->tree, &attributes);
	working_begin(&copy->working, writer->spool, attributes.size);
	copy->next = *bucket;
	*bucket = copy;
	node->working = copy;
	return copy;
}

int
copy_acquire(struct writer *writer, struct node *node, struct copy **copy)
{
	int			error = 0;

	pthread_mutex_lock(&writer->lock);
	*copy = search(writer, node->attributes.ino, node->attributes.snapshot);
	if (*copy == NULL && !is_lost(node))
		*copy = make_copy(writer, node);
	if (*copy != NULL && (*copy)->node == node)
		(*copy)->users++;
	else
		error = ESTALE;
	pthread_mutex_unlock(&writer->lock);
	return error;
}

struct copy *
copy_find(struct writer *writer, struct node *node)
{
	struct copy *copy;

	pthread_mutex_lock(&writer->lock);
	copy = node->working;
	if (copy != NULL)
		copy->users++;
	pthread_mutex_unlock(&writer->lock);
	return copy;
}

struct copy *
copy_lock(struct writer *writer, struct node *node)
{
	struct copy *copy = copy_find(writer, node);

	if (copy != NULL)
		pthread_mutex_lock(&copy->lock);
	return copy;
}

/*
 * Under the writer's lock: no thread finds the copy any more.  The node is as it would be without
 * it, for another copy may begin with the node as soon as the lock is free.
 *
 * Changes that could not be committed are lost with the copy: its user was told.  The kernel's
 * pages have them, so the node must not be found by the version that it was based on.
 */
static void
unlink_copy(struct writer *writer, struct copy *copy)
{
	struct copy **link = copy_bucket(writer, copy->node->attributes.ino);
	struct tree *tree = writer->tree;

	while (*link != copy)
		link = &(*link)->next;
	*link = copy->next;
	/* Its errors were told, or its group is rolled back. */
	if (copy->birth != NULL)
	{
		birth_forget(writer, copy);
		copy->working.changed = true;
	}
	if (copy->working.changed)
		tree_set_version(tree, copy->node, &lost_version);
	tree_set_written(tree, copy->node, false);
	copy->node->working = NULL;
}

static void
close_base(struct writer *writer, struct copy *copy)
{
	if (copy->base_is_open)
		read_close(writer->reader, copy->base);
	copy->base_is_open = false;
	tree_release(writer->tree, copy->base);
}

static void
end_copy(struct writer *writer, struct copy *copy)
{
	if (copy->working.changed)
		pages_drop(writer->pages, copy->node->id, 0, 0);
	ahead_drop(writer->ahead, copy);
	close_base(writer, copy);
	working_end(&copy->working);
	tree_release(writer->tree, copy->node);
	pthread_mutex_destroy(&copy->lock);
	free(copy);
}

/* A file without a name has its content here, for handles that only read, too. */
static bool
is_needed(struct copy *copy)
{
	return copy->users > 0 ||
		(copy->is_removed && copy->working.changed &&
		 __atomic_load_n(&copy->node->opens, __ATOMIC_RELAXED) > 0);
}

void
copy_release(struct writer *writer, struct copy *copy)
{
	bool		ends;

	pthread_mutex_lock(&writer->lock);
	copy->users--;
	ends = !is_needed(copy);
	if (ends)
		unlink_copy(writer, copy);
	pthread_mutex_unlock(&writer->lock);
	if (ends)
		end_copy(writer, copy);
}

void
copy_unlock(struct writer *writer, struct copy *copy)
{
	pthread_mutex_unlock(&copy->lock);
	copy_release(writer, copy);
}

void
copy_closed(struct writer *writer, struct node *node)
{
	struct copy *copy = copy_find(writer, node);

	if (copy != NULL)
		copy_release(writer, copy);
}

struct copy *
copies_next(struct writer *writer, int64_t snapshot, bool (*is_wanted) (const struct copy *copy))
{
	struct copy *found = NULL;

	pthread_mutex_lock(&writer->lock);
	for (int i = 0; i < COPY_BUCKETS && found == NULL; i++)
	{
		struct copy *copy = writer->copies[i];

		while (copy != NULL &&
			   !(copy->node->attributes.snapshot == snapshot && is_wanted(copy)))
			copy = copy->next;
		found = copy;
	}
	if (found != NULL)
		found->users++;
	pthread_mutex_unlock(&writer->lock);
	return found;
}

static bool
is_named(const struct copy *copy)
{
	return !copy->is_removed;
}

void
copies_find_removed(struct writer *writer)
{
	struct source *source = writer->source;
	struct copy **copies;
	int			count = 0;

	pthread_mutex_lock(&writer->lock);
	for (int i = 0; i < COPY_BUCKETS; i++)
		for (struct copy *copy = writer->copies[i]; copy != NULL; copy = copy->next)
			count++;
	copies = allocate(count * sizeof(*copies));
	count = 0;
	for (int i = 0; i < COPY_BUCKETS; i++)
		for (struct copy *copy = writer->copies[i]; copy != NULL; copy = copy->next)
			if (copy->node->attributes.snapshot == 0)
			{
				copy->users++;
				copies[count++] = copy;
			}
	pthread_mutex_unlock(&writer->lock);
	for (int i = 0; i < count; i++)
	{
		struct attributes now;

		pthread_mutex_lock(&copies[i]->lock);
		if (copies[i]->birth == NULL && !copies[i]->is_removed &&
			source->operations->getattr(source, copies[i]->node, &now) == ESTALE)
			copies[i]->is_removed = true;
		copy_unlock(writer, copies[i]);
	}
	free(copies);
}

void
copies_give_up(struct writer *writer, int64_t snapshot)
{
	struct copy *copy;

	while ((copy = copies_next(writer, snapshot, is_named)) != NULL)
	{
		pthread_mutex_lock(&copy->lock);
		copy->is_removed = copy->is_given_up = true;
		copy_unlock(writer, copy);
	}
}

void
copy_touch(struct copy *copy)
{
	clock_gettime(CLOCK_REALTIME, &copy->ctime);
	copy->mtime = copy->ctime;
}

/* ---- the base ---- */

/* Bytes of the server's content; the first call keeps its version readable. */
int
copy_read_base(void *context, int64_t offset, size_t length, char *target)
{
	struct copy *copy = context;
	struct reader *reader = copy->writer->reader;
	struct range range;
	int			error = 0;

	while (length > 0)
	{
		error = read_range(reader, copy->base, offset, length, &range);
		if (error != 0)
			return error;
		if (range.length == 0)
			return EIO;
		memcpy(target, range.data, range.length);
		target += range.length;
		offset += (int64_t) range.length;
		length -= range.length;
		read_done(reader, &range);
	}
	return 0;
}

int
copy_keep_base(struct copy *copy)
{
	int			error;

	if (copy->base_is_open || copy->working.base_kept == 0 || copy->base->attributes.snapshot < 0)
		return 0;
	error = read_open(copy->writer->reader, copy->base);
	copy->base_is_open = error == 0;
	return error;
}

/*
 * Local bytes, and a base that was kept readable, make up the content as before.  A base that was
 * not is replaced by the new version, which has the same bytes and more.
 */
void
copy_committed(struct writer *writer, struct copy *copy, const struct attributes *attributes)
{
	struct tree *tree = writer->tree;

	if (!copy->base_is_open)
	{
		close_base(writer, copy);
		copy->base = tree_make_private(tree, attributes);
		copy->working.base_kept = attributes->size;
	}
	copy->version = fs_get_version(&attributes->version);
	working_committed(&copy->working);
	tree_set_attributes(tree, copy->node, attributes);
	read_changed(writer->reader, copy->node);
}

/* Nothing of that inode's content is kept: there is none, or the file was opened with O_TRUNC. */
void
copy_made(struct writer *writer, struct copy *copy, const struct attributes *attributes)
{
	struct tree *tree = writer->tree;

	close_base(writer, copy);
	copy->base = tree_make_private(tree, attributes);
	copy->version = fs_get_version(&attributes->version);
	copy->working.server_size = attributes->size;
	copy->working.kept = copy->working.base_kept = 0;
	copy->working.changed |= attributes->size > 0;
	tree_set_attributes(tree, copy->node, attributes);
}

bool
copy_move(struct writer *writer, struct copy *copy, uint64_t ino)
{
	struct copy **link = copy_bucket(writer, copy->node->attributes.ino);
	struct copy *other;

	pthread_mutex_lock(&writer->lock);
	other = search(writer, ino, copy->node->attributes.snapshot);
	if (other == NULL)
	{
		while (*link != copy)
			link = &(*link)->next;
		*link = copy->next;
		tree_set_ino(writer->tree, copy->node, ino);
		link = copy_bucket(writer, ino);
		copy->next = *link;
		*link = copy;
	}
	pthread_mutex_unlock(&writer->lock);
	return other == NULL || other == copy;
}

void
copy_set_base(struct writer *writer, struct copy *copy, const struct attributes *attributes)
{
	struct tree *tree = writer->tree;

	close_base(writer, copy);
	copy->base = tree_make_private(tree, attributes);
	copy->version = fs_get_version(&attributes->version);
	copy->mtime = attributes->mtime;
	working_clean(&copy->working, attributes->size);
	tree_set_attributes(tree, copy->node, attributes);
	read_changed(writer->reader, copy->node);
}

/* ---- what others are told ---- */

void
copy_stat(struct writer *writer, struct node *node, struct stat *stat)
{
	struct copy *copy = copy_lock(writer, node);

	if (S_ISDIR(stat->st_mode))
		births_stat(writer, node, stat);
	if (copy == NULL)
		return;
	stat->st_size = copy->working.size;
	stat->st_blocks = (copy->working.size + 511) / 512;
	stat->st_mtim = copy->mtime;
	if (copy->working.changed)
		stat->st_ctim = copy->ctime;
	if (copy->is_removed)
		stat->st_nlink = 0;
	copy_unlock(writer, copy);
}

void
copy_seen(struct writer *writer, struct node *node, const struct attributes *attributes)
{
	struct copy *copy = copy_lock(writer, node);

	if (copy == NULL)
		return;
	if (!copy->working.changed && !copy->is_removed &&
		fs_get_version(&attributes->version) > copy->version)
	{
		copy_set_base(writer, copy, attributes);
		pages_drop(writer->pages, node->id, 0, 0);
	}
	copy_unlock(writer, copy);
}

/* Open files keep their content. */
void
copy_removed(struct writer *writer, uint64_t ino, int64_t snapshot)
{
	struct copy *copy;

	pthread_mutex_lock(&writer->lock);
	copy = search(writer, ino, snapshot);
	if (copy != NULL)
		copy->users++;
	pthread_mutex_unlock(&writer->lock);
	if (copy == NULL)
		return;
	pthread_mutex_lock(&copy->lock);
	copy->is_removed = true;
	copy_unlock(writer, copy);
}
