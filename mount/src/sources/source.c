/*
 * sources/source.c
 *	  What all sources use.
 */
#include "sources/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/query.h"
#include "connections/values.h"

void
buffer_free(struct buffer *buffer)
{
	if (buffer->result != NULL)
		PQclear(buffer->result);
	else
		free(buffer->data);
	memset(buffer, 0, sizeof(*buffer));
}

void
listing_clear(struct listing_position *position)
{
	free(position->after);
	memset(position, 0, sizeof(*position));
}

char *
source_ask(struct connection *connection, const char *sql, int count, const char *const *values)
{
	char	   *error = NULL;
	char	   *answer = ask_once(connection->pg, sql, count, values, &error);

	if (error != NULL)
		fatal("%s", error);
	return answer;
}

int
source_add_statement(struct source *source, char *sql, int columns, int rows)
{
	int			statement = pool_add_statement(source->pool, sql, columns, rows);

	free(sql);
	return statement;
}

int
source_ask_value(struct source *source, int slot, int statement,
				 const struct parameters *parameters, struct buffer *buffer)
{
	PGresult   *result;
	int			error = query_run(source->pool, slot, statement, parameters, &result);

	if (error != 0)
		return error;
	memset(buffer, 0, sizeof(*buffer));
	if (field_is_null(result, 0, 0))
	{
		PQclear(result);
		return ESTALE;
	}
	/* The result's own bytes, which are only read. */
	buffer->data = (char *) field_bytes(result, 0, 0, &buffer->length);
	buffer->result = result;
	return 0;
}

int
source_size_text(const struct node *node, struct buffer *buffer)
{
	buffer->data = format_string("%lld", (long long) node->attributes.size);
	buffer->length = strlen(buffer->data);
	return 0;
}

int
source_slot(const struct source *source, const struct node *node)
{
	return node->attributes.size > BATCH_FILE_BYTES ?
		(int) (node->id % source->options->connections) : -1;
}
