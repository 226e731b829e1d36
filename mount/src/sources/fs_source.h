/*
 * sources/fs_source.h
 *	  A file system's schema as a source: its statements.
 */
#ifndef FS_SOURCE_H
#define FS_SOURCE_H

#include "sources/source.h"

enum
{
	LIST_ROWS = 1000
};

/* Statements of the current state, and of a snapshot, whose number is their first parameter. */
struct fs_calls
{
	int			lookup;
	int			getattr;
	int			readdir;
	int			readdir_content;
	int			read;
	int			readlink;
	int			getxattr;
	int			listxattr;
	int			sha256;
	int			pin;
};

struct fs_source
{
	struct source source;
	struct fs_calls current;
	struct fs_calls snapshot;
	int			snapshots;
	int			statfs;
	int			parent;
};

/* Check the file system and this role's rights, on a connection at the start.  Ends the program
 * with a message. */
void fs_source_begin(struct fs_source *fs, struct connection *connection);

/* Add the statements, when it is known whether there are pins. */
void fs_source_prepare(struct fs_source *fs);

#endif							/* FS_SOURCE_H */
