/*
 * autogc/launcher.h
 *	  The background launcher and its workers.
 */
#ifndef BLOB_AUTOGC_LAUNCHER_H
#define BLOB_AUTOGC_LAUNCHER_H

#include "postgres.h"

#include "core/page.h"

/* Register the launcher; while shared_preload_libraries are loaded. */
extern void blob_autogc_launcher_register(void);

/* Entry points of the processes: launcher.c, worker.c. */
extern PGDLLEXPORT void blob_autogc_launcher_main(Datum argument);
extern PGDLLEXPORT void blob_autogc_worker_main(Datum argument);

/* The settings, and nothing else of its environment, that a process of ours shall see; worker.c. */
extern void blob_autogc_fix_settings(const char *application_name);

/*
 * orphans.c: this database's store, as the committed catalogs know it, in a transaction that
 * began after what is to be judged.  Waits for nobody.  False if it cannot be told: somebody has
 * the map locked, or the extension is there without its map.
 */
extern bool blob_autogc_find_store(BlobStoreId *store, bool *exists);

/*
 * orphans.c: remove the directories of stores that this database had before its extension was
 * dropped.  Outside of a transaction.  False if there are some that could not be decided on yet.
 */
extern bool blob_autogc_remove_orphans(void);

/*
 * vacuum.c: vacuum the tables that are due for it, for the dead keys of their indexes.  Outside of
 * a transaction; the last thing that a process of ours does.  True if one was vacuumed.
 */
extern bool blob_autogc_vacuum_tables(void);

#endif							/* BLOB_AUTOGC_LAUNCHER_H */
