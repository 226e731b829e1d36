/*
 * core/codec.c
 *	  Methods of compression, see core/codec.h.
 *
 * The contexts of the libraries are made at their first use, and live as long as the process: a
 * frame takes less time than to make them.
 */
#include "postgres.h"

#include "core/codec.h"

#ifdef BLOB_WITH_LZ4
#include <lz4.h>
#endif
#ifdef BLOB_WITH_ZSTD
#include <zstd.h>
#endif

/*
 * Level of Zstandard.  Level 2 saves 1.2 % of the content and takes a fifth more time, level 3
 * 1.8 % and two thirds (docs/compression.md).
 */
#define ZSTD_LEVEL 1

/* A part that is shorter by this fraction is promising: the whole frame compresses better. */
#define PROMISING_FRACTION 16

static const struct
{
	const char *name;
	bool		is_built_in;
}			methods[] = {
	[BLOB_METHOD_NONE] = {"none", true},
#ifdef BLOB_WITH_LZ4
	[BLOB_METHOD_LZ4] = {"lz4", true},
#else
	[BLOB_METHOD_LZ4] = {"lz4", false},
#endif
#ifdef BLOB_WITH_ZSTD
	[BLOB_METHOD_ZSTD] = {"zstd", true}
#else
	[BLOB_METHOD_ZSTD] = {"zstd", false}
#endif
};

const char *
blob_method_name(uint8 method)
{
	return method < lengthof(methods) ? methods[method].name : "unknown";
}

bool
blob_method_from_name(const char *name, BlobMethod *method)
{
	for (int i = 0; i < (int) lengthof(methods); i++)
	{
		if (strcmp(name, methods[i].name) == 0)
		{
			*method = (BlobMethod) i;
			return true;
		}
	}
	return false;
}

bool
blob_method_is_built_in(uint8 method)
{
	return method < lengthof(methods) && methods[method].is_built_in;
}

void
blob_method_require(uint8 method)
{
	if (blob_method_is_built_in(method))
		return;
	if (method >= lengthof(methods))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("compression method %d of a blobstate value is not known", method),
				 errhint("A newer version of blobext may have written the value: install that for "
						 "this server and restart it.")));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("compression method \"%s\" is not built into blobext", methods[method].name),
			 errdetail("The library of this server was built without lib%s.",
					   methods[method].name),
			 errhint("Install lib%s-dev, build and install blobext again, and restart the "
					 "server.", methods[method].name)));
}

#if defined(BLOB_WITH_ZSTD) || defined(BLOB_WITH_LZ4)
static void *
require_context(void *context)
{
	if (context == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("A compression library has got none.")));
	return context;
}
#endif

#ifdef BLOB_WITH_LZ4
static uint32
compress_lz4(const char *content, uint32 content_bytes, char *target, uint32 capacity)
{
	static void *state = NULL;

	if (state == NULL)
		state = require_context(malloc(LZ4_sizeofState()));
	return (uint32) Max(LZ4_compress_fast_extState(state, content, target, (int) content_bytes,
												   (int) capacity, 1), 0);
}
#endif

#ifdef BLOB_WITH_ZSTD
static uint32
compress_zstd(const char *content, uint32 content_bytes, char *target, uint32 capacity)
{
	static ZSTD_CCtx *state = NULL;
	size_t		bytes;

	if (state == NULL)
		state = require_context(ZSTD_createCCtx());
	bytes = ZSTD_compressCCtx(state, target, capacity, content, content_bytes, ZSTD_LEVEL);
	return ZSTD_isError(bytes) ? 0 : (uint32) bytes;
}

static bool
decompress_zstd(const char *stored, uint32 stored_bytes, char *target, uint32 content_bytes)
{
	static ZSTD_DCtx *state = NULL;

	if (state == NULL)
		state = require_context(ZSTD_createDCtx());
	return ZSTD_decompressDCtx(state, target, content_bytes, stored,
							   stored_bytes) == content_bytes;
}
#endif

uint32
blob_codec_compress(BlobMethod method, const char *content, uint32 content_bytes, char *target,
					uint32 capacity)
{
	switch (method)
	{
#ifdef BLOB_WITH_LZ4
		case BLOB_METHOD_LZ4:
			return compress_lz4(content, content_bytes, target, capacity);
#endif
#ifdef BLOB_WITH_ZSTD
		case BLOB_METHOD_ZSTD:
			return compress_zstd(content, content_bytes, target, capacity);
#endif
		default:
			blob_method_require((uint8) method);
			return 0;
	}
}

bool
blob_codec_decompress(uint8 method, const char *stored, uint32 stored_bytes, char *target,
					  uint32 content_bytes)
{
	switch (method)
	{
#ifdef BLOB_WITH_LZ4
		case BLOB_METHOD_LZ4:
			return LZ4_decompress_safe(stored, target, (int) stored_bytes,
									   (int) content_bytes) == (int) content_bytes;
#endif
#ifdef BLOB_WITH_ZSTD
		case BLOB_METHOD_ZSTD:
			return decompress_zstd(stored, stored_bytes, target, content_bytes);
#endif
		default:
			blob_method_require(method);
			return false;
	}
}

bool
blob_codec_is_promising(BlobMethod method, const char *part, uint32 part_bytes)
{
	char		target[BLOB_PAGE_SIZE];

	if (method == BLOB_METHOD_NONE)
		return false;
	part_bytes = Min(part_bytes, sizeof(target));
	return blob_codec_compress(method, part, part_bytes, target,
							   part_bytes - part_bytes / PROMISING_FRACTION) > 0;
}
