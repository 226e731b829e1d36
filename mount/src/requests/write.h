/*
 * requests/write.h
 *	  Files that are made and written.
 */
#ifndef WRITE_H
#define WRITE_H

#include "requests/mount.h"

/* OPEN for writing, or with O_TRUNC, or while the node has a working copy: replies. */
void write_open(fuse_req_t request, struct node *node, struct fuse_file_info *info);

/* READ of a node's working copy: replies; false: there is none, and the node is read as others. */
bool write_read(fuse_req_t request, struct node *node, size_t size, off_t offset);

#endif							/* WRITE_H */
