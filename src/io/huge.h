/*
 * io/huge.h
 *	  Shared memory in huge pages, where PostgreSQL's own is not.
 *
 * A device that reads into memory needs a list of its physically contiguous parts.  In pages of 4
 * kB that list is long.  On a virtual machine, whose host goes through the list entry by entry,
 * large reads into such pages are a third slower than into huge pages; mapping and copying cost
 * more as well.  PostgreSQL's shared memory has huge pages only where the administrator has
 * reserved some (vm.nr_hugepages), and its mapping is not aligned, so the kernel cannot use them by
 * itself.  But the kernel gathers memory of a shared mapping into huge pages on request (Linux 6.1,
 * MADV_COLLAPSE).  A process can then map that memory a second time, at an address that fits huge
 * pages: such a second mapping is a *view*.
 *
 * With huge_pages = off, on older kernels, or when no huge pages are free, there is no view, and
 * nothing else changes.
 */
#ifndef BLOB_HUGE_H
#define BLOB_HUGE_H

typedef struct BlobHugeView
{
	char	   *start;			/* of the memory, as PostgreSQL has mapped it */
	Size		bytes;			/* 0: there is no view */
	char	   *view;			/* of this process's second mapping, or NULL */
	bool		is_refused;		/* the kernel refused this process a mapping */
} BlobHugeView;

/*
 * Gather the huge pages that lie inside of [start, start + bytes), or as many as the kernel has
 * memory for.  To be called at the start of the server, before the memory is used: this writes
 * zeros into it.  Where the kernel lacks memory, it is asked again for half a second.  Returns
 * whether all huge pages were gathered; the memory outside of them, at both ends, does not count.
 */
extern bool blob_huge_gather(BlobHugeView *view, char *start, Size bytes);

/* The same memory as address, in the view if the view has all of the bytes from there on. */
extern char *blob_huge_address(BlobHugeView *view, char *address, Size bytes);

#endif							/* BLOB_HUGE_H */
