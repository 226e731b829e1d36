/*
 * blob/known_digests.h
 *	  Digests of open values that were computed in passing: a list in shared memory.
 *
 * A value is known by its store and its generation: an open value has drawn one of its own
 * (blob/complete.h).  Generations are never drawn twice, so an entry stays true as long as the
 * server runs and the store is there, whatever becomes of the value.  The list has a fixed size,
 * and starts empty.
 */
#ifndef BLOB_KNOWN_DIGESTS_H
#define BLOB_KNOWN_DIGESTS_H

#include "core/digest.h"
#include "core/page.h"

/* Digest and state of a content, which the descriptor of an open value lacks. */
typedef struct BlobSeal
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];	/* chaining words */
} BlobSeal;

extern void blob_known_digests_shmem_request(void);
extern void blob_known_digests_shmem_init(void);

/*
 * Look an open value up; false if it is not known.  Takes a lightweight lock, and nothing else: may
 * be called where interrupts are held, and where buffers are locked.  So may the next one.
 */
extern bool blob_known_digests_find(const BlobStoreId *store, BlobGeneration generation,
									BlobSeal *seal);

/*
 * Note an open value's digest, in place of that of another value if need be.  The store is open, so
 * it has not been dropped.
 */
extern void blob_known_digests_note(const BlobStoreId *store, BlobGeneration generation,
									const BlobSeal *seal);

/*
 * Forget all values of a store that was dropped: a later copy of the same template, with the same
 * OID, is the same store, and draws the same generations.  No session notes more of them: it has
 * the map locked meanwhile.
 */
extern void blob_known_digests_forget_store(const BlobStoreId *store);

#endif							/* BLOB_KNOWN_DIGESTS_H */
