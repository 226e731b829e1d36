/*
 * connections/values.c
 *	  Parameters of statements, and fields of their answers, in the server's binary form.
 */
#include "connections/values.h"

#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

#include "common/errors.h"

/* Microseconds of the server's timestamps begin in 2000. */
static const int64_t epoch_seconds = 946684800;

static void
add_parameter(struct parameters *parameters, const void *value, size_t length)
{
	if (parameters->count == MAX_PARAMETERS)
		fatal("too many parameters");
	parameters->values[parameters->count] = value;
	parameters->lengths[parameters->count++] = (int) length;
}

void
parameter_int8(struct parameters *parameters, int64_t value)
{
	uint64_t   *number = &parameters->numbers[parameters->count];

	*number = htobe64((uint64_t) value);
	add_parameter(parameters, number, 8);
}

void
parameter_int4(struct parameters *parameters, int32_t value)
{
	uint32_t	network = htonl((uint32_t) value);
	uint64_t   *number = &parameters->numbers[parameters->count];

	memcpy(number, &network, 4);
	add_parameter(parameters, number, 4);
}

void
parameter_bool(struct parameters *parameters, bool value)
{
	uint64_t   *number = &parameters->numbers[parameters->count];

	*(char *) number = value ? 1 : 0;
	add_parameter(parameters, number, 1);
}

/* A pointer that is not NULL also for no bytes, which would be an SQL NULL. */
void
parameter_bytes(struct parameters *parameters, const void *data, size_t length)
{
	add_parameter(parameters, length > 0 ? data : "", length);
}

void
parameter_text(struct parameters *parameters, const char *text)
{
	add_parameter(parameters, text, strlen(text));
}

void
parameter_null(struct parameters *parameters)
{
	add_parameter(parameters, NULL, 0);
}

/* Dimensions, no NULLs, type, length and lower bound. */
char *
array_begin(char *to, uint32_t type, uint32_t count)
{
	uint32_t	header[] = {htonl(1), 0, htonl(type), htonl(count), htonl(1)};

	memcpy(to, header, sizeof(header));
	return to + sizeof(header);
}

char *
array_add(char *to, uint32_t length)
{
	uint32_t	network = htonl(length);

	memcpy(to, &network, sizeof(network));
	return to + sizeof(network);
}

char *
array_add_int8(char *to, int64_t value)
{
	uint64_t	network = htobe64((uint64_t) value);

	to = array_add(to, sizeof(network));
	memcpy(to, &network, sizeof(network));
	return to + sizeof(network);
}

bool
field_is_null(const PGresult *result, int row, int column)
{
	return row >= PQntuples(result) || column >= PQnfields(result) ||
		PQgetisnull(result, row, column);
}

const char *
field_bytes(const PGresult *result, int row, int column, size_t *length)
{
	*length = 0;
	if (field_is_null(result, row, column))
		return "";
	*length = (size_t) PQgetlength(result, row, column);
	return PQgetvalue(result, row, column);
}

const char *
field_text(const PGresult *result, int row, int column)
{
	size_t		length;

	return field_bytes(result, row, column, &length);
}

bool
field_has_length(const PGresult *result, int row, int column, size_t expected)
{
	size_t		length;

	field_bytes(result, row, column, &length);
	return length == expected;
}

int64_t
field_int8(const PGresult *result, int row, int column)
{
	uint64_t	network = 0;

	if (field_has_length(result, row, column, sizeof(network)))
		memcpy(&network, PQgetvalue(result, row, column), sizeof(network));
	return (int64_t) be64toh(network);
}

int32_t
field_int4(const PGresult *result, int row, int column)
{
	uint32_t	network = 0;

	if (field_has_length(result, row, column, sizeof(network)))
		memcpy(&network, PQgetvalue(result, row, column), sizeof(network));
	return (int32_t) ntohl(network);
}

bool
field_bool(const PGresult *result, int row, int column)
{
	return field_has_length(result, row, column, 1) && *field_text(result, row, column) != 0;
}

/* Times before 1970 have nanoseconds above their seconds, as all others. */
struct timespec
field_time(const PGresult *result, int row, int column)
{
	int64_t		microseconds = field_int8(result, row, column);
	int64_t		seconds = microseconds / 1000000;
	int64_t		remainder = microseconds % 1000000;
	struct timespec time;

	if (remainder < 0)
	{
		remainder += 1000000;
		seconds--;
	}
	time.tv_sec = (time_t) (seconds + epoch_seconds);
	time.tv_nsec = (long) remainder * 1000;
	return time;
}
