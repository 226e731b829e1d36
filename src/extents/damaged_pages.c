/*
 * extents/damaged_pages.c
 *	  Pages that do not have their checksum, see extents/damaged_pages.h.
 *
 * One lock protects the list, and nothing else is locked under it.  Entries are found by a linear
 * search: that happens for damaged pages only.
 */
#include "postgres.h"

#include "core/clock.h"
#include "extents/damaged_pages.h"
#include "extents/layout.h"
#include "io/segment.h"
#include "io/stat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define TRANCHE "blobext_damaged_pages"

/* How long a page that is right again stays in the list, if nothing else needs the room. */
#define SHOWN_MS (INT64CONST(24) * 60 * 60 * 1000)

/* Until the next attempt: after the first failure, twice as long after each, and at most. */
#define FIRST_DELAY_MS (INT64CONST(60) * 1000)
#define MAX_DELAY_MS (INT64CONST(60) * 60 * 1000)

typedef struct DamagedPages
{
	bool		is_full;		/* and the log says so */
	BlobDamagedPage pages[BLOB_DAMAGED_PAGES_MAX];
} DamagedPages;

static DamagedPages *list;
static LWLock *lock;

void
blob_damaged_pages_shmem_request(void)
{
	RequestAddinShmemSpace(sizeof(DamagedPages));
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/* Under AddinShmemInitLock; again after a crash, which empties the list. */
void
blob_damaged_pages_shmem_init(void)
{
	bool		found;

	list = ShmemInitStruct("blobext damaged pages", sizeof(DamagedPages), &found);
	lock = &GetNamedLWLockTranche(TRANCHE)->lock;
	if (!found)
		memset(list, 0, sizeof(*list));
}

/* ---- entries; the caller holds the lock ---- */

static bool
is_used(const BlobDamagedPage *entry)
{
	return OidIsValid(entry->store.dboid);
}

/* Whether a page has been found right, or was made so, since it was found. */
static bool
is_right(const BlobDamagedPage *entry)
{
	return entry->state == BLOB_DAMAGE_REPAIRED || entry->state == BLOB_DAMAGE_RIGHT;
}

/* The entry of a page in one life of its extent, or NULL. */
static BlobDamagedPage *
find(const BlobStoreId *store, BlobGeneration generation, BlobPageNo page)
{
	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		BlobDamagedPage *entry = &list->pages[i];

		if (is_used(entry) && entry->page == page && entry->extent.generation == generation &&
			blob_store_id_equals(&entry->store, store))
			return entry;
	}
	return NULL;
}

static BlobDamagedPage *
find_same(const BlobDamagedPage *damaged)
{
	return find(&damaged->store, damaged->extent.generation, damaged->page);
}

/* How many entries a role has found. */
static int
count_of(Oid role)
{
	int			count = 0;

	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
		count += is_used(&list->pages[i]) && list->pages[i].role == role;
	return count;
}

/*
 * The last entry of the role that has found most, if another role gets no more by it; NULL: it
 * would.  So no role fills the list for others, whatever it reads.
 */
static BlobDamagedPage *
take_share(Oid role)
{
	int			most = count_of(role) + 1;
	BlobDamagedPage *last = NULL;

	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		BlobDamagedPage *entry = &list->pages[i];

		if (last != NULL && entry->role == last->role)
		{
			if (entry->first_found > last->first_found)
				last = entry;
			continue;
		}
		if (count_of(entry->role) > most)
		{
			last = entry;
			most = count_of(entry->role);
		}
	}
	return last;
}

/*
 * A free entry, or the oldest one of those that are right, or one of a role that has many; NULL:
 * there is none.
 */
static BlobDamagedPage *
find_room(Oid role)
{
	BlobDamagedPage *oldest = NULL;

	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		BlobDamagedPage *entry = &list->pages[i];

		if (!is_used(entry))
			return entry;
		if (is_right(entry) && (oldest == NULL || entry->changed_at < oldest->changed_at))
			oldest = entry;
	}
	return oldest != NULL ? oldest : take_share(role);
}

static void
free_entry(BlobDamagedPage *entry)
{
	entry->store.dboid = InvalidOid;
	list->is_full = false;
}

/* Text of the database's encoding; NULL: none. */
static void
copy_text(char *target, const char *text, int target_bytes)
{
	int			length = text == NULL ? 0 :
		pg_mbcliplen(text, (int) strlen(text), target_bytes - 1);

	if (length > 0)
		memcpy(target, text, length);
	target[length] = '\0';
}

static void
set_state(BlobDamagedPage *entry, BlobDamageState state, const char *error)
{
	entry->state = state;
	entry->changed_at = GetCurrentTimestamp();
	copy_text(entry->error, error, sizeof(entry->error));
	if (state == BLOB_DAMAGE_FAILED)
		entry->failures++;
	else if (is_right(entry))
		entry->failures = 0;
}

/* ---- noting ---- */

/* The result of a note. */
typedef enum NoteResult
{
	NOTE_KNOWN,					/* the page was there */
	NOTE_NEW,
	NOTE_NO_ROOM,
	NOTE_FIRST_WITHOUT_ROOM
} NoteResult;

/* A page that is not in the list. */
static NoteResult
add(const BlobStoreId *store, const BlobExtent *extent, BlobPageNo page,
	BlobDamageFinder found_by, TimestampTz now)
{
	Oid			role = GetSessionUserId();
	BlobDamagedPage *entry = find_room(role);
	NoteResult	result = list->is_full ? NOTE_NO_ROOM : NOTE_FIRST_WITHOUT_ROOM;

	if (entry == NULL)
	{
		list->is_full = true;
		return result;
	}
	if (is_used(entry) && !is_right(entry))
		blob_stat_count(damage_unlisted, 1);	/* it has to go */
	memset(entry, 0, sizeof(*entry));
	entry->store = *store;
	entry->extent = *extent;
	entry->page = page;
	entry->found_by = found_by;
	entry->role = role;
	entry->first_found = entry->last_found = now;
	entry->count = 1;
	return NOTE_NEW;
}

/* A page that was right again is a new one; one that is being repaired is read by many. */
static NoteResult
note(const BlobStoreId *store, const BlobExtent *extent, BlobPageNo page,
	 BlobDamageFinder found_by, TimestampTz now)
{
	BlobDamagedPage *entry = find(store, extent->generation, page);
	bool		was_right;

	if (entry == NULL)
		return add(store, extent, page, found_by, now);
	was_right = is_right(entry);
	entry->last_found = now;
	entry->count++;
	if (!was_right)
		return NOTE_KNOWN;
	entry->found_by = found_by;
	set_state(entry, BLOB_DAMAGE_FOUND, NULL);
	return NOTE_NEW;
}

/* A client that does not read its messages must not hold up a process that has buffers locked. */
static void
log_new(const BlobStoreId *store, BlobPageNo page, BlobDamageFinder found_by)
{
	static const char *const finders[] = {"the read of a value", "the scrubber", "a check"};
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), store, blob_segment_of(page));
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blobext: a page of content in file \"%s\" is damaged", path),
			 errdetail("The page at byte " UINT64_FORMAT " does not have its checksum, as %s "
					   "has found.", blob_layout_file_offset(page), finders[found_by]),
			 errhint("The view blobext_damaged_pages has the state of its repair.")));
}

static void
log_full(void)
{
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blobext: more than %d pages of content are damaged", BLOB_DAMAGED_PAGES_MAX),
			 errdetail("The view blobext_damaged_pages does not have all of them."),
			 errhint("blobext_check() lists the affected values.")));
}

void
blob_damaged_page_note(const BlobStoreId *store, const BlobExtent *extent, BlobPageNo page,
					   BlobDamageFinder found_by)
{
	TimestampTz now = GetCurrentTimestamp();
	NoteResult	result;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	result = note(store, extent, page, found_by, now);
	LWLockRelease(lock);
	if (result == NOTE_NEW)
	{
		blob_stat_count(damaged_pages, 1);
		log_new(store, page, found_by);
	}
	if (result == NOTE_NO_ROOM || result == NOTE_FIRST_WITHOUT_ROOM)
		blob_stat_count(damage_unlisted, 1);
	if (result == NOTE_FIRST_WITHOUT_ROOM)
		log_full();
}

/* ---- changes ---- */

void
blob_damaged_page_name(const BlobDamagedPage *damaged, const char *relation, const char *column)
{
	BlobDamagedPage *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_same(damaged);
	if (entry != NULL)
	{
		copy_text(entry->relation, relation, sizeof(entry->relation));
		copy_text(entry->column, column, sizeof(entry->column));
	}
	LWLockRelease(lock);
}

bool
blob_damaged_page_find_name(const BlobStoreId *store, BlobGeneration generation, BlobPageNo page,
							char relation[BLOB_DAMAGE_RELATION_BYTES], char column[NAMEDATALEN])
{
	const BlobDamagedPage *entry;
	bool		is_known;

	LWLockAcquire(lock, LW_SHARED);
	entry = find(store, generation, page);
	is_known = entry != NULL && entry->relation[0] != '\0' && entry->column[0] != '\0';
	if (is_known)
	{
		strlcpy(relation, entry->relation, BLOB_DAMAGE_RELATION_BYTES);
		strlcpy(column, entry->column, NAMEDATALEN);
	}
	LWLockRelease(lock);
	return is_known;
}

void
blob_damaged_page_set(const BlobDamagedPage *damaged, BlobDamageState state, const char *error)
{
	BlobDamagedPage *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_same(damaged);
	/* A page that was repaired is right, too: the list says that it was repaired. */
	if (entry != NULL && (state != BLOB_DAMAGE_RIGHT || !is_right(entry)))
		set_state(entry, state, error);
	LWLockRelease(lock);
}

void
blob_damaged_page_attempt(const BlobDamagedPage *damaged, uint64 source)
{
	BlobDamagedPage *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_same(damaged);
	if (entry != NULL)
	{
		set_state(entry, BLOB_DAMAGE_REPAIRING, NULL);
		entry->attempts++;
		entry->attempted_at = entry->changed_at;
		entry->source = source;
	}
	LWLockRelease(lock);
}

void
blob_damaged_pages_give_up(Oid database, const char *error)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		BlobDamagedPage *entry = &list->pages[i];

		if (entry->store.dboid == database && entry->state == BLOB_DAMAGE_REPAIRING)
			set_state(entry, BLOB_DAMAGE_FAILED, error);
	}
	LWLockRelease(lock);
}

void
blob_damaged_pages_repaired(const BlobStoreId *store, const BlobExtent *extent, BlobPageNo first,
							BlobPageNo end)
{
	uint64		repaired = 0;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		BlobDamagedPage *entry = &list->pages[i];

		if (!is_used(entry) || is_right(entry) ||
			entry->extent.generation != extent->generation || entry->page < first ||
			entry->page >= end || !blob_store_id_equals(&entry->store, store))
			continue;
		set_state(entry, BLOB_DAMAGE_REPAIRED, NULL);
		repaired++;
	}
	LWLockRelease(lock);
	blob_stat_count(repaired_pages, repaired);
}

void
blob_damaged_page_forget(const BlobDamagedPage *damaged)
{
	BlobDamagedPage *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_same(damaged);
	if (entry != NULL)
		free_entry(entry);
	LWLockRelease(lock);
}

void
blob_damaged_pages_forget_store(const BlobStoreId *store)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		BlobDamagedPage *entry = &list->pages[i];

		if (is_used(entry) && blob_store_id_equals(&entry->store, store))
			free_entry(entry);
	}
	LWLockRelease(lock);
}

void
blob_damaged_pages_forget_database(Oid database)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		if (list->pages[i].store.dboid == database)
			free_entry(&list->pages[i]);
	}
	LWLockRelease(lock);
}

void
blob_damaged_pages_forget_old(void)
{
	TimestampTz now = GetCurrentTimestamp();

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		BlobDamagedPage *entry = &list->pages[i];

		if (is_used(entry) && is_right(entry) &&
			blob_clock_has_passed(entry->changed_at, now, SHOWN_MS))
			free_entry(entry);
	}
	LWLockRelease(lock);
}

/* ---- looks ---- */

/* Copy the entries of a database, or of all, up to a number; returns how many there are. */
static int
copy_entries(Oid database, BlobDamagedPage *copies, int room)
{
	int			count = 0;

	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < BLOB_DAMAGED_PAGES_MAX; i++)
	{
		const BlobDamagedPage *entry = &list->pages[i];

		if (!is_used(entry) || (OidIsValid(database) && entry->store.dboid != database))
			continue;
		if (count < room)
			copies[count] = *entry;
		count++;
	}
	LWLockRelease(lock);
	return count;
}

/* Mostly there are none: the memory for all is not taken then. */
int
blob_damaged_pages_get(Oid database, BlobDamagedPage **pages)
{
	int			room = copy_entries(database, NULL, 0);

	*pages = palloc(sizeof(BlobDamagedPage) * Max(room, 1));
	return Min(copy_entries(database, *pages, room), room);
}

bool
blob_damaged_page_is_due(const BlobDamagedPage *damaged, uint64 source, TimestampTz now)
{
	int64		delay_ms = MAX_DELAY_MS;

	if (is_right(damaged) || damaged->state == BLOB_DAMAGE_REPAIRING)
		return false;
	if (damaged->attempts == 0 || damaged->source != source)
		return true;
	if (damaged->failures > 0)
		delay_ms = Min(FIRST_DELAY_MS << Min(damaged->failures - 1, 6), MAX_DELAY_MS);
	return blob_clock_has_passed(damaged->attempted_at, now, delay_ms);
}
