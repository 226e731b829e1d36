/*
 * reading/state.h
 *	  The reader's state, and what the files of this folder have of each other.
 */
#ifndef STATE_H
#define STATE_H

#include <pthread.h>

#include "reading/cache.h"

enum
{
	AHEAD_THREADS = 3,
	AHEAD_QUEUE = 32,
	UNPIN_BATCH = 256
};

struct ahead
{
	struct node *node;			/* held */
	struct content *content;	/* to be filled */
};

/* A version that is kept without a handle. */
struct kept
{
	struct node *node;			/* held, and open */
	time_t		until;			/* monotonic */
	struct kept *next;
};

struct reader
{
	struct source *source;
	struct tree *tree;
	struct cache *cache;
	bool		is_ahead;		/* other threads may read what an open file will want */
	size_t		held_limit;
	pthread_mutex_t lock;		/* of all below */
	pthread_cond_t work;
	size_t		held_bytes;		/* small values of open files */
	struct ahead queue[AHEAD_QUEUE];
	int			queue_first;
	int			queue_count;
	int64_t		unpins[UNPIN_BATCH];
	int			unpin_count;
	struct kept *first_kept;	/* in the order of their times */
	struct kept **last_kept;	/* where the next one is linked */
	void		(*expired) (void *context, struct node *node);	/* read_on_expiry() */
	void	   *expired_context;
	bool		stopping;
	pthread_t	threads[AHEAD_THREADS];
	int			thread_count;
	int64_t		last_pin;
};

/*
 * range.c: the content of a small node, with one more user.  A thread that waits for the fetch of
 * another thread, which was interrupted, fetches itself.
 */
int get_small(struct reader *reader, struct node *node, struct content **content);

/* range.c: fetch a chunk or a block for the entry that the caller has got from the cache. */
int fill_chunk(struct reader *reader, struct node *node, struct content *content);

#endif							/* STATE_H */
