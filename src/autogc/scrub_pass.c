/*
 * autogc/scrub_pass.c
 *	  The scrubber: one segment, see autogc/scrub_pass.h and README.md, "The scrubber".
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/process.h"
#include "autogc/scrub_confirm.h"
#include "autogc/scrub_pass.h"
#include "core/settings.h"
#include "extents/file_pages.h"
#include "io/engine.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "store/map.h"
#include "store/map_sums.h"
#include "store/store.h"
#include "store/unlogged.h"
#include "utils/timestamp.h"

/*
 * A step reads what a tenth of a second allows: at most as much as the buffers of requests hold, at
 * least one of them.
 */
#define STEPS_PER_SECOND 10
#define MAX_STEP_PAGES (BLOB_IO_BUFFER_COUNT * BLOB_SUMS_MAX_PAGES)

/* How long a map that is locked is waited for. */
#define LOCKED_MS 100

#define BYTES_PER_MB (1024 * 1024)

typedef struct Pass
{
	BlobStoreId store;
	BlobPageNo	start_page;		/* of the segment */
	BlobPageNo	end_page;
	BlobGeneration limit;		/* extents with numbers from here on are too new */
	BlobScrubResult *result;

	/* Where we are: extents that begin before next_page were seen, but for the rest of this one. */
	BlobPageNo	next_page;
	BlobExtent	extent;
	uint64		page_no;		/* the next one of it */
	uint64		end_page_no;	/* nothing is left if this is not larger */

	/* The step. */
	Relation	map;
	int			step_pages;		/* at most */
	int			listed_pages;
	int			part_count;
	BlobFilePart parts[MAX_STEP_PAGES];

	BlobScrubSuspect *suspects; /* all of the segment */
	int			suspect_count;
	int			suspect_room;
	MemoryContext context;
	BufferAccessStrategy strategy;	/* for blocks of the map */

	int64		owed_us;		/* time to pause */
} Pass;

/* ---- which pages ---- */

static bool
is_full(const Pass *pass)
{
	return pass->listed_pages >= pass->step_pages;
}

/* Add pages of the current extent to the step, as far as there is room. */
static void
list_pages(Pass *pass)
{
	while (pass->page_no < pass->end_page_no && !is_full(pass))
	{
		BlobFilePart *part = &pass->parts[pass->part_count++];
		uint64		pages = Min(pass->end_page_no - pass->page_no, BLOB_SUMS_MAX_PAGES);

		part->extent = pass->extent;
		part->page_no = pass->page_no;
		part->pages = (uint32) Min(pages, (uint64) (pass->step_pages - pass->listed_pages));
		pass->listed_pages += part->pages;
		pass->page_no += part->pages;
	}
}

/* Make this extent the current one: of it, the pages that values have, in the segment. */
static void
take_extent(Pass *pass, BlobPageNo first_page, const BlobMapEntry *entry)
{
	uint64		used_pages = blob_pages_for(blob_map_entry_high_water(entry));
	uint64		start_no = first_page < pass->start_page ? pass->start_page - first_page : 0;

	pass->extent = (BlobExtent) {
		.first_page = first_page,
		.pages = blob_map_entry_pages(entry),
		.generation = blob_map_entry_generation(entry),
		.is_tail = blob_map_entry_state(entry) == BLOB_MAP_TAIL,
		.has_sums = blob_map_entry_has_sums(entry)
	};
	pass->page_no = start_no;
	pass->end_page_no = Min(Min(used_pages, pass->extent.pages), pass->end_page - first_page);
	if (pass->extent.generation >= pass->limit || pass->end_page_no <= start_no ||
		blob_unlogged_contains(&pass->store, pass->extent.generation))
		pass->end_page_no = 0;
	else if (!pass->extent.has_sums && !blob_map_hides_sums(pass->map, &pass->extent))
	{
		pass->result->plain_pages += pass->end_page_no - start_no;
		pass->end_page_no = 0;
	}
}

/* A BlobMapVisitor. */
static void
visit_extent(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	Pass	   *pass = context;

	if (is_full(pass))
		return;
	take_extent(pass, first_page, entry);
	pass->next_page = first_page + 1;
	list_pages(pass);
}

/* The pages of one step, from where the last one ended. */
static void
list_step(Pass *pass, Relation map)
{
	BlobMapEntry entry = blob_map_lookup(map, pass->extent.first_page);

	pass->part_count = 0;
	pass->listed_pages = 0;
	if (blob_map_entry_is_extent(&entry) &&
		blob_map_entry_generation(&entry) == pass->extent.generation)
		list_pages(pass);
	else
		pass->end_page_no = 0;
	while (!is_full(pass) && pass->next_page < pass->end_page)
	{
		BlobPageNo	block_end = blob_map_page_at(blob_map_block_of(pass->next_page) + 1, 0);

		block_end = Min(block_end, pass->end_page);
		blob_map_visit_range(map, pass->next_page, block_end, pass->strategy,
							 visit_extent, pass);
		if (!is_full(pass))
			pass->next_page = block_end;
	}
}

typedef struct LastExtent
{
	BlobPageNo	first_page;
	BlobMapEntry entry;
	bool		is_found;
} LastExtent;

static void
see_last(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	LastExtent *last = context;

	last->first_page = first_page;
	last->entry = *entry;
	last->is_found = true;
}

/* An extent that begins before the segment may reach into it: the last one before. */
static void
take_extent_before(Pass *pass, Relation map)
{
	LastExtent	last = {0};
	BlobPageNo	end_page = pass->start_page;

	while (end_page > 0 && !last.is_found)
	{
		BlobPageNo	start_page = blob_map_page_at(blob_map_block_of(end_page - 1), 0);

		blob_map_visit_range(map, start_page, end_page, pass->strategy, see_last, &last);
		end_page = start_page;
	}
	if (last.is_found)
		take_extent(pass, last.first_page, &last.entry);
}

/* ---- suspects ---- */

/* Note a suspect page; the array grows in the context of the pass. */
static void
add_suspect(Pass *pass, const BlobFilePart *part, uint64 page_no)
{
	if (pass->suspect_count == pass->suspect_room)
	{
		MemoryContext old_context = MemoryContextSwitchTo(pass->context);

		pass->suspect_room = Max(64, 2 * pass->suspect_room);
		pass->suspects = pass->suspects == NULL ?
			palloc(sizeof(BlobScrubSuspect) * pass->suspect_room) :
			repalloc(pass->suspects, sizeof(BlobScrubSuspect) * pass->suspect_room);
		MemoryContextSwitchTo(old_context);
	}
	pass->suspects[pass->suspect_count++] = (BlobScrubSuspect) {
		.extent = part->extent,
		.page_no = page_no
	};
}

/* Read the pages of a part again, as for a value: dirty ones are in the buffer. */
static void
look_again(Pass *pass, BlobStore *store, const BlobFilePart *part)
{
	for (uint32 i = 0; i < part->pages; i++)
	{
		uint64		page_no = part->page_no + i;

		CHECK_FOR_INTERRUPTS();
		if (blob_file_page_is_damaged(store, &part->extent, part->extent.generation, page_no))
			add_suspect(pass, part, page_no);
		else
			pass->result->verified_pages++;
	}
}

/* Compare the parts of a step, and count their pages: one whose sum is unknown was not verified. */
static void
compare_step(Pass *pass, BlobStore *store)
{
	if (pass->part_count == 0)
		return;
	blob_file_pages_compare(store, pass->parts, pass->part_count);
	for (int i = 0; i < pass->part_count; i++)
	{
		const BlobFilePart *part = &pass->parts[i];

		if (part->is_suspect)
		{
			look_again(pass, store, part);
			continue;
		}
		pass->result->verified_pages += part->pages - part->unknown_pages;
		pass->result->plain_pages += part->unknown_pages;
	}
}

/* ---- steps ---- */

/* Do something with the open store in a transaction; false if it is gone. */
static bool
in_store(Pass *pass, void (*work) (Pass *pass, BlobStore *store))
{
	for (;;)
	{
		BlobStore	store;
		bool		exists;
		bool		is_open;
		bool		is_same = false;

		StartTransactionCommand();
		is_open = blob_store_try_open(&store, AccessShareLock, &exists);
		if (is_open)
		{
			is_same = blob_store_id_equals(&store.id, &pass->store);
			pass->map = store.map;
			if (is_same)
				work(pass, &store);
			blob_store_close(&store);
		}
		CommitTransactionCommand();
		if (is_open || !exists)
			return is_same;
		(void) blob_autogc_process_pause(LOCKED_MS, 0);
		if (blob_scrub_rate_mb == 0)
			return false;
	}
}

static void
begin(Pass *pass, BlobStore *store)
{
	BlobMapMeta meta;

	blob_map_read_meta(store->map, &meta);
	pass->limit = meta.generation_limit;
	pass->end_page = Min(pass->end_page, Max(meta.reserved_pages, pass->start_page));
	take_extent_before(pass, store->map);
}

static void
step(Pass *pass, BlobStore *store)
{
	list_step(pass, store->map);
	compare_step(pass, store);
}

/* Pause, so that the step since then takes its time.  False if the rate is 0 by now. */
static bool
keep_pace(Pass *pass, instr_time started_at)
{
	int64		bytes = (int64) pass->listed_pages * BLOB_PAGE_SIZE;
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, started_at);
	pass->owed_us += bytes * 1000000 / ((int64) blob_scrub_rate_mb * BYTES_PER_MB) -
		(int64) INSTR_TIME_GET_MICROSEC(now);
	pass->owed_us = Max(pass->owed_us, 0);	/* time that was lost is not made up for */
	do
	{
		long		pause_ms = (long) (pass->owed_us / 1000);

		INSTR_TIME_SET_CURRENT(started_at);
		(void) blob_autogc_process_pause(pause_ms, 0);
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, started_at);
		pass->owed_us -= Min((int64) INSTR_TIME_GET_MICROSEC(now), pass->owed_us);
	} while (pass->owed_us >= 1000 && blob_scrub_rate_mb > 0);
	return blob_scrub_rate_mb > 0;
}

/* All steps of the segment; false if the pass must end before. */
static bool
run(Pass *pass)
{
	if (!in_store(pass, begin))
		return false;
	while (pass->next_page < pass->end_page || pass->page_no < pass->end_page_no)
	{
		instr_time	started_at;

		INSTR_TIME_SET_CURRENT(started_at);
		pass->step_pages = blob_scrub_rate_mb * (BYTES_PER_MB / BLOB_PAGE_SIZE) / STEPS_PER_SECOND;
		pass->step_pages = Max(Min(pass->step_pages, MAX_STEP_PAGES), BLOB_SUMS_MAX_PAGES);
		if (!in_store(pass, step) || !keep_pace(pass, started_at))
			return false;
	}
	return true;
}

/* Tell damaged pages from other suspects, and complete the result. */
static BlobScrubEnd
decide(Pass *pass)
{
	if (pass->suspect_count > 0 &&
		!blob_scrub_confirm(&pass->store, pass->suspects, pass->suspect_count))
		return BLOB_SCRUB_UNDECIDED;
	for (int i = 0; i < pass->suspect_count; i++)
		pass->result->damaged_pages += pass->suspects[i].is_damaged ? 1 : 0;
	pass->result->ended_at = GetCurrentTimestamp();
	return BLOB_SCRUB_WHOLE;
}

BlobScrubEnd
blob_scrub_segment(const BlobStoreId *store, uint32 segment_no, BlobScrubResult *result)
{
	Pass	   *pass = palloc0(sizeof(Pass));
	BlobScrubEnd end;

	memset(result, 0, sizeof(*result));
	pass->store = *store;
	pass->start_page = segment_no * BLOB_SEGMENT_PAGES;
	pass->end_page = pass->start_page + BLOB_SEGMENT_PAGES;
	pass->next_page = pass->start_page;
	pass->result = result;
	pass->context = CurrentMemoryContext;
	pass->strategy = GetAccessStrategy(BAS_BULKREAD);
	end = run(pass) ? decide(pass) : BLOB_SCRUB_STOPPED;
	if (pass->suspects != NULL)
		pfree(pass->suspects);
	FreeAccessStrategy(pass->strategy);
	pfree(pass);
	return end;
}
