/*
 * assign/shards.c
 *	  Tables whose rows are in other tables: those that Citus distributes.
 *
 * Citus keeps a row in pg_catalog.pg_dist_partition for each table that it has taken over.  Such a
 * table is a shell without rows: Citus plans its statements, and sends them, as text, to the tables
 * that hold its shards, on this server or others.  There the library on the shard's server stores
 * the values that are assigned.  So nothing is stored where the shell is: it would be stored twice.
 * And Citus refuses an UPDATE that calls a volatile function, as the coercion and blob_store() are.
 *
 * An ordinary user cannot make a table of that name in pg_catalog.  If one is there that has not
 * the columns that are expected, no table counts as distributed; a table that is taken for one by
 * mistake costs size, for its values stay inline.
 */
#include "postgres.h"

#include "catalog/pg_namespace_d.h"
#include "catalog/pg_type_d.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "core/catalog_scan.h"
#include "assign/assign.h"

#define LOGICALRELID 1			/* number of the column */

/* AccessShareLock on the catalog of Citus, as its own look-ups take it. */
bool
blob_assign_is_distributed(Oid relation)
{
	/* Negative answers are in the catalog cache: a look-up costs little where Citus is not. */
	Oid			partitions = get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE);
	BlobCatalogScan scan;
	bool		is_found;

	if (!OidIsValid(partitions) || get_atttype(partitions, LOGICALRELID) != REGCLASSOID)
		return false;
	scan = blob_catalog_scan_oid(partitions, NULL,
								 get_relname_relid("pg_dist_partition_logical_relid_index",
												   PG_CATALOG_NAMESPACE), LOGICALRELID, relation);
	is_found = blob_catalog_scan_next(&scan) != NULL;
	blob_catalog_scan_end(&scan);
	return is_found;
}
