/*
 * bench/load/sizes.c
 *	  Sizes of values: one for all, or a distribution, where a value's size follows from its id.
 *
 * tree: files of a source tree.  wikipedia: article texts of English Wikipedia.
 */
#define _GNU_SOURCE
#include <math.h>

#include "load.h"

/* Files of a source tree: lognormal, with a median of 5 kB and a mean of 15 kB. */
#define TREE_MEDIAN_BYTES 5000.0
#define TREE_SIGMA 1.51
#define TREE_MIN_BYTES 40
#define TREE_MAX_BYTES (1024 * 1024)

/*
 * Article texts: sizes that a share of the articles does not reach.  The shares are those of 500,
 * 1,000, 2,000, 5,000 and 10,000 bytes in November 2010, the sizes are larger by 1.487, so that the
 * median is that of 2019.  The last two are such that the mean is that of 2019, too.  README.md has
 * the sources.
 */
static const struct
{
	double		share;
	double		bytes;
}			wikipedia[] = {
	{0, 50}, {0.0529, 743}, {0.1556, 1487}, {0.4044, 2973}, {0.7381, 7434}, {0.8940, 14866},
	{0.99, 47000}, {1, 200000}
};

#define WIKIPEDIA_LAST (sizeof(wikipedia) / sizeof(wikipedia[0]) - 1)

static double
draw_uniform(uint64_t *state)
{
	return ((double) (draw(state) >> 11) + 0.5) / 9007199254740992.0;
}

static long
tree_bytes(long id)
{
	uint64_t	state = (uint64_t) id;
	double		normal = sqrt(-2 * log(draw_uniform(&state))) *
		cos(2 * M_PI * draw_uniform(&state));
	double		bytes = TREE_MEDIAN_BYTES * exp(TREE_SIGMA * normal);

	return bytes < TREE_MIN_BYTES ? TREE_MIN_BYTES :
		bytes > TREE_MAX_BYTES ? TREE_MAX_BYTES : (long) bytes;
}

/* Between two quantiles the logarithm of the size is linear. */
static long
wikipedia_bytes(long id)
{
	uint64_t	state = (uint64_t) id;
	double		share = draw_uniform(&state);
	size_t		i = 1;

	while (i < WIKIPEDIA_LAST && wikipedia[i].share < share)
		i++;
	share = (share - wikipedia[i - 1].share) / (wikipedia[i].share - wikipedia[i - 1].share);
	return (long) (wikipedia[i - 1].bytes *
				   pow(wikipedia[i].bytes / wikipedia[i - 1].bytes, share));
}

long
value_bytes(long id)
{
	switch (options.sizes)
	{
		case SIZES_TREE:
			return tree_bytes(id);
		case SIZES_WIKIPEDIA:
			return wikipedia_bytes(id);
		case SIZES_ONE:
			break;
	}
	return options.size_bytes;
}

/* Room that a value can need. */
long
largest_bytes(void)
{
	long		bytes = options.sizes == SIZES_TREE ? TREE_MAX_BYTES :
		options.sizes == SIZES_WIKIPEDIA ? (long) wikipedia[WIKIPEDIA_LAST].bytes :
		options.size_bytes;

	if (changes_parts() && bytes > MADE_BYTES)
		bytes = MADE_BYTES;
	return bytes > options.piece_bytes ? bytes : options.piece_bytes;
}
