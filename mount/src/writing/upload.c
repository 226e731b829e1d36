/*
 * writing/upload.c
 *	  Uploads: content that goes to the server in pieces, within one transaction.
 */
#include "writing/upload.h"

#include <errno.h>

#include "connections/query.h"

int
upload_query(struct connection *connection, int statement, const struct parameters *parameters,
			 int64_t *number, char *sqlstate)
{
	PGresult   *result;
	int			error = query_on(connection, statement, parameters, &result, sqlstate);

	if (error != 0)
		return error;
	*number = field_int8(result, 0, 0);
	error = field_has_length(result, 0, 0, sizeof(*number)) ? 0 : EIO;
	PQclear(result);
	return error;
}

int
upload_begin(struct connection *connection, const struct calls *calls, int64_t expected_bytes,
			 int64_t *upload, char *sqlstate)
{
	struct parameters parameters = {0};

	parameter_int8(&parameters, expected_bytes);
	return upload_query(connection, calls->upload_begin, &parameters, upload, sqlstate);
}

int
upload_write(struct connection *connection, const struct calls *calls, int64_t upload,
			 const char *piece, size_t length, char *sqlstate)
{
	struct parameters parameters = {0};
	int64_t		sent;

	parameter_int8(&parameters, upload);
	parameter_bytes(&parameters, piece, length);
	return upload_query(connection, calls->upload_write, &parameters, &sent, sqlstate);
}
