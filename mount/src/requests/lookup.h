/*
 * requests/lookup.h
 *	  Look-ups of names.
 */
#ifndef LOOKUP_H
#define LOOKUP_H

#include "requests/mount.h"

/* Note that a node had another version when it was opened than when it was looked up. */
void note_race(struct mount *mount, const struct node *node);

#endif							/* LOOKUP_H */
