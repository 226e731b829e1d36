/*
 * blob/reader.h
 *	  A reader of one value: the twin of blob/writer.h.
 *
 * A reader is memory of its owner, and nothing else.  Between two calls it holds no relation, no
 * lock and no use of the I/O engine.  So it may live as long as its value does: in the state of a
 * function, over waits for a slow client, beside other readers and writers.  (Its requests ahead
 * end by themselves, see extents/readahead.h.)  It verifies each extent before it reads the extent
 * for the first time, and remembers the generation that it saw.  It verifies the extents of each
 * read again before bytes leave.
 *
 * Errors: XB001 for an extent that was freed or reused, XB002 for unlogged content, XX001 and 58P01
 * for damaged files and frames, 0A000 for a method of compression that is not built in; with
 * blobext.verify_reads, XX001 for a read of the whole content that does not match the digest.
 * After an error the reader may be used again, or just forgotten.  Each read takes AccessShareLock
 * on the extent map and takes the I/O engine until it returns.
 *
 * Comparisons read under buffer locks.  So a reader allocates memory only for values of more than
 * BLOB_READER_EXTENTS extents.
 */
#ifndef BLOB_READER_H
#define BLOB_READER_H

#include "blob/mapping.h"
#include "extents/readahead.h"

/* A reader has room in itself for the extents of 64 MB. */
#define BLOB_READER_EXTENTS 16

/*
 * The whole content will be read from the front: the first read requests ahead as much as later
 * ones do.
 */
#define BLOB_READER_ALL 0x01

/* Read the bytes of the files, not of the buffer, where they are there; nothing is read ahead. */
#define BLOB_READER_PAST_BUFFER 0x02

/* With it: a page that does not have its checksum is no error, see blob_reader_has_damage(). */
#define BLOB_READER_NOTES_DAMAGE 0x04

/*
 * The owner provides the memory, and does not move it.  Only this module uses the members.  But a
 * caller may copy the window from one reader of a value to another one of the same value.
 */
typedef struct BlobReader
{
	const BlobValue *value;
	uint64		position;		/* content offset of the next read, in bytes */
	int			flags;
	BlobStored	stored;			/* extents as far as reads have come */
	int			capacity;		/* of stored.extents */
	MemoryContext context;		/* where more extents are allocated */
	BlobAheadWindow window;
	BlobStoredExtent extents[BLOB_READER_EXTENTS];
} BlobReader;

/*
 * Begin to read a value.  The value and its datum stay where they are as long as the reader is
 * used.  Costs next to nothing, and cannot fail.  Memory that is needed later is allocated in the
 * context that is current now.
 */
extern PGDLLEXPORT void blob_reader_begin(BlobReader *reader, const BlobValue *value,
										  int flags);

/* Go to a content offset; at most the value's size. */
extern void blob_reader_seek(BlobReader *reader, uint64 offset_bytes);

/* Copy the next bytes to buffer.  Returns their number, which is smaller only at the end. */
extern uint64 blob_reader_read(BlobReader *reader, void *buffer, uint64 length_bytes);

/*
 * blob_reader_read() for loops over pieces: serves interrupts first, since a read from the buffer
 * alone does not.
 *
 *		while ((bytes = blob_reader_next(&reader, buffer, sizeof(buffer))) > 0)
 */
extern uint64 blob_reader_next(BlobReader *reader, void *buffer, uint64 length_bytes);

/*
 * Copy the next bytes, at most BLOB_BUFFERED_MAX_BYTES, if the buffer has all of them, and go on
 * behind them.  Otherwise the result is false, the reader stays where it is, and the buffer's
 * content is undefined; also if the value may be stale.  For callers that can do without the
 * content.  Does no I/O but for the map.  The bytes exist, and the value is not compressed.
 */
extern bool blob_reader_read_buffered(BlobReader *reader, char *buffer, uint64 length_bytes);

/*
 * Request the beginning of the content, up to an offset, into the buffer: it will be read soon.
 * Leaves the reader where it is.  The value is not compressed.
 */
extern void blob_reader_request(BlobReader *reader, uint64 end_bytes);

/* Copy stored bytes, which exist, in place of content.  The position stays. */
extern void blob_reader_read_stored(BlobReader *reader, uint64 stored_offset,
									uint64 length_bytes, char *target);

/* Where the mapping gets stored bytes for a reader, as long as that is used. */
extern PGDLLEXPORT BlobMappingSource blob_reader_source(BlobReader *reader);

/*
 * ERROR, as reading the whole content would report, unless the form can be read, the extents belong
 * to the value, and the files exist and are long enough.  For callers that cannot report an error
 * once they have begun to read.
 */
extern void blob_reader_require_readable(BlobReader *reader);

/* Whether a page that was read did not have its checksum; sets *page to the first one. */
extern bool blob_reader_has_damage(const BlobReader *reader, BlobPageNo *page);

/*
 * Whether the map's checksum of a page, one that was read, is that of the page's stored bytes with
 * zeros behind them.  So it says whether damage is in the map or in the page.
 */
extern bool blob_reader_sum_fits(BlobReader *reader, BlobPageNo page);

/* Free the memory that the reader has allocated, if any. */
extern PGDLLEXPORT void blob_reader_end(BlobReader *reader);

#endif							/* BLOB_READER_H */
