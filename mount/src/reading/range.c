/*
 * reading/range.c
 *	  Content of nodes: small values whole, larger ones in chunks, some ahead.
 *
 * A value up to SMALL_BYTES comes whole.  If files of a directory are read in the order of their
 * names, those of the next names come with it in one query (source->read_batch).
 *
 * A larger value is read as the kernel asks, in blocks of BLOCK_BYTES or more, until a reader has
 * asked for several ranges one after the other.  Then it comes in chunks of CHUNK_BYTES, and when a
 * reader arrives in a chunk, a thread of the reader asks for the next one.  So a random reader
 * costs little more than the bytes that it asks for, and a sequential one finds most of them here.
 */
#include "reading/range.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/request.h"
#include "reading/state.h"
#include "sources/pins.h"

enum
{
	/* Requests of one reader may come in another order than it makes them. */
	STREAM_SLACK_BYTES = 256 * 1024,
	/* Ranges that go on where another one has ended, before chunks are read. */
	STREAM_AFTER = 2,
	/* Chunks that are asked for before their reader needs them. */
	CHUNKS_AHEAD = 2,
	/* Number of files of a directory, one after the other, after which a batch is read. */
	BATCH_AFTER = 2
};

/* ---- bytes of a version, wherever they still are ---- */

/* After a crash of the server pins are gone.  If the row still has the version, pin it again. */
static void
renew_pin(struct source *source, struct node *node)
{
	uint64_t	epoch = pins_epoch(source);
	int64_t		pin;

	pthread_mutex_lock(&node->lock);
	pin = node->pin_epoch != epoch ? node->pin : 0;
	node->pin_epoch = epoch;
	pthread_mutex_unlock(&node->lock);
	if (pin != 0 && source->operations->pin(source, node, pin) != 0)
		debug("node %llu: not pinned again", (unsigned long long) node->id);
}

/* From the row; from the pin, if the row has another version. */
static int
read_version(struct source *source, struct node *node, int64_t offset, size_t length,
			 struct buffer *buffer)
{
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
		renew_pin(source, node);
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
read_exactly(struct source *source, struct node *node, int64_t offset, size_t length,
			 struct buffer *buffer)
{
	int			error = read_version(source, node, offset, length, buffer);

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
read_keyed(struct source *source, struct node *node, const struct content_key *key, int64_t offset,
		   size_t length, struct buffer *buffer)
{
	int			error = read_exactly(source, node, offset, length, buffer);

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

int
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
	error = read_keyed(reader->source, node, &key, 0, (size_t) node->attributes.size, &buffer);
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

/* Blocks have keys of their own: the number of block n is -n - 1. */
int
fill_chunk(struct reader *reader, struct node *node, struct content *content)
{
	int64_t		chunk = content->key.chunk;
	int64_t		unit = chunk >= 0 ? CHUNK_BYTES : BLOCK_BYTES;
	int64_t		offset = (chunk >= 0 ? chunk : -chunk - 1) * unit;
	int64_t		rest = node->attributes.size - offset;
	struct buffer buffer;
	int			error = read_keyed(reader->source, node, &content->key, offset,
								   (size_t) (rest < unit ? rest : unit), &buffer);

	if (error == 0)
		cache_fill(reader->cache, content, &buffer);
	else
		cache_fail(reader->cache, content, error);
	return error;
}

/* Let a thread of the reader fetch a chunk; not if they have enough to do. */
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
		error = read_exactly(reader->source, node, offset, length, &range->buffer);
		range->data = range->buffer.data;
		range->length = range->buffer.length;
		return error;
	}
	error = get_chunk(reader, node, -block - 1, &content);
	return error != 0 ? error :
		take_part(reader, content, (size_t) (offset % BLOCK_BYTES), length, range);
}

/* Chunks for a reader that goes on where it was, with the next ones under way; else a block. */
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
