/*
 * gc/since.h
 *	  Since when a process holds a round up, for reasons that name it.
 */
#ifndef BLOB_GC_SINCE_H
#define BLOB_GC_SINCE_H

#include "postgres.h"

/*
 * Text in the current memory context, with a space before it: when the transaction of a process
 * began, or, with of_session, its session.  Empty if that is not known: the process is gone, it has
 * no transaction, or track_activities is off.
 */
extern char *blob_gc_since(int pid, bool of_session);

#endif							/* BLOB_GC_SINCE_H */
