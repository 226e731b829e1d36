/*
 * sql/administration/administration.c
 *	  Creation of the store, version check, statistics.
 */
#include "postgres.h"

#include "access/table.h"
#include "commands/extension.h"
#include "core/settings.h"
#include "fmgr.h"
#include "funcapi.h"
#include "io/dirty.h"
#include "io/buffer.h"
#include "io/segment.h"
#include "io/stat.h"
#include "store/map.h"
#include "store/store.h"
#include "store/unlogged.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

/*
 * Versions of the SQL objects that this library can be used with, its own one last.  Older ones
 * work between the restart that loads a new library and ALTER EXTENSION UPDATE.
 */
static const char *const sql_versions[] = {"0.1.0", "0.2.0", "0.3.0", "0.4.0"};

#define LIBRARY_VERSION (sql_versions[lengthof(sql_versions) - 1])

PG_FUNCTION_INFO_V1(blobext_require_library);
PG_FUNCTION_INFO_V1(blobext_create_store);
PG_FUNCTION_INFO_V1(blobext_stat_counters);
PG_FUNCTION_INFO_V1(blobext_database_counters);
PG_FUNCTION_INFO_V1(blobext_store_sizes);

/*
 * First statement of every extension script: the library must be preloaded, and know the script's
 * objects.  After an installation the server still runs the old one until it is restarted.
 */
Datum
blobext_require_library(PG_FUNCTION_ARGS)
{
	char	   *wanted = text_to_cstring(PG_GETARG_TEXT_PP(0));

	blob_store_require_preload();
	for (int i = 0; i < (int) lengthof(sql_versions); i++)
	{
		if (strcmp(wanted, sql_versions[i]) == 0)
			PG_RETURN_VOID();
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the loaded library blobext has version %s, the SQL script needs %s",
					LIBRARY_VERSION, wanted),
			 errhint("Restart the server, so that it loads the installed library.")));
}

/* Makes the extent map's meta page; part of CREATE EXTENSION. */
Datum
blobext_create_store(PG_FUNCTION_ARGS)
{
	Relation	map;

	if (!creating_extension)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("blobext_create_store() can only run as part of CREATE EXTENSION")));
	blob_store_require_preload();
	map = table_open(PG_GETARG_OID(0), AccessExclusiveLock);
	blob_map_create(map);
	table_close(map, NoLock);
	PG_RETURN_VOID();
}

/* Extents of this database whose content is on another server only. */
static uint64
count_unlogged_extents(void)
{
	BlobStore	store;
	uint64		count;

	blob_store_open(&store, AccessShareLock);
	count = blob_unlogged_count(&store.id);
	blob_store_close(&store);
	return count;
}

static void
put_row(ReturnSetInfo *result, const char *name, uint64 value)
{
	Datum		values[2] = {CStringGetTextDatum(name), Int64GetDatum((int64) value)};
	bool		nulls[2] = {false, false};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

#define PUT_COUNTER(member) put_row(result, #member, pg_atomic_read_u64(&blob_stat->member))
#define PUT_REQUESTS(name, method) \
	put_row(result, name, pg_atomic_read_u64(&blob_stat->io_requests[method]))

/* Rows (name, value) since the start of the server. */
Datum
blobext_stat_counters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	uint64		hits;
	uint64		misses;
	uint64		used_bytes;
	uint64		total_bytes;

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	blob_buffer_stats(&hits, &misses, &used_bytes, &total_bytes);
	PUT_COUNTER(stored_blobs);
	PUT_COUNTER(stored_bytes);
	PUT_COUNTER(content_reads);
	PUT_COUNTER(content_read_bytes);
	PUT_COUNTER(streamed_bytes);
	PUT_COUNTER(content_comparisons);
	PUT_COUNTER(io_reads);
	PUT_COUNTER(io_read_bytes);
	put_row(result, "read_ahead_bytes", pg_atomic_read_u64(&blob_stat->ahead_bytes));
	PUT_COUNTER(io_writes);
	PUT_COUNTER(io_write_bytes);
	PUT_COUNTER(trailing_write_bytes);
	PUT_REQUESTS("io_uring_requests", BLOB_IO_METHOD_URING);
	PUT_REQUESTS("aio_requests", BLOB_IO_METHOD_AIO);
	PUT_REQUESTS("blocking_requests", BLOB_IO_METHOD_SYNC);
	PUT_COUNTER(syncs);
	PUT_COUNTER(shared_syncs);
	PUT_COUNTER(syncs_handed_over);
	PUT_COUNTER(background_syncs);
	PUT_COUNTER(deferred_pages);
	PUT_COUNTER(deferred_page_reads);
	PUT_COUNTER(deferred_writes);
	PUT_COUNTER(wal_content_bytes);
	PUT_COUNTER(stale_reads);
	PUT_COUNTER(damaged_pages);
	PUT_COUNTER(damage_unlisted);
	PUT_COUNTER(repaired_pages);
	PUT_COUNTER(gc_cycles);
	PUT_COUNTER(gc_freed_blobs);
	PUT_COUNTER(gc_freed_bytes);
	PUT_COUNTER(abandoned_freed_bytes);
	PUT_COUNTER(punched_bytes);
	PUT_COUNTER(filled_bytes);
	put_row(result, "cache_hits", hits);
	put_row(result, "cache_misses", misses);
	put_row(result, "cache_used_bytes", used_bytes);
	put_row(result, "cache_bytes", total_bytes);
	put_row(result, "direct_io", blob_segment_is_direct());
	put_row(result, "wal_logs_content", blob_wal_logs_content());
	put_row(result, "pending_deferred_pages", blob_dirty_page_count());
	put_row(result, "unlogged_extents", count_unlogged_extents());
	return (Datum) 0;
}

/* Rows of counters since the start of the server; a database may have more than one. */
Datum
blobext_database_counters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < blob_segment_database_room(); i++)
	{
		BlobDatabaseStat *stat = &blob_database_stats[i];
		Oid			database = pg_atomic_read_u32(&stat->database);
		Datum		values[6] = {ObjectIdGetDatum(database)};
		bool		nulls[6] = {false};

		if (!OidIsValid(database))
			continue;
		values[1] = Int64GetDatum((int64) pg_atomic_read_u64(&stat->stored_blobs));
		values[2] = Int64GetDatum((int64) pg_atomic_read_u64(&stat->stored_bytes));
		values[3] = Int64GetDatum((int64) pg_atomic_read_u64(&stat->content_reads));
		values[4] = Int64GetDatum((int64) pg_atomic_read_u64(&stat->content_read_bytes));
		values[5] = Int64GetDatum((int64) pg_atomic_read_u64(&stat->stale_reads));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* A row for each store whose free space is loaded. */
Datum
blobext_store_sizes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	BlobStoreUsage *usages;
	int			count;

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	count = blob_store_usages(&usages);
	for (int i = 0; i < count; i++)
	{
		Datum		values[5] = {ObjectIdGetDatum(usages[i].database)};
		bool		nulls[5] = {false};

		values[1] = Int64GetDatum((int64) (usages[i].file_pages * BLOB_PAGE_SIZE));
		values[2] = Int64GetDatum((int64) (usages[i].allocated_pages * BLOB_PAGE_SIZE));
		values[3] = Int64GetDatum((int64) (usages[i].free_pages * BLOB_PAGE_SIZE));
		values[4] = Int64GetDatum((int64) (usages[i].pending_pages * BLOB_PAGE_SIZE));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
