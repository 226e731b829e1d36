/*
 * gc/database_table.h
 *	  A table in shared memory with an entry for each database that has a store.
 *
 * An entry begins with the database's OID, which is invalid while the entry is free.  Entries are
 * found by a linear search, never move, and go with their database.  One lock protects the table.
 */
#ifndef BLOB_GC_DATABASE_TABLE_H
#define BLOB_GC_DATABASE_TABLE_H

#include "postgres.h"

#include "storage/lwlock.h"

typedef struct BlobDatabaseTable
{
	const char *name;			/* of the shared memory */
	const char *tranche;		/* of the lock */
	Size		head_bytes;		/* state that is there once, for all databases */
	Size		entry_bytes;

	/* Set by blob_database_table_init(). */
	LWLock	   *lock;
	void	   *head;			/* zeros at first */
	char	   *entries;
} BlobDatabaseTable;

/* From the hooks for shared memory. */
extern void blob_database_table_request(const BlobDatabaseTable *table);
extern void blob_database_table_init(BlobDatabaseTable *table);

/* The entry of this number, below blob_segment_database_room(), whether it is free or not. */
static inline void *
blob_database_table_entry(const BlobDatabaseTable *table, int number)
{
	return table->entries + number * table->entry_bytes;
}

/* The database's entry, or NULL; the caller holds the lock. */
extern void *blob_database_table_find(const BlobDatabaseTable *table, Oid database);

/*
 * The same, made if need be; *is_new: it was, and has zeros but for the OID.  NULL if the table is
 * full.  The caller holds the lock exclusively.
 */
extern void *blob_database_table_make(const BlobDatabaseTable *table, Oid database, bool *is_new);

/* Free the entry of a database that is dropped, if it has one.  Takes the lock. */
extern void blob_database_table_forget(const BlobDatabaseTable *table, Oid database);

/*
 * Free the entries of all databases but these (sorted), and but those in use, NULL: none is.  Takes
 * the lock.
 */
extern void blob_database_table_keep(const BlobDatabaseTable *table, const Oid *databases,
									 int count, bool (*is_in_use) (const void *entry));

#endif							/* BLOB_GC_DATABASE_TABLE_H */
