/*
 * gc/status.h
 *	  What the collector is doing, and what the last round in a database did: in shared memory.
 */
#ifndef BLOB_GC_STATUS_H
#define BLOB_GC_STATUS_H

#include "postgres.h"

#include "utils/timestamp.h"

#define BLOB_GC_REASON_BYTES 512

/* Schema and name, each in quotes and with all of its characters doubled at worst. */
#define BLOB_GC_NAME_BYTES (2 * (2 * NAMEDATALEN + 2))

/* A prepared transaction has the longest name, of 200 bytes. */
#define BLOB_GC_KEEPER_BYTES 256

typedef enum BlobGcPhase
{
	BLOB_GC_IDLE,
	BLOB_GC_WAITING,			/* for snapshots and transactions */
	BLOB_GC_MARKING,
	BLOB_GC_CHECKING,			/* lists again, waits for slots */
	BLOB_GC_SWEEPING
} BlobGcPhase;

/*
 * Bytes that only keys of B-trees hold, as the last complete round has found, a dry one or not.
 * Names are qualified and quoted; empty: there is none.
 */
typedef struct BlobGcKeys
{
	bool		is_known;		/* there was such a round */
	uint64		dead_bytes;		/* held by keys of rows that are gone: VACUUM removes these */
	char		dead_index[BLOB_GC_NAME_BYTES]; /* that holds most of them */
	char		dead_table[BLOB_GC_NAME_BYTES]; /* its table */
	uint64		high_bytes;		/* held by keys that separate pages: REINDEX removes these */
	char		high_index[BLOB_GC_NAME_BYTES];
	bool		high_is_exclusion;	/* cannot be rebuilt concurrently */
} BlobGcKeys;

/*
 * Values that only rows hold which were deleted before the round, and which PostgreSQL may not
 * remove yet, as the last complete round has found, a dry one or not.
 */
typedef struct BlobGcKept
{
	bool		is_known;		/* there was such a round */
	uint64		blobs;
	uint64		bytes;
	char		by[BLOB_GC_KEEPER_BYTES];	/* what keeps the rows; empty: it has ended */
} BlobGcKept;

typedef struct BlobGcStatus
{
	Oid			database;		/* invalid: this entry is free */
	int			pid;			/* of the running round, or 0 */
	BlobGcPhase phase;

	/* The running round, or the last one. */
	TimestampTz started_at;
	TimestampTz ended_at;		/* 0: it runs, or was interrupted with the server */
	bool		dry_run;
	bool		automatic;		/* of a worker that the launcher started */
	char		waiting_for[BLOB_GC_REASON_BYTES];	/* empty: it does not wait */
	uint64		relations_total;
	uint64		relations_done;
	uint64		pages_total;	/* heap and index pages; an estimate until all are read */
	uint64		pages_done;
	uint64		pages_unchanged;	/* of tables, not read: there was a note of each */
	uint64		freed_blobs;
	uint64		freed_bytes;
	bool		counted;		/* the following two are known */
	uint64		live_blobs;
	uint64		live_bytes;
	char		skipped_reason[BLOB_GC_REASON_BYTES];	/* empty: nothing kept it from freeing */

	BlobGcKeys	keys;
	BlobGcKept	kept;

	/* Since the start of the server, dry runs left out. */
	uint64		rounds;			/* complete ones */
	uint64		skipped_rounds;
	TimestampTz completed_at;	/* the last complete round */

	uint64		notes;			/* token of the file of notes; 0: there is none */
} BlobGcStatus;

extern void blob_gc_status_shmem_request(void);
extern void blob_gc_status_shmem_init(void);

/* A round begins and ends in this process. */
extern void blob_gc_status_begin(bool dry_run, bool automatic);
extern void blob_gc_status_phase(BlobGcPhase phase);
extern void blob_gc_status_waiting(const char *what);	/* NULL: not any more */
extern void blob_gc_status_totals(uint64 relations, uint64 pages);
extern void blob_gc_status_relation_done(void);
extern void blob_gc_status_page_done(void);
extern void blob_gc_status_page_unchanged(void);

/* The token of the notes of the round that runs here; 0: there are none. */
extern uint64 blob_gc_status_notes(void);
extern void blob_gc_status_set_notes(uint64 token);

/* What a worker shows of its round in pg_stat_activity; nothing in other processes. */
extern void blob_gc_status_show(const char *format,...) pg_attribute_printf(1, 2);

extern void blob_gc_status_keys(const BlobGcKeys *keys);
extern void blob_gc_status_kept(const BlobGcKept *kept);

/*
 * counted: the two figures of live blobs are known.  reason: why it freed nothing, or NULL.  Takes
 * no memory: errors are reported through it.
 */
extern void blob_gc_status_end(const char *reason, bool counted, uint64 freed_blobs,
							   uint64 freed_bytes, uint64 live_blobs, uint64 live_bytes);

/* Forget a database that is dropped; all databases but these (sorted). */
extern void blob_gc_status_forget(Oid database);
extern void blob_gc_status_keep(const Oid *databases, int count);

/* Copies of all databases' entries, in the current memory context; returns their number. */
extern int	blob_gc_status_get(BlobGcStatus **statuses);

#endif							/* BLOB_GC_STATUS_H */
