/*
 * sql/maintenance/damaged_values.h
 *	  Which of the listed damaged pages a value has.
 */
#ifndef BLOB_SQL_DAMAGED_VALUES_H
#define BLOB_SQL_DAMAGED_VALUES_H

#include "core/descriptor.h"
#include "extents/damaged_pages.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

/* A damaged page of an attempt to repair. */
typedef struct BlobRepairPage
{
	BlobDamagedPage listed;		/* as the list had it */
	int			value_count;	/* found values that name it */
	bool		is_named;		/* the list says which relation has it */
	bool		is_done;		/* a value that names it is right now */
	char	   *problem;		/* why one could not be made so, or NULL */
} BlobRepairPage;

typedef struct BlobRepair
{
	MemoryContext context;		/* of all that is here; lives across transactions */
	BlobRepairPage *pages;		/* in the order of their extents */
	int			page_count;
	List	   *values;			/* of BlobValue *, in extents: those that were found */
	int			locked_count;	/* tables that were left out */
} BlobRepair;

/* Bring the pages into their order. */
extern void blob_repair_sort_pages(BlobRepair *repair);

/* Called for each page that a value names. */
typedef void (*BlobRepairPageVisitor) (BlobRepairPage *page, void *context);
extern void blob_repair_visit_pages(BlobRepair *repair, const BlobDescriptor *descriptor,
									BlobRepairPageVisitor visit, void *context);

/* Say in the list which relation and column have the pages that a value names, if it does not. */
extern void blob_repair_name_pages(BlobRepair *repair, const BlobDescriptor *descriptor,
								   Relation relation, const char *column);

/* The same for all listed pages of the database. */
extern void blob_damaged_values_name(const BlobDescriptor *descriptor, Relation relation,
									 const char *column);

#endif							/* BLOB_SQL_DAMAGED_VALUES_H */
