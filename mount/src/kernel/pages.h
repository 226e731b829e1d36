/*
 * kernel/pages.h
 *	  Pages that the kernel drops because content has changed elsewhere.
 *
 * The kernel may wait for a request while it drops pages, so no request may tell it: a thread does.
 */
#ifndef PAGES_H
#define PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct fuse_session;
struct pages;

/* each_second: what else the thread does, about once a second. */
struct pages *pages_create(void (*each_second) (void *context), void *context);
void pages_start(struct pages *pages, struct fuse_session *session);	/* after the fork */
void pages_stop(struct pages *pages);

/* The kernel shall drop the pages of some bytes of a node; 0 bytes: of all from the offset on. */
void pages_drop(struct pages *pages, uint64_t id, int64_t offset, int64_t bytes);

/* Whether the kernel has no pages of the node but those of its content: not until it was told. */
bool pages_are_right(struct pages *pages, uint64_t id);

#endif							/* PAGES_H */
