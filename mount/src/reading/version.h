/*
 * reading/version.h
 *	  Bytes of a version, wherever they still are.
 */
#ifndef VERSION_H
#define VERSION_H

#include "reading/cache.h"

/* All of a range, or an error: the kernel would fill missing bytes with zeros.  ESTALE: the version
 * is gone. */
int version_read(struct source *source, struct node *node, int64_t offset, size_t length,
				 struct buffer *buffer);

/*
 * Whether the node still has the version of a key.  A commit gives a node another one at any time,
 * so a statement with the node's attributes may have read the next version.
 */
bool version_is(struct node *node, const struct content_key *key);

/* version_read() of the version that the key has, for the cache; ESTALE if the node has another. */
int version_read_keyed(struct source *source, struct node *node, const struct content_key *key,
					   int64_t offset, size_t length, struct buffer *buffer);

#endif							/* VERSION_H */
