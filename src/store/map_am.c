/*
 * store/map_am.c
 *	  Table access method blobext_map: carries the extent map through PostgreSQL's commands.
 *
 * A map has no tuples and no transaction ids (relfrozenxid is invalid), so VACUUM and ANALYZE have
 * nothing to do.  VACUUM FULL and SET TABLESPACE copy it block by block, since descriptors in user
 * tables refer to its positions.  All commands that would change or lose it are refused.  A
 * sequential scan shows the allocated extents, one row each: first page, pages, generation, kind,
 * and for extents of tier size the high-water mark (column fill_bytes).
 *
 * A publication FOR ALL TABLES includes the map, which means nothing to another server.  To a
 * walsender the map looks empty, and a subscriber ignores the rows that it gets.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/multixact.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/xloginsert.h"
#include "catalog/index.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "core/compat.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "replication/walsender.h"
#include "store/map.h"
#include "store/map_relation.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(blobext_map_handler);

enum
{
	COLUMN_FIRST_PAGE,
	COLUMN_PAGES,
	COLUMN_GENERATION,
	COLUMN_KIND,
	COLUMN_FILL_BYTES,
	COLUMN_COUNT
};

typedef struct MapScan
{
	TableScanDescData base;		/* must be first */
	BlockNumber block_count;
	BlockNumber block;			/* block that page is a copy of */
	uint32		slot;			/* next entry of it */
	PGAlignedBlock page;
} MapScan;

static void
refuse(Relation relation, const char *command)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot %s extent map \"%s\"", command, RelationGetRelationName(relation)),
			 errdetail("Values of type blobstate depend on it.")));
}

static const TupleTableSlotOps *
map_slot_callbacks(Relation relation)
{
	return &TTSOpsVirtual;
}

/* ---- sequential scans ---- */

/* Begin a scan.  Of the map it shows the extents; any other relation has no rows. */
static TableScanDesc
map_scan_begin(Relation relation, Snapshot snapshot, int key_count, struct ScanKeyData *keys,
			   ParallelTableScanDesc parallel_scan, uint32 flags)
{
	MapScan    *scan;
	bool		is_the_map = blob_map_is_map(relation);

	/*
	 * ALTER TABLE scans the old table to write its rows to a new one.  For SET ACCESS METHOD the
	 * new one need not be a map, and so would not refuse them.  No other command scans a map under
	 * this lock, unless the transaction made the map.
	 */
	if (is_the_map && relation->rd_createSubid == InvalidSubTransactionId &&
		CheckRelationLockedByMe(relation, AccessExclusiveLock, false))
		refuse(relation, "rewrite");
	if (!is_the_map)
		blob_map_check_has_no_pages(relation);

	scan = palloc0(sizeof(*scan));
	RelationIncrementReferenceCount(relation);
	scan->base.rs_rd = relation;
	scan->base.rs_snapshot = snapshot;
	scan->base.rs_flags = flags;
	scan->base.rs_parallel = parallel_scan;
	scan->block_count = is_the_map ? RelationGetNumberOfBlocks(relation) : 0;
	if (scan->block_count > BLOB_MAP_META_BLOCK)
		(void) blob_map_store_id(relation); /* ERROR for an unknown format */
	scan->slot = BLOB_MAP_ENTRIES;
	return &scan->base;
}

static void
map_scan_end(TableScanDesc base)
{
	if (base->rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(base->rs_snapshot);
	RelationDecrementReferenceCount(base->rs_rd);
	pfree(base);
}

static void
map_scan_rescan(TableScanDesc base, struct ScanKeyData *keys, bool set_params, bool allow_strat,
				bool allow_sync, bool allow_pagemode)
{
	MapScan    *scan = (MapScan *) base;

	scan->block = BLOB_MAP_META_BLOCK;
	scan->slot = BLOB_MAP_ENTRIES;
}

/* Copy the next block; false at the end of the map. */
static bool
read_next_block(MapScan *scan)
{
	Buffer		buffer;

	if (scan->block + 1 >= scan->block_count)
		return false;
	scan->block++;
	scan->slot = 0;
	buffer = ReadBuffer(scan->base.rs_rd, scan->block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(scan->page.data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	return true;
}

static void
store_row(TupleTableSlot *slot, BlobPageNo first_page, const BlobMapEntry *entry)
{
	bool		is_tail = blob_map_entry_state(entry) == BLOB_MAP_TAIL;

	memset(slot->tts_isnull, 0, sizeof(bool) * COLUMN_COUNT);
	slot->tts_values[COLUMN_FIRST_PAGE] = Int64GetDatum(first_page);
	slot->tts_values[COLUMN_PAGES] = Int64GetDatum(blob_map_entry_pages(entry));
	slot->tts_values[COLUMN_GENERATION] = Int64GetDatum(blob_map_entry_generation(entry));
	slot->tts_values[COLUMN_KIND] = CStringGetTextDatum(is_tail ? "tail" : "tier");
	slot->tts_isnull[COLUMN_FILL_BYTES] = is_tail;
	slot->tts_values[COLUMN_FILL_BYTES] = Int64GetDatum(blob_map_entry_high_water(entry));
	ExecStoreVirtualTuple(slot);
}

/* The next extent of the copied block, or of the blocks behind it. */
static bool
map_scan_getnextslot(TableScanDesc base, ScanDirection direction, TupleTableSlot *slot)
{
	MapScan    *scan = (MapScan *) base;

	if (ScanDirectionIsBackward(direction))
		refuse(base->rs_rd, "scan backward");

	ExecClearTuple(slot);
	if (am_walsender || scan->block_count == 0)
		return false;
	if (slot->tts_tupleDescriptor->natts != COLUMN_COUNT)
		refuse(base->rs_rd, "scan changed");
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		while (scan->slot < BLOB_MAP_ENTRIES && !PageIsNew((Page) scan->page.data))
		{
			uint32		entry_no = scan->slot++;
			BlobMapEntry *entry = &blob_map_page_entries((Page) scan->page.data)[entry_no];

			if (!blob_map_entry_is_extent(entry))
				continue;
			store_row(slot, blob_map_page_at(scan->block, entry_no), entry);
			return true;
		}
		if (!read_next_block(scan))
			return false;
	}
}

/* A parallel scan is not worth its while, so the map has none (parallel_workers = 0). */
static Size
map_parallelscan_estimate(Relation relation)
{
	return table_block_parallelscan_estimate(relation);
}

static Size
map_parallelscan_initialize(Relation relation, ParallelTableScanDesc parallel_scan)
{
	refuse(relation, "scan in parallel");
	return 0;
}

static void
map_parallelscan_reinitialize(Relation relation, ParallelTableScanDesc parallel_scan)
{
	refuse(relation, "scan in parallel");
}

/* ---- functions for tuples, which a map does not have ---- */

static struct IndexFetchTableData *
map_index_fetch_begin(Relation relation BLOB_FETCH_EXTRA_PARAMETER)
{
	refuse(relation, "index");
	return NULL;
}

static void
map_index_fetch_reset(struct IndexFetchTableData *data)
{
	refuse(data->rel, "index");
}

static void
map_index_fetch_end(struct IndexFetchTableData *data)
{
	refuse(data->rel, "index");
}

static bool
map_index_fetch_tuple(struct IndexFetchTableData *scan, ItemPointer tid, Snapshot snapshot,
					  TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	refuse(scan->rel, "index");
	return false;
}

static bool
map_tuple_fetch_row_version(Relation relation, ItemPointer tid, Snapshot snapshot,
							TupleTableSlot *slot)
{
	refuse(relation, "fetch a row of");
	return false;
}

static bool
map_tuple_tid_valid(TableScanDesc scan, ItemPointer tid)
{
	return false;
}

static void
map_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid)
{
	refuse(scan->rs_rd, "fetch a row of");
}

static bool
map_tuple_satisfies_snapshot(Relation relation, TupleTableSlot *slot, Snapshot snapshot)
{
	refuse(relation, "fetch a row of");
	return false;
}

static TransactionId
map_index_delete_tuples(Relation relation, TM_IndexDeleteOp *delete_state)
{
	refuse(relation, "index");
	return InvalidTransactionId;
}

static void
map_tuple_insert(Relation relation, TupleTableSlot *slot, CommandId command_id,
				 BLOB_INSERT_OPTIONS options, struct BulkInsertStateData *bulk_state)
{
	if (!IsLogicalWorker())
		refuse(relation, "insert into");
}

static void
map_tuple_insert_speculative(Relation relation, TupleTableSlot *slot, CommandId command_id,
							 BLOB_INSERT_OPTIONS options, struct BulkInsertStateData *bulk_state,
							 uint32 token)
{
	refuse(relation, "insert into");
}

static void
map_tuple_complete_speculative(Relation relation, TupleTableSlot *slot, uint32 token,
							   bool succeeded)
{
	refuse(relation, "insert into");
}

static void
map_multi_insert(Relation relation, TupleTableSlot **slots, int count, CommandId command_id,
				 BLOB_INSERT_OPTIONS options, struct BulkInsertStateData *bulk_state)
{
	if (!IsLogicalWorker())
		refuse(relation, "insert into");
}

static TM_Result
map_tuple_delete(Relation relation, ItemPointer tid, CommandId command_id,
				 BLOB_CHANGE_OPTIONS Snapshot snapshot, Snapshot crosscheck, bool wait,
				 TM_FailureData *failure BLOB_DELETE_EXTRA_PARAMETER)
{
	refuse(relation, "delete from");
	return TM_Invisible;
}

static TM_Result
map_tuple_update(Relation relation, ItemPointer tid, TupleTableSlot *slot, CommandId command_id,
				 BLOB_CHANGE_OPTIONS Snapshot snapshot, Snapshot crosscheck, bool wait,
				 TM_FailureData *failure, LockTupleMode *lock_mode,
				 TU_UpdateIndexes *update_indexes)
{
	refuse(relation, "update");
	return TM_Invisible;
}

static TM_Result
map_tuple_lock(Relation relation, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
			   CommandId command_id, LockTupleMode mode, LockWaitPolicy wait_policy, uint8 flags,
			   TM_FailureData *failure)
{
	refuse(relation, "lock rows of");
	return TM_Invisible;
}

/* ---- storage ---- */

/*
 * Give storage to a new relation only: that of CREATE EXTENSION, of pg_upgrade, or the transient
 * one of VACUUM FULL.  TRUNCATE comes here with an old relation, or with one that another
 * subtransaction has made.  Refusals come before anything is made.
 */
static void
map_set_new_filelocator(Relation relation, const RelFileLocator *new_file, char persistence,
						TransactionId *freeze_xid, MultiXactId *min_multi)
{
	SMgrRelation storage;

	if (relation->rd_createSubid == InvalidSubTransactionId || blob_map_is_map(relation))
		refuse(relation, "truncate");
	if (!IsBinaryUpgrade && !blob_map_is_being_created(relation->rd_rel) &&
		!blob_map_looks_like_rewrite(relation))
		blob_map_refuse_relation();
	if (persistence != RELPERSISTENCE_PERMANENT)
		refuse(relation, "make unlogged the");

	*freeze_xid = InvalidTransactionId;
	*min_multi = InvalidMultiXactId;
	storage = RelationCreateStorage(*new_file, persistence, true);
	smgrclose(storage);
}

static void
map_nontransactional_truncate(Relation relation)
{
	refuse(relation, "truncate");
}

/* SET TABLESPACE: copy the file, as for heaps. */
static void
map_copy_data(Relation relation, const RelFileLocator *new_file)
{
	SMgrRelation target;

	FlushRelationBuffers(relation);
	target = RelationCreateStorage(*new_file, relation->rd_rel->relpersistence, true);
	RelationCopyStorage(RelationGetSmgr(relation), target, MAIN_FORKNUM,
						relation->rd_rel->relpersistence);
	RelationDropStorage(relation);
	smgrclose(target);
}

/* VACUUM FULL: copy every block to the same place in the new file. */
static void
map_copy_for_cluster(Relation old_map, Relation new_map, Relation old_index, bool use_sort,
					 TransactionId oldest_xmin,
					 BLOB_CLUSTER_EXTRA_PARAMETER TransactionId *xid_cutoff,
					 MultiXactId *multi_cutoff, double *tuple_count, double *vacuumed_count,
					 double *recently_dead_count)
{
	BlockNumber block_count = RelationGetNumberOfBlocks(old_map);

	if (old_index != NULL)
		refuse(old_map, "cluster");

	for (BlockNumber block = 0; block < block_count; block++)
	{
		Buffer		source = ReadBuffer(old_map, block);
		Buffer		target = ReadBufferExtended(new_map, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK,
												NULL);

		CHECK_FOR_INTERRUPTS();
		LockBuffer(source, BUFFER_LOCK_SHARE);
		START_CRIT_SECTION();
		memcpy(BufferGetPage(target), BufferGetPage(source), BLCKSZ);
		MarkBufferDirty(target);
		if (RelationNeedsWAL(new_map) && !PageIsNew(BufferGetPage(target)))
			log_newpage_buffer(target, true);
		END_CRIT_SECTION();
		UnlockReleaseBuffer(source);
		UnlockReleaseBuffer(target);
	}
	*xid_cutoff = InvalidTransactionId;
	*multi_cutoff = InvalidMultiXactId;
	*tuple_count = *vacuumed_count = *recently_dead_count = 0;
}

static void
map_vacuum(Relation relation, BLOB_VACUUM_PARAMETERS *params, BufferAccessStrategy strategy)
{
	/* no dead tuples, no transaction ids */
}

static bool
map_scan_analyze_next_block(BLOB_ANALYZE_BLOCK_PARAMETERS)
{
	return false;
}

static bool
map_scan_analyze_next_tuple(TableScanDesc scan,
							BLOB_ANALYZE_TUPLE_EXTRA_PARAMETER double *live_rows,
							double *dead_rows, TupleTableSlot *slot)
{
	return false;
}

static double
map_index_build_range_scan(Relation relation, Relation index, struct IndexInfo *index_info,
						   bool allow_sync, bool any_visible, bool progress, BlockNumber start,
						   BlockNumber count, IndexBuildCallback callback, void *callback_state,
						   TableScanDesc scan)
{
	refuse(relation, "index");
	return 0;
}

static void
map_index_validate_scan(Relation relation, Relation index, struct IndexInfo *index_info,
						Snapshot snapshot, struct ValidateIndexState *state)
{
	refuse(relation, "index");
}

static bool
map_needs_toast_table(Relation relation)
{
	return false;
}

static void
map_estimate_size(Relation relation, int32 *attribute_widths, BlockNumber *pages, double *tuples,
				  double *all_visible_fraction)
{
	*pages = RelationGetNumberOfBlocks(relation);
	*tuples = (double) *pages * 10;
	*all_visible_fraction = 0;
}

static bool
map_scan_sample_next_block(TableScanDesc scan, struct SampleScanState *state)
{
	refuse(scan->rs_rd, "sample");
	return false;
}

static bool
map_scan_sample_next_tuple(TableScanDesc scan, struct SampleScanState *state, TupleTableSlot *slot)
{
	refuse(scan->rs_rd, "sample");
	return false;
}

static const TableAmRoutine map_routine = {
	.type = T_TableAmRoutine,
	.slot_callbacks = map_slot_callbacks,
	.scan_begin = map_scan_begin,
	.scan_end = map_scan_end,
	.scan_rescan = map_scan_rescan,
	.scan_getnextslot = map_scan_getnextslot,
	.parallelscan_estimate = map_parallelscan_estimate,
	.parallelscan_initialize = map_parallelscan_initialize,
	.parallelscan_reinitialize = map_parallelscan_reinitialize,
	.index_fetch_begin = map_index_fetch_begin,
	.index_fetch_reset = map_index_fetch_reset,
	.index_fetch_end = map_index_fetch_end,
	.index_fetch_tuple = map_index_fetch_tuple,
	.tuple_fetch_row_version = map_tuple_fetch_row_version,
	.tuple_tid_valid = map_tuple_tid_valid,
	.tuple_get_latest_tid = map_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = map_tuple_satisfies_snapshot,
	.index_delete_tuples = map_index_delete_tuples,
	.tuple_insert = map_tuple_insert,
	.tuple_insert_speculative = map_tuple_insert_speculative,
	.tuple_complete_speculative = map_tuple_complete_speculative,
	.multi_insert = map_multi_insert,
	.tuple_delete = map_tuple_delete,
	.tuple_update = map_tuple_update,
	.tuple_lock = map_tuple_lock,
	.relation_set_new_filelocator = map_set_new_filelocator,
	.relation_nontransactional_truncate = map_nontransactional_truncate,
	.relation_copy_data = map_copy_data,
	.relation_copy_for_cluster = map_copy_for_cluster,
	.relation_vacuum = map_vacuum,
	.scan_analyze_next_block = map_scan_analyze_next_block,
	.scan_analyze_next_tuple = map_scan_analyze_next_tuple,
	.index_build_range_scan = map_index_build_range_scan,
	.index_validate_scan = map_index_validate_scan,
	.relation_size = table_block_relation_size,
	.relation_needs_toast_table = map_needs_toast_table,
	.relation_estimate_size = map_estimate_size,
	.scan_sample_next_block = map_scan_sample_next_block,
	.scan_sample_next_tuple = map_scan_sample_next_tuple,
};

Datum
blobext_map_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&map_routine);
}
