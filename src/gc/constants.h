/*
 * gc/constants.h
 *	  Constants that caches of the server keep from one transaction to the next.
 */
#ifndef BLOB_GC_CONSTANTS_H
#define BLOB_GC_CONSTANTS_H

#include "postgres.h"

/*
 * Hash values of messages about pg_constraint, between which those of a round have the OIDs of
 * relations as theirs.  They are also in the WAL, so older libraries know them.
 */
#define BLOB_GC_FIRST_CONSTANTS_MARK 0xB10BE571
#define BLOB_GC_LAST_CONSTANTS_MARK 0xB10BE572

/* The callbacks of each backend; from the library's entry point. */
extern void blob_gc_constants_register(void);

/*
 * Make every backend of the database give up the values that its caches keep, at the latest when
 * the transaction ends that it runs now.
 */
extern void blob_gc_constants_give_up(void);

/* The same for the backends of standbys, which must have replayed the sweep before. */
extern void blob_gc_constants_log(void);

/* This process gives up all of them when its transaction has ended.  Cannot fail. */
extern void blob_gc_constants_give_up_own(void);

#endif							/* BLOB_GC_CONSTANTS_H */
