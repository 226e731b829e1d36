/*
 * autogc/files.c
 *	  Segment files that are missing when the server starts, see autogc/files.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/files.h"
#include "autogc/schedule.h"
#include "commands/dbcommands.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "store/map.h"
#include "store/store.h"
#include "utils/lsyscache.h"

/*
 * Whether a segment's file lacks pages below reserved_pages that are not absent.  The file is
 * looked at before the map: a segment that is removed meanwhile is absent in the map by then.
 */
static bool
lacks_pages(BlobStore *store, uint32 segment_no, BlobPageNo reserved_pages)
{
	BlobPageNo	first_page = segment_no * BLOB_SEGMENT_PAGES;
	uint64		pages = Min(BLOB_SEGMENT_PAGES, reserved_pages - first_page);
	int64		file_bytes = blob_segment_file_bytes(&store->id, segment_no);
	uint64		file_pages = Max(file_bytes, 0) / BLOB_PAGE_SIZE;

	return file_pages < pages &&
		file_pages < Min(pages, blob_store_segment_pages(store, segment_no));
}

static void
report(const BlobStoreId *store, uint32 lacking, uint32 first_lacking, uint32 segments)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), store, first_lacking);
	ereport(WARNING,
			(errcode(ERRCODE_UNDEFINED_FILE),
			 errmsg("blob segment files of database \"%s\" are missing or too short: %u of %u",
					get_database_name(MyDatabaseId), lacking, segments),
			 errdetail("The first one is \"%s\". Values with content there cannot be read.", path),
			 errhint("Stop the server, and bring the files back, from the same copy as the rest of "
					 "the data directory.")));
}

/* Look at all segments; one WARNING for those that lack pages. */
static void
check_store(BlobStore *store)
{
	BlobMapMeta meta;
	uint32		segments;
	uint32		first_lacking = 0;
	uint32		lacking = 0;

	blob_map_read_meta(store->map, &meta);
	segments = (meta.reserved_pages + BLOB_SEGMENT_PAGES - 1) / BLOB_SEGMENT_PAGES;
	for (uint32 segment_no = 0; segment_no < segments; segment_no++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!lacks_pages(store, segment_no, meta.reserved_pages))
			continue;
		if (lacking++ == 0)
			first_lacking = segment_no;
	}
	if (lacking > 0)
		report(&store->id, lacking, first_lacking, segments);
}

void
blob_autogc_check_files(void)
{
	BlobStore	store;
	bool		exists;
	bool		is_open;

	StartTransactionCommand();
	is_open = blob_store_try_open(&store, AccessShareLock, &exists);
	/* Before the check, which may end with an error: once is enough. */
	if (is_open || !exists)
		blob_autogc_schedule_files_checked();
	if (is_open)
	{
		check_store(&store);
		blob_store_close(&store);
	}
	CommitTransactionCommand();
}
