/*
 * core/catalog.c
 *	  OIDs of the extension's objects, see core/catalog.h.
 *
 * The extension's schema is read from pg_extension, where only a superuser makes this row: the
 * extension is not trusted.  An object of it counts only if pg_depend says that it is a member of
 * the extension.  The schema may belong to any role: the objects that its owner makes there are no
 * members, and none is used in the place of one that the SQL objects of an older version lack.
 *
 * Members are added by ALTER EXTENSION, too, with which pg_upgrade makes them so one by one.  That
 * changes no row for which there is an invalidation.  So an object that is not a member is looked
 * up again each time.  Kept are only these answers:
 *
 * - A member, until a type, a function or a namespace changes.  An object that is taken from the
 *   extension, by its owner, remains the same object of the same owner until then.  The type and
 *   the map are kept for as long as they exist.
 * - That the extension is not there at all.  CREATE EXTENSION, and pg_upgrade, make the row of
 *   pg_extension first and the type then, which sends an invalidation.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#define MAX_ARGUMENTS 3
#define SELF InvalidOid			/* the type blobstate, among argument types */

/* All functions that the library looks up by name, in the order of BlobFunction. */
static const struct
{
	const char *name;
	int			argument_count;
	Oid			arguments[MAX_ARGUMENTS];
} functions[BLOB_FUNCTION_COUNT] =
{
	[BLOB_FUNCTION_STORE] = {"blob_store", 1, {SELF}},
	[BLOB_FUNCTION_STORE_IN_COLUMN] = {"blob_store", 3, {SELF, REGCLASSOID, INT2OID}},
	[BLOB_FUNCTION_STORE_BYTEA] = {"blob_store", 1, {BYTEAOID}},
	[BLOB_FUNCTION_STORE_BYTEA_IN_COLUMN] = {"blob_store", 3, {BYTEAOID, REGCLASSOID, INT2OID}},
	[BLOB_FUNCTION_STORE_CONTAINED] = {"blob_store_contained", 1, {ANYELEMENTOID}},
	[BLOB_FUNCTION_COERCE] = {"blobstate", 3, {SELF, INT4OID, BOOLOID}},
	[BLOB_FUNCTION_CAST] = {"blobstate", 1, {BYTEAOID}},
	[BLOB_FUNCTION_MAP_HANDLER] = {"blobext_map_handler", 1, {INTERNALOID}},
	[BLOB_FUNCTION_STORAGE] = {"blob_storage", 1, {SELF}},
	[BLOB_FUNCTION_COMPRESSION] = {"blob_compression", 1, {SELF}},
	[BLOB_FUNCTION_LENGTH] = {"length", 1, {SELF}},
	[BLOB_FUNCTION_STORED_LENGTH] = {"blob_stored_length", 1, {SELF}},
	[BLOB_FUNCTION_EXTENTS] = {"blob_extents", 1, {SELF}},
	[BLOB_FUNCTION_SUMMARY] = {"blob_summary", 1, {SELF}},
	[BLOB_FUNCTION_RECOMPRESS] = {"blob_recompress", 2, {SELF, TEXTOID}},
	[BLOB_FUNCTION_RECOMPRESS_IS_DUE] = {"blob_recompress_is_due", 2, {SELF, TEXTOID}},
	[BLOB_FUNCTION_FOOTPRINT] = {"blob_footprint", 1, {SELF}},
	[BLOB_FUNCTION_DIGEST_IS_OPEN] = {"blob_digest_is_open", 1, {SELF}},
};

typedef struct CatalogCache
{
	bool		valid;			/* what follows is right, and may be kept */
	Oid			extension;		/* InvalidOid: it is not installed */
	Oid			schema;
	Oid			type;
	Oid			functions[BLOB_FUNCTION_COUNT]; /* from here on: looked up at first use */
	Oid			map_relation;
	Oid			upload_pieces;
	Oid			digest_family;
} CatalogCache;

/*
 * Members that this process has seen.  All that is stored depends on the type and the map: the
 * collector, in the middle of a round, must not lose sight of them if a command takes them from the
 * extension, or renames them.  They are still the objects that the extension has made.
 */
typedef struct KnownMembers
{
	Oid			extension;
	Oid			type;
	Oid			map_relation;
} KnownMembers;

static CatalogCache cache;
static KnownMembers known;
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
	CacheRegisterSyscacheCallback(PROCOID, invalidate, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, invalidate, (Datum) 0);
	registered = true;
}

/* The extension and its schema, InvalidOid where it is not installed. */
static void
look_up_extension(void)
{
	ScanKeyData key;
	BlobCatalogScan scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("blobext"));
	scan = blob_catalog_scan_keys(ExtensionRelationId, NULL, ExtensionNameIndexId, 1, &key);
	tuple = blob_catalog_scan_next(&scan);
	if (tuple != NULL)
	{
		cache.extension = ((Form_pg_extension) GETSTRUCT(tuple))->oid;
		cache.schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	}
	blob_catalog_scan_end(&scan);
}

/* The object, if it is a member of the extension, else InvalidOid. */
static Oid
if_member(Oid class_id, Oid object)
{
	if (OidIsValid(object) && getExtensionOfObject(class_id, object) == cache.extension)
		return object;
	return InvalidOid;
}

static Oid
find_type(void)
{
	if (!OidIsValid(known.type) || !SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(known.type)))
		known.type = if_member(TypeRelationId,
							   GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
											   CStringGetDatum("blobstate"),
											   ObjectIdGetDatum(cache.schema)));
	return known.type;
}

static pg_noinline Oid
find_map(void)
{
	if (!OidIsValid(known.map_relation) ||
		!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(known.map_relation)))
		known.map_relation = if_member(RelationRelationId,
									   get_relname_relid("blobext_map", cache.schema));
	return known.map_relation;
}

/*
 * Fill the cache.  If an invalidation arrives during the look-up, the look-up is repeated.  Where
 * the extension is there without its type, the answer holds for this once.
 */
static pg_noinline void
fill_cache(void)
{
	uint64		count_before;

	register_invalidation();
	do
	{
		count_before = invalidation_count;
		memset(&cache, 0, sizeof(cache));
		look_up_extension();
		if (known.extension != cache.extension)
			known = (KnownMembers) {.extension = cache.extension};
		if (OidIsValid(cache.extension))
			cache.type = find_type();
	} while (count_before != invalidation_count);
	cache.valid = OidIsValid(cache.type) || !OidIsValid(cache.extension);
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

static pg_noinline Oid
find_function(BlobFunction function)
{
	Oid			arguments[MAX_ARGUMENTS];
	int			count = functions[function].argument_count;

	for (int i = 0; i < count; i++)
		arguments[i] = functions[function].arguments[i] == SELF ? cache.type :
			functions[function].arguments[i];
	return if_member(ProcedureRelationId,
					 GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
									 CStringGetDatum(functions[function].name),
									 PointerGetDatum(buildoidvector(arguments, count)),
									 ObjectIdGetDatum(cache.schema)));
}

Oid
blob_catalog_function(BlobFunction function)
{
	Oid		   *cached = &cache.functions[function];

	if (!look_up())
		return InvalidOid;
	if (!OidIsValid(*cached))
		*cached = find_function(function);
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
blob_catalog_digest_family(void)
{
	if (!look_up())
		return InvalidOid;
	if (!OidIsValid(cache.digest_family))
		cache.digest_family =
			if_member(OperatorFamilyRelationId,
					  GetSysCacheOid3(OPFAMILYAMNAMENSP, Anum_pg_opfamily_oid,
									  ObjectIdGetDatum(BTREE_AM_OID),
									  CStringGetDatum("blobstate_digest_ops"),
									  ObjectIdGetDatum(cache.schema)));
	return cache.digest_family;
}

Oid
blob_catalog_upload_pieces(void)
{
	if (!look_up())
		return InvalidOid;
	if (!OidIsValid(cache.upload_pieces))
		cache.upload_pieces = if_member(RelationRelationId,
										get_relname_relid(BLOB_UPLOAD_PIECES, cache.schema));
	return cache.upload_pieces;
}

/* The look-up may process an invalidation; its result is right all the same. */
Oid
blob_catalog_map_relation_if_any(void)
{
	if (!look_up())
		return InvalidOid;
	if (!OidIsValid(cache.map_relation))
		cache.map_relation = find_map();
	return cache.map_relation;
}

bool
blob_catalog_is_map_method(Oid access_method)
{
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
	return OidIsValid(handler) && handler == blob_catalog_function(BLOB_FUNCTION_MAP_HANDLER);
}

bool
blob_catalog_in_script(void)
{
	char	   *extension;

	if (!creating_extension)
		return false;
	extension = get_extension_name(CurrentExtensionObject);
	return extension != NULL && strcmp(extension, "blobext") == 0;
}

bool
blob_catalog_is_member(Oid class_id, Oid object)
{
	return look_up() && OidIsValid(if_member(class_id, object));
}

void
blob_catalog_require(Oid object, const char *description)
{
	if (OidIsValid(object))
		return;
	if (!look_up())
		description = "type blobstate";
	if (!OidIsValid(cache.extension))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"blobext\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION blobext.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"blobext\" has no %s", description),
			 errdetail("An object of that name that does not belong to the extension is not used."),
			 errhint("ALTER EXTENSION blobext UPDATE makes what an older version lacks; ALTER "
					 "EXTENSION blobext ADD gives back what was taken from it.")));
}

Oid
blob_catalog_map_relation(void)
{
	Oid			map_relation = blob_catalog_map_relation_if_any();

	blob_catalog_require(map_relation, "table blobext_map");
	return map_relation;
}

/* ---- names ---- */

char *
blob_catalog_function_name(BlobFunction function)
{
	const char *name = functions[function].name;

	blob_catalog_require(blob_catalog_function(function), psprintf("function %s()", name));
	return quote_qualified_identifier(get_namespace_name(cache.schema), name);
}

char *
blob_catalog_type_name(void)
{
	blob_catalog_require(blob_catalog_type(), "type blobstate");
	return quote_qualified_identifier(get_namespace_name(cache.schema), "blobstate");
}

/* From the type's default operator class, which only a superuser can make. */
char *
blob_catalog_equality_name(void)
{
	Oid			type = blob_catalog_type();
	Oid			equality = OidIsValid(type) ?
		lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr : InvalidOid;
	HeapTuple	tuple;
	Form_pg_operator operator;
	char	   *name;

	blob_catalog_require(equality, "operator class blobstate_ops");
	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(equality));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", equality);
	operator = (Form_pg_operator) GETSTRUCT(tuple);
	name = psprintf("OPERATOR(%s.%s)",
					quote_identifier(get_namespace_name(operator->oprnamespace)),
					NameStr(operator->oprname));
	ReleaseSysCache(tuple);
	return name;
}

char *
blob_catalog_relation_name(Oid relid)
{
	char	   *relation = get_rel_name(relid);
	char	   *schema = get_namespace_name(get_rel_namespace(relid));

	return relation == NULL || schema == NULL ? NULL :
		quote_qualified_identifier(schema, relation);
}
