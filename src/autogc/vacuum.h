/*
 * autogc/vacuum.h
 *	  VACUUM of tables whose dead index keys hold values.
 */
#ifndef BLOB_AUTOGC_VACUUM_H
#define BLOB_AUTOGC_VACUUM_H

#include "postgres.h"

/*
 * Vacuum the tables that are due for it, for the dead keys of their indexes.  Outside of a
 * transaction; the last thing that a process of ours does.  True if one was vacuumed.
 */
extern bool blob_autogc_vacuum_tables(void);

#endif							/* BLOB_AUTOGC_VACUUM_H */
