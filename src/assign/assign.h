/*
 * assign/assign.h
 *	  How values over blobext.inline_limit reach extents on every path into a table.
 *
 * PostgreSQL calls no function of a type when one of its values is stored, so several mechanisms
 * share the work.  README.md in this folder says which of them covers which path, and which values
 * stay inline.  To externalize a value is to write its content to extents and to put a descriptor
 * in its place.
 */
#ifndef BLOB_ASSIGN_H
#define BLOB_ASSIGN_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "blob/blob.h"
#include "containers/rebuild.h"
#include "core/compat.h"
#include "executor/executor.h"
#include "nodes/parsenodes.h"

/*
 * The type modifier that every blobstate column, attribute and domain carries.  Its only meaning is
 * "not the default": because of it the parser puts the type's length coercion function, and with it
 * blob_externalize(), on every assignment.  Type modifier output prints it as the empty string.  It
 * is written into pg_attribute: never change it.
 */
#define BLOB_ASSIGN_TYPMOD 1

/*
 * Must the coercion and blob_store() return their argument without externalizing it?  True while
 * the server evaluates expressions whose results may be kept in a catalog (partition bounds) or in
 * a cached plan (constant folding).
 */
extern bool blob_assign_suppressed(void);

/*
 * Replace each blobstate in a partition's bound (containers/rebuild.h), if the relation has a
 * bound; was any replaced?  The caller holds at least ShareUpdateExclusiveLock on the partition and
 * its parent.
 */
extern bool blob_assign_rebuild_bound(Oid relid, BlobReplacer replace, void *context);

/* A BlobReplacer: content in place of a descriptor; ERROR 54000 if it is too large for a bound. */
extern Datum blob_assign_bound_content(Datum datum, void *context);

/*
 * Describe why this partition key is unsafe, or return NULL.  A key is unsafe if the relation cache
 * would keep a descriptor among the constants that it folds from the key's expressions.
 */
extern char *blob_assign_partition_key_problem(Oid relid);

/*
 * rewrite.c: store a value, or content, that is assigned, as blob_externalize() and
 * blob_from_bytes() do.  ALTER TABLE stores equal content once.
 */
extern Datum blob_assign_store(Datum datum, BlobStorage storage);
extern Datum blob_assign_store_bytes(const char *data, uint64 size_bytes, BlobStorage storage);

/*
 * contained.c: a value of a type that can hold blobstate, with the descriptors inside of it as
 * blob_externalize() gives them for a column without a label: verified and sealed.  Inline values
 * stay inline.  The same pointer if nothing has changed.
 */
extern Datum blob_assign_store_contained(Datum datum, Oid type);

/* May an input or receive function return a descriptor here?  See input.c. */
extern bool blob_assign_input_may_externalize(void);

/* How a value is stored that an input or receive function externalizes. */
extern BlobStorage blob_assign_input_storage(void);

/* The rest is for the files of this folder. */

/* Type blobstate, or InvalidOid where the extension is absent or catalogs cannot be read. */
extern Oid	blob_assign_type(void);

/* Is this type blobstate, or a domain over it? */
extern bool blob_assign_is_blob_type(Oid type_oid, Oid blob_type);

/* shards.c: is this a table that Citus distributes, so that its rows are in other tables? */
extern bool blob_assign_is_distributed(Oid relation);

/* Each sets a state that blob_assign_suppressed() tests, and returns the previous one. */
extern bool blob_assign_set_planning(bool planning);
extern bool blob_assign_set_bounding(bool bounding);
extern bool blob_assign_is_bounding(void);

/* map_guard.c: refuse statements that would damage the extent map. */
extern void blob_assign_guard_map(Node *statement);

/* map_guard.c: refuse the map's access method to a relation that was made or altered. */
extern void blob_assign_check_map_method(Oid relid, bool is_new);

/*
 * template.c: remember the template of CREATE DATABASE; refuse it if it holds blobs, and the new
 * database if blobs of a dropped one with its OID are left.
 */
extern void blob_assign_note_template(Node *statement);
extern void blob_assign_check_template(Oid new_database);

/*
 * columns.c: put the hidden modifier on the columns that a DDL statement declares (changes the
 * tree).
 */
extern void blob_assign_label_statement(Node *statement);

/* bounds.c: does this statement evaluate partition bounds? */
extern bool blob_assign_evaluates_bounds(Node *statement);

/*
 * The last values that an ALTER TABLE in progress has stored.  As many as it may assign to one row
 * in turn: new columns with defaults, elements of arrays.
 */
#define BLOB_KEPT_VALUES 16

typedef struct BlobKeptValue
{
	struct varlena *descriptor; /* NULL: none */
	BlobStorage storage;		/* as it was to be stored */
} BlobKeptValue;

typedef struct BlobAssignRewrite
{
	MemoryContext context;		/* of the statement */
	BlobKeptValue kept[BLOB_KEPT_VALUES];
	int			next;			/* which one is replaced next */
} BlobAssignRewrite;

/*
 * rewrite.c: set the ALTER TABLE that is in progress, or NULL; returns the previous one.  Is there
 * one?
 */
extern BlobAssignRewrite *blob_assign_set_rewrite(BlobAssignRewrite *rewrite);
extern bool blob_assign_is_rewriting(void);

/*
 * Notes are lists of the OIDs of relations that a statement makes or changes.  They are taken while
 * the statement runs, and evaluated at its end.  blob_assign_take_notes() directs notes to another
 * place (NULL: discards them), and returns the place before.
 */
typedef struct BlobAssignNotes
{
	MemoryContext context;		/* outlives a commit within the statement */
	List	   *partitions;		/* relations whose parent has changed, see bounds.c */
	List	   *keys;			/* new relations; those whose keys call a changed function */
	List	   *indexes;		/* new relations, see open_builds.c */
} BlobAssignNotes;

extern BlobAssignNotes *blob_assign_take_notes(BlobAssignNotes *notes);
extern void blob_assign_note_partition(Oid relid);
extern void blob_assign_note_created(Oid relid);
extern bool blob_assign_note_index(Oid relid);	/* perhaps one; false: nothing takes notes */
extern void blob_assign_note_function(Oid function);
extern void blob_assign_note_keys(void);	/* all: a row type now holds blobstate */
extern void blob_assign_finish_notes(const BlobAssignNotes *notes);

/*
 * partition_key.c: refuse a CHECK constraint that contains a descriptor.  Until PostgreSQL 18,
 * DETACH CONCURRENTLY makes one from a partition's constraint, as the relation cache has folded it.
 */
extern void blob_assign_check_constraint(Oid constraint);

/* partition_key.c: refuse a partition key that could fold to a descriptor. */
extern void blob_assign_check_partition_key(Oid relid);

/*
 * Partitioned tables whose keys (or defaults) call this function; all tables whose keys have
 * expressions.
 */
extern List *blob_assign_partition_keys_using(Oid function);
extern List *blob_assign_partition_keys(void);

/*
 * receiver.c: set the materialized view that is being refreshed, or InvalidOid; returns the
 * previous one.
 */
extern Oid	blob_assign_set_refreshed(Oid relation);

/* relabel.c: let query columns carry the hidden modifier. */
extern void blob_assign_label_target_list(List *target_list, Oid blob_type);
extern const char *blob_assign_set_view_source(const char *source);

/*
 * content_index.c: has this table, or one below it, an index that is ordered by content?  The
 * second function returns a number that grows whenever the answer may have changed for a table that
 * was asked about.  The third one announces to all processes that the answer has changed for the
 * table, or the index's table, although nothing of it has: a type has.  It takes effect with the
 * transaction, as DDL does.
 */
extern bool blob_assign_has_content_index(Oid relid);
extern uint64 blob_assign_content_index_changes(void);
extern void blob_assign_announce_content_index(Oid relid);

/*
 * Sets the function that is called when that number has grown.  It is called inside of a callback
 * of the relation cache, so no error may leave it.  Call this once, from _PG_init.
 */
extern void blob_assign_watch_content_indexes(void (*watcher) (void));

/* target.c: a relation was made or altered as a whole. */
extern void blob_assign_relation_changed(void);

/* index_kinds.c: refuse an index (other relations pass) of a kind the collector cannot read. */
extern void blob_assign_check_index(Oid relid);

/* The same for all indexes whose types contain this row type, which now holds blobstate. */
extern void blob_assign_check_indexes_of_type(Oid row_type);

/* statistics.c: refuse a statistics object that would store values. */
extern void blob_assign_check_statistics(Oid oid);

/* The type of a column, which this very command may have made. */
extern Oid	blob_assign_new_column_type(Oid relid, AttrNumber attnum);

/*
 * Refuse a new column of a composite type if an existing use of the type does not allow blobstate.
 */
extern void blob_assign_check_attribute(Oid relid, AttrNumber attnum);

/*
 * Columns that ANALYZE must not touch get the statistics target 0 at the end of the statement that
 * made them.  A relation is noted during the statement, and its targets are cleared afterwards.
 */
extern void blob_assign_note_relation(Oid relid);
extern void blob_assign_forget_relations(void);
extern void blob_assign_clear_statistics_targets(void);

#endif							/* BLOB_ASSIGN_H */
