/*
 * autogc/scrub_worker.h
 *	  The scrubber: a process that compares the files of one database's store with the checksums of
 *	  their pages, and ends.
 */
#ifndef BLOB_SCRUB_WORKER_H
#define BLOB_SCRUB_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

/* The launcher's: start one for a database; false if there is no slot for a process. */
extern bool blob_scrub_worker_start(Oid database, BackgroundWorkerHandle **handle);

extern PGDLLEXPORT void blob_scrub_worker_main(Datum argument);

#endif							/* BLOB_SCRUB_WORKER_H */
