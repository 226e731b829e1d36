/*
 * requests/lock.h
 *	  Locks of files, with -o locks=db.
 */
#ifndef LOCK_H
#define LOCK_H

#include "requests/mount.h"

/* A descriptor was closed: the locks of its process are gone.  The last one: those of flock().  The
 * mount has mount->writer->locks. */
void lock_closed(struct mount *mount, const struct node *node, const struct fuse_file_info *info);
void lock_released(struct mount *mount, const struct node *node,
				   const struct fuse_file_info *info);

#endif							/* LOCK_H */
