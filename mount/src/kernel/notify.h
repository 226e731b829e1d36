/*
 * kernel/notify.h
 *	  Names that the kernel drops because the server notified of a change.
 *
 * Without the option "notify" there is no notifier, and all but notify_timeout() do nothing.
 */
#ifndef NOTIFY_H
#define NOTIFY_H

#include <stdint.h>

struct attributes;
struct mount;
struct node;

/* Start listening if the option says so; after the fork. */
void notify_start(struct mount *mount);
void notify_stop(struct mount *mount);

/* Number of notifications so far. */
uint64_t notify_count(struct mount *mount);

/* This mount has committed content: look-ups before that may have found the version before. */
void notify_committed(struct mount *mount);

/* The calling thread's names are as old as this number of notifications. */
void notify_begin(uint64_t count);

/* Around the calls of notify_timeout() of a request, and its reply. */
void notify_enter(struct mount *mount);
void notify_leave(struct mount *mount);

/* Seconds for which the kernel may trust a name, which it will be told to drop. */
double notify_timeout(struct mount *mount, const struct node *parent, const char *name,
					  const struct attributes *attributes);

#endif							/* NOTIFY_H */
