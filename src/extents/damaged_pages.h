/*
 * extents/damaged_pages.h
 *	  Pages of content that do not have their checksum: a list in shared memory.
 *
 * Reads, the check and the scrubber note pages there, the worker that repairs takes them from
 * there, and the view blobext_damaged_pages shows them.  The list is of the whole server, has a
 * fixed size, and starts empty: after a restart the next read finds the damage again.  See
 * "Damaged pages" in the README of this folder.
 */
#ifndef BLOB_DAMAGED_PAGES_H
#define BLOB_DAMAGED_PAGES_H

#include "core/page.h"
#include "utils/timestamp.h"

/* Pages that the list has room for. */
#define BLOB_DAMAGED_PAGES_MAX 256

/* Schema and name, quoted; a column; why a page was not repaired.  Longer ones are cut. */
#define BLOB_DAMAGE_RELATION_BYTES (2 * (2 * NAMEDATALEN + 2))
#define BLOB_DAMAGE_ERROR_BYTES 256

/* The finder of the damage. */
typedef enum BlobDamageFinder
{
	BLOB_DAMAGE_READ,			/* the read of a value */
	BLOB_DAMAGE_SCRUB,			/* the scrubber */
	BLOB_DAMAGE_CHECK			/* blobext_check() */
} BlobDamageFinder;

typedef enum BlobDamageState
{
	BLOB_DAMAGE_FOUND,
	BLOB_DAMAGE_REPAIRING,
	BLOB_DAMAGE_REPAIRED,		/* written anew, durably */
	BLOB_DAMAGE_RIGHT,			/* had its checksum when it was read again */
	BLOB_DAMAGE_FAILED			/* error says why */
} BlobDamageState;

typedef struct BlobDamagedPage
{
	BlobStoreId store;			/* dboid is invalid: the entry is free */
	BlobExtent	extent;			/* with its generation */
	BlobPageNo	page;			/* of the store */
	BlobDamageFinder found_by;
	BlobDamageState state;
	TimestampTz first_found;
	TimestampTz last_found;
	uint64		count;			/* how often it was found */
	TimestampTz changed_at;		/* the state; 0: it was found, and nothing else */
	uint32		attempts;		/* to repair it */
	uint32		failures;		/* of these, in a row */
	TimestampTz attempted_at;	/* the last one began; 0: there was none */
	uint64		source;			/* of the last attempt: a hash of the connection string */
	Oid			role;			/* of the session that has found it */
	char		relation[BLOB_DAMAGE_RELATION_BYTES];	/* that has a value in it; empty: unknown */
	char		column[NAMEDATALEN];
	char		error[BLOB_DAMAGE_ERROR_BYTES];
} BlobDamagedPage;

extern void blob_damaged_pages_shmem_request(void);
extern void blob_damaged_pages_shmem_init(void);

/*
 * Note a page of an extent, which has its generation, as damaged.  The caller has read the page
 * twice, and looked the extent up after that: it is allocated, and its content is there.  Takes a
 * lightweight lock and writes a line to the log, which no client gets; nothing else: may be called
 * where interrupts are held, and where buffers are locked.
 */
extern void blob_damaged_page_note(const BlobStoreId *store, const BlobExtent *extent,
								   BlobPageNo page, BlobDamageFinder found_by);

/* Say which relation and column have a value in a page, if it is in the list.  column: or NULL. */
extern void blob_damaged_page_name(const BlobDamagedPage *damaged, const char *relation,
								   const char *column);

/*
 * Which relation and column, of these lengths, have a value in a page in one life of its extent;
 * false if that is not known.
 */
extern bool blob_damaged_page_find_name(const BlobStoreId *store, BlobGeneration generation,
										BlobPageNo page,
										char relation[BLOB_DAMAGE_RELATION_BYTES],
										char column[NAMEDATALEN]);

/* Set the state of a page, if it is in the list.  error: for FAILED. */
extern void blob_damaged_page_set(const BlobDamagedPage *damaged, BlobDamageState state,
								  const char *error);

/* The same with REPAIRED, for all listed pages of an extent in a range, which ends before end. */
extern void blob_damaged_pages_repaired(const BlobStoreId *store, const BlobExtent *extent,
										BlobPageNo first, BlobPageNo end);

/* Forget a page: its extent was freed. */
extern void blob_damaged_page_forget(const BlobDamagedPage *damaged);

/*
 * Forget all pages of a store whose directory goes, or of a database that was dropped: a later one
 * may have the same identity.  No process reads there any more.
 */
extern void blob_damaged_pages_forget_store(const BlobStoreId *store);
extern void blob_damaged_pages_forget_database(Oid database);

/* Forget pages that are right since a day. */
extern void blob_damaged_pages_forget_old(void);

/*
 * Copies of the entries of a database, or of all (InvalidOid), in the current memory context;
 * returns their number.
 */
extern int	blob_damaged_pages_get(Oid database, BlobDamagedPage **pages);

/*
 * Whether an attempt to repair the page is due, from the source that has this hash: at once the
 * first time and where the source is another one, later and later after failures, and after an
 * hour where the page was right in between.
 */
extern bool blob_damaged_page_is_due(const BlobDamagedPage *damaged, uint64 source,
									 TimestampTz now);

/* An attempt begins: state REPAIRING. */
extern void blob_damaged_page_attempt(const BlobDamagedPage *damaged, uint64 source);

/* All attempts in a database end without success.  Takes no memory: errors are reported so. */
extern void blob_damaged_pages_give_up(Oid database, const char *error);

#endif							/* BLOB_DAMAGED_PAGES_H */
