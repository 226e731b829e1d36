/*
 * sql/maintenance/column.h
 *	  The column whose values a procedure exchanges, row by row, with the rights of its caller.
 */
#ifndef BLOB_SQL_COLUMN_H
#define BLOB_SQL_COLUMN_H

#include "postgres.h"

#include "executor/spi.h"
#include "storage/itemptr.h"

/* A column of type blobstate, or of a domain over it; names as SQL has them. */
typedef struct BlobColumn
{
	Oid			relid;
	const char *name;			/* of the column, as catalogs have it */
	const char *table;			/* qualified and quoted */
	const char *column;			/* quoted */
	AttrNumber	number;
} BlobColumn;

/* A row, by its place. */
typedef struct BlobColumnRow
{
	Oid			table;
	ItemPointerData tid;
} BlobColumnRow;

/*
 * Find a column whose values can be exchanged, in the current context.  Keeps AccessShareLock on
 * the table until the transaction ends.  ERROR 42809, 42703, 42804, 428C9, 0A000 if there is no
 * such column.  function: for messages.
 */
extern void blob_column_find(Oid relid, const char *name, const char *function,
							 BlobColumn *column);

/* ERROR 42501 unless the current role may read the column, and change it. */
extern void blob_column_require_privileges(const BlobColumn *column);

/* ERROR unless two looks at a column have found the same. */
extern void blob_column_require_same(const BlobColumn *before, const BlobColumn *now);

/*
 * The tables that have the rows: itself, its partitions and children.  ERROR 0A000 if one of them
 * is no table of this server.  Locked as by blob_column_find().
 */
extern List *blob_column_list_tables(const BlobColumn *column);

/* The lock of a row that an UPDATE takes, the strongest one that some table needs. */
extern const char *blob_column_row_lock(const BlobColumn *column);

/* A prepared statement that outlives the transaction; until SPI_freeplan(). */
extern SPIPlanPtr blob_column_prepare(const char *query, int count, Oid *types);

/* Execute a plan, in the current context; ERROR unless that is the result. */
extern void blob_column_execute(SPIPlanPtr plan, Datum *values, int expected);

/*
 * The value of a row, by a plan with its table and place as parameters, detoasted and copied to a
 * context; NULL if the row is not there for it.
 */
extern struct varlena *blob_column_value(SPIPlanPtr plan, const BlobColumnRow *row,
										 MemoryContext context);

extern bool blob_column_is_same_row(const BlobColumnRow *a, const BlobColumnRow *b);

/* Whether two detoasted data are the same, byte by byte. */
extern bool blob_column_is_same_datum(const struct varlena *a, const struct varlena *b);

/* A hash of all of a detoasted datum, the same for each copy of it. */
extern uint64 blob_column_hash_datum(const struct varlena *datum);

#endif							/* BLOB_SQL_COLUMN_H */
