/*
 * blob/add_sums.c
 *	  Checksums for the pages of values that were stored without, see blob/add_sums.h.
 *
 * The content is read once.  Each fetch is widened to whole pages, whose checksums are computed
 * from the very bytes that become content.  If the content has the digest of the value, each page
 * is proven all of whose stored bytes were fetched, or are zeros beside frames.  The README of this
 * folder, "Checksums of old values", has the argument.
 */
#include "postgres.h"

#include "blob/add_sums.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/used_pages.h"
#include "core/digest.h"
#include "extents/read.h"
#include "extents/verify.h"
#include "miscadmin.h"
#include "store/map_sums.h"
#include "utils/memutils.h"

/* Content is read in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

/* Stored bytes that were fetched, with zeros beside them: [start, end). */
typedef struct Fetched
{
	uint64		start;
	uint64		end;
} Fetched;

/*
 * A value that is read.  All extents but the last one have whole pages of stored bytes, so the
 * stored page n begins at the stored offset n * BLOB_PAGE_SIZE.  Those of a tree do not follow each
 * other, so the checksums are kept by extents.
 */
typedef struct Proof
{
	const BlobValue *value;
	BlobStored	stored;			/* with the bytes behind the end, in the last page */
	uint64		stored_bytes;	/* without these */
	uint32	   *sums;			/* of all extents' pages; unknown: not fetched, or not proven */
	uint64	   *first_sums;		/* number of each extent's first one */
	uint64		page_count;
	Fetched    *fetched;
	int64		fetched_count;
	int64		fetched_room;
	char	   *memory;			/* for one fetch */
	uint64		memory_bytes;
} Proof;

/* All extents of a value, with whole pages; none is looked up. */
static void
list_extents(const BlobValue *value, BlobStored *stored)
{
	const BlobDescriptor *descriptor = &value->descriptor;
	int			count = blob_descriptor_extent_count(descriptor);

	memset(stored, 0, sizeof(*stored));
	stored->max_generation = descriptor->generation;
	stored->value_bytes = value->size_bytes;
	stored->notes_damage = true;	/* the digest decides: checksums in the map may be damaged */
	stored->extents = palloc(sizeof(BlobStoredExtent) * Max(count, 1));
	for (stored->count = 0; stored->count < count; stored->count++)
	{
		BlobStoredExtent *extent = &stored->extents[stored->count];

		Assert(stored->total_bytes % BLOB_PAGE_SIZE == 0);
		blob_mapping_extent(descriptor, stored->count, stored->total_bytes, extent);
		extent->bytes = blob_pages_for(extent->bytes) * BLOB_PAGE_SIZE;
		stored->total_bytes = extent->start + extent->bytes;
	}
}

/* ---- whether ---- */

/* A look for pages of a value that lack a sum. */
typedef struct Look
{
	const BlobValue *value;
	bool		counts_partial;	/* all pages with bytes of it count, or those that can be proven */
	bool		is_listed;
	BlobUsedPages used;			/* is_listed: of a tree, or of a compressed value */
} Look;

static bool
is_flat_compressed(const Look *look)
{
	return look->value->descriptor.is_compressed && !look->value->descriptor.is_tree;
}

/* List the stored bytes that the value uses. */
static void
list_used(Look *look)
{
	const BlobDescriptor *descriptor = &look->value->descriptor;
	BlobMappingSource source;
	BlobReader	reader;

	blob_reader_begin(&reader, look->value, 0);
	source = blob_reader_source(&reader);
	if (is_flat_compressed(look))
		blob_used_pages_list_frames(descriptor, &source, &look->used);
	else
		blob_used_pages_list(descriptor, &source, &look->used);
	blob_reader_end(&reader);
	look->is_listed = true;
}

/*
 * Whether a page of a compressed value that is no tree has zeros beside its frames.  An append can
 * leave bytes there that are an older version's, and then the page cannot be proven.
 */
static bool
has_zeros_beside(Look *look, uint64 stored_page_no)
{
	uint64		start = stored_page_no * BLOB_PAGE_SIZE;
	uint64		end = Min(start + BLOB_PAGE_SIZE,
						  blob_mapping_stored_bytes(&look->value->descriptor));
	char		page[BLOB_PAGE_SIZE] = {0};
	char		used[BLOB_PAGE_SIZE] = {0};
	BlobReader	reader;

	if (!look->is_listed)
		list_used(look);
	if (blob_used_pages_fill(&look->used, stored_page_no))
		return true;
	blob_reader_begin(&reader, look->value, 0);
	blob_reader_read_stored(&reader, start, end - start, page);
	blob_reader_end(&reader);
	blob_used_pages_copy(&look->used, stored_page_no, page, used);
	return memcmp(page, used, BLOB_PAGE_SIZE) == 0;
}

/* Whether a page counts: of a tree it may have no bytes of the value. */
static bool
is_asked_for(const Look *look, uint64 stored_page_no)
{
	if (!look->value->descriptor.is_tree)
		return true;
	return look->counts_partial ? blob_used_pages_have(&look->used, stored_page_no) :
		blob_used_pages_fill(&look->used, stored_page_no);
}

/* Whether it still does if it has no sum. */
static bool
is_missed(Look *look, uint64 stored_page_no)
{
	return look->counts_partial || !is_flat_compressed(look) ||
		has_zeros_beside(look, stored_page_no);
}

/* Whether an extent without sums has a page of which one is asked for. */
static bool
asks_for_any(Look *look, const BlobStoredExtent *stored)
{
	uint64		first_no = stored->start / BLOB_PAGE_SIZE;

	for (uint64 i = 0; i < blob_pages_for(stored->bytes); i++)
		if (is_asked_for(look, first_no + i) && is_missed(look, first_no + i))
			return true;
	return false;
}

/* The sum of one page, BLOB_SUM_UNKNOWN also if it has none. */
static uint32
get_sum(Relation map, const BlobExtent *extent, uint64 page_no)
{
	uint32		sum;

	return blob_map_get_sums(map, extent, page_no, 1, &sum) == BLOB_SUMS_FOUND ? sum :
		BLOB_SUM_UNKNOWN;
}

/*
 * Whether one of the pages of a value in an extent, which has sums, has one that is not known, or a
 * damaged entry.  Other pages of a tree's extent may have no entry: they were claimed, and not
 * written yet, or never.
 */
static bool
lacks_sum(Look *look, Relation map, const BlobStoredExtent *stored)
{
	uint64		first_no = stored->start / BLOB_PAGE_SIZE;
	uint32		sums[BLOB_SUMS_MAX_PAGES];
	uint64		pages = stored->bytes / BLOB_PAGE_SIZE;

	for (uint64 page_no = 0; page_no < pages; page_no += BLOB_SUMS_MAX_PAGES)
	{
		uint64		count = Min(pages - page_no, BLOB_SUMS_MAX_PAGES);
		bool		are_there = blob_map_get_sums(map, &stored->extent, page_no, count, sums) ==
			BLOB_SUMS_FOUND;

		CHECK_FOR_INTERRUPTS();
		for (uint64 i = 0; i < count; i++)
		{
			if (!is_asked_for(look, first_no + page_no + i))
				continue;
			if (!are_there)
				sums[i] = get_sum(map, &stored->extent, page_no + i);
			if (sums[i] == BLOB_SUM_UNKNOWN && is_missed(look, first_no + page_no + i))
				return true;
		}
	}
	return false;
}

/* Whether pages of a value lack sums: all that have bytes of it, or those that could get some. */
static bool
lacks_sums(const BlobValue *value, bool counts_partial)
{
	Look		look = {.value = value,.counts_partial = counts_partial};
	BlobStored	stored;
	BlobStore	store;
	bool		lacks = false;

	if (value->is_inline)
		return false;
	if (value->descriptor.is_tree)
		list_used(&look);
	list_extents(value, &stored);
	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < stored.count && !lacks; i++)
	{
		BlobExtent *extent = &stored.extents[i].extent;

		if (!blob_verify_extent(store.map, extent, stored.max_generation))
			blob_verify_report_stale(i, value->size_bytes);
		lacks = extent->has_sums ?
			lacks_sum(&look, store.map, &stored.extents[i]) :
			asks_for_any(&look, &stored.extents[i]);
	}
	blob_store_close(&store);
	pfree(stored.extents);
	return lacks;
}

bool
blob_add_sums_is_due(const BlobValue *value)
{
	return lacks_sums(value, false);
}

bool
blob_add_sums_has_all(const BlobValue *value)
{
	return !lacks_sums(value, true);
}

bool
blob_add_sums_has_last(const BlobValue *value)
{
	const BlobDescriptor *descriptor = &value->descriptor;
	int			last_no = blob_descriptor_extent_count(descriptor) - 1;
	BlobStoredExtent last = {0};
	uint64		start = 0;
	BlobStore	store;
	bool		has_last = true;

	Assert(!value->is_inline && !descriptor->is_tree);
	for (int i = 0; i <= last_no; i++)
	{
		blob_mapping_extent(descriptor, i, start, &last);
		start = last.start + last.bytes;
	}
	blob_store_open(&store, AccessShareLock);
	if (last.bytes > 0 && blob_map_has_sums(store.map))
	{
		if (!blob_verify_extent(store.map, &last.extent, descriptor->generation))
			blob_verify_report_stale(last_no, value->size_bytes);
		has_last = last.extent.has_sums &&
			get_sum(store.map, &last.extent, blob_pages_for(last.bytes) - 1) != BLOB_SUM_UNKNOWN;
	}
	blob_store_close(&store);
	return has_last;
}

/* ---- reading ---- */

/* Note that stored bytes were fetched, and become content, or are zeros that belong to them. */
static void
note_fetched(Proof *proof, uint64 start, uint64 end)
{
	Fetched    *last = proof->fetched_count > 0 ? &proof->fetched[proof->fetched_count - 1] : NULL;

	if (last != NULL && start >= last->start && start <= last->end)
	{
		last->end = Max(last->end, end);
		return;
	}
	if (proof->fetched_count == proof->fetched_room)
	{
		proof->fetched_room = Max(64, proof->fetched_room * 2);
		proof->fetched = proof->fetched == NULL ?
			palloc(sizeof(Fetched) * proof->fetched_room) :
			repalloc_huge(proof->fetched, sizeof(Fetched) * proof->fetched_room);
	}
	proof->fetched[proof->fetched_count++] = (Fetched) {start, end};
}

/* Note the checksums of stored pages, [page_no, page_no + count), all of one extent. */
static void
note_sums(Proof *proof, const BlobStoredExtent *stored, uint64 page_no, uint32 count,
		  const char *data)
{
	BlobPageNo	page = stored->extent.first_page + (page_no - stored->start / BLOB_PAGE_SIZE);
	uint64		first_sum = proof->first_sums[stored - proof->stored.extents] +
		page_no - stored->start / BLOB_PAGE_SIZE;
	uint32		sums[BLOB_SUMS_MAX_PAGES];

	blob_page_sums(&(BlobSummedPages) {stored->extent.generation, page, data, count}, 1, sums);
	for (uint32 i = 0; i < count; i++)
	{
		uint32	   *known = &proof->sums[first_sum + i];

		if (*known != BLOB_SUM_UNKNOWN && *known != sums[i])
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("page " UINT64_FORMAT " was read twice, with different content",
							page + i)));
		*known = sums[i];
	}
}

/* Note the checksums of stored pages, which may be of several extents. */
static void
note_pages(Proof *proof, uint64 page_no, uint64 end_no, const char *data)
{
	while (page_no < end_no)
	{
		const BlobStoredExtent *stored =
			&proof->stored.extents[blob_stored_find(&proof->stored, page_no * BLOB_PAGE_SIZE)];
		uint64		extent_end = (stored->start + stored->bytes) / BLOB_PAGE_SIZE;
		uint64		count = Min(Min(end_no, extent_end) - page_no, BLOB_SUMS_MAX_PAGES);

		note_sums(proof, stored, page_no, (uint32) count, data);
		page_no += count;
		data += count * BLOB_PAGE_SIZE;
	}
}

/*
 * Note that the stored bytes [offset, end) were fetched, with their pages in memory.  Frames of a
 * compressed value leave zeros in pages that they do not fill.  Zeros beside a run of a tree may be
 * damage of another version's run, which has no checksum of its own.
 */
static void
note_range(Proof *proof, uint64 offset, uint64 end)
{
	uint64		pages_start = offset / BLOB_PAGE_SIZE * BLOB_PAGE_SIZE;
	uint64		pages_end = Min(blob_pages_for(end) * BLOB_PAGE_SIZE, proof->stored_bytes);

	if (proof->value->descriptor.is_compressed && !proof->value->descriptor.is_tree)
	{
		while (offset > pages_start && proof->memory[offset - 1 - pages_start] == 0)
			offset--;
		while (end < pages_end && proof->memory[end - pages_start] == 0)
			end++;
	}
	note_fetched(proof, offset, end);
}

/* A BlobMappingFetch: read the pages that have these stored bytes; behind the end they are zero. */
static void
fetch(void *context, uint64 stored_offset, uint64 length_bytes, bool is_node, char *target)
{
	Proof	   *proof = context;
	uint64		end = stored_offset + length_bytes;
	uint64		page_no = stored_offset / BLOB_PAGE_SIZE;
	uint64		end_no = blob_pages_for(end);
	uint64		bytes = (end_no - page_no) * BLOB_PAGE_SIZE;
	uint64		read_bytes = Min(bytes, proof->stored_bytes - page_no * BLOB_PAGE_SIZE);

	if (bytes > proof->memory_bytes)
	{
		if (proof->memory != NULL)
			pfree(proof->memory);
		proof->memory = palloc(bytes);
		proof->memory_bytes = bytes;
	}
	blob_stored_read(&proof->stored, NULL, false, page_no * BLOB_PAGE_SIZE, read_bytes,
					 proof->memory);
	memset(proof->memory + read_bytes, 0, bytes - read_bytes);
	note_pages(proof, page_no, end_no, proof->memory);
	note_range(proof, stored_offset, end);
	memcpy(target, proof->memory + (stored_offset - page_no * BLOB_PAGE_SIZE), length_bytes);
}

/* Read the content, and compare it with its digest. */
static void
read_content(Proof *proof)
{
	const BlobDescriptor *descriptor = &proof->value->descriptor;
	BlobMappingSource source = {.fetch = fetch, .context = proof, .is_past_buffer = true};
	char	   *buffer = palloc(Min(descriptor->size_bytes, STEP_BYTES));
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];
	BlobDigest	digest;

	if (descriptor->is_open)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("pages of a value with an open digest have no checksums"),
				 errdetail("Nothing says whether its content of " UINT64_FORMAT " bytes is right.",
						   descriptor->size_bytes)));
	blob_digest_begin(&digest);
	for (uint64 done = 0; done < descriptor->size_bytes;)
	{
		uint64		length = Min(descriptor->size_bytes - done, STEP_BYTES);

		CHECK_FOR_INTERRUPTS();
		blob_mapping_read(descriptor, done, length, buffer, &source);
		blob_digest_update(&digest, buffer, length);
		done += length;
	}
	blob_digest_finish(&digest, sha256, state);
	pfree(buffer);
	if (memcmp(sha256, descriptor->sha256, sizeof(sha256)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("content does not match its SHA-256 digest"),
				 errdetail("The value of " UINT64_FORMAT " bytes got no checksums.",
						   descriptor->size_bytes),
				 errhint("Restore the value from a backup; blobext_check() lists the affected "
						 "values.")));
}

/* ---- proven pages ---- */

static int
compare_fetched(const void *a, const void *b)
{
	const Fetched *left = a;
	const Fetched *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

static bool
knows_last_sum(const BlobStoredExtent *last)
{
	BlobStore	store;
	bool		is_known;

	blob_store_open(&store, AccessShareLock);
	is_known = get_sum(store.map, &last->extent, last->bytes / BLOB_PAGE_SIZE - 1) !=
		BLOB_SUM_UNKNOWN;
	blob_store_close(&store);
	return is_known;
}

/*
 * Whether the bytes of the last page behind the end are zero, as all writers leave them.  If the
 * page has yet to be written, the file may have others there.  Not asked of a page with a checksum:
 * then its file must not be read before it is written.
 */
static bool
ends_with_zeros(Proof *proof)
{
	const BlobStoredExtent *last = &proof->stored.extents[proof->stored.count - 1];
	uint64		bytes = proof->stored.total_bytes - proof->stored_bytes;
	char		end[BLOB_PAGE_SIZE];

	if (bytes == 0)
		return true;
	if (last->extent.has_sums && knows_last_sum(last))
		return false;
	blob_stored_read(&proof->stored, NULL, false, proof->stored_bytes, bytes, end);
	for (uint64 i = 0; i < bytes; i++)
		if (end[i] != 0)
			return false;
	return true;
}

/* Join fetched ranges that touch, in their order. */
static void
join_fetched(Proof *proof)
{
	int64		count = 0;

	if (proof->fetched_count == 0)
		return;
	qsort(proof->fetched, proof->fetched_count, sizeof(Fetched), compare_fetched);
	for (int64 i = 1; i < proof->fetched_count; i++)
	{
		Fetched    *last = &proof->fetched[count];

		if (proof->fetched[i].start <= last->end)
			last->end = Max(last->end, proof->fetched[i].end);
		else
			proof->fetched[++count] = proof->fetched[i];
	}
	proof->fetched_count = count + 1;
}

/* Forget the checksums of pages with stored bytes that did not become content. */
static void
keep_proven(Proof *proof)
{
	int64		next = 0;		/* the first range that may end behind the page */

	join_fetched(proof);
	for (int i = 0; i < proof->stored.count; i++)
	{
		const BlobStoredExtent *stored = &proof->stored.extents[i];

		for (uint64 done = 0; done < stored->bytes; done += BLOB_PAGE_SIZE)
		{
			uint64		start = stored->start + done;
			uint64		end = Min(start + BLOB_PAGE_SIZE, proof->stored_bytes);

			while (next < proof->fetched_count && proof->fetched[next].end < end)
				next++;
			if (next == proof->fetched_count || proof->fetched[next].start > start)
				proof->sums[proof->first_sums[i] + done / BLOB_PAGE_SIZE] = BLOB_SUM_UNKNOWN;
		}
	}
	if (!ends_with_zeros(proof))
		proof->sums[proof->page_count - 1] = BLOB_SUM_UNKNOWN;
}

/* Set the checksums in the map; returns their number.  XB001 if an extent was freed meanwhile. */
static uint64
set_sums(const Proof *proof)
{
	uint64		added = 0;
	BlobStore	store;

	blob_store_open(&store, ShareUpdateExclusiveLock);
	for (int i = 0; i < proof->stored.count; i++)
	{
		const BlobStoredExtent *stored = &proof->stored.extents[i];

		if (!blob_map_add_sums(store.map, &stored->extent,
							   proof->sums + proof->first_sums[i],
							   stored->bytes / BLOB_PAGE_SIZE, &added))
			blob_verify_report_stale(i, proof->value->size_bytes);
	}
	blob_store_close(&store);
	return added;
}

uint64
blob_add_sums(const BlobValue *value)
{
	Proof		proof = {.value = value};

	Assert(!value->is_inline);
	list_extents(value, &proof.stored);
	proof.stored_bytes = blob_mapping_stored_bytes(&value->descriptor);
	proof.first_sums = palloc(sizeof(uint64) * Max(proof.stored.count, 1));
	for (int i = 0; i < proof.stored.count; i++)
	{
		proof.first_sums[i] = proof.page_count;
		proof.page_count += proof.stored.extents[i].bytes / BLOB_PAGE_SIZE;
	}
	if (proof.page_count == 0)
		return 0;
	proof.sums = MemoryContextAllocHuge(CurrentMemoryContext, proof.page_count * sizeof(uint32));
	for (uint64 i = 0; i < proof.page_count; i++)
		proof.sums[i] = BLOB_SUM_UNKNOWN;
	read_content(&proof);
	keep_proven(&proof);
	return set_sums(&proof);
}
