/*
 * core/memory.h
 *	  Hints to the kernel about memory that is about to be written.
 *
 * A process pays for the first touch of each page of memory with a fault: for 10 MB some 2,560 of
 * them, which cost more than the copy itself.  Where the kernel can be told (Linux 5.14 and
 * later), it maps a whole range in one call.
 */
#ifndef BLOB_MEMORY_H
#define BLOB_MEMORY_H

/*
 * Map the whole pages inside of [start, start + bytes), private memory that will be written.  Only
 * a wish: never fails, changes no content.
 */
extern void blob_memory_populate(char *start, Size bytes);

/* The same for shared memory, of which other processes have touched the pages already. */
extern void blob_memory_populate_shared(char *start, Size bytes);

#endif							/* BLOB_MEMORY_H */
