/*
 * io/engine_sync.c
 *	  Blocking transfers, where the kernel refuses both rings, or where they are not wanted.  Short
 *	  transfers of rings are finished by them.
 */
#include "postgres.h"
#include "utils/wait_event.h"

#include <unistd.h>

#include "io/engine_internal.h"
#include "pgstat.h"

/* How long to wait before a transfer that failed with EAGAIN is tried again. */
#define RETRY_WAIT_US 1000

/*
 * Transfer the part of the vectors that is missing, by one call.  The part that has been
 * transferred ends at a page.
 */
static ssize_t
transfer_missing(const BlobIoRequest *request)
{
	struct iovec missing[BLOB_IO_MAX_VECTORS];
	size_t		done_bytes = request->transferred;
	off_t		offset = request->file_offset + request->transferred;
	int			count = 0;

	for (int i = 0; i < request->vector_count; i++)
	{
		const struct iovec *vector = &request->vectors[i];
		size_t		skip = Min(done_bytes, vector->iov_len);

		done_bytes -= skip;
		if (skip == vector->iov_len)
			continue;
		missing[count].iov_base = (char *) vector->iov_base + skip;
		missing[count++].iov_len = vector->iov_len - skip;
	}
	if (request->is_write)
		return pwritev(request->fd, missing, count, offset);
	return preadv(request->fd, missing, count, offset);
}

/*
 * A transfer is continued from a page boundary only, as O_DIRECT demands: a part of a page counts
 * as nothing.  No progress means the end of the file, or of the disk.
 */
void
blob_sync_transfer(BlobIoRequest *request)
{
	request->transferred -= request->transferred % BLOB_PAGE_SIZE;

	pgstat_report_wait_start(PG_WAIT_EXTENSION);
	while (request->error == 0 && request->transferred < request->length)
	{
		ssize_t		moved = transfer_missing(request);

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved < 0 && errno == EAGAIN)
		{
			pg_usleep(RETRY_WAIT_US);
			continue;
		}
		if (moved < 0)
		{
			request->error = errno;
			break;
		}

		moved -= moved % BLOB_PAGE_SIZE;
		if (moved == 0)
			request->error = request->is_write ? ENOSPC : ENODATA;
		request->transferred += moved;
	}
	pgstat_report_wait_end();
}
