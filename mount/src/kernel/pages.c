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
	int64_t		offset;
	int64_t		bytes;			/* 0: all from there on */
};

struct pages
{
	struct fuse_session *session;
	void		(*each_second) (void *context);
	void	   *context;
	pthread_mutex_t lock;		/* of all below; no other lock is taken under it */
	pthread_cond_t work;
	struct stale *stale;
	int			count;
	int			room;
	uint64_t	dropping;		/* the one whose pages are being dropped */
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

/* Under the lock: whether the node was in the list; if so, with these bytes, too. */
static bool
join(struct pages *pages, uint64_t id, int64_t offset, int64_t bytes)
{
	for (int i = 0; i < pages->count; i++)
	{
		struct stale *stale = &pages->stale[i];
		int64_t		end = stale->offset + stale->bytes;

		if (stale->id != id)
			continue;
		if (offset + bytes > end)
			end = offset + bytes;
		if (offset < stale->offset)
			stale->offset = offset;
		stale->bytes = stale->bytes == 0 || bytes == 0 ? 0 : end - stale->offset;
		return true;
	}
	return false;
}

/* Many direct writes of a file, one after the other, make one entry. */
void
pages_drop(struct pages *pages, uint64_t id, int64_t offset, int64_t bytes)
{
	pthread_mutex_lock(&pages->lock);
	if (join(pages, id, offset, bytes))
	{
		pthread_mutex_unlock(&pages->lock);
		return;
	}
	if (pages->count == pages->room)
	{
		pages->room = pages->room > 0 ? 2 * pages->room : 64;
		pages->stale = realloc(pages->stale, pages->room * sizeof(struct stale));
		if (pages->stale == NULL)
			fatal("out of memory");
	}
	pages->stale[pages->count++] = (struct stale) {.id = id, .offset = offset, .bytes = bytes};
	pthread_cond_signal(&pages->work);
	pthread_mutex_unlock(&pages->lock);
}

bool
pages_are_right(struct pages *pages, uint64_t id)
{
	bool		are_right;

	pthread_mutex_lock(&pages->lock);
	are_right = pages->dropping != id;
	for (int i = 0; i < pages->count && are_right; i++)
		are_right = pages->stale[i].id != id;
	pthread_mutex_unlock(&pages->lock);
	return are_right;
}

/* No lock is held while the kernel drops pages, because it may wait for a request then. */
static void *
run_thread(void *argument)
{
	struct pages *pages = argument;

	pthread_mutex_lock(&pages->lock);
	while (!pages->stopping)
	{
		struct timespec until = deadline(1000);

		if (pages->count == 0)
			pthread_cond_timedwait(&pages->work, &pages->lock, &until);
		/* As many as there are now: direct writes may bring new ones all the time. */
		for (int left = pages->count; left > 0 && !pages->stopping; left--)
		{
			struct stale stale = pages->stale[--pages->count];

			pages->dropping = stale.id;
			pthread_mutex_unlock(&pages->lock);
			fuse_lowlevel_notify_inval_inode(pages->session, stale.id, stale.offset, stale.bytes);
			pthread_mutex_lock(&pages->lock);
			pages->dropping = 0;
		}
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
}
