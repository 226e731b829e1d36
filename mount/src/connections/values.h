/*
 * connections/values.h
 *	  Parameters of statements, and fields of their answers, in the server's binary form.
 */
#ifndef VALUES_H
#define VALUES_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum
{
	MAX_PARAMETERS = 24,
	/* OIDs of types, which are the same on all servers. */
	OID_BYTEA = 17,
	OID_INT8 = 20
};

/* Parameters of a statement.  Bytes and text are not copied. */
struct parameters
{
	int			count;
	const char *values[MAX_PARAMETERS];
	int			lengths[MAX_PARAMETERS];
	uint64_t	numbers[MAX_PARAMETERS];	/* in network order */
};

void parameter_int8(struct parameters *parameters, int64_t value);
void parameter_int4(struct parameters *parameters, int32_t value);
void parameter_bool(struct parameters *parameters, bool value);
void parameter_bytes(struct parameters *parameters, const void *data, size_t length);
void parameter_text(struct parameters *parameters, const char *text);
void parameter_null(struct parameters *parameters);

/*
 * The binary form of an array of one dimension, for parameter_bytes(); bytes: of all elements.
 * Each returns where the next one goes.  Behind array_add() the caller puts the element's bytes.
 */
#define ARRAY_BYTES(count, bytes) (20 + 4 * (size_t) (count) + (size_t) (bytes))
char	   *array_begin(char *to, uint32_t type, uint32_t count);
char	   *array_add(char *to, uint32_t length);
char	   *array_add_int8(char *to, int64_t value);

/*
 * Fields of a result, in binary.  They are read by these functions only: a row, a column or a
 * length that is not there, and NULL, is 0 or the empty string.
 */
bool field_is_null(const PGresult *result, int row, int column);
const char *field_bytes(const PGresult *result, int row, int column, size_t *length);
const char *field_text(const PGresult *result, int row, int column);
bool field_has_length(const PGresult *result, int row, int column, size_t expected);
int64_t field_int8(const PGresult *result, int row, int column);
int32_t field_int4(const PGresult *result, int row, int column);
bool field_bool(const PGresult *result, int row, int column);

/* Seconds of a timestamptz since 1970. */
struct timespec field_time(const PGresult *result, int row, int column);

#endif							/* VALUES_H */
