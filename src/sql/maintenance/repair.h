/*
 * sql/maintenance/repair.h
 *	  The worker that repairs damaged pages of a database from another server.
 */
#ifndef BLOB_SQL_REPAIR_H
#define BLOB_SQL_REPAIR_H

#include "postgres.h"

/* Its entry point, which autogc/repair.c names; the argument is the database. */
extern PGDLLEXPORT void blob_repair_worker_main(Datum argument);

#endif							/* BLOB_SQL_REPAIR_H */
