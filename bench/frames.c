/*
 * frames.c
 *	  Bytes and CPU time of compressed frames, by method, level and length of the frames.
 *
 * Reads names of files from standard input, and takes those that are programs (ELF) or text:
 * without a zero in the first 64 kB.  Each file is cut into frames and stored as src/blob/framer.c
 * does: a frame that does not shrink by an eighth as it is, a value in whole pages, or as it is if
 * that takes no more.  Prints, for each kind and for both, the stored bytes in percent of the
 * content, and MB of content per second of CPU time that the methods take to compress it and to
 * decompress it.
 */
#include <lz4.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#define PAGE 4096
#define INLINE_LIMIT 1024
#define ENTRY 24				/* bytes of a frame in the directory */

typedef struct Setting
{
	int			level;			/* of Zstandard; 0: LZ4 */
	int			frame_kb;
} Setting;

static const Setting settings[] = {
	{0, 64}, {0, 128}, {0, 256},
	{1, 64}, {1, 128}, {1, 256},
	{2, 64}, {2, 128}, {2, 256},
	{3, 64}, {3, 128}, {3, 256},
	{4, 128}, {4, 256}
};

#define SETTINGS ((int) (sizeof(settings) / sizeof(settings[0])))
#define KINDS 3					/* text, ELF, both */

typedef struct Figures
{
	double		stored_bytes;
	double		pack_seconds;
	double		unpack_seconds;
} Figures;

static const char *const kind_names[KINDS] = {"text", "elf", "both"};
static double content_bytes[KINDS];
static long files[KINDS];
static Figures figures[KINDS][SETTINGS];
static ZSTD_CCtx *packer;
static ZSTD_DCtx *unpacker;

static double
cpu_seconds(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0)
		abort();
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void *
allocate(size_t bytes)
{
	void	   *memory = malloc(bytes);

	if (memory == NULL)
		abort();
	return memory;
}

/* Bytes of the compressed frame; 0: it does not shrink by an eighth. */
static size_t
pack(const Setting *setting, const char *content, size_t bytes, char *target)
{
	size_t		capacity = bytes - bytes / 8;
	size_t		packed;

	if (setting->level == 0)
		return (size_t) LZ4_compress_default(content, target, (int) bytes, (int) capacity);
	packed = ZSTD_compressCCtx(packer, target, capacity, content, bytes, setting->level);
	return ZSTD_isError(packed) ? 0 : packed;
}

static void
unpack(const Setting *setting, const char *packed, size_t packed_bytes, char *target, size_t bytes)
{
	size_t		got = setting->level == 0 ?
		(size_t) LZ4_decompress_safe(packed, target, (int) packed_bytes, (int) bytes) :
		ZSTD_decompressDCtx(unpacker, target, bytes, packed, packed_bytes);

	if (got != bytes)
		abort();
}

static size_t
in_pages(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* One value by one setting.  packed and sizes: room for all of its frames. */
static void
measure(const Setting *setting, const char *content, size_t bytes, char *packed, size_t *sizes,
		char *unpacked, Figures *result)
{
	size_t		frame_bytes = (size_t) setting->frame_kb * 1024;
	size_t		sum = 0;
	int			count = 0;
	double		start = cpu_seconds();
	double		middle;

	for (size_t at = 0; at < bytes; at += frame_bytes, count++)
	{
		size_t		length = bytes - at < frame_bytes ? bytes - at : frame_bytes;

		sizes[count] = pack(setting, content + at, length, packed + at);
		sum += (sizes[count] == 0 ? length : sizes[count]) + ENTRY;
	}
	middle = cpu_seconds();
	for (int i = 0; i < count; i++)
	{
		size_t		at = i * frame_bytes;
		size_t		length = bytes - at < frame_bytes ? bytes - at : frame_bytes;

		if (sizes[i] != 0)
			unpack(setting, packed + at, sizes[i], unpacked, length);
		else
			memcpy(unpacked, content + at, length);
		if (memcmp(unpacked, content + at, length < 64 ? length : 64) != 0)
			abort();
	}
	result->unpack_seconds += cpu_seconds() - middle;
	result->pack_seconds += middle - start;
	result->stored_bytes += in_pages(sum) < in_pages(bytes) ? in_pages(sum) : bytes;
}

/* 0: text, 1: ELF, -1: another kind. */
static int
kind_of(const char *content, size_t bytes)
{
	if (bytes >= 4 && memcmp(content, "\177ELF", 4) == 0)
		return 1;
	return memchr(content, 0, bytes < 65536 ? bytes : 65536) == NULL ? 0 : -1;
}

static char *
read_file(const char *name, size_t *bytes)
{
	FILE	   *file = fopen(name, "rb");
	char	   *content;
	long		length;

	if (file == NULL)
		return NULL;
	if (fseek(file, 0, SEEK_END) != 0 || (length = ftell(file)) < 0 ||
		fseek(file, 0, SEEK_SET) != 0)
		abort();
	content = allocate((size_t) length + 1);
	*bytes = fread(content, 1, (size_t) length, file);
	if (ferror(file) || fclose(file) != 0)
		abort();
	return content;
}

/* All settings take turns on each file. */
static void
measure_file(const char *name)
{
	size_t		bytes = 0;
	char	   *content = read_file(name, &bytes);
	int			kind = content == NULL || bytes == 0 ? -1 : kind_of(content, bytes);
	char	   *packed;
	char	   *unpacked;
	size_t	   *sizes;

	if (kind < 0)
	{
		free(content);
		return;
	}
	packed = allocate(bytes);
	unpacked = allocate(256 * 1024);
	sizes = allocate((bytes / 65536 + 1) * sizeof(*sizes));
	memset(packed, 0, bytes);	/* the first setting does not pay for the pages */
	memset(unpacked, 0, 256 * 1024);
	files[kind]++;
	content_bytes[kind] += bytes;
	for (int i = 0; i < SETTINGS; i++)
	{
		if (bytes <= INLINE_LIMIT)
			figures[kind][i].stored_bytes += bytes;
		else
			measure(&settings[i], content, bytes, packed, sizes, unpacked, &figures[kind][i]);
	}
	free(packed);
	free(unpacked);
	free(sizes);
	free(content);
}

static void
print_kind(int kind)
{
	printf("# %s: %ld files, %.0f MB\n", kind_names[kind], files[kind], content_bytes[kind] / 1e6);
	printf("%-5s %-6s %6s %8s %12s %12s\n", "kind", "method", "frame", "stored", "pack MB/s",
		   "unpack MB/s");
	for (int i = 0; i < SETTINGS; i++)
	{
		const Figures *f = &figures[kind][i];
		char		method[16];

		snprintf(method, sizeof(method), settings[i].level == 0 ? "lz4" : "zstd %d",
				 settings[i].level);
		printf("%-5s %-6s %3d kB %7.1f%% %12.0f %12.0f\n", kind_names[kind], method,
			   settings[i].frame_kb, 100 * f->stored_bytes / content_bytes[kind],
			   content_bytes[kind] / f->pack_seconds / 1e6,
			   content_bytes[kind] / f->unpack_seconds / 1e6);
	}
}

int
main(void)
{
	char		name[4096];

	packer = ZSTD_createCCtx();
	unpacker = ZSTD_createDCtx();
	if (packer == NULL || unpacker == NULL)
		abort();
	while (fgets(name, sizeof(name), stdin) != NULL)
	{
		name[strcspn(name, "\n")] = '\0';
		measure_file(name);
	}
	files[2] = files[0] + files[1];
	content_bytes[2] = content_bytes[0] + content_bytes[1];
	for (int i = 0; i < SETTINGS; i++)
	{
		figures[2][i].stored_bytes = figures[0][i].stored_bytes + figures[1][i].stored_bytes;
		figures[2][i].pack_seconds = figures[0][i].pack_seconds + figures[1][i].pack_seconds;
		figures[2][i].unpack_seconds = figures[0][i].unpack_seconds + figures[1][i].unpack_seconds;
	}
	for (int kind = 0; kind < KINDS; kind++)
		if (files[kind] > 0)
			print_kind(kind);
	return 0;
}
