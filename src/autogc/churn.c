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

/* What is looked at of each relation: it may be the row type of columns of others. */
typedef struct TableShape
{
	Oid			relid;
	uint32		is_partition;	/* of a partitioned table, with a bound */
	uint64		columns;
} TableShape;

/* Counters of a table that move when its rows, or statistics, can have gone. */
typedef struct TableFacts
{
	uint64		file;
	int64		updated;
	int64		deleted;
	int64		dead;
	int64		vacuums;
	int64		analyzes;
} TableFacts;

typedef struct TableCounters
{
	TableShape	shape;
	TableFacts	facts;
	int64		live;
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
	table->shape.relid = root->relid;
	table->shape.is_partition = root->is_partition;
	table->shape.columns = root->columns;
	table->facts.file = root->file;
	if (statistics == NULL)
		return;
	table->facts.updated = statistics->tuples_updated;
	table->facts.deleted = statistics->tuples_deleted;
	table->facts.dead = blob_stat_dead_rows(statistics);
	table->facts.vacuums = blob_stat_vacuums(statistics);
	table->facts.analyzes = blob_stat_analyzes(statistics);
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

/* Mix something into the fingerprint, so that a change of it is seen. */
static void
mix(BlobAutogcChurn *churn, const void *bytes, int size)
{
	churn->fingerprint = DatumGetUInt64(hash_any_extended(bytes, size, churn->fingerprint));
}

/* Add a table's counters to the sums and to the fingerprint. */
static void
add_table(const TableCounters *table, BlobAutogcChurn *churn)
{
	const TableFacts *facts = &table->facts;

	churn->removed_rows += facts->updated + facts->deleted - facts->dead;
	churn->live_rows += table->live;
	churn->dead_rows += facts->dead;
	mix(churn, facts, sizeof(*facts));
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

		mix(churn, &table->shape, sizeof(table->shape));
		if (referring == NULL || blob_gc_referring_has(referring, table->shape.relid))
			add_table(table, churn);
	}
	if (!pgstat_track_counts)
		churn->fingerprint = 0;
}
