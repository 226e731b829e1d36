/*
 * gc/scan.c
 *	  Opens the relations of the list one by one, and marks what they refer to: step 8 of README.md.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "containers/walk.h"
#include "gc/gc_internal.h"
#include "gc/methods.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

uint64
blob_gc_list_columns(BlobGcRound *round)
{
	TupleDesc	row_type = RelationGetDescr(round->relation);
	uint64		hash = 0;

	round->columns = MemoryContextAlloc(round->context, sizeof(BlobGcColumn) * row_type->natts);
	round->column_count = 0;
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		hash += blob_gc_hash_column(column->attnum, column->atttypid, column->attisdropped);
		if (column->attisdropped || !blob_walk_type_holds(column->atttypid))
			continue;
		round->columns[round->column_count].number = column->attnum;
		round->columns[round->column_count].type = column->atttypid;
		round->column_count++;
	}
	return hash;
}

/*
 * Whether the relation is still what the list says; lists its columns.  Its routine counts, not
 * what the handler has returned for the list: the pages are read as heap's.
 */
static bool
matches_root(BlobGcRound *round, const BlobGcRoot *root)
{
	return blob_gc_list_columns(round) == root->columns &&
		round->relation->rd_rel->relfilenode == root->file &&
		round->relation->rd_rel->reltablespace == root->tablespace &&
		(root->kind == RELKIND_INDEX || blob_gc_is_heap(round->relation->rd_tableam)) &&
		(round->relation->rd_index == NULL || round->relation->rd_index->indisready);
}

/* A key that outlives its row goes with VACUUM of the table. */
static Oid
table_of(const BlobGcRoot *root)
{
	return root->kind == RELKIND_INDEX ? root->table : root->relid;
}

/*
 * The list says which file and columns there were; other ones mean that the relation was
 * changed since, and values may have moved past the scan.
 */
static bool
mark_root(BlobGcRound *round, BlobGcRoot *root)
{
	LOCKMODE	mode = root->kind == RELKIND_INDEX ? AccessShareLock : RowExclusiveLock;
	bool		done;

	if (!blob_gc_lock_relation(round, root->relid, mode))
		return false;
	round->lock_mode = mode;
	round->root = root;
	round->refers = false;
	round->relation = try_relation_open(root->relid, NoLock);
	if (round->relation == NULL)
	{
		UnlockRelationOid(root->relid, mode);
		return blob_gc_skip_now(round, "relation %u was dropped meanwhile", root->relid);
	}
	blob_gc_status_show("blobext: marking %s.%s",
						get_namespace_name(RelationGetNamespace(round->relation)),
						RelationGetRelationName(round->relation));
	if (!matches_root(round, root))
		done = blob_gc_skip_now(round, "relation \"%s\" was changed meanwhile",
								RelationGetRelationName(round->relation));
	else
	{
		blob_gc_keys_note(round);
		done = root->kind == RELKIND_INDEX ? blob_gc_mark_btree(round) :
			blob_gc_mark_heap(round);
		if (round->refers)
			blob_gc_referring_add(&round->result->referring, table_of(root));
	}
	relation_close(round->relation, mode);
	round->relation = NULL;
	pfree(round->columns);
	blob_gc_status_relation_done();
	return done;
}

/* Indexes, or all the others. */
static bool
mark_kind(BlobGcRound *round, bool indexes)
{
	for (int i = 0; i < round->roots->count; i++)
	{
		BlobGcRoot *root = &round->roots->items[i];

		if (root->is_scanned && (root->kind == RELKIND_INDEX) == indexes &&
			!mark_root(round, root))
			return false;
	}
	return true;
}

/* Indexes last: what they mark first is held by keys alone. */
bool
blob_gc_mark_roots(BlobGcRound *round)
{
	blob_gc_status_phase(BLOB_GC_MARKING);
	for (int i = 0; i < round->roots->count; i++)
	{
		if (round->roots->items[i].is_scanned)
			blob_gc_status_totals(1, round->roots->items[i].pages);
	}
	return mark_kind(round, false) && blob_gc_mark_catalogs(round) && mark_kind(round, true);
}
