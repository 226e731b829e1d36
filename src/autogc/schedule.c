/*
 * autogc/schedule.c
 *	  When to look at a database, and whether to collect there, see autogc/schedule.h.
 *
 * The table starts empty with the server, so nothing is known of the time before: databases count
 * as changed, and as collected when the server started.
 */
#include "postgres.h"

#include <ctype.h>

#include "autogc/schedule.h"
#include "core/clock.h"
#include "core/page.h"
#include "core/settings.h"
#include "gc/database_table.h"
#include "gc/gc.h"
#include "gc/status.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "storage/latch.h"

/* The time between looks is doubled after each failure in a row, at most this many times. */
#define MAX_DOUBLINGS 3

/* An interval is doubled after each fruitless round or VACUUM in a row, at most this many times. */
#define MAX_INTERVAL_DOUBLINGS 6

/* How soon after a look another one that cannot wait. */
#define URGENT_MS 100

/* How soon after a look another one for a store that was refused. */
#define REFUSED_MS 1000

/* How often the log repeats a reason. */
#define REPEAT_REASON_MS (60 * 60 * 1000)

/* A table with dead keys, as long as each round finds some. */
typedef struct DeadKeys
{
	BlobGcDeadKeys found;		/* by the last round */
	TimestampTz since;			/* the last VACUUM of ours; at first, when a round found it */
	int			fruitless;		/* VACUUMs in a row that did not help */
	bool		is_vacuumed;	/* since the last round */
} DeadKeys;

typedef struct ScheduleEntry
{
	Oid			database;		/* invalid: free */

	/* The last look. */
	TimestampTz looked_at;
	TimestampTz next_look;
	int			failures;		/* in a row */
	bool		look_again;
	uint64		seen_allocated_pages;
	int64		seen_changed_rows;
	bool		has_worker;		/* that looks, or stays to take the next look */
	bool		round_wanted;	/* a store was refused since the last complete round */

	/* The last complete round; at first, when the entry was made. */
	bool		is_known;		/* there was one */
	TimestampTz completed_at;
	BlobAutogcChurn churn;		/* before it marked, of the tables that count since */
	BlobGcReferring referring;	/* these tables */
	uint64		live_blobs;
	uint64		live_bytes;
	int			fruitless;		/* complete rounds in a row that freed nothing, and kept nothing */
	bool		freed_nothing;	/* the last complete one */
	int			dead_key_count;
	DeadKeys	dead_keys[BLOB_GC_DEAD_KEY_TABLES];
	int			vacuum_pid;		/* the worker that vacuums, or 0 */
	bool		files_checked;	/* since the start of the server */

	/* The last reason in the log. */
	TimestampTz reported_at;
	char		reason[BLOB_GC_REASON_BYTES];
} ScheduleEntry;

/* State that is there once, for all databases. */
typedef struct ScheduleHead
{
	Latch	   *launcher;		/* NULL until it has started; it may have ended since */
	BlobAutogcWish crowd;		/* of databases that have no worker, for want of one */
	bool		is_urgent;		/* the launcher shall look now */
	TimestampTz urgent_at;		/* when that was so last */
} ScheduleHead;

static BlobDatabaseTable table = {
	.name = "blobext collector schedule",
		.tranche = "blobext_gc_schedule",
		.head_bytes = sizeof(ScheduleHead),
		.entry_bytes = sizeof(ScheduleEntry)
};

StaticAssertDecl(offsetof(ScheduleEntry, database) == 0, "an entry must begin with its database");

static ScheduleHead *head;

void
blob_autogc_schedule_shmem_request(void)
{
	blob_database_table_request(&table);
}

void
blob_autogc_schedule_shmem_init(void)
{
	blob_database_table_init(&table);
	head = table.head;
}

/* Lock the table; the entry may be NULL. */
static ScheduleEntry *
lock_entry(Oid database, LWLockMode mode)
{
	LWLockAcquire(table.lock, mode);
	return blob_database_table_find(&table, database);
}

/* The same, made if need be; NULL if the table is full.  The lock is held exclusively. */
static ScheduleEntry *
make_entry(Oid database)
{
	bool		is_new;
	ScheduleEntry *entry = blob_database_table_make(&table, database, &is_new);

	if (is_new)
	{
		entry->look_again = true;
		entry->completed_at = GetCurrentTimestamp();
	}
	return entry;
}

/* ---- the launcher's ---- */

BlobAutogcWish
blob_autogc_schedule_wish(Oid database, uint64 allocated_pages, int64 changed_rows,
						  bool has_waiting, TimestampTz now, TimestampTz *looked_at)
{
	ScheduleEntry *entry;
	BlobAutogcWish wish = BLOB_AUTOGC_NO_LOOK;

	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	entry = make_entry(database);
	if (entry != NULL && (now >= entry->next_look || GetCurrentTimestamp() < entry->looked_at))
	{
		if (entry->failures > 0 || entry->look_again || has_waiting ||
			entry->seen_allocated_pages != allocated_pages ||
			entry->seen_changed_rows != changed_rows)
			wish = entry->next_look == 0 ? BLOB_AUTOGC_LOOK_NOW : BLOB_AUTOGC_LOOK;
		*looked_at = entry->looked_at;
	}
	LWLockRelease(table.lock);
	return wish;
}

/* The lock is held exclusively. */
static void
begin_look(ScheduleEntry *entry, TimestampTz now)
{
	int64		pause_ms = (int64) blob_autogc_naptime_s * 1000;

	entry->looked_at = now;
	entry->next_look = now + (pause_ms << Min(entry->failures, MAX_DOUBLINGS)) * 1000;
	entry->failures++;
}

void
blob_autogc_schedule_look_begins(Oid database, uint64 allocated_pages, int64 changed_rows,
								 TimestampTz now)
{
	ScheduleEntry *entry = lock_entry(database, LW_EXCLUSIVE);

	if (entry != NULL)
	{
		begin_look(entry, now);
		entry->has_worker = true;
		entry->seen_allocated_pages = allocated_pages;
		entry->seen_changed_rows = changed_rows;
	}
	LWLockRelease(table.lock);
}

void
blob_autogc_schedule_wake(void)
{
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	for (int i = 0; i < blob_segment_database_room(); i++)
	{
		ScheduleEntry *entry = blob_database_table_entry(&table, i);

		entry->look_again = true;
		entry->next_look = 0;
	}
	LWLockRelease(table.lock);
}

void
blob_autogc_schedule_worker_ended(Oid database, bool has_another)
{
	ScheduleEntry *entry = lock_entry(database, LW_EXCLUSIVE);

	if (entry != NULL)
	{
		entry->has_worker = has_another;
		if (!has_another && entry->next_look == 0)
			head->is_urgent = true;
	}
	LWLockRelease(table.lock);
}

/* Workers of a launcher that has ended stay on, but this one does not see their end. */
void
blob_autogc_schedule_launcher_begins(Latch *latch)
{
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	head->launcher = latch;
	for (int i = 0; i < blob_segment_database_room(); i++)
		((ScheduleEntry *) blob_database_table_entry(&table, i))->has_worker = false;
	LWLockRelease(table.lock);
}

/* Under the lock, by any process. */
static void
call_launcher(void)
{
	head->is_urgent = true;
	if (head->launcher != NULL)
		SetLatch(head->launcher);
}

bool
blob_autogc_schedule_is_urgent(void)
{
	bool		is_urgent;

	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	is_urgent = head->is_urgent;
	head->is_urgent = false;
	LWLockRelease(table.lock);
	return is_urgent;
}

void
blob_autogc_schedule_set_crowd(BlobAutogcWish crowd)
{
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	head->crowd = crowd;
	LWLockRelease(table.lock);
}

void
blob_autogc_schedule_keep(const Oid *databases, int count)
{
	blob_database_table_keep(&table, databases, count, NULL);
}

void
blob_autogc_schedule_forget(Oid database)
{
	blob_database_table_forget(&table, database);
}

/* ---- the workers' ---- */

/*
 * How many values may have become free since the last round, as far as rows tell: the rows that
 * were removed one by one, or, if these are more, those that went with whole tables.  An UPDATE
 * that leaves the value alone counts as well; only a round could tell.
 */
static double
removed_values(const ScheduleEntry *entry, const BlobAutogcChurn *churn)
{
	int64		rows = Max(churn->removed_rows - entry->churn.removed_rows,
						   entry->churn.live_rows - churn->live_rows);

	if (!entry->is_known || rows <= 0)
		return 0;
	return Min((double) rows, (double) entry->live_blobs);
}

/* Pages allocated since the last round.  A smaller count is of another store. */
static uint64
growth_of(const ScheduleEntry *entry, uint64 allocated_pages)
{
	uint64		before = entry->churn.allocated_pages;

	return allocated_pages >= before ? allocated_pages - before : allocated_pages;
}

/* The number of bytes, stored or removed since the last round, that make another one due. */
static double
due_bytes(const ScheduleEntry *entry)
{
	double		bytes = (double) blob_autogc_threshold_kb * 1024;

	if (entry->is_known)
		bytes += blob_autogc_scale_factor * (double) entry->live_bytes;
	return bytes;
}

/* Is the last round older than the interval, doubled this number of times? */
static bool
is_overdue(const ScheduleEntry *entry, int doublings)
{
	int64		interval_ms = (int64) blob_autogc_interval_s * 1000;

	return blob_clock_has_passed(entry->completed_at, GetCurrentTimestamp(),
								 interval_ms << doublings);
}

/* Do workers vacuum, here and now?  Where autovacuum is off, the administrator has other plans. */
static bool
vacuum_is_on(void)
{
	return blob_autogc && blob_autogc_vacuum && AutoVacuumingActive();
}

static bool
is_any_vacuumed(const ScheduleEntry *entry)
{
	for (int i = 0; i < entry->dead_key_count; i++)
	{
		if (entry->dead_keys[i].is_vacuumed)
			return true;
	}
	return false;
}

/*
 * Rows that were deleted may go without any counter telling: a reader of the page that prunes it
 * leaves them counted as dead.  So as long as there are some, rounds go on, less and less often
 * if they find nothing.
 */
static void
judge(const ScheduleEntry *entry, const BlobAutogcChurn *churn, BlobAutogcVerdict *verdict)
{
	uint64		allocated_pages = growth_of(entry, churn->allocated_pages);
	double		bytes = (double) allocated_pages * BLOB_PAGE_SIZE;
	bool		has_changed = !entry->is_known || allocated_pages > 0 ||
		churn->fingerprint == 0 || churn->fingerprint != entry->churn.fingerprint;

	if (entry->is_known && entry->live_blobs > 0)
		bytes += removed_values(entry, churn) * ((double) entry->live_bytes / entry->live_blobs);
	verdict->is_due = has_changed &&
		((bytes > 0 && bytes >= due_bytes(entry)) || is_overdue(entry, 0));
	if (churn->dead_rows > 0 && is_overdue(entry, Min(entry->fruitless, MAX_INTERVAL_DOUBLINGS)))
		verdict->is_due = true;

	/* A store was refused: all that can be freed now is. */
	if (entry->round_wanted && (has_changed || !entry->freed_nothing))
		verdict->is_due = true;

	/* The values of keys that VACUUM has removed are to be freed. */
	if (is_any_vacuumed(entry))
		verdict->is_due = true;

	/* No counter of the launcher moves when a table becomes due for VACUUM. */
	verdict->look_again = has_changed || churn->dead_rows > 0 || entry->round_wanted ||
		(entry->dead_key_count > 0 && vacuum_is_on());
}

bool
blob_autogc_schedule_referring(BlobGcReferring *referring)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_SHARED);
	bool		is_known = entry != NULL && entry->is_known;

	if (is_known)
		*referring = entry->referring;
	LWLockRelease(table.lock);
	return is_known;
}

void
blob_autogc_schedule_judge(const BlobAutogcChurn *churn, BlobAutogcVerdict *verdict)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_SHARED);

	memset(verdict, 0, sizeof(*verdict));
	if (entry != NULL)
		judge(entry, churn, verdict);
	LWLockRelease(table.lock);
}

/*
 * Looks are a naptime apart, but a store that is written fast would grow by all that is written
 * meanwhile.  A look that fails, or is not done yet, is not hurried.  The launcher is called where
 * no worker is, and not too often: each time it reads the list of databases.
 */
void
blob_autogc_schedule_allocated(const BlobStoreId *store, uint64 allocated_pages)
{
	ScheduleEntry *entry;
	TimestampTz now;

	if (!blob_autogc)
		return;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	now = GetCurrentTimestamp();
	entry = make_entry(store->dboid);
	if (entry != NULL && entry->failures == 0 &&
		blob_clock_has_passed(entry->looked_at, now, URGENT_MS) &&
		(double) growth_of(entry, allocated_pages) * BLOB_PAGE_SIZE >= due_bytes(entry))
	{
		entry->next_look = 0;
		entry->look_again = true;
		if (!entry->has_worker && blob_clock_has_passed(head->urgent_at, now, URGENT_MS))
		{
			head->urgent_at = now;
			call_launcher();
		}
	}
	LWLockRelease(table.lock);
}

/*
 * The request stays until a round is complete.  Looks for it are a second apart at least, however
 * many sessions are refused, and one that is in progress or has failed is not hurried.
 */
bool
blob_autogc_schedule_refused(const BlobStoreId *store)
{
	ScheduleEntry *entry;
	TimestampTz now;

	if (!blob_autogc)
		return false;
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	now = GetCurrentTimestamp();
	entry = make_entry(store->dboid);
	if (entry != NULL)
	{
		entry->round_wanted = true;
		entry->look_again = true;
		if (entry->failures == 0 && blob_clock_has_passed(entry->looked_at, now, REFUSED_MS))
		{
			entry->next_look = 0;
			if (!entry->has_worker && blob_clock_has_passed(head->urgent_at, now, URGENT_MS))
			{
				head->urgent_at = now;
				call_launcher();
			}
		}
	}
	LWLockRelease(table.lock);
	return entry != NULL;
}

bool
blob_autogc_schedule_wants_file_check(void)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_SHARED);
	bool		wants;

	wants = entry != NULL && !entry->files_checked;
	LWLockRelease(table.lock);
	return wants;
}

void
blob_autogc_schedule_files_checked(void)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_EXCLUSIVE);

	if (entry != NULL)
		entry->files_checked = true;
	LWLockRelease(table.lock);
}

void
blob_autogc_schedule_succeeded(bool look_again)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_EXCLUSIVE);

	if (entry != NULL)
	{
		entry->failures = 0;
		entry->look_again = look_again;
		entry->next_look = TimestampTzPlusMilliseconds(entry->looked_at,
													   blob_autogc_naptime_s * 1000);
	}
	LWLockRelease(table.lock);
}

/* A look that cannot wait has its time set to 0. */
bool
blob_autogc_schedule_take_look(bool *is_crowded)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_EXCLUSIVE);
	bool		takes;

	*is_crowded = head->crowd != BLOB_AUTOGC_NO_LOOK;
	takes = !*is_crowded && entry != NULL && entry->next_look == 0;
	if (takes)
		begin_look(entry, GetCurrentTimestamp());
	LWLockRelease(table.lock);
	return takes;
}

/* Reasons that differ in numbers (processes, WAL positions) are the same one. */
static bool
same_reason(const char *left, const char *right)
{
	for (;;)
	{
		while (isxdigit((unsigned char) *left) && !islower((unsigned char) *left))
			left++;
		while (isxdigit((unsigned char) *right) && !islower((unsigned char) *right))
			right++;
		if (*left != *right)
			return false;
		if (*left == '\0')
			return true;
		left++;
		right++;
	}
}

bool
blob_autogc_schedule_is_news(const char *reason)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_EXCLUSIVE);
	TimestampTz now = GetCurrentTimestamp();
	bool		is_news = true;

	if (entry != NULL)
	{
		is_news = !same_reason(entry->reason, reason) ||
			blob_clock_has_passed(entry->reported_at, now, REPEAT_REASON_MS);
		if (is_news)
		{
			entry->reported_at = now;
			strlcpy(entry->reason, reason, BLOB_GC_REASON_BYTES);
		}
	}
	LWLockRelease(table.lock);
	return is_news;
}

/* ---- VACUUM for dead keys ---- */

static DeadKeys *
find_dead_keys(ScheduleEntry *entry, Oid relid)
{
	for (int i = 0; i < entry->dead_key_count; i++)
	{
		if (entry->dead_keys[i].found.table == relid)
			return &entry->dead_keys[i];
	}
	return NULL;
}

/*
 * Much is vacuumed at once, little when it has been there for the interval: rounds come at these
 * times, too, and read as much.  Where VACUUM did not help, the interval grows.
 */
static bool
is_vacuum_due(const ScheduleEntry *entry, const DeadKeys *keys)
{
	int64		interval_ms = (int64) blob_autogc_interval_s * 1000;
	int			doublings = Min(keys->fruitless, MAX_INTERVAL_DOUBLINGS);

	if (keys->is_vacuumed)
		return false;			/* a round has to look first */
	if (keys->fruitless == 0 && (double) keys->found.bytes >= due_bytes(entry))
		return true;
	return blob_clock_has_passed(keys->since, GetCurrentTimestamp(), interval_ms << doublings);
}

int
blob_autogc_schedule_vacuums(BlobGcDeadKeys *tables)
{
	ScheduleEntry *entry;
	int			count = 0;

	if (!vacuum_is_on())
		return 0;
	entry = lock_entry(MyDatabaseId, LW_SHARED);
	for (int i = 0; entry != NULL && i < entry->dead_key_count; i++)
	{
		if (is_vacuum_due(entry, &entry->dead_keys[i]))
			tables[count++] = entry->dead_keys[i].found;
	}
	LWLockRelease(table.lock);
	return count;
}

bool
blob_autogc_schedule_vacuum_enter(void)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_EXCLUSIVE);
	int			count = 0;
	bool		may_enter;

	for (int i = 0; i < blob_segment_database_room(); i++)
	{
		const ScheduleEntry *other = blob_database_table_entry(&table, i);

		if (OidIsValid(other->database) && other->vacuum_pid != 0)
			count++;
	}
	may_enter = entry != NULL && entry->vacuum_pid == 0 && count < blob_autogc_max_workers;
	if (may_enter)
	{
		entry->vacuum_pid = MyProcPid;
		entry->has_worker = false;
		if (entry->next_look == 0)
			call_launcher();
	}
	LWLockRelease(table.lock);
	return may_enter;
}

void
blob_autogc_schedule_vacuum_leave(void)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_EXCLUSIVE);

	if (entry != NULL && entry->vacuum_pid == MyProcPid)
	{
		entry->vacuum_pid = 0;
		if (is_any_vacuumed(entry))
		{
			entry->look_again = true;
			entry->next_look = 0;
		}
	}
	LWLockRelease(table.lock);
}

int
blob_autogc_schedule_vacuum_pid(Oid database)
{
	ScheduleEntry *entry = lock_entry(database, LW_SHARED);
	int			pid;

	pid = entry == NULL ? 0 : entry->vacuum_pid;
	LWLockRelease(table.lock);
	return pid;
}

/*
 * VACUUM of a table of the list begins, or is done; until then it counts as one that did not help.
 */
static void
note_vacuum(Oid relid, bool is_done)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_EXCLUSIVE);
	DeadKeys   *keys;

	Assert(entry == NULL || entry->vacuum_pid == MyProcPid);	/* it alone vacuums here */
	keys = entry == NULL ? NULL : find_dead_keys(entry, relid);
	if (keys != NULL && is_done)
		keys->is_vacuumed = true;
	else if (keys != NULL)
	{
		keys->since = GetCurrentTimestamp();
		keys->fruitless++;
	}
	LWLockRelease(table.lock);
}

void
blob_autogc_schedule_vacuum_begins(Oid relid)
{
	note_vacuum(relid, false);
}

void
blob_autogc_schedule_vacuum_done(Oid relid)
{
	note_vacuum(relid, true);
}

bool
blob_autogc_schedule_is_hurried(void)
{
	ScheduleEntry *entry = lock_entry(MyDatabaseId, LW_SHARED);
	bool		is_hurried;

	is_hurried = (entry != NULL && entry->next_look == 0) ||
		head->crowd == BLOB_AUTOGC_LOOK_NOW;
	LWLockRelease(table.lock);
	return is_hurried;
}

/* Take the tables over that a round has found.  Those that were there before keep their history. */
static void
take_over_dead_keys(ScheduleEntry *entry, const BlobGcDeadKeys *tables, int count)
{
	DeadKeys	next[BLOB_GC_DEAD_KEY_TABLES];

	for (int i = 0; i < count; i++)
	{
		const DeadKeys *last = find_dead_keys(entry, tables[i].table);

		if (last != NULL)
			next[i] = *last;
		else
		{
			memset(&next[i], 0, sizeof(DeadKeys));
			next[i].since = GetCurrentTimestamp();
		}
		if (next[i].is_vacuumed && tables[i].bytes < last->found.bytes)
			next[i].fruitless = 0;
		next[i].is_vacuumed = false;
		next[i].found = tables[i];
	}
	memcpy(entry->dead_keys, next, sizeof(DeadKeys) * count);
	entry->dead_key_count = count;
}

void
blob_autogc_schedule_round_done(const BlobAutogcChurn *churn, const BlobGcResult *result)
{
	ScheduleEntry *entry;

	Assert(result->counted && result->skipped_reason == NULL);
	LWLockAcquire(table.lock, LW_EXCLUSIVE);
	entry = make_entry(MyDatabaseId);
	if (entry != NULL)
	{
		entry->is_known = true;
		entry->completed_at = GetCurrentTimestamp();
		entry->churn = *churn;
		entry->referring = result->referring;
		entry->live_blobs = result->live_blobs;
		entry->live_bytes = result->live_bytes;
		/* The keeper of rows may end at any time, and moves no counter. */
		entry->fruitless = result->freed_bytes > 0 || result->kept.bytes > 0 ? 0 :
			entry->fruitless + 1;
		entry->freed_nothing = result->freed_bytes == 0;
		entry->round_wanted = false;
		entry->reason[0] = '\0';
		take_over_dead_keys(entry, result->dead_key_tables, result->dead_key_table_count);
	}
	LWLockRelease(table.lock);
}
