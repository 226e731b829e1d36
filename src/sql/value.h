/*
 * sql/value.h
 *	  Arguments and results of SQL functions.
 */
#ifndef BLOB_SQL_VALUE_H
#define BLOB_SQL_VALUE_H

#include "core/descriptor.h"

/* Detoast and unpack an argument of type blobstate. */
extern BlobValue blob_sql_unpack(Datum datum);

/* A range of the content as a new bytea; ERROR 54000 if it is too large for one. */
extern bytea *blob_sql_read(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes);

#endif							/* BLOB_SQL_VALUE_H */
