/*
 * extents/stored.h
 *	  Stored bytes: the extents of one value, and where in them its bytes are.
 *
 * The stored bytes of a value are those of its extents, one after the other.  A stored offset
 * counts them from the first one on; it is no offset in the value's content (blob/mapping.h).  This
 * layer knows extents, stored offsets and generations, and nothing of the meaning of the bytes.
 */
#ifndef BLOB_STORED_H
#define BLOB_STORED_H

#include "core/page.h"

/* An extent with its place among the stored bytes. */
typedef struct BlobStoredExtent
{
	BlobExtent	extent;			/* with the generation of the first look */
	uint64		start;			/* stored offset of its first byte */
	uint64		bytes;			/* stored there, from the extent's start on */
} BlobStoredExtent;

/*
 * The stored bytes of one value, as far as they are known.  A caller adds extents before it asks
 * for their bytes.  An extent that was not looked up yet has generation BLOB_INVALID_GENERATION.
 */
typedef struct BlobStored
{
	BlobStoredExtent *extents;	/* in order, from the first one on */
	int			count;
	BlobGeneration max_generation;	/* no extent may have a newer one */
	uint64		total_bytes;	/* in all extents, known or not */
	uint64		value_bytes;	/* size of the content; for messages only */
	bool		may_lack;		/* heal/: unlogged content is read as it is */
	bool		skips_sums;		/* heal/: pages are read as they are, compared with nothing */
	bool		notes_damage;	/* pages without their checksum are noted, and read as they are */
	bool		has_damage;		/* the reader may take that back */
	BlobPageNo	damaged_page;	/* the first one */
} BlobStored;

/* A part of the stored bytes, and where a read copies it to. */
typedef struct BlobStoredPart
{
	uint64		offset;			/* stored offset */
	uint64		length;			/* bytes, at least 1 */
	char	   *target;
} BlobStoredPart;

/* Stored offset up to which the extents are known. */
static inline uint64
blob_stored_known_end(const BlobStored *stored)
{
	const BlobStoredExtent *last;

	if (stored->count == 0)
		return 0;
	last = &stored->extents[stored->count - 1];
	return last->start + last->bytes;
}

/* The number of the extent that holds a stored offset, which is known. */
static inline int
blob_stored_find(const BlobStored *stored, uint64 offset)
{
	int			no = 0;

	Assert(offset < blob_stored_known_end(stored));
	while (stored->extents[no].start + stored->extents[no].bytes <= offset)
		no++;
	return no;
}

/* Sort parts by their stored offsets: those of one extent by their place. */
extern void blob_stored_sort_parts(BlobStoredPart *parts, int count);

#endif							/* BLOB_STORED_H */
