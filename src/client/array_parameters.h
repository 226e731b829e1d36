/*
 * client/array_parameters.h
 *	  Parameters of a client's statement that would be blobstate[] become bytea[].
 */
#ifndef BLOB_ARRAY_PARAMETERS_H
#define BLOB_ARRAY_PARAMETERS_H

#include "postgres.h"

#include "core/compat.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "parser/parse_node.h"

/*
 * After parse analysis: if the client has sent the statement to be prepared (Parse), and leaves to
 * the server what types its parameters have, those that became blobstate[] are made bytea[], and
 * *query is the query with these types, if there is one.  jstate: exchanged likewise.  ERROR as of
 * parse analysis in cases that do not depend on the statement (a cancel, lack of memory).
 */
extern void blob_array_parameters_choose(ParseState *pstate, Query *query,
										 BLOB_JUMBLE_STATE **jstate);

#endif							/* BLOB_ARRAY_PARAMETERS_H */
