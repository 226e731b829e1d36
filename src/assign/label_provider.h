/*
 * assign/label_provider.h
 *	  Which columns may have which labels (assign/label.h): asked when SECURITY LABEL sets one.
 */
#ifndef BLOB_LABEL_PROVIDER_H
#define BLOB_LABEL_PROVIDER_H

#include "postgres.h"

#include "access/attnum.h"

/* Register the provider.  Call this once, from _PG_init. */
extern void blob_label_register(void);

/*
 * A column may have another type now: take away the label, or the part of it, that a column of this
 * type cannot have.  pg_dump would write it, and SECURITY LABEL refuse it.
 */
extern void blob_label_type_changed(Oid relation, AttrNumber column, Oid type);

#endif							/* BLOB_LABEL_PROVIDER_H */
