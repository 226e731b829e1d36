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

#include "common/options.h"
#include "common/tree.h"
#include "connections/pool.h"
#include "sources/members.h"

enum
{
	/* Files of a batch, and the bytes of each, at most. */
	BATCH_FILES = 64,
	BATCH_FILE_BYTES = 128 * 1024,
	NAME_BYTES = 255
};

/* Bytes that belong to a result of libpq, or to malloc. */
struct buffer
{
	char	   *data;
	size_t		length;
	PGresult   *result;			/* NULL: malloc */
};

void buffer_free(struct buffer *buffer);

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

struct parameters;
struct pins;

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

/* The first field of a query at the start, copied; NULL: no row, or NULL.  Ends the program with a
 * message after an error. */
char	   *source_ask(struct connection *connection, const char *sql, int count,
					   const char *const *values);

/* A statement whose text is freed. */
int			source_add_statement(struct source *source, char *sql, int columns, int rows);

/* Larger values stay on one connection, for the server reads ahead for each by itself; -1: any. */
int			source_slot(const struct source *source, const struct node *node);

/* Run a statement for the one value that it gives, on a connection of this slot; ESTALE: no row. */
int			source_ask_value(struct source *source, int slot, int statement,
							 const struct parameters *parameters, struct buffer *buffer);

/* The length of a file as a text. */
int			source_size_text(const struct node *node, struct buffer *buffer);

/* Check the options against the server, and end the program with a message if they are wrong. */
struct source *source_table_create(struct pool *pool, const struct options *options);
struct source *source_fs_create(struct pool *pool, const struct options *options);

#endif							/* SOURCE_H */
