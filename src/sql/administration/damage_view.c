/*
 * sql/administration/damage_view.c
 *	  View blobext_damaged_pages: pages of content that do not have their checksum.
 */
#include "postgres.h"

#include "extents/damaged_pages.h"
#include "extents/layout.h"
#include "fmgr.h"
#include "funcapi.h"
#include "io/segment.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blobext_damage_state);

#define COLUMN_COUNT 14

/*
 * Text of another database may be of another encoding: then it is null, as text that is not there.
 * A text that was cut ends in a whole character.
 */
static void
put_text(const char *text, Datum *value, bool *is_null)
{
	int			length = (int) strlen(text);

	*is_null = length == 0 || !pg_verifymbstr(text, length, true);
	if (!*is_null)
		*value = CStringGetTextDatum(text);
}

/* Rows (datid, and the columns of the view but the first one). */
Datum
blobext_damage_state(PG_FUNCTION_ARGS)
{
	static const char *const finders[] = {"read", "scrub", "check"};
	static const char *const states[] = {"found", "repairing", "repaired", "right", "failed"};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	BlobDamagedPage *pages;
	int			count;

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	count = blob_damaged_pages_get(InvalidOid, &pages);
	for (int i = 0; i < count; i++)
	{
		const BlobDamagedPage *page = &pages[i];
		Datum		values[COLUMN_COUNT] = {ObjectIdGetDatum(page->store.dboid)};
		bool		nulls[COLUMN_COUNT] = {false};
		char		path[MAXPGPATH];

		blob_segment_path(path, sizeof(path), &page->store, blob_segment_of(page->page));
		values[1] = CStringGetTextDatum(path);
		values[2] = Int64GetDatum((int64) blob_layout_file_offset(page->page));
		values[3] = Int64GetDatum((int64) page->page);
		put_text(page->relation, &values[4], &nulls[4]);
		put_text(page->column, &values[5], &nulls[5]);
		values[6] = CStringGetTextDatum(finders[page->found_by]);
		values[7] = TimestampTzGetDatum(page->first_found);
		values[8] = TimestampTzGetDatum(page->last_found);
		values[9] = Int64GetDatum((int64) page->count);
		values[10] = CStringGetTextDatum(states[page->state]);
		values[11] = Int32GetDatum((int32) page->attempts);
		values[12] = TimestampTzGetDatum(page->attempted_at);
		nulls[12] = page->attempted_at == 0;
		put_text(page->error, &values[13], &nulls[13]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
