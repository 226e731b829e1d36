/*
 * blob/create.c
 *	  From content in memory to a datum, inline or written to extents by the writer; and back.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "blob/blob.h"
#include "blob/seal.h"
#include "extents/durability.h"
#include "blob/writer.h"
#include "core/settings.h"
#include "fmgr.h"
#include "utils/datum.h"

/* Write content to extents. */
static struct varlena *
store(const char *data, uint64 size_bytes, BlobStorage storage)
{
	struct varlena *datum = blob_writer_store(data, size_bytes, storage.method);

	if (storage.defers_digest)
		blob_datum_set_defers_digest(datum, true);
	return datum;
}

/* A descriptor that says about its digest what a place wants; the same datum if it does. */
static struct varlena *
adapt_digest(struct varlena *datum, const BlobDescriptor *descriptor, bool defers)
{
	struct varlena *copy;

	if (descriptor->is_open && !defers)
		return blob_seal(datum);
	if (descriptor->defers_digest == defers)
		return datum;
	copy = (struct varlena *) DatumGetPointer(datumCopy(PointerGetDatum(datum), false, -1));
	blob_datum_set_defers_digest(copy, defers);
	return copy;
}

Datum
blob_from_bytes(const char *data, uint64 size_bytes, bool may_externalize, BlobStorage storage)
{
	struct varlena *datum;

	if (may_externalize && size_bytes > (uint64) blob_inline_limit_bytes && blob_may_allocate())
		return PointerGetDatum(store(data, size_bytes, storage));

	datum = blob_inline_make(size_bytes);
	memcpy(blob_inline_content(datum), data, size_bytes);
	return PointerGetDatum(datum);
}

/*
 * The size is taken from the TOAST form, so content that stays inline is not fetched: in a wide row
 * it may be small and out of line all the same.
 */
bool
blob_is_to_be_moved(Datum datum)
{
	Size		size_bytes = toast_raw_datum_size(datum) - VARHDRSZ - BLOB_FORM_BYTES;

	return size_bytes > (Size) blob_inline_limit_bytes && blob_may_allocate();
}

Datum
blob_externalize(Datum datum, BlobStorage storage)
{
	bool		is_inline = blob_datum_is_inline(datum);
	struct varlena *plain;
	struct varlena *adapted;
	BlobValue	value;
	Datum		result = datum;

	if (is_inline && !blob_is_to_be_moved(datum))
		return datum;
	plain = PG_DETOAST_DATUM_PACKED(datum);
	blob_value_unpack(plain, &value);
	if (is_inline)
		result = PointerGetDatum(store(value.inline_data, value.size_bytes, storage));
	else
	{
		/*
		 * The descriptor may be stale.  Or this process may have made it before, and not yet made
		 * its content crash-safe.
		 */
		blob_require_valid(&value.descriptor);
		blob_durability_before_return();
		adapted = adapt_digest(plain, &value.descriptor, storage.defers_digest);
		if (adapted != plain)
			result = PointerGetDatum(adapted);
	}
	if ((Pointer) plain != DatumGetPointer(datum))
		pfree(plain);
	return result;
}

Datum
blob_internalize(Datum datum)
{
	BlobValue	value;
	struct varlena *result;

	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), &value);
	if (value.is_inline)
		return datum;
	result = blob_inline_make(value.size_bytes);
	blob_read(&value, 0, value.size_bytes, blob_inline_content(result));
	return PointerGetDatum(result);
}
