/*
 * sql/operators/analyze.c
 *	  ANALYZE of blobstate columns.
 *
 * pg_statistic must not refer to extents, which may be gone when the planner looks, and content of
 * extents is not read.  So statistics hold inline copies: most common values only of those that
 * are inline in the table and small; a histogram of such values, or else of the first 32 bytes.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "blob/seal.h"
#include "catalog/pg_statistic.h"
#include "commands/vacuum.h"
#include "fmgr.h"
#include "parser/parse_oper.h"

#include "core/compat.h"
#include "sql/operators/sample.h"

PG_FUNCTION_INFO_V1(blobstate_typanalyze);

/* Larger inline values are not stored in pg_statistic: the limit that bytea has, too. */
#define MAX_STORED_BYTES 1024

/* Larger inline values are not detoasted and hashed, and count as distinct. */
#define MAX_HASHED_BYTES 8192

/* Rows of the sample for each entry of the histogram, as PostgreSQL takes them. */
#define ROWS_PER_ENTRY 300

#define PLACE_BYTES 2

typedef struct AnalyzeState
{
	Oid			equal_operator;
	Oid			less_operator;
	int			target;			/* entries of each list */
} AnalyzeState;

static int
statistics_target(VacAttrStats *stats)
{
	if (blob_analyze_target(stats) < 0)
		blob_analyze_target(stats) = default_statistics_target;
	return blob_analyze_target(stats);
}

/* The value, or the start of an inline one that is too wide to be looked at. */
static struct varlena *
detoast(Datum datum, Size raw_bytes)
{
	struct varlena *data;

	if (raw_bytes <= MAX_HASHED_BYTES)
		return PG_DETOAST_DATUM_PACKED(datum);
	data = PG_DETOAST_DATUM_SLICE(datum, 0, BLOB_FORM_BYTES + BLOB_PREFIX_BYTES);
	if (*(uint8 *) VARDATA_ANY(data) == BLOB_FORM_INLINE_V1)
		return data;
	return PG_DETOAST_DATUM_PACKED(datum);
}

/* A value of the sample; content points into the datum, or into a copy that stays. */
static void
fill_item(BlobSampleItem *item, Datum datum)
{
	Size		raw_bytes = toast_raw_datum_size(datum) - VARHDRSZ;
	struct varlena *data = detoast(datum, raw_bytes);
	BlobValue	value;

	blob_value_unpack(data, &value);
	item->content = NULL;
	item->is_wide = value.is_inline && raw_bytes > MAX_HASHED_BYTES;
	item->size_bytes = item->is_wide ? raw_bytes - BLOB_FORM_BYTES : value.size_bytes;
	if (!item->is_wide && !blob_seal_known_digest(&value, item->sha256))
		blob_descriptor_identity(&value.descriptor, item->sha256);
	item->prefix_bytes = (int) Min(item->size_bytes, BLOB_PREFIX_BYTES);
	memcpy(item->prefix, blob_value_prefix(&value), item->prefix_bytes);

	if (value.is_inline && item->size_bytes <= MAX_STORED_BYTES)
		item->content = value.inline_data;
	else if ((Pointer) data != DatumGetPointer(datum))
		pfree(data);
}

/* Returns the mean width of the datums in the rows: descriptor, inline value or TOAST pointer. */
static double
collect_sample(VacAttrStats *stats, AnalyzeAttrFetchFunc fetch, BlobSample *sample)
{
	double		total_bytes = 0;

	sample->items = MemoryContextAllocHuge(CurrentMemoryContext,
										   sizeof(BlobSampleItem) * Max(sample->row_count, 1));
	for (int row_no = 0; row_no < sample->row_count; row_no++)
	{
		bool		isnull;
		Datum		datum;

		blob_analyze_delay_point();
		datum = fetch(stats, row_no, &isnull);
		if (isnull)
			continue;
		total_bytes += VARSIZE_ANY(DatumGetPointer(datum));
		fill_item(&sample->items[sample->item_count], datum);
		sample->items[sample->item_count].row_no = sample->item_count;
		sample->item_count++;
	}
	return sample->item_count > 0 ? total_bytes / sample->item_count : 0;
}

/* An inline value, in the memory of the results. */
static Datum
make_value(VacAttrStats *stats, const void *data, int data_bytes, int place)
{
	MemoryContext previous = MemoryContextSwitchTo(stats->anl_context);
	int			place_bytes = place < 0 ? 0 : PLACE_BYTES;
	struct varlena *value = blob_inline_make(data_bytes + place_bytes);
	char	   *content = blob_inline_content(value);

	MemoryContextSwitchTo(previous);
	memcpy(content, data, data_bytes);
	if (place >= 0)
	{
		content[data_bytes] = (char) (place >> 8);
		content[data_bytes + 1] = (char) place;
	}
	return PointerGetDatum(value);
}

static void
fill_slot(VacAttrStats *stats, int slot, int16 kind, Oid operator_oid)
{
	stats->stakind[slot] = kind;
	stats->staop[slot] = operator_oid;
	stats->stacoll[slot] = stats->attrcollid;
}

/* Most common values into this slot; returns the next one. */
static int
store_common(VacAttrStats *stats, int slot, const BlobSample *sample,
			 const BlobSampleGroup *groups, int count)
{
	const AnalyzeState *state = stats->extra_data;

	if (count == 0)
		return slot;
	fill_slot(stats, slot, STATISTIC_KIND_MCV, state->equal_operator);
	stats->stavalues[slot] = MemoryContextAlloc(stats->anl_context, sizeof(Datum) * count);
	stats->stanumbers[slot] = MemoryContextAlloc(stats->anl_context, sizeof(float4) * count);
	for (int i = 0; i < count; i++)
	{
		const BlobSampleItem *item = &sample->items[groups[i].first];

		stats->stavalues[slot][i] = make_value(stats, item->content, (int) item->size_bytes, -1);
		stats->stanumbers[slot][i] = (float4) groups[i].count / sample->row_count;
	}
	stats->numvalues[slot] = count;
	stats->numnumbers[slot] = count;
	return slot + 1;
}

static int
store_histogram(VacAttrStats *stats, int slot, const BlobSample *sample, BlobSampleGroup *common,
				int common_count)
{
	const AnalyzeState *state = stats->extra_data;
	BlobSampleBound *bounds = palloc(sizeof(BlobSampleBound) * (state->target + 1));
	int			count = blob_sample_histogram(sample, common, common_count, state->target, bounds);

	if (count == 0)
		return slot;
	fill_slot(stats, slot, STATISTIC_KIND_HISTOGRAM, state->less_operator);
	stats->stavalues[slot] = MemoryContextAlloc(stats->anl_context, sizeof(Datum) * count);
	for (int i = 0; i < count; i++)
		stats->stavalues[slot][i] = make_value(stats, bounds[i].data, bounds[i].data_bytes,
											   bounds[i].place);
	stats->numvalues[slot] = count;
	return slot + 1;
}

static void
store_correlation(VacAttrStats *stats, int slot, const BlobSample *sample)
{
	const AnalyzeState *state = stats->extra_data;

	if (sample->item_count < 2)
		return;
	fill_slot(stats, slot, STATISTIC_KIND_CORRELATION, state->less_operator);
	stats->stanumbers[slot] = MemoryContextAlloc(stats->anl_context, sizeof(float4));
	stats->stanumbers[slot][0] = (float4) blob_sample_correlation(sample);
	stats->numnumbers[slot] = 1;
}

/*
 * The compute_stats callback: fraction of nulls, width, distinct values, and where the type has its
 * operators most common values, histogram and correlation.
 */
static void
compute_statistics(VacAttrStatsP stats, AnalyzeAttrFetchFunc fetch, int row_count,
				   double table_row_count)
{
	const AnalyzeState *state = stats->extra_data;
	BlobSample	sample = {.row_count = row_count, .table_row_count = table_row_count};
	double		width_bytes = collect_sample(stats, fetch, &sample);
	BlobSampleGroup *common;
	int			common_count;
	int			slot = 0;

	if (row_count == 0)
		return;
	stats->stats_valid = true;
	stats->stanullfrac = 1.0 - (double) sample.item_count / row_count;
	stats->stawidth = (int32) width_bytes;
	stats->stadistinct = 0;		/* unknown */
	if (sample.item_count == 0)
		return;

	blob_sample_sort(&sample);
	stats->stadistinct = blob_sample_distinct(&sample);
	if (!OidIsValid(state->equal_operator) || !OidIsValid(state->less_operator))
		return;

	common = palloc(sizeof(BlobSampleGroup) * Max(state->target, 1));
	common_count = blob_sample_common(&sample, stats->stadistinct, state->target, common);
	slot = store_common(stats, slot, &sample, common, common_count);
	slot = store_histogram(stats, slot, &sample, common, common_count);
	store_correlation(stats, slot, &sample);
}

/* blobstate_typanalyze(internal): the type's ANALYZE function; also that of domains over it. */
Datum
blobstate_typanalyze(PG_FUNCTION_ARGS)
{
	VacAttrStats *stats = (VacAttrStats *) PG_GETARG_POINTER(0);
	AnalyzeState *state = palloc(sizeof(AnalyzeState));

	state->target = statistics_target(stats);
	get_sort_group_operators(stats->attrtypid, false, false, false, &state->less_operator,
							 &state->equal_operator, NULL, NULL);
	stats->extra_data = state;
	stats->compute_stats = compute_statistics;
	stats->minrows = ROWS_PER_ENTRY * state->target;
	PG_RETURN_BOOL(true);
}
