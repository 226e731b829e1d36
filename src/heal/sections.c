/*
 * heal/sections.c
 *	  Sections of a value that is being healed, see heal/patient.h and "Order of a repair" in the
 *	  README.
 */
#include "postgres.h"

#include "access/xact.h"
#include "core/digest.h"
#include "extents/read.h"
#include "heal/patient.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/* Requests that are under way at a time. */
#define WINDOW 8

/* Parameters of blobext_source_read(). */
#define PARAMETER_COUNT 11

/* ---- sections ---- */

static uint64
stored_start(const BlobPatient *patient, const BlobHealSection *section)
{
	return patient->stored.extents[section->extent_no].start + section->offset;
}

/* Add a section.  Those of lacking extents are wanted in any case. */
static void
add_section(BlobPatient *patient, int extent_no, uint64 offset, uint64 bytes)
{
	if (patient->section_count == patient->section_room)
	{
		patient->section_room = Max(64, patient->section_room * 2);
		patient->sections = patient->sections == NULL ?
			palloc(sizeof(BlobHealSection) * patient->section_room) :
			repalloc_huge(patient->sections, sizeof(BlobHealSection) * patient->section_room);
	}
	patient->sections[patient->section_count++] = (BlobHealSection) {
		.extent_no = extent_no,
		.offset = offset,
		.bytes = (uint32) bytes,
		.is_wanted = patient->is_lacking[extent_no]
	};
}

void
blob_patient_add_extents(BlobPatient *patient)
{
	const BlobStored *stored = &patient->stored;

	for (int i = 0; i < stored->count; i++)
	{
		uint64		bytes = stored->extents[i].bytes;

		for (uint64 offset = 0; offset < bytes; offset += BLOB_HEAL_SECTION_BYTES)
			add_section(patient, i, offset, Min(bytes - offset, BLOB_HEAL_SECTION_BYTES));
	}
}

/* The extent that has a stored page; ERROR if none has. */
static int
find_extent(const BlobPatient *patient, uint64 page_no)
{
	const BlobStored *stored = &patient->stored;
	uint64		offset = page_no * BLOB_PAGE_SIZE;

	for (int i = 0; i < stored->count; i++)
	{
		if (offset >= stored->extents[i].start &&
			offset < stored->extents[i].start + stored->extents[i].bytes)
			return i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid blobstate value"),
			 errdetail("A piece lies outside of the slots.")));
}

/* Sections that were compared are sorted by their place among the stored bytes. */
static const BlobHealSection *
find_section(const BlobPatient *patient, uint64 stored_offset)
{
	int			low = 0;
	int			high = patient->compared_count - 1;

	while (low < high)
	{
		int			middle = high - (high - low) / 2;

		if (stored_start(patient, &patient->sections[middle]) <= stored_offset)
			low = middle;
		else
			high = middle - 1;
	}
	return &patient->sections[low];
}

/* Whether a section that was compared has a stored page. */
static bool
has_section(const BlobPatient *patient, uint64 page_no)
{
	uint64		offset = page_no * BLOB_PAGE_SIZE;
	const BlobHealSection *section;

	if (patient->compared_count == 0)
		return false;
	section = find_section(patient, offset);
	return stored_start(patient, section) <= offset &&
		offset < stored_start(patient, section) + section->bytes;
}

void
blob_patient_add_used(BlobPatient *patient, const BlobUsedPages *used)
{
	uint64		page_no = 0;

	for (int64 i = 0; i < used->count; i++)
	{
		uint64		end = blob_pages_for(used->ranges[i].end);

		page_no = Max(page_no, used->ranges[i].start / BLOB_PAGE_SIZE);
		while (page_no < end)
		{
			int			extent_no = find_extent(patient, page_no);
			const BlobStoredExtent *stored = &patient->stored.extents[extent_no];
			uint64		limit = Min(end, (stored->start + stored->bytes) / BLOB_PAGE_SIZE);
			uint64		first = page_no;

			while (page_no < limit && !has_section(patient, page_no) &&
				   page_no - first < BLOB_HEAL_SECTION_BYTES / BLOB_PAGE_SIZE)
				page_no++;
			if (page_no == first)
				page_no++;		/* there is a section */
			else
				add_section(patient, extent_no, first * BLOB_PAGE_SIZE - stored->start,
							(page_no - first) * BLOB_PAGE_SIZE);
		}
	}
}

/* ---- bytes of this server ---- */

/* Errors that are not about the file. */
static bool
is_of_this_session(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_OPERATOR_INTERVENTION ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK;
}

bool
blob_patient_try_read(BlobPatient *patient, uint64 stored_offset, uint64 length, char *target)
{
	MemoryContext old_context = CurrentMemoryContext;
	ResourceOwner old_owner = CurrentResourceOwner;
	volatile bool is_read = true;

	patient->stored.has_damage = false;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(old_context);
	PG_TRY();
	{
		blob_stored_read(&patient->stored, NULL, false, stored_offset, length, target);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		if (is_of_this_session(geterrcode()))
			PG_RE_THROW();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		is_read = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	CurrentResourceOwner = old_owner;
	return is_read;
}

/* ---- requests ---- */

/* Ask for bytes of an extent; since, replayed_to: as in BlobSourceRequest. */
void
blob_heal_request(BlobHeal *heal, const BlobExtent *extent, uint64 start, uint32 bytes,
				  XLogRecPtr since, XLogRecPtr replayed_to, bool wants_digest)
{
	char		numbers[6][24];
	char		lsns[2][24];
	const char *values[PARAMETER_COUNT] = {
		heal->store_name, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], lsns[0],
		numbers[5], extent->is_tail ? "t" : "f", wants_digest ? "t" : "f", lsns[1]
	};

	snprintf(numbers[0], sizeof(numbers[0]), UINT64_FORMAT, extent->first_page);
	snprintf(numbers[1], sizeof(numbers[1]), UINT64_FORMAT, extent->pages);
	snprintf(numbers[2], sizeof(numbers[2]), UINT64_FORMAT, extent->generation);
	snprintf(numbers[3], sizeof(numbers[3]), UINT64_FORMAT, heal->common_below);
	snprintf(numbers[4], sizeof(numbers[4]), UINT64_FORMAT, start);
	snprintf(numbers[5], sizeof(numbers[5]), "%u", bytes);
	snprintf(lsns[0], sizeof(lsns[0]), "%X/%X", LSN_FORMAT_ARGS(since));
	snprintf(lsns[1], sizeof(lsns[1]), "%X/%X", LSN_FORMAT_ARGS(replayed_to));
	blob_connection_send(heal->connection, values);
}

/*
 * The answer to the oldest request: bytes, and their number.  -1 if the source refuses, and the
 * reason.
 */
int
blob_heal_take_answer(BlobHeal *heal, uint32 max_bytes, const char **data, char **refusal)
{
	int			bytes;

	if (!blob_connection_receive(heal->connection, refusal))
		return -1;
	bytes = blob_connection_bytes(heal->connection, max_bytes, data);
	heal->totals.fetched_bytes += bytes;
	if (heal->is_tracked != NULL)
		heal->is_tracked(bytes);
	return bytes;
}

/* Called for each answer, in the order of the sections; bytes -1: refused. */
typedef void (*AnswerTaker) (BlobPatient *patient, BlobHealSection *section, const char *data,
							 int bytes);

/* Request all new sections that are wanted, or not, several at a time. */
static void
exchange(BlobPatient *patient, bool wanted, AnswerTaker take)
{
	int			sent = patient->compared_count;
	int			under_way = 0;

	for (int taken = patient->compared_count; taken < patient->section_count; taken++)
	{
		BlobHealSection *section = &patient->sections[taken];
		const char *data = NULL;
		char	   *refusal = NULL;
		int			bytes;

		if (section->is_wanted != wanted)
			continue;
		for (; sent < patient->section_count && under_way < WINDOW; sent++)
		{
			BlobHealSection *next = &patient->sections[sent];

			if (next->is_wanted != wanted)
				continue;
			blob_heal_request(patient->heal, &patient->stored.extents[next->extent_no].extent,
							  next->offset, next->bytes, InvalidXLogRecPtr, InvalidXLogRecPtr,
							  !wanted);
			under_way++;
		}
		bytes = blob_heal_take_answer(patient->heal,
									  wanted ? section->bytes : BLOB_DIGEST_BYTES, &data,
									  &refusal);
		under_way--;
		if (bytes < 0 && patient->refusal == NULL)
			patient->refusal = refusal;
		take(patient, section, data, bytes);
	}
}

/*
 * An AnswerTaker: a digest.  Whether the section is wanted is noted as staged_at first, since
 * exchange() goes by is_wanted.
 */
static void
compare_digest(BlobPatient *patient, BlobHealSection *section, const char *data, int bytes)
{
	uint8		sha256[BLOB_DIGEST_BYTES];

	section->staged_at = 1;
	if (!blob_patient_try_read(patient, stored_start(patient, section), section->bytes,
							   patient->heal->section))
		return;
	/* Right bytes with wrong checksums are written, too: that sets the checksums. */
	if (patient->stored.has_damage)
		return;
	blob_digest_bytes(patient->heal->section, section->bytes, sha256);
	if (bytes == BLOB_DIGEST_BYTES && memcmp(sha256, data, sizeof(sha256)) == 0)
		section->staged_at = 0;
}

static void
stage(BlobPatient *patient, const char *data, uint32 bytes)
{
	BufFileWrite(patient->heal->staging, (void *) data, bytes);
	patient->staged_bytes += bytes;
}

/* An AnswerTaker: bytes.  The rest, which the source does not have, is read here if it can be. */
static void
stage_section(BlobPatient *patient, BlobHealSection *section, const char *data, int bytes)
{
	uint32		got = (uint32) Max(bytes, 0);
	char	   *rest = patient->heal->section;

	if (got < section->bytes &&
		!blob_patient_try_read(patient, stored_start(patient, section) + got,
							   section->bytes - got, rest))
		memset(rest, 0, section->bytes - got);
	section->is_staged = true;
	section->staged_at = patient->staged_bytes;
	if (got > 0)
		stage(patient, data, got);
	if (got < section->bytes)
		stage(patient, rest, section->bytes - got);
}

/* ---- verification ---- */

static void
read_staged(BlobHeal *heal, uint64 offset, char *target, uint32 bytes)
{
	if (BufFileSeek(heal->staging, 0, (off_t) offset, SEEK_SET) != 0 ||
		BufFileRead(heal->staging, target, bytes) != bytes)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from a temporary file: %m")));
}

void
blob_patient_load(BlobPatient *patient, const BlobHealSection *section)
{
	read_staged(patient->heal, section->staged_at, patient->heal->section, section->bytes);
}

void
blob_patient_fetch(void *context, uint64 stored_offset, uint64 length_bytes, bool is_node,
				char *target)
{
	BlobPatient *patient = context;

	while (length_bytes > 0)
	{
		const BlobHealSection *section = find_section(patient, stored_offset);
		uint64		skip = stored_offset - stored_start(patient, section);
		uint32		bytes = (uint32) Min(length_bytes, section->bytes - skip);

		if (section->is_staged)
			read_staged(patient->heal, section->staged_at + skip, target, bytes);
		else
			blob_stored_read(&patient->stored, NULL, false, stored_offset, bytes, target);
		stored_offset += bytes;
		target += bytes;
		length_bytes -= bytes;
	}
}

/* For qsort(). */
static int
compare_places(const void *a, const void *b)
{
	const BlobHealSection *left = a;
	const BlobHealSection *right = b;

	if (left->extent_no != right->extent_no)
		return left->extent_no < right->extent_no ? -1 : 1;
	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

void
blob_patient_exchange(BlobPatient *patient)
{
	exchange(patient, false, compare_digest);
	for (int i = patient->compared_count; i < patient->section_count; i++)
		patient->sections[i].is_wanted |= patient->sections[i].staged_at != 0;
	exchange(patient, true, stage_section);
	/* The extents are in the order of their stored offsets. */
	qsort(patient->sections, patient->section_count, sizeof(BlobHealSection), compare_places);
	patient->compared_count = patient->section_count;
}
