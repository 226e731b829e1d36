/*
 * writing/ahead.c
 *	  Content of a large file goes to the server while the program writes it, see ahead.h.
 *
 * The thread reads the spool file by a descriptor of its own, and never looks at the copy.  It
 * reads bytes below a limit only.  A write of such bytes notes that, under the copy's lock
 * (SENT_CHANGED), and the transaction is rolled back.
 *
 * Locks: that of a copy, then this one.  The thread has none while it waits for the server.
 */
#include "writing/ahead.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/query.h"
#include "writing/copy.h"
#include "writing/spool.h"
#include "writing/upload.h"

enum
{
	/* Smaller files are sent by one statement, or nearly as fast. */
	AHEAD_BYTES = 8 * 1024 * 1024,
	/* A transaction must not stay open for a program that pauses: one MB in this time. */
	PATIENCE_MILLISECONDS = 250
};

enum state
{
	FREE,						/* of no copy, without a connection */
	SENDING,					/* for the copy */
	ENDING						/* the thread rolls back, then FREE */
};

struct ahead
{
	struct writer *writer;
	pthread_t	thread;
	bool		has_thread;
	pthread_mutex_t lock;		/* of all below, but what the thread has while it is busy */
	pthread_cond_t work;
	pthread_cond_t done;
	bool		stopping;
	bool		is_busy;		/* the thread has the connection, file, upload and sent bytes */
	enum state	state;
	const struct copy *copy;	/* compared only; NULL unless SENDING */
	int			file;			/* the spool file's, of its own; -1: none */
	int64_t		limit;			/* bytes that may be sent */
	int64_t		sent_bytes;
	struct connection *connection;	/* NULL: none yet */
	int64_t		upload;
	char	   *piece;
};

struct ahead *
ahead_create(struct writer *writer)
{
	struct ahead *ahead = allocate(sizeof(*ahead));

	ahead->writer = writer;
	ahead->file = -1;
	ahead->piece = allocate(UPLOAD_PIECE_BYTES);
	pthread_mutex_init(&ahead->lock, NULL);
	init_condition(&ahead->work);
	init_condition(&ahead->done);
	return ahead;
}

/* ---- the thread ---- */

/* A connection, a transaction and an upload in it; false: not now. */
static bool
begin(struct ahead *ahead)
{
	struct writer *writer = ahead->writer;
	char		sqlstate[6];

	if (!pool_take_spare(writer->source->pool, &ahead->connection))
		return false;
	return transaction_begin(writer->transactions, ahead->connection) == 0 &&
		upload_begin(ahead->connection, &writer->calls, 0, &ahead->upload, sqlstate) == 0;
}

static bool
send_piece(struct ahead *ahead)
{
	char		sqlstate[6];

	if (ahead->connection == NULL && !begin(ahead))
		return false;
	if (spool_read_file(ahead->file, ahead->sent_bytes, UPLOAD_PIECE_BYTES, ahead->piece) != 0 ||
		upload_write(ahead->connection, &ahead->writer->calls, ahead->upload, ahead->piece,
					 UPLOAD_PIECE_BYTES, sqlstate) != 0)
		return false;
	ahead->sent_bytes += UPLOAD_PIECE_BYTES;
	return true;
}

static void
roll_back(struct ahead *ahead)
{
	if (ahead->connection != NULL)
		transaction_abandon(ahead->connection);
	ahead->connection = NULL;
	close(ahead->file);
	ahead->file = -1;
}

/* Under the lock. */
static void
end(struct ahead *ahead)
{
	ahead->state = ENDING;
	ahead->copy = NULL;
	pthread_cond_signal(&ahead->work);
}

/* Under the lock, which is given up meanwhile. */
static void
work(struct ahead *ahead)
{
	bool		is_ending = ahead->state == ENDING;
	bool		good = true;

	ahead->is_busy = true;
	pthread_mutex_unlock(&ahead->lock);
	if (is_ending)
		roll_back(ahead);
	else
		good = send_piece(ahead);
	pthread_mutex_lock(&ahead->lock);
	ahead->is_busy = false;
	if (is_ending)
		ahead->state = FREE;
	else if (!good)
		end(ahead);
	pthread_cond_broadcast(&ahead->done);
}

/* Under the lock, until there may be something to do. */
static void
wait_for_work(struct ahead *ahead)
{
	struct timespec until = deadline(PATIENCE_MILLISECONDS);
	int64_t		limit = ahead->limit;

	if (ahead->state == FREE)
		pthread_cond_wait(&ahead->work, &ahead->lock);
	else if (pthread_cond_timedwait(&ahead->work, &ahead->lock, &until) != 0 &&
			 ahead->state == SENDING && ahead->limit == limit)
		end(ahead);
}

/* It ends with the transaction, which no commit has taken, rolled back. */
static void *
run_thread(void *argument)
{
	struct ahead *ahead = argument;

	pthread_mutex_lock(&ahead->lock);
	while (!ahead->stopping || ahead->state != FREE)
	{
		if (ahead->stopping && ahead->state == SENDING)
			end(ahead);
		if (ahead->state == ENDING || (ahead->state == SENDING &&
									   ahead->limit - ahead->sent_bytes >= UPLOAD_PIECE_BYTES))
			work(ahead);
		else
			wait_for_work(ahead);
	}
	pthread_mutex_unlock(&ahead->lock);
	return NULL;
}

void
ahead_start(struct ahead *ahead)
{
	if (pthread_create(&ahead->thread, NULL, run_thread, ahead) != 0)
		fatal("no thread: %m");
	ahead->has_thread = true;
}

void
ahead_destroy(struct ahead *ahead)
{
	pthread_mutex_lock(&ahead->lock);
	ahead->stopping = true;
	pthread_cond_signal(&ahead->work);
	pthread_mutex_unlock(&ahead->lock);
	if (ahead->has_thread)
		pthread_join(ahead->thread, NULL);
	free(ahead->piece);
	free(ahead);
}

/* ---- threads that have the copy's lock ---- */

/*
 * Bytes from the beginning on that a commit would send by an upload of all; 0: there is none.
 * Nothing in a group, whose transaction is another one, and has one connection only.
 */
static int64_t
bytes_to_send(const struct copy *copy)
{
	const struct working *working = &copy->working;

	if (copy->is_removed || copy->node->attributes.snapshot != 0 || working->kept > 0 ||
		working->appended || working->size < AHEAD_BYTES || working->dirty.count == 0 ||
		working->dirty.items[0].start != 0 || working->spool.file < 0)
		return 0;
	return working->dirty.items[0].end / UPLOAD_PIECE_BYTES * UPLOAD_PIECE_BYTES;
}

/* Under the lock: the first bytes of a copy, if no other one is being sent. */
static void
begin_copy(struct ahead *ahead, const struct copy *copy)
{
	if (ahead->state != FREE || ahead->stopping)
		return;
	ahead->file = fcntl(copy->working.spool.file, F_DUPFD_CLOEXEC, 0);
	if (ahead->file < 0)
		return;
	ahead->state = SENDING;
	ahead->copy = copy;
	ahead->sent_bytes = 0;
}

void
ahead_note(struct ahead *ahead, struct copy *copy)
{
	int64_t		bytes = bytes_to_send(copy);

	if (copy->working.sent == SENT_CHANGED)
		ahead_drop(ahead, copy);
	if (copy->working.sent == SENT_CHANGED || bytes <= copy->working.sent)
		return;
	pthread_mutex_lock(&ahead->lock);
	if (copy->working.sent == 0)
		begin_copy(ahead, copy);
	if (ahead->copy == copy)
	{
		copy->working.sent = ahead->limit = bytes;
		if (!ahead->is_busy)
			pthread_cond_signal(&ahead->work);
	}
	pthread_mutex_unlock(&ahead->lock);
}

bool
ahead_take(struct ahead *ahead, struct copy *copy, struct sent *sent)
{
	bool		is_taken;

	if (copy->working.sent == SENT_CHANGED)
		ahead_drop(ahead, copy);
	pthread_mutex_lock(&ahead->lock);
	while (ahead->copy == copy && ahead->is_busy)
		pthread_cond_wait(&ahead->done, &ahead->lock);
	is_taken = ahead->copy == copy && ahead->connection != NULL;
	if (is_taken)
	{
		*sent = (struct sent) {ahead->connection, ahead->upload, ahead->sent_bytes};
		ahead->connection = NULL;
	}
	if (ahead->copy == copy)
		end(ahead);
	pthread_mutex_unlock(&ahead->lock);
	return is_taken;
}

void
ahead_drop(struct ahead *ahead, const struct copy *copy)
{
	pthread_mutex_lock(&ahead->lock);
	if (ahead->copy == copy)
		end(ahead);
	pthread_mutex_unlock(&ahead->lock);
}
