/*
 * sql/values/hashes.c
 *	  Digests of content that no descriptor has: md5(), sha224(), sha384(), sha512(), digest().
 *
 * Content is read in pieces, so memory is bounded and interrupts are served.  The first four use
 * the server's own implementation, as its functions of bytea do.  digest() takes the algorithms
 * that OpenSSL knows, as pgcrypto's digest() does, and needs no pgcrypto.
 */
#include "postgres.h"

#include <openssl/evp.h>

#include "blob/reader.h"
#include "common/cryptohash.h"
#include "common/md5.h"
#include "common/sha2.h"
#include "fmgr.h"
#include "parser/scansup.h"
#include "sql/value.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(blob_md5);
PG_FUNCTION_INFO_V1(blob_sha224);
PG_FUNCTION_INFO_V1(blob_sha384);
PG_FUNCTION_INFO_V1(blob_sha512);
PG_FUNCTION_INFO_V1(blob_digest_by_name);

/* Content is read in pieces of this size. */
#define STEP_BYTES (256 * 1024)

static void
report_failure(const char *algorithm, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("could not compute %s hash: %s", algorithm, reason)));
}

/* The digest of the whole content by an algorithm of the server, into digest. */
static void
compute(Datum datum, pg_cryptohash_type type, const char *algorithm, uint8 *digest,
		size_t digest_bytes)
{
	BlobValue	value = blob_sql_unpack(datum);
	char	   *step = palloc(STEP_BYTES);
	pg_cryptohash_ctx *context = pg_cryptohash_create(type);	/* of the resource owner */
	BlobReader	reader;
	uint64		bytes;

	if (pg_cryptohash_init(context) < 0)
		report_failure(algorithm, pg_cryptohash_error(context));
	blob_reader_begin(&reader, &value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, step, STEP_BYTES)) > 0)
		if (pg_cryptohash_update(context, (const uint8 *) step, bytes) < 0)
			report_failure(algorithm, pg_cryptohash_error(context));
	blob_reader_end(&reader);
	if (pg_cryptohash_final(context, digest, digest_bytes) < 0)
		report_failure(algorithm, pg_cryptohash_error(context));
	pg_cryptohash_free(context);
	pfree(step);
}

static bytea *
compute_bytea(Datum datum, pg_cryptohash_type type, const char *algorithm, size_t digest_bytes)
{
	bytea	   *result = palloc(VARHDRSZ + digest_bytes);

	SET_VARSIZE(result, VARHDRSZ + digest_bytes);
	compute(datum, type, algorithm, (uint8 *) VARDATA(result), digest_bytes);
	return result;
}

/* md5(blobstate): as hex text. */
Datum
blob_md5(PG_FUNCTION_ARGS)
{
	uint8		digest[MD5_DIGEST_LENGTH];
	char		hex[2 * MD5_DIGEST_LENGTH];

	compute(PG_GETARG_DATUM(0), PG_MD5, "MD5", digest, sizeof(digest));
	hex_encode((const char *) digest, sizeof(digest), hex);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(hex, sizeof(hex)));
}

Datum
blob_sha224(PG_FUNCTION_ARGS)
{
	PG_RETURN_BYTEA_P(compute_bytea(PG_GETARG_DATUM(0), PG_SHA224, "SHA224",
									PG_SHA224_DIGEST_LENGTH));
}

Datum
blob_sha384(PG_FUNCTION_ARGS)
{
	PG_RETURN_BYTEA_P(compute_bytea(PG_GETARG_DATUM(0), PG_SHA384, "SHA384",
									PG_SHA384_DIGEST_LENGTH));
}

Datum
blob_sha512(PG_FUNCTION_ARGS)
{
	PG_RETURN_BYTEA_P(compute_bytea(PG_GETARG_DATUM(0), PG_SHA512, "SHA512",
									PG_SHA512_DIGEST_LENGTH));
}

/* ---- by name ---- */

/* The digest in result; false if OpenSSL fails. */
static bool
compute_by_name(EVP_MD_CTX *context, const EVP_MD *algorithm, const BlobValue *value,
				uint8 *result, unsigned int *result_bytes)
{
	char	   *step = palloc(STEP_BYTES);
	BlobReader	reader;
	uint64		bytes;

	if (EVP_DigestInit_ex(context, algorithm, NULL) != 1)
		return false;
	blob_reader_begin(&reader, value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, step, STEP_BYTES)) > 0)
		if (EVP_DigestUpdate(context, step, bytes) != 1)
			return false;
	blob_reader_end(&reader);
	pfree(step);
	return EVP_DigestFinal_ex(context, result, result_bytes) == 1;
}

/*
 * digest(blobstate, text): pgcrypto's function for bytea.  SQLSTATE and message for an unknown
 * algorithm are those of pgcrypto.
 */
Datum
blob_digest_by_name(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	char	   *name = blob_sql_get_name(fcinfo, 1, "digest");
	char	   *folded = downcase_truncate_identifier(name, strlen(name), false);
	const EVP_MD *algorithm = EVP_get_digestbyname(folded);
	EVP_MD_CTX *context;
	uint8		digest[EVP_MAX_MD_SIZE];
	unsigned int digest_bytes = 0;
	volatile bool is_done = false;

	if (algorithm == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("Cannot use \"%s\": %s", folded, "No such hash algorithm")));
	context = EVP_MD_CTX_new();
	if (context == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	PG_TRY();
	{
		is_done = compute_by_name(context, algorithm, &value, digest, &digest_bytes);
	}
	PG_FINALLY();
	{
		EVP_MD_CTX_free(context);
	}
	PG_END_TRY();
	if (!is_done)
		report_failure(folded, "OpenSSL failed");
	PG_RETURN_BYTEA_P(blob_sql_make_bytea(digest, digest_bytes));
}
