/*
 * store/map_relation.c
 *	  Which relations may have the access method blobext_map: see "Use of the access method" in the
 *	  README of this folder.
 *
 * If a relation other than the map has it all the same, because an older library let it be made, it
 * has no rows.
 */
#include "postgres.h"

#include "core/catalog.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "store/map_relation.h"
#include "utils/rel.h"

/*
 * Whether this is the map itself, which CREATE EXTENSION blobext makes.  Event triggers run within
 * its script, too.
 */
bool
blob_map_is_being_created(Form_pg_class class)
{
	return blob_catalog_in_script() &&
		strcmp(NameStr(class->relname), "blobext_map") == 0 &&
		class->relnamespace == blob_catalog_schema();
}

bool
blob_map_looks_like_rewrite(Relation relation)
{
	Oid			map_oid = blob_catalog_map_relation_if_any();
	char		name[NAMEDATALEN];
	Relation	map;
	bool		result;

	snprintf(name, sizeof(name), "pg_temp_%u", map_oid);
	if (!OidIsValid(map_oid) || strcmp(RelationGetRelationName(relation), name) != 0)
		return false;
	map = RelationIdGetRelation(map_oid);
	if (map == NULL)
		return false;
	result = RelationGetNamespace(relation) == RelationGetNamespace(map) &&
		CheckRelationLockedByMe(map, AccessExclusiveLock, false);
	RelationClose(map);
	return result;
}

void
blob_map_refuse_relation(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("access method \"blobext_map\" is for the extent map of blobext only"),
			 errdetail("No other relation with this access method could hold rows."),
			 errhint("Use another access method, such as heap, in USING, SET ACCESS METHOD or "
					 "default_table_access_method.")));
}

bool
blob_map_is_map(Relation relation)
{
	return RelationGetRelid(relation) == blob_catalog_map_relation_if_any();
}

void
blob_map_check_has_no_pages(Relation relation)
{
	if (RelationGetNumberOfBlocks(relation) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation \"%s\" is not the extent map of blobext",
						RelationGetRelationName(relation)),
				 errdetail("It has access method \"blobext_map\", which cannot read its file."),
				 errhint("Drop it, or give it back the access method that has written the file.")));
}
