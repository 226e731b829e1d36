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
 * Make the format of a query's rows. desc: the row description that the client was sent. formats:
 * the codes of the protocol, one for each column, or NULL (all text).  Both must outlive the
 * result, which is allocated in the current memory context.
 */
extern BlobRowFormat *blob_row_format_make(Oid blob_type, TupleDesc desc, const int16 *formats);

/*
 * Send a row to the client if it has a value to stream; else return false, and send nothing.  All
 * values of the slot must be there.  Allocates in the current memory context, which should be
 * short-lived.  Errors of output functions and of reads are ERROR before the first byte was sent,
 * FATAL afterwards.
 */
extern bool blob_row_message_send(BlobRowFormat *format, TupleTableSlot *slot);

/* Whether the row has a value that may be streamed.  Cheap, allocates nothing. */
extern bool blob_row_message_is_wanted(const BlobRowFormat *format, TupleTableSlot *slot);

/*
 * Note a result that one of our functions has made.  If it reaches the client unchanged, and is
 * large, it is sent from where it lies, without a copy.  (Results of other functions are sent by
 * the server.)
 */
extern void blob_row_message_note_result(const bytea *result);

#endif							/* BLOB_ROW_MESSAGE_H */
