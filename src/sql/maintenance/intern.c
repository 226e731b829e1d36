/*
 * sql/maintenance/intern.c
 *	  blob_intern(): the value of a row that has the same content already.
 *
 * The row is looked for with the rights of the caller, by a statement that the caller could have
 * written.  Where a policy applies, the comparison is part of an expression that is not leakproof.
 * So PostgreSQL evaluates it only on rows that policies let the caller see, and uses no index for
 * it: rows that the caller may not see take the same time, whether they are equal or not.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/share.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "core/settings.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/dedup_parts.h"
#include "sql/value.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"

PG_FUNCTION_INFO_V1(blob_intern);
PG_FUNCTION_INFO_V1(blob_intern_bytea);

#define NAME "blob_intern()"

/* Kept from one call to the next one of the same call site. */
typedef struct Lookup
{
	char	   *query;
	SPIPlanPtr	plan;			/* NULL: not prepared yet */
	MemoryContextCallback release;
} Lookup;

static void
release_plan(void *argument)
{
	Lookup	   *lookup = argument;

	if (lookup->plan != NULL)
		SPI_freeplan(lookup->plan);
	lookup->plan = NULL;
}

static Lookup *
make_lookup(FmgrInfo *function)
{
	Lookup	   *lookup = MemoryContextAllocZero(function->fn_mcxt, sizeof(Lookup));

	lookup->release.func = release_plan;
	lookup->release.arg = lookup;
	MemoryContextRegisterResetCallback(function->fn_mcxt, &lookup->release);
	return lookup;
}

/* blob_storage() is not leakproof, so neither is a CASE that calls it. */
static char *
make_query(const BlobColumn *column)
{
	const char *type = blob_catalog_type_name();
	bool		is_secured = check_enable_rls(column->relid, InvalidOid, true) == RLS_ENABLED;

	return psprintf("SELECT %s FROM %s WHERE %s%s(%s::%s) OPERATOR(pg_catalog.=) "
					"'extents'::pg_catalog.text %s %s::%s %s $1%s LIMIT 1 "
					"FOR SHARE SKIP LOCKED",
					column->column, column->table, is_secured ? "CASE WHEN " : "",
					blob_catalog_function_name(BLOB_FUNCTION_STORAGE), column->column, type,
					is_secured ? "THEN" : "AND", column->column, type,
					blob_catalog_equality_name(), is_secured ? " END" : "");
}

/* The statement for a column, prepared; the column may be another one than in the last call. */
static SPIPlanPtr
get_plan(FmgrInfo *function, const BlobColumn *column)
{
	Lookup	   *lookup = function->fn_extra;
	char	   *query = make_query(column);
	Oid			type = blob_catalog_type();

	if (lookup == NULL)
		function->fn_extra = lookup = make_lookup(function);
	if (lookup->plan == NULL || strcmp(lookup->query, query) != 0)
	{
		release_plan(lookup);
		blob_column_list_tables(column);
		lookup->plan = blob_column_prepare(query, 1, &type);
		lookup->query = MemoryContextStrdup(function->fn_mcxt, query);
	}
	return lookup->plan;
}

/*
 * The value of a row with the same content, in the context given, or NULL.  The row is locked until
 * the transaction ends.
 */
static struct varlena *
find_value(SPIPlanPtr plan, struct varlena *value, MemoryContext context)
{
	Datum		argument = PointerGetDatum(value);
	int			result = SPI_execute_plan(plan, &argument, NULL, false, 1);
	struct varlena *found = NULL;

	if (result != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
	if (SPI_processed > 0)
	{
		bool		is_null;
		Datum		datum =
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null);
		MemoryContext old_context = MemoryContextSwitchTo(context);

		found = PG_DETOAST_DATUM_COPY(datum);
		MemoryContextSwitchTo(old_context);
	}
	return found;
}

typedef struct Comparison
{
	BlobValue	value;
	BlobValue	found;
	bool		is_same;
} Comparison;

/* A BlobAttemptStep. */
static void
compare(void *argument)
{
	Comparison *comparison = argument;

	comparison->is_same = blob_share_is_same(&comparison->found, &comparison->value);
}

/*
 * Whether the value that was found can take the other's place.  If it is damaged, that is no reason
 * not to store the other one.
 */
static bool
is_usable(const struct varlena *value, const struct varlena *found, bool verify)
{
	Comparison	comparison = {.is_same = true};
	ErrorData  *error = NULL;

	blob_value_unpack(value, &comparison.value);
	blob_value_unpack(found, &comparison.found);
	if (comparison.found.is_inline)
		return false;
	if (verify)
		error = blob_attempt(compare, &comparison);
	if (error != NULL && (blob_batch_is_to_be_thrown(error->sqlerrcode)))
		ReThrowError(error);
	if (error != NULL || !comparison.is_same)
	{
		ereport(WARNING,
				(errmsg("a value of the same size and digest is not shared: %s",
						error != NULL ? error->message : "its content differs"),
				 errhint("blobext_check() says which values are damaged.")));
		return false;
	}
	blob_require_valid(&comparison.found.descriptor);
	return true;
}

/* Whether a value would stay in its row. */
static bool
is_small(const struct varlena *value)
{
	BlobValue	unpacked;

	blob_value_unpack(value, &unpacked);
	return unpacked.is_inline && unpacked.size_bytes <= (uint64) blob_inline_limit_bytes;
}

/* The value to be stored: the one that was found for the first two arguments, or the argument. */
static struct varlena *
choose_value(FunctionCallInfo fcinfo, struct varlena *value)
{
	MemoryContext context = CurrentMemoryContext;
	BlobColumn column;
	struct varlena *found;

	PreventCommandDuringRecovery(NAME);
	PreventCommandIfReadOnly(NAME);
	blob_column_find(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), NAME, &column);
	blob_column_require_privileges(&column);
	if (is_small(value))
		return value;
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	found = find_value(get_plan(fcinfo->flinfo, &column), value, context);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	return found != NULL && is_usable(value, found, PG_GETARG_BOOL(3)) ? found : value;
}

/* blob_intern(relation, column_name, content, verify) */
Datum
blob_intern(PG_FUNCTION_ARGS)
{
	blob_store_require_preload();
	PG_RETURN_POINTER(choose_value(fcinfo, PG_DETOAST_DATUM_PACKED(PG_GETARG_DATUM(2))));
}

/* The same for bytea, which is not written to extents if a row has the content already. */
Datum
blob_intern_bytea(PG_FUNCTION_ARGS)
{
	bytea	   *content = PG_GETARG_BYTEA_PP(2);
	Datum		datum;

	blob_store_require_preload();
	datum = blob_from_bytes(VARDATA_ANY(content), VARSIZE_ANY_EXHDR(content), false,
							blob_storage_default());
	PG_RETURN_POINTER(choose_value(fcinfo, (struct varlena *) DatumGetPointer(datum)));
}
