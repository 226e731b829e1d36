/*
 * core/background.h
 *	  Background processes of this library, as PostgreSQL wants them described.
 */
#ifndef BLOB_BACKGROUND_H
#define BLOB_BACKGROUND_H

#include "postgres.h"

#include "postmaster/bgworker.h"

/*
 * Describe a background process of this library.  It starts when recovery has ended, has shared
 * memory and a connection (to a database, or to none), and runs an exported function.  A process
 * without a connection has no virtual transactions.  The syncer needs them, because checkpoints
 * wait for virtual transactions.
 */
extern void blob_background_describe(BackgroundWorker *process, const char *name,
									 const char *function, int restart_s);

/* Register a process that starts with the server; none starts in binary upgrade mode. */
extern void blob_background_register(const char *name, const char *function, int restart_s);

#endif							/* BLOB_BACKGROUND_H */
