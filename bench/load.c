/*
 * bench/load.c
 *	  Load generator: stores or reads values in short rounds, the contenders taking turns.
 *
 * One call is one cell of the table: an operation, a way, a size, a number of clients.  In each
 * round every contender does the same number of operations, in rotating order.  Prints one line per
 * round and contender: operation, way, bytes, clients, contender, round, operations, seconds, CPU
 * seconds of the backends.
 *
 * Contenders: blobstate, bytea (tables <prefix>_<contender>), file (fdatasync of file and
 * directory), receive (the server gets the value and discards it: the cost of libpq alone).
 *
 * Over libpq: prepared statements, binary parameters and results, one commit for each value.
 * Inside the server: PL/pgSQL, whose clock is taken, so that neither the transfer nor the making of
 * the payload counts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#define MAX_CONTENDERS 4
#define MAX_CLIENTS 64

/* PostgreSQL plans the first five executions for their parameters; they are not measured. */
#define WARM_UP_VALUES 6

static struct
{
	bool		is_store;
	bool		is_server;		/* inside the server */
	bool		is_cold;		/* every value is read once; no warming up */
	bool		settle;			/* checkpoint and sync before each round of a store */
	long		size_bytes;
	int			clients;
	int			rounds;
	long		values;			/* operations of one client in one round */
	long		first_id;
	long		data_values;	/* existing values, for reads */
	int			cpu;			/* to pin client and server to, or -1 */
	double		seconds;		/* repeat one contender so long, for profiles */
	const char *prefix;
	const char *directory;		/* of the files */
	const char *payload_path;
	const char *contenders[MAX_CONTENDERS];
	int			contender_count;
} options = {.clients = 1, .rounds = 1, .values = 1, .cpu = -1, .prefix = "store"};

typedef struct Client
{
	int			number;
	PGconn	   *connection;
	int			directory_fd;
	char	   *file_buffer;
	long		stored;			/* values of this client so far, over all contenders */
	double		server_seconds; /* of the last round, inside the server */
} Client;

static Client all_clients[MAX_CLIENTS];
static char *payload;			/* size_bytes + SHIFT_BYTES random bytes */
static pthread_barrier_t barrier;

/* Each value starts at another byte of the payload, so that all values differ. */
#define SHIFT_BYTES 65536

static void __attribute__((noreturn, format(printf, 1, 2)))
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

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* ---- libpq ---- */

static PGresult *
expect(PGconn *connection, PGresult *result, ExecStatusType status)
{
	if (PQresultStatus(result) != status)
		fail("%s", PQerrorMessage(connection));
	return result;
}

static void __attribute__((format(printf, 3, 4)))
command(PGconn *connection, ExecStatusType status, const char *format, ...)
{
	char		text[4096];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	PQclear(expect(connection, PQexec(connection, text), status));
}

static void __attribute__((format(printf, 3, 4)))
prepare(PGconn *connection, const char *name, const char *format, ...)
{
	char		text[1024];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	PQclear(expect(connection, PQprepare(connection, name, text, 0, NULL), PGRES_COMMAND_OK));
}

/* Execute a prepared statement: store a value, or read one and check its size. */
static void
execute(PGconn *connection, const char *statement, long id, const char *value)
{
	int64_t		id_wire = (int64_t) htobe64((uint64_t) id);
	const char *values[2] = {(const char *) &id_wire, value};
	int			lengths[2] = {sizeof(id_wire), (int) options.size_bytes};
	int			formats[2] = {1, 1};
	int			count = value != NULL ? 2 : 1;
	PGresult   *result = PQexecPrepared(connection, statement, count, values, lengths, formats, 1);

	if (value != NULL && strcmp(statement, "receive") != 0)
		expect(connection, result, PGRES_COMMAND_OK);
	else
		expect(connection, result, PGRES_TUPLES_OK);
	if (value == NULL && (PQntuples(result) != 1 ||
						  PQgetlength(result, 0, 0) != options.size_bytes))
		fail("value %ld is missing or has another size", id);
	PQclear(result);
}

/* Prepare the statements of a connection; those inside the server are temporary functions. */
static void
prepare_contender(PGconn *connection, const char *contender)
{
	const char *prefix = options.prefix;

	if (strcmp(contender, "file") == 0)
		return;
	if (strcmp(contender, "receive") == 0)
	{
		prepare(connection, contender, "SELECT octet_length($2::bytea) + $1::bigint");
		return;
	}
	if (options.is_server && options.is_store)
		command(connection, PGRES_COMMAND_OK,
				"CREATE PROCEDURE pg_temp.run_%s(first_id bigint, value_count bigint, path text, "
				"INOUT seconds float8) LANGUAGE plpgsql AS $$ "
				"DECLARE payload bytea := pg_read_binary_file(path, 0, %ld); "
				"  started timestamptz := clock_timestamp(); "
				"BEGIN "
				"  FOR i IN 0 .. value_count - 1 LOOP "
				"    INSERT INTO %s_%s VALUES (first_id + i, payload); "
				"    COMMIT; "
				"  END LOOP; "
				"  seconds := extract(epoch FROM clock_timestamp() - started); "
				"END $$", contender, options.size_bytes, prefix, contender);
	else if (options.is_server)
		command(connection, PGRES_COMMAND_OK,
				"CREATE FUNCTION pg_temp.run_%s(first_id bigint, value_count bigint, "
				"base bigint, stride bigint, modulus bigint) RETURNS float8 LANGUAGE plpgsql AS $$ "
				"DECLARE started timestamptz := clock_timestamp(); bits bigint; "
				"BEGIN "
				"  FOR i IN 0 .. value_count - 1 LOOP "
				"    SELECT bit_count(v::bytea) INTO STRICT bits FROM %s_%s "
				"      WHERE id = base + (first_id + i) * stride %% modulus; "
				"  END LOOP; "
				"  RETURN extract(epoch FROM clock_timestamp() - started); "
				"END $$", contender, prefix, contender);
	else if (options.is_store)
		prepare(connection, contender, "INSERT INTO %s_%s VALUES ($1, $2)", prefix, contender);
	else
		prepare(connection, contender, "SELECT v FROM %s_%s WHERE id = $1", prefix, contender);
}

/*
 * Choose the values that reads take: number i is value base + i * stride % modulus.  Cold reads
 * jump about, so that no read-ahead brings in the next value; value 0 is left to the warm-up.
 */
typedef struct Choice
{
	long		base;
	long		stride;
	long		modulus;
} Choice;

static const Choice only_first = {0, 1, 1};
static Choice choice;

static void
choose_values(void)
{
	if (options.is_cold)
		choice = (Choice) {1, 7919, options.data_values - 1};
	else
		choice = (Choice) {0, 1, options.data_values};
}

/* Store or read values inside the server; returns the seconds that its clock measured. */
static double
run_in_server(PGconn *connection, const char *contender, long first, long value_count,
			  const Choice *values)
{
	char		text[1024];
	PGresult   *result;
	double		seconds;

	if (options.is_store)
		snprintf(text, sizeof(text), "CALL pg_temp.run_%s(%ld, %ld, '%s', 0)", contender,
				 first, value_count, options.payload_path);
	else
		snprintf(text, sizeof(text), "SELECT pg_temp.run_%s(%ld, %ld, %ld, %ld, %ld)", contender,
				 first, value_count, values->base, values->stride, values->modulus);
	result = expect(connection, PQexec(connection, text), PGRES_TUPLES_OK);
	seconds = atof(PQgetvalue(result, 0, 0));
	PQclear(result);
	return seconds;
}

/* ---- files ---- */

/* Write a value to a new file, and sync the file and its directory. */
static void
store_file(Client *client, long id, const char *value)
{
	char		name[32];
	int			fd;

	snprintf(name, sizeof(name), "%ld", id);
	fd = openat(client->directory_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		fail("could not create file %s: %s", name, strerror(errno));
	for (long done = 0; done < options.size_bytes;)
	{
		ssize_t		written = write(fd, value + done, options.size_bytes - done);

		if (written <= 0)
			fail("could not write file %s: %s", name, strerror(errno));
		done += written;
	}
	if (fdatasync(fd) != 0 || close(fd) != 0 || fsync(client->directory_fd) != 0)
		fail("could not sync file %s: %s", name, strerror(errno));
}

/* Read the file of a value as a whole. */
static void
read_file(Client *client, long id)
{
	char		name[32];
	int			fd;

	snprintf(name, sizeof(name), "%ld", id);
	fd = openat(client->directory_fd, name, O_RDONLY);
	if (fd < 0)
		fail("could not open file %s: %s", name, strerror(errno));
	for (long done = 0; done < options.size_bytes;)
	{
		ssize_t		got = read(fd, client->file_buffer + done, options.size_bytes - done);

		if (got <= 0)
			fail("could not read file %s: %s", name, strerror(errno));
		done += got;
	}
	close(fd);
}

/* ---- rounds ---- */

static const char *
payload_of(long id)
{
	return payload + id * 4099 % SHIFT_BYTES;
}

/* Operations first, first + 1, … of one client; clients store different ids. */
static void
do_values(Client *client, const char *contender, long first, long value_count,
		  const Choice *values)
{
	bool		is_file = strcmp(contender, "file") == 0;

	if (options.is_store)
		first += options.first_id + client->number * 1000000L;
	else if (options.is_cold)
		first += client->number * options.values * options.rounds;
	client->server_seconds = 0;
	if (options.is_server && !is_file)
	{
		client->server_seconds = run_in_server(client->connection, contender, first, value_count,
											   values);
		return;
	}
	for (long i = first; i < first + value_count; i++)
	{
		long		id = options.is_store ? i :
			values->base + i * values->stride % values->modulus;

		if (is_file && options.is_store)
			store_file(client, id, payload_of(id));
		else if (is_file)
			read_file(client, id);
		else
			execute(client->connection, contender, id, options.is_store ? payload_of(id) : NULL);
	}
}

/* Writes that stores have deferred must not disturb the next contender's round. */
static void
settle(Client *client)
{
	if (options.is_store && options.settle && client->number == 0)
	{
		command(client->connection, PGRES_COMMAND_OK, "CHECKPOINT");
		syncfs(client->directory_fd);
	}
	pthread_barrier_wait(&barrier);
}

/* CPU time of all backends so far, in seconds; 0 where the system does not report it. */
static double
backend_cpu_seconds(void)
{
	double		sum = 0;

	for (int i = 0; i < options.clients; i++)
	{
		char		path[64];
		unsigned long long nanoseconds = 0;
		FILE	   *file;

		snprintf(path, sizeof(path), "/proc/%d/schedstat", PQbackendPID(all_clients[i].connection));
		file = fopen(path, "r");
		if (file != NULL)
		{
			if (fscanf(file, "%llu", &nanoseconds) == 1)
				sum += nanoseconds / 1e9;
			fclose(file);
		}
	}
	return sum;
}

/* One round of one contender, with all clients at once; the first client prints its line. */
static void
run_round(Client *client, const char *contender, int round, long first)
{
	static double server_seconds[MAX_CLIENTS];
	double		started;
	double		seconds;
	double		cpu_seconds = 0;

	settle(client);
	if (client->number == 0)
		cpu_seconds = -backend_cpu_seconds();
	started = now();
	do_values(client, contender, first, options.values, &choice);
	server_seconds[client->number] = client->server_seconds;
	pthread_barrier_wait(&barrier);
	seconds = now() - started;

	if (client->number == 0)
	{
		if (options.is_server && strcmp(contender, "file") != 0)
		{
			double		sum = 0;

			for (int i = 0; i < options.clients; i++)
				sum += server_seconds[i];
			seconds = sum / options.clients;
		}
		cpu_seconds += backend_cpu_seconds();
		printf("%s\t%s\t%ld\t%d\t%s\t%d\t%ld\t%.6f\t%.6f\n",
			   options.is_store ? "store" : options.is_cold ? "cold" : "cached",
			   options.is_server ? "server" : "libpq", options.size_bytes, options.clients,
			   contender, round, options.values * options.clients, seconds, cpu_seconds);
		fflush(stdout);
	}
	pthread_barrier_wait(&barrier);
}

/* Let each contender run once, without measuring. */
static void
warm_up(Client *client)
{
	for (int i = 0; i < options.contender_count; i++)
	{
		if (options.is_cold)
			/* Load catalogs and index roots. */
			do_values(client, options.contenders[i], 0, 1, &only_first);
		else
			do_values(client, options.contenders[i], client->stored,
					  options.is_store ? WARM_UP_VALUES :
					  options.data_values > WARM_UP_VALUES ? options.data_values : WARM_UP_VALUES,
					  &choice);
	}
	if (!options.is_cold)
		client->stored += WARM_UP_VALUES;
}

static void
run_for_seconds(Client *client)
{
	double		started = now();
	long		count = 0;

	while (now() - started < options.seconds)
	{
		do_values(client, options.contenders[0], client->stored, options.values, &choice);
		client->stored += options.values;
		count += options.values;
	}
	printf("%ld values in %.3f s\n", count, now() - started);
}

/* The thread of a client. */
static void *
run_client(void *argument)
{
	Client	   *client = argument;

	warm_up(client);
	pthread_barrier_wait(&barrier);
	if (options.seconds > 0)
	{
		run_for_seconds(client);
		return NULL;
	}
	for (int round = 0; round < options.rounds; round++)
	{
		for (int i = 0; i < options.contender_count; i++)
			run_round(client, options.contenders[(round + i) % options.contender_count], round,
					  client->stored);
		client->stored += options.values;
	}
	return NULL;
}

/* ---- set-up ---- */

static void
pin(pid_t pid)
{
	cpu_set_t	set;

	CPU_ZERO(&set);
	CPU_SET(options.cpu, &set);
	if (sched_setaffinity(pid, sizeof(set), &set) != 0)
		fail("could not pin process %d: %s", (int) pid, strerror(errno));
}

/* Prepare a client: its connection, its directory, its buffer. */
static void
set_up(Client *client, int number)
{
	client->number = number;
	client->file_buffer = malloc(options.size_bytes);
	memset(client->file_buffer, 1, options.size_bytes);
	client->directory_fd = open(options.directory, O_RDONLY | O_DIRECTORY);
	if (client->directory_fd < 0)
		fail("could not open directory %s: %s", options.directory, strerror(errno));

	client->connection = PQconnectdb("");
	if (PQstatus(client->connection) != CONNECTION_OK)
		fail("%s", PQerrorMessage(client->connection));
	for (int i = 0; i < options.contender_count; i++)
		prepare_contender(client->connection, options.contenders[i]);
	if (options.cpu >= 0)
		pin(PQbackendPID(client->connection));
	if (options.seconds > 0)
	{
		printf("%d\n", PQbackendPID(client->connection));
		fflush(stdout);
	}
}

static void
read_payload(void)
{
	long		wanted = options.size_bytes + SHIFT_BYTES;
	FILE	   *file = fopen(options.payload_path, "r");

	payload = malloc(wanted);
	if (file == NULL || fread(payload, 1, wanted, file) != (size_t) wanted)
		fail("could not read %ld bytes of %s", wanted, options.payload_path);
	fclose(file);
}

enum
{
	OP, VIA, SIZE, CLIENTS, ROUNDS, VALUES, CONTENDERS, PREFIX, DIRECTORY, PAYLOAD, FIRST_ID,
	DATA_VALUES, CPU, SETTLE, SECONDS
};

static const struct option option_names[] = {
	{"op", 1, NULL, OP}, {"via", 1, NULL, VIA}, {"size", 1, NULL, SIZE},
	{"clients", 1, NULL, CLIENTS}, {"rounds", 1, NULL, ROUNDS}, {"values", 1, NULL, VALUES},
	{"contenders", 1, NULL, CONTENDERS}, {"prefix", 1, NULL, PREFIX},
	{"directory", 1, NULL, DIRECTORY}, {"payload", 1, NULL, PAYLOAD},
	{"first-id", 1, NULL, FIRST_ID}, {"data-values", 1, NULL, DATA_VALUES},
	{"cpu", 1, NULL, CPU}, {"settle", 0, NULL, SETTLE}, {"seconds", 1, NULL, SECONDS}, {0}
};

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

static void
parse_options(int argc, char **argv)
{
	int			option;

	while ((option = getopt_long(argc, argv, "", option_names, NULL)) != -1)
	{
		switch (option)
		{
			case OP:
				options.is_store = strcmp(optarg, "store") == 0;
				options.is_cold = strcmp(optarg, "cold") == 0;
				break;
			case VIA:
				options.is_server = strcmp(optarg, "server") == 0;
				break;
			case SIZE:
				options.size_bytes = atol(optarg);
				break;
			case CLIENTS:
				options.clients = atoi(optarg);
				break;
			case ROUNDS:
				options.rounds = atoi(optarg);
				break;
			case VALUES:
				options.values = atol(optarg);
				break;
			case CONTENDERS:
				add_contenders(optarg);
				break;
			case PREFIX:
				options.prefix = optarg;
				break;
			case DIRECTORY:
				options.directory = optarg;
				break;
			case PAYLOAD:
				options.payload_path = optarg;
				break;
			case FIRST_ID:
				options.first_id = atol(optarg);
				break;
			case DATA_VALUES:
				options.data_values = atol(optarg);
				break;
			case CPU:
				options.cpu = atoi(optarg);
				break;
			case SETTLE:
				options.settle = true;
				break;
			case SECONDS:
				options.seconds = atof(optarg);
				break;
			default:
				exit(2);
		}
	}
	if (options.size_bytes <= 0 || options.clients < 1 || options.clients > MAX_CLIENTS ||
		options.directory == NULL || options.payload_path == NULL ||
		options.contender_count == 0 || (!options.is_store && options.data_values <= 0))
		fail("options are missing, see bench/run");
}

int
main(int argc, char **argv)
{
	pthread_t	threads[MAX_CLIENTS];

	/* The first touch of memory is expensive: keep freed memory.  The server does so, too. */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 2000000000);
	mallopt(M_ARENA_MAX, 1);

	parse_options(argc, argv);
	choose_values();
	read_payload();
	for (int i = 0; i < options.clients; i++)
		set_up(&all_clients[i], i);
	if (options.cpu >= 0)
		pin(0);
	pthread_barrier_init(&barrier, NULL, options.clients);
	for (int i = 0; i < options.clients; i++)
		pthread_create(&threads[i], NULL, run_client, &all_clients[i]);
	for (int i = 0; i < options.clients; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < options.clients; i++)
		PQfinish(all_clients[i].connection);
	return 0;
}
