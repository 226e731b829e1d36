/*
 * sql/values/summary.c
 *	  blob_summary(): a line of text for people, in place of a value.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/seal.h"
#include "fmgr.h"
#include "sql/values/kind.h"
#include "store/store.h"
#include "sql/value.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(blob_summary);

/* Digits of the digest: enough to tell values of a table apart by eye. */
#define SHOWN_DIGEST_BYTES 4

/*
 * The kind of a value.  The prefix, which is in the row, decides for most; else one page is read.
 */
static const char *
find_kind(const BlobValue *value)
{
	uint8		head[BLOB_KIND_BYTES];
	uint64		bytes = Min(value->size_bytes, BLOB_KIND_BYTES);
	uint64		known_bytes = value->is_inline ? bytes : Min(bytes, BLOB_PREFIX_BYTES);
	const char *kind = blob_kind_of(blob_value_prefix(value), known_bytes, value->size_bytes);

	if (kind == NULL && known_bytes < bytes)
	{
		blob_store_require_preload();
		blob_read(value, 0, bytes, (char *) head);
		kind = blob_kind_of(head, bytes, value->size_bytes);
	}
	return kind != NULL ? kind : "application/octet-stream";
}

/* blob_summary(blobstate) */
Datum
blob_summary(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	Datum		size = DirectFunctionCall1(pg_size_pretty, Int64GetDatum(value.size_bytes));
	uint8		sha256[BLOB_DIGEST_BYTES];
	char		digits[2 * SHOWN_DIGEST_BYTES + 1];

	if (!blob_seal_known_digest(&value, sha256))
		PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s %s sha256:open",
												  text_to_cstring(DatumGetTextPP(size)),
												  find_kind(&value))));
	for (int i = 0; i < SHOWN_DIGEST_BYTES; i++)
		snprintf(digits + 2 * i, 3, "%02x", sha256[i]);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s %s sha256:%s...",
											  text_to_cstring(DatumGetTextPP(size)),
											  find_kind(&value), digits)));
}
