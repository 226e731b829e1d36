/*
 * sql/maintenance/damaged_values.c
 *	  Which of the listed damaged pages a value has, see sql/maintenance/damaged_values.h.
 */
#include "postgres.h"

#include "blob/mapping.h"
#include "miscadmin.h"
#include "sql/maintenance/damaged_values.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

static int
compare_pages(const void *a, const void *b)
{
	const BlobDamagedPage *left = &((const BlobRepairPage *) a)->listed;
	const BlobDamagedPage *right = &((const BlobRepairPage *) b)->listed;

	if (left->extent.first_page != right->extent.first_page)
		return left->extent.first_page < right->extent.first_page ? -1 : 1;
	return left->page < right->page ? -1 : left->page > right->page;
}

void
blob_repair_sort_pages(BlobRepair *repair)
{
	qsort(repair->pages, repair->page_count, sizeof(BlobRepairPage), compare_pages);
}

/* The first page whose extent begins at a page or behind it. */
static int
find_first(const BlobRepair *repair, BlobPageNo first_page)
{
	int			low = 0;
	int			high = repair->page_count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (repair->pages[middle].listed.extent.first_page < first_page)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void
blob_repair_visit_pages(BlobRepair *repair, const BlobDescriptor *descriptor,
						BlobRepairPageVisitor visit, void *context)
{
	uint64		start = 0;

	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
	{
		BlobStoredExtent stored;
		BlobPageNo	first_page;

		blob_mapping_extent(descriptor, i, start, &stored);
		first_page = stored.extent.first_page;
		for (int no = find_first(repair, first_page);
			 no < repair->page_count &&
			 repair->pages[no].listed.extent.first_page == first_page; no++)
		{
			BlobRepairPage *page = &repair->pages[no];

			if (page->listed.extent.generation <= descriptor->generation &&
				page->listed.page < first_page + blob_pages_for(stored.bytes))
				visit(page, context);
		}
		start += stored.bytes;
	}
}

/* ---- names ---- */

typedef struct ValueName
{
	Relation	relation;
	const char *column;
} ValueName;

/* A BlobRepairPageVisitor. */
static void
name_page(BlobRepairPage *page, void *context)
{
	ValueName  *name = context;
	char	   *schema;

	if (page->is_named)
		return;
	schema = get_namespace_name(RelationGetNamespace(name->relation));
	blob_damaged_page_name(&page->listed,
						   quote_qualified_identifier(schema,
													  RelationGetRelationName(name->relation)),
						   name->column);
	page->is_named = true;
}

void
blob_repair_name_pages(BlobRepair *repair, const BlobDescriptor *descriptor, Relation relation,
					   const char *column)
{
	ValueName	name = {relation, column};

	blob_repair_visit_pages(repair, descriptor, name_page, &name);
}

void
blob_damaged_values_name(const BlobDescriptor *descriptor, Relation relation, const char *column)
{
	BlobDamagedPage *listed;
	BlobRepair	all = {.page_count = blob_damaged_pages_get(MyDatabaseId, &listed)};

	all.pages = palloc0(sizeof(BlobRepairPage) * Max(all.page_count, 1));
	for (int i = 0; i < all.page_count; i++)
	{
		all.pages[i].listed = listed[i];
		all.pages[i].is_named = listed[i].relation[0] != '\0';
	}
	blob_repair_sort_pages(&all);
	blob_repair_name_pages(&all, descriptor, relation, column);
	pfree(all.pages);
	pfree(listed);
}
