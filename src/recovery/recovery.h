/*
 * recovery/recovery.h
 *	  Registration of the WAL resource manager.
 */
#ifndef BLOB_RECOVERY_H
#define BLOB_RECOVERY_H

/* Register the resource manager; only while shared_preload_libraries are loaded. */
extern void blob_recovery_register(void);

#endif							/* BLOB_RECOVERY_H */
