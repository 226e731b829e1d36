/*
 * read.h
 *	  Content of nodes: small values whole, larger ones in chunks, some ahead.
 */
#ifndef READ_H
#define READ_H

#include <stddef.h>
#include <stdint.h>

#include "source.h"
#include "tree.h"

enum
{
	/* A value up to this comes whole with its first read. */
	SMALL_BYTES = 128 * 1024,
	CHUNK_BYTES = 1024 * 1024
};

struct reader;
struct content;					/* counted bytes in the cache */

/* Bytes for a reply; read_done() gives them back. */
struct range
{
	const char *data;
	size_t		length;
	struct content *content;	/* NULL: buffer */
	struct buffer buffer;
};

struct reader *read_create(struct source *source, struct tree *tree, const struct options *options);
void read_destroy(struct reader *reader);
void read_start(struct reader *reader);		/* its threads, after the fork */

/* A handle is opened: from now on the version can be read until read_close().  ESTALE: the name has
 * another version now, look it up again. */
int read_open(struct reader *reader, struct node *node);
void read_close(struct reader *reader, struct node *node);

/* Bytes of the node's version.  Fewer than asked for only at its end, or at a chunk's if the caller
 * allows it not: all are there. */
int read_range(struct reader *reader, struct node *node, int64_t offset, size_t length,
			   struct range *range);
void read_done(struct reader *reader, struct range *range);

/* Ask for what a sequential reader will want next; never waits. */
void read_ahead(struct reader *reader, struct node *node, int64_t end);

#endif							/* READ_H */
