/*
 * autogc/load.h
 *	  After a start, a worker loads the free space of its database, before a session needs it.
 */
#ifndef BLOB_AUTOGC_LOAD_H
#define BLOB_AUTOGC_LOAD_H

/*
 * Load the rest of the free space of this database's store, if it has one.  Outside of a
 * transaction.  False if some is left for another look: a command needs the database, or has the
 * map locked.  ERROR if the map is damaged, or files are missing.
 */
extern bool blob_autogc_load_store(void);

#endif							/* BLOB_AUTOGC_LOAD_H */
