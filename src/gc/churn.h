/*
 * gc/churn.h
 *	  How much has changed in a database.
 */
#ifndef BLOB_GC_CHURN_H
#define BLOB_GC_CHURN_H

#include "postgres.h"

#include "gc/roots.h"
#include "gc/schedule.h"

/* What the relations' counters say now; allocated_pages is passed on. */
extern void blob_gc_measure_churn(const BlobGcRoots *roots, uint64 allocated_pages,
								  BlobGcChurn *churn);

#endif							/* BLOB_GC_CHURN_H */
