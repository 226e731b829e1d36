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
 * Registers what is to be done when this process exits, if that was not yet.  To be called at a
 * moment when no caller has an exit callback of its own on top, for a while: PostgreSQL refuses to
 * take back one that is not the latest, and content may be read first below such a caller (VACUUM
 * of an index, whose comparisons read).
 */
extern void blob_io_process_begins(void);

#endif							/* BLOB_IO_H */
