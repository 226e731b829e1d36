/*
 * io/preload.c
 *	  The error of a library that was not preloaded, and so has no shared memory.
 */
#include "postgres.h"

#include "io/io_internal.h"

void
blob_io_not_preloaded(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("blobext was not loaded at server start"),
			 errhint("Add \"blobext\" to shared_preload_libraries and restart the server.")));
}
