/*
 * assign/compression.h
 *	  The method of compression of a column: a security label of the provider "blobext".
 *
 * A label survives dumps, pg_upgrade and changes of the type's modifiers, and takes part in no
 * comparison of columns.  Its values are the names of methods.  A partition without a label takes
 * that of the nearest partitioned table above it, by the column's name.  A column without one has
 * blobext.default_compression.
 */
#ifndef BLOB_COMPRESSION_H
#define BLOB_COMPRESSION_H

#include "access/attnum.h"
#include "core/frame.h"

#define BLOB_LABEL_PROVIDER "blobext"

/* Register the provider of labels.  Call this once, from _PG_init. */
extern void blob_compression_register(void);

/*
 * A column may have another type now: take its label away if that is one without compression.
 * pg_dump would write the label, and SECURITY LABEL refuse it.
 */
extern void blob_compression_type_changed(Oid relation, AttrNumber column, Oid type);

/*
 * The method of a column, for values that are stored in it now.  Cached; SECURITY LABEL invalidates
 * the table's entry in the relation cache, so a change takes effect as other DDL does.
 */
extern BlobMethod blob_compression_of_column(Oid relation, AttrNumber column);

/* The same, by the column's name; the default if there is no such column. */
extern BlobMethod blob_compression_of_name(Oid relation, const char *column);

/* The label of a column, or NULL: its own, or that of a table above it. */
extern char *blob_compression_find_label(Oid relation, AttrNumber column);

#endif							/* BLOB_COMPRESSION_H */
