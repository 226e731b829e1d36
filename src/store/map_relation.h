/*
 * store/map_relation.h
 *	  Which relations may have the access method blobext_map.
 */
#ifndef BLOB_MAP_RELATION_H
#define BLOB_MAP_RELATION_H

#include "catalog/pg_class.h"
#include "core/compat.h"
#include "utils/relcache.h"

/*
 * Whether this row of pg_class is that of the map in the script that makes it; and the error for
 * any other relation that asks for the map's access method.
 */
extern bool blob_map_is_being_created(Form_pg_class class);
pg_noreturn extern void blob_map_refuse_relation(void);

/*
 * Whether this is the relation that make_new_heap() makes for VACUUM FULL, as far as that can be
 * told before there is a catalog row: by its name, its schema, and the lock that its maker holds.
 * A role with the privilege to lock the map could imitate that; blob_assign_check_map_method()
 * looks at the catalog row afterwards.
 */
extern bool blob_map_looks_like_rewrite(Relation relation);

extern bool blob_map_is_map(Relation relation);

/*
 * A relation with this access method that is not the map cannot have got pages from this library.
 * If it has pages, its access method was changed in the catalog; showing no rows would lose them in
 * a dump.
 */
extern void blob_map_check_has_no_pages(Relation relation);

#endif							/* BLOB_MAP_RELATION_H */
