/*
 * client/upload_copy.c
 *	  COPY of pieces to uploads, see client/upload_copy.h.
 *
 * The format: PostgreSQL documentation, COPY, "Binary Format"; the messages: "COPY Operations".
 */
#include "postgres.h"

/* GSSAPI's headers may be missing; struct Port has the same layout without them. */
#undef ENABLE_GSS

#include "blob/upload.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "client/upload_copy.h"
#include "client/wire.h"
#include "commands/defrem.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "libpq/libpq.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* Memory for bytes that are skipped, and for the client's reason of a failure. */
#define SCRAP_BYTES 8192

#define HEADER_BYTES 5			/* of a message: type and length */
#define COLUMNS 2				/* of the view: upload, data */

#define SIGNATURE_BYTES 11
static const char signature[] = "PGCOPY\n\377\r\n\0";

/* The copy in progress. */
typedef struct Copy
{
	char		scrap[SCRAP_BYTES];
	Size		left_bytes;		/* of the message in progress */
	bool		in_message;
	bool		is_done;		/* CopyDone has come */
	bool		is_lost;		/* the connection */
	bool		in_row;			/* its data have yet to come, or the first of them */
	int64		upload_no;		/* of the row */
	Size		left_in_row;	/* bytes of its data */
	uint64		rows;			/* that have begun */
} Copy;

/* ---- the connection ---- */

/* Bytes that the server's own buffer has, which come first.  Reads nothing. */
static Size
receive_buffered(char *to, Size bytes)
{
	Size		done = 0;

	while (done < bytes && blob_receive_buffer_has_data())
		to[done++] = (char) pq_getbyte();
	return done;
}

/*
 * Receive bytes past the server's buffer, which takes 8 kB at a time.  No more than that is asked
 * for, because nothing can be given back to the server.
 */
static void
receive(Copy *copy, char *to, Size bytes)
{
	Size		done = receive_buffered(to, bytes);

	while (done < bytes)
	{
		ssize_t		result;

		MyProcPort->noblock = false;
		result = secure_read(MyProcPort, to + done, bytes - done);
		if (result > 0)
			done += result;
		else if (result == 0 || errno != EINTR)
		{
			copy->is_lost = true;
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("unexpected EOF on client connection with an open transaction")));
		}
	}
}

static void
end_message(Copy *copy)
{
	pq_endmsgread();
	RESUME_CANCEL_INTERRUPTS();
	copy->in_message = false;
}

/* Payload of the message in progress, at most so much; the message ends with its last byte. */
static Size
receive_payload(Copy *copy, char *to, Size bytes)
{
	if (bytes > copy->left_bytes)
		bytes = copy->left_bytes;
	receive(copy, to, bytes);
	copy->left_bytes -= bytes;
	if (copy->left_bytes == 0)
		end_message(copy);
	return bytes;
}

/* Take the rest of the message, so that the server finds the beginning of another one. */
static void
skip_message(Copy *copy)
{
	while (copy->in_message)
		(void) receive_payload(copy, copy->scrap, SCRAP_BYTES);
}

/*
 * The same after an error, which has allowed cancels again.  The client may take its time: locks
 * that the abort would release must not be held until it has sent the rest.
 */
static void
skip_message_after_error(Copy *copy)
{
	if (!copy->in_message)
		return;
	LWLockReleaseAll();
	HOLD_CANCEL_INTERRUPTS();
	skip_message(copy);
}

/*
 * Receive the header of the next message.  Cancels are served before it, and held off to its end:
 * the server cannot go on in the middle of a message.
 */
static void
begin_message(Copy *copy, char *type)
{
	char		header[HEADER_BYTES];
	uint32		length;

	CHECK_FOR_INTERRUPTS();
	HOLD_CANCEL_INTERRUPTS();
	pq_startmsgread();
	copy->in_message = true;
	receive(copy, header, HEADER_BYTES);
	*type = header[0];
	memcpy(&length, header + 1, sizeof(length));
	length = pg_ntoh32(length);
	/* Not a message, then: it has no end that could be found. */
	if (length < sizeof(length) || length > MaxAllocSize)
	{
		copy->is_lost = true;
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message length")));
	}
	copy->left_bytes = length - sizeof(length);
	if (copy->left_bytes == 0)
		end_message(copy);
}

static void
report_failure(Copy *copy)
{
	Size		length = copy->left_bytes < SCRAP_BYTES ? copy->left_bytes : SCRAP_BYTES;

	if (length > 0)
		(void) receive_payload(copy, copy->scrap, length);
	copy->scrap[length > 0 ? length - 1 : 0] = '\0';
	skip_message(copy);
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("COPY from stdin failed: %s", copy->scrap)));
}

/* Have a message with payload; false after CopyDone. */
static bool
require_payload(Copy *copy)
{
	while (!copy->in_message && !copy->is_done)
	{
		char		type;

		begin_message(copy, &type);
		switch (type)
		{
			case 'd':			/* CopyData */
				break;
			case 'c':			/* CopyDone */
				skip_message(copy);
				copy->is_done = true;
				break;
			case 'f':			/* CopyFail */
				report_failure(copy);
				break;
			case 'H':			/* Flush and Sync mean nothing here */
			case 'S':
				skip_message(copy);
				break;
			default:
				ereport(ERROR,
						(errcode(ERRCODE_PROTOCOL_VIOLATION),
						 errmsg("unexpected message type 0x%02X during COPY from stdin",
								(unsigned char) type)));
		}
	}
	return copy->in_message;
}

/* ---- the format ---- */

pg_noreturn static void
bad_format(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_BAD_COPY_FILE_FORMAT),
			 errmsg("%s", what)));
}

/* Bytes of the stream; false if it ends before the first of them. */
static bool
read_if_any(Copy *copy, char *to, Size bytes)
{
	Size		done = 0;

	while (done < bytes)
	{
		if (require_payload(copy))
			done += receive_payload(copy, to + done, bytes - done);
		else if (done == 0)
			return false;
		else
			bad_format("unexpected EOF in COPY data");
	}
	return true;
}

static void
read_bytes(Copy *copy, char *to, Size bytes)
{
	if (!read_if_any(copy, to, bytes))
		bad_format("unexpected EOF in COPY data");
}

static int32
read_int32(Copy *copy)
{
	uint32		number;

	read_bytes(copy, (char *) &number, sizeof(number));
	return (int32) pg_ntoh32(number);
}

static void
read_header(Copy *copy)
{
	char		got[SIGNATURE_BYTES];
	int32		length;

	read_bytes(copy, got, sizeof(got));
	if (memcmp(got, signature, sizeof(got)) != 0)
		bad_format("COPY file signature not recognized");
	if ((read_int32(copy) & ~0xFFFF) != 0)
		bad_format("unrecognized critical flags in COPY file header");
	length = read_int32(copy);
	if (length < 0)
		bad_format("invalid COPY file header (missing length)");
	for (; length > 0; length--)
		read_bytes(copy, got, 1);
}

static int64
read_upload_no(Copy *copy)
{
	uint64		number;
	int32		length = read_int32(copy);

	if (length == -1)
		blob_upload_refuse_null();
	if (length != sizeof(number))
		bad_format("incorrect binary data format");
	read_bytes(copy, (char *) &number, sizeof(number));
	return (int64) pg_ntoh64(number);
}

/* Read a row up to its data; false at the end. */
static bool
begin_row(Copy *copy)
{
	uint16		count;
	int32		length;

	if (!read_if_any(copy, (char *) &count, sizeof(count)))
		return false;
	count = pg_ntoh16(count);
	if ((int16) count == -1)
	{
		char		byte;

		if (read_if_any(copy, &byte, 1))
			bad_format("received copy data after EOF marker");
		return false;
	}
	if (count != COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_BAD_COPY_FILE_FORMAT),
				 errmsg("row field count is %d, expected %d", (int16) count, COLUMNS)));
	copy->upload_no = read_upload_no(copy);
	length = read_int32(copy);
	if (length == -1)
		blob_upload_refuse_null();
	if (length < 0)
		bad_format("invalid field size");
	copy->left_in_row = length;
	copy->rows++;
	return true;
}

/*
 * A BlobFill: data of the row, and of the next ones, as long as they are of the same upload.  A
 * piece is added as it comes in, so it may be larger than memory.
 */
static uint64
fill(void *source, char *memory, uint64 bytes)
{
	Copy	   *copy = source;
	int64		upload_no = copy->upload_no;
	Size		got;

	while (copy->left_in_row == 0)
	{
		copy->in_row = begin_row(copy);
		if (!copy->in_row || copy->upload_no != upload_no)
			return 0;
	}
	if (!require_payload(copy))
		bad_format("unexpected EOF in COPY data");
	got = receive_payload(copy, memory, Min(bytes, copy->left_in_row));
	copy->left_in_row -= got;
	return got;
}

/* ---- the statement ---- */

/* As the server does it: all columns in binary. */
static void
send_copy_in_response(void)
{
	StringInfoData message;

	pq_beginmessage(&message, 'G');
	pq_sendbyte(&message, 1);
	pq_sendint16(&message, COLUMNS);
	for (int i = 0; i < COLUMNS; i++)
		pq_sendint16(&message, 1);
	pq_endmessage(&message);
	pq_flush();
}

/*
 * Receive all rows, and return their number.  After an error the connection is at the beginning of
 * a message.
 */
static uint64
receive_rows(void)
{
	Copy		copy = {0};

	send_copy_in_response();
	PG_TRY();
	{
		read_header(&copy);
		copy.in_row = begin_row(&copy);
		while (copy.in_row)
			blob_upload_write_from(copy.upload_no, fill, &copy);
	}
	PG_CATCH();
	{
		if (!copy.is_lost)
			skip_message_after_error(&copy);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return copy.rows;
}

/* Are these the columns of the view, in their order? */
static bool
are_all_columns(const List *names)
{
	return names == NIL ||
		(list_length(names) == COLUMNS &&
		 strcmp(strVal(linitial(names)), "upload") == 0 &&
		 strcmp(strVal(lsecond(names)), "data") == 0);
}

/* The one option that is known here is FORMAT binary. */
static bool
is_binary(const List *options)
{
	DefElem    *option;

	if (list_length(options) != 1)
		return false;
	option = linitial_node(DefElem, options);
	return strcmp(option->defname, "format") == 0 && option->arg != NULL &&
		strcmp(defGetString(option), "binary") == 0;
}

/* The server's own COPY, and the view's trigger, do what this file does not know. */
static bool
is_known(const CopyStmt *statement)
{
	return statement->is_from && statement->filename == NULL && !statement->is_program &&
		statement->relation != NULL && statement->relation->catalogname == NULL &&
		strcmp(statement->relation->relname, BLOB_UPLOAD_PIECES) == 0 &&
		statement->whereClause == NULL &&
		are_all_columns(statement->attlist) && is_binary(statement->options);
}

bool
blob_upload_copy(const PlannedStmt *pstmt, ProcessUtilityContext context, QueryCompletion *qc)
{
	const CopyStmt *statement;
	Oid			view;

	if (!IsA(pstmt->utilityStmt, CopyStmt))
		return false;
	statement = (const CopyStmt *) pstmt->utilityStmt;
	if (context != PROCESS_UTILITY_TOPLEVEL || !is_known(statement) || !blob_wire_is_usable())
		return false;
	view = RangeVarGetRelid(statement->relation, RowExclusiveLock, true);
	if (!OidIsValid(view) || view != blob_catalog_upload_pieces())
		return false;
	if (pg_class_aclcheck(view, GetUserId(), ACL_INSERT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_VIEW, BLOB_UPLOAD_PIECES);
	PreventCommandIfReadOnly("COPY FROM");
	PreventCommandIfParallelMode("COPY FROM");
	if (qc != NULL)
		SetQueryCompletion(qc, CMDTAG_COPY, receive_rows());
	else
		(void) receive_rows();
	return true;
}
