/*
 * autogc/churn.h
 *	  How much has changed in a database.
 */
#ifndef BLOB_AUTOGC_CHURN_H
#define BLOB_AUTOGC_CHURN_H

#include "postgres.h"

#include "autogc/schedule.h"
#include "gc/roots.h"

/* What the relations' counters say now; allocated_pages is passed on. */
extern void blob_autogc_measure_churn(const BlobGcRoots *roots, uint64 allocated_pages,
								  BlobAutogcChurn *churn);

#endif							/* BLOB_AUTOGC_CHURN_H */
