/*
 * store/store.c
 *	  What the mechanisms of this folder share: installation, and when not to store at all.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"

#include "core/catalog.h"
#include "store/store.h"

/* Inside the planner: what a function returns may become a constant of a cached plan. */
static bool is_planning = false;

/* Inside DDL that evaluates partition bounds and keeps the results in pg_class. */
static bool is_bounding = false;

void
blob_store_install_hooks(void)
{
	blob_store_install_planner_hook();
	blob_store_install_utility_hook();
	blob_store_install_executor_hook();
	blob_store_install_analyze_hook();
	blob_store_install_target_hooks();
	blob_store_install_object_access_hook();
}

void
blob_store_run_query(ExecutorRun_hook_type previous, QueryDesc *query_desc,
					 ScanDirection direction, uint64 count BLOB_RUN_EXTRA_PARAMETER)
{
	if (previous)
		previous(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
	else
		standard_ExecutorRun(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
}

bool
blob_store_suppressed(void)
{
	return is_planning || is_bounding;
}

bool
blob_store_set_planning(bool planning)
{
	bool		previous = is_planning;

	is_planning = planning;
	return previous;
}

bool
blob_store_set_bounding(bool bounding)
{
	bool		previous = is_bounding;

	is_bounding = bounding;
	return previous;
}

/*
 * Hooks run in every kind of process: also in those that are connected to no database, and for
 * the ROLLBACK of a failed transaction, where no catalog can be read.
 */
Oid
blob_store_type(void)
{
	if (!OidIsValid(MyDatabaseId) || !IsTransactionState())
		return InvalidOid;
	return blob_catalog_type();
}

/*
 * Built-in types are told by their OID alone, so that a statement over many columns costs no
 * catalog lookups.
 */
bool
blob_store_is_blob_type(Oid type_oid, Oid blob_type)
{
	if (type_oid == blob_type)
		return true;
	if (type_oid < FirstNormalObjectId)
		return false;
	return getBaseType(type_oid) == blob_type;
}
