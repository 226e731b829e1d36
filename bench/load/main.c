/*
 * bench/load/main.c
 *	  Load generator: stores, replaces and reads values in short rounds, the contenders taking
 *	  turns.
 *
 * One call is one cell of a table: an operation, a way, a size, a number of clients.  In each round
 * every contender does the same number of operations, in rotating order.  Prints one line per round
 * and contender: label, way, bytes, clients, contender, round, operations, seconds, CPU seconds of
 * the backends, and the median and the 99th percentile of the seconds that a transaction took.
 *
 * Contenders: blobstate, deferred (the same, with digests that are computed when they are asked
 * for), bytea, lo (tables <prefix>_<contender>), receive (the server gets the value and discards
 * it: the cost of libpq alone), hash (and computes its digest), log (it hashes the value and writes
 * it to the WAL), behind (the same, with a row and a writer), direct, file, and, where compiled in,
 * innodb and sqlite.
 *
 * Over libpq: prepared statements, binary parameters and results.  Inside the server: PL/pgSQL,
 * whose clock is taken, so that neither the transfer nor the making of the payload counts.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"

Options		options = {.label = NULL, .clients = 1, .rounds = 1, .values = 1, .batch = 1, .cpu = -1,
.prefix = "store", .buffer_mb = 64};

void
fail(const char *format, ...)
{
	va_list		arguments;

	va_start(arguments, format);
	fprintf(stderr, "load: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(1);
}

double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

bool
changes_parts(void)
{
	return options.operation >= OP_MAKE;
}

/* ---- options ---- */

enum
{
	OP, LABEL, VIA, SIZE, SIZES, ASKED, PIECE, CLIENTS, ROUNDS, FIRST_ROUND, VALUES, BATCH,
	CONTENDERS, PREFIX, DIRECTORY, MARIADB, BUFFER, PAYLOAD, FIRST_ID, DATA_VALUES, CPU, SETTLE,
	EMPTY, SECONDS, COLD, LIMIT, UNWARMED
};

static const struct option option_names[] = {
	{"op", 1, NULL, OP}, {"label", 1, NULL, LABEL}, {"via", 1, NULL, VIA}, {"size", 1, NULL, SIZE},
	{"sizes", 1, NULL, SIZES}, {"asked", 1, NULL, ASKED}, {"piece", 1, NULL, PIECE},
	{"clients", 1, NULL, CLIENTS}, {"rounds", 1, NULL, ROUNDS},
	{"first-round", 1, NULL, FIRST_ROUND},
	{"values", 1, NULL, VALUES}, {"batch", 1, NULL, BATCH}, {"contenders", 1, NULL, CONTENDERS},
	{"prefix", 1, NULL, PREFIX}, {"directory", 1, NULL, DIRECTORY}, {"mariadb", 1, NULL, MARIADB},
	{"buffer", 1, NULL, BUFFER}, {"payload", 1, NULL, PAYLOAD}, {"first-id", 1, NULL, FIRST_ID},
	{"data-values", 1, NULL, DATA_VALUES}, {"cpu", 1, NULL, CPU}, {"settle", 0, NULL, SETTLE},
	{"empty", 0, NULL, EMPTY}, {"seconds", 1, NULL, SECONDS}, {"cold", 0, NULL, COLD},
	{"limit", 1, NULL, LIMIT}, {"no-warm-up", 0, NULL, UNWARMED}, {0}
};

static const char *const operation_names[] = {
	"store", "replace", "mixed", "cached", "cold", "fresh", "append", "fill", "scan", "random",
	"metadata", "make", "mix", "overwrite", "insert", NULL
};
static const char *const sizes_names[] = {"one", "tree", "wikipedia", NULL};
static const char *const asked_names[] = {"size", "prefix", "digest", NULL};

static int
find_name(const char *const *names, const char *name)
{
	for (int i = 0; names[i] != NULL; i++)
	{
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	fail("there is no %s", name);
}

static void
add_contenders(char *names)
{
	for (char *name = strtok(names, ","); name != NULL; name = strtok(NULL, ","))
	{
		if (options.contender_count == MAX_CONTENDERS)
			fail("too many contenders");
		options.contenders[options.contender_count++] = name;
	}
}

/* Options that are no numbers. */
static bool
set_word(int option, char *value)
{
	switch (option)
	{
		case OP:
			options.operation = find_name(operation_names, value);
			if (options.label == NULL)
				options.label = operation_names[options.operation];
			return true;
		case LABEL:
			options.label = value;
			return true;
		case VIA:
			options.is_server = strcmp(value, "server") == 0;
			return true;
		case SIZES:
			options.sizes = find_name(sizes_names, value);
			return true;
		case ASKED:
			options.asked = find_name(asked_names, value);
			return true;
		case SETTLE:
			options.settle = true;
			return true;
		case EMPTY:
			options.is_empty = true;
			return true;
		case COLD:
			options.is_cold = true;
			return true;
		case UNWARMED:
			options.is_unwarmed = true;
			return true;
		case CONTENDERS:
			add_contenders(value);
			return true;
		case PREFIX:
			options.prefix = value;
			return true;
		case DIRECTORY:
			options.directory = value;
			return true;
		case MARIADB:
			options.socket = value;
			return true;
		case PAYLOAD:
			options.payload_path = value;
			return true;
	}
	return false;
}

static void
set_number(int option, const char *value)
{
	long	   *const longs[] = {
		[SIZE] = &options.size_bytes, [PIECE] = &options.piece_bytes, [VALUES] = &options.values,
		[BATCH] = &options.batch, [BUFFER] = &options.buffer_mb, [FIRST_ID] = &options.first_id,
		[DATA_VALUES] = &options.data_values, [LIMIT] = NULL
	};
	int		   *const ints[] = {
		[CLIENTS] = &options.clients, [ROUNDS] = &options.rounds,
		[FIRST_ROUND] = &options.first_round, [CPU] = &options.cpu, [LIMIT] = NULL
	};

	if (option == SECONDS)
		options.seconds = atof(value);
	else if (option == LIMIT)
		options.limit_seconds = atof(value);
	else if (longs[option] != NULL)
		*longs[option] = atol(value);
	else
		*ints[option] = atoi(value);
}

static void
parse_options(int argc, char **argv)
{
	int			option;
	bool		needs_data;

	while ((option = getopt_long(argc, argv, "", option_names, NULL)) != -1)
	{
		if (option == '?')
			exit(2);
		if (!set_word(option, optarg))
			set_number(option, optarg);
	}
	needs_data = options.operation == OP_REPLACE || options.operation == OP_MIXED ||
		options.operation == OP_CACHED || options.operation == OP_COLD ||
		options.operation == OP_FILL || options.operation == OP_SCAN ||
		options.operation == OP_RANDOM;
	if (options.size_bytes <= 0 || options.clients < 1 || options.clients > MAX_CLIENTS ||
		options.batch < 1 || options.directory == NULL || options.payload_path == NULL ||
		options.contender_count == 0 || (needs_data && options.data_values < options.clients) ||
		(options.operation == OP_METADATA && options.data_values < METADATA_VALUES) ||
		((options.operation == OP_APPEND || changes_parts()) && options.piece_bytes <= 0) ||
		(changes_parts() && options.clients > 1))
		fail("options are missing, see bench/run");
}

int
main(int argc, char **argv)
{
	pthread_t	threads[MAX_CLIENTS];
	intptr_t	i;

	/* The first touch of memory is expensive: keep freed memory.  The server does so, too. */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 2000000000);
	mallopt(M_ARENA_MAX, 1);

	parse_options(argc, argv);
	set_up_rounds();
	for (i = 0; i < options.clients; i++)
		open_sessions(i);
	for (i = 0; i < options.clients; i++)
	{
		if (pthread_create(&threads[i], NULL, run_client, (void *) i) != 0)
			fail("could not start a thread");
	}
	for (i = 0; i < options.clients; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < options.clients; i++)
		close_sessions(i);
	return 0;
}
