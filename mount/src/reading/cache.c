/*
 * reading/cache.c
 *	  Content in the program's memory, by version.
 *
 * One lock, and one condition for all threads that wait for an entry.  Nothing under the lock waits
 * for the server.
 */
#include "reading/cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/request.h"

enum
{
	BUCKETS = 16384,
	/* Entries that will hardly be used again; their memory goes to the next ones. */
	SERVED_KEPT = 4
};

struct cache
{
	pthread_mutex_t lock;
	pthread_cond_t fetched;
	size_t		limit;
	size_t		bytes;
	struct content *buckets[BUCKETS];
	struct content *newest;
	struct content *oldest;
};

struct cache *
cache_create(size_t limit_bytes)
{
	struct cache *cache = allocate(sizeof(*cache));

	cache->limit = limit_bytes;
	pthread_mutex_init(&cache->lock, NULL);
	init_condition(&cache->fetched);
	return cache;
}

void
cache_destroy(struct cache *cache)
{
	for (int i = 0; i < BUCKETS; i++)
	{
		struct content *next;

		for (struct content *content = cache->buckets[i]; content != NULL; content = next)
		{
			next = content->next;
			buffer_free(&content->buffer);
			free(content);
		}
	}
	free(cache);
}

/* The key has no padding: it is compared and hashed as bytes. */
_Static_assert(sizeof(struct content_key) == 3 * 8 + sizeof(struct version), "padding");

void
cache_key(struct content_key *key, const struct attributes *attributes, int64_t chunk)
{
	key->ino = attributes->ino;
	key->snapshot = attributes->snapshot;
	key->version = attributes->version;
	key->chunk = chunk;
}

static struct content **
find_bucket(struct cache *cache, const struct content_key *key)
{
	const unsigned char *bytes = (const unsigned char *) key;
	uint64_t	hash = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < sizeof(*key); i++)
		hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
	return &cache->buckets[(hash ^ (hash >> 32)) % BUCKETS];
}

static void
remove_from_order(struct cache *cache, struct content *content)
{
	*(content->newer ? &content->newer->older : &cache->newest) = content->older;
	*(content->older ? &content->older->newer : &cache->oldest) = content->newer;
	content->newer = content->older = NULL;
}

static void
add_to_order(struct cache *cache, struct content *content, bool last)
{
	if (last)
	{
		content->newer = cache->oldest;
		*(content->newer ? &content->newer->older : &cache->newest) = content;
		cache->oldest = content;
	}
	else
	{
		content->older = cache->newest;
		*(content->older ? &content->older->newer : &cache->oldest) = content;
		cache->newest = content;
	}
}

static void
remove_from_bucket(struct cache *cache, struct content *content)
{
	struct content **link = find_bucket(cache, &content->key);

	while (*link != content)
		link = &(*link)->next;
	*link = content->next;
}

static void
drop(struct cache *cache, struct content *content)
{
	remove_from_order(cache, content);
	remove_from_bucket(cache, content);
	cache->bytes -= content->buffer.length;
	buffer_free(&content->buffer);
	free(content);
}

static void
evict(struct cache *cache)
{
	while (cache->bytes > cache->limit && cache->oldest != NULL)
		drop(cache, cache->oldest);
}

/* One was added: those that came last are at the end of the order. */
static void
drop_served(struct cache *cache)
{
	struct content *content = cache->oldest;

	for (int i = 0; i < SERVED_KEPT && content != NULL && content->is_served; i++)
		content = content->newer;
	if (content != NULL && content->is_served)
		drop(cache, content);
}

static struct content *
find_locked(struct cache *cache, const struct content_key *key)
{
	struct content *content = *find_bucket(cache, key);

	while (content != NULL && memcmp(&content->key, key, sizeof(*key)) != 0)
		content = content->next;
	if (content != NULL && content->users++ == 0)
		remove_from_order(cache, content);
	return content;
}

struct content *
cache_find(struct cache *cache, const struct content_key *key)
{
	struct content *content;

	pthread_mutex_lock(&cache->lock);
	content = find_locked(cache, key);
	pthread_mutex_unlock(&cache->lock);
	return content;
}

struct content *
cache_get(struct cache *cache, const struct content_key *key, bool *fetch)
{
	struct content *content;

	pthread_mutex_lock(&cache->lock);
	content = find_locked(cache, key);
	*fetch = content == NULL;
	if (content == NULL)
	{
		struct content **bucket = find_bucket(cache, key);

		content = allocate(sizeof(*content));
		content->key = *key;
		content->users = 1;
		content->next = *bucket;
		*bucket = content;
	}
	pthread_mutex_unlock(&cache->lock);
	return content;
}

/* Under the lock.  A failed entry is in no bucket. */
static void
give_locked(struct cache *cache, struct content *content, bool last)
{
	if (--content->users > 0)
		return;
	if (content->state == CONTENT_FAILED)
	{
		free(content);
		return;
	}
	add_to_order(cache, content, last);
	content->is_served = last;
	if (last)
		drop_served(cache);
	evict(cache);
}

void
cache_give(struct cache *cache, struct content *content, bool last)
{
	pthread_mutex_lock(&cache->lock);
	give_locked(cache, content, last);
	pthread_mutex_unlock(&cache->lock);
}

int
cache_wait(struct cache *cache, struct content *content)
{
	int			error = 0;
	int			waited = 0;

	pthread_mutex_lock(&cache->lock);
	while (content->state == CONTENT_FETCHED && error == 0)
	{
		struct timespec until = deadline(WAIT_MILLISECONDS);

		pthread_cond_timedwait(&cache->fetched, &cache->lock, &until);
		waited += WAIT_MILLISECONDS;	/* at most */
		if (content->state == CONTENT_FETCHED && waited > PATIENCE_MILLISECONDS &&
			request_is_interrupted())
			error = EINTR;
	}
	if (error == 0 && content->state == CONTENT_FAILED)
		error = content->error;
	if (error != 0)
		give_locked(cache, content, false);
	pthread_mutex_unlock(&cache->lock);
	return error;
}

void
cache_fill(struct cache *cache, struct content *content, struct buffer *buffer)
{
	pthread_mutex_lock(&cache->lock);
	content->buffer = *buffer;
	content->state = CONTENT_READY;
	cache->bytes += buffer->length;
	evict(cache);
	pthread_cond_broadcast(&cache->fetched);
	pthread_mutex_unlock(&cache->lock);
	memset(buffer, 0, sizeof(*buffer));
}

void
cache_fail(struct cache *cache, struct content *content, int error)
{
	pthread_mutex_lock(&cache->lock);
	remove_from_bucket(cache, content);
	content->state = CONTENT_FAILED;
	content->error = error;
	pthread_cond_broadcast(&cache->fetched);
	give_locked(cache, content, false);
	pthread_mutex_unlock(&cache->lock);
}
