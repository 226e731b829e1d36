/*
 * sql/maintenance/fragmentation.c
 *	  blob_footprint(), blobext_fragmentation(): how values lie in the store, and which of them
 *	  blobext_defragment() would write anew.
 *
 * One statement with the rights of the caller.  It reads rows and directories of compressed values,
 * and no content; what does not fit into work_mem goes to temporary files.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "blob/footprint.h"
#include "catalog/pg_type.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/fragmentation.h"
#include "sql/value.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blob_footprint_sql);
PG_FUNCTION_INFO_V1(blobext_fragmentation);

#define NAME "blobext_fragmentation()"

/* ---- one value ---- */

#define FOOTPRINT_COLUMNS 5

typedef struct Measurement
{
	BlobValue	value;
	BlobFootprint footprint;
} Measurement;

/* A BlobAttemptStep: what the datum says is there also after an error. */
static void
measure(void *argument)
{
	Measurement *measurement = argument;

	blob_footprint(&measurement->value, &measurement->footprint);
}

/* Measure a value; false if its directory cannot be read, so that others can be. */
static bool
try_measure(Measurement *measurement)
{
	ErrorData  *error;

	if (measurement->value.is_inline || !measurement->value.descriptor.is_compressed)
	{
		measure(measurement);
		return true;
	}
	error = blob_attempt(measure, measurement);
	if (error != NULL && !blob_batch_is_of_value(error->sqlerrcode))
		ReThrowError(error);
	return error == NULL;
}

/*
 * blob_footprint(blobstate): (value_id, runs, natural_runs, extent_bytes, dead_bytes).  value_id is
 * a hash of the datum.
 */
Datum
blob_footprint_sql(PG_FUNCTION_ARGS)
{
	struct varlena *datum = PG_DETOAST_DATUM_PACKED(PG_GETARG_DATUM(0));
	Measurement measurement;
	const BlobFootprint *footprint = &measurement.footprint;
	Datum		values[FOOTPRINT_COLUMNS];
	bool		nulls[FOOTPRINT_COLUMNS] = {0};
	TupleDesc	row_type;

	if (get_call_result_type(fcinfo, NULL, &row_type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	blob_value_unpack(datum, &measurement.value);
	nulls[2] = nulls[4] = !try_measure(&measurement);
	values[0] = UInt64GetDatum(blob_column_hash_datum(datum));
	values[1] = Int64GetDatum((int64) footprint->runs);
	values[2] = Int64GetDatum((int64) footprint->natural_runs);
	values[3] = Int64GetDatum((int64) (footprint->pages * BLOB_PAGE_SIZE));
	values[4] = Int64GetDatum((int64) (blob_footprint_dead_pages(footprint) * BLOB_PAGE_SIZE));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row_type), values, nulls)));
}

/* ---- a column ---- */

BlobFragmentationRule
blob_fragmentation_get_rule(FunctionCallInfo fcinfo, int first, const char *function)
{
	BlobFragmentationRule rule;

	if (PG_ARGISNULL(first) || PG_ARGISNULL(first + 1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("arguments of %s must not be null", function)));
	rule.max_dead_ratio = PG_GETARG_FLOAT8(first);
	rule.max_extra_runs = PG_GETARG_INT32(first + 1);
	if (!(rule.max_dead_ratio >= 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_dead_ratio must be at least 0"),
				 errdetail("It is the share of dead bytes, of the live ones, that a value may "
						   "have.")));
	if (rule.max_extra_runs < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_extra_runs must be at least 0"),
				 errdetail("It is how many runs a value may have besides one for each started "
						   "megabyte.")));
	return rule;
}

void
blob_fragmentation_types(Oid types[2])
{
	types[0] = FLOAT8OID;
	types[1] = INT4OID;
}

void
blob_fragmentation_values(const BlobFragmentationRule *rule, Datum values[2])
{
	values[0] = Float8GetDatum(rule->max_dead_ratio);
	values[1] = Int32GetDatum(rule->max_extra_runs);
}

/*
 * All names are qualified.  An extent is shared if data that are not the same have it; copies of
 * one datum have the same value_id.
 */
char *
blob_fragmentation_query(const BlobColumn *column)
{
	char	   *value = psprintf("%s::%s", column->column, blob_catalog_type_name());
	StringInfoData query;

	initStringInfo(&query);
	appendStringInfo(&query, "WITH value AS MATERIALIZED (SELECT r.part, r.tid, r.b, f.value_id, "
					 "f.runs, f.natural_runs, f.extent_bytes, f.dead_bytes, "
					 "%s(r.b) AS content_bytes FROM (SELECT tableoid AS part, ctid AS tid, "
					 "%s AS b FROM %s WHERE %s(%s) OPERATOR(pg_catalog.=) "
					 "'extents'::pg_catalog.text) AS r, LATERAL %s(r.b) AS f), ",
					 blob_catalog_function_name(BLOB_FUNCTION_LENGTH), value, column->table,
					 blob_catalog_function_name(BLOB_FUNCTION_STORAGE), value,
					 blob_catalog_function_name(BLOB_FUNCTION_FOOTPRINT));
	appendStringInfo(&query, "extent AS MATERIALIZED (SELECT DISTINCT v.part, v.value_id, "
					 "e.first_page, e.pages FROM value AS v, LATERAL %s(v.b) AS e "
					 "WHERE e.first_page IS NOT NULL), ",
					 blob_catalog_function_name(BLOB_FUNCTION_EXTENTS));
	appendStringInfoString(&query, "shared AS MATERIALIZED (SELECT DISTINCT value_id FROM extent "
						   "WHERE first_page OPERATOR(pg_catalog.=) ANY (SELECT first_page "
						   "FROM extent GROUP BY first_page "
						   "HAVING pg_catalog.count(DISTINCT value_id) "
						   "OPERATOR(pg_catalog.>) 1::pg_catalog.int8)), ");
	appendStringInfoString(&query, "judged AS (SELECT v.part, v.tid, v.value_id, v.content_bytes, "
						   "v.runs, v.natural_runs, v.dead_bytes, "
						   "s.value_id IS NOT NULL AS is_shared, "
						   "CASE WHEN v.dead_bytes IS NULL THEN NULL "
						   "WHEN s.value_id IS NOT NULL THEN false ELSE "
						   "v.dead_bytes::pg_catalog.float8 OPERATOR(pg_catalog.>) ($1 "
						   "OPERATOR(pg_catalog.*) (v.extent_bytes OPERATOR(pg_catalog.-) "
						   "v.dead_bytes)::pg_catalog.float8) "
						   "OR v.runs OPERATOR(pg_catalog.>) (v.natural_runs "
						   "OPERATOR(pg_catalog.+) $2::pg_catalog.int8) END AS is_due "
						   "FROM value AS v LEFT JOIN shared AS s "
						   "ON v.value_id OPERATOR(pg_catalog.=) s.value_id) ");
	return query.data;
}

/* The rest of the statement: each value counts once in a table or partition, each extent too. */
static const char summary[] =
", one AS (SELECT part, value_id, pg_catalog.count(*) AS row_count, "
"pg_catalog.min(content_bytes) AS content_bytes, pg_catalog.min(runs) AS runs, "
"pg_catalog.min(natural_runs) AS natural_runs, pg_catalog.min(dead_bytes) AS dead_bytes, "
"pg_catalog.bool_or(is_shared) AS is_shared, pg_catalog.bool_or(is_due) AS is_due "
"FROM judged GROUP BY part, value_id), "
"space AS (SELECT part, pg_catalog.sum(pages) AS pages FROM (SELECT DISTINCT part, first_page, "
"pages FROM extent) AS e GROUP BY part), "
"total AS (SELECT part, pg_catalog.sum(row_count)::pg_catalog.int8 AS rows, "
"pg_catalog.count(*) AS distinct_values, pg_catalog.sum(runs)::pg_catalog.int8 AS runs, "
"pg_catalog.max(runs) AS max_runs, "
"pg_catalog.sum(content_bytes)::pg_catalog.int8 AS content_bytes, "
"COALESCE(pg_catalog.sum(dead_bytes) FILTER (WHERE NOT is_shared), "
"0::pg_catalog.numeric)::pg_catalog.int8 AS dead_bytes, "
"pg_catalog.count(*) FILTER (WHERE is_shared) AS shared_values, "
"pg_catalog.count(*) FILTER (WHERE dead_bytes IS NULL) AS unreadable_values, "
"pg_catalog.count(*) FILTER (WHERE is_due) AS due_values, "
"COALESCE(pg_catalog.sum(content_bytes) FILTER (WHERE is_due), "
"0::pg_catalog.numeric)::pg_catalog.int8 AS due_bytes, "
"COALESCE(pg_catalog.sum(GREATEST(runs OPERATOR(pg_catalog.-) natural_runs, "
"0::pg_catalog.int8)) FILTER (WHERE is_due), "
"0::pg_catalog.numeric)::pg_catalog.int8 AS due_runs "
"FROM one GROUP BY part) "
"SELECT total.part::pg_catalog.regclass, rows, distinct_values, runs, max_runs, content_bytes, "
"(space.pages OPERATOR(pg_catalog.*) 4096::pg_catalog.numeric)::pg_catalog.int8, dead_bytes, "
"shared_values, unreadable_values, due_values, due_bytes, due_runs "
"FROM total JOIN space ON total.part OPERATOR(pg_catalog.=) space.part "
"ORDER BY total.part::pg_catalog.regclass::pg_catalog.text";

StaticAssertDecl(BLOB_PAGE_SIZE == 4096, "the statement has the size of a page");

/* blobext_fragmentation(relation, column_name, max_dead_ratio, max_extra_runs) */
Datum
blobext_fragmentation(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	BlobFragmentationRule rule;
	BlobColumn	column;
	Oid			types[2];
	Datum		values[2];

	blob_store_require_preload();
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("arguments of %s must not be null", NAME)));
	rule = blob_fragmentation_get_rule(fcinfo, 2, NAME);
	blob_column_find(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), NAME, &column);
	(void) blob_column_list_tables(&column);
	blob_fragmentation_types(types);
	blob_fragmentation_values(&rule, values);
	InitMaterializedSRF(fcinfo, 0);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute_with_args(psprintf("%s%s", blob_fragmentation_query(&column), summary), 2,
							  types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "values of a table could not be measured");
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	return (Datum) 0;
}
