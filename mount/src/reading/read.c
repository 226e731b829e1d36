/*
 * reading/read.c
 *	  Content of nodes: small values whole, larger ones in chunks, some ahead.
 *
 * A value up to SMALL_BYTES comes whole.  If files of a directory are read in the order of their
 * names, those of the next names come with it in one query (source->read_batch).
 *
 * A larger value is read as the kernel asks, in blocks of BLOCK_BYTES or more, until a reader has
 * asked for several ranges one after the other.  Then it comes in chunks of CHUNK_BYTES, and when a
 * reader arrives in a chunk, a thread of this module asks for the next one.  So a random reader
 * costs little more than the bytes that it asks for, and a sequential one finds most of them here.
 *
 * An open version stays readable when its row is replaced or deleted.  A small value stays in the
 * cache while it is open, as long as such values take no more than half of the cache.  A larger
 * one, and a small one beyond that, is pinned at the server (pins.c).  A thread of this module
 * drops pins some time after the last handle was closed, many at once.
 */
#include "reading/read.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/request.h"
#include "connections/values.h"
#include "reading/cache.h"
#include "sources/pins.h"

enum
{
	AHEAD_THREADS = 3,
	AHEAD_QUEUE = 32,
	UNPIN_BATCH = 256,
	/* Requests of one reader may come in another order than it makes them. */
	STREAM_SLACK_BYTES = 256 * 1024,
	/* Ranges that go on where another one has ended, before chunks are read. */
	STREAM_AFTER = 2,
	/* Chunks that are asked for before their reader needs them. */
	CHUNKS_AHEAD = 2,
	/* Number of files of a directory, one after the other, after which a batch is read. */
	BATCH_AFTER = 2,
	KEEP_SECONDS = 3
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
	read_expired expired;
	void	   *expired_context;
	bool		stopping;
	pthread_t	threads[AHEAD_THREADS];
	int			thread_count;
	int64_t		last_pin;
};

struct reader *
read_create(struct source *source, struct tree *tree, const struct options *options)
{
	struct reader *reader = allocate(sizeof(*reader));

	reader->source = source;
	reader->tree = tree;
	reader->cache = cache_create((size_t) options->cache_mb << 20);
	reader->is_ahead = !options->opens_transactions;
	reader->held_limit = (size_t) options->cache_mb << 19;
	reader->last_kept = &reader->first_kept;
	pthread_mutex_init(&reader->lock, NULL);
	init_condition(&reader->work);
	return reader;
}

/* ---- bytes of a version, wherever they still are ---- */

/* After a crash of the server pins are gone.  If the row still has the version, pin it again. */
static void
renew_pin(struct reader *reader, struct node *node)
{
	uint64_t	epoch = pins_epoch(reader->source);
	int64_t		pin;

	pthread_mutex_lock(&node->lock);
	pin = node->pin_epoch != epoch ? node->pin : 0;
	node->pin_epoch = epoch;
	pthread_mutex_unlock(&node->lock);
	if (pin != 0 && reader->source->operations->pin(reader->source, node, pin) != 0)
		debug("node %llu: not pinned again", (unsigned long long) node->id);
}

static int
read_version(struct reader *reader, struct node *node, int64_t offset, size_t length,
			 struct buffer *buffer)
{
	struct source *source = reader->source;
	bool		replaced;
	bool		pinned;
	int			error = ESTALE;

	pthread_mutex_lock(&node->lock);
	replaced = node->replaced;
	pinned = node->pin != 0;
	pthread_mutex_unlock(&node->lock);
	if (!replaced || !pinned)
		error = source->operations->read(source, node, offset, length, buffer);
	if (error == 0 && pinned)
		renew_pin(reader, node);
	if (error != ESTALE || !pinned)
		return error;
	error = pins_read(source, node, offset, length, buffer);
	pthread_mutex_lock(&node->lock);
	node->replaced = error == 0;
	pthread_mutex_unlock(&node->lock);
	return error;
}

/* All of a range, or an error: the kernel would fill missing bytes with zeros. */
static int
read_exactly(struct reader *reader, struct node *node, int64_t offset, size_t length,
			 struct buffer *buffer)
{
	int			error = read_version(reader, node, offset, length, buffer);

	if (error != 0 || buffer->length == length)
		return error;
	message("%zu bytes at %lld of inode %llu are %zu", length, (long long) offset,
			(unsigned long long) node->attributes.ino, buffer->length);
	buffer_free(buffer);
	return EIO;
}

/*
 * Whether the node still has the version of a key.  A commit gives a node another one at any time,
 * so a statement with the node's attributes may have read the next version.
 */
static bool
has_version(struct node *node, const struct content_key *key)
{
	bool		has;

	pthread_mutex_lock(&node->lock);
	has = memcmp(&node->attributes.version, &key->version, sizeof(struct version)) == 0;
	pthread_mutex_unlock(&node->lock);
	return has;
}

/* Bytes of the node's version as the key has it, for the cache. */
static int
read_keyed(struct reader *reader, struct node *node, const struct content_key *key, int64_t offset,
		   size_t length, struct buffer *buffer)
{
	int			error = read_exactly(reader, node, offset, length, buffer);

	if (error != 0 || has_version(node, key))
		return error;
	buffer_free(buffer);
	return ESTALE;
}

/* A part of content that is in the cache; ESTALE: it is shorter, and so of another version. */
static int
take_part(struct reader *reader, struct content *content, size_t offset, size_t length,
		  struct range *range)
{
	if (offset + length > content->buffer.length)
	{
		cache_give(reader->cache, content, false);
		return ESTALE;
	}
	range->content = content;
	range->data = content->buffer.data + offset;
	range->length = length;
	return 0;
}

/* ---- small values ---- */

struct batch
{
	struct reader *reader;
	int			count;
};

/* content_receiver */
static void
receive_content(void *context, const struct directory_entry *entry, const char *data,
				size_t length)
{
	struct batch *batch = context;
	struct cache *cache = batch->reader->cache;
	struct content_key key;
	struct content *content;
	struct buffer buffer = {0};
	bool		fetch;

	cache_key(&key, &entry->attributes, 0);
	content = cache_get(cache, &key, &fetch);
	if (fetch)
	{
		buffer.data = allocate(length);
		buffer.length = length;
		memcpy(buffer.data, data, length);
		cache_fill(cache, content, &buffer);
		batch->count++;
	}
	cache_give(cache, content, false);
}

/* Whether this read goes on through a directory; the directory, held, and the name, to be freed. */
static bool
reads_in_order(struct reader *reader, struct node *node, struct node **directory, char **name)
{
	uint64_t	parent_id;
	bool		in_order;

	pthread_mutex_lock(&node->lock);
	parent_id = node->parent_id;
	*name = node->name ? copy_string(node->name) : NULL;
	pthread_mutex_unlock(&node->lock);
	*directory = *name ? tree_find_held(reader->tree, parent_id) : NULL;
	if (*directory == NULL)
	{
		free(*name);
		return false;
	}
	pthread_mutex_lock(&(*directory)->lock);
	in_order = (*directory)->last_read_name != NULL &&
		strcmp(*name, (*directory)->last_read_name) > 0;
	(*directory)->reads_in_order = in_order ? (*directory)->reads_in_order + 1 : 0;
	free((*directory)->last_read_name);
	(*directory)->last_read_name = copy_string(*name);
	in_order = (*directory)->reads_in_order >= BATCH_AFTER;
	pthread_mutex_unlock(&(*directory)->lock);
	if (in_order)
		return true;
	tree_release(reader->tree, *directory);
	free(*name);
	return false;
}

/* Errors do not matter: what did not come is read by itself. */
static void
fetch_batch(struct reader *reader, struct node *node)
{
	struct source *source = reader->source;
	struct batch batch = {reader, 0};
	struct node *directory;
	char	   *name;

	if (source->operations->read_batch == NULL ||
		!reads_in_order(reader, node, &directory, &name))
		return;
	source->operations->read_batch(source, directory, name, receive_content, &batch);
	debug("batch from \"%s\": %d files", name, batch.count);
	tree_release(reader->tree, directory);
	free(name);
}

/*
 * The content of a small node, with one more user.  A thread that waits for the fetch of another
 * thread, which was interrupted, fetches itself.
 */
static int
get_small(struct reader *reader, struct node *node, struct content **content)
{
	struct content_key key;
	struct buffer buffer;
	bool		fetch;
	int			error;

	cache_key(&key, &node->attributes, 0);
	*content = cache_find(reader->cache, &key);
	if (*content == NULL)
		fetch_batch(reader, node);
	for (;;)
	{
		if (*content == NULL)
		{
			*content = cache_get(reader->cache, &key, &fetch);
			if (fetch)
				break;
		}
		error = cache_wait(reader->cache, *content);
		if (error != EINTR || request_is_interrupted())
			return error;
		*content = NULL;
	}
	error = read_keyed(reader, node, &key, 0, (size_t) node->attributes.size, &buffer);
	if (error == 0)
		cache_fill(reader->cache, *content, &buffer);
	else
		cache_fail(reader->cache, *content, error);
	return error;
}

static int
read_small(struct reader *reader, struct node *node, int64_t offset, size_t length,
		   struct range *range)
{
	struct content *content;
	int			error = get_small(reader, node, &content);

	return error != 0 ? error : take_part(reader, content, (size_t) offset, length, range);
}

/* ---- larger values ---- */

/*
 * Whether the range goes on where others have, several times; notes its end.  The kernel begins
 * with so much at the beginning of a file only if its program reads in large pieces, or maps it.
 */
static bool
is_sequential(struct node *node, int64_t offset, int64_t end)
{
	int			count = sizeof(node->readers) / sizeof(node->readers[0]);
	int			ranges = -1;

	pthread_mutex_lock(&node->lock);
	for (int i = 0; i < count && ranges < 0; i++)
	{
		int64_t		expected = node->readers[i].end;

		if (expected == 0 || offset > expected + STREAM_SLACK_BYTES ||
			offset < expected - STREAM_SLACK_BYTES)
			continue;
		ranges = ++node->readers[i].ranges;
		if (end > expected)
			node->readers[i].end = end;
	}
	if (ranges < 0)
	{
		ranges = offset == 0 && end > BLOCK_BYTES ? STREAM_AFTER : 0;
		node->readers[node->next_reader].end = end;
		node->readers[node->next_reader].ranges = ranges;
		node->next_reader = (node->next_reader + 1) % count;
	}
	pthread_mutex_unlock(&node->lock);
	return ranges >= STREAM_AFTER;
}

static size_t
chunk_length(const struct node *node, int64_t chunk)
{
	int64_t		rest = node->attributes.size - chunk * CHUNK_BYTES;

	return (size_t) (rest < CHUNK_BYTES ? rest : CHUNK_BYTES);
}

/* Blocks have keys of their own: the number of block n is -n - 1. */
static size_t
block_length(const struct node *node, int64_t block)
{
	int64_t		rest = node->attributes.size - block * BLOCK_BYTES;

	return (size_t) (rest < BLOCK_BYTES ? rest : BLOCK_BYTES);
}

static int
fill_chunk(struct reader *reader, struct node *node, struct content *content)
{
	int64_t		chunk = content->key.chunk;
	struct buffer buffer;
	int			error = chunk >= 0 ?
		read_keyed(reader, node, &content->key, chunk * CHUNK_BYTES, chunk_length(node, chunk),
				   &buffer) :
		read_keyed(reader, node, &content->key, (-chunk - 1) * BLOCK_BYTES,
				   block_length(node, -chunk - 1), &buffer);

	if (error == 0)
		cache_fill(reader->cache, content, &buffer);
	else
		cache_fail(reader->cache, content, error);
	return error;
}

/* Let a thread of this module fetch a chunk; not if they have enough to do. */
static void
ask_ahead(struct reader *reader, struct node *node, int64_t chunk)
{
	struct content_key key;
	struct content *content;
	bool		fetch;

	/* A group's statements run in the threads of its requests, and those of an open file with a
	 * transaction of its own. */
	if (chunk * CHUNK_BYTES >= node->attributes.size || node->attributes.snapshot < 0 ||
		!reader->is_ahead)
		return;
	cache_key(&key, &node->attributes, chunk);
	pthread_mutex_lock(&reader->lock);
	if (reader->queue_count < AHEAD_QUEUE && reader->thread_count > 0 && !reader->stopping)
	{
		content = cache_get(reader->cache, &key, &fetch);
		if (fetch)
		{
			int			last = (reader->queue_first + reader->queue_count++) % AHEAD_QUEUE;

			tree_hold(reader->tree, node);
			reader->queue[last] = (struct ahead) {node, content};
			pthread_cond_signal(&reader->work);
		}
		else
			cache_give(reader->cache, content, false);
	}
	pthread_mutex_unlock(&reader->lock);
}

/* A chunk, or a block, with one more user. */
static int
get_chunk(struct reader *reader, struct node *node, int64_t chunk, struct content **content)
{
	struct content_key key;
	bool		fetch;
	int			error;

	cache_key(&key, &node->attributes, chunk);
	do
	{
		*content = cache_get(reader->cache, &key, &fetch);
		error = fetch ? fill_chunk(reader, node, *content) : cache_wait(reader->cache, *content);
	} while (error == EINTR && !fetch && !request_is_interrupted());
	return error;
}

/* A range that lies in two chunks or more. */
static int
join_chunks(struct reader *reader, struct node *node, int64_t offset, size_t length,
			struct range *range)
{
	range->buffer.data = allocate(length);
	range->buffer.length = length;
	for (size_t done = 0; done < length;)
	{
		int64_t		chunk = (offset + (int64_t) done) / CHUNK_BYTES;
		size_t		begin = (size_t) ((offset + (int64_t) done) % CHUNK_BYTES);
		size_t		part = CHUNK_BYTES - begin;
		struct content *content;
		struct range in_chunk;
		int			error = get_chunk(reader, node, chunk, &content);

		if (part > length - done)
			part = length - done;
		if (error == 0)
			error = take_part(reader, content, begin, part, &in_chunk);
		if (error != 0)
		{
			buffer_free(&range->buffer);
			return error;
		}
		memcpy(range->buffer.data + done, in_chunk.data, part);
		cache_give(reader->cache, content, false);
		done += part;
	}
	range->data = range->buffer.data;
	range->length = length;
	return 0;
}

/* A range that no other one led to.  Others in the same block may follow. */
static int
read_alone(struct reader *reader, struct node *node, int64_t offset, size_t length,
		   struct range *range)
{
	int64_t		block = offset / BLOCK_BYTES;
	struct content *content;
	int			error;

	if (length >= BLOCK_BYTES || (offset + (int64_t) length - 1) / BLOCK_BYTES != block)
	{
		error = read_exactly(reader, node, offset, length, &range->buffer);
		range->data = range->buffer.data;
		range->length = range->buffer.length;
		return error;
	}
	error = get_chunk(reader, node, -block - 1, &content);
	return error != 0 ? error :
		take_part(reader, content, (size_t) (offset % BLOCK_BYTES), length, range);
}

static int
read_large(struct reader *reader, struct node *node, int64_t offset, size_t length,
		   struct range *range)
{
	int64_t		chunk = offset / CHUNK_BYTES;
	int64_t		last = (offset + (int64_t) length - 1) / CHUNK_BYTES;
	struct content *content;
	int			error;

	if (!is_sequential(node, offset, offset + (int64_t) length))
		return read_alone(reader, node, offset, length, range);
	for (int i = 1; i <= CHUNKS_AHEAD; i++)
		ask_ahead(reader, node, last + i);
	if (chunk != last)
		return join_chunks(reader, node, offset, length, range);
	error = get_chunk(reader, node, chunk, &content);
	return error != 0 ? error :
		take_part(reader, content, (size_t) (offset % CHUNK_BYTES), length, range);
}

/* Once: ESTALE also if a commit has given the node another version meanwhile. */
static int
try_range(struct reader *reader, struct node *node, int64_t offset, size_t length,
		   struct range *range)
{
	int64_t		size = node->attributes.size;

	memset(range, 0, sizeof(*range));
	if (offset >= size || length == 0)
		return 0;
	if ((int64_t) length > size - offset)
		length = (size_t) (size - offset);
	if (size <= SMALL_BYTES)
		return read_small(reader, node, offset, length, range);
	return read_large(reader, node, offset, length, range);
}

int
read_range(struct reader *reader, struct node *node, int64_t offset, size_t length,
		   struct range *range)
{
	struct content_key key;
	int			error;

	do
	{
		pthread_mutex_lock(&node->lock);
		cache_key(&key, &node->attributes, 0);
		pthread_mutex_unlock(&node->lock);
		error = try_range(reader, node, offset, length, range);
	} while ((error == ESTALE || error == EIO) && !has_version(node, &key));
	return error;
}

void
read_done(struct reader *reader, struct range *range)
{
	/* A chunk of which the end was read has served its reader. */
	if (range->content != NULL)
		cache_give(reader->cache, range->content, range->content->buffer.length == CHUNK_BYTES &&
				   range->data + range->length == range->content->buffer.data + CHUNK_BYTES);
	else
		buffer_free(&range->buffer);
}

/* ---- open files ---- */

static bool
may_hold(struct reader *reader, size_t bytes)
{
	bool		may;

	pthread_mutex_lock(&reader->lock);
	may = reader->held_bytes + bytes <= reader->held_limit;
	if (may)
		reader->held_bytes += bytes;
	pthread_mutex_unlock(&reader->lock);
	return may;
}

static void
stop_holding(struct reader *reader, struct content *content)
{
	pthread_mutex_lock(&reader->lock);
	reader->held_bytes -= content->buffer.length;
	pthread_mutex_unlock(&reader->lock);
	cache_give(reader->cache, content, false);
}

/* size: what may_hold() has counted. */
static int
hold_small(struct reader *reader, struct node *node, size_t size)
{
	struct content *content;
	int			error = get_small(reader, node, &content);

	pthread_mutex_lock(&reader->lock);
	reader->held_bytes -= size;
	if (error == 0)
		reader->held_bytes += content->buffer.length;
	pthread_mutex_unlock(&reader->lock);
	if (error != 0)
		return error;
	pthread_mutex_lock(&node->lock);
	if (node->held == NULL && node->opens > 0)
	{
		node->held = content;
		content = NULL;
	}
	pthread_mutex_unlock(&node->lock);
	if (content != NULL)
		stop_holding(reader, content);
	return 0;
}

static void
forget_pin(struct reader *reader, int64_t pin)
{
	pthread_mutex_lock(&reader->lock);
	while (reader->unpin_count == UNPIN_BATCH)
	{
		/* The threads have not come to it; pins may be dropped here as well. */
		int64_t		handles[UNPIN_BATCH];

		memcpy(handles, reader->unpins, sizeof(handles));
		reader->unpin_count = 0;
		pthread_mutex_unlock(&reader->lock);
		pins_remove(reader->source, handles, UNPIN_BATCH);
		pthread_mutex_lock(&reader->lock);
	}
	reader->unpins[reader->unpin_count++] = pin;
	pthread_mutex_unlock(&reader->lock);
}

static int
pin_node(struct reader *reader, struct node *node)
{
	int64_t		pin = __atomic_add_fetch(&reader->last_pin, 1, __ATOMIC_RELAXED);
	uint64_t	epoch = pins_epoch(reader->source);
	int			error = reader->source->operations->pin(reader->source, node, pin);

	if (error != 0)
		return error;
	pthread_mutex_lock(&node->lock);
	if (node->pin == 0 && node->opens > 0)
	{
		node->pin = pin;
		node->pin_epoch = epoch;
		pin = 0;
	}
	pthread_mutex_unlock(&node->lock);
	if (pin != 0)
		forget_pin(reader, pin);
	return 0;
}

int
read_open(struct reader *reader, struct node *node)
{
	size_t		size = (size_t) node->attributes.size;
	bool		kept;
	int			error = 0;

	pthread_mutex_lock(&node->lock);
	node->opens++;
	kept = node->held != NULL || node->pin != 0;
	pthread_mutex_unlock(&node->lock);
	/* A group's pins would be seen by its own transaction only. */
	if (kept || size == 0 || node->attributes.snapshot < 0)
		return 0;
	if (size <= SMALL_BYTES && may_hold(reader, size))
		error = hold_small(reader, node, size);
	else if (reader->source->has_pins)
		error = pin_node(reader, node);
	if (error != 0)
		read_close(reader, node);
	return error;
}

void
read_close(struct reader *reader, struct node *node)
{
	struct content *held = NULL;
	int64_t		pin = 0;

	pthread_mutex_lock(&node->lock);
	if (--node->opens == 0)
	{
		held = node->held;
		pin = node->pin;
		node->held = NULL;
		node->pin = 0;
		node->replaced = false;
	}
	pthread_mutex_unlock(&node->lock);
	if (held != NULL)
		stop_holding(reader, held);
	if (pin != 0)
		forget_pin(reader, pin);
}

int
read_keep(struct reader *reader, struct node *node)
{
	struct kept *kept;
	int			error = read_open(reader, node);

	if (error != 0)
		return error;
	tree_hold(reader->tree, node);
	kept = allocate(sizeof(*kept));
	kept->node = node;
	kept->until = monotonic_seconds() + KEEP_SECONDS;
	pthread_mutex_lock(&reader->lock);
	*reader->last_kept = kept;
	reader->last_kept = &kept->next;
	pthread_mutex_unlock(&reader->lock);
	return 0;
}

void
read_on_expiry(struct reader *reader, read_expired expired, void *context)
{
	reader->expired = expired;
	reader->expired_context = context;
}

void
read_changed(struct reader *reader, struct node *node)
{
	struct content *held;
	int64_t		pin;
	int			opens;

	pthread_mutex_lock(&node->lock);
	held = node->held;
	pin = node->pin;
	opens = node->opens;
	node->held = NULL;
	node->pin = 0;
	node->replaced = false;
	memset(node->readers, 0, sizeof(node->readers));
	pthread_mutex_unlock(&node->lock);
	if (held != NULL)
		stop_holding(reader, held);
	if (pin != 0)
		forget_pin(reader, pin);
	if (opens > 0 && read_open(reader, node) == 0)
		read_close(reader, node);
}

/* ---- threads ---- */

/* Drop pins of files that are closed; once a second. */
static void
remove_pins(struct reader *reader)
{
	int64_t		handles[UNPIN_BATCH];
	int			count = reader->unpin_count;

	memcpy(handles, reader->unpins, count * sizeof(int64_t));
	reader->unpin_count = 0;
	pthread_mutex_unlock(&reader->lock);
	pins_remove(reader->source, handles, count);
	pthread_mutex_lock(&reader->lock);
}

/* Those whose time is over. */
static void
drop_kept(struct reader *reader)
{
	time_t		now = monotonic_seconds();
	struct kept *kept;

	while ((kept = reader->first_kept) != NULL && kept->until <= now)
	{
		reader->first_kept = kept->next;
		if (reader->first_kept == NULL)
			reader->last_kept = &reader->first_kept;
		pthread_mutex_unlock(&reader->lock);
		read_close(reader, kept->node);
		if (reader->expired != NULL)
			reader->expired(reader->expired_context, kept->node);
		tree_release(reader->tree, kept->node);
		free(kept);
		pthread_mutex_lock(&reader->lock);
	}
}

static void
serve_queue(struct reader *reader)
{
	struct ahead ahead = reader->queue[reader->queue_first];

	reader->queue_first = (reader->queue_first + 1) % AHEAD_QUEUE;
	reader->queue_count--;
	pthread_mutex_unlock(&reader->lock);
	if (fill_chunk(reader, ahead.node, ahead.content) == 0)
		cache_give(reader->cache, ahead.content, false);
	tree_release(reader->tree, ahead.node);
	pthread_mutex_lock(&reader->lock);
}

static void *
run_thread(void *argument)
{
	struct reader *reader = argument;

	pthread_mutex_lock(&reader->lock);
	while (!reader->stopping)
	{
		struct timespec until;

		drop_kept(reader);
		if (reader->queue_count > 0)
		{
			serve_queue(reader);
			continue;
		}
		until = deadline(1000);
		if (pthread_cond_timedwait(&reader->work, &reader->lock, &until) == ETIMEDOUT &&
			reader->unpin_count > 0)
			remove_pins(reader);
	}
	pthread_mutex_unlock(&reader->lock);
	return NULL;
}

void
read_start(struct reader *reader)
{
	for (int i = 0; i < AHEAD_THREADS; i++)
		if (pthread_create(&reader->threads[i], NULL, run_thread, reader) == 0)
			reader->thread_count++;
		else
			break;
}

void
read_stop(struct reader *reader)
{
	pthread_mutex_lock(&reader->lock);
	reader->stopping = true;
	pthread_cond_broadcast(&reader->work);
	pthread_mutex_unlock(&reader->lock);
	for (int i = 0; i < reader->thread_count; i++)
		pthread_join(reader->threads[i], NULL);
	for (struct kept *kept = reader->first_kept; kept != NULL;)
	{
		struct kept *next = kept->next;

		free(kept);
		kept = next;
	}
	cache_destroy(reader->cache);
	free(reader);
}
