/*
 * sql/maintenance/column_label.h
 *	  The label of a column, which functions change in parts.
 */
#ifndef BLOB_SQL_COLUMN_LABEL_H
#define BLOB_SQL_COLUMN_LABEL_H

#include "postgres.h"

#include "access/attnum.h"
#include "assign/label.h"
#include "fmgr.h"

typedef struct BlobLabelledColumn
{
	Oid			relid;
	char	   *name;
	BlobLabel	label;			/* its own, not that of a table above */
} BlobLabelledColumn;

/*
 * Find the column that is the first two arguments of a function, a relation and a name.  ERROR
 * 22004, 42P01, 42703, 42809 if there is none of type blobstate, or of arrays of it if allowed;
 * 0A000 if a newer version has set its label.
 */
extern void blob_column_label_find(FunctionCallInfo fcinfo, bool allows_arrays,
								   BlobLabelledColumn *column);

/* SECURITY LABEL, with the rights of the caller. */
extern void blob_column_label_set(const BlobLabelledColumn *column);

/* ERROR 42P01 if there is no such relation; 42703 or 42809 as above. */
extern void blob_column_label_require_relation(Oid relid);
extern AttrNumber blob_column_label_number(Oid relid, const char *name, bool allows_arrays);

#endif							/* BLOB_SQL_COLUMN_LABEL_H */
