/*
 * kernel/notify.h
 *	  Names that the kernel drops because the server notified of a change.
 *
 * Without the option "notify" the notifier is NULL, and all of these do nothing.
 */
#ifndef NOTIFY_H
#define NOTIFY_H

#include <stdint.h>

#include "common/tree.h"
#include "connections/pool.h"

struct fuse_session;
struct notifier;

struct notifier *notify_create(struct pool *pool, struct tree *tree, const char *channel);

/* Start and stop listening; after the fork.  The notifier stays, for threads that commit. */
void notify_start(struct notifier *notifier, struct fuse_session *session);
void notify_stop(struct notifier *notifier);

/* Number of notifications so far. */
uint64_t notify_count(struct notifier *notifier);

/* This program has committed content: look-ups before that may have found the version before. */
void notify_committed(struct notifier *notifier);

/* The calling thread's names are as old as this number of notifications. */
void notify_begin(uint64_t count);

/* Around the calls of notify_timeout() of a request, and its reply. */
void notify_enter(struct notifier *notifier);
void notify_leave(struct notifier *notifier);

/* Seconds for which the kernel may trust a name, which it will be told to drop; without that, or
 * if it may be out of date already: timeout. */
double notify_timeout(struct notifier *notifier, const struct node *parent, const char *name,
					  const struct attributes *attributes, double timeout);

#endif							/* NOTIFY_H */
