/*
 * reading/range.h
 *	  Content of nodes: small values whole, larger ones in chunks, some ahead.
 */
#ifndef RANGE_H
#define RANGE_H

#include <stddef.h>
#include <stdint.h>

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

/* Bytes of the node's version; fewer than asked for only at its end.  Asks for what a sequential
 * reader will want next. */
int read_range(struct reader *reader, struct node *node, int64_t offset, size_t length,
			   struct range *range);
void read_done(struct reader *reader, struct range *range);

#endif							/* RANGE_H */
