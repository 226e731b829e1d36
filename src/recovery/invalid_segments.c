/*
 * recovery/invalid_segments.c
 *	  Segments whose files replay needs and does not find, see recovery/invalid_segments.h.
 *
 * The notes are in memory only: recovery that starts over comes to the same records again.
 */
#include "postgres.h"

#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "catalog/pg_tablespace_d.h"
#include "core/compat.h"
#include "io/segment.h"
#include "recovery/invalid_segments.h"
#include "storage/smgr.h"
#include "utils/guc.h"
#include "utils/hsearch.h"

/*
 * Of BlobSegmentId: files, or directories (BLOB_ALL_SEGMENTS), that were not found; and those that
 * this recovery has removed.
 */
static HTAB *files = NULL;
static HTAB *removed_files = NULL;

/* Is PostgreSQL's setting ignore_invalid_pages on? */
static bool
are_ignored(void)
{
	return strcmp(GetConfigOption("ignore_invalid_pages", false, false), "on") == 0;
}

/* Report a missing file at this level; with BLOB_ALL_SEGMENTS the store's directory is missing. */
static void
report(int level, const BlobStoreId *store, uint32 segment_no)
{
	char		path[MAXPGPATH];

	if (segment_no == BLOB_ALL_SEGMENTS)
	{
		blob_segment_dir_path(path, sizeof(path), store);
		ereport(level,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("directory \"%s\" is missing", path)));
		return;
	}
	blob_segment_path(path, sizeof(path), store, segment_no);
	ereport(level,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blob segment file \"%s\" is missing or too short", path)));
}

/*
 * A restartpoint past an action that was skipped would make this final, and an extension has no
 * part in restartpoints.  PostgreSQL makes none while it knows of invalid pages.  If one is left
 * when the state becomes consistent, it stops.  So it is told of one, in a relation that does not
 * exist: no catalog has this number.
 */
static const RelFileLocator no_relation = {.spcOid = GLOBALTABLESPACE_OID,.relNumber = 1};

static void
hold_restartpoints(void)
{
	SMgrRelation relation;

	(void) XLogReadBufferExtended(no_relation, MAIN_FORKNUM, 0, RBM_NORMAL, InvalidBuffer);
	/* The read has made an empty file. */
	relation = smgropen(no_relation, INVALID_PROC_NUMBER);
	smgrdounlinkall(&relation, 1, true);
	smgrclose(relation);
}

/* Enter a segment in a set, which is made for the first one; false if the set has it. */
static bool
enter(HTAB **set, const BlobStoreId *store, uint32 segment_no)
{
	BlobSegmentId key = {store->incarnation, store->dboid, segment_no};
	bool		is_known;

	if (*set == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(key),.entrysize = sizeof(key)};

		*set = hash_create("blobext invalid segments", 16, &control, HASH_ELEM | HASH_BLOBS);
	}
	(void) hash_search(*set, &key, HASH_ENTER, &is_known);
	return !is_known;
}

/* Note a segment as invalid, report it once, and hold restartpoints from the first note on. */
static void
note(const BlobStoreId *store, uint32 segment_no)
{
	if (!enter(&files, store, segment_no))
		return;
	report(are_ignored() ? WARNING : LOG, store, segment_no);
	if (are_ignored())
		return;
	if (!reachedConsistency && hash_get_num_entries(files) == 1)
		hold_restartpoints();
}

/* Note a missing file or directory.  Returns true if redo has to skip its action on it. */
static bool
leave_out(const BlobStoreId *store, uint32 segment_no)
{
	note(store, segment_no);
	return !are_ignored();
}

/* Nothing has been changed that replay would not change again. */
static void
stop_recovery(void)
{
	ereport(FATAL,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("replay has not found all blob segment files"),
			 errdetail("Content that the WAL has for them could not be written."),
			 errhint("Bring the files back and start again; nothing is lost until then.  If they "
					 "are lost for good, start with ignore_invalid_pages = on: blobext_check() "
					 "lists the values then that are damaged.")));
}

bool
blob_invalid_segments_is_lacking(const BlobStoreId *store, uint32 segment_no, uint64 expected_bytes)
{
	int64		bytes = blob_segment_file_bytes(store, segment_no);

	return Max(bytes, 0) < (int64) expected_bytes && leave_out(store, segment_no);
}

bool
blob_invalid_segments_lacks_directory(const BlobStoreId *store)
{
	return !blob_segment_dir_exists(store) && leave_out(store, BLOB_ALL_SEGMENTS);
}

void
blob_invalid_segments_disappeared(const BlobStoreId *store, uint32 segment_no)
{
	if (leave_out(store, segment_no))
		stop_recovery();
}

void
blob_invalid_segments_removed(const BlobStoreId *store, uint32 segment_no)
{
	HASH_SEQ_STATUS status;
	BlobSegmentId *file;

	(void) enter(&removed_files, store, segment_no);
	if (files == NULL)
		return;
	hash_seq_init(&status, files);
	while ((file = hash_seq_search(&status)) != NULL)
	{
		if (file->dboid == store->dboid && file->incarnation == store->incarnation &&
			(file->segment_no == segment_no || segment_no == BLOB_ALL_SEGMENTS))
			(void) hash_search(files, file, HASH_REMOVE, NULL);
	}
	if (hash_get_num_entries(files) == 0)
		XLogDropRelation(no_relation, MAIN_FORKNUM);
}

static bool
is_entered(HTAB *set, const BlobStoreId *store, uint32 segment_no)
{
	BlobSegmentId key = {store->incarnation, store->dboid, segment_no};

	return set != NULL && hash_search(set, &key, HASH_FIND, NULL) != NULL;
}

bool
blob_invalid_segments_was_removed(const BlobStoreId *store, uint32 segment_no)
{
	return is_entered(removed_files, store, segment_no) ||
		is_entered(removed_files, store, BLOB_ALL_SEGMENTS);
}

void
blob_invalid_segments_check(void)
{
	HASH_SEQ_STATUS status;
	BlobSegmentId *file;

	if (files == NULL || hash_get_num_entries(files) == 0 || are_ignored())
		return;
	hash_seq_init(&status, files);
	while ((file = hash_seq_search(&status)) != NULL)
	{
		BlobStoreId store = {.dboid = file->dboid, .incarnation = file->incarnation};

		report(WARNING, &store, file->segment_no);
	}
	stop_recovery();
}
