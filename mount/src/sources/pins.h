/*
 * sources/pins.h
 *	  Pins of the mount, at the server: versions that are kept because files are open here.
 */
#ifndef PINS_H
#define PINS_H

#include "connections/values.h"
#include "sources/source.h"

/* Attach if the extension blobfs is there; sets source->has_pins. */
void pins_create(struct source *source);

/* On a new connection; false: it is lost.  Without pins the mount can still be read. */
bool pins_join(struct source *source, struct connection *connection);
void pins_destroy(struct source *source);

/* Which life of the server's pins this is: it changes when a crash of the server has lost them. */
uint64_t pins_epoch(struct source *source);

/*
 * Run a statement that pins a version under a number of the caller's.  Its parameters 1 to 3 are
 * mount, key and handle, behind which those of the version come.  ESTALE: the version is gone.
 */
int pins_pin(struct source *source, int statement, const struct parameters *version,
			 int64_t handle);

/* A range of a pinned value; ESTALE: it is gone. */
int pins_read(struct source *source, struct node *node, int64_t offset, size_t length,
			  struct buffer *buffer);
int pins_remove(struct source *source, const int64_t *handles, int count);

#endif							/* PINS_H */
