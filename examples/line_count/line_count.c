/*
 * line_count.c
 *	  Number of lines of a blobstate: a C function that streams content of any size.
 *
 * The content goes through one buffer, piece by piece, so a value of 1 GB needs no more memory
 * than one of 1 MB.
 */
#include "postgres.h"

#include "extension/blobext/blobext.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

#define PIECE_BYTES (1024 * 1024)

PG_FUNCTION_INFO_V1(line_count);

static int64
count_line_feeds(const char *data, size_t length)
{
	int64		count = 0;

	for (size_t i = 0; i < length; i++)
		count += data[i] == '\n';
	return count;
}

/* line_count(blobstate) returns bigint: the number of line feeds, as "wc -l" counts. */
Datum
line_count(PG_FUNCTION_ARGS)
{
	BlobextBlob *blob = blobext_open(PG_GETARG_DATUM(0));
	size_t		piece_bytes = (size_t) Min(blobext_size(blob), PIECE_BYTES);
	char	   *piece = palloc(piece_bytes);
	uint64		offset = 0;
	int64		count = 0;
	size_t		got;

	while ((got = blobext_read(blob, offset, piece, piece_bytes)) > 0)
	{
		count += count_line_feeds(piece, got);
		offset += got;
	}
	pfree(piece);
	blobext_close(blob);
	PG_RETURN_INT64(count);
}
