/*
 * autogc/orphans.h
 *	  Directories of stores whose extension was dropped while their database lives on.
 */
#ifndef BLOB_AUTOGC_ORPHANS_H
#define BLOB_AUTOGC_ORPHANS_H

#include "postgres.h"

#include "core/page.h"

/*
 * This database's store, as the committed catalogs know it.  The transaction began after the
 * transactions had ended that the caller wants to judge.  Does not wait.  False if the store cannot
 * be found out: the map is locked, or the extension is there without its map.
 */
extern bool blob_autogc_find_store(BlobStoreId *store, bool *exists);

/*
 * Remove the directories of stores that this database had before its extension was dropped.
 * Outside of a transaction.  False if there are some that could not be decided on yet.
 */
extern bool blob_autogc_remove_orphans(void);

#endif							/* BLOB_AUTOGC_ORPHANS_H */
