/*
 * kernel/pages.h
 *	  Pages that the kernel drops because content has changed elsewhere.
 *
 * The kernel may wait for a request while it drops pages, so no request may tell it: a thread does.
 */
#ifndef PAGES_H
#define PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuse_req;
struct fuse_session;
struct pages;

/* each_second: what else the thread does, about once a second; NULL: nothing. */
struct pages *pages_create(void (*each_second) (void *context), void *context);
void pages_start(struct pages *pages, struct fuse_session *session);	/* after the fork */
void pages_stop(struct pages *pages);

/* The kernel shall drop the pages of a node. */
void pages_drop(struct pages *pages, uint64_t id);

/*
 * Reply to a request that has written so many bytes there, after the kernel has dropped their pages.
 * The request must not come from pages itself, for which the kernel would wait.
 */
void pages_reply_write(struct pages *pages, struct fuse_req *request, uint64_t id, int64_t offset,
					   size_t bytes);

/* Whether the kernel has no pages of the node but those of its content: not until it was told. */
bool pages_are_right(struct pages *pages, uint64_t id);

#endif							/* PAGES_H */
