/*
 * wal/describe.c
 *	  Readable form of blobext's WAL records; pg_walinspect shows it.
 */
#include "postgres.h"

#include "access/xlogreader.h"
#include "lib/stringinfo.h"
#include "wal/records.h"

static void
describe_store(StringInfo out, const BlobWalHeader *header)
{
	appendStringInfo(out, "store %u.%016llx", header->dboid,
					 (unsigned long long) header->incarnation);
}

static void
describe_content(StringInfo out, const BlobWalContent *content)
{
	appendStringInfo(out, "; first page " UINT64_FORMAT ", bytes %u",
					 content->first_page, content->length_bytes);
}

static void
describe_omitted(StringInfo out, const BlobWalOmitted *omitted)
{
	appendStringInfo(out, "; first page " UINT64_FORMAT ", pages " UINT64_FORMAT
					 ", ranges of generations %u",
					 omitted->first_page, omitted->page_count, omitted->range_count);
}

void
blob_wal_describe(StringInfo out, XLogReaderState *record)
{
	void	   *data = XLogRecGetData(record);

	describe_store(out, data);
	switch (XLogRecGetInfo(record) & BLOB_WAL_OP_MASK)
	{
		case BLOB_WAL_META:
			appendStringInfo(out, "; generations below " UINT64_FORMAT,
							 ((BlobWalMeta *) data)->generation_limit);
			break;
		case BLOB_WAL_ALLOC:
			{
				BlobWalAlloc *alloc = data;

				appendStringInfo(out, "; extents %u, pages " UINT64_FORMAT ", first page "
								 UINT64_FORMAT ", generation " UINT64_FORMAT,
								 alloc->extent_count, alloc->page_count, alloc->first_page,
								 alloc->generation);
				break;
			}
		case BLOB_WAL_CONTENT:
			describe_content(out, data);
			break;
		case BLOB_WAL_OMITTED:
			describe_omitted(out, data);
			break;
		case BLOB_WAL_SEGMENT:
			{
				BlobWalSegment *segment = data;

				appendStringInfo(out, "; reserved pages " UINT64_FORMAT " to " UINT64_FORMAT,
								 segment->first_page, segment->end_page);
				break;
			}
		case BLOB_WAL_FREE:
			{
				BlobWalFree *freed = data;

				appendStringInfo(out, "; extents %u, pages " UINT64_FORMAT ", first page "
								 UINT64_FORMAT ", generation " UINT64_FORMAT
								 ", snapshotConflictHorizon %u",
								 freed->extent_count, freed->page_count, freed->first_page,
								 freed->generation, freed->horizon);
				break;
			}
		case BLOB_WAL_CLAIM:
		case BLOB_WAL_TRIM:
			{
				BlobWalClaim *claim = data;

				appendStringInfo(out, "; first page " UINT64_FORMAT ", generation " UINT64_FORMAT
								 ", bytes " UINT64_FORMAT " to " UINT64_FORMAT,
								 claim->first_page, claim->generation, claim->from_bytes,
								 claim->to_bytes);
				break;
			}
		case BLOB_WAL_REMOVE:
		case BLOB_WAL_RESTORE:
			{
				BlobWalAbsence *absence = data;

				appendStringInfo(out, "; pages " UINT64_FORMAT " to " UINT64_FORMAT,
								 absence->first_page, absence->end_page);
				break;
			}
	}
}

const char *
blob_wal_identify(uint8 info)
{
	switch (info & BLOB_WAL_OP_MASK)
	{
		case BLOB_WAL_META:
			return "META";
		case BLOB_WAL_ALLOC:
			return "ALLOC";
		case BLOB_WAL_CONTENT:
			return "CONTENT";
		case BLOB_WAL_OMITTED:
			return "OMITTED";
		case BLOB_WAL_SEGMENT:
			return "SEGMENT";
		case BLOB_WAL_FREE:
			return "FREE";
		case BLOB_WAL_REMOVE:
			return "REMOVE";
		case BLOB_WAL_RESTORE:
			return "RESTORE";
		case BLOB_WAL_CLAIM:
			return "CLAIM";
		case BLOB_WAL_TRIM:
			return "TRIM";
		case BLOB_WAL_DROP:
			return "DROP";
	}
	return NULL;
}
