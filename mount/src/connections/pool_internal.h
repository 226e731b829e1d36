/*
 * connections/pool_internal.h
 *	  What take.c and connect.c know of the pool.
 */
#ifndef POOL_INTERNAL_H
#define POOL_INTERNAL_H

#include <pthread.h>
#include <time.h>

#include "connections/pool.h"

enum
{
	MAX_STATEMENTS = 128
};

struct pool
{
	char	   *conninfo;
	double		timeo;
	int			size;
	struct connection *connections;
	struct statement statements[MAX_STATEMENTS];
	int			statement_count;
	const char *settings;
	const char *snapshot;		/* NULL: each statement is a transaction */
	bool		snapshot_is_gone;	/* atomic */
	pool_greeting greeting;
	void	   *greeting_context;
	pthread_mutex_t lock;
	pthread_cond_t given;		/* a connection was given back */
	time_t		message_at;		/* when a lost server was last written of */
	bool		is_away;		/* the server, as pool_cut() says; atomic */
};

#endif							/* POOL_INTERNAL_H */
