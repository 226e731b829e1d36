/*
 * bench/hold.c
 *	  Holds memory, so that the remaining memory is in use all the time and stays backed by the
 *	  host.
 *
 * The host of a virtual machine takes free (and long unused) memory back, and getting a page again
 * costs more than copying it.  Prints a line when it holds the memory, then waits for the end of
 * its standard input.  If memory runs short, the kernel ends this process first.
 *
 * usage: hold megabytes
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STEP_BYTES (2L * 1024 * 1024)

int
main(int argc, char **argv)
{
	long		bytes = argc == 2 ? atol(argv[1]) * 1024 * 1024 : 0;
	FILE	   *score = fopen("/proc/self/oom_score_adj", "w");
	char	   *memory;

	if (bytes <= 0)
		return 2;
	if (score != NULL)
	{
		fputs("1000\n", score);
		fclose(score);
	}
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				  -1, 0);
	if (memory == MAP_FAILED)
	{
		perror("hold");
		return 1;
	}
	madvise(memory, bytes, MADV_HUGEPAGE);
	for (long done = 0; done < bytes; done += STEP_BYTES)
		memset(memory + done, 1, bytes - done < STEP_BYTES ? bytes - done : STEP_BYTES);
	printf("holding %ld MB\n", bytes / 1024 / 1024);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
