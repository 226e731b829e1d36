/*
 * requests/directory.h
 *	  Open directories, and their entries as the kernel asks for them.
 */
#ifndef DIRECTORY_H
#define DIRECTORY_H

#include "requests/session.h"

void directory_open(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info);
void directory_read(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset,
					struct fuse_file_info *info);
void directory_read_plus(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset,
						 struct fuse_file_info *info);
void directory_release(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info);

#endif							/* DIRECTORY_H */
