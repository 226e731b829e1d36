/*
 * sql/maintenance/repair_search.h
 *	  Which values have damaged pages; for the worker that repairs, see sql/maintenance/repair.c.
 */
#ifndef BLOB_SQL_REPAIR_SEARCH_H
#define BLOB_SQL_REPAIR_SEARCH_H

#include "sql/maintenance/damaged_values.h"

/*
 * Find values of this database that name the pages, some for each page, and say in the list in
 * which tables they are.  Outside of a transaction: each table is read in one of its own, and left
 * out where another session has it locked for itself.  Errors that are not about the table.
 */
extern void blob_repair_search(BlobRepair *repair);

#endif							/* BLOB_SQL_REPAIR_SEARCH_H */
