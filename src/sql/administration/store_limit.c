/*
 * sql/administration/store_limit.c
 *	  blobext.max_store_size of each database, for the view blobext_databases; and what values of
 *	  this database may still take.
 *
 * A process knows the setting of its own database.  That of another one is in pg_db_role_setting,
 * or it is the server's, which a process knows whose own database has none.
 */
#include "postgres.h"

#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "core/catalog_scan.h"
#include "core/settings.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "store/disk_room.h"
#include "store/store.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#define SETTING "blobext.max_store_size"

PG_FUNCTION_INFO_V1(blobext_store_limit);
PG_FUNCTION_INFO_V1(blobext_room);

/* Whether an array of settings has this one; *mb gets its value. */
static bool
find_in_settings(ArrayType *settings, int *mb)
{
	Datum	   *items;
	int			count;

	deconstruct_array(settings, TEXTOID, -1, false, TYPALIGN_INT, &items, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		char	   *item = TextDatumGetCString(items[i]);

		if (pg_strncasecmp(item, SETTING "=", strlen(SETTING "=")) == 0)
			return parse_int(item + strlen(SETTING "="), mb, GUC_UNIT_MB, NULL);
	}
	return false;
}

/* The setting that ALTER DATABASE has made; false if it has made none. */
static bool
find_of_database(Oid database, int *mb)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(DbRoleSettingRelationId, NULL,
												 DbRoleSettingDatidRolidIndexId,
												 Anum_pg_db_role_setting_setdatabase, database);
	bool		is_found = false;
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		bool		is_null;
		Datum		settings = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
											RelationGetDescr(scan.catalog), &is_null);

		if (((Form_pg_db_role_setting) GETSTRUCT(tuple))->setrole == InvalidOid && !is_null)
			is_found = find_in_settings(DatumGetArrayTypeP(settings), mb);
	}
	return is_found;
}

/* In bytes; null if there is no limit, or it is not known. */
Datum
blobext_store_limit(PG_FUNCTION_ARGS)
{
	Oid			database = PG_GETARG_OID(0);
	int			mb;

	if (!find_of_database(database, &mb))
	{
		int			own_mb;
		const char *server_mb = GetConfigOptionResetString(SETTING);

		if (find_of_database(MyDatabaseId, &own_mb) || !parse_int(server_mb, &mb, 0, NULL))
			PG_RETURN_NULL();
	}
	if (mb < 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64((int64) mb * 1024 * 1024);
}

/*
 * Bytes that values of this database can take besides those that it has, at most: what its store
 * and the file system of the segments have to give, within blobext.max_store_size.  Null if the
 * kernel does not say.  Free pages of a store count from the moment on that they are known; a limit
 * is that of the whole store until then.
 */
Datum
blobext_room(PG_FUNCTION_ARGS)
{
	uint64		room = blob_disk_room_for_segments();
	uint64		used = 0;
	uint64		limit = (uint64) Max(blob_max_store_mb, 0) * 1024 * 1024;
	BlobStoreUsage *usages;
	int			count;

	blob_store_require_preload();
	if (room == PG_UINT64_MAX)
		PG_RETURN_NULL();
	count = blob_store_usages(&usages);
	for (int i = 0; i < count; i++)
	{
		if (usages[i].database != MyDatabaseId)
			continue;
		room += (usages[i].free_pages + usages[i].pending_pages) * BLOB_PAGE_SIZE;
		used += usages[i].allocated_pages * BLOB_PAGE_SIZE;
	}
	if (blob_max_store_mb >= 0)
		room = Min(room, limit - Min(limit, used));
	PG_RETURN_INT64((int64) Min(room, (uint64) PG_INT64_MAX));
}
