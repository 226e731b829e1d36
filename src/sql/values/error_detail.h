/*
 * sql/values/error_detail.h
 *	  Values in PostgreSQL's error messages.
 */
#ifndef BLOB_ERROR_DETAIL_H
#define BLOB_ERROR_DETAIL_H

#include "core/descriptor.h"

/*
 * Whether the output function that is running was called to put the value into the detail of an
 * error message (duplicate key, failing row, foreign key), and into nothing else.
 */
extern bool blob_error_detail_wanted(void);

/* First bytes, size and digest of a value, as a palloc'ed string. */
extern char *blob_error_detail_text(const BlobValue *value);

#endif							/* BLOB_ERROR_DETAIL_H */
