/*
 * writing/group.c
 *	  Transactions of many files: the list of them, their connections, and the names that each has
 *	  made.  See group.h; mount/WRITING.md has what they promise.
 */
#include "writing/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/pool.h"

/* There is one list: operations of a source, and threads, have no other way to it. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct group *first_group;
static int64_t last_number;

/* Under the lock. */
static struct group *
find_group(const char *name, int64_t number)
{
	struct group *group = first_group;

	while (group != NULL && !(name ? strcmp(group->name, name) == 0 : group->number == number))
		group = group->next;
	return group;
}

void
group_bind(const struct node *node)
{
	struct group *group;

	if (node->attributes.snapshot >= 0)
		return;
	pthread_mutex_lock(&list_lock);
	group = find_group(NULL, node->attributes.snapshot);
	pool_bind(group && !group->is_ending ? group->connection : NULL);
	pthread_mutex_unlock(&list_lock);
}

void
group_bind_always(int64_t number)
{
	struct group *group;

	pthread_mutex_lock(&list_lock);
	group = find_group(NULL, number);
	pool_bind(group && !group->is_ended ? group->connection : NULL);
	pthread_mutex_unlock(&list_lock);
}

void
group_fail(int64_t number, int error)
{
	struct group *group;

	pthread_mutex_lock(&list_lock);
	group = find_group(NULL, number);
	if (group != NULL && group->error == 0)
		group->error = error;
	pthread_mutex_unlock(&list_lock);
}

static uint64_t
hash_name(uint64_t directory, const char *name)
{
	uint64_t	hash = UINT64_C(14695981039346656037) ^ (directory * UINT64_C(0x9e3779b97f4a7c15));

	for (; *name != '\0'; name++)
		hash = (hash ^ (unsigned char) *name) * UINT64_C(1099511628211);
	hash ^= hash >> 32;
	return hash != 0 ? hash : 1;
}

/* The slot of a hash, or the free one where it belongs. */
static uint64_t *
find_slot(const struct names *names, uint64_t hash)
{
	size_t		i = hash & (names->room - 1);

	while (names->slots[i] != 0 && names->slots[i] != hash)
		i = (i + 1) & (names->room - 1);
	return &names->slots[i];
}

static bool
has_hash(const struct names *names, uint64_t hash)
{
	return names->room > 0 && *find_slot(names, hash) != 0;
}

/* At most half of the slots are in use, so that searches end soon. */
static void
add_hash(struct names *names, uint64_t hash)
{
	if (2 * names->count >= names->room)
	{
		struct names larger = {.room = names->room > 0 ? 2 * names->room : 256};

		larger.slots = allocate(larger.room * sizeof(uint64_t));
		for (size_t i = 0; i < names->room; i++)
			if (names->slots[i] != 0)
				add_hash(&larger, names->slots[i]);
		free(names->slots);
		*names = larger;
	}
	if (!has_hash(names, hash))
	{
		*find_slot(names, hash) = hash;
		names->count++;
	}
}

static void
note_hash(int64_t number, uint64_t hash)
{
	struct group *group;

	if (number >= 0)
		return;
	pthread_mutex_lock(&list_lock);
	group = find_group(NULL, number);
	if (group != NULL)
		add_hash(&group->names, hash);
	pthread_mutex_unlock(&list_lock);
}

void
group_note_directory(const struct node *parent, int64_t ino)
{
	note_hash(parent->attributes.snapshot, hash_name((uint64_t) ino, ""));
}

void
group_note_name(const struct node *parent, const char *name)
{
	note_hash(parent->attributes.snapshot, hash_name(parent->attributes.ino, name));
}

bool
group_has_made(int64_t number, uint64_t directory)
{
	struct group *group;
	bool		has_made;

	if (number >= 0)
		return false;
	pthread_mutex_lock(&list_lock);
	group = find_group(NULL, number);
	has_made = group != NULL && !group->is_ending &&
		has_hash(&group->names, hash_name(directory, ""));
	pthread_mutex_unlock(&list_lock);
	return has_made;
}

/* A directory that the group has made has its own times already; no name is "/". */
bool
group_touches(uint64_t directory, int64_t snapshot)
{
	uint64_t	hash = hash_name(directory, "/");
	struct group *group;
	bool		touches = true;

	if (snapshot >= 0)
		return true;
	pthread_mutex_lock(&list_lock);
	group = find_group(NULL, snapshot);
	if (group != NULL)
	{
		touches = !has_hash(&group->names, hash) &&
			!has_hash(&group->names, hash_name(directory, ""));
		add_hash(&group->names, hash);
	}
	pthread_mutex_unlock(&list_lock);
	return touches;
}

bool
group_lacks_name(const struct node *directory, const char *name)
{
	uint64_t	ino = directory->attributes.ino;
	struct group *group;
	bool		lacks;

	if (directory->attributes.snapshot >= 0)
		return false;
	pthread_mutex_lock(&list_lock);
	group = find_group(NULL, directory->attributes.snapshot);
	lacks = group != NULL && has_hash(&group->names, hash_name(ino, "")) &&
		!has_hash(&group->names, hash_name(ino, name));
	pthread_mutex_unlock(&list_lock);
	return lacks;
}

int
group_begin_end(const char *name, struct group **group)
{
	int			error = 0;

	pthread_mutex_lock(&list_lock);
	*group = find_group(name, 0);
	if (*group == NULL)
		error = ENOENT;
	else if ((*group)->is_ending)
		error = EBUSY;
	else
	{
		(*group)->is_ending = true;
		pool_bind_alone((*group)->connection);
	}
	pthread_mutex_unlock(&list_lock);
	return error;
}

void
group_end_sending(struct group *group)
{
	pthread_mutex_lock(&list_lock);
	group->is_ended = true;
	pool_bind_alone(group->connection);
	pthread_mutex_unlock(&list_lock);
}

bool
group_add(struct group *group)
{
	bool		is_new;

	pthread_mutex_lock(&list_lock);
	is_new = find_group(group->name, 0) == NULL;
	if (is_new)
	{
		group->number = --last_number;
		group->next = first_group;
		first_group = group;
	}
	pthread_mutex_unlock(&list_lock);
	return is_new;
}

void
group_free(struct group *group)
{
	pool_unreserve(group->connection);
	free(group->names.slots);
	free(group->name);
	free(group);
}

void
group_forget(struct group *group)
{
	struct group **link = &first_group;

	pthread_mutex_lock(&list_lock);
	while (*link != group)
		link = &(*link)->next;
	*link = group->next;
	pthread_mutex_unlock(&list_lock);
	group_free(group);
}

int
group_error(const struct group *group)
{
	int			error;

	pthread_mutex_lock(&list_lock);
	error = group->error;
	pthread_mutex_unlock(&list_lock);
	return error;
}

void
group_list(const struct source *source, entry_receiver receive, void *context)
{
	pthread_mutex_lock(&list_lock);
	for (struct group *group = first_group; group != NULL; group = group->next)
	{
		struct directory_entry entry = {.name = group->name, .attributes = source->root};

		entry.attributes.snapshot = group->number;
		receive(context, &entry);
	}
	pthread_mutex_unlock(&list_lock);
}

int64_t
group_bind_name(const char *name)
{
	struct group *group;
	int64_t		number;

	pthread_mutex_lock(&list_lock);
	group = find_group(name, 0);
	number = group && !group->is_ending ? group->number : 0;
	if (number != 0)
		pool_bind(group->connection);
	pthread_mutex_unlock(&list_lock);
	return number;
}
