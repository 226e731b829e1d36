/*
 * autogc/repair.h
 *	  Starts the worker that repairs damaged pages, see sql/maintenance/repair.c.
 */
#ifndef BLOB_AUTOGC_REPAIR_H
#define BLOB_AUTOGC_REPAIR_H

#include "postgres.h"

/*
 * The launcher's: start a worker, if the configuration names another server, a repair is due in a
 * database that may have one, and none is under way in the whole server.
 */
extern void blob_autogc_repair_start(bool (*may_repair) (Oid database));

/* A hash of a connection string, for the list of damaged pages. */
extern uint64 blob_autogc_repair_source(const char *conninfo);

#endif							/* BLOB_AUTOGC_REPAIR_H */
