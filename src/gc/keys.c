/*
 * gc/keys.c
 *	  Extents that only keys of B-trees hold: which indexes have the keys.
 *
 * While a round marks, indexes are marked last, and each counts the pages of the extents that it
 * is the first to mark (mark.c, btree.c).  Here the sums are made, names are found, and the tables
 * are listed that a worker may vacuum.  See README.md, "Dead keys".
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "core/catalog.h"
#include "gc/gc_internal.h"
#include "utils/builtins.h"
#include "utils/rel.h"

/* May autovacuum vacuum this table, indexes included, as far as the table's own options say? */
static bool
may_vacuum(Relation relation)
{
	StdRdOptions *options = (StdRdOptions *) relation->rd_options;

	if (relation->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		return false;
	return options == NULL ||
		(options->autovacuum.enabled &&
		 options->vacuum_index_cleanup != STDRD_OPTION_VACUUM_INDEX_CLEANUP_OFF);
}

void
blob_gc_keys_note(BlobGcRound *round)
{
	BlobGcRoot *root = round->root;
	Relation	relation = round->relation;

	if (root->kind == RELKIND_INDEX)
	{
		root->table = relation->rd_index->indrelid;
		root->is_exclusion = relation->rd_index->indisexclusion;
	}
	else
		root->may_vacuum = may_vacuum(relation);
}

/* Empty if it is gone. */
static void
put_name(char *name, Oid relid)
{
	char	   *relation = blob_catalog_relation_name(relid);

	if (relation != NULL)
		strlcpy(name, relation, BLOB_GC_NAME_BYTES);
}

void
blob_gc_keys_report(BlobGcRound *round)
{
	const BlobGcRoot *dead = NULL;
	const BlobGcRoot *high = NULL;
	BlobGcKeys	keys;

	memset(&keys, 0, sizeof(keys));
	keys.is_known = true;
	for (int i = 0; i < round->roots->count; i++)
	{
		const BlobGcRoot *root = &round->roots->items[i];

		keys.dead_bytes += root->dead_key_pages * BLOB_PAGE_SIZE;
		keys.high_bytes += root->high_key_pages * BLOB_PAGE_SIZE;
		if (root->dead_key_pages > (dead == NULL ? 0 : dead->dead_key_pages))
			dead = root;
		if (root->high_key_pages > (high == NULL ? 0 : high->high_key_pages))
			high = root;
	}
	if (dead != NULL)
	{
		put_name(keys.dead_index, dead->relid);
		put_name(keys.dead_table, dead->table);
	}
	if (high != NULL)
	{
		put_name(keys.high_index, high->relid);
		keys.high_is_exclusion = high->is_exclusion;
	}
	blob_gc_status_keys(&keys);
}

/* ---- tables that VACUUM would help ---- */

/* The table's entry in the list, if it is there and may be vacuumed. */
static const BlobGcRoot *
find_table(const BlobGcRoots *roots, Oid table)
{
	const BlobGcRoot *root = bsearch(&table, roots->items, roots->count, sizeof(BlobGcRoot),
									 oid_cmp);

	return root != NULL && root->may_vacuum ? root : NULL;
}

static int
compare_bytes(const void *a, const void *b)
{
	uint64		left = ((const BlobGcDeadKeys *) a)->bytes;
	uint64		right = ((const BlobGcDeadKeys *) b)->bytes;

	return left > right ? -1 : left < right;
}

int
blob_gc_keys_tables(BlobGcRound *round, BlobGcDeadKeys *tables)
{
	const BlobGcRoots *roots = round->roots;
	BlobGcDeadKeys *all = palloc(sizeof(BlobGcDeadKeys) * Max(roots->count, 1));
	int			index_count = 0;
	int			count = 0;

	for (int i = 0; i < roots->count; i++)
	{
		const BlobGcRoot *root = &roots->items[i];

		if (root->dead_key_pages == 0 || find_table(roots, root->table) == NULL)
			continue;
		all[index_count].table = root->table;
		all[index_count++].bytes = root->dead_key_pages * BLOB_PAGE_SIZE;
	}

	/* Indexes of one table are added up. */
	qsort(all, index_count, sizeof(BlobGcDeadKeys), oid_cmp);
	for (int i = 0; i < index_count; i++)
	{
		if (count > 0 && all[count - 1].table == all[i].table)
			all[count - 1].bytes += all[i].bytes;
		else
			all[count++] = all[i];
	}
	qsort(all, count, sizeof(BlobGcDeadKeys), compare_bytes);
	count = Min(count, BLOB_GC_DEAD_KEY_TABLES);
	memcpy(tables, all, sizeof(BlobGcDeadKeys) * count);
	pfree(all);
	return count;
}
