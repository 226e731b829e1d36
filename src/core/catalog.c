/*
 * core/catalog.c
 *	  OIDs of the extension's objects, see core/catalog.h.
 *
 * The extension's schema is read from pg_extension.  So neither a search_path nor an object of the
 * same name elsewhere can mislead the look-ups.  The cache is dropped on any change of a type or a
 * namespace: CREATE and DROP EXTENSION always make or remove the type.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "core/catalog.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

typedef struct CatalogCache
{
	bool		valid;			/* schema and type are right, also if InvalidOid */
	Oid			schema;
	Oid			type;
	Oid			store_function; /* from here on: looked up at first use */
	Oid			store_in_column_function;
	Oid			store_bytea_in_column_function;
	Oid			coerce_function;
	Oid			cast_function;
	Oid			store_bytea_function;
	Oid			map_relation;
	Oid			map_handler;
	Oid			digest_family;
} CatalogCache;

static CatalogCache cache;
static uint64 invalidation_count;

static void
invalidate(Datum arg, int cache_id, uint32 hash_value)
{
	invalidation_count++;
	cache.valid = false;
}

static void
register_invalidation(void)
{
	static bool registered = false;

	if (registered)
		return;
	CacheRegisterSyscacheCallback(TYPEOID, invalidate, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, invalidate, (Datum) 0);
	registered = true;
}

/* The schema of the extension's objects, InvalidOid where it is not installed. */
static Oid
look_up_schema(void)
{
	Relation	relation = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			schema = InvalidOid;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("blobext"));
	scan = systable_beginscan(relation, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return schema;
}

/* Fill the cache.  If an invalidation arrives during the look-up, the look-up is repeated. */
static pg_noinline void
fill_cache(void)
{
	register_invalidation();
	while (!cache.valid)
	{
		uint64		count_before = invalidation_count;

		memset(&cache, 0, sizeof(cache));
		cache.schema = look_up_schema();
		if (OidIsValid(cache.schema))
			cache.type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
										 CStringGetDatum("blobstate"),
										 ObjectIdGetDatum(cache.schema));
		cache.valid = count_before == invalidation_count;
	}
}

/*
 * Whether the cache has the type: false where the extension is not installed or catalogs cannot be
 * read.  Where it is known that the extension is not installed, nothing else is looked at.
 */
static inline bool
look_up(void)
{
	if (cache.valid && !OidIsValid(cache.type))
		return false;
	if (!OidIsValid(MyDatabaseId) || !IsTransactionState())
		return false;
	if (!cache.valid)
		fill_cache();
	return OidIsValid(cache.type);
}

/* A function of the extension, kept in *cached once it is found. */
static Oid
look_up_function(Oid *cached, const char *name, int argument_count, const Oid *argument_types)
{
	if (!OidIsValid(*cached))
	{
		oidvector  *arguments = buildoidvector(argument_types, argument_count);

		*cached = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
								  PointerGetDatum(arguments), ObjectIdGetDatum(cache.schema));
	}
	return *cached;
}

Oid
blob_catalog_schema(void)
{
	return look_up() ? cache.schema : InvalidOid;
}

pg_attribute_hot Oid
blob_catalog_type(void)
{
	return look_up() ? cache.type : InvalidOid;
}

Oid
blob_catalog_array_type(void)
{
	return look_up() ? get_array_type(cache.type) : InvalidOid;
}

Oid
blob_catalog_store_function(void)
{
	if (!look_up())
		return InvalidOid;
	return look_up_function(&cache.store_function, "blob_store", 1, &cache.type);
}

Oid
blob_catalog_store_in_column_function(void)
{
	Oid			arguments[] = {InvalidOid, REGCLASSOID, INT2OID};

	if (!look_up())
		return InvalidOid;
	arguments[0] = cache.type;
	return look_up_function(&cache.store_in_column_function, "blob_store",
							lengthof(arguments), arguments);
}

Oid
blob_catalog_store_bytea_in_column_function(void)
{
	const Oid	arguments[] = {BYTEAOID, REGCLASSOID, INT2OID};

	if (!look_up())
		return InvalidOid;
	return look_up_function(&cache.store_bytea_in_column_function, "blob_store",
							lengthof(arguments), arguments);
}

Oid
blob_catalog_coerce_function(void)
{
	Oid			arguments[] = {InvalidOid, INT4OID, BOOLOID};

	if (!look_up())
		return InvalidOid;
	arguments[0] = cache.type;
	return look_up_function(&cache.coerce_function, "blobstate", lengthof(arguments), arguments);
}

Oid
blob_catalog_cast_function(void)
{
	const Oid	argument = BYTEAOID;

	if (!look_up())
		return InvalidOid;
	return look_up_function(&cache.cast_function, "blobstate", 1, &argument);
}

Oid
blob_catalog_store_bytea_function(void)
{
	const Oid	argument = BYTEAOID;

	if (!look_up())
		return InvalidOid;
	return look_up_function(&cache.store_bytea_function, "blob_store", 1, &argument);
}

Oid
blob_catalog_digest_family(void)
{
	if (!look_up())
		return InvalidOid;
	if (!OidIsValid(cache.digest_family))
		cache.digest_family = GetSysCacheOid3(OPFAMILYAMNAMENSP, Anum_pg_opfamily_oid,
											  ObjectIdGetDatum(BTREE_AM_OID),
											  CStringGetDatum("blobstate_digest_ops"),
											  ObjectIdGetDatum(cache.schema));
	return cache.digest_family;
}

Oid
blob_catalog_upload_pieces(void)
{
	return look_up() ? get_relname_relid(BLOB_UPLOAD_PIECES, cache.schema) : InvalidOid;
}

Oid
blob_catalog_map_relation_if_any(void)
{
	/* The look-up may process an invalidation; its result is right all the same. */
	if (!look_up())
		return InvalidOid;
	if (!OidIsValid(cache.map_relation))
		cache.map_relation = get_relname_relid("blobext_map", cache.schema);
	return cache.map_relation;
}

bool
blob_catalog_is_map_method(Oid access_method)
{
	const Oid	argument = INTERNALOID;
	HeapTuple	tuple;
	Oid			handler;

	if (!OidIsValid(access_method) || access_method == HEAP_TABLE_AM_OID ||
		access_method == BTREE_AM_OID || !look_up())
		return false;
	tuple = SearchSysCache1(AMOID, ObjectIdGetDatum(access_method));
	if (!HeapTupleIsValid(tuple))
		return false;
	handler = ((Form_pg_am) GETSTRUCT(tuple))->amhandler;
	ReleaseSysCache(tuple);
	return OidIsValid(handler) &&
		handler == look_up_function(&cache.map_handler, "blobext_map_handler", 1, &argument);
}

Oid
blob_catalog_map_relation(void)
{
	Oid			map_relation = blob_catalog_map_relation_if_any();

	if (!OidIsValid(map_relation))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"blobext\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION blobext.")));
	return map_relation;
}
