/*
 * autogc/vacuum.h
 *	  VACUUM of tables whose dead index keys hold values.
 */
#ifndef BLOB_AUTOGC_VACUUM_H
#define BLOB_AUTOGC_VACUUM_H

#include "postgres.h"

/*
 * Vacuum the tables that are due for it, for the dead keys of their indexes, and let another worker
 * free what that has set free.  Outside of a transaction.  False if there is none, or another
 * process is at it.  Otherwise it is the last thing that the process does, since functions of users
 * may have run.
 */
extern bool blob_autogc_vacuum_tables(void);

#endif							/* BLOB_AUTOGC_VACUUM_H */
