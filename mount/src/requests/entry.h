/*
 * requests/entry.h
 *	  Nodes of requests, and replies that name nodes.
 */
#ifndef ENTRY_H
#define ENTRY_H

#include "requests/mount.h"

struct mount *request_mount(fuse_req_t request);

/* The node of a request, which the kernel knows.  Begins the request: waits of this thread end when
 * the kernel interrupts it. */
struct node *request_node(fuse_req_t request, fuse_ino_t id);

/* A look-up's reply: enters the node, counts the look-up, and takes it back if the kernel did not
 * get the reply.  For LOOKUP, MKNOD, MKDIR, SYMLINK, LINK. */
void reply_entry(fuse_req_t request, struct node *parent, const char *name,
				 const struct attributes *attributes);

/* The same without a reply: fills the entry; the node has one more look-up. */
struct node *fill_entry(struct mount *mount, struct node *parent, const char *name,
						const struct attributes *attributes, struct fuse_entry_param *entry);

/* stat() of a node, as its working copy has it if there is one; and that as a reply. */
void node_stat(struct mount *mount, struct node *node, struct stat *stat);
void reply_attributes(fuse_req_t request, struct node *node);

/* Seconds for which the kernel trusts attributes. */
double attributes_timeout(const struct mount *mount);

#endif							/* ENTRY_H */
