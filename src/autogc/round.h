/*
 * autogc/round.h
 *	  Rounds that count for the schedule.
 */
#ifndef BLOB_AUTOGC_ROUND_H
#define BLOB_AUTOGC_ROUND_H

#include "postgres.h"

#include "gc/gc.h"

/*
 * A round, see blob_gc_run().  If it was complete, and no dry one, the schedule takes note
 * of it, whether a worker or a user has asked for it.
 */
extern void blob_autogc_run(BlobGcOptions *options, BlobGcResult *result);

#endif							/* BLOB_AUTOGC_ROUND_H */
