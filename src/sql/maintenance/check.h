/*
 * sql/maintenance/check.h
 *	  Declarations that the files of blobext_check() share; see check.c.
 */
#ifndef BLOB_SQL_CHECK_H
#define BLOB_SQL_CHECK_H

#include "postgres.h"

#include "core/descriptor.h"
#include "heal/heal.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

struct BlobCheck;

/* The first columns of view blobext_check_progress: the check of a value adds to the next ones. */
enum
{
	BLOB_CHECK_RELATIONS_DONE,
	BLOB_CHECK_RELATIONS_TOTAL
};

/* Called for a value in extents, of a row or a key, in a subtransaction. */
typedef void (*BlobCheckVisitor) (struct BlobCheck *check, const BlobValue *value,
								  Relation relation, const char *column);

typedef struct BlobCheck
{
	ReturnSetInfo *result;		/* NULL: nothing is reported */
	BlobCheckVisitor visit;		/* of another walk: in place of the check of a value; or NULL */
	void	   *visit_context;
	MemoryContext row_context;	/* reset for each row, or page of an index */
	BlobHeal   *heal;			/* NULL: problems are reported and not repaired */
	bool		skips_content;	/* with heal: only missing content is a problem */
	bool		shows_repaired; /* values that were repaired are rows without a problem */
} BlobCheck;

/*
 * A row of the result; tid and column are NULL for a problem that is not one of a value.  Without a
 * problem the row is about a value that was repaired.
 */
extern void blob_check_report(BlobCheck *check, Oid relid, ItemPointer tid, const char *column,
							  const char *problem);

/*
 * Do something for a relation in a subtransaction, so that an error becomes a row of the result and
 * the check goes on.
 */
typedef void (*BlobCheckStep) (BlobCheck *check, Oid relid);
extern void blob_check_safely(BlobCheck *check, BlobCheckStep step, Oid relid);

/* Report a relation whose access method it should not have: see blob_gc_find_strangeness(). */
extern void blob_check_method(BlobCheck *check, Relation relation);

/* NULL, or the problem of a value's extents, as the map shows them; reads no content. */
extern char *blob_check_references(const BlobDescriptor *descriptor);

/*
 * The result of find for argument: NULL, or a problem.  Runs in a subtransaction: an error is a
 * problem, too.
 */
typedef char *(*BlobCheckFinder) (void *argument);
extern char *blob_check_find(BlobCheckFinder find, void *argument);

/*
 * Repair a value with a problem from the other server, if there is one, in a subtransaction.
 * Returns NULL, or what remains to be said.
 */
extern char *blob_check_repair(BlobCheck *check, const BlobValue *value, char *problem);

/*
 * The body of blobext_check() and blobext_fetch(): one table (InvalidOid: everything); conninfo:
 * NULL, or of the server from which problems are repaired.  The other members of options say how.
 */
extern void blob_check_run(FunctionCallInfo fcinfo, Oid relid, const char *conninfo,
						   const BlobCheck *options);

/*
 * Parts of that, for other walks: all tables, materialized views and partitions of the database,
 * ordered by oid; a table and its indexes.  Keeps AccessShareLock on tables with values until the
 * end of the transaction.
 */
extern List *blob_check_list_relations(void);
extern void blob_check_relation(BlobCheck *check, Oid relid);

/* Whether this relation has rows, and this process can read them. */
extern bool blob_check_is_readable(Relation relation);

/* check_partition.c: the bound of a partition, the key of a partitioned table. */
extern void blob_check_partition(BlobCheck *check, Relation relation);

/* check_map.c: the extent map by itself, and the segment files. */
extern void blob_check_map(BlobCheck *check);

/* check_index.c: the keys in the B-trees of a table, of whatever rows, on all levels. */
extern void blob_check_indexes(BlobCheck *check, Relation table);

#endif							/* BLOB_SQL_CHECK_H */
