/*
 * blob/search.c
 *	  Searching in content, see blob/search.h.
 *
 * A window of the content moves forward.  In it the head of the needle is searched; where the head
 * lies, the rest of a longer needle is compared through a second reader.  So the window need not
 * hold the needle.  The search takes time in proportion to content times needle at worst, as that
 * of bytea does.
 */
#include "postgres.h"

#include "blob/reader.h"
#include "blob/search.h"
#include "miscadmin.h"

#define STEP_BYTES (256 * 1024)

/* Bytes of a needle that are searched in the window. */
#define HEAD_BYTES (32 * 1024)

typedef struct Search
{
	const BlobValue *value;
	const BlobNeedle *needle;
	uint64		head_bytes;
	char	   *window;
	uint64		window_offset;	/* in the content */
	uint64		window_bytes;
	BlobReader	reader;			/* of the window */
	char	   *rest;			/* a piece of content to be compared with the rest of the needle */
} Search;

/* Whether bytes of the needle, from start on, are those of content. */
static bool
agrees(const BlobNeedle *needle, uint64 start, const char *content, uint64 length_bytes)
{
	if (needle->is_any == NULL)
		return memcmp(needle->bytes + start, content, length_bytes) == 0;
	for (uint64 i = 0; i < length_bytes; i++)
		if (!needle->is_any[start + i] && needle->bytes[start + i] != content[i])
			return false;
	return true;
}

/* Whether the part of the needle behind its head follows the head, which lies at offset. */
static bool
rest_agrees(Search *search, uint64 offset)
{
	uint64		done = search->head_bytes;
	bool		result = true;
	BlobReader	reader;

	if (done == search->needle->length_bytes)
		return true;
	if (search->rest == NULL)
		search->rest = palloc(STEP_BYTES);
	blob_reader_begin(&reader, search->value, 0);
	blob_reader_seek(&reader, offset + done);
	while (result && done < search->needle->length_bytes)
	{
		uint64		bytes = blob_reader_next(&reader, search->rest,
											 Min(STEP_BYTES, search->needle->length_bytes - done));

		result = agrees(search->needle, done, search->rest, bytes);
		done += bytes;
	}
	blob_reader_end(&reader);
	return result;
}

/* Move the window on: it begins at offset, which lies in it or at its end. */
static void
move_window(Search *search, uint64 offset)
{
	uint64		kept = search->window_offset + search->window_bytes - offset;

	memmove(search->window, search->window + search->window_bytes - kept, kept);
	search->window_offset = offset;
	search->window_bytes = kept + blob_reader_next(&search->reader, search->window + kept,
												   HEAD_BYTES + STEP_BYTES - kept);
}

/* The first offset from..last, all of whose heads lie in the window, at which the needle lies. */
static uint64
search_window(Search *search, uint64 from, uint64 last)
{
	const BlobNeedle *needle = search->needle;
	bool		has_first_byte = search->head_bytes > 0 &&
		(needle->is_any == NULL || !needle->is_any[0]);

	for (uint64 offset = from; offset <= last; offset++)
	{
		const char *content = search->window + (offset - search->window_offset);

		if (has_first_byte)
		{
			content = memchr(content, needle->bytes[0], last - offset + 1);
			if (content == NULL)
				return BLOB_NOT_FOUND;
			offset = search->window_offset + (content - search->window);
		}
		if (search->head_bytes > 64)
			CHECK_FOR_INTERRUPTS();
		if (agrees(needle, 0, content, search->head_bytes) && rest_agrees(search, offset))
			return offset;
	}
	return BLOB_NOT_FOUND;
}

uint64
blob_search(const BlobValue *value, uint64 from, uint64 last, const BlobNeedle *needle)
{
	Search		search = {.value = value, .needle = needle};
	uint64		result = BLOB_NOT_FOUND;

	if (needle->length_bytes > value->size_bytes)
		return BLOB_NOT_FOUND;
	last = Min(last, value->size_bytes - needle->length_bytes);
	if (from > last)
		return BLOB_NOT_FOUND;
	if (needle->length_bytes == 0)
		return from;

	search.head_bytes = Min(needle->length_bytes, HEAD_BYTES);
	search.window = palloc(HEAD_BYTES + STEP_BYTES);
	search.window_offset = from;
	blob_reader_begin(&search.reader, value, last - from < STEP_BYTES ? 0 : BLOB_READER_ALL);
	blob_reader_seek(&search.reader, from);
	while (result == BLOB_NOT_FOUND && from <= last)
	{
		uint64		window_last;

		move_window(&search, from);
		window_last = Min(last, search.window_offset + search.window_bytes - search.head_bytes);
		result = search_window(&search, from, window_last);
		from = window_last + 1;
	}
	blob_reader_end(&search.reader);
	if (search.rest != NULL)
		pfree(search.rest);
	pfree(search.window);
	return result;
}
