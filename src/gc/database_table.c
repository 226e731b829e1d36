/*
 * gc/database_table.c
 *	  A table in shared memory with an entry for each database, see gc/database_table.h.
 */
#include "postgres.h"

#include "gc/database_table.h"
#include "io/segment.h"
#include "storage/shmem.h"
#include "utils/builtins.h"

static Size
head_bytes(const BlobDatabaseTable *table)
{
	return MAXALIGN(table->head_bytes);
}

static Size
table_bytes(const BlobDatabaseTable *table)
{
	return add_size(head_bytes(table), mul_size(blob_segment_database_room(), table->entry_bytes));
}

void
blob_database_table_request(const BlobDatabaseTable *table)
{
	RequestAddinShmemSpace(table_bytes(table));
	RequestNamedLWLockTranche(table->tranche, 1);
}

void
blob_database_table_init(BlobDatabaseTable *table)
{
	bool		found;

	table->head = ShmemInitStruct(table->name, table_bytes(table), &found);
	table->entries = (char *) table->head + head_bytes(table);
	table->lock = &GetNamedLWLockTranche(table->tranche)->lock;
	if (!found)
		memset(table->head, 0, table_bytes(table));
}

static Oid *
database_of(void *entry)
{
	return entry;
}

void *
blob_database_table_find(const BlobDatabaseTable *table, Oid database)
{
	for (int i = 0; i < blob_segment_database_room(); i++)
	{
		void	   *entry = blob_database_table_entry(table, i);

		if (*database_of(entry) == database)
			return entry;
	}
	return NULL;
}

void *
blob_database_table_make(const BlobDatabaseTable *table, Oid database, bool *is_new)
{
	void	   *entry = blob_database_table_find(table, database);

	*is_new = false;
	if (entry != NULL)
		return entry;
	entry = blob_database_table_find(table, InvalidOid);
	if (entry == NULL)
		return NULL;
	*is_new = true;
	memset(entry, 0, table->entry_bytes);	/* it may be of a database that was dropped */
	*database_of(entry) = database;
	return entry;
}

void
blob_database_table_forget(const BlobDatabaseTable *table, Oid database)
{
	void	   *entry;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	entry = blob_database_table_find(table, database);
	if (entry != NULL)
		*database_of(entry) = InvalidOid;
	LWLockRelease(table->lock);
}

void
blob_database_table_keep(const BlobDatabaseTable *table, const Oid *databases, int count,
						 bool (*is_in_use) (const void *entry))
{
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < blob_segment_database_room(); i++)
	{
		void	   *entry = blob_database_table_entry(table, i);
		Oid		   *database = database_of(entry);

		if (OidIsValid(*database) && (is_in_use == NULL || !is_in_use(entry)) &&
			bsearch(database, databases, count, sizeof(Oid), oid_cmp) == NULL)
			*database = InvalidOid;
	}
	LWLockRelease(table->lock);
}
