/*
 * io/io.h
 *	  Shared memory of the whole folder: one request, one initialisation.
 */
#ifndef BLOB_IO_H
#define BLOB_IO_H

/* From shmem_request_hook, after the settings were defined: memory and LWLock tranches. */
extern void blob_io_shmem_request(void);

/* From shmem_startup_hook; the caller holds AddinShmemInitLock. */
extern void blob_io_shmem_init(void);

/*
 * Register the callbacks for the exit of this process, if that has not been done yet.
 *
 * To be called at a moment when no caller has registered a temporary exit callback of its own.
 * PostgreSQL can take back only the latest callback, and the first read of content may happen below
 * a caller that has one (VACUUM of an index, whose comparisons read).
 */
extern void blob_io_process_begins(void);

#endif							/* BLOB_IO_H */
