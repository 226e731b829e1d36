/*
 * containers/bound.c
 *	  Values in partition bounds, see containers/bound.h.
 */
#include "postgres.h"

#include "access/transam.h"
#include "containers/bound.h"
#include "nodes/nodes.h"
#include "nodes/parsenodes.h"
#include "nodes/primnodes.h"

/* Add the constants of a bound by range; MINVALUE and MAXVALUE have none. */
static List *
add_range_constants(List *constants, List *datums)
{
	ListCell   *cell;

	foreach(cell, datums)
	{
		PartitionRangeDatum *datum = lfirst_node(PartitionRangeDatum, cell);

		if (datum->kind == PARTITION_RANGE_DATUM_VALUE)
			constants = lappend(constants, datum->value);
	}
	return constants;
}

/*
 * The constants of a bound that can hold blobstate.  A bound by hash, and a default one, has none.
 */
static List *
list_constants(PartitionBoundSpec *bound)
{
	List	   *constants = list_copy(bound->listdatums);
	List	   *holding = NIL;
	ListCell   *cell;

	constants = add_range_constants(constants, bound->lowerdatums);
	constants = add_range_constants(constants, bound->upperdatums);
	foreach(cell, constants)
	{
		Const	   *constant = lfirst_node(Const, cell);

		/* The types of most keys are built in: these need no look-up. */
		if (!constant->constisnull && constant->consttype >= FirstNormalObjectId &&
			blob_walk_type_holds(constant->consttype))
			holding = lappend(holding, constant);
	}
	return holding;
}

void
blob_bound_walk(const char *bound, BlobWalkVisitor visit, void *context)
{
	ListCell   *cell;

	foreach(cell, list_constants(castNode(PartitionBoundSpec, stringToNode(bound))))
	{
		Const	   *constant = lfirst(cell);

		blob_walk_datum(constant->constvalue, constant->consttype, visit, context);
	}
}

char *
blob_bound_rebuild(const char *bound, BlobReplacer replace, void *context)
{
	PartitionBoundSpec *spec = castNode(PartitionBoundSpec, stringToNode(bound));
	bool		replaced = false;
	ListCell   *cell;

	foreach(cell, list_constants(spec))
	{
		Const	   *constant = lfirst(cell);
		Datum		datum = blob_rebuild(constant->constvalue, constant->consttype, replace,
										 context);

		if (datum != constant->constvalue)
			replaced = true;
		constant->constvalue = datum;
	}
	return replaced ? nodeToString(spec) : NULL;
}
