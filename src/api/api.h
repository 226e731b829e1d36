/*
 * api/api.h
 *	  Offer the functions of api/blobext.h to other libraries.
 */
#ifndef BLOB_API_H
#define BLOB_API_H

/* For _PG_init() under shared_preload_libraries: other processes inherit the variable. */
extern void blob_api_register(void);

#endif							/* BLOB_API_H */
