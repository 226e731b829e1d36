/*
 * containers/rows.h
 *	  The columns of a table's row that can hold values; for code that reads all rows by itself.
 */
#ifndef BLOB_ROWS_H
#define BLOB_ROWS_H

#include "postgres.h"

#include "catalog/pg_attribute.h"
#include "executor/tuptable.h"
#include "utils/relcache.h"

/*
 * Call visit for each column of a row that can hold blobstate and is not null, in the current
 * memory context.  Returns NULL; or the problem of a row that cannot be taken apart, of which no
 * column is visited.  Needs catalog access.
 */
typedef void (*BlobRowsVisitor) (Form_pg_attribute column, Datum datum, void *context);
extern char *blob_rows_visit(Relation relation, TupleTableSlot *slot, BlobRowsVisitor visit,
							 void *context);

#endif							/* BLOB_ROWS_H */
