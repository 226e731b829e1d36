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
describe_place(StringInfo out, uint32 place)
{
	if (place != BLOB_DEFAULT_PLACE)
		appendStringInfo(out, ", place %u", place);
}

static void
describe_alloc(StringInfo out, const BlobWalAlloc *alloc)
{
	appendStringInfo(out, "; extents %u, pages " UINT64_FORMAT ", first page " UINT64_FORMAT
					 ", generation " UINT64_FORMAT,
					 alloc->extent_count, alloc->page_count, alloc->first_page,
					 alloc->generation);
}

static void
describe_claim(StringInfo out, const BlobWalClaim *claim)
{
	appendStringInfo(out, "; first page " UINT64_FORMAT ", generation " UINT64_FORMAT
					 ", bytes " UINT64_FORMAT " to " UINT64_FORMAT,
					 claim->first_page, claim->generation, claim->from_bytes, claim->to_bytes);
}

static void
describe_content(StringInfo out, const BlobWalContent *content)
{
	appendStringInfo(out, "; first page " UINT64_FORMAT ", bytes %u",
					 content->first_page, content->length_bytes);
	describe_place(out, content->place);
}

static void
describe_omitted(StringInfo out, const BlobWalOmitted *omitted)
{
	appendStringInfo(out, "; first page " UINT64_FORMAT ", pages " UINT64_FORMAT
					 ", ranges of generations %u",
					 omitted->first_page, omitted->page_count, omitted->range_count);
}

/* Segments, and of version 2 records their storage place if it is not the default one. */
static void
describe_segment(StringInfo out, const char *what, const BlobWalSegment *segment)
{
	appendStringInfo(out, "; %spages " UINT64_FORMAT " to " UINT64_FORMAT, what,
					 segment->first_page, segment->end_page);
	describe_place(out, segment->place);
}

static void
describe_free(StringInfo out, const BlobWalFree *freed)
{
	appendStringInfo(out, "; extents %u, pages " UINT64_FORMAT ", first page " UINT64_FORMAT
					 ", generation " UINT64_FORMAT ", snapshotConflictHorizon %u",
					 freed->extent_count, freed->page_count, freed->first_page,
					 freed->generation, freed->horizon);
	if (freed->reuse == BLOB_REUSE_AFTER_FLUSH)
		appendStringInfoString(out, ", reuse after flush");
	else if (freed->reuse != BLOB_REUSE_AFTER_CHECKPOINT)
		appendStringInfo(out, ", unknown reuse class %u", freed->reuse);
}

static void
describe_punch(StringInfo out, const BlobWalPunch *punch)
{
	appendStringInfo(out, "; runs %u, pages " UINT64_FORMAT, punch->run_count, punch->page_count);
	describe_place(out, punch->place);
}

/* The fixed part of any record, and what version 1 does not have of it as zeros. */
typedef union FixedPart
{
	BlobWalHeader header;
	BlobWalMeta meta;
	BlobWalAlloc alloc;
	BlobWalContent content;
	BlobWalOmitted omitted;
	BlobWalSegment segment;
	BlobWalFree freed;
	BlobWalClaim claim;
	BlobWalDrop drop;
	BlobWalPunch punch;
	BlobWalFetched fetched;
	BlobWalSums sums;
} FixedPart;

/* Tools meet WAL of any version: a version that is not known is named, and the record not read. */
void
blob_wal_describe(StringInfo out, XLogReaderState *record)
{
	uint8		op = XLogRecGetInfo(record) & BLOB_WAL_OP_MASK;
	FixedPart	fixed = {0};
	size_t		bytes;

	if (XLogRecGetDataLen(record) < sizeof(fixed.header))
		return;
	memcpy(&fixed.header, XLogRecGetData(record), sizeof(fixed.header));
	describe_store(out, &fixed.header);
	if (fixed.header.version == 0 || fixed.header.version > BLOB_WAL_NEWEST_VERSION)
	{
		appendStringInfo(out, "; unknown format version %u", fixed.header.version);
		return;
	}
	bytes = blob_wal_fixed_bytes(op, fixed.header.version);
	if (bytes < sizeof(fixed.header) || XLogRecGetDataLen(record) < bytes)
		return;
	memcpy(&fixed, XLogRecGetData(record), Min(bytes, sizeof(fixed)));
	switch (op)
	{
		case BLOB_WAL_META:
			appendStringInfo(out, "; generations below " UINT64_FORMAT,
							 fixed.meta.generation_limit);
			break;
		case BLOB_WAL_ALLOC:
			describe_alloc(out, &fixed.alloc);
			break;
		case BLOB_WAL_CONTENT:
			describe_content(out, &fixed.content);
			break;
		case BLOB_WAL_OMITTED:
			describe_omitted(out, &fixed.omitted);
			break;
		case BLOB_WAL_SEGMENT:
			describe_segment(out, "reserved ", &fixed.segment);
			break;
		case BLOB_WAL_REMOVE:
		case BLOB_WAL_RESTORE:
			describe_segment(out, "", &fixed.segment);
			break;
		case BLOB_WAL_FREE:
			describe_free(out, &fixed.freed);
			break;
		case BLOB_WAL_CLAIM:
		case BLOB_WAL_TRIM:
			describe_claim(out, &fixed.claim);
			break;
		case BLOB_WAL_DROP:
			if (fixed.drop.place_count > 0)
				appendStringInfo(out, "; other places %u", fixed.drop.place_count);
			break;
		case BLOB_WAL_PUNCH:
			describe_punch(out, &fixed.punch);
			break;
		case BLOB_WAL_FETCHED:
			appendStringInfo(out, "; ranges of generations %u", fixed.fetched.range_count);
			break;
		case BLOB_WAL_SUMS:
			appendStringInfo(out, "; checksums " UINT64_FORMAT ", first entry of page "
							 UINT64_FORMAT, fixed.sums.sum_count, fixed.sums.entry_page);
			break;
	}
}

/* The name of a kind of record, or NULL for an unknown one. */
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
		case BLOB_WAL_PUNCH:
			return "PUNCH";
		case BLOB_WAL_FETCHED:
			return "FETCHED";
		case BLOB_WAL_SUMS:
			return "SUMS";
	}
	return NULL;
}
