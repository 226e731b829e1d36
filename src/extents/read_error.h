/*
 * extents/read_error.h
 *	  Errors of reads of content.
 */
#ifndef BLOB_READ_ERROR_H
#define BLOB_READ_ERROR_H

#include "core/compat.h"
#include "core/page.h"

/*
 * ERROR for the errno of a read at a page: XX001 for ENODATA (the file ends before it), EBADMSG (it
 * does not have its checksum) and EILSEQ (the map has none), else that of the errno.  The last two
 * name the table and column that have the page in the life of this generation, if the list of
 * damaged pages knows them.
 */
pg_noreturn extern void blob_read_report_error(const BlobStoreId *store, BlobPageNo page,
											   BlobGeneration generation, int error);

#endif							/* BLOB_READ_ERROR_H */
