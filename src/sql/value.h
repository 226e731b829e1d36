/*
 * sql/value.h
 *	  Arguments and results of SQL functions.
 */
#ifndef BLOB_SQL_VALUE_H
#define BLOB_SQL_VALUE_H

#include "core/descriptor.h"
#include "fmgr.h"
#include "utils/relcache.h"

/* Detoast and unpack an argument of type blobstate. */
extern BlobValue blob_sql_unpack(Datum datum);

/* The same for a function that writes: ERROR 55000 first if the library is not preloaded. */
extern BlobValue blob_sql_unpack_preloaded(Datum datum);

extern bytea *blob_sql_make_bytea(const void *data, size_t length_bytes);

/*
 * A bytea of length_bytes, which the caller fills and returns as it is: a large one is sent from
 * where it lies (client/row_message.h).  ERROR 54000 if no datum can have that length.
 */
extern bytea *blob_sql_make_result(uint64 length_bytes);

/* A range of the content as a new bytea; errors also as those of blob_read() in blob/blob.h. */
extern bytea *blob_sql_read(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes);

/*
 * An argument of type anycompatible that is a name of something, as text, varchar, char or name;
 * ERROR 42883 for other types.  function: for the message.
 */
extern char *blob_sql_get_name(FunctionCallInfo fcinfo, int argument_no, const char *function);

/* a + b, of numbers that a caller has given; ERROR 22003 if that is no bigint. */
extern int64 blob_sql_add(int64 a, int64 b);

/* Open a relation of which a caller has given the OID, in AccessShare mode; ERROR 42P01. */
extern Relation blob_sql_open_relation(Oid relid);

#endif							/* BLOB_SQL_VALUE_H */
