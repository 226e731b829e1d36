/*
 * writing/writer.h
 *	  What the files of the writing side share: the writer, and working copies of inodes.
 */
#ifndef WRITER_H
#define WRITER_H

#include <pthread.h>

#include "kernel/pages.h"
#include "requests/session.h"
#include "writing/losses.h"
#include "writing/transaction.h"
#include "writing/working.h"

enum
{
	COPY_BUCKETS = 1024,
	RESERVED_NUMBERS = 64
};

/* Calls of the file system's functions: numbers of statements. */
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
	struct mount *mount;
	struct transactions *transactions;
	struct calls calls;
	struct pages *pages;
	struct groups *groups;
	struct sender *sender;
	struct locks *locks;		/* NULL: the kernel's, for this mount alone */
	void		(*release) (fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info);
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

/*
 * The working copy of an inode.  users and the links are under the writer's lock, the rest under
 * the copy's own.
 */
struct copy
{
	struct writer *writer;
	struct copy *next;			/* in its bucket */
	struct node *node;			/* that the kernel knows; held */
	int			users;			/* handles that write, and requests in progress */
	pthread_mutex_t lock;
	struct working working;
	struct node *base;			/* the server's content, as a node that only this file knows */
	bool		base_is_open;	/* read_open() */
	int64_t		version;		/* of the base */
	struct timespec mtime;		/* of the last write, or as it was set since */
	struct timespec ctime;		/* of the last write */
	bool		is_removed;		/* no name leads to the inode, so nothing is committed */
	bool		is_given_up;	/* the transaction of many files has ended; is_removed, too */
	bool		is_queued;		/* the sender has it */
	bool		is_doubtful;	/* a commit has failed that may have been carried out */
	struct birth *birth;		/* the server does not know the inode yet; see births.c */
};

/* The writer of a mount; NULL: read-only. */
struct writer *mount_writer(struct mount *mount);

/*
 * The working copy of a node, made if there is none, with one more user.  ESTALE: another version
 * of the inode has one, or the node is of no version; the kernel looks the name up again.
 */
int copy_acquire(struct writer *writer, struct node *node, struct copy **copy);

/* The same, NULL if there is none: that of a node, or that of an inode. */
struct copy *copy_find(struct writer *writer, struct node *node);
struct copy *copy_find_ino(struct writer *writer, uint64_t ino, int64_t snapshot);

/* The last user ends the copy, unless it is the only place where content of an open file is. */
void copy_release(struct writer *writer, struct copy *copy);

/* Under the copy's lock: send what has changed, a file that is not made included.  0 or an errno.
 * commit.c */
int copy_commit(struct writer *writer, struct copy *copy, bool is_durable);

/* Under the copy's lock: what the copy has was committed, and these are the row's attributes. */
void copy_committed(struct writer *writer, struct copy *copy, const struct attributes *attributes);

/* Under the copy's lock: begin anew with what the server has. */
void copy_set_base(struct writer *writer, struct copy *copy, const struct attributes *attributes);

/* Under the copy's lock: the server has the inode now, with these attributes, and none of the bytes
 * that were written. */
void copy_made(struct writer *writer, struct copy *copy, const struct attributes *attributes);

/* The copy is that of another inode, unless that has a copy already. */
bool copy_move(struct writer *writer, struct copy *copy, uint64_t ino);

/* Under the copy's lock: it is written now. */
void copy_touch(struct copy *copy);

/* Under the copy's lock: the base can be read from now on, also when the row is replaced. */
int copy_keep_base(struct copy *copy);

/* base_reader of working_read(); context: the copy. */
int copy_read_base(void *context, int64_t offset, size_t length, char *target);

/*
 * Commits that do not wait are noted; fsync and close make them durable.  If the server crashes in
 * between, it may have lost them: fsync and close return EIO, see losses_tell().  begun:
 * writer->begun before the durable commit.
 */
void writer_note_commit(struct writer *writer, bool is_durable, uint64_t begun);
uint64_t writer_begun(struct writer *writer);
int writer_flush(struct writer *writer);

/*
 * A name was added to a directory, by a call with this outcome.  The directory has the inode's time
 * of change then, but in a group its times are written by the first call only.
 */
void note_entry(struct writer *writer, uint64_t directory, int64_t snapshot,
				const struct outcome *outcome);

/* A call outside of working copies, which does not wait for the server's disk. */
int writer_call(struct writer *writer, int statement, const struct parameters *parameters,
				struct outcome *outcome);

/* All working copies of a group: send what has changed; forget it. */
int copies_commit(struct writer *writer, int64_t snapshot);
void copies_give_up(struct writer *writer, int64_t snapshot);

/* Of the inodes outside of groups some may have lost their last name: ask for each. */
void copies_find_removed(struct writer *writer);

/*
 * births.c: files that are made when they are closed.
 *
 * Whether a file that is opened with these flags can be one; a file was made at once (true), or
 * there was an error (false).
 */
bool birth_is_possible(struct writer *writer, const struct node *parent, int flags);
void birth_allow(struct writer *writer, bool may_defer);

/* The copy, which no other thread knows yet, is that of such a file; under both locks: no more. */
void birth_begin(struct writer *writer, struct copy *copy, const struct node *parent,
				 const char *name, int flags);
void birth_forget(struct writer *writer, struct copy *copy);

/*
 * Under the copy's lock: make the file.  0 or an errno.  Afterwards the copy is changed if content
 * remains to be sent: without with_content, or if the name was there.
 */
int birth_make(struct writer *writer, struct copy *copy, bool with_content, bool is_durable);

/* Whether the node's file is not made yet; if so, its mode and times of change and access are
 * these, unless NULL. */
bool birth_set_attributes(struct writer *writer, struct node *node, const mode_t *mode,
						  const struct timespec *mtime, const struct timespec *atime);
bool birth_is_of(struct writer *writer, struct node *node);

/*
 * At close(), under the copy's lock: if it is that of such a file, and in a directory that its
 * group has made, hand it to the sender.
 */
bool birth_hand_over(struct writer *writer, struct copy *copy);

/* The attributes of a name if it is that of such a file. */
bool birth_look_up(struct writer *writer, const struct node *directory, const char *name,
				   struct attributes *attributes);

/* The times of a directory with such files. */
void births_stat(struct writer *writer, const struct node *directory, struct stat *stat);

/* The name is not at the server: true if it was that of such a file, which has no name now. */
bool birth_unlink(struct writer *writer, const struct node *directory, const char *name);

/*
 * Before a request that needs it: make that of a name in a directory, or all in it (NULL); all of a
 * snapshot's number; that of a node; those that are open for long.
 */
void births_make(struct writer *writer, const struct node *directory, const char *name);
void births_make_all(struct writer *writer, int64_t snapshot);
void births_make_node(struct writer *writer, struct node *node);
void births_make_due(struct writer *writer);

#endif							/* WRITER_H */
