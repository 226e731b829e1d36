/*
 * heal/fetch.c
 *	  One value: what of it is fetched, and whether it is right.  See "Order of a repair" in the
 *	  README.
 */
#include "postgres.h"

#include "access/xact.h"
#include "blob/mapping.h"
#include "core/digest.h"
#include "extents/read.h"
#include "extents/verify.h"
#include "heal/patient.h"
#include "miscadmin.h"
#include "store/map_sums.h"
#include "store/unlogged.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/*
 * Whether among the stored bytes of the value may be some that are not its own: of a tree, and of a
 * compressed value that has grown, which leaves open frames and directories of older versions.
 */
static bool
has_gaps(const BlobPatient *patient)
{
	return patient->descriptor->is_tree || patient->descriptor->is_compressed;
}

/* ---- extents and sections ---- */

/* Look all extents of the value up.  Returns the problem, or NULL. */
static char *
look_up(BlobPatient *patient)
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
		start = extent->start + extent->bytes;
	}
	blob_store_close(&store);
	stored->count = count;
	stored->max_generation = descriptor->generation;
	stored->total_bytes = stored->value_bytes = start;
	stored->may_lack = true;
	stored->notes_damage = true;
	return NULL;
}

/* Whether the staged pages of a section have the checksums that the map has of them. */
static bool
has_sums(BlobPatient *patient, Relation map, const BlobHealSection *section)
{
	const BlobExtent *extent = &patient->stored.extents[section->extent_no].extent;
	char	   *data = patient->heal->section;
	uint64		first_no = section->offset / BLOB_PAGE_SIZE;
	uint64		pages = blob_pages_for(section->bytes);

	blob_patient_load(patient, section);
	memset(data + section->bytes, 0, pages * BLOB_PAGE_SIZE - section->bytes);
	for (uint64 done = 0; done < pages; done += BLOB_SUMS_MAX_PAGES)
	{
		uint32		count = (uint32) Min(pages - done, BLOB_SUMS_MAX_PAGES);
		uint32		sums[BLOB_SUMS_MAX_PAGES];
		uint32		expected[BLOB_SUMS_MAX_PAGES];

		if (blob_map_get_sums(map, extent, first_no + done, count, expected) != BLOB_SUMS_FOUND)
			return false;
		blob_page_sums(&(BlobSummedPages) {
			extent->generation, extent->first_page + first_no + done, data + done * BLOB_PAGE_SIZE,
			count
		}, 1, sums);
		for (uint32 i = 0; i < count; i++)
			if (expected[i] == BLOB_SUM_UNKNOWN || sums[i] != expected[i])
				return false;
	}
	return true;
}

/* The same of all staged sections; those that are not staged had theirs when they were read. */
static bool
have_sums(BlobPatient *patient)
{
	BlobStore	store;
	bool		is_right = !patient->stored.has_damage;

	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < patient->section_count && is_right; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (patient->sections[i].is_staged)
			is_right = has_sums(patient, store.map, &patient->sections[i]);
	}
	blob_store_close(&store);
	return is_right;
}

/* A BlobMappingFetch: as blob_patient_fetch(), and the bytes are noted: they become content. */
static void
fetch_used(void *context, uint64 stored_offset, uint64 length_bytes, bool is_node, char *target)
{
	BlobPatient *patient = context;

	blob_used_pages_add(&patient->used, stored_offset, length_bytes);
	blob_patient_fetch(patient, stored_offset, length_bytes, is_node, target);
}

/*
 * Whether the content has the digest of the descriptor, or if that is open, all pages have their
 * checksums.  All of it is read: frames and nodes have checksums of their own.
 */
static bool
is_proven(BlobPatient *patient)
{
	const BlobDescriptor *descriptor = patient->descriptor;
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];
	BlobDigest	digest;
	bool		is_noted = descriptor->is_compressed && !descriptor->is_tree;
	BlobMappingSource source = {
		.fetch = is_noted ? fetch_used : blob_patient_fetch,
		.context = patient,
		.is_past_buffer = true
	};

	blob_digest_begin(&digest);
	patient->stored.has_damage = false;
	for (uint64 done = 0; done < descriptor->size_bytes;)
	{
		uint64		bytes = Min(descriptor->size_bytes - done, BLOB_HEAL_SECTION_BYTES);

		CHECK_FOR_INTERRUPTS();
		blob_mapping_read(descriptor, done, bytes, patient->heal->section, &source);
		blob_digest_update(&digest, patient->heal->section, bytes);
		done += bytes;
	}
	blob_digest_finish(&digest, sha256, state);
	if (is_noted)
		blob_used_pages_sort(&patient->used);
	return descriptor->is_open ? have_sums(patient) :
		memcmp(sha256, descriptor->sha256, sizeof(sha256)) == 0;
}

/* ---- repair ---- */

/* Say again in the map that the checksum of a page is not known, in place of a damaged entry. */
static bool
forget_sum(const BlobExtent *extent, uint64 page_no)
{
	uint32		sum = BLOB_SUM_UNKNOWN;
	BlobSumRun	run = {*extent, page_no, 1, &sum};
	BlobStore	store;
	bool		is_there;

	blob_store_open(&store, RowExclusiveLock);
	is_there = blob_map_repair_sums(store.map, &run);
	blob_store_close(&store);
	return is_there;
}

/*
 * Whether a compressed value that is no tree has bytes in a page, with nothing but zeros beside
 * them.  Frames and nodes leave these; and those of other versions that might be there have
 * checksums of their own, which tell zeros from them.
 */
static bool
has_zeros_beside(BlobPatient *patient, uint64 stored_page_no, const char *fetched)
{
	char		zeros[BLOB_PAGE_SIZE] = {0};
	char		rest[BLOB_PAGE_SIZE];

	if (patient->descriptor->is_tree || !blob_used_pages_have(&patient->used, stored_page_no))
		return false;
	memcpy(rest, fetched, BLOB_PAGE_SIZE);
	blob_used_pages_copy(&patient->used, stored_page_no, zeros, rest);
	return memcmp(rest, zeros, BLOB_PAGE_SIZE) == 0;
}

/*
 * Write a page of an extent that is not lacking, of which the value has a part, and which does not
 * have its checksum as it was fetched: the value's bytes over the page that is here.  No checksum
 * is set, unless the rest is zeros that belong to the value.  Returns the problem, or NULL.
 */
static char *
write_over_own_page(BlobPatient *patient, int extent_no, uint64 page_no, const char *fetched)
{
	const BlobStoredExtent *stored = &patient->stored.extents[extent_no];
	uint64		stored_page_no = stored->start / BLOB_PAGE_SIZE + page_no;
	char		page[BLOB_PAGE_SIZE];
	BlobPatientSum look;
	bool		has_digest;

	if (!blob_used_pages_have(&patient->used, stored_page_no))
		return NULL;
	if (!blob_patient_try_read(patient, stored_page_no * BLOB_PAGE_SIZE, BLOB_PAGE_SIZE, page))
		return blob_unproven_fetch(patient, extent_no, page_no * BLOB_PAGE_SIZE,
								   (page_no + 1) * BLOB_PAGE_SIZE);
	blob_used_pages_copy(&patient->used, stored_page_no, fetched, page);
	look = blob_patient_compare_sum(&stored->extent, page_no, page);
	has_digest = has_zeros_beside(patient, stored_page_no, page);
	if (look == BLOB_PATIENT_SUM_DIFFERS && !has_digest)
		return blob_unproven_report(&stored->extent, page_no);
	if (!blob_restore_write(patient->heal, &stored->extent, page_no * BLOB_PAGE_SIZE, page,
							BLOB_PAGE_SIZE, has_digest) ||
		(look == BLOB_PATIENT_SUM_DAMAGED && !has_digest &&
		 !forget_sum(&stored->extent, page_no)))
		return blob_unproven_report_gone(&stored->extent);
	return NULL;
}

/*
 * Write a page that the value does not fill.  The digest says nothing about the rest, which other
 * versions may have.  So the fetched page is written if it has the checksum of the map.  Otherwise
 * the page of a lacking extent is left to prove_extent().
 */
static char *
write_partial_page(BlobPatient *patient, int extent_no, uint64 page_no, const char *fetched)
{
	const BlobStoredExtent *stored = &patient->stored.extents[extent_no];
	BlobPatientSum look = blob_patient_compare_sum(&stored->extent, page_no, fetched);

	if (look != BLOB_PATIENT_SUM_MATCHES && !patient->is_lacking[extent_no])
		return write_over_own_page(patient, extent_no, page_no, fetched);
	if (look != BLOB_PATIENT_SUM_MATCHES &&
		(look != BLOB_PATIENT_SUM_UNKNOWN ||
		 !has_zeros_beside(patient, stored->start / BLOB_PAGE_SIZE + page_no, fetched)))
		return NULL;
	if (!blob_restore_write(patient->heal, &stored->extent, page_no * BLOB_PAGE_SIZE, fetched,
							BLOB_PAGE_SIZE, false))
		return blob_unproven_report_gone(&stored->extent);
	blob_used_pages_add(&patient->proven, stored->start + page_no * BLOB_PAGE_SIZE,
						BLOB_PAGE_SIZE);
	return NULL;
}

/* Write pages of a section of a tree that it fills: the digest has proven them. */
static char *
write_full_pages(BlobPatient *patient, int extent_no, uint64 page_no, uint64 end_no,
				 const char *data)
{
	const BlobStoredExtent *stored = &patient->stored.extents[extent_no];
	uint64		start = page_no * BLOB_PAGE_SIZE;
	uint64		bytes = end_no * BLOB_PAGE_SIZE - start;

	if (!blob_restore_write(patient->heal, &stored->extent, start, data, (uint32) bytes, true))
		return blob_unproven_report_gone(&stored->extent);
	blob_used_pages_add(&patient->proven, stored->start + start, bytes);
	return NULL;
}

/*
 * Write a section of a value with gaps, of which the last page is filled up with zeros.  A page
 * with a problem holds up no other.
 */
static char *
write_used_pages(BlobPatient *patient, const BlobHealSection *section, const char *data)
{
	uint64		first_no = patient->stored.extents[section->extent_no].start / BLOB_PAGE_SIZE;
	uint64		page_no = section->offset / BLOB_PAGE_SIZE;
	uint64		end_no = page_no + blob_pages_for(section->bytes);
	char	   *first_problem = NULL;

	while (page_no < end_no)
	{
		uint64		from = page_no;
		char	   *problem;

		while (page_no < end_no && blob_used_pages_fill(&patient->used, first_no + page_no))
			page_no++;
		if (page_no == from)
			problem = write_partial_page(patient, section->extent_no, page_no++, data);
		else
			problem = write_full_pages(patient, section->extent_no, from, page_no, data);
		if (first_problem == NULL)
			first_problem = problem;
		data += (page_no - from) * BLOB_PAGE_SIZE;
	}
	return first_problem;
}

/* Write the fetched sections, and all of lacking extents.  Returns the first problem, or NULL. */
static char *
write_sections(BlobPatient *patient)
{
	BlobHeal   *heal = patient->heal;
	char	   *copy = palloc(BLOB_HEAL_SECTION_BYTES);
	char	   *problem = NULL;

	for (int i = 0; i < patient->section_count; i++)
	{
		const BlobHealSection *section = &patient->sections[i];
		const BlobExtent *extent = &patient->stored.extents[section->extent_no].extent;
		char	   *found = NULL;

		if (!section->is_staged)
			continue;
		blob_patient_load(patient, section);
		/* The heal's memory is used for other reads. */
		memcpy(copy, heal->section, section->bytes);
		memset(copy + section->bytes, 0, BLOB_HEAL_SECTION_BYTES - section->bytes);
		if (has_gaps(patient))
			found = write_used_pages(patient, section, copy);
		else if (!blob_restore_write(heal, extent, section->offset, copy, section->bytes, true))
			found = blob_unproven_report_gone(extent);
		if (problem == NULL)
			problem = found;
	}
	pfree(copy);
	return problem;
}

/*
 * All pages of a lacking extent, up to the mark, but those that were written as they are: of a tree
 * also those of which it has a part.  Returns the problem, or NULL.
 */
static char *
prove_extent(BlobPatient *patient, int extent_no)
{
	const BlobStoredExtent *stored = &patient->stored.extents[extent_no];
	uint64		first_no = stored->start / BLOB_PAGE_SIZE;
	uint64		pages = blob_pages_for(stored->bytes);
	uint64		end = patient->mark_pages[extent_no];
	char	   *problem = NULL;

	for (uint64 page = has_gaps(patient) ? 0 : pages; page < end && problem == NULL;)
	{
		uint64		from = page;

		while (page < pages && blob_used_pages_fill(&patient->proven, first_no + page))
			from = ++page;
		while (page < end &&
			   (page >= pages || !blob_used_pages_fill(&patient->proven, first_no + page)))
			page++;
		if (from < page)
			problem = blob_unproven_fetch(patient, extent_no, from * BLOB_PAGE_SIZE,
										  page * BLOB_PAGE_SIZE);
	}
	if (problem == NULL)
		blob_restore_prove(patient->heal, &stored->extent);
	return problem;
}

static char *
repair(BlobPatient *patient)
{
	char	   *problem = write_sections(patient);

	for (int i = 0; i < patient->stored.count && problem == NULL; i++)
		if (patient->is_lacking[i])
			problem = prove_extent(patient, i);
	return problem;
}

/* ---- trees ---- */

/* Nodes of one level. */
typedef struct NodeList
{
	BlobNodeEntry *entries;
	int64		count;
	int64		room;
} NodeList;

static void
add_node(NodeList *list, const BlobNodeEntry *entry)
{
	if (list->count == list->room)
	{
		list->room = Max(64, list->room * 2);
		list->entries = list->entries == NULL ?
			palloc(sizeof(BlobNodeEntry) * list->room) :
			repalloc_huge(list->entries, sizeof(BlobNodeEntry) * list->room);
	}
	list->entries[list->count++] = *entry;
}

/* Exchange the pages of stored bytes, which come to those that the value uses. */
static void
exchange_used(BlobPatient *patient, BlobUsedPages *used)
{
	blob_used_pages_sort(used);
	blob_patient_add_used(patient, used);
	blob_patient_exchange(patient);
	for (int64 i = 0; i < used->count; i++)
		blob_used_pages_add(&patient->used, used->ranges[i].start,
							used->ranges[i].end - used->ranges[i].start);
}

/* Read the nodes of a level, which are here now: the nodes below, or the bytes of pieces. */
static void
open_nodes(BlobPatient *patient, const NodeList *nodes, int level, NodeList *below,
		   BlobUsedPages *used)
{
	const BlobDescriptor *descriptor = patient->descriptor;
	BlobMappingSource source = {
		.fetch = blob_patient_fetch, .context = patient, .is_past_buffer = true
	};
	uint8	   *page = palloc(BLOB_PAGE_SIZE);

	for (int64 i = 0; i < nodes->count; i++)
	{
		BlobNode	node;

		CHECK_FOR_INTERRUPTS();
		blob_frames_read_node(descriptor, &source, &nodes->entries[i], level, page, &node);
		for (int no = 0; no < node.entry_count; no++)
		{
			BlobNodeEntry entry;
			BlobFrame	piece;

			if (level == 1)
			{
				blob_frames_node_frame(descriptor, page, no, &piece);
				blob_used_pages_add(used, piece.stored_offset, piece.stored_bytes);
				continue;
			}
			blob_frames_node_entry(descriptor, page, no, &entry);
			blob_used_pages_add(used, entry.stored_offset, BLOB_PAGE_SIZE);
			add_node(below, &entry);
		}
	}
	pfree(page);
}

/*
 * Exchange the pages that a tree uses, level by level: which ones these are is known when those
 * above are right.
 */
static void
exchange_tree(BlobPatient *patient)
{
	BlobNodeEntry root = blob_frames_root(patient->descriptor);
	BlobUsedPages used = {0};
	NodeList	nodes = {0};

	add_node(&nodes, &root);
	blob_used_pages_add(&used, root.stored_offset, BLOB_PAGE_SIZE);
	exchange_used(patient, &used);
	for (int level = patient->descriptor->compression.level; level >= 1; level--)
	{
		NodeList	below = {0};

		used = (BlobUsedPages) {0};
		open_nodes(patient, &nodes, level, &below, &used);
		exchange_used(patient, &used);
		nodes = below;
	}
	blob_used_pages_sort(&patient->used);
}

/* Compare, fetch, verify, write.  Returns the problem, or NULL. */
static char *
treat(BlobPatient *patient)
{
	char	   *problem = look_up(patient);

	if (problem != NULL)
		return problem;
	if (BufFileSeek(patient->heal->staging, 0, 0, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write to a temporary file: %m")));
	if (patient->descriptor->is_tree)
		exchange_tree(patient);
	else
	{
		blob_patient_add_extents(patient);
		blob_patient_exchange(patient);
	}
	if (is_proven(patient))
		return repair(patient);
	if (patient->refusal != NULL)
		return psprintf("the other server does not give it: %s", patient->refusal);
	return pstrdup(patient->descriptor->is_open ?
				   "pages of the other server do not have their checksums" :
				   "the content of the other server does not match the SHA-256 digest");
}

char *
blob_heal_value(BlobHeal *heal, const BlobDescriptor *descriptor)
{
	BlobPatient		patient = {.heal = heal, .descriptor = descriptor};
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
