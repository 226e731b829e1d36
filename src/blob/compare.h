/*
 * blob/compare.h
 *	  Order and equality of values by content, like bytea's; see "Comparison" in the README of this
 *	  folder.
 *
 * All functions read no more than the decision needs.  Unequal prefixes, equal digests and (for
 * equality) unequal sizes decide without I/O and without locks.  Comparisons may be made under
 * buffer locks, and for keys of dead transactions: they read in bounded steps, use memory of fixed
 * size, and leave none allocated.  They can fail as any read can, and if interrupts are held and an
 * open value would have to be read far (blob/seal.h).
 */
#ifndef BLOB_COMPARE_H
#define BLOB_COMPARE_H

#include "blob/compare_content.h"
#include "core/descriptor.h"

/* The key of content that is in no blobstate datum. */
static inline void
blob_key_of_bytes(const char *data, uint64 size_bytes, BlobKey *key)
{
	key->datum = NULL;
	key->data = data;
	key->size_bytes = size_bytes;
	key->kind = BLOB_KEY_INLINE;
	key->sealed_digest = NULL;
}

/*
 * Negative, zero or positive: the order of the contents, as memcmp() gives it; if one is a prefix
 * of the other, the order of the sizes.
 */
extern int	blob_compare(const BlobKey *a, const BlobKey *b);

/*
 * The same for a sort, which compares each value several times: it keeps what it reads of the
 * beginnings of values.  *memory starts as NULL.  It is allocated in context (6 MiB) when content
 * is read for the first time, and is freed with that context.
 */
extern int	blob_compare_in_sort(const BlobKey *a, const BlobKey *b, BlobSortMemory **memory,
								 MemoryContext context);

/* Whether sizes and contents are the same.  Reads content of extents only if a value is open. */
extern bool blob_equal(const BlobKey *a, const BlobKey *b);

/* Order by digest, then by size.  Reads content of extents only if a value is open. */
extern int	blob_compare_digests(const BlobKey *a, const BlobKey *b);

/*
 * The digest of the content: that of the descriptor, remembered, or computed.  The result points
 * into the datum, or to memory that is valid until the next call.
 */
extern const uint8 *blob_key_digest(const BlobKey *key);

#endif							/* BLOB_COMPARE_H */
