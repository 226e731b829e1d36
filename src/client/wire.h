/*
 * client/wire.h
 *	  A message to the client that is sent while it is being made.
 *
 * pq_endmessage() takes a message as a whole, in memory.  These functions take its length and then
 * its bytes, and write them to the connection, past the server's send buffer.  There is one message
 * at a time.  README.md in this folder defines what holds while it is *open*, that is partly sent.
 */
#ifndef BLOB_WIRE_H
#define BLOB_WIRE_H

#include "postgres.h"

#include "core/compat.h"
#include "tcop/dest.h"

/* Remember the server's own functions for sending messages and rows; called from _PG_init. */
extern void blob_wire_init(void);

/* Is this the server's own receiver of rows for the client, which no extension has replaced? */
extern bool blob_wire_is_of_server(const DestReceiver *receiver);

/* Can this process send messages with these functions? */
extern bool blob_wire_is_usable(void);

/*
 * Begin a message with this type and length.  The length is the protocol's: it counts itself, but
 * not the type.  Nothing is sent yet, and an unfinished message is forgotten.
 */
extern void blob_wire_begin(char type, uint32 length_bytes);

extern void blob_wire_append(const char *data, Size bytes);

/*
 * Where the next bytes of the message can be made in place: room for at least BLOB_WIRE_ROOM_BYTES,
 * unless the message ends before. blob_wire_advance() takes the number of bytes that were made.  A
 * message shorter than that is sent by blob_wire_end() alone.
 */
#define BLOB_WIRE_ROOM_BYTES (256 * 1024)
extern char *blob_wire_room(void);
extern void blob_wire_advance(Size bytes);

/* Send the last bytes.  The message must have got as many bytes as blob_wire_begin() was told. */
extern void blob_wire_end(void);

/* Has a part of the message been sent?  Then an error must end the connection. */
extern bool blob_wire_is_open(void);

/*
 * Is the connection lost?  Then nothing is sent any more, and the server ends the session as soon
 * as it serves interrupts.
 */
extern bool blob_wire_is_lost(void);

/*
 * Log the current error and end the process; to be called in PG_CATCH of an error that occurred
 * while a message was open.
 */
pg_noreturn extern void blob_wire_fail(void);

#endif							/* BLOB_WIRE_H */
