/*
 * gc/status.c
 *	  Progress and last round per database, see gc/status.h.
 *
 * One entry for each database, found by a linear search; entries never move, and go
 * with their database.  Only the
 * process that runs a round writes to its entry, under the lock; it counts pages by itself and
 * reports the count now and then.
 */
#include "postgres.h"

#include "core/settings.h"
#include "gc/status.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define TRANCHE_NAME "blobext_gc"

/* Pages between publications. */
#define REPORT_PAGES 64

typedef struct StatusTable
{
	LWLock	   *lock;
	BlobGcStatus entries[FLEXIBLE_ARRAY_MEMBER];
} StatusTable;

static StatusTable *table;
static BlobGcStatus *own;		/* entry of the round that runs here */
static uint64 pages_unreported;
static bool is_automatic;		/* the round that runs here is a worker's */

static Size
table_bytes(void)
{
	return add_size(offsetof(StatusTable, entries),
					mul_size(blob_max_databases, sizeof(BlobGcStatus)));
}

void
blob_gc_status_shmem_request(void)
{
	RequestAddinShmemSpace(table_bytes());
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

void
blob_gc_status_shmem_init(void)
{
	bool		found;

	table = ShmemInitStruct("blobext collector", table_bytes(), &found);
	if (found)
		return;
	memset(table, 0, table_bytes());
	table->lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
}

/* A database's entry, or NULL; the caller holds the lock. */
static BlobGcStatus *
find_entry(Oid database)
{
	for (int i = 0; i < blob_max_databases; i++)
	{
		if (table->entries[i].database == database)
			return &table->entries[i];
	}
	return NULL;
}

static void
clear_at_exit(int code, Datum arg)
{
	if (own != NULL)
		blob_gc_status_end("the collecting process ended", false, 0, 0, 0, 0);
}

void
blob_gc_status_begin(bool dry_run, bool automatic)
{
	static bool registered = false;
	BlobGcStatus *entry;

	if (!registered)
		before_shmem_exit(clear_at_exit, (Datum) 0);
	registered = true;
	pages_unreported = 0;
	is_automatic = automatic;

	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	entry = find_entry(MyDatabaseId);
	if (entry == NULL && (entry = find_entry(InvalidOid)) != NULL)
		memset(entry, 0, sizeof(*entry));	/* it may be of a database that was dropped */
	if (entry != NULL)
	{
		uint64		rounds = entry->rounds;
		uint64		skipped_rounds = entry->skipped_rounds;
		TimestampTz completed_at = entry->completed_at;
		BlobGcKeys	keys = entry->keys;

		memset(entry, 0, sizeof(*entry));
		entry->database = MyDatabaseId;
		entry->pid = MyProcPid;
		entry->phase = BLOB_GC_WAITING;
		entry->started_at = GetCurrentTimestamp();
		entry->dry_run = dry_run;
		entry->automatic = automatic;
		entry->rounds = rounds;
		entry->skipped_rounds = skipped_rounds;
		entry->completed_at = completed_at;
		entry->keys = keys;
	}
	LWLockRelease(table->lock);
	own = entry;				/* without one the round goes unrecorded */
}

static void
report_pages(void)
{
	own->pages_done += pages_unreported;
	own->pages_total = Max(own->pages_total, own->pages_done);
	pages_unreported = 0;
}

void
blob_gc_status_phase(BlobGcPhase phase)
{
	if (own == NULL)
		return;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	report_pages();
	own->phase = phase;
	LWLockRelease(table->lock);
}

void
blob_gc_status_waiting(const char *what)
{
	const char *text = what == NULL ? "" : what;

	/* Nobody else writes it, so looking needs no lock. */
	if (own == NULL || strncmp(own->waiting_for, text, BLOB_GC_REASON_BYTES - 1) == 0)
		return;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	strlcpy(own->waiting_for, text, BLOB_GC_REASON_BYTES);
	LWLockRelease(table->lock);
}

void
blob_gc_status_totals(uint64 relations, uint64 pages)
{
	if (own == NULL)
		return;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	own->relations_total += relations;
	own->pages_total += pages;
	LWLockRelease(table->lock);
}

void
blob_gc_status_relation_done(void)
{
	if (own == NULL)
		return;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	report_pages();
	own->relations_done++;
	LWLockRelease(table->lock);
}

void
blob_gc_status_page_done(void)
{
	if (own == NULL || ++pages_unreported < REPORT_PAGES)
		return;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	report_pages();
	LWLockRelease(table->lock);
}

void
blob_gc_status_show(const char *format,...)
{
	char		text[NAMEDATALEN * 2 + 64];
	va_list		arguments;

	if (!is_automatic)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	pgstat_report_activity(STATE_RUNNING, text);
}

void
blob_gc_status_keys(const BlobGcKeys *keys)
{
	if (own == NULL)
		return;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	own->keys = *keys;
	LWLockRelease(table->lock);
}

void
blob_gc_status_end(const char *reason, bool counted, uint64 freed_blobs, uint64 freed_bytes,
				   uint64 live_blobs, uint64 live_bytes)
{
	if (own == NULL)
		return;
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	report_pages();
	own->pid = 0;
	own->phase = BLOB_GC_IDLE;
	own->waiting_for[0] = '\0';
	own->ended_at = GetCurrentTimestamp();
	own->counted = counted;
	own->freed_blobs = freed_blobs;
	own->freed_bytes = freed_bytes;
	own->live_blobs = live_blobs;
	own->live_bytes = live_bytes;
	strlcpy(own->skipped_reason, reason == NULL ? "" : reason, BLOB_GC_REASON_BYTES);
	if (!own->dry_run && reason == NULL)
	{
		own->rounds++;
		own->completed_at = own->ended_at;
	}
	if (!own->dry_run && reason != NULL)
		own->skipped_rounds++;
	LWLockRelease(table->lock);
	own = NULL;
}

static int
compare_oids(const void *a, const void *b)
{
	Oid			left = *(const Oid *) a;
	Oid			right = *(const Oid *) b;

	return left < right ? -1 : left > right;
}

void
blob_gc_status_keep(const Oid *databases, int count)
{
	LWLockAcquire(table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < blob_max_databases; i++)
	{
		BlobGcStatus *entry = &table->entries[i];

		if (OidIsValid(entry->database) && entry->pid == 0 &&
			bsearch(&entry->database, databases, count, sizeof(Oid), compare_oids) == NULL)
			entry->database = InvalidOid;
	}
	LWLockRelease(table->lock);
}

int
blob_gc_status_get(BlobGcStatus **statuses)
{
	int			count = 0;

	*statuses = palloc(mul_size(blob_max_databases, sizeof(BlobGcStatus)));
	LWLockAcquire(table->lock, LW_SHARED);
	for (int i = 0; i < blob_max_databases; i++)
	{
		if (OidIsValid(table->entries[i].database))
			(*statuses)[count++] = table->entries[i];
	}
	LWLockRelease(table->lock);
	return count;
}
