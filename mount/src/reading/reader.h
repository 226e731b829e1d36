/*
 * reading/reader.h
 *	  The reader: content of nodes, read for the kernel and for working copies.
 */
#ifndef READER_H
#define READER_H

#include "sources/source.h"

struct reader;

struct reader *read_create(struct source *source, struct tree *tree, const struct options *options);
void read_start(struct reader *reader);		/* its threads, after the fork */
void read_stop(struct reader *reader);		/* before the tree and the source go */

/* A handle is opened: from now on the version can be read until read_close().  ESTALE: the name has
 * another version now, the kernel should look it up again. */
int read_open(struct reader *reader, struct node *node);
void read_close(struct reader *reader, struct node *node);

/* read_open() for some seconds, without a handle. */
int read_keep(struct reader *reader, struct node *node);

/* A function, called without locks when these seconds are over; set before read_start(). */
typedef void (*read_expired) (void *context, struct node *node);
void read_on_expiry(struct reader *reader, read_expired expired, void *context);

/* The node has another version now: what kept the old one readable for its handles is dropped, and
 * the new one is kept. */
void read_changed(struct reader *reader, struct node *node);

#endif							/* READER_H */
