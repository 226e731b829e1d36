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
 * A sequence is noticed by its position alone: the next read begins where the last one ended.
 *
 * What is ahead of the reader is a window.  At most half of a large window is in flight, and the
 * device gets more as soon as half of that has arrived, whether the reader has come to it or not:
 * there are devices (of virtual machines) that announce all that they were given at once, and stand
 * still until they are given more.
 */
#include "postgres.h"

#include "extents/layout.h"
#include "extents/range.h"
#include "extents/readahead.h"
#include "core/settings.h"
#include "io/deferred.h"
#include "io/cache.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/resowner.h"
#include "utils/timeout.h"

/* Sequences that are known at a time: a comparison reads two values in turn. */
#define STREAM_COUNT 4

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

/* A value that is read in sequence. */
typedef struct BlobStream
{
	BlobPageNo	first_page;		/* these three name it well enough for a guess */
	uint64		size_bytes;
	BlobGeneration generation;
	uint64		sequence_bytes; /* read without a gap */
	uint64		next_offset;
	uint64		ahead_end;		/* requested up to here */
	bool		is_announced;	/* and not begun */
	uint64		last_use;
} BlobStream;

static BlobStream streams[STREAM_COUNT];
static uint64 use_count = 0;

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

/* ---- sequences ---- */

static bool
is_stream_of(const BlobStream *stream, const BlobDescriptor *descriptor)
{
	return stream->size_bytes == descriptor->size_bytes &&
		stream->generation == descriptor->generation &&
		stream->first_page == blob_descriptor_extent(descriptor, 0).first_page;
}

/* The sequence that a read at this offset goes on, or begins. */
static BlobStream *
find_stream(const BlobDescriptor *descriptor, uint64 offset)
{
	BlobStream *oldest = &streams[0];

	for (int i = 0; i < STREAM_COUNT; i++)
	{
		if (streams[i].next_offset == offset && (offset > 0 || streams[i].is_announced) &&
			is_stream_of(&streams[i], descriptor))
			return &streams[i];
		if (streams[i].last_use < oldest->last_use)
			oldest = &streams[i];
	}
	oldest->first_page = blob_descriptor_extent(descriptor, 0).first_page;
	oldest->size_bytes = descriptor->size_bytes;
	oldest->generation = descriptor->generation;
	oldest->sequence_bytes = 0;
	oldest->ahead_end = 0;
	oldest->is_announced = false;
	return oldest;
}

void
blob_readahead_announce(const BlobDescriptor *descriptor)
{
	BlobStream *stream = find_stream(descriptor, 0);

	stream->last_use = ++use_count;
	stream->next_offset = 0;
	stream->ahead_end = 0;
	stream->sequence_bytes = MAX_WINDOW_BYTES;
	stream->is_announced = true;
}

static uint64
get_window_bytes(const BlobStream *stream)
{
	uint64		window = Min(stream->sequence_bytes, MAX_WINDOW_BYTES);

	return Min(window, (uint64) blob_cache_kb * 1024 / CACHE_PARTS);
}

BlobAheadPlan
blob_readahead_plan(const BlobDescriptor *descriptor, uint64 offset_bytes, uint64 length_bytes)
{
	BlobAheadPlan plan = {0};
	uint64		end = offset_bytes + length_bytes;
	BlobStream *stream;

	/* The most frequent read needs nothing of this. */
	if (length_bytes == descriptor->size_bytes)
		return plan;
	stream = find_stream(descriptor, offset_bytes);
	stream->last_use = ++use_count;
	stream->next_offset = end;
	stream->is_announced = false;
	plan.is_expected = stream->ahead_end > offset_bytes;
	stream->ahead_end = Max(stream->ahead_end, end);
	if (stream->sequence_bytes == 0 || stream->sequence_bytes + length_bytes < MIN_SEQUENCE_BYTES)
	{
		stream->sequence_bytes += length_bytes;
		return plan;
	}
	stream->sequence_bytes += length_bytes;
	plan.stream = stream;
	plan.read_end = end;
	return plan;
}

/* Content that is due to be requested; start is end if nothing is. */
static void
find_due(const BlobAheadPlan *plan, const BlobDescriptor *descriptor, uint64 *start, uint64 *end)
{
	uint64		window = get_window_bytes(plan->stream);
	uint64		at_once = Max(Min(window, WHOLE_WINDOW_BYTES), window / 2);
	uint64		limit = Min(plan->read_end + window,
							descriptor->size_bytes - descriptor->remainder_bytes);

	*start = *end = plan->stream->ahead_end;
	if (in_flight_bytes <= at_once / 2 && *start < limit)
		*end = Min(*start + at_once - in_flight_bytes, limit);
}

/* ---- requests ---- */

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

void
blob_readahead_start(BlobStore *store, const BlobDescriptor *descriptor,
					 const BlobAheadPlan *plan)
{
	BlobRange	range;
	uint64		first;
	uint64		end;
	uint64		start;
	AheadRead  *read = NULL;

	finish_arrived();
	if (plan->stream == NULL || !blob_io_is_asynchronous())
		return;
	find_due(plan, descriptor, &first, &end);
	if (first == end)
		return;
	blob_readahead_process_begins();
	range = blob_range_find(descriptor, first, end - first);
	start = range.first_start;
	plan->stream->ahead_end = end;
	for (int i = 0; i < range.count; i++)
	{
		BlobExtent *extent = &range.extents[i];
		uint64		content_bytes = range.content_bytes[i];
		uint32		chunk_bytes = blob_cache_chunk_bytes(extent->pages);
		uint64		offset = first - Min(first, start);

		if (!blob_extent_is_valid(store->map, descriptor, extent))
			break;
		/* A chunk that was begun by the read itself is left to the next one. */
		offset = TYPEALIGN64(chunk_bytes, offset);
		for (; offset < content_bytes && start + offset < end; offset += chunk_bytes)
		{
			read = add_chunk(read, &store->id, extent, offset,
							 (uint32) Min(chunk_bytes, content_bytes - offset));
			plan->stream->ahead_end = Max(end, start + Min(offset + chunk_bytes, content_bytes));
		}
		start += content_bytes;
	}
	start_request(read);
	blob_range_free(&range);
}
