/*
 * extents/put.h
 *	  The bytes of one call of the write pipeline: where they are, where they go, and which of them
 *	  have yet to be hashed.
 */
#ifndef BLOB_PUT_H
#define BLOB_PUT_H

#include "core/digest.h"
#include "core/page.h"
#include "extents/layout.h"
#include "utils/relcache.h"

/* Bytes from two places in memory, one after the other, and the pages that they go to. */
typedef struct BlobPut
{
	const BlobStoreId *store;
	Relation	map;			/* the store's, which gets the checksums of the pages */
	const BlobWriteRun *runs;
	int			run_count;
	const char *first;
	uint64		first_bytes;
	const char *second;
	uint64		total_bytes;	/* the part of the last page behind them becomes zero */
	BlobDigest *digest;			/* of the bytes but the first skip_bytes; NULL: of none */
	uint64		skip_bytes;
	bool		is_whole;		/* all content of the value is in memory now */
	bool		may_trail;		/* see blob_pipeline_put() */
} BlobPut;

/* The address of a range of a put; NULL if it is not in one place. */
extern const char *blob_put_address(const BlobPut *put, uint64 offset, uint32 length);

/* Copy a range, without its digest. */
extern void blob_put_copy(const BlobPut *put, uint64 offset, uint32 length, char *target);

/*
 * Hash a range, the next one, where it lies; by the thread: hand it over (extents/hasher.h).  ERROR
 * of OpenSSL.
 */
extern void blob_put_hash(const BlobPut *put, uint64 offset, uint32 length, bool by_thread);

/* Copy and hash a range, in one go where that is possible. */
extern void blob_put_copy_and_hash(const BlobPut *put, uint64 offset, uint32 length, char *target);

#endif							/* BLOB_PUT_H */
