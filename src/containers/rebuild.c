/*
 * containers/rebuild.c
 *	  Makes values anew with the blobstate values inside of them replaced, see containers/rebuild.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "containers/rebuild.h"
#include "containers/walk.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/multirangetypes.h"
#include "utils/rangetypes.h"
#include "utils/typcache.h"

/* Rebuild a member in place.  Returns whether it was replaced. */
static bool
rebuild_member(Datum *datum, Oid type, BlobReplacer replace, void *context)
{
	Datum		before = *datum;

	*datum = blob_rebuild(before, type, replace, context);
	return *datum != before;
}

/* Rebuild an array, whose dimensions and bounds stay; the same datum if all elements are kept. */
static Datum
rebuild_array(Datum datum, Oid element, BlobReplacer replace, void *context)
{
	ArrayType  *array = DatumGetArrayTypeP(datum);
	bool		replaced = false;
	int16		length;
	bool		by_value;
	char		alignment;
	Datum	   *values;
	bool	   *nulls;
	int			count;

	get_typlenbyvalalign(element, &length, &by_value, &alignment);
	deconstruct_array(array, element, length, by_value, alignment, &values, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		if (!nulls[i] && rebuild_member(&values[i], element, replace, context))
			replaced = true;
	}
	if (!replaced)
		return datum;
	return PointerGetDatum(construct_md_array(values, nulls, ARR_NDIM(array), ARR_DIMS(array),
											  ARR_LBOUND(array), element, length, by_value,
											  alignment));
}

/* Rebuild a row.  As in containers/walk.c, the row's own type is in its header. */
static Datum
rebuild_row(Datum datum, BlobReplacer replace, void *context)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(datum);
	TupleDesc	row_type = lookup_rowtype_tupdesc_copy(HeapTupleHeaderGetTypeId(header),
													   HeapTupleHeaderGetTypMod(header));
	HeapTupleData tuple = {
		.t_len = HeapTupleHeaderGetDatumLength(header),
		.t_tableOid = InvalidOid,
		.t_data = header
	};
	Datum	   *values = palloc(sizeof(Datum) * row_type->natts);
	bool	   *nulls = palloc(sizeof(bool) * row_type->natts);
	bool		replaced = false;

	ItemPointerSetInvalid(&tuple.t_self);
	heap_deform_tuple(&tuple, row_type, values, nulls);
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		if (!nulls[i] && !column->attisdropped && blob_walk_type_holds(column->atttypid) &&
			rebuild_member(&values[i], column->atttypid, replace, context))
			replaced = true;
	}
	return replaced ? HeapTupleGetDatum(heap_form_tuple(row_type, values, nulls)) : datum;
}

/* Rebuild a range from its finite bounds; the same range if both are kept. */
static RangeType *
rebuild_range(RangeType *range, BlobReplacer replace, void *context)
{
	TypeCacheEntry *type = lookup_type_cache(RangeTypeGetOid(range), TYPECACHE_RANGE_INFO);
	Oid			element = type->rngelemtype->type_id;
	bool		replaced = false;
	RangeBound	lower;
	RangeBound	upper;
	bool		is_empty;

	range_deserialize(type, range, &lower, &upper, &is_empty);
	if (is_empty)
		return range;
	if (!lower.infinite && rebuild_member(&lower.val, element, replace, context))
		replaced = true;
	if (!upper.infinite && rebuild_member(&upper.val, element, replace, context))
		replaced = true;
	return replaced ? blob_range_serialize(type, &lower, &upper, false) : range;
}

/*
 * Rebuild a multirange range by range; the same datum if all are kept.  make_multirange() compares
 * the new ranges.
 */
static Datum
rebuild_multirange(Datum datum, BlobReplacer replace, void *context)
{
	MultirangeType *multirange = DatumGetMultirangeTypeP(datum);
	Oid			type_oid = MultirangeTypeGetOid(multirange);
	TypeCacheEntry *type = lookup_type_cache(type_oid, TYPECACHE_MULTIRANGE_INFO);
	bool		replaced = false;
	RangeType **ranges;
	int32		count;

	multirange_deserialize(type->rngtype, multirange, &count, &ranges);
	for (int i = 0; i < count; i++)
	{
		RangeType  *range = rebuild_range(ranges[i], replace, context);

		if (range != ranges[i])
			replaced = true;
		ranges[i] = range;
	}
	if (!replaced)
		return datum;
	return MultirangeTypePGetDatum(make_multirange(type_oid, type->rngtype, count, ranges));
}

Datum
blob_rebuild(Datum datum, Oid type, BlobReplacer replace, void *context)
{
	Oid			element;
	RangeType  *range;
	RangeType  *new_range;

	check_stack_depth();
	if (type == blob_catalog_type())
		return replace(datum, context);
	element = get_element_type(type);
	if (OidIsValid(element))
		return rebuild_array(datum, element, replace, context);
	switch (get_typtype(type))
	{
		case TYPTYPE_DOMAIN:
			return blob_rebuild(datum, getBaseType(type), replace, context);
		case TYPTYPE_COMPOSITE:
			return rebuild_row(datum, replace, context);
		case TYPTYPE_RANGE:
			range = DatumGetRangeTypeP(datum);
			new_range = rebuild_range(range, replace, context);
			return new_range == range ? datum : RangeTypePGetDatum(new_range);
		case TYPTYPE_MULTIRANGE:
			return rebuild_multirange(datum, replace, context);
		default:
			return datum;
	}
}
