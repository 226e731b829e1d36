/*
 * autogc/churn.c
 *	  How much has changed in a database, from PostgreSQL's statistics of the relations that can
 *	  hold blobstate.
 */
#include "postgres.h"

#include "autogc/churn.h"
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_statistic_ext_data.h"
#include "common/hashfn.h"
#include "core/compat.h"
#include "pgstat.h"

/*
 * Of each relation but foreign temporary ones, counted or not: it may be the row type of columns of
 * others.
 */
typedef struct TableShape
{
	uint64		relid;
	uint64		columns;
} TableShape;

/* Counters of a table that move when its rows can have gone. */
typedef struct TableFacts
{
	uint64		file;
	int64		updated;
	int64		deleted;
	int64		dead;
	int64		vacuums;
} TableFacts;

typedef struct TableCounters
{
	TableShape	shape;
	TableFacts	facts;
	int64		live;
	bool		is_foreign;		/* a temporary table of another session */
} TableCounters;

struct BlobAutogcCounters
{
	int			count;
	TableCounters tables[FLEXIBLE_ARRAY_MEMBER];
};

/* Catalogs whose rows may refer to extents. */
static const Oid catalogs[] = {
	RelationRelationId, StatisticRelationId, StatisticExtDataRelationId
};

/* A table without statistics counts with its file and columns. */
static void
read_table(Oid relid, Oid file, uint64 columns, TableCounters *table)
{
	PgStat_StatTabEntry *statistics = blob_stat_of_table(relid);

	memset(table, 0, sizeof(*table));
	table->shape.relid = relid;
	table->shape.columns = columns;
	table->facts.file = file;
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
							   sizeof(TableCounters) * (roots->count + roots->temporary_count +
														lengthof(catalogs)),
							   MCXT_ALLOC_HUGE);
	counters->count = 0;
	for (int i = 0; i < roots->count; i++)
	{
		const BlobGcRoot *root = &roots->items[i];

		if (root->kind != RELKIND_INDEX)
			read_table(root->relid, root->file, root->columns,
					   &counters->tables[counters->count++]);
	}
	for (int i = 0; i < roots->temporary_count; i++)
	{
		const BlobGcTemporary *temporary = &roots->temporary[i];

		if (temporary->is_index)
			continue;
		read_table(temporary->relid, temporary->file, temporary->columns,
				   &counters->tables[counters->count]);
		counters->tables[counters->count++].is_foreign = true;
	}
	for (int i = 0; i < (int) lengthof(catalogs); i++)
		read_table(catalogs[i], InvalidOid, 0, &counters->tables[counters->count++]);
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
		bool		counts = referring == NULL ||
			blob_gc_referring_has(referring, table->shape.relid);

		/* Temporary tables come and go all the time. */
		if (counts || !table->is_foreign)
			mix(churn, &table->shape, sizeof(table->shape));
		if (counts)
			add_table(table, churn);
	}
	if (!pgstat_track_counts)
		churn->fingerprint = 0;
}
