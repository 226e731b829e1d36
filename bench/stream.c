/*
 * bench/stream.c
 *	  Load generator of bench/stream: reads parts of one large value, the contenders taking turns.
 *
 * Usage: stream OPERATION VIA PIECE_BYTES VALUE_BYTES PIECES ROUNDS [FIRST]
 *
 * In each round another contender begins; in the first round it is contender FIRST (0).
 *
 * OPERATION range: PIECES random ranges, a statement each.  OPERATION scan: all pieces from the
 * first to the last, in one statement.  VIA libpq: binary results, one row at a time, received by
 * this client.  VIA server: nothing leaves the server; its clock is taken.
 *
 * Table value has one row for each contender: blobstate, bytea (STORAGE EXTERNAL), lo.  Prints one
 * line for each contender and round: operation, way, piece, contender, round, bytes, seconds.
 */
#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

#define CONTENDERS 3
#define WARM_UP_PIECES 6

static const char *const names[CONTENDERS] = {"blobstate", "bytea", "lo"};

/* $1: offset, $2: bytes */
static const char *const range_queries[CONTENDERS] = {
	"SELECT blob_read(b, $1::bigint, $2::bigint) FROM value WHERE name = 'blobstate'",
	"SELECT substring(o FROM $1::int + 1 FOR $2::int) FROM value WHERE name = 'bytea'",
	"SELECT lo_get(lo, $1::bigint, $2::int) FROM value WHERE name = 'lo'",
};

/* %1$ld: piece, %2$ld: number of the last piece */
static const char *const scan_queries[CONTENDERS] = {
	"SELECT data FROM value, blob_chunks(b, %1$ld) WHERE name = 'blobstate'",
	"SELECT substring(o FROM n * %1$ld + 1 FOR %1$ld) AS data FROM value,"
	" generate_series(0, %2$ld) AS n WHERE name = 'bytea'",
	"SELECT lo_get(lo, n::bigint * %1$ld, %1$ld) AS data FROM value,"
	" generate_series(0, %2$ld) AS n WHERE name = 'lo'",
};

/* Inside the server: $1 ranges of %1$ld bytes, of a value of %2$ld bytes. */
static const char *const loop_queries[CONTENDERS] = {
	"blob_read(v, floor(random() * (%2$ld - %1$ld))::bigint, %1$ld)",
	"substring(v FROM floor(random() * (%2$ld - %1$ld))::int + 1 FOR %1$ld)",
	"lo_get(v, floor(random() * (%2$ld - %1$ld))::bigint, %1$ld)",
};
static const char *const columns[CONTENDERS] = {"b blobstate", "o bytea", "lo oid"};

static PGconn *connection;
static bool is_range;
static bool is_server;
static long piece_bytes;
static long value_bytes;
static long pieces;

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static PGresult *
expect(PGresult *result, ExecStatusType status)
{
	if (PQresultStatus(result) != status)
	{
		fprintf(stderr, "stream: %s", PQerrorMessage(connection));
		exit(1);
	}
	return result;
}

static double
run_on_server(int contender)
{
	char		query[4096];
	PGresult   *result;
	double		seconds;

	snprintf(query, sizeof(query), "SELECT pg_temp.read_%s()", names[contender]);
	result = expect(PQexec(connection, query), PGRES_TUPLES_OK);
	seconds = atof(PQgetvalue(result, 0, 0));
	PQclear(result);
	return seconds;
}

/* PL/pgSQL functions that return seconds; they fetch the row once, as a program would. */
static void
make_functions(void)
{
	for (int i = 0; i < CONTENDERS; i++)
	{
		char		part[1024];
		char		query[4096];
		char		column[16];

		sscanf(columns[i], "%15s", column);
		if (is_range)
			snprintf(part, sizeof(part), loop_queries[i], piece_bytes, value_bytes);
		else
			snprintf(part, sizeof(part), scan_queries[i], piece_bytes,
					 (value_bytes - 1) / piece_bytes);
		if (is_range)
			snprintf(query, sizeof(query), "CREATE OR REPLACE FUNCTION pg_temp.read_%s()"
					 " RETURNS float8 LANGUAGE plpgsql AS $$ DECLARE v%s; bytes bigint := 0;"
					 " start timestamptz; BEGIN SELECT %s INTO v FROM value WHERE name = '%s';"
					 " start := clock_timestamp(); FOR i IN 1..%ld LOOP"
					 " bytes := bytes + octet_length(%s); END LOOP;"
					 " RETURN extract(epoch FROM clock_timestamp() - start); END $$",
					 names[i], strchr(columns[i], ' '), column, names[i], pieces, part);
		else
			snprintf(query, sizeof(query), "CREATE OR REPLACE FUNCTION pg_temp.read_%s()"
					 " RETURNS float8 LANGUAGE plpgsql AS $$ DECLARE bytes bigint;"
					 " start timestamptz := clock_timestamp(); BEGIN"
					 " SELECT sum(octet_length(data)) INTO bytes FROM (%s) AS s;"
					 " IF bytes <> %ld THEN RAISE 'wrong length: %%', bytes; END IF;"
					 " RETURN extract(epoch FROM clock_timestamp() - start); END $$",
					 names[i], part, value_bytes);
		PQclear(expect(PQexec(connection, query), PGRES_COMMAND_OK));
	}
}

/* Read a random range, with the types that each contender's function takes. */
static void
read_range(int contender)
{
	uint64_t	offset = (uint64_t) (drand48() * (value_bytes - piece_bytes));
	int			width = contender == 1 ? 4 : 8;
	uint64_t	wide_offset = htobe64(offset);
	uint64_t	wide_length = htobe64((uint64_t) piece_bytes);
	uint32_t	narrow_offset = htobe32((uint32_t) offset);
	uint32_t	narrow_length = htobe32((uint32_t) piece_bytes);
	const char *values[2] = {(char *) &wide_offset, (char *) &wide_length};
	int			lengths[2] = {width, contender == 0 ? 8 : 4};
	int			formats[2] = {1, 1};
	PGresult   *result;

	if (contender == 1)
		values[0] = (char *) &narrow_offset;
	if (contender != 0)
		values[1] = (char *) &narrow_length;
	result = expect(PQexecPrepared(connection, names[contender], 2, values, lengths, formats, 1),
					PGRES_TUPLES_OK);
	if (PQgetlength(result, 0, 0) != piece_bytes)
	{
		fprintf(stderr, "stream: %d bytes instead of %ld\n", PQgetlength(result, 0, 0),
				piece_bytes);
		exit(1);
	}
	PQclear(result);
}

static double
run_ranges(int contender)
{
	double		start;

	for (int i = 0; i < WARM_UP_PIECES; i++)
		read_range(contender);
	start = now();
	for (long i = 0; i < pieces; i++)
		read_range(contender);
	return now() - start;
}

/* Read all pieces over libpq, one row at a time; returns seconds. */
static double
run_scan(int contender)
{
	double		start = now();
	long		bytes = 0;
	char		query[1024];
	PGresult   *result;

	snprintf(query, sizeof(query), scan_queries[contender], piece_bytes,
			 (value_bytes - 1) / piece_bytes);
	PQsendQueryParams(connection, query, 0, NULL, NULL, NULL, NULL, 1);
	PQsetSingleRowMode(connection);
	while ((result = PQgetResult(connection)) != NULL)
	{
		if (PQresultStatus(result) == PGRES_SINGLE_TUPLE)
			bytes += PQgetlength(result, 0, 0);
		else
			expect(result, PGRES_TUPLES_OK);
		PQclear(result);
	}
	if (bytes != value_bytes)
	{
		fprintf(stderr, "stream: %ld bytes instead of %ld\n", bytes, value_bytes);
		exit(1);
	}
	return now() - start;
}

int
main(int argc, char **argv)
{
	int			rounds;
	int			first;

	if (argc != 7 && argc != 8)
	{
		fprintf(stderr,
				"usage: stream range|scan libpq|server PIECE VALUE PIECES ROUNDS [FIRST]\n");
		return 2;
	}
	is_range = strcmp(argv[1], "range") == 0;
	is_server = strcmp(argv[2], "server") == 0;
	piece_bytes = atol(argv[3]);
	value_bytes = atol(argv[4]);
	pieces = atol(argv[5]);
	rounds = atoi(argv[6]);
	first = argc > 7 ? atoi(argv[7]) : 0;

	connection = PQconnectdb("");
	if (PQstatus(connection) != CONNECTION_OK)
	{
		fprintf(stderr, "stream: %s", PQerrorMessage(connection));
		return 1;
	}
	if (is_server)
		make_functions();
	else if (is_range)
		for (int i = 0; i < CONTENDERS; i++)
			PQclear(expect(PQprepare(connection, names[i], range_queries[i], 0, NULL),
						   PGRES_COMMAND_OK));
	for (int round = 0; round < rounds; round++)
	{
		for (int i = 0; i < CONTENDERS; i++)
		{
			int			contender = (i + round + first) % CONTENDERS;
			double		seconds = is_server ? run_on_server(contender) :
				is_range ? run_ranges(contender) : run_scan(contender);

			printf("%s\t%s\t%ld\t%s\t%d\t%ld\t%.6f\n", argv[1], argv[2], piece_bytes,
				   names[contender], round, is_range ? pieces * piece_bytes : value_bytes,
				   seconds);
			fflush(stdout);
		}
	}
	PQfinish(connection);
	return 0;
}
