/*
 * requests/operations.h
 *	  Each file of this folder puts its requests into the kernel's table.
 */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include "requests/mount.h"

void lookup_operations(struct fuse_lowlevel_ops *operations);
void file_operations(struct fuse_lowlevel_ops *operations);
void directory_operations(struct fuse_lowlevel_ops *operations);
void attributes_operations(struct fuse_lowlevel_ops *operations, bool writes);

/* With mount->writer. */
void change_operations(struct fuse_lowlevel_ops *operations);
void write_operations(struct fuse_lowlevel_ops *operations);
void lock_operations(struct fuse_lowlevel_ops *operations);

#endif							/* OPERATIONS_H */
