/*
 * autogc/orphans.c
 *	  Directories of stores whose extension was dropped while its database lives on.
 *
 * See README.md, "Dropped extensions": directories are listed first, then all transactions that run
 * are waited for, then the committed catalogs say which one is the current store.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "autogc/dropped.h"
#include "autogc/orphans.h"
#include "autogc/process.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "core/catalog.h"
#include "core/clock.h"
#include "core/settings.h"
#include "gc/holders.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "store/map.h"
#include "store/store.h"
#include "utils/rel.h"

#define PAUSE_MS 50

/* Directories of this database; returns their number. */
static int
list_directories(BlobStoreId **stores)
{
	int			count = blob_segment_list_stores(stores);
	int			ours = 0;

	for (int i = 0; i < count; i++)
	{
		if ((*stores)[i].dboid == MyDatabaseId)
			(*stores)[ours++] = (*stores)[i];
	}
	return ours;
}

bool
blob_autogc_find_store(BlobStoreId *store, bool *exists)
{
	Oid			map = blob_catalog_map_relation_if_any();
	Relation	relation;

	*exists = false;
	if (!OidIsValid(map))
		return !OidIsValid(get_extension_oid("blobext", true)) &&
			!OidIsValid(get_am_oid("blobext_map", true));

	if (!ConditionalLockRelationOid(map, AccessShareLock))
		return false;
	relation = try_relation_open(map, NoLock);
	if (relation == NULL)
	{
		UnlockRelationOid(map, AccessShareLock);
		return false;			/* dropped meanwhile: the next look will tell */
	}
	*exists = true;
	*store = blob_map_store_id(relation);
	relation_close(relation, AccessShareLock);
	return true;
}

/* Wait for the transactions of a list; false when time is over. */
static bool
wait_for_transactions(const VirtualTransactionId *transactions, int count)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), blob_gc_wait_timeout_ms);
	int			pid;

	for (int i = 0; i < count; i++)
	{
		while (blob_gc_transaction_runs(transactions[i], &pid))
		{
			if (blob_autogc_database_is_wanted() ||
				!blob_clock_is_before(GetCurrentTimestamp(), end, blob_gc_wait_timeout_ms))
				return false;
			blob_clock_sleep(PAUSE_MS);
		}
	}
	return true;
}

/*
 * Is there a prepared transaction of this database?  It has no process, but locks; one that made or
 * dropped an extension has some on relations.
 */
static bool
prepared_transactions_exist(void)
{
	LockData   *locks = GetLockStatusData();
	bool		exist = false;

	for (int i = 0; i < locks->nelements; i++)
	{
		if (locks->locks[i].pid == 0 &&
			locks->locks[i].locktag.locktag_type == LOCKTAG_RELATION &&
			locks->locks[i].locktag.locktag_field1 == MyDatabaseId)
			exist = true;
	}
	pfree(locks->locks);
	pfree(locks);
	return exist;
}

/*
 * Step 4 of README.md, "Dropped extensions", in a transaction that began after the wait.  False if
 * something of the list is left.
 */
static bool
remove_listed(const BlobStoreId *stores, int count)
{
	BlobStoreId current;
	bool		exists;
	bool		done = true;

	if (!blob_autogc_find_store(&current, &exists))
		return false;
	for (int i = 0; i < count; i++)
	{
		if (exists && stores[i].incarnation == current.incarnation)
			continue;
		ereport(LOG,
				(errmsg("blobext: removing directory " BLOB_STORE_DIR "/%u.%016llx of a dropped "
						"extension", stores[i].dboid, (unsigned long long) stores[i].incarnation)));
		if (!blob_autogc_drop_store(&stores[i]))
			done = false;
	}
	return done;
}

/* Is there something to remove, as it seems now? */
static bool
seems_left(const BlobStoreId *stores, int count, bool *is_known)
{
	BlobStoreId current;
	bool		exists;

	*is_known = blob_autogc_find_store(&current, &exists);
	for (int i = 0; *is_known && i < count; i++)
	{
		if (!exists || stores[i].incarnation != current.incarnation)
			return true;
	}
	return false;
}

/* Steps 2 to 4 of README.md; true if nothing of the list is left that is orphaned. */
static bool
remove_orphaned(const BlobStoreId *stores, int count)
{
	VirtualTransactionId *transactions;
	int			transaction_count;
	bool		is_known;
	bool		is_left;
	bool		have_ended;

	StartTransactionCommand();
	is_left = seems_left(stores, count, &is_known);
	CommitTransactionCommand();
	if (!is_left)
		return is_known;

	transactions = GetCurrentVirtualXIDs(InvalidTransactionId, false, false, PROC_IN_VACUUM,
										 &transaction_count);
	have_ended = wait_for_transactions(transactions, transaction_count);
	pfree(transactions);
	if (!have_ended || prepared_transactions_exist())
		return false;

	StartTransactionCommand();
	is_left = !remove_listed(stores, count);
	CommitTransactionCommand();
	return !is_left;
}

bool
blob_autogc_remove_orphans(void)
{
	BlobStoreId *stores;
	int			count = list_directories(&stores);
	bool		is_clean = remove_orphaned(stores, count);

	pfree(stores);				/* a worker may look many times */
	return is_clean;
}
