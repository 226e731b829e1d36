/*
 * recovery/copies.h
 *	  Is this server replaying another one's WAL, and who makes copies of this one?
 */
#ifndef BLOB_COPIES_H
#define BLOB_COPIES_H

/* When shared memory is made, before recovery: look at the state of the data directory. */
extern void blob_copies_look(void);

/* Warn whoever streams from a server that does not log content. */
extern void blob_copies_install_hooks(void);

/*
 * In redo: whether the present record may be of another server, so that content which is not in the
 * WAL may not be in our files either.  False in the crash recovery of a server.
 */
extern bool blob_copies_replay_foreign(void);

#endif							/* BLOB_COPIES_H */
