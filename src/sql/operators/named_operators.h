/*
 * sql/operators/named_operators.h
 *	  Operators that are named with the extension's schema, see sql/README.md.
 */
#ifndef BLOB_SQL_NAMED_OPERATORS_H
#define BLOB_SQL_NAMED_OPERATORS_H

#include "postgres.h"

#include "nodes/parsenodes.h"
#include "nodes/pathnodes.h"

/*
 * Before a query is planned: put the operators of pg_catalog in the place of those of the same
 * function in the extension's schema.  Changes the query, which is the planner's own.
 */
extern void blob_named_operators_replace(Query *query);

/*
 * Likewise in the predicates and expressions of a relation's indexes and statistics objects, which
 * the planner has read for a query, and in the query's conditions, into which it has inlined
 * functions.  It has not looked for indexes and joins yet.
 */
extern void blob_named_operators_replace_in_relation(PlannerInfo *root, RelOptInfo *relation);

/*
 * Likewise in the exclusion constraints of a utility statement, whose tree the caller may change:
 * ALTER TABLE, and the index that CREATE TABLE makes.  Looks the table up without a lock.
 */
extern void blob_named_operators_replace_in_statement(Node *statement);

#endif							/* BLOB_SQL_NAMED_OPERATORS_H */
