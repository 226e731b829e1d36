/*
 * client/row_message.c
 *	  The message of a row whose large values are streamed, see client/row_message.h.
 *
 * The server builds the message of a row in memory before it sends the first byte.  A value is
 * copied from the buffer to the result of its output function, from there to the message, and from
 * there, in small parts, to the connection.  Here the message's length is computed from the sizes
 * of the values, and content is read and sent in pieces; see README.md in this folder.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "blob/reader.h"
#include "catalog/pg_type_d.h"
#include "client/descriptions.h"
#include "client/row_message.h"
#include "client/wire.h"
#include "core/compat.h"
#include "io/stat.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* Values below this size are faster when the server itself sends them. */
#define MIN_STREAMED_BYTES (64 * 1024)

/* Each byte becomes two digits, so one piece of content fills the room of the wire. */
#define TEXT_PIECE_BYTES (BLOB_WIRE_ROOM_BYTES / 2)

/* The beginning of a bytea in hex format. */
#define HEX_PREFIX "\\x"
#define HEX_PREFIX_BYTES 2

/* The format codes of the protocol. */
#define FORMAT_TEXT 0
#define FORMAT_BINARY 1

/* The source of a column's bytes in the message. */
typedef enum SentFrom
{
	SENT_FROM_OUTPUT,			/* the result of its output or send function */
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
	BlobReader *reader;			/* of value */
	const char *data;			/* SENT_FROM_MEMORY */
	uint64		bytes;			/* of the form that is sent; unless SENT_FROM_OUTPUT */
} SentColumn;

struct BlobRowFormat
{
	Oid			blob_type;
	const int16 *formats;		/* NULL: all text */
	MemoryContext context;
	TupleDesc	desc;			/* of the query: rows of partitions have some of their own */
	SentColumn *columns;		/* NULL: not prepared */
};

/*
 * The last result that was noted.  It may have been freed, so its address is compared, and never
 * dereferenced.
 */
static const bytea *noted_result = NULL;

void
blob_row_message_note_result(const bytea *result)
{
	noted_result = result;
}

BlobRowFormat *
blob_row_format_make(Oid blob_type, TupleDesc desc, const int16 *formats)
{
	BlobRowFormat *format = palloc0(sizeof(BlobRowFormat));

	format->blob_type = blob_type;
	format->desc = desc;
	format->formats = formats;
	format->context = CurrentMemoryContext;
	return format;
}

/* ---- columns ---- */

/*
 * Look up the output or send function of each column, once for all rows of the query.  Allocates in
 * the format's context.  Unknown format codes are kept for choose_columns().
 */
static void
prepare_columns(BlobRowFormat *format)
{
	MemoryContext caller_context = MemoryContextSwitchTo(format->context);
	SentColumn *columns = palloc0(sizeof(SentColumn) * format->desc->natts);
	bool		is_varlena;

	for (int i = 0; i < format->desc->natts; i++)
	{
		Oid			type = TupleDescAttr(format->desc, i)->atttypid;
		Oid			function;

		columns[i].type = type;
		columns[i].format = format->formats ? format->formats[i] : FORMAT_TEXT;
		if (columns[i].format == FORMAT_BINARY)
			getTypeBinaryOutputInfo(type, &function, &is_varlena);
		else
			getTypeOutputInfo(type, &function, &is_varlena);
		fmgr_info(function, &columns[i].output);
	}
	format->columns = columns;
	MemoryContextSwitchTo(caller_context);
}

/*
 * Whether this can be a large value that lies in extents.  A descriptor is short; so a long datum,
 * and one that lies outside of the row, is content.  A toasted datum is not fetched.
 */
static bool
may_be_large(Datum datum)
{
	const struct varlena *varlena = (const struct varlena *) DatumGetPointer(datum);
	BlobKey		key;

	if (VARATT_IS_EXTERNAL(varlena) || VARATT_IS_COMPRESSED(varlena))
		return toast_raw_datum_size(datum) <= BLCKSZ;
	blob_key_load(varlena, &key);
	return key.kind != BLOB_KEY_INLINE && key.size_bytes >= MIN_STREAMED_BYTES;
}

/* Unpack a datum if it is a large value that lies in extents; else false. */
static bool
unpack_large(Datum datum, BlobValue *value)
{
	if (!may_be_large(datum))
		return false;
	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), value);
	return !value->is_inline && value->size_bytes >= MIN_STREAMED_BYTES;
}

/* Whether this is the large result that one of our functions noted last. */
static bool
is_large_result(Datum datum)
{
	return DatumGetPointer(datum) == (const char *) noted_result &&
		VARATT_IS_4B_U(DatumGetPointer(datum)) &&
		VARSIZE_4B(DatumGetPointer(datum)) >= MIN_STREAMED_BYTES;
}

bool
blob_row_message_is_wanted(const BlobRowFormat *format, TupleTableSlot *slot)
{
	Assert(slot->tts_tupleDescriptor->natts == format->desc->natts);
	for (int i = 0; i < format->desc->natts; i++)
	{
		Oid			type = TupleDescAttr(format->desc, i)->atttypid;

		if (slot->tts_isnull[i])
			continue;
		if (type == BYTEAOID ? is_large_result(slot->tts_values[i]) :
			type == format->blob_type && may_be_large(slot->tts_values[i]))
			return true;
	}
	return false;
}

/*
 * Choose how a value that is not null is sent, and compute its bytes.  Begins a reader if it is
 * read.
 */
static void
choose_column(const BlobRowFormat *format, SentColumn *column, Datum datum)
{
	bool		is_binary = column->format == FORMAT_BINARY;

	column->from = SENT_FROM_OUTPUT;
	if (column->type == BYTEAOID && is_binary && is_large_result(datum))
	{
		column->from = SENT_FROM_MEMORY;
		column->data = VARDATA_4B(DatumGetPointer(datum));
		column->bytes = VARSIZE_4B(DatumGetPointer(datum)) - VARHDRSZ;
	}
	else if (column->type == format->blob_type &&
			 (is_binary || bytea_output == BYTEA_OUTPUT_HEX) &&
			 unpack_large(datum, &column->value))
	{
		column->from = SENT_FROM_EXTENTS;
		column->reader = palloc(sizeof(BlobReader));
		blob_reader_begin(column->reader, &column->value,
						  column->value.size_bytes > BLOB_WIRE_ROOM_BYTES ? BLOB_READER_ALL : 0);
		column->bytes = is_binary ? column->value.size_bytes :
			HEX_PREFIX_BYTES + 2 * column->value.size_bytes;
	}
}

/*
 * Choose for all columns.  Returns false if the server's receiver has to send the row: if it has no
 * value to stream, or if it would be an error (an unknown format, a value that is too large for a
 * datum or a message).
 */
static bool
choose_columns(BlobRowFormat *format, TupleTableSlot *slot)
{
	uint64		total_bytes = 0;

	for (int i = 0; i < format->desc->natts; i++)
	{
		SentColumn *column = &format->columns[i];

		if (column->format != FORMAT_BINARY && column->format != FORMAT_TEXT)
			return false;
		if (slot->tts_isnull[i])
			continue;
		choose_column(format, column, slot->tts_values[i]);
		if (column->from != SENT_FROM_OUTPUT)
			total_bytes += column->bytes;
	}
	return total_bytes > 0 && total_bytes < MaxAllocSize;
}

/* ---- the message ---- */

/*
 * Append the length and the bytes of a column that is not streamed, as the server's receiver does.
 * Throws the errors of its output or send function.
 */
static void
append_column(StringInfo plain, SentColumn *column, Datum datum)
{
	if (column->format == FORMAT_BINARY)
	{
		bytea	   *bytes = SendFunctionCall(&column->output, datum);

		blob_descriptions_fix_array(column->type, VARDATA(bytes), VARSIZE(bytes) - VARHDRSZ);
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
 * Build the message without its streamed bytes. cuts[i] says after how many bytes those of column i
 * belong.  Returns the length of the whole message.
 */
static uint64
make_plain_part(BlobRowFormat *format, TupleTableSlot *slot, StringInfo plain, int *cuts)
{
	int			count = format->desc->natts;
	uint64		streamed_bytes = 0;

	initStringInfo(plain);
	pq_sendint16(plain, count);
	for (int i = 0; i < count; i++)
	{
		SentColumn *column = &format->columns[i];

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
 * Read a piece.  Before anything is sent, cancels are served as usual.  After that they wait until
 * the message has ended, as they do while the server sends one of its own messages.
 */
static uint64
read_piece(BlobReader *reader, char *target, uint64 length)
{
	bool		is_open = blob_wire_is_open();

	if (is_open)
		HOLD_INTERRUPTS();
	length = blob_reader_next(reader, target, length);
	if (is_open)
		RESUME_INTERRUPTS();
	return length;
}

static void
stream_binary(BlobReader *reader)
{
	uint64		length;

	while (!blob_wire_is_lost() &&
		   (length = read_piece(reader, blob_wire_room(), BLOB_WIRE_ROOM_BYTES)) > 0)
		blob_wire_advance(length);
}

static void
stream_text(BlobReader *reader)
{
	char	   *piece = palloc(TEXT_PIECE_BYTES);
	uint64		length;

	blob_wire_append(HEX_PREFIX, HEX_PREFIX_BYTES);
	while (!blob_wire_is_lost() && (length = read_piece(reader, piece, TEXT_PIECE_BYTES)) > 0)
	{
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
	if (column->format == FORMAT_BINARY)
		stream_binary(column->reader);
	else
		stream_text(column->reader);
	blob_reader_end(column->reader);
	blob_stat_count(streamed_bytes, column->value.size_bytes);
}

/* Send the message: the parts of plain up to each cut, and the streamed bytes between them. */
static void
send_message(BlobRowFormat *format, TupleTableSlot *slot, uint64 length, const char *plain,
			 const int *cuts)
{
	int			done = 0;

	blob_wire_begin('D', (uint32) (sizeof(uint32) + length));
	for (int i = 0; i < format->desc->natts; i++)
	{
		blob_wire_append(plain + done, cuts[i] - done);
		done = cuts[i];
		if (!slot->tts_isnull[i] && format->columns[i].from != SENT_FROM_OUTPUT)
			stream_column(&format->columns[i]);
	}
	blob_wire_end();
}

/* Find as many errors as possible before the first byte is sent. */
static void
require_readable(const BlobRowFormat *format, TupleTableSlot *slot)
{
	for (int i = 0; i < format->desc->natts; i++)
		if (!slot->tts_isnull[i] && format->columns[i].from == SENT_FROM_EXTENTS)
			blob_reader_require_readable(format->columns[i].reader);
}

bool
blob_row_message_send(BlobRowFormat *format, TupleTableSlot *slot)
{
	int		   *cuts = palloc(sizeof(int) * format->desc->natts);
	StringInfoData plain;
	uint64		length;

	if (format->columns == NULL)
		prepare_columns(format);
	if (!choose_columns(format, slot))
		return false;
	length = make_plain_part(format, slot, &plain, cuts);
	if (length >= MaxAllocSize)
		return false;
	/* A short message is complete before it is sent, so errors are ordinary ones anyway. */
	if (length >= BLOB_WIRE_ROOM_BYTES - 1)
		require_readable(format, slot);
	PG_TRY();
	{
		send_message(format, slot, length, plain.data, cuts);
	}
	PG_CATCH();
	{
		if (blob_wire_is_open())
			blob_wire_fail();
		PG_RE_THROW();
	}
	PG_END_TRY();
	return true;
}
