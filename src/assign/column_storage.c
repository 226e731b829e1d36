/*
 * assign/column_storage.c
 *	  How the values of a column are stored, see assign/column_storage.h.
 *
 * The cache has an entry for each column that this process has stored to.  It is dropped as a whole
 * when a table that an answer came from, or could have come from, changes.  The callback only
 * notes that, because it may run at any time.
 */
#include "postgres.h"

#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/seclabel.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "assign/column_storage.h"
#include "assign/label.h"
#include "core/catalog_scan.h"
#include "core/codec.h"
#include "core/settings.h"

/* A column, without padding. */
typedef struct ColumnKey
{
	Oid			relation;
	int32		column;
} ColumnKey;

typedef struct ColumnEntry
{
	ColumnKey	key;
	bool		has_method;
	BlobStorage storage;
} ColumnEntry;

static HTAB *columns = NULL;	/* ColumnEntry by ColumnKey */
static HTAB *relations = NULL;	/* OIDs of tables that were asked */
static bool is_stale = false;
static uint64 invalidation_count = 0;

/* ---- cache ---- */

static void
invalidate(Datum arg, Oid relation)
{
	if (!OidIsValid(relation) ||
		(relations != NULL && hash_search(relations, &relation, HASH_FIND, NULL) != NULL))
	{
		is_stale = true;
		invalidation_count++;
	}
}

static HTAB *
make_table(const char *name, Size key_bytes, Size entry_bytes)
{
	HASHCTL		control = {
		.keysize = key_bytes,
		.entrysize = entry_bytes,
		.hcxt = TopMemoryContext
	};

	return hash_create(name, 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Make the tables, empty, if they are not there or out of date. */
static void
prepare_cache(void)
{
	static bool is_registered = false;

	if (!is_registered)
		CacheRegisterRelcacheCallback(invalidate, (Datum) 0);
	is_registered = true;
	if (columns != NULL && !is_stale)
		return;
	is_stale = true;			/* until both are there */
	if (columns != NULL)
		hash_destroy(columns);
	columns = NULL;
	if (relations != NULL)
		hash_destroy(relations);
	relations = NULL;
	columns = make_table("blobext storage of columns", sizeof(ColumnKey),
						 sizeof(ColumnEntry));
	relations = make_table("blobext labelled tables", sizeof(Oid), sizeof(Oid));
	is_stale = false;
}

/* The table is noted before it is asked, so that a change meanwhile is noticed. */
static char *
get_label(Oid relation, AttrNumber column)
{
	ObjectAddress object;

	if (relations != NULL)
		(void) hash_search(relations, &relation, HASH_ENTER, NULL);
	ObjectAddressSubSet(object, RelationRelationId, relation, column);
	return GetSecurityLabel(&object, BLOB_LABEL_PROVIDER);
}

/* The label of a column itself; ERROR 0A000 for one that a newer version has set. */
static BlobLabel
get_own_label(Oid relation, AttrNumber column)
{
	char	   *text = get_label(relation, column);
	BlobLabel	label = {0};

	if (text == NULL)
		return label;
	if (!blob_label_parse(text, &label))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of table \"%s\" has an unknown label, \"%s\"",
						get_attname(relation, column, true), get_rel_name(relation), text),
				 errhint("Choose how its values are stored with blobext_set_compression() and "
						 "blobext_set_digest().")));
	pfree(text);
	return label;
}

/* Parts that a label lacks are those of another one. */
static void
complete_label(BlobLabel *label, const BlobLabel *above)
{
	if (!label->has_method && above->has_method)
	{
		label->has_method = true;
		label->method = above->method;
	}
	if (!label->has_digest && above->has_digest)
	{
		label->has_digest = true;
		label->defers_digest = above->defers_digest;
	}
}

/* The label of a column: its own parts, and those of the nearest tables above. */
static BlobLabel
find_label(Oid relation, AttrNumber column)
{
	char	   *name = get_attname(relation, column, true);
	BlobLabel	label = {0};

	while (name != NULL && column != InvalidAttrNumber)
	{
		BlobLabel	own = get_own_label(relation, column);

		complete_label(&label, &own);
		if ((label.has_method && label.has_digest) || !get_rel_relispartition(relation))
			break;
		relation = get_partition_parent(relation, true);
		column = get_attnum(relation, name);
	}
	return label;
}

/*
 * Look a column up.  ERROR if its method is not built in: content that should be compressed is not
 * stored otherwise without a word.
 */
static void
fill_entry(ColumnEntry *entry)
{
	BlobLabel	label = find_label(entry->key.relation, (AttrNumber) entry->key.column);

	if (label.has_method)
		blob_method_require((uint8) label.method);
	entry->has_method = label.has_method;
	entry->storage.method = label.method;
	entry->storage.defers_digest = label.has_digest && label.defers_digest;
}

/* The setting may change from one call to the next. */
static BlobStorage
get_storage(const ColumnEntry *entry)
{
	BlobStorage storage = entry->storage;

	if (!entry->has_method)
		storage.method = blob_default_method();
	return storage;
}

BlobStorage
blob_column_storage(Oid relation, AttrNumber column)
{
	ColumnEntry entry = {.key = {relation, column}};
	uint64		count_before;

	if (columns != NULL && !is_stale)
	{
		const ColumnEntry *found = hash_search(columns, &entry.key, HASH_FIND, NULL);

		if (found != NULL)
			return get_storage(found);
	}
	prepare_cache();
	count_before = invalidation_count;
	fill_entry(&entry);
	if (count_before == invalidation_count)
		*(ColumnEntry *) hash_search(columns, &entry.key, HASH_ENTER, NULL) = entry;
	return get_storage(&entry);
}

BlobStorage
blob_column_storage_of_name(Oid relation, const char *column)
{
	AttrNumber	number = column == NULL ? InvalidAttrNumber : get_attnum(relation, column);

	return number == InvalidAttrNumber ? blob_storage_default() :
		blob_column_storage(relation, number);
}

/* ---- tables above ---- */

/* The parents of a table, of partitions and by inheritance. */
static List *
list_parents(Oid relation)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(InheritsRelationId, NULL,
												 InheritsRelidSeqnoIndexId,
												 Anum_pg_inherits_inhrelid, relation);
	List	   *parents = NIL;
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
		parents = lappend_oid(parents, ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent);
	return parents;
}

bool
blob_column_storage_may_be_open(Oid relation, AttrNumber column)
{
	char	   *name = get_attname(relation, column, true);
	List	   *tables = list_make1_oid(relation);
	bool		may_be = false;

	for (int i = 0; name != NULL && i < list_length(tables) && !may_be; i++)
	{
		Oid			table = list_nth_oid(tables, i);
		AttrNumber	number = get_attnum(table, name);
		BlobLabel	label = {0};

		if (number > 0)
			label = get_own_label(table, number);
		may_be = label.has_digest && label.defers_digest;
		tables = list_concat_unique_oid(tables, list_parents(table));
	}
	list_free(tables);
	return may_be;
}
