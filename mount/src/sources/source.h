/*
 * sources/source.h
 *	  Where names and content come from: a table or view (sources/table.c), or a file system's
 *	  schema (sources/fs.c).
 *
 * All functions return 0 or an errno, and may be called by many threads.  None of them changes
 * anything but pins.
 */
#ifndef SOURCE_H
#define SOURCE_H

#include <libpq-fe.h>
#include <sys/statvfs.h>

#include "sources/members.h"
#include "common/options.h"
#include "connections/pool.h"
#include "connections/values.h"
#include "common/tree.h"

/* Bytes that belong to a result of libpq, or to malloc. */
struct buffer
{
	char	   *data;
	size_t		length;
	PGresult   *result;			/* NULL: malloc */
};

void buffer_free(struct buffer *buffer);

/* The first row's field becomes the buffer, which takes the result over; ESTALE without a row. */
int buffer_from_result(struct buffer *buffer, PGresult *result, int column);

/* An entry of a directory. */
struct directory_entry
{
	const char *name;			/* ends with NUL */
	struct attributes attributes;
};

/* Where a listing goes on.  Owned by the caller, cleared by listing_clear(). */
struct listing_position
{
	char	   *after;			/* NULL: at the beginning */
	size_t		after_length;
	int			limit;			/* rows of the next query; 0: the source's choice */
	bool		complete;		/* nothing comes after this */
};

void listing_clear(struct listing_position *position);

typedef void (*entry_receiver) (void *context, const struct directory_entry *entry);

/* A file's content, with the name after which a batch goes on. */
typedef void (*content_receiver) (void *context, const struct directory_entry *entry,
								  const char *data, size_t length);

struct source
{
	const struct source_operations *operations;
	struct pool *pool;
	const struct options *options;
	struct attributes root;
	bool		writable;		/* the source has functions that write (file system) */
	bool		has_pins;
	struct pins *pins;
	struct members members;		/* of the extensions; the same on each connection */
	const char *blobext;		/* members.blobext */
	const char *relation;		/* a view, whose functions run: its OID; NULL: none */
	bool		with_paths;		/* nodes need their path */
	char	   *schema;			/* of the file system, quoted */
	char	   *channel;		/* for LISTEN: notify.c */
	size_t		version_bytes;	/* of struct version; the others are zero */
};

struct source_operations
{
	/* ENOENT: there is no such name */
	int			(*lookup) (struct source *source, struct node *parent, const char *name,
						   struct attributes *attributes);
	/* As they are now; ESTALE: the inode is gone, and nothing was changed */
	int			(*getattr) (struct source *source, struct node *node,
							struct attributes *attributes);
	/* Some entries after a position, in the order of positions; the position moves on */
	int			(*list) (struct source *source, struct node *directory,
						 struct listing_position *position, entry_receiver receive, void *context);
	/* A range of the node's version; ESTALE: it is gone.  Fewer bytes only at its end */
	int			(*read) (struct source *source, struct node *node, int64_t offset, size_t length,
						 struct buffer *buffer);
	/* Contents of small files of a directory, from a name on, this included */
	int			(*read_batch) (struct source *source, struct node *directory, const char *from,
							   content_receiver receive, void *context);
	int			(*readlink) (struct source *source, struct node *node, struct buffer *buffer);
	/* Keep the node's version under a number of the caller's; ESTALE: it is gone already.  Needs
	 * source->has_pins */
	int			(*pin) (struct source *source, struct node *node, int64_t handle);
	int			(*statfs) (struct source *source, struct statvfs *statvfs);
	/* NULL: not supported.  Value into buffer; ENODATA: there is none */
	int			(*getxattr) (struct source *source, struct node *node, const char *name,
							 struct buffer *buffer);
	/* Names, each with NUL */
	int			(*listxattr) (struct source *source, struct node *node, struct buffer *buffer);
	/* The directory that has the node; ESTALE: none.  NULL: inodes have no lasting numbers */
	int			(*parent) (struct source *source, const struct node *node,
						   struct attributes *attributes);
};

/*
 * pins.c: pins of the mount, at the server.
 */

/* Attach if the extension blobfs is there; sets source->has_pins. */
void pins_create(struct source *source);

/* On a new connection; false: it is lost.  Without pins the mount can still be read. */
bool pins_join(struct source *source, struct connection *connection);
void pins_destroy(struct source *source);

/* Which life of the server's pins this is: it changes when a crash of the server has lost them. */
uint64_t pins_epoch(struct source *source);

/* Parameters 1 to 3 of a statement that pins: mount, key, handle. */
void pins_parameters(struct source *source, struct parameters *parameters, int64_t handle);

/* Answer of such a statement, a boolean in the first row; ESTALE without a row.  Attaches again if
 * the server has forgotten the mount: EAGAIN. */
int pins_judge(struct source *source, const PGresult *result);

/* A range of a pinned value; ESTALE: it is gone. */
int pins_read(struct source *source, struct node *node, int64_t offset, size_t length,
			  struct buffer *buffer);
int pins_remove(struct source *source, const int64_t *handles, int count);

/*
 * trust.c: find out what the extensions have, now and on each connection that is made later, which
 * must have the same.  Ends the program with a message if functions of a role that the session's
 * role need not trust would run: of the file system, or of source->relation.
 */
void trust_begin(struct source *source, struct connection *connection);
void trust_owner(struct source *source, struct connection *connection);

/* The same of a table: its owner may make a view of that name while it is mounted.  A server that
 * can do so is told not to read views. */
void trust_table_only(struct source *source, struct connection *connection, const char *relation);

/* Check the options against the server, and end the program with a message if they are wrong. */
struct source *source_table_create(struct pool *pool, const struct options *options);
struct source *source_fs_create(struct pool *pool, const struct options *options);

/*
 * sources/fs.c: a row of blobfs.attr, from a column on.  Without the snapshot's number.  0, or EIO
 * if the row is none.
 */
int fs_attributes(const PGresult *result, int row, int column, struct attributes *attributes);
void fs_set_version(struct version *version, int64_t number);
int64_t fs_get_version(const struct version *version);

#endif							/* SOURCE_H */
