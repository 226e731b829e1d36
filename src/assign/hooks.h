/*
 * assign/hooks.h
 *	  The parts of this folder in the server's hooks: hooks/ calls them, and says in which order.
 *
 * The structures live in the frame of a hook, and are zeros at first.  Of each three functions the
 * first is called before the server goes on, the second after that, unless there was an error, and
 * the third in any case.  The third does nothing if the first did not get far enough.
 */
#ifndef BLOB_ASSIGN_HOOKS_H
#define BLOB_ASSIGN_HOOKS_H

#include "postgres.h"

#include "assign/assign.h"
#include "catalog/objectaccess.h"
#include "executor/execdesc.h"
#include "nodes/plannodes.h"
#include "parser/parse_node.h"
#include "tcop/utility.h"

/*
 * planner.c: wrap what a query assigns, before it is planned.  False if the extension is absent.
 * While the planner runs, blob_assign_set_planning(true) must hold.
 */
extern bool blob_assign_prepare_query(Query *query);

/* relabel.c: a query has been analyzed: views and functions get the hidden modifier. */
extern void blob_assign_label_query(ParseState *pstate, Query *query);

/*
 * object_access.c: an object was made or changed (OAT_POST_CREATE, OAT_POST_ALTER); an ERROR
 * refuses it.
 */
extern void blob_assign_object_accessed(ObjectAccessType access, Oid class_oid, Oid object_oid,
										int sub_id, void *arg);

/* receiver.c: rows of a query that go to a new table are stored, its description is labelled. */
typedef struct BlobAssignRedirect
{
	QueryDesc  *query_desc;		/* that has been changed, or NULL */
	DestReceiver *dest;			/* its former receiver */
	TupleDesc	desc;
	bool		has_set_bounding;
	bool		was_bounding;
} BlobAssignRedirect;

/* Whether blob_assign_redirect_begin() may have something to do. */
extern bool blob_assign_redirect_is_due(const QueryDesc *query_desc);

extern void blob_assign_redirect_begin(BlobAssignRedirect *redirect, QueryDesc *query_desc);
extern void blob_assign_redirect_end(BlobAssignRedirect *redirect);

/*
 * target.c: a statement in progress that writes to indexes, an entry of a stack.  Entering and
 * leaving one may sync, so both may fail.
 */
typedef struct BlobAssignTarget
{
	struct BlobAssignTarget *outer;
	const PlannedStmt *plan;	/* statement that modifies tables; or NULL: */
	bool		is_copy;		/* COPY FROM; or else a statement that builds indexes */
	const struct ErrorContextCallback *outer_context;	/* error_context_stack at its beginning */
	bool		is_strict;
	bool		is_entered;		/* false: the statement writes to no index */
	uint64		looked_at;		/* blob_assign_content_index_changes() when is_strict was set */
} BlobAssignTarget;

/* Whether a plan modifies tables, in a database with the extension. */
extern bool blob_assign_plan_is_target(const PlannedStmt *plan);

extern void blob_assign_enter_plan(BlobAssignTarget *target, const PlannedStmt *plan);
extern void blob_assign_enter_utility(BlobAssignTarget *target, const Node *statement);
extern void blob_assign_leave_target(BlobAssignTarget *target);
extern void blob_assign_end_target(BlobAssignTarget *target);

/* target.c: the rule for blob_durability_set_rule(): is content to be crash-safe at once? */
extern bool blob_assign_is_strict(void);

/*
 * target.c, for blob_assign_watch_content_indexes(): pending content may be on its way to an index
 * that was not there.  Called from the relation cache; ends the session if it cannot be made
 * crash-safe.
 */
extern void blob_assign_content_index_changed(void);

/*
 * utility.c: a utility statement.  begin may change the statement's tree, or put a copy in its
 * place (*pstmt, *read_only_tree), and refuse it with an ERROR.
 */
typedef struct BlobAssignStatement
{
	bool		is_set;			/* the states below are exchanged, these are the former ones */
	bool		bounding;		/* evaluates partition bounds */
	const char *view_source;	/* defines a view: source text of its query */
	Oid			refreshed;		/* materialized view that is refreshed, or InvalidOid */
	BlobAssignNotes notes;
	BlobAssignNotes *outer_notes;
	bool		is_rewrite;		/* may assign values to all rows of a table */
	BlobAssignRewrite rewrite;
	BlobAssignRewrite *outer_rewrite;
} BlobAssignStatement;

extern void blob_assign_statement_begin(BlobAssignStatement *state, PlannedStmt **pstmt,
										const char *query_string, bool *read_only_tree,
										ProcessUtilityContext context);
extern void blob_assign_statement_done(BlobAssignStatement *state);
extern void blob_assign_statement_end(BlobAssignStatement *state);

#endif							/* BLOB_ASSIGN_HOOKS_H */
