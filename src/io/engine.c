/*
 * io/engine.c
 *	  The engine's front: buffers, choice of the back end, counters.
 *
 * The buffers are one mapping per process, made at the first claim and kept for its life.  The
 * kernel may be asked to write there at any time, so no other code must ever own this memory.
 * Touching fresh pages is dear (each may have to come from the host), so they are touched once, in
 * huge pages where the system allows.
 *
 * The back end is chosen at each claim, by blobext.io_method.  Requests that an error left in the
 * ring are waited for before anything else happens to buffers or ring.
 */
#include "postgres.h"

#include <sys/mman.h>

#include "access/xlogutils.h"
#include "core/settings.h"
#include "io/engine_internal.h"
#include "io/io_internal.h"
#include "io/stat.h"
#include "miscadmin.h"

#define REGION_BYTES ((Size) BLOB_IO_BUFFER_COUNT * BLOB_IO_BUFFER_BYTES)

/* Huge pages must be aligned like this to be used. */
#define REGION_ALIGNMENT ((Size) 2 * 1024 * 1024)

static char *buffer_region = NULL;
static bool use_ring = false;	/* back end of the current claim */
static volatile sig_atomic_t is_claimed = false;	/* signal handlers look at it */
static bool refusal_logged = false;

/* Map the buffers; ERROR if there is no memory. */
static void
make_buffers(void)
{
	Size		mapped_bytes = REGION_BYTES + REGION_ALIGNMENT;
	char	   *mapping;
	char	   *region;

	mapping = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapping == MAP_FAILED)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not map %zu bytes for blob I/O buffers: %m", mapped_bytes)));

	/* Unmap the memory before and behind the aligned region. */
	region = (char *) TYPEALIGN(REGION_ALIGNMENT, mapping);
	if (region > mapping)
		munmap(mapping, region - mapping);
	if (mapping + mapped_bytes > region + REGION_BYTES)
		munmap(region + REGION_BYTES, mapping + mapped_bytes - (region + REGION_BYTES));

#ifdef MADV_HUGEPAGE
	/* A hint; the kernel may ignore it. */
	(void) madvise(region, REGION_BYTES, MADV_HUGEPAGE);
#endif
	for (Size offset = 0; offset < REGION_BYTES; offset += BLOB_PAGE_SIZE)
		((volatile char *) region)[offset] = 0;

	buffer_region = region;
}

char *
blob_io_buffer_region(void)
{
	Assert(buffer_region != NULL);
	return buffer_region;
}

/* ERROR if there is no memory, but only before the first claim of the process. */
char *
blob_io_buffer(int buffer_no)
{
	Assert(buffer_no >= 0 && buffer_no < BLOB_IO_BUFFER_COUNT);

	if (buffer_region == NULL)
		make_buffers();
	return buffer_region + (Size) buffer_no * BLOB_IO_BUFFER_BYTES;
}

/*
 * Whether this claim goes through the ring.  ERROR if the setting demands a ring that is refused.
 */
static bool
choose_ring(void)
{
	static pid_t refused_pid = 0;
	int			error;

	if (blob_io_method == BLOB_IO_METHOD_SYNC)
		return false;
	/* A refusal holds for the life of the process, unless the setting demands the ring. */
	if (blob_io_method == BLOB_IO_METHOD_AUTO && refused_pid == MyProcPid)
		return false;

	error = blob_uring_open();
	if (error == 0)
		return true;

	refused_pid = MyProcPid;
	errno = error;
	/* Recovery cannot wait for a better setting. */
	if (blob_io_method == BLOB_IO_METHOD_URING && !InRecovery)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("io_uring is not available: %m"),
				 errhint("Set blobext.io_method to \"auto\" or \"sync\".")));
	if (!refusal_logged)
		ereport(DEBUG1,
				(errmsg_internal("blobext uses synchronous I/O, io_uring is refused: %m")));
	refusal_logged = true;
	return false;
}

void
blob_io_begin(void)
{
	if (blob_stat == NULL)
		blob_io_not_preloaded();

	blob_io_abandon();
	is_claimed = false;
	if (buffer_region == NULL)
		make_buffers();
	use_ring = choose_ring();
	is_claimed = true;
	pg_compiler_barrier();
}

void
blob_io_begin_vectors(void)
{
	blob_io_abandon();
	use_ring = blob_io_method != BLOB_IO_METHOD_SYNC && blob_uring_open() == 0;
	is_claimed = true;
	pg_compiler_barrier();
}

/* All requests should be done by now; if not (an early return), wait for them. */
void
blob_io_end(void)
{
	blob_io_drain();
	pg_compiler_barrier();
	is_claimed = false;
}

bool
blob_io_is_claimed(void)
{
	return is_claimed;
}

/* Check a request that is about to be started, and reset its results. */
static void
prepare_request(BlobIoRequest *request)
{
	Assert(is_claimed);
	Assert(request->length > 0 && request->length <= BLOB_IO_BUFFER_BYTES);
	Assert(request->length % BLOB_PAGE_SIZE == 0);
	Assert(request->file_offset % BLOB_PAGE_SIZE == 0);
	Assert(request->vector_count <= BLOB_IO_MAX_VECTORS);

	request->error = 0;
	request->transferred = 0;
	request->in_flight = true;
}

void
blob_io_start(BlobIoRequest *request)
{
	Assert(request->buffer_no >= 0 && request->buffer_no < BLOB_IO_BUFFER_COUNT);

	prepare_request(request);
	if (use_ring)
		blob_uring_start(request, false);
	else
	{
		blob_sync_transfer(request);
		request->in_flight = false;
		blob_io_count(request);
	}
}

bool
blob_io_is_asynchronous(void)
{
	return use_ring;
}

void
blob_io_start_ahead(BlobIoRequest *request)
{
	Assert(use_ring);
	Assert(request->vector_count > 0);

	prepare_request(request);
	blob_uring_start(request, true);
	blob_uring_submit();
}

void
blob_io_submit(void)
{
	blob_uring_submit();
}

void
blob_io_wait(BlobIoRequest *request)
{
	if (request->in_flight)
		blob_uring_wait(request);
	Assert(!request->in_flight);
}

bool
blob_io_poll(BlobIoRequest *request)
{
	if (request->in_flight)
	{
		blob_uring_submit();
		blob_uring_reap();
	}
	return !request->in_flight;
}

void
blob_io_drain(void)
{
	blob_uring_drain();
}

/* May be called outside of a claim.  is_claimed keeps signal handlers away meanwhile. */
void
blob_io_abandon(void)
{
	bool		was_claimed = is_claimed;

	is_claimed = true;
	pg_compiler_barrier();
	blob_uring_abandon();
	pg_compiler_barrier();
	is_claimed = was_claimed;
}

void
blob_io_count(const BlobIoRequest *request)
{
	if (request->is_write)
	{
		blob_stat_count(io_writes, 1);
		blob_stat_count(io_write_bytes, request->transferred);
	}
	else
	{
		blob_stat_count(io_reads, 1);
		blob_stat_count(io_read_bytes, request->transferred);
	}
}
