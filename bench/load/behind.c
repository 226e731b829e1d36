/*
 * bench/load/behind.c
 *	  For the contender "behind": a thread writes as many bytes to a file as the clients have had
 *	  logged, as a process of the server would that writes stored values from its memory.
 *
 * Direct I/O, one request at a time, always into blocks that exist.  Nothing is synced here: the
 * values are durable in the WAL, and a checkpoint's sync is no part of a round.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

#define REQUEST_BYTES (256 * 1024)
#define FILE_BYTES (256L * 1024 * 1024)
#define ALIGNMENT 4096

/* Clients wait when so much has yet to be written. */
#define MAX_PENDING_BYTES (64L * 1024 * 1024)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_work = PTHREAD_COND_INITIALIZER;
static pthread_cond_t has_room = PTHREAD_COND_INITIALIZER;
static long pending_bytes;
static int	fd = -1;
static char *buffer;

static void
write_request(long offset)
{
	if (pwrite(fd, buffer, REQUEST_BYTES, offset) != REQUEST_BYTES)
		fail("behind: could not write");
}

static void *
run_writer(void *argument)
{
	long		offset = 0;

	(void) argument;
	for (;;)
	{
		pthread_mutex_lock(&lock);
		while (pending_bytes < REQUEST_BYTES)
			pthread_cond_wait(&has_work, &lock);
		pthread_mutex_unlock(&lock);

		write_request(offset);
		offset = (offset + REQUEST_BYTES) % FILE_BYTES;

		pthread_mutex_lock(&lock);
		pending_bytes -= REQUEST_BYTES;
		pthread_cond_broadcast(&has_room);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

void
start_behind(void)
{
	char		path[4096];
	pthread_t	thread;

	if (fd >= 0)
		return;
	snprintf(path, sizeof(path), "%s/behind", options.directory);
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (fd < 0 || posix_memalign((void **) &buffer, ALIGNMENT, REQUEST_BYTES) != 0)
		fail("behind: could not open %s", path);
	memset(buffer, 0x5a, REQUEST_BYTES);
	for (long offset = 0; offset < FILE_BYTES; offset += REQUEST_BYTES)
		write_request(offset);
	if (fsync(fd) != 0 || pthread_create(&thread, NULL, run_writer, NULL) != 0)
		fail("behind: could not start");
}

void
write_behind(long bytes)
{
	pthread_mutex_lock(&lock);
	while (pending_bytes > MAX_PENDING_BYTES)
		pthread_cond_wait(&has_room, &lock);
	pending_bytes += bytes;
	if (pending_bytes >= REQUEST_BYTES)
		pthread_cond_signal(&has_work);
	pthread_mutex_unlock(&lock);
}

void
settle_behind(void)
{
	pthread_mutex_lock(&lock);
	while (pending_bytes >= REQUEST_BYTES)
		pthread_cond_wait(&has_room, &lock);
	pthread_mutex_unlock(&lock);
}
