/*
 * extents/ahead.c
 *	  Requests ahead, see extents/ahead.h.
 *
 * The bytes of a request need no other check than all bytes in the buffer: a chunk is kept under
 * the generation that the map showed before the request was started, and a reader accepts it only
 * while the map shows the same.
 *
 * Memory.  The device writes to slabs of the buffer, which stay owned until the request is
 * finished; the requests are static.  So the device never writes to memory that an error, a cancel
 * or the end of a query frees.  When the resource owner is released under which requests were
 * started, the process waits for those in flight.  That takes as long as the device needs for
 * the largest window.
 *
 * Ownership.  No other process can use an owned slab.  So ownership ends soon after the device is
 * done, whatever the process does until its next read: it may wait for a client that does not read,
 * for the next FETCH, or for a lock.  Most of these waits offer no hook, so a timer ends the
 * ownership (harvest()).  It runs in a signal handler.  The end of a request ahead consists only of
 * steps that are allowed there, and the handler does nothing if it may have interrupted the same
 * steps.  The README of this folder has the argument.
 */
#include "postgres.h"

#include "extents/ahead.h"
#include "extents/layout.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "store/map_sums.h"
#include "storage/ipc.h"
#include "utils/resowner.h"
#include "utils/timeout.h"

/*
 * How often the process looks for requests that have arrived and to which no read has come.  Long
 * enough that a process which goes on reading is rarely interrupted.
 */
#define HARVEST_MS 10

/*
 * A request ahead.  It is static, because the kernel may look at it at any time.  If an error keeps
 * a request from being started, it is finished like the others, as a failed one.
 */
struct BlobAheadRead
{
	BlobIoRequest request;
	BlobStoreId store;
	BlobPageNo	first_page;
	ResourceOwner owner;
	int			part_count;		/* 0: not in use */
	int			fill_nos[BLOB_IO_MAX_VECTORS];
	uint32		valid_bytes[BLOB_IO_MAX_VECTORS];	/* content, from the chunk's start */
	BlobSummedPages summed[BLOB_IO_MAX_VECTORS];	/* of each part: those with a sum in the map */
	uint32		sums[BLOB_SUMS_MAX_PAGES];	/* of all of these, as the map has them */
	uint32		sum_count;
};

static BlobAheadRead reads[BLOB_IO_MAX_AHEAD];
static int	reads_in_use = 0;
static uint64 in_flight_bytes = 0;	/* of reads in use */

/*
 * The variables above, and the fills of the buffer, belong to the harvest (a signal handler) while
 * this process has not taken the engine and this flag is not set.
 */
static volatile sig_atomic_t is_finishing = false;

static TimeoutId harvest_timeout;
static pid_t harvest_pid = 0;	/* the process that has registered it */

/* ---- the end of requests ---- */

/*
 * Finish a request: wait for it, and make its chunks available, but for damaged ones, which the
 * read that comes to them reports.  Never throws.
 */
static void
finish_ahead(BlobAheadRead *read)
{
	uint32		sum_no = 0;
	uint32		now[BLOB_SUMS_MAX_PAGES];

	blob_io_wait(&read->request);
	in_flight_bytes -= read->request.length;
	if (read->request.error == 0)
		blob_page_sums(read->summed, read->part_count, now);
	for (int i = 0; i < read->part_count; i++)
	{
		bool		is_good = read->request.error == 0 &&
			blob_sums_find_damage(now + sum_no, read->sums + sum_no, read->summed[i].pages) < 0;

		blob_buffer_end_fill(read->fill_nos[i], 0, is_good ? read->valid_bytes[i] : 0);
		sum_no += read->summed[i].pages;
	}
	read->part_count = 0;
	reads_in_use--;
}

/* Finish the requests that have arrived: their slabs and numbers are free again.  Never throws. */
void
blob_ahead_finish_arrived(void)
{
	for (int i = 0; i < BLOB_IO_MAX_AHEAD && reads_in_use > 0; i++)
	{
		if (reads[i].part_count > 0 && blob_io_poll(&reads[i].request))
			finish_ahead(&reads[i]);
	}
}

/*
 * Finish the requests that were started under an owner; NULL: all.  Waits for the device.  Not to
 * be called within a use of the engine.  Never throws.
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
blob_ahead_process_begins(void)
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
	if (!is_finishing && !blob_io_is_used())
		blob_ahead_finish_arrived();
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

/* The request that has a page; NULL if there is none. */
static BlobAheadRead *
find_read(const BlobStoreId *store, BlobPageNo page)
{
	for (int i = 0; i < BLOB_IO_MAX_AHEAD && reads_in_use > 0; i++)
	{
		BlobAheadRead *read = &reads[i];

		if (read->part_count > 0 && page >= read->first_page &&
			page < read->first_page + read->request.length / BLOB_PAGE_SIZE &&
			blob_store_id_equals(&read->store, store))
			return read;
	}
	return NULL;
}

bool
blob_ahead_covers(const BlobStoreId *store, BlobPageNo page)
{
	return find_read(store, page) != NULL;
}

bool
blob_ahead_await(const BlobStoreId *store, BlobPageNo page)
{
	BlobAheadRead *read = find_read(store, page);
	bool		has_arrived;

	if (read == NULL)
		return false;
	has_arrived = blob_io_poll(&read->request);
	finish_ahead(read);
	return !has_arrived;
}

uint64
blob_ahead_unfinished_bytes(void)
{
	return in_flight_bytes;
}

/* ---- requests ---- */

/*
 * Prepare an unused request, without parts, under the current resource owner; NULL if all are in
 * use.
 */
static BlobAheadRead *
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
			reads[i].sum_count = 0;
			reads[i].request.in_flight = false;
			reads[i].request.error = ECANCELED;
			return &reads[i];
		}
	}
	return NULL;
}

/* Without a file to read from, the slabs are given back. */
void
blob_ahead_start(BlobAheadRead *read)
{
	BlobIoRequest *request;

	if (read == NULL || read->part_count == 0)
		return;
	request = &read->request;
	request->vector_count = read->part_count;
	request->file_offset = blob_layout_file_offset(read->first_page);
	request->fd = blob_segment_open(&read->store, blob_segment_of(read->first_page),
									BLOB_SEGMENT_TRY);
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
continues(const BlobAheadRead *read, BlobPageNo first_page, uint32 length)
{
	return read != NULL && read->part_count < BLOB_IO_MAX_VECTORS &&
		read->first_page + read->request.length / BLOB_PAGE_SIZE == first_page &&
		first_page % BLOB_SEGMENT_PAGES != 0 &&
		read->request.length + length <= BLOB_IO_BUFFER_BYTES;
}

BlobAheadRead *
blob_ahead_add(BlobAheadRead *read, const BlobStore *store, const BlobExtent *extent,
			   uint64 offset, uint32 valid_bytes, bool is_neighbour, BlobBufferUse use)
{
	BlobPageNo	page = extent->first_page + offset / BLOB_PAGE_SIZE;
	uint32		length = (uint32) blob_pages_for(valid_bytes) * BLOB_PAGE_SIZE;
	uint32		sums[BLOB_SUMS_MAX_PAGES];
	BlobSumsLook look;
	int			fill_no;

	/* A chunk that crosses the end of a segment, or lacks checksums, is left to the read. */
	if (length > blob_layout_pages_left_in_segment(page) * BLOB_PAGE_SIZE)
		return read;
	look = blob_map_get_sums(store->map, extent, offset / BLOB_PAGE_SIZE, length / BLOB_PAGE_SIZE,
							 sums);
	if (look == BLOB_SUMS_DAMAGED)
		return read;
	if (!continues(read, page, length))
	{
		blob_ahead_start(read);
		read = take_read(&store->id, page);
		if (read == NULL)
			return NULL;
	}
	fill_no = blob_buffer_begin_ahead(&store->id, extent, offset, is_neighbour, use);
	if (fill_no < 0)
		return read;
	if (read->part_count == 0)
		reads_in_use++;
	read->fill_nos[read->part_count] = fill_no;
	read->valid_bytes[read->part_count] = valid_bytes;
	read->summed[read->part_count] = (BlobSummedPages) {
		extent->generation, page, blob_buffer_fill_memory(fill_no),
		look == BLOB_SUMS_FOUND ? length / BLOB_PAGE_SIZE : 0
	};
	memcpy(read->sums + read->sum_count, sums,
		   read->summed[read->part_count].pages * sizeof(uint32));
	read->sum_count += read->summed[read->part_count].pages;
	read->request.vectors[read->part_count].iov_base = blob_buffer_fill_memory(fill_no);
	read->request.vectors[read->part_count++].iov_len = length;
	read->request.length += length;
	in_flight_bytes += length;
	return read;
}

void
blob_ahead_make_room(void)
{
	static int	turn;

	blob_ahead_finish_arrived();
	while (reads_in_use == BLOB_IO_MAX_AHEAD)
	{
		finish_ahead(&reads[turn]);
		turn = (turn + 1) % BLOB_IO_MAX_AHEAD;
	}
}
