/*
 * heal/source.h
 *	  What this server gives to others that lack content; see "Privileges" in the README.
 */
#ifndef BLOB_HEAL_SOURCE_H
#define BLOB_HEAL_SOURCE_H

#include "access/xlogdefs.h"
#include "core/page.h"

/* SQLSTATE: the extent was allocated beyond the fork of both histories, or that is not known. */
#define ERRCODE_BLOB_FORKED MAKE_SQLSTATE('X', 'B', '0', '0', '3')

/* The most that one request may ask for. */
#define BLOB_SOURCE_MAX_BYTES (1024 * 1024)

/* Room for the name of a store: "dboid.incarnation". */
#define BLOB_SOURCE_STORE_BYTES 32

typedef struct BlobSourceRequest
{
	BlobExtent	extent;			/* with its generation */
	BlobGeneration common_below;	/* only generations below this one are given */
	XLogRecPtr	unchanged_since;	/* 0, or the map's block must not be newer */
	XLogRecPtr	replayed_to;	/* 0, or this server must be a standby that has replayed that */
	uint64		start;			/* bytes from the extent's start on, a multiple of the page */
	uint32		length_bytes;	/* at most BLOB_SOURCE_MAX_BYTES */
} BlobSourceRequest;

extern void blob_source_store_name(const BlobStoreId *id, char *name);

/*
 * Copy stored bytes of an extent to target, as far as the whole pages below its high-water mark
 * have them.  Returns their number.  ERROR XB001 if the map has another extent there, XB002 if
 * this server lacks its content, XB003 if it lies beyond the fork, 55000 if the store is another
 * one, or if the replay that is asked for stands still.  Waits for replay; can be cancelled.
 */
extern uint32 blob_source_read(const char *store_name, const BlobSourceRequest *request,
							   char *target);

#endif							/* BLOB_HEAL_SOURCE_H */
