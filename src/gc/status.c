/*
 * gc/status.c
 *	  Progress and last round per database, see gc/status.h.
 *
 * Only the process that runs a round writes to its database's entry, under the lock; it counts
 * pages by itself and reports the count now and then.
 */
#include "postgres.h"

#include "gc/database_table.h"
#include "gc/status.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

/* Pages between two reports. */
#define REPORT_PAGES 64

static BlobDatabaseTable table = {
	.name = "blobext collector",
		.tranche = "blobext_gc",
		.entry_bytes = sizeof(BlobGcStatus)
};

StaticAssertDecl(offsetof(BlobGcStatus, database) == 0, "an entry must begin with its database");

static BlobGcStatus *own;		/* entry of the round that runs here */
static uint64 pages_unreported;
static uint64 unchanged_unreported;
static bool is_automatic;		/* the round that runs here is a worker's */

void
blob_gc_status_shmem_request(void)
{
	blob_database_table_request(&table);
}

void
blob_gc_status_shmem_init(void)
{
	blob_database_table_init(&table);
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
	bool		is_new;

	if (!registered)
		before_shmem_exit(clear_at_exit, (Datum) 0);
	registered = true;
	pages_unreported = unchanged_unreported = 0;
	is_automatic = automatic;

	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	entry = blob_database_table_make(&table, MyDatabaseId, &is_new);
	if (entry != NULL)
	{
		uint64		rounds = entry->rounds;
		uint64		skipped_rounds = entry->skipped_rounds;
		TimestampTz completed_at = entry->completed_at;
		BlobGcKeys	keys = entry->keys;
		BlobGcKept	kept = entry->kept;
		uint64		notes = entry->notes;

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
		entry->kept = kept;
		entry->notes = notes;
	}
	LWLockRelease(table.lock);
	own = entry;				/* without one the round goes unrecorded */
}

static void
report_pages(void)
{
	own->pages_done += pages_unreported;
	own->pages_unchanged += unchanged_unreported;
	own->pages_total = Max(own->pages_total, own->pages_done + own->pages_unchanged);
	pages_unreported = unchanged_unreported = 0;
}

void
blob_gc_status_phase(BlobGcPhase phase)
{
	if (own == NULL)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	report_pages();
	own->phase = phase;
	LWLockRelease(table.lock);
}

void
blob_gc_status_waiting(const char *what)
{
	const char *text = what == NULL ? "" : what;

	/* No other process writes it, so looking needs no lock. */
	if (own == NULL || strncmp(own->waiting_for, text, BLOB_GC_REASON_BYTES - 1) == 0)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	strlcpy(own->waiting_for, text, BLOB_GC_REASON_BYTES);
	LWLockRelease(table.lock);
}

void
blob_gc_status_totals(uint64 relations, uint64 pages)
{
	if (own == NULL)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	own->relations_total += relations;
	own->pages_total += pages;
	LWLockRelease(table.lock);
}

void
blob_gc_status_relation_done(void)
{
	if (own == NULL)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	report_pages();
	own->relations_done++;
	LWLockRelease(table.lock);
}

static void
count_page(uint64 *pages)
{
	if (own == NULL || ++*pages < REPORT_PAGES)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	report_pages();
	LWLockRelease(table.lock);
}

void
blob_gc_status_page_done(void)
{
	count_page(&pages_unreported);
}

void
blob_gc_status_page_unchanged(void)
{
	count_page(&unchanged_unreported);
}

/* No other process writes it while the round runs. */
uint64
blob_gc_status_notes(void)
{
	return own == NULL ? 0 : own->notes;
}

void
blob_gc_status_set_notes(uint64 token)
{
	if (own == NULL)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	own->notes = token;
	LWLockRelease(table.lock);
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
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	own->keys = *keys;
	LWLockRelease(table.lock);
}

void
blob_gc_status_kept(const BlobGcKept *kept)
{
	if (own == NULL)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	own->kept = *kept;
	LWLockRelease(table.lock);
}

void
blob_gc_status_end(const char *reason, bool counted, uint64 freed_blobs, uint64 freed_bytes,
				   uint64 live_blobs, uint64 live_bytes)
{
	if (own == NULL)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
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
	LWLockRelease(table.lock);
	own = NULL;
}

static bool
has_round(const void *entry)
{
	return ((const BlobGcStatus *) entry)->pid != 0;
}

void
blob_gc_status_keep(const Oid *databases, int count)
{
	blob_database_table_keep(&table, databases, count, has_round);
}

void
blob_gc_status_forget(Oid database)
{
	blob_database_table_forget(&table, database);
}

int
blob_gc_status_get(BlobGcStatus **statuses)
{
	int			count = 0;

	*statuses = palloc(mul_size(blob_segment_database_room(), sizeof(BlobGcStatus)));
	LWLockAcquire(table.lock, LW_SHARED);
	for (int i = 0; i < blob_segment_database_room(); i++)
	{
		const BlobGcStatus *entry = blob_database_table_entry(&table, i);

		if (OidIsValid(entry->database))
			(*statuses)[count++] = *entry;
	}
	LWLockRelease(table.lock);
	return count;
}
