/*
 * requests/handle.h
 *	  Open files.
 */
#ifndef HANDLE_H
#define HANDLE_H

#include "requests/mount.h"

/* An open file. */
struct handle
{
	struct node *node;
	int			flags;			/* of open */
	struct connection *transaction;	/* its own, with isolation=snapshot */
	struct copy *copy;			/* it writes, or was opened while the working copy was there */
	bool		writes;			/* what the copy has goes to the server when it is closed */
};

struct handle *handle_create(struct mount *mount, struct node *node, int flags);
void handle_release(struct mount *mount, struct handle *handle);

/* That of a request; NULL: with -o noopen. */
struct handle *handle_of(const struct fuse_file_info *info);

/* Whether a program runs of which this is the file: such a file must not be truncated. */
bool node_is_executed(const struct node *node);

/* Replies to OPEN; a reply that does not arrive ends the handle. */
void handle_reply(fuse_req_t request, struct handle *handle, struct fuse_file_info *info);

/*
 * isolation=snapshot: an open file keeps a connection, in a transaction that sees its version.  The
 * snapshot of the transaction is that of its first statement.
 */
int handle_begin_transaction(struct mount *mount, struct node *node,
							 struct connection **transaction);
void handle_end_transaction(struct connection *transaction);

#endif							/* HANDLE_H */
