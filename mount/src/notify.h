/*
 * notify.h
 *	  Names that the kernel drops because the server notified of a change.
 */
#ifndef NOTIFY_H
#define NOTIFY_H

struct mount;

/* Start listening if the option says so; after the fork. */
void notify_start(struct mount *mount);
void notify_stop(struct mount *mount);

#endif							/* NOTIFY_H */
