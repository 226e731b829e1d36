/*
 * autogc/files.h
 *	  Segment files that are missing when the server starts.
 */
#ifndef BLOB_AUTOGC_FILES_H
#define BLOB_AUTOGC_FILES_H

/*
 * Look whether this database's store has the files of all its content, log a WARNING if not, and
 * note that in the schedule.  If the map cannot be locked without waiting, do nothing.  Outside of
 * a transaction.
 */
extern void blob_autogc_check_files(void);

#endif							/* BLOB_AUTOGC_FILES_H */
