/*
 * containers/sound.c
 *	  Whether tuples and containers are laid out within their own bytes, see containers/sound.h.
 *
 * Offsets are computed as PostgreSQL computes them when it takes the same bytes apart
 * (nocachegetattr(), heap_deform_tuple(), deconstruct_array(), range_deserialize()), but nothing is
 * read before it is known to lie within.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/tupmacs.h"
#include "containers/sound.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Bytes in which values lie one behind the other. */
typedef struct Span
{
	const char *at;
	const char *end;
} Span;

/* ---- values ---- */

static Size
room_of(const Span *span)
{
	return span->at < span->end ? span->end - span->at : 0;
}

/* A pointer to TOAST is the only one that may be stored; others are addresses in memory. */
static bool
is_external_sound(const Span *span)
{
	struct varatt_external toast;
	uint32		stored;

	if (room_of(span) < VARHDRSZ_EXTERNAL + sizeof(toast) ||
		VARTAG_1B_E(span->at) != VARTAG_ONDISK)
		return false;
	memcpy(&toast, VARDATA_1B_E(span->at), sizeof(toast));
	if (toast.va_rawsize < (int32) VARHDRSZ)
		return false;
	stored = VARATT_EXTERNAL_GET_EXTSIZE(toast);
	if (stored >= (uint32) toast.va_rawsize - VARHDRSZ)
		return stored <= MaxAllocSize;	/* not compressed */
	return stored >= VARHDRSZ_COMPRESSED - VARHDRSZ;
}

static bool
is_varlena_sound(const Span *span, char alignment)
{
	Size		room = room_of(span);
	const char *at = span->at;

	if (room == 0)
		return false;
	if (VARATT_IS_1B_E(at))
		return is_external_sound(span);
	if (VARATT_IS_1B(at))
		return VARSIZE_1B(at) <= room;
	if (room < VARHDRSZ || (uintptr_t) at != att_align_nominal((uintptr_t) at, alignment))
		return false;
	return VARSIZE_4B(at) <= room &&
		VARSIZE_4B(at) >= (VARATT_IS_4B_C(at) ? VARHDRSZ_COMPRESSED : VARHDRSZ);
}

/* Step over a value that begins here; false if it does not end within the span. */
static bool
skip_value(Span *span, int16 length, char alignment)
{
	const char *end;

	if (length > 0)
	{
		if (room_of(span) < (Size) length)
			return false;
		span->at += length;
		return true;
	}
	if (length == -1)
	{
		if (!is_varlena_sound(span, alignment))
			return false;
		span->at += VARSIZE_ANY(span->at);
		return true;
	}
	end = memchr(span->at, '\0', room_of(span));
	if (end == NULL)
		return false;
	span->at = end + 1;
	return true;
}

/* Step to where the next value begins: a short one is not aligned. */
static bool
align_packed(Span *span, int16 length, char alignment)
{
	if (room_of(span) == 0)
		return false;
	span->at = (const char *) att_align_pointer((uintptr_t) span->at, alignment, length, span->at);
	return true;
}

/* The n-th bit says whether the n-th value is there; NULL: all are. */
static bool
is_there(const uint8 *bits, int n)
{
	return bits == NULL || !att_isnull(n, bits);
}

/*
 * The first count attributes of a row.  knows_lengths: whether the header says that values of
 * variable length are there; without that PostgreSQL would not look for them.
 */
static char *
check_attributes(Span span, const uint8 *bits, TupleDesc row_type, int count, bool knows_lengths)
{
	for (int i = 0; i < count; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		if (!is_there(bits, i))
			continue;
		if (!align_packed(&span, column->attlen, column->attalign) ||
			!skip_value(&span, column->attlen, column->attalign))
			return psprintf("attribute %d does not end within the row", i + 1);
		if (column->attlen < 0 && !knows_lengths)
			return pstrdup("its header is wrong about attributes of variable length");
	}
	return NULL;
}

/* ---- pages ---- */

char *
blob_sound_page(Page page)
{
	PageHeader	header = (PageHeader) page;

	if (header->pd_lower < SizeOfPageHeaderData || header->pd_lower > header->pd_upper ||
		header->pd_upper > header->pd_special || header->pd_special > BLCKSZ)
		return pstrdup("the page's header is damaged");
	return NULL;
}

char *
blob_sound_btree_page(Page page)
{
	PageHeader	header = (PageHeader) page;

	if (header->pd_special != BLCKSZ - MAXALIGN(sizeof(BTPageOpaqueData)))
		return pstrdup("the page has no special space of a B-tree");
	return blob_sound_page(page);
}

char *
blob_sound_line(Page page, ItemId item, Size minimum)
{
	Size		offset = ItemIdGetOffset(item);
	Size		length = ItemIdGetLength(item);

	if (offset < SizeOfPageHeaderData || offset != MAXALIGN(offset) ||
		offset + length > ((PageHeader) page)->pd_special)
		return pstrdup("its line pointer leaves the page");
	return length < minimum ? pstrdup("it is shorter than its header") : NULL;
}

/* ---- tuples ---- */

char *
blob_sound_row(HeapTupleHeader header, Size length, TupleDesc row_type)
{
	const uint8 *bits = NULL;
	Size		header_bytes = SizeofHeapTupleHeader;
	int			count;
	Span		span;

	if (length < SizeofHeapTupleHeader)
		return pstrdup("it is shorter than its header");
	count = HeapTupleHeaderGetNatts(header);
	if ((header->t_infomask & HEAP_HASNULL) != 0)
	{
		header_bytes += BITMAPLEN(count);
		bits = header->t_bits;
	}
	if (header->t_hoff != MAXALIGN(header_bytes) || header->t_hoff > length)
		return pstrdup("its header has a wrong length");
	span.at = (const char *) header + header->t_hoff;
	span.end = (const char *) header + length;
	return check_attributes(span, bits, row_type, Min(count, row_type->natts),
							(header->t_infomask & HEAP_HASVARWIDTH) != 0);
}

char *
blob_sound_key(IndexTuple tuple, Size length, Relation index)
{
	Size		header_bytes;
	int			count;
	Span		span;

	if (length < sizeof(IndexTupleData))
		return pstrdup("it is shorter than its header");
	header_bytes = IndexInfoFindDataOffset(tuple->t_info);
	if (IndexTupleSize(tuple) != length || header_bytes > length)
		return pstrdup("its header has a wrong length");
	count = BTreeTupleGetNAtts(tuple, index);
	if (count > RelationGetDescr(index)->natts)
		return pstrdup("it has more attributes than the index");
	span.at = (const char *) tuple + header_bytes;
	span.end = (const char *) tuple + length;
	if (BTreeTupleIsPosting(tuple))
	{
		if (BTreeTupleGetPostingOffset(tuple) > length)
			return pstrdup("its list of rows begins behind it");
		span.end = (const char *) tuple + BTreeTupleGetPostingOffset(tuple);
	}
	return check_attributes(span, !IndexTupleHasNulls(tuple) ? NULL :
							(uint8 *) ((char *) tuple + sizeof(IndexTupleData)),
							RelationGetDescr(index), count, IndexTupleHasVarwidths(tuple));
}

/* ---- containers ---- */

/* The number of elements, or -1. */
static int64
count_elements(ArrayType *array)
{
	int64		count = 1;

	for (int i = 0; i < ARR_NDIM(array); i++)
	{
		if (ARR_DIMS(array)[i] < 0)
			return -1;
		count *= ARR_DIMS(array)[i];
		if (count > (int64) MaxArraySize)
			return -1;
	}
	return ARR_NDIM(array) == 0 ? 0 : count;
}

char *
blob_sound_array_header(ArrayType *array)
{
	Size		length = VARSIZE(array);
	int64		count;
	Size		begin;

	if (length < sizeof(ArrayType) || ARR_NDIM(array) < 0 || ARR_NDIM(array) > MAXDIM ||
		length < ARR_OVERHEAD_NONULLS(ARR_NDIM(array)))
		return pstrdup("an array's header is damaged");
	count = count_elements(array);
	if (count < 0)
		return pstrdup("an array has impossible dimensions");
	begin = ARR_OVERHEAD_WITHNULLS(ARR_NDIM(array), count);
	if (ARR_HASNULL(array) && ((Size) array->dataoffset != begin || begin > length))
		return pstrdup("an array's elements begin in the wrong place");
	return NULL;
}

char *
blob_sound_array(ArrayType *array, int16 element_length, char element_alignment)
{
	char	   *problem = blob_sound_array_header(array);
	int64		count;
	Span		span;

	if (problem != NULL)
		return problem;
	count = count_elements(array);
	span.at = (char *) array +
		(ARR_HASNULL(array) ? (Size) array->dataoffset : ARR_OVERHEAD_NONULLS(ARR_NDIM(array)));
	span.end = (char *) array + VARSIZE(array);
	for (int64 i = 0; i < count; i++)
	{
		if (!is_there(ARR_NULLBITMAP(array), i))
			continue;
		if (!skip_value(&span, element_length, element_alignment))
			return psprintf("element " INT64_FORMAT " of an array does not end within it", i + 1);
		span.at = (const char *) att_align_nominal((uintptr_t) span.at, element_alignment);
	}
	return NULL;
}

/* The bounds of a range, by its flags. */
static bool
skip_bounds(Span *span, uint8 flags, TypeCacheEntry *element)
{
	if (RANGE_HAS_LBOUND(flags) && !skip_value(span, element->typlen, element->typalign))
		return false;
	return !RANGE_HAS_UBOUND(flags) ||
		(align_packed(span, element->typlen, element->typalign) &&
		 skip_value(span, element->typlen, element->typalign));
}

char *
blob_sound_range(RangeType *range, TypeCacheEntry *type)
{
	Size		length = VARSIZE(range);
	Span		span;

	if (length < sizeof(RangeType) + sizeof(char) || RangeTypeGetOid(range) != type->type_id)
		return pstrdup("a range's header is damaged");
	span.at = (const char *) (range + 1);
	span.end = (const char *) range + length - sizeof(char);	/* flags */
	if (!skip_bounds(&span, (uint8) *span.end, type->rngelemtype))
		return pstrdup("a bound does not end within its range");
	return NULL;
}

/*
 * Behind the header are the lengths or offsets of the bounds of all ranges but the first, the flags
 * of all, and the bounds (multirangetypes.c).
 */
char *
blob_sound_multirange(MultirangeType *multirange, TypeCacheEntry *type)
{
	TypeCacheEntry *element = type->rngtype->rngelemtype;
	Size		length = VARSIZE(multirange);
	const char *end = (const char *) multirange + length;
	uint64		count;
	uint64		offset = 0;
	const uint32 *items = (const uint32 *) (multirange + 1);
	const uint8 *flags;
	const char *bounds;

	if (length < sizeof(MultirangeType))
		return pstrdup("a multirange's header is damaged");
	count = multirange->rangeCount;
	if (count == 0)
		return NULL;
	if (sizeof(MultirangeType) + (count - 1) * sizeof(uint32) + count > length)
		return pstrdup("a multirange has more ranges than room for them");
	flags = (const uint8 *) (items + count - 1);
	bounds = (const char *) multirange +
		att_align_nominal(sizeof(MultirangeType) + (count - 1) * sizeof(uint32) + count,
						  element->typalign);
	for (uint64 i = 0; i < count; i++)
	{
		Span		span = {.end = end};

		if (i > 0)
			offset = (items[i - 1] & 0x7fffffff) +
				((items[i - 1] & 0x80000000) != 0 ? 0 : offset);
		if (offset > length)
			return pstrdup("a range begins behind its multirange");
		span.at = bounds + offset;
		if (!skip_bounds(&span, flags[i], element))
			return pstrdup("a range does not end within its multirange");
	}
	return NULL;
}
