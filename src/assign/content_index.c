/*
 * assign/content_index.c
 *	  Has a table, or one that its rows may be routed to, an index that is ordered by content?
 *
 * Such an index has a key column whose values can hold blobstate: of the type itself, a domain, an
 * array, a row type or a range (the comparators of containers find ours as the type's default).
 * Indexes that are not ready or not valid count.  Two kinds do not: hash indexes, which keep hash
 * values of digests, and keys of blobstate_digest_ops, whose place follows from the descriptor
 * itself.
 *
 * An answer is cached until an invalidation of the relation cache names one of the tables.  A
 * lookup opens and locks catalogs only: an INSERT into a partitioned table locks only the
 * partitions that it reaches, and must not wait for others.  The README of this folder argues why
 * that suffices.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/index.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_opclass.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "containers/walk.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "assign/assign.h"

/* Entries before the cache is emptied: every entry is visited at every invalidation. */
#define MAX_CACHED 256

typedef struct CachedTable
{
	Oid			relid;			/* key */
	bool		is_valid;
	bool		has_index;
	int			member_count;
	Oid		   *members;		/* the table and all below it, ascending */
} CachedTable;

static HTAB *cache;
static MemoryContext cache_context; /* the table and the members */
static uint64 invalidation_count;	/* invalidations that the callback got */
static uint64 change_count = 1; /* those of them that concerned a cached table */
static void (*watcher) (void);	/* called for each of these */

void
blob_assign_watch_content_indexes(void (*new_watcher) (void))
{
	watcher = new_watcher;
}

static bool
is_member(const CachedTable *table, Oid relid)
{
	return bsearch(&relid, table->members, table->member_count, sizeof(Oid), oid_cmp) != NULL;
}

/* Relation cache callback; relid is InvalidOid if all may have changed. */
static void
table_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS scan;
	CachedTable *table;
	bool		any = false;

	invalidation_count++;
	if (cache == NULL)
		return;
	hash_seq_init(&scan, cache);
	while ((table = hash_seq_search(&scan)) != NULL)
	{
		if (table->is_valid && (!OidIsValid(relid) || is_member(table, relid)))
		{
			table->is_valid = false;
			any = true;
		}
	}
	if (any)
	{
		change_count++;
		watcher();
	}
}

static void
make_cache(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(CachedTable)};

	if (cache_context == NULL)
	{
		CacheRegisterRelcacheCallback(table_changed, (Datum) 0);
		cache_context = AllocSetContextCreate(CacheMemoryContext, "blobext content indexes",
											  ALLOCSET_SMALL_SIZES);
	}
	control.hcxt = cache_context;
	cache = hash_create("blobext content indexes", MAX_CACHED, &control,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Tables that were in the cache are not watched any more, so this counts as a change of all. */
static void
empty_cache(void)
{
	cache = NULL;
	MemoryContextReset(cache_context);
	change_count++;
	watcher();
	make_cache();
}

/* Type of a column of any relation, InvalidOid if there is no such column. */
static Oid
column_type(Oid relid, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid), Int16GetDatum(attnum));
	Oid			type;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	type = ((Form_pg_attribute) GETSTRUCT(tuple))->atttypid;
	ReleaseSysCache(tuple);
	return type;
}

static bool
places_by_digest(Oid opclass)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	bool		result = false;

	if (HeapTupleIsValid(tuple))
	{
		result = ((Form_pg_opclass) GETSTRUCT(tuple))->opcfamily == blob_catalog_digest_family();
		ReleaseSysCache(tuple);
	}
	return result;
}

/*
 * An index's own columns have the types of the keys that it keeps: the type of an expression, or
 * the integer that a hash index keeps for a value.
 */
static bool
is_content_index(HeapTuple tuple, TupleDesc description)
{
	Form_pg_index index = (Form_pg_index) GETSTRUCT(tuple);
	bool		isnull;
	Datum		datum = heap_getattr(tuple, Anum_pg_index_indclass, description, &isnull);
	const oidvector *opclasses = (oidvector *) DatumGetPointer(datum);

	for (int i = 0; i < index->indnkeyatts; i++)
	{
		Oid			type = column_type(index->indexrelid, (AttrNumber) (i + 1));

		if (OidIsValid(type) && blob_walk_type_holds(type) &&
			!places_by_digest(opclasses->values[i]))
			return true;
	}
	return false;
}

/* Has this table itself an index that is ordered by content? */
static bool
has_content_index(Oid relid)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(IndexRelationId, NULL, IndexIndrelidIndexId,
												 Anum_pg_index_indrelid, relid);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = blob_catalog_scan_next(&scan)) != NULL)
		found = is_content_index(tuple, RelationGetDescr(scan.catalog));
	blob_catalog_scan_end(&scan);
	return found;
}

/*
 * The table and all below it.  Partitions that are being detached count, since older snapshots
 * still see them.
 */
static List *
list_members(Oid relid)
{
	List	   *members = list_make1_oid(relid);

	for (int i = 0; i < list_length(members); i++)
	{
		List	   *children = find_inheritance_children_extended(list_nth_oid(members, i), false,
																  NoLock, NULL, NULL);

		members = list_concat_unique_oid(members, children);
		list_free(children);
	}
	list_sort(members, list_oid_cmp);
	return members;
}

/* Cache an answer.  That may empty the cache, which counts as a change. */
static CachedTable *
remember(Oid relid, List *members, bool has_index)
{
	CachedTable *table;
	Oid		   *copy;
	bool		found;

	if (hash_get_num_entries(cache) >= MAX_CACHED)
		empty_cache();
	copy = MemoryContextAlloc(cache_context, sizeof(Oid) * list_length(members));
	for (int i = 0; i < list_length(members); i++)
		copy[i] = list_nth_oid(members, i);
	table = hash_search(cache, &relid, HASH_ENTER, &found);
	if (found)
		pfree(table->members);
	table->members = copy;
	table->member_count = list_length(members);
	table->has_index = has_index;
	table->is_valid = true;
	return table;
}

/* If any invalidation arrives during the lookup, the answer is discarded and looked up again. */
bool
blob_assign_has_content_index(Oid relid)
{
	CachedTable *table;

	if (cache == NULL)
		make_cache();
	table = hash_search(cache, &relid, HASH_FIND, NULL);
	while (table == NULL || !table->is_valid)
	{
		uint64		count_before = invalidation_count;
		List	   *members = list_members(relid);
		bool		has_index = false;
		ListCell   *lc;

		foreach(lc, members)
			has_index = has_index || has_content_index(lfirst_oid(lc));
		if (invalidation_count == count_before)
			table = remember(relid, members, has_index);
		list_free(members);
	}
	return table->has_index;
}

void
blob_assign_announce_content_index(Oid relid)
{
	Oid			index_table = IndexGetRelation(relid, true);
	Oid			table = OidIsValid(index_table) ? index_table : relid;
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));

	if (!HeapTupleIsValid(tuple))
		return;					/* dropped meanwhile */
	CacheInvalidateRelcacheByTuple(tuple);
	ReleaseSysCache(tuple);
}

uint64
blob_assign_content_index_changes(void)
{
	return change_count;
}
