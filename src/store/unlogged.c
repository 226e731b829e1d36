/*
 * store/unlogged.c
 *	  Content that another server wrote and did not log, see store/unlogged.h.
 *
 * The file is a header and slots, each a range of generations.  One process at a time writes it.
 * To add a range, it extends the last slot in place, or appends a slot.  So a reader or a base
 * backup that reads the file meanwhile sees all ranges that were there before.  A file with far
 * more slots than ranges is replaced by rename, and so is one from which ranges are taken.  Slots
 * may overlap; a slot of zeros is empty.
 *
 * Each process keeps a sorted copy of one store's ranges, and reads the file again when a counter
 * in shared memory has moved.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/segment.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/shmem.h"
#include "store/unlogged.h"
#include "store/unlogged_file.h"
#include "utils/memutils.h"

/* The file is rewritten when it has more slots than this, and more than twice as many as ranges. */
#define SPARE_SLOTS 1024

/* A process's copy.  Sorted; ranges neither overlap nor touch. */
typedef struct Copy
{
	bool		is_loaded;
	uint64		version;		/* of the file, as counted in shared memory */
	BlobStoreId store;
	BlobGenerationRange *ranges;
	int			range_count;
	int			range_capacity;
	int			slot_count;		/* in the file */
	BlobGenerationRange last_slot;
} Copy;

/* Counts changes of any store's file, from 1 on; a removal counts twice. */
static pg_atomic_uint64 *unlogged_version = NULL;
static Copy copy;

Size
blob_unlogged_shmem_size(void)
{
	return MAXALIGN(sizeof(pg_atomic_uint64));
}

void
blob_unlogged_shmem_init(void)
{
	bool		found;

	unlogged_version = ShmemInitStruct("blobext unlogged content", sizeof(pg_atomic_uint64),
									   &found);
	if (!found)
		pg_atomic_init_u64(unlogged_version, 1);
}

static void
file_path(char *path, size_t path_bytes, const BlobStoreId *store)
{
	char		directory[MAXPGPATH];

	blob_segment_dir_path(directory, sizeof(directory), store);
	snprintf(path, path_bytes, "%s/" BLOB_UNLOGGED_FILE, directory);
}

static void
report_file_error(int elevel, const char *action, const char *path)
{
	ereport(elevel,
			(errcode_for_file_access(), errmsg("could not %s file \"%s\": %m", action, path)));
}

/* ---- the copy ---- */

/* The first range that ends at or behind this generation; range_count if there is none. */
static int
find_range(BlobGeneration generation)
{
	int			low = 0;
	int			high = copy.range_count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (copy.ranges[middle].last < generation)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void
reserve_range(void)
{
	if (copy.range_count < copy.range_capacity)
		return;
	copy.range_capacity = Max(64, copy.range_capacity * 2);
	if (copy.ranges == NULL)
		copy.ranges = MemoryContextAlloc(TopMemoryContext,
										 copy.range_capacity * sizeof(BlobGenerationRange));
	else
		copy.ranges = repalloc_huge(copy.ranges,
									copy.range_capacity * sizeof(BlobGenerationRange));
}

/* Insert a range, and merge it with the ranges that it overlaps or touches. */
static void
merge_range(BlobGenerationRange range)
{
	int			start = find_range(range.first - 1);
	int			end = start;

	while (end < copy.range_count && copy.ranges[end].first <= range.last + 1)
	{
		range.first = Min(range.first, copy.ranges[end].first);
		range.last = Max(range.last, copy.ranges[end].last);
		end++;
	}
	if (end == start)
	{
		reserve_range();
		end = start;
	}
	memmove(&copy.ranges[start + 1], &copy.ranges[end],
			(copy.range_count - end) * sizeof(BlobGenerationRange));
	copy.range_count += 1 - (end - start);
	copy.ranges[start] = range;
}

/* Read the slots of an open file. */
static void
read_slots(int fd, const char *path)
{
	BlobGenerationRange slots[512];
	bool		is_header = true;
	ssize_t		bytes;

	while ((bytes = read(fd, slots, sizeof(slots))) > 0)
	{
		int			count = (int) (bytes / sizeof(slots[0]));

		for (int i = 0; i < count; i++)
		{
			if (is_header)
			{
				is_header = false;
				if (slots[i].first != BLOB_UNLOGGED_MAGIC)
					ereport(ERROR,
							(errcode(ERRCODE_DATA_CORRUPTED),
							 errmsg("file \"%s\" has an unknown format", path)));
				continue;
			}
			copy.slot_count++;
			copy.last_slot = slots[i];
			if (slots[i].first != BLOB_INVALID_GENERATION && slots[i].first <= slots[i].last)
				merge_range(slots[i]);
		}
	}
	if (bytes < 0)
		report_file_error(ERROR, "read", path);
}

/* Make sure that the copy is of this store, and of the present version of its file. */
static void
load(const BlobStoreId *store)
{
	uint64		version = pg_atomic_read_u64(unlogged_version);
	char		path[MAXPGPATH];
	int			fd;

	if (copy.is_loaded && copy.version == version && blob_store_id_equals(&copy.store, store))
		return;

	pg_read_barrier();
	copy.is_loaded = false;
	copy.range_count = 0;
	copy.slot_count = 0;
	copy.store = *store;
	file_path(path, sizeof(path), store);
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0 && errno != ENOENT)
		report_file_error(ERROR, "open", path);
	if (fd >= 0)
	{
		read_slots(fd, path);
		CloseTransientFile(fd);
	}
	copy.version = version;
	copy.is_loaded = true;
}

bool
blob_unlogged_contains(const BlobStoreId *store, BlobGeneration generation)
{
	int			i;

	load(store);
	i = find_range(generation);
	return i < copy.range_count && copy.ranges[i].first <= generation;
}

uint64
blob_unlogged_version(void)
{
	uint64		version;

	pg_memory_barrier();
	version = pg_atomic_read_u64(unlogged_version);
	pg_memory_barrier();
	return version;
}

uint64
blob_unlogged_count(const BlobStoreId *store)
{
	uint64		count = 0;

	load(store);
	for (int i = 0; i < copy.range_count; i++)
		count += copy.ranges[i].last - copy.ranges[i].first + 1;
	return count;
}

/* ---- the file ---- */

static void
write_at(int fd, const char *path, const void *data, size_t bytes, off_t offset)
{
	errno = 0;
	if (pwrite(fd, data, bytes, offset) != (ssize_t) bytes)
	{
		if (errno == 0)
			errno = ENOSPC;
		report_file_error(ERROR, "write", path);
	}
}

/* Write the copy to a new file, which replaces the old one durably. */
static void
rewrite_file(const char *path, int elevel)
{
	BlobUnloggedHeader header = {.magic = BLOB_UNLOGGED_MAGIC};
	char		new_path[MAXPGPATH + 8];
	int			fd;

	snprintf(new_path, sizeof(new_path), "%s.new", path);
	fd = OpenTransientFile(new_path, O_RDWR | O_CREAT | O_TRUNC | PG_BINARY);
	if (fd < 0)
		report_file_error(ERROR, "create", new_path);
	write_at(fd, new_path, &header, sizeof(header), 0);
	if (copy.range_count > 0)
		write_at(fd, new_path, copy.ranges, copy.range_count * sizeof(BlobGenerationRange),
				 sizeof(header));
	CloseTransientFile(fd);
	(void) durable_rename(new_path, path, elevel);	/* syncs the file, too */
	copy.slot_count = copy.range_count;
	copy.last_slot = copy.range_count > 0 ? copy.ranges[copy.range_count - 1] :
		(BlobGenerationRange) {0};
}

/* Extend the last slot by a range that touches it, or append one. */
static void
write_slot(int fd, const char *path, BlobGenerationRange range)
{
	off_t		end = sizeof(BlobUnloggedHeader) + (off_t) copy.slot_count * sizeof(range);

	if (copy.slot_count > 0 && range.first == copy.last_slot.last + 1)
	{
		copy.last_slot.last = range.last;
		write_at(fd, path, &copy.last_slot, sizeof(range), end - sizeof(range));
		return;
	}
	write_at(fd, path, &range, sizeof(range), end);
	copy.slot_count++;
	copy.last_slot = range;
}

/* Whether the copy has all generations of the range. */
static bool
is_known(BlobGenerationRange range)
{
	int			i = find_range(range.first);

	return i < copy.range_count && copy.ranges[i].first <= range.first &&
		copy.ranges[i].last >= range.last;
}

void
blob_unlogged_add(const BlobStoreId *store, const BlobGenerationRange *ranges, int range_count)
{
	char		path[MAXPGPATH];
	bool		is_new_file;
	int			fd = -1;

	load(store);
	file_path(path, sizeof(path), store);
	is_new_file = copy.slot_count == 0;
	copy.is_loaded = false;		/* if an error comes, the half-made copy is not used */
	for (int i = 0; i < range_count; i++)
	{
		if (is_known(ranges[i]))
			continue;
		merge_range(ranges[i]);
		if (is_new_file)
			continue;
		if (fd < 0 && (fd = OpenTransientFile(path, O_RDWR | PG_BINARY)) < 0)
			report_file_error(ERROR, "open", path);
		write_slot(fd, path, ranges[i]);
	}
	if (fd >= 0)
	{
		if (pg_fdatasync(fd) != 0)
			report_file_error(PANIC, "fdatasync", path);
		CloseTransientFile(fd);
	}
	if (is_new_file || copy.slot_count > Max(2 * copy.range_count, SPARE_SLOTS))
	{
		blob_segment_make_dir(store);
		rewrite_file(path, PANIC);
	}
	copy.version = pg_atomic_add_fetch_u64(unlogged_version, 1);
	copy.is_loaded = true;
}

/* Take a range out of the copy; the range that it lies in may be cut in two. */
static void
subtract_range(BlobGenerationRange range)
{
	int			i = find_range(range.first);

	while (i < copy.range_count && copy.ranges[i].first <= range.last)
	{
		BlobGenerationRange old = copy.ranges[i];

		if (old.first < range.first && old.last > range.last)
		{
			reserve_range();
			memmove(&copy.ranges[i + 1], &copy.ranges[i],
					(copy.range_count - i) * sizeof(BlobGenerationRange));
			copy.range_count++;
			copy.ranges[i].last = range.first - 1;
			copy.ranges[i + 1].first = range.last + 1;
			return;
		}
		if (old.first < range.first)
			copy.ranges[i++].last = range.first - 1;
		else if (old.last > range.last)
			copy.ranges[i++].first = range.last + 1;
		else
		{
			copy.range_count--;
			memmove(&copy.ranges[i], &copy.ranges[i + 1],
					(copy.range_count - i) * sizeof(BlobGenerationRange));
		}
	}
}

/*
 * Write the changed copy to the file, and let all processes see it.  The version moves before that,
 * too, since a process that has no copy reads the file whatever the version is.
 */
static void
publish(const BlobStoreId *store)
{
	char		path[MAXPGPATH];

	file_path(path, sizeof(path), store);
	pg_atomic_fetch_add_u64(unlogged_version, 1);
	rewrite_file(path, ERROR);
	copy.version = pg_atomic_add_fetch_u64(unlogged_version, 1);
	copy.is_loaded = true;
}

void
blob_unlogged_remove(const BlobStoreId *store, const BlobGenerationRange *ranges, int range_count)
{
	load(store);
	if (copy.range_count == 0)
		return;
	copy.is_loaded = false;		/* as in blob_unlogged_add() */
	for (int i = 0; i < range_count; i++)
		subtract_range(ranges[i]);
	publish(store);
}

/* A store with the same identity may come, see ../autogc/README.md, "Dropped databases". */
void
blob_unlogged_file_removed(void)
{
	pg_atomic_fetch_add_u64(unlogged_version, 1);
}

int
blob_unlogged_ranges(const BlobStoreId *store, BlobGenerationRange **ranges)
{
	load(store);
	*ranges = palloc_extended(copy.range_count * sizeof(BlobGenerationRange) + 1,
							  MCXT_ALLOC_HUGE);
	memcpy(*ranges, copy.ranges, copy.range_count * sizeof(BlobGenerationRange));
	return copy.range_count;
}
