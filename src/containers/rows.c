/*
 * containers/rows.c
 *	  The columns of a table's row that can hold values, see containers/rows.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "containers/rows.h"
#include "containers/sound.h"
#include "containers/walk.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * The problem with the lengths of a row of a heap, or NULL.  Nothing else keeps a reader within its
 * bytes; other access methods give values that they have taken apart.
 */
static char *
find_bad_length(Relation relation, TupleTableSlot *slot)
{
	HeapTuple	tuple;
	Page		page;

	if (!TTS_IS_BUFFERTUPLE(slot))
		return NULL;
	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	page = BufferGetPage(((BufferHeapTupleTableSlot *) slot)->buffer);
	if ((char *) tuple->t_data + tuple->t_len > (char *) page + BLCKSZ)
		return pstrdup("its line pointer leaves the page");
	return blob_sound_row(tuple->t_data, tuple->t_len, RelationGetDescr(relation));
}

char *
blob_rows_visit(Relation relation, TupleTableSlot *slot, BlobRowsVisitor visit, void *context)
{
	TupleDesc	row_type = RelationGetDescr(relation);
	char	   *problem = find_bad_length(relation, slot);

	if (problem != NULL)
		return problem;
	slot_getallattrs(slot);
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		if (!slot->tts_isnull[i] && !column->attisdropped &&
			blob_walk_type_holds(column->atttypid))
			visit(column, slot->tts_values[i], context);
	}
	return NULL;
}
