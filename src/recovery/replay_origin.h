/*
 * recovery/replay_origin.h
 *	  Does this server replay another one's WAL?  And a warning to clients that copy this one.
 */
#ifndef BLOB_REPLAY_ORIGIN_H
#define BLOB_REPLAY_ORIGIN_H

/* When shared memory is made, before recovery: look at the state of the data directory. */
extern void blob_replay_origin_look(void);

/*
 * A client was authenticated (STATUS_OK) or not: warn one that streams WAL from a server that does
 * not log content.
 */
extern void blob_replay_origin_warn_walsender(int status);

/*
 * In redo: whether the present record may be of another server, so that unlogged content may be
 * missing in this server's files.  False in the crash recovery of a server.
 */
extern bool blob_replay_is_foreign(void);

#endif							/* BLOB_REPLAY_ORIGIN_H */
