/*
 * writing/births.h
 *	  The list of files that this mount has made and the server does not know yet.
 *
 * Such a file is a working copy with a birth.  The list of births, and the birth of a copy, change
 * under the copy's lock and the writer's, in this order; a thread that has one of them may read.
 */
#ifndef BIRTHS_H
#define BIRTHS_H

#include "writing/copy.h"
#include "writing/writer.h"

enum
{
	/* Others see a file after this time, or a second less, though it is still open. */
	BIRTH_SECONDS = 2
};

struct birth
{
	struct copy *copy;
	struct birth *next;
	uint64_t	parent;			/* inode of the directory */
	char	   *name;
	mode_t		mode;			/* permissions; may change */
	uid_t		uid;
	gid_t		gid;
	bool		is_exclusive;	/* O_EXCL */
	struct timespec began;
	bool		has_atime;		/* another one than the time of change */
	struct timespec atime;
	time_t		due;			/* monotonic; when others shall see it */
};

/* Which births a request means. */
struct wanted
{
	int64_t		snapshot;
	uint64_t	parent;			/* 0: any */
	const char *name;			/* NULL: any */
	time_t		due;			/* 0: any */
};

/*
 * Whether a file that is opened with these flags can be one; a file was made at once (true), or
 * there was an error (false).
 */
bool birth_is_possible(struct writer *writer, const struct node *parent, int flags);
void birth_allow(struct writer *writer, bool may_defer);

/* The copy, which no other thread knows yet, is that of such a file; under both locks: no more. */
void birth_begin(struct writer *writer, struct copy *copy, const struct node *parent,
				 const char *name, int flags);
void birth_forget(struct writer *writer, struct copy *copy);

/* Under the copy's lock: the server has the inode, or it has no name any more. */
void birth_end(struct writer *writer, struct copy *copy);

/* Whether there are none: looked at without a lock. */
bool births_are_none(const struct writer *writer);

/* Under the writer's lock. */
bool birth_is_wanted(const struct birth *birth, const struct wanted *wanted);

/* The times of a directory with such files. */
void births_stat(struct writer *writer, const struct node *directory, struct stat *stat);

#endif							/* BIRTHS_H */
