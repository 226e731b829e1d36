/*
 * client/wire.h
 *	  A message to the client that is sent while it is being made.
 *
 * pq_endmessage() wants a message as a whole, in memory.  These functions want its length and then
 * its bytes, and write them to the connection, past the server's send buffer.  One message at a
 * time; README.md in this folder says what holds while it is *open*, that is partly sent.
 */
#ifndef BLOB_WIRE_H
#define BLOB_WIRE_H

#include "postgres.h"

#include "core/compat.h"
#include "tcop/dest.h"

/* Remember how the server sends messages when nobody else has a hand in it; from _PG_init. */
extern void blob_wire_init(void);

/* Whether this is the server's own receiver of rows for the client, and nobody's in its place. */
extern bool blob_wire_is_of_server(const DestReceiver *receiver);

/* Whether this process can send messages in that way. */
extern bool blob_wire_is_usable(void);

/*
 * Begin a message: its type, and its length as the protocol counts it (without the type, with the
 * length itself).  Nothing is sent yet, and an unfinished message is forgotten.
 */
extern void blob_wire_begin(char type, uint32 length_bytes);

extern void blob_wire_append(const char *data, Size bytes);

/*
 * Where the next bytes of the message can be made in place: at least BLOB_WIRE_ROOM_BYTES, unless
 * the message ends before.  blob_wire_advance() says how many there are now.  Shorter messages are
 * sent by blob_wire_end() alone.
 */
#define BLOB_WIRE_ROOM_BYTES (256 * 1024)
extern char *blob_wire_room(void);
extern void blob_wire_advance(Size bytes);

/* Send what is left.  The message must have got as many bytes as was promised. */
extern void blob_wire_end(void);

/* Whether a part of the message has been sent: then an error must end the connection. */
extern bool blob_wire_is_open(void);

/*
 * The connection is lost: nothing is sent any more, and the server ends the session as soon as it
 * serves interrupts.
 */
extern bool blob_wire_is_lost(void);

/*
 * To be called in PG_CATCH of an error that happened while a message was open: logs it, and ends
 * the process.
 */
pg_noreturn extern void blob_wire_fail(void);

#endif							/* BLOB_WIRE_H */
