/*
 * autogc/scrub_confirm.c
 *	  Which suspect pages belong to a value that a row has, see autogc/scrub_confirm.h.
 *
 * That needs all rows, but suspects are rare: damage, and what crashed or aborted transactions left
 * until the collector comes.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "autogc/scrub_confirm.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/used_pages.h"
#include "catalog/pg_class.h"
#include "containers/rows.h"
#include "containers/walk.h"
#include "core/attempt.h"
#include "core/compat.h"
#include "extents/damaged_pages.h"
#include "extents/file_pages.h"
#include "gc/roots.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

typedef struct Confirmation
{
	const BlobStoreId *store;
	BlobScrubSuspect *suspects; /* sorted by the first pages of their extents */
	int			count;
	Oid			relid;			/* the table */

	/* Where we are in the table. */
	Relation	relation;
	MemoryContext row_context;	/* reset for each row */
	const char *column;
} Confirmation;

static int
compare_suspects(const void *a, const void *b)
{
	const BlobScrubSuspect *left = a;
	const BlobScrubSuspect *right = b;

	if (left->extent.first_page != right->extent.first_page)
		return left->extent.first_page < right->extent.first_page ? -1 : 1;
	return left->page_no < right->page_no ? -1 : left->page_no > right->page_no;
}

/* The first suspect of the extent that begins at this page; its number, or count. */
static int
find_suspect(const Confirmation *confirmation, BlobPageNo first_page)
{
	int			low = 0;
	int			high = confirmation->count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (confirmation->suspects[middle].extent.first_page < first_page)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Put a page into the list of damaged ones, with the place of the value that we are at. */
static void
note_damage(const Confirmation *confirmation, const BlobScrubSuspect *suspect)
{
	BlobDamagedPage damaged = {
		.store = *confirmation->store,
		.extent = suspect->extent,
		.page = suspect->extent.first_page + suspect->page_no
	};
	char	   *schema = get_namespace_name(RelationGetNamespace(confirmation->relation));
	char	   *name = RelationGetRelationName(confirmation->relation);

	blob_damaged_page_note(&damaged.store, &damaged.extent, damaged.page, BLOB_DAMAGE_SCRUB);
	if (schema != NULL)
		blob_damaged_page_name(&damaged, quote_qualified_identifier(schema, name),
							   confirmation->column);
}

/*
 * Whether a suspect page cannot be read for a value of this generation.  Waits for the map as long
 * as lock_timeout says.
 */
static bool
is_damaged(const Confirmation *confirmation, const BlobExtent *extent, BlobGeneration generation,
		   uint64 page_no)
{
	BlobStore	store;
	bool		result;

	blob_store_open(&store, AccessShareLock);
	result = blob_store_id_equals(&store.id, confirmation->store) &&
		blob_file_page_is_damaged(&store, extent, generation, page_no);
	blob_store_close(&store);
	return result;
}

/*
 * An extent of a value that a row has: are suspect pages of it among the value's bytes?  used:
 * those of a tree, if its directory can be read; otherwise all count.
 */
static void
see_extent(Confirmation *confirmation, const BlobStoredExtent *stored, BlobGeneration generation,
		   const BlobUsedPages *used)
{
	uint64		first_no = stored->start / BLOB_PAGE_SIZE;

	for (int i = find_suspect(confirmation, stored->extent.first_page);
		 i < confirmation->count &&
		 confirmation->suspects[i].extent.first_page == stored->extent.first_page; i++)
	{
		BlobScrubSuspect *suspect = &confirmation->suspects[i];

		if (suspect->is_damaged || suspect->page_no >= blob_pages_for(stored->bytes) ||
			(used != NULL && !blob_used_pages_have(used, first_no + suspect->page_no)) ||
			!is_damaged(confirmation, &stored->extent, generation, suspect->page_no))
			continue;
		suspect->is_damaged = true;
		note_damage(confirmation, suspect);
	}
}

/* Whether an extent of a value has suspect pages. */
static bool
has_suspects(const Confirmation *confirmation, const BlobDescriptor *descriptor)
{
	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
	{
		BlobPageNo	first_page = blob_descriptor_extent(descriptor, i).first_page;
		int			no = find_suspect(confirmation, first_page);

		if (no < confirmation->count &&
			confirmation->suspects[no].extent.first_page == first_page)
			return true;
	}
	return false;
}

typedef struct UsedPages
{
	const BlobValue *value;
	BlobUsedPages pages;
} UsedPages;

/* A BlobAttemptStep: the pages that a tree uses. */
static void
list_used(void *context)
{
	UsedPages  *used = context;
	BlobReader	reader;
	BlobMappingSource source;

	blob_reader_begin(&reader, used->value, 0);
	source = blob_reader_source(&reader);
	blob_used_pages_list(&used->value->descriptor, &source, &used->pages);
	blob_reader_end(&reader);
}

/* The same; false if its directory cannot be read. */
static bool
try_list_used(UsedPages *used)
{
	ErrorData  *error = blob_attempt(list_used, used);

	if (error != NULL && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);
	return error == NULL;
}

/* A BlobWalkVisitor. */
static void
see_value(Datum datum, void *context)
{
	Confirmation *confirmation = context;
	uint64		start = 0;
	BlobValue	value;
	UsedPages	listed = {.value = &value};
	const BlobUsedPages *used = NULL;
	int			count;

	if (blob_datum_is_inline(datum))
		return;
	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), &value);
	if (value.is_inline)
		return;
	if (!has_suspects(confirmation, &value.descriptor))
		return;
	if (value.descriptor.is_tree && try_list_used(&listed))
		used = &listed.pages;
	count = blob_descriptor_extent_count(&value.descriptor);
	for (int i = 0; i < count; i++)
	{
		BlobStoredExtent stored;

		blob_mapping_extent(&value.descriptor, i, start, &stored);
		start = stored.start + stored.bytes;
		see_extent(confirmation, &stored, value.descriptor.generation, used);
	}
}

/* A BlobRowsVisitor: all values of a column. */
static void
see_column(Form_pg_attribute column, Datum datum, void *context)
{
	Confirmation *confirmation = context;

	confirmation->column = NameStr(column->attname);
	blob_walk_datum(datum, column->atttypid, see_value, confirmation);
}

/* A BlobAttemptStep: all rows that are committed now. */
static void
see_table(void *context)
{
	Confirmation *confirmation = context;
	Relation	relation = try_relation_open(confirmation->relid, NoLock);
	TupleTableSlot *slot;
	TableScanDesc scan;
	Snapshot	snapshot;

	if (relation == NULL)
		return;					/* dropped */
	confirmation->relation = relation;
	slot = table_slot_create(relation, NULL);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = blob_table_beginscan(relation, snapshot);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old_context = MemoryContextSwitchTo(confirmation->row_context);

		CHECK_FOR_INTERRUPTS();
		/* Rows that are damaged themselves are left out: blobext_check() is for these. */
		(void) blob_rows_visit(relation, slot, see_column, confirmation);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(confirmation->row_context);
	}
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	relation_close(relation, NoLock);
}

/*
 * One table, in a transaction of its own.  False if its lock, or the map's, cannot be had.  Errors
 * that its rows cause are logged, and the rest of the table is left out; a cancel is thrown.
 */
static bool
confirm_table(Confirmation *confirmation)
{
	ErrorData  *error;
	bool		is_locked;

	StartTransactionCommand();
	is_locked = ConditionalLockRelationOid(confirmation->relid, AccessShareLock);
	if (is_locked)
	{
		confirmation->row_context = AllocSetContextCreate(CurrentMemoryContext,
														  "blobext scrubber row",
														  ALLOCSET_DEFAULT_SIZES);
		error = blob_attempt(see_table, confirmation);
		if (error != NULL &&
			ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
			ReThrowError(error);
		if (error != NULL && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
			is_locked = false;
		else if (error != NULL)
			ereport(LOG,
					(errmsg("blobext scrubber cannot read relation %u: %s", confirmation->relid,
							error->message)));
	}
	CommitTransactionCommand();
	return is_locked;
}

/* The tables that can have values; false if they are not known. */
static bool
list_tables(MemoryContext context, List **tables)
{
	BlobGcRoots *roots;
	MemoryContext old_context;

	*tables = NIL;
	StartTransactionCommand();
	roots = blob_gc_list_roots(CurrentMemoryContext);
	if (roots->snapshot == NULL)
	{
		CommitTransactionCommand();
		return false;
	}
	old_context = MemoryContextSwitchTo(context);
	for (int i = 0; i < roots->count; i++)
	{
		if (roots->items[i].is_scanned && roots->items[i].kind != RELKIND_INDEX)
			*tables = lappend_oid(*tables, roots->items[i].relid);
	}
	MemoryContextSwitchTo(old_context);
	CommitTransactionCommand();
	return true;
}

bool
blob_scrub_confirm(const BlobStoreId *store, BlobScrubSuspect *suspects, int count)
{
	Confirmation confirmation = {.store = store, .suspects = suspects, .count = count};
	List	   *tables;
	ListCell   *cell;
	bool		is_whole = list_tables(CurrentMemoryContext, &tables);

	qsort(suspects, count, sizeof(BlobScrubSuspect), compare_suspects);
	foreach(cell, tables)
	{
		confirmation.relid = lfirst_oid(cell);
		if (!confirm_table(&confirmation))
			is_whole = false;
	}
	list_free(tables);
	return is_whole;
}
