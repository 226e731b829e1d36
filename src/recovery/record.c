/*
 * recovery/record.c
 *	  WAL records as replay reads them, see recovery/record.h.
 */
#include "postgres.h"

#include "recovery/record.h"
#include "store/map_page.h"

/* No part of the record has been carried out: a library that knows it goes on from it. */
static int
hint_newer(void)
{
	return errhint("Recover with the version of blobext that wrote the WAL, or a later one. "
				   "Nothing is lost until then.");
}

static void
require_known_version(const BlobWalHeader *header)
{
	if (header->version < BLOB_WAL_VERSION_1 || header->version > BLOB_WAL_NEWEST_VERSION)
		ereport(PANIC,
				(errmsg("blobext cannot replay WAL of format version %u", header->version),
				 errdetail("This library reads versions %d to %d.", BLOB_WAL_VERSION_1,
						   BLOB_WAL_NEWEST_VERSION),
				 hint_newer()));
}

void
blob_record_require_known_place(uint32 place)
{
	if (place != BLOB_DEFAULT_PLACE)
		ereport(PANIC,
				(errmsg("blobext cannot replay WAL of storage place %u", place),
				 errdetail("This library knows the default place only."),
				 hint_newer()));
}

void
blob_record_require(XLogReaderState *record, bool is_right, const char *what)
{
	if (!is_right)
		elog(PANIC, "blobext: %s record at %X/%X: %s",
			 blob_wal_identify(XLogRecGetInfo(record)), LSN_FORMAT_ARGS(record->ReadRecPtr), what);
}

void
blob_record_require_known(XLogReaderState *record)
{
	const BlobWalHeader *header = (BlobWalHeader *) XLogRecGetData(record);
	size_t		bytes;

	if (blob_wal_identify(XLogRecGetInfo(record)) == NULL)
		elog(PANIC, "blobext: unknown WAL record %u", XLogRecGetInfo(record));
	blob_record_require(record, XLogRecGetDataLen(record) >= sizeof(*header), "too short");
	require_known_version(header);
	bytes = blob_wal_fixed_bytes(XLogRecGetInfo(record) & BLOB_WAL_OP_MASK, header->version);
	blob_record_require(record, bytes > 0, "its version has no such record");
	blob_record_require(record, XLogRecGetDataLen(record) >= bytes, "too short");
}

const char *
blob_record_load(XLogReaderState *record, void *fixed, size_t struct_bytes, size_t *data_bytes)
{
	const BlobWalHeader *header = (BlobWalHeader *) XLogRecGetData(record);
	size_t		bytes = blob_wal_fixed_bytes(XLogRecGetInfo(record) & BLOB_WAL_OP_MASK,
											 header->version);

	Assert(bytes <= struct_bytes);
	memset(fixed, 0, struct_bytes);
	memcpy(fixed, header, bytes);
	*data_bytes = XLogRecGetDataLen(record) - bytes;
	return (const char *) header + bytes;
}

void
blob_record_load_segment(XLogReaderState *record, BlobWalSegment *segment)
{
	size_t		data_bytes;

	(void) blob_record_load(record, segment, sizeof(*segment), &data_bytes);
	blob_record_require(record, data_bytes == 0, "too long");
	blob_record_require(record, segment->reserved == 0, "reserved bytes are not zero");
	blob_record_require_known_place(segment->place);
}

void
blob_record_require_meta_page(XLogReaderState *record)
{
	const BlobWalHeader *header = (BlobWalHeader *) XLogRecGetData(record);
	Size		length;
	const char *data;

	blob_record_require(record, XLogRecHasBlockRef(record, 0), "no meta page");
	data = XLogRecGetBlockData(record, 0, &length);
	blob_record_require(record, data == NULL || (header->version == BLOB_WAL_VERSION_1 ?
												 length == sizeof(BlobMapMeta) :
												 length >= sizeof(BlobMapMeta) &&
												 length <= BLOB_MAP_META_MAX_BYTES),
						"a meta page of another length");
}

BlobWalRun
blob_record_load_run(XLogReaderState *record, const char *data, uint32 run_no)
{
	BlobWalRun	run;

	memcpy(&run, data + run_no * sizeof(run), sizeof(run));
	blob_record_require(record, run.first_page <= BLOB_MAX_PAGE_NO && run.pages > 0 &&
						run.pages <= BLOB_SEGMENT_PAGES - run.first_page % BLOB_SEGMENT_PAGES,
						"a run that is not inside of a segment");
	return run;
}
