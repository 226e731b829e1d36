/*
 * client/rows.c
 *	  Which rows are sent piece by piece, see client/rows.h.
 *
 * For a run of the executor a receiver is put before the server's own (access/common/printtup.c).
 * The server's receiver still gets the calls that start and end the rows, and all rows without
 * large values.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type_d.h"
#include "client/row_message.h"
#include "client/rows.h"
#include "client/wire.h"
#include "core/compat.h"
#include "core/settings.h"
#include "executor/executor.h"
#include "assign/assign.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"

typedef struct RowSender
{
	DestReceiver pub;
	DestReceiver *inner;		/* not owned */
	BlobRowFormat *format;
	MemoryContext context;		/* of this struct, for one run of the executor */
	MemoryContext row_context;	/* of streamed rows; NULL before the first */
} RowSender;

/* Stream a row; false, and nothing sent, if the server's receiver has to send it. */
static bool
send_row(RowSender *sender, TupleTableSlot *slot)
{
	MemoryContext caller_context;
	bool		is_sent;

	if (sender->row_context == NULL)
		sender->row_context = AllocSetContextCreate(sender->context,
													"blobext row for the client",
													ALLOCSET_DEFAULT_SIZES);
	caller_context = MemoryContextSwitchTo(sender->row_context);
	is_sent = blob_row_message_send(sender->format, slot);
	MemoryContextSwitchTo(caller_context);
	MemoryContextReset(sender->row_context);
	return is_sent;
}

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	RowSender  *sender = (RowSender *) self;

	slot_getallattrs(slot);
	if (blob_wire_is_usable() && blob_row_message_is_wanted(sender->format, slot) &&
		send_row(sender, slot))
		return true;
	return sender->inner->receiveSlot(slot, sender->inner);
}

static void
start_rows(DestReceiver *self, int operation, TupleDesc desc)
{
	RowSender  *sender = (RowSender *) self;

	sender->inner->rStartup(sender->inner, operation, desc);
}

static void
end_rows(DestReceiver *self)
{
	RowSender  *sender = (RowSender *) self;

	sender->inner->rShutdown(sender->inner);
}

/* The executor does not destroy receivers. */
static void
destroy_sender(DestReceiver *self)
{
}

/*
 * Make a sender in a context of its own, since a portal may run thousands of times for a few rows
 * each.
 */
static RowSender *
make_sender(const QueryDesc *query_desc, Oid blob_type)
{
	MemoryContext context = AllocSetContextCreate(query_desc->estate->es_query_cxt,
												  "blobext rows for the client",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller_context = MemoryContextSwitchTo(context);
	RowSender  *sender = palloc0(sizeof(RowSender));

	sender->pub.receiveSlot = receive_row;
	sender->pub.rStartup = start_rows;
	sender->pub.rShutdown = end_rows;
	sender->pub.rDestroy = destroy_sender;
	sender->pub.mydest = query_desc->dest->mydest;
	sender->inner = query_desc->dest;
	sender->format = blob_row_format_make(blob_type, query_desc->tupDesc, ActivePortal->formats);
	sender->context = context;
	MemoryContextSwitchTo(caller_context);
	return sender;
}

/* ---- runs of the executor ---- */

/* Built-in types but bytea are recognized by their OID alone, without the catalog. */
pg_attribute_hot bool
blob_rows_may_begin(const QueryDesc *query_desc)
{
	const TupleDesc desc = query_desc->tupDesc;

	if (desc == NULL || query_desc->dest == NULL || !blob_wire_is_of_server(query_desc->dest))
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		Oid			type = TupleDescAttr(desc, i)->atttypid;

		if (type == BYTEAOID || type >= FirstNormalObjectId)
			return true;
	}
	return false;
}

static bool
has_large_columns(TupleDesc desc, Oid blob_type)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Oid			type = TupleDescAttr(desc, i)->atttypid;

		if (type == blob_type || type == BYTEAOID)
			return true;
	}
	return false;
}

/*
 * Type blobstate, if the rows of this query go to the client and may hold values to stream; else
 * InvalidOid.  Queries whose rows are collected first (FETCH, EXECUTE, RETURNING) have another
 * destination here.  The portal knows the formats that the client wants.
 */
static Oid
find_streamable(const QueryDesc *query_desc)
{
	Oid			blob_type;

	if (query_desc->dest == NULL || query_desc->tupDesc == NULL ||
		!blob_wire_is_of_server(query_desc->dest))
		return InvalidOid;
	if (!blob_stream_results || blob_verify_reads || !blob_wire_is_usable() ||
		ActivePortal == NULL || ActivePortal->queryDesc != query_desc)
		return InvalidOid;
	blob_type = blob_assign_type();
	if (!OidIsValid(blob_type) || !has_large_columns(query_desc->tupDesc, blob_type))
		return InvalidOid;
	return blob_type;
}

void
blob_rows_begin(BlobRowsRun *run, QueryDesc *query_desc)
{
	Oid			blob_type = find_streamable(query_desc);
	RowSender  *sender;

	if (!OidIsValid(blob_type))
		return;
	sender = make_sender(query_desc, blob_type);
	run->context = sender->context;
	run->query_desc = query_desc;
	run->dest = query_desc->dest;
	query_desc->dest = &sender->pub;
}

void
blob_rows_end(BlobRowsRun *run)
{
	if (run->query_desc != NULL)
		run->query_desc->dest = run->dest;
	run->query_desc = NULL;
}

void
blob_rows_forget(BlobRowsRun *run)
{
	if (run->context != NULL)
		MemoryContextDelete(run->context);
	run->context = NULL;
}
