/*
 * blob/upload.c
 *	  Values that several statements of one transaction write, see blob/upload.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "blob/blob.h"
#include "blob/upload.h"
#include "blob/writer.h"
#include "core/settings.h"
#include "extents/durability.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/memutils.h"

typedef struct Upload
{
	dlist_node	node;			/* in uploads */
	int64		upload_no;
	MemoryContext context;		/* of this struct and of its writer */
	Oid			owner;			/* the role that began it */
	SubTransactionId begun_in;	/* that would take the upload with it */
	SubTransactionId written_in;	/* that wrote last, and could be rolled back */
	bool		is_broken;		/* a write has failed, or was rolled back */
	BlobWriter *writer;			/* NULL once the value is complete */
	uint64		size_bytes;
	struct varlena *result;		/* once complete */
} Upload;

/*
 * Those of the current transaction: they have memory of a writer until they have ended, and then a
 * datum.  Of those that have ended the last ones can be ended again.
 */
static dlist_head uploads = DLIST_STATIC_INIT(uploads);

#define MAX_OPEN 100
#define MAX_ENDED 1000

/* Numbers are not used again, so that no call meets an upload that it does not mean. */
static int64 last_upload_no = 0;

/* ---- transactions ---- */

/* An upload that was not ended may be a mistake of the client, which believes it stored. */
static void
warn_of_unended(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &uploads)
	{
		const Upload *upload = dlist_container(Upload, node, iter.cur);

		if (upload->writer != NULL)
			ereport(WARNING,
					(errmsg("upload " INT64_FORMAT " was not ended: its content is discarded",
							upload->upload_no),
					 errdetail("An upload ends with its transaction.")));
	}
}

/* The memory of uploads goes with the transaction's. */
static void
at_transaction_event(XactEvent event, void *context)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			warn_of_unended();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			dlist_init(&uploads);
			break;
		default:
			break;				/* parallel workers have no uploads */
	}
}

static void
discard(Upload *upload)
{
	dlist_delete(&upload->node);
	MemoryContextDelete(upload->context);
}

/*
 * A subtransaction that is rolled back takes its uploads with it.  Bytes that it wrote to others
 * cannot be taken back: a client that writes them again would have them twice.  May be part of an
 * abort, so it must not fail.
 */
static void
at_subtransaction_event(SubXactEvent event, SubTransactionId id, SubTransactionId parent_id,
						void *context)
{
	dlist_mutable_iter iter;

	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;
	dlist_foreach_modify(iter, &uploads)
	{
		Upload	   *upload = dlist_container(Upload, node, iter.cur);
		bool		aborts = event == SUBXACT_EVENT_ABORT_SUB;

		if (upload->begun_in == id && aborts)
		{
			discard(upload);
			continue;
		}
		if (upload->begun_in == id)
			upload->begun_in = parent_id;
		if (upload->written_in == id)
		{
			upload->is_broken |= aborts;
			upload->written_in = parent_id;
		}
	}
}

static void
register_callbacks(void)
{
	static bool is_registered = false;

	if (is_registered)
		return;
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
	is_registered = true;
}

/* ---- limits ---- */

static bool
has_ended(const Upload *upload)
{
	return upload->result != NULL;
}

/*
 * Forget the oldest upload that has ended if there are too many, and return the number of the
 * others.  So memory and the time of a search have a limit.
 */
static int
tidy_up(void)
{
	Upload	   *oldest = NULL;
	int			open = 0;
	int			ended = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &uploads)
	{
		Upload	   *upload = dlist_container(Upload, node, iter.cur);

		if (!has_ended(upload))
			open++;
		else if (ended++ == 0)
			oldest = upload;
	}
	if (ended > MAX_ENDED)
		discard(oldest);
	return open;
}

static void
require_room(void)
{
	if (tidy_up() < MAX_OPEN)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("a transaction cannot have more than %d uploads at a time", MAX_OPEN),
			 errdetail("Each of them has memory until it is ended or given up."),
			 errhint("Call blob_upload_end() or blob_upload_abort() for uploads that are "
					 "complete or not needed.")));
}

/* ---- calls ---- */

int64
blob_upload_begin(const BlobValue *base, uint64 expected_bytes)
{
	MemoryContext context;
	MemoryContext old;
	Upload	   *upload;

	blob_require_allocation();
	require_room();
	register_callbacks();
	context = AllocSetContextCreate(TopTransactionContext, "blobext upload", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	upload = palloc0(sizeof(Upload));
	upload->context = context;
	upload->owner = GetUserId();
	upload->begun_in = upload->written_in = GetCurrentSubTransactionId();
	/* In the list before anything can fail: a subtransaction takes the memory with it, then. */
	upload->is_broken = true;
	upload->upload_no = ++last_upload_no;
	dlist_push_tail(&uploads, &upload->node);
	upload->writer = base == NULL ? blob_writer_begin(expected_bytes,
																	  blob_default_method()) :
		blob_writer_grow(base, base->size_bytes, expected_bytes);
	upload->size_bytes = base == NULL ? 0 : base->size_bytes;
	upload->is_broken = false;
	MemoryContextSwitchTo(old);
	return upload->upload_no;
}

/*
 * Find an upload by its number.  A function with the rights of another role may use uploads, too,
 * and may call code of others in between.  So a number alone is not enough.
 */
static Upload *
find_upload(int64 upload_no)
{
	dlist_iter	iter;

	/* The one that was begun last is looked for most often. */
	dlist_reverse_foreach(iter, &uploads)
	{
		Upload	   *upload = dlist_container(Upload, node, iter.cur);

		if (upload->upload_no != upload_no)
			continue;
		if (upload->owner != GetUserId())
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("upload " INT64_FORMAT " belongs to another role", upload_no)));
		return upload;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("there is no upload " INT64_FORMAT " in this transaction", upload_no),
			 errhint("An upload ends with the transaction, or the savepoint, that began it: call "
					 "blob_upload_begin() and all that follows between BEGIN and COMMIT.")));
}

/* Find an upload that can go on. */
static Upload *
find_sound_upload(int64 upload_no)
{
	Upload	   *upload = find_upload(upload_no);

	if (upload->is_broken)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("upload " INT64_FORMAT " cannot go on", upload_no),
				 errdetail("A call of it has failed, or was rolled back to a savepoint, so the "
						   "content that it has is unknown."),
				 errhint("Begin another upload.")));
	return upload;
}

void
blob_upload_refuse_null(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("upload and data must not be null")));
}

/*
 * Whichever error comes, the upload is broken then.  An error that leaves the transaction alive is
 * one of a subtransaction.
 */
static Upload *
begin_write(int64 upload_no)
{
	Upload	   *upload = find_sound_upload(upload_no);

	if (upload->writer == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("upload " INT64_FORMAT " has ended", upload_no),
				 errhint("blob_upload_resume() begins an upload that continues a value.")));
	upload->is_broken = true;
	upload->written_in = GetCurrentSubTransactionId();
	return upload;
}

uint64
blob_upload_write(int64 upload_no, const void *data, uint64 length_bytes)
{
	Upload	   *upload = begin_write(upload_no);

	blob_writer_write(upload->writer, data, length_bytes);
	upload->size_bytes += length_bytes;
	upload->is_broken = false;
	return upload->size_bytes;
}

void
blob_upload_write_from(int64 upload_no, BlobFill fill, void *source)
{
	Upload	   *upload = begin_write(upload_no);

	upload->size_bytes += blob_writer_write_from(upload->writer, fill, source);
	upload->is_broken = false;
}

/* The writer makes the result in the upload's memory, where it can be had again. */
static void
complete(Upload *upload)
{
	MemoryContext old = MemoryContextSwitchTo(upload->context);
	BlobWriter *writer = upload->writer;

	upload->is_broken = true;
	upload->result = blob_writer_finish(writer);
	upload->writer = NULL;
	upload->is_broken = false;
	MemoryContextSwitchTo(old);
}

/*
 * The value stays the same if the subtransaction that completed it is rolled back: like a variable
 * of PL/pgSQL, it is memory of a transaction that goes on.
 */
struct varlena *
blob_upload_end(int64 upload_no)
{
	Upload	   *upload = find_sound_upload(upload_no);
	struct varlena *copy;

	if (upload->writer != NULL)
		complete(upload);
	else
		blob_durability_before_return();
	copy = palloc(VARSIZE_ANY(upload->result));
	memcpy(copy, upload->result, VARSIZE_ANY(upload->result));
	return copy;
}

void
blob_upload_abort(int64 upload_no)
{
	discard(find_upload(upload_no));
}
