/*
 * kernel/pages.c
 *	  Pages that the kernel drops, see pages.h.
 */
#include "kernel/pages.h"

#include <fuse_lowlevel.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/errors.h"

struct stale
{
	uint64_t	id;				/* of a node */
	fuse_req_t	request;		/* that wrote, and waits; NULL: none, and all pages are stale */
	off_t		offset;
	size_t		bytes;
};

struct list
{
	struct stale *items;
	int			count;
	int			room;
};

struct pages
{
	struct fuse_session *session;
	void		(*each_second) (void *context);
	void	   *context;
	pthread_mutex_t lock;		/* of all below; no other lock is taken under it */
	pthread_cond_t work;
	struct list waiting;
	struct list taken;			/* by the thread, which alone changes it */
	bool		stopping;
	pthread_t	thread;
	bool		has_thread;
};

struct pages *
pages_create(void (*each_second) (void *context), void *context)
{
	struct pages *pages = allocate(sizeof(*pages));

	pages->each_second = each_second;
	pages->context = context;
	pthread_mutex_init(&pages->lock, NULL);
	init_condition(&pages->work);
	return pages;
}

static void
add(struct pages *pages, struct stale stale)
{
	struct list *list = &pages->waiting;

	pthread_mutex_lock(&pages->lock);
	if (list->count == list->room)
	{
		list->room = list->room > 0 ? 2 * list->room : 64;
		list->items = realloc(list->items, list->room * sizeof(struct stale));
		if (list->items == NULL)
			fatal("out of memory");
	}
	list->items[list->count++] = stale;
	pthread_cond_signal(&pages->work);
	pthread_mutex_unlock(&pages->lock);
}

void
pages_drop(struct pages *pages, uint64_t id)
{
	add(pages, (struct stale) {.id = id});
}

void
pages_reply_write(struct pages *pages, struct fuse_req *request, uint64_t id, int64_t offset,
				  size_t bytes)
{
	add(pages, (struct stale) {.id = id, .request = request, .offset = offset, .bytes = bytes});
}

static bool
is_in(const struct list *list, uint64_t id)
{
	for (int i = 0; i < list->count; i++)
		if (list->items[i].id == id && list->items[i].request == NULL)
			return true;
	return false;
}

bool
pages_are_right(struct pages *pages, uint64_t id)
{
	bool		are_right;

	pthread_mutex_lock(&pages->lock);
	are_right = !is_in(&pages->waiting, id) && !is_in(&pages->taken, id);
	pthread_mutex_unlock(&pages->lock);
	return are_right;
}

static void
reply_all(const struct list *list)
{
	for (int i = 0; i < list->count; i++)
		if (list->items[i].request != NULL)
			fuse_reply_write(list->items[i].request, list->items[i].bytes);
}

/*
 * Without the lock: the kernel may wait for a request while it drops pages.  (0 bytes are all that
 * follow.)
 */
static void
drop_all(struct pages *pages, const struct list *list)
{
	for (int i = 0; i < list->count; i++)
	{
		const struct stale *stale = &list->items[i];

		fuse_lowlevel_notify_inval_inode(pages->session, stale->id, stale->offset,
										 (off_t) stale->bytes);
		if (stale->request != NULL)
			fuse_reply_write(stale->request, stale->bytes);
	}
}

static void *
run_thread(void *argument)
{
	struct pages *pages = argument;

	pthread_mutex_lock(&pages->lock);
	while (!pages->stopping)
	{
		struct timespec until = deadline(1000);

		if (pages->waiting.count == 0)
			pthread_cond_timedwait(&pages->work, &pages->lock, &until);
		while (pages->waiting.count > 0 && !pages->stopping)
		{
			struct list taken = pages->waiting;

			pages->waiting = pages->taken;
			pages->taken = taken;
			pthread_mutex_unlock(&pages->lock);
			drop_all(pages, &pages->taken);
			pthread_mutex_lock(&pages->lock);
			pages->taken.count = 0;
		}
		if (pages->each_second == NULL)
			continue;
		pthread_mutex_unlock(&pages->lock);
		pages->each_second(pages->context);
		pthread_mutex_lock(&pages->lock);
	}
	pthread_mutex_unlock(&pages->lock);
	return NULL;
}

void
pages_start(struct pages *pages, struct fuse_session *session)
{
	pages->session = session;
	pages->has_thread = pthread_create(&pages->thread, NULL, run_thread, pages) == 0;
	if (!pages->has_thread)
		fatal("no thread: %m");
}

void
pages_stop(struct pages *pages)
{
	pthread_mutex_lock(&pages->lock);
	pages->stopping = true;
	pthread_cond_signal(&pages->work);
	pthread_mutex_unlock(&pages->lock);
	if (pages->has_thread)
		pthread_join(pages->thread, NULL);
	reply_all(&pages->waiting);
}
