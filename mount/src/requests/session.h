/*
 * requests/session.h
 *	  The session with the kernel: the loop that serves its requests.
 */
#ifndef SESSION_H
#define SESSION_H

#include "requests/mount.h"

/* Serve requests until the file system is unmounted; 0, or 1 after an error. */
int session_run(struct mount *mount, struct fuse_args *arguments);

#endif							/* SESSION_H */
