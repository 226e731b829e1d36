/*
 * client/wire.c
 *	  Messages that are sent while they are being made, see client/wire.h.
 *
 * The server's own send buffer ends in secure_write().  That function knows TLS and GSSAPI, and
 * waits for the client.  If the process is asked to die while the client does not read, it ends the
 * process.  The protocol: PostgreSQL documentation, "Message Formats".
 */
#include "postgres.h"

/* GSSAPI's headers may be missing; struct Port has the same layout without them. */
#undef ENABLE_GSS

#include "client/wire.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

/*
 * Room for bytes of a message that precede a piece of content, so that the piece need not be
 * shorter.
 */
#define SLACK_BYTES (16 * 1024)
#define BUFFER_BYTES (BLOB_WIRE_ROOM_BYTES + SLACK_BYTES)

static const PQcommMethods *server_methods = NULL;
static bool (*server_receive_slot) (TupleTableSlot *slot, DestReceiver *self) = NULL;

/* The message in progress.  The buffer is allocated once per process that needs it. */
static char *buffer = NULL;
static Size used_bytes;			/* used part of the buffer */
static uint64 left_bytes;		/* of the message, not in the buffer yet */
static bool is_open;
static bool is_lost;

void
blob_wire_init(void)
{
	DestReceiver *receiver = CreateDestReceiver(DestRemote);

	server_methods = PqCommMethods;
	server_receive_slot = receiver->receiveSlot;
	receiver->rDestroy(receiver);
}

pg_attribute_hot bool
blob_wire_is_of_server(const DestReceiver *receiver)
{
	return receiver->receiveSlot == server_receive_slot;
}

bool
blob_wire_is_usable(void)
{
	return whereToSendOutput == DestRemote && MyProcPort != NULL &&
		PqCommMethods == server_methods && !ClientConnectionLost;
}

bool
blob_wire_is_open(void)
{
	return is_open;
}

bool
blob_wire_is_lost(void)
{
	return is_lost;
}

/*
 * Lose the connection as the server does for its own buffer: the next service of interrupts ends
 * the session.
 */
static void
lose_connection(int error)
{
	is_lost = true;
	ClientConnectionLost = 1;
	InterruptPending = 1;
	errno = error;
	ereport(COMMERROR,
			(errcode_for_socket_access(),
			 errmsg("could not send data to client: %m")));
}

/* Send what the server has in its own buffer, which precedes the message. */
static void
open_message(void)
{
	if (pq_flush() != 0)
	{
		is_lost = true;			/* pq_flush() has done the same as lose_connection() */
		return;
	}
	is_open = true;
	/* No notice may get into the middle of the message. */
	whereToSendOutput = DestNone;
}

/*
 * Write to the connection.  The only interrupt that is served here is a request to die, while the
 * process waits for the client.
 */
static void
send_bytes(const char *data, Size bytes)
{
	Size		sent = 0;

	if (!is_open && !is_lost)
		open_message();
	while (sent < bytes && !is_lost)
	{
		ssize_t		result = secure_write(MyProcPort, unconstify(char *, data + sent),
										  bytes - sent);

		if (result > 0)
			sent += result;
		else if (errno != EINTR)
			lose_connection(errno);
	}
}

static void
send_buffer(void)
{
	send_bytes(buffer, used_bytes);
	used_bytes = 0;
}

void
blob_wire_begin(char type, uint32 length_bytes)
{
	uint32		length = pg_hton32(length_bytes);

	Assert(!is_open);
	if (buffer == NULL)
		buffer = MemoryContextAlloc(TopMemoryContext, BUFFER_BYTES);
	used_bytes = 0;
	is_lost = false;
	left_bytes = (uint64) length_bytes + 1;
	blob_wire_append(&type, 1);
	blob_wire_append((char *) &length, sizeof(length));
}

char *
blob_wire_room(void)
{
	if (BUFFER_BYTES - used_bytes < BLOB_WIRE_ROOM_BYTES)
		send_buffer();
	return buffer + used_bytes;
}

static void
count_bytes(Size bytes)
{
	if (bytes > left_bytes)
		elog(ERROR, "message to the client is longer than announced");
	left_bytes -= bytes;
}

void
blob_wire_advance(Size bytes)
{
	count_bytes(bytes);
	used_bytes += bytes;
	if (used_bytes >= BLOB_WIRE_ROOM_BYTES)
		send_buffer();
}

/*
 * Bytes that do not fit into the buffer are sent from where they lie.  If the buffer is nearly
 * empty, some of them go into it first, since a short write of its own would cost more.
 */
void
blob_wire_append(const char *data, Size bytes)
{
	Size		buffered = bytes;

	if (bytes > BUFFER_BYTES - used_bytes)
		buffered = used_bytes < SLACK_BYTES ? SLACK_BYTES - used_bytes : 0;
	memcpy(buffer + used_bytes, data, buffered);
	blob_wire_advance(buffered);
	if (buffered == bytes)
		return;
	send_buffer();
	count_bytes(bytes - buffered);
	send_bytes(data + buffered, bytes - buffered);
}

void
blob_wire_end(void)
{
	if (left_bytes > 0 && !is_lost)
		elog(ERROR, "message to the client is shorter than announced");
	send_buffer();
	if (is_open && !is_lost)
		whereToSendOutput = DestRemote;
	is_open = false;
	/* Without a client, the server's main loop would read standard input. */
	if (is_lost)
		CHECK_FOR_INTERRUPTS();
}

void
blob_wire_fail(void)
{
	EmitErrorReport();
	FlushErrorState();
	ereport(FATAL,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("terminating connection because a value could not be read to its end"),
			 errdetail("The message to the client could not be completed.")));
}
