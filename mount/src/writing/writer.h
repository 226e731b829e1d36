/*
 * writing/writer.h
 *	  The writer of a mount: what its files of this folder share.
 */
#ifndef WRITER_H
#define WRITER_H

#include <pthread.h>

#include "kernel/pages.h"
#include "sources/source.h"
#include "writing/losses.h"
#include "writing/transaction.h"

enum
{
	COPY_BUCKETS = 1024,
	RESERVED_NUMBERS = 64		/* of inodes, in one call of reserve() */
};

/* Statements that call the functions of the file system's schema (mount/sql/README.md). */
struct calls
{
	int			create;
	int			mkdir;
	int			mknod;
	int			symlink;
	int			link;
	int			unlink;
	int			rmdir;
	int			rename;
	int			setattr;
	int			write;
	int			write_upload;
	int			append;
	int			patch;
	int			truncate;
	int			setxattr;
	int			removexattr;
	/* Without a mark. */
	int			reserve;
	int			lock_row;
	int			upload_begin;
	int			upload_resume;
	int			upload_write;
};

struct birth;
struct copy;

struct writer
{
	struct source *source;
	struct tree *tree;
	struct reader *reader;
	struct notifier *notifier;	/* NULL: without the option "notify" */
	struct transactions *transactions;
	struct calls calls;
	struct pages *pages;
	struct sender *sender;
	struct ahead *ahead;
	struct locks *locks;		/* NULL: the kernel's, for this mount alone */
	const char *spool;
	bool		fails_on_conflict;
	bool		is_async;		/* nothing waits for the server's disk */

	pthread_mutex_t lock;		/* of all below; no other lock is taken under it but the tree's */
	struct copy *copies[COPY_BUCKETS];	/* by inode number */
	int64_t		numbers[RESERVED_NUMBERS];	/* of inodes, reserved */
	int			number_count;
	struct birth *first_birth;
	int			birth_count;	/* read without the lock, too */
	bool		may_defer;		/* atomic: the last file that was made at once had no error */

	/* Commits that did not wait for the server's disk, and how many of them are on it now, or are
	 * known to be lost.  Pins have another epoch after a crash of the server (pins.c). */
	uint64_t	begun;
	uint64_t	flushed;
	uint64_t	epoch;			/* of the first one that is not flushed */
	struct losses losses;		/* threads that have made those that are not */
};

/* Add the statements. */
void writer_add_calls(struct writer *writer);

/*
 * Commits that do not wait are noted; fsync and close make them durable.  If the server crashes in
 * between, it may have lost them: fsync and close return EIO, see losses_tell().  begun:
 * writer_begun() before the durable commit.
 */
void writer_note_commit(struct writer *writer, bool is_durable, uint64_t begun);
uint64_t writer_begun(struct writer *writer);
int writer_flush(struct writer *writer);

/* A call outside of working copies, which does not wait for the server's disk. */
int writer_call(struct writer *writer, int statement, const struct parameters *parameters,
				struct outcome *outcome);

/* The number of an inode that is to be made.  0 or an errno. */
int writer_draw_number(struct writer *writer, int64_t *number);

#endif							/* WRITER_H */
