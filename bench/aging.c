/*
 * bench/aging.c
 *	  Fills a store with objects, replaces random ones, reads a sample: the steps of bench/aging
 *	  and of bench/fill.
 *
 * One call is one step of one contender: blobstate or bytea (a table objects (id, v)), or file (a
 * directory).  Prints one line: seconds, bytes, operations, the number of operations that were
 * repeated because the disk was full, and the number of clients that gave up.
 *
 * --op full stores objects until there is no room for any.  Before that line it prints MB per
 * second of each tenth of the objects and of the last hundredth; after it, what the first refused
 * store was told.  --op verify compares objects with those, and prints how many there are, and how
 * many are wrong.  For --op fragments (files) it prints the mean and the largest number of
 * physically discontiguous pieces of a file.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#define MAX_CLIENTS 64
#define FULL_PAUSE_US 100000
#define WARM_UP_BYTES (192L * 1024 * 1024)

/* Each value starts at another byte of the payload, so that all values differ. */
#define SHIFT_BYTES 65536

typedef enum Operation
{
	OP_FILL, OP_REPLACE, OP_READ, OP_FULL, OP_VERIFY, OP_FRAGMENTS
} Operation;

static const char *const operation_names[] = {
	"fill", "replace", "read", "full", "verify", "fragments"
};

static struct
{
	Operation	operation;
	bool		is_file;
	bool		deletes;		/* replace by DELETE and INSERT, not by UPDATE */
	bool		varies;			/* sizes from half to one and a half of the mean */
	long		mean_bytes;
	long		objects;		/* of OP_FULL: no more than these */
	long		first_id;		/* of OP_FULL */
	double		patience;		/* seconds that a store waits for room */
	long		bytes;			/* to be written by all replacements, or read */
	int			clients;
	uint64_t	seed;
	const char *directory;
} options = {.clients = 1, .seed = 1, .patience = 60};

typedef struct Client
{
	int			number;
	PGconn	   *connection;
	int			directory_fd;
	uint64_t	random;
	char	   *buffer;			/* for files that are read */
	long		bytes;
	long		operations;
	long		refused;
	bool		gave_up;
	long		wrong;			/* objects, of OP_VERIFY */
} Client;

static Client all_clients[MAX_CLIENTS];
static char *payload;
static long *sample;			/* ids in the order they are read */

/* Of OP_FULL: when each object was stored; what the first refused store was told. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double *stored_at;
static long stored_count;
static char refusal[1024];
static atomic_long next_id;

static void __attribute__((noreturn, format(printf, 1, 2)))
fail(const char *format, ...)
{
	va_list		arguments;

	va_start(arguments, format);
	fprintf(stderr, "aging: ");
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

/* xorshift64* */
static uint64_t
draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545F4914F6CDD1D);
}

static long
draw_size(Client *client)
{
	if (!options.varies)
		return options.mean_bytes;
	return options.mean_bytes / 2 + (long) (draw(&client->random) % (uint64_t) options.mean_bytes);
}

static void
note_refusal(const char *state, const char *message, const char *detail)
{
	pthread_mutex_lock(&lock);
	if (refusal[0] == '\0')
		snprintf(refusal, sizeof(refusal), "%s %s%s%s", state, message,
				 detail != NULL ? ": " : "", detail != NULL ? detail : "");
	pthread_mutex_unlock(&lock);
}

/* ---- the server ---- */

static PGresult *
expect(Client *client, PGresult *result, ExecStatusType status)
{
	if (PQresultStatus(result) != status)
		fail("%s", PQerrorMessage(client->connection));
	return result;
}

static void
command(Client *client, const char *text)
{
	PQclear(expect(client, PQexec(client->connection, text), PGRES_COMMAND_OK));
}

static void
prepare(Client *client, const char *name, const char *text)
{
	PQclear(expect(client, PQprepare(client->connection, name, text, 0, NULL), PGRES_COMMAND_OK));
}

static PGresult *
execute(Client *client, const char *statement, long id, const char *value, long size_bytes)
{
	int64_t		id_wire = (int64_t) htobe64((uint64_t) id);
	const char *values[2] = {(const char *) &id_wire, value};
	int			lengths[2] = {sizeof(id_wire), (int) size_bytes};
	int			formats[2] = {1, 1};

	return PQexecPrepared(client->connection, statement, value != NULL ? 2 : 1, values, lengths,
						  formats, 1);
}

/* True if done, false if the disk is full. */
static bool
took(Client *client, PGresult *result)
{
	bool		ok = PQresultStatus(result) == PGRES_COMMAND_OK;
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (!ok && (state == NULL || strcmp(state, "53100") != 0))
		fail("%s", PQerrorMessage(client->connection));
	if (!ok)
		note_refusal(state, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
					 PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
	if (ok && strcmp(PQcmdTuples(result), "1") != 0)
		fail("a statement changed %s rows", PQcmdTuples(result));
	PQclear(result);
	return ok;
}

/* Insert an object, or replace it, in one transaction.  False if the disk is full. */
static bool
store_row(Client *client, long id, const char *value, long size_bytes)
{
	bool		ok;

	if (options.operation != OP_REPLACE)
		return took(client, execute(client, "insert", id, value, size_bytes));
	if (!options.deletes)
		return took(client, execute(client, "update", id, value, size_bytes));
	command(client, "BEGIN");
	ok = took(client, execute(client, "delete", id, NULL, 0)) &&
		took(client, execute(client, "insert", id, value, size_bytes));
	command(client, ok ? "COMMIT" : "ROLLBACK");
	return ok;
}

static long
read_row(Client *client, long id)
{
	PGresult   *result = expect(client, execute(client, "read", id, NULL, 0), PGRES_TUPLES_OK);
	long		size_bytes;

	if (PQntuples(result) != 1)
		fail("object %ld is missing", id);
	size_bytes = PQgetlength(result, 0, 0);
	PQclear(result);
	return size_bytes;
}

/* What OP_FULL stores under an id. */
static const char *
value_of(long id)
{
	return payload + id * 4099 % SHIFT_BYTES;
}

static void
verify_row(Client *client, long id)
{
	PGresult   *result = expect(client, execute(client, "read", id, NULL, 0), PGRES_TUPLES_OK);

	if (PQntuples(result) == 1)
	{
		client->operations++;
		client->wrong += PQgetlength(result, 0, 0) != options.mean_bytes ||
			memcmp(PQgetvalue(result, 0, 0), value_of(id), options.mean_bytes) != 0;
	}
	PQclear(result);
}

static void
connect_client(Client *client)
{
	client->connection = PQconnectdb("");
	if (PQstatus(client->connection) != CONNECTION_OK)
		fail("%s", PQerrorMessage(client->connection));
	prepare(client, "insert", "INSERT INTO objects VALUES ($1, $2)");
	prepare(client, "update", "UPDATE objects SET v = $2 WHERE id = $1");
	prepare(client, "delete", "DELETE FROM objects WHERE id = $1");
	prepare(client, "read", "SELECT v FROM objects WHERE id = $1");
}

/* ---- files ---- */

/* Replace a file as an application does that must not lose it: a new file, then a rename. */
static bool
store_file(Client *client, long id, const char *value, long size_bytes)
{
	char		name[32];
	char		temporary[32];
	int			fd;

	snprintf(name, sizeof(name), "%ld", id);
	snprintf(temporary, sizeof(temporary), "%ld.new", id);
	if (options.operation == OP_REPLACE && options.deletes &&
		unlinkat(client->directory_fd, name, 0) != 0 && errno != ENOENT)
		fail("could not remove file %s: %s", name, strerror(errno));
	fd = openat(client->directory_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		fail("could not create file %s: %s", temporary, strerror(errno));
	for (long done = 0; done < size_bytes;)
	{
		ssize_t		written = write(fd, value + done, size_bytes - done);

		if (written < 0 && errno == ENOSPC)
		{
			close(fd);
			unlinkat(client->directory_fd, temporary, 0);
			note_refusal("ENOSPC", strerror(ENOSPC), NULL);
			return false;
		}
		if (written <= 0)
			fail("could not write file %s: %s", temporary, strerror(errno));
		done += written;
	}
	if (fdatasync(fd) != 0 || close(fd) != 0 ||
		renameat(client->directory_fd, temporary, client->directory_fd, name) != 0 ||
		fsync(client->directory_fd) != 0)
		fail("could not finish file %s: %s", name, strerror(errno));
	return true;
}

/* Read an object's file as a whole; returns its size in bytes. */
static long
read_file(Client *client, long id)
{
	char		name[32];
	long		done = 0;
	ssize_t		got;
	int			fd;

	snprintf(name, sizeof(name), "%ld", id);
	fd = openat(client->directory_fd, name, O_RDONLY);
	if (fd < 0)
		fail("could not open file %s: %s", name, strerror(errno));
	while ((got = read(fd, client->buffer + done, options.mean_bytes * 2 - done)) > 0)
		done += got;
	if (got < 0)
		fail("could not read file %s: %s", name, strerror(errno));
	close(fd);
	return done;
}

static void
verify_file(Client *client, long id)
{
	char		name[32];

	snprintf(name, sizeof(name), "%ld", id);
	if (faccessat(client->directory_fd, name, F_OK, 0) != 0)
		return;
	client->operations++;
	client->wrong += read_file(client, id) != options.mean_bytes ||
		memcmp(client->buffer, value_of(id), options.mean_bytes) != 0;
}

/* Pieces of a file that do not follow each other on the device. */
static long
count_fragments(int directory_fd, long id)
{
	enum {ROOM = 256};
	struct fiemap *map = calloc(1, sizeof(*map) + ROOM * sizeof(struct fiemap_extent));
	char		name[32];
	long		fragments = 0;
	uint64_t	expected = 0;
	bool		is_last = false;
	int			fd;

	snprintf(name, sizeof(name), "%ld", id);
	fd = openat(directory_fd, name, O_RDONLY);
	if (fd < 0)
		fail("could not open file %s: %s", name, strerror(errno));
	while (!is_last)
	{
		map->fm_length = FIEMAP_MAX_OFFSET - map->fm_start;
		map->fm_flags = FIEMAP_FLAG_SYNC;
		map->fm_extent_count = ROOM;
		if (ioctl(fd, FS_IOC_FIEMAP, map) != 0)
			fail("the file system does not tell where files are: %s", strerror(errno));
		if (map->fm_mapped_extents == 0)
			break;
		for (uint32_t i = 0; i < map->fm_mapped_extents; i++)
		{
			const struct fiemap_extent *extent = &map->fm_extents[i];

			fragments += fragments == 0 || extent->fe_physical != expected;
			expected = extent->fe_physical + extent->fe_length;
			map->fm_start = extent->fe_logical + extent->fe_length;
			is_last = (extent->fe_flags & FIEMAP_EXTENT_LAST) != 0;
		}
	}
	close(fd);
	free(map);
	return fragments;
}

/* Print the mean and the largest number of pieces of all files. */
static void
report_fragments(void)
{
	int			directory_fd = open(options.directory, O_RDONLY | O_DIRECTORY);
	long		sum = 0;
	long		most = 0;

	if (directory_fd < 0)
		fail("could not open directory %s: %s", options.directory, strerror(errno));
	for (long id = 0; id < options.objects; id++)
	{
		long		count = count_fragments(directory_fd, id);

		sum += count;
		most = count > most ? count : most;
	}
	printf("%.2f\t%ld\n", (double) sum / options.objects, most);
}

/* ---- steps ---- */

/*
 * Repeat until there is room: the processes that free space may need a moment.  False if there is
 * none for a while.
 */
static bool
store(Client *client, long id, const char *value, long size_bytes)
{
	double		started = now();

	while (!(options.is_file ? store_file(client, id, value, size_bytes) :
			 store_row(client, id, value, size_bytes)))
	{
		client->refused++;
		if (now() - started > options.patience)
		{
			client->gave_up = true;
			if (options.operation != OP_FULL)
				fprintf(stderr, "aging: no room for %ld bytes in %.0f s; the first refused store "
						"was told: %s\n", size_bytes, options.patience, refusal);
			return false;
		}
		usleep(FULL_PAUSE_US);
	}
	client->bytes += size_bytes;
	client->operations++;
	return true;
}

/* An object of random size and content. */
static bool
store_any(Client *client, long id)
{
	long		size_bytes = draw_size(client);

	return store(client, id, payload + draw(&client->random) % SHIFT_BYTES, size_bytes);
}

/* Stores until there is no room, or no id. */
static void
store_all(Client *client)
{
	long		id;

	while ((id = atomic_fetch_add(&next_id, 1)) < options.first_id + options.objects &&
		   store(client, id, value_of(id), options.mean_bytes))
	{
		pthread_mutex_lock(&lock);
		stored_at[stored_count++] = now();
		pthread_mutex_unlock(&lock);
	}
}

/* A client has the ids whose remainder modulo the number of clients is its number. */
static void
run_step(Client *client)
{
	long		share = (options.objects - client->number - 1) / options.clients + 1;
	long		budget_bytes = options.bytes / options.clients;

	if (options.operation == OP_FILL)
	{
		for (long i = 0; i < share && store_any(client, client->number + i * options.clients); i++)
			;
	}
	else if (options.operation == OP_REPLACE)
	{
		while (client->bytes < budget_bytes &&
			   store_any(client, client->number +
						 (long) (draw(&client->random) % (uint64_t) share) * options.clients))
			;
	}
	else if (options.operation == OP_FULL)
		store_all(client);
	else if (options.operation == OP_VERIFY)
	{
		for (long id = client->number; id < options.objects; id += options.clients)
		{
			if (options.is_file)
				verify_file(client, id);
			else
				verify_row(client, id);
		}
	}
	else
	{
		for (long i = client->number; i < options.objects * 3 / 4 && client->bytes < budget_bytes;
			 i += options.clients)
		{
			client->bytes += options.is_file ? read_file(client, sample[i]) :
				read_row(client, sample[i]);
			client->operations++;
		}
	}
}

static void *
run_client(void *argument)
{
	run_step(argument);
	return NULL;
}

/* Shuffle all ids; the last ones are read before the clock starts. */
static void
make_sample(void)
{
	uint64_t	random = options.seed * UINT64_C(0x9E3779B97F4A7C15) + 1;

	sample = malloc(sizeof(long) * options.objects);
	for (long i = 0; i < options.objects; i++)
	{
		long		j = (long) (draw(&random) % (uint64_t) (i + 1));

		sample[i] = sample[j];
		sample[j] = i;
	}
}

/* Load catalogs and index roots, and touch memory for the first time. */
static void
warm_up(Client *client)
{
	long		bytes = 0;

	for (long i = options.objects - 1 - client->number;
		 i >= options.objects * 3 / 4 && bytes < WARM_UP_BYTES / options.clients;
		 i -= options.clients)
		bytes += options.is_file ? read_file(client, sample[i]) : read_row(client, sample[i]);
}

/* Prepare a client: its random numbers, its connection or directory, its buffer. */
static void
set_up(Client *client, int number)
{
	client->number = number;
	client->random = (options.seed * MAX_CLIENTS + number + 1) * UINT64_C(0x9E3779B97F4A7C15);
	if (options.is_file)
	{
		client->directory_fd = open(options.directory, O_RDONLY | O_DIRECTORY);
		if (client->directory_fd < 0)
			fail("could not open directory %s: %s", options.directory, strerror(errno));
	}
	else
		connect_client(client);
	client->buffer = malloc(options.mean_bytes * 2);
	memset(client->buffer, 1, options.mean_bytes * 2);
	if (options.operation == OP_READ)
		warm_up(client);
}

static void
make_payload(void)
{
	long		words = (options.mean_bytes * 2 + SHIFT_BYTES) / 8 + 1;
	uint64_t	random = UINT64_C(88172645463325252);

	payload = malloc(words * 8);
	for (long i = 0; i < words; i++)
	{
		uint64_t	word = draw(&random);

		memcpy(payload + i * 8, &word, 8);
	}
}

static void
print_part(double started, long first, long end)
{
	double		from = first == 0 ? started : stored_at[first - 1];
	double		seconds = end == 0 ? 0 : stored_at[end - 1] - from;

	printf("%.1f\t", seconds <= 0 ? 0 : (end - first) * options.mean_bytes / seconds / 1048576);
}

/* MB per second of each tenth of the objects, and of the last hundredth. */
static void
print_parts(double started)
{
	for (int i = 0; i < 10; i++)
		print_part(started, stored_count * i / 10, stored_count * (i + 1) / 10);
	print_part(started, stored_count - stored_count / 100, stored_count);
	printf("\n");
}

/* Run the step with all clients, and print its line. */
static void
run(void)
{
	pthread_t	threads[MAX_CLIENTS];
	double		started;
	double		ended;
	long		bytes = 0;
	long		operations = 0;
	long		refused = 0;
	long		gave_up = 0;
	long		wrong = 0;

	make_payload();
	stored_at = malloc(sizeof(double) * (options.objects + 1));
	next_id = options.first_id;
	if (options.operation == OP_READ)
		make_sample();
	for (int i = 0; i < options.clients; i++)
		set_up(&all_clients[i], i);
	started = now();
	for (int i = 0; i < options.clients; i++)
		pthread_create(&threads[i], NULL, run_client, &all_clients[i]);
	for (int i = 0; i < options.clients; i++)
	{
		pthread_join(threads[i], NULL);
		bytes += all_clients[i].bytes;
		operations += all_clients[i].operations;
		refused += all_clients[i].refused;
		gave_up += all_clients[i].gave_up;
		wrong += all_clients[i].wrong;
	}
	ended = now();
	if (options.operation == OP_FULL)
	{
		print_parts(started);
		/* Waits for room that was not found do not count. */
		if (stored_count > 0)
			ended = stored_at[stored_count - 1];
	}
	if (options.operation == OP_VERIFY)
		printf("%ld\t%ld\n", operations, wrong);
	else
		printf("%.3f\t%ld\t%ld\t%ld\t%ld\n", ended - started, bytes, operations, refused, gave_up);
	if (options.operation == OP_FULL)
		printf("%s\n", refusal);
	for (int i = 0; i < options.clients; i++)
		PQfinish(all_clients[i].connection);
}

enum
{
	OP, CONTENDER, MODE, VARY, SIZE, OBJECTS, FIRST_ID, BYTES, CLIENTS, SEED, PATIENCE, DIRECTORY
};

static const struct option option_names[] = {
	{"op", 1, NULL, OP}, {"contender", 1, NULL, CONTENDER}, {"mode", 1, NULL, MODE},
	{"vary", 0, NULL, VARY}, {"size", 1, NULL, SIZE}, {"objects", 1, NULL, OBJECTS},
	{"bytes", 1, NULL, BYTES}, {"clients", 1, NULL, CLIENTS}, {"seed", 1, NULL, SEED},
	{"first-id", 1, NULL, FIRST_ID}, {"patience", 1, NULL, PATIENCE},
	{"directory", 1, NULL, DIRECTORY}, {0}
};

static Operation
find_operation(const char *name)
{
	for (int i = 0; i <= OP_FRAGMENTS; i++)
	{
		if (strcmp(name, operation_names[i]) == 0)
			return (Operation) i;
	}
	fail("there is no operation %s", name);
}

static void
parse_options(int argc, char **argv)
{
	int			option;

	while ((option = getopt_long(argc, argv, "", option_names, NULL)) != -1)
	{
		if (option == OP)
			options.operation = find_operation(optarg);
		else if (option == CONTENDER)
			options.is_file = strcmp(optarg, "file") == 0;
		else if (option == MODE)
			options.deletes = strcmp(optarg, "delete") == 0;
		else if (option == VARY)
			options.varies = true;
		else if (option == SIZE)
			options.mean_bytes = atol(optarg);
		else if (option == OBJECTS)
			options.objects = atol(optarg);
		else if (option == FIRST_ID)
			options.first_id = atol(optarg);
		else if (option == PATIENCE)
			options.patience = atof(optarg);
		else if (option == BYTES)
			options.bytes = atol(optarg);
		else if (option == CLIENTS)
			options.clients = atoi(optarg);
		else if (option == SEED)
			options.seed = strtoull(optarg, NULL, 10);
		else if (option == DIRECTORY)
			options.directory = optarg;
		else
			exit(2);
	}
	if (options.objects <= 0 || options.clients < 1 || options.clients > MAX_CLIENTS ||
		options.clients > options.objects ||
		(options.operation != OP_FRAGMENTS && options.mean_bytes <= 0) ||
		((options.is_file || options.operation == OP_FRAGMENTS) && options.directory == NULL))
		fail("options are missing, see bench/aging");
}

int
main(int argc, char **argv)
{
	/* The first touch of memory is expensive: keep freed memory. */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 2000000000);
	mallopt(M_ARENA_MAX, 1);

	parse_options(argc, argv);
	if (options.operation == OP_FRAGMENTS)
		report_fragments();
	else
		run();
	return 0;
}
