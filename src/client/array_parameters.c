/*
 * client/array_parameters.c
 *	  Parameters that would be blobstate[], see client/array_parameters.h.
 *
 * The binary form of an array names its element type, and PostgreSQL's function that receives
 * blobstate[] refuses bytea in it.  So, unlike other parameters (client/descriptions.c), these must
 * truly be bytea[].  When a plan is made again later, PostgreSQL analyzes the statement with the
 * parameter types that it has by then, so the statement must have a meaning with them: it is
 * analyzed with them here, and what that gives is the query.  If it is an error (a function that
 * takes blobstate[] alone), the parameters stay what they are.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "client/array_parameters.h"
#include "core/catalog.h"
#include "core/settings.h"
#include "parser/parse_param.h"
#include "parser/parser.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"
#include "utils/resowner.h"

/* What parser/parse_param.c keeps in p_ref_hook_state for parameters of variable type. */
typedef struct VariableParameters
{
	Oid		  **types;
	int		   *count;
} VariableParameters;

/*
 * The parameters of a statement, if their types were open; else NULL.  The server's struct is
 * private: one that it makes here shows whether it is as expected.
 */
static const VariableParameters *
find_variable_parameters(const ParseState *pstate)
{
	ParseState	sample = {0};
	Oid		   *types = NULL;
	int			count = 0;
	const VariableParameters *made;
	bool		is_known;

	if (pstate->p_paramref_hook == NULL || pstate->p_coerce_param_hook == NULL)
		return NULL;
	setup_parse_variable_parameters(&sample, &types, &count);
	made = sample.p_ref_hook_state;
	is_known = pstate->p_paramref_hook == sample.p_paramref_hook &&
		made->types == &types && made->count == &count;
	pfree(sample.p_ref_hook_state);
	return is_known ? pstate->p_ref_hook_state : NULL;
}

/* The types with bytea[] in place of blobstate[] and of domains over it; NULL if there are none. */
static Oid *
exchange_types(const Oid *types, int count)
{
	Oid		   *exchanged = NULL;

	for (int i = 0; i < count; i++)
	{
		if (types[i] < FirstNormalObjectId || !OidIsValid(blob_catalog_type()) ||
			getBaseType(types[i]) != blob_catalog_array_type())
			continue;
		if (exchanged == NULL)
		{
			exchanged = palloc(count * sizeof(Oid));
			memcpy(exchanged, types, count * sizeof(Oid));
		}
		exchanged[i] = BYTEAARRAYOID;
	}
	return exchanged;
}

/*
 * Parse analysis as RevalidateCachedQuery() will have it, without the hook.  A message to parse has
 * one statement; NULL if the text has more, so that it is another extension's.
 */
static Query *
analyze(const char *source, const Oid *types, int count, QueryEnvironment *environment)
{
	List	   *statements = raw_parser(source, RAW_PARSE_DEFAULT);
	ParseState *pstate;
	Query	   *query;

	if (list_length(statements) != 1)
		return NULL;
	pstate = make_parsestate(NULL);
	pstate->p_sourcetext = source;
	pstate->p_queryEnv = environment;
	setup_parse_fixed_parameters(pstate, types, count);
	query = transformTopLevelStmt(pstate, linitial_node(RawStmt, statements));
	free_parsestate(pstate);
	return query;
}

/* Is this an error that says that the statement has no meaning, as other types would have it? */
static bool
is_of_statement(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category == ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION ||
		category == ERRCODE_DATA_EXCEPTION || category == ERRCODE_FEATURE_NOT_SUPPORTED;
}

/*
 * The same, or NULL also if it is an error of the statement.  Locks of tables that only this
 * analysis took are released then.
 */
static Query *
try_to_analyze(const char *source, const Oid *types, int count, QueryEnvironment *environment)
{
	MemoryContext caller_context = CurrentMemoryContext;
	ResourceOwner caller_owner = CurrentResourceOwner;
	Query	   *volatile query = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller_context);
	PG_TRY();
	{
		query = analyze(source, types, count, environment);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller_context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller_context);
		CurrentResourceOwner = caller_owner;
		if (!is_of_statement(error))
			ReThrowError(error);
		FreeErrorData(error);
		query = NULL;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller_context);
	CurrentResourceOwner = caller_owner;
	return query;
}

/*
 * Only Parse has parameters of variable type without an active portal: PREPARE runs in one, and
 * functions name the types of their parameters.
 */
void
blob_array_parameters_choose(ParseState *pstate, Query *query, BLOB_JUMBLE_STATE **jstate)
{
	const VariableParameters *parameters;
	Query	   *exchanged;
	Oid		   *types;

	if (blob_client_type != BLOB_CLIENT_TYPE_BYTEA || ActivePortal != NULL)
		return;
	parameters = find_variable_parameters(pstate);
	if (parameters == NULL || *parameters->count == 0)
		return;
	types = exchange_types(*parameters->types, *parameters->count);
	if (types == NULL)
		return;
	exchanged = try_to_analyze(pstate->p_sourcetext, types, *parameters->count,
							   pstate->p_queryEnv);
	if (exchanged != NULL)
	{
		*query = *exchanged;
		memcpy(*parameters->types, types, *parameters->count * sizeof(Oid));
		if (*jstate != NULL)
			*jstate = blob_jumble_query(query, pstate->p_sourcetext);
	}
	pfree(types);
}
