/*
 * autogc/schedule.h
 *	  When to look at a database, and whether to collect there: state of the launcher and its
 *	  workers in shared memory, an entry per database.  See README.md, "The launcher".
 */
#ifndef BLOB_AUTOGC_SCHEDULE_H
#define BLOB_AUTOGC_SCHEDULE_H

#include "postgres.h"

#include "core/page.h"
#include "gc/gc.h"
#include "utils/timestamp.h"

struct Latch;

/* Counters of changes in a database; compared with the same counters at the last round. */
typedef struct BlobAutogcChurn
{
	uint64		allocated_pages;	/* since the start of the server */
	int64		removed_rows;	/* updated, deleted and vacuumed, of tables that count */
	int64		live_rows;		/* of these tables */
	int64		dead_rows;		/* deleted, not vacuumed */
	uint64		fingerprint;	/* of the tables' counters and files; 0: there are no counters */
} BlobAutogcChurn;

/* What a look says. */
typedef struct BlobAutogcVerdict
{
	bool		is_due;			/* collect now */
	bool		look_again;		/* even if the counters of the launcher stand still */
} BlobAutogcVerdict;

/* Does a database want a look, and how much?  In this order. */
typedef enum BlobAutogcWish
{
	BLOB_AUTOGC_NO_LOOK,
	BLOB_AUTOGC_LOOK,
	BLOB_AUTOGC_LOOK_NOW		/* one that cannot wait: sessions have stored much */
} BlobAutogcWish;

extern void blob_autogc_schedule_shmem_request(void);
extern void blob_autogc_schedule_shmem_init(void);

/*
 * The launcher's: does a database want a look by a worker?  allocated_pages, changed_rows:
 * counters of its stores, of its tables.  has_waiting: space waits to be given back.  looked_at:
 * when the last one began.  None if there is no room for one more database.
 */
extern BlobAutogcWish blob_autogc_schedule_wish(Oid database, uint64 allocated_pages,
												int64 changed_rows, bool has_waiting,
												TimestampTz now, TimestampTz *looked_at);

/*
 * A worker is started.  Until it calls blob_autogc_schedule_succeeded(), the look counts as failed,
 * however it ends, and the next one comes later and later.
 */
extern void blob_autogc_schedule_look_begins(Oid database, uint64 allocated_pages,
											 int64 changed_rows, TimestampTz now);

/* One has ended; has_another: beside one that vacuumed, another one looks. */
extern void blob_autogc_schedule_worker_ended(Oid database, bool has_another);

/* Look at all databases soon: settings have changed. */
extern void blob_autogc_schedule_wake(void);

/* The launcher's, at its start: the latch that wakes it. */
extern void blob_autogc_schedule_launcher_begins(struct Latch *latch);

/*
 * The launcher's: the strongest wish of the databases that have no worker, because all, or all
 * processes, are in use.
 */
extern void blob_autogc_schedule_set_crowd(BlobAutogcWish crowd);

/* The launcher's: whether so much was allocated since the last call that a look cannot wait. */
extern bool blob_autogc_schedule_is_urgent(void);

/*
 * Called by a backend that allocates: if the allocated pages alone make a round due, a look cannot
 * wait, for which the launcher is woken up where no worker stays.  A hook of store/store.h.
 */
extern void blob_autogc_schedule_allocated(const BlobStoreId *store, uint64 allocated_pages);

/*
 * Called by a backend whose store was refused for want of space: a round is wanted, and a look
 * cannot wait.  False while `autogc` is off.  A hook of store/store.h.
 */
extern bool blob_autogc_schedule_refused(const BlobStoreId *store);

/* Forget a database that is dropped; all databases but these (sorted). */
extern void blob_autogc_schedule_forget(Oid database);
extern void blob_autogc_schedule_keep(const Oid *databases, int count);

/* A worker's, for its database: whether its files were not looked at since the server's start. */
extern bool blob_autogc_schedule_wants_file_check(void);
extern void blob_autogc_schedule_files_checked(void);

/* A worker's: the tables that count in its database.  False: all do, there was no round yet. */
extern bool blob_autogc_schedule_referring(BlobGcReferring *referring);

/* A worker's, for its database; churn: of the tables that count. */
extern void blob_autogc_schedule_judge(const BlobAutogcChurn *churn, BlobAutogcVerdict *verdict);

/* The look was successful. */
extern void blob_autogc_schedule_succeeded(bool look_again);

/*
 * A worker's whose last look was successful: begins another one, if one cannot wait, and no other
 * database needs this process.
 */
extern bool blob_autogc_schedule_take_look(bool *is_crowded);

/*
 * A worker is about to vacuum, from when on it counts as none that looks.  False if it must not:
 * another one does so in this database, or autogc_max_workers do so in others.  leave: at the end
 * of the process at the latest.  If a table was vacuumed, a look cannot wait after that.
 */
extern bool blob_autogc_schedule_vacuum_enter(void);
extern void blob_autogc_schedule_vacuum_leave(void);

/* The process that vacuums in a database, or 0. */
extern int	blob_autogc_schedule_vacuum_pid(Oid database);

/*
 * Tables that shall be vacuumed now, for their indexes; returns their number, at most
 * BLOB_GC_DEAD_KEY_TABLES.
 */
extern int	blob_autogc_schedule_vacuums(BlobGcDeadKeys *tables);

/*
 * VACUUM of one of them begins; until it is done it counts as one that did not help.  A round is
 * due once one was done.
 */
extern void blob_autogc_schedule_vacuum_begins(Oid relid);
extern void blob_autogc_schedule_vacuum_done(Oid relid);

/*
 * A worker's, whose look was successful: whether another look cannot wait, for which this worker
 * should stop what it does.  It is one at this database, or at one that has no worker.
 */
extern bool blob_autogc_schedule_is_hurried(void);

/* Whether a reason for freeing nothing is worth a line in the log: it is new, or an hour old. */
extern bool blob_autogc_schedule_is_news(const char *reason);

/* A round was complete, and no dry one; churn: as it was before marking. */
extern void blob_autogc_schedule_round_done(const BlobAutogcChurn *churn,
											const BlobGcResult *result);

#endif							/* BLOB_AUTOGC_SCHEDULE_H */
