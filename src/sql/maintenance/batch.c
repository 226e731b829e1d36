/*
 * sql/maintenance/batch.c
 *	  Procedures that commit after each batch, see sql/maintenance/batch.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "extents/verify.h"
#include "funcapi.h"
#include "gc/holders.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "rewrite/prs2lock.h"
#include "rewrite/rewriteDefine.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/progress.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

void
blob_batch_require_own_transactions(FunctionCallInfo fcinfo, const char *name)
{
	PreventCommandDuringRecovery(name);
	PreventCommandIfReadOnly(name);
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		((const CallContext *) fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", name),
				 errdetail("It commits after each batch of rows."),
				 errhint("Use CALL outside of transaction blocks and functions.")));
}

bool
blob_batch_is_of_value(int sqlstate)
{
	return sqlstate == ERRCODE_DATA_CORRUPTED || sqlstate == ERRCODE_BLOB_STALE ||
		sqlstate == ERRCODE_BLOB_UNLOGGED || sqlstate == ERRCODE_UNDEFINED_FILE;
}

bool
blob_batch_is_of_concurrency(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK ||
		sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

bool
blob_batch_is_to_be_thrown(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_OPERATOR_INTERVENTION ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_INSUFFICIENT_RESOURCES;
}

void
blob_batch_next(void)
{
	SPI_commit();
	blob_gc_holders_carry_nothing();
	XactIsoLevel = XACT_READ_COMMITTED;
	EnsurePortalSnapshotExists();
}

Datum
blob_batch_result(FunctionCallInfo fcinfo, const char *name, const uint64 *counters, int count)
{
	Datum		values[BLOB_PROGRESS_COUNTERS];
	bool		nulls[BLOB_PROGRESS_COUNTERS] = {0};
	TupleDesc	row_type;

	Assert(count <= BLOB_PROGRESS_COUNTERS);
	if (get_call_result_type(fcinfo, NULL, &row_type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "%s does not return a row", name);
	for (int i = 0; i < count; i++)
		values[i] = Int64GetDatum((int64) counters[i]);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row_type), values, nulls));
}

static bool
has_rule_instead(Relation table)
{
	for (int i = 0; table->rd_rules != NULL && i < table->rd_rules->numLocks; i++)
	{
		const RewriteRule *rule = table->rd_rules->rules[i];

		if (rule->event == CMD_UPDATE && rule->isInstead && rule->enabled != RULE_DISABLED)
			return true;
	}
	return false;
}

void
blob_batch_require_updates(Oid relid)
{
	Relation	table = try_relation_open(relid, AccessShareLock);

	if (table == NULL)
		return;
	if (has_rule_instead(table))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("rows of \"%s\" cannot be updated", RelationGetRelationName(table)),
				 errdetail("The table has a rule ON UPDATE DO INSTEAD."),
				 errhint("Disable the rule: ALTER TABLE ... DISABLE RULE.")));
	relation_close(table, NoLock);
}

const char *
blob_batch_row_lock(Oid relid, const char *column)
{
	Relation	relation = relation_open(relid, AccessShareLock);
	Bitmapset  *keys = RelationGetIndexAttrBitmap(relation, INDEX_ATTR_BITMAP_KEY);
	AttrNumber	number = get_attnum(relid, column);
	bool		is_key = bms_is_member(number - FirstLowInvalidHeapAttributeNumber, keys);

	relation_close(relation, NoLock);
	return is_key ? "UPDATE" : "NO KEY UPDATE";
}
