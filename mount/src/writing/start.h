/*
 * writing/start.h
 *	  Beginning and end of the writer of a mount.
 */
#ifndef START_H
#define START_H

#include "writing/writer.h"

/* Before threads run.  Ends the program with a message if it cannot write. */
struct writer *writer_create(struct source *source, struct tree *tree, struct reader *reader,
							 struct notifier *notifier);
void writer_start(struct writer *writer, struct fuse_session *session); /* after the fork */
void writer_destroy(struct writer *writer);

#endif							/* START_H */
