/*
 * sql/maintenance/repair_search.c
 *	  Which values have damaged pages, see sql/maintenance/repair_search.h.
 *
 * The walk is that of blobext_check(), and reads no content.  It goes at autovacuum's pace.
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/process.h"
#include "commands/vacuum.h"
#include "core/compat.h"
#include "miscadmin.h"
#include "sql/maintenance/check.h"
#include "sql/maintenance/progress.h"
#include "sql/maintenance/repair_search.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/*
 * Values that are tried for a page.  One may fail for the sake of another page; but a role that
 * stores many values which share an extent must not make the worker read all of them.
 */
#define VALUES_PER_PAGE 4

/* A BlobRepairPageVisitor: whether a page has too few values. */
static void
want_value(BlobRepairPage *page, void *context)
{
	*(bool *) context |= page->value_count < VALUES_PER_PAGE;
}

/* A BlobRepairPageVisitor. */
static void
count_value(BlobRepairPage *page, void *context)
{
	page->value_count++;
}

/* Whether two values have the same content in the same extents, as a copy has, or a key. */
static bool
is_copy(const BlobDescriptor *left, const BlobDescriptor *right)
{
	uint8		identities[2][BLOB_DIGEST_BYTES];

	blob_descriptor_identity(left, identities[0]);
	blob_descriptor_identity(right, identities[1]);
	if (memcmp(identities[0], identities[1], BLOB_DIGEST_BYTES) != 0 ||
		left->is_tree != right->is_tree)
		return false;
	if (left->is_tree)
		return left->slot_count == right->slot_count &&
			memcmp(left->slots, right->slots, BLOB_SLOT_BYTES * left->slot_count) == 0 &&
			left->compression.root_offset == right->compression.root_offset;
	return left->tier_extent_count == right->tier_extent_count &&
		memcmp(left->extent_starts, right->extent_starts,
			   BLOB_EXTENT_START_BYTES * left->tier_extent_count) == 0 &&
		left->has_tail == right->has_tail &&
		(!left->has_tail || left->tail_first_page == right->tail_first_page) &&
		left->has_remainder_page == right->has_remainder_page &&
		(!left->has_remainder_page || left->remainder_page == right->remainder_page);
}

static bool
is_known(const BlobRepair *repair, const BlobDescriptor *descriptor)
{
	ListCell   *cell;

	foreach(cell, repair->values)
	{
		if (is_copy(&((const BlobValue *) lfirst(cell))->descriptor, descriptor))
			return true;
	}
	return false;
}

/* A BlobCheckVisitor. */
static void
visit_value(BlobCheck *check, const BlobValue *value, Relation relation, const char *column)
{
	BlobRepair *repair = check->visit_context;
	bool		is_wanted = false;
	MemoryContext old_context;
	BlobValue  *kept;

	blob_repair_name_pages(repair, &value->descriptor, relation, column);
	blob_repair_visit_pages(repair, &value->descriptor, want_value, &is_wanted);
	if (!is_wanted || is_known(repair, &value->descriptor))
		return;
	old_context = MemoryContextSwitchTo(repair->context);
	kept = palloc(sizeof(BlobValue));
	blob_value_unpack(blob_descriptor_copy(&value->descriptor), kept);
	repair->values = lappend(repair->values, kept);
	MemoryContextSwitchTo(old_context);
	blob_repair_visit_pages(repair, &value->descriptor, count_value, NULL);
}

/* In a transaction of its own. */
static void
search_table(BlobRepair *repair, Oid relid)
{
	BlobCheck	check = {.visit = visit_value, .visit_context = repair};

	StartTransactionCommand();
	check.row_context = AllocSetContextCreate(CurrentMemoryContext, "blobext repair row",
											  ALLOCSET_DEFAULT_SIZES);
	if (ConditionalLockRelationOid(relid, AccessShareLock))
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		blob_check_safely(&check, blob_check_relation, relid);
		PopActiveSnapshot();
	}
	else
		repair->locked_count++;
	CommitTransactionCommand();
}

static List *
list_tables(MemoryContext context)
{
	MemoryContext old_context;
	List	   *tables;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	old_context = MemoryContextSwitchTo(context);
	tables = blob_check_list_relations();
	MemoryContextSwitchTo(old_context);
	PopActiveSnapshot();
	CommitTransactionCommand();
	return tables;
}

void
blob_repair_search(BlobRepair *repair)
{
	List	   *tables = list_tables(repair->context);
	ListCell   *cell;

	blob_progress_begin(BLOB_PROGRESS_CHECK);
	blob_progress_set(BLOB_CHECK_RELATIONS_TOTAL, list_length(tables));
	blob_autogc_process_take_autovacuum_pace();
	blob_begin_pace();
	PG_TRY();
	{
		foreach(cell, tables)
		{
			search_table(repair, lfirst_oid(cell));
			blob_progress_add(BLOB_CHECK_RELATIONS_DONE, 1);
		}
	}
	PG_FINALLY();
	{
		VacuumCostActive = false;
		blob_progress_end();
	}
	PG_END_TRY();
}
