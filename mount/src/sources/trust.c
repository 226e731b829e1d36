/*
 * sources/trust.c
 *	  Whose functions the statements of the program run: asked on each connection, for the database
 *	  may have changed since the last one.
 */
#include "sources/trust.h"

#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "sources/pins.h"

static bool
is_same(const char *one, const char *other)
{
	return one == NULL || other == NULL ? one == other : strcmp(one, other) == 0;
}

/* The reason not to use a connection (allocated), or NULL. */
static char *
find_fault(struct source *source, PGconn *pg)
{
	struct members members;
	const char *schema = source->options->fs;
	char	   *stranger = NULL;
	char	   *fault = NULL;

	members_ask(pg, schema != NULL, &members);
	if (!is_same(members.blobext, source->members.blobext) ||
		!is_same(members.lacks, source->members.lacks) ||
		(source->members.has_blobfs && !members.has_blobfs))
		fault = copy_string("the extensions are not those that were there when it was mounted");
	members_clear(&members);
	if (fault == NULL && (schema != NULL || source->relation != NULL))
		stranger = members_stranger(pg, schema, source->relation);
	if (stranger != NULL)
		fault = format_string("functions of role \"%s\" would run with the rights of this role, "
							  "which has more: mount as role \"%s\", or as another one without "
							  "rights of its own", stranger, stranger);
	free(stranger);
	return fault;
}

/* pool_greeting */
static bool
greet(struct connection *connection, void *context)
{
	struct source *source = context;
	char	   *fault = find_fault(source, connection->pg);
	bool		good = fault == NULL;

	if (!good && PQstatus(connection->pg) == CONNECTION_OK)
		message("a connection is not used: %s", fault);
	free(fault);
	return good && pins_join(source, connection);
}

void
trust_begin(struct source *source, struct connection *connection)
{
	members_ask(connection->pg, source->options->fs != NULL, &source->members);
	source->blobext = source->members.blobext;
	pool_set_greeting(source->pool, greet, source);
}

void
trust_owner(struct source *source, struct connection *connection)
{
	char	   *fault = find_fault(source, connection->pg);

	if (fault != NULL)
		fatal("%s", fault);
}

/* The setting is that of minor versions of August 2024 and later. */
void
trust_table_only(struct source *source, struct connection *connection, const char *relation)
{
	static const char sql[] =
		"SELECT pg_catalog.set_config(s.name, 'view', false) FROM pg_catalog.pg_settings AS s"
		" WHERE s.name OPERATOR(pg_catalog.=) 'restrict_nonsystem_relation_kind'";

	char	   *stranger = members_stranger(connection->pg, NULL, relation);

	if (stranger != NULL)
		pool_set_settings(source->pool, connection, sql);
	free(stranger);
}
