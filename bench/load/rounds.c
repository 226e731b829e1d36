/*
 * bench/load/rounds.c
 *	  What a client of the load generator does: rounds, their operations and their times.
 *
 * All clients of a contender work at once; barriers separate the rounds.  The first client prints
 * the line of a round.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

/* PostgreSQL plans the first five executions for their parameters; they are not measured. */
#define WARM_UP_VALUES 6

typedef struct Client
{
	int			number;
	Session		sessions[MAX_CONTENDERS];
	long		stored;			/* values of this client so far, of each contender */
	uint64_t	random;
	double	   *latencies;		/* of the transactions of a round */
	long		latency_count;
	long		done;			/* operations of the last round */
	double		server_seconds; /* of the last round, inside the server */
} Client;

static Client all_clients[MAX_CLIENTS];
static char *payload;			/* the largest value + SHIFT_BYTES random bytes */
static pthread_barrier_t barrier;
static int	directory_fd;
static Choice choice;			/* of reads of existing values */
static long *shuffled;			/* their ids in random order, for OP_RANDOM and OP_METADATA */

static const struct
{
	const char *contender;
	const Driver *driver;
}			contenders[] = {
	{"blobstate", &postgres_driver},
	{"deferred", &postgres_driver},
	{"bytea", &postgres_driver},
	{"lo", &postgres_driver},
	{"receive", &postgres_driver},
	{"hash", &postgres_driver},
	{"log", &postgres_driver},
	{"behind", &postgres_driver},
	{"direct", &postgres_driver},
	{"file", &file_driver},
#ifdef WITH_MARIADB
	{"innodb", &innodb_driver},
#endif
#ifdef WITH_SQLITE
	{"sqlite", &sqlite_driver},
#endif
	{NULL, NULL}
};

/* ---- values ---- */

/* splitmix64 */
uint64_t
draw(uint64_t *state)
{
	uint64_t	z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

long
payload_offset(long id, long version)
{
	return (id * 4099 + version * 8191) % SHIFT_BYTES;
}

const char *
payload_of(long id, long version)
{
	return payload + payload_offset(id, version);
}

/* The first id that a client stores; clients store different ids. */
static long
own_ids(const Client *client)
{
	return options.first_id + client->number * 1000000L;
}

/* An existing value that no other client changes. */
static long
draw_id(Client *client)
{
	long		share = (options.data_values - client->number - 1) / options.clients + 1;

	return client->number + (long) (draw(&client->random) % (uint64_t) share) * options.clients;
}

/*
 * Choose the values that reads take.  Cold reads jump about, so that no read-ahead brings in the
 * next value; value 0 is left to the warm-up.
 */
static void
choose_values(void)
{
	if (options.operation == OP_COLD)
		choice = (Choice) {1, 7919, options.data_values - 1};
	else
		choice = (Choice) {0, 1, options.data_values};
}

/* The same order in each run. */
static void
shuffle_values(void)
{
	uint64_t	state = 1;

	shuffled = malloc(sizeof(long) * options.data_values);
	for (long i = 0; i < options.data_values; i++)
	{
		long		other = (long) (draw(&state) % (uint64_t) (i + 1));

		shuffled[i] = shuffled[other];
		shuffled[other] = i;
	}
}

/* ---- operations ---- */

static void
read_value(Session *session, long id)
{
	long		got = session->driver->read(session, id);

	if (got != value_bytes(id))
		fail("%s: value %ld has %ld bytes", session->contender, id, got);
}

static void
replace_value(Client *client, Session *session, long number)
{
	long		id = draw_id(client);

	session->driver->replace(session, id, payload_of(id, number + 1), value_bytes(id));
}

/* Of clients that read each value once: each has a part of them. */
static long
shuffled_id(const Client *client, long number)
{
	long		first = options.data_values / options.clients * client->number;

	return shuffled[(first + number) % options.data_values];
}

/* Values that follow each other in the random order, from anywhere. */
static void
ask_metadata(Client *client, Session *session)
{
	uint64_t	first = draw(&client->random) % (uint64_t) options.data_values;
	long		ids[METADATA_VALUES];
	long		wanted = 0;
	long		got;

	for (int i = 0; i < METADATA_VALUES; i++)
	{
		ids[i] = shuffled[(first + i) % options.data_values];
		wanted += value_bytes(ids[i]);
	}
	got = session->driver->metadata(session, ids);
	if (got != wanted)
		fail("%s: values have %ld bytes, not %ld", session->contender, got, wanted);
}

/* Operation of a number, counted over all rounds. */
static void
do_operation(Client *client, Session *session, long number, const Choice *values)
{
	long		id = own_ids(client) + number;

	switch (options.operation)
	{
		case OP_STORE:
			session->driver->store(session, id, payload_of(id, 0), value_bytes(id));
			break;
		case OP_REPLACE:
			replace_value(client, session, number);
			break;
		case OP_MIXED:
			if (draw(&client->random) % 2 == 0)
				read_value(session, draw_id(client));
			else
				replace_value(client, session, number);
			break;
		case OP_FRESH:
			read_value(session, id);
			break;
		case OP_APPEND:
			/* The value that prepare_round has stored for this round. */
			session->driver->append(session, own_ids(client) + client->stored,
									options.size_bytes +
									(number - client->stored) * options.piece_bytes,
									payload_of(number, 0));
			break;
		case OP_RANDOM:
			read_value(session, shuffled_id(client, number));
			break;
		case OP_METADATA:
			ask_metadata(client, session);
			break;
		case OP_MIX:
		case OP_OVERWRITE:
		case OP_INSERT:
			do_change(session);
			break;
		case OP_MAKE:			/* has no rounds */
		case OP_FILL:
		case OP_SCAN:			/* all at once, but for the warm-up */
		case OP_CACHED:
		case OP_COLD:
			read_value(session, values->base + number * values->stride % values->modulus);
			break;
	}
}

/* An operation that takes all existing values at once. */
static bool
is_whole(long value_count)
{
	return (options.operation == OP_FILL || options.operation == OP_SCAN) &&
		value_count == options.data_values;
}

static void
do_whole(Client *client, Session *session)
{
	double		started = now();

	if (options.operation == OP_FILL)
		session->driver->fill(session, payload, options.data_values);
	else
	{
		long		count = session->driver->scan(session);

		if (count != options.data_values)
			fail("%s: a scan found %ld values", session->contender, count);
	}
	client->latencies[client->latency_count++] = now() - started;
}

/* Operations first, first + 1, ... of one client, and their times. */
static void
do_values(Client *client, Session *session, long first, long value_count, const Choice *values)
{
	double		begun = now();

	client->latency_count = 0;
	client->done = value_count;
	client->server_seconds = 0;
	client->random = (uint64_t) (first * MAX_CLIENTS + client->number);
	if (options.is_server && session->driver->run != NULL)
	{
		Choice		own = {own_ids(client) + first, 1, value_count};

		if (options.operation == OP_FRESH)
			client->server_seconds = session->driver->run(session, 0, value_count, &own);
		else if (options.operation == OP_STORE)
			client->server_seconds = session->driver->run(session, own_ids(client) + first,
														  value_count, values);
		else
			client->server_seconds = session->driver->run(session, first, value_count, values);
		return;
	}
	if (is_whole(value_count))
	{
		do_whole(client, session);
		return;
	}
	for (long done = 0; done < client->done;)
	{
		double		started = now();
		long		end = done + options.batch < value_count ? done + options.batch : value_count;

		if (options.batch > 1)
			session->driver->begin(session);
		for (; done < end; done++)
			do_operation(client, session, first + done, values);
		if (options.batch > 1)
			session->driver->commit(session);
		client->latencies[client->latency_count++] = now() - started;
		if (options.limit_seconds > 0 && now() - begun > options.limit_seconds)
			client->done = done;
	}
}

/* ---- rounds ---- */

static int
compare_doubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/* Median and 99th percentile of the transactions of all clients; 0 inside the server. */
static void
take_percentiles(double *median, double *p99)
{
	static double *all = NULL;
	long		count = 0;

	if (all == NULL)
		all = malloc(sizeof(double) * (options.values + WARM_UP_VALUES) * options.clients);
	for (int i = 0; i < options.clients; i++)
	{
		memcpy(all + count, all_clients[i].latencies,
			   sizeof(double) * all_clients[i].latency_count);
		count += all_clients[i].latency_count;
	}
	qsort(all, count, sizeof(double), compare_doubles);
	*median = count > 0 ? all[count / 2] : 0;
	*p99 = count > 0 ? all[(count * 99 - 1) / 100] : 0;
}

/* CPU time of a thread so far, in seconds; 0 where the system does not report it. */
static double
thread_cpu_seconds(const char *path)
{
	unsigned long long nanoseconds = 0;
	FILE	   *file = fopen(path, "r");

	if (file == NULL)
		return 0;
	if (fscanf(file, "%llu", &nanoseconds) != 1)
		nanoseconds = 0;
	fclose(file);
	return nanoseconds / 1e9;
}

/* CPU time of all threads of a contender's backends so far, in seconds. */
static double
backend_cpu_seconds(int contender_no)
{
	double		sum = 0;

	for (int i = 0; i < options.clients; i++)
	{
		char		pattern[64];
		glob_t		paths;

		snprintf(pattern, sizeof(pattern), "/proc/%d/task/*/schedstat",
				 all_clients[i].sessions[contender_no].backend);
		if (glob(pattern, 0, NULL, &paths) == 0)
		{
			for (size_t j = 0; j < paths.gl_pathc; j++)
				sum += thread_cpu_seconds(paths.gl_pathv[j]);
			globfree(&paths);
		}
	}
	return sum;
}

/*
 * Bytes that the process which serves the first client has had read from the device so far, by
 * itself or by the kernel's read-ahead for it; -1 where the system does not tell.
 */
static long
device_read_bytes(int contender_no)
{
	pid_t		pid = all_clients[0].sessions[contender_no].backend;
	char		path[64];
	char		text[64];
	long		bytes = -1;
	FILE	   *file;

	snprintf(path, sizeof(path), "/proc/%d/io", pid != 0 ? pid : getpid());
	file = fopen(path, "r");
	if (file == NULL)
		return -1;
	while (bytes < 0 && fgets(text, sizeof(text), file) != NULL)
		sscanf(text, "read_bytes: %ld", &bytes);
	fclose(file);
	return bytes;
}

/* Writes that a round has deferred must not disturb the next round. */
static void
settle(Client *client, Session *session)
{
	pthread_barrier_wait(&barrier);
	if (options.settle && client->number == 0)
	{
		if (session->driver->settle != NULL)
			session->driver->settle(session);
		syncfs(directory_fd);
	}
	pthread_barrier_wait(&barrier);
}

/* Work that a round needs and its time does not contain. */
static void
prepare_round(Client *client, Session *session)
{
	long		first = own_ids(client) + client->stored;

	if (options.operation == OP_FRESH)
	{
		for (long id = first; id < first + options.values; id++)
			session->driver->store(session, id, payload_of(id, 0), value_bytes(id));
	}
	else if (options.operation == OP_APPEND)
		session->driver->store(session, first, payload_of(first, 0), options.size_bytes);
	else if (options.is_empty)
	{
		if (client->number == 0)
			session->driver->empty(session);
	}
	else
		return;
	if (options.operation != OP_FRESH)
		settle(client, session);
}

/* The bytes that the line of a round names. */
static long
shown_bytes(void)
{
	return options.operation == OP_APPEND || options.operation == OP_MIX ? options.piece_bytes :
		options.size_bytes;
}

/* The line of a round, and of a cold one another with the bytes that were read. */
static void
print_round(int contender_no, int round, double seconds, double cpu_seconds, long read_bytes)
{
	const Session *session = &all_clients[0].sessions[contender_no];
	double		median;
	double		p99;
	long		done = 0;

	for (int i = 0; i < options.clients; i++)
		done += all_clients[i].done;
	if (options.is_server && session->driver->run != NULL)
	{
		seconds = 0;
		for (int i = 0; i < options.clients; i++)
			seconds += all_clients[i].server_seconds / options.clients;
	}
	take_percentiles(&median, &p99);
	printf("%s\t%s\t%ld\t%d\t%s\t%d\t%ld\t%.6f\t%.6f\t%.6f\t%.6f\n", options.label,
		   options.is_server ? "server" : "libpq", shown_bytes(), options.clients,
		   session->contender, options.first_round + round, done, seconds, cpu_seconds, median,
		   p99);
	/* Of several clients some have a process of their own, and some have not. */
	if (options.is_cold && read_bytes >= 0 && options.clients == 1)
		printf("%s-device\tlibpq\t%ld\t%d\t%s\t%d\t%ld\t%ld\n", options.label,
			   options.size_bytes, options.clients, session->contender,
			   options.first_round + round, options.values, read_bytes);
	fflush(stdout);
}

/* One round of one contender, with all clients at once. */
static void
run_round(Client *client, int contender_no, int round)
{
	Session    *session = &client->sessions[contender_no];
	double		started;
	double		cpu_seconds = 0;
	long		read_bytes = 0;
	long		first = client->stored;

	if (options.operation == OP_COLD)
		first += client->number * options.values * options.rounds;
	prepare_round(client, session);
	pthread_barrier_wait(&barrier);
	if (client->number == 0)
	{
		cpu_seconds = -backend_cpu_seconds(contender_no);
		read_bytes = -device_read_bytes(contender_no);
	}
	started = now();
	do_values(client, session, first, options.values, &choice);
	pthread_barrier_wait(&barrier);
	if (client->number == 0)
	{
		double		seconds = now() - started;

		print_round(contender_no, round, seconds,
					cpu_seconds + backend_cpu_seconds(contender_no),
					read_bytes + device_read_bytes(contender_no));
		if (changes_parts())
			end_changes(session);
	}
	settle(client, session);
}

/* Let each contender run once, without measuring. */
static void
warm_up(Client *client)
{
	static const Choice only_first = {0, 1, 1};
	bool		is_cold = options.operation == OP_COLD || options.is_cold;
	bool		is_all = options.operation == OP_CACHED || options.operation == OP_SCAN ||
		options.operation == OP_RANDOM;
	long		values = WARM_UP_VALUES;

	if (options.operation == OP_FILL)
		return;
	if (changes_parts())
	{
		for (int i = 0; i < options.contender_count; i++)
			begin_changes(&client->sessions[i]);
		return;
	}
	if (is_cold && options.operation != OP_RANDOM)
		values = 1;				/* loads catalogs and index roots */
	else if (is_all && !is_cold && options.data_values > WARM_UP_VALUES)
		values = options.operation == OP_RANDOM ? options.data_values / options.clients + 1 :
			options.data_values;	/* of OP_RANDOM its own part */
	for (int i = 0; i < options.contender_count; i++)
	{
		Session    *session = &client->sessions[i];

		if (options.operation == OP_FRESH)
		{
			for (long id = own_ids(client); id < own_ids(client) + values; id++)
				session->driver->store(session, id, payload_of(id, 0), value_bytes(id));
		}
		else if (options.operation == OP_APPEND)
			prepare_round(client, session);
		do_values(client, session, client->stored, values,
				  is_cold ? &only_first : &choice);
		settle(client, session);
	}
	if (options.operation != OP_COLD)
		client->stored += WARM_UP_VALUES;
}

static void
run_for_seconds(Client *client)
{
	double		started = now();
	long		count = 0;

	while (now() - started < options.seconds)
	{
		do_values(client, &client->sessions[0], client->stored, options.values, &choice);
		client->stored += options.values;
		count += options.values;
	}
	printf("%ld values in %.3f s\n", count, now() - started);
}

/* The thread of a client. */
void *
run_client(void *argument)
{
	Client	   *client = &all_clients[(intptr_t) argument];

	if (options.operation == OP_MAKE)
	{
		for (int i = 0; i < options.contender_count; i++)
			make_values(&client->sessions[i]);
		return NULL;
	}
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
			run_round(client, (options.first_round + round + i) % options.contender_count, round);
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
		fail("could not pin process %d", (int) pid);
}

static void
read_payload(void)
{
	long		wanted = largest_bytes() + SHIFT_BYTES;
	FILE	   *file = fopen(options.payload_path, "r");

	payload = malloc(wanted);
	if (file == NULL || fread(payload, 1, wanted, file) != (size_t) wanted)
		fail("could not read %ld bytes of %s", wanted, options.payload_path);
	fclose(file);
}

void
set_up_rounds(void)
{
	choose_values();
	if (options.operation == OP_RANDOM || options.operation == OP_METADATA)
		shuffle_values();
	read_payload();
	directory_fd = open(options.directory, O_RDONLY | O_DIRECTORY);
	if (directory_fd < 0)
		fail("could not open directory %s", options.directory);
	pthread_barrier_init(&barrier, NULL, options.clients);
	if (options.cpu >= 0)
		pin(0);
}

static const Driver *
find_driver(const char *contender)
{
	for (int i = 0; contenders[i].contender != NULL; i++)
	{
		if (strcmp(contenders[i].contender, contender) == 0)
			return contenders[i].driver;
	}
	fail("contender %s is unknown, or not compiled in", contender);
}

/* Sessions of a client; those of the first client create the tables. */
void
open_sessions(int client_no)
{
	Client	   *client = &all_clients[client_no];

	client->number = client_no;
	client->latencies = malloc(sizeof(double) * (options.values + options.data_values +
												 WARM_UP_VALUES));
	for (int i = 0; i < options.contender_count; i++)
	{
		Session    *session = &client->sessions[i];

		session->contender = options.contenders[i];
		session->driver = find_driver(session->contender);
		session->client_no = client_no;
		session->driver->open(session);
		if (options.cpu >= 0 && session->backend != 0)
			pin(session->backend);
	}
	if (options.seconds > 0)
	{
		printf("%d\n", client->sessions[0].backend);
		fflush(stdout);
	}
}

void
close_sessions(int client_no)
{
	for (int i = 0; i < options.contender_count; i++)
	{
		Session    *session = &all_clients[client_no].sessions[i];

		session->driver->close(session);
	}
}
