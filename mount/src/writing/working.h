/*
 * writing/working.h
 *	  Working copies: a file's content as this mount sees it, with changes that are not
 *	  committed yet.
 *
 * The content is described by what can be read here: bytes that were written lie in a spool at
 * their own offsets ("local"); of a base, which is a version
 * that the server had, the first base_kept bytes are part of the content; all others are zeros.
 *
 * Beside that a working copy has what must be sent: the ranges written since the last commit
 * ("dirty"), and how many bytes of what the server has are still part of the content ("kept").
 *
 * No function takes a lock: callers hold that of the inode (copies.c).
 */
#ifndef WORKING_H
#define WORKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "writing/spool.h"

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

enum
{
	/* Memory for ranges is bounded by their number: a file may be of any size. */
	WORKING_SPANS = 100000,
	/* Bytes that may have been sent were changed: none are sent before the commit. */
	SENT_CHANGED = -1
};

struct working
{
	struct spool spool;
	int64_t		size;
	struct spans local;			/* in the spool */
	int64_t		base_kept;		/* bytes of the base, unless they are local */

	/* Since the last commit */
	bool		changed;
	bool		appended;		/* only at the end, by handles with O_APPEND */
	int64_t		server_size;	/* of the content that the server has */
	int64_t		kept;			/* bytes of that, unless they are dirty */
	struct spans dirty;
	/* The first bytes, which may have been sent already (ahead.h). */
	int64_t		sent;
};

/* Copies bytes of the base; 0 or an errno. */
typedef int (*base_reader) (void *context, int64_t offset, size_t length, char *target);

void working_begin(struct working *working, const char *directory, int64_t base_size);
void working_end(struct working *working);

/* Begin anew with another base. */
void working_clean(struct working *working, int64_t base_size);

/* The server has this content now. */
void working_committed(struct working *working);

/* 0 or an errno.  append: behind the end, whatever the offset is. */
int working_write(struct working *working, const char *data, size_t length, int64_t offset,
				  bool append);
int working_zero(struct working *working, int64_t offset, int64_t length);
int working_resize(struct working *working, int64_t size);

/* Up to length bytes; how many there are goes to *found. */
int working_read(struct working *working, int64_t offset, size_t length, char *target,
				 size_t *found, base_reader read_base, void *context);

/* All bytes from the spool: those of the base must have been filled in. */
int working_read_spool(struct working *working, int64_t offset, size_t length, char *target);

/* The first bytes of them, which the caller frees. */
int working_get_spool(struct working *working, size_t length, char **content);

/*
 * Fill the base in, so that the whole content is in the spool, as one range, and all of it is
 * to be sent.
 */
int working_gather(struct working *working, base_reader read_base, void *context);

/* Whether there are so many ranges that they must be gathered before more come. */
bool working_is_scattered(const struct working *working);

int64_t spans_bytes(const struct spans *spans);

#endif							/* WORKING_H */
