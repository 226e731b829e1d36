/*
 * sources/table_source.h
 *	  A table or view as a source: its statements.
 */
#ifndef TABLE_SOURCE_H
#define TABLE_SOURCE_H

#include "sources/source.h"

enum
{
	LIST_ROWS = 1000,
	GROUP_ROWS = 10000,
	FILE_COLUMNS = 4			/* size, version, mtime, mode */
};

struct table_source
{
	struct source source;
	char	   *base;			/* a subquery */
	char	   *collate;		/* that makes the order of paths that of their bytes */
	const char *prefix;			/* of all paths */
	bool		bytea;
	bool		ordered;		/* there is an index */
	struct timespec mounted;
	int			lookup;			/* statements */
	int			list_below;
	int			list_all;
	int			read;
	int			batch_below;
	int			batch_all;
	int			pin;
};

/* Find out about the table, on a connection at the start: columns, types, owner, index.  Ends the
 * program with a message if it cannot be shown. */
void table_source_begin(struct table_source *table, struct connection *connection);

/* Add the statements, when it is known whether there are pins. */
void table_source_prepare(struct table_source *table);

#endif							/* TABLE_SOURCE_H */
