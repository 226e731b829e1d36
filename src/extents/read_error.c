/*
 * extents/read_error.c
 *	  Errors of reads of content, see extents/read_error.h.
 */
#include "postgres.h"

#include "extents/damaged_pages.h"
#include "extents/layout.h"
#include "extents/read_error.h"
#include "io/segment.h"

/* A sentence about the table and column that have a damaged page, if they are known; or none. */
static char *
describe_owner(const BlobStoreId *store, BlobPageNo page, BlobGeneration generation)
{
	char		relation[BLOB_DAMAGE_RELATION_BYTES];
	char		column[NAMEDATALEN];

	if (!blob_damaged_page_find_name(store, generation, page, relation, column))
		return "";
	return psprintf(" It belongs to column \"%s\" of %s.", column, relation);
}

void
blob_read_report_error(const BlobStoreId *store, BlobPageNo page, BlobGeneration generation,
					   int error)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), store, blob_segment_of(page));
	if (error == ENODATA)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("could not read content from file \"%s\": the file is too short", path),
				 errdetail("Content is expected at byte " UINT64_FORMAT ".",
						   blob_layout_file_offset(page)),
				 errhint("Restore the file from a backup; blobext_check() lists the affected "
						 "values.")));
	if (error == EBADMSG)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("content in file \"%s\" is damaged", path),
				 errdetail("The page at byte " UINT64_FORMAT " does not have its checksum.%s",
						   blob_layout_file_offset(page),
						   describe_owner(store, page, generation)),
				 errhint("blobext_check() lists the affected values, the view "
						 "blobext_damaged_pages the state of the repair.")));
	if (error == EILSEQ)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the extent map lacks the checksum of page " UINT64_FORMAT, page),
				 errdetail("The page lies at byte " UINT64_FORMAT " of file \"%s\".%s",
						   blob_layout_file_offset(page), path,
						   describe_owner(store, page, generation)),
				 errhint("blobext_check() lists the affected values, the view "
						 "blobext_damaged_pages the state of the repair.")));
	errno = error;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not read content from file \"%s\": %m", path)));
}
