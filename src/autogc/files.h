/*
 * autogc/files.h
 *	  Segment files that are missing when the server starts.
 */
#ifndef BLOB_AUTOGC_FILES_H
#define BLOB_AUTOGC_FILES_H

/*
 * Look whether this database's store has the files of all its content, and log a WARNING if not.
 * Outside of a transaction.  False if the map could not be locked without waiting, so that the
 * caller should try again later.
 */
extern bool blob_autogc_check_files(void);

#endif							/* BLOB_AUTOGC_FILES_H */
