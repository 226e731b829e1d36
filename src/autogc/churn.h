/*
 * autogc/churn.h
 *	  How much has changed in a database.
 */
#ifndef BLOB_AUTOGC_CHURN_H
#define BLOB_AUTOGC_CHURN_H

#include "postgres.h"

#include "autogc/schedule.h"
#include "gc/referring.h"
#include "gc/roots.h"

/* Statistics of the relations that can hold values; opaque. */
typedef struct BlobAutogcCounters BlobAutogcCounters;

/* Of this moment; in the current memory context. */
extern BlobAutogcCounters *blob_autogc_read_counters(const BlobGcRoots *roots);

/*
 * Add the counters up, of the tables that referred to extents when a round marked; NULL: of all.
 * allocated_pages is passed on.
 */
extern void blob_autogc_measure_churn(const BlobAutogcCounters *counters,
									  const BlobGcReferring *referring, uint64 allocated_pages,
									  BlobAutogcChurn *churn);

#endif							/* BLOB_AUTOGC_CHURN_H */
