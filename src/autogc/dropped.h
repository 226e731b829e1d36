/*
 * autogc/dropped.h
 *	  What the server keeps of a store, and of a database, goes with them: a later one may have the
 *	  same identity.
 */
#ifndef BLOB_AUTOGC_DROPPED_H
#define BLOB_AUTOGC_DROPPED_H

#include "postgres.h"

#include "core/page.h"

/*
 * Remove a store with all that is known of it.  The transaction that dropped its map has ended, so
 * no process uses it.  False if files are left, which is a WARNING.
 */
extern bool blob_autogc_drop_store(const BlobStoreId *store);

/*
 * A part of the object access hook: this transaction drops a database.  When it commits, what
 * shared memory has of the database goes.
 */
extern void blob_autogc_database_drops(Oid database);

#endif							/* BLOB_AUTOGC_DROPPED_H */
