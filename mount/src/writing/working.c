/*
 * writing/working.c
 *	  Working copies: a file's content as this mount sees it, with changes that are not
 *	  committed yet.
 */
#include "writing/working.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"

enum
{
	STEP_BYTES = 1024 * 1024
};

static int64_t
min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* ---- spans ---- */

int64_t
spans_bytes(const struct spans *spans)
{
	int64_t		bytes = 0;

	for (int i = 0; i < spans->count; i++)
		bytes += spans->items[i].end - spans->items[i].start;
	return bytes;
}

/* The first span that ends at an offset or behind it, or the number of all. */
static int
find_span(const struct spans *spans, int64_t offset)
{
	int			low = 0;
	int			high = spans->count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (spans->items[middle].end >= offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void
reserve_span(struct spans *spans)
{
	if (spans->count < spans->capacity)
		return;
	spans->capacity = spans->capacity > 0 ? spans->capacity * 2 : 16;
	spans->items = realloc(spans->items, spans->capacity * sizeof(struct span));
	if (spans->items == NULL)
		fatal("out of memory");
}

/* Add [start, end), joined with the spans that it overlaps or touches. */
static void
add_span(struct spans *spans, int64_t start, int64_t end)
{
	int			first = find_span(spans, start);
	int			behind = first;

	if (start >= end)
		return;
	while (behind < spans->count && spans->items[behind].start <= end)
	{
		start = min(start, spans->items[behind].start);
		end = max(end, spans->items[behind].end);
		behind++;
	}
	if (behind == first)
		reserve_span(spans);
	memmove(&spans->items[first + 1], &spans->items[behind],
			(spans->count - behind) * sizeof(struct span));
	spans->items[first] = (struct span) {start, end};
	spans->count += 1 - (behind - first);
}

/* Forget all behind an offset. */
static void
cut_spans(struct spans *spans, int64_t size)
{
	while (spans->count > 0 && spans->items[spans->count - 1].start >= size)
		spans->count--;
	if (spans->count > 0)
		spans->items[spans->count - 1].end = min(spans->items[spans->count - 1].end, size);
}

/* ---- the working copy ---- */

/* Bytes from an offset on are written, or cut off; also if that fails then. */
static void
note_sent(struct working *working, int64_t offset)
{
	if (offset < working->sent)
		working->sent = SENT_CHANGED;
}

void
working_begin(struct working *working, const char *directory, int64_t base_size)
{
	memset(working, 0, sizeof(*working));
	spool_begin(&working->spool, directory);
	working_clean(working, base_size);
}

void
working_end(struct working *working)
{
	spool_end(&working->spool);
	free(working->local.items);
	free(working->dirty.items);
}

void
working_committed(struct working *working)
{
	working->server_size = working->kept = working->size;
	working->changed = false;
	working->appended = true;
	working->dirty.count = 0;
	working->sent = 0;
}

/* An empty spool is kept for the next write; if it cannot be emptied, another one begins. */
void
working_clean(struct working *working, int64_t base_size)
{
	working->size = working->base_kept = base_size;
	working->local.count = 0;
	working_committed(working);
	if (spool_cut(&working->spool, 0) != 0)
		spool_end(&working->spool);
}

int
working_write(struct working *working, const char *data, size_t length, int64_t offset, bool append)
{
	int			error;

	if (append)
		offset = working->size;
	note_sent(working, offset);
	error = spool_write(&working->spool, data, length, offset);
	if (error != 0)
		return error;
	if (length == 0)
		return 0;
	add_span(&working->local, offset, offset + (int64_t) length);
	add_span(&working->dirty, offset, offset + (int64_t) length);
	working->size = max(working->size, offset + (int64_t) length);
	working->appended &= append;
	working->changed = true;
	return 0;
}

/*
 * The range may reach behind the end, which makes the content longer.  The spool file is not asked
 * for a hole: it may be in a file system without, and zeros are written only where it has bytes.
 */
int
working_zero(struct working *working, int64_t offset, int64_t length)
{
	static const char zeros[64 * 1024];
	int64_t		end = offset + length;
	int			error = 0;

	note_sent(working, offset);
	for (int64_t at = offset; at < min(end, working->size) && error == 0; at += sizeof(zeros))
		error = spool_write(&working->spool, zeros,
							min(sizeof(zeros), min(end, working->size) - at), at);
	if (error != 0)
		return error;
	add_span(&working->local, offset, min(end, working->size));
	add_span(&working->dirty, offset, min(end, working->size));
	working->size = max(working->size, end);
	working->appended = false;
	working->changed = true;
	return 0;
}

int
working_resize(struct working *working, int64_t size)
{
	int			error;

	if (size == working->size)
		return 0;
	if (size < working->size)
	{
		note_sent(working, size);
		cut_spans(&working->local, size);
		cut_spans(&working->dirty, size);
		working->base_kept = min(working->base_kept, size);
		working->kept = min(working->kept, size);
		error = spool_cut(&working->spool, size);
		if (error != 0)
			return error;
	}
	working->size = size;
	working->appended = false;
	working->changed = true;
	return 0;
}

/* Where the bytes from an offset on are, and how many of them are there. */
static int64_t
locate(const struct working *working, int64_t offset, int64_t end, bool *is_local, bool *is_base)
{
	int			next = find_span(&working->local, offset + 1);
	const struct span *span = next < working->local.count ? &working->local.items[next] : NULL;

	*is_local = span != NULL && span->start <= offset;
	*is_base = !*is_local && offset < working->base_kept;
	if (*is_local)
		return min(end, span->end);
	if (span != NULL)
		end = min(end, span->start);
	return *is_base ? min(end, working->base_kept) : end;
}

int
working_read(struct working *working, int64_t offset, size_t length, char *target, size_t *found,
			 base_reader read_base, void *context)
{
	int64_t		end = min(offset + (int64_t) length, working->size);
	int			error = 0;

	*found = offset < end ? (size_t) (end - offset) : 0;
	while (offset < end && error == 0)
	{
		bool		is_local;
		bool		is_base;
		int64_t		until = locate(working, offset, end, &is_local, &is_base);
		size_t		bytes = (size_t) (until - offset);

		if (is_local)
			error = spool_read(&working->spool, offset, bytes, target);
		else if (is_base)
			error = read_base(context, offset, bytes, target);
		else
			memset(target, 0, bytes);
		target += bytes;
		offset = until;
	}
	return error;
}

int
working_read_spool(struct working *working, int64_t offset, size_t length, char *target)
{
	return spool_read(&working->spool, offset, length, target);
}

int
working_get_spool(struct working *working, size_t length, char **content)
{
	*content = allocate(length);
	return spool_read(&working->spool, 0, length, *content);
}

/* Fill the base in, so that the whole content is in the spool, step by step: of any size. */
static int
fill(struct working *working, base_reader read_base, void *context)
{
	char	   *content = allocate(STEP_BYTES);
	int64_t		offset = 0;
	int			error = 0;

	while (offset < working->base_kept && error == 0)
	{
		bool		is_local;
		bool		is_base;
		int64_t		until = locate(working, offset, min(working->base_kept, offset + STEP_BYTES),
								   &is_local, &is_base);

		if (is_base)
			error = read_base(context, offset, (size_t) (until - offset), content);
		if (is_base && error == 0)
			error = spool_write(&working->spool, content, (size_t) (until - offset), offset);
		if (is_base && error == 0)
			add_span(&working->local, offset, until);
		offset = until;
	}
	free(content);
	return error;
}

/* Bytes that are neither local nor of the base are zeros, and a hole of the spool file. */
int
working_gather(struct working *working, base_reader read_base, void *context)
{
	int			error = fill(working, read_base, context);

	if (error != 0)
		return error;
	working->base_kept = working->kept = 0;
	working->local.count = working->dirty.count = 0;
	add_span(&working->local, 0, working->size);
	add_span(&working->dirty, 0, working->size);
	working->appended = false;
	return 0;
}

bool
working_is_scattered(const struct working *working)
{
	return working->local.count >= WORKING_SPANS || working->dirty.count >= WORKING_SPANS;
}
