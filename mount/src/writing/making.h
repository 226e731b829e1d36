/*
 * writing/making.h
 *	  Files that are made when they are closed, or when a request needs them before.
 */
#ifndef MAKING_H
#define MAKING_H

#include "writing/births.h"

/*
 * Under the copy's lock: make the file.  0 or an errno.  Afterwards the copy is changed if content
 * remains to be sent: without with_content, or if the name was there.
 */
int birth_make(struct writer *writer, struct copy *copy, bool with_content, bool is_durable);

/* Whether the node's file is not made yet; if so, its mode and times of change and access are
 * these, unless NULL. */
bool birth_set_attributes(struct writer *writer, struct node *node, const mode_t *mode,
						  const struct timespec *mtime, const struct timespec *atime);
bool birth_is_of(struct writer *writer, struct node *node);

/* The attributes of a name if it is that of such a file. */
bool birth_look_up(struct writer *writer, const struct node *directory, const char *name,
				   struct attributes *attributes);

/* The name is not at the server: true if it was that of such a file, which has no name now. */
bool birth_unlink(struct writer *writer, const struct node *directory, const char *name);

/*
 * Before a request that needs it: make that of a name in a directory, or all in it (NULL); all of a
 * snapshot's number; that of a node; those that are open for long.
 */
void births_make(struct writer *writer, const struct node *directory, const char *name);
void births_make_all(struct writer *writer, int64_t snapshot);
void births_make_node(struct writer *writer, struct node *node);
void births_make_due(struct writer *writer);

/*
 * A name was added to a directory, by a call with this outcome.  The directory has the inode's time
 * of change then, but in a group its times are written by the first call only.
 */
void note_entry(struct writer *writer, uint64_t directory, int64_t snapshot,
				const struct outcome *outcome);

#endif							/* MAKING_H */
