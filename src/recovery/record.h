/*
 * recovery/record.h
 *	  WAL records as replay reads them: whether this library knows them, and their parts.
 *
 * Each of these is a PANIC before anything of the record was carried out.
 */
#ifndef BLOB_RECORD_H
#define BLOB_RECORD_H

#include "access/xlogreader.h"
#include "wal/records.h"

static inline BlobStoreId
blob_record_store(const BlobWalHeader *header)
{
	BlobStoreId store = {.dboid = header->dboid, .incarnation = header->incarnation};

	return store;
}

/* Only a later library can find the files of another place. */
extern void blob_record_require_known_place(uint32 place);

/*
 * PANIC unless is_right: the record is damaged, or its version of the format has no such record.
 * "what" names the problem in the message.
 */
extern void blob_record_require(XLogReaderState *record, bool is_right, const char *what);

/* PANIC unless this library knows kind and version of the record, and the fixed part is whole. */
extern void blob_record_require_known(XLogReaderState *record);

/*
 * Copy the fixed part of a record; fields that its version does not have become zero.  Returns the
 * data that follows the fixed part, which may be unaligned, and its length.
 */
extern const char *blob_record_load(XLogReaderState *record, void *fixed, size_t struct_bytes,
									size_t *data_bytes);

/* SEGMENT, REMOVE and RESTORE. */
extern void blob_record_load_segment(XLogReaderState *record, BlobWalSegment *segment);

/*
 * PANIC if the meta page in a record has a wrong length.  It may be in a full-page image instead.
 */
extern void blob_record_require_meta_page(XLogReaderState *record);

/* A run of PUNCH; the record has it unaligned.  PANIC if the run is not inside of a segment. */
extern BlobWalRun blob_record_load_run(XLogReaderState *record, const char *data, uint32 run_no);

#endif							/* BLOB_RECORD_H */
