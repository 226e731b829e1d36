/*
 * sources/pins.c
 *	  Pins of the mount: versions that the server keeps because files are open here.
 *
 * The extension blobfs keeps them in an unlogged table, by mount and handle (mount/sql/README.md).
 * A mount attaches once, and each of its connections joins, which tells the server that the mount
 * lives.  After a crash of the server the table is empty: joining fails, the mount attaches again,
 * and its epoch is another one.
 */
#include "sources/pins.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "connections/answer.h"
#include "connections/query.h"

enum
{
	KEY_BYTES = 16,
	/* The mount may be forgotten again. */
	PIN_ATTEMPTS = 3
};

struct pins
{
	pthread_mutex_t lock;		/* of the following three */
	uint64_t	epoch;
	int64_t		mount;
	char		key[KEY_BYTES];
	int			read_statement;
	int			remove_statement;
};

/* One statement on a connection that is not in use yet. */
static PGresult *
execute(struct connection *connection, const char *sql, const struct parameters *parameters)
{
	static const int binary[3] = {1, 1, 1};
	struct query query = {
		.count = parameters->count,
		.values = parameters->values,
		.lengths = parameters->lengths,
		.formats = binary,
		.is_binary = true
	};

	return query_once(connection->pg, sql, &query);
}

/* Under the lock. */
static bool
attach(struct pins *pins, struct connection *connection)
{
	struct parameters parameters = {0};
	PGresult   *result = execute(connection, "SELECT a.mount, a.key FROM"
								 " blobfs.attach('blobfs'::pg_catalog.text) AS a", &parameters);
	bool		attached = field_has_length(result, 0, 0, sizeof(pins->mount)) &&
		field_has_length(result, 0, 1, KEY_BYTES);

	if (attached)
	{
		pins->mount = field_int8(result, 0, 0);
		memcpy(pins->key, field_text(result, 0, 1), KEY_BYTES);
		pins->epoch++;
	}
	else
		message("open files are not kept: %s", PQresultErrorMessage(result));
	PQclear(result);
	return attached;
}

/* Under the lock: join, or attach again if the server does not know the mount any more. */
static void
join_or_attach(struct pins *pins, struct connection *connection)
{
	struct parameters parameters = {0};
	PGresult   *result;

	parameter_int8(&parameters, pins->mount);
	parameter_bytes(&parameters, pins->key, KEY_BYTES);
	result = execute(connection, "SELECT blobfs.join($1::bigint, $2::pg_catalog.uuid)",
					 &parameters);
	if (field_has_length(result, 0, 0, 1) && !field_bool(result, 0, 0))
	{
		message("the server has lost what it kept of replaced files that are open here");
		attach(pins, connection);
	}
	PQclear(result);
}

bool
pins_join(struct source *source, struct connection *connection)
{
	struct pins *pins = source->pins;

	if (pins == NULL)
		return true;
	pthread_mutex_lock(&pins->lock);
	join_or_attach(pins, connection);
	pthread_mutex_unlock(&pins->lock);
	return PQstatus(connection->pg) == CONNECTION_OK;
}

/* Whether there are pins for this role, on this server. */
static bool
are_available(struct source *source, struct connection *connection)
{
	struct parameters parameters = {0};
	PGresult   *result;
	bool		available;

	if (!source->members.has_blobfs)
		return false;
	result = execute(connection, "SELECT NOT pg_catalog.pg_is_in_recovery()"
					 " AND pg_catalog.has_schema_privilege('blobfs'::pg_catalog.text, 'USAGE')"
					 " AND pg_catalog.has_function_privilege("
					 "'blobfs.attach(pg_catalog.text)'::pg_catalog.text, 'EXECUTE')", &parameters);
	available = field_bool(result, 0, 0);
	PQclear(result);
	return available;
}

void
pins_create(struct source *source)
{
	struct pins *pins = allocate(sizeof(*pins));
	struct connection *connection;
	char	   *sql;

	if (source->options->nopin || source->blobext == NULL ||
		pool_take(source->pool, 0, &connection) != 0)
	{
		free(pins);
		return;
	}
	pthread_mutex_init(&pins->lock, NULL);
	if (!are_available(source, connection))
		debug("no pins: the extension blobfs is not there, or not for this role");
	else if (attach(pins, connection))
		source->has_pins = true;
	pool_give(connection);
	if (!source->has_pins)
	{
		free(pins);
		return;
	}
	sql = format_string("SELECT %s.blob_read(p, $4::bigint, $5::bigint)"
						" FROM blobfs.pinned($1::bigint, $2::pg_catalog.uuid, $3::bigint) AS p"
						" WHERE p IS NOT NULL", source->blobext);
	pins->read_statement = source_add_statement(source, sql, 1, 1);
	sql = "SELECT blobfs.unpin($1::bigint, $2::pg_catalog.uuid, $3::bigint[])";
	pins->remove_statement = pool_add_statement(source->pool, sql, 1, 1);
	source->pins = pins;
}

void
pins_destroy(struct source *source)
{
	struct pins *pins = source->pins;
	struct connection *connection;

	if (pins == NULL)
		return;
	/* Not if the server would have to be waited for: it drops what dead mounts have left. */
	if (pool_take_now(source->pool, &connection))
	{
		struct parameters parameters = {0};

		parameter_int8(&parameters, pins->mount);
		parameter_bytes(&parameters, pins->key, KEY_BYTES);
		PQclear(execute(connection, "SELECT blobfs.detach($1::bigint, $2::pg_catalog.uuid)",
						&parameters));
		pool_give(connection);
	}
	source->pins = NULL;
	free(pins);
}

uint64_t
pins_epoch(struct source *source)
{
	uint64_t	epoch;

	if (source->pins == NULL)
		return 0;
	pthread_mutex_lock(&source->pins->lock);
	epoch = source->pins->epoch;
	pthread_mutex_unlock(&source->pins->lock);
	return epoch;
}

/*
 * Parameters 1 to 3 of a statement: mount, key, handle.  The key is not copied: it changes with the
 * epoch only, and then the statement fails or pins under the new one.
 */
static void
add_mount(struct source *source, struct parameters *parameters, int64_t handle)
{
	struct pins *pins = source->pins;

	pthread_mutex_lock(&pins->lock);
	parameter_int8(parameters, pins->mount);
	pthread_mutex_unlock(&pins->lock);
	parameter_bytes(parameters, pins->key, KEY_BYTES);
	parameter_int8(parameters, handle);
}

/* The answer of a statement that pins.  The server may have forgotten the mount, which attaches
 * again then: EAGAIN. */
static int
judge(struct source *source, const PGresult *result)
{
	struct connection *connection;
	int			error;

	if (PQntuples(result) == 0)
		return ESTALE;
	if (field_bool(result, 0, 0))
		return 0;
	error = pool_take(source->pool, -1, &connection);
	if (error != 0)
		return error;
	/* Another thread may have attached since the statement got its parameters. */
	pthread_mutex_lock(&source->pins->lock);
	join_or_attach(source->pins, connection);
	pthread_mutex_unlock(&source->pins->lock);
	pool_give(connection);
	return EAGAIN;
}

int
pins_pin(struct source *source, int statement, const struct parameters *version, int64_t handle)
{
	int			error = EAGAIN;

	for (int attempt = 0; attempt < PIN_ATTEMPTS && error == EAGAIN; attempt++)
	{
		struct parameters parameters = {0};
		PGresult   *result;

		add_mount(source, &parameters, handle);
		for (int i = 0; i < version->count; i++)
			parameter_bytes(&parameters, version->values[i], (size_t) version->lengths[i]);
		error = query_run(source->pool, -1, statement, &parameters, &result);
		if (error == 0)
		{
			error = judge(source, result);
			PQclear(result);
		}
	}
	return error;
}

int
pins_read(struct source *source, struct node *node, int64_t offset, size_t length,
		  struct buffer *buffer)
{
	struct parameters parameters = {0};

	if (source->pins == NULL)
		return ESTALE;
	add_mount(source, &parameters, node->pin);
	parameter_int8(&parameters, offset);
	parameter_int8(&parameters, (int64_t) length);
	return source_ask_value(source, -1, source->pins->read_statement, &parameters, buffer);
}

int
pins_remove(struct source *source, const int64_t *handles, int count)
{
	struct parameters parameters = {0};
	size_t		size = ARRAY_BYTES(count, count * sizeof(*handles));
	char	   *array = allocate(size);
	char	   *to = array_begin(array, OID_INT8, (uint32_t) count);
	PGresult   *result;
	int			error;

	for (int i = 0; i < count; i++)
		to = array_add_int8(to, handles[i]);
	add_mount(source, &parameters, 0);
	parameters.count--;
	parameter_bytes(&parameters, array, size);
	error = query_run(source->pool, -1, source->pins->remove_statement, &parameters, &result);
	if (error == 0)
		PQclear(result);
	free(array);
	return error;
}
