/*
 * assign/receiver.c
 *	  Tables made from queries: CREATE TABLE AS, SELECT INTO, materialized views.
 *
 * Their rows reach the table through a DestReceiver, without a ModifyTable node that planner.c
 * could have changed.  For a run of the executor another receiver is put before that one, which
 * externalizes each blobstate value.  It runs in the leader of a parallel plan.
 *
 * The row description is labelled as well, with the hidden type modifier, so the new table's
 * columns carry it.  For the same reason a plpgsql function that returns rows of a table may return
 * computed blobstate columns, although plpgsql demands equal modifiers there: RETURN QUERY sends
 * its rows to a tuplestore, and a record variable gets them from SPI.  But plpgsql coerces a value
 * that it assigns to a column, as in SELECT ... INTO NEW.b, only if the modifiers differ.
 * Therefore a single column that comes from SPI stays bare.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "utils/array.h"
#include "utils/memutils.h"

#include "blob/blob.h"
#include "containers/walk.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "core/settings.h"
#include "assign/assign.h"
#include "assign/column_storage.h"
#include "assign/hooks.h"

/* The types whose values are externalized. */
typedef struct StoreTypes
{
	Oid			blob;
	Oid			array;
} StoreTypes;

typedef struct StoreReceiver
{
	DestReceiver pub;
	DestReceiver *inner;		/* not owned */
	StoreTypes	types;
	Oid			relation;		/* whose columns say how values are compressed, or InvalidOid */
	bool	   *holds_values;	/* by column, whether its type can hold blobstate */
	TupleTableSlot *slot;		/* the row with externalized values */
	MemoryContext row_context;	/* its values */
} StoreReceiver;

/* The materialized view that a statement refreshes; the table of its new rows has no labels. */
static Oid	refreshed_relation = InvalidOid;

Oid
blob_assign_set_refreshed(Oid relation)
{
	Oid			previous = refreshed_relation;

	refreshed_relation = relation;
	return previous;
}

/* Externalize the elements of a blobstate[]; the same pointer if nothing has changed. */
static Datum
externalize_array(Datum datum, Oid blob_type, BlobStorage storage)
{
	ArrayType  *array = DatumGetArrayTypeP(datum);
	Datum	   *elements;
	bool	   *nulls;
	int			count;
	bool		changed = false;

	deconstruct_array(array, blob_type, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		Datum		stored;

		if (nulls[i])
			continue;
		stored = blob_externalize(elements[i], storage);
		changed |= stored != elements[i];
		elements[i] = stored;
	}
	if (!changed)
		return datum;
	return PointerGetDatum(construct_md_array(elements, nulls, ARR_NDIM(array), ARR_DIMS(array),
											  ARR_LBOUND(array), blob_type, -1, false,
											  TYPALIGN_INT));
}

/*
 * Externalize one column of a row; the same pointer if nothing has changed.  Inside of other types
 * only descriptors are looked at: they are verified, and not open.
 */
static Datum
externalize_column(Datum datum, Oid type, const StoreTypes *types, BlobStorage storage)
{
	if (type == types->array)
		return externalize_array(datum, types->blob, storage);
	if (blob_assign_is_blob_type(type, types->blob))
		return blob_externalize(datum, storage);
	return blob_assign_store_contained(datum, type);
}

static BlobStorage
get_storage(const StoreReceiver *receiver, int column_no)
{
	return OidIsValid(receiver->relation) ?
		blob_column_storage(receiver->relation, (AttrNumber) (column_no + 1)) :
		blob_storage_default();
}

/* Pass a row on, with its values externalized.  They live until the inner receiver returns. */
static bool
store_receive_slot(TupleTableSlot *slot, DestReceiver *self)
{
	StoreReceiver *receiver = (StoreReceiver *) self;
	TupleTableSlot *stored_slot = receiver->slot;
	TupleDesc	desc = stored_slot->tts_tupleDescriptor;
	MemoryContext caller_context = MemoryContextSwitchTo(receiver->row_context);
	bool		changed = false;
	bool		result;

	slot_getallattrs(slot);
	ExecClearTuple(stored_slot);
	for (int i = 0; i < desc->natts; i++)
	{
		Datum		datum = slot->tts_values[i];

		stored_slot->tts_isnull[i] = slot->tts_isnull[i];
		if (!slot->tts_isnull[i] && receiver->holds_values[i])
			datum = externalize_column(datum, TupleDescAttr(desc, i)->atttypid,
									   &receiver->types, get_storage(receiver, i));
		changed |= datum != slot->tts_values[i];
		stored_slot->tts_values[i] = datum;
	}
	ExecStoreVirtualTuple(stored_slot);
	MemoryContextSwitchTo(caller_context);

	result = receiver->inner->receiveSlot(changed ? stored_slot : slot, receiver->inner);
	ExecClearTuple(stored_slot);
	MemoryContextReset(receiver->row_context);
	return result;
}

/* Called in the query's memory context; typeinfo is the labelled description. */
static void
store_startup(DestReceiver *self, int operation, TupleDesc typeinfo)
{
	StoreReceiver *receiver = (StoreReceiver *) self;

	receiver->holds_values = palloc(sizeof(bool) * typeinfo->natts);
	for (int i = 0; i < typeinfo->natts; i++)
		receiver->holds_values[i] = blob_walk_type_holds(TupleDescAttr(typeinfo, i)->atttypid);
	receiver->slot = MakeSingleTupleTableSlot(typeinfo, &TTSOpsVirtual);
	receiver->row_context = AllocSetContextCreate(CurrentMemoryContext, "blobext stored row",
												  ALLOCSET_DEFAULT_SIZES);
	receiver->inner->rStartup(receiver->inner, operation, typeinfo);
}

static void
store_shutdown(DestReceiver *self)
{
	StoreReceiver *receiver = (StoreReceiver *) self;

	receiver->inner->rShutdown(receiver->inner);
	ExecDropSingleTupleTableSlot(receiver->slot);
	MemoryContextDelete(receiver->row_context);
}

/* The inner receiver is destroyed by its owner; ours goes with the query's memory. */
static void
store_destroy(DestReceiver *self)
{
}

static DestReceiver *
make_store_receiver(DestReceiver *inner, const StoreTypes *types)
{
	StoreReceiver *receiver = palloc0(sizeof(StoreReceiver));

	receiver->pub.receiveSlot = store_receive_slot;
	receiver->pub.rStartup = store_startup;
	receiver->pub.rShutdown = store_shutdown;
	receiver->pub.rDestroy = store_destroy;
	receiver->pub.mydest = inner->mydest;
	receiver->inner = inner;
	receiver->types = *types;
	if (inner->mydest == DestTransientRel)
		receiver->relation = refreshed_relation;
	return &receiver->pub;
}

/* Has a query of this destination columns that can hold values? */
static bool
has_columns_to_store(CommandDest destination, TupleDesc desc)
{
	return (destination == DestIntoRel || destination == DestTransientRel) &&
		blob_walk_row_holds(desc);
}

/* The description with the hidden modifier on blobstate columns, or the same if all have it. */
static TupleDesc
label_description(CommandDest destination, TupleDesc desc, const StoreTypes *types)
{
	TupleDesc	labelled = desc;

	if (destination == DestSPI && desc->natts == 1)
		return desc;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->atttypid != types->blob && attribute->atttypid != types->array)
			continue;
		if (attribute->atttypmod == BLOB_ASSIGN_TYPMOD)
			continue;
		if (labelled == desc)
			labelled = CreateTupleDescCopy(desc);
		TupleDescAttr(labelled, i)->atttypmod = BLOB_ASSIGN_TYPMOD;
	}
	return labelled;
}

static bool
is_redirected(CommandDest destination)
{
	return destination == DestIntoRel || destination == DestTransientRel ||
		destination == DestTuplestore || destination == DestSPI;
}

pg_attribute_hot bool
blob_assign_redirect_is_due(const QueryDesc *query_desc)
{
	return blob_assign_is_bounding() ||
		(query_desc->dest != NULL && is_redirected(query_desc->dest->mydest) &&
		 OidIsValid(blob_assign_type()));
}

/*
 * Put our receiver and the labelled row description in place, where this query's destination needs
 * them.  Both go to the query's memory context, because CurrentMemoryContext may be short-lived.
 */
static void
redirect_query(QueryDesc *query_desc)
{
	CommandDest destination = query_desc->dest ? query_desc->dest->mydest : DestNone;
	StoreTypes	types;
	MemoryContext caller_context;

	if (!is_redirected(destination))
		return;
	types.blob = blob_assign_type();
	if (!OidIsValid(types.blob) || query_desc->tupDesc == NULL)
		return;
	types.array = blob_catalog_array_type();

	caller_context = MemoryContextSwitchTo(query_desc->estate->es_query_cxt);
	if (has_columns_to_store(destination, query_desc->tupDesc))
		query_desc->dest = make_store_receiver(query_desc->dest, &types);
	query_desc->tupDesc = label_description(destination, query_desc->tupDesc, &types);
	MemoryContextSwitchTo(caller_context);
}

/*
 * A query inside DDL with partition bounds is an event trigger's or another function's own
 * statement, which may store.  A query that the planner runs, by way of a function, may not.
 */
void
blob_assign_redirect_begin(BlobAssignRedirect *redirect, QueryDesc *query_desc)
{
	redirect->dest = query_desc->dest;
	redirect->desc = query_desc->tupDesc;
	redirect->query_desc = query_desc;
	redirect_query(query_desc);
	if (query_desc->dest == redirect->dest && query_desc->tupDesc == redirect->desc)
		redirect->query_desc = NULL;
	redirect->was_bounding = blob_assign_set_bounding(false);
	redirect->has_set_bounding = true;
}

void
blob_assign_redirect_end(BlobAssignRedirect *redirect)
{
	if (redirect->has_set_bounding)
		blob_assign_set_bounding(redirect->was_bounding);
	if (redirect->query_desc != NULL)
	{
		redirect->query_desc->dest = redirect->dest;
		redirect->query_desc->tupDesc = redirect->desc;
	}
}
