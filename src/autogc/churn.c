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

typedef struct TableCounters
{
	TableFacts	facts;
	int64		live;
	bool		has_rows;		/* in a file of its own; no parent, row type, view */
} TableCounters;

struct BlobAutogcCounters
{
	int			count;
	TableCounters tables[FLEXIBLE_ARRAY_MEMBER];
};

/* A table without statistics counts with its file and columns. */
static void
read_table(const BlobGcRoot *root, TableCounters *table)
{
	PgStat_StatTabEntry *statistics = blob_stat_of_table(root->relid);

	memset(table, 0, sizeof(*table));
	table->facts.relid = root->relid;
	table->facts.file = root->file;
	table->facts.columns = root->columns;
	table->has_rows = root->is_scanned;
	if (statistics == NULL)
		return;
	table->facts.updated = statistics->tuples_updated;
	table->facts.deleted = statistics->tuples_deleted;
	table->facts.dead = blob_stat_dead_rows(statistics);
	table->facts.vacuums = blob_stat_vacuums(statistics);
	table->live = blob_stat_live_rows(statistics);
}

BlobAutogcCounters *
blob_autogc_read_counters(const BlobGcRoots *roots)
{
	BlobAutogcCounters *counters;

	counters = palloc_extended(offsetof(BlobAutogcCounters, tables) +
							   sizeof(TableCounters) * roots->count, MCXT_ALLOC_HUGE);
	counters->count = 0;
	for (int i = 0; i < roots->count; i++)
	{
		if (roots->items[i].kind != RELKIND_INDEX)
			read_table(&roots->items[i], &counters->tables[counters->count++]);
	}
	return counters;
}

/*
 * Add a table's counters to the sums, and mix them with its identity into the fingerprint, so that
 * a change of any of them is seen.
 */
static void
add_table(const TableCounters *table, BlobAutogcChurn *churn)
{
	const TableFacts *facts = &table->facts;

	churn->removed_rows += facts->updated + facts->deleted - facts->dead;
	churn->live_rows += table->live;
	churn->dead_rows += facts->dead;
	churn->fingerprint =
		DatumGetUInt64(hash_any_extended((const unsigned char *) facts, sizeof(*facts),
										 churn->fingerprint));
}

/* See README.md, "Tables that count". */
void
blob_autogc_measure_churn(const BlobAutogcCounters *counters, const BlobGcReferring *referring,
						  uint64 allocated_pages, BlobAutogcChurn *churn)
{
	memset(churn, 0, sizeof(*churn));
	churn->allocated_pages = allocated_pages;
	churn->fingerprint = 1;
	for (int i = 0; i < counters->count; i++)
	{
		const TableCounters *table = &counters->tables[i];

		if (referring == NULL || !table->has_rows ||
			blob_gc_referring_has(referring, table->facts.relid))
			add_table(table, churn);
	}
	if (!pgstat_track_counts)
		churn->fingerprint = 0;
}
