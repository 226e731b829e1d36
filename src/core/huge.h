/*
 * core/huge.h
 *	  Shared memory in huge pages, where PostgreSQL's own is not.
 *
 * A device that reads into memory wants a list of its physically contiguous parts.  In pages of
 * 4 kB that list is long, and on a virtual machine, whose host goes through it entry by entry,
 * large reads are a third slower than into huge pages; mapping and copying are dearer as well.
 * PostgreSQL's shared memory has huge pages only where the administrator has reserved some
 * (vm.nr_hugepages), and its mapping is not aligned, so that the kernel cannot help by itself.
 * But memory of a shared mapping can be gathered into huge pages on request (Linux 6.1,
 * MADV_COLLAPSE), and mapped a second time at an address that fits them: a *view*.
 *
 * With huge_pages = off, on older kernels, or when there are no huge pages to be had, there is no
 * view, and nothing else changes.
 */
#ifndef BLOB_HUGE_H
#define BLOB_HUGE_H

typedef struct BlobHugeView
{
	char	   *start;			/* as PostgreSQL has mapped it */
	Size		bytes;			/* 0: there is no view */
	char	   *view;			/* as this process has mapped it again, or NULL */
	bool		is_refused;		/* this process could not */
} BlobHugeView;

/*
 * At the start of the server, before the memory is used: gather what lies inside of [start, start +
 * bytes) into huge pages, or what there is memory for; that is tried for half a second.  Returns
 * whether all of that, but for what is not a multiple of a huge page at both ends, is there now;
 * else it has not been touched, or in part.
 */
extern bool blob_huge_gather(BlobHugeView *view, char *start, Size bytes);

/* The same memory as address, for bytes from there on, in the view if it has all of them. */
extern char *blob_huge_address(BlobHugeView *view, char *address, Size bytes);

#endif							/* BLOB_HUGE_H */
