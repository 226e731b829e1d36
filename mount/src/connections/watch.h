/*
 * connections/watch.h
 *	  A thread that asks whether the server is there while statements take long.
 *
 * A server that is stopped, or whose machine stands still, keeps its connections, and a statement
 * may take as long as it likes.  So when a connection has been taken for half of "timeo", the
 * server is asked by another one, as often as it takes.  A server that answers is one that works.
 * If it has answered nothing for "timeo", connections are cut (pool_cut()).  One process of the
 * server that stands still while others answer is not told from one that works.
 */
#ifndef WATCH_H
#define WATCH_H

#include "connections/pool.h"

struct watch;

/* The thread runs from now on; after the program has gone into the background. */
struct watch *watch_start(struct pool *pool, const struct options *options);
void watch_stop(struct watch *watch);

#endif							/* WATCH_H */
