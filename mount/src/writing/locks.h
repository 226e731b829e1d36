/*
 * writing/locks.h
 *	  -o locks=db: locks of files that all mounts of a file system share.
 */
#ifndef LOCKS_H
#define LOCKS_H

#include "writing/writer.h"

struct locks;

struct locks *locks_create(struct mount *mount);
void locks_destroy(struct locks *locks);

/* Put the requests for locks into the table. */
void locks_operations(struct fuse_lowlevel_ops *operations);

/* A descriptor was closed: the locks of its process are gone.  The last one: those of flock(). */
void locks_closed(struct mount *mount, const struct node *node, const struct fuse_file_info *info);
void locks_released(struct mount *mount, const struct node *node,
					const struct fuse_file_info *info);

#endif							/* LOCKS_H */
