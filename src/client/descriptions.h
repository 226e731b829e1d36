/*
 * client/descriptions.h
 *	  Clients are told bytea where the server has blobstate, see README.md of this folder.
 */
#ifndef BLOB_DESCRIPTIONS_H
#define BLOB_DESCRIPTIONS_H

#include "postgres.h"


/*
 * Put a function of ours before the server's one that sends messages; once, from _PG_init, before
 * blob_wire_init().
 */
extern void blob_descriptions_init(void);

/*
 * Write bytea's OID where the binary form of an array has its element type, if clients are told
 * bytea.  array: what array_send() has made for a column of this type, which may be any type.
 */
extern void blob_descriptions_fix_array(Oid type, char *array, Size length);

#endif							/* BLOB_DESCRIPTIONS_H */
