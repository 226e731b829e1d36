/*
 * blob/writer_internal.h
 *	  What writer.c and writer_change.c share.
 */
#ifndef BLOB_WRITER_INTERNAL_H
#define BLOB_WRITER_INTERNAL_H

#include "blob/framer.h"
#include "blob/reader.h"
#include "blob/tree.h"
#include "blob/write_buffer.h"
#include "blob/writer.h"

struct BlobWriter
{
	MemoryContext context;
	BlobWriteBuffer stored;		/* its stored bytes */
	BlobMethod	method;			/* to be tried; none: the content is stored as it is */
	BlobFramer *framer;			/* NULL: the stored bytes are the content */
	bool		is_appending;	/* to a compressed value, whose open frame goes on */
	BlobTree   *tree;			/* of a change; the framer is NULL */
	BlobCompression tree_fields;	/* once it is finished */
	BlobReader *base_reader;	/* of a change */
	BlobMappingSource base_source;
	bool		has_kept;		/* of a change: content of the base */
	bool		is_open;		/* of a change: the digest is not computed, blob/seal.h */
	bool		defers_digest;	/* as the base says */
	uint64		expected_bytes; /* of the whole content; 0: unknown */
	uint64		size_bytes;		/* content so far */
	uint8		prefix[BLOB_PREFIX_BYTES];
};

/* A writer in the current context.  ERROR 0A000 if the method is not built in. */
extern BlobWriter *blob_writer_make(uint64 expected_bytes, BlobMethod method);

/* As blob_writer_grow(), for a tree: it is changed, or written anew in its natural form. */
extern BlobWriter *blob_writer_grow_tree(const BlobValue *value, uint64 keep_bytes,
										 uint64 expected_bytes);

/*
 * The same for the beginning of a value that is no tree yet.  As one it need not be hashed: its
 * digest may be open, and it can be changed.
 */
extern BlobWriter *blob_writer_open_beginning(const BlobValue *value, uint64 keep_bytes);

/* Hash new content, unless the digest stays open, and give it to the tree. */
extern void blob_writer_add_to_tree(BlobWriter *writer, const char *data, uint64 length_bytes);

/* The datum of a tree that is finished; descriptor has size, digest and prefix. */
extern struct varlena *blob_writer_complete_tree(BlobWriter *writer, BlobDescriptor *descriptor);

#endif							/* BLOB_WRITER_INTERNAL_H */
