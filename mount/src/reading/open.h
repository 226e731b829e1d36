/*
 * reading/open.h
 *	  Open files: their versions stay readable.
 */
#ifndef OPEN_H
#define OPEN_H

#include "common/tree.h"

struct reader;

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

#endif							/* OPEN_H */
