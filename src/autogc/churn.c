/*
 * autogc/churn.c
 *	  How much has changed in a database, from PostgreSQL's statistics of the relations that can
 *	  hold blobstate.
 */
#include "postgres.h"

#include "autogc/churn.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "core/compat.h"
#include "pgstat.h"

/* Counters of a table that move when its rows can have gone. */
typedef struct TableFacts
{
	Oid			relid;
	Oid			file;
	uint64		columns;
	int64		updated;
	int64		deleted;
	int64		dead;
	int64		vacuums;
} TableFacts;

/*
 * Add a table's counters to the sums, and mix them with its identity into the fingerprint, so that
 * a change of any of them is seen.
 */
static void
add_table(const BlobGcRoot *root, BlobAutogcChurn *churn)
{
	PgStat_StatTabEntry *statistics = blob_stat_of_table(root->relid);
	TableFacts	facts;

	memset(&facts, 0, sizeof(facts));
	facts.relid = root->relid;
	facts.file = root->file;
	facts.columns = root->columns;
	if (statistics != NULL)
	{
		facts.updated = statistics->tuples_updated;
		facts.deleted = statistics->tuples_deleted;
		facts.dead = blob_stat_dead_rows(statistics);
		facts.vacuums = blob_stat_vacuums(statistics);
		churn->removed_rows += facts.updated + facts.deleted - facts.dead;
		churn->live_rows += blob_stat_live_rows(statistics);
		churn->dead_rows += facts.dead;
	}
	churn->fingerprint =
		DatumGetUInt64(hash_any_extended((unsigned char *) &facts, sizeof(facts),
										 churn->fingerprint));
}

void
blob_autogc_measure_churn(const BlobGcRoots *roots, uint64 allocated_pages, BlobAutogcChurn *churn)
{
	memset(churn, 0, sizeof(*churn));
	churn->allocated_pages = allocated_pages;
	churn->fingerprint = 1;
	for (int i = 0; i < roots->count; i++)
	{
		if (roots->items[i].kind != RELKIND_INDEX)
			add_table(&roots->items[i], churn);
	}
	if (!pgstat_track_counts)
		churn->fingerprint = 0;
}
