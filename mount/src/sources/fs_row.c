/*
 * sources/fs_row.c
 *	  Rows of blobfs.attr as attributes of inodes.
 */
#include "sources/fs_row.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "connections/values.h"

static struct timespec
field_nanoseconds(const PGresult *result, int row, int column)
{
	int64_t		number = field_int8(result, row, column);
	struct timespec time = {number / 1000000000, number % 1000000000};

	if (time.tv_nsec < 0)
	{
		time.tv_nsec += 1000000000;
		time.tv_sec--;
	}
	return time;
}

/* A kind that this program does not know is shown as a file. */
static mode_t
type_of_kind(char kind)
{
	switch (kind)
	{
		case 'd':
			return S_IFDIR;
		case 'l':
			return S_IFLNK;
		case 'p':
			return S_IFIFO;
		case 's':
			return S_IFSOCK;
		case 'c':
			return S_IFCHR;
		case 'b':
			return S_IFBLK;
		default:
			return S_IFREG;
	}
}

static void
set_version(struct version *version, int64_t number)
{
	uint64_t	network = htobe64((uint64_t) number);

	memset(version, 0, sizeof(*version));
	memcpy(version->bytes, &network, sizeof(network));
}

int64_t
fs_get_version(const struct version *version)
{
	uint64_t	network;

	memcpy(&network, version->bytes, sizeof(network));
	return (int64_t) be64toh(network);
}

/* Lengths of the columns in binary. */
static const uint8_t attribute_lengths[ATTRIBUTE_COLUMNS] = {8, 1, 4, 8, 8, 4, 8, 8, 8, 8, 8, 8};

int
fs_attributes(const PGresult *result, int row, int column, struct attributes *attributes)
{
	memset(attributes, 0, sizeof(*attributes));
	for (int i = 0; i < ATTRIBUTE_COLUMNS; i++)
		if (!field_has_length(result, row, column + i, attribute_lengths[i]))
			return EIO;
	attributes->ino = (uint64_t) field_int8(result, row, column);
	attributes->mode = type_of_kind(*field_text(result, row, column + 1)) |
		((mode_t) field_int4(result, row, column + 2) & 07777);
	attributes->uid = (uid_t) field_int8(result, row, column + 3);
	attributes->gid = (gid_t) field_int8(result, row, column + 4);
	attributes->nlink = (uint32_t) field_int4(result, row, column + 5);
	attributes->size = field_int8(result, row, column + 6);
	attributes->mtime = field_nanoseconds(result, row, column + 7);
	attributes->ctime = field_nanoseconds(result, row, column + 8);
	attributes->atime = field_nanoseconds(result, row, column + 9);
	attributes->rdev = (dev_t) field_int8(result, row, column + 10);
	if (S_ISREG(attributes->mode))
		set_version(&attributes->version, field_int8(result, row, column + 11));
	if (attributes->ino == 0 || attributes->ino >= FS_FIRST_FOREIGN_INO || attributes->size < 0)
		return EIO;
	return 0;
}
