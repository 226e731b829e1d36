/*
 * requests/change.h
 *	  Changes of names.
 */
#ifndef CHANGE_H
#define CHANGE_H

#include "requests/mount.h"
#include "writing/writer.h"

/* For CREATE: parameters 1 to 3 of a call that makes an inode, and its number; those of create()
 * behind them; attributes of an inode whose making was committed while its answer was lost. */
int begin_inode(struct writer *writer, struct parameters *parameters, struct node *parent,
				const char *name, int64_t *number);
void parameters_of_file(struct parameters *parameters, fuse_req_t request, mode_t mode);
int look_up_made(struct writer *writer, struct node *parent, const char *name,
				 struct outcome *outcome);

#endif							/* CHANGE_H */
