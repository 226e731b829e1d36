/*
 * reading/cache.h
 *	  Content in the program's memory: small values and chunks of larger ones, by version.
 *
 * Users of an entry are counted.  Entries without users leave in the order in which they were used,
 * when all entries together are larger than the cache shall be; so users can make it larger.
 */
#ifndef CACHE_H
#define CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/tree.h"
#include "sources/source.h"

struct cache;

struct content_key
{
	uint64_t	ino;
	int64_t		snapshot;
	struct version version;
	int64_t		chunk;			/* 0 for small values */
};

struct content
{
	struct content_key key;
	struct buffer buffer;		/* once ready */
	enum
	{
		CONTENT_FETCHED,		/* by the thread that made the entry */
		CONTENT_READY,
		CONTENT_FAILED			/* no longer found */
	}			state;
	int			error;
	int			users;
	bool		is_served;		/* cache_give(): given with "last" */
	struct content *next;		/* in its bucket */
	struct content *newer;		/* in the order of use, without users only */
	struct content *older;
};

struct cache *cache_create(size_t limit_bytes);
void cache_destroy(struct cache *cache);

void cache_key(struct content_key *key, const struct attributes *attributes, int64_t chunk);

/*
 * The entry of a key, with one more user.  *fetch: it is new, and the caller, or another thread in
 * its place, must call cache_fill() or cache_fail().  Otherwise it may still be fetched:
 * cache_wait().
 */
struct content *cache_get(struct cache *cache, const struct content_key *key, bool *fetch);

/* The same, NULL if there is none that is ready or fetched. */
struct content *cache_find(struct cache *cache, const struct content_key *key);

/* Wait until the entry is ready: 0 or an errno, after which the caller is no user any more. */
int cache_wait(struct cache *cache, struct content *content);

/* The entry takes the buffer over. */
void cache_fill(struct cache *cache, struct content *content, struct buffer *buffer);
void cache_fail(struct cache *cache, struct content *content, int error);

/*
 * last: it will hardly be used again, and leaves first.  Only a few such entries are kept, for
 * requests that come in another order than a program makes them: a reader goes on with the memory
 * of those that it has read, where other memory would be zeroed by the kernel.
 */
void cache_give(struct cache *cache, struct content *content, bool last);

#endif							/* CACHE_H */
