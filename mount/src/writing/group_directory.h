/*
 * writing/group_directory.h
 *	  The directory ".blobfs", where transactions of many files begin and end.
 */
#ifndef GROUP_DIRECTORY_H
#define GROUP_DIRECTORY_H

#include "writing/group.h"
#include "writing/writer.h"

/* Wrap the operations of the source, which then have ".blobfs", too. */
void group_directory_create(struct writer *writer);

/* The node is a directory of this module: ".blobfs" or one directly below. */
bool group_is_virtual(const struct node *node);

/* Requests below a virtual directory: 0 or an errno.  group_begin() is mkdir(). */
int group_begin(const struct node *parent, const char *name,
				struct attributes *attributes);
int group_roll_back(const struct node *parent, const char *name);
int group_commit(const struct node *parent, const char *name,
				 const struct node *new_parent);

#endif							/* GROUP_DIRECTORY_H */
