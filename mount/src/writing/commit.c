/*
 * writing/commit.c
 *	  Commits of working copies, see mount/WRITING.md, "Commits".
 *
 * The changes become one transaction: all content at once, or streamed; only the new bytes
 * if they were appended; else a patch of the changed ranges.  It is first sent for the version that
 * the working copy is based on.  If the row has another one, a commit is sent for the row as it is
 * now ("last close wins"), and the mount begins anew with what the row has then.
 */
#include "writing/commit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/query.h"
#include "kernel/notify.h"
#include "writing/ahead.h"
#include "writing/copies.h"
#include "writing/making.h"
#include "writing/upload.h"

enum
{
	/* Up to this, content is a parameter of one statement. */
	STATEMENT_BYTES = 8 * 1024 * 1024,
	/* More in a patch than this, and the whole content is sent. */
	PATCH_BYTES = 32 * 1024 * 1024,
	/* More bytes or ranges in the spool file than this are dropped after a commit. */
	SPOOL_BYTES = 256 * 1024 * 1024,
	SPOOL_SPANS = WORKING_SPANS / 10
};

struct commit
{
	struct writer *writer;
	struct copy *copy;
	bool		is_exact;		/* for the base's version only */
	int64_t		known;			/* 0: whatever the row has */
	struct sent sent;			/* upload 0: nothing was sent ahead */
};

/* ---- parameters ---- */

/* The first three of each call: the inode, the version that its row shall have, and how exactly. */
static void
begin_parameters(struct parameters *parameters, const struct commit *commit)
{
	parameter_int8(parameters, (int64_t) commit->copy->node->attributes.ino);
	if (commit->known != 0)
		parameter_int8(parameters, commit->known);
	else
		parameter_null(parameters);
	parameter_bool(parameters, commit->is_exact);
}

/* The offsets and the pieces of a patch; the caller frees both. */
static int
make_arrays(const struct commit *commit, char **offsets, size_t *offsets_length, char **pieces,
			size_t *pieces_length)
{
	const struct spans *changes = &commit->copy->working.dirty;
	char	   *offset;
	char	   *piece;
	int			error = 0;

	*offsets_length = ARRAY_BYTES(changes->count, changes->count * sizeof(int64_t));
	*pieces_length = ARRAY_BYTES(changes->count, spans_bytes(changes));
	*offsets = allocate(*offsets_length);
	*pieces = allocate(*pieces_length);
	offset = array_begin(*offsets, OID_INT8, (uint32_t) changes->count);
	piece = array_begin(*pieces, OID_BYTEA, (uint32_t) changes->count);
	for (int i = 0; i < changes->count && error == 0; i++)
	{
		const struct span *span = &changes->items[i];
		size_t		length = (size_t) (span->end - span->start);

		offset = array_add_int8(offset, span->start);
		piece = array_add(piece, (uint32_t) length);
		error = working_read_spool(&commit->copy->working, span->start, length, piece);
		piece += length;
	}
	return error;
}

/* ---- the four kinds of a commit; each is a transaction_step ---- */

/* All content, for nothing of the base is kept. */
static int
step_whole(struct transaction *transaction, void *context)
{
	struct commit *commit = context;
	struct copy *copy = commit->copy;
	size_t		size = (size_t) copy->working.size;
	char	   *content;
	struct parameters parameters = {0};
	int			error = working_get_spool(&copy->working, size, &content);

	begin_parameters(&parameters, commit);
	parameter_bytes(&parameters, content, size);
	parameter_int8(&parameters, nanoseconds(copy->mtime));
	if (error == 0)
		error = transaction_call(transaction, commit->writer->calls.write, &parameters);
	free(content);
	return error;
}

/* The new bytes, which go to the end of the content that the row has. */
static int
step_append(struct transaction *transaction, void *context)
{
	struct commit *commit = context;
	struct copy *copy = commit->copy;
	size_t		size = (size_t) (copy->working.size - copy->working.server_size);
	char	   *data = allocate(size);
	struct parameters parameters = {0};
	int			error = working_read_spool(&copy->working, copy->working.server_size, size,
										   data);

	begin_parameters(&parameters, commit);
	parameter_bytes(&parameters, data, size);
	parameter_int8(&parameters, nanoseconds(copy->mtime));
	if (error == 0)
		error = transaction_call(transaction, commit->writer->calls.append, &parameters);
	free(data);
	return error;
}

/* The ranges, at their offsets; how much of the base is kept; the size. */
static int
step_patch(struct transaction *transaction, void *context)
{
	struct commit *commit = context;
	struct copy *copy = commit->copy;
	struct parameters parameters = {0};
	char	   *offsets;
	char	   *pieces;
	size_t		offsets_length;
	size_t		pieces_length;
	int			error = make_arrays(commit, &offsets, &offsets_length, &pieces, &pieces_length);

	begin_parameters(&parameters, commit);
	if (copy->working.kept < copy->working.server_size)
		parameter_int8(&parameters, copy->working.kept);
	else
		parameter_null(&parameters);
	parameter_bytes(&parameters, offsets, offsets_length);
	parameter_bytes(&parameters, pieces, pieces_length);
	/* Ranges inside of a file leave the size as it is, which may have grown meanwhile. */
	if (copy->working.size == copy->working.server_size &&
		copy->working.kept == copy->working.server_size)
		parameter_null(&parameters);
	else
		parameter_int8(&parameters, copy->working.size);
	parameter_int8(&parameters, nanoseconds(copy->mtime));
	if (error == 0)
		error = transaction_call(transaction, commit->writer->calls.patch, &parameters);
	free(offsets);
	free(pieces);
	return error;
}

static int
step_truncate(struct transaction *transaction, void *context)
{
	struct commit *commit = context;
	struct copy *copy = commit->copy;
	struct parameters parameters = {0};

	begin_parameters(&parameters, commit);
	parameter_int8(&parameters, copy->working.size);
	parameter_int8(&parameters, nanoseconds(copy->mtime));
	return transaction_call(transaction, commit->writer->calls.truncate, &parameters);
}

/* ---- content that is streamed ---- */

/* Send the bytes from an offset on, piece by piece. */
static int
send_content(struct transaction *transaction, struct commit *commit, int64_t upload, int64_t offset)
{
	struct working *working = &commit->copy->working;
	char	   *piece = allocate(UPLOAD_PIECE_BYTES);
	int			error = 0;

	while (offset < working->size && error == 0)
	{
		int64_t		rest = working->size - offset;
		size_t		length = (size_t) (rest < UPLOAD_PIECE_BYTES ? rest : UPLOAD_PIECE_BYTES);

		error = working_read_spool(working, offset, length, piece);
		if (error == 0)
			error = upload_write(transaction->connection, &commit->writer->calls, upload, piece,
								 length, transaction->sqlstate);
		offset += (int64_t) length;
	}
	free(piece);
	return error;
}

/* The upload becomes the content of the row. */
static int
end_upload(struct transaction *transaction, struct commit *commit, int64_t upload)
{
	struct parameters parameters = {0};

	begin_parameters(&parameters, commit);
	parameter_int8(&parameters, upload);
	parameter_int8(&parameters, nanoseconds(commit->copy->mtime));
	return transaction_call(transaction, commit->writer->calls.write_upload, &parameters);
}

/* The first attempt goes on with the upload that was begun ahead, in the same transaction. */
static int
step_upload(struct transaction *transaction, void *context)
{
	struct commit *commit = context;
	struct sent sent = commit->sent;
	int			error = 0;

	commit->sent = (struct sent) {0};
	if (sent.upload == 0)
		error = upload_begin(transaction->connection, &commit->writer->calls,
							 commit->copy->working.size, &sent.upload, transaction->sqlstate);
	if (error == 0)
		error = send_content(transaction, commit, sent.upload, sent.bytes);
	if (error == 0)
		error = end_upload(transaction, commit, sent.upload);
	return error;
}

/*
 * Lock the row by an append of nothing, which compares its version, and go on from the content that
 * it has.
 */
static int
step_append_upload(struct transaction *transaction, void *context)
{
	struct commit *commit = context;
	struct copy *copy = commit->copy;
	struct commit rest = *commit;
	struct parameters lock = {0};
	struct parameters resume = {0};
	PGresult   *result;
	int64_t		upload;
	int			error;

	begin_parameters(&lock, commit);
	error = query_on(transaction->connection, commit->writer->calls.lock_row, &lock, &result,
					 transaction->sqlstate);
	if (error != 0)
		return error;
	transaction->outcome->status = field_int4(result, 0, 0);
	transaction->outcome->has_version = !field_is_null(result, 0, 1);
	if (!field_has_length(result, 0, 0, 4))
		error = EIO;
	rest.known = field_int8(result, 0, 1);
	rest.is_exact = true;
	PQclear(result);
	if (error != 0 || transaction->outcome->status != 0)
		return error;
	parameter_int8(&resume, (int64_t) copy->node->attributes.ino);
	parameter_int8(&resume, copy->working.size - copy->working.server_size);
	error = upload_query(transaction->connection, commit->writer->calls.upload_resume, &resume,
						 &upload, transaction->sqlstate);
	if (error == 0)
		error = send_content(transaction, &rest, upload, copy->working.server_size);
	if (error == 0)
		error = end_upload(transaction, &rest, upload);
	return error;
}

/* ---- the commit ---- */

static bool
is_append(const struct working *working)
{
	return working->appended && working->kept == working->server_size &&
		working->size > working->server_size && working->dirty.count == 1 &&
		working->dirty.items[0].start == working->server_size;
}

/*
 * How to send the changes.  NULL: the base must be in the spool file first, because so much has
 * changed that all content is sent.
 */
static transaction_step
choose_step(const struct commit *commit)
{
	const struct working *working = &commit->copy->working;
	bool		is_small = working->size - working->server_size <= STATEMENT_BYTES;

	if (is_append(working))
		return is_small ? step_append : step_append_upload;
	if (working->kept == 0 && working->size <= STATEMENT_BYTES)
		return step_whole;
	if (working->kept == 0)
		return step_upload;
	if (working->dirty.count == 0 &&
		(working->kept >= working->size || working->kept >= working->server_size))
		return step_truncate;
	if (spans_bytes(&working->dirty) <= PATCH_BYTES)
		return step_patch;
	return NULL;
}

/*
 * Whether a commit for a row of another version may replace or change that one.  A row that is
 * older than the version that the mount knows has lost changes in a crash of the server: only all
 * content may go there.  The other version may be that of an earlier attempt whose outcome is
 * unknown: then bytes that were appended may be in it.
 */
static bool
goes_to_current(const struct commit *commit, const struct outcome *outcome, transaction_step step)
{
	if (commit->copy->is_doubtful && (step == step_append || step == step_append_upload))
		return false;
	if (outcome->status == EBUSY)
		return !commit->writer->fails_on_conflict;
	return outcome->status == ESTALE && outcome->has_version &&
		(step == step_whole || step == step_upload);
}

/* In the transaction in which content was sent ahead, if there is one. */
static int
run_first(struct commit *commit, transaction_step step, bool is_single, struct outcome *outcome)
{
	struct writer *writer = commit->writer;

	if (step == step_upload && ahead_take(writer->ahead, commit->copy, &commit->sent))
		return transaction_finish(writer->transactions, commit->sent.connection, step, commit,
								  true, outcome);
	ahead_drop(writer->ahead, commit->copy);
	return transaction_run(writer->transactions, step, commit, true, is_single, outcome);
}

/*
 * Send them for the version of the base; if the row has another one, for what it has, where that is
 * right.  *is_mixed: the row has other content than the copy then.  The copy's lock is held.
 */
static int
send_changes(struct commit *commit, struct outcome *outcome, bool *is_mixed)
{
	struct writer *writer = commit->writer;
	transaction_step step = choose_step(commit);
	bool		is_single = step == step_whole || step == step_append || step == step_patch ||
		step == step_truncate;
	int			error = 0;

	*is_mixed = false;
	if (step == NULL)
	{
		error = working_gather(&commit->copy->working, copy_read_base, commit->copy);
		step = step_upload;
	}
	commit->known = commit->copy->version;
	commit->is_exact = true;
	if (error == 0)
		error = run_first(commit, step, is_single, outcome);
	if (error == 0 && goes_to_current(commit, outcome, step))
	{
		if (outcome->status == ESTALE)
			commit->known = 0;
		commit->is_exact = false;
		*is_mixed = step != step_whole && step != step_upload;
		error = transaction_run(writer->transactions, step, commit, true, is_single, outcome);
	}
	if (error == 0 && outcome->status == EBUSY)
		return EIO;				/* conflict=fail, or doubtful */
	return error != 0 ? error : outcome->status;
}

/*
 * The commit was carried out, and its answer was lost.  The row may have changed again since, so
 * the mount begins anew with what it has.
 */
static int
look_again(struct commit *commit, struct outcome *outcome, bool *is_mixed)
{
	struct source *source = commit->writer->source;

	if (outcome->has_attributes)
		return 0;
	*is_mixed = true;
	return source->operations->getattr(source, commit->copy->node, &outcome->attributes);
}

/* The copy goes on after its commit, with what the row has then. */
static void
take_outcome(struct commit *commit, struct outcome *outcome, bool is_mixed)
{
	struct writer *writer = commit->writer;
	struct copy *copy = commit->copy;
	bool		was_open = copy->base_is_open;

	if (!is_mixed && copy->working.local.count <= SPOOL_SPANS &&
		spans_bytes(&copy->working.local) <= SPOOL_BYTES)
	{
		copy_committed(writer, copy, &outcome->attributes);
		return;
	}
	copy_set_base(writer, copy, &outcome->attributes);
	if (is_mixed)
		pages_drop(writer->pages, copy->node->id, 0, 0);
	if (was_open && copy_keep_base(copy) != 0)
		debug("inode %llu: the new version is gone already",
			  (unsigned long long) outcome->attributes.ino);
}

int
copy_commit(struct writer *writer, struct copy *copy)
{
	struct commit commit = {.writer = writer, .copy = copy};
	struct outcome outcome = {0};
	uint64_t	begun = writer_begun(writer);
	bool		is_mixed;
	int			error;

	if (copy->is_removed)
		return copy->is_given_up && (copy->working.changed || copy->birth != NULL) ? ESTALE : 0;
	if (copy->birth != NULL)
	{
		error = birth_make(writer, copy, copy->working.size <= STATEMENT_BYTES, true);
		if (error != 0)
			return error;
	}
	if (!copy->working.changed)
		return 0;
	error = send_changes(&commit, &outcome, &is_mixed);
	if (error == 0 && pool_bound() == NULL)
		writer_note_commit(writer, true, begun);
	outcome.attributes.snapshot = copy->node->attributes.snapshot;
	if (error == 0)
		notify_committed(writer->notifier);
	copy->is_doubtful |= error == 0 || outcome.is_unknown;
	if (error == 0)
		error = look_again(&commit, &outcome, &is_mixed);
	if (error == 0)
		take_outcome(&commit, &outcome, is_mixed);
	copy->is_doubtful &= error != 0;
	return error;
}

/* Read without the copy's lock: writers that come now are late. */
static bool
is_changed(const struct copy *copy)
{
	return (copy->working.changed || copy->birth != NULL) && !copy->is_removed;
}

int
copies_commit(struct writer *writer, int64_t snapshot)
{
	struct copy *copy;
	int			error = 0;

	while (error == 0 && (copy = copies_next(writer, snapshot, is_changed)) != NULL)
	{
		pthread_mutex_lock(&copy->lock);
		error = copy_commit(writer, copy);
		copy_unlock(writer, copy);
	}
	return error;
}
