/*
 * autogc/process.h
 *	  What the processes of this folder have in common.
 */
#ifndef BLOB_AUTOGC_PROCESS_H
#define BLOB_AUTOGC_PROCESS_H

#include "postgres.h"

#include "portability/instr_time.h"

/*
 * Handlers of signals, a connection to a database (InvalidOid: to none), the settings that a
 * process of ours shall see whatever the configuration says, and a memory context to stay in.
 */
extern void blob_autogc_process_begin(const char *name, Oid database);

/*
 * Sleep for this time, or until the latch is set.  Serves interrupts, ends the process without a
 * message if it is to be terminated, and reads a new configuration.  Outside of a transaction.
 * exit_code: of a process that is terminated; 0 of one that shall not be started again.  Returns
 * whether there was a new configuration.
 */
extern bool blob_autogc_process_pause(long timeout_ms, int exit_code);

/*
 * Be taken for autovacuum: a session that waits for a lock of this process cancels it, and a
 * command that wants the database for itself ends it.  Nothing else depends on that flag.
 */
extern void blob_autogc_process_pass_for_autovacuum(bool on);

/*
 * Go at autovacuum's pace: in VACUUM, and from blob_begin_pace() on wherever blob_delay_point() is
 * called.
 */
extern void blob_autogc_process_take_autovacuum_pace(void);

/* By a clock that cannot be set back: a worker must not wait for an hour. */
extern long blob_autogc_milliseconds_since(instr_time started_at);

/* blob_gc_database_is_wanted() for the database of this process, in a transaction of its own. */
extern bool blob_autogc_database_is_wanted(void);

/*
 * From a PG_CATCH: report the error, abort the transaction.  The process may go on: a cancel that
 * came late is forgotten.
 */
extern void blob_autogc_process_recover(void);

#endif							/* BLOB_AUTOGC_PROCESS_H */
