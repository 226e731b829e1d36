/*
 * extents/readahead.c
 *	  Reading ahead, see extents/readahead.h.
 *
 * Requests ahead are fills of the read cache that nobody waits for.  So what they bring needs no
 * other check than what the cache holds: it is kept under the generation that the map showed before
 * the request was started, and a reader accepts it only while the map shows the same.
 *
 * Memory.  The device writes to frames of the cache, which stay claimed until the request is done;
 * the requests are static.  Nothing that an error, a cancel or the end of a query frees is ever
 * written to.  Requests in flight are waited for when the resource owner is released under which
 * they were started: that takes as long as the device needs for MAX_WINDOW_BYTES.
 *
 * Nobody else can use claimed frames, so a claim ends soon after the device is done, whatever the
 * process does until its next read: it may wait for a client that does not read, for the next
 * FETCH, or for a lock.  Most of these waits offer no hook, so a timer ends the claims (harvest()).
 * It runs in a signal handler: the end of a request ahead is made of nothing but what can be done
 * there, and the handler does nothing where it may have interrupted the same.  The README of this
 * folder has the argument.
 *
 * A sequence is noticed by its position alone: the next read of the same reader begins where the
 * last one ended.
 *
 * What is ahead of the reader is a window.  At most half of a large window is in flight, and the
 * device gets more as soon as half of that has arrived, whether the reader has come to it or not:
 * there are devices (of virtual machines) that announce all that they were given at once, and stand
 * still until they are given more.
 */
#include "postgres.h"

#include "core/settings.h"
#include "extents/layout.h"
#include "extents/readahead.h"
#include "extents/verify.h"
#include "io/cache.h"
#include "io/deferred.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/resowner.h"
#include "utils/timeout.h"

/* Nothing is read ahead before so much was read in sequence. */
#define MIN_SEQUENCE_BYTES (2 * BLOB_CACHE_CHUNK_BYTES)

/* How far ahead; a part of the cache at most. */
#define MAX_WINDOW_BYTES (4 * 1024 * 1024)
#define CACHE_PARTS 8

/* Windows up to this size are requested as a whole. */
#define WHOLE_WINDOW_BYTES (1024 * 1024)

/*
 * How often the process looks whether requests have arrived that no read has come to.  Long enough
 * that one which goes on reading is rarely interrupted.
 */
#define HARVEST_MS 10

/*
 * A request ahead; static, because the kernel may look at it at any time.  One that an error kept
 * from being started is finished like the others, as a failed one.
 */
typedef struct AheadRead
{
	BlobIoRequest request;
	BlobStoreId store;
	BlobPageNo	first_page;
	ResourceOwner owner;
	int			part_count;		/* 0: not in use */
	int			fill_nos[BLOB_IO_MAX_VECTORS];
	uint32		valid_bytes[BLOB_IO_MAX_VECTORS];	/* content, from the chunk's start */
} AheadRead;

static AheadRead reads[BLOB_IO_MAX_AHEAD];
static int	reads_in_use = 0;
static uint64 in_flight_bytes = 0;	/* of reads in use */

/*
 * All of that, and the fills of the cache, belong to the harvest (a signal handler) while this
 * process has neither claimed the engine nor set this.
 */
static volatile sig_atomic_t is_finishing = false;

static TimeoutId harvest_timeout;
static pid_t harvest_pid = 0;	/* the process that has registered it */

/* ---- the end of requests ---- */

/* Hand what a request brought to the cache.  Never throws. */
static void
finish_ahead(AheadRead *read)
{
	blob_io_wait(&read->request);
	in_flight_bytes -= read->request.length;
	for (int i = 0; i < read->part_count; i++)
		blob_cache_end_fill(read->fill_nos[i], 0,
							read->request.error != 0 ? 0 : read->valid_bytes[i]);
	read->part_count = 0;
	reads_in_use--;
}

/* Hand what has arrived to the cache: its frames and numbers are free again.  Never throws. */
static void
finish_arrived(void)
{
	for (int i = 0; i < BLOB_IO_MAX_AHEAD && reads_in_use > 0; i++)
	{
		if (reads[i].part_count > 0 && blob_io_poll(&reads[i].request))
			finish_ahead(&reads[i]);
	}
}

/* Finish what was started under the owner; NULL: everything.  Not in a claim of the engine. */
static void
finish_of_owner(ResourceOwner owner)
{
	is_finishing = true;
	pg_compiler_barrier();
	for (int i = 0; i < BLOB_IO_MAX_AHEAD && reads_in_use > 0; i++)
	{
		if (reads[i].part_count > 0 && (owner == NULL || reads[i].owner == owner))
			finish_ahead(&reads[i]);
	}
	pg_compiler_barrier();
	is_finishing = false;
}

/* The server forgets timers after an error, so nothing is left to them then. */
static void
at_owner_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (phase == RESOURCE_RELEASE_BEFORE_LOCKS && reads_in_use > 0)
		finish_of_owner(is_top_level || !is_commit ? NULL : CurrentResourceOwner);
}

static void
at_exit(int code, Datum arg)
{
	finish_of_owner(NULL);
}

void
blob_readahead_process_begins(void)
{
	static bool is_registered = false;

	if (is_registered)
		return;
	is_registered = true;
	RegisterResourceReleaseCallback(at_owner_release, NULL);
	before_shmem_exit(at_exit, (Datum) 0);
}

/* ---- the harvest ---- */

/*
 * Handler of the timer; runs in a signal handler.  Atomic stores, and system calls for the ring: no
 * lock, no memory, no error, and nothing that it might have interrupted.
 */
static void
harvest(void)
{
	if (!is_finishing && !blob_io_is_claimed())
		finish_arrived();
	if (reads_in_use > 0)
		enable_timeout_after(harvest_timeout, HARVEST_MS);
}

/* Have what is in flight harvested, should no read come to it. */
static void
arrange_harvest(void)
{
	if (harvest_pid != MyProcPid)
		harvest_timeout = RegisterTimeout(USER_TIMEOUT, harvest);
	harvest_pid = MyProcPid;
	if (!get_timeout_active(harvest_timeout))
		enable_timeout_after(harvest_timeout, HARVEST_MS);
}

bool
blob_readahead_await(const BlobStoreId *store, BlobPageNo page)
{
	for (int i = 0; i < BLOB_IO_MAX_AHEAD && reads_in_use > 0; i++)
	{
		AheadRead  *read = &reads[i];

		if (read->part_count > 0 && page >= read->first_page &&
			page < read->first_page + read->request.length / BLOB_PAGE_SIZE &&
			blob_store_id_equals(&read->store, store))
		{
			bool		has_arrived = blob_io_poll(&read->request);

			finish_ahead(read);
			return !has_arrived;
		}
	}
	return false;
}

/* ---- windows ---- */

void
blob_readahead_window_init(BlobAheadWindow *window, bool is_whole)
{
	memset(window, 0, sizeof(*window));
	window->is_whole = is_whole;
}

void
blob_readahead_note(BlobAheadWindow *window, uint64 offset_bytes, uint64 length_bytes)
{
	uint64		end = offset_bytes + length_bytes;

	if (offset_bytes != window->next_offset || offset_bytes == 0)
	{
		window->sequence_bytes = window->is_whole && offset_bytes == 0 ? MAX_WINDOW_BYTES : 0;
		window->ahead_end = 0;
	}
	window->is_whole = false;
	window->is_open = window->sequence_bytes > 0 &&
		window->sequence_bytes + length_bytes >= MIN_SEQUENCE_BYTES;
	window->is_expected = window->ahead_end > offset_bytes;
	window->sequence_bytes += length_bytes;
	window->next_offset = end;
	window->ahead_end = Max(window->ahead_end, end);
}

static uint64
get_window_bytes(const BlobAheadWindow *window)
{
	uint64		bytes = Min(window->sequence_bytes, MAX_WINDOW_BYTES);

	return Min(bytes, (uint64) blob_cache_kb * 1024 / CACHE_PARTS);
}

uint64
blob_readahead_reach(const BlobAheadWindow *window)
{
	return window->next_offset + (window->is_open ? get_window_bytes(window) : 0);
}

/* Stored bytes that are due to be requested; start is end if none are. */
static void
find_due(const BlobAheadWindow *window, const BlobStored *stored, uint64 *start, uint64 *end)
{
	uint64		window_bytes = get_window_bytes(window);
	uint64		at_once = Max(Min(window_bytes, WHOLE_WINDOW_BYTES), window_bytes / 2);
	uint64		limit = Min(window->next_offset + window_bytes, blob_stored_known_end(stored));

	*start = *end = window->ahead_end;
	if (in_flight_bytes <= at_once / 2 && *start < limit)
		*end = Min(*start + at_once - in_flight_bytes, limit);
}

/* ---- requests ---- */

/*
 * A request that is not in use, of no parts yet, under the current resource owner; NULL if all are
 * in use.
 */
static AheadRead *
take_read(const BlobStoreId *store, BlobPageNo first_page)
{
	for (int i = 0; i < BLOB_IO_MAX_AHEAD; i++)
	{
		if (reads[i].part_count == 0)
		{
			reads[i].store = *store;
			reads[i].first_page = first_page;
			reads[i].owner = CurrentResourceOwner;
			reads[i].request.is_write = false;
			reads[i].request.length = 0;
			reads[i].request.in_flight = false;
			reads[i].request.error = ECANCELED;
			return &reads[i];
		}
	}
	return NULL;
}

/* Start a request that has parts; without a file to read from, its frames are given back. */
static void
start_request(AheadRead *read)
{
	BlobIoRequest *request;

	if (read == NULL || read->part_count == 0)
		return;
	request = &read->request;
	request->vector_count = read->part_count;
	request->file_offset = blob_layout_file_offset(read->first_page);
	request->fd = blob_segment_open(&read->store, blob_segment_of(read->first_page),
									BLOB_SEGMENT_MISSING_OK);
	if (request->fd < 0)
	{
		finish_ahead(read);
		return;
	}
	blob_io_start_ahead(request);
	arrange_harvest();
	blob_stat_count(ahead_bytes, request->length);
}

/* Whether pages that begin at first_page can join the request. */
static bool
continues(const AheadRead *read, BlobPageNo first_page, uint32 length)
{
	return read != NULL && read->part_count < BLOB_IO_MAX_VECTORS &&
		read->first_page + read->request.length / BLOB_PAGE_SIZE == first_page &&
		first_page % BLOB_SEGMENT_PAGES != 0 &&
		read->request.length + length <= BLOB_IO_BUFFER_BYTES;
}

/*
 * Add the chunk of an extent that begins at an offset, of which valid bytes are content, to a
 * request; gives the request that is being filled, or NULL if there is none.
 */
static AheadRead *
add_chunk(AheadRead *read, const BlobStoreId *store, const BlobExtent *extent, uint64 offset,
		  uint32 valid_bytes)
{
	BlobPageNo	page = extent->first_page + offset / BLOB_PAGE_SIZE;
	uint32		length = (uint32) blob_pages_for(valid_bytes) * BLOB_PAGE_SIZE;
	int			fill_no;

	/* A chunk that crosses the end of a segment, or is not written yet, is left to the read. */
	if (length > blob_layout_pages_left_in_segment(page) * BLOB_PAGE_SIZE ||
		blob_deferred_count_written(store, page, length / BLOB_PAGE_SIZE) * BLOB_PAGE_SIZE < length)
		return read;
	if (!continues(read, page, length))
	{
		start_request(read);
		read = take_read(store, page);
		if (read == NULL)
			return NULL;
	}
	fill_no = blob_cache_begin_ahead(store, extent->generation,
									 blob_cache_chunk_bytes(extent->pages), offset);
	if (fill_no < 0)
		return read;
	if (read->part_count == 0)
		reads_in_use++;
	read->fill_nos[read->part_count] = fill_no;
	read->valid_bytes[read->part_count] = valid_bytes;
	read->request.vectors[read->part_count].iov_base = blob_cache_fill_memory(fill_no);
	read->request.vectors[read->part_count++].iov_len = length;
	read->request.length += length;
	in_flight_bytes += length;
	return read;
}

/*
 * Add the chunks of an extent that begin in the stored bytes [first, end); a chunk that was begun
 * before is left to the read of it.
 */
static AheadRead *
add_extent(AheadRead *read, const BlobStoreId *store, const BlobExtent *extent,
		   const BlobStoredExtent *stored, uint64 first, uint64 end, uint64 *ahead_end)
{
	uint32		chunk_bytes = blob_cache_chunk_bytes(extent->pages);
	uint64		offset = TYPEALIGN64(chunk_bytes, first - Min(first, stored->start));

	for (; offset < stored->bytes && stored->start + offset < end; offset += chunk_bytes)
	{
		read = add_chunk(read, store, extent, offset,
						 (uint32) Min(chunk_bytes, stored->bytes - offset));
		*ahead_end = Max(end, stored->start + Min(offset + chunk_bytes, stored->bytes));
	}
	return read;
}

/*
 * The generation under which chunks are kept is the map's, looked up now: extents behind the read
 * need not have been verified.
 */
void
blob_readahead_start(BlobStore *store, const BlobStored *stored, BlobAheadWindow *window)
{
	uint64		first;
	uint64		end;
	AheadRead  *read = NULL;

	finish_arrived();
	if (window == NULL || !window->is_open || !blob_io_is_asynchronous())
		return;
	find_due(window, stored, &first, &end);
	if (first == end)
		return;
	blob_readahead_process_begins();
	window->ahead_end = end;
	for (int i = blob_stored_find(stored, first); i < stored->count; i++)
	{
		const BlobStoredExtent *next = &stored->extents[i];
		BlobExtent	extent = next->extent;

		if (next->start >= end ||
			!blob_verify_extent(store->map, &extent, stored->max_generation))
			break;
		read = add_extent(read, &store->id, &extent, next, first, end, &window->ahead_end);
	}
	start_request(read);
}
