/*
 * unit_catalog.c
 *	  Looks into stored values, catalogs included, for descriptors.  SQL cannot: every way out of a
 *	  column of type anyarray is the type's output function, which gives content.
 */
#include "unit.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "containers/walk.h"
#include "core/catalog.h"
#include "core/descriptor.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "statistics/extended_stats_internal.h"
#include "statistics/statistics.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(unit_stored_values);

typedef struct Counts
{
	int64		values;
	int64		descriptors;
} Counts;

static void count_datum(Datum datum, Oid type, Counts *counts);

static void
count_value(Datum datum, void *context)
{
	Counts	   *counts = context;
	BlobValue	value;

	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), &value);
	counts->values++;
	if (!value.is_inline)
		counts->descriptors++;
}

/* The element type is the array's own: a column of type anyarray has arrays of any. */
static void
count_array(Datum datum, Counts *counts)
{
	ArrayType  *array = DatumGetArrayTypeP(datum);
	int16		length;
	bool		by_value;
	char		alignment;
	Datum	   *values;
	bool	   *nulls;
	int			count;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &by_value, &alignment);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, by_value, alignment, &values, &nulls,
					  &count);
	for (int i = 0; i < count; i++)
	{
		if (!nulls[i])
			count_datum(values[i], ARR_ELEMTYPE(array), counts);
	}
}

static void
count_tuple(HeapTuple tuple, TupleDesc row_type, Counts *counts)
{
	Datum	   *values = palloc(sizeof(Datum) * row_type->natts);
	bool	   *nulls = palloc(sizeof(bool) * row_type->natts);

	heap_deform_tuple(tuple, row_type, values, nulls);
	for (int i = 0; i < row_type->natts; i++)
	{
		if (!nulls[i] && !TupleDescAttr(row_type, i)->attisdropped)
			count_datum(values[i], TupleDescAttr(row_type, i)->atttypid, counts);
	}
}

/* Statistics of expressions: rows of pg_statistic. */
static void
count_statistic_row(Datum datum, Counts *counts)
{
	Relation	statistic = table_open(StatisticRelationId, AccessShareLock);
	HeapTupleHeader header = DatumGetHeapTupleHeader(datum);
	HeapTupleData tuple = {
		.t_len = HeapTupleHeaderGetDatumLength(header),
		.t_data = header
	};

	count_tuple(&tuple, RelationGetDescr(statistic), counts);
	table_close(statistic, AccessShareLock);
}

static void
count_mcv_list(Datum datum, Counts *counts)
{
	MCVList    *list = statext_mcv_deserialize(DatumGetByteaP(datum));

	for (uint32 i = 0; i < list->nitems; i++)
	{
		for (int dimension = 0; dimension < list->ndimensions; dimension++)
		{
			if (!list->items[i].isnull[dimension])
				count_datum(list->items[i].values[dimension], list->types[dimension], counts);
		}
	}
}

/* Constants of an expression, of a query, or of a partition bound. */
static bool
count_node(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Const) && !((Const *) node)->constisnull)
		count_datum(((Const *) node)->constvalue, ((Const *) node)->consttype, context);
	else if (IsA(node, PartitionRangeDatum))
		return count_node(((PartitionRangeDatum *) node)->value, context);
	else if (IsA(node, PartitionBoundSpec))
	{
		PartitionBoundSpec *bound = (PartitionBoundSpec *) node;
		ListCell   *lc;

		foreach(lc, bound->listdatums)
			count_node(lfirst(lc), context);
		foreach(lc, bound->lowerdatums)
			count_node(lfirst(lc), context);
		foreach(lc, bound->upperdatums)
			count_node(lfirst(lc), context);
		return false;
	}
	else if (IsA(node, Query))
		return query_tree_walker((Query *) node, count_node, context, 0);
	return expression_tree_walker(node, count_node, context);
}

static void
count_datum(Datum datum, Oid type, Counts *counts)
{
	if (type == ANYARRAYOID || (OidIsValid(get_element_type(type)) &&
								get_element_type(type) == get_rel_type_id(StatisticRelationId)))
		count_array(datum, counts);
	else if (type == get_rel_type_id(StatisticRelationId))
		count_statistic_row(datum, counts);
	else if (type == PG_MCV_LISTOID)
		count_mcv_list(datum, counts);
	else if (type == PG_NODE_TREEOID)
		count_node(stringToNode(TextDatumGetCString(datum)), counts);
	else if (blob_walk_type_holds(type))
		blob_walk_datum(datum, type, count_value, counts);
}

/*
 * unit_stored_values(relation regclass, only_descriptors bool): blobstate values that are stored in
 * the rows of a relation, inside of any type.
 */
Datum
unit_stored_values(PG_FUNCTION_ARGS)
{
	Relation	relation = table_open(PG_GETARG_OID(0), AccessShareLock);
	SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, GetActiveSnapshot(), 0,
										  NULL);
	Counts		counts = {0, 0};
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		count_tuple(tuple, RelationGetDescr(relation), &counts);
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	PG_RETURN_INT64(PG_GETARG_BOOL(1) ? counts.descriptors : counts.values);
}
