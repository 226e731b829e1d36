/*
 * sources/trust.h
 *	  Whose functions the statements of the program run.
 */
#ifndef TRUST_H
#define TRUST_H

#include "sources/source.h"

/*
 * Find out what the extensions have, now and on each connection that is made later, which
 * must have the same.  Ends the program with a message if functions of a role that the session's
 * role need not trust would run: of the file system, or of source->relation.
 */
void trust_begin(struct source *source, struct connection *connection);
void trust_owner(struct source *source, struct connection *connection);

/* The same of a table: its owner may make a view of that name while it is mounted.  A server that
 * can do so is told not to read views. */
void trust_table_only(struct source *source, struct connection *connection, const char *relation);

#endif							/* TRUST_H */
