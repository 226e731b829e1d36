/*
 * tools/verify/store_check.c
 *	  Compares all pages of a store that is down with their checksums, see verify.h.
 *
 * Extents are looked at in the order of their pages, so the files are read from their beginning to
 * their end.
 */
#include "postgres.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "io/segment.h"
#include "store/page_sums.h"
#include "store/unlogged_file.h"
#include "verify.h"

/*
 * Problems of a page that are damage only if a value has it.  A claim that was cancelled before its
 * checksums were set leaves a page with none, or with the one of an earlier extent; a crash, one
 * whose checksum came to the disk and whose content did not.  The map does not say which pages
 * below a mark values have ("What the map does not tell" in the README of src/store).
 */
static const char wrong_sum[] = "it does not have its checksum";
static const char no_sum[] = "the extent map has no checksum of it";

/* Pages of an extent that follow each other and have the same problem. */
typedef struct DamagedRun
{
	BlobPageNo	first_page;
	uint64		pages;			/* 0: there is none */
	const char *problem;
} DamagedRun;

typedef struct StoreCheck
{
	MapFile    *map;
	VerifyTotals *totals;
	char		directory[MAXPGPATH];

	/* Content of which this copy has nothing, by its note: sorted, without overlaps. */
	BlobGenerationRange *lacking;
	int			lacking_count;

	/* The file that is being read, and the pages of it that are in memory. */
	int			fd;				/* -1: it could not be opened */
	int			open_error;
	int64		segment_no;		/* -1: none yet */
	char		path[MAXPGPATH + 16];
	BlobPageNo	window_page;
	uint32		window_pages;
	char	   *window;

	/* The extent that is being looked at. */
	BlobExtent	extent;
	DamagedRun	run;
	bool		has_damage;
	bool		has_doubt;

	BlockNumber entry_block;	/* the last one in which a damaged entry was found */

	bool		shows_progress;
	time_t		shown_at;
} StoreCheck;

#define WINDOW_BYTES (BLOB_SUMS_MAX_PAGES * BLOB_PAGE_SIZE)

/* ---- the note of content that is lacking ---- */

static int
compare_ranges(const void *a, const void *b)
{
	const BlobGenerationRange *left = a;
	const BlobGenerationRange *right = b;

	return left->first < right->first ? -1 : left->first > right->first;
}

/* Sort ranges, leave empty ones out, and merge those that overlap; returns their number. */
static int
merge_ranges(BlobGenerationRange *ranges, int count)
{
	int			merged = 0;

	qsort(ranges, count, sizeof(*ranges), compare_ranges);
	for (int i = 0; i < count; i++)
	{
		if (ranges[i].first == BLOB_INVALID_GENERATION || ranges[i].first > ranges[i].last)
			continue;
		if (merged > 0 && ranges[i].first <= ranges[merged - 1].last)
			ranges[merged - 1].last = Max(ranges[merged - 1].last, ranges[i].last);
		else
			ranges[merged++] = ranges[i];
	}
	return merged;
}

/* Read the note, if there is one. */
static void
read_note(StoreCheck *check)
{
	char		path[MAXPGPATH + 16];
	BlobUnloggedHeader header;
	BlobGenerationRange range;
	int			room = 1024;
	FILE	   *file;

	snprintf(path, sizeof(path), "%s/" BLOB_UNLOGGED_FILE, check->directory);
	file = fopen(path, PG_BINARY_R);
	if (file == NULL && errno == ENOENT)
		return;
	if (file == NULL)
		verify_fail("could not open file \"%s\": %m", path);
	if (fread(&header, sizeof(header), 1, file) != 1 || header.magic != BLOB_UNLOGGED_MAGIC)
		verify_fail("file \"%s\" has an unknown format", path);
	check->lacking = pg_malloc(room * sizeof(range));
	while (fread(&range, sizeof(range), 1, file) == 1)
	{
		if (check->lacking_count == room)
		{
			room *= 2;
			check->lacking = pg_realloc(check->lacking, room * sizeof(range));
		}
		check->lacking[check->lacking_count++] = range;
	}
	if (ferror(file))
		verify_fail("could not read file \"%s\": %m", path);
	fclose(file);
	check->lacking_count = merge_ranges(check->lacking, check->lacking_count);
}

static bool
is_lacking(const StoreCheck *check, BlobGeneration generation)
{
	int			low = 0;
	int			high = check->lacking_count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (check->lacking[middle].last < generation)
			low = middle + 1;
		else
			high = middle;
	}
	return low < check->lacking_count && check->lacking[low].first <= generation;
}

/* ---- damage ---- */

/* An entry of the map is damaged; its block is counted once. */
static void
report_entry(StoreCheck *check, BlobPageNo page, const char *problem)
{
	BlockNumber block = blob_map_block_of(page);

	printf("damaged: extent map \"%s\", block %u: the entry of page " UINT64_FORMAT " %s\n",
		   check->map->path, block, page, problem);
	check->map->damaged_blocks += block != check->entry_block;
	check->entry_block = block;
}

/* Print the run of damaged pages that has ended, if there is one. */
static void
end_run(StoreCheck *check)
{
	DamagedRun *run = &check->run;
	bool		is_doubtful = run->problem == wrong_sum || run->problem == no_sum;

	if (run->pages == 0)
		return;
	printf("%s: file \"%s/%08x\", byte " UINT64_FORMAT ": " UINT64_FORMAT " of "
		   UINT64_FORMAT " pages of the extent at page " UINT64_FORMAT " (generation "
		   UINT64_FORMAT "): %s\n", is_doubtful ? "in doubt" : "damaged",
		   check->directory, blob_segment_of(run->first_page),
		   run->first_page % BLOB_SEGMENT_PAGES * BLOB_PAGE_SIZE, run->pages,
		   check->extent.pages, check->extent.first_page, check->extent.generation, run->problem);
	*(is_doubtful ? &check->totals->doubtful_pages : &check->totals->damaged_pages) += run->pages;
	*(is_doubtful ? &check->has_doubt : &check->has_damage) = true;
	run->pages = 0;
}

/* A page of the extent has a problem, or none (NULL). */
static void
note_page(StoreCheck *check, BlobPageNo page, const char *problem)
{
	DamagedRun *run = &check->run;

	if (run->pages > 0 && (problem == NULL || problem != run->problem ||
						   page != run->first_page + run->pages ||
						   page % BLOB_SEGMENT_PAGES == 0))
		end_run(check);
	if (problem == NULL)
		return;
	if (run->pages++ == 0)
	{
		run->first_page = page;
		run->problem = problem;
	}
}

/* ---- reading ---- */

static void
open_segment(StoreCheck *check, uint32 segment_no)
{
	if (check->segment_no == segment_no)
		return;
	if (check->fd >= 0)
		close(check->fd);
	snprintf(check->path, sizeof(check->path), "%s/%08x", check->directory, segment_no);
	check->fd = open(check->path, O_RDONLY | PG_BINARY, 0);
	check->open_error = errno;
	check->segment_no = segment_no;
	check->window_pages = 0;
}

/* Read at most count pages into the window; returns the pages that were read, or -1 with errno. */
static int
read_window(StoreCheck *check, BlobPageNo page, uint32 count)
{
	ssize_t		bytes = pread(check->fd, check->window, (size_t) count * BLOB_PAGE_SIZE,
							  (off_t) (page % BLOB_SEGMENT_PAGES * BLOB_PAGE_SIZE));

	if (bytes < 0)
		return -1;
	check->window_page = page;
	check->window_pages = (uint32) (bytes / BLOB_PAGE_SIZE);
	return (int) check->window_pages;
}

/*
 * At most *count pages from this one on, of one segment; *count becomes their number.  NULL, and a
 * problem of this page, if it cannot be read.
 */
static const char *
get_pages(StoreCheck *check, BlobPageNo page, uint32 *count, const char **problem)
{
	uint32		left = (uint32) (blob_segment_end(page) - page);
	int			pages;

	open_segment(check, blob_segment_of(page));
	if (check->fd < 0)
	{
		*problem = check->open_error == ENOENT ? "the file is missing" :
			strerror(check->open_error);
		return NULL;
	}
	if (page < check->window_page || page >= check->window_page + check->window_pages)
	{
		pages = read_window(check, page, Min(BLOB_SUMS_MAX_PAGES, left));
		if (pages < 0)			/* perhaps because of a page behind this one */
			pages = read_window(check, page, 1);
		if (pages <= 0)
		{
			*problem = pages == 0 ? "the file is too short" : strerror(errno);
			check->window_pages = 0;
			return NULL;
		}
	}
	*count = (uint32) Min(*count, check->window_page + check->window_pages - page);
	return check->window + (page - check->window_page) * BLOB_PAGE_SIZE;
}

/* ---- extents ---- */

/* The sum that the map has of a page of the extent.  False, perhaps with a problem, if none. */
static bool
find_sum(StoreCheck *check, uint64 page_no, uint32 *sum, const char **problem)
{
	BlobSumPlace place = blob_sum_place(&check->extent, page_no);
	bool		is_damaged;
	Page		page = map_file_block(check->map, blob_map_block_of(place.entry_page), &is_damaged);
	const BlobMapEntry *entry;

	*problem = NULL;
	if (is_damaged)
	{
		check->totals->unknown_pages++;
		return false;
	}
	if (page != NULL)
	{
		entry = &blob_map_page_entries(page)[blob_map_slot_of(place.entry_page)];
		if (place.sum_no == BLOB_SUM_OWN || blob_map_entry_state(entry) == BLOB_MAP_SUMS)
		{
			*sum = blob_sum_get(entry, place.sum_no);
			return true;
		}
		if (blob_map_entry_is_damaged(entry))
		{
			check->totals->unknown_pages++; /* check_block() reports the entry */
			return false;
		}
		if (!blob_map_entry_is_vacant(entry))
		{
			*problem = "the extent map has another extent in the place of its checksum";
			return false;
		}
	}
	*problem = no_sum;
	return false;
}

/* Compare pages that are in memory, from the page_no-th of the extent on. */
static void
compare_pages(StoreCheck *check, uint64 page_no, const char *data, uint32 count)
{
	BlobPageNo	page = check->extent.first_page + page_no;
	uint32		now[BLOB_SUMS_MAX_PAGES];

	blob_page_sums(&(BlobSummedPages) {check->extent.generation, page, data, count}, 1, now);
	for (uint32 i = 0; i < count; i++)
	{
		const char *problem;
		uint32		sum;

		if (find_sum(check, page_no + i, &sum, &problem))
		{
			if (sum == BLOB_SUM_UNKNOWN)
				check->totals->plain_pages++;
			else
				check->totals->verified_pages++;
			if (!blob_sum_matches(now[i], sum))
				problem = wrong_sum;
		}
		note_page(check, page + i, problem);
	}
}

/* Compare the pages of an extent that belong to values. */
static void
check_extent(StoreCheck *check, uint64 used_pages)
{
	check->has_damage = check->has_doubt = false;
	for (uint64 page_no = 0; page_no < used_pages;)
	{
		uint32		count = (uint32) Min(BLOB_SUMS_MAX_PAGES, used_pages - page_no);
		const char *problem = NULL;
		const char *data = get_pages(check, check->extent.first_page + page_no, &count, &problem);

		if (data != NULL)
			compare_pages(check, page_no, data, count);
		else
		{
			note_page(check, check->extent.first_page + page_no, problem);
			count = 1;
		}
		page_no += count;
	}
	end_run(check);
	check->totals->damaged_extents += check->has_damage;
	check->totals->doubtful_extents += check->has_doubt;
}

/* Whether an extent has checksums that its entry does not speak of (store/README.md). */
static bool
hides_sums(StoreCheck *check)
{
	BlobPageNo	next = check->extent.first_page + 1;
	bool		is_damaged;
	Page		page;

	if (check->extent.has_sums || check->extent.pages == 1 || check->extent.pages > UINT32_MAX)
		return false;
	page = map_file_block(check->map, blob_map_block_of(next), &is_damaged);
	return page != NULL && blob_map_entry_state(
		&blob_map_page_entries(page)[blob_map_slot_of(next)]) == BLOB_MAP_SUMS;
}

static void
check_entry(StoreCheck *check, BlobPageNo first_page, const BlobMapEntry *entry)
{
	const BlobMapMeta *meta = &check->map->meta;
	uint64		used_pages = blob_pages_for(blob_map_entry_high_water(entry));

	check->extent = (BlobExtent) {
		.first_page = first_page,
		.pages = blob_map_entry_pages(entry),
		.generation = blob_map_entry_generation(entry),
		.has_sums = blob_map_entry_has_sums(entry)
	};
	if (first_page > meta->reserved_pages ||
		check->extent.pages > meta->reserved_pages - first_page ||
		used_pages > check->extent.pages || hides_sums(check))
	{
		report_entry(check, first_page, "is impossible");
		return;
	}
	if (!check->extent.has_sums)
		check->totals->plain_pages += used_pages;
	else if (is_lacking(check, check->extent.generation))
		check->totals->lacking_pages += used_pages;
	else
		check_extent(check, used_pages);
}

static void
show_progress(StoreCheck *check, BlockNumber block, bool is_end)
{
	time_t		now = time(NULL);

	if (!check->shows_progress || (now == check->shown_at && !is_end))
		return;
	check->shown_at = now;
	fprintf(stderr, "%s: %u%%%c", check->directory,
			(uint32) (UINT64CONST(100) * block / Max(check->map->block_count, 1)),
			isatty(fileno(stderr)) && !is_end ? '\r' : '\n');
}

/* All entries of a block; its memory may be another one's after each extent. */
static void
check_block(StoreCheck *check, BlockNumber block)
{
	for (uint32 slot = 0; slot < BLOB_MAP_ENTRIES; slot++)
	{
		bool		is_damaged;
		Page		page = map_file_block(check->map, block, &is_damaged);
		BlobMapEntry entry;

		if (page == NULL)
			return;
		entry = blob_map_page_entries(page)[slot];
		if (blob_map_entry_is_damaged(&entry))
			report_entry(check, blob_map_page_at(block, slot), "is none that a server writes");
		else if (blob_map_entry_is_extent(&entry))
			check_entry(check, blob_map_page_at(block, slot), &entry);
		else if (blob_map_entry_state(&entry) == BLOB_MAP_SUMS && blob_sums_have_more(&entry))
			report_entry(check, blob_map_page_at(block, slot), "has bits besides its checksums");
	}
}

void
verify_store(MapFile *map, bool shows_progress, VerifyTotals *totals)
{
	StoreCheck	check = {
		.map = map,
		.totals = totals,
		.fd = -1,
		.segment_no = -1,
		.entry_block = InvalidBlockNumber,
		.shows_progress = shows_progress
	};
	bool		is_damaged;

	snprintf(check.directory, sizeof(check.directory), BLOB_STORE_DIR "/%u.%016llx",
			 map->meta.dboid, (unsigned long long) map->meta.incarnation);
	check.window = pg_malloc(WINDOW_BYTES);
	read_note(&check);
	(void) map_file_block(map, BLOB_MAP_META_BLOCK, &is_damaged);
	for (BlockNumber block = BLOB_MAP_META_BLOCK + 1; block < map->block_count; block++)
	{
		show_progress(&check, block, false);
		check_block(&check, block);
	}
	show_progress(&check, map->block_count, true);
	totals->stores++;
	totals->damaged_blocks += map->damaged_blocks;
	if (check.fd >= 0)
		close(check.fd);
	pg_free(check.window);
	pg_free(check.lacking);
}
