/*
 * extents/readahead.c
 *	  Reading ahead, see extents/readahead.h.
 *
 * Requests ahead are fills of the buffer for which no process waits.  So their bytes need no
 * other check than all bytes in the cache: a chunk is kept under the generation that the map showed
 * before the request was started, and a reader accepts it only while the map shows the same.
 *
 * Memory.  The device writes to frames of the cache, which stay claimed until the request is
 * finished; the requests are static.  So the device never writes to memory that an error, a cancel
 * or the end of a query frees.  When the resource owner is released under which requests were
 * started, the process waits for those in flight.  That takes as long as the device needs for
 * MAX_WINDOW_BYTES.
 *
 * Claims.  No other process can use a claimed frame.  So a claim ends soon after the device is
 * done, whatever the process does until its next read: it may wait for a client that does not read,
 * for the next FETCH, or for a lock.  Most of these waits offer no hook, so a timer ends the claims
 * (harvest()).  It runs in a signal handler.  The end of a request ahead consists only of steps
 * that are allowed there, and the handler does nothing if it may have interrupted the same steps.
 * The README of this folder has the argument.
 *
 * Sequences.  A sequence is noticed by its position alone: the next read of the same reader begins
 * where the last one ended.
 *
 * Windows.  At most half of a large window is in flight.  The device gets more requests as soon as
 * half of that has arrived, whether the reader has come to it or not: some devices (of virtual
 * machines) announce the completion of all requests at once, and are idle until they get others.
 */
#include "postgres.h"

#include "core/settings.h"
#include "extents/layout.h"
#include "extents/readahead.h"
#include "extents/verify.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/resowner.h"
#include "utils/timeout.h"

/* Nothing is read ahead before this many bytes were read in sequence. */
#define MIN_SEQUENCE_BYTES (2 * BLOB_BUFFER_CHUNK_BYTES)

/* The largest window; at most one of CACHE_PARTS parts of the cache. */
#define MAX_WINDOW_BYTES (4 * 1024 * 1024)
#define CACHE_PARTS 8

/* Windows up to this size are requested as a whole. */
#define WHOLE_WINDOW_BYTES (1024 * 1024)

/*
 * How often the process looks for requests that have arrived and to which no read has come.  Long
 * enough that a process which goes on reading is rarely interrupted.
 */
#define HARVEST_MS 10

/*
 * A request ahead.  It is static, because the kernel may look at it at any time.  If an error keeps
 * a request from being started, it is finished like the others, as a failed one.
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
 * The variables above, and the fills of the cache, belong to the harvest (a signal handler) while
 * this process has not claimed the engine and this flag is not set.
 */
static volatile sig_atomic_t is_finishing = false;

static TimeoutId harvest_timeout;
static pid_t harvest_pid = 0;	/* the process that has registered it */

/* ---- the end of requests ---- */

/* Finish a request: wait for it, and make its chunks available.  Never throws. */
static void
finish_ahead(AheadRead *read)
{
	blob_io_wait(&read->request);
	in_flight_bytes -= read->request.length;
	for (int i = 0; i < read->part_count; i++)
		blob_buffer_end_fill(read->fill_nos[i], 0,
							 read->request.error != 0 ? 0 : read->valid_bytes[i]);
	read->part_count = 0;
	reads_in_use--;
}

/* Finish the requests that have arrived: their frames and numbers are free again.  Never throws. */
static void
finish_arrived(void)
{
	for (int i = 0; i < BLOB_IO_MAX_AHEAD && reads_in_use > 0; i++)
	{
		if (reads[i].part_count > 0 && blob_io_poll(&reads[i].request))
			finish_ahead(&reads[i]);
	}
}

/*
 * Finish the requests that were started under an owner; NULL: all.  Waits for the device.  Not to
 * be called within a claim of the engine.  Never throws.
 */
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

/*
 * Callback at the end of a resource owner.  At the end of a transaction, and after any failure, it
 * finishes all requests, because the server forgets its timers when it recovers from an error.
 */
static pg_attribute_hot void
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
 * Handler of the timer; runs as a signal handler.  It makes atomic stores, and system calls for the
 * ring.  It takes no lock, allocates no memory, throws no error, and does nothing while it may
 * have interrupted other code that does the same.
 */
static void
harvest(void)
{
	if (!is_finishing && !blob_io_is_claimed())
		finish_arrived();
	if (reads_in_use > 0)
		enable_timeout_after(harvest_timeout, HARVEST_MS);
}

/* Set the timer that finishes requests to which no read comes. */
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
blob_readahead_is_idle(void)
{
	return reads_in_use == 0;
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

	return Min(bytes, blob_buffer_bytes() / CACHE_PARTS);
}

uint64
blob_readahead_reach(const BlobAheadWindow *window)
{
	return window->next_offset + (window->is_open ? get_window_bytes(window) : 0);
}

/* The stored bytes that are to be requested now; start is end if none are. */
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
 * Prepare an unused request, without parts, under the current resource owner; NULL if all are in
 * use.
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

/* Start a request that has parts.  Without a file to read from, its frames are given back. */
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
 * Add the chunk of an extent that begins at an offset to a request; valid_bytes of the chunk are
 * content.  Returns the request that is being filled, or NULL if there is none.
 */
static AheadRead *
add_chunk(AheadRead *read, const BlobStoreId *store, const BlobExtent *extent, uint64 offset,
		  uint32 valid_bytes, BlobBufferUse use)
{
	BlobPageNo	page = extent->first_page + offset / BLOB_PAGE_SIZE;
	uint32		length = (uint32) blob_pages_for(valid_bytes) * BLOB_PAGE_SIZE;
	int			fill_no;

	/* A chunk that crosses the end of a segment is left to the read. */
	if (length > blob_layout_pages_left_in_segment(page) * BLOB_PAGE_SIZE)
		return read;
	if (!continues(read, page, length))
	{
		start_request(read);
		read = take_read(store, page);
		if (read == NULL)
			return NULL;
	}
	fill_no = blob_buffer_begin_ahead(store, extent->generation,
									  blob_buffer_chunk_bytes(extent->pages), offset, use);
	if (fill_no < 0)
		return read;
	if (read->part_count == 0)
		reads_in_use++;
	read->fill_nos[read->part_count] = fill_no;
	read->valid_bytes[read->part_count] = valid_bytes;
	read->request.vectors[read->part_count].iov_base = blob_buffer_fill_memory(fill_no);
	read->request.vectors[read->part_count++].iov_len = length;
	read->request.length += length;
	in_flight_bytes += length;
	return read;
}

/*
 * Add the chunks of an extent that begin in the stored bytes [first, end).  A chunk that begins
 * before first is left to the read that comes to it.  If a chunk is added, sets *ahead_end to its
 * end, or to end if that is larger.
 */
static AheadRead *
add_extent(AheadRead *read, const BlobStoreId *store, const BlobExtent *extent,
		   const BlobStoredExtent *stored, uint64 first, uint64 end, BlobBufferUse use,
		   uint64 *ahead_end)
{
	uint32		chunk_bytes = blob_buffer_chunk_bytes(extent->pages);
	uint64		offset = TYPEALIGN64(chunk_bytes, first - Min(first, stored->start));

	for (; offset < stored->bytes && stored->start + offset < end; offset += chunk_bytes)
	{
		read = add_chunk(read, store, extent, offset,
						 (uint32) Min(chunk_bytes, stored->bytes - offset), use);
		*ahead_end = Max(end, stored->start + Min(offset + chunk_bytes, stored->bytes));
	}
	return read;
}

/*
 * Start requests for the stored bytes [first, end); sets *ahead_end as add_extent() does.  Chunks
 * are kept under the generation that the map shows now, since extents behind the read need not have
 * been verified.
 */
static void
request_range(BlobStore *store, const BlobStored *stored, uint64 first, uint64 end,
			  uint64 *ahead_end)
{
	AheadRead  *read = NULL;

	blob_readahead_process_begins();
	for (int i = blob_stored_find(stored, first); i < stored->count; i++)
	{
		const BlobStoredExtent *next = &stored->extents[i];
		BlobExtent	extent = next->extent;

		if (next->start >= end ||
			!blob_verify_extent(store->map, &extent, stored->max_generation))
			break;
		read = add_extent(read, &store->id, &extent, next, first, end,
						  blob_buffer_use_for(stored->value_bytes), ahead_end);
	}
	start_request(read);
}

void
blob_readahead_start(BlobStore *store, const BlobStored *stored, BlobAheadWindow *window)
{
	uint64		first;
	uint64		end;

	finish_arrived();
	if (window == NULL || !window->is_open || !blob_io_is_asynchronous())
		return;
	find_due(window, stored, &first, &end);
	if (first == end)
		return;
	window->ahead_end = end;
	request_range(store, stored, first, end, &window->ahead_end);
}

/* Wait for requests in turn until one is not in use. */
static void
make_room(void)
{
	static int	turn;

	finish_arrived();
	while (reads_in_use == BLOB_IO_MAX_AHEAD)
	{
		finish_ahead(&reads[turn]);
		turn = (turn + 1) % BLOB_IO_MAX_AHEAD;
	}
}

void
blob_readahead_request(BlobStore *store, const BlobStored *stored, uint64 end)
{
	uint64		ahead_end = 0;

	blob_io_begin();
	PG_TRY();
	{
		make_room();
		if (blob_io_is_asynchronous())
			request_range(store, stored, 0, Min(end, blob_stored_known_end(stored)), &ahead_end);
	}
	PG_FINALLY();
	{
		blob_io_end();
	}
	PG_END_TRY();
}
