/*
 * core/compat.h
 *	  All differences between PostgreSQL 15, 16, 17, 18 and 19, and nothing else.
 *
 * The rest of the source has no conditionals on PG_VERSION_NUM.  Where a newer release only changed
 * a name, the source uses the new name, and this header defines it for older releases.  Other
 * differences have macros named BLOB_* or blob_*.  They are macros so that this header need not
 * include the headers of their parts: a file that uses a macro includes the headers that are named
 * here.
 */
#ifndef BLOB_COMPAT_H
#define BLOB_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "blobext needs PostgreSQL 15 or later"
#endif

/* ---- 16 ---- */

/* Access to variable-length datums: postgres.h had it in 15. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#if PG_VERSION_NUM < 160000
/* storage/relfilelocator.h, utils/rel.h, access/tableam.h */
#define RelFileLocator RelFileNode
#define rd_locator rd_node
#define rd_firstRelfilelocatorSubid rd_firstRelfilenodeSubid
#define spcOid spcNode
#define relNumber relNode
#define relation_set_new_filelocator relation_set_new_filenode
/* access/tableam.h: which indexes an update has to change */
#define TU_UpdateIndexes bool
#endif

/* utils/queryjumble.h, from 16 on nodes/queryjumble.h: compute a query's identifier */
#if PG_VERSION_NUM >= 160000
#define blob_jumble_query(query, source_text) JumbleQuery(query)
#else
#define blob_jumble_query(query, source_text) JumbleQuery((query), (source_text))
#endif

/* storage/standby.h; blob_resolve_snapshot_conflict(TransactionId horizon, RelFileLocator) */
#if PG_VERSION_NUM >= 160000
#define blob_resolve_snapshot_conflict(horizon, locator) \
	ResolveRecoveryConflictWithSnapshot((horizon), false, (locator))
#else
#define blob_resolve_snapshot_conflict(horizon, locator) \
	ResolveRecoveryConflictWithSnapshot((horizon), (locator))
#endif

/* replication/slot.h: has PostgreSQL invalidated this slot? */
#if PG_VERSION_NUM >= 160000
#define blob_slot_is_invalidated(data) ((data)->invalidated != RS_INVAL_NONE)
#else
#define blob_slot_is_invalidated(data) \
	((data)->restart_lsn == InvalidXLogRecPtr && (data)->invalidated_at != InvalidXLogRecPtr)
#endif

/* utils/rangetypes.h: range_serialize(type cache entry, two RangeBound *, bool is_empty) */
#if PG_VERSION_NUM >= 160000
#define blob_range_serialize(type, lower, upper, is_empty) \
	range_serialize((type), (lower), (upper), (is_empty), NULL)
#else
#define blob_range_serialize(type, lower, upper, is_empty) \
	range_serialize((type), (lower), (upper), (is_empty))
#endif

/* pgstat.h: rows of a database that were changed; of a table: live, dead; how often vacuumed */
#if PG_VERSION_NUM >= 160000
#define blob_stat_changed_rows(database) \
	((database)->tuples_inserted + (database)->tuples_updated + (database)->tuples_deleted)
#define blob_stat_live_rows(table) ((table)->live_tuples)
#define blob_stat_dead_rows(table) ((table)->dead_tuples)
#define blob_stat_vacuums(table) ((table)->vacuum_count + (table)->autovacuum_count)
#else
#define blob_stat_changed_rows(database) \
	((database)->n_tuples_inserted + (database)->n_tuples_updated + (database)->n_tuples_deleted)
#define blob_stat_live_rows(table) ((table)->n_live_tuples)
#define blob_stat_dead_rows(table) ((table)->n_dead_tuples)
#define blob_stat_vacuums(table) ((table)->vacuum_count + (table)->autovac_vacuum_count)
#endif

/* utils/backend_status.h: the n-th entry, from 1 on, of this process's copy of all of them */
#if PG_VERSION_NUM >= 160000
#define blob_local_backend_status(index) pgstat_get_local_beentry_by_index(index)
#else
#define blob_local_backend_status(index) pgstat_fetch_stat_local_beentry(index)
#endif

/* ---- 17 ---- */

/* access/xlog.h: how the WAL is synced */
#if PG_VERSION_NUM < 170000
#define wal_sync_method sync_method
#define WAL_SYNC_METHOD_OPEN SYNC_METHOD_OPEN
#define WAL_SYNC_METHOD_OPEN_DSYNC SYNC_METHOD_OPEN_DSYNC
#endif

/* storage/procnumber.h: no backend */
#if PG_VERSION_NUM < 170000
#define INVALID_PROC_NUMBER InvalidBackendId
#endif

/*
 * storage/proc.h, storage/procarray.h, storage/sinvaladt.h, storage/lock.h: backends, numbered from
 * 0.  The process with this number (or NULL); the number of the process that owns this temporary
 * schema; the number in a virtual transaction id, in its lock tag, and of this process; the local
 * id of a process's transaction; are two entries of the lock table of one transaction?  What
 * storage/procsignal.h wants to signal a virtual transaction's process, or one with this number.
 */
#if PG_VERSION_NUM >= 170000
#define blob_backend_process(number) ProcNumberGetProc(number)
#define blob_temporary_schema_backend(schema) GetTempNamespaceProcNumber(schema)
#define blob_backend_of_transaction(vxid) ((vxid).procNumber)
#define blob_backend_of_tag(tag) ((int) (tag)->locktag_field1)
#define blob_own_backend() MyProcNumber
#define blob_local_transaction(process) ((process)->vxid.lxid)
#define blob_locks_of_one(a, b) VirtualTransactionIdEquals((a)->vxid, (b)->vxid)
#define blob_signal_slot(vxid) ((vxid).procNumber)
#define blob_backend_signal_slot(number) (number)
#else
#define blob_backend_process(number) BackendIdGetProc((number) + 1)
#define blob_temporary_schema_backend(schema) (GetTempNamespaceBackendId(schema) - 1)
#define blob_backend_of_transaction(vxid) ((vxid).backendId - 1)
#define blob_backend_of_tag(tag) ((int) (tag)->locktag_field1 - 1)
#define blob_own_backend() (MyBackendId - 1)
#define blob_local_transaction(process) ((process)->lxid)
#define blob_locks_of_one(a, b) ((a)->backend == (b)->backend && (a)->lxid == (b)->lxid)
#define blob_signal_slot(vxid) ((vxid).backendId)
#define blob_backend_signal_slot(number) ((number) + 1)
#endif

/* storage/proc.h, utils/timeout.h: this transaction is not ended by transaction_timeout */
#if PG_VERSION_NUM >= 170000
#define blob_stop_transaction_timeout() disable_timeout(TRANSACTION_TIMEOUT, false)
#else
#define blob_stop_transaction_timeout() ((void) 0)
#endif

/* libpq/libpq.h: has the server read bytes of its client that it has not taken yet? */
#if PG_VERSION_NUM >= 170000
#define blob_receive_buffer_has_data() (pq_buffer_remaining_data() > 0)
#else
#define blob_receive_buffer_has_data() pq_buffer_has_data()
#endif

/* utils/snapmgr.h: may PostgreSQL remove tuples that an old snapshot needs? */
#if PG_VERSION_NUM >= 170000
#define blob_snapshots_expire() false
#else
#define blob_snapshots_expire() (old_snapshot_threshold >= 0)
#endif

/* replication/slot.h: write the slots that are marked as dirty */
#if PG_VERSION_NUM >= 170000
#define blob_save_dirty_slots() CheckPointReplicationSlots(false)
#else
#define blob_save_dirty_slots() CheckPointReplicationSlots()
#endif

/* access/tableam.h: how a table access method's ANALYZE gets its next block */
#if PG_VERSION_NUM >= 170000
#define BLOB_ANALYZE_BLOCK_PARAMETERS TableScanDesc scan, ReadStream *stream
#else
#define BLOB_ANALYZE_BLOCK_PARAMETERS \
	TableScanDesc scan, BlockNumber block, BufferAccessStrategy strategy
#endif

/*
 * catalog/pg_attribute.h, commands/vacuum.h: statistics targets, -1 if not set.
 * blob_statistics_target(bool isnull, Datum attstattarget), of a row of pg_attribute;
 * blob_analyze_target(VacAttrStats *), which may be assigned to.
 */
#if PG_VERSION_NUM >= 170000
#define blob_statistics_target(isnull, datum) ((isnull) ? -1 : DatumGetInt16(datum))
#define blob_analyze_target(stats) ((stats)->attstattarget)
#else
#define blob_statistics_target(isnull, datum) DatumGetInt32(datum)
#define blob_analyze_target(stats) ((stats)->attr->attstattarget)
#endif

/* storage/lock.h: does this process hold the lock in this mode? */
#if PG_VERSION_NUM >= 170000
#define blob_lock_is_held(tag, mode) LockHeldByMe((tag), (mode), false)
#else
#define blob_lock_is_held(tag, mode) LockHeldByMe((tag), (mode))
#endif

/* commands/vacuum.h: from here on delay points sleep as vacuum_cost_delay says */
#if PG_VERSION_NUM >= 160000
#define blob_begin_pace() VacuumUpdateCosts()
#else
#define blob_begin_pace() (VacuumCostBalance = 0, VacuumCostActive = VacuumCostDelay > 0)
#endif

/* ---- 18 ---- */

/* c.h: begins the declaration of a function that does not return */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* commands/vacuum.h: serves interrupts, and may sleep; the first one within ANALYZE */
#if PG_VERSION_NUM >= 180000
#define blob_analyze_delay_point() vacuum_delay_point(true)
#define blob_delay_point() vacuum_delay_point(false)
#else
#define blob_analyze_delay_point() vacuum_delay_point()
#define blob_delay_point() vacuum_delay_point()
#endif

/* executor/executor.h: parameter of ExecutorRun hooks after the row count */
#if PG_VERSION_NUM >= 180000
#define BLOB_RUN_EXTRA_PARAMETER
#define BLOB_RUN_EXTRA_ARGUMENT
#else
#define BLOB_RUN_EXTRA_PARAMETER , bool execute_once
#define BLOB_RUN_EXTRA_ARGUMENT , execute_once
#endif

/* ---- 19 ---- */

/* access/xlog.h, port.h, nodes/nodes.h, c.h: the last is a declaration in 19, before a statement */
#if PG_VERSION_NUM < 190000
#define CHECKPOINT_FAST CHECKPOINT_IMMEDIATE
#define PG_SIG_IGN SIG_IGN
#define T_RepackStmt T_ClusterStmt
#define StaticAssertVariableIsOfType AssertVariableIsOfType
#endif

/*
 * nodes/plannodes.h: the tables that a plan writes to, one after the other.  Takes the position of
 * one and returns that of the next, from -1 on; negative: there is none.  A position's index in the
 * range table.
 */
#if PG_VERSION_NUM >= 190000
#define blob_plan_next_target(plan, position) \
	bms_next_member((plan)->resultRelationRelids, (position))
#define blob_plan_target(plan, position) (position)
#else
#define blob_plan_next_target(plan, position) \
	((position) + 1 < list_length((plan)->resultRelations) ? (position) + 1 : -1)
#define blob_plan_target(plan, position) list_nth_int((plan)->resultRelations, (position))
#endif

/* parser/analyze.h, optimizer/planner.h: types of the parameters of hooks */
#if PG_VERSION_NUM >= 190000
#define BLOB_JUMBLE_STATE const JumbleState
#define BLOB_PLAN_EXTRA_PARAMETER , struct ExplainState *explain_state
#define BLOB_PLAN_EXTRA_ARGUMENT , explain_state
#else
#define BLOB_JUMBLE_STATE JumbleState
#define BLOB_PLAN_EXTRA_PARAMETER
#define BLOB_PLAN_EXTRA_ARGUMENT
#endif

/*
 * optimizer/pathnode.h, before 19 optimizer/plancat.h: the planner has looked a table up, for one
 * reference to it.  BLOB_RELATION_INFO_HOOK is the hook, of type blob_relation_info_hook_type, with
 * BLOB_RELATION_INFO_PARAMETERS and BLOB_RELATION_INFO_ARGUMENTS; from 19 on it is called for
 * subqueries, functions and the like, too, for which blob_is_relation_info() is false.
 */
#if PG_VERSION_NUM >= 190000
#define BLOB_RELATION_INFO_HOOK build_simple_rel_hook
#define blob_relation_info_hook_type build_simple_rel_hook_type
#define BLOB_RELATION_INFO_PARAMETERS PlannerInfo *root, RelOptInfo *info, RangeTblEntry *entry
#define BLOB_RELATION_INFO_ARGUMENTS root, info, entry
#define blob_is_relation_info() (entry->rtekind == RTE_RELATION)
#else
#define BLOB_RELATION_INFO_HOOK get_relation_info_hook
#define blob_relation_info_hook_type get_relation_info_hook_type
#define BLOB_RELATION_INFO_PARAMETERS \
	PlannerInfo *root, Oid relation, bool is_parent, RelOptInfo *info
#define BLOB_RELATION_INFO_ARGUMENTS root, relation, is_parent, info
#define blob_is_relation_info() true
#endif

/* access/tableam.h, access/heapam.h, storage/bufmgr.h: a scan of all rows, or some; prune a page */
#if PG_VERSION_NUM >= 190000
#define blob_table_beginscan(relation, snapshot) table_beginscan((relation), (snapshot), 0, NULL, 0)
#define blob_table_beginscan_tidrange(relation, snapshot, first, last) \
	table_beginscan_tidrange((relation), (snapshot), (first), (last), 0)
#define blob_prune_page(relation, buffer) \
	do { \
		Buffer		visibility_buffer = InvalidBuffer; \
		heap_page_prune_opt((relation), (buffer), &visibility_buffer, false); \
		if (BufferIsValid(visibility_buffer)) \
			ReleaseBuffer(visibility_buffer); \
	} while (0)
#else
#define blob_table_beginscan(relation, snapshot) table_beginscan((relation), (snapshot), 0, NULL)
#define blob_table_beginscan_tidrange(relation, snapshot, first, last) \
	table_beginscan_tidrange((relation), (snapshot), (first), (last))
#define blob_prune_page(relation, buffer) heap_page_prune_opt((relation), (buffer))
#endif

/* access/tableam.h: parameters of a table access method's functions */
#if PG_VERSION_NUM >= 190000
#define BLOB_INSERT_OPTIONS uint32
#define BLOB_CHANGE_OPTIONS uint32 options,
#define BLOB_DELETE_EXTRA_PARAMETER
#define BLOB_FETCH_EXTRA_PARAMETER , uint32 flags
#define BLOB_CLUSTER_EXTRA_PARAMETER Snapshot snapshot,
#define BLOB_VACUUM_PARAMETERS const struct VacuumParams
#define BLOB_ANALYZE_TUPLE_EXTRA_PARAMETER
#else
#define BLOB_INSERT_OPTIONS int
#define BLOB_CHANGE_OPTIONS
#define BLOB_DELETE_EXTRA_PARAMETER , bool changing_partition
#define BLOB_FETCH_EXTRA_PARAMETER
#define BLOB_CLUSTER_EXTRA_PARAMETER
#define BLOB_VACUUM_PARAMETERS struct VacuumParams
#define BLOB_ANALYZE_TUPLE_EXTRA_PARAMETER TransactionId oldest_xmin,
#endif

/*
 * replication/slot.h: entries of ReplicationSlotCtl->replication_slots.  Those of REPACK
 * (CONCURRENTLY) come last, and a setting of their own says how many they are.
 */
#if PG_VERSION_NUM >= 190000
#define blob_slot_count() (max_replication_slots + max_repack_replication_slots)
#else
#define blob_slot_count() max_replication_slots
#endif

/* pgstat.h: statistics of a table of this database, or NULL */
#if PG_VERSION_NUM >= 190000
#define blob_stat_of_table(relid) pgstat_fetch_stat_tabentry_ext(false, (relid), NULL)
#else
#define blob_stat_of_table(relid) pgstat_fetch_stat_tabentry_ext(false, (relid))
#endif

/* storage/shmem.h: a hash table in shared memory, with room for a number of entries */
#if PG_VERSION_NUM >= 190000
#define blob_shmem_init_hash(name, count, info, flags) \
	ShmemInitHash((name), (count), (info), (flags))
#else
#define blob_shmem_init_hash(name, count, info, flags) \
	ShmemInitHash((name), (count), (count), (info), (flags))
#endif

/* storage/lwlock.h: a tranche of locks of this process alone */
#if PG_VERSION_NUM >= 190000
#define blob_new_tranche() LWLockNewTrancheId("blobext")
#else
#define blob_new_tranche() LWLockNewTrancheId()
#endif

/* ---- visibility map ---- */

/*
 * access/visibilitymap.h: what gc/README.md, "Notes of pages", says of the functions that set and
 * clear bits was compared with the sources of 15 and 18.  19 sets them in other places, also where
 * a query prunes a page: before it is added here, look at each.
 */
#ifndef BLOB_MAP_TELLS_CHANGES
#define BLOB_MAP_TELLS_CHANGES (PG_VERSION_NUM < 190000)
#endif

/*
 * common/blkreftable.h, access/xlogreader.h, pg_wal/summaries: names and content of WAL summaries,
 * and which records name pages, were compared with the sources of 17 and 18.
 */
#ifndef BLOB_HAS_WAL_SUMMARIES
#define BLOB_HAS_WAL_SUMMARIES (PG_VERSION_NUM >= 170000 && PG_VERSION_NUM < 190000)
#endif

/* ---- redo functions ---- */

/*
 * access/xlog_internal.h: blob_replace_redo(resource manager, function) puts another redo function
 * into RmgrTable.  Up to 19 that table is writable, because RegisterCustomRmgr() copies into it.
 * Before a later release is added, look whether it still is.
 */
#ifndef BLOB_CAN_REPLACE_REDO
#define BLOB_CAN_REPLACE_REDO (PG_VERSION_NUM < 200000)
#endif
#if BLOB_CAN_REPLACE_REDO
#define blob_replace_redo(rmid, function) (RmgrTable[rmid].rm_redo = (function))
#else
#define blob_replace_redo(rmid, function) ((void) (function))
#endif

#endif							/* BLOB_COMPAT_H */
