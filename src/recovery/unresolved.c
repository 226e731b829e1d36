/*
 * recovery/unresolved.c
 *	  Segment files that replay needs, and does not find, see recovery/unresolved.h.
 *
 * The notes are in memory: whoever starts over comes to the same records again.
 */
#include "postgres.h"

#include "access/xlogrecovery.h"
#include "io/segment.h"
#include "recovery/unresolved.h"
#include "utils/guc.h"
#include "utils/hsearch.h"

/* No padding, so it can be hashed as bytes. */
typedef struct UnresolvedFile
{
	uint64		incarnation;
	Oid			dboid;
	uint32		segment_no;
} UnresolvedFile;

StaticAssertDecl(sizeof(UnresolvedFile) == 16, "UnresolvedFile must not have padding");

static HTAB *files = NULL;

static bool
are_ignored(void)
{
	return strcmp(GetConfigOption("ignore_invalid_pages", false, false), "on") == 0;
}

static void
note(const BlobSpaceId *space, uint32 segment_no)
{
	UnresolvedFile key = {space->incarnation, space->dboid, segment_no};

	if (files == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(key),.entrysize = sizeof(key)};

		files = hash_create("blobext unresolved files", 16, &control, HASH_ELEM | HASH_BLOBS);
	}
	(void) hash_search(files, &key, HASH_ENTER, NULL);
}

static void
report(int level, const BlobSpaceId *space, uint32 segment_no)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), space, segment_no);
	ereport(level,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blob segment file \"%s\" is missing or too short", path)));
}

bool
blob_unresolved_is_lacking(const BlobSpaceId *space, uint32 segment_no, uint64 expected_bytes)
{
	int64		bytes = blob_segment_file_bytes(space, segment_no);

	if (Max(bytes, 0) >= (int64) expected_bytes)
		return false;
	if (are_ignored())
	{
		report(WARNING, space, segment_no);
		return false;
	}
	note(space, segment_no);
	if (reachedConsistency)
		blob_unresolved_check();
	return true;
}

void
blob_unresolved_removed(const BlobSpaceId *space, uint32 segment_no)
{
	HASH_SEQ_STATUS status;
	UnresolvedFile *file;

	if (files == NULL)
		return;
	hash_seq_init(&status, files);
	while ((file = hash_seq_search(&status)) != NULL)
	{
		if (file->dboid == space->dboid && file->incarnation == space->incarnation &&
			(file->segment_no == segment_no || segment_no == BLOB_ALL_SEGMENTS))
			(void) hash_search(files, file, HASH_REMOVE, NULL);
	}
}

void
blob_unresolved_check(void)
{
	HASH_SEQ_STATUS status;
	UnresolvedFile *file;

	if (files == NULL || hash_get_num_entries(files) == 0)
		return;
	hash_seq_init(&status, files);
	while ((file = hash_seq_search(&status)) != NULL)
	{
		BlobSpaceId space = {.dboid = file->dboid, .incarnation = file->incarnation};

		report(WARNING, &space, file->segment_no);
	}
	ereport(FATAL,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("replay has not found all blob segment files"),
			 errdetail("Content that the WAL has for them could not be written."),
			 errhint("Bring the files back and start again; nothing is lost until then.  If they "
					 "are lost for good, start with ignore_invalid_pages = on: blobext_check() "
					 "lists the values then that are damaged.")));
}
