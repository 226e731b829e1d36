/*
 * tools/verify/map_file.c
 *	  The extent map of a server that is down, see map_file.h.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "map_file.h"
#include "storage/checksum.h"
#include "storage/checksum_impl.h"
#include "verify.h"

bool
map_file_is_map(const char *path, BlobMapMeta *meta)
{
	PGAlignedBlock block;
	ssize_t		bytes;
	int			fd = open(path, O_RDONLY | PG_BINARY, 0);

	if (fd < 0)
		return false;
	errno = 0;
	bytes = pread(fd, block.data, BLCKSZ, 0);
	close(fd);
	if (bytes != BLCKSZ)
		return false;
	memcpy(meta, PageGetContents((Page) block.data), sizeof(*meta));
	return meta->magic == BLOB_MAP_MAGIC && OidIsValid(meta->dboid) && meta->incarnation != 0;
}

/* The path of the file_no-th file of the relation. */
static void
file_path(const MapFile *map, uint32 file_no, char *path, size_t path_bytes)
{
	if (file_no == 0)
		strlcpy(path, map->path, path_bytes);
	else
		snprintf(path, path_bytes, "%s.%u", map->path, file_no);
}

/* The blocks of all files; a file that is shorter than it can be is the last one. */
static void
count_blocks(MapFile *map)
{
	map->block_count = 0;
	for (uint32 file_no = 0;; file_no++)
	{
		char		path[MAXPGPATH + 16];
		struct stat status;
		BlockNumber blocks;

		file_path(map, file_no, path, sizeof(path));
		if (stat(path, &status) != 0)
		{
			if (errno != ENOENT || file_no == 0)
				verify_fail("could not stat file \"%s\": %m", path);
			return;
		}
		blocks = (BlockNumber) (status.st_size / BLCKSZ);
		map->block_count += blocks;
		if (blocks < map->layout.file_blocks)
			return;
	}
}

MapFile *
map_file_open(const char *path, const RelationLayout *layout)
{
	MapFile    *map = pg_malloc0(sizeof(MapFile));

	strlcpy(map->path, path, sizeof(map->path));
	map->layout = *layout;
	map->fd = -1;
	map->reported = BLOB_MAP_META_BLOCK;
	for (int i = 0; i < MAP_CACHE_BLOCKS; i++)
		map->cached[i] = InvalidBlockNumber;
	if (!map_file_is_map(path, &map->meta))
		verify_fail("could not read file \"%s\": %m", path);
	count_blocks(map);
	return map;
}

void
map_file_close(MapFile *map)
{
	if (map->fd >= 0)
		close(map->fd);
	pg_free(map);
}

/* Whether these bytes are what PostgreSQL wrote, as far as its checksum tells. */
static bool
has_checksum(const MapFile *map, char *page, BlockNumber block)
{
	return !map->layout.has_checksums || PageIsNew((Page) page) ||
		pg_checksum_page(page, block) == ((PageHeader) page)->pd_checksum;
}

/* Read a block into memory.  Returns NULL, or its problem. */
static const char *
read_block(MapFile *map, BlockNumber block, char *page)
{
	uint32		file_no = block / map->layout.file_blocks;
	off_t		offset = (off_t) (block % map->layout.file_blocks) * BLCKSZ;
	ssize_t		bytes;

	if (map->fd < 0 || map->fd_no != file_no)
	{
		char		path[MAXPGPATH + 16];

		if (map->fd >= 0)
			close(map->fd);
		file_path(map, file_no, path, sizeof(path));
		map->fd = open(path, O_RDONLY | PG_BINARY, 0);
		map->fd_no = file_no;
		if (map->fd < 0)
			return strerror(errno);
	}
	bytes = pread(map->fd, page, BLCKSZ, offset);
	if (bytes != BLCKSZ)
		return bytes < 0 ? strerror(errno) : "the file is too short";
	return has_checksum(map, page, block) ? NULL : "it does not have its checksum";
}

Page
map_file_block(MapFile *map, BlockNumber block, bool *is_damaged)
{
	int			place = block % MAP_CACHE_BLOCKS;
	Page		page = (Page) map->pages[place].data;

	*is_damaged = false;
	if (block >= map->block_count)
		return NULL;
	if (map->cached[place] != block)
	{
		const char *problem = read_block(map, block, (char *) page);

		map->cached[place] = block;
		map->is_usable[place] = problem == NULL;
		/* Blocks are asked for in about their order, so none is reported twice. */
		if (problem != NULL && (map->damaged_blocks == 0 || block > map->reported))
		{
			printf("damaged: extent map \"%s\", block %u: %s\n", map->path, block, problem);
			map->damaged_blocks++;
			map->reported = block;
		}
	}
	*is_damaged = !map->is_usable[place];
	return *is_damaged || PageIsNew(page) ? NULL : page;
}
