/*
 * gc/mark.c
 *	  The mark set: one bit for each page, set for the first pages of extents that are referred to;
 *	  and another one for what rows refer to that are kept though they were deleted.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "containers/walk.h"
#include "core/descriptor.h"
#include "gc/gc_internal.h"
#include "gc/notes.h"
#include "gc/temporary.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

static uint8 *
make_bits(BlobGcRound *round)
{
	Size		bytes = (round->marks.end_page - round->marks.first_page) / 8 + 1;

	return MemoryContextAllocExtended(round->context, bytes, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

void
blob_gc_marks_begin(BlobGcRound *round, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobGcMarks *marks = &round->marks;

	marks->first_page = first_page;
	marks->end_page = end_page;
	marks->bits = make_bits(round);
	marks->kept_bits = NULL;
	blob_gc_told_mark(round);
}

void
blob_gc_marks_end(BlobGcRound *round)
{
	pfree(round->marks.bits);
	round->marks.bits = NULL;
	if (round->marks.kept_bits != NULL)
		pfree(round->marks.kept_bits);
	round->marks.kept_bits = NULL;
}

static bool
is_set(const BlobGcMarks *marks, const uint8 *bits, BlobPageNo first_page)
{
	uint64		bit = first_page - marks->first_page;

	Assert(first_page >= marks->first_page && first_page < marks->end_page);
	return (bits[bit / 8] >> (bit % 8) & 1) != 0;
}

bool
blob_gc_is_marked(const BlobGcMarks *marks, BlobPageNo first_page)
{
	return is_set(marks, marks->bits, first_page) ||
		(marks->kept_bits != NULL && is_set(marks, marks->kept_bits, first_page));
}

bool
blob_gc_is_kept(const BlobGcMarks *marks, BlobPageNo first_page)
{
	return marks->kept_bits != NULL && is_set(marks, marks->kept_bits, first_page) &&
		!is_set(marks, marks->bits, first_page);
}

#ifdef USE_ASSERT_CHECKING

/* A page whose note is taken refers to nothing that the note does not name. */
static void
assert_noted(const BlobGcRound *round, BlobPageNo first_page)
{
	bool		is_noted = round->note == NULL;

	for (uint32 i = 0; !is_noted && i < round->note->count; i++)
		is_noted = round->note->references[i] == first_page;
	Assert(is_noted);
}

#else
#define assert_noted(round, first_page) ((void) 0)
#endif							/* USE_ASSERT_CHECKING */

/*
 * An extent is known by its first page.  A reference whose extent was freed and given to another
 * value (only dead tuples have such) marks the extent that is there now, or nothing: that keeps too
 * much, for a round.  generation: of the value; a new value may be in a row that was not seen.  The
 * key of a row that is kept is no other reference: it goes after the row.
 */
static void
mark_extent(BlobGcRound *round, const BlobExtent *extent, BlobGeneration generation)
{
	BlobGcMarks *marks = &round->marks;
	uint64		bit = extent->first_page - marks->first_page;
	uint8	   *bits = marks->bits;

	blob_gc_notes_add(round->notes, extent->first_page);
	assert_noted(round, extent->first_page);
	if (extent->first_page < marks->first_page || extent->first_page >= marks->end_page)
		return;
	if (round->key_pages != NULL && blob_gc_is_kept(marks, extent->first_page))
		return;
	if (round->key_pages != NULL && generation <= round->cutoff &&
		!blob_gc_is_marked(marks, extent->first_page))
		*round->key_pages += extent->pages;
	if (round->is_kept)
	{
		if (marks->kept_bits == NULL)
			marks->kept_bits = make_bits(round);
		bits = marks->kept_bits;
	}
	bits[bit / 8] |= 1 << (bit % 8);
}

void
blob_gc_mark_noted(BlobGcRound *round, const BlobGcNote *note)
{
	BlobGcMarks *marks = &round->marks;

	round->refers |= note->count > 0;
	for (uint32 i = 0; i < note->count; i++)
	{
		BlobPageNo	first_page = note->references[i];
		uint64		bit = first_page - marks->first_page;

		if (first_page >= marks->first_page && first_page < marks->end_page)
			marks->bits[bit / 8] |= 1 << (bit % 8);
	}
}

/* Mark the extents of one value.  An inline value is recognised without fetching it from TOAST. */
static void
mark_value(Datum datum, void *context)
{
	BlobGcRound *round = context;
	BlobValue	value;
	int			count;

	if (blob_datum_is_inline(datum))
		return;
	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), &value);
	if (value.is_inline)
		return;
	count = blob_descriptor_extent_count(&value.descriptor);
	round->refers |= count > 0;
	for (int i = 0; i < count; i++)
	{
		BlobExtent	extent = blob_descriptor_extent(&value.descriptor, i);

		mark_extent(round, &extent, value.descriptor.generation);
	}
}

/* A container is fetched whole: for an owner its pages of TOAST count as read. */
static void
count_fetched(BlobGcRound *round, Datum container)
{
	struct varlena *stored = (struct varlena *) DatumGetPointer(container);
	struct varatt_external pointer;

	if (!VARATT_IS_EXTERNAL_ONDISK(stored))
		return;
	VARATT_EXTERNAL_GET_POINTER(pointer, stored);
	round->answer_pages += VARATT_EXTERNAL_GET_EXTSIZE(pointer) / BLCKSZ;
}

void
blob_gc_mark(BlobGcRound *round, Datum datum, Oid type)
{
	if (type == round->blob_type)
	{
		mark_value(datum, round);
		return;
	}
	count_fetched(round, datum);
	blob_walk_datum(datum, type, mark_value, round);
}

/*
 * Damaged lengths and TOAST; types that damaged bytes name; what the bytes of another type look
 * like, where a column was added, rolled back, and another one has its number now.
 */
bool
blob_gc_is_content_error(int sqlstate)
{
	switch (sqlstate)
	{
		case ERRCODE_DATA_CORRUPTED:
		case ERRCODE_INTERNAL_ERROR:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_WRONG_OBJECT_TYPE:
		case ERRCODE_FEATURE_NOT_SUPPORTED:
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
			return true;
		default:
			return false;
	}
}

void
blob_gc_report_damage(BlobGcRound *round, ItemPointer place, const char *problem)
{
	Relation	relation = round->relation;
	bool		is_index = relation->rd_index != NULL;
	char	   *schema = get_namespace_name(RelationGetNamespace(relation));

	ereport(ERROR,
			(errcode(is_index ? ERRCODE_INDEX_CORRUPTED : ERRCODE_DATA_CORRUPTED),
			 errmsg("%s (%u,%u) of %s cannot be read: %s", is_index ? "key" : "row",
					ItemPointerGetBlockNumberNoCheck(place),
					ItemPointerGetOffsetNumberNoCheck(place),
					quote_qualified_identifier(schema, RelationGetRelationName(relation)),
					problem),
			 errdetail("Values that it refers to are not known, so nothing is freed in this "
					   "database."),
			 is_index ? errhint("Please REINDEX the index.") :
			 errhint("blobext_check() lists what cannot be read.")));
}
