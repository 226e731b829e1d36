/*
 * writing/writer.c
 *	  Calls of the file system's functions, and which of their commits are on the server's disk.
 */
#include "writing/writer.h"

#include <errno.h>
#include <stdlib.h>

#include "common/errors.h"
#include "connections/query.h"
#include "connections/request.h"
#include "sources/pins.h"

static int
add_query(struct source *source, const char *format, const char *schema, int columns, int rows)
{
	return source_add_statement(source, format_string(format, schema), columns, rows);
}

void
writer_add_calls(struct writer *writer)
{
	struct transactions *all = writer->transactions;
	struct calls *calls = &writer->calls;
	struct source *source = writer->source;
	const char *fs = source->schema;
	const char *blobext = source->blobext;
	char	   *upload = format_string("write($1, $2, $3, %s.blob_upload_end($4::bigint), $5)",
									   blobext);

	calls->create = transactions_add(all, "create($1, $2, $3, $4, $5, $6, $7, $8)", 8);
	calls->mkdir = transactions_add(all, "mkdir($1, $2, $3, $4, $5, $6)", 6);
	calls->mknod = transactions_add(all, "mknod($1, $2, $3, $4, $5, $6, $7, $8)", 8);
	calls->symlink = transactions_add(all, "symlink($1, $2, $3, $4, $5, $6)", 6);
	calls->link = transactions_add(all, "link($1, $2, $3)", 3);
	calls->unlink = transactions_add(all, "unlink($1, $2)", 2);
	calls->rmdir = transactions_add(all, "rmdir($1, $2)", 2);
	calls->rename = transactions_add(all, "rename($1, $2, $3, $4, $5)", 5);
	calls->setattr = transactions_add(all, "setattr($1, $2, $3, $4, $5, $6)", 6);
	calls->write = transactions_add(all, "write($1, $2, $3, $4, $5)", 5);
	calls->write_upload = transactions_add(all, upload, 5);
	calls->append = transactions_add(all, "append($1, $2, $3, $4, $5)", 5);
	calls->patch = transactions_add(all, "patch($1, $2, $3, $4, $5, $6, $7, $8)", 8);
	calls->truncate = transactions_add(all, "truncate($1, $2, $3, $4, $5)", 5);
	calls->setxattr = transactions_add(all, "setxattr($1, $2, $3, $4)", 4);
	calls->removexattr = transactions_add(all, "removexattr($1, $2)", 2);
	free(upload);
	calls->reserve = add_query(source, "SELECT n FROM %s.reserve($1) AS n", fs, 1,
							   RESERVED_NUMBERS);
	calls->lock_row = add_query(source, "SELECT r.status, r.version FROM"
								" %s.append($1, $2, $3, ''::pg_catalog.bytea, NULL) AS r", fs, 2,
								1);
	calls->upload_begin = add_query(source, "SELECT %s.blob_upload_begin($1::bigint)", blobext,
									1, 1);
	calls->upload_write = add_query(source, "SELECT %s.blob_upload_write($1::bigint,"
									" $2::pg_catalog.bytea)", blobext, 1, 1);
	upload = format_string("SELECT %s.blob_upload_resume(c::%s.blobstate, $2::bigint)"
						   " FROM %s.content($1, NULL) AS c", blobext, blobext, fs);
	calls->upload_resume = source_add_statement(source, upload, 1, 1);
}

void
writer_note_commit(struct writer *writer, bool is_durable, uint64_t begun)
{
	uint64_t	epoch = pins_epoch(writer->source);

	pthread_mutex_lock(&writer->lock);
	if (writer->begun > writer->flushed && writer->epoch != epoch && !writer->is_async)
	{
		losses_all(&writer->losses);
		writer->flushed = writer->begun;
	}
	if (writer->begun == writer->flushed)
		writer->epoch = epoch;
	if (!is_durable)
		losses_note(&writer->losses, request_thread(), ++writer->begun);
	else if (writer->flushed < begun)
		writer->flushed = begun;
	losses_flushed(&writer->losses, writer->flushed);
	pthread_mutex_unlock(&writer->lock);
}

uint64_t
writer_begun(struct writer *writer)
{
	uint64_t	begun;

	pthread_mutex_lock(&writer->lock);
	begun = writer->begun;
	pthread_mutex_unlock(&writer->lock);
	return begun;
}

/* In a transaction of many files nothing is committed before its end. */
int
writer_flush(struct writer *writer)
{
	uint64_t	begun = writer_begun(writer);
	bool		is_flushed;
	bool		has_lost;
	int			error = 0;

	/* A group promises nothing before its commit, and must not flush for others. */
	if (pool_bound() != NULL)
		return 0;
	pthread_mutex_lock(&writer->lock);
	is_flushed = writer->flushed >= begun || writer->is_async;
	pthread_mutex_unlock(&writer->lock);
	if (!is_flushed)
		error = transactions_flush(writer->transactions);
	if (!is_flushed && error == 0)
		writer_note_commit(writer, true, begun);
	pthread_mutex_lock(&writer->lock);
	has_lost = error == 0 && losses_tell(&writer->losses, request_thread());
	pthread_mutex_unlock(&writer->lock);
	if (has_lost)
		message("the server has crashed: changes of names before that may be lost");
	return has_lost ? EIO : error;
}

int
writer_call(struct writer *writer, int statement, const struct parameters *parameters,
			struct outcome *outcome)
{
	int			error = transaction_run_call(writer->transactions, statement, parameters, false,
											 outcome);

	if (error == 0 && outcome->status == 0 && pool_bound() == NULL)
		writer_note_commit(writer, false, 0);
	return error != 0 ? error : outcome->status;
}

int
writer_draw_number(struct writer *writer, int64_t *number)
{
	struct parameters parameters = {0};
	PGresult   *result;
	int			error;

	pthread_mutex_lock(&writer->lock);
	*number = writer->number_count > 0 ? writer->numbers[--writer->number_count] : 0;
	pthread_mutex_unlock(&writer->lock);
	if (*number != 0)
		return 0;
	parameter_int4(&parameters, RESERVED_NUMBERS);
	error = query_run(writer->source->pool, -1, writer->calls.reserve, &parameters, &result);
	if (error != 0)
		return error;
	*number = PQntuples(result) > 0 ? field_int8(result, 0, 0) : 0;
	pthread_mutex_lock(&writer->lock);
	for (int i = 1; i < PQntuples(result) && writer->number_count < RESERVED_NUMBERS; i++)
		writer->numbers[writer->number_count++] = field_int8(result, i, 0);
	pthread_mutex_unlock(&writer->lock);
	PQclear(result);
	return *number != 0 ? 0 : EIO;
}
