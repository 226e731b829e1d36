/*
 * gc/constants.c
 *	  Constants that caches of the server keep from one transaction to the next, see "Constants in
 *	  caches" in the README of this folder.
 *
 * A function that is declared IMMUTABLE and returns a stored value is folded to its descriptor: in
 * cached plans, in index expressions and predicates (relation cache), in checks of domains (type
 * cache).  A round makes every backend of its database give these up.  It sends what a change of a
 * catalog would send, without changing one.
 *
 * A backend that receives the messages while it is in a transaction may keep constants all the
 * same: the relation cache does not evaluate an index anew that is open, and a constant that is
 * being evaluated enters its cache later.  Such a backend gives them up once more when its
 * transaction has closed everything.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_partitioned_table.h"
#include "core/catalog_scan.h"
#include "core/compat.h"
#include "gc/constants.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "storage/sinval.h"
#include "storage/standby.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* Any other. */
#define NO_MARK 1

/* Relations that a backend remembers; with more it gives up all of its relation cache. */
#define MAX_REMEMBERED 256

/* The constants that this backend gives up when its transaction has ended. */
static bool gives_up;			/* anything */
static bool gives_up_plans;		/* plans and checks of domains as well */
static bool gives_up_all;		/* all relations, else: */
static Oid	relations[MAX_REMEMBERED];
static int	relation_count;

/* The messages that follow name relations. */
static bool is_listing;

/* ---- receiving ---- */

static void
remember(Oid relid)
{
	for (int i = 0; i < relation_count; i++)
	{
		if (relations[i] == relid)
			return;
	}
	if (relation_count < MAX_REMEMBERED)
		relations[relation_count++] = relid;
	else
		gives_up_all = true;
}

/*
 * The server's own callbacks do the immediate effect of the messages.  They are noted also where
 * a transaction is about to begin, when nothing is open: the messages about relations, which come
 * behind them, may be received later, within that transaction.  A transaction block counts also
 * while it is in an aborted subtransaction: relations may be open further out.
 */
static void
receive(Datum arg, int cache_id, uint32 hash_value)
{
	bool		in_transaction = IsTransactionOrTransactionBlock();

	if (IsParallelWorker())
		return;
	if (hash_value == 0)		/* messages were lost, the last mark maybe among them */
	{
		is_listing = false;
		if (!in_transaction)
			return;
		gives_up_all = true;
	}
	else if (hash_value == BLOB_GC_FIRST_CONSTANTS_MARK)
		is_listing = true;
	else if (hash_value == BLOB_GC_LAST_CONSTANTS_MARK)
		is_listing = false;
	else if (is_listing)
		remember((Oid) hash_value);
	else
		return;
	gives_up = true;
	gives_up_plans |= in_transaction;
}

/*
 * Runs after the locks of a top-level transaction have been released: all relations are closed.
 * Nothing here reads a catalog, and nothing can fail, with one exception: to give up all of the
 * relation cache reads the relation map's files again, as every reset of that cache does.
 */
static pg_attribute_hot void
at_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level || !gives_up ||
		IsTransactionState())
		return;
	if (gives_up_all)
		RelationCacheInvalidate(false);
	else
	{
		for (int i = 0; i < relation_count; i++)
			RelationCacheInvalidateEntry(relations[i]);
	}
	if (gives_up_plans)
	{
		CallSyscacheCallbacks(NAMESPACEOID, NO_MARK);
		CallSyscacheCallbacks(CONSTROID, NO_MARK);
	}
	gives_up = gives_up_plans = gives_up_all = false;
	relation_count = 0;
}

/* Which relations have constants is not looked up: nothing may fail where this is called. */
void
blob_gc_constants_give_up_own(void)
{
	gives_up = gives_up_plans = gives_up_all = true;
}

void
blob_gc_constants_register(void)
{
	CacheRegisterSyscacheCallback(CONSTROID, receive, (Datum) 0);
	RegisterResourceReleaseCallback(at_release, NULL);
}

/* ---- sending ---- */

static bool
is_not_built_in(Oid function, void *context)
{
	return function >= FirstNormalObjectId;
}

/*
 * Is there a call of a function that is not the server's own?  The result of folding it cannot
 * be seen here: a function in SQL is replaced by its body, default arguments are added.
 */
static bool
find_call(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return check_functions_in_node(node, is_not_built_in, NULL) ||
		expression_tree_walker(node, find_call, context);
}

static bool
column_has_call(HeapTuple tuple, TupleDesc row_type, AttrNumber column)
{
	bool		is_null;
	Datum		tree = heap_getattr(tuple, column, row_type, &is_null);

	return !is_null && find_call(stringToNode(TextDatumGetCString(tree)), NULL);
}

/* The relations that rows of a catalog are about, if one of two columns has such a call. */
static List *
list_relations(List *found, Oid catalog, AttrNumber relid_column, AttrNumber first_column,
			   AttrNumber second_column)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlobCatalogScan scan = blob_catalog_scan(catalog, snapshot);
	TupleDesc	row_type = RelationGetDescr(scan.catalog);
	HeapTuple	tuple;
	bool		is_null;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		if (column_has_call(tuple, row_type, first_column) ||
			column_has_call(tuple, row_type, second_column))
			found = lappend_oid(found, DatumGetObjectId(heap_getattr(tuple, relid_column,
																	 row_type, &is_null)));
	}
	UnregisterSnapshot(snapshot);
	return found;
}

/*
 * Indexes with expressions or predicates that can be folded to a value, partitioned tables with
 * such keys, and all below these, which have the keys in their partition constraints.
 */
static List *
list_relations_with_constants(void)
{
	List	   *found = list_relations(NIL, IndexRelationId, Anum_pg_index_indexrelid,
									   Anum_pg_index_indexprs, Anum_pg_index_indpred);
	List	   *partitioned = list_relations(NIL, PartitionedRelationId,
											 Anum_pg_partitioned_table_partrelid,
											 Anum_pg_partitioned_table_partexprs,
											 Anum_pg_partitioned_table_partexprs);
	ListCell   *cell;

	foreach(cell, partitioned)
		found = list_concat_unique_oid(found, find_all_inheritors(lfirst_oid(cell), NoLock, NULL));
	return found;
}

static SharedInvalidationMessage
catalog_message(int cache_id, uint32 hash_value)
{
	SharedInvalidationMessage message;

	memset(&message, 0, sizeof(message));	/* padding */
	message.cc.id = (int8) cache_id;
	message.cc.dbId = MyDatabaseId;
	message.cc.hashValue = hash_value;
	return message;
}

static SharedInvalidationMessage
relation_message(Oid relid)
{
	SharedInvalidationMessage message;

	memset(&message, 0, sizeof(message));
	message.rc.id = SHAREDINVALRELCACHE_ID;
	message.rc.dbId = MyDatabaseId;
	message.rc.relId = relid;
	return message;
}

/*
 * The messages, in an order that matters: a backend that has received a message about a
 * relation has noted before that it will give this relation up at its transaction's end.
 */
static SharedInvalidationMessage *
make_messages(int *count)
{
	List	   *relids = list_relations_with_constants();
	SharedInvalidationMessage *messages = palloc(sizeof(*messages) * (2 * list_length(relids) + 3));
	ListCell   *cell;

	*count = 0;
	/* Domains: any change of a constraint has all checks read anew. */
	messages[(*count)++] = catalog_message(CONSTROID, BLOB_GC_FIRST_CONSTANTS_MARK);
	foreach(cell, relids)
		messages[(*count)++] = catalog_message(CONSTROID, lfirst_oid(cell));
	messages[(*count)++] = catalog_message(CONSTROID, BLOB_GC_LAST_CONSTANTS_MARK);
	/* Plans: any change of a schema makes all of them invalid. */
	messages[(*count)++] = catalog_message(NAMESPACEOID, NO_MARK);
	foreach(cell, relids)
		messages[(*count)++] = relation_message(lfirst_oid(cell));
	return messages;
}

/* In a context of its own: a round may do so often, and trees of many expressions are read. */
static MemoryContext
begin_messages(void)
{
	return MemoryContextSwitchTo(AllocSetContextCreate(CurrentMemoryContext,
													   "blobext constants",
													   ALLOCSET_DEFAULT_SIZES));
}

static void
end_messages(MemoryContext old_context)
{
	MemoryContextDelete(MemoryContextSwitchTo(old_context));
}

void
blob_gc_constants_give_up(void)
{
	MemoryContext old_context = begin_messages();
	int			count;
	SharedInvalidationMessage *messages = make_messages(&count);

	SendSharedInvalidMessages(messages, count);
	end_messages(old_context);
}

void
blob_gc_constants_log(void)
{
	MemoryContext old_context;
	int			count;
	SharedInvalidationMessage *messages;

	if (!XLogStandbyInfoActive())
		return;
	old_context = begin_messages();
	messages = make_messages(&count);
	LogStandbyInvalidations(count, messages, false);
	end_messages(old_context);
}
