/*
 * write.h
 *	  Working copies: what was written to a file and is not committed yet.
 *
 * A working copy is a file's content as this mount sees it, as changes to a base: the content that
 * the server has.  Ranges that were written ("dirty") lie in a spool file at their own offsets; it
 * is sparse, and has no name.  Of the base the first "kept" bytes are part of the content; all other
 * bytes that are not dirty are zeros.
 *
 * No function takes a lock: callers hold that of the inode (session_write.c).
 */
#ifndef WRITE_H
#define WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes [start, end) of the content. */
struct span
{
	int64_t		start;
	int64_t		end;
};

struct spans
{
	struct span *items;			/* in their order; they neither overlap nor touch */
	int			count;
	int			capacity;
};

struct working
{
	const char *directory;		/* of the spool file */
	int			spool;			/* -1: not made yet */
	int64_t		base_size;		/* of the server's content */
	int64_t		kept;			/* bytes of the base that are part of the content */
	int64_t		size;
	bool		changed;		/* since the base */
	bool		appended;		/* only at its end, by handles with O_APPEND */
	struct spans dirty;
};

/* Copies bytes of the base; 0 or an errno. */
typedef int (*base_reader) (void *context, int64_t offset, size_t length, char *target);

void working_begin(struct working *working, const char *directory, int64_t base_size);
void working_end(struct working *working);

/* The server has this content now: nothing is changed.  base_size: the size at the server. */
void working_clean(struct working *working, int64_t base_size);

/* 0 or an errno.  append: behind the end, whatever the offset is. */
int working_write(struct working *working, const char *data, size_t length, int64_t offset,
				  bool append);
int working_zero(struct working *working, int64_t offset, int64_t length);
int working_resize(struct working *working, int64_t size);

/* Up to length bytes; how many there are goes to *found. */
int working_read(struct working *working, int64_t offset, size_t length, char *target,
				 size_t *found, base_reader read_base, void *context);

/* All bytes from the spool file: those of the base must have been filled in. */
int working_read_spool(struct working *working, int64_t offset, size_t length, char *target);

/* Fill the base in, so that the whole content is in the spool file. */
int working_fill(struct working *working, base_reader read_base, void *context);

int64_t spans_bytes(const struct spans *spans);

#endif							/* WRITE_H */
