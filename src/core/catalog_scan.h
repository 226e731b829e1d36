/*
 * core/catalog_scan.h
 *	  Rows of a catalog, one after the other, with AccessShareLock on it.
 *
 * A scan closes itself behind the last row.  One that is left before is ended by
 * blob_catalog_scan_end(), which does nothing else.
 */
#ifndef BLOB_CATALOG_SCAN_H
#define BLOB_CATALOG_SCAN_H

#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

typedef struct BlobCatalogScan
{
	Relation	catalog;		/* NULL: it is closed */
	SysScanDesc scan;
} BlobCatalogScan;

/* snapshot: NULL is that of the catalog; index: InvalidOid is none. */
static inline BlobCatalogScan
blob_catalog_scan_keys(Oid catalog, Snapshot snapshot, Oid index, int count, ScanKey keys)
{
	BlobCatalogScan scan = {.catalog = table_open(catalog, AccessShareLock)};

	scan.scan = systable_beginscan(scan.catalog, index, OidIsValid(index), snapshot, count, keys);
	return scan;
}

static inline BlobCatalogScan
blob_catalog_scan(Oid catalog, Snapshot snapshot)
{
	return blob_catalog_scan_keys(catalog, snapshot, InvalidOid, 0, NULL);
}

/* Rows with this OID in a column, which is the first of the index. */
static inline BlobCatalogScan
blob_catalog_scan_oid(Oid catalog, Snapshot snapshot, Oid index, AttrNumber column, Oid oid)
{
	ScanKeyData key;

	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(oid));
	return blob_catalog_scan_keys(catalog, snapshot, index, 1, &key);
}

static inline void
blob_catalog_scan_end(BlobCatalogScan *scan)
{
	if (scan->catalog == NULL)
		return;
	systable_endscan(scan->scan);
	table_close(scan->catalog, AccessShareLock);
	scan->catalog = NULL;
}

/* NULL: there are no more rows. */
static inline HeapTuple
blob_catalog_scan_next(BlobCatalogScan *scan)
{
	HeapTuple	tuple = systable_getnext(scan->scan);

	if (tuple == NULL)
		blob_catalog_scan_end(scan);
	return tuple;
}

#endif							/* BLOB_CATALOG_SCAN_H */
