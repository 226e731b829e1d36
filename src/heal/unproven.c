/*
 * heal/unproven.c
 *	  Pages that no digest verifies, or only a part of them: those that a value does not fill, and
 *	  those behind it.  See "When an extent stops to be lacking" in the README.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "extents/read.h"
#include "heal/patient.h"
#include "store/map_sums.h"
#include "wal/insert.h"

char *
blob_unproven_report_gone(const BlobExtent *extent)
{
	return psprintf("the extent at page " UINT64_FORMAT " was freed meanwhile",
					extent->first_page);
}

char *
blob_unproven_report(const BlobExtent *extent, uint64 page_no)
{
	return psprintf("page " UINT64_FORMAT " has bytes of other values, with which it does not have "
					"its checksum", extent->first_page + page_no);
}

/* See patient.h.  A page whose sum is not known does not differ. */
BlobPatientSum
blob_patient_compare_sum(const BlobExtent *extent, uint64 page_no, const char *data)
{
	BlobStore	store;
	BlobSumsLook look;
	uint32		expected = BLOB_SUM_UNKNOWN;
	uint32		sum;

	blob_store_open(&store, AccessShareLock);
	look = blob_map_get_sums(store.map, extent, page_no, 1, &expected);
	blob_store_close(&store);
	if (look == BLOB_SUMS_DAMAGED)
		return BLOB_PATIENT_SUM_DAMAGED;
	if (look == BLOB_SUMS_NONE || expected == BLOB_SUM_UNKNOWN)
		return BLOB_PATIENT_SUM_UNKNOWN;
	blob_page_sums(&(BlobSummedPages) {extent->generation, extent->first_page + page_no, data, 1},
				   1, &sum);
	return sum == expected ? BLOB_PATIENT_SUM_MATCHES : BLOB_PATIENT_SUM_DIFFERS;
}

/*
 * A position in the WAL behind the content of all claims that were made so far.  A writer holds the
 * map's lock from a claim until its content is in the WAL.  The record itself is no content: a
 * standby that has replayed it has written all content before it.
 */
static XLogRecPtr
position_behind_claims(BlobHeal *heal)
{
	BlobStore	store;
	XLogRecPtr	position;

	blob_store_open(&store, ShareLock);
	blob_store_close(&store);
	position = blob_wal_log_fetched(&heal->store, NULL, 0);
	XLogFlush(position);
	return position;
}

/*
 * Whether the source may be asked for such pages; and up to which position a standby must have
 * replayed then.  One position holds for all pages below the marks, which were looked at before.
 */
static bool
may_ask(BlobPatient *patient)
{
	const BlobHeal *heal = patient->heal;

	if (heal->fork != BLOB_NO_FORK)
	{
		if (heal->source_is_standby)
			patient->replayed_to = heal->fork;
		return true;
	}
	if (!heal->source_is_standby || !heal->logs_content)
		return false;
	if (patient->replayed_to == InvalidXLogRecPtr)
		patient->replayed_to = position_behind_claims(patient->heal);
	return true;
}

/*
 * Pages of the extent that this server has written since the fork: they are right as they are.
 * Copies of this server will hear that they have all of the extent (FETCHED), and may lack these
 * pages, if their content was not logged.  So log them.  Returns the problem, or NULL.
 */
static char *
keep_own_pages(BlobPatient *patient, int extent_no, uint64 start, uint64 end)
{
	BlobHeal   *heal = patient->heal;
	const BlobExtent *extent = &patient->stored.extents[extent_no].extent;
	BlobStoredExtent own = {.extent = *extent, .bytes = end};
	BlobStored	pages = {
		.extents = &own,
		.count = 1,
		.max_generation = extent->generation,
		.total_bytes = end,
		.value_bytes = end,
		.may_lack = true
	};

	if (!heal->logs_content)
		return NULL;
	/* Content that a writer is about to write there must not be overwritten with older bytes. */
	(void) position_behind_claims(heal);
	while (start < end)
	{
		uint32		bytes = (uint32) Min(end - start, BLOB_HEAL_SECTION_BYTES);

		blob_stored_read(&pages, NULL, false, start, bytes, heal->section);
		if (!blob_restore_write(heal, extent, start, heal->section, bytes, false))
			return blob_unproven_report_gone(extent);
		start += bytes;
	}
	return NULL;
}

/*
 * Put the bytes that the digest has proven over pages that were fetched without it, from start on.
 * Returns the problem if one of these pages does not have its checksum then, or NULL.
 */
static char *
put_proven_bytes(BlobPatient *patient, int extent_no, uint64 start, char *data, uint32 bytes)
{
	const BlobStoredExtent *stored = &patient->stored.extents[extent_no];
	uint64		first_no = start / BLOB_PAGE_SIZE;
	uint64		end_no = Min(first_no + bytes / BLOB_PAGE_SIZE, blob_pages_for(stored->bytes));

	for (uint64 page_no = first_no; page_no < end_no; page_no++)
	{
		uint64		stored_page_no = stored->start / BLOB_PAGE_SIZE + page_no;
		char	   *page = data + (page_no - first_no) * BLOB_PAGE_SIZE;
		char		proven[BLOB_PAGE_SIZE];

		if (!blob_used_pages_have(&patient->used, stored_page_no))
			continue;
		blob_patient_fetch(patient, stored_page_no * BLOB_PAGE_SIZE, BLOB_PAGE_SIZE, false,
						   proven);
		blob_used_pages_copy(&patient->used, stored_page_no, proven, page);
		if (blob_patient_compare_sum(&stored->extent, page_no, page) == BLOB_PATIENT_SUM_DIFFERS)
			return blob_unproven_report(&stored->extent, page_no);
	}
	return NULL;
}

char *
blob_unproven_fetch(BlobPatient *patient, int extent_no, uint64 start, uint64 end)
{
	BlobHeal   *heal = patient->heal;
	const BlobStoredExtent *stored = &patient->stored.extents[extent_no];
	XLogRecPtr	since = patient->is_marked_since[extent_no] ? heal->fork : InvalidXLogRecPtr;
	char	   *problem = NULL;

	if (start < end && !may_ask(patient))
		return psprintf("the extent at page " UINT64_FORMAT " has bytes of other values, "
						"which only a standby of this server could give",
						stored->extent.first_page);
	while (start < end && problem == NULL)
	{
		uint32		wanted = (uint32) Min(end - start, BLOB_HEAL_SECTION_BYTES);
		const char *data = NULL;
		char	   *refusal = "it has fewer bytes";
		int			bytes;

		blob_heal_request(heal, &stored->extent, start, wanted, since, patient->replayed_to,
						  false);
		bytes = blob_heal_take_answer(heal, wanted, &data, &refusal);
		if (bytes == 0 && since != InvalidXLogRecPtr)
			return keep_own_pages(patient, extent_no, start, end);
		if (bytes <= 0)
			return psprintf("the extent at page " UINT64_FORMAT " has bytes of other values, "
							"which the other server does not give: %s",
							stored->extent.first_page, refusal);
		if (bytes % BLOB_PAGE_SIZE != 0)
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("the other server sent an invalid answer"),
					 errdetail("It has parts of a page.")));
		memcpy(heal->section, data, bytes);
		problem = put_proven_bytes(patient, extent_no, start, heal->section, bytes);
		if (problem == NULL &&
			!blob_restore_write(heal, &stored->extent, start, heal->section, bytes, false))
			problem = blob_unproven_report_gone(&stored->extent);
		start += bytes;
	}
	return problem;
}
