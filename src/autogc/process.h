/*
 * autogc/process.h
 *	  What the processes of this folder have in common.
 */
#ifndef BLOB_AUTOGC_PROCESS_H
#define BLOB_AUTOGC_PROCESS_H

#include "postgres.h"

/*
 * Handlers of signals, a connection to a database (InvalidOid: to none), the settings that a
 * process of ours shall see whatever the configuration says, and a memory context to stay in.
 */
extern void blob_autogc_process_begin(const char *name, Oid database);

/*
 * From a PG_CATCH: report the error, abort the transaction.  The process may go on: a cancel that
 * came late is forgotten.
 */
extern void blob_autogc_process_recover(void);

#endif							/* BLOB_AUTOGC_PROCESS_H */
