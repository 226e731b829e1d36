/*
 * blob/write_buffer.h
 *	  Stored bytes of a value that is being written, until they fill pages.  Part of a writer
 *	  (blob/writer.h), which decides what these bytes are.
 *
 * Memory of its owner, and nothing else; see the rules of blob/writer.h.
 */
#ifndef BLOB_WRITE_BUFFER_H
#define BLOB_WRITE_BUFFER_H

#include "blob/mapping.h"
#include "blob/page_writer.h"

/* Bytes are buffered up to this number; blobext.inline_limit is never larger. */
#define BLOB_WRITE_BUFFER_BYTES (1024 * 1024)

/* Only write_buffer.c changes the members, but those that say so. */
typedef struct BlobWriteBuffer
{
	MemoryContext context;
	BlobPageWriter pages;		/* with the stored bytes that have left the buffer */
	bool		is_content;		/* owner's: stored bytes are the content, and are hashed here */
	bool		is_whole;		/* owner's: all content comes in one call */
	bool		is_alone;		/* owner's: no code but its own runs now, so writes may trail */
	BlobDigest	digest;			/* of the content */
	uint64		hashed_bytes;	/* of the content, those that the digest has or will have */
	MemoryContext digest_guard; /* while the thread may look at the buffer */
	char	   *bytes;			/* the stored bytes behind those in pages */
	char	   *memory;			/* the allocation that they lie in */
	uint32		used_bytes;
	uint32		capacity;
	char	   *other_memory;	/* the other buffer, whose writes may trail */
	uint64		other_job_no;	/* the last one in it that is to be hashed */
} BlobWriteBuffer;

/* Begin with zeroed memory.  Memory is allocated in the context. */
extern void blob_write_buffer_begin(BlobWriteBuffer *buffer, MemoryContext context);

/*
 * The content offset of the first byte of the buffer of a value that is stored as it is: all
 * content before it is in pages.
 */
static inline uint64
blob_write_buffer_offset(const BlobWriteBuffer *buffer)
{
	return blob_mapping_content_offset(buffer->pages.stored_bytes);
}

/* Make room for this number of bytes in the buffer, which may move. */
extern void blob_write_buffer_enlarge(BlobWriteBuffer *buffer, uint64 bytes);

/* Add stored bytes; full pages of them may be written at once. */
extern void blob_write_buffer_add(BlobWriteBuffer *buffer, const char *stored,
								  uint64 length_bytes);

/* Store the bytes of the buffer, and more behind them.  is_last: none will come. */
extern void blob_write_buffer_store(BlobWriteBuffer *buffer, const char *stored,
									uint64 length_bytes, bool is_last);

/*
 * Finish the digest of size_bytes of content, of which those that are not hashed are in the buffer.
 * As blob_digest_finish().
 */
extern void blob_write_buffer_finish_digest(BlobWriteBuffer *buffer, uint64 size_bytes,
											uint8 *sha256, uint8 *state);

/* Take the bytes out of the buffer, which is empty then; put them back. */
typedef struct BlobTakenBytes
{
	char	   *bytes;
	char	   *memory;			/* to be freed */
	uint32		used_bytes;
	uint32		capacity;
} BlobTakenBytes;

extern BlobTakenBytes blob_write_buffer_take(BlobWriteBuffer *buffer);
extern void blob_write_buffer_put_back(BlobWriteBuffer *buffer, const BlobTakenBytes *taken);

/* Free the memory, and abandon extents that were allocated and are in no value. */
extern void blob_write_buffer_end(BlobWriteBuffer *buffer);

#endif							/* BLOB_WRITE_BUFFER_H */
