/*
 * sql/check_progress.h
 *	  Shared memory of view blobext_check_progress.
 */
#ifndef BLOB_SQL_CHECK_PROGRESS_H
#define BLOB_SQL_CHECK_PROGRESS_H

extern void blob_check_progress_shmem_request(void);
extern void blob_check_progress_shmem_init(void);

#endif							/* BLOB_SQL_CHECK_PROGRESS_H */
