/*
 * tools/verify/verify.h
 *	  What the files of blobext_verify share.
 */
#ifndef VERIFY_H
#define VERIFY_H

#include "postgres.h"

#include "common/fe_memutils.h"
#include "core/compat.h"
#include "map_file.h"

/* The counts of all stores. */
typedef struct VerifyTotals
{
	uint64		stores;
	uint64		verified_pages;
	uint64		plain_pages;	/* without checksums */
	uint64		lacking_pages;	/* of content that this copy never had, as its note says */
	uint64		unknown_pages;	/* their checksums are in a damaged part of the map */
	uint64		doubtful_pages; /* damaged, or no value has them */
	uint64		doubtful_extents;
	uint64		damaged_pages;
	uint64		damaged_extents;
	uint64		damaged_blocks; /* of maps */
} VerifyTotals;

/* Report an error, and end the program with status 2. */
pg_noreturn extern void verify_fail(const char *format,...) pg_attribute_printf(1, 2);

/*
 * Compare all pages of a store with their checksums.  The working directory is the data directory.
 * Damage is printed to standard output, progress, if it is asked for, to standard error.
 */
extern void verify_store(MapFile *map, bool shows_progress, VerifyTotals *totals);

#endif							/* VERIFY_H */
