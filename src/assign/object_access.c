/*
 * assign/object_access.c
 *	  The object access hook: PostgreSQL calls it when it has made or changed an object.
 *
 * From here this folder refuses objects that could refer to stored content indefinitely, the map's
 * access method for other relations, and copies of databases, and keeps values out of pg_statistic.
 *
 * The hook is called for every index, table, statistics object and database, made by any statement
 * or by C code.  The new catalog rows are there, but visible to SnapshotSelf only.
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_statistic_ext.h"

#include "assign/assign.h"
#include "assign/hooks.h"
#include "assign/label_provider.h"
#include "assign/open_keys.h"

/* A statement that takes notes may rewrite the index's table before it builds the index. */
static void
check_build(Oid relid)
{
	if (!blob_assign_note_index(relid))
		blob_open_keys_check_build(relid);
}

/* A relation, or with attnum a column, was made. */
static void
relation_created(Oid relid, AttrNumber attnum, const ObjectAccessPostCreate *arg)
{
	if (attnum != 0)
		blob_assign_check_attribute(relid, attnum);
	else
	{
		blob_assign_check_index(relid);
		blob_open_keys_check_index(relid);
		check_build(relid);
		blob_assign_check_map_method(relid, true);
		blob_assign_note_created(relid);
	}

	/* Internal are tables of a rewrite, which go again, and TOAST tables. */
	if (arg == NULL || !arg->is_internal)
		blob_assign_note_relation(relid);
}

static void
relation_altered(Oid relid, AttrNumber attnum)
{
	if (attnum == 0)
	{
		blob_assign_check_map_method(relid, false);
		return;
	}
	blob_assign_check_attribute(relid, attnum);
	blob_label_type_changed(relid, attnum, blob_assign_new_column_type(relid, attnum));
	blob_assign_note_relation(relid);
}

void
blob_assign_object_accessed(ObjectAccessType access, Oid class_oid, Oid object_oid, int sub_id,
							void *arg)
{
	if (access == OAT_POST_CREATE && class_oid == DatabaseRelationId)
		blob_assign_check_template(object_oid);
	if (class_oid == RelationRelationId && sub_id == 0)
		blob_assign_relation_changed();
	if (class_oid == ConstraintRelationId && access == OAT_POST_CREATE &&
		OidIsValid(blob_assign_type()))
	{
		blob_assign_check_constraint(object_oid);
		blob_open_keys_check_constraint(object_oid);
	}
	if (class_oid == InheritsRelationId && access == OAT_POST_ALTER)
		blob_assign_note_partition(object_oid);
	if (class_oid == ProcedureRelationId && OidIsValid(blob_assign_type()))
		blob_assign_note_function(object_oid);
	if ((class_oid != RelationRelationId && class_oid != StatisticExtRelationId) ||
		!OidIsValid(blob_assign_type()))
		return;

	if (class_oid == StatisticExtRelationId)
	{
		if (access == OAT_POST_CREATE)
			blob_assign_check_statistics(object_oid);
	}
	else if (access == OAT_POST_CREATE)
		relation_created(object_oid, (AttrNumber) sub_id, (ObjectAccessPostCreate *) arg);
	else
		relation_altered(object_oid, (AttrNumber) sub_id);
}
