/*
 * dev/ingest.c
 *	  Store files in a table (path text, content <any type with bytea's binary form>).
 *
 *	  ingest <connection string> <table> <label> < list-of-paths
 *
 * Sends the files by COPY in binary format, FILES_PER_COMMIT of them in each transaction, and
 * shows a progress bar.  Both sides of the demo's comparison use it in the same way.  Prints the
 * seconds from the first COPY to the last commit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <libpq-fe.h>

#define FILES_PER_COMMIT 250
#define STEP_BYTES (256 * 1024)
#define BAR_WIDTH 30

/* Binary COPY: signature, flags, length of the header's extension. */
static const char copy_header[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0";
#define COPY_HEADER_BYTES 19

typedef struct Progress
{
	const char *label;
	size_t		file_count;
	uint64_t	total_bytes;
	size_t		files_done;
	uint64_t	bytes_done;
	double		started;		/* seconds */
	double		shown;
} Progress;

static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	fputs("\ningest: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
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

/* On a terminal a bar that moves; elsewhere one line at the end. */
static void
show_progress(Progress *progress, bool is_end)
{
	static int	is_terminal = -1;
	char		bar[BAR_WIDTH + 1];
	double		time = now();
	int			filled = BAR_WIDTH;

	if (is_terminal < 0)
		is_terminal = isatty(STDERR_FILENO);
	if (!is_end && (!is_terminal || time - progress->shown < 0.1))
		return;
	progress->shown = time;
	if (progress->total_bytes > 0)
		filled = (int) (BAR_WIDTH * progress->bytes_done / progress->total_bytes);
	memset(bar, '.', BAR_WIDTH);
	memset(bar, '#', filled);
	bar[BAR_WIDTH] = '\0';
	fprintf(stderr, "%s%-10s [%s] %zu/%zu files  %.0f/%.0f MB  %.0f MB/s ",
			is_terminal ? "\r" : "", progress->label, bar, progress->files_done,
			progress->file_count, progress->bytes_done / 1e6, progress->total_bytes / 1e6,
			progress->bytes_done / 1e6 / (time - progress->started + 1e-9));
	if (is_end)
		fputc('\n', stderr);
}

static void
put(PGconn *connection, const void *data, size_t length)
{
	if (PQputCopyData(connection, data, (int) length) != 1)
		die("%s", PQerrorMessage(connection));
}

static void
put_int16(PGconn *connection, int16_t value)
{
	uint16_t	network = htons((uint16_t) value);

	put(connection, &network, sizeof(network));
}

static void
put_int32(PGconn *connection, int32_t value)
{
	uint32_t	network = htonl((uint32_t) value);

	put(connection, &network, sizeof(network));
}

/* One row: the path, and the file's bytes in steps. */
static void
put_file(PGconn *connection, const char *path, Progress *progress)
{
	static char buffer[STEP_BYTES];
	struct stat status;
	off_t		left;
	int			fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &status) != 0)
		die("could not open \"%s\": %s", path, strerror(errno));
	put_int16(connection, 2);
	put_int32(connection, (int32_t) strlen(path));
	put(connection, path, strlen(path));
	put_int32(connection, (int32_t) status.st_size);
	for (left = status.st_size; left > 0;)
	{
		ssize_t		got = read(fd, buffer, left < STEP_BYTES ? (size_t) left : STEP_BYTES);

		if (got <= 0)
			die("could not read \"%s\": %s", path, got < 0 ? strerror(errno) : "it has shrunk");
		put(connection, buffer, got);
		left -= got;
		progress->bytes_done += got;
		show_progress(progress, false);
	}
	close(fd);
	progress->files_done++;
}

static void
begin_copy(PGconn *connection, const char *table)
{
	char		command[256];
	PGresult   *result;

	snprintf(command, sizeof(command), "COPY %s (path, content) FROM STDIN (FORMAT binary)", table);
	result = PQexec(connection, command);
	if (PQresultStatus(result) != PGRES_COPY_IN)
		die("%s", PQerrorMessage(connection));
	PQclear(result);
	put(connection, copy_header, COPY_HEADER_BYTES);
}

/* Ends the COPY and, with it, its transaction. */
static void
end_copy(PGconn *connection)
{
	PGresult   *result;

	put_int16(connection, -1);
	if (PQputCopyEnd(connection, NULL) != 1)
		die("%s", PQerrorMessage(connection));
	while ((result = PQgetResult(connection)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			die("%s", PQerrorMessage(connection));
		PQclear(result);
	}
}

static char **
read_list(Progress *progress)
{
	char	  **paths = NULL;
	char	   *line = NULL;
	size_t		line_bytes = 0;
	ssize_t		length;

	while ((length = getline(&line, &line_bytes, stdin)) > 0)
	{
		struct stat status;

		if (line[length - 1] == '\n')
			line[length - 1] = '\0';
		if (stat(line, &status) != 0)
			die("could not find \"%s\": %s", line, strerror(errno));
		paths = realloc(paths, (progress->file_count + 1) * sizeof(*paths));
		if (paths == NULL || (paths[progress->file_count] = strdup(line)) == NULL)
			die("out of memory");
		progress->file_count++;
		progress->total_bytes += status.st_size;
	}
	free(line);
	return paths;
}

int
main(int argc, char **argv)
{
	Progress	progress = {0};
	PGconn	   *connection;
	char	  **paths;

	if (argc != 4)
		die("usage: ingest <connection string> <table> <label>");
	progress.label = argv[3];
	paths = read_list(&progress);

	connection = PQconnectdb(argv[1]);
	if (PQstatus(connection) != CONNECTION_OK)
		die("%s", PQerrorMessage(connection));

	progress.started = now();
	for (size_t i = 0; i < progress.file_count; i++)
	{
		if (i % FILES_PER_COMMIT == 0)
			begin_copy(connection, argv[2]);
		put_file(connection, paths[i], &progress);
		if (i % FILES_PER_COMMIT == FILES_PER_COMMIT - 1 || i == progress.file_count - 1)
			end_copy(connection);
	}
	printf("%.3f\n", now() - progress.started);
	show_progress(&progress, true);
	PQfinish(connection);
	return 0;
}
