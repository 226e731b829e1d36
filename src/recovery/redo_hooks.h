/*
 * recovery/redo_hooks.h
 *	  Before a record of any resource manager is replayed, content in flight is waited for, or made
 *	  durable, as the record demands.  The commit of DROP DATABASE makes shared memory forget the
 *	  database.
 */
#ifndef BLOB_REDO_HOOKS_H
#define BLOB_REDO_HOOKS_H

/*
 * From now on, in this process.  Called once, when all resource managers are registered.  Returns
 * false if the table of this release of PostgreSQL is not known to be writable: then the caller has
 * to make content durable at the end of each record, and counters of dropped databases stay.
 */
extern bool blob_redo_hooks_install(void);

#endif							/* BLOB_REDO_HOOKS_H */
