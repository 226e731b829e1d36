/*
 * assign/label.h
 *	  The label of a column: its parts, and the security label that they make.
 *
 * The label is of the provider "blobext".  It survives dumps, pg_upgrade and changes of the type's
 * modifiers, and takes part in no comparison of columns.  Its parts are separated by commas: the
 * name of a method of compression, and "digest deferred" or "digest sealed".  Each may be missing.
 */
#ifndef BLOB_LABEL_H
#define BLOB_LABEL_H

#include "core/frame.h"

#define BLOB_LABEL_PROVIDER "blobext"

typedef struct BlobLabel
{
	bool		has_method;
	BlobMethod	method;
	bool		has_digest;
	bool		defers_digest;
} BlobLabel;

/* False if this is no label that this version knows. */
extern bool blob_label_parse(const char *text, BlobLabel *label);

/* The text, or NULL: there is no part. */
extern char *blob_label_make(const BlobLabel *label);

/* False if this is neither "deferred" nor "sealed". */
extern bool blob_label_parse_digest(const char *text, bool *defers);

#endif							/* BLOB_LABEL_H */
