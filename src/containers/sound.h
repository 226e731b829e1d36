/*
 * containers/sound.h
 *	  Whether tuples, and what contains values, are laid out within their own bytes.
 *
 * PostgreSQL takes pages apart without looking: a damaged length sends it anywhere, and the server
 * ends.  Code that reads all rows by itself, as the collector does, looks first.  Each function
 * returns NULL, or the problem, in the current memory context.  A tuple that passes can be taken
 * apart, whatever its bytes say; an external value can be fetched, or fails with an error.
 */
#ifndef BLOB_SOUND_H
#define BLOB_SOUND_H

#include "postgres.h"

#include "access/htup.h"
#include "access/itup.h"
#include "access/tupdesc.h"
#include "storage/bufpage.h"
#include "utils/array.h"
#include "utils/multirangetypes.h"
#include "utils/rangetypes.h"
#include "utils/relcache.h"
#include "utils/typcache.h"

/* A page's header: with this, line pointers and the special space lie within the page. */
extern char *blob_sound_page(Page page);

/* The same for a page of a B-tree, the meta page too. */
extern char *blob_sound_btree_page(Page page);

/* A line pointer of such a page that has storage: a tuple of at least minimum bytes. */
extern char *blob_sound_line(Page page, ItemId item, Size minimum);

/*
 * A tuple of a heap, or a row as a value.  Attributes that row_type does not have are not looked
 * at: a transaction that added a column and rolled back leaves them.
 */
extern char *blob_sound_row(HeapTupleHeader header, Size length, TupleDesc row_type);

/* A tuple of a B-tree: with key and other columns, cut off, or with a list of rows. */
extern char *blob_sound_key(IndexTuple tuple, Size length, Relation index);

/* Containers, not toasted.  With a sound header an array has its type and right dimensions. */
extern char *blob_sound_array_header(ArrayType *array);
extern char *blob_sound_array(ArrayType *array, int16 element_length, char element_alignment);
extern char *blob_sound_range(RangeType *range, TypeCacheEntry *type);
extern char *blob_sound_multirange(MultirangeType *multirange, TypeCacheEntry *type);

#endif							/* BLOB_SOUND_H */
