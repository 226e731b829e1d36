/*
 * extents/content_log.h
 *	  CONTENT records of this process, and when their WAL is written.
 */
#ifndef BLOB_CONTENT_LOG_H
#define BLOB_CONTENT_LOG_H

#include "core/page.h"
#include "wal/insert.h"

/*
 * Log pages of content, which were written, or are dirty.
 *
 * more_comes: the same put is about to log more.  is_whole: the value is in memory as a whole, so
 * that its commit is near.  has_time: the process has to wait before that, for the digest thread.
 */
extern void blob_content_log(const BlobStoreId *store, BlobPageNo first_page,
							 const BlobWalContentPart *parts, int part_count, bool more_comes,
							 bool is_whole, bool has_time);

#endif							/* BLOB_CONTENT_LOG_H */
