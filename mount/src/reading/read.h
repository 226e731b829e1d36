/*
 * reading/read.h
 *	  Content of nodes: small values whole, larger ones in chunks, some ahead.
 */
#ifndef READ_H
#define READ_H

#include <stddef.h>
#include <stdint.h>

#include "common/tree.h"
#include "sources/source.h"

enum
{
	/* A value up to this comes whole with its first read. */
	SMALL_BYTES = 128 * 1024,
	/* Bytes that are fetched for a read in the middle of a larger value. */
	BLOCK_BYTES = 64 * 1024,
	CHUNK_BYTES = 1024 * 1024
};

struct reader;
struct content;					/* counted bytes in the cache */

/* Bytes for a reply; read_done() gives them back. */
struct range
{
	const char *data;
	size_t		length;
	struct content *content;	/* of the cache, or NULL: */
	struct buffer buffer;
};

/* cacheable: the kernel sends OPEN and RELEASE, so that values can be kept while they are open. */
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

/* Bytes of the node's version; fewer than asked for only at its end.  Asks for what a sequential
 * reader will want next. */
int read_range(struct reader *reader, struct node *node, int64_t offset, size_t length,
			   struct range *range);
void read_done(struct reader *reader, struct range *range);

#endif							/* READ_H */
