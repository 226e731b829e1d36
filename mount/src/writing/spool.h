/*
 * writing/spool.h
 *	  Bytes of a file that is being written, at their offsets: in memory as long as they are few,
 *	  else in a file without a name.
 *
 * Most files that programs write are small, and a file for each would cost more than all else that
 * is done here.  The memory of all spools is bounded: one that finds no more begins a file.  So is
 * the number of files: connections and threads need descriptors, too.
 *
 * No function takes a lock: callers hold that of the working copy.
 */
#ifndef SPOOL_H
#define SPOOL_H

#include <stddef.h>
#include <stdint.h>

enum
{
	/* Of one spool, and of all. */
	SPOOL_MEMORY_BYTES = 128 * 1024,
	SPOOL_ALL_MEMORY_BYTES = 32 * 1024 * 1024
};

struct spool
{
	const char *directory;		/* of the file */
	int			file;			/* -1: not made */
	char	   *memory;
	size_t		used;			/* bytes in memory; those behind are zeros */
	size_t		room;
};

/* The limit of files at once, of all spools; a write that needs one more is EMFILE. */
void spool_limit_files(unsigned most);

void spool_begin(struct spool *spool, const char *directory);
void spool_end(struct spool *spool);

/* 0 or an errno. */
int spool_write(struct spool *spool, const char *data, size_t length, int64_t offset);

/* Bytes behind the last that was written are zeros.  0 or an errno. */
int spool_read(const struct spool *spool, int64_t offset, size_t length, char *target);

/* The same of a spool's file, for a thread that has a descriptor of its own. */
int spool_read_file(int file, int64_t offset, size_t length, char *target);

/* Forget all bytes from an offset on.  0 or an errno. */
int spool_cut(struct spool *spool, int64_t size);

#endif							/* SPOOL_H */
