/*
 * client/rows.c
 *	  Rows with large values on their way to the client, see client/rows.h.
 *
 * The server makes a row's message in memory before it sends the first byte of it: a value is
 * copied from the cache to the result of its output function, and from there to the message.  Here
 * the message's length is computed from the sizes of the values, and content is read and sent in
 * pieces: no memory for it, one copy less of it in a large buffer and another in a small one, and
 * the device reads on while the client receives.
 *
 * The executor hook puts a receiver before the server's own (access/common/printtup.c), which gets
 * all rows without large values, and the rest of the protocol.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "blob/blob.h"
#include "blob/readahead.h"
#include "catalog/pg_type_d.h"
#include "client/rows.h"
#include "client/wire.h"
#include "core/compat.h"
#include "core/settings.h"
#include "executor/executor.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "space/space.h"
#include "store/store.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* Smaller values are faster on the server's own way. */
#define MIN_STREAMED_BYTES (64 * 1024)

/* As two digits for each byte come out of it, one piece of content fills the room of the wire. */
#define TEXT_PIECE_BYTES (BLOB_WIRE_ROOM_BYTES / 2)

/* What precedes hex digits. */
#define HEX_PREFIX "\\x"
#define HEX_PREFIX_BYTES 2

/* The format codes of the protocol. */
#define FORMAT_TEXT 0
#define FORMAT_BINARY 1

/* How a column's value gets into the message. */
typedef enum SentFrom
{
	SENT_FROM_OUTPUT,			/* as its output or send function gives it */
	SENT_FROM_EXTENTS,			/* a large blobstate, in pieces */
	SENT_FROM_MEMORY			/* a large bytea, from where it lies */
} SentFrom;

typedef struct SentColumn
{
	Oid			type;
	int16		format;
	FmgrInfo	output;			/* or send function */
	SentFrom	from;			/* in this row */
	BlobValue	value;			/* SENT_FROM_EXTENTS */
	const char *data;			/* SENT_FROM_MEMORY */
	uint64		bytes;			/* of the form that is sent; unless SENT_FROM_OUTPUT */
} SentColumn;

typedef struct RowSender
{
	DestReceiver pub;
	DestReceiver *inner;		/* not owned */
	Oid			blob_type;
	const int16 *formats;		/* NULL: all text; lives as long as the portal */
	MemoryContext query_context;
	MemoryContext row_context;	/* of rows with large values */
	TupleDesc	desc;			/* that columns were prepared for, or NULL */
	SentColumn *columns;
} RowSender;

static ExecutorRun_hook_type prev_executor_run_hook = NULL;

/* The last result that was noted: it may be gone, so it is compared with, and not looked at. */
static const bytea *noted_result = NULL;

/* ---- columns ---- */

static void
prepare_columns(RowSender *sender, TupleDesc desc)
{
	MemoryContext caller_context = MemoryContextSwitchTo(sender->query_context);
	SentColumn *columns = palloc0(sizeof(SentColumn) * desc->natts);
	bool		is_varlena;

	for (int i = 0; i < desc->natts; i++)
	{
		Oid			type = TupleDescAttr(desc, i)->atttypid;
		Oid			function;

		columns[i].type = type;
		columns[i].format = sender->formats ? sender->formats[i] : FORMAT_TEXT;
		if (columns[i].format == FORMAT_BINARY)
			getTypeBinaryOutputInfo(type, &function, &is_varlena);
		else
			getTypeOutputInfo(type, &function, &is_varlena);
		fmgr_info(function, &columns[i].output);
	}
	sender->columns = columns;
	sender->desc = desc;
	MemoryContextSwitchTo(caller_context);
}

/*
 * Is this a large value that lies in extents?  A descriptor is short: what is long, or outside of
 * the row, is content, and not worth fetching here.
 */
static bool
unpack_large(Datum datum, BlobValue *value)
{
	if (VARATT_IS_EXTERNAL(DatumGetPointer(datum)) && toast_raw_datum_size(datum) > BLCKSZ)
		return false;
	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), value);
	return !value->is_inline && value->size_bytes >= MIN_STREAMED_BYTES;
}

/* Is this a large result of one of our functions? */
static bool
is_large_result(Datum datum)
{
	return DatumGetPointer(datum) == (const char *) noted_result &&
		VARATT_IS_4B_U(DatumGetPointer(datum)) &&
		VARSIZE_4B(DatumGetPointer(datum)) >= MIN_STREAMED_BYTES;
}

static bool
has_large_value(const RowSender *sender, TupleTableSlot *slot)
{
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		Oid			type = TupleDescAttr(slot->tts_tupleDescriptor, i)->atttypid;
		BlobValue	value;

		if (slot->tts_isnull[i])
			continue;
		if (type == BYTEAOID ? is_large_result(slot->tts_values[i]) :
			type == sender->blob_type && unpack_large(slot->tts_values[i], &value))
			return true;
	}
	return false;
}

/* Choose how a value is sent that is not null. */
static void
choose_column(const RowSender *sender, SentColumn *column, Datum datum)
{
	bool		is_binary = column->format == FORMAT_BINARY;

	column->from = SENT_FROM_OUTPUT;
	if (column->type == BYTEAOID && is_binary && is_large_result(datum))
	{
		column->from = SENT_FROM_MEMORY;
		column->data = VARDATA_4B(DatumGetPointer(datum));
		column->bytes = VARSIZE_4B(DatumGetPointer(datum)) - VARHDRSZ;
	}
	else if (column->type == sender->blob_type &&
			 (is_binary || bytea_output == BYTEA_OUTPUT_HEX) &&
			 unpack_large(datum, &column->value))
	{
		column->from = SENT_FROM_EXTENTS;
		column->bytes = is_binary ? column->value.size_bytes :
			HEX_PREFIX_BYTES + 2 * column->value.size_bytes;
	}
}

/*
 * Choose for all columns.  Whatever the server would refuse is left to it: an unknown format, what
 * is too large for a datum or a message.  Is there anything to be streamed?
 */
static bool
choose_columns(RowSender *sender, TupleTableSlot *slot)
{
	uint64		total_bytes = 0;

	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		SentColumn *column = &sender->columns[i];

		if (column->format != FORMAT_BINARY && column->format != FORMAT_TEXT)
			return false;
		if (slot->tts_isnull[i])
			continue;
		choose_column(sender, column, slot->tts_values[i]);
		if (column->from != SENT_FROM_OUTPUT)
			total_bytes += column->bytes;
	}
	return total_bytes > 0 && total_bytes < MaxAllocSize - BLOB_WIRE_ROOM_BYTES;
}

/* ---- the message ---- */

static void
append_column(StringInfo plain, SentColumn *column, Datum datum)
{
	if (column->format == FORMAT_BINARY)
	{
		bytea	   *bytes = SendFunctionCall(&column->output, datum);

		pq_sendint32(plain, VARSIZE(bytes) - VARHDRSZ);
		pq_sendbytes(plain, VARDATA(bytes), VARSIZE(bytes) - VARHDRSZ);
	}
	else
	{
		char	   *text = OutputFunctionCall(&column->output, datum);
		char	   *sent = pg_server_to_client(text, strlen(text));
		int			length = strlen(sent);

		pq_sendint32(plain, length);
		pq_sendbytes(plain, sent, length);
	}
}

/*
 * All of the message but what is streamed; cuts[i] says after how many bytes that of column i
 * belongs.  Returns the message's length.
 */
static uint64
make_plain_part(RowSender *sender, TupleTableSlot *slot, StringInfo plain, int *cuts)
{
	int			count = slot->tts_tupleDescriptor->natts;
	uint64		streamed_bytes = 0;

	initStringInfo(plain);
	pq_sendint16(plain, count);
	for (int i = 0; i < count; i++)
	{
		SentColumn *column = &sender->columns[i];

		if (slot->tts_isnull[i])
			pq_sendint32(plain, -1);
		else if (column->from == SENT_FROM_OUTPUT)
			append_column(plain, column, slot->tts_values[i]);
		else
		{
			pq_sendint32(plain, (uint32) column->bytes);
			streamed_bytes += column->bytes;
		}
		cuts[i] = plain->len;
	}
	return plain->len + streamed_bytes;
}

/*
 * Read a piece.  As long as nothing has been sent, cancels are served as usual; from then on they
 * wait until the message has ended, as they do while the server sends one of its own.
 */
static void
read_piece(const BlobValue *value, uint64 offset, uint64 length, char *target)
{
	bool		is_open = blob_wire_is_open();

	if (is_open)
		HOLD_INTERRUPTS();
	blob_read(value, offset, length, target);
	if (is_open)
		RESUME_INTERRUPTS();
}

static void
stream_binary(const BlobValue *value)
{
	uint64		length;

	for (uint64 offset = 0; offset < value->size_bytes && !blob_wire_is_lost(); offset += length)
	{
		length = Min(value->size_bytes - offset, BLOB_WIRE_ROOM_BYTES);
		read_piece(value, offset, length, blob_wire_room());
		blob_wire_advance(length);
	}
}

static void
stream_text(const BlobValue *value)
{
	char	   *piece = palloc(TEXT_PIECE_BYTES);
	uint64		length;

	blob_wire_append(HEX_PREFIX, HEX_PREFIX_BYTES);
	for (uint64 offset = 0; offset < value->size_bytes && !blob_wire_is_lost(); offset += length)
	{
		length = Min(value->size_bytes - offset, TEXT_PIECE_BYTES);
		read_piece(value, offset, length, piece);
		hex_encode(piece, length, blob_wire_room());
		blob_wire_advance(2 * length);
	}
	pfree(piece);
}

static void
stream_column(const SentColumn *column)
{
	if (column->from == SENT_FROM_MEMORY)
	{
		blob_wire_append(column->data, column->bytes);
		return;
	}
	blob_readahead_announce(&column->value.descriptor);
	if (column->format == FORMAT_BINARY)
		stream_binary(&column->value);
	else
		stream_text(&column->value);
}

static void
send_message(RowSender *sender, TupleTableSlot *slot)
{
	int			count = slot->tts_tupleDescriptor->natts;
	int		   *cuts = palloc(sizeof(int) * count);
	int			done = 0;
	StringInfoData plain;
	uint64		length = make_plain_part(sender, slot, &plain, cuts);

	blob_wire_begin('D', (uint32) (sizeof(uint32) + length));
	for (int i = 0; i < count; i++)
	{
		blob_wire_append(plain.data + done, cuts[i] - done);
		done = cuts[i];
		if (!slot->tts_isnull[i] && sender->columns[i].from != SENT_FROM_OUTPUT)
			stream_column(&sender->columns[i]);
	}
	blob_wire_end();
}

/*
 * The map's lock is held through all pieces, because none of them may have to wait for it.  What
 * can be known about errors before the first byte is sent shall be known.
 */
static void
send_row(RowSender *sender, TupleTableSlot *slot)
{
	BlobSpace	space;

	blob_space_open(&space, AccessShareLock);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
		if (!slot->tts_isnull[i] && sender->columns[i].from == SENT_FROM_EXTENTS)
			blob_require_readable(&sender->columns[i].value);
	PG_TRY();
	{
		send_message(sender, slot);
	}
	PG_CATCH();
	{
		if (blob_wire_is_open())
			blob_wire_fail();
		PG_RE_THROW();
	}
	PG_END_TRY();
	blob_space_close(&space);
}

/* ---- the receiver ---- */

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	RowSender  *sender = (RowSender *) self;
	MemoryContext caller_context;
	bool		is_streamed = false;

	slot_getallattrs(slot);
	if (!blob_wire_is_usable())
		return sender->inner->receiveSlot(slot, sender->inner);

	caller_context = MemoryContextSwitchTo(sender->row_context);
	if (has_large_value(sender, slot))
	{
		if (sender->desc != slot->tts_tupleDescriptor)
			prepare_columns(sender, slot->tts_tupleDescriptor);
		is_streamed = choose_columns(sender, slot);
		if (is_streamed)
			send_row(sender, slot);
	}
	MemoryContextSwitchTo(caller_context);
	MemoryContextReset(sender->row_context);
	return is_streamed || sender->inner->receiveSlot(slot, sender->inner);
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

static DestReceiver *
make_sender(QueryDesc *query_desc, Oid blob_type)
{
	MemoryContext query_context = query_desc->estate->es_query_cxt;
	RowSender  *sender = MemoryContextAllocZero(query_context, sizeof(RowSender));

	sender->pub.receiveSlot = receive_row;
	sender->pub.rStartup = start_rows;
	sender->pub.rShutdown = end_rows;
	sender->pub.rDestroy = destroy_sender;
	sender->pub.mydest = query_desc->dest->mydest;
	sender->inner = query_desc->dest;
	sender->blob_type = blob_type;
	sender->formats = ActivePortal->formats;
	sender->query_context = query_context;
	sender->row_context = AllocSetContextCreate(query_context, "blobext row for the client",
												ALLOCSET_DEFAULT_SIZES);
	return &sender->pub;
}

/* ---- the hook ---- */

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
 * Type blobstate, if the rows of this query go to the client and may hold such values; else
 * InvalidOid.  Queries whose rows are collected first (FETCH, EXECUTE, RETURNING) have another
 * destination here.  The formats that the client wants are the portal's.
 */
static Oid
find_streamable(const QueryDesc *query_desc)
{
	Oid			blob_type;

	if (query_desc->dest == NULL || query_desc->tupDesc == NULL ||
		(query_desc->dest->mydest != DestRemote && query_desc->dest->mydest != DestRemoteExecute))
		return InvalidOid;
	if (!blob_stream_results || blob_verify_reads || !blob_wire_is_usable() ||
		ActivePortal == NULL || ActivePortal->queryDesc != query_desc)
		return InvalidOid;
	blob_type = blob_store_type();
	if (!OidIsValid(blob_type) || !has_large_columns(query_desc->tupDesc, blob_type))
		return InvalidOid;
	return blob_type;
}

static void
run_query(QueryDesc *query_desc, ScanDirection direction, uint64 count BLOB_RUN_EXTRA_PARAMETER)
{
	if (prev_executor_run_hook)
		prev_executor_run_hook(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
	else
		standard_ExecutorRun(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
}

static void
rows_executor_run(QueryDesc *query_desc, ScanDirection direction,
				  uint64 count BLOB_RUN_EXTRA_PARAMETER)
{
	DestReceiver *dest = query_desc->dest;
	Oid			blob_type = find_streamable(query_desc);

	if (!OidIsValid(blob_type))
	{
		run_query(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
		return;
	}
	query_desc->dest = make_sender(query_desc, blob_type);
	PG_TRY();
	{
		run_query(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
	}
	PG_FINALLY();
	{
		query_desc->dest = dest;
	}
	PG_END_TRY();
}

void
blob_rows_note_result(const bytea *result)
{
	noted_result = result;
}

void
blob_rows_install_hook(void)
{
	blob_wire_init();
	prev_executor_run_hook = ExecutorRun_hook;
	ExecutorRun_hook = rows_executor_run;
}
