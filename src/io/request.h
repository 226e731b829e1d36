/*
 * io/request.h
 *	  A request to the engine, and how many a process can have; see io/engine.h.
 */
#ifndef BLOB_IO_REQUEST_H
#define BLOB_IO_REQUEST_H

#include <sys/uio.h>

#include "core/page.h"

/* Buffers of one process; 4 MiB in all. */
#define BLOB_IO_BUFFER_BYTES (256 * 1024)
#define BLOB_IO_BUFFER_COUNT 16

/* Requests ahead that one process can have in flight: reads (readahead.c), writes (pipeline.c). */
#define BLOB_IO_MAX_AHEAD 32
#define BLOB_IO_MAX_TRAILING BLOB_IO_BUFFER_COUNT

/* Vectors that one request can have. */
#define BLOB_IO_MAX_VECTORS 64

typedef struct BlobIoRequest
{
	/* set by the caller */
	bool		is_write;
	int			fd;
	uint64		file_offset;	/* bytes, multiple of BLOB_PAGE_SIZE */
	int			buffer_no;		/* 0 .. BLOB_IO_BUFFER_COUNT - 1; ignored with vectors */
	uint32		length;			/* bytes, multiple of BLOB_PAGE_SIZE */
	int			vector_count;	/* 0: the buffer is used; else: */
	struct iovec vectors[BLOB_IO_MAX_VECTORS];	/* page-aligned, length bytes in all */
	/* result, valid once the request is done */
	int			error;			/* errno, or 0; a read past the end of the file is ENODATA */
	/* private to the engine */
	uint32		transferred;	/* short transfers are continued by the engine */
	bool		in_flight;
} BlobIoRequest;

#endif							/* BLOB_IO_REQUEST_H */
