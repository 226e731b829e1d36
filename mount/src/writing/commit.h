/*
 * writing/commit.h
 *	  Commits of working copies.
 */
#ifndef COMMIT_H
#define COMMIT_H

#include "writing/copy.h"

/* Under the copy's lock: send what has changed, a file that is not made included.  0 or an
 * errno. */
int copy_commit(struct writer *writer, struct copy *copy);

/* All working copies of a group: send what has changed. */
int copies_commit(struct writer *writer, int64_t snapshot);

#endif							/* COMMIT_H */
