/*
 * assign/column_storage.h
 *	  How the values of a column are stored: its label (assign/label.h), inherited and cached.
 *
 * A partition without a part of the label takes that of the nearest partitioned table above it, by
 * the column's name.  A column without a method has blobext.default_compression; one without the
 * other part has values whose digests are sealed.
 */
#ifndef BLOB_COLUMN_STORAGE_H
#define BLOB_COLUMN_STORAGE_H

#include "access/attnum.h"
#include "blob/blob.h"

/*
 * How values are stored in a column now.  Cached; SECURITY LABEL invalidates the table's entry in
 * the relation cache, so a change takes effect as other DDL does.
 */
extern BlobStorage blob_column_storage(Oid relation, AttrNumber column);

/* The same, by the column's name; the default if there is no such column. */
extern BlobStorage blob_column_storage_of_name(Oid relation, const char *column);

/*
 * Whether values of a column may be open: it, or the column of its name in some table above, in
 * partitions or by inheritance, has opted in.  Statements that name the table above store values in
 * this one as that says.  Not cached.
 */
extern bool blob_column_storage_may_be_open(Oid relation, AttrNumber column);

#endif							/* BLOB_COLUMN_STORAGE_H */
