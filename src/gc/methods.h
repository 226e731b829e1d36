/*
 * gc/methods.h
 *	  Relations of which access methods the collector can read.
 */
#ifndef BLOB_GC_METHODS_H
#define BLOB_GC_METHODS_H

#include "postgres.h"

#include "access/tableam.h"
#include "catalog/pg_class.h"

/*
 * Whether all rows of a table with this routine are where heap keeps them, and are treated as heap
 * treats them.
 */
extern bool blob_gc_is_heap(const TableAmRoutine *routine);

/*
 * Null, or why a relation's access method is strange, to be put behind the relation's name: the
 * collector cannot read the relation, though its columns can hold values (holds), or the method is
 * the map's.  Only the first keeps the collector from freeing anything.  May call the handler of
 * the method, in a subtransaction.
 */
extern char *blob_gc_find_strangeness(Form_pg_class class, bool holds);

#endif							/* BLOB_GC_METHODS_H */
