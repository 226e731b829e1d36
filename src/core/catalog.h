/*
 * core/catalog.h
 *	  OIDs of the extension's own objects in the current database, cached per backend.
 *
 * An object is the extension's own if it is a member of it, whatever its name is: the schema may
 * belong to any role.  Answers are kept, but for negative ones where the extension is installed
 * (catalog.c says why).  So a look-up is cheap enough for every statement, also in databases
 * without the extension.  The functions need a transaction.
 */
#ifndef BLOB_CATALOG_H
#define BLOB_CATALOG_H

#include "postgres.h"

/* InvalidOid where the extension is not installed, or catalogs cannot be read. */
extern Oid	blob_catalog_schema(void);	/* schema of the extension's objects */
extern Oid	blob_catalog_type(void);	/* type blobstate */
extern Oid	blob_catalog_array_type(void);	/* type blobstate[] */

typedef enum BlobFunction
{
	BLOB_FUNCTION_STORE,		/* blob_store(blobstate) returns blobstate */
	BLOB_FUNCTION_STORE_IN_COLUMN,	/* blob_store(blobstate, regclass, smallint), since 0.3.0 */
	BLOB_FUNCTION_STORE_BYTEA,	/* blob_store(bytea) returns blobstate */
	BLOB_FUNCTION_STORE_BYTEA_IN_COLUMN,	/* blob_store(bytea, regclass, smallint), since 0.3.0 */
	BLOB_FUNCTION_STORE_CONTAINED,	/* blob_store_contained(anyelement), since 0.4.0 */
	BLOB_FUNCTION_COERCE,		/* blobstate(blobstate, integer, boolean) */
	BLOB_FUNCTION_CAST,			/* blobstate(bytea) */
	BLOB_FUNCTION_MAP_HANDLER,
	BLOB_FUNCTION_STORAGE,		/* from here on: in SQL that the library sends */
	BLOB_FUNCTION_COMPRESSION,
	BLOB_FUNCTION_LENGTH,
	BLOB_FUNCTION_STORED_LENGTH,
	BLOB_FUNCTION_EXTENTS,
	BLOB_FUNCTION_SUMMARY,
	BLOB_FUNCTION_RECOMPRESS,	/* blob_recompress(blobstate, text) */
	BLOB_FUNCTION_RECOMPRESS_IS_DUE,
	BLOB_FUNCTION_FOOTPRINT,	/* blob_footprint(blobstate), since 0.4.0 */
	BLOB_FUNCTION_DIGEST_IS_OPEN,	/* blob_digest_is_open(blobstate), since 0.4.0 */
	BLOB_FUNCTION_COUNT
} BlobFunction;

/* A function of the extension; InvalidOid also where the SQL objects are older than it. */
extern Oid	blob_catalog_function(BlobFunction function);

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

/* Is a script of the extension running?  Other extensions have scripts, too. */
extern bool blob_catalog_in_script(void);

/* Is this object a member of the extension? */
extern bool blob_catalog_is_member(Oid class_id, Oid object);

/* ERROR 55000 with a hint if there is no object; the description completes "has no …". */
extern void blob_catalog_require(Oid object, const char *description);

/*
 * Names for SQL that the library sends or stores, qualified and quoted; the operator as
 * OPERATOR(schema.=).  ERROR 55000 unless it is a member.  The name finds the member alone if the
 * arguments have its very types: a domain over blobstate must be cast, because its owner may make a
 * function or an operator for it that fits better.
 */
extern char *blob_catalog_function_name(BlobFunction function);
extern char *blob_catalog_type_name(void);
extern char *blob_catalog_equality_name(void);

/* The name of any relation, qualified and quoted; NULL if it is gone. */
extern char *blob_catalog_relation_name(Oid relid);

#endif							/* BLOB_CATALOG_H */
