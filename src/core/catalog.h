/*
 * core/catalog.h
 *	  OIDs of the extension's own objects in the current database, cached per backend.
 *
 * Answers, negative ones too, are kept until a TYPEOID or NAMESPACEOID invalidation arrives.  So a
 * look-up is cheap enough for every statement, also in databases without the extension.  The
 * functions need a transaction.
 */
#ifndef BLOB_CATALOG_H
#define BLOB_CATALOG_H

#include "postgres.h"

/* InvalidOid where the extension is not installed, or catalogs cannot be read. */
extern Oid	blob_catalog_schema(void);	/* schema of the extension's objects */
extern Oid	blob_catalog_type(void);	/* type blobstate */
extern Oid	blob_catalog_array_type(void);	/* type blobstate[] */
extern Oid	blob_catalog_store_function(void);	/* blob_store(blobstate) returns blobstate */

/*
 * The same for a column: blob_store(blobstate, regclass, smallint), and that of bytea.  InvalidOid
 * also where the SQL objects are older than 0.3.0.
 */
extern Oid	blob_catalog_store_in_column_function(void);
extern Oid	blob_catalog_store_bytea_in_column_function(void);

extern Oid	blob_catalog_coerce_function(void); /* blobstate(blobstate, integer, boolean) */
extern Oid	blob_catalog_cast_function(void);	/* blobstate(bytea) */
extern Oid	blob_catalog_store_bytea_function(void);	/* blob_store(bytea) returns blobstate */

/* Operator family blobstate_digest_ops for btree. */
extern Oid	blob_catalog_digest_family(void);

/* The view that takes pieces of uploads; its name. */
#define BLOB_UPLOAD_PIECES "blob_upload_pieces"
extern Oid	blob_catalog_upload_pieces(void);

/* The extent map's relation, InvalidOid as above. */
extern Oid	blob_catalog_map_relation_if_any(void);

/* The same; ERROR with hint where the extension is not installed. */
extern Oid	blob_catalog_map_relation(void);

/* Is this access method blobext_map, or another one with its handler? */
extern bool blob_catalog_is_map_method(Oid access_method);

#endif							/* BLOB_CATALOG_H */
