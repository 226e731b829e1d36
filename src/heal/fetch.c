/*
 * heal/fetch.c
 *	  One value: what of it is fetched, and whether it is right.  See "Order of a repair" in the
 *	  README.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "blob/mapping.h"
#include "core/digest.h"
#include "extents/read.h"
#include "extents/verify.h"
#include "heal/heal_internal.h"
#include "miscadmin.h"
#include "store/unlogged.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "wal/insert.h"

/* Requests that are under way at a time. */
#define WINDOW 8

/* Parameters of blobext_source_read(). */
#define PARAMETER_COUNT 11

/* A part of an extent, of at most BLOB_HEAL_SECTION_BYTES. */
typedef struct Section
{
	int			extent_no;
	uint64		offset;			/* bytes in the extent */
	uint32		bytes;
	bool		is_wanted;		/* it differs, or cannot be read here */
	bool		is_staged;
	uint64		staged_at;		/* offset in the temporary file */
} Section;

/* A value that is being healed. */
typedef struct Patient
{
	BlobHeal   *heal;
	const BlobDescriptor *descriptor;
	BlobStored	stored;			/* all extents, with their generations */
	bool	   *is_lacking;		/* of each extent */
	uint64	   *mark_pages;		/* that values of each extent had before the source was asked */
	bool	   *is_marked_since;	/* whether that mark may have been raised after the fork */
	Section    *sections;
	int 		section_count;
	uint64		staged_bytes;
	char	   *refusal;		/* the first one of the source, or NULL */
} Patient;

/* ---- extents and sections ---- */

/* Look all extents of the value up.  Returns the problem, or NULL. */
static char *
look_up(Patient *patient)
{
	const BlobDescriptor *descriptor = patient->descriptor;
	int			count = blob_descriptor_extent_count(descriptor);
	BlobStored *stored = &patient->stored;
	uint64		start = 0;
	BlobStore	store;

	stored->extents = palloc0(sizeof(BlobStoredExtent) * count);
	patient->is_lacking = palloc0(sizeof(bool) * count);
	patient->mark_pages = palloc0(sizeof(uint64) * count);
	patient->is_marked_since = palloc0(sizeof(bool) * count);
	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < count; i++)
	{
		BlobStoredExtent *extent = &stored->extents[i];
		BlobMapEntry entry;
		XLogRecPtr	lsn;

		blob_mapping_extent(descriptor, i, start, extent);
		entry = blob_map_lookup_lsn(store.map, extent->extent.first_page, &lsn);
		if (!blob_verify_extent(store.map, &extent->extent, descriptor->generation))
		{
			blob_store_close(&store);
			return psprintf("extent %d at page " UINT64_FORMAT " is not allocated to this value",
							i, extent->extent.first_page);
		}
		patient->mark_pages[i] = blob_pages_for(blob_map_entry_high_water(&entry));
		patient->is_marked_since[i] = lsn > patient->heal->fork;
		patient->is_lacking[i] = blob_unlogged_contains(&patient->heal->store,
														extent->extent.generation) &&
			!blob_restore_is_proven(patient->heal, extent->extent.generation);
		start += extent->bytes;
	}
	blob_store_close(&store);
	stored->count = count;
	stored->max_generation = descriptor->generation;
	stored->total_bytes = stored->value_bytes = start;
	stored->may_lack = true;
	stored->notes_damage = true;
	return NULL;
}

/* Cut all extents into sections.  Those of lacking extents are wanted in any case. */
static void
make_sections(Patient *patient)
{
	const BlobStored *stored = &patient->stored;
	Size		count = 0;

	for (int i = 0; i < stored->count; i++)
		count += (stored->extents[i].bytes + BLOB_HEAL_SECTION_BYTES - 1) / BLOB_HEAL_SECTION_BYTES;
	patient->sections = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Section) * (count + 1));
	for (int i = 0; i < stored->count; i++)
	{
		for (uint64 offset = 0; offset < stored->extents[i].bytes;
			 offset += BLOB_HEAL_SECTION_BYTES)
		{
			patient->sections[patient->section_count++] = (Section) {
				.extent_no = i,
				.offset = offset,
				.bytes = (uint32) Min(stored->extents[i].bytes - offset, BLOB_HEAL_SECTION_BYTES),
				.is_wanted = patient->is_lacking[i]
			};
		}
	}
}

static uint64
stored_start(const Patient *patient, const Section *section)
{
	return patient->stored.extents[section->extent_no].start + section->offset;
}

/* ---- bytes of this server ---- */

/* Errors that are not about the file. */
static bool
is_of_this_session(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_OPERATOR_INTERVENTION ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK;
}

/*
 * Read stored bytes as the file has them, lacking or not; false if it cannot be read.  Whether all
 * pages had their checksums is in patient->stored.
 */
static bool
try_read(Patient *patient, uint64 stored_offset, uint64 length, char *target)
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
static void
request(BlobHeal *heal, const BlobExtent *extent, uint64 start, uint32 bytes, XLogRecPtr since,
		XLogRecPtr replayed_to, bool wants_digest)
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
static int
take_answer(BlobHeal *heal, uint32 max_bytes, const char **data, char **refusal)
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
typedef void (*AnswerTaker) (Patient *patient, Section *section, const char *data, int bytes);

/* Request all sections that are wanted, or not, several at a time. */
static void
exchange(Patient *patient, bool wanted, AnswerTaker take)
{
	int			sent = 0;
	int			under_way = 0;

	for (int taken = 0; taken < patient->section_count; taken++)
	{
		Section    *section = &patient->sections[taken];
		const char *data = NULL;
		char	   *refusal = NULL;
		int			bytes;

		if (section->is_wanted != wanted)
			continue;
		for (; sent < patient->section_count && under_way < WINDOW; sent++)
		{
			Section    *next = &patient->sections[sent];

			if (next->is_wanted != wanted)
				continue;
			request(patient->heal, &patient->stored.extents[next->extent_no].extent, next->offset,
					next->bytes, InvalidXLogRecPtr, InvalidXLogRecPtr, !wanted);
			under_way++;
		}
		bytes = take_answer(patient->heal, wanted ? section->bytes : BLOB_DIGEST_BYTES, &data,
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
compare_digest(Patient *patient, Section *section, const char *data, int bytes)
{
	uint8		sha256[BLOB_DIGEST_BYTES];

	section->staged_at = 1;
	if (!try_read(patient, stored_start(patient, section), section->bytes, patient->heal->section))
		return;
	/* Right bytes with wrong checksums are written, too: that sets the checksums. */
	if (patient->stored.has_damage)
		return;
	blob_digest_bytes(patient->heal->section, section->bytes, sha256);
	if (bytes == BLOB_DIGEST_BYTES && memcmp(sha256, data, sizeof(sha256)) == 0)
		section->staged_at = 0;
}

static void
stage(Patient *patient, const char *data, uint32 bytes)
{
	BufFileWrite(patient->heal->staging, (void *) data, bytes);
	patient->staged_bytes += bytes;
}

/* An AnswerTaker: bytes.  The rest, which the source does not have, is read here if it can be. */
static void
stage_section(Patient *patient, Section *section, const char *data, int bytes)
{
	uint32		got = (uint32) Max(bytes, 0);
	char	   *rest = patient->heal->section;

	if (got < section->bytes &&
		!try_read(patient, stored_start(patient, section) + got, section->bytes - got, rest))
		memset(rest, 0, section->bytes - got);
	section->is_staged = true;
	section->staged_at = patient->staged_bytes;
	if (got > 0)
		stage(patient, data, got);
	if (got < section->bytes)
		stage(patient, rest, section->bytes - got);
}

/* ---- verification ---- */

/* Sections are sorted by their place among the stored bytes. */
static const Section *
find_section(const Patient *patient, uint64 stored_offset)
{
	int			low = 0;
	int 		high = patient->section_count - 1;

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

static void
read_staged(BlobHeal *heal, uint64 offset, char *target, uint32 bytes)
{
	if (BufFileSeek(heal->staging, 0, (off_t) offset, SEEK_SET) != 0 ||
		BufFileRead(heal->staging, target, bytes) != bytes)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from a temporary file: %m")));
}

/* A BlobMappingFetch: stored bytes, fetched ones in place of those that are here. */
static void
fetch_assembled(void *context, uint64 stored_offset, uint64 length_bytes, bool is_node,
				char *target)
{
	Patient    *patient = context;

	while (length_bytes > 0)
	{
		const Section *section = find_section(patient, stored_offset);
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

/* Whether the content has the digest of the descriptor. */
static bool
has_digest(Patient *patient)
{
	const BlobDescriptor *descriptor = patient->descriptor;
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];
	BlobDigest	digest;
	BlobMappingSource source = {
		.fetch = fetch_assembled, .context = patient, .is_past_buffer = true
	};

	blob_digest_begin(&digest);
	for (uint64 done = 0; done < descriptor->size_bytes;)
	{
		uint64		bytes = Min(descriptor->size_bytes - done, BLOB_HEAL_SECTION_BYTES);

		CHECK_FOR_INTERRUPTS();
		blob_mapping_read(descriptor, done, bytes, patient->heal->section, &source);
		blob_digest_update(&digest, patient->heal->section, bytes);
		done += bytes;
	}
	blob_digest_finish(&digest, sha256, state);
	return memcmp(sha256, descriptor->sha256, sizeof(sha256)) == 0;
}

/* ---- repair ---- */

static char *
report_gone(const BlobExtent *extent)
{
	return psprintf("the extent at page " UINT64_FORMAT " was freed meanwhile",
					extent->first_page);
}

/* Write the fetched sections, and all of lacking extents.  Returns the problem, or NULL. */
static char *
write_sections(Patient *patient)
{
	BlobHeal   *heal = patient->heal;

	for (int i = 0; i < patient->section_count; i++)
	{
		const Section *section = &patient->sections[i];
		const BlobExtent *extent = &patient->stored.extents[section->extent_no].extent;

		if (!section->is_staged)
			continue;
		read_staged(heal, section->staged_at, heal->section, section->bytes);
		if (!blob_restore_write(heal, extent, section->offset, heal->section, section->bytes,
								true))
			return report_gone(extent);
	}
	return NULL;
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
 * Whether the source may be asked for pages behind a value, which no digest verifies; and up to
 * which position a standby must have replayed then.  See "When an extent stops to be lacking".
 */
static bool
may_ask_without_digest(BlobHeal *heal, XLogRecPtr *replayed_to)
{
	*replayed_to = InvalidXLogRecPtr;
	if (heal->fork != BLOB_NO_FORK)
	{
		if (heal->source_is_standby)
			*replayed_to = heal->fork;
		return true;
	}
	if (!heal->source_is_standby || !heal->logs_content)
		return false;
	*replayed_to = position_behind_claims(heal);
	return true;
}

/*
 * Pages of the extent that this server has written since the fork: they are right as they are.
 * Copies of this server will hear that they have all of the extent (FETCHED), and may lack these
 * pages, if their content was not logged.  So log them.  Returns the problem, or NULL.
 */
static char *
keep_own_pages(Patient *patient, int extent_no, uint64 start, uint64 end)
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
			return report_gone(extent);
		start += bytes;
	}
	return NULL;
}

/*
 * The pages of a lacking extent behind those of the value, up to the mark: from a source that must
 * have them as this server had them.  Where its block of the map has not changed since the fork,
 * its mark is that of the fork, and this server has written the pages behind it.  Returns the
 * problem, or NULL.
 */
static char *
prove_extent(Patient *patient, int extent_no)
{
	BlobHeal   *heal = patient->heal;
	const BlobStoredExtent *stored = &patient->stored.extents[extent_no];
	uint64		start = blob_pages_for(stored->bytes) * BLOB_PAGE_SIZE;
	uint64		end = patient->mark_pages[extent_no] * BLOB_PAGE_SIZE;
	XLogRecPtr	since = patient->is_marked_since[extent_no] ? heal->fork : InvalidXLogRecPtr;
	XLogRecPtr	replayed_to = InvalidXLogRecPtr;
	char	   *problem;

	if (start < end && !may_ask_without_digest(heal, &replayed_to))
		return psprintf("the extent at page " UINT64_FORMAT " has bytes of other values, "
						"which only a standby of this server could give",
						stored->extent.first_page);
	while (start < end)
	{
		uint32		wanted = (uint32) Min(end - start, BLOB_HEAL_SECTION_BYTES);
		const char *data = NULL;
		char	   *refusal = "it has fewer bytes";
		int			bytes;

		request(heal, &stored->extent, start, wanted, since, replayed_to, false);
		bytes = take_answer(heal, wanted, &data, &refusal);
		if (bytes == 0 && since != InvalidXLogRecPtr)
		{
			problem = keep_own_pages(patient, extent_no, start, end);
			if (problem != NULL)
				return problem;
			break;
		}
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
		if (!blob_restore_write(heal, &stored->extent, start, heal->section, bytes, false))
			return report_gone(&stored->extent);
		start += bytes;
	}
	blob_restore_prove(heal, &stored->extent);
	return NULL;
}

static char *
repair(Patient *patient)
{
	char	   *problem = write_sections(patient);

	for (int i = 0; i < patient->stored.count && problem == NULL; i++)
		if (patient->is_lacking[i])
			problem = prove_extent(patient, i);
	return problem;
}

/* Compare, fetch, verify, write.  Returns the problem, or NULL. */
static char *
treat(Patient *patient)
{
	char	   *problem = look_up(patient);

	if (problem != NULL)
		return problem;
	make_sections(patient);
	if (BufFileSeek(patient->heal->staging, 0, 0, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write to a temporary file: %m")));
	exchange(patient, false, compare_digest);
	for (int i = 0; i < patient->section_count; i++)
		patient->sections[i].is_wanted |= patient->sections[i].staged_at != 0;
	exchange(patient, true, stage_section);
	if (!has_digest(patient))
		return patient->refusal == NULL ?
			pstrdup("the content of the other server does not match the SHA-256 digest") :
			psprintf("the other server does not give it: %s", patient->refusal);
	return repair(patient);
}

char *
blob_heal_value(BlobHeal *heal, const BlobDescriptor *descriptor)
{
	Patient		patient = {.heal = heal, .descriptor = descriptor};
	MemoryContext old_context;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "blobext repair",
												  ALLOCSET_DEFAULT_SIZES);
	char	   *problem;

	blob_connection_drain(heal->connection);
	if (blob_restore_is_full(heal))
		blob_heal_flush(heal);
	old_context = MemoryContextSwitchTo(context);
	problem = treat(&patient);
	MemoryContextSwitchTo(old_context);
	if (problem != NULL)
		problem = pstrdup(problem);
	else
		heal->totals.values++;
	MemoryContextDelete(context);
	return problem;
}
