/*
 * bench/documents.c
 *	  Documents for bench/index: writes them, or looks them up.
 *
 *	  documents copy COUNT                    all of them as binary COPY data (id int4, content)
 *	  documents query COUNT SECONDS ROUNDS CPU  name sql [name sql ...]
 *
 * A document's content follows from its number: random bytes, whose count is lognormal with a
 * median of 3,000 and a mean of 8,000, from 100 to 500,000.  Of 100 documents 17 that have more
 * than 1,100 bytes take their first 1,024 from a template, which four of them share.
 *
 * query runs each statement in turn, with one document's content as its binary parameter, for the
 * given time in each round.  It prints name, round, executions, seconds, rows, and the backend's
 * CPU seconds.  Client and server are pinned to one CPU if CPU is not -1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

#define MAX_BYTES 500000
#define MIN_BYTES 100
#define MEDIAN_BYTES 3000.0
#define SIGMA 1.4
#define SHARED_BYTES 1024
#define SHARED_PERCENT 17

static char content[MAX_BYTES + 8];

/* splitmix64 */
static uint64_t
next_random(uint64_t *state)
{
	uint64_t	z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static double
next_uniform(uint64_t *state)
{
	return ((double) (next_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

static void
fill(char *target, size_t bytes, uint64_t seed)
{
	for (size_t done = 0; done < bytes; done += sizeof(uint64_t))
	{
		uint64_t	word = next_random(&seed);

		memcpy(target + done, &word, sizeof(word));
	}
}

/* Fills content; returns its size in bytes. */
static int
make_document(long number)
{
	uint64_t	state = (uint64_t) number * 1000003;
	double		normal = sqrt(-2 * log(next_uniform(&state))) *
		cos(2 * M_PI * next_uniform(&state));
	double		bytes = MEDIAN_BYTES * exp(SIGMA * normal);
	int			size = bytes < MIN_BYTES ? MIN_BYTES : bytes > MAX_BYTES ? MAX_BYTES : (int) bytes;

	fill(content, size, next_random(&state));
	/* 79 % of the documents are large enough, so a few more of them have to share. */
	if (size > 1100 && next_uniform(&state) * 100 < SHARED_PERCENT / 0.765)
		fill(content, SHARED_BYTES, UINT64_C(1) << 60 | (uint64_t) number / 24);
	return size;
}

/* Write all documents as binary COPY data. */
static void
write_copy(long count)
{
	const char	header[19] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0";

	fwrite(header, sizeof(header), 1, stdout);
	for (long i = 0; i < count; i++)
	{
		int			size = make_document(i);
		uint16_t	columns = htons(2);
		uint32_t	row[3] = {htonl(4), htonl((uint32_t) i), htonl((uint32_t) size)};

		fwrite(&columns, sizeof(columns), 1, stdout);
		fwrite(row, sizeof(row), 1, stdout);
		fwrite(content, size, 1, stdout);
	}
	fwrite("\377\377", 2, 1, stdout);
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static PGresult *
expect(PGconn *connection, PGresult *result, ExecStatusType status)
{
	if (PQresultStatus(result) != status)
	{
		fprintf(stderr, "documents: %s", PQerrorMessage(connection));
		exit(1);
	}
	return result;
}

static void
pin(pid_t pid, int cpu)
{
	cpu_set_t	set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(pid, sizeof(set), &set);
}

/* One execution; returns the number of rows. */
static int
look_up(PGconn *connection, const char *name, long number)
{
	int			size = make_document(number);
	const char *values[] = {content};
	const int	lengths[] = {size};
	const int	formats[] = {1};
	PGresult   *result = expect(connection, PQexecPrepared(connection, name, 1, values, lengths,
															formats, 1), PGRES_TUPLES_OK);
	int			rows = PQntuples(result);

	PQclear(result);
	return rows;
}

/* CPU time of the backend so far, in seconds; 0 where the system does not report it. */
static double
backend_cpu_seconds(PGconn *connection)
{
	char		path[64];
	unsigned long long nanoseconds = 0;
	FILE	   *file;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", PQbackendPID(connection));
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%llu", &nanoseconds) != 1)
		nanoseconds = 0;
	fclose(file);
	return nanoseconds / 1e9;
}

/* The same documents for every statement; making them is not measured. */
static void
run_round(PGconn *connection, const char *name, int round, long count, double seconds)
{
	uint64_t	state = (uint64_t) round;
	double		cpu_seconds = -backend_cpu_seconds(connection);
	double		busy = 0;
	long		executions = 0;
	long		rows = 0;

	while (busy < seconds)
	{
		long		number = (long) (next_random(&state) % (uint64_t) count);
		double		started;

		make_document(number);
		started = now();
		rows += look_up(connection, name, number);
		busy += now() - started;
		started = now();
		make_document(number);
		busy -= now() - started;
		executions++;
	}
	cpu_seconds += backend_cpu_seconds(connection);
	printf("%s\t%d\t%ld\t%.6f\t%ld\t%.6f\n", name, round, executions, busy, rows, cpu_seconds);
	fflush(stdout);
}

/* Run all statements in turn, in rounds; in each round another one begins. */
static void
run_queries(long count, double seconds, int rounds, int cpu, char **statements, int statement_count)
{
	PGconn	   *connection = PQconnectdb("");

	if (PQstatus(connection) != CONNECTION_OK)
	{
		fprintf(stderr, "documents: %s", PQerrorMessage(connection));
		exit(1);
	}
	if (cpu >= 0)
	{
		pin(0, cpu);
		pin(PQbackendPID(connection), cpu);
	}
	for (int i = 0; i < statement_count; i++)
	{
		PQclear(expect(connection, PQprepare(connection, statements[2 * i], statements[2 * i + 1],
											 0, NULL), PGRES_COMMAND_OK));
		for (int n = 0; n < 10; n++)
			look_up(connection, statements[2 * i], n);
	}
	for (int round = 1; round <= rounds; round++)
	{
		for (int i = 0; i < statement_count; i++)
			run_round(connection, statements[2 * ((i + round) % statement_count)], round, count,
					  seconds);
	}
	PQfinish(connection);
}

int
main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "copy") == 0)
		write_copy(atol(argv[2]));
	else if (argc >= 8 && strcmp(argv[1], "query") == 0)
		run_queries(atol(argv[2]), atof(argv[3]), atoi(argv[4]), atoi(argv[5]), argv + 6,
					(argc - 6) / 2);
	else
	{
		fprintf(stderr, "usage: documents copy COUNT | query COUNT SECONDS ROUNDS CPU "
				"NAME SQL ...\n");
		return 2;
	}
	return 0;
}
