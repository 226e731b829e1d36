/*
 * assign/compression.c
 *	  The method of compression of a column, see assign/compression.h.
 *
 * The cache has an entry for each column that this process has stored to.  It is dropped as a whole
 * when a table that an answer came from, or could have come from, changes.  The callback only
 * notes that, because it may run at any time.
 */
#include "postgres.h"

#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/seclabel.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "assign/assign.h"
#include "assign/compression.h"
#include "core/catalog.h"
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
	bool		has_label;
	BlobMethod	method;
} ColumnEntry;

static HTAB *columns = NULL;	/* ColumnEntry by ColumnKey */
static HTAB *relations = NULL;	/* OIDs of tables that were asked */
static bool is_stale = false;
static uint64 invalidation_count = 0;

/* ---- labels ---- */

/* Whether values of a column of this type can be compressed, now or after a change of its type. */
static bool
is_label_type(Oid type)
{
	Oid			element;

	type = getBaseType(type);
	element = get_element_type(type);
	if (OidIsValid(element))
		type = getBaseType(element);
	return type == BYTEAOID || (OidIsValid(type) && type == blob_catalog_type());
}

/*
 * Refuse a label that is not the name of a method, or not for a column.  While pg_upgrade runs this
 * only warns, because the label may be one that the old server has accepted.
 */
static void
check_label(const ObjectAddress *object, const char *label)
{
	int			level = IsBinaryUpgrade ? WARNING : ERROR;
	BlobMethod	method;

	if (object->classId == RelationRelationId)
		CacheInvalidateRelcacheByRelid(object->objectId);
	if (label == NULL)
		return;
	if (object->classId != RelationRelationId || object->objectSubId == 0 ||
		!is_label_type(get_atttype(object->objectId, (AttrNumber) object->objectSubId)))
		ereport(level,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("labels of blobext are for columns of type blobstate"),
				 errhint("A label is the method of compression of a column.")));
	else if (get_rel_relkind(object->objectId) == RELKIND_VIEW)
		ereport(level,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("labels of blobext are for columns of tables"),
				 errdetail("\"%s\" is a view.", get_rel_name(object->objectId)),
				 errhint("Set the method of the table's column.")));
	if (!blob_method_from_name(label, &method))
		ereport(level,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not a method of compression", label),
				 errhint("Available methods: none, lz4, zstd.")));
	else if (!IsBinaryUpgrade)
		blob_method_require((uint8) method);
}

void
blob_compression_type_changed(Oid relation, AttrNumber column, Oid type)
{
	ObjectAddress object;

	ObjectAddressSubSet(object, RelationRelationId, relation, column);
	if (OidIsValid(type) && !is_label_type(type) &&
		GetSecurityLabel(&object, BLOB_LABEL_PROVIDER) != NULL)
		SetSecurityLabel(&object, BLOB_LABEL_PROVIDER, NULL);
}

void
blob_compression_register(void)
{
	register_label_provider(BLOB_LABEL_PROVIDER, check_label);
}

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
	columns = make_table("blobext compression of columns", sizeof(ColumnKey),
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

char *
blob_compression_find_label(Oid relation, AttrNumber column)
{
	char	   *name = get_attname(relation, column, true);
	char	   *label = NULL;

	while (name != NULL && column != InvalidAttrNumber)
	{
		label = get_label(relation, column);
		if (label != NULL || !get_rel_relispartition(relation))
			break;
		relation = get_partition_parent(relation, true);
		column = get_attnum(relation, name);
	}
	return label;
}

/*
 * Look a column up.  ERROR for a label that a newer version has set, or whose method is not built
 * in: content that should be compressed is not stored otherwise without a word.
 */
static void
fill_entry(ColumnEntry *entry)
{
	char	   *label = blob_compression_find_label(entry->key.relation,
													(AttrNumber) entry->key.column);

	entry->has_label = label != NULL;
	entry->method = BLOB_METHOD_NONE;
	if (label == NULL)
		return;
	if (!blob_method_from_name(label, &entry->method))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of table \"%s\" has an unknown method of compression, "
						"\"%s\"", get_attname(entry->key.relation,
											  (AttrNumber) entry->key.column, true),
						get_rel_name(entry->key.relation), label),
				 errhint("Choose another one with blobext_set_compression().")));
	blob_method_require((uint8) entry->method);
	pfree(label);
}

BlobMethod
blob_compression_of_column(Oid relation, AttrNumber column)
{
	ColumnEntry entry = {.key = {relation, column}};
	ColumnEntry *found;
	uint64		count_before;

	if (columns != NULL && !is_stale)
	{
		found = hash_search(columns, &entry.key, HASH_FIND, NULL);
		if (found != NULL)
			return found->has_label ? found->method : blob_default_method();
	}
	prepare_cache();
	count_before = invalidation_count;
	fill_entry(&entry);
	if (count_before == invalidation_count)
	{
		found = hash_search(columns, &entry.key, HASH_ENTER, NULL);
		found->has_label = entry.has_label;
		found->method = entry.method;
	}
	return entry.has_label ? entry.method : blob_default_method();
}

BlobMethod
blob_compression_of_name(Oid relation, const char *column)
{
	AttrNumber	number = column == NULL ? InvalidAttrNumber : get_attnum(relation, column);

	return number == InvalidAttrNumber ? blob_default_method() :
		blob_compression_of_column(relation, number);
}
