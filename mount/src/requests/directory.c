/*
 * requests/directory.c
 *	  Open directories, and their entries as the kernel asks for them.
 *
 * An open directory has one page of entries in memory, as the source delivers them, and the
 * position at which the next page begins.  The offset of an entry is its number in the listing: 0
 * and 1 are "." and "..".  An offset before the page, after seekdir(), reads the directory from its
 * beginning.  rewinddir() reads the directory again.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/errors.h"
#include "kernel/notify.h"
#include "requests/entry.h"
#include "requests/operations.h"
#include "writing/making.h"

enum
{
	DOTS = 2
};

struct listed
{
	char	   *name;
	struct attributes attributes;
};

struct directory
{
	pthread_mutex_t lock;
	struct listing_position position;
	off_t		first;			/* offset of the page's first entry */
	struct listed *entries;
	int			count;
	int			room;
	struct timespec began;		/* monotonic: when the listing did */
	uint64_t	notified;		/* number of notifications before the page's statement */
};

static struct directory *
get_directory(struct fuse_file_info *info)
{
	return (struct directory *) (uintptr_t) info->fh;
}

/*
 * Whether the kernel may list the directory from what it remembers.  Names and attributes came with
 * the listing.  When they are too old, each would be asked for by itself, so half of the time for
 * which they are trusted must remain.
 */
static bool
is_fresh(struct mount *mount, struct node *node)
{
	double		age;

	pthread_mutex_lock(&node->lock);
	age = seconds_since(&node->listed_at);
	pthread_mutex_unlock(&node->lock);
	return age < mount->options->timeout / 2;
}

/* Without requests for open files, those for listings would be most of what remains. */
static void
open_directory(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct directory *directory = allocate(sizeof(*directory));

	pthread_mutex_init(&directory->lock, NULL);
	directory->first = DOTS;
	info->fh = (uint64_t) (uintptr_t) directory;
	info->cache_readdir = mount->options->noopen && !mount->options->notify;
	info->keep_cache = info->cache_readdir && is_fresh(mount, node);
	if (fuse_reply_open(request, info) != 0)
	{
		pthread_mutex_destroy(&directory->lock);
		free(directory);
	}
}

static void
clear_page(struct directory *directory)
{
	for (int i = 0; i < directory->count; i++)
		free(directory->entries[i].name);
	directory->count = 0;
}

static void
restart(struct directory *directory)
{
	clock_gettime(CLOCK_MONOTONIC, &directory->began);
	clear_page(directory);
	listing_clear(&directory->position);
	directory->first = DOTS;
}

static void
release_directory(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct directory *directory = get_directory(info);

	restart(directory);
	free(directory->entries);
	pthread_mutex_destroy(&directory->lock);
	free(directory);
	fuse_reply_err(request, 0);
}

/* entry_receiver */
static void
receive_entry(void *context, const struct directory_entry *entry)
{
	struct directory *directory = context;
	struct listed *listed;

	if (directory->count == directory->room)
	{
		directory->room = directory->room > 0 ? 2 * directory->room : 64;
		directory->entries = realloc(directory->entries, directory->room * sizeof(struct listed));
		if (directory->entries == NULL)
			fatal("out of memory");
	}
	listed = &directory->entries[directory->count++];
	listed->name = copy_string(entry->name);
	listed->attributes = entry->attributes;
}

/* The entry at an offset: NULL at the end, or with an error. */
static struct listed *
find_entry(struct mount *mount, struct node *node, struct directory *directory, off_t offset,
		   int *error)
{
	struct source *source = mount->source;

	*error = 0;
	if (offset < directory->first)
		restart(directory);
	while (offset >= directory->first + directory->count)
	{
		off_t		next = directory->first + directory->count;

		if (directory->position.complete)
			return NULL;
		if (mount->writer != NULL)
			births_make(mount->writer, node, NULL);
		clear_page(directory);
		directory->first = next;
		directory->notified = notify_count(mount->notifier);
		*error = source->operations->list(source, node, &directory->position, receive_entry,
										  directory);
		if (*error != 0)
		{
			restart(directory);
			return NULL;
		}
	}
	return &directory->entries[offset - directory->first];
}

/* One entry into the reply; its size, which is larger than the room if it does not fit. */
static size_t
add_entry(fuse_req_t request, struct node *node, char *buffer, size_t room,
		  const struct listed *listed, off_t next, bool plus)
{
	struct mount *mount = request_mount(request);
	struct fuse_entry_param entry;
	struct stat stat;
	struct node *child;
	size_t		size;

	if (!plus)
	{
		attributes_to_stat(&listed->attributes, &stat);
		return fuse_add_direntry(request, buffer, room, listed->name, &stat, next);
	}
	child = fill_entry(mount, node, listed->name, &listed->attributes, &entry);
	size = fuse_add_direntry_plus(request, buffer, room, listed->name, &entry, next);
	if (size > room)
		tree_forget(mount->tree, child->id, 1);
	return size;
}

/* "." and "..": the kernel takes no node from them. */
static size_t
add_dots(fuse_req_t request, struct node *node, char *buffer, size_t room, off_t offset, bool plus)
{
	const char *name = offset == 0 ? "." : "..";
	struct fuse_entry_param entry = {0};

	attributes_to_stat(&node->attributes, &entry.attr);
	if (plus)
		return fuse_add_direntry_plus(request, buffer, room, name, &entry, offset + 1);
	return fuse_add_direntry(request, buffer, room, name, &entry.attr, offset + 1);
}

/* Entries from an offset on, as many as are in the page and in the room; bytes of the reply. */
static size_t
fill_reply(fuse_req_t request, struct node *node, struct directory *directory, off_t offset,
		   char *buffer, size_t size, bool plus)
{
	size_t		used = 0;

	while (used < size && (offset < DOTS || offset < directory->first + directory->count))
	{
		char	   *to = buffer + used;
		size_t		room = size - used;
		size_t		length;

		if (offset < DOTS)
			length = add_dots(request, node, to, room, offset, plus);
		else
			length = add_entry(request, node, to, room,
							   &directory->entries[offset - directory->first], offset + 1, plus);
		if (length > room)
			break;
		used += length;
		offset++;
	}
	return used;
}

/* The listing has come to its end. */
static void
note_listed(struct node *node, const struct directory *directory)
{
	pthread_mutex_lock(&node->lock);
	node->listed_at = directory->began;
	pthread_mutex_unlock(&node->lock);
}

/* A reply ends at the end of a page, so its names are all as old as the page's statement. */
static void
read_directory(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset,
			   struct fuse_file_info *info, bool plus)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct directory *directory = get_directory(info);
	char	   *buffer = allocate(size);
	size_t		used = 0;
	int			error = 0;

	pthread_mutex_lock(&directory->lock);
	/* A program may go back to ".." (seekdir) when the page is a later one. */
	if (offset < DOTS)
		restart(directory);
	else
		find_entry(mount, node, directory, offset, &error);
	notify_begin(directory->notified);
	notify_enter(mount->notifier);
	if (error == 0)
		used = fill_reply(request, node, directory, offset, buffer, size, plus);
	if (error == 0 && used == 0)
		note_listed(node, directory);
	/* After the reply the kernel may release the directory. */
	pthread_mutex_unlock(&directory->lock);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		fuse_reply_buf(request, buffer, used);
	notify_leave(mount->notifier);
	free(buffer);
}

static void
read_names(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset,
		   struct fuse_file_info *info)
{
	read_directory(request, id, size, offset, info, false);
}

static void
read_nodes(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset,
		   struct fuse_file_info *info)
{
	read_directory(request, id, size, offset, info, true);
}

void
directory_operations(struct fuse_lowlevel_ops *operations)
{
	operations->opendir = open_directory;
	operations->readdir = read_names;
	operations->readdirplus = read_nodes;
	operations->releasedir = release_directory;
}
