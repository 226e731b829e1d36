/*
 * core/memory.h
 *	  Hints to the kernel about memory that is about to be written.
 *
 * The first touch of each page of memory is a page fault: for 10 MB these are some 2,560, which
 * cost more than the copy itself.  A kernel that takes such hints (Linux 5.14 and later) maps a
 * whole range in one call.
 */
#ifndef BLOB_MEMORY_H
#define BLOB_MEMORY_H

/*
 * Map the pages that [start, start + bytes) touches, private memory that will be written.  This
 * is a hint: it never fails, and changes no content.
 */
extern void blob_memory_populate(char *start, Size bytes);

/* The same for shared memory whose pages other processes have touched already. */
extern void blob_memory_populate_shared(char *start, Size bytes);

#endif							/* BLOB_MEMORY_H */
