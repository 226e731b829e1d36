/*
 * autogc/worker.h
 *	  A worker: looks at one database, collects there if it should, vacuums, and ends.
 */
#ifndef BLOB_AUTOGC_WORKER_H
#define BLOB_AUTOGC_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

/*
 * Start a worker for a database; its end is signalled to this process.  The handle is in the
 * current memory context.  False if there is no slot for one more process.
 */
extern bool blob_autogc_worker_start(Oid database, BackgroundWorkerHandle **handle);

/* Its entry point; the argument is the database. */
extern PGDLLEXPORT void blob_autogc_worker_main(Datum argument);

#endif							/* BLOB_AUTOGC_WORKER_H */
