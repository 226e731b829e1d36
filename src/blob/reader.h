/*
 * blob/reader.h
 *	  A reader of one value: the twin of blob/writer.h.
 *
 * A reader is memory of its owner, and nothing else: between two calls it has no relation, no lock
 * and no claim of the I/O engine.  So it may live as long as its value does: in the state of a
 * function, over waits for a slow client, beside other readers and writers.  (Its requests
 * ahead end by itself, extents/readahead.h.)  It verifies each extent once before it reads it for
 * the first time, and remembers the generation that it saw; and again after each read, before bytes
 * leave.
 *
 * Errors: XB001 for an extent that was freed or reused, XB002 for content that is missing on this
 * server, XX001 and 58P01 for damaged files; with blobext.verify_reads, XX001 for a read of all
 * content that does not match the digest.  After an error the reader may be used again, or just
 * forgotten.  Each read takes AccessShareLock on the extent map and claims the I/O engine until it
 * returns.
 *
 * Comparisons read under buffer locks: a reader allocates memory only for values of more than
 * BLOB_READER_EXTENTS extents.
 */
#ifndef BLOB_READER_H
#define BLOB_READER_H

#include "blob/mapping.h"
#include "extents/readahead.h"

/* Extents for which a reader has room in itself: those of 64 MB. */
#define BLOB_READER_EXTENTS 16

/*
 * All content will be read from the front: the first read requests ahead as much as later ones do.
 */
#define BLOB_READER_ALL 0x01

/* Past the read cache, what the files hold; nothing is read ahead. */
#define BLOB_READER_UNCACHED 0x02

/*
 * Its owner provides the memory, and does not move it.  Members are this module's; but the window
 * may be copied from one reader of a value to another one of the same.
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
 * Begin to read a value, which stays where it is, with its datum, as long as the reader is used.
 * Costs next to nothing, and cannot fail.  Memory that is needed later is allocated in the context
 * that is current now.
 */
extern void blob_reader_begin(BlobReader *reader, const BlobValue *value, int flags);

/* Go to a content offset; at most the value's size. */
extern void blob_reader_seek(BlobReader *reader, uint64 offset_bytes);

/* Copy the next bytes to buffer; returns how many there were: fewer only at the end. */
extern uint64 blob_reader_read(BlobReader *reader, void *buffer, uint64 length_bytes);

/*
 * The same for loops over pieces: serves interrupts first, since a read from the cache alone does
 * not.
 *
 *		while ((bytes = blob_reader_next(&reader, buffer, sizeof(buffer))) > 0)
 */
extern uint64 blob_reader_next(BlobReader *reader, void *buffer, uint64 length_bytes);

/* As blob_reader_read() of stored bytes, which exist; the position stays. */
extern void blob_reader_read_stored(BlobReader *reader, uint64 stored_offset,
									uint64 length_bytes, char *target);

/*
 * ERROR, as reading all content would report, unless the extents are the value's own, and the files
 * are there and long enough: for callers that cannot report an error any more once they have begun
 * to read.
 */
extern void blob_reader_require_readable(BlobReader *reader);

/* Free what the reader has allocated, if anything. */
extern void blob_reader_end(BlobReader *reader);

#endif							/* BLOB_READER_H */
