/*
 * client/row_message.h
 *	  The message of a row (DataRow) whose large values are streamed.
 */
#ifndef BLOB_ROW_MESSAGE_H
#define BLOB_ROW_MESSAGE_H

#include "postgres.h"

#include "executor/tuptable.h"

/* How the rows of a query are sent. */
typedef struct BlobRowFormat BlobRowFormat;

/*
 * desc: the description of the rows that the client has got; formats: the codes of the protocol,
 * one for each column, or NULL (all text).  Both must outlive the result, which is made in the
 * current memory context.
 */
extern BlobRowFormat *blob_row_format_make(Oid blob_type, TupleDesc desc, const int16 *formats);

/*
 * Send a row to the client, if it has a value that is to be streamed; else false, and nothing was
 * sent.  All values of the slot must be there.  Allocates in the current memory context, which
 * should be short-lived.  ERROR as for output functions and reads, before anything was sent;
 * afterwards FATAL.
 */
extern bool blob_row_message_send(BlobRowFormat *format, TupleTableSlot *slot);

/* Has the row a value that may be streamed?  Cheap, allocates nothing. */
extern bool blob_row_message_is_wanted(const BlobRowFormat *format, TupleTableSlot *slot);

/*
 * One of our functions has made this result.  If it comes to the client as it is, and is large, it
 * is sent from where it lies, without a copy.  (Results of others' functions are none of our
 * business.)
 */
extern void blob_row_message_note_result(const bytea *result);

#endif							/* BLOB_ROW_MESSAGE_H */
