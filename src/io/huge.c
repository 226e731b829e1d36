/*
 * io/huge.c
 *	  Shared memory in huge pages, see io/huge.h.
 *
 * The kernel maps a huge page of a file only where address and position in the file agree modulo
 * its size; the file here is that of an anonymous shared mapping. mremap() with a length of 0 makes
 * a second mapping of such memory.  Each process makes its own, at first use.  If the postmaster
 * made one, children that detach from shared memory would inherit it, and keep the memory from
 * being freed after a crash.
 */
#include "postgres.h"

#include <sys/mman.h>

#include "io/huge.h"
#include "storage/pg_shmem.h"
#include "utils/timestamp.h"

#define HUGE_BYTES ((Size) 2 * 1024 * 1024)

/* For how long the kernel is asked again for huge pages that it did not have, and the pause. */
#define GATHER_MAX_MS 500
#define GATHER_PAUSE_US 20000

/* In the kernel since 6.1; the C library's headers may be older. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#ifdef __linux__

/* Find the offset of an address in the file that is mapped there; false if it cannot be found. */
static bool
find_file_offset(const char *address, uint64 *offset)
{
	FILE	   *maps = fopen("/proc/self/maps", "r");
	char		line[1024];
	bool		found = false;

	if (maps == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), maps) != NULL)
	{
		unsigned long long start;
		unsigned long long end;
		unsigned long long start_offset;

		if (sscanf(line, "%llx-%llx %*s %llx", &start, &end, &start_offset) == 3 &&
			(uintptr_t) address >= start && (uintptr_t) address < end)
		{
			*offset = start_offset + ((uintptr_t) address - start);
			found = true;
		}
	}
	fclose(maps);
	return found;
}

/* Map the memory a second time, aligned; NULL if the kernel refuses. */
static char *
map_view(const BlobHugeView *view)
{
	Size		reserved_bytes = view->bytes + HUGE_BYTES;
	char	   *reserved;
	char	   *aligned;

	reserved = mmap(NULL, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
					-1, 0);
	if (reserved == MAP_FAILED)
		return NULL;
	aligned = (char *) TYPEALIGN(HUGE_BYTES, reserved);
	if (mremap(view->start, 0, view->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, aligned) == MAP_FAILED)
	{
		munmap(reserved, reserved_bytes);
		return NULL;
	}
	if (aligned > reserved)
		munmap(reserved, aligned - reserved);
	if (aligned + view->bytes < reserved + reserved_bytes)
		munmap(aligned + view->bytes, reserved + reserved_bytes - (aligned + view->bytes));
	return aligned;
}

/*
 * Gather each huge page that is not gathered yet, one by one: a single call for all of them would
 * end at the first one that the kernel has no memory for.  When the time is over, the remaining
 * ones count as missing.  Returns the number of missing ones, or -1 where the kernel does not
 * support it.
 */
static int
gather_once(char *mapped, Size bytes, TimestampTz end, bool *is_done)
{
	int			missing = 0;

	for (Size i = 0; i < bytes / HUGE_BYTES; i++)
	{
		if (is_done[i])
			continue;
		if (GetCurrentTimestamp() < end)
		{
			is_done[i] = madvise(mapped + i * HUGE_BYTES, HUGE_BYTES, MADV_COLLAPSE) == 0;
			/* EBUSY: a control group is at its limit. */
			if (!is_done[i] && errno != ENOMEM && errno != EAGAIN && errno != EBUSY)
				return -1;
		}
		missing += !is_done[i];
	}
	return missing;
}

/*
 * Gather an aligned mapping.  Where other data, above all the page cache, fill the memory, the
 * kernel has to move some of them to make room.  It gives up soon, but goes on in the background.
 * So this function tries again, but not for long, since the start of the server waits.
 */
static bool
gather(char *mapped, Size bytes, bool *is_supported)
{
	bool	   *is_done = palloc0(sizeof(bool) * (bytes / HUGE_BYTES));
	TimestampTz end;
	int			missing;

	/* Memory that has no page yet cannot be gathered. */
	for (Size i = 0; i < bytes; i += HUGE_BYTES)
		((volatile char *) mapped)[i] = 0;
	missing = gather_once(mapped, bytes, DT_NOEND, is_done);
	end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), GATHER_MAX_MS);
	while (missing > 0 && GetCurrentTimestamp() < end)
	{
		pg_usleep(GATHER_PAUSE_US);
		missing = gather_once(mapped, bytes, end, is_done);
	}
	pfree(is_done);
	*is_supported = missing >= 0;
	return missing == 0;
}

bool
blob_huge_gather(BlobHugeView *view, char *start, Size bytes)
{
	uint64		offset;
	Size		skip;
	char	   *mapped;
	bool		is_gathered;
	bool		is_supported;

	memset(view, 0, sizeof(*view));
	if (huge_pages == HUGE_PAGES_OFF || !find_file_offset(start, &offset))
		return false;
	skip = (HUGE_BYTES - offset % HUGE_BYTES) % HUGE_BYTES;
	if (bytes < skip + HUGE_BYTES)
		return false;
	view->start = start + skip;
	view->bytes = TYPEALIGN_DOWN(HUGE_BYTES, bytes - skip);
	mapped = map_view(view);
	if (mapped == NULL)
	{
		view->bytes = 0;
		return false;
	}

	is_gathered = gather(mapped, view->bytes, &is_supported);
	if (!is_supported)
		view->bytes = 0;
	munmap(mapped, TYPEALIGN_DOWN(HUGE_BYTES, bytes - skip));
	return is_gathered;
}

char *
blob_huge_address(BlobHugeView *view, char *address, Size bytes)
{
	if (view->bytes == 0 || view->is_refused || address < view->start ||
		address + bytes > view->start + view->bytes)
		return address;
	if (view->view == NULL)
	{
		view->view = map_view(view);
		view->is_refused = view->view == NULL;
		if (view->is_refused)
			return address;
	}
	return view->view + (address - view->start);
}

#else

bool
blob_huge_gather(BlobHugeView *view, char *start, Size bytes)
{
	memset(view, 0, sizeof(*view));
	return false;
}

char *
blob_huge_address(BlobHugeView *view, char *address, Size bytes)
{
	return address;
}

#endif
