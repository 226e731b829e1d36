/*
 * sql/batch.c
 *	  Procedures that commit after each batch, see sql/batch.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "gc/holders.h"
#include "sql/batch.h"
#include "tcop/pquery.h"

void
blob_batch_next(void)
{
	SPI_commit();
	blob_gc_holders_carry_nothing();
	XactIsoLevel = XACT_READ_COMMITTED;
	EnsurePortalSnapshotExists();
}
