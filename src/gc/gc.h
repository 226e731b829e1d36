/*
 * gc/gc.h
 *	  The collector: frees the extents of a database that nothing refers to.  See README.md.
 */
#ifndef BLOB_GC_H
#define BLOB_GC_H

#include "postgres.h"

#include "gc/referring.h"
#include "gc/status.h"
#include "store/store.h"

struct BlobGcRoots;

typedef struct BlobGcOptions
{
	bool		dry_run;		/* count, free nothing */
	bool		automatic;		/* in a worker: gives way to commands that want the database for
								 * themselves, follows the configuration, shows its phase */
	double		cost_delay_ms;	/* sleep this long (0: never) ... */
	int			cost_limit_pages;	/* ... after this number of pages of tables and indexes */

	/*
	 * Called before owners of temporary tables are asked, and before marking; may be NULL.  A round
	 * that goes back to step 4 calls it again, the last call counts.  With the roots of the round,
	 * which go with it, and the pages that had been allocated in the store, since the start of the
	 * server, at the cutoff.
	 */
	void		(*before_marking) (const struct BlobGcRoots *roots, uint64 allocated_pages,
								   void *context);
	void	   *context;		/* of that function */
} BlobGcOptions;

/* How many tables are named whose indexes have dead keys. */
#define BLOB_GC_DEAD_KEY_TABLES 32

/* A table, and the bytes that a round has found only dead keys of its indexes to hold. */
typedef struct BlobGcDeadKeys
{
	Oid			table;			/* first, for oid_cmp() */
	uint64		bytes;
} BlobGcDeadKeys;

/* Blobs are counted by their first extents, see README.md. */
typedef struct BlobGcResult
{
	char	   *skipped_reason; /* why nothing (more) was freed; NULL: the round was complete */
	bool		is_passing;		/* that goes by itself: a round that begins now may be complete */
	bool		counted;		/* the figures below are known */
	uint64		freed_blobs;	/* of a dry run: that would have been freed */
	uint64		freed_bytes;
	uint64		live_blobs;
	uint64		live_bytes;
	BlobGcKept	kept;			/* of these, what only deleted rows refer to */
	int			removed_segments;
	BlobGcReferring referring;	/* tables, of their rows, keys and statistics; if it is counted */

	/* Of a complete round that was no dry run: tables that VACUUM would help, most bytes first. */
	int			dead_key_table_count;
	BlobGcDeadKeys dead_key_tables[BLOB_GC_DEAD_KEY_TABLES];
} BlobGcResult;

/*
 * One round in the current database.  The caller is in a transaction that has done nothing else:
 * no transaction id, no transaction block, no recovery, no parallel mode, and it holds no value in
 * memory.  An obstacle (a session, a table, a slot, a lock request) is no error, but a reason in
 * the result, in the current memory context.  May take long, mostly waiting; it can be cancelled at
 * any time.
 */
extern void blob_gc_run(const BlobGcOptions *options, BlobGcResult *result);

/* The pace that the settings give to a round of this kind (automatic). */
extern void blob_gc_options_take_pace(BlobGcOptions *options);

/*
 * Does a command hold the database for itself (DROP DATABASE, ALTER DATABASE ... RENAME, SET
 * TABLESPACE), or copy it?  In a transaction.  These commands hold a lock on the database while
 * they wait for its sessions to end, so no queue for a lock shows them.
 */
extern bool blob_gc_database_is_wanted(Oid database);

/*
 * The same for this database; or does a process wait for the map, which this one has locked, or for
 * the end of this transaction?
 */
extern bool blob_gc_store_is_wanted(const BlobStore *store);

#endif							/* BLOB_GC_H */
