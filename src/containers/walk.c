/*
 * containers/walk.c
 *	  Finds blobstate values inside of other values, see containers/walk.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "containers/sound.h"
#include "containers/walk.h"
#include "core/catalog.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/multirangetypes.h"
#include "utils/rangetypes.h"
#include "utils/typcache.h"

static bool
row_reaches(TupleDesc row_type, Oid inner)
{
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		if (!column->attisdropped && blob_walk_type_reaches(column->atttypid, inner))
			return true;
	}
	return false;
}

static bool
row_type_reaches(Oid type, Oid inner)
{
	TupleDesc	row_type = lookup_rowtype_tupdesc(type, -1);
	bool		reaches = row_reaches(row_type, inner);

	ReleaseTupleDesc(row_type);
	return reaches;
}

bool
blob_walk_type_reaches(Oid type, Oid inner)
{
	Oid			element;

	check_stack_depth();
	if (type == inner)
		return OidIsValid(type);

	element = get_element_type(type);
	if (OidIsValid(element))
		return blob_walk_type_reaches(element, inner);
	switch (get_typtype(type))
	{
		case TYPTYPE_DOMAIN:
			return blob_walk_type_reaches(getBaseType(type), inner);
		case TYPTYPE_COMPOSITE:
			return row_type_reaches(type, inner);
		case TYPTYPE_RANGE:
			return blob_walk_type_reaches(get_range_subtype(type), inner);
		case TYPTYPE_MULTIRANGE:
			return blob_walk_type_reaches(get_multirange_range(type), inner);
		default:
			return false;
	}
}

bool
blob_walk_row_holds(TupleDesc row_type)
{
	return row_reaches(row_type, blob_catalog_type());
}

bool
blob_walk_type_holds(Oid type)
{
	return blob_walk_type_reaches(type, blob_catalog_type());
}

/* Nothing is taken apart whose lengths lead out of it. */
static void
require_sound(const char *problem)
{
	if (problem != NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg_internal("%s", problem)));
}

/* Visit the blobstate values in the elements of an array, those of nested types included. */
static void
walk_array(Datum datum, Oid element, BlobWalkVisitor visit, void *context)
{
	ArrayType  *array = DatumGetArrayTypeP(datum);
	int16		length;
	bool		by_value;
	char		alignment;
	Datum	   *values;
	bool	   *nulls;
	int			count;

	get_typlenbyvalalign(element, &length, &by_value, &alignment);
	require_sound(blob_sound_array(array, length, alignment));
	deconstruct_array(array, element, length, by_value, alignment, &values, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		if (!nulls[i])
			blob_walk_datum(values[i], element, visit, context);
	}
}

/*
 * Visit those in the columns of a row.  Its own type is in its header: a column of type record can
 * hold any.
 */
static void
walk_row(Datum datum, BlobWalkVisitor visit, void *context)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(datum);
	HeapTupleData tuple = {
		.t_len = HeapTupleHeaderGetDatumLength(header),
		.t_tableOid = InvalidOid,
		.t_data = header
	};
	TupleDesc	row_type;
	Datum	   *values;
	bool	   *nulls;

	if (tuple.t_len < SizeofHeapTupleHeader)
		require_sound("a row is shorter than its header");
	row_type = lookup_rowtype_tupdesc_copy(HeapTupleHeaderGetTypeId(header),
										   HeapTupleHeaderGetTypMod(header));
	require_sound(blob_sound_row(header, tuple.t_len, row_type));
	values = palloc(sizeof(Datum) * row_type->natts);
	nulls = palloc(sizeof(bool) * row_type->natts);
	ItemPointerSetInvalid(&tuple.t_self);
	heap_deform_tuple(&tuple, row_type, values, nulls);
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		if (!nulls[i] && !column->attisdropped && blob_walk_type_holds(column->atttypid))
			blob_walk_datum(values[i], column->atttypid, visit, context);
	}
}

static void
walk_range(RangeType *range, TypeCacheEntry *type, BlobWalkVisitor visit, void *context)
{
	RangeBound	lower;
	RangeBound	upper;
	bool		is_empty;

	require_sound(blob_sound_range(range, type));
	range_deserialize(type, range, &lower, &upper, &is_empty);
	if (!is_empty && !lower.infinite)
		blob_walk_datum(lower.val, type->rngelemtype->type_id, visit, context);
	if (!is_empty && !upper.infinite)
		blob_walk_datum(upper.val, type->rngelemtype->type_id, visit, context);
}

static void
walk_multirange(Datum datum, Oid type_id, BlobWalkVisitor visit, void *context)
{
	MultirangeType *multirange = DatumGetMultirangeTypeP(datum);
	TypeCacheEntry *type = lookup_type_cache(type_id, TYPECACHE_MULTIRANGE_INFO);
	RangeType **ranges;
	int32		count;

	require_sound(blob_sound_multirange(multirange, type));
	multirange_deserialize(type->rngtype, multirange, &count, &ranges);
	for (int i = 0; i < count; i++)
		walk_range(ranges[i], type->rngtype, visit, context);
}

void
blob_walk_datum(Datum datum, Oid type, BlobWalkVisitor visit, void *context)
{
	Oid			element;

	check_stack_depth();
	if (type == blob_catalog_type())
	{
		visit(datum, context);
		return;
	}
	element = get_element_type(type);
	if (OidIsValid(element))
	{
		walk_array(datum, element, visit, context);
		return;
	}
	switch (get_typtype(type))
	{
		case TYPTYPE_DOMAIN:
			blob_walk_datum(datum, getBaseType(type), visit, context);
			break;
		case TYPTYPE_COMPOSITE:
			walk_row(datum, visit, context);
			break;
		case TYPTYPE_RANGE:
			walk_range(DatumGetRangeTypeP(datum),
					   lookup_type_cache(type, TYPECACHE_RANGE_INFO), visit, context);
			break;
		case TYPTYPE_MULTIRANGE:
			walk_multirange(datum, type, visit, context);
			break;
		default:
			break;
	}
}
