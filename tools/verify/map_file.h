/*
 * tools/verify/map_file.h
 *	  The extent map of a server that is down, read from its relation's files.
 */
#ifndef VERIFY_MAP_FILE_H
#define VERIFY_MAP_FILE_H

#include "postgres.h"

#include "store/map_page.h"

/* What the control file says of relations. */
typedef struct RelationLayout
{
	uint32		file_blocks;	/* in each file of a relation, but for the last one */
	bool		has_checksums;	/* initdb --data-checksums */
} RelationLayout;

/* Blocks that are kept in memory, each in the place that its number gives. */
#define MAP_CACHE_BLOCKS 64

typedef struct MapFile
{
	char		path[MAXPGPATH];	/* of the relation's first file */
	RelationLayout layout;
	BlobMapMeta meta;
	BlockNumber block_count;
	int			fd;				/* of the file that was read last, or -1 */
	uint32		fd_no;
	uint64		damaged_blocks; /* that cannot be read, or do not have PostgreSQL's checksum */
	BlockNumber cached[MAP_CACHE_BLOCKS];
	bool		is_usable[MAP_CACHE_BLOCKS];
	BlockNumber reported;		/* the last block that was reported */
	PGAlignedBlock pages[MAP_CACHE_BLOCKS];
} MapFile;

/*
 * Whether a relation's first file is a map; sets *meta.  Of a file that cannot be read: false, with
 * errno, else errno is 0.
 */
extern bool map_file_is_map(const char *path, BlobMapMeta *meta);

/* Open such a file, in allocated memory. */
extern MapFile *map_file_open(const char *path, const RelationLayout *layout);
extern void map_file_close(MapFile *map);

/*
 * A block; NULL if there are no entries: the block is empty, or damaged, which is reported when it
 * is read for the first time (*is_damaged).  Valid until another block is asked for.
 */
extern Page map_file_block(MapFile *map, BlockNumber block, bool *is_damaged);

#endif							/* VERIFY_MAP_FILE_H */
