/*
 * autogc/launcher.h
 *	  The launcher: decides which databases are looked at, and starts workers for them.
 */
#ifndef BLOB_AUTOGC_LAUNCHER_H
#define BLOB_AUTOGC_LAUNCHER_H

#include "postgres.h"

/* Register the launcher; while shared_preload_libraries are loaded. */
extern void blob_autogc_launcher_register(void);

/* Its entry point. */
extern PGDLLEXPORT void blob_autogc_launcher_main(Datum argument);

#endif							/* BLOB_AUTOGC_LAUNCHER_H */
