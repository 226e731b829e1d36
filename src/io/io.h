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

#endif							/* BLOB_IO_H */
