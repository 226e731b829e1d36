/*
 * core/integer.h
 *	  Integers of 1 to 8 bytes, little endian and unaligned, as formats on disk have them.
 */
#ifndef BLOB_INTEGER_H
#define BLOB_INTEGER_H

#include "postgres.h"

static inline uint64
blob_load_integer(const uint8 *at, int bytes)
{
	uint64		value = 0;

	for (int i = bytes - 1; i >= 0; i--)
		value = value << 8 | at[i];
	return value;
}

/* The value must fit into that number of bytes. */
static inline void
blob_store_integer(uint8 *at, int bytes, uint64 value)
{
	for (int i = 0; i < bytes; i++, value >>= 8)
		at[i] = (uint8) value;
	Assert(value == 0);
}

#endif							/* BLOB_INTEGER_H */
