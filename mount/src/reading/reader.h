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

#endif							/* READER_H */
