/*
 * autogc/scrub_confirm.h
 *	  Which suspect pages belong to a value that a row has: those are damaged.
 */
#ifndef BLOB_SCRUB_CONFIRM_H
#define BLOB_SCRUB_CONFIRM_H

#include "postgres.h"

#include "core/page.h"

/* A page that was read without its checksum, or could not be read. */
typedef struct BlobScrubSuspect
{
	BlobExtent	extent;			/* with its generation */
	uint64		page_no;		/* in the extent */
	bool		is_damaged;		/* a row has a value that cannot be read because of it */
} BlobScrubSuspect;

/*
 * Look through all tables of the database for rows whose values have these pages, and try to read
 * the pages for them.  Sets is_damaged, and notes damaged pages (extents/damaged_pages.h).  Sorts
 * the suspects.  Outside of a transaction; each table gets one of its own.  False if a table could
 * not be locked at once, or a prepared transaction hides some: then of the other suspects nothing
 * is known.
 */
extern bool blob_scrub_confirm(const BlobStoreId *store, BlobScrubSuspect *suspects, int count);

#endif							/* BLOB_SCRUB_CONFIRM_H */
