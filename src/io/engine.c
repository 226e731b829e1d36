/*
 * io/engine.c
 *	  The engine's front: buffers, choice of the way to the kernel.
 *
 * The buffers are one mapping per process, made at the first use and kept for its life.  The
 * kernel may be asked to write there at any time, so no other code must ever own this memory.
 * Touching fresh pages is dear (each may have to come from the host), so they come in huge pages
 * where the system allows, and stay while the process works.  A process that has not used a buffer
 * for some time gives the memory back, not the addresses: sessions that are idle are many.
 *
 * The way is chosen at each use, by blobext.io_method and by the kernel's refusals.  Requests
 * that an error left are waited for before anything else happens to buffers or rings.
 */
#include "postgres.h"

#include <sys/mman.h>

#include "access/xlogutils.h"
#include "core/settings.h"
#include "io/engine.h"
#include "io/engine_internal.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "io/stat.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timeout.h"

#define REGION_BYTES ((Size) BLOB_IO_BUFFER_COUNT * BLOB_IO_BUFFER_BYTES)

/* Huge pages must be aligned like this to be used. */
#define REGION_ALIGNMENT ((Size) 2 * 1024 * 1024)

/* In the order in which they are tried; a choice is a number of one of them, or BLOCKING. */
static const BlobIoRing *const rings[] = {&blob_uring, &blob_aio};
#define BLOCKING ((int) lengthof(rings))

/* Memory of buffers that were not used for this time, or up to twice as long, is given back. */
#define IDLE_MS 5000

typedef struct EngineShared
{
	int			choice;			/* when the server started */
	pg_atomic_flag is_told;		/* a process has told of a worse one */
} EngineShared;

static EngineShared *engine_shared = NULL;
static int	refusals[lengthof(rings)];	/* errno of each ring in this process; 0: none so far */

static char *buffer_region = NULL;

/* Used since the last look of the timer; has memory.  The timer's handler looks, and changes. */
static volatile sig_atomic_t is_region_used = false;
static volatile sig_atomic_t has_memory = false;
static TimeoutId idle_timeout;
static int	idle_timeout_pid = 0;	/* the process that has registered it */
static volatile sig_atomic_t is_used = false;	/* signal handlers look at it */

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
	buffer_region = region;
}

/* ERROR if there is no memory, but only before the first use of the process. */
char *
blob_io_buffer(int buffer_no)
{
	Assert(buffer_no >= 0 && buffer_no < BLOB_IO_BUFFER_COUNT);

	if (buffer_region == NULL)
		make_buffers();
	is_region_used = has_memory = true;
	return buffer_region + (Size) buffer_no * BLOB_IO_BUFFER_BYTES;
}

/* Open a ring, unless it is open.  Returns 0, or the errno of the refusal. */
static int
open_ring(const BlobIoRing *ring)
{
	if (ring->needs_direct && !blob_segment_is_direct())
		return EOPNOTSUPP;
	return ring->open();
}

static bool
is_wanted(const BlobIoRing *ring)
{
	return blob_io_method == BLOB_IO_METHOD_AUTO || blob_io_method == ring->method;
}

/* Find the first ring that is wanted and can be opened.  Never throws. */
static int
find_ring(void)
{
	for (int i = 0; i < BLOCKING; i++)
	{
		/* A refusal holds for the life of the process, unless the setting demands the ring. */
		if (!is_wanted(rings[i]) || (blob_io_method == BLOB_IO_METHOD_AUTO && refusals[i] != 0))
			continue;
		refusals[i] = open_ring(rings[i]);
		if (refusals[i] == 0)
			return i;
	}
	return BLOCKING;
}

/* Choose how requests of this use go to the kernel.  Never throws. */
static int
choose(void)
{
	int			choice = find_ring();

	blob_engine_process_begins();
	blob_slots_use(choice != BLOCKING ? rings[choice] : NULL);
	return choice;
}

static const char *
get_name(int choice)
{
	return choice != BLOCKING ? rings[choice]->name : "blocking calls";
}

/* Why the rings that are wanted are not used, up to this choice; or NULL. */
static char *
describe_refusals(int choice)
{
	StringInfoData text;

	initStringInfo(&text);
	if (blob_io_method == BLOB_IO_METHOD_SYNC)
		appendStringInfoString(&text, "blobext.io_method is \"sync\".");
	for (int i = 0; i < choice; i++)
	{
		if (!is_wanted(rings[i]))
			continue;
		if (text.len > 0)
			appendStringInfoChar(&text, ' ');
		if (rings[i]->needs_direct && !blob_segment_is_direct())
			appendStringInfo(&text, "%s needs direct I/O.", rings[i]->name);
		else
			appendStringInfo(&text, "%s is refused: %s.", rings[i]->name, strerror(refusals[i]));
	}
	return text.len > 0 ? text.data : NULL;
}

/* Whether a ring that the setting demands is refused. */
static bool
lacks_ring(int choice)
{
	return choice == BLOCKING && blob_io_method != BLOB_IO_METHOD_AUTO &&
		blob_io_method != BLOB_IO_METHOD_SYNC;
}

/* Recovery cannot wait for a better setting. */
static void
require_ring(int choice)
{
	if (lacks_ring(choice) && !InRecovery)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s is not available",
						GetConfigOption("blobext.io_method", false, false)),
				 errdetail_internal("%s", describe_refusals(choice)),
				 errhint("Set blobext.io_method to \"auto\" or \"sync\".")));
}

/* Log once that a process does I/O in a worse way than was possible when the server started. */
static void
tell_choice(int choice)
{
	if (choice > engine_shared->choice && blob_io_method == BLOB_IO_METHOD_AUTO &&
		pg_atomic_test_set_flag(&engine_shared->is_told))
		ereport(LOG,
				(errmsg("blobext uses %s in this process", get_name(choice)),
				 errdetail_internal("%s", describe_refusals(choice)),
				 errhint("This is logged once.  blobext_stat counts the requests of all "
						 "processes.")));
}

void
blob_io_begin(void)
{
	int			choice;

	if (blob_stat == NULL)
		blob_io_not_preloaded();

	blob_io_abandon();
	is_used = false;
	if (buffer_region == NULL)
		make_buffers();
	is_used = true;
	pg_compiler_barrier();
	choice = choose();
	is_used = false;
	require_ring(choice);
	tell_choice(choice);
	is_used = true;
	pg_compiler_barrier();
}

void
blob_io_begin_vectors(void)
{
	blob_io_abandon();
	is_used = true;
	pg_compiler_barrier();
	(void) choose();
}

/* ---- memory of an idle process ---- */

/*
 * Handler of the timer; runs as a signal handler.  It makes a system call and stores of flags, and
 * nothing while it may have interrupted a use, or a request is in flight.
 */
static void
look_at_idle(void)
{
	if (is_used || is_region_used || blob_slots_are_in_use())
	{
		is_region_used = false;
		enable_timeout_after(idle_timeout, IDLE_MS);
	}
	else if (madvise(buffer_region, REGION_BYTES, MADV_DONTNEED) == 0)
		has_memory = false;
}

/* Replay uses buffers all the time, and ends. */
static void
arrange_look_at_idle(void)
{
	if (!has_memory || InRecovery)
		return;
	if (idle_timeout_pid != MyProcPid)
		idle_timeout = RegisterTimeout(USER_TIMEOUT, look_at_idle);
	idle_timeout_pid = MyProcPid;
	if (!get_timeout_active(idle_timeout))
		enable_timeout_after(idle_timeout, IDLE_MS);
}

/* All requests should be done by now; if not (an early return), wait for them. */
void
blob_io_end(void)
{
	blob_io_drain();
	pg_compiler_barrier();
	is_used = false;
	arrange_look_at_idle();
}

bool
blob_io_is_used(void)
{
	return is_used;
}

/* Check a request that is about to be started, and reset its results. */
static void
prepare_request(BlobIoRequest *request)
{
	Assert(is_used);
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
	BlobIoRequest work;

	prepare_request(request);
	work = *request;
	if (work.vector_count == 0)
	{
		work.vectors[0].iov_base = blob_io_buffer(request->buffer_no);
		work.vectors[0].iov_len = request->length;
		work.vector_count = 1;
	}
	blob_slots_start(&work, request, false);
}

bool
blob_io_is_asynchronous(void)
{
	return blob_slots_are_asynchronous();
}

void
blob_io_start_ahead(BlobIoRequest *request)
{
	Assert(request->vector_count > 0);

	prepare_request(request);
	blob_slots_start(request, request, true);
	blob_slots_submit();
}

void
blob_io_submit(void)
{
	blob_slots_submit();
}

void
blob_io_wait(BlobIoRequest *request)
{
	if (request->in_flight)
		blob_slots_wait(request);
	Assert(!request->in_flight);
}

bool
blob_io_poll(BlobIoRequest *request)
{
	if (request->in_flight)
	{
		blob_slots_submit();
		blob_slots_reap();
	}
	return !request->in_flight;
}

void
blob_io_drain(void)
{
	blob_slots_drain();
}

/* May be called outside of a use.  is_used keeps signal handlers away meanwhile. */
void
blob_io_abandon(void)
{
	bool		was_used = is_used;

	is_used = true;
	pg_compiler_barrier();
	blob_slots_abandon();
	pg_compiler_barrier();
	is_used = was_used;
}

static void
close_rings(void)
{
	for (int i = 0; i < BLOCKING; i++)
		rings[i]->close();
}

/* before_shmem_exit callback: otherwise the kernel would go on writing for a dead process. */
static void
end_requests(int code, Datum arg)
{
	blob_slots_abandon();
	blob_slots_use(NULL);
	close_rings();
}

void
blob_engine_process_begins(void)
{
	static bool is_registered = false;

	if (is_registered)
		return;
	is_registered = true;
	before_shmem_exit(end_requests, (Datum) 0);
}

Size
blob_engine_shmem_size(void)
{
	return MAXALIGN(sizeof(EngineShared));
}

/* Log how the server does I/O when it starts, and why. */
static void
log_choice(int choice)
{
	char	   *reasons = describe_refusals(choice);

	ereport(lacks_ring(choice) ? WARNING : LOG,
			(errmsg("blobext uses %s and %s I/O", get_name(choice),
					blob_segment_is_direct() ? "direct" : "buffered"),
			 reasons != NULL ? errdetail_internal("%s", reasons) : 0));
}

/*
 * Called under AddinShmemInitLock, when it is known whether I/O is direct.  The postmaster tries
 * rings, and keeps none: each process makes its own.
 */
void
blob_engine_shmem_init(void)
{
	bool		found;

	engine_shared = ShmemInitStruct("blobext I/O engine", sizeof(EngineShared), &found);
	if (found)
		return;
	engine_shared->choice = find_ring();
	pg_atomic_init_flag(&engine_shared->is_told);
	log_choice(engine_shared->choice);
	close_rings();
	memset(refusals, 0, sizeof(refusals));
}
