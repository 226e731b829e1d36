/*
 * bench/load/changes.c
 *	  Changes of parts of one large value: EOS's mix, overwrites, insertions.
 *
 * Value 0 has options.size_bytes and is changed.  Value 1 is small, and gets the changes of the
 * warm-up.  A contender goes through the same changes as the others, however far it comes.
 *
 * The mix is that of EOS and EXODUS: 40 % reads, 30 % insertions, 30 % deletions, at random
 * offsets, of sizes from half to one and a half of the mean.  Each deletion takes out as many bytes
 * as the insertion before it has put in, so the value keeps its size.
 */
#include "load.h"

#define SMALL_BYTES (64 * 1024)
#define READ_PERCENT 40

/* PostgreSQL plans the first five executions for their parameters; they are not measured. */
#define WARM_UP_CHANGES 6

/* ---- making ---- */

/* Store the first piece, which has a remainder, and append the others. */
void
make_values(Session *session)
{
	long		done = (options.size_bytes - 1) % options.piece_bytes + 1;

	session->driver->store(session, 0, payload_of(0, 0), done);
	for (long version = 1; done < options.size_bytes; version++)
	{
		session->driver->append(session, 0, done, payload_of(0, version));
		done += options.piece_bytes;
	}
	session->driver->store(session, 1, payload_of(1, 0), SMALL_BYTES);
}

/* ---- changes ---- */

static long
draw_below(Changed *value, long limit)
{
	return (long) (draw(&value->random) % (uint64_t) limit);
}

static const char *
draw_payload(Changed *value)
{
	return payload_of((long) (draw(&value->random) % SHIFT_BYTES), 0);
}

static void
insert(Session *session, Changed *value, long offset, long size_bytes)
{
	session->driver->splice(session, value->id, offset, 0, draw_payload(value), size_bytes);
	value->size_bytes += size_bytes;
	value->inserted_bytes = size_bytes;
}

static void
take_out(Session *session, Changed *value)
{
	long		size_bytes = value->inserted_bytes;
	long		offset = draw_below(value, value->size_bytes - size_bytes + 1);

	session->driver->splice(session, value->id, offset, size_bytes, "", 0);
	value->size_bytes -= size_bytes;
	value->inserted_bytes = 0;
}

static void
read_part(Session *session, Changed *value, long size_bytes)
{
	long		offset = draw_below(value, value->size_bytes);
	long		left = value->size_bytes - offset;
	long		got = session->driver->read_part(session, value->id, offset, size_bytes);

	if (got != (size_bytes < left ? size_bytes : left))
		fail("%s: a read of %ld bytes got %ld", session->contender, size_bytes, got);
}

static void
mix(Session *session, Changed *value)
{
	bool		is_read = draw_below(value, 100) < READ_PERCENT;
	long		size_bytes = options.piece_bytes / 2 + draw_below(value, options.piece_bytes + 1);

	if (is_read)
		read_part(session, value, size_bytes);
	else if (value->inserted_bytes > 0)
		take_out(session, value);
	else
		insert(session, value, draw_below(value, value->size_bytes + 1), size_bytes);
}

/* Pieces are aligned, as those of file systems and databases. */
static void
overwrite(Session *session, Changed *value)
{
	long		piece_no = draw_below(value, value->size_bytes / options.piece_bytes);

	session->driver->write_part(session, value->id, piece_no * options.piece_bytes,
								draw_payload(value), options.piece_bytes);
}

static void
change(Session *session, Changed *value)
{
	if (options.operation == OP_MIX)
		mix(session, value);
	else if (options.operation == OP_OVERWRITE)
		overwrite(session, value);
	else
		insert(session, value, value->size_bytes / 2, options.piece_bytes);
}

void
do_change(Session *session)
{
	change(session, &session->changed);
}

/* Warm up, and look how large the value is. */
void
begin_changes(Session *session)
{
	Changed		small = {.id = 1};

	small.size_bytes = session->driver->size(session, 1);
	for (int i = 0; i < WARM_UP_CHANGES && !options.is_unwarmed; i++)
		change(session, &small);
	session->changed = (Changed) {.random = (uint64_t) options.first_round};
	session->changed.size_bytes = session->driver->size(session, 0);
}

/* Bring the value back to its size, and see that it has it. */
void
end_changes(Session *session)
{
	Changed    *value = &session->changed;
	long		size_bytes;

	if (options.operation == OP_MIX && value->inserted_bytes > 0)
		take_out(session, value);
	size_bytes = session->driver->size(session, 0);
	if (size_bytes != value->size_bytes)
		fail("%s: the value has %ld bytes, not %ld", session->contender, size_bytes,
			 value->size_bytes);
}
