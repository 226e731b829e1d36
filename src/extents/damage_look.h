/*
 * extents/damage_look.h
 *	  Another look at pages that are in the list of damaged ones, see extents/damaged_pages.h.
 */
#ifndef BLOB_DAMAGE_LOOK_H
#define BLOB_DAMAGE_LOOK_H

#include "extents/damaged_pages.h"
#include "store/store.h"

typedef enum BlobDamageLook
{
	BLOB_LOOK_GONE,				/* the extent was freed */
	BLOB_LOOK_RIGHT,
	BLOB_LOOK_DAMAGED
} BlobDamageLook;

/*
 * Read a page of this database, past the buffer, and compare it with its checksum.  Errors of a
 * read; XB001 if the extent is freed meanwhile.  Within a transaction.
 */
extern BlobDamageLook blob_damage_look(const BlobDamagedPage *damaged);

/* Forget the listed pages of this database whose extents are not in its map any more. */
extern void blob_damage_forget_freed(BlobStore *store);

#endif							/* BLOB_DAMAGE_LOOK_H */
