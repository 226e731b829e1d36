/*
 * core/memory.c
 *	  Hints to the kernel about memory, see core/memory.h.
 */
#include "postgres.h"

#include <sys/mman.h>

#include "core/memory.h"
#include "core/page.h"

/* Below this, the call costs as much as the faults. */
#define MIN_POPULATE_BYTES (32 * 1024)

#if defined(MADV_POPULATE_WRITE) && defined(MADV_POPULATE_READ)

/* Pass the pages of BLOB_PAGE_SIZE that the range touches to the kernel. */
static void
populate(char *start, Size bytes, int advice)
{
	static bool is_refused = false;
	char	   *first = (char *) TYPEALIGN_DOWN(BLOB_PAGE_SIZE, start);
	char	   *end = (char *) TYPEALIGN(BLOB_PAGE_SIZE, start + bytes);

	if (is_refused || bytes < MIN_POPULATE_BYTES)
		return;

	/* An older kernel does not know the advice.  After other errors the next call tries again. */
	if (madvise(first, end - first, advice) != 0 && errno == EINVAL)
		is_refused = true;
}

void
blob_memory_populate(char *start, Size bytes)
{
	populate(start, bytes, MADV_POPULATE_WRITE);
}

/*
 * A read fault of a shared mapping makes its page writable too.  It also maps the neighbours of the
 * page, which a write fault does not.
 */
void
blob_memory_populate_shared(char *start, Size bytes)
{
	populate(start, bytes, MADV_POPULATE_READ);
}

#else

void
blob_memory_populate(char *start, Size bytes)
{
}

void
blob_memory_populate_shared(char *start, Size bytes)
{
}

#endif
