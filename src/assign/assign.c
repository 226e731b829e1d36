/*
 * assign/assign.c
 *	  State and functions shared by the mechanisms of this folder: types, suppression.
 */
#include "postgres.h"

#include "access/transam.h"
#include "utils/lsyscache.h"

#include "core/catalog.h"
#include "assign/assign.h"

/* The planner is running: a function's result may become a constant of a cached plan. */
static bool is_planning = false;

/* A statement is running that evaluates partition bounds and keeps the results in pg_class. */
static bool is_bounding = false;

bool
blob_assign_suppressed(void)
{
	return is_planning || is_bounding;
}

bool
blob_assign_set_planning(bool planning)
{
	bool		previous = is_planning;

	is_planning = planning;
	return previous;
}

bool
blob_assign_set_bounding(bool bounding)
{
	bool		previous = is_bounding;

	is_bounding = bounding;
	return previous;
}

pg_attribute_hot bool
blob_assign_is_bounding(void)
{
	return is_bounding;
}

/*
 * Hooks run in every kind of process, also in those that are connected to no database.  They run
 * for the ROLLBACK of a failed transaction, too, during which catalogs cannot be read.
 */
pg_attribute_hot Oid
blob_assign_type(void)
{
	return blob_catalog_type();
}

/*
 * Built-in types are recognized by their OID alone, so that a statement over many columns costs no
 * catalog lookups.
 */
bool
blob_assign_is_blob_type(Oid type_oid, Oid blob_type)
{
	if (type_oid == blob_type)
		return true;
	if (type_oid < FirstNormalObjectId)
		return false;
	return getBaseType(type_oid) == blob_type;
}
